//! Whitening: unit variance and flat spectra, latency, splits, gaps and gates; GW150914's recordings.

use crate::coloured::{band_mean, coloured_noise, density, gaussian, spectrum};
use crate::common;
use crate::whitened::{whiten, whole};
use sidereal::Error;
use sidereal::backend::threads::Threads;
use sidereal::io::strain::{OpenOptions, open};
use sidereal::math::PowerSpectrum;
use sidereal::spiir::whiten::{
    Average, GateOptions, Method, Options, Psd, RunningOptions, RunningPsd, Taper, WelchOptions,
    Whitener, welch,
};

const RATE: u32 = 1024;

fn methods() -> [Options; 2] {
    let fixed = Psd::Fixed(spectrum(RATE, 4));
    let overlap = Options { f_low_hz: 20.0, ..Options::new(RATE, fixed.clone()) };
    let causal = Options { f_low_hz: 20.0, ..Options::low_latency(RATE, fixed) };
    [overlap, causal]
}

fn variance(samples: &[f32]) -> f64 {
    samples.iter().map(|sample| f64::from(*sample).powi(2)).sum::<f64>() / samples.len() as f64
}

#[test]
fn coloured_noise_comes_out_white_and_gaussian() {
    let strain = coloured_noise(RATE, 512, 1);
    let valid = vec![true; strain.len()];
    for options in methods() {
        let (output, flags) = whole(options.clone(), &strain, &valid);
        let inside = 5 * RATE as usize..output.len() - 5 * RATE as usize;
        assert!(flags[inside.clone()].iter().all(|flag| *flag));
        let output = &output[inside];
        let wide: Vec<f64> = output.iter().map(|sample| f64::from(*sample)).collect();
        let mean = WelchOptions { average: Average::Mean, ..WelchOptions::default() };
        let found = welch(&wide, &vec![true; wide.len()], RATE, &mean).expect("a spectrum");
        // White: 2 / rate. Ten bands; the line at 60 Hz is in the first.
        for band in 0..10 {
            let low = 22.0 + f64::from(band) * 48.0;
            let level = band_mean(&found, low, low + 48.0) * f64::from(RATE) / 2.0;
            assert!((level - 1.0).abs() < 0.02, "{:?} {low} Hz: {level}", options.method);
        }
        assert!(band_mean(&found, 0.0, 14.0) * f64::from(RATE) / 2.0 < 1e-3);
        // The part of the band that passes: less 15 Hz and half the wall.
        let variance = variance(output);
        assert!((variance - (1.0 - 17.8 / 512.0)).abs() < 0.01, "{variance}");
        let fourth = wide.iter().map(|x| x.powi(4)).sum::<f64>() / wide.len() as f64;
        let kurtosis = fourth / (variance * variance);
        assert!((kurtosis - 3.0).abs() < 0.04, "{kurtosis}");
        let beyond = wide.iter().filter(|x| x.abs() > variance.sqrt()).count() as f64;
        assert!((beyond / wide.len() as f64 - 0.3173).abs() < 0.005);
    }
}

#[test]
fn an_impulse_comes_out_as_the_kernel() {
    for options in methods() {
        let options = Options { taper: Taper { after_s: 0.0, ..options.taper }, ..options };
        let mut whitener = Whitener::new(options.clone()).expect("options that hold");
        let at = 6000;
        let mut strain = vec![0.0; 14_000];
        strain[at] = 1.0;
        let (output, _) = whiten(&mut whitener, &strain, &vec![true; 14_000], || 999);
        let (kernel, origin) = whitener.kernel();
        let greatest = kernel.iter().fold(0.0, |most: f64, value| most.max(value.abs()));
        for (sample, found) in output.iter().enumerate() {
            let place = (sample + origin).checked_sub(at);
            let expected = place.and_then(|place| kernel.get(place)).copied().unwrap_or(0.0);
            let error = (f64::from(*found) - expected).abs() / greatest;
            assert!(error < 1e-6, "{:?} sample {sample}: {error}", options.method);
        }
    }
}

