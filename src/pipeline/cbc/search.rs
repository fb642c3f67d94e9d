//! Search for coincident events: every detector's chain, then coincidence.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Instant;

use super::bank::{Input, keep_common};
use super::detector::{Need, prefetch};
use super::divided::{Part, Sent, check_alike, join_states, split_states};
use super::options::{SearchObserver, SearchOptions, Status};
use super::ready::{Prepared, Ready};
use super::report::{DetectorReport, Report, Whitened};
use super::strain::{Strain, common_span};
use crate::backend::threads::Threads;
use crate::backend::{Backend, Host};
use crate::error::{Error, Result};
use crate::geometry::{INTERFEROMETERS, Interferometer};
use crate::math::PowerSpectrum;
use crate::pipeline::exchange::{Ranks, State};
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
/// Blocks per round of ranks on the host, which synchronize after it: about half a second of work, so that all stop soon after a
/// signal to one.
const HOST_ROUND: usize = 8;

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
    /// The processes that divide the templates, if there are several.
    ranks: Option<Ranks>,
    /// States to resume, one for each rank.
    resumed: Vec<Vec<u8>>,
    /// Samples before which rank 0 has all triggers, for each detector.
    gathered: Vec<u64>,
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
        Self::built(inputs, options, backend, None)
    }

    /// Like [`Self::new`], for one of several ranks, which have the same arguments, but for the threads, the memory limit and the
    /// number of the GPU. Of [`Input::Templates`], each of `n` ranks has every `n`-th waveform, from its own number on, and designs its
    /// filters; of banks it has all. It searches a part of the templates in the strain of all detectors, which it reads and whitens
    /// itself. Rank 0 runs the search ([`Self::run_kept`]) and gets the report of a single process; the others
    /// [assist](Self::assist).
    ///
    /// # Errors
    /// As [`Self::new`]; [`Error::Parameter`] for more ranks than templates, or than the parts into which GPUs divide them;
    /// [`Error::Unavailable`] that names a rank that has failed, or has other data or options; errors of the exchange.
    pub fn divided<S: Into<Strain>>(
        inputs: Vec<(S, Input)>,
        options: &SearchOptions,
        backend: &Backend,
        ranks: Ranks,
    ) -> Result<Self> {
        Self::built(inputs, options, backend, Some(ranks))
    }

    fn built<S: Into<Strain>>(
        inputs: Vec<(S, Input)>,
        options: &SearchOptions,
        backend: &Backend,
        mut ranks: Option<Ranks>,
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
        if let Some(ranks) = &mut ranks {
            check_alike(ranks, &settings(backend, &strain, &spectra))?;
        }
        let all = strain.into_iter().zip(with).zip(spectra);
        let prepared = all.map(|((strain, input), psd)| {
            Prepared::new(strain, input, psd, options, &threads, ranks.as_mut())
        });
        let mut prepared = prepared.collect::<Result<Vec<_>>>()?;
        let banks = prepared.iter_mut().map(|one| (one.strain.detector.as_str(), &mut one.bank));
        keep_common(&mut banks.collect::<Vec<_>>())?;
        let part = Part::of(ranks.as_ref());
        let mut detectors = side_by_side(prepared, |one| {
            let _span = trace::span(Work::Compute, "detector's chain");
            Ready::new(one, options, backend, part)
        })?;
        check_templates(&detectors)?;
        let needs = detectors.iter().map(Ready::need);
        let most = Need::piece(options.memory, "the search for binaries", needs)?;
        if options.memory.is_some() {
            detectors.iter_mut().for_each(|one| one.chain.limit(most));
        }
        let gathered = vec![0; detectors.len()];
        Ok(Self {
            options: options.clone(),
            detectors,
            coincidence,
            threads,
            most,
            is_together: backend.is_gpu(),
            folder: None,
            ranks,
            resumed: Vec::new(),
            gathered,
        })
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
        self.folder = Some(folder.to_path_buf());
        match &self.ranks {
            None => self.load(from, triggers),
            Some(ranks) => {
                // The other ranks get theirs when the search begins.
                self.resumed = split_states(from, ranks.count())?;
                let own = std::mem::take(&mut self.resumed[0]);
                self.load(&mut Saved::new(folder, 0, &own)?, triggers)
            }
        }
    }

    /// Restores the state of this process.
    fn load(&mut self, from: &mut Saved<'_>, triggers: Vec<Vec<Trigger>>) -> Result<()> {
        from.part("search")?;
        from.expect("detectors", self.detectors.len() as u64)?;
        let mut triggers = triggers.into_iter();
        for ready in &mut self.detectors {
            let times = ready.load(from, triggers.next().unwrap_or_default())?;
            if let Some(folder) = &self.folder {
                let path = whitened_file(folder, &ready.strain.detector);
                ready.whitened = Whitened::in_file(&path, times)?;
            }
        }
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
        let ending = self.search(observer)?;
        let is_divided = self.ranks.is_some();
        let ends = self.gathered.iter().map(|end| {
            // Later triggers of other ranks may be missing after a failure.
            (is_divided && matches!(ending, Ending::Failed(_))).then_some(*end)
        });
        let reports = self.detectors.into_iter().zip(ends);
        let reports: Vec<DetectorReport> =
            side_by_side(reports.collect(), |(ready, end)| Ok(ready.report(end)))?;
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

    /// Searches this rank's templates, for ranks other than 0. `observe` receives the progress and stops the search of all ranks by
    /// returning false.
    ///
    /// # Errors
    /// The error that ended the search of all ranks; [`Error::stopped`] for a stop.
    pub fn assist(mut self, observe: &mut dyn FnMut(&Status) -> bool) -> Result<()> {
        match self.search(&mut Watcher(observe))? {
            Ending::Complete | Ending::Cut(_) => Ok(()),
            other => Err(other.error()),
        }
    }

    /// Searches to the end of the strain, to a stop, or to a failure.
    ///
    /// # Errors
    /// Errors before any strain was searched.
    fn search(&mut self, observer: &mut dyn SearchObserver) -> Result<Ending> {
        self.hand_out()?;
        let (mut ending, new) = match self.advance(observer) {
            Ok(ended) => ended,
            Err(error) if self.is_at_start() => return Err(error),
            Err(error) => (Ending::after(error), Unreported::default()),
        };
        let is_resumable = match &ending {
            Ending::Stopped => true,
            // The ranks that have not failed may be at another time.
            Ending::Failed(error) => {
                self.ranks.is_none() && !matches!(**error, Error::Device { .. })
            }
            _ => false,
        };
        if is_resumable && let Err(error) = self.save(new, observer) {
            ending = failed(ending, error);
        }
        if let (Some(ranks), Ending::Failed(_)) = (&mut self.ranks, &ending) {
            ranks.leave();
            return Ok(ending);
        }
        let ended = self.end();
        if let Some(ranks) = &mut self.ranks {
            ranks.finish();
        }
        Ok(match ended {
            Ok(()) => ending,
            Err(error) => failed(ending, error),
        })
    }

    /// Reports the triggers of the last round, and then the state at its end.
    fn save(&mut self, new: Unreported, observer: &mut dyn SearchObserver) -> Result<()> {
        let mut own = new.report(observer).and_then(|()| self.unreported(true));
        if let Some(ranks) = &mut self.ranks {
            own = ranks.agree_on(own);
        }
        self.gather(own?)?.report(observer)
    }

    /// Ends the streams of all detectors, and gathers the last triggers.
    fn end(&mut self) -> Result<()> {
        let mut flushed = Ok(());
        for ready in &mut self.detectors {
            flushed = flushed.and(ready.flush());
        }
        let Some(ranks) = &mut self.ranks else { return flushed };
        ranks.agree_on(flushed)?;
        let own = self.unreported(false)?;
        self.gather(own).map(|_| ())
    }

    /// Returns whether nothing was searched, or nothing that all ranks have searched.
    fn is_at_start(&self) -> bool {
        match self.ranks {
            None => self.detectors.iter().all(|one| one.taken == 0),
            Some(_) => self.gathered.iter().all(|samples| *samples == 0),
        }
    }

    /// Gives each rank the state to resume, if there is one.
    fn hand_out(&mut self) -> Result<()> {
        let Some(ranks) = &mut self.ranks else { return Ok(()) };
        let mut states = std::mem::take(&mut self.resumed);
        states.resize(ranks.count(), Vec::new());
        let own = ranks.exchange(Ok(states))?.swap_remove(0);
        let loaded = match own.is_empty() {
            true => Ok(()),
            false => {
                let from = Saved::new(Path::new("state of rank 0"), 0, &own);
                from.and_then(|mut from| self.load(&mut from, Vec::new()))
            }
        };
        self.ranks.as_mut().map_or(Ok(()), |ranks| ranks.agree_on(loaded))
    }

    /// Searches all detectors up to common times, so that all have reached the same time at a stop.
    ///
    /// Returns what has not been reported after a stop.
    fn advance(&mut self, observer: &mut dyn SearchObserver) -> Result<(Ending, Unreported)> {
        let total = self.detectors.iter().map(|one| one.strain.times).sum();
        let times = self.detectors.iter().map(|one| one.taken).sum();
        let mut status = Status { times, total };
        let Steps { block, round } = self.steps()?;
        let starts = self.detectors.iter().map(|one| one.strain.start);
        let Some((first, rate_hz)) =
            starts.min().zip(self.detectors.first().map(|one| one.strain.rate_hz))
        else {
            return Ok((Ending::Complete, Unreported::default()));
        };
        let (mut rounds, mut is_going, mut is_due) = (0, true, false);
        let mut new = Unreported::default();
        while self.detectors.iter().any(|one| !one.has_ended) {
            rounds += round as i64;
            let until = first.plus_samples(rounds, rate_hz);
            let round = Round { until, block, new };
            let run = if self.is_together { concurrently } else { in_turn };
            let done = run(&mut self.detectors, round, &mut status, observer);
            if self.ranks.is_none() {
                is_due = matches!(done, Ok(true)) && observer.is_due();
            }
            let agreed = self.agree(done, is_due, observer)?;
            is_going &= agreed.is_going;
            if !is_going && self.detectors.iter().any(|one| !one.has_ended) {
                return Ok((Ending::Stopped, agreed.new));
            }
            (new, is_due) = (agreed.new, agreed.is_due);
        }
        new.report(observer)?;
        let mut cuts = self.detectors.iter().filter_map(Ready::cut);
        Ok((cuts.next().map_or(Ending::Complete, Ending::Cut), Unreported::default()))
    }

    /// Returns the samples of a block and of a round, the same for all ranks.
    fn steps(&mut self) -> Result<Steps> {
        let usual = match self.is_together {
            true => BLOCK,
            // One piece, so that the observer is called as often as possible.
            false => self.detectors.iter().map(|one| one.chain.piece()).max().unwrap_or(BLOCK),
        };
        let block = if self.options.block == 0 { usual } else { self.options.block };
        let mut block = block.min(self.most);
        if let Some(ranks) = &mut self.ranks {
            block = ranks.least(block as u64)? as usize;
        }
        let blocks = match (self.is_together, &self.ranks) {
            (true, _) => ROUND,
            (false, Some(_)) => HOST_ROUND,
            (false, None) => 1,
        };
        Ok(Steps { block, round: blocks * block })
    }

    /// Collects the triggers of a round, and a state if `is_due`; with ranks, if all have done the round. Returns whether all
    /// go on.
    ///
    /// # Errors
    /// The error of the round; for ranks, an error that names the one that failed.
    fn agree(
        &mut self,
        done: Result<bool>,
        is_due: bool,
        observer: &mut dyn SearchObserver,
    ) -> Result<Agreed> {
        let done = done.and_then(|is_going| {
            // A search that stops saves its state on its own.
            let is_due = is_due && is_going;
            self.unreported(is_due).map(|new| Agreed { is_going, is_due: false, new })
        });
        let Some(ranks) = &mut self.ranks else { return done };
        let state = match &done {
            Ok(Agreed { is_going: true, .. }) => State::GoesOn,
            Ok(_) => State::Stopped,
            Err(_) => State::Failed,
        };
        // Rank 0 announces one round ahead that a state is due.
        let is_next_due = ranks.own() == 0 && !is_due && observer.is_due();
        let agreement = ranks.agree(state, u64::from(!is_next_due))?;
        if agreement.state < State::Stopped {
            ranks.finish();
            done?;
            return Err(agreement.failure());
        }
        let is_going = agreement.state == State::GoesOn;
        let new = self.gather(done?.new)?;
        Ok(Agreed { is_going, is_due: is_going && agreement.number == 0, new })
    }

    /// Gathers the triggers and states of all ranks at rank 0, which adds them to its own.
    fn gather(&mut self, own: Unreported) -> Result<Unreported> {
        let Some(ranks) = &mut self.ranks else { return Ok(own) };
        if ranks.own() > 0 {
            ranks.gather(own.sent.unwrap_or_default().to_bytes())?;
            self.gathered = self.detectors.iter().map(Ready::certain).collect();
            return Ok(Unreported::default());
        }
        let all = ranks.gather(Vec::new())?;
        let mut least: Vec<u64> = self.detectors.iter().map(Ready::certain).collect();
        let is_saved = own.state.is_some();
        let (mut states, mut triggers) = (Vec::new(), own.triggers);
        for (rank, bytes) in all.iter().enumerate().skip(1) {
            let sent = Sent::of_bytes(rank, bytes)?;
            let places = self.detectors.iter_mut().zip(&mut triggers).zip(&mut least);
            for (((ready, new), least), sent) in places.zip(sent.detectors) {
                ready.receive(&sent.triggers);
                new.extend(ready.new_triggers());
                *least = (*least).min(sent.decided);
            }
            states.push(sent.state);
        }
        self.gathered = least;
        // The state of rank 0 counts the triggers of all.
        states.insert(0, if is_saved { self.state()? } else { None });
        let states: Option<Vec<Vec<u8>>> = states.into_iter().collect();
        Ok(Unreported { triggers, state: states.map(|states| join_states(&states)), sent: None })
    }

    /// Takes the triggers found since the last call, and a state if `is_saved`.
    fn unreported(&mut self, is_saved: bool) -> Result<Unreported> {
        if is_saved {
            // The state counts the triggers of all strain taken.
            self.detectors.iter_mut().try_for_each(|ready| ready.chain.settle())?;
        }
        let is_sent = self.ranks.as_ref().is_some_and(|ranks| ranks.own() > 0);
        if is_sent {
            let detectors = self.detectors.iter_mut().map(Ready::hand_over).collect();
            let state = if is_saved { self.state()? } else { None };
            return Ok(Unreported {
                sent: Some(Sent { detectors, state }),
                ..Unreported::default()
            });
        }
        let triggers = match self.is_together {
            true => self.threads.map(self.detectors.iter_mut().collect(), Ready::new_triggers),
            // A block has few.
            false => self.detectors.iter_mut().map(Ready::new_triggers).collect(),
        };
        let state = if is_saved { self.state()? } else { None };
        Ok(Unreported { triggers, state, sent: None })
    }

    /// Returns the state of this process; `None` if it cannot be saved.
    fn state(&self) -> Result<Option<Vec<u8>>> {
        let mut state = Saving::default();
        state.part("search");
        state.number(self.detectors.len() as u64);
        let mut is_whole = true;
        for ready in &self.detectors {
            is_whole &= ready.save(&mut state)?;
        }
        Ok(is_whole.then(|| state.finish()))
    }
}

