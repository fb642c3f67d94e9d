//! Common part of VDIF and Mark 5B: equal-length frames, each with a time and a thread.
//!
//! The format modules read frame headers into an [`Index`]. This module sorts the frames, flags the missing ones and
//! unpacks payloads into streams.
//!
//! Invariant: each sample of a stream comes from the only frame of its thread and time, wherever that frame is in the
//! files; without such a frame the sample is zero and flagged.

mod arriving;
mod index;
mod pack;
mod unpack;

use std::ops::Range;
use std::path::PathBuf;

use crate::error::{Error, Result};
use crate::io::voltages::columns::{Positioned, Rows};
use crate::io::voltages::{Flag, VoltageHeader, VoltageOptions, VoltageSource};
use crate::units::Epoch;
use crate::view::check_length;
use crate::voltage::{VoltageBlock, VoltageEncoding};
use index::{Files, FrameRate, Run, Timeline};
use unpack::{Samples, Unpacker, Words};

pub(super) use arriving::Announced;
pub(crate) use arriving::{ArrivingFrames, Scratch};
pub(super) use index::{Frame, Index, Scan, check_paths};
pub(super) use pack::{Packer, exact_bits};
pub(super) use unpack::{Code, Layout};

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
    frames: Frames,
    /// One cursor per thread.
    cursors: Vec<Cursor>,
    flags: Vec<Flag>,
    position: u64,
    cut: Option<String>,
    warnings: Vec<String>,
}

/// Frames of a recording in time order, and the decoding of their samples.
#[derive(Debug)]
struct Frames {
    paths: Vec<PathBuf>,
    units: Vec<Vec<Run>>,
    streams: Streams,
    groups: Groups,
    layout: Layout,
    encoding: VoltageEncoding,
    header_bytes: usize,
    unpacker: Unpacker,
    times: u64,
}

/// State of one thread that reads and unpacks frames.
#[derive(Debug)]
struct Cursor {
    files: Files,
    pieces: Vec<Piece>,
    window: Vec<u8>,
    starts: Vec<u32>,
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
    let description = Description {
        format: recording.format,
        telescope: recording.telescope,
        layout,
        streams,
        rate,
    };
    let header = VoltageHeader {
        path: paths[0].clone(),
        start: (recording.epoch)(start.0).plus_s(fraction),
        times: Some(times),
        ..describe(description, options)
    };
    Ok(Box::new(Source {
        header,
        flags: flags(&units, frames, frame_times, &streams, groups),
        frames: Frames {
            paths: paths.to_vec(),
            units,
            streams,
            groups,
            layout,
            encoding,
            header_bytes: recording.header_bytes,
            unpacker: Unpacker::new(layout),
            times,
        },
        cursors: Vec::new(),
        position: 0,
        cut: (!recording.cuts.is_empty()).then(|| recording.cuts.join("; ")),
        warnings: recording.warnings,
    }))
}

/// Properties of frames that make the header of their recording.
struct Description {
    format: &'static str,
    telescope: String,
    layout: Layout,
    streams: Streams,
    /// Samples per second of each channel.
    rate: f64,
}

/// Makes the header of a recording, without its start and length.
fn describe(description: Description, options: &VoltageOptions) -> VoltageHeader {
    let Description { format, telescope, layout, streams, rate } = description;
    let width = if layout.complex { rate } else { 0.5 * rate };
    let lower = options.lower_sideband.unwrap_or(false);
    let centres = centres(options.centre_hz, streams.coarse_channels(), width, lower);
    VoltageHeader {
        format,
        telescope,
        lower_sideband: lower,
        scale: layout.scale(),
        recorded_bits: layout.bits,
        antennas: streams.stations,
        polarizations: streams.polarizations(),
        ..VoltageHeader::new(centres, 1.0 / rate, layout.encoding())
    }
}

