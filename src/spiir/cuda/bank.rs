//! Tables and ring buffers of the filter bank in device memory, and the kernel launches over them.

use std::ops::{Range, RangeInclusive};

use num_complex::Complex;

use super::super::plan::{Plan, Template};
use super::kernels;
use super::pack::Packed;
use super::passes::{Limits, TILE};
use crate::backend::cuda::tune::{self, Candidate};
use crate::backend::cuda::{Arguments, Buffer, Device, Function, ReadRows, RowReader, Stream};
use crate::backend::threads::Threads;
use crate::error::{Error, Result};
use crate::state::{Saved, Saving};

/// Threads of a `downsample_input` block, which computes a quarter as many samples of a lower rate: in a grid of many
/// blocks, and in a grid of one.
const TAKEN: usize = 256;
const ALONE: usize = 1024;

/// Nonzero filter tap: the bits of its weight, and the samples it reaches back.
type Tap = [u32; 2];

/// New samples of one launch and the destination of their ratios.
#[derive(Clone, Copy, Debug)]
pub(super) struct Job {
    /// Address of the first sample.
    pub(super) input: u64,
    /// Samples of the stream before it, and new ones, at most [`Bank::piece`].
    pub(super) begin: u64,
    pub(super) times: usize,
    /// Sample number of the first output ratio, its address for template 0, and ratios between rows.
    pub(super) known: u64,
    pub(super) output: u64,
    pub(super) stride: usize,
}

impl Job {
    /// Tells whether 16-byte stores of two ratios are aligned; pairs begin at even samples.
    fn is_wide(&self) -> bool {
        let first = self.output.wrapping_sub(8 * self.known);
        first.is_multiple_of(16) && self.stride.is_multiple_of(2)
    }
}

/// Returns the most sums of a rate that an `upsample` block holds: those of a launch and those the taps reach.
fn held_sums(level: usize, reach: usize) -> usize {
    (PIECE >> level) + reach + 4
}

/// Device memory and kernels of the filter bank.
#[derive(Debug)]
pub(super) struct Bank {
    filter: Function,
    downsample_input: Function,
    upsample: Function,
    /// Most full-rate samples in one launch of this filter bank.
    piece: usize,
    threads: usize,
    blocks: usize,
    levels: usize,
    /// Number of multiprocessors, which determines the filters' layout together with the plan.
    multiprocessors: usize,
    past: Vec<Past>,
    units: Buffer<[u32; 6]>,
    passes: Buffer<[u32; 6]>,
    rows: Buffer<i32>,
    values: Buffer<f32>,
    table: Buffer<[u64; 3]>,
    deep: Buffer<[u32; 4]>,
    deep_rows: Buffer<i32>,
    /// Downsampling taps; upsampling taps, those of even samples before those of odd ones.
    down: Buffer<Tap>,
    down_reach: usize,
    up: Buffer<Tap>,
    even: usize,
    /// Samples of the lower rate that the upsampling taps reach back.
    reach: usize,
    /// States before the next launch, and the buffer for those after it.
    states: [Buffer<[f32; 2]>; 2],
    inputs: Buffer<f32>,
    sums: Buffer<Complex<f32>>,
}

impl Bank {
    pub(super) fn new(plan: &Plan, device: &Device, threads: &Threads) -> Result<Self> {
        let resampler = &plan.options().resampler;
        let down = taps(&resampler.down);
        let (even, odd) = phases(&resampler.up);
        let up = [even.as_slice(), &odd].concat();
        let (reach, down_reach) = (reach(&up), reach(&down));
        let levels = Levels::new(plan, PIECE, reach)?;
        let properties = device.properties();
        let limits = Limits {
            multiprocessors: properties.multiprocessors,
            shared_bytes: properties.shared_bytes,
            piece: PIECE,
        };
        let first = plan.range().start;
        let row = |level: usize, template: usize| levels.row(level, template - first);
        let packed = Packed::new(plan, &limits, &row, threads);
        check_memory(device, &levels, &packed)?;
        let piece = tuned_piece(&packed, device);
        let sources = [kernels::filters(packed.threads, &packed.shapes), kernels::resample()];
        let list = sources.to_vec();
        let _kernels = device.prefetch(move || list);
        let [filters, resample] = sources.each_ref().map(|source| device.module(source));
        let (filters, resample) = (filters?, resample?);
        let is_one = plan.levels() == 1;
        let taken = if is_one { 0 } else { 8 * down.len() + 4 * (ALONE / 2 + down_reach) };
        let held = held_sums(1, reach) + held_sums(2, reach);
        let brought = if is_one { 0 } else { 8 * (up.len() + held) };
        Ok(Self {
            filter: filters.function("filter_all", packed.shared_bytes)?,
            downsample_input: resample.function("downsample_input", taken)?,
            upsample: resample.function("upsample", brought)?,
            piece,
            threads: packed.threads,
            blocks: packed.units.len(),
            levels: plan.levels(),
            multiprocessors: properties.multiprocessors,
            past: levels.past,
            units: device.upload(&packed.units)?,
            passes: device.upload(&packed.passes)?,
            rows: device.upload(&packed.rows)?,
            values: device.upload(&packed.values)?,
            table: device.upload(&levels.table)?,
            deep: device.upload(&levels.deep)?,
            deep_rows: device.upload(&levels.deep_rows)?,
            down: device.upload(&down)?,
            down_reach,
            even: even.len(),
            up: device.upload(&up)?,
            reach,
            states: [device.buffer(packed.states)?, device.buffer(packed.states)?],
            inputs: device.buffer(levels.inputs)?,
            sums: device.buffer(levels.sums)?,
        })
    }

