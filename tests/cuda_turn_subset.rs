//! Every part of the kernels that bring antennas' samples into the X-engine's order: few samples, for tools that slow
//! kernels down.
//!
//! With `v` the exact value: a float is off by at most `2^-20 |v|`, and an integer is what a number so far from `v` rounds
//! to.

#[path = "common/cuda.rs"]
mod cuda;
#[path = "common/random.rs"]
mod random;

use std::f64::consts::TAU;

use num_complex::{Complex, Complex64};
use random::Random;
use sidereal::align::{
    Band, Delay, DeviceAligner, DeviceDelays, DeviceOptions, DeviceSamples, Form, Natural,
};
use sidereal::backend::cuda::Device;
use sidereal::voltage::{VoltageEncoding, voltage};

use VoltageEncoding::{Complex4, Complex8, Complex16, ComplexF32, ComplexOffset8};

/// What outputs hold beforehand.
const DIRT: u8 = 0xa5;

/// The largest error of a value, as a part of its magnitude.
const BOUND: f64 = 1.0 / (1 << 20) as f64;

/// Antennas, their samples, and what is asked.
struct Case {
    options: DeviceOptions,
    /// The bytes as the form has them, and where they lie.
    samples: Vec<u8>,
    at: DeviceSamples,
    /// Values; axes antenna, polarization, channel, time.
    values: Vec<Complex64>,
    gains: Vec<Vec<Complex<f32>>>,
    delays: Vec<Vec<Delay>>,
}

/// Inputs out: those of the antennas and a few that are not theirs.
const INPUTS: usize = 11;

impl Case {
    /// Of antennas whose first inputs are 6, 0 and 3.
    fn new(
        (form, encoding): (Form, VoltageEncoding),
        (polarizations, coarse_channels, channels): (usize, usize, usize),
        (times, turns): (usize, bool),
        random: &mut Random,
    ) -> Self {
        let zero = |coarse: usize| 1.4e9 - 3e6 * coarse as f64;
        let band = Band {
            zeros_hz: (0..coarse_channels).map(zero).collect(),
            first_hz: -2e6,
            step_hz: 4e6 / channels as f64,
        };
        let inputs = vec![6, 0, 3];
        let options = DeviceOptions {
            inputs,
            polarizations,
            coarse_channels,
            channels,
            encoding,
            form,
            band: turns.then_some(band),
        };
        let elements = polarizations * coarse_channels * channels;
        let size = if encoding == Complex4 { 0.3 } else { 1.0 };
        let gains = (0..3).map(|antenna| {
            let count = if antenna == 1 { 1 } else { elements };
            (0..count).map(|_| complex(random, size)).collect()
        });
        let gains = gains.collect();
        let mut delay = || {
            let size = [0.0, 1e-9, 1e-6, 1e-2][random.below(4)];
            Delay { late_s: size * random.gaussian(), rest_s: 1e-7 * random.gaussian() }
        };
        let delays = (0..3).map(|_| (0..times).map(|_| delay()).collect()).collect();
        let mut case = Self {
            options,
            samples: Vec::new(),
            at: DeviceSamples { first_byte: 0, stride: 0, times },
            values: vec![Complex64::ZERO; 3 * elements * times],
            gains,
            delays,
        };
        case.fill(random);
        case
    }

    fn channels(&self) -> usize {
        self.options.coarse_channels * self.options.channels
    }

    /// Random samples, with dirt before, between and behind them.
    fn fill(&mut self, random: &mut Random) {
        let (times, channels) = (self.at.times, self.channels());
        let (polarizations, encoding) = (self.options.polarizations, self.options.encoding);
        match self.options.form {
            Form::Spectra => {
                let row = 3 * polarizations * channels;
                self.at = DeviceSamples { first_byte: 24, stride: 8 * row + 40, times };
                self.samples = vec![DIRT; 24 + times * self.at.stride];
                for time in 0..times {
                    for element in 0..row {
                        let value = complex(random, if encoding == Complex4 { 12.0 } else { 30.0 });
                        let at = 24 + time * self.at.stride + 8 * element;
                        self.samples[at..at + 8].copy_from_slice(bytemuck::bytes_of(&value));
                        self.values[element * times + time] = wide(value);
                    }
                }
            }
            Form::Voltages { encoding, scale } => {
                self.fill_streams(encoding, random);
                for (stream, index) in self.streams().into_iter().enumerate() {
                    let row = &self.samples[16 + stream * self.at.stride..];
                    for time in 0..times {
                        let value = voltage(row, encoding, time) * f64::from(scale);
                        self.values[index * times + time] = value;
                    }
                }
            }
            Form::Recorded => {
                self.fill_streams(encoding, random);
                for (stream, index) in self.streams().into_iter().enumerate() {
                    let row = &self.samples[16 + stream * self.at.stride..];
                    for time in 0..times {
                        self.values[index * times + time] = voltage(row, encoding, time);
                    }
                }
            }
        }
    }

