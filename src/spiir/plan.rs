//! Options of the filter bank (filters, rates, resampling filters), their checks, and derived sizes.
//!
//! Downsampling: `x_(m+1)[k] = sum_j down[j] x_m[2 k - j]`. Upsampling: `w_m[n] = sum_j up[j] s[n - j]` with
//! `s[2 k] = s_(m+1)[k]` and zeros in between. Both have unit gain at zero frequency: `down` sums to 1, `up` to 2.

use std::f64::consts::TAU;
use std::ops::Range;
use std::sync::Arc;

use num_complex::{Complex, Complex64};
use rustfft::FftPlanner;

use crate::error::{Error, Result};
use crate::math::{bessel_i0, kaiser_beta, sinc};
pub use crate::strain::{Branch, Filter, Resampler, Template};

/// Most halvings of the rate.
pub const MAX_HALVINGS: u32 = 12;
/// Longest delay of a filter in samples of its branch.
pub const MAX_DELAY: u32 = 1 << 27;

impl Filter {
    /// Returns the pole in double precision.
    pub fn pole(&self) -> Complex<f64> {
        Complex::new(f64::from(self.a.re), f64::from(self.a.im))
    }

    /// Returns the input weight in double precision.
    pub fn weight(&self) -> Complex<f64> {
        Complex::new(f64::from(self.b.re), f64::from(self.b.im))
    }
}

impl Template {
    /// Returns the number of filters at all rates.
    pub fn filters(&self) -> usize {
        self.branches.iter().map(|branch| branch.filters.len()).sum()
    }

    /// Returns the halvings of the lowest rate.
    pub fn halvings(&self) -> u32 {
        self.branches.iter().map(|branch| branch.halvings).max().unwrap_or(0)
    }

    /// Returns the number of filters weighted by cost: a filter at half the rate counts one half.
    pub fn effective_filters(&self) -> f64 {
        let cost =
            |branch: &Branch| branch.filters.len() as f64 / f64::from(1_u32 << branch.halvings);
        self.branches.iter().map(cost).sum()
    }
}

/// Options of a filter bank.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Samples of the strain per second.
    pub rate_hz: u32,
    /// Templates, which share the input.
    pub templates: Vec<Template>,
    /// Filters for downsampling and upsampling by 2.
    pub resampler: Resampler,
}

/// Templates of the smallest group that a GPU lays out on its own, and most groups of a bank, which 2, 3, 4, 6 and 8
/// devices share evenly.
const GROUP: usize = 512;
const MAX_GROUPS: usize = 24;

/// Most templates that the CPU lays out together.
pub(super) const UNIT: usize = 16;

/// Checked filter bank, or [some of its templates](Plan::parts).
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    options: Arc<Options>,
    /// Templates that are computed.
    own: Range<usize>,
    halvings: u32,
    /// Samples of each level's rate by which its filters wait for the lower rates.
    alignments: Vec<usize>,
    /// Samples of each level's input that its filters reach back.
    histories: Vec<usize>,
}

impl Plan {
    /// Checks the options.
    ///
    /// # Errors
    /// [`Error::Parameter`] if there is no template or one without filters, a pole is not inside the unit circle, a
    /// coefficient is not finite, a delay is too long, a template's branches are not in increasing order of halvings,
    /// the rate cannot be halved so often, or the resampler's taps are unusable.
    pub fn new(options: Options) -> Result<Self> {
        if options.rate_hz == 0 {
            return Err(Error::parameter("rate of the strain (Hz)", 0, "it must be above 0"));
        }
        if options.templates.is_empty() {
            return Err(Error::parameter("templates", 0, "a filter bank has at least 1"));
        }
        for (index, template) in options.templates.iter().enumerate() {
            check_template(index, template)?;
        }
        let halvings = options.templates.iter().map(Template::halvings).max().unwrap_or(0);
        if !options.rate_hz.is_multiple_of(1 << halvings) {
            let rule = format!("a branch halves it {halvings} times");
            return Err(Error::parameter("rate of the strain (Hz)", options.rate_hz, rule));
        }
        if halvings > 0 {
            options.resampler.check()?;
        }
        let alignments: Vec<usize> =
            (0..=halvings).map(|level| options.resampler.alignment(halvings - level)).collect();
        let reach = |level: usize| {
            let branches = options.templates.iter().flat_map(|template| &template.branches);
            let at_level = branches.filter(|branch| branch.halvings as usize == level);
            let filters = at_level.flat_map(|branch| &branch.filters);
            let longest = filters.map(|filter| filter.delay as usize).max();
            longest.map_or(0, |delay| delay + alignments[level])
        };
        let histories = (0..=halvings as usize).map(reach).collect();
        let own = 0..options.templates.len();
        Ok(Self { options: options.into(), own, halvings, alignments, histories })
    }

