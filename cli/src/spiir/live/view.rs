//! State of a live search of strain, as its page shows it: counters each second, spectra, and events.

use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use schemars::JsonSchema;
use serde::Serialize;
use sidereal::geometry::tai_utc_s;
use sidereal::live::frames::{Arrived, FrameStreams, Reason};
use sidereal::math::PowerSpectrum;
use sidereal::pipeline::cbc::{OnlineSearch, WhitenedPart, horizon_mpc};
use sidereal::spiir::coincidence::{Event, RankedRate};
use sidereal::units::{Gps, SECONDS_PER_DAY, SECONDS_PER_YEAR};

use super::document::GapRow;
use super::lines::EventLine;

/// Binary of the horizon: masses in solar masses, and its signal-to-noise ratio.
const HORIZON_MSUN: [f64; 2] = [1.4, 1.4];
const HORIZON_SNR: f64 = 8.0;

/// Lowest frequency of the spectra that are shown, in Hz, and their points.
const LOWEST_HZ: f64 = 10.0;
const POINTS: usize = 400;

/// Times between two views and between two spectra.
const EACH: Duration = Duration::from_secs(1);
const SPECTRA_EACH: Duration = Duration::from_secs(5);

/// Seconds of whitened strain before and after an event.
pub(crate) const AROUND_S: f64 = 1.0;

/// Day (MJD) of the epoch of GPS times, and difference of TAI and UTC then; day of 1970.
const GPS_DAY: i64 = 44_244;
const GPS_TAI_S: f64 = 19.0;
const UNIX_DAY: i64 = 40_587;

/// State of a live search of strain.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct StrainView {
    pub(crate) rate_hz: u32,
    pub(crate) detectors: Vec<DetectorView>,
    /// Final and retracted events.
    pub(crate) found: u64,
    pub(crate) retracted: u64,
    /// From the time of the last event to its first line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) event_latency_s: Option<f64>,
    /// Whether a background gives events false-alarm rates.
    pub(crate) has_background: bool,
    /// Rate of events of at least a ranking in the time slides of the background.
    pub(crate) background: Vec<RankedRow>,
}

/// Rate of accidental events of at least a ranking.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub(crate) struct RankedRow {
    pub(crate) ranking: f64,
    pub(crate) per_year: f64,
}

/// State of a detector.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct DetectorView {
    pub(crate) name: String,
    /// Channel of the strain; absent before a frame was read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) channel: Option<String>,
    /// GPS time of the next sample.
    pub(crate) next_gps: f64,
    /// Time of this machine less that of the last strain; absent before a frame was read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) last_sample_age_s: Option<f64>,
    /// Seconds since a frame arrived; absent before the first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) since_frame_s: Option<f64>,
    /// Frames that were read.
    pub(crate) frames: u64,
    pub(crate) duration_s: f64,
    /// Strain that was valid.
    pub(crate) valid_s: f64,
    /// Invalid strain by reason.
    pub(crate) gaps: BTreeMap<&'static str, GapRow>,
    /// Files whose time had passed, and files whose time had been read.
    pub(crate) late: u64,
    pub(crate) repeated: u64,
    pub(crate) triggers: u64,
    pub(crate) templates: usize,
    /// Templates whose filters have had strain for as long as they remember it.
    pub(crate) warm: usize,
    /// Strain after which all templates are warm.
    pub(crate) warm_after_s: f64,
    /// Times that the filters were restarted after a gap longer than their memory.
    pub(crate) restarts: u64,
    /// Distance at which two neutron stars of 1.4 solar masses, overhead and face-on, have a signal-to-noise ratio of 8; absent without a
    /// spectrum.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) horizon_mpc: Option<f64>,
    pub(crate) latency_s: StagesView,
}

/// Latency of the last frame by stage.
#[derive(Clone, Copy, Debug, Default, Serialize, JsonSchema)]
pub(crate) struct StagesView {
    /// Length of the frame, whose first sample waits for its end.
    pub(crate) frame: f64,
    /// From its end to its arrival.
    pub(crate) delivery: f64,
    /// From its arrival to the end of its search, less the time of the search itself.
    pub(crate) waiting: f64,
    /// Delay of triggers by whitening, filters and peak search.
    pub(crate) algorithms: f64,
    /// Time of its search.
    pub(crate) computing: f64,
}

