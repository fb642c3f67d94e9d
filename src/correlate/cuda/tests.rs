//! Tests of each product kernel against directly computed sums.

use num_complex::Complex;

use super::super::plan::{Options, Plan, Precision};
use super::super::{Block, Correlator, Output};
use super::launch::{self, Job, Shape};
use super::paths::{PRECISIONS, floats, mma};
use super::wgmma::Wgmma;
use crate::backend::Backend;
use crate::backend::cuda::testing::device;
use crate::backend::cuda::{Buffer, Device, Stream};
use crate::backend::threads::Threads;
use crate::error::Result;
use crate::voltage::{VoltageEncoding, voltage};

/// Spectra in natural order with random or extreme values, and garbage after each row.
struct Spectra {
    shape: Shape,
    times: usize,
    stride: usize,
    bytes: Vec<u8>,
}

impl Spectra {
    fn new((inputs, channels, times): (usize, usize, usize), encoding: VoltageEncoding) -> Self {
        let options = Options { antennas: inputs, polarizations: 1, channels, encoding };
        let shape = Shape::new(&Plan::new(options).unwrap());
        let stride = shape.row_bytes(times).next_multiple_of(16) + 16;
        let mut state = (inputs * 977 + times) as u64 | 1;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 32) as u8
        };
        let mut bytes: Vec<u8> = (0..channels * inputs * stride).map(|_| next()).collect();
        for (row, bytes) in bytes.chunks_exact_mut(stride).enumerate() {
            if row % 3 == 1 {
                let least = if encoding == VoltageEncoding::Complex4 { 0x88 } else { 0x80 };
                bytes.fill(least);
            }
        }
        if shape.is_float() {
            for (row, bytes) in bytes.chunks_exact_mut(stride).enumerate() {
                let scale = 10_f32.powi(row as i32 % 5 - 2);
                for bytes in bytes[..8 * times].chunks_exact_mut(4) {
                    let number = f32::from(bytes[0]) + f32::from(bytes[1]) / 256.0 - 100.0;
                    bytes.copy_from_slice(&(scale * number).to_le_bytes());
                }
            }
        }
        Self { shape, times, stride, bytes }
    }

    fn value(&self, channel: usize, input: usize, time: usize) -> Complex<f64> {
        let row = (channel * self.shape.inputs + input) * self.stride;
        voltage(&self.bytes[row..][..self.stride], self.shape.encoding, time)
    }

    /// Returns the tiles after two launches, the second of which adds.
    fn twice<T: bytemuck::Pod>(
        &self,
        device: &Device,
        enqueue: impl Fn(&Job, &Stream) -> Result<()>,
    ) -> Vec<T> {
        let shape = &self.shape;
        let spectra = device.upload(&self.bytes).unwrap();
        let words = shape.channels * shape.elements() * 2;
        let sums: Buffer<u32> = device.upload(&vec![0x7777_7777; words]).unwrap();
        let stream = device.stream().unwrap();
        for add in [false, true] {
            let spectra = launch::Spectra {
                address: spectra.address(),
                channel_stride: shape.inputs * self.stride,
                input_stride: self.stride,
                times: self.times,
            };
            let (channels, sums) = (shape.channels, sums.address());
            let job = Job { spectra, channels, sums, add };
            enqueue(&job, &stream).unwrap();
        }
        stream.synchronize().unwrap();
        let mut found = vec![0_u32; words];
        sums.download(0, &mut found).unwrap();
        bytemuck::cast_slice(&found).to_vec()
    }

    /// Calls `check` with the index of each sum in the tiles, the sum, and the sum of magnitudes.
    fn each(&self, mut check: impl FnMut(usize, Complex<f64>, f64)) {
        let (shape, edge) = (&self.shape, self.shape.edge);
        let pairs = (0..shape.inputs).flat_map(|i| (0..=i).map(move |j| (i, j)));
        for (channel, (i, j)) in
            (0..shape.channels).flat_map(|c| pairs.clone().map(move |p| (c, p)))
        {
            let tile = (i / edge) * (i / edge + 1) / 2 + j / edge;
            let row = (channel * shape.tiles() + tile) * edge + i % edge;
            let product = |time| (self.value(channel, i, time), self.value(channel, j, time));
            let products = (0..self.times).map(product);
            let sum = products.clone().map(|(x, y)| x * y.conj()).sum();
            check(
                (row * edge + j % edge) * 2,
                sum,
                products.map(|(x, y)| x.norm() * y.norm()).sum(),
            );
        }
    }
}

/// Inputs, channels and times: one and several blocks of each kind, all remainders.
const SIZES: [(usize, usize, usize); 8] = [
    (1, 1, 1),
    (19, 2, 70),
    (32, 3, 16),
    (33, 2, 129),
    (64, 1, 5),
    (70, 2, 67),
    (130, 2, 33),
    (225, 1, 200),
];

/// Fewer sizes, because each is multiplied by four methods.
const FLOATS: [(usize, usize, usize); 5] =
    [(1, 1, 1), (19, 2, 70), (33, 1, 29), (64, 1, 5), (130, 1, 19)];

