//! Elements and text of an XML file, gzipped or not, with their byte offsets.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write as _};
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::read::MultiGzDecoder;
use flate2::write::GzEncoder;
use quick_xml::Reader;
use quick_xml::events::{BytesRef, BytesStart, Event};

use crate::error::{Error, Result};
use crate::io::atomic::AtomicFile;
use crate::io::compressed;
use crate::io::inflate::Bounded;

/// Maximum bytes of decompressed XML; reading more is an error.
pub const MAX_XML_BYTES: u64 = 1 << 29;

/// Maximum nesting depth of elements; LIGO_LW needs at most ten.
const MAX_DEPTH: usize = 64;

/// Maximum bytes of a piece of text.
const PIECE_BYTES: usize = 1 << 16;

/// Magic bytes of gzip.
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// Bytes searched for the name of the document's first element.
const HEAD_BYTES: u64 = 4096;

/// Next item of a document.
#[derive(Debug)]
pub(super) enum Node<'a> {
    /// Start of an element.
    Start(Element),
    /// End of the innermost element.
    End,
    /// Text with its byte offset; an element's text may come in pieces.
    Text(Cow<'a, str>, u64),
    /// End of the document.
    Eof,
}

/// Start tag of an element.
#[derive(Debug)]
pub(super) struct Element {
    pub(super) name: String,
    attributes: Vec<(String, String)>,
    /// Byte offset of the tag.
    pub(super) offset: u64,
}

impl Element {
    /// Returns an attribute's value, if present.
    pub(super) fn attribute(&self, name: &str) -> Option<&str> {
        let found = self.attributes.iter().find(|(own, _)| own == name);
        found.map(|(_, value)| value.as_str())
    }
}

/// Returns whether a file begins with a LIGO_LW document, gzipped or not.
pub fn is_ligolw(path: &Path) -> bool {
    let mut head = Vec::new();
    open(path).is_ok_and(|input| {
        // A short gzip file may return an error after its text.
        let _ = input.take(HEAD_BYTES).read_to_end(&mut head);
        String::from_utf8_lossy(&head).contains("LIGO_LW")
    })
}

fn open(path: &Path) -> Result<Box<dyn BufRead>> {
    let io = |error| Error::io(path, error);
    let file = File::open(path).map_err(io)?;
    let bytes = file.metadata().map_err(io)?.len();
    let mut file = BufReader::new(file);
    if !file.fill_buf().map_err(io)?.starts_with(&GZIP) {
        return Ok(match compressed::is_compressed(path) {
            true => Box::new(BufReader::new(compressed::open(path)?)),
            false => Box::new(file),
        });
    }
    let text = Bounded::new(MultiGzDecoder::new(file), bytes);
    Ok(Box::new(BufReader::with_capacity(PIECE_BYTES, text)))
}

/// A document read sequentially.
pub(super) struct Xml {
    path: PathBuf,
    reader: Reader<std::io::Take<Box<dyn BufRead>>>,
    buffer: Vec<u8>,
    depth: usize,
    /// Bytes of a character split between two pieces of text.
    tail: Vec<u8>,
    /// Whether the last element was an empty-element tag, whose end comes next.
    is_empty: bool,
}

impl Xml {
    pub(super) fn open(path: &Path) -> Result<Self> {
        let reader = Reader::from_reader(open(path)?.take(MAX_XML_BYTES));
        Ok(Self {
            path: path.to_path_buf(),
            reader,
            buffer: Vec::new(),
            depth: 0,
            tail: Vec::new(),
            is_empty: false,
        })
    }

