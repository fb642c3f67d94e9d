//! Options common to all verbs, the backend that they select, and the command line as given.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::parser::ValueSource;
use clap::{ArgMatches, Args, Command};
use serde_json::Value;
use sidereal::backend::Backend;
use sidereal::backend::cuda::{self, StartUp};
use sidereal::backend::simd::{self, Level};
use sidereal::backend::threads::Threads;
use sidereal::io::is_address;
use sidereal::{Error, Result};

use crate::ranks::Place;
use crate::say::note;

/// Value of `--device`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Device {
    /// The CPU's SIMD instructions.
    Cpu,
    /// Slow double-precision reference implementation, to check the others.
    Reference,
    /// The first NVIDIA GPU; of several processes on a machine, each has the next one.
    AnyCuda,
    /// NVIDIA GPUs with these numbers: one at least, each once.
    Cuda(Vec<usize>),
    /// All NVIDIA GPUs.
    AllCuda,
    /// Fastest device of this machine for the work.
    Auto,
}

impl Device {
    /// Formats the device as the command line has it.
    pub(crate) fn text(&self) -> String {
        match self {
            Self::Cpu => "cpu".to_owned(),
            Self::Reference => "reference".to_owned(),
            Self::Auto => "auto".to_owned(),
            Self::AnyCuda => "cuda".to_owned(),
            Self::AllCuda => "cuda:all".to_owned(),
            Self::Cuda(ordinals) => {
                let ordinals: Vec<String> = ordinals.iter().map(usize::to_string).collect();
                format!("cuda:{}", ordinals.join(","))
            }
        }
    }
}

/// GPUs that a verb can use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gpus {
    One,
    /// Several, among which it divides its work.
    Several,
}

/// Amount of work, from which `--device auto` estimates the time on the CPU and on a GPU.
///
/// The costs were measured on an H200 and its host, a Xeon with AVX-512 and 16 cores.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Work {
    /// Bytes of input, or of output; `None` if unknown.
    bytes: Option<u64>,
    /// Name of these bytes in messages.
    of: &'static str,
    /// Core seconds per 10^9 bytes on the CPU.
    cpu: f64,
    /// Core seconds of the host per 10^9 bytes if a GPU computes.
    host: f64,
    /// Seconds per 10^9 bytes of the bus and the kernels.
    gpu: f64,
    /// Seconds per 10^9 bytes to read them with all threads, a lower limit on either device.
    read: f64,
}

/// Time to start a GPU and to end a process that used it, in seconds.
const GPU_START_S: f64 = 0.35;

/// Seconds per 10^9 bytes to read files with all threads.
const READ_S: f64 = 0.04;

impl Work {
    /// Describes dedispersion at trial DMs; the costs are those of a search with the default plan and the mitigation on
    /// the host.
    pub(crate) fn on_trials(inputs: &[PathBuf]) -> Self {
        Self { bytes: bytes(inputs), of: "data", cpu: 30.0, host: 2.0, gpu: 0.1, read: READ_S }
    }

    /// Describes a filter bank: about as fast as files are read.
    pub(crate) fn on_voltages(inputs: &[PathBuf]) -> Self {
        Self { bytes: bytes(inputs), of: "data", cpu: 2.4, host: 0.9, gpu: 0.03, read: READ_S }
    }

    /// Describes a correlation of `antennas` antennas.
    pub(crate) fn on_antennas(inputs: &[PathBuf], antennas: usize) -> Self {
        let cpu = 2.4 + 0.055 * antennas as f64;
        Self { bytes: bytes(inputs), of: "data", cpu, host: 1.4, gpu: 0.03, read: READ_S }
    }

    /// Describes matched filters: 8 bytes of signal-to-noise ratio per template and sample.
    pub(crate) fn on_ratios(ratios: u64) -> Self {
        let bytes = Some(ratios.saturating_mul(8));
        Self { bytes, of: "signal-to-noise ratios", cpu: 1.5, host: 0.0, gpu: 0.01, read: 0.0 }
    }

