//! One line of a CSV file, and what is said of its faults.

use std::path::Path;

use crate::error::{Error, Result};

/// Longest piece of a field that an error shows.
const SHOWN: usize = 40;

/// A line that is not empty.
#[derive(Clone, Copy, Debug)]
pub(super) struct Line<'a> {
    path: &'a Path,
    /// Counted from 1.
    number: usize,
    /// The byte at which it stands.
    at: u64,
    text: &'a str,
    /// The same with the blanks before and after it, without the line's end.
    whole: &'a str,
}

/// The lines that are not empty.
pub(super) fn lines<'a>(text: &'a str, path: &'a Path) -> impl Iterator<Item = Line<'a>> {
    let mut at = 0;
    let lines = text.split_inclusive('\n').enumerate().map(move |(index, whole)| {
        let text = whole.trim_matches(BLANK).trim();
        let line =
            Line { path, number: index + 1, at, text, whole: whole.trim_end_matches(['\n', '\r']) };
        at += whole.len() as u64;
        line
    });
    lines.filter(|line| !line.text.is_empty())
}

/// What some editors put before a file's first byte.
const BLANK: char = '\u{feff}';

impl<'a> Line<'a> {
    /// What stands behind a `#`.
    pub(super) fn comment(&self) -> Option<&'a str> {
        self.text.strip_prefix('#').map(str::trim)
    }

    /// The line with its blanks: for columns of fixed places.
    pub(super) fn whole(&self) -> &'a str {
        self.whole
    }

    /// The words between blanks.
    pub(super) fn words(&self) -> Vec<&'a str> {
        self.text.split_whitespace().collect()
    }

    /// A fault in a column.
    pub(super) fn fault(&self, column: &str, why: impl Into<String>) -> Error {
        Error::format(self.path, format!("line {}, {column}", self.number), self.at, why)
    }

    /// The fields between commas, without their quotes.
    pub(super) fn fields(&self) -> Result<Vec<String>> {
        let mut fields = Vec::new();
        let mut rest = Some(self.text);
        while let Some(text) = rest {
            let text = text.trim_start();
            let (field, left) = match text.strip_prefix('"') {
                Some(quoted) => self.unquote(quoted)?,
                None => {
                    let (field, left) = text.split_at(text.find(',').unwrap_or(text.len()));
                    (field.trim().to_string(), left)
                }
            };
            fields.push(plain(field));
            rest = match left.trim_start() {
                "" => None,
                more => match more.strip_prefix(',') {
                    Some(rest) => Some(rest),
                    None => return Err(self.fault("quotes", "found more behind a closing quote")),
                },
            };
        }
        Ok(fields)
    }

    /// What stands before the closing quote, and what comes after it.
    fn unquote(&self, text: &'a str) -> Result<(String, &'a str)> {
        let mut field = String::new();
        let mut rest = text;
        loop {
            let Some((part, after)) = rest.split_once('"') else {
                return Err(self.fault("quotes", "found an opening quote without a closing one"));
            };
            field.push_str(part);
            match after.strip_prefix('"') {
                Some(more) => {
                    field.push('"');
                    rest = more;
                }
                None => return Ok((field, after)),
            }
        }
    }

    /// A field that must be a number within `range`.
    pub(super) fn number(
        &self,
        column: &str,
        field: &str,
        (least, most): (f64, f64),
    ) -> Result<f64> {
        let found = field.parse::<f64>().ok().filter(|number| (least..=most).contains(number));
        found.ok_or_else(|| {
            let why = match (least, most) {
                (f64::MIN, f64::MAX) => format!("found {}, expected a number", shown(field)),
                _ => format!("found {}, expected a number from {least} to {most}", shown(field)),
            };
            self.fault(column, why)
        })
    }
}

/// A field as an error shows it.
pub(super) fn shown(field: &str) -> String {
    let short: String = field.chars().take(SHOWN).collect();
    format!("{short:?}")
}

/// A field in quotes where it needs them; one that a spreadsheet would run as a formula has an apostrophe before it.
pub(super) fn quoted(field: &str) -> String {
    let field = field.replace(char::is_control, " ");
    let apostrophe = if is_formula(&field) { "'" } else { "" };
    let bare = field.trim() == field
        && apostrophe.is_empty()
        && !field.contains([',', '"'])
        && !field.starts_with(['#', BLANK]);
    if bare { field } else { format!("\"{apostrophe}{}\"", field.replace('"', "\"\"")) }
}

/// Takes the apostrophe away that [`quoted`] put before a formula.
fn plain(field: String) -> String {
    match field.strip_prefix('\'') {
        Some(formula) if is_formula(formula) => formula.to_owned(),
        _ => field,
    }
}

/// Whether a spreadsheet takes text for a formula, apostrophes before it apart.
fn is_formula(field: &str) -> bool {
    field.trim_start_matches('\'').starts_with(['=', '+', '-', '@'])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_come_back_and_formulas_are_text() {
        let path = Path::new("x.csv");
        for field in [
            "plain",
            "a,b",
            "say \"so\"",
            "=1+1",
            "+x",
            "-3",
            "@SUM(A1)",
            "'=1",
            "''+2",
            "'quoted'",
            "#n",
        ] {
            let written = quoted(field);
            let cell = written.trim_matches('"');
            assert!(!cell.starts_with(['=', '+', '-', '@']), "{written}");
            let text = format!("first,{written}\n");
            let line = lines(&text, path).next().unwrap();
            assert_eq!(line.fields().unwrap()[1], field, "{written}");
        }
    }
}
