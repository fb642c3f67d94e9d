//! Test voltages, a filter bank run in pieces, and the filter bank's equation in f64.
#![allow(dead_code, unreachable_pub, missing_docs)]

use std::f64::consts::TAU;

use num_complex::Complex;
use sidereal::backend::Backend;
use sidereal::channelize::{Channelizer, Form, Output, Plan};
use sidereal::view::Progress;
use sidereal::voltage::{VoltageEncoding, Voltages};

use super::random::Random;

pub type Complex64 = Complex<f64>;

/// Value of outputs before a call, and of the guard elements after them at all times.
const GUARD: u8 = 0xa5;

/// Bytes of many streams, rows further apart than they are long, at an odd address.
#[derive(Clone, Debug)]
pub struct Recording {
    bytes: Vec<u8>,
    encoding: VoltageEncoding,
    streams: usize,
    stride: usize,
    times: usize,
}

impl Recording {
    /// Random voltages; some streams hold only the most extreme values.
    pub fn random(
        random: &mut Random,
        encoding: VoltageEncoding,
        streams: usize,
        times: usize,
    ) -> Self {
        let rows: Vec<_> = (0..streams).map(|_| row(random, encoding, times)).collect();
        Self::from_rows(&rows, encoding, times)
    }

    /// Given rows of bytes.
    pub fn from_rows(rows: &[Vec<u8>], encoding: VoltageEncoding, times: usize) -> Self {
        let stride = rows[0].len() + 3;
        let mut bytes = vec![0x77];
        for row in rows {
            bytes.extend(row);
            bytes.extend([0x77; 3]);
        }
        Self { bytes, encoding, streams: rows.len(), stride, times }
    }

    /// Complex floats.
    pub fn complex(rows: &[Vec<Complex64>]) -> Self {
        let number = |x: f64| (x as f32).to_le_bytes();
        let bytes = |row: &Vec<Complex64>| -> Vec<u8> {
            row.iter().flat_map(|z| [number(z.re), number(z.im)]).flatten().collect()
        };
        let rows_of_bytes: Vec<_> = rows.iter().map(bytes).collect();
        Self::from_rows(&rows_of_bytes, VoltageEncoding::ComplexF32, rows[0].len())
    }

    /// Real floats.
    pub fn real(rows: &[Vec<f64>]) -> Self {
        let bytes = |row: &Vec<f64>| row.iter().flat_map(|x| (*x as f32).to_le_bytes()).collect();
        let rows_of_bytes: Vec<Vec<u8>> = rows.iter().map(bytes).collect();
        Self::from_rows(&rows_of_bytes, VoltageEncoding::RealF32, rows[0].len())
    }

    pub fn voltages(&self) -> Voltages<'_> {
        let Self { encoding, streams, stride, times, .. } = *self;
        Voltages::new(&self.bytes[1..], encoding, streams, stride, times).unwrap()
    }

    /// Stores a float as a sample (its real part).
    pub fn spoil(&mut self, stream: usize, time: usize, value: f32) {
        let at = 1 + stream * self.stride + self.encoding.bytes(time);
        self.bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
    }

    pub fn times(&self) -> usize {
        self.times
    }
}

fn row(random: &mut Random, encoding: VoltageEncoding, times: usize) -> Vec<u8> {
    let bytes = encoding.bytes(times);
    if matches!(encoding, VoltageEncoding::ComplexF32 | VoltageEncoding::RealF32) {
        let scale = 10f64.powi(random.below(9) as i32 - 4);
        let float = |_| ((scale * random.gaussian()) as f32).to_le_bytes();
        return (0..bytes / 4).flat_map(float).collect();
    }
    match random.below(4) {
        // Voltages of -128, -32640, -8 or the like throughout.
        0 => vec![[0x80, 0x88, 0x00, 0x7f][random.below(4)]; bytes],
        1 => (0..bytes).map(|_| [0x80, 0x7f, 0x88, 0x77, 0x00, 0xff][random.below(6)]).collect(),
        _ => (0..bytes).map(|_| random.bits() as u8).collect(),
    }
}

/// All rows of a stream, and the counts of clipped samples.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    pub bytes: Vec<u8>,
    pub saturated: Vec<u64>,
}

impl Run {
    pub fn complex(&self) -> Vec<Complex64> {
        let floats = self.floats();
        floats.chunks_exact(2).map(|z| Complex64::new(z[0], z[1])).collect()
    }

    pub fn floats(&self) -> Vec<f64> {
        let float = |bytes: &[u8]| f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        self.bytes.chunks_exact(4).map(|bytes| f64::from(float(bytes))).collect()
    }

    /// Complex integers of 8 or 4 bits.
    pub fn integers(&self, bits: usize) -> Vec<(i8, i8)> {
        if bits == 8 {
            return self.bytes.chunks_exact(2).map(|z| (z[0] as i8, z[1] as i8)).collect();
        }
        let low = |byte: u8| ((byte << 4) as i8) >> 4;
        self.bytes.iter().map(|byte| ((*byte as i8) >> 4, low(*byte))).collect()
    }
}

/// One block, one call.
pub fn whole(plan: &Plan, backend: &Backend, recording: &Recording) -> Run {
    let mut channelizer = Channelizer::new(plan.clone(), backend).unwrap();
    let mut bytes = Vec::new();
    let room = plan.max_rows(recording.times);
    let done = step(&mut channelizer, recording.voltages(), room, 0, &mut bytes);
    assert_eq!(done.consumed, recording.times, "room for all, but not all was taken");
    Run { bytes, saturated: channelizer.saturated() }
}

