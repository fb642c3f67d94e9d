//! Dedispersion: every variant equals the equation, on random plans, streams and data.

use proptest::prelude::*;
use sidereal::backend::Backend;
use sidereal::backend::simd::Level;
use sidereal::backend::threads::Threads;
use sidereal::dedisperse::{Dedisperser, Options, Output, Plan};
use sidereal::sample::{Encoding, Samples};
use sidereal::units::{Band, DM_CONSTANT, dispersion_delay_s};
use sidereal::view::PlaneMut;

const GUARD: i32 = -0x5a5a_5a5a;

/// A small generator of our own, so that data do not depend on the version of a library.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }
}

#[derive(Clone, Debug)]
struct Case {
    options: Options,
    times: usize,
    seed: u64,
}

fn case() -> impl Strategy<Value = Case> {
    let band = (1usize..12, 150.0..2000.0f64, 0.0005..0.5f64, any::<bool>());
    let trials = (1usize..60, 0.0..30.0f64, 0.01..4.0f64, 1usize..=16);
    let rest = (0..Encoding::ALL.len(), any::<bool>(), 0usize..3, 1usize..5000, any::<u64>());
    (band, trials, rest).prop_map(|(band, trials, rest)| make(band, trials, rest))
}

fn make(
    (eighths, low_mhz, relative_width, descending): (usize, f64, f64, bool),
    (dms, dm_min, dm_step, downsample): (usize, f64, f64, usize),
    (encoding, narrow, masking, times, seed): (usize, bool, usize, usize, u64),
) -> Case {
    let mut random = Random(seed);
    let channels = eighths * 8 * [1, 1, 3][random.below(3)];
    let step = low_mhz * relative_width / channels as f64;
    let band = if descending {
        Band::uniform(low_mhz + step * channels as f64, -step, channels)
    } else {
        Band::uniform(low_mhz, step, channels)
    };
    let band = band.unwrap();
    let dms: Vec<f64> = (0..dms).map(|i| dm_min + i as f64 * dm_step).collect();
    // Scales the longest delay to the given number of output samples.
    let longest = [0.0, 3.0, 70.0, 700.0, 3000.0][random.below(5)] + 0.3;
    let most = dms[dms.len() - 1].max(1.0);
    let delay = dispersion_delay_s(most, band.lowest_hz(), band.highest_hz(), DM_CONSTANT);
    let tsamp_s = (delay / longest).max(1e-9) / downsample as f64;
    let masked = match masking {
        0 => Vec::new(),
        1 => (0..channels).map(|c| c % 7 == 3).collect(),
        _ => (0..channels).map(|c| c != 5 && random.below(3) > 0).collect(),
    };
    let encoding = Encoding::ALL[encoding];
    let range = if narrow { narrowed(encoding, &mut random) } else { None };
    let options = Options {
        band,
        tsamp_s,
        dms,
        downsample,
        encoding,
        range,
        masked,
        dm_constant: DM_CONSTANT,
    };
    Case { options, times, seed }
}

fn narrowed(encoding: Encoding, random: &mut Random) -> Option<(i32, i32)> {
    let (low, high) = encoding.range()?;
    let span = (high - low + 1) as usize;
    let a = low + random.below(span) as i32;
    let b = low + random.below(span) as i32;
    Some((a.min(b), a.max(b)))
}

fn data(case: &Case) -> Vec<u8> {
    let options = &case.options;
    let bytes = options.band.channels() * options.encoding.bits() / 8 * case.times;
    let mut random = Random(case.seed ^ 1);
    if options.encoding == Encoding::F32 {
        let float = |_| ((random.next() >> 40) as f32 / 4096.0 - 2048.0).to_le_bytes();
        return (0..bytes / 4).flat_map(float).collect();
    }
    (0..bytes).map(|_| random.next() as u8).collect()
}

