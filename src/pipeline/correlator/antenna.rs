//! F-engine of one antenna: samples to delay-corrected spectra, and the gains that scale them before requantization.
//!
//! Invariant: a spectrum's bits depend on its number, never on the division into gulps. Measured gains depend on the
//! antenna's first valid spectra alone. Given gains refer to the sky's voltages: recorded voltages of a lower sideband
//! are conjugated, and are multiplied by conjugated gains.

use std::ops::Range;
use std::time::Instant;

use num_complex::Complex;

use super::messages::Parts;
use super::options::Gains;
use super::recordings::{Channels, Delay, Delays, Recordings};
use super::window::{Flags, Framing, Invalid, InvalidRange, Window, lead};
use crate::backend::Backend;
use crate::channelize::{Channelizer, Output};
use crate::correlate::Precision;
use crate::delay;
use crate::delay::{DelayCorrector, Rows, Slope};
use crate::error::{Error, Result};
use crate::pipeline::voltage::deviation;
use crate::view::Progress;
use crate::voltage::{VoltageEncoding, Voltages, voltage};

/// Target bytes of a tile: one antenna's spectra between filter bank and delay correction.
const TILE_BYTES: usize = 1 << 20;

/// Target bytes of the spectra that are cut into messages together: they stay in the first-level cache.
const PIECE_BYTES: usize = 16 << 10;

/// Consecutive spectra with one shift.
#[derive(Clone, Debug)]
pub(super) struct Run {
    pub(super) spectra: Range<u64>,
    pub(super) shift: i64,
    /// Whether the recording has all samples of these spectra.
    pub(super) inside: bool,
}

/// Seconds that an antenna's steps took.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Elapsed {
    pub(super) channelize_s: f64,
    pub(super) align_s: f64,
}

/// F-engine of one antenna.
pub(super) struct AntennaInput {
    pub(super) location: SampleLocation,
    bank: Bank,
    flags: Flags,
    /// Samples in the window that are not finite.
    found: Flags,
    pub(super) gain_control: GainControl,
    backend: Backend,
    /// Created once gains are known.
    corrector: Option<DelayCorrector>,
    /// Spectra per tile, the unit of channelization and delay correction.
    tile: usize,
    delays: Vec<Delay>,
    /// Phase slopes of the prepared spectra; none if a device derives them from the delays.
    slopes: Option<Vec<Slope>>,
    pub(super) runs: Vec<Run>,
    pub(super) invalid: Vec<InvalidRange>,
    pub(super) needed: Option<Range<u64>>,
    /// First sample that the prepared spectra or later ones may need.
    pub(super) from: u64,
    /// Spectrum and shift at which the gain measurement starts.
    measure: Option<(u64, i64)>,
    /// Shift and number of the filter bank's next spectrum, and its next input sample.
    next: Option<(i64, u64, u64)>,
    pub(super) elapsed: Elapsed,
    outcome: Result<()>,
}

/// Scratch memory of a thread.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    /// Spectra of a tile.
    spectra: Vec<Complex<f32>>,
    /// Corrected spectra before they are cut into messages.
    piece: Vec<u8>,
}

