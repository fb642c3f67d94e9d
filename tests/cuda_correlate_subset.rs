//! The fewest plans that run every part of the X-engine's kernels, for tools that slow them down.

#[path = "common/correlate.rs"]
mod correlate;
#[path = "common/cuda.rs"]
mod cuda;
#[path = "common/natural.rs"]
mod natural;
#[path = "common/random.rs"]
mod random;
#[path = "common/sums.rs"]
mod sums;

use correlate::{Missing, Recording, Values, plan};
use cuda::devices;
use natural::{check, every_way, resident};
use random::Random;
use sidereal::voltage::VoltageEncoding::{self, Complex4, Complex8, ComplexF32};
use sums::whole;

/// Antennas, polarizations, times: one tile of each size; one whole and few rows more, one and more, two and few. Times fill
/// nothing.
const SHAPES: [(usize, usize, usize); 6] =
    [(9, 2, 70), (33, 1, 65), (65, 1, 33), (67, 2, 97), (150, 1, 33), (257, 1, 65)];

/// Blocks from the host and from the device, with a mask and without.
fn check_all(encoding: VoltageEncoding) {
    let mut random = Random::new(41);
    for (backend, device) in devices(2) {
        for (index, (antennas, polarizations, times)) in SHAPES.into_iter().enumerate() {
            let plan = plan(antennas, polarizations, 1 + index % 2, encoding);
            let missing = [Missing::Some, Missing::Nothing][index % 2];
            let values = [Values::Any, Values::Extremes][index / 2 % 2];
            let recording = Recording::random(&mut random, &plan, times, values, missing);
            let found = whole(&recording, &backend, &mut random);
            check(&found, &recording, &backend.name());
            let found = resident(&recording, (&backend, &device), times / 2, &mut random);
            check(&found, &recording, &backend.name());
            if index == 3 {
                assert!(every_way(&recording, (&backend, &device), &mut random) > 0);
            }
        }
    }
}

#[test]
fn fixed_subset_correlate_8_bit() {
    check_all(Complex8);
}

#[test]
fn fixed_subset_correlate_4_bit() {
    check_all(Complex4);
}

/// Twice as many tiles per multiprocessor as the dynamic tile scheduler has blocks, in several calls.
#[test]
fn fixed_subset_correlate_tiles_that_are_drawn() {
    let mut random = Random::new(43);
    for (backend, device) in devices(2) {
        let channels = 32 * device.properties().multiprocessors / 3 + 1;
        for (antennas, encoding) in
            [(73, Complex8), (128, Complex8), (73, Complex4), (128, Complex4)]
        {
            let plan = plan(antennas, 2, channels, encoding);
            let recording = Recording::random(&mut random, &plan, 9, Values::Any, Missing::Nothing);
            let found = resident(&recording, (&backend, &device), 4, &mut random);
            check(&found, &recording, &backend.name());
        }
    }
}

#[test]
fn fixed_subset_correlate_floats() {
    check_all(ComplexF32);
}
