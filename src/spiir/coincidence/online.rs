//! Events from triggers as they arrive, each detector at its own pace.
//!
//! Invariant: final events are those of a search of all triggers; the memory holds the triggers of a bounded time.

use super::search::{check_triggers, event, nanoseconds, zero_lag};
use super::segments::Segments;
use super::{Detector, Event, Options, Significance, TimedTrigger};
use crate::backend::threads::Threads;
use crate::error::{Error, Result};
use crate::state::{Saved, Saving};
use crate::units::{Gps, NS_PER_S};
use crate::view::check_length;

/// State of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// New; later strain, or that of a late detector, may change it.
    First,
    /// A coincidence of higher ranking has replaced it.
    Better,
    /// No later trigger changes it.
    Final,
    /// A coincidence of another event outranks it.
    Retracted,
}

impl State {
    const ALL: [Self; 4] = [Self::First, Self::Better, Self::Final, Self::Retracted];
}

/// Changes of events that were returned together, which a [restored](Coincider::load) coincidence takes as published.
#[derive(Clone, Debug, PartialEq)]
pub struct Published {
    /// The changes.
    pub changes: Vec<Change>,
    ended: Gps,
    shown: Gps,
}

/// Change of an event.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// New state.
    pub state: State,
    /// Number of the event, from 1, the same in all of its changes.
    pub number: u64,
    /// The event; a retracted one as it was announced.
    pub event: Event,
    /// Significance by a background, if one has rated it.
    pub significance: Option<Significance>,
    /// Whether the state vector marks a hardware injection at its time.
    pub is_injection: bool,
}

impl Change {
    /// Makes a change that is not rated.
    fn new(state: State, number: u64, event: Event) -> Self {
        Self { state, number, event, significance: None, is_injection: false }
    }
}

/// Event that was announced and is not final.
#[derive(Clone, Debug)]
struct Announced {
    number: u64,
    event: Event,
    is_there: bool,
    is_final: bool,
}

/// A time that no stream reaches.
const END: Gps = Gps { ns: i64::MAX / 4 };

/// Finds coincident events of one to four detectors whose triggers arrive in order of time, each detector at its own pace.
///
/// Coincidences and events are those of [`search`](super::search()); the triggers of a single detector need no partner. An
/// event is final when no trigger to come can be in it, or in a coincidence within its cluster window. Before that it is
/// announced, and announced again when it changes.
#[derive(Debug)]
pub struct Coincider {
    options: Options,
    windows_ns: Vec<Vec<i64>>,
    /// Longest window and cluster window, in nanoseconds.
    longest_ns: i64,
    cluster_ns: i64,
    triggers: Vec<Vec<TimedTrigger>>,
    /// Time of each detector before which it has no more triggers to come.
    decided: Vec<Gps>,
    /// GPS time before which events are final.
    ended: Gps,
    /// GPS time before which events are announced.
    shown: Gps,
    /// Whether triggers have come since the last changes.
    has_new: bool,
    announced: Vec<Announced>,
    count: u64,
    threads: Threads,
    /// Times that the published changes have reached, until the triggers that come again have reached them.
    again: Option<Again>,
}

/// Times of published changes: of final and of announced events.
#[derive(Clone, Copy, Debug)]
struct Again {
    ended: Gps,
    shown: Gps,
}

impl Coincider {
    /// Checks the options; only windows, cluster window and ranking have an effect.
    ///
    /// # Errors
    /// [`Error::Parameter`] for no or more than 4 detectors, and for unusable windows.
    pub fn new(detectors: usize, options: Options, threads: &Threads) -> Result<Self> {
        match detectors {
            0 => return Err(Error::parameter("detectors", 0, "there must be at least one")),
            1 => {}
            _ => options.check(detectors)?,
        }
        let rows = options.windows_s.iter();
        let windows_ns: Vec<Vec<i64>> =
            rows.map(|row| row.iter().map(|window| nanoseconds(*window)).collect()).collect();
        let longest = windows_ns.iter().flatten().max().copied();
        let start = Gps { ns: i64::MIN / 4 };
        Ok(Self {
            longest_ns: longest.filter(|_| detectors > 1).unwrap_or(0),
            cluster_ns: nanoseconds(options.cluster_s),
            windows_ns,
            options,
            triggers: vec![Vec::new(); detectors],
            decided: vec![start; detectors],
            ended: start,
            shown: start,
            has_new: false,
            announced: Vec::new(),
            count: 0,
            threads: threads.clone(),
            again: None,
        })
    }

