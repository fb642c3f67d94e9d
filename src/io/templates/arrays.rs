//! Arrays of real or complex numbers in memory.

use num_complex::Complex64;

use super::hdf5::Input;
use crate::error::Result;

/// Numbers of a data set, the last axis fastest.
pub(super) enum Numbers {
    /// Real numbers.
    Real(Vec<f64>),
    /// Complex numbers.
    Complex(Vec<Complex64>),
}

/// A data set of one or two axes.
pub(super) struct Array {
    pub(super) shape: Vec<usize>,
    pub(super) numbers: Numbers,
}

impl Array {
    /// Returns the real numbers of a one-dimensional array.
    pub(super) fn column(self, file: &Input, name: &str) -> Result<Vec<f64>> {
        match self.numbers {
            Numbers::Real(numbers) if self.shape.len() == 1 => Ok(numbers),
            Numbers::Real(_) => {
                let why = format!("axes {:?} found, expected one axis", self.shape);
                Err(file.fault(name, why))
            }
            Numbers::Complex(_) => Err(file.fault(name, "complex numbers, expected real ones")),
        }
    }

    /// Returns the numbers of rows and columns; a one-dimensional array is one row.
    pub(super) fn rows(&self) -> (usize, usize) {
        match self.shape[..] {
            [rows, columns] => (rows, columns),
            [columns] => (1, columns),
            _ => (0, 0),
        }
    }
}
