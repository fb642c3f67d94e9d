//! How a plan is laid out for a level: columns, blocks of spectra, the transform's kind and tables.

use std::sync::Arc;

use rustfft::{Fft, FftPlanner};

use super::decode::Column;
use super::fir::Filter;
use super::memory::Floats;
use super::passes::{Passes, root};
use super::rows::Row;
use super::vector::lanes;
use crate::backend::simd::Level;
use crate::channelize::plan::{Form, Plan};
use crate::error::{Error, Result};

/// The most columns of a block of 8 spectra: what second-level caches hold beside the samples.
const MOST_COLUMNS: usize = 1 << 17;

/// The longest transform of spectra side by side, one a lane: its rows fill half a second-level cache.
const MOST_BATCHED: usize = 4096;

/// How the windowed sums become spectra.
#[derive(Clone)]
pub(super) enum Transform {
    /// Not at all.
    None,
    /// `LANES` points over the groups of columns first, then the rest with those outputs as lanes.
    Square { passes: Passes, twiddles: Floats },
    /// `LANES` spectra side by side.
    Batch(Passes),
    /// By rustfft, one at a time.
    Library(Arc<dyn Fft<f32>>),
}

/// Channels of the output that follow bins in a row, up or down.
#[derive(Clone, Copy, Debug)]
pub(super) struct Segment {
    /// First place in the output.
    pub(super) place: usize,
    /// Lowest bin.
    pub(super) bin: usize,
    pub(super) channels: usize,
    /// Whether bins fall.
    pub(super) falls: bool,
}

/// A plan's layout.
pub(super) struct Shape {
    pub(super) plan: Plan,
    pub(super) level: Level,
    pub(super) column: Column,
    /// Columns of a row: points of the complex transform.
    pub(super) columns: usize,
    /// Columns rounded up to cache lines.
    pub(super) padded: usize,
    /// Columns from one spectrum to the next.
    pub(super) hop: usize,
    /// Spectra made together.
    pub(super) block: usize,
    pub(super) filter: Filter,
    pub(super) transform: Transform,
    pub(super) segments: Vec<Segment>,
    /// By how many rows of bins complex spectra are turned in the output, where that is all.
    pub(super) turn: Option<usize>,
    /// Whether streamed stores are best spread over the work on the next spectrum.
    pub(super) spreads: bool,
    /// For pairs: exp(-i pi k / C), real parts, then imaginary ones.
    pub(super) halves: Floats,
}

impl Shape {
    pub(super) fn new(plan: &Plan, level: Level) -> Result<Self> {
        check_memory(plan)?;
        let lanes = lanes(level);
        let column = match plan.input().encoding.is_complex() {
            true => Column::Complex,
            false if plan.hop().is_multiple_of(2) => Column::Pair,
            false => Column::Real,
        };
        let columns = plan.points() / column.samples();
        let padded = columns.next_multiple_of(16);
        let hop = hop_columns(plan, column);
        let transform = transform(plan, columns, lanes);
        let block = match &transform {
            Transform::Batch(_) => lanes,
            _ if columns <= MOST_COLUMNS => 8,
            _ => 2,
        };
        let overlaps = hop != columns;
        let imaginary = if overlaps { linear_columns(plan, hop, block, column) } else { padded };
        Ok(Self {
            filter: filter(plan, column, lanes, imaginary + 16),
            spreads: super::pending::spreads(),
            turn: turn(plan, column, lanes, &transform),
            segments: segments(plan),
            halves: halves(column, columns),
            plan: plan.clone(),
            level,
            column,
            columns,
            padded,
            hop,
            block,
            transform,
        })
    }

    /// Whether windows of successive spectra share parts of rows.
    pub(super) fn overlaps(&self) -> bool {
        self.hop != self.columns
    }

    /// Floats in a register.
    pub(super) fn lanes(&self) -> usize {
        lanes(self.level)
    }