/// Random gulps into outputs of random capacity, on a channelizer that has processed another stream before.
pub fn split(plan: &Plan, backend: &Backend, recording: &Recording, random: &mut Random) -> Run {
    let mut channelizer = Channelizer::new(plan.clone(), backend).unwrap();
    let voltages = recording.voltages();
    if random.below(3) == 0 {
        let unit = recording.encoding.group_samples();
        let part = random.below(recording.times) / unit * unit;
        let part = voltages.slice(0, part).unwrap();
        step(&mut channelizer, part, plan.max_rows(part.times()), 0, &mut Vec::new());
        channelizer.reset();
    }
    let bytes = pieces(&mut channelizer, voltages, random);
    Run { bytes, saturated: channelizer.saturated() }
}

/// The rows of a stream read in random pieces.
fn pieces(channelizer: &mut Channelizer, voltages: Voltages<'_>, random: &mut Random) -> Vec<u8> {
    let plan = channelizer.plan().clone();
    let unit = voltages.encoding().group_samples();
    let largest = [unit, plan.hop(), 3 * plan.span(), voltages.times()][random.below(4)];
    // Long streams are not read one sample at a time, which would take for ever.
    let largest = largest.max(voltages.times() / 300);
    let (mut bytes, mut taken) = (Vec::new(), 0);
    while taken < voltages.times() {
        let left = voltages.times() - taken;
        let gulp = (1 + random.below(largest)).next_multiple_of(unit).min(left);
        // A capacity below the rows of one byte might make no progress.
        let (least, most) = (plan.max_rows(unit), plan.max_rows(gulp));
        let room = if random.below(2) == 0 { most } else { least + random.below(most + 3) };
        let offered = voltages.slice(taken, gulp).unwrap();
        let spare = random.below(plan.row_elements());
        let done = step(channelizer, offered, room, spare, &mut bytes);
        assert!(done.consumed > 0, "no progress");
        if room >= most {
            assert_eq!(done.consumed, gulp, "room for all, but not all was taken");
        }
        taken += done.consumed;
        let rows = (bytes.len() / plan.element_bytes() / plan.row_elements()) as u64;
        assert_eq!(rows, plan.rows(taken as u64), "rows after {taken} samples");
    }
    bytes
}

/// Calls once with a dirty output between guards; appends the output to `bytes`.
pub fn step(
    channelizer: &mut Channelizer,
    input: Voltages<'_>,
    room: usize,
    spare: usize,
    bytes: &mut Vec<u8>,
) -> Progress {
    let plan = channelizer.plan().clone();
    let element = plan.element_bytes();
    let row = plan.row_elements() * element;
    let (front, length) = (3 * element, room * row + spare * element);
    let mut words = vec![u64::from_ne_bytes([GUARD; 8]); (front + length) / 8 + 9];
    let buffer: &mut [u8] = bytemuck::cast_slice_mut(&mut words);
    let place = &mut buffer[front..front + length];
    let output = match plan.options().form {
        Form::Spectra | Form::Filtered => Output::Complex(bytemuck::cast_slice_mut(place)),
        Form::Detected(_) => Output::F32(bytemuck::cast_slice_mut(place)),
        Form::Requantized { .. } => Output::Bytes(place),
    };
    let done = channelizer.run(input, output).unwrap();
    assert!(done.produced <= room && done.consumed <= input.times());
    let end = front + done.produced * row;
    let untouched = buffer[..front].iter().chain(&buffer[end..]).all(|byte| *byte == GUARD);
    assert!(untouched, "written outside of the rows produced");
    bytes.extend(&buffer[front..end]);
    done
}

/// The equation, a spectrum of one stream at a time.
pub struct Truth<'a> {
    plan: &'a Plan,
    samples: Vec<Vec<Complex64>>,
    phases: Vec<Complex64>,
}

/// The windowed sums of one spectrum, and bounds of their rounding errors in single precision.
pub struct Sums {
    pub y: Vec<Complex64>,
    /// The same sums of magnitudes.
    pub magnitudes: Vec<f64>,
    /// The largest sample under the window.
    pub largest: f64,
}

impl<'a> Truth<'a> {
    pub fn new(plan: &'a Plan, recording: &Recording) -> Self {
        let voltages = recording.voltages();
        let scale = plan.input().scale;
        let stream = |stream| -> Vec<Complex64> {
            (0..recording.times).map(|time| voltages.value(stream, time) * scale).collect()
        };
        let points = plan.points();
        let phase = |n: usize| Complex64::cis(-TAU * n as f64 / points as f64);
        Self {
            plan,
            samples: (0..voltages.streams()).map(stream).collect(),
            phases: (0..points).map(phase).collect(),
        }
    }

    pub fn sums(&self, stream: usize, spectrum: usize) -> Sums {
        let points = self.plan.points();
        let start = spectrum * self.plan.hop();
        let x = &self.samples[stream][start..start + self.plan.span()];
        let mut y = vec![Complex64::ZERO; points];
        let mut magnitudes = vec![0.0; points];
        let mut largest = 0.0f64;
        for (n, (x, b)) in x.iter().zip(self.plan.coefficients()).enumerate() {
            y[(start + n) % points] += x * b;
            let magnitude = x.norm_sqr().sqrt();
            magnitudes[(start + n) % points] += magnitude * b.abs();
            largest = largest.max(magnitude);
        }
        Sums { y, magnitudes, largest }
    }

    /// One bin of the Fourier transform of windowed sums.
    pub fn bin(&self, sums: &Sums, bin: usize) -> Complex64 {
        let (mut at, mut sum) = (0, Complex64::ZERO);
        for y in &sums.y {
            sum += y * self.phases[at];
            at += bin;
            if at >= self.phases.len() {
                at -= self.phases.len();
            }
        }
        sum
    }
}
