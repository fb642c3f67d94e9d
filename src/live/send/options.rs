//! Options of a sender, its summary, and what a caller hears while it sends.

use crate::error::{Error, Result};
use crate::live::impair;

/// Fastest rate, in multiples of real time, at which a schedule is kept.
const FASTEST: f64 = 1e9;

/// Options of a sender.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Options {
    /// Multiple of real time; `None` sends as fast as it is taken.
    pub rate: Option<f64>,
    /// Times that the recording is sent, without a break in the numbers of samples; 0 is endless.
    pub repeats: u64,
    /// Seconds of data after which the sender starts again, as a program that was killed and started does: with a header of
    /// a later start, and samples numbered from 0. Whole heaps are sent before.
    pub restart_s: Option<f64>,
    /// Number of the first sample, before any restart.
    pub first: u64,
    /// Most bytes of samples per packet, a multiple of 8.
    pub packet_bytes: usize,
    /// Samples per SPEAD heap or VDIF frame; `None` chooses heaps of about 8 KiB, and the largest frames that fit.
    pub heap_times: Option<usize>,
    /// Most bytes of packed voltages that are kept in memory for repetitions.
    pub kept_bytes: u64,
    /// Loss, delay and duplication of packets with samples.
    pub impairments: impair::Options,
}

impl Default for Options {
    /// Makes options of real time, once, in packets of 8 KiB; repetitions keep at most 1 GiB.
    fn default() -> Self {
        Self {
            rate: Some(1.0),
            repeats: 1,
            restart_s: None,
            first: 0,
            packet_bytes: 8192,
            heap_times: None,
            kept_bytes: 1 << 30,
            impairments: impair::Options::default(),
        }
    }
}

impl Options {
    /// Checks the options that any stream has.
    ///
    /// # Errors
    /// [`Error::Parameter`] for a number out of range.
    pub(super) fn check(&self) -> Result<()> {
        if let Some(rate) = self.rate.filter(|rate| !(1.0 / FASTEST..=FASTEST).contains(rate)) {
            let rule = "it must be 1e-9 to 1e9 times real time, or max";
            return Err(Error::parameter("send.rate", rate, rule));
        }
        if let Some(seconds) = self.restart_s.filter(|seconds| seconds.is_nan() || *seconds <= 0.0)
        {
            return Err(Error::parameter("send.restart_s", seconds, "it must be more than 0 s"));
        }
        Ok(())
    }

    /// Returns the samples from one start to the next; the most there are without restarts.
    pub(super) fn samples_per_start(&self, tsamp_s: f64) -> u64 {
        self.restart_s.map_or(u64::MAX, |seconds| (seconds / tsamp_s).ceil().max(1.0) as u64)
    }
}

/// Samples of a source that were lost by an impairment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lost {
    /// Number of restarts before them.
    pub start: u64,
    /// Number of the first sample, from the header's start on.
    pub first: u64,
    /// Samples.
    pub times: u64,
    /// Antenna; 0 for spectra. For VDIF frames: thread, counted through all antennas.
    pub source: usize,
}

/// Listener of a sender.
pub trait Monitor {
    /// Returns whether the sender is to stop; called at least every 100 ms, except while the recording is read.
    fn stops(&mut self) -> bool;

    /// Receives the number of samples sent so far, of every stream.
    fn sent(&mut self, _samples: u64) {}

    /// Receives why the recording that was read to its end is not whole: the missing part of a truncated one.
    fn cut(&mut self, _why: &str) {}

    /// Receives the reason why nothing can be sent for some time.
    fn waits(&mut self, _why: &str) {}

    /// Receives samples that were lost by an impairment, in order of time for each source; neighbours are joined.
    ///
    /// # Errors
    /// Any, which ends the sender.
    fn lost(&mut self, _lost: &Lost) -> Result<()> {
        Ok(())
    }
}

/// Account of what was sent.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Summary {
    /// Packets sent; of these, those without samples are `header_packets`.
    pub packets: u64,
    /// Packets of headers, descriptors and ends.
    pub header_packets: u64,
    /// Bytes of packets, without those of UDP and IP, or bytes of samples in a ring.
    pub bytes: u64,
    /// Samples sent or lost, of every stream.
    pub samples: u64,
    /// Seconds of data.
    pub data_s: f64,
    /// Seconds that it took.
    pub elapsed_s: f64,
    /// Most seconds by which it was behind its schedule.
    pub behind_s: f64,
    /// Seconds by which the times sent are later than the recording's, since a VDIF frame begins at a whole fraction of a second.
    pub shift_s: f64,
    /// Starts after the first.
    pub restarts: u64,
    /// Packets with samples that were lost by an impairment.
    pub dropped: u64,
    /// Packets with samples that were delayed by an impairment.
    pub delayed: u64,
    /// Packets with samples that were sent twice by an impairment.
    pub duplicated: u64,
    /// Whether the listener stopped it.
    pub is_stopped: bool,
}
