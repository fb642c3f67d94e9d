//! Recordings of `correlate`: which file holds which antennas, and antennas without one.

use std::path::{Path, PathBuf};

use sidereal::io::voltages::{VoltageHeader, VoltageSource};
use sidereal::pipeline::correlator::{ArrayHeader, ArrayInput, Integration};
use sidereal::{Error, Result};

use crate::voltage_arguments::Lacking;

/// Most names that an error lists.
const LISTED: usize = 12;

/// Recording from the command line: the antennas' names, if any, and its files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Given {
    pub(super) names: Vec<String>,
    pub(super) files: Vec<PathBuf>,
}

/// Rule that assigned recordings to antennas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Matched {
    /// Names from the command line or from the recordings' headers.
    Names,
    /// Order of the positions.
    Order,
}

/// Parses `FILE` and `NAME=FILE`; commas separate several names, and files with the same names are parts of one
/// recording.
pub(super) fn given(words: &[PathBuf]) -> Vec<Given> {
    let mut all: Vec<Given> = Vec::new();
    for word in words {
        let (names, file) = split(word);
        match all.iter_mut().find(|one| !names.is_empty() && one.names == names) {
            Some(one) => one.files.push(file),
            None => all.push(Given { names, files: vec![file] }),
        }
    }
    all
}

/// Splits an argument into names and file; if a file with the whole argument's name exists, there are no names.
fn split(word: &Path) -> (Vec<String>, PathBuf) {
    let pair = word.to_str().and_then(|text| text.split_once('='));
    match pair.filter(|(names, file)| !names.is_empty() && !file.is_empty() && !word.exists()) {
        Some((names, file)) => (names.split(',').map(str::to_owned).collect(), file.into()),
        None => (Vec::new(), word.to_path_buf()),
    }
}

/// Opens recordings.
///
/// # Errors
/// As [`Lacking::open`].
pub(super) fn open(
    given: &[Given],
    lacking: &Lacking,
    allow_gaps: bool,
) -> Result<Vec<Box<dyn VoltageSource>>> {
    given.iter().map(|one| lacking.open(&one.files, allow_gaps)).collect()
}

/// Assigns each recording to its antennas; `known` are the names in `positions`.
///
/// # Errors
/// [`Error::Parameter`] for a recording that does not match an antenna or matches several.
pub(super) fn assign(
    given: &[Given],
    opened: Vec<Box<dyn VoltageSource>>,
    known: &[String],
    positions: &Path,
) -> Result<(Vec<ArrayInput>, Matched)> {
    let headers = opened.iter().map(|source| source.header());
    let (names, matched) = owners_of(given, headers, known, positions)?;
    let inputs = names.into_iter().zip(opened);
    let inputs = inputs.map(|(antennas, source)| ArrayInput { antennas, source });
    Ok((inputs.collect(), matched))
}

/// Returns the names of the antennas of each recording, by its header; `known` are the names in `positions`.
///
/// # Errors
/// As [`assign`].
pub(super) fn owners_of<'a>(
    given: &'a [Given],
    headers: impl Iterator<Item = &'a VoltageHeader>,
    known: &[String],
    positions: &Path,
) -> Result<(Vec<Vec<String>>, Matched)> {
    let claims: Vec<Claim<'_>> =
        given.iter().zip(headers).map(|(one, header)| Claim::new(one, header)).collect();
    owners(&claims, known, positions)
}

/// Information that a recording gives about its antenna.
#[derive(Clone, Debug)]
struct Claim<'a> {
    file: &'a Path,
    names: &'a [String],
    /// Telescope or antenna name in its header.
    telescope: &'a str,
    antennas: usize,
}

impl<'a> Claim<'a> {
    fn new(given: &'a Given, header: &'a VoltageHeader) -> Self {
        let (file, names) = (given.files[0].as_path(), given.names.as_slice());
        Self { file, names, telescope: header.telescope.trim(), antennas: header.antennas }
    }
}

