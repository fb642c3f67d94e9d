//! VDIF files: frames of one thread each, with a header of 16 (legacy) or 32 bytes.
//!
//! Supported: extended data versions 0 to 4 and 0xab (Mark 5B within VDIF), real and complex samples of 1 to 16 bits,
//! any channels, threads and stations. Frames may be in any order, in several files. A frame that is missing or has
//! its invalid bit set becomes a [`Flag`](super::Flag) of zeros. The reader drops a frame truncated by a file's end;
//! [`VoltageSource::cut`] reports it. Two frames with the same thread and time are an error.
//!
//! The format does not define the roles of threads and channels. Stations become antennas, in the order of their ids.
//! Exactly two threads become two polarizations; otherwise each thread's channels become recorded channels, thread by
//! thread, unless [`VoltageOptions::polarizations`](super::VoltageOptions::polarizations) selects otherwise. The sky
//! frequency is not stored: centres are 0 without [`VoltageOptions::centre_hz`](super::VoltageOptions::centre_hz),
//! the middle of adjacent channels in rising order (in a lower sideband: descending order).
//!
//! The mask of version 4 flags the channels whose bit is not set.
//!
//! The sample rate comes from the options, else from extended data of versions 1 and 3, else from the last frame
//! number of a second, for which the recording must extend into another second.
//!
//! # Source
//! VDIF specification 1.1.1 (vlbi.org); levels as in mark5access and baseband.

mod header;
mod time;

use std::path::PathBuf;

use header::{FULL_BYTES, Header, LEGACY_BYTES, station_name};

use super::frames::{self, Frame, Index, Recording, Scan, check_paths};
use super::{VoltageOptions, VoltageSource};
use crate::error::{Error, Result};

/// Opens the files of one recording, given in any order.
///
/// # Errors
/// [`Error::Io`]; [`Error::Format`] for a header that is invalid or disagrees with the first; [`Error::Parameter`]
/// for inconsistent options; [`Error::Unavailable`] for an unknown sample rate.
pub fn open(paths: &[PathBuf], options: &VoltageOptions) -> Result<Box<dyn VoltageSource>> {
    check_paths(paths)?;
    let mut found = Found { index: Index::default(), first: None, cuts: Vec::new() };
    for (number, path) in paths.iter().enumerate() {
        found.scan(number, &mut Scan::open(path)?)?;
    }
    let Found { index, first, cuts } = found;
    let Some(first) = first else {
        let why = "found the end of the file, expected a whole frame";
        return Err(Error::format(&paths[0], "frame", 0, why));
    };
    let (stations, threads) = stations(&index, &paths[0])?;
    let names: Vec<String> = stations.into_iter().map(station_name).collect();
    let recording = Recording {
        format: "VDIF",
        paths,
        telescope: names.join(", "),
        stations: names.len(),
        threads,
        layout: first.form.layout(),
        header_bytes: first.form.header_bytes(),
        groups: first.groups(),
        index,
        sample_rate_hz: first.sample_rate_hz(),
        most_frames: 1 << 24,
        epoch: time::epoch,
        cuts,
        warnings: Vec::new(),
    };
    frames::open(recording, options)
}

/// Returns whether a file's first bytes are VDIF. The format has no magic number, so every field must be possible.
pub(super) fn detect(first: &[u8]) -> bool {
    Header::is_plausible(first)
}

/// Results of the scan so far.
struct Found {
    index: Index,
    first: Option<Header>,
    cuts: Vec<String>,
}

impl Found {
    /// Reads all headers of a file.
    fn scan(&mut self, file: usize, scan: &mut Scan<'_>) -> Result<()> {
        while scan.left() >= LEGACY_BYTES as u64 {
            let mut bytes = [0; FULL_BYTES];
            let there = scan.left().min(FULL_BYTES as u64) as usize;
            scan.read_at(scan.at, &mut bytes[..there])?;
            let header = Header::parse(&bytes);
            if there < header.form.header_bytes() {
                let bytes = self.first.map_or(header.form.frame_bytes, |f| f.form.frame_bytes);
                self.cuts.push(scan.cut_frame(bytes as u64));
                return Ok(());
            }
            match &self.first {
                None => header.check(scan.path(), scan.at)?,
                Some(first) => header.check_like(first, scan.path(), scan.at)?,
            }
            let frame_bytes = header.form.frame_bytes as u64;
            if scan.left() < frame_bytes {
                self.cuts.push(scan.cut_frame(frame_bytes));
                return Ok(());
            }
            self.first.get_or_insert(header);
            self.index.push(&Frame {
                unit: (header.station, header.thread),
                second: time::seconds_since_2000(header.epoch, header.seconds),
                number: header.number,
                file,
                offset: scan.at,
                valid: header.valid(),
            });
            scan.at += frame_bytes;
        }
        if let (Some(first), true) = (&self.first, scan.left() > 0) {
            self.cuts.push(scan.cut_frame(first.form.frame_bytes as u64));
        }
        Ok(())
    }
}

