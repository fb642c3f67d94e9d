//! One cell of the campaign: many bursts of one DM, width and S/N in one band.

use sidereal::Result;
use sidereal::backend::Backend;
use sidereal::dedisperse::dm_plan::{DmPlan, ToleranceOptions};
use sidereal::pipeline::burst::{SearchOptions, search};
use sidereal::simulate::burst::{Burst, BurstTruth, Options, Simulator};
use sidereal::single_pulse::Candidate;
use sidereal::units;
use sidereal::units::DM_CONSTANT;

/// Sampling time of the campaign's recordings, in seconds.
const TSAMP_S: f64 = 256e-6;

/// Seconds between bursts.
const SPACING_S: f64 = 1.5;

/// Lowest S/N that the search reports.
const THRESHOLD: f64 = 6.0;

/// Dispersion error at which a smeared pulse loses half its S/N, as the zeta of [`half_power_dm`]: the root of
/// `sqrt(pi) erf(zeta) = zeta`.
const HALF_POWER_ZETA: f64 = 1.748_709;

/// Frequency band of the campaign.
#[derive(Debug)]
pub struct Band {
    pub name: &'static str,
    pub(crate) centre_mhz: f64,
    pub(crate) bandwidth_mhz: f64,
    pub channels: usize,
    pub dm: [f64; 3],
}

/// Parameters of the injected bursts.
#[derive(Clone, Debug)]
pub struct Cell {
    pub band: &'static Band,
    pub dm: f64,
    pub width_s: f64,
    pub snr: f64,
    pub(crate) tolerance: f64,
    pub(crate) seed: u64,
}

/// Results of a cell.
#[derive(Debug)]
pub struct Outcome {
    pub cell: Cell,
    pub injected: usize,
    /// Bursts found by the search over all trials.
    pub found: usize,
    /// Candidates that belong to no burst.
    pub(crate) spurious: usize,
    /// Mean S/N of the found bursts, and of the same bursts at the exact trial alone.
    pub mean_snr: f64,
    pub exact_snr: f64,
    /// Mean and root mean square of found minus true DM.
    pub(crate) dm_bias: f64,
    pub dm_rms: f64,
    /// Mean and root mean square of found minus true time, in seconds.
    pub(crate) time_bias_s: f64,
    pub time_rms_s: f64,
    /// Tolerance in DM: the larger of the step and the half-power width.
    pub dm_reach: f64,
    /// Tolerance in time: the larger of a sample and half the arriving pulse's width, in seconds.
    pub time_reach_s: f64,
    /// Found bursts whose DM lies within `dm_reach`.
    pub(crate) dm_within: usize,
    /// Found bursts whose time lies within `time_reach_s`.
    pub(crate) time_within: usize,
}

impl Cell {
    /// Injects bursts, searches twice (all trials; only the exact trial) and compares.
    pub(crate) fn run(&self, injections: usize, backend: &Backend) -> Result<Outcome> {
        let plan = self.plan()?;
        let truths = self.simulator(injections)?.truth().bursts.clone();
        let found = self.candidates(injections, plan.clone(), backend)?;
        let exact = DmPlan::fixed(&[(self.dm, self.dm, 1.0)])?;
        let exact = self.candidates(injections, exact, backend)?;
        let pairs = self.pairs(&truths, &found);
        let exact_pairs = self.pairs(&truths, &exact);
        let outcome = self.outcome(&plan, &pairs, &exact_pairs);
        Ok(Outcome { injected: injections, spurious: found.len() - pairs.len(), ..outcome })
    }

    fn band(&self) -> Result<units::Band> {
        let step = self.band.bandwidth_mhz / self.band.channels as f64;
        let top = self.band.centre_mhz + 0.5 * (self.band.bandwidth_mhz - step);
        units::Band::uniform(top, -step, self.band.channels)
    }

    /// Plans trials from 0.9 to 1.1 times the DM, and over at least eight half-power widths on each side.
    fn plan(&self) -> Result<DmPlan> {
        let reach = (0.1 * self.dm).max(8.0 * self.half_power_dm());
        let (low, high) = ((self.dm - reach).max(0.0), self.dm + reach);
        let tolerance = ToleranceOptions {
            tolerance: self.tolerance,
            downsample_tolerance: self.tolerance,
            ..Default::default()
        };
        DmPlan::tolerance(&self.band()?, TSAMP_S, low, high, &tolerance)
    }

    /// Creates a simulator: noise first, then evenly spaced bursts, each at its own fraction of a sample.
    fn simulator(&self, injections: usize) -> Result<Simulator> {
        let band = self.band()?;
        let delay =
            units::dispersion_delay_s(self.dm, band.lowest_hz(), band.highest_hz(), DM_CONSTANT);
        let burst = |i: usize| {
            let part = (i as f64 * 0.618_033_988_749_895).fract();
            Burst::new(self.dm, SPACING_S * (i as f64 + 1.0 + 0.2 * part), self.width_s, self.snr)
        };
        let seconds = SPACING_S * (injections as f64 + 2.0) + delay;
        let mut options = Options::new(band, TSAMP_S, (seconds / TSAMP_S) as u64);
        options.bursts = (0..injections).map(burst).collect();
        options.seed = self.seed;
        Simulator::new(options)
    }