/// Returns the names of each recording's antennas.
fn owners(
    claims: &[Claim<'_>],
    known: &[String],
    positions: &Path,
) -> Result<(Vec<Vec<String>>, Matched)> {
    for claim in claims.iter().filter(|claim| !claim.names.is_empty()) {
        check_named(claim, known, positions)?;
    }
    let in_order = in_order(claims, known);
    let by_header = by_header(claims, known);
    let unnamed = claims.iter().filter(|claim| claim.names.is_empty());
    let matched = match (&by_header, unnamed.clone().count()) {
        (Some(_), _) | (None, 0) => Matched::Names,
        _ => Matched::Order,
    };
    let mut found = match by_header.or(in_order) {
        Some(found) => found.into_iter(),
        None => return Err(unclear(claims, known, positions)),
    };
    let owner = |claim: &Claim<'_>| match claim.names {
        [] => found.next().unwrap_or_default(),
        names => names.to_vec(),
    };
    let owners: Vec<Vec<String>> = claims.iter().map(owner).collect();
    check_twice(claims, &owners)?;
    Ok((owners, matched))
}

fn check_named(claim: &Claim<'_>, known: &[String], positions: &Path) -> Result<()> {
    let file = claim.file.display();
    if claim.names.len() != claim.antennas {
        let rule = format!("{file} has {} antennas", claim.antennas);
        let found = format!("{} for {file}", claim.names.join(","));
        return Err(Error::parameter("FILE's names", found, rule));
    }
    match claim.names.iter().find(|name| !known.contains(name)) {
        None => Ok(()),
        Some(stranger) => {
            let rule = format!("{} has {}", positions.display(), listed(known));
            let found = format!("{stranger} for {file}");
            Err(Error::parameter("FILE's antenna", found, rule))
        }
    }
}

