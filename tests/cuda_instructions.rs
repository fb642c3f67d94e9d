//! The building blocks of kernels behave alike on every CUDA device, real or emulated: barriers, warps, asynchronous
//! copies, matrix instructions.
#![allow(unsafe_code)]

#[path = "common/cuda.rs"]
mod cuda;
#[path = "common/random.rs"]
mod random;

use bytemuck::Pod;
use cuda::{device, source};
use random::Random;
use sidereal::backend::cuda::{Arguments, Boxes, Device, Tensor};

/// Launches a kernel of the emulator's own tests, and waits for it.
fn run(device: &Device, kernel: &str, threads: usize, shared_bytes: usize, arguments: &Arguments) {
    let kernels = source("kernels.cu", include_str!("cuda_on_host/selftest/kernels.cu"));
    let module = device.module(&kernels).unwrap();
    let function = module.function(kernel, shared_bytes).unwrap();
    let stream = device.stream().unwrap();
    // SAFETY: every caller passes the arguments of the kernel, with buffers for all that it reads and writes.
    unsafe { stream.launch(&function, [1, 1, 1], [threads, 1, 1], arguments) }.unwrap();
    stream.synchronize().unwrap();
}

/// Returns the output of a one-block kernel for the given inputs.
fn output<T: Pod>(
    device: &Device,
    (kernel, threads, shared_bytes): (&str, usize, usize),
    inputs: &[&[u8]],
    len: usize,
) -> Vec<T> {
    let inputs: Vec<_> = inputs.iter().map(|bytes| device.upload(bytes).unwrap()).collect();
    let out = device.upload(&vec![T::zeroed(); len]).unwrap();
    let mut arguments = Arguments::new();
    for input in &inputs {
        arguments = arguments.with(input.address());
    }
    run(device, kernel, threads, shared_bytes, &arguments.with(out.address()));
    let mut values = vec![T::zeroed(); len];
    out.download(0, &mut values).unwrap();
    values
}

fn noise(bytes: usize, seed: u64) -> Vec<u8> {
    let mut random = Random::new(seed);
    (0..bytes).map(|_| random.below(256) as u8).collect()
}

/// Element (row, column) of `a` (rows of 32) times `b` (columns of 32).
fn product(a: &[u8], b: &[u8], (row, column): (usize, usize), number: fn(u8) -> i32) -> i32 {
    let (row, column) = (&a[32 * row..][..32], &b[32 * column..][..32]);
    row.iter().zip(column).map(|(a, b)| number(*a) * number(*b)).sum()
}

#[test]
fn a_block_adds_up() {
    let Some(device) = device() else { return };
    let values = noise(1024, 1);
    let words: &[u32] = bytemuck::cast_slice(&values);
    let sum = words.iter().fold(0_u32, |sum, word| sum.wrapping_add(*word));
    assert_eq!(output::<u32>(&device, ("block_sum", 256, 1024), &[&values], 1), [sum]);
}

#[test]
fn warps_vote_shift_and_reduce() {
    let Some(device) = device() else { return };
    let got = output::<u32>(&device, ("warp_words", 64, 0), &[], 256);
    for thread in 0..64_u32 {
        let (lane, lanes) = (thread % 32, if thread < 32 { 32 } else { 8 });
        let votes = if thread < 32 { 0xaaaa_aaaa } else { 0xaa };
        let next = if lane % 8 == 7 { lane } else { lane + 1 };
        let mut expected = [votes, lanes * (lanes - 1) / 2, next, 6_u32.wrapping_sub(lanes)];
        if thread >= 40 {
            expected = [0; 4];
        }
        assert_eq!(got[4 * thread as usize..][..4], expected, "thread {thread}");
    }
}

#[test]
fn a_warp_feeds_the_others_through_barriers() {
    let Some(device) = device() else { return };
    if device.properties().capability < (9, 0) {
        eprintln!("skipped: the CUDA device has no copy engine");
        return;
    }
    let bytes = noise(7 * 1024, 2);
    let input = device.upload(&bytes).unwrap();
    let out = device.upload(&[0_u32]).unwrap();
    let arguments = Arguments::new().with(input.address()).with(out.address()).with(7_u32);
    run(&device, "pipeline", 128, 1024, &arguments);
    let mut sum = [0];
    out.download(0, &mut sum).unwrap();
    assert_eq!(sum[0], bytes.iter().map(|byte| u32::from(*byte)).sum::<u32>());
}

#[test]
fn warps_multiply_matrices() {
    let Some(device) = device() else { return };
    let (a, b) = (noise(512, 3), noise(256, 4));
    let got = output::<i32>(&device, ("mma_product", 32, 512), &[&a, &b], 256);
    for place in (0..16).flat_map(|row| (0..8).map(move |column| (row, column))) {
        let at = 8 * place.0 + place.1;
        assert_eq!(got[at], product(&a, &b, place, |byte| i32::from(byte as i8)), "{place:?}");
        assert_eq!(got[128 + at], product(&a, &b, place, i32::from), "{place:?}, no signs");
    }
}

#[test]
fn warpgroups_multiply_matrices() {
    let Some(device) = device() else { return };
    if !device.is_hopper() {
        eprintln!("skipped: the CUDA device has no matrix instructions of warpgroups");
        return;
    }
    let (a, b) = (noise(2048, 5), noise(2048, 6));
    let got = output::<i32>(&device, ("wgmma_product", 128, 2048), &[&a, &b], 64 * 64);
    for place in (0..64).flat_map(|row| (0..64).map(move |column| (row, column))) {
        let expected = 2 * product(&a, &b, place, i32::from);
        assert_eq!(got[64 * place.0 + place.1], expected, "{place:?}");
    }
}

