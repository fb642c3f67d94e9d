//! Simulated voltages: the same bytes for any split of reads; noise, tones, gaps and faults; and dispersed pulses
//! against a second route: the transfer function written down in another form, taken out of the whole recording by one
//! Fourier transform.

use std::cell::RefCell;
use std::f64::consts::TAU;

use num_complex::Complex;
use rustfft::FftPlanner;
use sidereal::Error;
use sidereal::backend::threads::Threads;
use sidereal::io::voltages::{Flag, VoltageSource};
use sidereal::math::normal::cumulative;
use sidereal::simulate::voltages::{
    Options, Polarization, Pulse, PulseTruth, Tone, VoltageSimulator,
};
use sidereal::units::{DM_CONSTANT, dispersion_delay_s};
use sidereal::voltage::{TWO_BIT_HIGH, VoltageBlock, VoltageEncoding};

/// The whole recording in one block.
fn record(options: Options) -> VoltageBlock<'static> {
    let mut simulator = VoltageSimulator::new(options).unwrap();
    let mut block = simulator.header().block(simulator.header().times.unwrap() as usize);
    assert_eq!(simulator.read(&mut block).unwrap() as u64, simulator.header().times.unwrap());
    block
}

/// One stream's values.
fn stream(block: &VoltageBlock, stream: usize) -> Vec<Complex<f64>> {
    let voltages = block.voltages();
    (0..voltages.times()).map(|n| voltages.value(stream, n)).collect()
}

/// Rows of bytes read in blocks of the given lengths, cyclically; 0 skips 4 samples.
fn bytes_in_blocks(options: &Options, lengths: &[usize], threads: usize) -> Vec<Vec<u8>> {
    let mut simulator = VoltageSimulator::new(options.clone()).unwrap();
    simulator = simulator.with_threads(Threads::new(threads));
    let mut rows = vec![Vec::new(); options.streams()];
    let largest = lengths.iter().max().unwrap();
    for length in lengths.iter().cycle() {
        if *length == 0 {
            let times = simulator.skip(4).unwrap() as usize;
            let bytes = options.encoding.bytes(times);
            rows.iter_mut().for_each(|row| row.extend(std::iter::repeat_n(0xee, bytes)));
            continue;
        }
        let mut block = simulator.header().block(*length.min(largest));
        block.rows_mut().for_each(|row| row.fill(0xa5));
        if simulator.read(&mut block).unwrap() == 0 {
            break;
        }
        let voltages = block.voltages();
        rows.iter_mut().enumerate().for_each(|(s, row)| row.extend_from_slice(voltages.row(s)));
    }
    rows
}

#[test]
fn bytes_depend_on_neither_blocks_nor_threads() {
    for (number, encoding) in VoltageEncoding::ALL.into_iter().enumerate() {
        let mut options = Options::new(400e6, 2e6, 2, 150_000).encoding(encoding);
        if number % 2 == 1 {
            options = options.lower_sideband();
        }
        options.antennas = 2;
        options.seed = number as u64;
        options.tones = vec![Tone::new(399.7e6, 0.5)];
        options.pulses = vec![Pulse::new(10.0, 0.02, 1e-3, 40.0), Pulse::impulse(3.0, 0.03, 20.0)];
        options.gaps = vec![(70_000, 4000), (4, 8)];
        let whole = bytes_in_blocks(&options, &[150_000], 1);
        assert_eq!(whole.len(), 8);
        for (lengths, threads) in [(&[150_000][..], 3), (&[4, 9000, 1024, 68], 1)] {
            assert!(bytes_in_blocks(&options, lengths, threads) == whole, "{encoding:?}");
        }
        let skipped = bytes_in_blocks(&options, &[40_000, 0], 2);
        for (row, skipped) in whole.iter().zip(&skipped) {
            let differ = row.iter().zip(skipped).filter(|(a, b)| a != b && **b != 0xee).count();
            assert_eq!((row.len(), differ), (skipped.len(), 0), "{encoding:?}");
        }
    }
}

