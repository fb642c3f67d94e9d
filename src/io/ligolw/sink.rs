//! Streaming XML writer: escapes, buffers and, depending on the name, compresses text.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;

use crate::error::{Error, Result};
use crate::io::atomic::AtomicFile;

/// Bytes of text per write.
const BATCH_BYTES: usize = 1 << 16;

/// A cell or value.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Field {
    Empty,
    Text(String),
    Whole(i64),
    Real(f64),
}

impl From<&str> for Field {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Field {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<i64> for Field {
    fn from(number: i64) -> Self {
        Self::Whole(number)
    }
}

impl From<f64> for Field {
    fn from(number: f64) -> Self {
        Self::Real(number)
    }
}

impl<T: Into<Field>> From<Option<T>> for Field {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Empty, Into::into)
    }
}

/// Formats a number with the fewest digits that preserve it.
pub(super) fn real(number: f64) -> String {
    let magnitude = number.abs();
    if number.is_nan() {
        "nan".to_owned()
    } else if magnitude == 0.0 || (1e-4..1e15).contains(&magnitude) {
        number.to_string()
    } else {
        format!("{number:e}")
    }
}

/// Escapes text for XML; characters without an XML form become U+FFFD.
pub(super) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\t' | '\n' => escaped.push(letter),
            '\u{fffe}' | '\u{ffff}' => escaped.push('\u{fffd}'),
            letter if letter.is_control() => escaped.push('\u{fffd}'),
            letter => escaped.push(letter),
        }
    }
    escaped
}

/// Formats a cell of a stream. An unknown integer is 0, because gwpy parses every cell of an integer column.
fn cell(field: &Field, kind: &str) -> String {
    match field {
        Field::Empty if kind.starts_with("int_") => "0".to_owned(),
        Field::Empty => String::new(),
        // The quotes around a text belong to the stream's syntax and must stay unescaped.
        Field::Text(text) => {
            let quoted = text.replace('\\', "\\\\").replace('"', "\\\"");
            format!("\"{}\"", escape(&quoted).replace("&quot;", "\""))
        }
        Field::Whole(number) => number.to_string(),
        Field::Real(number) => real(*number),
    }
}

/// Unfinished XML file.
pub(super) struct Sink {
    file: AtomicFile,
    gzip: Option<GzEncoder<Vec<u8>>>,
    text: String,
    depth: usize,
}

impl Sink {
    /// Creates a file; compresses it if its name ends in `.gz`.
    pub(super) fn create(path: &Path) -> Result<Self> {
        let file = AtomicFile::create(path)?;
        let wants_gzip = path.extension().is_some_and(|end| end == "gz");
        let gzip = wants_gzip.then(|| GzEncoder::new(Vec::new(), Compression::default()));
        Ok(Self { file, gzip, text: String::new(), depth: 0 })
    }

    /// Writes a line.
    pub(super) fn line(&mut self, words: &str) -> Result<()> {
        self.text.extend(std::iter::repeat_n('\t', self.depth));
        self.text.push_str(words);
        self.text.push('\n');
        if self.text.len() >= BATCH_BYTES { self.give() } else { Ok(()) }
    }

    /// Writes an element with the content that `inside` writes.
    pub(super) fn element(
        &mut self,
        tag: &str,
        attributes: &[(&str, &str)],
        inside: impl FnOnce(&mut Self) -> Result<()>,
    ) -> Result<()> {
        let start = start_tag(tag, attributes);
        self.line(&format!("<{start}>"))?;
        self.depth += 1;
        inside(self)?;
        self.depth -= 1;
        self.line(&format!("</{tag}>"))
    }

    /// Writes an element with text on one line.
    pub(super) fn value(
        &mut self,
        tag: &str,
        attributes: &[(&str, &str)],
        text: &str,
    ) -> Result<()> {
        let start = start_tag(tag, attributes);
        self.line(&format!("<{start}>{}</{tag}>", escape(text)))
    }

    /// Writes a table of (name, type) columns.
    pub(super) fn table(
        &mut self,
        name: &str,
        columns: &[(&str, &str)],
        rows: impl IntoIterator<Item = Vec<Field>>,
    ) -> Result<()> {
        let name = format!("{name}:table");
        self.element("Table", &[("Name", &name)], |sink| {
            for (column, kind) in columns {
                let start = start_tag("Column", &[("Name", column), ("Type", kind)]);
                sink.line(&format!("<{start}/>"))?;
            }
            let stream = [("Name", name.as_str()), ("Delimiter", ","), ("Type", "Local")];
            sink.element("Stream", &stream, |sink| {
                let mut rows = rows.into_iter().peekable();
                while let Some(row) = rows.next() {
                    debug_assert_eq!(row.len(), columns.len());
                    let columns = columns.iter().map(|(_, kind)| *kind);
                    let cells: Vec<String> =
                        row.iter().zip(columns).map(|(field, kind)| cell(field, kind)).collect();
                    // Without its delimiter, an empty cell at the stream's end would be lost.
                    let is_open = rows.peek().is_some() || row.last() == Some(&Field::Empty);
                    let end = if is_open { "," } else { "" };
                    sink.line(&(cells.join(",") + end))?;
                }
                Ok(())
            })
        })
    }

    /// Renames the complete file to its final name.
    pub(super) fn finish(mut self) -> Result<()> {
        self.give()?;
        if let Some(gzip) = self.gzip.take() {
            let rest = gzip.finish().map_err(|error| Error::io(self.file.path(), error))?;
            self.file.append(&rest)?;
        }
        self.file.commit()
    }

    fn give(&mut self) -> Result<()> {
        let Some(gzip) = &mut self.gzip else {
            self.file.append(self.text.as_bytes())?;
            self.text.clear();
            return Ok(());
        };
        let given = gzip.write_all(self.text.as_bytes());
        given.map_err(|error| Error::io(self.file.path(), error))?;
        self.text.clear();
        let done = std::mem::take(gzip.get_mut());
        self.file.append(&done)
    }
}

fn start_tag(tag: &str, attributes: &[(&str, &str)]) -> String {
    let mut start = tag.to_owned();
    for (name, value) in attributes {
        let _ = write!(start, " {name}=\"{}\"", escape(value));
    }
    start
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_texts_keep_their_values() {
        for number in [1e-46, 0.1, -2.5, 0.0, 1e300, 4096.0, f64::MIN_POSITIVE, f64::INFINITY] {
            assert_eq!(real(number).parse(), Ok(number));
        }
        assert_eq!((real(1e-46), real(f64::NAN)), ("1e-46".to_owned(), "nan".to_owned()));
        assert_eq!(
            cell(&Field::from("a\"b\\<&\u{1}"), "lstring"),
            "\"a\\\"b\\\\&lt;&amp;\u{fffd}\""
        );
        assert_eq!(cell(&Field::from(None::<f64>), "real_8"), "");
        assert_eq!(cell(&Field::from(None::<i64>), "int_4s"), "0");
    }
}
