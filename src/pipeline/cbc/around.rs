//! Signal-to-noise ratios of a template around an event, recomputed from whitened strain.

use std::ops::Range;
use std::sync::Arc;

use num_complex::Complex;

use super::detector::reach;
use super::report::{DetectorReport, Whitened};
use crate::backend::Backend;
use crate::error::Result;
use crate::math::PowerSpectrum;
use crate::spiir::bank::Bank;
use crate::spiir::{self, MAX_HALVINGS, Plan, Spiir};
use crate::strain::BankTemplate;
use crate::units::Gps;

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
    let DetectorReport { bank, start, rate_hz, whitened, .. } = detector;
    let around =
        Around::new(bank, template, Stream { start: *start, rate_hz: *rate_hz }, event, half)?;
    around.ratios(bank, whitened, backend)
}

/// Samples of a detector.
#[derive(Clone, Copy, Debug)]
struct Stream {
    start: Gps,
    rate_hz: u32,
}

/// Ratios of a template around an event, and the strain that they need.
#[derive(Clone, Debug)]
struct Around {
    template: usize,
    stream: Stream,
    plan: Plan,
    /// Range of the ratios, which may begin before the stream.
    wanted: Range<i64>,
    /// Number of samples that the filters need before them.
    reach: usize,
}

impl Around {
    fn new(bank: &Bank, template: usize, stream: Stream, event: Gps, half: usize) -> Result<Self> {
        let one = &bank.templates[template];
        let plan = Plan::new(spiir::Options {
            rate_hz: stream.rate_hz,
            templates: vec![one.filters.clone()],
            resampler: bank.resampler.clone(),
        })?;
        let middle_s = event.seconds_since(stream.start) - one.peak_offset_s;
        let middle = (middle_s * f64::from(stream.rate_hz)).round() as i64;
        let half = i64::try_from(half).unwrap_or(i64::MAX / 4);
        let reach = reach(&one.filters) + plan.latency();
        Ok(Self { template, stream, plan, wanted: middle - half..middle + half + 1, reach })
    }

    /// Returns the range of strain that the filters need.
    fn needed(&self) -> Range<u64> {
        let begin = self.wanted.start.max(0) as u64;
        // Start at a sample that exists at all rates, so that lower rates keep their phase.
        let begin = begin.saturating_sub(self.reach as u64) >> MAX_HALVINGS << MAX_HALVINGS;
        begin..self.wanted.end.max(0) as u64 + self.plan.latency() as u64
    }

    /// Filters whitened strain.
    ///
    /// # Errors
    /// Those of [`Spiir::new`].
    fn ratios(self, bank: &Bank, whitened: &Whitened, backend: &Backend) -> Result<Series> {
        let Range { start: begin, end } = self.needed();
        // Of a store that lacks the first samples, filtering begins with the first that exists at all rates.
        let stored = whitened.first.next_multiple_of(1 << MAX_HALVINGS);
        let (begin, end) = (begin.max(stored), end.min(whitened.times()));
        let place = |sample: i64| (sample.max(0) as u64).clamp(begin.min(end), end);
        let whole = |sample: i64| place(sample).min(whitened.times());
        let (first, last) = (whole(self.wanted.start), whole(self.wanted.end));
        let Self { template, stream: Stream { start, rate_hz }, plan, .. } = self;
        let mut spiir = Spiir::new(plan, backend)?;
        let mut z = vec![Complex::default(); (end.saturating_sub(begin) as usize).max(1)];
        let stride = z.len();
        let strain = whitened.samples(begin..end)?;
        let mut known = spiir.run(&strain, &mut z, stride)?.produced;
        let mut row = vec![Complex::default(); 4096];
        let own = first.saturating_sub(begin) as usize..last.saturating_sub(begin) as usize;
        while known < own.end {
            let produced = spiir.flush(&mut row, 4096)?;
            let count = produced.min(z.len() - known);
            z[known..known + count].copy_from_slice(&row[..count]);
            known += count;
            if count == 0 {
                break;
            }
        }
        let start = start.plus_samples(first as i64, rate_hz);
        Ok(Series {
            start: start.plus_s(bank.templates[template].peak_offset_s),
            rate_hz,
            z: z[own].to_vec(),
        })
    }
}

/// Time in seconds for which live strain is kept, beyond what the filters of the longest template need.
const KEPT_S: f64 = 128.0;

/// Returns the number of samples of whitened strain that a live search keeps for [`Snapshot`]s.
pub(super) fn kept_samples(bank: &Bank) -> usize {
    let reach = bank.templates.iter().map(|one| reach(&one.filters)).max().unwrap_or(0);
    reach + (KEPT_S * f64::from(bank.rate_hz)) as usize
}

/// Copy of a detector's strain from which the ratios of an event's template are computed elsewhere, while the search goes on.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// Name of the detector.
    pub detector: String,
    /// Spectrum of the noise at the time of the copy.
    pub psd: PowerSpectrum,
    bank: Arc<Bank>,
    around: Around,
    whitened: Whitened,
}

/// Detector of a live search, as far as a snapshot needs it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Source<'a> {
    pub(super) detector: &'a str,
    pub(super) bank: &'a Arc<Bank>,
    pub(super) start: Gps,
    /// Latest whitened strain.
    pub(super) whitened: &'a Whitened,
}

impl Snapshot {
    /// Copies the strain for the ratios of a template `half_s` seconds before and after an event.
    ///
    /// # Errors
    /// As [`Spiir::new`].
    pub(super) fn new(
        source: Source<'_>,
        psd: PowerSpectrum,
        template: u32,
        event: Gps,
        half_s: f64,
    ) -> Result<Self> {
        let Source { detector, bank, start, whitened } = source;
        let stream = Stream { start, rate_hz: bank.rate_hz };
        let half = (half_s * f64::from(bank.rate_hz)).round() as usize;
        let around = Around::new(bank, template as usize, stream, event, half)?;
        let whitened = whitened.part(around.needed())?;
        Ok(Self { detector: detector.to_owned(), psd, bank: Arc::clone(bank), around, whitened })
    }

    /// Returns the template.
    pub fn template(&self) -> &BankTemplate {
        &self.bank.templates[self.around.template]
    }

    /// Computes the ratios; `None` if the strain no longer reaches back far enough, or does not yet reach far enough.
    ///
    /// # Errors
    /// As [`Spiir::new`].
    pub fn series(self, backend: &Backend) -> Result<Option<Series>> {
        let wanted = self.around.wanted.clone();
        let is_stored = self.whitened.first <= self.around.needed().start;
        let series = self.around.ratios(&self.bank, &self.whitened, backend)?;
        let is_whole = is_stored && series.z.len() as i64 == wanted.end - wanted.start;
        Ok(is_whole.then_some(series))
    }
}
