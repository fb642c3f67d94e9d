//! Filter bank of several GPUs, among which the rows of a call are divided in time.
//!
//! Each GPU computes consecutive rows, which it writes to a range of the output of its own, and takes in the samples under their
//! windows: samples under a boundary (one window span) are copied to two GPUs, all others once. Streams are not divided among GPUs
//! instead, because the host would have to interleave their elements in every row, and one stream could not be divided.
//!
//! The GPU with the last rows of a call has the samples before the next one, so it goes on with that call's first rows. The others
//! begin anew, at rows whose windows lie in the call's samples and where the phases of an oversampled bank repeat.
//!
//! Invariant: rows have the bits of one GPU, and none depends on the sizes of calls.

use std::ops::Range;

use crate::backend::Backend;
use crate::backend::threads::Threads;
use crate::channelize::{Channelizer, Output, Plan};
use crate::error::{Error, Result};
use crate::view::{Progress, check_length};
use crate::voltage::Voltages;

/// Least number of samples for each GPU in a call, in window spans; with fewer, fewer GPUs are used.
const SPANS: u64 = 4;

/// Filter banks of several GPUs.
pub(super) struct Divided {
    plan: Plan,
    channelizers: Vec<Channelizer>,
    /// Index of the filter bank that has the last samples.
    latest: usize,
    /// Samples consumed and rows written since the last reset.
    samples: u64,
    rows: u64,
    /// Multiple of rows at which a filter bank can begin.
    unit: u64,
    /// One thread of the host for each GPU.
    side_by_side: Threads,
}

/// Wraps a buffer as a filter bank's output.
type Wrap<T> = fn(&mut [T]) -> Output<'_>;

/// Rows to compute on one GPU.
struct Job<'a, T> {
    channelizer: &'a mut Channelizer,
    voltages: Voltages<'a>,
    rows: &'a mut [T],
    output: Wrap<T>,
    is_first: bool,
    outcome: Result<()>,
}

impl Divided {
    /// Binds a plan to a GPU and its peers; `None` for a backend without peers.
    ///
    /// # Errors
    /// As [`Channelizer::new`].
    pub(super) fn new(plan: &Plan, backend: &Backend) -> Result<Option<Self>> {
        let shares = backend.shares();
        if shares.len() == 1 {
            return Ok(None);
        }
        let (count, threads) = (shares.len(), backend.threads());
        let channelizer = |(index, share): (usize, &Backend)| {
            let own = threads * (index + 1) / count - threads * index / count;
            let share = match share {
                Backend::Cuda(device, _) => Backend::Cuda(device.clone(), Threads::new(own.max(1))),
                other => other.clone(),
            };
            Channelizer::new(plan.clone(), &share).map_err(|error| named(error, &share))
        };
        Ok(Some(Self {
            plan: plan.clone(),
            channelizers: shares.iter().enumerate().map(channelizer).collect::<Result<_>>()?,
            latest: 0,
            samples: 0,
            rows: 0,
            unit: unit(plan),
            side_by_side: Threads::new(count),
        }))
    }

    /// Returns the filter bank of the first GPU.
    pub(super) fn first(&self) -> &Channelizer {
        &self.channelizers[0]
    }

    /// As [`Channelizer::saturated`].
    pub(super) fn saturated(&self) -> Vec<u64> {
        let mut all = vec![0; self.plan.row_elements()];
        for channelizer in &self.channelizers {
            all.iter_mut().zip(channelizer.saturated()).for_each(|(sum, own)| *sum += own);
        }
        all
    }

    /// As [`Channelizer::reset`].
    pub(super) fn reset(&mut self) {
        self.channelizers.iter_mut().for_each(Channelizer::reset);
        (self.latest, self.samples, self.rows) = (0, 0, 0);
    }

