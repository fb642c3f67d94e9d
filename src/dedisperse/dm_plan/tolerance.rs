//! DM plans whose trial spacing follows from a tolerated pulse broadening, like Heimdall's.

use super::{
    DmPlan, DmRange, MAX_DOWNSAMPLE, Smearing, around, check_coherent_dm, check_limits, check_tsamp,
};
use crate::error::{Error, Result};
use crate::units::{Band, DM_CONSTANT};

/// Largest number of ranges; each costs another pass over the data.
const MAX_RANGES: usize = 15;

/// Cost of a further range, in trials at the time resolution of the range.
const RANGE_COST: f64 = 8.0;

/// Candidate range boundaries per doubling of the effective width.
const NODES_A_DOUBLING: f64 = 16.0;

/// Boundaries are rounded to multiples of this, for readable output.
const BOUNDARY: f64 = 1e-6;

/// Options of [`DmPlan::tolerance`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ToleranceOptions {
    /// Factor by which a step may broaden a pulse, above 1. Heimdall's default is 1.25.
    pub tolerance: f64,
    /// Width of the narrowest pulse expected, in seconds. Heimdall's default is 40 us.
    pub pulse_width_s: f64,
    /// Factor by which time binning may broaden a pulse, at least 1; 1 means no binning. The default is 1.03:
    /// Heimdall's 1.15 loses 3 % of the S/N of pulses of 1 to 2 ms (docs/results/recovery.md).
    pub downsample_tolerance: f64,
    /// Dispersion constant, s MHz^2 pc^-1 cm^3.
    pub dm_constant: f64,
    /// DM removed within channels before detection, if any: channel smearing grows with the distance from it. It is
    /// one of the trials if it is within the limits.
    pub coherent_dm: Option<f64>,
}

impl Default for ToleranceOptions {
    fn default() -> Self {
        Self {
            tolerance: 1.25,
            pulse_width_s: 40e-6,
            downsample_tolerance: 1.03,
            dm_constant: DM_CONSTANT,
            coherent_dm: None,
        }
    }
}

impl ToleranceOptions {
    fn check(&self) -> Result<()> {
        if !(self.tolerance > 1.0 && self.tolerance <= 100.0) {
            let rule = "it must be above 1 and at most 100";
            return Err(Error::parameter("--dm-tol", self.tolerance, rule));
        }
        if !(self.pulse_width_s >= 0.0 && self.pulse_width_s.is_finite()) {
            let rule = "it must be 0 s or more";
            return Err(Error::parameter("--pulse-width", self.pulse_width_s, rule));
        }
        if !(1.0..=100.0).contains(&self.downsample_tolerance) {
            let rule = "it must be 1 to 100";
            return Err(Error::parameter("--downsample-tol", self.downsample_tolerance, rule));
        }
        Ok(())
    }
}

impl DmPlan {
    /// Spaces trials so that a step broadens a pulse by at most the tolerated factor.
    ///
    /// At a DM, a pulse has the effective width `W = sqrt(pulse^2 + t_samp^2 + channel(DM)^2)`. The step is the
    /// largest with `sqrt(W^2 + (band(step) / 4)^2) <= tolerance * W`, where `band(step)` is the delay of one step
    /// over the band. The time binning is the largest power of two with `sqrt(W^2 - t_samp^2 + t_bin^2) <=
    /// downsample_tolerance * W`. Both grow with DM. A range has the step and the binning of its lowest DM, so that
    /// it is nowhere coarser than this. The range boundaries minimize the total number of additions, with at most 15
    /// ranges. After coherent dedispersion `channel` grows with the distance from its DM; below that DM a range has
    /// the step and the binning of its highest DM. The steps of the last range are narrowed so that `dm_max` is the
    /// last trial.
    ///
    /// # Errors
    /// [`Error::Parameter`] for limits that are reversed, negative or not finite, a sampling time, tolerance or
    /// coherent DM out of range, or too many trials.
    /// # Source
    /// Levin 2012, PhD thesis, Swinburne University, as used by dedisp (Barsdell et al. 2012, MNRAS 422, 379) and
    /// Heimdall. They give each trial its own step and include the growth of the channel smearing within a step; here
    /// ranges of constant step start where that growth is harmless.
    pub fn tolerance(
        band: &Band,
        tsamp_s: f64,
        dm_min: f64,
        dm_max: f64,
        options: &ToleranceOptions,
    ) -> Result<Self> {
        check_limits(dm_min, dm_max)?;
        check_tsamp(tsamp_s)?;
        options.check()?;
        let centre = check_coherent_dm(options.coherent_dm)?;
        let smearing = Smearing::new(band, options.dm_constant);
        let rule = Rule { smearing, tsamp_s, options: *options };
        let mut range_cost = RANGE_COST;
        loop {
            let side = |low, high| {
                let nodes = rule.nodes(low, high);
                rule.ranges(&rule.cheapest_starts(&nodes, range_cost), high)
            };
            let ranges = around(centre, (dm_min, dm_max), side);
            if ranges.len() <= MAX_RANGES {
                return Self::from_ranges(ranges);
            }
            range_cost *= 1.5;
        }
    }
}

