//! Templates: waveforms as time series, or binaries from which to compute waveforms.
//!
//! Invariant: every waveform's samples are finite and of a known rate; every binary's masses lie within 0 to 1e4 solar
//! masses and its spins within -1 to 1.
//!
//! | file                             | contents                                                          |
//! |----------------------------------|-------------------------------------------------------------------|
//! | HDF5 with series                 | plus and cross as two data sets or two rows, or complex series    |
//! | PyCBC TimeSeries (.hdf)          | a complex series, or plus alone: a data set with `delta_t`        |
//! | PyCBC bank (HDF5)                | `mass1`, `mass2`, `spin1z`, `spin2z`, `template_hash`             |
//! | LIGO_LW (.xml, .xml.gz)          | a table `sngl_inspiral` with `mass1`, `mass2`, `spin1z`, `spin2z` |
//! | CSV                              | the columns `mass1,mass2`, and any of `spin1z,spin2z,name`        |
//!
//! The content of a file determines its kind, not its name.

mod bank;
mod binaries;
mod hdf5;
mod series;
mod text;

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

pub use series::TemplateOptions;

use super::ligolw;
use crate::error::{Error, Result};
use crate::strain::{Binary, Waveform};

/// Contents of a template file.
#[derive(Clone, Debug, PartialEq)]
pub enum Templates {
    /// Waveforms as time series.
    Waveforms(Vec<Waveform>),
    /// Binaries with their names, empty if a CSV file has none.
    Binaries(Vec<(String, Binary)>),
}

impl Templates {
    /// Returns the number of templates.
    pub fn len(&self) -> usize {
        match self {
            Self::Waveforms(waveforms) => waveforms.len(),
            Self::Binaries(binaries) => binaries.len(),
        }
    }

    /// Returns whether there are no templates.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Reads a template file of any kind.
///
/// # Errors
/// As [`open_with`].
pub fn open(path: &Path) -> Result<Templates> {
    open_with(path, &TemplateOptions::default())
}

/// Reads a template file of any kind.
///
/// In an HDF5 file, the attribute `rate`, `fs` (or similar) gives a series' sampling rate, or `dt` its sampling time;
/// the attribute may belong to the data set, its group, a group `meta`, or the file. A complex series is `h_plus - i
/// h_cross`. A real PyCBC TimeSeries is `h_plus` alone; the reader constructs `h_cross` with a lag of a quarter
/// cycle. Zeros at both ends of a series are removed.
///
/// # Errors
/// [`Error::Io`]; [`Error::Format`] with the contents of a file without templates, or with the invalid field: masses
/// or spins out of range, spins not along the orbital angular momentum, series without a rate.
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

/// Magic bytes of HDF5.
const HDF5: &[u8] = b"\x89HDF\r\n\x1a\n";
