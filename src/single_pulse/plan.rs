//! Options and derived parameters of a single-pulse search: widths, windows, strides and integer types.
//!
//! Invariant: sums of the widths of a group that is not `wide` can't overflow 32 bits.

use std::ops::Range;

use crate::error::{Error, Result};
use crate::view::Plane;

/// Starts that a kernel tests together; part of the plan's overflow rule.
pub(super) const BLOCK: usize = 64;

/// Fewest samples in a normalization window.
const MIN_WINDOW: usize = 1024;

/// Most samples in a normalization window or a boxcar.
const MAX_WINDOW: usize = 1 << 26;

/// Smallest ratio of a window to the widest boxcar, so that a pulse shifts its own baseline by at most a sixteenth of
/// itself.
const WINDOW_PER_WIDTH: usize = 16;

/// Options of a single-pulse search.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Dispersion measure of each trial, pc cm^-3.
    pub dms: Vec<f64>,
    /// Sampling time of the series, in seconds.
    pub tsamp_s: f64,
    /// Widest boxcar, in seconds.
    pub max_width_s: f64,
    /// Length over which mean and deviation are estimated, in seconds; rounded to a power of two of samples, at least
    /// 1024 and at least 16 widest boxcars.
    pub baseline_s: f64,
    /// Least signal-to-noise ratio.
    pub snr: f64,
    /// Smallest and largest value of integer series; `None` for floats.
    pub bound: Option<(i64, i64)>,
}

/// Boxcar widths with a common stride.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Group {
    /// Samples between starts: a power of two that divides each of the widths.
    pub(super) stride: usize,
    /// Indices into the plan's widths.
    pub(super) widths: Range<usize>,
    /// Whether the sums need 64 bits.
    pub(super) wide: bool,
}

/// Checked parameters of a single-pulse search.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    options: Options,
    widths: Vec<usize>,
    window: usize,
    groups: Vec<Group>,
}

impl Plan {
    /// Checks the options and derives widths, windows and strides.
    ///
    /// # Errors
    /// [`Error::Parameter`] for no trials; a time, width, baseline or threshold that is not positive and finite; a
    /// width or baseline of over 2^26 samples; or a bound that is reversed or outside 32 bits.
    pub fn new(options: Options) -> Result<Self> {
        check(&options)?;
        let samples = |seconds: f64| seconds / options.tsamp_s;
        let max_width = samples(options.max_width_s) * (1.0 + 1e-9);
        for (name, seconds, most) in [
            ("maximum width (s)", options.max_width_s, MAX_WINDOW / WINDOW_PER_WIDTH),
            ("baseline (s)", options.baseline_s, MAX_WINDOW),
        ] {
            if samples(seconds) > most as f64 {
                let longest = most as f64 * options.tsamp_s;
                let rule = format!("it may be {longest} s at most ({most} samples)");
                return Err(Error::parameter(name, seconds, rule));
            }
        }
        let widths = widths_up_to((max_width as usize).max(1));
        let widest = widths[widths.len() - 1];
        let nearest = samples(options.baseline_s).log2().round().max(0.0).exp2() as usize;
        let window = nearest.max(MIN_WINDOW).max((WINDOW_PER_WIDTH * widest).next_power_of_two());
        let groups = group(&widths, options.bound);
        Ok(Self { options, widths, window, groups })
    }

    /// Returns the number of trials.
    pub fn dms(&self) -> usize {
        self.options.dms.len()
    }

    /// Returns the options.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Returns the boxcar widths in samples, ascending: 1 to 8, then four per octave.
    pub fn widths(&self) -> &[usize] {
        &self.widths
    }

    /// Returns the widest boxcar in samples.
    pub fn max_width(&self) -> usize {
        self.widths[self.widths.len() - 1]
    }

    /// Returns the samples between starts of a boxcar of this width: 1 up to width 31, then a sixteenth of the width
    /// rounded down to a power of two.
    pub fn stride(&self, width: usize) -> usize {
        stride(width)
    }

