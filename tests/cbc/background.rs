//! Background of a live search: rates of simulated noise are honest, and are those of brute force and of time slides.

use std::ops::Range;

use crate::random::Random;
use sidereal::backend::threads::Threads;
use sidereal::spiir::coincidence::{
    BackgroundOptions, Change, Coincider, Detector, Event, OnlineBackground, Options, Segments,
    Significance, State, TimedTrigger, search,
};
use sidereal::units::Gps;

const START_S: f64 = 1_400_000_000.0;
const THRESHOLD: f32 = 4.0;

fn gps(seconds: f64) -> Gps {
    Gps::from_s(START_S).plus_s(seconds)
}

/// Simulated triggers of one search.
#[derive(Clone, Copy)]
struct Noise {
    detectors: usize,
    templates: usize,
    /// Triggers of a detector per second.
    rate_hz: f64,
    seconds: f64,
    /// Fraction of triggers that are glitches: loud, with a bad shape.
    glitches: f64,
}

impl Noise {
    fn options(self) -> BackgroundOptions {
        let windows_s = vec![vec![0.012; self.detectors]; self.detectors];
        // Half of the templates are of another mass bin.
        let mass = |index| Some(if 2 * index < self.templates { 1.2 } else { 20.0 });
        BackgroundOptions {
            detectors: ["H1", "L1", "V1"][..self.detectors]
                .iter()
                .map(|&name| name.into())
                .collect(),
            coincidence: Options { slides: 0, ..Options::new(windows_s) },
            threshold: THRESHOLD,
            chirp_masses_msun: (0..self.templates).map(mass).collect(),
        }
    }

    /// Triggers of one detector, in order of time.
    fn triggers(self, random: &mut Random) -> Vec<TimedTrigger> {
        let mut triggers = Vec::new();
        let mut time = 0.0;
        loop {
            time -= (1.0 - random.uniform()).ln() / self.rate_hz;
            if time > self.seconds {
                return triggers;
            }
            let (mut snr, mut xi2) = ((16.0 - 2.0 * (1.0 - random.uniform()).ln()).sqrt(), 0.0);
            for _ in 0..12 {
                xi2 += random.gaussian().powi(2) / 12.0;
            }
            if random.uniform() < self.glitches {
                snr = 4.0 * (1.0 - random.uniform()).powf(-0.4);
                xi2 *= 1.0 + 0.05 * snr * snr * random.uniform();
            }
            triggers.push(TimedTrigger {
                template: random.below(self.templates) as u32,
                gps: gps(time),
                snr: snr as f32,
                phase: 0.0,
                xi2: xi2 as f32,
            });
        }
    }
}

/// Final events of a live search with their significance, and its background at the end.
struct Searched {
    events: Vec<(Event, Option<Significance>)>,
    background: OnlineBackground,
    triggers: Vec<Vec<TimedTrigger>>,
}

/// Plays triggers in steps of 4 s, as a live search takes them.
fn searched(noise: Noise, seed: u64, threads: &Threads) -> Searched {
    let mut random = Random::new(seed);
    let triggers: Vec<Vec<TimedTrigger>> =
        (0..noise.detectors).map(|_| noise.triggers(&mut random)).collect();
    let options = noise.options();
    let coincidence = options.coincidence.clone();
    let mut coincider = Coincider::new(noise.detectors, coincidence, threads).unwrap();
    let mut background = OnlineBackground::new(options, threads).unwrap();
    background.begin(gps(0.0));
    let (mut events, mut taken) = (Vec::new(), vec![0; noise.detectors]);
    let mut time = 0.0;
    while time < noise.seconds {
        time += 4.0;
        for (detector, taken) in taken.iter_mut().enumerate() {
            let new = triggers[detector][*taken..].iter().take_while(|one| one.gps < gps(time));
            let new: Vec<TimedTrigger> = new.copied().collect();
            *taken += new.len();
            background.push(detector, new.iter().copied());
            coincider.push(detector, new.into_iter(), gps(time));
        }
        let mut changes: Vec<Change> = Vec::new();
        coincider.changes(&vec![gps(time); noise.detectors], &mut changes).unwrap();
        let valid = &mut |_, time: Range<Gps>| {
            Segments::one(time.start, time.end.seconds_since(time.start))
        };
        for change in changes.into_iter().filter(|change| change.state == State::Final) {
            background.absorb(change.event.gps, valid);
            let significance = background.significance(&change.event);
            if significance.is_some_and(|own| own.is_signal()) {
                background.exclude(change.event.gps, change.event.gps);
            }
            events.push((change.event, significance));
        }
        background.absorb(coincider.ended(), valid);
    }
    Searched { events, background, triggers }
}

