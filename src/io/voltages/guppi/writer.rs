//! Writer of GUPPI raw files.

use std::path::{Path, PathBuf};

use super::DIRECTIO_BYTES;
use super::header::CARD_BYTES;
use crate::error::{Error, Result};
use crate::io::atomic::AtomicFile;
use crate::io::voltages::fields::{EvenBand, counts, filter_fields};
use crate::io::voltages::layout::{Axis, Layout};
use crate::io::voltages::{Sweep, VoltageHeader, check_streams};
use crate::io::{parallel, sexagesimal};
use crate::units::HZ_PER_MHZ;
use crate::view::check_memory;
use crate::voltage::{VoltageEncoding, Voltages};

/// Default bytes per block.
const BLOCK_BYTES: u64 = 1 << 24;

/// A default block holds a multiple of this many samples.
const BLOCK_STEP: u64 = 512;

/// Longest text that fits a card with its quotes.
const TEXT_LETTERS: usize = 68;

/// Options of the writer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriterOptions {
    /// Samples per stream in a block. `None` selects about 16 MiB, or all samples if they are fewer.
    pub block_times: Option<usize>,
    /// Samples at a block's end that the next block repeats.
    pub overlap: usize,
    /// Whether to pad headers and blocks to multiples of 512 bytes. Headers are padded with blank cards, which
    /// readers without DIRECTIO support also skip.
    pub directio: bool,
    /// Blocks per file of a sequence `NAME.0000.raw`, `NAME.0001.raw` and so on; `None` writes one file.
    pub blocks_per_file: Option<usize>,
}

/// Unfinished GUPPI raw recording; `finish` renames its files to their final names.
///
/// An incomplete last block is padded with zeros; its card NTVALID holds the number of valid samples. Channels are in
/// the order that this format associates with their sideband: descending for a lower sideband. Of a recording that follows a burst through
/// the band, channels outside of its window are holes in the file.
#[derive(Debug)]
pub struct Writer {
    path: PathBuf,
    options: WriterOptions,
    cards: Vec<String>,
    encoding: VoltageEncoding,
    layout: Layout,
    payload: Vec<u8>,
    block_times: u64,
    /// Samples in the current block.
    filled: u64,
    /// Samples of the current block that repeat the previous block.
    repeated: u64,
    blocks: u64,
    /// Blocks left out so far.
    missing: u64,
    /// Whether long runs of zeros become holes.
    is_sparse: bool,
    done: Vec<AtomicFile>,
}

impl Writer {
    /// Creates a recording; with `blocks_per_file`, `path` is the name without the number (with or without `.raw`).
    ///
    /// # Errors
    /// [`Error::Parameter`] for a header that this format cannot represent: samples that are not complex 4, 8 or 16
    /// bit, unevenly spaced channels, an overlap as long as a block, blocks beyond 4 GiB; [`Error::Io`].
    pub fn create(path: &Path, header: &VoltageHeader, options: &WriterOptions) -> Result<Self> {
        use VoltageEncoding::{Complex4, Complex8, Complex16};
        let encoding = header.encoding;
        if !matches!(encoding, Complex4 | Complex8 | Complex16) {
            let rule = "GUPPI raw holds complex integers of 4, 8 or 16 bits";
            return Err(Error::parameter("encoding", format!("{encoding:?}"), rule));
        }
        let band = EvenBand::new(header)?;
        let counts = counts(header)?;
        let sample_bytes = encoding.sample_bits() / 8;
        let frame = (header.streams() * sample_bytes) as u64;
        let block_times = block_times(header, options, frame)?;
        let order = [Axis::Antenna, Axis::Channel, Axis::Time, Axis::Polarization];
        let mut layout = Layout::new(order, counts, block_times, sample_bytes);
        if band.reversed {
            layout.reverse_channels(counts);
        }
        let block_bytes = (block_times * frame) as usize;
        check_memory("a block of GUPPI raw", Some(block_bytes))?;
        let mut writer = Self {
            path: path.to_path_buf(),
            options: *options,
            cards: cards(header, &band, options, block_times, frame),
            encoding,
            layout,
            payload: vec![0; block_bytes],
            block_times,
            filled: 0,
            repeated: 0,
            blocks: 0,
            missing: 0,
            is_sparse: header.sweep.is_some(),
            done: Vec::new(),
        };
        writer.next_file()?;
        Ok(writer)
    }