/// The equation, straight from the band, over a whole input: sums and sums of magnitudes.
fn truth(case: &Case, samples: Samples<'_>) -> Vec<Vec<(f64, f64)>> {
    let options = &case.options;
    let bin = options.downsample;
    let times = case.times / bin;
    let channels = options.band.channels();
    let range = options.range.or(options.encoding.range());
    let mut binned = vec![(0.0, 0.0); times * channels];
    for (i, sum) in binned.iter_mut().enumerate() {
        for k in 0..bin {
            let value = samples.value(i / channels * bin + k, i % channels);
            let clamp = |(low, high)| value.clamp(f64::from(low), f64::from(high));
            let value: f64 = range.map_or(value, clamp);
            *sum = (sum.0 + value, sum.1 + value.abs());
        }
    }
    let used: Vec<usize> =
        (0..channels).filter(|c| options.masked.get(*c) != Some(&true)).collect();
    let trial = |dm: &f64| {
        let shift = |c: &usize| {
            let (f, top) = (options.band.centres_hz()[*c], options.band.highest_hz());
            let delay = dispersion_delay_s(*dm, f, top, options.dm_constant);
            (delay / (options.tsamp_s * bin as f64)).round_ties_even() as usize
        };
        let shifts: Vec<usize> = used.iter().map(shift).collect();
        let longest = shifts.iter().copied().max().unwrap();
        let sum = |t: usize| {
            let terms = used.iter().zip(&shifts).map(|(c, s)| binned[(t + s) * channels + c]);
            terms.fold((0.0, 0.0), |sum, term| (sum.0 + term.0, sum.1 + term.1))
        };
        (0..times.saturating_sub(longest)).map(sum).collect()
    };
    options.dms.iter().map(trial).collect()
}

/// Streams the data in random gulps into random output widths; returns rows as bits.
fn stream(plan: &Plan, backend: &Backend, samples: Samples<'_>, seed: u64) -> Vec<Vec<u32>> {
    let mut random = Random(seed);
    let mut dedisperser = Dedisperser::new(plan.clone(), backend).unwrap();
    if random.below(4) == 0 && samples.times() > 3 {
        // A previous stream leaves no state.
        run(&mut dedisperser, samples.slice(0, samples.times() / 3), &mut random, &mut []);
        dedisperser.reset();
    }
    let mut rows = vec![Vec::new(); plan.dms().len()];
    run(&mut dedisperser, samples, &mut random, &mut rows);
    loop {
        let width = 1 + random.below(900);
        let done = with_output(&mut dedisperser, width, &mut rows, |d, output| d.flush(output));
        if done.produced == 0 {
            return rows;
        }
    }
}

fn run(
    dedisperser: &mut Dedisperser,
    samples: Samples<'_>,
    random: &mut Random,
    rows: &mut [Vec<u32>],
) {
    let largest = [3, 100, 10000][random.below(3)];
    let mut taken = 0;
    while taken < samples.times() {
        let gulp = (1 + random.below(largest)).min(samples.times() - taken);
        let bound = dedisperser.plan().max_output(gulp);
        let width = if random.below(2) == 0 { bound } else { 1 + random.below(bound + 5) };
        let input = samples.slice(taken, gulp);
        let done = with_output(dedisperser, width, rows, |d, output| d.run(input, output));
        assert!(done.produced <= bound && done.consumed <= gulp);
        if width >= bound {
            assert_eq!(done.consumed, gulp, "output was wide enough");
        }
        taken += done.consumed;
    }
}

