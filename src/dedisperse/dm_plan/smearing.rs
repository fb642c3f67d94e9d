//! Smearing and cost of each range of a plan.

use super::{DmPlan, DmRange};
use crate::units::{Band, HZ_PER_MHZ};

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
            let adds_per_s = cost(range);
            let work_fraction = adds_per_s / work;
            let range = *range;
            Row {
                range,
                dms,
                channel_ms,
                sampling_ms,
                step_ms,
                total_ms,
                adds_per_s,
                work_fraction,
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
