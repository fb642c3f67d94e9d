//! Settling in steps, or continuing from a state, must equal deciding all at once.

use super::cone::Cone;
use super::*;

const BAND: BandEdges = BandEdges { lowest_hz: 1.2e9, highest_hz: 1.5e9, dm_constant: 4148.808 };
const WIDEST_BOXCAR: u32 = 32;

/// Generator of numbers below a bound.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

fn ranges() -> Vec<TrialRange> {
    let dms = |first: usize, step: f64| (0..12).map(|i| (first + i) as f64 * step).collect();
    vec![
        TrialRange { dms: dms(0, 2.0), tsamp_s: 1e-3, widest: WIDEST_BOXCAR as usize },
        TrialRange { dms: dms(6, 4.0), tsamp_s: 2e-3, widest: WIDEST_BOXCAR as usize },
    ]
}

/// Returns events of both ranges over `length_s`, ordered by time: noise that links, and some strong ones.
fn events(random: &mut Random, count: usize, length_s: f64) -> Vec<(f64, usize, Event)> {
    let mut events: Vec<_> = (0..count)
        .map(|_| {
            let (range, dm) = (random.below(2) as usize, random.below(12) as u32);
            let tsamp_s = ranges()[range].tsamp_s;
            let time = random.below((length_s / tsamp_s) as u64);
            let width = 1 + random.below(u64::from(WIDEST_BOXCAR)) as u32;
            let strong = if random.below(20) == 0 { random.below(600) } else { 0 };
            // Few distinct values, so that some are equal.
            let snr = 5.0 + 0.1 * (random.below(20) + strong) as f32;
            (time as f64 * tsamp_s, range, Event { dm, time, width, snr })
        })
        .collect();
    events.sort_by(|a, b| a.0.total_cmp(&b.0).then((a.1, a.2.dm).cmp(&(b.1, b.2.dm))));
    events.dedup_by_key(|(_, range, event)| (*range, event.dm, event.time));
    events
}

fn sorted(mut absorbed: Vec<Absorbed>) -> Vec<Absorbed> {
    absorbed.sort_by(|p, q| p.trial.cmp(&q.trial).then(p.begin_s.total_cmp(&q.begin_s)));
    absorbed
}

fn clusterer() -> Clusterer {
    Clusterer::new(ranges(), BAND).unwrap()
}

/// Applies the two documented rules pair by pair.
fn plainly(events: &[(f64, usize, Event)]) -> Vec<(f64, f32, usize)> {
    let mut clusterer = clusterer();
    events.iter().for_each(|(_, range, event)| clusterer.push(*range, &[*event]).unwrap());
    let (mut points, wings) = (clusterer.points.clone(), clusterer.wings);
    let k = wings.delay_per_dm;
    points.sort_by(Point::order);
    let touch = |p: &Point, q: &Point| {
        let near = (p.dm - q.dm).abs() * k + 0.5 * p.width().min(q.width());
        p.rank.abs_diff(q.rank) <= 3 && p.begin <= q.end + near && p.end >= q.begin - near
    };
    let mut group_of: Vec<usize> = Vec::new();
    let mut groups: Vec<(Point, usize)> = Vec::new();
    for (index, point) in points.iter().enumerate() {
        let stronger = (0..index)
            .find(|other| touch(&points[*other], point) && wings.explains(&points[*other], point));
        let group = stronger.map_or(groups.len(), |other| group_of[other]);
        if stronger.is_none() {
            groups.push((*point, 0));
        }
        groups[group].1 += 1;
        group_of.push(group);
    }
    let mut bursts: Vec<(Point, usize)> = Vec::new();
    let mut burst_of: Vec<usize> = Vec::new();
    for (index, (best, members)) in groups.iter().enumerate() {
        let explains = |seed: &usize| {
            let is_burst = bursts[burst_of[*seed]].0.key() == groups[*seed].0.key();
            Cone::new(&groups[*seed].0, (0.0, 1.0), wings, is_burst).explains(best)
        };
        let owner = (0..index).find(explains).map(|seed| burst_of[seed]);
        burst_of.push(owner.unwrap_or(bursts.len()));
        match owner {
            Some(burst) => bursts[burst].1 += members,
            None => bursts.push((*best, *members)),
        }
    }
    bursts.iter().map(|(best, members)| (best.begin, best.snr, *members)).collect()
}

