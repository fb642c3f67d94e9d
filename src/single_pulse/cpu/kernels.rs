//! Loops over samples: moments, prefix sums, and the screen for boxcars above threshold.
//!
//! Invariant: integers wrap only where the plan has shown that differences do not.
#![allow(unsafe_code)]

use std::fmt::Debug;

use crate::backend::simd::Level;
use crate::single_pulse::plan::BLOCK;
use crate::single_pulse::rules::{Clip, Moments};

/// Sample of a series.
pub(in crate::single_pulse) trait Sample:
    Copy + Debug + Send + Sync
{
    /// Returns its value.
    fn value(self) -> f64;
    /// Returns its value in an integer series.
    fn integer(self) -> i32;
    /// Computes the moments of a window; `narrow` guarantees that differences fit 32 bits.
    fn moments(level: Level, window: &[Self], clip: Clip, narrow: bool) -> Moments;
    /// Returns the sample nearest to a mean.
    fn filler(mean: f64) -> Self;
    /// Replaces non-finite samples.
    fn repair(samples: &mut [Self], mean: f64);
}

impl Sample for i32 {
    fn value(self) -> f64 {
        f64::from(self)
    }

    #[inline(always)]
    fn integer(self) -> i32 {
        self
    }

    fn moments(level: Level, window: &[Self], clip: Clip, narrow: bool) -> Moments {
        let limit = clip.limit.min(f64::from(i32::MAX));
        let total = window.len() as f64 * limit * limit;
        if narrow && total < i64::MAX as f64 {
            let (count, sum, squares) = clipped(level, window, clip.centre as i32, limit as i32);
            return Moments { count: count as f64, sum: sum as f64, squares: squares as f64 };
        }
        clipped_wide(window, clip.centre as i64, clip.limit.min(i64::MAX as f64) as i64)
    }

    fn filler(mean: f64) -> Self {
        mean.round() as Self
    }

    fn repair(_: &mut [Self], _: f64) {}
}

impl Sample for f32 {
    fn value(self) -> f64 {
        f64::from(self)
    }

    fn integer(self) -> i32 {
        self as i32
    }

    fn moments(level: Level, window: &[Self], clip: Clip, _: bool) -> Moments {
        clipped_float(level, window, clip)
    }

    fn filler(mean: f64) -> Self {
        mean as Self
    }

    fn repair(samples: &mut [Self], mean: f64) {
        samples.iter_mut().filter(|y| !y.is_finite()).for_each(|y| *y = Self::filler(mean));
    }
}

/// Calls `flag(block)` for each block of starts in which a boxcar reaches its threshold.
pub(super) trait Screen: Sum {
    fn screen(level: Level, boxes: &Boxes<Self>, blocks: usize, flag: impl FnMut(usize));
}

macro_rules! screens {
    ($type:ty, $avx2:ident, $avx512:ident) => {
        impl Screen for $type {
            fn screen(level: Level, boxes: &Boxes<Self>, blocks: usize, flag: impl FnMut(usize)) {
                #[cfg(target_arch = "x86_64")]
                match level {
                    Level::Avx512(_) => {
                        // SAFETY: a value of the level proves that its instructions exist.
                        return unsafe { screen::$avx512(boxes, blocks, flag) };
                    }
                    Level::Avx2(_) => {
                        // SAFETY: as above.
                        return unsafe { screen::$avx2(boxes, blocks, flag) };
                    }
                    Level::Portable => {}
                }
                let _ = level;
                screen_body(boxes, blocks, flag);
            }
        }
    };
}

screens!(i32, i32_avx2, i32_avx512);
screens!(i64, i64_avx2, i64_avx512);
screens!(f64, f64_avx2, f64_avx512);

