//! False-alarm rates of a live search, from a background that is learned from its triggers as they arrive.
//!
//! Invariant: the background depends on the triggers and the valid time alone, never on when they arrive.

use std::ops::Range;
use std::path::Path;

use super::density::{Distribution, Histogram, Likelihood, Signal, Tail};
use super::search::{Slid, nanoseconds};
use super::segments::Segments;
use super::{Detector, Event, MAX_DETECTORS, Options, TimedTrigger};
use crate::backend::threads::Threads;
use crate::error::{Error, Result};
use crate::state::{Saved, Saving};
use crate::units::{Gps, SECONDS_PER_DAY, SECONDS_PER_YEAR};

/// Edges of the bins of chirp mass, in solar masses; the first and the last bin are open, and one more is for templates
/// without masses.
pub const MASS_EDGES_MSUN: [f64; 6] = [2.0, 4.0, 8.0, 16.0, 32.0, 64.0];
const BINS: usize = MASS_EDGES_MSUN.len() + 2;

/// Time constant, in seconds of valid time, of the exponential decay of old counts.
pub const MEMORY_S: f64 = 7.0 * SECONDS_PER_DAY;

/// Rate in Hz below which an event counts as a signal: 12 a year. Its surroundings do not enter the background.
pub const SIGNAL_HZ: f64 = 12.0 / SECONDS_PER_YEAR;

/// Time in seconds around signals and injections that does not enter the background.
pub const VETO_S: f64 = 1.0;

/// Length in nanoseconds of the pieces of strain that are added to the background; rates are computed anew after each.
const CHUNK_NS: i64 = 16_000_000_000;

/// Time slides of each piece of strain. With them, steps of a fifth of it give no two detectors the same offset.
const SLIDES: usize = 4;

/// Least number of triggers of a detector and mass bin, and of events of the slides, for which rates are computed.
const LEAST: f64 = 100.0;

/// Bins of the ranking of coincidences, and their width.
const RANKINGS: usize = 400;
const RANKING_STEP: f64 = 0.1;

/// Points of each dimension at which the volume of coincidence is sampled.
const POINTS: usize = 200;

/// Most bytes of a background in a saved state.
const MOST_BYTES: usize = 1 << 32;

/// Version of saved backgrounds.
const VERSION: u64 = 1;

/// Search that a background is for.
#[derive(Clone, Debug, PartialEq)]
pub struct BackgroundOptions {
    /// Names of the detectors.
    pub detectors: Vec<String>,
    /// Coincidence of the search.
    pub coincidence: Options,
    /// Lowest signal-to-noise ratio of a trigger.
    pub threshold: f32,
    /// Chirp mass of each template in solar masses, if known.
    pub chirp_masses_msun: Vec<Option<f64>>,
}

/// Significance of an event.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Significance {
    /// Natural logarithm of the likelihood ratio of signal and noise; the density of noise is that of events per second.
    pub log_likelihood_ratio: f64,
    /// Rate in Hz of accidental events of at least this likelihood ratio.
    pub far_hz: f64,
}

impl Significance {
    /// Saves a significance, or that there is none.
    pub(super) fn save(own: Option<&Self>, to: &mut Saving) {
        to.number(own.is_some().into());
        if let Some(own) = own {
            to.f64s([own.log_likelihood_ratio, own.far_hz].iter());
        }
    }

    /// Loads what [`Self::save`] has saved.
    ///
    /// # Errors
    /// [`Error::Format`] for something else.
    pub(super) fn load(from: &mut Saved<'_>) -> Result<Option<Self>> {
        if from.at_most(1)? == 0 {
            return Ok(None);
        }
        let mut values = [0.0; 2];
        from.fill_f64(&mut values)?;
        let [log_likelihood_ratio, far_hz] = values;
        Ok(Some(Self { log_likelihood_ratio, far_hz }))
    }

    /// Returns whether the event counts as a signal: see [`SIGNAL_HZ`].
    pub fn is_signal(&self) -> bool {
        self.far_hz < SIGNAL_HZ
    }
}

/// Rate of accidental events of at least a ranking.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RankedRate {
    /// Ranking of an event.
    pub ranking: f64,
    /// Rate in time in which events are possible.
    pub rate_hz: f64,
}

