//! Recorded voltages: the source trait, the common header, and one module per format.
//!
//! Invariant: missing samples are returned as flagged zeros, so times never shift.

mod columns;
pub mod dada;
mod fields;
mod frames;
pub mod guppi;
pub(crate) mod layout;
mod mark5b;
mod open;
mod recording;
mod selection;
mod sweep;
pub mod vdif;

use std::path::PathBuf;

#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
pub(crate) use columns::Rows;
pub use fields::Fields;
// Readers of formats that `open` detects, for tests.
pub(crate) use frames::ArrivingFrames;
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
pub(crate) use frames::Scratch;
#[doc(hidden)]
pub use mark5b::open as open_mark5b;
pub use open::{is_voltages, open};
pub use selection::Selection;
pub use sweep::Sweep;
#[doc(hidden)]
pub use vdif::open as open_vdif;
pub(crate) use vdif::{FrameForm, FrameHeader};
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
pub(crate) use vdif::{FrameSizes, FrameWriter};

use crate::error::{Error, Result};
use crate::units::Epoch;
use crate::view::check_length;
pub use crate::voltage::Flag;
use crate::voltage::{VoltageBlock, VoltageEncoding, Voltages};

/// Header common to all voltage formats; streams are ordered antenna, recorded channel, polarization.
#[derive(Clone, Debug, PartialEq)]
pub struct VoltageHeader {
    /// Path of the data; the first of several files.
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
    /// Start of the first sample; day 0 when unknown.
    pub start: Epoch,
    /// Sampling time of each stream, in seconds.
    pub tsamp_s: f64,
    /// Sky frequency of each recorded channel's centre in Hz, in recorded order; for real samples, of the middle of
    /// its band. 0 when unknown.
    pub centres_hz: Vec<f64>,
    /// Whether a recorded channel is a lower sideband: its sky frequency falls as its voltage's frequency rises.
    pub lower_sideband: bool,
    /// Encoding of the samples that [`VoltageSource::read`] returns.
    pub encoding: VoltageEncoding,
    /// Value of one count; 1 unless the format defines another.
    pub scale: f64,
    /// Bits per real number, as recorded.
    pub recorded_bits: usize,
    /// Number of antennas (stations, beams).
    pub antennas: usize,
    /// Polarizations per antenna, 1 or 2.
    pub polarizations: usize,
    /// Whether the feeds are circular (R and L); `None` when unknown.
    pub circular: Option<bool>,
    /// Samples per stream, when the length is known beforehand.
    pub times: Option<u64>,
    /// Filter bank that made the recorded channels, when known.
    pub filter: Option<FilterGeometry>,
    /// Window of a dispersed burst that the samples were cut to, when they are a dump.
    pub sweep: Option<Sweep>,
}

/// Filter bank that made a recording's channels.
#[derive(Clone, Debug, PartialEq)]
pub struct FilterGeometry {
    /// Output channels per input channel.
    pub channels: usize,
    /// Taps.
    pub taps: usize,
    /// Name of the window.
    pub window: String,
    /// Oversampling P / Q.
    pub oversampling: (usize, usize),
}

impl VoltageHeader {
    /// Makes a minimal header: one antenna, one polarization, upper sidebands.
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
            sweep: None,
        }
    }

    /// Returns the number of recorded (coarse) channels.
    pub fn coarse_channels(&self) -> usize {
        self.centres_hz.len()
    }

    /// Returns the number of streams: antennas x recorded channels x polarizations.
    pub fn streams(&self) -> usize {
        self.antennas * self.coarse_channels() * self.polarizations
    }

    /// Returns the bits of a sample of all streams.
    pub fn sample_bits(&self) -> usize {
        self.streams() * self.encoding.sample_bits()
    }

    /// Returns the width of a recorded channel in Hz: the sampling rate, or half of it for real samples.
    pub fn channel_width_hz(&self) -> f64 {
        let rate = 1.0 / self.tsamp_s;
        if self.encoding.is_complex() { rate } else { 0.5 * rate }
    }

    /// Returns the length in seconds, when known.
    pub fn duration_s(&self) -> Option<f64> {
        self.times.map(|times| times as f64 * self.tsamp_s)
    }

    /// Allocates a block for `times` samples of every stream.
    pub fn block(&self, times: usize) -> VoltageBlock<'static> {
        VoltageBlock::new(self.encoding, self.streams(), times)
    }
}

