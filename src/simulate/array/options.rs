//! Options of an array simulation, their checks, and antenna positions of synthetic arrays.

use std::f64::consts::TAU;

use crate::error::{Error, Result};
use crate::geometry::{Array, Direction, Dut1};
use crate::simulate::random::{Key, Stream};
use crate::simulate::recording::usual_rms;
use crate::simulate::voltages::Polarization;
use crate::simulate::{above_zero, recorded_band, within};
use crate::units::{Epoch, MAX_CHANNELS};
use crate::voltage::VoltageEncoding;

/// Largest number of antennas.
const MAX_ANTENNAS: usize = 1 << 16;

/// Largest number of samples per stream; their indices are exact in f64.
const MAX_TIMES: u64 = 1 << 50;

/// Largest fixed delay of an antenna, in seconds.
const MAX_FIXED_DELAY_S: f64 = 1.0;

/// Source of white noise at one point of the sky.
#[derive(Clone, Debug, PartialEq)]
pub struct PointSource {
    /// Name in the truth.
    pub name: String,
    /// Position on the sky.
    pub direction: Direction,
    /// Flux density (Stokes I) in Jy, the same over the whole band.
    pub flux_jy: f64,
    /// Polarization in the frame of the feeds, which does not rotate with the sky.
    pub polarization: Polarization,
}

impl PointSource {
    /// Creates an unpolarized source.
    pub fn new(name: &str, direction: Direction, flux_jy: f64) -> Self {
        let polarization = Polarization::UNPOLARIZED;
        Self { name: name.to_owned(), direction, flux_jy, polarization }
    }
}

/// Receiver of an antenna.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Receiver {
    /// System equivalent flux density in Jy: the flux of an unpolarized source that doubles the power. 0 means no
    /// noise.
    pub sefd_jy: f64,
    /// Fixed (cable) delay of everything that the antenna receives, in seconds.
    pub fixed_delay_s: f64,
    /// Whether the antenna is dead: all its samples are 0.
    pub dead: bool,
    /// Gaps in the recording: first sample and length of each, in samples of each stream.
    pub gaps: Vec<(u64, u64)>,
}

/// Options of an array simulation.
#[derive(Clone, Debug, PartialEq)]
pub struct ArrayOptions {
    /// Antennas and their positions.
    pub array: Array,
    /// Receiver of each antenna.
    pub receivers: Vec<Receiver>,
    /// UT1 - UTC.
    pub dut1: Dut1,
    /// Sources.
    pub sources: Vec<PointSource>,
    /// Pointing direction for the header; it does not affect signal strengths.
    pub pointing: Option<Direction>,
    /// Name of the source, for the header.
    pub source_name: String,
    /// Sky frequency of each recorded channel's centre in Hz, in recorded order.
    pub centres_hz: Vec<f64>,
    /// Width of a recorded channel in Hz: the sampling rate of complex samples, half that of real ones.
    pub channel_width_hz: f64,
    /// Whether sky frequency decreases with the voltage's frequency.
    pub lower_sideband: bool,
    /// Encoding of the samples.
    pub encoding: VoltageEncoding,
    /// Polarizations of each antenna, 1 or 2.
    pub polarizations: usize,
    /// Whether the two polarizations are R and L instead of X and Y.
    pub circular: bool,
    /// Start of the first sample (UTC).
    pub start: Epoch,
    /// Total samples of each stream.
    pub times: u64,
    /// Root mean square of noise and sources together in one real number (a complex sample has two), in counts.
    pub rms: f64,
    /// Seed of all random numbers.
    pub seed: u64,
}

