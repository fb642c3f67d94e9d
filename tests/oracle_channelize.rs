//! Every backend's rows are the filter bank's equation, within the bounds of single precision.
//!
//! With `u = 2^-24`, `x` the largest sample under a spectrum's window and `B` the sum of the
//! coefficients' magnitudes, a windowed sum is off by at most `u (taps + 2)` times the sum of its terms'
//! magnitudes (one rounding a coefficient, a product and an addition), and each of the transform's
//! `log2 N` steps adds a few `u` of what it sums, at most `x B` in all:
//!
//! - a value of a spectrum: `e = u (taps + 8 log2 2N) x B`;
//! - all values of a spectrum, in root mean square: `u (4 + sqrt(taps) + log2 2N)` times the 2-norm of
//!   the windowed sums of magnitudes (Parseval), which is `sqrt(N)` times tighter;
//! - a detected product of `X` and `Y`, with `P = |X|^2 + |Y|^2`: `2 (|X| + |Y|)(e_X + e_Y) + 2 (e_X +
//!   e_Y)^2 + 8 u P`, and a sum over `k` of them `k u` times the sum of `P` more;
//! - a requantized part `v`: what `v - e gain - 2 u |v|` and `v + e gain + 2 u |v|` round to.

#[path = "common/banks.rs"]
mod banks;
#[path = "common/channelize.rs"]
mod channelize;
#[path = "common/expected.rs"]
mod expected;
#[path = "common/random.rs"]
mod random;

use banks::{Brief, case};
use channelize::{Recording, Run, Truth, split, whole};
use expected::{Spectrum, UNIT};
use random::Random;
use sidereal::backend::Backend;
use sidereal::channelize::reference;
use sidereal::channelize::{Detection, Feed, Form, Input, Options, Order, Plan, Products};
use sidereal::math::window::Window;
use sidereal::voltage::VoltageEncoding;

/// Channels of a row that are compared where a row is long.
const PROBES: usize = 24;

/// Compares one row element by element (some of them, where there are many).
struct Comparison<'a> {
    plan: &'a Plan,
    recording: &'a Recording,
    probes: Vec<usize>,
    name: String,
}

impl Comparison<'_> {
    fn check(&self, run: &Run) {
        let truth = Truth::new(self.plan, self.recording);
        let rows = self.plan.rows(self.recording.times() as u64) as usize;
        let bytes = rows * self.plan.row_elements() * self.plan.element_bytes();
        assert_eq!(run.bytes.len(), bytes, "{}", self.name);
        match &self.plan.options().form {
            Form::Spectra | Form::Filtered => self.spectra(run, &truth, rows),
            Form::Detected(detection) => self.detected(run, &truth, rows, detection),
            Form::Requantized { bits, gains } => {
                self.requantized(run, &truth, rows, *bits, gains);
            }
        }
        if !matches!(self.plan.options().form, Form::Requantized { .. }) {
            assert!(run.saturated.iter().all(|count| *count == 0), "{}", self.name);
        }
        assert_eq!(run.saturated.len(), self.plan.row_elements());
    }

    /// Antenna, place and polarization of every spectrum of a row.
    fn places(&self) -> Vec<(usize, usize, usize)> {
        let Input { antennas, coarse_channels, polarizations, .. } = *self.plan.input();
        let streams = 0..antennas * coarse_channels * polarizations;
        let place = |s| {
            let rest = s / polarizations;
            (rest / coarse_channels, rest % coarse_channels, s % polarizations)
        };
        streams.map(place).collect()
    }

    fn spectra(&self, run: &Run, truth: &Truth<'_>, rows: usize) {
        let (plan, found) = (self.plan, run.complex());
        for row in 0..rows {
            let spectrum = Spectrum::new(truth, plan, row);
            for (antenna, place, polarization) in self.places() {
                let sums = spectrum.sums(antenna, place, polarization);
                let at = row * plan.row_elements() + plan.row_offset(antenna, polarization, place);
                let (mut squares, mut power) = (0.0, 0.0);
                for channel in &self.probes {
                    let (expected, bound) = spectrum.value(sums, *channel);
                    let error = (found[at + channel] - expected).norm();
                    let name = format!("{}: row {row} channel {channel}", self.name);
                    assert!(error <= bound, "{name}: off by {error:.3e}, at most {bound:.3e}");
                    squares += error * error;
                    power += expected.norm_sqr();
                }
                let norm: f64 = sums.magnitudes.iter().map(|y| y * y).sum::<f64>().sqrt();
                let steps = (plan.taps() as f64).sqrt() + (2.0 * plan.points() as f64).log2();
                // Where only some channels are compared, a tone's may be among them.
                let own = (power / self.probes.len() as f64).sqrt();
                let bound = UNIT * (4.0 + steps) * norm.max(own);
                let error = (squares / self.probes.len() as f64).sqrt();
                let name = format!("{}: row {row}", self.name);
                assert!(error <= bound, "{name}: rms error {error:.3e}, at most {bound:.3e}");
            }
        }
    }

    fn detected(&self, run: &Run, truth: &Truth<'_>, rows: usize, detection: &Detection) {
        let (plan, found) = (self.plan, run.floats());
        for row in 0..rows {
            let spectra = row * detection.spectra..(row + 1) * detection.spectra;
            let spectra: Vec<_> = spectra.map(|s| Spectrum::new(truth, plan, s)).collect();
            for (antenna, place, _) in self.places().iter().filter(|place| place.2 == 0) {
                for channel in &self.probes {
                    let mut sums = vec![0.0; plan.output_products()];
                    let (mut bound, mut power, mut terms) = (0.0, 0.0, 0.0);
                    let own = channel * detection.channels..(channel + 1) * detection.channels;
                    for (spectrum, own) in
                        spectra.iter().flat_map(|s| own.clone().map(move |c| (s, c)))
                    {
                        let (values, off, weight) = spectrum.cleaned((*antenna, *place), own);
                        sums.iter_mut().zip(&values).for_each(|(sum, value)| *sum += value);
                        (bound, power, terms) = (bound + off, power + weight, terms + 1.0);
                    }
                    bound += terms * UNIT * power;
                    for (product, expected) in sums.iter().enumerate() {
                        let at = plan.row_offset(*antenna, product, *place) + channel;
                        let error = (found[row * plan.row_elements() + at] - expected).abs();
                        let name = format!("{}: row {row} {product} {channel}", self.name);
                        assert!(error <= bound, "{name}: off by {error:.3e}, at most {bound:.3e}");
                    }
                }
            }
        }
    }

    fn requantized(&self, run: &Run, truth: &Truth<'_>, rows: usize, bits: usize, gains: &[f32]) {
        let (plan, found) = (self.plan, run.integers(bits));
        let most = f64::from(1 << (bits - 1)) - 1.0;
        let elements = plan.row_elements();
        let mut limited = vec![(0u64, 0u64); elements];
        let (mut parts, mut differing) = (0, 0);
        for row in 0..rows {
            let spectrum = Spectrum::new(truth, plan, row);
            for (antenna, place, polarization) in self.places() {
                let sums = spectrum.sums(antenna, place, polarization);
                for channel in &self.probes {
                    let at = plan.row_offset(antenna, polarization, place) + channel;
                    let own = place * plan.channels() + channel;
                    let gain = f64::from(gains[if gains.len() == 1 { 0 } else { own }]);
                    let (value, off) = spectrum.value(sums, *channel);
                    let (re, im) = found[row * elements + at];
                    let mut beyond = (false, false);
                    for (v, found) in [(value.re * gain, re), (value.im * gain, im)] {
                        let off = off * gain.abs() + 2.0 * UNIT * v.abs();
                        let (low, high) =
                            ((v - off).round_ties_even(), (v + off).round_ties_even());
                        let part = |x: f64| x.clamp(-most - 1.0, most) as i8;
                        let fits = (part(low)..=part(high)).contains(&found);
                        assert!(fits, "{}: row {row} {at}: {found} for {v} +- {off}", self.name);
                        beyond.0 |= low > most || high < -most - 1.0;
                        beyond.1 |= high > most || low < -most - 1.0;
                        if off < 0.05 {
                            parts += 1;
                            differing += usize::from(part(v.round_ties_even()) != found);
                        }
                    }
                    limited[at].0 += u64::from(beyond.0);
                    limited[at].1 += u64::from(beyond.1);
                    if row + 1 == rows {
                        let (least, most) = limited[at];
                        let count = run.saturated[at];
                        let name = format!("{}: element {at}", self.name);
                        assert!((least..=most).contains(&count), "{name}: {count} limited");
                    }
                }
            }
        }
        assert!(differing <= 3 + parts / 100, "{}: {differing} of {parts} differ", self.name);
    }
}

