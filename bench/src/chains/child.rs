//! Runs of the command line as child processes: wall time, and shares of the kinds of work from its time stamps.

use std::ffi::OsStr;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use serde::Deserialize;
use sidereal::trace::{Span, Work, busy_s};
use sidereal::{Error, Result};

use super::cases::Chain;
use crate::runner::Caller;

/// Interval between checks whether a child has ended.
const STEP: Duration = Duration::from_millis(1);

/// Bytes of a pipe, if the system allows as many.
#[cfg(target_os = "linux")]
const PIPE: usize = 1 << 20;

/// Place and settings of a chain's runs.
#[derive(Clone, Debug)]
pub(super) struct Runs<'a> {
    pub(super) chain: &'a Chain,
    /// Value of `--device` for each of the processes that make the same run at the same time. If they are several, each has a folder
    /// of products of its own.
    pub(super) devices: Vec<String>,
    /// Processes that divide each run and that mpirun starts, if it starts them.
    pub(super) ranks: Option<usize>,
    /// Value of `--threads`.
    pub(super) threads: usize,
    /// Whether the input comes through a pipe.
    pub(super) piped: bool,
    /// Folder of products, which is emptied after each run.
    pub(super) products: PathBuf,
    /// Folder of compiled kernels.
    pub(super) cache: PathBuf,
    /// Whether both that folder and the driver's are empty at the start of a run.
    pub(super) cold: bool,
}

/// Result of a run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ended {
    pub(super) wall_s: f64,
    /// Bytes of the product.
    pub(super) product_bytes: u64,
    /// Number of candidates, if the product lists them.
    pub(super) candidates: Option<u64>,
}

impl Runs<'_> {
    /// Runs the chain once in each process, and writes the time stamps of the first to `trace` if there is one. The wall time is that of
    /// the last process to end.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if a run fails; [`Error::Io`]; [`Error::stopped`] if the user asked to stop.
    pub(super) fn once(&self, trace: Option<&Path>, caller: &dyn Caller) -> Result<Ended> {
        // A run that failed may have left products.
        remove(&self.products)?;
        if self.cold {
            remove(&self.cache)?;
        }
        for number in 0..self.devices.len() {
            for folder in [&self.products_of(number), &self.cache] {
                std::fs::create_dir_all(folder).map_err(|error| Error::io(folder, error))?;
            }
        }
        let begun = Instant::now();
        let mut children = Vec::with_capacity(self.devices.len());
        let mut ended = Ok(());
        for number in 0..self.devices.len() {
            match self.begin(number, trace.filter(|_| number == 0)) {
                Ok(child) => children.push(child),
                Err(error) => {
                    ended = Err(error);
                    break;
                }
            }
        }
        for mut child in children {
            if ended.is_err() {
                // A child that has just ended cannot be killed.
                let _ = child.kill();
                let _ = child.wait();
                continue;
            }
            ended = self.wait(child, caller).and_then(|status| match status.success() {
                true => Ok(()),
                // A signal from the terminal ends the child, too.
                false => caller
                    .check_interrupt()
                    .and_then(|()| Err(self.failed(format!("the run ended with {status}")))),
            });
        }
        ended?;
        let wall_s = begun.elapsed().as_secs_f64();
        let output = self.products_of(0).join(self.chain.output);
        let candidates = candidates(&output.join("candidates.csv"))?;
        Ok(Ended { wall_s, product_bytes: size(&self.products)?, candidates })
    }

    /// Returns the folder of the products of a process.
    pub(super) fn products_of(&self, number: usize) -> PathBuf {
        if self.devices.len() == 1 {
            self.products.clone()
        } else {
            self.products.join(number.to_string())
        }
    }

    /// Starts a process.
    fn begin(&self, number: usize, trace: Option<&Path>) -> Result<Child> {
        let output = self.products_of(number).join(self.chain.output);
        let program = std::env::current_exe().map_err(|error| Error::io("sidereal", error))?;
        let mut command = match self.ranks {
            Some(ranks) => mpirun(ranks, &program),
            None => Command::new(&program),
        };
        command.args(self.chain.command_line(&output, self.piped));
        command.args(["--quiet", "--no-progress", "--device", &self.devices[number]]);
        command.args(["--threads", &self.threads.to_string()]);
        if let Some(trace) = trace {
            command.arg("--trace").arg(trace);
        }
        command.env("SIDEREAL_CACHE_DIR", self.cache.join("kernels"));
        if self.cold {
            command.env("CUDA_CACHE_PATH", self.cache.join("driver"));
        }
        command.stdout(Stdio::null());
        command.stdin(if self.piped { Stdio::piped() } else { Stdio::null() });
        let program = Path::new(command.get_program()).to_owned();
        command.spawn().map_err(|error| Error::io(program, error))
    }

    /// Makes the error of a failed run.
    pub(super) fn failed(&self, why: String) -> Error {
        Error::Unavailable { what: format!("the time of {}", self.chain.name), why }
    }

    /// Waits for a child, to whose standard input another thread writes the files if they are piped.
    fn wait(&self, mut child: Child, caller: &dyn Caller) -> Result<ExitStatus> {
        let stdin = child.stdin.take();
        std::thread::scope(|scope| {
            if let Some(stdin) = stdin {
                scope.spawn(move || feed(&self.chain.inputs, stdin));
            }
            loop {
                let found = child.try_wait();
                if let Some(status) = found.map_err(|error| Error::io("sidereal", error))? {
                    return Ok(status);
                }
                if let Err(stop) = caller.check_interrupt() {
                    // A child that has just ended cannot be killed.
                    let _ = child.kill();
                    let _ = child.wait();
                    return Err(stop);
                }
                std::thread::sleep(STEP);
            }
        })
    }
}

