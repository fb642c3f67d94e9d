//! Channelized voltages: filter-bank spectra requantized to integers and read as a recording of more channels.
//!
//! Invariant: gains depend on the first spectra alone, never on how the voltages are read.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use num_complex::Complex;

use super::bank::{FilterBank, Plans};
use super::coherent::Entering;
use super::filled::{extended, rows_of};
use super::filterbank::{all_flagged, too_short};
use super::layout::{ChannelizeOptions, Geometry, Layout};
use super::source::{cut, finite, part};
use super::spectra::{Spectra, Watch, fitting_gulp, restart_rows};
use crate::backend::Backend;
use crate::backend::threads::Threads;
use crate::channelize::{Form, Plan};
use crate::coherent;
use crate::error::{Error, Result};
use crate::io::voltages::{FilterGeometry, Flag, VoltageHeader, VoltageSource};
use crate::voltage::{VoltageBlock, VoltageEncoding};

/// Bytes of spectra computed on the host before they are transposed into streams: they stay in its caches.
const HOST_BYTES: usize = 1 << 20;

/// Bytes of spectra computed on each GPU before they are transposed: enough to copy and compute at the same time.
const DEVICE_BYTES: usize = 32 << 20;

/// Edge of the square tile of the transposition, in streams and in spectra: a tile's line is one cache line or less.
const TILE: usize = 32;

/// Requantization of spectra to integers.
#[derive(Clone, Debug, PartialEq)]
pub struct Requantization {
    /// Bits of each real component: 8 or 4.
    pub bits: usize,
    /// Gain of each channel.
    pub gains: Gains,
}

/// Gains of channels; antennas and polarizations share them.
#[derive(Clone, Debug, PartialEq)]
pub enum Gains {
    /// Scales the real and imaginary parts to a standard deviation of 20 counts for 8 bits, 2.8 for 4. The power of
    /// up to 1024 spectra sets the gains; spectra at the start of a recording that are flagged in all streams are
    /// skipped, those of a live source are left out of the 1024. Channels flagged in all of those spectra get the median gain of the others. 20 counts leave a range of 6 standard
    /// deviations, and rounding adds 1/4800 of the variance. Near 2.8 counts, rounding and saturation together add
    /// least to Gaussian noise, 1.2 % of the variance.
    ///
    /// # Source
    /// Max 1960, IRE Transactions on Information Theory 6, 7 (quantizing for least distortion).
    Automatic,
    /// One per output channel, in output order, or one for all.
    Given(Vec<f32>),
}

/// Channelized voltages of 8 or 4 bits, computed as they are read.
///
/// | buffer | axes                                        | type               | access      |
/// |--------|---------------------------------------------|--------------------|-------------|
/// | block  | antenna, channel, polarization, time        | complex 8 or 4 bit | overwritten |
///
/// Channels ascend in the voltages' frequency. Their sky frequencies also ascend, or descend in a lower sideband. A
/// spectrum whose window contains flagged samples is zero and flagged, in both polarizations; the flags of a live
/// source's spectra come with their blocks.
pub struct ChannelizedVoltages {
    header: VoltageHeader,
    geometry: Geometry,
    gains: Vec<f32>,
    spectra: Spectra<u8>,
    streams: Streams,
    flags: Flags,
    /// Computes the flags of a live source's spectra from those of its samples.
    arriving: Option<Arriving>,
    not_finite: Arc<AtomicU64>,
    threads: Threads,
    /// Bytes of spectra computed before they are transposed.
    step_bytes: usize,
    rows: Vec<u8>,
    /// Number of the next spectrum; spectra from here to the filter bank's next one are flagged in all streams.
    row: u64,
    /// Spectrum at which reading ends, even if there are more.
    end: u64,
    warnings: Vec<String>,
}

impl std::fmt::Debug for ChannelizedVoltages {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ChannelizedVoltages").field("header", &self.header).finish_non_exhaustive()
    }
}

