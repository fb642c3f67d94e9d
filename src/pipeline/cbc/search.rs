//! Search for coincident events: every detector's chain, then coincidence.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Instant;

use super::bank::{Input, keep_common};
use super::detector::{Need, prefetch};
use super::options::{SearchObserver, SearchOptions, Status};
use super::ready::{Prepared, Ready};
use super::report::{DetectorReport, Report, Whitened};
use super::strain::{Strain, common_span};
use crate::backend::Backend;
use crate::backend::threads::Threads;
use crate::error::{Error, Result};
use crate::geometry::{INTERFEROMETERS, Interferometer};
use crate::pipeline::run::{Ending, side_by_side};
use crate::spiir::bank::{Bank, BankTemplate};
use crate::spiir::coincidence::{self, Detector, Event, Found, Ranking, TimedTrigger};
use crate::spiir::trigger::Trigger;
use crate::state::{Saved, Saving};
use crate::strain::Binary;
use crate::trace::{self, Work};
use crate::units::Gps;

/// Samples between calls of the observer, on a GPU.
const BLOCK: usize = 1 << 15;
/// Blocks per round on a GPU: detectors run concurrently and synchronize after each round.
const ROUND: usize = 16;

/// Observer that only passes on the progress.
struct Watcher<'a>(&'a mut dyn FnMut(&Status) -> bool);

impl SearchObserver for Watcher<'_> {
    fn at(&mut self, status: &Status) -> bool {
        self.0(status)
    }
}

/// Search for coincident events in several detectors' strain.
pub struct ChirpSearch {
    options: SearchOptions,
    detectors: Vec<Ready>,
    coincidence: coincidence::Options,
    threads: Threads,
    /// Largest number of samples per block.
    most: usize,
    /// Whether detectors run concurrently: on a GPU, where the host only whitens.
    is_together: bool,
    /// Folder for whitened strain.
    folder: Option<PathBuf>,
}

impl ChirpSearch {
    /// Checks all inputs and designs missing banks.
    ///
    /// Each detector's strain comes with its templates or bank. All banks must have the same templates in the same
    /// order.
    ///
    /// # Errors
    /// [`Error::Parameter`] for detectors that are unknown, duplicated, too many, of different rates or without
    /// common time; for inconsistent windows and slides; for banks of other rates or templates; and for templates
    /// longer than the data. Also errors of the steps.
    pub fn new<S: Into<Strain>>(
        inputs: Vec<(S, Input)>,
        options: &SearchOptions,
        backend: &Backend,
    ) -> Result<Self> {
        let (strain, with): (Vec<Strain>, Vec<Input>) =
            inputs.into_iter().map(|(strain, input)| (strain.into(), input)).unzip();
        let named = strain.iter().map(|one| (one.detector.as_str(), one.path.as_path()));
        let coincidence = options.coincidence(windows(named, options.window_pad_s)?);
        if strain.len() > 1 {
            coincidence.check(strain.len())?;
        }
        common_span(&strain)?;
        let threads = backend.host().threads();
        let _kernels = prefetch(backend);
        let spectra = options.whitening.spectra(&strain);
        let all = strain.into_iter().zip(with).zip(spectra);
        let prepared =
            all.map(|((strain, input), psd)| Prepared::new(strain, input, psd, options, &threads));
        let mut prepared = prepared.collect::<Result<Vec<_>>>()?;
        let banks = prepared.iter_mut().map(|one| (one.strain.detector.as_str(), &mut one.bank));
        keep_common(&mut banks.collect::<Vec<_>>())?;
        let mut detectors = side_by_side(prepared, |one| {
            let _span = trace::span(Work::Compute, "detector's chain");
            Ready::new(one, options, backend)
        })?;
        check_templates(&detectors)?;
        let needs = detectors.iter().map(Ready::need);
        let most = Need::piece(options.memory, "the search for binaries", needs)?;
        if options.memory.is_some() {
            detectors.iter_mut().for_each(|one| one.chain.limit(most));
        }
        let (options, is_together) = (options.clone(), backend.is_gpu());
        Ok(Self { options, detectors, coincidence, threads, most, is_together, folder: None })
    }

    /// Returns each detector's name and bank.
    pub fn banks(&self) -> impl Iterator<Item = (&str, &Arc<Bank>)> {
        self.detectors.iter().map(|one| (one.strain.detector.as_str(), &one.bank))
    }

