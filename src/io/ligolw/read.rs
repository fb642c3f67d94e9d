//! Reader of one table of a LIGO_LW file.

use std::path::Path;

use super::cells::{Cell, Cells};
use super::table::{Column, Table, Values};
use super::xml::{Element, Node, Xml};
use crate::error::{Error, Result};

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
/// row, more than [`MAX_XML_BYTES`](super::MAX_XML_BYTES) of XML or 100 times a gzipped file's size plus 32 MiB, or
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
        return Err(Error::format(path, "LIGO_LW", 0, "no such element, so it is no LIGO_LW file"));
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
            return fault("a column behind the stream, expected all of them before it".to_owned());
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
        if let Some(cell) = cells.finish(end).map_err(|fault| self.lift(fault.into()))? {
            self.cell(cell).map_err(|fault| self.lift(fault))?;
        }
        self.close(end)
    }

    /// Appends a cell to its column.
    fn cell(&mut self, cell: Cell) -> std::result::Result<(), Fault> {
        let columns = self.table.columns.len();
        let place = self.cells.checked_rem(columns).ok_or_else(|| {
            Fault::from(("cells found, but the table has no columns".to_owned(), cell.offset))
        })?;
        if self.cells == self.most_cells {
            return Err((format!("more than {} cells", self.most_cells), cell.offset).into());
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
struct Fault {
    column: String,
    why: String,
    offset: u64,
}

impl From<(String, u64)> for Fault {
    fn from((why, offset): (String, u64)) -> Self {
        Self { column: "Stream".to_owned(), why, offset }
    }
}

#[cfg(test)]
mod tests;
