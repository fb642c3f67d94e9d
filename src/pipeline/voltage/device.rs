//! A recording whose rows are made on a GPU and stay there.
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
    /// The GPU that its filter bank runs on, if it does.
    pub(in crate::pipeline) fn device(&self) -> Option<&Device> {
        self.rows.rows().channelizer().device()
    }

    /// Samples that the filter bank has taken since it was last begun.
    pub(in crate::pipeline) fn taken(&self) -> u64 {
        self.rows.rows().channelizer().times()
    }

    /// Whether rows can be made on a device from here on. Before that, they are to be read: where the recording
    /// begins with a gap, what fills it lies behind it.
    pub(in crate::pipeline) fn can_split(&self) -> bool {
        self.rows.can_split()
    }

    /// What is not read yet, and what makes rows of what is: they may work at the same time.
    pub(in crate::pipeline) fn split(&mut self) -> (Unread<'_>, Making<'_>) {
        self.rows.split()
    }

    /// Bytes of a device that a row takes besides its own: those of all antennas.
    pub(in crate::pipeline) fn unjoined_row_bytes(&self) -> usize {
        let joining = self.rows.rows().joining();
        joining.map_or(0, |_| 4 * self.plan().row_elements())
    }
}

/// Makes rows of voltages on a device: antennas summed, recorded channels in order, gaps filled.
pub(in crate::pipeline) struct DeviceRows {
    joiner: Option<(RowJoiner, Buffer<u8>)>,
    filler: Option<GapFiller>,
    /// The end of the rows that the present level was taken over.
    level_end: Option<u64>,
    rows: Buffer<u8>,
    has_begun: bool,
}

impl DeviceRows {
    /// For at most `most` rows at once.
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

    /// The rows that were made last.
    pub(in crate::pipeline) fn rows(&self) -> &Buffer<u8> {
        &self.rows
    }

    /// Queues the making of rows from pieces of voltages that are on the device; how many rows.
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

    /// Takes over what the host has seen of the rows.
    fn begin(&mut self, making: &Making<'_>) -> Result<()> {
        let (Some(filler), Some(seen)) = (&mut self.filler, &making.seen) else { return Ok(()) };
        self.level_end = seen.filling.map(|(end, _)| end);
        filler.begin(seen.ring, seen.rows, seen.filling.map(|(_, level)| level))
    }

    /// Fills what lies in gaps, and looks at what fills later ones.
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
