//! The sources of the kernels, and the table of those that are compiled without a GPU.

use super::shape::Shape;
use crate::backend::cuda::{Extent, Properties, Source, Variant, combinations};
use crate::channelize::plan::{Detection, Feed, Form, Options, Plan, Products};
use crate::voltage::VoltageEncoding;

/// Windowed sums of an encoding's samples.
pub(super) fn fir(encoding: VoltageEncoding) -> Source {
    let place = VoltageEncoding::ALL.iter().position(|other| *other == encoding).unwrap_or(0);
    Source {
        name: "fir.cu",
        text: include_str!("fir.cu"),
        includes: &[],
        defines: vec![("ENCODING", place.to_string())],
    }
}

/// What becomes of spectra.
pub(super) fn forms() -> Source {
    Source { name: "forms.cu", text: include_str!("forms.cu"), includes: &[], defines: Vec::new() }
}

/// What joins the rows of antennas.
pub(super) fn rows() -> Source {
    Source { name: "rows.cu", text: include_str!("rows.cu"), includes: &[], defines: Vec::new() }
}

/// The kernels of this stage.
pub fn kernels(extent: Extent) -> Vec<Variant> {
    let sums = VoltageEncoding::ALL.iter().map(|encoding| fir(*encoding));
    let general = sums.chain([forms()]).map(Variant::everywhere);
    let general = general.chain([Variant::plain(rows(), extent)]);
    general.chain(plans(extent).iter().flat_map(fused)).collect()
}

/// The most shared memory of a block of compute capability 8.0, and of 9.0 and 10.0.
const SHARED_BYTES: [((u32, u32), usize); 2] = [((8, 0), 163 << 10), ((9, 0), 227 << 10)];

/// A plan's fused kernels.
fn fused(plan: &Plan) -> Vec<Variant> {
    let [old, new] = SHARED_BYTES.map(|(capability, shared_bytes)| {
        let properties = Properties {
            name: String::new(),
            capability,
            multiprocessors: 1,
            memory_bytes: 0,
            l2_bytes: 0,
            shared_bytes,
            driver_version: 0,
        };
        Shape::new(plan, &properties).map(|shape| shape.source())
    });
    if old == new {
        return new.into_iter().map(Variant::everywhere).collect();
    }
    let variant = |architectures| move |source| Variant { source, architectures };
    let old = old.map(variant(&["sm_80"]));
    old.into_iter().chain(new.map(variant(&["sm_90a", "sm_100"]))).collect()
}

/// Plans that have a fused kernel.
fn plans(extent: Extent) -> Vec<Plan> {
    use VoltageEncoding::{Complex4, Complex8, Complex16, ComplexF32, ComplexOffset8};
    let axes: &[(&'static str, &[&str])] = &[
        ("channels", &["256", "512", "1024", "2048", "4096", "8192", "16384"]),
        ("taps", &["8", "4", "16", "32", "64"]),
        ("encoding", &["1", "0", "2", "3", "4"]),
        ("form", &["0", "1", "2", "3", "4", "5"]),
    ];
    let encodings = [Complex4, Complex8, ComplexOffset8, Complex16, ComplexF32];
    let plan = |set: Vec<(&'static str, String)>| -> Option<Plan> {
        let numbers: Vec<usize> = set.iter().filter_map(|value| value.1.parse().ok()).collect();
        let [channels, taps, encoding, form] = numbers[..] else { return None };
        let mut options = Options::new(channels, taps, encodings[encoding]);
        options.input.polarizations = 2;
        options.form = forms_of_plans()[form].clone();
        Plan::new(options).ok()
    };
    combinations(axes, extent).into_iter().filter_map(plan).collect()
}

/// What fused kernels make.
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
