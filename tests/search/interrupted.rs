//! Searches and dedispersions that end before their recording, and their continuations.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use sidereal::backend::Backend;
use sidereal::dedisperse::dm_plan::{DmPlan, DmRange};
use sidereal::io::{FilterbankHeader, FilterbankSource};
use sidereal::pipeline::Ending;
use sidereal::pipeline::burst::{
    Checkpoint, Observer, Report, SearchOptions, Source, Status, search, search_from,
};
use sidereal::pipeline::series::{
    self, Block, SeriesRange, SeriesReport, SeriesSink, dedisperse, dedisperse_from,
};
use sidereal::sample::Encoding;
use sidereal::simulate::burst::{Burst, Options, Simulator};
use sidereal::single_pulse::Candidate;
use sidereal::units::Band;
use sidereal::{Error, Result};

const TIMES: u64 = 24_000;

/// A recording of unknown length that ends, or fails, at a row.
struct Recording {
    rows: Simulator,
    header: FilterbankHeader,
    left: u64,
    /// True if a read beyond the last row is a fault.
    fails: bool,
    /// True if that fault loses the rows before it in the same read, as one of a pipe does.
    loses: bool,
    cut: Option<&'static str>,
}

impl Recording {
    fn new(encoding: Encoding, times: u64) -> Self {
        let mut options = Options::new(Band::uniform(1400.0, -6.0, 48).unwrap(), 1e-3, TIMES);
        options.encoding = encoding;
        let burst = |dm: f64, time_s: f64| Burst::new(dm, time_s, 4e-3, 14.0);
        options.bursts = vec![burst(80.0, 1.02), burst(40.0, 4.5), burst(70.0, 13.1)];
        let rows = Simulator::new(options).unwrap();
        let header = FilterbankHeader { times: None, ..rows.header().clone() };
        Self { rows, header, left: times, fails: false, loses: false, cut: None }
    }
}

impl FilterbankSource for Recording {
    fn header(&self) -> &FilterbankHeader {
        &self.header
    }

    fn read(&mut self, rows: &mut [u8]) -> Result<usize> {
        let row_bytes = self.header.row_bytes();
        let asked = (rows.len() / row_bytes).min(self.left as usize);
        let is_short = asked * row_bytes < rows.len();
        if self.fails && (asked == 0 || (self.loses && is_short)) {
            return Err(Error::io("a.fil", std::io::ErrorKind::TimedOut.into()));
        }
        let read = self.rows.read(&mut rows[..asked * row_bytes])?;
        self.left -= read as u64;
        Ok(read)
    }

    fn skip(&mut self, times: u64) -> Result<u64> {
        let passed = self.rows.skip(times.min(self.left))?;
        self.left -= passed;
        Ok(passed)
    }

    fn cut(&self) -> Option<&str> {
        self.cut
    }
}

/// Stops at a row, and stores the rows that it receives.
struct Keeper {
    stop: u64,
    found: Vec<Candidate>,
    checkpoints: Vec<Vec<u8>>,
}

impl Keeper {
    fn new(stop: u64) -> Self {
        Self { stop, found: Vec::new(), checkpoints: Vec::new() }
    }

    /// One of its checkpoints, and the files that another process needs with it.
    fn resumed(&self, which: usize, stop: u64) -> (Checkpoint, Self) {
        let checkpoint = Checkpoint::from_bytes(&self.checkpoints[which]).unwrap();
        let found = self.found[..checkpoint.candidates as usize].to_vec();
        (checkpoint, Self { found, ..Self::new(stop) })
    }
}

impl Observer for Keeper {
    fn observe(&mut self, status: &Status) -> bool {
        status.times < self.stop
    }

    fn found(&mut self, candidates: &[Candidate]) -> Result<()> {
        self.found.extend_from_slice(candidates);
        Ok(())
    }

    fn taken(&mut self) -> Result<Vec<Candidate>> {
        Ok(self.found.clone())
    }

    fn wants_checkpoint(&mut self, _: bool) -> bool {
        true
    }

    fn checkpoint(&mut self, checkpoint: &Checkpoint) -> Result<()> {
        self.checkpoints.push(checkpoint.to_bytes());
        Ok(())
    }
}

/// Two binning factors, noise above the threshold, and gulps of odd sizes.
fn options() -> SearchOptions {
    let second = DmRange { downsample: 3, ..DmRange::new(60.0, 100.0, 4.0) };
    let plan = DmPlan::from_ranges(vec![DmRange::new(0.0, 60.0, 2.0), second]).unwrap();
    let options = SearchOptions::new(plan);
    SearchOptions { snr: 4.0, max_width_s: 0.03, baseline_s: 0.5, gulp: 1777, ..options }
}

