//! Reads segments of files as one stream; gaps between segments read as zeros.
//!
//! Invariant: segments rise in time and do not overlap, so every sample has at most one place.

use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::io::voltages::columns::{Positioned, Rows};
use crate::io::voltages::layout::Layout;
use crate::io::voltages::{Flag, VoltageHeader, VoltageSource, check_streams};
use crate::io::{compressed, parallel};
use crate::voltage::{VoltageBlock, VoltageEncoding};

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
    map: Map,
    flags: Vec<Flag>,
    /// One cursor per thread.
    cursors: Vec<Cursor>,
    position: u64,
    cut: Option<String>,
    warnings: Vec<String>,
}

/// Places of all samples in the files.
#[derive(Debug)]
struct Map {
    encoding: VoltageEncoding,
    layout: Layout,
    files: Vec<PathBuf>,
    segments: Vec<Segment>,
    times: u64,
}

/// State of one thread that reads samples.
#[derive(Debug, Default)]
struct Cursor {
    window: Window,
    segment: usize,
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
        Self {
            map: Map { encoding: header.encoding, layout, files, segments, times },
            header,
            flags,
            cursors: Vec::new(),
            position: 0,
            cut: None,
            warnings: Vec::new(),
        }
    }

    /// Attaches notes for the user: truncations at the files' ends, and warnings.
    pub(super) fn with_notes(self, cuts: &[String], warnings: Vec<String>) -> Self {
        let cut = (!cuts.is_empty()).then(|| cuts.join("; "));
        Self { cut, warnings, ..self }
    }
}

impl Positioned for Map {
    type Cursor = Cursor;

    fn cursor(&self) -> Cursor {
        Cursor::default()
    }

    fn unit_times(&self) -> u64 {
        self.layout.unit_times()
    }

    fn fill<R: Rows>(
        &self,
        cursor: &mut Cursor,
        position: u64,
        rows: &mut R,
        times: usize,
    ) -> Result<()> {
        if self.segments.get(cursor.segment).is_none_or(|segment| segment.start > position) {
            cursor.segment = self.segments.partition_point(|segment| segment.end() <= position);
        }
        let mut filled = 0;
        while filled < times {
            filled += cursor.piece(self, position + filled as u64, rows, filled..times)?;
        }
        Ok(())
    }
}

impl Cursor {
    /// Fills samples `span` of the rows, or their first ones, from one segment or gap; returns their number. The first
    /// is sample `position` of the recording.
    fn piece<R: Rows>(
        &mut self,
        map: &Map,
        position: u64,
        rows: &mut R,
        span: Range<usize>,
    ) -> Result<usize> {
        let Map { layout, segments, .. } = map;
        while segments.get(self.segment).is_some_and(|segment| segment.end() <= position) {
            self.segment += 1;
        }
        let (end, segment) = match segments.get(self.segment) {
            Some(segment) if segment.start <= position => {
                let time = position - segment.start + segment.passed;
                let unit = position.saturating_add(layout.left_in_unit(time));
                (unit.min(segment.end()), Some(*segment))
            }
            next => (next.map_or(map.times, |segment| segment.start), None),
        };
        let mut times = (end - position).min(span.len() as u64) as usize;
        match segment {
            Some(segment) => {
                if layout.runs() == 1 {
                    times = times.min(layout.tile_times());
                }
                let time = position - segment.start + segment.passed;
                self.copy(map, segment, time, rows, span.start..span.start + times)?;
            }
            None => {
                let encoding = map.encoding;
                let bytes = encoding.bytes(span.start)..encoding.bytes(span.start + times);
                (0..layout.streams())
                    .for_each(|stream| rows.row(stream)[bytes.clone()].fill(encoding.zero_byte()));
            }
        }
        Ok(times)
    }

    /// Copies samples of one unit of a segment, from its sample `time` on.
    fn copy<R: Rows>(
        &mut self,
        map: &Map,
        segment: Segment,
        time: u64,
        rows: &mut R,
        span: Range<usize>,
    ) -> Result<()> {
        let (layout, times) = (&map.layout, span.len());
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
                    // The read covers nearly all of each run, so the next run follows soon: read ahead.
                    Some(_) if 8 * layout.run_bytes(times as u64) >= 7 * row_bytes => {
                        from..from + bytes.max(WINDOW_BYTES)
                    }
                    _ => from..from + bytes,
                };
                let ahead = ahead.start..ahead.end.min(end);
                let path = &map.files[segment.file];
                let source = self.window.fetch(segment.file, path, from..from + bytes, ahead)?;
                layout.scatter(run, source, rows, span.start + start);
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
        let Self { header, map, cursors, position, .. } = self;
        check_streams(block.voltages(), map.layout.streams(), header.encoding)?;
        let times = (map.times - *position).min(block.capacity() as u64) as usize;
        map.fill_block(cursors, *position, block, times)?;
        *position += times as u64;
        block.set_times(times)?;
        Ok(times)
    }

    fn skip(&mut self, times: u64) -> Result<u64> {
        let skipped = times.min(self.map.times - self.position);
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

/// Cached bytes of the current file.
#[derive(Debug, Default)]
struct Window {
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
        path: &Path,
        wanted: Range<u64>,
        ahead: Range<u64>,
    ) -> Result<&[u8]> {
        let end = self.start + self.bytes.len() as u64;
        if self.file != file || wanted.start < self.start || wanted.end > end {
            self.load(file, path, ahead)?;
        }
        let from = (wanted.start - self.start) as usize;
        let length = (wanted.end - wanted.start) as usize;
        let reached = self.bytes.len();
        self.bytes.get(from..from + length).ok_or_else(|| {
            let why = format!(
                "the file ends here, expected samples to byte {}: it has been cut since it was opened",
                wanted.end
            );
            Error::format(path, "data", self.start + reached as u64, why)
        })
    }

    fn load(&mut self, file: usize, path: &Path, span: Range<u64>) -> Result<()> {
        let io = |error| Error::io(path, error);
        let handle = match &mut self.opened {
            Some((number, handle)) if *number == file => handle,
            other => &mut other.insert((file, compressed::open(path)?)).1,
        };
        (self.file, self.start) = (file, span.start);
        self.bytes.resize((span.end - span.start) as usize, 0);
        let read = parallel::read_part(handle, &mut self.bytes, span.start);
        self.bytes.truncate(*read.as_ref().unwrap_or(&0));
        read.map_err(io).map(|_| ())
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
