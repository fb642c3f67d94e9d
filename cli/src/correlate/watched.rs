//! Visibilities of some baselines for a watcher of a live correlation.

use num_complex::Complex;
use sidereal::geometry::Array;
use sidereal::pipeline::correlator::{ArrayHeader, Integration};
use sidereal::{Error, Result};

use crate::watch::Session;

/// Baselines without a choice, and most that may be chosen.
const DEFAULT: usize = 4;
const MOST: usize = 8;

/// Checks the baselines that a user has chosen.
///
/// # Errors
/// [`Error::Parameter`] for too many, or a name that is not that of two antennas.
pub(super) fn check(chosen: &[String], array: &Array) -> Result<()> {
    let option = "--page-baselines";
    if chosen.len() > MOST {
        return Err(Error::parameter(option, chosen.len(), format!("at most {MOST} are shown")));
    }
    let count = array.antennas.len();
    let pairs = || (0..count).flat_map(move |i| (0..count).map(move |j| (i, j)));
    match chosen.iter().find(|name| !pairs().any(|(i, j)| name_of(array, i, j) == **name)) {
        Some(name) => {
            let example = name_of(array, 0, count - 1);
            let rule = format!("expected two antennas of the positions, as in {example}");
            Err(Error::parameter(option, name, rule))
        }
        None => Ok(()),
    }
}

fn name_of(array: &Array, i: usize, j: usize) -> String {
    format!("{}-{}", array.antennas[i].name, array.antennas[j].name)
}

/// Passes the chosen baselines of each integration to the watcher.
pub(super) struct Watched<'a> {
    session: &'a Session,
    /// Places in the header's list, whether the phase is that of the other direction, and names.
    places: Vec<Place>,
    names: Vec<String>,
    baselines: usize,
    values: Vec<Complex<f64>>,
}

#[derive(Clone, Copy)]
struct Place {
    baseline: usize,
    is_reversed: bool,
}

impl<'a> Watched<'a> {
    /// Chooses the baselines of an observation; none without a watcher.
    pub(super) fn new(session: &'a Session, header: &ArrayHeader) -> Self {
        let (mut places, mut names) = (Vec::new(), Vec::new());
        let chosen = if session.watcher.is_some() { session.baselines.as_slice() } else { &[] };
        for name in chosen {
            let direct = |(i, j): &(usize, usize)| name_of(&header.array, *i, *j) == *name;
            let reversed = |(i, j): &(usize, usize)| name_of(&header.array, *j, *i) == *name;
            let found = header.baselines.iter().position(|pair| direct(pair) || reversed(pair));
            if let Some(baseline) = found {
                places.push(Place { baseline, is_reversed: !direct(&header.baselines[baseline]) });
                names.push(name.clone());
            }
        }
        if chosen.is_empty() && session.watcher.is_some() {
            let crossed = header.baselines.iter().enumerate().filter(|(_, (i, j))| i != j);
            for (baseline, (i, j)) in crossed.take(DEFAULT) {
                places.push(Place { baseline, is_reversed: false });
                names.push(name_of(&header.array, *i, *j));
            }
        }
        let values = Vec::with_capacity(places.len());
        Self { session, places, names, baselines: header.baselines.len(), values }
    }

    /// Takes an integration.
    pub(super) fn add(&mut self, integration: &Integration) {
        if self.places.is_empty() {
            return;
        }
        self.values.clear();
        for place in &self.places {
            self.values.push(mean(integration, *place, self.baselines));
        }
        self.session.tell(|watcher| watcher.visibilities(&self.names, &self.values));
    }
}

/// Returns the mean over valid samples of all channels of a baseline's first pair of polarizations; 0 without any.
fn mean(integration: &Integration, place: Place, baselines: usize) -> Complex<f64> {
    let channels = integration.counts.len() / baselines.max(1);
    let pairs = integration.sums.len() / integration.counts.len().max(1);
    let first = place.baseline * channels;
    let sums = integration.sums[first * pairs..].iter().step_by(pairs.max(1));
    let sum: Complex<f64> = sums.take(channels).sum();
    let count: u64 = integration.counts[first..][..channels].iter().sum();
    let mean = sum / count.max(1) as f64;
    if place.is_reversed { mean.conj() } else { mean }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mean_is_that_of_valid_samples_of_its_baseline() {
        let mut integration = Integration::new();
        // Two baselines of two channels and two pairs.
        integration.counts = vec![9, 9, 1, 3];
        let values = [7, 7, 7, 7, 2, 7, 6, 7].map(|re| Complex::new(f64::from(re), 4.0));
        integration.sums = values.to_vec();
        let of = |baseline, is_reversed| mean(&integration, Place { baseline, is_reversed }, 2);
        assert_eq!(of(1, false), Complex::new(2.0, 2.0));
        assert_eq!(of(1, true), Complex::new(2.0, -2.0));
        integration.counts.fill(0);
        integration.sums.fill(Complex::new(0.0, 0.0));
        assert_eq!(
            mean(&integration, Place { baseline: 0, is_reversed: false }, 2),
            Complex::new(0.0, 0.0)
        );
    }
}
