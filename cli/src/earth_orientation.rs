//! `--earth-orientation`: a table of UT1 and polar motion newer than the built-in one.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use sidereal::geometry::{Dut1, OrientationDay, OrientationTable};
use sidereal::io::read_earth_orientation;
use sidereal::units::Epoch;
use sidereal::{Error, Result};

use crate::common::Common;
use crate::say::warning;
use crate::selection::file_name;

/// Option for a table.
#[derive(Args, Clone, Debug)]
pub(crate) struct EarthOrientation {
    /// Table of UT1 and polar motion from the IERS: finals2000A.all (or .data, .daily) or finals.all.
    ///
    /// It replaces the built-in table from its first day on (https://datacenter.iers.org). After a table's last day
    /// its last values are used, with a warning.
    #[arg(long, value_name = "FILE", help_heading = "Sky")]
    pub(crate) earth_orientation: Option<PathBuf>,
}

impl EarthOrientation {
    /// Returns the source of UT1 - UTC; `given` is the value of `--dut1`.
    ///
    /// # Errors
    /// As [`read_earth_orientation`] and [`OrientationTable::new`].
    pub(crate) fn dut1(&self, given: Option<f64>) -> Result<Dut1> {
        let Some(path) = &self.earth_orientation else {
            return Ok(given.map_or(Dut1::Table, Dut1::Given));
        };
        let table = read_earth_orientation(path)?;
        let days: Vec<_> = table
            .days
            .iter()
            .map(|(ut1_utc_s, pole)| OrientationDay { ut1_utc_s: *ut1_utc_s, pole_arcsec: *pole })
            .collect();
        let last = table.first + days.len() as i64 - 1;
        let measured = table.measured.map_or("all".to_owned(), |day| format!("after {day}"));
        let about = format!(
            "{}: UT1-UTC and the pole, MJD {} to {last}, predicted {measured}",
            file_name(path),
            table.first
        );
        let table =
            OrientationTable::new(about, table.first, &days).map_err(|error| match error {
                Error::Parameter { value, rule, .. } => {
                    Error::format(path, "days", 0, format!("found {value}, but {rule}"))
                }
                other => other,
            })?;
        Ok(Dut1::Newer(Arc::new(table)))
    }

    /// Returns the file, if given.
    pub(crate) fn file(&self) -> Option<PathBuf> {
        self.earth_orientation.clone()
    }
}

/// Warns of observations that end after the last day of the table in use.
pub(crate) fn warn(dut1: &Dut1, (start, length_s): (Epoch, f64), common: &Common) {
    let end = Epoch::new(start.day, start.seconds + length_s);
    let Some(last) = dut1.last_day().filter(|last| start.day > 0 && end.day >= *last) else {
        return;
    };
    warning!(quiet: common.quiet,
        "the observation ends on MJD {}, and the table of UT1 and the pole ends with MJD {last}, whose values are taken \
         from then on; --earth-orientation FILE gives a newer one (finals2000A.all of the IERS).",
        end.day
    );
}