    /// Rows of samples that a block's windows span.
    pub(super) fn ring_rows(&self) -> usize {
        self.plan.taps() + self.block - 1
    }

    /// Floats of a row of the ring: an odd number of cache lines, so that rows spread over all sets.
    pub(super) fn ring_stride(&self) -> usize {
        2 * self.padded + 16
    }

    /// Floats of one stream's samples.
    pub(super) fn sample_floats(&self) -> usize {
        if self.overlaps() {
            2 * self.filter.imaginary + self.padded
        } else if self.filter.row != Row::Split {
            0
        } else {
            self.ring_rows() * self.ring_stride()
        }
    }

    /// Bytes of a row as it came.
    pub(super) fn row_bytes(&self) -> usize {
        self.plan.input().encoding.bytes(self.columns * self.column.samples())
    }

    /// Columns that the linear buffer of overlapping windows holds.
    pub(super) fn linear_columns(&self) -> usize {
        self.filter.imaginary - 16 - self.padded
    }

    /// Floats of one spectrum between the transform's two steps.
    pub(super) fn step_floats(&self) -> usize {
        match &self.transform {
            Transform::Square { passes, .. } => 2 * self.lanes() * passes.room() + 16,
            _ => 0,
        }
    }

    /// Where spectrum `s` of a block is kept: where each is written as soon as it is there, all are kept
    /// in the first place.
    pub(super) fn slot(&self, s: usize) -> usize {
        let single = matches!(self.transform, Transform::Square { .. } | Transform::Library(_));
        if single && self.writes_at_once() { 0 } else { s }
    }

    /// Whether sums of powers come out.
    pub(super) fn is_detected(&self) -> bool {
        matches!(self.plan.options().form, Form::Detected(_))
    }

    /// Whether a spectrum is written without waiting for the other polarization's.
    pub(super) fn writes_at_once(&self) -> bool {
        !self.is_detected() || self.plan.input().polarizations == 1
    }

    /// Sums of one unit: products x channels.
    pub(super) fn sums(&self) -> usize {
        self.plan.output_products() * self.plan.channels()
    }

    /// Floats of one spectrum: real parts, then imaginary ones `padded` floats further.
    pub(super) fn spectrum_floats(&self) -> usize {
        2 * self.padded
    }
}

/// Refuses what no machine holds, before it is allocated.
fn check_memory(plan: &Plan) -> Result<()> {
    let streams = plan.input().streams() as u128;
    let samples = streams * 2 * (plan.span() as u128 + 8);
    let bytes = samples * plan.input().encoding.sample_bits() as u128 / 8
        + plan.row_elements() as u128 * 16;
    if bytes > 1 << 44 {
        let rule =
            format!("{streams} streams of {} samples each take over 2^44 bytes", plan.span());
        return Err(Error::parameter("history", bytes, rule));
    }
    Ok(())
}

/// Columns from the first of a block's windows to twice the length of its last: moves are rare.
fn linear_columns(plan: &Plan, hop: usize, block: usize, column: Column) -> usize {
    let span = plan.span() / column.samples();
    let columns = plan.points() / column.samples();
    2 * (span + block * hop).next_multiple_of(16) + 16 + columns.next_multiple_of(16)
}

fn transform(plan: &Plan, columns: usize, lanes: usize) -> Transform {
    if plan.options().form == Form::Filtered {
        return Transform::None;
    }
    let largest = 16;
    if columns.is_multiple_of(lanes * lanes)
        && let Some(passes) = Passes::new(columns / lanes, largest)
    {
        return Transform::Square { passes, twiddles: twiddles(columns, lanes) };
    }
    if columns <= MOST_BATCHED
        && let Some(passes) = Passes::new(columns, largest)
    {
        return Transform::Batch(passes);
    }
    Transform::Library(FftPlanner::new().plan_fft_forward(columns))
}

