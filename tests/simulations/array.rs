//! Simulated voltages of an array: delays of whole samples and parts of them, phases over the band, the
//! same bytes however they are read, faults, amplitudes of the truth, and delays of the sky.

use std::f64::consts::{PI, TAU};

use num_complex::Complex;
use sidereal::Error;
use sidereal::backend::threads::Threads;
use sidereal::geometry::{Direction, Sky};
use sidereal::io::voltages::{Flag, VoltageSource};
use sidereal::math::{bessel_i0, kaiser_beta, sinc};
use sidereal::simulate::array::{ArrayAntenna, ArrayOptions, ArraySimulator, Delay, PointSource};
use sidereal::simulate::voltages::Polarization;
use sidereal::voltage::{VoltageBlock, VoltageEncoding};

use crate::common::{array, mean, source, streams};

/// Two antennas, one source of 1 Jy, no noise, floats.
fn quiet(times: u64) -> ArrayOptions {
    let options = ArrayOptions::new(array(2), 1.4e9, 8e6, 1, times);
    let mut options = options.encoding(VoltageEncoding::ComplexF32).sefd_jy(0.0);
    options.sources = vec![source(1.0)];
    options
}

/// The second antenna's delay in seconds, as a function of the time; the first has none.
fn second(delay_s: impl Fn(f64) -> f64 + Send + Sync + 'static) -> Vec<Delay> {
    vec![Box::new(move |antenna, t| if antenna == 1 { delay_s(t) } else { 0.0 })]
}

