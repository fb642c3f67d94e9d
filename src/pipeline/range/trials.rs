//! Trials of a search: those whose delays fit the data, in groups that are dedispersed together, divided among devices.
//!
//! Invariant: a trial is searched if it has a sample at all in data of known length, and always otherwise.

use std::ops::Range;

use crate::backend::cuda::{Device, Prefetch};
use crate::backend::{Backend, cuda};
use crate::clean;
use crate::dedisperse;
use crate::dedisperse::dm_plan::DmRange;
use crate::error::{Error, Result};
use crate::io::FilterbankHeader;
use crate::pipeline::cleaning::{CleanedForm, Expected};
use crate::pipeline::options::{Part, SearchOptions};
use crate::single_pulse;
use crate::units::dispersion_delay_s;

/// Delay in seconds beyond which trials may wait longer, in proportion: the history of a group is as long as its longest delay,
/// and many groups would need much memory.
const WAIT_DELAY_S: f64 = 0.8;

/// Data and options that trials are checked against.
#[derive(Clone, Copy)]
pub(in super::super) struct Trials<'a> {
    pub(in super::super) header: &'a FilterbankHeader,
    pub(in super::super) options: &'a SearchOptions,
    /// Form of the rows.
    pub(in super::super) form: &'a CleanedForm,
    pub(in super::super) part: Part,
}

