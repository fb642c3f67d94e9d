//! Dedispersion on a GPU against the equation: plans of all encodings, arbitrary splits of the stream, dirty outputs.

#[path = "common/cuda.rs"]
mod cuda;
#[path = "common/random.rs"]
mod random;

use random::Random;
use sidereal::backend::Backend;
use sidereal::backend::cuda::{Device, Plane, PlaneKind};
use sidereal::backend::threads::Threads;
use sidereal::dedisperse::{Dedisperser, Options, Output, Plan};
use sidereal::sample::{Encoding, Samples};
use sidereal::units::{Band, DM_CONSTANT, dispersion_delay_s};
use sidereal::view::{PlaneMut, Progress};

const GUARD: u32 = 0xa5a5_a5a5;

/// A plan and the length of its data.
struct Case {
    options: Options,
    times: usize,
    seed: u64,
}

/// A band of `channels` with a delay of `longest` samples at the highest of `dms` trials.
fn case(encoding: Encoding, (channels, dms): (usize, usize), longest: f64, times: usize) -> Case {
    let band = Band::uniform(1400.0, -280.0 / channels as f64, channels).unwrap();
    let dms: Vec<f64> = (0..dms).map(|i| 3.0 + 0.7 * i as f64).collect();
    let most = dms[dms.len() - 1];
    let delay = dispersion_delay_s(most, band.lowest_hz(), band.highest_hz(), DM_CONSTANT);
    let options = Options {
        band,
        tsamp_s: (delay / (longest + 0.3)).max(1e-9),
        dms,
        downsample: 1,
        encoding,
        range: None,
        masked: Vec::new(),
        dm_constant: DM_CONSTANT,
    };
    Case { options, times, seed: 1 + longest as u64 + channels as u64 }
}

fn bytes(case: &Case) -> Vec<u8> {
    let options = &case.options;
    let len = options.band.channels() * options.encoding.bits() / 8 * case.times;
    let mut random = Random::new(case.seed);
    if options.encoding == Encoding::F32 {
        let float = |_| ((random.bits() >> 40) as f32 / 4096.0 - 2048.0).to_le_bytes();
        return (0..len / 4).flat_map(float).collect();
    }
    (0..len).map(|_| (random.bits() >> 13) as u8).collect()
}

