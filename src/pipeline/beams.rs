//! Detections of several beams, joined into events by time and dispersion measure.
//!
//! Invariant: every detection belongs to exactly one event, and the events do not depend on the order of the detections.

use std::cmp::Ordering;

use crate::error::{Error, Result};
use crate::geometry::Direction;

/// Largest ratio of the widths of two detections of one pulse, as in Heimdall's coincidencer (4 octaves).
const WIDTH_RATIO: f64 = 16.0;

/// Detection of a pulse in one beam.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Detection {
    /// Index of the beam.
    pub beam: usize,
    /// Centre of the pulse at the highest frequency, in seconds from an epoch that all beams share.
    pub time_s: f64,
    /// Dispersion measure, pc cm^-3.
    pub dm: f64,
    /// Signal-to-noise ratio.
    pub snr: f64,
    /// Width of the boxcar in seconds.
    pub width_s: f64,
}

impl Detection {
    /// Orders detections, best first: by S/N, then by every other field.
    fn order(&self, other: &Self) -> Ordering {
        let key = |one: &Self| [-one.snr, one.time_s, one.dm, one.width_s];
        let pairs = key(self).into_iter().zip(key(other));
        let fields = pairs.fold(Ordering::Equal, |order, (a, b)| order.then(a.total_cmp(&b)));
        fields.then(self.beam.cmp(&other.beam))
    }
}

/// Parts of the sky that the beams see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pointing {
    /// Each beam sees another part: a source is in one beam or few, interference in many.
    Apart,
    /// All see the same part, as antennas that point alike do: a source is in several.
    Same,
}

/// Directions of beams, which decide whether two of them are adjacent.
#[derive(Clone, Debug, PartialEq)]
pub struct Adjacency {
    /// Direction of each beam.
    pub directions: Vec<Direction>,
    /// Largest distance of adjacent beams in degrees.
    pub radius_deg: f64,
}

/// Options of [`join`].
#[derive(Clone, Debug, PartialEq)]
pub struct JoinOptions {
    /// Number of beams searched.
    pub beams: usize,
    /// Parts of the sky that they see.
    pub pointing: Pointing,
    /// Most beams that a source may be in, if they see different parts of the sky.
    pub most_beams: usize,
    /// Delay across the band of one unit of dispersion measure, in seconds.
    pub delay_per_dm_s: f64,
    /// Error of the beams' clocks or sampling in seconds.
    pub slack_s: f64,
    /// Directions of the beams; without them, any few beams count as adjacent.
    pub adjacency: Option<Adjacency>,
}

impl JoinOptions {
    /// Returns the default of [`JoinOptions::most_beams`]: 4 of 13 beams or that fraction of others, at least two but never all.
    ///
    /// # Source
    /// Parkes, 13 beams: Keane et al. 2018, MNRAS 473, 116 (SUPERB).
    pub fn usual_most_beams(beams: usize) -> usize {
        (4 * beams / 13).max(2).min(beams.saturating_sub(1)).max(1)
    }

    fn check(&self) -> Result<()> {
        if self.most_beams == 0 {
            return Err(Error::parameter("most_beams", 0, "it must be 1 or more"));
        }
        for (name, value) in
            [("delay across the band (s)", self.delay_per_dm_s), ("slack (s)", self.slack_s)]
        {
            if !(value.is_finite() && value >= 0.0) {
                return Err(Error::parameter(name, value, "it must be finite, and 0 or above"));
            }
        }
        let Some(Adjacency { directions, radius_deg }) = &self.adjacency else { return Ok(()) };
        if directions.len() != self.beams {
            let rule = format!("there are {} beams", self.beams);
            return Err(Error::parameter("directions", directions.len(), rule));
        }
        if !(*radius_deg > 0.0 && *radius_deg <= 180.0) {
            let rule = "it must be above 0 and at most 180";
            return Err(Error::parameter("adjacency.radius_deg", *radius_deg, rule));
        }
        Ok(())
    }

    /// Returns whether two detections may be of one pulse.
    ///
    /// - Their widths differ by a factor of 16 at most.
    /// - The delay that the difference of their dispersion measures makes across the band is at most the sum of the widths.
    /// - Their centres differ by at most half that sum, half the narrower width, that delay, by which a pulse at a wrong
    ///   dispersion measure is shifted, and the slack.
    pub fn is_one(&self, a: &Detection, b: &Detection) -> bool {
        let (narrow, wide) = (a.width_s.min(b.width_s), a.width_s.max(b.width_s));
        let shift_s = (a.dm - b.dm).abs() * self.delay_per_dm_s;
        wide <= WIDTH_RATIO * narrow
            && shift_s <= narrow + wide
            && (a.time_s - b.time_s).abs() <= narrow + 0.5 * wide + shift_s + self.slack_s
    }

