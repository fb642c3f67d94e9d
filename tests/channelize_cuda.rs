//! The filter bank on data that lie in a GPU's memory: the bits of the same data from the host's.
#![cfg(feature = "cuda")]

#[path = "common/banks.rs"]
mod banks;
#[path = "common/channelize.rs"]
mod channelize;
#[path = "common/random.rs"]
mod random;

use banks::{Brief, case};
use channelize::{Recording, Run, whole};
use random::Random;
use sidereal::backend::Backend;
use sidereal::backend::cuda::{Device, Stream};
use sidereal::channelize::{Channelizer, DeviceVoltages, Options, Plan};
use sidereal::voltage::{VoltageEncoding, Voltages};

fn devices() -> Vec<(Backend, Device)> {
    let device = |backend: Backend| match &backend {
        Backend::Cuda(device, _) => Some((backend.clone(), device.clone())),
        _ => None,
    };
    Backend::available(2).into_iter().filter_map(device).collect()
}

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

    /// One block from a buffer of its own, its rows appended; how many samples were taken.
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
    for (backend, device) in devices() {
        for index in 0..66 {
            let channels = [2, 8, 16, 64, 256, 1024, 24, 25, 1000][random.below(9)];
            let (plan, recording) = case(&mut random, index, channels, [1, 2, 4, 5, 8][index % 5]);
            let expected = whole(&plan, &backend, &recording);
            let mut bench = Bench::new(&plan, &backend, &device);
            let (voltages, mut taken, mut bytes) = (recording.voltages(), 0, Vec::new());
            let unit = voltages.encoding().samples_per_byte();
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

/// Blocks from the host and from the device, in turns, make one stream.
#[test]
fn run_and_enqueue_go_on_from_each_other() {
    let mut random = Random::new(22);
    for (backend, device) in devices() {
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
    for (backend, device) in devices() {
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