/// Calls `work` with a dirty output between guard words, and appends its output.
fn with_output(
    (dms, width, is_integer): (usize, usize, bool),
    rows: &mut [Vec<u32>],
    work: impl FnOnce(Output<'_>) -> sidereal::Result<Progress>,
) -> Progress {
    let mut buffer = vec![GUARD; dms * width + 2];
    let inner = &mut buffer[1..=dms * width];
    let output = if is_integer {
        Output::I32(PlaneMut::new(bytemuck::cast_slice_mut(inner), dms, width).unwrap())
    } else {
        Output::F32(PlaneMut::new(bytemuck::cast_slice_mut(inner), dms, width).unwrap())
    };
    let done = work(output).unwrap();
    assert_eq!((buffer[0], buffer[dms * width + 1]), (GUARD, GUARD));
    for (row, found) in rows.iter_mut().zip(buffer[1..=dms * width].chunks(width)) {
        assert!(found[done.produced..].iter().all(|word| *word == GUARD), "past `produced`");
        row.extend(&found[..done.produced]);
    }
    done
}

/// Streams a case through host memory, in gulps and outputs of at most the given number of times.
fn stream(
    case: &Case,
    plan: &Plan,
    backend: &Backend,
    (gulp, width): (usize, usize),
) -> Vec<Vec<u32>> {
    let bytes = bytes(case);
    let samples = Samples::new(&bytes, plan.encoding(), case.times, plan.channels()).unwrap();
    let mut dedisperser = Dedisperser::new(plan.clone(), backend).unwrap();
    let mut random = Random::new(case.seed);
    let mut rows = vec![Vec::new(); plan.dms().len()];
    let (dms, is_integer) = (plan.dms().len(), plan.output_is_integer());
    let mut taken = 0;
    while taken < case.times {
        let times = (1 + random.below(gulp)).min(case.times - taken);
        let sizes = (dms, 1 + random.below(width), is_integer);
        let input = samples.slice(taken, times);
        taken += with_output(sizes, &mut rows, |output| dedisperser.run(input, output)).consumed;
    }
    loop {
        let sizes = (dms, 1 + random.below(width), is_integer);
        let done = with_output(sizes, &mut rows, |output| dedisperser.flush(output));
        if done.produced == 0 {
            return rows;
        }
    }
}

/// Streams a case in device memory into a plane on the device.
fn enqueued(case: &Case, plan: &Plan, device: &Device, gulp: usize) -> Vec<Vec<u32>> {
    let skipped = 3;
    let mut padded = vec![0xff; skipped];
    padded.extend(bytes(case));
    let input = device.upload(&padded).unwrap();
    let row_bytes = plan.channels() * plan.encoding().bits() / 8;
    let stream = device.stream().unwrap();
    let backend = Backend::Cuda(device.clone(), Threads::new(1));
    let mut dedisperser = Dedisperser::new(plan.clone(), &backend).unwrap();
    let kind = if plan.output_is_integer() { PlaneKind::I32 } else { PlaneKind::F32 };
    let dms = plan.dms().len();
    let stride = gulp + 5;
    let mut plane = Plane::new(device, kind, dms, stride).unwrap();
    let mut rows = vec![Vec::new(); dms];
    let mut words = vec![GUARD; dms * stride];
    let mut taken = 0;
    loop {
        stream.fill(&mut plane.words, 0..dms * stride, GUARD as u8).unwrap();
        let times = gulp.min(case.times - taken);
        let first_byte = skipped + taken * row_bytes;
        let done = if times > 0 {
            dedisperser.enqueue(&input, first_byte, times, &mut plane, &stream).unwrap()
        } else {
            dedisperser.enqueue_flush(&mut plane, &stream).unwrap()
        };
        taken += done.consumed;
        plane.words.download(0, &mut words).unwrap();
        for (row, found) in rows.iter_mut().zip(words.chunks(stride)) {
            assert!(found[done.produced..].iter().all(|word| *word == GUARD), "past `produced`");
            row.extend(&found[..done.produced]);
        }
        if times == 0 && done.produced == 0 {
            return rows;
        }
    }
}

/// Checks a case on every GPU: integers equal the reference's bits, floats stay within the bound, and all methods of
/// streaming give the same bits.
fn check(case: &Case) {
    let devices = cuda::devices(2);
    if devices.is_empty() {
        return;
    }
    let plan = Plan::new(case.options.clone()).unwrap();
    let truth = stream(case, &plan, &Backend::Reference, (case.times, case.times));
    for (backend, device) in devices {
        let rows = stream(case, &plan, &backend, (case.times, 2 * case.times));
        if plan.output_is_integer() {
            assert_same(&rows, &truth, case);
        } else {
            assert_near(&rows, &truth, &plan);
        }
        let cut = stream(case, &plan, &backend, (case.times / 3 + 1, case.times / 2 + 1));
        assert_same(&cut, &rows, case);
        assert_same(&enqueued(case, &plan, &device, case.times / 2 + 1), &rows, case);
    }
}

fn assert_same(rows: &[Vec<u32>], truth: &[Vec<u32>], case: &Case) {
    for (dm, (row, truth)) in rows.iter().zip(truth).enumerate() {
        assert_eq!(row.len(), truth.len(), "{:?}: length of trial {dm}", case.options.encoding);
        let differs = row.iter().zip(truth).position(|(a, b)| a != b);
        if let Some(time) = differs {
            let (found, expected) = (row[time] as i32, truth[time] as i32);
            panic!("{:?}: trial {dm} time {time}: {found}, not {expected}", case.options.encoding);
        }
    }
}

/// Values lie within +-2048, and the reference rounds once more.
fn assert_near(rows: &[Vec<u32>], truth: &[Vec<u32>], plan: &Plan) {
    let samples = (plan.channels_used().len() * plan.downsample()) as f64;
    let bound = 2f64.powi(-24) * samples * 2048.0 * samples;
    for (dm, (row, truth)) in rows.iter().zip(truth).enumerate() {
        assert_eq!(row.len(), truth.len(), "length of trial {dm}");
        for (time, (a, b)) in row.iter().zip(truth).enumerate() {
            let (a, b) = (f64::from(f32::from_bits(*a)), f64::from(f32::from_bits(*b)));
            assert!((a - b).abs() <= bound, "trial {dm} time {time}: {a}, not {b}");
        }
    }
}

#[test]
fn fixed_subset_dedisperse() {
    // A whole tile of trials and of times, and a remainder in each axis.
    for encoding in Encoding::ALL {
        check(&case(encoding, (40, 67), 50.0, 640));
    }
}

#[test]
fn sums_over_times_ranges_and_masks() {
    for (encoding, downsample, range) in [
        (Encoding::U1, 7, None),
        (Encoding::U2, 100, None),
        (Encoding::U4, 3, Some((2, 11))),
        (Encoding::U8, 2, Some((10, 100))),
        (Encoding::U8, 300, None),
        (Encoding::I8, 5, Some((-100, 20))),
        (Encoding::U16, 2, Some((70, 120))),
        (Encoding::I16, 3, Some((-3000, 30000))),
        (Encoding::F32, 4, None),
    ] {
        let mut case = case(encoding, (24, 9), 30.0, 150 * downsample);
        case.options.downsample = downsample;
        case.options.tsamp_s /= downsample as f64;
        case.options.range = range;
        case.options.masked = (0..24).map(|c| c % 5 == 2 || c > 20).collect();
        check(&case);
    }
}

#[test]
fn trials_in_any_order_and_large_shifts() {
    let mut far = case(Encoding::U8, (32, 40), 9000.0, 9500);
    far.options.dms.reverse();
    far.options.dms.swap(3, 20);
    far.options.dms[7] = 0.0;
    check(&far);
    let mut upward = case(Encoding::I16, (17, 5), 400.0, 600);
    upward.options.band = Band::uniform(300.0, 2.0, 17).unwrap();
    check(&upward);
    check(&case(Encoding::F32, (3, 66), 0.0, 300));
    check(&case(Encoding::U8, (1, 1), 0.0, 20));
}
