//! Corner turn on the CPU: tiles of a panel's inputs; each channel and group of times is one cache line.
//!
//! Invariant: tasks write disjoint parts of the packed block.
#![allow(unsafe_code)]

mod spectra;
mod vector;
#[cfg(target_arch = "x86_64")]
mod x86;

use spectra::{RUN, Spectra, ZEROS};
use vector::{LINE, Portable, Vector, levels, put};

use super::source::{Rows, Source};
use crate::backend::simd::Level;
use crate::backend::threads::Threads;
use crate::correlate::plan::{LANES, Plan};
use crate::voltage::Voltages;

/// Packed blocks of more bytes bypass the caches: their beginning would be evicted before the X-engine reads it.
const MOST_CACHED: usize = 8 << 20;

/// Plan bound to vector instructions and threads.
#[derive(Debug)]
pub(super) struct Engine {
    plan: Plan,
    level: Level,
    threads: Threads,
    scratch: Vec<()>,
    /// One element per task; tasks need their index only.
    tasks: Vec<()>,
}

/// Packed block, shared by the tasks.
#[derive(Clone, Copy)]
struct Packed(*mut u8);

// SAFETY: each task writes its own channels, panels and times only.
unsafe impl Sync for Packed {}

impl Packed {
    fn at(self, place: usize) -> *mut u8 {
        self.0.wrapping_add(place)
    }
}

impl Engine {
    pub(super) fn new(plan: &Plan, level: Level, threads: &Threads) -> Self {
        let scratch = vec![(); threads.count()];
        Self { plan: plan.clone(), level, threads: threads.clone(), scratch, tasks: Vec::new() }
    }

    /// Writes `times` spectra in the packed order.
    pub(super) fn turn(&mut self, source: Source<'_>, times: usize, packed: &mut [u8]) {
        match source {
            _ if times == 0 => {}
            Source::Rows(rows, first) => self.rows(rows, first, times, packed),
            Source::Streams(voltages) => self.streams(voltages, packed),
        }
    }

    fn rows(&mut self, rows: Rows<'_>, first: usize, times: usize, packed: &mut [u8]) {
        let Self { plan, level, threads, scratch, tasks } = self;
        let (size, panel_bytes) = (element_bytes(plan), plan.panel_bytes(times));
        let span = ZEROS.len() / size;
        let part = times_of_task(plan, times, plan.channels().div_ceil(span), threads.count());
        let parts = times.div_ceil(part);
        let streamed = is_streamed(packed, panel_bytes);
        let packed = Packed(packed.as_mut_ptr());
        tasks.resize(plan.channels().div_ceil(span) * parts * plan.panels(), ());
        let work = |_: &mut (), index: usize, _: &mut [()]| {
            let (panel, rest) = (index % plan.panels(), index / plan.panels());
            let (channel, start) = (rest / parts * span, rest % parts * part);
            let from = inputs(plan, panel, |input| {
                let place = (input * rows.times + first) * plan.channels() + channel;
                &rows.bytes[place * size..]
            });
            let job = Spectra {
                from,
                time_bytes: plan.channels() * size,
                channels: span.min(plan.channels() - channel),
                first: start,
                last: (start + part).min(times),
                to: packed.at((channel * plan.panels() + panel) * panel_bytes),
                panel_bytes,
                channel_bytes: plan.panels() * panel_bytes,
                streamed,
            };
            // SAFETY: the lengths of rows and block were checked against the plan; tasks differ in channels, times or
            // panel.
            unsafe { spectra::turn(*level, size, &job) }
        };
        threads.for_each_chunk(scratch, tasks, 1, work);
    }

    fn streams(&mut self, voltages: Voltages<'_>, packed: &mut [u8]) {
        let Self { plan, level, threads, scratch, tasks } = self;
        let panel_bytes = plan.panel_bytes(voltages.times());
        let streamed = is_streamed(packed, panel_bytes);
        let packed = Packed(packed.as_mut_ptr());
        tasks.resize(plan.channels() * plan.panels(), ());
        let work = |_: &mut (), index: usize, _: &mut [()]| {
            let (channel, panel) = (index / plan.panels(), index % plan.panels());
            let source = Source::Streams(voltages);
            let job = Streams {
                from: inputs(plan, panel, |input| source.sample(plan, input, channel, 0)),
                bytes: voltages.times() * element_bytes(plan),
                to: packed.at(index * panel_bytes),
                panel_bytes,
                pairs: element_bytes(plan) == 1,
                streamed,
            };
            // SAFETY: the lengths of streams and block were checked against the plan; tasks differ in channel or
            // panel.
            unsafe { turn_streams(*level, &job) }
        };
        threads.for_each_chunk(scratch, tasks, 1, work);
    }
}

