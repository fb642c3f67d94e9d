//! Layout of a plan for a SIMD level: columns, blocks of spectra, type and tables of the transform.

use std::sync::Arc;

use rustfft::{Fft, FftPlanner};

use super::fir::{Filter, Row};
use super::passes::{Passes, root};
use crate::backend::simd::Level;
use crate::backend::vector::{Floats, lanes};
use crate::channelize::plan::{Form, Plan};
use crate::error::{Error, Result};

/// Maximum number of columns for blocks of 8 spectra, so that the L2 cache also holds the samples.
const MAX_COLUMNS: usize = 1 << 17;

/// Maximum length of transforms with one spectrum per lane: their rows fill half of an L2 cache.
const MAX_BATCHED: usize = 4096;

/// Transform of the windowed sums.
#[derive(Clone)]
pub(super) enum Transform {
    /// No transform.
    None,
    /// Two steps: transforms of `LANES` points over columns `columns / LANES` apart, then transforms of
    /// `columns / LANES` points, one per lane.
    Square { passes: Passes, twiddles: Floats },
    /// `LANES` spectra side by side, one per lane.
    Batch(Passes),
    /// Transform by rustfft, one spectrum at a time.
    Library(Arc<dyn Fft<f32>>),
}

/// Consecutive output channels that correspond to consecutive bins, ascending or descending.
#[derive(Clone, Copy, Debug)]
pub(super) struct Segment {
    /// First index in the output.
    pub(super) place: usize,
    /// Lowest bin.
    pub(super) bin: usize,
    pub(super) channels: usize,
    /// Whether bins descend.
    pub(super) descending: bool,
}

/// Contents of a column of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Column {
    /// One complex sample.
    Complex,
    /// Two successive real samples, as real and imaginary part.
    Pair,
    /// One real sample; the imaginary part is 0.
    Real,
}

impl Column {
    /// Returns the samples per column.
    pub(super) fn samples(self) -> usize {
        if self == Self::Pair { 2 } else { 1 }
    }
}