    /// Takes a detector's next triggers, after which it has none before `decided`.
    pub fn push(
        &mut self,
        detector: usize,
        triggers: impl Iterator<Item = TimedTrigger>,
        decided: Gps,
    ) {
        let before = self.triggers[detector].len();
        self.triggers[detector].extend(triggers);
        self.has_new |= self.triggers[detector].len() > before;
        let before = &mut self.decided[detector];
        *before = decided.max(*before);
    }

    /// Declares that no detector has triggers to come, so that all events become final.
    pub fn end(&mut self) {
        self.decided.fill(END);
    }

    /// Returns the time before which events are final.
    pub fn ended(&self) -> Gps {
        self.ended
    }

    /// Appends the changes of events. An event is announced once the triggers of each detector are decided up to its time, or are
    /// not awaited: `waited` has, for each detector, the GPS time before which they are not.
    ///
    /// # Errors
    /// [`Error::Parameter`] for triggers whose signal-to-noise ratio or xi-squared is no number.
    pub fn changes(&mut self, waited: &[Gps], changes: &mut Vec<Change>) -> Result<()> {
        let what = "times up to which detectors are not waited for";
        check_length(what, self.decided.len(), waited.len())?;
        let least = |times: &mut dyn Iterator<Item = Gps>| {
            times.min().map_or(0, |gps| gps.ns) - self.longest_ns
        };
        let ended = least(&mut self.decided.iter().copied()) - self.cluster_ns;
        let ended = Gps { ns: ended }.max(self.ended);
        let passed = self.decided.iter().zip(waited).map(|(decided, waited)| *decided.max(waited));
        let shown = Gps { ns: least(&mut { passed }) };
        if let Some(again) = self.again {
            if ended < again.ended || shown < again.shown {
                return Ok(());
            }
            (self.ended, self.shown, self.has_new) = (again.ended, again.shown, true);
            self.again = None;
        }
        if !self.has_new && (ended, shown) == (self.ended, self.shown) {
            return Ok(());
        }
        let valid = Segments::default();
        let detectors: Vec<Detector<'_>> =
            self.triggers.iter().map(|triggers| Detector { triggers, valid: &valid }).collect();
        check_triggers(&detectors)?;
        let mut found = zero_lag(&detectors, &self.options, &self.windows_ns, &self.threads);
        found.retain(|one| one.ns >= self.ended.ns);
        found.sort_by_key(|one| one.ns);
        self.announced.iter_mut().for_each(|announced| announced.is_there = false);
        for one in &found {
            let event = event(&detectors, one);
            let is_final = event.gps < ended;
            let near = |announced: &&mut Announced| {
                let distance_ns = (announced.event.gps.ns - event.gps.ns).abs();
                !announced.is_there && distance_ns <= self.cluster_ns
            };
            let announced = self.announced.iter_mut().find(near);
            match announced {
                Some(announced) => {
                    announced.is_there = true;
                    announced.is_final = is_final;
                    let number = announced.number;
                    if is_final {
                        changes.push(Change::new(State::Final, number, event));
                    } else if event.gps < shown && event != announced.event {
                        announced.event = event.clone();
                        changes.push(Change::new(State::Better, number, event));
                    }
                }
                None if is_final || event.gps < shown => {
                    self.count += 1;
                    let (number, state) =
                        (self.count, if is_final { State::Final } else { State::First });
                    if !is_final {
                        let event = event.clone();
                        let (is_there, is_final) = (true, false);
                        self.announced.push(Announced { number, event, is_there, is_final });
                    }
                    changes.push(Change::new(state, number, event));
                }
                None => {}
            }
        }
        for announced in self.announced.iter().filter(|announced| !announced.is_there) {
            let Announced { number, event, .. } = announced.clone();
            changes.push(Change::new(State::Retracted, number, event));
        }
        self.announced.retain(|announced| announced.is_there && !announced.is_final);
        (self.ended, self.shown, self.has_new) = (ended, shown, false);
        let oldest = Gps { ns: ended.ns - self.cluster_ns - self.longest_ns };
        self.triggers.iter_mut().for_each(|list| list.retain(|trigger| trigger.gps >= oldest));
        Ok(())
    }
}

