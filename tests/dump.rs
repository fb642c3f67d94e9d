//! Dumps of voltages: files hold the windows of bursts as they were read, zeros outside, whatever the division into reads.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use sidereal::Result;
use sidereal::backend::threads::Threads;
use sidereal::io::voltages::{Flag, Sweep, VoltageHeader, VoltageOptions, VoltageSource, open};
use sidereal::pipeline::dump::{Dumps, Memory, Options, Report, Request, State, tap};
use sidereal::pipeline::voltage::VoltageFormat;
use sidereal::units::{DM_CONSTANT, Epoch};
use sidereal::voltage::{VoltageBlock, VoltageEncoding, voltage};

const CHANNELS: usize = 8;
const TSAMP_S: f64 = 1e-5;

/// Time of 500 samples, which leaves the threads of the ring time on a machine that is busy.
const REAL_TIME: Duration = Duration::from_millis(5);

fn header() -> VoltageHeader {
    let centres = (0..CHANNELS).map(|channel| 1.3e9 + 1e5 * channel as f64).collect();
    let mut header = VoltageHeader::new(centres, TSAMP_S, VoltageEncoding::Complex8);
    header.polarizations = 2;
    header.start = Epoch::new(60_000, 3600.25);
    header
}

/// Byte of a sample, never 0.
fn byte(stream: usize, index: usize) -> u8 {
    ((stream * 31 + index * 7 + index / 250) % 255 + 1) as u8
}

/// Source of known bytes; a stretch of samples is lost.
struct Known {
    header: VoltageHeader,
    times: usize,
    next: usize,
    lost: Range<usize>,
    /// Time that a read takes, as of a stream.
    pause: Duration,
}

impl VoltageSource for Known {
    fn header(&self) -> &VoltageHeader {
        &self.header
    }

    fn read(&mut self, block: &mut VoltageBlock) -> Result<usize> {
        thread::sleep(self.pause);
        let times = block.capacity().min(self.times - self.next);
        let encoding = self.header.encoding;
        for (stream, row) in block.rows_mut().enumerate() {
            for (index, value) in row[..encoding.bytes(times)].iter_mut().enumerate() {
                *value = byte(stream, encoding.bytes(self.next) + index);
            }
        }
        block.flags_mut().clear();
        let start = self.lost.start.clamp(self.next, self.next + times);
        let end = self.lost.end.clamp(self.next, self.next + times);
        if start < end {
            let (start, times) = ((start - self.next) as u64, (end - start) as u64);
            block.flags_mut().push(Flag { streams: 0..2 * CHANNELS, start, times });
        }
        self.next += times;
        block.set_times(times)?;
        Ok(times)
    }

    fn skip(&mut self, times: u64) -> Result<u64> {
        let passed = times.min((self.times - self.next) as u64);
        self.next += passed as usize;
        Ok(passed)
    }

    fn is_live(&self) -> bool {
        true
    }
}

/// Folder of dumps and what was reported of them.
struct Setting {
    folder: tempfile::TempDir,
    reports: Arc<Mutex<Vec<Report>>>,
}

impl Setting {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        Self { folder, reports: Arc::default() }
    }

    fn options(&self, ring_s: f64, format: VoltageFormat) -> Options {
        let (folder, count) = (self.folder.path().to_owned(), AtomicU64::new(0));
        let reports = Arc::clone(&self.reports);
        Options {
            ring_s,
            format,
            quota: None,
            name: Arc::new(move |_| {
                folder.join(format!("dump{}", count.fetch_add(1, Ordering::Relaxed)))
            }),
            space: Arc::new(|| None),
            listener: Arc::new(move |report| reports.lock().unwrap().push(report.clone())),
            memory: Memory::default(),
            ready: Arc::new(|_| {}),
        }
    }

    fn ended(&self) -> Vec<Report> {
        let reports = self.reports.lock().unwrap();
        let is_ended = |report: &&Report| matches!(report.state, State::Done | State::Failed);
        reports.iter().filter(is_ended).cloned().collect()
    }

    /// Returns how the only dump of a request ended.
    fn named(&self, name: &str) -> Report {
        let named = |report: &Report| report.names == [name];
        self.ended().into_iter().find(named).expect("the dump has ended")
    }

    /// Returns options whose listener waits in the reports chosen while the flag is set.
    fn stalling(&self, waits: fn(&Report) -> bool) -> (Arc<AtomicBool>, Options) {
        let (stalls, reports) = (Arc::new(AtomicBool::new(true)), Arc::clone(&self.reports));
        let stalled = Arc::clone(&stalls);
        let listener = Arc::new(move |report: &Report| {
            reports.lock().unwrap().push(report.clone());
            while waits(report) && stalled.load(Ordering::Relaxed) {
                thread::sleep(Duration::from_millis(1));
            }
        });
        (stalls, Options { listener, ..self.options(1.0, VoltageFormat::Dada) })
    }

    fn of(&self, state: State) -> Vec<Report> {
        let reports = self.reports.lock().unwrap();
        reports.iter().filter(|report| report.state == state).cloned().collect()
    }
}