impl ChannelizedVoltages {
    /// Binds a recording to its filter bank; automatic gains read its beginning. The detection options (`products`,
    /// `ascending`) have no effect. A GPU and its peers divide the spectra.
    ///
    /// # Errors
    /// [`Error::Parameter`] naming an option that does not fit the recording, or has no meaning for voltages (sums
    /// over spectra or channels); [`Error::Shape`] when the number of gains differs from the output channels; errors
    /// of the source.
    pub fn new(
        source: Box<dyn VoltageSource>,
        options: &ChannelizeOptions,
        requantization: &Requantization,
        backend: &Backend,
    ) -> Result<Self> {
        check(options)?;
        let all = source.header().times;
        let (source, not_finite) = finite(part(source, options)?);
        let recorded = source.header().clone();
        let mut warnings = source.warnings().to_vec();
        let layout = Layout::new(&recorded, !recorded.lower_sideband)?;
        let bits = requantization.bits;
        let one = Form::Requantized { bits, gains: vec![1.0] };
        let plan = Plan::new(layout.options(&recorded, options, one))?;
        let header = header(&recorded, &plan, layout.centres_hz(&recorded, &plan, 1)?, bits);
        if header.times == Some(0) {
            return Err(too_short(&recorded, all, &plan));
        }
        let geometry =
            Geometry { coherent_dm: options.coherent_dm, ..Geometry::new(&recorded, &plan, None) };
        let mut source = source;
        let entering = Entering::new(source.as_ref(), &plan, 1, options)?;
        let copies = entering.copies();
        let flags = Flags::new(&entering.flags, &plan, &layout, header.times);
        let mut arriving = source.is_live().then(|| Arriving {
            layout: layout.clone(),
            reach: entering.reach,
            found: Vec::new(),
        });
        let lead = flags.lead(header.streams());
        if header.times.is_some_and(|times| lead >= times) {
            return Err(all_flagged(&recorded, options));
        }
        let streams = Streams::new(&recorded, &plan, &layout, copies);
        let (gains, first) = match &requantization.gains {
            Gains::Given(gains) => (given(gains, &header)?, None),
            Gains::Automatic => {
                let plan = Plan::new(layout.options(&entering.header, options, Form::Spectra))?;
                let coherent = entering.coherent.clone();
                let measured = Measured::new(source.as_mut(), lead, plan, coherent, backend)?;
                let arrived = arriving.as_mut().map(|arriving| {
                    arriving.found.extend_from_slice(measured.block.flags());
                    arriving.flags(measured.bank.channelizer().plan())
                });
                let flags = arrived.as_ref().unwrap_or(&flags);
                let (gains, first) = measured.gains(&streams, flags, bits)?;
                (gains, Some(first))
            }
        };
        let form = Form::Requantized { bits, gains: streams.in_bank_order(&gains) };
        let plan = Plan::new(layout.options(&entering.header, options, form))?;
        let coherent = entering.coherent;
        let gulp = fitting_gulp(&recorded, &plan, coherent.as_ref(), options)?;
        let plans = Plans { bank: plan, coherent, joining: None };
        let spectra = Spectra::new(source, first, plans, gulp, backend)?;
        warnings.extend(spectra.bank().warning().map(str::to_owned));
        let step_bytes = match backend.is_gpu() {
            true => DEVICE_BYTES * backend.shares().len(),
            false => HOST_BYTES,
        };
        let step_bytes = step_bytes.max(spectra.least_rows() * spectra.elements());
        Ok(Self {
            header,
            geometry,
            gains,
            spectra,
            streams,
            flags,
            arriving,
            not_finite,
            threads: backend.host().threads(),
            step_bytes,
            rows: Vec::new(),
            row: 0,
            end: u64::MAX,
            warnings,
        })
    }

    /// Returns the samples read so far that were not finite, in a recording of floats; zeros replaced them.
    pub fn not_finite(&self) -> u64 {
        self.not_finite.load(Ordering::Relaxed)
    }

    /// Returns the filter bank's parameters.
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// Returns the gain of each channel, in output order.
    pub fn gains(&self) -> &[f32] {
        &self.gains
    }

    /// Returns the complex samples of each stream that saturated so far.
    pub fn saturated(&self) -> Vec<u64> {
        let all = self.spectra.saturated();
        self.streams.elements.iter().map(|element| all[*element]).collect()
    }

    /// Returns the number of the next spectrum.
    pub fn row(&self) -> u64 {
        self.row
    }

    /// Ends the spectra before number `end`, as if the data ended there, until another end is set.
    pub fn end_at(&mut self, end: u64) {
        self.end = end;
    }