/// Steps and binnings that the tolerances allow at each DM, counted from the one without smearing within channels.
struct Rule {
    smearing: Smearing,
    tsamp_s: f64,
    options: ToleranceOptions,
}

impl Rule {
    fn effective_width_s(&self, dm: f64) -> f64 {
        let channel_s = self.smearing.channel_s * dm;
        self.options.pulse_width_s.hypot(self.tsamp_s).hypot(channel_s)
    }

    /// Returns the widest allowed step; it grows with DM.
    fn step(&self, dm: f64) -> f64 {
        let growth = (self.options.tolerance.powi(2) - 1.0).sqrt();
        4.0 * growth * self.effective_width_s(dm) / self.smearing.band_s
    }

    /// Returns the largest allowed power of two of samples in a bin; it grows with DM.
    fn downsample(&self, dm: f64) -> usize {
        let growth = self.options.downsample_tolerance.powi(2) - 1.0;
        let room = growth * self.effective_width_s(dm).powi(2) / self.tsamp_s.powi(2);
        let longest = (1.0 + room).sqrt();
        let mut downsample = 1;
        while 2 * downsample <= MAX_DOWNSAMPLE && (2 * downsample) as f64 <= longest {
            downsample *= 2;
        }
        downsample
    }

    /// Returns the DMs at which a range may start or end: equal ratios of the effective width, and each DM from which
    /// longer bins are allowed.
    fn nodes(&self, dm_min: f64, dm_max: f64) -> Vec<f64> {
        let first = self.effective_width_s(dm_min);
        let doublings = (self.effective_width_s(dm_max) / first).log2();
        let count = ((doublings * NODES_A_DOUBLING).ceil() as usize).max(1);
        let at_width = |width: f64| {
            let rest = width.powi(2) - self.effective_width_s(0.0).powi(2);
            rest.max(0.0).sqrt() / self.smearing.channel_s
        };
        let even =
            (1..count).map(|i| at_width(first * (doublings * i as f64 / count as f64).exp2()));
        let growth = (self.options.downsample_tolerance.powi(2) - 1.0).sqrt();
        let binned = (1..=MAX_DOWNSAMPLE.ilog2()).map(|power| {
            let bin = f64::from(1u32 << power);
            // The margin prevents rounding from placing the node just below the DM of its own binning.
            at_width(self.tsamp_s * (bin * bin - 1.0).sqrt() / growth) * (1.0 + 1e-9)
        });
        let inner = even.chain(binned).filter(|dm| *dm > dm_min && *dm < dm_max);
        let mut nodes: Vec<f64> = inner.chain([dm_min, dm_max]).collect();
        nodes.sort_by(f64::total_cmp);
        nodes.dedup();
        nodes
    }

    /// Returns the range starts with the fewest additions, by dynamic programming over the nodes.
    fn cheapest_starts(&self, nodes: &[f64], range_cost: f64) -> Vec<f64> {
        let mut best = vec![(f64::INFINITY, 0usize); nodes.len()];
        best[0].0 = 0.0;
        for start in 0..nodes.len() - 1 {
            let step = self.step(nodes[start]);
            let downsample = self.downsample(nodes[start]) as f64;
            for end in start + 1..nodes.len() {
                let trials = (nodes[end] - nodes[start]) / step;
                let cost = best[start].0 + (trials.max(1.0) + range_cost) / downsample;
                if cost < best[end].0 {
                    best[end] = (cost, start);
                }
            }
        }
        let mut starts = Vec::new();
        let mut node = nodes.len() - 1;
        while node > 0 {
            node = best[node].1;
            starts.push(nodes[node]);
        }
        if starts.is_empty() {
            starts.push(nodes[0]);
        }
        starts.reverse();
        starts
    }

