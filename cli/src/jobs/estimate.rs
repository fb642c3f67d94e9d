//! Estimates of what a run costs, from the headers of its inputs.
//!
//! Times are linear in the samples, the additions of the dedispersion and the samples of the series; the constants were fitted to
//! runs with one thread on a processor with AVX-512. Memory is an upper estimate.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sidereal::Result;
use sidereal::backend::Backend;
use sidereal::dedisperse::dm_plan::Row;
use sidereal::io::FilterbankHeader;
use sidereal::units::dispersion_delay_s;

use crate::common::Work;
use crate::dm_arguments::DmArguments;
use crate::selection::{Recording, is_packed};
use crate::{Arguments, Verb};

/// Cost of a run or a task; what the header of an input does not say is null.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(super) struct Estimate {
    /// Seconds of one core.
    pub(super) core_s: Option<f64>,
    /// Memory, at most.
    pub(super) memory_bytes: Option<u64>,
    /// Size of the product.
    pub(super) output_bytes: Option<u64>,
}

/// Core seconds of a verb that dedisperses.
struct Costs {
    start_s: f64,
    /// For each sample of the recording.
    sample_s: f64,
    /// For each addition of the dedispersion.
    addition_s: f64,
    /// For each sample of a dedispersed series.
    series_s: f64,
}

const SEARCH: Costs =
    Costs { start_s: 0.1, sample_s: 5.1e-9, addition_s: 9.2e-12, series_s: 1.9e-8 };
const DEDISPERSE: Costs =
    Costs { start_s: 0.02, sample_s: 0.8e-9, addition_s: 2.0e-11, series_s: 1.5e-8 };

/// Bytes of a process without data.
const LEAST_BYTES: u64 = 128 << 20;
/// Bytes for each sample that lies within the longest delay: rows as read, cleaned, and two blocks of sums.
const DELAYED_BYTES: f64 = 20.0;
/// Most bytes of series that are held before they are written.
const HELD_BYTES: u64 = 512 << 20;

impl Estimate {
    /// Estimates a run with these arguments, of which `files` are the inputs.
    ///
    /// # Errors
    /// Those of reading a header.
    pub(super) fn of(arguments: &Arguments, files: &[PathBuf]) -> Result<Self> {
        match &arguments.verb {
            Verb::Search(search) => of_trials(&search.recording, &search.trials, &SEARCH, None),
            Verb::Dedisperse(series) => {
                of_trials(&series.recording, &series.trials, &DEDISPERSE, Some(4))
            }
            Verb::Channelize(_) => Ok(of_work(Work::on_voltages(files))),
            // Each file has at least one antenna.
            Verb::Correlate(_) => Ok(of_work(Work::on_antennas(files, files.len()))),
            _ => Ok(Self::default()),
        }
    }

    /// Adds a run that follows in the same task.
    pub(super) fn and(self, next: Self) -> Self {
        let both = |a: Option<u64>, b: Option<u64>| a.zip(b);
        Self {
            core_s: self.core_s.zip(next.core_s).map(|(a, b)| a + b),
            memory_bytes: both(self.memory_bytes, next.memory_bytes).map(|(a, b)| a.max(b)),
            output_bytes: both(self.output_bytes, next.output_bytes)
                .map(|(a, b)| a.saturating_add(b)),
        }
    }
}

fn of_work(work: Work) -> Estimate {
    Estimate { core_s: work.core_s(), ..Estimate::default() }
}

/// Estimates a run over trial DMs; `series_bytes` are those of a sample of the series, if they are written.
fn of_trials(
    recording: &Recording,
    trials: &DmArguments,
    costs: &Costs,
    series_bytes: Option<u64>,
) -> Result<Estimate> {
    // A compressed recording would be unpacked to its end.
    if recording.inputs.iter().any(|path| is_packed(path)) {
        return Ok(Estimate::default());
    }
    let opened = recording.open(trials.dm_constant, &Backend::Reference)?;
    let header = opened.source.header();
    let Some(times) = header.times else { return Ok(Estimate::default()) };
    let plan = trials.plan(&header.band, header.tsamp_s, None, None)?;
    let rows = plan.rows(&header.band, header.tsamp_s, trials.dm_constant);
    let series: f64 = rows.iter().map(|row| series_of(row, times)).sum();
    let additions: f64 =
        rows.iter().map(|row| row.adds_per_s).sum::<f64>() * times as f64 * header.tsamp_s;
    let samples = times as f64 * header.channels() as f64;
    let voltages_s = opened.geometry.as_ref().and(Work::on_voltages(&recording.inputs).core_s());
    let Costs { start_s, sample_s, addition_s, series_s } = costs;
    let core_s = start_s + sample_s * samples + addition_s * additions + series_s * series;
    let output_bytes = series_bytes.map(|bytes| (series * bytes as f64) as u64);
    let highest = rows.iter().filter_map(|row| row.dms.last()).copied().fold(0.0, f64::max);
    let delayed = delayed_samples(header, highest, trials.dm_constant).min(samples);
    let held = output_bytes.map_or(0, |bytes| (2 * bytes).min(HELD_BYTES));
    Ok(Estimate {
        core_s: Some(core_s + voltages_s.unwrap_or(0.0)),
        memory_bytes: Some(LEAST_BYTES + (DELAYED_BYTES * delayed) as u64 + held),
        output_bytes,
    })
}

/// Returns the samples of all series of a range of the plan.
fn series_of(row: &Row, times: u64) -> f64 {
    row.dms.len() as f64 * times as f64 / row.range.downsample.max(1) as f64
}

/// Returns the samples of the recording between the first and the last arrival of a pulse.
fn delayed_samples(header: &FilterbankHeader, dm: f64, dm_constant: f64) -> f64 {
    let (low, high) = (header.band.lowest_hz(), header.band.highest_hz());
    let rows = dispersion_delay_s(dm, low, high, dm_constant) / header.tsamp_s;
    rows * header.channels() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_needs_the_time_of_all_runs_and_the_memory_of_one() {
        let one = Estimate { core_s: Some(2.0), memory_bytes: Some(10), output_bytes: Some(5) };
        let two = Estimate { core_s: Some(3.0), memory_bytes: Some(7), output_bytes: None };
        let both = Estimate { core_s: Some(5.0), memory_bytes: Some(10), output_bytes: None };
        assert_eq!(one.and(two), both);
    }
}
