//! Recorded voltages: what a source of them is; one file or folder a format.
//!
//! Invariant: what is missing from a recording comes as flagged zeros of the right length, never as a
//! shift in time.

pub mod dada;
mod describe;
mod fields;
mod frames;
pub mod guppi;
mod jumps;
mod layout;
pub mod mark5b;
mod open;
mod recording;
pub mod vdif;

use std::ops::Range;
use std::path::PathBuf;

pub use fields::Fields;
pub use open::{is_voltages, open};

use crate::error::{Error, Result};
use crate::units::Epoch;
use crate::view::check_length;
use crate::voltage::{VoltageBlock, VoltageEncoding, Voltages};

/// What every voltage format says of its data; streams are antenna, recorded channel, polarization.
#[derive(Clone, Debug, PartialEq)]
pub struct VoltageHeader {
    /// Where the data come from; the first of several files.
    pub path: PathBuf,
    /// The format's name, as `info` prints it.
    pub format: &'static str,
    /// Name of the source on the sky, empty when unknown.
    pub source_name: String,
    /// Name of the telescope or of its antennas, empty when unknown.
    pub telescope: String,
    /// Right ascension in degrees (J2000), when known.
    pub ra_deg: Option<f64>,
    /// Declination in degrees (J2000), when known.
    pub dec_deg: Option<f64>,
    /// The receiver's beam, when known.
    pub beam: Option<crate::io::Beam>,
    /// The first sample's start; day 0 when unknown.
    pub start: Epoch,
    /// Seconds from sample to sample of each stream.
    pub tsamp_s: f64,
    /// Sky frequency of each recorded channel's centre in Hz, in recorded order; for real samples, of
    /// its band's middle. 0 when unknown.
    pub centres_hz: Vec<f64>,
    /// Whether a recorded channel's sky frequency falls as its voltage's frequency rises.
    pub lower_sideband: bool,
    /// How samples are encoded as [`VoltageSource::read`] gives them.
    pub encoding: VoltageEncoding,
    /// What one count means; 1 unless the format says otherwise.
    pub scale: f64,
    /// Bits of one real number as recorded.
    pub recorded_bits: usize,
    /// Antennas (stations, beams).
    pub antennas: usize,
    /// Polarizations of each antenna, 1 or 2.
    pub polarizations: usize,
    /// Whether the feeds are circular (R and L); `None` when the recording does not say.
    pub circular: Option<bool>,
    /// Samples of each stream in all, when the length is known beforehand.
    pub times: Option<u64>,
    /// The filter bank that made the recorded channels, when the recording says.
    pub filter: Option<FilterGeometry>,
}

/// The filter bank that made a recording's channels.
#[derive(Clone, Debug, PartialEq)]
pub struct FilterGeometry {
    /// Channels out of each channel that went in.
    pub channels: usize,
    /// Taps.
    pub taps: usize,
    /// The window's name.
    pub window: String,
    /// Oversampling P / Q.
    pub oversampling: (usize, usize),
}

impl VoltageHeader {
    /// A header that says no more than this: one antenna, one polarization, upper sidebands.
    pub fn new(centres_hz: Vec<f64>, tsamp_s: f64, encoding: VoltageEncoding) -> Self {
        Self {
            path: PathBuf::new(),
            format: "",
            source_name: String::new(),
            telescope: String::new(),
            ra_deg: None,
            dec_deg: None,
            beam: None,
            start: Epoch::default(),
            tsamp_s,
            centres_hz,
            lower_sideband: false,
            encoding,
            scale: 1.0,
            recorded_bits: encoding.bits(),
            antennas: 1,
            polarizations: 1,
            circular: None,
            times: None,
            filter: None,
        }
    }

    /// Recorded (coarse) channels.
    pub fn coarse_channels(&self) -> usize {
        self.centres_hz.len()
    }

    /// Streams: antennas x recorded channels x polarizations.
    pub fn streams(&self) -> usize {
        self.antennas * self.coarse_channels() * self.polarizations
    }

