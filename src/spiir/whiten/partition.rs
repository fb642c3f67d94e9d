//! Causal filters of low latency: the kernel is split into equal parts, each applied by transforms of two blocks.
//!
//! Invariant: blocks lie at multiples of their length from the stream's first sample; what came before a cut has no
//! part in what comes after it.
//!
//! # Source
//! Uniformly partitioned overlap-save: Stockham 1966; Gardner 1995, J. Audio Eng. Soc. 43, 127.

use std::ops::Range;
use std::sync::Arc;

use num_complex::Complex;
use rustfft::{Fft, FftPlanner};

use crate::error::Result;
use crate::state::{Saved, Saving};

/// Convolves a stream block by block.
pub(super) struct Partition {
    block: usize,
    forward: Arc<dyn Fft<f64>>,
    inverse: Arc<dyn Fft<f64>>,
    /// Spectra of the kernel's parts before the last change, and their changes; axes: part, bin.
    before: Vec<Complex<f64>>,
    change: Vec<Complex<f64>>,
    /// Blocks since the change, and blocks over which it is applied.
    since: usize,
    over: usize,
    /// Ring of the spectra of the latest inputs; axes: part, bin.
    inputs: Vec<Complex<f64>>,
    /// Index in the ring for the next block.
    next: usize,
    /// Samples of the last block, and those of the next block so far.
    samples: Vec<f64>,
    filled: usize,
    /// First and last cut in the block so far.
    cuts: Option<(usize, usize)>,
    output: Vec<f64>,
    has_output: bool,
    buffer: Vec<Complex<f64>>,
    scratch: Vec<Complex<f64>>,
}

impl Partition {
    /// Returns the bytes it occupies, including the tables of its transforms.
    pub(super) fn held_bytes(&self) -> usize {
        48 * self.inputs.len() + 72 * self.buffer.len() + 8 * self.output.len()
    }

    /// Creates a filter for kernels of `taps` coefficients in parts of `block`; a kernel change is spread over `over`
    /// blocks.
    pub(super) fn new(taps: usize, block: usize, over: usize) -> Self {
        let mut planner = FftPlanner::new();
        let forward = planner.plan_fft_forward(2 * block);
        let inverse = planner.plan_fft_inverse(2 * block);
        let scratch = forward.get_inplace_scratch_len().max(inverse.get_inplace_scratch_len());
        let spectra = vec![Complex::default(); taps.div_ceil(block) * (block + 1)];
        Self {
            block,
            forward,
            inverse,
            before: spectra.clone(),
            change: spectra.clone(),
            since: 0,
            over: over.max(1),
            inputs: spectra,
            next: 0,
            samples: vec![0.0; 2 * block],
            filled: 0,
            cuts: None,
            output: vec![0.0; block],
            has_output: false,
            buffer: vec![Complex::default(); 2 * block],
            scratch: vec![Complex::default(); scratch],
        }
    }

    /// Returns how many samples must follow before one is known.
    pub(super) fn latency(&self) -> usize {
        self.block - 1
    }

    /// Sets the kernel, at once or in small steps from block to block.
    pub(super) fn set_kernel(&mut self, kernel: &[f64], at_once: bool) {
        let part = self.share();
        let scale = 1.0 / (2 * self.block) as f64;
        let rows = self.before.chunks_exact_mut(self.block + 1);
        for (index, (before, change)) in
            rows.zip(self.change.chunks_exact_mut(self.block + 1)).enumerate()
        {
            self.buffer.fill(Complex::default());
            let coefficients = kernel.iter().skip(index * self.block).take(self.block);
            for (value, coefficient) in self.buffer.iter_mut().zip(coefficients) {
                *value = Complex::new(coefficient * scale, 0.0);
            }
            self.forward.process_with_scratch(&mut self.buffer, &mut self.scratch);
            for ((before, change), new) in before.iter_mut().zip(change).zip(&self.buffer) {
                *before = if at_once { *new } else { *before + *change * part };
                *change = new - *before;
            }
        }
        self.since = 0;
    }

    /// Returns the fraction of the last change applied so far.
    fn share(&self) -> f64 {
        self.since as f64 / self.over as f64
    }

