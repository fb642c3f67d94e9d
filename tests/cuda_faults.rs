//! Faults of a CUDA device and their messages. Some faults spoil the process, so they run in another one.
#![allow(unsafe_code)]

#[path = "common/cuda.rs"]
mod cuda;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use cuda::{device, source};
use sidereal::Error;
use sidereal::backend::cuda::{Arguments, Device, compile};

const KERNELS: &str = r#"
#include "device.cuh"
KERNEL fill(u64 values) { ((u32*)values)[threadIdx.x] = threadIdx.x; }
KERNEL give_up(u64 values) { if (((u32*)values)[threadIdx.x] == 5) __trap(); }
"#;

/// Names the test that runs in its own process.
const CHILD: &str = "SIDEREAL_TEST_CHILD";

fn is_child() -> bool {
    std::env::var_os(CHILD).is_some()
}

/// Runs a test of this file in another process, in which it detects `is_child`.
fn in_another_process(test: &str, variables: &[(&str, &str)]) -> Output {
    let program = std::env::current_exe().expect("this program");
    let mut command = Command::new(program);
    command.args(["--exact", test, "--nocapture"]).env(CHILD, "1");
    command.envs(variables.iter().copied()).output().expect("it runs")
}

fn passes(output: &Output) {
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}

fn is_emulated(device: &Device) -> bool {
    device.properties().name.starts_with("Emulated")
}

/// Folder of the emulator's libraries.
fn emulator() -> PathBuf {
    let folders = std::env::var_os("LD_LIBRARY_PATH").expect("the emulator is on the library path");
    let mut folders = std::env::split_paths(&folders);
    folders.find(|folder| folder.join("libcuda.so.1").exists()).expect("its folder")
}

/// Launches a kernel of one block of 32 threads on 32 words, and waits.
fn run(device: &Device, kernel: &str) -> Result<(), Error> {
    let module = device.module(&source("faults_test.cu", KERNELS))?;
    let function = module.function(kernel, 0)?;
    let values = device.upload(&(0..32).collect::<Vec<u32>>())?;
    let stream = device.stream()?;
    let arguments = Arguments::new().with(values.address());
    // SAFETY: the kernels take one address, of 32 words.
    unsafe { stream.launch(&function, [1, 1, 1], [32, 1, 1], &arguments) }?;
    stream.synchronize()
}

#[test]
fn a_device_that_is_not_there_is_unavailable() {
    let Some(_) = device() else { return };
    let count = Device::count().unwrap();
    let refused = Device::open(count).unwrap_err();
    assert!(matches!(refused, Error::Unavailable { .. }), "{refused}");
    assert!(refused.to_string().contains(&format!("CUDA device {count}")), "{refused}");
    assert_eq!(Device::all().len(), count);
}

#[test]
fn a_kernel_that_is_not_there_is_named() {
    let Some(device) = device() else { return };
    let module = device.module(&source("faults_test.cu", KERNELS)).unwrap();
    let refused = module.function("nothing", 0).unwrap_err();
    let is_told = matches!(refused, Error::Device { call: "cuModuleGetFunction", code: 500, .. });
    assert!(is_told, "{refused}");
}

#[test]
fn a_source_with_a_mistake_is_refused_with_the_compilers_words() {
    let Some(device) = device() else { return };
    let text = "#include \"device.cuh\"\nKERNEL f(u64 x) { *(u32*)x = mistaken; }";
    let refused = device.module(&source("mistake.cu", text)).unwrap_err();
    let Error::Device { call: "nvrtcCompileProgram", text, .. } = refused else {
        panic!("{refused}");
    };
    assert!(text.contains("mistake.cu") && text.contains("mistaken"), "{text}");
}

#[test]
fn an_architecture_that_the_compiler_does_not_know_is_unavailable() {
    let Some(_) = device() else { return };
    let refused = compile(&source("faults_test.cu", KERNELS), "sm_19").unwrap_err();
    let text = refused.to_string();
    assert!(matches!(refused, Error::Unavailable { .. }) && text.contains("sm_19"), "{text}");
}