    /// Divides the templates into at most `count` plans of about the same cost, in order. All have the latency and the
    /// rates of this plan, and compute the same bits as this plan.
    ///
    /// Sums of a template depend on the other templates with which a device lays out its filters, so a part holds whole
    /// groups of templates of a GPU, whose number depends only on that of the bank.
    pub fn parts(&self, count: usize) -> Vec<Self> {
        self.divided(&self.groups().collect::<Vec<_>>(), count)
    }

    /// As [`Plan::parts`], for the CPU, which lays out fewer templates together.
    pub fn parts_on_cpu(&self, count: usize) -> Vec<Self> {
        let own = self.own.clone();
        let unit = |first: usize| first..(first + self.unit()).min(own.end);
        let units: Vec<Range<usize>> = own.clone().step_by(self.unit()).map(unit).collect();
        self.divided(&units, count)
    }

    /// Returns the number of templates that the CPU lays out together: fewer if the bank has few, so that threads share them
    /// evenly.
    pub(super) fn unit(&self) -> usize {
        (self.options.templates.len() / 16).next_power_of_two().clamp(4, UNIT)
    }

    /// Divides consecutive groups of templates.
    fn divided(&self, groups: &[Range<usize>], count: usize) -> Vec<Self> {
        let cost = |group: &Range<usize>| -> f64 {
            self.options.templates[group.clone()].iter().map(Template::effective_filters).sum()
        };
        let costs: Vec<f64> = groups.iter().map(cost).collect();
        let parts = balanced(&costs, count).into_iter();
        let own = |part: Range<usize>| groups[part.start].start..groups[part.end - 1].end;
        parts.map(|part| Self { own: own(part), ..self.clone() }).collect()
    }

    /// Returns the groups of templates that a GPU lays out on their own.
    pub(super) fn groups(&self) -> impl Iterator<Item = Range<usize>> + use<> {
        let (own, templates) = (self.own.clone(), self.options.templates.len());
        let groups = self.all_groups();
        let edge = move |group: usize| group * templates / groups;
        (0..groups)
            .map(move |group| edge(group)..edge(group + 1))
            .filter(move |group| own.start <= group.start && group.end <= own.end)
    }

    /// Returns the number of groups of the whole bank.
    pub(super) fn all_groups(&self) -> usize {
        (self.options.templates.len() / GROUP).clamp(1, MAX_GROUPS)
    }

    /// Returns the options, with the templates of all parts.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Returns the places in the bank of the templates that are computed.
    pub fn range(&self) -> Range<usize> {
        self.own.clone()
    }

    /// Returns the templates that are computed.
    pub(super) fn own(&self) -> &[Template] {
        &self.options.templates[self.own.clone()]
    }

    /// Returns the number of templates that are computed.
    pub fn templates(&self) -> usize {
        self.own.len()
    }

    /// Returns the number of rates, from the strain's to the lowest that has a filter.
    pub fn levels(&self) -> usize {
        self.halvings as usize + 1
    }

    /// Returns the samples of `level`'s rate by which its filters wait for the lower rates, so that all sums are
    /// aligned: `R_last = 0`, `R_m = down delay + up delay + 2 R_(m+1)`.
    pub fn alignment(&self, level: usize) -> usize {
        self.alignments[level]
    }

    /// Returns the samples of `level`'s rate that its filters reach back, including the alignment.
    pub fn history(&self, level: usize) -> usize {
        self.histories[level]
    }

    /// Returns how many samples of strain must follow a sample before its signal-to-noise ratio is known.
    pub fn latency(&self) -> usize {
        self.alignments[0]
    }

    /// Returns the number of filters of the templates that are computed, at all rates.
    pub fn filters(&self) -> usize {
        self.own().iter().map(Template::filters).sum()
    }
}

