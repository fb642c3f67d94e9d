//! Single-pulse search of filterbank rows: clean, dedisperse, detect, cluster.
//!
//! Invariant: candidates depend on the rows and the options alone, never on gulp, threads or backend, nor on whether
//! the search was interrupted and resumed. What was found is reported, whatever ends a search.

mod observer;
mod stage;
mod voltages;
mod work;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use observer::MemoryObserver;
pub use observer::{Checkpoint, Observer};
use stage::{Rows, Stage, Stages};
use voltages::VoltageWork;
pub use work::Source;
use work::{DeviceWork, Gulps, HostWork, Step};

use super::cleaning::Cleaning;
pub use super::cleaning::{CleanedRows, RecleanedRows};
use super::flagged::Filled;
pub use super::options::SearchOptions;
use super::options::{Part, skip_to};
use super::range::{Batch, Edge, EdgeRows, RangeSearch, Trials, prefetch};
pub use super::run::Status;
use super::run::{Ending, Pair};
use crate::backend::Backend;
use crate::backend::cuda::{self, Buffer, Prefetch};
use crate::clean::{Mitigated, Removals};
use crate::error::{Error, Result};
use crate::io::{FilterbankHeader, FilterbankSource, Gap};
use crate::sample::Samples;
use crate::single_pulse::{Absorbed, Candidate, Clusterer};
use crate::trace::{self, Work};

/// Result of a search.
#[derive(Clone, Debug)]
pub struct Report {
    /// One per burst, by descending S/N.
    pub candidates: Vec<Candidate>,
    /// Events absorbed by candidates, if requested.
    pub absorbed: Vec<Absorbed>,
    /// All trial dispersion measures searched.
    pub dms: Vec<f64>,
    /// Trials skipped because their delay is longer than the data.
    pub skipped_dms: usize,
    /// Masked channels, in recorded order.
    pub masked_channels: Vec<usize>,
    /// Interference removed, if mitigation was enabled.
    pub mitigated: Option<Mitigated>,
    /// Record of what was removed, if requested, within its limit, and if nothing else makes rows depend on earlier
    /// ones.
    pub removals: Option<Arc<Removals>>,
    /// Candidates dropped because stronger ones of the same minute reached the limit.
    pub left_out: usize,
    /// Gaps that were filled.
    pub gaps: Vec<Gap>,
    /// Rows in which no burst of the lowest trial can be found, because gaps fill more than a quarter of the window that gives
    /// their noise.
    pub unsearched: Vec<Gap>,
    /// Samples that were not finite, filled with their channel's level.
    pub flagged_samples: u64,
    /// Rows searched.
    pub times: u64,
    /// Length of the data searched, in seconds.
    pub data_s: f64,
    /// Elapsed time in seconds.
    pub elapsed_s: f64,
    /// End state of the search. After an incomplete search, the searched rows are treated as a recording that ends
    /// with them.
    pub ending: Ending,
}

impl Report {
    /// Returns the seconds of data searched per second.
    pub fn realtime_factor(&self) -> f64 {
        self.data_s / self.elapsed_s.max(1e-9)
    }
}

/// Searches a stream of filterbank rows for dispersed bursts.
///
/// On a GPU the rows stay on the device from the first kernel on, and only events return: cleaning, dedispersion and
/// detection of a gulp overlap with the reading and copying of the next ones. For recorded voltages whose filter bank
/// runs on the same GPU, the voltages are copied in and the device computes the rows.
///
/// `observe` receives the progress after each gulp and stops the search by returning false. A search that is stopped,
/// or whose source fails, reports the results of the rows so far ([`Report::ending`]).
///
/// # Errors
/// [`Error::Parameter`] for options that do not fit the data, or when every trial's delay is too long;
/// [`Error::Unavailable`] when a GPU's memory is too small; errors of the source or a device before any row was
/// searched.
pub fn search(
    source: Source<'_>,
    options: &SearchOptions,
    backend: &Backend,
    observe: &mut dyn FnMut(&Status) -> bool,
) -> Result<Report> {
    search_from(source, options, backend, None, &mut MemoryObserver::new(observe))
}