    /// Returns the samples in a normalization window: a power of two. Window `k` starts at sample `k` times it.
    pub fn window_times(&self) -> usize {
        self.window
    }

    /// Returns whether the series are integers.
    pub fn input_is_integer(&self) -> bool {
        self.options.bound.is_some()
    }

    /// Returns the bytes of history that a search stores between calls.
    pub fn state_bytes(&self) -> usize {
        self.dms() * self.capacity() * size_of::<i32>()
    }

    /// Returns the history samples of one trial: a window, and the reach of boxcars at its end.
    pub(super) fn capacity(&self) -> usize {
        self.window + self.max_width()
    }

    /// Returns the samples that blocks of every stride read to cover the starts of `available` samples; at most the
    /// capacity.
    pub(super) fn whole_blocks(&self, available: usize) -> usize {
        let longest = BLOCK * stride(self.max_width());
        let starts = available.min(self.window).next_multiple_of(longest);
        available.max(starts + self.max_width())
    }

    /// Returns the widths grouped by stride, narrowest first.
    pub(super) fn groups(&self) -> &[Group] {
        &self.groups
    }

    /// Returns the value that kernels subtract from every sample before summing: the middle of the bound.
    pub(super) fn middle(&self) -> i64 {
        self.options.bound.map_or(0, |(min, max)| min + (max - min) / 2)
    }

    /// Returns the largest magnitude of a sample after subtracting the middle.
    pub(super) fn half_range(&self) -> i64 {
        half_range(self.options.bound)
    }

    /// Returns whether the difference of two samples fits 32 bits.
    pub(super) fn narrow_differences(&self) -> bool {
        self.options.bound.is_some_and(|(min, max)| max - min <= i64::from(i32::MAX))
    }
}

fn check(options: &Options) -> Result<()> {
    if options.dms.is_empty() || u32::try_from(options.dms.len()).is_err() {
        return Err(Error::parameter("trials", options.dms.len(), "there must be 1 to 2^32 - 1"));
    }
    if let Some(bad) = options.dms.iter().find(|dm| !dm.is_finite()) {
        return Err(Error::parameter("DM", bad, "it must be finite"));
    }
    let positive = [
        ("sampling time (s)", options.tsamp_s),
        ("maximum width (s)", options.max_width_s),
        ("baseline (s)", options.baseline_s),
        ("S/N threshold", options.snr),
    ];
    for (name, value) in positive {
        if !(value.is_finite() && value > 0.0) {
            return Err(Error::parameter(name, value, "it must be positive and finite"));
        }
    }
    if let Some((min, max)) = options.bound
        && (min > max || min < i64::from(i32::MIN) || max > i64::from(i32::MAX))
    {
        let rule = "the smaller comes first and both fit 32 bits";
        return Err(Error::parameter("bound of the sums", format!("{min} to {max}"), rule));
    }
    Ok(())
}

fn stride(width: usize) -> usize {
    1 << (width / 16).max(1).ilog2()
}

fn widths_up_to(most: usize) -> Vec<usize> {
    let octaves = (0..).flat_map(|octave: u32| (4..8).map(move |quarter| (2 * quarter) << octave));
    (1..8).chain(octaves).take_while(|width| *width <= most).collect()
}

fn half_range(bound: Option<(i64, i64)>) -> i64 {
    bound.map_or(0, |(min, max)| (max - min) / 2 + 1)
}

/// Groups widths by stride. A block's sums reach `width + BLOCK * stride` samples, less a threshold.
fn group(widths: &[usize], bound: Option<(i64, i64)>) -> Vec<Group> {
    let largest = half_range(bound);
    let mut groups: Vec<Group> = Vec::new();
    for (index, &width) in widths.iter().enumerate() {
        let stride = stride(width);
        let reach = (2 * width + (BLOCK + 1) * stride) as i64;
        let wide = reach * largest > i64::from(i32::MAX);
        match groups.last_mut() {
            Some(last) if last.stride == stride => {
                last.widths.end = index + 1;
                last.wide |= wide;
            }
            _ => groups.push(Group { stride, widths: index..index + 1, wide }),
        }
    }
    groups
}

