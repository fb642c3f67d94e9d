//! Voltage source: unpacks payloads in the order of their file offsets.
//!
//! Invariant: a read touches each of its payload bytes once; samples without a valid frame are zero.

use std::ops::Range;
use std::path::PathBuf;

use super::files::Files;
use super::gaps::{Groups, flags};
use super::index::{FrameRate, Index, Run, Timeline};
use super::layout::Layout;
use super::streams::Streams;
use super::unpack::{Samples, Unpacker, Words};
use crate::error::{Error, Result};
use crate::io::voltages::{Flag, VoltageHeader, VoltageOptions, VoltageSource};
use crate::units::Epoch;
use crate::view::check_length;
use crate::voltage::VoltageBlock;

/// Bytes per file read, unless a single frame is longer.
const WINDOW_BYTES: u64 = 1 << 20;
/// Times unpacked together, channel by channel: whole bytes in every encoding.
const TILE_TIMES: usize = 256;

/// Properties of a recording from its format's headers.
#[derive(Debug)]
pub(in crate::io::voltages) struct Recording<'a> {
    pub(in crate::io::voltages) format: &'static str,
    pub(in crate::io::voltages) paths: &'a [PathBuf],
    pub(in crate::io::voltages) telescope: String,
    pub(in crate::io::voltages) stations: usize,
    /// Threads per station.
    pub(in crate::io::voltages) threads: usize,
    pub(in crate::io::voltages) layout: Layout,
    /// Bytes before the payload in a frame.
    pub(in crate::io::voltages) header_bytes: usize,
    /// Channel groups with separate validity.
    pub(in crate::io::voltages) groups: usize,
    pub(in crate::io::voltages) index: Index,
    /// Samples per second of each channel, if the headers store it.
    pub(in crate::io::voltages) sample_rate_hz: Option<f64>,
    /// Maximum number of frames per second that a header can count.
    pub(in crate::io::voltages) most_frames: u64,
    /// Converts a second of the index to UTC.
    pub(in crate::io::voltages) epoch: fn(u64) -> Epoch,
    /// Descriptions of truncations at the files' ends.
    pub(in crate::io::voltages) cuts: Vec<String>,
    pub(in crate::io::voltages) warnings: Vec<String>,
}

/// Voltage source made of frames.
#[derive(Debug)]
struct Source {
    header: VoltageHeader,
    files: Files,
    units: Vec<Vec<Run>>,
    streams: Streams,
    groups: Groups,
    layout: Layout,
    header_bytes: usize,
    unpacker: Unpacker,
    flags: Vec<Flag>,
    times: u64,
    position: u64,
    pieces: Vec<Piece>,
    window: Vec<u8>,
    starts: Vec<u32>,
    cut: Option<String>,
    warnings: Vec<String>,
}

/// Range of one frame's samples to unpack.
#[derive(Clone, Copy, Debug)]
struct Piece {
    file: usize,
    /// Byte offset of their first word in the file.
    offset: u64,
    bytes: usize,
    skip: usize,
    unit: usize,
    valid: u64,
    /// Index of the first sample in the block.
    at: usize,
    times: usize,
}

/// Opens the recording as a source, at its start.
///
/// # Errors
/// [`Error::Parameter`] for inconsistent options; [`Error::Unavailable`] for an unknown sample rate;
/// [`Error::Format`] for frames that contradict each other.
pub(in crate::io::voltages) fn open(
    mut recording: Recording<'_>,
    options: &VoltageOptions,
) -> Result<Box<dyn VoltageSource>> {
    let Recording { layout, stations, threads, paths, .. } = recording;
    let streams = Streams::new(stations, threads, layout.channels, options.polarizations)?;
    let known = options.sample_rate_hz.or(recording.sample_rate_hz).is_some();
    let told = known.then(|| frames_per_second(&recording, options)).transpose()?;
    let whole = told.and_then(FrameRate::whole);
    if let Some((frames, file, byte)) = recording.index.drop_jumps(whole) {
        let path = paths[file].display();
        recording.warnings.push(format!(
            "{path}: the times of {frames} frames (the first at byte {byte}) jump, and the frames after them take that \
             back; they are left out"
        ));
    }
    let per_second = told.map_or_else(|| frames_per_second(&recording, options), Ok)?;
    let frame_times = layout.times() as u64;
    let Timeline { units, start, frames } =
        recording.index.into_timeline(per_second, paths, options.allow_gaps)?;
    let times = frames.checked_mul(frame_times).ok_or_else(|| {
        Error::format(&paths[0], "frame number", 0, format!("found {frames} frames, too many"))
    })?;
    let groups = Groups { groups: recording.groups, channels: layout.channels };
    let rate = per_second.per_second() * frame_times as f64;
    let fraction = start.1 as f64 / per_second.per_second();
    let encoding = layout.encoding();
    let width = if layout.complex { rate } else { 0.5 * rate };
    let lower = options.lower_sideband.unwrap_or(false);
    let header = VoltageHeader {
        path: paths[0].clone(),
        format: recording.format,
        source_name: String::new(),
        telescope: recording.telescope,
        ra_deg: None,
        dec_deg: None,
        beam: None,
        start: (recording.epoch)(start.0).plus_s(fraction),
        tsamp_s: 1.0 / rate,
        centres_hz: centres(options.centre_hz, streams.coarse_channels(), width, lower),
        lower_sideband: lower,
        encoding,
        scale: layout.scale(),
        recorded_bits: layout.bits,
        antennas: stations,
        polarizations: streams.polarizations(),
        circular: None,
        times: Some(times),
        filter: None,
    };
    Ok(Box::new(Source {
        header,
        files: Files::new(paths),
        flags: flags(&units, frames, frame_times, &streams, groups),
        units,
        streams,
        groups,
        layout,
        header_bytes: recording.header_bytes,
        unpacker: Unpacker::new(layout),
        times,
        position: 0,
        pieces: Vec::new(),
        window: Vec::new(),
        starts: Vec::new(),
        cut: (!recording.cuts.is_empty()).then(|| recording.cuts.join("; ")),
        warnings: recording.warnings,
    }))
}

