//! Vector registers of every SIMD level behind one trait, and the dispatch of generic code on the level.
//!
//! A kernel is a function `unsafe fn body<V: Vector>(...)`, marked `#[inline(always)]`; [`levels!`] defines a function
//! that takes a [`Level`](super::simd::Level) first and runs the body compiled with that level's instructions:
//!
//! ```ignore
//! levels!(scale, scale_body, (factor: f32, values: *mut f32, registers: usize));
//!
//! /// # Safety
//! /// The level's instructions exist, and `values` has `registers` registers.
//! #[inline(always)]
//! unsafe fn scale_body<V: Vector>(factor: f32, values: *mut f32, registers: usize) {
//!     for i in 0..registers {
//!         // SAFETY: the caller upholds this function's contract.
//!         unsafe {
//!             let to = values.add(i * V::LANES);
//!             V::load(to).mul(V::splat(factor)).store(to);
//!         }
//!     }
//! }
//! ```
//!
//! Operations of a single stage belong to a trait of that stage (`trait Filter: Vector`), implemented for
//! [`Portable`], [`Avx2`] and [`Avx512`], whose fields are visible in the crate.
#![allow(unsafe_code)]

#[cfg(target_arch = "x86_64")]
pub(crate) use x86::{Avx2, Avx512};

/// Maximum number of lanes.
pub(crate) const MAX_LANES: usize = 16;

/// Returns the number of lanes of a level's registers.
pub(crate) fn lanes(level: super::simd::Level) -> usize {
    match level {
        super::simd::Level::Avx512(_) => 16,
        _ => 8,
    }
}

/// Register of 32-bit lanes. Plain names mean single-precision floats; a suffix is the width of integers in bits.
/// Lanes mix only in the operations that are named for it.
///
/// # Safety
/// Methods may be called only if the CPU has the level's instructions; pointers, of any type, must be valid for the
/// bytes that a method reads or writes.
pub(crate) unsafe trait Vector: Copy {
    /// Number of 32-bit lanes: 8 or 16.
    const LANES: usize;
    /// Bytes of the register.
    const BYTES: usize = 4 * Self::LANES;

    unsafe fn load<T>(from: *const T) -> Self;
    unsafe fn store<T>(self, to: *mut T);
    /// Stores without caching (non-temporal); `to` must be aligned to the register's size. See [`fence`].
    unsafe fn stream<T>(self, to: *mut T);
    /// Loads half a register of bytes, zero-extended to 16 bits.
    unsafe fn widen_8_to_16(from: *const u8) -> Self;
    /// Loads half a register of 16-bit integers, zero-extended to 32 bits.
    unsafe fn widen_16_to_32(from: *const u8) -> Self;
    /// Loads a quarter of a register of bytes, zero-extended to 32 bits.
    unsafe fn widen_8_to_32(from: *const u8) -> Self;
    unsafe fn splat(value: f32) -> Self;
    unsafe fn splat_32(value: u32) -> Self;

    unsafe fn add(self, other: Self) -> Self;
    unsafe fn sub(self, other: Self) -> Self;
    unsafe fn mul(self, other: Self) -> Self;
    /// Computes `self * b + c`, with one rounding if the level has fused multiply-add.
    unsafe fn mul_add(self, b: Self, c: Self) -> Self;
    /// Computes `c - self * b`, with one rounding if the level has fused multiply-add.
    unsafe fn neg_mul_add(self, b: Self, c: Self) -> Self;
    unsafe fn add_8(self, other: Self) -> Self;
    unsafe fn add_16(self, other: Self) -> Self;
    unsafe fn add_32(self, other: Self) -> Self;
    unsafe fn sub_16(self, other: Self) -> Self;
    unsafe fn sub_32(self, other: Self) -> Self;
    unsafe fn xor(self, other: Self) -> Self;
    /// Shifts 16-bit integers right by 8 bits.
    unsafe fn high_8(self) -> Self;
    /// Shifts 16-bit integers left by 8 bits.
    unsafe fn up_8(self) -> Self;
    /// Shifts 32-bit integers right by 16 bits.
    unsafe fn high_16(self) -> Self;
    /// Shifts 32-bit integers left by 16 bits.
    unsafe fn up_16(self) -> Self;
    /// Converts a signed field of 32-bit integers to floats: shifts left by `LEFT` bits, then arithmetically right by
    /// `RIGHT` bits.
    unsafe fn field<const LEFT: u32, const RIGHT: u32>(self) -> Self;

