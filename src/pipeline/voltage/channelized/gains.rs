//! Gains by the power of a recording's first spectra.

use num_complex::Complex;

use super::Streams;
use super::flags::Flags;
use crate::backend::Backend;
use crate::channelize::{Channelizer, Options, Output, Plan};
use crate::error::Result;
use crate::io::voltages::VoltageSource;
use crate::pipeline::voltage::spectra::restart_rows;
use crate::voltage::VoltageBlock;

/// The most spectra that are looked at.
const SPECTRA: usize = 1024;

/// The most bytes of samples that are held for it, if they are enough for [`FEWEST`] spectra.
const BLOCK_BYTES: usize = 64 << 20;

/// The fewest spectra that are looked at.
const FEWEST: usize = 16;

/// Counts of a standard deviation, of 8 bits.
const DEVIATION_8: f64 = 20.0;

/// Counts of a standard deviation, of 4 bits.
const DEVIATION_4: f64 = 2.8;

/// Counts of a standard deviation, of so many bits.
pub(in crate::pipeline) fn deviation(bits: usize) -> f64 {
    if bits == 4 { DEVIATION_4 } else { DEVIATION_8 }
}

/// Bytes of spectra that are made at once.
const SPECTRA_BYTES: usize = 4 << 20;

/// The first spectra of a recording that are not all flagged.
pub(super) struct Measured {
    /// The first of them.
    row: u64,
    /// The samples that they were made from.
    block: VoltageBlock<'static>,
    channelizer: Channelizer,
}

impl Measured {
    /// Reads the beginning of a recording, behind `lead` rows that are all flagged.
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

    /// The gain of each output channel, 1 for channels without power and the others' median for those
    /// that are flagged throughout; and the samples again, with their row.
    pub(super) fn gains(
        mut self,
        streams: &Streams,
        flags: &Flags,
        bits: usize,
    ) -> Result<(Vec<f32>, (u64, VoltageBlock<'static>))> {
        let target = deviation(bits);
        let gain = |power: f64| {
            // Power is that of both parts.
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

    /// Mean power of each output channel over antennas and polarizations, where it is not flagged;
    /// `None` where it is throughout.
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
