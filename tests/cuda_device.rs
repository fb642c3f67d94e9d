//! The device layer on the available CUDA device: memory, streams, events, kernel arguments.
#![allow(unsafe_code)]

#[path = "common/cuda.rs"]
mod cuda;

use cuda::{device, several, source};
use sidereal::Error;
use sidereal::backend::Backend;
use sidereal::backend::cuda::measure;
use sidereal::backend::cuda::{
    Arguments, CopiedRows, Device, Function, LockedBlock, Module, ReadRows, RowReader, Stream,
};

const KERNELS: &str = r#"
#include "device.cuh"
KERNEL scale(u64 values, u32 factor, u32 count) {
  u32 i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) ((u32*)values)[i] *= factor;
}
KERNEL arguments(u64 out, u8 a, i16 b, u32 c, float d, double e, i64 f, i8 g) {
  double* values = (double*)out;
  values[0] = a, values[1] = b, values[2] = c, values[3] = d, values[4] = e, values[5] = (double)f, values[6] = g;
}
KERNEL places(u64 out) {
  u32 block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  u32 thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
  u32 threads = blockDim.x * blockDim.y * blockDim.z;
  ((u32*)out)[block * threads + thread] = block * 1000 + thread;
}
// Every thread leaves a word in shared memory and takes the one from the other end.
KERNEL reversed(u64 values, u32 words) {
  SHARED_MEMORY(bytes);
  u32* shared = (u32*)bytes;
  for (u32 i = threadIdx.x; i < words; i += blockDim.x) shared[i] = ((u32*)values)[i];
  __syncthreads();
  for (u32 i = threadIdx.x; i < words; i += blockDim.x) ((u32*)values)[i] = shared[words - 1 - i];
}
"#;

fn module(device: &Device) -> Module {
    device.module(&source("device_test.cu", KERNELS)).expect("kernels compile")
}

/// Queues a kernel with arguments that the caller guarantees.
fn launch(stream: &Stream, function: &Function, grid: usize, block: usize, arguments: &Arguments) {
    // SAFETY: every caller passes the arguments of the kernel, and buffers large enough for its accesses.
    unsafe { stream.launch(function, [grid, 1, 1], [block, 1, 1], arguments) }.expect("a launch");
}

#[test]
fn memory_is_written_and_read() {
    let Some(device) = device() else { return };
    let values: Vec<u16> = (0..1000).collect();
    let mut buffer = device.upload(&values).unwrap();
    assert_eq!((buffer.len(), buffer.is_empty()), (1000, false));
    assert_eq!(buffer.at(10), buffer.address() + 20);
    let mut part = [0_u16; 5];
    buffer.download(995, &mut part).unwrap();
    assert_eq!(part, [995, 996, 997, 998, 999]);
    let refused = buffer.download(996, &mut part).unwrap_err();
    assert!(matches!(refused, Error::Shape { expected: 1000, actual: 1001, .. }), "{refused}");

    let stream = device.stream().unwrap();
    stream.fill(&mut buffer, 996..998, 0x11).unwrap();
    let refused = stream.fill(&mut buffer, 996..1001, 0x11).unwrap_err();
    assert!(matches!(refused, Error::Shape { expected: 1000, actual: 1001, .. }), "{refused}");
    stream.synchronize().unwrap();
    buffer.download(995, &mut part).unwrap();
    assert_eq!(part, [995, 0x1111, 0x1111, 998, 999]);
}

#[test]
fn an_empty_buffer_is_one() {
    let Some(device) = device() else { return };
    let buffer = device.upload::<f32>(&[]).unwrap();
    assert!(buffer.is_empty());
    buffer.download(0, &mut []).unwrap();
}

#[test]
fn rows_are_copied_between_strides() {
    let Some(device) = device() else { return };
    let values: Vec<u8> = (0..200).collect();
    let from = device.upload(&values).unwrap();
    let to = device.upload(&[0_u8; 200]).unwrap();
    let stream = device.stream().unwrap();
    let copied = CopiedRows { bytes: 7, rows: 9, from_stride: 20, to_stride: 15 };
    // SAFETY: 9 rows, 20 and 15 bytes apart, from byte 3 and to byte 1, lie within 200 bytes.
    unsafe { stream.copy_rows(from.at(3), to.at(1), &copied) }.unwrap();
    // SAFETY: the last 40 bytes of both.
    unsafe { stream.copy_within(from.at(160), to.at(160), 40) }.unwrap();
    stream.synchronize().unwrap();
    let mut got = [0_u8; 200];
    to.download(0, &mut got).unwrap();
    let mut expected = [0_u8; 200];
    for row in 0..9 {
        expected[1 + 15 * row..][..7].copy_from_slice(&values[3 + 20 * row..][..7]);
    }
    expected[160..].copy_from_slice(&values[160..]);
    assert_eq!(got, expected);
}

