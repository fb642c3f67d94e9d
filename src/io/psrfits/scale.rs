//! Scales, offsets and weights: value = ((raw - ZERO_OFF) DAT_SCL + DAT_OFFS) DAT_WTS, in f32.
//!
//! Invariant: when a file's factors are all 1, 0 and 1, samples keep the width they have.
//!
//! # Source
//! PSRFITS definition (DAT_SCL, DAT_OFFS, DAT_WTS); the order of operations of PRESTO, sigpyproc and `your`.

use std::io::{Read, Seek};

use super::layout::Layout;
use super::table::{Column, Table};
use crate::error::Result;

/// Columns of scaling factors, if present.
#[derive(Clone, Debug)]
pub(super) struct Scaling {
    scales: Option<Column>,
    offsets: Option<Column>,
    weights: Option<Column>,
    zero_offset: f32,
    is_trivial: bool,
    scratch: Vec<u8>,
}

/// Factors of one row: axes polarization, channel, or channel alone if they apply to all polarizations.
#[derive(Clone, Debug, Default)]
pub(super) struct Factors {
    scales: Vec<f64>,
    offsets: Vec<f64>,
    weights: Vec<f64>,
}

impl Scaling {
    /// Finds the columns and reads all of them once, to detect trivial factors.
    ///
    /// # Errors
    /// [`crate::Error::Format`] for a column of the wrong length, for a factor that is not finite, and if every
    /// weight is 0.
    pub(super) fn scan<R: Read + Seek>(
        input: &mut R,
        table: &Table,
        layout: &Layout,
    ) -> Result<Self> {
        let products = layout.channels * layout.polarizations;
        let find = |name| factor_column(table, name, products, layout.channels);
        let mut scaling = Self {
            scales: find("DAT_SCL")?,
            offsets: find("DAT_OFFS")?,
            weights: find("DAT_WTS")?,
            zero_offset: layout.zero_offset,
            is_trivial: layout.zero_offset == 0.0,
            scratch: Vec::new(),
        };
        let mut factors = Factors::default();
        let mut any_weight = scaling.weights.is_none();
        for row in 0..table.rows {
            scaling.read(input, table, row, &mut factors)?;
            let is_all =
                |values: &[f64], trivial: f64| values.iter().all(|value| *value == trivial);
            scaling.is_trivial &= is_all(&factors.scales, 1.0)
                && is_all(&factors.offsets, 0.0)
                && is_all(&factors.weights, 1.0);
            any_weight |= factors.weights.iter().any(|weight| *weight != 0.0);
        }
        match &scaling.weights {
            Some(column) if !any_weight => {
                Err(table.fault(column, 0, "every weight of the file is 0"))
            }
            _ => Ok(scaling),
        }
    }

    /// Returns whether samples need no scaling.
    pub(super) fn is_trivial(&self) -> bool {
        self.is_trivial
    }

    /// Reads one row's factors; those of a missing column stay empty.
    ///
    /// # Errors
    /// As [`Scaling::scan`].
    pub(super) fn read<R: Read + Seek>(
        &mut self,
        input: &mut R,
        table: &Table,
        row: u64,
        factors: &mut Factors,
    ) -> Result<()> {
        let columns = [
            (&self.scales, &mut factors.scales),
            (&self.offsets, &mut factors.offsets),
            (&self.weights, &mut factors.weights),
        ];
        for (column, values) in columns {
            if let Some(column) = column {
                table.read_reals(input, (column, row), &mut self.scratch, values)?;
            }
        }
        Ok(())
    }

    /// Scales one polarization's raw samples.
    pub(super) fn apply(&self, factors: &Factors, polarization: usize, values: &mut [f32]) {
        let channels = values.len();
        values.iter_mut().for_each(|value| *value -= self.zero_offset);
        let of = |all: &[f64]| part(all, polarization, channels);
        for (value, scale) in values.iter_mut().zip(&factors.scales[of(&factors.scales)]) {
            *value *= *scale as f32;
        }
        for (value, offset) in values.iter_mut().zip(&factors.offsets[of(&factors.offsets)]) {
            *value += *offset as f32;
        }
        for (value, weight) in values.iter_mut().zip(&factors.weights[of(&factors.weights)]) {
            *value *= *weight as f32;
        }
    }
}

/// Returns the range of one polarization's factors; a column with a single set of channels applies to all
/// polarizations.
fn part(all: &[f64], polarization: usize, channels: usize) -> std::ops::Range<usize> {
    let start = if all.len() > channels { polarization * channels } else { 0 };
    start..all.len().min(start + channels)
}

fn factor_column(
    table: &Table,
    name: &str,
    products: usize,
    channels: usize,
) -> Result<Option<Column>> {
    let Some(column) = table.column(name) else { return Ok(None) };
    let elements = column.elements;
    if elements == products as u64 || elements == channels as u64 {
        return Ok(Some(column.clone()));
    }
    let why = format!("{elements} elements a row found, expected {products} or {channels}");
    Err(table.fault(column, 0, why))
}