    /// Estimates the seconds of one core; `None` if the amount of data is unknown.
    pub(crate) fn core_s(self) -> Option<f64> {
        self.bytes.map(|bytes| bytes as f64 * 1e-9 * self.cpu)
    }

    /// Estimates the run time on `threads` CPU threads, and on a GPU with the same threads; returns `None` if the amount of
    /// data is unknown.
    fn seconds(self, threads: usize) -> Option<Seconds> {
        let (amount, threads) = (self.bytes? as f64 * 1e-9, threads.max(1) as f64);
        Some(Seconds {
            cpu: amount * (self.cpu / threads).max(self.read),
            gpu: GPU_START_S + amount * (self.host / threads).max(self.gpu).max(self.read),
        })
    }
}

/// Estimated run time on either device, in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Seconds {
    cpu: f64,
    gpu: f64,
}

impl Seconds {
    /// Formats the estimates for a message.
    fn text(self, threads: usize) -> String {
        let Self { cpu, gpu } = self;
        format!("estimated {} there, {} on {threads} threads", short_s(gpu), short_s(cpu))
    }
}

/// Formats seconds with two digits.
fn short_s(seconds: f64) -> String {
    match seconds {
        0.0..10.0 => format!("{seconds:.1} s"),
        _ => format!("{seconds:.0} s"),
    }
}

/// Returns the total size of the files; `None` if one is a pipe, a folder, a live stream, or the prefix of a numbered sequence. A
/// missing file counts as empty.
fn bytes(inputs: &[PathBuf]) -> Option<u64> {
    if inputs.iter().any(|path| is_address(path)) {
        return None;
    }
    let sizes = inputs.iter().map(|path| match std::fs::metadata(path) {
        Ok(found) if found.is_file() => Some(found.len()),
        Ok(_) => None,
        Err(_) => {
            let mut first = path.clone().into_os_string();
            first.push(".0000.raw");
            let is_known = path.as_os_str() != "-" && std::fs::metadata(first).is_err();
            is_known.then_some(0)
        }
    });
    sizes.sum()
}