/// Returns the command that starts a program in several processes, which may be more than there are cores.
pub(super) fn mpirun(ranks: usize, program: &Path) -> Command {
    let mut command = Command::new("mpirun");
    command.args(["-n", &ranks.to_string()]).arg(program);
    // Open MPI counts a core for each process otherwise, and binds its threads to it; other libraries ignore the variables.
    for (name, value) in [
        ("OMPI_MCA_rmaps_base_oversubscribe", "1"),
        ("OMPI_MCA_hwloc_base_binding_policy", "none"),
        ("PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe"),
        ("PRTE_MCA_hwloc_default_binding_policy", "none"),
    ] {
        if std::env::var_os(name).is_none() {
            command.env(name, value);
        }
    }
    command
}

/// Writes files to a pipe; the reader reports what it lacks if that fails.
fn feed(paths: &[PathBuf], mut pipe: ChildStdin) {
    // The usual size of a pipe serves, too.
    #[cfg(target_os = "linux")]
    let _ = rustix::pipe::fcntl_setpipe_size(&pipe, PIPE);
    for path in paths {
        let Ok(mut file) = File::open(path) else { return };
        if std::io::copy(&mut file, &mut pipe).is_err() {
            return;
        }
    }
}

/// Returns the number of candidates in a list; `None` if there is no list.
fn candidates(path: &Path) -> Result<Option<u64>> {
    if !path.exists() {
        return Ok(None);
    }
    let text = std::fs::read_to_string(path).map_err(|error| Error::io(path, error))?;
    let lines = text.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#'));
    Ok(Some(lines.count().saturating_sub(1) as u64))
}

/// Returns the bytes of all files below a folder.
fn size(folder: &Path) -> Result<u64> {
    let mut bytes = 0;
    let io = |error| Error::io(folder, error);
    for entry in std::fs::read_dir(folder).map_err(io)? {
        let entry = entry.map_err(io)?;
        let found = entry.metadata().map_err(io)?;
        bytes += if found.is_dir() { size(&entry.path())? } else { found.len() };
    }
    Ok(bytes)
}

/// Removes a folder with its contents, if it exists.
///
/// # Errors
/// [`Error::Io`].
pub(super) fn remove(folder: &Path) -> Result<()> {
    match std::fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(Error::io(folder, error)),
        _ => Ok(()),
    }
}

/// Seconds and bytes of the kinds of work of one run.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Shares {
    /// Seconds from the start of the program to the first kernel of dedispersion or of a filter bank, or to the first
    /// computation on a CPU.
    pub(super) start_up_s: Option<f64>,
    /// Seconds in which work of each kind was under way, as in [`Work::ALL`].
    busy_s: [f64; Work::ALL.len()],
    bytes: [u64; Work::ALL.len()],
    /// Seconds in which any work was under way.
    pub(super) any_s: f64,
}

/// Parts of the names of the kernels that end the start-up: dedispersion and filter banks.
const STARTS: [&str; 6] = ["dedisperse", "sum_shared", "channelize", "fir", "split", "filter_all"];

/// File in Chrome's trace format.
#[derive(Deserialize)]
struct Trace {
    #[serde(rename = "traceEvents")]
    events: Vec<Event>,
}

#[derive(Deserialize)]
struct Event {
    #[serde(default)]
    cat: String,
    #[serde(default)]
    name: String,
    #[serde(default)]
    ts: f64,
    #[serde(default)]
    dur: f64,
    #[serde(default)]
    args: Details,
}

#[derive(Default, Deserialize)]
struct Details {
    #[serde(default)]
    bytes: u64,
}

