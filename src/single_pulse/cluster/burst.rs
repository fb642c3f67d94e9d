//! Groups of events and the rules that make them bursts: links between adjacent events, the wing of a pulse at a wrong
//! dispersion measure, and the cone in which a burst absorbs weaker groups.
//!
//! Invariant: a step uphill is strict in the order of points, so no chain closes on itself; no boxcar holds more than the
//! whole pulse; groups come in best first and leave best first.

use std::cmp::Ordering;
use std::ops::Range;

/// Edges of the band; they define the cone of wrong dispersion measures at which a burst is visible.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BandEdges {
    /// Lowest channel centre.
    pub lowest_hz: f64,
    /// Highest channel centre: the reference of all times.
    pub highest_hz: f64,
    /// Dispersion constant, s MHz^2 pc^-1 cm^3.
    pub dm_constant: f64,
}

/// Trial of an event, and the bits of its start.
pub(super) type Key = (u32, u64);

/// Event in seconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Point {
    pub(super) begin: f64,
    pub(super) end: f64,
    pub(super) snr: f32,
    pub(super) rank: u32,
    pub(super) dm: f64,
    pub(super) trial: u32,
    /// Whether its boxcar is close to the widest.
    pub(super) is_widest: bool,
    /// Fraction of the channels that it has; the significance is that of these channels.
    pub(super) band: f32,
}

impl Point {
    pub(super) fn key(&self) -> Key {
        (self.trial, self.begin.to_bits())
    }

    pub(super) fn centre(&self) -> f64 {
        0.5 * (self.begin + self.end)
    }

    pub(super) fn width(&self) -> f64 {
        self.end - self.begin
    }

    /// Orders events, best first: by significance, then time, then dispersion measure.
    pub(super) fn order(&self, other: &Self) -> Ordering {
        let later = || self.begin.total_cmp(&other.begin).then(self.rank.cmp(&other.rank));
        other.snr.total_cmp(&self.snr).then_with(later).then(self.end.total_cmp(&other.end))
    }
}

/// Peak with its members.
#[derive(Clone, Copy, Debug)]
pub(super) struct Group {
    pub(super) best: Point,
    pub(super) members: usize,
    pub(super) begin: f64,
    pub(super) end: f64,
    pub(super) dm_min: f64,
    pub(super) dm_max: f64,
}

impl Group {
    fn of(point: &Point) -> Self {
        let Point { begin, end, dm, .. } = *point;
        Self { best: *point, members: 1, begin, end, dm_min: dm, dm_max: dm }
    }

    fn absorb(&mut self, other: &Self) {
        self.members += other.members;
        self.begin = self.begin.min(other.begin);
        self.end = self.end.max(other.end);
        self.dm_min = self.dm_min.min(other.dm_min);
        self.dm_max = self.dm_max.max(other.dm_max);
    }
}

/// Trials on either side in which an event has neighbours.
const STEPS: usize = 3;

/// Slack in seconds added to reaches in time, so that rounding excludes no adjacent event; the exact test decides.
const SLACK_S: f64 = 1e-6;

/// Returns the largest drift of a burst between each trial and its neighbours, in seconds; trials in order.
pub(super) fn drifts(dms: &[f64], delay_per_dm: f64) -> Vec<f64> {
    let drift = |rank: usize| {
        let (low, high) = (rank.saturating_sub(STEPS), (rank + STEPS).min(dms.len() - 1));
        (dms[rank] - dms[low]).max(dms[high] - dms[rank]) * delay_per_dm
    };
    (0..dms.len()).map(drift).collect()
}

/// Returns the time from which no later event can be adjacent; `drift` is the largest to any adjacent trial.
pub(super) fn reach_end(point: &Point, drift: f64) -> f64 {
    point.end + drift + 0.5 * point.width() + SLACK_S
}

