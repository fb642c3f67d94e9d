//! Coincidence: events of two to four detectors, time slides, false-alarm rates.

use crate::random::Random;
use sidereal::Error;
use sidereal::backend::threads::Threads;
use sidereal::spiir::coincidence::{
    Detector, Event, Found, Options, Ranking, Sample, Segments, TimedTrigger, search, search_on,
};
use sidereal::spiir::trigger::Trigger;
use sidereal::units::Gps;

const START_S: f64 = 1_126_259_000.0;

fn gps(seconds: f64) -> Gps {
    Gps::from_s(START_S).plus_s(seconds)
}

fn trigger(template: u32, seconds: f64, snr: f32) -> TimedTrigger {
    TimedTrigger { template, gps: gps(seconds), snr, phase: 0.3, xi2: 1.0 }
}

/// Windows of light's travel time and 2 ms between detectors in a row 8 ms apart.
fn options(detectors: usize) -> Options {
    let window = |i: usize, j: usize| 0.002 + 0.008 * i.abs_diff(j) as f64;
    let row = |i| (0..detectors).map(|j| window(i, j)).collect();
    Options::new((0..detectors).map(row).collect())
}

fn valid(from: f64, seconds: f64) -> Segments {
    Segments::one(gps(from), seconds)
}

fn found(triggers: &[Vec<TimedTrigger>], valid: &[Segments], options: &Options) -> Found {
    let detectors = triggers.iter().zip(valid);
    let detectors: Vec<Detector<'_>> =
        detectors.map(|(triggers, valid)| Detector { triggers, valid }).collect();
    search(&detectors, options).expect("a search")
}

/// Poisson triggers with the tail of Gaussian noise above 4.
fn poisson(random: &mut Random, rate_hz: f64, seconds: f64, templates: usize) -> Vec<TimedTrigger> {
    let mut triggers = Vec::new();
    let mut time = 0.0;
    loop {
        time -= (1.0 - random.uniform()).ln() / rate_hz;
        if time > seconds {
            return triggers;
        }
        let snr = (16.0 - 2.0 * (1.0 - random.uniform()).ln()).sqrt() as f32;
        triggers.push(trigger(random.below(templates) as u32, time, snr));
    }
}

#[test]
fn any_number_of_threads_finds_the_same() {
    const SECONDS: f64 = 200.0;
    let mut random = Random::new(41);
    // Templates with common factors, and the largest.
    let templates: Vec<u32> = (0..40).map(|k| 16 * k).chain([u32::MAX, 3, 5]).collect();
    // Enough for several chunks of a list and parts of the table, few, and none; not in order of time.
    let counts = [15_000, 9_000, 40, 0];
    let triggers = counts.map(|count| {
        let one = |_| {
            let template = templates[random.below(templates.len())];
            trigger(template, SECONDS * random.uniform(), 4.0 + 4.0 * random.uniform() as f32)
        };
        (0..count).map(one).collect::<Vec<_>>()
    });
    let valid: Vec<Segments> = (0..4).map(|k| valid(3.0 * f64::from(k), SECONDS - 9.0)).collect();
    for count in 2..=4 {
        let detectors: Vec<Detector<'_>> =
            (0..count).map(|k| Detector { triggers: &triggers[k], valid: &valid[k] }).collect();
        for background in [Sample::Inclusive, Sample::Below(11.0), Sample::ExcludeForeground] {
            let options = Options { background, singles: true, slides: 12, ..options(count) };
            let expected = search(&detectors, &options).expect("a search");
            assert!(expected.events.len() > 50 && expected.background.rankings.len() > 50);
            let late = |event: &Event| {
                event.detectors[0].is_some_and(|own| triggers[0][10_000..].contains(&own))
            };
            assert!(expected.events.iter().any(late), "none of the last chunk");
            for threads in [2, 3, 5] {
                let found = search_on(&Threads::new(threads), &detectors, &options);
                assert!(found.expect("a search") == expected, "{threads} threads, {count}");
            }
        }
    }
}

#[test]
fn triggers_keep_their_times() {
    let z = num_complex::Complex::from_polar(7.0, 0.4);
    let found = Trigger { template: 3, sample: 4096 * 5 + 1024, offset: -0.5, z, xi2: 0.9 };
    let timed = TimedTrigger::new(&found, gps(0.0), 4096, -0.015);
    let expected = gps(5.25 - 0.5 / 4096.0 - 0.015);
    assert!((timed.gps.ns - expected.ns).abs() <= 2);
    assert!((timed.snr - 7.0).abs() < 1e-6 && (timed.phase - 0.4).abs() < 1e-6);
    assert_eq!((timed.template, timed.xi2), (3, 0.9));
}

