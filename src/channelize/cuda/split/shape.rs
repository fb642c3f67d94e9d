//! Geometry of the two kernels of a long transform: compile-time constants, resource use and tables.
//!
//! Invariant: but for `radix` and the sides, which follow from the length alone, the shape decides about speed
//! only; every shape of a plan gives the same bits.

use std::f64::consts::TAU;

use super::super::shape::{MOST_HELD, encoding, order, twiddle_words};
use crate::backend::cuda::tune::Choice;
use crate::backend::cuda::{Properties, Source};
use crate::channelize::plan::{Form, Plan};

/// Sums of two columns per thread, counted over radix and spectra: 64 registers.
const SUMS: usize = 16;

/// Values that a block of the second kernel transforms if it takes three steps.
const LONG_VALUES: usize = 1 << 14;

/// Bytes of shared memory reserved per block.
const RESERVED_BYTES: usize = 1024;

/// Sizes of both kernels, named as their constants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) struct Shape {
    pub(super) points: usize,
    /// Values of c1 that a thread of the first kernel transforms in registers.
    pub(super) radix: usize,
    /// Length of the first kernel's second transform.
    pub(super) side: usize,
    /// Lengths of the second kernel's transforms: two equal ones and 1, or three of which the last is 16.
    pub(super) sides: [usize; 3],
    /// Columns per block.
    pub(super) group: usize,
    pub(super) taps: usize,
    /// Spectra per batch.
    pub(super) batch: usize,
    /// Resident blocks per multiprocessor.
    pub(super) resident: usize,
    /// Rows of samples prefetched by asynchronous copies.
    pub(super) prefetched: usize,
    /// Rows in flight from global memory to registers.
    pub(super) ahead: usize,
    pub(super) holds_taps: bool,
    pub(super) conversion: usize,
    pub(super) encoding: usize,
    pub(super) sample_bytes: usize,
    /// Lines per block of the second kernel.
    pub(super) lines: usize,
    /// MiB of intermediate values per pass.
    pub(super) pass_mib: usize,
    /// XOR mask that maps a frequency to its index in the output.
    pub(super) order: usize,
}

impl Shape {
    /// Returns the shapes worth measuring for a plan, the model's choice first; empty if the plan has no such
    /// kernels.
    pub(in super::super) fn candidates(plan: &Plan, properties: &Properties) -> Vec<Self> {
        let mut found: Vec<Self> = Vec::new();
        for shape in Self::of_plan(plan).iter().flat_map(Self::others) {
            if let Some(shape) = shape.fitting(properties.shared_bytes)
                && !found.contains(&shape)
            {
                found.push(shape);
            }
        }
        found
    }

    fn of_plan(plan: &Plan) -> Option<Self> {
        let (points, taps) = (plan.points(), plan.taps());
        let (encoding, sample_bytes) = encoding(plan.input().encoding)?;
        let (radix, sides) = geometry(points, taps, sample_bytes)?;
        if plan.hop() != points || plan.options().form == Form::Filtered {
            return None;
        }
        let is_plain = plan.options().form == Form::Spectra;
        let line: usize = sides.iter().product();
        let shape = Self {
            points,
            radix,
            side: 32,
            sides,
            group: 32,
            taps,
            batch: SUMS / radix,
            resident: 1,
            prefetched: 0,
            ahead: if sample_bytes == 8 { 2 } else { 4 },
            holds_taps: taps * radix <= MOST_HELD,
            conversion: usize::from(sample_bytes == 2),
            encoding,
            sample_bytes,
            lines: if sides[2] == 1 { 8 } else { LONG_VALUES / line },
            pass_mib: 512,
            // Other forms reorder the channels themselves.
            order: if is_plain { order(plan.options().order, points) } else { 0 },
        };
        Some(shape.relieved())
    }

