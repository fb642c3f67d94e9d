//! Delay correction on the CPU: computes the phasors of a run of channels, then corrects all polarizations of the run.
//!
//! Invariant: spectra have the same bits for any split of a stream.
#![allow(unsafe_code)]

mod registers;

use std::ops::Range;

use num_complex::Complex;

use super::plan::{Plan, Rows, Slope};
use crate::backend::simd::Level;
use crate::backend::vector::{MAX_LANES, levels};
use registers::{Samples, Target};

/// Plan bound to vector instructions.
#[derive(Debug)]
pub(super) struct Engine {
    plan: Plan,
    level: Level,
    /// Common gain of all elements, included in the phasors; 1 if the gains differ.
    gain: Complex<f32>,
    /// Gains of each element, if they differ: real and imaginary parts.
    gains: Option<(Vec<f32>, Vec<f32>)>,
    phasors: Phasors,
    /// Phasors for zero phases: the common gain.
    unrotated: Phasors,
    /// Saturated samples of the current call.
    current: Vec<u32>,
    saturated: Vec<u64>,
}

impl Engine {
    pub(super) fn new(plan: &Plan, level: Level) -> Self {
        let all = &plan.options().gains;
        let one = if all.len() == 1 { all[0] } else { Complex::ONE };
        // Registers may extend beyond the last element.
        let part = |part: fn(&Complex<f32>) -> f32| -> Vec<f32> {
            all.iter().map(part).chain([0.0; MAX_LANES]).collect()
        };
        Self {
            gain: one,
            gains: (all.len() > 1).then(|| (part(|gain| gain.re), part(|gain| gain.im))),
            phasors: Phasors::new(one),
            unrotated: Phasors::new(one),
            current: vec![0; plan.row_elements()],
            saturated: vec![0; plan.row_elements()],
            plan: plan.clone(),
            level,
        }
    }

    pub(super) fn run(&mut self, spectra: &[Complex<f32>], slopes: &[Slope], rows: Rows<'_>) {
        let Rows { bytes, times, first } = rows;
        let spectra = spectra.chunks_exact(self.plan.row_elements());
        let slopes = slopes.chunks_exact(self.plan.options().coarse_channels);
        for (time, (spectrum, slopes)) in (first..).zip(spectra.zip(slopes)) {
            let rows = Rows { bytes: &mut *bytes, times, first: time };
            self.spectrum(bytemuck::cast_slice(spectrum), slopes, rows);
        }
        for (all, current) in self.saturated.iter_mut().zip(&mut self.current) {
            *all += u64::from(std::mem::take(current));
        }
    }

    fn spectrum(&mut self, spectrum: &[f32], slopes: &[Slope], rows: Rows<'_>) {
        let (channels, fine) = (self.plan.channels(), self.plan.options().channels);
        // No early exit, so that the compiler vectorizes the loop.
        let is_unrotated =
            slopes.iter().fold(true, |unrotated, slope| unrotated & (*slope == Slope::default()));
        let by_products = fine >= 4 * BLOCK;
        let (level, gain, mut start) = (self.level, self.gain, 0);
        while start < channels {
            let (coarse, k) = (start / fine, start % fine);
            let end = if by_products { start - k + fine } else { channels };
            let count = RUN.min(end - start);
            if by_products && !is_unrotated {
                self.phasors.products(level, slopes[coarse], k..k + count, gain);
            } else if !is_unrotated {
                self.phasors.each(level, slopes, fine, start..start + count, gain);
            }
            for polarization in 0..self.plan.options().polarizations {
                let row = (polarization * rows.times + rows.first) * channels;
                let to = &mut rows.bytes[(row + start) * self.plan.element_bytes()..];
                self.channels(spectrum, is_unrotated, polarization * channels + start, count, to);
            }
            start += count;
        }
    }

    /// Corrects one polarization of a run, which begins at index `element` of the spectrum.
    fn channels(
        &mut self,
        spectrum: &[f32],
        is_unrotated: bool,
        element: usize,
        channels: usize,
        to: &mut [u8],
    ) {
        let phasors = if is_unrotated { &self.unrotated } else { &self.phasors };
        let phasors = Factors { re: &phasors.re, im: &phasors.im };
        let gains = self.gains.as_ref();
        let gains = gains.map(|(re, im)| Factors { re: &re[element..], im: &im[element..] });
        let run = Run {
            spectrum: &spectrum[2 * element..],
            factors: gains.filter(|_| is_unrotated).unwrap_or(phasors),
            gains: gains.filter(|_| !is_unrotated),
            channels,
            to,
            saturated: &mut self.current[element..],
        };
        correct(self.level, self.plan.element_bytes(), run);
    }

