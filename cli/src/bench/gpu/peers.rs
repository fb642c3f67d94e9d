//! What other programs reach on an H200: measured on one with driver 580 and CUDA 13.0, each at its best
//! tuning, kernels alone, data on the device.

use sidereal::voltage::VoltageEncoding;

/// Taps of [`CHANNELIZE`]'s columns.
const TAPS: [usize; 5] = [4, 8, 16, 32, 64];

/// AstroAccelerate's polyphase filter bank, the best peer throughout: 10^9 complex samples a second at 1024
/// channels into complex floats, by taps.
const CHANNELIZE: [(VoltageEncoding, [f64; 5]); 3] = [
    (VoltageEncoding::Complex8, [156.0, 138.0, 108.0, 66.0, 41.6]),
    (VoltageEncoding::Complex16, [146.0, 125.0, 84.0, 51.0, 28.4]),
    (VoltageEncoding::ComplexF32, [130.0, 122.0, 99.8, 70.8, 43.7]),
];

/// The same with eight taps, by powers of two from 256 channels on: its windowed sums at their best block, and
/// cuFFT's transforms in place.
const EIGHT_TAPS: [(VoltageEncoding, [f64; 9]); 3] = [
    (VoltageEncoding::Complex8, [135.0, 137.0, 138.0, 136.0, 136.0, 136.0, 111.0, 93.0, 83.0]),
    (VoltageEncoding::Complex16, [124.0, 126.0, 125.0, 125.0, 124.0, 124.0, 104.0, 87.0, 79.0]),
    (VoltageEncoding::ComplexF32, [122.0, 123.0, 122.0, 122.0, 122.0, 122.0, 102.0, 86.0, 78.0]),
];

/// AstroAccelerate's dedispersion, the best peer throughout: 10^12 additions a second, 8 bit, by channels.
const DEDISPERSE: [(usize, f64); 5] =
    [(512, 11.3), (1024, 11.6), (2048, 11.7), (4096, 11.7), (8192, 11.8)];

/// 10^9 samples a second of the best peer; 0 for what was not measured.
pub(super) fn channelize(encoding: VoltageEncoding, channels: usize, taps: usize) -> f64 {
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

/// 10^12 additions a second of the best peer, at the nearest number of channels not above `channels`.
pub(super) fn dedisperse(channels: usize) -> f64 {
    let below = DEDISPERSE.iter().rev().find(|(measured, _)| *measured <= channels);
    below.unwrap_or(&DEDISPERSE[0]).1
}