/// Options of every verb.
#[derive(Args, Clone, Debug)]
pub(crate) struct Common {
    /// Device to run on: cpu, cuda, cuda:1, cuda:0,1, cuda:all, reference or auto.
    ///
    /// cuda:1 is an NVIDIA GPU by its number in `sidereal devices`; cuda:0,1 and cuda:all are several, among which a search
    /// divides its trial DMs or templates, a correlation its antennas and channels and a channelization its spectra, with the results of one;
    /// reference is the slow double-precision implementation, to check the others; auto is whichever of the processor and the GPU with the most free memory is
    /// estimated to be faster for this verb, amount of data and number of threads, and the GPU for standard input.
    #[arg(
        long,
        default_value = "auto",
        value_name = "DEVICE",
        value_parser = parse_device,
        global = true,
        help_heading = "Common options"
    )]
    pub(crate) device: Device,
    /// Number of threads; 0 means one per core.
    #[arg(short = 't', long, default_value_t = 0, global = true, help_heading = "Common options")]
    pub(crate) threads: usize,
    /// Memory limit for buffers on the host and on a GPU: 500M, 4G, 512MiB.
    ///
    /// Blocks get shorter, results stay the same; a run that does not fit fails and reports its need. By default the
    /// host has no limit, and a GPU its free memory.
    #[arg(
        long,
        value_name = "SIZE",
        value_parser = parse_size,
        global = true,
        help_heading = "Common options"
    )]
    pub(crate) memory: Option<u64>,
    /// SIMD instruction set [default: the widest of this CPU].
    ///
    /// Sums of floats differ in their last digits between levels: specify the level to reproduce one machine's
    /// results on another.
    #[arg(
        long,
        value_name = "LEVEL",
        value_parser = simd::NAMES,
        global = true,
        help_heading = "Common options"
    )]
    pub(crate) simd: Option<String>,
    /// Append messages and progress to a log file, with times (UTC) and levels.
    #[arg(long, value_name = "FILE", global = true, help_heading = "Common options")]
    pub(crate) log_file: Option<PathBuf>,
    /// Write what each thread and each GPU did, and when, to this file.
    ///
    /// The file is in Chrome's trace format, which https://ui.perfetto.dev and chrome://tracing show.
    #[arg(long, value_name = "FILE", global = true, help_heading = "Common options")]
    pub(crate) trace: Option<PathBuf>,
    /// Print only one JSON document on standard output.
    #[arg(long, global = true, help_heading = "Common options")]
    pub(crate) json: bool,
    /// Print more messages.
    #[arg(short, long, global = true, help_heading = "Common options")]
    pub(crate) verbose: bool,
    /// Print only errors.
    #[arg(short, long, global = true, help_heading = "Common options")]
    pub(crate) quiet: bool,
    /// Show no progress bar.
    #[arg(long, global = true, help_heading = "Common options")]
    pub(crate) no_progress: bool,
    /// Do not wait until files are on disk before renaming them to their final names.
    ///
    /// Faster on a slow disk, but a power failure may leave empty files under final names.
    #[arg(long, global = true, help_heading = "Common options")]
    pub(crate) no_sync: bool,
    /// Most unpacked bytes for each byte of a compressed input (.gz, .zst), beside 64 MiB for any input.
    ///
    /// Such inputs are unpacked into a file without a name in the output's folder, or in that of TMPDIR if there is no output.
    #[arg(
        long,
        value_name = "N",
        default_value_t = 100,
        global = true,
        help_heading = "Common options"
    )]
    pub(crate) unpack_ratio: u64,
    /// Write products that are identical from run to run.
    ///
    /// Omits everything that differs between runs: date (1970, or that of SOURCE_DATE_EPOCH, which has the same
    /// effect), host, device, command and times. The same data and options then give the same bytes.
    #[arg(long, global = true, help_heading = "Common options")]
    pub(crate) reproducible: bool,
    /// Command line as given, recorded in products.
    #[arg(skip)]
    pub(crate) command_line: CommandLine,
    /// Whether it is one of several runs of a command line, whose documents are a line each.
    #[arg(skip)]
    pub(crate) is_batch: bool,
    /// Place among the processes that divide the work, if there are several.
    #[arg(skip)]
    pub(crate) place: Option<Place>,
    /// Program that runs command lines as this process does, if there is one.
    #[arg(skip)]
    pub(crate) program: Option<cuda::CompilerProgram>,
}

impl Common {
    /// Returns the backend for `--device` and `--threads`; `auto` is the CPU.
    ///
    /// # Errors
    /// As [`Common::threads`]; [`Error::Unavailable`] for a GPU that is not available.
    pub(crate) fn backend(&self) -> Result<Backend> {
        self.backend_of(Gpus::One)
    }

    /// Like [`Common::backend`], with as many GPUs as the verb can use.
    fn backend_of(&self, gpus: Gpus) -> Result<Backend> {
        let (threads, level) = (self.threads()?, self.level()?);
        let ordinals = match &self.device {
            Device::Reference => return Ok(Backend::Reference),
            Device::Cpu | Device::Auto => return Ok(Backend::Cpu(level, Threads::new(threads))),
            Device::AnyCuda if self.place.is_none() => vec![0],
            Device::Cuda(ordinals) => ordinals.clone(),
            Device::AnyCuda | Device::AllCuda => (0..cuda::Device::count()?.max(1)).collect(),
        };
        let names_several = self.device != Device::AnyCuda && ordinals.len() > 1;
        if names_several && gpus == Gpus::One {
            let rule = "it must name one GPU: only search, correlate, channelize and spiir search divide their work among several";
            return Err(Error::parameter("--device", self.device.text(), rule));
        }
        // The processes of a machine take turns at the GPUs.
        let ordinals = match self.place {
            Some(place) => vec![ordinals[place.local % ordinals.len()]],
            None => ordinals,
        };
        opened(&ordinals, threads, level).map(|backend| self.limited(backend))
    }

