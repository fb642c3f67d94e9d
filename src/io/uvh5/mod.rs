//! UVH5: visibilities as pyuvdata reads them, in HDF5.
//!
//! Invariant: a file is under its name only when it is whole; memory does not grow with its length.
//!
//! # Source
//! The UVH5 memo, version 1.2, and pyuvdata 3.2.8 as the arbiter of it; docs/design/uvh5.md has what was
//! settled by experiment.

mod contents;
mod header;
mod patch;
mod rows;
mod skeleton;
mod writer;

pub use header::{
    Antenna, Feed, Feeds, Header, Keyword, Location, Mount, PhaseCentre, ReferenceDay,
};
pub use writer::{Integration, Pointing, Writer};