/// Sum of samples: an integer that may wrap, or a double.
pub(super) trait Sum: Copy + PartialOrd {
    const LEAST: Self;
    const ZERO: Self;
    fn plus(self, other: Self) -> Self;
    fn minus(self, other: Self) -> Self;
    /// Returns the value whose maximum the screen tracks. `offset` is the threshold, for integers including the
    /// prefix sum at the block's start.
    fn excess(later: Self, first: Self, offset: Self) -> Self;
    /// Returns the screen's offset.
    fn offset(threshold: Self, base: Self) -> Self;
    /// Returns the smallest excess of a hit.
    fn floor(first: Self, base: Self) -> Self;
    /// Converts a sample, for integers less the middle of their bound.
    fn lift<T: Sample>(sample: T, middle: i64) -> Self;
    /// Converts the least sum of a hit, for integers clamped to `most` in magnitude.
    fn threshold(least: f64, most: f64) -> Self;
    fn value(self) -> f64;
}

macro_rules! integer_sum {
    ($type:ty, |$sample:ident, $middle:ident| $lift:expr, |$sum:ident| $value:expr) => {
        impl Sum for $type {
            const LEAST: Self = <$type>::MIN;
            const ZERO: Self = 0;
            #[inline(always)]
            fn plus(self, other: Self) -> Self {
                self.wrapping_add(other)
            }
            #[inline(always)]
            fn minus(self, other: Self) -> Self {
                self.wrapping_sub(other)
            }
            #[inline(always)]
            fn excess(later: Self, _: Self, offset: Self) -> Self {
                later.wrapping_sub(offset)
            }
            #[inline(always)]
            fn offset(threshold: Self, base: Self) -> Self {
                base.wrapping_add(threshold)
            }
            #[inline(always)]
            fn floor(first: Self, base: Self) -> Self {
                first.wrapping_sub(base)
            }
            #[inline(always)]
            fn lift<T: Sample>($sample: T, $middle: i64) -> Self {
                $lift
            }
            fn threshold(least: f64, most: f64) -> Self {
                least.clamp(-most, most) as i64 as Self
            }
            #[inline(always)]
            fn value(self) -> f64 {
                let $sum = self;
                $value
            }
        }
    };
}

integer_sum!(i32, |y, middle| y.integer().wrapping_sub(middle as i32), |sum| f64::from(sum));
integer_sum!(i64, |y, middle| i64::from(y.integer()) - middle, |sum| sum as f64);

impl Sum for f64 {
    const LEAST: Self = Self::NEG_INFINITY;
    const ZERO: Self = 0.0;
    #[inline(always)]
    fn plus(self, other: Self) -> Self {
        self + other
    }
    #[inline(always)]
    fn minus(self, other: Self) -> Self {
        self - other
    }
    #[inline(always)]
    fn excess(later: Self, first: Self, offset: Self) -> Self {
        (later - first) - offset
    }
    #[inline(always)]
    fn offset(threshold: Self, _: Self) -> Self {
        threshold
    }
    #[inline(always)]
    fn floor(_: Self, _: Self) -> Self {
        0.0
    }
    #[inline(always)]
    fn lift<T: Sample>(sample: T, _: i64) -> Self {
        sample.value()
    }
    fn threshold(least: f64, _: f64) -> Self {
        least
    }
    #[inline(always)]
    fn value(self) -> f64 {
        self
    }
}

/// Entry point of a kernel: dispatches to one instance per vector level.
macro_rules! levels {
    ($name:ident [$($generic:tt)*] ($($argument:ident: $type:ty),*) -> $output:ty, $body:ident) => {
        pub(super) fn $name<$($generic)*>(level: Level, $($argument: $type),*) -> $output {
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx2,fma")]
                fn avx2<$($generic)*>($($argument: $type),*) -> $output {
                    $body($($argument),*)
                }
                #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
                fn avx512<$($generic)*>($($argument: $type),*) -> $output {
                    $body($($argument),*)
                }
                match level {
                    // SAFETY: a value of the level proves that its instructions exist.
                    Level::Avx512(_) => return unsafe { avx512($($argument),*) },
                    // SAFETY: as above.
                    Level::Avx2(_) => return unsafe { avx2($($argument),*) },
                    Level::Portable => {}
                }
            }
            let _ = level;
            $body($($argument),*)
        }
    };
}