#[test]
fn launches_of_impossible_sizes_are_refused() {
    let Some(device) = device() else { return };
    let module = device.module(&source("faults_test.cu", KERNELS)).unwrap();
    let function = module.function("fill", 0).unwrap();
    let stream = device.stream().unwrap();
    let none = Arguments::new();
    let sizes = [([0, 1, 1], [32, 1, 1]), ([1, 1, 1], [32, 33, 1]), ([1, 1 << 16, 1], [1, 1, 1])];
    for (grid, block) in sizes {
        // SAFETY: nothing is launched.
        let refused = unsafe { stream.launch(&function, grid, block, &none) }.unwrap_err();
        assert!(matches!(refused, Error::Parameter { .. }), "{refused}");
    }
}

#[test]
fn a_kernel_that_gives_up_is_an_error_of_all_that_follows() {
    if !is_child() {
        if device().is_some() {
            let test = "a_kernel_that_gives_up_is_an_error_of_all_that_follows";
            passes(&in_another_process(test, &[]));
        }
        return;
    }
    let device = device().expect("the device of the process before");
    run(&device, "fill").unwrap();
    let refused = run(&device, "give_up").unwrap_err();
    assert!(matches!(refused, Error::Device { code: 700..=719, .. }), "{refused}");
    assert!(matches!(device.buffer::<u8>(1).unwrap_err(), Error::Device { .. }));
    assert!(matches!(device.synchronize().unwrap_err(), Error::Device { .. }));
}

#[test]
fn a_call_that_fails_is_named_with_its_code() {
    let calls = [
        ("cuMemAlloc", "cuMemAlloc:2:1"),
        ("cuLaunchKernel", "cuLaunchKernel:1:701"),
        ("cuStreamCreate", "cuStreamCreate:1:3"),
        ("cuStreamSynchronize", "cuStreamSynchronize:1:719"),
        ("cuModuleLoadData", "cuModuleLoadData:1:200"),
        ("cuMemcpyHtoD", "cuMemcpyHtoDAsync:1:700"),
    ];
    if !is_child() {
        let Some(device) = device().filter(is_emulated) else { return };
        run(&device, "fill").unwrap();
        for (_, failure) in calls {
            let variables = [("SIDEREAL_EMULATED_FAIL", failure)];
            passes(&in_another_process("a_call_that_fails_is_named_with_its_code", &variables));
        }
        return;
    }
    let failure = std::env::var("SIDEREAL_EMULATED_FAIL").expect("what fails");
    let (call, code) = calls
        .iter()
        .find(|call| call.1 == failure)
        .map(|call| (call.0, call.1.rsplit(':').next().expect("a code")))
        .expect("one of the list");
    let device = Device::open(0).unwrap();
    let _first = device.buffer::<u8>(1).unwrap();
    let refused = run(&device, "fill").unwrap_err();
    let Error::Device { call: named, code: told, text } = refused else { panic!("{refused}") };
    assert_eq!((named, told.to_string().as_str()), (call, code), "{text}");
    assert!(text.starts_with("CUDA_ERROR_"), "{text}");
}

#[test]
fn a_device_that_can_not_be_opened_says_why() {
    let calls = [
        ("cuInit:1:100", "the driver finds no GPU"),
        ("cuInit:1:803", "of different versions"),
        ("cuDevicePrimaryCtxRetain:1:2", "its memory is full"),
        ("cuDevicePrimaryCtxRetain:1:46", "another program has it"),
    ];
    if !is_child() {
        let Some(_) = device().filter(is_emulated) else { return };
        for (failure, _) in calls {
            let variables = [("SIDEREAL_EMULATED_FAIL", failure)];
            passes(&in_another_process("a_device_that_can_not_be_opened_says_why", &variables));
        }
        return;
    }
    let failure = std::env::var("SIDEREAL_EMULATED_FAIL").expect("what fails");
    let (_, told) = calls.iter().find(|call| call.0 == failure).expect("one of the list");
    let refused = Device::open(0).unwrap_err();
    assert!(matches!(refused, Error::Unavailable { .. }), "{refused}");
    assert!(refused.to_string().contains(told), "{refused}");
    assert!(Device::all().is_empty());
}

