//! The wing of a pulse: how strong it appears in a boxcar at a wrong dispersion measure.
//!
//! Invariant: no boxcar holds more than the whole pulse.

use super::{BandEdges, Point};

/// A boxcar may hold this many times the part that a spectrum spread over the whole band puts into it: a burst that
/// fills half the band is twice as dense there, and so is a scattered pulse within its own best boxcar.
const DENSITY: f64 = 2.0;

/// A pulse has at most this many times what its best boxcar holds of it: 1.2 for a Gaussian, 1.4 for an exponential.
const WHOLE: f64 = 1.5;

/// S/N that noise, searched over many boxcars and trials, may add to the expected S/N.
const NOISE: f64 = 4.0;

/// Smearing of pulses across a band at a wrong dispersion measure.
///
/// # Source
/// Cordes & McLaughlin 2003, ApJ 596, 1142, eq. 12 and 13, give the loss in a boxcar of the pulse's own width at the
/// best time; this is the same for any boxcar at any time, with the delays of a real band.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wings {
    /// Delay across the band of one unit of dispersion measure, in seconds.
    pub(super) delay_per_dm: f64,
    /// Lowest frequency over the highest.
    ratio: f64,
}

impl Wings {
    pub(super) fn new(edges: BandEdges, delay_per_dm: f64) -> Self {
        Self { delay_per_dm, ratio: edges.lowest_hz / edges.highest_hz }
    }

    /// Returns whether the pulse of which `best` is the best boxcar explains another event: that is no stronger than the
    /// pulse's wing in that boxcar, and noise.
    pub(super) fn explains(&self, best: &Point, other: &Point) -> bool {
        f64::from(other.snr) <= self.expected(best, other) + NOISE
    }

    /// The largest difference in dispersion measure at which a pulse may explain an event of this significance.
    /// `least_band` is the least part of the band of any event.
    pub(super) fn dm_reach(&self, best: &Point, (least, least_band): (f64, f64)) -> f64 {
        let wing = least - NOISE;
        if wing <= 0.0 || self.delay_per_dm <= 0.0 {
            return f64::INFINITY;
        }
        // No boxcar over a smear `T` has more than `S sqrt(density whole W / T)`, densest at the highest frequency.
        let density = DENSITY * (0.5 * (1.0 + self.ratio) / self.ratio.powi(2)).max(1.0);
        let ratio = f64::from(best.snr) / wing;
        WHOLE * density * best.width() * ratio.powi(2) / (self.delay_per_dm * least_band)
    }

    /// The significance that the pulse may have in the other event's boxcar: `S sqrt(W / w)` times the part of it that the
    /// boxcar holds, which may lie half the pulse and a quarter of the boxcar off.
    fn expected(&self, best: &Point, other: &Point) -> f64 {
        let (own, width) = (best.width(), other.width());
        let smear = (best.dm - other.dm).abs() * self.delay_per_dm;
        // Above the pulse's dispersion measure low frequencies come too early, and time runs backwards.
        let begin =
            if other.dm > best.dm { best.end - other.end } else { other.begin - best.begin };
        let densest = (own - width).max(0.0);
        let slack = 0.5 * own + 0.25 * width;
        let begin = begin + (densest - begin).clamp(-slack, slack);
        let part = self.part((begin, begin + width), own, smear);
        // What the pulse has in the channels that it lacks is no part of what was measured of it.
        let (band, other_band) = (f64::from(best.band), f64::from(other.band));
        let held = (DENSITY * part / band).min(WHOLE) * (band / other_band).sqrt();
        f64::from(best.snr) * (own / width).sqrt() * held
    }

    /// The part of a pulse of `width` that lies from `begin` to `end`, counted from its own begin, once it is smeared
    /// over `smear` towards later times: the larger one of a spectrum that is even in frequency and of one that is even
    /// in delay, which differ in wide bands.
    fn part(&self, (begin, end): (f64, f64), width: f64, smear: f64) -> f64 {
        let parts = |arrived: &dyn Fn(f64) -> f64| {
            let until = |time: f64| arrived(time) - arrived(time - width);
            ((until(end) - until(begin)) / width).clamp(0.0, 1.0)
        };
        let in_frequency = parts(&|time| self.arrived(time, smear));
        in_frequency.max(parts(&|time| arrived_evenly(time, smear)))
    }