    /// Stores whitened strain in files of a folder (`checkpoint.H1.whitened`), so that memory does not grow with it.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn store_in(&mut self, folder: &Path) -> Result<()> {
        for ready in &mut self.detectors {
            let path = whitened_file(folder, &ready.strain.detector);
            ready.whitened = Whitened::in_file(&path, 0)?;
        }
        self.folder = Some(folder.to_path_buf());
        Ok(())
    }

    /// Restores the state of a search with the same strain, options and backend, [saved](SearchObserver::save)
    /// before, and each detector's triggers as its observer received them. Whitened strain continues in `folder`,
    /// where it was stored.
    ///
    /// # Errors
    /// [`Error::Format`] for a state that no such search saves; [`Error::Device`] when a GPU's driver refuses.
    pub fn resume(
        &mut self,
        folder: &Path,
        from: &mut Saved<'_>,
        triggers: Vec<Vec<Trigger>>,
    ) -> Result<()> {
        from.part("search")?;
        from.expect("detectors", self.detectors.len() as u64)?;
        let mut triggers = triggers.into_iter();
        for ready in &mut self.detectors {
            let times = ready.load(from, triggers.next().unwrap_or_default())?;
            let path = whitened_file(folder, &ready.strain.detector);
            ready.whitened = Whitened::in_file(&path, times)?;
        }
        self.folder = Some(folder.to_path_buf());
        from.end()
    }

    /// Runs the search. `observe` receives the progress and stops the search by returning false.
    ///
    /// # Errors
    /// Errors of the steps before any strain was searched; later ones, and stops, are in the report's ending.
    pub fn run(self, observe: &mut dyn FnMut(&Status) -> bool) -> Result<Report> {
        self.run_kept(&mut Watcher(observe))
    }

    /// Like [`Self::run`], with an observer that stores intermediate results.
    ///
    /// # Errors
    /// As [`Self::run`].
    pub fn run_kept(mut self, observer: &mut dyn SearchObserver) -> Result<Report> {
        let begin = Instant::now();
        let mut ending = match self.advance(observer) {
            Ok(ending) => ending,
            Err(error) if self.detectors.iter().all(|one| one.taken == 0) => return Err(error),
            Err(error) => Ending::after(error),
        };
        let is_resumable = match &ending {
            Ending::Stopped => true,
            Ending::Failed(error) => !matches!(**error, Error::Device { .. }),
            _ => false,
        };
        if is_resumable {
            let saved = self.unreported(true).and_then(|new| new.report(observer));
            if let Err(error) = saved {
                ending = failed(ending, error);
            }
        }
        for ready in &mut self.detectors {
            if let Err(error) = ready.flush() {
                ending = failed(ending, error);
            }
        }
        let reports: Vec<DetectorReport> = self.detectors.into_iter().map(Ready::report).collect();
        let found = match (coincide(&reports, &self.coincidence, &self.threads), &ending) {
            (Ok(found), _) => found,
            (Err(error), Ending::Complete | Ending::Cut(_)) => return Err(error),
            // Too little was searched for any event.
            (Err(_), _) => Found::default(),
        };
        let lengths = reports.iter().map(|report| report.duration_s);
        Ok(Report {
            data_s: lengths.fold(0.0, f64::max),
            detectors: reports,
            found,
            ending,
            elapsed_s: begin.elapsed().as_secs_f64(),
        })
    }

    /// Searches all detectors up to common times, so that all have reached the same time at a stop.
    fn advance(&mut self, observer: &mut dyn SearchObserver) -> Result<Ending> {
        let total = self.detectors.iter().map(|one| one.strain.times).sum();
        let times = self.detectors.iter().map(|one| one.taken).sum();
        let mut status = Status { times, total };
        let usual = match self.is_together {
            true => BLOCK,
            // One piece, so that the observer is called as often as possible.
            false => self.detectors.iter().map(|one| one.chain.piece()).max().unwrap_or(BLOCK),
        };
        let block = if self.options.block == 0 { usual } else { self.options.block };
        let block = block.min(self.most);
        let round = if self.is_together { ROUND * block } else { block };
        let starts = self.detectors.iter().map(|one| one.strain.start);
        let Some((first, rate_hz)) =
            starts.min().zip(self.detectors.first().map(|one| one.strain.rate_hz))
        else {
            return Ok(Ending::Complete);
        };
        let (mut rounds, mut is_going) = (0, true);
        let mut new = Unreported::default();
        while self.detectors.iter().any(|one| !one.has_ended) {
            rounds += round as i64;
            let until = first.plus_samples(rounds, rate_hz);
            let round = Round { until, block, new };
            let run = if self.is_together { concurrently } else { in_turn };
            is_going &= run(&mut self.detectors, round, &mut status, observer)?;
            if !is_going && self.detectors.iter().any(|one| !one.has_ended) {
                return Ok(Ending::Stopped);
            }
            new = self.unreported(observer.is_due())?;
        }
        new.report(observer)?;
        let mut cuts = self.detectors.iter().filter_map(Ready::cut);
        Ok(cuts.next().map_or(Ending::Complete, Ending::Cut))
    }

    /// Takes the triggers found since the last call, and a state if `is_saved`.
    fn unreported(&mut self, is_saved: bool) -> Result<Unreported> {
        if is_saved {
            // The state counts the triggers of all strain taken.
            self.detectors.iter_mut().try_for_each(|ready| ready.chain.settle())?;
        }
        let triggers = self.detectors.iter_mut().map(Ready::new_triggers).collect();
        let mut state = Saving::default();
        state.part("search");
        state.number(self.detectors.len() as u64);
        let mut is_whole = is_saved;
        for ready in self.detectors.iter().filter(|_| is_saved) {
            is_whole &= ready.save(&mut state)?;
        }
        Ok(Unreported { triggers, state: is_whole.then(|| state.finish()) })
    }
}