#[test]
fn memory_that_a_call_lacks_is_unavailable() {
    if !is_child() {
        let Some(_) = device().filter(is_emulated) else { return };
        for failure in ["cuStreamCreate:1:2", "cuMemHostAlloc:1:2", "cuModuleLoadData:1:2"] {
            let variables = [("SIDEREAL_EMULATED_FAIL", failure)];
            passes(&in_another_process("memory_that_a_call_lacks_is_unavailable", &variables));
        }
        return;
    }
    let device = Device::open(0).unwrap();
    let pinned = device.pinned::<u8>(3 << 20).map(|_| ());
    let refused = pinned.and_then(|()| run(&device, "fill")).unwrap_err();
    assert!(matches!(refused, Error::Unavailable { .. }), "{refused}");
    assert!(refused.to_string().contains("memory"), "{refused}");
}

#[test]
fn without_a_driver_the_library_that_is_missing_is_named() {
    if !is_child() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().to_str().expect("a plain name");
        let variables = [("LD_LIBRARY_PATH", path), ("SIDEREAL_REQUIRE", "")];
        let test = "without_a_driver_the_library_that_is_missing_is_named";
        passes(&in_another_process(test, &variables));
        return;
    }
    match Device::open(0) {
        // The system has a driver of its own.
        Ok(device) => assert!(!is_emulated(&device)),
        Err(error) => {
            assert!(matches!(error, Error::Unavailable { .. }), "{error}");
            let text = error.to_string();
            assert!(text.contains("libcuda.so.1") || text.contains("GPU"), "{text}");
            assert!(Device::all().is_empty());
        }
    }
}

/// A folder with one of the emulator's libraries, under the names that the loader tries.
fn only_the_driver(folder: &Path) {
    for name in ["libcuda.so", "libcuda.so.1"] {
        std::os::unix::fs::symlink(emulator().join("libcuda.so.1"), folder.join(name)).unwrap();
    }
}

#[test]
fn without_a_compiler_kernels_are_unavailable() {
    if !is_child() {
        let Some(_) = device().filter(is_emulated) else { return };
        let [folder, cache] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        only_the_driver(folder.path());
        let paths = [&folder, &cache].map(|folder| folder.path().to_str().expect("a plain name"));
        let variables = [("LD_LIBRARY_PATH", paths[0]), ("SIDEREAL_CACHE_DIR", paths[1])];
        let test = "without_a_compiler_kernels_are_unavailable";
        passes(&in_another_process(test, &variables));
        return;
    }
    let device = Device::open(0).unwrap();
    // The system may have a compiler of its own, whose code an emulated device refuses.
    let refused = device.module(&source("faults_test.cu", KERNELS)).unwrap_err();
    match refused {
        Error::Unavailable { what, why } => {
            assert!(what.contains("CUDA kernels") && why.contains("NVRTC"), "{what}: {why}");
        }
        other => assert!(matches!(other, Error::Device { code: 209, .. }), "{other}"),
    }
}

#[test]
fn a_smaller_device_says_what_is_free() {
    if !is_child() {
        if device().as_ref().is_some_and(is_emulated) {
            let variables = [("SIDEREAL_EMULATED_MEMORY_MIB", "10")];
            passes(&in_another_process("a_smaller_device_says_what_is_free", &variables));
        }
        return;
    }
    let device = Device::open(0).unwrap();
    let kept = device.buffer::<u8>(6 << 20).unwrap();
    let text = device.buffer::<u8>(5 << 20).unwrap_err().to_string();
    assert!(text.contains("5 MiB") && text.contains("4 MiB of 10"), "{text}");
    drop(kept);
    assert_eq!(device.buffer::<u8>(5 << 20).unwrap().len(), 5 << 20);
}
