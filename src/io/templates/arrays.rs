//! Arrays of real or complex numbers in memory.

use num_complex::Complex64;

use super::hdf5::Input;
use crate::error::Result;

/// A data set's numbers, the last axis fastest.
pub(super) enum Numbers {
    /// Real ones.
    Real(Vec<f64>),
    /// Complex ones.
    Complex(Vec<Complex64>),
}

/// A data set of one or two axes.
pub(super) struct Array {
    pub(super) shape: Vec<usize>,
    pub(super) numbers: Numbers,
}

impl Array {
    /// The numbers of one axis, real.
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

    /// Rows and the numbers of each: an array of one axis is one row.
    pub(super) fn rows(&self) -> (usize, usize) {
        match self.shape[..] {
            [rows, columns] => (rows, columns),
            [columns] => (1, columns),
            _ => (0, 0),
        }
    }
}
