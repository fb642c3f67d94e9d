//! How a long transform is divided between two kernels, and what they are compiled with.
//!
//! Invariant: but for `radix` and the sides, which follow from the length alone, the shape decides about speed
//! only; every shape of a plan gives the same bits.

use std::f64::consts::TAU;

use super::super::shape::{MOST_HELD, encoding, order, turns};
use crate::backend::cuda::tune::Choice;
use crate::backend::cuda::{Properties, Source};
use crate::channelize::plan::{Form, Plan};

/// Sums of two columns and one spectrum that a thread makes at a time: 64 registers.
const SUMS: usize = 16;

/// Bytes of shared memory that each block costs besides its own.
const RESERVED_BYTES: usize = 1024;

/// Sizes of both kernels; the names are those of their constants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) struct Shape {
    pub(super) points: usize,
    /// Values of c1 that a thread of the first kernel transforms before it leaves them to others.
    pub(super) radix: usize,
    /// Points of the other transforms of the first kernel, and of both of the second one.
    pub(super) side: usize,
    pub(super) line_side: usize,
    /// Columns of a block.
    pub(super) group: usize,
    pub(super) taps: usize,
    /// Spectra of a batch.
    pub(super) batch: usize,
    /// Blocks of a multiprocessor.
    pub(super) resident: usize,
    /// Rows of samples that are copied in the background.
    pub(super) prefetched: usize,
    /// Rows on their way to registers.
    pub(super) ahead: usize,
    pub(super) holds_taps: bool,
    pub(super) conversion: usize,
    pub(super) encoding: usize,
    pub(super) sample_bytes: usize,
    /// Lines that a block of the second kernel transforms.
    pub(super) lines: usize,
    /// MiB of values between the kernels.
    pub(super) pass_mib: usize,
    /// Bits of a frequency that are turned to get its place.
    pub(super) order: usize,
}