/// Sizes whose last block has few inputs: one to five blocks, all remainders. On a device of four multiprocessors,
/// such as the emulated one, the last three use the dynamic scheduler, except the first of these with 8 bits.
const REMAINDERS: [(usize, usize, usize); 12] = [
    (129, 1, 1),
    (129, 3, 64),
    (130, 2, 33),
    (140, 4, 1024),
    (144, 2, 131),
    (257, 1, 97),
    (260, 3, 200),
    (272, 2, 64),
    (514, 1, 77),
    (258, 50, 40),
    (145, 24, 40),
    (256, 24, 40),
];

fn integers(
    encoding: VoltageEncoding,
    sizes: (usize, usize, usize),
    found: &Spectra,
    sums: &[i32],
) {
    found.each(|at, sum, _| {
        let expected = [2 * sum.re as i64, 2 * sum.im as i64];
        let sums = [i64::from(sums[at]), i64::from(sums[at + 1])];
        assert_eq!(sums, expected, "{encoding:?} {sizes:?}: number {at}");
    });
}

#[test]
fn warps_multiply_exactly() {
    let Some(device) = device() else { return };
    for encoding in [VoltageEncoding::Complex8, VoltageEncoding::Complex4] {
        for sizes in SIZES {
            let spectra = Spectra::new(sizes, encoding);
            if device.properties().target.capability < (8, 0) {
                eprintln!("skipped: the device is older than matrix instructions of bytes");
                return;
            }
            let path = mma(&spectra.shape, &device).unwrap();
            let sums = spectra.twice(&device, |job, stream| path.enqueue(job, stream));
            integers(encoding, sizes, &spectra, &sums);
        }
    }
}

#[test]
fn warpgroups_multiply_exactly() {
    let Some(device) = device() else { return };
    if !device.is_hopper() {
        eprintln!("skipped: the device is not a Hopper");
        return;
    }
    for encoding in [VoltageEncoding::Complex8, VoltageEncoding::Complex4] {
        for sizes in SIZES.into_iter().chain(REMAINDERS) {
            let spectra = Spectra::new(sizes, encoding);
            let path = Wgmma::new(&spectra.shape, &device).unwrap();
            let sums = spectra.twice(&device, |job, stream| path.enqueue(job, stream));
            integers(encoding, sizes, &spectra, &sums);
        }
    }
}

#[test]
fn floats_err_as_little_as_is_said() {
    let Some(device) = device() else { return };
    for precision in PRECISIONS {
        let bound = match precision {
            Precision::F32 | Precision::Split => 514.5 / f64::from(1 << 24),
            Precision::Tf32 | Precision::F16 => 1.0 / 1024.0,
        };
        for sizes in FLOATS {
            let spectra = Spectra::new(sizes, VoltageEncoding::ComplexF32);
            if device.properties().target.capability < (8, 0) {
                eprintln!("skipped: the device is older than matrix instructions of floats");
                return;
            }
            let path = floats(&spectra.shape, precision, &device).unwrap();
            let sums: Vec<f32> = spectra.twice(&device, |job, stream| path.enqueue(job, stream));
            spectra.each(|at, sum, magnitudes| {
                let found = Complex::new(f64::from(sums[at]), f64::from(sums[at + 1]));
                let error = (found - 2.0 * sum).norm() / magnitudes;
                // `magnitudes` covers one of the two launches.
                assert!(error <= 2.0 * bound, "{precision:?} {sizes:?}: {error} at number {at}");
            });
        }
    }
}

/// Returns a packed block whose samples are all -128 - 128i.
fn extreme_block(plan: &Plan, times: usize) -> Vec<u8> {
    vec![0x80; plan.packed_bytes(times)]
}

/// Checks that pieces, which end at other times than launches of the whole block, do not overflow the narrow sums.
#[test]
fn pieces_of_long_blocks_never_overflow() {
    let Some(device) = device() else { return };
    let encoding = VoltageEncoding::Complex8;
    let options = Options { antennas: 2, polarizations: 1, channels: 2, encoding };
    let plan = Plan::new(options).unwrap();
    let backend = Backend::Cuda(device, Threads::new(1));
    let mut correlator = Correlator::new(plan.clone(), &backend).unwrap();
    let mut all = 0;
    for times in [65_536, 65_000, 70_000, 3, 70_000] {
        let bytes = extreme_block(&plan, times);
        correlator.run(Block::new(&plan, &bytes, times, None).unwrap()).unwrap();
        all += times as i64;
    }
    let mut sums = vec![Complex::new(0_i64, 0); plan.channels() * plan.row_elements()];
    let mut counts = vec![0; plan.channels() * plan.baselines()];
    correlator.read(0..plan.channels(), Output::Integer(&mut sums), &mut counts).unwrap();
    assert_eq!(sums, vec![Complex::new(all << 15, 0); sums.len()]);
    assert_eq!(counts, vec![all as u64; counts.len()]);
}
