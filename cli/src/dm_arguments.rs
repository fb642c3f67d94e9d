//! Options that choose the trial dispersion measures.

use std::path::PathBuf;

use clap::Args;
use sidereal::dedisperse::dm_plan::{DdplanOptions, DmPlan, DmRange, ToleranceOptions};
use sidereal::units::Band;
use sidereal::{Error, Result};

use crate::dm_plan_file;

/// Limits where none are given, in pc cm^-3.
const DM_MIN: f64 = 0.0;
const DM_MAX: f64 = 2000.0;

/// Which dispersion measures are tried: by tolerance, unless another way is asked for.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct DmArguments {
    /// Lowest dispersion measure, in pc cm^-3 [default: 0, or the survey's].
    #[arg(
        long,
        value_name = "DM",
        allow_negative_numbers = true,
        help_heading = "Dispersion measures"
    )]
    pub(crate) dm_min: Option<f64>,
    /// Highest dispersion measure [default: 2000, or the survey's].
    #[arg(
        long,
        value_name = "DM",
        allow_negative_numbers = true,
        help_heading = "Dispersion measures"
    )]
    pub(crate) dm_max: Option<f64>,
    /// Trials this far apart, without time binning.
    #[arg(
        long,
        value_name = "DM",
        allow_negative_numbers = true,
        group = "way",
        help_heading = "Dispersion measures"
    )]
    pub(crate) dm_step: Option<f64>,
    /// Trials as far apart as widens a pulse by this factor, as Heimdall's [default: 1.25].
    #[arg(
        long,
        value_name = "FACTOR",
        allow_negative_numbers = true,
        group = "way",
        help_heading = "Dispersion measures"
    )]
    pub(crate) dm_tol: Option<f64>,
    /// Width of the narrowest pulse that --dm-tol keeps, in seconds [default: 40e-6].
    #[arg(
        long,
        value_name = "SECONDS",
        allow_negative_numbers = true,
        help_heading = "Dispersion measures"
    )]
    pub(crate) pulse_width: Option<f64>,
    /// With --dm-tol, factor by which adding samples may widen a pulse; 1 adds none [default: 1.15].
    #[arg(
        long,
        value_name = "FACTOR",
        allow_negative_numbers = true,
        help_heading = "Dispersion measures"
    )]
    pub(crate) downsample_tol: Option<f64>,
    /// Balance sampling, channel and step smearing as PRESTO's DDplan.py does.
    #[arg(long, group = "way", help_heading = "Dispersion measures")]
    pub(crate) ddplan: bool,
    /// With --ddplan, the time resolution that is good enough, in seconds [default: the data's].
    #[arg(
        long,
        value_name = "SECONDS",
        allow_negative_numbers = true,
        requires = "ddplan",
        help_heading = "Dispersion measures"
    )]
    pub(crate) time_res: Option<f64>,
    /// Fixed ranges A:B:STEP or A:B:STEP:DOWNSAMPLE: 0:150:0.1,150:300:0.2:2.
    #[arg(long, value_name = "RANGES", group = "way", help_heading = "Dispersion measures")]
    pub(crate) ranges: Option<String>,
    /// A plan that `sidereal plan --toml` wrote.
    #[arg(long, value_name = "FILE", group = "way", help_heading = "Dispersion measures")]
    pub(crate) plan: Option<PathBuf>,
}

impl DmArguments {
    /// The plan for a band; `limits` are the survey's, if one was named.
    ///
    /// # Errors
    /// [`Error::Parameter`] naming the option, or what [`dm_plan_file::read`] finds.
    pub(crate) fn plan(
        &self,
        band: &Band,
        tsamp_s: f64,
        limits: Option<(f64, f64)>,
        dm_constant: f64,
    ) -> Result<DmPlan> {
        if self.plan.is_some() || self.ranges.is_some() {
            return self.given();
        }
        let (low, high) = limits.unwrap_or((DM_MIN, DM_MAX));
        let (low, high) = (self.dm_min.unwrap_or(low), self.dm_max.unwrap_or(high));
        if let Some(step) = self.dm_step {
            return DmPlan::fixed(&[(low, high, step)]);
        }
        if self.ddplan {
            let time_resolution_s = self.time_res.unwrap_or(0.0);
            let options = DdplanOptions { time_resolution_s, dm_constant };
            return DmPlan::ddplan(band, tsamp_s, low, high, &options);
        }
        let usual = ToleranceOptions::default();
        let options = ToleranceOptions {
            tolerance: self.dm_tol.unwrap_or(usual.tolerance),
            pulse_width_s: self.pulse_width.unwrap_or(usual.pulse_width_s),
            downsample_tolerance: self.downsample_tol.unwrap_or(usual.downsample_tolerance),
            dm_constant,
        };
        DmPlan::tolerance(band, tsamp_s, low, high, &options)
    }

