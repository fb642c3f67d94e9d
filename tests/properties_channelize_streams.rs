//! Streams of voltages: any split, any number of threads and any previous stream give the same bits.

#[path = "common/banks.rs"]
mod banks;
#[path = "common/channelize.rs"]
mod channelize;
#[path = "common/random.rs"]
mod random;

use banks::{Brief, case};
use channelize::{Recording, Run, split, whole};
use random::Random;
use sidereal::backend::Backend;
use sidereal::backend::simd::Level;
use sidereal::backend::threads::Threads;
use sidereal::channelize::{Channelizer, Detection, Feed, Form, Options, Output, Plan, Products};
use sidereal::voltage::VoltageEncoding;

fn plan(options: Options) -> Plan {
    Plan::new(options).unwrap()
}

#[test]
fn any_split_and_any_threads_give_the_same_bits() {
    let mut random = Random::new(1);
    let sizes = [2, 3, 5, 8, 16, 31, 32, 64, 100, 256];
    for index in 0..88 {
        let channels = sizes[random.below(sizes.len())];
        let taps = 1 + random.below(9);
        let (plan, recording) = case(&mut random, index, channels, taps);
        for level in Level::available() {
            let backend = |threads| Backend::Cpu(level, Threads::new(threads));
            let first = whole(&plan, &backend(1), &recording);
            for threads in [1, 2, 3] {
                let name = format!("{} x{threads} {:?}", level.name(), Brief(&plan));
                let again = split(&plan, &backend(threads), &recording, &mut random);
                assert!(first == again, "{name}");
                assert!(first == whole(&plan, &backend(threads), &recording), "{name}, one block");
            }
        }
        if index < 22 {
            let first = whole(&plan, &Backend::Reference, &recording);
            let again = split(&plan, &Backend::Reference, &recording, &mut random);
            assert!(first == again, "reference {:?}", Brief(&plan));
        }
    }
}

/// Blocks of many megabytes, which may bypass the caches, and the same in small pieces.
#[test]
fn large_blocks_have_the_bits_of_small_ones() {
    let mut random = Random::new(13);
    let detection = |spectra| {
        Form::Detected(Detection {
            products: Products::Iquv,
            feed: Feed::Linear,
            spectra,
            channels: 1,
            interpolate_dc: true,
        })
    };
    let forms = [
        (64, Form::Spectra),
        (256, Form::Spectra),
        (27, Form::Spectra),
        (32, Form::Filtered),
        (64, detection(1)),
        (16, detection(300)),
        (64, Form::Requantized { bits: 8, gains: vec![40.0] }),
        (125, Form::Requantized { bits: 4, gains: vec![3.0] }),
    ];
    for (index, (channels, form)) in forms.into_iter().enumerate() {
        let encoding = [VoltageEncoding::Complex8, VoltageEncoding::Real8][index % 2];
        let mut options = Options::new(channels, 4, encoding);
        options.input.polarizations = 2;
        options.form = form;
        let plan = plan(options);
        let row_bytes = plan.row_elements() * plan.element_bytes();
        let rows = (5_000_000 / row_bytes).min(2_000_000 / plan.samples_per_row());
        let times = (rows + 3) * plan.samples_per_row() + plan.span();
        let recording = Recording::random(&mut random, encoding, 2, times);
        for backend in Backend::available(2).into_iter().skip(1) {
            let first = whole(&plan, &backend, &recording);
            let mut channelizer = Channelizer::new(plan.clone(), &backend).unwrap();
            let (gulp, mut bytes) = (50_000, Vec::new());
            for start in (0..times).step_by(gulp) {
                let part = recording.voltages().slice(start, gulp.min(times - start)).unwrap();
                let room = plan.max_rows(part.times());
                channelize::step(&mut channelizer, part, room, 0, &mut bytes);
            }
            let again = Run { bytes, saturated: channelizer.saturated() };
            assert!(first == again, "{} {:?}", backend.name(), Brief(&plan));
        }
    }
}