/// Returns the frames per second from the options, else from the headers, else from the frames themselves.
fn frames_per_second(recording: &Recording<'_>, options: &VoltageOptions) -> Result<FrameRate> {
    let Some(rate) = options.sample_rate_hz.or(recording.sample_rate_hz) else {
        let shown = recording.index.frames_per_second().map(|frames| FrameRate::new(frames as f64));
        return shown.ok_or_else(|| Error::Unavailable {
            what: format!("the sample rate of {}", recording.paths[0].display()),
            why: "its headers have none, and it ends within a second, so that its frames don't \
                  show it; give the samples a second (`sample_rate_hz`)"
                .into(),
        });
    };
    let times = recording.layout.times();
    let frames = FrameRate::new(rate / times as f64);
    let most = recording.most_frames;
    if !(1.0..=most as f64).contains(&frames.per_second()) {
        let rule = format!("there must be 1 to {most} frames of {times} samples a second");
        return Err(Error::parameter("sample_rate_hz", rate, rule));
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

impl Positioned for Frames {
    type Cursor = Cursor;

    fn cursor(&self) -> Cursor {
        let files = Files::new(&self.paths);
        Cursor { files, pieces: Vec::new(), window: Vec::new(), starts: Vec::new() }
    }

    fn unit_times(&self) -> u64 {
        self.layout.times() as u64
    }

    fn fill<R: Rows>(
        &self,
        cursor: &mut Cursor,
        position: u64,
        rows: &mut R,
        times: usize,
    ) -> Result<()> {
        self.plan(position, times, &mut cursor.pieces, rows);
        let mut first = 0;
        while first < cursor.pieces.len() {
            let end = window_end(&cursor.pieces, first);
            self.read_window(cursor, first..end, rows)?;
            first = end;
        }
        Ok(())
    }
}

/// Returns the end index of the pieces from `first` on that fit in one read window.
fn window_end(pieces: &[Piece], first: usize) -> usize {
    let start = pieces[first];
    let inside = |piece: &Piece| {
        piece.file == start.file && piece.offset + piece.bytes as u64 <= start.offset + WINDOW_BYTES
    };
    let more = pieces[first + 1..].iter().take_while(|piece| inside(piece)).count();
    first + 1 + more
}

impl Frames {
    /// Collects the pieces of frames that hold `times` samples from `start` on, and zeroes samples without a frame.
    fn plan<R: Rows>(&self, start: u64, times: usize, pieces: &mut Vec<Piece>, rows: &mut R) {
        pieces.clear();
        let frame = self.layout.times() as u64;
        let end = start + times as u64;
        let row_time = |time: u64| (time.clamp(start, end) - start) as usize;
        for (unit, runs) in self.units.iter().enumerate() {
            let from = runs.partition_point(|run| run.end() * frame <= start);
            let mut done = 0;
            for run in runs[from..].iter().take_while(|run| run.first * frame < end) {
                self.zero(unit, done..row_time(run.first * frame), rows);
                done = row_time(run.end() * frame);
                if run.valid == 0 {
                    self.zero(unit, row_time(run.first * frame)..done, rows);
                    continue;
                }
                let first = run.first.max(start / frame);
                for number in first..run.end().min(end.div_ceil(frame)) {
                    let (begin, stop) = (row_time(number * frame), row_time((number + 1) * frame));
                    let inside = (start + begin as u64 - number * frame) as usize;
                    let span = self.layout.span(inside, stop - begin);
                    let place = run.offset + (number - run.first) * run.stride;
                    pieces.push(Piece {
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
            self.zero(unit, done..times, rows);
        }
        pieces.sort_unstable_by_key(|piece| (piece.file, piece.offset));
    }

    /// Zeroes samples of all of a thread's channels.
    fn zero<R: Rows>(&self, unit: usize, times: Range<usize>, rows: &mut R) {
        if !times.is_empty() {
            self.each_row(unit, 0, times, rows, |_, _| ());
        }
    }

    /// Reads and unpacks the pieces of one window.
    fn read_window<R: Rows>(
        &self,
        cursor: &mut Cursor,
        range: Range<usize>,
        rows: &mut R,
    ) -> Result<()> {
        let Cursor { files, pieces, window, starts } = cursor;
        let pieces = &mut pieces[range];
        let start = pieces[0];
        let last = pieces.iter().map(|piece| piece.offset + piece.bytes as u64);
        let bytes = last.max().unwrap_or(start.offset) - start.offset;
        window.resize(bytes as usize, 0);
        files.read_at(start.file, start.offset, window)?;
        for piece in &mut *pieces {
            piece.offset -= start.offset;
            self.unpacker.prepare(&mut window[piece.offset as usize..][..piece.bytes]);
        }
        pieces.sort_unstable_by_key(|piece| (piece.unit, piece.at));
        let follows =
            |a: &Piece, b: &Piece| (a.unit, a.valid, a.at + a.times) == (b.unit, b.valid, b.at);
        for stretch in pieces.chunk_by(follows) {
            if self.unpacker.gathers() {
                self.gather(window, stretch, starts, rows);
            } else {
                stretch.iter().for_each(|piece| self.unpack(window, piece, rows));
            }
        }
        Ok(())
    }

    /// Unpacks pieces that are consecutive in time, tile by tile.
    fn gather<R: Rows>(
        &self,
        window: &[u8],
        stretch: &[Piece],
        starts: &mut Vec<u32>,
        rows: &mut R,
    ) {
        let step = self.layout.time_bits() / 8;
        starts.clear();
        for piece in stretch {
            let first = piece.offset as usize + piece.skip * step;
            starts.extend((0..piece.times).map(|time| (first + time * step) as u32));
        }
        let Piece { unit, valid, at, .. } = stretch[0];
        for (tile, starts) in starts.chunks(TILE_TIMES).enumerate() {
            let samples = Samples { bytes: window, starts };
            let at = at + tile * TILE_TIMES;
            self.each_row(unit, valid, at..at + starts.len(), rows, |channel, row| {
                self.unpacker.gather(samples, channel, row);
            });
        }
    }

    /// Unpacks one piece.
    fn unpack<R: Rows>(&self, window: &[u8], piece: &Piece, rows: &mut R) {
        let bytes = &window[piece.offset as usize..][..piece.bytes];
        let words = Words { bytes, skip: piece.skip };
        let times = piece.at..piece.at + piece.times;
        self.each_row(piece.unit, piece.valid, times, rows, |channel, row| {
            self.unpacker.unpack(words, channel, row);
        });
    }

    /// Calls `fill` on the rows of a thread's valid channels for `times`, and zeroes the rows of the others.
    fn each_row<R: Rows>(
        &self,
        unit: usize,
        valid: u64,
        times: Range<usize>,
        rows: &mut R,
        fill: impl Fn(usize, &mut [u8]),
    ) {
        let encoding = self.encoding;
        let bytes = encoding.bytes(times.start)..encoding.bytes(times.end);
        for channel in 0..self.streams.channels {
            let row = &mut rows.row(self.streams.stream(unit, channel))[bytes.clone()];
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
        let Self { frames, cursors, position, .. } = self;
        let times = (block.capacity() as u64).min(frames.times - *position) as usize;
        frames.fill_block(cursors, *position, block, times)?;
        self.position += times as u64;
        block.set_times(times)?;
        Ok(times)
    }

    fn skip(&mut self, times: u64) -> Result<u64> {
        let step = self.header.encoding.group_samples();
        let times = times.min(self.frames.times - self.position);
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

/// Maximum number of single-stream flags; beyond it, one flag covers all streams from its first to its last.
const MAX_SINGLE: u64 = 1 << 16;

/// Frames of a thread that are missing or have invalid channels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Gap {
    start: u64,
    frames: u64,
    unit: usize,
    /// One bit per group of channels.
    valid: u64,
}

/// Channel groups of a frame, each with a validity bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Groups {
    groups: usize,
    channels: usize,
}

impl Groups {
    /// Returns the bits of a fully valid frame.
    fn all(&self) -> u64 {
        u64::MAX >> (64 - self.groups)
    }

    /// Returns whether a channel is valid.
    fn is_valid(&self, valid: u64, channel: usize) -> bool {
        valid >> (channel * self.groups / self.channels) & 1 == 1
    }

    /// Returns the ranges of invalid channels.
    fn invalid(self, valid: u64) -> impl Iterator<Item = Range<usize>> {
        let width = self.channels / self.groups;
        let group = move |group: usize| group * width..(group + 1) * width;
        (0..self.groups).filter(move |bit| valid >> bit & 1 == 0).map(group)
    }
}

/// Computes the flags of all threads, for `times` samples per frame.
fn flags(
    units: &[Vec<Run>],
    frames: u64,
    times: u64,
    streams: &Streams,
    groups: Groups,
) -> Vec<Flag> {
    let found = units.iter().enumerate();
    let mut gaps: Vec<Gap> =
        found.flat_map(|(unit, runs)| gaps_of(unit, runs, frames, groups.all())).collect();
    gaps.sort_unstable_by_key(|gap| (gap.start, gap.frames, gap.unit));
    let single = gaps.len() as u64 * streams.channels as u64 <= MAX_SINGLE;
    let mut flags = Vec::new();
    for alike in gaps.chunk_by(|a, b| (a.start, a.frames) == (b.start, b.frames)) {
        let mut ranges: Vec<Range<usize>> =
            alike.iter().flat_map(|gap| ranges(gap, streams, groups, single)).collect();
        ranges.sort_unstable_by_key(|range| range.start);
        ranges.dedup_by(|next, range| {
            let touches = next.start <= range.end;
            if touches {
                range.end = range.end.max(next.end);
            }
            touches
        });
        let (start, times) = (alike[0].start * times, alike[0].frames * times);
        flags.extend(ranges.into_iter().map(|streams| Flag { streams, start, times }));
    }
    flags
}

fn gaps_of(unit: usize, runs: &[Run], frames: u64, all: u64) -> Vec<Gap> {
    let mut gaps: Vec<Gap> = Vec::new();
    let mut add = |start: u64, end: u64, valid: u64| {
        if start == end || valid == all {
            return;
        }
        match gaps.last_mut() {
            Some(gap) if gap.valid == valid && gap.start + gap.frames == start => {
                gap.frames += end - start;
            }
            _ => gaps.push(Gap { start, frames: end - start, unit, valid }),
        }
    };
    let mut at = 0;
    for run in runs {
        add(at, run.first, 0);
        add(run.first, run.end(), run.valid);
        at = run.end();
    }
    add(at, frames, 0);
    gaps
}

/// Returns the stream ranges of a gap.
fn ranges(gap: &Gap, streams: &Streams, groups: Groups, single: bool) -> Vec<Range<usize>> {
    let stream = |channel: usize| streams.stream(gap.unit, channel);
    let stretches = groups.invalid(gap.valid);
    if streams.step() == 1 || !single {
        let whole = |stretch: Range<usize>| stream(stretch.start)..stream(stretch.end - 1) + 1;
        return stretches.map(whole).collect();
    }
    stretches.flatten().map(|channel| stream(channel)..stream(channel) + 1).collect()
}

/// Maximum number of streams in a recording.
const MAX_STREAMS: usize = 1 << 20;

/// Stream dimensions: every station has the same threads, every thread the same channels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Streams {
    stations: usize,
    threads: usize,
    channels: usize,
    pairs: Pairs,
}

/// Axis that carries the two polarizations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pairs {
    None,
    Threads,
    Channels,
}

impl Streams {
    /// Makes the mapping. With 2 `polarizations`, threads pair up, or channels if the number of threads is odd. With
    /// 1, all are channels. By default, exactly two threads are two polarizations.
    ///
    /// # Errors
    /// [`Error::Parameter`] for too many streams, and for polarizations that do not divide them.
    fn new(
        stations: usize,
        threads: usize,
        channels: usize,
        polarizations: Option<usize>,
    ) -> Result<Self> {
        let streams = stations.checked_mul(threads).and_then(|all| all.checked_mul(channels));
        if streams.is_none_or(|streams| streams > MAX_STREAMS) {
            let found = format!("{stations} stations x {threads} threads x {channels} channels");
            return Err(Error::parameter(
                "streams",
                found,
                format!("at most {MAX_STREAMS} can be read"),
            ));
        }
        let even = |count: usize| count.is_multiple_of(2);
        let pairs = match polarizations {
            None if threads == 2 => Pairs::Threads,
            None | Some(1) => Pairs::None,
            Some(2) if even(threads) => Pairs::Threads,
            Some(2) if even(channels) => Pairs::Channels,
            Some(other) => {
                let rule = format!(
                    "it must be 1 or 2, and {threads} threads of {channels} channels must come in pairs for 2"
                );
                return Err(Error::parameter("polarizations", other, rule));
            }
        };
        Ok(Self { stations, threads, channels, pairs })
    }

    /// Returns the polarizations per station.
    fn polarizations(&self) -> usize {
        if self.pairs == Pairs::None { 1 } else { 2 }
    }

    /// Returns the recorded channels per station.
    fn coarse_channels(&self) -> usize {
        self.threads * self.channels / self.polarizations()
    }

    /// Returns the stream of a thread's channel; threads are counted through all stations.
    fn stream(&self, unit: usize, channel: usize) -> usize {
        if self.pairs != Pairs::Threads {
            return unit * self.channels + channel;
        }
        (unit / 2 * self.channels + channel) * 2 + unit % 2
    }

    /// Returns the stream index step between a thread's channels.
    fn step(&self) -> usize {
        if self.pairs == Pairs::Threads { 2 } else { 1 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(first: u64, frames: u64, valid: u64) -> Run {
        Run { first, frames, file: 0, offset: 0, stride: 0, valid }
    }

    fn flag(streams: Range<usize>, start: u64, times: u64) -> Flag {
        Flag { streams, start, times }
    }

    #[test]
    fn gaps_of_all_threads_are_one_flag() {
        let streams = Streams::new(1, 2, 4, None).unwrap();
        let groups = Groups { groups: 1, channels: 4 };
        let whole = vec![run(0, 5, 1), run(7, 3, 1)];
        let late = vec![run(1, 4, 1), run(7, 2, 1), run(9, 1, 0)];
        let found = flags(&[whole, late], 10, 8, &streams, groups);
        let odd = |start, times| [1, 3, 5, 7].map(|stream| flag(stream..stream + 1, start, times));
        let mut expected = odd(0, 8).to_vec();
        expected.push(flag(0..8, 40, 16));
        expected.extend(odd(72, 8));
        assert_eq!(found, expected);
    }

    #[test]
    fn missing_and_invalid_frames_make_one_gap() {
        let streams = Streams::new(1, 3, 2, None).unwrap();
        let groups = Groups { groups: 1, channels: 2 };
        let units = [vec![run(0, 9, 1)], vec![run(0, 3, 1), run(3, 1, 0), run(6, 3, 1)], vec![]];
        let found = flags(&units, 9, 4, &streams, groups);
        assert_eq!(found, [flag(4..6, 0, 36), flag(2..4, 12, 12)]);
    }

    #[test]
    fn groups_of_channels_have_flags_of_their_own() {
        let streams = Streams::new(1, 1, 8, None).unwrap();
        let groups = Groups { groups: 4, channels: 8 };
        let units = [vec![run(0, 2, 0b1111), run(2, 1, 0b1001)]];
        assert_eq!(flags(&units, 3, 4, &streams, groups), [flag(2..6, 8, 4)]);
        assert!(groups.is_valid(0b1001, 1) && !groups.is_valid(0b1001, 2));
        assert_eq!(Groups { groups: 64, channels: 64 }.all(), u64::MAX);
    }

    #[test]
    fn flags_do_not_grow_without_end() {
        let streams = Streams::new(1, 2, 1024, None).unwrap();
        let groups = Groups { groups: 1, channels: 1024 };
        let lossy: Vec<Run> = (0..100).map(|k| run(2 * k, 1, 1)).collect();
        let found = flags(&[lossy, vec![run(0, 200, 1)]], 200, 1, &streams, groups);
        assert_eq!(found.len(), 100);
        assert_eq!(found[1], flag(0..2047, 3, 1));
    }

    #[test]
    fn every_stream_is_one_channel() {
        for (threads, channels, polarizations) in [
            (1, 4, None),
            (2, 4, None),
            (8, 1, None),
            (8, 1, Some(2)),
            (4, 2, Some(2)),
            (1, 4, Some(2)),
        ] {
            let streams = Streams::new(3, threads, channels, polarizations).unwrap();
            let mut all: Vec<usize> = (0..3 * threads)
                .flat_map(|unit| (0..channels).map(move |channel| (unit, channel)))
                .map(|(unit, channel)| streams.stream(unit, channel))
                .collect();
            all.sort_unstable();
            assert!(all.into_iter().eq(0..3 * threads * channels));
            let polarizations = streams.polarizations();
            assert_eq!(streams.coarse_channels() * polarizations, threads * channels);
        }
    }

    #[test]
    fn two_threads_are_polarizations() {
        let streams = Streams::new(1, 2, 1024, None).unwrap();
        assert_eq!((streams.polarizations(), streams.coarse_channels()), (2, 1024));
        assert_eq!((streams.stream(0, 3), streams.stream(1, 3)), (6, 7));
        let split = Streams::new(1, 2, 1024, Some(1)).unwrap();
        assert_eq!((split.polarizations(), split.stream(1, 3)), (1, 1027));
        let channels = Streams::new(1, 1, 4, Some(2)).unwrap();
        assert_eq!((channels.coarse_channels(), channels.stream(0, 3)), (2, 3));
        assert!(Streams::new(1, 1, 1, Some(2)).is_err() && Streams::new(1, 2, 1, Some(3)).is_err());
        assert!(Streams::new(1, 1024, 2048, None).is_err());
    }
}
