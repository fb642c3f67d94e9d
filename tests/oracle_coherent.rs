//! Every backend's dedispersed voltages equal the equation, within the documented bound of the stage, and any split of
//! a stream gives the same.

#[path = "common/random.rs"]
mod random;

use std::sync::LazyLock;

use num_complex::Complex;
use proptest::prelude::*;
use random::Random;
use sidereal::backend::Backend;
use sidereal::backend::cuda::Device;
use sidereal::coherent::{Dedisperser, Options, Plan};
use sidereal::units::DM_CONSTANT;
use sidereal::voltage::{DeviceVoltages, VoltageBlock, VoltageEncoding, Voltages};

/// All variants of the host, with several threads, and all GPUs.
static BACKENDS: LazyLock<Vec<Backend>> = LazyLock::new(|| {
    let devices = Backend::available(2).into_iter().filter(Backend::is_gpu);
    Backend::variants(1).into_iter().chain(Backend::variants(3)).chain(devices).collect()
});

/// Recorded bytes of each stream.
struct Recording {
    rows: Vec<u8>,
    times: usize,
}

impl Recording {
    fn new(plan: &Plan, times: usize, random: &mut Random) -> Self {
        let encoding = plan.options().encoding;
        let bytes = plan.options().streams() * encoding.bytes(times);
        let is_float = matches!(encoding, VoltageEncoding::ComplexF32 | VoltageEncoding::RealF32);
        let rows = match is_float {
            true => (0..bytes / 4)
                .flat_map(|_| (10.0 * random.gaussian() as f32).to_le_bytes())
                .collect(),
            false => (0..bytes).map(|_| random.bits() as u8).collect(),
        };
        Self { rows, times }
    }

    fn view(&self, plan: &Plan) -> Voltages<'_> {
        let (encoding, streams) = (plan.options().encoding, plan.options().streams());
        Voltages::new(&self.rows, encoding, streams, encoding.bytes(self.times), self.times)
            .unwrap()
    }

    /// Root mean square of all samples.
    fn deviation(&self, plan: &Plan) -> f64 {
        let (view, streams) = (self.view(plan), plan.options().streams());
        let all = (0..streams).flat_map(|s| (0..self.times).map(move |t| (s, t)));
        let sum: f64 = all.map(|(s, t)| view.value(s, t).norm_sqr()).sum();
        (sum / (streams * self.times) as f64).sqrt()
    }
}

/// Samples of all output streams, each joined over the calls.
type Rows = Vec<Vec<u8>>;

/// Adds the samples of a block to those before.
fn add(rows: &mut Rows, voltages: Voltages<'_>) {
    rows.iter_mut().enumerate().for_each(|(stream, row)| row.extend(voltages.row(stream)));
}

/// Dedisperses from output sample `first` on, in calls of at most `most` samples and blocks.
fn run(
    plan: &Plan,
    backend: &Backend,
    recording: &Recording,
    first: u64,
    most: [usize; 2],
) -> Rows {
    let mut dedisperser = Dedisperser::new(plan.clone(), backend).unwrap();
    let start = plan.start(first);
    dedisperser.reset(start);
    let mut rows = vec![Vec::new(); plan.output_streams()];
    let rest = recording.times - start.input as usize;
    let view = recording.view(plan).slice(start.input as usize, rest).unwrap();
    if let Backend::Cuda(device, _) = backend {
        on_device(&mut dedisperser, device, view, most, &mut rows);
        return rows;
    }
    let (encoding, streams) = (plan.output_encoding(), plan.output_streams());
    let mut block = VoltageBlock::new(encoding, streams, most[1] * plan.block());
    let mut used = 0;
    while used < view.times() {
        let part = view.slice(used, most[0].min(view.times() - used)).unwrap();
        let progress = dedisperser.run(part, &mut block).unwrap();
        assert!(progress.consumed + progress.produced > 0);
        used += progress.consumed;
        add(&mut rows, block.voltages());
    }
    while dedisperser.flush(&mut block).unwrap() > 0 {
        add(&mut rows, block.voltages());
    }
    rows
}

