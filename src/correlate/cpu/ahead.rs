//! Prefetch of samples that the next tiles need.
#![allow(unsafe_code)]

use super::memory::LINE;
use super::shape::BAND;

/// Remaining samples to prefetch of several panels of equal length.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stream {
    panels: [*const u8; BAND],
    /// Cache lines left per panel.
    lines: usize,
    /// Cache lines per panel and step.
    step: usize,
}

impl Default for Stream {
    fn default() -> Self {
        Self { panels: [std::ptr::null(); BAND], lines: 0, step: 0 }
    }
}

impl Stream {
    /// Creates a stream that is complete after `steps` steps.
    pub(super) fn new<'a>(panels: impl Iterator<Item = &'a [u8]>, steps: usize) -> Self {
        let mut stream = Self::default();
        for (index, panel) in panels.enumerate() {
            // Unused entries repeat the last panel; a second prefetch costs nothing.
            stream.panels[index..].fill(panel.as_ptr());
            stream.lines = panel.len().div_ceil(LINE);
        }
        stream.step = stream.lines.div_ceil(steps.max(1));
        stream
    }

    #[inline(always)]
    fn step(&mut self) {
        let lines = self.step.min(self.lines);
        self.lines -= lines;
        for _ in 0..lines {
            for panel in &mut self.panels {
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

/// Streams to prefetch.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ahead {
    /// Columns of the next tiles.
    pub(super) columns: Stream,
    /// Rows of the next band.
    pub(super) rows: Stream,
}

impl Ahead {
    /// Prefetches a few lines.
    #[inline(always)]
    pub(super) fn step(&mut self) {
        self.columns.step();
        self.rows.step();
    }
}
