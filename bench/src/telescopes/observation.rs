//! Arguments and simulated observations of `bench telescopes`, on CPUs and GPUs.

use std::path::{Path, PathBuf};

use clap::Args;
use sidereal::Result;
use sidereal::backend::Backend;
use sidereal::dedisperse::dm_plan::{DmPlan, ToleranceOptions};
use sidereal::io::FilterbankSource as _;
use sidereal::io::sigproc::FilterbankWriter;
use sidereal::simulate::Telescope;
use sidereal::simulate::burst::{Burst, Options, Simulator};
use sidereal::units::{DM_CONSTANT, dispersion_delay_s};

use super::child::{self, DOWNSAMPLE_TOL};
use crate::session::Session;
use crate::table::Quick;
use crate::table::Row;

/// Least length of a recording, in dispersion delays of the highest trial.
pub(crate) const DELAYS: f64 = 4.0;

/// S/N of the burst that each search must find.
pub(crate) const BURST_SNR: f64 = 30.0;

/// Bytes simulated at once.
pub(crate) const GULP_BYTES: usize = 16 << 20;

/// Search a simulated recording of each telescope as a user would, and report the multiple of real time.
#[derive(Args, Clone, Debug)]
pub(crate) struct Arguments {
    /// Measure only this telescope; may be given several times.
    #[arg(long, value_name = "NAME")]
    pub(crate) only: Vec<String>,
    /// Least length of a recording in seconds [default: 60; on a GPU 20, and 512 MB of rows]. A recording also holds
    /// at least four delays of the highest DM.
    #[arg(long, value_name = "SECONDS")]
    pub(crate) seconds: Option<f64>,
    /// Tolerance of the DM plan.
    #[arg(long, default_value_t = 1.25, value_name = "FACTOR")]
    pub(crate) dm_tol: f64,
    /// Folder for the recordings; each is removed after its search.
    #[arg(long, value_name = "FOLDER")]
    pub(crate) folder: Option<PathBuf>,
    /// Also write the rows to this CSV file.
    #[arg(long, value_name = "FILE")]
    pub(crate) csv: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) quick: Quick,
}

/// Simulated recording of a telescope, and the plan to search it.
pub(crate) struct Observation {
    pub(crate) telescope: &'static Telescope,
    pub(crate) plan: DmPlan,
    pub(crate) adds_per_s: f64,
    pub(crate) delay_s: f64,
    pub(crate) seconds: f64,
    pub(crate) burst: Burst,
    pub(crate) dm_tol: f64,
}

/// Searches of one recording: without RFI mitigation, and with the default mitigation.
pub(crate) struct Runs {
    pub(super) plain: child::Run,
    pub(super) mitigated: child::Run,
}

impl Observation {
    /// Creates a recording of at least `seconds`, and of at least [`DELAYS`] dispersion delays.
    ///
    /// # Errors
    /// Those of the plan.
    pub(crate) fn new(
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

    pub(super) fn search(
        &self,
        arguments: &Arguments,
        session: &Session<'_>,
        backend: &Backend,
    ) -> Result<Runs> {
        let folder = arguments.folder.clone().unwrap_or_else(std::env::temp_dir);
        let name = format!("sidereal-bench-{}-{}", std::process::id(), self.telescope.slug());
        let work = child::Scratch::new(&folder.join(name))?;
        let recording = work.path().join("recording.fil");
        self.record(&recording, backend)?;
        let run =
            |rfi| child::search(&recording, work.path(), self.dm_max(), self.dm_tol, rfi, session);
        Ok(Runs { plain: run("none")?, mitigated: run("auto")? })
    }

    /// Writes the simulated recording.
    pub(crate) fn record(&self, path: &Path, backend: &Backend) -> Result<()> {
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
    pub(crate) fn dm_max(&self) -> f64 {
        self.telescope.dm_max
    }

    pub(super) fn realtime(&self, run: &child::Run) -> f64 {
        self.seconds / run.wall_s
    }

    pub(super) fn row(
        &self,
        case: String,
        run: &child::Run,
        backend: &Backend,
        roof_adds_per_s: f64,
    ) -> Row {
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
    pub(super) fn print(&self, runs: &Runs) {
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
