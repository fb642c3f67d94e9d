//! Compiles kernels for GPUs without a GPU, and prints the resources of each; fails if one has problems.
//!
//!     cargo run --example compile_kernels -- [--only WORD] [--arch sm_90a]... [--cubins FOLDER]
//!     cargo run --example compile_kernels -- FILE.cu [-DNAME=VALUE]... [--arch sm_90a]... [--cubin OUT]
//!
//! Without a file, compiles the table of all kernels with each value of each axis at least once, or with every
//! combination if SIDEREAL_ALL_KERNELS=1. With a file, compiles that file alone; it may include files of its folder.
//! NVRTC must be on the library path. Problems are spilled registers, a stack frame, local memory, `wgmma` that the
//! assembler serializes, and warnings.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use sidereal::backend::cuda::{
    ARCHITECTURES, Compiled, Extent, HEADERS, Resources, Source, Variant, compile,
};
use sidereal::pipeline::kernel_table;
use sidereal::{Error, Result};

/// Limit of the number of cubins of the table, unless all combinations are requested.
const MOST_CUBINS: usize = 240;
/// Limit of the total compile time in seconds, one kernel after the other.
const MOST_SECONDS: f64 = 600.0;

fn main() -> ExitCode {
    let outcome = Arguments::read(std::env::args().skip(1)).and_then(|arguments| run(&arguments));
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("compile_kernels: {error}");
            ExitCode::from(2)
        }
    }
}

#[derive(Default)]
struct Arguments {
    file: Option<PathBuf>,
    defines: Vec<(&'static str, String)>,
    architectures: Vec<&'static str>,
    cubin: Option<PathBuf>,
    /// Folder of the cubins, named by number.
    cubins: Option<PathBuf>,
    only: String,
}

impl Arguments {
    fn read(mut words: impl Iterator<Item = String>) -> Result<Self> {
        let mut found = Self::default();
        while let Some(word) = words.next() {
            let mut value = || {
                words.next().ok_or_else(|| Error::parameter("option", &word, "it needs a value"))
            };
            match word.as_str() {
                "--arch" => found.architectures.push(value()?.leak()),
                "--cubin" => found.cubin = Some(value()?.into()),
                "--cubins" => found.cubins = Some(value()?.into()),
                "--only" => found.only = value()?,
                "-D" => found.defines.push(define(&value()?)),
                _ if word.starts_with("-D") => found.defines.push(define(&word[2..])),
                _ if word.starts_with('-') => {
                    let rule = "it must be -DNAME=VALUE, --arch, --cubin, --cubins or --only";
                    return Err(Error::parameter("option", word, rule));
                }
                _ => found.file = Some(word.into()),
            }
        }
        Ok(found)
    }

    /// Kernels to compile.
    fn table(&self) -> Result<Vec<(&'static str, Variant)>> {
        let Some(file) = &self.file else {
            let all = std::env::var_os("SIDEREAL_ALL_KERNELS").is_some_and(|word| word != "0");
            let extent = if all { Extent::All } else { Extent::Representative };
            let mut table = kernel_table(extent);
            table.retain(|(room, variant)| {
                format!("{room} {}", title(&variant.source)).contains(&self.only)
            });
            return Ok(table);
        };
        let architectures: &'static [&'static str] = match self.architectures.as_slice() {
            [] => ARCHITECTURES,
            some => some.to_vec().leak(),
        };
        Ok(vec![("file", Variant { source: source(file, &self.defines)?, architectures })])
    }
}

fn define(text: &str) -> (&'static str, String) {
    let (name, value) = text.split_once('=').unwrap_or((text, "1"));
    (name.to_owned().leak(), value.to_owned())
}

/// Reads a file as a source, with the files of its folder as includes.
fn source(file: &Path, defines: &[(&'static str, String)]) -> Result<Source> {
    let read = |path: &Path| -> Result<&'static str> {
        let text = std::fs::read_to_string(path).map_err(|error| Error::io(path, error))?;
        Ok(text.leak())
    };
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    let mut includes: Vec<(&'static str, &'static str)> = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(|error| Error::io(folder, error))? {
        let path = entry.map_err(|error| Error::io(folder, error))?.path();
        let is_source = path.extension().is_some_and(|end| end == "cuh" || end == "cu");
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if is_source && path != file && HEADERS.iter().all(|header| header.0 != name) {
            includes.push((name.leak(), read(&path)?));
        }
    }
    let name = file.to_string_lossy().into_owned().leak();
    let (text, includes) = (read(file)?, includes.leak());
    Ok(Source { name, text, includes, defines: defines.to_vec() })
}

/// A source's name and constants.
fn title(source: &Source) -> String {
    let defines = source.defines.iter().map(|(name, value)| format!(" {name}={value}"));
    format!("{}{}", source.name, defines.collect::<String>())
}

/// One compilation of the table.
struct Work<'a> {
    room: &'static str,
    source: &'a Source,
    architecture: &'static str,
}

