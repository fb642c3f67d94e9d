//! Spectra to correlate, packed by hand, with garbage in unused elements.
#![allow(dead_code, unreachable_pub, missing_docs)]

use std::ops::Range;

use num_complex::Complex;
use sidereal::correlate::{Block, Options, Plan};
use sidereal::voltage::VoltageEncoding;

use super::random::Random;

pub type Complex64 = Complex<f64>;

/// Inputs of a panel, as the packed order's table has them.
const LANES: usize = 16;

pub fn plan(
    antennas: usize,
    polarizations: usize,
    channels: usize,
    encoding: VoltageEncoding,
) -> Plan {
    Plan::new(Options { antennas, polarizations, channels, encoding }).unwrap()
}

/// Selection of missing samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// None, without a mask.
    Nothing,
    Everything,
    /// One in some twenty.
    Some,
    /// Every other one.
    Half,
    /// Some antennas completely, in some channels only.
    Antennas,
    /// All samples after some time, or before it.
    Tails,
}

pub const MISSING: [Missing; 6] = [
    Missing::Nothing,
    Missing::Everything,
    Missing::Some,
    Missing::Half,
    Missing::Antennas,
    Missing::Tails,
];

/// The kind of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Values {
    /// All values of the encoding; Gaussian floats of one scale per input.
    Any,
    /// The most extreme ones only.
    Extremes,
    /// Floats that are small integers, whose sums are exact in any order.
    Integers,
}

/// One value and one mask bit for every channel, input and time.
#[derive(Clone, Debug)]
pub struct Recording {
    pub plan: Plan,
    pub times: usize,
    /// Axes channel, input, time.
    pub values: Vec<Complex64>,
    /// Axes channel, antenna, time.
    pub valid: Vec<bool>,
}

impl Recording {
    /// All samples zero and valid.
    pub fn new(plan: &Plan, times: usize) -> Self {
        let values = vec![Complex64::ZERO; plan.channels() * plan.inputs() * times];
        let valid = vec![true; plan.channels() * plan.antennas() * times];
        Self { plan: plan.clone(), times, values, valid }
    }

    pub fn random(
        random: &mut Random,
        plan: &Plan,
        times: usize,
        values: Values,
        missing: Missing,
    ) -> Self {
        let mut recording = Self::new(plan, times);
        for row in 0..plan.channels() * plan.inputs() {
            let mut draw = drawer(random, plan.encoding(), values);
            let own = &mut recording.values[row * times..(row + 1) * times];
            own.iter_mut().for_each(|value| *value = draw(random));
        }
        recording.lose(random, missing);
        recording
    }

    /// Marks samples as missing.
    pub fn lose(&mut self, random: &mut Random, missing: Missing) {
        let times = self.times;
        for antenna in self.valid.chunks_exact_mut(times.max(1)) {
            let (dead, edge) = (random.below(3) == 0, random.below(times + 1));
            let front = random.below(2) == 0;
            for (time, valid) in antenna.iter_mut().enumerate() {
                *valid = match missing {
                    Missing::Nothing => true,
                    Missing::Everything => false,
                    Missing::Some => random.below(20) > 0,
                    Missing::Half => random.below(2) > 0,
                    Missing::Antennas => !dead,
                    Missing::Tails => (time < edge) == front,
                };
            }
        }
    }

    pub fn value(&self, channel: usize, input: usize, time: usize) -> Complex64 {
        self.values[(channel * self.plan.inputs() + input) * self.times + time]
    }

    pub fn set(&mut self, channel: usize, input: usize, time: usize, value: Complex64) {
        self.values[(channel * self.plan.inputs() + input) * self.times + time] = value;
    }

    pub fn is_valid(&self, channel: usize, antenna: usize, time: usize) -> bool {
        self.valid[(channel * self.plan.antennas() + antenna) * self.times + time]
    }

    pub fn mark(&mut self, channel: usize, antenna: usize, time: usize, valid: bool) {
        let at = (channel * self.plan.antennas() + antenna) * self.times + time;
        self.valid[at] = valid;
    }

    /// Spectra in the packed order, as its table says, at an odd address.
    ///
    /// Unused inputs, the second time of an odd last pair, invalid samples and mask bits beyond the last time hold
    /// garbage: NaN for floats.
    pub fn pack(&self, times: Range<usize>, random: &mut Random) -> Packed {
        let (plan, count) = (&self.plan, times.len());
        let float = plan.encoding() == VoltageEncoding::ComplexF32;
        let groups = if float { count } else { count.div_ceil(2) };
        let size = match plan.encoding() {
            VoltageEncoding::Complex4 => groups * LANES * 2,
            VoltageEncoding::Complex8 => groups * LANES * 4,
            _ => groups * LANES * 8,
        };
        let length = plan.channels() * plan.inputs().div_ceil(LANES) * size;
        let offset = if float { 4 * random.below(16) } else { random.below(64) };
        let mut packed = Packed::rubbish(random, float, offset, length, count);
        let bytes = &mut packed.bytes_mut()[offset..offset + length];
        for channel in 0..plan.channels() {
            for input in 0..plan.inputs() {
                let panel = channel * plan.inputs().div_ceil(LANES) + input / LANES;
                let (panel, lane) = (&mut bytes[panel * size..][..size], input % LANES);
                for (time, source) in times.clone().enumerate() {
                    if self.is_valid(channel, input / plan.polarizations(), source) {
                        put(panel, plan.encoding(), lane, time, self.value(channel, input, source));
                    }
                }
            }
        }
        self.mask(times, random, &mut packed);
        packed
    }

