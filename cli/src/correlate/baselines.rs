//! `--baselines`: all, auto, or pairs of antennas.

use sidereal::pipeline::correlator::Baselines;
use sidereal::{Error, Result};

use super::inputs::listed;

/// Parses `all`, `auto` or `A-B,C-D`; `A-A` is an autocorrelation. Names may contain a `-`.
///
/// # Errors
/// [`Error::Parameter`] for text that is not a pair of known antennas or is ambiguous.
pub(super) fn parse(words: &str, known: &[String]) -> Result<Baselines> {
    match words {
        "all" => return Ok(Baselines::All),
        "auto" | "autos" => return Ok(Baselines::Autos),
        _ => {}
    }
    let pairs = words.split(',').map(|pair| parse_pair(pair.trim(), known));
    pairs.collect::<Result<_>>().map(Baselines::List)
}

fn parse_pair(words: &str, known: &[String]) -> Result<(String, String)> {
    let is_known = |name: &str| known.iter().any(|other| other == name);
    let dashes = words.match_indices('-').map(|(place, _)| (&words[..place], &words[place + 1..]));
    let mut pairs = dashes.filter(|(first, second)| is_known(first) && is_known(second));
    let refuse = |rule: String| Err(Error::parameter("--baselines", words, rule));
    match (pairs.next(), pairs.next()) {
        (Some((first, second)), None) => Ok((first.to_owned(), second.to_owned())),
        (Some(_), Some(_)) => refuse("it can be read as several pairs of antennas".to_owned()),
        (None, _) => {
            refuse(format!("it must be all, auto or pairs such as A-B,C-D, of {}", listed(known)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_two_antennas() {
        let known: Vec<String> = ["a", "b", "s-1", "1", "s", "a-s"].map(str::to_owned).into();
        let list = |pairs: &[(&str, &str)]| {
            let owned = |(a, b): &(&str, &str)| ((*a).to_owned(), (*b).to_owned());
            Baselines::List(pairs.iter().map(owned).collect())
        };
        assert_eq!(parse("all", &known).unwrap(), Baselines::All);
        assert_eq!(parse("auto", &known).unwrap(), Baselines::Autos);
        assert_eq!(parse("a-b, b-b", &known).unwrap(), list(&[("a", "b"), ("b", "b")]));
        assert_eq!(parse("s-1-b", &known).unwrap(), list(&[("s-1", "b")]));
        for (words, told) in [
            ("a-s-1", "several"),
            ("a-c", "6 antennas (a, b,"),
            ("a", "such as A-B"),
            ("", "must be"),
        ] {
            let error = parse(words, &known).unwrap_err().to_string();
            assert!(error.contains(told), "{error}");
        }
    }
}
