//! Order of the output streams within the rows of the filter bank.

use crate::channelize::Plan;
use crate::io::voltages::VoltageHeader;
use crate::pipeline::voltage::layout::Layout;

/// Positions of the output streams in the filter bank's rows.
#[derive(Clone, Debug)]
pub(super) struct Streams {
    polarizations: usize,
    /// Filter-bank index of each recorded channel of the output.
    places: Vec<usize>,
    /// Channels per recorded channel.
    channels: usize,
    /// Row element of each stream (antenna, channel, polarization).
    pub(super) elements: Vec<usize>,
}

impl Streams {
    /// Computes the positions; with several `copies` of all antennas, channel `c` comes from copy `c mod copies`.
    pub(super) fn new(
        recorded: &VoltageHeader,
        plan: &Plan,
        layout: &Layout,
        copies: usize,
    ) -> Self {
        let in_order = || (0..recorded.coarse_channels()).collect();
        let places = layout.places.clone().unwrap_or_else(in_order);
        let (polarizations, channels) = (recorded.polarizations, plan.channels());
        let mut streams = Self { polarizations, places, channels, elements: Vec::new() };
        let all = streams.all_channels();
        let element = |stream: usize| {
            let (channel, antenna) = (streams.channel(stream), stream / polarizations / all);
            let copy = channel % channels % copies;
            let row = (copy * recorded.antennas + antenna) * polarizations + stream % polarizations;
            row * all + streams.in_bank(channel)
        };
        streams.elements = (0..recorded.antennas * all * polarizations).map(element).collect();
        streams
    }

    /// Returns the number of channels of an antenna.
    pub(super) fn all_channels(&self) -> usize {
        self.places.len() * self.channels
    }

    /// Returns the channel of a stream.
    pub(super) fn channel(&self, stream: usize) -> usize {
        stream / self.polarizations % self.all_channels()
    }

    /// Returns the filter-bank index of an output channel.
    pub(super) fn in_bank(&self, channel: usize) -> usize {
        self.places[channel / self.channels] * self.channels + channel % self.channels
    }

    /// Sorts gains of output channels into filter-bank order.
    pub(super) fn in_bank_order(&self, gains: &[f32]) -> Vec<f32> {
        let mut sorted = vec![0.0; gains.len()];
        gains.iter().enumerate().for_each(|(channel, gain)| sorted[self.in_bank(channel)] = *gain);
        sorted
    }
}
