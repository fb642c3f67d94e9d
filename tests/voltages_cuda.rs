//! Spectra of recorded voltages on several GPUs have the bits of those on one.

use sidereal::backend::Backend;
use sidereal::channelize::Products;
use sidereal::io::FilterbankSource;
use sidereal::io::voltages::{Flag, VoltageHeader, VoltageSource};
use sidereal::pipeline::voltage::{
    ChannelizeOptions, ChannelizedVoltages, Gains, Requantization, VoltageFilterbank,
};
use sidereal::voltage::VoltageEncoding;

#[path = "common/cuda.rs"]
mod cuda;
#[path = "voltage/memory.rs"]
mod memory;
#[path = "common/random.rs"]
mod random;

use memory::{Memory, noise};
use random::Random;

/// A recording and the options of its spectra.
struct Scene {
    recording: Memory,
    options: ChannelizeOptions,
    /// Numbers of rows that are read and then skipped, in turn.
    pieces: Vec<(usize, u64)>,
}

impl Scene {
    fn random(random: &mut Random) -> Self {
        use VoltageEncoding::{Complex8, Complex16, ComplexF32, Real8, Real10, Real16};
        let encodings = [Complex8, Complex16, ComplexF32, Real8, Real10, Real16];
        let centres: &[f64] = [&[1400.0][..], &[1401.0, 1400.0]][random.below(2)];
        let header = VoltageHeader {
            polarizations: 1 + random.below(2),
            antennas: 1 + random.below(2),
            ..memory::header(centres, encodings[random.below(encodings.len())])
        };
        let times = 4 * (1200 + random.below(1200));
        let mut recording = Memory::new(header, times, |stream, time| noise(stream, time) * 20.0);
        for _ in 0..random.below(3) {
            let streams = random.below(recording.header.streams());
            let (start, times) = (random.below(times) as u64, random.below(200) as u64);
            recording.flags.push(Flag { streams: streams..streams + 1, start, times });
        }
        let mut options = ChannelizeOptions::new([4, 8, 12, 16, 256][random.below(5)]);
        options.taps = 2 + random.below(3);
        if options.channels <= 16 && random.below(2) == 0 {
            let (p, q) = [(4, 3), (2, 1), (8, 7), (4, 1)][random.below(4)];
            // Spectra are a whole number of samples apart.
            if (options.channels * q).is_multiple_of(p) {
                options.oversampling = (p, q);
            }
        }
        options.gulp = [0, 4 * (1 + random.below(1000))][random.below(2)];
        let pieces =
            (0..40).map(|_| (1 + random.below(300), [0, 0, 70][random.below(3)])).collect();
        Self { recording, options, pieces }
    }

    /// Returns rows of products, or the error of the options.
    fn rows(&self, options: &ChannelizeOptions, backend: &Backend) -> Vec<u32> {
        let source = self.recording.boxed();
        let mut filterbank = VoltageFilterbank::divided(source, options, backend).unwrap();
        let elements = filterbank.row_elements();
        let mut all = Vec::new();
        for (times, skipped) in &self.pieces {
            let mut rows = vec![0.0; times * elements];
            let read = filterbank.read_rows(&mut rows).unwrap();
            all.extend(rows[..read * elements].iter().map(|value| value.to_bits()));
            all.push(filterbank.skip(*skipped).unwrap() as u32);
        }
        all
    }

    /// Returns the bytes of voltages, and the saturated samples.
    fn voltages(&self, bits: usize, backend: &Backend) -> (Vec<u8>, Vec<u64>) {
        let form = Requantization { bits, gains: Gains::Automatic };
        let source = self.recording.boxed();
        let mut voltages = ChannelizedVoltages::new(source, &self.options, &form, backend).unwrap();
        let mut all = Vec::new();
        for (times, skipped) in &self.pieces {
            let mut block = voltages.header().block(*times);
            let read = voltages.read_block(&mut block).unwrap();
            let bytes = block.encoding().bytes(read);
            (0..block.streams()).for_each(|stream| all.extend(&block.row_mut(stream)[..bytes]));
            all.push(voltages.skip(*skipped).unwrap() as u8);
        }
        (all, voltages.saturated())
    }
}

/// Returns the bytes that each GPU of a backend has returned to the host.
fn returned(backend: &Backend) -> Vec<u64> {
    let Backend::Cuda(device, _) = backend else { unreachable!("a GPU") };
    device.joined().map(|device| device.copied_out_bytes()).collect()
}

