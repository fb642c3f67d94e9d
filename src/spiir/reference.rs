//! References: the filter bank as plain loops in double precision, which the variants are tested against, and matched
//! filters by Fourier transforms, which the filter bank approximates.
//!
//! A template is the analytic signal of `h_plus`: only its positive frequencies, doubled. For a face-on wave, whose
//! `h_cross` lags `h_plus` by 90 degrees, that is `h_plus + i h_cross`. So the real part of a signal-to-noise ratio
//! is the match with `h_plus`, and its imaginary part is minus the match with `h_cross`.

use std::fmt;
use std::sync::Arc;

use num_complex::{Complex, Complex64};
use rustfft::{Fft, FftPlanner};

use super::plan::{Filter, Plan};
use crate::error::{Error, Result};
use crate::math::PowerSpectrum;
use crate::strain::Waveform;
use crate::view::check_length;

/// Filters in double precision with the rounded coefficients.
#[derive(Debug)]
pub(super) struct Engine {
    plan: Plan,
    /// Input of each level since the stream's start.
    inputs: Vec<Vec<f64>>,
    /// States of the filters, and the sum since the stream's start, for each template and level.
    states: Vec<Vec<(Vec<Complex64>, Vec<Complex64>)>>,
    /// Samples written.
    written: usize,
}

impl Engine {
    /// Starts a stream.
    pub(super) fn new(plan: &Plan) -> Self {
        let levels = plan.levels();
        let states = vec![vec![(Vec::new(), Vec::new()); levels]; plan.templates()];
        Self { plan: plan.clone(), inputs: vec![Vec::new(); levels], states, written: 0 }
    }

    /// Filters samples of whitened strain and writes the ratios known so far to `output` (template, time).
    pub(super) fn run(
        &mut self,
        input: &[f32],
        output: &mut [Complex<f32>],
        stride: usize,
    ) -> usize {
        let Self { plan, inputs, states, written } = self;
        let finite = |x: &f32| if x.is_finite() { f64::from(*x) } else { 0.0 };
        inputs[0].extend(input.iter().map(finite));
        let down = &plan.options().resampler.down;
        for level in 1..inputs.len() {
            let (higher, lower) = inputs.split_at_mut(level);
            let higher = &higher[level - 1];
            for k in lower[0].len()..higher.len().div_ceil(2) {
                let taps = down.iter().enumerate().take_while(|(j, _)| *j <= 2 * k);
                lower[0].push(taps.map(|(j, tap)| f64::from(*tap) * higher[2 * k - j]).sum());
            }
        }
        for (template, levels) in states.iter_mut().enumerate() {
            for level in (0..inputs.len()).rev() {
                extend(plan, template, level, &inputs[level], levels);
            }
        }
        let latency = plan.latency();
        let known = inputs[0].len().saturating_sub(latency);
        let produced = known - *written;
        for (template, levels) in states.iter().enumerate() {
            let row = &mut output[template * stride..][..produced];
            for (z, sum) in row.iter_mut().zip(levels[0].1.iter().skip(*written + latency)) {
                *z = Complex::new(sum.re as f32, sum.im as f32);
            }
        }
        *written = known;
        produced
    }
}

/// Extends one template's sum at one level to the end of its input: its own filters plus the upsampled lower level.
fn extend(
    plan: &Plan,
    template: usize,
    level: usize,
    x: &[f64],
    levels: &mut [(Vec<Complex64>, Vec<Complex64>)],
) {
    let branches = &plan.own()[template].branches;
    let branch = branches.iter().find(|branch| branch.halvings as usize == level);
    let filters: &[Filter] = branch.map_or(&[], |branch| &branch.filters);
    let (own, lower) = levels[level..].split_at_mut(1);
    let (states, sums) = &mut own[0];
    states.resize(filters.len(), Complex64::default());
    for k in sums.len()..x.len() {
        let mut sum =
            lower.first().map_or(Complex64::default(), |lower| doubled(plan, &lower.1, k));
        for (y, filter) in states.iter_mut().zip(filters) {
            let at = k.checked_sub(filter.delay as usize + plan.alignment(level));
            *y = filter.pole() * *y + filter.weight() * at.map_or(0.0, |at| x[at]);
            sum += *y;
        }
        sums.push(sum);
    }
}

/// Returns sample `n` of a lower level's sum at twice its rate.
fn doubled(plan: &Plan, lower: &[Complex64], n: usize) -> Complex64 {
    let up = plan.options().resampler.up.iter().enumerate();
    let taps = up.filter(|(j, _)| *j <= n && (n - j).is_multiple_of(2));
    taps.map(|(j, tap)| lower[(n - j) / 2] * f64::from(*tap)).sum()
}

