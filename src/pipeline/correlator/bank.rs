//! Source of one antenna's spectra: a filter bank, or a pass-through for voltages that are already channelized.
//!
//! Invariant: any split of a stream gives the same bits.

use num_complex::Complex;

use crate::channelize::{Channelizer, Output};
use crate::error::Result;
use crate::view::Progress;
use crate::voltage::{VoltageEncoding, Voltages, voltage};

/// Spectra source of one antenna; axes of its output: time, polarization, recorded channel, channel.
#[derive(Debug)]
pub(super) enum Bank {
    /// Filter bank that divides recorded channels.
    Filter(Box<Channelizer>),
    /// Pass-through of recorded channels.
    Recorded {
        /// Number of polarizations.
        polarizations: usize,
        /// Value of one count.
        scale: f32,
    },
}

impl Bank {
    /// Returns the samples between spectra (hop) and the samples under a window (span).
    pub(super) fn steps(&self) -> (u64, u64) {
        match self {
            Self::Filter(channelizer) => {
                (channelizer.plan().hop() as u64, channelizer.plan().span() as u64)
            }
            Self::Recorded { .. } => (1, 1),
        }
    }

    /// Resets the state for a new stream.
    pub(super) fn reset(&mut self) {
        if let Self::Filter(channelizer) = self {
            channelizer.reset();
        }
    }

    /// Channelizes `input` into `spectra`.
    pub(super) fn run(
        &mut self,
        input: Voltages<'_>,
        spectra: &mut [Complex<f32>],
    ) -> Result<Progress> {
        match self {
            Self::Filter(channelizer) => channelizer.run(input, Output::Complex(spectra)),
            Self::Recorded { polarizations, scale } => {
                Ok(transpose(input, *polarizations, *scale, spectra))
            }
        }
    }
}

/// Transposes streams (recorded channel, polarization) of times to times of (polarization, recorded channel).
fn transpose(
    input: Voltages<'_>,
    polarizations: usize,
    scale: f32,
    spectra: &mut [Complex<f32>],
) -> Progress {
    let (row, coarse) = (input.streams(), input.streams() / polarizations);
    let times = input.times().min(spectra.len() / row);
    let encoding = input.encoding();
    for stream in 0..row {
        let bytes = input.row(stream);
        let element = stream % polarizations * coarse + stream / polarizations;
        let values = spectra[element..].iter_mut().step_by(row).take(times).enumerate();
        let byte = |at: usize| f32::from(bytes[at] as i8);
        match encoding {
            VoltageEncoding::Complex8 => values.for_each(|(time, value)| {
                *value = Complex::new(byte(2 * time), byte(2 * time + 1)) * scale;
            }),
            _ => values.for_each(|(time, value)| {
                let z = voltage(bytes, encoding, time);
                *value = Complex::new(z.re as f32, z.im as f32) * scale;
            }),
        }
    }
    Progress { consumed: times, produced: times }
}