#[test]
fn windows_templates_and_clusters_are_kept() {
    let first = vec![
        trigger(1, 10.0, 6.0),
        trigger(1, 20.0, 6.0),
        trigger(2, 30.0, 6.0),
        trigger(5, 40.0, 6.0),
        trigger(6, 40.1, 9.0),
        trigger(7, 50.0, 5.0),
    ];
    let second = vec![
        trigger(6, 40.105, 7.0),
        trigger(5, 40.004, 8.0),
        trigger(1, 10.0099, 8.0),
        trigger(1, 20.0101, 8.0),
        trigger(3, 30.0, 8.0),
        trigger(7, 49.995, 5.5),
        trigger(7, 50.004, 6.5),
    ];
    let options = Options { singles: true, slides: 0, ..options(2) };
    let found = found(&[first, second], &[valid(0.0, 60.0), valid(5.0, 60.0)], &options);
    let events: Vec<(u32, Gps)> = found.events.iter().map(|one| (one.template, one.gps)).collect();
    // Outside the window, of another template, or weaker than another in the cluster: none is an event.
    let expected = [(6, gps(40.1)), (1, gps(10.0099)), (7, gps(50.004))];
    assert_eq!(events, expected);
    assert!((found.events[0].network_snr - 130_f64.sqrt()).abs() < 1e-6);
    assert_eq!(found.events[0].ranking, found.events[0].network_snr);
    let partner = found.events[2].detectors[1].expect("the better partner");
    assert_eq!(partner.snr, 6.5);
    assert_eq!((found.events[0].far_hz, found.events[0].false_alarm_probability), (None, None));
    assert_eq!(found.livetime_s, 55.0);
    let singles: Vec<(usize, f32)> =
        found.singles.iter().map(|one| (one.detector, one.trigger.snr)).collect();
    assert_eq!(singles, [(1, 8.0), (1, 8.0), (0, 6.0), (0, 6.0)]);
}

#[test]
fn a_bad_shape_costs_rank_unless_the_snr_alone_ranks() {
    let glitch = TimedTrigger { xi2: 6.0, ..trigger(0, 10.1, 9.0) };
    let triggers =
        [vec![trigger(1, 10.0, 6.0), glitch], vec![trigger(1, 10.001, 6.0), trigger(0, 10.1, 5.0)]];
    let valid = [valid(0.0, 60.0), valid(0.0, 60.0)];
    let by_shape = found(&triggers, &valid, &options(2));
    assert_eq!((by_shape.events.len(), by_shape.events[0].template), (1, 1));
    let by_snr = found(&triggers, &valid, &Options { ranking: Ranking::Snr, ..options(2) });
    assert_eq!((by_snr.events.len(), by_snr.events[0].template), (1, 0));
}

#[test]
fn all_pairs_of_a_set_must_be_within_their_windows() {
    // The first and the third are 12 ms apart: within their own window, and each within the second's.
    let near = [10.0, 10.006, 10.012].map(|time| vec![trigger(0, time, 6.0)]);
    let valid = [0.0, 0.0, 0.0].map(|from| valid(from, 60.0));
    let count = |triggers: &[Vec<TimedTrigger>], options: &Options| {
        let found = found(triggers, &valid, options);
        assert_eq!(found.events.len(), 1);
        found.events[0].detectors.iter().flatten().count()
    };
    assert_eq!(count(&near, &options(3)), 3);
    let mut narrow = options(3);
    (narrow.windows_s[0][2], narrow.windows_s[2][0]) = (0.0119, 0.0119);
    assert_eq!(count(&near, &narrow), 2);
    let far = [10.0, 10.006, 10.019].map(|time| vec![trigger(0, time, 6.0)]);
    assert_eq!(count(&far, &options(3)), 2);
}