/// exp(-2 pi i n2 k1 / N) by group of lanes, k1 and lane n2.
fn twiddles(columns: usize, lanes: usize) -> Floats {
    let mut floats = Floats::new(2 * columns);
    for (index, pair) in floats.values_mut().chunks_exact_mut(2 * lanes).enumerate() {
        let (group, k1) = (index / lanes, index % lanes);
        let (re, im) = pair.split_at_mut(lanes);
        for lane in 0..lanes {
            let factor = root((group * lanes + lane) * k1, columns);
            (re[lane], im[lane]) = (factor.0 as f32, factor.1 as f32);
        }
    }
    floats
}

fn filter(plan: &Plan, column: Column, lanes: usize, imaginary: usize) -> Filter {
    let columns = plan.points() / column.samples();
    let (taps, blocks) = (plan.taps(), columns.div_ceil(lanes));
    let floats = blocks * taps * lanes;
    let scale = plan.input().scale;
    let mut coefficients = Floats::new(floats * column.samples());
    let b = plan.coefficients();
    let parts = coefficients.values_mut().chunks_exact_mut(floats).take(column.samples());
    for (part, values) in parts.enumerate() {
        for (index, value) in values.iter_mut().enumerate() {
            let (block, t, lane) = (index / lanes / taps, index / lanes % taps, index % lanes);
            let c = block * lanes + lane;
            if c < columns {
                let n = (t * columns + c) * column.samples() + part;
                *value = (b[n] * scale) as f32;
            }
        }
    }
    let odd = if column == Column::Pair { floats } else { 0 };
    let whole = columns.is_multiple_of(lanes) && hop_columns(plan, column) == columns;
    let row = if whole && column != Column::Real {
        Row::best(plan.input().encoding, taps)
    } else {
        Row::Split
    };
    Filter { taps, blocks, coefficients, odd, row, imaginary }
}

/// Columns from one spectrum to the next.
fn hop_columns(plan: &Plan, column: Column) -> usize {
    plan.hop() / column.samples()
}

fn segments(plan: &Plan) -> Vec<Segment> {
    if plan.options().form == Form::Filtered {
        return vec![Segment { place: 0, bin: 0, channels: plan.points(), falls: false }];
    }
    let mut segments: Vec<Segment> = Vec::new();
    let mut previous = None;
    for place in 0..plan.channels() {
        let bin = plan.bin(place);
        let step = previous.map(|previous: usize| bin.wrapping_sub(previous));
        previous = Some(bin);
        match (segments.last_mut(), step) {
            (Some(last), Some(1)) if last.channels == 1 || !last.falls => {
                (last.falls, last.channels) = (false, last.channels + 1);
            }
            (Some(last), Some(usize::MAX)) if last.channels == 1 || last.falls => {
                (last.falls, last.channels, last.bin) = (true, last.channels + 1, bin);
            }
            _ => segments.push(Segment { place, bin, channels: 1, falls: false }),
        }
    }
    segments
}

/// How far spectra of whole rows are turned, if they rise and are complex.
fn turn(plan: &Plan, column: Column, lanes: usize, transform: &Transform) -> Option<usize> {
    let plain = plan.options().form == Form::Spectra
        && column == Column::Complex
        && matches!(transform, Transform::Square { .. });
    let first = plan.bin(0);
    let rises =
        (0..plan.channels()).all(|place| plan.bin(place) == (first + place) % plan.channels());
    let turn = (plan.channels() - first) % plan.channels();
    (plain && rises && turn.is_multiple_of(lanes)).then(|| turn / lanes)
}

fn halves(column: Column, columns: usize) -> Floats {
    if column != Column::Pair {
        return Floats::new(0);
    }
    let mut floats = Floats::new(2 * columns);
    let (re, im) = floats.values_mut()[..2 * columns].split_at_mut(columns);
    for k in 0..columns {
        let factor = root(k, 2 * columns);
        (re[k], im[k]) = (factor.0 as f32, factor.1 as f32);
    }
    floats
}
