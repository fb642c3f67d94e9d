//! GUPPI raw files: blocks of voltages, each after a header of 80-character cards.
//!
//! A block has the axes antenna, channel, time, polarization (with PKTFMT SIMPLE: time first). Samples are complex,
//! of 4, 8 or 16 bits per part, real part first (4 bits: in the high nibble), two's complement. Conventions of this
//! reader and writer:
//!
//! - OBSNCHAN counts the channels of all antennas (NANTS). NPOL is 1 for one polarization, 2 or 4 for two, as in
//!   rawspec and dspsr. A single channel with TBIN x OBSBW = 1/2 has real samples. (baseband takes NPOL 2 for one
//!   polarization, and always takes a single channel as real; of the files written here, it reads those with two
//!   polarizations and at least two channels.)
//! - A negative OBSBW means that the channels descend and that each is a lower sideband.
//! - The next block repeats the last OVERLAP samples of a block; the reader skips the repetition and uses the last
//!   block completely. (If a file violates this, baseband uses the same samples in a sequential read and the others
//!   after a seek; dspsr uses the later block's.)
//! - PKTIDX determines a block's time. It rises per block by PIPERBLK if present, else by the number of PKTSIZE
//!   packets between block starts, else by the smallest rise in the recording. Missing blocks are flagged, and so are
//!   blocks whose PKTIDX jumps while the next block continues the sequence from before; any other PKTIDX that does
//!   not rise is an error. Without PKTIDX, blocks are consecutive.
//! - PKTIDX counts from STT_IMJD, STT_SMJD, STT_OFFS. With a SYNCTIME card (hpguppi), that time belongs to PKTSTART,
//!   or to the first block.
//! - The reader drops a last block truncated by the file's end, because its channels are outermost, and a truncated
//!   header; [`VoltageSource::cut`] reports it. Between two files, the dropped samples are flagged.
//! - With DIRECTIO, headers are padded to multiples of 512 bytes, and blocks if the next header is found there.
//! - NTVALID (our extension) is the number of valid samples in a last, padded block.
//! - PFB_NCHN, PFB_NTAP, PFB_WIN, PFB_OVER (our extension) describe the filter bank that made the channels.
//!
//! # Source
//! As baseband 4.2 and rawspec 3 read it; hpguppi for SYNCTIME and PIPERBLK.

mod cards;
mod geometry;
mod scan;
mod writer;

use std::fs::File;
use std::path::{Path, PathBuf};

use super::fields::Fields;
use super::layout::Counts;
use super::recording::Recording;
use super::{VoltageHeader, VoltageOptions, VoltageSource, describe};
use crate::error::{Error, Result};
use crate::units::Epoch;
use scan::Scan;
pub use writer::{Writer, WriterOptions};

const KEYS: describe::Keys = describe::Keys {
    middle: "OBSFREQ",
    width: "OBSBW",
    source: "SRC_NAME",
    telescope: "TELESCOP",
    basis: "FD_POLN",
};

/// Maximum number of channels of all antennas in a header without a complete block.
const MOST_CHANNELS: usize = 1 << 20;

/// Returns whether a file's first bytes are GUPPI raw.
pub(super) fn detect(first: &[u8]) -> bool {
    cards::is_card(first) && !first.starts_with(b"SIMPLE")
}

/// Reads the cards of a file's first block.
///
/// # Errors
/// [`Error::Format`] for an invalid card or a header without `END`; [`Error::Io`].
pub fn header(path: &Path) -> Result<Fields> {
    let mut file = File::open(path).map_err(|error| Error::io(path, error))?;
    cards::read(&mut file, path, 0)?.ok_or_else(|| cards::breaks_off(path, 0))
}