    /// Reverses the lanes.
    unsafe fn reverse(self) -> Self;
    /// Interleaves the lanes of both registers; returns the first half and the second.
    unsafe fn interleave(self, other: Self) -> (Self, Self);
    /// Returns the even and the odd lanes of both registers: the inverse of `interleave`.
    unsafe fn deinterleave(self, other: Self) -> (Self, Self);
    /// Interleaves the 16-bit integers of both registers; returns the first half and the second.
    unsafe fn interleave_16(self, other: Self) -> (Self, Self);
    /// Interleaves the bytes of both registers within each 128 bits: of the low halves, and of the high halves.
    unsafe fn unpack_8(self, other: Self) -> (Self, Self);
    /// Like [`Vector::unpack_8`], for 16-bit integers.
    unsafe fn unpack_16(self, other: Self) -> (Self, Self);
    /// Returns the lower and the upper half of the 16-bit integers, zero-extended to 32 bits.
    unsafe fn halves_16(self) -> (Self, Self);
    /// Transposes each square of [`Vector::LANES`] registers.
    unsafe fn transpose(rows: &mut [Self; 16]);
}

/// Cache line.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([f32; 16]);

/// Zero-initialized floats aligned to a cache line.
#[derive(Clone)]
pub(crate) struct Floats {
    lines: Vec<Line>,
}

impl std::fmt::Debug for Floats {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} lines", self.lines.len())
    }
}

// SAFETY: a line is an array of floats.
unsafe impl bytemuck::Zeroable for Line {}
// SAFETY: a line is an array of floats without padding.
unsafe impl bytemuck::Pod for Line {}

impl Floats {
    /// Returns `floats` zeros.
    pub(crate) fn new(floats: usize) -> Self {
        Self { lines: vec![Line([0.0; 16]); floats.div_ceil(16)] }
    }

    /// Returns all values, up to the end of the last cache line.
    pub(crate) fn values(&self) -> &[f32] {
        bytemuck::cast_slice(&self.lines)
    }

    /// Returns all values, mutably.
    pub(crate) fn values_mut(&mut self) -> &mut [f32] {
        bytemuck::cast_slice_mut(&mut self.lines)
    }
}

/// Prefetches the cache line of an address, which need not be valid, into all cache levels.
#[inline(always)]
pub(crate) fn prefetch<T>(from: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch is a hint, valid for any address.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(from.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = from;
}

/// Like [`prefetch`], into the second cache level and beyond.
#[inline(always)]
pub(crate) fn prefetch_l2<T>(from: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: as above.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T1 }>(from.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = from;
}

/// Orders [`Vector::stream`] before later stores.
#[inline(always)]
pub(crate) fn fence() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 has the instruction.
    unsafe {
        std::arch::x86_64::_mm_sfence();
    }
}

/// Defines a function that dispatches on the level to a generic body, which is inlined into functions compiled with
/// the level's instructions.
macro_rules! levels {
    ($name:ident, $body:ident, ($($argument:ident: $type:ty),* $(,)?)) => {
        /// # Safety
        /// Same requirements as for the body.
        pub(super) unsafe fn $name(level: $crate::backend::simd::Level, $($argument: $type),*) {
            #[cfg(target_arch = "x86_64")]
            {
                use $crate::backend::simd::Level;
                #[target_feature(enable = "avx2,fma")]
                unsafe fn avx2($($argument: $type),*) {
                    // SAFETY: forwards the caller's guarantee.
                    unsafe { $body::<$crate::backend::vector::Avx2>($($argument),*) }
                }
                #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
                unsafe fn avx512($($argument: $type),*) {
                    // SAFETY: forwards the caller's guarantee.
                    unsafe { $body::<$crate::backend::vector::Avx512>($($argument),*) }
                }
                match level {
                    // SAFETY: holding the level is the proof that its instructions exist.
                    Level::Avx512(_) => return unsafe { avx512($($argument),*) },
                    // SAFETY: as above.
                    Level::Avx2(_) => return unsafe { avx2($($argument),*) },
                    Level::Portable => {}
                }
            }
            let _ = level;
            // SAFETY: forwards the caller's guarantee; plain arrays need no special instructions.
            unsafe { $body::<$crate::backend::vector::Portable>($($argument),*) }
        }
    };
}
pub(crate) use levels;

/// Plain arrays that the compiler vectorizes.
#[derive(Clone, Copy)]
pub(crate) struct Portable(pub(crate) [f32; 8]);

/// Defines methods that apply a function to the elements of two registers.
macro_rules! elements {
    ($($name:ident: $element:ty, $count:literal;)*) => {$(
        #[inline(always)]
        fn $name(self, other: Self, f: impl Fn($element, $element) -> $element) -> Self {
            let a: [$element; $count] = bytemuck::cast(self.0);
            let b: [$element; $count] = bytemuck::cast(other.0);
            Self(bytemuck::cast(std::array::from_fn::<$element, $count, _>(|i| f(a[i], b[i]))))
        }
    )*};
}

