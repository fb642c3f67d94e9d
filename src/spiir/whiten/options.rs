//! Options of a whitener.
//!
//! Invariant: options are plain data; they are checked when a whitener is made.

use super::running::RunningOptions;
use crate::math::PowerSpectrum;

/// Source of the power spectrum.
#[derive(Clone, Debug, PartialEq)]
pub enum Psd {
    /// One spectrum for the whole stream; it must reach the Nyquist frequency.
    Fixed(PowerSpectrum),
    /// A spectrum that tracks the stream.
    Running(RunningOptions),
}

/// Method of filtering.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Method {
    /// Zero-phase kernel of total length `fft_s`; the latency is `fft_s` plus the taper's.
    Overlap {
        /// Length of the kernel in seconds, at least that of the segments of the spectrum.
        fft_s: f64,
    },
    /// Minimum-phase kernel; the latency is one block, `2^round(log2(rate / 64))` samples less 1: 15 ms at 4096 Hz.
    MinimumPhase {
        /// Length of the kernel in seconds.
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
    /// Returns 50 standard deviations, 0.25 s and 0.25 s.
    fn default() -> Self {
        Self { threshold: 50.0, hold_s: 0.25, taper_s: 0.25 }
    }
}

/// Seconds over which strain fades next to unusable samples.
///
/// Short tapers create sidebands of strong lines, which pass the filter's narrow notches. Next to a gap in LIGO
/// Livingston's strain of 2015, the whitened strain reached 17 standard deviations with a taper of 0.25 s on both
/// sides, 8 with 0.5 s, and 5 with 1 s, hardly more than the noise.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Taper {
    /// Before such samples; adds to the latency.
    pub before_s: f64,
    /// After such samples, and after the stream's beginning.
    pub after_s: f64,
}

/// Options of a whitener.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Samples per second.
    pub rate_hz: u32,
    /// Source of the power spectrum.
    pub psd: Psd,
    /// Method of filtering.
    pub method: Method,
    /// Lowest frequency that is whitened; the response is 0 below 3/4 of it.
    pub f_low_hz: f64,
    /// Fade of the strain next to gaps.
    pub taper: Taper,
    /// Gating of loud transients; off by default.
    pub gate: Option<GateOptions>,
}

impl Options {
    /// Returns zero-phase whitening with a kernel of 4 s from 15 Hz on, tapers of 1 s, no gate; the latency is 5 s.
    pub fn new(rate_hz: u32, psd: Psd) -> Self {
        let method = Method::Overlap { fft_s: 4.0 };
        let taper = Taper { before_s: 1.0, after_s: 1.0 };
        Self { rate_hz, psd, method, f_low_hz: 15.0, taper, gate: None }
    }

    /// Returns minimum-phase whitening with a kernel of 4 s, a taper of 1 s after gaps and none before. The filter
    /// restarts after a gap, so the cut does not ring. The latency is 15 ms at 4096 Hz.
    pub fn low_latency(rate_hz: u32, psd: Psd) -> Self {
        let method = Method::MinimumPhase { taps_s: 4.0 };
        let taper = Taper { before_s: 0.0, after_s: 1.0 };
        Self { method, taper, ..Self::new(rate_hz, psd) }
    }
}
