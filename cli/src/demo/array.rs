//! The demo's third recording: the voltages of an array that observes a source, correlated with and without tracking.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::Path;

use num_complex::Complex;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sidereal::math::Window;
use sidereal::pipeline::correlator::{ArrayHeader, Integration};
use sidereal::{Error, Result};

use super::chapter::{figure, parse, parse_words};
use crate::common::Common;
use crate::output::{Folder, with_final_names};
use crate::plots::correlation::{FRINGES, LAYOUT, WATERFALLS};
use crate::plots::short;
use crate::progress::multiple;
use crate::{correlate, interrupt, simulate};

/// Name of the folder of recordings.
pub(super) const RECORDINGS: &str = "array";

/// Options of the simulation: nine antennas observe Hydra A, an hour before its transit.
pub(super) const SIMULATION: &[&str] = &[
    "--layout 9,2400,wye --source 09:18:05.7,-12:05:44,40,Hydra_A --sefd 120",
    "--freq 1420 --bandwidth 2 --seconds 2 --start 2025-01-01T00:00:00 --seed 1946",
];

/// Options of the correlations, without and with tracking.
pub(super) const CORRELATIONS: [(&str, &str); 2] = [
    ("drifting", "--drift --channels 64 --integration 0.0625"),
    ("tracked", "--phase-centre 09:18:05.7,-12:05:44 --channels 64 --integration 0.0625"),
];

/// Largest phase rms in degrees, and largest relative error of the amplitudes.
const FLAT_DEG: f64 = 1.0;
const NEAR: f64 = 0.02;

/// Number of integrations averaged before the phase measurement.
const TOGETHER: usize = 8;

/// Comparison of the fringes with the injected source.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(super) struct Fringes {
    antennas: usize,
    /// Number of cross-correlation baselines.
    baselines: usize,
    flux_jy: f64,
    altitude_deg: Option<f64>,
    /// Over all baselines and channels except the one at the band edge, averaged over time.
    phase_rms_over_band_deg: f64,
    /// Over all baselines, averaged over the band.
    phase_rms_over_time_deg: f64,
    /// Mean over the baselines of measured over injected amplitude.
    amplitude_ratio: f64,
    /// Standard deviation of that ratio over the baselines.
    amplitude_scatter: f64,
    #[serde(skip)]
    realtime_factor: f64,
}

/// Fields of the simulation's truth file that the demo needs.
#[derive(Clone, Debug, Deserialize)]
struct Truth {
    antennas: Vec<Antenna>,
    sources: Vec<Source>,
}

#[derive(Clone, Debug, Deserialize)]
struct Antenna {
    file: Option<String>,
}

#[derive(Clone, Debug, Deserialize)]
struct Source {
    flux_jy: f64,
    altitude_deg: Option<f64>,
    /// Amplitudes; axes antenna, polarization.
    amplitudes: Vec<Vec<f64>>,
}

/// Sums of visibilities over both polarizations for every pair of antennas.
#[derive(Clone, Debug, Default)]
struct Sums {
    /// Antennas, and the index of the baseline.
    pairs: Vec<(usize, usize, usize)>,
    /// Sums over all times; axes baseline, channel.
    band: Vec<Complex<f64>>,
    /// Sums over all channels; axes integration, baseline.
    time: Vec<Vec<Complex<f64>>>,
    /// Number of samples of each baseline.
    counts: Vec<f64>,
    /// Power gain of the filter bank.
    gain: f64,
}

/// Returns whether a file of this name is one of the correlations or its document.
pub(super) fn writes(name: &str) -> bool {
    // An earlier version gave documents shorter names.
    let ends = [".uvh5", ".uvh5.json", ".json"];
    let is_end = |end: &str| ends.contains(&end);
    CORRELATIONS.iter().any(|(stem, _)| name.strip_prefix(stem).is_some_and(is_end))
}

/// Returns whether a file of this name is a plot of a correlation.
pub(super) fn draws(folder: &str, name: &str) -> bool {
    let is_own = |(stem, _): &(&str, &str)| folder.strip_prefix(stem) == Some("_plots");
    CORRELATIONS.iter().any(is_own) && correlate::draws(name)
}

