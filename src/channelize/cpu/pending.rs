//! Pending non-temporal stores of a finished spectrum. They are spread over the computation of the next spectrum,
//! because a long run of such stores stalls on memory.
//!
//! Invariant: what is pending stays where it is until all of it is written.
#![allow(unsafe_code)]

use crate::backend::vector::{Vector, levels};

/// Returns whether this processor is faster if non-temporal stores are spread over other work. Intel processors are;
/// AMD's (measured on Zen 4) are faster with one uninterrupted run. The results are identical.
pub(super) fn spreads() -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        let vendor = std::arch::x86_64::__cpuid(0);
        [vendor.ebx, vendor.edx, vendor.ecx].map(u32::to_le_bytes).concat() == b"GenuineIntel"
    }
    #[cfg(not(target_arch = "x86_64"))]
    false
}

/// Floats still to be written, in whole cache lines.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pending {
    from: *const f32,
    to: *mut f32,
    floats: usize,
    /// Registers per step.
    step: usize,
}

impl Default for Pending {
    fn default() -> Self {
        Self { from: std::ptr::null(), to: std::ptr::null_mut(), floats: 0, step: 0 }
    }
}

/// Floats per cache line.
const LINE: usize = 16;

impl Pending {
    /// Writes the partial cache lines at both ends of `to`; the rest becomes pending.
    ///
    /// # Safety
    /// `from` and `to` must each hold `floats` floats, must not overlap, and must stay valid until all is written.
    pub(super) unsafe fn new(from: *const f32, to: *mut f32, floats: usize) -> Self {
        let head = (to.addr().wrapping_neg() % 64 / 4).min(floats);
        let tail = head + (floats - head) / LINE * LINE;
        // SAFETY: all indices are below `floats`.
        unsafe {
            for i in (0..head).chain(tail..floats) {
                *to.add(i) = *from.add(i);
            }
            Self { from: from.add(head), to: to.add(head), floats: tail - head, step: 0 }
        }
    }

    /// Divides the pending floats evenly among `steps` steps.
    pub(super) fn spread(&mut self, steps: usize, lanes: usize) {
        self.step = (self.floats / lanes).div_ceil(steps.max(1));
    }

    /// Writes the next portion.
    ///
    /// # Safety
    /// Same requirements as for [`Vector`]'s methods.
    #[inline(always)]
    pub(super) unsafe fn step<V: Vector>(&mut self) {
        for _ in 0..self.step {
            if self.floats == 0 {
                break;
            }
            // SAFETY: the remainder is whole cache lines, a multiple of a register; `new`'s caller guarantees both
            // buffers.
            unsafe {
                V::load(self.from).stream(self.to);
                self.from = self.from.add(V::LANES);
                self.to = self.to.add(V::LANES);
            }
            self.floats -= V::LANES;
        }
    }
}

levels!(flush, flush_body, (pending: &mut Pending));

/// Writes all pending floats.
///
/// # Safety
/// Same requirements as for [`Pending::new`].
#[inline(always)]
unsafe fn flush_body<V: Vector>(pending: &mut Pending) {
    pending.spread(1, V::LANES);
    // SAFETY: forwards the caller's guarantee.
    unsafe { pending.step::<V>() };
}
