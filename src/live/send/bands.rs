//! Voltages sent to several receivers as they arrive, to each a part of the channels: an F-engine's spectra to X-engines.
//!
//! Invariant: every receiver gets all samples of its channels in order, or the reason why it does not is reported; a receiver that
//! fails does not end the others.

use std::ops::Range;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use super::feed::{LIVE_S, Recording};
use super::options::{Monitor, Options, Summary};
use super::send;
use crate::error::{Error, Result};
use crate::io::voltages::{VoltageHeader, VoltageSource};
use crate::live::target::Target;
use crate::voltage::{Flag, VoltageBlock};

/// Maximum number of blocks queued for one receiver. While its queue is full, reading waits for it, and with it all receivers.
const WAITING: usize = 32;

/// Most bytes of a block.
const BLOCK_BYTES: usize = 4 << 20;

/// Listener of the senders to several receivers, which call it at the same time.
pub trait BandMonitor: Sync {
    /// Returns whether all are to stop; called at least every 100 ms, except while voltages are awaited.
    fn stops(&self) -> bool;

    /// Is called after each block of voltages.
    fn sent(&self) {}

    /// Receives the reason why nothing can be sent to a receiver for some time.
    fn waits(&self, _receiver: &Target, _why: &str) {}

    /// Receives the error that ended the sender to a receiver.
    fn failed(&self, _receiver: &Target, _why: &Error) {}
}

/// Sends voltages to `receivers`, to each an equal part of the channels, in the order of the header. Missing samples of a live source
/// are not sent as SPEAD heaps; in a ring they are zeros. Returns each receiver's summary, `None` for one that failed.
///
/// # Errors
/// [`Error::Parameter`] for more receivers than channels, or none, and for samples of a part of a byte; [`Error::Io`] if a thread
/// cannot be started; those of the source, after the receivers have got what was read before.
pub fn send_bands(
    source: &mut dyn VoltageSource,
    receivers: &[Target],
    options: &Options,
    monitor: &dyn BandMonitor,
) -> Result<Vec<Option<Summary>>> {
    let header = source.header().clone();
    let bands = bands(&header, receivers.len())?;
    thread::scope(|scope| {
        let (mut queues, mut threads) = (Vec::new(), Vec::new());
        for (channels, receiver) in bands.into_iter().zip(receivers) {
            let (queue, blocks) = sync_channel(WAITING);
            let band = Band::new(&header, channels, blocks);
            let work = move || send_band(band, receiver, options, monitor);
            let named = thread::Builder::new().name("send".to_owned());
            let started = named.spawn_scoped(scope, work);
            threads.push(started.map_err(|error| Error::io("the thread of a receiver", error))?);
            queues.push(Some(queue));
        }
        let read = distribute(source, &mut queues, monitor);
        // The senders end their streams when nothing more can come.
        drop(queues);
        let sent = threads.into_iter().map(|thread| thread.join().ok().flatten()).collect();
        read.map(|()| sent)
    })
}

/// Divides the channels among receivers.
fn bands(header: &VoltageHeader, receivers: usize) -> Result<Vec<Range<usize>>> {
    let channels = header.coarse_channels();
    if receivers == 0 || receivers > channels {
        let rule = format!("each receives at least one of {channels} channels");
        return Err(Error::parameter("receivers", receivers, rule));
    }
    if header.encoding.group_samples() != 1 {
        let rule = "the samples of a stream must be whole bytes";
        return Err(Error::parameter("encoding", format!("{:?}", header.encoding), rule));
    }
    let edge = |number: usize| channels * number / receivers;
    Ok((0..receivers).map(|number| edge(number)..edge(number + 1)).collect())
}

