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

mod file;
mod writer;

use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::io::voltages::frames::{
    Announced, ArrivingFrames, Code, Frame, Index, Layout, Recording, Scan, check_paths,
};
use crate::io::voltages::{VoltageHeader, VoltageOptions, VoltageSource, frames};
use crate::units::Epoch;
pub use file::Writer;
pub(crate) use writer::{FrameSizes, FrameWriter};

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
        epoch,
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
                second: seconds_since_2000(header.epoch, header.seconds),
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

/// Bytes per header with extended data.
const FULL_BYTES: usize = 32;
/// Bytes per legacy header.
const LEGACY_BYTES: usize = 16;
/// Sync word of extended data versions 1, 3 and 4.
const SYNC: u32 = 0xacab_feed;
/// Sync word of version 0xab: that of Mark 5B.
const MARK5B_SYNC: u32 = 0xabad_deed;
/// Sync word of version 2, 20 bits.
const ALMA_SYNC: u32 = 0xa_5ea5;
/// First bytes of an HDF5 file, which would also be a valid legacy header.
const HDF5: &[u8] = b"\x89HDF\r\n\x1a\n";
/// Extended data version of Mark 5B within VDIF.
const MARK5B: u8 = 0xab;

/// Fields of a header.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Header {
    /// Fields common to all frames of a recording.
    form: Form,
    invalid: bool,
    /// Seconds since the reference epoch.
    seconds: u32,
    /// Reference epoch: half years since 2000.
    epoch: u32,
    number: u32,
    thread: u16,
    station: u16,
    /// The last four words; 0 for a legacy header.
    extended: [u32; 4],
}

/// Fields common to all frames of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Form {
    legacy: bool,
    version: u32,
    channels_log2: u32,
    /// Bytes per frame, header included.
    frame_bytes: usize,
    complex: bool,
    bits: usize,
    /// Extended data version; 0 for a legacy header.
    edv: u8,
}

impl Header {
    /// Parses the fields without validation; any bytes may follow a legacy header.
    fn parse(bytes: &[u8; FULL_BYTES]) -> Self {
        let (words, _) = bytes.as_chunks::<4>();
        let word = |index: usize| u32::from_le_bytes(words[index]);
        let bits = |index: usize, low: u32, count: u32| (word(index) >> low) & ((1 << count) - 1);
        let legacy = bits(0, 30, 1) == 1;
        let extended = if legacy { [0; 4] } else { [4, 5, 6, 7].map(word) };
        let form = Form {
            legacy,
            version: bits(2, 29, 3),
            channels_log2: bits(2, 24, 5),
            frame_bytes: bits(2, 0, 24) as usize * 8,
            complex: bits(3, 31, 1) == 1,
            bits: bits(3, 26, 5) as usize + 1,
            edv: (extended[0] >> 24) as u8,
        };
        Self {
            form,
            invalid: bits(0, 31, 1) == 1,
            seconds: bits(0, 0, 30),
            epoch: bits(1, 24, 6),
            number: bits(1, 0, 24),
            thread: bits(3, 16, 10) as u16,
            station: bits(3, 0, 16) as u16,
            extended,
        }
    }

    /// Returns the samples per second of each channel, if the extended data store it.
    fn sample_rate_hz(&self) -> Option<f64> {
        if !matches!(self.form.edv, 1 | 3) {
            return None;
        }
        let unit = if self.extended[0] >> 23 & 1 == 1 { 1e6 } else { 1e3 };
        let rate = f64::from(self.extended[0] & 0x7f_ffff) * unit;
        // The field holds the complex sample rate; real samples are twice as many.
        (rate > 0.0).then_some(if self.form.complex { rate } else { 2.0 * rate })
    }

    /// Returns the number of channel groups with separate validity bits, if the extended data have them.
    fn masked_groups(&self) -> Option<usize> {
        let groups = (self.extended[0] >> 16 & 0xff) as usize;
        let fits = (1..=64).contains(&groups) && self.form.channels().is_multiple_of(groups);
        (self.form.edv == 4 && fits).then_some(groups)
    }

