//! Detection of antennas that recorded only zeros, which no flag reports.

use sidereal::pipeline::correlator::{ArrayHeader, Integration};

/// State of each antenna's autocorrelation.
#[derive(Debug)]
pub(super) struct Silent {
    baselines: usize,
    /// Index of each autocorrelation among the baselines, and its antenna.
    places: Vec<(usize, usize)>,
    /// Whether each antenna had valid samples, and whether a sum was not 0.
    seen: Vec<(bool, bool)>,
}

impl Silent {
    pub(super) fn new(header: &ArrayHeader) -> Self {
        let baselines = header.baselines.iter().enumerate();
        let places: Vec<(usize, usize)> =
            baselines.filter(|(_, (i, j))| i == j).map(|(place, (i, _))| (place, *i)).collect();
        let seen = vec![(false, false); places.len()];
        Self { baselines: header.baselines.len(), places, seen }
    }

    /// Adds an integration.
    pub(super) fn add(&mut self, integration: &Integration) {
        let sums = integration.sums.len() / self.baselines.max(1);
        let counts = integration.counts.len() / self.baselines.max(1);
        for ((place, _), (valid, alive)) in self.places.iter().zip(&mut self.seen) {
            let own = &integration.counts[place * counts..][..counts];
            *valid |= own.iter().any(|count| *count > 0);
            let own = &integration.sums[place * sums..][..sums];
            *alive |= own.iter().any(|sum| sum.re != 0.0);
        }
    }

    /// Returns the names of antennas whose valid samples are all 0.
    pub(super) fn names(&self, header: &ArrayHeader) -> Vec<String> {
        let seen = self.places.iter().zip(&self.seen);
        let dead = seen.filter(|(_, (valid, alive))| *valid && !alive);
        dead.map(|((_, antenna), _)| header.array.antennas[*antenna].name.clone()).collect()
    }
}