impl Coincider {
    /// Returns changes, and the time that the search has reached with them.
    pub fn published(&self, changes: Vec<Change>) -> Published {
        Published { changes, ended: self.ended, shown: self.shown }
    }

    /// Takes changes that were returned after the state was [saved](Self::save). The triggers that come again change nothing
    /// until they have reached the time of the changes: no change is returned twice, and numbers go on.
    pub fn take_published(&mut self, published: &Published) {
        for Change { state, number, event, .. } in &published.changes {
            self.count = self.count.max(*number);
            self.announced.retain(|one| one.number != *number || matches!(state, State::Better));
            // Rates are given to changes, not to events that may change.
            let event = Event { far_hz: None, ..event.clone() };
            match (state, self.announced.iter_mut().find(|one| one.number == *number)) {
                (State::First | State::Better, Some(one)) => one.event = event,
                (State::First | State::Better, None) => {
                    let (number, is_there, is_final) = (*number, true, false);
                    self.announced.push(Announced { number, event, is_there, is_final });
                }
                (State::Final | State::Retracted, _) => {}
            }
        }
        self.again = Some(Again { ended: published.ended, shown: published.shown });
    }

    /// Saves the state.
    pub fn save(&self, to: &mut Saving) {
        to.part("coincidences");
        to.number(self.triggers.len() as u64);
        for (triggers, decided) in self.triggers.iter().zip(&self.decided) {
            to.number(triggers.len() as u64);
            triggers.iter().for_each(|trigger| trigger.save(to));
            to.signed(decided.ns);
        }
        to.signed(self.ended.ns);
        to.signed(self.shown.ns);
        to.number(self.has_new.into());
        to.number(self.again.is_some().into());
        if let Some(again) = &self.again {
            to.signed(again.ended.ns);
            to.signed(again.shown.ns);
        }
        to.number(self.count);
        to.number(self.announced.len() as u64);
        for Announced { number, event, .. } in &self.announced {
            to.number(*number);
            event.save(to);
        }
    }

    /// Restores the state saved with the same options.
    ///
    /// # Errors
    /// [`Error::Format`] for a state that was not saved with them.
    pub fn load(&mut self, from: &mut Saved<'_>) -> Result<()> {
        from.part("coincidences")?;
        from.expect("detectors", self.triggers.len() as u64)?;
        for (triggers, decided) in self.triggers.iter_mut().zip(&mut self.decided) {
            let count = from.number()?;
            triggers.clear();
            for _ in 0..count {
                triggers.push(TimedTrigger::load(from)?);
            }
            decided.ns = from.signed()?;
        }
        (self.ended.ns, self.shown.ns) = (from.signed()?, from.signed()?);
        self.has_new = from.at_most(1)? == 1;
        self.again = match from.at_most(1)? {
            0 => None,
            _ => {
                Some(Again { ended: Gps { ns: from.signed()? }, shown: Gps { ns: from.signed()? } })
            }
        };
        self.count = from.number()?;
        self.announced.clear();
        for _ in 0..from.number()? {
            let (number, event) = (from.number()?, Event::load(from, self.triggers.len())?);
            let (is_there, is_final) = (true, false);
            self.announced.push(Announced { number, event, is_there, is_final });
        }
        Ok(())
    }
}

impl Published {
    /// Returns whether the search had [ended](Coincider::end), so that all of its events are final.
    pub fn is_last(&self) -> bool {
        // Windows and cluster windows of an hour at most.
        self.ended.ns >= END.ns - 3600 * NS_PER_S
    }

    /// Saves the changes.
    pub fn save(&self, to: &mut Saving) {
        to.part("published events");
        to.signed(self.ended.ns);
        to.signed(self.shown.ns);
        to.number(self.changes.len() as u64);
        self.changes.iter().for_each(|change| change.save(to));
    }

    /// Loads changes of events of this number of detectors.
    ///
    /// # Errors
    /// [`Error::Format`] for others.
    pub fn load(from: &mut Saved<'_>, detectors: usize) -> Result<Self> {
        from.part("published events")?;
        let (ended, shown) = (Gps { ns: from.signed()? }, Gps { ns: from.signed()? });
        let mut changes = Vec::new();
        for _ in 0..from.number()? {
            changes.push(Change::load(from, detectors)?);
        }
        Ok(Self { changes, ended, shown })
    }
}

