//! Reads segments of files as one stream; gaps between segments read as zeros.
//!
//! Invariant: segments rise in time and do not overlap, so every sample has at most one place.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::PathBuf;

use crate::error::{Error, Result};
use crate::io::voltages::layout::Layout;
use crate::io::voltages::{Flag, VoltageHeader, VoltageSource, check_streams};
use crate::voltage::VoltageBlock;

/// Bytes read ahead when the following bytes are needed soon.
const WINDOW_BYTES: u64 = 1 << 20;

/// A time span stored contiguously in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Segment {
    /// Index of the file.
    pub(super) file: usize,
    /// Byte offset of its first unit.
    pub(super) offset: u64,
    /// First sample, counted from the recording's start.
    pub(super) start: u64,
    /// Samples skipped at its beginning.
    pub(super) passed: u64,
    /// Samples used per stream.
    pub(super) times: u64,
}

impl Segment {
    fn end(&self) -> u64 {
        self.start + self.times
    }
}

/// Voltages from the segments of one or more files.
#[derive(Debug)]
pub(super) struct Recording {
    header: VoltageHeader,
    layout: Layout,
    segments: Vec<Segment>,
    flags: Vec<Flag>,
    window: Window,
    times: u64,
    position: u64,
    segment: usize,
    cut: Option<String>,
    warnings: Vec<String>,
}

impl Recording {
    /// Makes a recording of `times` samples; flags the samples outside all segments.
    pub(super) fn new(
        mut header: VoltageHeader,
        layout: Layout,
        files: Vec<PathBuf>,
        segments: Vec<Segment>,
        times: u64,
    ) -> Self {
        let flags = missing(&segments, times, layout.streams());
        header.times = Some(times);
        let window = Window { files, opened: None, file: 0, start: 0, bytes: Vec::new() };
        Self {
            header,
            layout,
            segments,
            flags,
            window,
            times,
            position: 0,
            segment: 0,
            cut: None,
            warnings: Vec::new(),
        }
    }

    /// Attaches notes for the user: truncations at the files' ends, and warnings.
    pub(super) fn with_notes(self, cuts: &[String], warnings: Vec<String>) -> Self {
        let cut = (!cuts.is_empty()).then(|| cuts.join("; "));
        Self { cut, warnings, ..self }
    }

    /// Fills the block from sample `at` with up to `wanted` samples from one segment or gap; returns their number.
    fn piece(&mut self, block: &mut VoltageBlock, at: usize, wanted: usize) -> Result<usize> {
        let position = self.position;
        while self.segments.get(self.segment).is_some_and(|segment| segment.end() <= position) {
            self.segment += 1;
        }
        let (end, segment) = match self.segments.get(self.segment) {
            Some(segment) if segment.start <= position => {
                let time = position - segment.start + segment.passed;
                let unit = position.saturating_add(self.layout.left_in_unit(time));
                (unit.min(segment.end()), Some(*segment))
            }
            next => (next.map_or(self.times, |segment| segment.start), None),
        };
        let mut times = (end - position).min(wanted as u64) as usize;
        match segment {
            Some(segment) => {
                if self.layout.runs() == 1 {
                    times = times.min(self.layout.tile_times());
                }
                self.copy(segment, position - segment.start + segment.passed, times, block, at)?;
            }
            None => fill_zeros(block, at, times),
        }
        self.position += times as u64;
        Ok(times)
    }

    /// Copies samples of one unit of a segment.
    fn copy(
        &mut self,
        segment: Segment,
        time: u64,
        times: usize,
        block: &mut VoltageBlock,
        at: usize,
    ) -> Result<()> {
        let layout = &self.layout;
        let end = segment.offset + layout.bytes(segment.passed + segment.times);
        let unit = layout.unit(time).map(|(start, bytes)| (segment.offset + start, bytes));
        let row_bytes = layout.run_bytes(layout.unit_times());
        for run in 0..layout.runs() {
            for start in (0..times).step_by(layout.tile_times()) {
                let tile = layout.tile_times().min(times - start);
                let bytes = layout.run_bytes(tile as u64);
                let from = segment.offset + layout.offset(run, time + start as u64);
                let ahead = match unit {
                    Some((unit, unit_bytes)) if unit_bytes <= WINDOW_BYTES => {
                        unit..unit + WINDOW_BYTES / unit_bytes * unit_bytes
                    }
                    // The read covers most of each run, so the next run follows soon: read ahead.
                    Some(_) if 2 * layout.run_bytes(times as u64) >= row_bytes => {
                        from..from + bytes.max(WINDOW_BYTES)
                    }
                    _ => from..from + bytes,
                };
                let ahead = ahead.start..ahead.end.min(end);
                let source = self.window.fetch(segment.file, from..from + bytes, ahead)?;
                layout.scatter(run, source, block, at + start);
            }
        }
        Ok(())
    }
}

