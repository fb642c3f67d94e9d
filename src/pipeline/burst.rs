//! From filterbank rows to bursts: clean, dedisperse, detect, cluster.
//!
//! Invariant: candidates depend on the rows and the options alone, never on gulp, threads or backend.

#[cfg(feature = "cuda")]
mod device;
mod host;
#[cfg(feature = "cuda")]
mod resident;
#[cfg(feature = "cuda")]
mod voltages;

use std::time::Instant;

use super::cleaning::Cleaning;
use super::filled::Filled;
pub use super::options::SearchOptions;
use super::options::{Part, skip_to};
use super::range::RangeSearch;
use super::trials::Trials;
use crate::backend::Backend;
use crate::error::{Error, Result};
use crate::io::{FilterbankHeader, FilterbankSource, Gap};
use crate::pulse::cluster::{Candidate, Clusterer};
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
    /// Every trial that was searched.
    pub dms: Vec<f64>,
    /// Trials left out because their delay is longer than the data.
    pub skipped_dms: usize,
    /// Channels left out, in recorded order.
    pub masked_channels: Vec<usize>,
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
    /// False when the observer stopped the search: what lay behind was not searched.
    pub complete: bool,
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
/// `observe` is told after each gulp how far the search is, and stops it by returning false.
///
/// # Errors
/// [`Error::Parameter`] for options that don't fit the data, or when no trial's delay does;
/// [`Error::Unavailable`] when a GPU's memory is too small; [`Error::Device`], with the rows that were
/// searched whole, when it fails on the way; whatever the source reports.
pub fn search(
    source: &mut dyn FilterbankSource,
    options: &SearchOptions,
    backend: &Backend,
    observe: &mut dyn FnMut(&Status) -> bool,
) -> Result<Report> {
    let begin = Instant::now();
    let mut setup = Setup::new(source, options, backend)?;
    let mut clusterer = setup.clusterer()?;
    let mut work = setup.work(source, backend)?;
    let (mut times, mut late, mut complete) = (0, 0, true);
    loop {
        let rows = work.step(source, &mut setup.cleaning, &mut setup.ranges, &mut clusterer)?;
        if rows == 0 {
            break;
        }
        times += rows as u64;
        let data_s = times as f64 * setup.header.tsamp_s;
        let elapsed_s = begin.elapsed().as_secs_f64();
        if !observe(&Status { times, total: setup.part.times, data_s, elapsed_s }) {
            complete = false;
            break;
        }
    }
    if complete {
        late = work.finish(times, &mut setup.ranges, &mut clusterer)?;
    }
    let (gaps, flagged) = (source.gaps().to_vec(), source.flagged_samples());
    setup.report(clusterer, Outcome { times, late, complete, gaps, flagged, begin })
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
}

/// A search bound to a source's rows.
struct Setup {
    header: FilterbankHeader,
    options: SearchOptions,
    part: Part,
    cleaning: Cleaning,
    ranges: Vec<RangeSearch>,
}

/// How a search ended.
struct Outcome {
    times: u64,
    /// Trials that turned out to be longer than the data.
    late: usize,
    complete: bool,
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
    ) -> Result<Self> {
        let header = source.header().clone();
        let part = Part::new(&header, options)?;
        skip_to(source, part.first)?;
        let cleaning = Cleaning::new(source, options, part, backend)?;
        let trials = Trials { header: &header, options, cleaning: &cleaning, part };
        let filled = Filled::new(source.gaps(), part.first, cleaning.lost_rows());
        let ranges = RangeSearch::all(trials, &filled, backend)?;
        Ok(Self { options: options.clone(), part, cleaning, ranges, header })
    }

    fn clusterer(&self) -> Result<Clusterer> {
        RangeSearch::clusterer(&self.ranges, &self.header, &self.options)
    }

    #[cfg(feature = "cuda")]
    fn work(&self, source: &mut dyn FilterbankSource, backend: &Backend) -> Result<Box<dyn Step>> {
        let Backend::Cuda(device, _) = backend else { return self.host_work() };
        let parts = (&self.cleaning, self.part);
        let gulp = self.options.gulp;
        if let Some(recorded) = voltages::recorded(source, device) {
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
        Ok(Box::new(host::HostWork::new(&self.header, cleaning, ranges, &self.options)?))
    }

    /// Starts another stream of the same rows.
    #[cfg(feature = "cuda")]
    fn reset(&mut self) {
        self.cleaning.reset();
        self.ranges.iter_mut().for_each(RangeSearch::reset);
    }

    fn report(&self, clusterer: Clusterer, outcome: Outcome) -> Result<Report> {
        let Outcome { times, late, complete, gaps, flagged, begin } = outcome;
        let dms = RangeSearch::searched(&self.ranges, times);
        if dms.is_empty() && complete {
            return Err(no_trial_fits(&self.header, &self.options, times));
        }
        let mut candidates = clusterer.finish();
        let offset_s = self.part.first as f64 * self.header.tsamp_s;
        for candidate in &mut candidates {
            candidate.time_s += offset_s;
            candidate.begin_s += offset_s;
            candidate.end_s += offset_s;
        }
        Ok(Report {
            candidates,
            dms,
            skipped_dms: RangeSearch::skipped(&self.ranges) + late,
            masked_channels: self.cleaning.masked_channels(),
            gaps,
            flagged_samples: flagged + self.cleaning.flagged_samples(),
            times,
            data_s: times as f64 * self.header.tsamp_s,
            elapsed_s: begin.elapsed().as_secs_f64(),
            complete,
        })
    }
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