#[test]
fn threads_do_not_change_a_bit() {
    let mut strain = coloured_noise(RATE, 40, 7);
    let times = strain.len();
    strain[20_000] = 1e3;
    let valid: Vec<bool> = (0..times).map(|at| !(9_000..9_700).contains(&at)).collect();
    let gate = Some(GateOptions { threshold: 10.0, hold_s: 0.5, taper_s: 0.25 });
    for options in methods() {
        let new = || Whitener::new(Options { gate, ..options.clone() }).expect("holds");
        let expected = whiten(&mut new(), &strain, &valid, || 999);
        for threads in [1, 2, 5] {
            let mut whitener = new().with_threads(Threads::new(threads));
            let mut blocks = [1, 20_000, 300, 2047, 2049, 7_000].into_iter().cycle();
            let found = whiten(&mut whitener, &strain, &valid, || blocks.next().unwrap());
            assert_eq!(found, expected, "{:?}, {threads} threads", options.method);
            whitener.reset();
            let again = whiten(&mut whitener, &strain, &valid, || 12_345);
            assert_eq!(again, expected, "after a reset");
        }
    }
}

#[test]
fn latencies_are_as_stated() {
    let [overlap, causal] = methods().map(|options| Whitener::new(options).expect("holds"));
    assert_eq!(overlap.latency(), 5 * RATE as usize - 2);
    assert_eq!(causal.latency(), 15);
    assert!((causal.latency_s() - 15.0 / 1024.0).abs() < 1e-15);
    let gate = Some(GateOptions { threshold: 10.0, hold_s: 0.5, taper_s: 0.25 });
    let gated = methods().map(|options| Whitener::new(Options { gate, ..options }).expect("holds"));
    assert_eq!(gated[1].latency(), 15 + 768);
}

#[test]
fn a_minimum_phase_kernel_has_the_same_magnitude_and_its_energy_first() {
    let [overlap, causal] = methods().map(|options| Whitener::new(options).expect("holds"));
    let points = 16 * RATE as usize;
    let (zero, minimum) = (overlap.response(points).unwrap(), causal.response(points).unwrap());
    for bin in 22 * 16..points / 2 - 16 {
        let ratio = minimum[bin].norm() / zero[bin].re.abs();
        // The line at 60 Hz is a notch 1000 deep: there both differ from the spectrum by more.
        let bound = if (bin as f64 / 16.0 - 60.0).abs() < 2.0 { 0.5 } else { 0.01 };
        assert!((ratio - 1.0).abs() < bound, "{} Hz: {ratio}", bin as f64 / 16.0);
        assert!(zero[bin].im.abs() < 1e-9 * zero[bin].norm());
    }
    let energy = |kernel: &[f64]| kernel.iter().map(|value| value * value).sum::<f64>();
    let (kernel, origin) = causal.kernel();
    assert_eq!(origin, 0);
    let early = energy(&kernel[..RATE as usize / 64]) / energy(kernel);
    assert!(early > 0.9, "{early} of the energy in the first 1/64 s");
    // No causal kernel of this magnitude has more energy in its first samples.
    let (delayed, _) = overlap.kernel();
    for samples in [1, 4, 16, 64, 512] {
        assert!(energy(&kernel[..samples]) > energy(&delayed[..samples]));
    }
    assert!(overlap.response(100).is_err(), "shorter than the kernel");
}

fn running() -> Psd {
    Psd::Running(RunningOptions { segment_s: 1.0, settle: 8, ..RunningOptions::default() })
}

#[test]
fn any_split_gives_the_same_bits() {
    let mut strain = coloured_noise(RATE, 40, 2);
    strain[20_000] += 1e-15;
    strain[9000] = f64::NAN;
    let mut valid = vec![true; strain.len()];
    valid[30_000..30_700].fill(false);
    let gate = Some(GateOptions { threshold: 10.0, ..GateOptions::default() });
    let mut cases: Vec<Options> = methods().to_vec();
    cases.extend(methods().map(|options| Options { psd: running(), gate, ..options }));
    for options in cases {
        let expected = whole(options.clone(), &strain, &valid);
        assert!(expected.1.iter().any(|flag| *flag) && expected.1.iter().any(|flag| !*flag));
        let mut whitener = Whitener::new(options).expect("holds");
        let mut state = 1_u32;
        for most in [1, 7, 300, 5000] {
            let mut next = || {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (state >> 16) as usize % most + 1
            };
            let found = whiten(&mut whitener, &strain, &valid, &mut next);
            let same = |(a, b): (&f32, &f32)| a.to_bits() == b.to_bits();
            assert!(found.0.iter().zip(&expected.0).all(same), "blocks of up to {most}");
            assert_eq!(found.1, expected.1);
            whitener.reset();
        }
    }
}

