//! Gathering of antenna streams for the device: each row begins at its antenna's own delay.

use std::ops::Range;

use super::Pool;
use crate::error::Result;
use crate::pipeline::correlator::station::Station;
use crate::pipeline::correlator::window::Window;

/// Sample ranges of a recording, each with its start time in the row.
pub(super) type Placed = Vec<(usize, Range<u64>)>;

/// Rows of one antenna.
struct Job<'a> {
    window: &'a Window,
    streams: Range<usize>,
    parts: Placed,
    rows: &'a mut [u8],
    outcome: Result<()>,
}

/// Fills `times` samples of each stream of `stations`: the ranges that `parts` returns, zeros elsewhere.
pub(super) fn place<'a>(
    (stations, windows): (impl Iterator<Item = &'a Station>, &[&Window]),
    rows: &mut [u8],
    (stride, times): (usize, usize),
    parts: &dyn Fn(&Station) -> Placed,
    pool: &mut Pool<'_>,
) -> Result<()> {
    let mut left = rows;
    let mut jobs = Vec::new();
    for station in stations {
        let streams = station.place().streams.clone();
        let (rows, rest) = left.split_at_mut(stride * streams.len());
        let window = windows[station.place().feed];
        jobs.push(Job { window, streams, parts: parts(station), rows, outcome: Ok(()) });
        left = rest;
    }
    pool.threads.for_each_chunk(pool.scratches, &mut jobs, 1, |_, _, job| {
        job[0].outcome = job[0].fill(stride, times);
    });
    jobs.into_iter().try_for_each(|job| job.outcome)
}

impl Job<'_> {
    fn fill(&mut self, stride: usize, times: usize) -> Result<()> {
        let encoding = self.window.encoding();
        let covered: u64 = self.parts.iter().map(|(_, samples)| samples.end - samples.start).sum();
        if covered < times as u64 {
            let bytes = encoding.bytes(times);
            let rows = self.rows.chunks_exact_mut(stride);
            rows.for_each(|row| row[..bytes].fill(encoding.zero_byte()));
        }
        for (at, samples) in &self.parts {
            let voltages = self.window.voltages(self.streams.clone(), samples.clone())?;
            for (stream, row) in self.rows.chunks_exact_mut(stride).enumerate() {
                let from = voltages.row(stream);
                row[encoding.bytes(*at)..][..from.len()].copy_from_slice(from);
            }
        }
        Ok(())
    }
}