fn cases() -> Vec<(Encoding, SearchOptions)> {
    vec![
        (Encoding::U8, options()),
        (Encoding::F32, SearchOptions { auto_mask: false, ..options() }),
        (Encoding::U2, SearchOptions { zero_dm: true, ..options() }),
        (Encoding::U8, SearchOptions { time_range: Some((1.5, 21.0)), ..options() }),
    ]
}

fn whole(encoding: Encoding, options: &SearchOptions) -> Report {
    search(
        Source::Rows(&mut Recording::new(encoding, TIMES)),
        options,
        &Backend::best(2),
        &mut |_| true,
    )
    .unwrap()
}

fn same(a: &Report, b: &Report) {
    assert_eq!((&a.candidates, &a.dms, a.times), (&b.candidates, &b.dms, b.times));
    assert_eq!((a.skipped_dms, &a.masked_channels), (b.skipped_dms, &b.masked_channels));
}

#[test]
fn what_was_searched_before_a_fault_a_stop_or_a_cut_is_reported() {
    let (options, times) = (options(), 9 * 1777);
    let shorter = |change: &dyn Fn(&mut Recording), stop| {
        let mut recording = Recording::new(Encoding::U8, times);
        change(&mut recording);
        search(Source::Rows(&mut recording), &options, &Backend::best(2), &mut |status| {
            status.times < stop
        })
        .unwrap()
    };
    let whole = shorter(&|_| {}, u64::MAX);
    assert!(whole.ending.is_complete() && whole.candidates.len() > 10);
    let failed = shorter(&|recording| recording.fails = true, u64::MAX);
    assert!(matches!(&failed.ending, Ending::Failed(error) if error.to_string().contains("a.fil")));
    let cut = shorter(&|recording| recording.cut = Some("half a row"), u64::MAX);
    assert_eq!(cut.ending.reason().unwrap(), "half a row");
    let stopped = shorter(&|recording| recording.left = TIMES, times);
    assert!(matches!(stopped.ending, Ending::Stopped));
    for report in [failed, cut, stopped] {
        same(&report, &whole);
    }
    let mut nothing = Recording::new(Encoding::U8, 0);
    nothing.fails = true;
    assert!(
        search(Source::Rows(&mut nothing), &options, &Backend::best(2), &mut |_| true).is_err()
    );
}

/// Rows read together for the automatic mask.
const PIECE: u64 = 256;

#[test]
fn rows_before_a_fault_or_a_stop_within_those_of_the_mask_are_searched_with_a_mask_of_their_own() {
    let (options, times) = (options(), 50 * PIECE);
    let whole = search(
        Source::Rows(&mut Recording::new(Encoding::U8, times)),
        &options,
        &Backend::best(2),
        &mut |_| true,
    )
    .unwrap();
    assert!(whole.candidates.len() > 10);
    for loses in [false, true] {
        let mut recording = Recording::new(Encoding::U8, times + u64::from(loses));
        (recording.fails, recording.loses) = (true, loses);
        let mut keeper = Keeper::new(u64::MAX);
        let report = search_from(
            Source::Rows(&mut recording),
            &options,
            &Backend::best(2),
            None,
            &mut keeper,
        )
        .unwrap();
        assert!(matches!(report.ending, Ending::Failed(_)));
        same(&report, &whole);
        assert!(keeper.checkpoints.is_empty(), "a whole run has another mask");
    }
    // A stop between two reads, and none before.
    let mut asked = 0;
    let mut observe = |status: &Status| {
        asked += u64::from(status.times == 0);
        asked < 50
    };
    let mut recording = Recording::new(Encoding::U8, TIMES);
    let report =
        search(Source::Rows(&mut recording), &options, &Backend::best(2), &mut observe).unwrap();
    assert!(matches!(report.ending, Ending::Stopped));
    same(&report, &whole);

    // A resumed search has the whole mask, or ends like the original.
    let mut first = Keeper::new(9000);
    let mut recording = Recording::new(Encoding::U8, TIMES);
    search_from(Source::Rows(&mut recording), &options, &Backend::best(2), None, &mut first)
        .unwrap();
    let (checkpoint, mut second) = first.resumed(first.checkpoints.len() - 1, 0);
    let mut recording = Recording::new(Encoding::U8, TIMES);
    let ended = search_from(
        Source::Rows(&mut recording),
        &options,
        &Backend::best(2),
        Some(&checkpoint),
        &mut second,
    );
    assert!(ended.is_err_and(|error| error.is_stop()));
}