/// Puts a ring behind a source.
fn keep(
    source: Box<Known>,
    options: &Options,
    threads: usize,
) -> Result<(Box<dyn VoltageSource>, Dumps)> {
    let (source, tap) = tap(source);
    Ok((source, tap.begin(options, Threads::new(threads))?))
}

fn sweep(first_s: f64, last_s: f64, dm: f64) -> Sweep {
    Sweep { dms: [dm, dm + 1.0], times_s: [first_s, last_s], dm_constant: DM_CONSTANT }
}

fn request(name: &str, sweep: Sweep) -> Request {
    Request { name: name.to_owned(), sweep, priority: 1 }
}

/// Checks a file against the recording: whole windows, zeros outside.
fn check(path: &Path, sweep: &Sweep, first: u64, samples: u64) {
    let mut source = open(&[path.to_path_buf()], &VoltageOptions::default()).expect("it opens");
    let found = source.header().clone();
    assert_eq!((found.streams(), found.encoding), (2 * CHANNELS, VoltageEncoding::Complex8));
    let start = header().start.plus_s(first as f64 * TSAMP_S);
    assert!(found.start.seconds_since(&start).abs() < 1e-9, "{:?} {start:?}", found.start);
    let own = found.sweep.expect("the header states the window");
    let times = found.times.expect("a file has a length");
    assert_eq!(times, samples);
    let windows = own.windows(&found, times).expect("frequencies are known");
    let whole = sweep.windows(&header(), u64::MAX).expect("frequencies are known");
    let mut block = found.block(times as usize);
    assert_eq!(source.read(&mut block).expect("it is read"), times as usize);
    for stream in 0..2 * CHANNELS {
        let (row, window) = (block.voltages().row(stream), &windows[stream / 2]);
        // The file's window is the sweep's, but for the rounding of its start.
        let expected = &whole[stream / 2];
        assert!((window.start + first).abs_diff(expected.start.max(first)) <= 1);
        assert!((window.end + first).abs_diff(expected.end.min(first + times)) <= 1);
        for time in 0..times {
            let at = 2 * time as usize..2 * time as usize + 2;
            let sample = (first + time) as usize;
            let recorded = [byte(stream, 2 * sample), byte(stream, 2 * sample + 1)];
            if window.contains(&time) {
                assert_eq!(row[at], recorded, "stream {stream}, sample {time}");
            } else if time + 8 < window.start || time > window.end + 8 {
                assert_eq!(row[at], [0, 0], "stream {stream}, sample {time}");
            }
        }
    }
}

