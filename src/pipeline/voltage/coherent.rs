//! Coherent dedispersion: removes a known dispersion within each channel before detection.
//!
//! Invariant: sample `n` of the filtered streams has the time of sample `n` of the recording, and bits
//! that do not depend on how streams are read or passed over: blocks begin at whole multiples of their
//! length, counted from the first sample.

use std::f64::consts::TAU;
use std::ops::Range;
use std::sync::Arc;

use num_complex::Complex;
use rustfft::{Fft, FftPlanner};

use super::layout::{ChannelizeOptions, offsets_hz, sideband};
use crate::backend::Backend;
use crate::backend::threads::Threads;
use crate::channelize::Plan;
use crate::error::{Error, Result};
use crate::io::voltages::{Flag, VoltageHeader, VoltageSource};
use crate::units::{HZ_PER_MHZ, dispersion_delay_s};
use crate::voltage::{VoltageBlock, VoltageEncoding, Voltages, voltage};

/// Returns the source, or one with two copies of each stream, dedispersed within channels; and the number of copies.
pub(super) fn dedispersed(
    source: Box<dyn VoltageSource>,
    plan: &Plan,
    summed: usize,
    options: &ChannelizeOptions,
    backend: &Backend,
) -> Result<(Box<dyn VoltageSource>, usize)> {
    let Some(dm) = options.coherent_dm else { return Ok((source, 1)) };
    let request = Request {
        dm,
        dm_constant: options.dm_constant,
        offsets_hz: offsets_hz(source.header(), plan, summed),
        points: plan.points(),
    };
    let transfer = Transfer::new(source.header(), &request)?;
    Ok((Box::new(Coherent::new(source, transfer, backend)), 2))
}

/// Recording dedispersed within channels, presented as twice as many antennas: the first half is correct for even
/// output channels, the second for odd ones.
///
/// Overlap-save: each block's circular convolution wraps around at both ends, and the wrapped samples are discarded.
/// Samples before the first and after the last are zeros.
struct Coherent {
    source: Box<dyn VoltageSource>,
    header: VoltageHeader,
    flags: Vec<Flag>,
    transfer: Transfer,
    threads: Threads,
    transforms: Vec<Transform>,
    units: Vec<Unit>,
    block: VoltageBlock<'static>,
    /// Samples read from the source or skipped.
    read: u64,
    /// Length of the source in samples, once its end was reached.
    end: Option<u64>,
    /// First valid output sample of the current block; `None` before the first block.
    first: Option<u64>,
    /// Next sample to return.
    next: u64,
}

impl Coherent {
    fn new(source: Box<dyn VoltageSource>, transfer: Transfer, backend: &Backend) -> Self {
        let recorded = source.header();
        let encoding = match recorded.encoding.is_complex() {
            true => VoltageEncoding::ComplexF32,
            false => VoltageEncoding::RealF32,
        };
        let antennas = 2 * recorded.antennas;
        let header = VoltageHeader { encoding, antennas, ..recorded.clone() };
        let threads = backend.host().threads();
        let each = if encoding.is_complex() { 1 } else { recorded.polarizations };
        let unit = |first: usize| {
            let coarse = first / recorded.polarizations % recorded.coarse_channels();
            Unit::new(coarse, first..first + each, &transfer)
        };
        let units = (0..recorded.streams()).step_by(each).map(unit).collect();
        let block = recorded.block(transfer.kept());
        let flags =
            source.flags().iter().map(|flag| extended(flag, transfer.reach as u64)).collect();
        let transforms = vec![Transform::new(transfer.points); threads.count()];
        Self {
            source,
            header,
            flags,
            transfer,
            threads,
            transforms,
            units,
            block,
            read: 0,
            end: None,
            first: None,
            next: 0,
        }
    }

