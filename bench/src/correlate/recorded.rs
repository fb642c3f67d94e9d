//! Array of antennas whose voltages lie in host memory.

use std::path::PathBuf;

use sidereal::Result;
use sidereal::backend::Backend;
use sidereal::backend::threads::Threads;
use sidereal::geometry::{Array, Dut1, Location, Sky};
use sidereal::io::voltages::VoltageHeader;
use sidereal::pipeline::correlator::{ArrayCorrelator, ArrayInput, CorrelateOptions, PhaseCentre};
use sidereal::simulate::array::Layout;
use sidereal::units::Epoch;
use sidereal::voltage::VoltageEncoding;

use crate::random::{Random, RepeatedVoltages, SEED};

/// Channels, and rows of samples (taps) in the window.
pub(crate) const CHANNELS: usize = 1024;
pub(crate) const TAPS: usize = 8;

/// Samples per second of each polarization.
pub(crate) const RATE_HZ: f64 = 4e6;

/// Bytes of a complex sample.
pub(crate) const SAMPLE: usize = 2;

/// Diameter of the array in metres.
const SPREAD_M: f64 = 2e3;

/// Bytes held for all antennas: several times any cache.
const BYTES: usize = 256 << 20;

/// Array, its voltages, and the options of a correlation with a source's delays.
pub(crate) struct Recorded {
    array: Array,
    pub(crate) voltages: Vec<RepeatedVoltages>,
    pub(crate) options: CorrelateOptions,
}

impl Recorded {
    /// Makes a recording of `integrations` integrations of `spectra` spectra.
    pub(crate) fn new(antennas: usize, spectra: usize, integrations: usize) -> Result<Self> {
        let place = Location { longitude_deg: 21.44, latitude_deg: -30.71, height_m: 1050.0 };
        let places = Layout::Random.places(antennas, SPREAD_M, 1);
        let array = Array::from_enu("bench", &places, place)?;
        let times = (spectra * integrations + TAPS - 1) * CHANNELS;
        let voltages: Vec<RepeatedVoltages> =
            (0..antennas).map(|k| noise(k, antennas, times)).collect();
        let start = header(times).start;
        let lst = Sky::new(&array, Dut1::Table)?.local_sidereal_time_rad(start)?;
        let mut options = CorrelateOptions::new(CHANNELS);
        options.taps = TAPS;
        options.integration_s = (spectra * CHANNELS) as f64 / RATE_HZ;
        // Hour angle: 20 degrees west of the meridian.
        options.phase_centre = PhaseCentre::Sidereal {
            ra_deg: (lst.to_degrees() - 20.0).rem_euclid(360.0),
            dec_deg: -20.0,
            name: "source".into(),
        };
        Ok(Self { array, voltages, options })
    }

    /// Builds the correlator of the recording from its start.
    ///
    /// # Errors
    /// As [`ArrayCorrelator::new`].
    pub(crate) fn correlator(
        &self,
        options: &CorrelateOptions,
        backend: &Backend,
    ) -> Result<ArrayCorrelator> {
        let inputs = self.voltages.iter().zip(&self.array.antennas).map(|(own, antenna)| {
            let (antennas, source) = (vec![antenna.name.clone()], Box::new(own.clone()));
            ArrayInput { antennas, source }
        });
        ArrayCorrelator::new(&self.array, inputs.collect(), options, backend)
    }
}

/// Returns the header of a recording of `times` samples.
fn header(times: usize) -> VoltageHeader {
    let mut header = VoltageHeader::new(vec![1.4e9], 1.0 / RATE_HZ, VoltageEncoding::Complex8);
    header.path = PathBuf::from("noise");
    header.polarizations = 2;
    header.circular = Some(false);
    header.start = Epoch::new(60_000, 0.0);
    header.times = Some(times as u64);
    header
}

/// Makes the noise of antenna `antenna` of `antennas`.
fn noise(antenna: usize, antennas: usize, times: usize) -> RepeatedVoltages {
    let held = (BYTES / (2 * SAMPLE * antennas)).min(times);
    let mut random = Random(SEED ^ (antenna as u64 + 1).wrapping_mul(0x9e37_79b9));
    let mut bytes = vec![0u8; 2 * SAMPLE * held];
    for bytes in bytes.chunks_mut(8) {
        bytes.copy_from_slice(&random.next().to_le_bytes()[..bytes.len()]);
    }
    RepeatedVoltages::new(header(times), bytes, Threads::new(1))
}