impl Portable {
    elements! { bytes: u8, 32; words: u16, 16; doubles: u32, 8; }

    #[inline(always)]
    fn floats(self, other: Self, f: impl Fn(f32, f32) -> f32) -> Self {
        let mut result = self.0;
        for (a, b) in result.iter_mut().zip(other.0) {
            *a = f(*a, b);
        }
        Self(result)
    }

    /// Interleaves the elements of both registers within each 128 bits: of the low halves, and of the high halves.
    #[inline(always)]
    fn unpack<T: bytemuck::AnyBitPattern + bytemuck::NoUninit, const COUNT: usize>(
        self,
        other: Self,
    ) -> (Self, Self)
    where
        [T; COUNT]: bytemuck::Pod,
    {
        let (a, b): ([T; COUNT], [T; COUNT]) = (bytemuck::cast(self.0), bytemuck::cast(other.0));
        let (block, half) = (COUNT / 2, COUNT / 4);
        let part = |start: usize| {
            let value = |i: usize| {
                let at = i / block * block + start + i % block / 2;
                if i.is_multiple_of(2) { a[at] } else { b[at] }
            };
            Self(bytemuck::cast(std::array::from_fn::<T, COUNT, _>(value)))
        };
        (part(0), part(half))
    }
}

/// Defines methods that apply a function of two elements.
macro_rules! binary {
    ($($name:ident = $elements:ident $f:expr;)*) => {$(
        #[inline(always)]
        unsafe fn $name(self, other: Self) -> Self {
            self.$elements(other, $f)
        }
    )*};
}

/// Defines methods that apply a function of one element.
macro_rules! unary {
    ($($name:ident = $elements:ident $f:expr;)*) => {$(
        #[inline(always)]
        unsafe fn $name(self) -> Self {
            self.$elements(self, $f)
        }
    )*};
}

