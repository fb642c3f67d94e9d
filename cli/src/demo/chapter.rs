//! Shared by the demo's chapters: arguments of the verbs that it calls, figures of the page, and the comparison of
//! candidates with the injected signals.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::Path;

use clap::{Args, FromArgMatches};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sidereal::single_pulse::Candidate;
use sidereal::units::{DM_CONSTANT, HZ_PER_MHZ, dispersion_delay_s};
use sidereal::{Error, Result};

use crate::search::Found;

/// Parses a verb's arguments from a path and lines of words.
pub(super) fn parse<A: Args + FromArgMatches>(
    before: &[&str],
    path: &Path,
    lines: &[&str],
) -> Result<A> {
    let words = lines.iter().flat_map(|line| line.split(' ')).map(Into::into);
    let before = std::iter::once("verb").chain(before.iter().copied()).map(Into::into);
    let all: Vec<OsString> =
        before.chain(std::iter::once(path.as_os_str().to_owned())).chain(words).collect();
    parse_words(all)
}

/// Parses a verb's arguments from words, the first of which is the verb.
pub(super) fn parse_words<A: Args + FromArgMatches>(all: Vec<OsString>) -> Result<A> {
    let command = A::augment_args(clap::Command::new("verb"));
    let matches = command.try_get_matches_from(all);
    matches
        .and_then(|matches| A::from_arg_matches(&matches))
        .map_err(|error| Error::Unavailable { what: "the demo".to_owned(), why: error.to_string() })
}

/// Writes a picture: `alt` describes what is drawn to those who do not see it, `caption` explains it to everybody.
pub(super) fn figure(html: &mut String, file: &str, alt: &str, caption: &str) {
    let _ = writeln!(
        html,
        "<figure><a href=\"{file}\"><img src=\"{file}\" alt=\"{alt}\" loading=\"lazy\"></a>\
         <figcaption>{caption}</figcaption></figure>"
    );
}

/// Describes the plot of a candidate.
pub(super) fn candidate_alt(found: &Discovery) -> String {
    format!(
        "Four panels: a pulse over noise, an upright line over the band below it, a bright spot at DM {:.1}, and a curve of \
         the S/N with its maximum there.",
        found.dm
    )
}

pub(super) fn escape(words: &str) -> String {
    words.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// Fields of a truth file that the demo needs.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Truth {
    pub(super) duration_s: f64,
    pub(super) candidates: Vec<Signal>,
    #[serde(default)]
    pub(super) pulsars: Vec<Signal>,
    #[serde(default)]
    pub(super) narrow_channels: Vec<usize>,
    #[serde(default)]
    pub(super) impulses: Vec<Signal>,
}

/// Burst, pulsar, or interference impulse.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, JsonSchema)]
pub(super) struct Signal {
    pub(super) dm: f64,
    pub(super) time_s: f64,
    pub(super) snr: f64,
    pub(super) width_s: f64,
    #[serde(default)]
    pub(super) scatter_s: f64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) period_s: Option<f64>,
    /// Frequency at which `time_s` is the centre of the pulse; by default that of the highest channel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) reference_mhz: Option<f64>,
}

impl Truth {
    /// Reads a truth file, and replaces the recording's temporary name by its final one.
    pub(super) fn read(path: &Path, recording: &Path) -> Result<Self> {
        let failed = |error: serde_json::Error| {
            Error::format(path, "JSON", error.column() as u64, error.to_string())
        };
        let text = std::fs::read_to_string(path).map_err(|error| Error::io(path, error))?;
        let mut document: serde_json::Value = serde_json::from_str(&text).map_err(failed)?;
        document["file"] = recording.display().to_string().into();
        crate::json::write(path, &document)?;
        serde_json::from_value(document).map_err(failed)
    }
}

/// Injected burst and its candidate, if one was found.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(super) struct Match {
    pub(super) dm: f64,
    pub(super) time_s: f64,
    pub(super) snr: f64,
    pub(super) width_s: f64,
    pub(super) scatter_s: f64,
    pub(super) found: Option<Discovery>,
}

/// Candidate with its index in the list.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub(super) struct Discovery {
    /// Index from 0.
    pub(super) index: usize,
    pub(super) dm: f64,
    pub(super) time_s: f64,
    pub(super) snr: f64,
    pub(super) width_s: f64,
}

impl Discovery {
    fn new(index: usize, candidate: &Candidate) -> Self {
        let Candidate { dm, time_s, snr, width_s, .. } = *candidate;
        Self { index, dm, time_s, snr, width_s }
    }
}

impl Signal {
    /// Returns the signal with its time at the highest channel, as a search reports it.
    pub(super) fn at_highest_channel(self, found: &Found) -> Self {
        let highest_hz = found.header.band.highest_hz();
        let late_s = self.reference_mhz.map_or(0.0, |mhz| {
            dispersion_delay_s(self.dm, highest_hz, mhz * HZ_PER_MHZ, DM_CONSTANT)
        });
        Self { time_s: self.time_s + late_s, reference_mhz: None, ..self }
    }
}

