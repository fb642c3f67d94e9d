//! Kernels of a search, their launches for one batch of windows, and the events they find.

use super::sizes::{
    BLOCK, EVENT_WORDS, HEADER_WORDS, HIT_WORDS, Memory, ROUNDS, SWEEP_WORDS, Sizes, Sums,
};
use crate::backend::cuda::{Arguments, Device, Extent, Function, Source, Stream, Variant};
use crate::error::Result;
use crate::single_pulse::rules::{Event, Hit, Sweep};

/// Headers that the kernels include.
const INCLUDES: &[(&str, &str)] = &[
    ("series.cuh", include_str!("series.cuh")),
    ("widths.cuh", include_str!("widths.cuh")),
    ("noise.cuh", include_str!("noise.cuh")),
    ("guess.cuh", include_str!("guess.cuh")),
    ("totals.cuh", include_str!("totals.cuh")),
];

/// Source file of kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum File {
    Noise,
    Moments,
    Estimate,
    Sums,
    Screen,
    Events,
}

/// Compile-time types of the kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Types {
    pub(super) sums: Sums,
    pub(super) wide_squares: bool,
}

/// Returns the source of a kernel file.
fn source(file: File, types: Types) -> Source {
    let floats = types.sums == Sums::F64;
    let flag = |on: bool| u8::from(on).to_string();
    let mut defines = vec![("FLOATS", flag(floats))];
    let (name, text) = match file {
        File::Noise => ("noise.cu", include_str!("noise.cu")),
        File::Moments => {
            defines.push(("WIDE", flag(types.wide_squares)));
            ("moments.cu", include_str!("moments.cu"))
        }
        File::Estimate => {
            defines.push(("WIDE", flag(types.wide_squares)));
            ("estimate.cu", include_str!("estimate.cu"))
        }
        File::Sums => ("sums.cu", include_str!("sums.cu")),
        File::Screen => {
            let bits = if types.sums == Sums::I64 { 64 } else { 32 };
            defines.push(("SUM_BITS", bits.to_string()));
            ("screen.cu", include_str!("screen.cu"))
        }
        File::Events => ("events.cu", include_str!("events.cu")),
    };
    Source { name, text, includes: INCLUDES, defines }
}

/// Lists the kernel files of a plan, those that take longest to compile first.
pub(super) fn sources(sizes: &Sizes) -> [Source; 5] {
    let types = Types { sums: sizes.sums, wide_squares: sizes.wide_squares };
    let own = if sizes.is_short() { File::Estimate } else { File::Moments };
    [own, File::Screen, File::Noise, File::Events, File::Sums].map(|file| source(file, types))
}

/// Loaded kernels of a plan.
#[derive(Debug)]
pub(super) struct Kernels {
    pub(super) noise: Noise,
    carry: Function,
    pub(super) sums: Function,
    wide: Function,
    pub(super) screen: Function,
    pub(super) count: Function,
    scan: Function,
    list_blocks: Function,
    pub(super) evaluate: Function,
    pub(super) sweep: Function,
}

/// Kernels that estimate the noise of windows.
#[derive(Debug)]
pub(super) enum Noise {
    /// One warp per window, in one launch.
    Short { estimate: Function },
    /// Passes over lists of windows.
    Long { guess: Function, moments: Function, refine: Function, settle: Function },
}

impl Kernels {
    pub(super) fn new(device: &Device, sizes: &Sizes) -> Result<Self> {
        let sources = sources(sizes);
        let list = sources.to_vec();
        let _kernels = device.prefetch(move || list);
        let [own, screen, shared, events, sums] =
            sources.each_ref().map(|source| device.module(source));
        let (own, screen, shared, events, sums) = (own?, screen?, shared?, events?, sums?);
        let noise = if sizes.is_short() {
            Noise::Short { estimate: own.function("estimate", 0)? }
        } else {
            Noise::Long {
                guess: shared.function("guess", 0)?,
                moments: own.function("moments", 0)?,
                refine: shared.function("refine", 0)?,
                settle: shared.function("settle", 0)?,
            }
        };
        Ok(Self {
            noise,
            carry: shared.function("carry", 0)?,
            sums: sums.function("sums", 0)?,
            wide: sums.function("wide", 0)?,
            screen: screen.function("screen", sizes.shared_bytes())?,
            count: events.function("count", 0)?,
            scan: events.function("scan", 0)?,
            list_blocks: events.function("list_blocks", 0)?,
            evaluate: events.function("evaluate", 0)?,
            sweep: events.function("sweep", 0)?,
        })
    }
}

