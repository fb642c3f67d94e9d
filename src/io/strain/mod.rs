//! Recorded gravitational-wave strain: the source trait, the common header, and one module per format.
//!
//! Invariant: what is missing from a recording, or bad by its own flags, comes as samples marked invalid, of the
//! right number.

mod bits;
mod gwf;
pub mod gwosc_writer;
mod hdf5;
mod header;
mod join;
mod npy;
mod open;
mod quality;
mod series;
mod summary;
mod writer;

pub use bits::{Bits, bits};
pub use header::OpenOptions;
pub use join::join;
pub use open::{channel_of, channels, is_strain, open, open_all};
pub use summary::Summary;
pub use writer::{NewStrain, StrainWriter};

use std::path::PathBuf;

use crate::error::Result;
use crate::units::Gps;

/// Header common to all strain formats.
#[derive(Clone, Debug, PartialEq)]
pub struct StrainHeader {
    /// Path of the data.
    pub path: PathBuf,
    /// The format's name, as `info` prints it.
    pub format: &'static str,
    /// Two-letter detector prefix: `H1`, `L1`, `V1`, `K1`; empty when unknown.
    pub detector: String,
    /// Time of the first sample.
    pub start: Gps,
    /// Sampling rate.
    pub rate_hz: u32,
    /// Number of samples, when known beforehand.
    pub times: Option<u64>,
}

/// Strain of one detector as a stream of samples.
pub trait StrainSource: Send {
    /// Returns the header.
    fn header(&self) -> &StrainHeader;

    /// Reads the next samples to the start of `samples`, and their validity to `valid`; invalid samples are 0.
    /// Returns their number; 0 at the end.
    ///
    /// # Errors
    /// [`crate::Error::Io`] and [`crate::Error::Format`] of the file, [`crate::Error::Shape`] if the slices differ in
    /// length.
    fn read(&mut self, samples: &mut [f64], valid: &mut [bool]) -> Result<usize>;

    /// Skips samples; returns the number skipped, less than requested only at the end.
    ///
    /// # Errors
    /// As [`Self::read`].
    fn skip(&mut self, samples: u64) -> Result<u64> {
        let (mut strain, mut valid) = ([0.0; 1024], [false; 1024]);
        let mut done = 0;
        while done < samples {
            let piece = (samples - done).min(1024) as usize;
            match self.read(&mut strain[..piece], &mut valid[..piece])? {
                0 => break,
                count => done += count as u64,
            }
        }
        Ok(done)
    }

    /// Describes the truncation of a recording whose last, incomplete piece was dropped; `None` for a complete
    /// recording.
    ///
    /// Known at opening for a file, after the end of the data for a pipe.
    fn cut(&self) -> Option<&str> {
        None
    }

    /// Returns warnings for the user, a sentence each: missing, odd or skipped parts of the recording.
    fn warnings(&self) -> &[String] {
        &[]
    }
}
