//! Input of a single-pulse search.

use crate::view::Plane;

/// Block of series: axes dm, time.
#[derive(Clone, Copy, Debug)]
pub enum Input<'a> {
    /// Exact sums of integers, within the plan's bound.
    I32(Plane<'a, i32>),
    /// Sums of floats; non-finite samples count as noise.
    F32(Plane<'a, f32>),
}

impl Input<'_> {
    pub(super) fn dms(&self) -> usize {
        match self {
            Self::I32(plane) => plane.dms(),
            Self::F32(plane) => plane.dms(),
        }
    }

    pub(super) fn times(&self) -> usize {
        match self {
            Self::I32(plane) => plane.times(),
            Self::F32(plane) => plane.times(),
        }
    }
}