/// Counts events with a lower rate than each of `rates_hz` after the first `warm_s` seconds, and the number expected.
fn counts(noise: Noise, seeds: Range<u64>, rates_hz: &[f64]) -> Vec<(usize, f64)> {
    let (warm_s, threads) = (0.1 * noise.seconds, Threads::new(0));
    let mut all: Vec<(usize, f64)> = vec![(0, 0.0); rates_hz.len()];
    for seed in seeds {
        let searched = searched(noise, seed, &threads);
        for ((count, expected), rate_hz) in all.iter_mut().zip(rates_hz) {
            let is_below = |(event, own): &&(Event, Option<Significance>)| {
                event.gps > gps(warm_s) && own.is_some_and(|own| own.far_hz < *rate_hz)
            };
            *count += searched.events.iter().filter(is_below).count();
            *expected += rate_hz * (noise.seconds - warm_s);
        }
    }
    all
}

fn assert_honest(what: &str, rates_hz: &[f64], counts: &[(usize, f64)]) {
    for (rate_hz, (count, expected)) in rates_hz.iter().zip(counts) {
        eprintln!("{what}: below {rate_hz} Hz: {count} events, {expected:.1} expected");
        // Three standard deviations, and 8 % for bins and densities of finite statistics.
        let limit = 3.0 * expected.sqrt() + 0.08 * expected;
        assert!((*count as f64 - expected).abs() < limit, "{what}, {rate_hz}: {count}, {expected}");
    }
}

#[test]
fn noise_has_as_many_events_below_a_rate_as_it_says() {
    let rates_hz = [5e-3, 1e-3, 2e-4];
    let noise =
        Noise { detectors: 2, templates: 16, rate_hz: 4.0, seconds: 30_000.0, glitches: 0.0 };
    assert_honest("two", &rates_hz, &counts(noise, 0..5, &rates_hz));
    let three = Noise { detectors: 3, rate_hz: 3.0, seconds: 20_000.0, ..noise };
    assert_honest("three", &rates_hz, &counts(three, 10..14, &rates_hz));
    let glitchy = Noise { glitches: 0.02, ..noise };
    assert_honest("with glitches", &rates_hz, &counts(glitchy, 20..25, &rates_hz));
    // Neighbours in time that are one event: many coincidences in each cluster window.
    let dense = Noise { templates: 4, rate_hz: 8.0, seconds: 10_000.0, ..noise };
    assert_honest("dense", &rates_hz[..2], &counts(dense, 30..34, &rates_hz[..2]));
}

#[test]
fn the_background_does_not_depend_on_the_threads() {
    let noise =
        Noise { detectors: 3, templates: 20, rate_hz: 6.0, seconds: 2000.0, glitches: 0.01 };
    let [one, several] = [1, 3].map(|count| searched(noise, 40, &Threads::new(count)));
    assert_eq!(one.background.save(), several.background.save());
    assert!(!one.events.is_empty());
    assert_eq!(one.events, several.events);
}

#[test]
fn a_single_detector_claims_no_rate_below_its_time() {
    let noise =
        Noise { detectors: 1, templates: 4, rate_hz: 0.3, seconds: 30_000.0, glitches: 0.0 };
    let rates_hz = [2e-2, 2e-3];
    assert_honest("one", &rates_hz, &counts(noise, 0..4, &rates_hz));
    let searched = searched(noise, 7, &Threads::new(0));
    let mut loud = searched.events.last().unwrap().0.clone();
    loud.detectors[0].as_mut().unwrap().snr = 80.0;
    let rate_hz = searched.background.significance(&loud).unwrap().far_hz;
    assert!((rate_hz * searched.background.livetime_s() - 1.0).abs() < 1e-9, "{rate_hz}");
}