/// Returns the stations and the number of threads per station.
fn stations(index: &Index, path: &PathBuf) -> Result<(Vec<u16>, usize)> {
    let units: Vec<(u16, u16)> = index.units().collect();
    let of_stations: Vec<&[(u16, u16)]> = units.chunk_by(|a, b| a.0 == b.0).collect();
    let threads = |units: &[(u16, u16)]| units.iter().map(|unit| unit.1).collect::<Vec<_>>();
    let first = threads(of_stations[0]);
    if let Some(other) = of_stations.iter().find(|units| threads(units) != first) {
        let why = format!(
            "{} has the threads {:?}, expected {first:?} as of {}",
            station_name(other[0].0),
            threads(other),
            station_name(of_stations[0][0].0)
        );
        return Err(Error::format(path, "thread", 0, why));
    }
    Ok((of_stations.iter().map(|units| units[0].0).collect(), first.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Header followed by payload words.
    fn words(first: [u32; 4], extended: [u32; 4]) -> Vec<u8> {
        let words = [first, extended, [0x5aa5_0ff0; 4], [0x1234_5678; 4]];
        words.as_flattened().iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    /// 1000 s, epoch 40, frames of 5032 bytes, 2 bits.
    const PLAIN: [u32; 4] = [1000, 40 << 24, 1 << 29 | 629, 1 << 26 | 0x4161];

    #[test]
    fn every_version_is_detected() {
        let legacy = [1000 | 1 << 30, PLAIN[1], PLAIN[2], PLAIN[3]];
        assert!(detect(&words(PLAIN, [0; 4])) && detect(&words(legacy, [77; 4])));
        for extended in [
            [1 << 24 | 16, 0xacab_feed, 1, 2],
            [2 << 24 | 0xa_5ea5 << 4, 1, 2, 3],
            [3 << 24 | 16, 0xacab_feed, 1, 2],
            [4 << 24, 0xacab_feed, 1, 2],
            [0xabad_deed, 0, 0x8211_9801, 0],
        ] {
            assert!(detect(&words(PLAIN, extended)), "{extended:x?}");
        }
    }

    #[test]
    fn a_second_header_tells_what_the_first_leaves_open() {
        let small = 1 << 29 | 4 << 3;
        let twice = |first: [u32; 4], extended| {
            let header = words([first[0], first[1], small, first[3]], extended);
            (detect(&[&header[..], &[0; 192 + 64]].concat()), {
                let payload = [0; 192];
                detect(&[&header[..], &payload[..], &header[..]].concat())
            })
        };
        let legacy = [PLAIN[0] | 1 << 30, PLAIN[1], 0, PLAIN[3]];
        assert_eq!(twice(legacy, [0; 4]), (false, true));
        assert_eq!(twice(PLAIN, [9 << 24, 0, 0, 0]), (false, true), "an unknown version");
        assert_eq!(twice([PLAIN[0], PLAIN[1], 0, 31 << 26], [0; 4]), (false, true), "32 bits");
        assert_eq!(twice(PLAIN, [0; 4]), (true, true));
    }

    #[test]
    fn other_files_are_not_taken_for_it() {
        let mut hdf5 = b"\x89HDF\r\n\x1a\n\x02\x08\x08\0\0\0\0\0".to_vec();
        hdf5.resize(64, 0);
        let text = b"HDR_SIZE 4096\nHDR_VERSION 1.0\n# and so on, as text files have it, for long.";
        let fits =
            b"SIMPLE  =                    T / file does conform to FITS standard             ";
        let raw =
            b"BACKEND = 'GUPPI   '                                                            ";
        let fil = b"\x0c\0\0\0HEADER_START\x0c\0\0\0telescope_id\x06\0\0\0\x0c\0\0\0data_type";
        let numpy =
            b"\x93NUMPY\x01\x00v\x00{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }";
        let mark5b = words([0xabad_deed, 0, 0x8211_9801, 0], [0; 4]);
        let cases: [&[u8]; 9] =
            [&hdf5, text, fits, raw, fil, numpy, &mark5b, &[0; 64], &[0xff; 64]];
        for bytes in cases {
            assert!(!detect(bytes), "{}", bytes.escape_ascii());
        }
        assert!(!detect(&words(PLAIN, [9 << 24, 0, 0, 0])) && !detect(&words(PLAIN, [0; 4])[..31]));
    }
}