/// Mean square of Gaussian noise that is stored as the nearest level.
fn stored_square(encoding: VoltageEncoding, rms: f64) -> f64 {
    let high = f64::from(TWO_BIT_HIGH);
    let levels: Vec<f64> = match encoding.bits() {
        2 => vec![-high, -1.0, 1.0, high],
        4 => (-8..8).map(f64::from).collect(),
        8 => (-128..128).map(f64::from).collect(),
        10 | 16 => return rms * rms + 1.0 / 12.0,
        _ => return rms * rms,
    };
    let below = |i: usize| match i {
        0 => 0.0,
        i if i == levels.len() => 1.0,
        i => cumulative(0.5 * (levels[i - 1] + levels[i]) / rms),
    };
    levels.iter().enumerate().map(|(i, level)| level * level * (below(i + 1) - below(i))).sum()
}

#[test]
fn noise_has_its_rms_and_streams_are_independent() {
    for encoding in VoltageEncoding::ALL {
        let mut options = Options::new(1400e6, 8e6, 2, 40_000).encoding(encoding);
        options.antennas = 2;
        let block = record(options.clone());
        let streams: Vec<Vec<Complex<f64>>> = (0..8).map(|s| stream(&block, s)).collect();
        let numbers = if encoding.is_complex() { 2.0 } else { 1.0 };
        let expected = stored_square(encoding, options.rms);
        for (a, x) in streams.iter().enumerate() {
            let power = x.iter().map(Complex::norm_sqr).sum::<f64>() / (40e3 * numbers);
            assert!((power / expected - 1.0).abs() < 0.03, "{encoding:?} {power} {expected}");
            let mean = x.iter().sum::<Complex<f64>>().norm() / 40e3;
            assert!(mean < 0.02 * options.rms, "{encoding:?} {mean}");
            for y in &streams[..a] {
                let cross = |lag: usize| {
                    let products = x[lag..].iter().zip(y).map(|(x, y)| x * y.conj());
                    products.sum::<Complex<f64>>().norm() / (40e3 * numbers * power)
                };
                assert!((0..4).all(|lag| cross(lag) < 0.025), "{encoding:?} {a}");
            }
            let lagged = |lag: usize| {
                let products = x[lag..].iter().zip(x).map(|(x, y)| x * y.conj());
                products.sum::<Complex<f64>>().norm() / (40e3 * numbers * power)
            };
            assert!((1..6).all(|lag| lagged(lag) < 0.025), "{encoding:?} {a}");
        }
        let other = record(Options { seed: 1, ..options });
        assert!(other.voltages().row(0) != block.voltages().row(0));
    }
}

/// Amplitude and phase of a frequency in cycles a sample.
fn component(x: &[Complex<f64>], cycles: f64) -> Complex<f64> {
    let turn = |n: usize| Complex::cis(-TAU * (cycles * n as f64).fract());
    x.iter().enumerate().map(|(n, x)| x * turn(n)).sum::<Complex<f64>>() / x.len() as f64
}

#[test]
fn a_tone_lies_at_its_sky_frequency() {
    for (encoding, lower) in [
        (VoltageEncoding::ComplexF32, false),
        (VoltageEncoding::ComplexF32, true),
        (VoltageEncoding::RealF32, false),
        (VoltageEncoding::RealF32, true),
    ] {
        let mut options = Options::new(150e6, 4e6, 4, 1 << 16).encoding(encoding);
        if lower {
            options = options.lower_sideband();
        }
        let tone = Tone { second_ratio: 0.5, second_phase_rad: 0.7, ..Tone::new(149.2e6, 3.0) };
        options.tones = vec![Tone { phase_rad: 1.1, ..tone }];
        options.noise = false;
        options.rms = 2.0;
        // Channels of 1 MHz: 149.2 MHz lies in the one around 149.5 MHz.
        let channel = if lower { 2 } else { 1 };
        assert_eq!(options.centres_hz[channel], 149.5e6);
        let complex = encoding.is_complex();
        let zero = match (complex, lower) {
            (true, _) => 149.5e6,
            (false, false) => 149.0e6,
            (false, true) => 150.0e6,
        };
        let sign = if lower { -1.0 } else { 1.0 };
        let cycles = sign * (149.2e6 - zero) * options.tsamp_s();
        let block = record(options);
        // A cosine has half its amplitude at each of two frequencies.
        let amplitude = if complex { 6.0 } else { 3.0 };
        for (polarization, (ratio, phase)) in [(1.0, 1.1), (0.5, 1.8)].into_iter().enumerate() {
            let expected = Complex::from_polar(amplitude * ratio, sign * phase);
            let found = component(&stream(&block, 2 * channel + polarization), cycles);
            assert!((found - expected).norm() < 1e-3, "{encoding:?} {lower} {found} {expected}");
        }
        let other = stream(&block, 2 * ((channel + 1) % 4));
        assert!(other.iter().all(|x| x.norm_sqr() == 0.0));
    }
}