    /// Returns the options of runs at the same time: one on each of several GPUs, with its part of the threads and of the memory, or
    /// all of them one after another with these options, if there are fewer than GPUs.
    ///
    /// # Errors
    /// As [`Common::threads`]; [`Error::Unavailable`] without a driver.
    pub(crate) fn on_each_gpu(&self, runs: usize) -> Result<Vec<Self>> {
        let ordinals = match &self.device {
            Device::Cuda(ordinals) => ordinals.clone(),
            Device::AllCuda => (0..cuda::Device::count()?).collect(),
            Device::Auto | Device::AnyCuda | Device::Cpu | Device::Reference => Vec::new(),
        };
        let count = ordinals.len();
        let is_twice = (1..count).any(|index| ordinals[..index].contains(&ordinals[index]));
        // Each run reports a GPU that is named twice.
        if count < 2 || runs < count || is_twice {
            return Ok(vec![self.clone()]);
        }
        let cores = || std::thread::available_parallelism().map_or(1, usize::from);
        let threads = match self.threads()? {
            0 => cores(),
            threads => threads,
        };
        let alone = |ordinal: &usize| Self {
            device: Device::Cuda(vec![*ordinal]),
            threads: (threads / count).max(1),
            memory: self.memory.map(|bytes| bytes / count as u64),
            no_progress: true,
            ..self.clone()
        };
        Ok(ordinals.iter().map(alone).collect())
    }

    /// Names the GPU in an error of a run, if it has one.
    pub(crate) fn of_gpu(&self, error: Error) -> Error {
        match &self.device {
            Device::Cuda(ordinals) if ordinals.len() == 1 => error.on_device(ordinals[0]),
            Device::AnyCuda => {
                let count = cuda::Device::count().unwrap_or(1).max(1);
                error.on_device(self.place.map_or(0, |place| place.local % count))
            }
            _ => error,
        }
    }

    /// Lets a GPU begin with kernels that compile quickly, while this program compiles the best ones in another process.
    fn starting_quickly(&self, backend: Backend) -> Backend {
        match (backend, &self.program) {
            (Backend::Cuda(device, threads), Some(program)) => {
                Backend::Cuda(device.with_quick_start(program.clone()), threads)
            }
            (backend, _) => backend,
        }
    }

    /// Returns the SIMD level of `--simd`, by default the widest.
    ///
    /// # Errors
    /// [`Error::Unavailable`] for one that this machine lacks.
    fn level(&self) -> Result<Level> {
        self.simd.as_deref().map_or_else(|| Ok(Level::best()), Level::named)
    }

    /// Returns the backend if it does not depend on the work; `None` if [`Common::backend_for`] must choose one.
    ///
    /// # Errors
    /// As [`Common::backend`].
    pub(crate) fn asked_backend(&self, gpus: Gpus) -> Result<Option<Backend>> {
        self.threads()?;
        (self.device != Device::Auto).then(|| self.backend_of(gpus)).transpose()
    }

    /// Like [`Common::backend`], for work that has GPU kernels: `auto` is the device that is estimated to be faster; a
    /// message gives the reason.
    ///
    /// # Errors
    /// As [`Common::backend`].
    pub(crate) fn backend_for(&self, work: Work, gpus: Gpus) -> Result<Backend> {
        match self.device {
            Device::Auto => self.estimated_backend(work),
            _ => self.backend_of(gpus).map(|backend| self.starting_quickly(backend)),
        }
    }

