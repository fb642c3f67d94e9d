//! Options and derived parameters of cleaning.
//!
//! Invariant: with integer input every output value is exact in the output's encoding.

use crate::error::{Error, Result};
use crate::sample::Encoding;
use crate::units::MAX_CHANNELS;

/// Cells to replace: bad channels per time interval, as in PRESTO's rfifind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimeMask {
    /// Times per interval.
    pub interval_times: usize,
    /// Times of the intervals before the start of the stream.
    pub first_time: u64,
    /// Bad channels of each interval; later intervals have none.
    pub intervals: Vec<Vec<u32>>,
}

/// Options of cleaning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Number of channels.
    pub channels: usize,
    /// Encoding of the input samples.
    pub encoding: Encoding,
    /// Whether to subtract the mean over channels from every time.
    pub zero_dm: bool,
    /// Channels excluded from the mean, `true` for each; empty means none. Their samples are kept.
    pub masked: Vec<bool>,
    /// Cells to replace by the running median of their channel.
    pub time_mask: Option<TimeMask>,
}

/// Checked cleaning parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    options: Options,
    good_channels: usize,
}

impl Plan {
    /// Checks the options.
    ///
    /// # Errors
    /// [`Error::Parameter`] for no or too many channels, rows that are not whole bytes, a mask of
    /// another length, a channel of the time mask that does not exist, or intervals of no length.
    pub fn new(mut options: Options) -> Result<Self> {
        let channels = options.channels;
        if channels == 0 || channels > MAX_CHANNELS {
            let rule = format!("there must be 1 to {MAX_CHANNELS}");
            return Err(Error::parameter("channels", channels, rule));
        }
        if options.encoding.row_bytes(channels).is_none() {
            let rule = format!("rows of {} bits must be whole bytes", options.encoding.bits());
            return Err(Error::parameter("channels", channels, rule));
        }
        if options.masked.is_empty() {
            options.masked = vec![false; channels];
        }
        if options.masked.len() != channels {
            let rule = format!("there are {channels} channels");
            return Err(Error::parameter("length of the mask", options.masked.len(), rule));
        }
        if let Some(mask) = &options.time_mask {
            check_time_mask(mask, channels)?;
        }
        let good_channels = options.masked.iter().filter(|masked| !**masked).count();
        Ok(Self { options, good_channels })
    }

    /// Returns the number of channels.
    pub fn channels(&self) -> usize {
        self.options.channels
    }

    /// Returns the options.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Returns the encoding of the input samples.
    pub fn encoding(&self) -> Encoding {
        self.options.encoding
    }

    /// Returns the number of channels in the mean.
    pub fn good_channels(&self) -> usize {
        self.good_channels
    }

    /// Returns the encoding of the output: that of the input, or after zero-DM signed 16 bits, or floats (exactly)
    /// for input of 16 or 32 bits.
    pub fn output_encoding(&self) -> Encoding {
        match (self.options.zero_dm, self.options.encoding) {
            (false, encoding) => encoding,
            (true, Encoding::U16 | Encoding::I16 | Encoding::F32) => Encoding::F32,
            (true, _) => Encoding::I16,
        }
    }

    /// Returns whether a time mask is set, whose cells need running medians of all preceding rows.
    pub fn has_time_mask(&self) -> bool {
        self.options.time_mask.is_some()
    }

    /// Returns the output counts per input count: after zero-DM of up to 8 bits a power of two, so that the mean is
    /// subtracted to a fraction of a count; otherwise 1.
    ///
    /// A mean rounded to whole counts would leave up to half a count in every channel at once. At low DM this adds up
    /// to far more than the noise where a channel's noise is a few counts.
    pub fn scale(&self) -> i32 {
        match (self.options.zero_dm, self.options.encoding) {
            (true, Encoding::U1) => 128,
            (true, Encoding::U2) => 64,
            (true, Encoding::U4) => 16,
            (true, Encoding::U8 | Encoding::I8) => byte_scale(self.channels()),
            _ => 1,
        }
    }