#[test]
fn gaps_are_flagged_and_zero() {
    for encoding in VoltageEncoding::ALL {
        let mut options = Options::new(1400e6, 1e6, 1, 4096).encoding(encoding);
        options.gaps = vec![(2000, 100), (8, 16)];
        let whole = record(Options { gaps: Vec::new(), ..options.clone() });
        let block = record(options.clone());
        let simulator = VoltageSimulator::new(options).unwrap();
        let flag = |start, times| Flag { streams: 0..2, start, times };
        assert_eq!(simulator.flags(), [flag(8, 16), flag(2000, 100)]);
        for stream in 0..2 {
            let (row, full) = (block.voltages().row(stream), whole.voltages().row(stream));
            let zero = |from, to| {
                let bytes = encoding.bytes(from)..encoding.bytes(to);
                row[bytes].iter().all(|byte| *byte == encoding.zero_byte())
            };
            assert!(zero(8, 24) && zero(2000, 2100), "{encoding:?}");
            let rest = encoding.bytes(24)..encoding.bytes(2000);
            assert_eq!(row[rest.clone()], full[rest]);
            assert_eq!(row[encoding.bytes(2100)..], full[encoding.bytes(2100)..]);
        }
    }
}

#[test]
fn what_cannot_be_made_is_an_error() {
    let fault = |change: fn(&mut Options)| {
        let mut options = Options::new(1400e6, 400e6, 1, 1 << 30);
        change(&mut options);
        match VoltageSimulator::new(options) {
            Err(Error::Parameter { name, rule, .. }) => format!("{name}: {rule}"),
            other => panic!("{other:?}"),
        }
    };
    let long = fault(|o| o.pulses = vec![Pulse::new(3000.0, 0.1, 1e-3, 20.0)]);
    assert!(long.contains("dm of a pulse") && long.contains("GiB"), "{long}");
    let many = fault(|o| o.pulses = vec![Pulse::new(200.0, 0.1, 1e-3, 20.0); 30]);
    assert!(many.contains("fewer pulses at a time"), "{many}");
    let tone = fault(|o| o.tones = vec![Tone::new(1700e6, 1.0)]);
    assert!(tone.contains("recorded channels"), "{tone}");
    let mut simulator = VoltageSimulator::new(Options::new(1400e6, 1e6, 2, 100)).unwrap();
    let mut block = VoltageBlock::new(VoltageEncoding::Complex8, 3, 100);
    assert!(simulator.read(&mut block).is_err());
    let mut block = VoltageBlock::new(VoltageEncoding::Real8, 4, 100);
    assert!(simulator.read(&mut block).is_err());
}

type Series = Vec<Complex<f64>>;

/// Every kind of recording: complex or real, upper or lower sideband.
const KINDS: [(VoltageEncoding, bool); 4] = [
    (VoltageEncoding::ComplexF32, false),
    (VoltageEncoding::ComplexF32, true),
    (VoltageEncoding::RealF32, false),
    (VoltageEncoding::RealF32, true),
];

/// 4 channels of 1 MHz around 350 MHz, 131 ms without noise.
fn options(encoding: VoltageEncoding, lower: bool) -> Options {
    let times = if encoding.is_complex() { 1 << 17 } else { 1 << 18 };
    let options = Options { noise: false, ..Options::new(350e6, 4e6, 4, times).encoding(encoding) };
    let options = if lower { options.lower_sideband() } else { options };
    Options { rms: 3.0, ..options }
}

