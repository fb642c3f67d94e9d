//! DM plans that balance sampling, channel smearing and the DM step, like PRESTO's DDplan.py.

use super::{
    DmPlan, DmRange, MAX_DOWNSAMPLE, Smearing, around, check_coherent_dm, check_limits, check_tsamp,
};
use crate::error::{Error, Result};
use crate::units::{Band, DM_CONSTANT};

/// Permitted steps: 1, 2, 3 and 5 times a power of ten.
const STEPS: [f64; 19] = [
    0.01, 0.02, 0.03, 0.05, 0.1, 0.2, 0.3, 0.5, 1.0, 2.0, 3.0, 5.0, 10.0, 20.0, 30.0, 50.0, 100.0,
    200.0, 300.0,
];

/// Time scales within this factor count as equal.
const SOFTNESS: f64 = 1.2;

/// Factor by which the channel smearing exceeds all other smearing at the end of a range.
const SMEARING_FACTOR: f64 = 2.0;

/// Options of [`DmPlan::ddplan`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DdplanOptions {
    /// Acceptable time resolution in seconds; 0 selects the best of the data.
    pub time_resolution_s: f64,
    /// Dispersion constant, s MHz^2 pc^-1 cm^3.
    pub dm_constant: f64,
    /// DM removed within channels before detection, if any: channel smearing grows with the distance from it. It is
    /// one of the trials if it is within the limits.
    pub coherent_dm: Option<f64>,
}

impl Default for DdplanOptions {
    fn default() -> Self {
        Self { time_resolution_s: 0.0, dm_constant: DM_CONSTANT, coherent_dm: None }
    }
}

impl DmPlan {
    /// Balances sampling time, smearing within a channel and smearing by the DM step.
    ///
    /// A range starts with the step (1, 2, 3 or 5 times a power of ten) that smears about one time bin over the band.
    /// It ends where the channel smearing is twice all other smearing. The next range has bins of twice the length,
    /// and so a wider step.
    ///
    /// # Errors
    /// [`Error::Parameter`] for limits that are reversed, negative or not finite, a sampling time, resolution or
    /// coherent DM out of range, or too many trials.
    /// # Source
    /// S. Ransom, PRESTO, DDplan.py (`dm_steps`, without subbands): the balance, its factors 1.2 and 2 and its list
    /// of steps. This version bins in powers of two and narrows the last range's steps so that it ends with the trial
    /// `dm_max`.
    pub fn ddplan(
        band: &Band,
        tsamp_s: f64,
        dm_min: f64,
        dm_max: f64,
        options: &DdplanOptions,
    ) -> Result<Self> {
        check_limits(dm_min, dm_max)?;
        check_tsamp(tsamp_s)?;
        let resolution = options.time_resolution_s;
        if !(resolution >= 0.0 && resolution.is_finite()) {
            return Err(Error::parameter("--time-res", resolution, "it must be 0 s or more"));
        }
        let centre = check_coherent_dm(options.coherent_dm)?;
        let smearing = Smearing::new(band, options.dm_constant);
        let balance = Balance { smearing, tsamp_s };
        let side = |low, high| balance.ranges(low, high, resolution);
        Self::from_ranges(around(centre, (dm_min, dm_max), side))
    }
}

struct Balance {
    smearing: Smearing,
    tsamp_s: f64,
}

impl Balance {
    /// Returns the ranges of a plan; DMs count from the one without smearing within channels.
    fn ranges(&self, dm_min: f64, dm_max: f64, resolution_s: f64) -> Vec<DmRange> {
        let mut downsample = self.first_downsample(dm_min, resolution_s);
        let mut step = self.first_step(downsample);
        let mut ranges = vec![self.range(dm_min, dm_max, STEPS[step], downsample)];
        while let Some(last) = ranges.last().filter(|range| range.dm_max < dm_max) {
            let start = last.dm_max;
            downsample = (2 * downsample).min(MAX_DOWNSAMPLE);
            step = self.widen(step, downsample);
            ranges.push(self.range(start, dm_max, STEPS[step], downsample));
        }
        ranges
    }

    fn bin_s(&self, downsample: usize) -> f64 {
        self.tsamp_s * downsample as f64
    }

    /// Returns the binning at the lowest DM: the largest that channel smearing and the required resolution allow.
    fn first_downsample(&self, dm_min: f64, resolution_s: f64) -> usize {
        let channel_s = self.smearing.channel_s * dm_min;
        let step_s = self.smearing.step_s(STEPS[0]);
        let wanted = resolution_s.max(channel_s).max(step_s).max(self.tsamp_s);
        let wanted = wanted.max(SOFTNESS * channel_s);
        let mut downsample = 1;
        while 2 * downsample <= MAX_DOWNSAMPLE && self.bin_s(2 * downsample) < wanted {
            downsample *= 2;
        }
        downsample
    }

    /// Returns the index of the widest listed step that smears about one bin.
    fn first_step(&self, downsample: usize) -> usize {
        self.widen(0, downsample)
    }

    /// Returns the index of the widest listed step, at least `step`, that smears less than about one bin.
    fn widen(&self, mut step: usize, downsample: usize) -> usize {
        let limit = SOFTNESS * self.bin_s(downsample);
        while step + 1 < STEPS.len() && self.smearing.step_s(STEPS[step + 1]) < limit {
            step += 1;
        }
        step
    }

