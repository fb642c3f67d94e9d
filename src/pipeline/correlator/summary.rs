//! What a correlation did: for people, and for `bench`.

use super::cross::Cross;
use super::front::Front;
use super::header::ArrayHeader;
use super::tracking::Tracking;

/// What was done.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// Integrations that came out.
    pub integrations: u64,
    /// Spectra that were correlated.
    pub spectra: u64,
    /// Their length in seconds.
    pub data_s: f64,
    /// Recorded samples of each stream that they stand for.
    pub samples: u64,
    /// Whether spectra were made on a GPU, and not only multiplied there.
    pub made_on_device: bool,
    /// Why they were made by the host for a GPU that multiplied them, if they were.
    pub not_on_device: Option<String>,
    /// Seconds of each step.
    pub steps: Steps,
    /// Each recorded antenna, by rising number in the array.
    pub antennas: Vec<AntennaSummary>,
    /// Names of antennas without a recording.
    pub missing: Vec<String>,
    /// Recorded samples that were not finite numbers: no spectrum that would have them is valid.
    pub not_finite: u64,
    /// UT1 - UTC at the start in seconds.
    pub dut1_s: f64,
    /// The tracked source's altitude at the start and at the end in degrees.
    pub altitudes_deg: Option<(f64, f64)>,
    /// Its lowest altitude in degrees, looked at every ten minutes at least.
    pub lowest_altitude_deg: Option<f64>,
}

/// Seconds of each step. Those of reading, filter bank and alignment, which run side by side, are shares of
/// the time that they took together.
///
/// A GPU works beside the host: what is told then is where the host's time went. Reading includes waiting for the
/// GPU to take what was read, the X-engine is what it took to queue, and reading out waits for all that was queued.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Steps {
    /// Reading.
    pub read_s: f64,
    /// Filter banks.
    pub channelize_s: f64,
    /// Delay phases, gains and rounding.
    pub align_s: f64,
    /// Corner turn.
    pub turn_s: f64,
    /// X-engine.
    pub correlate_s: f64,
    /// Reading out of the X-engine.
    pub output_s: f64,
}

/// One antenna.
#[derive(Clone, Debug, PartialEq)]
pub struct AntennaSummary {
    /// Its name.
    pub name: String,
    /// The part of its spectra's samples that rounding had to limit.
    pub saturated: f64,
    /// The part of its spectra that are not valid.
    pub masked: f64,
}

impl Steps {
    /// All of them.
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
    /// Of spectra and integrations that were correlated.
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

    /// Whether the source is below the horizon at any time, to ten minutes.
    pub fn is_below_horizon(&self) -> bool {
        self.lowest_altitude_deg.is_some_and(|lowest| lowest < 0.0)
    }

    /// Millions of recorded samples of each stream (antenna, polarization, recorded channel) a second.
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
