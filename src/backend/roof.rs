//! Measured peak rates (roofs, as in the roofline model) of a machine for the operations of the stages.
//!
//! Invariant: each call measures its rate; no rate is stored.
#![allow(unsafe_code)]

use std::hint::black_box;
use std::time::Instant;

use super::simd::Level;
use super::threads::Threads;

/// Bytes of the loops' data: half of the smallest L1 cache in use.
const BYTES: usize = 16 * 1024;

/// Data aligned to cache lines.
#[derive(Clone)]
#[repr(C, align(64))]
struct Data([u8; BYTES]);

/// Measures, for about `seconds`, the bytes per second that `threads` threads can add into exact 16-bit sums in the
/// L1 cache. Each vector takes one load, one add, one shift and one add, the minimum for brute-force dedispersion.
pub fn byte_adds(level: Level, threads: &Threads, seconds: f64) -> f64 {
    let mut work = vec![Data([1; BYTES]); threads.count()];
    let mut scratch = vec![(); threads.count()];
    // Long enough to make the cost of waking the threads negligible.
    let repeats = 2048;
    let (mut best, start) = (0f64, Instant::now());
    while best == 0.0 || start.elapsed().as_secs_f64() < seconds {
        for narrow in [false, true] {
            let began = Instant::now();
            threads.for_each_chunk(&mut scratch, &mut work, 1, |(), _, data| {
                black_box(add(level, narrow, black_box(&data[0]), repeats));
            });
            let bytes = BYTES * repeats * threads.count();
            best = best.max(bytes as f64 / began.elapsed().as_secs_f64());
        }
    }
    best
}

/// Measures the bytes per second, read and written, of copies of `bytes` bytes on one thread.
pub fn copy_bytes(bytes: usize, seconds: f64) -> f64 {
    let source = vec![1u8; bytes];
    let mut copy = vec![0u8; bytes];
    let (mut best, start) = (0f64, Instant::now());
    while best == 0.0 || start.elapsed().as_secs_f64() < seconds {
        let began = Instant::now();
        copy.copy_from_slice(black_box(&source));
        black_box(&mut copy);
        best = best.max(2.0 * bytes as f64 / began.elapsed().as_secs_f64());
    }
    best
}

/// Measures the bytes per second, read and written, of one copy with ordinary stores on all threads of the pool.
///
/// # Panics
/// If the lengths differ.
pub fn copy(from: &[u8], to: &mut [u8], threads: &Threads) -> f64 {
    /// Large enough that threads do not interfere with each other.
    const CHUNK: usize = 1 << 17;
    /// Small enough that `memcpy` does not use non-temporal stores.
    const ORDINARY: usize = 1 << 12;
    assert_eq!(from.len(), to.len(), "a copy is as long as what is copied");
    let mut scratch = vec![(); threads.count()];
    let bytes = 2.0 * from.len() as f64;
    let began = Instant::now();
    threads.for_each_chunk(&mut scratch, to, CHUNK, |(), index, to| {
        let from = &from[index * CHUNK..][..to.len()];
        for (to, from) in to.chunks_mut(ORDINARY).zip(from.chunks(ORDINARY)) {
            to.copy_from_slice(black_box(from));
        }
    });
    bytes / began.elapsed().as_secs_f64()
}

/// Measures, for about `seconds`, the single-precision multiply-adds per second on all threads with all operands in
/// registers.
pub fn multiply_adds(level: Level, threads: &Threads, seconds: f64) -> f64 {
    most_a_second(threads, seconds, || {
        let (sum, multiply_adds) = multiply_add(level, black_box(1 << 14));
        black_box(sum);
        multiply_adds
    })
}

/// Returns the highest total count per second of `work` on all threads.
fn most_a_second(threads: &Threads, seconds: f64, work: impl Fn() -> usize + Sync) -> f64 {
    let mut counts = vec![0; threads.count()];
    let mut scratch = vec![(); threads.count()];
    let (mut best, start) = (0f64, Instant::now());
    while best == 0.0 || start.elapsed().as_secs_f64() < seconds {
        let began = Instant::now();
        threads.for_each_chunk(&mut scratch, &mut counts, 1, |(), _, count| {
            count[0] = work();
        });
        let all: usize = counts.iter().sum();
        best = best.max(all as f64 / began.elapsed().as_secs_f64());
    }
    best
}

/// Returns the sum of the accumulators after `repeats` steps, and the number of multiply-adds.
fn multiply_add(level: Level, repeats: usize) -> (f32, usize) {
    match level {
        // SAFETY: holding a level proves that its instructions exist.
        #[cfg(target_arch = "x86_64")]
        Level::Avx512(_) => (unsafe { x86::multiply_add_512(repeats) }, 16 * 16 * repeats),
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Level::Avx2(_) => (unsafe { x86::multiply_add_256(repeats) }, 12 * 8 * repeats),
        _ => {
            let mut sums = [1f32; 32];
            let (a, b) = (black_box(0.999f32), black_box(1e-3f32));
            for _ in 0..repeats {
                sums = sums.map(|sum| sum * a + b);
            }
            (sums.iter().sum(), 32 * repeats)
        }
    }
}

