//! SIGPROC: filterbanks (`.fil`, data type 1) and time series (`.tim`, data type 2).
//!
//! A header is a list of keywords, each with a value, between `HEADER_START` and `HEADER_END`. The data follow
//! immediately: axes time, IF, channel. Integers and floats are little endian. As in other readers, the header's
//! `nsamples` is ignored; the file's size determines the length.
//!
//! A file with 2 or 4 IFs does not identify them. Total intensity is the sum of the first two (AA + BB); for a file
//! of Stokes parameters, select IF 0.
//!
//! Invariant: an unknown keyword or an absurd value is an error that names it and its byte.
//!
//! # Source
//! D. Lorimer, SIGPROC v4.3 manual; telescope numbers as in PRESTO and blimpy.

mod header;
mod reader;
mod series;
mod writer;

pub(crate) use header::telescope_name;
pub use header::{Field, Header, Kind, Value};
pub use reader::Layout;
pub use reader::{FilterbankReader, open};
pub use series::{TimeSeries, TimeSeriesWriter, read_series};
pub use writer::FilterbankWriter;
