//! From filterbank rows to bursts: clean, dedisperse, detect, cluster.
//!
//! Invariant: candidates depend on the rows and the options alone, never on gulp, threads or backend, nor on whether
//! the search was interrupted and resumed. What was found is reported, whatever ends a search.

mod checkpoint;
#[cfg(feature = "cuda")]
mod device;
mod host;
#[cfg(feature = "cuda")]
mod resident;
#[cfg(feature = "cuda")]
mod voltages;

use std::collections::HashMap;
use std::time::Instant;

use super::cleaning::Cleaning;
use super::ending::Ending;
use super::filled::Filled;
pub use super::options::SearchOptions;
use super::options::{Part, skip_to};
use super::range::{Edge, RangeSearch};
use super::trials::Trials;
use crate::backend::Backend;
use crate::clean::Mitigated;
use crate::error::{Error, Result};
use crate::io::{FilterbankHeader, FilterbankSource, Gap};
use crate::sample::Samples;
use crate::single_pulse::cluster::{Absorbed, Candidate, Clusterer};
use checkpoint::Onlooker;
pub use checkpoint::{Checkpoint, Observer};
#[cfg(feature = "cuda")]
pub use resident::Resident;

/// Bytes of rows that one gulp may hold.
const GULP_BYTES: usize = 32 << 20;

/// How far a search has come.
#[derive(Clone, Copy, Debug)]
pub struct Status {
    /// Rows searched.
    pub times: u64,
    /// Rows in all, when known.
    pub total: Option<u64>,
    /// Length of the rows searched, in seconds.
    pub data_s: f64,
    /// Time since the search began, in seconds.
    pub elapsed_s: f64,
}

/// What a search found.
#[derive(Clone, Debug)]
pub struct Report {
    /// One a burst, best first.
    pub candidates: Vec<Candidate>,
    /// Events that belong to candidates, where they were asked for.
    pub absorbed: Vec<Absorbed>,
    /// Every trial that was searched.
    pub dms: Vec<f64>,
    /// Trials left out because their delay is longer than the data.
    pub skipped_dms: usize,
    /// Channels left out, in recorded order.
    pub masked_channels: Vec<usize>,
    /// Interference that was taken away, if any was looked for.
    pub mitigated: Option<Mitigated>,
    /// Candidates that were left out, since stronger ones of the same minute reach the limit.
    pub left_out: usize,
    /// Gaps that were filled.
    pub gaps: Vec<Gap>,
    /// Samples that were not finite and were filled by their channel's level.
    pub flagged_samples: u64,
    /// Rows searched.
    pub times: u64,
    /// Length of the data searched, in seconds.
    pub data_s: f64,
    /// Time that the search took, in seconds.
    pub elapsed_s: f64,
    /// How the search ended. Unless it is complete, the rows that were searched are reported as a recording that ends
    /// with them.
    pub ending: Ending,
}

impl Report {
    /// Seconds of data searched in a second.
    pub fn realtime_factor(&self) -> f64 {
        self.data_s / self.elapsed_s.max(1e-9)
    }
}

/// Searches a stream of filterbank rows for dispersed bursts.
///
/// On a GPU the rows stay there from the first kernel on, and only events come back: cleaning,
/// dedispersion and detection of a gulp run while the next ones are read and copied. Of recorded voltages
/// whose filter bank runs on the same GPU, the voltages go in, and rows are made there.
///
/// `observe` is told after each gulp how far the search is, and stops it by returning false. A search that is stopped,
/// or whose source fails, reports what the rows until then hold ([`Report::ending`]).
///
/// # Errors
/// [`Error::Parameter`] for options that don't fit the data, or when no trial's delay does;
/// [`Error::Unavailable`] when a GPU's memory is too small; whatever the source or a device reports before any row
/// was searched.
pub fn search(
    source: &mut dyn FilterbankSource,
    options: &SearchOptions,
    backend: &Backend,
    observe: &mut dyn FnMut(&Status) -> bool,
) -> Result<Report> {
    search_from(source, options, backend, (None, &mut Onlooker::new(observe)))
}

