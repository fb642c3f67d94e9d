//! Options of a burst simulation, and their checks.

use crate::error::{Error, Result};
use crate::sample::Encoding;
use crate::simulate::bounds::{above_zero, within};
use crate::simulate::signal::Pulse;
use crate::simulate::{Bandpass, BroadInterference, NarrowInterference};
use crate::units::{Band, DM_CONSTANT};

/// Largest DM of a simulation, pc cm^-3.
const MAX_DM: f64 = 1e6;

/// Largest width, scattering time and period, in seconds.
const MAX_SECONDS: f64 = 1e5;

/// Largest number of interference impulses per second.
const MAX_RATE_HZ: f64 = 1e4;

/// Single pulse.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Burst {
    /// Dispersion measure, pc cm^-3.
    pub dm: f64,
    /// Centre of the unscattered pulse at the highest channel's centre, in seconds from the start of the first
    /// sample.
    pub time_s: f64,
    /// Full width at half maximum of the Gaussian, before scattering and smearing, in seconds.
    pub width_s: f64,
    /// S/N of the best boxcar in the series dedispersed at the exact DM.
    pub snr: f64,
    /// Scattering time at 1 GHz in seconds; it scales as frequency to the power -4.
    pub scatter_s: f64,
    /// Exponent of the flux density as a function of frequency.
    pub spectral_index: f64,
}

impl Burst {
    /// Creates a burst without scattering and with a flat spectrum.
    pub fn new(dm: f64, time_s: f64, width_s: f64, snr: f64) -> Self {
        Self { dm, time_s, width_s, snr, scatter_s: 0.0, spectral_index: 0.0 }
    }

    pub(super) fn pulse(&self) -> Pulse {
        let Self { dm, width_s, scatter_s, spectral_index, .. } = *self;
        Pulse { dm, width_s, scatter_s, spectral_index }
    }

    fn check(&self) -> Result<()> {
        within("dm", self.dm, 0.0, MAX_DM)?;
        within("time", self.time_s, -1e9, 1e9)?;
        above_zero("width", self.width_s, MAX_SECONDS)?;
        above_zero("snr", self.snr, 1e9)?;
        within("scatter", self.scatter_s, 0.0, MAX_SECONDS)?;
        within("index", self.spectral_index, -100.0, 100.0)
    }
}

/// Source of periodic pulses.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pulsar {
    /// Period in seconds.
    pub period_s: f64,
    /// Dispersion measure, pc cm^-3.
    pub dm: f64,
    /// Full width at half maximum of a pulse, in seconds.
    pub width_s: f64,
    /// S/N of each pulse, defined as for a burst.
    pub snr: f64,
    /// Centre of one pulse, defined as for a burst; others precede and follow it.
    pub time_s: f64,
    /// Scattering time at 1 GHz in seconds.
    pub scatter_s: f64,
    /// Exponent of the flux density as a function of frequency.
    pub spectral_index: f64,
}

impl Pulsar {
    pub(super) fn pulse(&self) -> Pulse {
        let Self { dm, width_s, scatter_s, spectral_index, .. } = *self;
        Pulse { dm, width_s, scatter_s, spectral_index }
    }

    fn check(&self, tsamp_s: f64) -> Result<()> {
        let Self { dm, time_s, width_s, snr, scatter_s, spectral_index, period_s } = *self;
        Burst { dm, time_s, width_s, snr, scatter_s, spectral_index }.check()?;
        above_zero("period", period_s, MAX_SECONDS)?;
        if period_s < 2.0 * tsamp_s || period_s < width_s {
            let rule = "it must be at least two samples and not below the pulse's width";
            return Err(Error::parameter("period", period_s, rule));
        }
        Ok(())
    }
}

/// Options of a simulation.
#[derive(Clone, Debug)]
pub struct Options {
    /// Channels.
    pub band: Band,
    /// Sampling time in seconds.
    pub tsamp_s: f64,
    /// Number of rows.
    pub times: u64,
    /// Encoding of the samples.
    pub encoding: Encoding,
    /// Seed of the noise and of all other random numbers.
    pub seed: u64,
    /// Receiver gain over the band.
    pub bandpass: Bandpass,
    /// Single pulses.
    pub bursts: Vec<Burst>,
    /// Periodic pulses.
    pub pulsars: Vec<Pulsar>,
    /// Tones in a few channels.
    pub narrow: Option<NarrowInterference>,
    /// Impulses at DM 0.
    pub broad: Option<BroadInterference>,
    /// Dispersion constant, s MHz^2 pc^-1 cm^3.
    pub dm_constant: f64,
    /// Name of the telescope, for the header.
    pub telescope: String,
    /// Name of the source, for the header.
    pub source_name: String,
    /// Start of the first sample, MJD (UTC).
    pub tstart_mjd: f64,
}

impl Options {
    /// Creates options for noise alone: 8 bit, flat, seed 0.
    pub fn new(band: Band, tsamp_s: f64, times: u64) -> Self {
        Self {
            band,
            tsamp_s,
            times,
            encoding: Encoding::U8,
            seed: 0,
            bandpass: Bandpass::Flat,
            bursts: Vec::new(),
            pulsars: Vec::new(),
            narrow: None,
            broad: None,
            dm_constant: DM_CONSTANT,
            telescope: String::new(),
            source_name: "simulation".to_owned(),
            tstart_mjd: 60000.0,
        }
    }

    pub(super) fn check(&self) -> Result<()> {
        above_zero("--tsamp", self.tsamp_s, MAX_SECONDS)?;
        within("--dm-constant", self.dm_constant, 1.0, 1e6)?;
        let channels = self.band.channels();
        if self.encoding.row_bytes(channels).is_none() {
            let bits = self.encoding.bits();
            let rule = format!("a row of {bits}-bit samples must fill whole bytes");
            return Err(Error::parameter("--channels", channels, rule));
        }
        self.bursts.iter().try_for_each(Burst::check)?;
        self.pulsars.iter().try_for_each(|pulsar| pulsar.check(self.tsamp_s))?;
        if let Some(narrow) = &self.narrow {
            if narrow.channels > channels {
                let rule = format!("there are {channels} channels");
                return Err(Error::parameter("--rfi-narrow", narrow.channels, rule));
            }
            within("strength of --rfi-narrow", narrow.strength, 0.0, 1e6)?;
        }
        if let Some(broad) = &self.broad {
            above_zero("--rfi-broad", broad.rate_hz, MAX_RATE_HZ)?;
            above_zero("S/N of --rfi-broad", broad.snr, 1e9)?;
            above_zero("width of --rfi-broad", broad.width_s, MAX_SECONDS)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options() -> Options {
        Options::new(Band::uniform(1500.0, -1.0, 60).unwrap(), 1e-3, 100)
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
        assert_eq!(fault(|o| o.tsamp_s = f64::NAN), "--tsamp");
        assert_eq!(fault(|o| o.encoding = Encoding::U1), "--channels");
        assert_eq!(fault(|o| o.bursts = vec![Burst::new(-1.0, 0.0, 1e-3, 9.0)]), "dm");
        assert_eq!(fault(|o| o.bursts = vec![Burst::new(1.0, 0.0, 0.0, 9.0)]), "width");
        assert_eq!(fault(|o| o.bursts = vec![Burst::new(1.0, 0.0, 1e-3, f64::NAN)]), "snr");
        let narrow = |o: &mut Options| {
            o.narrow = Some(NarrowInterference { channels: 61, strength: 1.0 });
        };
        assert_eq!(fault(narrow), "--rfi-narrow");
        assert!(options().check().is_ok());
    }
}