#[test]
fn gaps_stay_where_they_are() {
    let strain = coloured_noise(RATE, 60, 3);
    let gap = 30_000..32_000;
    let second = RATE as usize;
    for options in methods() {
        let clean = whole(options.clone(), &strain, &vec![true; strain.len()]);
        let mut spoilt = strain.clone();
        let mut valid = vec![true; strain.len()];
        for sample in gap.clone() {
            // Invalid by its flag, NaN, infinite, beyond all strain.
            match sample % 4 {
                0 => valid[sample] = false,
                1 => spoilt[sample] = f64::NAN,
                2 => spoilt[sample] = f64::NEG_INFINITY,
                _ => spoilt[sample] = 1e250,
            }
        }
        let (output, flags) = whole(options.clone(), &spoilt, &valid);
        let before = if options.taper.before_s > 0.0 { second } else { 0 };
        for (sample, flag) in flags.iter().enumerate() {
            let is_near = sample + before >= gap.start && sample < gap.end + second;
            let is_end = sample < second || sample + before >= strain.len();
            assert_eq!(*flag, !is_near && !is_end, "sample {sample}");
        }
        // The cut makes no more than noise, anywhere.
        let loudest = output.iter().fold(0.0, |most: f32, sample| most.max(sample.abs()));
        assert!(output[gap.clone()].iter().all(|sample| *sample == 0.0));
        assert!(loudest < 6.5, "{:?}: {loudest}", options.method);
        // Samples beyond the reach of the kernel are unchanged.
        let reach = 4 * RATE as usize + second;
        for sample in (0..gap.start - reach).chain(gap.end + reach..strain.len()) {
            assert!((output[sample] - clean.0[sample]).abs() < 1e-5, "sample {sample}");
        }
    }
}

#[test]
fn single_bad_samples_do_not_ring() {
    let mut strain = coloured_noise(RATE, 60, 7);
    let valid = vec![true; strain.len()];
    for options in methods() {
        let clean = whole(options.clone(), &strain, &valid);
        let sample = strain[30_000];
        strain[30_000] = f64::NAN;
        let (output, flags) = whole(options.clone(), &strain, &valid);
        strain[30_000] = sample;
        let loudest = output.iter().fold(0.0, |most: f32, sample| most.max(sample.abs()));
        assert!(loudest < 5.0, "{:?}: {loudest}", options.method);
        // Sidebands of the line, which the taper cuts too, stay below the noise.
        let pairs = output.iter().zip(&clean.0).zip(&flags).skip(RATE as usize);
        let changes = pairs.filter(|(_, flag)| **flag).map(|((a, b), _)| (a - b).abs());
        let greatest = changes.take(55 * RATE as usize).fold(0.0, f32::max);
        assert!(greatest < 1.0, "{:?}: {greatest}", options.method);
    }
}

#[test]
fn loud_transients_are_gated() {
    let noise = coloured_noise(RATE, 40, 4);
    let (at, second) = (20_480, RATE as usize);
    let valid = vec![true; noise.len()];
    for options in methods() {
        let whitener = Whitener::new(options.clone()).expect("holds");
        let (kernel, origin) = whitener.kernel();
        let peak = (0..kernel.len()).max_by(|a, b| kernel[*a].abs().total_cmp(&kernel[*b].abs()));
        let peak = peak.expect("coefficients");
        // 200 standard deviations of whitened strain.
        let mut strain = noise.clone();
        strain[at + origin - peak] += 200.0 / kernel[peak];
        let gate = Some(GateOptions { threshold: 20.0, hold_s: 0.25, taper_s: 0.125 });
        let open = whole(options.clone(), &strain, &valid);
        assert!(open.0[at].abs() > 150.0 && open.1[at]);
        let (output, flags) = whole(Options { gate, ..options }, &strain, &valid);
        assert!(output[at - 256..=at + 256].iter().all(|sample| *sample == 0.0));
        assert!(flags[at - 256 - 128..=at + 256 + 128].iter().all(|flag| !*flag));
        assert!(flags[at - 512] && flags[at + 1024]);
        assert!(output.iter().all(|sample| sample.abs() <= 20.0));
        assert_eq!(output[at - second..at - 512], open.0[at - second..at - 512]);
    }
}

