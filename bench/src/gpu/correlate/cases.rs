//! Cases of each table on a GPU.

use sidereal::correlate::{Options, Precision};
use sidereal::voltage::VoltageEncoding::{self, Complex4, Complex8, ComplexF32};

use crate::correlate::Name;

/// Samples in an integration.
pub(super) const TIMES: usize = 1024;

/// Antennas times channels.
const ANTENNAS: usize = 1 << 16;

/// The same for a quick run, and its samples.
const QUICK: (usize, usize) = (80, 70);

/// Quantity that a case reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// Operations per second in bursts of one millisecond.
    Bursts,
    /// Operations per second, back to back.
    Sustained,
    /// Bandwidth that the device sustains.
    Bandwidth,
}

/// X-engine and its measurement settings.
#[derive(Clone, Debug)]
pub(super) struct Case {
    pub(super) name: String,
    pub(super) options: Options,
    pub(super) times: usize,
    pub(super) precision: Precision,
    pub(super) what: What,
}

/// Returns the number of dual-polarization samples that hold the spectra of every case.
pub(super) fn samples(quick: bool) -> usize {
    let (antennas, times) = if quick { QUICK } else { (ANTENNAS, TIMES) };
    // Alignment of rows to 16 bytes takes more.
    2 * antennas * (times + 16)
}

fn label(encoding: VoltageEncoding) -> &'static str {
    match encoding {
        Complex4 => "4 bit",
        Complex8 => "8 bit",
        _ => "f32",
    }
}

/// Creates a case of a constant number of samples, whatever the antennas and times.
fn case(antennas: usize, encoding: VoltageEncoding, times: usize) -> Case {
    let channels = (ANTENNAS * TIMES / (antennas * times)).max(1);
    Case {
        name: format!("{antennas} antennas, {}", label(encoding)),
        options: Options { antennas, polarizations: 2, channels, encoding },
        times,
        precision: Precision::F32,
        what: What::Bursts,
    }
}

fn plain(antennas: usize, encoding: VoltageEncoding) -> Case {
    case(antennas, encoding, TIMES)
}

impl Case {
    fn rounded(mut self, precision: Precision, words: &str) -> Self {
        (self.name, self.precision) = (format!("{} as {words}", self.name), precision);
        self
    }

    fn of(mut self, what: What, words: &str) -> Self {
        (self.name, self.what) = (format!("{}, {words}", self.name), what);
        self
    }
}

/// Returns all cases of some tables.
pub(super) fn cases(names: &[Name], is_quick: bool) -> Vec<Case> {
    if is_quick {
        return quick();
    }
    names.iter().flat_map(|name| of_table(*name)).collect()
}

fn of_table(name: Name) -> Vec<Case> {
    match name {
        Name::Headline => headline(),
        Name::Sizes => {
            let antennas = (3..=11).map(|bits| 1usize << bits);
            let encodings = [Complex4, Complex8, ComplexF32];
            antennas.flat_map(|n| encodings.map(|encoding| plain(n, encoding))).collect()
        }
        // SIMD levels belong to the CPU.
        Name::Levels => Vec::new(),
        Name::Channels => {
            let antennas = [16, 32, 64, 96, 128, 192, 256, 384, 512];
            [1, 8, 64].into_iter().flat_map(|f| antennas.map(|n| by_channels(n, f))).collect()
        }
        Name::Integration => (6..=14).map(|bits| integration(1 << bits)).collect(),
        Name::Bandwidth => {
            let antennas = [8, 16, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024];
            antennas.map(|n| plain(n, Complex8).of(What::Bandwidth, "bandwidth")).into()
        }
    }
}

/// Returns the papers' sizes and others; most important first, in case the run is interrupted.
fn headline() -> Vec<Case> {
    let sizes = [32, 64, 128, 256, 512, 1024];
    let mut cases: Vec<Case> = sizes.map(|n| plain(n, Complex8)).into();
    cases.extend([70, 100, 250, 257, 514, 1000].map(|n| plain(n, Complex8)));
    cases.extend([1000, 1023].map(|times| {
        let case = case(256, Complex8, times);
        Case { name: format!("{}, {times} samples", case.name), ..case }
    }));
    cases.extend(sizes.into_iter().chain([70, 257]).map(|n| plain(n, Complex4)));
    cases.extend(sizes.map(|n| sustained(plain(n, Complex8))));
    cases.extend(sizes.map(|n| plain(n, ComplexF32)));
    cases.extend(sizes.map(|n| plain(n, ComplexF32).rounded(Precision::Split, "split")));
    cases.extend(sizes.map(|n| plain(n, ComplexF32).rounded(Precision::Tf32, "tf32")));
    cases.extend(sizes.map(|n| plain(n, ComplexF32).rounded(Precision::F16, "f16")));
    cases
}

fn sustained(case: Case) -> Case {
    case.of(What::Sustained, "sustained")
}

/// Creates a case with exactly `channels` channels.
fn by_channels(antennas: usize, channels: usize) -> Case {
    let mut case = plain(antennas, Complex8);
    case.options.channels = channels;
    let plural = if channels == 1 { "" } else { "s" };
    case.name = format!("{channels} channel{plural}, {}", case.name);
    case
}

/// Creates a case of a constant number of samples: longer integrations have fewer channels.
fn integration(times: usize) -> Case {
    let case = case(128, Complex8, times);
    let name = format!("{}, {} channels, {times} samples", case.name, case.options.channels);
    Case { name, ..case }
}

/// Returns small cases of every kind.
fn quick() -> Vec<Case> {
    let (all, times) = QUICK;
    let small = |antennas: usize, encoding| {
        let mut case = case(antennas, encoding, times);
        case.options.channels = all / antennas;
        case
    };
    let mut cases: Vec<Case> = [Complex8, Complex4, ComplexF32].map(|e| small(20, e)).into();
    cases.extend([3, 40].map(|antennas| small(antennas, Complex8)));
    cases.push(small(20, ComplexF32).rounded(Precision::Tf32, "tf32"));
    cases.push(small(20, ComplexF32).rounded(Precision::F16, "f16"));
    cases.push(small(40, Complex8).of(What::Bandwidth, "bandwidth"));
    cases.push(sustained(small(40, Complex8)));
    cases
}