/// Divides a number of things of these costs, in order, into `count` parts of about the same cost, each with at least one
/// thing; fewer parts if there are fewer things.
fn balanced(costs: &[f64], count: usize) -> Vec<Range<usize>> {
    let count = count.min(costs.len());
    let total: f64 = costs.iter().sum();
    let mut ends = Vec::with_capacity(count);
    let (mut next, mut spent) = (0, 0.0);
    for part in 1..=count {
        let first = next;
        let most = costs.len() - (count - part);
        while next < most {
            let is_beyond = spent + costs[next] / 2.0 >= total * part as f64 / count as f64;
            if next > first && is_beyond && part < count {
                break;
            }
            spent += costs[next];
            next += 1;
        }
        ends.push(first..next);
    }
    ends
}

fn check_template(index: usize, template: &Template) -> Result<()> {
    let rises = template.branches.windows(2).all(|pair| pair[0].halvings < pair[1].halvings);
    if !rises || template.halvings() > MAX_HALVINGS {
        let rule = format!("they must rise, to at most {MAX_HALVINGS} (template {index})");
        let found: Vec<u32> = template.branches.iter().map(|branch| branch.halvings).collect();
        return Err(Error::parameter("halvings of the branches", format!("{found:?}"), rule));
    }
    if template.filters() == 0 {
        let rule = format!("a template has at least 1 (template {index})");
        return Err(Error::parameter("filters", 0, rule));
    }
    for filter in template.branches.iter().flat_map(|branch| &branch.filters) {
        check_filter(index, filter)?;
    }
    Ok(())
}

fn check_filter(index: usize, filter: &Filter) -> Result<()> {
    if filter.pole().norm_sqr().partial_cmp(&1.0) != Some(std::cmp::Ordering::Less) {
        let rule = format!("it must lie inside the unit circle (template {index})");
        return Err(Error::parameter("pole of a filter", filter.a.to_string(), rule));
    }
    if !(filter.b.re.is_finite() && filter.b.im.is_finite()) {
        let rule = format!("it must be finite (template {index})");
        return Err(Error::parameter("weight of a filter", filter.b.to_string(), rule));
    }
    if filter.delay > MAX_DELAY {
        let rule = format!("at most {MAX_DELAY} samples are possible (template {index})");
        return Err(Error::parameter("delay of a filter", filter.delay, rule));
    }
    Ok(())
}

/// Gain below which the minimum-phase design treats a response as 0.
const MIN_GAIN: f64 = 1e-9;
/// Centre of the band that holds the filters, in cycles per sample of the higher rate.
const BAND_MIDDLE: f64 = 0.14;

impl Default for Resampler {
    /// Returns filters of the lengths in Guo et al., with a stop band of 100 dB for downsampling and 60 dB for
    /// upsampling.
    fn default() -> Self {
        Self::linear_phase(384, 32, 100.0)
    }
}

impl Resampler {
    /// Returns linear-phase Kaiser filters of `down_taps` and `up_taps` (even) taps with this stop band in dB. `up`
    /// has at most 60 dB, because its images are farther away.
    ///
    /// # Source
    /// Guo et al. 2018, section 3 (384 and 32 taps); Kaiser 1974 for the width of the transition.
    pub fn linear_phase(down_taps: usize, up_taps: usize, stop_band_db: f64) -> Self {
        let down = low_pass(down_taps, stop_band_db);
        let up = low_pass(up_taps, stop_band_db.min(60.0)).iter().map(|tap| 2.0 * tap).collect();
        Self { down, down_delay: down_taps / 2, up, up_delay: up_taps / 2 }
    }

    /// Returns short minimum-phase filters with a delay of a few samples per octave. They have 48 and 24 taps. Their
    /// stop bands cover the frequencies that alias onto the band below 0.385 of the lower rate, and the images of
    /// that band. Weights fitted with [`Self::response`] compensate the remaining phase.
    ///
    /// # Source
    /// Oppenheim & Schafer, Discrete-Time Signal Processing: the minimum phase from the cepstrum.
    pub fn low_latency() -> Self {
        let (down, down_delay) = minimum_phase(&kaiser(48, 0.25, 86.0));
        let (up, up_delay) = minimum_phase(&kaiser(24, 0.25, 47.0));
        let up = up.iter().map(|tap| 2.0 * tap).collect();
        Self { down, down_delay, up, up_delay }
    }

    /// Checks that both filters have taps, all finite, and delays within them.
    ///
    /// # Errors
    /// [`Error::Parameter`] naming the fault.
    pub fn check(&self) -> Result<()> {
        for (taps, delay) in [(&self.down, self.down_delay), (&self.up, self.up_delay)] {
            if taps.is_empty() || taps.iter().any(|tap| !tap.is_finite()) {
                let rule = "it needs taps, all finite";
                return Err(Error::parameter("filter of the resampler", taps.len(), rule));
            }
            if delay >= taps.len() {
                let rule = format!("the filter has {} taps", taps.len());
                return Err(Error::parameter("delay of the resampler", delay, rule));
            }
        }
        Ok(())
    }

