//! Changing delays: after tracking, the phase of a source is zero in every channel at every time.

use std::f64::consts::TAU;

use array::{degrees, drain, inputs, polynomial, recording};
use memory::{Memory, noise};
use num_complex::Complex;
use sidereal::backend::Backend;
use sidereal::geometry::{DelayPolynomial, Dut1, Sky};
use sidereal::io::voltages::{Flag, VoltageHeader};
use sidereal::pipeline::correlator::{
    ArrayCorrelator, CorrelateOptions, Gains, Integration, PhaseCentre, Summary,
};
use sidereal::units::Epoch;
use sidereal::voltage::VoltageEncoding;

use crate::support::{array, memory};

/// Channels of a recorded channel.
const CHANNELS: usize = 16;

/// Spectra.
const SPECTRA: usize = 2200;

/// Seconds of a complex sample.
const TSAMP_S: f64 = 1e-6;

/// Delays in seconds: one constant, one rising and one falling by a sample every few hundred spectra.
fn delays(start: Epoch, hop: usize, tsamp_s: f64) -> Vec<DelayPolynomial> {
    let rate = |spectra: f64| 1.0 / (spectra * hop as f64);
    let samples = |count: f64| count * tsamp_s;
    vec![
        polynomial(start, &[samples(0.4)]),
        polynomial(start, &[samples(3.3), rate(600.0), 0.3 * rate(600.0) / 0.05]),
        polynomial(start, &[samples(-5.7), -rate(900.0)]),
    ]
}

/// A recording with one tone in the middle of each channel, each of its own amplitude.
struct Scene {
    header: VoltageHeader,
    /// Each recorded channel's tones: voltage frequency and sky frequency.
    tones: Vec<Vec<(f64, f64)>>,
    delays: Vec<DelayPolynomial>,
    /// Sub-sample delays of the antennas.
    late: [f64; 3],
    times: usize,
}

impl Scene {
    /// A scene of recorded channels at these centres.
    fn new(centres_mhz: &[f64], encoding: VoltageEncoding, lower_sideband: bool) -> Self {
        let real = !encoding.is_complex();
        let tsamp_s = if real { 0.5 * TSAMP_S } else { TSAMP_S };
        let hop = if real { 2 * CHANNELS } else { CHANNELS };
        let header =
            VoltageHeader { lower_sideband, tsamp_s, ..memory::header(centres_mhz, encoding) };
        let sideband = if lower_sideband { -1.0 } else { 1.0 };
        let step = 1e6 / CHANNELS as f64;
        let tones = centres_mhz.iter().map(|mhz| {
            let centre = mhz * 1e6;
            // Real samples: zero frequency is the band's edge, and its tone has no phase.
            let (zero, first) = if real { (centre - sideband * 0.5e6, 1) } else { (centre, 0) };
            let offset = if real { 0.0 } else { -0.5e6 };
            let tone = |k: usize| {
                let voltage = offset + k as f64 * step;
                (voltage, zero + sideband * voltage)
            };
            (first..CHANNELS).map(tone).collect()
        });
        let delays = delays(header.start, hop, tsamp_s);
        let times = (SPECTRA + 7) * hop;
        Self { tones: tones.collect(), header, delays, late: [0.0; 3], times }
    }

    fn amplitude(&self, coarse: usize, tone: usize) -> f64 {
        1.0 + 0.3 * ((coarse * 7 + tone) as f64).sin()
    }

