//! Filter banks as files store them and searches use them: filters, templates, resampling filters.
//!
//! Invariant: a template has one branch per rate, in increasing order of halvings.

use num_complex::Complex;

use crate::strain::Binary;

/// Infinite impulse response filter `y[k] = a y[k - 1] + b x[k - delay]` at the rate of its branch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Filter {
    /// Pole, `|a| < 1`.
    pub a: Complex<f32>,
    /// Weight of the input.
    pub b: Complex<f32>,
    /// Delay of the input in samples of the branch.
    pub delay: u32,
}

/// Filters of one template that run at one rate.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Branch {
    /// Number of times the rate is halved: the branch runs at `rate_hz / 2^halvings`.
    pub halvings: u32,
    /// Filters of the branch.
    pub filters: Vec<Filter>,
}

/// One template: the sum of all its filters is its signal-to-noise ratio.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Template {
    /// One branch per rate that has filters, in increasing order of halvings.
    pub branches: Vec<Branch>,
}

/// Filters for downsampling and upsampling by 2.
#[derive(Clone, Debug, PartialEq)]
pub struct Resampler {
    /// Taps of the filter before decimation.
    pub down: Vec<f32>,
    /// Delay of `down` in whole samples of the higher rate; the remainder is part of its phase response.
    pub down_delay: usize,
    /// Taps of the filter after zero insertion.
    pub up: Vec<f32>,
    /// Delay of `up` in samples of the higher rate.
    pub up_delay: usize,
}

/// Filters of one template and its properties for a search.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BankTemplate {
    /// Name of the waveform.
    pub name: String,
    /// Binary, if known.
    pub binary: Option<Binary>,
    /// Approximant of its waveform, such as IMRPhenomD, if known.
    pub approximant: Option<String>,
    /// Filters.
    pub filters: Template,
    /// Match between the filters and the whitened template, from 0 to 1. It includes the rounding of the
    /// coefficients, the resampler's response and the template's cut ends.
    pub fit: f64,
    /// Match before the weights were fitted.
    pub placement_fit: f64,
    /// Tolerance at which the filters were placed, in cycles.
    pub epsilon: f64,
    /// Signal-to-noise ratio of an optimally oriented source at 1 Mpc in the exact matched filter.
    pub sigma_1mpc: f64,
    /// Distance in Mpc at which that ratio is 8.
    pub horizon_mpc: f64,
    /// `A[m] = (u * h)[L - 1 + m] / (u * h)[L - 1]` of the response `u` and the whitened template `h` at the strain's
    /// rate; `A[0] = 1` is the middle.
    pub autocorrelation: Vec<Complex<f32>>,
    /// `sum(2 - 2 |A|^2)`.
    pub autocorrelation_norm: f32,
    /// Event time minus the time of the output sample at which its ratio peaks, in seconds.
    pub peak_offset_s: f64,
    /// Length of the whitened template in seconds.
    pub duration_s: f64,
    /// Lowest frequency used, in Hz.
    pub f_low_hz: f64,
    /// Template frequency in Hz when 99.9 % of its power has passed, or at its peak if that is earlier.
    pub f_final_hz: f64,
    /// Whitened template with `sum |h|^2 = 2` in increasing time: an analytic signal whose real part is the whitened
    /// `h_plus`. The response is `conj(h[L - 1 - n])`.
    pub whitened: Vec<Complex<f32>>,
}

/// Template that was rejected from a bank.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LeftOut {
    /// Index among the waveforms of the bank, from 0.
    pub index: usize,
    /// Name of the waveform.
    pub name: String,
    /// Best match, if filters were designed.
    pub fit: Option<f64>,
    /// Reason of the rejection.
    pub reason: String,
}
