//! Parsers of tones, pulses and gaps from the command line.

use sidereal::simulate::voltages::{Carrier, Options, Polarization, Pulse, Tone};
use sidereal::units::HZ_PER_MHZ;
use sidereal::{Error, Result};

use crate::fields::Fields;

const WIDTH_S: f64 = 0.001;
const SNR: f64 = 20.0;

/// Parses a tone from `freq=1420.4,amp=0.1,...`; `rms` is the noise's.
pub(super) fn tone(text: &str, rms: f64) -> Result<Tone> {
    let names = ["freq", "amp", "counts", "phase", "ratio", "delta"];
    let fields = Fields::parse("--tone", text, &names)?;
    let amplitude = match (fields.get("amp"), fields.get("counts")) {
        (Some(_), Some(_)) => {
            let rule = "its strength is either amp (noise rms) or counts, not both";
            return Err(Error::parameter("--tone", text, rule));
        }
        (None, Some(counts)) => counts / rms,
        (amplitude, None) => amplitude.unwrap_or(1.0),
    };
    Ok(Tone {
        frequency_hz: fields.need("freq")? * HZ_PER_MHZ,
        amplitude,
        phase_rad: fields.or("phase", 0.0).to_radians(),
        second_ratio: fields.or("ratio", 1.0),
        second_phase_rad: fields.or("delta", 0.0).to_radians(),
    })
}

/// Parses a pulse from `dm=50,time=0.2,...`; a width of 0 is an impulse.
pub(super) fn pulse(text: &str) -> Result<Pulse> {
    let names = ["dm", "time", "width", "snr", "linear", "angle", "circular"];
    let fields = Fields::parse("--pulse", text, &names)?;
    let width_s = fields.or("width", WIDTH_S);
    let carrier = if width_s == 0.0 { Carrier::Impulse } else { Carrier::Noise { width_s } };
    Ok(Pulse {
        dm: fields.need("dm")?,
        time_s: fields.need("time")?,
        snr: fields.or("snr", SNR),
        carrier,
        polarization: Polarization {
            linear: fields.or("linear", 0.0),
            angle_rad: fields.or("angle", 0.0).to_radians(),
            circular: fields.or("circular", 0.0),
        },
    })
}

/// Parses a gap from `start=0.1,duration=0.02`: its first sample and length, both filling whole bytes.
pub(super) fn gap(text: &str, options: &Options) -> Result<(u64, u64)> {
    let fields = Fields::parse("--gap", text, &["start", "duration"])?;
    let (start, duration) = (fields.need("start")?, fields.need("duration")?);
    let end = options.times as f64 * options.tsamp_s();
    if !(start >= 0.0 && duration > 0.0 && start + duration <= end * (1.0 + 1e-9)) {
        let rule = format!("it must have a length and lie in the recording, 0 to {end} s");
        return Err(Error::parameter("--gap", text, rule));
    }
    let start = whole_samples(start, options).min(options.times);
    let times = whole_samples(duration, options).min(options.times - start);
    if times == 0 {
        let rule = format!("a sample lasts {:e} s", options.tsamp_s());
        return Err(Error::parameter("--gap", text, rule));
    }
    Ok((start, times))
}

/// Rounds a time to the nearest number of samples that fills whole bytes.
pub(super) fn whole_samples(seconds: f64, options: &Options) -> u64 {
    let whole = options.encoding.samples_per_byte() as u64;
    (seconds / options.tsamp_s() / whole as f64).round() as u64 * whole
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn specs_have_defaults_and_needs() {
        let found = tone("freq=1420.4,counts=4,phase=90", 8.0).unwrap();
        assert_eq!((found.frequency_hz, found.amplitude), (1420.4e6, 0.5));
        assert!((found.phase_rad - std::f64::consts::FRAC_PI_2).abs() < 1e-12);
        assert!(tone("amp=1", 8.0).is_err() && tone("freq=1,amp=1,counts=1", 8.0).is_err());
        let found = pulse("dm=50,time=0.2").unwrap();
        assert_eq!((found.carrier, found.snr), (Carrier::Noise { width_s: WIDTH_S }, SNR));
        assert_eq!(pulse("dm=50,time=0.2,width=0").unwrap().carrier, Carrier::Impulse);
        assert!(pulse("dm=50").is_err() && pulse("time=1").is_err());
    }

    #[test]
    fn gaps_are_whole_samples_of_the_recording() {
        let options = Options::new(1400e6, 1e6, 1, 1000);
        assert_eq!(gap("start=1e-4,duration=5e-4", &options).unwrap(), (100, 500));
        assert!(gap("start=1e-4,duration=9.1e-4", &options).is_err());
        assert!(gap("start=-1e-4,duration=5e-4", &options).is_err());
        assert!(gap("start=0,duration=1e-9", &options).is_err());
    }
}
