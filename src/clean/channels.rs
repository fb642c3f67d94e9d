//! Automatic channel mask: channels whose noise differs from that of adjacent channels.
//!
//! Invariant: a channel is judged by what it does most of the time, so that a bright pulse, which
//! passes through every channel once, masks none.

use crate::math::{SIGMA_PER_MAD, median, median_and_sigma};
use crate::sample::{Samples, unpack_f32};

/// Number of stream segments that vote.
const SEGMENTS: usize = 8;

/// Lengths of the sums whose scatter separates noise from slower signals.
const SHORT: usize = 8;
const LONG: usize = 64;

/// Fewest times for a judgement.
const FEWEST: usize = 32;

/// Channels on either side that predict a channel.
const REACH: usize = 12;

/// Largest number of passes over the channels; each leaves out the outliers of the previous ones.
const PASSES: usize = 64;

/// Fraction of the worst channel's excess above which a channel is bad in the same pass.
const WORST: f64 = 0.6;

/// Smallest relative deviations that count: a real band is not smoother than this.
const LEVEL_FLOOR: f64 = 0.02;
const SHORT_FLOOR: f64 = 0.04;
const LONG_FLOOR: f64 = 0.08;

/// Automatic channel mask: `true` for a bad channel.
///
/// Four statistics judge a channel: the logarithm of its standard deviation over all times; the same as the median
/// over eight segments; and, as medians over the segments, the logarithms of the scatter of sums of 8 and of 64 times
/// relative to that of single samples. Periodic and slow signals raise the last two; white noise does not.
///
/// Up to 12 channels on either side predict each statistic: the median of the means of pairs, and at the band's edges
/// of straight lines through two channels. A channel is an outlier if its residual exceeds `threshold` times the
/// largest of three deviations: that of the residuals, that of white noise for this many samples, and that of the
/// individual predictions (where the band bends). The worst channels are left out, and the rest is judged again.
/// Constant channels, and those with non-finite values, are bad. Fewer than 32 times mask nothing.
///
/// # Source
/// Outliers of a spectral statistic against nearby channels, robust to a trend across the band: Morello, Rajwade &
/// Stappers 2022, MNRAS 510, 1393 (there with differences at several lags and their quartiles).
pub fn channel_mask(samples: Samples<'_>, threshold: f64) -> Vec<bool> {
    let channels = samples.channels();
    let mut bad = vec![false; channels];
    if samples.times() < FEWEST {
        return bad;
    }
    let measures = measure(samples);
    for (channel, bad) in bad.iter_mut().enumerate() {
        *bad = measures.iter().any(|measure| !measure.values[channel].is_finite());
    }
    for _ in 0..PASSES {
        let judged = measures.iter().map(|measure| measure.judge(&bad, threshold));
        let excess = judged.reduce(|a, b| a.iter().zip(b).map(|(a, b)| a.max(b)).collect());
        let excess = excess.unwrap_or_default();
        let worst = excess.iter().copied().fold(0.0, f64::max);
        if worst <= 1.0 {
            break;
        }
        // A bad channel makes its good neighbours deviate by half as much, so the worst go first.
        let limit = (WORST * worst).max(1.0);
        bad.iter_mut().zip(&excess).for_each(|(bad, excess)| *bad |= *excess > limit);
    }
    bad
}

/// One statistic of every channel.
struct Measure {
    values: Vec<f64>,
    /// Smallest deviation to judge by.
    floor: f64,
    /// Whether low outliers are bad as well.
    both_sides: bool,
}

impl Measure {
    /// Returns each channel's excess over its limit, as a fraction of the limit; 0 for channels already bad.
    fn judge(&self, bad: &[bool], threshold: f64) -> Vec<f64> {
        let good = || (0..bad.len()).filter(|c| !bad[*c]);
        let values = || good().map(|c| self.values[c]);
        let Some(middle) = median(&mut values().collect::<Vec<_>>()) else {
            return vec![0.0; bad.len()];
        };
        let expected = |c: usize| self.predict(bad, c).unwrap_or((middle, 0.0));
        let expected: Vec<(f64, f64)> = (0..bad.len()).map(expected).collect();
        let mut sizes: Vec<f64> = good().map(|c| (self.values[c] - expected[c].0).abs()).collect();
        let scatter = SIGMA_PER_MAD * median(&mut sizes).unwrap_or(0.0);
        let excess = |c: usize| {
            let (value, spread) = expected[c];
            let high = self.values[c] - value;
            let low =
                if self.both_sides { self.sides(bad, c, value) - self.values[c] } else { 0.0 };
            high.max(low) / (threshold * scatter.max(self.floor).max(spread))
        };
        (0..bad.len()).map(|c| if bad[c] { 0.0 } else { excess(c) }).collect()
    }

