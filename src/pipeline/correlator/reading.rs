//! Recordings of an array, read ahead: while the samples of one gulp are in use, threads read those of the next.
//!
//! Invariant: the samples, their order and the error after them are those of sequential reads; a recording has two
//! windows at most, and their memory is used again.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Instant;

use super::recordings::ENDLESS;
use super::window::{Invalid, WHOLE, Window};
use crate::backend::threads::Threads;
use crate::error::{Error, Result};
use crate::io;
use crate::io::voltages::{VoltageHeader, VoltageSource};
use crate::trace::{self, Work};

/// Samples by which a delay may fall from one gulp to the next without a further copy of the samples that both need.
const FALL: u64 = 64;

/// All recordings, and a window of each.
pub(super) struct Sources {
    pub(super) windows: Vec<Window>,
    readers: State,
    /// Pool of its own: recordings are read while the other pools compute.
    threads: Threads,
    /// Threads of one read; all reads together have half of the threads.
    threads_per_read: usize,
    /// Describes a truncated recording that is used to its end, if any.
    pub(super) cut: Option<String>,
    /// Samples of each recording that were not finite, up to the windows' ends.
    pub(super) not_finite: Vec<u64>,
    /// Seconds of all threads in which the samples in use were waited for.
    pub(super) waited_s: f64,
}

enum State {
    Idle(Vec<Reader>),
    Reading {
        stop: Arc<AtomicBool>,
        thread: JoinHandle<Vec<Reader>>,
    },
    /// The thread could not be started or panicked, so the recordings are lost.
    Lost,
}

/// Recording and the window that follows the one in use.
pub(super) struct Reader {
    source: Box<dyn VoltageSource>,
    /// Samples per read.
    gulp: usize,
    next: Window,
    /// Sample up to which to read ahead, if anything is to be read.
    target: Option<u64>,
    pub(super) invalid: Invalid,
    /// Length of the source in samples; [`ENDLESS`] while it is unknown.
    length: u64,
    /// Length of a live source that has ended, until it is taken.
    found_length: Option<u64>,
    /// Error that made the source return too few samples, until it is taken.
    fault: Option<Error>,
    /// Whether the source failed or ended early.
    ended: bool,
}

/// Recording, its window in use, and the samples that it must hold.
struct Job<'a> {
    reader: &'a mut Reader,
    window: &'a mut Window,
    needed: &'a Range<u64>,
    outcome: Result<()>,
}

impl Sources {
    /// Reads recordings with at most half of `threads` threads, because the others compute meanwhile; `cut` describes a
    /// truncated recording that is used to its end.
    pub(super) fn new(readers: Vec<Reader>, cut: Option<String>, threads: usize) -> Self {
        let threads = threads.div_ceil(2).max(1);
        let together = readers.len().clamp(1, threads);
        Self {
            windows: readers.iter().map(|reader| Window::new(reader.source.header())).collect(),
            not_finite: vec![0; readers.len()],
            readers: State::Idle(readers),
            threads: Threads::new(together),
            threads_per_read: threads / together,
            cut,
            waited_s: 0.0,
        }
    }

    /// Moves the windows: discards samples before the needed ones and reads those, as far as the sources deliver them;
    /// returns whether they delivered all.
    ///
    /// # Errors
    /// [`Error::Parameter`] for samples that were already discarded.
    pub(super) fn hold(&mut self, needed: &[Option<Range<u64>>]) -> Result<bool> {
        let begin = Instant::now();
        let readers = self.readers.idle()?;
        let pairs = readers.iter_mut().zip(&mut self.windows).zip(needed);
        let jobs = pairs.filter_map(|((reader, window), needed)| {
            Some(Job { reader, window, needed: needed.as_ref()?, outcome: Ok(()) })
        });
        let mut jobs: Vec<Job<'_>> = jobs.collect();
        let threads_per_read = self.threads_per_read;
        self.threads.for_each(&mut jobs, 1, |_, job| {
            let Job { reader, window, needed, outcome } = &mut job[0];
            *outcome = io::with_threads(threads_per_read, || reader.hold(window, needed));
        });
        let is_held = jobs.iter().all(|job| job.reader.is_held(job.window, job.needed));
        jobs.into_iter().try_for_each(|job| job.outcome)?;
        let counts = self.not_finite.iter_mut().zip(&*readers);
        counts.for_each(|(count, reader)| *count = reader.invalid.count);
        self.waited_s += begin.elapsed().as_secs_f64() * self.threads.count() as f64;
        Ok(is_held)
    }