#[test]
fn ranges_of_rows_are_read_in_order() {
    let Some(device) = device() else { return };
    let (rows, stride) = (70_001, 50);
    let values: Vec<f32> = (0..5 + rows * stride).map(|index| index as f32).collect();
    let buffer = device.upload(&values).unwrap();
    let mut reader = RowReader::new(&device).unwrap();
    let mut found = Vec::new();
    // More than one part of whole rows; the newer samples of a ring lie before the older ones.
    let read = ReadRows { first: 5, stride, rows, ranges: [40..50, 0..30] };
    reader.read_rows(&buffer, &read, |row| found.push(row.to_vec())).unwrap();
    let row = |at: usize| [&values[at + 40..at + 50], &values[at..at + 30]].concat();
    assert!(found == (0..rows).map(|index| row(5 + index * stride)).collect::<Vec<_>>());
    let nothing = ReadRows { ranges: [0..0, 0..0], ..read.clone() };
    found.clear();
    reader.read_rows(&buffer, &nothing, |row| found.push(row.to_vec())).unwrap();
    assert!(found.len() == rows && found.iter().all(Vec::is_empty));
    let beyond = ReadRows { first: 6, ranges: [0..50, 0..0], ..read };
    let refused = reader.read_rows(&buffer, &beyond, |_| {});
    assert!(matches!(refused, Err(Error::Shape { .. })), "{refused:?}");

    let mut all = Vec::new();
    reader.read(&buffer, |part| all.extend_from_slice(part)).unwrap();
    assert!(all == values);
    let pairs: Vec<[f32; 2]> = values.as_chunks().0.to_vec();
    let pairs = device.upload(&pairs).unwrap();
    all.clear();
    reader.read(&pairs, |part| all.extend_from_slice(part)).unwrap();
    assert!(all == values[..all.len()] && all.len() + 1 == values.len());
}

#[test]
fn more_memory_than_there_is_says_how_much_is_free() {
    let Some(device) = device() else { return };
    let refused = device.buffer::<u8>(2 * device.properties().memory_bytes).unwrap_err();
    let text = refused.to_string();
    assert!(matches!(refused, Error::Unavailable { .. }), "{text}");
    let mib = (2 * device.properties().memory_bytes).div_ceil(1 << 20);
    assert!(text.contains(&format!("{mib} MiB")) && text.contains("are free"), "{text}");
    assert!(device.buffer::<f64>(usize::MAX / 4).is_err());
}

#[test]
fn memory_is_free_again_after_a_drop() {
    let Some(device) = device() else { return };
    let bytes = device.properties().memory_bytes / 8 * 5;
    for _ in 0..3 {
        if device.free_bytes().unwrap() < bytes {
            eprintln!("skipped: others use the memory of the CUDA device");
            return;
        }
        drop(device.buffer::<u8>(bytes).unwrap());
    }
}

#[test]
fn streams_wait_for_each_other() {
    let Some(device) = device() else { return };
    let module = module(&device);
    let scale = module.function("scale", 0).unwrap();
    let [first, second] = [(); 2].map(|()| device.stream().unwrap());
    let [begun, ready, ended] = [(); 3].map(|()| device.event().unwrap());
    let mut input = device.pinned::<u32>(1 << 12).unwrap();
    let mut output = device.pinned::<u32>(1 << 12).unwrap();
    assert!(input.as_slice().iter().chain(output.as_slice()).all(|word| *word == 0));
    input.as_mut_slice().iter_mut().zip(0..).for_each(|(word, index)| *word = index);
    let mut buffer = device.buffer::<u32>(1 << 12).unwrap();
    let by = |factor: u32| Arguments::new().with(buffer.address()).with(factor).with(1_u32 << 12);
    let (by_3, by_5) = (by(3), by(5));
    first.record(&begun).unwrap();
    // SAFETY: the pinned memory is neither written nor dropped before the streams have ended.
    unsafe { first.copy_in(&input, 0..1 << 12, &mut buffer, 0) }.unwrap();
    launch(&first, &scale, 16, 256, &by_3);
    first.record(&ready).unwrap();
    second.wait(&ready).unwrap();
    launch(&second, &scale, 16, 256, &by_5);
    // SAFETY: as above.
    unsafe { second.copy_out(&buffer, 1 << 11..1 << 12, &mut output, 7) }.unwrap();
    second.record(&ended).unwrap();
    ended.synchronize().unwrap();
    assert!(ended.seconds_since(&begun).unwrap() >= 0.0);
    let got = output.as_slice();
    assert!((0..1 << 11).all(|i| got[7 + i] == 15 * ((1 << 11) + i as u32)), "{:?}", &got[..20]);
    // SAFETY: nothing is queued, as the copy does not fit.
    let refused = unsafe { second.copy_out(&buffer, 0..1 << 12, &mut output, 1) }.unwrap_err();
    assert!(matches!(refused, Error::Shape { .. }), "{refused}");
}

