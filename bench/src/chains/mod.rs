//! `bench chains`: whole verbs of the command line, from files and from a pipe, beside the roof of their slowest part.

mod cases;
mod child;
mod inputs;
mod roofs;
pub(crate) mod scale;
mod table;

use std::path::{Path, PathBuf};

use cases::{Chain, Check, OUTPUT, Size, Sizes, Verb, gigabytes};
use child::{Ended, Runs, Shares, remove, trace_in};
use clap::{Args, ValueEnum};
use inputs::Maker;
use roofs::Best;
use sidereal::backend::Backend;
use sidereal::backend::cuda::measure;
use sidereal::backend::threads::Threads;
use sidereal::{Error, Result};
use table::{Roofs, Row, Table};
use tempfile::TempDir;

use crate::runner::{Document, Session, say};

/// Measure whole verbs, from their files to their products, beside the roof of their slowest part.
#[derive(Args, Clone, Debug)]
pub(crate) struct Arguments {
    /// Verbs to measure [default: all].
    #[arg(long, value_enum, value_name = "VERBS", value_delimiter = ',')]
    verbs: Vec<Verb>,
    /// Amount of data.
    #[arg(long, value_enum, value_name = "SIZE", default_value = "full")]
    size: Size,
    /// Measure small data once, in about a minute on two cores: the rates mean little.
    #[arg(long, conflicts_with = "size")]
    quick: bool,
    /// Measure only cases whose name contains this text.
    #[arg(long)]
    only: Option<String>,
    /// Folder for inputs and products, which are deleted at the end [default: in /dev/shm if there is enough space,
    /// else the temporary folder].
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,
    /// Runs of each case, of which the median counts [default: 3, with --quick 1].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=100))]
    runs: Option<u16>,
    /// Also measure runs with empty caches of kernels, ours and the driver's.
    #[arg(long)]
    cold: bool,
    /// Keep the inputs, and print their folder.
    #[arg(long)]
    keep: bool,
    /// Make the inputs in this folder, print the command lines that read them, and measure nothing.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["csv", "folder", "runs", "cold", "keep", "only"])]
    make_only: Option<PathBuf>,
    /// Also write the table to this CSV file.
    #[arg(long, value_name = "FILE")]
    pub(crate) csv: Option<PathBuf>,
}

impl Arguments {
    fn verbs(&self) -> Vec<Verb> {
        match self.verbs.is_empty() {
            true => Verb::value_variants().to_vec(),
            false => self.verbs.clone(),
        }
    }

    fn runs(&self) -> usize {
        self.runs.map_or(if self.quick { 1 } else { 3 }, usize::from)
    }
}

/// Memory-backed file system of most machines.
const SHARED_MEMORY: &str = "/dev/shm";

/// Bytes of a copy over the bus, and of one of a quick run.
const BUS_BYTES: usize = 1 << 30;
const QUICK_BUS_BYTES: usize = 16 << 20;

const ABOUT: &str = "\
Whole runs of the command line, from the start of the program to its end: the median in seconds, and the
multiple of real time. Start-up: to the first kernel of dedispersion or of a filter bank (on a CPU, to the
first computation). Then the seconds in which kernels, copies, reads and so on were under way, from the time
stamps of another run. Roof: the seconds of the slowest part alone, measured in this run: reading the input or
writing as many bytes as the product has with the best number of threads, the pipe, a page-locked copy of as
many bytes over the bus, or the kernels (on a CPU, the computations).";

/// Runs the benchmark.
pub(crate) fn run(arguments: &Arguments, session: &Session<'_>) -> Result<()> {
    session.check(0.0)?;
    let size = if arguments.quick { Size::Quick } else { arguments.size };
    let (sizes, verbs) = (Sizes::of(size), arguments.verbs());
    let threads = Threads::new(session.threads);
    let maker = Maker { threads: &threads, caller: session.caller };
    let need = |verb: &Verb| verb.need(&sizes);
    if let Some(folder) = &arguments.make_only {
        std::fs::create_dir_all(folder).map_err(|error| Error::io(folder, error))?;
        check_space(folder, verbs.iter().map(need).sum())?;
        return make(&verbs, &sizes, folder, &maker, session);
    }
    let most = match arguments.keep {
        true => verbs.iter().map(need).sum(),
        false => verbs.iter().map(need).max().unwrap_or(0),
    };
    let place = place(arguments.folder.as_deref(), most)?;
    let home = tempfile::Builder::new().prefix("sidereal-chains-").tempdir_in(&place);
    let home = home.map_err(|error| Error::io(&place, error))?;
    // Removes the folder also if a second signal ends the program.
    let _held = session.caller.hold(home.path());
    let file_system = file_system(&place);
    let folder = place.display();
    let about = format!("{ABOUT}\nIn {folder} ({file_system}), on {}.", session.backend.name());
    let bench = Bench {
        arguments,
        session,
        home: &home,
        file_system,
        bus: bus(&session.backend, arguments.quick)?,
        most_threads: threads.count(),
    };
    let mut table = Table::new(session, arguments.csv.as_deref(), &about)?;
    for verb in &verbs {
        let inputs = home.path().join("inputs");
        std::fs::create_dir_all(&inputs).map_err(|error| Error::io(&inputs, error))?;
        for chain in verb.make(&sizes, &inputs, &maker)? {
            if arguments.only.as_deref().is_none_or(|part| chain.name.contains(part)) {
                bench.chain(&chain, &mut table)?;
            }
        }
        if !arguments.keep {
            remove(&inputs)?;
        }
    }
    if arguments.keep {
        for other in ["products", "warm", "cold"] {
            remove(&home.path().join(other))?;
        }
        let kept = home.keep();
        eprintln!("sidereal: the inputs are in {}", kept.join("inputs").display());
    }
    table.finish()
}

