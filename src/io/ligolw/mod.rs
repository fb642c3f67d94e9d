//! LIGO_LW: XML tables and series of gravitational-wave events and template banks.
//!
//! The reader supports tables of new files (`int_8s` ids) and old ones (`ilwd:char` ids), gzipped or not. The writer
//! stores events with all data needed for sky localization: [`write_events`].
//!
//! # Source
//! The LIGO Light-Weight XML format (LIGO-T990023) as igwn-ligolw 2.1.1 reads and writes it; ligo.skymap 2.5.4 for
//! the requirements of localization.

mod write;
mod xml;

use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use xml::{Element, Node, Xml};

pub use write::write_events;
pub use write::{DetectorRow, EventRow, EventsFile, PsdRow, SnrSeries, TemplateRow};
pub use xml::{MAX_XML_BYTES, is_ligolw};

/// Cells of a column; `None` for an empty cell.
#[derive(Clone, Debug, PartialEq)]
pub enum Values {
    /// Text (`lstring`, `ilwd:char`, ...).
    Text(Vec<Option<String>>),
    /// Integers (`int_4s`, `int_8s`, ...).
    Whole(Vec<Option<i64>>),
    /// Real numbers (`real_4`, `real_8`); empty cells are NaN.
    Real(Vec<f64>),
}

impl Values {
    /// Makes an empty column of a LIGO_LW type.
    fn of_type(name: &str) -> Option<Self> {
        match name {
            "lstring" | "string" | "char_s" | "char_v" | "ilwd:char" | "ilwd:char_u" | "blob" => {
                Some(Self::Text(Vec::new()))
            }
            "int_2s" | "int_2u" | "int_4s" | "int_4u" | "int_8s" | "int_8u" | "int" => {
                Some(Self::Whole(Vec::new()))
            }
            "real_4" | "real_8" | "float" | "double" => Some(Self::Real(Vec::new())),
            _ => None,
        }
    }

    /// Appends a cell; fails with the expected type.
    fn push(&mut self, cell: Option<String>) -> std::result::Result<(), String> {
        let expected = |text: &str, what| format!("{text:?} found, expected {what}");
        match self {
            Self::Text(values) => values.push(cell),
            Self::Whole(values) => {
                let parse = |text: String| {
                    text.parse().map_err(|_| expected(&text, "a whole number of 64 bits"))
                };
                values.push(cell.map(parse).transpose()?);
            }
            Self::Real(values) => {
                let parse = |text: String| text.parse().map_err(|_| expected(&text, "a number"));
                values.push(cell.map_or(Ok(f64::NAN), parse)?);
            }
        }
        Ok(())
    }
}

/// A column of a table.
#[derive(Clone, Debug, PartialEq)]
pub struct Column {
    /// Name without the table's: `mass1`.
    pub name: String,
    /// Its cells.
    pub values: Values,
}

/// A table of a LIGO_LW file.
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    /// Path of the file.
    pub path: PathBuf,
    /// Name of the table: `sngl_inspiral`.
    pub name: String,
    /// Columns, in file order.
    pub columns: Vec<Column>,
    /// Number of rows: the cells of every column.
    pub rows: usize,
    /// Byte offset of the table in the decompressed file.
    pub offset: u64,
}

impl Table {
    /// Returns a column's cells, if present.
    pub fn column(&self, name: &str) -> Option<&Values> {
        self.columns.iter().find(|column| column.name == name).map(|column| &column.values)
    }

    /// Returns a column's numbers, integers included; `None` if the column is absent.
    ///
    /// # Errors
    /// [`Error::Format`] if it has text, an empty cell, or a non-finite number.
    pub fn optional_reals(&self, name: &str) -> Result<Option<Vec<f64>>> {
        let numbers = match self.column(name) {
            None => return Ok(None),
            Some(Values::Real(numbers)) => numbers.clone(),
            Some(Values::Whole(numbers)) => {
                numbers.iter().map(|number| number.map_or(f64::NAN, |whole| whole as f64)).collect()
            }
            Some(Values::Text(_)) => {
                return Err(self.fault(name, "a column of text found, expected numbers"));
            }
        };
        match numbers.iter().position(|number| !number.is_finite()) {
            Some(row) => {
                let why = format!("row {row} is empty or not finite, expected a number");
                Err(self.fault(name, &why))
            }
            None => Ok(Some(numbers)),
        }
    }