    /// Returns the number of channel groups with separate validity.
    fn groups(&self) -> usize {
        self.masked_groups().unwrap_or(1)
    }

    /// Returns one validity bit per channel group.
    fn valid(&self) -> u64 {
        let mask = u64::from(self.extended[3]) << 32 | u64::from(self.extended[2]);
        match self.masked_groups() {
            _ if self.invalid => 0,
            Some(groups) => mask & (u64::MAX >> (64 - groups)),
            None => 1,
        }
    }

    /// Returns the found and the expected sync word if they differ.
    fn wrong_sync(&self) -> Option<(u32, u32)> {
        let expected = match self.form.edv {
            1 | 3 | 4 => SYNC,
            _ => return None,
        };
        (self.extended[1] != expected).then_some((self.extended[1], expected))
    }

    /// Validates the first header.
    ///
    /// # Errors
    /// [`Error::Format`] naming the field's byte offset.
    fn check(&self, path: &Path, at: u64) -> Result<()> {
        let fault =
            |field: &str, byte: u64, why: String| Err(Error::format(path, field, at + byte, why));
        let Form { edv, frame_bytes, .. } = self.form;
        if !matches!(edv, 0..=4 | MARK5B) {
            let why = format!("found {edv} (0x{edv:02x}), expected 0 to 4 or 0xab");
            return fault("extended data version", 19, why);
        }
        let least = self.form.header_bytes() + 8;
        if frame_bytes < least {
            let why = format!("found {frame_bytes} bytes, expected {least} or more");
            return fault("frame length", 8, why);
        }
        if let Some((field, why)) = self.form.layout().fault() {
            return fault(field, if field == "bits" { 15 } else { 8 }, why);
        }
        if edv == MARK5B && (self.form.complex || self.form.bits > 2) {
            let why = format!("found {} bits, expected real samples of 1 or 2", self.form.bits);
            return fault("bits", 15, why);
        }
        self.check_sync(path, at)
    }

    /// Checks that a header agrees with the first one.
    ///
    /// # Errors
    /// [`Error::Format`] naming the field's byte offset.
    fn check_like(&self, first: &Self, path: &Path, at: u64) -> Result<()> {
        let (found, expected) = (self.form, first.form);
        let fields = [
            ("legacy bit", 3, usize::from(found.legacy), usize::from(expected.legacy)),
            ("frame length", 8, found.frame_bytes, expected.frame_bytes),
            ("version", 11, found.version as usize, expected.version as usize),
            ("channels (log2)", 11, found.channels_log2 as usize, expected.channels_log2 as usize),
            ("bits", 15, found.bits, expected.bits),
            ("complex bit", 15, usize::from(found.complex), usize::from(expected.complex)),
            ("extended data version", 19, usize::from(found.edv), usize::from(expected.edv)),
            ("groups of channels", 18, self.groups(), first.groups()),
        ];
        match fields.iter().find(|(.., found, expected)| found != expected) {
            None => self.check_sync(path, at),
            Some((field, byte, found, expected)) => {
                let why = format!("found {found}, expected {expected} as in the first frame");
                Err(Error::format(path, *field, at + byte, why))
            }
        }
    }

    fn check_sync(&self, path: &Path, at: u64) -> Result<()> {
        self.wrong_sync().map_or(Ok(()), |(found, expected)| {
            let why = format!("found 0x{found:08x}, expected 0x{expected:08x}");
            Err(Error::format(path, "sync word", at + 20, why))
        })
    }

