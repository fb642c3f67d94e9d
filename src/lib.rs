//! sidereal: one toolkit from what an antenna records to what an astronomer looks for.

pub mod array;
pub mod backend;
pub mod error;
pub mod io;
pub mod math;
pub mod pipeline;
pub mod sample;
pub mod units;

pub use error::{Error, Result};
