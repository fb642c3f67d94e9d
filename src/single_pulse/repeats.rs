//! Repeating sources: candidates of one dispersion measure whose times are whole periods apart.
//!
//! Invariant: a candidate belongs to one source at most.

use super::cluster::Candidate;

/// Fewest pulses of a source.
const FEWEST: usize = 5;

/// Largest number of pulses from which a period is searched.
const MOST: usize = 2000;

/// Time differences tried as periods, and largest divisor applied to them.
const DIFFERENCES: usize = 60;
const DIVISORS: u32 = 4;

/// Largest expected number of chance detections per search at which a source is reported.
const CHANCE: f64 = 1e-4;

/// Pulses of one source.
#[derive(Clone, Debug, PartialEq)]
pub struct Repeater {
    /// Dispersion measure of its best pulse, pc cm^-3.
    pub dm: f64,
    /// Period in seconds, fitted to all its pulses.
    pub period_s: f64,
    /// Indices of its candidates in the list, in time order.
    pub candidates: Vec<usize>,
}

/// Finds sources among candidates ordered best first. `delay_per_dm` is the delay across the band per unit of
/// dispersion measure, in seconds.
///
/// Candidates have one dispersion measure if the difference smears them by less than twice the wider one. Differences
/// of adjacent times and simple fractions of them are tried as periods. Each period is followed from pulse to pulse
/// and refined. The longest period that nearly as many pulses fit as fit any wins.
pub fn repeating(candidates: &[Candidate], delay_per_dm: f64) -> Vec<Repeater> {
    let mut is_free = vec![true; candidates.len()];
    let mut sources = Vec::new();
    let mut by_dm: Vec<usize> = (0..candidates.len()).collect();
    by_dm.sort_by(|a, b| candidates[*a].dm.total_cmp(&candidates[*b].dm).then(a.cmp(b)));
    let widest = candidates.iter().map(|c| c.width_s).fold(0.0, f64::max);
    for seed in 0..candidates.len() {
        if !is_free[seed] {
            continue;
        }
        let best = &candidates[seed];
        let far = |c: &Candidate, width: f64| (c.dm - best.dm).abs() * delay_per_dm > 2.0 * width;
        let low = by_dm.partition_point(|i| {
            candidates[*i].dm < best.dm && far(&candidates[*i], widest.max(best.width_s))
        });
        let near = by_dm[low..].iter().copied().take_while(|i| {
            let c = &candidates[*i];
            c.dm <= best.dm || !far(c, widest.max(best.width_s))
        });
        let is_alike = |i: &usize| {
            is_free[*i] && !far(&candidates[*i], candidates[*i].width_s.max(best.width_s))
        };
        let mut alike: Vec<usize> = near.filter(is_alike).collect();
        // Limits the number to the best ones.
        alike.sort_unstable();
        alike.truncate(MOST);
        alike.sort_by(|a, b| candidates[*a].time_s.total_cmp(&candidates[*b].time_s));
        let Some((period_s, pulses)) = periodic(candidates, &alike) else { continue };
        if !pulses.contains(&seed) {
            continue;
        }
        pulses.iter().for_each(|pulse| is_free[*pulse] = false);
        sources.push(Repeater { dm: best.dm, period_s, candidates: pulses });
    }
    sources
}

/// Returns the period of time-ordered pulses, and those that fit it.
fn periodic(candidates: &[Candidate], pulses: &[usize]) -> Option<(f64, Vec<usize>)> {
    if pulses.len() < FEWEST {
        return None;
    }
    let times: Vec<f64> = pulses.iter().map(|pulse| candidates[*pulse].time_s).collect();
    let mut widths: Vec<f64> = pulses.iter().map(|pulse| candidates[*pulse].width_s).collect();
    widths.sort_by(f64::total_cmp);
    let slack_s = widths[widths.len() / 2];
    let mut starts: Vec<usize> = (0..times.len() - 1).collect();
    starts.sort_by(|a, b| (times[a + 1] - times[*a]).total_cmp(&(times[b + 1] - times[*b])));
    let every = starts.len().div_ceil(DIFFERENCES);
    let mut fits: Vec<(f64, Vec<usize>)> = Vec::new();
    for start in starts.into_iter().step_by(every) {
        for divisor in 1..=DIVISORS {
            let period_s = (times[start + 1] - times[start]) / f64::from(divisor);
            if period_s > 4.0 * slack_s {
                fits.push(follow(&times, start, period_s, slack_s));
            }
        }
    }
    let most = fits.iter().map(|(_, kept)| kept.len()).max()?;
    let trials = fits.len() as f64;
    let good = fits.into_iter().filter(|(_, kept)| 10 * kept.len() >= 9 * most);
    let (period_s, kept) = good.max_by(|a, b| a.0.total_cmp(&b.0))?;
    // Random times fit it with a probability equal to the slack's fraction of the period.
    let by_chance = times.len() as f64 * 2.0 * slack_s / period_s;
    let more = kept.len() as f64 - 2.0;
    let likely = trials * (std::f64::consts::E * by_chance / more).min(1.0).powf(more);
    let is_source = kept.len() >= FEWEST && 2 * kept.len() >= times.len() && likely < CHANCE;
    is_source.then(|| (period_s, kept.into_iter().map(|index| pulses[index]).collect()))
}

