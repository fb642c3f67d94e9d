//! The options that choose trial dispersion measures.

use std::path::PathBuf;

use clap::Args;
use sidereal::dedisperse::dm_plan::{DmPlan, DmRange, ToleranceOptions};
use sidereal::io::FilterbankHeader;
use sidereal::units::DM_CONSTANT;
use sidereal::{Error, Result};

/// Which dispersion measures are tried.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Trial dispersion measures")]
pub(crate) struct Trials {
    /// Lowest trial, pc cm^-3.
    #[arg(long, value_name = "DM", default_value_t = 0.0, allow_negative_numbers = true)]
    dm_min: f64,
    /// End of the trials, pc cm^-3.
    #[arg(long, value_name = "DM", default_value_t = 2000.0, allow_negative_numbers = true)]
    dm_max: f64,
    /// Trials at this distance, without time binning.
    #[arg(long, value_name = "DM", conflicts_with = "dm_tol", allow_negative_numbers = true)]
    dm_step: Option<f64>,
    /// Trials as far apart as widens a pulse by this factor at most, with time binning to match.
    #[arg(long, value_name = "FACTOR", default_value_t = 1.25, allow_negative_numbers = true)]
    dm_tol: f64,
    /// Trials of a file that `sidereal plan` wrote.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["dm_min", "dm_max", "dm_step", "dm_tol"])]
    plan: Option<PathBuf>,
    /// Dispersion constant, s MHz^2 pc^-1 cm^3 (PRESTO has 1/2.41e-4, SIGPROC 4148.741601).
    #[arg(long, value_name = "K", default_value_t = DM_CONSTANT)]
    pub(crate) dm_constant: f64,
}

impl Trials {
    /// The trials for a recording.
    pub(crate) fn plan(&self, header: &FilterbankHeader) -> Result<DmPlan> {
        if !(self.dm_constant > 0.0 && self.dm_constant.is_finite()) {
            return Err(Error::parameter("--dm-constant", self.dm_constant, "it must be above 0"));
        }
        if let Some(path) = &self.plan {
            return crate::plan::read(path);
        }
        if let Some(step) = self.dm_step {
            return DmPlan::from_ranges(vec![DmRange::new(self.dm_min, self.dm_max, step)]);
        }
        let options = ToleranceOptions {
            tolerance: self.dm_tol,
            dm_constant: self.dm_constant,
            ..ToleranceOptions::default()
        };
        DmPlan::tolerance(&header.band, header.tsamp_s, self.dm_min, self.dm_max, &options)
    }
}