    /// Returns the most new samples of a job.
    pub(super) fn piece(&self) -> usize {
        self.piece
    }

    /// Queues a reset of all states and rings.
    pub(super) fn clear(&mut self, stream: &Stream) -> Result<()> {
        let all = 0..self.states[0].len();
        stream.fill(&mut self.states[0], all, 0)?;
        let all = 0..self.inputs.len();
        stream.fill(&mut self.inputs, all, 0)?;
        let all = 0..self.sums.len();
        stream.fill(&mut self.sums, all, 0)
    }

    /// Saves the state of a stream of `taken` samples after all work on the device has finished.
    pub(super) fn save(&self, device: &Device, taken: u64, to: &mut Saving) -> Result<()> {
        to.number(self.multiprocessors as u64);
        let mut reader = RowReader::new(device)?;
        to.number(2 * self.states[0].len() as u64);
        reader.read(&self.states[0], |part| to.more_f32s(part))?;
        for (level, past) in self.past.iter().enumerate() {
            let end = at_level(taken, level);
            let mut row = |row: &[f32]| {
                to.number(row.len() as u64);
                to.more_f32s(row);
            };
            let Past { input, input_ring, input_needed, sums, sums_ring, sums_needed, rows } =
                *past;
            let ranges = last_ranges(end, input_needed, input_ring);
            let inputs = ReadRows { first: input, stride: input_ring, rows: 1, ranges };
            reader.read_rows(&self.inputs, &inputs, &mut row)?;
            let ranges = last_ranges(end, sums_needed, sums_ring);
            let sums = ReadRows { first: sums, stride: sums_ring, rows, ranges };
            reader.read_rows(&self.sums, &sums, row)?;
        }
        Ok(())
    }

    /// Restores the state saved by a filter bank of the same plan and device.
    pub(super) fn load(&mut self, from: &mut Saved<'_>, taken: u64) -> Result<()> {
        from.expect("multiprocessors", self.multiprocessors as u64)?;
        let mut states = vec![[0.0; 2]; self.states[0].len()];
        from.fill_f32(states.as_flattened_mut())?;
        let mut inputs = vec![0.0; self.inputs.len()];
        let mut sums = vec![Complex::default(); self.sums.len()];
        for (level, past) in self.past.iter().enumerate() {
            let end = at_level(taken, level);
            let mut held = Vec::new();
            let mut row = |ring: &mut [f32], width: usize, ranges: &[Range<usize>; 2]| {
                held.resize(width * (ranges[0].len() + ranges[1].len()), 0.0);
                from.fill_f32(&mut held)?;
                let (older, newer) = held.split_at(width * ranges[0].len());
                for (range, values) in ranges.iter().zip([older, newer]) {
                    ring[width * range.start..width * range.end].copy_from_slice(values);
                }
                Ok::<_, Error>(())
            };
            let ranges = last_ranges(end, past.input_needed, past.input_ring);
            row(&mut inputs[past.input..], 1, &ranges)?;
            let ranges = last_ranges(end, past.sums_needed, past.sums_ring);
            let rings = &mut sums[past.sums..past.sums + past.rows * past.sums_ring];
            for ring in rings.chunks_exact_mut(past.sums_ring) {
                row(bytemuck::cast_slice_mut(ring), 2, &ranges)?;
            }
        }
        self.states[0].upload(&states)?;
        self.inputs.upload(&inputs)?;
        self.sums.upload(&sums)
    }

