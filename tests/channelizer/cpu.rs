//! The fast filter bank equals the reference: random plans, every SIMD level, every output form.

use crate::support::random;
use num_complex::Complex;
use random::Random;
use sidereal::backend::Backend;
use sidereal::channelize::{
    Channelizer, Detection, Feed, Form, Input, Options, Order, Output, Plan, Products,
};
use sidereal::math::Window;
use sidereal::voltage::{VoltageEncoding, Voltages};

/// Every backend but GPUs, slowest first.
fn on_host(threads: usize) -> Vec<Backend> {
    Backend::available(threads).into_iter().filter(|backend| !backend.is_gpu()).collect()
}

/// Returns bytes for the given number of samples of each stream; floats are between -1 and 1.
fn noise(encoding: VoltageEncoding, streams: usize, times: usize, random: &mut Random) -> Vec<u8> {
    let count = streams * encoding.bytes(times);
    if matches!(encoding, VoltageEncoding::ComplexF32 | VoltageEncoding::RealF32) {
        let float = |_| ((random.below(2001) as f32 - 1000.0) / 1000.0).to_le_bytes();
        return (0..count / 4).flat_map(float).collect();
    }
    (0..count).map(|_| random.bits() as u8).collect()
}

/// Returns the output of a whole stream as numbers, read in blocks of the lengths that `next` returns.
fn channelize(
    plan: &Plan,
    backend: &Backend,
    input: Voltages<'_>,
    next: &mut dyn FnMut(usize) -> usize,
) -> (Vec<f32>, Vec<u64>) {
    let mut channelizer = Channelizer::new(plan.clone(), backend).unwrap();
    let rows = plan.rows(input.times() as u64) as usize;
    let elements = plan.row_elements();
    let step = input.encoding().group_samples();
    let mut complex = vec![Complex::new(f32::NAN, 0.5); rows * elements + 1];
    let mut floats = vec![f32::NAN; rows * elements + 1];
    let mut bytes = vec![0x5a; rows * elements * plan.element_bytes() + 1];
    let (mut done, mut row) = (0, 0);
    while done < input.times() {
        let times = next(input.times() - done).next_multiple_of(step).min(input.times() - done);
        let part = input.slice(done, times).unwrap();
        let at = row * elements;
        let output = match &plan.options().form {
            Form::Spectra | Form::Filtered => Output::Complex(&mut complex[at..rows * elements]),
            Form::Detected(_) => Output::F32(&mut floats[at..rows * elements]),
            Form::Requantized { .. } => {
                let size = plan.element_bytes();
                Output::Bytes(&mut bytes[at * size..rows * elements * size])
            }
        };
        let progress = channelizer.run(part, output).unwrap();
        assert_eq!(progress.consumed, times);
        done += times;
        row += progress.produced;
    }
    assert_eq!(row, rows);
    assert!(complex[rows * elements].re.is_nan() && floats[rows * elements].is_nan());
    assert_eq!(bytes[rows * elements * plan.element_bytes()], 0x5a);
    let saturated = channelizer.saturated();
    let values = match &plan.options().form {
        Form::Spectra | Form::Filtered => {
            complex[..rows * elements].iter().flat_map(|z| [z.re, z.im]).collect()
        }
        Form::Detected(_) => floats[..rows * elements].to_vec(),
        Form::Requantized { bits: 8, .. } => {
            bytes[..2 * rows * elements].iter().map(|b| f32::from(*b as i8)).collect()
        }
        Form::Requantized { .. } => {
            let nibbles = |b: &u8| [f32::from((*b as i8) >> 4), f32::from(((b << 4) as i8) >> 4)];
            bytes[..rows * elements].iter().flat_map(nibbles).collect()
        }
    };
    (values, saturated)
}

/// The largest magnitude of a real or imaginary part.
fn largest(encoding: VoltageEncoding) -> f64 {
    match encoding.bits() {
        32 => 1.0,
        2 => 3.4,
        bits => f64::from(1u32 << (bits - 1)),
    }
}

/// Returns the documented error bound for the spectra of a plan.
fn bound(plan: &Plan) -> f64 {
    let input = plan.input();
    let largest = largest(input.encoding) * input.scale.abs() * 2f64.sqrt();
    let sum: f64 = plan.coefficients().iter().map(|b| b.abs()).sum();
    6e-7 * ((2 * plan.span()) as f64).log2() * largest * sum
}