impl VoltageSource for Recording {
    fn header(&self) -> &VoltageHeader {
        &self.header
    }

    fn read(&mut self, block: &mut VoltageBlock) -> Result<usize> {
        check_streams(block.voltages(), self.layout.streams(), self.header.encoding)?;
        let left = self.times - self.position;
        let times = left.min(block.capacity() as u64) as usize;
        let mut filled = 0;
        while filled < times {
            filled += self.piece(block, filled, times - filled)?;
        }
        block.set_times(times)?;
        Ok(times)
    }

    fn skip(&mut self, times: u64) -> Result<u64> {
        let skipped = times.min(self.times - self.position);
        self.position += skipped;
        Ok(skipped)
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

/// Flags the samples outside all segments.
fn missing(segments: &[Segment], times: u64, streams: usize) -> Vec<Flag> {
    let mut flags = Vec::new();
    let mut reached = 0;
    let ends = segments.iter().map(|segment| (segment.start, segment.end()));
    for (start, end) in ends.chain([(times, times)]) {
        if start > reached {
            flags.push(Flag { streams: 0..streams, start: reached, times: start - reached });
        }
        reached = end;
    }
    flags
}

fn fill_zeros(block: &mut VoltageBlock, at: usize, times: usize) {
    let encoding = block.encoding();
    let span = encoding.bytes(at)..encoding.bytes(at + times);
    for row in block.rows_mut() {
        row[span.clone()].fill(encoding.zero_byte());
    }
}

/// Cached bytes of the current file.
#[derive(Debug)]
struct Window {
    files: Vec<PathBuf>,
    opened: Option<(usize, File)>,
    file: usize,
    start: u64,
    bytes: Vec<u8>,
}

impl Window {
    /// Returns the bytes `wanted` of a file; on a cache miss, reads the enclosing range `ahead`.
    fn fetch(
        &mut self,
        file: usize,
        wanted: std::ops::Range<u64>,
        ahead: std::ops::Range<u64>,
    ) -> Result<&[u8]> {
        let end = self.start + self.bytes.len() as u64;
        if self.file != file || wanted.start < self.start || wanted.end > end {
            self.load(file, ahead)?;
        }
        let from = (wanted.start - self.start) as usize;
        let length = (wanted.end - wanted.start) as usize;
        let reached = self.bytes.len();
        self.bytes.get(from..from + length).ok_or_else(|| {
            let why = format!(
                "the file ends here, expected samples to byte {}: it has been cut since it was opened",
                wanted.end
            );
            Error::format(&self.files[file], "data", self.start + reached as u64, why)
        })
    }

    fn load(&mut self, file: usize, span: std::ops::Range<u64>) -> Result<()> {
        let path = &self.files[file];
        let io = |error| Error::io(path, error);
        let handle = match &mut self.opened {
            Some((number, handle)) if *number == file => handle,
            other => &mut other.insert((file, File::open(path).map_err(io)?)).1,
        };
        self.file = file;
        self.start = span.start;
        self.bytes.clear();
        handle.seek(SeekFrom::Start(span.start)).map_err(io)?;
        handle.take(span.end - span.start).read_to_end(&mut self.bytes).map_err(io)?;
        Ok(())
    }
}

/// Gaps up to this many seconds are always filled.
const ALWAYS_S: f64 = 60.0;
/// Gaps up to this multiple of the data before them are filled.
const RATIO: f64 = 10.0;

/// Describes why a gap of `gap_s` seconds after `data_s` seconds of data, `start_s` after the recording's first
/// sample, is too long; `None` if it may be filled.
pub(super) fn gap_fault(gap_s: f64, start_s: f64, data_s: f64, allowed: bool) -> Option<String> {
    let most = ALWAYS_S.max(RATIO * data_s);
    (!allowed && gap_s > most).then(|| {
        format!(
            "a gap of {gap_s:.6} s begins {start_s:.6} s after the recording's start, behind {data_s:.6} s of data; \
             above {most:.6} s that may be a damaged time: `allow_gaps` fills it"
        )
    })
}