fn streams(options: &Options) -> Vec<Series> {
    let mut simulator = VoltageSimulator::new(options.clone()).unwrap();
    let mut block = simulator.header().block(options.times as usize);
    simulator.read(&mut block).unwrap();
    let voltages = block.voltages();
    let series = |s| (0..voltages.times()).map(|n| voltages.value(s, n)).collect();
    (0..options.streams()).map(series).collect()
}

/// Phase in cycles that dispersion gives a sky frequency: minus the integral of the delay law from the
/// reference.
fn dispersion_cycles(dm: f64, frequency_hz: f64, reference_hz: f64) -> f64 {
    let (f, reference) = (frequency_hz / 1e6, reference_hz / 1e6);
    let integral = 1.0 / reference - 1.0 / f - (f - reference) / (reference * reference);
    -DM_CONSTANT * dm * integral * 1e6
}

/// The dedispersed analytic signal of one stream at the stream's sampling rate, as the sky has it.
fn dedispersed(options: &Options, channel: usize, x: &Series, dm: f64) -> Series {
    let (length, complex) = (x.len(), options.encoding.is_complex());
    // Plans are cached between calls.
    thread_local!(static PLANNER: RefCell<FftPlanner<f64>> = RefCell::new(FftPlanner::new()));
    let (forward, inverse) = PLANNER.with_borrow_mut(|planner| {
        (planner.plan_fft_forward(length), planner.plan_fft_inverse(length))
    });
    let mut spectrum = x.clone();
    forward.process(&mut spectrum);
    let (centre, half) = (options.centres_hz[channel], 0.5 * options.channel_width_hz);
    let zero = match (complex, options.lower_sideband) {
        (true, _) => centre,
        (false, false) => centre - half,
        (false, true) => centre + half,
    };
    for (number, value) in spectrum.iter_mut().enumerate() {
        let signed =
            if number < length / 2 { number as f64 } else { number as f64 - length as f64 };
        let frequency = signed / (length as f64 * options.tsamp_s());
        let sign = if options.lower_sideband { -1.0 } else { 1.0 };
        let cycles = dispersion_cycles(dm, zero + sign * frequency, options.reference_hz());
        *value *= Complex::cis(-TAU * sign * cycles.fract()) / length as f64;
        if !complex {
            *value *= if frequency > 0.0 { 2.0 } else { 0.0 };
        }
    }
    inverse.process(&mut spectrum);
    if options.lower_sideband {
        spectrum.iter_mut().for_each(|z| *z = z.conj());
    }
    spectrum
}

/// Power of samples of one channel width each: for real samples, mean of two of the analytic signal.
fn power(options: &Options, z: &Series) -> Vec<f64> {
    let each = if options.encoding.is_complex() { 1 } else { 2 };
    let mean = |z: &[Complex<f64>]| z.iter().map(Complex::norm_sqr).sum::<f64>() / each as f64;
    z.chunks_exact(each).map(mean).collect()
}

/// Centre and standard deviation of a power series, in samples from the first one's start.
fn moments(power: &[f64]) -> (f64, f64) {
    let sum: f64 = power.iter().sum();
    let mean = |f: &dyn Fn(f64) -> f64| {
        power.iter().enumerate().map(|(n, p)| p * f(n as f64 + 0.5)).sum::<f64>() / sum
    };
    let centre = mean(&|n| n);
    (centre, mean(&|n| (n - centre).powi(2)).sqrt())
}

/// The largest sum over a boxcar over the root of its length.
fn best_boxcar(power: &[f64], lengths: impl Iterator<Item = usize>) -> f64 {
    let best = |length: usize| {
        let sums = power.windows(length).map(|window| window.iter().sum::<f64>());
        sums.fold(0.0, f64::max) / (length as f64).sqrt()
    };
    lengths.map(best).fold(0.0, f64::max)
}

