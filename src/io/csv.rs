//! Lines of a CSV file and errors about them.

use std::ops::RangeInclusive;
use std::path::Path;

use crate::error::{Error, Result};

/// Characters of a field shown in an error.
const SHOWN: usize = 40;

/// Every finite number.
pub(super) const ANY: RangeInclusive<f64> = f64::MIN..=f64::MAX;

/// A line that is not empty.
#[derive(Clone, Copy, Debug)]
pub(super) struct Line<'a> {
    path: &'a Path,
    /// Line number, from 1.
    number: usize,
    /// Byte offset of the line.
    at: u64,
    text: &'a str,
    /// The line with its leading and trailing spaces, without its line end.
    whole: &'a str,
}

/// Iterates over the lines that are not empty.
pub(super) fn lines<'a>(text: &'a str, path: &'a Path) -> impl Iterator<Item = Line<'a>> {
    let mut at = 0;
    let lines = text.split_inclusive('\n').enumerate().map(move |(index, whole)| {
        let text = whole.trim_matches(BYTE_ORDER_MARK).trim();
        let line =
            Line { path, number: index + 1, at, text, whole: whole.trim_end_matches(['\n', '\r']) };
        at += whole.len() as u64;
        line
    });
    lines.filter(|line| !line.text.is_empty())
}

/// Byte-order mark that some editors write.
const BYTE_ORDER_MARK: char = '\u{feff}';

impl<'a> Line<'a> {
    /// Returns the text after a leading `#`.
    pub(super) fn comment(&self) -> Option<&'a str> {
        self.text.strip_prefix('#').map(str::trim)
    }

    /// Returns the line with its spaces, for fixed columns.
    pub(super) fn whole(&self) -> &'a str {
        self.whole
    }

    /// Returns the whitespace-separated words.
    pub(super) fn words(&self) -> Vec<&'a str> {
        self.text.split_whitespace().collect()
    }

    /// Makes an error about a column.
    pub(super) fn fault(&self, column: &str, why: impl Into<String>) -> Error {
        Error::format(self.path, format!("line {}, {column}", self.number), self.at, why)
    }

    /// Splits the line into comma-separated fields, without quotes.
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
                    None => return Err(self.fault("quotes", "found text after a closing quote")),
                },
            };
        }
        Ok(fields)
    }

    /// Returns the text before the closing quote, and the rest.
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

    /// Parses a field as a number within `range`; [`ANY`] is every finite number.
    pub(super) fn number(
        &self,
        column: &str,
        field: &str,
        range: RangeInclusive<f64>,
    ) -> Result<f64> {
        let found = field.parse::<f64>().ok().filter(|number| range.contains(number));
        found.ok_or_else(|| {
            let (found, least, most) = (shown(field), range.start(), range.end());
            let why = match range == ANY {
                true => format!("found {found}, expected a number"),
                false => format!("found {found}, expected a number from {least} to {most}"),
            };
            self.fault(column, why)
        })
    }
}

/// Formats a field for an error.
pub(super) fn shown(field: &str) -> String {
    let short: String = field.chars().take(SHOWN).collect();
    format!("{short:?}")
}

/// Quotes a field if necessary; prefixes an apostrophe to a field that a spreadsheet would execute as a formula.
pub fn quoted(field: &str) -> String {
    let field = field.replace(char::is_control, " ");
    let apostrophe = if is_formula(&field) { "'" } else { "" };
    let bare = field.trim() == field
        && apostrophe.is_empty()
        && !field.contains([',', '"'])
        && !field.starts_with(['#', BYTE_ORDER_MARK]);
    if bare { field } else { format!("\"{apostrophe}{}\"", field.replace('"', "\"\"")) }
}

/// Removes the apostrophe that [`quoted`] prefixed to a formula.
fn plain(field: String) -> String {
    match field.strip_prefix('\'') {
        Some(formula) if is_formula(formula) => formula.to_owned(),
        _ => field,
    }
}

/// Returns whether a spreadsheet would take a text for a formula, leading apostrophes ignored.
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
