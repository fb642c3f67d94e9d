//! Search of strain that arrives: every detector's chain at its own pace, and events as they are found.
//!
//! Invariant: final events are those of a [`ChirpSearch`](super::ChirpSearch) of the same strain with a spectrum that needs
//! no later strain.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;

use super::around::{Snapshot, Source, kept_samples};
use super::bank::{self, Input, design_whitened, keep_common};
use super::detector::{ChirpDetector, DetectorOptions, Latency, prefetch};
use super::options::{SearchOptions, Spectrum};
use super::ready::kept;
use super::report::Whitened;
use super::search::{check_same, windows};
use crate::backend::Backend;
use crate::error::{Error, Result};
use crate::math::PowerSpectrum;
use crate::pipeline::run::side_by_side;
use crate::spiir::bank::Bank;
use crate::spiir::coincidence::{
    BackgroundOptions, Change, Coincider, Event, OnlineBackground, Published, State, TimedTrigger,
    VETO_S,
};
use crate::state::{Saved, Saving};
use crate::units::{Gps, NS_PER_S};

/// A detector whose strain will arrive.
#[derive(Clone, Debug)]
pub struct Awaited {
    /// Two-character name of the detector: `H1`.
    pub detector: String,
    /// Templates or bank.
    pub input: Input,
}

/// One detector's chain.
struct Chain {
    detector: String,
    bank: Arc<Bank>,
    chain: ChirpDetector,
    /// Latest whitened strain, for the ratios around events.
    whitened: Whitened,
    taken: u64,
    triggers: u64,
    /// Loudest triggers of the last seconds, in order of time.
    loudest: VecDeque<Loudest>,
}

/// Loudest trigger of a second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Loudest {
    /// GPS second.
    pub second: i64,
    /// Its signal-to-noise ratio.
    pub snr: f32,
}

/// Seconds of which the loudest triggers are kept.
const LOUDEST_S: usize = 600;

/// Whitened strain of a time.
#[derive(Clone, Debug, PartialEq)]
pub struct WhitenedPart {
    /// Time of the first sample.
    pub start: Gps,
    /// Samples per second.
    pub rate_hz: u32,
    /// The samples, in standard deviations.
    pub samples: Vec<f32>,
}

/// State of one detector.
#[derive(Clone, Debug)]
pub struct OnlineDetector<'a> {
    /// Name of the detector.
    pub detector: &'a str,
    /// Its filters.
    pub bank: &'a Bank,
    /// Samples so far, with invalid ones.
    pub samples: u64,
    /// Triggers so far.
    pub triggers: u64,
    /// Times that its filters have restarted after a gap longer than their memory.
    pub restarts: u64,
    /// Templates whose filters have had strain for as long as they remember it.
    pub warm: usize,
    /// Time of strain after which all templates are warm, in seconds.
    pub warm_after_s: f64,
    /// Delay of its triggers relative to the strain.
    pub latency: Latency,
}

impl Injection {
    /// Returns whether a trigger of the event lies within it, or [`VETO_S`] around it.
    fn has(&self, event: &Event) -> bool {
        let trigger = event.detectors.get(self.detector).and_then(Option::as_ref);
        let (begin, end) = (self.begin.plus_s(-VETO_S), self.end.plus_s(VETO_S));
        trigger.is_some_and(|own| (begin..end).contains(&own.gps))
    }
}

/// Search for events in strain that arrives, detector by detector.
///
/// Strain of each detector is [pushed](Self::push) in blocks of any length, from a common [start](Self::begin) on; missing
/// strain is pushed as invalid samples or as a [gap](Self::gap). [`changes`](Self::changes) returns events as they are announced, change and become final.
///
/// # Numerics
/// As [`ChirpDetector`] and [`ChirpSearch`](super::ChirpSearch): final events are the same bits for any arrival.
pub struct OnlineSearch {
    chains: Vec<Chain>,
    coincider: Coincider,
    background: OnlineBackground,
    /// Hardware injections of each detector, as far as events of their time may still come.
    injections: Vec<Injection>,
    has_ended: bool,
}

/// Time of a hardware injection.
#[derive(Clone, Copy, Debug)]
struct Injection {
    detector: usize,
    begin: Gps,
    end: Gps,
}

impl Chain {
    /// Keeps a trigger if it is the loudest of its second.
    fn note(&mut self, trigger: &TimedTrigger) {
        let second = trigger.gps.ns.div_euclid(NS_PER_S);
        let place = self.loudest.partition_point(|one| one.second < second);
        match self.loudest.get_mut(place).filter(|one| one.second == second) {
            Some(one) => one.snr = one.snr.max(trigger.snr),
            None => self.loudest.insert(place, Loudest { second, snr: trigger.snr }),
        }
        if self.loudest.len() > LOUDEST_S {
            self.loudest.pop_front();
        }
    }
}

