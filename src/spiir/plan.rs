//! Options of the filter bank (filters and rates), their checks, and derived sizes.

pub mod resample;

use num_complex::Complex;

use crate::error::{Error, Result};
use resample::Resampler;

/// Most halvings of the rate.
pub const MAX_HALVINGS: u32 = 12;
/// Longest delay of a filter in samples of its branch.
pub const MAX_DELAY: u32 = 1 << 27;

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

/// Checked filter bank.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    options: Options,
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
        Ok(Self { options, halvings, alignments, histories })
    }

    /// Returns the options.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Returns the number of templates.
    pub fn templates(&self) -> usize {
        self.options.templates.len()
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

    /// Returns the number of filters of all templates at all rates.
    pub fn filters(&self) -> usize {
        self.options.templates.iter().map(Template::filters).sum()
    }
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
        return Err(Error::parameter("pole of a filter", filter.a, rule));
    }
    if !(filter.b.re.is_finite() && filter.b.im.is_finite()) {
        let rule = format!("it must be finite (template {index})");
        return Err(Error::parameter("weight of a filter", filter.b, rule));
    }
    if filter.delay > MAX_DELAY {
        let rule = format!("at most {MAX_DELAY} samples are possible (template {index})");
        return Err(Error::parameter("delay of a filter", filter.delay, rule));
    }
    Ok(())
}