#[test]
fn small_matrices_are_turned() {
    let Some(device) = device() else { return };
    let values = noise(512, 7);
    let halves: &[u16] = bytemuck::cast_slice(&values);
    let got = output::<u16>(&device, ("transposed", 32, 1024), &[&values], 256);
    for (index, half) in got.into_iter().enumerate() {
        let (matrix, row, column) = (index / 64, index / 8 % 8, index % 8);
        assert_eq!(half, halves[64 * matrix + 8 * column + row], "{index}");
    }
}

/// Rows of a box with 128 bytes, as a copy leaves them: chunks of 16 bytes are swizzled within eight rows.
fn swizzled(byte: usize) -> usize {
    byte ^ (byte / 128 % 8 * 16)
}

#[test]
fn boxes_of_arrays_are_brought_and_added() {
    let Some(device) = device() else { return };
    if !device.is_hopper() {
        eprintln!("skipped: the CUDA device has no copy engine for boxes");
        return;
    }
    // Five planes of nine rows of 300 bytes, with padding between them.
    let (extents, strides, size) = ([300, 9, 5], [304, 2752], [128, 4, 2]);
    let bytes = noise(5 * 2752, 8);
    let input = device.upload(&bytes).unwrap();
    let out = device.upload(&[0_u8; 1024]).unwrap();
    let sums = device.upload(&[3_u32; 256]).unwrap();
    let map = Tensor::new(&Boxes { address: input.address(), extents, strides, size }).unwrap();
    let mut expected = [3_u32; 256];
    for place in [[0, 0, 0], [128, 4, 1], [208, 7, 4], [-16, -2, -1], [304, 0, 0]] {
        let [x, y, z] = place;
        let arguments = Arguments::new().with_tensor(map).with(x).with(y).with(z);
        let arguments = arguments.with(out.address()).with(sums.address()).with(1024_u32);
        run(&device, "take_box", 32, 1024, &arguments);
        let mut got = [0_u8; 1024];
        out.download(0, &mut got).unwrap();
        for byte in 0..1024 {
            let steps = [byte % 128, byte / 128 % 4, byte / 512];
            let at = [0, 1, 2].map(|axis| place[axis] + steps[axis] as i32);
            let inside = at.iter().zip(extents).all(|(at, extent)| (0..extent as i32).contains(at));
            let [i, j, k] = at.map(|at| at as usize);
            let value = if inside { bytes[i + 304 * j + 2752 * k] } else { 0 };
            assert_eq!(got[swizzled(byte)], value, "{place:?}, byte {byte}");
        }
        for (sum, word) in expected.iter_mut().zip(bytemuck::cast_slice::<u8, u32>(&got)) {
            *sum = sum.wrapping_add(word.wrapping_mul(2));
        }
    }
    let mut got = [0; 256];
    sums.download(0, &mut got).unwrap();
    assert_eq!(got, expected);
}

#[test]
fn warpgroups_multiply_signed_bytes() {
    let Some(device) = device() else { return };
    if !device.is_hopper() {
        eprintln!("skipped: the CUDA device has no matrix instructions of warpgroups");
        return;
    }
    let (a, b) = (noise(64 * 128, 9), noise(48 * 128, 10));
    let [at_a, at_b] = [&a, &b].map(|bytes| device.upload(bytes).unwrap());
    let out = device.upload(&[0_i32; 64 * 48]).unwrap();
    let (extents, strides, size) = ([128, 48, 1], [128, 48 * 128], [128, 48, 1]);
    let map = Tensor::new(&Boxes { address: at_b.address(), extents, strides, size }).unwrap();
    let arguments = Arguments::new().with_tensor(map).with(at_a.address()).with(out.address());
    run(&device, "signed_product", 128, 48 * 128, &arguments);
    let mut got = [0; 64 * 48];
    out.download(0, &mut got).unwrap();
    for (row, column) in (0..64).flat_map(|row| (0..48).map(move |column| (row, column))) {
        let (left, right) = (&a[128 * row..][..128], &b[128 * column..][..128]);
        let products =
            left.iter().zip(right).map(|(x, y)| i32::from(*x as i8) * i32::from(*y as i8));
        assert_eq!(got[48 * row + column], products.sum::<i32>(), "{row}, {column}");
    }
}

#[test]
fn warps_multiply_floats_of_nineteen_bits() {
    let Some(device) = device() else { return };
    let value = |k: usize| ((k * 37) % 23) as f32 - 11.0;
    let mut a: Vec<f32> = (0..128).map(value).collect();
    let b: Vec<f32> = (0..64).map(|k| value(k + 5)).collect();
    // One bit more than the count uses.
    a[3] += 1.0 / 4096.0;
    let bytes = |floats: &[f32]| bytemuck::cast_slice::<f32, u8>(floats).to_vec();
    let got = output::<f32>(&device, ("float_product", 32, 0), &[&bytes(&a), &bytes(&b)], 128);
    for (row, column) in (0..16).flat_map(|row| (0..8).map(move |column| (row, column))) {
        let products = (0..8).map(|k| a[8 * row + k].round() * b[8 * column + k]);
        assert_eq!(got[8 * row + column], products.sum::<f32>(), "{row}, {column}");
    }
}
