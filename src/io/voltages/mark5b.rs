//! Mark 5B files: frames of 10016 bytes with all channels in each.
//!
//! The headers store neither channels nor bits: [`VoltageOptions::mark5b_channels`] is required, and
//! [`VoltageOptions::mark5b_bits`] unless there are 2 bits. Of the day they store three digits, resolved by
//! [`VoltageOptions::mark5b_near_mjd`], by default 57 000. A frame that is missing, or consists of the fill
//! pattern 0x11223344, becomes a [`Flag`](super::Flag) of zeros. Bytes between frames are skipped with a warning. The
//! reader drops a frame truncated by a file's end; [`VoltageSource::cut`] reports it.
//!
//! The sample rate comes from the options, else from the fraction of a second in the headers, else from the last
//! frame number of a second, for which the recording must extend into another second. The sky frequency is not
//! stored: centres are 0 without [`VoltageOptions::centre_hz`], the middle of adjacent channels in rising order (in a
//! lower sideband: descending order).
//!
//! # Source
//! Haystack, Mark 5B user's manual; levels and 1-bit signs as in mark5access and baseband.

use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::io::voltages::frames::{Code, Frame, Index, Layout, Recording, Scan, check_paths};
use crate::io::voltages::{VoltageOptions, VoltageSource, frames};
use crate::units::Epoch;

/// Default of [`VoltageOptions::mark5b_near_mjd`] (MJD, December 2014): three digits determine a day within 500 days
/// of it.
const NEAR_MJD: i64 = 57_000;

/// Latest accepted value of [`VoltageOptions::mark5b_near_mjd`].
const LAST_MJD: i64 = 1_000_000;
/// Maximum bits of all channels together: the recorder's bit streams.
const MAX_BITS: usize = 32;
/// Seconds in a day.
const DAY_S: u64 = 86_400;
/// Fill pattern of a frame without data, in file byte order.
const FILL: [u8; 4] = [0x44, 0x33, 0x22, 0x11];
/// Bytes per read in the search for a frame.
const SEARCH_BYTES: u64 = 1 << 16;

/// Opens the files of one recording, given in any order.
///
/// # Errors
/// [`Error::Io`]; [`Error::Format`] for files without frames and invalid time codes; [`Error::Parameter`] for a
/// missing number of channels and inconsistent options; [`Error::Unavailable`] for an unknown sample rate.
pub fn open(paths: &[PathBuf], options: &VoltageOptions) -> Result<Box<dyn VoltageSource>> {
    check_paths(paths)?;
    let layout = layout(options)?;
    let near = options.mark5b_near_mjd.unwrap_or(NEAR_MJD);
    if !(0..=LAST_MJD).contains(&near) {
        let rule = format!("it must be a day of 0 to {LAST_MJD}");
        return Err(Error::parameter("mark5b_near_mjd", near, rule));
    }
    let mut found = Found {
        index: Index::default(),
        first_day: None,
        latest: None,
        near,
        cuts: Vec::new(),
        passed: 0,
        bad_frames: 0,
        first_fault: None,
    };
    for (number, path) in paths.iter().enumerate() {
        found.scan(number, &mut Scan::open(path)?)?;
    }
    let Some(latest) = found.latest else {
        if let Some(fault) = found.first_fault {
            return Err(fault);
        }
        let why = "found no whole frame, expected 10016 bytes from the sync word 0xabaddeed on";
        return Err(Error::format(&paths[0], "sync word", 0, why));
    };
    let rate = latest.frames_per_second().map(|frames| (frames * layout.times() as u64) as f64);
    let mut warnings = Vec::new();
    if found.passed > 0 {
        let (path, passed) = (paths[0].display(), found.passed);
        warnings.push(format!(
            "{path}: {passed} bytes between frames do not form a frame and are skipped"
        ));
    }
    if let Some(fault) = found.first_fault {
        let frames = found.bad_frames;
        warnings.push(format!("{fault}; {frames} frames without a time are left out"));
    }
    let recording = Recording {
        format: "Mark 5B",
        paths,
        telescope: String::new(),
        stations: 1,
        threads: 1,
        layout,
        header_bytes: HEADER_BYTES,
        groups: 1,
        index: found.index,
        sample_rate_hz: rate,
        most_frames: 1 << 15,
        epoch: |second| Epoch { day: (second / DAY_S) as i64, seconds: (second % DAY_S) as f64 },
        cuts: found.cuts,
        warnings,
    };
    frames::open(recording, options)
}

/// Returns whether a file's first bytes are Mark 5B.
pub(super) fn detect(first: &[u8]) -> bool {
    first.starts_with(&SYNC)
}