/// Lists the kernels of the single-pulse search.
pub fn kernels(_: Extent) -> Vec<Variant> {
    let types = |sums, wide_squares| Types { sums, wide_squares };
    let (narrow, wide) = (types(Sums::I32, false), types(Sums::I64, true));
    let floats = types(Sums::F64, false);
    let mut sources = Vec::new();
    sources.push(source(File::Estimate, narrow));
    for file in [File::Noise, File::Moments, File::Sums, File::Screen, File::Events] {
        for types in [narrow, wide, floats] {
            let source = source(file, types);
            if !sources.contains(&source) {
                sources.push(source);
            }
        }
    }
    sources.into_iter().map(Variant::everywhere).collect()
}

/// Events copied to the host together with their count.
const FIRST_EVENTS: usize = 512;

/// Location of a batch's samples, counted from its first sample: those before `split` lie in the history, the others
/// in a plane. Both addresses are where the batch's first sample would be.
#[derive(Clone, Copy, Debug)]
pub(super) struct Batch {
    pub(super) history: u64,
    pub(super) plane: u64,
    pub(super) plane_stride: usize,
    pub(super) split: usize,
    /// First sample, and total number of samples so far, counted from the start of the stream.
    pub(super) first: u64,
    pub(super) seen: u64,
    pub(super) windows: usize,
}

impl Batch {
    /// Returns the batch of one window of `samples` samples.
    fn window(&self, index: usize, samples: usize) -> Self {
        let skipped = index * samples;
        let bytes = (skipped * size_of::<u32>()) as u64;
        Self {
            history: self.history.wrapping_add(bytes),
            plane: self.plane.wrapping_add(bytes),
            split: self.split.saturating_sub(skipped),
            first: self.first + skipped as u64,
            windows: 1,
            ..*self
        }
    }
}

/// Kernels, memory and sizes of a search.
#[derive(Debug)]
pub(super) struct Search {
    pub(super) kernels: Kernels,
    pub(super) sizes: Sizes,
    pub(super) memory: Memory,
    pub(super) snr: f64,
    /// Index of the current buffer of best hits.
    pub(super) present: usize,
}

impl Search {
    /// Queues the search of a batch of windows, and the copy of its first events to the host.
    pub(super) fn submit(&mut self, batch: Batch, stream: &Stream) -> Result<()> {
        self.estimate_noise(batch, stream)?;
        self.flag(batch, stream)?;
        self.round(batch, 0, stream)
    }

    /// Waits for the batch that was submitted last and appends the events that it ends; `copies` is a stream without other
    /// work. Work that was queued on the batch's stream in the meantime is not waited for, unless further rounds follow it.
    pub(super) fn complete(
        &mut self,
        batch: Batch,
        stream: &Stream,
        copies: &Stream,
        events: &mut Vec<Event>,
    ) -> Result<()> {
        if self.collect_rounds(batch, stream, copies, events)? {
            return self.carry(batch, stream);
        }
        for window in 0..batch.windows {
            let one = batch.window(window, self.sizes.window);
            self.submit(one, stream)?;
            self.collect_rounds(one, stream, copies, events)?;
            self.carry(one, stream)?;
        }
        Ok(())
    }

    /// Collects the events of the batch that was submitted last, in rounds. Returns false, with no effect, if one window's
    /// noise depends on the previous one.
    fn collect_rounds(
        &mut self,
        batch: Batch,
        stream: &Stream,
        copies: &Stream,
        events: &mut Vec<Event>,
    ) -> Result<bool> {
        let mut begin = 0;
        loop {
            let Some(blocks) = self.collect(copies, events)? else {
                self.present = 1 - self.present;
                return Ok(false);
            };
            begin += self.sizes.flagged;
            if begin >= blocks {
                return Ok(true);
            }
            self.round(batch, begin, stream)?;
        }
    }