    /// Queues the kernels for new samples.
    pub(super) fn launch(&mut self, job: &Job, stream: &Stream) -> Result<()> {
        self.downsample_input(job, stream)?;
        self.filter(job, stream)?;
        self.states.swap(0, 1);
        if self.deep.is_empty() { Ok(()) } else { self.upsample(job, stream) }
    }

    /// Launches rates 0 and 1 together, then one launch per rate; one block computes all rates that have few samples.
    fn downsample_input(&self, job: &Job, stream: &Stream) -> Result<()> {
        let last = self.levels - 1;
        let outputs = |level: usize| (job.times >> level) + 1;
        let copied = job.times.div_ceil(TAKEN).max(1);
        let halved = if last > 0 { outputs(1).div_ceil(TAKEN / 4) } else { 0 };
        self.take_levels(job, 0..=last.min(1), copied.max(halved), TAKEN, stream)?;
        for level in 2..=last {
            if outputs(level) <= ALONE / 4 {
                return self.take_levels(job, level..=last, 1, ALONE, stream);
            }
            let blocks = outputs(level).div_ceil(TAKEN / 4);
            self.take_levels(job, level..=level, blocks, TAKEN, stream)?;
        }
        Ok(())
    }

    fn take_levels(
        &self,
        job: &Job,
        levels: RangeInclusive<usize>,
        blocks: usize,
        threads: usize,
        stream: &Stream,
    ) -> Result<()> {
        let arguments = Arguments::new()
            .with(job.input)
            .with(job.times as u32)
            .with(job.begin)
            .with(self.table.address())
            .with(*levels.start() as u32)
            .with(*levels.end() as u32)
            .with(self.inputs.address())
            .with(self.down.address())
            .with(self.down.len() as u32)
            .with(self.down_reach as u32);
        // SAFETY: the arguments match the kernel's parameters; each ring holds the new samples in addition to its
        // history.
        unsafe {
            stream.launch(&self.downsample_input, [blocks, 1, 1], [threads, 1, 1], &arguments)
        }
    }

    fn filter(&self, job: &Job, stream: &Stream) -> Result<()> {
        let arguments = Arguments::new()
            .with(self.units.address())
            .with(self.passes.address())
            .with(self.rows.address())
            .with(self.values.address())
            .with(self.states[0].address())
            .with(self.states[1].address())
            .with(self.table.address())
            .with(self.inputs.address())
            .with(self.sums.address())
            .with(job.output)
            .with(job.begin)
            .with(job.begin + job.times as u64)
            .with(job.known)
            .with(job.stride as i64)
            .with(u32::from(job.is_wide()));
        // SAFETY: the arguments match the kernel's parameters; the tables were made for its blocks and these rings,
        // and the caller's output has space for each template's new ratios.
        unsafe {
            stream.launch(&self.filter, [self.blocks, 1, 1], [self.threads, 1, 1], &arguments)
        }
    }

    fn upsample(&self, job: &Job, stream: &Stream) -> Result<()> {
        let arguments = Arguments::new()
            .with(self.deep.address())
            .with(self.deep_rows.address())
            .with(self.table.address())
            .with(self.sums.address())
            .with(job.output)
            .with(job.begin)
            .with(job.begin + job.times as u64)
            .with(job.known)
            .with(job.stride as i64)
            .with(u32::from(job.is_wide()))
            .with(self.up.address())
            .with(self.even as u32)
            .with((self.up.len() - self.even) as u32)
            .with(self.reach as u32)
            .with(held_sums(1, self.reach) as u32);
        // SAFETY: as above; the rings of sums and shared memory hold what the taps reach in addition to the new sums.
        unsafe { stream.launch(&self.upsample, [self.deep.len(), 1, 1], [256, 1, 1], &arguments) }
    }
}

/// Returns the number of samples of a level before sample `taken` of the full rate.
fn at_level(taken: u64, level: usize) -> u64 {
    taken.div_ceil(1 << level)
}

/// Returns the places of the last `needed` samples of a stream of `end` in a ring: two ranges, the older samples first.
fn last_ranges(end: u64, needed: usize, ring: usize) -> [Range<usize>; 2] {
    let count = end.min(needed.min(ring) as u64) as usize;
    let first = ((end - count as u64) % ring as u64) as usize;
    let older = count.min(ring - first);
    [first..first + older, 0..count - older]
}

