//! Cases of each table.

use sidereal::backend::simd::Level;

use super::Name;

/// Samples in a block.
pub(super) const BLOCK: usize = 1024;

/// Reference that a case's rate is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Baseline {
    /// Plain loops.
    Plain,
    /// This filter bank on one thread.
    OneThread,
    /// This filter bank with all filters at the full rate.
    OneRate,
    /// This filter bank in noise, while the case measures silence.
    Noise,
}

/// Filter bank and its measurement settings.
#[derive(Clone, Debug)]
pub(super) struct Case {
    pub(super) name: String,
    pub(super) templates: usize,
    pub(super) filters: usize,
    pub(super) rates: u32,
    pub(super) level: Level,
    pub(super) threads: usize,
    pub(super) block: usize,
    pub(super) baseline: Baseline,
}

/// Creates a case of `filters` filters at the full rate on one thread, with enough templates for the states to fill
/// the second-level cache.
fn plain(filters: usize) -> Case {
    let templates = (16384 / filters).clamp(64, 1024);
    Case {
        name: format!("{filters} filters, {templates} templates"),
        templates,
        filters,
        rates: 1,
        level: Level::best(),
        threads: 1,
        block: BLOCK,
        baseline: Baseline::Plain,
    }
}

/// Returns a table's cases; `threads` is the largest number of threads to use.
pub(super) fn cases(name: Name, threads: usize) -> Vec<Case> {
    match name {
        Name::Filters => {
            let mut cases: Vec<_> = (2..=9).map(|bits| plain(1 << bits)).collect();
            if threads > 1 {
                let case = plain(64);
                let name = format!("{}, 2 threads", case.name);
                let baseline = Baseline::OneThread;
                cases.push(Case { name, threads: 2, block: 4 * BLOCK, baseline, ..case });
            }
            cases
        }
        Name::Rates => (1..=8).map(rates).collect(),
        Name::Levels => Level::available().into_iter().map(level).collect(),
        Name::Blocks => [16, 100, 256, 1024, 4096, 16384].into_iter().map(block).collect(),
        Name::Silence => [4, 64, 512].into_iter().map(silence).collect(),
        Name::Accuracy | Name::Fourier | Name::Binaries | Name::Whole => Vec::new(),
    }
}

fn rates(rates: u32) -> Case {
    let case = Case { templates: 32, ..plain(1024) };
    let name = format!("1024 filters at {rates} rates, 32 templates");
    Case { name, rates, baseline: Baseline::OneRate, ..case }
}

fn level(level: Level) -> Case {
    let case = plain(64);
    Case { name: format!("{}, {}", case.name, level.name()), level, ..case }
}

fn block(block: usize) -> Case {
    let case = plain(64);
    Case { name: format!("{}, blocks of {block}", case.name), block, ..case }
}

fn silence(filters: usize) -> Case {
    let case = plain(filters);
    Case { name: format!("{}, silence", case.name), baseline: Baseline::Noise, ..case }
}
