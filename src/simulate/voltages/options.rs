//! Options of a voltage simulation, their checks, and the polarization of a pulse.

use num_complex::Complex;

use crate::error::{Error, Result};
use crate::simulate::recording::usual_rms;
use crate::simulate::{above_zero, recorded_band, within};
use crate::units::{DM_CONSTANT, Epoch, MAX_CHANNELS, MAX_FREQUENCY_HZ};
use crate::voltage::VoltageEncoding;

/// Largest number of streams: antennas x recorded channels x polarizations.
const MAX_STREAMS: usize = 1 << 22;

/// Largest number of samples per stream; their indices are exact in f64.
const MAX_TIMES: u64 = 1 << 50;

/// Carrier of a pulse.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Carrier {
    /// Gaussian noise with a Gaussian envelope of its mean power.
    Noise {
        /// Full width at half maximum before dispersion, in seconds.
        width_s: f64,
    },
    /// Impulse as narrow as the recorded channel allows: all frequencies equal and in phase.
    Impulse,
}

/// Dispersed pulse, the same in every antenna.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pulse {
    /// Dispersion measure, pc cm^-3.
    pub dm: f64,
    /// Centre of the pulse at the upper edge of the whole recorded band, in seconds from the start of the first
    /// sample. At another frequency f it is later by the dispersion delay of f relative to that edge.
    pub time_s: f64,
    /// S/N of the best boxcar in the total intensity of one antenna, coherently dedispersed.
    pub snr: f64,
    /// Carrier.
    pub carrier: Carrier,
    /// Polarization.
    pub polarization: Polarization,
}

impl Pulse {
    /// Creates an unpolarized pulse of noise.
    pub fn new(dm: f64, time_s: f64, width_s: f64, snr: f64) -> Self {
        let carrier = Carrier::Noise { width_s };
        Self { dm, time_s, snr, carrier, polarization: Polarization::UNPOLARIZED }
    }

    /// Creates an unpolarized impulse.
    pub fn impulse(dm: f64, time_s: f64, snr: f64) -> Self {
        Self { carrier: Carrier::Impulse, ..Self::new(dm, time_s, 1.0, snr) }
    }

    fn check(&self) -> Result<()> {
        within("dm of a pulse", self.dm, 0.0, 1e6)?;
        within("time of a pulse", self.time_s, -1e6, 1e6)?;
        above_zero("snr of a pulse", self.snr, 1e9)?;
        if let Carrier::Noise { width_s } = self.carrier {
            above_zero("width of a pulse", width_s, 1e3)?;
        }
        self.polarization.check([
            "linear of a pulse",
            "angle of a pulse (radians)",
            "circular of a pulse",
        ])
    }
}

/// Tone of constant frequency, the same in every antenna.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tone {
    /// Sky frequency in Hz; it must lie in one of the recorded channels.
    pub frequency_hz: f64,
    /// Amplitude in the first polarization, in units of the noise rms in one real number.
    pub amplitude: f64,
    /// Phase of the first polarization in the first sample, in radians, as on the sky; a lower sideband negates it.
    pub phase_rad: f64,
    /// Ratio of the second polarization's amplitude to the first's.
    pub second_ratio: f64,
    /// Phase of the second polarization minus that of the first, in radians.
    pub second_phase_rad: f64,
}

impl Tone {
    /// Creates a tone of phase 0, equal in both polarizations.
    pub fn new(frequency_hz: f64, amplitude: f64) -> Self {
        Self { frequency_hz, amplitude, phase_rad: 0.0, second_ratio: 1.0, second_phase_rad: 0.0 }
    }

    fn check(&self) -> Result<()> {
        above_zero("frequency of a tone (Hz)", self.frequency_hz, MAX_FREQUENCY_HZ)?;
        within("amplitude of a tone", self.amplitude, 0.0, 1e6)?;
        within("phase of a tone", self.phase_rad, -1e6, 1e6)?;
        within("ratio of a tone", self.second_ratio, 0.0, 1e6)?;
        within("second phase of a tone", self.second_phase_rad, -1e6, 1e6)
    }
}

