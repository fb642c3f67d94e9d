//! Banks of binaries: PyCBC's HDF5 files and LIGO_LW tables.

use std::path::Path;

use super::binaries::{self, COLUMNS, SPINS_ACROSS};
use super::hdf5::Input;
use crate::error::{Error, Result};
use crate::io::ligolw::{self, Values};
use crate::strain::Binary;

/// Data sets required in a bank.
const MASSES: [&str; 2] = ["mass1", "mass2"];

/// Data set of template names.
const NAMES: &str = "template_hash";

/// Returns whether an HDF5 file is a bank.
pub(super) fn is_bank(file: &Input) -> bool {
    MASSES.iter().all(|name| file.has(name))
}

/// Reads a PyCBC bank.
pub(super) fn read(file: &Input) -> Result<Vec<(String, Binary)>> {
    let mut columns = Vec::new();
    for name in COLUMNS {
        columns.push(match file.has(name) {
            true => Some(file.numbers(name)?.column(file, name)?),
            false => None,
        });
    }
    let rows = columns[0].as_ref().map_or(0, Vec::len);
    for name in SPINS_ACROSS.into_iter().filter(|name| file.has(name)) {
        check_zeros(&file.numbers(name)?.column(file, name)?)
            .map_err(|why| file.fault(name, why))?;
    }
    let names = match file.has(NAMES) {
        true => file.whole_texts(NAMES, rows)?,
        false => None,
    };
    let binaries = join(&columns, rows).map_err(|(name, why)| file.fault(name, why))?;
    Ok(named(binaries, names))
}

/// Reads the table `sngl_inspiral` of a LIGO_LW file.
pub(super) fn read_table(path: &Path) -> Result<Vec<(String, Binary)>> {
    let table = ligolw::read_table(path, "sngl_inspiral")?;
    let fault = |name: &str, why: String| {
        Error::format(path, format!("sngl_inspiral:{name}"), table.offset, why)
    };
    let mut columns = Vec::new();
    for name in MASSES {
        columns.push(Some(table.reals(name)?));
    }
    for name in &COLUMNS[MASSES.len()..] {
        columns.push(table.optional_reals(name)?);
    }
    for name in SPINS_ACROSS {
        if let Some(spins) = table.optional_reals(name)? {
            check_zeros(&spins).map_err(|why| fault(name, why))?;
        }
    }
    let names = match table.column("event_id") {
        Some(Values::Whole(ids)) if ids.iter().all(Option::is_some) => {
            Some(ids.iter().flatten().map(i64::to_string).collect())
        }
        // Old id format: sngl_inspiral:event_id:17.
        Some(Values::Text(ids)) => {
            let last = |id: &String| id.rsplit(':').next().unwrap_or_default().trim().to_string();
            Some(ids.iter().flatten().map(last).collect())
        }
        _ => None,
    };
    let binaries = join(&columns, table.rows).map_err(|(name, why)| fault(name, why))?;
    Ok(named(binaries, names))
}

/// Joins columns to rows; a missing column is 0.
fn join(
    columns: &[Option<Vec<f64>>],
    rows: usize,
) -> std::result::Result<Vec<Binary>, (&'static str, String)> {
    for (name, column) in COLUMNS.iter().zip(columns) {
        if let Some(column) = column.as_ref().filter(|column| column.len() != rows) {
            return Err((name, format!("{} rows found, expected {rows}", column.len())));
        }
    }
    (0..rows)
        .map(|row| {
            let mut numbers = [0.0; 4];
            for (number, column) in numbers.iter_mut().zip(columns) {
                *number = column.as_ref().map_or(0.0, |column| column[row]);
            }
            match binaries::fault(&numbers) {
                Some((name, why)) => Err((name, format!("row {row}: {why}"))),
                None => Ok(binaries::binary(numbers)),
            }
        })
        .collect()
}

fn check_zeros(spins: &[f64]) -> std::result::Result<(), String> {
    match spins.iter().position(|spin| *spin != 0.0) {
        Some(row) => Err(format!(
            "row {row}: found a spin of {} across the orbit's axis, expected spins along it",
            spins[row]
        )),
        None => Ok(()),
    }
}

/// Pairs binaries with names, or with their index if names are missing, empty or not unique.
fn named(binaries: Vec<Binary>, names: Option<Vec<String>>) -> Vec<(String, Binary)> {
    let distinct = |names: &Vec<String>| {
        let mut sorted: Vec<&str> = names.iter().map(String::as_str).collect();
        sorted.sort_unstable();
        names.len() == binaries.len()
            && !names.iter().any(String::is_empty)
            && sorted.windows(2).all(|pair| pair[0] != pair[1])
    };
    match names.filter(distinct) {
        Some(names) => names.into_iter().zip(binaries).collect(),
        None => binaries.into_iter().enumerate().map(|(row, b)| (row.to_string(), b)).collect(),
    }
}
