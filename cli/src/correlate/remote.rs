//! Recordings and streams of ranks: which rank opens which, and the headers of the others.
//!
//! Invariant: all ranks have the same headers, in the order of the command line.

use sidereal::io::voltages::VoltageSource;
use sidereal::pipeline::correlator::{Ranks, RemoteRecording};
use sidereal::pipeline::part;
use sidereal::{Error, Result};

use super::arguments::Arguments;
use super::inputs::{self, Given};
use crate::ranks;

/// Opens the recordings of this rank's antennas; of the others only the headers are known. `names` are those of the
/// positions.
///
/// # Errors
/// Errors of opening; [`Error::Unavailable`] that names a rank that has failed.
pub(super) fn open(
    arguments: &Arguments,
    given: &[Given],
    names: &[String],
    ranks: &mut Ranks,
) -> Result<Vec<Box<dyn VoltageSource>>> {
    let open = |one: &Given| arguments.lacking.open(&one.files, arguments.allow_gaps);
    // The antennas are known once all headers are; most often each rank has opened its own then.
    let share = ranks.antennas(given.len());
    let opened = given.iter().enumerate();
    let opened = opened.map(|(place, one)| share.contains(&place).then(|| open(one)).transpose());
    let opened = opened.collect::<Result<Vec<Option<_>>>>()?;
    let headers = RemoteRecording::share(&opened, ranks)?;
    let is_own = own(arguments, given, &headers, names, ranks);
    let all = given.iter().zip(opened).zip(headers).zip(is_own);
    let all = all.map(|(((one, opened), header), is_own)| match (is_own, opened) {
        (true, Some(source)) => Ok(source),
        (true, None) => open(one),
        (false, _) => Ok(Box::new(header) as Box<dyn VoltageSource>),
    });
    all.collect()
}

/// Returns whether each recording has an antenna of this rank; none has one if their assignment is an error, which all
/// ranks find.
fn own(
    arguments: &Arguments,
    given: &[Given],
    headers: &[RemoteRecording],
    names: &[String],
    ranks: &Ranks,
) -> Vec<bool> {
    let headers = headers.iter().map(VoltageSource::header);
    let csv = &arguments.array.antennas;
    let Ok((owners, _)) = inputs::owners_of(given, headers, names, csv) else {
        return vec![false; given.len()];
    };
    let number = |name: &String| names.iter().position(|known| known == name);
    let mut correlated: Vec<usize> = owners.iter().flatten().filter_map(number).collect();
    correlated.sort_unstable();
    let own = &correlated[ranks.antennas(correlated.len())];
    let is_own = |name: &String| number(name).is_some_and(|number| own.contains(&number));
    owners.iter().map(|names| names.iter().any(is_own)).collect()
}

/// Returns the rank that receives each stream: equal parts, in the order of the antennas if all streams have names.
///
/// # Errors
/// [`Error::Parameter`] for more ranks than streams.
pub(super) fn readers(given: &[Given], names: &[String], count: usize) -> Result<Vec<usize>> {
    let streams = given.len();
    if count > streams {
        let rule = format!("each rank receives at least one of the {streams} streams");
        return Err(Error::parameter(ranks::OPTION, count, rule));
    }
    let mut order: Vec<usize> = (0..streams).collect();
    if given.iter().all(|one| !one.names.is_empty()) {
        let number = |name: &String| names.iter().position(|known| known == name);
        order.sort_by_key(|place| given[*place].names.iter().filter_map(number).min());
    }
    let mut readers = vec![0; streams];
    for rank in 0..count {
        order[part(streams, rank, count)].iter().for_each(|place| readers[*place] = rank);
    }
    Ok(readers)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    #[test]
    fn streams_are_divided_in_the_order_of_their_antennas() {
        let given = |words: &[&str]| {
            inputs::given(&words.iter().map(PathBuf::from).collect::<Vec<PathBuf>>())
        };
        let names: Vec<String> = ["a", "b", "c", "d"].map(str::to_owned).to_vec();
        let readers = |words: &[&str], count| readers(&given(words), &names, count);
        assert_eq!(readers(&["d=1", "a=2", "c=3", "b=4"], 2).unwrap(), [1, 0, 1, 0]);
        assert_eq!(readers(&["c,d=1", "a,b=2"], 2).unwrap(), [1, 0]);
        assert_eq!(readers(&["1", "a=2", "3"], 2).unwrap(), [0, 1, 1]);
        let error = readers(&["1", "2"], 3).unwrap_err().to_string();
        assert!(error.contains("is 3") && error.contains("2 streams"), "{error}");
    }
}