    /// Returns whether arbitrary bytes begin a VDIF file: with a header whose every field is possible, or with a
    /// header that agrees with another one a frame later.
    ///
    /// More bytes make the answer more reliable. A second header is required for an unknown version or bit depth, and
    /// supports a legacy header, which has no other distinguishing mark.
    fn is_plausible(first: &[u8]) -> bool {
        let Some(bytes) = first.first_chunk::<FULL_BYTES>() else { return false };
        let header = Self::parse(bytes);
        let form = header.form;
        let payload = form.frame_bytes.checked_sub(form.header_bytes());
        let unassigned = bytes[7] >> 6;
        let foreign = is_text(bytes) || bytes.starts_with(HDF5);
        if payload.is_none_or(|bytes| bytes < 8) || unassigned != 0 || form.version > 1 || foreign {
            return false;
        }
        let next = first.get(form.frame_bytes..).and_then(|rest| rest.first_chunk::<FULL_BYTES>());
        let follows = next.map(Self::parse).map(|next| next.form == form);
        let known = match form.edv {
            _ if form.legacy => true,
            0 => header.extended == [0; 4],
            1 | 3 | 4 => header.wrong_sync().is_none(),
            2 => header.extended[0] >> 4 & 0xf_ffff == ALMA_SYNC,
            MARK5B => header.extended[0] == MARK5B_SYNC,
            _ => false,
        };
        let possible = known && form.layout().fault().is_none();
        follows.unwrap_or(possible) || (possible && !form.legacy)
    }
}

impl Form {
    fn header_bytes(&self) -> usize {
        if self.legacy { LEGACY_BYTES } else { FULL_BYTES }
    }

    fn channels(&self) -> usize {
        1 << self.channels_log2
    }

    /// Returns the payload layout.
    fn layout(&self) -> Layout {
        Layout {
            bits: self.bits,
            complex: self.complex,
            channels: self.channels(),
            bytes: self.frame_bytes - self.header_bytes(),
            code: if self.edv == MARK5B { Code::Mark5b } else { Code::Offset },
        }
    }
}

/// Header of one frame, for frames that do not come from files.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct FrameHeader {
    header: Header,
}

/// Properties that all frames of a recording share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FrameForm(Form);

impl FrameHeader {
    /// Parses the header at the start of a frame; `None` for bytes that cannot be one.
    pub(crate) fn parse(frame: &[u8]) -> Option<Self> {
        let mut bytes = [0; FULL_BYTES];
        let there = frame.len().min(FULL_BYTES);
        bytes[..there].copy_from_slice(&frame[..there]);
        let header = Header::parse(&bytes);
        let header_bytes = header.form.header_bytes();
        let is_possible = there >= header_bytes
            && header.form.frame_bytes > header_bytes
            && header.wrong_sync().is_none();
        is_possible.then_some(Self { header })
    }

    pub(crate) fn station(&self) -> u16 {
        self.header.station
    }

    pub(crate) fn thread(&self) -> u16 {
        self.header.thread
    }

    /// Returns the seconds since 2000.
    pub(crate) fn second(&self) -> u64 {
        seconds_since_2000(self.header.epoch, self.header.seconds)
    }

    /// Returns the number of the frame in its second.
    pub(crate) fn number(&self) -> u32 {
        self.header.number
    }

    /// Returns whether the samples of all channels are valid.
    pub(crate) fn is_valid(&self) -> bool {
        self.header.valid() == u64::MAX >> (64 - self.header.groups())
    }

    pub(crate) fn header_bytes(&self) -> usize {
        self.header.form.header_bytes()
    }

    /// Returns the bytes of the frame, header included.
    pub(crate) fn frame_bytes(&self) -> usize {
        self.header.form.frame_bytes
    }

    /// Returns whether a frame has the form of its recording.
    pub(crate) fn has_form(&self, form: &FrameForm) -> bool {
        self.header.form == form.0
    }

    /// Returns what all frames of a recording share; `None` if it contradicts itself.
    pub(crate) fn form(&self) -> Option<FrameForm> {
        let is_possible = self.header.check(Path::new(""), 0).is_ok();
        is_possible.then_some(FrameForm(self.header.form))
    }

    /// Returns the samples per second of each channel, if the header states it.
    pub(crate) fn sample_rate_hz(&self) -> Option<f64> {
        self.header.sample_rate_hz()
    }
}

impl FrameForm {
    /// Returns the samples of each channel in a frame.
    pub(crate) fn times(&self) -> usize {
        self.0.layout().times()
    }