/// Samples of a block, and of a round, after which detectors and ranks have reached the same time.
#[derive(Clone, Copy, Debug)]
struct Steps {
    block: usize,
    round: usize,
}

/// Result of a round on which all ranks agree.
struct Agreed {
    is_going: bool,
    /// Whether a state is due after the next round.
    is_due: bool,
    new: Unreported,
}

/// Returns everything that ranks must have alike, with its name.
fn settings(
    backend: &Backend,
    strain: &[Strain],
    spectra: &[Result<PowerSpectrum>],
) -> [(&'static str, String); 3] {
    let level = match backend.host() {
        Host::Reference => "reference",
        Host::Cpu(level, _) => level.name(),
    };
    let device = match backend {
        Backend::Cuda(device, _) => format!("{level}, {}", device.properties().name),
        _ => level.to_owned(),
    };
    let of = |one: &Strain| format!("{one:?} at {} Hz", one.rate_hz);
    let strain: Vec<String> = strain.iter().map(of).collect();
    // Errors are those of the strain, and come later.
    let sum = |psd: &PowerSpectrum| psd.densities().iter().sum::<f64>();
    let spectra: Vec<Option<f64>> = spectra.iter().map(|psd| psd.as_ref().ok().map(sum)).collect();
    let spectra = format!("one with the sum {spectra:?}");
    [("device", device), ("strain", strain.join("; ")), ("power spectrum", spectra)]
}

/// Results that the observer has not received: triggers of each detector, and the state after them if one is due.
#[derive(Default)]
struct Unreported {
    triggers: Vec<Vec<(Trigger, TimedTrigger)>>,
    state: Option<Vec<u8>>,
    /// Results of another rank than 0, for rank 0.
    sent: Option<Sent>,
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
