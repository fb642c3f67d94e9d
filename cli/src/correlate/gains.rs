//! `--gains`: auto, a number, or a file of complex gains.

use std::path::{Path, PathBuf};

use num_complex::Complex;
use sidereal::pipeline::correlator::Gains;
use sidereal::{Error, Result};

/// Columns that a file of gains may have.
const COLUMNS: [&str; 5] = ["antenna", "polarization", "channel", "re", "im"];

/// Value of `--gains`.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum GainWords {
    Auto,
    Number(f32),
    File(PathBuf),
}

/// Parses the option.
pub(super) fn parse(words: &str) -> std::result::Result<GainWords, String> {
    if words == "auto" {
        return Ok(GainWords::Auto);
    }
    match words.parse::<f32>() {
        Ok(number) if number > 0.0 && number.is_finite() => Ok(GainWords::Number(number)),
        Ok(_) => Err("a number must be above 0".to_owned()),
        Err(_) if Path::new(words).exists() => Ok(GainWords::File(words.into())),
        Err(_) => Err("it must be auto, a number or a file, and there is no such file".to_owned()),
    }
}

/// Axes of a table of gains; channels are all outputs of the filter bank, by rising frequency.
#[derive(Clone, Copy, Debug)]
pub(super) struct Axes<'a> {
    pub(super) antennas: &'a [String],
    pub(super) circular: bool,
    pub(super) polarizations: usize,
    pub(super) channels: usize,
}

impl GainWords {
    /// Returns the named file, if any.
    pub(super) fn file(&self) -> Option<&Path> {
        match self {
            Self::File(path) => Some(path),
            _ => None,
        }
    }

    /// Returns the gains; a file's gains by antenna, polarization and channel.
    ///
    /// # Errors
    /// [`Error::Io`] and [`Error::Format`] of the file.
    pub(super) fn gains(&self, axes: Axes<'_>) -> Result<Gains> {
        Ok(match self {
            Self::Auto => Gains::Auto,
            Self::Number(number) => Gains::Fixed(*number),
            Self::File(path) => {
                let text = std::fs::read_to_string(path).map_err(|error| Error::io(path, error))?;
                Gains::Table(table(path, &text, axes)?)
            }
        })
    }
}

/// Position of each column in a line, and the number of columns.
#[derive(Clone, Copy, Debug, Default)]
struct Columns {
    places: [Option<usize>; COLUMNS.len()],
    count: usize,
}

/// Parses a table with axes antenna, polarization, channel. The first line names the columns; a missing column means
/// that a line applies to all its values; every element must be given exactly once.
fn table(path: &Path, text: &str, axes: Axes<'_>) -> Result<Vec<Complex<f32>>> {
    let Axes { antennas, polarizations, channels, .. } = axes;
    let mut table = vec![None; antennas.len() * polarizations * channels];
    let mut lines = lines(path, text);
    let Some(first) = lines.next() else {
        return Err(Error::format(path, "file", 0, "found no line, expected columns and gains"));
    };
    let columns = columns(&first)?;
    for line in lines {
        let fields = fields(line.words);
        if fields.len() != columns.count {
            let why = format!("found {} fields, expected {}", fields.len(), columns.count);
            return Err(line.fault("columns", why));
        }
        let at = |column: usize| columns.places[column].map(|place| fields[place]);
        let antenna = at(0).map(|name| antenna(&line, name, antennas)).transpose()?;
        let polarization = at(1).map(|name| polarization(&line, name, axes)).transpose()?;
        let channel = at(2).map(|word| channel(&line, word, channels)).transpose()?;
        let value = |column: usize| at(column).map(|word| real(&line, column, word));
        let gain = Complex::new(
            value(3).transpose()?.unwrap_or(0.0),
            value(4).transpose()?.unwrap_or(0.0),
        );
        for antenna in span(antenna, antennas.len()) {
            for polarization in span(polarization, polarizations) {
                for channel in span(channel, channels) {
                    let place = (antenna * polarizations + polarization) * channels + channel;
                    if table[place].replace(gain).is_some() {
                        let why = format!("found {} twice", name_of(axes, place));
                        return Err(line.fault("gain", why));
                    }
                }
            }
        }
    }
    if let Some(place) = table.iter().position(Option::is_none) {
        let why = format!("found none for {}", name_of(axes, place));
        return Err(Error::format(path, "gain", text.len() as u64, why));
    }
    Ok(table.into_iter().flatten().collect())
}

fn span(one: Option<usize>, all: usize) -> std::ops::Range<usize> {
    one.map_or(0..all, |one| one..one + 1)
}

/// Line of a file.
#[derive(Clone, Copy, Debug)]
struct Line<'a> {
    path: &'a Path,
    number: usize,
    offset: usize,
    words: &'a str,
}

impl Line<'_> {
    fn fault(&self, field: &str, why: impl Into<String>) -> Error {
        let field = format!("line {}, {field}", self.number);
        Error::format(self.path, field, self.offset as u64, why)
    }
}

/// Returns the lines that are neither empty nor comments.
fn lines<'a>(path: &'a Path, text: &'a str) -> impl Iterator<Item = Line<'a>> {
    let mut offset = 0;
    let lines = text.split_inclusive('\n').enumerate().map(move |(index, line)| {
        let start = offset;
        offset += line.len();
        Line { path, number: index + 1, offset: start, words: line.trim() }
    });
    lines.filter(|line| !line.words.is_empty() && !line.words.starts_with('#'))
}