    /// Returns the samples by which a branch waits for one that is halved `halvings` times more.
    pub fn alignment(&self, halvings: u32) -> usize {
        ((1 << halvings) - 1) * (self.down_delay + self.up_delay)
    }

    /// Returns the response of `halvings` downsamplings and upsamplings to a tone of `frequency` cycles per sample,
    /// without the total delay: 1 for an ideal resampler.
    pub fn response(&self, halvings: u32, frequency: f64) -> Complex64 {
        (0..halvings).fold(Complex64::new(1.0, 0.0), |product, level| {
            let f = frequency * f64::from(1_u32 << level);
            // Zero insertion halves a tone's amplitude, and `up` sums to 2.
            product * gain(&self.down, self.down_delay, f) * gain(&self.up, self.up_delay, f) / 2.0
        })
    }
}

/// Returns a filter's response at `frequency` cycles per sample relative to a pure delay.
fn gain(taps: &[f32], delay: usize, frequency: f64) -> Complex64 {
    let turn = |j: usize| Complex64::cis(-TAU * frequency * (j as f64 - delay as f64));
    taps.iter().enumerate().map(|(j, tap)| turn(j) * f64::from(*tap)).sum()
}

/// Returns a low pass of unit gain whose stop band begins at the aliasing edge, or as close to it as the taps allow
/// with the cutoff at a quarter of the rate. Tap `j` is `j - taps / 2` samples from the middle.
fn low_pass(taps: usize, stop_band_db: f64) -> Vec<f32> {
    let transition = (stop_band_db - 8.0).max(0.0) / (2.285 * TAU * taps.max(1) as f64);
    let cutoff = if transition < 0.04 { 0.25 - transition / 2.0 } else { 0.25 };
    kaiser(taps, cutoff, stop_band_db).iter().map(|tap| *tap as f32).collect()
}

/// Returns a Kaiser-windowed sinc of this cutoff and unit sum.
fn kaiser(taps: usize, cutoff: f64, stop_band_db: f64) -> Vec<f64> {
    let beta = kaiser_beta(stop_band_db);
    let half = taps as f64 / 2.0;
    let tap = |j: usize| {
        let x = j as f64 - half;
        let edge = (1.0 - (x / half).powi(2)).max(0.0).sqrt();
        2.0 * cutoff * sinc(2.0 * cutoff * x) * bessel_i0(beta * edge) / bessel_i0(beta)
    };
    let shape: Vec<f64> = (0..taps).map(tap).collect();
    let sum: f64 = shape.iter().sum();
    shape.iter().map(|tap| tap / sum).collect()
}