/// Compiles the kernels of a search on a GPU, and checks its options, before the rows of a live source arrive; `source` has the header
/// of these rows, and may have no rows.
///
/// # Errors
/// As [`search()`], about options and memory.
pub fn prepare(mut source: Source<'_>, options: &SearchOptions, backend: &Backend) -> Result<()> {
    let kernels = source.kernels();
    let setup = Setup::new(source.rows(), options, backend, kernels, &mut |_| true)?;
    drop(setup.work(source, backend)?);
    setup.kernels.wait();
    Ok(())
}

/// Like [`search()`], from the start or from the checkpoint of an interrupted search of the same rows, with an
/// observer that stores the results.
///
/// `source` is at its first row in either case. Rows that the checkpoint no longer needs are skipped.
///
/// # Errors
/// As [`search()`]; [`Error::Parameter`] for a checkpoint of other trials.
pub fn search_from(
    mut source: Source<'_>,
    options: &SearchOptions,
    backend: &Backend,
    resumed: Option<&Checkpoint>,
    observer: &mut dyn Observer,
) -> Result<Report> {
    let begin = Instant::now();
    let mut goes_on = |status: &Status| observer.observe(status);
    let kernels = source.kernels();
    let mut setup = Setup::new(source.rows(), options, backend, kernels, &mut goes_on)?;
    if resumed.is_some() {
        setup.stages.cleaning.check_whole()?;
    }
    let mut times = 0;
    if let Some(checkpoint) = resumed {
        times = setup.resume(source.rows(), checkpoint)?;
    } else {
        let total = setup.part.times;
        let mut goes_on = || {
            let elapsed_s = begin.elapsed().as_secs_f64();
            observer.observe(&Status { times: 0, total, data_s: 0.0, elapsed_s })
        };
        setup.search_start(source.rows(), backend, &mut goes_on)?;
    }
    let mut work = setup.work(source, backend)?;
    // While a GPU searches a gulp of a recording, the host clusters the events of the one before.
    let overlaps = backend.is_gpu() && !work.source().is_live();
    let pair = overlaps.then(Pair::new);
    let (mut late, mut is_pending) = (0, false);
    let mut ending = loop {
        let Setup { stages, findings, batch, .. } = &mut setup;
        let (stepped, clustered) = match &pair {
            Some(pair) if std::mem::take(&mut is_pending) => {
                pair.run(|| work.step(stages), || findings.add(batch, observer))
            }
            _ => (work.step(stages), Ok(())),
        };
        let is_first = times == 0 && setup.resumed == 0;
        times += *stepped.as_ref().unwrap_or(&0) as u64;
        if let Err(error) = clustered {
            break Ending::after(error);
        }
        match stepped {
            Ok(0) => break Ending::Complete,
            Ok(_) => {}
            Err(error) if is_first => return Err(error),
            Err(error) => break Ending::after(error),
        }
        setup.flagged = work.flagged_samples();
        match setup.settle(times, overlaps, observer) {
            Ok(is_left) => is_pending = is_left,
            Err(error) => break Ending::after(error),
        }
        let data_s = times as f64 * setup.header.tsamp_s;
        let elapsed_s = begin.elapsed().as_secs_f64();
        let goes_on =
            observer.observe(&Status { times, total: setup.part.times, data_s, elapsed_s });
        // If the read of the mask's rows was cut short, all rows that the mask was made from are still searched.
        if !goes_on && !setup.stages.cleaning.is_cut_short() {
            break Ending::Stopped;
        }
    };
    if is_pending && let Err(error) = setup.findings.add(&mut setup.batch, observer) {
        ending = Ending::after(error);
    }
    if !is_of_device(&ending) {
        match setup.search_begun(&mut *work, observer) {
            (more, Ok(())) => times += more,
            (more, Err(error)) => (times, ending) = (times + more, Ending::after(error)),
        }
    }
    let flagged = work.flagged_samples();
    let source = work.source();
    ending = ending.with_cut(source.cut());
    let gaps = source.gaps().to_vec();
    // After a device error, or when candidates were refused, the last checkpoint remains valid.
    let is_whole =
        times >= setup.resumed && !setup.findings.are_refused() && !is_of_device(&ending);
    if is_whole && !setup.stages.cleaning.is_cut_short() && observer.wants_checkpoint(true) {
        // The report gives the error that ended the search, not a later error of writing the checkpoint.
        let _ = setup.checkpoint(times, observer);
    }
    // Rows searched by an earlier process were not all read again, so the candidates it left open remain undecided.
    if times < setup.resumed {
        times = setup.resumed;
    } else if !is_of_device(&ending) {
        let finished = work.finish(times, &mut setup.stages).and_then(|trials| {
            let rows = work.tail()?;
            // The search of the edge needs the memory of the gulps.
            drop(work);
            setup.deliver()?;
            setup.search_end(&rows, times, backend)?;
            Ok(trials)
        });
        match finished {
            Ok(trials) => late = trials,
            Err(error) if ending.is_complete() => ending = Ending::after(error),
            Err(_) => {}
        }
    }
    let (candidates, absorbed) = (observer.taken()?, observer.taken_absorbed()?);
    let found = Found { candidates, absorbed };
    setup.report(Outcome { found, times, late, ending, gaps, flagged, begin })
}