    /// Returns the header of the spectra from number `first` on.
    pub(super) fn header_from(&self, first: u64) -> VoltageHeader {
        let header = self.header.clone();
        let start = match header.start.day {
            0 => header.start,
            _ => header.start.plus_s(first as f64 * header.tsamp_s),
        };
        let times = header.times.map(|times| times.saturating_sub(first));
        let sweep = header.sweep.map(|sweep| sweep.after(first as f64 * header.tsamp_s));
        VoltageHeader { start, times, sweep, ..header }
    }

    /// Returns the known flags of the spectra from number `first` on, counted from there.
    pub(super) fn flags_from(&self, first: u64) -> Vec<Flag> {
        let streams = 0..self.header.streams();
        let flags = VoltageSource::flags(self).iter();
        flags.filter_map(|flag| cut(flag, &streams, &(first..u64::MAX))).collect()
    }

    /// Returns the bytes of spectra that are computed at once.
    pub(super) fn step_bytes(&self) -> usize {
        self.step_bytes
    }

    /// Sets a callback that runs before each block of voltages; returning false ends the spectra with
    /// [`Error::stopped`].
    pub fn watched_by(&mut self, watch: Watch) {
        self.spectra.watched_by(watch);
    }

    /// Fills a block with the next spectra and returns their number. It is below the capacity only at the end of the
    /// data or before an error, which the next call returns.
    ///
    /// # Errors
    /// [`Error::Shape`]; errors of the source and the filter bank; [`Error::stopped`].
    pub fn read_block(&mut self, block: &mut VoltageBlock) -> Result<usize> {
        let times = self.fill(block)?;
        if times == 0 {
            self.check_fault()?
        }
        Ok(times)
    }

    /// Returns the error that ended the spectra, once.
    fn check_fault(&mut self) -> Result<()> {
        self.spectra.take_fault().map_or(Ok(()), Err)
    }

    fn fill(&mut self, block: &mut VoltageBlock) -> Result<usize> {
        let row = self.spectra.elements();
        let most = (self.step_bytes / row).max(TILE);
        let first = self.row;
        let lead = self.spectra.row() - first;
        let asked = (block.capacity() as u64).min(self.end.saturating_sub(first)) as usize;
        let mut done = lead.min(asked as u64) as usize;
        while done < asked {
            let wanted = most.min(asked - done);
            self.rows.resize(most * row, 0);
            let times = self.spectra.read(&mut self.rows[..wanted * row])?;
            self.sort(times, block, done);
            done += times;
            if times < wanted {
                break;
            }
        }
        block.set_times(done)?;
        if let Some(arriving) = &mut self.arriving {
            self.spectra.take_flags(&mut arriving.found);
            if !arriving.found.is_empty() {
                let all = self.flags.all.drain(..);
                let kept = all.filter(|flag| flag.start.saturating_add(flag.times) > first);
                let kept = kept.chain(arriving.flags(self.spectra.plan()).all).collect();
                self.flags = Flags::sorted(kept);
            }
            self.flags.list(first, done, block.flags_mut());
        }
        self.flags.blank(first, done, block);
        self.row += done as u64;
        Ok(done)
    }

    /// Transposes spectra into streams, after the `done` samples that the block holds.
    fn sort(&self, times: usize, block: &mut VoltageBlock, done: usize) {
        let (bytes, elements) = (self.header.encoding.bytes(1), &self.streams.elements);
        let row = self.spectra.elements();
        let spectra = &self.rows[..times * row];
        let stride = block.stride();
        let (memory, own) = block.memory_mut();
        let start = own.start + done * bytes;
        self.threads.for_each(memory, (TILE * stride).max(1), |index, rows| {
            let elements = &elements[index * TILE..];
            let rows = rows.chunks_exact_mut(stride).map(|row| &mut row[start..]);
            match bytes {
                1 => transpose::<1>(spectra, row, elements, rows),
                _ => transpose::<2>(spectra, row / 2, elements, rows),
            }
        });
    }
}

