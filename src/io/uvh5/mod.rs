//! UVH5 files: visibilities in HDF5, as pyuvdata reads them.
//!
//! Invariant: a file is under its name only when it is whole; memory does not grow with its length.
//!
//! # Source
//! The UVH5 memo, version 1.2, as pyuvdata 3.2.8 interprets it; docs/design/uvh5.md records the conventions found by
//! experiment.

mod contents;
mod fields;
mod header;
mod rows;
mod skeleton;
mod summary;
mod writer;

pub use header::{
    Antenna, Feed, Feeds, Header, Keyword, Location, Mount, PhaseCentre, ReferenceDay,
};
pub use summary::{Source, Summary, is_uvh5, summary};
pub use writer::{Integration, Pointing, Writer, check_name};

/// The Julian date of modified Julian day 0.
const MJD_ZERO: f64 = 2_400_000.5;
