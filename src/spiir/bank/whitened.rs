//! The whitened template: of positive frequencies, with its ends cut where nothing is left.

use std::f64::consts::{PI, TAU};

use num_complex::Complex64;

use super::Options;
use super::spectrum::Conditioned;
use super::transforms::Transforms;
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
/// A waveform ends abruptly where its last sample is more than this part of its peak.
const ABRUPT: f64 = 0.1;
/// But a part of the power as small as this, from its last cycles on, makes no ripples that count.
const LITTLE: f64 = 1e-3;
/// Part of the power that must be left where such an end is faded out: else the end's click is all that lies in band.
const WITHOUT_END: f64 = 0.01;
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
    /// The same of a waveform whose abrupt end is faded out, of a smooth phase: what filters are placed along.
    pub guide: Option<Vec<Complex64>>,
    /// `sum |h|^2` with all that was cut off its ends, but for an early warning's cut.
    pub power: f64,
    /// The phase's advance a sample where nearly all of the power has passed, or at the peak if that is earlier.
    pub final_step: f64,
    /// Index of the sample from which filters follow it.
    pub start: usize,
    /// Index of the sample up to which they do: behind it whitening rings on.
    pub end: usize,
    /// The waveform's peak less the last sample, in samples.
    pub peak_offset: i64,
}

impl Whitened {
    /// Whitens a waveform.
    ///
    /// # Errors
    /// A sentence when the waveform has nothing in the band, or nothing is left of it.
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
        // An early warning ends where it was told to.
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

/// Samples over which a waveform rises as `sin^2` and falls alike.
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

/// Samples of a waveform's first or last cycles, at most an eighth of it.
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

/// The least `2^a`, `3 2^a` or `9 2^a` that is at least `length` and a multiple of `2^halvings`.
pub(super) fn fast_size(length: usize, halvings: u32) -> usize {
    let sizes = [1, 3, 9].map(|factor: usize| {
        let power = length.div_ceil(factor).next_power_of_two().max(1 << halvings);
        factor * power
    });
    sizes.into_iter().min().unwrap_or(length)
}