// SAFETY: requires only valid pointers, which callers guarantee.
unsafe impl Vector for Portable {
    const LANES: usize = 8;
    #[inline(always)]
    unsafe fn load<T>(from: *const T) -> Self {
        // SAFETY: the caller guarantees 32 readable bytes.
        Self(unsafe { from.cast::<[f32; 8]>().read_unaligned() })
    }
    #[inline(always)]
    unsafe fn store<T>(self, to: *mut T) {
        // SAFETY: the caller guarantees 32 writable bytes.
        unsafe { to.cast::<[f32; 8]>().write_unaligned(self.0) }
    }
    #[inline(always)]
    unsafe fn stream<T>(self, to: *mut T) {
        // SAFETY: as for `store`.
        unsafe { self.store(to) }
    }
    #[inline(always)]
    unsafe fn widen_8_to_16(from: *const u8) -> Self {
        // SAFETY: the caller guarantees 16 readable bytes.
        let half = unsafe { from.cast::<[u8; 16]>().read_unaligned() };
        Self(bytemuck::cast(half.map(u16::from)))
    }
    #[inline(always)]
    unsafe fn widen_16_to_32(from: *const u8) -> Self {
        // SAFETY: the caller guarantees 16 readable bytes.
        let half = unsafe { from.cast::<[u16; 8]>().read_unaligned() };
        Self(bytemuck::cast(half.map(u32::from)))
    }
    #[inline(always)]
    unsafe fn widen_8_to_32(from: *const u8) -> Self {
        // SAFETY: the caller guarantees 8 readable bytes.
        let quarter = unsafe { from.cast::<[u8; 8]>().read_unaligned() };
        Self(bytemuck::cast(quarter.map(u32::from)))
    }
    #[inline(always)]
    unsafe fn splat(value: f32) -> Self {
        Self([value; 8])
    }
    #[inline(always)]
    unsafe fn splat_32(value: u32) -> Self {
        Self(bytemuck::cast([value; 8]))
    }
    binary! {
        add = floats |a, b| a + b;
        sub = floats |a, b| a - b;
        mul = floats |a, b| a * b;
        add_8 = bytes u8::wrapping_add;
        add_16 = words u16::wrapping_add;
        add_32 = doubles u32::wrapping_add;
        sub_16 = words u16::wrapping_sub;
        sub_32 = doubles u32::wrapping_sub;
        xor = doubles |a, b| a ^ b;
    }
    unary! {
        high_8 = words |a, _| a >> 8;
        up_8 = words |a, _| a << 8;
        high_16 = doubles |a, _| a >> 16;
        up_16 = doubles |a, _| a << 16;
    }
    #[inline(always)]
    unsafe fn mul_add(self, b: Self, c: Self) -> Self {
        self.floats(b, |a, b| a * b).floats(c, |a, c| a + c)
    }
    #[inline(always)]
    unsafe fn neg_mul_add(self, b: Self, c: Self) -> Self {
        self.floats(b, |a, b| a * b).floats(c, |a, c| c - a)
    }
    #[inline(always)]
    unsafe fn field<const LEFT: u32, const RIGHT: u32>(self) -> Self {
        let words: [i32; 8] = bytemuck::cast(self.0);
        Self(words.map(|word| ((word << LEFT) >> RIGHT) as f32))
    }
    #[inline(always)]
    unsafe fn reverse(self) -> Self {
        let [a, b, c, d, e, f, g, h] = self.0;
        Self([h, g, f, e, d, c, b, a])
    }
    #[inline(always)]
    unsafe fn interleave(self, other: Self) -> (Self, Self) {
        let (a, b) = (self.0, other.0);
        (
            Self([a[0], b[0], a[1], b[1], a[2], b[2], a[3], b[3]]),
            Self([a[4], b[4], a[5], b[5], a[6], b[6], a[7], b[7]]),
        )
    }
    #[inline(always)]
    unsafe fn deinterleave(self, other: Self) -> (Self, Self) {
        let (a, b) = (self.0, other.0);
        (
            Self([a[0], a[2], a[4], a[6], b[0], b[2], b[4], b[6]]),
            Self([a[1], a[3], a[5], a[7], b[1], b[3], b[5], b[7]]),
        )
    }
    #[inline(always)]
    unsafe fn interleave_16(self, other: Self) -> (Self, Self) {
        let (a, b): ([u16; 16], [u16; 16]) = (bytemuck::cast(self.0), bytemuck::cast(other.0));
        let word = |i: usize| if i.is_multiple_of(2) { a[i / 2] } else { b[i / 2] };
        let half = |start| std::array::from_fn::<u16, 16, _>(|i| word(start + i));
        (Self(bytemuck::cast(half(0))), Self(bytemuck::cast(half(16))))
    }
    #[inline(always)]
    unsafe fn unpack_8(self, other: Self) -> (Self, Self) {
        self.unpack::<u8, 32>(other)
    }
    #[inline(always)]
    unsafe fn unpack_16(self, other: Self) -> (Self, Self) {
        self.unpack::<u16, 16>(other)
    }
    #[inline(always)]
    unsafe fn halves_16(self) -> (Self, Self) {
        let words: [u16; 16] = bytemuck::cast(self.0);
        let half = |start| std::array::from_fn::<u32, 8, _>(|i| u32::from(words[start + i]));
        (Self(bytemuck::cast(half(0))), Self(bytemuck::cast(half(8))))
    }
    #[inline(always)]
    unsafe fn transpose(rows: &mut [Self; 16]) {
        for square in rows.chunks_exact_mut(8) {
            let from: [Self; 8] = std::array::from_fn(|i| square[i]);
            for (i, row) in square.iter_mut().enumerate() {
                row.0 = from.map(|row| row.0[i]);
            }
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use super::Vector;

    /// Register of 256 bits.
    #[derive(Clone, Copy)]
    pub(crate) struct Avx2(pub(crate) __m256);

    /// Register of 512 bits.
    #[derive(Clone, Copy)]
    pub(crate) struct Avx512(pub(crate) __m512);

    /// Defines the methods that are the same instructions at both widths.
    macro_rules! common {
        (
            floats($to_float:ident, $to_integer:ident),
            load($load:ident, $store:ident, $stream:ident, $splat:ident, $splat_32:ident),
            half($half:ident, $widen_8:ident, $widen_16:ident),
            quarter($quarter:ident, $widen_quarter:ident),
            split($low_half:ident, $high_half:ident),
            binary[$($binary:ident = $instruction:ident),*],
            fused[$($fused:ident = $fusing:ident),*],
            integer[$($integer:ident = $combine:ident),*],
            shift[$($shift:ident = $shifting:ident $by:literal),*],
            unpack[$($unpack:ident = $low:ident $high:ident),*]
        ) => {
            #[inline(always)]
            unsafe fn load<T>(from: *const T) -> Self {
                // SAFETY: the caller guarantees the level and the bytes.
                Self(unsafe { $load(from.cast()) })
            }
            #[inline(always)]
            unsafe fn store<T>(self, to: *mut T) {
                // SAFETY: the caller guarantees the level and the bytes.
                unsafe { $store(to.cast(), self.0) }
            }
            #[inline(always)]
            unsafe fn stream<T>(self, to: *mut T) {
                // SAFETY: the caller guarantees the level, the bytes and their alignment.
                unsafe { $stream(to.cast(), self.0) }
            }
            #[inline(always)]
            unsafe fn widen_8_to_16(from: *const u8) -> Self {
                // SAFETY: the caller guarantees the level and the bytes.
                Self(unsafe { $to_float($widen_8($half(from.cast()))) })
            }
            #[inline(always)]
            unsafe fn widen_16_to_32(from: *const u8) -> Self {
                // SAFETY: the caller guarantees the level and the bytes.
                Self(unsafe { $to_float($widen_16($half(from.cast()))) })
            }
            #[inline(always)]
            unsafe fn widen_8_to_32(from: *const u8) -> Self {
                // SAFETY: the caller guarantees the level and the bytes.
                Self(unsafe { $to_float($widen_quarter($quarter(from.cast()))) })
            }
            #[inline(always)]
            unsafe fn splat(value: f32) -> Self {
                // SAFETY: the caller guarantees the level.
                Self(unsafe { $splat(value) })
            }
            #[inline(always)]
            unsafe fn splat_32(value: u32) -> Self {
                // SAFETY: the caller guarantees the level.
                Self(unsafe { $to_float($splat_32(value.cast_signed())) })
            }
            $(
                #[inline(always)]
                unsafe fn $binary(self, other: Self) -> Self {
                    // SAFETY: the caller guarantees the level.
                    Self(unsafe { $instruction(self.0, other.0) })
                }
            )*
            $(
                #[inline(always)]
                unsafe fn $fused(self, b: Self, c: Self) -> Self {
                    // SAFETY: the caller guarantees the level.
                    Self(unsafe { $fusing(self.0, b.0, c.0) })
                }
            )*
            $(
                #[inline(always)]
                unsafe fn $integer(self, other: Self) -> Self {
                    // SAFETY: the caller guarantees the level.
                    Self(unsafe {
                        $to_float($combine($to_integer(self.0), $to_integer(other.0)))
                    })
                }
            )*
            $(
                #[inline(always)]
                unsafe fn $shift(self) -> Self {
                    // SAFETY: the caller guarantees the level.
                    Self(unsafe { $to_float($shifting::<$by>($to_integer(self.0))) })
                }
            )*
            $(
                #[inline(always)]
                unsafe fn $unpack(self, other: Self) -> (Self, Self) {
                    // SAFETY: the caller guarantees the level.
                    unsafe {
                        let (a, b) = ($to_integer(self.0), $to_integer(other.0));
                        (Self($to_float($low(a, b))), Self($to_float($high(a, b))))
                    }
                }
            )*
            #[inline(always)]
            unsafe fn halves_16(self) -> (Self, Self) {
                // SAFETY: the caller guarantees the level.
                unsafe {
                    let all = $to_integer(self.0);
                    let (low, high) = ($low_half(all), $high_half::<1>(all));
                    (Self($to_float($widen_16(low))), Self($to_float($widen_16(high))))
                }
            }
        };
    }

    // SAFETY: the methods use the level's instructions, whose support the callers guarantee.
    unsafe impl Vector for Avx2 {
        const LANES: usize = 8;
        common!(
            floats(_mm256_castsi256_ps, _mm256_castps_si256),
            load(
                _mm256_loadu_ps,
                _mm256_storeu_ps,
                _mm256_stream_ps,
                _mm256_set1_ps,
                _mm256_set1_epi32
            ),
            half(_mm_loadu_si128, _mm256_cvtepu8_epi16, _mm256_cvtepu16_epi32),
            quarter(_mm_loadl_epi64, _mm256_cvtepu8_epi32),
            split(_mm256_castsi256_si128, _mm256_extracti128_si256),
            binary[add = _mm256_add_ps, sub = _mm256_sub_ps, mul = _mm256_mul_ps],
            fused[mul_add = _mm256_fmadd_ps, neg_mul_add = _mm256_fnmadd_ps],
            integer[
                add_8 = _mm256_add_epi8, add_16 = _mm256_add_epi16, add_32 = _mm256_add_epi32,
                sub_16 = _mm256_sub_epi16, sub_32 = _mm256_sub_epi32, xor = _mm256_xor_si256
            ],
            shift[
                high_8 = _mm256_srli_epi16 8, up_8 = _mm256_slli_epi16 8,
                high_16 = _mm256_srli_epi32 16, up_16 = _mm256_slli_epi32 16
            ],
            unpack[
                unpack_8 = _mm256_unpacklo_epi8 _mm256_unpackhi_epi8,
                unpack_16 = _mm256_unpacklo_epi16 _mm256_unpackhi_epi16
            ]
        );
        #[inline(always)]
        unsafe fn field<const LEFT: u32, const RIGHT: u32>(self) -> Self {
            // SAFETY: the caller guarantees the level.
            unsafe {
                let (left, right) =
                    (_mm_cvtsi32_si128(LEFT as i32), _mm_cvtsi32_si128(RIGHT as i32));
                let top = _mm256_sll_epi32(_mm256_castps_si256(self.0), left);
                Self(_mm256_cvtepi32_ps(_mm256_sra_epi32(top, right)))
            }
        }
        #[inline(always)]
        unsafe fn reverse(self) -> Self {
            // SAFETY: the caller guarantees the level.
            unsafe {
                let order = _mm256_setr_epi32(7, 6, 5, 4, 3, 2, 1, 0);
                Self(_mm256_permutevar8x32_ps(self.0, order))
            }
        }
        #[inline(always)]
        unsafe fn interleave(self, other: Self) -> (Self, Self) {
            // SAFETY: the caller guarantees the level.
            unsafe {
                let low = _mm256_unpacklo_ps(self.0, other.0);
                let high = _mm256_unpackhi_ps(self.0, other.0);
                let first = _mm256_permute2f128_ps::<0x20>(low, high);
                (Self(first), Self(_mm256_permute2f128_ps::<0x31>(low, high)))
            }
        }
        #[inline(always)]
        unsafe fn deinterleave(self, other: Self) -> (Self, Self) {
            // SAFETY: the caller guarantees the level.
            unsafe {
                let even = _mm256_castps_pd(_mm256_shuffle_ps::<0x88>(self.0, other.0));
                let odd = _mm256_castps_pd(_mm256_shuffle_ps::<0xdd>(self.0, other.0));
                let even = _mm256_castpd_ps(_mm256_permute4x64_pd::<0xd8>(even));
                (Self(even), Self(_mm256_castpd_ps(_mm256_permute4x64_pd::<0xd8>(odd))))
            }
        }
        #[inline(always)]
        unsafe fn interleave_16(self, other: Self) -> (Self, Self) {
            // SAFETY: the caller guarantees the level.
            unsafe {
                let (low, high) = self.unpack_16(other);
                let first = _mm256_permute2f128_ps::<0x20>(low.0, high.0);
                (Self(first), Self(_mm256_permute2f128_ps::<0x31>(low.0, high.0)))
            }
        }
        #[inline(always)]
        unsafe fn transpose(rows: &mut [Self; 16]) {
            // SAFETY: the caller guarantees the level.
            unsafe {
                for rows in rows.chunks_exact_mut(8) {
                    let mut pairs = [rows[0].0; 8];
                    for i in 0..4 {
                        pairs[2 * i] = _mm256_unpacklo_ps(rows[2 * i].0, rows[2 * i + 1].0);
                        pairs[2 * i + 1] = _mm256_unpackhi_ps(rows[2 * i].0, rows[2 * i + 1].0);
                    }
                    let mut fours = pairs;
                    for i in 0..2 {
                        let [a, b, c, d] = [0, 1, 2, 3].map(|k| pairs[4 * i + k]);
                        fours[4 * i] = _mm256_shuffle_ps::<0x44>(a, c);
                        fours[4 * i + 1] = _mm256_shuffle_ps::<0xee>(a, c);
                        fours[4 * i + 2] = _mm256_shuffle_ps::<0x44>(b, d);
                        fours[4 * i + 3] = _mm256_shuffle_ps::<0xee>(b, d);
                    }
                    for i in 0..4 {
                        rows[i].0 = _mm256_permute2f128_ps::<0x20>(fours[i], fours[i + 4]);
                        rows[i + 4].0 = _mm256_permute2f128_ps::<0x31>(fours[i], fours[i + 4]);
                    }
                }
            }
        }
    }

    // SAFETY: the methods use the level's instructions, whose support the callers guarantee.
    unsafe impl Vector for Avx512 {
        const LANES: usize = 16;
        common!(
            floats(_mm512_castsi512_ps, _mm512_castps_si512),
            load(
                _mm512_loadu_ps,
                _mm512_storeu_ps,
                _mm512_stream_ps,
                _mm512_set1_ps,
                _mm512_set1_epi32
            ),
            half(_mm256_loadu_si256, _mm512_cvtepu8_epi16, _mm512_cvtepu16_epi32),
            quarter(_mm_loadu_si128, _mm512_cvtepu8_epi32),
            split(_mm512_castsi512_si256, _mm512_extracti64x4_epi64),
            binary[add = _mm512_add_ps, sub = _mm512_sub_ps, mul = _mm512_mul_ps],
            fused[mul_add = _mm512_fmadd_ps, neg_mul_add = _mm512_fnmadd_ps],
            integer[
                add_8 = _mm512_add_epi8, add_16 = _mm512_add_epi16, add_32 = _mm512_add_epi32,
                sub_16 = _mm512_sub_epi16, sub_32 = _mm512_sub_epi32, xor = _mm512_xor_si512
            ],
            shift[
                high_8 = _mm512_srli_epi16 8, up_8 = _mm512_slli_epi16 8,
                high_16 = _mm512_srli_epi32 16, up_16 = _mm512_slli_epi32 16
            ],
            unpack[
                unpack_8 = _mm512_unpacklo_epi8 _mm512_unpackhi_epi8,
                unpack_16 = _mm512_unpacklo_epi16 _mm512_unpackhi_epi16
            ]
        );
        #[inline(always)]
        unsafe fn field<const LEFT: u32, const RIGHT: u32>(self) -> Self {
            // SAFETY: the caller guarantees the level.
            unsafe {
                let top = _mm512_slli_epi32::<LEFT>(_mm512_castps_si512(self.0));
                Self(_mm512_cvtepi32_ps(_mm512_srai_epi32::<RIGHT>(top)))
            }
        }
        #[inline(always)]
        unsafe fn reverse(self) -> Self {
            // SAFETY: the caller guarantees the level.
            unsafe {
                let order = _mm512_setr_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
                Self(_mm512_permutexvar_ps(order, self.0))
            }
        }
        #[inline(always)]
        unsafe fn interleave(self, other: Self) -> (Self, Self) {
            // SAFETY: the caller guarantees the level.
            unsafe {
                let low = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
                let high =
                    _mm512_setr_epi32(8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
                let first = _mm512_permutex2var_ps(self.0, low, other.0);
                (Self(first), Self(_mm512_permutex2var_ps(self.0, high, other.0)))
            }
        }
        #[inline(always)]
        unsafe fn deinterleave(self, other: Self) -> (Self, Self) {
            // SAFETY: the caller guarantees the level.
            unsafe {
                let even =
                    _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
                let odd =
                    _mm512_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
                let first = _mm512_permutex2var_ps(self.0, even, other.0);
                (Self(first), Self(_mm512_permutex2var_ps(self.0, odd, other.0)))
            }
        }
        #[inline(always)]
        unsafe fn interleave_16(self, other: Self) -> (Self, Self) {
            // SAFETY: the caller guarantees the level.
            unsafe {
                let (low, high) = self.unpack_16(other);
                let (low, high) = (_mm512_castps_pd(low.0), _mm512_castps_pd(high.0));
                let first = _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11);
                let second = _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15);
                let first = _mm512_permutex2var_pd(low, first, high);
                let second = _mm512_permutex2var_pd(low, second, high);
                (Self(_mm512_castpd_ps(first)), Self(_mm512_castpd_ps(second)))
            }
        }
        #[inline(always)]
        unsafe fn transpose(rows: &mut [Self; 16]) {
            // SAFETY: the caller guarantees the level.
            unsafe {
                let mut pairs = [rows[0].0; 16];
                for i in 0..8 {
                    pairs[2 * i] = _mm512_unpacklo_ps(rows[2 * i].0, rows[2 * i + 1].0);
                    pairs[2 * i + 1] = _mm512_unpackhi_ps(rows[2 * i].0, rows[2 * i + 1].0);
                }
                let mut fours = pairs;
                for i in 0..4 {
                    let [a, b, c, d] = [0, 1, 2, 3].map(|k| pairs[4 * i + k]);
                    fours[4 * i] = _mm512_shuffle_ps::<0x44>(a, c);
                    fours[4 * i + 1] = _mm512_shuffle_ps::<0xee>(a, c);
                    fours[4 * i + 2] = _mm512_shuffle_ps::<0x44>(b, d);
                    fours[4 * i + 3] = _mm512_shuffle_ps::<0xee>(b, d);
                }
                // Quarter q of register `4 i + k` holds column `4 q + k` of rows `4 i ..`.
                for k in 0..4 {
                    let [a, b, c, d] = [fours[k], fours[4 + k], fours[8 + k], fours[12 + k]];
                    let (even_ab, odd_ab) =
                        (_mm512_shuffle_f32x4::<0x88>(a, b), _mm512_shuffle_f32x4::<0xdd>(a, b));
                    let (even_cd, odd_cd) =
                        (_mm512_shuffle_f32x4::<0x88>(c, d), _mm512_shuffle_f32x4::<0xdd>(c, d));
                    rows[k].0 = _mm512_shuffle_f32x4::<0x88>(even_ab, even_cd);
                    rows[8 + k].0 = _mm512_shuffle_f32x4::<0xdd>(even_ab, even_cd);
                    rows[4 + k].0 = _mm512_shuffle_f32x4::<0x88>(odd_ab, odd_cd);
                    rows[12 + k].0 = _mm512_shuffle_f32x4::<0xdd>(odd_ab, odd_cd);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::simd::Level;

    /// Appends the results of the lane-by-lane operations of `V`; checks all others against their definitions.
    fn operations<V: Vector>(results: &mut Vec<Vec<u32>>) {
        let words: Vec<u32> = (0..64_u32).map(|i| i.wrapping_mul(2_654_435_761)).collect();
        let floats: Vec<f32> = (0..64).map(|i| (i * i % 37) as f32 - 11.5).collect();
        // SAFETY: the caller has the level; both inputs have at least two registers.
        unsafe {
            let stored = |v: V| {
                let mut to = vec![0_u32; V::LANES];
                v.store(to.as_mut_ptr());
                to
            };
            let (a, b) = (V::load(words.as_ptr()), V::load(words.as_ptr().add(32)));
            let (x, y) = (V::load(floats.as_ptr()), V::load(floats.as_ptr().add(16)));
            let bytes = words.as_ptr().cast::<u8>();
            let one = [
                V::widen_8_to_16(bytes),
                V::widen_16_to_32(bytes),
                V::widen_8_to_32(bytes),
                V::splat(1.5),
                V::splat_32(77),
                x.add(y),
                x.sub(y),
                x.mul(y),
                x.mul_add(y, x),
                x.neg_mul_add(y, x),
                a.add_8(b),
                a.add_16(b),
                a.add_32(b),
                a.sub_16(b),
                a.sub_32(b),
                a.xor(b),
                a.high_8(),
                a.up_8(),
                a.high_16(),
                a.up_16(),
                a.field::<24, 28>(),
            ];
            results.extend(one.map(stored));
            // Operations that mix lanes are checked against their definitions.
            let lanes = V::LANES;
            let (first, second) = x.interleave(y);
            let all = [stored(first), stored(second)].concat();
            for i in 0..lanes {
                assert_eq!([all[2 * i], all[2 * i + 1]], [stored(x)[i], stored(y)[i]]);
            }
            let (even, odd) = first.deinterleave(second);
            assert_eq!([stored(even), stored(odd)], [stored(x), stored(y)]);
            assert!(stored(x.reverse()).iter().rev().eq(&stored(x)));
            let shorts = |v: V| bytemuck::cast_slice::<u32, u16>(&stored(v)).to_vec();
            let (first, second) = a.interleave_16(b);
            let all = [shorts(first), shorts(second)].concat();
            for i in 0..2 * lanes {
                assert_eq!([all[2 * i], all[2 * i + 1]], [shorts(a)[i], shorts(b)[i]]);
            }
            let (low, high) = a.halves_16();
            let halves = [stored(low), stored(high)].concat();
            assert!(halves.iter().zip(shorts(a)).all(|(wide, short)| *wide == u32::from(short)));
            let (low, high) = a.unpack_16(b);
            let octet = |v: V| bytemuck::cast_slice::<u32, u8>(&stored(v)).to_vec();
            let (low_8, high_8) = a.unpack_8(b);
            for block in 0..lanes / 4 {
                for i in 0..4 {
                    let at = 8 * block + i;
                    let (to, upper) = (8 * block + 2 * i, at + 4);
                    assert_eq!(shorts(low)[to..to + 2], [shorts(a)[at], shorts(b)[at]]);
                    assert_eq!(shorts(high)[to..to + 2], [shorts(a)[upper], shorts(b)[upper]]);
                }
                for i in 0..8 {
                    let at = 16 * block + i;
                    let (to, upper) = (16 * block + 2 * i, at + 8);
                    assert_eq!(octet(low_8)[to..to + 2], [octet(a)[at], octet(b)[at]]);
                    assert_eq!(octet(high_8)[to..to + 2], [octet(a)[upper], octet(b)[upper]]);
                }
            }
            let mut rows = [V::splat(0.0); 16];
            for (i, row) in rows.iter_mut().enumerate() {
                *row = V::load(words.as_ptr().add(i));
            }
            let before = rows.map(stored);
            V::transpose(&mut rows);
            for (i, row) in rows.map(stored).iter().enumerate() {
                let square = i / lanes * lanes;
                for (j, value) in row.iter().enumerate() {
                    assert_eq!(*value, before[square + j][i - square]);
                }
            }
        }
    }

    #[test]
    fn all_levels_give_the_same_lanes() {
        let mut portable = Vec::new();
        operations::<Portable>(&mut portable);
        #[cfg(target_arch = "x86_64")]
        for level in Level::available() {
            let mut results = Vec::new();
            match level {
                Level::Portable => operations::<Portable>(&mut results),
                Level::Avx2(_) => operations::<Avx2>(&mut results),
                Level::Avx512(_) => operations::<Avx512>(&mut results),
            }
            for (index, (of_level, plain)) in results.iter().zip(&portable).enumerate() {
                assert_eq!(of_level[..8], plain[..], "operation {index} at {}", level.name());
            }
        }
    }
}