/// Makes the inputs in a folder and prints the command lines that read them.
fn make(
    verbs: &[Verb],
    sizes: &Sizes,
    folder: &Path,
    maker: &Maker<'_>,
    session: &Session<'_>,
) -> Result<()> {
    let mut lines = Vec::new();
    for verb in verbs {
        for chain in verb.make(sizes, folder, maker)? {
            let words = chain.command_line(Path::new(OUTPUT), false).join(" ");
            if session.talks() {
                say(&format!("# {}\nsidereal {words}", chain.name))?;
            }
            lines.push(serde_json::json!({
                "bench": "chains", "case": chain.name, "command": format!("sidereal {words}"),
            }));
        }
    }
    match session.json {
        true => session.caller.print(&Document::Lines(lines)),
        false => Ok(()),
    }
}

/// Measurement in progress.
struct Bench<'a> {
    arguments: &'a Arguments,
    session: &'a Session<'a>,
    home: &'a TempDir,
    file_system: String,
    /// Copies to and from the GPU, if there is one.
    bus: Option<[Best; 2]>,
    most_threads: usize,
}

impl Bench<'_> {
    /// Measures a chain from files and, if it reads streams, from a pipe, warm and, if that is asked for, cold.
    fn chain(&self, chain: &Chain, table: &mut Table<'_>) -> Result<()> {
        let input_bytes = chain.input_bytes()?;
        let read = match chain.inputs.is_empty() {
            true => Best::default(),
            false => roofs::read(&chain.inputs, self.most_threads)?,
        };
        for piped in [false, true] {
            for cold in [false, true] {
                if (piped && !chain.streams) || (cold && !self.arguments.cold) {
                    continue;
                }
                let pipe = piped.then(|| roofs::pipe(&chain.inputs)).transpose()?;
                let runs = Runs {
                    chain,
                    devices: vec![self.session.device()],
                    ranks: None,
                    threads: self.session.threads,
                    piped,
                    products: self.home.path().join("products"),
                    cache: self.home.path().join(if cold { "cold" } else { "warm" }),
                    cold,
                };
                match self.measure(&runs) {
                    Ok(Measured { wall_s, ended, shares, write }) => {
                        let checked = match chain.check {
                            Check::Exists => ended.product_bytes > 0,
                            Check::Candidates(least) => {
                                ended.candidates.is_some_and(|found| found >= least)
                            }
                        };
                        let [to_device, from_device] = match self.bus {
                            Some(bus) => bus.map(Some),
                            None => [None; 2],
                        };
                        table.push(Row {
                            case: chain.name.clone(),
                            device: self.session.backend.name(),
                            file_system: self.file_system.clone(),
                            piped,
                            cold,
                            wall_s,
                            data_s: chain.seconds,
                            input_bytes,
                            product_bytes: ended.product_bytes,
                            shares,
                            traced_wall_s: ended.wall_s,
                            roofs: Roofs { read, write, pipe, to_device, from_device },
                            checked,
                        })?;
                    }
                    Err(stop) if stop.is_stop() => return Err(stop),
                    Err(error) => table.fail(&chain.name, &error),
                }
            }
        }
        Ok(())
    }

    /// Runs a chain with time stamps once and without them several times.
    fn measure(&self, runs: &Runs<'_>) -> Result<Measured> {
        let caller = self.session.caller;
        let trace = trace_in(self.home.path());
        if self.bus.is_some() && !runs.cold {
            // Fills the cache of kernels.
            runs.once(None, caller)?;
            remove(&runs.products)?;
        }
        let ended = runs.once(Some(&trace), caller)?;
        let shares = Shares::read(&trace)?;
        for kept in &runs.chain.kept {
            let from = runs.products.join(&kept.from);
            std::fs::rename(&from, &kept.to).map_err(|error| Error::io(&from, error))?;
        }
        remove(&runs.products)?;
        let mut wall_s = Vec::new();
        for _ in 0..self.arguments.runs() {
            let again = runs.once(None, caller)?;
            if again.candidates != ended.candidates {
                return Err(runs.failed("two runs found different candidates".to_owned()));
            }
            wall_s.push(again.wall_s);
            remove(&runs.products)?;
        }
        wall_s.sort_by(f64::total_cmp);
        let write = roofs::write(self.home.path(), ended.product_bytes, self.most_threads)?;
        Ok(Measured { wall_s, ended, shares, write })
    }
}

