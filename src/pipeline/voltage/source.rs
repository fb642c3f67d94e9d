//! Source of voltages: a time range and an antenna of a recording, with samples that are not finite replaced by zeros.
//!
//! Invariant: what is given is finite; other encodings than floats pass as they are.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::layout::ChannelizeOptions;
use crate::error::{Error, Result};
use crate::io::voltages::{Flag, VoltageHeader, VoltageSource};
use crate::voltage::{VoltageBlock, VoltageEncoding};

/// Returns the requested part of a recording; without a selection, the source itself.
///
/// # Errors
/// [`Error::Parameter`] for an antenna that the recording lacks, or a time range outside it.
pub(super) fn part(
    source: Box<dyn VoltageSource>,
    options: &ChannelizeOptions,
) -> Result<Box<dyn VoltageSource>> {
    if options.antenna.is_none() && options.time_range.is_none() {
        return Ok(source);
    }
    Ok(Box::new(Part::new(source, options)?))
}

struct Part {
    source: Box<dyn VoltageSource>,
    header: VoltageHeader,
    flags: Vec<Flag>,
    /// Selected streams.
    streams: Range<usize>,
    /// Samples left in the time range.
    left: u64,
    /// Whether the range reaches the recording's end, so that a truncation is reported.
    reaches_end: bool,
    /// Buffer for all streams, if only some are selected.
    all: Option<VoltageBlock<'static>>,
}

impl Part {
    fn new(mut source: Box<dyn VoltageSource>, options: &ChannelizeOptions) -> Result<Self> {
        let mut header = source.header().clone();
        let streams = streams(&header, options.antenna)?;
        let times = times(&header, options.time_range)?;
        if source.skip(times.start)? < times.start {
            let start_s = times.start as f64 * header.tsamp_s;
            let rule = "the recording ends before it";
            return Err(Error::parameter("time_range.from", start_s, rule));
        }
        let flags = source.flags().iter().filter_map(|flag| cut(flag, &streams, &times)).collect();
        if header.start.day != 0 {
            header.start = header.start.plus_s(times.start as f64 * header.tsamp_s);
        }
        let passed_s = times.start as f64 * header.tsamp_s;
        header.sweep = header.sweep.map(|sweep| sweep.after(passed_s));
        let left = times.end - times.start;
        let reaches_end = header.times.is_none_or(|all| times.end >= all);
        header.times = header.times.map(|all| all.saturating_sub(times.start).min(left));
        if options.antenna.is_some() {
            header.antennas = 1;
        }
        Ok(Self { source, header, flags, streams, left, reaches_end, all: None })
    }

    /// Reads all streams and copies the selected ones.
    fn read_chosen(&mut self, block: &mut VoltageBlock) -> Result<usize> {
        let capacity = block.capacity();
        if self.all.as_ref().is_none_or(|all| all.capacity() != capacity) {
            self.all = Some(self.source.header().block(capacity));
        }
        let Some(all) = &mut self.all else { return Ok(0) };
        let times = self.source.read(all)?;
        let voltages = all.voltages();
        for (row, stream) in block.rows_mut().zip(self.streams.clone()) {
            let bytes = voltages.row(stream);
            row[..bytes.len()].copy_from_slice(bytes);
        }
        block.flags_mut().clear();
        let inside = 0..times as u64;
        let flags = all.flags().iter().filter_map(|flag| cut(flag, &self.streams, &inside));
        block.flags_mut().extend(flags);
        Ok(times)
    }
}

impl VoltageSource for Part {
    fn header(&self) -> &VoltageHeader {
        &self.header
    }

    fn read(&mut self, block: &mut VoltageBlock) -> Result<usize> {
        let read = if self.left == 0 {
            0
        } else if self.streams.len() < self.source.header().streams() {
            self.read_chosen(block)?
        } else {
            self.source.read(block)?
        };
        let times = self.left.min(read as u64) as usize;
        self.left -= times as u64;
        block.set_times(times)?;
        Ok(times)
    }

    fn skip(&mut self, times: u64) -> Result<u64> {
        let skipped = self.source.skip(times.min(self.left))?;
        self.left -= skipped;
        Ok(skipped)
    }

    fn flags(&self) -> &[Flag] {
        &self.flags
    }

    fn is_live(&self) -> bool {
        self.source.is_live()
    }