/// Calls `work` with a dirty output between guard words, and appends its output.
fn with_output(
    dedisperser: &mut Dedisperser,
    width: usize,
    rows: &mut [Vec<u32>],
    work: impl FnOnce(&mut Dedisperser, Output<'_>) -> sidereal::Result<sidereal::view::Progress>,
) -> sidereal::view::Progress {
    let dms = dedisperser.plan().dms().len();
    let mut buffer = vec![GUARD; dms * width + 2];
    let inner = &mut buffer[1..=dms * width];
    let done = if dedisperser.plan().output_is_integer() {
        work(dedisperser, Output::I32(PlaneMut::new(inner, dms, width).unwrap())).unwrap()
    } else {
        let floats = bytemuck::cast_slice_mut(inner);
        work(dedisperser, Output::F32(PlaneMut::new(floats, dms, width).unwrap())).unwrap()
    };
    assert_eq!((buffer[0], buffer[dms * width + 1]), (GUARD, GUARD));
    for (dm, row) in buffer[1..=dms * width].chunks(width).enumerate() {
        assert!(row[done.produced..].iter().all(|x| *x == GUARD), "written past `produced`");
        if let Some(rows) = rows.get_mut(dm) {
            rows.extend(row[..done.produced].iter().map(|x| *x as u32));
        }
    }
    done
}

/// An emulated GPU gets small cases only.
fn is_fast_enough(case: &Case, backend: &Backend) -> bool {
    let adds = case.options.band.channels() * case.options.dms.len() * case.times;
    adds < 400_000 || !backend.name().contains("Emulated")
}

fn check(case: &Case) {
    let Ok(plan) = Plan::new(case.options.clone()) else {
        // 16-bit values of many channels and a large bin may exceed 32 bits: rejected, not wrapped.
        assert!(case.options.encoding.bits() == 16);
        return;
    };
    let bytes = data(case);
    let channels = case.options.band.channels();
    let samples = Samples::new(&bytes, case.options.encoding, case.times, channels).unwrap();
    let truth = truth(case, samples);
    let mut first: Option<Vec<Vec<u32>>> = None;
    for threads in 1..=3 {
        let pool = Threads::new(threads);
        for level in Level::available() {
            let backend = Backend::Cpu(level, pool.clone());
            let rows = stream(&plan, &backend, samples, case.seed + threads as u64);
            compare(case, &plan, &rows, &truth, &backend.name());
            match &first {
                Some(first) => assert!(*first == rows, "bits differ: {}", backend.name()),
                None => first = Some(rows),
            }
        }
    }
    let others = Backend::available(1).into_iter();
    let others = others.filter(|b| b.is_gpu() || matches!(b, Backend::Reference));
    for backend in others.filter(|b| is_fast_enough(case, b)) {
        let rows = stream(&plan, &backend, samples, case.seed);
        compare(case, &plan, &rows, &truth, &backend.name());
    }
}

fn compare(case: &Case, plan: &Plan, rows: &[Vec<u32>], truth: &[Vec<(f64, f64)>], name: &str) {
    let longest = truth.iter().map(Vec::len).max().unwrap();
    let samples = (plan.channels_used().len() * plan.downsample()) as f64;
    for (dm, (row, truth)) in rows.iter().zip(truth).enumerate() {
        assert_eq!(row.len(), longest, "{name}: length of trial {dm}");
        assert_eq!(plan.valid_times(case.times as u64, dm), truth.len() as u64);
        for (t, bits) in row.iter().enumerate() {
            let Some((sum, magnitude)) = truth.get(t) else {
                assert_eq!(*bits, 0, "{name}: trial {dm} time {t} is past the data");
                continue;
            };
            if plan.output_is_integer() {
                assert_eq!(f64::from(*bits as i32), *sum, "{name}: trial {dm} time {t}");
            } else {
                let bound = 2f64.powi(-24) * samples * magnitude;
                let found = f64::from(f32::from_bits(*bits));
                assert!((found - sum).abs() <= bound, "{name}: {dm} {t}: {found} and {sum}");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_variant_is_the_equation(case in case()) {
        check(&case);
    }
}

/// A plan of one bit depth that looks like a telescope's, larger than the random ones.
fn telescope(encoding: Encoding, channels: usize, downsample: usize) -> Case {
    let options = Options {
        band: Band::uniform(1550.0, -300.0 / channels as f64, channels).unwrap(),
        tsamp_s: 64e-6 / downsample as f64,
        dms: (0..130).map(|i| 20.0 + 0.1 * f64::from(i)).collect(),
        downsample,
        encoding,
        range: None,
        masked: Vec::new(),
        dm_constant: DM_CONSTANT,
    };
    Case { options, times: 2500 * downsample, seed: 7 }
}

#[test]
fn every_encoding_and_bin_agrees_at_a_telescope_s_size() {
    for encoding in Encoding::ALL {
        check(&telescope(encoding, 264, 1));
        check(&telescope(encoding, 136, if encoding.bits() == 16 { 3 } else { 16 }));
    }
}

#[test]
fn shifts_are_rounded_delays_ties_to_even() {
    let case = telescope(Encoding::U8, 256, 1);
    let plan = Plan::new(case.options.clone()).unwrap();
    let band = &case.options.band;
    for (i, dm) in plan.dms().iter().enumerate() {
        for (c, f) in band.centres_hz().iter().enumerate() {
            let delay = dispersion_delay_s(*dm, *f, band.highest_hz(), DM_CONSTANT);
            let shift = (delay / plan.tsamp_s()).round_ties_even();
            assert_eq!(plan.shift(i, c) as f64, shift);
        }
    }
    // A delay of exactly 2.5 samples goes to 2, one of 3.5 to 4.
    let mut options = case.options;
    options.band = Band::from_centres(vec![2e6, 1e6], 1e6).unwrap();
    (options.dm_constant, options.tsamp_s) = (1.0, 0.75);
    options.dms = vec![2.5, 3.5];
    let plan = Plan::new(options).unwrap();
    assert_eq!((plan.shift(0, 1), plan.shift(1, 1)), (2, 4));
}

#[test]
fn an_impulse_comes_out_where_its_trial_puts_it() {
    let mut case = telescope(Encoding::U8, 64, 1);
    case.times = 6000;
    let plan = Plan::new(case.options.clone()).unwrap();
    let mut bytes = vec![0u8; case.times * 64];
    for channel in 0..64 {
        bytes[(1000 + plan.shift(77, channel)) * 64 + channel] = 3;
    }
    let samples = Samples::u8(&bytes, case.times, 64).unwrap();
    let rows = stream(&plan, &Backend::best(2), samples, 1);
    assert_eq!(rows[77][1000], 3 * 64);
    assert_eq!(rows[77].iter().sum::<u32>(), 3 * 64);
    assert!(rows.iter().flatten().all(|x| *x <= 3 * 64));
}

#[test]
fn bad_options_name_themselves() {
    let good = telescope(Encoding::U8, 16, 1).options;
    let refused = |change: &dyn Fn(&mut Options)| {
        let mut options = good.clone();
        change(&mut options);
        Plan::new(options).unwrap_err().to_string()
    };
    assert!(refused(&|o| o.dms.clear()).contains("dms"));
    assert!(refused(&|o| o.dms[3] = -1.0).contains("dm is -1"));
    assert!(refused(&|o| o.dms[3] = f64::NAN).contains("NaN"));
    assert!(refused(&|o| o.dms[3] = 1e30).contains("2^30"));
    assert!(refused(&|o| o.tsamp_s = 0.0).contains("tsamp"));
    assert!(refused(&|o| o.downsample = 0).contains("downsample"));
    assert!(refused(&|o| o.downsample = 1 << 20).contains("2^31"));
    assert!(refused(&|o| o.masked = vec![true; 16]).contains("masked"));
    assert!(refused(&|o| o.masked = vec![true; 3]).contains("mask"));
    assert!(refused(&|o| o.range = Some((5, 4))).contains("5 .. 4"));
    assert!(refused(&|o| o.range = Some((0, 256))).contains("256"));
    assert!(refused(&|o| o.dm_constant = -1.0).contains("constant"));
}

#[test]
fn a_dedisperser_can_move_to_another_thread() {
    fn sendable<T: Send>(_: &T) {}
    let plan = Plan::new(telescope(Encoding::U8, 16, 1).options).unwrap();
    for backend in Backend::available(1) {
        sendable(&Dedisperser::new(plan.clone(), &backend).unwrap());
    }
}
