//! Every backend's corner turn puts each sample at its index of the packed order, and zeros in unused elements.

#[path = "common/random.rs"]
mod random;

use proptest::prelude::*;
use random::Random;
use sidereal::backend::Backend;
use sidereal::correlate::{BlockBuffer, CornerTurn, LANES, Options, Plan, Rows, Spectra};
use sidereal::voltage::{VoltageEncoding, Voltages, voltage};

/// Value of outputs before a call.
const DIRT: u8 = 0xa5;

/// Byte offset and size of a sample.
trait Source {
    fn sample(&self, input: usize, channel: usize, time: usize) -> &[u8];
}

/// Rows of all inputs, at an odd address, with more times than the call reads.
struct OwnedRows {
    bytes: Vec<u8>,
    plan: Plan,
    times: usize,
    first: usize,
}

/// A stream for each input and channel, further apart than they are long.
struct Streams {
    bytes: Vec<u8>,
    plan: Plan,
    stride: usize,
    times: usize,
}

fn size(plan: &Plan) -> usize {
    plan.encoding().sample_bits() / 8
}

fn bytes(random: &mut Random, count: usize) -> Vec<u8> {
    (0..count).map(|_| random.bits() as u8).collect()
}

impl OwnedRows {
    fn new(random: &mut Random, plan: &Plan, times: usize, first: usize) -> Self {
        let count = 1 + plan.inputs() * times * plan.channels() * size(plan);
        Self { bytes: bytes(random, count), plan: plan.clone(), times, first }
    }

    fn rows(&self) -> Rows<'_> {
        Rows { bytes: &self.bytes[1..], times: self.times, first: 0 }
    }
}

impl Source for OwnedRows {
    fn sample(&self, input: usize, channel: usize, time: usize) -> &[u8] {
        let row = input * self.times + self.first + time;
        let size = size(&self.plan);
        &self.bytes[1 + (row * self.plan.channels() + channel) * size..][..size]
    }
}

impl Streams {
    fn new(random: &mut Random, plan: &Plan, times: usize) -> Self {
        let stride = times * size(plan) + random.below(9);
        let count = 1 + plan.inputs() * plan.channels() * stride;
        Self { bytes: bytes(random, count), plan: plan.clone(), stride, times }
    }

    fn voltages(&self) -> Voltages<'_> {
        let streams = self.plan.inputs() * self.plan.channels();
        let encoding = self.plan.encoding();
        Voltages::new(&self.bytes[1..], encoding, streams, self.stride, self.times).unwrap()
    }
}

impl Source for Streams {
    fn sample(&self, input: usize, channel: usize, time: usize) -> &[u8] {
        let polarizations = self.plan.polarizations();
        let stream = (input / polarizations * self.plan.channels() + channel) * polarizations;
        let start = 1 + (stream + input % polarizations) * self.stride;
        &self.bytes[start + time * size(&self.plan)..][..size(&self.plan)]
    }
}

/// A block of `times` spectra with garbage in all its bytes and after them.
fn dirty(plan: &Plan, times: usize) -> BlockBuffer {
    let mut buffer = BlockBuffer::new(plan, times + 3);
    buffer.set_times(times + 3).unwrap();
    buffer.bytes_mut().fill(DIRT);
    buffer.set_times(times).unwrap();
    buffer
}

/// Compares every sample, the unused inputs and times, and the bytes after the block.
fn check(name: &str, source: &dyn Source, mut buffer: BlockBuffer) {
    let (plan, times) = (buffer.plan().clone(), buffer.times());
    let block = buffer.block();
    for channel in 0..plan.channels() {
        for input in 0..plan.panels() * LANES {
            for time in 0..times.next_multiple_of(plan.group()) {
                let found = block.value(&plan, channel, input, time);
                let expected = if input < plan.inputs() && time < times {
                    voltage(source.sample(input, channel, time), plan.encoding(), 0)
                } else {
                    0.0.into()
                };
                let same = found.re.to_bits() == expected.re.to_bits()
                    && found.im.to_bits() == expected.im.to_bits();
                assert!(same, "{name}: {channel} {input} {time}: {found} is not {expected}");
            }
        }
    }
    let end = plan.packed_bytes(times);
    buffer.set_times(times + 3).unwrap();
    assert!(buffer.bytes_mut()[end..].iter().all(|byte| *byte == DIRT), "{name}: past the end");
}

#[derive(Clone, Copy, Debug)]
struct Case {
    options: (usize, usize, usize),
    encoding: VoltageEncoding,
    times: usize,
    spare: usize,
    seed: u64,
}

fn cases() -> impl Strategy<Value = Case> {
    use VoltageEncoding::{Complex4, Complex8, ComplexF32};
    let encoding = prop_oneof![Just(Complex4), Just(Complex8), Just(ComplexF32)];
    let options = (1usize..40, 1usize..3, 1usize..150);
    (options, encoding, 0usize..41, 0usize..5, any::<u64>()).prop_map(
        |(options, encoding, times, spare, seed)| Case { options, encoding, times, spare, seed },
    )
}