    /// Divides frames of `stations`, each with the same number of `threads`, into the streams of a recording; returns its header
    /// without a start.
    ///
    /// # Errors
    /// As [`ArrivingFrames::new`].
    pub(crate) fn divide(
        &self,
        stations: &[u16],
        threads: usize,
        frames_per_s: u32,
        options: &VoltageOptions,
    ) -> Result<(ArrivingFrames, VoltageHeader)> {
        let names: Vec<String> = stations.iter().copied().map(station_name).collect();
        ArrivingFrames::new(&Announced {
            format: "VDIF",
            telescope: names.join(", "),
            stations: stations.len(),
            threads,
            layout: self.0.layout(),
            frames_per_s,
            options,
        })
    }
}

/// Formats a station: two letters or digits, or a number.
fn station_name(station: u16) -> String {
    let letters = station.to_be_bytes();
    if letters.iter().all(u8::is_ascii_graphic) {
        return letters.map(char::from).iter().collect();
    }
    format!("station {station}")
}

/// Returns the station that [`station_name`] formats so.
fn station_number(name: &str) -> Option<u16> {
    match (name.as_bytes(), name.strip_prefix("station ")) {
        (_, Some(number)) => number.parse().ok(),
        ([a, b], None) if a.is_ascii_graphic() && b.is_ascii_graphic() => {
            Some(u16::from_be_bytes([*a, *b]))
        }
        _ => None,
    }
}

fn is_text(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| byte.is_ascii_graphic() || byte.is_ascii_whitespace())
}

/// 2000-01-01.
const FIRST_MJD: i64 = 51_544;
/// Days whose first second followed a leap second.
///
/// # Source
/// IERS Bulletin C: the end of 2005, 2008, June 2012, June 2015, 2016.
const LEAP_MJD: [i64; 5] = [53_736, 54_832, 56_109, 57_204, 57_754];

/// Seconds in a day.
const DAY_S: i64 = 86_400;

/// Returns the seconds from 2000 to a number of half years plus seconds later.
fn seconds_since_2000(half_years: u32, seconds: u32) -> u64 {
    let years = i64::from(half_years / 2);
    let is_leap_year = years % 4 == 0;
    let july = if half_years % 2 == 1 { 181 + i64::from(is_leap_year) } else { 0 };
    let days = 365 * years + (years + 3) / 4 + july;
    let leaps = LEAP_MJD.iter().filter(|day| **day <= FIRST_MJD + days).count() as i64;
    (days * DAY_S + leaps + i64::from(seconds)) as u64
}

/// Converts to UTC; a leap second maps to the following second.
fn epoch(second: u64) -> Epoch {
    let second = second as i64;
    let is_past = |(before, day): &(i64, &i64)| second > (**day - FIRST_MJD) * DAY_S + before;
    let leaps = (0..).zip(&LEAP_MJD).take_while(is_past).count() as i64;
    let second = second - leaps;
    Epoch { day: FIRST_MJD + second.div_euclid(DAY_S), seconds: second.rem_euclid(DAY_S) as f64 }
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

    fn moment(half_years: u32, seconds: u32) -> (i64, f64) {
        let epoch = epoch(seconds_since_2000(half_years, seconds));
        (epoch.day, epoch.seconds)
    }

    #[test]
    fn half_years_begin_where_they_should() {
        assert_eq!(moment(0, 0), (51_544, 0.0));
        assert_eq!(moment(1, 0), (51_726, 0.0), "1 July 2000");
        assert_eq!(moment(2, 0), (51_910, 0.0), "1 January 2001");
        assert_eq!(moment(28, 14_363_767), (56_824, 21_367.0), "16 June 2014, 05:56:07");
        assert_eq!(moment(63, 0), (63_048, 0.0), "1 July 2031");
    }

    #[test]
    fn leap_seconds_count() {
        // Reference epoch 2000, recording of 2016: four leap seconds in between.
        assert_eq!(moment(0, 514_629_935), (57_500, 31_531.0));
        let before = seconds_since_2000(33, 15_897_599);
        assert_eq!(epoch(before), Epoch { day: 57_753, seconds: 86_399.0 });
        assert_eq!(epoch(before + 1), Epoch { day: 57_754, seconds: 0.0 }, "the leap second");
        assert_eq!(epoch(before + 2), Epoch { day: 57_754, seconds: 0.0 });
        assert_eq!(before + 2, seconds_since_2000(34, 0));
    }
}