/// Block of series: axes dm, time.
#[derive(Clone, Copy, Debug)]
pub enum Input<'a> {
    /// Exact sums of integers, within the plan's bound.
    I32(Plane<'a, i32>),
    /// Sums of floats; non-finite samples count as noise.
    F32(Plane<'a, f32>),
}

impl Input<'_> {
    pub(super) fn dms(&self) -> usize {
        match self {
            Self::I32(plane) => plane.dms(),
            Self::F32(plane) => plane.dms(),
        }
    }

    pub(super) fn times(&self) -> usize {
        match self {
            Self::I32(plane) => plane.times(),
            Self::F32(plane) => plane.times(),
        }
    }

    /// Appends a range of a trial's samples to a series.
    pub(super) fn append(&self, dm: usize, times: Range<usize>, series: &mut Vec<f64>) {
        match self {
            Self::I32(plane) => series.extend(plane.row(dm)[times].iter().map(|y| f64::from(*y))),
            Self::F32(plane) => series.extend(plane.row(dm)[times].iter().map(|y| f64::from(*y))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options() -> Options {
        Options {
            dms: vec![0.0, 1.0],
            tsamp_s: 64e-6,
            max_width_s: 0.1,
            baseline_s: 2.0,
            snr: 6.0,
            bound: Some((0, 255 * 1024)),
        }
    }

    #[test]
    fn widths_are_never_more_than_a_quarter_apart() {
        let plan = Plan::new(options()).unwrap();
        assert_eq!(plan.widths()[..14], [1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24]);
        assert!(plan.max_width() as f64 * 1.25 * 64e-6 > 0.1);
        for pair in plan.widths()[3..].windows(2) {
            assert!(pair[1] as f64 <= 1.25 * pair[0] as f64, "{pair:?}");
        }
        assert!(plan.widths().iter().all(|w| w.is_multiple_of(plan.stride(*w))));
        assert_eq!(plan.window_times(), 32768);
    }

    #[test]
    fn the_window_holds_sixteen_widest_boxcars() {
        let plan = Plan::new(Options { baseline_s: 1e-3, ..options() }).unwrap();
        assert_eq!(plan.window_times(), 32768);
        let narrow = Options { baseline_s: 1e-3, max_width_s: 1e-9, ..options() };
        let plan = Plan::new(narrow).unwrap();
        assert_eq!((plan.window_times(), plan.widths()), (1024, &[1usize][..]));
    }

    #[test]
    fn sums_that_might_overflow_are_wide() {
        let wide = |bound| {
            let plan = Plan::new(Options { bound: Some(bound), ..options() }).unwrap();
            plan.groups().iter().map(|group| group.wide).collect::<Vec<_>>()
        };
        assert!(wide((0, 255 * 1024)).iter().all(|wide| !wide));
        assert!(wide((i64::from(i32::MIN), i64::from(i32::MAX))).iter().all(|wide| *wide));
        let some = wide((0, 65535 * 256));
        assert!(!some[0] && some[some.len() - 1]);
    }

    #[test]
    fn absurd_searches_are_refused() {
        let bad = [
            Options { dms: vec![], ..options() },
            Options { dms: vec![f64::NAN], ..options() },
            Options { tsamp_s: 0.0, ..options() },
            Options { snr: f64::NAN, ..options() },
            Options { max_width_s: f64::INFINITY, ..options() },
            Options { max_width_s: 1e9, ..options() },
            Options { baseline_s: 1e9, ..options() },
            Options { bound: Some((1, 0)), ..options() },
            Options { bound: Some((0, 1 << 31)), ..options() },
        ];
        for options in bad {
            assert!(Plan::new(options).is_err());
        }
    }
}