    /// Integral from 0 to `time` of the part of the band that has arrived, of channels smeared over `smear`.
    fn arrived(&self, time: f64, smear: f64) -> f64 {
        if time <= 0.0 {
            return 0.0;
        }
        let u = if time < smear { time / smear } else { 1.0 };
        // The highest frequency over the one that arrives at `u`.
        let q = (1.0 + u * (self.ratio.powi(-2) - 1.0)).sqrt();
        let within = (1.0 + self.ratio) * (u / (self.ratio * (q + 1.0))).powi(2);
        smear * within + (time - smear).max(0.0)
    }
}

/// Computes [`Wings::arrived`] for a spectrum that contributes equally to each moment of the smear.
fn arrived_evenly(time: f64, smear: f64) -> f64 {
    if time <= 0.0 {
        0.0
    } else if time < smear {
        0.5 * time * time / smear
    } else {
        time - 0.5 * smear
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wings(ratio: f64) -> Wings {
        Wings { delay_per_dm: 1e-3, ratio }
    }

    /// The part in a boxcar by counting channels.
    fn counted(ratio: f64, (begin, end): (f64, f64), width: f64, smear: f64) -> f64 {
        let channels = 4000;
        let part = |channel: usize| {
            let frequency = ratio + (1.0 - ratio) * (channel as f64 + 0.5) / channels as f64;
            let late = smear * (frequency.powi(-2) - 1.0) / (ratio.powi(-2) - 1.0);
            ((late + width).min(end) - late.max(begin)).max(0.0) / width
        };
        (0..channels).map(part).sum::<f64>() / channels as f64
    }

    #[test]
    fn the_part_in_a_boxcar_is_that_of_channels_that_are_counted() {
        for ratio in [0.5, 0.8, 0.999] {
            let wings = wings(ratio);
            for smear in [0.0, 0.01, 1.0, 30.0] {
                for (begin, end) in [(0.0, 1.0), (-0.5, 0.2), (0.1, 3.0), (2.0, 40.0)] {
                    let until =
                        |time: f64| wings.arrived(time, smear) - wings.arrived(time - 1.0, smear);
                    let found = until(end) - until(begin);
                    let expected = counted(ratio, (begin, end), 1.0, smear);
                    assert!((found - expected).abs() < 1e-3, "{ratio} {smear} {begin}: {found}");
                }
            }
        }
    }

    fn point(dm: f64, begin: f64, width: f64, snr: f32) -> Point {
        Point { begin, end: begin + width, snr, rank: 0, dm, trial: 0, is_widest: false, band: 1.0 }
    }

    #[test]
    fn a_wing_is_wide_and_weak_and_what_is_narrower_or_stronger_is_not_of_it() {
        let wings = wings(0.8);
        let best = point(300.0, 3.0, 0.006, 60.0);
        // At DM 420 the pulse is smeared over the 120 ms before it.
        let explains = |begin, width, snr| wings.explains(&best, &point(420.0, begin, width, snr));
        assert!(explains(2.9, 0.1, 14.0) && explains(2.95, 0.03, 12.0));
        assert!(!explains(2.94, 0.006, 14.0), "narrower");
        assert!(!explains(2.9, 0.1, 30.0), "stronger");
        assert!(!explains(3.1, 0.1, 14.0) && !explains(2.7, 0.05, 8.0), "elsewhere");
        let far = wings.dm_reach(&best, (6.0, 1.0));
        assert!(!wings.explains(&best, &point(300.0 + far, 3.0 - 1e-3 * far, 1e-3 * far, 6.0)));
    }

    #[test]
    fn a_wing_in_a_part_of_the_band_is_stronger_than_in_all_of_it() {
        let wings = wings(0.8);
        let best = point(300.0, 3.0, 0.006, 60.0);
        // As strong as this in a quarter of the band is half as strong in all of it.
        let wing = |band, snr| Point { band, ..point(420.0, 2.95, 0.03, snr) };
        assert!(
            !wings.explains(&best, &wing(1.0, 24.0)) && wings.explains(&best, &wing(0.25, 24.0))
        );
        // A pulse that was seen in half of the band has a wing of that half.
        let half = Point { band: 0.5, ..best };
        let snr = |best: &Point, other: &Point| wings.expected(best, other);
        let ratio = snr(&half, &wing(0.5, 6.0)) / snr(&best, &wing(1.0, 6.0));
        assert!((ratio - 2.0).abs() < 1e-9, "{ratio}");
    }
}