    /// Returns a column's numbers, integers included.
    ///
    /// # Errors
    /// As [`Self::optional_reals`], and if the column is absent.
    pub fn reals(&self, name: &str) -> Result<Vec<f64>> {
        self.optional_reals(name)?.ok_or_else(|| {
            let names: Vec<&str> = self.columns.iter().map(|column| column.name.as_str()).collect();
            self.fault(name, &format!("no such column; there are {}", names.join(", ")))
        })
    }

    /// Returns a column's texts, empty for empty cells; `None` if there is no such column of text.
    pub fn texts(&self, name: &str) -> Option<Vec<&str>> {
        match self.column(name)? {
            Values::Text(texts) => {
                Some(texts.iter().map(|text| text.as_deref().unwrap_or_default()).collect())
            }
            _ => None,
        }
    }

    fn fault(&self, column: &str, why: &str) -> Error {
        let path: &Path = &self.path;
        Error::format(path, format!("{}:{column}", self.name), self.offset, why)
    }
}

/// Maximum number of cells in a table.
const MAX_CELLS: usize = 1 << 25;

/// Cells allowed for any file, and per byte of it: a bound is needed because empty cells compress well.
const CELLS: (u64, u64) = (1 << 22, 8);

/// Maximum number of columns in a table.
const MAX_COLUMNS: usize = 1024;

/// Maximum number of table names in an error.
const TOLD: usize = 20;

/// Reads the table of this name (`sngl_inspiral`) from a LIGO_LW file, gzipped or not.
///
/// Drops prefixes and suffixes of names: `sngl_inspiralgroup:sngl_inspiral:table` is `sngl_inspiral`, and
/// `sngl_inspiral:mass1` is `mass1`. Memory grows with the cells read; no number in the file sizes an allocation.
///
/// # Errors
/// [`Error::Io`]; [`Error::Format`] with the byte offset (in the decompressed XML) for invalid XML, a file without
/// the table or with two of them, an unknown type, a cell that does not fit its column's type, an incomplete last
/// row, more than `MAX_XML_BYTES` of XML or 100 times a gzipped file's size plus 32 MiB, or
/// more than 2^25 cells or 8 times the file's bytes plus 2^22.
pub fn read_table(path: &Path, name: &str) -> Result<Table> {
    let mut xml = Xml::open(path)?;
    let mut search = Search { path, name, found: None, names: Vec::new() };
    let mut is_ligolw = false;
    loop {
        match xml.next()? {
            Node::Start(element) if element.name == "LIGO_LW" => is_ligolw = true,
            Node::Start(element) if element.name == "Table" => search.table(&mut xml, &element)?,
            Node::Start(_) | Node::End | Node::Text(..) => {}
            Node::Eof => break,
        }
    }
    if !is_ligolw {
        return Err(Error::format(
            path,
            "LIGO_LW",
            0,
            "no such element, so it is not a LIGO_LW file",
        ));
    }
    search.result()
}

/// Returns a table's name without prefixes and suffixes.
fn table_name(name: &str) -> &str {
    let bare = name.strip_suffix(":table").unwrap_or(name);
    bare.rsplit(':').next().unwrap_or(bare)
}

/// Returns a column's name without its table's.
fn column_name(name: &str) -> &str {
    name.rsplit(':').next().unwrap_or(name)
}

struct Search<'a> {
    path: &'a Path,
    name: &'a str,
    found: Option<Table>,
    /// Names of the skipped tables.
    names: Vec<String>,
}

