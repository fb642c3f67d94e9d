//! State of a live search of strain that the page shows: spectra, loudest triggers, events, and maps of their energy.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use serde::Serialize;
use serde_json::Value;

use crate::json;
use crate::plots::strain::constant_q;
use crate::spiir::{
    AROUND_S, AroundEvent, EventLine, EventState, SpectrumLine, StrainView, TrackLine,
};

/// Seconds of the loudest triggers, events, and events with whitened strain that are kept.
const MOST_TRACKS: usize = 600;
const MOST_EVENTS: usize = 200;
const MOST_AROUND: usize = 50;

/// Seconds of a map from the event, its frequencies, the quality factor of its tiles, and its cells.
const MAP_S: [f64; 2] = [-0.5, 0.25];
const MAP_HZ: [f64; 2] = [20.0, 500.0];
const QUALITY: f64 = 8.0;
const COLUMNS: usize = 150;
const ROWS: usize = 64;

/// A map is made from the strain about its event.
const _: () = assert!(-MAP_S[0] < AROUND_S && MAP_S[1] < AROUND_S);

/// State of an event, and the time of its line.
#[derive(Clone, Copy, Debug, Serialize)]
struct Step {
    state: EventState,
    written_unix_s: f64,
}

/// Line of an event: one of this process, or one that an earlier process of the run wrote.
#[derive(Clone, Serialize)]
#[serde(untagged)]
enum Line {
    New(Box<EventLine>),
    Earlier(Value),
}

impl Line {
    /// Returns the folder of the run and the number of the event.
    fn key(&self) -> (&str, u64) {
        match self {
            Self::New(line) => line.key(),
            Self::Earlier(line) => (
                line["observation"].as_str().unwrap_or_default(),
                line["number"].as_u64().unwrap_or_default(),
            ),
        }
    }
}

/// Event with the states that it has had.
#[derive(Clone, Serialize)]
struct EventEntry {
    #[serde(flatten)]
    line: Line,
    history: Vec<Step>,
    /// Detectors of which there are maps.
    maps: Vec<String>,
    #[serde(skip)]
    around: Option<Arc<AroundEvent>>,
}

/// Energy of whitened strain by time and frequency.
#[derive(Debug, Serialize)]
pub(super) struct Map {
    detector: String,
    /// Times from the event, and frequencies in equal steps of their logarithm.
    seconds: [f64; 2],
    hz: [f64; 2],
    /// Energy, 1 in noise, by column of time, each by ascending frequency; null outside of the strain.
    columns: Vec<Vec<Option<f64>>>,
}

/// Whole state for a reader of events that begins.
#[derive(Serialize)]
pub(super) struct StrainHello {
    spectra: Vec<SpectrumLine>,
    tracks: VecDeque<TrackLine>,
    /// The latest last.
    events: VecDeque<EventEntry>,
}

#[derive(Default)]
struct State {
    view: Option<Reported>,
    spectra: Vec<SpectrumLine>,
    tracks: VecDeque<TrackLine>,
    events: VecDeque<EventEntry>,
}

impl State {
    /// Puts the newest line of an event behind all others, with its earlier states; returns its text.
    fn put(&mut self, mut entry: EventEntry) -> String {
        let place = self.events.iter().position(|one| one.line.key() == entry.line.key());
        if let Some(before) = place.and_then(|place| self.events.remove(place)) {
            entry.history.splice(0..0, before.history);
        }
        let text = json::line(&entry).unwrap_or_default();
        self.events.push_back(entry);
        if self.events.len() > MOST_EVENTS {
            self.events.pop_front();
        }
        text
    }
}

/// Report of the search.
#[derive(Clone)]
pub(super) struct Reported {
    pub(super) view: Arc<StrainView>,
    pub(super) at: Instant,
}

/// State of the strain that the page shows.
#[derive(Default)]
pub(super) struct StrainBoard(Mutex<State>);

