//! Mark 5B: frames of 10016 bytes, all channels in each.
//!
//! The headers say neither channels nor bits: [`VoltageOptions::mark5b_channels`] has to, and
//! [`VoltageOptions::mark5b_bits`] where they are not 2. Of the day they keep three digits:
//! [`VoltageOptions::mark5b_near_mjd`] resolves them, by default [`NEAR_MJD`]. A frame that is missing,
//! or consists of the fill pattern 0x11223344, is a [`Flag`](super::Flag) of zeros; bytes between
//! frames are passed over with a warning. A frame that a file's end cuts off is left out, and [`VoltageSource::cut`] says so.
//!
//! The sample rate comes from the options, else from the fraction of a second in the headers, else from
//! the number of a second's last frame, which takes a recording that reaches into a second second. The
//! frequency is not known: centres are 0 without [`VoltageOptions::centre_hz`], which is the middle of
//! channels side by side, rising (in a lower sideband: falling).
//!
//! # Source
//! Haystack, Mark 5B user's manual; levels and 1-bit signs as in mark5access and baseband.

mod header;

use std::path::PathBuf;

use header::{FRAME_BYTES, HEADER_BYTES, Header, PAYLOAD_BYTES, SYNC};

use super::frames::{self, Code, Frame, Index, Layout, Recording, Scan, check_paths};
use super::{VoltageOptions, VoltageSource};
use crate::error::{Error, Result};
use crate::units::Epoch;

/// The day (MJD, December 2014) near which recordings are sought without
/// [`VoltageOptions::mark5b_near_mjd`]: within 500 days of it, three digits are enough.
pub const NEAR_MJD: i64 = 57_000;

/// The latest day that a recording may be sought near.
const LAST_MJD: i64 = 1_000_000;
/// The most bits of all channels together: bit streams of a recorder.
const MOST_BITS: usize = 32;
/// Seconds of a day.
const DAY_S: u64 = 86_400;
/// The words of a frame that has no data, as they stand in the file.
const FILL: [u8; 4] = [0x44, 0x33, 0x22, 0x11];
/// Bytes read at once where frames are sought.
const SEARCH_BYTES: u64 = 1 << 16;

/// Opens the files of one recording, in any order.
///
/// # Errors
/// [`Error::Io`]; [`Error::Format`] for files without frames and time codes that are none;
/// [`Error::Parameter`] for unknown channels and options that don't fit; [`Error::Unavailable`] for an
/// unknown sample rate.
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
        warnings
            .push(format!("{path}: {passed} bytes between frames are no frames and are left out"));
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

/// Whether a file that begins so is Mark 5B.
pub(super) fn detect(first: &[u8]) -> bool {
    first.starts_with(&SYNC)
}

/// How samples lie in a frame, as the options say.
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
    if !channels.is_power_of_two() || channels > MOST_BITS / bits {
        return Err(Error::parameter("mark5b_channels", channels, rule));
    }
    Ok(Layout { bits, complex: false, channels, bytes: PAYLOAD_BYTES, code: Code::Mark5b })
}

/// What the headers read so far say.
struct Found {
    index: Index,
    first_day: Option<i64>,
    /// The frame latest in its second.
    latest: Option<Header>,
    near: i64,
    cuts: Vec<String>,
    /// Bytes between frames.
    passed: u64,
    /// Frames whose time code is none, and what is wrong with the first.
    bad_frames: u64,
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
                    // The frames around it have good times.
                    self.bad_frames += 1;
                    self.first_fault.get_or_insert(error);
                    scan.at += FRAME_BYTES;
                    continue;
                }
            };
            let day = header.mjd(self.first_day.unwrap_or(self.near));
            self.first_day.get_or_insert(day);
            let latest = self.latest.get_or_insert(header);
            // A damaged number fits no rate.
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

/// Whether the payload of the frame at hand is the fill pattern throughout.
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

/// Where the next frame begins: at a sync word with another one a frame later, or with the file's end.
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

/// Whether a frame, or the file's end, stands there.
fn follows(scan: &mut Scan<'_>, at: u64) -> Result<bool> {
    if at + SYNC.len() as u64 > scan.bytes {
        return Ok(at <= scan.bytes);
    }
    let mut word = [0; 4];
    scan.read_at(at, &mut word)?;
    Ok(word == SYNC)
}