    /// The plan of a file or of --ranges, which have limits of their own.
    fn given(&self) -> Result<DmPlan> {
        for (name, value) in [("--dm-min", self.dm_min), ("--dm-max", self.dm_max)] {
            if let Some(value) = value {
                let rule = "--plan and --ranges have limits of their own";
                return Err(Error::parameter(name, value, rule));
            }
        }
        match (&self.plan, &self.ranges) {
            (Some(path), _) => dm_plan_file::read(path),
            (None, text) => fixed(text.as_deref().unwrap_or_default()),
        }
    }

    /// The way in words, for tables and files.
    pub(crate) fn way(&self) -> String {
        match (&self.plan, &self.ranges, self.dm_step, self.ddplan) {
            (Some(path), ..) => format!("plan of {}", path.display()),
            (_, Some(_), ..) => "fixed ranges".to_owned(),
            (.., Some(step), _) => format!("steps of {step}"),
            (.., true) => "balanced as PRESTO's DDplan".to_owned(),
            _ => format!("by tolerance {}", self.dm_tol.unwrap_or(1.25)),
        }
    }
}

/// Ranges from `A:B:STEP[:DOWNSAMPLE],...`.
fn fixed(text: &str) -> Result<DmPlan> {
    let range = |part: &str| {
        let wrong = || {
            let rule = "each range has the form A:B:STEP or A:B:STEP:DOWNSAMPLE";
            Error::parameter("--ranges", part, rule)
        };
        let words: Vec<&str> = part.split(':').map(str::trim).collect();
        let number = |word: &str| word.parse::<f64>().map_err(|_| wrong());
        let (limits, downsample) = match words.as_slice() {
            [low, high, step] => ([*low, *high, *step], 1),
            [low, high, step, samples] => {
                ([*low, *high, *step], samples.parse().map_err(|_| wrong())?)
            }
            _ => return Err(wrong()),
        };
        let [low, high, step] = limits.map(number);
        Ok(DmRange { downsample, ..DmRange::new(low?, high?, step?) })
    };
    DmPlan::from_ranges(text.split(',').map(range).collect::<Result<_>>()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn band() -> Band {
        Band::uniform(1500.0, -1.0, 256).unwrap()
    }

    #[test]
    fn ranges_of_the_paper() {
        let plan = fixed("0:150:0.1,150:300:0.2,300:500:0.25:2").unwrap();
        assert_eq!((plan.trials(), plan.ranges[2].downsample), (3050, 2));
        for bad in ["", "1:2", "a:b:c", "0:1:0.1:x", "5:1:1", "0:1:0.1,"] {
            assert!(fixed(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn each_way_makes_its_plan() {
        let plan = |arguments: DmArguments| arguments.plan(&band(), 1e-3, None, 4148.808);
        let usual = DmArguments::default();
        assert_eq!(plan(usual.clone()).unwrap().ranges.last().unwrap().dm_max, 2000.0);
        let step = DmArguments { dm_step: Some(1.0), dm_max: Some(50.0), ..usual.clone() };
        assert_eq!(plan(step).unwrap().trials(), 50);
        let balanced = DmArguments { ddplan: true, ..usual.clone() };
        assert!(plan(balanced).unwrap().ranges.len() > 1);
        let both = DmArguments { ranges: Some("0:1:1".to_owned()), dm_min: Some(1.0), ..usual };
        assert!(plan(both).is_err());
    }
}