    /// Appends samples of every stream.
    ///
    /// # Errors
    /// [`Error::Shape`] for another number of streams or another encoding than the header's; [`Error::Io`].
    pub fn write(&mut self, voltages: Voltages<'_>) -> Result<()> {
        check_streams(voltages, self.layout.streams(), self.encoding)?;
        let mut taken = 0;
        while taken < voltages.times() {
            let room = (self.block_times - self.filled) as usize;
            let times = room.min(voltages.times() - taken);
            let layout = &self.layout;
            let from = layout.run_bytes(self.filled) as usize;
            let bytes = layout.run_bytes(times as u64) as usize;
            let rows = self.payload.chunks_exact_mut(layout.run_bytes(self.block_times) as usize);
            parallel::for_each(layout.runs() * bytes, rows.enumerate(), |(run, row)| {
                layout.gather(run, voltages, taken, &mut row[from..from + bytes]);
            });
            taken += times;
            self.filled += times as u64;
            if self.filled == self.block_times {
                self.end_block()?;
            }
        }
        Ok(())
    }

    /// Omits blocks, like a recorder that loses data: PKTIDX advances, and readers find a gap.
    ///
    /// # Errors
    /// [`Error::Parameter`] if blocks overlap, before the first block, or within a block.
    pub fn leave_out(&mut self, blocks: u64) -> Result<()> {
        if self.options.overlap > 0 || self.filled > 0 || self.blocks == 0 {
            let rule =
                "only whole blocks can be missing, of those that don't overlap, and not the first";
            return Err(Error::parameter("blocks to leave out", blocks, rule));
        }
        self.missing += blocks;
        Ok(())
    }

    /// Recovers after a failed write: truncates the files to complete blocks, and returns the number of samples per
    /// stream.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn keep_whole(&mut self) -> Result<u64> {
        let block_bytes = self.block_bytes();
        let before = self.options.blocks_per_file.unwrap_or(0) * self.done.len().saturating_sub(1);
        let last = match self.done.last_mut() {
            Some(file) => file.cut_to(|bytes| bytes / block_bytes * block_bytes)? / block_bytes,
            None => 0,
        };
        if last == 0 {
            self.done.pop();
        }
        self.blocks = before as u64 + last;
        self.filled = self.repeated;
        let overlap = self.options.overlap as u64;
        Ok(self.blocks * (self.block_times - overlap) + overlap.min(self.blocks * overlap))
    }

    /// Returns the bytes of a block with its header.
    fn block_bytes(&self) -> u64 {
        let payload = self.payload.len() as u64;
        let payload = match self.options.directio {
            true => payload.next_multiple_of(DIRECTIO_BYTES),
            false => payload,
        };
        self.header().len() as u64 + payload
    }

    /// Ends the data: pads and writes the last block, so that a full disk is detected before files are renamed.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn end_data(&mut self) -> Result<()> {
        if self.filled > self.repeated {
            for run in 0..self.layout.runs() {
                let from = self.layout.offset(run, self.filled) as usize;
                let rest = self.layout.run_bytes(self.block_times - self.filled) as usize;
                self.payload[from..from + rest].fill(self.encoding.zero_byte());
            }
            self.end_block()?;
        }
        self.done.last_mut().map_or(Ok(()), AtomicFile::flush)
    }

    /// Pads and writes the last block, and renames every file to its final name.
    ///
    /// # Errors
    /// [`Error::Parameter`] if no sample was written; [`Error::Io`].
    pub fn finish(mut self) -> Result<()> {
        self.end_data()?;
        if self.blocks == 0 {
            return Err(Error::parameter("samples", 0, "GUPPI raw holds one sample at least"));
        }
        self.done.into_iter().try_for_each(AtomicFile::commit)
    }

    fn end_block(&mut self) -> Result<()> {
        if let Some(blocks) = self.options.blocks_per_file
            && self.blocks > 0
            && self.blocks.is_multiple_of(blocks as u64)
        {
            self.next_file()?;
        }
        let header = self.header();
        let filling = (self.payload.len() as u64).next_multiple_of(DIRECTIO_BYTES);
        let filling = filling as usize - self.payload.len();
        if let Some(file) = self.done.last_mut() {
            file.append(header.as_bytes())?;
            if self.is_sparse {
                file.append_sparse(&self.payload)?;
            } else {
                file.append(&self.payload)?;
            }
            if self.options.directio {
                file.append(&[0; DIRECTIO_BYTES as usize][..filling])?;
            }
        }
        self.blocks += 1;
        self.repeated = self.options.overlap as u64;
        for run in 0..self.layout.runs() {
            let start = self.layout.offset(run, 0) as usize;
            let end = start + self.layout.run_bytes(self.block_times) as usize;
            let bytes = self.layout.run_bytes(self.repeated) as usize;
            self.payload.copy_within(end - bytes..end, start);
        }
        self.filled = self.repeated;
        Ok(())
    }

    /// Formats the header of the current block.
    fn header(&self) -> String {
        let packet =
            (self.blocks + self.missing) * (self.block_times - self.options.overlap as u64);
        let mut cards = self.cards.clone();
        cards.push(number("NTVALID", self.filled));
        cards.push(number("PKTIDX", packet));
        if self.options.directio {
            let step = DIRECTIO_BYTES as usize;
            while !((cards.len() + 1) * CARD_BYTES).is_multiple_of(step) {
                cards.push(" ".repeat(CARD_BYTES));
            }
        }
        cards.push(format!("{:<CARD_BYTES$}", "END"));
        cards.concat()
    }

    fn next_file(&mut self) -> Result<()> {
        let path = match self.options.blocks_per_file {
            None => self.path.clone(),
            Some(_) => {
                let name = self.path.file_name().unwrap_or_default().to_string_lossy();
                let stem = name.strip_suffix(".raw").unwrap_or(&name);
                self.path.with_file_name(format!("{stem}.{:04}.raw", self.done.len()))
            }
        };
        if let Some(before) = self.done.last_mut() {
            before.release()?;
        }
        self.done.push(AtomicFile::create(&path)?);
        Ok(())
    }
}

