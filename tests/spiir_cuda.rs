//! The filter bank on a GPU, with data that stays there.
#![cfg(feature = "cuda")]

#[path = "common/cuda.rs"]
mod cuda;

use num_complex::Complex;
use sidereal::backend::Backend;
use sidereal::backend::cuda::{Buffer, Device};
use sidereal::spiir::{Branch, Filter, Options, Plan, Resampler, Spiir, Template};

fn plan(templates: usize) -> Plan {
    let filter = |index: usize| Filter {
        a: Complex::from_polar((-1.0 / (9.0 + index as f32)).exp(), 0.07 * index as f32),
        b: Complex::new(0.1, 0.3 - 0.1 * index as f32),
        delay: 40 * index as u32,
    };
    let branch = |halvings| Branch { halvings, filters: (0..5).map(filter).collect() };
    let template = Template { branches: (0..3).map(branch).collect() };
    let resampler = Resampler::linear_phase(48, 32, 80.0);
    let templates = vec![template; templates];
    Plan::new(Options { rate_hz: 4096, templates, resampler }).expect("a plan")
}

/// Every GPU; without one tests are skipped, and fail where `SIDEREAL_REQUIRE` names `cuda`.
fn devices() -> Vec<(Backend, Device)> {
    let Some(_) = cuda::device() else { return Vec::new() };
    let gpu = |backend: Backend| match &backend {
        Backend::Cuda(device, _) => Some((backend.clone(), device.clone())),
        _ => None,
    };
    Backend::available(1).into_iter().filter_map(gpu).collect()
}

#[test]
fn data_on_the_device_give_what_data_of_the_host_give_wherever_rows_begin() {
    for (backend, device) in devices() {
        let plan = plan(7);
        let input: Vec<f32> = (0..1500).map(|k| (k as f32 * 0.11).sin()).collect();
        let stride = 1500;
        let mut expected = vec![Complex::default(); 7 * stride];
        let mut spiir = Spiir::new(plan.clone(), &backend).expect("bound");
        let produced = spiir.run(&input, &mut expected, stride).expect("run").produced;
        let samples = device.upload(&input).expect("samples");
        let stream = device.stream().expect("stream");
        for (at, stride, blocks) in [(0, 1500, [700, 1, 799]), (3, 1501, [1, 33, 1466])] {
            spiir.reset();
            let guard = vec![Complex::new(9e9, 0.0); at + 7 * stride];
            let mut output: Buffer<Complex<f32>> = device.upload(&guard).expect("output");
            let (mut first, mut made) = (0, 0);
            for times in blocks {
                let done = spiir.enqueue(
                    (&samples, first),
                    times,
                    (&mut output, at + made, stride),
                    &stream,
                );
                first += times;
                made += done.expect("queued").produced;
            }
            stream.synchronize().expect("done");
            assert_eq!(made, produced);
            let mut found = guard.clone();
            output.download(0, &mut found).expect("ratios");
            assert_eq!(found[..at], guard[..at]);
            for template in 0..7 {
                let row = &found[at + template * stride..]
                    [..stride.min(found.len() - at - template * stride)];
                assert_eq!(row[..made], expected[template * 1500..][..made], "template {template}");
                assert!(row[made..].iter().all(|z| *z == guard[0]), "written beyond the end");
            }
        }
    }
}

#[test]
fn buffers_that_are_too_short_are_refused() {
    for (backend, device) in devices() {
        let mut spiir = Spiir::new(plan(2), &backend).expect("bound");
        let stream = device.stream().expect("stream");
        let samples: Buffer<f32> = device.upload(&[0.0; 600]).expect("samples");
        let mut output: Buffer<Complex<f32>> = device.buffer(1100).expect("output");
        assert!(spiir.enqueue((&samples, 1), 600, (&mut output, 0, 600), &stream).is_err());
        assert!(spiir.enqueue((&samples, 0), 600, (&mut output, 0, 599), &stream).is_err());
        assert!(spiir.enqueue((&samples, 0), 600, (&mut output, 500, 600), &stream).is_err());
        assert!(spiir.enqueue((&samples, 0), 600, (&mut output, 0, 600), &stream).is_ok());
        stream.synchronize().expect("done");
    }
    let mut spiir = Spiir::new(plan(2), &Backend::best(1)).expect("bound");
    for (_, device) in devices() {
        let samples: Buffer<f32> = device.buffer(4).expect("samples");
        let mut output: Buffer<Complex<f32>> = device.buffer(8).expect("output");
        let stream = device.stream().expect("stream");
        assert!(spiir.enqueue((&samples, 0), 4, (&mut output, 0, 4), &stream).is_err());
    }
}
