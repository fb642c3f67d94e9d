//! Memory aligned to cache lines.
#![allow(unsafe_code)]

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;

use bytemuck::Pod;

use crate::error::{Error, Result};

/// Bytes of a cache line.
pub(super) const LINE: usize = 64;

/// Memory aligned to a cache line and initially zero; pages are allocated when first touched.
pub(super) struct Aligned {
    start: NonNull<u8>,
    layout: Layout,
}

// SAFETY: the value owns the bytes, and they are reachable through it only.
unsafe impl Send for Aligned {}
// SAFETY: as above.
unsafe impl Sync for Aligned {}

impl std::fmt::Debug for Aligned {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes", self.layout.size())
    }
}

impl Drop for Aligned {
    fn drop(&mut self) {
        // SAFETY: the memory was allocated with this layout.
        unsafe { dealloc(self.start.as_ptr(), self.layout) };
    }
}

impl Aligned {
    /// Allocates memory; `what` names it in errors.
    ///
    /// # Errors
    /// [`Error::Unavailable`] when the system lacks memory.
    pub(super) fn new(what: &str, length: usize) -> Result<Self> {
        let missing = || Error::Unavailable {
            what: format!("memory for {what}"),
            why: format!("the system has no {length} bytes for it"),
        };
        let layout = Layout::from_size_align(length.max(LINE), LINE).map_err(|_| missing())?;
        // SAFETY: the layout has a nonzero size.
        let start = unsafe { alloc_zeroed(layout) };
        Ok(Self { start: NonNull::new(start).ok_or_else(missing)?, layout })
    }

    /// Returns the address of the first byte.
    pub(super) fn pointer(&mut self) -> *mut u8 {
        self.start.as_ptr()
    }

    pub(super) fn values<T: Pod>(&self) -> &[T] {
        // SAFETY: all bytes are initialized at allocation and live as long as `self`.
        bytemuck::cast_slice(unsafe {
            std::slice::from_raw_parts(self.start.as_ptr(), self.layout.size())
        })
    }

    pub(super) fn values_mut<T: Pod>(&mut self) -> &mut [T] {
        // SAFETY: as above, and `self` is borrowed exclusively.
        bytemuck::cast_slice_mut(unsafe {
            std::slice::from_raw_parts_mut(self.start.as_ptr(), self.layout.size())
        })
    }
}