/// Results that the observer has not received: triggers of each detector, and the state after them if one is due.
#[derive(Default)]
struct Unreported {
    triggers: Vec<Vec<(Trigger, TimedTrigger)>>,
    state: Option<Vec<u8>>,
}

impl Unreported {
    fn report(self, observer: &mut dyn SearchObserver) -> Result<()> {
        let found = self.triggers.iter().enumerate().filter(|(_, new)| !new.is_empty());
        for (detector, new) in found {
            observer.found(detector, new)?;
        }
        self.state.map_or(Ok(()), |state| observer.save(state))
    }
}

/// Search of all detectors up to a time, in blocks of some samples.
struct Round {
    until: Gps,
    block: usize,
    /// Results of the round before, which the observer receives meanwhile.
    new: Unreported,
}

/// Returns the ending changed to the error, unless it already is a failure.
fn failed(ending: Ending, error: Error) -> Ending {
    match ending {
        Ending::Failed(_) => ending,
        _ => Ending::Failed(Arc::new(error)),
    }
}

/// Returns the path of a detector's whitened strain.
fn whitened_file(folder: &Path, detector: &str) -> PathBuf {
    folder.join(format!("checkpoint.{detector}.whitened"))
}

/// Searches one detector after another; returns false when the observer stopped the search.
fn in_turn(
    detectors: &mut [Ready],
    round: Round,
    status: &mut Status,
    observer: &mut dyn SearchObserver,
) -> Result<bool> {
    round.new.report(observer)?;
    let _span = trace::span(Work::Compute, "search");
    let (mut is_going, mut result) = (true, Ok(()));
    for ready in detectors {
        let advanced = ready.advance(round.until, round.block, &mut |times| {
            status.times += times;
            // All detectors reach the same time before a stop, or after an error of another detector.
            is_going &= observer.at(status);
            true
        });
        result = result.and(advanced.map(|_| ()));
    }
    result.map(|()| is_going)
}

/// Finds events among all detectors' triggers.
fn coincide(
    reports: &[DetectorReport],
    asked: &coincidence::Options,
    threads: &Threads,
) -> Result<Found> {
    let _span = trace::span(Work::Compute, "coincidence");
    check_good(reports)?;
    if let [only] = reports {
        return Ok(single_events(only, asked.cluster_s, asked.ranking));
    }
    let detectors: Vec<Detector<'_>> = reports
        .iter()
        .map(|report| Detector { triggers: &report.triggers, valid: &report.valid })
        .collect();
    coincidence::search_on(threads, &detectors, asked)
}

/// Returns the events of a single detector: the triggers that rank highest within `cluster_s`, best first, without
/// false-alarm rates.
fn single_events(report: &DetectorReport, cluster_s: f64, ranking: Ranking) -> Found {
    let rank = |trigger: &TimedTrigger| match ranking {
        Ranking::Reweighted => f64::from(trigger.reweighted()),
        Ranking::Snr => f64::from(trigger.snr),
    };
    let mut triggers: Vec<TimedTrigger> = report.triggers.clone();
    triggers.sort_by_key(|trigger| (trigger.gps, trigger.template));
    let near = |a: &TimedTrigger, b: &TimedTrigger| a.gps.seconds_since(b.gps).abs() <= cluster_s;
    let is_best = |place: usize| {
        let own = &triggers[place];
        let before = triggers[..place].iter().rev().take_while(|other| near(own, other));
        let after = triggers[place + 1..].iter().take_while(|other| near(own, other));
        before.into_iter().all(|other| rank(other) < rank(own))
            && after.into_iter().all(|other| rank(other) <= rank(own))
    };
    let event = |place: usize| {
        let trigger = triggers[place];
        Event {
            template: trigger.template,
            gps: trigger.gps,
            detectors: vec![Some(trigger)],
            network_snr: f64::from(trigger.snr),
            ranking: rank(&trigger),
            louder: 0,
            far_hz: None,
            far_sigma: None,
            false_alarm_probability: None,
        }
    };
    let mut events: Vec<Event> =
        (0..triggers.len()).filter(|place| is_best(*place)).map(event).collect();
    events.sort_by(|a, b| b.ranking.total_cmp(&a.ranking));
    Found { events, livetime_s: report.livetime_s, ..Found::default() }
}