/// Options of a voltage simulation.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Sky frequency of each recorded channel's centre in Hz, in recorded order.
    pub centres_hz: Vec<f64>,
    /// Width of a recorded channel in Hz: the sampling rate of complex samples, half that of real ones.
    pub channel_width_hz: f64,
    /// Whether sky frequency decreases with the voltage's frequency.
    pub lower_sideband: bool,
    /// Encoding of the samples.
    pub encoding: VoltageEncoding,
    /// Number of antennas.
    pub antennas: usize,
    /// Polarizations of each antenna, 1 or 2.
    pub polarizations: usize,
    /// Whether the two polarizations are R and L instead of X and Y.
    pub circular: bool,
    /// Total samples of each stream.
    pub times: u64,
    /// Root mean square of the noise in one real number (a complex sample has two), in counts.
    pub rms: f64,
    /// Whether to add noise; it does not affect the strength of tones and pulses.
    pub noise: bool,
    /// Seed of the noise and of all other random numbers.
    pub seed: u64,
    /// Tones.
    pub tones: Vec<Tone>,
    /// Pulses.
    pub pulses: Vec<Pulse>,
    /// Gaps in the recording: first sample and length of each, in samples of each stream.
    pub gaps: Vec<(u64, u64)>,
    /// Dispersion constant, s MHz^2 pc^-1 cm^3.
    pub dm_constant: f64,
    /// Name of the telescope, for the header.
    pub telescope: String,
    /// Name of the source, for the header.
    pub source_name: String,
    /// Start of the first sample.
    pub start: Epoch,
}

impl Options {
    /// Creates options for noise alone: complex 8 bit, one antenna, two linear polarizations, seed 0. `channels`
    /// recorded channels divide the band `bandwidth_hz` around `centre_hz`, the lowest first.
    pub fn new(centre_hz: f64, bandwidth_hz: f64, channels: usize, times: u64) -> Self {
        let width = bandwidth_hz / channels as f64;
        let offset = |c: usize| (c as f64 + 0.5 - 0.5 * channels as f64) * width;
        let encoding = VoltageEncoding::Complex8;
        Self {
            centres_hz: (0..channels).map(|c| centre_hz + offset(c)).collect(),
            channel_width_hz: width,
            lower_sideband: false,
            encoding,
            antennas: 1,
            polarizations: 2,
            circular: false,
            times,
            rms: usual_rms(encoding),
            noise: true,
            seed: 0,
            tones: Vec::new(),
            pulses: Vec::new(),
            gaps: Vec::new(),
            dm_constant: DM_CONSTANT,
            telescope: String::new(),
            source_name: "simulation".to_owned(),
            start: Epoch { day: 60000, seconds: 0.0 },
        }
    }

    /// Records the same band as lower sidebands, the highest channel first.
    pub fn lower_sideband(mut self) -> Self {
        self.lower_sideband = true;
        self.centres_hz.sort_by(|a, b| b.total_cmp(a));
        self
    }

    /// Sets the encoding and its usual rms.
    pub fn encoding(mut self, encoding: VoltageEncoding) -> Self {
        self.encoding = encoding;
        self.rms = usual_rms(encoding);
        self
    }

    /// Returns the sampling time of each stream in seconds.
    pub fn tsamp_s(&self) -> f64 {
        let rate = if self.encoding.is_complex() { 1.0 } else { 2.0 };
        1.0 / (rate * self.channel_width_hz)
    }

    /// Returns the upper edge of the whole recorded band in Hz: the reference of pulse times.
    pub fn reference_hz(&self) -> f64 {
        self.centres_hz.iter().copied().fold(f64::MIN, f64::max) + 0.5 * self.channel_width_hz
    }

    /// Returns the number of streams: antennas x recorded channels x polarizations.
    pub fn streams(&self) -> usize {
        self.antennas * self.centres_hz.len() * self.polarizations
    }

    pub(super) fn check(&self) -> Result<()> {
        self.check_streams()?;
        recorded_band("voltages.channel_width_hz", &self.centres_hz, self.channel_width_hz)?;
        self.check_times()?;
        above_zero("rms", self.rms, 1e9)?;
        within("dm_constant", self.dm_constant, 1.0, 1e6)?;
        self.tones.iter().try_for_each(Tone::check)?;
        self.pulses.iter().try_for_each(Pulse::check)
    }

