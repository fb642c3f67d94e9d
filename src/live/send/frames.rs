//! VDIF frames of a recording of voltages, one in a packet.

use super::feed::Recording;
use super::options::{Monitor, Options, Summary};
use super::packets::{Block, Division, Outlet, Put, run};
use crate::error::{Error, Result};
use crate::io::voltages::{FrameSizes, FrameWriter, VoltageHeader};
use crate::live::clock::now;
use crate::live::header::Content;
use crate::live::vdif::SEQUENCE_BYTES;
use crate::units::Epoch;

/// Most bytes of samples in a frame.
const MOST_BYTES: usize = 8000;

/// Divides voltages into VDIF frames, `numbered` by a sequence number before each, and passes them to `send` a batch at a time.
/// `reopen` opens the recording again for each repetition. A recording without a start begins with the present second. The time
/// goes on over restarts; only the sequence number begins anew.
///
/// # Errors
/// [`Error::Parameter`] for options out of range, and for spectra and voltages that VDIF does not hold; those of the recording, of
/// `send` and of the listener.
pub fn send_frames(
    recording: Recording,
    reopen: &mut dyn FnMut() -> Result<Recording>,
    numbered: bool,
    options: &Options,
    send: Put<'_>,
    monitor: &mut dyn Monitor,
) -> Result<Summary> {
    options.check()?;
    if options.first != 0 {
        let rule = "it is for SPEAD; VDIF frames are numbered by their time";
        return Err(Error::parameter("send.first", options.first, rule));
    }
    let Content::Voltages(mut header) = recording.content() else {
        return Err(Error::parameter("recording", "spectra", "VDIF has voltages"));
    };
    if header.start == Epoch::default() {
        let now = now();
        header.start = Epoch::new(now.day, now.seconds.floor());
    }
    let frames = Frames::new(&header, numbered, options)?;
    let shift_s = frames.writer.shift_s();
    let summary = run(recording, reopen, frames, options, send, monitor)?;
    Ok(Summary { shift_s, ..summary })
}

/// Frames of all threads.
struct Frames {
    writer: FrameWriter,
    zero_byte: u8,
    numbered: bool,
    /// Next sequence number.
    next: u64,
    /// Samples before the last start.
    before: u64,
    packet: Vec<u8>,
}

impl Frames {
    fn new(header: &VoltageHeader, numbered: bool, options: &Options) -> Result<Self> {
        let most_bytes = options.packet_bytes.min(MOST_BYTES);
        let writer =
            FrameWriter::new(header, FrameSizes { most_bytes, times: options.heap_times })?;
        let front = if numbered { SEQUENCE_BYTES } else { 0 };
        Ok(Self {
            zero_byte: header.encoding.zero_byte(),
            numbered,
            next: 0,
            before: 0,
            packet: vec![0; front + writer.frame_bytes()],
            writer,
        })
    }
}

impl Division for Frames {
    fn times(&self) -> usize {
        self.writer.times()
    }

    fn sources(&self) -> usize {
        self.writer.threads()
    }

    fn zero_byte(&self) -> u8 {
        self.zero_byte
    }

    fn packet_bytes(&self) -> usize {
        self.packet.len()
    }

    fn send(
        &mut self,
        source: usize,
        block: &Block<'_, '_>,
        outlet: &mut Outlet<'_>,
    ) -> Result<bool> {
        let Some(voltages) = block.feed.voltages()? else { return Ok(false) };
        let number = (self.before + block.position) / self.writer.times() as u64;
        let front = if self.numbered { SEQUENCE_BYTES } else { 0 };
        self.packet[..front].copy_from_slice(&self.next.to_le_bytes()[..front]);
        self.next += 1;
        self.writer.write(voltages, block.start, number, source, &mut self.packet[front..]);
        outlet.samples(&self.packet)
    }

    fn restart(&mut self, _content: Content, position: u64) -> Result<()> {
        self.before += position;
        self.next = 0;
        Ok(())
    }
}
