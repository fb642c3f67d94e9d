//! Start of a GPU: kernels are compiled side by side before they are needed, each once, with the errors of the stages
//! that need them; a cache that cannot be written is reported once. The device is the emulator of `tests/cuda_on_host`, in
//! processes with caches of their own.
#![allow(unsafe_code)]

#[path = "common/cuda.rs"]
mod cuda;

use std::path::Path;
use std::process::Command;

use cuda::{backend, device, source};
use sidereal::backend::Backend;
use sidereal::backend::cuda::{
    Arguments, CompileRequest, CompilerProgram, Device, Module, Source, compile, start_up,
};
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

/// Returns the constant of a kernel of [`numbered`].
fn value(device: &Device, module: &Module) -> u32 {
    let (stream, to) = (device.stream().unwrap(), device.upload(&[0_u32]).unwrap());
    let kernel = module.function("f", 0).expect("the kernel");
    let arguments = Arguments::new().with(to.address());
    // SAFETY: the kernel writes one word of the buffer.
    unsafe { stream.launch(&kernel, [1, 1, 1], [1, 1, 1], &arguments).expect("it starts") };
    stream.synchronize().expect("it ends");
    let mut word = [0];
    to.download(0, &mut word).expect("the word");
    word[0]
}

/// This program, as the one that compiles the best kernels: it runs [`the_compiling_process`].
fn compiler() -> CompilerProgram {
    let path = std::env::current_exe().expect("this program");
    let arguments = ["--exact", "the_compiling_process"].map(str::to_owned).to_vec();
    CompilerProgram { path, arguments }
}

#[test]
fn the_compiling_process() {
    if let Some(request) = CompileRequest::from_environment() {
        request.compile((0..10).map(numbered)).expect("it compiles");
    }
}

#[test]
fn a_quick_start_takes_the_best_kernel_once_it_is_compiled() {
    let cache = tempfile::tempdir().expect("a folder");
    if !is_child("a_quick_start_takes_the_best_kernel_once_it_is_compiled", cache.path(), 2) {
        return;
    }
    let device = Device::open(0).expect("it is there").with_quick_start(compiler());
    let (best, quick) = (numbered(7), numbered(8));
    assert_eq!(device.begins_quickly(&best), is_first());
    let (module, better) = device.module_or_quick(&best, &quick).expect("it compiles");
    let Some(better) = better else {
        // The best kernel is in the cache.
        assert!(!is_first() && start_up().quick == 0);
        assert_eq!(value(&device, &module), 7);
        return;
    };
    assert_eq!(value(&device, &module), 8);
    while !better.is_ready() {
        std::thread::yield_now();
    }
    assert_eq!(value(&device, &better.module(&device).expect("it is compiled")), 7);
    let start = start_up();
    assert_eq!((start.quick, start.compiled.count, start.cached.count), (1, 1, 1));
    // The compiling process does not know this kernel: the quick one stays.
    let (_, better) = device.module_or_quick(&numbered(11), &quick).expect("it is there");
    let better = better.expect("a process begins");
    while !better.is_ready() {
        std::thread::yield_now();
    }
    assert!(better.module(&device).is_none());
}

#[test]
fn a_stage_begins_with_the_best_kernel_unless_quick_starts_are_allowed() {
    let Some(device) = device() else { return };
    let (best, quick) = (numbered(9), numbered(10));
    assert!(!device.begins_quickly(&best));
    let (module, better) = device.module_or_quick(&best, &quick).expect("it compiles");
    assert!(better.is_none());
    assert_eq!(value(&device, &module), 9);
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