/// Background of a live search.
///
/// | quantity | from |
/// |---|---|
/// | density of noise triggers in S/N and xi-squared | triggers without a partner, by detector and bin of chirp mass |
/// | rate of accidental coincidences | rates of each template's triggers in each detector, times the volume of the windows |
/// | events among coincidences | time slides of the same triggers: neighbours in time and template count once |
///
/// The likelihood ratio of an event of detectors `D` in mass bin `b` is `prod_d p_signal(x_d) / (R_Db prod_d p_noise(x_d))`, with
/// `R_Db` the rate of accidental coincidences. Its false-alarm rate is the sum, over all sets of detectors and bins, of `R_Db` times
/// the probability that noise has at least this ratio, from the convolution of the detectors' distributions; the result is
/// multiplied by the fraction of coincidences of at least its ranking that are events. Time is that in which as many detectors as an
/// event needs are valid.
///
/// No rate is below that of one accidental coincidence of two detectors among all pairs of triggers in the time that counts,
/// `2 window / (T_1 T_2)`, where old time counts less; for a single detector `1 / T`.
///
/// # Source
/// Cannon, Hanna, Keppel 2013, Phys. Rev. D 88, 024025, and Cannon, Hanna, Peoples 2015, arXiv:1504.04632, for densities and their
/// convolution; Messick et al. 2017, Phys. Rev. D 95, 042001, for triggers without partners; Chu et al. 2022, Phys. Rev. D 105,
/// 024023 (SPIIR), for time slides of each piece of strain.
#[derive(Clone, Debug)]
pub struct OnlineBackground {
    options: BackgroundOptions,
    windows_ns: Vec<Vec<i64>>,
    /// Mass bin of each template.
    bins: Vec<u8>,
    /// Axes detector, mass bin.
    histograms: Vec<Histogram>,
    /// Triggers of each detector by template.
    counts: Vec<Vec<f64>>,
    /// Time in seconds in which exactly a set of detectors was valid, by the bits of the set.
    live_s: [f64; 1 << MAX_DETECTORS],
    /// Coincidences and events of the slides by ranking.
    coincidences: Vec<f64>,
    events: Vec<f64>,
    /// Triggers of each detector that have not entered.
    triggers: Vec<Vec<TimedTrigger>>,
    /// Time before which all have entered.
    entered: Gps,
    vetoes: Vec<(Gps, Gps)>,
    signal: Signal,
    rates: Option<Rates>,
    threads: Threads,
}

/// Distributions of noise, and what follows from them.
#[derive(Clone, Debug)]
struct Rates {
    /// Axes detector, mass bin; `None` for too few triggers.
    likelihoods: Vec<Option<Likelihood>>,
    sets: Vec<SetRate>,
}

/// Accidental coincidences of a set of detectors in a mass bin.
#[derive(Clone, Debug)]
struct SetRate {
    detectors: usize,
    bin: usize,
    /// Coincidences per second of time in which an event is possible.
    rate_hz: f64,
    tail: Tail,
}

impl OnlineBackground {
    /// Begins an empty background, whose pieces are added on `threads`.
    ///
    /// # Errors
    /// [`Error::Parameter`] for no or more than 4 detectors, unusable windows, or a threshold that is not above 0.
    pub fn new(options: BackgroundOptions, threads: &Threads) -> Result<Self> {
        let count = options.detectors.len();
        match count {
            0 => return Err(Error::parameter("detectors", 0, "there must be at least one")),
            1 => {}
            _ => options.coincidence.check(count)?,
        }
        if !(options.threshold > 0.0 && options.threshold.is_finite()) {
            return Err(Error::parameter("threshold", options.threshold, "it must be above 0"));
        }
        let rows = options.coincidence.windows_s.iter();
        let windows_ns = rows.map(|row| row.iter().map(|window| nanoseconds(*window)).collect());
        Ok(Self {
            windows_ns: windows_ns.collect(),
            bins: options.chirp_masses_msun.iter().map(|mass| bin(*mass)).collect(),
            histograms: vec![Histogram::new(options.threshold); count * BINS],
            counts: vec![vec![0.0; options.chirp_masses_msun.len()]; count],
            live_s: [0.0; 1 << MAX_DETECTORS],
            coincidences: vec![0.0; RANKINGS],
            events: vec![0.0; RANKINGS],
            triggers: vec![Vec::new(); count],
            entered: Gps { ns: i64::MIN / 4 },
            vetoes: Vec::new(),
            signal: Signal::new(options.threshold),
            rates: None,
            threads: threads.clone(),
            options,
        })
    }

    /// Begins at the first sample of the strain.
    pub fn begin(&mut self, start: Gps) {
        self.entered = start;
    }

    /// Returns the time before which strain is in the background.
    pub fn entered(&self) -> Gps {
        self.entered
    }

    /// Takes a detector's next triggers.
    pub fn push(&mut self, detector: usize, triggers: impl Iterator<Item = TimedTrigger>) {
        self.triggers[detector].extend(triggers);
    }

    /// Keeps a time, and [`VETO_S`] around it, out of the background.
    pub fn exclude(&mut self, begin: Gps, end: Gps) {
        self.vetoes.push((begin.plus_s(-VETO_S), end.plus_s(VETO_S)));
    }