impl OnlineSearch {
    /// Checks the options and designs missing banks for strain of all detectors.
    ///
    /// # Errors
    /// [`Error::Parameter`] for a spectrum that is estimated from a whole recording, for detectors that are unknown,
    /// duplicated or too many, and for banks of other rates or templates; errors of the steps.
    pub fn new(
        awaited: Vec<Awaited>,
        rate_hz: u32,
        options: &SearchOptions,
        backend: &Backend,
    ) -> Result<Self> {
        let (Spectrum::Given(psd) | Spectrum::Causal(psd, _)) = &options.whitening.spectrum else {
            let rule = "strain that arrives needs one that is known beforehand";
            return Err(Error::parameter("power spectrum", "of the whole recording", rule));
        };
        let nowhere = Path::new("");
        let named = awaited.iter().map(|one| (one.detector.as_str(), nowhere));
        let coincidence = options.coincidence(windows(named, options.window_pad_s)?);
        let names = awaited.iter().map(|one| one.detector.clone()).collect();
        let threads = backend.host().threads();
        let coincider = Coincider::new(awaited.len(), coincidence.clone(), &threads)?;
        let _kernels = prefetch(backend);
        let whitening = &options.whitening;
        let mut designed = None::<(Arc<bank::Source>, Arc<Bank>)>;
        let mut banks = Vec::with_capacity(awaited.len());
        for Awaited { detector, input } in awaited {
            // All detectors have the same spectrum, so those that share templates share a bank.
            let bank = match input {
                Input::Bank(bank) => bank,
                Input::Templates(source) => {
                    let own = designed.as_ref().filter(|(same, _)| Arc::ptr_eq(&source, same));
                    match own.map(|(_, bank)| Arc::clone(bank)) {
                        Some(bank) => bank,
                        None => {
                            let made = design_whitened(&source, psd, whitening, &threads, None)?;
                            let bank = Arc::new(made);
                            designed = Some((source, Arc::clone(&bank)));
                            bank
                        }
                    }
                }
            };
            bank.some_left()?;
            banks.push((detector, bank));
        }
        let shared = banks.iter_mut().map(|(detector, bank)| (detector.as_str(), bank));
        keep_common(&mut shared.collect::<Vec<_>>())?;
        if let Some(((first, one), rest)) = banks.split_first() {
            for (other, bank) in rest {
                check_same([first, other], [&one.templates, &bank.templates])?;
            }
        }
        let chains = side_by_side(banks, |(detector, bank)| {
            let chain = DetectorOptions {
                whitening: whitening.options(rate_hz, psd, bank.options.f_low_hz),
                threshold: options.threshold,
                window_s: options.window_s,
                gate_pad_s: options.gate_pad_s,
            };
            let start = Gps { ns: 0 };
            let chain = ChirpDetector::of_triggers(start, &bank, &chain, backend)?;
            let whitened = Whitened::latest(kept_samples(&bank));
            let (taken, triggers, loudest) = (0, 0, VecDeque::new());
            Ok(Chain { detector, bank, chain, whitened, taken, triggers, loudest })
        })?;
        let templates = chains.first().map_or(&[][..], |one: &Chain| &one.bank.templates);
        let masses = templates.iter().map(|one| Some(one.binary?.chirp_mass_msun()));
        let background = BackgroundOptions {
            detectors: names,
            coincidence,
            threshold: options.threshold,
            chirp_masses_msun: masses.collect(),
        };
        let background = OnlineBackground::new(background, &threads)?;
        let (injections, has_ended) = (Vec::new(), false);
        Ok(Self { chains, coincider, background, injections, has_ended })
    }

    /// Returns the background, which rates events.
    pub fn background(&self) -> &OnlineBackground {
        &self.background
    }

    /// Restores the background of an earlier search, before any strain is pushed.
    ///
    /// # Errors
    /// As [`OnlineBackground::load`].
    pub fn load_background(&mut self, from: &mut Saved<'_>) -> Result<()> {
        self.background.load(from)
    }

    /// Marks the time of a hardware injection in a detector, before its strain is pushed.
    pub fn mark_injection(&mut self, detector: usize, begin: Gps, end: Gps) {
        self.injections.push(Injection { detector, begin, end });
        self.background.exclude(begin, end);
    }

