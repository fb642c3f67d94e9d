//! Devices unknown to NVRTC: newer ones compile their kernels through PTX, older ones give an error.

#[path = "common/skip.rs"]
mod skip;

#[path = "common/cuda.rs"]
mod cuda;

use std::process::Command;

use cuda::{device, source};
use num_complex::Complex;
use sidereal::backend::Backend;
use sidereal::backend::cuda::{Device, Target, compile, nvrtc};
use sidereal::backend::threads::Threads;
use sidereal::correlate::{Block, Correlator, Options, Output, Plan};
use sidereal::voltage::VoltageEncoding;

const KERNEL: &str = "#include \"device.cuh\"\nKERNEL f(u64 to) { *(u32*)to = __CUDA_ARCH__; }";

/// Names the test that runs in its own process.
const CHILD: &str = "SIDEREAL_TEST_CHILD";

/// Returns whether this is the process with another device; if not, runs the test in one, on the emulator.
fn is_with(capability: &str, test: &str) -> bool {
    if std::env::var_os(CHILD).is_some() {
        return true;
    }
    let Some(device) = device() else { return false };
    if !device.properties().name.starts_with("Emulated") {
        eprintln!("skipped: only the emulator's capability can be chosen");
        return false;
    }
    let folder = tempfile::tempdir().expect("a folder");
    // In the second process the kernels come from the disk cache.
    for _ in 0..2 {
        let program = std::env::current_exe().expect("this program");
        let output = Command::new(program)
            .args(["--exact", test, "--nocapture"])
            .env(CHILD, "1")
            .env("SIDEREAL_EMULATED_CAPABILITY", capability)
            .env("SIDEREAL_CACHE_DIR", folder.path())
            .output()
            .expect("it runs");
        let text =
            String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && text.contains("1 passed"), "{text}");
    }
    false
}

#[test]
fn a_virtual_architecture_gives_ptx() {
    if let Err(missing) = nvrtc() {
        return skip::skip("kernels", &missing.to_string());
    }
    let compiled = compile(&source("f.cu", KERNEL), "compute_90").expect("it is known");
    let text = compiled.code.strip_suffix(&[0]).expect("it ends with a zero");
    let text = std::str::from_utf8(text).expect("it is a text");
    assert!(text.starts_with("//") && text.contains("\n.target sm_90\n"), "{text}");
    assert_eq!((compiled.resources.len(), compiled.problems().len()), (0, 0));
    let machine = compile(&source("f.cu", KERNEL), "sm_90a").expect("it is known");
    assert!(machine.code.starts_with(b"\x7fELF") && !machine.resources.is_empty());
    let refused = compile(&source("f.cu", KERNEL), "compute_999").expect_err("nobody knows it");
    assert!(refused.to_string().contains("compute_999"), "{refused}");
}

#[test]
fn a_device_newer_than_the_compiler_has_its_kernels_through_ptx() {
    if !is_with("13.0", "a_device_newer_than_the_compiler_has_its_kernels_through_ptx") {
        return;
    }
    let device = Device::open(0).expect("it is there");
    let target = Target { capability: (12, 1), is_own: false };
    assert_eq!((device.properties().capability, device.properties().target), ((13, 0), target));
    assert_eq!((device.architecture().as_str(), device.is_hopper()), ("compute_121", false));
    let notes = device.take_notes();
    assert!(notes.len() == 1 && notes[0].contains("does not know sm_130"), "{notes:?}");
    assert!(device.take_notes().is_empty(), "it is told once");
    correlates(&device);
}

/// Sums of a few samples on the device, by warp instructions, equal those of the CPU.
fn correlates(device: &Device) {
    let encoding = VoltageEncoding::Complex8;
    let plan =
        Plan::new(Options { antennas: 20, polarizations: 2, channels: 2, encoding }).unwrap();
    let times = 40;
    let bytes: Vec<u8> = (0..plan.packed_bytes(times)).map(|i| (i * i / 7 + i) as u8).collect();
    let sums = |backend: &Backend| {
        let mut correlator = Correlator::new(plan.clone(), backend).unwrap();
        correlator.run(Block::new(&plan, &bytes, times, None).unwrap()).unwrap();
        let mut sums = vec![Complex::new(0, 0); plan.channels() * plan.row_elements()];
        let mut counts = vec![0; plan.channels() * plan.baselines()];
        correlator.read(0..plan.channels(), Output::Integer(&mut sums), &mut counts).unwrap();
        (sums, counts, correlator.path())
    };
    let gpu = sums(&Backend::Cuda(device.clone(), Threads::new(1)));
    let host = sums(&Backend::best(1));
    assert!(gpu.0 == host.0 && gpu.1 == host.1);
    assert_eq!(gpu.2, Some("matrices of warps"));
}

#[test]
fn a_device_older_than_all_that_the_compiler_knows_is_told() {
    if !is_with("5.2", "a_device_older_than_all_that_the_compiler_knows_is_told") {
        return;
    }
    let device = Device::open(0).expect("it is there");
    assert!(device.take_notes().is_empty());
    let refused = device.module(&source("f.cu", KERNEL)).expect_err("it is not known");
    assert!(refused.to_string().contains("does not know the architecture sm_52"), "{refused}");
}