/// Reads a source to its end in blocks of these lengths, in turn, and asks for dumps when a sample is reached.
fn read_all(
    source: &mut dyn VoltageSource,
    dumps: &Dumps,
    lengths: &[usize],
    mut asked: Vec<(u64, Request)>,
) {
    let mut position = 0;
    for length in lengths.iter().cycle() {
        let mut block = source.header().block(*length);
        let times = source.read(&mut block).expect("it is read");
        position += times as u64;
        asked.retain(|(at, request)| {
            let is_due = *at <= position || times == 0;
            if is_due {
                dumps.request(request.clone()).expect("few requests wait");
            }
            !is_due
        });
        if times == 0 {
            return;
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn a_dump_holds_the_windows_of_its_burst(
        lengths in prop::collection::vec(1_usize..3000, 1..6),
        start in 0.0..0.25_f64,
        length in 0.001..0.05_f64,
        dm in 0.0..4000.0_f64,
        at in 0_u64..30_000,
        threads in 1_usize..3,
        is_guppi in any::<bool>(),
    ) {
        let setting = Setting::new();
        let format = if is_guppi { VoltageFormat::Guppi } else { VoltageFormat::Dada };
        // The ring holds all samples, so that the dump does not depend on when it is asked for.
        let options = setting.options(1.0, format);
        let known = Known { header: header(), times: 30_000, next: 0, lost: 0..0, pause: Duration::ZERO };
        let (mut source, dumps) = keep(Box::new(known), &options, threads).unwrap();
        let sweep = sweep(start, start + length, dm);
        read_all(source.as_mut(), &dumps, &lengths, vec![(at, request("one", sweep))]);
        drop(source);
        dumps.finish();
        let ended = setting.ended();
        prop_assert_eq!(ended.len(), 1, "{:?}", setting.reports.lock().unwrap());
        let report = &ended[0];
        let windows = sweep.windows(&header(), u64::MAX).unwrap();
        let end = windows.iter().map(|window| window.end).max().unwrap();
        prop_assert_eq!(report.state, State::Done);
        prop_assert_eq!(report.reason.is_none(), end <= 30_000, "{:?} {}", report, end);
        prop_assert!(report.lost.is_empty());
        let path = report.path.clone().expect("it has a file");
        check(&path, &sweep, report.first, report.samples);
    }
}

fn known(times: usize, pause: Duration) -> Box<Known> {
    Box::new(Known { header: header(), times, next: 0, lost: 0..0, pause })
}

#[test]
fn lost_samples_are_listed() {
    let setting = Setting::new();
    let options = setting.options(1.0, VoltageFormat::Dada);
    let source = Known { lost: 7000..7500, ..*known(30_000, Duration::ZERO) };
    let (mut source, dumps) = keep(Box::new(source), &options, 1).unwrap();
    let asked = vec![(20_000, request("lossy", sweep(0.06, 0.08, 0.0)))];
    read_all(source.as_mut(), &dumps, &[1000], asked);
    drop(source);
    dumps.finish();
    let ended = setting.ended();
    let [report] = ended.as_slice() else { panic!("{ended:?}") };
    let lost = Flag { streams: 0..2 * CHANNELS, start: 7000 - report.first, times: 500 };
    assert_eq!(report.lost, [lost]);
}

#[test]
fn samples_of_10_bits_are_kept_and_written_as_16() {
    let setting = Setting::new();
    let header = VoltageHeader { encoding: VoltageEncoding::Real10, ..header() };
    let source = Known { header, times: 4000, next: 0, lost: 0..0, pause: Duration::ZERO };
    let options = setting.options(1.0, VoltageFormat::Dada);
    let (mut source, dumps) = keep(Box::new(source), &options, 2).unwrap();
    let sweep = sweep(0.005, 0.012, 0.0);
    read_all(&mut *source, &dumps, &[500, 4, 44], vec![(2000, request("a", sweep))]);
    dumps.finish();
    let ended = setting.ended();
    let path = ended[0].path.as_ref().expect("a file");
    let mut file = open(std::slice::from_ref(path), &VoltageOptions::default()).unwrap();
    assert_eq!(file.header().encoding, VoltageEncoding::Real16);
    let times = file.header().times.unwrap() as usize;
    assert!(times >= 700, "{times}");
    let mut block = file.header().block(times);
    assert_eq!(file.read(&mut block).unwrap(), times);
    let windows = file.header().sweep.unwrap();
    let windows = windows.windows(file.header(), times as u64).unwrap();
    let first = ended[0].first as usize;
    for stream in 0..2 * CHANNELS {
        let bytes: Vec<u8> = (0..5000).map(|index| byte(stream, index)).collect();
        for time in windows[stream / 2].clone().map(|time| time as usize) {
            let sent = voltage(&bytes, VoltageEncoding::Real10, first + time);
            assert_eq!(block.voltages().value(stream, time), sent, "{stream} {time}");
        }
    }
}

#[test]
fn overlapping_requests_are_one_dump_and_others_wait_in_turn() {
    let setting = Setting::new();
    let options = setting.options(1.0, VoltageFormat::Dada);
    let (mut source, dumps) = keep(known(30_000, REAL_TIME), &options, 1).unwrap();
    let asked = vec![
        (1000, request("first", sweep(0.10, 0.12, 100.0))),
        (1000, request("same", sweep(0.11, 0.13, 100.0))),
        (1000, request("apart", sweep(0.20, 0.21, 100.0))),
        (25_000, request("late", sweep(0.105, 0.115, 100.0))),
    ];
    read_all(source.as_mut(), &dumps, &[500], asked);
    drop(source);
    dumps.finish();
    assert_eq!(setting.of(State::Joined).len(), 1);
    let mut ended = setting.ended();
    ended.sort_by_key(|report| report.number);
    let names: Vec<_> = ended.iter().map(|report| report.names.clone()).collect();
    assert_eq!(names, [vec!["first", "same"], vec!["apart"], vec!["late"]]);
    for report in &ended {
        assert_eq!(report.reason, None);
        let path = report.path.clone().expect("it has a file");
        check(&path, &report.sweep, report.first, report.samples);
    }
}

#[test]
fn absurd_requests_are_refused() {
    let setting = Setting::new();
    let options = setting.options(0.05, VoltageFormat::Dada);
    let (mut source, dumps) = keep(known(100_000, REAL_TIME), &options, 1).unwrap();
    let asked = vec![
        (90_000, request("before", sweep(-5.0, -4.0, 10.0))),
        (90_000, request("past", sweep(0.1, 0.11, 10.0))),
        (90_000, request("future", sweep(1e4, 1e4 + 0.01, 10.0))),
        (90_000, request("long", sweep(0.5, 5.0, 10.0))),
        (90_000, request("dispersed", sweep(0.88, 0.89, 1e9))),
        (90_000, request("nothing", sweep(f64::NAN, f64::NAN, 10.0))),
        (90_000, request("infinite", sweep(0.5, f64::INFINITY, 10.0))),
        (90_000, request("good", sweep(0.89, 0.90, 10.0))),
    ];
    read_all(source.as_mut(), &dumps, &[500], asked);
    drop(source);
    dumps.finish();
    let refused = setting.of(State::Refused);
    let reasons: Vec<_> = refused.iter().map(|report| report.reason.clone().unwrap()).collect();
    let names: Vec<_> = refused.iter().map(|report| report.names[0].as_str()).collect();
    let expected = ["before", "past", "future", "long", "dispersed", "nothing", "infinite"];
    assert_eq!(names, expected, "{reasons:?}");
    assert!(reasons[1].contains("after the ring had passed"), "{reasons:?}");
    assert!(reasons[2].contains("after the latest sample"), "{reasons:?}");
    assert!(reasons[3].contains("the ring 0.05"), "{reasons:?}");
    let ended = setting.ended();
    let [good] = ended.as_slice() else { panic!("{ended:?}") };
    check(&good.path.clone().unwrap(), &good.sweep, good.first, good.samples);
}

#[test]
fn the_quota_limits_dumps_and_a_stop_leaves_whole_files() {
    let setting = Setting::new();
    let bytes = 2 * 2 * CHANNELS as u64;
    let options = Options {
        quota: Some(Arc::new(AtomicU64::new(6000 * bytes))),
        ..setting.options(1.0, VoltageFormat::Dada)
    };
    let (mut source, dumps) = keep(known(30_000, Duration::from_millis(1)), &options, 1).unwrap();
    let asked = vec![
        (1000, request("fits", sweep(0.10, 0.14, 0.0))),
        (1000, request("does not", sweep(0.20, 0.24, 0.0))),
    ];
    let mut reading = Instant::now();
    read_all(source.as_mut(), &dumps, &[500], asked);
    reading = Instant::now().max(reading);
    assert_eq!(setting.of(State::Refused).len(), 1);
    let request = request("open", sweep(0.25, 0.29, 0.0));
    // The stream ends before the window does, and the program is asked to stop.
    let wider = Request { sweep: Sweep { times_s: [0.299, 0.31], ..request.sweep }, ..request };
    dumps.request(wider).expect("few requests wait");
    drop(source);
    dumps.stop();
    dumps.finish();
    assert!(reading.elapsed() < Duration::from_secs(2));
    for report in setting.ended().iter().filter(|report| report.path.is_some()) {
        check(&report.path.clone().unwrap(), &report.sweep, report.first, report.samples);
    }
    let hidden =
        |path: PathBuf| path.file_name().is_some_and(|n| n.to_string_lossy().starts_with('.'));
    let left = std::fs::read_dir(setting.folder.path()).unwrap();
    assert!(left.map(|entry| entry.unwrap().path()).all(|path| !hidden(path)));
}

#[test]
fn a_recording_without_frequencies_has_no_dumps() {
    let setting = Setting::new();
    let options = setting.options(1.0, VoltageFormat::Dada);
    let mut source = known(100, Duration::ZERO);
    source.header.centres_hz = vec![0.0];
    let error = keep(source, &options, 1).map(|_| ()).unwrap_err();
    assert!(error.to_string().contains("states no frequencies"), "{error}");
}

#[test]
fn a_full_disk_costs_the_dumps_of_lower_priority() {
    let setting = Setting::new();
    let folder = setting.folder.path().to_owned();
    // Space for a dump of 0.1 s and most of another one, of 32 bytes a sample.
    let most = 18_000 * 2 * 2 * CHANNELS as u64;
    let options = Options {
        space: Arc::new(move || {
            let entries = std::fs::read_dir(&folder).ok()?;
            let sizes = entries.flatten().filter_map(|entry| entry.metadata().ok());
            Some(most.saturating_sub(sizes.map(|found| found.len()).sum()))
        }),
        ..setting.options(1.0, VoltageFormat::Dada)
    };
    let (mut source, dumps) = keep(known(100_000, Duration::from_millis(1)), &options, 1).unwrap();
    let of = |name: &str, first_s: f64, priority| {
        let sweep = Sweep { dms: [0.0; 2], ..sweep(first_s, first_s + 0.1, 0.0) };
        (50_000, Request { priority, ..request(name, sweep) })
    };
    let asked = vec![of("important", 0.3, 5), of("other", 0.1, 1)];
    read_all(source.as_mut(), &dumps, &[500], asked);
    assert_eq!(dumps.missed(), 0);
    drop(source);
    dumps.finish();
    let ended = setting.ended();
    let named = |name| setting.named(name);
    let (important, other) = (named("important"), named("other"));
    assert_eq!((important.state, &important.reason), (State::Done, &None));
    check(&important.path.unwrap(), &important.sweep, important.first, important.samples);
    assert!(other.reason.unwrap().contains("no more space"), "{ended:?}");
    // Its samples are whole chunks of 5000.
    assert!(other.samples > 0 && other.samples < 10_000, "{ended:?}");
    check(&other.path.unwrap(), &other.sweep, other.first, other.samples);
}

#[test]
fn a_disk_that_stalls_costs_the_dumps_of_lower_priority_and_no_sample_of_the_stream() {
    let setting = Setting::new();
    // The thread of the disk waits in the report of a file's first samples.
    let (stalls, options) = setting.stalling(|report| report.state == State::Running);
    let (mut source, dumps) = keep(known(250_000, REAL_TIME), &options, 1).unwrap();
    let of = |name: &str, at, first_s: f64, priority| {
        (at, Request { priority, ..request(name, sweep(first_s, first_s + 0.2, 0.0)) })
    };
    let asked = vec![
        of("important", 90_000, 0.1, 5),
        of("first", 95_000, 0.35, 1),
        of("second", 95_000, 0.6, 1),
    ];
    read_all(source.as_mut(), &dumps, &[500], asked);
    assert_eq!(dumps.missed(), 0);
    stalls.store(false, Ordering::Relaxed);
    drop(source);
    dumps.finish();
    let ended = setting.ended();
    let named = |name| setting.named(name);
    let important = named("important");
    assert_eq!((important.state, &important.reason), (State::Done, &None), "{ended:?}");
    check(&important.path.unwrap(), &important.sweep, important.first, important.samples);
    // Of equal priorities the later one is given up first.
    let second = named("second");
    assert!(second.reason.unwrap().contains("the disk was too slow"), "{ended:?}");
    assert!(second.path.is_none() && named("first").number < second.number);
}

#[test]
fn requests_that_cannot_be_taken_say_why() {
    let setting = Setting::new();
    // The thread of the ring waits in its first report.
    let (stalls, options) = setting.stalling(|_| true);
    let (source, dumps) = keep(known(1000, Duration::ZERO), &options, 1).unwrap();
    let ask = || dumps.request(request("one", sweep(0.1, 0.2, 0.0)));
    let refused = (0..1000).find_map(|_| ask().err()).expect("the queue has an end");
    assert_eq!(refused.state, State::Refused);
    assert_eq!(refused.reason.as_deref(), Some("256 requests wait"));
    stalls.store(false, Ordering::Relaxed);
    dumps.end();
    while !dumps.are_over() {
        thread::sleep(Duration::from_millis(1));
    }
    let late = ask().expect_err("nobody takes it");
    assert_eq!(late.reason.as_deref(), Some("the ring of its observation has ended"));
    drop(source);
}

#[test]
fn memory_is_made_before_the_stream_and_goes_from_one_ring_to_the_next() {
    let setting = Setting::new();
    let sizes = Arc::new(Mutex::new(Vec::new()));
    let made = Arc::clone(&sizes);
    let options = Options {
        ready: Arc::new(move |size| made.lock().unwrap().push(*size)),
        ..setting.options(0.4, VoltageFormat::Dada)
    };
    assert!(!options.memory.has(&header(), 0.4));
    let prepared = options.memory.prepare(&header(), 0.4, &Threads::new(2)).unwrap();
    assert!(options.memory.has(&header(), 0.4) && prepared.made_s > 0.0);
    for number in 0..3 {
        let (mut source, dumps) =
            keep(known(60_000, Duration::from_millis(1)), &options, 1).unwrap();
        let asked = vec![(40_000, request("one", sweep(0.2, 0.3, 10.0)))];
        read_all(source.as_mut(), &dumps, &[500], asked);
        // Either may end first.
        if number == 1 {
            drop(source);
            dumps.finish();
        } else {
            dumps.finish();
            drop(source);
        }
        assert!(options.memory.has(&header(), 0.4), "after ring {number}");
    }
    let sizes = sizes.lock().unwrap();
    assert_eq!(sizes.len(), 3);
    for size in sizes.iter() {
        assert_eq!(
            (size.made_s, size.bytes, size.seconds),
            (0.0, prepared.bytes, prepared.seconds)
        );
        assert_eq!(size.is_locked, prepared.is_locked);
    }
    for report in setting.ended() {
        check(&report.path.clone().unwrap(), &report.sweep, report.first, report.samples);
    }
    assert!(!options.memory.has(&header(), 0.5), "a ring of another size");
    assert!(!options.memory.has(&header(), 0.4), "its memory is gone");
}

#[cfg(unix)]
#[test]
fn what_a_guppi_dump_does_not_hold_takes_no_space() {
    use std::os::unix::fs::MetadataExt;
    let setting = Setting::new();
    let options = setting.options(1.0, VoltageFormat::Guppi);
    let (mut source, dumps) = keep(known(30_000, Duration::ZERO), &options, 1).unwrap();
    let asked = vec![(20_000, request("one", sweep(0.06, 0.08, 1000.0)))];
    read_all(source.as_mut(), &dumps, &[1000], asked);
    drop(source);
    dumps.finish();
    let ended = setting.ended();
    let [report] = ended.as_slice() else { panic!("{ended:?}") };
    let path = report.path.clone().unwrap();
    check(&path, &report.sweep, report.first, report.samples);
    let plain = setting.folder.path().join("plain");
    std::fs::File::create(&plain).unwrap().set_len(1 << 20).unwrap();
    let (taken, length) = path.metadata().map(|found| (found.blocks() * 512, found.len())).unwrap();
    if plain.metadata().unwrap().blocks() == 0 {
        assert!(taken < length / 8, "{taken} of {length} bytes");
    }
}