levels!(clipped [] (window: &[i32], centre: i32, limit: i32) -> (u64, i64, i64), clipped_body);
levels!(clipped_float [] (window: &[f32], clip: Clip) -> Moments, clipped_float_body);
levels!(thin [S: Sum] (dense: &[S], sparse: &mut Vec<S>) -> (), thin_body);

#[inline(always)]
fn clipped_body(window: &[i32], centre: i32, limit: i32) -> (u64, i64, i64) {
    let (mut count, mut sum, mut squares) = (0u64, 0i64, 0i64);
    for part in window.chunks(1 << 16) {
        let mut outside = 0i32;
        for y in part {
            let difference = y.wrapping_sub(centre);
            let out = difference.wrapping_abs() > limit;
            outside += i32::from(out);
            let difference = i64::from(if out { 0 } else { difference });
            sum += difference;
            squares += difference * difference;
        }
        count += part.len() as u64 - outside as u64;
    }
    (count, sum, squares)
}

/// Computes moments of integers of any size.
fn clipped_wide(window: &[i32], centre: i64, limit: i64) -> Moments {
    let (mut count, mut sum, mut squares) = (0u64, 0i64, 0i128);
    for difference in window.iter().map(|y| i64::from(*y) - centre).filter(|d| d.abs() <= limit) {
        count += 1;
        sum += difference;
        squares += i128::from(difference) * i128::from(difference);
    }
    Moments { count: count as f64, sum: sum as f64, squares: squares as f64 }
}

/// Computes moments in eight partial sums, so that every level adds in the same order.
#[inline(always)]
fn clipped_float_body(window: &[f32], clip: Clip) -> Moments {
    const LANES: usize = 8;
    let (mut count, mut sum, mut squares) = ([0.0f64; LANES], [0.0; LANES], [0.0; LANES]);
    let (whole, rest) = window.as_chunks::<LANES>();
    let mut last = [f32::NAN; LANES];
    last[..rest.len()].copy_from_slice(rest);
    let limit = clip.limit.min(f64::MAX);
    // NaN is never within the limit.
    for values in whole.iter().chain(std::iter::once(&last)) {
        for lane in 0..LANES {
            let difference = f64::from(values[lane]) - clip.centre;
            let inside = difference.abs() <= limit;
            let difference = if inside { difference } else { 0.0 };
            count[lane] += if inside { 1.0 } else { 0.0 };
            sum[lane] += difference;
            squares[lane] += difference * difference;
        }
    }
    let total = |lanes: [f64; LANES]| lanes.iter().sum();
    Moments { count: total(count), sum: total(sum), squares: total(squares) }
}

/// Boxcars of one group over one window.
#[derive(Debug)]
pub(super) struct Boxes<S> {
    /// Sum of all samples before each multiple of the stride.
    pub(super) prefix: Vec<S>,
    /// Width in strides and smallest hit sum of each boxcar.
    pub(super) boxcars: Vec<(usize, S)>,
}

/// Computes the sums before each multiple of `stride`, in order; the last is the sum of all whole strides.
pub(super) fn accumulate<T: Sample, S: Sum>(
    samples: &[T],
    stride: usize,
    middle: i64,
    prefix: &mut Vec<S>,
) {
    prefix.clear();
    let mut sum = S::ZERO;
    prefix.push(sum);
    if stride == 1 {
        prefix.extend(samples.iter().map(|y| {
            sum = sum.plus(S::lift(*y, middle));
            sum
        }));
        return;
    }
    prefix.extend(samples.chunks_exact(stride).map(|part| {
        sum = part.iter().fold(sum, |sum, y| sum.plus(S::lift(*y, middle)));
        sum
    }));
}

