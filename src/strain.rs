//! Compact binaries and their gravitational waveforms, shared by the gravitational-wave modules.
//!
//! Invariant: a waveform's samples are finite and its peak is one of them.

use num_complex::Complex64;

use crate::error::{Error, Result};

/// Detector-frame (redshifted) masses and aligned spins of a compact binary.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Binary {
    /// Mass of the first body, in solar masses.
    pub mass1_msun: f64,
    /// Mass of the second body, in solar masses.
    pub mass2_msun: f64,
    /// Spin of the first body along the orbit's angular momentum, in units of its mass squared (-1 to 1).
    pub spin1z: f64,
    /// Spin of the second body, likewise.
    pub spin2z: f64,
}

impl Binary {
    /// Makes a binary without spins.
    pub fn of_masses(mass1_msun: f64, mass2_msun: f64) -> Self {
        Self { mass1_msun, mass2_msun, ..Self::default() }
    }

    /// Returns the sum of the masses, in solar masses.
    pub fn total_mass_msun(&self) -> f64 {
        self.mass1_msun + self.mass2_msun
    }

    /// Returns the chirp mass `(m1 m2)^(3/5) / (m1 + m2)^(1/5)`, in solar masses.
    pub fn chirp_mass_msun(&self) -> f64 {
        (self.mass1_msun * self.mass2_msun).powf(0.6) / self.total_mass_msun().powf(0.2)
    }
}

/// A gravitational wave `h = h_plus - i h_cross` as a series of samples.
#[derive(Clone, Debug, PartialEq)]
pub struct Waveform {
    /// Name in tables and files.
    pub name: String,
    /// The source, when known.
    pub binary: Option<Binary>,
    /// Approximant, such as IMRPhenomD, when known.
    pub approximant: Option<String>,
    /// Sampling rate.
    pub rate_hz: u32,
    /// `h_plus - i h_cross` of a face-on source at [`Self::distance_mpc`]; the phase is continuous in time.
    pub samples: Vec<Complex64>,
    /// Index of the sample with the largest `|h|`: the event time.
    pub peak: usize,
    /// Distance of the source, in Mpc.
    pub distance_mpc: f64,
}

impl Waveform {
    /// Makes a waveform of an unknown approximant and finds its peak.
    ///
    /// # Errors
    /// [`Error::Parameter`] if it has no sample, a non-finite sample or only zeros, or if the rate or the distance is
    /// not above 0.
    pub fn new(
        name: impl Into<String>,
        binary: Option<Binary>,
        rate_hz: u32,
        samples: Vec<Complex64>,
        distance_mpc: f64,
    ) -> Result<Self> {
        if rate_hz == 0 {
            return Err(Error::parameter("rate of the waveform (Hz)", 0, "it must be above 0"));
        }
        if !(distance_mpc.is_finite() && distance_mpc > 0.0) {
            let rule = "it must be finite and above 0";
            return Err(Error::parameter("distance (Mpc)", distance_mpc, rule));
        }
        if let Some(bad) = samples.iter().find(|h| !h.is_finite()) {
            return Err(Error::parameter(
                "waveform",
                bad.to_string(),
                "its samples must be finite",
            ));
        }
        let peak = (0..samples.len()).reduce(|best, index| {
            if samples[index].norm_sqr() > samples[best].norm_sqr() { index } else { best }
        });
        match peak {
            Some(peak) if samples[peak].norm_sqr() > 0.0 => {
                let approximant = None;
                let name = name.into();
                Ok(Self { name, binary, approximant, rate_hz, samples, peak, distance_mpc })
            }
            _ => {
                let rule = "it needs samples that are not 0";
                Err(Error::parameter("waveform", format!("{} samples", samples.len()), rule))
            }
        }
    }

    /// Returns the length in seconds.
    pub fn duration_s(&self) -> f64 {
        self.samples.len() as f64 / f64::from(self.rate_hz)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peak_is_found_and_nonsense_refused() {
        let wave = |values: &[f64]| {
            let samples = values.iter().map(|re| Complex64::new(*re, 0.0)).collect();
            Waveform::new("w", None, 4096, samples, 1.0)
        };
        assert_eq!(wave(&[0.0, -3.0, 2.0]).map(|w| w.peak).ok(), Some(1));
        assert!(wave(&[]).is_err() && wave(&[0.0]).is_err() && wave(&[f64::NAN]).is_err());
        assert!((Binary::of_masses(1.4, 1.4).chirp_mass_msun() - 1.2188).abs() < 1e-4);
    }
}