/// As [`search()`], from the start or from where another search of the same rows was interrupted, with an observer that
/// keeps what is found.
///
/// `source` is at its first row in either case. Rows that a checkpoint has no more need of are skipped.
///
/// # Errors
/// As [`search()`]; [`Error::Parameter`] for a checkpoint of other trials.
pub fn search_from(
    source: &mut dyn FilterbankSource,
    options: &SearchOptions,
    backend: &Backend,
    (resumed, observer): (Option<&Checkpoint>, &mut dyn Observer),
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
        // A mask that was cut short is used for all rows that it was made from.
        if !goes_on && !setup.cleaning.is_cut_short() {
            break Ending::Stopped;
        }
    };
    let mut ending = if ending.is_complete() { Ending::of_source(source.cut()) } else { ending };
    // After a fault of a device, or where candidates were not taken, the last checkpoint holds.
    let is_whole =
        times >= setup.resumed && refused.candidates.is_empty() && !is_of_device(&ending);
    if is_whole && !setup.cleaning.is_cut_short() && observer.wants_checkpoint(true) {
        // What ended the search is told, not what keeping its state met then.
        let _ = setup.checkpoint(times, &clusterer, observer);
    }
    // Rows that an earlier process had searched were not all read again: what it had found is undecided still.
    if times < setup.resumed {
        times = setup.resumed;
    } else if !is_of_device(&ending) {
        let finished = work.finish(times, &mut setup.ranges, &mut clusterer).and_then(|trials| {
            let rows = work.tail()?;
            // The edge takes the memory of gulps.
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

/// Whether a device failed, on which nothing can be done any more.
fn is_of_device(ending: &Ending) -> bool {
    matches!(ending, Ending::Failed(error) if matches!(**error, Error::Device { .. }))
}

/// Takes rows of a source through all ranges, on the host or on a device.
trait Step {
    /// The next gulp; its rows, 0 at the end.
    fn step(
        &mut self,
        source: &mut dyn FilterbankSource,
        cleaning: &mut Cleaning,
        ranges: &mut [RangeSearch],
        clusterer: &mut Clusterer,
    ) -> Result<usize>;

    /// Ends the stream after `times` rows; returns how many trials were too long for it.
    fn finish(
        &mut self,
        times: u64,
        ranges: &mut [RangeSearch],
        clusterer: &mut Clusterer,
    ) -> Result<usize>;

    /// The last rows as they are after cleaning, as many as the search of the recording's end takes.
    fn tail(&mut self) -> Result<Vec<u8>>;
}

/// A search bound to a source's rows.
struct Setup {
    header: FilterbankHeader,
    options: SearchOptions,
    part: Part,
    cleaning: Cleaning,
    ranges: Vec<RangeSearch>,
    /// Rows that the search of the recording's start or end takes, and those from which levels are taken; none where
    /// whole bursts alone are looked for.
    edge_rows: Option<(usize, usize)>,
    /// Rows that an earlier search had searched whole.
    resumed: u64,
    /// Candidates that the observer has taken, with those of an earlier search.
    found: u64,
    /// Samples that the source replaced.
    flagged: u64,
}

/// Candidates that an observer did not take, with their members.
#[derive(Default)]
struct Refused {
    candidates: Vec<Candidate>,
    absorbed: Vec<Absorbed>,
}

/// How a search ended.
struct Outcome {
    /// Candidates that were final before the end, in any order, and their members.
    found: (Vec<Candidate>, Vec<Absorbed>),
    times: u64,
    /// Trials that turned out to be longer than the data.
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
            return Err(Error::parameter("--min-band", options.min_band, rule));
        }
        let edge_rows = RangeSearch::edge_rows(&ranges, header.row_bytes());
        let edge_rows = edge_rows.filter(|_| options.min_band < 1.0);
        let (resumed, found, flagged) = (0, 0, 0);
        let options = options.clone();
        Ok(Self { options, part, cleaning, ranges, edge_rows, header, resumed, found, flagged })
    }

    /// Looks for bursts that began before the first row, in rows that are read ahead; in a recording that has no more, for
    /// those too that its end cuts off.
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

    /// Looks for bursts whose sweep passes the last of `times` rows, in the last of them.
    fn search_end(
        &mut self,
        (rows, times): (&[u8], u64),
        backend: &Backend,
        clusterer: &mut Clusterer,
    ) -> Result<()> {
        let Some((edge_rows, level_rows)) = self.edge_rows else { return Ok(()) };
        // The end of fewer was searched with the start.
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

    /// Goes on from a checkpoint; returns the row at which the source stands then, counted from the part's first.
    fn resume(
        &mut self,
        source: &mut dyn FilterbankSource,
        checkpoint: &Checkpoint,
        clusterer: &mut Clusterer,
    ) -> Result<u64> {
        let first = checkpoint.restore(&mut self.ranges, clusterer)?;
        // The search of the end takes rows that those before it have no more need of.
        let edge_rows = self.edge_rows.map_or(0, |(rows, _)| rows as u64);
        let first = first.min(checkpoint.times.saturating_sub(edge_rows));
        // What fills samples goes back to the first row, and so does the number of those that the source replaced.
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

    /// Hands what is final to the observer, after a gulp that ends with row `times`; what it does not take goes to
    /// `refused`.
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

    /// Counts times of candidates from the recording's first row, not from the part's.
    fn count_from_start(&self, candidates: &mut [Candidate]) {
        let offset_s = self.part.first as f64 * self.header.tsamp_s;
        candidates.iter_mut().for_each(|candidate| candidate.shift(offset_s));
    }

    /// Members of the candidates handed out last.
    fn absorbed(&self, clusterer: &mut Clusterer) -> Vec<Absorbed> {
        let offset_s = self.part.first as f64 * self.header.tsamp_s;
        let mut absorbed = clusterer.take_absorbed();
        absorbed.iter_mut().for_each(|event| event.shift(offset_s));
        absorbed
    }

    fn clusterer(&self) -> Result<Clusterer> {
        RangeSearch::clusterer(&self.ranges, &self.header, &self.options)
    }

    #[cfg(feature = "cuda")]
    fn work(&self, source: &mut dyn FilterbankSource, backend: &Backend) -> Result<Box<dyn Step>> {
        let Backend::Cuda(device, _) = backend else { return self.host_work() };
        let parts = (&self.cleaning, self.part);
        let gulp = (self.options.gulp, self.kept_rows());
        // Interference is looked for in rows on the host.
        if self.cleaning.mitigated().is_none()
            && let Some(recorded) = voltages::recorded(source, device)
        {
            let work = voltages::VoltageWork::new(device, recorded, parts, &self.ranges, gulp)?;
            return Ok(Box::new(work));
        }
        Ok(Box::new(device::DeviceWork::new(device, &self.header, parts, &self.ranges, gulp)?))
    }

    #[cfg(not(feature = "cuda"))]
    fn work(&self, _: &mut dyn FilterbankSource, _: &Backend) -> Result<Box<dyn Step>> {
        self.host_work()
    }

    fn host_work(&self) -> Result<Box<dyn Step>> {
        let (cleaning, ranges) = (&self.cleaning, &self.ranges);
        let options = (&self.options, self.kept_rows());
        Ok(Box::new(host::HostWork::new(&self.header, cleaning, ranges, options)?))
    }

    /// The latest rows that are kept while others come.
    fn kept_rows(&self) -> usize {
        let edge_rows = self.edge_rows.map_or(0, |(rows, _)| rows);
        let all = self.part.times.map_or(usize::MAX, |times| times.min(1 << 40) as usize);
        if all < edge_rows { 0 } else { edge_rows }
    }

    /// Starts another stream of the same rows.
    #[cfg(feature = "cuda")]
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

/// Keeps so many candidates of each minute, which come best first; returns how many it leaves out.
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
    Error::parameter("--dm-min", dm, rule)
}
