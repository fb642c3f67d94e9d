//! From recorded voltages to filterbank rows: channelize, detect, sum, fill what is missing.
//!
//! Invariant: rows depend on the recording and the options alone, never on gulp, threads or on how
//! they are asked for.

mod coherent;
mod filled;
mod filterbank;
mod gaps;
mod geometry;
mod layout;
mod options;
mod part;
mod rows;
mod scaling;
mod write;

pub use filterbank::VoltageFilterbank;
pub use geometry::Geometry;
pub use options::ChannelizeOptions;
pub use scaling::Scaling;
pub use write::{Depth, Destination, WriteReport, write_filterbank};
