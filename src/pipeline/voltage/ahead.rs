//! Voltages read ahead of their use by a thread of their own.
//!
//! Invariant: the blocks, their order and the error that ends them are those of the source; at most [`BLOCKS`] blocks
//! exist.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::io::voltages::{VoltageHeader, VoltageSource};
use crate::trace::{self, Work};
use crate::voltage::VoltageBlock;

/// Blocks in memory: one in use, one that waits and one that is filled.
pub(super) const BLOCKS: usize = 3;

/// Timeout of a wait that makes the channel allocate before the stream begins.
const FIRST_WAIT: Duration = Duration::from_micros(20);

/// Source whose blocks a thread may read ahead.
pub(super) struct Ahead {
    header: VoltageHeader,
    state: State,
    /// Blocks read before the thread ended, earliest first, and the error after them.
    held: VecDeque<VoltageBlock<'static>>,
    fault: Option<Error>,
    /// Samples of each stream read from the source or skipped, held blocks included.
    position: u64,
    /// Samples of a block.
    gulp: usize,
    /// Samples of a block after a read error: a shorter read can return the samples before the fault.
    least: usize,
}

enum State {
    Idle(Box<dyn VoltageSource>),
    Reading(Reading),
    /// The thread panicked, so the source is lost.
    Lost,
}

/// Thread that fills empty blocks until the channel closes, the source ends or `stop` is set.
struct Reading {
    stop: Arc<AtomicBool>,
    empty: SyncSender<VoltageBlock<'static>>,
    read: Receiver<Read>,
    thread: JoinHandle<Box<dyn VoltageSource>>,
    /// The source's truncation as known when the thread started.
    cut: Option<String>,
}

type Read = (VoltageBlock<'static>, Result<usize>);

impl Ahead {
    /// Reads blocks of `gulp` samples from a source of which `position` samples are read.
    pub(super) fn new(
        source: Box<dyn VoltageSource>,
        position: u64,
        gulp: usize,
        least: usize,
    ) -> Self {
        let header = source.header().clone();
        let held = VecDeque::with_capacity(BLOCKS);
        Self { header, state: State::Idle(source), held, fault: None, position, gulp, least }
    }

    /// Returns the source's header.
    pub(super) fn header(&self) -> &VoltageHeader {
        &self.header
    }

    /// Describes the truncation of the recording, if any.
    pub(super) fn cut(&self) -> Option<&str> {
        match &self.state {
            State::Idle(source) => source.cut(),
            State::Reading(reading) => reading.cut.as_deref(),
            State::Lost => None,
        }
    }

    /// Returns the samples of each stream taken from the source: those of blocks returned or held, and skipped ones.
    pub(super) fn position(&self) -> u64 {
        self.position
    }

    /// Replaces a used block by the next one; the result has no samples at the end of the data.
    ///
    /// # Errors
    /// The source's error, after all blocks before it.
    pub(super) fn next(&mut self, used: &mut VoltageBlock<'static>) -> Result<()> {
        loop {
            if let Some(block) = self.held.pop_front() {
                *used = block;
                return Ok(());
            }
            if let Some(fault) = self.fault.take() {
                return Err(fault);
            }
            self.begin(used)?;
            let State::Reading(reading) = &self.state else { return Err(lost(&self.header)) };
            // The thread has at least one empty block, so it answers unless it has ended.
            match reading.read.recv() {
                Ok((block, Ok(read))) => {
                    self.position += read as u64;
                    let spare = std::mem::replace(used, block);
                    if read == 0 {
                        self.stop();
                    } else if spare.capacity() == self.gulp
                        && let State::Reading(reading) = &self.state
                    {
                        // The thread may have ended after this block.
                        let _ = reading.empty.send(spare);
                    }
                    return Ok(());
                }
                // A failed read does not move the source: shorter reads return the samples before the fault.
                Ok((_, Err(_))) if self.gulp > self.least => {
                    self.stop();
                    self.gulp = self.least;
                }
                Ok((_, Err(fault))) => {
                    self.stop();
                    return Err(fault);
                }
                Err(_) => self.stop(),
            }
        }
    }

    /// Starts the thread unless it runs.
    fn begin(&mut self, used: &mut VoltageBlock<'static>) -> Result<()> {
        if matches!(self.state, State::Reading(_)) {
            return Ok(());
        }
        let State::Idle(source) = std::mem::replace(&mut self.state, State::Lost) else {
            return Err(lost(&self.header));
        };
        let (empty, blocks) = sync_channel(BLOCKS);
        let (filled, read) = sync_channel(BLOCKS);
        if used.capacity() != self.gulp {
            *used = self.header.block(self.gulp);
        }
        for _ in 1..BLOCKS {
            let _ = empty.send(self.header.block(self.gulp));
        }
        // The first wait for a channel allocates, so it comes now.
        let _ = read.recv_timeout(FIRST_WAIT);
        let cut = source.cut().map(str::to_owned);
        let stop = Arc::new(AtomicBool::new(false));
        let is_stopped = Arc::clone(&stop);
        let thread = std::thread::Builder::new().name("reader".to_owned());
        let thread = thread
            .spawn(move || fill(source, &blocks, &filled, &is_stopped))
            .map_err(|error| Error::io(&self.header.path, error))?;
        self.state = State::Reading(Reading { stop, empty, read, thread, cut });
        Ok(())
    }

    /// Waits for the thread to end and keeps the blocks that it has filled, earliest first.
    pub(super) fn stop(&mut self) {
        let state = std::mem::replace(&mut self.state, State::Lost);
        let State::Reading(Reading { stop, empty, read, thread, .. }) = state else {
            self.state = state;
            return;
        };
        stop.store(true, Ordering::Relaxed);
        drop(empty);
        if let Ok(source) = thread.join() {
            self.state = State::Idle(source);
        }
        for (block, result) in read.try_iter() {
            match result {
                Ok(0) => {}
                Ok(times) => {
                    self.position += times as u64;
                    self.held.push_back(block);
                }
                // As in `next`.
                Err(_) if self.gulp > self.least => self.gulp = self.least,
                Err(fault) => self.fault = Some(fault),
            }
        }
    }

    /// Takes the earliest block that is held.
    pub(super) fn take_held(&mut self) -> Option<VoltageBlock<'static>> {
        self.held.pop_front()
    }

    /// Reads into a block of the caller, after all held blocks were taken; returns the samples read.
    ///
    /// # Errors
    /// Errors of the source.
    pub(super) fn read(&mut self, block: &mut VoltageBlock<'_>) -> Result<usize> {
        self.stop();
        if let Some(fault) = self.fault.take() {
            return Err(fault);
        }
        let State::Idle(source) = &mut self.state else { return Err(lost(&self.header)) };
        let mut span = trace::span(Work::Read, "voltages");
        let times = source.read(block)?;
        span.add_bytes(block.streams() * block.encoding().bytes(times));
        self.position += times as u64;
        Ok(times)
    }

    /// Drops held blocks and skips samples up to `position`, which is not before [`position`](Self::position); returns
    /// how many samples short of it the source ended.
    ///
    /// # Errors
    /// Errors of the source.
    pub(super) fn skip_to(&mut self, position: u64) -> Result<u64> {
        self.stop();
        self.held.clear();
        // A failed read has not moved the source, which may skip the samples that it could not read.
        self.fault = None;
        let State::Idle(source) = &mut self.state else { return Err(lost(&self.header)) };
        self.position += source.skip(position.saturating_sub(self.position))?;
        Ok(position.saturating_sub(self.position))
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        self.stop();
    }
}