    /// Place among the values' (antenna, polarization, channel) of each stream (antenna, channel, polarization).
    fn streams(&self) -> Vec<usize> {
        let (polarizations, coarse) = (self.options.polarizations, self.options.coarse_channels);
        let place = |stream: usize| {
            let (antenna, own) =
                (stream / (coarse * polarizations), stream % (coarse * polarizations));
            (antenna * polarizations + own % polarizations) * coarse + own / polarizations
        };
        (0..3 * coarse * polarizations).map(place).collect()
    }

    fn fill_streams(&mut self, encoding: VoltageEncoding, random: &mut Random) {
        let times = self.at.times;
        let stride = encoding.bytes(times.next_multiple_of(16)).next_multiple_of(16) + 16;
        let streams = 3 * self.options.polarizations * self.options.coarse_channels;
        self.at = DeviceSamples { first_byte: 16, stride, times };
        self.samples = vec![0; 16 + streams * stride];
        match encoding {
            ComplexF32 => self.samples.chunks_exact_mut(4).for_each(|bytes| {
                bytes.copy_from_slice(&((40.0 * random.gaussian()) as f32).to_le_bytes());
            }),
            _ => self.samples.iter_mut().for_each(|byte| *byte = random.below(256) as u8),
        }
    }

    /// The exact value before it is rounded.
    fn exact(
        &self,
        (antenna, polarization, channel): (usize, usize, usize),
        time: usize,
    ) -> Complex64 {
        let channels = self.channels();
        let element = polarization * channels + channel;
        let index =
            (antenna * self.options.polarizations * channels + element) * self.at.times + time;
        let value = self.values[index];
        if self.options.form == Form::Recorded {
            return value;
        }
        let gains = &self.gains[antenna];
        let value = value * wide(gains[element % gains.len()]);
        let Some(band) = &self.options.band else { return value };
        let fine = self.options.channels;
        let slope = band.slope(channel / fine, self.delays[antenna][time]);
        let turns = slope.start.fract() + (channel % fine) as f64 * slope.step.fract();
        value * Complex64::cis(TAU * turns.fract())
    }

    /// What comes out in calls of at most `most` times, with the layout, and counts of limited samples.
    fn run(&self, device: &Device, most: usize) -> (Vec<u8>, Natural, Vec<u64>) {
        let times = self.at.times;
        let input_stride = self.options.encoding.bytes(times).next_multiple_of(16) + 32;
        let to =
            Natural { first_byte: 48, channel_stride: INPUTS * input_stride + 16, input_stride };
        let bytes = vec![DIRT; to.first_byte + self.channels() * to.channel_stride + 64];
        let mut output = device.upload(&bytes).unwrap();
        let samples = device.upload(&self.samples).unwrap();
        let pairs = self.delays.iter().flatten().flat_map(|own| [own.late_s, own.rest_s]);
        let seconds = device.upload(&pairs.collect::<Vec<f64>>()).unwrap();
        let stream = device.stream().unwrap();
        let mut aligner = DeviceAligner::new(device, self.options.clone()).unwrap();
        if self.options.form != Form::Recorded {
            let gains = self.gains.iter().map(Vec::as_slice).enumerate();
            aligner.set_gains(gains).unwrap();
        }
        for first in (0..times).step_by(most) {
            let count = most.min(times - first);
            let bytes = match self.options.form {
                Form::Spectra => first * self.at.stride,
                Form::Voltages { encoding, .. } => encoding.bytes(first),
                Form::Recorded => self.options.encoding.bytes(first),
            };
            let from =
                DeviceSamples { first_byte: self.at.first_byte + bytes, times: count, ..self.at };
            let delays = DeviceDelays { seconds: &seconds, first, stride: times };
            let place = to.first_byte + self.options.encoding.bytes(first);
            let to = Natural { first_byte: place, ..to };
            aligner.enqueue((&samples, from), Some(delays), (&mut output, to), &stream).unwrap();
        }
        stream.synchronize().unwrap();
        let mut bytes = bytes;
        output.download(0, &mut bytes).unwrap();
        (bytes, to, aligner.saturated().unwrap())
    }