    /// Returns whether the next sample is in the current block; computes blocks as needed.
    fn advance(&mut self) -> Result<bool> {
        let kept = self.transfer.kept() as u64;
        let ready = |first: Option<u64>, next: u64| first.is_some_and(|first| next < first + kept);
        while !ready(self.first, self.next) {
            if self.end.is_some_and(|end| self.next >= end) {
                return Ok(false);
            }
            match self.first {
                None => self.begin(0)?,
                Some(first) => self.fill(first + kept)?,
            }
        }
        Ok(self.end.is_none_or(|end| self.next < end))
    }

    /// Computes the block whose output begins at `first`, without earlier state; the source must be positioned at the
    /// first sample that the block needs.
    fn begin(&mut self, first: u64) -> Result<()> {
        self.units.iter_mut().for_each(Unit::clear);
        let overlap = self.transfer.overlap;
        let before = if first == 0 { 0 } else { overlap };
        let mut block = self.source.header().block(before + overlap);
        self.pull(&mut block)?;
        self.fill(first)
    }

    /// Computes the block whose output begins at `first`; the windows already hold the overlap.
    fn fill(&mut self, first: u64) -> Result<()> {
        let mut block =
            std::mem::replace(&mut self.block, VoltageBlock::new(self.header.encoding, 0, 0));
        let pulled = self.pull(&mut block);
        self.block = block;
        pulled?;
        let transfer = &self.transfer;
        self.threads.for_each_chunk(&mut self.transforms, &mut self.units, 1, |own, _, units| {
            units.iter_mut().for_each(|unit| unit.run(transfer, own));
        });
        self.first = Some(first);
        Ok(())
    }

    /// Reads a block of samples into the windows.
    fn pull(&mut self, block: &mut VoltageBlock) -> Result<()> {
        let times = if self.end.is_some() { 0 } else { self.source.read(block)? };
        self.read += times as u64;
        if times < block.capacity() {
            block.set_times(times)?;
            self.end = Some(self.read);
        }
        let (voltages, capacity) = (block.voltages(), block.capacity());
        let mut none = vec![(); self.threads.count()];
        self.threads.for_each_chunk(&mut none, &mut self.units, 1, |(), _, units| {
            units.iter_mut().for_each(|unit| unit.push(voltages, capacity));
        });
        Ok(())
    }

    /// Copies samples of the current block to `block`, after the `done` samples that it holds.
    fn copy(&self, block: &mut VoltageBlock, done: usize, samples: std::ops::Range<usize>) {
        let is_complex = self.header.encoding.is_complex();
        let offset = self.header.encoding.bytes(done);
        let half = self.header.streams() / 2;
        for unit in &self.units {
            for copy in 0..2 {
                let streams = unit.streams();
                let rows = block.rows_mut().skip(copy * half + streams.start).take(streams.len());
                unit.write(copy, samples.clone(), is_complex, rows.map(|row| &mut row[offset..]));
            }
        }
    }
}

impl VoltageSource for Coherent {
    fn header(&self) -> &VoltageHeader {
        &self.header
    }

    fn read(&mut self, block: &mut VoltageBlock) -> Result<usize> {
        let mut done = 0;
        while done < block.capacity() && self.advance()? {
            let first = self.first.unwrap_or(0);
            let end = self.end.unwrap_or(u64::MAX).min(first + self.transfer.kept() as u64);
            let times = (end - self.next).min((block.capacity() - done) as u64);
            let from = (self.next - first) as usize;
            self.copy(block, done, from..from + times as usize);
            self.next += times;
            done += times as usize;
        }
        block.set_times(done)?;
        Ok(done)
    }

    fn skip(&mut self, times: u64) -> Result<u64> {
        let before = self.next;
        let most = self.end.or(self.header.times).unwrap_or(u64::MAX);
        self.next = before.saturating_add(times).min(most).max(before);
        let kept = self.transfer.kept() as u64;
        let first = self.next / kept * kept;
        let needed = first.saturating_sub(self.transfer.overlap as u64);
        if self.end.is_none() && first > 0 && needed >= self.read {
            let wanted = needed - self.read;
            let skipped = self.source.skip(wanted)?;
            self.read += skipped;
            if skipped < wanted {
                self.end = Some(self.read);
                self.next = self.read.max(before);
            } else {
                self.begin(first)?;
            }
        }
        // If the length was unknown, the recording may end before the requested sample.
        if !self.advance()? {
            self.next = self.next.min(self.end.unwrap_or(u64::MAX)).max(before);
        }
        Ok(self.next - before)
    }

