//! Runs a search as a user does, in its own process; measures wall-clock time and peak memory.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use sidereal::simulate::burst::Burst;
use sidereal::{Error, Result};

use crate::session::Session;

/// Tolerance of the time binning: Heimdall's, as in the published rates.
pub(super) const DOWNSAMPLE_TOL: f64 = 1.15;

/// Interval between readings of the process's memory.
const LOOK: Duration = Duration::from_millis(1);

/// Time, memory and candidates of a search.
pub(super) struct Run {
    pub(super) wall_s: f64,
    pub(super) peak_mib: f64,
    summary: Value,
}

impl Run {
    /// Returns whether a candidate matches the burst in DM and time.
    pub(super) fn found(&self, burst: &Burst) -> bool {
        let near = |candidate: &Value| {
            let (dm, time_s) = (candidate["dm"].as_f64(), candidate["time_s"].as_f64());
            let near_dm = dm.is_some_and(|dm| (dm - burst.dm).abs() < 0.05 * burst.dm);
            let reach = 2.0 * burst.width_s;
            near_dm && time_s.is_some_and(|time| (time - burst.time_s).abs() < reach)
        };
        self.summary["candidates"].as_array().is_some_and(|all| all.iter().any(near))
    }
}

/// Folder that is removed on drop.
pub(super) struct Scratch(PathBuf);

impl Scratch {
    pub(super) fn new(path: &Path) -> Result<Self> {
        fs::create_dir_all(path).map_err(|source| Error::io(path, source))?;
        Ok(Self(path.to_owned()))
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Runs `sidereal search` on a recording with a value of `--rfi`; the search makes the plan from its own options.
pub(super) fn search(
    recording: &Path,
    folder: &Path,
    dm_max: f64,
    dm_tol: f64,
    rfi: &str,
    session: &Session<'_>,
) -> Result<Run> {
    let program = std::env::current_exe().map_err(|source| Error::io("sidereal", source))?;
    let begin = Instant::now();
    let mut child = Command::new(&program)
        .arg("search")
        .arg(recording)
        .args(["--no-plots", "--json", "--no-progress", "--dm-min", "0"])
        .args(["--dm-max", &dm_max.to_string()])
        .args(["--dm-tol", &dm_tol.to_string()])
        .args(["--downsample-tol", &DOWNSAMPLE_TOL.to_string(), "--rfi", rfi, "--overwrite"])
        .args(["--threads", &session.threads.to_string()])
        // Excludes the truncated start and end of the recording, which the search processes once more.
        .args(["--min-band", "1"])
        .arg("-o")
        .arg(folder.join("search"))
        .stdout(Stdio::null())
        .spawn()
        .map_err(|source| Error::io(&program, source))?;
    let peak_mib = wait(&mut child).map_err(|source| Error::io(&program, source))?;
    let wall_s = begin.elapsed().as_secs_f64();
    let path = folder.join("search").join("summary.json");
    let text = fs::read_to_string(&path).map_err(|source| Error::io(&path, source))?;
    let summary = serde_json::from_str(&text)
        .map_err(|error| Error::format(&path, "document", 0, error.to_string()))?;
    Ok(Run { wall_s, peak_mib, summary })
}

/// Waits for the end; returns the peak resident memory where the system reports it (0 elsewhere).
fn wait(child: &mut Child) -> std::io::Result<f64> {
    let status = PathBuf::from(format!("/proc/{}/status", child.id()));
    let mut peak: f64 = 0.0;
    loop {
        let text = fs::read_to_string(&status).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<f64>().ok());
        peak = peak.max(kib.unwrap_or(0.0) / 1024.0);
        if let Some(status) = child.try_wait()? {
            if status.success() {
                return Ok(peak);
            }
            return Err(std::io::Error::other(format!("the search ended with {status}")));
        }
        std::thread::sleep(LOOK);
    }
}
