//! Simulated voltages of an array: delays of whole samples and parts of them, phases over the band,
//! strengths as the truth has them, and the same bytes however they are read.

use std::f64::consts::{PI, TAU};

use num_complex::Complex;
use sidereal::Error;
use sidereal::backend::threads::Threads;
use sidereal::geometry::{Antenna, Array, Direction};
use sidereal::io::voltages::{Flag, VoltageSource};
use sidereal::simulate::array::{ArrayAntenna, ArrayOptions, ArraySimulator, Delay, PointSource};
use sidereal::simulate::voltages::Polarization;
use sidereal::voltage::{VoltageBlock, VoltageEncoding};

/// Antennas some tens of metres apart, near longitude 0 on the equator.
fn array(antennas: usize) -> Array {
    let antenna = |i: usize| Antenna {
        name: format!("ant{i}"),
        number: i as i64,
        itrf_m: [6.378e6, 37.0 * i as f64, 11.0 * (i * i) as f64],
        diameter_m: None,
    };
    Array::from_itrf("test", (0..antennas).map(antenna).collect(), None).unwrap()
}

fn source(flux_jy: f64) -> PointSource {
    PointSource::new("one", Direction { ra_deg: 10.0, dec_deg: 20.0 }, flux_jy)
}

/// Two antennas, one source of 1 Jy, no noise, floats.
fn quiet(times: u64) -> ArrayOptions {
    let options = ArrayOptions::new(array(2), (1.4e9, 8e6), 1, times);
    let mut options = options.encoding(VoltageEncoding::ComplexF32).sefd_jy(0.0);
    options.sources = vec![source(1.0)];
    options
}

/// The second antenna's delay in seconds, as a function of the time; the first has none.
fn second(delay_s: impl Fn(f64) -> f64 + Send + Sync + 'static) -> Vec<Delay> {
    vec![Box::new(move |antenna, t| if antenna == 1 { delay_s(t) } else { 0.0 })]
}

fn read(source: &mut dyn VoltageSource, times: usize) -> VoltageBlock {
    let mut block = source.header().block(times);
    assert_eq!(source.read(&mut block).unwrap(), times);
    block
}

fn values(block: &VoltageBlock, stream: usize) -> Vec<Complex<f64>> {
    let voltages = block.voltages();
    (0..voltages.times()).map(|n| voltages.value(stream, n)).collect()
}

/// One stream of every antenna.
fn streams(simulator: &ArraySimulator, stream: usize) -> Vec<Vec<Complex<f64>>> {
    let whole = |i: usize| {
        let mut antenna = simulator.antenna(i).unwrap();
        let times = antenna.header().times.unwrap() as usize;
        values(&read(&mut antenna, times), stream)
    };
    (0..simulator.antennas()).map(whole).collect()
}

/// Mean of x conj(y).
fn mean(x: &[Complex<f64>], y: &[Complex<f64>]) -> Complex<f64> {
    x.iter().zip(y).map(|(x, y)| x * y.conj()).sum::<Complex<f64>>() / x.len() as f64
}

/// Plain transform of as many points as there are values, at one frequency in cycles a sample.
fn spectrum(x: &[Complex<f64>], cycles: f64) -> Complex<f64> {
    let points = x.len() as f64;
    let term = |(n, x): (usize, &Complex<f64>)| {
        let window = (PI * (n as f64 + 0.5) / points).sin().powi(4);
        x * window * Complex::cis(-TAU * (cycles * n as f64).fract())
    };
    x.iter().enumerate().map(term).sum()
}

/// Degrees between two phases.
fn degrees(value: Complex<f64>) -> f64 {
    value.arg().to_degrees()
}

#[test]
fn whole_samples_of_delay_are_a_shift_with_a_turned_phase() {
    let options = quiet(40_000);
    let (tsamp, frequency) = (options.tsamp_s(), options.centres_hz[0]);
    for shift in [7i64, -13, 5000] {
        let delay = shift as f64 * tsamp;
        let simulator = ArraySimulator::with_delays(options.clone(), second(move |_| delay));
        let antennas = streams(&simulator.unwrap(), 0);
        let turn = Complex::cis(-TAU * (frequency * delay).fract());
        for n in 6000..34_000usize {
            let expected = antennas[0][(n as i64 - shift) as usize] * turn;
            let off = (antennas[1][n] - expected).norm();
            assert!(off < 2e-4, "shift {shift}, sample {n}: off by {off}");
        }
    }
}