/// Starts to compile the kernels that `list` returns for each GPU of a backend, and, for the first one, those of the cleaning and
/// `others`, before the channel mask, which hardly changes them, is known. Errors of the options are left to the stages.
pub(in super::super) fn prefetch(
    header: &FilterbankHeader,
    options: &SearchOptions,
    part: Part,
    backend: &Backend,
    others: Vec<cuda::Source>,
    list: impl FnOnce(&Trials<'_>, &[Device]) -> Result<Vec<Vec<cuda::Source>>> + Send + 'static,
) -> Prefetch {
    let Backend::Cuda(device, _) = backend else { return Prefetch::default() };
    let (header, options) = (header.clone(), options.clone());
    device.prefetch_each(move |devices| {
        let sources = || {
            let Expected { form, plan } = Expected::new(&header, &options, part)?;
            let trials = Trials { header: &header, options: &options, form: &form, part };
            let mut sources = list(&trials, devices)?;
            if let Some(first) = sources.first_mut() {
                first.extend(plan.iter().flat_map(clean::sources));
            }
            Ok::<_, Error>(sources)
        };
        let mut sources = sources().unwrap_or_default();
        sources.resize(devices.len(), Vec::new());
        sources[0].extend(others);
        sources
    })
}

/// Trials of one time binning that share a history of samples.
pub(in super::super) struct TrialGroup {
    downsample: usize,
    /// Ascending, pc cm^-3.
    dms: Vec<f64>,
}

impl TrialGroup {
    /// Returns the trials of one range of a plan.
    pub(in super::super) fn of(range: &DmRange) -> Self {
        Self { downsample: range.downsample, dms: range.dms() }
    }
}

impl Trials<'_> {
    /// Lists the kernels that each of several devices is expected to need for its trials.
    pub(in super::super) fn sources(&self, devices: &[Device]) -> Result<Vec<Vec<cuda::Source>>> {
        let mut plans = Vec::new();
        for group in self.groups() {
            plans.extend(self.bind(group)?.0);
        }
        let mut sources = vec![Vec::new(); devices.len()];
        for share in divide(&plans, devices) {
            let (plan, device) = (self.plan_of(&share, &plans)?, &devices[share.device]);
            let own = &mut sources[share.device];
            own.extend(dedisperse::sources(&plan, device));
            own.extend(single_pulse::sources(&self.detector_plan(&plan)?, device));
        }
        Ok(sources)
    }

    /// Builds the plan of the trials that one device searches.
    pub(super) fn plan_of(
        &self,
        share: &Share,
        plans: &[dedisperse::Plan],
    ) -> Result<dedisperse::Plan> {
        let group = &plans[share.group];
        let dms = &group.dms()[share.trials.clone()];
        match dms.len() == group.dms().len() {
            true => Ok(group.clone()),
            false => self.plan(group.downsample(), dms.to_vec()),
        }
    }

    /// Builds the plan of the search of a range's series.
    pub(super) fn detector_plan(&self, plan: &dedisperse::Plan) -> Result<single_pulse::Plan> {
        let unmasked = self.form.masked.iter().filter(|masked| !**masked).count();
        let summed = (unmasked * plan.downsample()) as i64;
        let bound = self
            .form
            .range
            .map(|(low, high)| (i64::from(low).min(0) * summed, i64::from(high).max(0) * summed));
        single_pulse::Plan::new(single_pulse::Options {
            dms: plan.dms().to_vec(),
            tsamp_s: plan.tsamp_s(),
            max_width_s: self.options.max_width_s,
            baseline_s: self.options.baseline_s,
            snr: self.options.snr,
            bound,
        })
    }

    /// Groups the trials that are dedispersed and searched together. Ranges of the plan that differ only in their steps
    /// share one history of samples, unless their delays differ by more than [`SearchOptions::max_wait_s`], which grows in
    /// proportion to delays beyond [`WAIT_DELAY_S`].
    pub(super) fn groups(&self) -> Vec<TrialGroup> {
        let band = &self.header.band;
        let (lowest, highest) = (band.lowest_hz(), band.highest_hz());
        let delay_s = |dm: f64| dispersion_delay_s(dm, lowest, highest, self.options.dm_constant);
        let mut groups: Vec<TrialGroup> = Vec::new();
        for range in &self.options.plan.ranges {
            let downsample = range.downsample;
            for dm in range.dms() {
                let is_near = |group: &TrialGroup| {
                    let longer = (delay_s(group.dms[0]) / WAIT_DELAY_S).max(1.0);
                    let most = self.options.max_wait_s * longer;
                    group.downsample == downsample && delay_s(dm - group.dms[0]) <= most
                };
                match groups.last_mut() {
                    Some(group) if is_near(group) => group.dms.push(dm),
                    _ => groups.push(TrialGroup { downsample, dms: vec![dm] }),
                }
            }
        }
        groups
    }

    /// Builds the plan of a group from the trials whose delays fit the data; none without such a trial. Also returns the
    /// number of trials skipped.
    pub(in super::super) fn bind(
        &self,
        group: TrialGroup,
    ) -> Result<(Option<dedisperse::Plan>, usize)> {
        let TrialGroup { downsample, dms } = group;
        let all = self.plan(downsample, dms)?;
        let fits = |dm: &usize| self.part.times.is_none_or(|times| all.valid_times(times, *dm) > 0);
        let kept: Vec<f64> = (0..all.dms().len()).filter(fits).map(|dm| all.dms()[dm]).collect();
        let skipped = all.dms().len() - kept.len();
        match (kept.len(), skipped) {
            (0, _) => Ok((None, skipped)),
            (_, 0) => Ok((Some(all), 0)),
            _ => Ok((Some(self.plan(downsample, kept)?), skipped)),
        }
    }

    /// Builds the plan of trials of one time binning.
    pub(super) fn plan(&self, downsample: usize, dms: Vec<f64>) -> Result<dedisperse::Plan> {
        dedisperse::Plan::new(dedisperse::Options {
            band: self.header.band.clone(),
            tsamp_s: self.header.tsamp_s,
            dms,
            downsample,
            encoding: self.form.encoding,
            range: self.form.range,
            masked: self.form.masked.clone(),
            dm_constant: self.options.dm_constant,
        })
    }
}

/// Trials of a group that one device searches.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Share {
    /// Index of the group.
    pub(super) group: usize,
    pub(super) trials: Range<usize>,
    /// Index of the device.
    pub(super) device: usize,
}

/// Divides the plans of the groups among GPUs, at trials that keep the bits of all sums; the host has all without any.
pub(super) fn divide(plans: &[dedisperse::Plan], devices: &[Device]) -> Vec<Share> {
    let size = |plan: &dedisperse::Plan| Size {
        trials: plan.dms().len(),
        bin: plan.downsample(),
        starts: match devices {
            [first, _, ..] => dedisperse::divisions(plan, first),
            _ => vec![0],
        },
    };
    divide_sizes(&plans.iter().map(size).collect::<Vec<_>>(), devices.len().max(1))
}

