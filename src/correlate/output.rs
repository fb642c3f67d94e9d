//! Where an X-engine writes its sums.

use num_complex::Complex;

/// Where sums are written; axes channel, baseline, polarization pair.
#[derive(Debug)]
pub enum Output<'a> {
    /// Of integer spectra: exact.
    Integer(&'a mut [Complex<i64>]),
    /// Of single-precision spectra.
    Float(&'a mut [Complex<f64>]),
}

impl Output<'_> {
    /// Number of elements.
    pub fn len(&self) -> usize {
        match self {
            Self::Integer(sums) => sums.len(),
            Self::Float(sums) => sums.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