/// Splits a line at commas, or at whitespace if it has no comma.
fn fields(line: &str) -> Vec<&str> {
    if line.contains(',') {
        line.split(',').map(str::trim).collect()
    } else {
        line.split_whitespace().collect()
    }
}

fn columns(line: &Line<'_>) -> Result<Columns> {
    let fields = fields(line.words);
    let mut columns = Columns { count: fields.len(), ..Columns::default() };
    for (place, field) in fields.iter().enumerate() {
        let Some(column) = COLUMNS.iter().position(|name| name == field) else {
            let why = format!("found \"{field}\", expected some of {}", COLUMNS.join(", "));
            return Err(line.fault("columns", why));
        };
        if columns.places[column].replace(place).is_some() {
            return Err(line.fault("columns", format!("found {field} twice")));
        }
    }
    if columns.places[3].is_none() {
        return Err(line.fault("columns", "found no re, the gain's real part"));
    }
    Ok(columns)
}

fn antenna(line: &Line<'_>, name: &str, antennas: &[String]) -> Result<usize> {
    let place = antennas.iter().position(|known| known == name);
    let why = || format!("found \"{name}\", expected one of {}", super::inputs::listed(antennas));
    place.ok_or_else(|| line.fault("antenna", why()))
}

fn polarization(line: &Line<'_>, name: &str, axes: Axes<'_>) -> Result<usize> {
    let names = feeds(axes.circular);
    let names = &names[..axes.polarizations];
    let place = names.iter().position(|known| known.eq_ignore_ascii_case(name));
    let number = name.parse::<usize>().ok().filter(|number| *number < axes.polarizations);
    let why = || format!("found \"{name}\", expected {}", names.join(" or "));
    place.or(number).ok_or_else(|| line.fault("polarization", why()))
}

fn channel(line: &Line<'_>, word: &str, channels: usize) -> Result<usize> {
    let number = word.parse::<usize>().ok().filter(|number| *number < channels);
    let why = || format!("found \"{word}\", expected 0 to {}", channels.saturating_sub(1));
    number.ok_or_else(|| line.fault("channel", why()))
}

fn real(line: &Line<'_>, column: usize, word: &str) -> Result<f32> {
    let number = word.parse::<f32>().ok().filter(|number| number.is_finite());
    let why = || format!("found \"{word}\", expected a number");
    number.ok_or_else(|| line.fault(COLUMNS[column], why()))
}

/// Names an element: `antenna a, polarization X, channel 3`.
fn name_of(axes: Axes<'_>, place: usize) -> String {
    let Axes { antennas, polarizations, channels, circular } = axes;
    let (row, channel) = (place / channels, place % channels);
    let feed = feeds(circular)[row % polarizations];
    format!("antenna {}, polarization {feed}, channel {channel}", antennas[row / polarizations])
}

/// Returns the letters of the feeds.
fn feeds(circular: bool) -> [&'static str; 2] {
    if circular { ["R", "L"] } else { ["X", "Y"] }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> std::result::Result<Vec<Complex<f32>>, String> {
        let antennas = ["a".to_owned(), "b".to_owned()];
        let axes = Axes { antennas: &antennas, circular: false, polarizations: 2, channels: 2 };
        table(Path::new("g.csv"), text, axes).map_err(|error| error.to_string())
    }

    fn complex(re: f32, im: f32) -> Complex<f32> {
        Complex::new(re, im)
    }

    #[test]
    fn columns_that_are_not_there_stand_for_all() {
        assert_eq!(read("re\n2.5\n").unwrap(), [complex(2.5, 0.0); 8]);
        let each = read("# by channel\nchannel re im\n0 1 2\n\n1 3 4\n").unwrap();
        assert_eq!(each[..2], [complex(1.0, 2.0), complex(3.0, 4.0)]);
        assert_eq!(each[..2], each[6..]);
        let feeds = read("antenna,polarization,re\na,X,1\nb,x,2\nb,1,3\na,Y,4\n").unwrap();
        let expected = [1.0, 1.0, 4.0, 4.0, 2.0, 2.0, 3.0, 3.0].map(|re| complex(re, 0.0));
        assert_eq!(feeds, expected);
    }

    #[test]
    fn faults_name_the_line() {
        for (text, told) in [
            ("", "found no line"),
            ("gain\n1\n", "\"gain\""),
            ("im\n1\n", "no re"),
            ("re re\n1 1\n", "re twice"),
            ("re im\n1\n", "found 1 fields, expected 2"),
            ("re\none\n", "line 2"),
            ("re\nnan\n", "nan"),
            ("antenna,re\na,1\n", "found none for antenna b, polarization X, channel 0"),
            ("antenna,re\na,1\na,2\n", "antenna a, polarization X, channel 0 twice"),
            ("antenna,re\nc,1\n", "\"c\""),
            ("channel,re\n2,1\n", "expected 0 to 1"),
            ("polarization,re\nR,1\n", "expected X or Y"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(told) && error.contains("g.csv"), "{error}");
        }
    }

    #[test]
    fn the_option_is_a_word_a_number_or_a_file() {
        assert_eq!(parse("auto"), Ok(GainWords::Auto));
        assert_eq!(parse("2.5"), Ok(GainWords::Number(2.5)));
        assert!(parse("0").is_err() && parse("-1").is_err() && parse("nan").is_err());
        assert!(parse("no-such-file").is_err());
    }
}