    /// Compares what comes out with the equation, and calls of different length with each other.
    fn check(&self, device: &Device, name: &str) {
        let (bytes, to, saturated) = self.run(device, self.at.times);
        let mut touched = [false; INPUTS];
        for (antenna, input) in self.options.inputs.iter().enumerate() {
            for polarization in 0..self.options.polarizations {
                touched[input + polarization] = true;
                let place = (antenna, polarization);
                let count = saturated[antenna * self.options.polarizations + polarization];
                let limited = self.check_input(&bytes, to, (place, input + polarization), name);
                assert!(limited.contains(&count), "{name}: {count} limited, not {limited:?}");
            }
        }
        let length = self.options.encoding.bytes(self.at.times).next_multiple_of(16);
        let mut kept = bytes.clone();
        for channel in 0..self.channels() {
            for input in (0..INPUTS).filter(|input| touched[*input]) {
                let row = to.first_byte + channel * to.channel_stride + input * to.input_stride;
                kept[row..row + length].fill(DIRT);
            }
        }
        assert!(kept.iter().all(|byte| *byte == DIRT), "{name}: written elsewhere");
        // Whole pieces of 16 bytes.
        let (parts, _, counts) = self.run(device, 64);
        for channel in 0..self.channels() {
            for input in (0..INPUTS).filter(|input| touched[*input]) {
                let row = to.first_byte + channel * to.channel_stride + input * to.input_stride;
                let row = row..row + self.options.encoding.bytes(self.at.times);
                assert_eq!(bytes[row.clone()], parts[row], "{name}: in parts");
            }
        }
        assert_eq!(saturated, counts, "{name}: in parts");
    }

    /// How many samples of an input may count as limited.
    fn check_input(
        &self,
        bytes: &[u8],
        to: Natural,
        ((antenna, polarization), input): ((usize, usize), usize),
        name: &str,
    ) -> std::ops::RangeInclusive<u64> {
        let encoding = self.options.encoding;
        let most = f64::from(1 << (encoding.bits().min(8) - 1)) - 1.0;
        let (mut least, mut largest) = (0, 0);
        for channel in 0..self.channels() {
            let row =
                &bytes[to.first_byte + channel * to.channel_stride + input * to.input_stride..];
            for time in 0..self.at.times {
                let value = self.exact((antenna, polarization, channel), time);
                let off = BOUND * value.norm();
                let found = voltage(row, encoding, time);
                let about = format!(
                    "{name}: antenna {antenna} {polarization} channel {channel} time {time}"
                );
                if !value.is_finite() || value.norm() > f64::from(f32::MAX) {
                    assert_eq!(found, Complex64::ZERO, "{about}");
                    continue;
                }
                if self.options.form == Form::Recorded || encoding == ComplexF32 {
                    assert!((found - value).norm() <= off, "{about}: {found} is not {value}");
                    continue;
                }
                for (found, value) in [(found.re, value.re), (found.im, value.im)] {
                    let limit = |x: f64| x.round_ties_even().clamp(-most - 1.0, most);
                    let right = limit(value - off)..=limit(value + off);
                    assert!(right.contains(&found), "{about}: {found} is not {value}");
                }
                let beyond = |x: f64| (x - most - 0.5).max(-x - most - 1.5);
                let beyond = beyond(value.re).max(beyond(value.im));
                least += u64::from(beyond > off);
                largest += u64::from(beyond >= -off);
            }
        }
        least..=largest
    }
}

