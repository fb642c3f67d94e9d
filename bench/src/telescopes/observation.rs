//! Arguments and simulated observations of `bench telescopes`, on CPUs and GPUs.

use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::Value;
use sidereal::backend::threads::Threads;
use sidereal::dedisperse::dm_plan::{DmPlan, ToleranceOptions};
use sidereal::io::FilterbankSource as _;
use sidereal::io::sigproc::FilterbankWriter;
use sidereal::simulate::Telescope;
use sidereal::simulate::burst::{Burst, Options, Simulator};
use sidereal::units::{DM_CONSTANT, dispersion_delay_s};
use sidereal::{Error, Result};

use crate::runner::{OnGpu, Session};

/// Least length of a recording in seconds on a CPU, unless an option sets it.
pub(crate) const SECONDS: f64 = 60.0;

/// Bytes simulated at once.
const GULP_BYTES: usize = 16 << 20;

/// Least length of a recording, in dispersion delays of the highest trial.
const DELAYS: f64 = 4.0;

/// S/N of the burst that each search must find.
const BURST_SNR: f64 = 30.0;

/// Tolerance of the time binning: Heimdall's, as in the published rates.
const DOWNSAMPLE_TOL: f64 = 1.15;

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
    /// Send each recording to `live search` at this multiple of its own rate, and report what is not searched.
    #[cfg(target_os = "linux")]
    #[arg(long, value_name = "RATE")]
    pub(crate) live: Option<f64>,
    /// Folder for the recordings; each is removed after its search.
    #[arg(long, value_name = "FOLDER")]
    pub(crate) folder: Option<PathBuf>,
    /// Also write the rows to this CSV file.
    #[arg(long, value_name = "FILE")]
    pub(crate) csv: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) on_gpu: OnGpu,
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

impl Observation {
    /// Creates a recording of at least `seconds`, and of at least [`DELAYS`] dispersion delays.
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

    /// Returns the options that simulate the recording.
    ///
    /// # Errors
    /// [`Error::Parameter`] for the telescope's band.
    pub(crate) fn simulated(&self) -> Result<Options> {
        let tsamp_s = self.telescope.tsamp_s();
        let mut options =
            Options::new(self.telescope.band()?, tsamp_s, (self.seconds / tsamp_s) as u64);
        options.bursts.push(self.burst);
        options.telescope = self.telescope.name.to_owned();
        Ok(options)
    }

    /// Returns the options of a search, in a file or live.
    pub(crate) fn options(&self, rfi: &str) -> Vec<String> {
        let dm_max = self.telescope.dm_max.to_string();
        let (dm_tol, downsample_tol) = (self.dm_tol.to_string(), DOWNSAMPLE_TOL.to_string());
        let plan = ["--dm-min", "0", "--dm-max", &dm_max, "--dm-tol", &dm_tol];
        let others =
            ["--downsample-tol", &downsample_tol, "--rfi", rfi, "--no-plots", "--no-progress"];
        [plan, others].concat().into_iter().map(str::to_owned).collect()
    }
}

/// Writes the simulated recording.
fn record(observation: &Observation, path: &Path, session: &Session<'_>) -> Result<()> {
    let mut source = Simulator::new(observation.simulated()?)?
        .with_threads(Threads::new(session.backend.threads()));
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

/// Folder that is removed on drop.
pub(crate) struct Scratch(pub(crate) PathBuf);

impl Scratch {
    /// Makes a folder for an observation, and writes its recording into it; returns the path of the recording as well.
    ///
    /// # Errors
    /// Those of the simulation and of the files.
    pub(crate) fn recorded(
        observation: &Observation,
        arguments: &Arguments,
        session: &Session<'_>,
    ) -> Result<(Self, PathBuf)> {
        let folder = arguments.folder.clone().unwrap_or_else(std::env::temp_dir);
        let name =
            format!("sidereal-bench-{}-{}", std::process::id(), observation.telescope.slug());
        let path = folder.join(name);
        fs::create_dir_all(&path).map_err(|source| Error::io(&path, source))?;
        let (recording, own) = (path.join("recording.fil"), Self(path));
        record(observation, &recording, session)?;
        Ok((own, recording))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Returns whether a search's document has a candidate that matches the burst in DM and time.
pub(crate) fn has_burst(summary: &Value, burst: &Burst) -> bool {
    let near = |candidate: &Value| {
        let (dm, time_s) = (candidate["dm"].as_f64(), candidate["time_s"].as_f64());
        let near_dm = dm.is_some_and(|dm| (dm - burst.dm).abs() < 0.05 * burst.dm);
        let reach = 2.0 * burst.width_s;
        near_dm && time_s.is_some_and(|time| (time - burst.time_s).abs() < reach)
    };
    summary["candidates"].as_array().is_some_and(|all| all.iter().any(near))
}

/// Reads the document of a search in its folder.
pub(crate) fn summary(folder: &Path) -> Result<Value> {
    let path = folder.join("summary.json");
    let text = fs::read_to_string(&path).map_err(|source| Error::io(&path, source))?;
    serde_json::from_str(&text)
        .map_err(|error| Error::format(&path, "document", 0, error.to_string()))
}