/// Returns the filter of least delay with the same gain at all frequencies, and its delay within the band in whole
/// samples.
///
/// The logarithm of the gain is even. Folding its Fourier coefficients onto positive times gives those of a causal
/// filter whose inverse is causal too.
fn minimum_phase(taps: &[f64]) -> (Vec<f32>, usize) {
    let size = (taps.len() * 256).next_power_of_two();
    let mut planner = FftPlanner::new();
    let (forward, inverse) = (planner.plan_fft_forward(size), planner.plan_fft_inverse(size));
    let mut series: Vec<Complex64> = taps.iter().map(|tap| Complex64::new(*tap, 0.0)).collect();
    series.resize(size, Complex64::default());
    forward.process(&mut series);
    for value in &mut series {
        *value = Complex64::new(value.norm().max(MIN_GAIN).ln() / size as f64, 0.0);
    }
    inverse.process(&mut series);
    series[1..size / 2].iter_mut().for_each(|value| *value *= 2.0);
    series[size / 2 + 1..].fill(Complex64::default());
    forward.process(&mut series);
    series.iter_mut().for_each(|value| *value = value.exp() / size as f64);
    inverse.process(&mut series);
    let short: Vec<f64> = series[..taps.len()].iter().map(|value| value.re).collect();
    let sum: f64 = short.iter().sum();
    let short: Vec<f32> = short.iter().map(|tap| (tap / sum) as f32).collect();
    let turn = gain(&short, 0, BAND_MIDDLE).arg() / (TAU * BAND_MIDDLE);
    (short, (-turn).round().max(0.0) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a plan whose templates have `filters(template)` filters at the full rate, and every seventh one more at half of it.
    fn plan(templates: usize, filters: impl Fn(usize) -> usize) -> Plan {
        let (a, b) = (Complex::new(0.5, 0.0), Complex::new(1.0, 0.0));
        let filter = |delay: usize| Filter { a, b, delay: delay as u32 };
        let template = |at: usize| {
            let own = Branch { halvings: 0, filters: (0..filters(at)).map(filter).collect() };
            let low = Branch { halvings: 1, filters: vec![filter(3)] };
            let branches = if at.is_multiple_of(7) { vec![own, low] } else { vec![own] };
            Template { branches }
        };
        let templates = (0..templates).map(template).collect();
        let resampler = Resampler::low_latency();
        Plan::new(Options { rate_hz: 4096, templates, resampler }).expect("a plan")
    }

    #[test]
    fn parts_hold_whole_groups_of_about_the_same_cost_in_order() {
        for (templates, count, parts) in
            [(1, 4, 1), (700, 2, 1), (1024, 2, 2), (4096, 8, 8), (5000, 3, 3), (20_000, 5, 5)]
        {
            let whole = plan(templates, |_| 3);
            let groups: Vec<usize> = whole.groups().map(|group| group.start).collect();
            let found = whole.parts(count);
            assert_eq!(found.len(), parts, "{templates} on {count}");
            let mut next = 0;
            for part in &found {
                assert_eq!(part.range().start, next);
                assert!(groups.contains(&next));
                next = part.range().end;
                assert_eq!(part.templates(), part.own().len());
                assert_eq!((part.latency(), part.levels()), (whole.latency(), whole.levels()));
                let even = templates.div_ceil(parts);
                assert!(part.templates() < even + templates.div_ceil(groups.len()), "{part:?}");
            }
            assert_eq!(next, templates);
        }
        // The first half of the templates is three times as costly.
        let whole = plan(4096, |at| if at < 2048 { 30 } else { 10 });
        let ends: Vec<usize> = whole.parts(2).iter().map(|part| part.range().end).collect();
        assert_eq!(ends, [1536, 4096]);
    }

    #[test]
    fn the_default_resampler_passes_the_band_and_stops_its_images() {
        let resampler = Resampler::default();
        resampler.check().expect("usable");
        for f in [0.0, 0.05, 0.15, 0.19] {
            assert!((resampler.response(1, f).norm() - 1.0).abs() < 2e-3, "{f}");
        }
        assert!(gain(&resampler.down, 192, 0.26).norm() < 1e-4);
        assert!(gain(&resampler.up, 16, 0.31).norm() / 2.0 < 2e-3);
        assert_eq!(resampler.alignment(0), 0);
        assert_eq!(resampler.alignment(3), 7 * 208);
    }

    #[test]
    fn minimum_phase_keeps_the_gain_and_shortens_the_delay() {
        let resampler = Resampler::low_latency();
        resampler.check().expect("usable");
        assert_eq!((resampler.down.len(), resampler.up.len()), (48, 24));
        assert!(resampler.down_delay + resampler.up_delay <= 12, "{resampler:?}");
        let linear: Vec<f32> = kaiser(48, 0.25, 86.0).iter().map(|tap| *tap as f32).collect();
        for f in [0.0, 0.1, 0.19, 0.25, 0.3] {
            let (before, after) = (gain(&linear, 24, f).norm(), gain(&resampler.down, 0, f).norm());
            assert!((before - after).abs() < 1e-5, "{f}: {before} against {after}");
        }
        assert!(gain(&resampler.down, 0, 0.3077).norm() < 1e-4);
        assert!(gain(&resampler.up, 0, 0.3077).norm() / 2.0 < 5e-3);
    }

    #[test]
    fn parts_of_about_the_same_cost_all_have_something() {
        assert_eq!(balanced(&[1.0; 8], 4), [0..2, 2..4, 4..6, 6..8]);
        assert_eq!(balanced(&[3.0, 1.0, 1.0, 1.0], 2), [0..1, 1..4]);
        assert_eq!(balanced(&[1.0, 1.0, 1.0, 9.0], 3), [0..2, 2..3, 3..4]);
        assert_eq!(balanced(&[9.0, 1.0, 1.0], 3), [0..1, 1..2, 2..3]);
        assert_eq!(balanced(&[1.0, 2.0], 5), [0..1, 1..2]);
        assert_eq!(balanced(&[0.0; 3], 2), [0..1, 1..3]);
    }
}
