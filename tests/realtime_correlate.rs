//! The X-engine, with the corner turn before it, does not allocate, on one thread and on three.
//!
//! One test holds all cases: a second one, started while the first counts, would be counted too.

#[path = "common/counting.rs"]
mod counting;

use counting::{Counting, assert_quiet};
use num_complex::Complex;
use sidereal::backend::{Backend, Host};
use sidereal::correlate::{
    BlockBuffer, CornerTurn, Correlator, Options, Output, Plan, Rows, Spectra,
};
use sidereal::voltage::{VoltageEncoding, Voltages};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const ENCODINGS: [VoltageEncoding; 3] =
    [VoltageEncoding::Complex4, VoltageEncoding::Complex8, VoltageEncoding::ComplexF32];

/// The most times in a block.
const TIMES: usize = 700;

#[test]
fn correlation_asks_for_no_memory() {
    for threads in [1, 3] {
        // An emulator's own work allocates.
        let is_real = |backend: &Backend| backend.is_gpu() && !backend.name().contains("Emulated");
        // Collected, so that no thread of the other backends is still starting.
        let gpus: Vec<Backend> = Backend::available(threads).into_iter().filter(is_real).collect();
        for backend in Backend::variants(threads).into_iter().skip(1).chain(gpus) {
            start_threads(&backend);
            for encoding in ENCODINGS {
                for (antennas, polarizations) in [(3, 1), (19, 2)] {
                    let options = Options { antennas, polarizations, channels: 5, encoding };
                    correlate(&backend, &Plan::new(options).unwrap());
                }
            }
        }
    }
}

/// A thread that is still starting allocates: a call ends when all have worked.
fn start_threads(backend: &Backend) {
    let Host::Cpu(_, threads) = backend.host() else { return };
    let mut scratch = vec![(); threads.count()];
    threads.for_each_chunk(&mut scratch, &mut [0u8; 64], 1, |(), _, part| part[0] = 1);
}

/// Blocks of all lengths, with and without a mask, and all operations on them.
fn correlate(backend: &Backend, plan: &Plan) {
    let name = format!("{:?} on {}", plan.options(), backend.name());
    let bytes = vec![0x3d; plan.inputs() * TIMES * plan.channels() * plan.encoding().bytes(1)];
    let elements = plan.channels() * plan.row_elements();
    let mut integers = vec![Complex::new(0i64, 0); elements];
    let mut floats = vec![Complex::new(0f64, 0.0); elements];
    let mut counts = vec![0; plan.channels() * plan.baselines()];
    let mut turn = CornerTurn::new(plan.clone(), backend);
    let mut correlator = Correlator::new(plan.clone(), backend).unwrap();
    let mut buffer = BlockBuffer::new(plan, TIMES);
    let mut round = 0;
    assert_quiet(&name, 4, 8, || {
        round += 1;
        let times = [TIMES, 1, 255, 0][round % 4];
        buffer.set_times(times).unwrap();
        if round % 3 == 0 {
            let streams = plan.inputs() * plan.channels();
            let stride = plan.encoding().bytes(TIMES);
            let all = Voltages::new(&bytes, plan.encoding(), streams, stride, TIMES).unwrap();
            turn.run(Spectra::Streams(all.slice(TIMES - times, times).unwrap()), &mut buffer)
                .unwrap();
        } else {
            let rows = Rows { bytes: &bytes, times: TIMES, first: TIMES - times };
            turn.run(Spectra::Rows(rows), &mut buffer).unwrap();
        }
        if round % 2 == 0 {
            buffer.mask_mut().fill(0xff00_ff0f_f0f0_1234);
        }
        correlator.run(buffer.block()).unwrap();
        let output = match plan.encoding() {
            VoltageEncoding::ComplexF32 => Output::Float(&mut floats),
            _ => Output::Integer(&mut integers),
        };
        correlator.read(0..plan.channels(), output, &mut counts).unwrap();
        if round % 4 == 3 {
            correlator.reset();
        }
    });
}