/// Makes the payload layout from the options.
fn layout(options: &VoltageOptions) -> Result<Layout> {
    let rule =
        "a Mark 5B file's headers don't say: give 1, 2, 4, 8, 16 or 32, at most 32 bits for all";
    let bits = options.mark5b_bits.unwrap_or(2);
    if !matches!(bits, 1 | 2) {
        return Err(Error::parameter("mark5b_bits", bits, "it must be 1 or 2"));
    }
    let channels = options
        .mark5b_channels
        .ok_or_else(|| Error::parameter("mark5b_channels", "not given", rule))?;
    if !channels.is_power_of_two() || channels > MAX_BITS / bits {
        return Err(Error::parameter("mark5b_channels", channels, rule));
    }
    Ok(Layout { bits, complex: false, channels, bytes: PAYLOAD_BYTES, code: Code::Mark5b })
}

/// Results of the scan so far.
struct Found {
    index: Index,
    first_day: Option<i64>,
    /// Frame with the highest number within its second.
    latest: Option<Header>,
    near: i64,
    cuts: Vec<String>,
    /// Skipped bytes between frames.
    passed: u64,
    /// Number of frames with an invalid time code.
    bad_frames: u64,
    /// Error of the first such frame.
    first_fault: Option<Error>,
}

impl Found {
    /// Reads all headers of a file.
    fn scan(&mut self, file: usize, scan: &mut Scan<'_>) -> Result<()> {
        while scan.left() >= FRAME_BYTES {
            let mut bytes = [0; HEADER_BYTES];
            scan.read_at(scan.at, &mut bytes)?;
            if !bytes.starts_with(&SYNC) {
                let next = next_frame(scan)?;
                self.passed += next - scan.at;
                scan.at = next;
                continue;
            }
            let header = match Header::parse(&bytes, scan.path(), scan.at) {
                Ok(header) => header,
                Err(error) => {
                    // Skip the frame only: the time codes of the frames around it are valid.
                    self.bad_frames += 1;
                    self.first_fault.get_or_insert(error);
                    scan.at += FRAME_BYTES;
                    continue;
                }
            };
            let day = header.mjd(self.first_day.unwrap_or(self.near));
            self.first_day.get_or_insert(day);
            let latest = self.latest.get_or_insert(header);
            // A damaged frame number is consistent with no standard rate.
            let fits = header.frames_per_second().is_some() || latest.frames_per_second().is_none();
            if header.number > latest.number && fits {
                *latest = header;
            }
            self.index.push(&Frame {
                unit: (0, 0),
                second: day as u64 * DAY_S + u64::from(header.second),
                number: header.number,
                file,
                offset: scan.at,
                valid: u64::from(!is_fill(scan)?),
            });
            scan.at += FRAME_BYTES;
        }
        if scan.left() > 0 {
            self.cuts.push(scan.cut_frame(FRAME_BYTES));
        }
        Ok(())
    }
}

/// Returns whether the current frame's payload consists of the fill pattern.
fn is_fill(scan: &mut Scan<'_>) -> Result<bool> {
    let start = scan.at + HEADER_BYTES as u64;
    let mut first = [0; 16];
    scan.read_at(start, &mut first)?;
    let fill = |bytes: &[u8]| bytes.as_chunks::<4>().0.iter().all(|word| *word == FILL);
    if !fill(&first) {
        return Ok(false);
    }
    let mut payload = vec![0; PAYLOAD_BYTES];
    scan.read_at(start, &mut payload)?;
    Ok(fill(&payload))
}

/// Finds the next frame: a sync word followed by another one a frame later or by the file's end.
fn next_frame(scan: &mut Scan<'_>) -> Result<u64> {
    let mut from = scan.at + 1;
    let mut bytes = Vec::new();
    while from + FRAME_BYTES <= scan.bytes {
        let length = SEARCH_BYTES.min(scan.bytes - from);
        bytes.resize(length as usize, 0);
        scan.read_at(from, &mut bytes)?;
        for (place, _) in bytes.windows(4).enumerate().filter(|(_, word)| *word == SYNC) {
            let at = from + place as u64;
            if follows(scan, at + FRAME_BYTES)? {
                return Ok(at);
            }
        }
        from += length.saturating_sub(3).max(1);
    }
    Ok(scan.bytes)
}

/// Returns whether a frame or the file's end is at byte `at`.
fn follows(scan: &mut Scan<'_>, at: u64) -> Result<bool> {
    if at + SYNC.len() as u64 > scan.bytes {
        return Ok(at <= scan.bytes);
    }
    let mut word = [0; 4];
    scan.read_at(at, &mut word)?;
    Ok(word == SYNC)
}