fn random_form(options: &Options, random: &mut Random) -> Form {
    let polarizations = options.input.polarizations;
    match random.below(6) {
        0 => Form::Filtered,
        1 => {
            let count = if random.below(2) == 0 {
                1
            } else {
                options.channels * options.input.coarse_channels
            };
            let scale = (1.0 / options.input.scale.abs()) as f32;
            let gains = (0..count).map(|_| scale * (random.below(80) as f32 / 20.0)).collect();
            Form::Requantized { bits: [4, 8][random.below(2)], gains }
        }
        2 | 3 => {
            let all = [Products::Power, Products::I, Products::Iquv, Products::Aabbcrci];
            let products = all[random.below(if polarizations == 2 { 4 } else { 2 })];
            let feed = [Feed::Linear, Feed::Circular][random.below(2)];
            let divisors: Vec<usize> =
                (1..=options.channels).filter(|d| options.channels.is_multiple_of(*d)).collect();
            Form::Detected(Detection {
                products,
                feed,
                spectra: 1 + random.below(9),
                channels: divisors[random.below(divisors.len())],
                interpolate_dc: random.below(2) == 0,
            })
        }
        _ => Form::Spectra,
    }
}

fn random_options(random: &mut Random) -> Options {
    let encoding = VoltageEncoding::ALL[random.below(11)];
    let channels = match random.below(4) {
        0 => 2 + random.below(40),
        1 => 1 << (1 + random.below(9)),
        2 => [48, 60, 96, 100, 160, 192, 240, 320, 384, 448][random.below(10)],
        _ => 2 + random.below(300),
    };
    let points = if encoding.is_complex() { channels } else { 2 * channels };
    let ratios: Vec<(usize, usize)> =
        [(4, 3), (8, 7), (2, 1), (32, 27), (5, 4), (points, points - 1)]
            .into_iter()
            .filter(|(p, q)| (points * q).is_multiple_of(*p))
            .collect();
    let oversampling =
        if random.below(3) == 0 { ratios[random.below(ratios.len())] } else { (1, 1) };
    let windows = [Window::Hann, Window::Hamming, Window::Blackman, Window::Kaiser(60.0)];
    let orders = [Order::Natural, Order::Ascending, Order::Descending];
    let mut options = Options {
        window: windows[random.below(4)].clone(),
        oversampling,
        input: Input {
            encoding,
            scale: [1.0, -0.37, 12.5][random.below(3)],
            antennas: 1 + random.below(3),
            coarse_channels: 1 + random.below(3),
            polarizations: 1 + random.below(2),
        },
        order: orders[random.below(3)],
        reverse_coarse: random.below(2) == 0,
        ..Options::new(channels, 1 + random.below(12), encoding)
    };
    options.form = random_form(&options, random);
    options
}

/// Compares; returns the worst error in units of the documented bound.
fn compare(plan: &Plan, found: &[f32], truth: &[f32], saturated: (&[u64], &[u64])) -> f64 {
    assert_eq!(found.len(), truth.len());
    let bound = bound(plan);
    let peak = truth.iter().fold(0f64, |most, x| most.max(f64::from(x.abs())));
    match &plan.options().form {
        Form::Requantized { gains, .. } => {
            // Values this close to a half may round either way.
            let steps = gains.iter().fold(0f64, |a, g| a.max(f64::from(g.abs()))) * bound;
            let most = if steps < 0.5 { 1.0 } else { steps + 1.0 };
            let differ = found.iter().zip(truth).filter(|(a, b)| a != b).count();
            assert!(found.iter().zip(truth).all(|(a, b)| f64::from((a - b).abs()) <= most));
            assert!(
                differ as f64 <= 3.0 + found.len() as f64 * (0.01 + 4.0 * steps),
                "{differ} of {}",
                found.len()
            );
            let far =
                saturated.0.iter().zip(saturated.1).filter(|(a, b)| a.abs_diff(**b) > 1).count();
            assert!(far <= 1 + saturated.0.len() / 50, "{far} counts of saturation");
            0.0
        }
        form => {
            let bound = match form {
                // The error of the power of z is at most 2 |z| dz; errors of sums add up.
                Form::Detected(detection) => {
                    let sum: f64 = plan.coefficients().iter().map(|b| b.abs()).sum();
                    let input = plan.input();
                    let z = largest(input.encoding) * input.scale.abs() * 2f64.sqrt() * sum;
                    let sums = (detection.spectra * detection.channels) as f64;
                    (8.0 * z * bound * sums).min(
                        8.0 * peak.sqrt().max(bound) * bound * sums * 4.0
                            + 1e-6 * peak * sums.log2(),
                    )
                }
                _ => bound,
            };
            let error = |(a, b): (&f32, &f32)| (f64::from(*a) - f64::from(*b)).abs() / bound;
            found
                .iter()
                .zip(truth)
                .map(error)
                .fold(0.0, |a, b| if b.is_nan() { b } else { f64::max(a, b) })
        }
    }
}