/// Reads the voltages and hands each block to all receivers that have not failed.
fn distribute(
    source: &mut dyn VoltageSource,
    queues: &mut [Option<SyncSender<Arc<VoltageBlock<'static>>>>],
    monitor: &dyn BandMonitor,
) -> Result<()> {
    let header = source.header();
    let by_size = BLOCK_BYTES * 8 / header.sample_bits().max(1);
    let times = ((LIVE_S / header.tsamp_s) as usize).min(by_size).max(1);
    while !monitor.stops() && queues.iter().any(Option::is_some) {
        let mut block = source.header().block(times);
        match source.read(&mut block) {
            Ok(0) => break,
            Err(error) if error.is_stop() => break,
            read => read?,
        };
        let block = Arc::new(block);
        for queue in queues.iter_mut() {
            let is_gone = queue.as_ref().is_some_and(|queue| queue.send(block.clone()).is_err());
            if is_gone {
                *queue = None;
            }
        }
        monitor.sent();
    }
    Ok(())
}

/// Sends a band to its receiver, and reports an error.
fn send_band(
    band: Band,
    receiver: &Target,
    options: &Options,
    monitor: &dyn BandMonitor,
) -> Option<Summary> {
    let mut once = || {
        let why = "voltages that arrive are sent once".to_owned();
        Err(Error::Unavailable { what: "another repetition".to_owned(), why })
    };
    let options = Options { rate: None, repeats: 1, ..*options };
    let recording = Recording::Voltages(Box::new(band));
    let mut listener = Listener { receiver, monitor };
    let sent = send(recording, &mut once, receiver, &options, &mut listener);
    sent.inspect_err(|why| monitor.failed(receiver, why)).ok()
}

/// Listener of the sender to one receiver.
struct Listener<'a> {
    receiver: &'a Target,
    monitor: &'a dyn BandMonitor,
}

impl Monitor for Listener<'_> {
    fn stops(&mut self) -> bool {
        self.monitor.stops()
    }

    fn waits(&mut self, why: &str) {
        self.monitor.waits(self.receiver, why);
    }
}

/// Some channels of all antennas, of blocks that a queue holds.
struct Band {
    header: VoltageHeader,
    /// Streams of the blocks, ascending.
    streams: Vec<usize>,
    blocks: Receiver<Arc<VoltageBlock<'static>>>,
    /// Block in use, and its samples that were read.
    current: Option<Arc<VoltageBlock<'static>>>,
    used: usize,
}

impl Band {
    fn new(
        whole: &VoltageHeader,
        channels: Range<usize>,
        blocks: Receiver<Arc<VoltageBlock<'static>>>,
    ) -> Self {
        let (all, each) = (whole.coarse_channels(), whole.polarizations);
        let antenna = |antenna: usize| {
            let first = antenna * all;
            (first + channels.start) * each..(first + channels.end) * each
        };
        let streams = (0..whole.antennas).flat_map(antenna).collect();
        let header = VoltageHeader {
            centres_hz: whole.centres_hz[channels.clone()].to_vec(),
            sweep: None,
            times: None,
            ..whole.clone()
        };
        Self { header, streams, blocks, current: None, used: 0 }
    }

    /// Returns the block with the next samples, for which it waits; `None` after the last one.
    fn next(&mut self) -> Option<Arc<VoltageBlock<'static>>> {
        if self.current.as_ref().is_none_or(|block| self.used == block.times()) {
            (self.current, self.used) = (self.blocks.recv().ok(), 0);
        }
        self.current.clone()
    }

    /// Returns the part of a flag within this band and the samples `times` of its block, counted from `start` samples before them.
    fn cut(&self, flag: &Flag, times: &Range<u64>, start: u64) -> impl Iterator<Item = Flag> {
        let begin = flag.start.max(times.start);
        let end = (flag.start + flag.times).min(times.end);
        let place = |stream: usize| self.streams.partition_point(|own| *own < stream);
        let streams = place(flag.streams.start)..place(flag.streams.end);
        let is_within = begin < end && !streams.is_empty();
        let flag = Flag {
            streams,
            start: start + begin.saturating_sub(times.start),
            times: end.saturating_sub(begin),
        };
        is_within.then_some(flag).into_iter()
    }
}

impl VoltageSource for Band {
    fn header(&self) -> &VoltageHeader {
        &self.header
    }