    /// Starts to read the samples of the next gulp, which begins `advance` samples after the start of the `needed` ones
    /// and ends `following` samples after their end.
    ///
    /// # Errors
    /// [`Error::Io`] if no thread can be started.
    pub(super) fn read_ahead(
        &mut self,
        needed: &[Option<Range<u64>>],
        advance: u64,
        following: u64,
    ) -> Result<()> {
        let readers = self.readers.idle()?;
        let mut is_any = false;
        for ((reader, window), needed) in readers.iter_mut().zip(&self.windows).zip(needed) {
            let Some(needed) = needed else { continue };
            is_any |= reader.expect(window, needed.start + advance, needed.end + following);
        }
        if !is_any {
            return Ok(());
        }
        let State::Idle(mut readers) = std::mem::replace(&mut self.readers, State::Lost) else {
            return Ok(());
        };
        let stop = Arc::new(AtomicBool::new(false));
        let (threads, is_stopped) = (self.threads.clone(), Arc::clone(&stop));
        let threads_per_read = self.threads_per_read;
        let path = readers[0].source.header().path.clone();
        let thread = std::thread::Builder::new().name("reader".to_owned());
        let thread = thread.spawn(move || {
            threads.for_each(&mut readers, 1, |_, reader| {
                io::with_threads(threads_per_read, || reader[0].read_ahead(&is_stopped));
            });
            readers
        });
        let thread = thread.map_err(|error| Error::io(&path, error))?;
        self.readers = State::Reading { stop, thread };
        Ok(())
    }

    /// Waits until nothing is read ahead; returns the readers.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if the recordings are lost.
    pub(super) fn readers(&mut self) -> Result<&[Reader]> {
        self.readers.idle().map(|readers| &readers[..])
    }

    /// Takes the lengths of live sources, if one has ended since the last call.
    pub(super) fn take_lengths(&mut self) -> Option<Vec<u64>> {
        let readers = self.readers.idle().ok()?;
        if readers.iter().all(|reader| reader.found_length.is_none()) {
            return None;
        }
        let length = |reader: &mut Reader| {
            reader.length = reader.found_length.take().unwrap_or(reader.length);
            reader.length
        };
        Some(readers.iter_mut().map(length).collect())
    }

    /// Takes the error that made a source return too few samples.
    pub(super) fn take_fault(&mut self) -> Option<Error> {
        self.readers.idle().ok()?.iter_mut().find_map(|reader| reader.fault.take())
    }
}

impl Drop for Sources {
    fn drop(&mut self) {
        if let State::Reading { stop, .. } = &self.readers {
            stop.store(true, Ordering::Relaxed);
            let _ = self.readers.idle();
        }
    }
}

impl State {
    /// Waits until nothing is read; returns the readers.
    fn idle(&mut self) -> Result<&mut Vec<Reader>> {
        if let Self::Reading { .. } = self
            && let Self::Reading { thread, .. } = std::mem::replace(self, Self::Lost)
            && let Ok(readers) = thread.join()
        {
            *self = Self::Idle(readers);
        }
        match self {
            Self::Idle(readers) => Ok(readers),
            _ => {
                let why = "the thread that read them failed".to_owned();
                Err(Error::Unavailable { what: "the rest of the recordings".to_owned(), why })
            }
        }
    }
}

impl Reader {
    /// Reads a source of `length` samples, `gulp` at a time. `span` is the number of samples under a spectrum's window.
    pub(super) fn new(source: Box<dyn VoltageSource>, length: u64, gulp: usize, span: u64) -> Self {
        let next = Window::new(source.header());
        let invalid = Invalid::new(source.header().streams(), span);
        let gulp = gulp.max(1).next_multiple_of(WHOLE);
        let (target, found_length, fault) = (None, None, None);
        Self { source, gulp, next, target, invalid, length, found_length, fault, ended: false }
    }

