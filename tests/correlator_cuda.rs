//! A correlation on a GPU gives the CPU's visibilities, for any recording, flags, tracking and gulp.
//!
//! Voltages that are multiplied as recorded give equal sums. All others may round differently for values half way
//! between two integers, or differ by the error of single precision.

use std::sync::RwLock;

use num_complex::Complex;
use sidereal::backend::Backend;
use sidereal::backend::cuda::{Buffer, Device};
use sidereal::backend::threads::Threads;
use sidereal::geometry::DelayPolynomial;
use sidereal::io::voltages::{Flag, VoltageHeader};
use sidereal::pipeline::correlator::{
    ArrayCorrelator, CorrelateOptions, Gains, Integration, PhaseCentre, Summary,
};
use sidereal::voltage::VoltageEncoding;

#[path = "correlator/array.rs"]
mod array;
#[path = "common/cuda.rs"]
mod cuda;
#[path = "voltage/memory.rs"]
mod memory;
#[path = "common/random.rs"]
mod random;

use VoltageEncoding::{Complex8, Complex16, ComplexF32, Real8, Real16};
use array::{drain, inputs, polynomial, recording};
use memory::{Memory, noise};
use random::Random;

/// Serializes the tests, since one fills nearly all device memory.
static DEVICE: RwLock<()> = RwLock::new(());

/// Antennas.
const ANTENNAS: usize = 3;

/// Channels of a recorded channel.
const CHANNELS: usize = 16;

/// Case: a recording and the settings of its correlation.
struct Scene {
    recordings: Vec<Memory>,
    /// None: no delays.
    delays: Option<Vec<DelayPolynomial>>,
    options: CorrelateOptions,
}

impl Scene {
    /// Noise partly common to all antennas, of two recorded channels.
    fn new(encoding: VoltageEncoding, polarizations: usize, times: usize) -> Self {
        let header = VoltageHeader { polarizations, ..memory::header(&[21.0, 20.0], encoding) };
        let own = |antenna| {
            recording(&header, antenna, times, |stream, time| {
                (noise(100 + stream, time) + noise(10 * antenna + stream, time)) * 20.0
            })
        };
        let options = CorrelateOptions { integration_s: 1.1e-3, ..CorrelateOptions::new(CHANNELS) };
        Self { recordings: (0..ANTENNAS).map(own).collect(), delays: None, options }
    }

    /// Delays that are constant, and rise and fall by whole samples every few dozen spectra.
    fn tracked(self) -> Self {
        let header = &self.recordings[0].header;
        let samples = |count: f64| count * header.tsamp_s;
        let rate = |spectra: f64| 1.0 / (spectra * CHANNELS as f64);
        let delays = vec![
            polynomial(header.start, &[samples(0.4)]),
            polynomial(header.start, &[samples(3.3), rate(90.0), 0.3 * rate(60.0) / 0.05]),
            polynomial(header.start, &[samples(-5.7), -rate(70.0)]),
        ];
        Self { delays: Some(delays), ..self }
    }

    /// Marks the start of one antenna and a part of one polarization of another as missing.
    fn flagged(mut self) -> Self {
        let last = self.recordings[0].header.streams();
        self.recordings[1].flags = vec![
            Flag { streams: 0..1, start: 0, times: 300 },
            Flag { streams: last - 1..last, start: 1900, times: 40 },
        ];
        self.recordings[2].flags = vec![Flag { streams: 0..last, start: 0, times: 900 }];
        self
    }

    fn with(self, change: impl FnOnce(&mut CorrelateOptions)) -> Self {
        let mut options = self.options.clone();
        change(&mut options);
        Self { options, ..self }
    }

    fn run(&self, backend: &Backend, gulp: usize) -> (Vec<Integration>, Summary) {
        let mut inputs = inputs(&self.recordings);
        let mut antennas = 0;
        for input in &mut inputs {
            let own = input.source.header().antennas;
            input.antennas = (antennas..antennas + own).map(array::name).collect();
            antennas += own;
        }
        let array = array::array(antennas);
        let options = CorrelateOptions { gulp, ..self.options.clone() };
        let made = match &self.delays {
            Some(delays) => ArrayCorrelator::with_delays(&array, inputs, delays, &options, backend),
            None => ArrayCorrelator::new(&array, inputs, &options, backend),
        };
        let mut correlator = made.unwrap();
        let all = drain(&mut correlator);
        (all, correlator.summary())
    }

