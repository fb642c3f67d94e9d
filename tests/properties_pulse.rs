//! Detections that a single-pulse search must make, and false ones that it must not.

#[path = "common/random.rs"]
mod random;

use random::Random;
use sidereal::backend::Backend;
use sidereal::single_pulse::{BandEdges, Candidate, Clusterer, TrialRange};
use sidereal::single_pulse::{Detector, Event, Input, Options, Plan};
use sidereal::units::{DM_CONSTANT, dispersion_delay_s};
use sidereal::view::Plane;

const MEAN: f64 = 20_000.0;
const SIGMA: f64 = 300.0;
const BOUND: (i64, i64) = (0, 261_120);

fn options(dms: usize) -> Options {
    Options {
        dms: (0..dms).map(|dm| dm as f64).collect(),
        tsamp_s: 1e-3,
        max_width_s: 0.1,
        baseline_s: 4.0,
        snr: 6.0,
        bound: Some(BOUND),
    }
}

fn noise(random: &mut Random, times: usize) -> Vec<i32> {
    (0..times).map(|_| (MEAN + SIGMA * random.gaussian()).round() as i32).collect()
}

/// Adds a boxcar whose sum is `snr` deviations above the mean.
fn inject(row: &mut [i32], time: usize, width: usize, snr: f64) {
    let height = snr * SIGMA / (width as f64).sqrt();
    row[time..time + width].iter_mut().for_each(|y| *y += height.round() as i32);
}

fn search(options: Options, row: &[i32]) -> Vec<Event> {
    let plan = Plan::new(options).unwrap();
    let dms = plan.dms();
    let times = row.len() / dms;
    let mut detector = Detector::new(plan, &Backend::best(2)).unwrap();
    let mut events = Vec::new();
    let plane = Plane::new(row, dms, times, times).unwrap();
    detector.run(Input::I32(plane), &mut events).unwrap();
    detector.flush(&|_| times as u64, &mut events).unwrap();
    events
}

/// Chance that a Gaussian exceeds `x`: the continued fraction of Mills' ratio.
fn tail(x: f64) -> f64 {
    let fraction = (1..=60).rev().fold(x, |rest, k| x + f64::from(k) / rest);
    (-0.5 * x * x).exp() / (std::f64::consts::TAU.sqrt() * fraction)
}

#[test]
fn significances_of_noise_follow_the_gaussian_tail() {
    // Width 1 only: all boxcars are independent, and no event merges over 3 samples at this rate.
    let times = 1 << 21;
    let row = noise(&mut Random::new(11), times);
    let least = 3.0;
    let events = search(Options { max_width_s: 1e-3, snr: least, ..options(1) }, &row);
    for threshold in [3.3, 3.6, 4.0, 4.4] {
        let found = events.iter().filter(|e| f64::from(e.snr) >= threshold).count() as f64;
        let expected = times as f64 * tail(threshold);
        // An event suppresses events within 4 samples of its maximum.
        let merged = expected * 5.0 * tail(least);
        let bound = 4.0 * expected.sqrt() + merged + 0.01 * expected;
        assert!((found - expected).abs() < bound, "{threshold}: {found} of {expected}");
    }
}

#[test]
fn noise_is_estimated_without_bias() {
    // A pulse of known height in each window: its significance gives mean and deviation. Rounding to whole counts
    // adds a twelfth to the variance.
    let mut random = Random::new(5);
    let window = 4096;
    for sigma in [300.0f64, 4.0, 1.0] {
        let whole = |y: f64| (MEAN + y).round() as i32;
        let mut row: Vec<i32> =
            (0..400 * window).map(|_| whole(sigma * random.gaussian())).collect();
        (0..400).for_each(|k| row[k * window + 2000] = whole(20.0 * sigma));
        let narrow = Options { max_width_s: 1e-3, snr: 15.0, ..options(1) };
        let events = search(narrow, &row);
        assert_eq!(events.len(), 400);
        let mean = events.iter().map(|e| f64::from(e.snr)).sum::<f64>() / 400.0;
        let expected = 20.0 * sigma / (sigma * sigma + 1.0 / 12.0).sqrt();
        assert!((mean / expected - 1.0).abs() < 0.004, "{sigma}: {mean} {expected}");
    }
}

#[test]
fn noise_alone_has_no_events_at_any_width() {
    let events = search(options(1), &noise(&mut Random::new(13), 1 << 21));
    assert!(events.len() <= 1, "{events:?}");
}

