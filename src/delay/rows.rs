//! Where aligned spectra are written.

/// Rows to be written; axes polarization, time, channel. A call writes its spectra from time `first` on.
#[derive(Debug)]
pub struct Rows<'a> {
    /// The encoding's bytes of all polarizations, `times` spectra and all channels.
    pub bytes: &'a mut [u8],
    /// Spectra that there is room for in each polarization.
    pub times: usize,
    /// Where the first spectrum goes.
    pub first: usize,
}
