//! Physical constants with their sources, frequency bands and times.
//!
//! Invariant: frequencies are in Hz and times in seconds, unless a name says otherwise.

use crate::error::{Error, Result};

/// Dispersion constant, s MHz^2 pc^-1 cm^3.
///
/// # Source
/// Lorimer & Kramer 2005, Handbook of Pulsar Astronomy: 4.148808 x 10^3 (+- 3e-3).
pub const DM_CONSTANT: f64 = 4148.808;

/// Speed of light in vacuum, m/s.
///
/// # Source
/// The definition of the metre, SI.
pub const SPEED_OF_LIGHT_M_S: f64 = 299_792_458.0;

/// Seconds in a day.
pub const SECONDS_PER_DAY: f64 = 86400.0;

/// Seconds in a Julian year of 365.25 days.
pub const SECONDS_PER_YEAR: f64 = 365.25 * SECONDS_PER_DAY;

/// Hertz in a megahertz.
pub const HZ_PER_MHZ: f64 = 1e6;

/// Lowest accepted channel centre, in Hz.
pub const MIN_FREQUENCY_HZ: f64 = 1.0;

/// Highest accepted channel centre, in Hz.
pub const MAX_FREQUENCY_HZ: f64 = 1e18;

/// Largest accepted number of channels in a band.
pub const MAX_CHANNELS: usize = 1 << 20;

/// Returns the dispersion delay of `frequency_hz` relative to `reference_hz`, in seconds.
///
/// `delay(f, DM) = K DM (f^-2 - f_ref^-2)`, f in MHz; negative above the reference.
///
/// # Source
/// Lorimer & Kramer 2005, Handbook of Pulsar Astronomy, with `dm_constant` as its constant.
pub fn dispersion_delay_s(dm: f64, frequency_hz: f64, reference_hz: f64, dm_constant: f64) -> f64 {
    let frequency = frequency_hz / HZ_PER_MHZ;
    let reference = reference_hz / HZ_PER_MHZ;
    dm_constant * dm * (1.0 / (frequency * frequency) - 1.0 / (reference * reference))
}

/// Channel centres of a recording, in recorded order.
#[derive(Clone, Debug, PartialEq)]
pub struct Band {
    centres_hz: Vec<f64>,
    channel_width_hz: f64,
}

impl Band {
    /// Makes a band of equal steps: `first_mhz` is the centre of channel 0; `step_mhz` may be negative.
    ///
    /// # Errors
    /// [`Error::Parameter`] for 0 or more than [`MAX_CHANNELS`] channels, a frequency outside [`MIN_FREQUENCY_HZ`] to
    /// [`MAX_FREQUENCY_HZ`], or a step of 0.
    pub fn uniform(first_mhz: f64, step_mhz: f64, channels: usize) -> Result<Self> {
        check_channels(channels)?;
        if !step_mhz.is_finite() || step_mhz == 0.0 {
            return Err(Error::parameter("foff", step_mhz, "it must be finite and not 0 MHz"));
        }
        let centres =
            (0..channels).map(|c| (first_mhz + c as f64 * step_mhz) * HZ_PER_MHZ).collect();
        Self::from_centres(centres, step_mhz.abs() * HZ_PER_MHZ)
    }

    /// Makes a band from each channel's centre, in Hz.
    ///
    /// # Errors
    /// As [`Band::uniform`].
    pub fn from_centres(centres_hz: Vec<f64>, channel_width_hz: f64) -> Result<Self> {
        check_channels(centres_hz.len())?;
        let allowed = MIN_FREQUENCY_HZ..=MAX_FREQUENCY_HZ;
        if let Some(bad) = centres_hz.iter().find(|f| !allowed.contains(f)) {
            let rule = "every channel centre must be a positive frequency, 1 Hz to 1e18 Hz";
            return Err(Error::parameter("frequency (MHz)", bad / HZ_PER_MHZ, rule));
        }
        if !channel_width_hz.is_finite() || channel_width_hz <= 0.0 {
            let rule = "it must be positive and finite";
            return Err(Error::parameter("channel width (Hz)", channel_width_hz, rule));
        }
        Ok(Self { centres_hz, channel_width_hz })
    }

