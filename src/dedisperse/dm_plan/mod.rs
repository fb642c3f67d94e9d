//! Plans of trial dispersion measures (DM, in pc cm^-3): ranges of constant step and time binning.
//!
//! Invariant: a plan's ranges ascend, hold at least one trial each and [`MAX_TRIALS`] in all.

mod generate;

pub use generate::{DdplanOptions, ToleranceOptions};

use crate::error::{Error, Result};
use crate::units::{Band, HZ_PER_MHZ};

/// Largest number of trials in a plan.
pub const MAX_TRIALS: usize = 1_000_000;

/// Largest number of samples that a range sums into one time bin.
pub const MAX_DOWNSAMPLE: usize = 4096;

/// Highest DM of a plan, far beyond any known source.
pub const MAX_DM: f64 = 1e6;

/// Fraction of a step by which a range's end may fall short of a whole number of steps.
const ROUNDING: f64 = 1e-6;

/// Range of trials `dm_min + i * dm_step < dm_max`, searched after summing `downsample` samples into one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DmRange {
    /// First trial, pc cm^-3.
    pub dm_min: f64,
    /// End, excluded (unless it equals `dm_min`, the only trial then).
    pub dm_max: f64,
    /// Distance between trials.
    pub dm_step: f64,
    /// Time samples summed into one.
    pub downsample: usize,
}

impl DmRange {
    /// Creates a range without time binning.
    pub fn new(dm_min: f64, dm_max: f64, dm_step: f64) -> Self {
        Self { dm_min, dm_max, dm_step, downsample: 1 }
    }

    /// Returns the number of trials; 0 for a range that no plan accepts.
    pub fn trials(&self) -> usize {
        let steps = (self.dm_max - self.dm_min) / self.dm_step;
        if !steps.is_finite() || steps < 0.0 {
            return 0;
        }
        ((steps - ROUNDING).ceil() as usize).max(1)
    }

    /// Returns the trials, ascending.
    pub fn dms(&self) -> Vec<f64> {
        (0..self.trials()).map(|i| self.dm_min + i as f64 * self.dm_step).collect()
    }

    fn check(&self) -> Result<()> {
        check_limits(self.dm_min, self.dm_max)?;
        if !(self.dm_step > 0.0 && self.dm_step.is_finite()) {
            return Err(Error::parameter("dm_step", self.dm_step, "it must be above 0"));
        }
        if self.downsample == 0 || self.downsample > MAX_DOWNSAMPLE {
            let rule = format!("it must be 1 to {MAX_DOWNSAMPLE}");
            return Err(Error::parameter("downsample", self.downsample, rule));
        }
        if (self.dm_max - self.dm_min) / self.dm_step > MAX_TRIALS as f64 {
            return Err(too_many((self.dm_max - self.dm_min) / self.dm_step));
        }
        Ok(())
    }
}

/// Plan of dispersion measures to search: ascending ranges.
#[derive(Clone, Debug, PartialEq)]
pub struct DmPlan {
    /// Ranges, lowest first.
    pub ranges: Vec<DmRange>,
}

impl DmPlan {
    /// Creates a plan of the given ranges after checking them.
    ///
    /// # Errors
    /// [`Error::Parameter`] for no ranges, a range that is reversed, negative or not finite, a step that is not
    /// positive, ranges that overlap or descend, or more than [`MAX_TRIALS`] trials.
    pub fn from_ranges(ranges: Vec<DmRange>) -> Result<Self> {
        let plan = Self { ranges };
        plan.check()?;
        Ok(plan)
    }

    /// Creates a plan of `(dm_min, dm_max, dm_step)` ranges without time binning.
    ///
    /// # Errors
    /// As [`DmPlan::from_ranges`].
    pub fn fixed(ranges: &[(f64, f64, f64)]) -> Result<Self> {
        Self::from_ranges(ranges.iter().map(|r| DmRange::new(r.0, r.1, r.2)).collect())
    }

