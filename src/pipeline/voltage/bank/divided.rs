//! Filter bank of several GPUs, among which the rows of a call are divided in time.
//!
//! Each GPU computes consecutive rows, which it writes to a range of the output of its own, and takes in the samples that they
//! depend on: those under their windows or, with coherent dedispersion, those of the blocks under their windows, with the overlap
//! at both ends. Samples at a boundary (a window, or a block and its overlaps) are copied to two GPUs, which dedisperse that block
//! both; all others are copied once. Streams are not divided among GPUs instead, because the host would have to interleave their
//! elements in every row, and one stream could not be divided.
//!
//! The GPU with the last rows of a call has the samples before the next one, so it goes on with that call's first rows. The others
//! begin anew, at rows whose samples lie in the call and where the phases of an oversampled bank repeat.
//!
//! Invariant: rows have the bits of one GPU, none depends on the sizes of calls, and a call allocates nothing.

use std::ops::Range;

use super::single::{Element, Plans, Single, row_elements};
use crate::backend::Backend;
use crate::backend::cuda::MOST_JOINED;
use crate::backend::threads::Threads;
use crate::channelize::Plan;
use crate::coherent;
use crate::error::{Error, Result};
use crate::view::{Progress, check_length};
use crate::voltage::Voltages;

/// Least number of samples for each GPU in a call, in window spans; with fewer, fewer GPUs are used.
const SPANS: u64 = 4;

/// Least number of samples for each GPU in a call, in blocks of coherent dedispersion.
const BLOCKS: u64 = 2;

/// Samples for each GPU in a call, in blocks, with which dedispersing one of them twice takes little of the time.
const GOOD_BLOCKS: usize = 6;

/// Filter banks of several GPUs.
pub(super) struct Divided {
    timing: Timing,
    shares: Vec<Single>,
    /// Index of the filter bank that has the last samples.
    latest: usize,
    /// Next recorded sample, and rows written since the last reset.
    samples: u64,
    rows: u64,
    /// Elements of a computed row for each of those written.
    joined: usize,
    /// One thread of the host for each GPU.
    side_by_side: Threads,
}

/// Samples that rows depend on. Row 0 is the first since the last reset.
struct Timing {
    bank: Plan,
    coherent: Option<coherent::Plan>,
    /// First sample under row 0: of the recording with coherent dedispersion, whose blocks count from there, otherwise 0.
    origin: u64,
    /// Multiple of rows at which a filter bank can begin.
    unit: u64,
}

/// Rows at which the GPUs' parts of a call begin, and the end of the last.
#[derive(Debug)]
struct Bounds {
    rows: [u64; MOST_JOINED + 1],
    parts: usize,
}

/// Rows to compute on one GPU.
struct Job<'a, T> {
    single: &'a mut Single,
    voltages: Voltages<'a>,
    /// Samples of the call before these.
    skipped: usize,
    rows: &'a mut [T],
    /// First sample under the first row, if the GPU does not go on with its earlier ones.
    begin: Option<u64>,
    outcome: Result<Progress>,
}

impl Divided {
    /// Binds plans to a GPU and its peers, all at the same time.
    ///
    /// # Errors
    /// As [`Single::new`]; an error of a driver names its GPU.
    pub(super) fn new(plans: &Plans, backend: &Backend) -> Result<Self> {
        let mut backends = backend.shares();
        let (count, threads) = (backends.len(), backend.threads());
        for (index, share) in backends.iter_mut().enumerate() {
            let own = threads * (index + 1) / count - threads * index / count;
            if let Backend::Cuda(_, threads) = share {
                *threads = Threads::new(own.max(1));
            }
        }
        let side_by_side = Threads::new(count);
        let mut made: Vec<Option<Result<Single>>> = (0..count).map(|_| None).collect();
        side_by_side.for_each(&mut made, 1, |index, slot| {
            let single = Single::new(plans.clone(), &backends[index]);
            slot[0] = Some(single.map_err(|error| named(error, &backends[index])));
        });
        let shares = made.into_iter().flatten().collect::<Result<Vec<_>>>()?;
        let joins = shares.iter().all(Single::joins);
        let joined = plans.joining.as_ref().filter(|_| joins);
        Ok(Self {
            timing: Timing::new(plans),
            shares,
            latest: 0,
            samples: 0,
            rows: 0,
            joined: joined.map_or(1, |joining| joining.copies * joining.antennas),
            side_by_side,
        })
    }

    /// Returns the filter bank of the first GPU.
    pub(super) fn first(&self) -> &Single {
        &self.shares[0]
    }

    /// As [`crate::channelize::Channelizer::saturated`].
    pub(super) fn saturated(&self) -> Vec<u64> {
        let mut all = vec![0; self.timing.bank.row_elements()];
        for share in &self.shares {
            let own = share.channelizer().saturated();
            all.iter_mut().zip(own).for_each(|(sum, own)| *sum += own);
        }
        all
    }

