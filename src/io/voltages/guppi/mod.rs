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

mod header;
mod writer;

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::io::compressed;
use crate::io::voltages::fields::Fields;
use crate::io::voltages::layout::Counts;
use crate::io::voltages::recording::{Recording, Segment, gap_fault};
use crate::io::voltages::{VoltageHeader, VoltageOptions, VoltageSource, fields};
use crate::units::{Epoch, SECONDS_PER_DAY};
use header::{Geometry, is_card};

pub use writer::{Writer, WriterOptions};

const KEYS: fields::Keys = fields::Keys {
    middle: "OBSFREQ",
    width: "OBSBW",
    source: "SRC_NAME",
    telescope: "TELESCOP",
    basis: "FD_POLN",
};

/// Maximum number of channels of all antennas in a header without a complete block.
const MAX_CHANNELS: usize = 1 << 20;

/// Returns whether a file's first bytes are GUPPI raw.
pub(super) fn detect(first: &[u8]) -> bool {
    header::is_card(first) && !first.starts_with(b"SIMPLE")
}

/// Reads the cards of a file's first block.
///
/// # Errors
/// [`Error::Format`] for an invalid card or a header without `END`; [`Error::Io`].
pub fn header(path: &Path) -> Result<Fields> {
    let mut file = compressed::open(path)?;
    header::read(&mut file, path, 0)?.ok_or_else(|| header::breaks_off(path, 0))
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
    let scan = scan(paths, options.header_only)?;
    if scan.blocks.is_empty() {
        check_streams(&scan)?;
    }
    let tsamp_s = match fields::sampling_time(options)? {
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
    if antennas.saturating_mul(channels) <= MAX_CHANNELS {
        return Ok(());
    }
    let why = format!(
        "{antennas} antennas of {channels} channels in a file that is cut in its first block, expected \
         {MAX_CHANNELS} channels at most"
    );
    Err(scan.cards.fault("OBSNCHAN", why))
}

fn sampling_time(cards: &Fields) -> Result<f64> {
    match cards.number("TBIN")? {
        Some(tbin) if fields::TSAMP_S.contains(&tbin) => Ok(tbin),
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
    let told = fields::header(cards, &KEYS, geometry.encoding, geometry.counts, tsamp_s, options)?;
    Ok(VoltageHeader {
        path: scan.files[0].clone(),
        format: "GUPPI raw",
        ra_deg: cards.text("RA_STR").and_then(fields::ra_deg),
        dec_deg: cards.text("DEC_STR").and_then(fields::dec_deg),
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

/// DIRECTIO pads to multiples of this many bytes.
const DIRECTIO_BYTES: u64 = 512;

/// Longest accepted gap, in seconds; a longer one indicates a damaged header.
const MAX_GAP_S: f64 = SECONDS_PER_DAY;

/// A block of a file.
#[derive(Clone, Debug)]
struct Block {
    file: usize,
    /// Byte offset of its header.
    header: u64,
    /// Byte offset of its samples.
    data: u64,
    packet: Option<u64>,
    /// Valid samples; the rest is padding.
    times: u64,
}

/// Blocks of all files, and the first block's header.
struct Scan {
    files: Vec<PathBuf>,
    cards: Fields,
    geometry: Geometry,
    /// PKTIDX of the first block, complete or not.
    packet: Option<u64>,
    /// Complete blocks, in order.
    blocks: Vec<Block>,
    /// Descriptions of truncations at the files' ends.
    cuts: Vec<String>,
    warnings: Vec<String>,
}

/// Reads every block header of the files, given in any order; with `may_be_empty`, no complete block is required.
///
/// # Errors
/// [`Error::Format`] for headers that are invalid or inconsistent with each other; [`Error::Io`].
fn scan(paths: &[PathBuf], may_be_empty: bool) -> Result<Scan> {
    let mut files = Vec::new();
    for path in paths {
        files.push((path, scan_file(path)?));
    }
    // Without packet indices, sort the files by name.
    let numbered = files.iter().all(|(_, file)| file.blocks.iter().all(|b| b.packet.is_some()));
    let packet = |file: &Scanned| file.blocks.first().map_or(file.packet, |block| block.packet);
    files.sort_by(
        |(path, file), (other_path, other)| {
            if numbered { packet(file).cmp(&packet(other)) } else { path.cmp(other_path) }
        },
    );
    let (_, first) = &files[0];
    let (header, geometry) = (first.header.clone(), first.geometry.clone());
    let packet = packet(first);
    let mut all = Vec::new();
    let mut cuts = Vec::new();
    for (number, (_, file)) in files.iter().enumerate() {
        geometry.check(&file.geometry, &file.header, all.len())?;
        same_start(&header, &file.header)?;
        all.extend(file.blocks.iter().map(|block| Block { file: number, ..block.clone() }));
        cuts.extend(file.cut.clone());
    }
    let files: Vec<PathBuf> = files.into_iter().map(|(path, _)| path.clone()).collect();
    if all.is_empty() && !may_be_empty {
        let why = format!(
            "a block has {} bytes, but the file ends within its first one",
            geometry.block_bytes
        );
        return Err(header.fault("BLOCSIZE", why));
    }
    let warnings = Vec::new();
    let mut scan = Scan { files, cards: header, geometry, packet, blocks: all, cuts, warnings };
    scan.drop_jumps()?;
    Ok(scan)
}

/// Checks that a file counts its packets from the same time as the recording's first file.
fn same_start(expected: &Fields, found: &Fields) -> Result<()> {
    for key in ["STT_IMJD", "STT_SMJD", "STT_OFFS"] {
        let (expected, number) = (expected.number(key)?, found.number(key)?);
        if expected != number {
            let why = format!("found {number:?}, but {expected:?} in the recording's first file");
            return Err(found.fault(key, why));
        }
    }
    Ok(())
}

/// Headers of one file.
struct Scanned {
    header: Fields,
    geometry: Geometry,
    /// PKTIDX of the first block.
    packet: Option<u64>,
    /// Complete blocks.
    blocks: Vec<Block>,
    cut: Option<String>,
}

fn scan_file(path: &Path) -> Result<Scanned> {
    let io = |error| Error::io(path, error);
    let mut file = compressed::open(path)?;
    let length = file.metadata().map_err(io)?.len();
    let first = header::read(&mut file, path, 0)?.ok_or_else(|| header::breaks_off(path, 0))?;
    let geometry = Geometry::new(&first)?;
    let packet = first.count("PKTIDX")?;
    let (mut blocks, mut header, mut cut) = (Vec::new(), first.clone(), None);
    loop {
        let own = Geometry::new(&header)?;
        geometry.check(&own, &header, blocks.len())?;
        let (block, whole) = block(&header, &geometry, length)?;
        let (name, number) = (path.display(), blocks.len());
        if !whole {
            let (there, bytes) = (length.saturating_sub(block.data), geometry.block_bytes);
            cut = Some(format!(
                "{name}: its last block, {number}, has {there} of {bytes} bytes and is left out"
            ));
            break;
        }
        let end = block.data + geometry.block_bytes;
        blocks.push(block);
        let next = if geometry.directio { after_filling(&mut file, path, end)? } else { end };
        if next >= length {
            break;
        }
        let Some(following) = header::read(&mut file, path, next)? else {
            let there = length - next;
            cut = Some(format!("{name}: it ends {there} bytes into the header of block {number}"));
            break;
        };
        header = following;
    }
    Ok(Scanned { header: first, geometry, packet, blocks, cut })
}

/// Returns a block, and whether the file holds all of it.
fn block(header: &Fields, geometry: &Geometry, length: u64) -> Result<(Block, bool)> {
    let bytes = header.bytes();
    let bytes = if geometry.directio { bytes.next_multiple_of(DIRECTIO_BYTES) } else { bytes };
    let data = header.offset() + bytes;
    let times = header.count("NTVALID")?.unwrap_or(geometry.times);
    if times == 0 || times > geometry.times {
        let why = format!("found {times}, expected 1 to the block's {} samples", geometry.times);
        return Err(header.fault("NTVALID", why));
    }
    let packet = header.count("PKTIDX")?;
    let whole = data.checked_add(geometry.block_bytes).is_some_and(|end| end <= length);
    Ok((Block { file: 0, header: header.offset(), data, packet, times }, whole))
}

/// Finds the next header after the byte `end`: some writers also pad blocks to 512 bytes, some do not.
fn after_filling(file: &mut File, path: &Path, end: u64) -> Result<u64> {
    let filled = end.next_multiple_of(DIRECTIO_BYTES);
    if filled == end {
        return Ok(end);
    }
    let io = |error| Error::io(path, error);
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(end)).map_err(io)?;
    file.take(16).read_to_end(&mut bytes).map_err(io)?;
    Ok(if is_card(&bytes) { end } else { filled })
}

impl Scan {
    /// Drops blocks whose PKTIDX jumps while the next block continues the sequence from before.
    fn drop_jumps(&mut self) -> Result<()> {
        let pairs = self.blocks.windows(2).filter_map(|pair| pair[0].packet.zip(pair[1].packet));
        let mut rises: Vec<u64> = pairs.filter_map(|(a, b)| b.checked_sub(a)).collect();
        rises.sort_unstable();
        let usual = rises.get(rises.len() / 2).copied();
        let told = [self.cards.count("PIPERBLK")?, self.packets_in_block()?];
        let Some(step) = told.into_iter().flatten().chain(usual).find(|step| *step > 0) else {
            return Ok(());
        };
        let mut kept: Vec<Block> = Vec::new();
        let mut dropped: Vec<Block> = Vec::new();
        for (index, block) in self.blocks.iter().enumerate() {
            let neighbour = |other: &&Block| other.file == block.file;
            let before = kept.last().filter(neighbour).and_then(|before| before.packet);
            let after = self.blocks.get(index + 1).filter(neighbour).and_then(|after| after.packet);
            let is_bad = before.zip(after).is_some_and(|(before, after)| {
                after.checked_sub(before) == step.checked_mul(2)
                    && block.packet != before.checked_add(step)
            });
            if is_bad { dropped.push(block.clone()) } else { kept.push(block.clone()) }
        }
        if let Some(first) = dropped.first() {
            let (path, byte) = (self.files[first.file].display(), first.header);
            self.warnings.push(format!(
                "{path}: the packet indices (PKTIDX) of {} blocks (the first at byte {byte}) jump, and the blocks after \
                 them take that back; they are left out",
                dropped.len()
            ));
        }
        self.blocks = kept;
        Ok(())
    }

    /// Returns the rise of PKTIDX per block, from the header or as the smallest rise in the recording.
    ///
    /// # Errors
    /// [`Error::Format`] for an index that does not rise, or not by whole blocks.
    fn packets_per_block(&self) -> Result<Option<u64>> {
        let mut rises = Vec::new();
        for (number, pair) in self.blocks.windows(2).enumerate() {
            match (pair[0].packet, pair[1].packet) {
                (Some(before), Some(after)) if after > before => rises.push(after - before),
                (None, None) => {}
                (before, after) => {
                    let why = format!(
                        "block {} has {}, expected more than the {} of the block before",
                        number + 1,
                        show(after),
                        show(before)
                    );
                    return Err(self.fault(&pair[1], why));
                }
            }
        }
        let told = [self.cards.count("PIPERBLK")?, self.packets_in_block()?];
        let smallest = rises.iter().copied().min();
        let fits = |step: &u64| *step > 0 && rises.iter().all(|rise| rise.is_multiple_of(*step));
        if let Some(step) = told.into_iter().flatten().chain(smallest).find(fits) {
            return Ok(Some(step));
        }
        let Some(step) = smallest else { return Ok(None) };
        let odd = rises.iter().position(|rise| !rise.is_multiple_of(step)).unwrap_or(0);
        let why = format!(
            "block {} comes {} packets after the one before, expected a multiple of {step}",
            odd + 1,
            rises[odd]
        );
        Err(self.fault(&self.blocks[odd + 1], why))
    }

    /// Returns the number of PKTSIZE packets between the starts of consecutive blocks, if whole.
    fn packets_in_block(&self) -> Result<Option<u64>> {
        let bytes = self.geometry.hop() * self.geometry.frame_bytes();
        let size = self.cards.count("PKTSIZE")?.filter(|size| *size > 0);
        Ok(size.filter(|size| bytes.is_multiple_of(*size)).map(|size| bytes / size))
    }

    /// Computes the segments of the blocks, and the total number of samples.
    ///
    /// # Errors
    /// [`Error::Format`] for a gap of more than a day, and, unless `allow_gaps`, for one too long relative to the
    /// data before it.
    fn segments(
        &self,
        step: Option<u64>,
        tsamp_s: f64,
        allow_gaps: bool,
    ) -> Result<(Vec<Segment>, u64)> {
        let hop = self.geometry.hop();
        let first = self.blocks.first().and_then(|block| block.packet).unwrap_or(0);
        let mut segments: Vec<Segment> = Vec::new();
        let (mut times, mut reached, mut data) = (0u64, 0u64, 0u64);
        for (number, block) in self.blocks.iter().enumerate() {
            let index = match (step, block.packet) {
                (Some(step), Some(packet)) => (packet - first) / step,
                _ => number as u64,
            };
            let start = index.checked_mul(hop).filter(|start| {
                let gap = start.saturating_sub(times) as f64 * tsamp_s;
                gap <= MAX_GAP_S && *start < u64::MAX / 4
            });
            let Some(start) = start else {
                let why = format!(
                    "block {number} comes more than a day after the one before ({}), expected no \
                     longer gap in one recording",
                    show(block.packet)
                );
                return Err(self.fault(block, why));
            };
            let [gap_s, start_s, data_s] =
                [start.saturating_sub(times), times, data].map(|count| count as f64 * tsamp_s);
            if let Some(why) = gap_fault(gap_s, start_s, data_s, allow_gaps) {
                return Err(self.fault(block, format!("at block {number}, {why}")));
            }
            times = times.max(start + block.times);
            let passed = reached.saturating_sub(start);
            if passed < block.times {
                reached = start + block.times;
                data += block.times - passed;
                segments.push(Segment {
                    file: block.file,
                    offset: block.data,
                    start: start + passed,
                    passed,
                    times: block.times - passed,
                });
            }
        }
        Ok((segments, times))
    }

    fn fault(&self, block: &Block, why: String) -> Error {
        Error::format(&self.files[block.file], "PKTIDX", block.header, why)
    }
}

fn show(packet: Option<u64>) -> String {
    packet.map_or_else(|| "no PKTIDX".to_string(), |packet| format!("PKTIDX {packet}"))
}
