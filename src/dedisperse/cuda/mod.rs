//! Dedispersion on a GPU: channel-major history on the device, sums shared between trials, copies overlapped with
//! kernels.
//!
//! Invariant: `load`, `emit` and what they queue allocate nothing once a block of every length has passed.
#![allow(unsafe_code)]

mod fast;
mod general;
mod history;

use super::plan::{Lane, Plan, Sum};
use crate::backend::cuda::{
    Buffer, Device, DownloadRing, Event, Extent, Plane, Source, Stream, UploadRing, Variant,
};
use crate::backend::threads::Threads;
use crate::error::{Error, Result};
use crate::sample::{Encoding, Samples};
use crate::trace::{self, Work};
use crate::view::PlaneMut;
use fast::Fast;
use general::{General, Shape};
use history::{History, Job};

/// Dedispersion plan bound to a device.
#[derive(Debug)]
pub(super) struct Engine {
    device: Device,
    /// Both kernels exist when some trials do not fit the fast one.
    fast: Option<Fast>,
    general: Option<General>,
    history: History,
    /// `None` until the first transfer from or to host memory, and after rows of the device were loaded.
    staging: Option<Box<Staging>>,
    sizes: Sizes,
    threads: Threads,
    /// Completion of the last queued work, on any stream.
    last: Event,
    /// Input rows loaded so far.
    rows: u64,
    /// Output times queued so far.
    emitted: u64,
    downsample: u64,
    /// Longest delay in output samples.
    longest: u64,
    bias: u32,
}

/// Transfers of input rows to the device and of sums to the host.
#[derive(Debug)]
struct Staging {
    uploads: UploadRing,
    downloads: DownloadRing<u32, Columns>,
    compute: Stream,
    threads: Threads,
}

/// Output times of all trials that a download holds.
#[derive(Clone, Copy, Debug)]
struct Columns {
    column: usize,
    times: usize,
}

impl Staging {
    fn new(device: &Device, sizes: &Sizes, threads: &Threads) -> Result<Self> {
        let bytes = INPUT_BYTES.min(device.free_bytes()? / INPUT_PART).max(sizes.row_bytes);
        Ok(Self {
            uploads: UploadRing::new(device, bytes, 2)?,
            downloads: DownloadRing::new(device, 0, 2)?,
            compute: device.stream()?,
            threads: threads.clone(),
        })
    }

    /// Enlarges the downloads to `words` sums, rounded up so that growing blocks rarely enlarge them again but at most
    /// to `most`; delivers those pending first.
    fn reserve<T: Sum>(
        &mut self,
        words: usize,
        most: usize,
        output: &mut PlaneMut<'_, T>,
    ) -> Result<()> {
        if self.downloads.elements() >= words {
            return Ok(());
        }
        while self.deliver(output)? {}
        self.downloads.resize(words.next_power_of_two().min(most).max(words))
    }

    /// Copies the oldest sums to the caller's plane; returns whether there were any.
    fn deliver<T: Sum>(&mut self, output: &mut PlaneMut<'_, T>) -> Result<bool> {
        let Some((Columns { column, times }, words)) = self.downloads.receive()? else {
            return Ok(false);
        };
        let sums: &[T] = bytemuck::cast_slice(words);
        let stride = output.stride();
        // A task copies several short rows, so that the threads rarely meet at the next one.
        let rows = (COPY_BYTES / (4 * times)).max(1);
        self.threads.for_each(output.data_mut(), rows * stride, |task, own| {
            for (dm, row) in (task * rows..).zip(own.chunks_mut(stride)) {
                row[column..column + times].copy_from_slice(&sums[dm * times..][..times]);
            }
        });
        Ok(true)
    }
}

/// Block sizes in output times.
#[derive(Clone, Copy, Debug)]
struct Sizes {
    dms: usize,
    row_bytes: usize,
    /// Output times of a block copied to the host.
    host: usize,
    /// Output times of a block that stays on the device.
    device: usize,
}

/// Size of an input buffer in bytes, limited to the fraction 1 / `INPUT_PART` of the free memory.
const INPUT_BYTES: usize = 8 << 20;
const INPUT_PART: usize = 8;

/// Bytes of sums per copy task of a thread.
const COPY_BYTES: usize = 128 << 10;

/// Size of the output plane of a block copied to the host, in bytes: long enough for the bus, and quickly page-locked.
const PLANE_BYTES: usize = 16 << 20;