#[test]
fn a_pulse_of_noise_is_restored_to_its_time_width_and_strength() {
    for (encoding, lower) in KINDS {
        let (dm, time_s, width_s, snr) = (20.0, 0.030_000_3, 400e-6, 35.0);
        let mut options = options(encoding, lower);
        options.pulses = vec![Pulse::new(dm, time_s, width_s, snr)];
        let streams = streams(&options);
        let mut total = vec![0.0; 1 << 17];
        for (stream, x) in streams.iter().enumerate() {
            let z = dedispersed(&options, stream / 2, x, dm);
            let power = power(&options, &z);
            // All but the wide spread of the band's sharp edges.
            let lit = power[29_000..31_000].iter().sum::<f64>() / power.iter().sum::<f64>();
            assert!(lit > 0.9995, "{encoding:?} {stream} {lit}");
            // 400 samples of noise: the moments are as good as that allows.
            let (centre, sigma) = moments(&power[29_000..31_000]);
            assert!((centre - (time_s * 1e6 - 29e3)).abs() < 30.0, "{encoding:?} {centre}");
            assert!((sigma * 2.3548 / 400.0 - 1.0).abs() < 0.2, "{encoding:?} {sigma}");
            total.iter_mut().zip(power).for_each(|(total, power)| *total += power);
        }
        let height = best_boxcar(&total[28_000..32_000], (300..700).step_by(10));
        let found = height / (2.0 * options.rms.powi(2) * 8f64.sqrt());
        assert!((found / snr - 1.0).abs() < 0.03, "{encoding:?} {found}");
        let (centre, sigma) = moments(&total[29_000..31_000]);
        assert!((centre - (time_s * 1e6 - 29e3)).abs() < 12.0, "{encoding:?} {centre}");
        assert!((sigma * 2.3548 / 400.0 - 1.0).abs() < 0.08, "{encoding:?} {sigma}");
    }
}

#[test]
fn an_impulse_is_restored_to_one_sample_of_every_channel() {
    for (encoding, lower) in KINDS {
        // The centre of sample 40000 of 1 us, and a place between two samples.
        for (time_s, boxcar) in [(0.040_000_5, 1), (0.040_000_7, 1), (0.040_001, 2)] {
            let (dm, snr) = (30.0, 12.0);
            let mut options = options(encoding, lower);
            options.pulses = vec![Pulse::impulse(dm, time_s, snr)];
            let streams = streams(&options);
            let mut total = vec![0.0; 1 << 17];
            for (stream, x) in streams.iter().enumerate() {
                let undone = power(&options, &dedispersed(&options, stream / 2, x, dm));
                let before = power(&options, &dedispersed(&options, stream / 2, x, 0.0));
                let brightest = |power: &[f64]| power.iter().copied().fold(0.0, f64::max);
                assert!(brightest(&undone) > 300.0 * brightest(&before), "{encoding:?} {stream}");
                total.iter_mut().zip(undone).for_each(|(total, power)| *total += power);
            }
            let near = (time_s * 1e6) as usize - 20;
            let (centre, _) = moments(&total[near..near + 41]);
            let expected = time_s * 1e6 - near as f64;
            // The centroid of a critically sampled sinc^2 is off by sin(2 pi fraction) / 2 pi.
            assert!((centre - expected).abs() < 0.17, "{encoding:?} {centre} {expected}");
            if encoding.is_complex() {
                let height = best_boxcar(&total[near..near + 41], 1..4);
                let found = height / (2.0 * options.rms.powi(2) * 8f64.sqrt());
                assert!((found / snr - 1.0).abs() < 0.02, "{encoding:?} {time_s} {found}");
                let simulator = VoltageSimulator::new(options.clone()).unwrap();
                let length = simulator.truth().pulses[0].boxcar_s * 1e6;
                assert!((length - f64::from(boxcar)).abs() < 1e-9, "{length}");
            }
        }
    }
}

