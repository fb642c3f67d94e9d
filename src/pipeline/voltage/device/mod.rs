//! Recording whose rows are computed on a GPU and stay there.
//!
//! Invariant: rows are, bit for bit, those that the same recording gives as a filterbank when its filter bank runs
//! on the same GPU.

use super::filled::{Making, Segment};
use super::filterbank::VoltageFilterbank;
use super::spectra::Unread;
use crate::backend::cuda::{Buffer, Device, Stream};
use crate::channelize::{DeviceVoltages, RowJoiner};
use crate::clean::GapFiller;
use crate::error::Result;
use crate::io::FilterbankSource;

impl VoltageFilterbank {
    /// Returns the GPU that runs the filter bank, if any.
    pub(in crate::pipeline) fn device(&self) -> Option<&Device> {
        self.rows.rows().channelizer().device()
    }

    /// Returns the samples that the filter bank has consumed since its last reset.
    pub(in crate::pipeline) fn taken(&self) -> u64 {
        self.rows.rows().channelizer().times()
    }

    /// Whether a device can compute the rows from here on. Otherwise the host must read rows first: the level that
    /// fills a gap at the start comes from the rows after it.
    pub(in crate::pipeline) fn can_split(&self) -> bool {
        self.rows.can_split()
    }

    /// Splits the filterbank into its unread voltages and the state that computes rows; both can be used
    /// concurrently.
    pub(in crate::pipeline) fn split(&mut self) -> (Unread<'_>, Making<'_>) {
        self.rows.split()
    }

    /// Returns the device bytes per row for the rows of all antennas, in addition to the summed row.
    pub(in crate::pipeline) fn unjoined_row_bytes(&self) -> usize {
        let joining = self.rows.rows().joining();
        joining.map_or(0, |_| 4 * self.plan().row_elements())
    }
}

/// Computes rows from voltages on a device: sums antennas, orders recorded channels, fills gaps.
pub(in crate::pipeline) struct DeviceRows {
    joiner: Option<(RowJoiner, Buffer<u8>)>,
    filler: Option<GapFiller>,
    /// End of the rows from which the current level was computed.
    level_end: Option<u64>,
    rows: Buffer<u8>,
    has_begun: bool,
}

impl DeviceRows {
    /// Allocates memory for at most `most` rows per call.
    ///
    /// # Errors
    /// Those of [`RowJoiner::new`] and [`GapFiller::new`].
    pub(in crate::pipeline) fn new(
        device: &Device,
        filterbank: &VoltageFilterbank,
        most: usize,
    ) -> Result<Self> {
        let joiner = match filterbank.rows.rows().joining() {
            Some(joining) => {
                let bytes = most.saturating_mul(filterbank.unjoined_row_bytes());
                Some((RowJoiner::new(device, joining)?, device.buffer(bytes)?))
            }
            None => None,
        };
        let elements = filterbank.row_elements();
        let filler = |rows| GapFiller::new(device, elements, rows);
        Ok(Self {
            joiner,
            filler: filterbank.rows.level_rows().map(filler).transpose()?,
            level_end: None,
            rows: device.buffer(most.saturating_mul(filterbank.header().row_bytes()))?,
            has_begun: false,
        })
    }

    /// Returns the buffer with the latest rows.
    pub(in crate::pipeline) fn rows(&self) -> &Buffer<u8> {
        &self.rows
    }

    /// Enqueues the computation of rows from voltages on the device; returns the number of rows.
    pub(in crate::pipeline) fn make(
        &mut self,
        mut making: Making<'_>,
        voltages: (&Buffer<u8>, &[DeviceVoltages]),
        stream: &Stream,
    ) -> Result<usize> {
        if !self.has_begun {
            self.begin(&making)?;
            self.has_begun = true;
        }
        let times = match &mut self.joiner {
            Some((joiner, all)) => {
                let times = making.bank.enqueue(voltages, all, stream)?;
                joiner.enqueue(all, times, &mut self.rows, stream)?;
                times
            }
            None => making.bank.enqueue(voltages, &mut self.rows, stream)?,
        };
        self.fill(&mut making, times, stream)?;
        Ok(times)
    }

    /// Copies the host's level state to the device.
    fn begin(&mut self, making: &Making<'_>) -> Result<()> {
        let (Some(filler), Some(seen)) = (&mut self.filler, &making.seen) else { return Ok(()) };
        self.level_end = seen.filling.map(|(end, _)| end);
        filler.begin(seen.ring, seen.rows, seen.filling.map(|(_, level)| level))
    }

    /// Fills gaps, and records rows for the levels of later gaps.
    fn fill(&mut self, making: &mut Making<'_>, times: usize, stream: &Stream) -> Result<()> {
        let place = &mut *making.place;
        let Some(filler) = &mut self.filler else {
            place.advance(times as u64);
            return Ok(());
        };
        let mut done = 0;
        while done < times {
            if let Some(end) = place.due(self.level_end) {
                filler.take_level(stream)?;
                self.level_end = Some(end);
            }
            let passed = match place.segment((times - done) as u64) {
                Segment::Gap(gap) => {
                    filler.fill(&mut self.rows, (done, gap), stream)?;
                    gap
                }
                Segment::Data(data) => {
                    if let Some(seen) = place.seen(data) {
                        if seen.is_apart {
                            filler.reset();
                        }
                        let part = (done + seen.unused, data - seen.unused);
                        filler.observe(&self.rows, part, stream)?;
                    }
                    data
                }
            };
            place.advance(passed as u64);
            done += passed;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