    /// Returns the number of channels.
    pub fn channels(&self) -> usize {
        self.centres_hz.len()
    }

    /// Returns the centre of each channel in Hz, in recorded order.
    pub fn centres_hz(&self) -> &[f64] {
        &self.centres_hz
    }

    /// Returns the centre of channel 0 in MHz: a SIGPROC header's `fch1`.
    pub fn fch1_mhz(&self) -> f64 {
        self.centres_hz[0] / HZ_PER_MHZ
    }

    /// Returns the mean step between channels in MHz, negative in a descending band: `foff`.
    pub fn foff_mhz(&self) -> f64 {
        let last = self.centres_hz.len() - 1;
        if last == 0 {
            return -self.channel_width_hz / HZ_PER_MHZ;
        }
        (self.centres_hz[last] - self.centres_hz[0]) / (last as f64 * HZ_PER_MHZ)
    }

    /// Returns the width of a channel in Hz, positive.
    pub fn channel_width_hz(&self) -> f64 {
        self.channel_width_hz
    }

    /// Returns the highest channel centre in Hz: the reference of every dispersion delay.
    pub fn highest_hz(&self) -> f64 {
        self.centres_hz.iter().copied().fold(f64::MIN, f64::max)
    }

    /// Returns the lowest channel centre in Hz.
    pub fn lowest_hz(&self) -> f64 {
        self.centres_hz.iter().copied().fold(f64::MAX, f64::min)
    }

    /// Returns the middle of the band in Hz.
    pub fn centre_hz(&self) -> f64 {
        0.5 * (self.highest_hz() + self.lowest_hz())
    }

    /// Returns the width of the band in Hz, from edge to edge of the outer channels.
    pub fn bandwidth_hz(&self) -> f64 {
        self.highest_hz() - self.lowest_hz() + self.channel_width_hz
    }
}

fn check_channels(channels: usize) -> Result<()> {
    if channels == 0 || channels > MAX_CHANNELS {
        let rule = format!("there must be 1 to {MAX_CHANNELS}");
        return Err(Error::parameter("channels", channels, rule));
    }
    Ok(())
}

/// A time in UTC, to better than a nanosecond.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Epoch {
    /// Whole days: the modified Julian day; 0 when unknown.
    pub day: i64,
    /// Seconds since 0 h of the day.
    pub seconds: f64,
}

impl Epoch {
    /// Makes a time; carries whole days from `seconds` into `day`.
    pub fn new(day: i64, seconds: f64) -> Self {
        let days = (seconds / SECONDS_PER_DAY).floor();
        Self { day: day.saturating_add(days as i64), seconds: seconds - days * SECONDS_PER_DAY }
    }

    /// Converts a modified Julian date, at the precision of `f64`.
    pub fn from_mjd(mjd: f64) -> Self {
        let day = mjd.floor();
        Self::new(day as i64, (mjd - day) * SECONDS_PER_DAY)
    }

    /// Returns the modified Julian date, exact to about a microsecond.
    pub fn mjd(&self) -> f64 {
        self.day as f64 + self.seconds / SECONDS_PER_DAY
    }

    /// Returns the time `seconds` later.
    pub fn plus_s(&self, seconds: f64) -> Self {
        Self::new(self.day, self.seconds + seconds)
    }

    /// Returns the seconds since `earlier`.
    pub fn seconds_since(&self, earlier: &Self) -> f64 {
        self.day.saturating_sub(earlier.day) as f64 * SECONDS_PER_DAY
            + (self.seconds - earlier.seconds)
    }
}

/// GPS time, in whole nanoseconds since 1980-01-06T00:00:00 UTC; it has no leap seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Gps {
    /// Nanoseconds since the GPS epoch.
    pub ns: i64,
}