/// Groups the points that climb to the same peak, best first, and returns the group of each point. Reorders the
/// points.
pub(super) fn group(points: &mut [Point], ranks: usize, wings: Wings) -> (Vec<Group>, Vec<u32>) {
    let place = |p: &Point, q: &Point| p.rank.cmp(&q.rank).then(p.begin.total_cmp(&q.begin));
    points.sort_unstable_by(|p, q| place(p, q).then_with(|| p.order(q)));
    let starts = rank_starts(points.iter().map(|p| p.rank), ranks);
    let mut uphill: Vec<u32> = (0..points.len() as u32).collect();
    for low in 0..ranks {
        if starts[low] == starts[low + 1] {
            continue;
        }
        for high in low..ranks.min(low + STEPS + 1) {
            let (here, there) = (starts[low]..starts[low + 1], starts[high]..starts[high + 1]);
            link(points, here, there, wings, &mut uphill);
        }
    }
    collect(points, &uphill)
}

/// Returns the index of the first point of each rank in a list sorted by rank; one entry more than ranks.
fn rank_starts(points: impl Iterator<Item = u32>, ranks: usize) -> Vec<usize> {
    let mut starts = vec![0; ranks + 1];
    points.for_each(|rank| starts[rank as usize + 1] += 1);
    for rank in 0..ranks {
        starts[rank + 1] += starts[rank];
    }
    starts
}

/// Compares the touching events of two trials, both sorted by time.
fn link(
    points: &[Point],
    here: Range<usize>,
    there: Range<usize>,
    wings: Wings,
    uphill: &mut [u32],
) {
    let (Some(first), Some(other)) = (points[here.clone()].first(), points[there.clone()].first())
    else {
        return;
    };
    let drift = (other.dm - first.dm).abs() * wings.delay_per_dm;
    let widest = points[there.clone()].iter().map(Point::width).fold(0.0, f64::max);
    let mut from = there.start;
    for p in here {
        let here = points[p];
        // Two boxcars touch if their gap is at most half the narrower one.
        let reach = drift + 0.5 * here.width();
        while from < there.end && points[from].begin + 1.5 * widest + drift + SLACK_S < here.begin {
            from += 1;
        }
        for q in from..there.end {
            let there = &points[q];
            if there.begin > here.end + reach {
                break;
            }
            let near = drift + 0.5 * here.width().min(there.width());
            let touch = there.begin <= here.end + near && there.end >= here.begin - near;
            if p != q && touch {
                let (low, high) =
                    if points[p].order(&points[q]) == Ordering::Less { (q, p) } else { (p, q) };
                raise(points, uphill, low, high, wings);
            }
        }
    }
}

/// Links `from` uphill to the better point `to` if that explains it and is the best so far.
fn raise(points: &[Point], uphill: &mut [u32], from: usize, to: usize, wings: Wings) {
    let best = uphill[from] as usize;
    if points[to].order(&points[best]) == Ordering::Less
        && wings.explains(&points[to], &points[from])
    {
        uphill[from] = to as u32;
    }
}

fn collect(points: &[Point], uphill: &[u32]) -> (Vec<Group>, Vec<u32>) {
    let mut order: Vec<u32> = (0..points.len() as u32).collect();
    order.sort_unstable_by(|p, q| points[*p as usize].order(&points[*q as usize]));
    let mut groups: Vec<Group> = Vec::new();
    let mut group_of = vec![u32::MAX; points.len()];
    // Best first, so the point uphill already has its group.
    for index in order.iter().map(|p| *p as usize) {
        let target = uphill[index] as usize;
        let own = Group::of(&points[index]);
        if target == index {
            group_of[index] = groups.len() as u32;
            groups.push(own);
        } else {
            group_of[index] = group_of[target];
            groups[group_of[target] as usize].absorb(&own);
        }
    }
    (groups, group_of)
}

/// Largest factor by which a boxcar's part of a pulse exceeds that of a flat spectrum: a burst that fills half the
/// band is twice as dense there, and so is a scattered pulse within its own best boxcar.
const DENSITY: f64 = 2.0;

/// Largest ratio of a pulse to the part that its best boxcar holds: 1.2 for a Gaussian, 1.4 for an exponential.
const WHOLE: f64 = 1.5;

/// S/N that noise, searched over many boxcars and trials, can add to the expected S/N.
const NOISE: f64 = 4.0;