/// An event of two triggers.
fn pair(one: TimedTrigger, other: TimedTrigger) -> Event {
    let ranking = f64::from(one.snr.hypot(other.snr));
    Event {
        template: one.template,
        gps: one.gps,
        detectors: vec![Some(one), Some(other)],
        network_snr: ranking,
        ranking,
        louder: 0,
        far_hz: None,
        far_sigma: None,
        false_alarm_probability: None,
    }
}

/// Compares the rates with those of every pair of triggers of a template, whatever their times: each is coincident by accident in
/// a fraction `2 window / time` of all shifts. Returns the ratio of the rates for numbers of pairs.
fn against_pairs(noise: Noise, counts: &[usize]) -> Vec<f64> {
    let Searched { background, triggers, .. } = searched(noise, 3, &Threads::new(0));
    let mut ratios = Vec::new();
    for one in &triggers[0] {
        let same = triggers[1].iter().filter(|other| other.template == one.template);
        for other in same {
            let own = background.significance(&pair(*one, *other)).unwrap();
            ratios.push((own.log_likelihood_ratio, own.far_hz));
        }
    }
    ratios.sort_by(|a, b| b.0.total_cmp(&a.0));
    let time_s = background.livetime_s();
    let found = counts.iter().map(|count| {
        let (far_hz, expected) = (ratios[count - 1].1, *count as f64 * 0.024 / time_s.powi(2));
        eprintln!("{count} of {} pairs: {far_hz:e} Hz, {expected:e} Hz expected", ratios.len());
        far_hz / expected
    });
    found.collect()
}

#[test]
fn rates_are_those_of_all_pairs_of_triggers() {
    let noise = Noise { detectors: 2, templates: 4, rate_hz: 0.5, seconds: 8000.0, glitches: 0.0 };
    let ratios = against_pairs(noise, &[1000, 10_000, 100_000, 1_000_000]);
    // A thousand pairs are of few triggers, whose number varies.
    for (ratio, most) in ratios.into_iter().zip([2.5, 1.3, 1.2, 1.2]) {
        assert!(ratio < most && ratio > 1.0 / most, "{ratio}");
    }
    // Of sixty glitches of a mass bin, the smoothing makes some shapes better than they are.
    let ratios = against_pairs(Noise { glitches: 0.03, ..noise }, &[10_000, 100_000, 1_000_000]);
    for (ratio, most) in ratios.into_iter().zip([2.5, 1.5, 1.2]) {
        assert!(ratio < most && ratio > 0.8, "{ratio}");
    }
}

#[test]
fn rates_agree_with_the_time_slides_of_the_recording() {
    let noise =
        Noise { detectors: 2, templates: 16, rate_hz: 4.0, seconds: 10_000.0, glitches: 0.0 };
    let Searched { background, triggers, events } = searched(noise, 5, &Threads::new(0));
    let valid = Segments::one(gps(0.0), noise.seconds);
    let detectors: Vec<Detector<'_>> =
        triggers.iter().map(|triggers| Detector { triggers, valid: &valid }).collect();
    let options = Options { slides: 50, ..noise.options().coincidence };
    let recorded = search(&detectors, &options).unwrap();
    assert_eq!(recorded.events.len(), events.len());
    let mut ratios = Vec::new();
    for event in recorded.events.iter().filter(|event| event.louder >= 20) {
        let own = background.significance(event).unwrap().far_hz;
        ratios.push(own / event.far_hz.unwrap());
    }
    ratios.sort_by(f64::total_cmp);
    let at = |part: f64| ratios[(part * (ratios.len() - 1) as f64) as usize];
    eprintln!("{} events: {:.2} {:.2} {:.2}", ratios.len(), at(0.05), at(0.5), at(0.95));
    assert!(ratios.len() > 100 && at(0.5) > 0.8 && at(0.5) < 1.25, "{}", at(0.5));
    // Xi-squared and mass bins order events otherwise.
    assert!(at(0.05) > 1.0 / 3.0 && at(0.95) < 3.0, "{} {}", at(0.05), at(0.95));
}
