//! Reader of a UVH5 file's visibilities, row by row.
//!
//! Invariant: memory does not grow with the number of integrations.

use std::collections::{BTreeSet, HashMap};
use std::path::Path;

use hdf5_pure::Dataset;
use num_complex::Complex;

use super::summary::{Fields, MAX_LINES, Summary};
use crate::error::Result;
use crate::io::hdf5::Element;

/// Name and position of an antenna in a file.
#[derive(Clone, Debug, PartialEq)]
pub struct Station {
    /// Its name.
    pub name: String,
    /// Its number, by which baselines name it.
    pub number: i64,
    /// Vector from the array's reference point along the ITRF axes, in metres.
    pub itrf_offset_m: [f64; 3],
}

/// Open file of visibilities, each integration with all of its baselines in the same order, as [`super::Writer`] makes them.
pub struct Reader {
    fields: Fields,
    summary: Summary,
    antennas: Vec<Station>,
    baselines: Vec<(usize, usize)>,
    visibilities: Dataset,
    samples: Dataset,
}

/// One baseline of one integration; axes channel, polarization in the order of [`Summary::polarizations`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Row {
    /// Mean `<conj(x_1) x_2>` over valid samples.
    pub visibilities: Vec<Complex<f32>>,
    /// Valid samples as a part of all samples; 0 where the visibility is flagged.
    pub samples: Vec<f32>,
}

impl Reader {
    /// Opens a file.
    ///
    /// # Errors
    /// As [`super::summary()`]; [`crate::Error::Format`] for rows in another order, or of another type than single precision.
    pub fn open(path: &Path) -> Result<Self> {
        let summary = super::summary(path)?;
        let fields = Fields::open(path)?;
        let antennas = antennas(&fields, &summary)?;
        let baselines = baselines(&fields, &summary, &antennas)?;
        let visibilities = data(&fields, "Data/visdata", Element::Complex)?;
        let samples = data(&fields, "Data/nsamples", Element::F32)?;
        Ok(Self { fields, summary, antennas, baselines, visibilities, samples })
    }

    /// Returns the metadata.
    pub fn summary(&self) -> &Summary {
        &self.summary
    }

    /// Returns the antennas.
    pub fn antennas(&self) -> &[Station] {
        &self.antennas
    }

    /// Returns the baselines of an integration: indices of the first and the second antenna.
    pub fn baselines(&self) -> &[(usize, usize)] {
        &self.baselines
    }

    /// Reads a baseline of an integration.
    ///
    /// # Errors
    /// [`crate::Error::Format`] for a row beyond the end, or data that cannot be read.
    pub fn row(&self, integration: u64, baseline: usize) -> Result<Row> {
        let row = integration * self.baselines.len() as u64 + baseline as u64;
        let read = |name: &str, dataset: &Dataset, width: usize| {
            let bytes = dataset.read_raw_rows(row, 1).map_err(self.fields.input.library(name))?;
            let expected =
                self.summary.frequencies_hz.len() * self.summary.polarizations.len() * width;
            match bytes.len() == expected {
                true => Ok(bytes),
                false => {
                    let why = format!("{} bytes in row {row}, expected {expected}", bytes.len());
                    Err(self.fields.fault(name, why))
                }
            }
        };
        let samples = read("Data/nsamples", &self.samples, 4)?;
        let visibilities = read("Data/visdata", &self.visibilities, 8)?;
        let number = |bytes: &[u8; 4]| f32::from_le_bytes(*bytes);
        let parts: Vec<f32> = visibilities.as_chunks::<4>().0.iter().map(number).collect();
        Ok(Row {
            visibilities: parts
                .as_chunks::<2>()
                .0
                .iter()
                .map(|[re, im]| Complex::new(*re, *im))
                .collect(),
            samples: samples.as_chunks::<4>().0.iter().map(number).collect(),
        })
    }
}

fn antennas(fields: &Fields, summary: &Summary) -> Result<Vec<Station>> {
    let numbers = fields.numbers("antenna_numbers", MAX_LINES)?;
    let positions = fields.numbers("antenna_positions", 3 * MAX_LINES)?;
    let (positions, _) = positions.as_chunks::<3>();
    if numbers.len() != summary.antennas.len() || positions.len() != numbers.len() {
        let (names, numbers, positions) = (summary.antennas.len(), numbers.len(), positions.len());
        let why = format!("{numbers} numbers and {positions} positions of {names} names");
        return Err(fields.fault("Header/antenna_numbers", why));
    }
    let station = |((name, number), position): ((&String, &f64), &[f64; 3])| Station {
        name: name.clone(),
        number: *number as i64,
        itrf_offset_m: *position,
    };
    Ok(summary.antennas.iter().zip(&numbers).zip(positions).map(station).collect())
}

/// Reads the baselines of the first integration, and checks those of the last one.
fn baselines(
    fields: &Fields,
    summary: &Summary,
    antennas: &[Station],
) -> Result<Vec<(usize, usize)>> {
    if !summary.is_rectangular() {
        let why = format!(
            "{} rows of {} baselines and {} integrations, expected all baselines in each",
            summary.rows, summary.baselines, summary.integrations
        );
        return Err(fields.fault("Header/Nblts", why));
    }
    let count = summary.baselines;
    let numbers = antennas.iter().enumerate();
    let places: HashMap<u64, usize> =
        numbers.map(|(place, one)| ((one.number as f64).to_bits(), place)).collect();
    let pairs = |integration: u64| -> Result<Vec<(usize, usize)>> {
        let index = |name: &str| -> Result<Vec<usize>> {
            let numbers = fields.rows(name, integration * count, count)?;
            let place = |number: &f64| {
                let found = places.get(&number.to_bits()).copied();
                found.ok_or_else(|| {
                    fields
                        .fault(&format!("Header/{name}"), format!("no antenna has number {number}"))
                })
            };
            numbers.iter().map(place).collect()
        };
        Ok(index("ant_1_array")?.into_iter().zip(index("ant_2_array")?).collect())
    };
    let first = pairs(0)?;
    let distinct: BTreeSet<_> = first.iter().collect();
    if distinct.len() != first.len() || pairs(summary.integrations.saturating_sub(1))? != first {
        let why = "the baselines of an integration are not consecutive, in the same order in each";
        return Err(fields.fault("Header/ant_1_array", why));
    }
    Ok(first)
}

/// Opens a data set of visibilities or counts of the type that [`super::Writer`] writes.
fn data(fields: &Fields, name: &str, element: Element) -> Result<Dataset> {
    let (path, dataset) = fields.dataset(name)?;
    let library = fields.input.library(&path);
    fields.input.check_filters(&path, &dataset)?;
    let expected = element.datatype().map_err(hdf5_pure::Error::Format).map_err(library)?;
    match dataset.datatype().map_err(library)? == expected {
        true => Ok(dataset),
        false => Err(fields.fault(&path, "another type than single precision")),
    }
}
