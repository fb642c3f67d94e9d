//! A simulated source off the zenith: tracked, its fringes are flat, and amplitudes are those of the truth.

use num_complex::Complex;
use sidereal::backend::Backend;
use sidereal::channelize::{Options, Plan};
use sidereal::geometry::{Array, Direction, Location, Sky};
use sidereal::io::uvh5;
use sidereal::pipeline::Ending;
use sidereal::pipeline::correlator::{
    ArrayCorrelator, ArrayInput, CorrelateOptions, Integration, Labels, PhaseCentre, write_uvh5,
};
use sidereal::simulate::array::{ArrayOptions, ArraySimulator, PointSource};
use sidereal::voltage::VoltageEncoding;

/// Channels of a recorded channel.
const CHANNELS: usize = 32;

/// Antennas up to 1.5 km apart.
fn array() -> Array {
    let places = [[0.0, 0.0, 0.0], [1200.0, 90.0, 3.0], [-310.0, 420.0, -2.0], [75.0, -640.0, 1.0]];
    let antennas: Vec<_> =
        places.iter().enumerate().map(|(i, place)| (format!("A{i}"), *place)).collect();
    let location = Location { longitude_deg: -107.6, latitude_deg: 34.1, height_m: 2100.0 };
    Array::from_enu("test", &antennas, location).unwrap()
}

/// A bright source, 35 degrees north-east of the zenith at the start.
fn options(encoding: VoltageEncoding, lower: bool) -> ArrayOptions {
    let times = if encoding.is_complex() { 200_000 } else { 400_000 };
    let mut options = ArrayOptions::new(array(), 1.4e9, 4e6, 2, times).encoding(encoding);
    options.polarizations = 1;
    if lower {
        options = options.lower_sideband();
    }
    let sky = Sky::new(&options.array, options.dut1.clone()).unwrap();
    let zenith = sky.zenith(options.start).unwrap();
    let direction =
        Direction { ra_deg: (zenith.ra_deg + 31.0) % 360.0, dec_deg: zenith.dec_deg + 24.0 };
    options.sources = vec![PointSource::new("bright", direction, 100.0)];
    options.sefd_jy(1.0)
}

fn inputs(simulator: &ArraySimulator) -> Vec<ArrayInput> {
    let input = |antenna| ArrayInput {
        antennas: vec![format!("A{antenna}")],
        source: Box::new(simulator.antenna(antenna).unwrap()),
    };
    (0..simulator.antennas()).map(input).collect()
}

/// Settings of a correlation that points the given number of degrees off the source.
fn asked(options: &ArrayOptions, beside_deg: f64) -> CorrelateOptions {
    let Direction { ra_deg, dec_deg } = options.sources[0].direction;
    let phase_centre =
        PhaseCentre::Sidereal { ra_deg, dec_deg: dec_deg + beside_deg, name: "bright".into() };
    CorrelateOptions { phase_centre, integration_s: 0.02, ..CorrelateOptions::new(CHANNELS) }
}

fn correlate(
    simulator: &ArraySimulator,
    asked: &CorrelateOptions,
) -> (ArrayCorrelator, Vec<Integration>) {
    let backend = Backend::best(2);
    let mut correlator =
        ArrayCorrelator::new(&array(), inputs(simulator), asked, &backend).unwrap();
    let (mut all, mut integration) = (Vec::new(), Integration::new());
    while correlator.next_integration(&mut integration).unwrap() {
        all.push(integration.clone());
    }
    (correlator, all)
}

/// Channels that hold an edge of a recorded channel's band: the first holds both, or zero frequency.
fn is_inside(channel: usize, lower: bool) -> bool {
    let place = channel % CHANNELS;
    place != if lower { CHANNELS - 1 } else { 0 }
}

/// Root mean square of the phases of a baseline over band and time, in degrees.
fn spread(all: &[Integration], baseline: usize, lower: bool) -> f64 {
    let (mut sum, mut count) = (0.0, 0);
    for integration in all {
        let row = &integration.sums[baseline * 2 * CHANNELS..][..2 * CHANNELS];
        for (channel, z) in row.iter().enumerate().filter(|(c, _)| is_inside(*c, lower)) {
            assert!(z.norm() > 0.0, "{channel}");
            sum += z.arg().to_degrees().powi(2);
            count += 1;
        }
    }
    (sum / f64::from(count)).sqrt()
}

/// Mean of a baseline over band and time.
fn strength(all: &[Integration], baseline: usize, lower: bool) -> Complex<f64> {
    let (mut sum, mut count) = (Complex::ZERO, 0);
    for integration in all {
        let at = |channel: usize| baseline * 2 * CHANNELS + channel;
        for channel in (0..2 * CHANNELS).filter(|channel| is_inside(*channel, lower)) {
            sum += integration.sums[at(channel)];
            count += integration.counts[at(channel)];
        }
    }
    sum / count as f64
}