    /// Returns the backend of `auto`.
    fn estimated_backend(&self, work: Work) -> Result<Backend> {
        let threads = match self.threads()? {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            asked => asked,
        };
        let seconds = work.seconds(threads);
        if let Some(Seconds { cpu, gpu }) = seconds
            && cpu <= gpu
        {
            let backend = self.backend()?;
            if self.verbose && !self.quiet {
                note!(
                    "on {}: estimated {}, {} on a GPU.",
                    backend.name(),
                    short_s(cpu),
                    short_s(gpu)
                );
            }
            return Ok(backend);
        }
        match gpu_for_all(self.threads()?, self.level()?, self.place) {
            Ok(backend) => {
                let backend = self.starting_quickly(self.limited(backend));
                if !self.quiet {
                    let size = work.bytes.map_or_else(
                        || "data of unknown length".to_owned(),
                        |bytes| format!("{} MiB of {}", bytes >> 20, work.of),
                    );
                    let why = seconds.map_or_else(String::new, |seconds| {
                        format!(" ({})", seconds.text(threads))
                    });
                    note!(
                        "on {}, for {size}{why}; --device cpu uses the processor instead.",
                        backend.name()
                    );
                }
                Ok(backend)
            }
            Err(why) => {
                let backend = self.backend()?;
                // Report that an available GPU stays idle.
                if !self.quiet && (self.verbose || has_gpu()) {
                    note!("on {}: {why}", backend.name());
                }
                Ok(backend)
            }
        }
    }

    /// Returns the backend with each of its GPUs limited to `--memory`.
    fn limited(&self, backend: Backend) -> Backend {
        if let (Backend::Cuda(device, _), Some(bytes)) = (&backend, self.memory) {
            for device in device.joined() {
                device.limit_memory(usize::try_from(bytes).unwrap_or(usize::MAX));
            }
        }
        backend
    }

    /// Rejects a GPU for a verb without GPU kernels.
    ///
    /// # Errors
    /// [`Error::Parameter`].
    pub(crate) fn on_host_only(&self, verb: &str) -> Result<()> {
        match self.device {
            Device::AnyCuda | Device::Cuda(_) | Device::AllCuda => {
                let rule = format!("{verb} has no kernels for a GPU: use cpu or auto");
                Err(Error::parameter("--device", "cuda", rule))
            }
            Device::Cpu | Device::Reference | Device::Auto => Ok(()),
        }
    }

    /// Returns the requested number of threads.
    ///
    /// # Errors
    /// [`Error::Parameter`] for more than any machine could start.
    pub(crate) fn threads(&self) -> Result<usize> {
        let most = 1024;
        if self.threads > most {
            let rule = format!("it must be 0 (one a core) to {most}");
            return Err(Error::parameter("--threads", self.threads, rule));
        }
        Ok(self.threads)
    }
}

/// Reports the backend's notes on the run: outdated tuned choices, kernels compiled for an earlier device, kernels that
/// could not be kept; with --verbose, also the time spent on starting a GPU.
pub(crate) fn tell_notes(backend: &Backend, common: &Common) {
    if let Backend::Cuda(device, _) = backend
        && !common.quiet
    {
        for note in device.take_notes() {
            note!("{note}");
        }
        if common.verbose {
            note!("{}", start_up_text(&cuda::start_up()));
        }
    }
}

/// Formats the time spent on starting GPUs as one line.
fn start_up_text(start_up: &StartUp) -> String {
    let StartUp { driver, contexts, compiler, cached, compiled, loaded, quick, first_launch_s } =
        start_up;
    let first = match first_launch_s {
        Some(seconds) => format!("first kernel launched after {seconds:.2} s"),
        None => "no kernel launched".to_owned(),
    };
    let parts = [("driver", driver), ("context", contexts), ("NVRTC", compiler)];
    let parts = parts.map(|(name, spent)| format!("{name} {:.2} s", spent.elapsed_s)).join(", ");
    let quick = match quick {
        0 => String::new(),
        1 => "; 1 kernel began as a variant that compiles quickly".to_owned(),
        count => format!("; {count} kernels began as variants that compile quickly"),
    };
    format!(
        "start-up: {first}; {parts}; kernel files: {} from the cache in {:.2} s, {} compiled in {:.2} s \
         ({:.2} s one after another), {} loaded in {:.2} s{quick}",
        cached.count,
        cached.elapsed_s,
        compiled.count,
        compiled.elapsed_s,
        compiled.summed_s,
        loaded.count,
        loaded.elapsed_s
    )
}

