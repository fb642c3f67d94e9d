//! NumPy's `.npy` files: arrays of one or two axes, little endian.
//!
//! Invariant: a header of ours is always [`HEADER_BYTES`] long, so that its shape can be set at the
//! end, and data begin on a multiple of 64.
//!
//! # Source
//! NumPy's `numpy.lib.format`, versions 1.0 to 3.0.

mod header;
mod reader;
mod writer;

pub use header::{Header, Kind};
pub use reader::{Array, read};
pub use writer::{Order, Writer, write_f32};

/// Length of every header written here.
pub const HEADER_BYTES: usize = 128;