/// Limit in bytes on the input of a block of more than [`STEP`] output times.
const BLOCK_BYTES: usize = 256 << 20;

/// Granularity of block sizes in output times.
const STEP: usize = 512;

impl Sizes {
    fn new(plan: &Plan, lane_bytes: usize) -> Self {
        let dms = plan.dms().len();
        let most = BLOCK_BYTES / (plan.channels_used().len() * lane_bytes);
        let host = (PLANE_BYTES / (4 * dms)).min(most).clamp(STEP, 1 << 15) / STEP * STEP;
        let device = most.clamp(host, (1 << 17).max(host)) / STEP * STEP;
        Self { dms, row_bytes: plan.row_bytes(), host, device }
    }

    /// Shrinks the blocks until the history takes at most a quarter of `free` bytes. Stops where the longest delay
    /// dominates the history's size.
    fn within(mut self, free: usize, plan: &Plan) -> Self {
        let is_large = |sizes: &Self| {
            history::bytes(plan, sizes.capacity(plan)).is_none_or(|bytes| bytes > free / 4)
        };
        while self.device > self.host && 2 * self.device > plan.max_shift() && is_large(&self) {
            self.device = (self.device / 2 / STEP * STEP).max(self.host);
        }
        // Blocks copied to the host shrink last.
        while self.host > STEP && is_large(&self) && self.device == self.host {
            self.host = (self.host / 2 / STEP * STEP).max(STEP);
            self.device = self.host;
        }
        self
    }

    /// Returns the output times of a history row: the longest delay, and two blocks so that samples move rarely.
    fn capacity(&self, plan: &Plan) -> u64 {
        (plan.max_shift() + 2 * self.device + 2 * STEP) as u64
    }
}

impl Engine {
    pub(super) fn new(plan: &Plan, device: &Device, threads: &Threads) -> Result<Self> {
        let sizes = Sizes::new(plan, plan.lane(1).bytes()).within(device.free_bytes()?, plan);
        Self::sized(plan, device, threads, sizes)
    }

    fn sized(plan: &Plan, device: &Device, threads: &Threads, sizes: Sizes) -> Result<Self> {
        let capacity = sizes.capacity(plan);
        check_memory(plan, device, capacity)?;
        let shape = fast::shape(plan, device, threads);
        let sources = sources_of(plan, shape, device);
        let _kernels = device.prefetch(move || sources);
        let span = trace::span(Work::Compute, "history");
        let history = History::new(plan, capacity, device)?;
        drop(span);
        let fast = match shape {
            Some(shape) => Fast::new(plan, shape, device, history.pitch(), threads)?,
            None => None,
        };
        let all: Vec<usize> = (0..plan.dms().len()).collect();
        let left = fast.as_ref().map_or(&all[..], Fast::left);
        let general = |trials| General::new(plan, trials, device, threads);
        let general = (!left.is_empty()).then(|| general(left)).transpose()?;
        Ok(Self {
            device: device.clone(),
            fast,
            general,
            history,
            staging: None,
            sizes,
            threads: threads.clone(),
            last: device.event()?,
            rows: 0,
            emitted: 0,
            downsample: plan.downsample() as u64,
            longest: plan.max_shift() as u64,
            bias: plan.bias(),
        })
    }

    /// Returns the largest number of output times in one call of [`Engine::emit`].
    pub(super) fn block_times(&self) -> usize {
        self.sizes.host
    }

    /// Returns the largest number of output times in one call of [`Engine::emit_on_device`].
    pub(super) fn device_block_times(&self) -> usize {
        self.sizes.device
    }

    /// Resets the engine for a new stream.
    pub(super) fn reset(&mut self) {
        (self.rows, self.emitted) = (0, 0);
        self.history.reset();
    }

    /// Loads input rows from host memory; returns before the device has read them.
    pub(super) fn load(&mut self, input: Samples<'_>, _before: u64) -> Result<()> {
        let mut staging = self.take_staging()?;
        let done = self.load_staged(&mut staging, input);
        self.staging = Some(staging);
        done
    }

