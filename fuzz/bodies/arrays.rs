//! Inputs of an array: antennas and visibilities.

use std::path::Path;

use sidereal::io;
use sidereal::pipeline;

use super::{Outcome, Read, with_file};

/// UVH5: the metadata, and the first and last row of files like those that we write.
pub(super) fn uvh5(bytes: &[u8]) -> Outcome {
    with_file(bytes, |path| {
        let is_one = io::uvh5::is_uvh5(path);
        let summary = io::uvh5::summary(path)?;
        assert!(is_one && summary.rows > 0 && !summary.frequencies_hz.is_empty());
        assert!(summary.first.mjd().is_finite() && summary.last.mjd().is_finite());
        if let Ok(reader) = io::uvh5::Reader::open(path) {
            let last = (summary.integrations - 1, reader.baselines().len() - 1);
            for (integration, baseline) in [(0, 0), last] {
                if let Ok(row) = reader.row(integration, baseline) {
                    assert_eq!(row.samples.len(), row.visibilities.len());
                }
            }
        }
        Ok(Read::Whole)
    })
}

/// Antenna positions: a readable table can be written and read again.
pub(super) fn antennas(bytes: &[u8]) -> Outcome {
    let text = String::from_utf8_lossy(bytes);
    let table = io::antennas::parse(&text, Path::new("fuzz.csv"))?;
    assert!(!table.rows.is_empty());
    assert!(table.rows.iter().flat_map(|row| row.position_m).all(f64::is_finite));
    with_file(b"", |path| {
        io::antennas::write(path, &table).expect("the temporary folder can be written");
        let again = io::antennas::read(path).expect("what was written can be read");
        assert_eq!((again.frame, again.place), (table.frame, table.place));
        assert_eq!(again.rows.len(), table.rows.len());
        for (row, before) in again.rows.iter().zip(&table.rows) {
            assert_eq!((&row.name, row.number), (&before.name, before.number));
            assert_eq!((row.position_m, row.diameter_m), (before.position_m, before.diameter_m));
        }
    });
    pipeline::array(&table, None)?;
    Ok(Read::Whole)
}