/// Compares with all sets of triggers, found by trying each.
#[test]
fn events_are_those_of_trying_everything() {
    for detectors in 2..=4 {
        let mut random = Random::new(detectors as u64);
        let triggers: Vec<Vec<TimedTrigger>> =
            (0..detectors).map(|_| poisson(&mut random, 8.0, 20.0, 2)).collect();
        let options = Options { slides: 0, cluster_s: 0.05, ..options(detectors) };
        let valid = vec![valid(0.0, 20.0); detectors];
        let found = found(&triggers, &valid, &options);
        let mut sets = vec![Vec::<(usize, TimedTrigger)>::new()];
        for (detector, triggers) in triggers.iter().enumerate() {
            let mut longer = Vec::new();
            for (set, one) in sets.iter().flat_map(|set| triggers.iter().map(move |t| (set, t))) {
                let fits = |(other, its): &(usize, TimedTrigger)| {
                    let apart = one.gps.seconds_since(its.gps).abs();
                    its.template == one.template && apart <= options.windows_s[*other][detector]
                };
                if set.iter().all(fits) {
                    longer.push([set.as_slice(), &[(detector, *one)]].concat());
                }
            }
            sets.extend(longer);
        }
        sets.retain(|set| set.len() >= 2);
        let rank = |set: &[(usize, TimedTrigger)]| {
            set.iter().map(|(_, one)| f64::from(one.snr).powi(2)).sum::<f64>().sqrt()
        };
        let time = |set: &[(usize, TimedTrigger)]| {
            set.iter().max_by(|a, b| a.1.snr.total_cmp(&b.1.snr)).expect("two at least").1.gps
        };
        let best = |set: &&Vec<(usize, TimedTrigger)>| {
            let mut near = sets
                .iter()
                .filter(|other| time(other).seconds_since(time(set)).abs() <= options.cluster_s);
            near.all(|other| rank(other) <= rank(set))
        };
        let mut expected: Vec<f64> = sets.iter().filter(best).map(|set| rank(set)).collect();
        expected.sort_by(|a, b| b.total_cmp(a));
        let rankings: Vec<f64> = found.events.iter().map(|event| event.network_snr).collect();
        assert!(rankings.len() > 10, "{}", rankings.len());
        assert_eq!(rankings.len(), expected.len());
        assert!(rankings.iter().zip(&expected).all(|(a, b)| (a - b).abs() < 1e-6));
    }
}

fn without_rates(found: &Found) -> Vec<Event> {
    let bare = |event: &Event| Event {
        louder: 0,
        far_hz: None,
        far_sigma: None,
        false_alarm_probability: None,
        ..event.clone()
    };
    found.events.iter().map(bare).collect()
}

#[test]
fn the_order_of_detectors_and_of_triggers_does_not_matter() {
    let mut random = Random::new(11);
    let triggers: Vec<Vec<TimedTrigger>> =
        (0..3).map(|_| poisson(&mut random, 20.0, 30.0, 3)).collect();
    let spans = [valid(0.0, 30.0), valid(1.0, 28.0), valid(0.0, 20.0)];
    let options = Options { cluster_s: 0.2, slides: 10, ..options(3) };
    let straight = found(&triggers, &spans, &options);
    assert!(straight.events.len() > 20);

    let mut shuffled = triggers.clone();
    for list in &mut shuffled {
        for at in (1..list.len()).rev() {
            list.swap(at, random.below(at + 1));
        }
    }
    assert_eq!(found(&shuffled, &spans, &options), straight);

    for order in [[1, 0, 2], [2, 1, 0], [1, 2, 0]] {
        let triggers = order.map(|j| triggers[j].clone());
        let spans = order.map(|j| spans[j].clone());
        let mut other = options.clone();
        other.windows_s = order.map(|i| order.map(|j| options.windows_s[i][j]).to_vec()).to_vec();
        let turned = found(&triggers, &spans, &other);
        assert_eq!(turned.livetime_s, straight.livetime_s);
        let mut events = without_rates(&turned);
        for event in &mut events {
            let own = event.detectors.clone();
            order.iter().zip(own).for_each(|(j, one)| event.detectors[*j] = one);
        }
        assert_eq!(events, without_rates(&straight));
    }
}

#[test]
fn slides_count_their_coincident_time_and_events() {
    // Valid for 40 s and 30 s, 20 s of them together, in which a gate of 2 s is.
    let gated = Segments::new(vec![(gps(20.0), gps(30.0)), (gps(32.0), gps(50.0))]).expect("two");
    let spans = [valid(0.0, 40.0), gated];
    // One trigger each: they coincide only in the slide of 25 intervals.
    let triggers = [vec![trigger(0, 36.0, 7.0)], vec![trigger(0, 33.5, 6.0)]];
    let wide = Options { slides: 60, ..options(2) };
    let result = found(&triggers, &spans, &wide);
    assert_eq!(result.livetime_s, 18.0);
    assert!(result.events.is_empty());
    assert_eq!(result.background.slides, 60);
    assert_eq!(result.background.rankings.len(), 1);
    assert!((result.background.rankings[0] - 85_f64.sqrt()).abs() < 1e-6);
    // On the circle of 20 s the first detector is always valid, the second for 18 s.
    assert!((result.background.time_s - 60.0 * 18.0).abs() < 1e-6);
    assert!((result.background.rate(9.0).expect("a rate").hz - 2.0 / 1080.0).abs() < 1e-9);
    assert_eq!(result.background.louder(9.3), 0);

    let all = Options { slides: 1000, ..options(2) };
    assert_eq!(found(&triggers, &spans, &all).background.slides, 199);
    let short = [valid(0.0, 0.15), valid(0.0, 0.15)];
    let none = found(&[Vec::new(), Vec::new()], &short, &all);
    assert_eq!((none.background.slides, none.background.time_s), (0, 0.0));
    assert_eq!(none.background.rate(9.0), None);
}

