//! Bytes that begin at a cache line.

use bytemuck::Pod;

/// Bytes of a cache line.
pub(super) const LINE: usize = 64;

/// So many bytes from a cache line's start on; zeros at first, which cost nothing until they are touched.
pub(super) struct Aligned {
    bytes: Vec<u8>,
    offset: usize,
    length: usize,
}

impl std::fmt::Debug for Aligned {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes", self.length)
    }
}

impl Aligned {
    pub(super) fn new(length: usize) -> Self {
        let bytes = vec![0u8; length + LINE];
        let offset = bytes.as_ptr().align_offset(LINE).min(LINE);
        Self { bytes, offset, length }
    }

    pub(super) fn values<T: Pod>(&self) -> &[T] {
        bytemuck::cast_slice(&self.bytes[self.offset..][..self.length])
    }

    pub(super) fn values_mut<T: Pod>(&mut self) -> &mut [T] {
        bytemuck::cast_slice_mut(&mut self.bytes[self.offset..][..self.length])
    }
}