    /// Takes the time before `known` into the background, in whole pieces of 16 s; all events before it must have been rated.
    /// `valid` returns the segments of a detector in which triggers were possible.
    pub fn absorb(&mut self, known: Gps, valid: &mut dyn FnMut(usize, Range<Gps>) -> Segments) {
        let longest_ns = self.windows_ns.iter().flatten().max().copied().unwrap_or(0);
        let ready = Gps { ns: known.ns - longest_ns }.plus_s(-VETO_S);
        while self.entered.ns + CHUNK_NS <= ready.ns {
            let piece = self.entered..Gps { ns: self.entered.ns + CHUNK_NS };
            let vetoed = Segments::new(self.vetoes.clone()).unwrap_or_default();
            let detectors = 0..self.triggers.len();
            let valid: Vec<Segments> =
                detectors.map(|detector| valid(detector, piece.clone()).without(&vetoed)).collect();
            self.entered = piece.end;
            let is_valid = valid.iter().any(|own| !own.is_empty());
            if is_valid {
                self.enter(piece.clone(), &valid);
            }
            let oldest = Gps { ns: piece.end.ns - longest_ns };
            self.triggers.iter_mut().for_each(|list| list.retain(|one| one.gps >= oldest));
            self.vetoes.retain(|(_, end)| *end > piece.end);
            if is_valid {
                self.update();
            }
        }
    }

    /// Adds the triggers of a piece of strain.
    fn enter(&mut self, piece: Range<Gps>, valid: &[Segments]) {
        let live = live_times(valid);
        let factor = (-live[1..].iter().sum::<f64>() / MEMORY_S).exp();
        self.histograms.iter_mut().for_each(|one| one.scale(factor));
        let old = self.counts.iter_mut().flatten().chain(&mut self.live_s);
        old.chain(&mut self.coincidences).chain(&mut self.events).for_each(|own| *own *= factor);
        self.live_s.iter_mut().zip(live).for_each(|(sum, own)| *sum += own);
        let Self { triggers, windows_ns, bins, threads, .. } = self;
        let mut sorted = vec![Vec::new(); triggers.len()];
        threads
            .for_each(&mut sorted, 1, |detector, list| list[0] = by_template(&triggers[detector]));
        let counts = self.histograms.chunks_mut(BINS).zip(&mut self.counts);
        let mut own: Vec<DetectorCounts<'_>> = counts
            .map(|(histograms, counts)| DetectorCounts { histograms, counts, triggers: Vec::new() })
            .collect();
        threads.for_each(&mut own, 1, |detector, own| {
            let has_partner = partnered(&sorted, detector, &windows_ns[detector]);
            for (one, has_partner) in triggers[detector].iter().zip(has_partner) {
                let is_in = piece.contains(&one.gps) && valid[detector].contains(one.gps);
                if is_in {
                    own[0].add(one, has_partner, bins);
                }
            }
        });
        let detectors = own.iter().zip(valid);
        let detectors: Vec<Detector<'_>> =
            detectors.map(|(own, valid)| Detector { triggers: &own.triggers, valid }).collect();
        let coincidence = &self.options.coincidence;
        let slid = Slid::new(&detectors, coincidence, windows_ns, piece, SLIDES, threads);
        for ranking in slid.coincidences {
            self.coincidences[ranking_bin(ranking)] += 1.0;
        }
        for ranking in slid.events {
            self.events[ranking_bin(ranking)] += 1.0;
        }
    }

    /// Returns the significance of an event; `None` until the background has 100 triggers of each of its detectors in its mass bin.
    pub fn significance(&self, event: &Event) -> Option<Significance> {
        let rates = self.rates.as_ref()?;
        let bin = usize::from(*self.bins.get(event.template as usize)?);
        let (mut set, mut sum) = (0, 0.0);
        for (detector, trigger) in event.detectors.iter().enumerate() {
            let Some(trigger) = trigger else { continue };
            let place = detector * BINS + bin;
            let likelihood = rates.likelihoods[place].as_ref()?;
            sum += likelihood.log_ratio(&self.histograms[place], trigger);
            set |= 1 << detector;
        }
        let bound_hz = self.bound_hz(set);
        let own = rates.sets.iter().find(|one| (one.detectors, one.bin) == (set, bin));
        let own_hz = own.map_or(0.0, |own| own.rate_hz).max(bound_hz);
        let log_likelihood_ratio = sum - own_hz.ln();
        let part = |one: &SetRate| {
            one.rate_hz * one.tail.at_least(log_likelihood_ratio + one.rate_hz.ln())
        };
        let all_hz: f64 = rates.sets.iter().map(part).sum();
        let far_hz = (all_hz * self.event_fraction(event.ranking)).max(bound_hz);
        Some(Significance { log_likelihood_ratio, far_hz })
    }