    fn check_streams(&self) -> Result<()> {
        let channels = self.centres_hz.len();
        if channels == 0 || channels > MAX_CHANNELS {
            let rule = format!("it must be 1 to {MAX_CHANNELS}");
            return Err(Error::parameter("voltages.channels", channels, rule));
        }
        if !matches!(self.polarizations, 1 | 2) {
            return Err(Error::parameter(
                "voltages.polarizations",
                self.polarizations,
                "it must be 1 or 2",
            ));
        }
        let most = MAX_STREAMS / (channels * self.polarizations);
        if self.antennas == 0 || self.antennas > most {
            let rule =
                format!("it must be 1 to {most} with that number of channels and polarizations");
            return Err(Error::parameter("voltages.antennas", self.antennas, rule));
        }
        Ok(())
    }

    fn check_times(&self) -> Result<()> {
        let whole = self.encoding.group_samples() as u64;
        let fills = |number: u64| number.is_multiple_of(whole);
        if self.times == 0 || self.times > MAX_TIMES || !fills(self.times) {
            let rule = format!("it must be 1 to {MAX_TIMES} samples that fill whole bytes");
            return Err(Error::parameter("voltages.times", self.times, rule));
        }
        let mut gaps = self.gaps.clone();
        gaps.sort_unstable();
        let mut end = 0;
        for (start, times) in gaps {
            let value = format!("{start} to {}", start.saturating_add(times));
            if times == 0 || start.saturating_add(times) > self.times {
                let rule = format!("it must lie in the recording, 0 to {} samples", self.times);
                return Err(Error::parameter("voltages.gaps", value, rule));
            }
            if start < end || !fills(start) || !fills(times) {
                let rule = "gaps must fill whole bytes and not overlap";
                return Err(Error::parameter("voltages.gaps", value, rule));
            }
            end = start + times;
        }
        Ok(())
    }
}

/// State of polarization: fraction and kind of the polarized power.
///
/// Stokes Q = I linear cos(2 angle), U = I linear sin(2 angle), V = I circular. An impulse is one wave and thus
/// always fully polarized: if less is requested, it has the right power in each polarization, and their relative
/// phase is 0 as far as it is free.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Polarization {
    /// Fraction of the power that is linearly polarized, 0 to 1.
    pub linear: f64,
    /// Position angle in radians.
    pub angle_rad: f64,
    /// Fraction of the power that is circularly polarized, -1 to 1; it has the sign of V.
    pub circular: f64,
}

impl Polarization {
    /// Unpolarized state.
    pub const UNPOLARIZED: Self = Self { linear: 0.0, angle_rad: 0.0, circular: 0.0 };

    /// Checks the values; `names` label the linear fraction, angle and circular fraction in errors.
    pub(in crate::simulate) fn check(&self, names: [&'static str; 3]) -> Result<()> {
        let [linear, angle, circular] = names;
        within(linear, self.linear, 0.0, 1.0)?;
        within(angle, self.angle_rad, -1e3, 1e3)?;
        within(circular, self.circular, -1.0, 1.0)?;
        let degree = self.linear.hypot(self.circular);
        if degree > 1.0 + 1e-9 {
            let rule = "with the linear part it makes more than all of the power";
            return Err(Error::parameter(circular, self.circular, rule));
        }
        Ok(())
    }

    /// Returns the polarizations as mixtures of two independent waves a and b of unit power: first `m[0] a`, second
    /// `m[1] a + m[2] b`, of power 1 in sum.
    ///
    /// Linear feeds: `<|X|^2> = (1 + Q) / 2`, `<X Y*> = (U + i V) / 2`; circular ones:
    /// `<|R|^2> = (1 + V) / 2`, `<R L*> = (Q + i U) / 2`.
    pub(in crate::simulate) fn mixture(&self, circular_feeds: bool) -> Mixture {
        let q = self.linear * (2.0 * self.angle_rad).cos();
        let u = self.linear * (2.0 * self.angle_rad).sin();
        let v = self.circular;
        let (difference, cross) = if circular_feeds {
            (v, Complex::new(0.5 * q, 0.5 * u))
        } else {
            (q, Complex::new(0.5 * u, 0.5 * v))
        };
        let first = (0.5 * (1.0 + difference)).max(0.0);
        let second = (0.5 * (1.0 - difference)).max(0.0);
        if first < 1e-12 {
            return Mixture { first: 0.0, common: Complex::new(0.0, 0.0), own: second.sqrt() };
        }
        let common = cross.conj() / first.sqrt();
        let own = (second - common.norm_sqr()).max(0.0).sqrt();
        Mixture { first: first.sqrt(), common, own: if own < 1e-6 { 0.0 } else { own } }
    }
}

/// Weights of two waves in two polarizations.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::simulate) struct Mixture {
    /// Weight of wave a in the first polarization.
    pub(in crate::simulate) first: f64,
    /// Weight of wave a in the second.
    pub(in crate::simulate) common: Complex<f64>,
    /// Weight of wave b in the second.
    pub(in crate::simulate) own: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options() -> Options {
        Options::new(1400e6, 32e6, 8, 1000)
    }

