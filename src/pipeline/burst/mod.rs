//! Single-pulse search of filterbank rows: clean, dedisperse, detect, cluster.
//!
//! Invariant: candidates depend on the rows and the options alone, never on gulp, threads or backend, nor on whether
//! the search was interrupted and resumed. What was found is reported, whatever ends a search.

mod observer;
mod voltages;
mod work;

use std::collections::HashMap;
use std::time::Instant;

use observer::MemoryObserver;
pub use observer::{Checkpoint, Observer};
use voltages::VoltageWork;
use work::{DeviceWork, HostWork, Stage, Step};

pub use super::cleaning::CleanedRows;
use super::cleaning::Cleaning;
use super::flagged::Filled;
pub use super::options::SearchOptions;
use super::options::{Part, skip_to};
use super::range::{Edge, RangeSearch, Trials};
use super::run::Ending;
pub use super::run::Status;
use crate::backend::Backend;
use crate::backend::cuda::Buffer;
use crate::clean::Mitigated;
use crate::error::{Error, Result};
use crate::io::{FilterbankHeader, FilterbankSource, Gap};
use crate::sample::Samples;
use crate::single_pulse::{Absorbed, Candidate, Clusterer};

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
    /// Candidates dropped because stronger ones of the same minute reached the limit.
    pub left_out: usize,
    /// Gaps that were filled.
    pub gaps: Vec<Gap>,
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
    source: &mut dyn FilterbankSource,
    options: &SearchOptions,
    backend: &Backend,
    observe: &mut dyn FnMut(&Status) -> bool,
) -> Result<Report> {
    search_from(source, options, backend, None, &mut MemoryObserver::new(observe))
}

/// Like [`search()`], from the start or from the checkpoint of an interrupted search of the same rows, with an
/// observer that stores the results.
///
/// `source` is at its first row in either case. Rows that the checkpoint no longer needs are skipped.
///
/// # Errors
/// As [`search()`]; [`Error::Parameter`] for a checkpoint of other trials.
pub fn search_from(
    source: &mut dyn FilterbankSource,
    options: &SearchOptions,
    backend: &Backend,
    resumed: Option<&Checkpoint>,
    observer: &mut dyn Observer,
) -> Result<Report> {
    let begin = Instant::now();
    let mut setup = Setup::new(source, options, backend, &mut |status| observer.observe(status))?;
    if resumed.is_some() {
        setup.cleaning.check_whole()?;
    }
    let mut clusterer = setup.clusterer()?;
    let mut times = 0;
    if let Some(checkpoint) = resumed {
        times = setup.resume(source, checkpoint, &mut clusterer)?;
    } else {
        let total = setup.part.times;
        let mut goes_on = || {
            let elapsed_s = begin.elapsed().as_secs_f64();
            observer.observe(&Status { times: 0, total, data_s: 0.0, elapsed_s })
        };
        setup.search_start(source, (backend, &mut goes_on), &mut clusterer)?;
    }
    let mut work = setup.work(source, backend)?;
    let (mut late, mut refused) = (0, Refused::default());
    let ending = loop {
        let rows = match work.step(source, &mut setup.cleaning, &mut setup.ranges, &mut clusterer) {
            Ok(0) => break Ending::Complete,
            Ok(rows) => rows,
            Err(error) if times == 0 && setup.resumed == 0 => return Err(error),
            Err(error) => break Ending::after(error),
        };
        times += rows as u64;
        setup.flagged = source.flagged_samples();
        if let Err(error) = setup.keep(times, &mut clusterer, (observer, &mut refused)) {
            break Ending::after(error);
        }
        let data_s = times as f64 * setup.header.tsamp_s;
        let elapsed_s = begin.elapsed().as_secs_f64();
        let goes_on =
            observer.observe(&Status { times, total: setup.part.times, data_s, elapsed_s });
        // If the read of the mask's rows was cut short, all rows that the mask was made from are still searched.
        if !goes_on && !setup.cleaning.is_cut_short() {
            break Ending::Stopped;
        }
    };
    let mut ending = if ending.is_complete() { Ending::of_source(source.cut()) } else { ending };
    // After a device error, or when candidates were refused, the last checkpoint remains valid.
    let is_whole =
        times >= setup.resumed && refused.candidates.is_empty() && !is_of_device(&ending);
    if is_whole && !setup.cleaning.is_cut_short() && observer.wants_checkpoint(true) {
        // The report gives the error that ended the search, not a later error of writing the checkpoint.
        let _ = setup.checkpoint(times, &clusterer, observer);
    }
    // Rows searched by an earlier process were not all read again, so the candidates it left open remain undecided.
    if times < setup.resumed {
        times = setup.resumed;
    } else if !is_of_device(&ending) {
        let finished = work.finish(times, &mut setup.ranges, &mut clusterer).and_then(|trials| {
            let rows = work.tail()?;
            // The search of the edge needs the memory of the gulps.
            drop(work);
            setup.search_end((&rows, times), backend, &mut clusterer)?;
            Ok(trials)
        });
        match finished {
            Ok(trials) => late = trials,
            Err(error) if ending.is_complete() => ending = Ending::after(error),
            Err(_) => {}
        }
    }
    let (gaps, flagged) = (source.gaps().to_vec(), source.flagged_samples());
    let mut candidates = observer.taken()?;
    let mut absorbed = observer.taken_absorbed()?;
    candidates.append(&mut refused.candidates);
    absorbed.append(&mut refused.absorbed);
    let found = (candidates, absorbed);
    setup.report(clusterer, Outcome { found, times, late, ending, gaps, flagged, begin })
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
    cleaning: Cleaning,
    ranges: Vec<RangeSearch>,
    /// Rows for the search of the recording's start or end, and rows for its levels; none if only whole bursts are
    /// searched.
    edge_rows: Option<(usize, usize)>,
    /// Rows completely searched by an earlier search.
    resumed: u64,
    /// Candidates that the observer has accepted, including those of an earlier search.
    found: u64,
    /// Samples that the source replaced.
    flagged: u64,
}

