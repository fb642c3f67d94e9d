//! The X-engine on spectra in GPU memory: the sums of the same spectra from host memory.

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

use correlate::{MISSING, Missing, Recording, Values, plan};
use cuda::devices;
use natural::{check, every_way, layout, resident, upload};
use num_complex::Complex;
use random::Random;
use sidereal::backend::Backend;
use sidereal::backend::cuda::{Buffer, Device};
use sidereal::correlate::{Correlator, DeviceSpectra, Plan, Precision};
use sidereal::voltage::VoltageEncoding::{self, Complex4, Complex8, ComplexF32};
use sums::{read, whole};

const ENCODINGS: [VoltageEncoding; 3] = [Complex8, Complex4, ComplexF32];

/// One tile of every size and a few more, with a remainder or without.
#[test]
fn spectra_in_the_device_s_memory_give_the_same_sums() {
    let mut random = Random::new(31);
    let inputs =
        [(1, 1), (1, 2), (3, 1), (17, 1), (33, 1), (32, 1), (65, 1), (64, 2), (65, 2), (130, 1)];
    for (backend, device) in devices(2) {
        for (index, (antennas, polarizations)) in inputs.into_iter().enumerate() {
            for (turn, times) in [1, 7, 63, 65, 200].into_iter().enumerate() {
                if antennas > 33 && (index + turn) % 3 > 0 {
                    continue;
                }
                let encoding = ENCODINGS[(index + turn) % 3];
                let plan = plan(antennas, polarizations, 1 + (index + turn) % 3, encoding);
                let values = [Values::Any, Values::Extremes][turn % 2];
                let missing = MISSING[(2 * index + turn) % 6];
                let recording = Recording::random(&mut random, &plan, times, values, missing);
                let found = resident(&recording, (&backend, &device), times, &mut random);
                check(&found, &recording, &backend.name());
            }
        }
    }
}

/// Any split, alternating between host and device, gives the bits of one block.
#[test]
fn run_and_enqueue_go_on_from_each_other() {
    let mut random = Random::new(32);
    for (backend, device) in devices(2) {
        for (index, encoding) in ENCODINGS.into_iter().enumerate() {
            for missing in [Missing::Nothing, Missing::Some] {
                let plan = plan(5, 2, 3, encoding);
                let recording = Recording::random(&mut random, &plan, 1000, Values::Any, missing);
                let expected = whole(&recording, &backend, &mut random);
                check(&expected, &recording, &backend.name());
                let found =
                    resident(&recording, (&backend, &device), [400, 300, 130][index], &mut random);
                assert_eq!(found.bits(), expected.bits(), "{encoding:?}");
                assert_eq!(found.counts, expected.counts);
                let mut correlator = Correlator::new(plan.clone(), &backend).unwrap();
                let stream = device.stream().unwrap();
                for (part, start) in (0..1000).step_by(125).enumerate() {
                    if part % 2 == 0 {
                        let packed = recording.pack(start..start + 125, &mut random);
                        correlator.run(packed.block(&plan)).unwrap();
                        continue;
                    }
                    let layout = layout(&recording, 125, &mut random);
                    let (mut spectra, mask) =
                        upload(&recording, start..start + 125, layout, &device, &mut random);
                    correlator.enqueue(&mut spectra, layout, mask.as_ref(), &stream).unwrap();
                }
                assert_eq!(read(&mut correlator, 0..3), expected, "{encoding:?}");
                correlator.reset();
                let none = read(&mut correlator, 0..3);
                assert!(none.bits().iter().all(|bits| *bits == [0, 0]));
                assert!(none.counts.iter().all(|count| *count == 0));
            }
        }
    }
}

