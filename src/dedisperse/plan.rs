//! One range of trial dispersion measures bound to a band: validation, shifts and sizes.
//!
//! Invariant: no sum that the plan allows leaves 32 bits, and no shift is negative.

use crate::error::{Error, Result};
use crate::sample::Encoding;
use crate::units::{Band, HZ_PER_MHZ, dispersion_delay_s};

/// Longest delay of a plan, in output samples.
const MAX_SHIFT: f64 = (1u32 << 30) as f64;

/// Options of a dedispersion.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Frequencies of the channels.
    pub band: Band,
    /// Sampling time of the input in seconds.
    pub tsamp_s: f64,
    /// Trial dispersion measures in pc cm^-3, in any order.
    pub dms: Vec<f64>,
    /// Input samples summed into one before dedispersion.
    pub downsample: usize,
    /// Encoding of the input samples.
    pub encoding: Encoding,
    /// Smallest and largest input value, if narrower than the encoding's range; values outside are clipped. Unused
    /// for floats.
    pub range: Option<(i32, i32)>,
    /// Channels to exclude, in recorded order; empty for none.
    pub masked: Vec<bool>,
    /// Dispersion constant, s MHz^2 pc^-1 cm^3.
    pub dm_constant: f64,
}

/// Checked dedispersion of one range of trials.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    options: Options,
    range: (i32, i32),
    channels_used: Vec<usize>,
    /// `f^-2 - f_ref^-2` of each channel, in MHz^-2.
    slopes: Vec<f64>,
    trial_shifts: Vec<usize>,
}

impl Plan {
    /// Checks the options and derives all sizes.
    ///
    /// # Errors
    /// [`Error::Parameter`] naming the option: no trials, a negative or non-finite trial, a sampling time or constant
    /// that is not positive, a downsampling of 0, a mask of the wrong length or over all channels, a range that the
    /// encoding cannot represent, a delay of more than 2^30 samples, or sums that exceed 32 bits.
    pub fn new(options: Options) -> Result<Self> {
        check_positive("tsamp (s)", options.tsamp_s)?;
        check_positive("dm constant", options.dm_constant)?;
        check_dms(&options.dms)?;
        if options.downsample == 0 || options.downsample > 1 << 20 {
            let rule = "it must be 1 to 1048576";
            return Err(Error::parameter("downsample", options.downsample, rule));
        }
        let channels_used = used_channels(&options)?;
        let range = checked_range(&options, channels_used.len())?;
        let slopes = slopes(&options.band);
        let mut plan = Self { options, range, channels_used, slopes, trial_shifts: Vec::new() };
        plan.trial_shifts = plan.find_trial_shifts()?;
        Ok(plan)
    }

    fn find_trial_shifts(&self) -> Result<Vec<usize>> {
        let slope = |c: &usize| self.slopes[*c];
        let steepest =
            self.channels_used.iter().copied().max_by(|a, b| slope(a).total_cmp(&slope(b)));
        let steepest = steepest.unwrap_or(0);
        let shift = |dm: usize| {
            let samples = self.delay_samples(dm, steepest);
            if samples > MAX_SHIFT {
                let rule = format!("its delay is {samples:e} samples; the most is 2^30");
                return Err(Error::parameter("dm", self.options.dms[dm], rule));
            }
            Ok(samples as usize)
        };
        (0..self.options.dms.len()).map(shift).collect()
    }

    /// Returns the trial dispersion measures, pc cm^-3.
    pub fn dms(&self) -> &[f64] {
        &self.options.dms
    }

    /// Returns the number of input samples summed into one output sample.
    pub fn downsample(&self) -> usize {
        self.options.downsample
    }

    /// Returns the channels of an input row, including masked ones.
    pub fn channels(&self) -> usize {
        self.options.band.channels()
    }

    /// Returns the summed channels, in recorded order.
    pub fn channels_used(&self) -> &[usize] {
        &self.channels_used
    }

