//! Simulated strain: noise spectrum, injections, and invariance to the split of the stream.

use std::f64::consts::{PI, TAU};
use std::sync::Arc;

use num_complex::Complex64;
use rustfft::FftPlanner;
use sidereal::geometry::Interferometer;
use sidereal::io::strain::StrainSource;
use sidereal::math::PowerSpectrum;
use sidereal::simulate::strain::{
    Flagged, Glitch, Injection, Quality, Simulation, Source, StrainOptions, StrainSimulator,
};
use sidereal::strain::{Binary, Waveform};
use sidereal::units::Gps;
use sidereal::waveform::InspiralOptions;

const START: Gps = Gps { ns: 1_126_259_446_000_000_000 };

/// A steep wall, a bucket, a rise; per Hz.
fn density(f: f64) -> f64 {
    1e-46 * ((30.0 / f).powi(6) + 1.0 + (f / 300.0).powi(2))
}

fn shaped(rate_hz: u32) -> PowerSpectrum {
    let bins = (0..=2 * rate_hz).map(|bin| density((f64::from(bin) * 0.25).max(5.0)));
    PowerSpectrum::new(0.25, bins.collect()).unwrap()
}

fn flat(level: f64, rate_hz: u32) -> PowerSpectrum {
    PowerSpectrum::new(f64::from(rate_hz) / 2.0, vec![level; 2]).unwrap()
}

fn options(names: &[&str], psd: &PowerSpectrum, rate_hz: u32, seconds: u64) -> StrainOptions {
    let detectors: Vec<_> =
        names.iter().map(|name| Interferometer::by_name(name).unwrap()).collect();
    StrainOptions::new(&detectors, psd, START, rate_hz, seconds * u64::from(rate_hz))
}

fn read(
    simulator: &mut StrainSimulator,
    mut block: impl FnMut(usize) -> usize,
) -> (Vec<f64>, Vec<bool>) {
    let (mut samples, mut valid) = (Vec::new(), Vec::new());
    loop {
        let times = block(samples.len());
        let mut part = vec![f64::NAN; times];
        let mut good = vec![false; times];
        let made = simulator.read(&mut part, &mut good).unwrap();
        samples.extend_from_slice(&part[..made]);
        valid.extend_from_slice(&good[..made]);
        if made == 0 {
            return (samples, valid);
        }
    }
}

fn whole(options: &StrainOptions, detector: usize) -> Vec<f64> {
    let mut simulation = Simulation::new(options).unwrap();
    read(&mut simulation.detectors[detector], |_| 1 << 16).0
}

/// A short packet `exp(-(t / tau)^2) exp(-2 pi i f t)` that peaks at its middle sample.
fn packet(t: f64) -> Complex64 {
    1e-21 * (-(t / 0.02).powi(2)).exp() * Complex64::cis(-TAU * 150.0 * t)
}

fn packet_source(rate_hz: u32) -> Source {
    let half = (0.12 * f64::from(rate_hz)) as i32;
    let samples = (-half..=half).map(|n| packet(f64::from(n) / f64::from(rate_hz))).collect();
    Source::Waveform(Arc::new(Waveform::new("packet", None, rate_hz, samples, 10.0).unwrap()))
}

fn injection(source: Source, after_s: f64) -> Injection {
    Injection {
        source,
        distance_mpc: 25.0,
        ra_rad: 1.95,
        dec_rad: -1.27,
        inclination_rad: 0.7,
        polarization_rad: 0.82,
        phase_rad: 0.4,
        gps: START.plus_s(after_s),
    }
}

/// Welch's mean of periodograms of 4 s under a Hann window, by half overlapping.
fn welch(samples: &[f64], rate_hz: u32) -> Vec<f64> {
    let length = 4 * rate_hz as usize;
    let fft = FftPlanner::new().plan_fft_forward(length);
    let window: Vec<f64> =
        (0..length).map(|n| (PI * n as f64 / length as f64).sin().powi(2)).collect();
    let power: f64 = window.iter().map(|w| w * w).sum();
    let mut sums = vec![0.0; length / 2 + 1];
    let starts: Vec<usize> = (0..=samples.len() - length).step_by(length / 2).collect();
    for start in &starts {
        let piece = samples[*start..].iter().zip(&window);
        let mut bins: Vec<Complex64> = piece.map(|(x, w)| Complex64::new(x * w, 0.0)).collect();
        fft.process(&mut bins);
        sums.iter_mut().zip(&bins).for_each(|(sum, bin)| *sum += bin.norm_sqr());
    }
    let scale = 2.0 / (f64::from(rate_hz) * power * starts.len() as f64);
    sums.iter().map(|sum| sum * scale).collect()
}

