//! Readers and writers of file formats: the common traits and headers, one module per format.
//!
//! Invariant: a reader holds at most one gulp of data, whatever the file's length, and returns rows in the order of
//! [`crate::sample`]: packed sub-byte samples least significant first, little endian.

pub mod antennas;
pub mod atomic;
pub mod bank_h5;
pub mod candidates;
mod channel_list;
mod compressed;
mod csv;
mod earth_orientation;
mod fbh5;
pub mod fetch_h5;
mod foreign;
pub mod gwf;
mod hdf5;
mod inflate;
pub mod ligolw;
pub mod npy;
mod observation;
mod open;
mod parallel;
// For the command line and the benchmarks.
#[doc(hidden)]
pub mod positioned;
pub mod presto;
pub mod psd;
mod psrfits;
mod rows;
pub mod series_h5;
mod sexagesimal;
pub mod sigproc;
pub mod strain;
pub mod templates;
pub mod uvh5;
pub mod voltages;
mod window_file;

use std::borrow::Cow;
use std::path::{Path, PathBuf};

pub use channel_list::{ChannelForm, read_channels};
pub use compressed::{Unpacking, unpack_in, unpack_with};
// Cells of the benchmarks' tables.
#[doc(hidden)]
pub use csv::quoted as csv_cell;
pub use earth_orientation::{EarthOrientation, read_earth_orientation};
// Readers of formats that `open` detects, for tests.
#[doc(hidden)]
pub use fbh5::{decode_bare, decode_lz4, from_bytes as fbh5_from_bytes, open as open_fbh5};
pub use observation::{check_same_sampling, join};
pub use open::{OpenOptions, open, open_with};
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
pub(crate) use parallel::most_threads;
pub use parallel::{limit_threads, with_threads};
#[doc(hidden)]
pub use psrfits::{from_bytes as psrfits_from_bytes, open as open_psrfits};
pub use window_file::read_window;

use crate::error::{Error, Result};
use crate::sample::Encoding;
use crate::units::Band;
use crate::view::check_length;

/// Plausible sampling times of filterbanks, in seconds: longer than a day or shorter than a nanosecond is an error.
pub(crate) const TSAMP_S: std::ops::RangeInclusive<f64> = 1e-9..=86_400.0;

/// Beginnings of the addresses of live streams: SPEAD heaps and VDIF frames over UDP, PSRDADA rings.
pub const ADDRESSES: [&str; 3] = ["spead://", "vdif://", "dada:"];

/// Returns whether a path is written as the address of a live stream, or as the name of a file that describes one (`.toml`).
pub fn is_address(path: &Path) -> bool {
    let is_scheme = |text: &str| ADDRESSES.iter().any(|start| text.starts_with(start));
    is_description(path) || path.to_str().is_some_and(is_scheme)
}

/// Returns whether a path is that of a file that describes a live stream: it ends with `.toml`.
pub fn is_description(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ending == "toml")
}

/// Returns whether a path can be read only once, sequentially: standard input (`-`), a FIFO, a device, a live stream.
pub fn is_stream(path: &Path) -> bool {
    let is_special = |found: std::fs::Metadata| !found.is_file() && !found.is_dir();
    path == Path::new("-") || is_address(path) || std::fs::metadata(path).is_ok_and(is_special)
}

/// Rejects a stream for a reader that seeks.
///
/// # Errors
/// [`Error::Io`] of kind `NotSeekable`.
pub(crate) fn check_seekable(path: &Path) -> Result<()> {
    if !is_stream(path) {
        return Ok(());
    }
    let why = "a pipe can't be sought, and this format needs that; give a file";
    Err(Error::io(path, std::io::Error::new(std::io::ErrorKind::NotSeekable, why)))
}

/// Returns text with its control characters escaped (`\u{1b}`), except line ends and tabs. Text from a file may hold
/// terminal escape sequences and marks that change the writing direction.
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

/// Header common to all filterbank formats; axes time, channel.
#[derive(Clone, Debug, PartialEq)]
pub struct FilterbankHeader {
    /// Path of the data (`-` is standard input); the first of several files.
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
    /// Encoding of the rows that [`FilterbankSource::read`] returns.
    pub encoding: Encoding,
    /// Bits per recorded sample, before any scaling or sum of polarizations.
    pub recorded_bits: usize,
    /// Number of recorded IFs or polarizations.
    pub recorded_polarizations: usize,
    /// Number of rows, when the length is known beforehand.
    pub times: Option<u64>,
}