    /// Creates a plan of equal steps without time binning, from `dm_min` up to `dm_max`. `dm_max` is the last trial
    /// if it is a whole number of steps away.
    ///
    /// # Errors
    /// As [`DmPlan::from_ranges`].
    pub fn steps(dm_min: f64, dm_max: f64, dm_step: f64) -> Result<Self> {
        let range = DmRange::new(dm_min, dm_max, dm_step);
        range.check()?;
        let steps = ((dm_max - dm_min) / dm_step + ROUNDING).floor();
        let end = dm_min + (steps + 1.0) * dm_step;
        Self::from_ranges(vec![if end > MAX_DM { range } else { DmRange { dm_max: end, ..range } }])
    }

    /// Checks a plan as [`DmPlan::from_ranges`] does; for plans modified by hand.
    ///
    /// # Errors
    /// As [`DmPlan::from_ranges`].
    pub fn check(&self) -> Result<()> {
        if self.ranges.is_empty() {
            return Err(Error::parameter("DM ranges", 0, "there must be at least one"));
        }
        self.ranges.iter().try_for_each(DmRange::check)?;
        for pair in self.ranges.windows(2) {
            if pair[1].dm_min < pair[0].dm_max - ROUNDING * pair[0].dm_step {
                let rule = format!("the range before it ends at {}", pair[0].dm_max);
                return Err(Error::parameter("start of a DM range", pair[1].dm_min, rule));
            }
        }
        let trials = self.trials();
        if trials > MAX_TRIALS { Err(too_many(trials as f64)) } else { Ok(()) }
    }

    /// Returns the number of trials in all ranges.
    pub fn trials(&self) -> usize {
        self.ranges.iter().map(DmRange::trials).sum()
    }

    /// Returns all trials, ascending.
    pub fn dms(&self) -> Vec<f64> {
        self.ranges.iter().flat_map(DmRange::dms).collect()
    }
}

fn too_many(trials: f64) -> Error {
    let rule = format!("there may be {MAX_TRIALS} at most; use a wider step or range");
    Error::parameter("number of DM trials", trials, rule)
}

/// Returns an error unless `0 <= dm_min <= dm_max`, both finite.
fn check_limits(dm_min: f64, dm_max: f64) -> Result<()> {
    if !(dm_min >= 0.0 && dm_min.is_finite()) {
        return Err(Error::parameter("dm_min", dm_min, "it must be 0 or more"));
    }
    if !dm_max.is_finite() || dm_max > MAX_DM {
        return Err(Error::parameter("dm_max", dm_max, format!("it must be at most {MAX_DM}")));
    }
    if dm_max < dm_min {
        let rule = format!("it must not be below `dm_min`, {dm_min}");
        return Err(Error::parameter("dm_max", dm_max, rule));
    }
    Ok(())
}

const MS_PER_S: f64 = 1e3;

/// Smearing of pulses in a band, in the approximation common to DM planners: the slope of the delay at the centre of
/// the band, `smearing = 2 K DM bandwidth / centre^3`.
///
/// # Source
/// Lorimer & Kramer 2005, Handbook of Pulsar Astronomy, the derivative of the delay. dedisp uses this slope, and so
/// did PRESTO's DDplan.py for long; its newest version uses the delay between the band's edges, which is larger for
/// wide bands.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Smearing {
    /// Smearing within one channel, in seconds per unit of DM.
    pub channel_s: f64,
    /// Smearing over the whole band, in seconds per unit of DM.
    pub band_s: f64,
}

impl Smearing {
    /// Computes the smearing of a band.
    pub fn new(band: &Band, dm_constant: f64) -> Self {
        let centre_mhz = band.centre_hz() / HZ_PER_MHZ;
        let slope = 2.0 * dm_constant / centre_mhz.powi(3);
        Self {
            channel_s: slope * band.channel_width_hz() / HZ_PER_MHZ,
            band_s: slope * band.bandwidth_hz() / HZ_PER_MHZ,
        }
    }

