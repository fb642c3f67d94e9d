//! Series of signal-to-noise ratios and whitened strain in HDF5, as gwpy and h5py read them.
//!
//! | place                 | holds                                                                        |
//! |-----------------------|------------------------------------------------------------------------------|
//! | `/` attributes        | `format`, `version`, `comment`, `complete` (0: the run was interrupted)       |
//! | `/H1` attributes      | `detector`, `start_gps_ns`, `rate_hz`, `latency_s`                           |
//! | `/H1/template`        | names of the templates                                                       |
//! | `/H1/peak_offset_s`   | the event's time less that of the output sample, for each template           |
//! | `/H1/snr/0000` ...    | complex signal-to-noise ratio of a template, compounds (r, i)                |
//! | `/H1/whitened`        | whitened strain, each sample of unit variance                                |
//! | `/H1/valid`           | whether a sample of it came from good data                                   |
//! | `/H1/pycbc/0000` ...  | the same samples as `snr/0000` and `whitened`, once in the file, for PyCBC   |
//!
//! Series carry gwpy's attributes `x0`, `dx`, `xunit`, `unit`, `name` and `channel`, those for PyCBC `start_time` and
//! `delta_t`, which are `x0` and `dx`. The `x0` of a ratio is the time of
//! the event that its first sample answers: the first output sample's and the template's offset.
//!
//! Invariant: a file is under its name only when it is whole; memory does not grow with its length.
//!
//! # Source
//! gwpy 4.1.0 (`types/io/hdf5.py`) and PyCBC 2 (`pycbc.types.load_timeseries`) for the attributes.

mod skeleton;
mod writer;

use crate::units::Gps;

pub use writer::Writer;

/// What a file will hold.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SeriesFile {
    /// How it came about, one line.
    pub comment: String,
    /// Each detector's series.
    pub detectors: Vec<DetectorSeries>,
}

/// The series of one detector.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DetectorSeries {
    /// `H1`, `L1`, `V1`, `K1`.
    pub detector: String,
    /// Time of the first sample of whitened strain and of the first output sample.
    pub start: Gps,
    /// Samples in a second.
    pub rate_hz: u32,
    /// The most samples that will be written.
    pub samples: u64,
    /// Data that had to follow a sample before its ratio was known, in seconds.
    pub latency_s: f64,
    /// The templates.
    pub templates: Vec<TemplateSeries>,
    /// Whether whitened strain is written too.
    pub whitened: bool,
}

/// A template that has a series.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TemplateSeries {
    /// Its name.
    pub name: String,
    /// The event's time less that of the output sample, in seconds.
    pub peak_offset_s: f64,
}

#[cfg(test)]
mod tests;