impl ArrayOptions {
    /// Creates default options: receivers of 1000 Jy, no source, complex 8 bit, two linear polarizations, seed 0, on
    /// 1 January 2025. `channels` recorded channels divide the band `bandwidth_hz` around `centre_hz`, the lowest
    /// first.
    pub fn new(
        array: Array,
        centre_hz: f64,
        bandwidth_hz: f64,
        channels: usize,
        times: u64,
    ) -> Self {
        let width = bandwidth_hz / channels as f64;
        let offset = |c: usize| (c as f64 + 0.5 - 0.5 * channels as f64) * width;
        let encoding = VoltageEncoding::Complex8;
        let receiver = Receiver { sefd_jy: 1000.0, ..Receiver::default() };
        Self {
            receivers: vec![receiver; array.antennas.len()],
            array,
            dut1: Dut1::Table,
            sources: Vec::new(),
            pointing: None,
            source_name: "simulation".to_owned(),
            centres_hz: (0..channels).map(|c| centre_hz + offset(c)).collect(),
            channel_width_hz: width,
            lower_sideband: false,
            encoding,
            polarizations: 2,
            circular: false,
            start: Epoch { day: 60676, seconds: 0.0 },
            times,
            rms: usual_rms(encoding),
            seed: 0,
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

    /// Sets the system equivalent flux density of all antennas.
    pub fn sefd_jy(mut self, sefd_jy: f64) -> Self {
        self.receivers.iter_mut().for_each(|receiver| receiver.sefd_jy = sefd_jy);
        self
    }

    /// Returns the sampling time of each stream in seconds.
    pub fn tsamp_s(&self) -> f64 {
        let rate = if self.encoding.is_complex() { 1.0 } else { 2.0 };
        1.0 / (rate * self.channel_width_hz)
    }

    /// Returns the streams of one antenna: recorded channels x polarizations.
    pub fn streams(&self) -> usize {
        self.centres_hz.len() * self.polarizations
    }

    pub(super) fn check(&self) -> Result<()> {
        let antennas = self.array.antennas.len();
        if antennas == 0 || antennas > MAX_ANTENNAS {
            let rule = format!("there must be 1 to {MAX_ANTENNAS}");
            return Err(Error::parameter("antennas", antennas, rule));
        }
        crate::view::check_length("receivers", antennas, self.receivers.len())?;
        self.check_streams()?;
        recorded_band("array.channel_width_hz", &self.centres_hz, self.channel_width_hz)?;
        let whole = self.encoding.group_samples() as u64;
        if self.times == 0 || self.times > MAX_TIMES || !self.times.is_multiple_of(whole) {
            let rule = format!("it must be 1 to {MAX_TIMES} samples that fill whole bytes");
            return Err(Error::parameter("array.times", self.times, rule));
        }
        above_zero("rms", self.rms, 1e9)?;
        self.sources.iter().try_for_each(check_source)?;
        self.receivers.iter().try_for_each(|receiver| self.check_receiver(receiver))
    }

    fn check_streams(&self) -> Result<()> {
        let channels = self.centres_hz.len();
        if channels == 0 || channels > MAX_CHANNELS {
            let rule = format!("it must be 1 to {MAX_CHANNELS}");
            return Err(Error::parameter("array.channels", channels, rule));
        }
        if !matches!(self.polarizations, 1 | 2) {
            let rule = "it must be 1 or 2";
            return Err(Error::parameter("array.polarizations", self.polarizations, rule));
        }
        Ok(())
    }

    fn check_receiver(&self, receiver: &Receiver) -> Result<()> {
        within("sefd_jy", receiver.sefd_jy, 0.0, 1e15)?;
        let most = MAX_FIXED_DELAY_S;
        within("fixed delay of an antenna (s)", receiver.fixed_delay_s, -most, most)?;
        let whole = self.encoding.group_samples() as u64;
        let fills = |number: u64| number.is_multiple_of(whole);
        let mut gaps = receiver.gaps.clone();
        gaps.sort_unstable();
        let mut reached = 0;
        for (start, times) in gaps {
            let end = start.saturating_add(times);
            if times == 0 || end > self.times || start < reached || !fills(start) || !fills(times) {
                let rule = format!(
                    "gaps must lie in the recording, 0 to {} samples, fill whole bytes and not overlap",
                    self.times
                );
                return Err(Error::parameter("gap (samples)", format!("{start} to {end}"), rule));
            }
            reached = end;
        }
        Ok(())
    }
}

fn check_source(source: &PointSource) -> Result<()> {
    within("right ascension of a source (degrees)", source.direction.ra_deg, 0.0, 360.0)?;
    within("declination of a source (degrees)", source.direction.dec_deg, -90.0, 90.0)?;
    within("flux of a source (Jy)", source.flux_jy, 0.0, 1e15)?;
    source.polarization.check([
        "linear of a source",
        "angle of a source (radians)",
        "circular of a source",
    ])
}

/// Distribution of the antennas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// Uniform in a disc.
    Random,
    /// Along three arms, denser towards the centre.
    Wye,
}

/// Azimuth of the first arm in degrees, as at the Very Large Array.
const FIRST_ARM_DEG: f64 = 355.0;

/// Exponent of the distance along an arm as a function of the antenna's number, as at the Very Large Array.
const ARM_POWER: f64 = 1.716;

/// Range of heights, as a fraction of the spread.
const HEIGHTS: f64 = 0.01;

impl Layout {
    /// Returns names and positions of `antennas` antennas within a circle of `spread_m` metres diameter; heights
    /// differ by up to a hundredth of it.
    ///
    /// # Source
    /// Wye: Napier, Thompson & Ekers 1983, Proc. IEEE 71, 1295.
    pub fn places(self, antennas: usize, spread_m: f64, seed: u64) -> Vec<(String, [f64; 3])> {
        let digits = antennas.saturating_sub(1).to_string().len().max(2);
        let arm = antennas.div_ceil(3);
        let place = |antenna: usize| {
            let key = Key::new(seed, Stream::ArrayLayout, antenna as u64);
            let (radius, azimuth) = match self {
                Self::Random => (key.uniform(0).sqrt(), TAU * key.uniform(1)),
                Self::Wye => {
                    let place = (antenna / 3 + 1) as f64 / arm as f64;
                    let turn = (antenna % 3) as f64 / 3.0;
                    (place.powf(ARM_POWER), FIRST_ARM_DEG.to_radians() + TAU * turn)
                }
            };
            let radius = 0.5 * spread_m * radius;
            let up = HEIGHTS * spread_m * (key.uniform(2) - 0.5);
            let millimetres = |metres: f64| (metres * 1e3).round() / 1e3;
            let east_north_up = [radius * azimuth.sin(), radius * azimuth.cos(), up];
            (format!("ant{antenna:0digits$}"), east_north_up.map(millimetres))
        };
        (0..antennas).map(place).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn antennas_stand_apart_and_within_the_circle() {
        for layout in [Layout::Random, Layout::Wye] {
            let places = layout.places(27, 1000.0, 3);
            assert_eq!((places[0].0.as_str(), places[26].0.as_str()), ("ant00", "ant26"));
            for (i, (_, a)) in places.iter().enumerate() {
                assert!(a[0].hypot(a[1]) <= 500.001 && a[2].abs() <= 5.001, "{a:?}");
                let apart = |b: &[f64; 3]| (a[0] - b[0]).hypot(a[1] - b[1]);
                assert!(places[..i].iter().all(|(_, b)| apart(b) > 1.0), "{layout:?} {i}");
            }
            let farthest = places.iter().map(|(_, a)| a[0].hypot(a[1])).fold(0.0, f64::max);
            assert!(farthest > 400.0);
            assert_eq!(places, layout.places(27, 1000.0, 3));
        }
        assert_ne!(Layout::Random.places(2, 1.0, 3), Layout::Random.places(2, 1.0, 4));
        assert!(Layout::Wye.places(0, 1.0, 0).is_empty());
    }
}
