//! Placement of filters along a template, matching pursuit of the residual, and assignment to rates.

use std::f64::consts::TAU;
use std::ops::RangeInclusive;

use num_complex::{Complex, Complex64};

use super::super::plan::{Branch, Filter, MAX_HALVINGS, Template};
use super::whitened::Whitened;
use super::{Options, Rates};

/// Least second and third differences of the phase in cycles; smaller ones are rounding errors.
const MIN_DIFFERENCES: [f64; 2] = [1e-14, 1e-16];
/// Most filters that are placed.
const MAX_FILTERS: usize = 1 << 14;

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
const MAX_OF_GUIDE: usize = 2;

/// Places filters along the template, or along its guide if that needs far fewer. Returns `None` for too many
/// filters.
pub(super) fn place(template: &Whitened, options: &Options, epsilon: f64) -> Option<Vec<Placed>> {
    let last = template.samples.len() - 1;
    let own = place_along(&template.samples, template.start..=last, options, epsilon);
    let Some(guide) = &template.guide else { return own };
    let guided = place_along(guide, template.start..=template.end, options, epsilon);
    match (own, guided) {
        (Some(own), Some(guided)) if own.len() > MAX_OF_GUIDE * guided.len() => Some(guided),
        (own, guided) => own.or(guided),
    }
}

/// Places filters from the template's end to its start, so that the phase deviates by at most `epsilon` cycles over
/// the interval of each. Returns `None` for too many filters.
fn place_along(
    h: &[Complex64],
    followed: RangeInclusive<usize>,
    options: &Options,
    epsilon: f64,
) -> Option<Vec<Placed>> {
    let (start, end) = followed.into_inner();
    let steps = PhaseSteps(h);
    let last = h.len() - 1;
    let mut filters = Vec::new();
    let mut j = end;
    while j > start.max(3) {
        let [here, before, earlier] = [0, 1, 2].map(|back| steps.at(j - back));
        let second = (here - before).abs() / TAU;
        let third = (here - 2.0 * before + earlier).abs() / TAU;
        // Noise of the ringdown: the phase changes too fast for any filter.
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
        let angle = steps.slope(k);
        let value = h[k] * Complex64::cis(angle * (j - k) as f64);
        let decay = options.beta / stretch;
        filters.push(Placed { angle, decay, weight: value.conj(), delay: last - j, reserve: 0.0 });
        if filters.len() > MAX_FILTERS {
            return None;
        }
        j = j.saturating_sub(stretch as usize);
    }
    Some(filters)
}

/// Phase advances from each sample's predecessor. Differences of these are exact to rounding; those of a phase unwrapped
/// over many cycles are not. They are computed where filters are placed, which are few of the samples.
struct PhaseSteps<'a>(&'a [Complex64]);

impl PhaseSteps<'_> {
    fn at(&self, at: usize) -> f64 {
        if at == 0 { 0.0 } else { (self.0[at] * self.0[at - 1].conj()).arg() }
    }

    /// Returns the derivative of the phase from five points, or from four backward ones at the end.
    fn slope(&self, k: usize) -> f64 {
        if k + 2 < self.0.len() {
            let near = self.at(k) + self.at(k + 1);
            let far = near + self.at(k - 1) + self.at(k + 2);
            (8.0 * near - far) / 12.0
        } else {
            (11.0 * self.at(k) - 7.0 * self.at(k - 1) + 2.0 * self.at(k - 2)) / 6.0
        }
    }
}

/// Returns the samples over which neither the second nor the third difference makes the phase deviate by `epsilon`.
fn stretch(second: f64, third: f64, epsilon: f64) -> f64 {
    let by_second = (2.0 * epsilon / second.max(MIN_DIFFERENCES[0])).sqrt().round();
    let by_third = (6.0 * epsilon / third.max(MIN_DIFFERENCES[1])).cbrt().round();
    by_second.min(by_third.max(1.0)).max(1.0)
}

/// Trial frequencies per octave.
const FREQUENCIES_AN_OCTAVE: f64 = 8.0;
/// Highest frequency in cycles per sample.
const MAX_FREQUENCY: f64 = 0.36;
/// Trial decay times in cycles of the frequency.
const MEMORIES_CYCLES: [f64; 6] = [0.1, 0.2, 0.4, 0.8, 1.6, 3.2];
/// Greatest decay per sample.
const MAX_DECAY: f64 = 1.0;
/// Refinement steps of frequency and decay time, each half the previous one.
const FINER: usize = 4;
/// Multiple of a filter's decay, in cycles per sample, that its branch must hold in addition to its frequency.
const RESERVE: f64 = 4.0;

