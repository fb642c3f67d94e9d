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
        let cursor = &mut *making.cursor;
        let Some(filler) = &mut self.filler else {
            cursor.advance(times as u64);
            return Ok(());
        };
        let mut done = 0;
        while done < times {
            if let Some(end) = cursor.due(self.level_end) {
                filler.take_level(stream)?;
                self.level_end = Some(end);
            }
            let passed = match cursor.segment((times - done) as u64) {
                Segment::Gap(gap) => {
                    filler.fill(&mut self.rows, done..done + gap, stream)?;
                    gap
                }
                Segment::Data(data) => {
                    if let Some(seen) = cursor.seen(data) {
                        if seen.is_apart {
                            filler.reset();
                        }
                        filler.observe(&self.rows, done + seen.unused..done + data, stream)?;
                    }
                    data
                }
            };
            cursor.advance(passed as u64);
            done += passed;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::Backend;
    use crate::pipeline::voltage::ChannelizeOptions;
    use crate::simulate::voltages::{Options, VoltageSimulator};
    use crate::voltage::VoltageBlock;

    /// Two antennas with gaps, some of them after the level's 1024 rows are complete.
    fn filterbank(coherent_dm: Option<f64>, backend: &Backend) -> VoltageFilterbank {
        let mut options = Options::new(400e6, 3e6, 3, 40_000);
        // Recorded channels neither ascend nor descend.
        options.centres_hz.swap(0, 1);
        options.antennas = 2;
        options.gaps =
            vec![(3_000, 10), (20_000, 900), (22_000, 1), (33_000, 4_000), (39_000, 100)];
        let source = Box::new(VoltageSimulator::new(options).unwrap());
        let interpolate_dc = coherent_dm.is_some();
        let asked = ChannelizeOptions {
            taps: 4,
            coherent_dm,
            interpolate_dc,
            ..ChannelizeOptions::new(16)
        };
        VoltageFilterbank::new(source, &asked, backend).unwrap()
    }

    /// Returns `first` rows computed by the host followed by rows from the device, fed `times` samples at a time.
    fn on_device(
        filterbank: &mut VoltageFilterbank,
        device: &Device,
        (first, times): (usize, usize),
    ) -> Vec<f32> {
        let elements = filterbank.row_elements();
        let mut all = vec![0.0; first * elements];
        assert_eq!(filterbank.read_rows(&mut all).unwrap(), first);
        assert!(filterbank.can_split());
        let (encoding, streams) = {
            let input = filterbank.plan().input();
            (input.encoding, input.streams())
        };
        let stream = device.stream().unwrap();
        let mut rows = DeviceRows::new(device, filterbank, times / 16 + 1).unwrap();
        loop {
            let mut memory = vec![0; streams * encoding.bytes(times)];
            let mut block = VoltageBlock::lent(&mut memory, encoding, streams, times).unwrap();
            let (mut unread, making) = filterbank.split();
            let times = unread.read(&mut block).unwrap();
            if times == 0 {
                return all;
            }
            let layout = DeviceVoltages { first_byte: 0, stride: block.stride(), times };
            let input = device.upload(&memory).unwrap();
            let made = rows.make(making, (&input, &[layout]), &stream).unwrap();
            let mut bytes = vec![0; 4 * elements * made];
            rows.rows().download(0, &mut bytes).unwrap();
            all.extend(bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])));
        }
    }

    #[test]
    fn rows_are_those_of_the_host() {
        let Some(gpu) = Backend::available(1).into_iter().find(Backend::is_gpu) else { return };
        let Backend::Cuda(device, _) = &gpu else { unreachable!("it is a GPU") };
        for (coherent_dm, parts) in [
            (None, &[(0, 40_000), (0, 7_777), (1500, 640), (2300, 3_000)][..]),
            (Some(5.0), &[(100, 4_000)]),
        ] {
            let mut host = filterbank(coherent_dm, &gpu);
            let mut expected = vec![0.0; 3000 * host.row_elements()];
            let times = host.read_rows(&mut expected).unwrap();
            expected.truncate(times * host.row_elements());
            assert!(host.gaps().len() > 4 && times > 2400);
            for part in parts {
                let rows = on_device(&mut filterbank(coherent_dm, &gpu), device, *part);
                let differing =
                    rows.iter().zip(&expected).position(|(a, b)| a.to_bits() != b.to_bits());
                assert_eq!(differing, None, "{part:?}, {} a row", host.row_elements());
                assert_eq!(rows.len(), expected.len(), "{part:?}");
            }
        }
    }
}