/// Bytes per header.
const HEADER_BYTES: usize = 16;
/// Bytes per payload.
const PAYLOAD_BYTES: usize = 10_000;
/// Bytes per frame.
const FRAME_BYTES: u64 = (HEADER_BYTES + PAYLOAD_BYTES) as u64;
/// 0xABADDEED in file byte order.
const SYNC: [u8; 4] = [0xed, 0xde, 0xad, 0xab];

/// Frames per second at 2 Mbit/s; other rates are this times a power of two.
const MIN_FRAMES: u64 = 25;
/// Number of frame rates: [`MIN_FRAMES`] times powers of two.
const RATES: u32 = 11;

/// Fields of a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Header {
    /// Frame number within its second.
    number: u32,
    /// The last three digits of the modified Julian day.
    day: u32,
    /// Seconds of the day.
    second: u32,
    /// Time within the second in 0.1 ms, rounded down; some recorders always write 0.
    fraction: u32,
}

impl Header {
    /// Parses the header at byte `at` of a file.
    ///
    /// # Errors
    /// [`Error::Format`] for a wrong sync word or an invalid time code.
    fn parse(bytes: &[u8; HEADER_BYTES], path: &Path, at: u64) -> Result<Self> {
        let (words, _) = bytes.as_chunks::<4>();
        let word = |index: usize| u32::from_le_bytes(words[index]);
        if words[0] != SYNC {
            let why = format!("found 0x{:08x}, expected 0xabaddeed", word(0));
            return Err(Error::format(path, "sync word", at, why));
        }
        let digits = |code: u32, field: &str, byte: u64| {
            decimal(code).ok_or_else(|| {
                let why = format!("found 0x{code:x}, expected decimal digits");
                Error::format(path, field, at + byte, why)
            })
        };
        let header = Self {
            number: word(1) & 0x7fff,
            day: digits(word(2) >> 20, "day", 8)?,
            second: digits(word(2) & 0xf_ffff, "seconds", 8)?,
            fraction: decimal(word(3) >> 16).unwrap_or(0),
        };
        if header.second > 86_400 {
            let why = format!("found {}, expected a second of a day", header.second);
            return Err(Error::format(path, "seconds", at + 8, why));
        }
        Ok(header)
    }

    /// Infers the frames per second from the fraction of the second: the only standard rate consistent with it.
    fn frames_per_second(&self) -> Option<u64> {
        let (number, fraction) = (u64::from(self.number), u64::from(self.fraction));
        let fits = |rate: &u64| fraction > 0 && number * 10_000 / rate == fraction;
        let mut rates = (0..RATES).map(|power| MIN_FRAMES << power).filter(fits);
        rates.next().filter(|_| rates.next().is_none())
    }

    /// Returns the modified Julian day nearest to `near` with these three digits.
    fn mjd(&self, near: i64) -> i64 {
        let day = i64::from(self.day);
        (near - day + 500).div_euclid(1000).max(0) * 1000 + day
    }
}

/// Decodes a binary-coded decimal number; `None` for a digit above 9.
fn decimal(code: u32) -> Option<u32> {
    (0..8)
        .rev()
        .map(|digit| code >> (4 * digit) & 0xf)
        .try_fold(0, |number, digit| (digit < 10).then_some(number * 10 + digit))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(words: [u32; 4]) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes.copy_from_slice(words.map(u32::to_le_bytes).as_flattened());
        bytes
    }

    #[test]
    fn a_header_reads() {
        let words = [0xabad_deed, 0xbead_0003, 0x8211_9801, 0x0004_1746];
        let header = Header::parse(&bytes(words), Path::new("x"), 0).unwrap();
        assert_eq!(header, Header { number: 3, day: 821, second: 19_801, fraction: 4 });
        assert_eq!(header.frames_per_second(), Some(6400));
        assert_eq!((header.mjd(57_000), header.mjd(57_400), header.mjd(0)), (56_821, 57_821, 821));
        let zero = Header { fraction: 0, ..header };
        assert_eq!(zero.frames_per_second(), None);
        let early = Header { number: 1, fraction: 1, ..header };
        assert_eq!(early.frames_per_second(), Some(6400), "1.56 ms / 10, no other rate");
    }

    #[test]
    fn what_is_no_header_is_named() {
        let message =
            |words| Header::parse(&bytes(words), Path::new("x"), 7).unwrap_err().to_string();
        let found = message([0xabad_dead, 0, 0, 0]);
        assert!(found.contains("0xabaddead") && found.contains("byte 7"), "{found}");
        assert!(message([0xabad_deed, 0, 0xa21f_9801, 0]).contains("0xa21"));
        assert!(message([0xabad_deed, 0, 0x8219_9801, 0]).contains("99801"));
    }
}
