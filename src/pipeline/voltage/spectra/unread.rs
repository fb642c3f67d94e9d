//! What a recording still holds for a filter bank that takes it on a device, and that filter bank: one is read
//! while the other works.

use super::Spectra;
use crate::backend::cuda::{Buffer, Stream};
use crate::channelize::{Channelizer, DeviceVoltages};
use crate::error::Result;
use crate::io::voltages::VoltageSource;
use crate::view::check_length;
use crate::voltage::VoltageBlock;

/// Samples that the filter bank has not been given.
pub(in crate::pipeline) struct Unread<'a> {
    source: &'a mut dyn VoltageSource,
    /// What was read for the host, and how much of it was taken.
    block: &'a VoltageBlock<'static>,
    used: &'a mut usize,
    position: &'a mut u64,
}

impl Unread<'_> {
    /// Samples of each stream that were read already.
    pub(in crate::pipeline) fn held(&self) -> usize {
        self.block.times() - *self.used
    }

    /// Fills a block with the next samples: first with those that are held, alone.
    pub(in crate::pipeline) fn read(&mut self, block: &mut VoltageBlock<'_>) -> Result<usize> {
        let held = self.held().min(block.capacity());
        if held == 0 {
            let times = self.source.read(block)?;
            *self.position += times as u64;
            return Ok(times);
        }
        let voltages = self.block.voltages().slice(*self.used, held)?;
        for (stream, row) in block.rows_mut().enumerate() {
            let bytes = voltages.row(stream);
            row[..bytes.len()].copy_from_slice(bytes);
        }
        block.set_times(held)?;
        *self.used += held;
        Ok(held)
    }
}

/// A filter bank that is bound to a device.
pub(in crate::pipeline) struct Bank<'a> {
    channelizer: &'a mut Channelizer,
    row: &'a mut u64,
}

impl Bank<'_> {
    /// Queues the making of rows from pieces of voltages on the device, all of which are taken; how many rows.
    pub(in crate::pipeline) fn enqueue(
        &mut self,
        (voltages, pieces): (&Buffer<u8>, &[DeviceVoltages]),
        rows: &mut Buffer<u8>,
        stream: &Stream,
    ) -> Result<usize> {
        let mut times = 0;
        for layout in pieces {
            let progress = self.channelizer.enqueue_at(voltages, *layout, (rows, times), stream)?;
            check_length("samples that are channelized", layout.times, progress.consumed)?;
            times += progress.produced;
        }
        *self.row += times as u64;
        Ok(times)
    }
}

impl<T> Spectra<T> {
    /// The filter bank.
    pub(in crate::pipeline::voltage) fn channelizer(&self) -> &Channelizer {
        &self.channelizer
    }

    /// What is not read, and what works on what is.
    pub(in crate::pipeline::voltage) fn split(&mut self) -> (Unread<'_>, Bank<'_>) {
        let Self { source, channelizer, block, used, position, row, .. } = self;
        (Unread { source: source.as_mut(), block, used, position }, Bank { channelizer, row })
    }
}