/// Follows a period from one pulse to nearer, then to farther ones. Returns the refined period and the pulses that
/// fit it, in order.
fn follow(times: &[f64], start: usize, period_s: f64, slack_s: f64) -> (f64, Vec<usize>) {
    let origin = times[start];
    let (mut phase_s, mut period_s) = (0.0, period_s);
    // Sums of a straight-line fit of times over pulse numbers.
    let (mut count, mut n, mut nn, mut t, mut nt) = (0.0, 0.0, 0.0, 0.0, 0.0);
    let mut order: Vec<usize> = (0..times.len()).collect();
    order.sort_by(|a, b| (times[*a] - origin).abs().total_cmp(&(times[*b] - origin).abs()));
    let number = |time: f64, phase_s: f64, period_s: f64| {
        let number = ((time - phase_s) / period_s).round();
        ((time - phase_s - number * period_s).abs() <= slack_s).then_some(number)
    };
    for index in order {
        let time = times[index] - origin;
        let Some(number) = number(time, phase_s, period_s) else { continue };
        (count, n, nn) = (count + 1.0, n + number, nn + number * number);
        (t, nt) = (t + time, nt + number * time);
        let spread = count * nn - n * n;
        if spread > 0.0 {
            period_s = (count * nt - n * t) / spread;
            phase_s = (t - n * period_s) / count;
        }
    }
    // Includes pulses missed while the period was less precise.
    let is_kept = |index: &usize| number(times[*index] - origin, phase_s, period_s).is_some();
    (period_s, (0..times.len()).filter(is_kept).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(dm: f64, time_s: f64, snr: f64) -> Candidate {
        let width_s = 5e-3;
        Candidate {
            dm,
            time_s,
            snr,
            width_s,
            members: 1,
            range: 0,
            trial: 0,
            peak_begin_s: time_s,
            peak_end_s: time_s,
            begin_s: time_s,
            end_s: time_s,
            dm_min: dm,
            dm_max: dm,
            band_fraction: 1.0,
        }
    }

    /// Returns a number from 0 to 1 for each index of one of several sequences.
    fn part(index: usize, series: u64) -> f64 {
        let mut word =
            (index as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_mul(2 * series + 1);
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((word ^ (word >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Returns pulses with errors in time and DM, some of them missing, and random others.
    fn mixture(period_s: f64, pulses: usize, others: usize) -> Vec<Candidate> {
        let missed = |i: &usize| part(*i, 1) > 0.3;
        let pulse = |i: usize| {
            let time_s = 1.3 + i as f64 * period_s + 4e-3 * (part(i, 2) - 0.5);
            candidate(42.0 + 4.0 * (part(i, 3) - 0.5), time_s, 8.0 + 9.0 * part(i, 4))
        };
        let span_s = period_s * pulses.max(300) as f64;
        let other = |i: usize| candidate(1000.0 * part(i, 2), span_s * part(i, 1), 6.5);
        let mut all: Vec<_> = (0..pulses).filter(missed).map(pulse).collect();
        all.extend((0..others).map(other));
        all.sort_by(Candidate::order);
        all
    }

    #[test]
    fn a_pulsars_pulses_are_one_source_of_its_period() {
        for (period_s, pulses) in [(0.714_519, 280), (2.85, 21), (0.253_065, 900)] {
            let all = mixture(period_s, pulses, 60);
            let sources = repeating(&all, 1e-3);
            assert_eq!(sources.len(), 1, "{sources:?}");
            let source = &sources[0];
            let error = (source.period_s / period_s - 1.0).abs();
            assert!(error < 1e-2 / (period_s * pulses as f64), "{}", source.period_s);
            assert!((source.dm - 42.0).abs() < 3.0);
            let own = all.iter().filter(|c| c.snr > 7.0).count();
            assert!(source.candidates.len() >= own && source.candidates.len() < own + 5);
            let times = source.candidates.iter().map(|i| all[*i].time_s);
            assert!(times.clone().zip(times.skip(1)).all(|(a, b)| a < b), "in order");
        }
    }

    #[test]
    fn two_pulsars_are_two_and_noise_is_none() {
        let mut all = mixture(0.7, 100, 50);
        all.extend(mixture(1.1, 60, 0).into_iter().map(|c| Candidate { dm: c.dm + 200.0, ..c }));
        all.sort_by(Candidate::order);
        assert_eq!(repeating(&all, 1e-3).len(), 2);
        assert_eq!(repeating(&mixture(1.0, 0, 500), 1e-3), []);
        // At one DM, but at random times: a source without a period is not reported.
        let random = |i: usize| candidate(42.0, 300.0 * part(i, 2), 9.0);
        let random: Vec<_> = (0..40).map(random).collect();
        assert_eq!(repeating(&random, 1e-3), []);
        assert_eq!(repeating(&[], 1e-3), []);
    }
}