/// Opens the files of one recording, given in any order.
///
/// # Errors
/// [`Error::Format`] naming file, card, byte, what was found and what was expected, for headers that are invalid,
/// change within the recording or do not advance in time; [`Error::Parameter`] for invalid options; [`Error::Io`].
pub fn open(paths: &[PathBuf], options: &VoltageOptions) -> Result<Box<dyn VoltageSource>> {
    if paths.is_empty() {
        return Err(Error::parameter("files", 0, "one at least is needed"));
    }
    let scan = scan::scan(paths, options.header_only)?;
    if scan.blocks.is_empty() {
        check_streams(&scan)?;
    }
    let tsamp_s = match describe::sampling_time(options)? {
        Some(told) => told,
        None => sampling_time(&scan.cards)?,
    };
    let step = scan.packets_per_block()?;
    let (segments, times) = scan.segments(step, tsamp_s, options.allow_gaps)?;
    let header = describe(&scan, tsamp_s, step, options)?;
    let layout = scan.geometry.layout();
    let recording = Recording::new(header, layout, scan.files, segments, times);
    Ok(Box::new(recording.with_notes(&scan.cuts, scan.warnings)))
}

/// Fails for more antennas and channels than any telescope has, since no block confirms the counts.
fn check_streams(scan: &Scan) -> Result<()> {
    let Counts { antennas, channels, .. } = scan.geometry.counts;
    if antennas.saturating_mul(channels) <= MOST_CHANNELS {
        return Ok(());
    }
    let why = format!(
        "{antennas} antennas of {channels} channels in a file that is cut in its first block, expected \
         {MOST_CHANNELS} channels at most"
    );
    Err(scan.cards.fault("OBSNCHAN", why))
}

fn sampling_time(cards: &Fields) -> Result<f64> {
    match cards.number("TBIN")? {
        Some(tbin) if describe::TSAMP_S.contains(&tbin) => Ok(tbin),
        Some(tbin) => {
            let why = format!("found {tbin:e}, expected seconds above 0: 1e-15 to 86400");
            Err(cards.fault("TBIN", why))
        }
        None => Err(cards.fault("TBIN", "the card is missing, expected seconds a sample")),
    }
}

fn describe(
    scan: &Scan,
    tsamp_s: f64,
    step: Option<u64>,
    options: &VoltageOptions,
) -> Result<VoltageHeader> {
    let (cards, geometry) = (&scan.cards, &scan.geometry);
    let streams = (geometry.encoding, geometry.counts);
    let told = describe::header(cards, &KEYS, streams, tsamp_s, options)?;
    Ok(VoltageHeader {
        path: scan.files[0].clone(),
        format: "GUPPI raw",
        ra_deg: cards.text("RA_STR").and_then(describe::ra_deg),
        dec_deg: cards.text("DEC_STR").and_then(describe::dec_deg),
        start: start(scan, tsamp_s, step)?,
        ..told
    })
}

/// Computes the start of the first sample.
fn start(scan: &Scan, tsamp_s: f64, step: Option<u64>) -> Result<Epoch> {
    let cards = &scan.cards;
    let Some(day) = cards.number("STT_IMJD")? else { return Ok(Epoch::default()) };
    let seconds =
        cards.number("STT_SMJD")?.unwrap_or(0.0) + cards.number("STT_OFFS")?.unwrap_or(0.0);
    // Reject values that cannot be a date, which also keeps the day arithmetic from overflowing.
    if !(0.0..1e7).contains(&day) || day.fract() != 0.0 {
        let why = format!("found {day}, expected a modified Julian day");
        return Err(cards.fault("STT_IMJD", why));
    }
    if seconds.abs() > 1e6 {
        let why = format!("found {seconds} with STT_OFFS, expected seconds of a day");
        return Err(cards.fault("STT_SMJD", why));
    }
    let first = scan.blocks.first().map_or(scan.packet, |block| block.packet).unwrap_or(0);
    let zero = match cards.text("SYNCTIME") {
        Some(_) => cards.count("PKTSTART")?.unwrap_or(first).min(first),
        None => 0,
    };
    let packets = first - zero;
    let samples = step.map_or(0.0, |step| {
        (u128::from(packets) * u128::from(scan.geometry.hop()) / u128::from(step)) as f64
    });
    let offset = samples * tsamp_s;
    if offset > 1e9 {
        let why = format!("found {first}, {offset} s after the recording's start");
        return Err(cards.fault("PKTIDX", why));
    }
    Ok(Epoch::new(day as i64, seconds + offset))
}