/// Parses a size from the command line: a number with K, M, G or T, each 1024 times the previous one.
pub(crate) fn parse_size(text: &str) -> std::result::Result<u64, String> {
    let rule = "it must be a number of bytes above 0 with K, M, G or T: 500M, 4G, 1.5GiB";
    let word = text.trim().to_ascii_lowercase();
    let number = word.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let unit = word[number.len()..].trim_end_matches("ib").trim_end_matches('b');
    let power = ["", "k", "m", "g", "t"].iter().position(|own| *own == unit).ok_or(rule)?;
    let bytes = number.trim().parse::<f64>().map_err(|_| rule)? * 1024_f64.powi(power as i32);
    if (1.0..1e18).contains(&bytes) { Ok(bytes as u64) } else { Err(rule.to_owned()) }
}

/// Parses a device from the command line.
fn parse_device(text: &str) -> std::result::Result<Device, String> {
    let word = text.to_ascii_lowercase();
    match word.as_str() {
        "cpu" => return Ok(Device::Cpu),
        "reference" => return Ok(Device::Reference),
        "auto" => return Ok(Device::Auto),
        "cuda" => return Ok(Device::AnyCuda),
        "cuda:all" => return Ok(Device::AllCuda),
        _ => {}
    }
    let rule = "it must be cpu, reference, cuda, cuda:0, cuda:1 and so on, several as cuda:0,1, \
                cuda:all, or auto";
    let numbers = word.strip_prefix("cuda:").ok_or(rule)?;
    let ordinals = numbers.split(',').map(str::parse).collect::<std::result::Result<Vec<_>, _>>();
    let ordinals: Vec<usize> = ordinals.map_err(|_| rule)?;
    match (1..ordinals.len()).find(|index| ordinals[..*index].contains(&ordinals[*index])) {
        Some(again) => Err(format!("it names GPU {} twice", ordinals[again])),
        None => Ok(Device::Cuda(ordinals)),
    }
}

/// Opens GPUs that have precompiled kernels or for which some can be compiled: the first, with the others as its peers.
fn opened(ordinals: &[usize], threads: usize, level: Level) -> Result<Backend> {
    let devices = cuda::Device::open_each(ordinals)?.into_iter();
    let mut devices = devices.map(|device| device.with_host_level(level));
    cuda::kernels_at_hand()?;
    let first =
        devices.next().ok_or_else(|| Error::parameter("--device", "cuda", "it names no GPU"))?;
    let device = first.with_peers(devices.collect())?;
    Ok(Backend::Cuda(device, Threads::new(threads)))
}

/// Opens the GPU with the most free memory, or the next one of several processes, if every kernel can be compiled for it.
fn gpu_for_all(threads: usize, level: Level, place: Option<Place>) -> Result<Backend> {
    let free = |ordinal: usize| match opened(&[ordinal], threads, level) {
        Ok(Backend::Cuda(device, _)) => device.free_bytes().unwrap_or(0),
        _ => 0,
    };
    let ordinal = match cuda::Device::count()? {
        // The error of the first GPU is returned, and a single one is not asked for its memory.
        0 | 1 => 0,
        count if place.is_some() => place.map_or(0, |place| place.local % count),
        count => (0..count).rev().max_by_key(|ordinal| free(*ordinal)).unwrap_or(0),
    };
    let backend = opened(&[ordinal], threads, level)?;
    cuda::nvrtc()?;
    Ok(backend)
}

fn has_gpu() -> bool {
    cuda::Device::count().is_ok_and(|count| count > 0)
}

/// Options that change location, speed and messages of a run, but not its results.
const RUN_ONLY: [&str; 26] = [
    "config",
    "print-config",
    "page",
    "page_token",
    "page_host",
    "page_baselines",
    "device",
    "threads",
    "memory",
    "simd",
    "gulp",
    "log_file",
    "trace",
    "json",
    "verbose",
    "quiet",
    "no_progress",
    "no_sync",
    "unpack_ratio",
    "each",
    "reproducible",
    "out",
    "output",
    "toml",
    "overwrite",
    "resume",
];