    /// Starts a new stream with the row whose first window begins at `sample` of the recording.
    pub(super) fn reset(&mut self, sample: u64) {
        self.shares.iter_mut().for_each(|share| share.reset(sample));
        (self.latest, self.rows) = (0, 0);
        (self.timing.origin, self.samples) = match &self.timing.coherent {
            Some(plan) => (sample, plan.start(sample).input),
            None => (0, 0),
        };
    }

    /// Returns whether samples before the first row are still awaited.
    pub(super) fn is_dropping(&self) -> bool {
        self.shares[self.latest].is_dropping()
    }

    /// Returns the number of GPUs.
    pub(super) fn gpus(&self) -> usize {
        self.shares.len()
    }

    /// Returns the samples of each stream with which every GPU has its part of a call.
    pub(super) fn least_times(&self) -> usize {
        let blocks = self.timing.coherent.as_ref().map_or(0, |plan| GOOD_BLOCKS * plan.block());
        self.shares.len() * blocks
    }

    /// Consumes samples and writes the rows they complete; consumes all unless the rows have too little space.
    ///
    /// # Errors
    /// Those of the stages; an error of a driver names its GPU.
    pub(super) fn run<T: Element>(
        &mut self,
        voltages: Voltages<'_>,
        rows: &mut [T],
    ) -> Result<Progress> {
        let Self { timing, shares, latest, samples, rows: row, joined, side_by_side } = self;
        let elements = row_elements::<T>(&timing.bank) / *joined;
        let (first, end) = (*row, *samples + voltages.times() as u64);
        let last = timing.rows(end).min(first + (rows.len() / elements) as u64).max(first);
        let Bounds { rows: bounds, parts } = timing.bounds(first..last, *samples, shares.len());
        let (count, earlier) = (shares.len(), *latest);
        let (before, from) = shares.split_at_mut(earlier);
        let mut jobs: [Option<Job<'_, T>>; MOST_JOINED] = std::array::from_fn(|_| None);
        let mut rest = rows;
        let places = jobs[..parts].iter_mut().zip(from.iter_mut().chain(before)).enumerate();
        for (index, (job, single)) in places {
            let is_last = index + 1 == parts;
            let begin = (index > 0).then(|| timing.sample(bounds[index]));
            let from = begin.map_or(*samples, |sample| timing.first_input(sample));
            let to = match is_last {
                true => end,
                false => timing.last_input(bounds[index + 1]).clamp(from, end),
            };
            let own = match is_last {
                true => rest.len(),
                false => (bounds[index + 1] - bounds[index]) as usize * elements,
            };
            let (rows, others) = std::mem::take(&mut rest).split_at_mut(own);
            rest = others;
            let skipped = (from - *samples) as usize;
            let voltages = voltages.slice(skipped, (to - from) as usize)?;
            *job = Some(Job { single, voltages, skipped, rows, begin, outcome: Ok(NONE) });
        }
        side_by_side.for_each(&mut jobs[..parts], 1, |_, job| {
            if let Some(job) = &mut job[0] {
                job.run();
            }
        });
        let mut done = NONE;
        for (index, job) in jobs.into_iter().flatten().enumerate() {
            let own = job.outcome?;
            let part = (bounds[index + 1] - bounds[index]) as usize;
            if index + 1 < parts {
                check_length("rows of a part", part, own.produced)?;
            }
            done.consumed = job.skipped + own.consumed;
            done.produced += own.produced;
        }
        *latest = (earlier + parts - 1) % count;
        *samples += done.consumed as u64;
        *row += done.produced as u64;
        Ok(done)
    }

    /// Writes the next rows after the end of the recording; returns their number, 0 once all are written.
    ///
    /// # Errors
    /// As [`Divided::run`].
    pub(super) fn flush<T: Element>(&mut self, rows: &mut [T]) -> Result<usize> {
        let single = &mut self.shares[self.latest];
        let done = single.run(None, rows).map_err(|error| of_device(error, single))?;
        self.rows += done.produced as u64;
        Ok(done.produced)
    }
}

/// Progress of a call that does nothing.
const NONE: Progress = Progress { consumed: 0, produced: 0 };

impl<T: Element> Job<'_, T> {
    fn run(&mut self) {
        if let Some(sample) = self.begin {
            self.single.restart(sample);
        }
        let done = self.single.run(Some(self.voltages), self.rows);
        self.outcome = done.map_err(|error| of_device(error, self.single));
    }
}

impl Timing {
    fn new(plans: &Plans) -> Self {
        let unit = unit(&plans.bank);
        Self { bank: plans.bank.clone(), coherent: plans.coherent.clone(), origin: 0, unit }
    }

    fn per_row(&self) -> u64 {
        self.bank.samples_per_row() as u64
    }

    /// Returns the recorded samples that fill whole bytes.
    fn group(&self) -> u64 {
        let recorded = self.coherent.as_ref().map(|plan| plan.options().encoding);
        recorded.unwrap_or(self.bank.input().encoding).group_samples() as u64
    }

    /// Returns the first sample under a row.
    fn sample(&self, row: u64) -> u64 {
        self.origin + row * self.per_row()
    }