/// Nanoseconds in a second.
pub(crate) const NS_PER_S: i64 = 1_000_000_000;
/// Modified Julian date of the GPS epoch.
pub(crate) const GPS_ZERO_MJD: i64 = 44_244;

impl Gps {
    /// Converts GPS seconds, at the precision of `f64` (about 0.1 us at present GPS times).
    pub fn from_s(seconds: f64) -> Self {
        let whole = seconds.floor();
        Self { ns: whole as i64 * NS_PER_S + ((seconds - whole) * NS_PER_S as f64).round() as i64 }
    }

    /// Returns GPS seconds, exact to about 0.1 us.
    pub fn s(self) -> f64 {
        let (whole, part) = (self.ns.div_euclid(NS_PER_S), self.ns.rem_euclid(NS_PER_S));
        whole as f64 + part as f64 / NS_PER_S as f64
    }

    /// Returns the time `seconds` later.
    pub fn plus_s(self, seconds: f64) -> Self {
        Self { ns: self.ns.saturating_add((seconds * NS_PER_S as f64).round() as i64) }
    }

    /// Returns the time of sample `sample` of a stream that begins at this time.
    pub fn plus_samples(self, sample: i64, rate_hz: u32) -> Self {
        let ns = i128::from(sample) * i128::from(NS_PER_S);
        let rate = i128::from(rate_hz.max(1));
        Self { ns: self.ns + (ns + rate / 2).div_euclid(rate) as i64 }
    }

    /// Returns the seconds since `earlier`.
    pub fn seconds_since(self, earlier: Self) -> f64 {
        (self.ns - earlier.ns) as f64 / NS_PER_S as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gps_times_keep_their_nanoseconds() {
        let start = Gps::from_s(1_126_259_446.0);
        let late = start.plus_samples(67_240, 4096);
        assert_eq!(late.ns, 1_126_259_462_416_015_625);
        assert_eq!(late.seconds_since(start), 67_240.0 / 4096.0);
        assert_eq!(start.plus_samples(-1, 4096).ns, 1_126_259_445_999_755_859);
        assert!((Gps::from_s(late.s()).ns - late.ns).abs() < 200);
    }

    #[test]
    fn a_descending_band_keeps_its_order() {
        let band = Band::uniform(1500.0, -1.0, 4).unwrap();
        assert_eq!(band.centres_hz(), &[1500e6, 1499e6, 1498e6, 1497e6]);
        assert_eq!(band.foff_mhz(), -1.0);
        assert_eq!(band.highest_hz(), 1500e6);
        assert_eq!(band.bandwidth_hz(), 4e6);
    }

    #[test]
    fn absurd_bands_are_refused() {
        assert!(Band::uniform(f64::NAN, -1.0, 4).is_err());
        assert!(Band::uniform(3.0, -1.0, 4).is_err());
        assert!(Band::uniform(1e-160, 1e-160, 4).is_err());
        assert!(Band::uniform(1500.0, 0.0, 4).is_err());
        assert!(Band::uniform(1500.0, -1.0, 0).is_err());
        assert!(Band::uniform(1500.0, -1e-9, MAX_CHANNELS + 1).is_err());
    }

    #[test]
    fn the_delay_is_that_of_the_handbook() {
        let delay = dispersion_delay_s(1.0, 1e9, f64::INFINITY, DM_CONSTANT);
        assert!((delay - 4.148808e-3).abs() < 1e-12);
    }

    #[test]
    fn moments_keep_their_nanoseconds() {
        let start = Epoch::new(57000, 86_399.999_999_999);
        let later = start.plus_s(2e-9);
        assert_eq!(later.day, 57001);
        assert!((later.seconds_since(&start) - 2e-9).abs() < 2e-11);
        assert_eq!(Epoch::new(57000, -1.0), Epoch::new(56999, 86399.0));
        assert!((Epoch::from_mjd(60000.25).seconds - 21600.0).abs() < 1e-5);
    }
}