fn complex(random: &mut Random, scale: f64) -> Complex<f32> {
    Complex::new((scale * random.gaussian()) as f32, (scale * random.gaussian()) as f32)
}

fn wide(value: Complex<f32>) -> Complex64 {
    Complex64::new(f64::from(value.re), f64::from(value.im))
}

/// Whole tiles and parts of them, lanes without a channel, several recorded channels, every encoding out.
#[test]
fn fixed_subset_spectra() {
    let Some(device) = cuda::device() else { return };
    let mut random = Random::new(5);
    for (encoding, geometry, times, turns) in [
        (Complex8, (2, 1, 40), 131, true),
        (Complex8, (1, 3, 7), 64, true),
        (Complex8, (2, 2, 33), 3, false),
        (Complex4, (2, 1, 32), 259, true),
        (Complex4, (1, 2, 5), 130, false),
        (ComplexF32, (2, 2, 20), 67, true),
        (ComplexF32, (1, 1, 70), 33, false),
    ] {
        let case = Case::new((Form::Spectra, encoding), geometry, (times, turns), &mut random);
        case.check(&device, &format!("{encoding:?} {geometry:?} {times} {turns}"));
    }
}

/// The same of voltages that are channelized already, of every encoding.
#[test]
fn fixed_subset_streams() {
    let Some(device) = cuda::device() else { return };
    let mut random = Random::new(6);
    for (from, encoding, geometry, times, turns) in [
        (Complex8, Complex8, (2, 35, 1), 300, true),
        (Complex4, Complex4, (1, 9, 1), 131, true),
        (ComplexOffset8, Complex8, (2, 3, 1), 65, false),
        (Complex16, ComplexF32, (2, 4, 1), 70, true),
        (ComplexF32, Complex8, (1, 33, 1), 67, true),
        (Complex4, Complex8, (2, 2, 1), 64, false),
        (ComplexF32, ComplexF32, (1, 2, 1), 129, false),
    ] {
        let form = Form::Voltages { encoding: from, scale: 0.75 };
        let case = Case::new((form, encoding), geometry, (times, turns), &mut random);
        case.check(&device, &format!("{from:?} {encoding:?} {geometry:?} {times} {turns}"));
    }
}

/// Voltages that stay as they are.
#[test]
fn fixed_subset_recorded() {
    let Some(device) = cuda::device() else { return };
    let mut random = Random::new(7);
    for (encoding, geometry, times) in
        [(Complex8, (2, 35, 1), 301), (Complex4, (1, 9, 1), 64), (ComplexF32, (2, 3, 1), 33)]
    {
        let case = Case::new((Form::Recorded, encoding), geometry, (times, false), &mut random);
        case.check(&device, &format!("{encoding:?} {geometry:?} {times}"));
    }
}

/// Samples, gains' products and delays that are not finite make zeros, and touch nothing else.
#[test]
fn fixed_subset_not_finite() {
    let Some(device) = cuda::device() else { return };
    let mut random = Random::new(8);
    for encoding in [Complex4, Complex8, ComplexF32] {
        let form = (Form::Spectra, encoding);
        let mut case = Case::new(form, (2, 2, 9), (70, true), &mut random);
        let bad = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX];
        case.gains[0].iter_mut().for_each(|gain| *gain *= 4.0);
        for place in 0..40 {
            let (time, element) = (place * 7 % 70, place * 5 % (3 * 2 * 18));
            let mut value = complex(&mut random, 30.0);
            if place % 2 == 0 {
                value.re = bad[place / 2 % 4]
            } else {
                value.im = bad[place / 2 % 4]
            }
            let at = case.at.first_byte + time * case.at.stride + 8 * element;
            case.samples[at..at + 8].copy_from_slice(bytemuck::bytes_of(&value));
            let index = element * 70 + time;
            // What overflows once it is weighed is as good as infinite; what does not is limited.
            case.values[index] =
                if value.is_finite() { Complex64::new(f64::NAN, 0.0) } else { wide(value) };
        }
        case.delays[1][5].late_s = f64::NAN;
        case.delays[2][9].rest_s = f64::INFINITY;
        let channels = case.channels();
        for (antenna, time) in [(1, 5), (2, 9)] {
            for element in 0..2 * channels {
                case.values[(antenna * 2 * channels + element) * 70 + time].re = f64::NAN;
            }
        }
        case.check_not_finite(&device, &format!("{encoding:?}"));
    }
}