    /// Returns the first sample to supply to a filter bank whose first row begins at `sample`.
    fn first_input(&self, sample: u64) -> u64 {
        self.coherent.as_ref().map_or(sample, |plan| plan.start(sample).input)
    }

    /// Returns the end of the samples that the rows before `row` depend on, in whole bytes.
    fn last_input(&self, row: u64) -> u64 {
        let spectra = row * self.bank.spectra_per_row() as u64;
        let windows = (spectra - 1) * self.bank.hop() as u64 + self.bank.span() as u64;
        match &self.coherent {
            Some(plan) => plan.needed(self.origin + windows),
            None => windows.next_multiple_of(self.group()),
        }
    }

    /// Returns the rows that the samples before `end` complete.
    fn rows(&self, end: u64) -> u64 {
        let end = self.coherent.as_ref().map_or(end, |plan| plan.complete(end));
        self.bank.rows(end.saturating_sub(self.origin))
    }

    /// Returns the first row at which a filter bank can begin with sample `first`.
    fn first_row(&self, first: u64) -> u64 {
        let sample = self.coherent.as_ref().map_or(first, |plan| plan.first_output(first));
        let rows = sample.saturating_sub(self.origin).div_ceil(self.per_row());
        rows.next_multiple_of(self.unit)
    }

    /// Divides `rows` among at most `devices` GPUs, of which all but the first begin with samples from number `samples` on.
    fn bounds(&self, rows: Range<u64>, samples: u64, devices: usize) -> Bounds {
        let blocks = self.coherent.as_ref().map_or(0, |plan| BLOCKS * plan.block() as u64);
        let least = blocks.max(SPANS * self.bank.span() as u64);
        let count = rows.end - rows.start;
        let mut parts = (count * self.per_row() / least).clamp(1, devices as u64);
        // A recording's last samples may begin within a byte.
        if !samples.is_multiple_of(self.group()) {
            parts = 1;
        }
        let earliest = self.first_row(samples);
        let mut bounds = Bounds { rows: [rows.start; MOST_JOINED + 1], parts: 1 };
        for part in 1..parts {
            let even = rows.start + count * part / parts;
            let bound = even.max(earliest).next_multiple_of(self.unit);
            if bound > bounds.rows[bounds.parts - 1] && bound < rows.end {
                bounds.rows[bounds.parts] = bound;
                bounds.parts += 1;
            }
        }
        bounds.rows[bounds.parts] = rows.end;
        bounds
    }
}

/// Names a GPU in its error.
fn named(error: Error, backend: &Backend) -> Error {
    match backend {
        Backend::Cuda(device, _) => error.on_device(device.ordinal()),
        _ => error,
    }
}

/// As [`named`], for the GPU of a filter bank.
fn of_device(error: Error, single: &Single) -> Error {
    match single.channelizer().device() {
        Some(device) => error.on_device(device.ordinal()),
        None => error,
    }
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
    use crate::units::DM_CONSTANT;
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

    fn timing(is_coherent: bool) -> Timing {
        let recorded = VoltageEncoding::Complex8;
        let bank = Plan::new(Options::new(16, 4, VoltageEncoding::ComplexF32)).unwrap();
        let coherent = coherent::Options {
            dm: 30.0,
            dm_constant: DM_CONSTANT,
            encoding: recorded,
            antennas: 1,
            polarizations: 2,
            centres_hz: vec![4e8],
            lower_sideband: false,
            tsamp_s: 1e-6,
            offsets_hz: (0..16).map(|channel| (f64::from(channel) - 7.5) * 62_500.0).collect(),
            ringing: 16,
            times: None,
        };
        let coherent = is_coherent.then(|| coherent::Plan::new(coherent).unwrap());
        Timing::new(&Plans { bank, coherent, joining: None })
    }

    /// Every part but the first begins with samples of the call, and all but the last end with them.
    #[test]
    fn parts_have_their_samples_within_the_call() {
        for is_coherent in [false, true] {
            let mut timing = timing(is_coherent);
            let mut most = 0;
            for (origin, past, times, devices) in
                [(0, 0, 90_000, 2), (0, 40_000, 60_001, 3), (1 << 20, 10_000, 300_000, 8)]
            {
                timing.origin = if is_coherent { origin } else { 0 };
                let samples = timing.first_input(timing.origin) + past;
                let (first, end) = (timing.rows(samples), samples + times);
                let bounds = timing.bounds(first..timing.rows(end), samples, devices);
                let rows = &bounds.rows[..=bounds.parts];
                assert!(rows.is_sorted_by(|a, b| a < b), "{bounds:?}");
                most = most.max(bounds.parts);
                for row in &rows[1..bounds.parts] {
                    assert!(timing.first_input(timing.sample(*row)) >= samples, "{bounds:?}");
                    assert!(timing.last_input(*row) <= end, "{bounds:?}");
                }
                assert!(timing.last_input(rows[bounds.parts]) <= end, "{bounds:?}");
            }
            assert_eq!(most, 8);
        }
    }
}
