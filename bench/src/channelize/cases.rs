//! Cases of each table.

use std::path::Path;

use serde::Deserialize;
use sidereal::channelize::{Detection, Feed, Form, Input, Options, Order, Products};
use sidereal::voltage::VoltageEncoding;
use sidereal::{Error, Result};

use super::Name;

/// Reference that a case's rate is compared with.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Baseline {
    /// rustfft's transforms alone.
    Library,
    /// This filter bank on one thread.
    OneThread,
    /// Rate measured earlier, in 10^6 samples per second.
    Rate(f64),
}

/// Filter bank and its measurement settings.
#[derive(Clone, Debug)]
pub(super) struct Case {
    pub(super) name: String,
    pub(super) options: Options,
    pub(super) threads: usize,
    pub(super) baseline: Baseline,
    /// Whether the rate is in operations per second, below a roofline.
    pub(super) roofline: bool,
}

impl Case {
    /// Creates a case on one thread, with rustfft as baseline.
    fn new(name: impl Into<String>, options: Options) -> Self {
        let name = name.into();
        Self { name, options, threads: 1, baseline: Baseline::Library, roofline: false }
    }
}

const F32: VoltageEncoding = VoltageEncoding::ComplexF32;

/// Names an encoding: `f32`, `8 bit`, `real 8 bit`.
fn label(encoding: VoltageEncoding) -> String {
    let real = if encoding.is_complex() { "" } else { "real " };
    match encoding {
        VoltageEncoding::ComplexF32 | VoltageEncoding::RealF32 => format!("{real}f32"),
        VoltageEncoding::ComplexOffset8 | VoltageEncoding::RealOffset8 => {
            format!("{real}8 bit unsigned")
        }
        _ => format!("{real}{} bit", encoding.bits()),
    }
}

fn plain(channels: usize, taps: usize, encoding: VoltageEncoding) -> Case {
    let name = format!("{channels} channels, {taps} taps, {}", label(encoding));
    Case::new(name, Options::new(channels, taps, encoding))
}

/// Returns a table's cases; `threads` is the largest number of threads to use.
pub(super) fn cases(name: Name, threads: usize) -> Vec<Case> {
    match name {
        Name::Headline => headline(threads),
        Name::Sizes => {
            let channels = (6..=16).map(|bits| 1usize << bits);
            let taps = [4, 8, 16, 32, 64];
            channels.flat_map(|c| taps.map(|t| plain(c, t, F32))).collect()
        }
        Name::Types => VoltageEncoding::ALL.map(|encoding| plain(1024, 8, encoding)).into(),
        Name::Lofar => lofar(),
        Name::Vegas => [8, 16, 32, 64].map(vegas).into(),
        Name::Taps => {
            let taps = || (1..=16).map(|k| 4 * k);
            [512, 1024].into_iter().flat_map(|c| taps().map(move |t| plain(c, t, F32))).collect()
        }
        Name::Channels => {
            let channels = [128, 256, 512, 1024, 1536, 2048, 3072, 4096, 6144, 8192];
            channels.into_iter().flat_map(|c| [8, 16].map(|t| plain(c, t, F32))).collect()
        }
        Name::Forms => forms(),
    }
}

fn headline(threads: usize) -> Vec<Case> {
    let mut cases: Vec<Case> = [4, 8, 16, 32].map(|taps| plain(1024, taps, F32)).into();
    let encodings =
        [VoltageEncoding::Complex4, VoltageEncoding::Complex8, VoltageEncoding::Complex16];
    cases.extend(encodings.map(|encoding| plain(1024, 8, encoding)));
    if threads > 1 {
        let case = plain(1024, 8, F32);
        let name = format!("{}, 2 threads", case.name);
        cases.push(Case { name, threads: 2, baseline: Baseline::OneThread, ..case });
    }
    cases
}

fn lofar() -> Vec<Case> {
    let shapes = [(64, 64), (128, 32), (256, 16), (512, 8), (1024, 4)];
    let forms = [(Form::Filtered, "filter alone"), (Form::Spectra, "with transform")];
    let case = |(channels, taps): (usize, usize), (form, what): (Form, &str)| {
        let encoding = VoltageEncoding::Complex16;
        let input = Input { antennas: 64, polarizations: 2, ..Input::one(encoding) };
        let options = Options { input, form, ..Options::new(channels, taps, encoding) };
        let name = format!("LOFAR {channels} x {taps}, {what}");
        Case { roofline: true, ..Case::new(name, options) }
    };
    let shapes = shapes.into_iter();
    shapes.flat_map(|shape| forms.clone().map(|form| case(shape, form))).collect()
}

fn vegas(taps: usize) -> Case {
    let encoding = VoltageEncoding::Complex8;
    let input = Input { polarizations: 2, ..Input::one(encoding) };
    let options = Options { input, ..Options::new(65536, taps, encoding) };
    Case::new(format!("VEGAS: 65536 channels, {taps} taps, 2 pol, 8 bit"), options)
}

fn forms() -> Vec<Case> {
    let encoding = VoltageEncoding::Complex8;
    let options = Options {
        input: Input { polarizations: 2, ..Input::one(encoding) },
        ..Options::new(1024, 8, encoding)
    };
    let detected = |products, spectra| {
        let detection =
            Detection { products, feed: Feed::Linear, spectra, channels: 1, interpolate_dc: true };
        let form = Form::Detected(detection);
        let name = format!("2 pol 8 bit, 1024 x 8, {products:?}, sum of {spectra}");
        Case::new(name, Options { form, ..options.clone() })
    };
    let requantized = |bits: usize| {
        let form = Form::Requantized { bits, gains: vec![2.0] };
        let name = format!("2 pol 8 bit, 1024 x 8, to {bits} bit");
        Case::new(name, Options { form, ..options.clone() })
    };
    let oversampled = Options { oversampling: (4, 3), ..Options::new(1024, 8, F32) };
    let descending = Options { order: Order::Descending, ..Options::new(1024, 8, F32) };
    vec![
        detected(Products::I, 16),
        detected(Products::I, 1024),
        detected(Products::Iquv, 16),
        detected(Products::Aabbcrci, 1),
        requantized(8),
        requantized(4),
        Case::new("1024 channels, 8 taps, f32, oversampled 4/3", oversampled),
        Case::new("1024 channels, 8 taps, f32, descending", descending),
    ]
}

/// Output of benches/channelize_scipy.py.
#[derive(Deserialize)]
struct Scipy {
    channels: usize,
    rates: Vec<(usize, f64)>,
}

/// Returns a case for each shape that SciPy was measured on.
pub(super) fn scipy(path: &Path) -> Result<Vec<Case>> {
    let text = std::fs::read_to_string(path).map_err(|source| Error::io(path, source))?;
    let scipy: Scipy = serde_json::from_str(&text).map_err(|error| {
        Error::parameter("--scipy", path.display().to_string(), error.to_string())
    })?;
    let case = |(taps, rate): (usize, f64)| {
        let case = plain(scipy.channels, taps, F32);
        Case { name: format!("{}, SciPy", case.name), baseline: Baseline::Rate(rate), ..case }
    };
    Ok(scipy.rates.into_iter().map(case).collect())
}