#[test]
fn random_plans_equal_the_reference() {
    let mut worst = vec![0f64; 4];
    for seed in 0..400 {
        let mut random = Random::new(seed);
        // A window of so few points that all are 0 is rejected.
        let Ok(plan) = Plan::new(random_options(&mut random)) else { continue };
        let input = *plan.input();
        let spectra = 1 + random.below(if plan.points() > 200 { 6 } else { 40 });
        let times = (plan.span() + spectra * plan.hop() + random.below(plan.hop()))
            .next_multiple_of(input.encoding.group_samples());
        let bytes = noise(input.encoding, input.streams(), times, &mut random);
        let stride = input.encoding.bytes(times);
        let voltages =
            Voltages::new(&bytes, input.encoding, input.streams(), stride, times).unwrap();
        let (truth, counts) = channelize(&plan, &Backend::Reference, voltages, &mut |left| left);
        for threads in [1, 2, 5] {
            for (level, backend) in on_host(threads).into_iter().enumerate().skip(1) {
                let (found, saturated) = channelize(&plan, &backend, voltages, &mut |left| left);
                let error = compare(&plan, &found, &truth, (&saturated, &counts));
                assert!(
                    error <= 1.0,
                    "seed {seed}, {}: {error} bounds, {:?}",
                    backend.name(),
                    plan.options()
                );
                worst[level] = worst[level].max(error);
                let (again, again_saturated) =
                    channelize(&plan, &backend, voltages, &mut |left| 1 + random.below(left));
                assert_eq!(bits(&found), bits(&again), "seed {seed}, {}: split", backend.name());
                assert_eq!(saturated, again_saturated);
            }
        }
    }
    assert!(worst[1..].iter().all(|error| *error < 1.0), "{worst:?} bounds");
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|x| x.to_bits()).collect()
}

#[test]
fn long_sums_do_not_depend_on_splits_or_threads() {
    let encoding = VoltageEncoding::Complex8;
    let detection = Detection {
        products: Products::Iquv,
        feed: Feed::Circular,
        spectra: 700,
        channels: 2,
        interpolate_dc: true,
    };
    let plan = Plan::new(Options {
        input: Input { polarizations: 2, coarse_channels: 2, ..Input::one(encoding) },
        form: Form::Detected(detection),
        ..Options::new(4, 3, encoding)
    });
    let plan = plan.unwrap();
    let times = plan.span() + 3 * 700 * plan.hop();
    let mut random = Random::new(7);
    let bytes = noise(encoding, 4, times, &mut random);
    let voltages = Voltages::new(&bytes, encoding, 4, encoding.bytes(times), times).unwrap();
    let (truth, counts) = channelize(&plan, &Backend::Reference, voltages, &mut |left| left);
    assert!(truth.len() == 3 * plan.row_elements());
    for level in 1..on_host(1).len() {
        let mut first: Option<Vec<u32>> = None;
        for (threads, most) in [(1, times), (1, 37), (2, times), (5, 4000), (5, times)] {
            let backend = &on_host(threads)[level];
            let mut next = |left: usize| 1 + random.below(left.min(most));
            let (found, saturated) = channelize(&plan, backend, voltages, &mut next);
            assert!(compare(&plan, &found, &truth, (&saturated, &counts)) <= 1.0);
            let found = bits(&found);
            assert_eq!(first.get_or_insert_with(|| found.clone()), &found, "{}", backend.name());
        }
    }
}

/// One number of the first spectrum, straight from the definition.
fn spectrum_value(plan: &Plan, input: Voltages<'_>, place: usize) -> Complex<f64> {
    let (bin, points) = (plan.bin(place), plan.points());
    let turn =
        |n: usize| -std::f64::consts::TAU * (n % points * bin % points) as f64 / points as f64;
    let terms = plan.coefficients().iter().enumerate();
    terms.map(|(n, b)| input.value(0, n) * Complex::cis(turn(n)) * b).sum()
}