/// Returns the frames per second from the options, else from the headers, else from the frames themselves.
fn frames_per_second(recording: &Recording<'_>, options: &VoltageOptions) -> Result<FrameRate> {
    let Some(rate) = options.sample_rate_hz.or(recording.sample_rate_hz) else {
        let shown = recording.index.frames_per_second().map(|frames| FrameRate::new(frames as f64));
        return shown.ok_or_else(|| Error::Unavailable {
            what: format!("the sample rate of {}", recording.paths[0].display()),
            why: "its headers have none, and it ends within a second, so that its frames don't \
                  show it; give the samples a second (--sample-rate)"
                .into(),
        });
    };
    let times = recording.layout.times();
    let frames = FrameRate::new(rate / times as f64);
    let most = recording.most_frames;
    if !(1.0..=most as f64).contains(&frames.per_second()) {
        let rule = format!("there must be 1 to {most} frames of {times} samples a second");
        return Err(Error::parameter("sample rate (Hz)", rate, rule));
    }
    Ok(frames)
}

/// Returns the centres of adjacent recorded channels; 0 if the band's middle is unknown.
fn centres(middle_hz: Option<f64>, channels: usize, width_hz: f64, lower: bool) -> Vec<f64> {
    let Some(middle) = middle_hz else { return vec![0.0; channels] };
    let step = if lower { -width_hz } else { width_hz };
    let half = 0.5 * (channels as f64 - 1.0);
    (0..channels).map(|channel| middle + (channel as f64 - half) * step).collect()
}

impl Source {
    /// Collects the pieces of frames that hold the next `times` samples, and zeroes samples without a frame.
    fn plan(&mut self, times: usize, block: &mut VoltageBlock) {
        self.pieces.clear();
        let frame = self.layout.times() as u64;
        let (start, end) = (self.position, self.position + times as u64);
        let block_time = |time: u64| (time.clamp(start, end) - start) as usize;
        for unit in 0..self.units.len() {
            let runs = &self.units[unit];
            let from = runs.partition_point(|run| run.end() * frame <= start);
            let mut done = 0;
            for run in runs[from..].iter().take_while(|run| run.first * frame < end) {
                self.zero(unit, done..block_time(run.first * frame), block);
                done = block_time(run.end() * frame);
                if run.valid == 0 {
                    self.zero(unit, block_time(run.first * frame)..done, block);
                    continue;
                }
                let first = run.first.max(start / frame);
                for number in first..run.end().min(end.div_ceil(frame)) {
                    let (begin, stop) =
                        (block_time(number * frame), block_time((number + 1) * frame));
                    let inside = (start + begin as u64 - number * frame) as usize;
                    let span = self.layout.span(inside, stop - begin);
                    let place = run.offset + (number - run.first) * run.stride;
                    self.pieces.push(Piece {
                        file: run.file,
                        offset: place + (self.header_bytes + span.start) as u64,
                        bytes: span.bytes,
                        skip: span.skip,
                        unit,
                        valid: run.valid,
                        at: begin,
                        times: stop - begin,
                    });
                }
            }
            self.zero(unit, done..times, block);
        }
        self.pieces.sort_unstable_by_key(|piece| (piece.file, piece.offset));
    }

    /// Zeroes samples of all of a thread's channels.
    fn zero(&self, unit: usize, times: Range<usize>, block: &mut VoltageBlock) {
        if !times.is_empty() {
            self.each_row(unit, 0, times, block, |_, _| ());
        }
    }

