//! Single-pulse search on a GPU: samples stay on the device, events return to the host.
//!
//! Invariant: a window is searched once all samples that its boxcars reach are there, and what is found comes back
//! in the order of trial and time, so nothing depends on how the stream was split or on what ran first.
#![allow(unsafe_code)]

mod search;
mod sizes;

use std::ops::Range;

use super::plan::{Input, Plan};
use super::rules::{Carried, CarriedTrial, Event, Noise, Sweep};
use crate::backend::cuda::{
    self, CopiedRows, Device, Plane, PlaneKind, Source, Stream, UploadRing, UploadSlot,
};
use crate::backend::threads::Threads;
use crate::error::{Error, Result};
pub use search::kernels;
use search::{Batch, Kernels, Search};
use sizes::{Memory, Sizes, Sums};

/// Bytes of a sample.
const SAMPLE: usize = size_of::<u32>();

/// Bytes of a part of host series, and the fewest samples of a trial in it, so that each row is one long copy.
const PART_BYTES: usize = 32 << 20;
const MIN_PART_TIMES: usize = 256;

/// Search bound to a device.
#[derive(Debug)]
pub(super) struct Engine {
    device: Device,
    threads: Threads,
    search: Search,
    /// Buffers for input from host memory, allocated at first use.
    uploads: Option<UploadRing<u32>>,
    stream: Stream,
    /// Completion of all work queued on any stream.
    done: cuda::Event,
    /// Index of the current window, and total number of samples seen.
    window: u64,
    seen: u64,
    /// Valid samples of each trial, and the number searched.
    ends: Vec<u64>,
    searched: Vec<u64>,
    are_ends_set: bool,
    /// Whether the state of an earlier stream is cleared.
    is_clear: bool,
    /// Open events of each trial, while `settle` looks at them.
    sweeps: Vec<Sweep>,
    /// Window of the last call of `settle`, and its result.
    settled: (u64, u64),
    /// Samples whose search is queued and not collected.
    pending: Option<Pending>,
}

/// Samples of all trials whose search is queued.
#[derive(Clone, Copy, Debug)]
struct Pending {
    rows: Rows,
    times: usize,
    /// Windows that they complete.
    windows: Windows,
}

/// Windows that are searched, in batches.
#[derive(Clone, Copy, Debug)]
struct Windows {
    /// Index of the first one.
    first: u64,
    count: usize,
    /// Samples in total: earlier ones lie in the history, the others in `rows`.
    seen: u64,
    rows: Rows,
}

/// Lists the kernels of a plan on a device.
pub(crate) fn sources(plan: &Plan, device: &Device) -> Vec<Source> {
    search::sources(&Sizes::new(plan, device.properties())).to_vec()
}

/// Rows of samples on a device.
#[derive(Clone, Copy, Debug)]
struct Rows {
    address: u64,
    stride: usize,
}

impl Engine {
    pub(super) fn new(plan: &Plan, device: &Device, threads: Threads) -> Result<Self> {
        let sizes = Sizes::new(plan, device.properties()).within(device.free_bytes()?);
        Self::bind(sizes, plan.options().snr, device, threads)
    }

    fn bind(sizes: Sizes, snr: f64, device: &Device, threads: Threads) -> Result<Self> {
        let dms = sizes.dms;
        let stream = device.stream()?;
        let done = device.event()?;
        stream.record(&done)?;
        let search = Search {
            kernels: Kernels::new(device, &sizes)?,
            memory: Memory::new(device, &sizes)?,
            snr,
            present: 0,
            sizes,
        };
        Ok(Self {
            device: device.clone(),
            threads,
            search,
            uploads: None,
            stream,
            done,
            window: 0,
            seen: 0,
            ends: vec![u64::MAX; dms],
            searched: vec![0; dms],
            are_ends_set: false,
            is_clear: false,
            sweeps: Vec::with_capacity(dms),
            settled: (0, 0),
            pending: None,
        })
    }