/// Layout of a plan.
pub(super) struct Shape {
    pub(super) plan: Plan,
    pub(super) level: Level,
    pub(super) column: Column,
    /// Columns per row: length of the complex transform.
    pub(super) columns: usize,
    /// Columns rounded up to whole cache lines.
    pub(super) padded: usize,
    /// Columns from one spectrum to the next.
    pub(super) hop: usize,
    /// Spectra per block.
    pub(super) block: usize,
    pub(super) filter: Filter,
    pub(super) transform: Transform,
    pub(super) segments: Vec<Segment>,
    /// Rotation of complex spectra in the output, in registers of bins; `None` if the order is not a pure rotation.
    pub(super) rotation: Option<usize>,
    /// Whether non-temporal stores should be spread over the computation of the next spectrum.
    pub(super) spreads: bool,
    /// For [`Column::Pair`]: exp(-i pi k / columns), real parts, then imaginary parts.
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
            _ if columns <= MAX_COLUMNS => 8,
            _ => 2,
        };
        let overlaps = hop != columns;
        let imaginary = if overlaps { linear_columns(plan, hop, block, column) } else { padded };
        Ok(Self {
            filter: filter(plan, column, lanes, imaginary + 16),
            spreads: super::passes::spreads(),
            rotation: rotation(plan, column, lanes, &transform),
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

    /// Returns whether the filter bank is oversampled: successive windows are less than a row apart.
    pub(super) fn overlaps(&self) -> bool {
        self.hop != self.columns
    }

    /// Returns the floats per register.
    pub(super) fn lanes(&self) -> usize {
        lanes(self.level)
    }

    /// Returns the rows of samples that a block's windows span.
    pub(super) fn ring_rows(&self) -> usize {
        self.plan.taps() + self.block - 1
    }

    /// Returns the floats per row of the ring buffer: an odd number of cache lines, so that rows use all cache sets.
    pub(super) fn ring_stride(&self) -> usize {
        2 * self.padded + 16
    }

    /// Returns the floats of one stream's sample buffer.
    pub(super) fn sample_floats(&self) -> usize {
        if self.overlaps() {
            2 * self.filter.imaginary + self.padded
        } else if self.filter.row != Row::Split {
            0
        } else {
            self.ring_rows() * self.ring_stride()
        }
    }

    /// Returns the bytes per row of encoded samples.
    pub(super) fn row_bytes(&self) -> usize {
        self.plan.input().encoding.bytes(self.columns * self.column.samples())
    }

    /// Returns the capacity in columns of the linear buffer, which oversampled filter banks use.
    pub(super) fn linear_columns(&self) -> usize {
        self.filter.imaginary - 16 - self.padded
    }

    /// Returns the floats of one spectrum between the transform's two steps.
    pub(super) fn step_floats(&self) -> usize {
        match &self.transform {
            Transform::Square { passes, .. } => 2 * self.lanes() * passes.room() + 16,
            _ => 0,
        }
    }

    /// Returns the storage slot of spectrum `s` of a block. If each spectrum is written immediately, all share slot
    /// 0.
    pub(super) fn slot(&self, s: usize) -> usize {
        let single = matches!(self.transform, Transform::Square { .. } | Transform::Library(_));
        if single && self.writes_at_once() { 0 } else { s }
    }

    /// Returns whether the output is detected.
    pub(super) fn is_detected(&self) -> bool {
        matches!(self.plan.options().form, Form::Detected(_))
    }

    /// Returns whether a spectrum can be written without waiting for the other polarization.
    pub(super) fn writes_at_once(&self) -> bool {
        !self.is_detected() || self.plan.input().polarizations == 1
    }

    /// Returns the sums per unit: products x channels.
    pub(super) fn sums(&self) -> usize {
        self.plan.output_products() * self.plan.channels()
    }

    /// Returns the floats per spectrum: real parts, then imaginary parts `padded` floats further.
    pub(super) fn spectrum_floats(&self) -> usize {
        2 * self.padded
    }
}

/// Rejects plans that exceed any machine's memory before allocating.
fn check_memory(plan: &Plan) -> Result<()> {
    let streams = plan.input().streams() as u128;
    let samples = streams * 2 * (plan.span() as u128 + 8);
    let bytes = samples * plan.input().encoding.sample_bits() as u128 / 8
        + plan.row_elements() as u128 * 16;
    if bytes > 1 << 44 {
        let rule =
            format!("{streams} streams of {} samples each take over 2^44 bytes", plan.span());
        return Err(Error::parameter("history", bytes.to_string(), rule));
    }
    Ok(())
}

/// Returns the offset from real to imaginary parts of the linear buffer: twice the columns that a block's windows
/// span, so that moves to the buffer's start are rare, and padding.
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
    if columns <= MAX_BATCHED
        && let Some(passes) = Passes::new(columns, largest)
    {
        return Transform::Batch(passes);
    }
    Transform::Library(FftPlanner::new().plan_fft_forward(columns))
}

/// Returns exp(-2 pi i n2 k1 / N); axes: group of lanes, k1, lane n2.
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

/// Returns the columns from one spectrum to the next.
fn hop_columns(plan: &Plan, column: Column) -> usize {
    plan.hop() / column.samples()
}

fn segments(plan: &Plan) -> Vec<Segment> {
    if plan.options().form == Form::Filtered {
        return vec![Segment { place: 0, bin: 0, channels: plan.points(), descending: false }];
    }
    let mut segments: Vec<Segment> = Vec::new();
    let mut previous = None;
    for place in 0..plan.channels() {
        let bin = plan.bin(place);
        let step = previous.map(|previous: usize| bin.wrapping_sub(previous));
        previous = Some(bin);
        match (segments.last_mut(), step) {
            (Some(last), Some(1)) if last.channels == 1 || !last.descending => {
                (last.descending, last.channels) = (false, last.channels + 1);
            }
            (Some(last), Some(usize::MAX)) if last.channels == 1 || last.descending => {
                (last.descending, last.channels, last.bin) = (true, last.channels + 1, bin);
            }
            _ => segments.push(Segment { place, bin, channels: 1, descending: false }),
        }
    }
    segments
}

/// Returns the rotation of spectra in the output, in registers, if the output is complex and in ascending cyclic
/// order.
fn rotation(plan: &Plan, column: Column, lanes: usize, transform: &Transform) -> Option<usize> {
    let plain = plan.options().form == Form::Spectra
        && column == Column::Complex
        && matches!(transform, Transform::Square { .. });
    let first = plan.bin(0);
    let ascending =
        (0..plan.channels()).all(|place| plan.bin(place) == (first + place) % plan.channels());
    let rotation = (plan.channels() - first) % plan.channels();
    (plain && ascending && rotation.is_multiple_of(lanes)).then(|| rotation / lanes)
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
