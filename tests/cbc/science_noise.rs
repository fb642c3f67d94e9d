//! Simulated noise through the whole chain, from strain to SNR: its distribution, and the rate of chance triggers.
//!
//! Verification method: quadratures of unit variance and Rayleigh's law; peaks of a matched filter by Fourier
//! transforms; the rate at which a narrow-band envelope
//! crosses a level (Rice 1945, Bell System Technical Journal 24, 46).

use crate::binaries::{START, bank_options, design_curve, record, search_options};
use num_complex::Complex;
use sidereal::backend::Backend;
use sidereal::backend::threads::Threads;
use sidereal::geometry::Interferometer;
use sidereal::pipeline::cbc::{ChirpDetector, DetectorOptions, Piece, Recording, Source, design};
use sidereal::simulate::strain::StrainOptions;
use sidereal::spiir::bank::Bank;
use sidereal::spiir::matched_whitened;
use sidereal::spiir::trigger::Trigger;
use sidereal::spiir::whiten::{Average, Method, WelchOptions, welch};
use sidereal::strain::Binary;
use sidereal::waveform::{Approximant, InspiralOptions, inspiral};

const RATE_HZ: u32 = 2048;
const LENGTH_S: u64 = 300;
/// Left out at both ends: whitening and filters begin there.
const ENDS_S: usize = 12;
const THRESHOLD: f32 = 3.5;
const WINDOW_S: f64 = 0.05;

/// Output of the chain for noise.
struct Run {
    bank: Bank,
    whitened: Vec<f32>,
    /// One row a template.
    z: Vec<Vec<Complex<f32>>>,
    triggers: Vec<Trigger>,
}

fn noise() -> Recording {
    let place = Interferometer::by_name("L1").expect("known");
    let times = LENGTH_S * u64::from(RATE_HZ);
    let mut options = StrainOptions::new(&[place], &design_curve(RATE_HZ), START, RATE_HZ, times);
    options.seed = 77;
    record(&options)
}

fn run(method: Method) -> Run {
    let recording = noise();
    let average = WelchOptions { average: Average::Mean, ..WelchOptions::default() };
    let psd = welch(&recording.samples, &recording.valid, RATE_HZ, &average).expect("a spectrum");
    let wave = |masses: (f64, f64)| {
        let binary = Binary::of_masses(masses.0, masses.1);
        let approximant = Approximant::usual(&binary);
        let defaults = InspiralOptions::default();
        let options = InspiralOptions { approximant, f_low_hz: 40.0, rate_hz: RATE_HZ, ..defaults };
        inspiral(&binary, &options).expect("a wave")
    };
    let waveforms = [(30.0, 30.0), (12.0, 10.0), (6.0, 5.0)].map(wave).to_vec();
    let source = Source { waveforms, options: bank_options() };
    let bank = design(&source, &psd, &Threads::new(2)).expect("a bank");
    let options = DetectorOptions {
        whitening: search_options(RATE_HZ, method).whitening.options(RATE_HZ, &psd, 40.0),
        threshold: THRESHOLD,
        window_s: WINDOW_S,
        gate_pad_s: 0.25,
    };
    let mut chain = ChirpDetector::new(START, &bank, &options, &Backend::best(1)).expect("a chain");
    let mut whitened = Vec::new();
    let mut z = vec![Vec::new(); bank.templates.len()];
    let mut keep = |piece: Piece<'_>| match piece {
        Piece::Whitened { samples, .. } => whitened.extend_from_slice(samples),
        Piece::Ratios { z: rows, stride, times, .. } => {
            for (row, made) in z.iter_mut().zip(rows.chunks(stride)) {
                row.extend_from_slice(&made[..times]);
            }
        }
    };
    chain.run(&recording.samples, &recording.valid, &mut keep).expect("run");
    chain.flush(&mut keep).expect("flushed");
    let triggers = chain.triggers().to_vec();
    Run { bank, whitened, z, triggers }
}

fn inner<T>(values: &[T]) -> &[T] {
    let ends = ENDS_S * RATE_HZ as usize;
    &values[ends..values.len() - ends]
}

/// The largest distance of the cumulative distribution of `|z|` from Rayleigh's.
fn distance_from_rayleigh(z: &[Complex<f32>], step: usize) -> f64 {
    let mut sizes: Vec<f64> = z.iter().step_by(step).map(|z| f64::from(z.norm())).collect();
    sizes.sort_by(f64::total_cmp);
    let count = sizes.len() as f64;
    let law = |size: f64| 1.0 - (-0.5 * size * size).exp();
    let part = |(index, size): (usize, &f64)| {
        (law(*size) - index as f64 / count)
            .abs()
            .max((law(*size) - (index + 1) as f64 / count).abs())
    };
    sizes.iter().enumerate().map(part).fold(0.0, f64::max)
}

