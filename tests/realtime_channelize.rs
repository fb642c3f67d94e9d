//! The filter bank's `run` does not allocate, on one thread and on three.
//!
//! One test holds all cases: a second one, started while the first counts, would be counted too.

#[path = "common/counting.rs"]
mod counting;

use counting::{Counting, assert_quiet};
use num_complex::Complex;
use sidereal::backend::{Backend, Host};
use sidereal::channelize::{
    Channelizer, Detection, Feed, Form, Input, Options, Output, Plan, Products,
};
use sidereal::voltage::{VoltageEncoding, Voltages};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn the_filter_bank_asks_for_no_memory() {
    let detection = |spectra| Detection {
        products: Products::Iquv,
        feed: Feed::Linear,
        spectra,
        channels: 2,
        interpolate_dc: true,
    };
    let forms = [
        Form::Spectra,
        Form::Filtered,
        Form::Detected(detection(3)),
        Form::Detected(detection(300)),
        Form::Requantized { bits: 8, gains: vec![0.01] },
        Form::Requantized { bits: 4, gains: vec![100.0] },
    ];
    use VoltageEncoding::{Complex8, ComplexF32, Real2, Real8};
    for threads in [1, 3] {
        for backend in Backend::available(threads).into_iter().skip(1) {
            start_threads(&backend);
            // After a minute the test harness itself allocates, and an emulated GPU is slow.
            let is_emulated = backend.name().contains("Emulated");
            let encodings = [Complex8, Real2, ComplexF32, Real8];
            let encodings = &encodings[..if is_emulated { 2 } else { 4 }];
            if is_emulated && threads > 1 {
                continue;
            }
            for form in &forms {
                for encoding in encodings.iter().copied() {
                    // Lanes by columns, spectra side by side, the library's transform, overlap.
                    for (channels, oversampling) in
                        [(256, (1, 1)), (24, (1, 1)), (14, (1, 1)), (256, (4, 3))]
                    {
                        let input = Input { antennas: 2, polarizations: 2, ..Input::one(encoding) };
                        let form = form.clone();
                        let options = Options::new(channels, 4, encoding);
                        check(&backend, Options { input, form, oversampling, ..options });
                    }
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

fn check(backend: &Backend, options: Options) {
    let name = format!("{options:?} on {}", backend.name());
    let plan = Plan::new(options).unwrap();
    let input = *plan.input();
    let times = 12 * plan.points();
    let stride = input.encoding.bytes(times);
    let bytes = vec![0x3d; stride * input.streams()];
    let elements = plan.max_rows(times) * plan.row_elements();
    let mut complex = vec![Complex::new(0f32, 0.0); elements];
    let mut floats = vec![0f32; elements];
    let mut integers = vec![0u8; elements * plan.element_bytes()];
    let mut channelizer = Channelizer::new(plan.clone(), backend).unwrap();
    let mut round = 0;
    assert_quiet(&name, 3, 6, || {
        round += 1;
        let times = if round % 2 == 0 { times } else { 8 };
        let view = Voltages::new(&bytes, input.encoding, input.streams(), stride, times).unwrap();
        let output = match &plan.options().form {
            Form::Spectra | Form::Filtered => Output::Complex(&mut complex),
            Form::Detected(_) => Output::F32(&mut floats),
            Form::Requantized { .. } => Output::Bytes(&mut integers),
        };
        assert_eq!(channelizer.run(view, output).unwrap().consumed, times);
    });
}