    /// Returns the largest difference in time of a detection of this width and another one of the same pulse.
    fn reach_s(&self, width_s: f64, widest_s: f64) -> f64 {
        let wide = widest_s.min(WIDTH_RATIO * width_s);
        // Bounds every term of `is_one`; the margin covers rounding.
        (2.0 * width_s + 1.5 * wide + self.slack_s) * (1.0 + 1e-9) + 1e-9
    }

    /// Returns the likely origin of an event in these beams, the strongest first.
    fn origin(&self, beams: &[usize]) -> Origin {
        match self.pointing {
            Pointing::Same if beams.len() > 1 || self.beams == 1 => Origin::Source,
            Pointing::Same => Origin::Unclear,
            Pointing::Apart if beams.len() > self.most_beams => Origin::Interference,
            Pointing::Apart if self.are_adjacent(beams) => Origin::Source,
            Pointing::Apart => Origin::Unclear,
        }
    }

    /// Returns whether all beams are adjacent to the first.
    fn are_adjacent(&self, beams: &[usize]) -> bool {
        let Some(Adjacency { directions, radius_deg }) = &self.adjacency else { return true };
        let centre = directions[beams[0]];
        beams.iter().all(|beam| centre.distance_deg(&directions[*beam]) <= *radius_deg)
    }
}

/// Likely origin of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The beams that have it are those of a source on the sky.
    Source,
    /// More beams have it than a source is in.
    Interference,
    /// Beams that are not adjacent, or only one of several that see the same part of the sky.
    Unclear,
}

impl Origin {
    /// Returns the name in lists.
    pub fn name(self) -> &'static str {
        match self {
            Self::Source => "source",
            Self::Interference => "interference",
            Self::Unclear => "unclear",
        }
    }
}

/// Pulse that one beam or several have.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// Indices of its detections, best first.
    pub members: Vec<usize>,
    /// Index of the best detection of each beam that has it, best first.
    pub beams: Vec<usize>,
    /// Root of the sum of the squares of their S/N.
    pub combined_snr: f64,
    /// Likely origin, by the beams that have it.
    pub origin: Origin,
}

/// Joins detections of several beams into events, best first.
///
/// The best detection without an event begins one; all others without an event that may be of the same pulse
/// ([`JoinOptions::is_one`]) become its members. Comparing with the best one alone keeps weak detections from chaining two bursts.
///
/// # Errors
/// [`Error::Parameter`] for options out of range, and detections of other beams or with values that are not finite.
/// # Numerics
/// Deterministic: the same events for any order of the detections.
/// # Source
/// Heimdall's coincidencer compares pairs of candidates of 13 beams by time and width; CHIME/FRB groups detections of its
/// beams by time, DM and direction (CHIME/FRB Collaboration 2018, ApJ 863, 48).
/// # Examples
/// ```
/// use sidereal::pipeline::beams::{Detection, JoinOptions, Origin, Pointing, join};
///
/// # fn main() -> sidereal::Result<()> {
/// let options = JoinOptions {
///     beams: 13,
///     pointing: Pointing::Apart,
///     most_beams: JoinOptions::usual_most_beams(13),
///     delay_per_dm_s: 1e-3,
///     slack_s: 0.0,
///     adjacency: None,
/// };
/// let pulse = Detection { beam: 3, time_s: 1.0, dm: 350.0, snr: 12.0, width_s: 2e-3 };
/// let weaker = Detection { beam: 4, time_s: 1.001, dm: 349.5, snr: 9.0, ..pulse };
/// let events = join(&[weaker, pulse], &options)?;
/// assert_eq!(events.len(), 1);
/// assert_eq!((events[0].origin, events[0].combined_snr), (Origin::Source, 15.0));
/// assert_eq!(events[0].members, [1, 0]);
/// # Ok(())
/// # }
/// ```
pub fn join(detections: &[Detection], options: &JoinOptions) -> Result<Vec<Event>> {
    options.check()?;
    detections.iter().try_for_each(|detection| check(detection, options.beams))?;
    let mut ranked: Vec<usize> = (0..detections.len()).collect();
    ranked.sort_by(|a, b| detections[*a].order(&detections[*b]));
    let widest_s = detections.iter().map(|one| one.width_s).fold(0.0, f64::max);
    // Ranks by time; those with an event are marked.
    let time_s = |rank: &usize| detections[ranked[*rank]].time_s;
    let mut timed: Vec<usize> = (0..ranked.len()).collect();
    timed.sort_by(|a, b| time_s(a).total_cmp(&time_s(b)));
    let mut is_member = vec![false; ranked.len()];
    let mut events = Vec::new();
    for rank in 0..ranked.len() {
        if is_member[rank] {
            continue;
        }
        let best = &detections[ranked[rank]];
        let reach_s = options.reach_s(best.width_s, widest_s);
        let begin = timed.partition_point(|other| time_s(other) < best.time_s - reach_s);
        let near = timed[begin..].iter().take_while(|other| time_s(other) <= best.time_s + reach_s);
        let is_free = |other: &&usize| !is_member[**other];
        let is_one = |other: &&usize| options.is_one(best, &detections[ranked[**other]]);
        let mut members: Vec<usize> = near.filter(is_free).filter(is_one).copied().collect();
        members.sort_unstable();
        members.iter().for_each(|member| is_member[*member] = true);
        let members = members.into_iter().map(|member| ranked[member]).collect();
        events.push(Event::new(members, detections, options));
    }
    Ok(events)
}

