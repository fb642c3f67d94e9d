//! Signal-to-noise ratios around one time, recomputed from whitened strain.

use num_complex::Complex;

use super::report::DetectorReport;
use crate::backend::Backend;
use crate::error::Result;
use crate::spiir::{self, Branch, Filter, MAX_HALVINGS, Plan, Spiir, Template};
use crate::units::Gps;

/// Run-in of each filter in units of its memory (e-folding time); after it, earlier input is negligible.
const MEMORIES: f64 = 14.0;

/// Signal-to-noise ratios of one template of one detector.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// Event time that corresponds to the first sample.
    pub start: Gps,
    /// Sample rate.
    pub rate_hz: u32,
    /// The samples.
    pub z: Vec<Complex<f32>>,
}

/// Returns the ratios of `template` in `detector` at the sample nearest to an event's time, and `half` samples on
/// each side, as far as there is strain.
///
/// The filters start early enough that the one with the longest memory has forgotten earlier input; the result
/// differs from the whole stream's ratios by a few parts per million.
///
/// # Errors
/// Those of [`Spiir::new`].
pub fn series(
    detector: &DetectorReport,
    template: usize,
    event: Gps,
    half: usize,
    backend: &Backend,
) -> Result<Series> {
    let one = &detector.bank.templates[template];
    let plan = Plan::new(spiir::Options {
        rate_hz: detector.rate_hz,
        templates: vec![one.filters.clone()],
        resampler: detector.bank.resampler.clone(),
    })?;
    let rate = f64::from(detector.rate_hz);
    let total = detector.whitened.times() as usize;
    let middle_s = event.seconds_since(detector.start) - one.peak_offset_s;
    let middle = (middle_s * rate).round() as i64;
    let place = |sample: i64| (sample.max(0) as usize).min(total);
    let half = i64::try_from(half).unwrap_or(i64::MAX / 4);
    let (first, last) = (place(middle - half), place(middle + half + 1));
    let reach = reach(&one.filters) + plan.latency();
    // Start at a sample that exists at all rates, so that lower rates keep their phase.
    let begin = first.saturating_sub(reach) >> MAX_HALVINGS << MAX_HALVINGS;
    let end = (last + plan.latency()).min(total);
    let mut spiir = Spiir::new(plan, backend)?;
    let mut z = vec![Complex::default(); (end - begin).max(1)];
    let stride = z.len();
    let strain = detector.whitened.samples(begin as u64..end as u64)?;
    let mut known = spiir.run(&strain, &mut z, stride)?.produced;
    let mut row = vec![Complex::default(); 4096];
    while known < last - begin {
        let produced = spiir.flush(&mut row, 4096)?;
        let count = produced.min(z.len() - known);
        z[known..known + count].copy_from_slice(&row[..count]);
        known += count;
        if count == 0 {
            break;
        }
    }
    let start = detector.start.plus_samples(first as i64, detector.rate_hz);
    Ok(Series {
        start: start.plus_s(one.peak_offset_s),
        rate_hz: detector.rate_hz,
        z: z[first - begin..last - begin].to_vec(),
    })
}

/// Returns the memory of a template's filters in samples of strain.
fn reach(filters: &Template) -> usize {
    let of_branch = |branch: &Branch| {
        let of_filter = |filter: &Filter| {
            let memory = -1.0 / filter.pole().norm().ln();
            filter.delay as usize + (MEMORIES * memory).ceil() as usize
        };
        let samples = branch.filters.iter().map(of_filter).max().unwrap_or(0);
        samples.saturating_mul(1 << branch.halvings)
    };
    filters.branches.iter().map(of_branch).max().unwrap_or(0)
}
