//! Recorded gravitational-wave strain: what a source of it is; one file a format.
//!
//! Invariant: what is missing from a recording, or bad by its own flags, comes as samples marked invalid, of the
//! right number.

mod bits;
mod gwf;
pub mod gwosc_writer;
mod hdf5;
mod join;
mod npy;
mod open;
mod quality;
mod series;
mod summary;
mod writer;

pub use bits::{Bits, bits};
pub use join::join;
pub use open::{OpenOptions, channel_of, channels, is_strain, open, open_all};
pub use summary::Summary;
pub use writer::{NewStrain, StrainWriter};

use std::path::PathBuf;

use crate::error::Result;
use crate::units::Gps;

/// What every format says of its strain.
#[derive(Clone, Debug, PartialEq)]
pub struct StrainHeader {
    /// Where the data come from.
    pub path: PathBuf,
    /// The format's name, as `info` prints it.
    pub format: &'static str,
    /// Two letters of the detector: `H1`, `L1`, `V1`, `K1`; empty when unknown.
    pub detector: String,
    /// Time of the first sample.
    pub start: Gps,
    /// Samples in a second.
    pub rate_hz: u32,
    /// Samples in all, when the length is known beforehand.
    pub times: Option<u64>,
}

/// Strain of one detector, sample after sample.
pub trait StrainSource: Send {
    /// What the recording says of itself.
    fn header(&self) -> &StrainHeader;

    /// Writes the next samples to the front of `samples`, and to `valid` which of them may be used; those that may
    /// not are 0. Gives their number; 0 is the end.
    ///
    /// # Errors
    /// [`crate::Error::Io`] and [`crate::Error::Format`] of the file, [`crate::Error::Shape`] when the slices differ
    /// in length.
    fn read(&mut self, samples: &mut [f64], valid: &mut [bool]) -> Result<usize>;

    /// Passes over the next samples; gives their number, less than asked for at the end.
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

    /// Says what the recording lacks of what it promises, where it is cut short: its last piece was left out.
    ///
    /// A file's is known when it is opened, a pipe's once it has been read to its end. `None` for a whole recording.
    fn cut(&self) -> Option<&str> {
        None
    }

    /// Lists what a user should know of the recording: what is missing, odd or was left out, a sentence each.
    fn warnings(&self) -> &[String] {
        &[]
    }
}