    /// Returns the fraction of coincidences of at least a ranking that are events: that of the highest ranking with enough events of
    /// the slides, or of the event's own if it is lower; 1 without enough.
    fn event_fraction(&self, ranking: f64) -> f64 {
        let (mut coincidences, mut events) = (0.0, 0.0);
        for bin in (0..RANKINGS).rev() {
            coincidences += self.coincidences[bin];
            events += self.events[bin];
            if events >= LEAST && bin <= ranking_bin(ranking) {
                return events / coincidences;
            }
        }
        1.0
    }

    /// Returns the lowest rate that is claimed for an event of a set of detectors.
    fn bound_hz(&self, set: usize) -> f64 {
        let members: Vec<usize> = members(set).collect();
        if let [only] = members[..] {
            return 1.0 / self.live_of(1 << only).max(1.0);
        }
        let pairs = members.iter().flat_map(|one| members.iter().map(move |other| (*one, *other)));
        let bound = |(one, other): (usize, usize)| {
            let product = self.live_of(1 << one).max(1.0) * self.live_of(1 << other).max(1.0);
            2.0 * self.options.coincidence.windows_s[one][other] / product
        };
        pairs.filter(|(one, other)| one < other).map(bound).fold(f64::INFINITY, f64::min)
    }

    /// Returns the time in seconds in which at least a set of detectors was valid.
    fn live_of(&self, set: usize) -> f64 {
        let sets = self.live_s.iter().enumerate();
        sets.filter(|(other, _)| other & set == set).map(|(_, own)| own).sum()
    }

    /// Returns the time in seconds in which events were possible, with old time counting less: two valid detectors, or the only one.
    pub fn livetime_s(&self) -> f64 {
        let least = self.triggers.len().min(2);
        let sets = self.live_s.iter().enumerate();
        let own = sets.filter(|(set, _)| set.count_ones() as usize >= least);
        own.map(|(_, own)| own).sum()
    }

    /// Returns the rate of events of the time slides of at least each ranking that has some, by ascending ranking. Events of the
    /// strain itself are ordered by their likelihood ratios, of which the ranking is only a part.
    pub fn slid_rates(&self) -> Vec<RankedRate> {
        let live_s = (SLIDES as f64 * self.livetime_s()).max(1.0);
        let mut events = 0.0;
        let mut rates = Vec::new();
        for bin in (0..RANKINGS).rev().filter(|bin| self.events[*bin] > 0.0) {
            events += self.events[bin];
            rates.push(RankedRate { ranking: bin as f64 * RANKING_STEP, rate_hz: events / live_s });
        }
        rates.reverse();
        rates
    }

    /// Returns the number of triggers of a detector in the background, with old ones counting less.
    pub fn triggers(&self, detector: usize) -> f64 {
        self.counts[detector].iter().sum()
    }

    /// Computes densities and rates from the counts.
    fn update(&mut self) {
        let likelihood = |histogram: &Histogram| {
            (histogram.total() >= LEAST).then(|| Likelihood::new(histogram, &self.signal))
        };
        let likelihoods: Vec<Option<Likelihood>> = self.histograms.iter().map(likelihood).collect();
        if likelihoods.iter().all(Option::is_none) {
            self.rates = None;
            return;
        }
        let count = self.triggers.len();
        let mut sets = Vec::new();
        let network_s = self.livetime_s().max(1e-9);
        for set in 1..1_usize << count {
            if (set.count_ones() as usize) < count.min(2) {
                continue;
            }
            let members: Vec<usize> = members(set).collect();
            let live_s = self.live_of(set);
            let volume = volume(&members, &self.options.coincidence.windows_s);
            let by_bin = self.coincidence_rates(&members);
            for (bin, product) in by_bin.into_iter().enumerate() {
                let own = members.iter().map(|one| likelihoods[one * BINS + bin].as_ref());
                let Some(own) = own.collect::<Option<Vec<_>>>() else { continue };
                let rate_hz = product * volume * live_s / network_s;
                if rate_hz > 0.0 {
                    let noise = own.iter().map(|one| one.noise.clone());
                    let sum = noise.reduce(|sum, one| Distribution::sum(&sum, &one));
                    let Some(sum) = sum else { continue };
                    sets.push(SetRate { detectors: set, bin, rate_hz, tail: sum.tail() });
                }
            }
        }
        self.rates = Some(Rates { likelihoods, sets });
    }

