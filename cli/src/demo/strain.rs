//! The demo's fourth recording: the strain of two interferometers with a merger of two black holes.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::Path;

use schemars::JsonSchema;
use serde::Serialize;
use sidereal::{Error, Result};

use super::chapter::{figure, parse, parse_words};
use crate::common::Common;
use crate::output::Folder;
use crate::plots::short;
use crate::progress::multiple;
use crate::{interrupt, simulate, spiir};

/// Name of the strain files, without the detector's name.
pub(super) const RECORDING: &str = "strain.hdf5";
/// Folder of the search results.
pub(super) const FOUND: &str = "gravitational-wave";
/// File name of the templates.
pub(super) const TEMPLATES: &str = "binaries.csv";

/// Options of the simulation: 32 s of two detectors with Advanced LIGO's design noise, with a merger of two black
/// holes.
pub(super) const SIMULATION: &[&str] = &[
    "--detectors H1,L1 --start 1400000000 --length 32 --seed 2015",
    "--inject m1=36,m2=29,distance=900,ra=1.95,dec=-1.27,inclination=2.7,time=1400000018.4",
];

/// Options of the search.
pub(super) const SEARCH: &str = "--f-low 25 --psd aligo --slides 100 --png";

/// Binaries of the search, which include the injected one.
const BINARIES: &str = "mass1,mass2\n10,10\n30,20\n36,29\n50,40\n";

/// Arrival time of the wave at the Earth's centre, and largest time difference in a detector: the light travel time.
const TIME_GPS: f64 = 1_400_000_018.4;
const NEAR_S: f64 = 0.03;

/// Sentence about that time.
const INJECTED: &str =
    "The wave was put in to pass the Earth's centre, up to 21 ms from a detector, at GPS";

/// Results of the search.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(super) struct Merger {
    /// Whether the loudest event is the injection.
    found: bool,
    /// Loudest event; `None` if there is none.
    #[serde(flatten)]
    loudest: Option<Loudest>,
    filters: usize,
    #[serde(skip)]
    realtime_factor: f64,
}

/// One event.
#[derive(Clone, Debug, Serialize, JsonSchema)]
struct Loudest {
    network_snr: f64,
    far_hz: Option<f64>,
    template: String,
    gps: f64,
    /// Name, signal-to-noise ratio and time of each detector.
    detectors: Vec<(String, f64, f64)>,
}

impl Loudest {
    /// Returns whether the event is the injection.
    fn is_injected(&self) -> bool {
        self.detectors.len() == 2 && (self.gps - TIME_GPS).abs() < NEAR_S
    }
}

impl Merger {
    /// Simulates and searches.
    pub(super) fn make(folder: &Folder, common: &Common) -> Result<Self> {
        let recording = folder.file(RECORDING);
        simulate::run(
            &parse::<simulate::Arguments>(&["strain"], &recording, SIMULATION)?,
            &Common { quiet: true, ..common.clone() },
        )?;
        interrupt::check()?;
        let templates = folder.file(TEMPLATES);
        std::fs::write(&templates, BINARIES).map_err(|error| Error::io(&templates, error))?;
        let inner = folder.inner(FOUND)?;
        let arguments = arguments(folder, &templates, &inner.file(""))?;
        let done = spiir::run_into(&inner, &arguments, common)?;
        let loudest = done.product.document.events.first().map(|event| Loudest {
            network_snr: event.network_snr,
            far_hz: event.far_hz,
            template: event.template.clone(),
            gps: event.gps,
            detectors: (event.detectors.iter())
                .map(|(name, one)| (name.clone(), one.snr, one.gps))
                .collect(),
        });
        let banks = done.report.detectors.iter().flat_map(|one| &one.bank.templates);
        Ok(Self {
            found: loudest.as_ref().is_some_and(Loudest::is_injected),
            loudest,
            filters: banks.map(|template| template.filters.filters()).sum(),
            realtime_factor: done.report.realtime_factor(),
        })
    }

    /// Returns whether the injection is the loudest event.
    pub(super) fn is_found(&self) -> bool {
        self.found
    }

    /// Formats one line for the end of the demo.
    pub(super) fn text(&self) -> String {
        self.loudest.as_ref().map_or_else(
            || "no event".to_owned(),
            |event| {
                let Loudest { network_snr, gps, template, .. } = event;
                format!("network SNR {network_snr:.1} at GPS {gps:.3}, template {template}")
            },
        )
    }

    /// Writes the chapter of the page.
    pub(super) fn html(&self, html: &mut String) {
        let _ = write!(
            html,
            "<h2>8. Two black holes, heard by two detectors</h2>\n\
             <p>When two black holes merge, space itself is stretched and squeezed, by a part in \
             10<sup>21</sup> when it reaches us. An interferometer measures it: its <i>strain</i>. \
             <a href=\"strain_H1.hdf5\">These</a> <a href=\"strain_L1.hdf5\">two recordings</a> have 32 s \
             of noise as the two detectors of Advanced LIGO have it by design, and in it holes of 36 and 29 \
             solar masses, 900 Mpc away. Their wave is far below the noise at nearly all frequencies.</p>\n\
             <p>The search makes all frequencies of the noise equal (<i>whitening</i>), and compares with the \
             waves of {} binaries: {} filters, each a sine that fades, whose sum answers a wave. What both \
             detectors hear within the time that light takes from one to the other is an event; sliding one \
             against the other tells how often chance makes one.</p>\n",
            BINARIES.lines().count() - 1,
            self.filters,
        );
        let Some(loudest) = &self.loudest else {
            let _ = writeln!(
                html,
                "<p class=\"verdict bad\">Not found: there is no event. {INJECTED} {TIME_GPS:.3}.</p>"
            );
            return;
        };
        if self.found {
            pictures(html);
        }
        self.verdict(loudest, html);
        figure(
            html,
            &picture("background.png"),
            "Bars of the number of events by ranking in the shifted data, a falling line of their sum, and a dot for each \
             event found.",
            "What chance makes of the same data, by sliding the detectors against each other (bars), beside \
             the events found (dots). A dot among the bars may be chance, too.",
        );
    }

