//! Mapping of a thread's channels to streams.
//!
//! Invariant: every stream belongs to exactly one channel of one thread.

use crate::error::{Error, Result};

/// Maximum number of streams in a recording.
const MAX_STREAMS: usize = 1 << 20;

/// Stream dimensions: every station has the same threads, every thread the same channels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Streams {
    pub(super) stations: usize,
    pub(super) threads: usize,
    pub(super) channels: usize,
    pairs: Pairs,
}

/// Axis that carries the two polarizations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pairs {
    None,
    Threads,
    Channels,
}

impl Streams {
    /// Makes the mapping. With 2 `polarizations`, threads pair up, or channels if the number of threads is odd. With
    /// 1, all are channels. By default, exactly two threads are two polarizations.
    ///
    /// # Errors
    /// [`Error::Parameter`] for too many streams, and for polarizations that do not divide them.
    pub(super) fn new(
        stations: usize,
        threads: usize,
        channels: usize,
        polarizations: Option<usize>,
    ) -> Result<Self> {
        let streams = stations.checked_mul(threads).and_then(|all| all.checked_mul(channels));
        if streams.is_none_or(|streams| streams > MAX_STREAMS) {
            let found = format!("{stations} stations x {threads} threads x {channels} channels");
            return Err(Error::parameter(
                "streams",
                found,
                format!("at most {MAX_STREAMS} can be read"),
            ));
        }
        let even = |count: usize| count.is_multiple_of(2);
        let pairs = match polarizations {
            None if threads == 2 => Pairs::Threads,
            None | Some(1) => Pairs::None,
            Some(2) if even(threads) => Pairs::Threads,
            Some(2) if even(channels) => Pairs::Channels,
            Some(other) => {
                let rule = format!(
                    "it must be 1 or 2, and {threads} threads of {channels} channels must come in pairs for 2"
                );
                return Err(Error::parameter("polarizations", other, rule));
            }
        };
        Ok(Self { stations, threads, channels, pairs })
    }

    /// Returns the polarizations per station.
    pub(super) fn polarizations(&self) -> usize {
        if self.pairs == Pairs::None { 1 } else { 2 }
    }

    /// Returns the recorded channels per station.
    pub(super) fn coarse_channels(&self) -> usize {
        self.threads * self.channels / self.polarizations()
    }

    /// Returns the stream of a thread's channel; threads are counted through all stations.
    pub(super) fn stream(&self, unit: usize, channel: usize) -> usize {
        if self.pairs != Pairs::Threads {
            return unit * self.channels + channel;
        }
        (unit / 2 * self.channels + channel) * 2 + unit % 2
    }

    /// Returns the stream index step between a thread's channels.
    pub(super) fn step(&self) -> usize {
        if self.pairs == Pairs::Threads { 2 } else { 1 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_stream_is_one_channel() {
        for (threads, channels, polarizations) in [
            (1, 4, None),
            (2, 4, None),
            (8, 1, None),
            (8, 1, Some(2)),
            (4, 2, Some(2)),
            (1, 4, Some(2)),
        ] {
            let streams = Streams::new(3, threads, channels, polarizations).unwrap();
            let mut all: Vec<usize> = (0..3 * threads)
                .flat_map(|unit| (0..channels).map(move |channel| (unit, channel)))
                .map(|(unit, channel)| streams.stream(unit, channel))
                .collect();
            all.sort_unstable();
            assert!(all.into_iter().eq(0..3 * threads * channels));
            let polarizations = streams.polarizations();
            assert_eq!(streams.coarse_channels() * polarizations, threads * channels);
        }
    }

    #[test]
    fn two_threads_are_polarizations() {
        let streams = Streams::new(1, 2, 1024, None).unwrap();
        assert_eq!((streams.polarizations(), streams.coarse_channels()), (2, 1024));
        assert_eq!((streams.stream(0, 3), streams.stream(1, 3)), (6, 7));
        let split = Streams::new(1, 2, 1024, Some(1)).unwrap();
        assert_eq!((split.polarizations(), split.stream(1, 3)), (1, 1027));
        let channels = Streams::new(1, 1, 4, Some(2)).unwrap();
        assert_eq!((channels.coarse_channels(), channels.stream(0, 3)), (2, 3));
        assert!(Streams::new(1, 1, 1, Some(2)).is_err() && Streams::new(1, 2, 1, Some(3)).is_err());
        assert!(Streams::new(1, 1024, 2048, None).is_err());
    }
}