    fn flags(&self) -> &[Flag] {
        &self.flags
    }

    fn cut(&self) -> Option<&str> {
        self.source.cut()
    }

    fn warnings(&self) -> &[String] {
        self.source.warnings()
    }
}

/// Extends a flag by the reach of the filters.
fn extended(flag: &Flag, reach: u64) -> Flag {
    let start = flag.start.saturating_sub(reach);
    let end = flag.start.saturating_add(flag.times).saturating_add(reach);
    Flag { streams: flag.streams.clone(), start, times: end - start }
}

type Complex32 = Complex<f32>;

/// Forward and inverse transforms with their scratch memory.
#[derive(Clone)]
struct Transform {
    forward: Arc<dyn Fft<f32>>,
    inverse: Arc<dyn Fft<f32>>,
    spectrum: Vec<Complex32>,
    product: Vec<Complex32>,
    scratch: Vec<Complex32>,
}

impl Transform {
    fn new(points: usize) -> Self {
        let mut planner = FftPlanner::new();
        let (forward, inverse) =
            (planner.plan_fft_forward(points), planner.plan_fft_inverse(points));
        let scratch = forward.get_inplace_scratch_len().max(inverse.get_inplace_scratch_len());
        Self {
            forward,
            inverse,
            spectrum: vec![Complex32::ZERO; points],
            product: vec![Complex32::ZERO; points],
            scratch: vec![Complex32::ZERO; scratch],
        }
    }
}

/// One complex stream, or one or two real streams as its real and imaginary parts; the filter of real samples is
/// Hermitian, so the parts stay separate.
#[derive(Debug)]
struct Unit {
    coarse: usize,
    /// Stream indices in the source.
    streams: Range<usize>,
    /// Samples of the current block.
    window: Vec<Complex32>,
    /// Valid output samples of the block, for the even and the odd channels.
    kept: [Vec<Complex32>; 2],
}

impl Unit {
    fn new(coarse: usize, streams: Range<usize>, transfer: &Transfer) -> Self {
        let kept = || vec![Complex32::ZERO; transfer.kept()];
        let window = vec![Complex32::ZERO; transfer.points];
        Self { coarse, streams, window, kept: [kept(), kept()] }
    }

    /// Clears all samples.
    fn clear(&mut self) {
        self.window.fill(Complex32::ZERO);
    }

    /// Shifts the window by `times` samples and appends new ones; missing samples are zeros.
    fn push(&mut self, samples: Voltages<'_>, times: usize) {
        let free = self.window.len() - times;
        self.window.copy_within(times.., 0);
        let window = &mut self.window[free..];
        window.fill(Complex32::ZERO);
        for (index, stream) in self.streams.clone().enumerate() {
            decode(
                samples.row(stream),
                samples.encoding(),
                index == 1,
                &mut window[..samples.times()],
            );
        }
    }

    /// Filters the block.
    fn run(&mut self, transfer: &Transfer, transform: &mut Transform) {
        let Transform { forward, inverse, spectrum, product, scratch } = transform;
        spectrum.copy_from_slice(&self.window);
        forward.process_with_scratch(spectrum, scratch);
        for (copy, kept) in self.kept.iter_mut().enumerate() {
            let pairs = spectrum.iter().zip(transfer.filter(self.coarse, copy));
            product.iter_mut().zip(pairs).for_each(|(y, (x, h))| *y = x * h);
            inverse.process_with_scratch(product, scratch);
            let times = kept.len();
            kept.copy_from_slice(&product[transfer.overlap..][..times]);
        }
    }

