//! Packs the filters of a unit's templates, in scaled form, into passes. The filters of one pass share a window of
//! input.

use num_complex::Complex64;

use super::super::plan::Filter;
use super::assign::{BANK_GROUPS, Warp, WindowOffset};
use super::kernels::Shape;

/// Values of a slot: those of the filter, and the position of its input.
const VALUES: [usize; 2] = [SHORT_VALUES + 1, LONG_VALUES + 1];
/// Fewest samples of tiles that a window serves.
const MIN_CHUNK: usize = 1024;
/// Samples of a window that the kernel prefetches.
const AHEAD: usize = 8;
/// The pitch of the window's copies is `PITCH` more than a multiple of `PITCHES`, which spans all shared-memory
/// banks. So the banks of filters relative to each other do not depend on the window's length. Of 0, 4, 8 and 12,
/// chirps at several rates need the fewest wavefronts with 12.
const PITCHES: usize = 32;
const PITCH: usize = 12;
/// Estimated instructions per sample that a pass costs in addition to its filters.
const PASS: f64 = 6.0;

/// Limits of the device and of a launch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Multiprocessors of the device.
    pub(super) multiprocessors: usize,
    /// Bytes of a block's shared memory.
    pub(super) shared_bytes: usize,
    /// Most full-rate samples in one launch.
    pub(super) piece: usize,
}

/// Filter, and how many samples back its input lies.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tap<'a> {
    pub(super) filter: &'a Filter,
    pub(super) back: usize,
    pub(super) long: bool,
}

/// Pass of a unit: the filters of each template.
#[derive(Debug)]
pub(super) struct Pass<'a> {
    pub(super) shape: Shape,
    taps: Vec<Vec<Tap<'a>>>,
    pub(super) reach: usize,
    pub(super) pitch: usize,
    pub(super) chunk: usize,
}

/// Limits of a window's length.
struct Windows {
    /// Samples of one copy.
    capacity: usize,
    /// Samples of tiles that a window should serve.
    wanted: usize,
    /// Largest difference of delays in one window.
    span: usize,
}

impl Windows {
    fn new(level: usize, limits: &Limits) -> Self {
        let capacity = limits.shared_bytes / 16 - AHEAD - (PITCHES - 4);
        let wanted = ((limits.piece >> level) + 2 * TILE).next_multiple_of(TILE);
        Self { capacity, wanted, span: capacity - MIN_CHUNK.min(wanted) - 8 }
    }

    /// Builds a pass over filters that lie in one window.
    fn pass<'a>(&self, shape: Shape, taps: Vec<Vec<Tap<'a>>>, delays: Delays) -> Pass<'a> {
        let Delays { least, most } = delays;
        let reach = most.next_multiple_of(4);
        let tiled = (self.capacity - (reach - least) - 4) / TILE * TILE;
        let chunk = self.wanted.min(tiled);
        let pitch = pitch(reach - least + chunk + AHEAD);
        Pass { shape, taps, reach, pitch, chunk }
    }
}

/// Returns the pitch of window copies of `samples` samples.
fn pitch(samples: usize) -> usize {
    (samples.max(PITCH) - PITCH).next_multiple_of(PITCHES) + PITCH
}

/// Packs the filters of some templates into passes. Each template's filters are sorted by memory, then by delay.
pub(super) fn passes<'a, 'b>(
    templates: &[&'b [Tap<'a>]],
    lanes: usize,
    level: usize,
    limits: &Limits,
) -> Vec<Pass<'a>> {
    let windows = Windows::new(level, limits);
    let mut passes = Vec::new();
    for long in [true, false] {
        let mut left: Vec<&'b [Tap<'a>]> =
            templates.iter().map(|taps| of_kind(taps, long)).collect();
        let Some(delays) = delays(&left) else { continue };
        if delays.span() <= windows.span {
            passes.extend(near(&left, delays, lanes, long, &windows));
            continue;
        }
        while let Some(delays) = self::delays(&left) {
            passes.push(next(&mut left, delays.least, lanes, long, &windows));
        }
    }
    passes
}

/// Returns a template's filters with long memories, or the others.
fn of_kind<'a, 'b>(taps: &'b [Tap<'a>], long: bool) -> &'b [Tap<'a>] {
    let (short, long_ones) = taps.split_at(taps.partition_point(|tap| !tap.long));
    if long { long_ones } else { short }
}