/// Result of the runs of a chain.
struct Measured {
    /// Wall times in ascending order.
    wall_s: Vec<f64>,
    ended: Ended,
    shares: Shares,
    write: Best,
}

/// Measures copies between page-locked memory and the GPU of a backend; `None` without one.
fn bus(backend: &Backend, quick: bool) -> Result<Option<[Best; 2]>> {
    let Backend::Cuda(device, _) = backend else { return Ok(None) };
    let found = measure::transfers(device, if quick { QUICK_BUS_BYTES } else { BUS_BYTES })?;
    Ok(Some([found.to_device, found.from_device].map(|rate| Best { rate, threads: 1 })))
}

/// Returns the folder given, or one with space for `need` bytes.
fn place(given: Option<&Path>, need: u64) -> Result<PathBuf> {
    if let Some(given) = given {
        check_space(given, need)?;
        return Ok(given.to_owned());
    }
    let memory = Path::new(SHARED_MEMORY);
    if memory.is_dir() && check_space(memory, need).is_ok() {
        return Ok(memory.to_owned());
    }
    let temporary = std::env::temp_dir();
    check_space(&temporary, need)?;
    Ok(temporary)
}

/// Type of a file system in memory.
const TMPFS: u64 = 0x0102_1994;

/// Fails if a folder has less free space than `need` bytes: on its file system, and for one in memory in the memory.
///
/// # Errors
/// [`Error::Io`] with the bytes needed and free.
fn check_space(folder: &Path, need: u64) -> Result<()> {
    let Some(mut free) = free_bytes(folder)? else { return Ok(()) };
    let mut of = "its file system";
    if let Some(available) = available_memory().filter(|_| kind(folder) == Some(TMPFS))
        && available < free
    {
        (free, of) = (available, "the memory that holds it");
    }
    if need <= free {
        return Ok(());
    }
    let why = format!(
        "{} are needed for inputs and products, and {} of {of} are free: choose another --folder, fewer --verbs, \
         or --quick",
        gigabytes(need),
        gigabytes(free)
    );
    Err(Error::io(folder, std::io::Error::new(std::io::ErrorKind::StorageFull, why)))
}

/// Returns the free bytes of a folder's file system.
#[cfg(unix)]
fn free_bytes(folder: &Path) -> Result<Option<u64>> {
    let found = rustix::fs::statvfs(folder).map_err(|error| Error::io(folder, error.into()))?;
    Ok(Some(found.f_bavail.saturating_mul(found.f_frsize)))
}

/// Returns `None`: this system is not asked.
#[cfg(not(unix))]
fn free_bytes(_: &Path) -> Result<Option<u64>> {
    Ok(None)
}

/// Returns the bytes of memory that can be used without swapping, if the system tells.
fn available_memory() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kibibytes| kibibytes << 10)
}

/// Returns the type of a folder's file system.
#[cfg(target_os = "linux")]
fn kind(folder: &Path) -> Option<u64> {
    u64::try_from(rustix::fs::statfs(folder).ok()?.f_type).ok()
}

#[cfg(not(target_os = "linux"))]
fn kind(_: &Path) -> Option<u64> {
    None
}

/// Names the file system of a folder.
fn file_system(folder: &Path) -> String {
    match kind(folder) {
        Some(TMPFS) => "tmpfs".to_owned(),
        Some(0xef53) => "ext4".to_owned(),
        Some(0x5846_5342) => "xfs".to_owned(),
        Some(0x9123_683e) => "btrfs".to_owned(),
        Some(0x794c_7630) => "overlayfs".to_owned(),
        Some(0x6969) => "nfs".to_owned(),
        Some(other) => format!("type {other:#x}"),
        None => "unknown".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_without_space_is_refused_with_both_sizes() {
        let folder = tempfile::tempdir().unwrap();
        check_space(folder.path(), 1).unwrap();
        let error = check_space(folder.path(), 1 << 60).unwrap_err().to_string();
        assert!(
            error.contains("1152921504.6 GB are needed") && error.contains("--quick"),
            "{error}"
        );
        assert!(place(Some(&folder.path().join("none")), 1).is_err());
        assert_eq!(place(Some(folder.path()), 1).unwrap(), folder.path());
        assert!(!file_system(folder.path()).is_empty());
    }
}