    /// Ends every trial's open event; waits for the device.
    pub(super) fn end(&mut self, stream: &Stream, events: &mut Vec<Event>) -> Result<()> {
        stream.fill(&mut self.memory.events, 0..1, 0)?;
        self.sweep(0, 0, 0, true, stream)?;
        self.copy_first(stream)?;
        self.collect(stream, events).map(|_| ())
    }

    /// Saves the state of the windows searched so far: open events, and the noise of the last window.
    pub(super) fn save(&mut self, stream: &Stream) -> Result<()> {
        let Memory { bests, carried, saved_bests, saved_noise, .. } = &mut self.memory;
        stream.copy(&bests[self.present], 0..saved_bests.len(), saved_bests, 0)?;
        stream.copy(carried, 0..saved_noise.len(), saved_noise, 0)
    }

    /// Restores the saved state.
    pub(super) fn restore(&mut self, stream: &Stream) -> Result<()> {
        let Memory { bests, carried, saved_bests, saved_noise, .. } = &mut self.memory;
        stream.copy(saved_bests, 0..saved_bests.len(), &mut bests[self.present], 0)?;
        stream.copy(saved_noise, 0..saved_noise.len(), carried, 0)
    }

    /// Returns the open event of each trial, which later hits may still join; waits for the device.
    pub(super) fn sweeps(&mut self, stream: &Stream) -> Result<impl Iterator<Item = Sweep>> {
        let words = SWEEP_WORDS * self.sizes.dms;
        let Memory { bests, host_bests, .. } = &mut self.memory;
        // SAFETY: the host memory is not accessed before the stream is synchronized.
        unsafe { stream.copy_out(&bests[self.present], 0..words, host_bests, 0)? };
        stream.synchronize()?;
        Ok(host_bests.as_slice()[..words].chunks_exact(SWEEP_WORDS).map(sweep_of))
    }

    /// Replaces the device's open events; waits for the device.
    pub(super) fn set_sweeps(
        &mut self,
        sweeps: impl Iterator<Item = Sweep>,
        stream: &Stream,
    ) -> Result<()> {
        let words = SWEEP_WORDS * self.sizes.dms;
        let Memory { bests, host_bests, .. } = &mut self.memory;
        let hits = host_bests.as_mut_slice()[..words].chunks_exact_mut(SWEEP_WORDS);
        hits.zip(sweeps).for_each(|(words, sweep)| words.copy_from_slice(&words_of(sweep)));
        // SAFETY: the host memory is not accessed before the stream is synchronized.
        unsafe { stream.copy_in(host_bests, 0..words, &mut bests[self.present], 0)? };
        stream.synchronize()
    }

    /// Clears the open events of an earlier stream.
    pub(super) fn reset(&mut self, stream: &Stream) -> Result<()> {
        for bests in &mut self.memory.bests {
            let words = bests.len();
            stream.fill(bests, 0..words, 0)?;
        }
        stream.fill(&mut self.memory.serial, 0..1, 0)?;
        // Clears all words: the first copy to the host holds more events than were found.
        let words = self.memory.events.len();
        stream.fill(&mut self.memory.events, 0..words, 0)
    }

    fn series(&self, batch: Batch) -> Arguments {
        let sizes = &self.sizes;
        Arguments::new()
            .with(batch.history)
            .with(sizes.history_stride() as u64)
            .with(batch.plane)
            .with(batch.plane_stride as u64)
            .with(self.memory.ends.address())
            .with(batch.first)
            .with(batch.seen)
            .with(batch.split as u32)
            .with(sizes.window as u32)
            .with(sizes.reach as u32)
            .with(batch.windows as u32)
    }

    /// Returns the arguments for the series and the known noise.
    fn series_and_noise(&self, batch: Batch) -> Arguments {
        self.series(batch).with(self.memory.own.address()).with(self.memory.carried.address())
    }

    fn estimate_noise(&mut self, batch: Batch, stream: &Stream) -> Result<()> {
        let Noise::Short { estimate } = &self.kernels.noise else {
            return self.estimate_long(batch, stream);
        };
        let all = self.sizes.dms * batch.windows;
        let group = self.sizes.group(all);
        let own = self.memory.own.address();
        let arguments = self.series(batch).with(own).with(group as u32).with(self.sizes.dms as u32);
        launch(stream, estimate, all.div_ceil(4 * group), 128, &arguments)
    }

