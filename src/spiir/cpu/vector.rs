//! Vector operations of the filters for each instruction set: registers of floats, seen as quads of four.
#![allow(unsafe_code)]

/// Samples of a tile, the unit of transposition and summation.
pub(super) const TILE: usize = 16;

/// Parts of the transposition of a tile.
pub(super) const PARTS: usize = 8;

/// States below this become 0 at the end of a tile, long before they would be denormal; so do NaNs.
pub(super) const SILENCE: f32 = 1e-25;

/// Register of floats.
///
/// # Safety
/// Every method requires the level's instructions, and pointers valid for what the method reads or writes.
pub(super) unsafe trait Vector: Copy {
    /// Floats in the register: 4, 8 or 16.
    const LANES: usize;
    unsafe fn zero() -> Self;
    unsafe fn no_turned() -> Self::Turned;
    unsafe fn splat(value: f32) -> Self;
    unsafe fn load(from: *const f32) -> Self;
    unsafe fn store(self, to: *mut f32);
    /// Prefetches the cache line of an address, which need not be valid.
    unsafe fn prefetch(from: *const f32);
    unsafe fn add(self, other: Self) -> Self;
    unsafe fn mul(self, other: Self) -> Self;
    /// Returns `self * factor + addend`.
    unsafe fn mul_add(self, factor: Self, addend: Self) -> Self;
    /// Returns `addend - self * factor`.
    unsafe fn neg_mul_add(self, factor: Self, addend: Self) -> Self;
    /// Sets lanes below [`SILENCE`] to 0.
    unsafe fn flush(self) -> Self;
    /// Returns, in each quad, the sums of the quads of four registers.
    unsafe fn sum_quads(rows: [Self; 4]) -> Self;
    /// Interleaves pairs of floats of both registers.
    unsafe fn zip_pairs(self, other: Self) -> [Self; 2];
    /// Intermediate state of a transposition from rows of time to rows of lanes.
    type Turned: Copy;
    /// Does part `part` of [`PARTS`], in order, of a transposition. For each of [`TILE`] samples from `x` on it
    /// writes one register whose lane `l` is the sample `offsets[l]` earlier.
    unsafe fn turn(
        part: usize,
        turned: &mut Self::Turned,
        x: *const f32,
        offsets: *const u32,
        to: *mut f32,
    );
}

/// Plain arrays, which the compiler vectorizes.
#[derive(Clone, Copy)]
pub(super) struct Portable([f32; 4]);

impl Portable {
    #[inline(always)]
    fn each(self, other: Self, work: impl Fn(f32, f32) -> f32) -> Self {
        Self(std::array::from_fn(|lane| work(self.0[lane], other.0[lane])))
    }
}

// SAFETY: the methods need only valid pointers, which the caller ensures.
unsafe impl Vector for Portable {
    const LANES: usize = 4;
    #[inline(always)]
    unsafe fn zero() -> Self {
        Self([0.0; 4])
    }
    #[inline(always)]
    unsafe fn splat(value: f32) -> Self {
        Self([value; 4])
    }
    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        // SAFETY: the caller provides a register's floats.
        Self(unsafe { from.cast::<[f32; 4]>().read_unaligned() })
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        // SAFETY: the caller provides space for a register.
        unsafe { to.cast::<[f32; 4]>().write_unaligned(self.0) }
    }
    #[inline(always)]
    unsafe fn prefetch(_: *const f32) {}
    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        self.each(other, |a, b| a + b)
    }
    #[inline(always)]
    unsafe fn mul(self, other: Self) -> Self {
        self.each(other, |a, b| a * b)
    }
    #[inline(always)]
    unsafe fn mul_add(self, factor: Self, addend: Self) -> Self {
        self.each(factor, |a, b| a * b).each(addend, |a, b| a + b)
    }
    #[inline(always)]
    unsafe fn neg_mul_add(self, factor: Self, addend: Self) -> Self {
        self.each(factor, |a, b| a * b).each(addend, |a, b| b - a)
    }
    #[inline(always)]
    unsafe fn flush(self) -> Self {
        Self(self.0.map(|x| if x.abs() >= SILENCE { x } else { 0.0 }))
    }
    #[inline(always)]
    unsafe fn sum_quads(rows: [Self; 4]) -> Self {
        Self(rows.map(|Self([a, b, c, d])| (a + c) + (b + d)))
    }
    #[inline(always)]
    unsafe fn zip_pairs(self, other: Self) -> [Self; 2] {
        let (a, b) = (self.0, other.0);
        [Self([a[0], a[1], b[0], b[1]]), Self([a[2], a[3], b[2], b[3]])]
    }
    type Turned = ();
    #[inline(always)]
    unsafe fn no_turned() {}
    #[inline(always)]
    unsafe fn turn(
        part: usize,
        (): &mut Self::Turned,
        x: *const f32,
        offsets: *const u32,
        to: *mut f32,
    ) {
        for lane in 0..4 {
            // SAFETY: the caller provides valid offsets, the samples they reach, and space for the output.
            unsafe {
                let from = x.sub(*offsets.add(lane) as usize);
                for sample in 2 * part..2 * part + 2 {
                    *to.add(sample * 4 + lane) = *from.add(sample);
                }
            }
        }
    }
}