fn lost(header: &VoltageHeader) -> Error {
    let what = format!("the rest of {}", header.path.display());
    Error::Unavailable { what, why: "the thread that read it failed".to_owned() }
}

/// Fills blocks until none comes, the source ends or fails, or `stop` is set; returns the source.
fn fill(
    mut source: Box<dyn VoltageSource>,
    blocks: &Receiver<VoltageBlock<'static>>,
    filled: &SyncSender<Read>,
    stop: &AtomicBool,
) -> Box<dyn VoltageSource> {
    for mut block in blocks {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let mut span = trace::span(Work::Read, "voltages");
        let read = source.read(&mut block);
        let times = *read.as_ref().unwrap_or(&0);
        span.add_bytes(block.streams() * block.encoding().bytes(times));
        drop(span);
        if filled.send((block, read)).is_err() || times == 0 {
            break;
        }
    }
    source
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::voltage::VoltageEncoding;

    /// Source whose sample 21 cannot be read.
    struct Failing {
        header: VoltageHeader,
        position: u64,
    }

    impl VoltageSource for Failing {
        fn header(&self) -> &VoltageHeader {
            &self.header
        }

        fn read(&mut self, block: &mut VoltageBlock) -> Result<usize> {
            let times = block.capacity().min((40 - self.position) as usize);
            let span = self.position..self.position + times as u64;
            if span.contains(&21) {
                return Err(Error::io("x.raw", std::io::ErrorKind::Other.into()));
            }
            self.position = span.end;
            block.set_times(times)?;
            Ok(times)
        }

        fn skip(&mut self, times: u64) -> Result<u64> {
            let times = times.min(40 - self.position);
            self.position += times;
            Ok(times)
        }
    }

    #[test]
    fn samples_before_a_fault_are_returned_wherever_the_thread_stops() {
        let header = VoltageHeader::new(vec![1.4e9], 1e-6, VoltageEncoding::Complex8);
        for stops in [false, true] {
            let source = Failing { header: header.clone(), position: 0 };
            let mut ahead = Ahead::new(Box::new(source), 0, 8, 2);
            let (mut block, mut read) = (header.block(8), 0);
            let fault = loop {
                match ahead.next(&mut block) {
                    Ok(()) => read += block.times(),
                    Err(fault) => break fault,
                }
                if stops {
                    std::thread::sleep(std::time::Duration::from_millis(20));
                    ahead.stop();
                }
            };
            assert_eq!((read, ahead.position()), (20, 20), "{fault}");
            assert_eq!(ahead.skip_to(30).unwrap(), 0);
            ahead.next(&mut block).unwrap();
            assert!(block.times() > 0);
            assert_eq!(ahead.skip_to(50).unwrap(), 10);
        }
    }
}