/// Transposes spectra of `row` samples into at most [`TILE`] streams; `elements` has the position of each in a spectrum.
fn transpose<'a, const BYTES: usize>(
    spectra: &[u8],
    row: usize,
    elements: &[usize],
    mut streams: impl Iterator<Item = &'a mut [u8]>,
) {
    let (spectra, _) = spectra.as_chunks::<BYTES>();
    let mut streams: [&mut [u8]; TILE] =
        std::array::from_fn(|_| streams.next().unwrap_or_default());
    let mut square = [[[0; BYTES]; TILE]; TILE];
    for (tile, spectra) in spectra.chunks(TILE * row).enumerate() {
        for (time, spectrum) in spectra.chunks_exact(row).enumerate() {
            for (line, element) in square.iter_mut().zip(elements) {
                line[time] = spectrum[*element];
            }
        }
        let count = spectra.len() / row;
        for ((line, _), stream) in square.iter().zip(elements).zip(&mut streams) {
            let (samples, _) = stream[tile * TILE * BYTES..].as_chunks_mut::<BYTES>();
            // A copy of known length is a few instructions.
            match samples.first_chunk_mut::<TILE>() {
                Some(samples) if count == TILE => *samples = *line,
                _ => samples[..count].copy_from_slice(&line[..count]),
            }
        }
    }
}

impl VoltageSource for ChannelizedVoltages {
    fn header(&self) -> &VoltageHeader {
        &self.header
    }

    fn read(&mut self, block: &mut VoltageBlock) -> Result<usize> {
        let times = self.fill(block)?;
        self.check_fault()?;
        Ok(times)
    }

    fn skip(&mut self, times: u64) -> Result<u64> {
        let times = times.min(self.end.saturating_sub(self.row));
        let lead = times.min(self.spectra.row() - self.row);
        let skipped = lead + self.spectra.skip(times - lead)?;
        self.row += skipped;
        self.check_fault()?;
        Ok(skipped)
    }

    fn flags(&self) -> &[Flag] {
        if self.is_live() { &[] } else { &self.flags.all }
    }

    fn is_live(&self) -> bool {
        self.arriving.is_some()
    }

    fn cut(&self) -> Option<&str> {
        self.spectra.cut()
    }

    fn warnings(&self) -> &[String] {
        &self.warnings
    }
}

fn check(options: &ChannelizeOptions) -> Result<()> {
    let rule = "voltages are not detected, so there is nothing to sum or to interpolate";
    if options.integrate != 1 {
        return Err(Error::parameter("integrate", options.integrate, rule));
    }
    if options.average_channels != 1 {
        return Err(Error::parameter("average_channels", options.average_channels, rule));
    }
    if options.interpolate_dc {
        return Err(Error::parameter("interpolate_dc", "set", rule));
    }
    Ok(())
}

fn given(gains: &[f32], header: &VoltageHeader) -> Result<Vec<f32>> {
    let channels = header.coarse_channels();
    if let [one] = gains {
        return Ok(vec![*one; channels]);
    }
    crate::view::check_length("gains (one a channel)", channels, gains.len())?;
    Ok(gains.to_vec())
}

fn header(
    recorded: &VoltageHeader,
    plan: &Plan,
    centres_hz: Vec<f64>,
    bits: usize,
) -> VoltageHeader {
    let delay_s = plan.delay_samples() * recorded.tsamp_s;
    let start = recorded.start.plus_s(delay_s);
    let options = plan.options();
    VoltageHeader {
        format: "channelized voltages",
        start: if recorded.start.day == 0 { recorded.start } else { start },
        tsamp_s: plan.hop() as f64 * recorded.tsamp_s,
        centres_hz,
        encoding: if bits == 4 { VoltageEncoding::Complex4 } else { VoltageEncoding::Complex8 },
        scale: 1.0,
        recorded_bits: bits,
        times: recorded.times.map(|times| plan.rows(times)),
        sweep: recorded.sweep.map(|sweep| sweep.after(delay_s)),
        filter: Some(FilterGeometry {
            channels: plan.channels(),
            taps: plan.taps(),
            window: options.window.name(),
            oversampling: options.oversampling,
        }),
        ..recorded.clone()
    }
}

/// Missing samples of a live source, until their spectra are flagged.
struct Arriving {
    layout: Layout,
    /// Samples before and after a missing one that it affects in the filter bank's input.
    reach: u64,
    found: Vec<Flag>,
}

impl Arriving {
    /// Takes the missing samples found, and returns the flags of their spectra.
    fn flags(&mut self, plan: &Plan) -> Flags {
        let samples: Vec<Flag> =
            self.found.drain(..).map(|flag| extended(&flag, self.reach)).collect();
        Flags::new(&samples, plan, &self.layout, None)
    }
}