    /// Returns the lowest prediction from either side or both, so that a good channel beside a loud band is not a low
    /// outlier.
    fn sides(&self, bad: &[bool], channel: usize, expected: f64) -> f64 {
        let of = |range: std::ops::Range<usize>| {
            let values = range.filter(|c| !bad[*c]).map(|c| self.values[c]);
            median(&mut values.collect::<Vec<_>>()).unwrap_or(expected)
        };
        let below = of(channel.saturating_sub(REACH)..channel);
        let above = of(channel + 1..bad.len().min(channel + 1 + REACH));
        expected.min(below).min(above)
    }

    /// Predicts a channel's value from its neighbours, with the scatter of their predictions.
    fn predict(&self, bad: &[bool], channel: usize) -> Option<(f64, f64)> {
        let good = |index: Option<usize>| {
            index.filter(|i| *i < bad.len() && !bad[*i]).map(|i| self.values[i])
        };
        let mut guesses = [0.0; 2 * REACH];
        let mut count = 0;
        let mut push = |guess: f64| {
            guesses[count] = guess;
            count += 1;
        };
        for step in 1..=REACH {
            let (below, above) = (channel.checked_sub(step), Some(channel + step));
            if let (Some(below), Some(above)) = (good(below), good(above)) {
                push(0.5 * (below + above));
                continue;
            }
            let on_edge = channel < REACH || channel + REACH >= bad.len();
            let lines = [(below, channel.checked_sub(2 * step)), (above, Some(channel + 2 * step))];
            for (near, far) in lines {
                if let (true, Some(near), Some(far)) = (on_edge, good(near), good(far)) {
                    push(2.0 * near - far);
                }
            }
        }
        median_and_sigma(&mut guesses[..count])
    }
}

/// Computes the four statistics of every channel.
fn measure(samples: Samples<'_>) -> [Measure; 4] {
    let (times, channels) = (samples.times(), samples.channels());
    let segments = (times / (8 * LONG)).clamp(1, SEGMENTS);
    let length = times / segments;
    let mut total = Totals::new(samples);
    let mut parts: [Vec<f64>; 3] = std::array::from_fn(|_| vec![0.0; channels * segments]);
    for segment in 0..segments {
        total.add(samples.slice(segment * length, length));
        for channel in 0..channels {
            for (part, value) in parts.iter_mut().zip(total.segment_measures(channel)) {
                part[channel * segments + segment] = value;
            }
        }
        total.close_segment();
    }
    let voted = |part: &[f64]| part.chunks(segments).map(vote).collect::<Vec<_>>();
    let white = |count: usize| (2.0 / count.max(2) as f64).sqrt();
    // A median over segments scatters by a quarter more than a mean.
    let measure = |values, floor: f64, count: usize, both_sides| Measure {
        values,
        floor: floor.max(1.25 * white(count)),
        both_sides,
    };
    let used = segments * length;
    [
        measure(total.levels(), LEVEL_FLOOR, 4 * used, true),
        measure(voted(&parts[0]), LEVEL_FLOOR, 4 * used, true),
        measure(voted(&parts[1]), SHORT_FLOOR, used / SHORT, false),
        measure(voted(&parts[2]), LONG_FLOOR, used / LONG, false),
    ]
}

/// Returns the median of a channel's segments; not finite if half of them are not.
fn vote(parts: &[f64]) -> f64 {
    let mut parts: Vec<f64> =
        parts.iter().map(|x| if x.is_finite() { *x } else { f64::NAN }).collect();
    median(&mut parts).unwrap_or(f64::NAN)
}

/// Running sums of every channel, relative to its first sample.
struct Totals {
    origin: Vec<f32>,
    row: Vec<f32>,
    short: Vec<f32>,
    long: Vec<f32>,
    segment: Sums,
    whole: Sums,
}

/// Sums over times: of samples, and of squares of samples, short sums and long sums.
#[derive(Clone)]
struct Sums {
    times: usize,
    sum: Vec<f64>,
    squares: [Vec<f64>; 3],
}