    /// Sets the time of the first sample of all detectors; call it before that.
    pub fn begin(&mut self, start: Gps) {
        self.chains.iter_mut().for_each(|one| one.chain.begin(start));
        self.background.begin(start);
    }

    /// Returns the whitened strain of a detector in a time, as far as it is kept; `None` if none is.
    ///
    /// # Errors
    /// As [`Whitened::read`].
    pub fn whitened(
        &self,
        detector: usize,
        start: Gps,
        seconds: f64,
    ) -> Result<Option<WhitenedPart>> {
        let Chain { bank, chain, whitened, .. } = &self.chains[detector];
        let rate_hz = bank.rate_hz;
        let place = |gps: Gps| {
            let sample = gps.seconds_since(chain.start()) * f64::from(rate_hz);
            (sample.round().max(0.0) as u64).clamp(whitened.first, whitened.times())
        };
        let (from, to) = (place(start), place(start.plus_s(seconds)));
        let samples = whitened.samples(from..to)?;
        let start = chain.start().plus_samples(from as i64, rate_hz);
        Ok((!samples.is_empty()).then_some(WhitenedPart { start, rate_hz, samples }))
    }

    /// Returns the spectrum with which a detector's strain is whitened now.
    pub fn psd(&self, detector: usize) -> Option<PowerSpectrum> {
        self.chains[detector].chain.psd()
    }