    /// Compares the visibilities of the GPU with those of the CPU, and those of other gulps with its own.
    fn check(&self, device: &Device, name: &str, is_exact: bool) {
        let gpu = Backend::Cuda(device.clone(), Threads::new(2));
        let (expected, host) = self.run(&Backend::best(2), 0);
        let (found, summary) = self.run(&gpu, 0);
        assert!(summary.made_on_device && !host.made_on_device, "{name}");
        assert_eq!(expected.len(), found.len(), "{name}");
        for (a, b) in expected.iter().zip(&found) {
            assert_eq!(a.counts, b.counts, "{name}: {}", a.number);
            if is_exact {
                assert_eq!(a.sums, b.sums, "{name}: {}", a.number);
            } else {
                self.compare(a, b, name);
            }
        }
        for (a, b) in host.antennas.iter().zip(&summary.antennas) {
            assert_eq!(a.masked, b.masked, "{name}");
            let off = (a.saturated - b.saturated).abs();
            assert!(off <= 2e-5 + 1e-3 * a.saturated, "{name}: {a:?} {b:?}");
        }
        // Single spectra only without a filter bank: an emulated GPU is slow.
        for gulp in if is_exact { [1, 50, 333] } else { [13, 50, 333] } {
            let (other, _) = self.run(&gpu, gulp);
            assert!(other == found, "{name}: gulp {gulp}");
        }
    }

    /// A few samples differ by one, and none by more.
    fn compare(&self, a: &Integration, b: &Integration, name: &str) {
        let pairs = a.sums.len() / a.counts.len();
        let channels = a.counts.len() / (ANTENNAS * (ANTENNAS + 1) / 2);
        let power = |antenna: usize, channel: usize, polarization: usize| {
            let row = antenna * (antenna + 3) / 2 * channels + channel;
            let own = &a.sums[row * pairs..(row + 1) * pairs];
            own[if polarization == 0 { 0 } else { pairs - 1 }].re.max(0.0)
        };
        let (mut row, mut others) = (0, 0);
        for i in 0..ANTENNAS {
            for j in 0..=i {
                for channel in 0..channels {
                    let cell = row * channels + channel;
                    // One sample of the count may differ by one count of the quantizer.
                    let part = match self.options.nbits {
                        32 => 2e-6,
                        _ => 4.0 / a.counts[cell].max(1) as f64,
                    };
                    for pair in 0..pairs {
                        let at = cell * pairs + pair;
                        let p = power(i, channel, pair / 2) * power(j, channel, pair % 2);
                        let off = (a.sums[at] - b.sums[at]).norm();
                        assert!(
                            off <= part * p.sqrt(),
                            "{name}: {i} {j} {channel} {pair}: {off} {p}"
                        );
                        others += usize::from(off > 1e-6 * p.sqrt());
                    }
                }
                row += 1;
            }
        }
        assert!(others * 20 <= a.sums.len(), "{name}: {others} of {} differ", a.sums.len());
    }
}

/// Channelized recordings without delays or gains are multiplied unchanged and give equal sums.
#[test]
fn fixed_subset_recorded_integers_are_exact() {
    let Some(device) = cuda::device() else { return };
    let _others = DEVICE.read();
    for (encoding, polarizations) in [(Complex8, 2), (ComplexF32, 1)] {
        let scene = Scene::new(encoding, polarizations, 300).flagged();
        let scene = scene.with(|options| {
            options.channelize = Some(false);
            options.integration_s = 101e-6;
            options.nbits = if encoding == ComplexF32 { 32 } else { 8 };
        });
        scene.check(&device, &format!("{encoding:?}"), encoding == Complex8);
    }
}

/// A drift scan: a filter bank, no delays.
#[test]
fn fixed_subset_a_drift_scan_is_the_processors() {
    let Some(device) = cuda::device() else { return };
    let _others = DEVICE.read();
    for (encoding, polarizations, nbits) in [(Complex8, 2, 8), (Real8, 1, 4), (Complex16, 2, 32)] {
        let scene = Scene::new(encoding, polarizations, 3000).flagged();
        let scene = scene.with(|options| options.nbits = nbits);
        scene.check(&device, &format!("{encoding:?} {polarizations} {nbits}"), false);
    }
}

