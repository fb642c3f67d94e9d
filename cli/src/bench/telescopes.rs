//! `sidereal bench telescopes`: multiple of real time of a complete search for each telescope of the AstroAccelerate
//! paper's Table 4, beside the paper's two GPUs.

mod child;

use std::path::{Path, PathBuf};

use clap::Args;
use sidereal::backend::simd::Level;
use sidereal::backend::threads::Threads;
use sidereal::backend::{Backend, Host, roof};
use sidereal::dedisperse::dm_plan::{DmPlan, ToleranceOptions};
use sidereal::io::FilterbankSource;
use sidereal::io::sigproc::FilterbankWriter;
use sidereal::simulate::burst::{Burst, Options, Simulator};
use sidereal::simulate::telescopes::{TELESCOPES, Telescope};
use sidereal::units::{DM_CONSTANT, dispersion_delay_s};
use sidereal::{Error, Result};

#[cfg(feature = "cuda")]
use super::Quick;
use super::{Row, Table};
use crate::common::Common;

/// Least length of a recording, in dispersion delays of the highest trial.
const DELAYS: f64 = 4.0;

/// Least length of a recording in seconds, unless an option sets it.
const SECONDS: f64 = 60.0;

/// S/N of the burst that each search must find.
const BURST_SNR: f64 = 30.0;

/// Tolerance of the time binning: Heimdall's, as in the published rates.
const DOWNSAMPLE_TOL: f64 = 1.15;

/// Bytes simulated at once.
const GULP_BYTES: usize = 16 << 20;

/// Search a simulated recording of each telescope as a user would, and report the multiple of real time.
#[derive(Args, Clone, Debug)]
pub(crate) struct Arguments {
    /// Measure only this telescope; may be given several times.
    #[arg(long, value_name = "NAME")]
    pub(super) only: Vec<String>,
    /// Least length of a recording in seconds [default: 60; on a GPU 20, and 512 MB of rows]. A recording also holds
    /// at least four delays of the highest DM.
    #[arg(long, value_name = "SECONDS")]
    pub(super) seconds: Option<f64>,
    /// Tolerance of the DM plan.
    #[arg(long, default_value_t = 1.25, value_name = "FACTOR")]
    dm_tol: f64,
    /// Folder for the recordings; each is removed after its search.
    #[arg(long, value_name = "FOLDER")]
    folder: Option<PathBuf>,
    /// Also write the rows to this CSV file.
    #[arg(long, value_name = "FILE")]
    pub(super) csv: Option<PathBuf>,
    #[cfg(feature = "cuda")]
    #[command(flatten)]
    quick: Quick,
}

pub(crate) fn run(arguments: &Arguments, common: &Common) -> Result<()> {
    let range = 1.0..=86400.0;
    let seconds = arguments.seconds.unwrap_or(SECONDS);
    if !range.contains(&seconds) {
        let rule = "it must be 1 to 86400 s";
        return Err(Error::parameter("--seconds", seconds, rule));
    }
    let backend = common.backend()?;
    let chosen: Vec<&Telescope> = if arguments.only.is_empty() {
        TELESCOPES.iter().collect()
    } else {
        arguments.only.iter().map(|name| Telescope::by_name(name)).collect::<Result<_>>()?
    };
    #[cfg(feature = "cuda")]
    if let Some(gpu) = super::gpu::Gpu::of(&backend, arguments.quick)? {
        return super::gpu::telescopes::run(&gpu, &chosen, arguments, common);
    }
    let roof = roof_adds_per_s(&backend);
    let mut table = Table::hidden(common, arguments.csv.as_deref());
    let talk = !common.json && !common.quiet;
    let (mut plain_s, mut mitigated_s) = (0.0, 0.0);
    if talk {
        print_head();
    }
    for telescope in chosen {
        let observation = Observation::new(telescope, arguments, seconds)?;
        let runs = observation.search(arguments, common, &backend)?;
        if talk {
            observation.print(&runs);
        }
        plain_s += runs.plain.wall_s;
        mitigated_s += runs.mitigated.wall_s;
        let name = telescope.name.to_owned();
        let mitigated = format!("{name}, --rfi auto");
        table.push(observation.row(name, &runs.plain, &backend, roof))?;
        table.push(observation.row(mitigated, &runs.mitigated, &backend, roof))?;
    }
    if talk {
        print_foot(mitigated_s / plain_s);
    }
    table.finish()
}

/// Returns the additions per second of 8-bit samples that brute force reaches at best.
fn roof_adds_per_s(backend: &Backend) -> f64 {
    match &backend.host() {
        Host::Cpu(level, threads) => roof::byte_adds(*level, threads, 0.2),
        Host::Reference => roof::byte_adds(Level::Portable, &Threads::new(1), 0.2),
    }
}

/// Simulated recording of a telescope, and the plan to search it.
pub(super) struct Observation {
    pub(super) telescope: &'static Telescope,
    pub(super) plan: DmPlan,
    pub(super) adds_per_s: f64,
    delay_s: f64,
    pub(super) seconds: f64,
    pub(super) burst: Burst,
    dm_tol: f64,
}

/// Searches of one recording: without RFI mitigation, and with the default mitigation.
struct Runs {
    plain: child::Run,
    mitigated: child::Run,
}