/// Returns whether a device failed; it cannot be used any more.
fn is_of_device(ending: &Ending) -> bool {
    matches!(ending, Ending::Failed(error) if matches!(**error, Error::Device { .. }))
}

/// Search bound to the rows of a source.
struct Setup {
    header: FilterbankHeader,
    options: SearchOptions,
    part: Part,
    stages: Stages,
    findings: Findings,
    /// Events that the findings lack.
    batch: Batch,
    /// Rows for the search of the recording's start or end; none if only whole bursts are searched.
    edge_rows: Option<EdgeRows>,
    /// Rows completely searched by an earlier search.
    resumed: u64,
    /// Samples that the source replaced.
    flagged: u64,
    /// Last look for provisional candidates.
    peeked: Option<Peeked>,
    /// Kernels compiled while the first rows are read.
    kernels: Prefetch,
}

/// Time of a look for provisional candidates.
struct Peeked {
    end: Instant,
    took: Duration,
}

/// Candidates in any order, with their members.
#[derive(Default)]
struct Found {
    candidates: Vec<Candidate>,
    absorbed: Vec<Absorbed>,
}

/// Clusterer of a search's events, and its final candidates.
struct Findings {
    clusterer: Clusterer,
    /// Time from the recording's first row to the part's, in seconds.
    offset_s: f64,
    /// Candidates that the observer has accepted, including those of an earlier search.
    count: u64,
    /// Candidates that the observer has not accepted.
    refused: Found,
}

impl Findings {
    /// Clusters the events of a batch and passes final candidates to the observer; those that the observer does not accept
    /// are stored.
    fn add(&mut self, batch: &mut Batch, observer: &mut dyn Observer) -> Result<()> {
        let _span = trace::span(Work::Compute, "settled candidates");
        let settled = batch.cluster(&mut self.clusterer)?;
        if settled.is_empty() {
            return Ok(());
        }
        let found = self.since_start(settled);
        let taken = observer.absorbed(&found.absorbed);
        if let Err(error) = taken.and_then(|()| observer.found(&found.candidates)) {
            self.refused = found;
            return Err(error);
        }
        self.count += found.candidates.len() as u64;
        Ok(())
    }

    fn are_refused(&self) -> bool {
        !self.refused.candidates.is_empty()
    }

    /// Adds the candidates' members, and counts all times from the recording's first row instead of the part's.
    fn since_start(&mut self, mut candidates: Vec<Candidate>) -> Found {
        let mut absorbed = self.clusterer.take_absorbed();
        candidates.iter_mut().for_each(|candidate| candidate.shift(self.offset_s));
        absorbed.iter_mut().for_each(|event| event.shift(self.offset_s));
        Found { candidates, absorbed }
    }
}

/// End state of a search.
struct Outcome {
    /// Candidates that became final before the end.
    found: Found,
    times: u64,
    /// Trials whose delay is longer than the data, found at the end.
    late: usize,
    ending: Ending,
    gaps: Vec<Gap>,
    /// Samples that the source replaced.
    flagged: u64,
    begin: Instant,
}