    fn cut(&self) -> Option<&str> {
        self.source.cut().filter(|_| self.reaches_end)
    }

    fn warnings(&self) -> &[String] {
        self.source.warnings()
    }
}

fn streams(header: &VoltageHeader, antenna: Option<usize>) -> Result<Range<usize>> {
    let Some(antenna) = antenna else { return Ok(0..header.streams()) };
    if antenna >= header.antennas {
        let rule = format!("the recording has {}, counted from 0", header.antennas);
        return Err(Error::parameter("channelize.antenna", antenna, rule));
    }
    let each = header.coarse_channels() * header.polarizations;
    Ok(antenna * each..(antenna + 1) * each)
}

/// Returns the samples of a time range, rounded to whole bytes.
fn times(header: &VoltageHeader, range: Option<(f64, f64)>) -> Result<Range<u64>> {
    let Some((from, to)) = range else { return Ok(0..u64::MAX) };
    let duration = header.duration_s().unwrap_or(f64::INFINITY);
    let step = header.encoding.group_samples() as u64;
    let sample = |seconds: f64| (seconds / header.tsamp_s).round() as u64 / step * step;
    if !(from >= 0.0 && from < to && from < duration && sample(from) < sample(to)) {
        let rule = format!("it must be FROM:TO in seconds, rising, within 0 to {duration:.6}");
        return Err(Error::parameter("time_range", format!("{from}:{to}"), rule));
    }
    Ok(sample(from)..sample(to))
}

/// Returns the part of a flag within the selected streams and times.
pub(super) fn cut(flag: &Flag, streams: &Range<usize>, times: &Range<u64>) -> Option<Flag> {
    let first = flag.streams.start.max(streams.start);
    let last = flag.streams.end.min(streams.end);
    let start = flag.start.max(times.start);
    let end = flag.start.saturating_add(flag.times).min(times.end);
    (first < last && start < end).then(|| Flag {
        streams: first - streams.start..last - streams.start,
        start: start - times.start,
        times: end - start,
    })
}

/// Wraps a source of floats so that samples that are not finite become zeros; also returns their running count.
pub(in crate::pipeline) fn finite(
    source: Box<dyn VoltageSource>,
) -> (Box<dyn VoltageSource>, Arc<AtomicU64>) {
    let count = Arc::new(AtomicU64::new(0));
    match source.header().encoding {
        VoltageEncoding::ComplexF32 | VoltageEncoding::RealF32 => {
            (Box::new(Finite { source, count: count.clone() }), count)
        }
        _ => (source, count),
    }
}

struct Finite {
    source: Box<dyn VoltageSource>,
    /// Number of samples replaced by zeros.
    count: Arc<AtomicU64>,
}

impl VoltageSource for Finite {
    fn header(&self) -> &VoltageHeader {
        self.source.header()
    }

    fn read(&mut self, block: &mut VoltageBlock) -> Result<usize> {
        let times = self.source.read(block)?;
        let encoding = block.encoding();
        let (length, sample) = (encoding.bytes(times), encoding.bytes(1));
        let mut bad = 0;
        for row in block.rows_mut() {
            blank(&mut row[..length], sample, |_| bad += 1);
        }
        self.count.fetch_add(bad, Ordering::Relaxed);
        Ok(times)
    }

    fn skip(&mut self, times: u64) -> Result<u64> {
        self.source.skip(times)
    }

    fn flags(&self) -> &[Flag] {
        self.source.flags()
    }

    fn is_live(&self) -> bool {
        self.source.is_live()
    }

    fn cut(&self) -> Option<&str> {
        self.source.cut()
    }

    fn warnings(&self) -> &[String] {
        self.source.warnings()
    }
}

/// Replaces samples of `sample` bytes that are not finite by zeros and reports their indices to `found`.
pub(in crate::pipeline) fn blank(row: &mut [u8], sample: usize, mut found: impl FnMut(usize)) {
    if row.chunks_exact(4).all(is_finite) {
        return;
    }
    for (time, z) in row.chunks_exact_mut(sample).enumerate() {
        if !z.chunks_exact(4).all(is_finite) {
            z.fill(0);
            found(time);
        }
    }
}

/// Whether a little-endian float is finite: its exponent is not all ones.
fn is_finite(bytes: &[u8]) -> bool {
    bytes[3] & 0x7f != 0x7f || bytes[2] & 0x80 == 0
}
