//! The filter bank on data in GPU memory: the bits of the same data from host memory.

#[path = "common/banks.rs"]
mod banks;
#[path = "common/channelize.rs"]
mod channelize;
#[path = "common/cuda.rs"]
mod cuda;
#[path = "common/random.rs"]
mod random;

use banks::{Brief, case};
use channelize::{Recording, Run, whole};
use cuda::devices;
use random::Random;
use sidereal::Result;
use sidereal::backend::Backend;
use sidereal::backend::cuda::tune::{self, Work};
use sidereal::backend::cuda::{Buffer, Device, Stream};
use sidereal::channelize::{Channelizer, DeviceVoltages, Options, Plan};
use sidereal::voltage::{VoltageEncoding, Voltages};

/// A plan bound to a device, and a stream of it.
struct Bench {
    plan: Plan,
    device: Device,
    stream: Stream,
    channelizer: Channelizer,
}

impl Bench {
    fn new(plan: &Plan, backend: &Backend, device: &Device) -> Self {
        Self {
            plan: plan.clone(),
            device: device.clone(),
            stream: device.stream().unwrap(),
            channelizer: Channelizer::new(plan.clone(), backend).unwrap(),
        }
    }

    /// Channelizes one block from its own buffer and appends its rows; returns the number of samples consumed.
    fn step(
        &mut self,
        block: Voltages<'_>,
        front: usize,
        room: usize,
        rows: &mut Vec<u8>,
    ) -> usize {
        let row = block.encoding().bytes(block.times());
        let stride = row + front % 7;
        let mut bytes = vec![0x5a; front + stride * block.streams()];
        for stream in 0..block.streams() {
            bytes[front + stream * stride..][..row].copy_from_slice(block.row(stream));
        }
        let input = self.device.upload(&bytes).unwrap();
        let row_bytes = self.plan.row_elements() * self.plan.element_bytes();
        let mut output = self.device.upload(&vec![0xa5_u8; (room + 1) * row_bytes - 1]).unwrap();
        let layout = DeviceVoltages { first_byte: front, stride, times: block.times() };
        let done = self.channelizer.enqueue(&input, layout, &mut output, &self.stream).unwrap();
        assert!(done.produced <= room && done.consumed <= block.times());
        let mut found = vec![0; output.len()];
        output.download(0, &mut found).unwrap();
        let (made, rest) = found.split_at(done.produced * row_bytes);
        assert!(rest.iter().all(|byte| *byte == 0xa5), "written outside of the rows produced");
        rows.extend(made);
        done.consumed
    }
}

#[test]
fn data_in_the_device_s_memory_give_the_same_bits() {
    let mut random = Random::new(21);
    for (backend, device) in devices(2) {
        for index in 0..66 {
            let channels = [2, 8, 16, 64, 256, 1024, 24, 25, 1000][random.below(9)];
            let (plan, recording) = case(&mut random, index, channels, [1, 2, 4, 5, 8][index % 5]);
            let expected = whole(&plan, &backend, &recording);
            let mut bench = Bench::new(&plan, &backend, &device);
            let (voltages, mut taken, mut bytes) = (recording.voltages(), 0, Vec::new());
            let unit = voltages.encoding().group_samples();
            let largest = voltages.times() / (1 + random.below(6));
            while taken < voltages.times() {
                let left = voltages.times() - taken;
                let gulp = (1 + random.below(largest)).next_multiple_of(unit).min(left);
                let front = [0, 16, random.below(64)][random.below(3)];
                let room = plan.max_rows([unit, gulp][random.below(2)]);
                let block = voltages.slice(taken, gulp).unwrap();
                taken += bench.step(block, front, room, &mut bytes);
            }
            let found = Run { bytes, saturated: bench.channelizer.saturated() };
            assert!(expected == found, "{} {:?}", backend.name(), Brief(&plan));
        }
    }
}

/// Fused kernels whose columns share taps, and those with clusters of blocks.
#[test]
fn many_points_give_the_same_bits_in_any_pieces() {
    use VoltageEncoding::{Complex8, Complex16, ComplexF32};
    let mut random = Random::new(23);
    let banks = [
        (2048, 7, Complex8, 13),
        (4096, 8, Complex16, 7),
        (8192, 3, Complex16, 35),
        (16384, 2, ComplexF32, 11),
    ];
    for (backend, device) in devices(2) {
        for (channels, taps, encoding, spectra) in banks {
            let plan = Plan::new(Options::new(channels, taps, encoding)).unwrap();
            let times = plan.span() + (spectra - 1) * plan.hop() + 5;
            let recording = Recording::random(&mut random, encoding, 1, times);
            let mut found = Vec::new();
            for largest in [times, times / 2, 3 * channels] {
                let mut bench = Bench::new(&plan, &backend, &device);
                let (mut taken, mut bytes) = (0, Vec::new());
                while taken < times {
                    let gulp = (1 + random.below(largest)).min(times - taken);
                    let gulp = if largest == times { times } else { gulp };
                    let block = recording.voltages().slice(taken, gulp).unwrap();
                    taken += bench.step(block, 16, plan.max_rows(gulp), &mut bytes);
                }
                found.push(bytes);
            }
            assert_eq!(found[0].len(), spectra * plan.row_elements() * plan.element_bytes());
            assert!(found.iter().all(|bytes| *bytes == found[0]), "{:?}", Brief(&plan));
        }
    }
}