/// Plain transform of all values at one frequency in cycles per sample.
fn spectrum(x: &[Complex<f64>], cycles: f64) -> Complex<f64> {
    let points = x.len() as f64;
    let term = |(n, x): (usize, &Complex<f64>)| {
        let window = (PI * (n as f64 + 0.5) / points).sin().powi(4);
        x * window * Complex::cis(-TAU * (cycles * n as f64).fract())
    };
    x.iter().enumerate().map(term).sum()
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

/// Error of the phase in degrees relative to that of the delay, and of the amplitude relative to 1, over the central
/// 90 %.
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
            let (x, y) =
                (spectrum(late, cycles), spectrum(&antennas[0][start..][..POINTS], cycles));
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
                assert!(amplitude < 1e-3, "{encoding:?} {lower}: {amplitude}");
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
    // Borders of blocks of 6144, and samples between them.
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

/// Rows of bytes read in blocks of the given lengths, cyclically; 0 skips 4 samples.
fn bytes_in_blocks(mut antenna: ArrayAntenna, lengths: &[usize]) -> Vec<Vec<u8>> {
    let header = antenna.header().clone();
    let mut rows = vec![Vec::new(); header.streams()];
    for length in lengths.iter().cycle() {
        if *length == 0 {
            let bytes = header.encoding.bytes(antenna.skip(4).unwrap() as usize);
            rows.iter_mut().for_each(|row| row.extend(std::iter::repeat_n(0xee, bytes)));
            continue;
        }
        let mut block = header.block(*length);
        block.rows_mut().for_each(|row| row.fill(0xa5));
        if antenna.read(&mut block).unwrap() == 0 {
            break;
        }
        let voltages = block.voltages();
        rows.iter_mut().enumerate().for_each(|(s, row)| row.extend_from_slice(voltages.row(s)));
    }
    rows
}

#[test]
fn bytes_depend_on_neither_blocks_nor_threads() {
    let encodings = [VoltageEncoding::Complex8, VoltageEncoding::Complex4, VoltageEncoding::Real2];
    for encoding in encodings {
        let mut options = ArrayOptions::new(array(2), 400e6, 4e6, 3, 30_000).encoding(encoding);
        options.sources = vec![source(500.0), source(100.0)];
        options.receivers[1].gaps = vec![(20_000, 400), (4, 8)];
        let delay =
            |rate: f64| -> Delay { Box::new(move |i, t| (i as f64 + 1.0) * rate * (t + 1.0)) };
        let delays = || vec![delay(1e-6), delay(-3e-7)];
        let simulator = ArraySimulator::with_delays(options.clone(), delays()).unwrap();
        let whole = bytes_in_blocks(simulator.antenna(1).unwrap(), &[30_000]);
        assert_eq!(whole.len(), 6);
        let threaded = simulator.antenna(1).unwrap().with_threads(Threads::new(3));
        assert!(bytes_in_blocks(threaded, &[4, 9000, 1024, 68]) == whole, "{encoding:?}");
        let skipped = bytes_in_blocks(simulator.antenna(1).unwrap(), &[7000, 0]);
        for (row, skipped) in whole.iter().zip(&skipped) {
            let differ = row.iter().zip(skipped).filter(|(a, b)| a != b && **b != 0xee).count();
            assert_eq!((row.len(), differ), (skipped.len(), 0), "{encoding:?}");
        }
        let again = ArraySimulator::with_delays(options.clone(), delays()).unwrap();
        assert!(bytes_in_blocks(again.antenna(1).unwrap(), &[512]) == whole);
        let other = ArraySimulator::with_delays(ArrayOptions { seed: 1, ..options }, delays());
        assert!(bytes_in_blocks(other.unwrap().antenna(1).unwrap(), &[30_000])[0] != whole[0]);
        let flag = |start, times| Flag { streams: 0..6, start, times };
        let antenna = simulator.antenna(1).unwrap();
        assert_eq!(antenna.flags(), [flag(4, 8), flag(20_000, 400)]);
        assert!(simulator.antenna(0).unwrap().flags().is_empty());
        for row in &whole {
            for (from, to) in [(4, 12), (20_000, 20_400)] {
                let bytes = &row[encoding.bytes(from)..encoding.bytes(to)];
                assert!(bytes.iter().all(|byte| *byte == encoding.zero_byte()), "{encoding:?}");
            }
        }
    }
}

#[test]
fn what_cannot_be_made_is_an_error() {
    let fault = |change: fn(&mut ArrayOptions)| {
        let mut options = ArrayOptions::new(array(2), 400e6, 4e6, 3, 1000);
        options.sources = vec![source(1.0)];
        change(&mut options);
        match ArraySimulator::new(options) {
            Err(Error::Parameter { name, rule, .. }) => format!("{name}: {rule}"),
            Err(other) => other.to_string(),
            Ok(_) => "nothing".to_owned(),
        }
    };
    for (change, told) in [
        ((|o| o.array.antennas.clear()) as fn(&mut ArrayOptions), "antennas"),
        (|o| o.receivers.truncate(1), "receivers"),
        (|o| o.centres_hz.clear(), "array.channels"),
        (|o| o.centres_hz[0] = 1.0, "centre_mhz"),
        (|o| o.polarizations = 3, "array.polarizations"),
        (|o| o.times = 0, "array.times"),
        (|o| o.rms = f64::NAN, "rms"),
        (|o| o.receivers[1].sefd_jy = -1.0, "sefd_jy"),
        (|o| o.receivers[1].fixed_delay_s = f64::INFINITY, "fixed delay"),
        (|o| o.receivers[1].gaps = vec![(990, 11)], "gap (samples)"),
        (|o| o.receivers[0].gaps = vec![(0, 11), (10, 5)], "gap (samples)"),
        (|o| o.sources[0].direction.ra_deg = 361.0, "right ascension"),
        (|o| o.sources[0].direction.dec_deg = -91.0, "declination"),
        (|o| o.sources[0].flux_jy = f64::NAN, "flux"),
        (|o| o.sources[0].polarization.linear = 2.0, "linear of a source"),
    ] {
        let found = fault(change);
        assert!(found.contains(told), "{told}: {found}");
    }
    let silent = ArrayOptions::new(array(2), 400e6, 4e6, 1, 1000).sefd_jy(0.0);
    let error = ArraySimulator::new(silent).unwrap_err().to_string();
    assert!(error.contains("sefd_jy") && error.contains("horizon"), "{error}");
    let simulator = ArraySimulator::new(ArrayOptions::new(array(2), 400e6, 4e6, 1, 1000)).unwrap();
    assert!(simulator.antenna(2).is_err());
    let mut antenna = simulator.antenna(1).unwrap();
    assert!(antenna.read(&mut VoltageBlock::new(VoltageEncoding::Complex8, 3, 100)).is_err());
    assert!(antenna.read(&mut VoltageBlock::new(VoltageEncoding::Real8, 2, 100)).is_err());
}

#[test]
fn powers_are_those_of_the_truth() {
    let kinds = [
        VoltageEncoding::Complex8,
        VoltageEncoding::Complex4,
        VoltageEncoding::Real8,
        VoltageEncoding::ComplexF32,
    ];
    for encoding in kinds {
        let times = 600_000;
        let options = ArrayOptions::new(array(3), 350e6, 4e6, 1, times).encoding(encoding);
        let mut options = options.sefd_jy(10.0);
        options.receivers[2].sefd_jy = 30.0;
        options.sources = vec![source(2.0), source(1.0)];
        options.sources[1].polarization =
            Polarization { linear: 0.6, angle_rad: 0.3, circular: 0.5 };
        // Full cycles at the frequency that real samples record as 0.
        let (tsamp, shifts) = (options.tsamp_s(), [-4i64, 500]);
        let delay =
            |shift: i64| -> Delay { Box::new(move |i, _| (shift * i as i64) as f64 * tsamp) };
        let delays = shifts.map(delay).into_iter().collect();
        let simulator = ArraySimulator::with_delays(options, delays).unwrap();
        let truth = simulator.truth();
        // Tolerance for the noise of a mean, in units of the total power.
        let limit = 5.0 / (times as f64).sqrt();
        for polarization in 0..2 {
            let antennas = streams(&simulator, polarization);
            let total = |i: usize| truth.autocorrelations[i][polarization];
            for (i, x) in antennas.iter().enumerate() {
                let found = mean(x, x).re;
                let off = (found / total(i) - 1.0).abs();
                assert!(off < 1.5 * limit, "{encoding:?} {i} {polarization}: {found} {}", total(i));
            }
            for (i, j) in [(1, 0), (2, 0), (2, 1)] {
                for (source, shift) in shifts.into_iter().enumerate() {
                    let shift = shift * (i - j) as i64;
                    let (late, early) = ((2000 + shift) as usize, 2000);
                    let x = &antennas[i][late..][..590_000];
                    let found = mean(x, &antennas[j][early..][..590_000]).norm();
                    let amplitudes = &truth.sources[source].amplitudes;
                    let expected = amplitudes[i][polarization] * amplitudes[j][polarization];
                    let off = (found - expected).abs() / (total(i) * total(j)).sqrt();
                    assert!(off < limit, "{encoding:?} {i} {j} {polarization}: {found} {expected}");
                }
            }
        }
    }
}

#[test]
fn strengths_follow_the_fluxes() {
    let mut options = ArrayOptions::new(array(3), 350e6, 4e6, 1, 100).sefd_jy(9.0);
    options.receivers[1].dead = true;
    options.sources = vec![source(1.0), source(2.0)];
    let none = || -> Delay { Box::new(|_, _| 0.0) };
    let simulator = ArraySimulator::with_delays(options.clone(), vec![none(), none()]).unwrap();
    let truth = simulator.truth();
    let power = 2.0 * options.rms.powi(2);
    assert!((truth.autocorrelations[0][0] / power - 1.0).abs() < 1e-3);
    assert_eq!(truth.autocorrelations[1], [0.0, 0.0]);
    let cross = |source: usize| {
        truth.sources[source].amplitudes[0][0] * truth.sources[source].amplitudes[2][0]
    };
    assert!((cross(0) / power - 1.0 / 12.0).abs() < 1e-6);
    assert!((cross(1) / power - 2.0 / 12.0).abs() < 1e-6);
    let dead = streams(&simulator, 1).swap_remove(1);
    assert!(dead.iter().all(|x| x.norm() == 0.0));
}

#[test]
fn polarization_is_the_skys_in_both_sidebands() {
    for lower in [false, true] {
        let options = ArrayOptions::new(array(1), 1.4e9, 8e6, 1, 300_000);
        let mut options = options.encoding(VoltageEncoding::ComplexF32).sefd_jy(0.0);
        options.sources = vec![source(1.0)];
        if lower {
            options = options.lower_sideband();
        }
        let state = Polarization { linear: 0.5, angle_rad: 0.3, circular: -0.4 };
        options.sources[0].polarization = state;
        let simulator = ArraySimulator::with_delays(options, vec![Box::new(|_, _| 0.0)]).unwrap();
        let (x, y) = (&streams(&simulator, 0)[0], &streams(&simulator, 1)[0]);
        let intensity = mean(x, x).re + mean(y, y).re;
        let cross = mean(x, y) * 2.0 / intensity;
        let cross = if lower { cross.conj() } else { cross };
        let q = (mean(x, x).re - mean(y, y).re) / intensity;
        let found = [q, cross.re, cross.im];
        let expected = [0.5 * 0.6f64.cos(), 0.5 * 0.6f64.sin(), -0.4];
        let off = found.iter().zip(expected).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        assert!(off < 0.01, "{lower}: {found:?} {expected:?}");
    }
}

#[test]
fn the_sky_gives_the_delays() {
    let times = 30_000;
    let mut options = ArrayOptions::new(array(2), 1.4e9, 8e6, 1, times).sefd_jy(1.0);
    let sky = Sky::new(&options.array, options.dut1.clone()).unwrap();
    let overhead = sky.zenith(options.start).unwrap();
    let below = Direction { ra_deg: (overhead.ra_deg + 180.0) % 360.0, dec_deg: 0.0 };
    let off = Direction { ra_deg: overhead.ra_deg, dec_deg: overhead.dec_deg + 20.0 };
    options.sources =
        vec![PointSource::new("low", below, 50.0), PointSource::new("high", off, 3.0)];
    options.receivers[1].fixed_delay_s = 40e-9;
    let simulator = ArraySimulator::new(options.clone()).unwrap();
    let [low, high] = &simulator.truth().sources[..] else { panic!("two sources") };
    assert!(!low.received && low.altitude_deg.unwrap() < -60.0 && low.amplitudes.is_empty());
    assert!(high.received && (high.altitude_deg.unwrap() - 70.0).abs() < 1.0);
    let expected = sky.delays_s(off, options.start).unwrap();
    assert!((high.delays_s[0] - expected[0]).abs() < 1e-12);
    assert!((high.delays_s[1] - expected[1] - 40e-9).abs() < 1e-12);
    // A source below the horizon adds no power: 3 of 4 Jy are the source's.
    let antennas = streams(&simulator, 0);
    let middle = options.start.plus_s(0.5 * times as f64 * options.tsamp_s());
    let delays = sky.delays_s(off, middle).unwrap();
    let difference = delays[1] + 40e-9 - delays[0];
    let band = difference / options.tsamp_s();
    let coherence = (PI * band).sin() / (PI * band);
    let found = mean(&antennas[1], &antennas[0]) / mean(&antennas[0], &antennas[0]).re;
    let expected = Complex::cis(-TAU * (1.4e9 * difference).fract()) * 0.75 * coherence;
    assert!((found - expected).norm() < 0.02, "{found} {expected}");
}
