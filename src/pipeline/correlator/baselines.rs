//! Recorded antennas, and the baselines to write.
//!
//! Invariant: baselines (i, j) have i >= j and rise in i, then in j.

use super::inputs::ArrayInput;
use super::options::{Baselines, Missing};
use crate::error::{Error, Result};
use crate::geometry::Array;

/// Output baseline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Baseline {
    /// Antenna numbers in the array, i >= j.
    pub(super) antennas: (usize, usize),
    /// Indices among the correlated antennas; none if either has no recording.
    pub(super) stations: Option<(usize, usize)>,
}

/// Returns the array number of each recorded antenna, in the order of the inputs.
///
/// # Errors
/// [`Error::Parameter`] for a name that the array lacks, an antenna with two recordings, a number of names that
/// differs from the number of antennas or, unless they are to be flagged, antennas without a recording.
pub(super) fn numbers(
    array: &Array,
    inputs: &[ArrayInput],
    missing: Missing,
) -> Result<Vec<usize>> {
    let path = |input: &ArrayInput| input.source.header().path.display().to_string();
    let mut owners: Vec<Option<&ArrayInput>> = vec![None; array.antennas.len()];
    let mut numbers = Vec::new();
    for input in inputs {
        let (expected, actual) = (input.source.header().antennas, input.antennas.len());
        if expected != actual {
            let rule = format!("{} has {expected}, and each needs a name", path(input));
            return Err(Error::parameter("names of antennas", actual, rule));
        }
        for name in &input.antennas {
            let number = array.find(name).ok_or_else(|| {
                let rule = format!("the array has no position for it, and {} is its", path(input));
                Error::parameter("antenna", name, rule)
            })?;
            if let Some(other) = owners[number].replace(input) {
                let rule = format!("both {} and {} are its recordings", path(other), path(input));
                return Err(Error::parameter("antenna", name, rule));
            }
            numbers.push(number);
        }
    }
    if numbers.is_empty() {
        return Err(Error::parameter("antennas", 0, "there must be at least one recording"));
    }
    let absent: Vec<&str> = owners
        .iter()
        .zip(&array.antennas)
        .filter(|(owner, _)| owner.is_none())
        .map(|(_, antenna)| antenna.name.as_str())
        .collect();
    match absent.first() {
        Some(name) if missing == Missing::Fail => {
            let rule = match absent.len() {
                1 => "it has no recording; flag it with --missing flag".to_owned(),
                more => format!(
                    "it and {} others have no recording; flag them with --missing flag",
                    more - 1
                ),
            };
            Err(Error::parameter("antenna", name, rule))
        }
        _ => Ok(numbers),
    }
}

/// Returns the requested baselines; `stations` holds the array numbers of the correlated antennas, ascending.
///
/// # Errors
/// [`Error::Parameter`] for a name that the array lacks, and for an empty list.
pub(super) fn chosen(
    array: &Array,
    asked: &Baselines,
    stations: &[usize],
) -> Result<Vec<Baseline>> {
    let antennas = array.antennas.len();
    let find = |name: &String| {
        let rule = "the array has no antenna of that name";
        array.find(name).ok_or_else(|| Error::parameter("--baselines", name, rule))
    };
    let mut pairs: Vec<(usize, usize)> = match asked {
        Baselines::All => (0..antennas).flat_map(|i| (0..=i).map(move |j| (i, j))).collect(),
        Baselines::Autos => (0..antennas).map(|i| (i, i)).collect(),
        Baselines::List(names) => {
            let pair = |(a, b): &(String, String)| {
                let (a, b) = (find(a)?, find(b)?);
                Ok((a.max(b), a.min(b)))
            };
            names.iter().map(pair).collect::<Result<_>>()?
        }
    };
    if pairs.is_empty() {
        return Err(Error::parameter("--baselines", "none", "there must be at least one"));
    }
    pairs.sort_unstable();
    pairs.dedup();
    let place = |number: usize| stations.binary_search(&number).ok();
    let baseline = |(i, j)| Baseline { antennas: (i, j), stations: place(i).zip(place(j)) };
    Ok(pairs.into_iter().map(baseline).collect())
}
