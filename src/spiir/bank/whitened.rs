//! Whitened template: an analytic signal without the ends that hold no power.

use std::f64::consts::{PI, TAU};

use num_complex::Complex64;

use super::Options;
use super::spectrum::Conditioned;
use super::transforms::Transforms;
use crate::strain::Waveform;

/// Padding on each side for the spread of the whitening, in seconds.
const MARGIN_S: f64 = 4.0;
/// Fractions of the power cut before the first sample and after the last.
const LOST: [f64; 2] = [1e-5, 2e-4];
/// Fraction of the peak below which a waveform has ended. The whitening rings on after it with a phase of its own.
const QUIET: f64 = 0.01;
/// Most of the power that may lie in the ringing.
const RINGING: f64 = 1e-3;
/// Cycles over which a template that starts abruptly is faded in, at most an eighth of it.
const FADE_CYCLES: f64 = 2.0;
/// Fraction of the peak above which the last sample counts as an abrupt end.
const ABRUPT: f64 = 0.1;
/// Fraction of the power in the last cycles below which an abrupt end causes no significant ripples.
const LITTLE: f64 = 1e-3;
/// Least fraction of the power that must remain after fading out an abrupt end. With less, only the click of the end
/// is in band.
const WITHOUT_END: f64 = 0.01;
/// Fraction of the power that has passed at the final frequency, and samples on each side that it is averaged over.
const FINAL_POWER: f64 = 0.999;
const FINAL_SAMPLES: usize = 4;
/// Fewest samples of a template.
const FEWEST: usize = 8;

/// Whitened template.
#[derive(Clone, Debug)]
pub(super) struct Whitened {
    /// Samples in units of the standard deviation of whitened noise.
    pub samples: Vec<Complex64>,
    /// The same waveform with its abrupt end faded out, which has a smooth phase to place filters along.
    pub guide: Option<Vec<Complex64>>,
    /// `sum |h|^2` including the cut ends, except the part cut for early warning.
    pub power: f64,
    /// Phase advance per sample where 99.9 % of the power has passed, or at the peak if that is earlier.
    pub final_step: f64,
    /// Index of the first sample that filters follow.
    pub start: usize,
    /// Index of the last sample that filters follow; after it the whitening rings on.
    pub end: usize,
    /// Position of the waveform's peak relative to the last sample, in samples.
    pub peak_offset: i64,
}

impl Whitened {
    /// Whitens a waveform.
    ///
    /// # Errors
    /// A message if the waveform has no power in the band, or nothing remains of it.
    pub(super) fn new(
        waveform: &Waveform,
        conditioned: &Conditioned,
        options: &Options,
        transforms: &Transforms,
    ) -> Result<Self, String> {
        let rate = f64::from(waveform.rate_hz);
        let ringing =
            if options.smoothing_hz == 0.0 { 1.0 / conditioned.spacing_hz() } else { 0.0 };
        let margin = (MARGIN_S.max(ringing) * rate) as usize;
        let fade = Fade { begin: cycles(&waveform.samples, false), end: 0 };
        let all = whiten(waveform, (conditioned, transforms), margin, fade);
        let peak = margin + waveform.peak;
        let early = (options.before_s * rate).round() as usize;
        let end = if early > 0 { peak.saturating_sub(early) + 1 } else { all.len() };
        let all = &all[..end];
        let total: f64 = all.iter().map(Complex64::norm_sqr).sum();
        let full: f64 = waveform.samples.iter().map(Complex64::norm_sqr).sum();
        if total <= 0.0 || !total.is_finite() || full <= 0.0 {
            return Err(format!(
                "nothing of it is left between {} Hz and the band's end, {} s before its peak",
                options.f_low_hz, options.before_s
            ));
        }
        let reaches = |part: f64| {
            let mut sum = 0.0;
            all.iter().position(|h| {
                sum += h.norm_sqr();
                sum >= part * total
            })
        };
        let first = reaches(LOST[0]).unwrap_or(0);
        // An early-warning template ends at its cut.
        let (quiet, last) = match early {
            0 => {
                let rung = reaches(1.0 - RINGING).unwrap_or(end - 1);
                let quiet = margin + quiet_from(waveform);
                (quiet, reaches(1.0 - LOST[1]).unwrap_or(end - 1).min(quiet.max(rung)))
            }
            _ => (end - 1, end - 1),
        };
        let start = reaches(1.0 - options.power).unwrap_or(0).max(first) - first;
        let samples = all[first..=last].to_vec();
        if samples.len() < FEWEST {
            let left = samples.len();
            return Err(format!("{left} samples of it are left, at least {FEWEST} are needed"));
        }
        let ending = cycles(&waveform.samples, true);
        let ends = all.get(margin + waveform.samples.len() - ending..).unwrap_or(&[]);
        let is_loud = || ends.iter().map(Complex64::norm_sqr).sum::<f64>() > LITTLE * total;
        let guide = (is_abrupt(waveform) && is_loud()).then(|| {
            let fade = Fade { end: ending, ..fade };
            whiten(waveform, (conditioned, transforms), margin, fade)[first..=last].to_vec()
        });
        let left = |guide: &Vec<Complex64>| guide.iter().map(Complex64::norm_sqr).sum::<f64>();
        if early == 0 && guide.as_ref().is_some_and(|guide| left(guide) < WITHOUT_END * total) {
            return Err(format!(
                "nothing of it is left above {} Hz but its abrupt end",
                options.f_low_hz
            ));
        }
        let passed = reaches(FINAL_POWER).unwrap_or(last).min(peak).max(first);
        let final_step = mean_step(&samples, passed - first);
        Ok(Self {
            samples,
            guide,
            final_step,
            power: total,
            start,
            end: quiet.clamp(first, last) - first,
            peak_offset: peak as i64 - last as i64,
        })
    }
}