    /// Writes output samples of one copy to the rows of its streams.
    fn write<'a>(
        &self,
        copy: usize,
        samples: Range<usize>,
        is_complex: bool,
        rows: impl Iterator<Item = &'a mut [u8]>,
    ) {
        let kept = &self.kept[copy][samples];
        for (index, row) in rows.enumerate() {
            if is_complex {
                row[..8 * kept.len()].copy_from_slice(bytemuck::cast_slice(kept));
                continue;
            }
            for (bytes, z) in row.chunks_exact_mut(4).zip(kept) {
                let value = if index == 0 { z.re } else { z.im };
                bytes.copy_from_slice(&value.to_le_bytes());
            }
        }
    }

    /// Returns the stream indices in the source.
    fn streams(&self) -> Range<usize> {
        self.streams.clone()
    }
}

/// Decodes samples to complex numbers; real samples set one part and leave the other unchanged.
fn decode(row: &[u8], encoding: VoltageEncoding, to_imaginary: bool, values: &mut [Complex32]) {
    if encoding == VoltageEncoding::Complex8 {
        let pairs = row.chunks_exact(2).zip(values);
        pairs.for_each(|(b, z)| *z = Complex32::new(f32::from(b[0] as i8), f32::from(b[1] as i8)));
        return;
    }
    for (index, z) in values.iter_mut().enumerate() {
        let value = voltage(row, encoding, index);
        let value = Complex32::new(value.re as f32, value.im as f32);
        match (encoding.is_complex(), to_imaginary) {
            (true, _) => *z = value,
            (false, false) => z.re = value.re,
            (false, true) => z.im = value.re,
        }
    }
}

/// Largest transform length.
const MAX_POINTS: usize = 1 << 26;

/// Smallest transform length; below it, distributing blocks to threads takes longer than transforming them.
const MIN_POINTS: usize = 1 << 12;

/// Limit in bytes on all filters.
const MAX_BYTES: usize = 2 << 30;

/// Blocks and overlaps are multiples of this, so that sources skip whole bytes.
const STEP: usize = 4;

/// Parameters of the filters.
#[derive(Clone, Debug)]
struct Request {
    /// Dispersion measure.
    dm: f64,
    /// Dispersion constant.
    dm_constant: f64,
    /// Frequency in Hz of each output channel in a recorded channel's voltages, relative to its middle.
    offsets_hz: Vec<f64>,
    /// Transform points of the filter bank that follows.
    points: usize,
}

/// Filters for two copies of each stream: one serves the even output channels, one the odd. In each copy a channel's
/// filter extends to the centres of the adjacent channels, so that channels may overlap as in a filter bank.
#[derive(Clone, Debug)]
struct Transfer {
    /// Transform length in samples.
    points: usize,
    /// Samples discarded at each end of a block.
    overlap: usize,
    /// Longest delay that a filter removes, in samples.
    reach: usize,
    /// One filter per recorded channel and copy, over the transform's bins.
    filters: Vec<[Vec<Complex<f32>>; 2]>,
}

impl Transfer {
    /// Computes filters as short as the delay within a channel allows.
    ///
    /// # Errors
    /// [`Error::Parameter`] for a dispersion measure that is negative or not finite, or whose filters are too long,
    /// or longer than the recording.
    fn new(header: &VoltageHeader, request: &Request) -> Result<Self> {
        if !(request.dm.is_finite() && request.dm >= 0.0) {
            let rule = "it must be 0 or more";
            return Err(Error::parameter("coherent_dm", request.dm, rule));
        }
        let width = header.channel_width_hz() / request.offsets_hz.len() as f64;
        let delay = delay_s(header, request, width) / header.tsamp_s;
        // Responses outside the channel decay within one window of the filter bank.
        let overlap = (delay + request.points as f64).ceil();
        let channels = header.coarse_channels();
        let most = MAX_POINTS.min(MAX_BYTES / (16 * channels));
        if 8.0 * overlap > most as f64 {
            let rule = format!(
                "in channels of {:.6} MHz it takes filters of {overlap:.0} samples, and at most {} are \
                 possible; more channels make them shorter",
                width / HZ_PER_MHZ,
                most / 8,
            );
            return Err(Error::parameter("coherent_dm", request.dm, rule));
        }
        if let Some(times) = header.times.filter(|times| delay >= *times as f64) {
            let rule = format!(
                "in channels of {:.6} MHz it delays by {delay:.0} samples, and there are {times} of each \
                 stream",
                width / HZ_PER_MHZ,
            );
            return Err(Error::parameter("coherent_dm", request.dm, rule));
        }
        let overlap = (overlap as usize).next_multiple_of(STEP);
        let points = (8 * overlap).next_power_of_two().max(MIN_POINTS);
        let filters = header
            .centres_hz
            .iter()
            .map(|centre| [0, 1].map(|copy| filter(header, request, *centre, copy, points)));
        let filters = filters.collect();
        Ok(Self { points, overlap, reach: delay.ceil() as usize, filters })
    }