/// Frequency band of a matched filter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Band {
    /// Lowest frequency in Hz.
    pub low_hz: f64,
    /// Highest frequency in Hz; the Nyquist frequency if `None`.
    pub high_hz: Option<f64>,
}

impl Band {
    /// Returns the band from `low_hz` to the Nyquist frequency.
    pub fn above(low_hz: f64) -> Self {
        Self { low_hz, high_hz: None }
    }

    /// Returns the bins in the band of a transform of `points` samples.
    fn bins(&self, points: usize, rate_hz: f64) -> Result<std::ops::Range<usize>> {
        let nyquist_hz = rate_hz / 2.0;
        let high_hz = self.high_hz.unwrap_or(nyquist_hz).min(nyquist_hz);
        let sound = self.low_hz >= 0.0 && self.low_hz < high_hz;
        if !sound {
            let rule = format!("it must be at least 0 and below the band's end, {high_hz} Hz");
            return Err(Error::parameter("lowest frequency (Hz)", self.low_hz, rule));
        }
        let bin = |frequency: f64| (frequency / rate_hz * points as f64) as usize;
        Ok(bin(self.low_hz).max(1)..bin(high_hz).min(points.div_ceil(2)))
    }
}

/// Computes the complex signal-to-noise ratio of a template in strain by Fourier transforms.
///
/// `z(t) = 4 / sigma * integral of d(f) conj(h(f)) / S(f) exp(2 pi i f t) df` over the positive frequencies of the
/// band, with `sigma^2 = 4 * integral of |h(f)|^2 / S(f) df` and `h` the template's `h_plus`. The other polarization
/// is its quadrature, which follows from omitting the negative frequencies.
///
/// | buffer   | axes | type        | unit                                 | access   |
/// |----------|------|-------------|--------------------------------------|----------|
/// | `strain` | time | f64         | strain                               | read     |
/// | `z`      | time | complex f64 | standard deviations, each quadrature | returned |
///
/// `z[k]` is the ratio of a wave whose peak ([`Waveform::peak`]) is at sample `k`. The strain is treated as periodic,
/// so ratios within the template's length of either end mix both ends.
///
/// # Errors
/// [`Error::Parameter`] if the template is longer than the strain or has no power in the band, the band is empty, or
/// a sample is not finite.
/// # Source
/// Allen et al. 2012, Phys. Rev. D 85, 122006, equations 3.1 to 3.4; the convention of `PyCBC`'s `matched_filter`.
pub fn matched_filter(
    strain: &[f64],
    template: &Waveform,
    psd: &PowerSpectrum,
    band: Band,
) -> Result<Vec<Complex64>> {
    let points = strain.len();
    if template.samples.len() > points {
        let rule = format!("it is longer than the data, which have {points} samples");
        return Err(Error::parameter("template's samples", template.samples.len(), rule));
    }
    if let Some(bad) = strain.iter().find(|sample| !sample.is_finite()) {
        return Err(Error::parameter("strain", bad, "a matched filter needs finite samples"));
    }
    let bins = band.bins(points, f64::from(template.rate_hz))?;
    let mut planner = FftPlanner::new();
    let forward = planner.plan_fft_forward(points);
    let spacing_hz = f64::from(template.rate_hz) / points as f64;
    let mut wave = vec![Complex64::default(); points];
    for (index, h) in template.samples.iter().enumerate() {
        wave[(index + points - template.peak) % points].re = h.re;
    }
    forward.process(&mut wave);
    let mut z: Vec<Complex64> = strain.iter().map(|x| Complex64::new(*x, 0.0)).collect();
    forward.process(&mut z);
    let mut power = 0.0;
    for (bin, (data, wave)) in z.iter_mut().zip(&wave).enumerate() {
        let weight =
            if bins.contains(&bin) { psd.at(bin as f64 * spacing_hz).recip() } else { 0.0 };
        power += wave.norm_sqr() * weight;
        *data *= wave.conj() * weight;
    }
    if !(power.is_finite() && power > 0.0) {
        let rule = "the template must have power where the spectrum is known";
        return Err(Error::parameter("band of the matched filter (Hz)", band.low_hz, rule));
    }
    // For unnormalized transforms, d and h each lack a sample interval and the integral a bin width: 4 / (N f_s) in
    // all.
    let scale = (4.0 / (points as f64 * f64::from(template.rate_hz)) / power).sqrt();
    planner.plan_fft_inverse(points).process(&mut z);
    z.iter_mut().for_each(|z| *z *= scale);
    Ok(z)
}