impl Shape {
    /// Shapes of a plan that are worth trying, the model's own first; none where there is no such kernel.
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
        let (side, line_side) = (32, 32);
        let radix = points / (side * line_side * line_side);
        let fits = points.is_power_of_two() && (1..=SUMS).contains(&radix);
        if !fits || plan.hop() != points || plan.options().form == Form::Filtered {
            return None;
        }
        let is_plain = plan.options().form == Form::Spectra;
        Some(Self {
            points,
            radix,
            side,
            line_side,
            group: 16,
            taps,
            batch: SUMS / radix,
            resident: 2,
            prefetched: 0,
            ahead: if sample_bytes == 8 { 2 } else { 4 },
            holds_taps: taps * radix <= MOST_HELD,
            conversion: usize::from(sample_bytes == 2),
            encoding,
            sample_bytes,
            lines: 8,
            pass_mib: 32,
            // Other forms order the channels themselves.
            order: if is_plain { order(plan.options().order, points) } else { 0 },
        })
        .map(Self::relieved)
    }

    /// The same with fewer threads where sums, taps and samples take more registers than 512 threads leave.
    fn relieved(self) -> Self {
        let is_ring = self.taps > MOST_HELD;
        let is_full = self.radix > 1 && self.sample_bytes > 2 || self.radix > 2;
        match is_ring || is_full {
            true => Self { group: 8, resident: 3, ..self },
            false => self,
        }
    }

    /// Itself, and what differs in one thing.
    fn others(&self) -> Vec<Self> {
        let own = *self;
        let mut others = vec![own];
        others.extend([16, 64, 256].map(|pass_mib| Self { pass_mib, ..own }));
        others.push(Self { lines: 16, ..own });
        others.push(Self { lines: 4, ..own });
        others.push(Self { ahead: 12 - own.ahead.max(4), ..own });
        if own.group == 16 {
            others.push(Self { group: 8, resident: 4, ..own });
        }
        others
    }

    /// The same with as many rows of samples as shared memory has room for.
    fn fitting(mut self, shared_bytes: usize) -> Option<Self> {
        self.prefetched = 0;
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
            0..=MOST_HELD => self.taps + self.batch - 1,
            _ => self.ahead.min(self.batch),
        };
        let row = self.first() * self.group * self.sample_bytes;
        self.prefetched = wanted.min((room(self.resident) - self.sums_bytes()) / row);
        Some(self)
    }

    /// Values of k1.
    pub(super) fn first(&self) -> usize {
        self.radix * self.side
    }

    pub(super) fn line(&self) -> usize {
        self.line_side * self.line_side
    }

    pub(super) fn sums_threads(&self) -> usize {
        self.side * self.group / 2
    }

    pub(super) fn lines_threads(&self) -> usize {
        self.lines * self.line_side
    }

    /// Bytes of shared memory of a block of the first kernel that makes whole batches.
    pub(super) fn sums_bytes(&self) -> usize {
        self.rows_bytes(self.batch)
            + self.prefetched * self.first() * self.group * self.sample_bytes
    }

    /// The same for one spectrum at a time.
    pub(super) fn sums_bytes_of_one(&self) -> usize {
        self.rows_bytes(1)
    }

    /// Rows of values, and the factors.
    fn rows_bytes(&self, batch: usize) -> usize {
        let factors = if self.radix > 1 { 4 * self.first() } else { 0 };
        8 * (batch + 1) * self.first() * self.group + factors
    }

    /// Bytes of shared memory of a block of the second kernel.
    pub(super) fn lines_bytes(&self) -> usize {
        let pad = if self.lines >= 16 { 1 } else { 16 / self.lines };
        8 * self.lines * (self.line_side * (self.line_side + 1) + pad)
    }

    /// W^(c2 k1) of all points: axes group, k1, c2 of the group.
    pub(super) fn turns(&self) -> Vec<f32> {
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

    /// The factors of the first kernel's second transform: axes value of the first one, word.
    pub(super) fn row_factors(&self) -> Vec<f32> {
        let turn = |k: usize| k as f64 / self.first() as f64;
        (0..self.radix).flat_map(|k| turns(self.side, turn(k)).flatten()).collect()
    }

    /// The factors of the second kernel's second transform: axes word, k3.
    pub(super) fn line_factors(&self) -> Vec<f32> {
        let side = self.line_side;
        let words: Vec<Vec<[f32; 4]>> =
            (0..side).map(|k| turns(side, k as f64 / self.line() as f64).collect()).collect();
        (0..side / 4).flat_map(|word| words.iter().flat_map(move |line| line[word])).collect()
    }

    /// What the choice of a shape depends on.
    pub(super) fn question(&self) -> String {
        let Self { points, taps, encoding, .. } = self;
        format!("points={points} taps={taps} encoding={encoding}")
    }

    /// The shape as a choice among others of the same plan.
    pub(super) fn choice(&self) -> Choice {
        let Self { group, resident, prefetched, ahead, lines, pass_mib, .. } = *self;
        let name = format!(
            "{resident} x {group} columns, rows {prefetched} and {ahead} ahead, {lines} lines, \
             passes of {pass_mib} MiB"
        );
        let values = [group, resident, prefetched, ahead, lines, pass_mib];
        Choice { name, values: values.map(|value| value as u32).to_vec() }
    }

    /// The first kernel's source.
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
            ("TURN", 2),
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

    /// The second kernel's source.
    pub(in super::super) fn lines_source(&self) -> Source {
        let constants = [
            ("POINTS", self.points),
            ("SIDE", self.line_side),
            ("LINES", self.lines),
            ("RESIDENT", (512 / self.lines_threads()).max(1)),
            ("ORDER", self.order),
        ];
        Source {
            name: "split_lines.cu",
            text: include_str!("../split_lines.cu"),
            includes: &[("fft.cuh", include_str!("../fft.cuh"))],
            defines: constants.map(|(name, value)| (name, value.to_string())).to_vec(),
        }
    }
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
    fn two_blocks_fit_into_a_multiprocessor() {
        let found = shape(32768);
        assert_eq!((found.resident, found.batch, found.prefetched), (2, 16, 23));
        assert_eq!(found.sums_bytes(), 8 * 17 * 512 + 23 * 1024);
    }

    #[test]
    fn factors_are_on_the_circle_in_the_kernels_order() {
        let found = shape(65536);
        let (turns, factors) = (found.turns(), found.line_factors());
        assert_eq!((turns.len(), factors.len()), (2 * 65536, 512));
        let angle =
            |values: &[f32], at: usize| f64::from(values[at + 1]).atan2(f64::from(values[at]));
        // Group 1 of 16, k1 = 3, c2 = 21.
        let at = 2 * (64 * 16 + 3 * 16 + 5);
        assert!((angle(&turns, at) + TAU * 63.0 / 65536.0).abs() < 1e-6);
        // The first word of k3 = 3: w^16 and w^8, w = exp(-2 pi i 3 / 1024).
        assert!((angle(&factors, 12) + TAU * 48.0 / 1024.0).abs() < 1e-6);
        assert!((angle(&factors, 14) + TAU * 24.0 / 1024.0).abs() < 1e-6);
    }
}
