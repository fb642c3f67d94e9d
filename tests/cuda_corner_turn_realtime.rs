//! The corner-turn kernels are queued without memory allocation.
//!
//! One test holds all cases: a second one, started while the first counts, would be counted too.

#[path = "common/counting.rs"]
mod counting;
#[path = "common/cuda.rs"]
mod cuda;

use counting::{Counting, assert_quiet};
use num_complex::Complex;
use sidereal::backend::Backend;
use sidereal::backend::threads::Threads;
use sidereal::delay::{
    Band, DelayCorrector, DeviceDelays, DeviceSamples, Form, Natural, Options, Plan,
};
use sidereal::voltage::VoltageEncoding;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Spectra.
const TIMES: usize = 64;

#[test]
fn a_corner_turn_asks_for_no_memory() {
    let Some(device) = cuda::device() else { return };
    let encoding = VoltageEncoding::Complex8;
    let stream = device.stream().unwrap();
    let seconds = device.upload(&[0.0; 2 * 2 * TIMES]).unwrap();
    let samples = device.upload(&vec![1u8; 8 * 4 * 6 * TIMES]).unwrap();
    let mut spectra = device.upload(&vec![0u8; 6 * 4 * 2 * TIMES]).unwrap();
    let to = Natural { first_byte: 0, channel_stride: 4 * 2 * TIMES, input_stride: 2 * TIMES };
    let voltages = Form::Voltages { encoding, scale: 1.0 };
    for (form, coarse_channels, channels, stride) in [
        (Form::Spectra, 2, 3, 8 * 4 * 6),
        (voltages, 6, 1, 2 * TIMES),
        (Form::Recorded, 6, 1, 2 * TIMES),
    ] {
        let band = Band { zeros_hz: vec![1e9; coarse_channels], first_hz: 0.0, step_hz: 1e5 };
        let options = Options {
            inputs: vec![0, 2],
            polarizations: 2,
            coarse_channels,
            channels,
            encoding,
            form,
            band: (form != Form::Recorded).then_some(band),
            gains: vec![Complex::new(2.0, 0.0)],
        };
        let backend = Backend::Cuda(device.clone(), Threads::new(1));
        let plan = Plan::new(options).unwrap();
        let mut corrector = DelayCorrector::new(plan, &backend).unwrap();
        let from = DeviceSamples { first_byte: 0, stride, times: TIMES };
        let delays = DeviceDelays { seconds: &seconds, first: 0, stride: TIMES };
        assert_quiet(&format!("{form:?}"), 1, 4, || {
            corrector.enqueue(&samples, from, Some(delays), &mut spectra, to, &stream).unwrap();
        });
        stream.synchronize().unwrap();
    }
}