    fn load_staged(&mut self, staging: &mut Staging, input: Samples<'_>) -> Result<()> {
        let Staging { uploads, compute, threads, .. } = staging;
        let most = uploads.elements() / self.sizes.row_bytes;
        for start in (0..input.times()).step_by(most) {
            let part = input.slice(start, most.min(input.times() - start));
            let fill = |host: &mut [u8]| threads.copy(part.bytes(), host);
            let address = uploads.upload(part.bytes().len(), compute, fill)?.address();
            self.load_rows(address, part.times(), compute)?;
            uploads.release(compute)?;
        }
        Ok(())
    }

    /// Returns the staging buffers, allocated at first use; their stream waits for work queued on other streams.
    fn take_staging(&mut self) -> Result<Box<Staging>> {
        let staging = match self.staging.take() {
            Some(staging) => staging,
            None => Box::new(Staging::new(&self.device, &self.sizes, &self.threads)?),
        };
        staging.compute.wait(&self.last)?;
        Ok(staging)
    }

    fn load_rows(&mut self, address: u64, rows: usize, stream: &Stream) -> Result<()> {
        self.history.load(address, rows, self.rows, self.emitted, stream)?;
        self.rows += rows as u64;
        Ok(())
    }

    /// Queues the next `times` output times of every trial for `column` of the caller's plane. [`Engine::finish`]
    /// completes the copy.
    pub(super) fn emit<T: Sum>(
        &mut self,
        _first: u64,
        times: usize,
        output: &mut PlaneMut<'_, T>,
        column: usize,
    ) -> Result<()> {
        let mut staging = self.take_staging()?;
        let done = self.emit_staged(&mut staging, times, output, column);
        self.staging = Some(staging);
        done
    }

    fn emit_staged<T: Sum>(
        &mut self,
        staging: &mut Staging,
        times: usize,
        output: &mut PlaneMut<'_, T>,
        column: usize,
    ) -> Result<()> {
        let words = times * self.sizes.dms;
        staging.reserve(words, self.sizes.dms * self.sizes.host, output)?;
        let target = staging.downloads.target(&staging.compute)?.address();
        self.sum(target, times, times, &staging.compute)?;
        staging.downloads.send(Columns { column, times }, words, &staging.compute)?;
        // Copies the previous sums while the device works.
        if staging.downloads.is_full() {
            staging.deliver(output)?;
        }
        Ok(())
    }

    /// Waits for all queued sums and copies them to the caller's plane.
    pub(super) fn finish<T: Sum>(&mut self, output: &mut PlaneMut<'_, T>) -> Result<()> {
        let Some(staging) = &mut self.staging else { return Ok(()) };
        staging.compute.record(&self.last)?;
        while staging.deliver(output)? {}
        Ok(())
    }

    /// Queues the load of input rows in device memory.
    pub(super) fn load_on_device(
        &mut self,
        input: &Buffer<u8>,
        first_byte: usize,
        rows: usize,
        stream: &Stream,
    ) -> Result<()> {
        input.check_on(&self.device)?;
        let end = first_byte.saturating_add(rows.saturating_mul(self.sizes.row_bytes));
        if end > input.len() {
            let what = "input on the device (bytes)";
            return Err(Error::Shape { what, expected: end, actual: input.len() });
        }
        // Rows on the device need no page-locked memory.
        if let Some(staging) = self.staging.take() {
            staging.compute.synchronize()?;
        }
        stream.wait(&self.last)?;
        self.load_rows(input.at(first_byte), rows, stream)?;
        stream.record(&self.last)
    }

    /// Queues the next `times` output times of every trial, written from `column` of a plane on the device.
    pub(super) fn emit_on_device(
        &mut self,
        times: usize,
        output: &mut Plane,
        column: usize,
        stream: &Stream,
    ) -> Result<()> {
        output.words.check_on(&self.device)?;
        stream.wait(&self.last)?;
        self.sum(output.words.at(column), output.stride, times, stream)?;
        stream.record(&self.last)
    }

    /// Queues the sums of the next `times` output times; rows of trials are `stride` words apart.
    fn sum(&mut self, output: u64, stride: usize, times: usize, stream: &Stream) -> Result<()> {
        let job = Job {
            input: self.history.at(self.emitted),
            pitch: self.history.pitch(),
            times,
            output,
            output_stride: stride,
            offset: self.bias as i32,
        };
        let available = self.rows / self.downsample - self.emitted;
        if let Some(fast) = &mut self.fast {
            fast.improve(&self.device);
            fast.launch(&job, stream)?;
            if available < times as u64 + self.longest {
                self.history.clear_past(output, stride, available, times, stream)?;
            }
        }
        if let Some(general) = &self.general {
            general.launch(&job, available, stream)?;
        }
        self.emitted += times as u64;
        Ok(())
    }
}