    /// Returns the smallest and largest output value of integer output.
    pub fn output_range(&self) -> Option<(i32, i32)> {
        self.output_encoding().range()?;
        let (min, max) = self.options.encoding.range()?;
        let (low, high) = if self.options.zero_dm {
            (min.min(min - max), max.max(max - min))
        } else {
            (min, max)
        };
        Some((self.scale() * low, self.scale() * high))
    }

    /// Returns the bytes of an input row.
    pub(super) fn row_bytes(&self) -> usize {
        self.channels() * self.options.encoding.bits() / 8
    }

    /// Returns the bytes of an output row.
    pub fn output_row_bytes(&self) -> usize {
        self.channels() * self.output_encoding().bits() / 8
    }

    /// Returns whether an interval of the time mask starts at a time.
    pub(super) fn interval_begins(&self, time: u64) -> bool {
        let mask = self.options.time_mask.as_ref();
        let begins = |mask: &TimeMask| {
            time == 0 || (time + mask.first_time).is_multiple_of(mask.interval_times as u64)
        };
        mask.is_some_and(begins)
    }

    /// Returns the bad channels at a time.
    pub(super) fn bad_channels(&self, time: u64) -> &[u32] {
        let Some(mask) = &self.options.time_mask else { return &[] };
        let interval = usize::try_from((time + mask.first_time) / mask.interval_times as u64)
            .unwrap_or(usize::MAX);
        mask.intervals.get(interval).map_or(&[], Vec::as_slice)
    }
}

/// Returns the scale for bytes: 16, or less if the sum over the channels would exceed 32 bits.
fn byte_scale(channels: usize) -> i32 {
    const MOST: usize = 16;
    const CHANNELS: usize = 1 << 14;
    let scale = (MOST * CHANNELS / channels).clamp(1, MOST);
    1 << scale.ilog2()
}

fn check_time_mask(mask: &TimeMask, channels: usize) -> Result<()> {
    if mask.interval_times == 0 {
        return Err(Error::parameter("times in a mask's interval", 0, "it must be positive"));
    }
    match mask.intervals.iter().flatten().find(|channel| **channel as usize >= channels) {
        Some(bad) => {
            let rule = format!("there are {channels} channels");
            Err(Error::parameter("channel of the mask", bad, rule))
        }
        None => Ok(()),
    }
}

/// Returns `sum / count` rounded to nearest, ties to even; 0 for a count of 0.
pub(super) fn rounded_mean(sum: i64, count: usize) -> i32 {
    if count == 0 {
        return 0;
    }
    let count = count as i64;
    let (floor, twice) = (sum.div_euclid(count), 2 * sum.rem_euclid(count));
    let up = twice > count || (twice == count && floor % 2 != 0);
    (floor + i64::from(up)) as i32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_round_to_nearest_and_ties_to_even() {
        for sum in -50i64..50 {
            for count in 1..12usize {
                let truth = (sum as f64 / count as f64).round_ties_even() as i32;
                assert_eq!(rounded_mean(sum, count), truth, "{sum} / {count}");
            }
        }
        assert_eq!(rounded_mean(5, 0), 0);
    }

    #[test]
    fn absurd_cleanings_are_refused() {
        let good = Options {
            channels: 8,
            encoding: Encoding::U1,
            zero_dm: true,
            masked: vec![],
            time_mask: None,
        };
        let mask = |interval_times, channel| {
            Some(TimeMask { interval_times, first_time: 0, intervals: vec![vec![], vec![channel]] })
        };
        assert!(Plan::new(good.clone()).is_ok());
        assert!(Plan::new(Options { time_mask: mask(5, 7), ..good.clone() }).is_ok());
        let bad = [
            Options { channels: 0, ..good.clone() },
            Options { channels: 12, ..good.clone() },
            Options { channels: MAX_CHANNELS + 8, ..good.clone() },
            Options { masked: vec![true; 7], ..good.clone() },
            Options { time_mask: mask(0, 7), ..good.clone() },
            Options { time_mask: mask(5, 8), ..good },
        ];
        assert!(bad.into_iter().all(|options| Plan::new(options).is_err()));
    }
}
