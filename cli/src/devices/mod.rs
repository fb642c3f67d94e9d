//! `sidereal devices`: lists the devices of this machine.

mod cuda;

use std::fmt::Write as _;

use clap::Args;
use serde::Serialize;
use sidereal::Result;
use sidereal::backend::simd::Level;
use sidereal::backend::threads::Threads;
use sidereal::backend::{Backend, roof};

use crate::common::Common;
use crate::json;

/// Bytes copied to measure the memory bandwidth: larger than any cache.
const COPY_BYTES: usize = 256 << 20;
/// Seconds per measurement.
const SECONDS: f64 = 0.5;

/// Show the available devices: CPU, SIMD levels, threads, GPUs, and missing GPU libraries.
#[derive(Args, Clone, Debug)]
pub(crate) struct Arguments {
    /// Also measure the roofs of each device; takes some seconds.
    ///
    /// On the CPU, additions of bytes in its caches, as in dedispersion, and memory copied by one thread; on GPUs,
    /// copies within device memory and between host and device.
    #[arg(long)]
    measure: bool,
}

#[derive(Serialize)]
struct Document {
    processor: String,
    cores: usize,
    default: String,
    /// Bytes per second read and written by one thread that copies memory, if measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    copy_bytes_per_s: Option<f64>,
    cuda: cuda::Libraries,
    devices: Vec<Device>,
}

#[derive(Serialize)]
struct Device {
    name: String,
    kind: &'static str,
    level: Option<&'static str>,
    threads: usize,
    /// Byte additions per second of one thread and of all threads, if measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    byte_adds_per_s_one_thread: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    byte_adds_per_s: Option<f64>,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    gpu: Option<cuda::Gpu>,
}

/// Runs the verb.
pub(crate) fn run(arguments: &Arguments, common: &Common) -> Result<()> {
    let measure = arguments.measure;
    let backends = Backend::available(common.threads()?);
    let devices: Result<Vec<Device>> =
        backends.iter().map(|backend| device(backend, measure)).collect();
    let document = Document {
        processor: processor(),
        cores: std::thread::available_parallelism().map_or(1, usize::from),
        default: common.backend()?.name(),
        copy_bytes_per_s: measure.then(|| roof::copy_bytes(COPY_BYTES, SECONDS)),
        cuda: cuda::Libraries::find(),
        devices: devices?,
    };
    if common.json { json::print(&document) } else { json::say(table(&document).trim_end()) }
}

fn device(backend: &Backend, measure: bool) -> Result<Device> {
    let (kind, level, threads) = match backend {
        Backend::Reference => ("reference", None, Threads::new(1)),
        Backend::Cpu(level, threads) => ("cpu", Some(*level), threads.clone()),
        Backend::Cuda(_, threads) => ("cuda", None, threads.clone()),
    };
    let adds = |threads: &Threads| level.map(|level| roof::byte_adds(level, threads, SECONDS));
    Ok(Device {
        name: backend.name(),
        kind,
        level: level.map(Level::name),
        threads: threads.count(),
        byte_adds_per_s_one_thread: measure.then(|| adds(&Threads::new(1))).flatten(),
        byte_adds_per_s: measure.then(|| adds(&threads)).flatten(),
        gpu: cuda::Gpu::of(backend, measure)?,
    })
}

fn table(document: &Document) -> String {
    let mut text = String::new();
    let _ = writeln!(text, "Processor   {}", document.processor);
    let _ = writeln!(text, "Cores       {}", document.cores);
    if let Some(rate) = document.copy_bytes_per_s {
        let _ = writeln!(text, "Memory      {:.1} GB/s, read and written, one thread", rate / 1e9);
    }
    let _ = writeln!(text, "CUDA        {}", document.cuda.text());
    let measured = document.copy_bytes_per_s.is_some();
    let roofs = if measured { "  Gadd/s: one thread     all" } else { "" };
    let _ = writeln!(text, "\n{:<22} {:>7}{roofs}  used for", "Device", "threads");
    for device in document.devices.iter().filter(|device| device.gpu.is_none()) {
        let _ = write!(text, "{:<22} {:>7}", device.name, device.threads);
        if measured {
            let shown = |rate: Option<f64>| {
                rate.map_or_else(|| "-".to_owned(), |rate| format!("{:.1}", rate / 1e9))
            };
            let one = shown(device.byte_adds_per_s_one_thread);
            let _ = write!(text, "  {one:>18} {:>7}", shown(device.byte_adds_per_s));
        }
        let _ = writeln!(text, "  {}", purpose(device, document));
    }
    if measured {
        text.push_str(
            "\nGadd/s: thousands of millions of bytes added to exact sums within the caches.\n",
        );
    }
    let gpus =
        document.devices.iter().filter_map(|device| Some((&device.name, device.gpu.as_ref()?)));
    text.push_str(&cuda::table(&gpus.collect::<Vec<_>>()));
    text
}

fn purpose(device: &Device, document: &Document) -> &'static str {
    match device.level {
        None => "checking the others: the equations in double precision, slow",
        _ if device.name == document.default => "everything, unless told otherwise",
        Some("portable") => "any machine of this architecture",
        Some(_) => "machines without wider instructions",
    }
}

/// Returns the CPU's name as the operating system reports it.
fn processor() -> String {
    let information = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = information.lines().find(|line| line.starts_with("model name"));
    let name = line.and_then(|line| line.split_once(':')).map(|(_, name)| name.trim().to_owned());
    name.unwrap_or_else(|| format!("{} ({})", std::env::consts::ARCH, Level::best().name()))
}