impl Search<'_> {
    /// Reads or skips a table.
    fn table(&mut self, xml: &mut Xml, element: &Element) -> Result<()> {
        let name = table_name(element.attribute("Name").unwrap_or_default());
        let wanted = name == self.name;
        if wanted && self.found.is_some() {
            let why = "the file has two tables of this name, expected one";
            return Err(Error::format(self.path, self.name, element.offset, why));
        }
        if !wanted {
            if self.names.len() < TOLD {
                self.names.push(name.to_owned());
            }
            return skip(xml);
        }
        let mut builder = Builder::new(self.path, self.name, element.offset);
        loop {
            match xml.next()? {
                Node::Start(child) if child.name == "Column" => {
                    builder.column(&child)?;
                    skip(xml)?;
                }
                Node::Start(child) if child.name == "Stream" => builder.stream(xml, &child)?,
                Node::Start(_) => skip(xml)?,
                Node::End => break,
                Node::Text(..) => {}
                Node::Eof => break,
            }
        }
        self.found = Some(builder.table);
        Ok(())
    }

    fn result(self) -> Result<Table> {
        self.found.ok_or_else(|| {
            let why = match self.names.as_slice() {
                [] => "the file has no tables".to_owned(),
                names => format!("no such table; there are {}", names.join(", ")),
            };
            Error::format(self.path, self.name, 0, why)
        })
    }
}

/// Skips the rest of an element.
fn skip(xml: &mut Xml) -> Result<()> {
    let mut depth = 1_usize;
    while depth > 0 {
        match xml.next()? {
            Node::Start(_) => depth += 1,
            Node::End => depth -= 1,
            Node::Text(..) => {}
            Node::Eof => return Ok(()),
        }
    }
    Ok(())
}

struct Builder<'a> {
    path: &'a Path,
    table: Table,
    cells: usize,
    most_cells: usize,
    has_stream: bool,
}

impl<'a> Builder<'a> {
    fn new(path: &'a Path, name: &str, offset: u64) -> Self {
        let table = Table {
            path: path.to_path_buf(),
            name: name.to_owned(),
            columns: Vec::new(),
            rows: 0,
            offset,
        };
        let bytes = std::fs::metadata(path).map_or(u64::MAX, |found| found.len());
        let most = bytes.saturating_mul(CELLS.1).saturating_add(CELLS.0);
        let most_cells = most.min(MAX_CELLS as u64) as usize;
        Self { path, table, cells: 0, most_cells, has_stream: false }
    }

    fn fault(&self, column: &str, offset: u64, why: impl Into<String>) -> Error {
        Error::format(self.path, format!("{}:{column}", self.table.name), offset, why)
    }

    fn column(&mut self, element: &Element) -> Result<()> {
        let name = column_name(element.attribute("Name").unwrap_or_default());
        let kind = element.attribute("Type").unwrap_or_default();
        let fault = |why: String| Err(self.fault(name, element.offset, why));
        if name.is_empty() {
            return fault("a column without a name".to_owned());
        }
        if self.has_stream {
            return fault("a column after the stream, expected all of them before it".to_owned());
        }
        if self.table.columns.len() == MAX_COLUMNS {
            return fault(format!("more than {MAX_COLUMNS} columns"));
        }
        if self.table.column(name).is_some() {
            return fault("two columns have this name".to_owned());
        }
        let Some(values) = Values::of_type(kind) else {
            return fault(format!("type {kind:?} found, expected one of text, int or real"));
        };
        self.table.columns.push(Column { name: name.to_owned(), values });
        Ok(())
    }