#[test]
fn a_tracked_source_is_flat_and_as_strong_as_it_is() {
    for (encoding, lower) in [
        (VoltageEncoding::Complex8, false),
        (VoltageEncoding::Complex8, true),
        (VoltageEncoding::Real8, false),
        (VoltageEncoding::Real8, true),
    ] {
        let options = options(encoding, lower);
        let simulator = ArraySimulator::new(options.clone()).unwrap();
        let truth = simulator.truth();
        let (correlator, all) = correlate(&simulator, &asked(&options, 0.0));
        let summary = correlator.summary();
        assert!(!summary.is_below_horizon());
        let altitude = truth.sources[0].altitude_deg.unwrap();
        assert!((summary.altitudes_deg.unwrap().0 - altitude).abs() < 0.01);
        assert!(altitude < 60.0, "{altitude}");
        // Gain of the filter bank for white noise.
        let plan = Plan::new(Options::new(CHANNELS, 8, encoding)).unwrap();
        let through: f64 = plan.coefficients().iter().map(|b| b * b).sum();
        let amplitudes = &truth.sources[0].amplitudes;
        let mut baseline = 0;
        for i in 0..4 {
            for j in 0..=i {
                let off = spread(&all, baseline, lower);
                assert!(off < 0.5, "{encoding:?} {lower} {i} {j}: {off}");
                let found = strength(&all, baseline, lower);
                let expected = match i == j {
                    true => truth.autocorrelations[i][0] * through,
                    false => amplitudes[i][0] * amplitudes[j][0] * through,
                };
                let part = (found.re / expected - 1.0).abs();
                assert!(part < 0.01, "{encoding:?} {lower} {i} {j}: {found} {expected}");
                baseline += 1;
            }
        }
        // Fringes an eighth of a degree off the source are not flat.
        let (_, beside) = correlate(&simulator, &asked(&options, 0.137));
        let off = [1, 3, 4, 6, 7, 8].map(|own| spread(&beside, own, lower));
        assert!(off.iter().filter(|off| **off > 10.0).count() >= 5, "{off:?}");
        let drift = CorrelateOptions { phase_centre: PhaseCentre::Drift, ..asked(&options, 0.0) };
        let (_, drift) = correlate(&simulator, &drift);
        assert!(spread(&drift, 1, lower) > 30.0);
    }
}

#[test]
fn gaps_and_cables_change_counts_and_not_strengths() {
    let mut options = options(VoltageEncoding::Complex8, false);
    options.receivers[1].gaps = vec![(10_000, 30_000), (150_000, 1)];
    options.receivers[3].fixed_delay_s = 1.234e-6;
    let simulator = ArraySimulator::new(options.clone()).unwrap();
    let cables = options.receivers.iter().map(|receiver| receiver.fixed_delay_s).collect();
    let asked = CorrelateOptions { cable_delays_s: cables, ..asked(&options, 0.0) };
    let (correlator, all) = correlate(&simulator, &asked);
    let masked = correlator.summary().antennas[1].masked;
    assert!((masked - 30_000.0 / 200_000.0).abs() < 0.005, "{masked}");
    let powers: Vec<f64> = [0, 2, 5, 9].map(|own| strength(&all, own, false).re).to_vec();
    let mut baseline = 0;
    for i in 0..4 {
        for j in 0..=i {
            let part = strength(&all, baseline, false).re / (powers[i] * powers[j]).sqrt();
            assert!((part - 1.0).abs() < 0.02, "{i} {j} {part}");
            let off = all.iter().filter(|own| own.counts[baseline * 2 * CHANNELS] > 0);
            let off: Vec<Integration> = off.cloned().collect();
            assert!(spread(&off, baseline, false) < 0.8);
            baseline += 1;
        }
    }
}

#[test]
fn a_file_of_visibilities_has_what_was_correlated() {
    let options = options(VoltageEncoding::Complex8, false);
    let simulator = ArraySimulator::new(options.clone()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out.uvh5");
    let backend = Backend::best(2);
    let asked = asked(&options, 0.0);
    let write = |stop_after: u64| {
        let inputs = inputs(&simulator);
        let mut correlator = ArrayCorrelator::new(&array(), inputs, &asked, &backend).unwrap();
        let mut seen = 0;
        let report = write_uvh5(&mut correlator, &path, &Labels::default(), &mut |own, status| {
            assert_eq!((own.number, status.times), (seen, own.first + own.spectra));
            seen += 1;
            seen < stop_after
        });
        (report.unwrap(), seen)
    };
    let (report, seen) = write(2);
    assert!(matches!(report.ending, Ending::Stopped) && seen == 2);
    assert_eq!(uvh5::summary(&path).unwrap().integrations, 2);
    assert_eq!(std::fs::metadata(&path).unwrap().len(), report.bytes);
    let (report, seen) = write(u64::MAX);
    assert!(report.ending.is_complete() && report.summary.integrations == seen);
    assert_eq!((seen, uvh5::summary(&path).unwrap().integrations), (5, 5));
    let length = std::fs::metadata(&path).unwrap().len();
    assert!(length >= 5 * 10 * 2 * CHANNELS as u64 * 13, "{length}");
    assert_eq!(report.summary.spectra, (200_000 - 8 * 32) / 32 + 1);
    assert!(report.summary.msamples_per_s() > 0.0 && report.summary.steps.total_s() > 0.0);
}