/// Least significance and least band fraction of any event.
#[derive(Clone, Copy, Debug)]
pub(super) struct Least {
    pub(super) snr: f64,
    pub(super) band: f64,
}

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

    /// Returns the largest difference in dispersion measure at which a pulse may explain an event.
    fn dm_reach(&self, best: &Point, least: Least) -> f64 {
        let wing = least.snr - NOISE;
        if wing <= 0.0 || self.delay_per_dm <= 0.0 {
            return f64::INFINITY;
        }
        // A boxcar over a smear `T` has at most `S sqrt(density whole W / T)`; the density is highest at the highest
        // frequency.
        let density = DENSITY * (0.5 * (1.0 + self.ratio) / self.ratio.powi(2)).max(1.0);
        let ratio = f64::from(best.snr) / wing;
        WHOLE * density * best.width() * ratio.powi(2) / (self.delay_per_dm * least.band)
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
        let part = self.part(begin, begin + width, own, smear);
        // The pulse's power in absent channels is not part of its measured significance.
        let (band, other_band) = (f64::from(best.band), f64::from(other.band));
        let held = (DENSITY * part / band).min(WHOLE) * (band / other_band).sqrt();
        f64::from(best.snr) * (own / width).sqrt() * held
    }

    /// Returns the fraction of a pulse of `width` from `begin` to `end`, counted from its own start, after smearing
    /// over `smear` towards later times. Takes the larger fraction of a spectrum flat in frequency and one flat in
    /// delay; the two differ in wide bands.
    fn part(&self, begin: f64, end: f64, width: f64, smear: f64) -> f64 {
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

/// Factor by which a pulse wider than the widest boxcar may exceed the estimate of a filter that widens with it (for
/// a burst that fills half the band), and the contribution of noise.
const WIDE_MARGIN: f64 = 1.5;
const WIDE_NOISE: f64 = 2.0;

/// Groups merged into bursts.
pub(super) struct Merged {
    /// Complete bursts, best first.
    pub(super) decided: Vec<Group>,
    /// Groups that later groups may still affect, and bursts that may still absorb some of these.
    pub(super) undecided: Vec<Group>,
}

/// Merges each group into a stronger one that explains it. `is_open` returns whether a later group might explain a
/// group or be explained by it. `absorbed` is called for each group that a complete burst absorbs, after the burst's own
/// best.
///
/// The best group that explains another absorbs it, on behalf of the burst that absorbed it itself, if any. So a
/// group is decided once every stronger one that explains it is. A burst is complete once every weaker group is
/// decided that it, or a group that it absorbed, explains.
pub(super) fn merge(
    mut groups: Vec<Group>,
    ranks: usize,
    wings: Wings,
    is_open: impl Fn(&Group) -> bool,
    mut absorbed: impl FnMut(&Point, &Point),
) -> Merged {
    let Some(weakest) = groups.last() else {
        return Merged { decided: groups, undecided: Vec::new() };
    };
    let bands = groups.iter().map(|group| f64::from(group.best.band));
    let least = Least { snr: f64::from(weakest.best.snr), band: bands.fold(1.0, f64::min) };
    let mut place: Vec<usize> = (0..groups.len()).collect();
    let key = |i: &usize| (groups[*i].best.rank, groups[*i].best.begin);
    place.sort_by(|a, b| {
        let ((rank_a, begin_a), (rank_b, begin_b)) = (key(a), key(b));
        rank_a.cmp(&rank_b).then(begin_a.total_cmp(&begin_b))
    });
    let index = Index::new(&groups, place, ranks);
    let mut fates: Vec<Fate> =
        groups.iter().map(|group| if is_open(group) { Fate::Open } else { Fate::Free }).collect();
    // Burst of each group as far as known, and whether that burst waits for a group.
    let mut owners: Vec<usize> = (0..groups.len()).collect();
    let mut waits = vec![false; groups.len()];
    for seed in 0..groups.len() {
        let owner = owners[seed];
        let cone = Cone::new(&groups[seed].best, least, wings, owner == seed);
        index.each_near(&cone, |other| {
            if other <= seed || fates[other] == Fate::Taken || !cone.explains(&groups[other].best) {
                return;
            }
            if fates[seed] != Fate::Open && fates[other] == Fate::Free {
                fates[other] = Fate::Taken;
                owners[other] = owner;
            } else {
                fates[other] = Fate::Open;
                waits[owner] = true;
            }
        });
    }
    // An absorbed group stays until its burst is complete, because it may still absorb others.
    let (mut decided, mut undecided) = (Vec::new(), Vec::new());
    for index in (0..groups.len()).filter(|index| !waits[owners[*index]]) {
        let (owner, own) = (owners[index], groups[index]);
        if fates[index] == Fate::Taken {
            absorbed(&groups[owner].best, &own.best);
            groups[owner].absorb(&own);
        }
    }
    for (index, group) in groups.into_iter().enumerate() {
        match (fates[index], waits[owners[index]]) {
            (Fate::Taken, false) => {}
            (Fate::Free, false) => decided.push(group),
            _ => undecided.push(group),
        }
    }
    Merged { decided, undecided }
}

/// Decision about a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// No undecided stronger group explains it.
    Free,
    /// An undecided group may explain it.
    Open,
    /// It belongs to a stronger one.
    Taken,
}