    /// Returns, for each mass bin, the sum over its templates of the product of the detectors' rates of triggers.
    fn coincidence_rates(&self, members: &[usize]) -> [f64; BINS] {
        let mut sums = [0.0; BINS];
        let own = |one: &usize| (&self.counts[*one], self.live_of(1 << one).max(1.0));
        let own: Vec<(&Vec<f64>, f64)> = members.iter().map(own).collect();
        for (template, bin) in self.bins.iter().enumerate() {
            let rates = own.iter().map(|(counts, live_s)| counts[template] / live_s);
            sums[usize::from(*bin)] += rates.product::<f64>();
        }
        sums
    }

    /// Returns the state for [`Self::load`].
    pub fn save(&self) -> Vec<u8> {
        let mut to = Saving::default();
        to.part("background of a live search");
        to.number(VERSION);
        to.number(self.triggers.len() as u64);
        self.options.detectors.iter().for_each(|name| to.part(name));
        to.f64s([f64::from(self.options.threshold)].iter());
        to.f64s(MASS_EDGES_MSUN.iter());
        to.number(self.bins.len() as u64);
        to.f64s(self.masses().iter());
        to.f64s(self.live_s.iter());
        self.histograms.iter().for_each(|one| one.save(&mut to));
        self.counts.iter().for_each(|own| to.f64s(own.iter()));
        to.f64s(self.coincidences.iter());
        to.f64s(self.events.iter());
        to.finish()
    }

    /// Saves the state with the triggers that have not entered, for [`Self::load_all`].
    pub fn save_all(&self, to: &mut Saving) {
        to.bytes(&self.save());
        to.signed(self.entered.ns);
        for triggers in &self.triggers {
            to.number(triggers.len() as u64);
            triggers.iter().for_each(|trigger| trigger.save(to));
        }
        to.number(self.vetoes.len() as u64);
        for (begin, end) in &self.vetoes {
            to.signed(begin.ns);
            to.signed(end.ns);
        }
    }

    /// Restores the state of [`Self::save_all`].
    ///
    /// # Errors
    /// As [`Self::load`].
    pub fn load_all(&mut self, from: &mut Saved<'_>) -> Result<()> {
        let state = from.bytes(MOST_BYTES)?;
        self.load(&mut Saved::new(Path::new("checkpoint"), 0, &state)?)?;
        self.entered.ns = from.signed()?;
        for triggers in &mut self.triggers {
            triggers.clear();
            for _ in 0..from.number()? {
                triggers.push(TimedTrigger::load(from)?);
            }
        }
        self.vetoes.clear();
        for _ in 0..from.number()? {
            self.vetoes.push((Gps { ns: from.signed()? }, Gps { ns: from.signed()? }));
        }
        Ok(())
    }

    fn masses(&self) -> Vec<f64> {
        self.options.chirp_masses_msun.iter().map(|mass| mass.unwrap_or(0.0)).collect()
    }

    /// Restores a saved background, as an empty one of the same search.
    ///
    /// # Errors
    /// [`Error::Format`] with the field that differs, for the background of another search, version or bank, and for a damaged one.
    pub fn load(&mut self, from: &mut Saved<'_>) -> Result<()> {
        from.part("background of a live search")?;
        from.expect("version", VERSION)?;
        from.expect("number of detectors", self.triggers.len() as u64)?;
        for name in &self.options.detectors {
            let what = format!("detector {name} in this place");
            from.part(name).map_err(|_| from.fault(&what, "another one found".to_owned()))?;
        }
        same(from, "threshold", &[f64::from(self.options.threshold)])?;
        same(from, "edges of the mass bins (solar masses)", &MASS_EDGES_MSUN)?;
        from.expect("number of templates", self.bins.len() as u64)?;
        same(from, "chirp masses of the templates (solar masses)", &self.masses())?;
        let mut next = self.clone();
        from.fill_f64(&mut next.live_s)?;
        for histogram in &mut next.histograms {
            histogram.load(from)?;
        }
        for counts in &mut next.counts {
            from.fill_f64(counts)?;
        }
        from.fill_f64(&mut next.coincidences)?;
        from.fill_f64(&mut next.events)?;
        let counts = next.counts.iter().flatten().chain(&next.live_s);
        let mut counts = counts.chain(&next.coincidences).chain(&next.events);
        if let Some(bad) = counts.find(|count| !(count.is_finite() && **count >= 0.0)) {
            let why = format!("{bad} found, expected 0 or more");
            return Err(from.fault("count or time", why));
        }
        from.end()?;
        next.update();
        *self = next;
        Ok(())
    }
}