impl Setup {
    /// Binds a search to a source; `kernels` are those that its rows need.
    fn new(
        source: &mut dyn FilterbankSource,
        options: &SearchOptions,
        backend: &Backend,
        kernels: Vec<cuda::Source>,
        observe: &mut dyn FnMut(&Status) -> bool,
    ) -> Result<Self> {
        let header = source.header().clone();
        let part = Part::new(&header, options)?;
        let list = |trials: &Trials<'_>, devices: &[cuda::Device]| trials.sources(devices);
        let kernels = prefetch(&header, options, part, backend, kernels, list);
        skip_to(source, part.first)?;
        let begin = Instant::now();
        let mut goes_on = || {
            let elapsed_s = begin.elapsed().as_secs_f64();
            observe(&Status { times: 0, total: part.times, data_s: 0.0, elapsed_s })
        };
        let span = trace::span(Work::Compute, "channel mask");
        let mut cleaning = Cleaning::new(source, options, part, backend, &mut goes_on)?;
        if options.removals_bytes > 0 {
            cleaning.record(options.removals_bytes);
        }
        if let Some(recent) = &options.recent {
            recent.set_masked(cleaning.masked());
        }
        drop(span);
        let trials = Trials { header: &header, options, form: cleaning.form(), part };
        let filled = Filled::new(source.gaps(), part.first, cleaning.lost_rows());
        let span = trace::span(Work::Compute, "stages");
        let ranges = RangeSearch::all(trials, &filled, backend)?;
        drop(span);
        if !(options.min_band > 0.0 && options.min_band <= 1.0) {
            let rule = "it must be above 0, and 1 at most";
            return Err(Error::parameter("min_band", options.min_band, rule));
        }
        let edge_rows = RangeSearch::edge_rows(&ranges, header.row_bytes());
        let edge_rows = edge_rows.filter(|_| options.min_band < 1.0);
        let clusterer = RangeSearch::clusterer(&ranges, &header, options)?;
        let findings = Findings {
            clusterer,
            offset_s: part.first as f64 * header.tsamp_s,
            count: 0,
            refused: Found::default(),
        };
        let stages = Stages { cleaning, ranges };
        let options = options.clone();
        Ok(Self {
            options,
            part,
            stages,
            findings,
            batch: Batch::default(),
            edge_rows,
            header,
            resumed: 0,
            flagged: 0,
            peeked: None,
            kernels,
        })
    }

    /// Searches for bursts that began before the first row, in rows that are read ahead; if the recording has no more
    /// rows, also for those that its end cuts off.
    fn search_start(
        &mut self,
        source: &mut dyn FilterbankSource,
        backend: &Backend,
        goes_on: &mut dyn FnMut() -> bool,
    ) -> Result<()> {
        let Some(EdgeRows { searched, level }) = self.edge_rows else { return Ok(()) };
        let Stages { cleaning, ranges } = &mut self.stages;
        let (min_band, clusterer) = (self.options.min_band, &mut self.findings.clusterer);
        let _span = trace::span(Work::Compute, "start of the recording");
        cleaning.look_ahead(source, searched, goes_on, &mut |cleaning, rows, ends| {
            if rows.times() == 0 {
                return Ok(());
            }
            let edge = Edge::start(rows, ends, cleaning.masked(), level, min_band, backend);
            RangeSearch::search_edges(ranges, &edge, backend, clusterer)
        })
    }

    /// Searches for bursts whose sweep extends beyond row `times`, in the last rows before it.
    fn search_end(&mut self, rows: &[u8], times: u64, backend: &Backend) -> Result<()> {
        let Some(EdgeRows { searched, level }) = self.edge_rows else { return Ok(()) };
        let Stages { cleaning, ranges } = &mut self.stages;
        // A shorter recording was searched completely by [`Self::search_start`].
        if times < searched as u64 {
            return Ok(());
        }
        let _span = trace::span(Work::Compute, "end of the recording");
        let (encoding, channels) = (cleaning.encoding(), self.header.channels());
        let count = rows.len() * 8 / (channels * encoding.bits());
        let rows = Samples::new(rows, encoding, count, channels)?;
        let min_band = self.options.min_band;
        let edge = Edge::end(rows, times, cleaning.masked(), level, min_band, backend);
        RangeSearch::search_edges(ranges, &edge, backend, &mut self.findings.clusterer)
    }