/// Candidates that an observer refused, with their members.
#[derive(Default)]
struct Refused {
    candidates: Vec<Candidate>,
    absorbed: Vec<Absorbed>,
}

/// End state of a search.
struct Outcome {
    /// Candidates that became final before the end, in any order, and their members.
    found: (Vec<Candidate>, Vec<Absorbed>),
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
    fn new(
        source: &mut dyn FilterbankSource,
        options: &SearchOptions,
        backend: &Backend,
        observe: &mut dyn FnMut(&Status) -> bool,
    ) -> Result<Self> {
        let header = source.header().clone();
        let part = Part::new(&header, options)?;
        skip_to(source, part.first)?;
        let begin = Instant::now();
        let mut goes_on = || {
            let elapsed_s = begin.elapsed().as_secs_f64();
            observe(&Status { times: 0, total: part.times, data_s: 0.0, elapsed_s })
        };
        let cleaning = Cleaning::new(source, options, part, (backend, &mut goes_on))?;
        let trials = Trials { header: &header, options, cleaning: &cleaning, part };
        let filled = Filled::new(source.gaps(), part.first, cleaning.lost_rows());
        let ranges = RangeSearch::all(trials, &filled, backend)?;
        if !(options.min_band > 0.0 && options.min_band <= 1.0) {
            let rule = "it must be above 0, and 1 at most";
            return Err(Error::parameter("min_band", options.min_band, rule));
        }
        let edge_rows = RangeSearch::edge_rows(&ranges, header.row_bytes());
        let edge_rows = edge_rows.filter(|_| options.min_band < 1.0);
        let (resumed, found, flagged) = (0, 0, 0);
        let options = options.clone();
        Ok(Self { options, part, cleaning, ranges, edge_rows, header, resumed, found, flagged })
    }

    /// Searches for bursts that began before the first row, in rows that are read ahead; if the recording has no more
    /// rows, also for those that its end cuts off.
    fn search_start(
        &mut self,
        source: &mut dyn FilterbankSource,
        (backend, goes_on): (&Backend, &mut dyn FnMut() -> bool),
        clusterer: &mut Clusterer,
    ) -> Result<()> {
        let Some((rows, level_rows)) = self.edge_rows else { return Ok(()) };
        let (ranges, min_band) = (&mut self.ranges, self.options.min_band);
        self.cleaning.look_ahead(source, (rows, goes_on), &mut |cleaning, rows, ends| {
            if rows.times() == 0 {
                return Ok(());
            }
            let edge = Edge::start(rows, ends, (cleaning.masked(), level_rows, min_band));
            ranges.iter_mut().try_for_each(|range| range.search_edge(&edge, backend, clusterer))
        })
    }

