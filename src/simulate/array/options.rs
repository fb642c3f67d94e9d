//! Options of an array simulation, and their checks.

use crate::error::{Error, Result};
use crate::geometry::{Array, Direction, Dut1};
use crate::simulate::bounds::{above_zero, recorded_band, within};
use crate::simulate::voltages::{Polarization, usual_rms};
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
    /// Pointing direction for the header; it affects no strength.
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
        recorded_band("--bandwidth over --channels (Hz)", &self.centres_hz, self.channel_width_hz)?;
        let whole = self.encoding.samples_per_byte() as u64;
        if self.times == 0 || self.times > MAX_TIMES || !self.times.is_multiple_of(whole) {
            let rule = format!("it must be 1 to {MAX_TIMES} samples that fill whole bytes");
            return Err(Error::parameter("--seconds (samples)", self.times, rule));
        }
        above_zero("--rms", self.rms, 1e9)?;
        self.sources.iter().try_for_each(check_source)?;
        self.receivers.iter().try_for_each(|receiver| self.check_receiver(receiver))
    }

    fn check_streams(&self) -> Result<()> {
        let channels = self.centres_hz.len();
        if channels == 0 || channels > MAX_CHANNELS {
            let rule = format!("it must be 1 to {MAX_CHANNELS}");
            return Err(Error::parameter("--channels", channels, rule));
        }
        if !matches!(self.polarizations, 1 | 2) {
            let rule = "it must be 1 or 2";
            return Err(Error::parameter("--polarizations", self.polarizations, rule));
        }
        Ok(())
    }

    fn check_receiver(&self, receiver: &Receiver) -> Result<()> {
        within("--sefd (Jy)", receiver.sefd_jy, 0.0, 1e15)?;
        let most = MAX_FIXED_DELAY_S;
        within("fixed delay of an antenna (s)", receiver.fixed_delay_s, -most, most)?;
        let whole = self.encoding.samples_per_byte() as u64;
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
