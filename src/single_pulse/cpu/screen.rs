//! Screen with `std::arch` intrinsics: holds the running maxima in registers, where the compiler would spill them to
//! memory.
//!
//! Invariant: flags exactly the blocks that the portable body flags.
#![allow(unsafe_code)]

use std::arch::x86_64::*;

use super::kernels::{Boxes, Sum};
use crate::single_pulse::plan::BLOCK;

/// Returns whether every load of `blocks` blocks lies in the prefix sums.
fn fits<S>(boxes: &Boxes<S>, blocks: usize) -> bool {
    let widest = boxes.boxcars.iter().map(|(width, _)| *width).max().unwrap_or(0);
    blocks == 0 || blocks * BLOCK + widest <= boxes.prefix.len()
}

/// Defines a screen for one type and level: `$vectors` vectors of `$lanes` starts at a time.
macro_rules! screen {
    ($name:ident, $features:literal, $type:ty, $vectors:literal x $lanes:literal,
     load $load:expr, splat $splat:expr, excess $excess:expr, keep $keep:expr, any $any:expr) => {
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
                                let (x, y) = ($load(later.add(k * $lanes)), first.add(k * $lanes));
                                *largest = $keep(*largest, $excess(x, y, offset));
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
keep |a, b| _mm512_max_epi32(a, b),
any |largest, p: *const i32, base| {
    let floor = _mm512_sub_epi32(_mm512_loadu_si512(p.cast()), _mm512_set1_epi32(base));
    _mm512_cmpge_epi32_mask(largest, floor) != 0
});

screen!(i64_avx512, "avx512f,avx512bw,avx512vl,avx512dq", i64, 8 x 8,
load |p: *const i64| _mm512_loadu_si512(p.cast()),
splat |x| _mm512_set1_epi64(x),
excess |x, _: *const i64, offset| _mm512_sub_epi64(x, offset),
keep |a, b| _mm512_max_epi64(a, b),
any |largest, p: *const i64, base| {
    let floor = _mm512_sub_epi64(_mm512_loadu_si512(p.cast()), _mm512_set1_epi64(base));
    _mm512_cmpge_epi64_mask(largest, floor) != 0
});

screen!(f64_avx512, "avx512f,avx512bw,avx512vl,avx512dq", f64, 8 x 8,
load |p: *const f64| _mm512_loadu_pd(p),
splat |x| _mm512_set1_pd(x),
excess |x, y: *const f64, offset| _mm512_sub_pd(_mm512_sub_pd(x, _mm512_loadu_pd(y)), offset),
keep |a, b| _mm512_max_pd(a, b),
any |largest, _: *const f64, _: f64| {
    _mm512_cmp_pd_mask::<_CMP_GE_OQ>(largest, _mm512_setzero_pd()) != 0
});

screen!(i32_avx2, "avx2,fma", i32, 8 x 8,
load |p: *const i32| _mm256_loadu_si256(p.cast()),
splat |x| _mm256_set1_epi32(x),
excess |x, _: *const i32, offset| _mm256_sub_epi32(x, offset),
keep |a, b| _mm256_max_epi32(a, b),
any |largest, p: *const i32, base| {
    let floor = _mm256_sub_epi32(_mm256_loadu_si256(p.cast()), _mm256_set1_epi32(base));
    _mm256_movemask_epi8(_mm256_cmpgt_epi32(floor, largest)) != -1
});

screen!(i64_avx2, "avx2,fma", i64, 8 x 4,
load |p: *const i64| _mm256_loadu_si256(p.cast()),
splat |x| _mm256_set1_epi64x(x),
excess |x, _: *const i64, offset| _mm256_sub_epi64(x, offset),
keep |a, b| _mm256_blendv_epi8(a, b, _mm256_cmpgt_epi64(b, a)),
any |largest, p: *const i64, base| {
    let floor = _mm256_sub_epi64(_mm256_loadu_si256(p.cast()), _mm256_set1_epi64x(base));
    _mm256_movemask_epi8(_mm256_cmpgt_epi64(floor, largest)) != -1
});

screen!(f64_avx2, "avx2,fma", f64, 8 x 4,
load |p: *const f64| _mm256_loadu_pd(p),
splat |x| _mm256_set1_pd(x),
excess |x, y: *const f64, offset| _mm256_sub_pd(_mm256_sub_pd(x, _mm256_loadu_pd(y)), offset),
keep |a, b| _mm256_max_pd(a, b),
any |largest, _: *const f64, _: f64| {
    _mm256_movemask_pd(_mm256_cmp_pd::<_CMP_GE_OQ>(largest, _mm256_setzero_pd())) != 0
});