fn block_times(header: &VoltageHeader, options: &WriterOptions, frame: u64) -> Result<u64> {
    let usual = (BLOCK_BYTES / frame / BLOCK_STEP * BLOCK_STEP).max(BLOCK_STEP);
    let times = options.block_times.map_or_else(
        || header.times.filter(|times| *times > 0).map_or(usual, |times| times.min(usual)),
        |times| times as u64,
    );
    if options.overlap as u64 >= times {
        let rule = format!("it must be less than the block's {times} samples");
        return Err(Error::parameter("overlap (samples)", options.overlap, rule));
    }
    if options.blocks_per_file == Some(0) {
        return Err(Error::parameter("blocks per file", 0, "there must be one at least"));
    }
    let most = u64::from(u32::MAX);
    if times.checked_mul(frame).is_none_or(|bytes| bytes > most) {
        let rule = format!("a block of {frame} bytes a sample must stay below 4 GiB");
        return Err(Error::parameter("samples in a block", times, rule));
    }
    Ok(times)
}

/// Formats the cards common to all blocks.
fn cards(
    header: &VoltageHeader,
    band: &EvenBand,
    options: &WriterOptions,
    block_times: u64,
    frame: u64,
) -> Vec<String> {
    let channels = header.coarse_channels();
    // With BACKEND GUPPI, dspsr reads 4-bit samples in another encoding.
    let backend = if header.encoding == VoltageEncoding::Complex8 { "GUPPI" } else { "SIDEREAL" };
    let mut cards = vec![text("BACKEND", backend)];
    if !header.telescope.is_empty() {
        cards.push(text("TELESCOP", &header.telescope));
    }
    if !header.source_name.is_empty() {
        cards.push(text("SRC_NAME", &header.source_name));
    }
    if let Some(ra) = header.ra_deg {
        cards.push(text("RA_STR", &sexagesimal::format(ra / 15.0)));
    }
    if let Some(dec) = header.dec_deg {
        cards.push(text("DEC_STR", &sexagesimal::format(dec)));
    }
    if let Some(circular) = header.circular {
        cards.push(text("FD_POLN", if circular { "CIRC" } else { "LIN" }));
    }
    cards.push(text("OBS_MODE", "RAW"));
    cards.push(text("PKTFMT", "1SFA"));
    if let Some(middle) = band.middle_hz {
        cards.push(float("OBSFREQ", middle / HZ_PER_MHZ));
    }
    cards.push(float("OBSBW", band.width_hz / HZ_PER_MHZ));
    cards.push(float("CHAN_BW", band.width_hz / HZ_PER_MHZ / channels as f64));
    cards.push(number("OBSNCHAN", channels * header.antennas));
    if header.antennas > 1 {
        cards.push(number("NANTS", header.antennas));
    }
    cards.push(number("NPOL", if header.polarizations == 2 { 4 } else { 1 }));
    cards.push(number("NBITS", header.encoding.bits()));
    cards.push(float("TBIN", header.tsamp_s));
    cards.push(number("STT_IMJD", header.start.day));
    cards.push(number("STT_SMJD", header.start.seconds.floor() as i64));
    cards.push(float("STT_OFFS", header.start.seconds - header.start.seconds.floor()));
    cards.push(number("OVERLAP", options.overlap));
    cards.push(number("DIRECTIO", u8::from(options.directio)));
    cards.push(number("BLOCSIZE", block_times * frame));
    // A packet is one sample of every stream, so PKTIDX counts samples.
    cards.push(number("PKTSIZE", frame));
    cards.push(number("PIPERBLK", block_times - options.overlap as u64));
    for (key, value) in header.filter.iter().flat_map(filter_fields) {
        cards.push(text(key, &value));
    }
    for (key, value) in header.sweep.iter().flat_map(Sweep::fields) {
        cards.push(text(key, &value));
    }
    cards
}