impl Sums {
    fn new(channels: usize) -> Self {
        let zero = vec![0.0; channels];
        Self { times: 0, sum: zero.clone(), squares: std::array::from_fn(|_| zero.clone()) }
    }

    fn mean(&self, channel: usize) -> f64 {
        self.sum[channel] / self.times as f64
    }

    fn variance(&self, channel: usize) -> f64 {
        self.squares[0][channel] / self.times as f64 - self.mean(channel).powi(2)
    }
}

impl Totals {
    fn new(samples: Samples<'_>) -> Self {
        let channels = samples.channels();
        let mut origin = vec![0.0; channels];
        unpack_f32(samples.row(0), samples.encoding(), &mut origin);
        let row = vec![0.0; channels];
        let (segment, whole) = (Sums::new(channels), Sums::new(channels));
        Self { origin, short: row.clone(), long: row.clone(), row, segment, whole }
    }

    /// Adds a segment's rows; rows beyond the last complete long sum count for single samples only.
    fn add(&mut self, samples: Samples<'_>) {
        let Self { origin, row, short, long, segment, .. } = self;
        for time in 0..samples.times() {
            unpack_f32(samples.row(time), samples.encoding(), row);
            let squares = &mut segment.squares[0];
            for (((x, origin), short), square) in
                row.iter().zip(&*origin).zip(&mut *short).zip(squares)
            {
                let x = x - origin;
                *short += x;
                *square += f64::from(x) * f64::from(x);
            }
            if (time + 1).is_multiple_of(SHORT) || time + 1 == samples.times() {
                let whole = (time + 1).is_multiple_of(SHORT);
                close(
                    short,
                    &mut segment.sum,
                    whole.then_some(&mut segment.squares[1]),
                    Some(long),
                );
            }
            if (time + 1).is_multiple_of(LONG) {
                close(long, &mut [], Some(&mut segment.squares[2]), None);
            }
        }
        long.fill(0.0);
        segment.times = samples.times();
    }

    /// Returns the logarithms of the deviation, and of the scatter of short and long sums relative to white noise.
    fn segment_measures(&self, channel: usize) -> [f64; 3] {
        let variance = self.segment.variance(channel);
        let mean = self.segment.mean(channel);
        let scatter = |squares: &[f64], length: usize| {
            let count = (self.segment.times / length) as f64;
            let length = length as f64;
            let of_sums = squares[channel] / count - (length * mean).powi(2);
            (of_sums.max(1e-3 * variance * length) / (length * variance)).ln()
        };
        if variance.is_nan() || variance <= 0.0 {
            return [f64::NAN; 3];
        }
        let long = if self.segment.times < 4 * LONG {
            0.0
        } else {
            scatter(&self.segment.squares[2], LONG)
        };
        [0.5 * variance.ln(), scatter(&self.segment.squares[1], SHORT), long]
    }

    fn close_segment(&mut self) {
        let channels = self.origin.len();
        let segment = std::mem::replace(&mut self.segment, Sums::new(channels));
        self.whole.times += segment.times;
        let pairs = self.whole.sum.iter_mut().zip(&segment.sum);
        pairs.for_each(|(whole, part)| *whole += part);
        let pairs = self.whole.squares[0].iter_mut().zip(&segment.squares[0]);
        pairs.for_each(|(whole, part)| *whole += part);
    }

    fn levels(&self) -> Vec<f64> {
        let level = |channel: usize| {
            let variance = self.whole.variance(channel);
            if variance > 0.0 { 0.5 * variance.ln() } else { f64::NAN }
        };
        (0..self.origin.len()).map(level).collect()
    }
}

/// Adds finished sums and their squares to the totals and to longer sums, and starts new ones.
fn close(
    sums: &mut [f32],
    totals: &mut [f64],
    squares: Option<&mut Vec<f64>>,
    longer: Option<&mut Vec<f32>>,
) {
    totals.iter_mut().zip(&*sums).for_each(|(total, x)| *total += f64::from(*x));
    if let Some(squares) = squares {
        squares.iter_mut().zip(&*sums).for_each(|(square, x)| *square += f64::from(*x).powi(2));
    }
    if let Some(longer) = longer {
        longer.iter_mut().zip(&*sums).for_each(|(longer, x)| *longer += x);
    }
    sums.fill(0.0);
}