/// Command line as given.
#[derive(Clone, Debug, Default)]
pub(crate) struct CommandLine {
    /// Verb: `spiir search`.
    pub(crate) verb: String,
    /// Every option and argument of the verb that has a value, by its long name; an argument by the name of its
    /// position.
    pub(crate) options: BTreeMap<String, Value>,
    /// Names of those that are not defaults.
    pub(crate) given: Vec<String>,
    /// All words of the command line.
    pub(crate) words: Vec<String>,
}

impl CommandLine {
    /// Collects the values of a parsed command line.
    pub(crate) fn new(command: &Command, matches: &ArgMatches, words: Vec<String>) -> Self {
        let (mut command, mut matches) = (command, matches);
        let mut verb = Vec::new();
        while let Some((name, inner)) = matches.subcommand() {
            let Some(found) = command.find_subcommand(name) else { break };
            (command, matches) = (found, inner);
            verb.push(name);
        }
        let (mut options, mut given) = (BTreeMap::new(), Vec::new());
        for argument in command.get_arguments() {
            let id = argument.get_id().as_str();
            let is_known = matches.try_contains_id(id).unwrap_or(false);
            if !is_known || RUN_ONLY.contains(&id) || ["help", "version"].contains(&id) {
                continue;
            }
            let Some(raw) = matches.get_raw(id) else { continue };
            let mut values: Vec<Value> =
                raw.map(|value| value_of(&value.to_string_lossy())).collect();
            let is_list = argument.get_num_args().is_some_and(|count| count.max_values() > 1)
                || matches!(argument.get_action(), clap::ArgAction::Append);
            let value = match values.len() {
                1 if !is_list => values.remove(0),
                _ => Value::Array(values),
            };
            let name = argument.get_long().unwrap_or(id).to_owned();
            if matches.value_source(id) == Some(ValueSource::CommandLine) {
                given.push(name.clone());
            }
            options.insert(name, value);
        }
        Self { verb: verb.join(" "), options, given, words }
    }

    /// Returns all words of the command line.
    pub(crate) fn words(&self) -> &[String] {
        &self.words
    }

    /// Returns every option and argument of the verb that has a value.
    pub(crate) fn options(&self) -> &BTreeMap<String, Value> {
        &self.options
    }
}