impl Observation {
    /// Creates a recording of at least `seconds`, and of at least [`DELAYS`] dispersion delays.
    ///
    /// # Errors
    /// Those of the plan.
    pub(super) fn new(
        telescope: &'static Telescope,
        arguments: &Arguments,
        seconds: f64,
    ) -> Result<Self> {
        let band = telescope.band()?;
        let tolerance = ToleranceOptions {
            tolerance: arguments.dm_tol,
            downsample_tolerance: DOWNSAMPLE_TOL,
            ..ToleranceOptions::default()
        };
        let Telescope { dm_min, dm_max, .. } = *telescope;
        let plan = DmPlan::tolerance(&band, telescope.tsamp_s(), dm_min, dm_max, &tolerance)?;
        let rows = plan.rows(&band, telescope.tsamp_s(), DM_CONSTANT);
        let delay_s = dispersion_delay_s(dm_max, band.lowest_hz(), band.highest_hz(), DM_CONSTANT);
        let seconds = seconds.max(DELAYS * delay_s);
        let dm = 0.2 * dm_max;
        let width_s = (8.0 * telescope.tsamp_s()).max(2e-3);
        Ok(Self {
            telescope,
            adds_per_s: rows.iter().map(|row| row.adds_per_s).sum(),
            plan,
            delay_s,
            seconds,
            burst: Burst::new(dm, 0.5 * seconds, width_s, BURST_SNR),
            dm_tol: arguments.dm_tol,
        })
    }

    fn search(&self, arguments: &Arguments, common: &Common, backend: &Backend) -> Result<Runs> {
        let folder = arguments.folder.clone().unwrap_or_else(std::env::temp_dir);
        let name = format!("sidereal-bench-{}-{}", std::process::id(), self.telescope.slug());
        let work = child::Scratch::new(&folder.join(name))?;
        let recording = work.path().join("recording.fil");
        self.record(&recording, backend)?;
        let run = |rfi| child::search(&recording, work.path(), self, rfi, common);
        Ok(Runs { plain: run("none")?, mitigated: run("auto")? })
    }

    /// Writes the simulated recording.
    fn record(&self, path: &Path, backend: &Backend) -> Result<()> {
        let tsamp_s = self.telescope.tsamp_s();
        let mut options =
            Options::new(self.telescope.band()?, tsamp_s, (self.seconds / tsamp_s) as u64);
        options.bursts.push(self.burst);
        options.telescope = self.telescope.name.to_owned();
        let mut source = Simulator::new(options)?;
        if let Backend::Cpu(_, threads) = backend {
            source = source.with_threads(threads.clone());
        }
        let mut writer = FilterbankWriter::create(path, source.header())?;
        let row_bytes = source.header().row_bytes();
        let mut rows = vec![0; (GULP_BYTES / row_bytes).max(1) * row_bytes];
        loop {
            let times = source.read(&mut rows)?;
            if times == 0 {
                return writer.finish();
            }
            writer.write(&rows[..times * row_bytes])?;
        }
    }

    /// Returns the highest DM of the search.
    fn dm_max(&self) -> f64 {
        self.telescope.dm_max
    }

    fn realtime(&self, run: &child::Run) -> f64 {
        self.seconds / run.wall_s
    }

    fn row(&self, case: String, run: &child::Run, backend: &Backend, roof_adds_per_s: f64) -> Row {
        let rate = self.realtime(run);
        let roof = roof_adds_per_s / self.adds_per_s;
        let baseline = self.telescope.published_a100;
        Row {
            bench: "telescopes",
            case,
            device: backend.name(),
            rate,
            unit: "x real time",
            roof,
            roof_unit: "x real time by brute-force additions alone",
            fraction_of_roof: rate / roof,
            baseline,
            ratio_to_baseline: rate / baseline,
            checked: run.found(&self.burst),
            median: rate,
        }
    }

    #[allow(clippy::print_stdout)]
    fn print(&self, runs: &Runs) {
        let run = &runs.plain;
        let Telescope { name, channels, tsamp_us, dm_max, published_v100, published_a100, .. } =
            *self.telescope;
        let bins: Vec<String> =
            self.plan.ranges.iter().map(|range| range.downsample.to_string()).collect();
        println!(
            "{name:<16} {channels:>8} {tsamp_us:>8} {dm_max:>6.0} {:>7} {:>8.2} {:>7.1} {:>9.2} {:>9.2} \
             {published_v100:>9} {published_a100:>9} {:>9.0} {:>6}  {}",
            self.plan.trials(),
            self.delay_s,
            self.seconds,
            self.realtime(run),
            self.realtime(&runs.mitigated),
            run.peak_mib,
            if run.found(&self.burst) && runs.mitigated.found(&self.burst) { "yes" } else { "NO" },
            bins.join(",")
        );
    }
}

#[allow(clippy::print_stdout)]
fn print_head() {
    println!(
        "{:<16} {:>8} {:>8} {:>6} {:>7} {:>8} {:>7} {:>9} {:>9} {:>9} {:>9} {:>9} {:>6}  binning of the ranges",
        "telescope",
        "channels",
        "tsamp/us",
        "DM max",
        "trials",
        "delay/s",
        "data/s",
        "real time",
        "rfi auto",
        "V100",
        "A100",
        "peak/MiB",
        "found"
    );
}

#[allow(clippy::print_stdout)]
fn print_foot(ratio: f64) {
    println!(
        "real time: seconds of data a second of the whole search, from start to end of the process, with --rfi none;\n\
         rfi auto: the same with --rfi auto, which takes {ratio:.2} times as long in all.\n\
         V100, A100: the same of AstroAccelerate's dedispersion (Novotny et al. 2023, Table 4)."
    );
}