    /// A mask; sometimes none, if no sample is masked.
    fn mask(&self, times: Range<usize>, random: &mut Random, packed: &mut Packed) {
        let rows = self.valid.chunks_exact(self.times.max(1));
        let own = |row: &[bool]| row.iter().skip(times.start).take(times.len()).all(|valid| *valid);
        if rows.clone().all(own) && random.below(2) == 0 {
            return;
        }
        let words = times.len().div_ceil(64);
        let row = |row: &[bool]| -> Vec<u64> {
            let mut mask: Vec<u64> = (0..words).map(|_| random.bits()).collect();
            for (time, valid) in row[times.clone()].iter().enumerate() {
                let bit = 1 << (time % 64);
                mask[time / 64] =
                    if *valid { mask[time / 64] | bit } else { mask[time / 64] & !bit };
            }
            mask
        };
        packed.mask = Some(rows.flat_map(row).collect());
    }
}

/// Draws one input's values.
fn drawer(
    random: &mut Random,
    encoding: VoltageEncoding,
    values: Values,
) -> Box<dyn FnMut(&mut Random) -> Complex64> {
    let most = if encoding == VoltageEncoding::Complex4 { 7.0 } else { 127.0 };
    let extreme = move |random: &mut Random| [-most - 1.0, -most - 1.0, most][random.below(3)];
    let any = move |random: &mut Random| random.below(2 * most as usize + 2) as f64 - most - 1.0;
    let constant = Complex64::new(extreme(random), extreme(random));
    match (values, encoding) {
        (Values::Extremes, VoltageEncoding::ComplexF32) | (Values::Integers, _) => {
            Box::new(move |random| Complex64::new(any(random).max(-127.0), any(random).max(-127.0)))
        }
        (Values::Any, VoltageEncoding::ComplexF32) => {
            let scale = 10f64.powi(random.below(9) as i32 - 4);
            let part = move |random: &mut Random| f64::from((scale * random.gaussian()) as f32);
            Box::new(move |random| Complex64::new(part(random), part(random)))
        }
        (Values::Extremes, _) if random.below(2) == 0 => Box::new(move |_| constant),
        (Values::Extremes, _) => {
            Box::new(move |random| Complex64::new(extreme(random), extreme(random)))
        }
        (Values::Any, _) => Box::new(move |random| Complex64::new(any(random), any(random))),
    }
}

/// Writes one sample into its panel.
fn put(panel: &mut [u8], encoding: VoltageEncoding, lane: usize, time: usize, value: Complex64) {
    let at = (time / 2 * LANES + lane) * 2 + time % 2;
    match encoding {
        VoltageEncoding::Complex4 => {
            panel[at] = (value.re as i8 as u8) << 4 | (value.im as i8 as u8) & 15;
        }
        VoltageEncoding::Complex8 => {
            panel[2 * at..2 * at + 2]
                .copy_from_slice(&[value.re as i8 as u8, value.im as i8 as u8]);
        }
        _ => {
            for (part, number) in [value.re, value.im].into_iter().enumerate() {
                let at = ((2 * time + part) * LANES + lane) * 4;
                panel[at..at + 4].copy_from_slice(&(number as f32).to_le_bytes());
            }
        }
    }
}

/// Packed spectra and their mask.
#[derive(Clone, Debug)]
pub struct Packed {
    storage: Vec<[u64; 8]>,
    offset: usize,
    length: usize,
    times: usize,
    pub mask: Option<Vec<u64>>,
}

impl Packed {
    fn rubbish(
        random: &mut Random,
        float: bool,
        offset: usize,
        length: usize,
        times: usize,
    ) -> Self {
        let mut word = || {
            let number = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX][random.below(4)];
            let twice = u64::from(number.to_bits()) << 32 | u64::from(number.to_bits());
            if float { twice } else { random.bits() }
        };
        let storage =
            (0..(offset + length) / 64 + 1).map(|_| [0; 8].map(|_: u64| word())).collect();
        Self { storage, offset, length, times, mask: None }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        bytemuck::cast_slice_mut(&mut self.storage)
    }

    pub fn block(&self, plan: &Plan) -> Block<'_> {
        let bytes: &[u8] = bytemuck::cast_slice(&self.storage);
        let bytes = &bytes[self.offset..self.offset + self.length];
        Block::new(plan, bytes, self.times, self.mask.as_deref()).unwrap()
    }
}
