//! The whitened template: of positive frequencies, with its ends cut where nothing is left.

use std::f64::consts::{PI, TAU};

use num_complex::Complex64;
use rustfft::FftPlanner;

use super::Options;
use super::spectrum::Conditioned;
use crate::error::{Error, Result};
use crate::math::power_spectrum::PowerSpectrum;
use crate::strain::Waveform;

/// Room for what whitening spreads, on each side, in seconds.
const MARGIN_S: f64 = 4.0;
/// Part of the power that is always lost before the first sample, and after the last.
const LOST: [f64; 2] = [1e-5, 2e-4];
/// A waveform ends where it has fallen to this part of its peak for good: whitening rings on, with a phase of its own.
const QUIET: f64 = 0.01;
/// But no more than this part of the power may ring on.
const RINGING: f64 = 1e-3;
/// A template that starts at once is faded in over so many of its cycles, at most an eighth of it.
const FADE_CYCLES: f64 = 2.0;
/// Part of the power before the final frequency is reached, and samples on each side that it is taken from.
const FINAL_POWER: f64 = 0.999;
const FINAL_SAMPLES: usize = 4;
/// Fewest samples of a template.
const FEWEST: usize = 8;

/// A whitened template.
#[derive(Clone, Debug)]
pub(super) struct Whitened {
    /// Its samples, in the unit of whitened noise.
    pub samples: Vec<Complex64>,
    /// `sum |h|^2` with all that was cut off its ends, but for an early warning's cut.
    pub power: f64,
    /// The phase's advance a sample where nearly all of the power has passed, or at the peak if that is earlier.
    pub final_step: f64,
    /// Index of the sample from which filters follow it.
    pub start: usize,
    /// The waveform's peak less the last sample, in samples.
    pub peak_offset: i64,
}

impl Whitened {
    /// Whitens a waveform.
    ///
    /// # Errors
    /// [`Error::Parameter`] when the waveform has nothing in the band, or nothing is left of it.
    pub(super) fn new(waveform: &Waveform, psd: &PowerSpectrum, options: &Options) -> Result<Self> {
        let conditioned = Conditioned::new(psd, options, waveform.rate_hz)?;
        let rate = f64::from(waveform.rate_hz);
        let ringing = if options.smoothing_hz == 0.0 { 1.0 / psd.spacing_hz() } else { 0.0 };
        let margin = (MARGIN_S.max(ringing) * rate) as usize;
        let all = whiten(waveform, &conditioned, margin);
        let peak = margin + waveform.peak;
        let early = (options.before_s * rate).round() as usize;
        let end = if early > 0 { peak.saturating_sub(early) + 1 } else { all.len() };
        let all = &all[..end];
        let total: f64 = all.iter().map(Complex64::norm_sqr).sum();
        let full: f64 = waveform.samples.iter().map(Complex64::norm_sqr).sum();
        if total <= 0.0 || !total.is_finite() || full <= 0.0 {
            let rule = format!(
                "nothing of it is left between {} Hz and the band's end, {} s before its peak",
                options.f_low_hz, options.before_s
            );
            return Err(Error::parameter("waveform", &waveform.name, rule));
        }
        let reaches = |part: f64| {
            let mut sum = 0.0;
            all.iter().position(|h| {
                sum += h.norm_sqr();
                sum >= part * total
            })
        };
        let first = reaches(LOST[0]).unwrap_or(0);
        // An early warning ends where it was told to.
        let last = match early {
            0 => {
                let rung = reaches(1.0 - RINGING).unwrap_or(end - 1);
                let quiet = (margin + quiet_from(waveform)).max(rung);
                reaches(1.0 - LOST[1]).unwrap_or(end - 1).min(quiet)
            }
            _ => end - 1,
        };
        let start = reaches(1.0 - options.power).unwrap_or(0).max(first) - first;
        let samples = all[first..=last].to_vec();
        if samples.len() < FEWEST {
            let rule =
                format!("{} samples of it are left, at least {FEWEST} are needed", samples.len());
            return Err(Error::parameter("waveform", &waveform.name, rule));
        }
        let passed = reaches(FINAL_POWER).unwrap_or(last).min(peak).max(first);
        let final_step = mean_step(&samples, passed - first);
        Ok(Self {
            samples,
            final_step,
            power: total,
            start,
            peak_offset: peak as i64 - last as i64,
        })
    }
}

/// The phase's mean advance a sample around one of them.
fn mean_step(h: &[Complex64], at: usize) -> f64 {
    let near = &h[at.saturating_sub(FINAL_SAMPLES).min(h.len() - 2)..];
    let turn = |pair: &[Complex64]| pair[1] * pair[0].conj();
    near.windows(2).take(2 * FINAL_SAMPLES).map(turn).sum::<Complex64>().arg()
}

/// The last sample that is not quiet.
fn quiet_from(waveform: &Waveform) -> usize {
    let least = QUIET * QUIET * waveform.samples[waveform.peak].norm_sqr();
    waveform.samples.iter().rposition(|h| h.norm_sqr() > least).unwrap_or(waveform.peak)
}

/// The waveform's `h_plus`, faded in, whitened and made one-sided, with `margin` samples before it and after it.
fn whiten(waveform: &Waveform, conditioned: &Conditioned, margin: usize) -> Vec<Complex64> {
    let samples = &waveform.samples;
    let used = samples.len() + 2 * margin;
    let size = fast_size(used, 1);
    let mut series = vec![Complex64::default(); size];
    for ((out, h), fade) in series[margin..].iter_mut().zip(samples).zip(fade_in(samples)) {
        out.re = h.re * fade;
    }
    let mut planner = FftPlanner::new();
    planner.plan_fft_forward(size).process(&mut series);
    let spacing = f64::from(waveform.rate_hz) / size as f64;
    for (bin, value) in series.iter_mut().enumerate() {
        let is_positive = bin > 0 && bin <= size / 2;
        let gain = if is_positive { conditioned.gain(bin as f64 * spacing) } else { 0.0 };
        *value *= 2.0 * gain / size as f64;
    }
    planner.plan_fft_inverse(size).process(&mut series);
    series.truncate(used);
    series
}

/// Rises as `sin^2` over the first cycles.
fn fade_in(samples: &[Complex64]) -> impl Iterator<Item = f64> {
    let mut phase = 0.0;
    let longest = samples.len() / 8;
    let passed = samples.windows(2).take(longest).position(|pair| {
        let turn = (pair[1] * pair[0].conj()).arg();
        phase += turn.abs();
        phase >= FADE_CYCLES * TAU
    });
    let length = passed.unwrap_or(longest);
    let rise = move |at: usize| (PI * (at as f64 + 0.5) / (2.0 * length as f64)).sin().powi(2);
    (0..samples.len()).map(move |at| if at < length { rise(at) } else { 1.0 })
}

/// The least `2^a`, `3 2^a` or `9 2^a` that is at least `length` and a multiple of `2^halvings`.
pub(super) fn fast_size(length: usize, halvings: u32) -> usize {
    let sizes = [1, 3, 9].map(|factor: usize| {
        let power = length.div_ceil(factor).next_power_of_two().max(1 << halvings);
        factor * power
    });
    sizes.into_iter().min().unwrap_or(length)
}
