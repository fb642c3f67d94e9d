//! File without its rows: hdf5-pure writes each row data set with one placeholder element; `finish` then patches in
//! its length and address.

use std::path::Path;

use hdf5_pure::{FileBuilder, Layout};

use super::contents::{self, Built, Counts, add_rows};
use super::header::Header;
use super::rows::Rows;
use crate::error::{Error, Result};
use crate::io::hdf5_patch::{DatasetPatch, patch};

/// Alignment of each row data set, in bytes.
const ALIGNMENT: u64 = 4096;

/// File layout.
#[derive(Clone, Debug)]
pub(super) struct Skeleton {
    reserved: u64,
    /// Address of the first row and bytes per row, for each of [`Rows::ALL`].
    places: Vec<(u64, u64)>,
}

impl Skeleton {
    pub(super) fn new(path: &Path, header: &Header) -> Result<Self> {
        // The header length does not depend on the counts.
        let reserved = build(path, header, Counts::new(header, 1))?.len() as u64;
        let mut end = reserved;
        let mut places = Vec::new();
        for rows in Rows::ALL {
            let row_bytes = rows.row_bytes(header);
            let start = end.next_multiple_of(ALIGNMENT);
            places.push((start, row_bytes));
            let bytes = (header.integrations as u64)
                .checked_mul(header.baselines.len() as u64)
                .and_then(|rows| rows.checked_mul(row_bytes))
                .and_then(|bytes| bytes.checked_add(start))
                .filter(|end| *end < i64::MAX as u64 - ALIGNMENT);
            end = bytes.ok_or_else(|| {
                let rule = "the visibilities of all of them are more than a file can hold";
                Error::parameter("integrations", header.integrations, rule)
            })?;
        }
        Ok(Self { reserved, places })
    }

    /// Returns the file offset of a row.
    pub(super) fn offset(&self, which: Rows, row: u64) -> u64 {
        let (start, row_bytes) = self.places[which as usize];
        start + row * row_bytes
    }

    /// Returns the length of a file with `rows` rows.
    pub(super) fn end(&self, rows: u64) -> u64 {
        self.places.last().map_or(self.reserved, |(start, row_bytes)| start + rows * row_bytes)
    }

    /// Returns the start of the file, with the counts of the rows written.
    pub(super) fn finish(&self, path: &Path, header: &Header, counts: Counts) -> Result<Vec<u8>> {
        let mut bytes = build(path, header, counts)?;
        let placeholders = placeholders(&bytes).map_err(|error| fault(path, &error))?;
        let places: Vec<DatasetPatch> = Rows::ALL
            .iter()
            .zip(self.places.iter().zip(placeholders))
            .map(|(rows, (&(start, row_bytes), placeholder))| {
                let axes = [counts.rows].into_iter().chain(rows.row_axes(header)).collect();
                DatasetPatch { placeholder, axes, start, bytes: counts.rows * row_bytes }
            })
            .collect();
        let last = places.iter().map(|place| place.start + place.bytes).max().unwrap_or(0);
        let is_whole = bytes.len() as u64 == self.reserved && patch(&mut bytes, &places, last);
        if !is_whole {
            let why = "the HDF5 library laid the file out in an unknown way".to_string();
            return Err(Error::Unavailable { what: path.display().to_string(), why });
        }
        Ok(bytes)
    }
}

/// Finds the addresses of the placeholder elements that hdf5-pure wrote for [`Rows::ALL`].
fn placeholders(bytes: &[u8]) -> std::result::Result<Vec<u64>, hdf5_pure::Error> {
    let file = hdf5_pure::File::from_bytes(bytes.to_vec())?;
    let find = |rows: Rows| {
        let layout = file.dataset(&rows.path())?.layout()?;
        // Address 0 is the superblock's, so it marks a data set without a contiguous address.
        let Layout::Contiguous { address, .. } = layout else { return Ok(0) };
        Ok(address.unwrap_or(0))
    };
    Rows::ALL.into_iter().map(find).collect()
}

fn fault(path: &Path, error: &hdf5_pure::Error) -> Error {
    Error::format(path, "HDF5", 0, error.to_string())
}

fn build(path: &Path, header: &Header, counts: Counts) -> Result<Vec<u8>> {
    let built = fill(header, counts).map_err(hdf5_pure::Error::Format);
    built.and_then(FileBuilder::finish).map_err(|error| fault(path, &error))
}

fn fill(header: &Header, counts: Counts) -> Built<FileBuilder> {
    let mut builder = FileBuilder::new();
    let mut group = builder.create_group("Header");
    contents::fill(&mut group, header, counts)?;
    builder.add_group(group.finish());
    let mut group = builder.create_group("Data");
    for rows in Rows::ALL.into_iter().filter(|rows| rows.is_data()) {
        add_rows(&mut group, rows)?;
    }
    builder.add_group(group.finish());
    Ok(builder)
}