#[test]
fn the_noise_has_the_spectrum_that_was_asked_for() {
    let rate_hz = 1024;
    let mut options = options(&["H1", "L1"], &shaped(rate_hz), rate_hz, 600);
    options.seed = 5;
    let found = welch(&whole(&options, 0), rate_hz);
    let mut low = 10.0;
    while low < 0.9 * 512.0 {
        let high = (low * 1.3_f64).max(low + 10.0).min(0.9 * 512.0 + 1.0);
        let bins = (low * 4.0) as usize..(high * 4.0) as usize;
        let ratios = bins.clone().map(|bin| found[bin] / density(bin as f64 * 0.25));
        let mean = ratios.sum::<f64>() / bins.len() as f64;
        assert!((mean - 1.0).abs() < 0.03, "{low} to {high} Hz: {mean}");
        low = high;
    }
    // No power remains far below the lowest frequency.
    assert!(found[2..8].iter().all(|power| *power < 1e-3 * density(8.0)));
}

#[test]
fn detectors_are_independent_and_keep_their_noise() {
    let psd = flat(2e-46 / 256.0, 256);
    let both = options(&["H1", "L1"], &psd, 256, 400);
    let (h1, l1) = (whole(&both, 0), whole(&both, 1));
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>() * 1e46;
    let samples = h1.len() as f64;
    // Without the power below the lowest frequency: 6 Hz of 128, and half of 4 Hz.
    assert!((dot(&h1, &h1) / samples - 0.953).abs() < 0.02, "{}", dot(&h1, &h1) / samples);
    assert!((dot(&h1, &l1) / samples).abs() < 4.5 / samples.sqrt());
    assert_eq!(whole(&options(&["L1"], &psd, 256, 400), 0), l1);
    let fourth = h1.iter().map(|x| (x * 1e23).powi(4)).sum::<f64>() / samples;
    let second = dot(&h1, &h1) / samples;
    assert!((fourth / second.powi(2) - 3.0).abs() < 0.1, "{fourth}");
    let mut other = both;
    other.seed = 1;
    assert_ne!(whole(&other, 0)[..8], h1[..8]);
}

#[test]
fn any_split_gives_the_same_samples() {
    let rate_hz = 512;
    let mut options = options(&["H1", "V1"], &shaped(rate_hz), rate_hz, 50);
    let wave = InspiralOptions { f_low_hz: 30.0, ..Default::default() };
    let binary = Source::Inspiral(Binary::of_masses(10.0, 10.0), wave);
    options.injections = vec![injection(packet_source(rate_hz), 20.1), injection(binary, 31.0)];
    options.detectors[1].glitches =
        vec![Glitch { gps: START.plus_s(24.5), snr: 40.0, frequency_hz: 60.0, q: 9.0 }];
    options.detectors[1].flagged =
        vec![Flagged { first_s: 33, end_s: 35, quality: Quality::Missing }];
    for detector in 0..2 {
        let one = Simulation::new(&options)
            .map(|mut made| read(&mut made.detectors[detector], |_| 1 << 16));
        let (samples, valid) = one.unwrap();
        assert_eq!(samples.len(), 50 * 512);
        let odd = |length: usize| 1 + (length * 7919) % 1531;
        let mut again = Simulation::new(&options).unwrap();
        let (others, other_valid) = read(&mut again.detectors[detector], odd);
        assert_eq!(valid, other_valid);
        assert!(samples.iter().zip(&others).all(|(a, b)| a.to_bits() == b.to_bits()));
        let bad = if detector == 1 { 2 * 512 } else { 0 };
        assert_eq!(valid.iter().filter(|valid| !**valid).count(), bad);
    }
}

