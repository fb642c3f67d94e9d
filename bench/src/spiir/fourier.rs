//! Compares the filter bank with an FFT matched filter: latency, and templates that one core runs in real time.

use std::f64::consts::PI;
use std::time::Instant;

use num_complex::Complex;
use sidereal::Result;
use sidereal::backend::simd::Level;
use sidereal::backend::threads::Threads;
use sidereal::backend::{Backend, roof};
use sidereal::math::advanced_ligo;
use sidereal::spiir::MatchedFilter;
use sidereal::spiir::bank::{Bank, Options, Rates as BankRates};
use sidereal::spiir::{Resampler, Spiir};
use sidereal::strain::Binary;
use sidereal::waveform::{InspiralOptions, SOLAR_MASS_S, inspiral};

use super::bank::RATE_HZ;
use crate::random;
use crate::runner::{Rates, Row, Run};

/// Name of the benchmark.
const BENCH: &str = "spiir";
/// Templates in a bank.
const TEMPLATES: usize = 4;
/// Samples per call of the filter bank.
const BLOCK: usize = 1024;
/// Operations per filter and sample.
const OPERATIONS: f64 = 12.0;
/// Least number of alternating rounds.
const ROUNDS: usize = 3;
/// Seconds of both filters' output that are compared.
const COMPARED_S: f64 = 2.0;

/// Template lengths in seconds, and the latencies allowed for the transforms.
const LENGTHS: [(f64, &[f64]); 4] = [
    (1.0, &[0.0625, 0.25, 1.0, 4.0]),
    (4.0, &[0.0625, 0.25, 1.0, 4.0, 16.0]),
    (16.0, &[0.0625, 0.25, 1.0, 4.0, 16.0]),
    (64.0, &[0.25, 1.0, 4.0, 16.0, 64.0]),
];

/// Results for one template length: points of latency in seconds, and templates that one core filters in real time.
#[derive(Clone, Debug)]
pub struct Curve {
    /// Length of the templates, in seconds.
    pub length_s: f64,
    /// Points of the Fourier transforms, by rising latency.
    pub transforms: Vec<(f64, f64)>,
    /// Points of the recursive filters, one per resampler.
    pub filters: Vec<(f64, f64)>,
}

/// Returns the frequency from which a 1.4 + 1.4 solar-mass inspiral lasts `seconds`: Newtonian chirp.
fn f_low_hz(seconds: f64) -> f64 {
    let chirp_mass_s = Binary::of_masses(1.4, 1.4).chirp_mass_msun() * SOLAR_MASS_S;
    (5.0 / (256.0 * seconds)).powf(0.375) * chirp_mass_s.powf(-0.625) / PI
}

/// Designs a bank of binary neutron stars of about 1.4 + 1.4 solar masses from `f_low_hz` in Advanced LIGO's design
/// noise.
pub(super) fn neutron_stars(
    templates: usize,
    f_low_hz: f64,
    lowest_hz: f64,
    resampler: Resampler,
) -> Result<Bank> {
    let make = |index: usize| {
        let binary = Binary::of_masses(1.4 + 0.003 * index as f64, 1.4);
        let inspirals = InspiralOptions { f_low_hz, rate_hz: RATE_HZ, ..Default::default() };
        inspiral(&binary, &inspirals)
    };
    let waves = (0..templates).map(make).collect::<Result<Vec<_>>>()?;
    let psd = advanced_ligo(0.25, RATE_HZ as usize * 2 + 1)?;
    let rates = BankRates::Multi { lowest_hz };
    Bank::design(&waves, &psd, &Options { f_low_hz, rates, resampler, ..Options::default() })
}

/// Filter bank on an endless stream.
struct Ours {
    spiir: Spiir,
    input: Vec<f32>,
    output: Vec<Complex<f32>>,
    effective: f64,
    latency_s: f64,
}

impl Ours {
    fn new(bank: &Bank, level: Level) -> Result<Self> {
        let plan = bank.plan()?;
        let filters = bank.templates.iter().map(|template| template.filters.effective_filters());
        Ok(Self {
            effective: filters.sum::<f64>() / bank.templates.len() as f64,
            latency_s: plan.latency() as f64 / f64::from(RATE_HZ),
            input: random::noise(41, BLOCK * 16),
            output: vec![Complex::default(); plan.templates() * BLOCK],
            spiir: Spiir::new(plan, &Backend::Cpu(level, Threads::new(1)))?,
        })
    }