#[test]
fn a_running_spectrum_converges_and_follows_a_step() {
    let options = RunningOptions::default();
    let bins = 400;
    let mut running = RunningPsd::new(0.25, bins, &options).expect("a spectrum");
    let mut noise = gaussian(5);
    let mut feed = |running: &mut RunningPsd, level: f64, segments: usize| {
        for _ in 0..segments {
            // Powers of independent segments: exponential, of mean `level`.
            let mut power = || 0.5 * level * (noise().powi(2) + noise().powi(2));
            let densities: Vec<f64> = (0..bins).map(|_| power()).collect();
            running.update(&densities).expect("as many bins");
        }
        let ratios = running.densities().iter().map(|density| density / level);
        let mean = ratios.clone().sum::<f64>() / bins as f64;
        let square = ratios.map(|ratio| (ratio - mean).powi(2)).sum::<f64>() / bins as f64;
        (mean, square.sqrt())
    };
    let (mean, sigma) = feed(&mut running, 3.0, 400);
    // Of 7 independent powers' median logarithm, averaged with a memory of 64: 0.41 / sqrt(2 x 64 / 7) or so each.
    assert!(sigma > 0.04 && sigma < 0.16, "{sigma}");
    assert!(
        (mean - 1.0).abs() < 0.5 * sigma * sigma + 4.0 * sigma / (bins as f64).sqrt(),
        "{mean}"
    );
    // A step: after 64 segments 1 - 1/e of its logarithm has been followed, after 400 all of it.
    let (early, _) = feed(&mut running, 12.0, 3 + 64);
    let expected = (-(4f64.ln()) * (-1f64).exp()).exp();
    assert!((early / expected - 1.0).abs() < 0.08, "{early} of {expected}");
    let (late, _) = feed(&mut running, 12.0, 400);
    assert!((late - 1.0).abs() < 0.05, "{late}");
}

#[test]
fn a_running_spectrum_whitens_once_it_has_settled() {
    let strain = coloured_noise(RATE, 400, 6);
    let mut valid = vec![true; strain.len()];
    valid[100_000..100_100].fill(false);
    for options in methods() {
        // Segments as long as the kernel, so that the line's notch is as wide as its image.
        let running = RunningOptions { settle: 8, ..RunningOptions::default() };
        let options = Options { psd: Psd::Running(running), ..options };
        let mut whitener = Whitener::new(options.clone()).expect("holds");
        assert!(whitener.psd().is_none());
        let (output, flags) = whiten(&mut whitener, &strain, &valid, || 4096);
        // The first segment has the taper; from then on one ends every 2 s: the 8th at 2 + 4 + 14 s.
        let first = flags.iter().position(|flag| *flag).expect("it settles");
        let second = RATE as usize;
        assert!((20 * second - 1..23 * second).contains(&first), "{first}");
        assert!(output[..first].iter().all(|sample| *sample == 0.0));
        let late = variance(&output[300 * second..390 * second]);
        assert!((late - (1.0 - 17.8 / 512.0)).abs() < 0.03, "{:?}: {late}", options.method);
        let found = whitener.psd().expect("a spectrum");
        for (low, high) in [(22.0, 50.0), (70.0, 150.0), (150.0, 400.0)] {
            let mut ratio = 0.0;
            let bins: Vec<f64> =
                (0..).map(|n| low + 0.25 * f64::from(n)).take_while(|f| *f < high).collect();
            for frequency in &bins {
                ratio += found.at(*frequency) / density(*frequency) / bins.len() as f64;
            }
            assert!((ratio - 1.0).abs() < 0.05, "{low} Hz: {ratio}");
        }
        // A spectrum known in advance is valid from the start.
        let initial = Some(spectrum(RATE, 4));
        let running = RunningOptions { initial, ..RunningOptions::default() };
        let options = Options { psd: Psd::Running(running), ..options };
        let (output, flags) = whole(options, &strain[..20 * second], &valid[..20 * second]);
        assert!(flags[second]);
        let early = variance(&output[2 * second..18 * second]);
        assert!((early - 0.965).abs() < 0.05, "{early}");
    }
}

