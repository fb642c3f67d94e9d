//! An array with baselines of some hundred kilometres that tracks one source, recorded in many formats.
#![allow(dead_code, unreachable_pub, missing_docs)]

use num_complex::Complex;
use sidereal::backend::Backend;
use sidereal::channelize::{Options as BankOptions, Plan};
use sidereal::geometry::{Array, Direction, Dut1, Location, Sky};
use sidereal::io::voltages::{Flag, VoltageHeader, VoltageSource};
use sidereal::pipeline::correlator::{
    ArrayCorrelator, ArrayHeader, ArrayInput, CorrelateOptions, Integration, PhaseCentre,
};
use sidereal::simulate::array::{ArrayAntenna, ArrayOptions, ArraySimulator, PointSource};
use sidereal::units::Epoch;
use sidereal::voltage::VoltageBlock;
use sidereal::voltage::VoltageEncoding::{self, Complex8};

pub type Complex64 = Complex<f64>;

pub const ANTENNAS: usize = 5;

/// Channels of a recorded channel.
pub const CHANNELS: usize = 32;

pub const TAPS: usize = 4;

/// Spectra of an integration.
pub const SPECTRA: usize = 1500;

pub const INTEGRATIONS: usize = 6;

/// An array of some hundred kilometres, whose delays are hundreds of samples.
pub fn array() -> Array {
    let places = [
        [0.0, 0.0, 0.0],
        [61_000.0, -7_000.0, 120.0],
        [-35_000.0, 44_000.0, -60.0],
        [310_000.0, 90_000.0, 400.0],
        [-150.0, 90.0, 3.0],
    ];
    let antennas: Vec<_> =
        places.iter().enumerate().map(|(i, place)| (format!("ea{i:02}"), *place)).collect();
    let location = Location { longitude_deg: 21.44, latitude_deg: -30.71, height_m: 1050.0 };
    Array::from_enu("test", &antennas, location).unwrap()
}

pub fn start() -> Epoch {
    Epoch::new(60_700, 40_321.25)
}

/// Some 40 degrees off zenith.
pub fn target() -> Direction {
    let zenith = Sky::new(&array(), Dut1::Table).unwrap().zenith(start()).unwrap();
    Direction { ra_deg: (zenith.ra_deg + 33.0) % 360.0, dec_deg: zenith.dec_deg + 25.0 }
}

/// One observation: its recordings and its source.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    pub encoding: VoltageEncoding,
    pub lower: bool,
    pub polarizations: usize,
    /// Recorded channels.
    pub coarse: usize,
    pub nbits: usize,
    /// Channels averaged into one.
    pub average: usize,
    /// The source's flux, where receivers have 1 Jy.
    pub flux_jy: f64,
}

/// Complex 8 bit, one recorded channel, upper sideband, one polarization, 8 bits.
pub const PLAIN: Case = Case {
    encoding: Complex8,
    lower: false,
    polarizations: 1,
    coarse: 1,
    nbits: 8,
    average: 1,
    flux_jy: 50.0,
};

impl Case {
    pub fn bank(&self) -> Plan {
        let mut options = BankOptions::new(CHANNELS, TAPS, self.encoding);
        options.input.polarizations = self.polarizations;
        Plan::new(options).unwrap()
    }

    /// Samples of a recording.
    pub fn times(&self) -> u64 {
        (SPECTRA * INTEGRATIONS * self.bank().hop() + self.bank().span()).next_multiple_of(4) as u64
    }

    pub fn simulation(&self) -> ArrayOptions {
        let bandwidth_hz = 2e6 * self.coarse as f64;
        let mut options =
            ArrayOptions::new(array(), 327e6, bandwidth_hz, self.coarse, self.times());
        options = options.encoding(self.encoding).sefd_jy(1.0);
        if self.lower {
            options = options.lower_sideband();
        }
        options.polarizations = self.polarizations;
        options.start = start();
        options.sources = vec![PointSource::new("target", target(), self.flux_jy)];
        options.seed = 3;
        // Cable delays are included: they are known, and the whole delay of the last antenna changes during the
        // recording.
        let cables = self.cables();
        options.receivers.iter_mut().zip(cables).for_each(|(own, delay)| own.fixed_delay_s = delay);
        options
    }