/// Returns an error with the needed and free memory if the plan's history does not fit the device.
fn check_memory(plan: &Plan, device: &Device, capacity: u64) -> Result<()> {
    let free = device.free_bytes()?;
    let bytes = history::bytes(plan, capacity);
    if bytes.is_some_and(|bytes| bytes <= free) {
        return Ok(());
    }
    let mib = |bytes: usize| bytes.div_ceil(1 << 20);
    let needed =
        bytes.map_or("more than can be counted".to_owned(), |bytes| mib(bytes).to_string());
    Err(Error::Unavailable {
        what: format!("{needed} MiB of memory on CUDA device {}", device.ordinal()),
        why: format!(
            "the longest delay of {} samples and a block of {} channels need so much, and {} MiB are free: \
             sum more samples to one, or end the trials at a lower dispersion measure",
            plan.max_shift(),
            plan.channels_used().len(),
            mib(free)
        ),
    })
}

/// Sample types, and whether a word packs two sums of them.
const KINDS: [(Lane, bool); 5] = [
    (Lane::U8, true),
    (Lane::U16, true),
    (Lane::U16, false),
    (Lane::U32, false),
    (Lane::F32, false),
];

/// Encodings with the types that their sums over time can have.
const LOADS: [(Encoding, Lane); 9] = [
    (Encoding::U8, Lane::U8),
    (Encoding::I8, Lane::U16),
    (Encoding::U1, Lane::U8),
    (Encoding::U2, Lane::U16),
    (Encoding::U4, Lane::U8),
    (Encoding::U16, Lane::U16),
    (Encoding::I16, Lane::U32),
    (Encoding::U8, Lane::U32),
    (Encoding::F32, Lane::F32),
];

/// Lists the kernels that a plan may need on a device, the slowest to compile first. The general kernel sums the trials
/// that do not fit the fast one; which those are is known only from the fast kernel's tables.
pub(crate) fn sources(plan: &Plan, device: &Device) -> Vec<Source> {
    sources_of(plan, fast::shape(plan, device, &Threads::new(1)), device)
}

/// Trials between possible divisions of integer sums, which do not depend on them: as many as a kernel's tile has.
const TILE: usize = 64;

/// Returns the trials before which a plan may be divided among devices of this kind, each part with a plan of its own, so that
/// all sums keep their bits; the first is 0.
pub(crate) fn divisions(plan: &Plan, device: &Device) -> Vec<usize> {
    match plan.output_is_integer() {
        true => (0..plan.dms().len()).step_by(TILE).collect(),
        false => general::tile_starts(plan, device),
    }
}

/// Like [`sources`], for the fast kernel's shape.
fn sources_of(plan: &Plan, fast: Option<fast::Shape>, device: &Device) -> Vec<Source> {
    let fast = fast.map(|shape| match shape.source() {
        best if device.begins_quickly(&best) => shape.quick_source(),
        best => best,
    });
    let general = match fast {
        // The trials that are left, and the tuned shape for them, are unknown.
        Some(_) => general::usual(plan, device),
        None => general::chosen(plan, plan.dms().len(), device),
    };
    let general = general::source(&general);
    fast.into_iter().chain([general, history::source(plan.encoding(), plan.lane(1))]).collect()
}