    /// Restores a checkpoint; returns the next row of the source, counted from the part's first row.
    fn resume(
        &mut self,
        source: &mut dyn FilterbankSource,
        checkpoint: &Checkpoint,
    ) -> Result<u64> {
        let Stages { cleaning, ranges } = &mut self.stages;
        let first = checkpoint.restore(ranges, &mut self.findings.clusterer)?;
        // The search of the end needs earlier rows than the ranges do.
        let edge_rows = self.edge_rows.map_or(0, |rows| rows.searched as u64);
        let first = first.min(checkpoint.times.saturating_sub(edge_rows));
        // Fill levels depend on all rows since the first, as does the count of replaced samples.
        let is_long = cleaning.looks_back() || checkpoint.flagged > 0;
        let first = if is_long { 0 } else { first };
        let skipped = cleaning.skip(source, first)?;
        if skipped < first {
            let rule = format!("the data end after {skipped} rows; an earlier search had more");
            return Err(Error::parameter("row to resume from", first, rule));
        }
        ranges.iter_mut().for_each(|range| range.start_at(first));
        (self.resumed, self.findings.count) = (checkpoint.times, checkpoint.candidates);
        Ok(first)
    }

    /// Clusters the events of a gulp that ends with row `times`, and passes candidates and checkpoints to the observer. If
    /// the clustering may overlap with the next gulp, and the observer needs no more, returns true: the events are left in the
    /// batch.
    fn settle(
        &mut self,
        times: u64,
        may_overlap: bool,
        observer: &mut dyn Observer,
    ) -> Result<bool> {
        RangeSearch::take_settled(&mut self.stages.ranges, &mut self.batch);
        let is_kept = times >= self.resumed && !self.stages.cleaning.is_cut_short();
        let wants_checkpoint = is_kept && observer.wants_checkpoint(false);
        if may_overlap && !wants_checkpoint && !observer.wants_provisional() {
            return Ok(true);
        }
        self.findings.add(&mut self.batch, observer)?;
        if observer.wants_provisional() && self.is_peek_due() {
            let begin = Instant::now();
            let Findings { clusterer, offset_s, .. } = &mut self.findings;
            let mut open = RangeSearch::open(&mut self.stages.ranges, clusterer)?;
            open.iter_mut().for_each(|candidate| candidate.shift(*offset_s));
            observer.provisional(&open)?;
            self.peeked = Some(Peeked { end: Instant::now(), took: begin.elapsed() });
        }
        if wants_checkpoint {
            self.checkpoint(times, observer)?;
        }
        Ok(false)
    }

    /// Searches the gulp that a device had begun when the search was stopped, since its rows are in the device's histories; returns its
    /// rows.
    fn search_begun(
        &mut self,
        work: &mut dyn Step,
        observer: &mut dyn Observer,
    ) -> (u64, Result<()>) {
        let times = match work.step_begun(&mut self.stages) {
            Ok(times) => times as u64,
            Err(error) => return (0, Err(error)),
        };
        // The report has events that the ranges hold.
        if times == 0 || self.findings.are_refused() {
            return (times, Ok(()));
        }
        RangeSearch::take_settled(&mut self.stages.ranges, &mut self.batch);
        (times, self.findings.add(&mut self.batch, observer))
    }

    /// Passes the events that the ranges hold to the clusterer.
    fn deliver(&mut self) -> Result<()> {
        let Self { stages, findings, .. } = self;
        stages.ranges.iter_mut().try_for_each(|range| range.deliver(&mut findings.clusterer))
    }

    /// Returns whether to look for provisional candidates: not while more rows are in hand, and for a fifth of the time at
    /// most.
    fn is_peek_due(&self) -> bool {
        let is_rested = |peeked: &Peeked| peeked.end.elapsed() >= 4 * peeked.took;
        !self.stages.cleaning.has_rows() && self.peeked.as_ref().is_none_or(is_rested)
    }

    fn checkpoint(&mut self, times: u64, observer: &mut dyn Observer) -> Result<()> {
        let Findings { clusterer, count, .. } = &self.findings;
        let ranges = &mut self.stages.ranges;
        let taken = Checkpoint::take(times, *count, self.flagged, ranges, clusterer)?;
        observer.checkpoint(&taken)
    }