    /// Returns the range from `start` to the DM where the next binning takes over, in whole steps.
    fn range(&self, start: f64, dm_max: f64, dm_step: f64, downsample: usize) -> DmRange {
        let bin_s = self.bin_s(downsample);
        let others = self.tsamp_s.hypot(bin_s).hypot(self.smearing.step_s(dm_step));
        let crossing = SMEARING_FACTOR * others / self.smearing.channel_s;
        let last = downsample == MAX_DOWNSAMPLE;
        let steps = ((crossing - start) / dm_step).ceil().max(1.0);
        let end = start + steps * dm_step;
        let dm_max = if last || end > dm_max { dm_max } else { end };
        DmRange { dm_min: start, dm_max, dm_step, downsample }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn band() -> Band {
        Band::uniform(1449.5, -1.0, 96).unwrap()
    }

    #[test]
    fn bins_and_steps_grow_and_the_limits_are_covered() {
        let options = DdplanOptions::default();
        let plan = DmPlan::ddplan(&band(), 72e-6, 0.0, 1500.0, &options).unwrap();
        assert!(plan.ranges.len() > 3);
        for pair in plan.ranges.windows(2) {
            assert_eq!(pair[1].downsample, 2 * pair[0].downsample);
            let is_last = pair[1] == *plan.ranges.last().unwrap();
            assert!(is_last || pair[1].dm_step >= pair[0].dm_step);
            assert!(pair[1].dm_min == pair[0].dm_max);
        }
        let dms = plan.dms();
        assert!(dms[0] == 0.0 && (dms[dms.len() - 1] - 1500.0).abs() < 1e-9);
    }

    #[test]
    fn ranges_are_those_of_presto() {
        // Output of DDplan.py itself (its approximate smearing, blocks of 256 spectra, no subbands). Its constant
        // differs from ours by 1.4e-4, which moves an edge by at most a step.
        let presto = [
            (0.0, 179.5, 0.1, 1),
            (179.5, 310.3, 0.2, 2),
            (310.3, 528.4, 0.3, 4),
            (528.4, 984.4, 0.5, 8),
            (984.4, 1960.4, 1.0, 16),
            (1960.4, 2002.4, 3.0, 32),
        ];
        let width = 400.0 / 1024.0;
        let band = Band::uniform(1582.0 - 0.5 * width, -width, 1024).unwrap();
        let plan = DmPlan::ddplan(&band, 64e-6, 0.0, 2000.0, &DdplanOptions::default()).unwrap();
        assert_eq!(plan.ranges.len(), presto.len());
        for (ours, theirs) in plan.ranges.iter().zip(presto) {
            assert!((ours.dm_min - theirs.0).abs() < 1.01 * theirs.2);
            assert!((ours.dm_max - theirs.1).abs() < 1.01 * theirs.2);
            assert_eq!(ours.downsample, theirs.3);
            // 2000 is not a whole number of the last range's steps of 3 away: ours are narrower and reach it.
            let step = if theirs.2 == 3.0 { (2000.0 - ours.dm_min) / 14.0 } else { theirs.2 };
            assert!((ours.dm_step - step).abs() < 1e-9, "{ours:?}");
        }
    }

    #[test]
    fn step_smearing_matches_the_bin_and_channel_smearing_ends_a_range() {
        let options = DdplanOptions::default();
        let plan = DmPlan::ddplan(&band(), 72e-6, 0.0, 1500.0, &options).unwrap();
        for row in plan.rows(&band(), 72e-6, options.dm_constant) {
            assert!(row.step_ms < SOFTNESS * row.sampling_ms);
            let others = 0.072f64.hypot(row.sampling_ms).hypot(row.step_ms);
            assert!(row.channel_ms <= SMEARING_FACTOR * others * 1.01);
        }
    }

    #[test]
    fn a_coherent_dm_is_a_trial_between_mirrored_ranges() {
        let options = DdplanOptions { coherent_dm: Some(700.0), ..Default::default() };
        let plan = DmPlan::ddplan(&band(), 72e-6, 0.0, 1400.0, &options).unwrap();
        let plain = DmPlan::ddplan(&band(), 72e-6, 0.0, 700.0, &Default::default()).unwrap();
        let half = plain.ranges.len();
        assert_eq!(plan.ranges.len(), 2 * half);
        assert!(plan.dms().contains(&700.0));
        for (i, range) in plain.ranges.iter().enumerate() {
            let (below, above) = (plan.ranges[half - 1 - i], plan.ranges[half + i]);
            assert_eq!(below.downsample, range.downsample);
            assert!(below.dm_step == range.dm_step || i + 1 == half, "{below:?}");
            assert_eq!((above.dm_step, above.downsample), (range.dm_step, range.downsample));
        }
    }

    #[test]
    fn a_coarse_resolution_bins_at_once() {
        let options = DdplanOptions { time_resolution_s: 1e-3, ..Default::default() };
        let plan = DmPlan::ddplan(&band(), 72e-6, 0.0, 100.0, &options).unwrap();
        assert_eq!(plan.ranges[0].downsample, 8);
        let wrong = DdplanOptions { time_resolution_s: -1.0, ..Default::default() };
        assert!(DmPlan::ddplan(&band(), 72e-6, 0.0, 100.0, &wrong).is_err());
    }
}
