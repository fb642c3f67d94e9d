//! Time stamps of a run: what each thread and each GPU stream worked on, and when.
//!
//! Invariant: nothing is recorded before [`begin`]; until then a span costs one atomic load.

use std::borrow::Cow;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

/// Kind of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Reading input, with its conversion.
    Read,
    /// Writing output, with its formatting.
    Write,
    /// Copy from the host to a GPU.
    ToDevice,
    /// Copy from a GPU to the host.
    FromDevice,
    /// GPU kernel, or a copy within a GPU.
    Kernel,
    /// Computation on the host.
    Compute,
    /// Compilation or loading of GPU kernels.
    Compile,
    /// Drawing of pictures.
    Draw,
}

impl Work {
    /// Every kind.
    pub const ALL: [Self; 8] = [
        Self::Read,
        Self::Write,
        Self::ToDevice,
        Self::FromDevice,
        Self::Kernel,
        Self::Compute,
        Self::Compile,
        Self::Draw,
    ];

    /// Returns the name of this kind in a trace file.
    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::ToDevice => "copy to device",
            Self::FromDevice => "copy from device",
            Self::Kernel => "kernel",
            Self::Compute => "compute",
            Self::Compile => "compile",
            Self::Draw => "draw",
        }
    }
}

/// Piece of work of one thread or one GPU stream.
#[derive(Clone, Debug, PartialEq)]
pub struct Span {
    /// Kind of work.
    pub work: Work,
    /// Name of the work, such as a kernel's.
    pub name: Cow<'static, str>,
    /// Thread or GPU stream.
    pub lane: String,
    /// Start in seconds since [`begin`].
    pub start_s: f64,
    /// End in seconds since [`begin`].
    pub end_s: f64,
    /// Bytes read, written or copied; 0 if they are not counted.
    pub bytes: u64,
}

/// Source of further spans, such as a GPU's.
type Source = Box<dyn Fn() -> Vec<Span> + Send>;

#[derive(Default)]
struct Record {
    spans: Vec<Span>,
    sources: Vec<Source>,
}

static IS_ON: AtomicBool = AtomicBool::new(false);
static BEGUN: OnceLock<Instant> = OnceLock::new();
static RECORD: Mutex<Record> = Mutex::new(Record { spans: Vec::new(), sources: Vec::new() });

/// Starts recording; the process records from the first call on.
pub fn begin() {
    BEGUN.get_or_init(Instant::now);
    IS_ON.store(true, Ordering::Relaxed);
}

/// Returns whether spans are recorded.
pub fn is_on() -> bool {
    IS_ON.load(Ordering::Relaxed)
}

/// Returns the seconds since [`begin`], 0 before it.
pub fn now_s() -> f64 {
    BEGUN.get().map_or(0.0, |begun| begun.elapsed().as_secs_f64())
}

/// Ends recording and returns all spans by ascending start.
pub fn take() -> Vec<Span> {
    IS_ON.store(false, Ordering::Relaxed);
    let Record { mut spans, sources } = std::mem::take(&mut *record());
    spans.extend(sources.iter().flat_map(|source| source()));
    spans.sort_by(|a, b| a.start_s.total_cmp(&b.start_s));
    spans
}

/// Adds a source of spans, which [`take`] asks once.
pub fn add_source(source: Source) {
    record().sources.push(source);
}

/// Begins a span that ends when the guard is dropped.
pub fn span(work: Work, name: &'static str) -> Guard {
    Guard(is_on().then(|| Open { work, name, start_s: now_s(), bytes: 0 }))
}

/// Span under way.
#[derive(Debug)]
#[must_use = "a span ends when its guard is dropped"]
pub struct Guard(Option<Open>);

#[derive(Debug)]
struct Open {
    work: Work,
    name: &'static str,
    start_s: f64,
    bytes: u64,
}

impl Guard {
    /// Counts bytes read, written or copied.
    pub fn add_bytes(&mut self, bytes: usize) {
        if let Some(open) = &mut self.0 {
            open.bytes += bytes as u64;
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let Some(Open { work, name, start_s, bytes }) = self.0.take() else { return };
        let (name, lane, end_s) = (Cow::Borrowed(name), lane(), now_s());
        record().spans.push(Span { work, name, lane, start_s, end_s, bytes });
    }
}

/// Returns the name of this thread, or a number.
fn lane() -> String {
    static THREADS: AtomicUsize = AtomicUsize::new(1);
    thread_local! {
        static NUMBER: usize = THREADS.fetch_add(1, Ordering::Relaxed);
    }
    let number = || format!("thread {}", NUMBER.with(|number| *number));
    std::thread::current().name().map_or_else(number, str::to_owned)
}

fn record() -> MutexGuard<'static, Record> {
    RECORD.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the seconds in which at least one span of these kinds was under way.
pub fn busy_s(spans: &[Span], works: &[Work]) -> f64 {
    let mut own: Vec<&Span> = spans.iter().filter(|span| works.contains(&span.work)).collect();
    own.sort_by(|a, b| a.start_s.total_cmp(&b.start_s));
    let (mut busy, mut end) = (0.0, f64::NEG_INFINITY);
    for span in own {
        busy += (span.end_s - span.start_s.max(end)).max(0.0);
        end = span.end_s.max(end);
    }
    busy
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_recorded_between_begin_and_take() {
        drop(span(Work::Read, "too early"));
        begin();
        let mut outer = span(Work::Read, "outer");
        outer.add_bytes(3);
        outer.add_bytes(4);
        let inner =
            std::thread::scope(|scope| scope.spawn(|| drop(span(Work::Compute, "inner"))).join());
        assert!(inner.is_ok());
        drop(outer);
        let one = Span {
            work: Work::Kernel,
            name: "k".into(),
            lane: "GPU 0".into(),
            start_s: -1.0,
            end_s: 0.0,
            bytes: 0,
        };
        add_source(Box::new(move || vec![one.clone()]));
        let spans = take();
        let names: Vec<_> = spans.iter().map(|span| span.name.as_ref()).collect();
        assert_eq!(names, ["k", "outer", "inner"]);
        assert_eq!(spans[1].bytes, 7);
        assert!(spans[1].lane != spans[2].lane && spans[1].end_s >= spans[2].end_s);
        drop(span(Work::Read, "too late"));
        assert!(take().is_empty());
    }

    #[test]
    fn overlapping_spans_count_once() {
        let span = |work, start_s, end_s| Span {
            work,
            name: "".into(),
            lane: String::new(),
            start_s,
            end_s,
            bytes: 0,
        };
        let spans = [
            span(Work::Read, 0.0, 2.0),
            span(Work::Read, 1.0, 1.5),
            span(Work::Read, 1.0, 3.0),
            span(Work::Write, 0.0, 9.0),
            span(Work::Read, 5.0, 6.0),
        ];
        assert_eq!(busy_s(&spans, &[Work::Read]), 4.0);
        assert_eq!(busy_s(&spans, &[Work::Read, Work::Write]), 9.0);
        assert_eq!(busy_s(&spans, &[Work::Draw]), 0.0);
    }
}