/// Finds damped oscillations that successively remove most of a series; `lowest` is the lowest frequency in cycles
/// per sample.
///
/// Each one maximizes `|<v, r>| / |v|` over frequency, decay and delay, with `v[n] = a^(n - d)` and `r` the residual
/// of the previous ones.
pub(super) fn pursue(mut rest: Vec<Complex64>, lowest: f64, count: usize) -> Vec<Placed> {
    let octaves = (MAX_FREQUENCY / lowest).log2().max(0.0);
    let frequencies = (octaves * FREQUENCIES_AN_OCTAVE) as usize + 1;
    let grid: Vec<(f64, f64)> = (0..frequencies)
        .map(|at| TAU * lowest * (at as f64 / FREQUENCIES_AN_OCTAVE).exp2())
        .flat_map(|angle| MEMORIES_CYCLES.map(|cycles| (angle, angle / (TAU * cycles))))
        .collect();
    let mut bases: Vec<Vec<Complex64>> = Vec::new();
    let mut found = Vec::new();
    for _ in 0..count {
        let Some(one) = best(&rest, &grid) else { break };
        let one = finer(&rest, one);
        // The residual is orthogonal to all oscillations found before.
        let mut base = series(&one, rest.len());
        for other in &bases {
            take_away(&mut base, other);
        }
        let norm = base.iter().map(Complex64::norm_sqr).sum::<f64>().sqrt();
        if norm > 1e-6 {
            base.iter_mut().for_each(|value| *value /= norm);
            take_away(&mut rest, &base);
            bases.push(base);
        }
        found.push(one);
    }
    found
}

/// Poles of a grid that are tried at a time, so that their recursions do not wait for one another.
const POLES: usize = 8;

/// Returns the best frequency and decay of a grid at the best delay; of equal ones the first of the grid, at the
/// longest delay.
fn best(rest: &[Complex64], grid: &[(f64, f64)]) -> Option<Placed> {
    let mut best = (0.0, None);
    for poles in grid.chunks(POLES) {
        let mut pole = [[0.0; POLES]; 2];
        let mut norm = [0.0; POLES];
        for (lane, &(angle, decay)) in poles.iter().enumerate() {
            let value = Complex64::from_polar((-decay).exp(), -angle);
            [pole[0][lane], pole[1][lane]] = [value.re, value.im];
            norm[lane] = 1.0 - value.norm_sqr();
        }
        let (mut re, mut im) = ([0.0; POLES], [0.0; POLES]);
        let (mut scores, mut delays) = ([0.0; POLES], [0.0; POLES]);
        for (delay, value) in rest.iter().enumerate().rev() {
            let delay = delay as f64;
            for lane in 0..POLES {
                // Computes <v, r> at one delay from its value at the next.
                let (a, b) = (pole[0][lane], pole[1][lane]);
                let next = re[lane] * a - im[lane] * b + value.re;
                im[lane] = re[lane] * b + im[lane] * a + value.im;
                re[lane] = next;
                let score = (re[lane] * re[lane] + im[lane] * im[lane]) * norm[lane];
                let is_better = score > scores[lane];
                scores[lane] = if is_better { score } else { scores[lane] };
                delays[lane] = if is_better { delay } else { delays[lane] };
            }
        }
        for (lane, &(angle, decay)) in poles.iter().enumerate() {
            if scores[lane] > best.0 {
                best = (scores[lane], Some(placed(angle, decay, delays[lane] as usize)));
            }
        }
    }
    best.1
}

fn placed(angle: f64, decay: f64, delay: usize) -> Placed {
    let decay = decay.min(MAX_DECAY);
    let reserve = RESERVE * decay / TAU;
    Placed { angle, decay, delay, reserve, weight: Complex64::default() }
}

/// Refines frequency and decay in decreasing steps to remove more of the residual.
fn finer(rest: &[Complex64], mut one: Placed) -> Placed {
    let score = |one: &Placed| {
        let pole = Complex64::from_polar((-one.decay).exp(), -one.angle);
        let part = rest[one.delay..].iter().rev();
        let product = part.fold(Complex64::default(), |sum, value| sum * pole + value);
        product.norm_sqr() * (1.0 - pole.norm_sqr())
    };
    let mut most = score(&one);
    let mut step = 0.5;
    for _ in 0..FINER {
        let angle = (step / FREQUENCIES_AN_OCTAVE).exp2();
        let decay = step.exp2();
        for (angle, decay) in [(angle, 1.0), (1.0 / angle, 1.0), (1.0, decay), (1.0, 1.0 / decay)] {
            let angle = (one.angle * angle).min(TAU * MAX_FREQUENCY);
            let other = placed(angle, one.decay * decay, one.delay);
            let new = score(&other);
            if new > most {
                (most, one) = (new, other);
            }
        }
        step /= 2.0;
    }
    one
}

/// Returns the response with unit weight.
fn series(one: &Placed, length: usize) -> Vec<Complex64> {
    let pole = Complex64::from_polar((-one.decay).exp(), one.angle);
    let mut value = Complex64::new(1.0, 0.0);
    let mut out = vec![Complex64::default(); length];
    for out in &mut out[one.delay..] {
        *out = value;
        value *= pole;
    }
    out
}

/// Subtracts the projection onto a unit vector.
fn take_away(from: &mut [Complex64], unit: &[Complex64]) {
    let along: Complex64 = unit.iter().zip(&*from).map(|(unit, value)| unit.conj() * value).sum();
    from.iter_mut().zip(unit).for_each(|(value, unit)| *value -= along * unit);
}

