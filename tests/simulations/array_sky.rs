//! Simulated voltages of an array: amplitudes of the truth, and delays of the sky.

use crate::support::array;
use std::f64::consts::{PI, TAU};

use array::{array, mean, source, streams};
use num_complex::Complex;
use sidereal::geometry::{Direction, Sky};
use sidereal::simulate::array::{ArrayOptions, ArraySimulator, Delay, PointSource};
use sidereal::simulate::voltages::Polarization;
use sidereal::voltage::VoltageEncoding;

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
