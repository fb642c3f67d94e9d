//! What an antenna's spectra are multiplied by before they are rounded.
//!
//! Invariant: measured gains depend on the antenna's first valid spectra alone.

use num_complex::Complex;

use super::flags::Bad;
use crate::correlate::Precision;
use crate::delay;
use crate::error::{Error, Result};
use crate::pipeline::voltage::deviation;
use crate::voltage::VoltageEncoding;

/// The most spectra that gains are measured with.
const SPECTRA: usize = 256;

/// The fewest.
const FEWEST: usize = 16;

/// The most bytes of an antenna's spectra that are looked at, if they are enough for [`FEWEST`].
const BYTES: usize = 32 << 20;

/// The encoding of spectra of so many bits.
///
/// # Errors
/// [`Error::Parameter`] for other numbers than 4, 8 and 32.
pub(super) fn encoding(nbits: usize) -> Result<VoltageEncoding> {
    match nbits {
        4 => Ok(VoltageEncoding::Complex4),
        8 => Ok(VoltageEncoding::Complex8),
        32 => Ok(VoltageEncoding::ComplexF32),
        _ => Err(Error::parameter("--nbits", nbits, "spectra have 4, 8 or 32 bits")),
    }
}

/// Refuses to round integers.
///
/// # Errors
/// [`Error::Parameter`] for another precision than f32 of integers.
pub(super) fn check_precision(precision: Precision, nbits: usize) -> Result<()> {
    if precision == Precision::F32 || nbits == 32 {
        return Ok(());
    }
    let rule = "products of integers are exact: it is for --nbits 32";
    Err(Error::parameter("--precision", precision, rule))
}

/// Gains of one antenna's polarizations and channels; axes polarization, channel.
#[derive(Clone, Debug)]
pub(super) struct Level {
    polarizations: usize,
    coarse: usize,
    fine: usize,
    encoding: VoltageEncoding,
    /// What spectra are multiplied by: one for all, or one an element.
    gains: Vec<Complex<f32>>,
    /// Whether gains are to be measured.
    measured: bool,
    /// Whether gains are taken out of the visibilities again.
    undone: bool,
}

/// How gains are found.
pub(super) enum Source {
    /// By the power of spectra.
    Measured,
    /// One for all, taken out again.
    Fixed(f32),
    /// Those that stay; axes polarization, channel.
    Given(Vec<Complex<f32>>),
}

impl Level {
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

    /// Recorded channels.
    pub(super) fn coarse(&self) -> usize {
        self.coarse
    }

    /// Channels of each recorded channel.
    pub(super) fn fine(&self) -> usize {
        self.fine
    }

    /// Elements of a spectrum.
    pub(super) fn elements(&self) -> usize {
        self.polarizations * self.coarse * self.fine
    }

    pub(super) fn encoding(&self) -> VoltageEncoding {
        self.encoding
    }

    /// What spectra are multiplied by: one for all, or one an element.
    #[cfg(feature = "cuda")]
    pub(super) fn gains(&self) -> &[Complex<f32>] {
        &self.gains
    }

    /// Whether gains are measured.
    pub(super) fn is_measured(&self) -> bool {
        self.measured
    }

    /// Spectra that gains are measured with.
    pub(super) fn spectra(&self) -> usize {
        if self.measured { (BYTES / (8 * self.elements())).clamp(FEWEST, SPECTRA) } else { 1 }
    }

    /// Such that the deviation is that of the encoding; channels without power have 1, those that were
    /// bad throughout the polarization's median.
    pub(super) fn set(&mut self, powers: &Powers) {
        let target = deviation(self.encoding.bits());
        let channels = self.coarse * self.fine;
        let gain = |power: f64| {
            // Power is that of both parts.
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

    /// What the products of an element are to be divided by.
    pub(super) fn divisor(&self, element: usize) -> f64 {
        if self.undone { f64::from(self.gains[element % self.gains.len()].re) } else { 1.0 }
    }

    /// Whether that is 1 for all.
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
    pub(super) fn new(level: &Level) -> Self {
        let (sums, counts) = (vec![0.0; level.elements()], vec![0; level.coarse]);
        Self { sums, counts, fine: level.fine }
    }

    /// Adds one spectrum's, where they are not bad.
    pub(super) fn add(&mut self, row: &[Complex<f32>], spectrum: u64, bad: &[Bad]) {
        let channels = self.counts.len() * self.fine;
        let hits = |bad: &&Bad, coarse: &usize| {
            bad.spectra.contains(&spectrum) && bad.coarse.contains(coarse)
        };
        for coarse in 0..self.counts.len() {
            let own = coarse * self.fine..(coarse + 1) * self.fine;
            // Zeros that nobody flagged, such as a receiver's that is not on yet, say nothing of its level.
            let silent =
                || row.chunks_exact(channels).all(|row| row[own.clone()].iter().all(is_zero));
            if bad.iter().any(|bad| hits(&bad, &coarse)) || silent() {
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