/// Checks that two detectors, or the only one, have valid data.
fn check_good(reports: &[DetectorReport]) -> Result<()> {
    let least = reports.len().min(2);
    if reports.iter().filter(|report| report.livetime_s > 0.0).count() >= least {
        return Ok(());
    }
    let part = |report: &DetectorReport| {
        // The sum over no segments is -0.
        format!("{} has {} of {} s", report.name, report.livetime_s.abs(), report.duration_s)
    };
    let parts: Vec<String> = reports.iter().map(part).collect();
    let rule = format!(
        "there must be some of {}: {}. The rest is bad or missing data, gates (the spectrum may not be that of these \
         data), the ends where filters start, or what a running spectrum learned from",
        if least == 1 { "the detector" } else { "two detectors" },
        parts.join(", ")
    );
    Err(Error::parameter("strain that is good (s)", 0, rule))
}

/// Returns the longest time between coincident triggers of each pair of detectors, in seconds.
///
/// # Errors
/// [`Error::Parameter`] for an unknown detector, or one that appears twice.
pub(super) fn windows<'a>(
    recordings: impl Iterator<Item = (&'a str, &'a Path)>,
    pad_s: f64,
) -> Result<Vec<Vec<f64>>> {
    if !(0.0..=0.1).contains(&pad_s) {
        return Err(Error::parameter("window pad (s)", pad_s, "it must be 0 to 0.1"));
    }
    let mut places: Vec<&Interferometer> = Vec::new();
    for (detector, path) in recordings {
        let place = Interferometer::by_name(detector).ok_or_else(|| {
            let known: Vec<&str> = INTERFEROMETERS.iter().map(|one| one.name).collect();
            let (path, known) = (path.display(), known.join(", "));
            match detector {
                "" => {
                    let rule =
                        format!("{path} does not say whose it is; say NAME=FILE, of {known}");
                    Error::parameter("detector", "not named", rule)
                }
                other => {
                    let rule = format!("{path} is its recording, and known are {known}");
                    Error::parameter("detector", other, rule)
                }
            }
        })?;
        if places.iter().any(|other| other.name == place.name) {
            let rule =
                "it is there twice; files of one detector are joined when they are given as one";
            return Err(Error::parameter("detector", place.name, rule));
        }
        places.push(place);
    }
    let row = |own: &&Interferometer| {
        places.iter().map(|other| own.light_travel_s(other) + pad_s).collect()
    };
    Ok(places.iter().map(row).collect())
}

/// Checks that all banks have the same templates.
fn check_templates(detectors: &[Ready]) -> Result<()> {
    let Some((first, rest)) = detectors.split_first() else {
        return Err(Error::parameter("detectors", 0, "there must be at least one recording"));
    };
    rest.iter().try_for_each(|other| {
        let names = [&first.strain.detector, &other.strain.detector].map(String::as_str);
        check_same(names, [&first.bank.templates, &other.bank.templates])
    })
}

/// Checks that two detectors' banks have the same templates in the same order; the error names the first difference.
pub(super) fn check_same(detectors: [&str; 2], templates: [&[BankTemplate]; 2]) -> Result<()> {
    let [first, other] = templates;
    let rule = |first: &str| {
        let [one, two] = detectors;
        format!("{two} must have the same templates in the same order as {one}, which has {first}")
    };
    if first.len() != other.len() {
        return Err(Error::parameter("templates", other.len(), rule(&first.len().to_string())));
    }
    let pairs = first.iter().zip(other).enumerate();
    // Banks of earlier versions do not record their approximant.
    let differ = |a: &Option<String>, b: &Option<String>| a.is_some() && b.is_some() && a != b;
    let mut pairs = pairs.filter(|(_, (a, b))| {
        a.name != b.name || a.binary != b.binary || differ(&a.approximant, &b.approximant)
    });
    match pairs.next() {
        Some((index, (a, b))) => {
            let found = format!("{} at index {index}", describe(b));
            Err(Error::parameter("template", found, rule(&describe(a))))
        }
        None => Ok(()),
    }
}

