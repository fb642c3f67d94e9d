//! Sources of the kernels, and the table of variants that are compiled without a GPU.

use super::shape::Shape;
use super::{forms, rows, split, sums};
use crate::backend::cuda::{Extent, Properties, Source, Target, Variant, combinations};
use crate::channelize::plan::{Detection, Feed, Form, Options, Plan, Products};
use crate::voltage::VoltageEncoding;

/// Returns the kernels of this stage.
pub fn kernels(extent: Extent) -> Vec<Variant> {
    let plain = |source| Variant::plain(source, extent);
    let sums = VoltageEncoding::ALL.iter().map(|encoding| plain(sums::fir(*encoding)));
    let general = sums.chain([Variant::everywhere(forms::source()), plain(rows::source())]);
    let long = long_plans();
    let split = long.iter().flat_map(|plan| split_sums(plan, extent));
    let lines = split_lines(&long).into_iter().map(plain);
    let pairs = pair_plans(extent).into_iter().filter_map(|plan| sums::pairs(&plan)).map(plain);
    let fused = plans(extent);
    let fused = fused.iter().flat_map(fused_kernels);
    general.chain(fused).chain(split).chain(lines).chain(pairs).collect()
}

/// Maximum shared memory per block of compute capability 8.0, and of 9.0 and 10.0.
const SHARED_BYTES: [((u32, u32), usize); 2] = [((8, 0), 163 << 10), ((9, 0), 227 << 10)];

/// Returns a device of each kind.
fn devices() -> [Properties; 2] {
    SHARED_BYTES.map(|(capability, shared_bytes)| Properties {
        name: String::new(),
        capability,
        target: Target { capability, is_own: true },
        multiprocessors: 1,
        memory_bytes: 0,
        l2_bytes: 0,
        shared_bytes,
        driver_version: 0,
    })
}

/// Assigns each source to the older architecture, the newer ones, or both.
fn of_devices([old, new]: [Vec<Source>; 2]) -> Vec<Variant> {
    let (both, old): (Vec<Source>, Vec<Source>) =
        old.into_iter().partition(|source| new.contains(source));
    let new = new.into_iter().filter(|source| !both.contains(source)).collect::<Vec<Source>>();
    let variant = |architectures| move |source| Variant { source, architectures };
    let old = old.into_iter().map(variant(&["sm_80"]));
    let new = new.into_iter().map(variant(&["sm_90a", "sm_100"]));
    old.chain(new).chain(both.into_iter().map(Variant::everywhere)).collect()
}

/// Returns a plan's fused kernels.
fn fused_kernels(plan: &Plan) -> Vec<Variant> {
    of_devices(
        devices().map(|device| Shape::defaults(plan, &device).iter().map(Shape::source).collect()),
    )
}

/// Returns the first kernel of a long transform; for the newer devices only, unless `extent` is `All`.
fn split_sums(plan: &Plan, extent: Extent) -> Vec<Variant> {
    let source = |device: Properties| {
        let shape = split::Shape::candidates(plan, &device).first().copied();
        shape.map(|shape| shape.sums_source())
    };
    let [old, new] = devices().map(source);
    match extent {
        Extent::Representative => new.into_iter().map(|new| Variant::plain(new, extent)).collect(),
        Extent::All => of_devices([old, new].map(|source| source.into_iter().collect())),
    }
}

/// Returns the second kernels of long transforms without duplicates; they do not depend on the taps.
fn split_lines(plans: &[Plan]) -> Vec<Source> {
    let [_, device] = devices();
    let mut sources: Vec<Source> = Vec::new();
    for plan in plans {
        let shape = split::Shape::candidates(plan, &device).first().copied();
        let source = shape.map(|shape| shape.lines_source());
        sources.extend(source.filter(|source| !sources.contains(source)));
    }
    sources
}

/// Returns plans that use the two split kernels.
fn long_plans() -> Vec<Plan> {
    let axes: &[(&'static str, &[&str])] = &[
        ("channels", &["262144", "65536", "131072", "32768", "65536"]),
        ("taps", &["8", "4", "16", "32", "8"]),
        ("encoding", &["3", "4", "1", "0", "2"]),
        ("form", &["0"]),
    ];
    // Representative combinations only: all of them would have billions of coefficients.
    combinations(axes, Extent::Representative).into_iter().filter_map(plan).collect()
}

/// Returns plans that use the kernel for pairs of columns.
fn pair_plans(extent: Extent) -> Vec<Plan> {
    let axes: &[(&'static str, &[&str])] = &[
        ("channels", &["3000"]),
        ("taps", &["8", "16", "32"]),
        ("encoding", &["1", "3", "4"]),
        ("form", &["0"]),
    ];
    combinations(axes, extent).into_iter().filter_map(plan).collect()
}

/// Returns plans that have a fused kernel.
fn plans(extent: Extent) -> Vec<Plan> {
    let axes: &[(&'static str, &[&str])] = &[
        ("channels", &["256", "512", "1024", "2048", "4096", "8192", "16384"]),
        ("taps", &["8", "4", "16", "32", "64"]),
        ("encoding", &["1", "0", "2", "3", "4"]),
        ("form", &["0", "1", "2", "3", "4", "5"]),
    ];
    combinations(axes, extent).into_iter().filter_map(plan).collect()
}

/// Returns the plan of a number of channels, taps, and indices into the lists of encodings and forms.
fn plan(set: Vec<(&'static str, String)>) -> Option<Plan> {
    use VoltageEncoding::{Complex4, Complex8, Complex16, ComplexF32, ComplexOffset8};
    let encodings = [Complex4, Complex8, ComplexOffset8, Complex16, ComplexF32];
    let numbers: Vec<usize> = set.iter().filter_map(|value| value.1.parse().ok()).collect();
    let [channels, taps, encoding, form] = numbers[..] else { return None };
    let mut options = Options::new(channels, taps, encodings[encoding]);
    options.input.polarizations = 2;
    options.form = forms_of_plans()[form].clone();
    Plan::new(options).ok()
}

/// Returns the forms that the fused kernel writes.
fn forms_of_plans() -> [Form; 6] {
    let detected = |products| {
        Form::Detected(Detection {
            products,
            feed: Feed::Linear,
            spectra: 16,
            channels: 1,
            interpolate_dc: false,
        })
    };
    let integers = |bits| Form::Requantized { bits, gains: vec![1.0] };
    [
        Form::Spectra,
        detected(Products::Power),
        detected(Products::I),
        integers(8),
        detected(Products::Iquv),
        integers(4),
    ]
}
