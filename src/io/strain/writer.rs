//! Writes strain in the format given by the file name's extension.

use std::path::Path;

use super::gwosc_writer::{ALL_INJECTIONS, ALL_QUALITY, GwoscHeader, GwoscWriter};
use crate::error::{Error, Result};
use crate::io::atomic::AtomicFile;
use crate::io::gwf::{GwfHeader, GwfWriter};
use crate::io::npy::Header;
use crate::units::Gps;

/// Properties of the strain to write.
#[derive(Clone, Debug, PartialEq)]
pub struct NewStrain {
    /// Two-letter detector prefix: `H1`.
    pub detector: String,
    /// Name of the channel, for frame files; by default the detector and STRAIN.
    pub channel: Option<String>,
    /// Time of the first sample.
    pub start: Gps,
    /// Sampling rate.
    pub rate_hz: u32,
    /// Number of samples.
    pub samples: u64,
    /// Description of the data in one sentence.
    pub description: String,
    /// [`super::gwosc_writer::QUALITY_BITS`] and [`super::gwosc_writer::INJECTION_BITS`] of each second, when known.
    pub bits: Option<[Vec<u32>; 2]>,
    /// Whether to compress the samples of frame files.
    pub is_compressed: bool,
}

/// Unfinished strain file; dropping it before [`StrainWriter::finish`] removes the file.
#[derive(Debug)]
pub enum StrainWriter {
    /// GWOSC's HDF5.
    Gwosc(GwoscWriter),
    /// A frame file.
    Gwf(Box<GwfWriter>),
    /// NumPy array of 64-bit floats, and the number of remaining samples.
    Npy(AtomicFile, u64),
}

impl NewStrain {
    /// Returns the name of the channel in a frame file.
    pub fn channel(&self) -> String {
        let by_detector = || match self.detector.as_str() {
            "" => "STRAIN".to_owned(),
            known => format!("{known}:STRAIN"),
        };
        self.channel.clone().unwrap_or_else(by_detector)
    }

    fn gwosc(&self) -> Result<GwoscHeader> {
        let rate = u64::from(self.rate_hz).max(1);
        let (second_ns, seconds) = (1_000_000_000, self.samples / rate);
        if self.start.ns % second_ns != 0 || !self.samples.is_multiple_of(rate) {
            let found =
                format!("{} s from GPS {} on", self.samples as f64 / rate as f64, self.start.s());
            let rule = "GWOSC's HDF5 has whole seconds: choose them, or write a frame file (.gwf)";
            return Err(Error::parameter("strain", found, rule));
        }
        let good = || [ALL_QUALITY, ALL_INJECTIONS].map(|all| vec![all; seconds as usize]);
        let [quality, injections] = self.bits.clone().unwrap_or_else(good);
        Ok(GwoscHeader {
            detector: self.detector.clone(),
            start_s: self.start.ns / second_ns,
            rate_hz: self.rate_hz,
            description: self.description.clone(),
            quality,
            injections,
        })
    }

    fn gwf(&self) -> GwfHeader {
        let channel = self.channel();
        // GWOSC's mask names replace this suffix of the channel name.
        let stem = channel.strip_suffix("STRAIN");
        let masks = match (&self.bits, stem) {
            (Some([quality, injections]), Some(stem)) => vec![
                (format!("{stem}DQMASK"), quality.clone()),
                (format!("{stem}INJMASK"), injections.clone()),
            ],
            _ => Vec::new(),
        };
        GwfHeader {
            channel,
            start: self.start,
            rate_hz: self.rate_hz,
            samples: self.samples,
            unit: "strain".to_owned(),
            description: self.description.clone(),
            is_compressed: self.is_compressed,
            masks,
        }
    }
}

impl StrainWriter {
    /// Supported extensions.
    pub const ENDINGS: [&str; 4] = ["gwf", "hdf5", "h5", "npy"];

    /// Creates a file in the format of its extension: .gwf is a frame file, .hdf5 and .h5 GWOSC's HDF5, .npy an array
    /// of 64-bit floats.
    ///
    /// # Errors
    /// [`Error::Parameter`] for another extension, a header that the format cannot represent (GWOSC's requires whole
    /// seconds), or no samples; [`Error::Io`].
    pub fn create(path: &Path, strain: &NewStrain) -> Result<Self> {
        match path.extension().and_then(|ending| ending.to_str()) {
            Some("hdf5" | "h5") => GwoscWriter::create(path, &strain.gwosc()?).map(Self::Gwosc),
            Some("gwf") => {
                GwfWriter::create(path, &strain.gwf()).map(|writer| Self::Gwf(Box::new(writer)))
            }
            Some("npy") => {
                let mut file = AtomicFile::create(path)?;
                file.append(&Header::encode_series(strain.samples))?;
                Ok(Self::Npy(file, strain.samples))
            }
            _ => {
                let rule = "its name must end in .gwf (frames), .hdf5 (GWOSC's) or .npy";
                Err(Error::parameter("OUT", path.display(), rule))
            }
        }
    }

    /// Appends samples; missing samples are NaN.
    ///
    /// # Errors
    /// [`Error::Parameter`] for more samples than were announced; [`Error::Io`].
    pub fn write(&mut self, samples: &[f64]) -> Result<()> {
        match self {
            Self::Gwosc(writer) => writer.write(samples),
            Self::Gwf(writer) => writer.write(samples),
            Self::Npy(file, left) => {
                let Some(rest) = left.checked_sub(samples.len() as u64) else {
                    let rule = format!("{left} were left of those announced");
                    return Err(Error::parameter("samples", samples.len(), rule));
                };
                *left = rest;
                let bytes: Vec<u8> = samples.iter().flat_map(|x| x.to_le_bytes()).collect();
                file.append(&bytes)
            }
        }
    }

    /// Renames the complete file to its final name.
    ///
    /// # Errors
    /// [`Error::Parameter`] if there are fewer samples than announced; [`Error::Io`].
    pub fn finish(self) -> Result<()> {
        match self {
            Self::Gwosc(writer) => writer.finish(),
            Self::Gwf(writer) => writer.finish(),
            Self::Npy(file, 0) => file.commit(),
            Self::Npy(_, left) => {
                Err(Error::parameter("samples", left, "they are missing of those announced"))
            }
        }
    }
}
