//! Truth file: signals injected into a simulation, with the keys of a search's summary.

use std::path::Path;

use schemars::JsonSchema;
use serde::Serialize;
use sidereal::simulate::burst::{Options, Truth};

use crate::direction::Position;

/// Contents of OUT.truth.json.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Document {
    file: String,
    telescope: String,
    ra_deg: f64,
    dec_deg: f64,
    seed: u64,
    tsamp_s: f64,
    duration_s: f64,
    dm_constant: f64,
    /// Bursts: the candidates that a search should find.
    candidates: Vec<Signal>,
    pulsars: Vec<Signal>,
    /// Channels with narrowband interference.
    narrow_channels: Vec<usize>,
    /// Interference impulses at DM 0.
    impulses: Vec<Impulse>,
    #[serde(skip)]
    impulse: (f64, f64),
}

#[derive(Debug, Serialize, JsonSchema)]
struct Signal {
    dm: f64,
    time_s: f64,
    snr: f64,
    width_s: f64,
    /// Width of the boxcar that finds this S/N at the exact DM.
    boxcar_s: f64,
    scatter_s: f64,
    spectral_index: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    period_s: Option<f64>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Impulse {
    dm: f64,
    time_s: f64,
    snr: f64,
    width_s: f64,
}

impl Document {
    pub(super) fn new(file: &Path, options: &Options, position: Position) -> Self {
        Self {
            file: file.display().to_string(),
            telescope: options.telescope.clone(),
            ra_deg: position.ra_deg,
            dec_deg: position.dec_deg,
            seed: options.seed,
            tsamp_s: options.tsamp_s,
            duration_s: options.times as f64 * options.tsamp_s,
            dm_constant: options.dm_constant,
            candidates: Vec::new(),
            pulsars: Vec::new(),
            narrow_channels: Vec::new(),
            impulses: Vec::new(),
            impulse: options.broad.map_or((0.0, 0.0), |broad| (broad.snr, broad.width_s)),
        }
    }

    pub(super) fn fill(&mut self, truth: &Truth) {
        self.candidates = truth
            .bursts
            .iter()
            .map(|one| Signal {
                dm: one.burst.dm,
                time_s: one.burst.time_s,
                snr: one.burst.snr,
                width_s: one.burst.width_s,
                boxcar_s: one.boxcar_s,
                scatter_s: one.burst.scatter_s,
                spectral_index: one.burst.spectral_index,
                period_s: None,
            })
            .collect();
        self.pulsars = truth
            .pulsars
            .iter()
            .map(|one| Signal {
                dm: one.pulsar.dm,
                time_s: one.pulsar.time_s,
                snr: one.pulsar.snr,
                width_s: one.pulsar.width_s,
                boxcar_s: one.boxcar_s,
                scatter_s: one.pulsar.scatter_s,
                spectral_index: one.pulsar.spectral_index,
                period_s: Some(one.pulsar.period_s),
            })
            .collect();
        self.narrow_channels.clone_from(&truth.narrow_channels);
        let (snr, width_s) = self.impulse;
        let impulse = |time_s: &f64| Impulse { dm: 0.0, time_s: *time_s, snr, width_s };
        self.impulses = truth.impulse_times_s.iter().map(impulse).collect();
    }

    /// Summarizes the contents in a few words.
    pub(super) fn contents(&self) -> String {
        list(&[
            (self.candidates.len(), "burst", "bursts"),
            (self.pulsars.len(), "pulsar", "pulsars"),
            (self.narrow_channels.len(), "channel with a tone", "channels with a tone"),
            (self.impulses.len(), "impulse", "impulses"),
        ])
    }
}

/// Formats counts with their singular or plural names; omits zeros.
pub(super) fn list(counts: &[(usize, &str, &str)]) -> String {
    let there = counts.iter().filter(|(number, ..)| *number > 0);
    let name = |(number, one, several): &(usize, &str, &str)| {
        format!("{number} {}", if *number == 1 { one } else { several })
    };
    let parts: Vec<String> = there.map(name).collect();
    if parts.is_empty() { "noise alone".to_owned() } else { parts.join(", ") }
}
