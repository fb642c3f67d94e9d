//! Events from triggers as they arrive, each detector at its own pace.
//!
//! Invariant: final events are those of a search of all triggers; the memory holds the triggers of a bounded time.

use super::search::{check_triggers, event, nanoseconds, zero_lag};
use super::segments::Segments;
use super::{Detector, Event, Options, TimedTrigger};
use crate::error::{Error, Result};
use crate::units::Gps;
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

/// Change of an event.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// New state.
    pub state: State,
    /// Number of the event, from 1, the same in all of its changes.
    pub number: u64,
    /// The event, without a false-alarm rate; a retracted one as it was announced.
    pub event: Event,
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
}

impl Coincider {
    /// Checks the options; only windows, cluster window and ranking have an effect.
    ///
    /// # Errors
    /// [`Error::Parameter`] for no or more than 4 detectors, and for unusable windows.
    pub fn new(detectors: usize, options: Options) -> Result<Self> {
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
        if !self.has_new && (ended, shown) == (self.ended, self.shown) {
            return Ok(());
        }
        let valid = Segments::default();
        let detectors: Vec<Detector<'_>> =
            self.triggers.iter().map(|triggers| Detector { triggers, valid: &valid }).collect();
        check_triggers(&detectors)?;
        let mut found = zero_lag(&detectors, &self.options, &self.windows_ns);
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
                        changes.push(Change { state: State::Final, number, event });
                    } else if event.gps < shown && event != announced.event {
                        announced.event = event.clone();
                        changes.push(Change { state: State::Better, number, event });
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
                    changes.push(Change { state, number, event });
                }
                None => {}
            }
        }
        for announced in self.announced.iter().filter(|announced| !announced.is_there) {
            let Announced { number, event, .. } = announced.clone();
            changes.push(Change { state: State::Retracted, number, event });
        }
        self.announced.retain(|announced| announced.is_there && !announced.is_final);
        (self.ended, self.shown, self.has_new) = (ended, shown, false);
        let oldest = Gps { ns: ended.ns - self.cluster_ns - self.longest_ns };
        self.triggers.iter_mut().for_each(|list| list.retain(|trigger| trigger.gps >= oldest));
        Ok(())
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
        Coincider::new(detectors, options(detectors)).expect("options")
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
}