    /// Returns the encoding of the input samples.
    pub fn encoding(&self) -> Encoding {
        self.options.encoding
    }

    /// Returns the smallest and largest value of an input sample; `(0, 0)` for floats.
    pub fn range(&self) -> (i32, i32) {
        self.range
    }

    /// Returns the sampling time of the output in seconds.
    pub fn tsamp_s(&self) -> f64 {
        self.options.tsamp_s * self.options.downsample as f64
    }

    /// Returns the delay of a channel relative to the band's highest at a trial, in output samples rounded to
    /// nearest, ties to even.
    pub fn shift(&self, dm: usize, channel: usize) -> usize {
        self.delay_samples(dm, channel) as usize
    }

    /// Computes [`units::dispersion_delay_s`](crate::units::dispersion_delay_s) with the same order of operations, so
    /// that the rounding agrees to the last bit.
    fn delay_samples(&self, dm: usize, channel: usize) -> f64 {
        let delay_s = self.options.dm_constant * self.options.dms[dm] * self.slopes[channel];
        (delay_s / self.tsamp_s()).round_ties_even()
    }

    /// Returns the largest shift of a trial over the summed channels.
    pub fn trial_shift(&self, dm: usize) -> usize {
        self.trial_shifts[dm]
    }

    /// Returns the largest shift of all trials.
    pub fn max_shift(&self) -> usize {
        self.trial_shifts.iter().copied().max().unwrap_or(0)
    }

    /// Returns the smallest of the trials' largest shifts.
    pub fn min_trial_shift(&self) -> usize {
        self.trial_shifts.iter().copied().min().unwrap_or(0)
    }

    /// Returns the total output samples of a trial for an input of `input_times`; 0 if the input is too short.
    pub fn valid_times(&self, input_times: u64, dm: usize) -> u64 {
        let times = input_times / self.options.downsample as u64;
        times.saturating_sub(self.trial_shifts[dm] as u64)
    }

    /// Returns the largest output of one run with `input_times` rows, for any earlier input.
    pub fn max_output(&self, input_times: usize) -> usize {
        input_times.div_ceil(self.options.downsample)
    }

    /// Returns whether sums are integers: all encodings but floats.
    pub fn output_is_integer(&self) -> bool {
        self.options.encoding != Encoding::F32
    }

    /// Returns the options.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Returns the bytes of an input row.
    pub(super) fn row_bytes(&self) -> usize {
        self.channels() * self.encoding().bits() / 8
    }

    /// Returns the sum of the range's lower ends over a sum's samples, modulo 2^32.
    pub(super) fn bias(&self) -> u32 {
        let samples = self.channels_used.len() as i64 * self.options.downsample as i64;
        (i64::from(self.range.0) * samples) as u32
    }

    /// Returns the summed channels from the highest frequency down.
    pub(super) fn descending_channels(&self) -> Vec<UsedChannel> {
        let centres = self.options.band.centres_hz();
        let used = self.channels_used.iter().enumerate();
        let mut order: Vec<UsedChannel> =
            used.map(|(row, channel)| UsedChannel { row: row as u32, channel: *channel }).collect();
        order.sort_by(|a, b| centres[b.channel].total_cmp(&centres[a.channel]));
        order
    }

    /// Returns the largest sample, summed over `downsample`, above the range's lower end; `None` for floats.
    pub(super) fn largest(&self) -> Option<u64> {
        let (low, high) = self.range;
        let span = (i64::from(high) - i64::from(low)) as u64;
        self.output_is_integer().then_some(span * self.options.downsample as u64)
    }

    /// Returns the narrowest type for sums of `channels` channels above the range's lower end.
    pub(super) fn lane(&self, channels: usize) -> Lane {
        match self.largest().map(|most| most * channels as u64) {
            None => Lane::F32,
            Some(0..=0xff) => Lane::U8,
            Some(0..=0xffff) => Lane::U16,
            Some(_) => Lane::U32,
        }
    }
}

