//! The fewest plans that run every part of a GPU's kernels, for tools that slow them down.

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

use channelize::Recording;
use compared::check;
use random::Random;
use sidereal::channelize::{Detection, Feed, Form, Options, Order, Plan, Products};
use sidereal::voltage::VoltageEncoding;

/// The fewest plans that go through every part of a GPU's fused kernels: whole batches and a remainder, one
/// and several streams, taps in registers and in a ring, one pass over rows and two, every form.
#[test]
fn fixed_subset_channelize() {
    use VoltageEncoding::{Complex8, Complex16, ComplexF32};
    let detected = |products, spectra| {
        let (feed, channels) = (Feed::Linear, 1);
        Form::Detected(Detection { products, feed, spectra, channels, interpolate_dc: false })
    };
    let gains = (0..512).map(|index| 4.0 + index as f32 / 64.0).collect();
    let banks = [
        (256, 5, Complex8, 37, Form::Spectra),
        (1024, 20, Complex16, 21, detected(Products::Power, 10)),
        (256, 4, Complex8, 20, detected(Products::Iquv, 4)),
        (512, 3, ComplexF32, 19, Form::Requantized { bits: 8, gains: vec![40.0] }),
        (256, 17, Complex8, 18, Form::Requantized { bits: 4, gains }),
        (2048, 2, Complex8, 9, Form::Spectra),
        (2048, 8, ComplexF32, 9, detected(Products::I, 4)),
        (4096, 8, Complex8, 6, Form::Requantized { bits: 8, gains: vec![40.0] }),
    ];
    check_all(banks);
}

/// The same for transforms in place in the output, and for long ones in two kernels.
#[test]
fn fixed_subset_long() {
    use VoltageEncoding::{Complex8, Complex16, ComplexF32};
    let detected = |products, spectra| {
        let (feed, channels) = (Feed::Linear, 1);
        Form::Detected(Detection { products, feed, spectra, channels, interpolate_dc: false })
    };
    check_all([
        // Transforms in place in the output, then one that is copied there.
        (1000, 3, Complex8, 270, Form::Spectra),
        (1002, 18, Complex16, 17, detected(Products::Power, 4)),
        // Long transforms, in two kernels.
        (32768, 3, Complex8, 18, Form::Spectra),
        (32768, 17, Complex16, 17, detected(Products::Power, 5)),
        (65536, 2, ComplexF32, 17, Form::Spectra),
        (65536, 5, Complex8, 9, Form::Spectra),
    ]);
}

/// The same for kernels with clusters of blocks.
#[test]
fn fixed_subset_clusters() {
    use VoltageEncoding::{Complex8, Complex16};
    check_all([
        (8192, 3, Complex16, 19, Form::Spectra),
        (16384, 4, Complex8, 9, Form::Requantized { bits: 8, gains: vec![40.0] }),
    ]);
}

/// Compares filter banks of the given channels, taps and spectra with the reference.
fn check_all<const N: usize>(banks: [(usize, usize, VoltageEncoding, usize, Form); N]) {
    let mut random = Random::new(11);
    for (index, (channels, taps, encoding, spectra, form)) in banks.into_iter().enumerate() {
        let mut options = Options::new(channels, taps, encoding);
        options.input.polarizations = 1 + index % 2;
        options.order = [Order::Ascending, Order::Natural, Order::Descending][index % 3];
        if let Form::Requantized { gains, .. } = &form {
            options.input.coarse_channels = gains.len().div_ceil(channels);
        }
        if matches!(&form, Form::Detected(detection) if detection.products == Products::Iquv) {
            options.input.polarizations = 2;
        }
        options.form = form;
        let plan = Plan::new(options).unwrap();
        let times = plan.span() + (spectra - 1) * plan.hop() + 3;
        let streams = plan.input().streams();
        let recording = Recording::random(&mut random, encoding, streams, times);
        // An emulated GPU runs them all.
        check(&mut random, &plan, &recording, 0);
    }
}