fn plan(case: &Case) -> Plan {
    let (antennas, polarizations, channels) = case.options;
    let encoding = case.encoding;
    Plan::new(Options { antennas, polarizations, channels, encoding }).unwrap()
}

fn run(case: Case) {
    let mut random = Random::new(case.seed);
    let plan = plan(&case);
    let first = random.below(case.spare + 1);
    let spectra = OwnedRows::new(&mut random, &plan, case.times + case.spare, first);
    let streams = Streams::new(&mut random, &plan, case.times);
    for backend in Backend::variants(1 + random.below(3)) {
        let name = format!("{case:?} on {}", backend.name());
        let mut turn = CornerTurn::new(plan.clone(), &backend);
        let mut buffer = dirty(&plan, case.times);
        turn.run(Spectra::Rows(Rows { first, ..spectra.rows() }), &mut buffer).unwrap();
        check(&format!("rows of {name}"), &spectra, buffer);
        let mut buffer = dirty(&plan, case.times);
        turn.run(Spectra::Streams(streams.voltages()), &mut buffer).unwrap();
        check(&format!("streams of {name}"), &streams, buffer);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_sample_is_where_the_packed_order_has_it(case in cases()) {
        run(case);
    }
}

#[test]
fn long_blocks_are_turned_past_the_caches_to_the_same_bytes() {
    let mut random = Random::new(5);
    use VoltageEncoding::{Complex4, Complex8, ComplexF32};
    for (encoding, times) in
        [(Complex4, 1030), (Complex4, 1028), (Complex8, 517), (ComplexF32, 131)]
    {
        let plan =
            Plan::new(Options { antennas: 11, polarizations: 2, channels: 300, encoding }).unwrap();
        let spectra = OwnedRows::new(&mut random, &plan, times, 0);
        let streams = Streams::new(&mut random, &plan, times);
        let mut expected = [dirty(&plan, times), dirty(&plan, times)];
        for backend in Backend::variants(2) {
            let mut turn = CornerTurn::new(plan.clone(), &backend);
            let mut found = [dirty(&plan, times), dirty(&plan, times)];
            turn.run(Spectra::Rows(spectra.rows()), &mut found[0]).unwrap();
            turn.run(Spectra::Streams(streams.voltages()), &mut found[1]).unwrap();
            if matches!(backend, Backend::Reference) {
                expected = found;
                continue;
            }
            for (found, expected) in found.iter().zip(&expected) {
                assert!(found.block().bytes().len() > 8 << 20, "short enough for the caches");
                let same = found.block().bytes() == expected.block().bytes();
                assert!(same, "{encoding:?}, {times} times on {}", backend.name());
            }
        }
    }
}

#[test]
fn what_does_not_fit_is_refused() {
    let plan = plan(&Case {
        options: (3, 2, 4),
        encoding: VoltageEncoding::Complex8,
        times: 6,
        spare: 0,
        seed: 0,
    });
    let mut random = Random::new(1);
    let mut turn = CornerTurn::new(plan.clone(), &Backend::best(1));
    let mut buffer = dirty(&plan, 6);
    let spectra = OwnedRows::new(&mut random, &plan, 6, 0);
    let said = |outcome: sidereal::Result<()>| outcome.unwrap_err().to_string();
    assert!(
        said(turn.run(Spectra::Rows(Rows { first: 1, ..spectra.rows() }), &mut buffer))
            .contains("times")
    );
    assert!(
        said(turn.run(Spectra::Rows(Rows { first: usize::MAX, ..spectra.rows() }), &mut buffer))
            .contains("times")
    );
    let long = Rows { times: usize::MAX, ..spectra.rows() };
    assert!(said(turn.run(Spectra::Rows(long), &mut buffer)).contains("rows"));
    let short = Rows { times: 5, ..spectra.rows() };
    assert!(said(turn.run(Spectra::Rows(short), &mut buffer)).contains("rows"));
    let streams = Streams::new(&mut random, &plan, 5);
    assert!(said(turn.run(Spectra::Streams(streams.voltages()), &mut buffer)).contains("times"));
    for encoding in [VoltageEncoding::Complex16, VoltageEncoding::ComplexOffset8] {
        let bytes = vec![0; 24 * 6 * 4];
        let voltages = Voltages::new(&bytes, encoding, 24, 24, 6).unwrap();
        assert!(said(turn.run(Spectra::Streams(voltages), &mut buffer)).contains("encoding"));
    }
    let bytes = vec![0; 12 * 12];
    let few = Voltages::new(&bytes, VoltageEncoding::Complex8, 12, 12, 6).unwrap();
    assert!(said(turn.run(Spectra::Streams(few), &mut buffer)).contains("streams"));
    let other = Plan::new(Options { channels: 5, ..plan.options().clone() }).unwrap();
    let mut buffer = dirty(&other, 6);
    assert!(said(turn.run(Spectra::Rows(spectra.rows()), &mut buffer)).contains("block"));
}