    /// Searches samples in host memory, in parts copied while others are searched.
    pub(super) fn run(&mut self, input: Input<'_>, events: &mut Vec<Event>) -> Result<()> {
        let sizes = &self.search.sizes;
        let most = (PART_BYTES / SAMPLE / sizes.dms).max(MIN_PART_TIMES);
        let mut uploads = match self.uploads.take() {
            Some(uploads) => uploads,
            None => UploadRing::new(&self.device, most * sizes.dms, 2)?,
        };
        self.run_staged(&mut uploads, most, input, events)?;
        // On an error the buffers are dropped.
        self.uploads = Some(uploads);
        Ok(())
    }

    fn run_staged(
        &mut self,
        uploads: &mut UploadRing<u32>,
        most: usize,
        input: Input<'_>,
        events: &mut Vec<Event>,
    ) -> Result<()> {
        let old = events.len();
        let times = input.times();
        let part = |start: usize| start..times.min(start + most);
        if times > 0 {
            stage(uploads.current(), most, input, part(0), &self.threads)?;
        }
        for start in (0..times).step_by(most) {
            let (rows, mut others) = uploads.acquire(&self.stream)?;
            let rows = Rows { address: rows.address(), stride: most };
            if let (Some(slot), false) = (others.next(), part(start + most).is_empty()) {
                stage(slot, most, input, part(start + most), &self.threads)?;
            }
            drop(others);
            self.submit_rows(rows, part(start).len(), None)?;
            self.collect_rows(None, events)?;
            uploads.release(&self.stream)?;
        }
        sort(&mut events[old..]);
        Ok(())
    }

    /// Queues the search of a plane on the device, on the caller's stream; [`Self::collect`] ends it, before the next one.
    pub(super) fn submit(&mut self, plane: &Plane, times: usize, stream: &Stream) -> Result<()> {
        let is_float = self.search.sizes.sums == Sums::F64;
        if (plane.kind == PlaneKind::F32) != is_float {
            let rule = "the plan has a bound for integer series and none for floats";
            return Err(Error::parameter("type of the series", "another", rule));
        }
        plane.check()?;
        plane.words.check_on(&self.device)?;
        if times > plane.stride {
            let (expected, actual) = (plane.stride, times);
            return Err(Error::Shape { what: "times in a row of the plane", expected, actual });
        }
        let rows = Rows { address: plane.words.address(), stride: plane.stride };
        self.submit_rows(rows, times, Some(stream))
    }

    /// Waits for the windows of the search that was submitted last, on the same stream; the plane may be written by work that is
    /// queued there afterwards.
    pub(super) fn collect(&mut self, events: &mut Vec<Event>, stream: &Stream) -> Result<()> {
        let old = events.len();
        self.collect_rows(Some(stream), events)?;
        sort(&mut events[old..]);
        Ok(())
    }

    pub(super) fn end_at(&mut self, valid_times: &dyn Fn(usize) -> u64) {
        self.ends.iter_mut().enumerate().for_each(|(dm, end)| *end = valid_times(dm));
        self.are_ends_set = false;
    }

    pub(super) fn flush(&mut self, events: &mut Vec<Event>) -> Result<()> {
        for (dm, (end, searched)) in self.ends.iter().zip(&self.searched).enumerate() {
            if end < searched {
                let rule = format!(
                    "trial {dm} was already searched up to sample {searched}, so its end cannot be set there"
                );
                return Err(Error::parameter("valid samples", end, rule));
            }
        }
        self.begin(None)?;
        self.search_rest(events)?;
        self.reset();
        Ok(())
    }

    pub(super) fn peek(&mut self, events: &mut Vec<Event>) -> Result<()> {
        self.begin(None)?;
        let window = self.window;
        self.search.save(&self.stream)?;
        self.search_rest(events)?;
        self.search.restore(&self.stream)?;
        self.window = window;
        self.stream.record(&self.done)
    }

    /// Searches the samples in the history, with which the stream ends.
    fn search_rest(&mut self, events: &mut Vec<Event>) -> Result<()> {
        let old = events.len();
        let window = self.search.sizes.window as u64;
        let last = self.ends.iter().map(|end| self.seen.min(*end)).max().unwrap_or(0);
        let windows = last.saturating_sub(self.window * window).div_ceil(window) as usize;
        let nothing = Rows { address: 0, stride: 0 };
        let rest = Windows { first: self.window, count: windows, seen: self.seen, rows: nothing };
        self.submit_batch(&rest, 0, None)?;
        self.search_windows(&rest, None, events)?;
        self.search.end(&self.stream, events)?;
        sort(&mut events[old..]);
        Ok(())
    }

