//! Gains that scale an antenna's spectra before requantization: measured, or given by the user.
//!
//! Invariant: measured gains depend on the antenna's first valid spectra alone; given gains multiply the sky's
//! voltages: in a lower sideband, whose voltages are their conjugates, the gains' conjugates do.

use num_complex::Complex;

use super::inputs::{Channels, Recordings};
use super::options::Gains;
use super::window::InvalidRange;
use crate::correlate::Precision;
use crate::delay;
use crate::error::{Error, Result};
use crate::pipeline::voltage::deviation;
use crate::voltage::VoltageEncoding;

/// Largest number of spectra that gains are measured with.
const SPECTRA: usize = 256;

/// Smallest number of spectra that gains are measured with.
const FEWEST: usize = 16;

/// Largest size in bytes of the spectra that gains are measured with, if it holds [`FEWEST`].
const BYTES: usize = 32 << 20;

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
    coarse: usize,
    fine: usize,
    encoding: VoltageEncoding,
    /// Gains of the spectra: one for all, or one per element.
    gains: Vec<Complex<f32>>,
    /// Whether gains are to be measured.
    measured: bool,
    /// Whether the readout divides visibilities by the gains.
    undone: bool,
}

/// Source of an antenna's gains.
pub(super) enum Source {
    /// Measured from the power of spectra.
    Measured,
    /// One for all; the readout divides by it.
    Fixed(f32),
    /// Gains that remain in the visibilities; axes polarization, channel.
    Given(Vec<Complex<f32>>),
}

impl GainControl {
    pub(super) fn new(
        polarizations: usize,
        (coarse, fine): (usize, usize),
        encoding: VoltageEncoding,
        source: Source,
    ) -> Self {
        let float = encoding == VoltageEncoding::ComplexF32;
        let one = Complex::new(1.0, 0.0);
        let (gains, measured, undone) = match source {
            Source::Measured => (vec![one], !float, true),
            Source::Fixed(gain) => (vec![one * gain], false, true),
            Source::Given(gains) => (gains, false, false),
        };
        Self { polarizations, coarse, fine, encoding, gains, measured, undone }
    }

    /// Returns the number of recorded channels.
    pub(super) fn coarse(&self) -> usize {
        self.coarse
    }

    /// Returns the channels per recorded channel.
    pub(super) fn fine(&self) -> usize {
        self.fine
    }

    /// Returns the elements of a spectrum.
    pub(super) fn elements(&self) -> usize {
        self.polarizations * self.coarse * self.fine
    }

    pub(super) fn encoding(&self) -> VoltageEncoding {
        self.encoding
    }

    /// Returns the gains of the spectra: one for all, or one per element.
    pub(super) fn gains(&self) -> &[Complex<f32>] {
        &self.gains
    }

    /// Whether gains are measured.
    pub(super) fn is_measured(&self) -> bool {
        self.measured
    }

    /// Returns the number of spectra that gains are measured with.
    pub(super) fn spectra(&self) -> usize {
        if self.measured { (BYTES / (8 * self.elements())).clamp(FEWEST, SPECTRA) } else { 1 }
    }

    /// Sets gains so that the standard deviation is the optimum of the encoding. Channels without power get 1;
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
        if self.undone { f64::from(self.gains[element % self.gains.len()].re) } else { 1.0 }
    }

    /// Whether all divisors are 1.
    pub(super) fn is_unit(&self) -> bool {
        !self.undone || self.gains.iter().all(|gain| gain.re == 1.0)
    }

    pub(super) fn align_options(&self) -> delay::Options {
        delay::Options {
            polarizations: self.polarizations,
            coarse_channels: self.coarse,
            channels: self.fine,
            encoding: self.encoding,
            gains: self.gains.clone(),
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
pub(super) struct Table {
    gains: Vec<Complex<f32>>,
    /// Elements per antenna; 1: one gain for all.
    elements: usize,
}

impl Table {
    /// Checks gains and sorts them into correlated order.
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
            return Self::checked(gains);
        };
        if let Some(invalid) = given.iter().find(|gain| !gain.is_finite()) {
            return Err(Error::parameter("gains", invalid.to_string(), "gains must be finite"));
        }
        let polarizations = recordings.header.polarizations;
        let correlated = channels.correlated();
        let all = antennas * polarizations * correlated;
        if ![1, correlated, all].contains(&given.len()) {
            let rule = format!(
                "there must be 1 gain, {correlated} (channel), or {all} (antenna, polarization, channel)"
            );
            return Err(Error::parameter("number of gains", given.len(), rule));
        }
        let own = |gain: Complex<f32>| if channels.is_conjugate() { gain.conj() } else { gain };
        let mut sorted = vec![Complex::ZERO; all];
        for (index, row) in sorted.chunks_exact_mut(correlated).enumerate() {
            for (rank, channel) in channels.order().iter().enumerate() {
                row[*channel] = own(given[(index * correlated + rank) % given.len()]);
            }
        }
        Ok(Self { gains: sorted, elements: polarizations * correlated })
    }

    fn checked(gains: &Gains) -> Result<Self> {
        if let Gains::Fixed(gain) = gains
            && !(gain.is_finite() && *gain != 0.0)
        {
            return Err(Error::parameter("gains", gain, "it must be finite and not 0"));
        }
        Ok(Self { gains: Vec::new(), elements: 0 })
    }
}

/// Returns how an antenna's gains are determined.
pub(super) fn source(gains: &Gains, table: &Table, antenna: usize) -> Source {
    match gains {
        Gains::Auto => Source::Measured,
        Gains::Fixed(gain) => Source::Fixed(*gain),
        Gains::Table(_) => {
            Source::Given(table.gains[antenna * table.elements..][..table.elements].to_vec())
        }
    }
}
