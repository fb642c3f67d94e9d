//! Truth file: signals injected into simulated strain, with the keys of a search's events.

use std::collections::BTreeMap;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Serialize;
use sidereal::simulate::strain::{
    DetectorTruth, Injection, InjectionTruth, Quality, Simulation, Source, StrainOptions,
    StrainSimulator,
};

use crate::approximant::extrapolated;
use crate::output::with_final_names;
use crate::simulate::product::list;

/// Contents of OUT.truth.json.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Document {
    files: BTreeMap<&'static str, String>,
    start_gps: f64,
    duration_s: f64,
    rate_hz: u32,
    /// Present if recorded strain takes the place of noise.
    #[serde(skip_serializing_if = "Option::is_none")]
    recorded: Option<bool>,
    /// Seed of the noise; absent for recorded strain.
    #[serde(skip_serializing_if = "Option::is_none")]
    seed: Option<u64>,
    /// Power spectral densities as given on the command line.
    psd: Vec<String>,
    /// Lowest frequency of the noise; absent for recorded strain.
    #[serde(skip_serializing_if = "Option::is_none")]
    noise_low_hz: Option<f64>,
    /// Injections, loudest first: the events that a search should find.
    events: Vec<Event>,
    glitches: Vec<Glitch>,
    bad_seconds: Vec<Seconds>,
    pub(super) warnings: Vec<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Event {
    /// Time of the peak of |h| at the Earth's centre.
    gps: f64,
    network_snr: f64,
    template: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    binary: Option<Masses>,
    /// Waveform approximant, if the waveform was generated from masses.
    #[serde(skip_serializing_if = "Option::is_none")]
    approximant: Option<String>,
    distance_mpc: f64,
    ra_rad: f64,
    dec_rad: f64,
    inclination_rad: f64,
    polarization_rad: f64,
    phase_rad: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    f_low_hz: Option<f64>,
    duration_s: f64,
    detectors: BTreeMap<&'static str, Arrival>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Masses {
    m1: f64,
    m2: f64,
    spin1: f64,
    spin2: f64,
    chirp_mass: f64,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Arrival {
    gps: f64,
    /// Optimal signal-to-noise ratio of the whole waveform.
    snr: f64,
    phase: f64,
    f_plus: f64,
    f_cross: f64,
    effective_distance_mpc: f64,
    /// Seconds of the waveform outside the data.
    cut_before_s: f64,
    cut_after_s: f64,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Glitch {
    detector: &'static str,
    gps: f64,
    snr: f64,
    frequency_hz: f64,
    q: f64,
}

/// Interval of one detector, in seconds from the first sample.
#[derive(Debug, Serialize, JsonSchema)]
struct Seconds {
    detector: &'static str,
    first_s: u64,
    end_s: u64,
    missing: bool,
}

impl Document {
    pub(super) fn new(
        options: &StrainOptions,
        simulation: &Simulation,
        files: &[PathBuf],
        psd: &[String],
    ) -> Self {
        let names = options.detectors.iter().map(|one| one.interferometer.name);
        let files = names
            .zip(files)
            .map(|(name, file)| (name, with_final_names(&file.display().to_string())));
        let pairs = options.injections.iter().zip(&simulation.truth.injections);
        let mut events: Vec<Event> = pairs.clone().map(|(put, is)| event(put, is)).collect();
        events.sort_by(|a, b| b.network_snr.total_cmp(&a.network_snr));
        let mut glitches = Vec::new();
        let mut bad_seconds = Vec::new();
        for one in &options.detectors {
            let detector = one.interferometer.name;
            glitches.extend(one.glitches.iter().map(|glitch| Glitch {
                detector,
                gps: glitch.gps.s(),
                snr: glitch.snr,
                frequency_hz: glitch.frequency_hz,
                q: glitch.q,
            }));
            bad_seconds.extend(one.flagged.iter().map(|flagged| Seconds {
                detector,
                first_s: flagged.first_s,
                end_s: flagged.end_s,
                missing: flagged.quality == Quality::Missing,
            }));
        }
        let is_recorded = simulation.detectors.iter().any(StrainSimulator::is_recorded);
        Self {
            files: files.collect(),
            start_gps: options.start.s(),
            duration_s: options.times as f64 / f64::from(options.rate_hz),
            rate_hz: options.rate_hz,
            recorded: is_recorded.then_some(true),
            seed: (!is_recorded).then_some(options.seed),
            psd: psd.to_vec(),
            noise_low_hz: (!is_recorded).then_some(options.lowest_hz),
            events,
            glitches,
            bad_seconds,
            warnings: pairs
                .flat_map(|(_, is)| [warning(is), extrapolation(is)])
                .flatten()
                .collect(),
        }
    }

    /// Summarizes the contents in a few words.
    pub(super) fn contents(&self) -> String {
        let added = self.events.len() + self.glitches.len() + self.bad_seconds.len();
        if self.recorded.is_some() && added == 0 {
            return "recorded strain alone".to_owned();
        }
        list(&[
            (self.events.len(), "injection", "injections"),
            (self.glitches.len(), "glitch", "glitches"),
            (self.bad_seconds.len(), "bad stretch", "bad stretches"),
        ])
    }
}

/// Returns a warning if the data's start or end cuts a waveform off.
fn warning(is: &InjectionTruth) -> Option<String> {
    let most =
        |which: fn(&DetectorTruth) -> f64| is.detectors.iter().map(which).fold(0.0, f64::max);
    let (before_s, after_s) = (most(|one| one.cut_s.0), most(|one| one.cut_s.1));
    (before_s + after_s > 0.0).then(|| {
        format!(
            "of the injection {} at GPS {:.4} ({:.2} s long), {before_s:.2} s lie before the data and \
             {after_s:.2} s after them; its SNRs are those of the whole",
            is.name,
            is.gps.s(),
            is.duration_s
        )
    })
}

/// Returns a warning if a waveform is beyond its approximant's calibration.
fn extrapolation(is: &InjectionTruth) -> Option<String> {
    extrapolated([(is.name.as_str(), is.binary, is.approximant.as_deref())].into_iter())
}

fn event(put: &Injection, is: &InjectionTruth) -> Event {
    let binary = is.binary.map(|binary| Masses {
        m1: binary.mass1_msun,
        m2: binary.mass2_msun,
        spin1: binary.spin1z,
        spin2: binary.spin2z,
        chirp_mass: binary.chirp_mass_msun(),
    });
    let f_low_hz = match &put.source {
        Source::Inspiral(_, options) => Some(options.f_low_hz),
        Source::Waveform(_) => None,
    };
    let arrival = |one: &DetectorTruth| Arrival {
        gps: one.gps.s(),
        snr: one.snr,
        phase: one.phase_rad,
        f_plus: one.patterns.0,
        f_cross: one.patterns.1,
        effective_distance_mpc: one.effective_distance_mpc,
        cut_before_s: one.cut_s.0,
        cut_after_s: one.cut_s.1,
    };
    Event {
        gps: is.gps.s(),
        network_snr: is.network_snr,
        template: is.name.clone(),
        binary,
        approximant: is.approximant.clone(),
        distance_mpc: put.distance_mpc,
        ra_rad: put.ra_rad,
        dec_rad: put.dec_rad,
        inclination_rad: put.inclination_rad,
        polarization_rad: put.polarization_rad,
        phase_rad: put.phase_rad,
        f_low_hz,
        duration_s: is.duration_s,
        detectors: is.detectors.iter().map(|one| (one.name, arrival(one))).collect(),
    }
}
