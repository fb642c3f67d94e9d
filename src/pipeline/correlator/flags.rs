//! Spectra invalidated by flagged samples under their window.
//!
//! Invariant: what is found does not depend on how it is asked for.

use std::ops::Range;

use crate::io::voltages::Flag;

/// Range of invalid spectra and recorded channels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Bad {
    pub(super) spectra: Range<u64>,
    pub(super) coarse: Range<usize>,
}

/// Flags of one antenna, by ascending start.
#[derive(Clone, Debug)]
pub(super) struct Flags {
    /// Sample range and recorded-channel range of each flag.
    all: Vec<(Range<u64>, Range<usize>)>,
    /// Running maximum of the flags' ends.
    ends: Vec<u64>,
}

impl Flags {
    pub(super) fn none() -> Self {
        Self { all: Vec::new(), ends: Vec::new() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Selects the flags of an antenna's streams; a flag on one polarization applies to both.
    pub(super) fn new(flags: &[Flag], streams: &Range<usize>, polarizations: usize) -> Self {
        let own = |flag: &Flag| {
            let first = flag.streams.start.max(streams.start);
            let last = flag.streams.end.min(streams.end);
            let samples = flag.start..flag.start.saturating_add(flag.times);
            (first < last && flag.times > 0).then(|| {
                let coarse = (first - streams.start) / polarizations
                    ..(last - streams.start).div_ceil(polarizations);
                (samples, coarse)
            })
        };
        let mut all: Vec<_> = flags.iter().filter_map(own).collect();
        all.sort_by_key(|(samples, _)| samples.start);
        let latest = all.iter().scan(0, |latest, (samples, _)| {
            *latest = samples.end.max(*latest);
            Some(*latest)
        });
        Self { ends: latest.collect(), all }
    }

    /// Appends the invalid ranges within `spectra`. Spectrum `s` covers `span` samples from `s hop + origin`; all of
    /// them must exist.
    pub(super) fn find(
        &self,
        spectra: &Range<u64>,
        origin: i64,
        (hop, span): (u64, u64),
        found: &mut Vec<Bad>,
    ) {
        let at = |spectrum: u64| spectrum as i64 * hop as i64 + origin;
        let (from, to) = (at(spectra.start), at(spectra.end) - hop as i64 + span as i64);
        let first = self.ends.partition_point(|end| (*end as i64) <= from);
        let last = self.all.partition_point(|(samples, _)| (samples.start as i64) < to);
        for (samples, coarse) in &self.all[first.min(last)..last] {
            // First spectrum whose window ends after the flag's start, and first that begins at or after its end.
            let start = (samples.start as i64 - span as i64 - origin).div_euclid(hop as i64) + 1;
            let end = (samples.end as i64 - origin).div_euclid(hop as i64)
                + i64::from((samples.end as i64 - origin).rem_euclid(hop as i64) > 0);
            let start = start.max(spectra.start as i64) as u64;
            let end = end.clamp(0, spectra.end as i64) as u64;
            if start < end {
                found.push(Bad { spectra: start..end, coarse: coarse.clone() });
            }
        }
    }
}

/// Returns the first spectrum with at least one valid recorded channel.
pub(super) fn lead(bad: &[Bad], spectra: &Range<u64>, coarse: usize) -> Option<u64> {
    let mut leads = vec![spectra.start; coarse];
    let mut sorted: Vec<&Bad> = bad.iter().collect();
    sorted.sort_by_key(|bad| bad.spectra.start);
    for bad in sorted {
        for lead in leads[bad.coarse.clone()].iter_mut().filter(|lead| bad.spectra.start <= **lead)
        {
            *lead = bad.spectra.end.max(*lead);
        }
    }
    leads.into_iter().min().filter(|lead| *lead < spectra.end)
}

/// Counts the invalid cells (spectrum, recorded channel), each once.
pub(super) fn cells(bad: &[Bad], coarse: usize) -> u64 {
    let mut ends = vec![0; coarse];
    let mut sorted: Vec<&Bad> = bad.iter().collect();
    sorted.sort_by_key(|bad| bad.spectra.start);
    let mut cells = 0;
    for bad in sorted {
        for end in &mut ends[bad.coarse.clone()] {
            cells += bad.spectra.end.saturating_sub(bad.spectra.start.max(*end));
            *end = bad.spectra.end.max(*end);
        }
    }
    cells
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_counted_once() {
        let bad = |spectra, coarse| Bad { spectra, coarse };
        let all = [bad(5..9, 0..2), bad(2..6, 1..3), bad(3..4, 1..2), bad(5..9, 0..2)];
        assert_eq!(cells(&all, 3), 4 + 7 + 4);
        assert_eq!(cells(&[], 3), 0);
    }

    #[test]
    fn a_spectrum_is_bad_when_its_window_touches_a_flag() {
        for (hop, span) in [(1, 1), (8, 8), (8, 32)] {
            for origin in [-9, 0, 5] {
                for start in 0..80 {
                    let flag = |start, times| Flag { streams: 1..2, start, times };
                    let list = [flag(start, 7), flag(60, 1)];
                    let flags = Flags::new(&list, &(0..4), 2);
                    // Spectra whose samples all exist.
                    let spectra = 2..20u64;
                    let mut found = Vec::new();
                    flags.find(&spectra, origin, (hop, span), &mut found);
                    assert!(found.iter().all(|bad| bad.coarse == (0..1)));
                    for spectrum in spectra {
                        let first = spectrum as i64 * hop as i64 + origin;
                        let touched = list.iter().any(|flag| {
                            let from = flag.start as i64;
                            first < from + flag.times as i64 && first + span as i64 > from
                        });
                        let is_bad = found.iter().any(|bad| bad.spectra.contains(&spectrum));
                        assert_eq!(is_bad, touched, "{hop} {span} {origin} {start} {spectrum}");
                    }
                }
            }
        }
    }

    #[test]
    fn the_lead_ends_where_one_channel_is_valid() {
        let bad = |spectra, coarse| Bad { spectra, coarse };
        let list = [bad(6..9, 0..2), bad(0..4, 0..1), bad(0..6, 1..2), bad(3..7, 0..1)];
        assert_eq!(lead(&list, &(0..20), 2), Some(9));
        assert_eq!(lead(&list, &(0..9), 2), None);
        assert_eq!(lead(&list[1..], &(0..9), 2), Some(6));
        assert_eq!(lead(&[], &(5..9), 2), Some(5));
    }
}
