//! Writer of dumps: the samples of each dump's windows to its file.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use super::queue::Queue;
use super::request::{Options, Report, State};
use super::ring::{Chunk, Sizes};
use crate::error::Result;
use crate::io::voltages::{Flag, VoltageHeader};
use crate::pipeline::voltage::VoltageWriter;
use crate::voltage::VoltageBlock;

/// Thread that writes dumps, the one of the highest priority first.
pub(super) struct Writer {
    header: VoltageHeader,
    options: Options,
    queue: Arc<Queue>,
    is_stopped: Arc<AtomicBool>,
    files: Vec<DumpFile>,
    /// Samples of a part of a dump, zeros outside of its windows.
    block: VoltageBlock<'static>,
    /// Samples per stream of a chunk.
    times: usize,
}

/// File of a dump.
struct DumpFile {
    number: u64,
    path: PathBuf,
    writer: VoltageWriter,
    lost: Vec<Flag>,
    /// Seconds from the request until the first samples were written.
    delay_s: Option<f64>,
}

/// Samples of a dump to be written, copied from the queue, which is then unlocked.
struct Step {
    report: Report,
    windows: Vec<std::ops::Range<u64>>,
    chunk: Option<Arc<Chunk>>,
    /// Samples to write, of which those before the chunk are lost.
    from: u64,
    to: u64,
    /// Time of the request.
    asked: Instant,
}

impl Writer {
    pub(super) fn new(
        header: &VoltageHeader,
        sizes: Sizes,
        options: &Options,
        queue: Arc<Queue>,
        is_stopped: Arc<AtomicBool>,
    ) -> Self {
        let header = VoltageHeader { times: None, ..header.clone() };
        let (block, times) = (header.block(sizes.times), sizes.times);
        let options = options.clone();
        Self { header, options, queue, is_stopped, files: Vec::new(), block, times }
    }

    /// Works until the stream has ended and every dump is written.
    pub(super) fn run(mut self) {
        while let Some(step) = self.next() {
            if step.chunk.is_none() {
                self.end(step.report, false);
                continue;
            }
            if !self.has_space(&step) {
                let reason = Some("the disk has no more space for dumps".to_owned());
                let samples = step.from - step.report.first;
                self.end(Report { reason, samples, ..step.report }, false);
                continue;
            }
            if let Err(fault) = self.write(&step).map(|()| self.has_begun(&step)) {
                let report = Report { reason: Some(fault.to_string()), ..step.report };
                self.end(report, true);
            }
        }
    }

    /// Reports a dump whose first samples were written.
    fn has_begun(&mut self, step: &Step) {
        let file = self.files.iter_mut().find(|file| file.number == step.report.number);
        if let Some(file) = file.filter(|file| file.delay_s.is_none()) {
            file.delay_s = Some(step.asked.elapsed().as_secs_f64());
            let samples = step.to - step.report.first;
            (self.options.listener)(&Report {
                delay_s: file.delay_s,
                samples,
                ..step.report.clone()
            });
        }
    }

    /// Returns whether the disk has space for a part of a dump.
    fn has_space(&self, step: &Step) -> bool {
        let bytes = VoltageWriter::bytes(&self.header, step.to - step.from);
        (self.options.space)().is_none_or(|space| bytes <= space)
    }

    /// Waits for the next part of a dump; `None` when there will be none.
    fn next(&self) -> Option<Step> {
        let mut dumping = self.queue.lock();
        loop {
            let is_stopped = self.is_stopped.load(Ordering::Relaxed);
            if is_stopped {
                // A slow disk would delay the end.
                for dump in &mut dumping.dumps {
                    if !(dump.is_closed && dump.chunks.is_empty()) {
                        let why = "the search was asked to stop";
                        dump.reason.get_or_insert_with(|| why.to_owned());
                    }
                    dump.chunks.clear();
                    dump.is_closed = true;
                }
            }
            let due =
                dumping.dumps.iter_mut().filter(|dump| !dump.chunks.is_empty() || dump.is_closed);
            if let Some(dump) = due.max_by_key(|dump| (dump.priority, u64::MAX - dump.number)) {
                let chunk = dump.chunks.pop_front();
                let to = match &chunk {
                    Some(chunk) => chunk.end().min(dump.range.end),
                    None => dump.written,
                };
                let from = dump.written;
                dump.is_ending = chunk.is_none();
                if chunk.as_ref().is_some_and(|chunk| chunk.first > from) {
                    let why = "samples within it were not kept";
                    dump.reason.get_or_insert_with(|| why.to_owned());
                }
                if chunk.is_none() && from < dump.range.end {
                    let why = "the samples at its end were not kept";
                    dump.reason.get_or_insert_with(|| why.to_owned());
                }
                dump.written = to.max(from);
                dump.is_open |= chunk.is_some();
                return Some(Step {
                    report: dump.report(State::Running),
                    windows: if chunk.is_some() { dump.windows.clone() } else { Vec::new() },
                    chunk,
                    from,
                    to: to.max(from),
                    asked: dump.asked,
                });
            }
            if dumping.is_over && dumping.dumps.is_empty() {
                return None;
            }
            dumping = self.queue.wait(dumping);
        }
    }

    /// Removes a dump from the queue, and gives the bytes back to the quota that its file does not take.
    fn remove(&self, report: &Report) {
        let mut dumping = self.queue.lock();
        let place = dumping.dumps.iter().position(|dump| dump.number == report.number);
        let Some(dump) = place.map(|place| dumping.dumps.swap_remove(place)) else { return };
        if let Some(quota) = &self.options.quota {
            let bytes = VoltageWriter::bytes(&self.header, report.samples);
            let written = if report.path.is_some() { bytes } else { 0 };
            quota.fetch_add(dump.bytes.saturating_sub(written), Ordering::Relaxed);
        }
    }