#[test]
fn arguments_arrive_as_what_they_are() {
    let Some(device) = device() else { return };
    let module = module(&device);
    let function = module.function("arguments", 0).unwrap();
    assert_eq!((function.name(), function.shared_bytes()), ("arguments", 0));
    let out = device.buffer::<f64>(7).unwrap();
    let arguments = Arguments::new()
        .with(out.address())
        .with(200_u8)
        .with(-300_i16)
        .with(4_000_000_000_u32)
        .with(0.1_f32)
        .with(-0.1_f64)
        .with(-(1_i64 << 50))
        .with(-7_i8);
    launch(&device.stream().unwrap(), &function, 1, 1, &arguments);
    let mut got = [0.0; 7];
    out.download(0, &mut got).unwrap();
    let expected = [200.0, -300.0, 4e9, f64::from(0.1_f32), -0.1, -((1_i64 << 50) as f64), -7.0];
    assert_eq!(got.map(f64::to_bits), expected.map(f64::to_bits));
}

#[test]
fn threads_know_their_place() {
    let Some(device) = device() else { return };
    let module = module(&device);
    let function = module.function("places", 0).unwrap();
    let (grid, block) = ([3, 2, 4], [8, 3, 2]);
    let out = device.upload(&[0_u32; 24 * 48]).unwrap();
    let stream = device.stream().unwrap();
    let arguments = Arguments::new().with(out.address());
    // SAFETY: the kernel's argument; 24 blocks of 48 threads write a word each.
    unsafe { stream.launch(&function, grid, block, &arguments) }.unwrap();
    stream.synchronize().unwrap();
    let mut got = [0_u32; 24 * 48];
    out.download(0, &mut got).unwrap();
    for (index, word) in got.into_iter().enumerate() {
        assert_eq!(word as usize, index / 48 * 1000 + index % 48);
    }
}

#[test]
fn all_of_the_shared_memory_can_be_used() {
    let Some(device) = device() else { return };
    let module = module(&device);
    for bytes in [4096, 48 << 10, 64 << 10, device.properties().shared_bytes] {
        let function = module.function("reversed", bytes).unwrap();
        assert!(function.blocks_per_multiprocessor(256).unwrap() >= 1);
        let words = bytes as u32 / 4;
        let buffer = device.upload(&(0..words).collect::<Vec<u32>>()).unwrap();
        let arguments = Arguments::new().with(buffer.address()).with(words);
        launch(&device.stream().unwrap(), &function, 1, 256, &arguments);
        let mut got = vec![0; words as usize];
        buffer.download(0, &mut got).unwrap();
        assert!(got.iter().copied().eq((0..words).rev()), "{bytes} bytes");
    }
    let more = device.properties().shared_bytes + 4;
    let refused = module.function("reversed", more).unwrap_err();
    assert!(matches!(refused, Error::Unavailable { .. }), "{refused}");
    assert!(refused.to_string().contains(&more.to_string()), "{refused}");
}

#[test]
fn threads_of_the_host_share_a_device() {
    let Some(device) = device() else { return };
    let module = module(&device);
    let scale = module.function("scale", 0).unwrap();
    std::thread::scope(|scope| {
        for factor in 1..=4_u32 {
            let (device, scale) = (&device, &scale);
            scope.spawn(move || {
                let buffer = device.upload(&(0..500).collect::<Vec<u32>>()).unwrap();
                let stream = device.stream().unwrap();
                let arguments = Arguments::new().with(buffer.address()).with(factor).with(500_u32);
                for _ in 0..3 {
                    launch(&stream, scale, 2, 256, &arguments);
                }
                stream.synchronize().unwrap();
                let mut got = [0; 500];
                buffer.download(0, &mut got).unwrap();
                assert!(got.iter().zip(0..).all(|(word, i)| *word == i * factor.pow(3)));
            });
        }
    });
}