    /// Returns the valid output samples of a block.
    fn kept(&self) -> usize {
        self.points - 2 * self.overlap
    }

    /// Returns the filter for a copy of a recorded channel.
    fn filter(&self, coarse: usize, copy: usize) -> &[Complex<f32>] {
        &self.filters[coarse][copy]
    }
}

/// Returns the longest delay in seconds across one channel width, at the lowest frequency.
fn delay_s(header: &VoltageHeader, request: &Request, width: f64) -> f64 {
    let lowest = header.centres_hz.iter().copied().fold(f64::MAX, f64::min);
    let edge = lowest - 0.5 * header.channel_width_hz();
    if edge <= 0.0 {
        return f64::INFINITY;
    }
    dispersion_delay_s(request.dm, edge, edge + width, request.dm_constant)
}

/// Computes one filter: each bin's phase relative to the centre of the nearest even (or odd) channel.
fn filter(
    header: &VoltageHeader,
    request: &Request,
    centre_hz: f64,
    copy: usize,
    points: usize,
) -> Vec<Complex<f32>> {
    let rate = 1.0 / header.tsamp_s;
    let offsets = &request.offsets_hz;
    let first = offsets[copy.min(offsets.len() - 1)];
    let spacing = 2.0 * header.channel_width_hz() / offsets.len() as f64;
    let sign = sideband(header);
    let complex = header.encoding.is_complex();
    let edge = if complex { 0.0 } else { 0.5 * header.channel_width_hz() };
    let bin = |bin: usize| {
        let signed = if bin < points.div_ceil(2) { bin as f64 } else { bin as f64 - points as f64 };
        let frequency = signed * rate / points as f64;
        // Real samples have each frequency twice, the negative one conjugated.
        let offset = if complex { frequency } else { frequency.abs() - edge };
        let middle = first + ((offset - first) / spacing).round() * spacing;
        let turns = turns(request, centre_hz + sign * offset, centre_hz + sign * middle);
        let mirrored = !complex && frequency < 0.0;
        let phase = -TAU * sign * turns.fract() * if mirrored { -1.0 } else { 1.0 };
        let value = Complex::from_polar(1.0 / points as f64, phase);
        Complex::new(value.re as f32, value.im as f32)
    };
    let mut filter: Vec<Complex<f32>> = (0..points).map(bin).collect();
    if !complex {
        // The Nyquist bin is real.
        filter[points / 2].im = 0.0;
    }
    filter
}

/// Returns the dispersive phase in turns at a sky frequency, relative to a channel centre.
///
/// `K DM (f - f_0)^2 / (f f_0^2)`: its slope is the delay of `f` relative to `f_0`.
///
/// # Source
/// Hankins & Rickett 1975, Methods in Computational Physics 14, 55.
fn turns(request: &Request, frequency_hz: f64, middle_hz: f64) -> f64 {
    // K is in s MHz^2; phase in turns is seconds times Hz.
    let constant = request.dm_constant * request.dm * HZ_PER_MHZ * HZ_PER_MHZ;
    let distance = frequency_hz - middle_hz;
    constant * distance * distance / (frequency_hz * middle_hz * middle_hz)
}
