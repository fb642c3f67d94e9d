//! Placement of filters: each covers an interval of the template over which its phase is nearly linear.

use std::f64::consts::TAU;

use num_complex::Complex64;

use super::Options;
use super::whitened::Whitened;

/// Least second and third differences of the phase in cycles; smaller ones are rounding errors.
const LEAST_DIFFERENCES: [f64; 2] = [1e-14, 1e-16];
/// Most filters that are placed.
pub(super) const MOST_FILTERS: usize = 1 << 14;

/// Filter at the strain's rate.
#[derive(Clone, Copy, Debug)]
pub(super) struct Placed {
    /// Phase advance per sample.
    pub angle: f64,
    /// Amplitude decay per sample: `a = exp(-decay + i angle)`.
    pub decay: f64,
    /// Weight `b`.
    pub weight: Complex64,
    /// Delay in samples.
    pub delay: usize,
    /// Bandwidth in cycles per sample that its branch must hold in addition to its frequency.
    pub reserve: f64,
}

/// Limit on the filters placed along the template itself, as a multiple of those along its guide. Beyond it the
/// filters would follow ripples of the whitening.
const MOST_OF_GUIDE: usize = 2;

/// Places filters along the template, or along its guide if that needs far fewer. Returns `None` for too many
/// filters.
pub(super) fn place(template: &Whitened, options: &Options, epsilon: f64) -> Option<Vec<Placed>> {
    let last = template.samples.len() - 1;
    let own = place_along(&template.samples, (template.start, last), options, epsilon);
    let Some(guide) = &template.guide else { return own };
    let guided = place_along(guide, (template.start, template.end), options, epsilon);
    match (own, guided) {
        (Some(own), Some(guided)) if own.len() > MOST_OF_GUIDE * guided.len() => Some(guided),
        (own, guided) => own.or(guided),
    }
}

/// Places filters from the template's end to its start, so that the phase deviates by at most `epsilon` cycles over
/// the interval of each. Returns `None` for too many filters.
fn place_along(
    h: &[Complex64],
    (start, end): (usize, usize),
    options: &Options,
    epsilon: f64,
) -> Option<Vec<Placed>> {
    let steps = phase_steps(h);
    let last = h.len() - 1;
    let mut filters = Vec::new();
    let mut j = end;
    while j > start.max(3) {
        let second = (steps[j] - steps[j - 1]).abs() / TAU;
        let third = (steps[j] - 2.0 * steps[j - 1] + steps[j - 2]).abs() / TAU;
        // The phase changes too fast for any filter here: noise of the ringdown.
        if second > 8.0 * epsilon {
            j -= 1;
            continue;
        }
        let stretch = stretch(second, third, epsilon).min(j as f64);
        let k = (j as f64 - options.alpha * stretch).round() as usize;
        let k = k.clamp(1, j);
        if k <= start.max(2) {
            break;
        }
        let angle = slope(&steps, k);
        let value = h[k] * Complex64::cis(angle * (j - k) as f64);
        let decay = options.beta / stretch;
        filters.push(Placed { angle, decay, weight: value.conj(), delay: last - j, reserve: 0.0 });
        if filters.len() > MOST_FILTERS {
            return None;
        }
        j = j.saturating_sub(stretch as usize);
    }
    Some(filters)
}

/// Returns the phase advance from each sample's predecessor. Differences of these are exact to rounding; those of a
/// phase unwrapped over many cycles are not.
fn phase_steps(h: &[Complex64]) -> Vec<f64> {
    let step = |at: usize| if at == 0 { 0.0 } else { (h[at] * h[at - 1].conj()).arg() };
    (0..h.len()).map(step).collect()
}

/// Returns the samples over which neither the second nor the third difference makes the phase deviate by `epsilon`.
fn stretch(second: f64, third: f64, epsilon: f64) -> f64 {
    let by_second = (2.0 * epsilon / second.max(LEAST_DIFFERENCES[0])).sqrt().round();
    let by_third = (6.0 * epsilon / third.max(LEAST_DIFFERENCES[1])).cbrt().round();
    by_second.min(by_third.max(1.0)).max(1.0)
}

/// Returns the derivative of the phase from five points, or from four backward ones at the end.
fn slope(steps: &[f64], k: usize) -> f64 {
    if k + 2 < steps.len() {
        let near = steps[k] + steps[k + 1];
        let far = near + steps[k - 1] + steps[k + 2];
        (8.0 * near - far) / 12.0
    } else {
        (11.0 * steps[k] - 7.0 * steps[k - 1] + 2.0 * steps[k - 2]) / 6.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn template(phase: impl Fn(f64) -> f64) -> Whitened {
        let samples = (0..4000).map(|n| Complex64::cis(phase(f64::from(n)))).collect();
        Whitened {
            samples,
            guide: None,
            power: 4000.0,
            final_step: 0.1,
            start: 0,
            end: 3999,
            peak_offset: 0,
        }
    }

    #[test]
    fn stretches_follow_the_second_difference() {
        // 1e-6 cycles per sample squared: sqrt(2 epsilon / 1e-6) = 200 samples.
        let chirp = template(|n| TAU * (0.02 * n + 0.5e-6 * n * n));
        let placed = place(&chirp, &Options::default(), 0.02).expect("not too many");
        assert!((17..=21).contains(&placed.len()), "{} filters", placed.len());
        assert_eq!((placed[0].delay, placed[1].delay), (0, 200));
        for filter in &placed {
            let middle = 3999.0 - filter.delay as f64 - 198.0;
            assert!((filter.angle / TAU - 0.02 - 1e-6 * middle).abs() < 1e-5, "{filter:?}");
            assert!((filter.decay - 0.25 / 200.0).abs() < 1e-9);
        }
    }

    #[test]
    fn a_tone_has_filters_too() {
        let placed = place(&template(|n| 0.1 * n), &Options::default(), 0.02).expect("few");
        assert!(!placed.is_empty() && placed.iter().all(|filter| filter.decay > 0.0));
        assert!(placed.iter().all(|filter| (filter.angle - 0.1).abs() < 1e-9));
    }
}