/// Overlap-save correlation of whitened strain with whitened templates, one block at a time.
///
/// `z[k] = c * sum_m conj(h[m]) x[k + m - (L - 1)]`, with `c` such that each quadrature of `z` is N(0, 1) for white
/// `x` of unit variance. `Spiir` approximates this. The ratios of a block of [`Self::hop`] samples are known when the
/// block is complete, so the latency is one block.
pub struct MatchedFilter {
    points: usize,
    /// Samples before a block that the longest template reaches back.
    history: usize,
    /// Transforms of the templates' responses.
    spectra: Vec<Vec<Complex<f32>>>,
    forward: Arc<dyn Fft<f32>>,
    inverse: Arc<dyn Fft<f32>>,
    block: Vec<Complex<f32>>,
    product: Vec<Complex<f32>>,
    scratch: Vec<Complex<f32>>,
}

impl fmt::Debug for MatchedFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("MatchedFilter");
        debug.field("points", &self.points).field("history", &self.history).finish()
    }
}

impl MatchedFilter {
    /// Creates filters for templates (whitened, analytic, last sample last) with transforms of `points` samples; 0
    /// selects four times the longest template.
    ///
    /// # Errors
    /// [`Error::Parameter`] if there is no template, one is empty, zero or not finite, or `points` is not above the
    /// longest.
    pub fn new(templates: &[&[Complex<f32>]], points: usize) -> Result<Self> {
        let longest = templates.iter().map(|template| template.len()).max().unwrap_or(0);
        if longest == 0 || templates.iter().any(|template| template.is_empty()) {
            let rule = "each needs at least 1 sample";
            return Err(Error::parameter("templates", templates.len(), rule));
        }
        let points = if points == 0 { (4 * longest).next_power_of_two() } else { points };
        if points <= longest {
            let rule = format!("it must be above the longest template, {longest} samples");
            return Err(Error::parameter("points of the transform", points, rule));
        }
        let mut planner = FftPlanner::new();
        let (forward, inverse) =
            (planner.plan_fft_forward(points), planner.plan_fft_inverse(points));
        let spectrum = |template: &&[Complex<f32>]| response(template, points, forward.as_ref());
        let spectra = templates.iter().map(spectrum).collect::<Result<Vec<_>>>()?;
        let scratch = forward.get_inplace_scratch_len().max(inverse.get_inplace_scratch_len());
        Ok(Self {
            points,
            history: longest - 1,
            spectra,
            block: vec![Complex::default(); points],
            product: vec![Complex::default(); points],
            scratch: vec![Complex::default(); scratch],
            forward,
            inverse,
        })
    }

    /// Returns the new samples per block.
    pub fn hop(&self) -> usize {
        self.points - self.history
    }

    /// Returns the samples that a block needs before its new ones.
    pub fn history(&self) -> usize {
        self.history
    }

    /// Filters one block: [`Self::history`] samples followed by up to [`Self::hop`] new ones. Writes the ratios of
    /// the new samples, axes template, time.
    ///
    /// # Errors
    /// [`Error::Shape`] if there are fewer samples than the history or more than a transform, or the output's length
    /// is not that of the new samples of all templates.
    pub fn run(&mut self, x: &[f32], z: &mut [Complex<f32>]) -> Result<()> {
        if x.len() < self.history || x.len() > self.points {
            let what = "whitened samples of a block, its history with them";
            return Err(Error::Shape { what, expected: self.points, actual: x.len() });
        }
        let hop = x.len() - self.history;
        check_length("signal-to-noise ratios (template, time)", self.spectra.len() * hop, z.len())?;
        if hop == 0 {
            return Ok(());
        }
        self.block.fill(Complex::default());
        for (point, x) in self.block.iter_mut().zip(x) {
            point.re = *x;
        }
        self.forward.process_with_scratch(&mut self.block, &mut self.scratch);
        for (spectrum, row) in self.spectra.iter().zip(z.chunks_exact_mut(hop)) {
            for ((product, x), u) in self.product.iter_mut().zip(&self.block).zip(spectrum) {
                *product = x * u;
            }
            self.inverse.process_with_scratch(&mut self.product, &mut self.scratch);
            row.copy_from_slice(&self.product[self.history..][..hop]);
        }
        Ok(())
    }
}