impl Change {
    /// Saves the change.
    pub fn save(&self, to: &mut Saving) {
        let Self { state, number, event, significance, is_injection } = self;
        to.number(State::ALL.iter().position(|other| other == state).unwrap_or(0) as u64);
        to.number(*number);
        event.save(to);
        Significance::save(significance.as_ref(), to);
        to.number((*is_injection).into());
    }

    /// Loads a change of an event of this number of detectors.
    ///
    /// # Errors
    /// [`Error::Format`] for something else.
    pub fn load(from: &mut Saved<'_>, detectors: usize) -> Result<Self> {
        let state = State::ALL[from.at_most(State::ALL.len() - 1)?];
        let (number, event) = (from.number()?, Event::load(from, detectors)?);
        let significance = Significance::load(from)?;
        let is_injection = from.at_most(1)? == 1;
        Ok(Self { state, number, event, significance, is_injection })
    }
}

impl TimedTrigger {
    pub(super) fn save(&self, to: &mut Saving) {
        to.number(self.template.into());
        to.signed(self.gps.ns);
        to.f32s([self.snr, self.phase, self.xi2].iter());
    }

    pub(super) fn load(from: &mut Saved<'_>) -> Result<Self> {
        let template = from.at_most(u32::MAX as usize)? as u32;
        let gps = Gps { ns: from.signed()? };
        let mut values = [0.0; 3];
        from.fill_f32(&mut values)?;
        let [snr, phase, xi2] = values;
        Ok(Self { template, gps, snr, phase, xi2 })
    }
}

impl Event {
    /// Saves the event.
    pub fn save(&self, to: &mut Saving) {
        to.part("event");
        to.number(self.template.into());
        to.signed(self.gps.ns);
        for trigger in &self.detectors {
            to.number(trigger.is_some().into());
            trigger.iter().for_each(|trigger| trigger.save(to));
        }
        to.f64s([self.network_snr, self.ranking].iter());
        to.number(self.louder as u64);
        for value in [self.far_hz, self.far_sigma, self.false_alarm_probability] {
            to.f64s(value.as_slice().iter());
        }
    }