/// Returns the best candidate that matches the signal.
pub(super) fn best(signal: &Signal, found: &Found) -> Option<Discovery> {
    let rule = Rule::new(found);
    let mut candidates = found.report.candidates.iter().enumerate();
    let first = candidates.find(|(_, candidate)| rule.matches(signal, candidate));
    first.map(|(index, candidate)| Discovery::new(index, candidate))
}

/// Result of the comparison.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(super) struct Verdict {
    /// Bursts, in order of time.
    pub(super) bursts: Vec<Match>,
    /// Number of the pulsar's pulses in the recording.
    pub(super) pulses: usize,
    /// Number of the pulsar's pulses found.
    pub(super) pulses_found: usize,
    /// Number of channels with a tone.
    pub(super) tones: usize,
    /// Number of channels with a tone that were masked automatically.
    pub(super) tones_masked: usize,
    /// Number of undispersed impulses.
    pub(super) impulses: usize,
    /// Number of undispersed impulses among the candidates.
    pub(super) impulses_found: usize,
    /// Number of candidates that match no injected signal.
    pub(super) unexplained: usize,
}

impl Verdict {
    pub(super) fn new(truth: &Truth, found: &Found) -> Self {
        let rule = Rule::new(found);
        let candidates = &found.report.candidates;
        let mut explained = vec![false; candidates.len()];
        let mut claim = |signal: &Signal| {
            let index = candidates.iter().position(|candidate| rule.matches(signal, candidate));
            // A burst may produce several candidates; it explains all of them.
            for (known, candidate) in explained.iter_mut().zip(candidates) {
                *known |= rule.matches(signal, candidate);
            }
            index
        };
        let discovery = |index: usize| Discovery::new(index, &candidates[index]);
        let bursts = truth.candidates.iter().map(|burst| Match {
            dm: burst.dm,
            time_s: burst.time_s,
            snr: burst.snr,
            width_s: burst.width_s,
            scatter_s: burst.scatter_s,
            found: claim(burst).map(discovery),
        });
        let bursts = bursts.collect();
        let pulses: Vec<Signal> =
            truth.pulsars.iter().flat_map(|pulsar| pulses(pulsar, truth.duration_s)).collect();
        let pulses_found = pulses.iter().filter(|pulse| claim(pulse).is_some()).count();
        let impulses_found = truth.impulses.iter().filter(|i| claim(i).is_some()).count();
        let masked = &found.report.masked_channels;
        Self {
            bursts,
            pulses: pulses.len(),
            pulses_found,
            tones: truth.narrow_channels.len(),
            tones_masked: truth.narrow_channels.iter().filter(|c| masked.contains(c)).count(),
            impulses: truth.impulses.len(),
            impulses_found,
            unexplained: explained.iter().filter(|known| !**known).count(),
        }
    }

    pub(super) fn missed(&self) -> usize {
        self.bursts.iter().filter(|burst| burst.found.is_none()).count()
    }

    pub(super) fn found_all(&self) -> bool {
        self.missed() == 0
    }
}

/// Returns the pulses of a pulsar within a recording.
fn pulses(pulsar: &Signal, duration_s: f64) -> Vec<Signal> {
    let Some(period_s) = pulsar.period_s.filter(|period| *period > 0.0) else { return Vec::new() };
    let first = (-pulsar.time_s / period_s).ceil() as i64;
    let last = ((duration_s - pulsar.time_s) / period_s).floor() as i64;
    let pulse = |i: i64| Signal { time_s: pulsar.time_s + i as f64 * period_s, ..*pulsar };
    (first..=last).map(pulse).collect()
}

/// Criterion for a candidate that matches a signal: close in time, and in DM within the smearing of the pulse.
struct Rule {
    /// Delay across the band per unit DM.
    sweep_s: f64,
}

impl Rule {
    fn new(found: &Found) -> Self {
        let band = &found.header.band;
        let (low, high) = (band.lowest_hz(), band.highest_hz());
        Self { sweep_s: dispersion_delay_s(1.0, low, high, DM_CONSTANT) }
    }

    fn matches(&self, signal: &Signal, candidate: &Candidate) -> bool {
        let width_s = candidate.width_s.max(signal.width_s);
        let late_s = (candidate.time_s - signal.time_s).abs();
        let smear_s = (candidate.dm - signal.dm).abs() * self.sweep_s;
        late_s <= 1.5 * width_s + signal.scatter_s && smear_s <= 2.0 * width_s + signal.scatter_s
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pulsar_has_pulses_before_and_after_the_one_given() {
        let pulsar = Signal {
            dm: 1.0,
            time_s: 2.5,
            snr: 9.0,
            width_s: 0.01,
            scatter_s: 0.0,
            period_s: Some(1.0),
            reference_mhz: None,
        };
        let times: Vec<f64> = pulses(&pulsar, 4.2).iter().map(|pulse| pulse.time_s).collect();
        assert_eq!(times, [0.5, 1.5, 2.5, 3.5]);
    }
}
