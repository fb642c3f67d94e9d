//! Every backend's rows are the filter bank's equation, within the bounds that `common/compared.rs` derives.

#[path = "common/banks.rs"]
mod banks;
#[path = "common/channelize.rs"]
mod channelize;
#[path = "common/compared.rs"]
mod compared;
#[path = "common/expected.rs"]
mod expected;
#[path = "common/random.rs"]
mod random;

use banks::case;
use channelize::{Recording, Truth, whole};
use compared::check;
use random::Random;
use sidereal::backend::Backend;
use sidereal::channelize::reference;
use sidereal::channelize::{Detection, Feed, Form, Input, Options, Order, Plan, Products};
use sidereal::math::Window;
use sidereal::voltage::VoltageEncoding;

fn sweep(seed: u64, cases: usize, channels: &[usize], taps: &[usize]) {
    let mut random = Random::new(seed);
    for index in 0..cases {
        let (channels, taps) =
            (channels[random.below(channels.len())], taps[random.below(taps.len())]);
        let (plan, recording) = case(&mut random, index, channels, taps);
        check(&mut random, &plan, &recording, index);
    }
}

#[test]
fn few_channels_of_any_number() {
    sweep(
        1,
        220,
        &[2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 15, 16, 17, 24, 31, 32],
        &[1, 2, 3, 4, 5, 7, 8],
    );
}

#[test]
fn powers_of_two() {
    sweep(2, 110, &[64, 128, 256, 512], &[1, 2, 4, 8, 16]);
    sweep(3, 44, &[1024, 2048, 4096], &[1, 3, 4, 8]);
}

#[test]
fn odd_and_prime_and_composite_numbers() {
    sweep(
        4,
        66,
        &[48, 61, 97, 100, 127, 189, 243, 250, 360, 384, 625, 768, 1000, 1536],
        &[1, 4, 6, 9],
    );
    sweep(5, 11, &[2187, 3072, 4099], &[4, 8]);
}

#[test]
fn many_taps() {
    sweep(6, 44, &[2, 4, 8, 16, 31, 64, 128], &[12, 16, 17, 31, 32, 33, 64, 100, 128, 255, 256]);
}

#[test]
fn many_channels() {
    use VoltageEncoding::{Complex4, Complex8, Complex16, ComplexF32, Real16, RealF32};
    let mut random = Random::new(7);
    let banks = [
        (8192, 4, Complex4),
        (16384, 3, RealF32),
        (32768, 2, Complex16),
        (65536, 4, Complex8),
        (65536, 4, ComplexF32),
        (65536, 2, Real16),
        (65537, 2, Complex8),
        (98304, 2, Complex8),
        (131_072, 1, ComplexF32),
    ];
    for (index, (channels, taps, encoding)) in banks.into_iter().enumerate() {
        let mut options = Options::new(channels, taps, encoding);
        options.input.polarizations = 2;
        let plan = Plan::new(options).unwrap();
        let times = plan.span() + 2 * plan.hop();
        let recording = Recording::random(&mut random, encoding, 2, times);
        check(&mut random, &plan, &recording, index);
    }
}

#[test]
fn long_integrations() {
    let mut random = Random::new(10);
    let lengths = [100, 255, 256, 257, 300, 511, 513, 1000, 1025];
    for (index, spectra) in lengths.into_iter().enumerate() {
        let encoding = VoltageEncoding::ALL[2 * index % 11];
        let mut options = Options::new([4, 8, 16][index % 3], 1 + index, encoding);
        (options.input.antennas, options.input.polarizations) = (2, 2);
        options.form = Form::Detected(Detection {
            products: [Products::Iquv, Products::Aabbcrci, Products::I][index % 3],
            feed: [Feed::Linear, Feed::Circular][index % 2],
            spectra,
            channels: 1 + index % 2,
            interpolate_dc: index % 4 == 0,
        });
        let plan = Plan::new(options).unwrap();
        let times = plan.span() + (2 * spectra + random.below(spectra)) * plan.hop();
        let recording = Recording::random(&mut random, encoding, 4, times.next_multiple_of(4));
        check(&mut random, &plan, &recording, index);
    }
}

