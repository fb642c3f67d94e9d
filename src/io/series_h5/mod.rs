//! Signal-to-noise ratio series and whitened strain in HDF5, as gwpy and h5py read them.
//!
//! | path                  | contents                                                                     |
//! |-----------------------|------------------------------------------------------------------------------|
//! | `/` attributes        | `format`, `version`, `comment`, `complete` (0: the run was interrupted)       |
//! | `/H1` attributes      | `detector`, `start_gps_ns`, `rate_hz`, `latency_s`                           |
//! | `/H1/template`        | names of the templates                                                       |
//! | `/H1/peak_offset_s`   | event time less the time of the output sample, for each template             |
//! | `/H1/snr/0000` ...    | complex signal-to-noise ratio of a template, compounds (r, i)                |
//! | `/H1/whitened`        | whitened strain, each sample of unit variance                                |
//! | `/H1/valid`           | whether a sample of `whitened` came from valid data                          |
//! | `/H1/pycbc/0000` ...  | the samples of `snr/0000` and `whitened` for PyCBC, sharing their storage    |
//!
//! Series carry gwpy's attributes `x0`, `dx`, `xunit`, `unit`, `name` and `channel`. The data sets for PyCBC carry
//! `start_time` and `delta_t`, equal to `x0` and `dx`. The `x0` of a signal-to-noise ratio is the event time of its
//! first sample: the time of the first output sample plus the template's offset.
//!
//! Invariant: a file is under its name only when it is whole; memory does not grow with its length.
//!
//! # Source
//! gwpy 4.1.0 (`types/io/hdf5.py`) and PyCBC 2 (`pycbc.types.load_timeseries`) for the attributes.

mod skeleton;
mod writer;

use crate::units::Gps;

pub use writer::Writer;

/// Contents of a file to be written.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SeriesFile {
    /// Origin of the series, one line.
    pub comment: String,
    /// Series of each detector.
    pub detectors: Vec<DetectorSeries>,
}

/// Series of one detector.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DetectorSeries {
    /// `H1`, `L1`, `V1`, `K1`.
    pub detector: String,
    /// Time of the first sample of whitened strain and of the first output sample.
    pub start: Gps,
    /// Sampling rate.
    pub rate_hz: u32,
    /// Maximum number of samples.
    pub samples: u64,
    /// Data required after a sample to compute its signal-to-noise ratio, in seconds.
    pub latency_s: f64,
    /// Templates with a series.
    pub templates: Vec<TemplateSeries>,
    /// Whether to write whitened strain as well.
    pub whitened: bool,
}

/// A template with a series.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TemplateSeries {
    /// Its name.
    pub name: String,
    /// Event time less the time of the output sample, in seconds.
    pub peak_offset_s: f64,
}

#[cfg(test)]
mod tests;