/// Rows are copied within a device and between any two, and nothing else is written.
#[test]
fn rows_are_copied_from_any_device() {
    let Some(first) = device() else { return };
    let all = Device::all();
    assert!(!all.is_empty());
    let values: Vec<u8> = (0..200).collect();
    for source in &all {
        for target in &all {
            let from = source.upload(&values).unwrap();
            let stream = target.stream().unwrap();
            for (bytes, rows, from_stride, to_stride) in
                [(7, 5, 20, 11), (20, 1, 0, 0), (8, 4, 8, 8), (0, 3, 9, 9), (3, 0, 3, 3)]
            {
                let mut to = target.upload(&[0xee_u8; 100]).unwrap();
                let copied = CopiedRows { bytes, rows, from_stride, to_stride };
                stream.copy_rows_from(&from, 13, &mut to, 9, &copied).unwrap();
                stream.synchronize().unwrap();
                let mut expected = vec![0xee_u8; 100];
                for row in 0..rows {
                    let own = &values[13 + row * from_stride..][..bytes];
                    expected[9 + row * to_stride..][..bytes].copy_from_slice(own);
                }
                let mut found = vec![0; 100];
                to.download(0, &mut found).unwrap();
                assert_eq!(found, expected, "{copied:?}");
            }
        }
    }
    let (from, stream) = (first.upload(&values).unwrap(), first.stream().unwrap());
    let mut to = first.upload(&[0_u8; 100]).unwrap();
    let mut refused = |bytes, rows, from_stride, to_stride| {
        let copied = CopiedRows { bytes, rows, from_stride, to_stride };
        stream.copy_rows_from(&from, 13, &mut to, 9, &copied).unwrap_err()
    };
    assert!(matches!(refused(8, 2, 7, 8), Error::Parameter { .. }));
    assert!(matches!(refused(8, 2, 180, 8), Error::Shape { expected: 200, .. }));
    assert!(matches!(refused(8, 2, 8, 84), Error::Shape { expected: 100, actual: 101, .. }));
    assert!(matches!(refused(8, usize::MAX, 8, 8), Error::Shape { .. }));
}

/// The measurement itself checks that the rows of each device come to lie between those of the others.
#[test]
fn locked_blocks_carry_bytes_from_a_device_and_rows_to_it() {
    let Some(device) = device() else { return };
    let values: Vec<u8> = (0..200).collect();
    let from = device.upload(&values).unwrap();
    let mut block = LockedBlock::new(&device, 160).unwrap();
    assert_eq!((block.len(), block.is_empty()), (160, false));
    block.copy_out(&from, 100..180, 0).unwrap();
    block.copy_out(&from, 20..100, 80).unwrap();
    let host = block.host().unwrap().to_vec();
    assert!(host == [&values[100..180], &values[20..100]].concat());
    assert!(matches!(block.copy_out(&from, 0..161, 0), Err(Error::Shape { .. })));
    let work = device.stream().unwrap();
    for (bytes, rows, from_stride, to_stride) in
        [(7, 5, 20, 11), (20, 1, 0, 0), (8, 4, 8, 8), (0, 3, 9, 9), (3, 0, 3, 3)]
    {
        let mut to = device.upload(&[0xee_u8; 100]).unwrap();
        let copied = CopiedRows { bytes, rows, from_stride, to_stride };
        block.copy_rows_in(13, &mut to, 9, &copied).unwrap();
        block.awaited_by(&work).unwrap();
        work.synchronize().unwrap();
        let mut expected = vec![0xee_u8; 100];
        for row in 0..rows {
            let own = &host[13 + row * from_stride..][..bytes];
            expected[9 + row * to_stride..][..bytes].copy_from_slice(own);
        }
        let mut found = vec![0; 100];
        to.download(0, &mut found).unwrap();
        assert_eq!(found, expected, "{copied:?}");
        let after = CopiedRows { bytes: 8, rows: 20, from_stride: 8, to_stride: 8 };
        assert!(matches!(block.copy_rows_in(1, &mut to, 0, &after), Err(Error::Shape { .. })));
    }
}

#[test]
fn several_gpus_exchange_rows() {
    let Some((_, Backend::Cuda(first, _))) = several(1) else { return };
    let all: Vec<Device> = first.joined().cloned().collect();
    for (bytes, row_bytes) in [(1 << 16, 512), (1000, 7), (1, 16)] {
        let rates = measure::exchange(&all, bytes, row_bytes).unwrap();
        assert!(rates.contiguous > 0.0 && rates.rows > 0.0, "{rates:?}");
    }
}