    pub(super) fn reset(&mut self) {
        (self.window, self.seen) = (0, 0);
        self.ends.fill(u64::MAX);
        self.searched.fill(0);
        (self.are_ends_set, self.is_clear) = (false, false);
        (self.settled, self.pending) = ((0, 0), None);
    }

    /// Appends the events that no later window changes. Returns the sample before which no later event starts. The windows
    /// searched were collected, so that only `submit` accesses the open events again: this waits for no other work.
    pub(super) fn settle(&mut self, events: &mut Vec<Event>) -> Result<u64> {
        if self.window == self.settled.0 {
            return Ok(self.settled.1);
        }
        let next = self.window * self.search.sizes.window as u64;
        let Self { search, sweeps, stream, .. } = self;
        sweeps.clear();
        sweeps.extend(search.sweeps(stream)?);
        let mut frontier = next;
        let before = events.len();
        for (dm, sweep) in sweeps.iter_mut().enumerate() {
            events.extend(sweep.settle(next).map(|hit| hit.event(dm)));
            frontier = frontier.min(sweep.frontier(next));
        }
        if events.len() > before {
            search.set_sweeps(sweeps.drain(..), stream)?;
        }
        self.settled = (self.window, frontier);
        Ok(frontier)
    }

    pub(super) fn carried(&mut self) -> Result<Carried> {
        self.begin(None)?;
        let sweeps: Vec<_> = self.search.sweeps(&self.stream)?.collect();
        let mut noise = vec![0.0; 2 * sweeps.len()];
        self.search.memory.carried.download(0, &mut noise)?;
        let trials = sweeps.into_iter().zip(noise.chunks_exact(2));
        let trial = |(sweep, noise): (_, &[f64])| {
            // Before the first window the device memory is uninitialized.
            let known = if self.window > 0 { [noise[0], noise[1]] } else { [0.0; 2] };
            CarriedTrial { noise: Noise { mean: known[0], sigma: known[1] }, sweep }
        };
        Ok(Carried { window: self.window, trials: trials.map(trial).collect() })
    }

    /// Restores the state that another search exported; must follow a reset.
    pub(super) fn restore(&mut self, carried: &Carried) -> Result<()> {
        self.begin(None)?;
        let noise: Vec<f64> =
            carried.trials.iter().flat_map(|trial| [trial.noise.mean, trial.noise.sigma]).collect();
        self.search.memory.carried = self.device.upload(&noise)?;
        let sweeps = carried.trials.iter().map(|trial| trial.sweep);
        self.search.set_sweeps(sweeps, &self.stream)?;
        self.stream.record(&self.done)?;
        let sizes = &self.search.sizes;
        self.window = carried.window;
        self.seen = carried.window * sizes.window as u64;
        if carried.window > 0 {
            self.searched.fill(self.seen + sizes.reach as u64);
        }
        Ok(())
    }

    /// Queues the search of the next samples of all trials: that of the windows that they complete.
    fn submit_rows(&mut self, rows: Rows, times: usize, stream: Option<&Stream>) -> Result<()> {
        if self.pending.is_some() {
            let rule = "the events of the search before must be collected first";
            return Err(Error::parameter("search of a plane", "submitted", rule));
        }
        self.begin(stream)?;
        let sizes = &self.search.sizes;
        let seen = self.seen + times as u64;
        let held = seen - self.window * sizes.window as u64;
        let count = (held.saturating_sub(sizes.reach as u64) / sizes.window as u64) as usize;
        let windows = Windows { first: self.window, count, seen, rows };
        self.submit_batch(&windows, 0, stream)?;
        self.pending = Some(Pending { rows, times, windows });
        Ok(())
    }