    /// Returns whether sums, taps and samples leave no registers for addresses of prefetched samples; determined by
    /// experiment.
    fn is_tight(&self) -> bool {
        match (self.radix, self.sample_bytes) {
            (1, 8) => (9..48).contains(&self.taps),
            (1, _) => (MOST_HELD + 1..48).contains(&self.taps),
            (2, 4 | 8) => self.taps <= MOST_HELD,
            _ => false,
        }
    }

    /// Returns the shape with smaller blocks if a thread needs more registers than 512 threads allow.
    fn relieved(self) -> Self {
        let Self { radix, taps, sample_bytes, .. } = self;
        let is_ring = taps > MOST_HELD;
        let is_full = radix > 1 && (is_ring || sample_bytes == 8 && taps > 8);
        match is_full {
            true => {
                Self { group: if sample_bytes == 1 { 16 } else { 8 }, ..self }.of_fewer_threads()
            }
            false if sample_bytes == 8 && taps <= MOST_HELD => self.of_group(16),
            false => self,
        }
    }

    /// Limits the number of resident threads, so that each thread has more registers.
    fn of_fewer_threads(self) -> Self {
        Self { resident: 24 / self.group, ..self }
    }

    /// Returns the shape with `group` columns per block and the same number of resident threads.
    fn of_group(self, group: usize) -> Self {
        Self { group, resident: 32 / group, ..self }
    }

    /// Returns this shape and variants that differ in one parameter.
    fn others(&self) -> Vec<Self> {
        let own = *self;
        let mut others = vec![own];
        others.extend([16, 32].map(|group| own.of_group(group)));
        others.push(Self { group: 8, ..own }.of_fewer_threads());
        others.extend([32, 256, 1024].map(|pass_mib| Self { pass_mib, ..own }));
        others.push(Self { ahead: 12 - own.ahead.max(4), ..own });
        if own.sides[2] == 1 {
            others.extend([4, 16].map(|lines| Self { lines, ..own }));
        }
        others
    }

    /// Fits the number of resident blocks and prefetched rows to shared memory.
    fn fitting(mut self, shared_bytes: usize) -> Option<Self> {
        self.prefetched = 0;
        // Asynchronous copies move 16 bytes.
        if self.group * self.sample_bytes < 16 {
            return None;
        }
        let room = |resident: usize| {
            ((shared_bytes + RESERVED_BYTES) / resident).saturating_sub(RESERVED_BYTES)
        };
        while self.sums_bytes() > room(self.resident) {
            self.resident = self.resident.checked_sub(1).filter(|resident| *resident > 0)?;
        }
        if self.lines_bytes() > shared_bytes {
            return None;
        }
        let wanted = match self.taps {
            _ if self.is_tight() => 0,
            0..=MOST_HELD => self.taps + self.batch - 1,
            _ => self.ahead.min(self.batch),
        };
        let row = self.first() * self.group * self.sample_bytes;
        self.prefetched = wanted.min((room(self.resident) - self.sums_bytes()) / row);
        Some(self)
    }

    /// Returns the number of values of k1.
    pub(super) fn first(&self) -> usize {
        self.radix * self.side
    }

    pub(super) fn line(&self) -> usize {
        self.sides.iter().product()
    }

    pub(super) fn sums_threads(&self) -> usize {
        self.side * self.group / 2
    }

    pub(super) fn lines_threads(&self) -> usize {
        if self.sides[2] == 1 { self.lines * self.sides[0] } else { LONG_VALUES / self.sides[2] }
    }

    /// Returns the bytes of shared memory per block of the first kernel for full batches.
    pub(super) fn sums_bytes(&self) -> usize {
        self.rows_bytes(self.batch)
            + self.prefetched * self.first() * self.group * self.sample_bytes
    }

    /// Returns the bytes of shared memory per block of the first kernel for one spectrum at a time.
    pub(super) fn sums_bytes_of_one(&self) -> usize {
        self.rows_bytes(1)
    }

