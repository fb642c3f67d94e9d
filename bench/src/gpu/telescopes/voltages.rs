//! Bus-bound search of voltages: few trials, voltages from host memory at the search's own pace.

use std::sync::Arc;

use sidereal::Result;
use sidereal::backend::threads::Threads;
use sidereal::dedisperse::dm_plan::DmPlan;
use sidereal::io::voltages::{VoltageHeader, VoltageSource};
use sidereal::pipeline::burst::SearchOptions;
use sidereal::pipeline::voltage::{ChannelizeOptions, VoltageFilterbank};
use sidereal::voltage::{VoltageBlock, VoltageEncoding};

use super::super::{Gpu, random};
use super::memory::running;
use crate::table::{Row, best_and_median};

/// Channels made from the recorded one, and spectra summed.
const CHANNELS: usize = 1024;
const SPECTRA: usize = 16;

/// Samples per second of each polarization.
const RATE: f64 = 300e6;

/// Number of trials: few enough for the search to be bus-bound.
const TRIALS: usize = 128;

/// Samples of each polarization in memory, and the number of times they are read.
const TIMES: usize = 1 << 26;
const ROUNDS: u64 = 16;

/// Samples in memory of a quick run.
const QUICK_TIMES: usize = 1 << 20;

/// Number of searches.
const RUNS: usize = 3;

/// Bytes that a thread copies at a time.
const PART: usize = 1 << 18;

/// Source that repeats the same voltages.
#[derive(Clone)]
struct Repeated {
    header: VoltageHeader,
    /// Bytes of one stream after another.
    bytes: Arc<Vec<u8>>,
    threads: Threads,
    /// Index of the next sample.
    next: u64,
}

impl Repeated {
    fn new(times: usize) -> Self {
        let encoding = VoltageEncoding::Complex8;
        let header = VoltageHeader {
            polarizations: 2,
            times: Some(times as u64 * ROUNDS),
            format: "memory",
            ..VoltageHeader::new(vec![1400e6], 1.0 / RATE, encoding)
        };
        let bytes = Arc::new(random::bytes(2 * encoding.bytes(times)));
        Self { header, bytes, threads: Threads::new(0), next: 0 }
    }

    /// Returns the number of contiguous samples from the next one.
    fn run(&self) -> u64 {
        let held = self.header.times.unwrap_or(0) / ROUNDS;
        held - self.next % held
    }
}

impl VoltageSource for Repeated {
    fn header(&self) -> &VoltageHeader {
        &self.header
    }

    fn read(&mut self, block: &mut VoltageBlock) -> Result<usize> {
        let encoding = self.header.encoding;
        let all = self.header.times.unwrap_or(0);
        let (held, mut done) = ((all / ROUNDS) as usize, 0);
        while done < block.capacity() && self.next < all {
            let times = self.run().min((block.capacity() - done) as u64);
            let from = encoding.bytes((self.next % held as u64) as usize);
            let (at, length) = (encoding.bytes(done), encoding.bytes(times as usize));
            let stream = encoding.bytes(held);
            let rows = block.rows_mut().zip(self.bytes.chunks_exact(stream));
            let mut parts: Vec<(&[u8], &mut [u8])> = rows
                .flat_map(|(to, own)| {
                    own[from..from + length].chunks(PART).zip(to[at..at + length].chunks_mut(PART))
                })
                .collect();
            let mut none = vec![(); self.threads.count()];
            self.threads.for_each_chunk(&mut none, &mut parts, 1, |(), _, parts| {
                parts.iter_mut().for_each(|(from, to)| to.copy_from_slice(from));
            });
            self.next += times;
            done += times as usize;
        }
        block.set_times(done)?;
        Ok(done)
    }

    fn skip(&mut self, times: u64) -> Result<u64> {
        let skipped = times.min(self.header.times.unwrap_or(0) - self.next);
        self.next += skipped;
        Ok(skipped)
    }
}

/// Measures the search; `bus` is the bus bandwidth in bytes per second.
///
/// # Errors
/// Those of the search.
pub(super) fn row(gpu: &Gpu, bus: f64) -> Result<Row> {
    let recording = Repeated::new(if gpu.quick { QUICK_TIMES } else { TIMES });
    let channelize = ChannelizeOptions { integrate: SPECTRA, ..ChannelizeOptions::new(CHANNELS) };
    let mut options = SearchOptions::new(DmPlan::fixed(&[(0.0, 0.5 * TRIALS as f64, 0.5)])?);
    // The bytes are uniformly distributed: no channel stands out, and no pulse is wanted.
    (options.auto_mask, options.snr, options.min_band) = (false, 8.0, 1.0);
    if gpu.quick {
        options.gulp = 256;
    }
    let row_bytes = (CHANNELS * SPECTRA * 2 * 2) as f64;
    let rate = |_| -> Result<f64> {
        let source = Box::new(recording.clone());
        let mut filterbank = VoltageFilterbank::new(source, &channelize, &gpu.backend)?;
        Ok(running(&mut filterbank, &options, &gpu.backend)?.1 * row_bytes * 1e-9)
    };
    let runs = if gpu.quick { 1 } else { RUNS };
    let mut rates = (0..runs).map(rate).collect::<Result<Vec<_>>>()?;
    let (rate, median) = best_and_median(&mut rates);
    Ok(Row {
        bench: "telescopes",
        case: format!(
            "voltages into {CHANNELS} channels, {SPECTRA} spectra a row, {TRIALS} trials, from the host"
        ),
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