/// Verification method: in Poisson noise alone, events with a false-alarm rate below `x` come at the rate `x`.
#[test]
fn false_alarm_rates_of_poisson_noise_are_true() {
    let seconds = 1000.0;
    for (detectors, background) in
        [(2, Sample::Inclusive), (3, Sample::Inclusive), (2, Sample::ExcludeForeground)]
    {
        let mut random = Random::new(20 + detectors as u64);
        let options = Options { cluster_s: 0.1, background, ..options(detectors) };
        let valid = vec![valid(0.0, seconds); detectors];
        let bounds = [3e-3, 1e-2, 3e-2, 1e-1];
        let mut counts = [0.0; 4];
        let (mut time, mut background_events, mut background_s) = (0.0, 0.0, 0.0);
        for _ in 0..5 {
            let triggers: Vec<Vec<TimedTrigger>> =
                (0..detectors).map(|_| poisson(&mut random, 20.0, seconds, 20)).collect();
            let found = found(&triggers, &valid, &options);
            time += found.livetime_s;
            background_events += found.background.rankings.len() as f64;
            background_s += found.background.time_s;
            for (count, bound) in counts.iter_mut().zip(bounds) {
                let below = |event: &&Event| event.far_hz.is_some_and(|far| far < bound);
                *count += found.events.iter().filter(below).count() as f64;
            }
        }
        // Pairs: rate^2 window / templates a second for each pair, less what clusters hide.
        let pairs = if detectors == 2 { 0.02 } else { 0.02 + 0.02 + 0.036 };
        let predicted = 20.0 * 20.0 / 20.0 * pairs;
        let rate = background_events / background_s;
        eprintln!("{detectors} detectors: {rate} Hz of {predicted} Hz, {counts:?}");
        assert!(rate < 1.02 * predicted && rate > 0.8 * predicted);
        for (count, bound) in counts.iter().zip(bounds) {
            let expected = bound * time;
            let sigma = expected.sqrt();
            assert!((count - expected).abs() < 3.5 * sigma, "{count} for {expected} at {bound}");
        }
    }
}

#[test]
fn a_loud_event_has_the_lowest_rate_and_can_be_left_out_of_the_background() {
    let mut random = Random::new(31);
    let seconds = 200.0;
    let mut triggers: Vec<Vec<TimedTrigger>> =
        (0..2).map(|_| poisson(&mut random, 30.0, seconds, 10)).collect();
    triggers[0].push(trigger(4, 100.0, 19.0));
    triggers[1].push(trigger(4, 99.993, 13.0));
    let valid = [valid(0.0, seconds), valid(0.0, seconds)];
    let inclusive = found(&triggers, &valid, &options(2));
    let event = &inclusive.events[0];
    assert_eq!((event.gps, event.louder), (gps(100.0), 0));
    let (far, sigma) = (event.far_hz.expect("a rate"), event.far_sigma.expect("a sigma"));
    assert!((far - 1.0 / inclusive.background.time_s).abs() < 1e-15 && far == sigma);
    let probability = event.false_alarm_probability.expect("a probability");
    assert!((probability - (1.0 - (-far * 200.0_f64).exp())).abs() < 1e-12);
    // The event's own triggers, paired with noise triggers, are the loudest of the background.
    assert!(inclusive.background.rankings[0] > 19.0);

    let without = Options { background: Sample::Below(15.0), ..options(2) };
    let exclusive = found(&triggers, &valid, &without);
    assert_eq!(without_rates(&exclusive), without_rates(&inclusive));
    assert!(exclusive.background.rankings[0] < 12.0);
    assert!(exclusive.background.time_s < inclusive.background.time_s);
    assert!(exclusive.background.time_s > 0.97 * inclusive.background.time_s);

    let histogram = inclusive.histogram(30);
    assert_eq!(histogram.edges.len(), 31);
    assert_eq!(histogram.events.iter().sum::<u64>(), inclusive.events.len() as u64);
    let expected: f64 = histogram.expected.iter().sum();
    let scale = inclusive.livetime_s / inclusive.background.time_s;
    assert!((expected - inclusive.background.rankings.len() as f64 * scale).abs() < 1e-6);
    assert_eq!(histogram.events[29], 1);
    assert_eq!(Found::default().histogram(10).edges.len(), 0);
}

