//! Time stamps of a run: what each thread and each GPU stream worked on, and when; and, for runs without end, the time that each
//! stage took since the run last waited for input.
//!
//! Invariant: nothing is recorded before [`begin`], nothing summed before [`sum`] and nobody called before [`observe`]; until then a
//! span costs one atomic load.

use std::borrow::Cow;
use std::cell::Cell;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
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
    /// Exchange with other processes of the run, and waiting for them.
    Exchange,
}

impl Work {
    /// Every kind.
    pub const ALL: [Self; 9] = [
        Self::Read,
        Self::Write,
        Self::ToDevice,
        Self::FromDevice,
        Self::Kernel,
        Self::Compute,
        Self::Compile,
        Self::Draw,
        Self::Exchange,
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
            Self::Exchange => "exchange",
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

/// Span that has ended, for an observer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ended {
    /// Kind of work.
    pub work: Work,
    /// Name of the work, such as a kernel's.
    pub name: &'static str,
    /// Seconds that it took, those of the spans within it included.
    pub elapsed_s: f64,
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

/// Bits of [`MODE`]: spans are recorded, their times summed, or an observer called.
const RECORDING: u8 = 1;
const SUMMING: u8 = 2;
const OBSERVED: u8 = 4;

static MODE: AtomicU8 = AtomicU8::new(0);
static BEGUN: OnceLock<Instant> = OnceLock::new();
static OBSERVER: OnceLock<fn(&Ended)> = OnceLock::new();
static RECORD: Mutex<Record> = Mutex::new(Record { spans: Vec::new(), sources: Vec::new() });

/// Starts recording; the process records from the first call on.
pub fn begin() {
    BEGUN.get_or_init(Instant::now);
    MODE.fetch_or(RECORDING, Ordering::Relaxed);
}

/// Returns whether spans are recorded.
pub fn is_on() -> bool {
    MODE.load(Ordering::Relaxed) & RECORDING != 0
}

/// Calls `observer` at the end of each span of a host's thread, on that thread, from the first call on; one observer in a process.
pub fn observe(observer: fn(&Ended)) {
    BEGUN.get_or_init(Instant::now);
    OBSERVER.get_or_init(|| observer);
    MODE.fetch_or(OBSERVED, Ordering::Relaxed);
}

/// Returns the seconds since [`begin`], [`sum`] or [`observe`], 0 before them.
pub fn now_s() -> f64 {
    BEGUN.get().map_or(0.0, |begun| begun.elapsed().as_secs_f64())
}

/// Ends recording and returns all spans by ascending start.
pub fn take() -> Vec<Span> {
    MODE.fetch_and(!RECORDING, Ordering::Relaxed);
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
    let is_used = MODE.load(Ordering::Relaxed) != 0;
    let outer_s = || INNER_S.with(|inner| inner.replace(0.0));
    Guard(is_used.then(|| Open { work, name, start_s: now_s(), bytes: 0, outer_s: outer_s() }))
}

thread_local! {
    /// Seconds of the spans within the one under way that have ended.
    static INNER_S: Cell<f64> = const { Cell::new(0.0) };
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
    /// [`INNER_S`] of the span around this one.
    outer_s: f64,
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
        let Some(Open { work, name, start_s, bytes, outer_s }) = self.0.take() else { return };
        let (mode, end_s) = (MODE.load(Ordering::Relaxed), now_s());
        let inner_s = INNER_S.with(|inner| inner.replace(outer_s + end_s - start_s));
        if mode & SUMMING != 0 {
            sums().add(name, (end_s - start_s - inner_s).max(0.0));
        }
        if mode & OBSERVED != 0
            && let Some(observer) = OBSERVER.get()
        {
            observer(&Ended { work, name, elapsed_s: end_s - start_s, bytes });
        }
        if mode & RECORDING == 0 {
            return;
        }
        let (name, lane) = (Cow::Borrowed(name), lane());
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

/// Name of the spans in which a run waits for input.
const WAITING: &str = "wait for input";

/// Time of a stage, without that of the stages within it.
#[derive(Clone, Copy, Debug)]
struct Sum {
    name: &'static str,
    sum_s: f64,
    spans: u64,
    /// The sum at the last mark.
    marked_s: f64,
}

#[derive(Debug)]
struct Sums {
    stages: Vec<Sum>,
    marked_s: f64,
    /// Stage that took longest between two earlier waits, and the time of the second.
    before: Option<(Slowest, f64)>,
}

/// Seconds after which an earlier stage is forgotten.
const FORGOTTEN_S: f64 = 60.0;

static SUMS: Mutex<Sums> = Mutex::new(Sums { stages: Vec::new(), marked_s: 0.0, before: None });

/// Stage that took longest between two waits for input.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Slowest {
    /// Name of its spans.
    pub name: &'static str,
    /// Seconds in its spans, of all threads, without those of the stages within it.
    pub busy_s: f64,
    /// Seconds between the waits.
    pub of_s: f64,
}

/// Sum of a stage's time since [`sum`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stage {
    /// Name of its spans.
    pub name: &'static str,
    /// Number of its spans that have ended.
    pub spans: u64,
    /// Seconds in them, of all threads, without those of the stages within it.
    pub busy_s: f64,
}

/// Returns the sums of all stages other than the wait for input, in the order in which they first ended; none before [`sum`].
pub fn stages() -> Vec<Stage> {
    let sums = sums();
    let stages = sums.stages.iter().filter(|stage| stage.name != WAITING);
    stages
        .map(|stage| Stage { name: stage.name, spans: stage.spans, busy_s: stage.sum_s })
        .collect()
}

/// Starts summing the times of stages, one number for each name; the process sums from the first call on.
pub fn sum() {
    BEGUN.get_or_init(Instant::now);
    MODE.fetch_or(SUMMING, Ordering::Relaxed);
}

/// Waits for input by calling a function; the times of stages count from its return on.
pub fn waiting<T>(wait: impl FnOnce() -> T) -> T {
    let span = span(Work::Read, WAITING);
    let found = wait();
    drop(span);
    if MODE.load(Ordering::Relaxed) & SUMMING != 0 {
        sums().mark(now_s());
    }
    found
}

/// Returns the stage that took longest since the run last waited for input, or between two waits of the last minute if that was longer,
/// unless it was returned before; `None` before [`sum`].
pub fn slowest() -> Option<Slowest> {
    sums().take_slowest(now_s())
}

impl Sums {
    fn add(&mut self, name: &'static str, seconds: f64) {
        match self.stages.iter_mut().find(|stage| stage.name == name) {
            Some(stage) => {
                stage.sum_s += seconds;
                stage.spans += 1;
            }
            None => self.stages.push(Sum { name, sum_s: seconds, spans: 1, marked_s: 0.0 }),
        }
    }