/// Loudest triggers of a second.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct TrackLine {
    pub(crate) second: i64,
    /// Signal-to-noise ratio of each detector; null without a trigger.
    pub(crate) snr: Vec<Option<f32>>,
}

/// Spectrum of a detector.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct SpectrumLine {
    pub(crate) detector: String,
    /// Frequencies, in equal steps of their logarithm.
    pub(crate) hz: Vec<f64>,
    /// Strain per root of hertz.
    pub(crate) asd: Vec<f64>,
}

/// Whitened strain about an event.
#[cfg_attr(not(feature = "page"), expect(dead_code, reason = "only the page reads it"))]
pub(crate) struct AroundEvent {
    /// Detector, and its strain.
    pub(crate) parts: Vec<DetectorPart>,
    pub(crate) gps: Gps,
}

/// Whitened strain of a detector.
#[cfg_attr(not(feature = "page"), expect(dead_code, reason = "only the page reads it"))]
pub(crate) struct DetectorPart {
    pub(crate) detector: String,
    pub(crate) part: WhitenedPart,
}

/// Receiver of what the page shows.
pub(crate) trait Viewer: Send + Sync {
    /// Takes the state, and the loudest triggers of seconds, which replace earlier ones of the same second.
    fn strain(&self, view: StrainView, tracks: Vec<TrackLine>);

    /// Takes the spectra of all detectors.
    fn spectra(&self, spectra: Vec<SpectrumLine>);

    /// Takes lines of events that earlier processes of the run wrote, before all others.
    fn earlier(&self, lines: Vec<serde_json::Value>);

    /// Takes the line of an event, with whitened strain about it.
    fn event(&self, line: &EventLine, around: AroundEvent);
}

/// Latency of a detector's last frame.
#[derive(Clone, Copy, Debug, Default)]
struct Last {
    arrived: Option<Instant>,
    stages: StagesView,
    /// Time of this machine less that of the strain's end, when it arrived.
    end_unix_s: Option<f64>,
}

/// Times and numbers of what was shown last.
pub(super) struct Views {
    last: Vec<Last>,
    shown: Option<Instant>,
    spectra: Option<Instant>,
    horizons: Vec<Option<f64>>,
    event_latency_s: Option<f64>,
    /// GPS second of which the tracks were shown last.
    tracked: i64,
}

/// Returns the GPS time as seconds since 1970.
fn unix_s(gps: Gps) -> f64 {
    let day = GPS_DAY + (gps.s() / SECONDS_PER_DAY) as i64;
    // Dates after the last known leap second count as before it.
    let leap_s = tai_utc_s(day).unwrap_or(37.0) - GPS_TAI_S;
    gps.s() + (GPS_DAY - UNIX_DAY) as f64 * SECONDS_PER_DAY - leap_s
}

fn now_unix_s() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

impl Views {
    pub(super) fn new(detectors: usize) -> Self {
        Self {
            last: vec![Last::default(); detectors],
            shown: None,
            spectra: None,
            horizons: vec![None; detectors],
            event_latency_s: None,
            tracked: i64::MIN,
        }
    }

    /// Takes note of a frame whose search took `spent` and has ended.
    pub(super) fn searched(&mut self, detector: usize, frame: Arrived, spent: Duration) {
        let Arrived { at, span } = frame;
        let waiting = at.elapsed().saturating_sub(spent);
        let arrived_unix_s = now_unix_s() - at.elapsed().as_secs_f64();
        let end_unix_s = unix_s(span.end);
        self.last[detector] = Last {
            arrived: Some(at),
            stages: StagesView {
                frame: span.end.seconds_since(span.start),
                delivery: arrived_unix_s - end_unix_s,
                waiting: waiting.as_secs_f64(),
                algorithms: 0.0,
                computing: spent.as_secs_f64(),
            },
            end_unix_s: Some(end_unix_s),
        };
    }

