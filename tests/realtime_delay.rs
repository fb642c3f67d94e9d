//! Phase rotation and corner turn do not allocate, on one thread and on three.
//!
//! One test holds all cases: a second one, started while the first counts, would be counted too.

#[path = "common/counting.rs"]
mod counting;

use counting::{Counting, assert_quiet};
use num_complex::Complex;
use sidereal::backend::Backend;
use sidereal::correlate::{BlockBuffer, CornerTurn, Options, Plan, Rows, Spectra};
use sidereal::delay::{self, DelayCorrector, Slope};
use sidereal::voltage::{VoltageEncoding, Voltages};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn alignment_and_corner_turn_ask_for_no_memory() {
    use VoltageEncoding::{Complex4, Complex8, ComplexF32};
    for threads in [1, 3] {
        for backend in Backend::variants(threads).into_iter().skip(1) {
            start_threads(&backend);
            for encoding in [Complex4, Complex8, ComplexF32] {
                for (coarse, channels) in [(1, 300), (7, 9), (40, 1)] {
                    check_delay(&backend, encoding, (coarse, channels));
                }
                for (antennas, channels, times) in [(3, 70, 37), (20, 1030, 130)] {
                    check_turn(&backend, encoding, (antennas, channels, times));
                }
            }
        }
    }
}

/// A thread that is still starting allocates: a call ends when all have worked.
fn start_threads(backend: &Backend) {
    let Backend::Cpu(_, threads) = backend else { return };
    let mut scratch = vec![(); threads.count()];
    threads.for_each_chunk(&mut scratch, &mut [0u8; 64], 1, |(), _, part| part[0] = 1);
}

fn check_delay(backend: &Backend, encoding: VoltageEncoding, (coarse, channels): (usize, usize)) {
    let gains = vec![Complex::new(3.0, 1.0); 2 * coarse * channels];
    let options =
        delay::Options { gains, ..delay::Options::one_antenna(2, coarse, channels, encoding) };
    let name = format!("aligning {coarse} x {channels} {encoding:?} on {}", backend.name());
    let plan = delay::Plan::new(options).unwrap();
    let times = 5;
    // Every other sample is clipped or is NaN.
    let value = |i: usize| Complex::new(i as f32, [1.0, f32::NAN][i % 2]);
    let spectra: Vec<_> = (0..times * plan.row_elements()).map(value).collect();
    let slopes: Vec<_> = (0..times * coarse)
        .map(|i| Slope { start: i as f64, step: 0.1 * (i % 3) as f64 })
        .collect();
    let mut bytes = vec![0u8; times * plan.row_elements() * plan.element_bytes()];
    let mut corrector = DelayCorrector::new(plan, backend).unwrap();
    assert_quiet(&name, 2, 4, || {
        let rows = delay::Rows { bytes: &mut bytes, times, first: 0 };
        corrector.run(&spectra, &slopes, rows).unwrap();
    });
}

fn check_turn(
    backend: &Backend,
    encoding: VoltageEncoding,
    (antennas, channels, times): (usize, usize, usize),
) {
    let options = Options { antennas, polarizations: 2, channels, encoding };
    let name = format!("turning {times} of {options:?} on {}", backend.name());
    let plan = Plan::new(options).unwrap();
    let stride = encoding.bytes(times);
    let bytes = vec![0x3d; plan.inputs() * channels * stride];
    let voltages =
        Voltages::new(&bytes, encoding, plan.inputs() * channels, stride, times).unwrap();
    let mut buffer = BlockBuffer::new(&plan, times);
    buffer.set_times(times).unwrap();
    let mut turn = CornerTurn::new(plan.clone(), backend);
    assert_quiet(&name, 2, 4, || {
        turn.run(Spectra::Rows(Rows { bytes: &bytes, times, first: 0 }), &mut buffer).unwrap();
        turn.run(Spectra::Streams(voltages), &mut buffer).unwrap();
    });
}