/// The reference in f64, before its rows are rounded, against the sums of this file.
#[test]
fn the_reference_is_the_equation_to_double_precision() {
    let mut random = Random::new(8);
    for index in 0..44 {
        let (channels, taps) = (2 + random.below(30), 1 + random.below(6));
        let (plan, recording) = case(&mut random, index, channels, taps);
        let mut options = plan.options().clone();
        options.form = Form::Spectra;
        let plan = Plan::new(options).unwrap();
        let (mut engine, mut rows) = (reference::Engine::new(&plan), Vec::new());
        engine.run(recording.voltages(), &mut rows);
        let truth = Truth::new(&plan, &recording);
        for (row, values) in rows.chunks_exact(plan.row_elements()).enumerate() {
            for stream in 0..plan.input().streams() {
                let Input { coarse_channels, polarizations, .. } = *plan.input();
                let (antenna, rest) =
                    (stream / (coarse_channels * polarizations), stream / polarizations);
                let place = plan.coarse_channel(rest % coarse_channels);
                let at = plan.row_offset(antenna, stream % polarizations, place);
                let sums = truth.sums(stream, row);
                let magnitude: f64 = sums.magnitudes.iter().sum();
                for channel in 0..plan.channels() {
                    let expected = truth.bin(&sums, plan.bin(channel));
                    assert!((values[at + channel] - expected).norm() <= 1e-13 * magnitude);
                }
            }
        }
    }
}

/// Sums of two samples, halved: exact in any arithmetic, and often half way between two integers.
#[test]
fn ties_go_to_even_and_extremes_are_limited() {
    for (bits, most) in [(4, 7), (8, 127)] {
        let encoding = VoltageEncoding::Complex16;
        let mut options = Options::new(2, 1, encoding);
        (options.window, options.order) = (Window::Rectangular, Order::Natural);
        options.form = Form::Requantized { bits, gains: vec![1.0] };
        let plan = Plan::new(options).unwrap();
        // First samples of a spectrum; the second is 0, so both channels are half of the first.
        let firsts: Vec<i16> = (-300..300).flat_map(|x: i16| [x, 299 - x]).collect();
        let pairs = firsts.chunks_exact(2).flat_map(|z| [z[0], z[1], 0, 0]);
        let bytes: Vec<u8> = pairs.flat_map(i16::to_le_bytes).collect();
        let recording = Recording::from_rows(&[bytes], encoding, firsts.len());
        for backend in Backend::available(2) {
            let run = whole(&plan, &backend, &recording);
            let mut limited = 0;
            for (found, first) in run.integers(bits).chunks_exact(2).zip(firsts.chunks_exact(2)) {
                let part = |x: i16| {
                    let even = if x.rem_euclid(4) == 3 { (x + 1) / 2 } else { (x - (x & 1)) / 2 };
                    (even.clamp(-most - 1, most) as i8, even > most || even < -most - 1)
                };
                let ((re, a), (im, b)) = (part(first[0]), part(first[1]));
                assert_eq!(found, [(re, im); 2], "{} of {first:?} / 2", backend.name());
                limited += u64::from(a || b);
            }
            assert_eq!(run.saturated, [limited; 2], "{}", backend.name());
        }
    }
}

/// A non-finite sample spoils the spectra whose window covers it, and no others.
#[test]
fn a_bad_sample_stays_in_its_own_spectra() {
    let mut random = Random::new(9);
    for (encoding, channels, taps) in [
        (VoltageEncoding::ComplexF32, 16, 4),
        (VoltageEncoding::ComplexF32, 9, 3),
        (VoltageEncoding::RealF32, 32, 2),
        (VoltageEncoding::RealF32, 5, 5),
    ] {
        let mut options = Options::new(channels, taps, encoding);
        (options.input.antennas, options.input.polarizations) = (2, 2);
        let plan = Plan::new(options).unwrap();
        let times = plan.span() + 40 * plan.hop();
        let clean = Recording::random(&mut random, encoding, 4, times);
        let (stream, time) = (random.below(4), plan.span() + random.below(20 * plan.hop()));
        let mut bad = clean.clone();
        bad.spoil(stream, time, [f32::NAN, f32::INFINITY][random.below(2)]);
        for backend in Backend::available(2) {
            let [clean, bad] = [&clean, &bad].map(|r| whole(&plan, &backend, r).complex());
            for (index, (clean, bad)) in clean.iter().zip(&bad).enumerate() {
                let (spectrum, element) =
                    (index / plan.row_elements(), index % plan.row_elements());
                let own = element / channels == stream;
                let under =
                    (spectrum * plan.hop()..spectrum * plan.hop() + plan.span()).contains(&time);
                let (name, finite) = (backend.name(), bad.re.is_finite() && bad.im.is_finite());
                assert_eq!(finite, !(own && under), "{name}: {spectrum} {element}");
                assert!(!finite || clean == bad, "{name}: {spectrum} {element}");
            }
        }
    }
}