    /// Returns the number of templates filtered in real time.
    fn rate(&mut self) -> Result<f64> {
        let began = Instant::now();
        for block in self.input.chunks_exact(BLOCK) {
            self.spiir.run(block, &mut self.output, BLOCK)?;
        }
        let data_s = self.input.len() as f64 / f64::from(RATE_HZ);
        Ok(self.spiir.plan().templates() as f64 * data_s / began.elapsed().as_secs_f64())
    }
}

/// Overlap-save matched filter, one block per call.
struct Fourier {
    filter: MatchedFilter,
    templates: usize,
    input: Vec<f32>,
    output: Vec<Complex<f32>>,
}

impl Fourier {
    /// Creates the filter with blocks of `latency_s`, or slightly more to give the transform a fast length.
    fn new(bank: &Bank, latency_s: f64) -> Result<Self> {
        let rows: Vec<&[Complex<f32>]> =
            bank.templates.iter().map(|template| template.whitened.as_slice()).collect();
        let longest = rows.iter().map(|row| row.len()).max().unwrap_or(0);
        let least = longest + (latency_s * f64::from(RATE_HZ)) as usize;
        let filter = MatchedFilter::new(&rows, smooth(least))?;
        Ok(Self {
            input: random::noise(43, filter.history() + filter.hop()),
            output: vec![Complex::default(); rows.len() * filter.hop()],
            templates: rows.len(),
            filter,
        })
    }

    fn latency_s(&self) -> f64 {
        self.filter.hop() as f64 / f64::from(RATE_HZ)
    }

    fn rate(&mut self) -> Result<f64> {
        let began = Instant::now();
        self.filter.run(&self.input, &mut self.output)?;
        let followed = self.templates as f64 * self.latency_s();
        Ok(followed / began.elapsed().as_secs_f64())
    }
}

/// Returns the smallest length of at least `least` without prime factors other than 2, 3 and 5, which transforms
/// fast.
fn smooth(least: usize) -> usize {
    let is_smooth = |length: usize| {
        let rest = [2, 3, 5].into_iter().fold(length, |mut rest, factor| {
            while rest.is_multiple_of(factor) {
                rest /= factor;
            }
            rest
        });
        rest == 1
    };
    (least.max(1)..).find(|length| is_smooth(*length)).unwrap_or(least)
}

/// Returns whether the filter bank's signal-to-noise ratios follow the template's as closely as the design match
/// predicts.
fn is_right(bank: &Bank, level: Level) -> Result<bool> {
    let longest = bank.templates.iter().map(|template| template.whitened.len()).max().unwrap_or(0);
    let times = longest + (COMPARED_S * f64::from(RATE_HZ)) as usize;
    let input = random::noise(47, times);
    let plan = bank.plan()?;
    let latency = plan.latency();
    let mut padded = input.clone();
    padded.resize(times + latency, 0.0);
    let stride = padded.len();
    let mut output = vec![Complex::default(); plan.templates() * stride];
    let mut spiir = Spiir::new(plan, &Backend::Cpu(level, Threads::new(1)))?;
    spiir.run(&padded, &mut output, stride)?;
    let rows: Vec<&[Complex<f32>]> =
        bank.templates.iter().map(|template| template.whitened.as_slice()).collect();
    let mut filter = MatchedFilter::new(&rows, smooth(times + 1))?;
    let hop = times - filter.history();
    let mut expected = vec![Complex::default(); rows.len() * hop];
    filter.run(&input, &mut expected)?;
    let mut follows = bank.templates.iter().enumerate().map(|(index, template)| {
        let ours = &output[index * stride + times - hop..][..hop];
        // Over a short stretch of noise the correlation scatters about the match.
        likeness(ours, &expected[index * hop..][..hop]) > template.fit - 0.02
    });
    Ok(follows.all(|one| one))
}

/// Computes `|<x, y>| / (|x| |y|)`.
fn likeness(x: &[Complex<f32>], y: &[Complex<f32>]) -> f64 {
    let wide = |z: &Complex<f32>| Complex::new(f64::from(z.re), f64::from(z.im));
    let power = |z: &[Complex<f32>]| z.iter().map(|z| wide(z).norm_sqr()).sum::<f64>();
    let product: Complex<f64> = x.iter().zip(y).map(|(x, y)| wide(x) * wide(y).conj()).sum();
    product.norm() / (power(x) * power(y)).sqrt()
}

