//! Truth file of simulated voltages: injected signals, with the keys of a search's summary.

use std::path::Path;

use schemars::JsonSchema;
use serde::Serialize;
use sidereal::simulate::voltages::{Options, Tone, Truth};
use sidereal::units::HZ_PER_MHZ;

use crate::simulate::truth::list;

/// Contents of OUT.truth.json.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Document {
    file: String,
    telescope: String,
    seed: u64,
    tsamp_s: f64,
    duration_s: f64,
    dm_constant: f64,
    /// Centre of the whole recorded band.
    centre_mhz: f64,
    bandwidth_mhz: f64,
    coarse_channels: usize,
    lower_sideband: bool,
    complex: bool,
    nbits: usize,
    antennas: usize,
    polarizations: usize,
    /// Root mean square of the noise in one real value, in counts.
    rms: f64,
    /// Pulses: the candidates that a search should find.
    candidates: Vec<Candidate>,
    tones: Vec<Line>,
    gaps: Vec<Gap>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Candidate {
    dm: f64,
    /// Centre of the pulse at `reference_mhz`, from the first sample's start.
    time_s: f64,
    snr: f64,
    width_s: f64,
    /// Upper edge of the whole recorded band: at a frequency f the pulse is later by `dm_constant dm (f^-2 -
    /// reference_mhz^-2)` seconds.
    reference_mhz: f64,
    /// Width of the boxcar that has this S/N.
    boxcar_s: f64,
    linear: f64,
    angle_deg: f64,
    circular: f64,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Line {
    frequency_mhz: f64,
    /// Amplitude in units of the noise's rms.
    amplitude: f64,
    phase_deg: f64,
    second_ratio: f64,
    second_phase_deg: f64,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Gap {
    start_s: f64,
    duration_s: f64,
}

impl Document {
    pub(super) fn new(file: &Path, options: &Options, truth: &Truth) -> Self {
        let tsamp_s = options.tsamp_s();
        let width = options.channel_width_hz;
        let lowest = options.centres_hz.iter().copied().fold(f64::MAX, f64::min) - 0.5 * width;
        let gap = |(start, times): &(u64, u64)| Gap {
            start_s: *start as f64 * tsamp_s,
            duration_s: *times as f64 * tsamp_s,
        };
        Self {
            file: file.display().to_string(),
            telescope: options.telescope.clone(),
            seed: options.seed,
            tsamp_s,
            duration_s: options.times as f64 * tsamp_s,
            dm_constant: options.dm_constant,
            centre_mhz: 0.5 * (lowest + truth.reference_hz) / HZ_PER_MHZ,
            bandwidth_mhz: width * options.centres_hz.len() as f64 / HZ_PER_MHZ,
            coarse_channels: options.centres_hz.len(),
            lower_sideband: options.lower_sideband,
            complex: options.encoding.is_complex(),
            nbits: options.encoding.bits(),
            antennas: options.antennas,
            polarizations: options.polarizations,
            rms: options.rms,
            candidates: candidates(truth),
            tones: options.tones.iter().map(line).collect(),
            gaps: options.gaps.iter().map(gap).collect(),
        }
    }

    /// Summarizes the contents in a few words.
    pub(super) fn contents(&self) -> String {
        list(&[
            (self.candidates.len(), "pulse", "pulses"),
            (self.tones.len(), "tone", "tones"),
            (self.gaps.len(), "gap", "gaps"),
        ])
    }
}

fn candidates(truth: &Truth) -> Vec<Candidate> {
    let candidate = |one: &sidereal::simulate::voltages::PulseTruth| Candidate {
        dm: one.pulse.dm,
        time_s: one.pulse.time_s,
        snr: one.pulse.snr,
        width_s: one.width_s,
        reference_mhz: truth.reference_hz / HZ_PER_MHZ,
        boxcar_s: one.boxcar_s,
        linear: one.pulse.polarization.linear,
        angle_deg: one.pulse.polarization.angle_rad.to_degrees(),
        circular: one.pulse.polarization.circular,
    };
    truth.pulses.iter().map(candidate).collect()
}

fn line(tone: &Tone) -> Line {
    Line {
        frequency_mhz: tone.frequency_hz / HZ_PER_MHZ,
        amplitude: tone.amplitude,
        phase_deg: tone.phase_rad.to_degrees(),
        second_ratio: tone.second_ratio,
        second_phase_deg: tone.second_phase_rad.to_degrees(),
    }
}
