//! Options that describe a band and its sampling without a recording.

use clap::Args;
use sidereal::simulate::Telescope;
use sidereal::units::Band;
use sidereal::{Error, Result};

/// Band from a survey's name, from numbers, or from both: given numbers override the survey's.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct BandArguments {
    /// Survey whose band and sampling to use, such as `chime-frb` or `parkes-superb-f`; a wrong name lists all.
    #[arg(long, value_name = "NAME", help_heading = "Band")]
    pub(crate) telescope: Option<String>,
    /// Centre of the first channel, in MHz.
    #[arg(long, value_name = "MHZ", allow_negative_numbers = true, help_heading = "Band")]
    pub(crate) fch1: Option<f64>,
    /// Frequency step between channels, in MHz; negative if the first channel is the highest.
    #[arg(long, value_name = "MHZ", allow_negative_numbers = true, help_heading = "Band")]
    pub(crate) foff: Option<f64>,
    /// Number of channels.
    #[arg(long, value_name = "COUNT", allow_negative_numbers = true, help_heading = "Band")]
    pub(crate) channels: Option<usize>,
    /// Sampling time, in seconds: 64e-6 is 64 microseconds.
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true, help_heading = "Band")]
    pub(crate) tsamp: Option<f64>,
}

/// Band with its sampling time, and its survey.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    pub(crate) band: Band,
    pub(crate) tsamp_s: f64,
    pub(crate) telescope: Option<&'static Telescope>,
}

impl BandArguments {
    /// Returns whether any of the options was given.
    pub(crate) fn given(&self) -> bool {
        self.telescope.is_some()
            || self.fch1.is_some()
            || self.foff.is_some()
            || self.channels.is_some()
            || self.tsamp.is_some()
    }

    /// Returns the band that the options describe.
    ///
    /// # Errors
    /// [`Error::Parameter`] for an unknown survey, a missing number or one out of range.
    pub(crate) fn setup(&self) -> Result<Setup> {
        let telescope = self.telescope.as_deref().map(Telescope::by_name).transpose()?;
        let tsamp_s = match (self.tsamp, telescope) {
            (Some(tsamp), _) => tsamp,
            (None, Some(telescope)) => telescope.tsamp_s(),
            (None, None) => return Err(missing("--tsamp")),
        };
        if !(1e-9..=86_400.0).contains(&tsamp_s) {
            let rule = "it must be a positive time, 1e-9 to 86400 s";
            return Err(Error::parameter("--tsamp", tsamp_s, rule));
        }
        let survey = telescope.map(Telescope::band).transpose()?;
        let survey = survey.as_ref();
        let number = |given: Option<f64>, of: fn(&Band) -> f64, name| {
            given.or_else(|| survey.map(of)).ok_or_else(|| missing(name))
        };
        let fch1 = number(self.fch1, Band::fch1_mhz, "--fch1")?;
        let foff = number(self.foff, Band::foff_mhz, "--foff")?;
        let channels = self.channels.or_else(|| survey.map(Band::channels));
        let channels = channels.ok_or_else(|| missing("--channels"))?;
        let untouched = self.fch1.is_none() && self.foff.is_none() && self.channels.is_none();
        let band = match survey {
            Some(band) if untouched => band.clone(),
            _ => Band::uniform(fch1, foff, channels)?,
        };
        Ok(Setup { band, tsamp_s, telescope })
    }
}

fn missing(name: &'static str) -> Error {
    let rule = "it is needed (with the others of --fch1, --foff, --channels and --tsamp) where no \
                --telescope and no recording gives the band";
    Error::parameter(name, "missing", rule)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_survey_gives_what_is_not_given() {
        let named = |name: &str| BandArguments {
            telescope: Some(name.to_owned()),
            ..BandArguments::default()
        };
        let setup = named("Parkes SUPERB F").setup().unwrap();
        assert_eq!((setup.band.channels(), setup.tsamp_s), (1024, 64e-6));
        let changed = BandArguments { channels: Some(64), tsamp: Some(1e-3), ..named("chime") };
        let setup = changed.setup().unwrap();
        assert_eq!((setup.band.channels(), setup.tsamp_s), (64, 1e-3));
        assert!(named("nowhere").setup().is_err());
    }

    #[test]
    fn missing_numbers_are_named() {
        let some = BandArguments { tsamp: Some(1e-3), ..BandArguments::default() };
        let error = some.setup().unwrap_err().to_string();
        assert!(error.contains("--fch1"), "{error}");
        assert!(BandArguments::default().setup().is_err());
    }
}
