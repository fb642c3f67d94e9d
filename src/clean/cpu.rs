//! Cleaning with vector instructions: unpacks, averages and subtracts one row at a time.
//!
//! Invariant: a row's result depends on that row, and on the running medians where cells are masked.

use super::plan::{Plan, rounded_mean};
use crate::backend::simd::{Level, leveled};
use crate::backend::threads::Threads;
use crate::error::Result;
use crate::math::RunningMedian;
use crate::sample::{Encoding, Samples, set_value, unpack_f32_inline, value};

/// Rows per thread task.
const ROWS: usize = 16;

/// Partial sums of floats: the same number at every vector level, so that all round alike.
const LANES: usize = 16;

/// Cleaning plan bound to a vector level and threads.
#[derive(Debug)]
pub(super) struct Engine {
    level: Level,
    threads: Threads,
    scratch: Vec<Scratch>,
    /// Packed bytes of one row with its bad cells filled.
    patched: Vec<u8>,
    medians: Option<RunningMedian>,
    /// Bad channels of the current interval.
    bad: Vec<bool>,
    time: u64,
}

#[derive(Clone, Debug)]
pub(super) struct Scratch {
    /// -1 for channels in the mean, 0 for the others.
    good: Vec<i32>,
    values: Vec<f32>,
}

impl Engine {
    pub(super) fn new(plan: &Plan, level: Level, threads: Threads) -> Self {
        let good: Vec<i32> = plan.options().masked.iter().map(|m| i32::from(*m) - 1).collect();
        let scratch = Scratch { good, values: vec![0.0; plan.channels()] };
        let scratch = vec![scratch; threads.count()];
        let medians = plan.options().time_mask.as_ref();
        let medians = medians.map(|_| RunningMedian::sparse(plan.encoding(), plan.channels()));
        let patched = vec![0; plan.row_bytes()];
        let bad = vec![false; plan.channels()];
        Self { level, threads, scratch, patched, medians, bad, time: 0 }
    }

    pub(super) fn run(&mut self, plan: &Plan, input: Samples<'_>, output: &mut [u8]) -> Result<()> {
        let bytes = plan.output_row_bytes();
        if self.medians.is_some() {
            for (time, row) in output.chunks_exact_mut(bytes).enumerate() {
                self.patch(plan, input.row(time));
                finish(self.level, plan, &mut self.scratch[0], &self.patched, row);
                self.time += 1;
            }
            return Ok(());
        }
        let level = self.level;
        self.threads.for_each_chunk(&mut self.scratch, output, ROWS * bytes, |own, part, rows| {
            for (time, row) in rows.chunks_exact_mut(bytes).enumerate() {
                finish(level, plan, own, input.row(part * ROWS + time), row);
            }
        });
        self.time += input.times() as u64;
        Ok(())
    }

    pub(super) fn reset(&mut self) {
        self.time = 0;
        self.medians.iter_mut().for_each(RunningMedian::reset);
    }

    /// Copies a row and replaces its bad cells.
    fn patch(&mut self, plan: &Plan, row: &[u8]) {
        self.patched.copy_from_slice(row);
        let Some(medians) = &mut self.medians else { return };
        let bad = plan.bad_channels(self.time);
        if plan.interval_begins(self.time) {
            self.bad.fill(false);
            bad.iter().for_each(|channel| self.bad[*channel as usize] = true);
        }
        medians.observe(self.time, row, |channel| self.bad[channel]);
        let mut fallback = None;
        for channel in bad.iter().map(|c| *c as usize) {
            let fill = medians.value(channel);
            let fill = fill
                .unwrap_or_else(|| *fallback.get_or_insert_with(|| row_mean(plan, &self.bad, row)));
            set_value(&mut self.patched, plan.encoding(), channel, f64::from(fill));
        }
    }
}

