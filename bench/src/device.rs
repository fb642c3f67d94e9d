//! `bench device`: bandwidths of the GPU and its bus, and the time to a program's first result.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use clap::Args;
use sidereal::backend::Backend;
use sidereal::backend::cuda::measure;
use sidereal::channelize::{Channelizer, Options, Output, Plan};
use sidereal::voltage::{VoltageEncoding, Voltages};
use sidereal::{Error, Result};

use crate::random;
use crate::runner::{Rates, Run, Session};

/// Measure a GPU's memory, its bus, and the time to its first result.
#[derive(Args, Clone, Debug)]
pub(crate) struct Arguments {
    /// Size of each copy, in MiB.
    #[arg(long, default_value_t = 1024, value_name = "MIB")]
    working_set: usize,
    /// Compute one first result and exit: the parent process times it.
    #[arg(long, hide = true)]
    first: bool,
    /// Also write the table to this CSV file.
    #[arg(long, value_name = "FILE")]
    pub(crate) csv: Option<PathBuf>,
}

const ABOUT: &str = "\
Copies in the device's memory (read and written bytes), reading it, and copies between page-locked memory of
the host and the device; seconds from the start of the program to the first filter bank's output, on a first
run and on a later one. Baseline: an H200 with driver 580 and CUDA 13.0 (10^9 bytes a second).";

/// Copy in the memory of the H200 of the baseline, in 10^9 bytes a second.
const COPY_GB_S: f64 = 4200.0;

/// Longest time in seconds to a program's first result once its kernels are compiled.
const START_S: f64 = 1.0;

/// Runs the benchmark.
pub(crate) fn run(arguments: &Arguments, session: &Session<'_>) -> Result<()> {
    let backend = session.backend.clone();
    if arguments.first {
        return first_result(&backend);
    }
    let Backend::Cuda(device, _) = &backend else {
        let rule = "this measures a GPU: --device cuda";
        return Err(Error::parameter("--device", backend.name(), rule));
    };
    let bytes = arguments.working_set.max(1) << 20;
    let mut run = Run::new(session, arguments.csv.as_deref(), ABOUT)?;
    let row = |case: &str, rate: f64, unit: &'static str, baseline: f64| {
        Rates::once(rate, rate, baseline).row("device", case, &backend, unit, true)
    };
    for copy in measure::copies(device)? {
        let case = format!("memory copy by {}, read and written", copy.name);
        run.push(row(&case, copy.rate * 1e-9, "GB/s", COPY_GB_S))?;
    }
    let transfers = measure::transfers(device, bytes)?;
    let rates = [
        ("memory copy, read and written", device.rates()?.copy, COPY_GB_S),
        ("memory read", measure::read_rate(device, bytes)?, 4500.0),
        ("host to device, page-locked", transfers.to_device, 55.0),
        ("device to host, page-locked", transfers.from_device, 55.0),
        ("each way while both are used", transfers.both, 50.6),
    ];
    for (case, rate, baseline) in rates {
        run.push(row(case, rate * 1e-9, "GB/s", baseline))?;
    }
    let cache = std::env::temp_dir().join(format!("sidereal-first-{}", std::process::id()));
    for case in ["first result, nothing compiled", "first result, kernels compiled before"] {
        let seconds = start(&backend, session.threads, &cache)?;
        run.push(row(case, 1.0 / seconds, "runs/s", 1.0 / START_S))?;
    }
    let _ = std::fs::remove_dir_all(&cache);
    run.finish()
}

/// Returns the seconds from this program's start to its first result, with compiled kernels cached in a folder.
fn start(backend: &Backend, threads: usize, cache: &Path) -> Result<f64> {
    let program = std::env::current_exe().map_err(|source| Error::io("sidereal", source))?;
    let ordinal = match backend {
        Backend::Cuda(device, _) => device.ordinal(),
        _ => 0,
    };
    let began = Instant::now();
    let status = Command::new(&program)
        .args(["bench", "device", "--first", "--device", &format!("cuda:{ordinal}")])
        .args(["--threads", &threads.to_string()])
        .env("SIDEREAL_CACHE_DIR", cache)
        .stdout(Stdio::null())
        .status()
        .map_err(|source| Error::io(&program, source))?;
    if !status.success() {
        let (what, why) = ("a first result".to_owned(), format!("the program ended with {status}"));
        return Err(Error::Unavailable { what, why });
    }
    Ok(began.elapsed().as_secs_f64())
}

/// Channelizes a little data, as a user's first call would.
fn first_result(backend: &Backend) -> Result<()> {
    let plan = Plan::new(Options::new(1024, 8, VoltageEncoding::Complex8))?;
    let bytes = random::bytes(2 * 16 * plan.points());
    let mut channelizer = Channelizer::new(plan.clone(), backend)?;
    let rows = plan.max_rows(16 * plan.points());
    let mut output = vec![rustfft::num_complex::Complex::ZERO; rows * plan.row_elements()];
    let input = Voltages::one(&bytes, plan.input().encoding)?;
    let progress = channelizer.run(input, Output::Complex(&mut output))?;
    if progress.produced == 9 && output.iter().any(|z| z.norm_sqr() > 0.0) {
        return Ok(());
    }
    let (what, why) = ("a first result".to_owned(), format!("{} rows came", progress.produced));
    Err(Error::Unavailable { what, why })
}
