//! Spectra in natural order in GPU memory, with garbage in the gaps, and all methods to correlate them.
#![allow(dead_code, unreachable_pub, missing_docs)]

use std::ops::Range;

use sidereal::Result;
use sidereal::backend::Backend;
use sidereal::backend::cuda::tune::{self, Work};
use sidereal::backend::cuda::{Buffer, Device, Stream};
use sidereal::correlate::{Correlator, DeviceSpectra, Precision};
use sidereal::voltage::VoltageEncoding;

use super::correlate::{Complex64, Recording};
use super::random::Random;
use super::sums::{Sums, UNIT, read, truth};

/// Bytes of a complex sample.
pub fn sample_bytes(encoding: VoltageEncoding) -> usize {
    encoding.sample_bits() / 8
}

/// Strides for the given number of times: tight, or odd multiples of 16 with gaps.
pub fn layout(recording: &Recording, times: usize, random: &mut Random) -> DeviceSpectra {
    let plan = &recording.plan;
    let row = (times * sample_bytes(plan.encoding())).next_multiple_of(16).max(16);
    let input_stride = row + 16 * random.below(4);
    let first_byte = 16 * random.below(5);
    // Sometimes channels within inputs.
    if random.below(4) == 0 {
        let input_stride = plan.channels() * input_stride + 16 * random.below(3);
        return DeviceSpectra {
            first_byte,
            channel_stride: input_stride / plan.channels() / 16 * 16,
            input_stride,
            times,
        };
    }
    let channel_stride = plan.inputs() * input_stride + 16 * random.below(3);
    DeviceSpectra { first_byte, channel_stride, input_stride, times }
}

/// Some spectra and their mask on a device.
pub fn upload(
    recording: &Recording,
    range: Range<usize>,
    layout: DeviceSpectra,
    device: &Device,
    random: &mut Random,
) -> (Buffer<u8>, Option<Buffer<u64>>) {
    let plan = &recording.plan;
    let size = sample_bytes(plan.encoding());
    let row = (range.len() * size).next_multiple_of(16);
    let last =
        (plan.channels() - 1) * layout.channel_stride + (plan.inputs() - 1) * layout.input_stride;
    let mut words: Vec<u64> =
        (0..(layout.first_byte + last + row) / 8).map(|_| random.bits()).collect();
    if plan.encoding() == VoltageEncoding::ComplexF32 {
        words.fill(u64::from(f32::NAN.to_bits()) << 32 | u64::from(f32::INFINITY.to_bits()));
    }
    let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut words);
    for channel in 0..plan.channels() {
        for input in 0..plan.inputs() {
            let at =
                layout.first_byte + channel * layout.channel_stride + input * layout.input_stride;
            for (index, time) in range.clone().enumerate() {
                if recording.is_valid(channel, input / plan.polarizations(), time) {
                    let to = &mut bytes[at + index * size..][..size];
                    put(to, plan.encoding(), recording.value(channel, input, time));
                }
            }
        }
    }
    let packed = recording.pack(range, random);
    let mask = packed.mask.map(|mask| device.upload(&mask).unwrap());
    (device.upload(bytes).unwrap(), mask)
}

fn put(to: &mut [u8], encoding: VoltageEncoding, value: Complex64) {
    match encoding {
        VoltageEncoding::Complex4 => {
            to[0] = (value.re as i8 as u8) << 4 | (value.im as i8 as u8) & 15
        }
        VoltageEncoding::Complex8 => {
            to.copy_from_slice(&[value.re as i8 as u8, value.im as i8 as u8])
        }
        _ => {
            to[..4].copy_from_slice(&(value.re as f32).to_le_bytes());
            to[4..].copy_from_slice(&(value.im as f32).to_le_bytes());
        }
    }
}

/// Compares sums with those of a recording by a plain loop; those of floats within tolerance.
pub fn check(found: &Sums, recording: &Recording, name: &str) {
    let (sums, magnitudes, counts) = truth(recording);
    assert_eq!(found.counts, counts, "{name}: counts");
    for (at, (expected, magnitude)) in sums.iter().zip(&magnitudes).enumerate() {
        let value = found.value(at);
        let bound = match (found.floats.is_empty(), recording.plan.precision()) {
            (true, _) => 0.0,
            (false, Precision::F32 | Precision::Split) => 514.5 * UNIT,
            (false, _) => 1.0 / 1024.0,
        };
        let near = (value.re - expected.re).abs() <= bound * magnitude.re
            && (value.im - expected.im).abs() <= bound * magnitude.im;
        assert!(near, "{name} {:?}: {at}: {value}, not {expected}", recording.plan.options());
    }
}

/// Blocks from a device's memory.
pub fn resident(
    recording: &Recording,
    (backend, device): (&Backend, &Device),
    largest: usize,
    random: &mut Random,
) -> Sums {
    let plan = &recording.plan;
    let stream = device.stream().unwrap();
    let mut correlator = Correlator::new(plan.clone(), backend).unwrap();
    let mut taken = 0;
    while taken < recording.times {
        let times = (1 + random.below(largest)).min(recording.times - taken);
        let times = if largest >= recording.times { recording.times } else { times };
        let layout = layout(recording, times, random);
        let (mut spectra, mask) = upload(recording, taken..taken + times, layout, device, random);
        correlator.enqueue(&mut spectra, layout, mask.as_ref(), &stream).unwrap();
        taken += times;
        assert_eq!(correlator.times(), taken as u64);
    }
    read(&mut correlator, 0..plan.channels())
}

/// A recording in device memory, correlated anew at each call.
struct Resident {
    recording: Recording,
    correlator: Correlator,
    spectra: Buffer<u8>,
    mask: Option<Buffer<u64>>,
    layout: DeviceSpectra,
}

impl Work for Resident {
    fn enqueue(&mut self, stream: &Stream) -> Result<()> {
        self.correlator.reset();
        self.correlator.enqueue(&mut self.spectra, self.layout, self.mask.as_ref(), stream)
    }

    fn digest(&mut self) -> Result<u128> {
        let found = read(&mut self.correlator, 0..self.recording.plan.channels());
        let way = self.correlator.path().unwrap_or_default();
        check(&found, &self.recording, way);
        let bits = found.bits().into_iter().flatten().chain(found.counts);
        Ok(bits.fold(0, |hash, word| (hash ^ u128::from(word)).wrapping_mul((1 << 88) + 0x13b)))
    }
}

/// Correlates a recording by every method of the device; returns the number of methods.
pub fn every_way(
    recording: &Recording,
    (backend, device): (&Backend, &Device),
    random: &mut Random,
) -> usize {
    let layout = layout(recording, recording.times, random);
    let seed = random.bits();
    let mut build = || -> Result<Box<dyn Work>> {
        let all = 0..recording.times;
        let (spectra, mask) = upload(recording, all, layout, device, &mut Random::new(seed));
        let correlator = Correlator::new(recording.plan.clone(), backend)?;
        let recording = recording.clone();
        Ok(Box::new(Resident { recording, correlator, spectra, mask, layout }))
    };
    let tuned = tune::tune(device, &mut build, &mut |_, _| Ok(())).unwrap();
    let ways = tuned.iter().find(|tuned| tuned.kernel() == "correlate").expect("it has a choice");
    assert!(ways.measured.iter().all(|way| way.seconds.is_ok()), "{:?}", ways.measured);
    ways.measured.len()
}