    /// Estimates the noise of long windows with passes over lists of windows.
    fn estimate_long(&mut self, batch: Batch, stream: &Stream) -> Result<()> {
        stream.fill(&mut self.memory.active, 0..ROUNDS + 1, 0)?;
        stream.fill(&mut self.memory.serial, 0..1, 0)?;
        let Noise::Long { guess, moments, refine, settle } = &self.kernels.noise else {
            return Ok(());
        };
        let all = self.sizes.dms * batch.windows;
        let (memory, dms) = (&self.memory, self.sizes.dms as u32);
        let arguments = self
            .series_and_noise(batch)
            .with(memory.estimates.address())
            .with(memory.lists[0].address())
            .with(memory.active.address())
            .with(memory.serial.address())
            .with(dms);
        launch(stream, guess, all.div_ceil(4), 128, &arguments)?;
        let (windows, threads, blocks) = match self.sizes.sums {
            Sums::F64 => (16, 128, 16 * self.sizes.multiprocessors),
            _ => (1, 512, 2 * self.sizes.multiprocessors),
        };
        for round in 0..ROUNDS {
            let (list, next) = (&memory.lists[round % 2], &memory.lists[(round + 1) % 2]);
            let arguments = self
                .series_and_noise(batch)
                .with(memory.estimates.address())
                .with(list.address())
                .with(memory.active.at(round))
                .with(memory.serial.address());
            let grid = all.div_ceil(windows).min(blocks);
            launch(stream, moments, grid, threads, &arguments)?;
            let arguments = Arguments::new()
                .with(memory.estimates.address())
                .with(list.address())
                .with(memory.active.at(round))
                .with(next.address())
                .with(memory.active.at(round + 1));
            let grid = all.div_ceil(64).min(4 * self.sizes.multiprocessors);
            launch(stream, refine, grid, 64, &arguments)?;
        }
        let arguments = self
            .series(batch)
            .with(memory.own.address())
            .with(memory.estimates.address())
            .with(memory.loud.address())
            .with(dms);
        launch(stream, settle, all.div_ceil(128), 128, &arguments)
    }

    /// Flags the blocks of starts that may hold a hit.
    fn flag(&self, batch: Batch, stream: &Stream) -> Result<()> {
        let (sizes, kernels, memory) = (&self.sizes, &self.kernels, &self.memory);
        let floats = sizes.sums == Sums::F64;
        if sizes.entries > 0 && !floats {
            self.sum_all(batch, stream)?;
        }
        let tiling = sizes.tiling(batch.windows);
        let arguments = self.series_and_noise(batch).with(memory.flags.address()).with(self.snr);
        let arguments = match sizes.sums {
            Sums::F64 => arguments.with(memory.loud.address()),
            _ => arguments.with(sizes.range),
        };
        let arguments = arguments
            .with(sizes.tiles() as u32)
            .with(tiling.starts as u32)
            .with(tiling.length as u32)
            .with(sizes.tile_widths as u32)
            .with(tiling.windows as u32);
        launch(stream, &kernels.screen, tiling.tiles, 512, &arguments)?;
        if floats {
            self.sum_flagged(batch, stream)?;
        }
        if sizes.tile_widths == sizes.widths {
            return Ok(());
        }
        let arguments = self
            .series_and_noise(batch)
            .with(memory.flags.address())
            .with(memory.totals.address())
            .with(self.snr)
            .with(sizes.entries as u32)
            .with(sizes.grain as u32)
            .with(sizes.window_words() as u32)
            .with(sizes.tile_widths as u32)
            .with(sizes.widths as u32)
            .with(sizes.dms as u32);
        let words = sizes.dms * batch.windows * sizes.window_words();
        launch(stream, &kernels.wide, words.div_ceil(8), 256, &arguments)
    }

