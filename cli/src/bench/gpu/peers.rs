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

/// AstroAccelerate's dedispersion, the best peer throughout: 10^12 additions a second, 8 bit, by channels.
const DEDISPERSE: [(usize, f64); 5] =
    [(512, 11.3), (1024, 11.6), (2048, 11.7), (4096, 11.7), (8192, 11.8)];

/// 10^9 samples a second of the best peer at 1024 channels, for other numbers of channels too; 0 for
/// encodings and taps that were not measured.
pub(super) fn channelize(encoding: VoltageEncoding, taps: usize) -> f64 {
    let rates = CHANNELIZE.iter().find(|(measured, _)| *measured == encoding);
    let at = TAPS.iter().position(|measured| *measured == taps);
    rates.zip(at).map_or(0.0, |((_, rates), at)| rates[at])
}

/// 10^12 additions a second of the best peer, at the nearest number of channels not above `channels`.
pub(super) fn dedisperse(channels: usize) -> f64 {
    let below = DEDISPERSE.iter().rev().find(|(measured, _)| *measured <= channels);
    below.unwrap_or(&DEDISPERSE[0]).1
}