/// The error of floats that a GPU may round is within the documented bound, in pieces of any length.
#[test]
fn rounded_floats_are_as_good_as_promised() {
    let mut random = Random::new(35);
    for (backend, device) in devices(2) {
        for (index, precision) in
            [Precision::Split, Precision::Tf32, Precision::F16].into_iter().enumerate()
        {
            let plan = plan([7, 40, 67][index], 1, 2, ComplexF32).with_precision(precision);
            // Integers are no finer than 16 bits of a float have them.
            let values = if precision == Precision::F16 { Values::Integers } else { Values::Any };
            let recording = Recording::random(&mut random, &plan, 300, values, Missing::Some);
            let found = resident(&recording, (&backend, &device), 99, &mut random);
            check(&found, &recording, &format!("{precision:?}"));
            let found = whole(&recording, &backend, &mut random);
            check(&found, &recording, &format!("{precision:?}"));
        }
    }
}

/// Rows of `times` samples of one value in a device's memory.
fn constant(
    plan: &Plan,
    times: usize,
    value: [u8; 2],
    device: &Device,
) -> (Buffer<u8>, DeviceSpectra) {
    let size = natural::sample_bytes(plan.encoding());
    let input_stride = (times * size).next_multiple_of(16);
    let mut row = value[..size].repeat(times);
    row.resize(input_stride, 0x77);
    let bytes = row.repeat(plan.inputs() * plan.channels());
    let channel_stride = plan.inputs() * input_stride;
    let layout = DeviceSpectra { first_byte: 0, channel_stride, input_stride, times };
    (device.upload(&bytes).unwrap(), layout)
}

/// Products of 2^15 a sample fill 32 bits in 65536 samples: launches and folds come before.
#[test]
fn extremes_for_longer_than_32_bits_hold() {
    for (backend, device) in devices(2) {
        let stream = device.stream().unwrap();
        let cases = [(Complex8, [0x80, 0x80], 2 * 128 * 128), (Complex4, [0x88, 0], 2 * 8 * 8)];
        for (encoding, value, product) in cases {
            for lengths in [
                &[65_472][..],
                &[65_473, 64],
                &[65_535, 1],
                &[1000, 200_000, 7],
                &[131_072, 65_536],
            ] {
                let plan = plan(2, 1, 2, encoding);
                let mut correlator = Correlator::new(plan.clone(), &backend).unwrap();
                let mut total = 0;
                for times in lengths.iter().copied() {
                    let (mut spectra, layout) = constant(&plan, times, value, &device);
                    correlator.enqueue(&mut spectra, layout, None, &stream).unwrap();
                    total += times;
                    let found = read(&mut correlator, 0..2);
                    let expected = Complex::new(product * total as i64, 0);
                    assert!(found.integers.iter().all(|sum| *sum == expected), "{found:?} {total}");
                    assert!(found.counts.iter().all(|count| *count == total as u64));
                }
            }
        }
    }
}

/// The candidates measured as fastest are rarely those that tests choose.
#[test]
fn every_way_to_multiply_integers_gives_the_same_sums() {
    let mut random = Random::new(36);
    for (backend, device) in devices(2) {
        for (antennas, values) in [(66, Values::Any), (131, Values::Extremes)] {
            for encoding in [Complex8, Complex4] {
                let plan = plan(antennas, 1, 2, encoding);
                let recording = Recording::random(&mut random, &plan, 71, values, Missing::Some);
                let ways = every_way(&recording, (&backend, &device), &mut random);
                assert!(ways >= if device.is_hopper() { 3 } else { 1 }, "{ways}");
            }
        }
    }
}