    /// Stores prefix sums of every integer window.
    fn sum_all(&self, batch: Batch, stream: &Stream) -> Result<()> {
        let sizes = &self.sizes;
        let arguments = self
            .series_and_noise(batch)
            .with(self.memory.totals.address())
            .with(sizes.entries as u32)
            .with(sizes.grain as u32)
            .with(sizes.dms as u32);
        launch(stream, &self.kernels.sums, sizes.dms * batch.windows, 256, &arguments)
    }

    /// Stores prefix sums of the float windows to evaluate: the flagged ones, or all if some boxcars are too wide for
    /// a tile.
    fn sum_flagged(&self, batch: Batch, stream: &Stream) -> Result<()> {
        let (sizes, memory) = (&self.sizes, &self.memory);
        let arguments = self
            .series_and_noise(batch)
            .with(memory.totals.address())
            .with(sizes.entries as u32)
            .with(memory.flags.address())
            .with(memory.loud.address())
            .with(sizes.window_words() as u32)
            .with(sizes.word_blocks() as u32)
            .with(u32::from(sizes.tile_widths < sizes.widths))
            .with(sizes.dms as u32);
        let windows = sizes.dms * batch.windows;
        launch(stream, &self.kernels.sums, windows.div_ceil(4), 128, &arguments)
    }

    /// Queues the evaluation of the flagged blocks from index `begin` on, as many as the buffers hold, and the copy of the first
    /// events to the host.
    fn round(&mut self, batch: Batch, begin: usize, stream: &Stream) -> Result<()> {
        stream.fill(&mut self.memory.events, 0..1, 0)?;
        let (sizes, kernels, memory) = (&self.sizes, &self.kernels, &self.memory);
        let (dms, begin, most) = (sizes.dms as u32, begin as u32, sizes.flagged as u32);
        let trial_words = (batch.windows * sizes.window_words()) as u32;
        let flags = Arguments::new().with(memory.flags.address()).with(trial_words);
        let arguments = flags.with(memory.counts.address()).with(dms);
        launch(stream, &kernels.count, sizes.dms.div_ceil(8), 256, &arguments)?;
        let arguments = Arguments::new()
            .with(memory.counts.address())
            .with(memory.offsets.address())
            .with(memory.events.address())
            .with(memory.serial.address())
            .with(dms);
        launch(stream, &kernels.scan, 1, 1024, &arguments)?;
        let arguments = flags
            .with(sizes.word_blocks() as u32)
            .with(memory.offsets.address())
            .with(memory.blocks.address())
            .with(begin)
            .with(most)
            .with(dms);
        launch(stream, &kernels.list_blocks, sizes.dms.div_ceil(8), 256, &arguments)?;
        let arguments = self
            .series_and_noise(batch)
            .with(memory.totals.address())
            .with(memory.blocks.address())
            .with(memory.events.address())
            .with(memory.snrs.address())
            .with(memory.widths.address())
            .with(self.snr)
            .with(begin)
            .with(most)
            .with(sizes.entries as u32)
            .with(sizes.grain as u32)
            .with(sizes.tile_widths as u32)
            .with(sizes.widths as u32);
        let grid = sizes.flagged.min(12 * self.sizes.multiprocessors);
        launch(stream, &kernels.evaluate, grid, BLOCK, &arguments)?;
        self.sweep(batch.first, begin, most, false, stream)?;
        self.copy_first(stream)
    }

    /// Groups the hits of up to `most` flagged blocks from `begin` on into events; `first` is the batch's first
    /// sample.
    fn sweep(
        &mut self,
        first: u64,
        begin: u32,
        most: u32,
        is_last: bool,
        stream: &Stream,
    ) -> Result<()> {
        let memory = &self.memory;
        let arguments = Arguments::new()
            .with(memory.blocks.address())
            .with(memory.snrs.address())
            .with(memory.widths.address())
            .with(memory.offsets.address())
            .with(memory.bests[self.present].address())
            .with(memory.bests[1 - self.present].address())
            .with(memory.events.at(HEADER_WORDS))
            .with(memory.events.address())
            .with(first)
            .with(begin)
            .with(most)
            .with(u32::from(is_last))
            .with(self.sizes.dms as u32);
        self.present = 1 - self.present;
        launch(stream, &self.kernels.sweep, self.sizes.dms.div_ceil(64), 64, &arguments)
    }