/// Returns the mean phase advance per sample around one of them.
fn mean_step(h: &[Complex64], at: usize) -> f64 {
    let near = &h[at.saturating_sub(FINAL_SAMPLES).min(h.len() - 2)..];
    let turn = |pair: &[Complex64]| pair[1] * pair[0].conj();
    near.windows(2).take(2 * FINAL_SAMPLES).map(turn).sum::<Complex64>().arg()
}

/// Returns the last sample above [`QUIET`].
fn quiet_from(waveform: &Waveform) -> usize {
    let least = QUIET * QUIET * waveform.samples[waveform.peak].norm_sqr();
    waveform.samples.iter().rposition(|h| h.norm_sqr() > least).unwrap_or(waveform.peak)
}

/// Whitens the faded-in `h_plus` and returns its analytic signal, padded by `margin` samples on each side.
fn whiten(
    waveform: &Waveform,
    (conditioned, transforms): (&Conditioned, &Transforms),
    margin: usize,
    fade: Fade,
) -> Vec<Complex64> {
    let samples = &waveform.samples;
    let used = samples.len() + 2 * margin;
    let size = fast_size(used, 1);
    let mut series = vec![Complex64::default(); size];
    for (at, (out, h)) in series[margin..].iter_mut().zip(samples).enumerate() {
        out.re = h.re * fade.at(at, samples.len());
    }
    transforms.forward(size).process(&mut series);
    let spacing = f64::from(waveform.rate_hz) / size as f64;
    for (bin, value) in series.iter_mut().enumerate() {
        let is_positive = bin > 0 && bin <= size / 2;
        let gain = if is_positive { conditioned.gain(bin as f64 * spacing) } else { 0.0 };
        *value *= 2.0 * gain / size as f64;
    }
    transforms.inverse(size).process(&mut series);
    series.truncate(used);
    series
}

/// Fade lengths in samples: the waveform rises and falls as `sin^2`.
#[derive(Clone, Copy, Debug)]
struct Fade {
    begin: usize,
    end: usize,
}

impl Fade {
    fn at(self, at: usize, length: usize) -> f64 {
        let rise = |at: usize, over: usize| match at < over {
            true => (PI * (at as f64 + 0.5) / (2.0 * over as f64)).sin().powi(2),
            false => 1.0,
        };
        rise(at, self.begin) * rise(length - 1 - at, self.end)
    }
}

/// Returns the samples of a waveform's first or last [`FADE_CYCLES`] cycles, at most an eighth of it.
fn cycles(samples: &[Complex64], is_end: bool) -> usize {
    let longest = samples.len() / 8;
    let mut phase = 0.0;
    let mut passes = |pair: &[Complex64]| {
        phase += (pair[1] * pair[0].conj()).arg().abs();
        phase >= FADE_CYCLES * TAU
    };
    let mut pairs = samples.windows(2);
    let passed = match is_end {
        true => pairs.rev().take(longest).position(&mut passes),
        false => pairs.by_ref().take(longest).position(&mut passes),
    };
    passed.unwrap_or(longest)
}

fn is_abrupt(waveform: &Waveform) -> bool {
    let samples = &waveform.samples;
    let last = samples.last().map_or(0.0, |h| h.norm());
    last > ABRUPT * samples[waveform.peak].norm()
}

/// Returns the least `2^a`, `3 2^a` or `9 2^a` that is at least `length` and a multiple of `2^halvings`.
pub(super) fn fast_size(length: usize, halvings: u32) -> usize {
    let sizes = [1, 3, 9].map(|factor: usize| {
        let power = length.div_ceil(factor).next_power_of_two().max(1 << halvings);
        factor * power
    });
    sizes.into_iter().min().unwrap_or(length)
}