    /// Returns the end index of the pieces from `first` on that fit in one read window.
    fn window_end(&self, first: usize) -> usize {
        let start = self.pieces[first];
        let inside = |piece: &Piece| {
            piece.file == start.file
                && piece.offset + piece.bytes as u64 <= start.offset + WINDOW_BYTES
        };
        let more = self.pieces[first + 1..].iter().take_while(|piece| inside(piece)).count();
        first + 1 + more
    }

    /// Reads and unpacks the pieces of one window.
    fn read_window(&mut self, first: usize, end: usize, block: &mut VoltageBlock) -> Result<()> {
        let start = self.pieces[first];
        let last = self.pieces[first..end].iter().map(|piece| piece.offset + piece.bytes as u64);
        let bytes = last.max().unwrap_or(start.offset) - start.offset;
        self.window.resize(bytes as usize, 0);
        self.files.read_at(start.file, start.offset, &mut self.window)?;
        for piece in &mut self.pieces[first..end] {
            piece.offset -= start.offset;
            self.unpacker.prepare(&mut self.window[piece.offset as usize..][..piece.bytes]);
        }
        self.pieces[first..end].sort_unstable_by_key(|piece| (piece.unit, piece.at));
        let mut starts = std::mem::take(&mut self.starts);
        let follows =
            |a: &Piece, b: &Piece| (a.unit, a.valid, a.at + a.times) == (b.unit, b.valid, b.at);
        for stretch in self.pieces[first..end].chunk_by(follows) {
            if self.unpacker.gathers() {
                self.gather(stretch, &mut starts, block);
            } else {
                stretch.iter().for_each(|piece| self.unpack(piece, block));
            }
        }
        self.starts = starts;
        Ok(())
    }

    /// Unpacks pieces that are consecutive in time, tile by tile.
    fn gather(&self, stretch: &[Piece], starts: &mut Vec<u32>, block: &mut VoltageBlock) {
        let step = self.layout.time_bits() / 8;
        starts.clear();
        for piece in stretch {
            let first = piece.offset as usize + piece.skip * step;
            starts.extend((0..piece.times).map(|time| (first + time * step) as u32));
        }
        let Piece { unit, valid, at, .. } = stretch[0];
        for (tile, starts) in starts.chunks(TILE_TIMES).enumerate() {
            let samples = Samples { bytes: &self.window, starts };
            let at = at + tile * TILE_TIMES;
            self.each_row(unit, valid, at..at + starts.len(), block, |channel, row| {
                self.unpacker.gather(samples, channel, row);
            });
        }
    }

    /// Unpacks one piece.
    fn unpack(&self, piece: &Piece, block: &mut VoltageBlock) {
        let bytes = &self.window[piece.offset as usize..][..piece.bytes];
        let words = Words { bytes, skip: piece.skip };
        let times = piece.at..piece.at + piece.times;
        self.each_row(piece.unit, piece.valid, times, block, |channel, row| {
            self.unpacker.unpack(words, channel, row);
        });
    }

    /// Calls `fill` on the rows of a thread's valid channels for `times`, and zeroes the rows of the others.
    fn each_row(
        &self,
        unit: usize,
        valid: u64,
        times: Range<usize>,
        block: &mut VoltageBlock,
        fill: impl Fn(usize, &mut [u8]),
    ) {
        let encoding = self.header.encoding;
        let bytes = encoding.bytes(times.start)..encoding.bytes(times.end);
        for channel in 0..self.streams.channels {
            let row = &mut block.row_mut(self.streams.stream(unit, channel))[bytes.clone()];
            if self.groups.is_valid(valid, channel) {
                fill(channel, row);
            } else {
                row.fill(encoding.zero_byte());
            }
        }
    }
}

impl VoltageSource for Source {
    fn header(&self) -> &VoltageHeader {
        &self.header
    }

    fn read(&mut self, block: &mut VoltageBlock) -> Result<usize> {
        check_length("streams of a block", self.header.streams(), block.streams())?;
        let bits = self.header.encoding.sample_bits();
        check_length("bits of a block's samples", bits, block.encoding().sample_bits())?;
        let times = (block.capacity() as u64).min(self.times - self.position) as usize;
        self.plan(times, block);
        let mut first = 0;
        while first < self.pieces.len() {
            let end = self.window_end(first);
            self.read_window(first, end, block)?;
            first = end;
        }
        self.position += times as u64;
        block.set_times(times)?;
        Ok(times)
    }

    fn skip(&mut self, times: u64) -> Result<u64> {
        let step = self.header.encoding.samples_per_byte();
        let times = times.min(self.times - self.position);
        check_length("times to skip, in whole bytes", 0, (times % step as u64) as usize)?;
        self.position += times;
        Ok(times)
    }

    fn flags(&self) -> &[Flag] {
        &self.flags
    }

    fn cut(&self) -> Option<&str> {
        self.cut.as_deref()
    }

    fn warnings(&self) -> &[String] {
        &self.warnings
    }
}