/// A mask zeroes exactly the masked samples.
#[test]
fn what_is_not_valid_becomes_zero_in_place() {
    let mut random = Random::new(33);
    for (backend, device) in devices(2) {
        for encoding in ENCODINGS {
            let plan = plan(3, 2, 2, encoding);
            let times = 150;
            let recording =
                Recording::random(&mut random, &plan, times, Values::Any, Missing::Half);
            let layout = layout(&recording, times, &mut random);
            let (mut spectra, mask) = upload(&recording, 0..times, layout, &device, &mut random);
            let mut expected = vec![0u8; spectra.len()];
            spectra.download(0, &mut expected).unwrap();
            let size = natural::sample_bytes(encoding);
            for channel in 0..2 {
                for input in 0..6 {
                    let at = layout.first_byte
                        + channel * layout.channel_stride
                        + input * layout.input_stride;
                    for time in
                        (0..times).filter(|time| !recording.is_valid(channel, input / 2, *time))
                    {
                        expected[at + time * size..][..size].fill(0);
                    }
                }
            }
            let mut correlator = Correlator::new(plan, &backend).unwrap();
            let stream = device.stream().unwrap();
            correlator.enqueue(&mut spectra, layout, mask.as_ref(), &stream).unwrap();
            let mut found = vec![0u8; spectra.len()];
            spectra.download(0, &mut found).unwrap();
            assert!(found == expected, "{encoding:?}: other samples were changed");
        }
    }
}

/// More sums than one segment of a read holds, by ranges of channels.
#[test]
fn many_sums_are_read_by_ranges() {
    let mut random = Random::new(34);
    for (backend, _) in devices(2) {
        let plan = plan(60, 2, 160, Complex8);
        let recording = Recording::random(&mut random, &plan, 3, Values::Any, Missing::Some);
        let mut correlator = Correlator::new(plan.clone(), &backend).unwrap();
        correlator.run(recording.pack(0..3, &mut random).block(&plan)).unwrap();
        let all = read(&mut correlator, 0..160);
        check(&all, &recording, &backend.name());
        for range in [0..0, 0..1, 7..101, 159..160, 160..160] {
            assert_eq!(read(&mut correlator, range.clone()), all.channels(&plan, range));
        }
    }
}

#[test]
fn what_does_not_fit_is_refused() {
    let plan = plan(3, 1, 2, Complex8);
    for (backend, device) in devices(2) {
        let stream = device.stream().unwrap();
        let good =
            DeviceSpectra { first_byte: 16, channel_stride: 96, input_stride: 32, times: 16 };
        let mut spectra = device.buffer::<u8>(16 + 96 + 2 * 32 + 32).unwrap();
        let mut correlator = Correlator::new(plan.clone(), &backend).unwrap();
        let mut refused = |layout: DeviceSpectra, mask: Option<&Buffer<u64>>| {
            correlator.enqueue(&mut spectra, layout, mask, &stream).unwrap_err().to_string()
        };
        assert!(refused(DeviceSpectra { first_byte: 32, ..good }, None).contains("(bytes)"));
        assert!(refused(DeviceSpectra { first_byte: 8, ..good }, None).contains("first byte"));
        assert!(refused(DeviceSpectra { input_stride: 40, ..good }, None).contains("input stride"));
        assert!(
            refused(DeviceSpectra { channel_stride: 104, ..good }, None).contains("channel stride")
        );
        assert!(refused(DeviceSpectra { input_stride: 16, ..good }, None).contains("stride"));
        assert!(refused(DeviceSpectra { times: 17, ..good }, None).contains("(bytes)"));
        assert!(refused(DeviceSpectra { times: usize::MAX, ..good }, None).contains("(bytes)"));
        assert!(
            refused(DeviceSpectra { channel_stride: 1 << 63, ..good }, None).contains("(bytes)")
        );
        let short = device.buffer::<u64>(5).unwrap();
        assert!(refused(good, Some(&short)).contains("mask"));
        assert_eq!(correlator.times(), 0);
        let nothing = DeviceSpectra { times: 0, ..good };
        correlator.enqueue(&mut spectra, nothing, None, &stream).unwrap();
        let mut on_host = Correlator::new(plan.clone(), &Backend::Reference).unwrap();
        let fault = on_host.enqueue(&mut spectra, good, None, &stream).unwrap_err().to_string();
        assert!(fault.contains("not a GPU"), "{fault}");
    }
}
