//! Coherently dedispersed rows and voltages of a GPU equal those of the processor within the rounding of another Fourier
//! transform; on whatever device is there: a real one, or the emulator of `tests/cuda_on_host`.

#[path = "common/cuda.rs"]
mod cuda;
#[path = "voltage/memory.rs"]
mod memory;

use sidereal::backend::Backend;
use sidereal::backend::cuda::Device;
use sidereal::io::FilterbankSource;
use sidereal::io::voltages::{Flag, VoltageHeader, VoltageSource};
use sidereal::pipeline::voltage::{
    ChannelizeOptions, ChannelizedVoltages, Gains, Requantization, VoltageFilterbank,
};
use sidereal::voltage::VoltageEncoding;

use memory::{Memory, header, noise};

const TIMES: usize = 20_000;

/// Two antennas and recorded channels out of order, with a gap.
fn recording(encoding: VoltageEncoding, polarizations: usize) -> Memory {
    let header =
        VoltageHeader { antennas: 2, polarizations, ..header(&[1400.0, 1402.0, 1401.0], encoding) };
    let mut source = Memory::new(header, TIMES, |stream, time| noise(stream, time) * 100.0);
    source.flags = vec![Flag { streams: 0..2, start: 9_000, times: 100 }];
    source
}

fn options(gulp: usize) -> ChannelizeOptions {
    let interpolate_dc = gulp > 0;
    ChannelizeOptions {
        coherent_dm: Some(300.0),
        integrate: 2,
        interpolate_dc,
        gulp,
        ..ChannelizeOptions::new(16)
    }
}

/// All rows from `first` on, read `most` at a time.
fn rows(source: &Memory, gulp: usize, backend: &Backend, first: u64, most: usize) -> Vec<f32> {
    let mut filterbank = VoltageFilterbank::new(source.boxed(), &options(gulp), backend).unwrap();
    assert!(filterbank.warnings().is_empty(), "{:?}", filterbank.warnings());
    assert_eq!(filterbank.skip(first).unwrap(), first);
    let mut rows = vec![0.0; most * filterbank.row_elements()];
    let mut all = Vec::new();
    loop {
        let times = filterbank.read_rows(&mut rows).unwrap();
        all.extend_from_slice(&rows[..times * filterbank.row_elements()]);
        if times < most {
            return all;
        }
    }
}

fn check(name: &str, found: &[f32], expected: &[f32]) {
    assert_eq!(found.len(), expected.len(), "{name}");
    let scale = expected.iter().copied().fold(0.0, f32::max);
    let far = |(_, (a, b)): &(usize, (&f32, &f32))| (**a - **b).abs() > 1e-5 * scale;
    let mut pairs = found.iter().zip(expected).enumerate();
    assert_eq!(pairs.find(far), None, "{name}");
}

#[test]
fn rows_are_those_of_the_processor() {
    for (backend, device) in cuda::devices(2) {
        for (encoding, polarizations) in [
            (VoltageEncoding::Complex8, 2),
            (VoltageEncoding::Real16, 2),
            (VoltageEncoding::Real8, 1),
        ] {
            let source = recording(encoding, polarizations);
            for (gulp, most) in [(0, 100), (3_000, 7)] {
                let name = format!("{encoding:?} {gulp} on {}", backend.name());
                let expected = rows(&source, gulp, &backend.on_host(), 0, most);
                let before = device.copied_out_bytes();
                check(&name, &rows(&source, gulp, &backend, 0, most), &expected);
                // Rows alone leave the device; the gap's are skipped.
                let copied = device.copied_out_bytes() - before;
                assert!(copied <= 4 * expected.len() as u64, "{name}: {copied} bytes");
                let late = rows(&source, gulp, &backend, 200, most);
                check(&name, &late, &expected[200 * 3 * options(gulp).channels..]);
            }
        }
    }
}

#[test]
fn channelized_voltages_are_those_of_the_processor() {
    for (backend, _) in cuda::devices(2) {
        let source = recording(VoltageEncoding::Complex8, 2);
        let made = |backend: &Backend| {
            let options =
                ChannelizeOptions { integrate: 1, interpolate_dc: false, ..options(2_500) };
            let requantization = Requantization { bits: 8, gains: Gains::Automatic };
            let mut voltages =
                ChannelizedVoltages::new(source.boxed(), &options, &requantization, backend)
                    .unwrap();
            let mut block = voltages.header().block(TIMES / 16);
            voltages.read(&mut block).unwrap();
            (block, voltages.gains().to_vec())
        };
        let ((found, gains), (expected, on_host)) = (made(&backend), made(&backend.on_host()));
        assert!(gains.iter().zip(&on_host).all(|(a, b)| (a - b).abs() <= 1e-5 * b));
        assert_eq!(found.times(), expected.times());
        let mut different = 0;
        for stream in 0..found.streams() {
            for time in 0..found.times() {
                let pair = [&found, &expected].map(|block| block.voltages().value(stream, time));
                let error = (pair[0] - pair[1]).norm();
                assert!(error < 1.5, "{stream} {time}: {error}");
                different += usize::from(error > 0.0);
            }
        }
        // Values midway between two integers only.
        assert!(different * 1000 < found.streams() * found.times(), "{different}");
    }
}

#[test]
fn with_little_memory_parts_are_smaller_and_then_the_processor_helps() {
    let Ok(_) = Device::open(0) else {
        assert!(cuda::device().is_none());
        return;
    };
    let source = recording(VoltageEncoding::Complex8, 2);
    let mut helped = [0, 0];
    let expected = rows(&source, 0, &Backend::best(1).on_host(), 0, 100);
    for mebibytes in [200, 24, 8] {
        // A device of its own, so that other tests keep their memory.
        let Some((backend, device)) = cuda::devices(2).into_iter().next() else { return };
        device.limit_memory(mebibytes << 20);
        let made = VoltageFilterbank::new(source.boxed(), &options(0), &backend);
        let Ok(mut filterbank) = made else { continue };
        let warned = filterbank.warnings().iter().any(|text| text.contains("processor"));
        helped[usize::from(warned)] += 1;
        let mut all = vec![0.0; expected.len()];
        let times = filterbank.read_rows(&mut all).unwrap();
        assert_eq!(times * filterbank.row_elements(), expected.len());
        check(&format!("{mebibytes} MiB"), &all, &expected);
    }
    assert!(helped[0] > 0, "{helped:?}");
}