    /// Returns the samples that an antenna records, at `scale` counts per unit.
    fn recording(&self, antenna: usize, scale: f64) -> Memory {
        let lower = self.header.lower_sideband;
        let real = !self.header.encoding.is_complex();
        let late_s = self.late[antenna] * self.header.tsamp_s;
        let start = self.header.start.plus_s(late_s);
        let header = VoltageHeader { start, ..self.header.clone() };
        recording(&header, antenna, self.times, |stream, time| {
            let t = time as f64 * self.header.tsamp_s + late_s;
            let coarse = stream / self.header.polarizations;
            // A sample is of the middle of its time.
            let delay = self.delays[antenna].at(t + 0.5 * self.header.tsamp_s);
            let tone = |(index, (voltage, sky)): (usize, &(f64, f64))| {
                // The sky phase falls with the delay; in a lower sideband everything is conjugate.
                let late = if lower { sky * delay } else { -sky * delay };
                let start = 0.37 * (index * index) as f64 + stream as f64;
                let turns = (voltage * t).fract() + late.fract() + start;
                let z = Complex::from_polar(scale * self.amplitude(coarse, index), TAU * turns);
                if real { Complex::new(2.0 * z.re, 0.0) } else { z }
            };
            self.tones[coarse].iter().enumerate().map(tone).sum()
        })
    }

    /// Returns the samples of all antennas.
    fn recordings(&self, scale: f64) -> Vec<Memory> {
        (0..self.delays.len()).map(|antenna| self.recording(antenna, scale)).collect()
    }

    /// A correlator that tracks the delays.
    fn correlator(
        &self,
        recordings: &[Memory],
        options: &CorrelateOptions,
        threads: usize,
    ) -> ArrayCorrelator {
        let array = array::array(self.delays.len());
        let (inputs, backend) = (inputs(recordings), Backend::best(threads));
        ArrayCorrelator::with_delays(&array, inputs, &self.delays, options, &backend).unwrap()
    }

    /// The amplitude of each channel by rising sky frequency; none where there is no tone.
    fn expected(&self) -> Vec<Option<f64>> {
        let mut all: Vec<(f64, Option<f64>)> = Vec::new();
        for (coarse, tones) in self.tones.iter().enumerate() {
            for (index, (_, sky)) in tones.iter().enumerate() {
                all.push((*sky, Some(self.amplitude(coarse, index))));
            }
            if tones.len() < CHANNELS {
                let sideband = if self.header.lower_sideband { -1.0 } else { 1.0 };
                all.push((self.header.centres_hz[coarse] - sideband * 0.5e6, None));
            }
        }
        all.sort_by(|a, b| a.0.total_cmp(&b.0));
        all.into_iter().map(|(_, amplitude)| amplitude).collect()
    }
}

/// Ten spectra an integration, in single precision.
fn options(header: &VoltageHeader) -> CorrelateOptions {
    let hop = if header.encoding.is_complex() { CHANNELS } else { 2 * CHANNELS };
    CorrelateOptions {
        nbits: 32,
        integration_s: 10.0 * hop as f64 * header.tsamp_s,
        ..CorrelateOptions::new(CHANNELS)
    }
}

/// The largest phase in degrees, and the largest error of amplitudes.
fn worst(all: &[Integration], expected: &[Option<f64>]) -> (f64, f64) {
    let mut worst = (0.0_f64, 0.0_f64);
    for integration in all {
        for baseline in 0..6 {
            for (channel, amplitude) in expected.iter().enumerate() {
                let at = baseline * expected.len() + channel;
                let Some(amplitude) = amplitude else { continue };
                assert!(integration.counts[at] > 0, "no valid sample");
                let mean = integration.sums[at] / integration.counts[at] as f64 / amplitude.powi(2);
                worst.0 = worst.0.max(degrees(mean, Complex::ONE).abs());
                worst.1 = worst.1.max((mean.norm() - 1.0).abs());
            }
        }
    }
    worst
}

#[test]
fn parts_of_a_sample_between_starts_are_taken_out() {
    for encoding in [VoltageEncoding::ComplexF32, VoltageEncoding::RealF32] {
        for (lower, late) in [(false, [0.0, 0.04, -0.04]), (true, [0.02, -0.02, 0.45])] {
            let mut scene = Scene::new(&[21.0, 20.0], encoding, lower);
            scene.late = late;
            let options = options(&scene.header);
            let all = drain(&mut scene.correlator(&scene.recordings(1.0), &options, 2));
            let worst = worst(&all[1..all.len() - 1], &scene.expected());
            assert!(worst.0 < 0.3 && worst.1 < 0.03, "{encoding:?} {lower} {worst:?}");
        }
    }
}

