//! The running median of every channel, to fill gaps and masked cells.
//!
//! Invariant: depends on the samples and on where they lie in the stream only.

use crate::math::statistics::median;
use crate::sample::{Encoding, value};

/// Times between the samples that are looked at.
const SPACING: u64 = 16;

/// Samples of a channel in a median.
const PICKS: usize = 64;

/// New samples after which a full median is taken again.
const REFRESH: usize = 16;

/// Medians of each channel's latest samples: every 16th time, over 1024 times.
#[derive(Clone, Debug)]
pub struct RunningMedian {
    encoding: Encoding,
    channels: Vec<Picks>,
}

#[derive(Clone, Debug)]
struct Picks {
    values: [f32; PICKS],
    seen: usize,
    fresh: usize,
    median: Option<f32>,
}

impl RunningMedian {
    /// No samples seen yet.
    pub fn new(channels: usize, encoding: Encoding) -> Self {
        let empty = Picks { values: [0.0; PICKS], seen: 0, fresh: 0, median: None };
        Self { encoding, channels: vec![empty; channels] }
    }

    /// Looks at a row, all channels of it but those for which `bad` is true.
    pub fn observe(&mut self, time: u64, row: &[u8], bad: impl Fn(usize) -> bool) {
        if !time.is_multiple_of(SPACING) {
            return;
        }
        for (channel, picks) in self.channels.iter_mut().enumerate() {
            let sample = value(row, self.encoding, channel) as f32;
            if sample.is_finite() && !bad(channel) {
                picks.values[picks.seen % PICKS] = sample;
                picks.seen += 1;
                picks.fresh += 1;
            }
        }
    }

    /// The median of a channel: one of its samples, or `None` before it had any.
    pub fn value(&mut self, channel: usize) -> Option<f32> {
        let picks = &mut self.channels[channel];
        if picks.fresh >= REFRESH || (picks.fresh > 0 && picks.seen <= PICKS) {
            let count = picks.seen.min(PICKS);
            let mut values = [0.0; PICKS];
            values.iter_mut().zip(&picks.values).for_each(|(to, from)| *to = f64::from(*from));
            // An odd number, so that the median is a sample.
            let odd = count - usize::from(count.is_multiple_of(2));
            picks.median = median(&mut values[..odd]).map(|value| value as f32);
            picks.fresh = 0;
        }
        picks.median
    }

    /// Forgets all samples.
    pub fn reset(&mut self) {
        for picks in &mut self.channels {
            (picks.seen, picks.fresh, picks.median) = (0, 0, None);
        }
    }
}

/// Writes one sample of a packed row, rounded to what the encoding holds.
pub fn set_value(row: &mut [u8], encoding: Encoding, index: usize, value: f32) {
    let whole = |low: i32, high: i32| (value.round_ties_even() as i32).clamp(low, high);
    match encoding {
        Encoding::U1 | Encoding::U2 | Encoding::U4 => {
            let bits = encoding.bits();
            let (byte, shift) = (index * bits / 8, index * bits % 8);
            let mask = ((1u16 << bits) - 1) as u8;
            let code = whole(0, i32::from(mask)) as u8;
            row[byte] = row[byte] & !(mask << shift) | code << shift;
        }
        Encoding::U8 => row[index] = whole(0, 255) as u8,
        Encoding::I8 => row[index] = whole(-128, 127) as i8 as u8,
        Encoding::U16 => {
            row[2 * index..][..2].copy_from_slice(&(whole(0, 65535) as u16).to_le_bytes());
        }
        Encoding::I16 => {
            row[2 * index..][..2].copy_from_slice(&(whole(-32768, 32767) as i16).to_le_bytes());
        }
        Encoding::F32 => row[4 * index..][..4].copy_from_slice(&value.to_le_bytes()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back() {
        for encoding in Encoding::ALL {
            let mut row = vec![0u8; 32];
            for (index, sample) in [1.0, 0.0, 1.0, 1.0].into_iter().enumerate() {
                set_value(&mut row, encoding, index, sample);
            }
            set_value(&mut row, encoding, 1, 1e9);
            let read: Vec<f64> = (0..4).map(|i| value(&row, encoding, i)).collect();
            let top = encoding.range().map_or(1e9, |(_, max)| f64::from(max));
            assert_eq!(read, [1.0, top, 1.0, 1.0], "{encoding:?}");
        }
    }

    #[test]
    fn the_median_follows_the_channel() {
        let mut medians = RunningMedian::new(2, Encoding::U8);
        assert_eq!(medians.value(0), None);
        for time in 0..4096u64 {
            let level = if time < 2048 { 10 } else { 20 };
            let spike = if time % 48 == 0 { 200 } else { 0 };
            medians.observe(time, &[level + spike, level], |channel| channel == 1);
        }
        assert_eq!(medians.value(0), Some(20.0));
        assert_eq!(medians.value(1), None);
    }
}