#[test]
fn the_correlation_peaks_at_the_delay() {
    let options = quiet(60_000);
    let tsamp = options.tsamp_s();
    for delay in [3.0, -20.0, 4.3, -0.5] {
        let simulator =
            ArraySimulator::with_delays(options.clone(), second(move |_| delay * tsamp)).unwrap();
        let antennas = streams(&simulator, 0);
        let lagged = |lag: i64| {
            let (from, times) = (100usize, 59_800);
            let late = &antennas[1][(from as i64 + lag) as usize..][..times];
            mean(late, &antennas[0][from..][..times]).norm()
        };
        let lags: Vec<f64> = (-40..=40).map(lagged).collect();
        let power = mean(&antennas[0], &antennas[0]).re;
        for (lag, found) in (-40..=40).zip(&lags) {
            let x: f64 = f64::from(lag) - delay;
            let sinc = if x == 0.0 { 1.0 } else { ((PI * x).sin() / (PI * x)).abs() };
            assert!((found / power - sinc).abs() < 0.02, "{delay} {lag} {found} {sinc}");
        }
    }
}

/// Off from the phase that the delay demands, in degrees, and from amplitude 1, over the central 90 %.
fn worst(options: ArrayOptions, delay: fn(f64) -> f64) -> (f64, f64) {
    const POINTS: usize = 2048;
    let (tsamp, complex) = (options.tsamp_s(), options.encoding.is_complex());
    let sign = if options.lower_sideband { -1.0 } else { 1.0 };
    let zero = if complex { 0.0 } else { -0.5 * sign * options.channel_width_hz };
    let sky_zero = options.centres_hz[0] + zero;
    let simulator = ArraySimulator::with_delays(options, second(delay)).unwrap();
    let antennas = streams(&simulator, 0);
    let (mut phase, mut amplitude) = (0f64, 0f64);
    for step in 0..=30 {
        let part = 0.05 + 0.03 * f64::from(step);
        // Cycles a sample in the voltage.
        let cycles = if complex { part - 0.5 } else { 0.5 * part };
        let sky = sky_zero + sign * cycles / tsamp;
        let (mut cross, mut power) = (Complex::new(0.0, 0.0), 0.0);
        for start in (4096..32_000).step_by(POINTS / 2) {
            let now = delay((start + POINTS / 2) as f64 * tsamp);
            let whole = (now / tsamp).round();
            let late = &antennas[1][(start as i64 + whole as i64) as usize..][..POINTS];
            // The delay as the later samples have it.
            let now = delay((start + POINTS / 2) as f64 * tsamp + whole * tsamp);
            let (x, y) = (spectrum(late, cycles), spectrum(&antennas[0][start..][..POINTS], cycles));
            let turn = sign * (sky * now).fract() - cycles * whole;
            cross += x * Complex::cis(TAU * turn) * y.conj();
            power += y.norm_sqr();
        }
        phase = phase.max(cross.arg().to_degrees().abs());
        amplitude = amplitude.max((cross.norm() / power - 1.0).abs());
    }
    (phase, amplitude)
}

#[test]
fn the_phase_follows_the_delay_over_the_band() {
    // Without and with the rate of a kilometre's baseline.
    let still = |_: f64| 1.234_567e-6;
    let slow = |t: f64| -3.217e-6 + 2e-10 * t;
    for encoding in [VoltageEncoding::ComplexF32, VoltageEncoding::RealF32] {
        for lower in [false, true] {
            let mut options = quiet(40_000).encoding(encoding);
            if lower {
                options = options.lower_sideband();
            }
            for delay in [still as fn(f64) -> f64, slow] {
                let (phase, amplitude) = worst(options.clone(), delay);
                assert!(phase < 0.1, "{encoding:?} {lower}: {phase} degrees");
                assert!(amplitude < 2e-3, "{encoding:?} {lower}: {amplitude}");
            }
        }
    }
}

/// Kaiser's window of 100 dB at -1 to 1.
fn kaiser(x: f64) -> f64 {
    let beta = kaiser_beta(100.0);
    bessel_i0(beta * (1.0 - x * x).max(0.0).sqrt()) / bessel_i0(beta)
}

