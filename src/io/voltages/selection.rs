//! Some recorded channels and one of the polarizations of a recording, as a recording of its own.
//!
//! Invariant: the samples are those of the recording at the same times, the streams in the same order.

use std::ops::Range;

use super::{Flag, VoltageHeader, VoltageSource};
use crate::error::{Error, Result};
use crate::voltage::VoltageBlock;

/// Part of a recording.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// Recorded channels, counted from 0 as recorded; `None` takes all.
    pub channels: Option<Range<usize>>,
    /// The only polarization, counted from 0; `None` takes all.
    pub polarization: Option<usize>,
}

impl Selection {
    /// Returns the selected part of a recording; the source itself if nothing is selected.
    ///
    /// # Errors
    /// [`Error::Parameter`] for channels or a polarization that the recording lacks.
    pub fn of(&self, source: Box<dyn VoltageSource>) -> Result<Box<dyn VoltageSource>> {
        if *self == Self::default() {
            return Ok(source);
        }
        Ok(Box::new(Selected::new(source, self)?))
    }
}

/// Selected streams of a recording.
struct Selected {
    source: Box<dyn VoltageSource>,
    header: VoltageHeader,
    flags: Vec<Flag>,
    /// Streams of the recording, ascending.
    streams: Vec<usize>,
    /// All streams of the last read.
    all: VoltageBlock<'static>,
}

impl Selected {
    fn new(source: Box<dyn VoltageSource>, selection: &Selection) -> Result<Self> {
        let mut header = source.header().clone();
        let all = header.coarse_channels();
        let channels = selection.channels.clone().unwrap_or(0..all);
        if channels.is_empty() || channels.end > all {
            let rule = format!("the recording has channels 0 to {}", all.saturating_sub(1));
            let found = format!("{} to {}", channels.start, channels.end.saturating_sub(1));
            return Err(Error::parameter("selection.channels", found, rule));
        }
        let polarizations = match selection.polarization {
            None => 0..header.polarizations,
            Some(one) if one < header.polarizations => one..one + 1,
            Some(one) => {
                let rule = format!("the recording has {}, counted from 0", header.polarizations);
                return Err(Error::parameter("selection.polarization", one, rule));
            }
        };
        let each = header.polarizations;
        let streams = (0..header.antennas).flat_map(|antenna| {
            let polarizations = polarizations.clone();
            channels.clone().flat_map(move |channel| {
                polarizations.clone().map(move |one| (antenna * all + channel) * each + one)
            })
        });
        let streams: Vec<usize> = streams.collect();
        // A window counts from the upper edge of the whole band.
        header.sweep = header.sweep.filter(|_| channels.len() == all);
        header.centres_hz = header.centres_hz[channels].to_vec();
        header.polarizations = polarizations.len();
        let flags = source.flags().iter().filter_map(|flag| cut(flag, &streams)).collect();
        let all = source.header().block(0);
        Ok(Self { source, header, flags, streams, all })
    }
}

/// Returns the part of a flag within the selected streams.
fn cut(flag: &Flag, streams: &[usize]) -> Option<Flag> {
    let from = |end: usize| streams.partition_point(|stream| *stream < end);
    let streams = from(flag.streams.start)..from(flag.streams.end);
    (!streams.is_empty()).then(|| Flag { streams, ..flag.clone() })
}

impl VoltageSource for Selected {
    fn header(&self) -> &VoltageHeader {
        &self.header
    }

    fn read(&mut self, block: &mut VoltageBlock) -> Result<usize> {
        if self.all.capacity() != block.capacity() {
            self.all = self.source.header().block(block.capacity());
        }
        let times = self.source.read(&mut self.all)?;
        let all = self.all.voltages();
        for (row, stream) in block.rows_mut().zip(&self.streams) {
            let bytes = all.row(*stream);
            row[..bytes.len()].copy_from_slice(bytes);
        }
        block.flags_mut().clear();
        let flags = self.all.flags().iter().filter_map(|flag| cut(flag, &self.streams));
        block.flags_mut().extend(flags);
        block.set_times(times)?;
        Ok(times)
    }

    fn skip(&mut self, times: u64) -> Result<u64> {
        self.source.skip(times)
    }

    fn flags(&self) -> &[Flag] {
        &self.flags
    }

    fn is_live(&self) -> bool {
        self.source.is_live()
    }

    fn cut(&self) -> Option<&str> {
        self.source.cut()
    }

    fn warnings(&self) -> &[String] {
        self.source.warnings()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::voltage::VoltageEncoding;

    /// Recording whose samples are the numbers of their streams.
    struct Numbers {
        header: VoltageHeader,
        flags: Vec<Flag>,
    }

    impl VoltageSource for Numbers {
        fn header(&self) -> &VoltageHeader {
            &self.header
        }

        fn read(&mut self, block: &mut VoltageBlock) -> Result<usize> {
            block.rows_mut().enumerate().for_each(|(stream, row)| row.fill(stream as u8));
            block.flags_mut().clone_from(&self.flags);
            block.set_times(block.capacity())?;
            Ok(block.capacity())
        }

        fn skip(&mut self, times: u64) -> Result<u64> {
            Ok(times)
        }

        fn flags(&self) -> &[Flag] {
            &self.flags
        }
    }

    fn numbers() -> Box<dyn VoltageSource> {
        let centres = vec![1403e6, 1402e6, 1401e6, 1400e6];
        let mut header = VoltageHeader::new(centres, 1e-6, VoltageEncoding::Real8);
        (header.antennas, header.polarizations) = (2, 2);
        let flag = |streams| Flag { streams, start: 3, times: 2 };
        Box::new(Numbers { header, flags: vec![flag(0..16), flag(5..7), flag(0..2)] })
    }

    #[test]
    fn a_part_has_the_streams_selected() {
        let selection = Selection { channels: Some(1..3), polarization: Some(1) };
        let mut part = selection.of(numbers()).unwrap();
        assert_eq!((part.header().antennas, part.header().polarizations), (2, 1));
        assert_eq!(part.header().centres_hz, [1402e6, 1401e6]);
        let mut block = part.header().block(6);
        assert_eq!(part.read(&mut block).unwrap(), 6);
        let rows: Vec<u8> = (0..4).map(|stream| block.voltages().row(stream)[5]).collect();
        assert_eq!(rows, [3, 5, 11, 13]);
        let streams: Vec<_> = block.flags().iter().map(|flag| flag.streams.clone()).collect();
        assert_eq!(streams, [0..4, 1..2]);
        assert_eq!(block.flags(), part.flags());
    }

    #[test]
    fn what_a_recording_lacks_is_refused() {
        for (channels, polarization, told) in [
            (Some(2..5), None, "channels 0 to 3"),
            (Some(2..2), None, "channels 0 to 3"),
            (None, Some(2), "the recording has 2"),
        ] {
            let selection = Selection { channels, polarization };
            let Err(error) = selection.of(numbers()) else { panic!("{told}") };
            assert!(error.to_string().contains(told), "{error}");
        }
    }
}