    fn mark(&mut self, now_s: f64) {
        self.before = self.longest(now_s).map(|longest| match self.before {
            Some((before, at_s)) if before == longest => (before, at_s),
            _ => (longest, now_s),
        });
        self.stages.iter_mut().for_each(|stage| stage.marked_s = stage.sum_s);
        self.marked_s = now_s;
    }

    fn take_slowest(&mut self, now_s: f64) -> Option<Slowest> {
        let longest = self.longest(now_s);
        self.before = None;
        longest
    }

    /// Returns the stage that took longest since the last mark or between those before.
    fn longest(&self, now_s: f64) -> Option<Slowest> {
        let before = self.before.filter(|(_, at_s)| now_s - at_s < FORGOTTEN_S);
        let both = before.map(|(slowest, _)| slowest).into_iter().chain(self.slowest(now_s));
        both.max_by(|a, b| a.busy_s.total_cmp(&b.busy_s))
    }

    /// Returns the stage that took longest since the last mark.
    fn slowest(&self, now_s: f64) -> Option<Slowest> {
        let since = |stage: &Sum| Slowest {
            name: stage.name,
            busy_s: stage.sum_s - stage.marked_s,
            of_s: now_s - self.marked_s,
        };
        let stages = self.stages.iter().filter(|stage| stage.name != WAITING).map(since);
        stages.max_by(|a, b| a.busy_s.total_cmp(&b.busy_s)).filter(|most| most.busy_s > 0.0)
    }
}

fn sums() -> MutexGuard<'static, Sums> {
    SUMS.lock().unwrap_or_else(PoisonError::into_inner)
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
    fn an_observer_sees_spans_that_have_ended() {
        static SEEN: Mutex<Vec<Ended>> = Mutex::new(Vec::new());
        // Other tests of this process have spans, too.
        let own = || {
            let seen = SEEN.lock().unwrap_or_else(PoisonError::into_inner);
            seen.iter().filter(|ended| ended.name == "observed").copied().collect::<Vec<_>>()
        };
        observe(|ended| SEEN.lock().unwrap_or_else(PoisonError::into_inner).push(*ended));
        let mut span = span(Work::Write, "observed");
        span.add_bytes(5);
        assert_eq!(own(), []);
        std::thread::sleep(std::time::Duration::from_millis(2));
        drop(span);
        let [ended] = own()[..] else { panic!("{:?}", own()) };
        assert_eq!((ended.work, ended.bytes), (Work::Write, 5));
        assert!(ended.elapsed_s >= 0.002, "{ended:?}");
    }

    #[test]
    fn the_slowest_stage_is_that_since_the_last_wait() {
        let mut sums = Sums { stages: Vec::new(), marked_s: 0.0, before: None };
        assert_eq!(sums.slowest(1.0), None);
        sums.add("early", 5.0);
        sums.mark(7.0);
        assert_eq!(sums.slowest(7.5), None);
        let early = Slowest { name: "early", busy_s: 5.0, of_s: 7.0 };
        assert_eq!(sums.longest(70.0), None);
        sums.mark(7.0);
        assert_eq!(sums.take_slowest(7.5), Some(early));
        assert_eq!(sums.take_slowest(7.5), None);
        sums.add("early", 1.0);
        sums.add("late", 0.5);
        sums.add("late", 1.0);
        sums.add(WAITING, 9.0);
        assert_eq!(sums.slowest(9.5), Some(Slowest { name: "late", busy_s: 1.5, of_s: 2.5 }));
    }

    #[test]
    fn a_stage_does_not_count_the_stages_within_it() {
        sum();
        let pause = || std::thread::sleep(std::time::Duration::from_millis(20));
        let begin = Instant::now();
        let outer = span(Work::Compute, "outer stage");
        for _ in 0..2 {
            let _inner = span(Work::Compute, "inner stage");
            pause();
        }
        drop(outer);
        let most_s = begin.elapsed().as_secs_f64();
        let of = |name| {
            let sums = sums();
            let stage = sums.stages.iter().find(|stage| stage.name == name).copied();
            stage.map_or(0.0, |stage| stage.sum_s)
        };
        assert!(of("inner stage") >= 0.04);
        let spans =
            |name| stages().iter().find(|stage| stage.name == name).map(|stage| stage.spans);
        assert_eq!((spans("inner stage"), spans("outer stage")), (Some(2), Some(1)));
        assert!(of("outer stage") + of("inner stage") <= most_s);
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