/// Returns the transform of the time-reversed, normalized template, including the inverse transform's scale.
fn response(
    template: &[Complex<f32>],
    points: usize,
    forward: &dyn Fft<f32>,
) -> Result<Vec<Complex<f32>>> {
    let wide = |h: &Complex<f32>| Complex64::new(h.re.into(), h.im.into());
    let power: f64 = template.iter().map(|h| wide(h).norm_sqr()).sum();
    if !(power.is_finite() && power > 0.0) {
        let rule = "its samples must be finite, and not all 0";
        return Err(Error::parameter("power of a whitened template", power, rule));
    }
    let scale = (2.0 / power).sqrt() / points as f64;
    let mut spectrum = vec![Complex::default(); points];
    for (u, h) in spectrum.iter_mut().zip(template.iter().rev()) {
        let scaled = wide(h).conj() * scale;
        *u = Complex::new(scaled.re as f32, scaled.im as f32);
    }
    forward.process(&mut spectrum);
    Ok(spectrum)
}

/// Returns the signal-to-noise ratios of one whitened template in whitened strain: `z[k]` is that of a wave whose
/// last sample is at `k`, the convention of `Spiir`.
///
/// # Errors
/// As [`MatchedFilter::new`].
pub fn matched_whitened(x: &[f32], template: &[Complex<f32>]) -> Result<Vec<Complex<f32>>> {
    let mut filter = MatchedFilter::new(&[template], 0)?;
    let (history, hop) = (filter.history(), filter.hop());
    let mut padded = vec![0.0; history];
    padded.extend_from_slice(x);
    let mut z = vec![Complex::default(); x.len()];
    for (index, row) in z.chunks_mut(hop).enumerate() {
        filter.run(&padded[index * hop..][..history + row.len()], row)?;
    }
    Ok(z)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlap_save_is_the_sum_over_the_template() {
        let wave = |m: usize| Complex::from_polar(1.0 + m as f32 * 0.1, 0.3 * (m * m) as f32);
        let template: Vec<Complex<f32>> = (0..13).map(wave).collect();
        let x: Vec<f32> = (0..301).map(|k| ((k * k) as f32 * 0.7).sin()).collect();
        let z = matched_whitened(&x, &template).expect("filtered");
        let norm = (2.0 / template.iter().map(|h| h.norm_sqr()).sum::<f32>()).sqrt();
        for (k, z) in z.iter().enumerate() {
            let terms = template.iter().enumerate().filter(|(m, _)| k + m >= 12);
            let expected: Complex<f32> = terms.map(|(m, h)| h.conj() * x[k + m - 12]).sum();
            assert!((z - expected * norm).norm() < 1e-4, "{k}: {z}");
        }
    }

    #[test]
    fn a_template_finds_itself_at_its_peak_with_phase_zero_and_its_quadrature_a_quarter_behind() {
        let samples = (0..400).map(|m| {
            let phase = 0.2 * f64::from(m) + 4e-4 * f64::from(m * m);
            Complex64::from_polar(f64::from(m) / 400.0, -phase)
        });
        let template = Waveform::new("chirp", None, 1024, samples.collect(), 1.0).expect("a wave");
        let psd = PowerSpectrum::new(1.0, vec![2.0 / 1024.0; 513]).expect("white");
        let strain = |part: fn(&Complex64) -> f64| {
            let mut strain = vec![0.0; 2048];
            strain[1000..1400].iter_mut().zip(&template.samples).for_each(|(x, h)| *x = part(h));
            strain
        };
        let at = 1000 + template.peak;
        let filter = |x: &[f64]| matched_filter(x, &template, &psd, Band::above(5.0)).expect("z");
        let plus = filter(&strain(|h| h.re))[at];
        let power: f64 = template.samples.iter().map(|h| h.re * h.re).sum();
        assert!((plus.re / power.sqrt() - 1.0).abs() < 0.01 && plus.im.abs() < 1e-6, "{plus}");
        let cross = filter(&strain(|h| -h.im))[at];
        assert!((cross.im / power.sqrt() + 1.0).abs() < 0.02, "{cross}");
    }

    #[test]
    fn nonsense_is_refused() {
        let wave = Waveform::new("w", None, 64, vec![Complex64::new(1.0, 0.0); 8], 1.0).expect("w");
        let psd = PowerSpectrum::new(1.0, vec![1.0; 33]).expect("white");
        assert!(matched_filter(&[0.0; 7], &wave, &psd, Band::above(1.0)).is_err());
        assert!(matched_filter(&[f64::NAN; 64], &wave, &psd, Band::above(1.0)).is_err());
        assert!(matched_filter(&[0.0; 64], &wave, &psd, Band::above(40.0)).is_err());
        assert!(MatchedFilter::new(&[], 0).is_err());
        assert!(MatchedFilter::new(&[&[Complex::default()]], 0).is_err());
        assert!(MatchedFilter::new(&[&[Complex::new(1.0, 0.0); 4]], 4).is_err());
    }
}
