//! Samples that will be needed next, asked for while others are multiplied.
#![allow(unsafe_code)]

use super::memory::LINE;
use super::shape::BAND;

/// Bytes of some panels that will be needed next, asked for a few lines at a time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ahead {
    panels: [*const u8; BAND],
    lines: usize,
    /// Lines of each panel in a step.
    step: usize,
}

impl Ahead {
    /// Panels of equal length, all of which will have been asked for after so many steps.
    pub(super) fn new<'a>(panels: impl Iterator<Item = &'a [u8]>, steps: usize) -> Self {
        let mut ahead = Self { panels: [std::ptr::null(); BAND], lines: 0, step: 0 };
        for (to, from) in ahead.panels.iter_mut().zip(panels) {
            *to = from.as_ptr();
            ahead.lines = from.len().div_ceil(LINE);
        }
        ahead.step = ahead.lines.div_ceil(steps.max(1));
        ahead
    }

    /// Asks for the next lines.
    #[inline(always)]
    pub(super) fn step(&mut self) {
        let lines = self.step.min(self.lines);
        self.lines -= lines;
        for panel in self.panels.iter_mut().take_while(|panel| !panel.is_null()) {
            for _ in 0..lines {
                #[cfg(target_arch = "x86_64")]
                // SAFETY: a prefetch reads nothing.
                unsafe {
                    use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
                    _mm_prefetch::<_MM_HINT_T1>(panel.cast());
                }
                *panel = panel.wrapping_add(LINE);
            }
        }
    }
}
