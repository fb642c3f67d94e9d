//! DM plans generated from a band: tolerated pulse broadening, like Heimdall's, and PRESTO's balance of smearing and steps.

use super::{
    DmPlan, DmRange, MAX_DM, MAX_DOWNSAMPLE, MAX_TRIALS, ROUNDING, Smearing, check_limits,
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
            return Err(Error::parameter("tolerance", self.tolerance, rule));
        }
        if !(self.pulse_width_s >= 0.0 && self.pulse_width_s.is_finite()) {
            let rule = "it must be 0 s or more";
            return Err(Error::parameter("pulse_width_s", self.pulse_width_s, rule));
        }
        if !(1.0..=100.0).contains(&self.downsample_tolerance) {
            let rule = "it must be 1 to 100";
            return Err(Error::parameter("downsample_tolerance", self.downsample_tolerance, rule));
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
            let ranges = around(centre, dm_min, dm_max, side);
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
        let margin = growth * self.effective_width_s(dm).powi(2) / self.tsamp_s.powi(2);
        let longest = (1.0 + margin).sqrt();
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
            return Err(Error::parameter(
                "time_resolution_s",
                resolution,
                "it must be 0 s or more",
            ));
        }
        let centre = check_coherent_dm(options.coherent_dm)?;
        let smearing = Smearing::new(band, options.dm_constant);
        let balance = Balance { smearing, tsamp_s };
        let side = |low, high| balance.ranges(low, high, resolution);
        Self::from_ranges(around(centre, dm_min, dm_max, side))
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
        let mut step = self.widen(0, downsample);
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

/// Builds ranges on both sides of the DM without smearing within channels.
///
/// `ranges(low, high)` builds those of distances `low..high` from that DM; below the DM they are mirrored. The DM
/// itself is the first trial of the upper side, if it is within the limits.
fn around(
    centre: f64,
    dm_min: f64,
    dm_max: f64,
    ranges: impl Fn(f64, f64) -> Vec<DmRange>,
) -> Vec<DmRange> {
    let mut all = Vec::new();
    if centre > dm_min {
        all = ranges((centre - dm_max).max(0.0), centre - dm_min);
        for range in &mut all {
            (range.dm_min, range.dm_max) = (centre - range.dm_max, centre - range.dm_min);
        }
        all.reverse();
    }
    if centre <= dm_max {
        let above = ranges((dm_min - centre).max(0.0), dm_max - centre);
        all.extend(above.into_iter().map(|range| DmRange {
            dm_min: centre + range.dm_min,
            dm_max: centre + range.dm_max,
            ..range
        }));
    }
    // Restores the limits exactly, without rounding of sums and differences.
    if let Some(first) = all.first_mut() {
        first.dm_min = dm_min;
    }
    if let Some(last) = all.last_mut() {
        last.dm_max = dm_max;
        reach(last);
    }
    all
}

/// Narrows a range's steps so that its end is its last trial.
fn reach(range: &mut DmRange) {
    let span = range.dm_max - range.dm_min;
    let steps = (span / range.dm_step - ROUNDING).ceil();
    if !(1.0..=MAX_TRIALS as f64).contains(&steps) {
        return;
    }
    let mut step = span / steps;
    // Rounding may leave the product short by a unit or two in the last place.
    for _ in 0..4 {
        if range.dm_min + steps * step < range.dm_max {
            step = step.next_up();
        }
    }
    if range.dm_max + step <= MAX_DM {
        range.dm_step = step;
        range.dm_max += step;
    }
}

/// Returns the DM without smearing within channels: 0 without coherent dedispersion.
fn check_coherent_dm(coherent_dm: Option<f64>) -> Result<f64> {
    let dm = coherent_dm.unwrap_or(0.0);
    if (0.0..=MAX_DM).contains(&dm) {
        return Ok(dm);
    }
    Err(Error::parameter("coherent_dm", dm, format!("it must be 0 to {MAX_DM}")))
}

/// Returns an error unless a sampling time is positive and finite.
fn check_tsamp(tsamp_s: f64) -> Result<()> {
    if tsamp_s > 0.0 && tsamp_s.is_finite() {
        return Ok(());
    }
    Err(Error::parameter("tsamp_s", tsamp_s, "it must be a positive number of seconds"))
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
    fn levin(smearing: &Smearing, tsamp_s: f64, dm_max: f64, tolerance: f64) -> Vec<f64> {
        let (a, b) = (smearing.channel_s.powi(2), (smearing.band_s / 4.0).powi(2));
        let (mut dms, mut dm) = (vec![0.0], 0.0);
        while dm < dm_max {
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
        let theirs = levin(&smearing, 64e-6, 2000.0, 1.25).len();
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
