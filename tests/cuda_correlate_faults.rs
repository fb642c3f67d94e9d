//! Faults of an X-engine on a GPU and their messages, each in its own process.

#[path = "common/correlate.rs"]
mod correlate;
#[path = "common/random.rs"]
mod random;
#[path = "common/sums.rs"]
mod sums;

use std::process::Command;

use correlate::{Missing, Recording, Values, plan};
use random::Random;
use sidereal::Error;
use sidereal::backend::Backend;
use sidereal::correlate::Correlator;
use sidereal::voltage::VoltageEncoding::{Complex4, Complex8, ComplexF32};
use sums::{read, truth, whole};

/// Names the test that runs in its own process.
const CHILD: &str = "SIDEREAL_TEST_CHILD";

/// The emulated device, as configured for this process; elsewhere none.
fn emulated() -> Option<Backend> {
    let mut all = Backend::available(2).into_iter();
    all.find(|backend| backend.is_gpu() && backend.name().contains("Emulated"))
}

/// Runs a test of this file in another process, with an emulated device of other properties; returns whether this is
/// that process.
fn is_within(test: &str, variables: &[(&str, &str)]) -> bool {
    if std::env::var_os(CHILD).is_some() {
        return true;
    }
    if emulated().is_none() {
        eprintln!("skipped: no emulated CUDA device");
        return false;
    }
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args(["--exact", test, "--nocapture"]).env(CHILD, "1");
    let output = command.envs(variables.iter().copied()).output().expect("it runs");
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
    false
}

#[test]
fn a_device_without_matrix_instructions_takes_dot_products() {
    let name = "a_device_without_matrix_instructions_takes_dot_products";
    if !is_within(name, &[("SIDEREAL_EMULATED_CAPABILITY", "7.5")]) {
        return;
    }
    let (backend, mut random) = (emulated().unwrap(), Random::new(51));
    for encoding in [Complex8, Complex4, ComplexF32] {
        let plan = plan(9, 2, 2, encoding);
        let recording = Recording::random(&mut random, &plan, 77, Values::Integers, Missing::Some);
        let correlator = Correlator::new(plan.clone(), &backend).unwrap();
        assert_eq!(correlator.path(), Some("dot products"));
        let found = whole(&recording, &backend, &mut random);
        let (expected, _, counts) = truth(&recording);
        assert!((0..expected.len()).all(|at| found.value(at) == expected[at]), "{encoding:?}");
        assert_eq!(found.counts, counts);
    }
}

#[test]
fn memory_that_is_short_is_told_before_and_behind() {
    let name = "memory_that_is_short_is_told_before_and_behind";
    if !is_within(name, &[("SIDEREAL_EMULATED_MEMORY_MIB", "160")]) {
        return;
    }
    let (backend, mut random) = (emulated().unwrap(), Random::new(52));
    let fault = Correlator::new(plan(33, 1, 6000, Complex8), &backend).unwrap_err();
    let text = fault.to_string();
    assert!(matches!(fault, Error::Unavailable { .. }) && text.contains("sums of all"), "{text}");
    // 32 bits of each sum fit in memory, and 64 do not: an integration continues up to that limit.
    let plan = plan(1024, 1, 10, Complex8);
    let mut correlator = Correlator::new(plan.clone(), &backend).unwrap();
    let recording = Recording::random(&mut random, &plan, 2, Values::Any, Missing::Nothing);
    correlator.run(recording.pack(0..2, &mut random).block(&plan)).unwrap();
    let before = read(&mut correlator, 0..1);
    let long = vec![0; plan.packed_bytes(65_534)];
    let block = sidereal::correlate::Block::new(&plan, &long, 65_534, None).unwrap();
    let fault = correlator.run(block).unwrap_err();
    assert!(matches!(fault, Error::Unavailable { .. }), "{fault}");
    assert_eq!(correlator.times(), 2);
    assert_eq!(read(&mut correlator, 0..1), before);
}

#[test]
fn a_launch_that_fails_is_an_error_of_the_driver() {
    let name = "a_launch_that_fails_is_an_error_of_the_driver";
    if !is_within(name, &[("SIDEREAL_EMULATED_FAIL", "cuLaunchKernel:2:719")]) {
        return;
    }
    let (backend, mut random) = (emulated().unwrap(), Random::new(53));
    let plan = plan(3, 1, 2, Complex8);
    let recording = Recording::random(&mut random, &plan, 20, Values::Any, Missing::Nothing);
    let mut correlator = Correlator::new(plan.clone(), &backend).unwrap();
    let mut run = || correlator.run(recording.pack(0..20, &mut random).block(&plan));
    let fault = (0..3).find_map(|_| run().err()).expect("the second launch fails");
    let is_told = matches!(&fault, Error::Device { call: "cuLaunchKernel", code: 719, .. });
    assert!(is_told, "{fault}");
}