/// Returns the taps, without those too small to change any sum.
fn taps(all: &[f32]) -> Vec<Tap> {
    let most = all.iter().fold(0_f32, |most, tap| most.max(tap.abs()));
    let heard = all.iter().enumerate().filter(|(_, tap)| tap.abs() > 1e-12 * most);
    heard.map(|(back, tap)| [tap.to_bits(), back as u32]).collect()
}

/// Returns how many samples the taps reach back.
fn reach(taps: &[Tap]) -> usize {
    taps.iter().map(|[_, back]| *back as usize).max().unwrap_or(0)
}

/// Returns the taps of the even and odd output samples, in samples of the lower rate.
fn phases(all: &[f32]) -> (Vec<Tap>, Vec<Tap>) {
    let (even, odd): (Vec<Tap>, Vec<Tap>) =
        taps(all).into_iter().partition(|[_, back]| back.is_multiple_of(2));
    let halved = |taps: Vec<Tap>| taps.into_iter().map(|[tap, back]| [tap, back / 2]).collect();
    (halved(even), halved(odd))
}

/// Returns an error, with the bytes needed and free, if the plan does not fit in device memory.
fn check_memory(device: &Device, levels: &Levels, packed: &Packed) -> Result<()> {
    let bytes = levels.inputs.saturating_mul(4).saturating_add(levels.sums.saturating_mul(8));
    let bytes = bytes.saturating_add(packed.states * 16 + packed.values.len() * 4);
    let free = device.free_bytes()?;
    if bytes <= free {
        return Ok(());
    }
    let mib = |bytes: usize| bytes.div_ceil(1 << 20);
    Err(Error::Unavailable {
        what: format!("{} MiB of memory on CUDA device {}", mib(bytes), device.ordinal()),
        why: format!(
            "the bank's filters and histories need so much, and {} MiB are free",
            mib(free)
        ),
    })
}

/// Ranges of a rate's ring buffers that the next launch reads from earlier launches.
#[derive(Clone, Copy, Debug)]
struct Past {
    /// Input ring: first element, length, and number of last samples needed.
    input: usize,
    input_ring: usize,
    input_needed: usize,
    /// Rings of sums: first element, length and needed samples of each, and the number of rows.
    sums: usize,
    sums_ring: usize,
    sums_needed: usize,
    rows: usize,
}

/// Ring buffers of all rates.
#[derive(Debug)]
struct Levels {
    /// Table for the kernels: first input, first sum, masks of both.
    table: Vec<[u64; 3]>,
    /// Elements of all inputs, and of all sums.
    inputs: usize,
    sums: usize,
    past: Vec<Past>,
    /// Row of sums for each level and template.
    rows: Vec<Vec<usize>>,
    /// Templates with lower rates: output row, lowest rate, bit mask of rates with filters, index of their rows in
    /// `deep_rows`.
    deep: Vec<[u32; 4]>,
    deep_rows: Vec<i32>,
}

/// Returns the lowest rate at which a template has filters.
fn depth(template: &Template) -> usize {
    let filled = template.branches.iter().filter(|branch| !branch.filters.is_empty());
    filled.map(|branch| branch.halvings as usize).max().unwrap_or(0)
}

