//! Antenna samples and their conversion to the X-engine's order, by the equation and on a device.
// Each test binary that includes this file uses a part of it.
#![allow(dead_code)]

use std::f64::consts::TAU;

use num_complex::{Complex, Complex64};
use sidereal::backend::Backend;
use sidereal::backend::cuda::Device;
use sidereal::backend::threads::Threads;
use sidereal::delay::{
    Band, Delay, DelayCorrector, DeviceDelays, DeviceSamples, Form, Natural, Options, Plan,
};
use sidereal::voltage::VoltageEncoding::{self, Complex4, ComplexF32};
use sidereal::voltage::voltage;

use super::random::Random;

/// Value of outputs before a call.
pub(crate) const DIRT: u8 = 0xa5;

/// Antennas, their samples, and the requested output.
pub(crate) struct Case {
    pub(crate) options: Options,
    /// The bytes in the layout, and their offsets.
    pub(crate) samples: Vec<u8>,
    pub(crate) at: DeviceSamples,
    /// Values; axes antenna, polarization, channel, time.
    pub(crate) values: Vec<Complex64>,
    pub(crate) gains: Vec<Vec<Complex<f32>>>,
    pub(crate) delays: Vec<Vec<Delay>>,
}

/// Output inputs: those of the antennas and a few unused ones.
pub(crate) const INPUTS: usize = 11;

impl Case {
    /// Antennas whose first inputs are 6, 0 and 3.
    pub(crate) fn new(
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
        let options = Options {
            inputs,
            polarizations,
            coarse_channels,
            channels,
            encoding,
            form,
            band: turns.then_some(band),
            gains: vec![Complex::ZERO],
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
            Delay { total_s: size * random.gaussian(), residual_s: 1e-7 * random.gaussian() }
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

    pub(crate) fn channels(&self) -> usize {
        self.options.coarse_channels * self.options.channels
    }

    /// Returns random samples, with garbage before, between and after them.
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

    /// Index among the values (antenna, polarization, channel) of each stream (antenna, channel, polarization).
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
    pub(crate) fn exact(
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

    /// Output of calls of at most `most` times, with the layout, and counts of clipped samples.
    pub(crate) fn run(&self, device: &Device, most: usize) -> (Vec<u8>, Natural, Vec<u64>) {
        let times = self.at.times;
        let input_stride = self.options.encoding.bytes(times).next_multiple_of(16) + 32;
        let to =
            Natural { first_byte: 48, channel_stride: INPUTS * input_stride + 16, input_stride };
        let bytes = vec![DIRT; to.first_byte + self.channels() * to.channel_stride + 64];
        let mut output = device.upload(&bytes).unwrap();
        let samples = device.upload(&self.samples).unwrap();
        let pairs = self.delays.iter().flatten().flat_map(|own| [own.total_s, own.residual_s]);
        let seconds = device.upload(&pairs.collect::<Vec<f64>>()).unwrap();
        let stream = device.stream().unwrap();
        let mut corrector = corrector(device, self.options.clone());
        if self.options.form != Form::Recorded {
            let gains = self.gains.iter().map(Vec::as_slice).enumerate();
            corrector.set_gains(gains).unwrap();
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
            corrector.enqueue(&samples, from, Some(delays), &mut output, to, &stream).unwrap();
        }
        stream.synchronize().unwrap();
        let mut bytes = bytes;
        output.download(0, &mut bytes).unwrap();
        (bytes, to, corrector.saturated().unwrap())
    }
}

/// The stage on a device.
pub(crate) fn corrector(device: &Device, options: Options) -> DelayCorrector {
    let backend = Backend::Cuda(device.clone(), Threads::new(1));
    DelayCorrector::new(Plan::new(options).unwrap(), &backend).unwrap()
}

pub(crate) fn complex(random: &mut Random, scale: f64) -> Complex<f32> {
    Complex::new((scale * random.gaussian()) as f32, (scale * random.gaussian()) as f32)
}

pub(crate) fn wide(value: Complex<f32>) -> Complex64 {
    Complex64::new(f64::from(value.re), f64::from(value.im))
}
