//! `bench recovery`: injects bursts of known DM, width and S/N into noise, searches for them and compares the
//! candidates with the truth.

mod interference;

use std::path::PathBuf;

use clap::Args;
use serde_json::{Value, json};
use sidereal::backend::Backend;
use sidereal::clean::Rfi;
use sidereal::dedisperse::dm_plan::{DmPlan, ToleranceOptions};
use sidereal::pipeline::burst::{SearchOptions, Source, search};
use sidereal::simulate::burst::{Burst, BurstTruth, Options, Simulator};
use sidereal::single_pulse::Candidate;
use sidereal::units;
use sidereal::units::DM_CONSTANT;
use sidereal::{Error, Result};

use crate::runner::{Report, Session, in_parallel};

/// Most candidates per minute, the default of `search`.
const MAX_PER_MINUTE: usize = 1000;

/// Inject bursts into noise, search for them and compare the candidates with the truth.
#[derive(Args, Clone, Debug)]
pub(crate) struct Arguments {
    /// Number of bursts in each cell of band, DM, width and S/N.
    #[arg(long, default_value_t = 200, value_name = "COUNT")]
    injections: usize,
    /// Seed of the noise.
    #[arg(long, default_value_t = 1, value_name = "NUMBER")]
    seed: u64,
    /// Tolerance of the DM plan: largest factor by which the DM step and the time binning may widen a pulse.
    #[arg(long, default_value_t = 1.02, value_name = "FACTOR")]
    dm_tol: f64,
    /// Search the recordings of this folder instead. `tests/oracles/interference.py FOLDER` makes them. Scores the
    /// results among their interference: bursts found, and false candidates per hour with S/N of at least 6.5.
    #[arg(long, value_name = "FOLDER", conflicts_with_all = ["injections", "seed", "dm_tol", "plot"])]
    interference: Option<PathBuf>,
    /// With --interference, subtract the mean of each spectrum.
    #[arg(long, requires = "interference")]
    zero_dm: bool,
    /// Search instead for bursts near brighter ones, for bursts among a radar's pulses, and for short bursts.
    #[arg(long, conflicts_with_all = ["injections", "seed", "dm_tol", "plot", "interference", "markdown"])]
    neighbours: bool,
    /// With --interference, steps of mitigation, as in search.
    #[arg(long, requires = "interference", default_value = "auto", value_name = "STEPS", value_parser = Rfi::parse)]
    rfi: Rfi,
    /// With --interference, length of the mitigation's blocks in seconds, as in search.
    #[arg(long, requires = "interference", default_value_t = 0.5, value_name = "SECONDS")]
    rfi_block: f64,
    /// Also write the table as Markdown.
    #[arg(long, value_name = "FILE.md")]
    pub(crate) markdown: Option<PathBuf>,
    /// Also plot recovered against injected values.
    #[arg(long, value_name = "FILE.png")]
    pub(crate) plot: Option<PathBuf>,
}

/// Runs the campaign and prints its results; returns those of injected bursts.
pub(crate) fn run(arguments: &Arguments, session: &Session<'_>) -> Result<Vec<Outcome>> {
    if arguments.injections == 0 || arguments.injections > 100_000 {
        let rule = "it must be 1 to 100000";
        return Err(Error::parameter("--injections", arguments.injections, rule));
    }
    if arguments.neighbours {
        return interference::neighbours(session).map(|()| Vec::new());
    }
    if let Some(folder) = &arguments.interference {
        let rfi = arguments.rfi;
        let options = |plan| SearchOptions {
            zero_dm: arguments.zero_dm,
            auto_mask: rfi.has_mask(),
            mitigation: rfi.steps(),
            mitigation_block_s: arguments.rfi_block,
            max_per_minute: Some(MAX_PER_MINUTE),
            ..SearchOptions::new(plan)
        };
        let markdown = arguments.markdown.as_deref();
        return interference::run(folder, markdown, &options, session).map(|()| Vec::new());
    }
    let cells = cells(arguments);
    let outcomes = in_parallel(session.backend.threads(), cells.len(), |index| {
        cells[index].run(arguments.injections, &Backend::best(1))
    })?;
    let lines = outcomes.iter().map(record).collect();
    let heads = COLUMNS.map(|(head, ..)| head).into();
    let row = |outcome| COLUMNS.map(|(_, _, cell)| cell(outcome)).into();
    let rows: Vec<Vec<String>> = outcomes.iter().map(row).collect();
    let report = Report { lines, text: text(&rows), heads, rows };
    report.show(session, arguments.markdown.as_deref())?;
    Ok(outcomes)
}