impl Fringes {
    /// Simulates, and correlates twice.
    pub(super) fn make(folder: &Folder, place: &Path, common: &Common) -> Result<Self> {
        let recordings = folder.file(RECORDINGS);
        simulate::run(
            &parse::<simulate::Arguments>(&["array", "-o"], &recordings, SIMULATION)?,
            &Common { quiet: true, ..common.clone() },
        )?;
        interrupt::check()?;
        let truth = Truth::read(&recordings.join("truth.json"))?;
        let mut sums = Sums::default();
        let mut realtime_factor = 0.0;
        for (name, words) in CORRELATIONS {
            sums = Sums::default();
            let arguments = arguments(&truth, &recordings, &folder.file(name), words)?;
            let (product, ending) =
                correlate::make(&arguments, common, &mut |header, integration| {
                    sums.add(header, integration);
                })?;
            realtime_factor = product.document.realtime_factor();
            interrupt::check()?;
            ending.or_error(false)?;
        }
        let source = truth.sources.first().ok_or_else(|| {
            Error::format(place.join(RECORDINGS), "sources", 0, "found none, expected one")
        })?;
        Ok(sums.compare(source, truth.antennas.len(), realtime_factor))
    }

    /// Returns whether the fringes agree with the injected source.
    pub(super) fn are_flat(&self) -> bool {
        // NaN fails every comparison.
        self.phase_rms_over_band_deg < FLAT_DEG
            && self.phase_rms_over_time_deg < FLAT_DEG
            && (self.amplitude_ratio - 1.0).abs() < NEAR
    }

    /// Formats one line for the end of the demo.
    pub(super) fn text(&self) -> String {
        format!(
            "phase rms {}° over the band and {}° over time, amplitude {:.3} ± {:.3} of what was put in",
            short(self.phase_rms_over_band_deg, 2),
            short(self.phase_rms_over_time_deg, 2),
            self.amplitude_ratio,
            self.amplitude_scatter,
        )
    }

    /// Writes the chapter of the page.
    pub(super) fn html(&self, html: &mut String) {
        let picture = |name: &str, picture: &str| format!("{name}_plots/{picture}");
        self.story(html);
        let [drifting, tracked] = CORRELATIONS.map(|(name, _)| name);
        figure(
            html,
            &picture(tracked, LAYOUT),
            "A map in metres east and north with a dot for each antenna, and lines between the pairs drawn below.",
            "The array, seen from above.",
        );
        figure(
            html,
            &picture(drifting, WATERFALLS),
            "Amplitude and phase of three pairs by time and frequency. Amplitudes are even, phases are stripes: flat for the \
             nearest antennas, slanted for the others.",
            "Without tracking: the wave reaches one antenna later than the other, so the phase (below) \
             turns along the band, the faster the longer the baseline, and the Earth's rotation moves \
             the stripes.",
        );
        figure(
            html,
            &picture(tracked, WATERFALLS),
            "The same six panels: the phases of all three pairs have one colour, that of 0 degrees.",
            "With tracking: the delays are taken out as they change, and all phases are 0.",
        );
        self.verdict(html);
        figure(
            html,
            &picture(tracked, FRINGES),
            "Nine panels, a row for each pair: a level amplitude, a phase that is a line at 0, and a single sharp peak.",
            "Amplitude and phase of three baselines, and their fringe against delay, with its peak at 0 ns.",
        );
    }

    fn story(&self, html: &mut String) {
        let altitude = self.altitude_deg.map_or_else(String::new, |degrees| {
            format!(", {} degrees above the horizon", short(degrees, 2))
        });
        let _ = write!(
            html,
            "<h2>7. Many antennas: the fringes of an array</h2>\n\
             <p>Antennas that stand apart see together as sharply as one dish of the array's size would. \
             What they record is multiplied, every antenna with every other, and averaged: the result, \
             one complex number for each pair, time and channel, is a <i>visibility</i>, and images of the \
             sky are made of them. <a href=\"{RECORDINGS}/truth.json\">These recordings</a> have 2 s of {} \
             antennas that see Hydra A ({} Jy){altitude}, through noise three times as strong. They were \
             correlated twice, at {} times real time: as they are, and with the source tracked.</p>\n",
            self.antennas,
            short(self.flux_jy, 3),
            multiple(self.realtime_factor),
        );
    }

    fn verdict(&self, html: &mut String) {
        let sign = if self.are_flat() { "good" } else { "bad" };
        let _ = write!(
            html,
            "<p class=\"verdict {sign}\">Tracked, the phases of all {} baselines are 0 to {}° rms over the \
             band and {}° over time, as the noise has it, and the amplitudes are {:.3} ± {:.3} of what was put \
             in.</p>\n\
             <p class=\"note\">The lowest channel is left out: it lies at the recorded band's edge, where both \
             ends of the band fall together.</p>\n",
            self.baselines,
            short(self.phase_rms_over_band_deg, 2),
            short(self.phase_rms_over_time_deg, 2),
            self.amplitude_ratio,
            self.amplitude_scatter,
        );
    }
}