#[test]
fn bad_options_are_refused() {
    let [good, causal] = methods();
    let short = PowerSpectrum::new(1.0, vec![1.0; 100]).expect("a spectrum");
    let nan = GateOptions { threshold: f64::NAN, ..GateOptions::default() };
    let long = Taper { before_s: 1e9, after_s: 0.0 };
    let cases = [
        Options { psd: Psd::Fixed(short), ..good.clone() },
        Options { rate_hz: 0, ..good.clone() },
        Options { f_low_hz: 512.0, ..good.clone() },
        Options { f_low_hz: f64::NAN, ..good.clone() },
        Options { method: Method::Overlap { fft_s: 1e9 }, ..good.clone() },
        Options { method: Method::MinimumPhase { taps_s: 0.0 }, ..causal },
        Options { taper: long, ..good.clone() },
        Options { gate: Some(nan), ..good.clone() },
    ];
    for options in cases {
        let error = Whitener::new(options.clone()).expect_err("refused");
        assert!(matches!(error, Error::Parameter { .. }), "{error} for {options:?}");
    }
    let mut whitener = Whitener::new(good).expect("holds");
    let mut flags = [true; 4];
    assert!(whitener.run(&[0.0; 4], &[true; 3], &mut [0.0; 4], &mut flags).is_err());
    assert!(whitener.run(&[0.0; 4], &[true; 4], &mut [0.0; 3], &mut flags).is_err());
    whitener.flush(&mut [0.0; 4], &mut flags).expect("an empty stream ends");
    assert!(whitener.run(&[0.0; 4], &[true; 4], &mut [0.0; 4], &mut flags).is_err());
}

#[test]
fn the_first_detection_comes_out_white() {
    let Some(folder) = common::data_dir() else { return };
    for (site, peak_s) in [("H", 16.42), ("L", 16.41)] {
        let name = format!("gw/{site}-{site}1_LOSC_4_V2-1126259446-32.hdf5");
        let mut source = open(&folder.join(name), &OpenOptions::default()).expect("a recording");
        let (mut strain, mut valid) = (vec![0.0; 131_072], vec![false; 131_072]);
        assert_eq!(source.read(&mut strain, &mut valid).expect("samples"), 131_072);
        let found = welch(&strain, &valid, 4096, &WelchOptions::default()).expect("a spectrum");
        for base in [Options::new, Options::low_latency] {
            let options = base(4096, Psd::Fixed(found.clone()));
            let (output, flags) = whole(options.clone(), &strain, &valid);
            let tapers_s = options.taper.before_s + options.taper.after_s;
            let good = flags.iter().filter(|flag| **flag).count();
            assert_eq!(good, ((32.0 - tapers_s) * 4096.0) as usize);
            // Off source, beyond the kernel's reach from the ends.
            let second = 4096;
            let off: Vec<f32> =
                [&output[4 * second..15 * second], &output[18 * second..28 * second]].concat();
            let rms = variance(&off).sqrt();
            assert!((rms - 1.0).abs() < 0.05, "{site}1 {:?}: rms {rms}", options.method);
            let loudest = off.iter().fold(0.0, |most: f32, sample| most.max(sample.abs()));
            assert!(loudest < 6.0, "{loudest}");
            // The signal, between 35 and 350 Hz, has excess power over 25 ms at the expected time.
            let power = |centre: f64| {
                let from = ((centre - 0.0125) * 4096.0) as usize;
                variance(&output[from..from + 102])
            };
            let event = power(peak_s);
            assert!(event > 1.2, "{site}1 {:?}: {event}", options.method);
            // A hole adds no more than noise, for all the lines that it cuts.
            let mut spoilt = strain.clone();
            spoilt[40_000] = f64::NAN;
            let (output, _) = whole(options.clone(), &spoilt, &valid);
            let near = output[5 * second..15 * second].iter();
            let loudest = near.fold(0.0, |most: f32, sample| most.max(sample.abs()));
            assert!(loudest < 6.0, "{site}1 {:?}: {loudest}", options.method);
        }
    }
}