    fn candidates(
        &self,
        injections: usize,
        plan: DmPlan,
        backend: &Backend,
    ) -> Result<Vec<Candidate>> {
        let mut source = self.simulator(injections)?;
        if let Backend::Cpu(_, threads) = backend {
            source = source.with_threads(threads.clone());
        }
        let options =
            SearchOptions { snr: THRESHOLD, auto_mask: false, ..SearchOptions::new(plan) };
        Ok(search(&mut source, &options, backend, &mut |_| true)?.candidates)
    }

    /// Pairs each burst with its best candidate: the one of highest S/N within reach in time.
    fn pairs<'a>(
        &self,
        truths: &'a [BurstTruth],
        candidates: &'a [Candidate],
    ) -> Vec<(&'a BurstTruth, &'a Candidate)> {
        let reach = 0.02 + 2.0 * self.width_s;
        let mut in_time: Vec<&Candidate> = candidates.iter().collect();
        in_time.sort_by(|a, b| a.time_s.total_cmp(&b.time_s));
        let best = |truth: &'a BurstTruth| {
            let time = truth.burst.time_s;
            let from = in_time.partition_point(|c| c.time_s < time - reach);
            let near = in_time[from..].iter().take_while(|c| c.time_s <= time + reach);
            let best = near.max_by(|a, b| a.snr.total_cmp(&b.snr))?;
            Some((truth, *best))
        };
        truths.iter().filter_map(best).collect()
    }

    /// Computes the DM error at which the S/N of a pulse has fallen to one half.
    ///
    /// Source: Cordes & McLaughlin 2003, ApJ 596, 1142, eqs. 12 and 13.
    fn half_power_dm(&self) -> f64 {
        let ghz = self.band.centre_mhz / 1e3;
        let milliseconds = self.width_s * 1e3;
        HALF_POWER_ZETA * milliseconds * ghz.powi(3) / (6.91e-3 * self.band.bandwidth_mhz)
    }

    fn outcome(
        &self,
        plan: &DmPlan,
        pairs: &[(&BurstTruth, &Candidate)],
        exact: &[(&BurstTruth, &Candidate)],
    ) -> Outcome {
        let step = plan.ranges.iter().map(|range| range.dm_step).fold(0.0, f64::max);
        let dm_reach = step.max(self.half_power_dm());
        let longest = plan.ranges.iter().map(|range| range.downsample).max().unwrap_or(1);
        // Intra-channel smearing widens the arriving pulse, and with it the best boxcar.
        let arriving_s = pairs.first().map_or(self.width_s, |(truth, _)| truth.boxcar_s);
        let time_reach = (TSAMP_S * longest as f64).max(0.5 * arriving_s);
        let dm_errors: Vec<f64> = pairs.iter().map(|(t, c)| c.dm - t.burst.dm).collect();
        let time_errors: Vec<f64> = pairs.iter().map(|(t, c)| c.time_s - t.burst.time_s).collect();
        let within =
            |errors: &[f64], reach: f64| errors.iter().filter(|e| e.abs() <= reach).count();
        Outcome {
            injected: 0,
            found: pairs.len(),
            spurious: 0,
            mean_snr: mean(pairs.iter().map(|(_, c)| c.snr)),
            exact_snr: mean(exact.iter().map(|(_, c)| c.snr)),
            dm_bias: mean(dm_errors.iter().copied()),
            dm_rms: mean(dm_errors.iter().map(|e| e * e)).sqrt(),
            time_bias_s: mean(time_errors.iter().copied()),
            time_rms_s: mean(time_errors.iter().map(|e| e * e)).sqrt(),
            dm_reach,
            time_reach_s: time_reach,
            dm_within: within(&dm_errors, dm_reach),
            time_within: within(&time_errors, time_reach),
            cell: self.clone(),
        }
    }
}

fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = values.fold((0.0, 0usize), |(sum, count), x| (sum + x, count + 1));
    if count == 0 { f64::NAN } else { sum / count as f64 }
}

/// Bands of the campaign: low, middle, high frequency.
pub const BANDS: [Band; 3] = [
    Band {
        name: "350 MHz",
        centre_mhz: 350.0,
        bandwidth_mhz: 100.0,
        channels: 1024,
        dm: [20.0, 60.0, 120.0],
    },
    Band {
        name: "1400 MHz",
        centre_mhz: 1400.0,
        bandwidth_mhz: 300.0,
        channels: 256,
        dm: [60.0, 300.0, 900.0],
    },
    Band {
        name: "3000 MHz",
        centre_mhz: 3000.0,
        bandwidth_mhz: 800.0,
        channels: 256,
        dm: [100.0, 600.0, 1500.0],
    },
];

/// Full widths at half maximum, in seconds.
pub const WIDTHS_S: [f64; 3] = [1e-3, 4e-3, 16e-3];

/// Injected S/N.
pub const SNRS: [f64; 3] = [10.0, 15.0, 30.0];