    fn verdict(&self, loudest: &Loudest, html: &mut String) {
        let (sign, word) = if self.found {
            ("good", "Found:")
        } else {
            ("bad", "Not found. The loudest event is another:")
        };
        let parts: Vec<String> = loudest
            .detectors
            .iter()
            .map(|(name, snr, _)| format!("{name} {}", short(*snr, 3)))
            .collect();
        let rate = match loudest.far_hz {
            Some(rate) => {
                format!(
                    " Chance makes one as loud no more often than every {} s.",
                    short(1.0 / rate, 2)
                )
            }
            None => String::new(),
        };
        let _ = writeln!(
            html,
            "<p class=\"verdict {sign}\">{word} network SNR {} ({}) at GPS {:.3}, by the template of {} solar \
             masses. {INJECTED} {TIME_GPS:.3}.{rate} Searched at {} times real time.</p>",
            short(loudest.network_snr, 3),
            parts.join(", "),
            loudest.gps,
            loudest.template,
            multiple(self.realtime_factor),
        );
    }
}

/// Returns the path of a plot.
fn picture(name: &str) -> String {
    format!("{FOUND}/{name}")
}

/// Writes the plots of the loudest event, the injection.
fn pictures(html: &mut String) {
    let pictures = [
        (
            "event1_snr.png",
            "Two curves of SNR by time, one for each detector, each with a single sharp peak far above the threshold.",
            "What the filters answer, in both detectors: the wave arrives in one some milliseconds before \
             the other.",
        ),
        (
            "event1_whitened.png",
            "Two panels: the strain in blue wavers about a red wave that grows and quickens until it ends at 0.",
            "The whitened strain, and over it the wave that fits best.",
        ),
        (
            "event1_map.png",
            "Two dark maps, one for each detector, with a bright curve that bends upwards ever more steeply.",
            "Time and frequency: the chirp rises as the holes spiral in.",
        ),
    ];
    for (name, alt, caption) in pictures {
        figure(html, &picture(name), alt, caption);
    }
}

/// Returns whether a suffix of the recordings' name is a detector's, such as `_H1.hdf5`.
pub(super) fn is_of_a_detector(end: &str) -> bool {
    matches!(end, "_H1.hdf5" | "_L1.hdf5")
}

/// Returns the arguments of the search.
fn arguments(folder: &Folder, templates: &Path, output: &Path) -> Result<spiir::SearchArguments> {
    let mut words: Vec<OsString> = vec!["verb".into()];
    for name in ["H1", "L1"] {
        words.push(folder.file(RECORDING.replace('.', &format!("_{name}."))).into());
    }
    words.extend(["--templates".into(), templates.into(), "-o".into(), output.into()]);
    words.extend(SEARCH.split(' ').map(OsString::from));
    parse_words(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_found_is_told_and_not_drawn() {
        let event = Loudest {
            network_snr: 20.0,
            far_hz: None,
            template: "36+29".to_owned(),
            gps: TIME_GPS,
            detectors: ["H1", "L1"].map(|name| (name.to_owned(), 14.0, TIME_GPS)).into(),
        };
        assert!(
            event.is_injected() && !Loudest { gps: TIME_GPS + 1.0, ..event.clone() }.is_injected()
        );
        let merger = |loudest: Option<Loudest>| Merger {
            found: loudest.as_ref().is_some_and(Loudest::is_injected),
            loudest,
            filters: 100,
            realtime_factor: 10.0,
        };
        let texts = |merger: &Merger| {
            let mut html = String::new();
            merger.html(&mut html);
            (html, merger.text(), serde_json::to_value(merger).unwrap())
        };
        let other = Loudest { gps: TIME_GPS + 1.0, far_hz: Some(0.01), ..event.clone() };
        let (html, text, document) = texts(&merger(Some(other)));
        assert!(html.contains("verdict bad") && html.contains("Not found. The loudest"), "{html}");
        assert!(html.contains("no more often than every 100 s"), "{html}");
        // The false event's plots show no chirp; the background is shown all the same.
        assert!(!html.contains("event1_") && html.contains("background.png"), "{html}");
        assert_eq!((&document["found"], &document["network_snr"]), (&false.into(), &20.0.into()));
        assert!(text.contains("network SNR 20"), "{text}");
        let (html, text, document) = texts(&merger(Some(event)));
        assert!(html.contains("Found: network SNR 20"), "{html}");
        assert!(html.contains("at GPS 1400000018.400"), "{html}");
        assert!(html.contains("event1_map.png") && text.contains("template 36+29"), "{text}");
        assert_eq!(document["network_snr"], 20.0);
        let (html, text, document) = texts(&merger(None));
        assert!(html.contains("Not found") && !html.contains("<img"), "{html}");
        assert_eq!((text.as_str(), &document["found"]), ("no event", &false.into()));
        assert!(document.get("network_snr").is_none());
    }
}