    /// Binds the source to buffers on the backend. A GPU takes voltages if their filter bank runs on it and gives one
    /// product per channel, and if no mitigation needs the rows on the host.
    fn work<'a>(&self, source: Source<'a>, backend: &Backend) -> Result<Box<dyn Step + 'a>> {
        let (stages, edge_rows) = (&self.stages, self.kept_rows());
        let Backend::Cuda(device, _) = backend else {
            let rows = source.into_rows();
            return Ok(Box::new(HostWork::new(rows, stages, &self.options, edge_rows)?));
        };
        let gulps = Gulps { asked: self.options.gulp, times: self.part.times, edge_rows };
        match source {
            Source::Voltages(filterbank)
                if stages.cleaning.mitigated().is_none()
                    && filterbank.device() == Some(device)
                    && filterbank.products() == 1 =>
            {
                if let Some(recent) = &self.options.recent {
                    recent.stay_on_device();
                }
                Ok(Box::new(VoltageWork::new(device, filterbank, stages, gulps)?))
            }
            other => {
                let recent = self.options.recent.clone();
                Ok(Box::new(DeviceWork::new(device, other.into_rows(), stages, gulps, recent)?))
            }
        }
    }

    /// Returns the number of latest rows to store during the search.
    fn kept_rows(&self) -> usize {
        let edge_rows = self.edge_rows.map_or(0, |rows| rows.searched);
        let all = self.part.times.map_or(usize::MAX, |times| times.min(1 << 40) as usize);
        if all < edge_rows { 0 } else { edge_rows }
    }

    /// Resets the state for another stream of the same rows.
    fn reset(&mut self) -> Result<()> {
        let Stages { cleaning, ranges } = &mut self.stages;
        cleaning.reset();
        ranges.iter_mut().for_each(RangeSearch::reset);
        let clusterer = RangeSearch::clusterer(ranges, &self.header, &self.options)?;
        self.findings.clusterer = clusterer;
        Ok(())
    }

    fn report(&mut self, outcome: Outcome) -> Result<Report> {
        let Outcome { found, times, late, ending, gaps, flagged, begin } = outcome;
        let Found { mut candidates, mut absorbed } = found;
        let dms = RangeSearch::searched(&self.stages.ranges, times);
        if dms.is_empty() && ending.is_read() {
            return Err(no_trial_fits(&self.header, &self.options, times));
        }
        self.deliver()?;
        let last = self.findings.clusterer.finish();
        let last = self.findings.since_start(last);
        for mut later in [std::mem::take(&mut self.findings.refused), last] {
            candidates.append(&mut later.candidates);
            absorbed.append(&mut later.absorbed);
        }
        let Stages { cleaning, ranges, .. } = &mut self.stages;
        let unsearched =
            ranges.first().map(|range| range.unsearched(&gaps, self.part.first, times));
        let unsearched = unsearched.unwrap_or_default();
        candidates.sort_by(Candidate::order);
        let left_out = limit_storms(&mut candidates, self.options.max_per_minute);
        Ok(Report {
            candidates,
            absorbed,
            dms,
            skipped_dms: RangeSearch::skipped(ranges) + late,
            masked_channels: cleaning.masked_channels(),
            mitigated: cleaning.mitigated(),
            removals: cleaning.take_removals().map(Arc::new),
            left_out,
            gaps,
            unsearched,
            flagged_samples: flagged + cleaning.flagged_samples(),
            times,
            data_s: times as f64 * self.header.tsamp_s,
            elapsed_s: begin.elapsed().as_secs_f64(),
            ending,
        })
    }
}

/// Retains at most `most` candidates per minute; candidates are sorted best first. Returns the number dropped.
fn limit_storms(candidates: &mut Vec<Candidate>, most: Option<usize>) -> usize {
    let Some(most) = most else { return 0 };
    let all = candidates.len();
    let mut minutes = HashMap::new();
    candidates.retain(|candidate| {
        let count = minutes.entry((candidate.time_s / 60.0).floor() as i64).or_insert(0);
        *count += 1;
        *count <= most
    });
    all - candidates.len()
}