    /// Collects the events of the samples submitted last, and stores those that later windows need.
    fn collect_rows(&mut self, stream: Option<&Stream>, events: &mut Vec<Event>) -> Result<()> {
        let Some(Pending { rows, times, windows }) = self.pending.take() else { return Ok(()) };
        self.search_windows(&windows, stream, events)?;
        self.store(windows.first, rows, times, stream.unwrap_or(&self.stream))?;
        self.seen = windows.seen;
        let sizes = &self.search.sizes;
        if windows.count > 0 {
            let reached = self.window * sizes.window as u64 + sizes.reach as u64;
            let ends = self.ends.iter().map(|end| reached.min(*end));
            self.searched.iter_mut().zip(ends).for_each(|(searched, end)| *searched = end);
        }
        stream.unwrap_or(&self.stream).record(&self.done)
    }

    /// Returns the batch of windows that begins with window `start` of those given; none after the last one.
    fn batch(&self, windows: &Windows, start: usize) -> Option<Batch> {
        let Sizes { window, windows: most, .. } = self.search.sizes;
        let Windows { first, count, seen, rows } = *windows;
        let held = (self.seen - first * window as u64) as usize;
        let skipped = start * window;
        let ahead = (skipped as u64).wrapping_sub(held as u64).wrapping_mul(SAMPLE as u64);
        let history = self.search.memory.history.address();
        (start < count).then(|| Batch {
            history: history.wrapping_add((skipped * SAMPLE) as u64),
            plane: rows.address.wrapping_add(ahead),
            plane_stride: rows.stride,
            split: held.saturating_sub(skipped),
            first: (first + start as u64) * window as u64,
            seen,
            windows: most.min(count - start),
        })
    }

    /// Queues the batch of windows that begins with window `start` of those given, if any is left.
    fn submit_batch(
        &mut self,
        windows: &Windows,
        start: usize,
        stream: Option<&Stream>,
    ) -> Result<()> {
        let Some(batch) = self.batch(windows, start) else { return Ok(()) };
        self.search.submit(batch, stream.unwrap_or(&self.stream))
    }

    /// Collects the events of windows, of which the first batch was submitted, and submits the others in turn.
    fn search_windows(
        &mut self,
        windows: &Windows,
        stream: Option<&Stream>,
        events: &mut Vec<Event>,
    ) -> Result<()> {
        let mut start = 0;
        while let Some(batch) = self.batch(windows, start) {
            let Self { search, stream: own, .. } = self;
            search.complete(batch, stream.unwrap_or(own), own, events)?;
            self.window += batch.windows as u64;
            start += batch.windows;
            self.submit_batch(windows, start, stream)?;
        }
        Ok(())
    }

    /// Stores the samples from the current window's start on; the history started with window `first`.
    fn store(&self, first: u64, rows: Rows, times: usize, stream: &Stream) -> Result<()> {
        let sizes = &self.search.sizes;
        let (window, dms, stride) = (sizes.window as u64, sizes.dms, sizes.history_stride());
        let history = self.search.memory.history.address();
        let bytes = |samples: usize| samples * SAMPLE;
        let held = (self.seen - first * window) as usize;
        let passed = ((self.window - first) * window) as usize;
        let kept = held.saturating_sub(passed);
        if passed > 0 && kept > 0 {
            let from = history + bytes(passed) as u64;
            let copied = CopiedRows {
                bytes: bytes(kept),
                rows: dms,
                from_stride: bytes(stride),
                to_stride: bytes(stride),
            };
            // SAFETY: rows of the history; the part kept is shorter than the part skipped, so nothing overlaps.
            unsafe { stream.copy_rows(from, history, &copied)? };
        }
        let skipped = passed.saturating_sub(held);
        if times > skipped {
            let from = rows.address + bytes(skipped) as u64;
            let to = history + bytes(kept) as u64;
            let copied = CopiedRows {
                bytes: bytes(times - skipped),
                rows: dms,
                from_stride: bytes(rows.stride),
                to_stride: bytes(stride),
            };
            // SAFETY: the caller's rows hold `times` samples; less than a window and its reach is copied.
            unsafe { stream.copy_rows(from, to, &copied)? };
        }
        Ok(())
    }