#[test]
fn phases_are_flat_over_band_and_time() {
    use VoltageEncoding::{ComplexF32, RealF32};
    for (centres, encoding) in [
        (&[20.0][..], ComplexF32),
        (&[20.0], RealF32),
        (&[21.0, 20.0, 22.0], ComplexF32),
        (&[21.0, 20.0], RealF32),
    ] {
        for lower in [false, true] {
            let scene = Scene::new(centres, encoding, lower);
            let options = options(&scene.header);
            let all = drain(&mut scene.correlator(&scene.recordings(1.0), &options, 2));
            assert_eq!(all.len(), SPECTRA / 10);
            let worst = worst(&all, &scene.expected());
            assert!(worst.0 < 0.3 && worst.1 < 0.03, "{centres:?} {encoding:?} {lower} {worst:?}");
        }
    }
}

#[test]
fn delays_of_the_wrong_sign_are_not_flat() {
    let scene = Scene::new(&[20.0], VoltageEncoding::ComplexF32, false);
    let array = array::array(3);
    let turned: Vec<DelayPolynomial> = scene
        .delays
        .iter()
        .map(|own| DelayPolynomial { coefficients: own.coefficients.map(|c| -c), ..*own })
        .collect();
    let recordings = scene.recordings(1.0);
    let options = options(&scene.header);
    let backend = Backend::best(2);
    let mut correlator =
        ArrayCorrelator::with_delays(&array, inputs(&recordings), &turned, &options, &backend)
            .unwrap();
    let all = drain(&mut correlator);
    let phase = |integration: &Integration| degrees(integration.sums[CHANNELS], Complex::ONE);
    let spread = all.iter().filter(|integration| phase(integration).abs() > 30.0).count();
    assert!(spread > all.len() / 2, "{spread}");
}

#[test]
fn spectra_that_a_delay_moves_over_an_end_are_missing_from_counts() {
    let scene = Scene::new(&[20.0], VoltageEncoding::ComplexF32, false);
    let mut correlator = scene.correlator(&scene.recordings(1.0), &options(&scene.header), 1);
    let all = drain(&mut correlator);
    let count =
        |integration: &Integration, baseline: usize| integration.counts[baseline * CHANNELS];
    // Antenna 2 takes samples 6 early at the start, antenna 1 some late at the end.
    let first: Vec<u64> = (0..6).map(|baseline| count(&all[0], baseline)).collect();
    assert_eq!(first, [10, 10, 10, 9, 9, 9]);
    let last: Vec<u64> = (0..6).map(|baseline| count(&all[all.len() - 1], baseline)).collect();
    assert_eq!(last, [10, 9, 9, 10, 9, 10]);
    assert!(all[1..all.len() - 1].iter().all(|own| own.counts.iter().all(|count| *count == 10)));
}

#[test]
fn eight_and_four_bits_keep_scale() {
    let scene = Scene::new(&[20.0], VoltageEncoding::Complex8, false);
    // Noise common to all antennas, plus as much independent noise of each.
    let noisy = |antenna: usize| {
        recording(&scene.header, antenna, scene.times, |_, time| {
            (noise(50, time) + noise(antenna, time)) * 20.0
        })
    };
    let recordings: Vec<Memory> = (0..3).map(noisy).collect();
    let whole = CorrelateOptions { integration_s: 30e-3, ..options(&scene.header) };
    let exact = drain(&mut scene.correlator(&recordings, &whole, 1)).remove(0);
    for (nbits, gains, off) in
        [(8, Gains::Auto, 0.002), (8, Gains::Fixed(4.0), 0.01), (4, Gains::Auto, 0.02)]
    {
        let options = CorrelateOptions { nbits, gains: gains.clone(), ..whole.clone() };
        let mut correlator = scene.correlator(&recordings, &options, 2);
        let found = drain(&mut correlator).remove(0);
        assert_eq!(exact.counts, found.counts);
        for (at, (x, y)) in exact.sums.iter().zip(&found.sums).enumerate() {
            let channel = at % CHANNELS;
            let power = exact.sums[channel].re.max(exact.sums[5 * CHANNELS + channel].re);
            assert!((x - y).norm() < off * power, "{nbits} {gains:?} {at} {x} {y}");
        }
        let summary = correlator.summary();
        let most = if nbits == 8 { 1e-4 } else { 0.03 };
        assert!(summary.antennas.iter().all(|own| own.saturated < most), "{summary:?}");
    }
}