impl Shares {
    /// Reads the time stamps of a run.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Format`] for a file that holds no time stamps.
    pub(super) fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read(path).map_err(|error| Error::io(path, error))?;
        let trace: Trace = serde_json::from_slice(&text)
            .map_err(|error| Error::format(path, "time stamps", 0, error.to_string()))?;
        let spans = trace.events.iter().filter_map(|event| {
            let work = Work::ALL.into_iter().find(|work| work.name() == event.cat)?;
            Some(Span {
                work,
                name: event.name.clone().into(),
                lane: String::new(),
                start_s: event.ts * 1e-6,
                end_s: (event.ts + event.dur) * 1e-6,
                bytes: event.args.bytes,
            })
        });
        Ok(Self::of(&spans.collect::<Vec<_>>()))
    }

    fn of(spans: &[Span]) -> Self {
        let first = |is_one: &dyn Fn(&Span) -> bool| {
            let own = spans.iter().filter(|span| is_one(span));
            own.map(|span| span.start_s).min_by(f64::total_cmp)
        };
        let is_kernel = |span: &Span| span.work == Work::Kernel;
        let is_first =
            |span: &Span| is_kernel(span) && STARTS.iter().any(|part| span.name.contains(part));
        let bytes =
            |work| spans.iter().filter(move |span| span.work == work).map(|span| span.bytes);
        Self {
            start_up_s: first(&is_first)
                .or_else(|| first(&is_kernel))
                .or_else(|| first(&|span| span.work == Work::Compute)),
            busy_s: Work::ALL.map(|work| busy_s(spans, &[work])),
            bytes: Work::ALL.map(|work| bytes(work).sum()),
            any_s: busy_s(spans, &Work::ALL),
        }
    }

    /// Returns the seconds in which work of a kind was under way.
    pub(super) fn busy_s(&self, work: Work) -> f64 {
        self.of_work(work, &self.busy_s)
    }

    /// Returns the bytes that work of a kind read, wrote or copied.
    pub(super) fn bytes(&self, work: Work) -> u64 {
        self.of_work(work, &self.bytes)
    }

    fn of_work<T: Copy + Default>(&self, work: Work, values: &[T]) -> T {
        let index = Work::ALL.iter().position(|other| *other == work);
        index.map_or_else(T::default, |index| values[index])
    }
}

/// Returns the name of the file of time stamps in a folder.
pub(super) fn trace_in(folder: &Path) -> PathBuf {
    folder.join(OsStr::new("trace.json"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_unions_of_a_trace() {
        let folder = tempfile::tempdir().unwrap();
        let path = trace_in(folder.path());
        let event = |cat: &str, ts: f64, dur: f64, bytes: u64| {
            serde_json::json!({
                "ph": "X", "pid": 1, "tid": 0, "name": "x", "cat": cat, "ts": ts, "dur": dur,
                "args": { "bytes": bytes },
            })
        };
        let name = serde_json::json!({
            "ph": "M", "pid": 1, "tid": 0, "name": "thread_name", "args": { "name": "main" },
        });
        let document = serde_json::json!({ "traceEvents": [
            name,
            event("read", 0.0, 2e6, 5),
            event("read", 1e6, 2e6, 6),
            event("kernel", 2.5e6, 1e6, 0),
            serde_json::json!({
                "ph": "X", "name": "dedisperse_wgmma", "cat": "kernel", "ts": 3e6, "dur": 1e5,
            }),
            event("compute", 2e6, 1e5, 0),
            event("copy to device", 6e6, 1e6, 7),
        ] });
        std::fs::write(&path, document.to_string()).unwrap();
        let shares = Shares::read(&path).unwrap();
        assert!((shares.busy_s(Work::Read) - 3.0).abs() < 1e-9);
        assert!((shares.busy_s(Work::Kernel) - 1.0).abs() < 1e-9);
        assert!((shares.any_s - 4.5).abs() < 1e-9);
        assert_eq!((shares.bytes(Work::Read), shares.bytes(Work::ToDevice)), (11, 7));
        assert_eq!((shares.bytes(Work::Write), shares.busy_s(Work::Write)), (0, 0.0));
        assert_eq!(shares.start_up_s, Some(3.0), "not the first kernel or computation");
        std::fs::write(&path, "{}").unwrap();
        assert!(Shares::read(&path).unwrap_err().to_string().contains("time stamps"));
    }

    #[test]
    fn candidates_are_the_lines_after_the_header() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("candidates.csv");
        assert_eq!(candidates(&path).unwrap(), None);
        std::fs::write(&path, "# made\nsnr,dm\n9,1\n8,2\n\n").unwrap();
        assert_eq!(candidates(&path).unwrap(), Some(2));
        assert_eq!(size(folder.path()).unwrap(), 23);
    }
}