fn element_bytes(plan: &Plan) -> usize {
    plan.encoding().sample_bits() / 8
}

/// Returns the first sample of each input of a panel; null for padding inputs.
fn inputs<'a>(plan: &Plan, panel: usize, from: impl Fn(usize) -> &'a [u8]) -> [*const u8; LANES] {
    std::array::from_fn(|lane| {
        let input = panel * LANES + lane;
        if input < plan.inputs() { from(input).as_ptr() } else { std::ptr::null() }
    })
}

/// Returns the times per task, in whole runs: a few tasks per thread if channels and panels alone are too few.
fn times_of_task(plan: &Plan, times: usize, spans: usize, threads: usize) -> usize {
    let parts = if threads == 1 { 1 } else { (4 * threads).div_ceil(spans * plan.panels()) };
    times.div_ceil(parts).next_multiple_of(RUN)
}

/// Returns whether lines bypass the caches: only whole, aligned ones of large blocks.
fn is_streamed(packed: &[u8], panel_bytes: usize) -> bool {
    let aligned = packed.as_ptr().addr().is_multiple_of(LINE) && panel_bytes.is_multiple_of(LINE);
    packed.len() > MOST_CACHED && aligned
}

/// Prefetch distance in bytes of each stream.
const AHEAD: usize = 1024;

/// Streams of a panel in one channel.
#[derive(Clone, Copy, Debug)]
pub(super) struct Streams {
    /// Samples of each input; null for padding inputs.
    from: [*const u8; LANES],
    /// Bytes of each stream.
    bytes: usize,
    /// Destination panel.
    to: *mut u8,
    panel_bytes: usize,
    /// Whether a word holds two pairs of times, to be split.
    pairs: bool,
    /// Whether stores bypass the caches.
    streamed: bool,
}

levels!(turn_streams, turn_streams_body, (job: &Streams));

/// Transposes the streams of one panel and channel.
///
/// # Safety
/// The samples of the job are readable. Its panel is writable and not shared; a streamed panel is aligned to a cache
/// line.
#[inline(always)]
unsafe fn turn_streams_body<V: Vector>(job: &Streams) {
    let step = 4 * V::LANES;
    for start in (0..job.bytes).step_by(step) {
        let (bytes, at) = (step.min(job.bytes - start), start / 4 * LINE);
        // SAFETY: the streams hold these bytes, and the panel these lines.
        unsafe {
            let to = job.to.add(at);
            let at = |from: *const u8| from.wrapping_add(start);
            let zeros = ZEROS.as_ptr();
            let mut rows = job.from.map(|from| if from.is_null() { zeros } else { at(from) });
            if bytes == step {
                stream_tile::<V>(job, &rows, to, job.streamed);
            } else {
                let mut copies = [[0u8; LINE]; LANES];
                let mut lines = [0u8; LANES * LINE];
                for (row, copy) in rows.iter_mut().zip(&mut copies) {
                    copy.as_mut_ptr().copy_from_nonoverlapping(*row, bytes);
                    *row = copy.as_ptr();
                }
                stream_tile::<V>(job, &rows, lines.as_mut_ptr(), false);
                let left = job.panel_bytes - start / 4 * LINE;
                to.copy_from_nonoverlapping(lines.as_ptr(), left);
            }
        }
    }
    if job.streamed {
        // SAFETY: the caller guarantees the instructions.
        unsafe { V::fence() }
    }
}

/// Transposes one register of each input.
///
/// # Safety
/// Each row holds a register, and a line per word of it is writable.
#[inline(always)]
unsafe fn stream_tile<V: Vector>(
    job: &Streams,
    rows: &[*const u8; LANES],
    to: *mut u8,
    streamed: bool,
) {
    // SAFETY: the caller upholds this function's contract.
    unsafe {
        let mut tile = [V::load(ZEROS.as_ptr()); LANES];
        for (words, row) in tile.iter_mut().zip(rows) {
            V::prefetch(row.wrapping_add(AHEAD));
            *words = V::load(*row);
        }
        V::transpose(&mut tile);
        for line in 0..V::LANES {
            if job.pairs {
                V::split(&mut tile, line);
            }
            put::<V>(&tile, line, to.add(line * LINE), streamed);
        }
    }
}