#[test]
fn many_channels_equal_the_definition() {
    let mut random = Random::new(3);
    let lengths =
        (6..=17).map(|bits| 1usize << bits).chain([3072, 6144, 5000, 10_007, 12_288, 46_080]);
    for channels in lengths {
        for encoding in [VoltageEncoding::ComplexF32, VoltageEncoding::Real16] {
            let plan = Plan::new(Options::new(channels, 3, encoding)).unwrap();
            let times = plan.span() + 2 * plan.hop();
            let bytes = noise(encoding, 1, times, &mut random);
            let input = Voltages::one(&bytes, encoding).unwrap();
            let places: Vec<usize> = (0..6)
                .map(|k| if k < 2 { k * channels / 2 } else { random.below(channels) })
                .collect();
            let truth: Vec<_> =
                places.iter().map(|place| spectrum_value(&plan, input, *place)).collect();
            for backend in on_host(1).into_iter().skip(1) {
                let (found, _) = channelize(&plan, &backend, input, &mut |left| left);
                for (place, truth) in places.iter().zip(&truth) {
                    let found = Complex::new(found[2 * place], found[2 * place + 1]);
                    let error =
                        (f64::from(found.re) - truth.re).hypot(f64::from(found.im) - truth.im);
                    assert!(error <= bound(&plan), "{channels} {encoding:?} {}", backend.name());
                }
            }
        }
    }
}

#[test]
fn what_is_not_a_number_stays_in_its_windows() {
    let encoding = VoltageEncoding::ComplexF32;
    for channels in [8, 24, 256, 1024] {
        let plan = Plan::new(Options::new(channels, 4, encoding)).unwrap();
        let times = 40 * channels;
        let mut bytes = noise(encoding, 1, times, &mut Random::new(1));
        let bad = 20 * channels + channels / 3;
        bytes[8 * bad..8 * bad + 4].copy_from_slice(&f32::NAN.to_le_bytes());
        let input = Voltages::one(&bytes, encoding).unwrap();
        for backend in on_host(2).into_iter().skip(1) {
            let (found, _) = channelize(&plan, &backend, input, &mut |left| left.min(channels * 7));
            for (s, row) in found.chunks(2 * channels).enumerate() {
                let inside = (17..=20).contains(&s);
                assert_eq!(row.iter().any(|x| x.is_nan()), inside, "{channels}, spectrum {s}");
            }
        }
    }
}

#[test]
fn one_sample_at_a_time_gives_the_same() {
    for encoding in VoltageEncoding::ALL {
        let plan = Plan::new(Options::new(16, 4, encoding)).unwrap();
        let times = plan.span() + 5 * plan.hop();
        let bytes = noise(encoding, 1, times, &mut Random::new(9));
        let input = Voltages::one(&bytes, encoding).unwrap();
        for backend in on_host(1).into_iter().skip(1) {
            let (whole, _) = channelize(&plan, &backend, input, &mut |left| left);
            let (parts, _) = channelize(&plan, &backend, input, &mut |_| 1);
            assert_eq!(bits(&whole), bits(&parts), "{encoding:?}, {}", backend.name());
        }
    }
}

/// Long outputs bypass the caches, at any alignment.
#[test]
fn long_outputs_equal_short_ones() {
    let times = 600_000;
    let encodings = [VoltageEncoding::Complex8, VoltageEncoding::Real8];
    for (encoding, channels, order) in [
        (encodings[0], 64, Order::Ascending),
        (encodings[0], 24, Order::Descending),
        (encodings[0], 1024, Order::Ascending),
        (encodings[0], 1536, Order::Descending),
        (encodings[0], 1001, Order::Ascending),
        (encodings[1], 64, Order::Ascending),
        (encodings[1], 512, Order::Descending),
    ] {
        let plan = Plan::new(Options { order, ..Options::new(channels, 4, encoding) }).unwrap();
        let times = if encoding.is_complex() { times } else { 2 * times };
        let bytes = noise(encoding, 1, times, &mut Random::new(5));
        let input = Voltages::one(&bytes, encoding).unwrap();
        for backend in on_host(2).into_iter().skip(1) {
            let (short, _) = channelize(&plan, &backend, input, &mut |left| left.min(200_000));
            let mut room = vec![Complex::new(f32::NAN, 0.0); short.len() / 2 + 16];
            for offset in 0..9 {
                let mut channelizer = Channelizer::new(plan.clone(), &backend).unwrap();
                let output = Output::Complex(&mut room[offset..]);
                let rows = channelizer.run(input, output).unwrap().produced;
                let found = &room[offset..][..rows * plan.row_elements()];
                let same = found.iter().zip(short.chunks(2)).all(|(z, parts)| {
                    z.re.to_bits() == parts[0].to_bits() && z.im.to_bits() == parts[1].to_bits()
                });
                assert!(same, "{channels} {encoding:?} {order:?} at {offset}, {}", backend.name());
            }
        }
    }
}