    fn stream(&mut self, xml: &mut Xml, element: &Element) -> Result<()> {
        if std::mem::replace(&mut self.has_stream, true) {
            return Err(self.fault("Stream", element.offset, "two streams found, expected one"));
        }
        let delimiter = element.attribute("Delimiter").unwrap_or(",");
        let mut letters = delimiter.chars();
        let (Some(delimiter), None) = (letters.next(), letters.next()) else {
            let why = format!("delimiter {delimiter:?} found, expected one character");
            return Err(self.fault("Stream", element.offset, why));
        };
        let encoding = element.attribute("Encoding").unwrap_or("Text");
        let form = element.attribute("Type").unwrap_or("Local");
        if form != "Local" || encoding != "Text" {
            let why = format!("{form}, {encoding} found, expected a local stream of text");
            return Err(self.fault("Stream", element.offset, why));
        }
        let mut cells = Cells::new(delimiter);
        let mut end = element.offset;
        loop {
            match xml.next()? {
                Node::Text(piece, offset) => {
                    end = offset + piece.len() as u64;
                    cells.feed(&piece, offset, |cell| self.cell(cell)).map_err(|f| self.lift(f))?;
                }
                Node::Start(child) => {
                    let why = format!("an element {:?} in the stream", child.name);
                    return Err(self.fault("Stream", child.offset, why));
                }
                Node::End | Node::Eof => break,
            }
        }
        if let Some(cell) = cells.finish(end).map_err(|fault| self.lift(fault))? {
            self.cell(cell).map_err(|fault| self.lift(fault))?;
        }
        self.close(end)
    }

    /// Appends a cell to its column.
    fn cell(&mut self, cell: Cell) -> std::result::Result<(), Fault> {
        let columns = self.table.columns.len();
        let place = self.cells.checked_rem(columns).ok_or_else(|| {
            Fault::of_stream("cells found, but the table has no columns", cell.offset)
        })?;
        if self.cells == self.most_cells {
            let why = format!("more than {} cells", self.most_cells);
            return Err(Fault::of_stream(why, cell.offset));
        }
        let Column { name, values } = &mut self.table.columns[place];
        values.push(cell.text).map_err(|why| Fault {
            column: name.clone(),
            why: format!("row {}: {why}", self.cells / columns),
            offset: cell.offset,
        })?;
        self.cells += 1;
        Ok(())
    }

    /// Counts rows; completes a last row in which only an empty last cell is missing.
    fn close(&mut self, end: u64) -> Result<()> {
        let columns = self.table.columns.len();
        let Some(rest) = self.cells.checked_rem(columns) else { return Ok(()) };
        if columns > 1 && rest == columns - 1 {
            self.cell(Cell { text: None, offset: end }).map_err(|fault| self.lift(fault))?;
        } else if rest != 0 {
            let why = format!("the last row has {rest} of {columns} cells");
            return Err(self.fault("Stream", end, why));
        }
        self.table.rows = self.cells / columns;
        Ok(())
    }

    fn lift(&self, fault: Fault) -> Error {
        self.fault(&fault.column, fault.offset, fault.why)
    }
}

/// Error about a cell.
#[derive(Debug, PartialEq)]
struct Fault {
    column: String,
    why: String,
    offset: u64,
}

impl Fault {
    /// Makes an error about the stream's text.
    fn of_stream(why: impl Into<String>, offset: u64) -> Self {
        Self { column: "Stream".to_owned(), why: why.into(), offset }
    }
}

/// A cell of a stream.
#[derive(Clone, Debug, PartialEq)]
struct Cell {
    /// Its text; `None` if nothing is between two delimiters.
    text: Option<String>,
    /// Byte offset of the cell, after white space.
    offset: u64,
}

/// Incremental splitter: text comes in pieces, and a cell may extend over several.
#[derive(Debug)]
struct Cells {
    delimiter: char,
    text: String,
    offset: u64,
    state: State,
    /// Length of the text without trailing white space.
    solid: usize,
    begun: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    Bare,
    BareEscape,
    Quoted(char),
    QuotedEscape(char),
    /// After a closing quote: only a delimiter may follow.
    Closed,
}

impl Cells {
    fn new(delimiter: char) -> Self {
        Self {
            delimiter,
            text: String::new(),
            offset: 0,
            state: State::Bare,
            solid: 0,
            begun: false,
        }
    }