/// Assigns recordings without names by their headers, if each names a different antenna of the positions.
fn by_header(claims: &[Claim<'_>], known: &[String]) -> Option<Vec<Vec<String>>> {
    let given: Vec<&String> = claims.iter().flat_map(|claim| claim.names).collect();
    let mut found: Vec<Vec<String>> = Vec::new();
    for claim in claims.iter().filter(|claim| claim.names.is_empty()) {
        let name = known.iter().find(|name| *name == claim.telescope)?;
        let taken = found.iter().any(|other| other[0] == *name) || given.contains(&name);
        if taken || claim.antennas != 1 {
            return None;
        }
        found.push(vec![name.clone()]);
    }
    Some(found)
}

/// Assigns recordings without names to the remaining antennas in order, if the numbers match and no header names a
/// known antenna.
fn in_order(claims: &[Claim<'_>], known: &[String]) -> Option<Vec<Vec<String>>> {
    let mut unnamed = claims.iter().filter(|claim| claim.names.is_empty());
    if unnamed.any(|claim| known.iter().any(|name| name == claim.telescope)) {
        return None;
    }
    let given: Vec<&String> = claims.iter().flat_map(|claim| claim.names).collect();
    let mut free = known.iter().filter(|name| !given.contains(name)).cloned();
    let unnamed: Vec<usize> =
        claims.iter().filter(|claim| claim.names.is_empty()).map(|claim| claim.antennas).collect();
    if unnamed.iter().sum::<usize>() != free.clone().count() {
        return None;
    }
    Some(unnamed.into_iter().map(|antennas| free.by_ref().take(antennas).collect()).collect())
}

fn check_twice(claims: &[Claim<'_>], owners: &[Vec<String>]) -> Result<()> {
    let mut seen: Vec<(&String, &Path)> = Vec::new();
    for (claim, names) in claims.iter().zip(owners) {
        for name in names {
            if let Some((_, other)) = seen.iter().find(|(known, _)| *known == name) {
                let rule = format!("{} is of the same antenna", other.display());
                let found = format!("{name} for {}", claim.file.display());
                return Err(Error::parameter("FILE's antenna", found, rule));
            }
            seen.push((name, claim.file));
        }
    }
    Ok(())
}

/// Creates the error for recordings that neither names nor order can assign.
fn unclear(claims: &[Claim<'_>], known: &[String], positions: &Path) -> Error {
    let unnamed = || claims.iter().filter(|claim| claim.names.is_empty());
    let is_known = |claim: &&Claim<'_>| known.iter().any(|name| name == claim.telescope);
    let same = |claim: &&Claim<'_>| {
        let others = claims.iter().filter(|other| !std::ptr::eq(*other, *claim));
        let names = |other: &Claim<'_>| other.names.iter().any(|name| name == claim.telescope);
        is_known(claim) && { others }.any(|o| o.telescope == claim.telescope || names(o))
    };
    let stranger = unnamed().find(|claim| !is_known(claim));
    let Some(claim) = unnamed().rfind(same).or(stranger).or(unnamed().next()) else {
        return Error::parameter("FILE", "none", "there must be at least one recording");
    };
    let header = match claim.telescope {
        "" => "its header has no antenna's name".to_owned(),
        name if same(&claim) => format!("other recordings are of antenna \"{name}\" too"),
        name => format!("its header says \"{name}\""),
    };
    let antennas: usize = claims.iter().map(|claim| claim.antennas).sum();
    let rule = format!(
        "{header}, {} has {}, and the recordings have {antennas}: write NAME={}",
        positions.display(),
        listed(known),
        claim.file.display(),
    );
    Error::parameter("FILE", claim.file.display(), rule)
}

/// Formats a list: `3 antennas (a, b, c)`.
pub(super) fn listed(names: &[String]) -> String {
    let shown = names[..names.len().min(LISTED)].join(", ");
    let more = if names.len() > LISTED { ", ..." } else { "" };
    let plural = if names.len() == 1 { "" } else { "s" };
    format!("{} antenna{plural} ({shown}{more})", names.len())
}

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

#[cfg(test)]
mod tests {
    use super::*;

    fn names(words: &str) -> Vec<String> {
        words.split_whitespace().map(str::to_owned).collect()
    }

    fn claim<'a>(
        file: &'a str,
        names: &'a [String],
        telescope: &'a str,
        antennas: usize,
    ) -> Claim<'a> {
        Claim { file: Path::new(file), names, telescope, antennas }
    }

    fn found(claims: &[Claim<'_>], known: &str) -> std::result::Result<(String, Matched), String> {
        let owners = owners(claims, &names(known), Path::new("p.csv"));
        let (owners, matched) = owners.map_err(|error| error.to_string())?;
        Ok((owners.iter().map(|names| names.join("+")).collect::<Vec<_>>().join(" "), matched))
    }

    #[test]
    fn words_are_files_with_or_without_names() {
        let words = ["a=x.dada", "b.dada", "a=y.dada", "c,d=z.raw", "=w"].map(PathBuf::from);
        let given = given(&words);
        let expected = [
            (names("a"), vec!["x.dada", "y.dada"]),
            (names(""), vec!["b.dada"]),
            (names("c d"), vec!["z.raw"]),
            (names(""), vec!["=w"]),
        ];
        for (one, (names, files)) in given.iter().zip(expected) {
            let files: Vec<PathBuf> = files.into_iter().map(PathBuf::from).collect();
            assert_eq!(*one, Given { names, files });
        }
        assert_eq!(given.len(), 4);
    }

    #[test]
    fn names_go_before_headers_and_headers_before_order() {
        let b = names("b");
        let given = [claim("1", &b, "a", 1), claim("2", &[], "c", 1), claim("3", &[], "a", 1)];
        assert_eq!(found(&given, "a b c d").unwrap(), ("b c a".to_owned(), Matched::Names));
        let ordered =
            [claim("1", &[], "site", 1), claim("2", &b, "b", 1), claim("3", &[], "site", 1)];
        assert_eq!(found(&ordered, "a b c").unwrap(), ("a b c".to_owned(), Matched::Order));
        let several = [claim("1", &[], "", 3), claim("2", &[], "", 1)];
        assert_eq!(found(&several, "a b c d").unwrap(), ("a+b+c d".to_owned(), Matched::Order));
    }

    #[test]
    fn what_is_unclear_is_an_error() {
        let (z, a, ab) = (names("z"), names("a"), names("a b"));
        for (claims, told) in [
            (vec![claim("1", &z, "", 1)], "z for 1"),
            (vec![claim("1", &a, "", 1), claim("2", &a, "", 1)], "same antenna"),
            (vec![claim("1", &ab, "", 1)], "1 has 1 antennas"),
            (vec![claim("1", &[], "q", 1)], "its header says \"q\""),
            (vec![claim("1", &[], "", 1)], "write NAME=1"),
            (vec![claim("1", &[], "a", 1), claim("2", &[], "a", 1)], "antenna \"a\" too"),
            (vec![claim("1", &a, "", 1), claim("2", &[], "a", 1)], "antenna \"a\" too"),
            (
                vec![claim("1", &[], "a", 1), claim("2", &[], "a", 1), claim("3", &[], "c", 1)],
                "antenna \"a\" too",
            ),
        ] {
            let error = found(&claims, "a b c").unwrap_err();
            assert!(error.contains(told), "{error}");
        }
    }
}