    pub(super) fn saturated(&self) -> &[u64] {
        &self.saturated
    }

    pub(super) fn reset(&mut self) {
        self.saturated.fill(0);
    }
}

/// Real and imaginary parts of factors, one per channel.
#[derive(Clone, Copy, Debug)]
pub(super) struct Factors<'a> {
    re: &'a [f32],
    im: &'a [f32],
}

/// Run of channels. All slices have at least `channels` elements; `to` holds bytes.
#[derive(Debug)]
pub(super) struct Run<'a> {
    /// Complex samples.
    spectrum: &'a [f32],
    /// Phasors or gains, padded to whole registers.
    factors: Factors<'a>,
    /// Gains that the phasors do not include, padded to whole registers.
    gains: Option<Factors<'a>>,
    channels: usize,
    /// Output bytes.
    to: &'a mut [u8],
    /// Saturated samples of each channel.
    saturated: &'a mut [u32],
}

/// Corrects a run and writes it as samples of 1, 2 or 8 bytes.
fn correct(level: Level, element_bytes: usize, run: Run<'_>) {
    let padded = run.channels.next_multiple_of(MAX_LANES);
    let is_long = |factors: Factors<'_>| factors.re.len().min(factors.im.len()) >= padded;
    assert!(is_long(run.factors) && run.gains.is_none_or(is_long), "factors for all channels");
    assert!(run.spectrum.len() >= 2 * run.channels && run.saturated.len() >= run.channels);
    assert!(run.to.len() >= run.channels * element_bytes, "room for all channels");
    // SAFETY: all lengths were checked.
    unsafe { whole(level, element_bytes, run) }
}