fn on_device(
    dedisperser: &mut Dedisperser,
    device: &Device,
    view: Voltages<'_>,
    most: [usize; 2],
    rows: &mut Rows,
) {
    let plan = dedisperser.plan().clone();
    let stream = device.stream().unwrap();
    let (encoding, streams) = (plan.output_encoding(), plan.output_streams());
    let stride = encoding.bytes(most[1] * plan.block()) + 16;
    let mut output = device.upload(&vec![0u8; streams * stride]).unwrap();
    let mut take = |output: &_, times: usize| {
        let mut bytes = vec![0u8; streams * stride];
        sidereal::backend::cuda::Buffer::download(output, 0, &mut bytes).unwrap();
        add(rows, Voltages::new(&bytes, encoding, streams, stride, times).unwrap());
    };
    let mut used = 0;
    while used < view.times() {
        let part = view.slice(used, most[0].min(view.times() - used)).unwrap();
        let row = part.row(0).len().next_multiple_of(8);
        let (first_byte, mut bytes) = (32, vec![0xa5u8; 32 + part.streams() * row]);
        for stream in 0..part.streams() {
            bytes[first_byte + stream * row..][..part.row(stream).len()]
                .copy_from_slice(part.row(stream));
        }
        let input = device.upload(&bytes).unwrap();
        let layout = DeviceVoltages { first_byte, stride: row, times: part.times() };
        let progress = dedisperser.enqueue(&input, layout, &mut output, stride, &stream).unwrap();
        assert!(progress.consumed + progress.produced > 0);
        used += progress.consumed;
        take(&output, progress.produced);
    }
    loop {
        let times = dedisperser.enqueue_flush(&mut output, stride, &stream).unwrap();
        if times == 0 {
            return;
        }
        take(&output, times);
    }
}

fn values(row: &[u8], encoding: VoltageEncoding) -> Vec<Complex<f64>> {
    let view = Voltages::one(row, encoding).unwrap();
    (0..view.times()).map(|time| view.value(0, time)).collect()
}

/// Checks the rows against those of the reference.
fn check(name: &str, plan: &Plan, found: &Rows, expected: &Rows, deviation: f64) {
    let bound = (plan.points() as f64).log2() / f64::from(1 << 20) * deviation;
    for (stream, (found, expected)) in found.iter().zip(expected).enumerate() {
        assert_eq!(found.len(), expected.len(), "{name}: stream {stream}");
        let encoding = plan.output_encoding();
        let pairs = values(found, encoding).into_iter().zip(values(expected, encoding));
        for (time, (found, expected)) in pairs.enumerate() {
            let error = (found - expected).norm();
            assert!(error <= bound, "{name}: {stream} at {time}: off by {error:e}, not {bound:e}");
        }
    }
}

#[derive(Clone, Debug)]
struct Case {
    encoding: VoltageEncoding,
    antennas: usize,
    coarse_channels: usize,
    polarizations: usize,
    lower_sideband: bool,
    channels: usize,
    dm: f64,
    times: usize,
    seed: u64,
}

fn cases() -> impl Strategy<Value = Case> {
    let sizes = (1usize..3, 1usize..4, 1usize..3);
    let encoding = (0..VoltageEncoding::ALL.len()).prop_map(|at| VoltageEncoding::ALL[at]);
    // Windows of 4096 and 8192 samples.
    let dm = prop_oneof![Just(0.0), 1.0f64..2000.0, 4000.0f64..5500.0];
    let numbers = (any::<bool>(), 1usize..20, dm, 1usize..9000, any::<u64>());
    (sizes, encoding, numbers).prop_map(|(sizes, encoding, numbers)| {
        let (antennas, coarse_channels, polarizations) = sizes;
        let (lower_sideband, channels, dm, times, seed) = numbers;
        let times = times.next_multiple_of(encoding.group_samples());
        Case {
            encoding,
            antennas,
            coarse_channels,
            polarizations,
            lower_sideband,
            channels,
            dm,
            times,
            seed,
        }
    })
}

fn plan(case: &Case, random: &mut Random) -> Plan {
    let tsamp_s = 1e-6;
    let width = if case.encoding.is_complex() { 1e6 } else { 5e5 };
    // Recorded channels in any order.
    let mut centres_hz: Vec<f64> =
        (0..case.coarse_channels).map(|c| 1.4e9 + c as f64 * width).collect();
    centres_hz.rotate_left(random.below(case.coarse_channels));
    let spacing = width / case.channels as f64;
    let offset = |c: usize| c as f64 * spacing - 0.5 * width;
    Plan::new(Options {
        dm: case.dm * (case.channels as f64 / 16.0).max(0.1),
        dm_constant: DM_CONSTANT,
        encoding: case.encoding,
        antennas: case.antennas,
        polarizations: case.polarizations,
        centres_hz,
        lower_sideband: case.lower_sideband,
        tsamp_s,
        offsets_hz: (0..case.channels).map(offset).collect(),
        ringing: case.channels,
        times: None,
    })
    .unwrap()
}