/// Counts a template's filters by bank group in each pass, as if the template were the largest of its unit and all
/// filters lay in one window.
pub(super) fn near_counts(taps: &[Tap<'_>], lanes: usize) -> Vec<i32> {
    let mut counts = Vec::new();
    for long in [true, false] {
        let mut left = of_kind(taps, long);
        for shape in Shape::passes(left.len(), lanes, long) {
            let (own, rest) = left.split_at(shape.slots().min(left.len()));
            // Any reach that is a multiple of the span of all banks gives the same bank groups.
            let farthest = own.last().map_or(0, |tap| tap.back);
            counts.extend(counted(own, farthest.next_multiple_of(4 * BANK_GROUPS), PITCH));
            left = rest;
        }
    }
    counts
}

/// Counts a template's filters in each bank group.
fn counted(taps: &[Tap<'_>], reach: usize, pitch: usize) -> [i32; BANK_GROUPS] {
    let mut counts = [0; BANK_GROUPS];
    taps.iter().for_each(|tap| counts[WindowOffset::new(reach - tap.back, pitch).bank()] += 1);
    counts
}

/// Tells whether the filters of all these templates lie in one window per kind (long and short memory) that is at
/// most a quarter longer than the windows of units of `of_unit` templates in the present order.
pub(super) fn share_windows(
    templates: &[&[Tap<'_>]],
    of_unit: usize,
    level: usize,
    limits: &Limits,
) -> bool {
    let windows = Windows::new(level, limits);
    let span = |templates: &[&[Tap<'_>]], long: bool| {
        let taps: Vec<&[Tap<'_>]> = templates.iter().map(|taps| of_kind(taps, long)).collect();
        delays(&taps).map_or(0, Delays::span)
    };
    [false, true].into_iter().all(|long| {
        let all = span(templates, long);
        let hardly = |unit: &[&[Tap<'_>]]| 4 * all <= 5 * span(unit, long);
        all <= windows.span && templates.chunks_exact(of_unit).all(hardly)
    })
}

/// Least and greatest delay of some filters.
#[derive(Clone, Copy)]
struct Delays {
    least: usize,
    most: usize,
}

impl Delays {
    fn span(self) -> usize {
        self.most - self.least
    }
}

fn delays(templates: &[&[Tap<'_>]]) -> Option<Delays> {
    let least = templates.iter().filter_map(|taps| taps.first()).map(|tap| tap.back).min()?;
    let most = templates.iter().filter_map(|taps| taps.last()).map(|tap| tap.back).max()?;
    Some(Delays { least, most })
}

/// Returns the passes over filters that all lie in one window.
fn near<'a>(
    templates: &[&[Tap<'a>]],
    delays: Delays,
    lanes: usize,
    long: bool,
    windows: &Windows,
) -> Vec<Pass<'a>> {
    let most = templates.iter().map(|taps| taps.len()).max().unwrap_or(0);
    let mut from = 0;
    let pass = |shape: Shape| {
        let to = from + shape.slots();
        let part = |taps: &&[Tap<'a>]| taps[from.min(taps.len())..to.min(taps.len())].to_vec();
        let taps = templates.iter().map(part).collect();
        from = to;
        windows.pass(shape, taps, delays)
    };
    Shape::passes(most, lanes, long).into_iter().map(pass).collect()
}

/// Returns the next pass over filters that lie far apart. It takes each template's nearest filters from `least` on,
/// in the size that holds most filters per instruction. Filters beyond its slots go to the next window.
fn next<'a>(
    left: &mut [&[Tap<'a>]],
    least: usize,
    lanes: usize,
    long: bool,
    windows: &Windows,
) -> Pass<'a> {
    let last = least + windows.span;
    let reached: Vec<usize> =
        left.iter().map(|taps| taps.partition_point(|tap| tap.back <= last)).collect();
    let gain = |shape: &Shape| {
        let taken: usize = reached.iter().map(|reached| shape.slots().min(*reached)).sum();
        taken as f64 / (shape.cost() + PASS)
    };
    let shapes = Shape::sizes(lanes, long);
    let best = shapes.iter().max_by(|a, b| gain(a).total_cmp(&gain(b)));
    let shape = *best.unwrap_or(&shapes[0]);
    let take = |(taps, reached): (&mut &[Tap<'a>], &usize)| {
        let (now, rest) = taps.split_at(shape.slots().min(*reached));
        *taps = rest;
        now.to_vec()
    };
    let taken: Vec<Vec<Tap<'a>>> = left.iter_mut().zip(&reached).map(take).collect();
    let most = taken.iter().filter_map(|taps| taps.last()).map(|tap| tap.back).max();
    windows.pass(shape, taken, Delays { least, most: most.unwrap_or(least) })
}

impl Pass<'_> {
    /// Returns the estimated instructions of a thread per sample.
    pub(super) fn cost(&self) -> f64 {
        self.shape.cost() + PASS
    }

    /// Returns the values per slot.
    pub(super) fn count(&self) -> usize {
        VALUES[usize::from(self.shape.long)]
    }

    /// Counts a template's filters in each bank group.
    pub(super) fn counts(&self, template: usize) -> [i32; BANK_GROUPS] {
        counted(&self.taps[template], self.reach, self.pitch)
    }

    /// Permutes the templates.
    pub(super) fn reorder(&mut self, order: &[usize]) {
        self.taps = order.iter().map(|at| std::mem::take(&mut self.taps[*at])).collect();
    }

    /// Returns the values of all slots: axes filter of a thread, value, thread.
    pub(super) fn values(&self, block: usize) -> Vec<f32> {
        let Self { shape, reach, pitch, .. } = *self;
        let count = self.count();
        let mut values = vec![0.0; shape.filters * count * block];
        let templates = 32 / shape.lanes;
        let place = |tap: &Tap<'_>| WindowOffset::new(reach - tap.back, pitch);
        for warp in 0..block / 32 {
            let own = |template: usize| self.taps.get(warp * templates + template);
            let places: Vec<Vec<WindowOffset>> = (0..templates)
                .map(|template| {
                    own(template).map_or(Vec::new(), |taps| taps.iter().map(place).collect())
                })
                .collect();
            for slot in Warp::new(shape.filters, shape.lanes, &places).assign() {
                let at = slot.filter * count * block + warp * 32 + slot.lane;
                let mut set = |value: usize, x: f32| values[at + value * block] = x;
                set(count - 1, f32::from_bits(slot.place.0));
                if let Some((template, index)) = slot.of {
                    let filter = self.taps[warp * templates + template][index].filter;
                    let own = Scaled::new(filter).values(filter);
                    own[..count - 1].iter().enumerate().for_each(|(value, x)| set(value, *x));
                }
            }
        }
        values
    }
}

/// Memory in samples above which rounding the state once per sample would show.
const LONG_MEMORY: f64 = 5000.0;
/// The same limit as the phase in radians through which the pole rotates within its memory.
const LONG_TURN: f64 = 400.0;
/// Least magnitude of either part of a weight, relative to the weight; the ratio of the parts scales the states.
const MIN_PART: f64 = 1e-9;
/// A pole that rotates by less than this per sample is taken as real. The response changes by at most this times the
/// memory, relative to the weight: 2e-11 for the longest memory that single precision has. So c1 and c2 are from
/// 1e-27 to 1e9.
const MIN_TURN: f64 = 1e-18;
/// Floats tried on either side of c1.
const TRIED: u32 = 32;

/// Samples of a tile, after which a long memory's state is rounded.
pub(super) const TILE: usize = 16;

/// Values of a filter: `re(a), c1, c2, re(b), im(b)`. With long memories three elements of the matrix that advances
/// the state by a tile follow, each as a float and its rounding residual.
const SHORT_VALUES: usize = 5;
/// Values of a filter with a long memory: see [`SHORT_VALUES`].
const LONG_VALUES: usize = 11;

/// Scaled coefficients of a filter.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Scaled {
    a: f32,
    c1: f32,
    c2: f32,
    re: f32,
    im: f32,
    /// Scale of the second state component relative to the first.
    ratio: f64,
}

/// Tells whether a filter's state is to be rounded once per tile.
pub(super) fn has_long_memory(filter: &Filter) -> bool {
    let memory = memory(filter);
    memory > LONG_MEMORY || memory * filter.pole().im.abs() > LONG_TURN
}

/// Returns the filter's decay time in samples.
fn memory(filter: &Filter) -> f64 {
    -1.0 / filter.pole().norm().ln()
}

impl Scaled {
    fn new(filter: &Filter) -> Self {
        let (a, b) = (filter.pole(), filter.weight());
        let a_re = filter.a.re;
        if b.norm() == 0.0 {
            return Self { a: a_re, c1: 0.0, c2: 0.0, re: 0.0, im: 0.0, ratio: 1.0 };
        }
        let part = |part: f64| part.abs().max(MIN_PART * b.norm()).copysign(part);
        let (re, im) = (part(b.re), part(b.im));
        let ratio = im / re;
        if a.im.abs() < MIN_TURN {
            return Self { a: a_re, c1: 0.0, c2: 0.0, re: re as f32, im: im as f32, ratio };
        }
        let memory = memory(filter);
        let mut best = (f64::INFINITY, Self { a: a_re, c1: 0.0, c2: 0.0, re: 0.0, im: 0.0, ratio });
        let middle = (-a.im * ratio) as f32;
        for offset in 0..=2 * TRIED {
            let c1 = f32::from_bits(middle.to_bits() + offset - TRIED);
            let c2 = (-a.im * a.im / f64::from(c1)) as f32;
            let turn = (f64::from(c1) * f64::from(c2) / (-a.im * a.im) - 1.0) * a.im / 2.0;
            let scale = (-f64::from(c1) / f64::from(c2)).sqrt().copysign(ratio);
            let phase = (scale - ratio) / (1.0 + ratio * ratio);
            let error = phase.powi(2) + (memory * turn).powi(2);
            if error < best.0 {
                // Keeps the larger part, which preserves the weight's magnitude.
                let (re, im) = if ratio.abs() > 1.0 { (im / scale, im) } else { (re, scale * re) };
                let (re, im) = (re as f32, im as f32);
                best = (error, Self { a: a_re, c1, c2, re, im, ratio: scale });
            }
        }
        best.1
    }

    /// Returns the values that the kernel reads.
    fn values(&self, filter: &Filter) -> [f32; LONG_VALUES] {
        let Self { a, c1, c2, re, im, ratio } = *self;
        let turned: Complex64 = filter.pole().powu(TILE as u32);
        let split = |x: f64| [x as f32, (x - f64::from(x as f32)) as f32];
        let [m, m_rest] = split(turned.re);
        let [down, down_rest] = split(-turned.im * ratio);
        let [up, up_rest] = split(turned.im / ratio);
        [a, c1, c2, re, im, m, down, up, m_rest, down_rest, up_rest]
    }
}

#[cfg(test)]
mod tests {
    use num_complex::Complex;

    use super::*;

    const LIMITS: Limits = Limits { multiprocessors: 132, shared_bytes: 227 << 10, piece: 4096 };
    const TEMPLATES: usize = 32;
    const LANES: usize = 8;
    const FILTER: Filter =
        Filter { a: Complex::new(0.5, 0.1), b: Complex::new(1.0, 1.0), delay: 0 };

    /// Returns templates of `filters` filters; `back` maps a filter's index and a random number to its delay and
    /// memory kind.
    fn templates(
        filters: usize,
        back: impl Fn(usize, f64) -> (usize, bool),
    ) -> Vec<Vec<Tap<'static>>> {
        let mut seed = 77u64;
        let mut random = || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 40) as f64 / (1u64 << 24) as f64
        };
        let mut tap = |index: usize| {
            let (back, long) = back(index, random());
            Tap { filter: &FILTER, back, long }
        };
        let mut template = |_| {
            let mut taps: Vec<Tap<'_>> = (0..filters).map(&mut tap).collect();
            taps.sort_by_key(|tap| (tap.long, tap.back));
            taps
        };
        (0..TEMPLATES).map(&mut template).collect()
    }

    /// Returns templates of chirps of a given length: delays proportional to the index to the power 3.2, memories of
    /// four filter spacings.
    fn chirps(filters: usize, length: f64) -> Vec<Vec<Tap<'static>>> {
        templates(filters, |index, random| {
            let part = (index as f64 + 1.0) / filters as f64;
            let delay = length * part.powf(3.2);
            let memory = 12.8 * delay / (part * filters as f64);
            ((delay * (0.98 + 0.02 * random)) as usize, memory > 5000.0)
        })
    }

    fn packed<'a>(templates: &[Vec<Tap<'a>>]) -> Vec<Pass<'a>> {
        let taps: Vec<&[Tap<'_>]> = templates.iter().map(|taps| &taps[..]).collect();
        passes(&taps, LANES, 0, &LIMITS)
    }

    /// Returns the fraction of slots that hold a filter.
    fn filled(passes: &[Pass<'_>]) -> f64 {
        let taken: usize = passes.iter().flat_map(|pass| &pass.taps).map(Vec::len).sum();
        let slots: usize = passes.iter().map(|pass| pass.shape.slots() * TEMPLATES).sum();
        taken as f64 / slots as f64
    }

    #[test]
    fn filters_near_each_other_fill_the_largest_passes() {
        let near = templates(256, |_, random| ((8192.0 * random) as usize, false));
        let passes = packed(&near);
        assert_eq!(passes.iter().map(|pass| pass.shape.filters).collect::<Vec<_>>(), [16, 16]);
        assert!(filled(&passes) == 1.0);
        let ends = |pass: &Pass<'_>| (pass.reach, pass.pitch, pass.chunk);
        assert_eq!(ends(&passes[0]), ends(&passes[1]));
        assert_eq!(passes[0].chunk, 4128);
    }

    #[test]
    fn filters_of_long_chirps_stand_in_one_pass_each_and_few_slots_stay_empty() {
        // If each pass were as large as the fullest template asks for, the fractions would be about 0.78 and 0.67.
        for (filters, length, least) in [(256, 68e3, 0.95), (512, 625e3, 0.78)] {
            let templates = chirps(filters, length);
            let passes = packed(&templates);
            let found = filled(&passes);
            assert!(found > least, "{found:.3} of the slots of {} passes", passes.len());
            for (at, own) in templates.iter().enumerate() {
                let mut places: Vec<usize> = Vec::new();
                for pass in &passes {
                    let taps = &pass.taps[at];
                    assert!(taps.len() <= pass.shape.slots());
                    assert!(taps.iter().all(|tap| tap.long == pass.shape.long));
                    let fits = |tap: &Tap<'_>| {
                        let begin = pass.reach - tap.back;
                        begin + pass.chunk + AHEAD <= pass.pitch
                    };
                    assert!(taps.iter().all(fits) && 16 * pass.pitch <= LIMITS.shared_bytes);
                    places.extend(taps.iter().map(|tap| tap.back));
                }
                places.sort_unstable();
                let mut expected: Vec<usize> = own.iter().map(|tap| tap.back).collect();
                expected.sort_unstable();
                assert_eq!(places, expected, "template {at}");
            }
        }
    }

    /// Returns the impulse response in double precision with the scaled coefficients.
    fn response(scaled: &Scaled, samples: usize) -> Vec<Complex64> {
        let [a, c1, c2, re, im] =
            [scaled.a, scaled.c1, scaled.c2, scaled.re, scaled.im].map(f64::from);
        let (mut u, mut v, mut x) = (0.0, 0.0, 1.0);
        let step = |_| {
            (u, v) = (a * u + (c1 * v + x), a * v + (c2 * u + x));
            x = 0.0;
            Complex64::new(re * u, im * v)
        };
        (0..samples).map(step).collect()
    }

    #[test]
    fn scaling_keeps_the_response() {
        let weights = [(0.1, 0.2), (-0.3, 1e-4), (2.0, 0.0), (0.0, -1.0), (1e-3, -5.0)];
        for memory in [3.0, 100.0, 4900.0] {
            for angle in [0.0, 0.05, -0.2, 1.5_f64] {
                for (re, im) in weights {
                    let a = Complex64::from_polar((-1.0_f64 / memory).exp(), angle);
                    let a = Complex::new(a.re as f32, a.im as f32);
                    let filter = Filter { a, b: Complex::new(re, im), delay: 0 };
                    let samples = 3 * memory as usize;
                    let found = response(&Scaled::new(&filter), samples);
                    let worst = found.iter().enumerate().map(|(n, y)| {
                        let expected = filter.weight() * filter.pole().powu(n as u32);
                        (y - expected).norm() / filter.weight().norm()
                    });
                    let worst = worst.fold(0.0, f64::max);
                    assert!(worst < 4e-6, "{filter:?}: {worst:.1e}");
                    if has_long_memory(&filter) {
                        continue;
                    }
                    assert!(worst < 2e-6, "{filter:?}: {worst:.1e}");
                }
            }
        }
    }

    #[test]
    fn poles_that_hardly_turn_are_real() {
        let turns = [0.0, 1e-45, 1e-38, -1e-38, 1e-37, 1e-20, 2e-18, -1e-15, 1e-12];
        for (re, im) in turns.iter().flat_map(|im| [(0.9, *im), (0.5, -*im), (0.0, *im)]) {
            for (b_re, b_im) in [(0.0, 1.0), (1.0, 0.0), (-0.7, 0.7)] {
                let (a, b) = (Complex::new(re, im), Complex::new(b_re, b_im));
                let filter = Filter { a, b, delay: 0 };
                for (n, found) in response(&Scaled::new(&filter), 60).iter().enumerate() {
                    let expected = filter.weight() * filter.pole().powu(n as u32);
                    assert!((found - expected).norm() < 2e-6, "{filter:?}: {found} at {n}");
                }
                let values = Scaled::new(&filter).values(&filter);
                assert!(values.iter().all(|value| value.is_finite()), "{filter:?}: {values:?}");
            }
        }
    }

    #[test]
    fn a_weight_of_nothing_gives_nothing() {
        let a = Complex::new(0.5, 0.5);
        let scaled = Scaled::new(&Filter { a, b: Complex::new(0.0, 0.0), delay: 0 });
        assert!(response(&scaled, 40).iter().all(|y| y.norm() == 0.0));
    }
}