    fn header(&self) -> &VoltageHeader {
        self.source.header()
    }

    /// Returns whether a window holds those of the samples that the source has.
    fn is_held(&self, window: &Window, times: &Range<u64>) -> bool {
        let end = times.end.min(self.length);
        self.found_length.is_none() && (times.start >= end || window.end() >= end)
    }

    /// Moves a window: discards samples before `times`, and appends those read ahead and then, as far as the source
    /// delivers them, the rest of `times`.
    fn hold(&mut self, window: &mut Window, times: &Range<u64>) -> Result<()> {
        let end = times.end.min(self.length);
        if times.start >= end {
            return Ok(());
        }
        if times.start < window.first() {
            let rule = "it falls too fast: it needs samples that were already discarded";
            return Err(Error::parameter("delay (samples)", times.start, rule));
        }
        window.drop_before(times.start);
        window.append(&mut self.next);
        window.drop_before(times.start);
        self.invalid.drop_before(window.first());
        self.pass_over(window, times.start);
        self.fill(window, end, &AtomicBool::new(false))
    }

    /// Sets the samples to read ahead, after those of a window; the next gulp begins at sample `start`. Returns whether
    /// there are any.
    fn expect(&mut self, window: &Window, start: u64, end: u64) -> bool {
        let end = end.min(self.length);
        let is_expected = self.next.is_empty() && !self.ended && window.end() < end;
        if is_expected {
            self.target = Some(end);
            self.next.follow(window, start.saturating_sub(FALL));
        }
        is_expected
    }

    /// Reads the expected samples, until the source ends or fails or `stop` is set.
    fn read_ahead(&mut self, stop: &AtomicBool) {
        let Some(end) = self.target.take() else { return };
        let empty = Window::new(self.header());
        let mut next = std::mem::replace(&mut self.next, empty);
        if let Err(fault) = self.fill(&mut next, end, stop) {
            self.end(fault);
        }
        self.next = next;
    }

    /// Appends the source's samples before `end` to a window.
    fn fill(&mut self, window: &mut Window, end: u64, stop: &AtomicBool) -> Result<()> {
        if self.ended || window.end() >= end {
            return Ok(());
        }
        // Allocates for all samples, and for those read past the end.
        window.reserve((end - window.end()) as usize + WHOLE + self.gulp);
        while !self.ended && window.end() < end && !stop.load(Ordering::Relaxed) {
            let first = window.end();
            let mut block = window.next(self.gulp)?;
            let mut span = trace::span(Work::Read, "voltages");
            let read = match self.source.read(&mut block) {
                Ok(read) => read,
                Err(fault) => {
                    self.end(fault);
                    break;
                }
            };
            self.invalid.find(&mut block, first);
            let times = block.times();
            span.add_bytes(block.streams() * block.encoding().bytes(times));
            drop(span);
            window.extend(times);
            if read < self.gulp && first + (times as u64) < end {
                self.end_early(window.end());
            }
        }
        Ok(())
    }

    fn end(&mut self, fault: Error) {
        self.ended = true;
        self.fault = Some(fault);
    }

    /// Skips samples before `sample` while the window is empty.
    fn pass_over(&mut self, window: &mut Window, sample: u64) {
        let passed = (sample - window.first()) / WHOLE as u64 * WHOLE as u64;
        if window.is_empty() && passed > 0 && !self.ended {
            match self.source.skip(passed) {
                Ok(skipped) if skipped < passed => self.end_early(window.first() + skipped),
                Ok(_) => window.skip(passed),
                Err(fault) => self.end(fault),
            }
        }
    }

    /// Ends a source that has only `length` samples: with an error, unless its length was unknown.
    fn end_early(&mut self, length: u64) {
        if self.length == ENDLESS {
            // A read that was stopped is short as well, and the next one says so.
            match self.source.read(&mut self.source.header().block(WHOLE)) {
                Ok(_) => (self.ended, self.found_length) = (true, Some(length)),
                Err(fault) => self.end(fault),
            }
            return;
        }
        let why = format!("the data end after {length} samples, expected {}", self.length);
        self.end(Error::format(&self.header().path, "data", 0, why));
    }
}