#[test]
fn every_sample_has_its_own_delay() {
    // The rate of the Earth's size, three times over, and a curve.
    let delay = |t: f64| 31.7e-6 + 4.5e-6 * t - 3e-5 * t * t;
    let options = quiet(40_000);
    let (tsamp, frequency) = (options.tsamp_s(), options.centres_hz[0]);
    let antennas = streams(&ArraySimulator::with_delays(options, second(delay)).unwrap(), 0);
    // Borders of blocks of 6144, and what lies between.
    for n in (6100..6200).step_by(9).chain((12_000..37_000).step_by(211)) {
        let seconds = (n as f64 + 0.5) * tsamp;
        let place = n as f64 - delay(seconds) / tsamp;
        let first = place.ceil() as usize - 1024;
        let term = |m: usize| {
            let x = place - m as f64;
            antennas[0][m] * sinc(x) * kaiser(x / 1024.0)
        };
        let interpolated: Complex<f64> = (first..first + 2048).map(term).sum();
        let expected = interpolated * Complex::cis(-TAU * (frequency * delay(seconds)).fract());
        let off = (antennas[1][n] - expected).norm();
        assert!(off < 2e-3, "sample {n}: off by {off}");
    }
}

#[test]
fn powers_are_those_of_the_truth() {
    let kinds = [
        (VoltageEncoding::Complex8, 2e-3),
        (VoltageEncoding::Complex4, 4e-3),
        (VoltageEncoding::Real8, 4e-3),
        (VoltageEncoding::ComplexF32, 2e-3),
    ];
    for (encoding, limit) in kinds {
        let times = 1_200_000;
        let options = ArrayOptions::new(array(3), (350e6, 4e6), 1, times).encoding(encoding);
        let mut options = options.sefd_jy(10.0);
        options.receivers[2].sefd_jy = 30.0;
        options.sources = vec![source(2.0), source(1.0)];
        options.sources[1].polarization = Polarization { linear: 0.6, angle_rad: 0.3, circular: 0.5 };
        let tsamp = options.tsamp_s();
        let near: Delay = Box::new(move |i, _| -3.4 * tsamp * i as f64);
        let far: Delay = Box::new(move |i, _| 500.0 * tsamp * i as f64);
        let simulator = ArraySimulator::with_delays(options, vec![near, far]).unwrap();
        let truth = simulator.truth();
        let streams = [streams(&simulator, 0), streams(&simulator, 1)];
        for polarization in 0..2 {
            for antenna in 0..3 {
                let x = &streams[polarization][antenna];
                let (found, expected) =
                    (mean(x, x).re, truth.autocorrelations[antenna][polarization]);
                let off = (found / expected - 1.0).abs();
                assert!(off < limit, "{encoding:?} {antenna} {polarization}: {found} {expected}");
            }
            let (x, y) = (&streams[polarization][1][1000..], &streams[polarization][0][1000..]);
            let total = truth.autocorrelations[0][polarization];
            // The first source's delay lies between samples: its peak by the sinc of both sides.
            let near = |lag: usize| mean(&x[..1_190_000], &y[lag..][..1_190_000]);
            let expected = |source: usize| {
                let amplitudes = &truth.sources[source].amplitudes;
                amplitudes[1][polarization] * amplitudes[0][polarization]
            };
            // A delay of -3.4 samples: what is 3 samples later in the other is 0.4 away.
            let found = near(3).norm();
            let sinc = (PI * 0.4).sin() / (PI * 0.4);
            let scale = if encoding.is_complex() { sinc } else { real_sinc(0.4, 350e6 - 2e6, tsamp) };
            let off = (found - scale.abs() * expected(0)).abs() / total;
            assert!(off < 4e-3, "{encoding:?} {polarization}: {found} {}", expected(0));
            let found = mean(&x[500..][..1_190_000], &y[..1_190_000]).norm();
            let turned = real_sinc(0.0, (350e6 - 2e6) * 500.0, tsamp);
            let scale = if encoding.is_complex() { 1.0 } else { turned };
            let off = (found - scale.abs() * expected(1)).abs() / total;
            assert!(off < 4e-3, "{encoding:?} {polarization}: {found} {}", expected(1));
        }
    }
}