    /// Returns the loudest trigger of each of the last 600 seconds that have one, of a detector, in order of time.
    pub fn loudest(&self, detector: usize) -> impl Iterator<Item = Loudest> + '_ {
        self.chains[detector].loudest.iter().copied()
    }

    /// Searches a detector's next samples. A GPU may still work on them when the call returns, while the host whitens those of
    /// other detectors.
    ///
    /// # Errors
    /// [`Error::Shape`] when the slices differ in length; errors of a GPU.
    pub fn push(&mut self, detector: usize, samples: &[f64], valid: &[bool]) -> Result<()> {
        let Chain { chain, whitened, taken, .. } = &mut self.chains[detector];
        kept(whitened, |observe| chain.run(samples, valid, observe))?;
        *taken += samples.len() as u64;
        Ok(())
    }

    /// Processes a detector's next samples of a gap, at most `samples` and about a second if they take time; returns their
    /// number. The result is that of as many invalid samples.
    ///
    /// # Errors
    /// Errors of a GPU.
    pub fn gap(&mut self, detector: usize, samples: u64) -> Result<u64> {
        let Chain { chain, whitened, taken, .. } = &mut self.chains[detector];
        let mut count = 0;
        kept(whitened, |observe| {
            count = chain.gap(samples, observe)?;
            Ok(())
        })?;
        *taken += count;
        Ok(count)
    }

    /// Ends all streams as if silence followed: all events become final.
    ///
    /// # Errors
    /// Errors of a GPU.
    pub fn end(&mut self) -> Result<()> {
        for Chain { chain, whitened, .. } in &mut self.chains {
            kept(whitened, |observe| chain.flush(observe))?;
        }
        (0..self.chains.len()).try_for_each(|detector| self.take(detector))?;
        self.coincider.end();
        self.has_ended = true;
        Ok(())
    }

    /// Waits for the triggers of all samples, and appends the changes of events. An event is announced once the triggers of each
    /// detector are decided up to its time; `waited` has, for each detector, the GPS time up to which no trigger is awaited. Events are rated by the background of
    /// the strain before them, which is then extended.
    ///
    /// # Errors
    /// As [`Coincider::changes`]; errors of a GPU.
    pub fn changes(&mut self, waited: &[Gps], changes: &mut Vec<Change>) -> Result<()> {
        (0..self.chains.len()).try_for_each(|detector| self.take(detector))?;
        let first = changes.len();
        self.coincider.changes(waited, changes)?;
        let (ended, chains) = (self.coincider.ended(), &self.chains);
        let valid = &mut |detector: usize, time| chains[detector].chain.valid(time);
        for change in &mut changes[first..] {
            // A final event is rated by the strain before it, whenever it becomes final.
            self.background.absorb(change.event.gps.min(ended), valid);
            change.is_injection = self.injections.iter().any(|one| one.has(&change.event));
            change.significance = self.background.significance(&change.event);
            change.event.far_hz = change.significance.map(|own| own.far_hz);
            exclude_signal(&mut self.background, change);
        }
        if !self.has_ended {
            self.background.absorb(ended, valid);
            self.injections.retain(|one| one.end.plus_s(VETO_S) >= ended);
        }
        Ok(())
    }

    /// Returns copies of the strain of an event's detectors, for the ratios of its template `half_s` seconds before and after each
    /// trigger.
    ///
    /// # Errors
    /// As [`Spiir::new`](crate::spiir::Spiir::new).
    pub fn snapshots(&self, event: &Event, half_s: f64) -> Result<Vec<Snapshot>> {
        let pairs = self.chains.iter().zip(&event.detectors);
        let seen = pairs.filter_map(|(chain, trigger)| Some((chain, (*trigger)?)));
        let snapshot = |(chain, trigger): (&Chain, TimedTrigger)| {
            let Chain { detector, bank, whitened, .. } = chain;
            let source = Source { detector, bank, start: chain.chain.start(), whitened };
            let psd = chain.chain.psd().unwrap_or_else(|| bank.psd.clone());
            Snapshot::new(source, psd, trigger.template, trigger.gps, half_s)
        };
        seen.map(snapshot).collect()
    }

    /// Returns changes with the time that the search has reached, for [`resume`](Self::resume).
    pub fn published(&self, changes: Vec<Change>) -> Published {
        self.coincider.published(changes)
    }

    /// Saves the state; returns false for the reference backend, which cannot be saved. Call it after [`changes`](Self::changes).
    ///
    /// # Errors
    /// [`Error::Device`] when earlier work on a GPU failed; [`Error::Unavailable`] when triggers of a GPU are outstanding.
    pub fn save(&self, to: &mut Saving) -> Result<bool> {
        to.part("online search");
        to.number(self.chains.len() as u64);
        for one in &self.chains {
            to.number(one.taken);
            to.number(one.triggers);
            if !one.chain.save(to)? {
                return Ok(false);
            }
        }
        self.coincider.save(to);
        self.background.save_all(to);
        to.number(self.injections.len() as u64);
        for one in &self.injections {
            to.number(one.detector as u64);
            to.signed(one.begin.ns);
            to.signed(one.end.ns);
        }
        Ok(true)
    }

    /// Restores the state of a search with the same detectors, filters, options, backend and start.
    ///
    /// # Errors
    /// [`Error::Format`] for a state that no such search saves; [`Error::Device`] when a GPU's driver refuses.
    pub fn load(&mut self, from: &mut Saved<'_>) -> Result<()> {
        from.part("online search")?;
        from.expect("detectors", self.chains.len() as u64)?;
        for one in &mut self.chains {
            (one.taken, one.triggers) = (from.number()?, from.number()?);
            one.chain.load(from, Vec::new())?;
        }
        self.coincider.load(from)?;
        self.background.load_all(from)?;
        self.injections.clear();
        for _ in 0..from.number()? {
            let detector = from.at_most(self.chains.len() - 1)?;
            let (begin, end) = (Gps { ns: from.signed()? }, Gps { ns: from.signed()? });
            self.injections.push(Injection { detector, begin, end });
        }
        Ok(())
    }

    /// Takes changes that were published after the state was saved: strain that comes again does not repeat them.
    pub fn resume(&mut self, published: &Published) {
        self.coincider.take_published(published);
        for change in &published.changes {
            exclude_signal(&mut self.background, change);
        }
    }

    /// Returns the state of each detector.
    pub fn detectors(&self) -> impl Iterator<Item = OnlineDetector<'_>> {
        self.chains.iter().map(|one| OnlineDetector {
            detector: &one.detector,
            bank: &one.bank,
            samples: one.taken,
            triggers: one.triggers,
            restarts: one.chain.restarts(),
            warm: one.chain.warm(),
            warm_after_s: one.chain.warm_after_s(),
            latency: one.chain.latency(),
        })
    }

    /// Ends the search, and returns each detector's time in seconds in which triggers were possible.
    pub fn livetimes_s(self) -> Vec<f64> {
        self.chains.into_iter().map(|one| one.chain.finish().1.duration_s()).collect()
    }

    /// Takes a detector's triggers that are final.
    fn take(&mut self, detector: usize) -> Result<()> {
        let chain = &mut self.chains[detector];
        let triggers: Vec<_> = chain.chain.take_triggers()?.collect();
        chain.triggers += triggers.len() as u64;
        for trigger in &triggers {
            chain.note(trigger);
        }
        self.background.push(detector, triggers.iter().copied());
        self.coincider.push(detector, triggers.into_iter(), chain.chain.decided());
        Ok(())
    }
}

/// Keeps the surroundings of a final signal out of the background.
fn exclude_signal(background: &mut OnlineBackground, change: &Change) {
    let is_signal = change.significance.is_some_and(|own| own.is_signal());
    if is_signal && change.state == State::Final {
        background.exclude(change.event.gps, change.event.gps);
    }
}
