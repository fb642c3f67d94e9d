//! User gains, sorted into the order of an antenna's spectra.
//!
//! Invariant: gains multiply the sky's voltages: in a lower sideband, whose voltages are their conjugates,
//! the gains' conjugates do.

use num_complex::Complex;

use super::channels::Channels;
use super::inputs::Recordings;
use super::level::Source;
use super::options::Gains;
use crate::error::{Error, Result};

/// User gains; axes antenna, polarization, channel.
pub(super) struct Table {
    gains: Vec<Complex<f32>>,
    /// Elements per antenna; 1: one gain for all.
    elements: usize,
}

impl Table {
    /// Checks gains and sorts them into correlated order.
    ///
    /// # Errors
    /// [`Error::Parameter`] for a number of gains that matches no allowed shape, or a gain that is not finite.
    pub(super) fn new(
        gains: &Gains,
        antennas: usize,
        recordings: &Recordings,
        channels: &Channels,
    ) -> Result<Self> {
        let Gains::Table(given) = gains else {
            return Self::checked(gains);
        };
        if let Some(bad) = given.iter().find(|gain| !gain.is_finite()) {
            return Err(Error::parameter("--gains", bad, "gains must be finite"));
        }
        let polarizations = recordings.header.polarizations;
        let correlated = channels.correlated();
        let all = antennas * polarizations * correlated;
        if ![1, correlated, all].contains(&given.len()) {
            let rule = format!(
                "there must be 1 gain, {correlated} (channel), or {all} (antenna, polarization, channel)"
            );
            return Err(Error::parameter("number of gains", given.len(), rule));
        }
        let own = |gain: Complex<f32>| if channels.is_conjugate() { gain.conj() } else { gain };
        let mut sorted = vec![Complex::ZERO; all];
        for (index, row) in sorted.chunks_exact_mut(correlated).enumerate() {
            for (rank, channel) in channels.order().iter().enumerate() {
                row[*channel] = own(given[(index * correlated + rank) % given.len()]);
            }
        }
        Ok(Self { gains: sorted, elements: polarizations * correlated })
    }

    fn checked(gains: &Gains) -> Result<Self> {
        if let Gains::Fixed(gain) = gains
            && !(gain.is_finite() && *gain != 0.0)
        {
            return Err(Error::parameter("--gains", gain, "it must be finite and not 0"));
        }
        Ok(Self { gains: Vec::new(), elements: 0 })
    }
}

/// Returns how an antenna's gains are determined.
pub(super) fn source(gains: &Gains, table: &Table, antenna: usize) -> Source {
    match gains {
        Gains::Auto => Source::Measured,
        Gains::Fixed(gain) => Source::Fixed(*gain),
        Gains::Table(_) => {
            Source::Given(table.gains[antenna * table.elements..][..table.elements].to_vec())
        }
    }
}
