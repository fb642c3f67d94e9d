//! `bench telescopes`: multiple of real time of a complete search for each telescope of the AstroAccelerate paper's
//! Table 4, beside the paper's two GPUs. On CPUs the search runs as a user runs it, in its own process; its wall-clock
//! time and peak memory count.

mod gpu;
#[cfg(target_os = "linux")]
mod live;
mod observation;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use sidereal::backend::simd::Level;
use sidereal::backend::threads::Threads;
use sidereal::backend::{Backend, Host, roof};
use sidereal::simulate::burst::Burst;
use sidereal::simulate::{TELESCOPES, Telescope};
use sidereal::{Error, Result};

use crate::gpu::Gpu;
use crate::runner::{Rates, Row, Run, Session, say};
pub(crate) use observation::Arguments;
use observation::{Observation, SECONDS, Scratch, has_burst, summary};

/// Interval between readings of the process's memory.
const LOOK: Duration = Duration::from_millis(1);

/// Runs the benchmark.
pub(crate) fn run(arguments: &Arguments, session: &Session<'_>) -> Result<()> {
    let range = 1.0..=86400.0;
    let seconds = arguments.seconds.unwrap_or(SECONDS);
    if !range.contains(&seconds) {
        return Err(Error::parameter("--seconds", seconds, "it must be 1 to 86400 s"));
    }
    let chosen: Vec<&Telescope> = if arguments.only.is_empty() {
        TELESCOPES.iter().collect()
    } else {
        arguments.only.iter().map(|name| Telescope::by_name(name)).collect::<Result<_>>()?
    };
    #[cfg(target_os = "linux")]
    if let Some(rate) = arguments.live {
        return live::run(rate, &chosen, arguments, session);
    }
    let backend = &session.backend;
    if let Some(gpu) = Gpu::of(backend, arguments.on_gpu)? {
        return gpu::run(&gpu, &chosen, arguments, session);
    }
    let roof = roof_adds_per_s(backend);
    let mut run = Run::hidden(session, arguments.csv.as_deref());
    let (mut plain_s, mut mitigated_s) = (0.0, 0.0);
    if session.talks() {
        say(&head())?;
    }
    for telescope in chosen {
        let observation = Observation::new(telescope, arguments, seconds)?;
        let (work, recording) = Scratch::recorded(&observation, arguments, session)?;
        let search = |rfi| search(&observation, &recording, &work.0, rfi, session.threads);
        let (plain, mitigated) = (search("none")?, search("auto")?);
        drop(work);
        if session.talks() {
            say(&line(&observation, &plain, &mitigated))?;
        }
        plain_s += plain.wall_s;
        mitigated_s += mitigated.wall_s;
        let row = |case: String, search: &Search| -> Row {
            let rate = search.realtime(&observation);
            let rates = Rates::once(rate, roof / observation.adds_per_s, telescope.published_a100);
            let checked = search.found(&observation.burst);
            let row = rates.row("telescopes", case, backend, "x real time", checked);
            row.beside("x real time by brute-force additions alone")
        };
        run.push(row(telescope.name.to_owned(), &plain))?;
        run.push(row(format!("{}, --rfi auto", telescope.name), &mitigated))?;
    }
    if session.talks() {
        let ratio = mitigated_s / plain_s;
        say(&format!(
            "real time: seconds of data a second of the whole search, from start to end of the process, with --rfi none;\n\
             rfi auto: the same with --rfi auto, which takes {ratio:.2} times as long in all.\n\
             V100, A100: the same of AstroAccelerate's dedispersion (Novotny et al. 2023, Table 4)."
        ))?;
    }
    run.finish()
}

/// Returns the additions per second of 8-bit samples that brute force reaches at best.
fn roof_adds_per_s(backend: &Backend) -> f64 {
    match &backend.host() {
        Host::Cpu(level, threads) => roof::byte_adds(*level, threads, 0.2),
        Host::Reference => roof::byte_adds(Level::Portable, &Threads::new(1), 0.2),
    }
}

fn head() -> String {
    format!(
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
    )
}

fn line(observation: &Observation, plain: &Search, mitigated: &Search) -> String {
    let Telescope { name, channels, tsamp_us, dm_max, published_v100, published_a100, .. } =
        *observation.telescope;
    let Observation { plan, delay_s, seconds, burst, .. } = observation;
    let bins: Vec<String> = plan.ranges.iter().map(|range| range.downsample.to_string()).collect();
    format!(
        "{name:<16} {channels:>8} {tsamp_us:>8} {dm_max:>6.0} {:>7} {delay_s:>8.2} {seconds:>7.1} {:>9.2} {:>9.2} \
         {published_v100:>9} {published_a100:>9} {:>9.0} {:>6}  {}",
        plan.trials(),
        plain.realtime(observation),
        mitigated.realtime(observation),
        plain.peak_mib,
        if plain.found(burst) && mitigated.found(burst) { "yes" } else { "NO" },
        bins.join(",")
    )
}

/// Time, memory and candidates of a search.
struct Search {
    wall_s: f64,
    peak_mib: f64,
    summary: Value,
}

impl Search {
    fn realtime(&self, observation: &Observation) -> f64 {
        observation.seconds / self.wall_s
    }

    /// Returns whether a candidate matches the burst in DM and time.
    fn found(&self, burst: &Burst) -> bool {
        has_burst(&self.summary, burst)
    }
}

/// Runs `sidereal search` on a recording with a value of `--rfi`; the search makes the plan from its own options.
fn search(
    observation: &Observation,
    recording: &Path,
    folder: &Path,
    rfi: &str,
    threads: usize,
) -> Result<Search> {
    let program = std::env::current_exe().map_err(|source| Error::io("sidereal", source))?;
    let begin = Instant::now();
    let mut child = Command::new(&program)
        .arg("search")
        .arg(recording)
        .args(["--json", "--overwrite"])
        .args(observation.options(rfi))
        .args(["--threads", &threads.to_string()])
        // Excludes the truncated start and end of the recording, which the search processes once more.
        .args(["--min-band", "1"])
        .arg("-o")
        .arg(folder.join("search"))
        .stdout(Stdio::null())
        .spawn()
        .map_err(|source| Error::io(&program, source))?;
    let peak_mib = wait(&mut child).map_err(|source| Error::io(&program, source))?;
    let wall_s = begin.elapsed().as_secs_f64();
    let summary = summary(&folder.join("search"))?;
    Ok(Search { wall_s, peak_mib, summary })
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