/// Powers of a pole below `exp(-REACH)` count as 0.
pub(super) const REACH: f64 = 25.0;

/// Filter at the rate of its branch, with a rounded pole.
#[derive(Clone, Copy, Debug)]
pub(super) struct Assigned {
    /// Number of times the rate is halved.
    pub halvings: u32,
    /// Pole, rounded to single precision.
    pub pole: Complex64,
    /// Weight, not rounded.
    pub weight: Complex64,
    /// Delay in samples of the branch.
    pub delay: usize,
}

impl Assigned {
    /// Returns the samples of the branch in which the response decays by a factor e.
    fn memory(&self) -> f64 {
        -1.0 / self.pole.norm().ln()
    }

    /// Returns the samples of the branch after which the response counts as 0.
    pub(super) fn reach(&self) -> usize {
        (REACH * self.memory()).ceil() as usize + 1
    }
}

/// Returns the most halvings that the options allow.
pub(super) fn most_halvings(options: &Options, rate_hz: u32) -> u32 {
    let lowest_hz = match options.rates {
        Rates::Single => return 0,
        Rates::Multi { lowest_hz } => lowest_hz,
    };
    let octaves = (f64::from(rate_hz) / lowest_hz).log2().floor().max(0.0);
    (octaves as u32).min(rate_hz.trailing_zeros()).min(MAX_HALVINGS)
}

/// Converts each filter to the lowest rate that holds its band: `a' = a^M`, `d' = ceil(d / M)`,
/// `b' = M b a^(d' M - d)`.
pub(super) fn assign(placed: &[Placed], options: &Options, most_halvings: u32) -> Vec<Assigned> {
    let to_rate = |filter: &Placed| {
        let frequency = filter.angle.abs() / TAU;
        let held = options.padding * frequency + filter.reserve;
        let octaves = -(2.0 * held).max(1e-12).log2();
        let halvings = (octaves.floor().max(0.0) as u32).min(most_halvings);
        let factor = 1_usize << halvings;
        let delay = filter.delay.div_ceil(factor);
        let power = |samples: f64| {
            Complex64::from_polar((-filter.decay * samples).exp(), filter.angle * samples)
        };
        let late = power((delay * factor - filter.delay) as f64);
        let pole = exact(rounded(power(factor as f64)));
        Assigned { halvings, pole, weight: filter.weight * late * factor as f64, delay }
    };
    placed.iter().map(to_rate).collect()
}

/// Groups the filters into the branches of a plan's template.
pub(super) fn branches(filters: &[Assigned]) -> Template {
    let mut branches: Vec<Branch> = Vec::new();
    let deepest = filters.iter().map(|filter| filter.halvings).max().unwrap_or(0);
    for halvings in 0..=deepest {
        let here = filters.iter().filter(|filter| filter.halvings == halvings);
        let filters: Vec<Filter> = here.map(as_filter).collect();
        if !filters.is_empty() {
            branches.push(Branch { halvings, filters });
        }
    }
    Template { branches }
}

fn as_filter(filter: &Assigned) -> Filter {
    let (a, b) = (rounded(filter.pole), rounded(filter.weight));
    Filter { a, b, delay: filter.delay as u32 }
}

/// Rounds to the single precision that filters run with.
pub(super) fn rounded(value: Complex64) -> Complex<f32> {
    Complex::new(value.re as f32, value.im as f32)
}

/// Converts back to double precision.
pub(super) fn exact(value: Complex<f32>) -> Complex64 {
    Complex64::new(f64::from(value.re), f64::from(value.im))
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

    #[test]
    fn damped_oscillations_are_found_again() {
        let truth = [placed(TAU * 0.021, 0.011, 40), placed(TAU * 0.11, 0.05, 12)];
        let mut sum = vec![Complex64::default(); 900];
        for one in &truth {
            sum.iter_mut().zip(series(one, 900)).for_each(|(sum, value)| *sum += value);
        }
        let power = |series: &[Complex64]| series.iter().map(Complex64::norm_sqr).sum::<f64>();
        let found = pursue(sum.clone(), 0.005, 4);
        assert_eq!(found.len(), 4);
        assert!(found.iter().any(|one| one.delay.abs_diff(40) <= 1), "{found:?}");
        assert!(found.iter().any(|one| one.delay.abs_diff(12) <= 1), "{found:?}");
        let mut rest = sum.clone();
        let mut bases: Vec<Vec<Complex64>> = Vec::new();
        for one in &found {
            let mut base = series(one, 900);
            bases.iter().for_each(|other| take_away(&mut base, other));
            let norm = power(&base).sqrt();
            base.iter_mut().for_each(|value| *value /= norm);
            take_away(&mut rest, &base);
            bases.push(base);
        }
        assert!(power(&rest) < 3e-3 * power(&sum), "{}", power(&rest) / power(&sum));
    }
}
