//! `sidereal devices`: lists the CPU's and GPUs' properties.

use std::fmt::Write as _;

use clap::Args;
use serde::Serialize;
use sidereal::Result;
use sidereal::backend::cuda::{self, Status};
use sidereal::backend::simd::Level;
use sidereal::backend::threads::Threads;
use sidereal::backend::{Backend, Host, roof};

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
    cuda: Libraries,
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
    gpu: Option<Gpu>,
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
        cuda: Libraries::find(),
        devices: devices?,
    };
    if common.json { json::print(&document) } else { json::say(table(&document).trim_end()) }
}

fn device(backend: &Backend, measure: bool) -> Result<Device> {
    let (kind, level, threads) = match backend.host() {
        Host::Reference => ("reference", None, Threads::new(1)),
        Host::Cpu(_, threads) if backend.is_gpu() => ("cuda", None, threads),
        Host::Cpu(level, threads) => ("cpu", Some(level), threads),
    };
    let adds = |threads: &Threads| level.map(|level| roof::byte_adds(level, threads, SECONDS));
    Ok(Device {
        name: backend.name(),
        kind,
        level: level.map(Level::name),
        threads: threads.count(),
        byte_adds_per_s_one_thread: measure.then(|| adds(&Threads::new(1))).flatten(),
        byte_adds_per_s: measure.then(|| adds(&threads)).flatten(),
        gpu: Gpu::of(backend, measure)?,
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
    text.push_str(&gpu_table(&gpus.collect::<Vec<_>>()));
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

/// Libraries that GPUs need.
#[derive(Serialize)]
struct Libraries {
    /// CUDA version of the driver.
    driver: Option<String>,
    nvrtc: Option<String>,
    cufft: Option<String>,
    /// Missing libraries, and what to install; empty if none is missing.
    missing: Vec<String>,
}

/// Properties of a GPU.
#[derive(Serialize)]
struct Gpu {
    capability: String,
    /// Architecture that its kernels are compiled for.
    architecture: String,
    /// Notes for the user.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    notes: Vec<String>,
    multiprocessors: usize,
    memory_bytes: usize,
    memory_free_bytes: usize,
    /// Bytes per second read and written in device memory, if measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    copy_bytes_per_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    to_device_bytes_per_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    from_device_bytes_per_s: Option<f64>,
}

impl Libraries {
    /// Finds the libraries of this machine.
    fn find() -> Self {
        let Status { driver, nvrtc, cufft, .. } = cuda::status();
        let missing = [driver.as_ref().err(), nvrtc.as_ref().err(), cufft.as_ref().err()];
        let missing = missing.into_iter().flatten().cloned().collect();
        Self {
            driver: driver
                .ok()
                .map(|version| format!("{}.{}", version / 1000, version % 1000 / 10)),
            nvrtc: nvrtc.ok().map(|(major, minor)| format!("{major}.{minor}")),
            cufft: cufft.ok().map(|version| format!("{}.{}", version / 1000, version % 1000 / 100)),
            missing,
        }
    }

    /// Formats one line: the versions, or the missing libraries.
    fn text(&self) -> String {
        if self.driver.is_none() {
            // Without a GPU the other libraries are useless.
            return format!("not used: {}", self.missing[0]);
        }
        let part = |name: &str, version: &Option<String>| {
            version.as_ref().map(|version| format!("{name} {version}"))
        };
        let found =
            [part("driver", &self.driver), part("NVRTC", &self.nvrtc), part("cuFFT", &self.cufft)];
        let found: Vec<String> = found.into_iter().flatten().collect();
        [&[found.join(", ")], self.missing.as_slice()].concat().join("; ")
    }
}

impl Gpu {
    /// Returns the properties of a backend's GPU; measures its rates if requested and possible.
    fn of(backend: &Backend, measure: bool) -> Result<Option<Self>> {
        let Backend::Cuda(device, _) = backend else { return Ok(None) };
        let can_measure = measure && cuda::nvrtc().is_ok();
        let memory_free_bytes = device.free_bytes()?;
        let rates = can_measure.then(|| device.rates()).transpose()?;
        let properties = device.properties();
        let (major, minor) = properties.capability;
        Ok(Some(Self {
            capability: format!("{major}.{minor}"),
            architecture: device.architecture(),
            notes: device.take_notes(),
            multiprocessors: properties.multiprocessors,
            memory_bytes: properties.memory_bytes,
            memory_free_bytes,
            copy_bytes_per_s: rates.map(|rates| rates.copy),
            to_device_bytes_per_s: rates.map(|rates| rates.to_device),
            from_device_bytes_per_s: rates.map(|rates| rates.from_device),
        }))
    }

    fn row(&self) -> String {
        let gib = |bytes: usize| bytes as f64 / f64::from(1 << 30);
        let memory = format!("{:.1} of {:.1}", gib(self.memory_free_bytes), gib(self.memory_bytes));
        let mut row = format!("{:>11}{:>9}{memory:>20}", self.capability, self.multiprocessors);
        let rates =
            [self.copy_bytes_per_s, self.to_device_bytes_per_s, self.from_device_bytes_per_s];
        for rate in rates.into_iter().flatten() {
            let _ = write!(row, "{:>11.1}", rate / 1e9);
        }
        row
    }
}

/// Formats one line per GPU under a heading; empty without GPUs.
fn gpu_table(gpus: &[(&String, &Gpu)]) -> String {
    let Some((_, first)) = gpus.first() else { return String::new() };
    let measured = first.copy_bytes_per_s.is_some();
    let rates = if measured { "  copy GB/s      to it    from it" } else { "" };
    let mut text = format!("\n{:<30}capability  multip.  GiB of memory free{rates}\n", "GPU");
    for (name, gpu) in gpus {
        let _ = writeln!(text, "{name:<29}{}", gpu.row());
    }
    for note in gpus.iter().flat_map(|(_, gpu)| &gpu.notes) {
        let _ = writeln!(text, "\nNote: {note}.");
    }
    if measured {
        text.push_str(
            "\nGB/s: its own memory, read and written; page-locked memory of the host.\n",
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn libraries(driver: Option<&str>, nvrtc: Option<&str>, missing: &[&str]) -> Libraries {
        Libraries {
            driver: driver.map(str::to_owned),
            nvrtc: nvrtc.map(str::to_owned),
            cufft: Some("12.0".to_owned()),
            missing: missing.iter().map(|text| (*text).to_owned()).collect(),
        }
    }

    #[test]
    fn one_line_says_what_is_there_or_missing() {
        let all = libraries(Some("13.0"), Some("13.0"), &[]);
        assert_eq!(all.text(), "driver 13.0, NVRTC 13.0, cuFFT 12.0");
        let without = libraries(Some("13.0"), None, &["NVRTC is missing"]);
        assert_eq!(without.text(), "driver 13.0, cuFFT 12.0; NVRTC is missing");
        let none = libraries(None, None, &["no driver", "NVRTC is missing"]);
        assert_eq!(none.text(), "not used: no driver");
    }

    #[test]
    fn rows_stand_under_their_headings() {
        let gpu = Gpu {
            capability: "9.0".to_owned(),
            architecture: "sm_90a".to_owned(),
            notes: vec!["it is newer".to_owned()],
            multiprocessors: 132,
            memory_bytes: 140 << 30,
            memory_free_bytes: 139 << 30,
            copy_bytes_per_s: Some(4.0e12),
            to_device_bytes_per_s: Some(55.0e9),
            from_device_bytes_per_s: Some(54.0e9),
        };
        let name = "cuda:0 NVIDIA H200".to_owned();
        let text = gpu_table(&[(&name, &gpu)]);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[1].len(), lines[2].len(), "{text}");
        assert!(lines[2].contains("139.0 of 140.0") && lines[2].contains("4000.0"), "{text}");
        assert!(text.contains("\nNote: it is newer.\n"), "{text}");
        assert_eq!(gpu_table(&[]), "");
    }
}
