//! Start of a GPU: kernels are compiled side by side before they are needed, each once, with the errors of the stages
//! that need them; a cache that cannot be written is reported once. The device is the emulator of `tests/cuda_on_host`, in
//! processes with caches of their own.

#[path = "common/cuda.rs"]
mod cuda;

use std::path::Path;
use std::process::Command;

use cuda::{backend, device, source};
use sidereal::backend::Backend;
use sidereal::backend::cuda::{Device, Source, compile, start_up};
use sidereal::dedisperse::dm_plan::DmPlan;
use sidereal::pipeline::burst::{self, Report, SearchOptions, search};
use sidereal::simulate::burst::{Burst, Options, Simulator};
use sidereal::trace;
use sidereal::units::Band;

const KERNEL: &str = "#include \"device.cuh\"\nKERNEL f(u64 to) { *(u32*)to = VALUE; }";

/// Marks a process that runs one test.
const CHILD: &str = "SIDEREAL_TEST_CHILD";

/// Number of the process with one cache, for [`is_child`].
const ROUND: &str = "SIDEREAL_TEST_ROUND";

/// Runs a test in `rounds` processes with the cache folder `cache`; returns whether this is one of them.
fn is_child(test: &str, cache: &Path, rounds: usize) -> bool {
    if std::env::var_os(CHILD).is_some() {
        return true;
    }
    let Some(device) = device() else { return false };
    if !device.properties().name.starts_with("Emulated") {
        eprintln!("skipped: only the emulator compiles fast enough for an empty cache");
        return false;
    }
    for round in 0..rounds {
        let program = std::env::current_exe().expect("this program");
        let output = Command::new(program)
            .args(["--exact", test, "--nocapture"])
            .env(CHILD, "1")
            .env(ROUND, round.to_string())
            .env("SIDEREAL_CACHE_DIR", cache)
            .output()
            .expect("it runs");
        let text =
            String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && text.contains("1 passed"), "{text}");
    }
    false
}

/// Whether this process is the first with its cache.
fn is_first() -> bool {
    std::env::var(ROUND).is_ok_and(|round| round == "0")
}

/// A kernel file with its own constant, which no other test compiles.
fn numbered(value: u32) -> Source {
    Source { defines: vec![("VALUE", value.to_string())], ..source("f.cu", KERNEL) }
}

fn find(backend: &Backend) -> Report {
    let mut options = Options::new(Band::uniform(1500.0, -4.0, 32).unwrap(), 1e-3, 4500);
    options.seed = 5;
    options.bursts = vec![Burst::new(60.0, 1.3, 4e-3, 25.0)];
    let mut simulator = Simulator::new(options).unwrap();
    let mut options = SearchOptions::new(DmPlan::fixed(&[(0.0, 100.0, 6.0)]).unwrap());
    (options.baseline_s, options.max_width_s, options.zero_dm) = (1.0, 0.03, true);
    search(burst::Source::Rows(&mut simulator), &options, backend, &mut |_| true).unwrap()
}

#[test]
fn a_search_compiles_each_of_its_kernels_once_and_ahead() {
    let cache = tempfile::tempdir().expect("a folder");
    if !is_child("a_search_compiles_each_of_its_kernels_once_and_ahead", cache.path(), 2) {
        return;
    }
    let gpu = backend(2).expect("it is there");
    trace::begin();
    let found = find(&gpu);
    let spans = trace::take();
    let expected = find(&Backend::best(2));
    let first = |report: &Report| (report.candidates[0].dm, report.candidates[0].time_s);
    assert_eq!(found.candidates.len(), expected.candidates.len());
    assert_eq!(first(&found), first(&expected));
    // One range: each kernel file is needed, compiled or read, and loaded once.
    let start = start_up();
    let (made, others) = match is_first() {
        true => (start.compiled, start.cached),
        false => (start.cached, start.compiled),
    };
    assert!(made.count >= 7, "{start:?}");
    assert_eq!((made.count, others.count), (start.loaded.count, 0), "{start:?}");
    assert!(start.first_launch_s.is_some(), "{start:?}");
    assert!(start.driver.count > 0 && start.contexts.count > 0 && start.compiler.count == 1);
    if is_first() {
        let ahead = |span: &&trace::Span| span.lane.starts_with("compile ");
        assert!(spans.iter().filter(ahead).count() > 0, "nothing was compiled ahead");
    }
}

#[test]
fn threads_and_a_prefetch_compile_a_kernel_once() {
    let cache = tempfile::tempdir().expect("a folder");
    if !is_child("threads_and_a_prefetch_compile_a_kernel_once", cache.path(), 1) {
        return;
    }
    let device = Device::open(0).expect("it is there");
    let sources: Vec<Source> = (0..4).map(numbered).collect();
    let twice = [sources.as_slice(), sources.as_slice()].concat();
    let kernels = device.prefetch(move || twice);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| sources.iter().for_each(|source| drop(device.module(source).unwrap())));
        }
    });
    drop(kernels);
    let start = start_up();
    assert_eq!((start.compiled.count, start.loaded.count), (4, 12));
}

#[test]
fn a_dropped_prefetch_leaves_its_kernels_to_those_who_need_them() {
    let cache = tempfile::tempdir().expect("a folder");
    if !is_child("a_dropped_prefetch_leaves_its_kernels_to_those_who_need_them", cache.path(), 1) {
        return;
    }
    let device = Device::open(0).expect("it is there");
    drop(device.prefetch(|| (0..100).map(numbered).collect()));
    assert!(start_up().compiled.count < 100, "the kernels that had not begun are cancelled");
    device.module(&numbered(99)).expect("it compiles");
}

#[test]
fn an_error_is_that_of_the_stage_that_needs_the_kernel() {
    let Some(device) = device() else { return };
    let wrong = source("wrong.cu", "#include \"device.cuh\"\nKERNEL f(u64 to) { nonsense; }");
    let expected = compile(&wrong, &device.architecture()).expect_err("it is wrong").to_string();
    let list = vec![wrong.clone()];
    let kernels = device.prefetch(move || list);
    let found = device.module(&wrong).expect_err("it is wrong").to_string();
    drop(kernels);
    assert_eq!(found, expected);
    let again = device.module(&wrong).expect_err("it is still wrong").to_string();
    assert_eq!(again, expected);
    drop(device.prefetch(|| panic!("a fault of a stage's list")));
}

#[test]
fn a_cache_that_cannot_be_written_is_reported_once() {
    // Even root cannot write to /proc.
    let cache = Path::new("/proc/sidereal");
    if !is_child("a_cache_that_cannot_be_written_is_reported_once", cache, 1) {
        return;
    }
    let device = Device::open(0).expect("it is there");
    assert_eq!(device.take_notes(), [""; 0], "nothing had to be kept");
    device.module(&numbered(1)).expect("it compiles");
    device.module(&numbered(2)).expect("it compiles");
    let notes = device.take_notes();
    assert!(notes.len() == 1 && notes[0].contains("/proc/sidereal cannot be created"), "{notes:?}");
    device.module(&numbered(3)).expect("it compiles");
    assert_eq!(device.take_notes(), [""; 0], "it is reported once");
}