/// Lists the kernels of this stage.
pub fn kernels(extent: Extent) -> Vec<Variant> {
    let (shapes, loads) = if extent == Extent::All { (3, LOADS.len()) } else { (1, 4) };
    let shapes =
        KINDS.iter().flat_map(|(lane, packed)| Shape::all(*lane, *packed).into_iter().take(shapes));
    let sums = shapes.map(|shape| general::source(&shape));
    let loads = LOADS.iter().rev().take(loads);
    let loads = loads.map(|(encoding, lane)| history::source(*encoding, *lane));
    fast::variants(extent == Extent::All)
        .into_iter()
        .chain(sums.chain(loads).map(Variant::everywhere))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::cuda::PlaneKind;
    use crate::backend::cuda::testing::device;
    use crate::sample::Encoding;
    use crate::units::{Band, DM_CONSTANT};

    fn planned(band: Band, tsamp_s: f64, dms: Vec<f64>, encoding: Encoding) -> Plan {
        Plan::new(super::super::plan::Options {
            band,
            tsamp_s,
            dms,
            downsample: 1,
            encoding,
            range: None,
            masked: Vec::new(),
            dm_constant: DM_CONSTANT,
        })
        .unwrap()
    }

    /// Plans 64 close trials of long delay, and one of no delay.
    fn plan(encoding: Encoding) -> Plan {
        let near = (0..64).map(|i| 120.0 + 0.002 * f64::from(i));
        let dms = std::iter::once(0.0).chain(near).collect();
        planned(Band::uniform(1400.0, -4.0, 24).unwrap(), 5e-6, dms, encoding)
    }

    #[test]
    fn blocks_of_few_trials_and_many_channels_are_limited_by_their_input() {
        let band = Band::uniform(800.0, -0.0244140625, 16384).unwrap();
        let plan = planned(band, 1e-3, vec![0.0, 1.0], Encoding::F32);
        let sizes = Sizes::new(&plan, plan.lane(1).bytes());
        assert_eq!((sizes.host, sizes.device), (4096, 4096));
    }

    #[test]
    fn a_stream_that_fills_the_history_is_read_within_it_to_its_end() {
        let Some(device) = device() else { return };
        let threads = Threads::new(2);
        for (encoding, is_quick) in
            [(Encoding::U8, false), (Encoding::U8, true), (Encoding::U16, false)]
        {
            let plan = plan(encoding);
            let lane_bytes = encoding.bits() / 8;
            let sizes = Sizes { host: 512, device: 512, ..Sizes::new(&plan, lane_bytes) };
            let rows = sizes.capacity(&plan) as usize;
            assert!(plan.max_shift() > 2 * history::SLACK, "the last block reads far past the end");
            let bytes: Vec<u8> =
                (0..rows * 24 * lane_bytes).map(|i| (i * i / 7 % 251) as u8).collect();
            let mut engine = Engine::sized(&plan, &device, &threads, sizes).unwrap();
            assert!(engine.fast.is_some() == (device.is_hopper() && lane_bytes == 1));
            if let Some(fast) = engine.fast.as_mut().filter(|_| is_quick) {
                fast.take_quick(&device);
            }
            let (input, stream) = (device.upload(&bytes).unwrap(), device.stream().unwrap());
            let mut plane = Plane::new(&device, PlaneKind::I32, 65, rows).unwrap();
            engine.load_on_device(&input, 0, rows, &stream).unwrap();
            for column in (0..rows).step_by(512) {
                let times = 512.min(rows - column);
                engine.emit_on_device(times, &mut plane, column, &stream).unwrap();
            }
            let mut words = vec![0; plane.words.len()];
            plane.words.download(0, &mut words).unwrap();
            for dm in [0, 1, 40, 64] {
                let row = &words[dm * rows..][..rows];
                let valid = rows - plan.trial_shift(dm);
                assert!(row[valid..].iter().all(|sum| *sum == 0));
                let sample = |time: usize, c: usize| {
                    let at = ((time + plan.shift(dm, c)) * 24 + c) * lane_bytes;
                    bytes[at..at + lane_bytes]
                        .iter()
                        .rev()
                        .fold(0, |all, b| all << 8 | u32::from(*b))
                };
                let sum = |time: usize| (0..24).map(|c| sample(time, c)).sum::<u32>();
                assert!(
                    (0..valid).all(|time| row[time] == sum(time)),
                    "{encoding:?} trial {dm}, quick {is_quick}"
                );
            }
        }
    }

    #[test]
    fn blocks_are_smaller_where_memory_is_short() {
        let plan = plan(Encoding::U8);
        let sizes = Sizes::new(&plan, 1);
        let bytes = |sizes: &Sizes| history::bytes(&plan, sizes.capacity(&plan)).unwrap();
        assert_eq!(sizes.within(usize::MAX, &plan).device, sizes.device);
        let half = sizes.within(2 * bytes(&sizes), &plan);
        assert!(half.device < sizes.device && bytes(&half) <= bytes(&sizes) / 2 + 100_000);
        let least = sizes.within(0, &plan);
        assert_eq!((least.host, least.device), (STEP, STEP), "with no memory, the shortest blocks");
        let short = sizes.within(bytes(&sizes), &plan);
        assert!(STEP <= short.host && short.host <= short.device && short.device < sizes.device);
    }
}