impl Levels {
    /// Lays out rings for launches of at most `piece` full-rate samples; upsampling reads sums up to `reach` samples
    /// back.
    fn new(plan: &Plan, piece: usize, reach: usize) -> Result<Self> {
        let resampler = &plan.options().resampler;
        let templates = plan.own();
        let mut levels = Self {
            table: Vec::new(),
            inputs: 0,
            sums: 0,
            past: Vec::new(),
            rows: Vec::new(),
            deep: Vec::new(),
            deep_rows: Vec::new(),
        };
        for level in 0..plan.levels() {
            let fresh = (piece >> level) + 1;
            let input_needed = plan.history(level) + resampler.down.len() + 2 * TILE;
            let input = ring(input_needed + fresh)?;
            let sums = if level == 0 { TILE } else { ring(resampler.up.len() + fresh + 2 * TILE)? };
            let mut next = 0;
            let row = |template: &Template| {
                let row = next;
                next += usize::from(depth(template) >= level);
                row
            };
            levels.rows.push(templates.iter().map(row).collect());
            let masks = (input as u64 - 1) | (sums as u64 - 1) << 32;
            levels.table.push([levels.inputs as u64, levels.sums as u64, masks]);
            levels.past.push(Past {
                input: levels.inputs,
                input_ring: input,
                input_needed,
                sums: levels.sums,
                sums_ring: sums,
                sums_needed: reach + 1,
                rows: if level == 0 { 0 } else { next },
            });
            levels.inputs = levels.inputs.saturating_add(input);
            let own = if level == 0 { 0 } else { next.saturating_mul(sums) };
            levels.sums = levels.sums.saturating_add(own);
        }
        for (at, template) in
            templates.iter().enumerate().filter(|(_, template)| depth(template) > 0)
        {
            let filled = template.branches.iter().filter(|branch| !branch.filters.is_empty());
            let own = filled.fold(0, |own, branch| own | 1 << branch.halvings);
            levels.deep.push([
                at as u32,
                depth(template) as u32,
                own,
                levels.deep_rows.len() as u32,
            ]);
            let rows = (1..=depth(template)).map(|level| levels.rows[level][at] as i32);
            levels.deep_rows.extend(rows);
        }
        Ok(levels)
    }

    /// Returns the row of a template's sums at a level; at the full rate it is the output row.
    fn row(&self, level: usize, template: usize) -> usize {
        if level == 0 { template } else { self.rows[level][template] }
    }
}

/// Returns the length of a ring that holds `samples` samples: a power of two.
fn ring(samples: usize) -> Result<usize> {
    let length = samples.max(64).next_power_of_two();
    if length <= 1 << 31 {
        return Ok(length);
    }
    let what = "the filter bank's history on a GPU".to_owned();
    let why = format!("a filter reaches back {samples} samples, and 2^31 are possible");
    Err(Error::Unavailable { what, why })
}

/// Most full-rate samples in one launch of any filter bank.
pub(super) const PIECE: usize = 4096;
/// Samples of a launch whose sums stay in the device's level-2 cache: 32 MiB for 4096 templates.
const CACHED_PIECE: usize = 1024;

/// Pass count above which accumulator traffic outweighs refilling the window.
const MANY_PASSES: u32 = 16;

/// Returns the most full-rate samples in one launch: the tuned choice for these tables and this device, else by the
/// passes.
fn tuned_piece(packed: &Packed, device: &Device) -> usize {
    let passes = packed.units.iter().map(|unit| unit[3]).max().unwrap_or(0);
    let is_one_rate = packed.units.iter().all(|unit| unit[0] == 0);
    let pieces = suitable(passes, is_one_rate);
    let candidate = |piece: &usize| Candidate {
        name: format!("launches of {piece} samples"),
        values: vec![*piece as u32],
    };
    let candidates: Vec<Candidate> = pieces.iter().map(candidate).collect();
    let choice = tune::select(device, &kernels::sources(), &packed.tuning_key(), &candidates);
    let chosen = pieces.iter().find(|piece| choice.values == [**piece as u32]);
    *chosen.unwrap_or(&pieces[0])
}

/// Returns the candidates for a number of passes, the model's choice first. A single pass adds to no earlier sums,
/// and with several rates each launch also upsamples the lower ones.
fn suitable(passes: u32, is_one_rate: bool) -> &'static [usize] {
    match passes {
        0..=1 => &[PIECE],
        MANY_PASSES.. if is_one_rate => &[CACHED_PIECE, PIECE],
        _ => &[PIECE, CACHED_PIECE],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_samples_lie_where_a_ring_has_them() {
        for (end, needed, ring) in
            [(0, 3, 8), (2, 3, 8), (8, 3, 8), (9, 3, 8), (21, 8, 8), (5, 9, 4)]
        {
            let mut held = vec![None; ring];
            (0..end).for_each(|sample| held[sample as usize % ring] = Some(sample));
            let found = last_ranges(end, needed, ring).map(|range| held[range].to_vec()).concat();
            let count = end.min(needed.min(ring) as u64);
            assert_eq!(found, (end - count..end).map(Some).collect::<Vec<_>>());
        }
    }

    #[test]
    fn many_passes_take_short_launches() {
        assert_eq!(suitable(1, true), [PIECE]);
        assert_eq!(suitable(4, true)[0], PIECE);
        assert_eq!(suitable(50, true)[0], CACHED_PIECE);
        assert_eq!(suitable(50, false)[0], PIECE);
    }
}