/// Returns every combination of band, DM, width and S/N.
fn cells(arguments: &Arguments) -> Vec<Cell> {
    let mut cells = Vec::new();
    for band in &BANDS {
        for dm in band.dm {
            for width_s in WIDTHS_S {
                for snr in SNRS {
                    let seed = arguments.seed.wrapping_mul(1 << 20) + cells.len() as u64;
                    let tolerance = arguments.dm_tol;
                    cells.push(Cell { band, dm, width_s, snr, tolerance, seed });
                }
            }
        }
    }
    cells
}

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
    centre_mhz: f64,
    bandwidth_mhz: f64,
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
    tolerance: f64,
    seed: u64,
}

/// Results of a cell.
#[derive(Debug)]
pub struct Outcome {
    pub cell: Cell,
    pub injected: usize,
    /// Bursts found by the search over all trials.
    pub found: usize,
    /// Candidates that belong to no burst.
    spurious: usize,
    /// Mean S/N of the found bursts.
    pub mean_snr: f64,
    /// Mean S/N of the same bursts in a search of the exact DM alone.
    pub exact_snr: f64,
    /// Mean of found minus true DM, in pc cm^-3.
    dm_bias: f64,
    /// Root mean square of found minus true DM, in pc cm^-3.
    pub dm_rms: f64,
    /// Mean of found minus true time, in seconds.
    time_bias_s: f64,
    /// Root mean square of found minus true time, in seconds.
    pub time_rms_s: f64,
    /// Tolerance in DM: the larger of the step and the half-power width.
    pub dm_reach: f64,
    /// Tolerance in time: the larger of a sample and half the arriving pulse's width, in seconds.
    pub time_reach_s: f64,
    /// Found bursts whose DM lies within `dm_reach`.
    dm_within: usize,
    /// Found bursts whose time lies within `time_reach_s`.
    time_within: usize,
}

impl Cell {
    /// Injects bursts, searches twice (all trials; only the exact trial) and compares.
    fn run(&self, injections: usize, backend: &Backend) -> Result<Outcome> {
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
        Ok(search(Source::Rows(&mut source), &options, backend, &mut |_| true)?.candidates)
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

/// Column: heading, width on the terminal, and function that formats a cell.
type Column = (&'static str, usize, fn(&Outcome) -> String);

const COLUMNS: [Column; 14] = [
    ("band", 8, |o| o.cell.band.name.to_owned()),
    ("DM", 5, |o| format!("{:.0}", o.cell.dm)),
    ("width (ms)", 10, |o| format!("{:.0}", o.cell.width_s * 1e3)),
    ("S/N", 4, |o| format!("{:.0}", o.cell.snr)),
    ("injected", 8, |o| o.injected.to_string()),
    ("found", 5, |o| o.found.to_string()),
    ("spurious", 8, |o| o.spurious.to_string()),
    ("S/N found", 9, |o| format!("{:.2}", o.mean_snr)),
    ("S/N exact DM", 12, |o| format!("{:.2}", o.exact_snr)),
    ("ratio", 5, |o| format!("{:.3}", o.mean_snr / o.exact_snr)),
    ("DM error", 13, |o| format!("{:+.2} rms {:.2}", o.dm_bias, o.dm_rms)),
    ("DM within", 9, |o| percent(o.dm_within, o.found)),
    ("time error (ms)", 15, |o| {
        format!("{:+.2} rms {:.2}", o.time_bias_s * 1e3, o.time_rms_s * 1e3)
    }),
    ("time within", 11, |o| percent(o.time_within, o.found)),
];

fn percent(part: usize, whole: usize) -> String {
    if whole == 0 { "-".to_owned() } else { format!("{:.1} %", 100.0 * part as f64 / whole as f64) }
}

/// Formats the table for the terminal.
fn text(rows: &[Vec<String>]) -> String {
    let line = |cells: &[&str]| {
        let cells =
            cells.iter().zip(COLUMNS).map(|(cell, (_, width, _))| format!("{cell:>width$}"));
        cells.collect::<Vec<_>>().join("  ")
    };
    let mut lines = vec![line(&COLUMNS.map(|(head, ..)| head))];
    lines.extend(rows.iter().map(|row| line(&row.iter().map(String::as_str).collect::<Vec<_>>())));
    lines.join("\n")
}

fn record(outcome: &Outcome) -> Value {
    let cell = &outcome.cell;
    json!({
        "bench": "recovery", "band": cell.band.name, "dm": cell.dm, "width_s": cell.width_s,
        "snr": cell.snr, "injected": outcome.injected, "found": outcome.found,
        "spurious": outcome.spurious, "mean_snr": outcome.mean_snr,
        "exact_snr": outcome.exact_snr, "dm_bias": outcome.dm_bias, "dm_rms": outcome.dm_rms,
        "time_bias_s": outcome.time_bias_s, "time_rms_s": outcome.time_rms_s,
        "dm_within": outcome.dm_within, "time_within": outcome.time_within,
    })
}