    /// Returns the bytes of the rows of values and of the twiddle factors.
    fn rows_bytes(&self, batch: usize) -> usize {
        let factors = if self.radix > 1 { 4 * self.first() } else { 0 };
        8 * (batch + 1) * self.first() * self.group + factors
    }

    /// Returns the bytes of shared memory per block of the second kernel.
    pub(super) fn lines_bytes(&self) -> usize {
        let [one, two, three] = self.sides;
        let line = if three == 1 { one * (two + 1) } else { one * two * (three + 1) };
        8 * self.lines * (line + if self.lines >= 16 { 1 } else { 16 / self.lines })
    }

    /// Returns W^(c2 k1), the twiddle factors between the kernels; axes: group, k1, c2 in the group.
    pub(super) fn twiddles(&self) -> Vec<f32> {
        let mut values = Vec::with_capacity(2 * self.points);
        for group in 0..self.line() / self.group {
            for k1 in 0..self.first() {
                for c2 in group * self.group..(group + 1) * self.group {
                    let (sine, cosine) = (-TAU * (c2 * k1) as f64 / self.points as f64).sin_cos();
                    values.extend([cosine as f32, sine as f32]);
                }
            }
        }
        values
    }

    /// Returns the twiddle factors of the first kernel's second transform; axes: output index of the first transform,
    /// word.
    pub(super) fn row_factors(&self) -> Vec<f32> {
        let phase = |k: usize| k as f64 / self.first() as f64;
        (0..self.radix).flat_map(|k| twiddle_words(self.side, phase(k)).flatten()).collect()
    }

    /// Returns the twiddle factors of the second kernel's transforms after the first; axes: word, partial frequency
    /// index.
    pub(super) fn line_factors(&self) -> [Vec<f32>; 2] {
        let [one, two, three] = self.sides;
        [
            table(two, one, one * two),
            if three == 1 { Vec::new() } else { table(three, one * two, self.line()) },
        ]
    }

    /// Returns the key under which the tuner caches its choice.
    pub(super) fn tuning_key(&self) -> String {
        let Self { points, taps, encoding, .. } = self;
        format!("points={points} taps={taps} encoding={encoding}")
    }

    /// Returns the shape as a tuning candidate.
    pub(super) fn choice(&self) -> Choice {
        let Self { group, resident, prefetched, ahead, lines, pass_mib, .. } = *self;
        let name = format!(
            "{resident} x {group} columns, rows {prefetched} and {ahead} ahead, {lines} lines, \
             passes of {pass_mib} MiB"
        );
        let values = [group, resident, prefetched, ahead, lines, pass_mib];
        Choice { name, values: values.map(|value| value as u32).to_vec() }
    }

    /// Returns the first kernel's source and constants.
    pub(in super::super) fn sums_source(&self) -> Source {
        let constants = [
            ("POINTS", self.points),
            ("RADIX", self.radix),
            ("SIDE", self.side),
            ("GROUP", self.group),
            ("THREADS", self.sums_threads()),
            ("RESIDENT", self.resident),
            ("TAPS", self.taps),
            ("BATCH", self.batch),
            ("PREFETCHED", self.prefetched),
            ("AHEAD", self.ahead),
            ("HOLDS_TAPS", usize::from(self.holds_taps)),
            ("PRODUCT_ORDER", 2),
            ("ENCODING", self.encoding),
            ("CONVERSION", self.conversion),
        ];
        Source {
            name: "split_sums.cu",
            text: include_str!("../split_sums.cu"),
            includes: &[
                ("decode.cuh", include_str!("../decode.cuh")),
                ("fft.cuh", include_str!("../fft.cuh")),
                ("fir.cuh", include_str!("../fir.cuh")),
            ],
            defines: constants.map(|(name, value)| (name, value.to_string())).to_vec(),
        }
    }