    /// Waits for the events of a round and appends them; `copies` copies those that [`Self::copy_first`] left. Returns the number of
    /// flagged blocks, or `None` and no events if its windows must be searched one after another.
    fn collect(&mut self, copies: &Stream, events: &mut Vec<Event>) -> Result<Option<usize>> {
        self.memory.first_copied.synchronize()?;
        let [header, serial] = [0, 1].map(|word| self.memory.found.as_slice()[word]);
        if serial != 0 {
            return Ok(None);
        }
        let (count, first) = (header as u32 as usize, self.first_words());
        let last = HEADER_WORDS + count * EVENT_WORDS;
        if last > first {
            let Memory { events, found, .. } = &mut self.memory;
            // SAFETY: the host memory is not accessed before the stream is synchronized.
            unsafe { copies.copy_out(events, first..last, found, first)? };
            copies.synchronize()?;
        }
        let words = &self.memory.found.as_slice()[HEADER_WORDS..last];
        events.extend(words.chunks_exact(EVENT_WORDS).map(event));
        Ok(Some((header >> 32) as usize))
    }

    /// Queues the copy of the header and the first events of a round to the host.
    fn copy_first(&mut self, stream: &Stream) -> Result<()> {
        let words = 0..self.first_words();
        let Memory { events, found, first_copied, .. } = &mut self.memory;
        // SAFETY: `collect` accesses the host memory after `first_copied`.
        unsafe { stream.copy_out(events, words, found, 0)? };
        stream.record(first_copied)
    }

    /// Returns the words of the header and of the first events.
    fn first_words(&self) -> usize {
        self.memory.events.len().min(HEADER_WORDS + FIRST_EVENTS * EVENT_WORDS)
    }

    /// Stores the noise that the next batch may need.
    fn carry(&self, batch: Batch, stream: &Stream) -> Result<()> {
        let arguments = self.series_and_noise(batch).with(self.sizes.dms as u32);
        launch(stream, &self.kernels.carry, self.sizes.dms.div_ceil(128), 128, &arguments)
    }

    /// Copies the ends of the trials to the device.
    pub(super) fn set_ends(&mut self, ends: &[u64], stream: &Stream) -> Result<()> {
        let Memory { ends: buffer, host_ends, ends_copied, .. } = &mut self.memory;
        ends_copied.synchronize()?;
        host_ends.as_mut_slice()[..ends.len()].copy_from_slice(ends);
        // SAFETY: the host memory is written again only after the copy.
        unsafe { stream.copy_in(host_ends, 0..ends.len(), buffer, 0)? };
        stream.record(ends_copied)
    }
}

fn launch(
    stream: &Stream,
    function: &Function,
    grid: usize,
    threads: usize,
    arguments: &Arguments,
) -> Result<()> {
    // SAFETY: every caller passes the arguments in the kernel's order and types. The buffers are the search's own and
    // the caller's plane; work on them is queued on streams that wait for each other.
    unsafe { stream.launch(function, [grid, 1, 1], [threads, 1, 1], arguments) }
}

/// Decodes an event of the device.
fn event(words: &[u64]) -> Event {
    let snr = f32::from_bits(words[2] as u32);
    Event { dm: words[1] as u32, time: words[0], width: (words[1] >> 32) as u32, snr }
}

/// Decodes an open event of the device.
fn sweep_of(words: &[u64]) -> Sweep {
    let (best, inner) = words.split_at(HIT_WORDS);
    Sweep { best: hit_of(best), inner: hit_of(inner) }
}

/// Decodes a hit of the device: time, significance, width; width 0 means none.
fn hit_of(words: &[u64]) -> Option<Hit> {
    let width = words[2] & u64::from(u32::MAX);
    let hit = Hit { time: words[0], width, snr: f64::from_bits(words[1]) };
    (width > 0).then_some(hit)
}

fn words_of(sweep: Sweep) -> [u64; SWEEP_WORDS] {
    let hit = |hit: Option<Hit>| {
        hit.map_or([0; HIT_WORDS], |hit| [hit.time, hit.snr.to_bits(), hit.width])
    };
    let ([a, b, c], [d, e, f]) = (hit(sweep.best), hit(sweep.inner));
    [a, b, c, d, e, f]
}
