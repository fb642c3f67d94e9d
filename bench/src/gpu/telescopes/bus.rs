//! Bus-bound search: few trials, rows from host memory at the search's own pace.

use sidereal::Result;
use sidereal::dedisperse::dm_plan::DmPlan;
use sidereal::io::{FilterbankHeader, FilterbankSource};
use sidereal::pipeline::burst::SearchOptions;

use super::super::Gpu;
use super::memory::{Recording, Source, running};
use crate::table::{Row, best_and_median};

const CHANNELS: usize = 1024;

/// Number of trials: few enough for the search to be bus-bound.
const TRIALS: usize = 128;

/// Rows in memory, and the number of times they are read.
const TIMES: usize = 1 << 20;
const ROUNDS: usize = 6;

/// Rows in memory of a quick run.
const QUICK_TIMES: usize = 1 << 12;

/// Number of searches.
const RUNS: usize = 5;

/// Source that repeats the same rows.
struct Repeated<'a> {
    recording: &'a Recording,
    header: FilterbankHeader,
    source: Source<'a>,
    left: usize,
}

impl FilterbankSource for Repeated<'_> {
    fn header(&self) -> &FilterbankHeader {
        &self.header
    }

    fn read(&mut self, rows: &mut [u8]) -> Result<usize> {
        let row_bytes = self.header.row_bytes();
        let mut done = 0;
        while done * row_bytes < rows.len() {
            let times = self.source.read(&mut rows[done * row_bytes..])?;
            done += times;
            if times == 0 {
                if self.left == 0 {
                    break;
                }
                self.left -= 1;
                self.source = self.recording.source();
            }
        }
        Ok(done)
    }

    fn skip(&mut self, _: u64) -> Result<u64> {
        Ok(0)
    }
}

/// Returns the rows per second in the steady state of the search.
fn rate(gpu: &Gpu, recording: &Recording, options: &SearchOptions) -> Result<f64> {
    let mut header = recording.source().header().clone();
    header.times = header.times.map(|times| times * ROUNDS as u64);
    let source = recording.source();
    let mut repeated = Repeated { recording, header, source, left: ROUNDS - 1 };
    Ok(running(&mut repeated, options, &gpu.backend)?.1)
}

/// Measures the search; `bus` is the bus bandwidth in bytes per second.
///
/// # Errors
/// Those of the search.
pub(super) fn row(gpu: &Gpu, bus: f64) -> Result<Row> {
    let times = if gpu.quick { QUICK_TIMES } else { TIMES };
    let recording = Recording::random(CHANNELS, times)?;
    let mut options = SearchOptions::new(DmPlan::fixed(&[(0.0, 0.5 * TRIALS as f64, 0.5)])?);
    // The bytes are uniformly distributed: no channel stands out, and no pulse is wanted.
    (options.auto_mask, options.snr, options.min_band) = (false, 8.0, 1.0);
    if gpu.quick {
        options.gulp = QUICK_TIMES / 4;
    }
    let runs = if gpu.quick { 1 } else { RUNS };
    let rates = (0..runs).map(|_| rate(gpu, &recording, &options)).collect::<Result<Vec<_>>>();
    let mut rates: Vec<f64> = rates?.iter().map(|rows| rows * CHANNELS as f64 * 1e-9).collect();
    let (rate, median) = best_and_median(&mut rates);
    Ok(Row {
        bench: "telescopes",
        case: format!("{CHANNELS} channels, {TRIALS} trials, steady, from the host"),
        device: gpu.backend.name(),
        rate,
        unit: "GB/s",
        roof: bus * 1e-9,
        roof_unit: "GB/s over the bus",
        fraction_of_roof: rate * 1e9 / bus,
        baseline: 0.0,
        ratio_to_baseline: 0.0,
        checked: rate > 0.0,
        median,
    })
}
