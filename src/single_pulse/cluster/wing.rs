//! Wing of a pulse: its strength in a boxcar at a wrong dispersion measure.
//!
//! Invariant: no boxcar holds more than the whole pulse.

use super::{BandEdges, Point};

/// Largest factor by which a boxcar's part of a pulse exceeds that of a flat spectrum: a burst that fills half the
/// band is twice as dense there, and so is a scattered pulse within its own best boxcar.
const DENSITY: f64 = 2.0;

/// Largest ratio of a pulse to the part that its best boxcar holds: 1.2 for a Gaussian, 1.4 for an exponential.
const WHOLE: f64 = 1.5;

/// S/N that noise, searched over many boxcars and trials, can add to the expected S/N.
const NOISE: f64 = 4.0;

/// Smearing of pulses across a band at a wrong dispersion measure.
///
/// # Source
/// Cordes & McLaughlin 2003, ApJ 596, 1142, eq. 12 and 13, give the loss in a boxcar of the pulse's own width at the
/// best time. This generalizes it to any boxcar at any time, with the delays of a real band.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wings {
    /// Delay across the band of one unit of dispersion measure, in seconds.
    pub(super) delay_per_dm: f64,
    /// Ratio of the lowest to the highest frequency.
    ratio: f64,
}

impl Wings {
    pub(super) fn new(edges: BandEdges, delay_per_dm: f64) -> Self {
        Self { delay_per_dm, ratio: edges.lowest_hz / edges.highest_hz }
    }

    /// Returns whether the pulse with best boxcar `best` explains another event: the event is no stronger than the
    /// pulse's wing in that boxcar plus noise.
    pub(super) fn explains(&self, best: &Point, other: &Point) -> bool {
        f64::from(other.snr) <= self.expected(best, other) + NOISE
    }

    /// Returns the largest difference in dispersion measure at which a pulse may explain an event of significance
    /// `least`. `least_band` is the smallest band fraction of any event.
    pub(super) fn dm_reach(&self, best: &Point, (least, least_band): (f64, f64)) -> f64 {
        let wing = least - NOISE;
        if wing <= 0.0 || self.delay_per_dm <= 0.0 {
            return f64::INFINITY;
        }
        // A boxcar over a smear `T` has at most `S sqrt(density whole W / T)`; the density is highest at the highest
        // frequency.
        let density = DENSITY * (0.5 * (1.0 + self.ratio) / self.ratio.powi(2)).max(1.0);
        let ratio = f64::from(best.snr) / wing;
        WHOLE * density * best.width() * ratio.powi(2) / (self.delay_per_dm * least_band)
    }

    /// Returns the largest expected significance of the pulse in the other event's boxcar: `S sqrt(W / w)` times the
    /// fraction of the pulse in the boxcar. The boxcar may be off by half the pulse and a quarter of its own width.
    fn expected(&self, best: &Point, other: &Point) -> f64 {
        let (own, width) = (best.width(), other.width());
        let smear = (best.dm - other.dm).abs() * self.delay_per_dm;
        // Above the pulse's dispersion measure low frequencies arrive too early, and time is reversed.
        let begin =
            if other.dm > best.dm { best.end - other.end } else { other.begin - best.begin };
        let densest = (own - width).max(0.0);
        let slack = 0.5 * own + 0.25 * width;
        let begin = begin + (densest - begin).clamp(-slack, slack);
        let part = self.part((begin, begin + width), own, smear);
        // The pulse's power in absent channels is not part of its measured significance.
        let (band, other_band) = (f64::from(best.band), f64::from(other.band));
        let held = (DENSITY * part / band).min(WHOLE) * (band / other_band).sqrt();
        f64::from(best.snr) * (own / width).sqrt() * held
    }

    /// Returns the fraction of a pulse of `width` from `begin` to `end`, counted from its own start, after smearing
    /// over `smear` towards later times. Takes the larger fraction of a spectrum flat in frequency and one flat in
    /// delay; the two differ in wide bands.
    fn part(&self, (begin, end): (f64, f64), width: f64, smear: f64) -> f64 {
        let parts = |arrived: &dyn Fn(f64) -> f64| {
            let until = |time: f64| arrived(time) - arrived(time - width);
            ((until(end) - until(begin)) / width).clamp(0.0, 1.0)
        };
        let in_frequency = parts(&|time| self.arrived(time, smear));
        in_frequency.max(parts(&|time| arrived_evenly(time, smear)))
    }

    /// Integrates the arrived fraction of the band from 0 to `time`, for channels smeared over `smear`.
    fn arrived(&self, time: f64, smear: f64) -> f64 {
        if time <= 0.0 {
            return 0.0;
        }
        let u = if time < smear { time / smear } else { 1.0 };
        // Ratio of the highest frequency to the one that arrives at `u`.
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

    /// Computes the fraction in a boxcar by counting channels.
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
        // An event this strong in a quarter of the band has half the significance over all of it.
        let wing = |band, snr| Point { band, ..point(420.0, 2.95, 0.03, snr) };
        assert!(
            !wings.explains(&best, &wing(1.0, 24.0)) && wings.explains(&best, &wing(0.25, 24.0))
        );
        // A pulse seen in half of the band has a wing in that half.
        let half = Point { band: 0.5, ..best };
        let snr = |best: &Point, other: &Point| wings.expected(best, other);
        let ratio = snr(&half, &wing(0.5, 6.0)) / snr(&best, &wing(1.0, 6.0));
        assert!((ratio - 2.0).abs() < 1e-9, "{ratio}");
    }
}