/// Summed channel: its row of a channel-major history, and its index in an input row.
#[derive(Clone, Copy, Debug)]
pub(super) struct UsedChannel {
    pub(super) row: u32,
    pub(super) channel: usize,
}

/// Element type of output: i32 or f32.
pub(super) trait Sum: bytemuck::Pod + Send + Sync {
    /// Converts a sum computed in f64.
    fn from_f64(sum: f64) -> Self;
}

impl Sum for i32 {
    fn from_f64(sum: f64) -> Self {
        sum as Self
    }
}

impl Sum for f32 {
    fn from_f64(sum: f64) -> Self {
        sum as Self
    }
}

/// Element type of a row of samples or sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lane {
    U8,
    U16,
    U32,
    F32,
}

impl Lane {
    /// Returns the bytes of an element.
    pub(super) fn bytes(self) -> usize {
        match self {
            Self::U8 => 1,
            Self::U16 => 2,
            Self::U32 | Self::F32 => 4,
        }
    }
}

fn check_positive(name: &'static str, value: f64) -> Result<()> {
    if value.is_finite() && value > 0.0 {
        return Ok(());
    }
    Err(Error::parameter(name, value, "it must be positive and finite"))
}

fn check_dms(dms: &[f64]) -> Result<()> {
    if dms.is_empty() {
        return Err(Error::parameter("dms", "empty", "there must be at least one trial"));
    }
    match dms.iter().find(|dm| !dm.is_finite() || **dm < 0.0) {
        Some(dm) => Err(Error::parameter("dm", dm, "it must be finite and not negative")),
        None => Ok(()),
    }
}

fn used_channels(options: &Options) -> Result<Vec<usize>> {
    let channels = options.band.channels();
    let masked = &options.masked;
    if !masked.is_empty() && masked.len() != channels {
        let rule = format!("it must have one entry for each of {channels} channels");
        return Err(Error::parameter("length of the channel mask", masked.len(), rule));
    }
    let bits = channels * options.encoding.bits();
    if !bits.is_multiple_of(8) {
        let rule = format!("a row of {bits} bits is not a whole number of bytes");
        return Err(Error::parameter("channels", channels, rule));
    }
    let used: Vec<usize> =
        (0..channels).filter(|c| !masked.get(*c).copied().unwrap_or(false)).collect();
    if used.is_empty() {
        let rule = "at least one channel must be left";
        return Err(Error::parameter("masked channels", channels, rule));
    }
    Ok(used)
}

fn checked_range(options: &Options, channels: usize) -> Result<(i32, i32)> {
    let Some(whole) = options.encoding.range() else { return Ok((0, 0)) };
    let (low, high) = options.range.unwrap_or(whole);
    if low > high || low < whole.0 || high > whole.1 {
        let rule = format!("it must lie within {} .. {}, the lower end first", whole.0, whole.1);
        return Err(Error::parameter("range", format!("{low} .. {high}"), rule));
    }
    let most = i64::from(low).abs().max(i64::from(high).abs());
    let samples = channels as i64 * options.downsample as i64;
    let sum = most.saturating_mul(samples);
    if sum > i64::from(i32::MAX) {
        let rule = format!(
            "{channels} channels x downsample {} of values up to {most} sum to {sum}, over 2^31 - 1",
            options.downsample
        );
        return Err(Error::parameter("downsample", options.downsample, rule));
    }
    Ok((low, high))
}

fn slopes(band: &Band) -> Vec<f64> {
    let reference = band.highest_hz() / HZ_PER_MHZ;
    let slope = |hz: &f64| {
        let frequency = hz / HZ_PER_MHZ;
        1.0 / (frequency * frequency) - 1.0 / (reference * reference)
    };
    debug_assert!(dispersion_delay_s(1.0, band.highest_hz(), band.highest_hz(), 1.0) == 0.0);
    band.centres_hz().iter().map(slope).collect()
}
