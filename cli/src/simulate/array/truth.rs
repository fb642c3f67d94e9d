//! Document truth.json: signals injected into an array's voltages.

use schemars::JsonSchema;
use serde::Serialize;
use sidereal::geometry::Location;
use sidereal::io::voltages::dada::format_start;
use sidereal::simulate::array::{ArrayOptions, ArrayTruth, PointSource, SourceTruth};
use sidereal::units::HZ_PER_MHZ;
use sidereal::{Result, geometry};

use crate::simulate::product::list;

/// Entry of an antenna's file.
#[derive(Clone, Debug)]
pub(super) struct File {
    /// File name, if the antenna has a file.
    pub(super) name: Option<String>,
}

/// Contents of truth.json.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Document {
    folder: String,
    format: &'static str,
    telescope: String,
    seed: u64,
    /// UTC of the first sample's start, also as a modified Julian date.
    start: String,
    start_mjd: f64,
    dut1_s: f64,
    /// Source of UT1 - UTC.
    dut1_from: String,
    tsamp_s: f64,
    duration_s: f64,
    samples: u64,
    /// Centre of the whole recorded band.
    centre_mhz: f64,
    bandwidth_mhz: f64,
    coarse_channels: usize,
    /// Centre of each recorded channel, in recorded order.
    centres_mhz: Vec<f64>,
    lower_sideband: bool,
    complex: bool,
    nbits: usize,
    polarizations: usize,
    circular: bool,
    /// Root mean square of noise plus sources in one real value, in counts.
    rms: f64,
    /// Pointing direction in the headers.
    phase_centre: Option<Centre>,
    /// Reference point of all delays.
    location: Place,
    antennas: Vec<Antenna>,
    sources: Vec<Source>,
    pub(super) warnings: Vec<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Centre {
    ra_deg: f64,
    dec_deg: f64,
    name: String,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Place {
    longitude_deg: f64,
    latitude_deg: f64,
    height_m: f64,
    itrf_m: [f64; 3],
}

#[derive(Debug, Serialize, JsonSchema)]
struct Antenna {
    name: String,
    number: i64,
    file: Option<String>,
    itrf_m: [f64; 3],
    enu_m: [f64; 3],
    sefd_jy: f64,
    delay_s: f64,
    dead: bool,
    /// Mean of |x|^2 of a sample in each polarization, in counts^2.
    autocorrelations: Vec<f64>,
    gaps: Vec<Gap>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Gap {
    start_s: f64,
    duration_s: f64,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Source {
    name: String,
    ra_deg: f64,
    dec_deg: f64,
    flux_jy: f64,
    linear: f64,
    angle_deg: f64,
    circular: f64,
    /// Altitude in the middle of the recording.
    altitude_deg: Option<f64>,
    azimuth_deg: Option<f64>,
    /// Whether the source is below the horizon then and so not received.
    below_horizon: bool,
    /// Delay at each antenna at the first sample's start, including its cable's: positive if the wave arrives later
    /// than at the reference point.
    delays_s: Vec<f64>,
    /// Amplitude in each antenna and polarization, in counts: for two antennas, the mean of x_i conj(x_j) is the
    /// product of their amplitudes in counts^2.
    amplitudes: Vec<Vec<f64>>,
}

impl Document {
    pub(super) fn new(
        folder: String,
        format: &'static str,
        options: &ArrayOptions,
        truth: &ArrayTruth,
        files: &[File],
    ) -> Result<Self> {
        let tsamp_s = options.tsamp_s();
        let width = options.channel_width_hz;
        let [lowest, highest] = ends(&options.centres_hz);
        let dut1 = options.dut1.at(options.start)?;
        let dut1_from = options.dut1.about().unwrap_or("given").to_owned();
        let Location { longitude_deg, latitude_deg, height_m } = options.array.location()?;
        let itrf_m = options.array.reference_itrf_m;
        let centre = |direction: geometry::Direction| Centre {
            ra_deg: direction.ra_deg,
            dec_deg: direction.dec_deg,
            name: options.source_name.clone(),
        };
        let antennas = 0..options.array.antennas.len();
        let sources = options.sources.iter().zip(&truth.sources);
        Ok(Self {
            folder,
            format,
            telescope: options.array.name.clone(),
            seed: options.seed,
            start: format_start(&options.start).0,
            start_mjd: options.start.mjd(),
            dut1_s: dut1,
            dut1_from,
            tsamp_s,
            duration_s: options.times as f64 * tsamp_s,
            samples: options.times,
            centre_mhz: 0.5 * (lowest + highest) / HZ_PER_MHZ,
            bandwidth_mhz: width * options.centres_hz.len() as f64 / HZ_PER_MHZ,
            coarse_channels: options.centres_hz.len(),
            centres_mhz: options.centres_hz.iter().map(|centre| centre / HZ_PER_MHZ).collect(),
            lower_sideband: options.lower_sideband,
            complex: options.encoding.is_complex(),
            nbits: options.encoding.bits(),
            polarizations: options.polarizations,
            circular: options.circular,
            rms: options.rms,
            phase_centre: options.pointing.map(centre),
            location: Place { longitude_deg, latitude_deg, height_m, itrf_m },
            antennas: antennas
                .map(|i| antenna(options, i, &truth.autocorrelations[i], &files[i]))
                .collect::<Result<_>>()?,
            sources: sources.clone().map(|(source, truth)| described(source, truth)).collect(),
            warnings: sources.filter_map(|(source, truth)| warning(source, truth)).collect(),
        })
    }

    /// Summarizes the contents in a few words.
    pub(super) fn contents(&self) -> String {
        let received = self.sources.iter().filter(|source| !source.below_horizon).count();
        list(&[(received, "source", "sources")])
    }
}

fn ends(centres_hz: &[f64]) -> [f64; 2] {
    let lowest = centres_hz.iter().copied().fold(f64::MAX, f64::min);
    [lowest, centres_hz.iter().copied().fold(f64::MIN, f64::max)]
}

fn antenna(
    options: &ArrayOptions,
    index: usize,
    autocorrelations: &[f64],
    file: &File,
) -> Result<Antenna> {
    let (antenna, receiver) = (&options.array.antennas[index], &options.receivers[index]);
    let tsamp_s = options.tsamp_s();
    let gap = |(start, times): &(u64, u64)| Gap {
        start_s: *start as f64 * tsamp_s,
        duration_s: *times as f64 * tsamp_s,
    };
    Ok(Antenna {
        name: antenna.name.clone(),
        number: antenna.number,
        file: file.name.clone(),
        itrf_m: antenna.itrf_m,
        enu_m: options.array.enu_m(index)?,
        sefd_jy: receiver.sefd_jy,
        delay_s: receiver.fixed_delay_s,
        dead: receiver.dead,
        autocorrelations: autocorrelations.to_vec(),
        gaps: receiver.gaps.iter().map(gap).collect(),
    })
}

fn described(source: &PointSource, truth: &SourceTruth) -> Source {
    Source {
        name: source.name.clone(),
        ra_deg: source.direction.ra_deg,
        dec_deg: source.direction.dec_deg,
        flux_jy: source.flux_jy,
        linear: source.polarization.linear,
        angle_deg: source.polarization.angle_rad.to_degrees(),
        circular: source.polarization.circular,
        altitude_deg: truth.altitude_deg,
        azimuth_deg: truth.azimuth_deg,
        below_horizon: !truth.received,
        delays_s: truth.delays_s.clone(),
        amplitudes: truth.amplitudes.clone(),
    }
}

fn warning(source: &PointSource, truth: &SourceTruth) -> Option<String> {
    let altitude = truth.altitude_deg.filter(|_| !truth.received)?;
    Some(format!(
        "source {} is below the horizon (altitude {altitude:.1} degrees in the middle of the recording): \
         nothing of it is received",
        source.name
    ))
}