    /// Shows the state if it is time.
    pub(super) fn show(
        &mut self,
        viewer: &dyn Viewer,
        search: &OnlineSearch,
        streams: &FrameStreams,
        counts: EventCounts,
    ) {
        let now = Instant::now();
        let is_due = |last: Option<Instant>, each| last.is_none_or(|last| now - last >= each);
        if !is_due(self.shown, EACH) {
            return;
        }
        self.shown = Some(now);
        if is_due(self.spectra, SPECTRA_EACH) {
            self.spectra = Some(now);
            let mut lines = Vec::new();
            for (detector, one) in search.detectors().enumerate() {
                let Some(psd) = search.psd(detector) else { continue };
                let f_low_hz = one.bank.options.f_low_hz;
                let horizon = horizon_mpc(&psd, HORIZON_MSUN, f_low_hz, HORIZON_SNR);
                self.horizons[detector] = horizon.is_finite().then_some(horizon);
                lines.push(spectrum(one.detector, &psd));
            }
            viewer.spectra(lines);
        }
        let detectors = (0..self.last.len()).map(|index| self.detector(index, search, streams));
        let view = StrainView {
            rate_hz: streams.begun().map_or(0, |begun| begun.rate_hz),
            detectors: detectors.flatten().collect(),
            found: counts.found,
            retracted: counts.retracted,
            event_latency_s: self.event_latency_s,
            has_background: search.background().livetime_s() > 0.0,
            background: search.background().slid_rates().into_iter().map(ranked).collect(),
        };
        viewer.strain(view, self.tracks(search));
    }

    fn detector(
        &self,
        index: usize,
        search: &OnlineSearch,
        streams: &FrameStreams,
    ) -> Option<DetectorView> {
        let one = search.detectors().nth(index)?;
        let (last, counts) = (self.last[index], streams.counts(index));
        let rate = f64::from(one.bank.rate_hz);
        let seconds = |samples: u64| samples as f64 / rate;
        let gaps = Reason::ALL.iter().zip(&counts.gaps).filter(|(_, count)| count.gaps > 0);
        Some(DetectorView {
            name: one.detector.to_owned(),
            channel: streams.channel(index).map(str::to_owned),
            next_gps: streams.next(index).map_or(0.0, Gps::s),
            last_sample_age_s: last.end_unix_s.map(|end| now_unix_s() - end),
            since_frame_s: last.arrived.map(|arrived| arrived.elapsed().as_secs_f64()),
            frames: counts.frames,
            duration_s: seconds(counts.samples),
            valid_s: seconds(counts.valid()),
            gaps: gaps
                .map(|(reason, count)| (reason.name(), GapRow::new(count, one.bank.rate_hz)))
                .collect(),
            late: counts.late,
            repeated: counts.repeated,
            triggers: one.triggers,
            templates: one.bank.templates.len(),
            warm: one.warm,
            warm_after_s: one.warm_after_s,
            restarts: one.restarts,
            horizon_mpc: self.horizons[index],
            latency_s: StagesView { algorithms: one.latency.total_s(), ..last.stages },
        })
    }

    /// Returns the loudest triggers of the seconds that may have changed since the last time.
    fn tracks(&mut self, search: &OnlineSearch) -> Vec<TrackLine> {
        let detectors = self.last.len();
        let mut seconds = BTreeMap::new();
        for detector in 0..detectors {
            for one in search.loudest(detector).filter(|one| one.second >= self.tracked) {
                let snr = seconds.entry(one.second).or_insert_with(|| vec![None; detectors]);
                snr[detector] = Some(one.snr);
            }
        }
        // A detector may be late by some seconds.
        let last = seconds.last_key_value().map_or(self.tracked, |(second, _)| second - 10);
        self.tracked = self.tracked.max(last);
        seconds.into_iter().map(|(second, snr)| TrackLine { second, snr }).collect()
    }