#[test]
fn narrow_pulses_of_noise_have_the_strength_asked_for() {
    for (encoding, lower) in [KINDS[0], KINDS[1]] {
        for width_s in [0.5e-6, 3.9e-6, 12e-6] {
            let (dm, snr) = (15.0, 25.0);
            let mut options = options(encoding, lower);
            let times: Vec<f64> = (0..20).map(|i| 0.01 + 0.0040013 * f64::from(i)).collect();
            options.pulses = times.iter().map(|t| Pulse::new(dm, *t, width_s, snr)).collect();
            let mut total = vec![0.0; 1 << 17];
            for (stream, x) in streams(&options).iter().enumerate() {
                let power = power(&options, &dedispersed(&options, stream / 2, x, dm));
                total.iter_mut().zip(power).for_each(|(total, power)| *total += power);
            }
            let simulator = VoltageSimulator::new(options.clone()).unwrap();
            // The boxcar that the mean pulse asks for, where it asks for it: what single pulses give
            // in it scatters around the S/N.
            let ratio = |(time_s, one): (&f64, &PulseTruth)| {
                let length = (one.boxcar_s * 1e6).round();
                let first = (time_s * 1e6 - 0.5 * length).round() as usize;
                let sum: f64 = total[first..first + length as usize].iter().sum();
                sum / (2.0 * options.rms.powi(2) * (8.0 * length).sqrt()) / snr
            };
            let ratios = times.iter().zip(&simulator.truth().pulses).map(ratio);
            let mean = ratios.sum::<f64>() / times.len() as f64;
            // Of few samples of noise, the part within the boxcar is a little less than the mean pulse's.
            assert!((mean - 1.0).abs() < 0.08, "{encoding:?} {width_s} {mean}");
        }
    }
}

#[test]
fn the_channels_of_an_impulse_are_in_phase() {
    // Dedispersed and mixed to the sky, each channel is a sinc whose top has the same phase, 0.
    for (encoding, lower) in KINDS {
        let (dm, time_s) = (30.0, 0.040_000_5);
        let mut options = options(encoding, lower);
        options.pulses = vec![Pulse::impulse(dm, time_s, 12.0)];
        for (stream, x) in streams(&options).iter().enumerate() {
            let z = dedispersed(&options, stream / 2, x, dm);
            let (top, value) =
                z.iter().enumerate().max_by(|a, b| a.1.norm().total_cmp(&b.1.norm())).unwrap();
            // The analytic signal of a real channel rotates by a quarter turn per sample around its middle.
            let half = 0.5 * options.channel_width_hz;
            let zero = options.centres_hz[stream / 2]
                + if encoding.is_complex() {
                    0.0
                } else if lower {
                    half
                } else {
                    -half
                };
            let at = (top as f64 + 0.5) * options.tsamp_s();
            let offset = options.centres_hz[stream / 2] * (time_s - at);
            let sky = value * Complex::cis(TAU * (zero * at + offset).fract());
            assert!(sky.arg().abs() < 0.02, "{encoding:?} {lower} {stream} {}", sky.arg());
        }
    }
}

#[test]
fn noise_and_pulse_together_have_the_signal_to_noise_asked_for() {
    let (dm, time_s, width_s, snr) = (20.0, 0.04, 300e-6, 60.0);
    let mut options = Options { noise: true, ..options(VoltageEncoding::ComplexF32, false) }
        .encoding(VoltageEncoding::Complex8);
    options.pulses = vec![Pulse::new(dm, time_s, width_s, snr)];
    let mut total = vec![0.0; 1 << 17];
    for (stream, x) in streams(&options).iter().enumerate() {
        let power = power(&options, &dedispersed(&options, stream / 2, x, dm));
        total.iter_mut().zip(power).for_each(|(total, power)| *total += power);
    }
    let simulator = VoltageSimulator::new(options).unwrap();
    let length = (simulator.truth().pulses[0].boxcar_s * 1e6).round() as usize;
    let sums: Vec<f64> = total.chunks_exact(length).map(|part| part.iter().sum()).collect();
    let quiet: Vec<f64> = sums[(60_000 / length)..].to_vec();
    let mean = quiet.iter().sum::<f64>() / quiet.len() as f64;
    let square = quiet.iter().map(|x| (x - mean).powi(2)).sum::<f64>();
    let sigma = (square / (quiet.len() - 1) as f64).sqrt();
    let peak = total[39_000..41_000].windows(length).map(|part| part.iter().sum::<f64>());
    let found = (peak.fold(0.0, f64::max) - mean) / sigma;
    // 190 boxcars give sigma to 5 %; the pulse's own noise adds a few units.
    assert!((found / snr - 1.0).abs() < 0.15, "{found}");
}