fn compare(case: &Case) {
    let mut random = Random::new(case.seed);
    let plan = plan(case, &mut random);
    let recording = Recording::new(&plan, case.times, &mut random);
    let deviation = recording.deviation(&plan);
    let all = [case.times, 4];
    let exact = run(&plan, &Backend::Reference, &recording, 0, all);
    let length = plan.output_encoding().bytes(case.times);
    assert!(exact.iter().all(|row| row.len() == length), "{case:?}");
    let mut host: Option<Rows> = None;
    for backend in BACKENDS.iter() {
        let name = format!("{case:?} on {}", backend.name());
        let whole = run(&plan, backend, &recording, 0, all);
        check(&name, &plan, &whole, &exact, deviation);
        let unit = case.encoding.group_samples();
        let parts = (1 + random.below(case.times)).next_multiple_of(unit);
        let split = run(&plan, backend, &recording, 0, [parts, 1 + random.below(2)]);
        // A start within the recording: the first sample may lie in any block.
        let first = random.below(case.times) as u64;
        let block = plan.start(first).output as usize;
        let later = run(&plan, backend, &recording, first, all);
        let tail = plan.output_encoding().bytes(block);
        let rest: Rows = whole.iter().map(|row| row[tail..].to_vec()).collect();
        if backend.is_gpu() {
            check(&name, &plan, &split, &exact, deviation);
            check(&name, &plan, &later, &rest, deviation);
            continue;
        }
        assert!(whole == split, "{name}: in parts of {parts}");
        assert!(later == rest, "{name}: from {first}");
        if !matches!(backend, Backend::Reference) {
            assert!(*host.get_or_insert_with(|| whole.clone()) == whole, "{name}: threads");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_backend_dedisperses_and_any_split_gives_the_same(case in cases()) {
        compare(&case);
    }
}

#[test]
fn fixed_subset_of_every_encoding() {
    for (index, encoding) in VoltageEncoding::ALL.into_iter().enumerate() {
        compare(&Case {
            encoding,
            antennas: 1 + index % 2,
            coarse_channels: 2,
            polarizations: 1 + (index + 1) % 2,
            lower_sideband: index % 3 == 0,
            channels: 16,
            dm: 300.0,
            times: 7004,
            seed: index as u64,
        });
    }
}

/// Multiplies a tone's phase by that of the equation, computed apart from the plan.
#[test]
fn a_tone_gets_the_phase_of_its_delay() {
    let (centre, dm, channels) = (1.4e9, 200.0, 8);
    let offsets_hz: Vec<f64> = (0..channels).map(|c| (f64::from(c) - 4.0) * 1.25e5).collect();
    let plan = Plan::new(Options {
        dm,
        dm_constant: DM_CONSTANT,
        encoding: VoltageEncoding::ComplexF32,
        antennas: 1,
        polarizations: 1,
        centres_hz: vec![centre],
        lower_sideband: false,
        tsamp_s: 1e-6,
        offsets_hz: offsets_hz.clone(),
        ringing: 8,
        times: None,
    })
    .unwrap();
    let tau = std::f64::consts::TAU;
    // 0.4 of a channel's width from the centres of an even and of an odd channel.
    for (copy, channel) in [(0, 2), (1, 5)] {
        let offset = offsets_hz[channel] + 0.05e6;
        let tone = |n: usize| Complex::cis(tau * (offset * n as f64 * 1e-6).fract());
        let samples = (0..20_000).map(tone).flat_map(|z| [z.re as f32, z.im as f32]);
        let recording =
            Recording { rows: samples.flat_map(f32::to_le_bytes).collect(), times: 20_000 };
        let rows = run(&plan, &Backend::best(1), &recording, 0, [20_000, 4]);
        let row = values(&rows[copy], VoltageEncoding::ComplexF32);
        let (f, f0) = ((centre + offset) / 1e6, (centre + offsets_hz[channel]) / 1e6);
        let turns = 1e6 * DM_CONSTANT * dm * (f - f0).powi(2) / (f * f0 * f0);
        let expected = tone(10_000) * Complex::cis(-tau * turns);
        assert!(turns.abs() > 0.1, "{turns}");
        let error = (row[10_000] - expected).norm();
        assert!(error < 2e-3, "{copy}: {error}");
    }
}
