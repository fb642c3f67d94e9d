//! VDIF: frames of one thread each, with a header of 16 (legacy) or 32 bytes.
//!
//! Read: extended data versions 0 to 4 and 0xab (Mark 5B within VDIF), real and complex samples of 1 to
//! 16 bits, any channels, threads and stations. Frames may stand in any order, in several files; a frame
//! that is missing, or has its invalid bit set, is a [`Flag`](super::Flag) of zeros. What a file ends
//! within is dropped. Two frames of one thread and time are an error.
//!
//! The format does not say what threads and channels are. Stations are antennas, in the order of their
//! ids. Exactly two threads are two polarizations; otherwise each thread's channels are recorded
//! channels, thread after thread, unless
//! [`VoltageOptions::polarizations`](super::VoltageOptions::polarizations) says so. Nor is the sky
//! frequency known: centres are 0 without [`VoltageOptions::centre_hz`](super::VoltageOptions::centre_hz),
//! which is the middle of channels side by side, rising (in a lower sideband: falling).
//!
//! Version 4's mask makes flags of the channels whose bit is not set.
//!
//! The sample rate comes from the options, else from extended data of versions 1 and 3, else from the
//! number of a second's last frame, which takes a recording that reaches into a second second.
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

/// Opens the files of one recording, in any order.
///
/// # Errors
/// [`Error::Io`]; [`Error::Format`] for a header that breaks a rule or does not go with the first;
/// [`Error::Parameter`] for options that don't fit; [`Error::Unavailable`] for an unknown sample rate.
pub fn open(paths: &[PathBuf], options: &VoltageOptions) -> Result<Box<dyn VoltageSource>> {
    check_paths(paths)?;
    let mut found = Found { index: Index::default(), first: None };
    for (number, path) in paths.iter().enumerate() {
        found.scan(number, &mut Scan::open(path)?)?;
    }
    let Found { index, first } = found;
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
    };
    frames::open(recording, options)
}

/// Whether a file that begins so is VDIF: the format has no magic number, so each field must be possible.
#[allow(dead_code)]
pub(super) fn detect(first: &[u8]) -> bool {
    first.first_chunk::<FULL_BYTES>().is_some_and(Header::is_plausible)
}

/// What the headers read so far say.
struct Found {
    index: Index,
    first: Option<Header>,
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
                break;
            }
            match &self.first {
                None => header.check(scan.path(), scan.at)?,
                Some(first) => header.check_like(first, scan.path(), scan.at)?,
            }
            let frame_bytes = header.form.frame_bytes as u64;
            if scan.left() < frame_bytes {
                break;
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
            scan.go(scan.at + frame_bytes)?;
        }
        Ok(())
    }
}

/// The stations, and the threads of each.
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