/// Prints the results of all kernels.
#[derive(Default)]
struct Sum {
    cubins: usize,
    bytes: usize,
    problems: Vec<String>,
    seconds: f64,
}

/// Compiles all requested kernels; returns whether none has problems.
fn run(arguments: &Arguments) -> Result<bool> {
    let table = arguments.table()?;
    let mut works: Vec<Work<'_>> = Vec::new();
    for (room, variant) in &table {
        let source = &variant.source;
        let each = variant.architectures.iter().filter(|architecture| {
            arguments.architectures.is_empty() || arguments.architectures.contains(architecture)
        });
        works.extend(each.map(|architecture| Work { room, source, architecture }));
    }
    if works.is_empty() {
        return Err(Error::parameter("--only", &arguments.only, "no kernel of the table has it"));
    }
    let (next, sum) = (AtomicUsize::new(0), Mutex::new(Sum::default()));
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        let worker = || -> Result<()> {
            while let Some(work) = works.get(next.fetch_add(1, Ordering::Relaxed)) {
                let begun = Instant::now();
                let compiled = compile(work.source, work.architecture);
                let mut sum = sum.lock().expect("no worker panics while it holds this");
                sum.add(work, compiled, begun.elapsed().as_secs_f64(), arguments)?;
            }
            Ok(())
        };
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(worker)).collect();
        workers.into_iter().try_for_each(|worker| worker.join().expect("a worker does not panic"))
    })?;
    let sum = sum.into_inner().expect("no worker panics while it holds this");
    sum.problems.iter().try_for_each(|problem| say(problem))?;
    say(&format!(
        "{} cubins, {} bytes, {:.1} s of compilation: {} problems",
        sum.cubins,
        sum.bytes,
        sum.seconds,
        sum.problems.len()
    ))?;
    let is_bounded = arguments.file.is_some() || std::env::var_os("SIDEREAL_ALL_KERNELS").is_some();
    if !is_bounded && (sum.cubins > MOST_CUBINS || sum.seconds > MOST_SECONDS) {
        say(&format!("too many: at most {MOST_CUBINS} cubins and {MOST_SECONDS} s are allowed"))?;
        return Ok(false);
    }
    Ok(sum.problems.is_empty())
}

impl Sum {
    /// Prints one line per compiled kernel, and collects the problems for the end.
    fn add(
        &mut self,
        work: &Work<'_>,
        compiled: Result<Compiled>,
        seconds: f64,
        arguments: &Arguments,
    ) -> Result<()> {
        self.cubins += 1;
        self.seconds += seconds;
        let head = format!("{} {} {}", work.room, title(work.source), work.architecture);
        let compiled = match compiled {
            Ok(compiled) => compiled,
            Err(error @ Error::Unavailable { .. }) => return Err(error),
            Err(error) => {
                self.problems.push(format!("{head}: NOT COMPILED: {error}"));
                return Ok(());
            }
        };
        self.bytes += compiled.code.len();
        for found in &compiled.resources {
            say(&line(&head, found, compiled.code.len(), seconds))?;
        }
        let problems = compiled.problems().into_iter();
        self.problems.extend(problems.map(|problem| format!("{head}: PROBLEM: {problem}")));
        let numbered = |folder: &PathBuf| folder.join(format!("{}.cubin", self.cubins));
        let path = arguments.cubin.clone().or_else(|| arguments.cubins.as_ref().map(numbered));
        if let Some(path) = &path {
            std::fs::write(path, &compiled.code).map_err(|error| Error::io(path, error))?;
        }
        Ok(())
    }
}

fn line(head: &str, found: &Resources, bytes: usize, seconds: f64) -> String {
    format!(
        "{head} {}: {} registers, {} bytes shared, {} stack, {} spilled, {} local; cubin {bytes} bytes, \
         {seconds:.2} s",
        found.kernel,
        found.registers,
        found.shared_bytes,
        found.stack_bytes,
        found.spill_bytes,
        found.local_bytes
    )
}

fn say(text: &str) -> Result<()> {
    writeln!(std::io::stdout().lock(), "{text}").map_err(|error| Error::io("-", error))
}
