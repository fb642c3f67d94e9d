//! Output buffer of a filter bank.

use num_complex::Complex;

use super::plan::Plan;

/// Output rows; axes: time, antenna, polarization or product, channel.
#[derive(Debug)]
pub enum Output<'a> {
    /// Rows of [`Form::Spectra`](super::Form::Spectra) and [`Form::Filtered`](super::Form::Filtered).
    Complex(&'a mut [Complex<f32>]),
    /// Rows of [`Form::Detected`](super::Form::Detected).
    F32(&'a mut [f32]),
    /// Rows of [`Form::Requantized`](super::Form::Requantized): [`VoltageEncoding::Complex8`] or
    /// [`VoltageEncoding::Complex4`].
    ///
    /// [`VoltageEncoding::Complex8`]: crate::voltage::VoltageEncoding::Complex8
    /// [`VoltageEncoding::Complex4`]: crate::voltage::VoltageEncoding::Complex4
    Bytes(&'a mut [u8]),
}

impl<'a> Output<'a> {
    /// Returns the first `elements` elements.
    pub(super) fn front(self, elements: usize, plan: &Plan) -> Self {
        match self {
            Self::Complex(values) => Self::Complex(&mut values[..elements]),
            Self::F32(values) => Self::F32(&mut values[..elements]),
            Self::Bytes(bytes) => Self::Bytes(&mut bytes[..elements * plan.element_bytes()]),
        }
    }
}