    /// As [`Channelizer::run`], for rows of `elements` elements that `output` wraps.
    pub(super) fn run<T: Send>(
        &mut self,
        voltages: Voltages<'_>,
        rows: &mut [T],
        elements: usize,
        output: Wrap<T>,
    ) -> Result<Progress> {
        let free = rows.len() / elements;
        let consumed = self.plan.fitting(self.samples, self.rows, free, voltages.times());
        let end = self.samples + consumed as u64;
        let last = self.plan.rows(end);
        let bounds = self.bounds(last);
        let (count, jobs) = (self.channelizers.len(), bounds.len() - 1);
        let mut idle: Vec<Option<&mut Channelizer>> =
            self.channelizers.iter_mut().map(Some).collect();
        let mut parts = Vec::with_capacity(jobs);
        let mut rest = &mut rows[..(last - self.rows) as usize * elements];
        for (index, pair) in bounds.windows(2).enumerate() {
            let is_last = index + 1 == jobs;
            let from =
                if index == 0 { 0 } else { first_sample(&self.plan, pair[0]) - self.samples };
            let to = match is_last {
                true => consumed as u64,
                false => last_sample(&self.plan, pair[1]).min(end) - self.samples,
            };
            let Range { start, end } = from as usize..to as usize;
            let (own, others) = rest.split_at_mut((pair[1] - pair[0]) as usize * elements);
            rest = others;
            let Some(channelizer) = idle[(self.latest + index) % count].take() else { continue };
            let voltages = voltages.slice(start, end - start)?;
            let is_first = index == 0;
            parts.push(Job { channelizer, voltages, rows: own, output, is_first, outcome: Ok(()) });
        }
        self.side_by_side.for_each(&mut parts, 1, |_, part| {
            part[0].outcome = part[0].run(elements);
        });
        parts.into_iter().try_for_each(|part| part.outcome)?;
        let produced = (last - self.rows) as usize;
        self.latest = (self.latest + jobs - 1) % count;
        (self.samples, self.rows) = (end, last);
        Ok(Progress { consumed, produced })
    }

    /// Returns the rows at which the GPUs' ranges begin, and `last`, the end of the last.
    fn bounds(&self, last: u64) -> Vec<u64> {
        let per_row = self.plan.samples_per_row() as u64;
        let (first, count) = (self.rows, last - self.rows);
        let most = count * per_row / (SPANS * self.plan.span() as u64);
        let mut parts = most.clamp(1, self.channelizers.len() as u64);
        // A recording's last samples may begin within a byte.
        if !self.samples.is_multiple_of(self.plan.input().encoding.group_samples() as u64) {
            parts = 1;
        }
        let earliest = self.samples.div_ceil(per_row);
        let bound = |part: u64| {
            let even = first + count * part / parts;
            even.max(earliest).next_multiple_of(self.unit)
        };
        let mut bounds = vec![first];
        bounds.extend((1..parts).map(bound).filter(|bound| (first + 1..last).contains(bound)));
        bounds.dedup();
        bounds.push(last);
        bounds
    }
}

impl<T> Job<'_, T> {
    fn run(&mut self, elements: usize) -> Result<()> {
        if !self.is_first {
            self.channelizer.restart();
        }
        let done = self.channelizer.run(self.voltages, (self.output)(self.rows));
        let done = done.map_err(|error| match self.channelizer.device() {
            Some(device) => error.on_device(device.ordinal()),
            None => error,
        })?;
        check_length("samples that are channelized", self.voltages.times(), done.consumed)?;
        check_length("rows of a part", self.rows.len() / elements, done.produced)
    }
}

/// Names a GPU in its error.
fn named(error: Error, backend: &Backend) -> Error {
    match backend {
        Backend::Cuda(device, _) => error.on_device(device.ordinal()),
        _ => error,
    }
}

/// Returns the first sample under a row.
fn first_sample(plan: &Plan, row: u64) -> u64 {
    row * plan.samples_per_row() as u64
}

/// Returns the end of the samples under the rows before `row`, in whole bytes.
fn last_sample(plan: &Plan, row: u64) -> u64 {
    let spectra = row * plan.spectra_per_row() as u64;
    let end = (spectra - 1) * plan.hop() as u64 + plan.span() as u64;
    end.next_multiple_of(plan.input().encoding.group_samples() as u64)
}

/// Returns the multiple of rows at which the phases of an oversampled filter bank repeat, and samples begin with a byte.
fn unit(plan: &Plan) -> u64 {
    let per_row = plan.samples_per_row() as u64;
    let points = plan.points() as u64;
    let group = plan.input().encoding.group_samples() as u64;
    let rows = points / divisor(points, per_row);
    rows * (group / divisor(group, rows * per_row))
}

fn divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { divisor(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::channelize::Options;
    use crate::voltage::VoltageEncoding;

    #[test]
    fn units_are_whole_turns_and_whole_bytes() {
        for ((p, q), encoding) in [
            ((1, 1), VoltageEncoding::Complex8),
            ((4, 3), VoltageEncoding::Complex8),
            ((32, 27), VoltageEncoding::Real10),
            ((2, 1), VoltageEncoding::Real2),
        ] {
            let options = Options { oversampling: (p, q), ..Options::new(64, 4, encoding) };
            let Ok(plan) = Plan::new(options) else { continue };
            let samples = unit(&plan) * plan.samples_per_row() as u64;
            assert_eq!(samples % plan.points() as u64, 0, "{p}/{q} {encoding:?}");
            assert_eq!(samples % encoding.group_samples() as u64, 0, "{p}/{q} {encoding:?}");
        }
        let critical = Plan::new(Options::new(64, 4, VoltageEncoding::Complex8)).unwrap();
        assert_eq!(unit(&critical), 1);
    }
}