/// Cases of which an emulated GPU, thousands of times slower than a real one, takes one.
const EMULATED: usize = 5;

/// Whether a backend takes a case: the reference where it is fast enough, an emulated GPU some of them.
fn takes(backend: &Backend, plan: &Plan, index: usize) -> bool {
    if backend.name().contains("Emulated")
        && (!index.is_multiple_of(EMULATED) || plan.points() > 1 << 15)
    {
        eprintln!("case {index} is left out on {}", backend.name());
        return false;
    }
    !(matches!(backend, Backend::Reference) && plan.points() > 64)
}

/// All backends against the equation.
fn check(random: &mut Random, plan: &Plan, recording: &Recording, index: usize) {
    let count = plan.output_channels();
    // Each probe of a sum over channels costs as many bins.
    let probes = PROBES / plan.channels().div_ceil(count).min(3);
    let mut probes: Vec<usize> = if count <= probes {
        (0..count).collect()
    } else {
        // Ends, middle and every place of a vector, besides any others.
        let fixed = [0, 1, count / 2 - 1, count / 2, count / 2 + 1, count - 2, count - 1];
        let others = (fixed.len()..probes).map(|_| random.below(count));
        fixed.into_iter().chain(others).collect()
    };
    probes.sort_unstable();
    probes.dedup();
    let backends = Backend::available(1 + random.below(3));
    for backend in &backends {
        if !takes(backend, plan, index) {
            continue;
        }
        let run = split(plan, backend, recording, random);
        let name = format!("{} {:?}", backend.name(), Brief(plan));
        Comparison { plan, recording, probes: probes.clone(), name }.check(&run);
    }
}

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

/// The fewest plans that go through every part of a GPU's fused kernels: whole batches and a remainder, one
/// and several streams, taps in registers and in a ring, one pass over rows and two, blocks alone and together, every form.
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
        (8192, 3, Complex16, 19, Form::Spectra),
        (16384, 4, Complex8, 9, Form::Requantized { bits: 8, gains: vec![40.0] }),
    ];
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
        // An emulated GPU takes them all.
        check(&mut random, &plan, &recording, 0);
    }
}

/// The reference in f64, before its rows are narrowed, against this file's own sums.
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

/// What is not finite spoils the spectra that have it under their window, and no others.
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