levels!(whole, whole_body, (element_bytes: usize, run: Run<'_>));

/// # Safety
/// The level's instructions exist, and the run's slices have the required lengths.
#[inline(always)]
unsafe fn whole_body<V: Samples>(element_bytes: usize, run: Run<'_>) {
    // SAFETY: the caller upholds this function's contract.
    unsafe {
        match (element_bytes, run.gains) {
            (1, None) => channels::<V, 1, false>(run),
            (1, Some(_)) => channels::<V, 1, true>(run),
            (2, None) => channels::<V, 2, false>(run),
            (2, Some(_)) => channels::<V, 2, true>(run),
            (_, None) => channels::<V, 8, false>(run),
            (_, Some(_)) => channels::<V, 8, true>(run),
        }
    }
}

/// # Safety
/// As for [`whole_body`].
#[inline(always)]
unsafe fn channels<V: Samples, const BYTES: usize, const GAINS: bool>(run: Run<'_>) {
    let Factors { re, im } = run.factors;
    let gains = run.gains.unwrap_or(run.factors);
    let whole = run.channels - run.channels % V::LANES;
    // SAFETY: the caller upholds this function's contract: all registers lie within the slices.
    unsafe {
        let weight = |at: usize| {
            let phasor = [V::load(re.as_ptr().add(at)), V::load(im.as_ptr().add(at))];
            let gain = |part: &[f32]| V::load(part.as_ptr().add(at));
            if GAINS { multiply(phasor, [gain(gains.re), gain(gains.im)]) } else { phasor }
        };
        for at in (0..whole).step_by(V::LANES) {
            let value = load_complex(run.spectrum.as_ptr().add(2 * at));
            let to = run.to.as_mut_ptr().add(at * BYTES);
            let saturated = run.saturated.as_mut_ptr().add(at);
            let [re, im] = multiply(value, weight(at));
            put::<V, BYTES>(re, im, &Target { to, saturated });
        }
        let rest = run.channels - whole;
        if rest > 0 {
            let (mut values, mut bytes) = ([0f32; 2 * MAX_LANES], [0u8; 8 * MAX_LANES]);
            let mut saturated = [0u32; MAX_LANES];
            values[..2 * rest].copy_from_slice(&run.spectrum[2 * whole..2 * run.channels]);
            let target = Target { to: bytes.as_mut_ptr(), saturated: saturated.as_mut_ptr() };
            let [re, im] = multiply(load_complex(values.as_ptr()), weight(whole));
            put::<V, BYTES>(re, im, &target);
            run.to[whole * BYTES..run.channels * BYTES].copy_from_slice(&bytes[..rest * BYTES]);
            let counts = run.saturated[whole..].iter_mut().zip(&saturated[..rest]);
            counts.for_each(|(count, saturated)| *count += saturated);
        }
    }
}

/// Loads a register of complex numbers and separates real and imaginary parts.
///
/// # Safety
/// As for [`whole_body`].
#[inline(always)]
unsafe fn load_complex<V: Samples>(from: *const f32) -> [V; 2] {
    // SAFETY: the caller upholds this function's contract.
    unsafe { V::load(from).deinterleave(V::load(from.add(V::LANES))).into() }
}

/// # Safety
/// As for [`whole_body`].
#[inline(always)]
unsafe fn put<V: Samples, const BYTES: usize>(re: V, im: V, to: &Target) {
    // SAFETY: the caller upholds this function's contract.
    unsafe {
        match BYTES {
            1 => re.store_nibbles(im, to),
            2 => re.store_bytes(im, to),
            _ => re.store_floats(im, to),
        }
    }
}

/// Channels per block. A phasor is the product of its block's anchor phasor and an offset phasor shared by all blocks.
const BLOCK: usize = 64;

/// Maximum number of channels in a run; their phasors stay in the first-level cache.
const RUN: usize = 1024;

/// Phasors of a run's channels, with scratch memory.
#[derive(Debug)]
pub(super) struct Phasors {
    re: Vec<f32>,
    im: Vec<f32>,
    turns: Vec<f64>,
}

impl Phasors {
    /// Creates equal phasors.
    fn new(value: Complex<f32>) -> Self {
        Self { re: vec![value.re; RUN], im: vec![value.im; RUN], turns: vec![0.0; RUN] }
    }

    /// Computes the phasors of a run times `gain`, each from its own phase. `run` counts channels over all recorded
    /// channels.
    fn each(
        &mut self,
        level: Level,
        slopes: &[Slope],
        fine: usize,
        run: Range<usize>,
        gain: Complex<f32>,
    ) {
        // SAFETY: the buffers hold a run.
        unsafe { each(level, self, slopes, fine, run, gain) }
    }

    /// Computes the phases of a run's channels in turns, with `fine` channels per recorded channel.
    #[inline(always)]
    fn fill(&mut self, slopes: &[Slope], fine: usize, run: Range<usize>) {
        let (first, channels) = (run.start, run.len());
        let turns = &mut self.turns[..channels];
        if fine == 1 {
            let slopes = &slopes[first..];
            turns.iter_mut().zip(slopes).for_each(|(turns, slope)| *turns = slope.start.fract());
            return;
        }
        let (mut coarse, mut k, mut filled) = (first / fine, first % fine, 0);
        while filled < channels {
            let count = (fine - k).min(channels - filled);
            let slope = reduced(slopes[coarse]);
            for (i, turns) in turns[filled..filled + count].iter_mut().enumerate() {
                *turns = slope.start + (k + i) as f64 * slope.step;
            }
            filled += count;
            (coarse, k) = (coarse + 1, 0);
        }
    }

    /// Computes the phasors of a run of one recorded channel's channels, times `gain`, as products of anchors and
    /// offsets. The run begins at a multiple of [`BLOCK`].
    fn products(&mut self, level: Level, slope: Slope, run: Range<usize>, gain: Complex<f32>) {
        let slope = reduced(slope);
        // SAFETY: the buffers hold a run, which is whole blocks.
        unsafe { products(level, self, slope, run, gain) }
    }
}

/// Removes whole turns. This is exact, because channel indices are integers.
#[inline(always)]
fn reduced(slope: Slope) -> Slope {
    Slope { start: slope.start.fract(), step: slope.step.fract() }
}

levels!(each, each_body, (
    to: &mut Phasors,
    slopes: &[Slope],
    fine: usize,
    run: Range<usize>,
    gain: Complex<f32>,
));

/// # Safety
/// The level's instructions exist.
#[inline(always)]
unsafe fn each_body<V: Samples>(
    to: &mut Phasors,
    slopes: &[Slope],
    fine: usize,
    run: Range<usize>,
    gain: Complex<f32>,
) {
    let channels = run.len();
    to.fill(slopes, fine, run);
    for at in (0..channels).step_by(V::LANES) {
        // SAFETY: the caller upholds this function's contract; a run is whole registers.
        unsafe {
            let turns = &to.turns[at..at + V::LANES];
            let [re, im] = phasor::<V>(|i| turns[i]);
            let gain = [V::splat(gain.re), V::splat(gain.im)];
            let [re, im] = multiply([re, im], gain);
            re.store(to.re[at..at + V::LANES].as_mut_ptr());
            im.store(to.im[at..at + V::LANES].as_mut_ptr());
        }
    }
}

levels!(products, products_body, (
    to: &mut Phasors,
    slope: Slope,
    run: Range<usize>,
    gain: Complex<f32>,
));

/// # Safety
/// The level's instructions exist.
#[inline(always)]
unsafe fn products_body<V: Samples>(
    to: &mut Phasors,
    slope: Slope,
    run: Range<usize>,
    gain: Complex<f32>,
) {
    let (first, channels) = (run.start, run.len());
    const ANCHORS: usize = RUN / BLOCK;
    let (mut anchor_re, mut anchor_im) = ([0f32; ANCHORS], [0f32; ANCHORS]);
    let (mut offset_re, mut offset_im) = ([0f32; BLOCK], [0f32; BLOCK]);
    // SAFETY: the caller upholds this function's contract; anchors, offsets and a run are whole registers.
    unsafe {
        let gain = [V::splat(gain.re), V::splat(gain.im)];
        for at in (0..ANCHORS).step_by(V::LANES) {
            let channel = |i: usize| (first + (at + i) * BLOCK) as f64;
            let phasor = phasor::<V>(|i| slope.start + channel(i) * slope.step);
            let [re, im] = multiply(phasor, gain);
            re.store(anchor_re.as_mut_ptr().add(at));
            im.store(anchor_im.as_mut_ptr().add(at));
        }
        for at in (0..BLOCK).step_by(V::LANES) {
            let [re, im] = phasor::<V>(|i| (at + i) as f64 * slope.step);
            re.store(offset_re.as_mut_ptr().add(at));
            im.store(offset_im.as_mut_ptr().add(at));
        }
        for block in 0..channels.div_ceil(BLOCK) {
            let anchor = [V::splat(anchor_re[block]), V::splat(anchor_im[block])];
            let (re, im) = (&mut to.re[block * BLOCK..], &mut to.im[block * BLOCK..]);
            let (re, im) = (re[..BLOCK].as_mut_ptr(), im[..BLOCK].as_mut_ptr());
            for at in (0..BLOCK).step_by(V::LANES) {
                let offset = [V::load(&raw const offset_re[at]), V::load(&raw const offset_im[at])];
                let product = multiply(offset, anchor);
                product[0].store(re.add(at));
                product[1].store(im.add(at));
            }
        }
    }
}

/// Multiplies complex numbers.
///
/// # Safety
/// The level's instructions exist.
#[inline(always)]
unsafe fn multiply<V: Samples>(a: [V; 2], b: [V; 2]) -> [V; 2] {
    // SAFETY: the caller upholds this function's contract.
    unsafe {
        let re = a[1].neg_mul_add(b[1], a[0].mul(b[0]));
        [re, a[1].mul_add(b[0], a[0].mul(b[1]))]
    }
}

/// Returns cosine and sine of angles in turns (magnitude below 2^20), with errors of at most 2^-23.
///
/// # Safety
/// The level's instructions exist.
#[inline(always)]
unsafe fn phasor<V: Samples>(turns: impl Fn(usize) -> f64) -> [V; 2] {
    /// 1.5 * 2^52: doubles of this size have no fraction bits. Adding and subtracting it rounds to the nearest
    /// integer, and the lowest bits of the sum hold that integer.
    const ROUND: f64 = 6_755_399_441_055_744.0;
    let (mut rest, mut quarters) = ([0f32; MAX_LANES], [0i32; MAX_LANES]);
    for i in 0..V::LANES {
        let angle = 4.0 * turns(i);
        let rounded = angle + ROUND;
        quarters[i] = rounded.to_bits() as i32;
        rest[i] = (angle - (rounded - ROUND)) as f32;
    }
    // SAFETY: the caller upholds this function's contract; the arrays hold a register.
    unsafe {
        let x = V::load(rest.as_ptr());
        let z = x.mul(x);
        let (cosine, sine) = (series(COSINE, z), x.mul(series(SINE, z)));
        cosine.rotate(sine, quarters.as_ptr()).into()
    }
}

/// `cos(pi x / 2)` for `|x| <= 1/2`, in powers of `x^2`: interpolated at Chebyshev nodes.
const COSINE: [f32; 5] = [1.0, -1.233_700_5, 0.253_669_4, -0.020_861_529, 0.000_906_739_9];

/// `sin(pi x / 2) / x` for `|x| <= 1/2`, in powers of `x^2`: interpolated at Chebyshev nodes.
const SINE: [f32; 4] = [1.570_796_4, -0.645_963_5, 0.079_680_22, -0.004_602_149];

/// # Safety
/// The level's instructions exist.
#[inline(always)]
unsafe fn series<V: Samples, const TERMS: usize>(terms: [f32; TERMS], z: V) -> V {
    // SAFETY: the caller upholds this function's contract.
    unsafe {
        let mut sum = V::splat(terms[TERMS - 1]);
        for term in terms[..TERMS - 1].iter().rev() {
            sum = sum.mul_add(z, V::splat(*term));
        }
        sum
    }
}