    pub fn tsamp_s(&self) -> f64 {
        if self.encoding.is_complex() { 0.5e-6 } else { 0.25e-6 }
    }

    /// Chosen so that the last antenna but one is half a sample from an integer delay in the middle.
    pub fn cables(&self) -> Vec<f64> {
        let middle = start().plus_s(0.5 * self.times() as f64 * self.tsamp_s());
        let delays = Sky::new(&array(), Dut1::Table).unwrap().delays_s(target(), middle).unwrap();
        let samples = delays[3] / self.tsamp_s();
        let cable = (samples.floor() + 0.5 - samples) * self.tsamp_s();
        vec![0.0, 130e-9, -2.2e-6, cable, 7e-9]
    }

    pub fn options(&self) -> CorrelateOptions {
        let spectrum_s = self.bank().hop() as f64 * self.tsamp_s();
        let centre = target();
        CorrelateOptions {
            taps: TAPS,
            nbits: self.nbits,
            average_channels: self.average,
            integration_s: SPECTRA as f64 * spectrum_s,
            phase_centre: PhaseCentre::Sidereal {
                ra_deg: centre.ra_deg,
                dec_deg: centre.dec_deg,
                name: "target".into(),
            },
            cable_delays_s: self.cables(),
            ..CorrelateOptions::new(CHANNELS)
        }
    }

    /// The correlation of two antennas' voltages, receivers' noise and the source's share.
    pub fn coherence(&self) -> f64 {
        self.flux_jy / (1.0 + self.flux_jy)
    }
}

pub fn correlate(
    simulator: &ArraySimulator,
    options: &CorrelateOptions,
) -> (ArrayHeader, Vec<Integration>) {
    correlate_late(simulator, options, [0; ANTENNAS])
}

/// Returns the recordings without the given numbers of first samples.
pub fn correlate_late(
    simulator: &ArraySimulator,
    options: &CorrelateOptions,
    late: [u64; ANTENNAS],
) -> (ArrayHeader, Vec<Integration>) {
    let input = |i: usize| ArrayInput {
        antennas: vec![array().antennas[i].name.clone()],
        source: Box::new(Late::new(simulator.antenna(i).unwrap(), late[i])),
    };
    let inputs = (0..ANTENNAS).map(input).collect();
    let backend = Backend::best(2);
    let mut correlator = ArrayCorrelator::new(&array(), inputs, options, &backend).unwrap();
    let (mut all, mut integration) = (Vec::new(), Integration::new());
    while correlator.next_integration(&mut integration).unwrap() {
        all.push(integration.clone());
    }
    (correlator.header().clone(), all)
}

/// A recording that begins later.
pub struct Late {
    source: ArrayAntenna,
    header: VoltageHeader,
    flags: Vec<Flag>,
}

impl Late {
    pub fn new(mut source: ArrayAntenna, samples: u64) -> Self {
        let mut header = source.header().clone();
        header.start = header.start.plus_s(samples as f64 * header.tsamp_s);
        header.times = header.times.map(|times| times - samples);
        assert_eq!(source.skip(samples).unwrap(), samples);
        let own = |flag: &Flag| {
            let end = (flag.start + flag.times).saturating_sub(samples);
            let start = flag.start.saturating_sub(samples);
            Flag { start, times: end - start, ..flag.clone() }
        };
        let flags = source.flags().iter().map(own).collect();
        Self { source, header, flags }
    }
}

impl VoltageSource for Late {
    fn header(&self) -> &VoltageHeader {
        &self.header
    }

    fn read(&mut self, block: &mut VoltageBlock) -> sidereal::Result<usize> {
        self.source.read(block)
    }

    fn skip(&mut self, times: u64) -> sidereal::Result<u64> {
        self.source.skip(times)
    }

    fn flags(&self) -> &[Flag] {
        &self.flags
    }
}
