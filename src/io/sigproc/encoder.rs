//! Encoder of SIGPROC headers.
//!
//! Invariant: starts with `HEADER_START` and ends with `HEADER_END`; every keyword has its value.

use std::path::Path;

use super::telescopes;
use crate::io::sexagesimal::pack_degrees;

/// Builds a header field by field.
#[derive(Debug)]
pub(super) struct Encoder {
    bytes: Vec<u8>,
}

impl Encoder {
    /// Begins with `HEADER_START`.
    pub(super) fn new() -> Self {
        let mut encoder = Self { bytes: Vec::new() };
        encoder.word("HEADER_START");
        encoder
    }

    pub(super) fn word(&mut self, text: &str) {
        self.bytes.extend_from_slice(&(text.len() as u32).to_le_bytes());
        self.bytes.extend_from_slice(text.as_bytes());
    }

    pub(super) fn integer(&mut self, keyword: &str, value: i32) {
        self.word(keyword);
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    pub(super) fn float(&mut self, keyword: &str, value: f64) {
        self.word(keyword);
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    pub(super) fn byte(&mut self, keyword: &str, value: u8) {
        self.word(keyword);
        self.bytes.push(value);
    }

    /// Appends a text, cut to 79 bytes, which every reader accepts.
    pub(super) fn text(&mut self, keyword: &str, value: &str) {
        let mut end = value.len().min(79);
        while !value.is_char_boundary(end) {
            end -= 1;
        }
        self.word(keyword);
        self.word(if end == 0 { "unknown" } else { &value[..end] });
    }

    /// Appends the observation's fields, common to filterbanks and time series.
    pub(super) fn observation(&mut self, path: &Path, source: &str, telescope: &str) {
        self.text("rawdatafile", &path.file_name().unwrap_or_default().to_string_lossy());
        self.text("source_name", source);
        self.integer("machine_id", 0);
        self.integer("telescope_id", telescopes::number(telescope));
    }

    /// Appends the sky position; 0 where unknown.
    pub(super) fn position(&mut self, ra_deg: Option<f64>, dec_deg: Option<f64>) {
        self.float("src_raj", pack_degrees(ra_deg.unwrap_or(0.0) / 15.0));
        self.float("src_dej", pack_degrees(dec_deg.unwrap_or(0.0)));
        self.float("az_start", 0.0);
        self.float("za_start", 0.0);
    }

    pub(super) fn frequencies(&mut self, centres_mhz: impl Iterator<Item = f64>) {
        self.word("FREQUENCY_START");
        for centre in centres_mhz {
            self.float("fchannel", centre);
        }
        self.word("FREQUENCY_END");
    }

    /// Appends `HEADER_END` and returns all bytes.
    pub(super) fn finish(mut self) -> Vec<u8> {
        self.word("HEADER_END");
        self.bytes
    }
}