    fn read(&mut self, block: &mut VoltageBlock) -> Result<usize> {
        let encoding = block.encoding();
        let mut done = 0;
        block.flags_mut().clear();
        while done < block.capacity()
            && let Some(from) = self.next()
        {
            let count = (block.capacity() - done).min(from.times() - self.used);
            let taken = encoding.bytes(self.used)..encoding.bytes(self.used + count);
            let voltages = from.voltages();
            for (row, stream) in block.rows_mut().zip(&self.streams) {
                let own = &voltages.row(*stream)[taken.clone()];
                row[encoding.bytes(done)..][..own.len()].copy_from_slice(own);
            }
            let times = self.used as u64..(self.used + count) as u64;
            let flags = from.flags().iter().flat_map(|flag| self.cut(flag, &times, done as u64));
            block.flags_mut().extend(flags);
            (self.used, done) = (self.used + count, done + count);
        }
        block.set_times(done)?;
        Ok(done)
    }

    fn is_live(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::voltage::VoltageEncoding;

    /// Two antennas of five channels, whose samples are the number of their stream and their time.
    struct Numbers {
        header: VoltageHeader,
        time: usize,
    }

    const TIMES: usize = 37;

    fn numbers() -> Numbers {
        let centres_hz = (0..5).map(|channel| 1e9 + f64::from(channel) * 1e6).collect();
        let header = VoltageHeader {
            antennas: 2,
            ..VoltageHeader::new(centres_hz, 1e-3, VoltageEncoding::Complex8)
        };
        Numbers { header, time: 0 }
    }

    impl VoltageSource for Numbers {
        fn header(&self) -> &VoltageHeader {
            &self.header
        }

        fn read(&mut self, block: &mut VoltageBlock) -> Result<usize> {
            let times = block.capacity().min(TIMES - self.time);
            for (stream, row) in block.rows_mut().enumerate() {
                for (time, sample) in row.chunks_exact_mut(2).take(times).enumerate() {
                    sample.copy_from_slice(&[stream as u8, (self.time + time) as u8]);
                }
            }
            block.flags_mut().clear();
            // Channels 1 and 2 of the second antenna miss sample 11.
            if (self.time..self.time + times).contains(&11) {
                let start = (11 - self.time) as u64;
                block.flags_mut().push(Flag { streams: 6..8, start, times: 1 });
            }
            self.time += times;
            block.set_times(times)?;
            Ok(times)
        }

        fn is_live(&self) -> bool {
            true
        }
    }

    struct Never;

    impl BandMonitor for Never {
        fn stops(&self) -> bool {
            false
        }
    }

    #[test]
    fn every_band_has_all_samples_of_its_channels() {
        let mut source = numbers();
        let header = source.header.clone();
        let bands = bands(&header, 2).unwrap();
        assert_eq!(bands, [0..2, 2..5]);
        let (queues, mut read): (Vec<_>, Vec<_>) = bands
            .into_iter()
            .map(|channels| {
                let (queue, blocks) = sync_channel(WAITING);
                (Some(queue), Band::new(&header, channels, blocks))
            })
            .unzip();
        let mut queues = queues;
        distribute(&mut source, &mut queues, &Never).unwrap();
        drop(queues);
        let expected = [(vec![0, 1, 5, 6], Some(3..4)), (vec![2, 3, 4, 7, 8, 9], Some(3..4))];
        for (band, (streams, flagged)) in read.iter_mut().zip(expected) {
            assert_eq!(band.streams, streams);
            // Blocks of another size than those of the source.
            let (mut time, mut flags) = (0, Vec::new());
            loop {
                let mut block = band.header.block(7);
                let times = band.read(&mut block).unwrap();
                for (row, stream) in streams.iter().enumerate() {
                    let samples = block.voltages().row(row).chunks_exact(2).take(times);
                    for (later, sample) in samples.enumerate() {
                        assert_eq!(sample, [*stream as u8, (time + later) as u8]);
                    }
                }
                flags.extend(block.flags_after(time as u64));
                time += times;
                if times < 7 {
                    break;
                }
            }
            assert_eq!(time, TIMES);
            let expected = flagged.map(|streams| Flag { streams, start: 11, times: 1 });
            assert_eq!(flags, expected.into_iter().collect::<Vec<_>>());
        }
    }

    #[test]
    fn more_receivers_than_channels_are_refused() {
        let header = numbers().header;
        for receivers in [0, 6] {
            let error = bands(&header, receivers).unwrap_err().to_string();
            assert!(error.contains("5 channels"), "{error}");
        }
    }
}
