//! Arrays of floats aligned to cache lines.

/// Cache line.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([f32; 16]);

/// Zero-initialized floats aligned to a cache line.
#[derive(Clone)]
pub(super) struct Floats {
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
    pub(super) fn new(floats: usize) -> Self {
        Self { lines: vec![Line([0.0; 16]); floats.div_ceil(16)] }
    }

    /// Returns all values, up to the end of the last cache line.
    pub(super) fn values(&self) -> &[f32] {
        bytemuck::cast_slice(&self.lines)
    }

    /// Returns all values, mutably.
    pub(super) fn values_mut(&mut self) -> &mut [f32] {
        bytemuck::cast_slice_mut(&mut self.lines)
    }
}
