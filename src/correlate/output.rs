//! Destination of the sums of an X-engine.

use num_complex::Complex;

/// Destination of sums; axes channel, baseline, polarization pair.
#[derive(Debug)]
pub enum Output<'a> {
    /// Sums of integer spectra: exact.
    Integer(&'a mut [Complex<i64>]),
    /// Sums of single-precision spectra.
    Float(&'a mut [Complex<f64>]),
}

impl Output<'_> {
    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        match self {
            Self::Integer(sums) => sums.len(),
            Self::Float(sums) => sums.len(),
        }
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