impl Case {
    /// As [`Self::check`], for values of which some are not finite: zeros, or limited where the largest float was.
    fn check_not_finite(&self, device: &Device, name: &str) {
        let (bytes, to, _) = self.run(device, self.at.times);
        let encoding = self.options.encoding;
        let most = f64::from(1 << (encoding.bits().min(8) - 1)) - 1.0;
        let mut zeros = 0;
        for (antenna, input) in self.options.inputs.iter().enumerate() {
            for element in 0..2 * self.channels() {
                let (polarization, channel) =
                    (element / self.channels(), element % self.channels());
                let row = to.channel_stride * channel + to.input_stride * (input + polarization);
                let row = &bytes[to.first_byte + row..];
                for time in 0..self.at.times {
                    let value = self.exact((antenna, polarization, channel), time);
                    let found = voltage(row, encoding, time);
                    assert!(found.is_finite(), "{name}");
                    if value.is_finite() {
                        let limit = |x: f64| {
                            if encoding == ComplexF32 { x } else { x.clamp(-most - 1.0, most) }
                        };
                        let off =
                            Complex64::new(found.re - limit(value.re), found.im - limit(value.im));
                        let slack =
                            if encoding == ComplexF32 { 1e-4 } else { 0.5 } + BOUND * value.norm();
                        assert!(off.re.abs().max(off.im.abs()) <= slack, "{name}: {found} {value}");
                    } else {
                        let is_limited = found.re.abs().max(found.im.abs()) >= most;
                        assert!(found == Complex64::ZERO || is_limited, "{name}: {found}");
                        zeros += u32::from(found == Complex64::ZERO);
                    }
                }
            }
        }
        assert!(zeros > 40, "{name}: {zeros}");
    }
}

/// What does not fit is said, and nothing is launched.
#[test]
fn faults_name_what_does_not_fit() {
    let Some(device) = cuda::device() else { return };
    let mut random = Random::new(9);
    let case = Case::new((Form::Spectra, Complex8), (2, 1, 8), (20, true), &mut random);
    let mut aligner = DeviceAligner::new(&device, case.options.clone()).unwrap();
    let samples = device.upload(&case.samples).unwrap();
    let seconds = device.upload(&vec![0.0; 3 * 2 * 20]).unwrap();
    let mut output = device.upload(&vec![DIRT; 8 * INPUTS * 64]).unwrap();
    let stream = device.stream().unwrap();
    let delays = DeviceDelays { seconds: &seconds, first: 0, stride: 20 };
    let to = Natural { first_byte: 0, channel_stride: INPUTS * 64, input_stride: 64 };
    let mut refused = |at: DeviceSamples, delays: Option<DeviceDelays<'_>>, to: Natural| {
        let error = aligner.enqueue((&samples, at), delays, (&mut output, to), &stream);
        error.unwrap_err().to_string()
    };
    assert!(refused(case.at, None, to).contains("delays"));
    assert!(
        refused(DeviceSamples { first_byte: 4, ..case.at }, Some(delays), to)
            .contains("multiple of 8")
    );
    assert!(refused(DeviceSamples { times: 21, ..case.at }, Some(delays), to).contains("samples"));
    assert!(refused(case.at, Some(DeviceDelays { first: 1, ..delays }), to).contains("delays"));
    assert!(
        refused(case.at, Some(delays), Natural { input_stride: 32, ..to })
            .contains("stride of inputs")
    );
    assert!(
        refused(case.at, Some(delays), Natural { first_byte: 8, ..to }).contains("multiple of 16")
    );
    assert!(
        refused(case.at, Some(delays), Natural { first_byte: 512, ..to })
            .contains("inputs (bytes)")
    );
    assert!(aligner.set_gains([(3, &[Complex::ONE][..])]).is_err());
    assert!(aligner.set_gains([(0, &[Complex::ONE; 3][..])]).is_err());
    let options = DeviceOptions { encoding: VoltageEncoding::Real8, ..case.options.clone() };
    assert!(DeviceAligner::new(&device, options).is_err());
}
