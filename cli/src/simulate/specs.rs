//! Parsers of bursts and pulsars from the command line.

use clap::Args;
use sidereal::simulate::burst::{Burst, Pulsar};
use sidereal::{Error, Result};

use crate::fields::Fields;

const WIDTH_S: f64 = 0.002;
const BURST_SNR: f64 = 20.0;
const PULSE_SNR: f64 = 5.0;
const DUTY: f64 = 0.05;

/// Options of a single burst.
#[derive(Args, Clone, Debug)]
pub(super) struct Single {
    /// DM of a burst, in pc cm^-3.
    #[arg(long, value_name = "DM", allow_negative_numbers = true, help_heading = "Signals")]
    dm: Option<f64>,
    /// Time of the burst, in seconds [default: a quarter of the length].
    #[arg(
        long,
        value_name = "SECONDS",
        allow_negative_numbers = true,
        requires = "dm",
        help_heading = "Signals"
    )]
    time: Option<f64>,
    /// Width of the burst in seconds [default: 0.002].
    ///
    /// Full width at half maximum, before scattering and smearing.
    #[arg(
        long,
        value_name = "SECONDS",
        allow_negative_numbers = true,
        requires = "dm",
        help_heading = "Signals"
    )]
    width: Option<f64>,
    /// S/N of the burst [default: 20].
    #[arg(
        long,
        value_name = "SNR",
        allow_negative_numbers = true,
        requires = "dm",
        help_heading = "Signals"
    )]
    snr: Option<f64>,
    /// Scattering time of the burst at 1 GHz, in seconds; scales as frequency to the power -4 [default: 0].
    #[arg(
        long,
        value_name = "SECONDS",
        allow_negative_numbers = true,
        requires = "dm",
        help_heading = "Signals"
    )]
    scatter: Option<f64>,
    /// Spectral index of the burst: brightness scales as frequency to this power [default: 0].
    #[arg(
        long,
        value_name = "INDEX",
        requires = "dm",
        allow_negative_numbers = true,
        help_heading = "Signals"
    )]
    index: Option<f64>,
}

impl Single {
    /// Returns the burst, if `--dm` was given.
    pub(super) fn burst(&self, duration_s: f64) -> Result<Option<Burst>> {
        let Some(dm) = self.dm else { return Ok(None) };
        let time_s = self.time.unwrap_or(0.25 * duration_s);
        if !time_s.is_finite() {
            return Err(Error::parameter("--time", time_s, "it must be finite"));
        }
        Ok(Some(Burst {
            dm,
            time_s,
            width_s: self.width.unwrap_or(WIDTH_S),
            snr: self.snr.unwrap_or(BURST_SNR),
            scatter_s: self.scatter.unwrap_or(0.0),
            spectral_index: self.index.unwrap_or(0.0),
        }))
    }
}

/// Parses a burst from `dm=500,time=3,...`.
pub(super) fn burst(text: &str) -> Result<Burst> {
    let names = ["dm", "time", "width", "snr", "scatter", "index"];
    let fields = Fields::parse("--burst", text, &names)?;
    Ok(Burst {
        dm: fields.need("dm")?,
        time_s: fields.need("time")?,
        width_s: fields.or("width", WIDTH_S),
        snr: fields.or("snr", BURST_SNR),
        scatter_s: fields.or("scatter", 0.0),
        spectral_index: fields.or("index", 0.0),
    })
}

/// Parses a pulsar from `period=0.089,dm=68,...`; its width is the given one, or follows from the duty cycle.
pub(super) fn pulsar(text: &str) -> Result<Pulsar> {
    let names = ["period", "dm", "width", "duty", "snr", "time", "scatter", "index"];
    let fields = Fields::parse("--pulsar", text, &names)?;
    let period_s = fields.need("period")?;
    Ok(Pulsar {
        period_s,
        dm: fields.need("dm")?,
        width_s: fields.or("width", fields.or("duty", DUTY) * period_s),
        snr: fields.or("snr", PULSE_SNR),
        time_s: fields.or("time", 0.5 * period_s),
        scatter_s: fields.or("scatter", 0.0),
        spectral_index: fields.or("index", 0.0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn specs_have_defaults_and_needs() {
        let burst = burst("dm=500,time=3,index=-1.5").unwrap();
        assert_eq!((burst.dm, burst.width_s, burst.spectral_index), (500.0, WIDTH_S, -1.5));
        assert!(super::burst("dm=500").is_err() && super::burst("time=3").is_err());
        let pulsar = pulsar("period=0.1,dm=68,duty=0.1").unwrap();
        assert!((pulsar.width_s - 0.01).abs() < 1e-12);
        assert!(super::pulsar("dm=68").is_err());
    }
}