    /// Returns the second kernel's source and constants.
    pub(in super::super) fn lines_source(&self) -> Source {
        let [one, two, three] = self.sides;
        let common = [
            ("POINTS", self.points),
            ("LINES", self.lines),
            ("ORDER", self.order),
            ("RESIDENT", (512 / self.lines_threads()).max(1)),
        ];
        let own = match three {
            1 => vec![("SIDE", one)],
            _ => vec![
                ("SIDE_1", one),
                ("SIDE_2", two),
                ("SIDE_3", three),
                ("THREADS", self.lines_threads()),
            ],
        };
        let (name, text) = match three {
            1 => ("split_lines.cu", include_str!("../split_lines.cu")),
            _ => ("split_long.cu", include_str!("../split_long.cu")),
        };
        let defines = common.into_iter().chain(own);
        Source {
            name,
            text,
            includes: &[("fft.cuh", include_str!("../fft.cuh"))],
            defines: defines.map(|(name, value)| (name, value.to_string())).collect(),
        }
    }
}

/// Returns the first kernel's radix and the second kernel's sides.
fn geometry(points: usize, taps: usize, sample_bytes: usize) -> Option<(usize, [usize; 3])> {
    match points {
        32_768 => Some((1, [32, 32, 1])),
        // With wide samples, two values of c1 per thread exceed the registers.
        65_536 if sample_bytes > 2 => Some((1, [8, 16, 16])),
        65_536 => Some((2, [32, 32, 1])),
        131_072 => Some((1, [16, 16, 16])),
        262_144 => Some((2, [16, 16, 16])),
        // Four values of c1 per thread exceed the registers unless taps are few and samples narrow.
        524_288 if sample_bytes > 2 || taps > 8 => None,
        524_288 => Some((4, [16, 16, 16])),
        _ => None,
    }
}

/// Returns words of twiddle factors of `side`-point transforms with phase step `k / of`; axes: word, k.
fn table(side: usize, count: usize, of: usize) -> Vec<f32> {
    let words: Vec<Vec<[f32; 4]>> =
        (0..count).map(|k| twiddle_words(side, k as f64 / of as f64).collect()).collect();
    (0..side / 4).flat_map(|word| words.iter().flat_map(move |line| line[word])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::channelize::plan::Options;
    use crate::voltage::VoltageEncoding;

    fn shape(channels: usize) -> Shape {
        let plan = Plan::new(Options::new(channels, 8, VoltageEncoding::Complex8)).unwrap();
        Shape::of_plan(&plan).unwrap().fitting(232_448).unwrap()
    }

    #[test]
    fn a_block_uses_the_memory_that_there_is() {
        let found = shape(32768);
        assert_eq!((found.resident, found.batch, found.prefetched), (1, 16, 23));
        assert_eq!(found.sums_bytes(), 8 * 17 * 1024 + 23 * 2048);
        assert_eq!((shape(131_072).lines, shape(131_072).lines_threads()), (4, 1024));
    }

    #[test]
    fn factors_are_on_the_circle_in_the_kernels_order() {
        let found = shape(65536);
        let (twiddles, [factors, none]) = (found.twiddles(), found.line_factors());
        assert_eq!((twiddles.len(), factors.len(), none.len()), (2 * 65536, 1024, 0));
        let angle =
            |values: &[f32], at: usize| f64::from(values[at + 1]).atan2(f64::from(values[at]));
        // Group 1 of 32, k1 = 3, c2 = 37.
        let at = 2 * (64 * 32 + 3 * 32 + 5);
        assert!((angle(&twiddles, at) + TAU * 111.0 / 65536.0).abs() < 1e-6);
        // The first word of k3 = 3: w^16 and w^8, w = exp(-2 pi i 3 / 1024).
        assert!((angle(&factors, 12) + TAU * 48.0 / 1024.0).abs() < 1e-6);
        assert!((angle(&factors, 14) + TAU * 24.0 / 1024.0).abs() < 1e-6);
        let [second, third] = shape(131_072).line_factors();
        assert_eq!((second.len(), third.len()), (16 * 16, 16 * 256));
    }
}