#[test]
fn candidates_are_those_of_the_plain_rules() {
    let mut random = Random(7);
    for case in 0..40 {
        let length_s = [1.0, 4.0, 20.0][case % 3];
        let events = events(&mut random, 600, length_s);
        let mut clusterer = clusterer();
        events.iter().for_each(|(_, range, event)| clusterer.push(*range, &[*event]).unwrap());
        let found = clusterer.finish();
        let found: Vec<_> =
            found.iter().map(|c| (c.peak_begin_s, c.snr as f32, c.members)).collect();
        assert_eq!(found, plainly(&events), "case {case}");
    }
}

#[test]
fn settling_in_steps_changes_nothing_and_forgets_what_is_decided() {
    let mut random = Random(1);
    for case in 0..60 {
        let (count, length_s) = [(3000, 30.0), (400, 30.0), (3000, 300.0)][case % 3];
        let events = events(&mut random, count, length_s);
        let mut whole = clusterer().listing();
        events.iter().for_each(|(_, range, event)| whole.push(*range, &[*event]).unwrap());
        let mut stepwise = clusterer().listing();
        let mut absorbed = Vec::new();
        let (mut found, mut most, mut next, mut frontier_s) = (Vec::new(), 0, 0, 0.0);
        while next < events.len() {
            frontier_s += 0.01 * random.below(if case % 2 == 0 { 100 } else { 400 }) as f64;
            // Some later events are present already, and those before the frontier come in any order.
            let end = events.partition_point(|(time, ..)| *time < frontier_s);
            let end = end.max(next) + random.below(4) as usize;
            let fresh = &events[next..end.min(events.len())];
            fresh
                .iter()
                .rev()
                .for_each(|(_, range, event)| stepwise.push(*range, &[*event]).unwrap());
            next = end.min(events.len());
            found.extend(stepwise.settle(frontier_s));
            absorbed.extend(stepwise.take_absorbed());
            most = most.max(stepwise.points.len() + stepwise.groups.len());
            if random.below(3) == 0 {
                let state = State::from_words(stepwise.state().words().to_vec());
                stepwise = clusterer().listing();
                stepwise.restore(&state).unwrap();
            }
        }
        let early = found.len();
        assert_eq!(stepwise.events(), events.len());
        found.extend(stepwise.finish());
        found.sort_by(Candidate::order);
        assert_eq!(found, whole.finish(), "case {case}");
        absorbed.extend(stepwise.take_absorbed());
        assert_eq!(absorbed.len(), events.len() - found.len());
        assert_eq!(sorted(absorbed), sorted(whole.take_absorbed()), "case {case}");
        if case % 3 == 2 {
            assert!(
                early > 0 && most < events.len() / 4,
                "case {case}: {early} early, {most} kept"
            );
        }
    }
}

#[test]
fn a_candidate_survives_as_words() {
    let mut one = clusterer();
    one.push(1, &[Event { dm: 3, time: 9, width: 2, snr: 7.1 }]).unwrap();
    let candidate = one.finish()[0];
    assert_eq!(Candidate::from_words(&candidate.words()), Some(candidate));
    assert_eq!(Candidate::from_words(&candidate.words()[1..]), None);
}

#[test]
fn a_damaged_state_is_refused() {
    let mut one = clusterer();
    one.push(0, &[Event { dm: 3, time: 9, width: 2, snr: 7.0 }]).unwrap();
    let words = one.state().words().to_vec();
    let refused = |words: Vec<u64>| clusterer().restore(&State::from_words(words)).is_err();
    assert!(refused(Vec::new()) && refused(words[..words.len() - 1].to_vec()));
    let last = words.len() - 1;
    assert!(refused([&words[..last], &[1 << 40]].concat()));
    assert!(refused([&words[..3], &[u64::MAX], &words[4..]].concat()));
}