/// Largest distance in time between groups of which one explains the other.
pub(super) struct Reach {
    lowest_dm: f64,
    delay_per_dm: f64,
    widest_s: f64,
}

impl Reach {
    /// Covers trials from `lowest_dm` on and boxcars up to `widest_s` seconds.
    pub(super) fn new(lowest_dm: f64, delay_per_dm: f64, widest_s: f64) -> Self {
        Self { lowest_dm, delay_per_dm, widest_s }
    }

    /// Returns the time from which no later group can explain this one or be explained by it: a cone reaches later
    /// times at lower dispersion measures only.
    pub(super) fn end(&self, best: &Point) -> f64 {
        let shift = (best.dm - self.lowest_dm) * self.delay_per_dm;
        best.end + shift + 0.5 * best.width().max(self.widest_s) + SLACK_S
    }

    /// Returns the largest time from a group's end to [`Reach::end`], for dispersion measures up to `highest_dm`.
    pub(super) fn longest_s(&self, highest_dm: f64) -> f64 {
        (highest_dm - self.lowest_dm) * self.delay_per_dm + 0.5 * self.widest_s
    }
}

/// Groups by trial and time.
struct Index {
    /// Start and index of each group.
    place: Vec<(f64, u32)>,
    starts: Vec<usize>,
    /// Ranks with groups, and the dispersion measure and widest group of each.
    ranks: Vec<(usize, f64, f64)>,
}

impl Index {
    fn new(groups: &[Group], place: Vec<usize>, ranks: usize) -> Self {
        let starts = rank_starts(place.iter().map(|i| groups[*i].best.rank), ranks);
        let filled = (0..ranks).filter(|rank| starts[*rank] < starts[rank + 1]);
        let ranks = filled.map(|rank| {
            let own = &place[starts[rank]..starts[rank + 1]];
            let widest = own.iter().map(|i| groups[*i].best.width()).fold(0.0, f64::max);
            (rank, groups[own[0]].best.dm, widest)
        });
        let ranks = ranks.collect();
        let place = place.iter().map(|i| (groups[*i].best.begin, *i as u32)).collect();
        Self { place, starts, ranks }
    }

    /// Calls `visit` for each group that the cone might explain.
    fn each_near(&self, cone: &Cone<'_>, mut visit: impl FnMut(usize)) {
        let low = self.ranks.partition_point(|(_, dm, _)| *dm < cone.best.dm - cone.dm_reach);
        for &(rank, dm, widest) in &self.ranks[low..] {
            if dm > cone.best.dm + cone.dm_reach {
                break;
            }
            let own = &self.place[self.starts[rank]..self.starts[rank + 1]];
            let (early, late) = cone.times(dm, widest);
            let first = own.partition_point(|(begin, _)| *begin < early - widest - SLACK_S);
            let near = own[first..].iter().take_while(|(begin, _)| *begin <= late);
            near.for_each(|(_, group)| visit(*group as usize));
        }
    }
}

