//! The filter bank on a GPU, with its data in device memory.

#[path = "common/cuda.rs"]
mod cuda;

use num_complex::Complex;
use sidereal::backend::Backend;
use sidereal::backend::cuda::tune::{self, Work};
use sidereal::backend::cuda::{Buffer, Device, Stream};
use sidereal::backend::threads::Threads;
use sidereal::spiir::{
    Branch, DeviceOutput, DeviceSamples, Filter, Options, Plan, Resampler, Spiir, Template,
};
use sidereal::state::{Saved, Saving};
use sidereal::{Error, Result};

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

#[test]
fn data_on_the_device_give_what_data_of_the_host_give_wherever_rows_begin() {
    for (backend, device) in cuda::devices(1) {
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
                let input = DeviceSamples { buffer: &samples, first, times };
                let rows = DeviceOutput { buffer: &mut output, first: at + made, stride };
                made += spiir.enqueue(input, rows, &stream).expect("queued").produced;
                first += times;
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

/// Filters samples in blocks of at most 700, and appends the SNR of each template as bits.
fn filter(spiir: &mut Spiir, input: &[f32], rows: &mut [Vec<[u32; 2]>]) {
    const STRIDE: usize = 701;
    let mut z = vec![Complex::default(); rows.len() * STRIDE];
    let mut append = |z: &[Complex<f32>], produced: usize| {
        for (row, z) in rows.iter_mut().zip(z.chunks_exact(STRIDE)) {
            row.extend(z[..produced].iter().map(|z| [z.re.to_bits(), z.im.to_bits()]));
        }
    };
    for samples in input.chunks(700) {
        let produced = spiir.run(samples, &mut z, STRIDE).expect("run").produced;
        append(&z, produced);
    }
}

#[test]
fn fixed_subset_filters_that_were_saved_go_on_with_the_same_bits() {
    for (backend, _) in cuda::devices(1) {
        // Several rates, and long memories in several passes, longer than their rings.
        for (plan, times) in [(plan(5), 10_500), (spread(&[20, 9], 90), 5000)] {
            let sample = |k: usize| ((k * k) as f32 * 0.0011).sin() + (k as f32 * 0.013).cos();
            let input: Vec<f32> = (0..times).map(sample).collect();
            let bound = || Spiir::new(plan.clone(), &backend).expect("bound");
            let mut expected = vec![Vec::new(); plan.templates()];
            filter(&mut bound(), &input, &mut expected);
            let latency = plan.latency();
            for at in [0, 1, latency.saturating_sub(1), 333, 4096, times - 1] {
                let mut found = vec![Vec::new(); plan.templates()];
                let mut before = bound();
                filter(&mut before, &input[..at], &mut found);
                let mut saving = Saving::default();
                assert!(before.save(&mut saving).expect("saved"));
                let bytes = saving.finish();
                // Samples that an earlier stream left in the device's memory have no effect.
                let mut after = bound();
                filter(&mut after, &input[..400], &mut vec![Vec::new(); plan.templates()]);
                let mut saved = Saved::new("state".as_ref(), 0, &bytes).expect("whole");
                after.load(&mut saved).expect("loaded");
                saved.end().expect("all of it");
                filter(&mut after, &input[at..], &mut found);
                assert!(found == expected, "saved behind {at} samples of {times}");
                // The SNRs of the CPU differ, and so do those of another filter bank.
                let others = [
                    Spiir::new(plan.clone(), &Backend::best(1)).expect("bound"),
                    Spiir::new(spread(&[3], 7), &backend).expect("bound"),
                ];
                for mut other in others {
                    let mut saved = Saved::new("state".as_ref(), 0, &bytes).expect("whole");
                    let error = other.load(&mut saved).and_then(|()| saved.end());
                    let is_same = at == 0 && matches!(&error, Ok(()));
                    assert!(is_same || matches!(error, Err(Error::Format { .. })), "{error:?}");
                }
            }
        }
    }
}

#[test]
fn buffers_that_are_too_short_are_refused() {
    for (backend, device) in cuda::devices(1) {
        let mut spiir = Spiir::new(plan(2), &backend).expect("bound");
        let stream = device.stream().expect("stream");
        let samples: Buffer<f32> = device.upload(&[0.0; 600]).expect("samples");
        let mut output: Buffer<Complex<f32>> = device.buffer(1100).expect("output");
        let mut is_refused = |from: usize, to: usize, stride: usize| {
            let input = DeviceSamples { buffer: &samples, first: from, times: 600 };
            let rows = DeviceOutput { buffer: &mut output, first: to, stride };
            spiir.enqueue(input, rows, &stream).is_err()
        };
        assert!(is_refused(1, 0, 600) && is_refused(0, 0, 599) && is_refused(0, 500, 600));
        assert!(!is_refused(0, 0, 600));
        stream.synchronize().expect("done");
    }
    let mut spiir = Spiir::new(plan(2), &Backend::best(1)).expect("bound");
    for (_, device) in cuda::devices(1) {
        let samples: Buffer<f32> = device.buffer(4).expect("samples");
        let mut output: Buffer<Complex<f32>> = device.buffer(8).expect("output");
        let stream = device.stream().expect("stream");
        let input = DeviceSamples { buffer: &samples, first: 0, times: 4 };
        let rows = DeviceOutput { buffer: &mut output, first: 0, stride: 4 };
        assert!(spiir.enqueue(input, rows, &stream).is_err());
    }
}

/// A filter bank that processes one segment of a stream in odd blocks, repeatedly.
struct Resident {
    spiir: Spiir,
    input: Buffer<f32>,
    output: Buffer<Complex<f32>>,
}

const SAMPLES: usize = 1100;

impl Resident {
    fn new(plan: &Plan, device: &Device) -> Result<Self> {
        let input: Vec<f32> = (0..SAMPLES).map(|k| (k as f32 * 0.37).sin() + 0.2).collect();
        let backend = Backend::Cuda(device.clone(), Threads::new(1));
        Ok(Self {
            spiir: Spiir::new(plan.clone(), &backend)?,
            input: device.upload(&input)?,
            output: device.buffer(plan.templates() * SAMPLES)?,
        })
    }
}

impl Work for Resident {
    fn enqueue(&mut self, stream: &Stream) -> Result<()> {
        let (mut first, mut made) = (0, 0);
        for times in [7, 1050, 1, SAMPLES - 1058] {
            let input = DeviceSamples { buffer: &self.input, first, times };
            let rows = DeviceOutput { buffer: &mut self.output, first: made, stride: SAMPLES };
            made += self.spiir.enqueue(input, rows, stream)?.produced;
            first += times;
        }
        Ok(())
    }

    fn digest(&mut self) -> Result<u128> {
        tune::digest(&self.output)
    }
}

/// Templates of the given number of filters at the full rate, with this spacing of delays; every third has long
/// memory.
fn spread(filters: &[usize], apart: u32) -> Plan {
    let filter = |index: usize| Filter {
        a: Complex::from_polar(
            (-1.0 / if index % 3 == 2 { 9000.0 } else { 30.0 + index as f32 }).exp(),
            0.01 * index as f32,
        ),
        b: Complex::new(0.1, 0.3 - 0.1 * index as f32),
        delay: apart * index as u32,
    };
    let template = |&filters: &usize| {
        let filters = (0..filters).map(filter).collect();
        Template { branches: vec![Branch { halvings: 0, filters }] }
    };
    let templates = filters.iter().map(template).collect();
    let resampler = Resampler::default();
    Plan::new(Options { rate_hz: 4096, templates, resampler }).expect("a plan")
}

#[test]
fn all_ways_to_filter_are_measured_and_give_the_same_bits() {
    for (_, device) in cuda::devices(1) {
        // A single pass over the filters, without tuning candidates, and several passes.
        for (plan, ways) in [(spread(&[1, 1], 3), 1), (spread(&[20, 9], 3977), 2)] {
            let mut build =
                || -> Result<Box<dyn Work>> { Ok(Box::new(Resident::new(&plan, &device)?)) };
            let tuned = tune::tune(&device, &mut build, &mut |_, _| Ok(())).expect("the same bits");
            assert_eq!(tuned.len(), 1);
            assert_eq!(tuned[0].kernel(), "filter.cu");
            assert_eq!(tuned[0].measured.len(), ways, "{:?}", tuned[0].measured);
            let refused = tuned[0].measured.iter().find(|one| one.seconds.is_err());
            assert!(refused.is_none(), "{refused:?}");
        }
    }
}