    /// Loads an event of this number of detectors.
    ///
    /// # Errors
    /// [`Error::Format`] for something else.
    pub fn load(from: &mut Saved<'_>, detectors: usize) -> Result<Self> {
        from.part("event")?;
        let template = from.at_most(u32::MAX as usize)? as u32;
        let gps = Gps { ns: from.signed()? };
        let mut triggers = Vec::with_capacity(detectors);
        for _ in 0..detectors {
            let is_there = from.at_most(1)? == 1;
            triggers.push(is_there.then(|| TimedTrigger::load(from)).transpose()?);
        }
        let mut values = [0.0; 2];
        from.fill_f64(&mut values)?;
        let louder = from.number()? as usize;
        let mut maybe = || Ok(from.f64s(1)?.first().copied());
        Ok(Self {
            template,
            gps,
            detectors: triggers,
            network_snr: values[0],
            ranking: values[1],
            louder,
            far_hz: maybe()?,
            far_sigma: maybe()?,
            false_alarm_probability: maybe()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::search;
    use super::*;

    fn trigger(s: f64, snr: f32, template: u32) -> TimedTrigger {
        let gps = Gps::from_s(1e9).plus_s(s);
        TimedTrigger { template, gps, snr, phase: 0.0, xi2: 1.0 }
    }

    fn options(detectors: usize) -> Options {
        let windows_s = vec![vec![0.012; detectors]; detectors];
        Options { slides: 0, ..Options::new(windows_s) }
    }

    fn coincider(detectors: usize) -> Coincider {
        Coincider::new(detectors, options(detectors), &Threads::new(1)).expect("options")
    }

    fn at(s: f64) -> Gps {
        Gps::from_s(1e9).plus_s(s)
    }

    /// Appends triggers, and returns the states and numbers of what has changed.
    fn changes(coincider: &mut Coincider, waited_s: f64) -> Vec<(State, u64, usize)> {
        let mut changes = Vec::new();
        let waited = vec![at(waited_s); coincider.decided.len()];
        coincider.changes(&waited, &mut changes).expect("triggers");
        let members = |change: &Change| change.event.detectors.iter().flatten().count();
        changes.iter().map(|change| (change.state, change.number, members(change))).collect()
    }

    #[test]
    fn an_event_waits_for_a_late_detector_and_is_better_with_it() {
        let mut three = coincider(3);
        three.push(0, [trigger(5.0, 8.0, 0)].into_iter(), at(6.0));
        three.push(1, [trigger(5.004, 7.0, 0)].into_iter(), at(6.0));
        three.push(2, std::iter::empty(), at(4.0));
        assert!(changes(&mut three, 4.0).is_empty());
        assert_eq!(changes(&mut three, 5.5), [(State::First, 1, 2)]);
        assert!(changes(&mut three, 5.9).is_empty(), "said once");
        three.push(2, [trigger(5.002, 6.0, 0)].into_iter(), at(5.2));
        assert_eq!(changes(&mut three, 6.0), [(State::Better, 1, 3)]);
        three.push(2, std::iter::empty(), at(6.0));
        assert_eq!(changes(&mut three, 6.0), [(State::Final, 1, 3)]);
        assert!(three.announced.is_empty());
    }

    #[test]
    fn an_event_that_joins_two_takes_the_number_of_one_and_retracts_the_other() {
        let mut two = coincider(2);
        for detector in 0..2 {
            let quiet = [trigger(5.0, 6.0, 0), trigger(5.8, 6.0, 0)];
            two.push(detector, quiet.into_iter(), at(4.9));
        }
        assert_eq!(changes(&mut two, 6.0), [(State::First, 1, 2), (State::First, 2, 2)]);
        // Within half a second of both.
        for detector in 0..2 {
            two.push(detector, [trigger(5.4, 9.0, 1)].into_iter(), at(9.0));
        }
        assert_eq!(changes(&mut two, 9.0), [(State::Final, 1, 2), (State::Retracted, 2, 2)]);
    }

    #[test]
    fn final_events_are_those_of_a_search_whatever_the_pace() {
        let mut state = 7_u64;
        let mut random = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 11) as f64 / (1_u64 << 53) as f64
        };
        let mut lists: Vec<Vec<TimedTrigger>> = vec![Vec::new(); 3];
        for list in &mut lists {
            list.extend((0..4000).map(|_| {
                trigger(100.0 * random(), 4.0 + 3.0 * random() as f32, (4.0 * random()) as u32)
            }));
            list.sort_by_key(|trigger| trigger.gps);
        }
        let valid = Segments::new(vec![(at(0.0), at(100.0))]).expect("a segment");
        let detectors: Vec<Detector<'_>> =
            lists.iter().map(|triggers| Detector { triggers, valid: &valid }).collect();
        let mut expected = search(&detectors, &options(3)).expect("searched").events;
        expected.sort_by_key(|event| event.gps);
        assert!(expected.len() > 50, "{}", expected.len());
        let strip = |event: &Event| Event { false_alarm_probability: None, ..event.clone() };
        let mut three = coincider(3);
        let (mut changes, mut taken) = (Vec::new(), [0; 3]);
        let mut decided = [0.0_f64; 3];
        let mut most = 0;
        while decided.iter().any(|time| *time < 100.0) {
            let detector = (3.0 * random()) as usize;
            decided[detector] += 2.0 * random();
            let until = at(decided[detector]);
            let list = &lists[detector][taken[detector]..];
            let count = list.iter().take_while(|trigger| trigger.gps < until).count();
            three.push(detector, list[..count].iter().copied(), until);
            taken[detector] += count;
            let waited = at(decided.iter().copied().fold(0.0, f64::max) - 3.0);
            three.changes(&[waited; 3], &mut changes).expect("triggers");
            most = most.max(three.triggers.iter().map(Vec::len).max().unwrap_or(0));
        }
        three.end();
        three.changes(&[END; 3], &mut changes).expect("triggers");
        let finals: Vec<Event> = changes
            .iter()
            .filter(|one| one.state == State::Final)
            .map(|one| one.event.clone())
            .collect();
        assert_eq!(finals, expected.iter().map(strip).collect::<Vec<_>>());
        // Each number ends once, and nothing comes after its end.
        let mut ended = std::collections::HashSet::new();
        for change in &changes {
            assert!(!ended.contains(&change.number), "{change:?}");
            if matches!(change.state, State::Final | State::Retracted) {
                ended.insert(change.number);
            }
        }
        assert_eq!(ended.len() as u64, three.count);
        assert!(changes.iter().any(|one| one.state == State::Better));
        assert!(three.announced.is_empty() && most < 2000, "{most}");
    }

    /// Saves, loads and returns a state.
    fn restored(state: &[u8], detectors: usize) -> Coincider {
        let mut from = Saved::new("a".as_ref(), 0, state).expect("whole");
        let mut coincider = coincider(detectors);
        coincider.load(&mut from).expect("a state");
        from.end().expect("nothing else");
        coincider
    }

    #[test]
    fn a_restored_search_returns_each_change_once_and_all_of_them() {
        let mut state = 11_u64;
        let mut random = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 11) as f64 / (1_u64 << 53) as f64
        };
        let mut lists: Vec<Vec<TimedTrigger>> = vec![Vec::new(); 3];
        for list in &mut lists {
            list.extend((0..6000).map(|_| {
                trigger(100.0 * random(), 4.0 + 3.0 * random() as f32, (4.0 * random()) as u32)
            }));
            list.sort_by_key(|trigger| trigger.gps);
        }
        // Steps of half a second; the second detector is late by up to two seconds.
        let step = |coincider: &mut Coincider, step: usize| {
            for (detector, list) in lists.iter().enumerate() {
                let late = if detector == 1 { 0.5 * ((step / 3) % 5) as f64 } else { 0.0 };
                let until = at(0.5 * step as f64 - late).max(coincider.decided[detector]);
                let from = coincider.decided[detector];
                let next = list.iter().filter(|one| one.gps >= from && one.gps < until).copied();
                coincider.push(detector, next.collect::<Vec<_>>().into_iter(), until);
            }
            let mut changes = Vec::new();
            let waited = at(0.5 * step as f64 - 0.7);
            coincider.changes(&[waited; 3], &mut changes).expect("triggers");
            changes
        };
        let begin = || {
            let mut coincider = coincider(3);
            coincider.decided.fill(at(0.0));
            coincider
        };
        let mut whole = begin();
        let expected: Vec<Change> = (1..=205).flat_map(|one| step(&mut whole, one)).collect();
        assert!(expected.iter().any(|one| one.state == State::Retracted), "{}", expected.len());
        assert!(expected.iter().any(|one| one.state == State::Better));
        for _ in 0..40 {
            let (mut running, mut found) = (begin(), Vec::new());
            let mut saved = Saving::default();
            running.save(&mut saved);
            let (mut saved, mut saved_step) = (saved.finish(), 0);
            let (mut later, mut at_step) = (Vec::<Vec<u8>>::new(), 0);
            while at_step < 205 {
                at_step += 1;
                let changes = step(&mut running, at_step);
                if !changes.is_empty() {
                    let mut to = Saving::default();
                    running.published(changes.clone()).save(&mut to);
                    later.push(to.finish());
                }
                found.extend(changes);
                if random() < 0.05 {
                    let mut to = Saving::default();
                    running.save(&mut to);
                    (saved, saved_step) = (to.finish(), at_step);
                    later.clear();
                } else if random() < 0.1 {
                    running = restored(&saved, 3);
                    for batch in &later {
                        let mut from = Saved::new("a".as_ref(), 0, batch).expect("whole");
                        let batch = Published::load(&mut from, 3).expect("changes");
                        running.take_published(&batch);
                    }
                    at_step = saved_step;
                }
            }
            assert_eq!(found, expected);
        }
        let state = {
            let mut to = Saving::default();
            whole.save(&mut to);
            to.finish()
        };
        assert!(!whole.published(Vec::new()).is_last());
        whole.end();
        let mut last = Vec::new();
        whole.changes(&[at(0.0); 3], &mut last).expect("triggers");
        let last = whole.published(last);
        assert!(last.is_last() && last.changes.iter().all(|one| one.state == State::Final));
        // A search that is restored at its end has nothing left to return.
        let mut ended = restored(&state, 3);
        ended.take_published(&last);
        ended.end();
        let mut none = Vec::new();
        ended.changes(&[at(0.0); 3], &mut none).expect("triggers");
        assert!(none.is_empty(), "{none:?}");
        assert!(
            coincider(2).load(&mut Saved::new("a".as_ref(), 0, &state).expect("whole")).is_err()
        );
    }
}