    /// Writes a part of a dump: zeros before the chunk, if chunks are missing, then the chunk's samples.
    fn write(&mut self, step: &Step) -> Result<()> {
        let Some(chunk) = &step.chunk else { return Ok(()) };
        let index = self.open(step)?;
        let mut from = step.from;
        while from < chunk.first.min(step.to) {
            let times = (chunk.first.min(step.to) - from).min(self.times as u64);
            self.blank(times as usize)?;
            let flag = Flag { streams: 0..self.header.streams(), start: 0, times };
            self.append(index, from - step.report.first, vec![flag])?;
            from += times;
        }
        if from >= step.to {
            return Ok(());
        }
        let times = (step.to - from) as usize;
        self.blank(times)?;
        let skipped = (from - chunk.first) as usize;
        let encoding = self.header.encoding;
        let (channels, pols) = (self.header.coarse_channels(), self.header.polarizations);
        for stream in 0..self.header.streams() {
            let window = &step.windows[stream / pols % channels];
            let start = (window.start.clamp(from, step.to) - from) as usize;
            let end = (window.end.clamp(from, step.to) - from) as usize;
            if start < end {
                let bytes = encoding.bytes(start)..encoding.bytes(end);
                let recorded = encoding.bytes(skipped + start)..encoding.bytes(skipped + end);
                self.block.row_mut(stream)[bytes].copy_from_slice(&chunk.row(stream)[recorded]);
            }
        }
        let lost = chunk.flags.iter().filter_map(|flag| {
            let end = flag.start.saturating_add(flag.times).min((skipped + times) as u64);
            let start = flag.start.max(skipped as u64);
            (start < end).then(|| Flag {
                streams: flag.streams.clone(),
                start: start - skipped as u64,
                times: end - start,
            })
        });
        let lost = lost.collect();
        self.append(index, from - step.report.first, lost)
    }

    /// Makes a block of zeros.
    fn blank(&mut self, times: usize) -> Result<()> {
        let zero = self.header.encoding.zero_byte();
        self.block.rows_mut().for_each(|row| row.fill(zero));
        self.block.set_times(times)
    }

    /// Appends the block, which begins `start` samples after the dump's first one; `lost` counts from its start.
    fn append(&mut self, index: usize, start: u64, lost: Vec<Flag>) -> Result<()> {
        let file = &mut self.files[index];
        file.writer.write_marked(self.block.voltages(), &lost)?;
        for flag in lost {
            let flag = Flag { start: start + flag.start, ..flag };
            let joins = |last: &&mut Flag| {
                last.streams == flag.streams && last.start + last.times == flag.start
            };
            match file.lost.iter_mut().rev().take(16).find(joins) {
                Some(last) => last.times += flag.times,
                None => file.lost.push(flag),
            }
        }
        Ok(())
    }

    /// Returns the place of a dump's file among the open ones; begins it if it is not open.
    fn open(&mut self, step: &Step) -> Result<usize> {
        let report = &step.report;
        if let Some(index) = self.files.iter().position(|file| file.number == report.number) {
            return Ok(index);
        }
        let first_s = report.first as f64 * self.header.tsamp_s;
        let start = match self.header.start.day {
            0 => self.header.start,
            _ => self.header.start.plus_s(first_s),
        };
        let name = (self.options.name)(start);
        let path = with_suffix(&name, self.options.format.suffix());
        let sweep = Some(report.sweep.after(first_s));
        let header = VoltageHeader { path: path.clone(), start, sweep, ..self.header.clone() };
        let writer = VoltageWriter::create(self.options.format, &path, &header)?;
        let number = report.number;
        self.files.push(DumpFile { number, path, writer, lost: Vec::new(), delay_s: None });
        Ok(self.files.len() - 1)
    }

    /// Ends a dump: completes its file, if it has one, and reports it. After a failed write
    /// the file keeps what is whole.
    fn end(&mut self, mut report: Report, has_failed: bool) {
        let found = self.files.iter().position(|file| file.number == report.number);
        let Some(index) = found else {
            report.state = State::Failed;
            report.reason.get_or_insert_with(|| "no sample of its window came".to_owned());
            self.remove(&report);
            return (self.options.listener)(&report);
        };
        let mut file = self.files.swap_remove(index);
        let first_s = report.first as f64 * self.header.tsamp_s;
        file.writer.set_sweep(&report.sweep.after(first_s));
        let made = if has_failed { Ok(()) } else { file.writer.end_data() };
        let kept = match made {
            Ok(()) if !has_failed => Ok(report.samples),
            _ => file.writer.keep_whole(),
        };
        if let Err(fault) = made {
            report.reason.get_or_insert_with(|| fault.to_string());
        }
        let finished = kept.and_then(|samples| file.writer.finish().map(|()| samples));
        report.delay_s = file.delay_s;
        report.lost = file.lost;
        match finished {
            Ok(samples) => {
                report.samples = samples;
                (report.state, report.path) = (State::Done, Some(file.path));
            }
            Err(fault) => {
                report.state = State::Failed;
                report.reason.get_or_insert_with(|| fault.to_string());
            }
        }
        self.remove(&report);
        (self.options.listener)(&report);
    }
}

/// Checks that the format can hold the voltages, and that files can be made.
///
/// # Errors
/// Those of [`VoltageWriter::create`].
pub(super) fn check(header: &VoltageHeader, options: &Options) -> Result<()> {
    let path = with_suffix(&(options.name)(header.start), options.format.suffix());
    VoltageWriter::create(options.format, &path, header).map(drop)
}

/// Appends a suffix to a path whose name may have dots.
fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}
