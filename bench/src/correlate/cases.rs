//! Cases of each table.

use sidereal::backend::simd::Level;
use sidereal::correlate::Options;
use sidereal::voltage::VoltageEncoding::{self, Complex4, Complex8, ComplexF32};
use sidereal::{Error, Result};

use super::Name;

/// Times in a block.
const TIMES: usize = 1024;

/// Dual-polarization samples per time over all antennas and channels: 32 MiB for a block at 8 bit.
const SAMPLES: usize = 8192;

/// Quantity that a case's rate reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Measure {
    /// Operations per second of blocks added to persistent sums.
    Blocks,
    /// The same, with a readout and a reset of the sums after each integration.
    Integrations,
    /// Bandwidth that one core sustains.
    Bandwidth,
}

/// Reference that a case's rate is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Baseline {
    /// `cherk` if available, otherwise plain loops.
    Library,
    /// This X-engine on one thread.
    OneThread,
}

/// X-engine and its measurement settings.
#[derive(Clone, Debug)]
pub(super) struct Case {
    pub(super) name: String,
    pub(super) options: Options,
    pub(super) times: usize,
    pub(super) level: Level,
    pub(super) threads: usize,
    pub(super) measure: Measure,
    pub(super) baseline: Baseline,
}

/// Names an encoding: `4 bit`, `8 bit`, `f32`.
fn label(encoding: VoltageEncoding) -> &'static str {
    match encoding {
        Complex4 => "4 bit",
        Complex8 => "8 bit",
        _ => "f32",
    }
}

fn case(antennas: usize, channels: usize, encoding: VoltageEncoding) -> Case {
    Case {
        name: format!("{antennas} antennas, {}", label(encoding)),
        options: Options { antennas, polarizations: 2, channels, encoding },
        times: TIMES,
        level: Level::best(),
        threads: 1,
        measure: Measure::Blocks,
        baseline: Baseline::Library,
    }
}

/// Creates a case with enough channels to fill the caches.
fn plain(antennas: usize, encoding: VoltageEncoding) -> Case {
    case(antennas, (SAMPLES / antennas).max(8), encoding)
}

/// Returns a table's cases; `threads` is the largest number of threads to use.
pub(super) fn cases(name: Name, threads: usize) -> Vec<Case> {
    match name {
        Name::Headline => headline(threads),
        Name::Sizes => {
            let antennas = (3..=10).map(|bits| 1usize << bits);
            let encodings = [Complex4, Complex8, ComplexF32];
            antennas.flat_map(|n| encodings.map(|encoding| plain(n, encoding))).collect()
        }
        Name::Levels => {
            let level = |level: Level, encoding| {
                let case = plain(128, encoding);
                let vnni = matches!(level, Level::Avx512(found) if found.vnni());
                let vnni = if vnni { " with VNNI" } else { "" };
                Case { name: format!("{}, {}{vnni}", case.name, level.name()), level, ..case }
            };
            let levels = Level::variants().into_iter().skip(1);
            levels.flat_map(|l| [Complex8, ComplexF32].map(|encoding| level(l, encoding))).collect()
        }
        Name::Channels => {
            let antennas = [16, 32, 64, 96, 128, 192, 256, 384, 512];
            let channels = [1, 8, 64];
            channels.into_iter().flat_map(|f| antennas.map(|n| by_channels(n, f))).collect()
        }
        Name::Integration => (6..=14).map(|bits| integration(1 << bits)).collect(),
        Name::Bandwidth => {
            let antennas = [8, 16, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024];
            let bandwidth = |n| Case { measure: Measure::Bandwidth, ..plain(n, Complex8) };
            antennas.map(bandwidth).into()
        }
    }
}

fn headline(threads: usize) -> Vec<Case> {
    let mut cases: Vec<Case> = [32, 64, 128, 256].map(|n| plain(n, Complex8)).into();
    cases.extend([plain(128, Complex4), plain(128, ComplexF32)]);
    if threads > 1 {
        let two = |case: Case| {
            let name = format!("{}, 2 threads", case.name);
            Case { name, threads: 2, baseline: Baseline::OneThread, ..case }
        };
        let one_channel =
            Case { name: "256 antennas, 8 bit, 1 channel".into(), ..case(256, 1, Complex8) };
        cases.extend([plain(128, Complex8), one_channel, plain(128, ComplexF32)].map(two));
    }
    cases
}

fn by_channels(antennas: usize, channels: usize) -> Case {
    let case = case(antennas, channels, Complex8);
    let plural = if channels == 1 { "" } else { "s" };
    Case { name: format!("{channels} channel{plural}, {}", case.name), ..case }
}

/// Creates a case of a constant number of samples: longer integrations have fewer channels.
fn integration(times: usize) -> Case {
    let case = case(128, (1 << 16) / times, Complex8);
    let name = format!("{}, {} channels, {times} samples", case.name, case.options.channels);
    Case { name, times, measure: Measure::Integrations, ..case }
}

/// Returns the tables' cases whose names contain `only`.
///
/// # Errors
/// [`Error::Parameter`] when there are none.
pub(super) fn chosen(names: &[Name], threads: usize, only: Option<&str>) -> Result<Vec<Case>> {
    let mut all: Vec<Case> = names.iter().flat_map(|name| cases(*name, threads)).collect();
    if let Some(part) = only {
        all.retain(|case| case.name.contains(part));
        if all.is_empty() {
            return Err(Error::parameter("--only", part, "no case's name contains it"));
        }
    }
    Ok(all)
}