#[test]
fn several_gpus_give_the_rows_and_the_voltages_of_one() {
    let Some((one, divided)) = cuda::divisions(3) else { return };
    let mut random = Random::new(17);
    for case in 0..16 {
        let scene = Scene::random(&mut random);
        let name = format!("{case}: {:?} {:?}", scene.options, scene.recording.header);
        let detected = ChannelizeOptions {
            integrate: 1 + random.below(if scene.options.channels < 256 { 9 } else { 2 }),
            products: match scene.recording.header.polarizations {
                2 => [Products::I, Products::Iquv][random.below(2)],
                _ => Products::I,
            },
            ..scene.options.clone()
        };
        let bits = [4, 8][random.below(2)];
        let (rows, voltages) = (scene.rows(&detected, &one), scene.voltages(bits, &one));
        assert!(rows.len() > 50 && voltages.0.len() > 50, "{name}");
        for several in &divided {
            assert!(scene.rows(&detected, several) == rows, "{} {name}", several.name());
            assert!(scene.voltages(bits, several) == voltages, "{} {name}", several.name());
        }
    }
}

/// Random recordings with a delay of some hundred samples, so that calls have several blocks or less than one.
#[test]
fn several_gpus_dedisperse_coherently_as_one_does() {
    let Some((one, divided)) = cuda::divisions(3) else { return };
    let mut random = Random::new(23);
    for case in 0..10 {
        let mut scene = Scene::random(&mut random);
        let times = 4 * (7_000 + random.below(9_000));
        scene.recording = Memory::new(scene.recording.header.clone(), times, |stream, time| {
            noise(stream, time) * 20.0
        });
        let streams = scene.recording.header.streams();
        for _ in 0..random.below(3) {
            let (start, length) = (random.below(times) as u64, random.below(200) as u64);
            scene.recording.flags.push(Flag { streams: 0..streams, start, times: length });
        }
        let channels = [4, 8, 16][random.below(3)];
        scene.options = ChannelizeOptions {
            taps: 4,
            coherent_dm: Some([0.0, 30.0, 400.0][random.below(3)]),
            gulp: [0, 0, 4 * (1 + random.below(9_000))][random.below(3)],
            ..ChannelizeOptions::new(channels)
        };
        scene.pieces =
            (0..40).map(|_| (1 + random.below(3_000), [0, 0, 700][random.below(3)])).collect();
        let detected = ChannelizeOptions {
            integrate: 1 + random.below(9),
            interpolate_dc: random.below(2) == 0,
            ..scene.options.clone()
        };
        let name = format!("{case}: {detected:?} {:?}", scene.recording.header);
        let bits = [4, 8][random.below(2)];
        let (rows, voltages) = (scene.rows(&detected, &one), scene.voltages(bits, &one));
        assert!(rows.len() > 50 && voltages.0.len() > 50, "{name}");
        for several in &divided {
            assert!(scene.rows(&detected, several) == rows, "{} {name}", several.name());
            assert!(scene.voltages(bits, several) == voltages, "{} {name}", several.name());
        }
    }
}

/// Each GPU computes about as many rows as the others, also after coherent dedispersion.
#[test]
fn several_gpus_have_a_part_of_the_rows_each() {
    let Some((one, divided)) = cuda::divisions(3) else { return };
    let header = memory::header(&[1400.0], VoltageEncoding::Complex8);
    let recording = Memory::new(header, 60_000, |stream, time| noise(stream, time) * 20.0);
    let options = ChannelizeOptions { taps: 4, ..ChannelizeOptions::new(16) };
    let scene = Scene { recording, options, pieces: vec![(6_000, 0)] };
    for (coherent_dm, tolerance) in [(None, 16), (Some(1.0), 8_192)] {
        let options = ChannelizeOptions { coherent_dm, ..scene.options.clone() };
        let expected = scene.rows(&options, &one);
        for several in &divided {
            let before = returned(several);
            let rows = scene.rows(&options, several);
            assert!(rows == expected);
            let parts: Vec<u64> =
                returned(several).iter().zip(&before).map(|(now, before)| now - before).collect();
            let all: u64 = parts.iter().sum();
            assert_eq!(all, 4 * (rows.len() as u64 - 1));
            let even = all / parts.len() as u64;
            let is_even = |part: &u64| part.abs_diff(even) <= 4 * tolerance;
            assert!(parts.iter().all(is_even), "{coherent_dm:?}: {parts:?}");
        }
    }
}