/// Checks saved numbers.
fn same(from: &mut Saved<'_>, what: &str, expected: &[f64]) -> Result<()> {
    let found = from.f64s(expected.len())?;
    let differs =
        |(found, expected): (&f64, &f64)| (found != expected).then_some((*found, *expected));
    if found.len() != expected.len() {
        let why = format!("{} found, expected {}", found.len(), expected.len());
        return Err(from.fault(what, why));
    }
    match found.iter().zip(expected).find_map(differs) {
        None => Ok(()),
        Some((found, expected)) => {
            Err(from.fault(what, format!("{found} found, expected {expected}")))
        }
    }
}

/// Returns the mass bin of a template.
fn bin(chirp_mass_msun: Option<f64>) -> u8 {
    let below = |mass: f64| MASS_EDGES_MSUN.partition_point(|edge| *edge <= mass);
    chirp_mass_msun.map_or(BINS - 1, below) as u8
}

fn ranking_bin(ranking: f64) -> usize {
    ((ranking / RANKING_STEP) as usize).min(RANKINGS - 1)
}

/// Returns the detectors of a set.
fn members(set: usize) -> impl Iterator<Item = usize> {
    (0..MAX_DETECTORS).filter(move |detector| set >> detector & 1 == 1)
}

/// Trigger of a list that is ordered by template and time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Placed {
    template: u32,
    ns: i64,
    /// Its place in the list in order of arrival.
    index: u32,
}

/// Returns triggers in order of template and time.
fn by_template(triggers: &[TimedTrigger]) -> Vec<Placed> {
    let place = |(index, one): (usize, &TimedTrigger)| Placed {
        template: one.template,
        ns: one.gps.ns,
        index: index as u32,
    };
    let mut all: Vec<Placed> = triggers.iter().enumerate().map(place).collect();
    all.sort_unstable();
    all
}

/// Returns, for each trigger of a detector in order of arrival, whether another detector has one of its template within the window.
fn partnered(sorted: &[Vec<Placed>], detector: usize, windows_ns: &[i64]) -> Vec<bool> {
    let own = &sorted[detector];
    let mut has_partner = vec![false; own.len()];
    for (other, list) in sorted.iter().enumerate().filter(|(other, _)| *other != detector) {
        let window_ns = windows_ns[other];
        let mut first = 0;
        for one in own {
            let earliest = (one.template, one.ns - window_ns);
            first +=
                list[first..].iter().take_while(|its| (its.template, its.ns) < earliest).count();
            let is_near =
                |its: &Placed| its.template == one.template && its.ns <= one.ns + window_ns;
            has_partner[one.index as usize] |= list.get(first).is_some_and(is_near);
        }
    }
    has_partner
}

/// Counts of a detector, and its triggers of a piece of strain.
struct DetectorCounts<'a> {
    /// By mass bin.
    histograms: &'a mut [Histogram],
    /// By template.
    counts: &'a mut [f64],
    triggers: Vec<TimedTrigger>,
}

impl DetectorCounts<'_> {
    /// Adds a trigger; it counts as noise if it has no partner.
    fn add(&mut self, one: &TimedTrigger, has_partner: bool, bins: &[u8]) {
        self.triggers.push(*one);
        if !has_partner {
            let template = one.template as usize;
            self.histograms[usize::from(bins[template])].add(one);
            self.counts[template] += 1.0;
        }
    }
}

/// Returns the seconds in which exactly each set of detectors is valid; set 0 has none.
fn live_times(valid: &[Segments]) -> [f64; 1 << MAX_DETECTORS] {
    let mut edges: Vec<(Gps, usize)> = Vec::new();
    for (detector, own) in valid.iter().enumerate() {
        edges.extend(
            own.spans().iter().flat_map(|(begin, end)| [*begin, *end]).map(|at| (at, detector)),
        );
    }
    edges.sort_unstable();
    let (mut live, mut set) = ([0.0; 1 << MAX_DETECTORS], 0);
    for pair in edges.windows(2) {
        // Segments of a detector do not touch, so each edge begins or ends its valid time.
        set ^= 1 << pair[0].1;
        if set != 0 {
            live[set] += pair[1].0.seconds_since(pair[0].0);
        }
    }
    live
}

/// Returns the volume of the time differences at which triggers of these detectors are coincident: seconds to the power of their
/// number less one.
fn volume(members: &[usize], windows_s: &[Vec<f64>]) -> f64 {
    match members {
        [first, others @ ..] => offsets_volume(&mut vec![(*first, 0.0)], others, windows_s),
        [] => 0.0,
    }
}