    /// Returns the smearing over the band of a pulse half a step away from its trial, in seconds: the worst case.
    pub fn step_s(&self, dm_step: f64) -> f64 {
        0.5 * dm_step * self.band_s
    }
}

/// Range of a plan with its worst smearing (at its highest trial) and its cost.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Range of the plan.
    pub range: DmRange,
    /// Its trials.
    pub dms: Vec<f64>,
    /// Smearing within a channel at the range's highest trial, ms.
    pub channel_ms: f64,
    /// Length of a time bin, ms.
    pub sampling_ms: f64,
    /// Smearing over the band by half a step, in ms.
    pub step_ms: f64,
    /// Root sum of squares of these three, in ms.
    pub total_ms: f64,
    /// Additions of plain dedispersion per second of data.
    pub adds_per_s: f64,
    /// Fraction of the whole plan's additions.
    pub work_fraction: f64,
}

impl DmPlan {
    /// Returns each range with its smearing and cost for a band sampled every `tsamp_s` seconds.
    pub fn rows(&self, band: &Band, tsamp_s: f64, dm_constant: f64) -> Vec<Row> {
        let smearing = Smearing::new(band, dm_constant);
        let rate = band.channels() as f64 / tsamp_s;
        let cost = |range: &DmRange| range.trials() as f64 * rate / range.downsample as f64;
        let work: f64 = self.ranges.iter().map(cost).sum();
        let row = |range: &DmRange| {
            let dms = range.dms();
            let highest = dms.last().copied().unwrap_or(range.dm_min);
            let channel_ms = MS_PER_S * smearing.channel_s * highest;
            let sampling_ms = MS_PER_S * tsamp_s * range.downsample as f64;
            let step_ms = MS_PER_S * smearing.step_s(range.dm_step);
            let total_ms = channel_ms.hypot(sampling_ms).hypot(step_ms);
            Row {
                range: *range,
                dms,
                channel_ms,
                sampling_ms,
                step_ms,
                total_ms,
                adds_per_s: cost(range),
                work_fraction: cost(range) / work,
            }
        };
        self.ranges.iter().map(row).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::DM_CONSTANT;

    #[test]
    fn the_plan_of_the_paper_has_3050_trials() {
        let ranges = [(0.0, 150.0, 0.1), (150.0, 300.0, 0.2), (300.0, 500.0, 0.25)];
        let plan = DmPlan::fixed(&ranges).unwrap();
        let counts: Vec<_> = plan.ranges.iter().map(DmRange::trials).collect();
        assert_eq!(counts, [1500, 750, 800]);
        let dms = plan.dms();
        assert_eq!((dms.len(), plan.trials()), (3050, 3050));
        assert!(dms.windows(2).all(|w| w[0] < w[1]) && dms[3049] < 500.0);
    }

    #[test]
    fn equal_steps_reach_the_highest_dm() {
        let dms = |low, high, step| DmPlan::steps(low, high, step).unwrap().dms();
        let tried = dms(340.0, 360.0, 1.0);
        assert_eq!((tried.len(), tried[0], tried[20]), (21, 340.0, 360.0));
        assert_eq!(dms(0.0, 0.3, 0.1).len(), 4);
        assert_eq!(dms(26.0, 27.0, 0.1).len(), 11);
        assert_eq!(dms(0.0, 10.0, 3.0), [0.0, 3.0, 6.0, 9.0]);
        assert_eq!(dms(56.7, 56.7, 1.0), [56.7]);
        assert_eq!(dms(0.0, 1.0, 5.0), [0.0]);
        assert_eq!(dms(MAX_DM - 2.0, MAX_DM, 1.0).len(), 2, "no range ends beyond");
    }

    #[test]
    fn generated_plans_reach_the_highest_dm_and_go_no_further() {
        let band = Band::uniform(1500.0, -300.0 / 512.0, 512).unwrap();
        for (low, high) in [(0.0, 1000.0), (0.0, 0.01), (12.3, 456.7), (0.0, 9866.0), (5.0, 5.0)] {
            for coherent_dm in [None, Some(200.0), Some(456.7), Some(2000.0)] {
                let levin = ToleranceOptions { coherent_dm, ..Default::default() };
                let presto = DdplanOptions { coherent_dm, ..Default::default() };
                for plan in [
                    DmPlan::tolerance(&band, 256e-6, low, high, &levin).unwrap(),
                    DmPlan::ddplan(&band, 256e-6, low, high, &presto).unwrap(),
                ] {
                    let dms = plan.dms();
                    assert_eq!(dms[0], low);
                    let over = dms[dms.len() - 1] - high;
                    assert!((0.0..=1e-9 * high).contains(&over), "{high} by {over}: {plan:?}");
                    assert!(dms.windows(2).all(|pair| pair[0] < pair[1]));
                }
            }
        }
    }

    #[test]
    fn one_trial_is_a_plan() {
        assert_eq!(DmPlan::fixed(&[(56.7, 56.7, 1.0)]).unwrap().dms(), [56.7]);
    }

    #[test]
    fn faulty_ranges_are_refused_by_name() {
        let nan = f64::NAN;
        let faults = [
            ([(10.0, 5.0, 1.0), (20.0, 30.0, 1.0)], "dm_max"),
            ([(-1.0, 5.0, 1.0), (20.0, 30.0, 1.0)], "dm_min"),
            ([(nan, 5.0, 1.0), (20.0, 30.0, 1.0)], "dm_min"),
            ([(0.0, nan, 1.0), (20.0, 30.0, 1.0)], "dm_max"),
            ([(0.0, f64::INFINITY, 1.0), (20.0, 30.0, 1.0)], "dm_max"),
            ([(0.0, 5.0, 0.0), (20.0, 30.0, 1.0)], "dm_step"),
            ([(0.0, 5.0, nan), (20.0, 30.0, 1.0)], "dm_step"),
            ([(0.0, 5.0, -1.0), (20.0, 30.0, 1.0)], "dm_step"),
            ([(0.0, 5.0, 1e-7), (20.0, 30.0, 1.0)], "number of DM trials"),
            ([(0.0, 25.0, 1.0), (20.0, 30.0, 1.0)], "start of a DM range"),
        ];
        for (ranges, option) in faults {
            match DmPlan::fixed(&ranges) {
                Err(Error::Parameter { name, .. }) => assert_eq!(name, option, "{ranges:?}"),
                other => panic!("{ranges:?} gave {other:?}"),
            }
        }
        assert!(DmPlan::fixed(&[]).is_err());
        let halves = [(0.0, 50.0, 0.00008), (50.0, 100.0, 0.00008)];
        assert!(DmPlan::fixed(&halves).is_err(), "too many in all");
        let binned = DmRange { downsample: 0, ..DmRange::new(0.0, 1.0, 0.1) };
        assert!(DmPlan::from_ranges(vec![binned]).is_err());
    }

    #[test]
    fn rows_add_up() {
        let band = Band::uniform(1549.8, -0.29296875, 1024).unwrap();
        let plan = DmPlan::fixed(&[(0.0, 150.0, 0.1), (150.0, 300.0, 0.2)]).unwrap();
        let rows = plan.rows(&band, 64e-6, DM_CONSTANT);
        assert_eq!(rows[0].adds_per_s, 1500.0 * 1024.0 / 64e-6);
        let fractions: f64 = rows.iter().map(|row| row.work_fraction).sum();
        assert!((fractions - 1.0).abs() < 1e-12);
        assert!((rows[1].sampling_ms - 0.064).abs() < 1e-12);
        assert!(rows.iter().all(|r| r.total_ms > r.channel_ms.max(r.sampling_ms).max(r.step_ms)));
        let slope = 8.297616e6 * 0.29296875 / 1400.0f64.powi(3);
        assert!((rows[1].channel_ms / (slope * 299.8) - 1.0).abs() < 1e-3);
    }
}