/// One sample (or byte of samples) after another, for every encoding.
#[test]
fn single_samples_make_the_same_stream() {
    let mut random = Random::new(2);
    for encoding in VoltageEncoding::ALL {
        let plan = plan(Options::new(4, 3, encoding));
        let times = (plan.span() + 9 * plan.hop()).next_multiple_of(4);
        let recording = Recording::random(&mut random, encoding, 1, times);
        for backend in Backend::available(2) {
            let first = whole(&plan, &backend, &recording);
            let mut channelizer = Channelizer::new(plan.clone(), &backend).unwrap();
            let (unit, mut bytes) = (encoding.group_samples(), Vec::new());
            for start in (0..times).step_by(unit) {
                let part = recording.voltages().slice(start, unit).unwrap();
                let done = channelize::step(&mut channelizer, part, 2, 0, &mut bytes);
                assert_eq!(done.consumed, unit);
            }
            assert!(first.bytes == bytes, "{} {encoding:?}", backend.name());
        }
    }
}

#[test]
fn no_samples_and_no_room_do_no_harm() {
    let mut random = Random::new(3);
    let plan = plan(Options::new(8, 2, VoltageEncoding::Real2));
    let recording = Recording::random(&mut random, VoltageEncoding::Real2, 1, 400);
    for backend in Backend::available(2) {
        let first = whole(&plan, &backend, &recording);
        let mut channelizer = Channelizer::new(plan.clone(), &backend).unwrap();
        let (mut bytes, mut taken) = (Vec::new(), 0);
        for round in 0..200 {
            let left = recording.voltages().slice(taken, 400 - taken).unwrap();
            let offered = if round % 3 == 0 { left.slice(0, 0).unwrap() } else { left };
            let done = channelize::step(&mut channelizer, offered, round % 2, 0, &mut bytes);
            assert!(done.produced <= round % 2);
            taken += done.consumed;
        }
        assert_eq!(taken, 400);
        assert!(first.bytes == bytes, "{}", backend.name());
    }
}

#[test]
fn a_reset_channelizer_is_a_new_one() {
    let mut random = Random::new(4);
    for index in 0..33 {
        let (channels, taps) = (2 + random.below(20), 1 + random.below(5));
        let (plan, recording) = case(&mut random, index, channels, taps);
        for backend in Backend::available(2) {
            let first = whole(&plan, &backend, &recording);
            let mut channelizer = Channelizer::new(plan.clone(), &backend).unwrap();
            for _ in 0..2 {
                let (mut bytes, room) = (Vec::new(), plan.max_rows(recording.times()));
                channelize::step(&mut channelizer, recording.voltages(), room, 0, &mut bytes);
                let again = Run { bytes, saturated: channelizer.saturated() };
                assert!(first == again, "{} {:?}", backend.name(), Brief(&plan));
                channelizer.reset();
            }
        }
    }
}

#[test]
fn a_channelizer_can_move_to_another_thread_and_refuses_other_streams() {
    fn sendable<T: Send>(_: &T) {}
    let mut random = Random::new(12);
    let plan = plan(Options::new(4, 2, VoltageEncoding::Complex8));
    let two = Recording::random(&mut random, VoltageEncoding::Complex8, 2, 64);
    let other = Recording::random(&mut random, VoltageEncoding::Complex16, 1, 64);
    for backend in Backend::available(1) {
        let mut channelizer = Channelizer::new(plan.clone(), &backend).unwrap();
        sendable(&channelizer);
        let mut refuses = |recording: &Recording, output: Output<'_>, word: &str| {
            let error = channelizer.run(recording.voltages(), output).unwrap_err().to_string();
            assert!(error.contains(word), "{error}");
        };
        let mut values = vec![num_complex::Complex::<f32>::ZERO; 64];
        refuses(&two, Output::Complex(&mut values), "streams");
        refuses(&other, Output::Complex(&mut values), "encoding");
        let one = Recording::random(&mut random, VoltageEncoding::Complex8, 1, 64);
        let (mut floats, mut bytes) = ([0.0; 64], [0; 64]);
        refuses(&one, Output::F32(&mut floats), "output");
        refuses(&one, Output::Bytes(&mut bytes), "output");
    }
}