/// Region of wrong dispersion measures and times in which a burst is visible, and its strength there.
pub(super) struct Cone<'a> {
    best: &'a Point,
    wings: Wings,
    /// Whether the pulse may be wider than any boxcar, so that its wing is unknown.
    is_wide: bool,
    /// Difference in dispersion measure beyond which the burst is weaker than the weakest group.
    dm_reach: f64,
}

impl<'a> Cone<'a> {
    /// Returns the cone of a group. `is_burst` is true for a burst's best group.
    pub(super) fn new(best: &'a Point, least: Least, wings: Wings, is_burst: bool) -> Self {
        let is_wide = is_burst && best.is_widest;
        let dm_reach = if is_wide { f64::INFINITY } else { wings.dm_reach(best, least) };
        // The margin leaves the decision to the exact test.
        Self { best, wings, is_wide, dm_reach: 1.001 * dm_reach + 1e-9 }
    }

    /// Returns the earliest and latest time of the burst at a trial, for boxcars up to `width`.
    ///
    /// A trial above the burst's dispersion measure shifts low frequencies too early; one below it leaves them too
    /// late.
    fn times(&self, dm: f64, width: f64) -> (f64, f64) {
        let shift = (self.best.dm - dm) * self.wings.delay_per_dm;
        let slack = 0.5 * self.best.width().max(width);
        (self.best.begin + shift.min(0.0) - slack, self.best.end + shift.max(0.0) + slack)
    }

    /// Returns whether the other group lies within the cone and is no stronger than the burst's wing there.
    pub(super) fn explains(&self, other: &Point) -> bool {
        let (early, late) = self.times(other.dm, other.width());
        if other.end < early || other.begin > late {
            return false;
        }
        self.wings.explains(self.best, other) || self.is_wide && self.explains_widely(other)
    }

    /// `snr <= margin S sqrt(W / sqrt(W^2 + smear^2)) + noise`.
    fn explains_widely(&self, other: &Point) -> bool {
        let width = self.best.width();
        let smear = (self.best.dm - other.dm).abs() * self.wings.delay_per_dm;
        let left = (width / width.hypot(smear)).sqrt();
        // The noise is that of the other's channels, some of which may be absent.
        let noise = (f64::from(self.best.band) / f64::from(other.band)).sqrt();
        f64::from(other.snr) <= WIDE_MARGIN * f64::from(self.best.snr) * noise * left + WIDE_NOISE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wings(ratio: f64) -> Wings {
        Wings { delay_per_dm: 1e-3, ratio }
    }

    /// Computes the fraction of a pulse of width 1 in a boxcar by counting channels.
    fn counted(ratio: f64, begin: f64, end: f64, smear: f64) -> f64 {
        let channels = 4000;
        let part = |channel: usize| {
            let frequency = ratio + (1.0 - ratio) * (channel as f64 + 0.5) / channels as f64;
            let late = smear * (frequency.powi(-2) - 1.0) / (ratio.powi(-2) - 1.0);
            ((late + 1.0).min(end) - late.max(begin)).max(0.0)
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
                    let expected = counted(ratio, begin, end, smear);
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
        let far = wings.dm_reach(&best, Least { snr: 6.0, band: 1.0 });
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

    #[test]
    fn the_cone_opens_early_above_and_late_below() {
        let best = point(100.0, 10.0, 0.02, 50.0);
        let band = BandEdges { lowest_hz: 1.2e9, highest_hz: 1.5e9, dm_constant: 4148.808 };
        let cone = Cone::new(&best, Least { snr: 6.0, band: 1.0 }, Wings::new(band, 1e-3), true);
        assert!(cone.explains(&point(150.0, 9.96, 0.02, 20.0)));
        assert!(!cone.explains(&point(150.0, 10.04, 0.02, 9.0)));
        assert!(cone.explains(&point(50.0, 10.04, 0.02, 20.0)));
        assert!(!cone.explains(&point(50.0, 9.96, 0.02, 9.0)));
        assert!(!cone.explains(&point(150.0, 9.96, 0.02, 60.0)));
    }
}