/// Returns the fill value of channels without a good sample so far.
fn row_mean(plan: &Plan, bad: &[bool], row: &[u8]) -> f32 {
    let masked = &plan.options().masked;
    let good = (0..plan.channels()).filter(|c| !masked[*c] && !bad[*c]);
    let values = good.map(|channel| value(row, plan.encoding(), channel));
    let (count, sum) = values.fold((0.0, 0.0), |(count, sum), x| (count + 1.0, sum + x));
    if count == 0.0 { 0.0 } else { (sum / count).round_ties_even() as f32 }
}

/// Subtracts the mean from a row, or copies the row.
fn finish(level: Level, plan: &Plan, scratch: &mut Scratch, row: &[u8], output: &mut [u8]) {
    if !plan.options().zero_dm {
        output.copy_from_slice(row);
        return;
    }
    zero_dm(level, plan, scratch, row, output);
}

leveled!(
    /// Subtracts the mean from a row.
    zero_dm,
    zero_dm_inline,
    (plan: &Plan, scratch: &mut Scratch, row: &[u8], output: &mut [u8])
);

#[inline(always)]
fn zero_dm_inline(plan: &Plan, scratch: &mut Scratch, row: &[u8], output: &mut [u8]) {
    let Scratch { good, values } = scratch;
    let scale = plan.scale();
    let scaled_mean = |sum: i64| rounded_mean(sum * i64::from(scale), plan.good_channels());
    if plan.encoding() == Encoding::U8 {
        let mean = scaled_mean(bytes_sum(row, good));
        for ((out, x), good) in output.chunks_exact_mut(2).zip(row).zip(&*good) {
            let difference = scale * i32::from(*x) - (mean & good);
            out.copy_from_slice(&(difference as i16).to_le_bytes());
        }
        return;
    }
    unpack_f32_inline(row, plan.encoding(), values);
    match plan.encoding() {
        Encoding::F32 => {
            let mean = float_mean(values, good);
            for ((out, x), good) in output.chunks_exact_mut(4).zip(&*values).zip(&*good) {
                let mean = if *good == 0 { 0.0 } else { mean };
                out.copy_from_slice(&((f64::from(*x) - mean) as f32).to_le_bytes());
            }
        }
        encoding => {
            let mean = scaled_mean(whole_sum(values, good));
            if encoding.bits() == 16 {
                for ((out, x), good) in output.chunks_exact_mut(4).zip(&*values).zip(&*good) {
                    out.copy_from_slice(&(*x - (mean & good) as f32).to_le_bytes());
                }
            } else {
                for ((out, x), good) in output.chunks_exact_mut(2).zip(&*values).zip(&*good) {
                    let difference = scale * *x as i32 - (mean & good);
                    out.copy_from_slice(&(difference as i16).to_le_bytes());
                }
            }
        }
    }
}

/// Sums bytes in 32 bits, because a channel count fits 20 bits.
#[inline(always)]
fn bytes_sum(row: &[u8], good: &[i32]) -> i64 {
    let mut sum = 0i32;
    for (x, good) in row.iter().zip(good) {
        sum += i32::from(*x) & good;
    }
    i64::from(sum)
}

/// Sums integers of up to 16 bits in parts that fit 32 bits.
#[inline(always)]
fn whole_sum(values: &[f32], good: &[i32]) -> i64 {
    let parts = values.chunks(1 << 14).zip(good.chunks(1 << 14));
    let mut total = 0;
    for (values, good) in parts {
        let mut sum = 0i32;
        for (x, good) in values.iter().zip(good) {
            sum += *x as i32 & good;
        }
        total += i64::from(sum);
    }
    total
}

/// Returns the mean of the good channels' finite values.
#[inline(always)]
fn float_mean(values: &[f32], good: &[i32]) -> f64 {
    let (mut sum, mut count) = ([0.0f64; LANES], [0.0f64; LANES]);
    for (values, good) in values.chunks(LANES).zip(good.chunks(LANES)) {
        for lane in 0..values.len() {
            let counts = good[lane] != 0 && values[lane].is_finite();
            sum[lane] += if counts { f64::from(values[lane]) } else { 0.0 };
            count[lane] += f64::from(u8::from(counts));
        }
    }
    let count: f64 = count.iter().sum();
    if count == 0.0 { 0.0 } else { sum.iter().sum::<f64>() / count }
}
