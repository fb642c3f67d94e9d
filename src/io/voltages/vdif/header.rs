//! Header of a VDIF frame: 16 (legacy) or 32 bytes of little-endian words.
//!
//! Invariant: frames of one recording have the same form: what is not time, thread, station or validity.

use std::path::Path;

use crate::error::{Error, Result};
use crate::io::voltages::frames::{Code, Layout};

/// Bytes per header with extended data.
pub(super) const FULL_BYTES: usize = 32;
/// Bytes per legacy header.
pub(super) const LEGACY_BYTES: usize = 16;
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
pub(super) struct Header {
    /// Fields common to all frames of a recording.
    pub(super) form: Form,
    pub(super) invalid: bool,
    /// Seconds since the reference epoch.
    pub(super) seconds: u32,
    /// Reference epoch: half years since 2000.
    pub(super) epoch: u32,
    pub(super) number: u32,
    pub(super) thread: u16,
    pub(super) station: u16,
    /// The last four words; 0 for a legacy header.
    extended: [u32; 4],
}

/// Fields common to all frames of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Form {
    pub(super) legacy: bool,
    version: u32,
    channels_log2: u32,
    /// Bytes per frame, header included.
    pub(super) frame_bytes: usize,
    complex: bool,
    bits: usize,
    /// Extended data version; 0 for a legacy header.
    pub(super) edv: u8,
}

impl Header {
    /// Parses the fields without validation; any bytes may follow a legacy header.
    pub(super) fn parse(bytes: &[u8; FULL_BYTES]) -> Self {
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
    pub(super) fn sample_rate_hz(&self) -> Option<f64> {
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
    pub(super) fn groups(&self) -> usize {
        self.masked_groups().unwrap_or(1)
    }

    /// Returns one validity bit per channel group.
    pub(super) fn valid(&self) -> u64 {
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
    pub(super) fn check(&self, path: &Path, at: u64) -> Result<()> {
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
    pub(super) fn check_like(&self, first: &Self, path: &Path, at: u64) -> Result<()> {
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
    pub(super) fn is_plausible(first: &[u8]) -> bool {
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
    pub(super) fn header_bytes(&self) -> usize {
        if self.legacy { LEGACY_BYTES } else { FULL_BYTES }
    }

    fn channels(&self) -> usize {
        1 << self.channels_log2
    }

    /// Returns the payload layout.
    pub(super) fn layout(&self) -> Layout {
        Layout {
            bits: self.bits,
            complex: self.complex,
            channels: self.channels(),
            bytes: self.frame_bytes - self.header_bytes(),
            code: if self.edv == MARK5B { Code::Mark5b } else { Code::Offset },
        }
    }
}

/// Formats a station: two letters or digits, or a number.
pub(super) fn station_name(station: u16) -> String {
    let letters = station.to_be_bytes();
    if letters.iter().all(u8::is_ascii_graphic) {
        return letters.map(char::from).iter().collect();
    }
    format!("station {station}")
}

fn is_text(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| byte.is_ascii_graphic() || byte.is_ascii_whitespace())
}
