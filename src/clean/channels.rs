//! The automatic channel mask: channels whose noise is unlike that of their neighbours.
//!
//! Invariant: a channel is judged by what it does most of the time, so that a bright pulse, which
//! passes through every channel once, masks none.

use crate::math::statistics::{SIGMA_PER_MAD, median, median_and_sigma};
use crate::sample::{Samples, unpack_f32};

/// Parts of the stream that vote.
const SEGMENTS: usize = 8;

/// Lengths of the sums whose scatter tells noise from slower signals.
const SHORT: usize = 8;
const LONG: usize = 64;

/// Fewest times on which a channel can be judged.
const FEWEST: usize = 32;

/// Channels to either side that predict one.
const REACH: usize = 12;

/// Passes over the channels; each leaves out what the one before found.
const PASSES: usize = 64;

/// Part of the worst channel's excess that is bad in the same pass.
const WORST: f64 = 0.6;

/// Smallest deviations that count, as parts: a real band is not smoother than this.
const LEVEL_FLOOR: f64 = 0.02;
const SHORT_FLOOR: f64 = 0.04;
const LONG_FLOOR: f64 = 0.08;

/// Automatic channel mask: `true` for a bad channel.
///
/// Four numbers judge a channel: the logarithm of its standard deviation over all times, the same as
/// the median over eight parts, and, as medians over the parts, the logarithms of the scatter of
/// sums of 8 and of 64 times over that of single ones, which periodic and slow signals raise and
/// white noise does not. Each is compared with what up to 12 neighbours on either side predict (the
/// median of the means of pairs; at the band's edges, of straight lines through two channels), and
/// is an outlier beyond `threshold` robust deviations: of the residuals, or of white noise in this
/// many samples, or of the neighbours' guesses (where the band bends), whichever is larger. The worst
/// channels are left out, and the rest judged again.
/// Constant channels, and those with values that are not finite, are bad. Fewer than 32 times mask
/// nothing.
///
/// # Source
/// Outliers of a spectral statistic against neighbouring channels, robust to a trend across the
/// band: Morello, Rajwade & Stappers 2022, MNRAS 510, 1393 (there by differences at several lags
/// and their quartiles).
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
        // Bad channels make their good neighbours look odd by half as much: the worst go first.
        let limit = (WORST * worst).max(1.0);
        bad.iter_mut().zip(&excess).for_each(|(bad, excess)| *bad |= *excess > limit);
    }
    bad
}

/// One number a channel.
struct Measure {
    values: Vec<f64>,
    /// Least deviation to judge by.
    floor: f64,
    /// Whether low outliers are bad too.
    both_sides: bool,
}

impl Measure {
    /// How far each channel lies beyond its limit, as a part of it; bad ones are 0.
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

    /// The lower of what the neighbours of either side, and of both, make one expect: a good channel
    /// beside a band of loud ones is not a low one.
    fn sides(&self, bad: &[bool], channel: usize, expected: f64) -> f64 {
        let of = |range: std::ops::Range<usize>| {
            let values = range.filter(|c| !bad[*c]).map(|c| self.values[c]);
            median(&mut values.collect::<Vec<_>>()).unwrap_or(expected)
        };
        let below = of(channel.saturating_sub(REACH)..channel);
        let above = of(channel + 1..bad.len().min(channel + 1 + REACH));
        expected.min(below).min(above)
    }

    /// What the neighbours make one expect, and how far they disagree (where the band bends).
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

/// The four numbers of every channel.
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
    // A median of parts scatters by a quarter more than a mean.
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

/// The median of a channel's parts; not finite if half of them are not.
fn vote(parts: &[f64]) -> f64 {
    let mut parts: Vec<f64> =
        parts.iter().map(|x| if x.is_finite() { *x } else { f64::NAN }).collect();
    median(&mut parts).unwrap_or(f64::NAN)
}

/// Running sums of every channel, about its first sample.
struct Totals {
    origin: Vec<f32>,
    row: Vec<f32>,
    short: Vec<f32>,
    long: Vec<f32>,
    segment: Sums,
    whole: Sums,
}

/// Sums over times, and of squares of samples, of short sums and of long ones.
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

    /// Adds a segment's rows; those beyond whole long sums count for single samples only.
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

    /// Logarithms of the deviation, and of the scatter of short and long sums over white noise's.
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

/// Adds finished sums, and their squares, to the totals and to longer sums, and starts new ones.
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