/// Measures all lengths and latencies, one row for each transform; returns the points of the plot.
pub(super) fn measure(
    run: &mut Run<'_>,
    seconds: f64,
    wanted: &dyn Fn(&str) -> bool,
) -> Result<Vec<Curve>> {
    let mut curves = Vec::new();
    for (length_s, latencies) in LENGTHS {
        let name = |latency_s: f64| format!("{length_s} s templates, transforms of {latency_s} s");
        let latencies: Vec<f64> =
            latencies.iter().copied().filter(|latency_s| wanted(&name(*latency_s))).collect();
        if latencies.is_empty() {
            continue;
        }
        let f_low = f_low_hz(length_s);
        let bank = neutron_stars(TEMPLATES, f_low, 32.0, Resampler::low_latency())?;
        let slow = neutron_stars(TEMPLATES, f_low, 32.0, Resampler::default())?;
        let (slow_s, slow_rate) = alone(&slow, seconds)?;
        let mut curve = Curve { length_s, transforms: Vec::new(), filters: Vec::new() };
        let (mut best, mut quick_s) = (0.0_f64, 0.0);
        for latency_s in latencies {
            let name = name(latency_s);
            run.case(&name, || {
                let measured = compare(&bank, latency_s, seconds, &name)?;
                curve.transforms.push((measured.transform_s, measured.row.baseline));
                (best, quick_s) = (best.max(measured.row.rate), measured.filters_s);
                Ok(vec![measured.row])
            })?;
        }
        curve.filters = vec![(quick_s, best), (slow_s, slow_rate)];
        curves.push(curve);
    }
    Ok(curves)
}

/// Returns a bank's latency in seconds and the number of templates filtered in real time.
fn alone(bank: &Bank, seconds: f64) -> Result<(f64, f64)> {
    let mut ours = Ours::new(bank, Level::best())?;
    let (start, mut best) = (Instant::now(), ours.rate()?);
    while start.elapsed().as_secs_f64() < seconds {
        best = best.max(ours.rate()?);
    }
    Ok((ours.latency_s, best))
}

/// Row of a comparison, and the exact latencies of the transform and of the filter bank.
struct Measured {
    row: Row,
    transform_s: f64,
    filters_s: f64,
}

fn compare(bank: &Bank, latency_s: f64, seconds: f64, name: &str) -> Result<Measured> {
    let level = Level::best();
    let one = Threads::new(1);
    let checked = is_right(bank, level)?;
    let mut ours = Ours::new(bank, level)?;
    let mut fourier = Fourier::new(bank, latency_s)?;
    // Warm-up of FFT plans and memory pages.
    ours.rate()?;
    fourier.rate()?;
    let operations = OPERATIONS * ours.effective * f64::from(RATE_HZ);
    let roof = |_: &mut Ours| {
        let flops = 2.0 * roof::multiply_adds(level, &one, 2e-3) * OPERATIONS / 16.0;
        Ok(flops / operations)
    };
    let rates = Rates::alternate(&mut ours, ROUNDS, seconds, roof, |_| fourier.rate(), Ours::rate)?;
    let name = format!("{name} (ours {:.2} s, {:.0} filters)", ours.latency_s, ours.effective);
    let backend = Backend::Cpu(level, one.clone());
    let row = rates.row(BENCH, name, &backend, "templates in real time", checked);
    Ok(Measured { row, transform_s: fourier.latency_s(), filters_s: ours.latency_s })
}

/// Measures the number of 1.4 + 1.4 solar-mass templates that one core filters in real time, from several lowest
/// frequencies, beside transforms of the template's length in seconds.
pub(super) fn binaries(
    run: &mut Run<'_>,
    seconds: f64,
    wanted: &dyn Fn(&str) -> bool,
) -> Result<()> {
    for f_low in [30.0, 20.0, 15.0] {
        let name = format!("1.4 + 1.4 solar masses from {f_low} Hz");
        if wanted(&name) {
            run.case(&name, || {
                let bank = neutron_stars(TEMPLATES, f_low, 32.0, Resampler::default())?;
                let length_s = bank.templates[0].duration_s;
                Ok(vec![compare(&bank, length_s, seconds, &name)?.row])
            })?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{f_low_hz, smooth};

    #[test]
    fn lengths_of_transforms_are_smooth_and_long_enough() {
        assert_eq!([1000, 1001, 1025, 1601].map(smooth), [1000, 1024, 1080, 1620]);
        assert!((f_low_hz(64.0) - 28.06).abs() < 0.01, "{}", f_low_hz(64.0));
    }
}