#[test]
fn gains_of_a_table_stay_and_belong_to_the_sky() {
    for lower in [false, true] {
        let scene = Scene::new(&[21.0, 20.0], VoltageEncoding::ComplexF32, lower);
        let recordings = scene.recordings(1.0);
        let plain = options(&scene.header);
        let channels = 2 * CHANNELS;
        let gain = |at: usize| {
            Complex::from_polar(1.0 + 0.1 * (at % 7) as f32, 0.2 * (at % channels) as f32)
        };
        let gain = |at: usize| gain(at) * Complex::from_polar(1.0, (at / channels) as f32);
        let table = (0..3 * channels).map(gain).collect();
        let asked = CorrelateOptions { gains: Gains::Table(table), ..plain.clone() };
        let without = drain(&mut scene.correlator(&recordings, &plain, 1));
        let with = drain(&mut scene.correlator(&recordings, &asked, 1));
        for (a, b) in without.iter().zip(&with) {
            for (row, (i, j)) in [(0, 0), (1, 0), (1, 1), (2, 0), (2, 1), (2, 2)].iter().enumerate()
            {
                for channel in 0..channels {
                    let wide = |at: usize| {
                        let own = gain(at);
                        Complex::new(f64::from(own.re), f64::from(own.im))
                    };
                    let product =
                        wide(i * channels + channel) * wide(j * channels + channel).conj();
                    let at = row * channels + channel;
                    let off = (b.sums[at] - a.sums[at] * product).norm();
                    assert!(off < 1e-4 * (a.sums[at].norm() + 1.0), "{lower} {i} {j} {channel}");
                }
            }
        }
    }
}

#[test]
fn any_gulp_and_thread_count_gives_the_same_bits() {
    for (encoding, channelize) in [
        (VoltageEncoding::Complex8, true),
        (VoltageEncoding::Real8, true),
        (VoltageEncoding::Complex8, false),
    ] {
        let scene = Scene::new(&[21.0, 20.0], encoding, false);
        let mut recordings: Vec<Memory> = (0..3)
            .map(|antenna| {
                recording(&scene.header, antenna, 9000, |stream, time| {
                    noise(10 * antenna + stream, time) * 40.0
                })
            })
            .collect();
        recordings[1].flags = vec![
            Flag { streams: 0..1, start: 0, times: 700 },
            Flag { streams: 1..2, start: 3000, times: 40 },
        ];
        recordings[2].flags = vec![Flag { streams: 0..2, start: 0, times: 2500 }];
        for nbits in [8, 4, 32] {
            let asked = CorrelateOptions {
                nbits,
                integration_s: 1.1e-3,
                channelize: Some(channelize),
                ..options(&scene.header)
            };
            let run = |threads, gulp| {
                let asked = CorrelateOptions { gulp, ..asked.clone() };
                drain(&mut scene.correlator(&recordings, &asked, threads))
            };
            let whole = run(1, 0);
            assert!(whole.iter().any(|own| own.counts.contains(&0)));
            for (threads, gulp) in [(3, 0), (1, 50), (2, 64), (2, 333), (1, 1)] {
                assert!(run(threads, gulp) == whole, "{encoding:?} {nbits} {threads} {gulp}");
            }
        }
    }
}

