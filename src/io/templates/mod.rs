//! Templates: waveforms as series, or binaries of which waveforms are made.
//!
//! Invariant: every waveform's samples are finite and of a known rate; every binary's masses lie within 0 to 1e4 solar
//! masses and its spins within -1 to 1.
//!
//! | file                             | holds                                                             |
//! |----------------------------------|-------------------------------------------------------------------|
//! | HDF5 with series                 | plus and cross as two data sets or two rows, or complex series    |
//! | PyCBC TimeSeries (.hdf)          | a complex series, or plus alone: a data set with `delta_t`        |
//! | PyCBC bank (HDF5)                | `mass1`, `mass2`, `spin1z`, `spin2z`, `template_hash`             |
//! | LIGO_LW (.xml, .xml.gz)          | a table `sngl_inspiral` with `mass1`, `mass2`, `spin1z`, `spin2z` |
//! | CSV                              | the columns `mass1,mass2`, and any of `spin1z,spin2z,name`        |
//!
//! What a file is, is told by its content, not by its name.

mod arrays;
mod bank;
mod binaries;
mod complex;
mod hdf5;
mod series;
mod text;

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use super::ligolw;
use crate::error::{Error, Result};
use crate::strain::{Binary, Waveform};

/// What a file of templates holds.
#[derive(Clone, Debug, PartialEq)]
pub enum Templates {
    /// Series of samples.
    Waveforms(Vec<Waveform>),
    /// Binaries with their names, empty where a CSV file gives none.
    Binaries(Vec<(String, Binary)>),
}

impl Templates {
    /// Number of templates.
    pub fn len(&self) -> usize {
        match self {
            Self::Waveforms(waveforms) => waveforms.len(),
            Self::Binaries(binaries) => binaries.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// What a file may leave open.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TemplateOptions {
    /// Samples in a second of series whose file says nothing of it.
    pub rate_hz: Option<u32>,
    /// Distance in Mpc of the sources of series whose file says nothing of it; 1 by default.
    pub distance_mpc: Option<f64>,
}

/// Reads a file of templates of any kind.
///
/// # Errors
/// As [`open_with`].
pub fn open(path: &Path) -> Result<Templates> {
    open_with(path, &TemplateOptions::default())
}

/// Reads a file of templates of any kind.
///
/// In an HDF5 file, the series' rate is the attribute `rate`, `fs` (or the like), or that of a sample's length, `dt`,
/// of the data set, of its group, of a group `meta`, or of the file. A complex series is `h_plus - i h_cross`; of a
/// real TimeSeries of PyCBC, which is `h_plus` alone, `h_cross` is made, a quarter of a turn behind. Zeros at a series'
/// ends are left out.
///
/// # Errors
/// [`Error::Io`]; [`Error::Format`] with what was found in a file of which no templates can be made, or which has none,
/// or with the field at fault: masses or spins out of range, spins not along the orbit's, series without a rate.
pub fn open_with(path: &Path, options: &TemplateOptions) -> Result<Templates> {
    crate::io::check_seekable(path)?;
    let mut head = Vec::new();
    File::open(path)
        .and_then(|file| file.take(HDF5.len() as u64).read_to_end(&mut head))
        .map_err(|error| Error::io(path, error))?;
    let found = if head.starts_with(HDF5) {
        let file = hdf5::Input::open(path)?;
        if bank::is_bank(&file) {
            Templates::Binaries(bank::read(&file)?)
        } else {
            Templates::Waveforms(series::read(&file, options)?)
        }
    } else if ligolw::is_ligolw(path) {
        Templates::Binaries(bank::read_table(path)?)
    } else {
        Templates::Binaries(text::read(path)?)
    };
    match found.is_empty() {
        true => {
            Err(Error::format(path, "templates", 0, "found 0 templates, expected one at least"))
        }
        false => Ok(found),
    }
}

/// The first bytes of an HDF5 file.
const HDF5: &[u8] = b"\x89HDF\r\n\x1a\n";
