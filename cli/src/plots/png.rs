//! PNG files with provenance as text chunks.

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};

use png::{AdaptiveFilterType, BitDepth, ColorType, Compression, EncodingError};
use sidereal::{Error, Result};

use crate::json;
use crate::provenance::Made;

/// Keywords of the text chunks, each with one line of JSON.
const PROVENANCE: &str = "provenance";
const RUN: &str = "run";

/// PNG file to write.
#[derive(Clone, Debug)]
pub(crate) struct Png<'a> {
    path: PathBuf,
    made: &'a Made,
    compression: Compression,
}

impl<'a> Png<'a> {
    /// Describes the file at `path`; `made` goes into its text chunks.
    pub(crate) fn new(path: impl Into<PathBuf>, made: &'a Made) -> Self {
        // A twentieth of the time of the default, for a tenth more bytes where planes fill the picture.
        Self { path: path.into(), made, compression: Compression::Fast }
    }

    /// Compresses well, which takes longer; fast compression doubles the size of a picture of thin lines.
    pub(crate) fn small(self) -> Self {
        Self { compression: Compression::Default, ..self }
    }

    /// Writes the file: three bytes (red, green, blue) per pixel, row by row from the top.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(super) fn write(&self, width: u32, height: u32, pixels: &[u8]) -> Result<()> {
        let encoded = self.encoded(width, height, pixels)?;
        std::fs::write(&self.path, encoded).map_err(|error| {
            // A full disk leaves a part of the file.
            let _ = std::fs::remove_file(&self.path);
            Error::io(&self.path, error)
        })
    }

    /// Returns the bytes of the file.
    fn encoded(&self, width: u32, height: u32, pixels: &[u8]) -> Result<Vec<u8>> {
        let texts =
            [(PROVENANCE, json::line(&self.made.provenance)?), (RUN, json::line(&self.made.run)?)];
        let mut file = Vec::with_capacity(pixels.len() / 8);
        let encoded = (|| {
            let mut encoder = png::Encoder::new(&mut file, width, height);
            encoder.set_color(ColorType::Rgb);
            encoder.set_depth(BitDepth::Eight);
            encoder.set_compression(self.compression);
            encoder.set_adaptive_filter(AdaptiveFilterType::Adaptive);
            let software = format!("sidereal {}", env!("CARGO_PKG_VERSION"));
            encoder.add_text_chunk("Software".to_owned(), software)?;
            for (keyword, text) in texts {
                encoder.add_itxt_chunk(keyword.to_owned(), text)?;
            }
            let mut writer = encoder.write_header()?;
            writer.write_image_data(pixels)?;
            writer.finish()
        })();
        encoded.map_err(|error| match error {
            EncodingError::IoError(error) => Error::io(&self.path, error),
            other => Error::io(&self.path, std::io::Error::other(other.to_string())),
        })?;
        Ok(file)
    }
}

/// Returns the texts `provenance` and `run` of a PNG file, empty if absent.
///
/// # Errors
/// [`Error::Io`]; [`Error::Format`] for a file that is not a PNG.
pub(crate) fn texts(path: &Path) -> Result<[String; 2]> {
    let file = File::open(path).map_err(|error| Error::io(path, error))?;
    let reader = png::Decoder::new(BufReader::new(file)).read_info();
    let reader = reader.map_err(|error| Error::format(path, "PNG", 0, error.to_string()))?;
    let texts = &reader.info().utf8_text;
    Ok([PROVENANCE, RUN].map(|keyword| {
        let found = texts.iter().find(|text| text.keyword == keyword);
        found.and_then(|text| text.get_text().ok()).unwrap_or_default()
    }))
}