/// Reader options for properties that a recording does not store; `None` uses the recording's own.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct VoltageOptions {
    /// Samples per second of each stream: for VDIF and Mark 5B recordings that are shorter than a second or carry no
    /// rate. Overrides the header.
    pub sample_rate_hz: Option<f64>,
    /// Sky frequency of the middle of the recorded band in Hz: for formats without one. Overrides the header.
    pub centre_hz: Option<f64>,
    /// Whether the band is a lower sideband. Overrides the header. VDIF and Mark 5B store no frequencies: in a lower
    /// sideband their channels descend, too.
    pub lower_sideband: Option<bool>,
    /// Polarizations, 1 or 2, of a VDIF or Mark 5B recording, which does not store them. With 2, threads pair up in
    /// order; with an odd number of threads, channels do. By default, exactly two threads are two polarizations;
    /// otherwise there is 1.
    pub polarizations: Option<usize>,
    /// Recorded channels of a Mark 5B file, whose headers do not store them.
    pub mark5b_channels: Option<usize>,
    /// Bits per sample of a Mark 5B file, 1 or 2, which its headers do not store.
    pub mark5b_bits: Option<usize>,
    /// A day (MJD) within 500 days of a Mark 5B recording, whose headers store only three digits of the day.
    pub mark5b_near_mjd: Option<i64>,
    /// Whether to fill gaps longer than both a minute and ten times the data before them. By default such a gap is an
    /// error, because one damaged time makes one.
    pub allow_gaps: bool,
    /// Whether to open a GUPPI raw recording that ends within its first block, as a recording without samples, for
    /// its header.
    pub header_only: bool,
}

/// Samples that a source reads at once to skip them.
const SKIPPED_TIMES: u64 = 4096;

/// A stream of voltages.
pub trait VoltageSource: Send {
    /// Returns the header.
    fn header(&self) -> &VoltageHeader;

    /// Fills `block`, a block for the header's streams as [`VoltageHeader::block`] makes it, with the next samples of
    /// every stream. Returns their number, which is less than the capacity only at the end of the data.
    ///
    /// # Errors
    /// [`crate::Error::Io`] and [`crate::Error::Format`].
    fn read(&mut self, block: &mut VoltageBlock) -> Result<usize>;

    /// Skips `times` samples (in whole bytes) of every stream and returns the number skipped; fewer only at the end. A source
    /// that cannot seek reads them.
    ///
    /// # Errors
    /// As [`VoltageSource::read`].
    fn skip(&mut self, times: u64) -> Result<u64> {
        let mut scratch = self.header().block(times.min(SKIPPED_TIMES) as usize);
        let mut done = 0;
        while done < times {
            if times - done < scratch.capacity() as u64 {
                scratch = self.header().block((times - done) as usize);
            }
            match self.read(&mut scratch)? {
                0 => break,
                read => done += read as u64,
            }
        }
        Ok(done)
    }

    /// Returns the missing and invalid samples of a recording, sorted by start; those of a live stream come with the
    /// blocks.
    fn flags(&self) -> &[Flag] {
        &[]
    }

    /// Returns whether the samples arrive while they are read: a read waits, and [`VoltageBlock::flags`] lists the missing
    /// samples of each block.
    fn is_live(&self) -> bool {
        false
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
}

/// Checks that a writer's input matches its header.
fn check_streams(voltages: Voltages<'_>, streams: usize, encoding: VoltageEncoding) -> Result<()> {
    check_length("streams", streams, voltages.streams())?;
    if voltages.encoding() != encoding {
        let rule = format!("the header says {encoding:?}");
        return Err(Error::parameter("encoding", format!("{:?}", voltages.encoding()), rule));
    }
    Ok(())
}