    /// Shows an event.
    pub(super) fn event(
        &mut self,
        viewer: &dyn Viewer,
        search: &OnlineSearch,
        event: &Event,
        line: &EventLine,
    ) {
        if line.is_first() {
            self.event_latency_s = Some(now_unix_s() - unix_s(event.gps));
        }
        let names: Vec<&str> = search.detectors().map(|one| one.detector).collect();
        let part = |(index, name): (usize, &&str)| {
            let part = search.whitened(index, event.gps.plus_s(-AROUND_S), 2.0 * AROUND_S);
            let part = part.ok()??;
            Some(DetectorPart { detector: (*name).to_owned(), part })
        };
        let parts = names.iter().enumerate().filter_map(part).collect();
        viewer.event(line, AroundEvent { parts, gps: event.gps });
    }
}

fn ranked(RankedRate { ranking, rate_hz }: RankedRate) -> RankedRow {
    let per_year = digits(rate_hz * SECONDS_PER_YEAR, 3);
    RankedRow { ranking: (ranking * 10.0).round() / 10.0, per_year }
}

/// Rounds a positive value to this many digits; 0 for others.
fn digits(value: f64, digits: i32) -> f64 {
    let scale = 10_f64.powi(digits - 1 - value.abs().log10().floor() as i32);
    if value > 0.0 && scale.is_finite() { (value * scale).round() / scale } else { 0.0 }
}

/// Numbers of events.
#[derive(Clone, Copy, Debug)]
pub(super) struct EventCounts {
    pub(super) found: u64,
    pub(super) retracted: u64,
}

/// Returns the points of a spectrum.
fn spectrum(detector: &str, psd: &PowerSpectrum) -> SpectrumLine {
    let highest_hz = psd.highest_hz();
    let lowest_hz = LOWEST_HZ.min(0.1 * highest_hz);
    let hertz = |point: usize| {
        lowest_hz * (highest_hz / lowest_hz).powf(point as f64 / (POINTS - 1) as f64)
    };
    let hz: Vec<f64> = (0..POINTS).map(|point| digits(hertz(point), 5)).collect();
    // The least of the bins of a point would hide lines; the greatest shows them.
    let bin = |hertz: f64| (hertz / psd.spacing_hz()).round() as usize;
    let greatest = |point: usize| {
        let (from, to) = (bin(hertz(point)), bin(hertz((point + 1).min(POINTS - 1))));
        let bins = psd.densities().iter().skip(from).take(to.saturating_sub(from).max(1));
        bins.copied().filter(|density| density.is_finite()).fold(0.0, f64::max)
    };
    let asd = (0..POINTS).map(|point| digits(greatest(point).sqrt(), 4)).collect();
    SpectrumLine { detector: detector.to_owned(), hz, asd }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gps_times_are_those_of_a_clock() {
        // GW150914: 2015-09-14 09:50:45.4 UTC, 17 leap seconds after the epoch.
        assert!((unix_s(Gps::from_s(1_126_259_462.4)) - 1_442_224_245.4).abs() < 1e-3);
        // 2025-01-01 00:00:00 UTC.
        assert!((unix_s(Gps::from_s(1_419_724_818.0)) - 1_735_689_600.0).abs() < 1e-3);
    }

    #[test]
    fn spectra_have_their_lines() {
        let mut densities = vec![1e-46; 8193];
        densities[4 * 60] = 1e-40;
        let psd = PowerSpectrum::new(0.25, densities).unwrap();
        let line = spectrum("H1", &psd);
        assert_eq!((line.hz.len(), line.asd.len()), (POINTS, POINTS));
        assert_eq!((line.hz[0], line.hz[POINTS - 1]), (10.0, 2048.0));
        let loudest = (0..POINTS).max_by(|a, b| line.asd[*a].total_cmp(&line.asd[*b])).unwrap();
        let is = |found: f64, expected: f64| (found / expected - 1.0).abs() < 1e-9;
        assert!((line.hz[loudest] - 60.0).abs() < 1.0, "{}", line.hz[loudest]);
        assert!(is(line.asd[loudest], 1e-20) && is(line.asd[0], 1e-23), "{:?}", line.asd);
    }
}
