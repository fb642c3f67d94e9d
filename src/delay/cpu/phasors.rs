//! Phasors of a run of channels, from slopes.
//!
//! Invariant: a channel's phasor depends on its slope and its number only, and its phase is the same bits
//! at every level.
#![allow(unsafe_code)]

use num_complex::Complex;

use super::registers::Samples;
use crate::backend::simd::Level;
use crate::backend::vector::{MAX_LANES, levels};
use crate::delay::plan::Slope;

/// Channels of a block. A phasor is the product of its block's anchor and of an offset shared by all blocks.
pub(super) const BLOCK: usize = 64;

/// Most channels of a run, so that phasors stay in the first-level cache.
pub(super) const RUN: usize = 1024;

/// Phasors of a run's channels, with scratch memory.
#[derive(Debug)]
pub(super) struct Phasors {
    pub(super) re: Vec<f32>,
    pub(super) im: Vec<f32>,
    turns: Vec<f64>,
}

impl Phasors {
    /// Creates equal phasors.
    pub(super) fn new(value: Complex<f32>) -> Self {
        Self { re: vec![value.re; RUN], im: vec![value.im; RUN], turns: vec![0.0; RUN] }
    }

    /// Computes the phasors of the channels from `first` on, of all recorded channels, times `gain`, one by one.
    pub(super) fn each(
        &mut self,
        level: Level,
        slopes: (&[Slope], usize),
        run: (usize, usize),
        gain: Complex<f32>,
    ) {
        // SAFETY: the buffers hold a run.
        unsafe { each(level, self, slopes, run, gain) }
    }

    /// Computes the phases of a run's channels in turns, with `fine` channels per recorded channel.
    #[inline(always)]
    fn fill(&mut self, (slopes, fine): (&[Slope], usize), (first, channels): (usize, usize)) {
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

    /// Computes the phasors of the channels from `first` on, of one recorded channel, times `gain`, as products of
    /// anchors and offsets. `first` is a multiple of [`BLOCK`].
    pub(super) fn products(
        &mut self,
        level: Level,
        slope: Slope,
        (first, channels): (usize, usize),
        gain: Complex<f32>,
    ) {
        let slope = reduced(slope);
        // SAFETY: the buffers hold a run, which is whole blocks.
        unsafe { products(level, self, slope, (first, channels), gain) }
    }
}

/// Removes whole turns. This is exact, because channel indices are integers.
#[inline(always)]
fn reduced(slope: Slope) -> Slope {
    Slope { start: slope.start.fract(), step: slope.step.fract() }
}

levels!(each, each_body, (
    to: &mut Phasors,
    slopes: (&[Slope], usize),
    run: (usize, usize),
    gain: Complex<f32>,
));

/// # Safety
/// The level's instructions exist.
#[inline(always)]
unsafe fn each_body<V: Samples>(
    to: &mut Phasors,
    slopes: (&[Slope], usize),
    run: (usize, usize),
    gain: Complex<f32>,
) {
    to.fill(slopes, run);
    let channels = run.1;
    for at in (0..channels).step_by(V::LANES) {
        // SAFETY: the caller upholds this function's contract; a run is whole registers.
        unsafe {
            let turns = &to.turns[at..at + V::LANES];
            let (re, im) = phasor::<V>(|i| turns[i]);
            let gain = (V::splat(gain.re), V::splat(gain.im));
            let (re, im) = multiply((re, im), gain);
            re.store(to.re[at..at + V::LANES].as_mut_ptr());
            im.store(to.im[at..at + V::LANES].as_mut_ptr());
        }
    }
}

levels!(products, products_body, (
    to: &mut Phasors,
    slope: Slope,
    run: (usize, usize),
    gain: Complex<f32>,
));

/// # Safety
/// The level's instructions exist.
#[inline(always)]
unsafe fn products_body<V: Samples>(
    to: &mut Phasors,
    slope: Slope,
    (first, channels): (usize, usize),
    gain: Complex<f32>,
) {
    const ANCHORS: usize = RUN / BLOCK;
    let (mut anchor_re, mut anchor_im) = ([0f32; ANCHORS], [0f32; ANCHORS]);
    let (mut offset_re, mut offset_im) = ([0f32; BLOCK], [0f32; BLOCK]);
    // SAFETY: the caller upholds this function's contract; anchors, offsets and a run are whole registers.
    unsafe {
        let gain = (V::splat(gain.re), V::splat(gain.im));
        for at in (0..ANCHORS).step_by(V::LANES) {
            let channel = |i: usize| (first + (at + i) * BLOCK) as f64;
            let phasor = phasor::<V>(|i| slope.start + channel(i) * slope.step);
            let (re, im) = multiply(phasor, gain);
            re.store(anchor_re.as_mut_ptr().add(at));
            im.store(anchor_im.as_mut_ptr().add(at));
        }
        for at in (0..BLOCK).step_by(V::LANES) {
            let (re, im) = phasor::<V>(|i| (at + i) as f64 * slope.step);
            re.store(offset_re.as_mut_ptr().add(at));
            im.store(offset_im.as_mut_ptr().add(at));
        }
        for block in 0..channels.div_ceil(BLOCK) {
            let anchor = (V::splat(anchor_re[block]), V::splat(anchor_im[block]));
            let (re, im) = (&mut to.re[block * BLOCK..], &mut to.im[block * BLOCK..]);
            let (re, im) = (re[..BLOCK].as_mut_ptr(), im[..BLOCK].as_mut_ptr());
            for at in (0..BLOCK).step_by(V::LANES) {
                let offset = (V::load(&raw const offset_re[at]), V::load(&raw const offset_im[at]));
                let product = multiply(offset, anchor);
                product.0.store(re.add(at));
                product.1.store(im.add(at));
            }
        }
    }
}

/// Multiplies complex numbers.
///
/// # Safety
/// The level's instructions exist.
#[inline(always)]
pub(super) unsafe fn multiply<V: Samples>(a: (V, V), b: (V, V)) -> (V, V) {
    // SAFETY: the caller upholds this function's contract.
    unsafe {
        let re = a.1.neg_mul_add(b.1, a.0.mul(b.0));
        (re, a.1.mul_add(b.0, a.0.mul(b.1)))
    }
}

/// Returns cosine and sine of angles in turns, below 2^20, within 2 / 2^24.
///
/// # Safety
/// The level's instructions exist.
#[inline(always)]
unsafe fn phasor<V: Samples>(turns: impl Fn(usize) -> f64) -> (V, V) {
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
        cosine.rotate(sine, quarters.as_ptr())
    }
}

/// `cos(pi x / 2)` for `|x| <= 1/2`, in powers of `x^2`: interpolated at Chebyshev nodes.
const COSINE: [f32; 5] = [1.0, -1.233_700_5, 0.253_669_4, -0.020_861_529, 0.000_906_739_9];

/// `sin(pi x / 2) / x`, likewise.
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