impl StrainBoard {
    fn locked(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the last report of the search.
    pub(super) fn reported(&self) -> Option<Reported> {
        self.locked().view.clone()
    }

    /// Returns the whole state; `None` without a search of strain.
    pub(super) fn hello(&self) -> Option<StrainHello> {
        let state = self.locked();
        if state.view.is_none() && state.events.is_empty() {
            return None;
        }
        let (spectra, tracks) = (state.spectra.clone(), state.tracks.clone());
        Some(StrainHello { spectra, tracks, events: state.events.clone() })
    }

    /// Takes a report, and the loudest triggers of seconds, which replace earlier ones of the same second.
    pub(super) fn report(&self, view: StrainView, tracks: Vec<TrackLine>) {
        let mut state = self.locked();
        state.view = Some(Reported { view: Arc::new(view), at: Instant::now() });
        for track in tracks {
            let place = state.tracks.partition_point(|one| one.second < track.second);
            match state.tracks.get_mut(place).filter(|one| one.second == track.second) {
                Some(one) => *one = track,
                None => state.tracks.insert(place, track),
            }
        }
        let excess = state.tracks.len().saturating_sub(MOST_TRACKS);
        state.tracks.drain(..excess);
    }

    /// Sets the spectra.
    pub(super) fn set_spectra(&self, spectra: Vec<SpectrumLine>) {
        self.locked().spectra = spectra;
    }

    /// Adds the line of an event, with whitened strain about it; returns the text of what is known of it.
    pub(super) fn add(&self, line: &EventLine, around: AroundEvent) -> String {
        let step = Step { state: line.state(), written_unix_s: line.written_unix_s() };
        let maps = around.parts.iter().map(|one| one.detector.clone()).collect();
        let mut state = self.locked();
        let line = Line::New(Box::new(line.clone()));
        let entry = EventEntry { line, history: vec![step], maps, around: Some(Arc::new(around)) };
        let text = state.put(entry);
        let old = state.events.len().saturating_sub(MOST_AROUND);
        for entry in state.events.iter_mut().take(old) {
            entry.maps.clear();
            entry.around = None;
        }
        text
    }

    /// Takes lines of events that earlier processes of the run wrote, whose maps are gone; returns the texts of what is known of them.
    pub(super) fn restore(&self, lines: Vec<Value>) -> Vec<String> {
        let mut state = self.locked();
        let mut texts = Vec::new();
        for line in lines {
            let Ok(own) = serde_json::from_value(line["state"].clone()) else { continue };
            let written_unix_s = line["written_unix_s"].as_f64().unwrap_or_default();
            let history = vec![Step { state: own, written_unix_s }];
            let (line, maps) = (Line::Earlier(line), Vec::new());
            texts.push(state.put(EventEntry { line, history, maps, around: None }));
        }
        texts
    }

    /// Returns the whitened strain about an event.
    pub(super) fn around(&self, number: u64) -> Option<Arc<AroundEvent>> {
        let state = self.locked();
        let mut events = state.events.iter().rev();
        events.find(|one| one.line.key().1 == number)?.around.clone()
    }
}

/// Computes the map of a detector about an event; `None` without its strain.
pub(super) fn map(around: &AroundEvent, detector: &str) -> Option<Map> {
    let one = around.parts.iter().find(|one| one.detector == detector)?;
    let rate = f64::from(one.part.rate_hz);
    let [low, high] = [MAP_HZ[0], MAP_HZ[1].min(0.45 * rate)];
    let event = around.gps.seconds_since(one.part.start) * rate;
    let place = |column: usize| {
        let part = (column as f64 + 0.5) / COLUMNS as f64;
        event + (MAP_S[0] + part * (MAP_S[1] - MAP_S[0])) * rate
    };
    let places: Vec<f64> = (0..COLUMNS).map(place).collect();
    let rows = (0..ROWS).map(|row| low * (high / low).powf((row as f64 + 0.5) / ROWS as f64));
    let plane = constant_q(&one.part.samples, rate, QUALITY, rows, &places);
    let rounded =
        |energy: f32| energy.is_finite().then(|| (f64::from(energy) * 100.0).round() / 100.0);
    let column = |column: usize| {
        plane.iter().skip(column).step_by(COLUMNS).map(|energy| rounded(*energy)).collect()
    };
    let columns = (0..COLUMNS).map(column).collect();
    Some(Map { detector: detector.to_owned(), seconds: MAP_S, hz: [low, high], columns })
}