impl Event {
    /// Makes an event of its members, best first.
    fn new(members: Vec<usize>, detections: &[Detection], options: &JoinOptions) -> Self {
        let mut is_seen = vec![false; options.beams];
        let mut is_first =
            |member: &usize| !std::mem::replace(&mut is_seen[detections[*member].beam], true);
        let beams: Vec<usize> = members.iter().copied().filter(|one| is_first(one)).collect();
        let squares: f64 = beams.iter().map(|one| detections[*one].snr.powi(2)).sum();
        let numbers: Vec<usize> = beams.iter().map(|one| detections[*one].beam).collect();
        let origin = options.origin(&numbers);
        Self { members, beams, combined_snr: squares.sqrt(), origin }
    }
}

fn check(detection: &Detection, beams: usize) -> Result<()> {
    let Detection { beam, time_s, dm, snr, width_s } = *detection;
    if beam >= beams {
        let rule = format!("there are {beams}, counted from 0");
        return Err(Error::parameter("beam of a detection", beam, rule));
    }
    let values = [("time (s)", time_s), ("dispersion measure", dm), ("S/N", snr)];
    if let Some((name, value)) = values.into_iter().find(|(_, value)| !value.is_finite()) {
        return Err(Error::parameter(name, value, "that of a detection must be finite"));
    }
    if !(width_s.is_finite() && width_s > 0.0) {
        let rule = "that of a detection must be finite and above 0";
        return Err(Error::parameter("width (s)", width_s, rule));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns numbers from 0 to 1.
    fn random(seed: u64) -> impl FnMut() -> f64 {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 11) as f64 / (1_u64 << 53) as f64
        }
    }

    fn options(beams: usize, pointing: Pointing) -> JoinOptions {
        JoinOptions {
            beams,
            pointing,
            most_beams: JoinOptions::usual_most_beams(beams),
            delay_per_dm_s: 1e-3,
            slack_s: 1e-4,
            adjacency: None,
        }
    }

    /// Returns detections of some pulses, of different strength in some beams, and of noise.
    fn mixture(seed: u64, pulses: usize, noise: usize, beams: usize) -> Vec<Detection> {
        let mut next = random(seed + 1);
        let mut all = Vec::new();
        for _ in 0..pulses {
            let (time_s, dm, width_s) = (next() * 2.0, 300.0 * next(), 1e-3 * 60_f64.powf(next()));
            let part = next();
            for beam in 0..beams {
                if next() >= part {
                    continue;
                }
                let dm = dm + 0.8 * (next() - 0.5) * width_s / 1e-3;
                let time_s = time_s + 0.6 * (next() - 0.5) * width_s;
                let width_s = width_s * 6_f64.powf(next() - 0.5);
                // Few values, so that many tie.
                let snr = (6.0 + 8.0 * next()).floor();
                all.push(Detection { beam, time_s, dm, snr, width_s });
            }
        }
        for _ in 0..noise {
            let beam = ((next() * beams as f64) as usize).min(beams - 1);
            let width_s = 1e-3 * 100_f64.powf(next());
            let (time_s, dm, snr) = (next() * 2.0, 300.0 * next(), 6.0 + next());
            all.push(Detection { beam, time_s, dm, snr, width_s });
        }
        all
    }

    /// Joins by definition: each free detection, best first, takes every other free one that is of its pulse.
    fn reference(detections: &[Detection], options: &JoinOptions) -> Vec<Vec<usize>> {
        let mut left: Vec<usize> = (0..detections.len()).collect();
        left.sort_by(|a, b| detections[*a].order(&detections[*b]));
        let mut events = Vec::new();
        while let Some(best) = left.first().copied() {
            let is_one = |other: &usize| options.is_one(&detections[best], &detections[*other]);
            let (members, others) = left.into_iter().partition(is_one);
            events.push(members);
            left = others;
        }
        events
    }

    #[test]
    fn detections_are_joined_as_by_definition() {
        let mut sizes = Vec::new();
        for seed in 0..60 {
            let (pulses, noise) = ((seed as usize * 7) % 50, (seed as usize * 37) % 600);
            let all = mixture(seed, pulses, noise, 1 + seed as usize % 20);
            for delay_per_dm_s in [1e-3, 0.0, 0.2] {
                let options = JoinOptions { delay_per_dm_s, ..options(20, Pointing::Apart) };
                let events = join(&all, &options).unwrap();
                let members: Vec<_> = events.iter().map(|event| event.members.clone()).collect();
                assert_eq!(members, reference(&all, &options), "seed {seed}");
                for event in &events {
                    let mut beams: Vec<usize> =
                        event.members.iter().map(|member| all[*member].beam).collect();
                    beams.sort_unstable();
                    beams.dedup();
                    assert_eq!(event.beams.len(), beams.len());
                    assert_eq!(event.beams[0], event.members[0]);
                }
                sizes.extend(events.iter().map(|event| event.beams.len()));
            }
        }
        for beams in [1, 2, 5, 12] {
            assert!(sizes.contains(&beams), "no event in {beams} beams was tried");
        }
    }

    #[test]
    fn the_order_of_detections_does_not_matter() {
        for seed in 0..20 {
            let all = mixture(seed, 40, 300, 9);
            let options = options(9, Pointing::Apart);
            let listed = |all: &[Detection]| -> Vec<(Vec<Detection>, Origin, f64)> {
                let event = |event: Event| {
                    let members = event.members.iter().map(|index| all[*index]).collect();
                    (members, event.origin, event.combined_snr)
                };
                join(all, &options).unwrap().into_iter().map(event).collect()
            };
            let expected = listed(&all);
            let mut next = random(seed + 100);
            let mut shuffled = all.clone();
            for last in (1..shuffled.len()).rev() {
                shuffled.swap(last, (next() * last as f64) as usize);
            }
            assert_ne!(shuffled, all);
            assert_eq!(listed(&shuffled), expected);
        }
    }

    /// Returns the event of a pulse that these beams have, the first the best.
    fn event_in(beams: &[usize], options: &JoinOptions) -> Event {
        let pulse = |(beam, place): (&usize, u32)| {
            let (dm, snr) = (350.0 + 0.3 * f64::from(place), 20.0 - f64::from(place));
            Detection { beam: *beam, time_s: 1.0, dm, snr, width_s: 3e-3 }
        };
        let all: Vec<Detection> = beams.iter().zip(0..).map(pulse).collect();
        let mut events = join(&all, options).unwrap();
        assert_eq!(events.len(), 1);
        let squares: f64 = all.iter().map(|one| one.snr * one.snr).sum();
        assert!((events[0].combined_snr - squares.sqrt()).abs() < 1e-9);
        events.remove(0)
    }

    #[test]
    fn a_source_is_in_few_beams_and_interference_in_many() {
        let apart = options(13, Pointing::Apart);
        for (beams, origin) in [
            (&[7][..], Origin::Source),
            (&[7, 8], Origin::Source),
            (&[7, 8, 1, 2], Origin::Source),
            (&[7, 8, 1, 2, 3], Origin::Interference),
        ] {
            assert_eq!(event_in(beams, &apart).origin, origin, "{beams:?}");
        }
        let same = options(3, Pointing::Same);
        assert_eq!(event_in(&[1], &same).origin, Origin::Unclear);
        assert_eq!(event_in(&[1, 0], &same).origin, Origin::Source);
        assert_eq!(event_in(&[1, 0, 2], &same).origin, Origin::Source);
        for (beams, most) in [(1, 1), (2, 1), (3, 2), (4, 2), (13, 4), (19, 5), (400, 123)] {
            assert_eq!(JoinOptions::usual_most_beams(beams), most, "{beams} beams");
        }
    }

    #[test]
    fn few_beams_are_of_a_source_only_if_they_are_adjacent() {
        // At this declination a degree of right ascension is half a degree.
        let at = |ra_deg: f64| Direction { ra_deg, dec_deg: -60.0 };
        let directions = vec![at(359.9), at(0.3), at(4.0), at(0.5), at(0.7), at(8.0)];
        let near = JoinOptions {
            most_beams: 3,
            adjacency: Some(Adjacency { directions, radius_deg: 0.25 }),
            ..options(6, Pointing::Apart)
        };
        assert_eq!(event_in(&[2], &near).origin, Origin::Source);
        assert_eq!(event_in(&[0, 1], &near).origin, Origin::Source);
        assert_eq!(event_in(&[0, 2], &near).origin, Origin::Unclear);
        // Both neighbours of the strongest are adjacent to it, though not to each other.
        assert_eq!(event_in(&[1, 0, 3], &near).origin, Origin::Source);
        assert_eq!(event_in(&[0, 1, 4], &near).origin, Origin::Unclear);
        assert_eq!(event_in(&[0, 1, 3, 4], &near).origin, Origin::Interference);
    }

    #[test]
    fn pulses_at_other_times_dms_and_widths_are_others() {
        let options = options(2, Pointing::Same);
        let pulse = Detection { beam: 0, time_s: 1.0, dm: 350.0, snr: 9.0, width_s: 4e-3 };
        let weak = Detection { beam: 1, snr: 7.0, ..pulse };
        let count = |other: Detection| join(&[pulse, other], &options).unwrap().len();
        assert_eq!(count(Detection { time_s: 1.0060, ..weak }), 1);
        assert_eq!(count(Detection { time_s: 1.0062, ..weak }), 2);
        assert_eq!(count(Detection { dm: 357.9, ..weak }), 1);
        assert_eq!(count(Detection { dm: 358.1, ..weak }), 2);
        // A pulse at another DM is found later by up to the delay.
        assert_eq!(count(Detection { dm: 355.0, time_s: 1.011, ..weak }), 1);
        assert_eq!(count(Detection { dm: 355.0, time_s: 1.0112, ..weak }), 2);
        assert_eq!(count(Detection { width_s: 0.064, ..weak }), 1);
        assert_eq!(count(Detection { width_s: 0.065, ..weak }), 2);
    }

    #[test]
    fn errors_name_the_value() {
        let options = options(2, Pointing::Apart);
        let good = Detection { beam: 0, time_s: 1.0, dm: 3.0, snr: 9.0, width_s: 4e-3 };
        for (bad, word) in [
            (Detection { beam: 2, ..good }, "beam of a detection"),
            (Detection { time_s: f64::NAN, ..good }, "time (s)"),
            (Detection { dm: f64::INFINITY, ..good }, "dispersion measure"),
            (Detection { snr: f64::NAN, ..good }, "S/N"),
            (Detection { width_s: 0.0, ..good }, "width (s)"),
        ] {
            let message = join(&[good, bad], &options).unwrap_err().to_string();
            assert!(message.contains(word), "{message}");
        }
        let adjacency = |directions: usize, radius_deg: f64| {
            let direction = Direction { ra_deg: 1.0, dec_deg: 2.0 };
            Some(Adjacency { directions: vec![direction; directions], radius_deg })
        };
        for (bad, word) in [
            (JoinOptions { most_beams: 0, ..options.clone() }, "most_beams"),
            (JoinOptions { delay_per_dm_s: f64::NAN, ..options.clone() }, "delay across the band"),
            (JoinOptions { slack_s: -1.0, ..options.clone() }, "slack"),
            (JoinOptions { adjacency: adjacency(1, 1.0), ..options.clone() }, "there are 2 beams"),
            (
                JoinOptions { adjacency: adjacency(2, 0.0), ..options.clone() },
                "adjacency.radius_deg",
            ),
        ] {
            let message = join(&[good], &bad).unwrap_err().to_string();
            assert!(message.contains(word), "{message}");
        }
        assert_eq!(join(&[], &options).unwrap(), []);
    }
}