    /// Returns the next element or piece of text; skips comments and instructions.
    pub(super) fn next(&mut self) -> Result<Node<'_>> {
        if std::mem::take(&mut self.is_empty) {
            return Ok(Node::End);
        }
        if self.depth > 0
            && let Some((text, start)) = self.text()?
        {
            return Ok(Node::Text(text.into(), start));
        }
        // The borrow checker rejects returning borrowed text from a loop that may continue, so the text is copied.
        loop {
            self.buffer.clear();
            let start = self.reader.buffer_position();
            let event = self.reader.read_event_into(&mut self.buffer);
            let kind = match event {
                Ok(Event::Start(start_tag)) => {
                    self.depth += 1;
                    if self.depth > MAX_DEPTH {
                        let why = format!("elements lie more than {MAX_DEPTH} deep in each other");
                        return Err(Error::format(&self.path, "XML", start, why));
                    }
                    return element(&self.path, &start_tag, start).map(Node::Start);
                }
                Ok(Event::Empty(tag)) => {
                    self.is_empty = true;
                    return element(&self.path, &tag, start).map(Node::Start);
                }
                Ok(Event::End(_)) => {
                    self.depth = self.depth.saturating_sub(1);
                    return Ok(Node::End);
                }
                Ok(Event::Text(text)) => text.decode().map(Cow::into_owned),
                Ok(Event::CData(text)) => text.decode().map(Cow::into_owned),
                Ok(Event::GeneralRef(name)) => {
                    let letter = reference(&name)
                        .ok_or_else(|| Error::format(&self.path, "XML", start, "unknown &...;"))?;
                    return Ok(Node::Text(letter.to_string().into(), start));
                }
                Ok(Event::Eof) => return self.end(),
                Ok(_) => continue,
                Err(error) => return Err(self.fault(&error, start)),
            };
            return match kind {
                Ok(text) => Ok(Node::Text(text.into(), start)),
                Err(error) => Err(Error::format(&self.path, "XML", start, error.to_string())),
            };
        }
    }

    /// Returns the next piece of text before a tag or a reference, with its offset; `None` if there is none.
    ///
    /// The XML library would load all of an element's text into memory first.
    fn text(&mut self) -> Result<Option<(String, u64)>> {
        loop {
            let at = self.reader.buffer_position();
            let start = at - self.tail.len() as u64;
            let mut stream = self.reader.stream();
            let ready = match stream.fill_buf() {
                Ok(ready) => &ready[..ready.len().min(PIECE_BYTES)],
                Err(error) => return Err(self.fault(&error.into(), at)),
            };
            let end = ready.iter().position(|letter| matches!(letter, b'<' | b'&'));
            let taken = end.unwrap_or(ready.len());
            let is_last = end.is_some() || ready.is_empty();
            let mut bytes = std::mem::take(&mut self.tail);
            bytes.extend_from_slice(&ready[..taken]);
            stream.consume(taken);
            let whole = match std::str::from_utf8(&bytes) {
                Ok(text) => text.len(),
                Err(error) if error.error_len().is_none() && !is_last => error.valid_up_to(),
                Err(error) => {
                    let at = start + error.valid_up_to() as u64;
                    return Err(Error::format(&self.path, "XML", at, error.to_string()));
                }
            };
            self.tail = bytes.split_off(whole);
            match String::from_utf8(bytes) {
                Ok(text) if text.is_empty() && is_last => return Ok(None),
                Ok(text) if !text.is_empty() => return Ok(Some((text, start))),
                // Incomplete character: read on.
                _ => {}
            }
        }
    }

    fn end(&self) -> Result<Node<'_>> {
        let offset = self.reader.buffer_position();
        let why = match (offset >= MAX_XML_BYTES, self.depth) {
            (true, _) => format!("more than {MAX_XML_BYTES} bytes of XML"),
            (false, 0) => return Ok(Node::Eof),
            (false, depth) => format!("the file ends inside of {depth} elements"),
        };
        Err(Error::format(&self.path, "XML", offset, why))
    }

    fn fault(&self, error: &quick_xml::Error, start: u64) -> Error {
        if self.reader.buffer_position() >= MAX_XML_BYTES {
            let why = format!("more than {MAX_XML_BYTES} bytes of XML");
            return Error::format(&self.path, "XML", MAX_XML_BYTES, why);
        }
        match error {
            quick_xml::Error::Io(error) if error.raw_os_error().is_some() => {
                Error::io(&self.path, std::io::Error::new(error.kind(), error.to_string()))
            }
            _ => {
                let offset = self.reader.error_position().max(start);
                Error::format(&self.path, "XML", offset, error.to_string())
            }
        }
    }
}

fn element(path: &Path, tag: &BytesStart<'_>, offset: u64) -> Result<Element> {
    let name = String::from_utf8_lossy(tag.name().as_ref()).into_owned();
    let mut attributes = Vec::new();
    for attribute in tag.attributes() {
        let fault = |why: String| Error::format(path, name.clone(), offset, why);
        let attribute = attribute.map_err(|error| fault(error.to_string()))?;
        let key = String::from_utf8_lossy(attribute.key.as_ref()).into_owned();
        let value = attribute.unescape_value().map_err(|error| fault(error.to_string()))?;
        attributes.push((key, value.into_owned()));
    }
    Ok(Element { name, attributes, offset })
}

/// Returns the character of a reference `&...;`.
fn reference(name: &BytesRef<'_>) -> Option<char> {
    if let Ok(Some(letter)) = name.resolve_char_ref() {
        return Some(letter);
    }
    match &**name {
        b"lt" => Some('<'),
        b"gt" => Some('>'),
        b"amp" => Some('&'),
        b"quot" => Some('"'),
        b"apos" => Some('\''),
        _ => None,
    }
}

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
fn escape(text: &str) -> String {
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

    /// Writes a table of `columns`, names and types with commas between; cells missing at a row's end are empty.
    pub(super) fn table(
        &mut self,
        name: &str,
        columns: &str,
        rows: impl IntoIterator<Item = Vec<Field>>,
    ) -> Result<()> {
        let columns: Vec<(&str, &str)> =
            columns.split(", ").filter_map(|column| column.split_once(' ')).collect();
        let name = format!("{name}:table");
        self.element("Table", &[("Name", &name)], |sink| {
            for (column, kind) in &columns {
                let start = start_tag("Column", &[("Name", column), ("Type", kind)]);
                sink.line(&format!("<{start}/>"))?;
            }
            let stream = [("Name", name.as_str()), ("Delimiter", ","), ("Type", "Local")];
            sink.element("Stream", &stream, |sink| {
                let mut rows = rows.into_iter().peekable();
                while let Some(mut row) = rows.next() {
                    row.resize(columns.len(), Field::Empty);
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