/// Samples above the threshold that are the maximum within a window on either side.
fn peaks(z: &[Complex<f32>], window: usize) -> usize {
    let is_peak = |at: &usize| {
        let around = &z[at.saturating_sub(window)..(at + window + 1).min(z.len())];
        z[*at].norm() >= THRESHOLD && around.iter().all(|other| other.norm() <= z[*at].norm())
    };
    (0..z.len()).filter(is_peak).count()
}

fn check(method: Method) {
    let Run { bank, whitened, z, triggers } = run(method);
    let power: f64 = inner(&whitened).iter().map(|x| f64::from(*x).powi(2)).sum();
    eprintln!(
        "{method:?}: variance of whitened samples {:.4}",
        power / inner(&whitened).len() as f64
    );
    for (index, (row, template)) in z.iter().zip(&bank.templates).enumerate() {
        let row = inner(row);
        let count = row.len() as f64;
        let rms = |of: fn(&Complex<f32>) -> f32| {
            (row.iter().map(|z| f64::from(of(z)).powi(2)).sum::<f64>() / count).sqrt()
        };
        let quadratures = [rms(|z| z.re), rms(|z| z.im)];
        // Samples 50 ms apart are nearly independent: the distance of 5500 of them exceeds 0.022 once in a hundred
        // times.
        let distance = distance_from_rayleigh(row, RATE_HZ as usize / 20);
        let next = template.autocorrelation[template.autocorrelation.len() / 2 + 1];
        let spread = (1.0 - f64::from(next.norm_sqr())).sqrt() * f64::from(RATE_HZ);
        let level = f64::from(THRESHOLD);
        let crossings =
            spread / std::f64::consts::TAU.sqrt() * level * (-0.5 * level * level).exp();
        // Of crossings closer than the window only the greatest counts.
        let crowd = 2.0 * WINDOW_S * crossings;
        let expected = crossings * (1.0 - (-crowd).exp()) / crowd * count / f64::from(RATE_HZ);
        let ends =
            (ENDS_S as u64 * u64::from(RATE_HZ), (LENGTH_S - ENDS_S as u64) * u64::from(RATE_HZ));
        let own = triggers.iter().filter(|one| one.template == index as u32);
        let found = own.filter(|one| (ends.0..ends.1).contains(&one.sample)).count() as f64;
        let truth = matched_whitened(&whitened, &template.whitened).expect("filtered");
        let peaks = peaks(inner(&truth), (WINDOW_S * f64::from(RATE_HZ)) as usize) as f64;
        let overlap = overlap(row, inner(&truth));
        eprintln!(
            "{}: quadratures {:.4} {:.4}, distance {distance:.4}, triggers {found}, peaks {peaks}, chance {expected:.0}, \
             overlap {overlap:.4} for a match of {:.4}",
            template.name, quadratures[0], quadratures[1], template.fit
        );
        // The SNR of a short template has some 25 independent values per second: 1 % of scatter in 300 s.
        for rms in quadratures {
            assert!((rms - 1.0).abs() < 0.03, "{}: {rms}", template.name);
        }
        assert!(distance < 0.03, "{}: {distance}", template.name);
        assert!(
            (found - peaks).abs() < 0.02 * peaks + 2.0 * peaks.sqrt(),
            "{}: {found} triggers, {peaks} peaks of the matched filter",
            template.name
        );
        // Rice's crossings come in groups where the band is wide, so chance makes at most that many.
        assert!(
            found > 0.5 * expected && found < 1.1 * expected + 4.0 * expected.sqrt(),
            "{}: {found} triggers of {expected}",
            template.name
        );
        assert!(overlap > template.fit - 0.004, "{}: {overlap}", template.name);
    }
}

fn overlap(a: &[Complex<f32>], b: &[Complex<f32>]) -> f64 {
    let wide = |z: &Complex<f32>| Complex::new(f64::from(z.re), f64::from(z.im));
    let product: Complex<f64> = a.iter().zip(b).map(|(a, b)| wide(a) * wide(b).conj()).sum();
    let power = |z: &[Complex<f32>]| z.iter().map(|z| wide(z).norm_sqr()).sum::<f64>();
    product.norm() / (power(a) * power(b)).sqrt()
}

#[test]
fn noise_alone_follows_rayleighs_law_and_makes_as_many_triggers_as_chance() {
    check(Method::Overlap { fft_s: 8.0 });
}

#[test]
fn noise_alone_follows_rayleighs_law_with_a_whitener_of_minimum_phase() {
    check(Method::MinimumPhase { taps_s: 4.0 });
}