/// Destination of one antenna's spectra.
#[derive(Debug)]
pub(super) enum Target<'a> {
    /// Rows with space for `times` spectra; axes polarization, time, channel.
    Rows { bytes: &'a mut [u8], times: usize },
    /// Messages to ranks.
    Messages(Parts<'a>),
}

impl AntennaInput {
    /// Builds the F-engine of an antenna.
    pub(super) fn new(
        location: SampleLocation,
        bank: Bank,
        flags: Flags,
        gain_control: GainControl,
        backend: &Backend,
    ) -> Self {
        let tile = (TILE_BYTES / (8 * gain_control.elements())).clamp(4, 256);
        Self {
            location,
            bank,
            flags,
            found: Flags::none(),
            gain_control,
            backend: backend.clone(),
            corrector: None,
            tile,
            delays: Vec::new(),
            slopes: Some(Vec::new()),
            runs: Vec::new(),
            invalid: Vec::new(),
            needed: None,
            from: 0,
            measure: None,
            next: None,
            elapsed: Elapsed::default(),
            outcome: Ok(()),
        }
    }

    /// Configures the antenna for spectra that a device computes.
    pub(super) fn on_device(self) -> Self {
        Self { slopes: None, ..self }
    }

    /// Returns the total and the residual delay of each prepared spectrum.
    pub(super) fn delays(&self, all: &Delays) -> impl Iterator<Item = delay::Delay> {
        let sample_lag = self.location.sample_lag;
        self.delays.iter().map(move |delay| {
            let residual_s = delay.delay_s - all.shift_s(delay.shift, sample_lag);
            delay::Delay { total_s: delay.delay_s, residual_s }
        })
    }

    /// Returns the number of polarizations.
    pub(super) fn polarizations(&self) -> usize {
        self.gain_control.polarizations
    }

    /// Returns whether gains are known.
    pub(super) fn is_final(&self) -> bool {
        self.corrector.is_some()
    }

    /// Returns the complex samples that saturated in requantization.
    pub(super) fn saturated(&self) -> u64 {
        self.corrector
            .as_ref()
            .map_or(0, |own| own.saturated().map_or(0, |counts| counts.iter().sum()))
    }

    /// Takes the result of the last gulp.
    pub(super) fn take_outcome(&mut self) -> Result<()> {
        std::mem::replace(&mut self.outcome, Ok(()))
    }

    /// Returns the recording's sample index at which a spectrum's window begins.
    pub(super) fn at(&self, spectrum: u64, shift: i64) -> i64 {
        spectrum as i64 * self.bank.framing().hop as i64 + shift + self.location.offset as i64
    }

    /// Returns the samples of consecutive spectra with one shift; all of them must exist.
    fn samples(&self, spectra: &Range<u64>, shift: i64) -> Range<u64> {
        let end = self.at(spectra.end - 1, shift) as u64 + self.bank.framing().span;
        self.at(spectra.start, shift) as u64..end
    }

    /// Returns the start (relative to the first prepared spectrum) and the samples of each run of existing spectra, and
    /// the number of prepared spectra. Only for voltages that are multiplied as recorded.
    pub(super) fn parts(&self) -> (Vec<(usize, Range<u64>)>, usize) {
        let Some(base) = self.runs.first().map(|run| run.spectra.start) else {
            return (Vec::new(), 0);
        };
        let inside = self.runs.iter().filter(|run| run.inside);
        let part = |run: &Run| {
            ((run.spectra.start - base) as usize, self.samples(&run.spectra, run.shift))
        };
        (inside.map(part).collect(), self.delays.len())
    }

    /// Determines the shifts of the next spectra and the samples they need.
    pub(super) fn prepare(&mut self, spectra: Range<u64>, delays: &Delays, channels: &Channels) {
        self.find_runs(&spectra, delays, channels);
        self.found = Flags::none();
        self.scan(channels.coarse);
    }

    /// Marks prepared spectra that need samples that were found to be invalid; returns whether there are such samples.
    pub(super) fn mark_invalid(&mut self, found: &Invalid, coarse: usize) -> bool {
        let polarizations = self.location.streams.len() / coarse;
        self.found = Flags::new(found.flags(), &self.location.streams, polarizations);
        if !self.found.is_empty() {
            self.scan(coarse);
        }
        !self.found.is_empty()
    }

    /// Appends the ranges of `spectra`, which have one shift, with flagged samples or samples that were found to be invalid.
    fn find_invalid(&self, spectra: &Range<u64>, shift: i64, invalid: &mut Vec<InvalidRange>) {
        for flags in [&self.flags, &self.found] {
            flags.find(spectra, self.at(0, shift), self.bank.framing(), invalid);
        }
    }

    /// Finds the invalid spectra, the start of the gain measurement, and the samples that the spectra and the
    /// measurement need.
    fn scan(&mut self, coarse: usize) {
        self.invalid.clear();
        self.measure = None;
        let mut needed: Option<Range<u64>> = None;
        let runs = std::mem::take(&mut self.runs);
        let first = runs.iter().map(|run| self.at(run.spectra.start, run.shift)).min();
        self.from = first.unwrap_or(0).max(0) as u64;
        for Run { spectra, shift, inside } in &runs {
            if !inside {
                self.invalid.push(InvalidRange { spectra: spectra.clone(), coarse: 0..coarse });
                continue;
            }
            let first = self.invalid.len();
            let mut invalid = std::mem::take(&mut self.invalid);
            self.find_invalid(spectra, *shift, &mut invalid);
            self.invalid = invalid;
            let mut samples = self.samples(spectra, *shift);
            if self.corrector.is_none() && self.measure.is_none() {
                let start = lead(&self.invalid[first..], spectra, coarse);
                self.measure = start.map(|start| (start, *shift));
                if let Some(start) = start {
                    let looked = self.measured(start, *shift);
                    samples.end = self.samples(&looked, *shift).end.max(samples.end);
                }
            }
            let before = needed.clone().unwrap_or(samples.clone());
            needed = Some(before.start.min(samples.start)..before.end.max(samples.end));
        }
        self.runs = runs;
        self.needed = needed;
    }

    /// Returns the spectra that gains are measured with.
    fn measured(&self, start: u64, shift: i64) -> Range<u64> {
        let Framing { hop, span } = self.bank.framing();
        let left = self.location.length - self.at(start, shift) as u64 - span;
        start..start + (left / hop + 1).min(self.gain_control.spectra() as u64)
    }

    fn find_runs(&mut self, spectra: &Range<u64>, delays: &Delays, channels: &Channels) {
        let (antenna, sample_lag) = (self.location.antenna, self.location.sample_lag);
        self.delays.clear();
        self.delays
            .extend(spectra.clone().map(|spectrum| delays.at(antenna, sample_lag, spectrum)));
        if let Some(mut slopes) = self.slopes.take() {
            slopes.clear();
            for delay in self.delays(delays) {
                slopes.extend((0..channels.coarse).map(|c| channels.band.slope(c, delay)));
            }
            self.slopes = Some(slopes);
        }
        self.runs.clear();
        let span = self.bank.framing().span as i64;
        for (spectrum, delay) in spectra.clone().zip(&self.delays) {
            let shift = delay.shift;
            let at = self.at(spectrum, shift);
            let inside = at >= 0 && at + span <= self.location.length as i64;
            match self.runs.last_mut() {
                Some(run) if run.shift == shift && run.inside == inside => {
                    run.spectra.end = spectrum + 1;
                }
                _ => self.runs.push(Run { spectra: spectrum..spectrum + 1, shift, inside }),
            }
        }
    }
}

impl AntennaInput {
    /// Measures gains from the window's samples if the measurement is due.
    pub(super) fn finalize(&mut self, window: &Window, scratch: &mut Scratch) {
        self.outcome = self.measure_due(window, scratch);
    }

    /// Computes the prepared spectra into the target from time 0 on.
    pub(super) fn run(&mut self, window: &Window, target: &mut Target<'_>, scratch: &mut Scratch) {
        self.outcome = self.make(window, target, scratch);
    }

    fn make(
        &mut self,
        window: &Window,
        target: &mut Target<'_>,
        scratch: &mut Scratch,
    ) -> Result<()> {
        self.measure_due(window, scratch)?;
        let Some(base) = self.runs.first().map(|run| run.spectra.start) else { return Ok(()) };
        let runs = std::mem::take(&mut self.runs);
        for run in runs.iter().filter(|run| run.inside) {
            self.make_run(run, (run.spectra.start - base) as usize, window, target, scratch)?;
        }
        self.runs = runs;
        let invalid = std::mem::take(&mut self.invalid);
        invalid.iter().for_each(|invalid| self.blank(invalid, base, target));
        self.invalid = invalid;
        Ok(())
    }

    fn measure_due(&mut self, window: &Window, scratch: &mut Scratch) -> Result<()> {
        scratch.spectra.resize(self.tile * self.gain_control.elements(), Complex::ZERO);
        let due = self.measure.take();
        due.map_or(Ok(()), |(start, shift)| self.measure(window, start, shift, scratch))
    }

    /// Measures gains and binds the delay correction.
    fn measure(
        &mut self,
        window: &Window,
        start: u64,
        shift: i64,
        scratch: &mut Scratch,
    ) -> Result<()> {
        if self.gain_control.measured {
            let spectra = self.measured(start, shift);
            let mut invalid = Vec::new();
            self.find_invalid(&spectra, shift, &mut invalid);
            let mut powers = Powers::new(&self.gain_control);
            let samples = self.samples(&spectra, shift);
            let mut input = window.voltages(self.location.streams.clone(), samples)?;
            let mut spectrum = spectra.start;
            self.bank.reset();
            while spectrum < spectra.end {
                let made = self.spectra(&mut input, scratch)?;
                for row in scratch.spectra.chunks_exact(self.gain_control.elements()).take(made) {
                    powers.add(row, spectrum, &invalid);
                    spectrum += 1;
                }
            }
            self.next = None;
            self.gain_control.set(&powers);
        }
        let plan = delay::Plan::new(self.gain_control.delay_options())?;
        self.corrector = Some(DelayCorrector::new(plan, &self.backend)?);
        Ok(())
    }

    /// Fills the scratch memory with spectra of the next samples of `input`; returns their number.
    fn spectra(&mut self, input: &mut Voltages<'_>, scratch: &mut Scratch) -> Result<usize> {
        let begin = Instant::now();
        let progress = self.bank.run(*input, &mut scratch.spectra)?;
        *input = input.slice(progress.consumed, input.times() - progress.consumed)?;
        self.elapsed.channelize_s += begin.elapsed().as_secs_f64();
        if progress.produced == 0 {
            let (expected, actual) = (1, 0);
            return Err(Error::Shape { what: "spectra of a run", expected, actual });
        }
        Ok(progress.produced)
    }

    fn make_run(
        &mut self,
        run: &Run,
        first: usize,
        window: &Window,
        target: &mut Target<'_>,
        scratch: &mut Scratch,
    ) -> Result<()> {
        if self.corrector.is_none() {
            // Without gains all spectra of the run are flagged.
            return Ok(());
        }
        let samples = self.samples(&run.spectra, run.shift);
        let from = match self.next {
            Some((shift, spectrum, sample))
                if (shift, spectrum) == (run.shift, run.spectra.start) =>
            {
                sample
            }
            _ => {
                self.bank.reset();
                samples.start
            }
        };
        let mut input = window.voltages(self.location.streams.clone(), from..samples.end)?;
        let times = (run.spectra.end - run.spectra.start) as usize;
        let mut done = 0;
        while done < times {
            let made = self.spectra(&mut input, scratch)?;
            self.correct(first + done, made, scratch, target)?;
            done += made;
        }
        self.next = Some((run.shift, run.spectra.end, samples.end));
        Ok(())
    }

    /// Corrects `times` spectra of the scratch memory and writes them to the target, starting at time `first`.
    fn correct(
        &mut self,
        first: usize,
        times: usize,
        scratch: &mut Scratch,
        target: &mut Target<'_>,
    ) -> Result<()> {
        let begin = Instant::now();
        let GainControl { coarse, encoding, .. } = self.gain_control;
        let elements = self.gain_control.elements();
        if let (Some(corrector), Some(slopes)) = (&mut self.corrector, &self.slopes) {
            let Scratch { spectra, piece } = scratch;
            let (spectra, slopes) = (&spectra[..times * elements], &slopes[first * coarse..]);
            match target {
                Target::Rows { bytes, times: most } => {
                    let rows = Rows { bytes, times: *most, first };
                    corrector.run(spectra, &slopes[..times * coarse], rows)?;
                }
                Target::Messages(parts) => {
                    let row = elements * encoding.sample_bits() / 8;
                    let together = (PIECE_BYTES / row).clamp(1, self.tile);
                    piece.resize(together * row, 0);
                    let slopes = slopes.chunks(together * coarse);
                    let pieces = spectra.chunks(together * elements).zip(slopes);
                    for (number, (spectra, slopes)) in pieces.enumerate() {
                        let count = spectra.len() / elements;
                        let bytes = &mut piece[..count * row];
                        let rows = Rows { bytes, times: count, first: 0 };
                        corrector.run(spectra, &slopes[..count * coarse], rows)?;
                        parts.put(&piece[..count * row], first + number * together, count);
                    }
                }
            }
        }
        self.elapsed.align_s += begin.elapsed().as_secs_f64();
        Ok(())
    }

    /// Fills invalid spectra with zeros.
    fn blank(&self, invalid: &InvalidRange, base: u64, target: &mut Target<'_>) {
        let (elements, fine) = (self.gain_control.elements(), self.gain_control.fine);
        let channels = self.gain_control.coarse * fine;
        let size = self.gain_control.encoding.sample_bits() / 8;
        let spectra = &invalid.spectra;
        let spectra = (spectra.start - base) as usize..(spectra.end - base) as usize;
        let own = invalid.coarse.start * fine..invalid.coarse.end * fine;
        let (bytes, times) = match target {
            Target::Rows { bytes, times } => (bytes, *times),
            Target::Messages(parts) => return parts.blank(spectra, &own),
        };
        for polarization in 0..elements / channels {
            for time in spectra.clone() {
                let row = (polarization * times + time) * channels;
                bytes[(row + own.start) * size..(row + own.end) * size].fill(0);
            }
        }
    }
}

/// Source of one antenna's spectra; axes of the output: time, polarization, recorded channel, channel.
#[derive(Debug)]
pub(super) enum Bank {
    /// Filter bank that divides recorded channels.
    Filter(Box<Channelizer>),
    /// Pass-through of recorded channels.
    Recorded {
        /// Number of polarizations.
        polarizations: usize,
        /// Factor from recorded values to voltages.
        scale: f32,
    },
}

impl Bank {
    /// Returns the division of samples into spectra.
    fn framing(&self) -> Framing {
        match self {
            Self::Filter(channelizer) => {
                let plan = channelizer.plan();
                Framing { hop: plan.hop() as u64, span: plan.span() as u64 }
            }
            Self::Recorded { .. } => Framing { hop: 1, span: 1 },
        }
    }

    /// Resets the state for a new stream.
    pub(super) fn reset(&mut self) {
        if let Self::Filter(channelizer) = self {
            channelizer.reset();
        }
    }

    /// Channelizes `input` into `spectra`.
    pub(super) fn run(
        &mut self,
        input: Voltages<'_>,
        spectra: &mut [Complex<f32>],
    ) -> Result<Progress> {
        match self {
            Self::Filter(channelizer) => channelizer.run(input, Output::Complex(spectra)),
            Self::Recorded { polarizations, scale } => {
                Ok(transpose(input, *polarizations, *scale, spectra))
            }
        }
    }
}

/// Transposes axes (recorded channel, polarization, time) to (time, polarization, recorded channel) and scales.
fn transpose(
    input: Voltages<'_>,
    polarizations: usize,
    scale: f32,
    spectra: &mut [Complex<f32>],
) -> Progress {
    let (row, coarse) = (input.streams(), input.streams() / polarizations);
    let times = input.times().min(spectra.len() / row);
    let encoding = input.encoding();
    for stream in 0..row {
        let bytes = input.row(stream);
        let element = stream % polarizations * coarse + stream / polarizations;
        let values = spectra[element..].iter_mut().step_by(row).take(times).enumerate();
        let byte = |at: usize| f32::from(bytes[at] as i8);
        match encoding {
            VoltageEncoding::Complex8 => values.for_each(|(time, value)| {
                *value = Complex::new(byte(2 * time), byte(2 * time + 1)) * scale;
            }),
            _ => values.for_each(|(time, value)| {
                let z = voltage(bytes, encoding, time);
                *value = Complex::new(z.re as f32, z.im as f32) * scale;
            }),
        }
    }
    Progress { consumed: times, produced: times }
}

/// Location of an antenna's samples.
#[derive(Clone, Debug)]
pub(super) struct SampleLocation {
    /// Antenna number in the array.
    pub(super) antenna: usize,
    /// Index of the recording.
    pub(super) recording: usize,
    /// Streams within the recording.
    pub(super) streams: Range<usize>,
    /// Sample index of the recording at common sample 0.
    pub(super) offset: u64,
    /// Lag of the recording's samples behind the common ones, in samples.
    pub(super) sample_lag: f64,
    /// Number of samples of the recording.
    pub(super) length: u64,
}

/// Largest number of spectra that gains are measured with.
const MAX_GAIN_SPECTRA: usize = 256;

/// Smallest number of spectra that gains are measured with.
const MIN_GAIN_SPECTRA: usize = 16;

/// Maximum bytes of the spectra that gains are measured with, unless [`MIN_GAIN_SPECTRA`] need more.
const MAX_GAIN_BYTES: usize = 32 << 20;

/// Returns the encoding for `nbits` bits per real component.
///
/// # Errors
/// [`Error::Parameter`] for numbers other than 4, 8 and 32.
pub(super) fn encoding(nbits: usize) -> Result<VoltageEncoding> {
    match nbits {
        4 => Ok(VoltageEncoding::Complex4),
        8 => Ok(VoltageEncoding::Complex8),
        32 => Ok(VoltageEncoding::ComplexF32),
        _ => Err(Error::parameter("correlate.nbits", nbits, "spectra have 4, 8 or 32 bits")),
    }
}

/// Checks that a reduced precision is requested for floats only.
///
/// # Errors
/// [`Error::Parameter`] for a precision other than f32 with integers.
pub(super) fn check_precision(precision: Precision, nbits: usize) -> Result<()> {
    if precision == Precision::F32 || nbits == 32 {
        return Ok(());
    }
    let rule = "products of integers are exact: it is for `correlate.nbits` 32";
    Err(Error::parameter("precision", precision.to_string(), rule))
}

/// Gains of one antenna; axes polarization, channel.
#[derive(Clone, Debug)]
pub(super) struct GainControl {
    polarizations: usize,
    pub(super) coarse: usize,
    fine: usize,
    encoding: VoltageEncoding,
    /// Gains of the spectra: one for all, or one per element.
    pub(super) gains: Vec<Complex<f32>>,
    /// Whether gains are to be measured.
    measured: bool,
    /// Whether the readout divides visibilities by the gains.
    divided_out: bool,
}

/// Source of an antenna's gains.
pub(super) enum GainSource {
    /// Measured from the power of spectra.
    Measured,
    /// One gain for all elements; the readout divides by it.
    Fixed(f32),
    /// Gains that remain in the visibilities; axes polarization, channel.
    Given(Vec<Complex<f32>>),
}

impl GainControl {
    pub(super) fn new(
        polarizations: usize,
        channels: &Channels,
        encoding: VoltageEncoding,
        source: GainSource,
    ) -> Self {
        let float = encoding == VoltageEncoding::ComplexF32;
        let one = Complex::new(1.0, 0.0);
        let (gains, measured, divided_out) = match source {
            GainSource::Measured => (vec![one], !float, true),
            GainSource::Fixed(gain) => (vec![one * gain], false, true),
            GainSource::Given(gains) => (gains, false, false),
        };
        let (coarse, fine) = (channels.coarse, channels.fine);
        Self { polarizations, coarse, fine, encoding, gains, measured, divided_out }
    }

    /// Returns the elements of a spectrum.
    pub(super) fn elements(&self) -> usize {
        self.polarizations * self.coarse * self.fine
    }

    /// Returns the number of spectra that gains are measured with.
    pub(super) fn spectra(&self) -> usize {
        if self.measured {
            (MAX_GAIN_BYTES / (8 * self.elements())).clamp(MIN_GAIN_SPECTRA, MAX_GAIN_SPECTRA)
        } else {
            1
        }
    }

    /// Sets gains so that the standard deviation is optimal for the encoding. Channels without power get 1;
    /// channels without valid spectra get the polarization's median.
    pub(super) fn set(&mut self, powers: &Powers) {
        let target = deviation(self.encoding.bits());
        let channels = self.coarse * self.fine;
        let gain = |power: f64| {
            // `power` includes the real and the imaginary part.
            let deviation = (0.5 * power).sqrt();
            let gain = (target / deviation) as f32;
            if gain.is_normal() { gain } else { 1.0 }
        };
        self.gains.clear();
        for sums in powers.sums.chunks_exact(channels) {
            let own = |channel: usize| {
                let count = powers.counts[channel / self.fine];
                (count > 0).then(|| gain(sums[channel] / count as f64))
            };
            let mut known: Vec<f32> = (0..channels).filter_map(own).collect();
            known.sort_by(f32::total_cmp);
            let median = known.get(known.len() / 2).copied().unwrap_or(1.0);
            let all = (0..channels).map(|channel| own(channel).unwrap_or(median));
            self.gains.extend(all.map(|gain| Complex::new(gain, 0.0)));
        }
    }

    /// Returns the divisor of an element's products at readout.
    pub(super) fn divisor(&self, element: usize) -> f64 {
        if self.divided_out { f64::from(self.gains[element % self.gains.len()].re) } else { 1.0 }
    }

    /// Returns whether all divisors are 1.
    pub(super) fn is_unit(&self) -> bool {
        !self.divided_out || self.gains.iter().all(|gain| gain.re == 1.0)
    }

    pub(super) fn delay_options(&self) -> delay::Options {
        let Self { polarizations, coarse, fine, encoding, .. } = *self;
        let gains = self.gains.clone();
        delay::Options {
            gains,
            ..delay::Options::one_antenna(polarizations, coarse, fine, encoding)
        }
    }
}

/// Powers summed over spectra.
pub(super) struct Powers {
    /// Axes polarization, channel.
    sums: Vec<f64>,
    /// Valid spectra of each recorded channel.
    counts: Vec<u64>,
    fine: usize,
}

impl Powers {
    pub(super) fn new(level: &GainControl) -> Self {
        let (sums, counts) = (vec![0.0; level.elements()], vec![0; level.coarse]);
        Self { sums, counts, fine: level.fine }
    }

    /// Adds the valid channels of one spectrum.
    pub(super) fn add(&mut self, row: &[Complex<f32>], spectrum: u64, invalid: &[InvalidRange]) {
        let channels = self.counts.len() * self.fine;
        let hits = |invalid: &&InvalidRange, coarse: &usize| {
            invalid.spectra.contains(&spectrum) && invalid.coarse.contains(coarse)
        };
        for coarse in 0..self.counts.len() {
            let own = coarse * self.fine..(coarse + 1) * self.fine;
            // Unflagged zeros, e.g. of a receiver that is still off, do not represent the signal level.
            let silent =
                || row.chunks_exact(channels).all(|row| row[own.clone()].iter().all(is_zero));
            if invalid.iter().any(|invalid| hits(&invalid, &coarse)) || silent() {
                continue;
            }
            self.counts[coarse] += 1;
            let rows = self.sums.chunks_exact_mut(channels).zip(row.chunks_exact(channels));
            for (sums, values) in rows {
                let pairs = sums[own.clone()].iter_mut().zip(&values[own.clone()]);
                pairs.for_each(|(sum, z)| {
                    *sum += f64::from(z.re).powi(2) + f64::from(z.im).powi(2);
                });
            }
        }
    }
}

fn is_zero(value: &Complex<f32>) -> bool {
    value.re == 0.0 && value.im == 0.0
}

/// User gains; axes antenna, polarization, channel.
pub(super) struct GainTable {
    gains: Vec<Complex<f32>>,
    /// Elements per antenna; 0 unless the options have a table of gains.
    elements: usize,
}

impl GainTable {
    /// Checks gains and sorts their channels from ascending sky frequency into the order of the correlator.
    ///
    /// # Errors
    /// [`Error::Parameter`] for a number of gains that matches no allowed shape, or a gain that is not finite.
    pub(super) fn new(
        gains: &Gains,
        antennas: usize,
        recordings: &Recordings,
        channels: &Channels,
    ) -> Result<Self> {
        let Gains::Table(given) = gains else {
            return match gains {
                Gains::Fixed(gain) if !gain.is_finite() || *gain == 0.0 => {
                    Err(Error::parameter("gains", gain, "it must be finite and not 0"))
                }
                _ => Ok(Self { gains: Vec::new(), elements: 0 }),
            };
        };
        if let Some(invalid) = given.iter().find(|gain| !gain.is_finite()) {
            return Err(Error::parameter("gains", invalid.to_string(), "gains must be finite"));
        }
        let polarizations = recordings.header.polarizations;
        let correlated = channels.order.len();
        let all = antennas * polarizations * correlated;
        if ![1, correlated, all].contains(&given.len()) {
            let rule = format!(
                "there must be 1 gain, {correlated} (channel), or {all} (antenna, polarization, channel)"
            );
            return Err(Error::parameter("number of gains", given.len(), rule));
        }
        let own = |gain: Complex<f32>| if channels.is_conjugate { gain.conj() } else { gain };
        let mut sorted = vec![Complex::ZERO; all];
        for (index, row) in sorted.chunks_exact_mut(correlated).enumerate() {
            for (rank, channel) in channels.order.iter().enumerate() {
                row[*channel] = own(given[(index * correlated + rank) % given.len()]);
            }
        }
        Ok(Self { gains: sorted, elements: polarizations * correlated })
    }
}

impl GainSource {
    /// Returns the source of an antenna's gains.
    pub(super) fn new(gains: &Gains, table: &GainTable, antenna: usize) -> Self {
        match gains {
            Gains::Auto => Self::Measured,
            Gains::Fixed(gain) => Self::Fixed(*gain),
            Gains::Table(_) => {
                Self::Given(table.gains[antenna * table.elements..][..table.elements].to_vec())
            }
        }
    }
}