/// Flags by ascending start.
#[derive(Clone, Debug)]
struct Flags {
    all: Vec<Flag>,
    /// Running maximum of the flags' ends.
    ends: Vec<u64>,
}

impl Flags {
    /// Flags whole recorded channels, in both polarizations, wherever a window contains a flagged sample.
    fn new(flags: &[Flag], plan: &Plan, layout: &Layout, rows: Option<u64>) -> Self {
        let mut all: Vec<Flag> = Vec::new();
        for flag in flags {
            let times = rows_of(flag, plan);
            let times = times.start..times.end.min(rows.unwrap_or(u64::MAX));
            if times.start < times.end {
                let new =
                    |streams| Flag { streams, start: times.start, times: times.end - times.start };
                all.extend(streams(&flag.streams, plan, layout).into_iter().map(new));
            }
        }
        Self::sorted(all)
    }

    /// Sorts flags, and joins those of the same streams that overlap or touch.
    fn sorted(mut all: Vec<Flag>) -> Self {
        all.sort_by_key(|flag| (flag.streams.start, flag.streams.end, flag.start));
        all.dedup_by(|next, flag| {
            let end = flag.start + flag.times;
            let joins = next.streams == flag.streams && next.start <= end;
            if joins {
                flag.times = end.max(next.start + next.times) - flag.start;
            }
            joins
        });
        all.sort_by_key(|flag| flag.start);
        let latest = all.iter().scan(0, |latest, flag| {
            *latest = flag.start.saturating_add(flag.times).max(*latest);
            Some(*latest)
        });
        Self { ends: latest.collect(), all }
    }

    /// Returns the number of initial times at which all `streams` streams are flagged.
    fn lead(&self, streams: usize) -> u64 {
        let mut leads = vec![0; streams];
        for flag in &self.all {
            for lead in leads[flag.streams.clone()].iter_mut().filter(|lead| flag.start <= **lead) {
                *lead = flag.start.saturating_add(flag.times).max(*lead);
            }
        }
        leads.into_iter().min().unwrap_or(0)
    }

    /// Returns the flags that overlap `times`.
    fn touching(&self, times: &Range<u64>) -> impl Iterator<Item = &Flag> {
        let first = self.ends.partition_point(|end| *end <= times.start);
        let last = self.all.partition_point(|flag| flag.start < times.end);
        self.all[first.min(last)..last].iter().filter({
            let start = times.start;
            move |flag| flag.start.saturating_add(flag.times) > start
        })
    }

    /// Lists the flags within `times` times from time `first` on, counted from there.
    fn list(&self, first: u64, times: usize, listed: &mut Vec<Flag>) {
        let within = first..first + times as u64;
        listed.clear();
        let touching = self.touching(&within);
        listed.extend(touching.filter_map(|flag| cut(flag, &(0..usize::MAX), &within)));
    }

    /// Fills flagged samples of a block that begins at time `first` with zeros.
    fn blank(&self, first: u64, times: usize, block: &mut VoltageBlock) {
        let encoding = block.encoding();
        let zero = encoding.zero_byte();
        let end = first + times as u64;
        for flag in self.touching(&(first..end)) {
            let from = flag.start.max(first) - first;
            let to = flag.start.saturating_add(flag.times).min(end) - first;
            for stream in flag.streams.clone() {
                let bytes = encoding.bytes(from as usize)..encoding.bytes(to as usize);
                block.row_mut(stream)[bytes].fill(zero);
            }
        }
    }
}

/// Returns the output streams of all recorded channels that the given recorded streams belong to.
fn streams(recorded: &Range<usize>, plan: &Plan, layout: &Layout) -> Vec<Range<usize>> {
    let polarizations = plan.input().polarizations;
    let each = plan.channels() * polarizations;
    let channels = layout.coarse().len();
    let first = recorded.start / polarizations;
    let last = recorded.end.div_ceil(polarizations);
    let place = |channel: usize| {
        let coarse = channel % channels;
        let place = layout.coarse().iter().position(|own| *own == coarse).unwrap_or(coarse);
        channel / channels * channels + place
    };
    let mut places: Vec<usize> = (first..last).map(place).collect();
    places.sort_unstable();
    let mut ranges: Vec<Range<usize>> = Vec::new();
    for place in places {
        let range = place * each..(place + 1) * each;
        match ranges.last_mut() {
            Some(before) if before.end == range.start => before.end = range.end,
            _ => ranges.push(range),
        }
    }
    ranges
}