    /// Processes a piece of text that begins at byte `offset`; calls `cell` for each cell ended by a delimiter.
    ///
    /// Fails with a reason and the byte offset, or with the error of `cell`.
    fn feed(
        &mut self,
        piece: &str,
        offset: u64,
        mut cell: impl FnMut(Cell) -> std::result::Result<(), Fault>,
    ) -> std::result::Result<(), Fault> {
        for (place, letter) in piece.char_indices() {
            let at = offset + place as u64;
            match self.state {
                State::Bare if letter == self.delimiter => cell(self.take(at))?,
                State::Closed if letter == self.delimiter => cell(self.take(at))?,
                State::Bare | State::Closed if letter.is_whitespace() => {
                    if self.begun && self.state == State::Bare {
                        self.text.push(letter);
                    }
                }
                State::Bare if matches!(letter, '"' | '\'') && !self.begun => {
                    (self.offset, self.begun, self.state) = (at, true, State::Quoted(letter));
                }
                State::Bare => {
                    if !self.begun {
                        (self.offset, self.begun) = (at, true);
                    }
                    if letter == '\\' { self.state = State::BareEscape } else { self.push(letter) }
                }
                State::BareEscape => {
                    self.push(letter);
                    self.state = State::Bare;
                }
                State::Quoted(quote) if letter == quote => self.state = State::Closed,
                State::Quoted(quote) if letter == '\\' => self.state = State::QuotedEscape(quote),
                State::Quoted(_) => self.push(letter),
                State::QuotedEscape(quote) => {
                    self.push(letter);
                    self.state = State::Quoted(quote);
                }
                State::Closed => {
                    let why =
                        format!("{letter:?} found after a closing quote, expected a delimiter");
                    return Err(Fault::of_stream(why, at));
                }
            }
        }
        Ok(())
    }

    /// Returns the last cell, which has no delimiter after it; `None` if it is absent.
    fn finish(&mut self, end: u64) -> std::result::Result<Option<Cell>, Fault> {
        match self.state {
            State::Bare | State::Closed => Ok(self.begun.then(|| self.take(end))),
            _ => Err(Fault::of_stream("the stream ends inside of a quoted text", self.offset)),
        }
    }

    fn push(&mut self, letter: char) {
        self.text.push(letter);
        self.solid = self.text.len();
    }

