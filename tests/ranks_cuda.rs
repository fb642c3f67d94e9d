//! A correlation divided among ranks, each with a GPU, gives the bits of one process on one GPU, and ends for all ranks when a GPU fails.

#[path = "correlator/array.rs"]
mod array;
#[path = "voltage/arriving.rs"]
mod arriving;
#[path = "common/cuda.rs"]
mod cuda;
#[path = "correlator/divided.rs"]
mod divided;
#[path = "voltage/memory.rs"]
mod memory;
#[path = "common/random.rs"]
mod random;
#[path = "common/ranks.rs"]
mod ranks;

use std::process::Command;
use std::sync::{PoisonError, RwLock, RwLockReadGuard};

use array::recording;
use divided::{Case, case};
use memory::noise;
use random::Random;
use sidereal::backend::Backend;
use sidereal::backend::cuda::{Buffer, Device};
use sidereal::backend::threads::Threads;
use sidereal::pipeline::correlator::{ArrayCorrelator, CorrelateOptions, PhaseCentre, Ranks};
use sidereal::voltage::VoltageEncoding::{self, Complex8, ComplexF32};

/// Held for writing by a test that takes most memory of a GPU, and for reading by the others.
static MEMORY: RwLock<()> = RwLock::new(());

/// Waits until no test takes most memory.
fn with_memory() -> RwLockReadGuard<'static, ()> {
    MEMORY.read().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the GPU of each rank: all GPUs in turn.
fn gpus() -> Option<Vec<Backend>> {
    let found = cuda::devices(2);
    (!found.is_empty()).then(|| found.into_iter().map(|(backend, _)| backend).collect())
}

/// Checks `cases` random correlations by up to four ranks, of which rank r has GPU r, or the first again.
fn check_random(seed: u64, cases: usize, gpus: &[Backend]) {
    let mut random = Random::new(seed);
    let mut checked = [0; 5];
    for _ in 0..cases {
        let mut case = case(&mut random, 2500);
        if random.below(3) == 0 {
            case.options.cable_delays_s.clear();
            case.options.phase_centre =
                PhaseCentre::Sidereal { ra_deg: 128.8, dec_deg: -30.0, name: "there".into() };
        }
        let ranks = case.ranks(&mut random);
        case.check(ranks, &gpus[0], |rank| gpus[rank % gpus.len()].clone());
        checked[ranks] += 1;
    }
    assert!(checked[1..].iter().all(|count| *count > 0), "{checked:?}");
}

#[test]
fn fixed_subset_ranks_have_the_bits_of_one_gpu() {
    let _memory = with_memory();
    let Some(gpus) = gpus() else { return };
    check_random(3, 36, &gpus[..1]);
}

#[test]
fn several_gpus_of_ranks_have_the_bits_of_one() {
    let _memory = with_memory();
    if cuda::several(1).is_none() {
        return;
    }
    let Some(gpus) = gpus() else { return };
    check_random(29, 24, &gpus);
}

/// Six antennas with a filter bank and delays, and `times` samples.
fn six(encoding: VoltageEncoding, times: usize) -> Case {
    let header = memory::header(&[1400.0, 1401.0], encoding);
    let own = |antenna| {
        recording(&header, antenna, times, |stream, time| noise(10 * antenna + stream, time) * 9.0)
    };
    let options = CorrelateOptions {
        integration_s: 1.3e-3,
        gulp: 50,
        cable_delays_s: (0..6).map(|own| 0.37e-6 * f64::from(own)).collect(),
        ..CorrelateOptions::new(16)
    };
    Case { recordings: (0..6).map(own).collect(), antennas: vec![1; 6], options, is_live: false }
}

#[test]
fn if_a_rank_has_no_gpu_the_hosts_of_all_compute_spectra() {
    let _memory = with_memory();
    let Some(gpu) = cuda::backend(1) else { return };
    let case = six(Complex8, 6000);
    let backend = |rank| if rank == 1 { Backend::best(1) } else { gpu.clone() };
    let returned = case.divided(3, backend);
    // Integers are multiplied exactly.
    assert!(returned[0].integrations == case.one(&Backend::best(1)).0);
    for (rank, own) in returned.iter().enumerate() {
        let summary = own.summary.as_ref().unwrap();
        assert!(!summary.made_on_device, "{rank}");
        let why = summary.not_on_device.as_deref().unwrap_or_default();
        assert_eq!(why.starts_with("rank 1: one GPU"), rank != 1, "{rank}: {why}");
    }
}

/// Allocates all memory of a GPU except 48 MiB, which suffice for kernels and the sums of an X-engine, not for spectra; in pieces,
/// because the driver may refuse one allocation of all free memory.
fn most_memory(device: &Device) -> Vec<Buffer<u8>> {
    let (_left, mut taken) = (device.buffer::<u8>(48 << 20).unwrap(), Vec::new());
    let mut bytes = device.free_bytes().unwrap();
    while bytes >= 1 << 20 {
        match device.buffer(bytes) {
            Ok(buffer) => taken.push(buffer),
            Err(_) => bytes /= 2,
        }
    }
    taken
}

