//! What a whitener is asked to do.
//!
//! Invariant: options are plain data; they are checked when a whitener is made.

use super::running::RunningOptions;
use crate::math::power_spectrum::PowerSpectrum;

/// Where the power spectrum comes from.
#[derive(Clone, Debug, PartialEq)]
pub enum Psd {
    /// One spectrum for the whole stream; it must reach to Nyquist's frequency.
    Fixed(PowerSpectrum),
    /// A spectrum that follows the stream.
    Running(RunningOptions),
}

/// How the filter is applied.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Method {
    /// A zero-phase kernel of `fft_s` seconds in all; latency `fft_s` (and the taper's).
    Overlap {
        /// Length of the kernel, at least that of the segments which the spectrum was taken from.
        fft_s: f64,
    },
    /// A minimum-phase kernel; latency one block, `2^round(log2(rate / 64))` samples less 1: 15 ms at 4096 Hz.
    MinimumPhase {
        /// Length of the kernel.
        taps_s: f64,
    },
}

/// Gating of loud transients in the whitened strain.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GateOptions {
    /// Whitened samples beyond this many standard deviations are gated.
    pub threshold: f64,
    /// Seconds on both sides of such a sample that are zeroed.
    pub hold_s: f64,
    /// Seconds beyond those over which the strain fades.
    pub taper_s: f64,
}

impl Default for GateOptions {
    /// 50 standard deviations, 0.25 s and 0.25 s.
    fn default() -> Self {
        Self { threshold: 50.0, hold_s: 0.25, taper_s: 0.25 }
    }
}

/// Seconds over which strain fades beside samples that may not be used.
///
/// Short ones make sidebands of strong lines, which the filter's narrow notches let through: beside a hole in LIGO
/// Livingston's strain of 2015, with a taper of 0.25 s on both sides, the whitened strain reached 17 standard
/// deviations, with 0.5 s 8, and with 1 s 5, hardly more than the noise.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Taper {
    /// Before them; adds to the latency.
    pub before_s: f64,
    /// After them, and after the stream's beginning.
    pub after_s: f64,
}

/// What a whitener does.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Samples in a second.
    pub rate_hz: u32,
    /// Where the power spectrum comes from.
    pub psd: Psd,
    /// How the filter is applied.
    pub method: Method,
    /// The lowest frequency that is whitened: from 3/4 of it down nothing passes.
    pub f_low_hz: f64,
    /// How strain fades beside gaps.
    pub taper: Taper,
    /// Gating of loud transients; off by default.
    pub gate: Option<GateOptions>,
}

impl Options {
    /// Zero-phase whitening with a kernel of 4 s from 15 Hz on, tapers of 1 s, no gate; latency 5 s.
    pub fn new(rate_hz: u32, psd: Psd) -> Self {
        let method = Method::Overlap { fft_s: 4.0 };
        let taper = Taper { before_s: 1.0, after_s: 1.0 };
        Self { rate_hz, psd, method, f_low_hz: 15.0, taper, gate: None }
    }

    /// Minimum-phase whitening with a kernel of 4 s, a taper of 1 s after gaps and none before: behind a gap the filter
    /// begins anew, so nothing of the cut rings on. Latency 15 ms at 4096 Hz.
    pub fn low_latency(rate_hz: u32, psd: Psd) -> Self {
        let method = Method::MinimumPhase { taps_s: 4.0 };
        let taper = Taper { before_s: 0.0, after_s: 1.0 };
        Self { method, taper, ..Self::new(rate_hz, psd) }
    }
}