/// One of a receiver's beams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Beam {
    /// Beam number in the header.
    pub number: u32,
    /// Number of beams, when known.
    pub of: Option<u32>,
}

impl Beam {
    /// Makes a beam from a header's two numbers; `None` for a single beam, because writers use those numbers as a
    /// default.
    pub(crate) fn new(number: Option<i64>, of: Option<i64>) -> Option<Self> {
        let number = u32::try_from(number?).ok()?;
        let of = of.and_then(|of| u32::try_from(of).ok()).filter(|of| *of > 0);
        let is_told = of.map_or(number > 0, |of| of > 1);
        is_told.then_some(Self { number, of })
    }

    /// Parses the beam from a name such as `B07`: its first digits.
    pub(crate) fn named(name: Option<&str>, of: Option<i64>) -> Option<Self> {
        let digits = name?.trim_start_matches(|letter: char| !letter.is_ascii_digit());
        let end = digits.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(digits.len());
        Self::new(digits[..end].parse().ok(), of)
    }
}

impl FilterbankHeader {
    /// Returns the number of channels.
    pub fn channels(&self) -> usize {
        self.band.channels()
    }

    /// Returns the bytes per row.
    pub fn row_bytes(&self) -> usize {
        self.channels() * self.encoding.bits() / 8
    }

    /// Returns the number of rows in a buffer.
    ///
    /// # Errors
    /// [`crate::Error::Shape`] unless the buffer holds whole rows.
    pub(crate) fn times_in(&self, rows: &[u8]) -> Result<usize> {
        let times = rows.len() / self.row_bytes();
        check_length("rows (bytes)", times * self.row_bytes(), rows.len())?;
        Ok(times)
    }

    /// Returns the length in seconds, when known.
    pub fn duration_s(&self) -> Option<f64> {
        self.times.map(|times| times as f64 * self.tsamp_s)
    }
}

/// A stream of filterbank rows.
pub trait FilterbankSource: Send {
    /// Returns the header.
    fn header(&self) -> &FilterbankHeader;

    /// Reads whole rows into `rows`, whose length is a multiple of the row's bytes, and returns their number; fewer
    /// than requested only at the end of the data.
    ///
    /// # Errors
    /// [`crate::Error::Io`] and [`crate::Error::Format`].
    fn read(&mut self, rows: &mut [u8]) -> Result<usize>;

    /// Skips `times` rows and returns the number skipped; fewer only at the end of the data.
    ///
    /// # Errors
    /// As [`FilterbankSource::read`].
    fn skip(&mut self, times: u64) -> Result<u64>;

    /// Returns the gaps in the recording, whose rows are filled in: of a file all, of a live stream those among the rows
    /// read so far, of which the last may grow.
    fn gaps(&self) -> &[Gap] {
        &[]
    }

    /// Returns the number of non-finite samples that the source has replaced so far.
    fn flagged_samples(&self) -> u64 {
        0
    }

    /// Describes the truncation of a recording whose last, incomplete piece was dropped; `None` for a complete
    /// recording.
    ///
    /// Known at opening for a file, after the end of the data for a pipe.
    fn cut(&self) -> Option<&str> {
        None
    }

    /// Returns warnings for the user, a sentence each: missing, odd or skipped parts of the recording.
    fn warnings(&self) -> &[String] {
        &[]
    }

    /// Returns whether rows arrive in real time, so that results must not wait for the next ones.
    fn is_live(&self) -> bool {
        false
    }

    /// Returns whether every sample is known to be finite, so that none has to be filled.
    fn is_finite(&self) -> bool {
        false
    }
}

/// Rows missing between two files of one observation or within one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// First row of the gap, counted from the observation's start.
    pub start_time: u64,
    /// Number of rows.
    pub times: u64,
}

/// Selection among the recorded polarizations (SIGPROC's IFs).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Polarizations {
    /// Total intensity: Stokes I if the file has it, otherwise the sum of the first two.
    #[default]
    Total,
    /// The polarization with this index.
    One(usize),
}