/// Converts a value to JSON: numbers and booleans keep their types.
fn value_of(word: &str) -> Value {
    match serde_json::from_str(word) {
        Ok(value @ (Value::Number(_) | Value::Bool(_))) => value,
        _ => Value::String(word.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use sidereal::backend::cuda::Spent;

    use super::*;

    #[test]
    fn the_estimate_follows_the_amount_and_the_threads() {
        let gpu = |bytes: u64, threads: usize| {
            let work = Work { bytes: Some(bytes), ..Work::on_voltages(&[]) };
            let seconds = work.seconds(threads).expect("the amount is known");
            seconds.gpu < seconds.cpu
        };
        assert!(!gpu(100 << 20, 2) && gpu(1 << 30, 2));
        assert!(!gpu(1 << 30, 16) && gpu(64 << 30, 16));
        let ratios = Work::on_ratios(1 << 40).seconds(64).expect("the amount is known");
        assert!(ratios.gpu < ratios.cpu, "no file limits ratios");
        let pipe = Work { bytes: None, ..Work::on_voltages(&[]) };
        assert_eq!(pipe.seconds(2), None);
    }

    #[test]
    fn devices_are_read() {
        let cases = [
            ("cpu", Device::Cpu),
            ("reference", Device::Reference),
            ("auto", Device::Auto),
            ("cuda", Device::AnyCuda),
            ("CUDA:3", Device::Cuda(vec![3])),
            ("cuda:1,0", Device::Cuda(vec![1, 0])),
            ("cuda:all", Device::AllCuda),
        ];
        for (text, device) in cases {
            assert_eq!(parse_device(text), Ok(device));
        }
        for text in [
            "",
            "gpu",
            "cuda:",
            "cuda:x",
            "cuda:-1",
            "cuda3",
            "cuda:0,",
            "cuda:,",
            "cuda:0-1",
            "cuda:0,all",
            "cuda:99999999999999999999",
        ] {
            let error = parse_device(text).expect_err(text);
            assert!(error.contains("cuda:1"), "{error}");
        }
        assert_eq!(parse_device("cuda:0,2,0").expect_err("twice"), "it names GPU 0 twice");
    }

    #[test]
    fn sizes_are_read() {
        let cases = [
            ("1", 1),
            ("512MiB", 512 << 20),
            ("4G", 4 << 30),
            ("1.5gb", 3 << 29),
            ("64 K", 64 << 10),
            ("2TiB", 2 << 40),
        ];
        for (text, bytes) in cases {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
        for text in ["", "0", "-1", "4X", "G", "nan", "inf", "1e30", "4Gi4"] {
            assert!(parse_size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_gpu_is_for_much_work() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = |name: &str, mebibytes: u64| {
            let path = folder.path().join(name);
            std::fs::File::create(&path)
                .and_then(|file| file.set_len(mebibytes << 20))
                .expect("room");
            path
        };
        let is_for_gpu = |work: Work| work.seconds(2).is_none_or(|Seconds { cpu, gpu }| gpu < cpu);
        let (small, large) = (file("a", 4), file("b", 1024));
        let trials = |paths: &[&PathBuf]| {
            Work::on_trials(&paths.iter().map(|path| (*path).clone()).collect::<Vec<_>>())
        };
        assert!(!is_for_gpu(trials(&[&small, &small])));
        assert!(is_for_gpu(trials(&[&small, &large])));
        assert!(is_for_gpu(trials(&[&"-".into()])), "a pipe may hold any number");
        assert!(!is_for_gpu(trials(&[&folder.path().join("missing")])));
        assert!(!is_for_gpu(Work::on_voltages(&[small.clone(), small])));
        assert!(is_for_gpu(Work::on_voltages(std::slice::from_ref(&large))));
        let antennas = |count| Work::on_antennas(std::slice::from_ref(&large), count);
        let cpu = |work: Work| work.seconds(2).map(|seconds| seconds.cpu);
        assert!(cpu(antennas(2)) < cpu(antennas(200)));
        assert!(!is_for_gpu(Work::on_ratios(1000 * 4096)), "one template");
        assert!(is_for_gpu(Work::on_ratios(1024 * 2 * 64 * 4096)));
        file("v.0000.raw", 1);
        assert!(is_for_gpu(Work::on_voltages(&[folder.path().join("v")])));
    }

    #[test]
    fn the_start_of_a_gpu_is_one_line() {
        let spent = |count, summed_s, elapsed_s| Spent { count, summed_s, elapsed_s };
        let start_up = StartUp {
            driver: spent(2, 0.2, 0.2),
            contexts: spent(1, 0.15, 0.15),
            compiler: spent(1, 0.05, 0.05),
            cached: spent(3, 0.02, 0.01),
            compiled: spent(9, 3.4, 1.3),
            loaded: spent(12, 0.03, 0.03),
            quick: 1,
            first_launch_s: Some(1.75),
        };
        let expected = "start-up: first kernel launched after 1.75 s; driver 0.20 s, context 0.15 s, NVRTC 0.05 s; \
                        kernel files: 3 from the cache in 0.01 s, 9 compiled in 1.30 s (3.40 s one after another), \
                        12 loaded in 0.03 s; 1 kernel began as a variant that compiles quickly";
        assert_eq!(start_up_text(&start_up), expected);
        assert!(start_up_text(&StartUp::default()).starts_with("start-up: no kernel launched; "));
    }

    #[test]
    fn values_keep_their_kind() {
        assert_eq!(value_of("6.5"), serde_json::json!(6.5));
        assert_eq!(value_of("true"), Value::Bool(true));
        for word in ["10:20", "", "null", "[1]", "1e400", "nan"] {
            assert_eq!(value_of(word), Value::String(word.to_owned()), "{word}");
        }
    }
}