    #[test]
    fn the_band_is_divided_and_turned() {
        let upper = options();
        assert_eq!((upper.centres_hz[0], upper.centres_hz[7]), (1386e6, 1414e6));
        assert_eq!((upper.reference_hz(), upper.tsamp_s()), (1416e6, 0.25e-6));
        let lower = options().lower_sideband().encoding(VoltageEncoding::Real8);
        assert_eq!((lower.centres_hz[0], lower.reference_hz()), (1414e6, 1416e6));
        assert_eq!(lower.tsamp_s(), 0.125e-6);
    }

    #[test]
    fn each_fault_is_named() {
        let fault = |change: fn(&mut Options)| {
            let mut options = options();
            change(&mut options);
            match options.check() {
                Err(Error::Parameter { name, .. }) => name,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(fault(|o| o.centres_hz.clear()), "voltages.channels");
        assert_eq!(fault(|o| o.centres_hz[3] = 1.0), "centre_mhz");
        assert_eq!(fault(|o| o.polarizations = 3), "voltages.polarizations");
        assert_eq!(fault(|o| o.antennas = usize::MAX), "voltages.antennas");
        assert_eq!(fault(|o| o.times = 0), "voltages.times");
        assert_eq!(fault(|o| o.rms = f64::NAN), "rms");
        assert_eq!(fault(|o| o.gaps = vec![(990, 11)]), "voltages.gaps");
        assert_eq!(fault(|o| o.gaps = vec![(0, 11), (10, 5)]), "voltages.gaps");
        assert_eq!(fault(|o| o.pulses = vec![Pulse::new(-1.0, 0.0, 1.0, 1.0)]), "dm of a pulse");
        assert_eq!(fault(|o| o.pulses = vec![Pulse::new(1.0, 0.0, 0.0, 1.0)]), "width of a pulse");
        assert_eq!(fault(|o| o.tones = vec![Tone::new(-1.0, 0.0)]), "frequency of a tone (Hz)");
        let packed = |o: &mut Options| {
            o.encoding = VoltageEncoding::Real2;
            o.times = 1001;
        };
        assert_eq!(fault(packed), "voltages.times");
        assert!(options().check().is_ok());
    }

    #[test]
    fn a_mixture_has_the_stokes_parameters_asked_for() {
        let cases = [(0.0, 0.0, 0.0), (0.5, 0.4, 0.3), (1.0, 1.0, 0.0), (0.0, 0.0, -1.0)];
        for (linear, angle_rad, circular) in cases {
            let state = Polarization { linear, angle_rad, circular };
            let (q, u) = (linear * (2.0 * angle_rad).cos(), linear * (2.0 * angle_rad).sin());
            for feeds in [false, true] {
                let mixture = state.mixture(feeds);
                let first = mixture.first.powi(2);
                let second = mixture.common.norm_sqr() + mixture.own.powi(2);
                let cross = 2.0 * mixture.first * mixture.common.conj();
                let difference = first - second;
                let found = if feeds {
                    (cross.re, cross.im, difference)
                } else {
                    (difference, cross.re, cross.im)
                };
                assert!((first + second - 1.0).abs() < 1e-6);
                let error = [found.0 - q, found.1 - u, found.2 - circular];
                assert!(error.iter().all(|e| e.abs() < 1e-6), "{state:?} {feeds} {found:?}");
            }
        }
    }

    #[test]
    fn more_than_all_is_refused() {
        let state = Polarization { linear: 0.9, angle_rad: 0.0, circular: 0.9 };
        assert!(state.check([""; 3]).is_err());
        assert!(Polarization { circular: 0.4, ..state }.check([""; 3]).is_ok());
    }
}