/// Describes a template: its name, and its binary and approximant if known.
fn describe(template: &BankTemplate) -> String {
    let name = &template.name;
    let by = template.approximant.as_ref().map_or_else(String::new, |name| format!(", {name}"));
    template.binary.map_or_else(
        || name.clone(),
        |Binary { mass1_msun, mass2_msun, spin1z, spin2z }| {
            format!(
                "{name} (masses {mass1_msun} and {mass2_msun}, spins {spin1z} and {spin2z}{by})"
            )
        },
    )
}

/// Searches all detectors, each on its own thread; returns false when the observer stopped the search.
///
/// # Errors
/// Error of the observer, or of the first detector that failed.
fn concurrently(
    detectors: &mut [Ready],
    round: Round,
    status: &mut Status,
    observer: &mut dyn SearchObserver,
) -> Result<bool> {
    let Round { until, block, new } = round;
    let work = |ready: &mut Ready, progress: &mut dyn FnMut(u64) -> bool| {
        let _span = trace::span(Work::Compute, "search");
        ready.advance(until, block, progress)
    };
    let detectors = detectors.iter_mut().collect();
    Ok(run_concurrently(detectors, work, new, status, observer)?.is_some())
}

/// Runs `work` on all parts, each on a thread, while the observer receives `new`. `work` reports the samples done since
/// its last report, and must return `None` when the report returns false.
fn run_concurrently<T: Send, R: Send>(
    parts: Vec<T>,
    work: impl Fn(T, &mut dyn FnMut(u64) -> bool) -> Result<Option<R>> + Sync,
    new: Unreported,
    status: &mut Status,
    observer: &mut dyn SearchObserver,
) -> Result<Option<Vec<R>>> {
    let is_stopped = AtomicBool::new(false);
    let (mut is_refused, mut fault) = (false, None);
    let (progress, counts) = mpsc::channel::<u64>();
    let ended: Vec<_> = thread::scope(|scope| {
        let (stopped, work) = (&is_stopped, &work);
        let begin = |part: T| {
            let progress = progress.clone();
            scope.spawn(move || {
                work(part, &mut |times| {
                    progress.send(times).is_ok() && !stopped.load(Ordering::Relaxed)
                })
            })
        };
        let running: Vec<_> = parts.into_iter().map(begin).collect();
        drop(progress);
        if let Err(error) = new.report(observer) {
            (is_refused, fault) = (true, Some(error));
            is_stopped.store(true, Ordering::Relaxed);
        }
        for times in counts {
            status.times += times;
            // Parts may end before they notice the stop.
            if !is_refused && !observer.at(status) {
                is_refused = true;
                is_stopped.store(true, Ordering::Relaxed);
            }
        }
        running.into_iter().map(thread::ScopedJoinHandle::join).collect()
    });
    let mut reports = Vec::with_capacity(ended.len());
    for report in ended {
        match report.unwrap_or_else(|panic| std::panic::resume_unwind(panic)) {
            Ok(report) => reports.push(report),
            Err(error) => fault = fault.or(Some(error)),
        }
    }
    match fault {
        Some(error) => Err(error),
        None if is_refused => Ok(None),
        None => Ok(reports.into_iter().collect()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parts that report and end, whatever the report returns.
    fn ended(observe: &mut dyn FnMut(&Status) -> bool) -> Result<Option<Vec<u64>>> {
        let work = |part: u64, progress: &mut dyn FnMut(u64) -> bool| {
            let _ = progress(part);
            Ok(Some(part))
        };
        let mut status = Status { times: 0, total: 6 };
        let new = Unreported::default();
        run_concurrently(vec![1, 2, 3], work, new, &mut status, &mut Watcher(observe))
    }

    #[test]
    fn what_was_stopped_gives_no_reports_and_is_told_nothing_more() {
        let mut calls = 0;
        let refuse = &mut |_: &Status| {
            calls += 1;
            false
        };
        assert_eq!(ended(refuse).unwrap(), None);
        assert_eq!(calls, 1);
        let mut last = 0;
        let go_on = &mut |status: &Status| {
            last = status.times;
            true
        };
        assert_eq!(ended(go_on).unwrap(), Some(vec![1, 2, 3]));
        assert_eq!(last, 6);
    }
}
