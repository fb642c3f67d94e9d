//! What a source and a sink are; one file a format.
//!
//! Invariant: a reader holds one gulp of data at most, whatever the file's length, and gives rows in
//! the order of [`crate::sample`]: packed sub-byte samples least significant first, little endian.

pub mod antennas;
pub mod atomic;
pub mod bank_h5;
pub mod candidate_lists;
pub mod candidates;
mod csv;
pub mod earth_orientation;
pub mod fbh5;
pub mod fetch_h5;
mod foreign;
pub mod gwf;
mod hdf5_patch;
mod inflate;
pub mod ligolw;
pub mod npy;
mod observation;
mod open;
pub mod presto;
pub mod psd;
pub mod psrfits;
pub mod rfifind;
mod rows;
pub mod series_h5;
mod sexagesimal;
pub mod sigproc;
pub mod strain;
pub mod templates;
pub mod uvh5;
pub mod voltages;
pub mod window_file;

use std::borrow::Cow;
use std::path::PathBuf;

pub use observation::join;
pub(crate) use open::check_seekable;
pub use open::{OpenOptions, is_stream, open, open_with};

use crate::error::Result;
use crate::sample::Encoding;
use crate::units::Band;
use crate::view::check_length;

/// Sampling times of filterbanks that are taken for real, in seconds: a day a sample is absurd, and so is less than a
/// nanosecond.
const TSAMP_S: std::ops::RangeInclusive<f64> = 1e-9..=86_400.0;
/// Returns text with its control characters escaped (`\u{1b}`), but for line ends and tabs: text from a file may hold
/// sequences that a terminal obeys, and marks that turn the direction of writing round.
pub fn printable(text: &str) -> Cow<'_, str> {
    let obeyed = |letter: char| {
        let turns = matches!(letter, '\u{200e}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        turns || (letter.is_control() && !matches!(letter, '\n' | '\t'))
    };
    if !text.contains(obeyed) {
        return Cow::Borrowed(text);
    }
    let escaped = |mut safe: String, letter: char| {
        match obeyed(letter) {
            true => safe.extend(letter.escape_default()),
            false => safe.push(letter),
        }
        safe
    };
    Cow::Owned(text.chars().fold(String::new(), escaped))
}

/// What every filterbank format says of its data; axes time, channel.
#[derive(Clone, Debug, PartialEq)]
pub struct FilterbankHeader {
    /// Where the data come from (`-` is standard input); the first of several files.
    pub path: PathBuf,
    /// The format's name, as `info` prints it.
    pub format: &'static str,
    /// Name of the source on the sky, empty when unknown.
    pub source_name: String,
    /// Name of the telescope, empty when unknown.
    pub telescope: String,
    /// Right ascension in degrees (J2000), when known.
    pub ra_deg: Option<f64>,
    /// Declination in degrees (J2000), when known.
    pub dec_deg: Option<f64>,
    /// The receiver's beam, when known.
    pub beam: Option<Beam>,
    /// Start of the first sample, MJD (UTC); 0 when unknown.
    pub tstart_mjd: f64,
    /// Sampling time in seconds.
    pub tsamp_s: f64,
    /// Channel centres in recorded order.
    pub band: Band,
    /// How rows are encoded as [`FilterbankSource::read`] gives them.
    pub encoding: Encoding,
    /// Bits a sample as recorded, before any scaling or sum of polarizations.
    pub recorded_bits: usize,
    /// IFs or polarizations as recorded.
    pub recorded_polarizations: usize,
    /// Rows in all, when the length is known beforehand.
    pub times: Option<u64>,
}

/// One of a receiver's beams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Beam {
    /// Its number, as the header has it.
    pub number: u32,
    /// Number of beams, when known.
    pub of: Option<u32>,
}

impl Beam {
    /// The beam that a header's two numbers tell; none where there is one only, which writers put for want of better.
    pub(crate) fn new(number: Option<i64>, of: Option<i64>) -> Option<Self> {
        let number = u32::try_from(number?).ok()?;
        let of = of.and_then(|of| u32::try_from(of).ok()).filter(|of| *of > 0);
        let is_told = of.map_or(number > 0, |of| of > 1);
        is_told.then_some(Self { number, of })
    }

    /// The beam of a name such as `B07`: its first digits.
    pub(crate) fn named(name: Option<&str>, of: Option<i64>) -> Option<Self> {
        let digits = name?.trim_start_matches(|letter: char| !letter.is_ascii_digit());
        let end = digits.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(digits.len());
        Self::new(digits[..end].parse().ok(), of)
    }
}

impl FilterbankHeader {
    /// Number of channels.
    pub fn channels(&self) -> usize {
        self.band.channels()
    }

    /// Bytes in one row.
    pub fn row_bytes(&self) -> usize {
        self.channels() * self.encoding.bits() / 8
    }

    /// Rows that a buffer holds.
    ///
    /// # Errors
    /// [`crate::Error::Shape`] unless they are whole.
    pub(crate) fn times_in(&self, rows: &[u8]) -> Result<usize> {
        let times = rows.len() / self.row_bytes();
        check_length("rows (bytes)", times * self.row_bytes(), rows.len())?;
        Ok(times)
    }

    /// Length in seconds, when known.
    pub fn duration_s(&self) -> Option<f64> {
        self.times.map(|times| times as f64 * self.tsamp_s)
    }
}

/// A stream of filterbank rows.
pub trait FilterbankSource: Send {
    /// What the data are.
    fn header(&self) -> &FilterbankHeader;

    /// Reads whole rows into `rows`, whose length is a multiple of the row's bytes, and returns how
    /// many; fewer than asked for only at the end of the data.
    ///
    /// # Errors
    /// [`crate::Error::Io`] and [`crate::Error::Format`].
    fn read(&mut self, rows: &mut [u8]) -> Result<usize>;

    /// Passes over `times` rows; fewer only at the end of the data.
    ///
    /// # Errors
    /// As [`FilterbankSource::read`].
    fn skip(&mut self, times: u64) -> Result<u64>;

    /// Where the recording has no data of its own and was filled.
    fn gaps(&self) -> &[Gap] {
        &[]
    }

    /// Samples read so far that were not finite numbers and that the source itself replaced.
    fn flagged_samples(&self) -> u64 {
        0
    }

    /// Says what the recording lacks of what it promises, where it is cut short: its last piece was left out.
    ///
    /// A file's is known when it is opened, a pipe's once it has been read to its end. `None` for a whole recording.
    fn cut(&self) -> Option<&str> {
        None
    }

    /// Lists what a user should know of the recording: what is missing, odd or was left out, a sentence each.
    fn warnings(&self) -> &[String] {
        &[]
    }

    /// Itself, where a pipeline may know a shorter way from it than by its rows.
    fn as_any(&mut self) -> Option<&mut dyn std::any::Any> {
        None
    }
}

/// Rows that were not recorded, between two files of one observation or inside one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// The first row of the gap, counted from the observation's start.
    pub start_time: u64,
    /// Rows in it.
    pub times: u64,
}

/// Which of several recorded polarizations (SIGPROC's IFs) a reader gives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Polarizations {
    /// Total intensity: Stokes I where the file says so, else the sum of the first two.
    #[default]
    Total,
    /// The one with this number, counted from 0.
    One(usize),
}