/// A launch that occupies the whole device, and launches of few spectra, which do not.
#[test]
fn a_full_device_gives_the_bits_of_short_launches() {
    use VoltageEncoding::{Complex4, Complex8, Complex16, ComplexF32};
    let mut random = Random::new(25);
    for (backend, device) in devices(2) {
        // Several batches for each of the blocks that a device runs at once.
        let samples = if cuda::is_emulated(&backend) { 1 << 15 } else { 1 << 23 };
        for encoding in [Complex4, Complex8, Complex16, ComplexF32] {
            let recording = Recording::random(&mut random, encoding, 1, samples);
            let input = device.upload(recording.voltages().row(0)).unwrap();
            for channels in [256, 512, 1024, 2048, 8192] {
                let plan = Plan::new(Options::new(channels, 8, encoding)).unwrap();
                let bytes = plan.max_rows(samples) * plan.row_elements() * plan.element_bytes();
                let stream = device.stream().unwrap();
                let spectra_of = |times: usize| {
                    let mut output = device.upload(&vec![0u8; bytes]).unwrap();
                    let mut channelizer = Channelizer::new(plan.clone(), &backend).unwrap();
                    let (mut taken, mut rows) = (0, 0);
                    while taken < samples {
                        let times = times.min(samples - taken);
                        let first_byte = encoding.bytes(taken);
                        let layout = DeviceVoltages { first_byte, stride: input.len(), times };
                        let done = channelizer
                            .enqueue_at(&input, layout, &mut output, rows, &stream)
                            .unwrap();
                        (taken, rows) = (taken + done.consumed, rows + done.produced);
                    }
                    let mut found = vec![0; rows * plan.row_elements() * plan.element_bytes()];
                    output.download(0, &mut found).unwrap();
                    found
                };
                let expected = spectra_of(samples / 32);
                for launch in 0..3 {
                    let found = spectra_of(samples);
                    assert!(found == expected, "launch {launch}, {:?}", Brief(&plan));
                }
            }
        }
    }
}

/// Input on which the engine of a plan is tuned.
struct Noise {
    bench: Bench,
    input: Buffer<u8>,
    output: Buffer<u8>,
    layout: DeviceVoltages,
}

impl Work for Noise {
    fn enqueue(&mut self, stream: &Stream) -> Result<()> {
        let Self { bench, input, output, layout } = self;
        bench.channelizer.enqueue(input, *layout, output, stream).map(|_| ())
    }

    fn digest(&mut self) -> Result<u128> {
        tune::digest(&self.output)
    }
}

#[test]
fn every_choice_of_a_fused_plan_gives_the_same_bits() {
    let mut random = Random::new(24);
    for (backend, device) in devices(2) {
        let plan = Plan::new(Options::new(512, 3, VoltageEncoding::Complex8)).unwrap();
        let times = plan.span() + 18 * plan.hop();
        let recording = Recording::random(&mut random, VoltageEncoding::Complex8, 1, times);
        let mut build = || -> Result<Box<dyn Work>> {
            let bytes = plan.max_rows(times) * plan.row_elements() * plan.element_bytes();
            Ok(Box::new(Noise {
                bench: Bench::new(&plan, &backend, &device),
                input: device.upload(recording.voltages().row(0))?,
                output: device.upload(&vec![0; bytes])?,
                layout: DeviceVoltages { first_byte: 0, stride: 2 * times, times },
            }))
        };
        let tuned = tune::tune(&device, &mut build, &mut |_, _| Ok(())).unwrap();
        assert_eq!(tuned.len(), 1);
        assert_eq!(tuned[0].kernel(), "fused.cu");
        let measured = &tuned[0].measured;
        assert!(
            measured.len() > 4 && measured.iter().all(|one| one.seconds.is_ok()),
            "{measured:?}"
        );
    }
}

/// Alternating blocks from the host and from the device form one stream.
#[test]
fn run_and_enqueue_go_on_from_each_other() {
    let mut random = Random::new(22);
    for (backend, device) in devices(2) {
        let plan = Plan::new(Options::new(64, 4, VoltageEncoding::Complex8)).unwrap();
        let recording = Recording::random(&mut random, VoltageEncoding::Complex8, 1, 64 * 40);
        let expected = whole(&plan, &backend, &recording);
        let mut bench = Bench::new(&plan, &backend, &device);
        let mut bytes = Vec::new();
        for (index, start) in (0..64 * 40).step_by(512).enumerate() {
            let block = recording.voltages().slice(start, 512).unwrap();
            let room = plan.max_rows(512);
            if index % 2 == 0 {
                assert_eq!(bench.step(block, 16, room, &mut bytes), 512);
            } else {
                channelize::step(&mut bench.channelizer, block, room, 0, &mut bytes);
            }
        }
        assert!(expected.bytes == bytes, "{}", backend.name());
    }
}

#[test]
fn what_does_not_fit_is_refused() {
    let plan = Plan::new(Options::new(8, 2, VoltageEncoding::Complex8)).unwrap();
    for (backend, device) in devices(2) {
        let input = device.buffer::<u8>(64).unwrap();
        let mut output = device.buffer::<u8>(1024).unwrap();
        let stream = device.stream().unwrap();
        let mut refused = |backend: &Backend, first_byte: usize, times: usize| {
            let layout = DeviceVoltages { first_byte, stride: 64, times };
            let mut channelizer = Channelizer::new(plan.clone(), backend).unwrap();
            channelizer.enqueue(&input, layout, &mut output, &stream).unwrap_err().to_string()
        };
        assert!(refused(&backend, 1, 32).contains("voltages (bytes)"));
        assert!(refused(&backend, 0, 33).contains("voltages (bytes)"));
        assert!(refused(&Backend::Reference, 0, 32).contains("bound to the host"));
    }
}
