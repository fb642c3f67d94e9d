//! Reference implementation of the search: plain loops in double precision.
//!
//! Invariant: sums of integers below 2^53 are exact; their squares are summed in 128 bits.

use super::partial::{Block, has_variance};
use super::plan::Plan;
use super::rules::{
    Clip, Event, Hit, Moments, Noise, Statistics, Sweep, Threshold, guess_indices, noise,
    statistics,
};

/// Returns the events of one complete trial.
///
/// `snr[t, w] = (sum_{i < w} y[t + i] - w mu) / (sigma sqrt(w))`, with the noise `mu`, `sigma` of
/// the window that holds `t`, at the starts `t` that are multiples of the width's stride.
pub fn search(plan: &Plan, dm: usize, series: &[f64]) -> Vec<Event> {
    let mut series = series.to_vec();
    let mut events = Vec::new();
    let (mut sweep, mut last) = (Sweep::default(), Noise::default());
    for start in (0..series.len()).step_by(plan.window_times()) {
        let window = &series[start..series.len().min(start + plan.window_times())];
        let own = statistics(plan, (start / plan.window_times()) as u64, window.len());
        match own {
            Statistics::Own => last = window_noise(plan, window),
            Statistics::Preceding => {}
            Statistics::None => break,
        }
        let end = series.len().min(start + plan.capacity());
        let reach = &mut series[start..end];
        reach.iter_mut().filter(|y| !y.is_finite()).for_each(|y| *y = repaired(last.mean));
        for mut hit in best_of_starts(window_hits(plan, reach, last)) {
            hit.time += start as u64;
            events.extend(sweep.offer(hit));
        }
    }
    events.extend(sweep.end());
    events.into_iter().map(|hit: Hit| hit.event(dm)).collect()
}

/// Returns the replacement of a non-finite sample, rounded as a float series holds it.
fn repaired(mean: f64) -> f64 {
    f64::from(mean as f32)
}

pub(super) fn window_noise(plan: &Plan, window: &[f64]) -> Noise {
    let mut guess: Vec<f64> =
        guess_indices(window.len()).map(|i| window[i]).filter(|y| y.is_finite()).collect();
    let integer = plan.input_is_integer();
    noise(
        &mut guess,
        integer,
        |clip| if integer { exact(window, clip) } else { float(window, clip) },
    )
}

fn exact(window: &[f64], clip: Clip) -> Moments {
    let (mut count, mut sum, mut squares) = (0u64, 0i128, 0i128);
    for difference in window.iter().map(|y| y - clip.centre).filter(|d| d.abs() <= clip.limit) {
        count += 1;
        sum += difference as i128;
        squares += (difference as i128) * (difference as i128);
    }
    Moments { count: count as f64, sum: sum as f64, squares: squares as f64 }
}

fn float(window: &[f64], clip: Clip) -> Moments {
    let (mut count, mut sum, mut squares) = (0.0, 0.0, 0.0);
    let within = |d: &f64| d.is_finite() && d.abs() <= clip.limit;
    for difference in window.iter().map(|y| y - clip.centre).filter(within) {
        count += 1.0;
        sum += difference;
        squares += difference * difference;
    }
    Moments { count, sum, squares }
}

/// Returns the strongest hit of each start, the narrowest of equal ones.
fn best_of_starts(hits: Vec<Hit>) -> Vec<Hit> {
    let mut best: Vec<Hit> = Vec::new();
    for hit in hits {
        match best.last_mut() {
            Some(last) if last.time == hit.time => {
                if hit.snr > last.snr {
                    *last = hit;
                }
            }
            _ => best.push(hit),
        }
    }
    best
}

/// Returns every boxcar at or above its threshold, by start, then by width.
fn window_hits(plan: &Plan, reach: &[f64], noise: Noise) -> Vec<Hit> {
    let mut hits = Vec::new();
    if noise.sigma == 0.0 {
        return hits;
    }
    for time in 0..reach.len().min(plan.window_times()) {
        for &width in plan.widths() {
            if !time.is_multiple_of(plan.stride(width)) || time + width > reach.len() {
                continue;
            }
            let sum: f64 = reach[time..time + width].iter().sum();
            let threshold = Threshold::new(plan, noise, width);
            if sum >= threshold.least {
                let snr = threshold.snr(sum);
                hits.push(Hit { time: time as u64, width: width as u64, snr });
            }
        }
    }
    hits
}

/// Returns time, width and significance of the strongest boxcar of each start of a block that reaches the threshold
/// and holds a sample that lacks channels.
pub(super) fn partial_hits(plan: &Plan, block: Block<'_>) -> Vec<(i64, u64, f64)> {
    let Block { series, expected, first, starts, span, sigma } = block;
    let mut hits = Vec::new();
    for time in starts.clone() {
        let mut best = None;
        for &width in plan.widths() {
            let boxcar = time..time + width as i64;
            let is_searched =
                span.searched.start <= boxcar.start && boxcar.end <= span.searched.end;
            let is_whole = span.whole.start <= boxcar.start && boxcar.end <= span.whole.end;
            let is_there = boxcar.end <= first + series.len() as i64;
            if !is_searched || is_whole || !is_there || time % plan.stride(width) as i64 != 0 {
                continue;
            }
            let samples = (boxcar.start - first) as usize..(boxcar.end - first) as usize;
            let noise = &expected[samples.clone()];
            let share: f64 = noise.iter().map(|noise| noise.share).sum();
            let above: f64 =
                series[samples].iter().zip(noise).map(|(y, noise)| y - noise.sum).sum();
            let snr = above / (sigma * share.sqrt());
            if has_variance(share, width)
                && snr >= plan.options().snr
                && best.is_none_or(|(_, _, best)| snr > best)
            {
                best = Some((time, width as u64, snr));
            }
        }
        hits.extend(best);
    }
    hits
}