#[test]
fn if_a_gpu_has_no_memory_the_hosts_of_all_compute_spectra() {
    let _memory = MEMORY.write().unwrap_or_else(PoisonError::into_inner);
    let Some(gpu) = cuda::backend(1) else { return };
    if cuda::several(1).is_none() {
        return;
    }
    let full = Device::open(1).unwrap();
    let mut case = six(Complex8, 800_000);
    case.options.gulp = 50_000;
    let taken = most_memory(&full);
    let backend = |rank| match rank {
        1 => Backend::Cuda(full.clone(), Threads::new(1)),
        _ => gpu.clone(),
    };
    let returned = case.divided(2, backend);
    drop(taken);
    let errors: Vec<_> = returned.iter().map(|own| &own.error).collect();
    for own in &returned {
        assert!(own.error.is_none(), "{errors:?}");
        let why =
            own.summary.as_ref().and_then(|own| own.not_on_device.clone()).unwrap_or_default();
        assert!(why.starts_with("rank 1: ") && why.contains("CUDA device 1"), "{why}");
    }
    assert!(returned[0].integrations == case.one(&Backend::best(1)).0);
}

#[test]
fn a_stop_at_one_rank_stops_the_gpus_of_all() {
    let _memory = with_memory();
    let Some(gpu) = cuda::backend(1) else { return };
    let case = six(Complex8, 6000);
    let (whole, _) = case.one(&gpu);
    let array = array::array(6);
    let work = |ranks: Ranks| {
        let own = ranks.own();
        let made = ArrayCorrelator::divided(&array, case.inputs(), &case.options, &gpu, ranks);
        made.map(|mut correlator| {
            correlator.watched_by(Box::new(move |spectra| own != 1 || spectra < 150));
            correlator
        })
    };
    let returned = divided::divided(3, |_| usize::MAX, work);
    for (rank, own) in returned.iter().enumerate() {
        assert!(own.error.as_ref().unwrap().is_stop(), "{:?}", own.error);
        assert_eq!(own.early, (Some(1), rank == 1));
    }
    let found = &returned[0].integrations;
    assert!(found.len() > 1 && found[..found.len() - 1] == whole[..found.len() - 1]);
}

#[test]
fn the_same_ranks_use_their_gpus_again_and_again() {
    let _memory = with_memory();
    let Some(gpu) = cuda::backend(1) else { return };
    let cases =
        [six(Complex8, 6000), six(ComplexF32, 6000), Case { is_live: true, ..six(Complex8, 6000) }];
    let array = array::array(6);
    let work = |exchange: ranks::Connected| {
        let (cases, array, gpu) = (&cases, &array, &gpu);
        move || {
            let mut ranks = Some(Ranks::new(Box::new(exchange)).unwrap().repeating());
            let mut all = Vec::new();
            for case in cases {
                let own = ranks.take().unwrap();
                let made = ArrayCorrelator::divided(array, case.inputs(), &case.options, gpu, own);
                let mut correlator = made.unwrap();
                all.push(array::drain(&mut correlator));
                ranks = correlator.into_ranks().unwrap();
            }
            ranks.iter_mut().for_each(Ranks::finish);
            all
        }
    };
    let found = std::thread::scope(|scope| {
        let threads: Vec<_> =
            ranks::Connected::all(2).into_iter().map(|own| scope.spawn(work(own))).collect();
        threads.into_iter().map(|own| own.join().unwrap()).collect::<Vec<_>>()
    });
    for (case, found) in cases.iter().zip(&found[0]) {
        assert!(*found == case.one(&gpu).0);
    }
}

/// Names the failure in the process of a test's own.
const FAILURE: &str = "SIDEREAL_EMULATED_FAIL";

/// Each call fails for GPU 1 only, so that rank 1 of three ends the run of all.
#[test]
fn a_gpu_that_fails_at_one_rank_ends_all_of_them() {
    let _memory = with_memory();
    let failures = [
        "cuMemcpyHtoDAsync_v2:1",
        "cuMemcpyHtoDAsync_v2:5",
        "cuMemcpyHtoDAsync_v2:16",
        "cuLaunchKernel:9",
        "cuLaunchKernel:40",
        "cuMemcpyDtoHAsync_v2:3",
        "cuMemcpy2DAsync_v2:4",
        "cuEventSynchronize:20",
        "cuEventSynchronize:50",
        "cuStreamWaitEvent:100",
    ];
    let Some(gpus) = gpus() else { return };
    if std::env::var_os(FAILURE).is_none() {
        if !cuda::is_emulated(&gpus[0]) {
            return;
        }
        for failure in failures {
            let mut command = Command::new(std::env::current_exe().unwrap());
            command.args([
                "--exact",
                "a_gpu_that_fails_at_one_rank_ends_all_of_them",
                "--nocapture",
            ]);
            let failure = format!("{failure}:719:1");
            command.env(FAILURE, &failure).env("SIDEREAL_EMULATED_DEVICES", "2");
            let output = command.output().unwrap();
            let text =
                String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success() && text.contains("1 passed"), "{failure}: {text}");
        }
        return;
    }
    let mut case = six(Complex8, 6000);
    case.options.gulp = 20;
    let returned = case.divided(3, |rank| gpus[rank % 2].clone());
    for (rank, own) in returned.iter().enumerate() {
        let error = own.error.as_ref().unwrap().to_string();
        let expected = if rank == 1 { "CUDA device 1" } else { "rank 1" };
        assert!(error.contains(expected), "{rank}: {error}");
        assert_eq!(own.early, (Some(1), rank == 1), "{error}");
    }
}