#[test]
fn an_injection_arrives_when_and_as_strong_as_the_geometry_says() {
    let rate_hz = 4096;
    let mut options = options(&["H1", "L1", "V1", "K1"], &flat(1e-46, rate_hz), rate_hz, 8);
    options.noise = false;
    options.lowest_hz = 0.0;
    options.injections = vec![injection(packet_source(rate_hz), 3.123_456_7)];
    let truth = Simulation::new(&options).unwrap().truth;
    let gps = options.injections[0].gps;
    for (number, detector) in truth.injections[0].detectors.iter().enumerate() {
        let site = Interferometer::by_name(detector.name).unwrap();
        let (plus, cross) = site.antenna_pattern(1.95, -1.27, 0.82, gps);
        assert_eq!(detector.patterns, (plus, cross));
        let arrival_s = 3.123_456_7 + site.delay_from_centre_s(1.95, -1.27, gps);
        assert!((detector.gps.seconds_since(START) - arrival_s).abs() < 2e-9);
        let cos_i = 0.7_f64.cos();
        let (along_plus, along_cross) = (plus * (1.0 + cos_i * cos_i) / 2.0, cross * cos_i);
        let samples = whole(&options, number);
        let mut power = 0.0;
        for (n, x) in samples.iter().enumerate() {
            let h = packet(n as f64 / 4096.0 - arrival_s) * Complex64::cis(-0.8) * (10.0 / 25.0);
            let expected = along_plus * h.re - along_cross * h.im;
            assert!((x - expected).abs() < 1e-26, "{} {n}: {x} {expected}", detector.name);
            power += x * x;
        }
        let snr = (2.0 * power / 4096.0 / 1e-46).sqrt();
        assert!((detector.snr / snr - 1.0).abs() < 1e-6, "{} {snr}", detector.snr);
        let distance = 25.0 / along_plus.hypot(along_cross);
        assert!((detector.effective_distance_mpc / distance - 1.0).abs() < 1e-12);
        // A filter with h+ finds a wave phase-rotated by theta at the phase -theta.
        let theta = along_cross.atan2(along_plus) - 0.8;
        let off = (detector.phase_rad + theta).rem_euclid(TAU);
        assert!(off.min(TAU - off) < 1e-6, "{off}");
        assert_eq!(detector.cut_s, (0.0, 0.0));
    }
    let total: f64 = truth.injections[0].detectors.iter().map(|one| one.snr.powi(2)).sum();
    assert!((truth.injections[0].network_snr - total.sqrt()).abs() < 1e-9);
}

#[test]
fn an_inspiral_ends_at_its_arrival_and_is_cut_at_the_data_s_beginning() {
    let rate_hz = 4096;
    let mut options = options(&["H1", "L1"], &flat(1e-46, rate_hz), rate_hz, 16);
    options.noise = false;
    let wave = InspiralOptions { f_low_hz: 25.0, ..Default::default() };
    let source = Source::Inspiral(Binary::of_masses(1.4, 1.4), wave);
    options.injections = vec![Injection { inclination_rad: 0.0, ..injection(source, 12.0) }];
    let truth = Simulation::new(&options).unwrap().truth;
    let event = &truth.injections[0];
    assert_eq!(event.binary, Some(Binary::of_masses(1.4, 1.4)));
    assert!(event.duration_s > 50.0);
    let snrs: Vec<f64> = event.detectors.iter().map(|one| one.snr).collect();
    for (number, detector) in event.detectors.iter().enumerate() {
        let arrival = detector.gps.seconds_since(START) * 4096.0;
        let samples = whole(&options, number);
        // After its peak only the tail of the sinc remains.
        let greatest =
            (0..samples.len()).max_by(|a, b| samples[*a].abs().total_cmp(&samples[*b].abs()));
        assert!((greatest.unwrap() as f64 - arrival).abs() < 8.0, "{greatest:?} {arrival}");
        let last = samples.iter().rposition(|x| *x != 0.0).unwrap();
        assert!((last as f64 - arrival - 96.0).abs() < 2.0, "{last} {arrival}");
        assert!((detector.cut_s.0 - (event.duration_s - arrival / 4096.0)).abs() < 1e-3);
        assert!(samples[0].abs() > 1e-27 && detector.cut_s.1 == 0.0);
        let strongest = 25.0 / detector.effective_distance_mpc;
        assert!((0.0..=1.0).contains(&strongest));
    }
    options.injections[0].distance_mpc = 50.0;
    let far = Simulation::new(&options).unwrap().truth;
    for (snr, detector) in snrs.iter().zip(&far.injections[0].detectors) {
        assert!((snr / detector.snr - 2.0).abs() < 1e-9);
    }
}

