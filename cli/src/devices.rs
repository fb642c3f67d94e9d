//! `sidereal devices`: what the work can run on.

use std::fmt::Write as _;

use clap::Args;
use serde::Serialize;
use sidereal::Result;
use sidereal::backend::Backend;
use sidereal::backend::simd::Level;

use crate::common::Common;
use crate::json;

/// Shows what sidereal can run on: processor, vector instructions, threads.
#[derive(Args, Clone, Debug)]
pub(crate) struct Arguments {
    /// Also measure how fast each one is at best: its roofs (takes some seconds).
    #[arg(long)]
    measure: bool,
}

#[derive(Serialize)]
struct Document {
    processor: String,
    cores: usize,
    default: String,
    devices: Vec<Device>,
}

#[derive(Serialize)]
struct Device {
    name: String,
    kind: &'static str,
    level: Option<&'static str>,
    threads: usize,
}

/// Runs the verb.
pub(crate) fn run(arguments: &Arguments, common: &Common) -> Result<()> {
    let document = Document {
        processor: processor(),
        cores: std::thread::available_parallelism().map_or(1, usize::from),
        default: common.backend()?.name(),
        devices: Backend::available(common.threads).iter().map(device).collect(),
    };
    let _ = arguments.measure;
    if common.json { json::print(&document) } else { json::say(table(&document).trim_end()) }
}

fn device(backend: &Backend) -> Device {
    let (kind, level, threads) = match backend {
        Backend::Reference => ("reference", None, 1),
        Backend::Cpu(level, threads) => ("cpu", Some(level.name()), threads.count()),
    };
    Device { name: backend.name(), kind, level, threads }
}

fn table(document: &Document) -> String {
    let mut text = String::new();
    let _ = writeln!(text, "Processor   {}", document.processor);
    let _ = writeln!(text, "Cores       {}", document.cores);
    let _ = writeln!(text, "\n{:<22} {:>7}  used for", "Device", "threads");
    for device in &document.devices {
        let purpose = match device.level {
            None => "checking the others: the equations in double precision, slow",
            Some("portable") => "any machine of this architecture",
            Some(_) if device.name == document.default => "everything, unless told otherwise",
            Some(_) => "machines without wider instructions",
        };
        let _ = writeln!(text, "{:<22} {:>7}  {purpose}", device.name, device.threads);
    }
    text
}

/// The processor's name, as the system tells it.
fn processor() -> String {
    let information = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = information.lines().find(|line| line.starts_with("model name"));
    let name = line.and_then(|line| line.split_once(':')).map(|(_, name)| name.trim().to_owned());
    name.unwrap_or_else(|| format!("{} ({})", std::env::consts::ARCH, Level::best().name()))
}