/// Copies every other prefix sum.
#[inline(always)]
fn thin_body<S: Sum>(dense: &[S], sparse: &mut Vec<S>) {
    sparse.clear();
    let (pairs, rest) = dense.as_chunks::<2>();
    sparse.extend(pairs.iter().map(|pair| pair[0]));
    sparse.extend_from_slice(rest);
}

/// Calls `flag(block)` for each block of starts in which a boxcar reaches its threshold: the portable version.
fn screen_body<S: Sum>(boxes: &Boxes<S>, blocks: usize, mut flag: impl FnMut(usize)) {
    for block in 0..blocks {
        let prefix = &boxes.prefix[block * BLOCK..];
        let Some((firsts, _)) = prefix.split_first_chunk::<BLOCK>() else { return };
        let base = firsts[0];
        let mut largest = [S::LEAST; BLOCK];
        for (width, threshold) in &boxes.boxcars {
            let Some((laters, _)) = prefix[*width..].split_first_chunk::<BLOCK>() else { return };
            let offset = S::offset(*threshold, base);
            for ((largest, later), first) in largest.iter_mut().zip(laters).zip(firsts) {
                let excess = S::excess(*later, *first, offset);
                *largest = if excess > *largest { excess } else { *largest };
            }
        }
        let mut any = false;
        for (largest, first) in largest.iter().zip(firsts) {
            any |= *largest >= S::floor(*first, base);
        }
        if any {
            flag(block);
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod screen {
    //! Screen with `std::arch` intrinsics: holds the running maxima in registers, where the compiler would spill them to
    //! memory. Flags exactly the blocks that the portable body flags.

    use std::arch::x86_64::*;

    use crate::single_pulse::cpu::kernels::{Boxes, Sum};
    use crate::single_pulse::plan::BLOCK;

    /// Returns whether every load of `blocks` blocks lies in the prefix sums.
    fn fits<S>(boxes: &Boxes<S>, blocks: usize) -> bool {
        let widest = boxes.boxcars.iter().map(|(width, _)| *width).max().unwrap_or(0);
        blocks == 0 || blocks * BLOCK + widest <= boxes.prefix.len()
    }

    /// Defines a screen for one type and level: `$vectors` vectors of `$lanes` starts at a time.
    macro_rules! screen {
        ($name:ident, $features:literal, $type:ty, $vectors:literal x $lanes:literal,
         load $load:expr, splat $splat:expr, excess $excess:expr, larger $larger:expr, any $any:expr) => {
            #[target_feature(enable = $features)]
            pub(super) fn $name(boxes: &Boxes<$type>, blocks: usize, mut flag: impl FnMut(usize)) {
                assert!(fits(boxes, blocks), "prefix sums for every block");
                for block in 0..blocks {
                    let base = boxes.prefix[block * BLOCK];
                    let mut hit = false;
                    for part in 0..BLOCK / ($vectors * $lanes) {
                        let start = block * BLOCK + part * $vectors * $lanes;
                        // SAFETY: `fits` has shown that the block's loads at width 0 and at every width end within the
                        // prefix sums.
                        unsafe {
                            let first = boxes.prefix.as_ptr().add(start);
                            let mut largest = [$splat(<$type>::LEAST); $vectors];
                            for (width, threshold) in &boxes.boxcars {
                                let offset = $splat(<$type>::offset(*threshold, base));
                                let later = first.add(*width);
                                for (k, largest) in largest.iter_mut().enumerate() {
                                    let (x, y) =
                                        ($load(later.add(k * $lanes)), first.add(k * $lanes));
                                    *largest = $larger(*largest, $excess(x, y, offset));
                                }
                            }
                            for (k, largest) in largest.iter().enumerate() {
                                hit |= $any(*largest, first.add(k * $lanes), base);
                            }
                        }
                    }
                    if hit {
                        flag(block);
                    }
                }
            }
        };
    }

    screen!(i32_avx512, "avx512f,avx512bw,avx512vl,avx512dq", i32, 4 x 16,
    load |p: *const i32| _mm512_loadu_si512(p.cast()),
    splat |x| _mm512_set1_epi32(x),
    excess |x, _: *const i32, offset| _mm512_sub_epi32(x, offset),
    larger |a, b| _mm512_max_epi32(a, b),
    any |largest, p: *const i32, base| {
        let floor = _mm512_sub_epi32(_mm512_loadu_si512(p.cast()), _mm512_set1_epi32(base));
        _mm512_cmpge_epi32_mask(largest, floor) != 0
    });

    screen!(i64_avx512, "avx512f,avx512bw,avx512vl,avx512dq", i64, 8 x 8,
    load |p: *const i64| _mm512_loadu_si512(p.cast()),
    splat |x| _mm512_set1_epi64(x),
    excess |x, _: *const i64, offset| _mm512_sub_epi64(x, offset),
    larger |a, b| _mm512_max_epi64(a, b),
    any |largest, p: *const i64, base| {
        let floor = _mm512_sub_epi64(_mm512_loadu_si512(p.cast()), _mm512_set1_epi64(base));
        _mm512_cmpge_epi64_mask(largest, floor) != 0
    });

    screen!(f64_avx512, "avx512f,avx512bw,avx512vl,avx512dq", f64, 8 x 8,
    load |p: *const f64| _mm512_loadu_pd(p),
    splat |x| _mm512_set1_pd(x),
    excess |x, y: *const f64, offset| _mm512_sub_pd(_mm512_sub_pd(x, _mm512_loadu_pd(y)), offset),
    larger |a, b| _mm512_max_pd(a, b),
    any |largest, _: *const f64, _: f64| {
        _mm512_cmp_pd_mask::<_CMP_GE_OQ>(largest, _mm512_setzero_pd()) != 0
    });

    screen!(i32_avx2, "avx2,fma", i32, 8 x 8,
    load |p: *const i32| _mm256_loadu_si256(p.cast()),
    splat |x| _mm256_set1_epi32(x),
    excess |x, _: *const i32, offset| _mm256_sub_epi32(x, offset),
    larger |a, b| _mm256_max_epi32(a, b),
    any |largest, p: *const i32, base| {
        let floor = _mm256_sub_epi32(_mm256_loadu_si256(p.cast()), _mm256_set1_epi32(base));
        _mm256_movemask_epi8(_mm256_cmpgt_epi32(floor, largest)) != -1
    });

    screen!(i64_avx2, "avx2,fma", i64, 8 x 4,
    load |p: *const i64| _mm256_loadu_si256(p.cast()),
    splat |x| _mm256_set1_epi64x(x),
    excess |x, _: *const i64, offset| _mm256_sub_epi64(x, offset),
    larger |a, b| _mm256_blendv_epi8(a, b, _mm256_cmpgt_epi64(b, a)),
    any |largest, p: *const i64, base| {
        let floor = _mm256_sub_epi64(_mm256_loadu_si256(p.cast()), _mm256_set1_epi64x(base));
        _mm256_movemask_epi8(_mm256_cmpgt_epi64(floor, largest)) != -1
    });

    screen!(f64_avx2, "avx2,fma", f64, 8 x 4,
    load |p: *const f64| _mm256_loadu_pd(p),
    splat |x| _mm256_set1_pd(x),
    excess |x, y: *const f64, offset| _mm256_sub_pd(_mm256_sub_pd(x, _mm256_loadu_pd(y)), offset),
    larger |a, b| _mm256_max_pd(a, b),
    any |largest, _: *const f64, _: f64| {
        _mm256_movemask_pd(_mm256_cmp_pd::<_CMP_GE_OQ>(largest, _mm256_setzero_pd())) != 0
    });
}