#[test]
fn a_glitch_has_its_snr_and_flags_spare_what_is_good() {
    let rate_hz = 1024;
    let mut options = options(&["H1", "L1"], &flat(1e-46, rate_hz), rate_hz, 10);
    options.noise = false;
    options.detectors[0].glitches =
        vec![Glitch { gps: START.plus_s(4.5), snr: 30.0, frequency_hz: 150.0, q: 9.0 }];
    options.detectors[0].flagged = vec![
        Flagged { first_s: 7, end_s: 8, quality: Quality::Bad },
        Flagged { first_s: 8, end_s: 9, quality: Quality::Missing },
    ];
    let samples = whole(&options, 0);
    let snr = (2.0 * samples.iter().map(|x| x * x).sum::<f64>() / 1024.0 / 1e-46).sqrt();
    assert!((snr - 30.0).abs() < 1e-3, "{snr}");
    let energy = |range: std::ops::Range<usize>| samples[range].iter().map(|x| x * x).sum::<f64>();
    assert!(energy(4 * 1024..5 * 1024) > 0.999_999 * energy(0..10 * 1024));
    assert!(whole(&options, 1).iter().all(|x| *x == 0.0));
    options.noise = true;
    let mut simulation = Simulation::new(&options).unwrap();
    let mut recorded = vec![0.0; 10 * 1024];
    assert_eq!(simulation.detectors[0].read_recorded(&mut recorded).unwrap(), 10 * 1024);
    assert!(recorded[7 * 1024..8 * 1024].iter().all(|x| *x != 0.0));
    assert!(recorded[8 * 1024..9 * 1024].iter().all(|x| x.is_nan()));
    let samples = whole(&options, 0);
    assert_eq!(samples[..7 * 1024], recorded[..7 * 1024]);
    assert!(samples[7 * 1024..9 * 1024].iter().all(|x| *x == 0.0));
}

#[test]
fn nonsense_is_refused() {
    let rate_hz = 1024;
    let good = options(&["H1"], &flat(1e-46, rate_hz), rate_hz, 10);
    let refused = |change: &dyn Fn(&mut StrainOptions), word: &str| {
        let mut bad = good.clone();
        bad.injections = vec![injection(packet_source(rate_hz), 5.0)];
        assert!(Simulation::new(&bad).is_ok());
        change(&mut bad);
        let text = Simulation::new(&bad).err().map(|error| error.to_string()).unwrap_or_default();
        assert!(text.contains(word), "{word}: {text}");
    };
    refused(&|bad| bad.injections[0].distance_mpc = 0.0, "distance");
    refused(&|bad| bad.injections[0].distance_mpc = f64::NAN, "distance");
    refused(&|bad| bad.injections[0].dec_rad = 45.0, "dec");
    refused(&|bad| bad.injections[0].gps = START.plus_s(10.0), "1126259446 to 1126259456");
    refused(&|bad| bad.injections[0].source = packet_source(2048), "rate of the waveform");
    refused(&|bad| bad.detectors.clear(), "detectors");
    refused(&|bad| bad.detectors.push(bad.detectors[0].clone()), "H1");
    refused(&|bad| bad.rate_hz = 0, "rate_hz");
    refused(&|bad| bad.times = 0, "samples");
    refused(&|bad| bad.detectors[0].psd = flat(1e-46, 512), "Nyquist");
    let heavy = || Source::Inspiral(Binary::of_masses(500.0, 500.0), InspiralOptions::default());
    refused(&|bad| bad.injections[0].source = heavy(), "no inspiral in band");
    let glitch = Glitch { gps: START, snr: 8.0, frequency_hz: 600.0, q: 9.0 };
    refused(&|bad| bad.detectors[0].glitches.push(glitch), "frequency of a glitch");
    let flagged = Flagged { first_s: 9, end_s: 11, quality: Quality::Bad };
    refused(&|bad| bad.detectors[0].flagged.push(flagged), "9:11");
}