fn offsets_volume(chosen: &mut Vec<(usize, f64)>, others: &[usize], windows_s: &[Vec<f64>]) -> f64 {
    let [next, rest @ ..] = others else { return 1.0 };
    let bounds = chosen.iter().fold((f64::NEG_INFINITY, f64::INFINITY), |bounds, (one, at)| {
        let window = windows_s[*one][*next];
        (bounds.0.max(at - window), bounds.1.min(at + window))
    });
    let length = (bounds.1 - bounds.0).max(0.0);
    if rest.is_empty() || length == 0.0 {
        return length;
    }
    let step = length / POINTS as f64;
    let mut sum = 0.0;
    for point in 0..POINTS {
        chosen.push((*next, bounds.0 + (point as f64 + 0.5) * step));
        sum += step * offsets_volume(chosen, rest, windows_s);
        chosen.pop();
    }
    sum
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn options() -> BackgroundOptions {
        BackgroundOptions {
            detectors: vec!["H1".to_owned(), "L1".to_owned()],
            coincidence: Options { slides: 0, ..Options::new(vec![vec![0.012; 2]; 2]) },
            threshold: 4.0,
            chirp_masses_msun: vec![Some(1.2), None],
        }
    }

    fn gps(s: f64) -> Gps {
        Gps::from_s(1e9).plus_s(s)
    }

    /// Background of 192 s with a trigger in both detectors each 50 ms, 20 ms apart.
    fn background() -> OnlineBackground {
        let mut background = OnlineBackground::new(options(), &Threads::new(2)).unwrap();
        background.begin(gps(0.0));
        for detector in 0..2 {
            let trigger = |index: i32| TimedTrigger {
                template: 0,
                gps: gps(0.05 * f64::from(index) + 0.02 * f64::from(detector)),
                snr: 4.0 + 0.01 * (index % 100) as f32,
                phase: 0.0,
                xi2: 1.0,
            };
            background.push(detector as usize, (0..4000).map(trigger));
        }
        background.absorb(gps(197.0), &mut |_, time| {
            Segments::one(time.start, time.end.seconds_since(time.start))
        });
        background
    }

    fn event(snrs: [f32; 2]) -> Event {
        let trigger =
            |snr| Some(TimedTrigger { template: 0, gps: gps(200.0), snr, phase: 0.0, xi2: 1.0 });
        Event {
            template: 0,
            gps: gps(200.0),
            detectors: snrs.into_iter().map(trigger).collect(),
            network_snr: f64::from(snrs[0].hypot(snrs[1])),
            ranking: f64::from(snrs[0].hypot(snrs[1])),
            louder: 0,
            far_hz: None,
            far_sigma: None,
            false_alarm_probability: None,
        }
    }

    #[test]
    fn rates_are_those_of_the_windows_and_have_a_bound() {
        let background = background();
        assert_eq!(background.livetime_s().round(), 192.0);
        assert_eq!(background.triggers(0).round(), 3839.0);
        // All accidental coincidences are at least as loud as the quietest: 20 Hz * 20 Hz * 24 ms, of which slides keep some.
        let quiet = background.significance(&event([4.0, 4.0])).unwrap();
        assert!(quiet.far_hz < 9.7 && quiet.far_hz > 0.1, "{quiet:?}");
        let loud = background.significance(&event([40.0, 40.0])).unwrap();
        let bound = 0.024 / (192.0 * 192.0);
        assert!((loud.far_hz / bound - 1.0).abs() < 1e-3, "{loud:?}");
        assert!(loud.log_likelihood_ratio > quiet.log_likelihood_ratio + 10.0);
        // Of the other template nothing is known.
        let other = Event { template: 1, ..event([6.0, 6.0]) };
        assert_eq!(background.significance(&other), None);
    }

    #[test]
    fn rates_of_slides_are_those_of_events_of_at_least_a_ranking() {
        let mut background = background();
        background.events.fill(0.0);
        (background.events[60], background.events[62]) = (8.0, 2.0);
        let live_s = 4.0 * background.livetime_s();
        let expected = [(6.0, 10.0 / live_s), (6.2, 2.0 / live_s)];
        let slid = background.slid_rates();
        assert_eq!(slid.len(), 2);
        for (own, (ranking, rate_hz)) in slid.iter().zip(expected) {
            assert!((own.ranking - ranking).abs() < 1e-9, "{own:?}");
            assert!((own.rate_hz / rate_hz - 1.0).abs() < 1e-12, "{own:?}");
        }
        assert!(
            OnlineBackground::new(options(), &Threads::new(2)).unwrap().slid_rates().is_empty()
        );
    }

    #[test]
    fn time_around_signals_stays_out() {
        let mut one = OnlineBackground::new(options(), &Threads::new(2)).unwrap();
        one.begin(gps(0.0));
        let trigger = |s| TimedTrigger { template: 0, gps: gps(s), snr: 5.0, phase: 0.0, xi2: 1.0 };
        // A coincidence, a trigger near an injection, and one elsewhere.
        one.push(0, [3.0, 5.0, 9.0].into_iter().map(trigger));
        one.push(1, [3.001].into_iter().map(trigger));
        one.exclude(gps(5.5), gps(5.7));
        one.absorb(gps(18.0), &mut |_, time| Segments::one(time.start, 16.0));
        assert_eq!((one.triggers(0), one.triggers(1)), (1.0, 0.0));
        assert!((one.livetime_s() - 13.8).abs() < 1e-9, "{}", one.livetime_s());
    }

    #[test]
    fn a_saved_background_goes_on_and_no_other_is_accepted() {
        let saved = background();
        let bytes = saved.save();
        let load = |options: BackgroundOptions, bytes: &[u8]| {
            let mut other = OnlineBackground::new(options, &Threads::new(1)).unwrap();
            let path = Path::new("background");
            Saved::new(path, 0, bytes).and_then(|mut from| other.load(&mut from)).map(|()| other)
        };
        let same = load(options(), &bytes).unwrap();
        assert_eq!(same.save(), bytes);
        let rated = |one: &OnlineBackground| one.significance(&event([4.5, 4.7]));
        assert_eq!(rated(&same), rated(&saved));
        let swapped = vec!["L1".to_owned(), "H1".to_owned()];
        let other = vec![Some(1.3), None];
        for (options, field) in [
            (BackgroundOptions { threshold: 5.0, ..options() }, "4 found, expected 5"),
            (BackgroundOptions { detectors: swapped, ..options() }, "detector L1"),
            (
                BackgroundOptions { chirp_masses_msun: other, ..options() },
                "1.2 found, expected 1.3",
            ),
            (BackgroundOptions { chirp_masses_msun: Vec::new(), ..options() }, "templates"),
        ] {
            let why = load(options, &bytes).unwrap_err().to_string();
            assert!(why.contains(field), "{field}: {why}");
        }
        for length in (0..bytes.len()).step_by(997) {
            assert!(load(options(), &bytes[..length]).is_err());
        }
    }

    #[test]
    fn partners_are_those_of_a_comparison_of_all_pairs() {
        let list = |seed: i64| -> Vec<TimedTrigger> {
            let one = |index: i64| TimedTrigger {
                template: (index * seed % 3) as u32,
                gps: Gps { ns: index * index * seed % 97 },
                snr: 5.0,
                phase: 0.0,
                xi2: 1.0,
            };
            (0..60).map(one).collect()
        };
        let lists = [list(5), list(7), list(11)];
        let sorted: Vec<Vec<Placed>> = lists.iter().map(|list| by_template(list)).collect();
        let windows_ns = [[0, 2, 1], [2, 0, 0], [1, 0, 0]];
        for (detector, own) in lists.iter().enumerate() {
            let expected = own.iter().map(|one| {
                lists.iter().enumerate().filter(|(other, _)| *other != detector).any(
                    |(other, list)| {
                        list.iter().any(|its| {
                            let apart_ns = (its.gps.ns - one.gps.ns).abs();
                            its.template == one.template && apart_ns <= windows_ns[detector][other]
                        })
                    },
                )
            });
            let expected: Vec<bool> = expected.collect();
            assert!(expected.contains(&true) && expected.contains(&false));
            assert_eq!(partnered(&sorted, detector, &windows_ns[detector]), expected, "{detector}");
        }
    }

    #[test]
    fn volumes_are_those_of_the_windows() {
        let windows = |own: [f64; 3]| {
            vec![vec![0.0, own[0], own[1]], vec![own[0], 0.0, own[2]], vec![own[1], own[2], 0.0]]
        };
        assert_eq!(volume(&[0, 1], &windows([0.012, 0.03, 0.03])), 0.024);
        // A square without its corners; a third window that never binds.
        let hexagon = volume(&[0, 1, 2], &windows([1.0, 1.0, 1.0]));
        assert!((hexagon - 3.0).abs() < 1e-3, "{hexagon}");
        let square = volume(&[0, 1, 2], &windows([1.0, 1.0, 2.5]));
        assert!((square - 4.0).abs() < 1e-9, "{square}");
        let four = volume(&[0, 1, 2, 3], &vec![vec![1.0; 4]; 4]);
        assert!((four - 4.0).abs() < 0.01, "{four}");
    }

    #[test]
    fn live_times_belong_to_exact_sets() {
        let one = Segments::new(vec![(gps(0.0), gps(10.0)), (gps(20.0), gps(30.0))]).unwrap();
        let other = Segments::one(gps(5.0), 20.0);
        let live = live_times(&[one, other]);
        assert_eq!((live[1].round(), live[2].round(), live[3].round()), (10.0, 10.0, 10.0));
    }
}