/// Measures, for about `seconds`, the multiply-adds per second of 8-bit integers into exact 32-bit sums on all
/// threads, with all operands in registers: four products per lane with AVX-512 VNNI, otherwise two of 16-bit
/// integers.
pub fn integer_multiply_adds(level: Level, threads: &Threads, seconds: f64) -> f64 {
    most_a_second(threads, seconds, || {
        let (sum, multiply_adds) = integer_multiply_add(level, black_box(1 << 14));
        black_box(sum);
        multiply_adds
    })
}

/// Like [`multiply_add`], for integers.
fn integer_multiply_add(level: Level, repeats: usize) -> (i32, usize) {
    match level {
        #[cfg(target_arch = "x86_64")]
        Level::Avx512(found) if found.vnni() => {
            // SAFETY: holding a level proves that its instructions exist.
            (unsafe { x86::bytes_512(repeats) }, 16 * 64 * repeats)
        }
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Level::Avx512(_) => (unsafe { x86::shorts_512(repeats) }, 12 * 32 * repeats),
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Level::Avx2(_) => (unsafe { x86::shorts_256(repeats) }, 12 * 16 * repeats),
        _ => {
            let mut sums = [1i32; 32];
            let (a, b) = (black_box(3i16), black_box([5i16; 64]));
            for _ in 0..repeats {
                for (sum, b) in sums.iter_mut().zip(black_box(&b).chunks_exact(2)) {
                    let products = b.iter().map(|b| i32::from(*b) * i32::from(a));
                    *sum = sum.wrapping_add(products.sum());
                }
            }
            (sums.iter().fold(0, |a, b| a ^ b), 64 * repeats)
        }
    }
}

/// Adds all bytes `repeats` times; `narrow` selects half-width vectors if there are two widths.
fn add(level: Level, narrow: bool, data: &Data, repeats: usize) -> u64 {
    match level {
        // SAFETY: holding a level proves that its instructions exist.
        #[cfg(target_arch = "x86_64")]
        Level::Avx512(_) if !narrow => unsafe { x86::add_512(data, repeats) },
        // SAFETY: as above; AVX-512 VL includes AVX2.
        #[cfg(target_arch = "x86_64")]
        Level::Avx512(_) | Level::Avx2(_) => unsafe { x86::add_256(data, repeats) },
        _ => add_portable(data, repeats),
    }
}

