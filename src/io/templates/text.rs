//! CSV files of masses and spins.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use super::binaries::{self, COLUMNS};
use crate::error::{Error, Result};
use crate::io::csv::{Line, lines, shown};
use crate::strain::Binary;

/// Maximum bytes of a file.
const MAX_BYTES: u64 = 1 << 30;

/// Column of names.
const NAME: &str = "name";

/// Reads a file; its first line that is neither empty nor a comment names the columns.
pub(super) fn read(path: &Path) -> Result<Vec<(String, Binary)>> {
    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|file| file.take(MAX_BYTES).read_to_end(&mut bytes))
        .map_err(|error| Error::io(path, error))?;
    match std::str::from_utf8(&bytes) {
        Ok(text) => parse(text, path),
        Err(error) => {
            let why = "found bytes that are no text, expected HDF5, LIGO_LW (.xml, .xml.gz) or CSV";
            Err(Error::format(path, "templates", error.valid_up_to() as u64, why))
        }
    }
}

fn parse(text: &str, path: &Path) -> Result<Vec<(String, Binary)>> {
    let mut columns: Option<Vec<Option<usize>>> = None;
    let mut rows = Vec::new();
    for line in lines(text, path) {
        if line.comment().is_some() {
            continue;
        }
        match &columns {
            None => columns = Some(find(&line)?),
            Some(columns) => rows.push(row(&line, columns)?),
        }
    }
    Ok(rows)
}

/// Returns the column of each field: 0 to 3 are the numbers, 4 is the name, and fields of unknown columns are
/// ignored.
fn find(line: &Line<'_>) -> Result<Vec<Option<usize>>> {
    let fields = line.fields()?;
    let known = |field: &String| {
        let name = field.to_ascii_lowercase();
        COLUMNS.iter().chain(&[NAME]).position(|column| *column == name)
    };
    let columns: Vec<Option<usize>> = fields.iter().map(known).collect();
    for (place, column) in COLUMNS.iter().chain(&[NAME]).enumerate() {
        let found = columns.iter().filter(|known| **known == Some(place)).count();
        if found > 1 {
            return Err(line.fault(column, "found the column a second time"));
        }
        if found == 0 && place < 2 {
            let first: String = fields.join(",");
            let why = format!(
                "found the columns {}, expected mass1,mass2 and any of spin1z,spin2z,name",
                shown(&first)
            );
            return Err(line.fault(column, why));
        }
    }
    Ok(columns)
}

fn row(line: &Line<'_>, columns: &[Option<usize>]) -> Result<(String, Binary)> {
    let fields = line.fields()?;
    if fields.len() > columns.len() {
        let why = format!("found {} fields, expected {}", fields.len(), columns.len());
        return Err(line.fault("columns", why));
    }
    let mut numbers = [f64::NAN, f64::NAN, 0.0, 0.0];
    let mut name = String::new();
    for (field, column) in fields.into_iter().zip(columns) {
        match *column {
            // A missing spin is 0.
            Some(2 | 3) if field.is_empty() => {}
            Some(place) if place < numbers.len() => {
                let any = (f64::MIN, f64::MAX);
                numbers[place] = line.number(COLUMNS[place], &field, any)?;
            }
            Some(_) => name = field,
            None => {}
        }
    }
    if let Some((column, why)) = binaries::fault(&numbers) {
        return Err(line.fault(column, why));
    }
    Ok((name, binaries::binary(numbers)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_text(text: &str) -> std::result::Result<Vec<(String, Binary)>, String> {
        parse(text, Path::new("a.csv")).map_err(|error| error.to_string())
    }

    #[test]
    fn columns_come_in_any_order() {
        let text = "# a bank\nname,Mass2,mass1,colour,spin2z\nfirst,1.4,5,blue,-0.25\n,3,2,,\n";
        let rows = read_text(text).unwrap();
        let expected = Binary { mass1_msun: 5.0, mass2_msun: 1.4, spin1z: 0.0, spin2z: -0.25 };
        assert_eq!(rows[0], ("first".to_string(), expected));
        assert_eq!(rows[1], (String::new(), Binary::of_masses(2.0, 3.0)));
    }

    #[test]
    fn faults_name_line_and_column() {
        let faults = [
            ("mass1,spin1z\n1,2\n", "line 1, mass2"),
            ("1.4,1.4\n", "expected mass1,mass2"),
            ("mass1,mass2,mass1\n", "a second time"),
            ("mass1,mass2\n1.4\n", "line 2, mass2"),
            ("mass1,mass2\n1.4,-1\n", "line 2, mass2"),
            ("mass1,mass2\n1.4,x\n", "line 2, mass2"),
            ("mass1,mass2\n1.4,nan\n", "line 2, mass2"),
            ("mass1,mass2,spin1z\n1.4,1.4,1\n", "line 2, spin1z"),
            ("mass1,mass2\n1.4,1.4,1\n", "found 3 fields"),
        ];
        for (text, named) in faults {
            let error = read_text(text).unwrap_err();
            assert!(error.contains(named), "{text:?}: {error}");
        }
    }
}