/// Largest number of spectra measured.
const SPECTRA: usize = 1024;

/// Largest size in bytes of the samples held, if they give [`MIN_SPECTRA`] spectra.
const BLOCK_BYTES: usize = 64 << 20;

/// Smallest number of spectra measured.
const MIN_SPECTRA: usize = 16;

/// Standard deviation in counts for 8 bits.
const DEVIATION_8: f64 = 20.0;

/// Standard deviation in counts for 4 bits.
const DEVIATION_4: f64 = 2.8;

/// Returns the standard deviation in counts for `bits` bits.
pub(in crate::pipeline) fn deviation(bits: usize) -> f64 {
    if bits == 4 { DEVIATION_4 } else { DEVIATION_8 }
}

/// Bytes of spectra computed per step.
const SPECTRA_BYTES: usize = 4 << 20;

/// First spectra of a recording that are not all flagged.
struct Measured {
    /// Number of the first of them.
    row: u64,
    /// Most spectra.
    spectra: usize,
    /// Samples that they were computed from.
    block: VoltageBlock<'static>,
    bank: FilterBank,
}

impl Measured {
    /// Reads the beginning of a recording, after `lead` rows that are entirely flagged.
    fn new(
        source: &mut dyn VoltageSource,
        lead: u64,
        plan: Plan,
        coherent: Option<coherent::Plan>,
        backend: &Backend,
    ) -> Result<Self> {
        let row = lead / restart_rows(&plan) * restart_rows(&plan);
        let sample = row * plan.samples_per_row() as u64;
        let input = plan.input();
        let bits = input.streams() * input.encoding.sample_bits() * plan.hop();
        let spectra = (BLOCK_BYTES * 8 / bits).clamp(MIN_SPECTRA, SPECTRA);
        let times = plan.span() + (spectra - 1) * plan.hop();
        let mut bank =
            FilterBank::new(Plans { bank: plan, coherent, joining: None }, &backend.alone())?;
        bank.restart(sample);
        let start = bank.start(sample);
        source.skip(start)?;
        let mut block = source.header().block((sample - start) as usize + times + bank.delay());
        source.read(&mut block)?;
        Ok(Self { row, spectra, block, bank })
    }