fn no_trial_fits(header: &FilterbankHeader, options: &SearchOptions, times: u64) -> Error {
    let (lowest, highest) = (header.band.lowest_hz(), header.band.highest_hz());
    let dm = options.plan.ranges.first().map_or(0.0, |range| range.dm_min);
    let delay = crate::units::dispersion_delay_s(dm, lowest, highest, options.dm_constant);
    let length = times as f64 * header.tsamp_s;
    let rule = format!(
        "its delay across the band, {delay:.3} s, is longer than the data, {length:.3} s: no trial fits"
    );
    Error::parameter("dm_min", dm, rule)
}

/// Recording whose rows are all in a GPU's memory, with its search, limited to whole bursts:
/// [`SearchOptions::min_band`] has no effect.
pub struct Resident {
    setup: Setup,
    stage: Stage,
    /// Rows of each gulp, and their number.
    gulps: Vec<(Buffer<u8>, usize)>,
    gaps: Vec<Gap>,
}

impl std::fmt::Debug for Resident {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Resident").field("gulps", &self.gulps.len()).finish_non_exhaustive()
    }
}

impl Resident {
    /// Reads all rows of a source into the memory of the backend's GPU.
    ///
    /// # Errors
    /// [`Error::Unavailable`] when the backend is not a GPU, or its memory is too small; as [`search()`].
    pub fn new(
        source: &mut dyn FilterbankSource,
        options: &SearchOptions,
        backend: &Backend,
    ) -> Result<Self> {
        let Backend::Cuda(device, _) = backend else {
            let what = format!("a recording in the memory of {}", backend.name());
            return Err(Error::Unavailable { what, why: "that takes a GPU".to_owned() });
        };
        let mut setup = Setup::new(source, options, backend, Vec::new(), &mut |_| true)?;
        let (stage, gulp) =
            Stage::resident(device, &setup.header, &setup.stages, options.gulp, setup.part.times)?;
        let row_bytes = setup.header.row_bytes();
        let mut rows = vec![0; gulp * row_bytes];
        let mut gulps = Vec::new();
        loop {
            let times = filled(&mut setup.stages.cleaning, source, &mut rows, row_bytes)?;
            if times == 0 {
                break;
            }
            gulps.push((device.upload(&rows[..times * row_bytes])?, times));
        }
        Ok(Self { setup, stage, gulps, gaps: source.gaps().to_vec() })
    }

    /// Searches all rows, from the first kernel to the list of candidates.
    ///
    /// # Errors
    /// As [`search()`].
    pub fn search(&mut self) -> Result<Report> {
        let begin = Instant::now();
        let Self { setup, stage, gulps, gaps } = self;
        setup.reset()?;
        let mut times = 0;
        let rows = |index: usize| {
            let gulp = gulps.get(index);
            gulp.map(|(buffer, times)| Rows { buffer, uploaded: None, times: *times })
        };
        for index in 0..gulps.len() {
            let Stages { cleaning, ranges } = &mut setup.stages;
            let (_, mut cleaner) = cleaning.parts();
            let Some(own) = rows(index) else { break };
            if index == 0 {
                stage.begin(own, cleaner.as_deref_mut(), ranges)?;
            }
            let searched = stage.search(own, ranges);
            let next = rows(index + 1).filter(|_| searched.is_ok());
            let collected = stage.collect(next, cleaner, ranges);
            searched.and(collected)?;
            setup.deliver()?;
            times += own.times as u64;
        }
        let late = stage.finish(times, &mut setup.stages)?;
        let (found, gaps, flagged) = (Found::default(), gaps.clone(), 0);
        let ending = Ending::Complete;
        let outcome = Outcome { found, times, late, ending, gaps, flagged, begin };
        setup.report(outcome)
    }
}

/// Reads rows until the buffer is full or the source ends; returns their number.
fn filled(
    cleaning: &mut Cleaning,
    source: &mut dyn FilterbankSource,
    rows: &mut [u8],
    row_bytes: usize,
) -> Result<usize> {
    let mut times = 0;
    loop {
        let rest = &mut rows[times * row_bytes..];
        let more = if rest.is_empty() { 0 } else { cleaning.read(source, rest)? };
        if more == 0 {
            return Ok(times);
        }
        times += more;
    }
}