    /// Searches for bursts whose sweep extends beyond row `times`, in the last rows before it.
    fn search_end(
        &mut self,
        (rows, times): (&[u8], u64),
        backend: &Backend,
        clusterer: &mut Clusterer,
    ) -> Result<()> {
        let Some((edge_rows, level_rows)) = self.edge_rows else { return Ok(()) };
        // A shorter recording was searched completely by [`Self::search_start`].
        if times < edge_rows as u64 {
            return Ok(());
        }
        let (encoding, channels) = (self.cleaning.encoding(), self.header.channels());
        let count = rows.len() * 8 / (channels * encoding.bits());
        let rows = Samples::new(rows, encoding, count, channels)?;
        let edge =
            Edge::end(rows, times, (self.cleaning.masked(), level_rows, self.options.min_band));
        self.ranges.iter_mut().try_for_each(|range| range.search_edge(&edge, backend, clusterer))
    }

    /// Restores a checkpoint; returns the next row of the source, counted from the part's first row.
    fn resume(
        &mut self,
        source: &mut dyn FilterbankSource,
        checkpoint: &Checkpoint,
        clusterer: &mut Clusterer,
    ) -> Result<u64> {
        let first = checkpoint.restore(&mut self.ranges, clusterer)?;
        // The search of the end needs earlier rows than the ranges do.
        let edge_rows = self.edge_rows.map_or(0, |(rows, _)| rows as u64);
        let first = first.min(checkpoint.times.saturating_sub(edge_rows));
        // Fill levels depend on all rows since the first, as does the count of replaced samples.
        let is_long = self.cleaning.looks_back() || checkpoint.flagged > 0;
        let first = if is_long { 0 } else { first };
        let skipped = self.cleaning.skip(source, first)?;
        if skipped < first {
            let rule = format!("the data end after {skipped} rows; an earlier search had more");
            return Err(Error::parameter("row to resume from", first, rule));
        }
        self.ranges.iter_mut().for_each(|range| range.start_at(first));
        (self.resumed, self.found) = (checkpoint.times, checkpoint.candidates);
        Ok(first)
    }

    /// Passes final candidates to the observer after a gulp that ends with row `times`; candidates that the observer
    /// does not accept go to `refused`.
    fn keep(
        &mut self,
        times: u64,
        clusterer: &mut Clusterer,
        (observer, refused): (&mut dyn Observer, &mut Refused),
    ) -> Result<()> {
        let mut candidates = RangeSearch::settle(&mut self.ranges, clusterer)?;
        self.count_from_start(&mut candidates);
        if !candidates.is_empty() {
            let absorbed = self.absorbed(clusterer);
            let taken = observer.absorbed(&absorbed).and_then(|()| observer.found(&candidates));
            if let Err(error) = taken {
                *refused = Refused { candidates, absorbed };
                return Err(error);
            }
            self.found += candidates.len() as u64;
        }
        let is_kept = times >= self.resumed && !self.cleaning.is_cut_short();
        if is_kept && observer.wants_checkpoint(false) {
            self.checkpoint(times, clusterer, observer)?;
        }
        Ok(())
    }

    fn checkpoint(
        &mut self,
        times: u64,
        clusterer: &Clusterer,
        observer: &mut dyn Observer,
    ) -> Result<()> {
        let reached = (times, self.found, self.flagged);
        observer.checkpoint(&Checkpoint::take(reached, &mut self.ranges, clusterer)?)
    }

    /// Shifts candidate times from the part's first row to the recording's first row.
    fn count_from_start(&self, candidates: &mut [Candidate]) {
        let offset_s = self.part.first as f64 * self.header.tsamp_s;
        candidates.iter_mut().for_each(|candidate| candidate.shift(offset_s));
    }

    /// Returns the members of the candidates returned last.
    fn absorbed(&self, clusterer: &mut Clusterer) -> Vec<Absorbed> {
        let offset_s = self.part.first as f64 * self.header.tsamp_s;
        let mut absorbed = clusterer.take_absorbed();
        absorbed.iter_mut().for_each(|event| event.shift(offset_s));
        absorbed
    }

