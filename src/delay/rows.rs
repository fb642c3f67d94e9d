//! Destination of delay-corrected spectra.

/// Destination rows; axes polarization, time, channel. A call writes its spectra from time `first` on.
#[derive(Debug)]
pub struct Rows<'a> {
    /// Bytes of all polarizations, `times` spectra and all channels.
    pub bytes: &'a mut [u8],
    /// Allocated spectra of each polarization.
    pub times: usize,
    /// Index of the first spectrum to write.
    pub first: usize,
}