fn number(key: &str, value: impl std::fmt::Display) -> String {
    format!("{:<CARD_BYTES$}", format!("{key:<8}= {value:>20}"))
}

/// Formats a number with a decimal point, by which FITS readers distinguish floats from integers.
fn float(key: &str, value: f64) -> String {
    let shortest = format!("{value:?}");
    let exact = match shortest.split_once('e') {
        Some((digits, power)) if digits.contains('.') => format!("{digits}E{power}"),
        Some((digits, power)) => format!("{digits}.0E{power}"),
        None => shortest,
    };
    number(key, exact)
}

/// Formats a quoted text, with characters that a card cannot hold replaced, cut to the card's length.
fn text(key: &str, value: &str) -> String {
    let printable = |letter: char| if (' '..='~').contains(&letter) { letter } else { '?' };
    let mut quoted = String::new();
    for letter in value.chars().map(printable) {
        let doubled = if letter == '\'' { "''".to_string() } else { letter.to_string() };
        if quoted.len() + doubled.len() <= TEXT_LETTERS {
            quoted += &doubled;
        }
    }
    format!("{:<CARD_BYTES$}", format!("{key:<8}= '{quoted:<8}'"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_card_has_80_bytes() {
        let long = "'".repeat(100);
        for card in [
            text("SRC_NAME", &long),
            text("SRC_NAME", "caf\u{e9} \u{1f4e1}\n"),
            text("A", ""),
            number("PKTIDX", u64::MAX),
            float("TBIN", 1.0 / 3.0 * 1e-300),
            float("OBSFREQ", -1.234_567_890_123_456_7e-200),
        ] {
            assert_eq!(card.len(), CARD_BYTES, "{card}");
            assert!(card.is_ascii() && card.as_bytes()[8] == b'=', "{card}");
        }
    }

    #[test]
    fn floats_have_a_decimal_point_and_all_their_digits() {
        let value = |number: f64| float("OBSBW", number)[10..].trim().to_string();
        assert_eq!(value(4.0), "4.0");
        assert_eq!(value(-187.5), "-187.5");
        assert_eq!(value(0.0), "0.0");
        assert_eq!(value(1e-7), "1.0E-7");
        assert_eq!(value(2.56e-6), "2.56E-6");
        assert_eq!(value(1e300), "1.0E300");
        for number in [1.0 / 3.0, 5.12e-6, -1.234_567_890_123_456_7e-200, 1e16, 123_456_789.125] {
            assert!(value(number).contains('.') && value(number).parse() == Ok(number));
        }
    }
}
