//! Unread voltages of a recording and the filter bank that consumes them on a device; one can be read while the other
//! computes.

use super::Spectra;
use crate::backend::cuda::{Buffer, Stream};
use crate::channelize::{Channelizer, DeviceVoltages};
use crate::error::Result;
use crate::io::voltages::VoltageSource;
use crate::view::check_length;
use crate::voltage::VoltageBlock;

/// Samples that the filter bank has not received.
pub(in crate::pipeline) struct Unread<'a> {
    source: &'a mut dyn VoltageSource,
    /// Block read by the host, and the number of its samples consumed.
    block: &'a VoltageBlock<'static>,
    used: &'a mut usize,
    position: &'a mut u64,
}

impl Unread<'_> {
    /// Returns the samples of each stream already read.
    pub(in crate::pipeline) fn held(&self) -> usize {
        self.block.times() - *self.used
    }

    /// Fills a block with the next samples; samples already read are returned first, by themselves.
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

/// Filter bank bound to a device.
pub(in crate::pipeline) struct Bank<'a> {
    channelizer: &'a mut Channelizer,
    row: &'a mut u64,
}

impl Bank<'_> {
    /// Enqueues the computation of rows from all `pieces` of voltages on the device; returns the number of rows.
    pub(in crate::pipeline) fn enqueue(
        &mut self,
        (voltages, pieces): (&Buffer<u8>, &[DeviceVoltages]),
        rows: &mut Buffer<u8>,
        stream: &Stream,
    ) -> Result<usize> {
        let mut times = 0;
        for layout in pieces {
            let progress = self.channelizer.enqueue_at(voltages, *layout, rows, times, stream)?;
            check_length("samples that are channelized", layout.times, progress.consumed)?;
            times += progress.produced;
        }
        *self.row += times as u64;
        Ok(times)
    }
}

impl<T> Spectra<T> {
    /// Returns the filter bank.
    pub(in crate::pipeline::voltage) fn channelizer(&self) -> &Channelizer {
        &self.channelizer
    }

    /// Splits the spectra into the unread voltages and the filter bank.
    pub(in crate::pipeline::voltage) fn split(&mut self) -> (Unread<'_>, Bank<'_>) {
        let Self { source, channelizer, block, used, position, row, .. } = self;
        (Unread { source: source.as_mut(), block, used, position }, Bank { channelizer, row })
    }
}