    /// Waits for previously queued work and updates the device's state.
    fn begin(&mut self, stream: Option<&Stream>) -> Result<()> {
        let stream = stream.unwrap_or(&self.stream);
        stream.wait(&self.done)?;
        if !self.is_clear {
            self.search.reset(stream)?;
            self.is_clear = true;
        }
        if !self.are_ends_set {
            self.search.set_ends(&self.ends, stream)?;
            self.are_ends_set = true;
        }
        Ok(())
    }
}

/// Copies a range of samples to a slot's rows of `most` samples and starts their copy to the device.
fn stage(
    mut slot: UploadSlot<'_, u32>,
    most: usize,
    input: Input<'_>,
    range: Range<usize>,
    threads: &Threads,
) -> Result<()> {
    let words = slot.host()?;
    threads.for_each(words, most, |dm, row| {
        let samples: &[u32] = match input {
            Input::I32(plane) => bytemuck::cast_slice(&plane.row(dm)[range.clone()]),
            Input::F32(plane) => bytemuck::cast_slice(&plane.row(dm)[range.clone()]),
        };
        row[..samples.len()].copy_from_slice(samples);
    });
    let count = words.len();
    slot.send(count)
}

fn sort(events: &mut [Event]) {
    events.sort_unstable_by_key(|event| (event.dm, event.time));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::cuda::testing::device;
    use crate::single_pulse::plan::Options;

    const DMS: usize = 3;

    /// Returns noise around 2048 with pulses.
    fn series(times: usize) -> Vec<i32> {
        let sample = |k: usize| {
            let mixed = (k as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let parts = (0..4).map(|i| (mixed >> (16 * i) & 0x3ff) as i32);
            let pulse = if k % 1777 < 9 { 700 } else { 0 };
            parts.sum::<i32>() + pulse
        };
        (0..times).map(sample).collect()
    }

    /// Returns the events of a series, searched with sizes changed by `change`.
    fn search(device: &Device, snr: f64, times: usize, change: &dyn Fn(&mut Sizes)) -> Vec<Event> {
        let options = Options {
            dms: (0..DMS).map(|dm| dm as f64).collect(),
            tsamp_s: 1.0,
            max_width_s: 20.0,
            baseline_s: 1024.0,
            snr,
            bound: Some((0, 4095)),
        };
        let plan = Plan::new(options).unwrap();
        let mut sizes = Sizes::new(&plan, device.properties());
        change(&mut sizes);
        let mut engine = Engine::bind(sizes, snr, device, Threads::new(1)).unwrap();
        let rows = series(DMS * times);
        let plane = crate::view::Plane::new(&rows, DMS, times, times).unwrap();
        let mut events = Vec::new();
        engine.end_at(&|dm| (times - 300 * dm) as u64);
        engine.run(Input::I32(plane), &mut events).unwrap();
        engine.flush(&mut events).unwrap();
        events.sort_unstable_by_key(|event| (event.dm, event.time));
        events
    }

    #[test]
    fn flagged_blocks_beyond_the_room_are_searched_in_rounds() {
        let Some(device) = device() else { return };
        let whole = search(&device, 0.5, 2500, &|sizes| sizes.flagged = 1000);
        assert!(whole.len() > 100, "{}", whole.len());
        for count in [1, 7, 50] {
            assert_eq!(
                search(&device, 0.5, 2500, &|sizes| sizes.flagged = count),
                whole,
                "{count}"
            );
        }
    }

    #[test]
    fn tiles_of_several_windows_find_what_those_of_one_find() {
        let Some(device) = device() else { return };
        let times = 13 * 1024 + 77;
        let single = |sizes: &mut Sizes| sizes.multiprocessors = 1000;
        let whole = search(&device, 3.0, times, &single);
        assert!(whole.len() > 10, "{}", whole.len());
        let shared = |sizes: &mut Sizes| {
            sizes.multiprocessors = 1;
            assert_eq!(sizes.tiling(13).windows, 8, "short windows share a tile");
            assert!(sizes.group(DMS * 13) > 1, "short windows share a warp");
        };
        assert_eq!(search(&device, 3.0, times, &shared), whole);
    }
}