#[test]
fn the_delay_between_channels_follows_the_delay_law() {
    const FINE: usize = 32;
    const HOP: usize = 8;
    for lower in [false, true] {
        let (dm, time_s) = (25.0, 0.020);
        let mut options = options(VoltageEncoding::ComplexF32, lower);
        options.polarizations = 1;
        options.pulses = vec![Pulse::impulse(dm, time_s, 12.0)];
        let fft = FftPlanner::new().plan_fft_forward(FINE);
        for (channel, x) in streams(&options).iter().enumerate() {
            let mut rows = vec![Vec::new(); FINE];
            for window in x.windows(FINE).step_by(HOP) {
                let hann = |n: usize| (TAU / 2.0 * (n as f64 + 0.5) / FINE as f64).sin().powi(2);
                let mut z: Series = window.iter().enumerate().map(|(n, x)| x * hann(n)).collect();
                fft.process(&mut z);
                rows.iter_mut().zip(&z).for_each(|(row, z)| row.push(z.norm_sqr()));
            }
            for (bin, row) in rows.iter().enumerate() {
                let signed = if bin < FINE / 2 { bin as f64 } else { bin as f64 - FINE as f64 };
                // At the edge of a recorded channel the bin aliases.
                if signed.abs() > FINE as f64 / 2.0 - 3.0 {
                    continue;
                }
                let sign = if lower { -1.0 } else { 1.0 };
                let offset = sign * signed * options.channel_width_hz / FINE as f64;
                let frequency = options.centres_hz[channel] + offset;
                let law = dispersion_delay_s(dm, frequency, options.reference_hz(), DM_CONSTANT);
                let (centre, _) = moments(row);
                let middle = (centre - 0.5) * HOP as f64 + 0.5 * FINE as f64;
                let found = middle * options.tsamp_s() - time_s;
                // A sweep of 4 ms a channel, known to a few samples.
                assert!((found - law).abs() < 5e-6, "{channel} {bin} {found} {law}");
            }
        }
    }
}

#[test]
fn a_pulse_has_the_stokes_parameters_asked_for() {
    let polarization = Polarization { linear: 0.6, angle_rad: 0.4, circular: -0.5 };
    let (q, u, v) = (0.6 * 0.8f64.cos(), 0.6 * 0.8f64.sin(), -0.5);
    for (lower, circular) in [(false, false), (true, false), (false, true), (true, true)] {
        let mut options = options(VoltageEncoding::ComplexF32, lower);
        options.circular = circular;
        options.pulses = vec![Pulse { polarization, ..Pulse::new(5.0, 0.05, 4e-3, 30.0) }];
        let (mut first, mut second) = (0.0, 0.0);
        let mut cross = Complex::new(0.0, 0.0);
        for pair in streams(&options).chunks_exact(2) {
            first += pair[0].iter().map(Complex::norm_sqr).sum::<f64>();
            second += pair[1].iter().map(Complex::norm_sqr).sum::<f64>();
            cross += pair[0].iter().zip(&pair[1]).map(|(x, y)| x * y.conj()).sum::<Complex<f64>>();
        }
        // In a lower sideband the voltages are conjugate.
        let cross = 2.0 * if lower { cross.conj() } else { cross } / (first + second);
        let difference = (first - second) / (first + second);
        let found = if circular {
            [cross.re, cross.im, difference]
        } else {
            [difference, cross.re, cross.im]
        };
        let off = [found[0] - q, found[1] - u, found[2] - v];
        assert!(off.iter().all(|off| off.abs() < 0.03), "{lower} {circular} {found:?}");
    }
}