#[test]
fn series_before_a_fault_within_the_rows_of_the_mask_are_kept() {
    let options = SearchOptions { auto_mask: true, ..options() };
    let mut shorter = Memory { stop: u64::MAX, ..Memory::default() };
    let mut recording = Recording::new(Encoding::U8, 40 * PIECE);
    let expected = dedisperse(&mut recording, &options, &Backend::best(2), &mut shorter).unwrap();
    let mut recording = Recording::new(Encoding::U8, 40 * PIECE + 7);
    (recording.fails, recording.loses) = (true, true);
    let mut sink = Memory { stop: u64::MAX, ..Memory::default() };
    let report = dedisperse(&mut recording, &options, &Backend::best(2), &mut sink).unwrap();
    assert!(matches!(report.ending, Ending::Failed(_)));
    assert!(sink.checkpoint.is_none());
    assert_eq!((report.times, sink.series), (expected.times, shorter.series));
}

#[test]
fn a_search_that_goes_on_finds_what_an_uninterrupted_one_finds() {
    for (encoding, options) in cases() {
        let whole = whole(encoding, &options);
        for stop in [1, 4000, 11_000, 17_000] {
            let run = |gulp, resumed: Option<&Checkpoint>, keeper: &mut Keeper| {
                let options = SearchOptions { gulp, ..options.clone() };
                let mut recording = Recording::new(encoding, TIMES);
                search_from(
                    Source::Rows(&mut recording),
                    &options,
                    &Backend::best(2),
                    resumed,
                    keeper,
                )
                .unwrap()
            };
            let mut first = Keeper::new(stop);
            assert!(matches!(run(1777, None, &mut first).ending, Ending::Stopped));
            // As after a kill: an older checkpoint, and candidates that it does not count.
            let which = first.checkpoints.len().saturating_sub(3);
            let (checkpoint, mut second) = first.resumed(which, stop + 2500);
            run(911, Some(&checkpoint), &mut second);
            let (checkpoint, mut third) = second.resumed(second.checkpoints.len() - 1, u64::MAX);
            let report = run(4000, Some(&checkpoint), &mut third);
            assert!(report.ending.is_complete());
            same(&report, &whole);
        }
    }
}

/// Pipe whose second gulp comes only after the first one's rows were reported.
struct Waiting {
    recording: Recording,
    reported: Arc<AtomicU64>,
    reads: usize,
}

impl FilterbankSource for Waiting {
    fn header(&self) -> &FilterbankHeader {
        self.recording.header()
    }