    /// Appends a sample and returns the next filtered one. After a cut the stream restarts, so that ringing of the
    /// cut does not extend beyond it.
    pub(super) fn push(&mut self, sample: f64, is_cut: bool) -> Option<f64> {
        if is_cut {
            let first = self.cuts.map_or(self.filled, |cuts| cuts.0);
            self.cuts = Some((first, self.filled));
        }
        self.samples[self.block + self.filled] = sample;
        self.filled += 1;
        if self.filled == self.block {
            self.since = (self.since + 1).min(self.over);
            match self.cuts.take() {
                None => self.filter(0..2 * self.block, 0..self.block),
                Some((first, last)) => {
                    self.filter(0..self.block + first, 0..first);
                    self.inputs.fill(Complex::default());
                    self.samples[..=self.block + last].fill(0.0);
                    self.filter(0..2 * self.block, first..self.block);
                }
            }
            self.next = (self.next + 1) % (self.inputs.len() / (self.block + 1));
            self.filled = 0;
            self.samples.copy_within(self.block.., 0);
            self.has_output = true;
        }
        // The first output of a block is returned with its last sample.
        self.has_output.then(|| self.output[self.filled])
    }

    /// Filters the last two blocks, of which only the samples in `kept` count, and writes the outputs `wanted`.
    fn filter(&mut self, kept: Range<usize>, wanted: Range<usize>) {
        if wanted.is_empty() {
            return;
        }
        let bins = self.block + 1;
        self.buffer.fill(Complex::default());
        for (value, sample) in self.buffer[kept.clone()].iter_mut().zip(&self.samples[kept]) {
            *value = Complex::new(*sample, 0.0);
        }
        self.forward.process_with_scratch(&mut self.buffer, &mut self.scratch);
        self.inputs[self.next * bins..][..bins].copy_from_slice(&self.buffer[..bins]);
        let parts = self.inputs.len() / bins;
        let share = self.share();
        let sums = &mut self.buffer[..bins];
        sums.fill(Complex::default());
        for part in 0..parts {
            let row = (self.next + parts - part) % parts * bins;
            let input = &self.inputs[row..row + bins];
            let before = &self.before[part * bins..][..bins];
            let change = &self.change[part * bins..][..bins];
            let kernel = before.iter().zip(change).map(|(before, change)| before + change * share);
            for ((sum, input), kernel) in sums.iter_mut().zip(input).zip(kernel) {
                *sum += input * kernel;
            }
        }
        for bin in 1..self.block {
            self.buffer[2 * self.block - bin] = self.buffer[bin].conj();
        }
        self.inverse.process_with_scratch(&mut self.buffer, &mut self.scratch);
        let values = &self.buffer[self.block..];
        for (output, value) in self.output[wanted.clone()].iter_mut().zip(&values[wanted]) {
            *output = value.re;
        }
    }

    pub(super) fn reset(&mut self) {
        self.inputs.fill(Complex::default());
        self.samples.fill(0.0);
        (self.next, self.filled, self.has_output, self.cuts) = (0, 0, false, None);
    }

    /// Saves the state, including a kernel change in progress.
    pub(super) fn save(&self, to: &mut Saving) {
        to.part("partition");
        let (first, last) = self.cuts.unzip();
        let numbers = [self.since, self.next, self.filled, usize::from(self.has_output)];
        numbers.iter().for_each(|number| to.number(*number as u64));
        to.maybe(first.map(|first| first as u64));
        to.maybe(last.map(|last| last as u64));
        [&self.before, &self.change, &self.inputs].into_iter().for_each(|part| to.complex64(part));
        to.f64s(self.samples.iter());
        to.f64s(self.output.iter());
    }

    pub(super) fn load(&mut self, from: &mut Saved<'_>) -> Result<()> {
        from.part("partition")?;
        self.since = from.at_most(self.over)?;
        self.next = from.at_most(self.inputs.len() / (self.block + 1) - 1)?;
        self.filled = from.at_most(self.block - 1)?;
        self.has_output = from.at_most(1)? == 1;
        self.cuts = match (from.maybe()?, from.maybe()?) {
            (None, None) => None,
            (Some(first), Some(last)) if first <= last && last < self.filled as u64 => {
                Some((first as usize, last as usize))
            }
            found => return Err(from.fault("cuts", format!("{found:?} found"))),
        };
        from.fill_complex64(&mut self.before)?;
        from.fill_complex64(&mut self.change)?;
        from.fill_complex64(&mut self.inputs)?;
        from.fill_f64(&mut self.samples)?;
        from.fill_f64(&mut self.output)
    }
}