#[test]
fn signals_do_not_raise_their_own_rates_without_the_foreground() {
    let mut random = Random::new(32);
    let seconds = 400.0;
    let mut triggers: Vec<Vec<TimedTrigger>> =
        (0..2).map(|_| poisson(&mut random, 30.0, seconds, 10)).collect();
    // Each signal is loud in one detector: its coincidence with a noise trigger of the other is about as loud as the
    // event.
    let signals = [(50.0, 19.0, 6.0), (130.0, 5.8, 15.0), (210.0, 12.0, 5.8), (300.0, 7.0, 7.5)];
    for (template, (time, first, second)) in signals.into_iter().enumerate() {
        triggers[0].push(trigger(template as u32, time, first));
        triggers[1].push(trigger(template as u32, time + 0.004, second));
    }
    let valid = [valid(0.0, seconds), valid(0.0, seconds)];
    let all = Options { slides: 1000, ..options(2) };
    let inclusive = found(&triggers, &valid, &all);
    let without = Options { background: Sample::ExcludeForeground, ..all };
    let exclusive = found(&triggers, &valid, &without);
    assert_eq!(without_rates(&exclusive), without_rates(&inclusive));
    assert_eq!((inclusive.background.left_out, exclusive.background.left_out), (0, 4));
    let louder = |found: &Found| found.events[..4].iter().map(|event| event.louder).collect();
    let (before, after): (Vec<usize>, Vec<usize>) = (louder(&inclusive), louder(&exclusive));
    assert!(before[1] > 0 && before[3] > 100, "{before:?}");
    assert_eq!(after, [0; 4]);
    // The rates of noise events do not change.
    let quiet = |found: &Found| found.events[20].far_hz.expect("a rate");
    let ratio = quiet(&exclusive) / quiet(&inclusive);
    assert!((0.7..1.0).contains(&ratio), "{ratio}");
}

fn refusal(triggers: &[Vec<TimedTrigger>], valid: &[Segments], options: &Options) -> String {
    let detectors = triggers.iter().zip(valid);
    let detectors: Vec<Detector<'_>> =
        detectors.map(|(triggers, valid)| Detector { triggers, valid }).collect();
    match search(&detectors, options) {
        Err(error @ Error::Parameter { .. }) => error.to_string(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_can_not_be_searched_is_refused_clearly() {
    let none = || vec![Vec::new(), Vec::new()];
    let spans = [valid(0.0, 10.0), valid(0.0, 10.0)];
    assert!(refusal(&none()[..1], &spans, &options(1)).contains("detectors is 1"));
    assert!(refusal(&vec![Vec::new(); 5], &vec![valid(0.0, 1.0); 5], &options(5)).contains("5"));
    let apart = [valid(0.0, 10.0), valid(10.0, 10.0)];
    let text = refusal(&none(), &apart, &options(2));
    assert!(text.contains("1126259000.000 to 1126259010.000"), "{text}");
    assert!(text.contains("1126259010.000 to 1126259020.000"), "{text}");
    let empty = [valid(0.0, 10.0), Segments::default()];
    assert!(refusal(&none(), &empty, &options(2)).contains("detector 1 never"));

    let fine = options(2);
    assert!(refusal(&none(), &spans, &options(3)).contains("there are 2 detectors"));
    for window in [0.0, -1.0, f64::NAN, 2.0] {
        let windows_s = vec![vec![0.0, window], vec![window, 0.0]];
        refusal(&none(), &spans, &Options { windows_s, ..fine.clone() });
    }
    for slide_interval_s in [0.0, 0.02, f64::NAN, f64::INFINITY] {
        refusal(&none(), &spans, &Options { slide_interval_s, ..fine.clone() });
    }
    refusal(&none(), &spans, &Options { cluster_s: f64::NAN, ..fine.clone() });
    for (snr, xi2) in [(f32::NAN, 1.0), (f32::INFINITY, 1.0), (5.0, f32::NAN), (-1.0, 1.0)] {
        let bad = TimedTrigger { xi2, ..trigger(0, 1.0, snr) };
        refusal(&[vec![bad], Vec::new()], &spans, &fine);
    }
    // An empty result is not an error.
    let quiet = found(&none(), &spans, &fine);
    assert!(quiet.events.is_empty() && quiet.background.rankings.is_empty());
    assert_eq!((quiet.livetime_s, quiet.background.slides), (10.0, 99));
}