    fn read(&mut self, rows: &mut [u8]) -> Result<usize> {
        self.reads += 1;
        // The first read is that of a slow pipe.
        let steps = if self.reads == 1 { 3 } else { 200 };
        for _ in 0..steps {
            if self.reads > 2 || (self.reads == 2 && self.reported.load(Ordering::SeqCst) > 0) {
                break;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        if self.reads == 2 && self.reported.load(Ordering::SeqCst) == 0 {
            return Err(Error::io("a.fil", std::io::ErrorKind::TimedOut.into()));
        }
        self.recording.read(rows)
    }

    fn skip(&mut self, times: u64) -> Result<u64> {
        self.recording.skip(times)
    }
}

#[test]
fn results_do_not_wait_for_the_next_rows_of_a_slow_pipe() {
    let reported = Arc::new(AtomicU64::new(0));
    let recording = Recording::new(Encoding::U8, 5 * 1777);
    let mut pipe = Waiting { recording, reported: Arc::clone(&reported), reads: 0 };
    let options = SearchOptions { auto_mask: false, min_band: 1.0, ..options() };
    let mut observe = |status: &Status| {
        reported.store(status.times, Ordering::SeqCst);
        true
    };
    let report =
        search(Source::Rows(&mut pipe), &options, &Backend::best(2), &mut observe).unwrap();
    assert_eq!((report.ending.is_complete(), report.times), (true, 5 * 1777));
}

#[test]
fn candidates_become_final_on_the_way() {
    let (encoding, options) = cases().swap_remove(0);
    let whole = whole(encoding, &options);
    let mut keeper = Keeper::new(u64::MAX);
    let mut recording = Recording::new(encoding, TIMES);
    search_from(Source::Rows(&mut recording), &options, &Backend::best(2), None, &mut keeper)
        .unwrap();
    assert!(keeper.found.len() > whole.candidates.len() / 2, "{}", keeper.found.len());
    assert!(keeper.found.iter().all(|candidate| whole.candidates.contains(candidate)));
    // The state does not grow.
    let sizes: Vec<usize> = keeper.checkpoints.iter().map(Vec::len).collect();
    assert!(sizes[sizes.len() - 1] < 3 * sizes[3], "{sizes:?}");
}

#[test]
fn a_checkpoint_of_other_trials_is_refused() {
    let mut keeper = Keeper::new(4000);
    let mut recording = Recording::new(Encoding::U8, TIMES);
    search_from(Source::Rows(&mut recording), &options(), &Backend::best(2), None, &mut keeper)
        .unwrap();
    let (checkpoint, mut keeper) = keeper.resumed(keeper.checkpoints.len() - 1, u64::MAX);
    let one = DmPlan::from_ranges(vec![DmRange::new(0.0, 60.0, 2.0)]).unwrap();
    let other = SearchOptions { plan: one, ..options() };
    let mut recording = Recording::new(Encoding::U8, TIMES);
    assert!(
        search_from(
            Source::Rows(&mut recording),
            &other,
            &Backend::best(2),
            Some(&checkpoint),
            &mut keeper
        )
        .is_err()
    );
    let mut short = Recording::new(Encoding::U8, 100);
    assert!(
        search_from(
            Source::Rows(&mut short),
            &options(),
            &Backend::best(2),
            Some(&checkpoint),
            &mut keeper
        )
        .is_err()
    );
}

/// Series in memory; fails at a row, or stops there.
#[derive(Default)]
struct Memory {
    series: Vec<Vec<Vec<f32>>>,
    checkpoint: Option<series::Checkpoint>,
    stop: u64,
    full: Option<usize>,
}

impl SeriesSink for Memory {
    fn begin(&mut self, ranges: &[SeriesRange]) -> Result<()> {
        if self.series.is_empty() {
            self.series = ranges.iter().map(|range| vec![Vec::new(); range.dms.len()]).collect();
        }
        Ok(())
    }

    fn block(&mut self, block: Block<'_>) -> Result<()> {
        if self.full.is_some_and(|full| self.series[0][0].len() >= full) {
            return Err(Error::io("out", std::io::ErrorKind::StorageFull.into()));
        }
        for (dm, series) in self.series[block.range].iter_mut().enumerate() {
            series.extend_from_slice(&block.plane.row(dm)[..block.valid[dm]]);
        }
        Ok(())
    }

    fn observe(&mut self, status: &Status) -> bool {
        status.times < self.stop
    }

    fn checkpoint(&mut self, checkpoint: &series::Checkpoint, _: bool) -> Result<()> {
        self.checkpoint = Some(checkpoint.clone());
        Ok(())
    }
}

fn lengths(memory: &Memory) -> Vec<Vec<u64>> {
    let trials = |range: &Vec<Vec<f32>>| range.iter().map(|series| series.len() as u64).collect();
    memory.series.iter().map(trials).collect()
}

#[test]
fn series_that_go_on_are_those_of_an_uninterrupted_run() {
    for (encoding, options) in cases() {
        let run = |sink: &mut Memory, from: Option<&series::Checkpoint>| -> SeriesReport {
            let mut recording = Recording::new(encoding, TIMES);
            dedisperse_from(&mut recording, &options, &Backend::best(2), from, sink).unwrap()
        };
        let mut whole = Memory { stop: u64::MAX, ..Memory::default() };
        let expected = run(&mut whole, None);
        for (stop, full) in [(1, None), (9000, None), (u64::MAX, Some(6000))] {
            let mut sink = Memory { stop, full, ..Memory::default() };
            let report = run(&mut sink, None);
            assert_eq!(matches!(report.ending, Ending::Stopped), full.is_none());
            assert_eq!(report.times, lengths(&sink), "what is there is what is said");
            let from = sink.checkpoint.take().unwrap();
            for (range, times) in sink.series.iter_mut().zip(&from.times) {
                range.iter_mut().for_each(|series| series.truncate(*times as usize));
            }
            (sink.stop, sink.full) = (u64::MAX, None);
            let report = run(&mut sink, Some(&from));
            assert!(report.ending.is_complete());
            assert_eq!((&report.times, report.rows), (&expected.times, expected.rows));
            assert_eq!(sink.series, whole.series);
        }
    }
}

#[test]
fn series_before_a_fault_are_kept() {
    let mut recording = Recording::new(Encoding::U8, 8000);
    let mut shorter = Memory { stop: u64::MAX, ..Memory::default() };
    let expected = dedisperse(&mut recording, &options(), &Backend::best(2), &mut shorter).unwrap();
    let mut recording = Recording::new(Encoding::U8, 8000);
    recording.fails = true;
    let mut sink = Memory { stop: u64::MAX, ..Memory::default() };
    let report = dedisperse(&mut recording, &options(), &Backend::best(2), &mut sink).unwrap();
    assert!(matches!(report.ending, Ending::Failed(_)));
    assert_eq!((report.times, sink.series), (expected.times, shorter.series));
}
