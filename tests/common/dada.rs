//! PSRDADA files written byte by byte, without our writer.
#![allow(dead_code, unreachable_pub, missing_docs)]

use std::path::{Path, PathBuf};

use super::voltages::{Keys, save};

/// A header under construction.
#[derive(Clone)]
pub struct Dada {
    pub lines: Vec<(&'static str, String)>,
    pub size: usize,
}

impl Dada {
    /// Two polarizations of three channels, 8 bits.
    pub fn new() -> Self {
        let lines = [
            ("HEADER", "DADA"),
            ("HDR_VERSION", "1.0"),
            ("HDR_SIZE", "1024"),
            ("DADA_VERSION", "1.0"),
            ("SOURCE", "J0437-4715 # a pulsar"),
            ("TELESCOPE", "Parkes"),
            ("RA", "04:37:15.8"),
            ("DEC", "-47:15:09.1"),
            ("FREQ", "1400.0"),
            ("BW", "3.0"),
            ("TSAMP", "1.0"),
            ("NBIT", "8"),
            ("NDIM", "2"),
            ("NPOL", "2"),
            ("NCHAN", "3"),
            ("OBS_OFFSET", "0"),
            ("UTC_START", "2023-02-25-01:00:00"),
            ("BASIS", "Circular"),
        ];
        Self { lines: lines.map(|(key, value)| (key, value.to_string())).to_vec(), size: 1024 }
    }

    pub fn header(&self) -> Vec<u8> {
        let text: String =
            self.lines.iter().map(|(key, value)| format!("{key} \t{value}\n")).collect();
        let mut bytes = text.into_bytes();
        bytes.resize(self.size, 0);
        bytes
    }

    /// With `length` bytes of samples, those of the observation from `first` on.
    pub fn save(&self, folder: &Path, name: &str, first: usize, length: usize) -> PathBuf {
        let data = (first..first + length).map(payload);
        save(folder, name, &[self.header(), data.collect()].concat())
    }
}

impl Keys for Dada {
    fn lines(&mut self) -> &mut Vec<(&'static str, String)> {
        &mut self.lines
    }
}

/// Returns the value at a byte of the observation's samples.
pub fn payload(at: usize) -> u8 {
    (at * 7 + at / 251) as u8
}

/// Compares rows with samples of `bytes` bytes whose index (in samples) is a function of stream and time.
pub fn check(rows: &[Vec<u8>], bytes: usize, place: impl Fn(usize, usize) -> usize) {
    for (stream, row) in rows.iter().enumerate() {
        for (time, found) in row.chunks(bytes).enumerate() {
            let at = place(stream, time) * bytes;
            let expected: Vec<u8> = (at..at + bytes).map(payload).collect();
            assert_eq!(found, expected, "stream {stream}, time {time}");
        }
    }
}