/// Delays that change by many whole samples, at both sidebands.
#[test]
fn delays_that_change_are_the_processors() {
    let Some(device) = cuda::device() else { return };
    let _others = DEVICE.read();
    for (encoding, polarizations, nbits, lower) in
        [(Complex8, 2, 8, false), (Complex8, 1, 4, true), (ComplexF32, 2, 32, true)]
    {
        let mut scene = Scene::new(encoding, polarizations, 4000).tracked().flagged();
        for own in &mut scene.recordings {
            own.header.lower_sideband = lower;
        }
        let scene = scene.with(|options| options.nbits = nbits);
        scene.check(&device, &format!("{encoding:?} {nbits} {lower}"), false);
    }
}

/// Channelized voltages with delays or gains.
#[test]
fn channelized_voltages_that_are_delayed_are_the_processors() {
    let Some(device) = cuda::device() else { return };
    let _others = DEVICE.read();
    for (encoding, polarizations, nbits) in
        [(Complex8, 2, 8), (Complex16, 1, 4), (ComplexF32, 2, 32)]
    {
        let scene = Scene::new(encoding, polarizations, 400).tracked().flagged();
        let scene = scene.with(|options| {
            options.channelize = Some(false);
            options.integration_s = 90e-6;
            options.nbits = nbits;
        });
        scene.check(&device, &format!("{encoding:?} {nbits}"), false);
    }
}

/// Antennas of different encodings have separate filter banks; gains of a table are kept.
#[test]
fn antennas_of_unlike_encoding_share_the_device() {
    let Some(device) = cuda::device() else { return };
    let _others = DEVICE.read();
    let mut scene = Scene::new(Complex8, 2, 2500).tracked();
    let wide = Scene::new(Complex16, 2, 2500);
    scene.recordings[1] = wide.recordings[1].clone();
    let gain = |at: usize| Complex::from_polar(0.5 + 0.01 * (at % 5) as f32, 0.1 * at as f32);
    let gains = (0..2 * CHANNELS).map(gain).collect();
    let scene = scene.with(|options| options.gains = Gains::Table(gains));
    scene.check(&device, "unlike", false);
}

/// A source that is tracked, by the array's own geometry.
#[test]
fn a_tracked_source_is_the_processors() {
    let Some(device) = cuda::device() else { return };
    let _others = DEVICE.read();
    let scene = Scene::new(Complex8, 2, 2500).with(|options| {
        options.phase_centre =
            PhaseCentre::Sidereal { ra_deg: 128.8, dec_deg: -30.0, name: "there".into() };
        options.average_channels = 2;
    });
    scene.check(&device, "tracked", false);
}

/// If the device has no memory for spectra, the host computes them and the GPU multiplies.
#[test]
fn without_room_on_the_device_the_host_makes_spectra() {
    let Some(device) = cuda::device() else { return };
    let _alone = DEVICE.write();
    host_made_spectra_are_multiplied(&device, &Backend::Cuda(device.clone(), Threads::new(2)));
}

/// Several GPUs have a share of the channels of the host's spectra each.
#[test]
fn several_gpus_multiply_spectra_of_the_host() {
    let Some((_, all)) = cuda::several(2) else { return };
    let _alone = DEVICE.write();
    let Backend::Cuda(device, _) = &all else { unreachable!("a GPU") };
    host_made_spectra_are_multiplied(device, &all);
}

/// Fills the memory of the GPU that would compute the spectra, and compares the visibilities with those of the CPU.
fn host_made_spectra_are_multiplied(device: &Device, gpu: &Backend) {
    let spectra = 13_000;
    let scene = Scene::new(Complex8, 2, spectra * CHANNELS).flagged();
    let scene = scene.with(|options| {
        options.gulp = spectra;
        options.integration_s = 0.1;
    });
    let array = array::array(ANTENNAS);
    let room = device.free_bytes().unwrap();
    // The remaining memory suffices for the sums of the X-engine, not for the spectra of one antenna.
    let taken: Buffer<u8> = device.buffer(room - (10 << 20)).unwrap();
    let inputs = inputs(&scene.recordings);
    let mut correlator = ArrayCorrelator::new(&array, inputs, &scene.options, gpu).unwrap();
    drop(taken);
    let found = drain(&mut correlator);
    assert!(!correlator.summary().made_on_device);
    let (expected, _) = scene.run(&Backend::best(2), 0);
    // The same spectra, and exact sums of them.
    assert!(expected == found);
}

