//! A finished spectrum on its way past the caches: written a little at a time, while the next is made,
//! because a long run of such stores would wait for memory.
//!
//! Invariant: what is pending stays where it is until all of it is written.
#![allow(unsafe_code)]

use super::vector::{Portable, Vector, levels};
#[cfg(target_arch = "x86_64")]
use super::x86;
use crate::backend::simd::Level;

/// Floats that are still to be written, as whole cache lines.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pending {
    from: *const f32,
    to: *mut f32,
    floats: usize,
    /// Registers in each step.
    step: usize,
}

impl Default for Pending {
    fn default() -> Self {
        Self { from: std::ptr::null(), to: std::ptr::null_mut(), floats: 0, step: 0 }
    }
}

/// Floats of a cache line.
const LINE: usize = 16;

impl Pending {
    /// Writes what lies before the first and behind the last whole cache line of `to`; the rest is pending.
    ///
    /// # Safety
    /// `from` and `to` are `floats` floats each, apart, and stay so until all is written.
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

    /// Divides what is left among so many steps.
    pub(super) fn spread(&mut self, steps: usize, lanes: usize) {
        self.step = (self.floats / lanes).div_ceil(steps.max(1));
    }

    /// Writes the next part.
    ///
    /// # Safety
    /// As for [`Vector`]'s methods.
    #[inline(always)]
    pub(super) unsafe fn step<V: Vector>(&mut self) {
        for _ in 0..self.step {
            if self.floats == 0 {
                break;
            }
            // SAFETY: whole cache lines are left, of which a register is a part; `new`'s caller promised
            // both buffers.
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

/// Writes all that is left.
///
/// # Safety
/// As for [`Pending::new`].
#[inline(always)]
unsafe fn flush_body<V: Vector>(pending: &mut Pending) {
    pending.spread(1, V::LANES);
    // SAFETY: the caller's promise is handed on.
    unsafe { pending.step::<V>() };
}