/// Returns the arguments of one correlation.
fn arguments(
    truth: &Truth,
    recordings: &Path,
    out: &Path,
    words: &str,
) -> Result<correlate::Arguments> {
    let files = truth.antennas.iter().filter_map(|antenna| antenna.file.as_ref());
    let mut all: Vec<OsString> = vec!["correlate".into()];
    all.extend(files.map(|file| recordings.join(file).into_os_string()));
    all.extend(["-o".into(), out.with_extension("uvh5").into_os_string()]);
    all.extend(["--antennas".into(), recordings.join("antennas.csv").into_os_string()]);
    let mut plots = out.as_os_str().to_owned();
    plots.push("_plots");
    all.extend(["--plots".into(), plots]);
    all.extend(words.split(' ').map(OsString::from));
    parse_words(all)
}

impl Truth {
    /// Reads the truth, and replaces the folder's temporary name by its final one.
    fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).map_err(|error| Error::io(path, error))?;
        let text = with_final_names(&text);
        std::fs::write(path, &text).map_err(|error| Error::io(path, error))?;
        serde_json::from_str(&text)
            .map_err(|error| Error::format(path, "JSON", error.column() as u64, error.to_string()))
    }
}

impl Sums {
    fn add(&mut self, header: &ArrayHeader, integration: &Integration) {
        let (channels, pairs) = (header.frequencies_hz.len(), header.pairs());
        if self.pairs.is_empty() {
            let all = header.baselines.iter().enumerate().filter(|(_, (i, j))| i != j);
            self.pairs = all.map(|(place, (i, j))| (*i, *j, place)).collect();
            self.band = vec![Complex::default(); self.pairs.len() * (channels - 1)];
            self.counts = vec![0.0; self.pairs.len()];
            self.gain = gain(header);
        }
        let mut totals = vec![Complex::default(); self.pairs.len()];
        for (index, (_, _, place)) in self.pairs.iter().enumerate() {
            // Channel 0 is at the edge, where both ends of the recorded band alias together.
            for channel in 1..channels {
                let row = place * channels + channel;
                let values = &integration.sums[row * pairs..][..pairs];
                let sum = values[0] + values[pairs - 1];
                self.band[index * (channels - 1) + channel - 1] += sum;
                totals[index] += sum;
                self.counts[index] += integration.counts[row] as f64;
            }
        }
        self.time.push(totals);
    }

    fn compare(&self, source: &Source, antennas: usize, realtime_factor: f64) -> Fringes {
        let channels = self.band.len() / self.pairs.len().max(1);
        let ratio = |(index, (i, j, _)): (usize, &(usize, usize, usize))| {
            let sum: Complex<f64> = self.band[index * channels..][..channels].iter().sum();
            let (a, b) = (&source.amplitudes[*i], &source.amplitudes[*j]);
            let truth: f64 = a.iter().zip(b).map(|(a, b)| a * b).sum();
            sum.norm() / self.counts[index] / (truth * self.gain)
        };
        let ratios: Vec<f64> = self.pairs.iter().enumerate().map(ratio).collect();
        let count = ratios.len() as f64;
        let mean = ratios.iter().sum::<f64>() / count;
        let square = ratios.iter().map(|ratio| (ratio - mean).powi(2)).sum::<f64>() / count;
        let together = |group: &[Vec<Complex<f64>>]| -> Vec<Complex<f64>> {
            (0..self.pairs.len()).map(|index| group.iter().map(|sums| sums[index]).sum()).collect()
        };
        let times: Vec<Complex<f64>> = self.time.chunks(TOGETHER).flat_map(together).collect();
        Fringes {
            antennas,
            baselines: self.pairs.len(),
            flux_jy: source.flux_jy,
            altitude_deg: source.altitude_deg,
            phase_rms_over_band_deg: phase_rms_deg(&self.band),
            phase_rms_over_time_deg: phase_rms_deg(&times),
            amplitude_ratio: mean,
            amplitude_scatter: square.sqrt(),
            realtime_factor,
        }
    }
}

/// Returns the rms of phases about 0.
fn phase_rms_deg(visibilities: &[Complex<f64>]) -> f64 {
    let squares: f64 = visibilities.iter().map(|v| v.arg().to_degrees().powi(2)).sum();
    (squares / visibilities.len() as f64).sqrt()
}

/// Returns the filter bank's gain for a sample's power: the sum of its squared coefficients.
fn gain(header: &ArrayHeader) -> f64 {
    let bank = &header.bank;
    let coefficients = Window::default().coefficients(bank.taps, bank.channels);
    coefficients.map_or(f64::NAN, |all| all.iter().map(|b| b * b).sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phases_are_measured_from_0() {
        let turned = |degrees: f64| Complex::from_polar(2.0, degrees.to_radians());
        assert!((phase_rms_deg(&[turned(3.0), turned(-3.0)]) - 3.0).abs() < 1e-9);
        assert!((phase_rms_deg(&[turned(90.0); 4]) - 90.0).abs() < 1e-9);
        assert!(phase_rms_deg(&[]).is_nan());
    }
}
