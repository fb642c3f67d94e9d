//! Recordings as transfers of a PSRDADA ring: spectra as rows, voltages in the order that PSRDADA files have.

use std::time::{Duration, Instant};

use super::feed::{Feed, Recording, later};
use super::options::{Monitor, Options, Summary};
use super::pace::{Pace, pause};
use crate::error::{Error, Result};
use crate::io::voltages::dada::Order;
use crate::live::header::Content;
use crate::live::ring::Writer;

/// Longest wait before the listener is asked whether to stop.
pub(super) const STEP: Duration = Duration::from_millis(100);

/// Time without progress after which the listener hears of it.
const PATIENCE: Duration = Duration::from_secs(2);

/// Longest wait for the end of a transfer that was stopped.
const END_LIMIT: Duration = Duration::from_millis(500);

/// Seconds of wall time that are written at once.
const PIECE_S: f64 = 0.01;

/// Sends a recording through a ring: a transfer, or one for each start. `reopen` opens the recording again for each
/// repetition.
///
/// # Errors
/// [`Error::Parameter`] for impairments, which rings do not have, options out of range, and contents for which there is no
/// header; those of the recording and of the ring.
pub fn send_transfers(
    recording: Recording,
    reopen: &mut dyn FnMut() -> Result<Recording>,
    options: &Options,
    writer: &mut Writer,
    monitor: &mut dyn Monitor,
) -> Result<Summary> {
    check(options)?;
    let content = recording.content();
    let tsamp_s = content.tsamp_s();
    let order = match &content {
        Content::Spectra(_) => None,
        Content::Voltages(header) => Some(Order::new(header)?),
    };
    let piece = options.rate.map_or(1 << 16, |rate| (PIECE_S * rate / tsamp_s) as usize);
    let piece = piece.clamp(1, order.as_ref().map_or(1 << 16, Order::step_times));
    let per_start = options.samples_per_start(tsamp_s);
    let mut feed = Feed::new(recording, reopen, options.repeats, 1, options.rate);
    let mut transfers = Transfers { writer, monitor, bytes: 0, is_open: false, is_stopped: false };
    transfers.begin(&content)?;
    let mut pace = Pace::new(tsamp_s, options.rate);
    let (mut samples, mut position, mut restarts) = (0, 0, 0);
    let mut frames = Vec::new();
    while !transfers.is_stopped {
        let filled = match feed.fill(transfers.monitor) {
            Err(error) if error.is_stop() => {
                transfers.is_stopped = true;
                break;
            }
            filled => filled?,
        };
        let mut start = 0;
        while start < filled && !transfers.is_stopped {
            if position == per_start {
                transfers.end()?;
                if transfers.is_stopped {
                    break;
                }
                transfers.begin(&later(&content, samples as f64 * tsamp_s))?;
                (position, restarts) = (0, restarts + 1);
                continue;
            }
            let count = piece.min(filled - start).min((per_start - position) as usize);
            if !transfers.wait(&mut pace, samples + count as u64) {
                break;
            }
            match (&order, feed.voltages()?) {
                (Some(order), Some(voltages)) => {
                    order.gather(voltages, start, count, &mut frames);
                    transfers.write(&frames)?;
                }
                _ => transfers.write(feed.spectra(start, count))?,
            }
            if transfers.is_stopped {
                break;
            }
            start += count;
            (samples, position) = (samples + count as u64, position + count as u64);
            transfers.monitor.sent(samples);
        }
        if filled == 0 {
            break;
        }
    }
    transfers.end()?;
    // A transfer that is stopped while the ring is full ends within a block of samples.
    let samples = transfers.bytes / feed.frame_bytes() as u64;
    Ok(Summary {
        bytes: transfers.bytes,
        samples,
        data_s: samples as f64 * tsamp_s,
        elapsed_s: pace.elapsed_s(),
        behind_s: pace.behind_s(),
        restarts,
        is_stopped: transfers.is_stopped,
        ..Summary::default()
    })
}

/// Refuses options that are for packets.
fn check(options: &Options) -> Result<()> {
    options.check()?;
    let rule = "it is for packets, and rings have none";
    let impairments = &options.impairments;
    let given = [
        ("impair.loss", impairments.loss),
        ("impair.reorder", impairments.reorder),
        ("impair.duplicate", impairments.duplicate),
    ];
    match given.into_iter().find(|(_, probability)| *probability != 0.0) {
        Some((name, probability)) => Err(Error::parameter(name, probability, rule)),
        None if options.first != 0 => Err(Error::parameter("send.first", options.first, rule)),
        None => Ok(()),
    }
}

/// Writer of a ring, whose waits the listener can end.
struct Transfers<'a> {
    writer: &'a mut Writer,
    monitor: &'a mut dyn Monitor,
    bytes: u64,
    /// Whether a transfer has begun and not ended.
    is_open: bool,
    is_stopped: bool,
}

impl Transfers<'_> {
    /// Sleeps until the first `samples` samples are due. Returns whether they are: not if the listener stops the sender.
    fn wait(&mut self, pace: &mut Pace, samples: u64) -> bool {
        loop {
            if self.monitor.stops() {
                self.is_stopped = true;
                return false;
            }
            let left = pace.until(samples);
            if left.is_zero() {
                return true;
            }
            pause(left);
        }
    }

    /// Repeats a call of the writer until it is done, or stopped.
    fn repeat(&mut self, mut call: impl FnMut(&mut Writer) -> Result<Progress>) -> Result<()> {
        let mut since = Some(Instant::now());
        loop {
            match call(self.writer)? {
                Progress::Done => return Ok(()),
                Progress::Some => since = Some(Instant::now()),
                Progress::None => {}
            }
            if self.monitor.stops() {
                self.is_stopped = true;
                return Ok(());
            }
            if since.is_some_and(|since| since.elapsed() >= PATIENCE) {
                self.monitor.waits(&self.writer.waits_for()?);
                since = None;
            }
        }
    }

    fn begin(&mut self, content: &Content) -> Result<()> {
        let header = content.text()?;
        self.repeat(|writer| writer.begin(&header, STEP).map(Progress::of))?;
        self.is_open = !self.is_stopped;
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        let mut written = 0;
        let done = self.repeat(|writer| {
            let count = writer.write(&bytes[written..], STEP)?;
            written += count;
            Ok(match count {
                _ if written == bytes.len() => Progress::Done,
                0 => Progress::None,
                _ => Progress::Some,
            })
        });
        self.bytes += written as u64;
        done
    }

    /// Ends the transfer; one that was stopped with a full ring is ended when the writer is dropped, or by a repair.
    fn end(&mut self) -> Result<()> {
        if !std::mem::take(&mut self.is_open) {
            return Ok(());
        }
        if self.is_stopped {
            return self.writer.end(END_LIMIT).map(|_| ());
        }
        self.repeat(|writer| writer.end(STEP).map(Progress::of))
    }
}

/// Progress of a call.
enum Progress {
    Done,
    Some,
    None,
}

impl Progress {
    fn of(is_done: bool) -> Self {
        if is_done { Self::Done } else { Self::None }
    }
}