    /// Builds ranges that start at or just above the given DMs, each a whole number of steps after the last.
    fn ranges(&self, starts: &[f64], dm_max: f64) -> Vec<DmRange> {
        let mut ranges: Vec<DmRange> = Vec::with_capacity(starts.len());
        let mut dm_min = starts[0];
        let ends = starts.iter().skip(1).copied().chain([dm_max]);
        for (start, end) in starts.iter().zip(ends) {
            if dm_min >= end && *start < end {
                continue;
            }
            let dm_step = round_down(self.step(dm_min));
            let downsample = self.downsample(dm_min);
            let steps = ((end - dm_min) / dm_step).ceil().max(1.0);
            let next = (dm_min + steps * dm_step) / BOUNDARY;
            let reached = next.floor() * BOUNDARY;
            let dm_max = if end == dm_max { dm_max } else { reached.min(dm_max) };
            ranges.push(DmRange { dm_min, dm_max, dm_step, downsample });
            dm_min = dm_max;
        }
        ranges
    }
}

/// Rounds a step down to three digits.
fn round_down(step: f64) -> f64 {
    let digits = 2 - step.log10().floor() as i32;
    let scale = 10f64.powi(digits.clamp(-300, 300));
    let rounded = (step * scale).floor() / scale;
    if rounded > 0.0 && rounded.is_finite() { rounded } else { step }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parkes() -> Band {
        Band::uniform(1581.8046875, -0.390625, 1024).unwrap()
    }

    #[test]
    fn steps_and_bins_are_within_tolerance_everywhere() {
        let options = ToleranceOptions::default();
        let band = parkes();
        let plan = DmPlan::tolerance(&band, 64e-6, 0.0, 10000.0, &options).unwrap();
        assert!(plan.ranges.len() <= MAX_RANGES, "{}", plan.ranges.len());
        let smearing = Smearing::new(&band, options.dm_constant);
        for range in &plan.ranges {
            for dm in range.dms() {
                let width = 40e-6f64.hypot(64e-6).hypot(smearing.channel_s * dm);
                let widened = width.hypot(0.25 * range.dm_step * smearing.band_s);
                assert!(widened <= 1.25 * width * (1.0 + 1e-12), "DM {dm}");
                let bin = 64e-6 * range.downsample as f64;
                let binned = (width * width - 64e-6f64.powi(2) + bin * bin).sqrt();
                assert!(range.downsample == 1 || binned <= 1.03 * width * (1.0 + 1e-12));
            }
        }
        for pair in plan.ranges.windows(2) {
            assert!(pair[0].dm_max == pair[1].dm_min);
            // The last range's steps are narrowed to reach its end.
            let is_last = pair[1] == *plan.ranges.last().unwrap();
            assert!(is_last || pair[0].dm_step <= pair[1].dm_step);
            assert!(pair[0].downsample <= pair[1].downsample);
        }
    }

    #[test]
    fn trials_never_lie_further_apart_than_a_step() {
        let options = ToleranceOptions::default();
        let plan = DmPlan::tolerance(&parkes(), 64e-6, 3.0, 2000.0, &options).unwrap();
        let dms = plan.dms();
        assert_eq!(dms[0], 3.0);
        assert!(dms.windows(2).all(|w| w[0] < w[1]), "ascending");
        let mut trial = 0;
        for range in &plan.ranges {
            for _ in 0..range.trials() {
                let next = dms.get(trial + 1).copied().unwrap_or(2000.0);
                assert!(next - dms[trial] <= range.dm_step * (1.0 + 1e-5));
                trial += 1;
            }
        }
        assert!(dms[dms.len() - 1] <= 2000.0);
    }

    /// Evaluates the recurrence of Levin 2012, which dedisp uses, from its equation.
    fn levin(smearing: &Smearing, tsamp_s: f64, limits: (f64, f64), tolerance: f64) -> Vec<f64> {
        let (a, b) = (smearing.channel_s.powi(2), (smearing.band_s / 4.0).powi(2));
        let mut dms = vec![limits.0];
        let mut dm = limits.0;
        while dm < limits.1 {
            let narrow = tsamp_s.powi(2) + 40e-6f64.powi(2);
            let k = narrow * (tolerance.powi(2) - 1.0) + tolerance.powi(2) * a * dm * dm;
            dm = (b * dm + ((a + b) * k - a * b * dm * dm).sqrt()) / (a + b);
            dms.push(dm);
        }
        dms
    }

    #[test]
    fn about_as_many_trials_as_levins_recurrence() {
        let options = ToleranceOptions { downsample_tolerance: 1.0, ..Default::default() };
        let band = parkes();
        let smearing = Smearing::new(&band, options.dm_constant);
        let theirs = levin(&smearing, 64e-6, (0.0, 2000.0), 1.25).len();
        let ours = DmPlan::tolerance(&band, 64e-6, 0.0, 2000.0, &options).unwrap().trials();
        assert!(ours >= theirs && (ours as f64) < 1.15 * theirs as f64, "{ours} {theirs}");
    }

    #[test]
    fn steps_are_those_of_dedisp() {
        // dedisp's list from 500 to 510, 40 us, tolerance 1.25, from pydedisp's own test.
        let dedisp = [500.0, 501.45917, 502.92258, 504.39023, 505.86215, 507.33838, 508.81888];
        let band = Band::uniform(920.0, -200.0 / 1024.0, 1024).unwrap();
        let options = ToleranceOptions::default();
        let smearing = Smearing::new(&band, options.dm_constant);
        let rule = Rule { smearing, tsamp_s: 64e-6, options };
        for pair in dedisp.windows(2) {
            let ratio = rule.step(pair[0]) / (pair[1] - pair[0]);
            assert!((1.0..1.02).contains(&ratio), "{ratio}");
        }
    }

    #[test]
    fn a_coherent_dm_is_a_trial_with_the_finest_steps_around_it() {
        let band = parkes();
        let smearing = Smearing::new(&band, DM_CONSTANT);
        for (coherent, low, high) in [
            (500.0, 0.0, 2000.0),
            (500.3, 499.7, 501.0),
            (500.0, 0.0, 500.0),
            (500.0, 500.0, 500.0),
        ] {
            let options = ToleranceOptions { coherent_dm: Some(coherent), ..Default::default() };
            let plan = DmPlan::tolerance(&band, 8e-6, low, high, &options).unwrap();
            assert!(plan.ranges.len() <= MAX_RANGES && plan.dms().contains(&coherent));
            assert!(plan.ranges[0].dm_min == low);
            for range in &plan.ranges {
                let nearest = (range.dm_min - coherent).max(coherent - range.dm_max).max(0.0);
                let width = 40e-6f64.hypot(8e-6).hypot(smearing.channel_s * nearest);
                let widened = width.hypot(0.25 * range.dm_step * smearing.band_s);
                assert!(widened <= 1.25 * width * (1.0 + 1e-9), "{range:?}");
                let bin = 8e-6 * range.downsample as f64;
                let binned = (width * width - 8e-6f64.powi(2) + bin * bin).sqrt();
                assert!(range.downsample == 1 || binned <= 1.03 * width * (1.0 + 1e-9));
            }
            let dms = plan.dms();
            assert!(dms.windows(2).all(|pair| pair[0] < pair[1]), "ascending");
        }
        // It also counts outside the limits: the plan is coarser the farther away it is.
        let trials = |coherent| {
            let options = ToleranceOptions { coherent_dm: Some(coherent), ..Default::default() };
            DmPlan::tolerance(&band, 8e-6, 100.0, 200.0, &options).unwrap().trials()
        };
        assert!(trials(2000.0) < trials(900.0) && trials(900.0) < trials(201.0));
        for coherent_dm in [f64::NAN, -1.0, 1e7] {
            let options = ToleranceOptions { coherent_dm: Some(coherent_dm), ..Default::default() };
            assert!(DmPlan::tolerance(&band, 8e-6, 0.0, 100.0, &options).is_err());
        }
    }

    #[test]
    fn absurd_tolerances_are_refused() {
        let band = parkes();
        for tolerance in [1.0, 0.5, -2.0, f64::NAN, f64::INFINITY] {
            let options = ToleranceOptions { tolerance, ..Default::default() };
            assert!(DmPlan::tolerance(&band, 64e-6, 0.0, 100.0, &options).is_err());
        }
        let options = ToleranceOptions::default();
        for tsamp in [0.0, -1.0, f64::NAN] {
            assert!(DmPlan::tolerance(&band, tsamp, 0.0, 100.0, &options).is_err());
        }
        assert!(DmPlan::tolerance(&band, 64e-6, 100.0, 10.0, &options).is_err());
        assert!(DmPlan::tolerance(&band, 64e-6, 0.0, 1e30, &options).is_err());
        let one = DmPlan::tolerance(&band, 64e-6, 100.0, 100.0, &options).unwrap();
        assert_eq!(one.dms(), [100.0]);
    }
}