/// Size of a group of trials.
#[derive(Clone, Debug)]
struct Size {
    trials: usize,
    /// Rows per sample of its series.
    bin: usize,
    /// Trials before which it may be divided, in ascending order.
    starts: Vec<usize>,
}

impl Size {
    /// Returns the cost of some trials: the samples of their series.
    fn cost(&self, trials: usize) -> f64 {
        trials as f64 / self.bin as f64
    }

    /// Returns the end of a part that begins with trial `first` and costs about `cost`, at least one tile if it must not be empty.
    fn end(&self, first: usize, cost: f64, is_empty_allowed: bool) -> usize {
        let wanted = first as f64 + cost * self.bin as f64;
        let ends = self.starts.iter().copied().chain([self.trials]);
        let ends = ends.filter(|end| *end > first || is_empty_allowed && *end == first);
        let distance = |end: &usize| (*end as f64 - wanted).abs();
        ends.min_by(|a, b| distance(a).total_cmp(&distance(b))).unwrap_or(self.trials)
    }
}

/// Divides groups among devices so that each device has trials that follow each other and cost about the same.
fn divide_sizes(groups: &[Size], devices: usize) -> Vec<Share> {
    let total: f64 = groups.iter().map(|group| group.cost(group.trials)).sum();
    let mut shares: Vec<Share> = Vec::new();
    let (mut device, mut spent) = (0, 0.0);
    for (group, size) in groups.iter().enumerate() {
        let mut first = 0;
        while first < size.trials {
            let left = total * (device + 1) as f64 / devices as f64 - spent;
            // Few trials stay on the first device.
            let has_some = shares.last().is_some_and(|last| last.device == device);
            let is_last = device + 1 == devices;
            let end = if is_last { size.trials } else { size.end(first, left, has_some) };
            if end > first {
                shares.push(Share { group, trials: first..end, device });
                spent += size.cost(end - first);
                first = end;
            }
            if first < size.trials {
                device += 1;
            }
        }
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::*;

    const TILE: usize = 64;

    #[test]
    fn each_trial_has_one_device_and_devices_cost_about_the_same() {
        let random = |seed: u64| {
            let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
            move |below: usize| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                (state % below as u64) as usize
            }
        };
        for seed in 1..200 {
            let mut next = random(seed);
            let (count, devices) = (1 + next(6), 1 + next(8));
            let size = |_| {
                let (trials, bin) = (1 + next(3000), 1 << next(5));
                Size { trials, bin, starts: (0..trials).step_by(TILE).collect() }
            };
            let groups: Vec<Size> = (0..count).map(size).collect();
            let shares = divide_sizes(&groups, devices);
            let mut costs = vec![0.0; devices];
            let mut expected = (0, 0);
            for Share { group, trials, device } in &shares {
                if expected.1 == groups[expected.0].trials {
                    expected = (expected.0 + 1, 0);
                }
                assert_eq!((*group, trials.start), expected, "{groups:?} {devices}");
                assert!(!trials.is_empty());
                expected.1 = trials.end;
                costs[*device] += trials.len() as f64 / groups[*group].bin as f64;
            }
            assert_eq!(expected, (groups.len() - 1, groups[groups.len() - 1].trials));
            assert!(shares.is_sorted_by_key(|share| share.device));
            let total: f64 = costs.iter().sum();
            // Each boundary is off by half a tile of the finest time bin at most.
            for cost in &costs {
                assert!((cost - total / devices as f64).abs() <= TILE as f64, "{costs:?}");
            }
        }
    }

    #[test]
    fn one_device_has_whole_groups() {
        let size = |trials, bin| Size { trials, bin, starts: vec![0] };
        let groups = [size(5, 1), size(1000, 4)];
        let whole = |group: usize, trials: usize| Share { group, trials: 0..trials, device: 0 };
        assert_eq!(divide_sizes(&groups, 1), [whole(0, 5), whole(1, 1000)]);
        assert!(divide_sizes(&[], 2).is_empty());
    }
}
