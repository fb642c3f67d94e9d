//! Input of the corner turn.

use crate::correlate::plan::Plan;
use crate::voltage::Voltages;

/// Spectra of all inputs; axes antenna, polarization, time, channel.
#[derive(Clone, Copy, Debug)]
pub struct Rows<'a> {
    /// Bytes of all inputs, `times` spectra and all channels.
    pub bytes: &'a [u8],
    /// Allocated spectra of each input.
    pub times: usize,
}

/// Source of samples.
#[derive(Clone, Copy, Debug)]
pub(super) enum Source<'a> {
    /// Spectra, from a time on.
    Rows(Rows<'a>, usize),
    /// One stream for each input and channel.
    Streams(Voltages<'a>),
}

impl<'a> Source<'a> {
    /// Returns all bytes from a sample on: to the end of the rows, or of its stream.
    pub(super) fn sample(
        &self,
        plan: &Plan,
        input: usize,
        channel: usize,
        time: usize,
    ) -> &'a [u8] {
        let size = plan.encoding().sample_bits() / 8;
        match self {
            Self::Rows(rows, first) => {
                let row = input * rows.times + first + time;
                &rows.bytes[(row * plan.channels() + channel) * size..]
            }
            Self::Streams(voltages) => {
                let (antenna, polarization) =
                    (input / plan.polarizations(), input % plan.polarizations());
                let stream = (antenna * plan.channels() + channel) * plan.polarizations();
                &voltages.row(stream + polarization)[time * size..]
            }
        }
    }
}