    fn clusterer(&self) -> Result<Clusterer> {
        RangeSearch::clusterer(&self.ranges, &self.header, &self.options)
    }

    fn work(&self, source: &mut dyn FilterbankSource, backend: &Backend) -> Result<Box<dyn Step>> {
        let Backend::Cuda(device, _) = backend else { return self.host_work() };
        let parts = (&self.cleaning, self.part);
        let gulp = (self.options.gulp, self.kept_rows());
        // Mitigation works on rows on the host.
        if self.cleaning.mitigated().is_none()
            && let Some(recorded) = voltages::recorded(source, device)
        {
            let work = VoltageWork::new(device, recorded, parts, &self.ranges, gulp)?;
            return Ok(Box::new(work));
        }
        Ok(Box::new(DeviceWork::new(device, &self.header, parts, &self.ranges, gulp)?))
    }

    fn host_work(&self) -> Result<Box<dyn Step>> {
        let (cleaning, ranges) = (&self.cleaning, &self.ranges);
        let options = (&self.options, self.kept_rows());
        Ok(Box::new(HostWork::new(&self.header, cleaning, ranges, options)?))
    }

    /// Returns the number of latest rows to store during the search.
    fn kept_rows(&self) -> usize {
        let edge_rows = self.edge_rows.map_or(0, |(rows, _)| rows);
        let all = self.part.times.map_or(usize::MAX, |times| times.min(1 << 40) as usize);
        if all < edge_rows { 0 } else { edge_rows }
    }

    /// Resets the state for another stream of the same rows.
    fn reset(&mut self) {
        self.cleaning.reset();
        self.ranges.iter_mut().for_each(RangeSearch::reset);
    }

    fn report(&self, mut clusterer: Clusterer, outcome: Outcome) -> Result<Report> {
        let Outcome { found, times, late, ending, gaps, flagged, begin } = outcome;
        let (mut candidates, mut absorbed) = found;
        let dms = RangeSearch::searched(&self.ranges, times);
        if dms.is_empty() && ending.is_read() {
            return Err(no_trial_fits(&self.header, &self.options, times));
        }
        let mut last = clusterer.finish();
        self.count_from_start(&mut last);
        candidates.append(&mut last);
        absorbed.append(&mut self.absorbed(&mut clusterer));
        candidates.sort_by(Candidate::order);
        let left_out = limit_storms(&mut candidates, self.options.max_per_minute);
        Ok(Report {
            candidates,
            absorbed,
            dms,
            skipped_dms: RangeSearch::skipped(&self.ranges) + late,
            masked_channels: self.cleaning.masked_channels(),
            mitigated: self.cleaning.mitigated(),
            left_out,
            gaps,
            flagged_samples: flagged + self.cleaning.flagged_samples(),
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
        let mut setup = Setup::new(source, options, backend, &mut |_| true)?;
        let parts = (&setup.cleaning, setup.part);
        let (stage, gulp) =
            Stage::resident(device, &setup.header, parts, &setup.ranges, options.gulp)?;
        let row_bytes = setup.header.row_bytes();
        let mut rows = vec![0; gulp * row_bytes];
        let mut gulps = Vec::new();
        loop {
            let times = filled(&mut setup.cleaning, source, (&mut rows, row_bytes))?;
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
        setup.reset();
        let mut clusterer = setup.clusterer()?;
        let mut times = 0;
        for (rows, count) in gulps.iter() {
            let (_, cleaner) = setup.cleaning.parts();
            stage.run((rows, *count), cleaner, &mut setup.ranges, &mut clusterer)?;
            times += *count as u64;
        }
        let late = stage.finish(times, &mut setup.ranges, &mut clusterer)?;
        let (found, gaps, flagged) = ((Vec::new(), Vec::new()), gaps.clone(), 0);
        let ending = Ending::Complete;
        let outcome = Outcome { found, times, late, ending, gaps, flagged, begin };
        setup.report(clusterer, outcome)
    }
}

/// Reads rows until the buffer is full or the source ends; returns their number.
fn filled(
    cleaning: &mut Cleaning,
    source: &mut dyn FilterbankSource,
    (rows, row_bytes): (&mut [u8], usize),
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