#[test]
fn channelized_voltages_are_tracked_without_another_filter_bank() {
    // Tones in the middle of each recorded channel.
    let centres: Vec<f64> = (0..8).map(|k| 20.0 + 0.0625 * f64::from(k)).collect();
    for lower_sideband in [false, true] {
        let header = VoltageHeader {
            lower_sideband,
            tsamp_s: 16e-6,
            ..memory::header(&centres, VoltageEncoding::ComplexF32)
        };
        let delays: Vec<DelayPolynomial> = [[2e-6, 1e-7], [-31e-6, -2e-4], [40e-6, 1e-4]]
            .iter()
            .map(|own| polynomial(header.start, own))
            .collect();
        let recordings: Vec<Memory> = (0..3)
            .map(|antenna| {
                recording(&header, antenna, 6000, |stream, time| {
                    let middle_s = (time as f64 + 0.5) * 16e-6;
                    let late = header.centres_hz[stream] * delays[antenna].at(middle_s);
                    let turns = if lower_sideband { late } else { -late };
                    Complex::from_polar(100.0, TAU * turns.fract())
                })
            })
            .collect();
        let options = CorrelateOptions {
            channelize: Some(false),
            nbits: 32,
            integration_s: 1.6e-3,
            ..CorrelateOptions::new(8)
        };
        let (array, backend) = (array::array(3), Backend::best(2));
        let inputs = inputs(&recordings);
        let mut correlator =
            ArrayCorrelator::with_delays(&array, inputs, &delays, &options, &backend).unwrap();
        for integration in drain(&mut correlator) {
            for (sum, count) in integration.sums.iter().zip(&integration.counts) {
                let mean = sum / *count as f64;
                assert!(degrees(mean, Complex::ONE).abs() < 0.3, "{lower_sideband} {mean}");
                assert!((mean.norm() / 1e4 - 1.0).abs() < 0.01, "{mean}");
            }
        }
    }
}

#[test]
fn cables_are_taken_out_of_a_drift_scan() {
    let mut scene = Scene::new(&[20.0], VoltageEncoding::ComplexF32, false);
    let cables = [0.3e-6, -2.6e-6, 11.1e-6];
    let start = scene.header.start;
    scene.delays = cables.iter().map(|delay| polynomial(start, &[*delay])).collect();
    let recordings = scene.recordings(1.0);
    let options = CorrelateOptions { cable_delays_s: cables.to_vec(), ..options(&scene.header) };
    assert_eq!(options.phase_centre, PhaseCentre::Drift);
    let (array, backend) = (array::array(3), Backend::best(1));
    let mut correlator =
        ArrayCorrelator::new(&array, inputs(&recordings), &options, &backend).unwrap();
    for integration in drain(&mut correlator) {
        assert!(integration.sums.iter().all(|sum| sum.norm() > 0.0), "nothing was summed");
        let phases = integration.sums.iter().map(|sum| degrees(*sum, Complex::ONE));
        assert!(phases.fold(0.0_f64, |most, own| most.max(own.abs())) < 0.3);
    }
}

/// Of a day's observation of a source that is highest at both ends.
fn summary(dec_deg: f64) -> Summary {
    let known = memory::header(&[1400.0], VoltageEncoding::Complex8);
    let header = VoltageHeader { tsamp_s: 1.0, ..known };
    let array = array::array(2);
    let above = Sky::new(&array, Dut1::Table).unwrap().zenith(header.start).unwrap();
    let mut recordings: Vec<_> =
        (0..2).map(|i| array::recording(&header, i, 0, |_, _| Complex::ZERO)).collect();
    recordings.iter_mut().for_each(|memory| memory.header.times = Some(86_400));
    let name = "source".to_owned();
    let options = CorrelateOptions {
        phase_centre: PhaseCentre::Sidereal { ra_deg: above.ra_deg, dec_deg, name },
        integration_s: 1000.0,
        ..CorrelateOptions::new(16)
    };
    let inputs = array::inputs(&recordings);
    ArrayCorrelator::new(&array, inputs, &options, &Backend::best(1)).unwrap().summary()
}

#[test]
fn a_source_that_sets_and_rises_again_is_below_the_horizon() {
    for (dec_deg, is_below) in [(20.0, true), (80.0, false)] {
        let summary = summary(dec_deg);
        let (first, last) = summary.altitudes_deg.unwrap();
        assert!(first > 40.0 && last > 40.0, "{first} {last}");
        assert_eq!(summary.is_below_horizon(), is_below, "{dec_deg}");
    }
}