/// Returns a random correlation of up to six antennas, one or more in a recording.
fn random_scene(random: &mut Random) -> Scene {
    let is_real = random.below(4) == 0;
    let encodings = if is_real { &[Real8, Real16][..] } else { &[Complex8, Complex16, ComplexF32] };
    let channelized = !is_real && random.below(3) == 0;
    let polarizations = 1 + random.below(2);
    let coarse: &[f64] = [&[21.0][..], &[21.0, 20.0], &[23.0, 22.0, 21.0]][random.below(3)];
    let times = if channelized { 150 + random.below(200) } else { 1500 + random.below(1500) };
    let alike = random.below(2) == 0;
    let (mut recordings, mut delays) = (Vec::new(), Vec::new());
    for recording in 0..1 + random.below(4) {
        let encoding = if alike { encodings[0] } else { encodings[random.below(encodings.len())] };
        let antennas = 1 + random.below(2);
        let header = VoltageHeader { polarizations, antennas, ..memory::header(coarse, encoding) };
        let mut own = array::recording(&header, recording, times, |stream, time| {
            let common = stream % (coarse.len() * polarizations);
            (noise(100 + common, time) + noise(20 * recording + stream, time)) * 20.0
        });
        for _ in 0..random.below(3) {
            let (first, start) = (random.below(header.streams()), random.below(times) as u64);
            let times = (random.below(times / 4) as u64).min(times as u64 - start);
            own.flags.push(Flag { streams: first..first + 1, start, times });
        }
        recordings.push(own);
        for _ in 0..antennas {
            let samples = 8.0 * (random.uniform() - 0.5) * header.tsamp_s;
            let rate = 0.02 * (random.uniform() - 0.5);
            delays.push(polynomial(header.start, &[samples, rate]));
        }
    }
    let mut options = CorrelateOptions::new(CHANNELS);
    options.channelize = Some(!channelized);
    let spectra = if channelized { times } else { times / CHANNELS - 16 } as f64;
    let spectrum_s = if channelized { 1e-6 } else { CHANNELS as f64 * 1e-6 };
    options.integration_s = spectrum_s * (1.0 + random.uniform() * 0.7 * spectra).floor();
    options.nbits = [4, 8, 32][random.below(3)];
    if !channelized && random.below(3) == 0 {
        options.average_channels = 2;
    }
    Scene { recordings, delays: (random.below(3) > 0).then_some(delays), options }
}

/// Any antennas, in recordings of any kind, have the same visibilities on any number of GPUs, also more GPUs than antennas.
#[test]
fn several_gpus_divide_any_antennas() {
    let Some((one, divided)) = cuda::divisions(3) else { return };
    let _others = DEVICE.read();
    let mut random = Random::new(29);
    for case in 0..24 {
        let scene = random_scene(&mut random);
        let gulp = [0, 1 + random.below(70)][random.below(2)];
        let (expected, first) = scene.run(&one, gulp);
        let streams: Vec<_> = scene.recordings.iter().map(|own| &own.header).collect();
        let name = format!("{case}: {:?} {gulp} {streams:?}", scene.options);
        assert!(first.made_on_device && !expected.is_empty(), "{name}");
        for several in &divided {
            let (found, summary) = scene.run(several, gulp);
            assert!(summary.made_on_device, "{name}");
            assert!(found == expected, "{} {name}", several.name());
            assert_eq!(summary.antennas, first.antennas, "{name}");
        }
    }
}

/// Several GPUs have a share of the channels each, and the visibilities of one.
#[test]
fn several_gpus_have_the_visibilities_of_one() {
    let Some((one, all)) = cuda::several(2) else { return };
    let _others = DEVICE.read();
    let recorded = |options: &mut CorrelateOptions| {
        options.channelize = Some(false);
        options.integration_s = 101e-6;
    };
    let tracked = Scene::new(Complex8, 2, 4000).tracked().flagged();
    for (name, scene) in [
        ("recorded", Scene::new(Complex8, 2, 300).flagged().with(recorded)),
        ("drift scan", Scene::new(Real8, 1, 3000).flagged().with(|options| options.nbits = 4)),
        ("tracked", tracked.with(|options| options.average_channels = 2)),
        ("floats", Scene::new(ComplexF32, 2, 2500).with(|options| options.nbits = 32)),
    ] {
        for gulp in [0, 50] {
            let (expected, _) = scene.run(&one, gulp);
            let (found, summary) = scene.run(&all, gulp);
            assert!(summary.made_on_device && expected.len() > 1, "{name}");
            assert!(found == expected, "{name}: gulp {gulp}");
        }
    }
}
