//! Summary of a correlation, for reports and for `bench`.

use super::cross::Cross;
use super::front::Front;
use super::header::ArrayHeader;
use super::tracking::Tracking;

/// Summary of a correlation.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// Integrations returned.
    pub integrations: u64,
    /// Spectra correlated.
    pub spectra: u64,
    /// Length of the data in seconds.
    pub data_s: f64,
    /// Recorded samples of each stream in that length.
    pub samples: u64,
    /// Whether the GPU computed the spectra in addition to multiplying them.
    pub made_on_device: bool,
    /// Why the host computed spectra that a GPU multiplied, if it did.
    pub not_on_device: Option<String>,
    /// Seconds of each step.
    pub steps: Steps,
    /// Recorded antennas, by ascending array number.
    pub antennas: Vec<AntennaSummary>,
    /// Names of antennas without a recording.
    pub missing: Vec<String>,
    /// Recorded samples that were not finite numbers; spectra that contain them are invalid.
    pub not_finite: u64,
    /// UT1 - UTC at the start in seconds.
    pub dut1_s: f64,
    /// Altitude of the tracked source at the start and at the end in degrees.
    pub altitudes_deg: Option<(f64, f64)>,
    /// Lowest altitude of the source in degrees, sampled at least every ten minutes.
    pub lowest_altitude_deg: Option<f64>,
}

/// Seconds per step. Reading, filter bank and alignment run concurrently; their values are shares of their common
/// elapsed time.
///
/// With a GPU, the values are host time: reading includes waiting for the GPU to accept samples, the X-engine is the
/// time to enqueue its work, and the readout waits for all enqueued work.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Steps {
    /// Reading.
    pub read_s: f64,
    /// Filter banks.
    pub channelize_s: f64,
    /// Delay phases, gains and requantization.
    pub align_s: f64,
    /// Corner turn.
    pub turn_s: f64,
    /// X-engine.
    pub correlate_s: f64,
    /// Readout of the X-engine.
    pub output_s: f64,
}

/// Summary of one antenna.
#[derive(Clone, Debug, PartialEq)]
pub struct AntennaSummary {
    /// Name of the antenna.
    pub name: String,
    /// Fraction of its samples that saturated in requantization.
    pub saturated: f64,
    /// Fraction of its spectra that are invalid.
    pub masked: f64,
}

impl Steps {
    /// Returns the sum of all steps.
    pub fn total_s(&self) -> f64 {
        self.read_s
            + self.channelize_s
            + self.align_s
            + self.turn_s
            + self.correlate_s
            + self.output_s
    }
}

impl Summary {
    /// Builds the summary after `spectra` spectra and `integrations` integrations.
    pub(super) fn new(
        (header, tracking): (&ArrayHeader, &Tracking),
        front: &Front,
        cross: &Cross,
        (spectra, integrations): (u64, u64),
    ) -> Self {
        let data_s = spectra as f64 * header.spectrum_s;
        let names = header.array.antennas.iter().zip(&header.present);
        let missing = names.filter(|(_, present)| !**present).map(|(own, _)| own.name.clone());
        Self {
            integrations,
            spectra,
            data_s,
            samples: (data_s * header.bank.sample_rate_hz).round() as u64,
            made_on_device: front.is_on_device(),
            not_on_device: front.not_on_device().map(str::to_owned),
            steps: steps(front, cross),
            antennas: antennas(header, front),
            missing: missing.collect(),
            not_finite: front.not_finite(),
            dut1_s: header.dut1_s,
            altitudes_deg: tracking.altitudes_deg(),
            lowest_altitude_deg: tracking.lowest_deg(),
        }
    }

    /// Whether the source is below the horizon at any time, sampled every ten minutes.
    pub fn is_below_horizon(&self) -> bool {
        self.lowest_altitude_deg.is_some_and(|lowest| lowest < 0.0)
    }

    /// Returns the recorded samples of each stream (antenna, polarization, recorded channel) per second, in millions.
    pub fn msamples_per_s(&self) -> f64 {
        self.samples as f64 * 1e-6 / self.steps.total_s().max(1e-9)
    }
}

fn steps(front: &Front, cross: &Cross) -> Steps {
    let read: f64 = front.feeds().iter().map(|feed| feed.elapsed_s()).sum();
    let elapsed = front.stations().iter().map(|station| station.elapsed());
    let (mut channelize, mut align) = (0.0, 0.0);
    for own in elapsed {
        channelize += own.channelize_s;
        align += own.align_s;
    }
    let share = front.elapsed_s() / (read + channelize + align).max(1e-12);
    let [turn_s, correlate_s, output_s] = cross.elapsed_s();
    Steps {
        read_s: read * share,
        channelize_s: channelize * share,
        align_s: align * share,
        turn_s,
        correlate_s,
        output_s,
    }
}

fn antennas(header: &ArrayHeader, front: &Front) -> Vec<AntennaSummary> {
    let made = front.made().end as f64;
    let counts = front.masked().iter().zip(front.saturated());
    let of = |(station, (masked, saturated)): (&super::station::Station, (&u64, u64))| {
        let level = station.level();
        let part = |count: u64, each: usize| count as f64 / (made * each as f64).max(1.0);
        AntennaSummary {
            name: header.array.antennas[station.place().antenna].name.clone(),
            saturated: part(saturated, level.elements()),
            masked: part(*masked, level.coarse()),
        }
    };
    front.stations().iter().zip(counts).map(of).collect()
}
