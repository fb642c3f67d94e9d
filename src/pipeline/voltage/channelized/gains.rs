//! Gains measured from the power of a recording's first spectra.

use num_complex::Complex;

use super::flags::Flags;
use super::streams::Streams;
use crate::backend::Backend;
use crate::channelize::{Channelizer, Options, Output, Plan};
use crate::error::Result;
use crate::io::voltages::VoltageSource;
use crate::pipeline::voltage::spectra::restart_rows;
use crate::voltage::VoltageBlock;

/// Largest number of spectra measured.
const SPECTRA: usize = 1024;

/// Largest size in bytes of the samples held, if they give [`FEWEST`] spectra.
const BLOCK_BYTES: usize = 64 << 20;

/// Smallest number of spectra measured.
const FEWEST: usize = 16;

/// Standard deviation in counts for 8 bits.
const DEVIATION_8: f64 = 20.0;

/// Standard deviation in counts for 4 bits.
const DEVIATION_4: f64 = 2.8;

/// Returns the standard deviation in counts for `bits` bits.
pub(in crate::pipeline) fn deviation(bits: usize) -> f64 {
    if bits == 4 { DEVIATION_4 } else { DEVIATION_8 }
}

/// Bytes of spectra computed per step.
const SPECTRA_BYTES: usize = 4 << 20;

/// First spectra of a recording that are not all flagged.
pub(super) struct Measured {
    /// Number of the first of them.
    row: u64,
    /// Samples that they were computed from.
    block: VoltageBlock<'static>,
    channelizer: Channelizer,
}

impl Measured {
    /// Reads the beginning of a recording, after `lead` rows that are entirely flagged.
    pub(super) fn new(
        source: &mut dyn VoltageSource,
        lead: u64,
        options: Options,
        backend: &Backend,
    ) -> Result<Self> {
        let plan = Plan::new(options)?;
        let row = lead / restart_rows(&plan) * restart_rows(&plan);
        source.skip(row * plan.samples_per_row() as u64)?;
        let header = source.header();
        let bits = header.streams() * header.encoding.sample_bits() * plan.hop();
        let spectra = (BLOCK_BYTES * 8 / bits).clamp(FEWEST, SPECTRA);
        let mut block = header.block(plan.span() + (spectra - 1) * plan.hop());
        source.read(&mut block)?;
        Ok(Self { row, block, channelizer: Channelizer::new(plan, backend)? })
    }

    /// Returns the gain of each output channel, and the samples with their first row for reuse. Channels without
    /// power have gain 1; channels flagged throughout have the median of the others.
    pub(super) fn gains(
        mut self,
        streams: &Streams,
        flags: &Flags,
        bits: usize,
    ) -> Result<(Vec<f32>, (u64, VoltageBlock<'static>))> {
        let target = deviation(bits);
        let gain = |power: f64| {
            // `power` includes the real and the imaginary part.
            let deviation = (0.5 * power).sqrt();
            if deviation > 0.0 { (target / deviation) as f32 } else { 1.0 }
        };
        let powers = self.powers(streams, flags)?;
        let mut known: Vec<f32> = powers.iter().flatten().map(|power| gain(*power)).collect();
        known.sort_by(f32::total_cmp);
        let median = known.get(known.len() / 2).copied().unwrap_or(1.0);
        let gains = powers.into_iter().map(|power| power.map_or(median, gain)).collect();
        Ok((gains, (self.row, self.block)))
    }

    /// Returns the mean power of each output channel over unflagged samples of all antennas and polarizations; `None`
    /// if all are flagged.
    fn powers(&mut self, streams: &Streams, flags: &Flags) -> Result<Vec<Option<f64>>> {
        let row = self.channelizer.plan().row_elements();
        let mut spectra = vec![Complex::ZERO; (SPECTRA_BYTES / (8 * row)).max(1) * row];
        let mut sums = vec![(0.0, 0u64); streams.all_channels()];
        let mut flagged = vec![false; streams.elements.len()];
        let (mut used, mut time) = (0, self.row);
        loop {
            let rest = self.block.voltages().slice(used, self.block.times() - used)?;
            let progress = self.channelizer.run(rest, Output::Complex(&mut spectra))?;
            used += progress.consumed;
            for spectrum in spectra.chunks_exact(row).take(progress.produced) {
                flagged.fill(false);
                for flag in flags.touching(&(time..time + 1)) {
                    flagged[flag.streams.clone()].fill(true);
                }
                add(spectrum, streams, &flagged, &mut sums);
                time += 1;
            }
            if progress.produced == 0 {
                let mean = |(sum, count): &(f64, u64)| (*count > 0).then(|| sum / *count as f64);
                return Ok(sums.iter().map(mean).collect());
            }
        }
    }
}

/// Adds one spectrum's powers to the channels' sums and counts.
fn add(spectrum: &[Complex<f32>], streams: &Streams, flagged: &[bool], sums: &mut [(f64, u64)]) {
    for (stream, element) in streams.elements.iter().enumerate() {
        let power = f64::from(spectrum[*element].norm_sqr());
        if !flagged[stream] && power.is_finite() {
            let (sum, count) = &mut sums[streams.channel(stream)];
            *sum += power;
            *count += 1;
        }
    }
}