#[test]
fn boxcar_pulses_are_found_with_their_significance() {
    let mut random = Random::new(17);
    for width in [1, 2, 5, 8, 16, 28, 48, 96] {
        let (mut total, mut count) = (0.0, 0.0);
        for snr in [10.0, 15.0, 30.0] {
            let mut row = noise(&mut random, 1 << 18);
            let pulses: Vec<usize> = (0..60).map(|k| 3000 + 4300 * k + random.below(64)).collect();
            pulses.iter().for_each(|time| inject(&mut row, *time, width, snr));
            let events = search(options(1), &row);
            for time in pulses {
                let near = |e: &&Event| {
                    let centre = e.time as f64 + f64::from(e.width) / 2.0;
                    (centre - (time as f64 + width as f64 / 2.0)).abs()
                        <= (width as f64 / 2.0).max(1.0)
                };
                let best = events.iter().filter(near).max_by(|a, b| a.snr.total_cmp(&b.snr));
                let best = best.unwrap_or_else(|| panic!("lost {width} {snr} at {time}"));
                total += f64::from(best.snr) / snr;
                count += 1.0;
                let ratio = f64::from(best.width) / width as f64;
                assert!(snr < 30.0 || (0.5..=2.0).contains(&ratio), "{width}: {best:?}");
            }
        }
        let mean = total / count;
        assert!((mean - 1.0).abs() < 0.05, "width {width}: mean ratio {mean}");
    }
}

#[test]
fn a_bright_pulse_is_one_event_and_a_train_is_one_event_each() {
    let mut random = Random::new(23);
    let mut row = noise(&mut random, 40_000);
    (0..300).for_each(|k| inject(&mut row, 500 + 89 * k, 3, 60.0));
    let events = search(options(1), &row);
    assert_eq!(events.iter().filter(|e| e.snr > 40.0).count(), 300);
    assert!(events.len() < 330, "{}", events.len());
}

#[test]
fn a_step_of_the_baseline_fires_near_itself_only() {
    let mut random = Random::new(29);
    let mut row = noise(&mut random, 40_000);
    row[20_000..].iter_mut().for_each(|y| *y += (3.0 * SIGMA) as i32);
    let window = 4096;
    for event in search(options(1), &row) {
        assert_eq!(event.time / window, 20_000 / window, "{event:?}");
    }
}

#[test]
fn a_constant_series_has_no_events() {
    assert!(search(options(1), &[100; 9000]).is_empty());
    let mut spiky = vec![100; 9000];
    spiky[4000] = 101;
    assert!(search(options(1), &spiky).is_empty());
}

#[test]
fn a_pulse_in_the_last_samples_is_found() {
    let mut random = Random::new(31);
    for times in [40, 900, 4096, 6000, 6400, 12_289] {
        let mut row = noise(&mut random, times);
        inject(&mut row, times - 4, 4, 25.0);
        let events = search(options(1), &row);
        let found = events.iter().any(|e| e.time == times as u64 - 4 && e.width == 4);
        assert!(found || times == 40 && !events.is_empty(), "{times}: {events:?}");
    }
    assert!(search(options(1), &noise(&mut random, 31)).is_empty());
}

const EDGES: BandEdges =
    BandEdges { lowest_hz: 1250e6, highest_hz: 1550e6, dm_constant: DM_CONSTANT };

/// The series of all trials with boxcar bursts (dm, time, width, snr), smeared by the DM error of each trial.
fn bow_ties(
    random: &mut Random,
    dms: &[f64],
    times: usize,
    bursts: &[(f64, f64, f64, f64)],
) -> Vec<i32> {
    let tsamp = 1e-3;
    let delay = dispersion_delay_s(1.0, EDGES.lowest_hz, EDGES.highest_hz, DM_CONSTANT);
    let mut plane = Vec::new();
    for dm in dms {
        let mut row = noise(random, times);
        for (burst_dm, time, width, snr) in bursts {
            let channels = 64;
            let fluence = snr * SIGMA * (width / tsamp).sqrt() / f64::from(channels);
            let mut profile = vec![0.0; times];
            for channel in 0..channels {
                let shift = (burst_dm - dm) * delay * f64::from(channel) / f64::from(channels);
                let (begin, end) = ((time + shift) / tsamp, (time + shift + width) / tsamp);
                for (sample, y) in profile
                    .iter_mut()
                    .enumerate()
                    .skip(begin as usize)
                    .take(1 + (end - begin).ceil() as usize)
                {
                    let part = (end.min(sample as f64 + 1.0) - begin.max(sample as f64)).max(0.0);
                    *y += fluence * part / (end - begin);
                }
            }
            row.iter_mut().zip(profile).for_each(|(y, p)| *y += p.round() as i32);
        }
        plane.extend(row);
    }
    plane
}