    fn take(&mut self, at: u64) -> Cell {
        self.text.truncate(self.solid);
        let text = self.begun.then(|| std::mem::take(&mut self.text));
        let offset = if self.begun { self.offset } else { at };
        *self = Self::new(self.delimiter);
        Cell { text, offset }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn cells(pieces: &[&str]) -> std::result::Result<Vec<Option<String>>, Fault> {
        let mut found = Vec::new();
        let mut cells = Cells::new(',');
        let mut offset = 0;
        for piece in pieces {
            cells.feed(piece, offset, |cell| {
                found.push(cell.text);
                Ok(())
            })?;
            offset += piece.len() as u64;
        }
        found.extend(cells.finish(offset)?.map(|cell| cell.text));
        Ok(found)
    }

    #[test]
    fn quotes_escapes_and_empty_cells() {
        let some = |text: &str| Some(text.to_owned());
        let found =
            cells(&["\n\t1.5 , \"H1\",,\"a\\\"b\\\\,c\", x\\,y,\"\" ,two words\n"]).unwrap();
        let expected = [
            some("1.5"),
            some("H1"),
            None,
            some("a\"b\\,c"),
            some("x,y"),
            some(""),
            some("two words"),
        ];
        assert_eq!(found, expected);
        assert_eq!(cells(&[" \n "]).unwrap(), []);
        assert_eq!(cells(&["1,", "\n"]).unwrap(), [some("1")]);
    }

    #[test]
    fn pieces_make_no_difference() {
        let text = "\"a b\" , 1e-3,\\\\,,\"é\\\"\",7";
        let whole = cells(&[text]);
        for at in (0..text.len()).filter(|at| text.is_char_boundary(*at)) {
            assert_eq!(cells(&[&text[..at], &text[at..]]), whole);
        }
    }

    #[test]
    fn what_stands_behind_a_quote_or_never_ends_is_a_fault() {
        assert_eq!(cells(&["1,\"a\" b,"]).unwrap_err().offset, 6);
        assert_eq!(cells(&["1,\"a"]).unwrap_err().offset, 2);
        assert!(cells(&["1,a\\"]).is_err());
    }

    const HEAD: &str = "<?xml version='1.0' encoding='utf-8'?>\n\
    <!DOCTYPE LIGO_LW SYSTEM \"http://ldas-sw.ligo.caltech.edu/doc/ligolwAPI/html/ligolw_dtd.txt\">\n";

    /// A document with one table of three columns.
    fn document(rows: &str) -> String {
        format!(
            "{HEAD}<LIGO_LW>\n<Table Name=\"sngl_inspiralgroup:sngl_inspiral:table\">\n\
         <Column Name=\"sngl_inspiralgroup:sngl_inspiral:ifo\" Type=\"lstring\"/>\n\
         <Column Name=\"sngl_inspiral:mass1\" Type=\"real_4\"></Column>\n\
         <Column Name=\"event_id\" Type=\"int_8s\"/>\n\
         <Stream Name=\"sngl_inspiral:table\" Type=\"Local\" Delimiter=\",\">{rows}</Stream>\n\
         </Table><Table Name=\"process:table\"/>\n</LIGO_LW>\n"
        )
    }

    fn read_bytes(bytes: &[u8], name: &str) -> Result<Table> {
        let mut file = tempfile::NamedTempFile::new().expect("a temporary file");
        file.write_all(bytes).expect("bytes");
        read_table(file.path(), name)
    }

    fn read(rows: &str) -> Result<Table> {
        read_bytes(document(rows).as_bytes(), "sngl_inspiral")
    }

    fn why(result: Result<Table>) -> String {
        result.expect_err("a fault").to_string()
    }

    #[test]
    fn columns_are_found_by_their_bare_names() {
        let table = read("\n\"H1\",1.5e1,7,\n\"L1\\\"&amp;&#65;\",-inf,-3\n").expect("a table");
        assert_eq!(table.rows, 2);
        assert_eq!(table.texts("ifo"), Some(vec!["H1", "L1\"&A"]));
        assert_eq!(table.column("mass1"), Some(&Values::Real(vec![15.0, f64::NEG_INFINITY])));
        assert_eq!(table.reals("event_id").expect("numbers"), [7.0, -3.0]);
        assert!(table.optional_reals("mass2").expect("none").is_none());
        assert!(table.reals("mass2").is_err() && table.reals("ifo").is_err());
        assert!(table.reals("mass1").unwrap_err().to_string().contains("row 1"));
    }

    #[test]
    fn empty_streams_and_cells_are_read() {
        assert_eq!(read(" \n ").expect("a table").rows, 0);
        let table = read(",,1,\n\"\",2,").expect("a table");
        assert_eq!(table.column("event_id"), Some(&Values::Whole(vec![Some(1), None])));
        assert_eq!(table.column("ifo"), Some(&Values::Text(vec![None, Some(String::new())])));
    }

    #[test]
    fn gzipped_files_are_read_and_cut_ones_are_not() {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(document("\"H1\",1,2").as_bytes()).expect("in memory");
        let bytes = encoder.finish().expect("in memory");
        assert_eq!(read_bytes(&bytes, "sngl_inspiral").expect("a table").rows, 1);
        assert!(read_bytes(&bytes[..bytes.len() / 2], "sngl_inspiral").is_err());
        let text = document("\"H1\",1,2");
        for end in [0, 5, 100, text.len() / 2, text.len() - 12] {
            assert!(read_bytes(&text.as_bytes()[..end], "sngl_inspiral").is_err(), "{end}");
        }
    }

    #[test]
    fn faults_name_file_column_row_and_byte() {
        let fault = why(read("\"H1\",1.5,7,\"L1\",heavy,8"));
        let byte = document("\"H1\",1.5,7,\"L1\",").len() - document("").len()
            + document("").find("</Stream>").expect("the stream's end");
        assert!(fault.contains("sngl_inspiral:mass1") && fault.contains("row 1"), "{fault}");
        assert!(fault.contains("\"heavy\"") && fault.contains(&format!("byte {byte})")), "{fault}");
        assert!(why(read("\"H1\"")).contains("1 of 3 cells"));
        assert!(why(read("\"H1\" x,1,2")).contains("closing quote"));
        assert!(why(read("\"H1\",1,2.5")).contains("whole number"));
        assert!(why(read("&bomb;")).contains("unknown"));
        assert!(why(read("<b/>")).contains("an element"));
        let bytes = document("");
        let none = why(read_bytes(bytes.as_bytes(), "coinc_event"));
        assert!(none.contains("there are sngl_inspiral, process"), "{none}");
        assert!(why(read_bytes(b"<x/>", "a")).contains("not a LIGO_LW file"));
        assert!(read_table(Path::new("/nowhere/at/all.xml"), "a").is_err());
        let twice = bytes.replace("process:table", "sngl_inspiral:table");
        assert!(why(read_bytes(twice.as_bytes(), "sngl_inspiral")).contains("two tables"));
        let strange = bytes.replace("real_4", "complex_8");
        assert!(why(read_bytes(strange.as_bytes(), "sngl_inspiral")).contains("complex_8"));
    }

    #[test]
    fn depth_has_a_limit() {
        let deep = "<LIGO_LW>".repeat(100);
        assert!(why(read_bytes(deep.as_bytes(), "a")).contains("deep"));
    }

    /// Makes a gzipped document with `piece` repeated `times` times in the stream.
    fn packed(piece: &str, times: usize) -> Vec<u8> {
        let whole = document("|");
        let (before, after) = whole.split_once('|').expect("a stream");
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        gzip.write_all(before.as_bytes()).expect("bytes");
        for _ in 0..times {
            gzip.write_all(piece.as_bytes()).expect("bytes");
        }
        gzip.write_all(after.as_bytes()).expect("bytes");
        gzip.finish().expect("bytes")
    }

    #[test]
    fn a_small_file_that_becomes_large_is_refused() {
        let mib = |piece: &str| piece.repeat((1 << 20) / piece.len());
        let cells = why(read_bytes(&packed(&mib("H1,1,2,"), 64), "sngl_inspiral"));
        assert!(cells.contains("more than") && cells.contains("cells"), "{cells}");
        let text = why(read_bytes(&packed(&mib(" "), 64), "sngl_inspiral"));
        assert!(text.contains("compressed bytes become more than 100 times"), "{text}");
    }

    #[test]
    fn characters_may_lie_across_pieces_of_text() {
        // Characters of three bytes, so that a piece of power-of-two length ends within one.
        let name = "\u{20ac}".repeat(100_000);
        let table = read(&format!("\"{name}\",1,2")).expect("a table");
        assert_eq!(table.texts("ifo"), Some(vec![name.as_str()]));
        let gzip = packed(&format!("\"{name}\",1,2,"), 3);
        let table = read_bytes(&gzip, "sngl_inspiral").expect("a table");
        assert_eq!(table.texts("ifo"), Some(vec![name.as_str(); 3]));
        let mut broken = document("\"\u{20ac}\",1,2").into_bytes();
        let place =
            broken.windows(3).position(|bytes| bytes == "\u{20ac}".as_bytes()).expect("a sign");
        broken.remove(place + 2);
        assert!(why(read_bytes(&broken, "sngl_inspiral")).contains("utf-8"));
    }
}