    /// Returns the gain of each output channel, and the samples with their first row for reuse. Channels without
    /// power have gain 1; channels flagged throughout have the median of the others.
    fn gains(
        mut self,
        streams: &Streams,
        flags: &Flags,
        bits: usize,
    ) -> Result<(Vec<f32>, (u64, VoltageBlock<'static>))> {
        let target = deviation(bits);
        let gain = |power: f64| {
            // `power` includes the real and the imaginary part.
            let deviation = (0.5 * power).sqrt();
            if deviation > 0.0 { (target / deviation) as f32 } else { 1.0 }
        };
        let powers = self.powers(streams, flags)?;
        let mut known: Vec<f32> = powers.iter().flatten().map(|power| gain(*power)).collect();
        known.sort_by(f32::total_cmp);
        let median = known.get(known.len() / 2).copied().unwrap_or(1.0);
        let gains = powers.into_iter().map(|power| power.map_or(median, gain)).collect();
        Ok((gains, (self.row, self.block)))
    }

    /// Returns the mean power of each output channel over unflagged samples of all antennas and polarizations; `None`
    /// if all are flagged.
    fn powers(&mut self, streams: &Streams, flags: &Flags) -> Result<Vec<Option<f64>>> {
        let row = self.bank.channelizer().plan().row_elements();
        let mut spectra = vec![Complex::ZERO; (SPECTRA_BYTES / (8 * row)).max(1) * row];
        let mut sums = vec![(0.0, 0u64); streams.all_channels()];
        let mut flagged = vec![false; streams.elements.len()];
        let (mut used, mut time, mut left) = (0, self.row, self.spectra);
        let is_whole = self.block.times() < self.block.capacity();
        while left > 0 {
            let most = left.min(spectra.len() / row);
            let spectra = &mut spectra[..most * row];
            let rest = self.block.voltages().slice(used, self.block.times() - used)?;
            let progress = self.bank.run(rest, spectra)?;
            used += progress.consumed;
            let produced = match progress.produced {
                0 if is_whole => self.bank.flush(spectra)?,
                produced => produced,
            };
            for spectrum in spectra.chunks_exact(row).take(produced) {
                flagged.fill(false);
                for flag in flags.touching(&(time..time + 1)) {
                    flagged[flag.streams.clone()].fill(true);
                }
                add(spectrum, streams, &flagged, &mut sums);
                time += 1;
            }
            left -= produced;
            if produced == 0 {
                break;
            }
        }
        let mean = |(sum, count): &(f64, u64)| (*count > 0).then(|| sum / *count as f64);
        Ok(sums.iter().map(mean).collect())
    }
}

/// Adds one spectrum's powers to the channels' sums and counts.
fn add(spectrum: &[Complex<f32>], streams: &Streams, flagged: &[bool], sums: &mut [(f64, u64)]) {
    for (stream, element) in streams.elements.iter().enumerate() {
        let power = f64::from(spectrum[*element].norm_sqr());
        if !flagged[stream] && power.is_finite() {
            let (sum, count) = &mut sums[streams.channel(stream)];
            *sum += power;
            *count += 1;
        }
    }
}

/// Positions of the output streams in the filter bank's rows.
#[derive(Clone, Debug)]
struct Streams {
    polarizations: usize,
    /// Filter-bank index of each recorded channel of the output.
    places: Vec<usize>,
    /// Channels per recorded channel.
    channels: usize,
    /// Row element of each stream (antenna, channel, polarization).
    elements: Vec<usize>,
}

impl Streams {
    /// Computes the positions; with several `copies` of all antennas, channel `c` comes from copy `c mod copies`.
    fn new(recorded: &VoltageHeader, plan: &Plan, layout: &Layout, copies: usize) -> Self {
        let in_order = || (0..recorded.coarse_channels()).collect();
        let places = layout.places.clone().unwrap_or_else(in_order);
        let (polarizations, channels) = (recorded.polarizations, plan.channels());
        let mut streams = Self { polarizations, places, channels, elements: Vec::new() };
        let all = streams.all_channels();
        let element = |stream: usize| {
            let (channel, antenna) = (streams.channel(stream), stream / polarizations / all);
            let copy = channel % channels % copies;
            let row = (copy * recorded.antennas + antenna) * polarizations + stream % polarizations;
            row * all + streams.in_bank(channel)
        };
        streams.elements = (0..recorded.antennas * all * polarizations).map(element).collect();
        streams
    }

    /// Returns the number of channels of an antenna.
    fn all_channels(&self) -> usize {
        self.places.len() * self.channels
    }

    /// Returns the channel of a stream.
    fn channel(&self, stream: usize) -> usize {
        stream / self.polarizations % self.all_channels()
    }

    /// Returns the filter-bank index of an output channel.
    fn in_bank(&self, channel: usize) -> usize {
        self.places[channel / self.channels] * self.channels + channel % self.channels
    }

    /// Sorts gains of output channels into filter-bank order.
    fn in_bank_order(&self, gains: &[f32]) -> Vec<f32> {
        let mut sorted = vec![0.0; gains.len()];
        gains.iter().enumerate().for_each(|(channel, gain)| sorted[self.in_bank(channel)] = *gain);
        sorted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiles_equal_a_plain_transposition() {
        // Neither the streams nor the spectra fill their last tile.
        let (row, times, first, streams) = (71, 67, 3, 29);
        let spectra: Vec<u8> = (0..2 * row * times).map(|i| (i * i % 251) as u8).collect();
        let elements: Vec<usize> = (0..streams).map(|stream| (stream * 37 + 5) % row).collect();
        let stride = 2 * (first + times) + 4;
        let mut memory = vec![0xa5; streams * stride];
        let rows = memory.chunks_exact_mut(stride).map(|row| &mut row[2 * first..]);
        transpose::<2>(&spectra, row, &elements, rows);
        for (stream, samples) in memory.chunks_exact(stride).enumerate() {
            for time in 0..times {
                let from = 2 * (time * row + elements[stream]);
                assert_eq!(samples[2 * (first + time)..][..2], spectra[from..from + 2]);
            }
            let outside = samples[..2 * first].iter().chain(&samples[2 * (first + times)..]);
            assert!(outside.into_iter().all(|byte| *byte == 0xa5), "written outside the block");
        }
    }
}