fn candidates(options: &Options, events: &[Event]) -> Vec<Candidate> {
    let range = TrialRange { dms: options.dms.clone(), tsamp_s: options.tsamp_s, widest: 100 };
    let mut clusterer = Clusterer::new(vec![range], EDGES).unwrap();
    clusterer.push(0, events).unwrap();
    clusterer.finish()
}

#[test]
fn each_burst_is_one_candidate() {
    let mut random = Random::new(37);
    let dms: Vec<f64> = (0..200).map(|dm| 5.0 * f64::from(dm)).collect();
    let bursts = [
        (300.0, 4.0, 0.004, 60.0),
        (700.0, 9.0, 0.02, 15.0),
        (300.0, 12.0, 0.001, 25.0),
        (305.0, 12.09, 0.001, 40.0),
        (0.0, 20.0, 0.03, 80.0),
    ];
    let plane = bow_ties(&mut random, &dms, 24_000, &bursts);
    let options = Options { dms, ..options(200) };
    let events = search(options.clone(), &plane);
    let mut found = candidates(&options, &events);
    assert_eq!(found.iter().map(|c| c.members).sum::<usize>(), events.len());
    assert_eq!(found.len(), bursts.len(), "{found:#?}");
    found.sort_by(|a, b| a.time_s.total_cmp(&b.time_s));
    for (candidate, (dm, time, width, snr)) in found.iter().zip(bursts) {
        assert!((candidate.dm - dm).abs() < 13.0, "{candidate:?}");
        assert!(
            (candidate.time_s - time - width / 2.0).abs() < width / 2.0 + 1e-3,
            "{candidate:?}"
        );
        assert!((candidate.snr / snr - 1.0).abs() < 0.2, "{candidate:?}");
        assert!(candidate.begin_s <= candidate.time_s && candidate.time_s <= candidate.end_s);
        assert!(candidate.dm_min <= candidate.dm && candidate.dm <= candidate.dm_max);
    }
}

#[test]
fn ranges_of_other_downsampling_join() {
    let event = |dm, time, width, snr| Event { dm, time, width, snr };
    let fine = TrialRange { dms: vec![98.0, 99.0], tsamp_s: 1e-3, widest: 100 };
    let coarse = TrialRange { dms: vec![100.0, 102.0], tsamp_s: 2e-3, widest: 50 };
    let mut clusterer = Clusterer::new(vec![fine, coarse], EDGES).unwrap();
    clusterer.push(1, &[event(0, 502, 2, 12.0), event(1, 502, 3, 9.0)]).unwrap();
    clusterer
        .push(0, &[event(1, 1004, 4, 11.0), event(0, 1004, 5, 10.0), event(0, 9000, 1, 6.0)])
        .unwrap();
    assert!(clusterer.push(2, &[]).is_err());
    assert!(clusterer.push(0, &[event(2, 0, 1, 6.0)]).is_err());
    let found = clusterer.finish();
    assert_eq!(found.len(), 2);
    let best = found[0];
    assert_eq!((best.members, best.range, best.trial, best.dm), (4, 1, 2, 100.0));
    assert!((best.time_s - 1.006).abs() < 1e-12 && (best.width_s - 0.004).abs() < 1e-12);
    assert_eq!((best.dm_min, best.dm_max), (98.0, 102.0));
}

#[test]
fn candidates_do_not_depend_on_the_order_of_events() {
    let mut random = Random::new(41);
    let dms = options(50);
    let mut events: Vec<Event> = (0..3000)
        .map(|_| Event {
            dm: random.below(50) as u32,
            time: random.below(100_000) as u64,
            width: 1 + random.below(40) as u32,
            snr: 6.0 + random.below(8) as f32,
        })
        .collect();
    let first = candidates(&dms, &events);
    events.reverse();
    assert_eq!(candidates(&dms, &events), first);
    assert!(first.windows(2).all(|pair| pair[0].snr >= pair[1].snr));
}

#[test]
fn a_storm_of_events_is_clustered() {
    let mut random = Random::new(43);
    let count = 300_000;
    let events: Vec<Event> = (0..count)
        .map(|_| Event {
            dm: random.below(2000) as u32,
            time: random.below(60_000) as u64,
            width: 1 + random.below(100) as u32,
            snr: 6.0 + (-random.uniform().ln()) as f32 * 3.0,
        })
        .collect();
    let found = candidates(&options(2000), &events);
    assert_eq!(found.iter().map(|c| c.members).sum::<usize>(), count);
}
