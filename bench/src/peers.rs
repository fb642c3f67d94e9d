//! Rates of other programs on an H200, measured with driver 580 and CUDA 13.0, each at its best tuning, kernels
//! alone, data in device memory.

use sidereal::correlate::{Plan, Precision};
use sidereal::voltage::VoltageEncoding;

/// Taps of [`CHANNELIZE`]'s columns.
const TAPS: [usize; 5] = [4, 8, 16, 32, 64];

/// AstroAccelerate's polyphase filter bank, the best peer in every case: 10^9 complex samples per second at 1024
/// channels into complex floats, by taps.
const CHANNELIZE: [(VoltageEncoding, [f64; 5]); 3] = [
    (VoltageEncoding::Complex8, [156.0, 138.0, 108.0, 66.0, 41.6]),
    (VoltageEncoding::Complex16, [146.0, 125.0, 84.0, 51.0, 28.4]),
    (VoltageEncoding::ComplexF32, [130.0, 122.0, 99.8, 70.8, 43.7]),
];

/// The same with eight taps, by powers of two from 256 channels: windowed sums at their best block size, and cuFFT's
/// in-place transforms.
const EIGHT_TAPS: [(VoltageEncoding, [f64; 9]); 3] = [
    (VoltageEncoding::Complex8, [135.0, 137.0, 138.0, 136.0, 136.0, 136.0, 111.0, 93.0, 83.0]),
    (VoltageEncoding::Complex16, [124.0, 126.0, 125.0, 125.0, 124.0, 124.0, 104.0, 87.0, 79.0]),
    (VoltageEncoding::ComplexF32, [122.0, 123.0, 122.0, 122.0, 122.0, 122.0, 102.0, 86.0, 78.0]),
];

/// AstroAccelerate's dedispersion, the best peer in every case: 10^12 additions per second, 8 bit, by channels.
const DEDISPERSE: [(usize, f64); 5] =
    [(512, 11.3), (1024, 11.6), (2048, 11.7), (4096, 11.7), (8192, 11.8)];

/// Antennas of [`CORRELATE`]'s columns.
pub(crate) const CORRELATE_ANTENNAS: [usize; 6] = [32, 64, 128, 256, 512, 1024];

/// Correlators with their input encodings: 10^12 operations per second (8 per complex multiply-add, n (n + 1) / 2
/// products of n inputs) by dual-polarization antennas; 1024 samples, 65536 antennas x channels. The older
/// Tensor-Core Correlator (version of NiclasEsser1/tensor-core-correlator) reaches 221, 326, 358, 391, 410 and 421 in
/// bursts at 8 bit.
pub(crate) const CORRELATE: [(&str, VoltageEncoding, [f64; 6]); 8] = [
    (
        "Tensor-Core Correlator 0.5, 8 bit",
        VoltageEncoding::Complex8,
        [218.0, 392.0, 428.0, 477.0, 508.0, 525.0],
    ),
    (
        "the same, an older one, back to back",
        VoltageEncoding::Complex8,
        [197.0, 259.0, 311.0, 349.0, 376.0, 390.0],
    ),
    (
        "the same, an older one, 4 bit",
        VoltageEncoding::Complex4,
        [21.0, 34.0, 36.0, 39.0, 41.0, 42.0],
    ),
    (
        "katgpucbf (its fork, 64-bit sums), 8 bit",
        VoltageEncoding::Complex8,
        [119.0, 169.0, 193.0, 220.0, 236.0, 245.0],
    ),
    ("xGPU, dp4a, 8 bit", VoltageEncoding::Complex8, [80.0, 100.0, 113.0, 121.0, 125.0, 127.0]),
    (
        "cuBLAS, batched products, 8 bit",
        VoltageEncoding::Complex8,
        [155.0, 289.0, 406.0, 640.0, 536.0, 594.0],
    ),
    ("xGPU, f32", VoltageEncoding::ComplexF32, [29.0, 36.0, 40.0, 43.0, 44.0, 45.0]),
    (
        "cuBLAS, batched products, f32",
        VoltageEncoding::ComplexF32,
        [22.0, 23.0, 26.0, 26.0, 24.0, 26.0],
    ),
];

/// Antennas x channels of [`CORRELATE`].
pub(crate) const CORRELATE_PRODUCT: usize = 65_536;

/// Returns the 10^12 operations per second of the best correlator of the same spectra with sums of equal precision; 0
/// if not measured.
pub(crate) fn correlate(plan: &Plan, times: usize) -> f64 {
    let options = plan.options();
    let at = CORRELATE_ANTENNAS.iter().position(|measured| *measured == options.antennas);
    let is_measured = times == 1024
        && options.antennas * options.channels == CORRELATE_PRODUCT
        && matches!(plan.precision(), Precision::F32 | Precision::Split);
    let Some(at) = at.filter(|_| is_measured) else { return 0.0 };
    let same = CORRELATE.iter().filter(|(_, measured, _)| *measured == options.encoding);
    same.map(|(_, _, rates)| rates[at]).fold(0.0, f64::max)
}

/// Returns the 10^9 samples per second of the best peer; 0 if not measured.
pub(crate) fn channelize(encoding: VoltageEncoding, channels: usize, taps: usize) -> f64 {
    let eight = (0..EIGHT_TAPS[0].1.len()).find(|power| channels == 256 << power);
    let (rates, at): (Option<&[f64]>, _) = match (channels, taps) {
        (1024, _) => {
            (find(&CHANNELIZE, encoding), TAPS.iter().position(|measured| *measured == taps))
        }
        (_, 8) => (find(&EIGHT_TAPS, encoding), eight),
        _ => (None, None),
    };
    rates.zip(at).map_or(0.0, |(rates, at)| rates[at])
}

fn find<const N: usize>(
    table: &[(VoltageEncoding, [f64; N])],
    encoding: VoltageEncoding,
) -> Option<&[f64]> {
    table.iter().find(|(measured, _)| *measured == encoding).map(|(_, rates)| &rates[..])
}

/// SPIIR kernel of Guo et al. 2018: 10^12 operations per second with 4096 templates at 4096 Hz, by filters.
const SPIIR: [(usize, f64); 8] = [
    (4, 0.52),
    (8, 1.14),
    (16, 2.06),
    (32, 2.39),
    (64, 4.29),
    (128, 4.55),
    (256, 4.71),
    (512, 4.81),
];

/// Overlap-save FFT matched filter (PyTorch) with 4096 templates at 4096 Hz: template length in seconds and multiple
/// of real time, from 0.44, 0.54, 9.4 and 38.5 ms per second of data at latencies of 1, 4, 1 and 1 s.
pub(crate) const SPIIR_FOURIER: [(f64, f64); 4] =
    [(1.0, 2273.0), (4.0, 1852.0), (16.0, 106.0), (64.0, 26.0)];

/// Returns the 10^12 operations per second of the best peer; 0 if not measured.
pub(crate) fn spiir(filters: usize) -> f64 {
    SPIIR.iter().find(|(measured, _)| *measured == filters).map_or(0.0, |(_, rate)| *rate)
}

/// Returns the 10^12 additions per second of the best peer, at the largest measured number of channels up to
/// `channels`.
pub(crate) fn dedisperse(channels: usize) -> f64 {
    let below = DEDISPERSE.iter().rev().find(|(measured, _)| *measured <= channels);
    below.unwrap_or(&DEDISPERSE[0]).1
}