/// Like [`add`], in portable code that the compiler vectorizes.
fn add_portable(data: &Data, repeats: usize) -> u64 {
    let words: &[u16] = bytemuck::cast_slice(&data.0);
    let (mut low, mut high) = ([0u16; 32], [0u16; 32]);
    for _ in 0..repeats {
        for words in black_box(words).chunks_exact(32) {
            for k in 0..32 {
                low[k] = low[k].wrapping_add(words[k]);
                high[k] = high[k].wrapping_add(words[k] >> 8);
            }
        }
    }
    low.iter().zip(&high).map(|(a, b)| u64::from(a ^ b)).sum()
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;
    use std::hint::black_box;

    use super::{BYTES, Data};

    macro_rules! add {
        ($name:ident, $features:literal, $vectors:literal, $bytes:literal, $zero:ident, $load:ident,
         $add:ident, $shift:ident, $xor:ident, $store:ident) => {
            #[target_feature(enable = $features)]
            pub(super) unsafe fn $name(data: &Data, repeats: usize) -> u64 {
                let (mut low, mut high) = ([$zero(); $vectors], [$zero(); $vectors]);
                for _ in 0..repeats {
                    let data = black_box(data).0.as_ptr();
                    for start in (0..BYTES).step_by($vectors * $bytes) {
                        for k in 0..$vectors {
                            // SAFETY: the data are a whole number of such steps.
                            let bytes = unsafe { $load(data.add(start + k * $bytes).cast()) };
                            low[k] = $add(low[k], bytes);
                            high[k] = $add(high[k], $shift::<8>(bytes));
                        }
                    }
                }
                let both = low.iter().zip(&high).map(|(a, b)| $xor(*a, *b));
                let sum = both.fold($zero(), |a, b| $add(a, b));
                let mut lanes = [0u64; 8];
                // SAFETY: the lanes hold a vector.
                unsafe { $store(lanes.as_mut_ptr().cast(), sum) };
                lanes.iter().fold(0, |a, b| a.wrapping_add(*b))
            }
        };
    }

    macro_rules! multiply_add {
        ($name:ident, $features:literal, $vectors:literal, $set:ident, $add:ident, $mul_add:ident,
         $store:ident) => {
            #[target_feature(enable = $features)]
            pub(super) unsafe fn $name(repeats: usize) -> f32 {
                let mut sums = [$set(1.0); $vectors];
                let (a, b) = ($set(black_box(0.999)), $set(black_box(1e-3)));
                for _ in 0..repeats {
                    for sum in &mut sums {
                        *sum = $mul_add(*sum, a, b);
                    }
                }
                let sum = sums.iter().fold($set(0.0), |a, b| $add(a, *b));
                let mut lanes = [0f32; 16];
                // SAFETY: the lanes hold a vector.
                unsafe { $store(lanes.as_mut_ptr(), sum) };
                lanes.iter().sum()
            }
        };
    }

    // The 16-bit variants multiply by the sums themselves, because the compiler would compute a constant product only
    // once.
    macro_rules! integer_multiply_add {
        ($name:ident, $features:literal, $vectors:literal, $set:ident, $xor:ident, $store:ident,
         |$sum:ident, $a:ident, $b:ident| $step:expr) => {
            #[target_feature(enable = $features)]
            pub(super) unsafe fn $name(repeats: usize) -> i32 {
                let mut sums = [$set(1); $vectors];
                let ($a, $b) = ($set(black_box(0x0102_0304)), $set(black_box(0x0506_0708)));
                for _ in 0..repeats {
                    for sum in &mut sums {
                        let $sum = *sum;
                        *sum = $step;
                    }
                }
                let sum = sums.iter().fold($set(0), |a, b| $xor(a, *b));
                let mut lanes = [0i32; 16];
                // SAFETY: the lanes hold a vector.
                unsafe { $store(lanes.as_mut_ptr().cast(), sum) };
                lanes.iter().fold(0, |a, b| a ^ b)
            }
        };
    }

    integer_multiply_add!(
        bytes_512,
        "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni",
        16,
        _mm512_set1_epi32,
        _mm512_xor_si512,
        _mm512_storeu_si512,
        |sum, a, b| _mm512_dpbusd_epi32(sum, a, b)
    );
    integer_multiply_add!(
        shorts_512,
        "avx512f,avx512bw,avx512vl,avx512dq",
        12,
        _mm512_set1_epi32,
        _mm512_xor_si512,
        _mm512_storeu_si512,
        |sum, a, _b| _mm512_add_epi32(sum, _mm512_madd_epi16(a, sum))
    );
    integer_multiply_add!(
        shorts_256,
        "avx2,fma",
        12,
        _mm256_set1_epi32,
        _mm256_xor_si256,
        _mm256_storeu_si256,
        |sum, a, _b| _mm256_add_epi32(sum, _mm256_madd_epi16(a, sum))
    );

    multiply_add!(
        multiply_add_256,
        "avx2,fma",
        12,
        _mm256_set1_ps,
        _mm256_add_ps,
        _mm256_fmadd_ps,
        _mm256_storeu_ps
    );
    multiply_add!(
        multiply_add_512,
        "avx512f,avx512bw,avx512vl,avx512dq",
        16,
        _mm512_set1_ps,
        _mm512_add_ps,
        _mm512_fmadd_ps,
        _mm512_storeu_ps
    );

    add!(
        add_256,
        "avx2",
        4,
        32,
        _mm256_setzero_si256,
        _mm256_load_si256,
        _mm256_add_epi16,
        _mm256_srli_epi16,
        _mm256_xor_si256,
        _mm256_storeu_si256
    );
    add!(
        add_512,
        "avx512f,avx512bw",
        8,
        64,
        _mm512_setzero_si512,
        _mm512_load_si512,
        _mm512_add_epi16,
        _mm512_srli_epi16,
        _mm512_xor_si512,
        _mm512_storeu_si512
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_level_adds_the_same_bytes() {
        let data = Data(std::array::from_fn(|i| (i * 7) as u8));
        let words: &[u16] = bytemuck::cast_slice(&data.0);
        assert_eq!(words.len(), BYTES / 2);
        for level in Level::available() {
            assert!(byte_adds(level, &Threads::new(1), 0.0) > 0.0);
            assert!(multiply_adds(level, &Threads::new(1), 0.0) > 0.0);
            assert!(integer_multiply_adds(level, &Threads::new(1), 0.0) > 0.0);
        }
        assert!(copy_bytes(1 << 16, 0.0) > 0.0);
        let (from, mut to) = (vec![7u8; 300_000], vec![0u8; 300_000]);
        assert!(copy(&from, &mut to, &Threads::new(2)) > 0.0 && from == to);
    }
}