    /// Width of a recorded channel in Hz: the sampling rate, half of it for real samples.
    pub fn channel_width_hz(&self) -> f64 {
        let rate = 1.0 / self.tsamp_s;
        if self.encoding.is_complex() { rate } else { 0.5 * rate }
    }

    /// Length in seconds, when known.
    pub fn duration_s(&self) -> Option<f64> {
        self.times.map(|times| times as f64 * self.tsamp_s)
    }

    /// A block that holds `times` samples of every stream.
    pub fn block(&self, times: usize) -> VoltageBlock<'static> {
        VoltageBlock::new(self.encoding, self.streams(), times)
    }
}

/// What a recording does not say of itself and its reader has to be told; `None` where it does.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct VoltageOptions {
    /// Samples of each stream a second: for VDIF and Mark 5B that are shorter than a second or carry no
    /// rate; overrides the header's.
    pub sample_rate_hz: Option<f64>,
    /// Sky frequency of the middle of the recorded band in Hz: for formats without one; overrides the
    /// header's.
    pub centre_hz: Option<f64>,
    /// Whether sky frequency falls as the voltage's rises; overrides the header's. VDIF and Mark 5B have
    /// no frequencies of their own: in a lower sideband their channels fall, too.
    pub lower_sideband: Option<bool>,
    /// Polarizations, 1 or 2, of a VDIF or Mark 5B recording, which doesn't say: with 2, threads (of an
    /// odd number of threads: channels) pair up in the order in which they stand. By default the
    /// threads of a recording with exactly two of them are polarizations, and there is 1 otherwise.
    pub polarizations: Option<usize>,
    /// Recorded channels of a Mark 5B file, whose headers don't say.
    pub mark5b_channels: Option<usize>,
    /// Bits of a sample of a Mark 5B file, 1 or 2, whose headers don't say.
    pub mark5b_bits: Option<usize>,
    /// A day (MJD) within 500 days of a Mark 5B recording, whose headers keep only three digits.
    pub mark5b_near_mjd: Option<i64>,
    /// Whether gaps above the greater of a minute and ten times the data before them are filled, too; by default they
    /// are an error, since one damaged time makes such a gap.
    pub allow_gaps: bool,
    /// True if a recording of GUPPI raw that ends within its first block is opened, with no sample: for its header.
    pub header_only: bool,
}

/// Samples that were not recorded, or are not valid: they come as zeros.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flag {
    /// The streams concerned.
    pub streams: Range<usize>,
    /// The first sample, counted from the recording's start.
    pub start: u64,
    /// Samples of each stream.
    pub times: u64,
}

/// A stream of voltages.
pub trait VoltageSource: Send {
    /// What the data are.
    fn header(&self) -> &VoltageHeader;

    /// Fills `block`, which has the header's streams as [`VoltageHeader::block`] makes them, with the next samples of every stream, and
    /// returns how many; fewer than its capacity only at the end of the data.
    ///
    /// # Errors
    /// [`crate::Error::Io`] and [`crate::Error::Format`].
    fn read(&mut self, block: &mut VoltageBlock) -> Result<usize>;

    /// Passes over `times` samples (whole bytes of them) of every stream; fewer only at the end.
    ///
    /// # Errors
    /// As [`VoltageSource::read`].
    fn skip(&mut self, times: u64) -> Result<u64>;

    /// What is missing or not valid, by rising start: all of the recording's, known when it is opened.
    fn flags(&self) -> &[Flag] {
        &[]
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
}

/// Holds what a writer is given to what its header says.
fn check_streams(voltages: Voltages<'_>, streams: usize, encoding: VoltageEncoding) -> Result<()> {
    check_length("streams", streams, voltages.streams())?;
    if voltages.encoding() != encoding {
        let rule = format!("the header says {encoding:?}");
        return Err(Error::parameter("encoding", format!("{:?}", voltages.encoding()), rule));
    }
    Ok(())
}
