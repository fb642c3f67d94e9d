//! Division of a correlation among ranks: antennas on the way in, channels on the way out, and the form of the messages
//! between them.
//!
//! Invariant: the sizes of all messages follow from the number of spectra, so that ranks need not agree on them.

use std::ops::Range;

use super::recordings::Channels;
use crate::correlate::{self, Plan};
use crate::error::{Error, Result};
use crate::pipeline::exchange::{Ranks, part};

/// Number of gulps that have messages at a time.
pub(super) const GULPS: usize = 2;

/// Antennas and channels of each rank.
#[derive(Clone, Debug)]
pub(super) struct Division {
    pub(super) own: usize,
    /// Antennas of each rank, by their place among all correlated ones.
    pub(super) antennas: Vec<Range<usize>>,
    /// Output channels of each rank, by ascending sky frequency.
    pub(super) outputs: Vec<Range<usize>>,
    /// Correlated channels of each rank in ascending order, as runs.
    pub(super) channels: Vec<Vec<Range<usize>>>,
}

impl Division {
    /// Divides channels into equal parts, and antennas, unless `owners` has the rank of each. Channels averaged into one
    /// output channel have the same rank.
    ///
    /// # Errors
    /// [`Error::Parameter`] for more ranks than antennas or output channels, or a rank without antennas.
    pub(super) fn new(
        ranks: &Ranks,
        antennas: usize,
        owners: Option<&[usize]>,
        channels: &Channels,
    ) -> Result<Self> {
        let (own, count, outputs) = (ranks.own(), ranks.count(), channels.centres_hz.len());
        for (number, what) in [(antennas, "antennas"), (outputs, "channels")] {
            if count > number {
                let rule = format!("each rank needs at least one of the {number} {what}");
                return Err(Error::parameter("ranks", count, rule));
            }
        }
        let outputs = parts(outputs, count);
        let own_channels = |outputs: &Range<usize>| {
            let average = channels.average;
            runs(&channels.order[outputs.start * average..outputs.end * average])
        };
        let channels = outputs.iter().map(own_channels).collect();
        let antennas = match owners {
            None => parts(antennas, count),
            Some(owners) => {
                let first = |rank: usize| owners.partition_point(|owner| *owner < rank);
                (0..count).map(|rank| first(rank)..first(rank + 1)).collect()
            }
        };
        if let Some(idle) = antennas.iter().position(Range::is_empty) {
            let rule = "each rank reads at least one antenna";
            return Err(Error::parameter("rank without antennas", idle, rule));
        }
        Ok(Self { own, antennas, outputs, channels })
    }

    /// Returns the antennas of this rank.
    pub(super) fn antennas(&self) -> Range<usize> {
        self.antennas[self.own].clone()
    }

    /// Returns the number of antennas of the rank that has the most.
    pub(super) fn most_antennas(&self) -> usize {
        self.antennas.iter().map(ExactSizeIterator::len).max().unwrap_or(0)
    }

    /// Returns the number of correlated channels of a rank.
    pub(super) fn count(&self, rank: usize) -> usize {
        self.channels[rank].iter().map(ExactSizeIterator::len).sum()
    }

    /// Returns the plans of this rank's F-engine and X-engine, from the plan of all antennas and channels.
    ///
    /// # Errors
    /// As [`Plan::new`].
    pub(super) fn plans(&self, all: &Plan) -> Result<EnginePlans> {
        let of = |antennas: usize, channels: usize| {
            let options = correlate::Options { antennas, channels, ..all.options().clone() };
            Plan::new(options).map(|plan| plan.with_precision(all.precision()))
        };
        Ok(EnginePlans {
            f_engine: of(self.antennas().len(), all.channels())?,
            x_engine: of(all.antennas(), self.count(self.own))?,
        })
    }

    /// Returns the sizes of messages of `unit` bytes for each channel of each of an antenna's `rows`.
    pub(super) fn sizes(&self, unit: usize, rows: usize) -> Sizes {
        let ranks = 0..self.antennas.len();
        let size =
            |from: usize, to: usize| self.antennas[from].len() * rows * self.count(to) * unit;
        let to = |rank| if rank == self.own { 0 } else { size(self.own, rank) };
        Sizes {
            own: self.own,
            send: ranks.clone().map(to).collect(),
            receive: ranks.map(|rank| size(rank, self.own)).collect(),
        }
    }
}

/// Plans of the engines of a process.
pub(super) struct EnginePlans {
    pub(super) f_engine: Plan,
    pub(super) x_engine: Plan,
}

/// Divides numbers into equal parts.
fn parts(number: usize, count: usize) -> Vec<Range<usize>> {
    (0..count).map(|index| part(number, index, count)).collect()
}

/// Returns numbers as runs of consecutive ones, in ascending order.
fn runs(numbers: &[usize]) -> Vec<Range<usize>> {
    let mut sorted = numbers.to_vec();
    sorted.sort_unstable();
    let mut runs: Vec<Range<usize>> = Vec::new();
    for number in sorted {
        match runs.last_mut() {
            Some(run) if run.end == number => run.end += 1,
            _ => runs.push(number..number + 1),
        }
    }
    runs
}

/// Bytes of the messages to and from each rank. A rank sends itself nothing: its own message is written into the buffer
/// to receive.
#[derive(Clone, Debug)]
pub(super) struct Sizes {
    own: usize,
    pub(super) send: Vec<usize>,
    pub(super) receive: Vec<usize>,
}

impl Sizes {
    /// Returns the message for each rank in the buffers to send and to receive.
    pub(super) fn split<'a>(
        &self,
        mut send: &'a mut [u8],
        mut receive: &'a mut [u8],
    ) -> Vec<&'a mut [u8]> {
        let mut messages = Vec::with_capacity(self.send.len());
        for (rank, (sent, received)) in self.send.iter().zip(&self.receive).enumerate() {
            let (head, rest) = std::mem::take(&mut send).split_at_mut(*sent);
            send = rest;
            let (place, rest) = std::mem::take(&mut receive).split_at_mut(*received);
            receive = rest;
            messages.push(if rank == self.own { place } else { head });
        }
        messages
    }
}

/// Order of the spectra in messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Layout {
    /// Axes antenna, polarization, time, channel.
    Rows,
    /// Recorded voltages; axes antenna, channel, polarization, time.
    Streams,
    /// Input of a GPU's X-engine: axes channel, input, time, with each input in a row of [`MessageForm::stride`] bytes. A rank keeps
    /// its own message in the memory of its GPU.
    Device,
}

/// Alignment in bytes of the X-engine's input, and of an input's row in messages for GPUs.
pub(super) const ALIGNED: usize = 16;

/// Form of the messages of all gulps.
#[derive(Clone, Debug)]
pub(super) struct MessageForm {
    division: Division,
    /// Plan of this rank's X-engine.
    plan: Plan,
    layout: Layout,
    /// Bytes of a sample.
    sample: usize,
}

impl MessageForm {
    pub(super) fn new(division: Division, plan: Plan, is_direct: bool) -> Self {
        let sample = plan.encoding().sample_bits() / 8;
        let layout = if is_direct { Layout::Streams } else { Layout::Rows };
        Self { division, plan, layout, sample }
    }

    /// Returns the form of messages whose spectra GPUs compute and multiply.
    #[must_use]
    pub(super) fn on_device(&self) -> Self {
        Self { layout: Layout::Device, ..self.clone() }
    }

    pub(super) fn division(&self) -> &Division {
        &self.division
    }

    /// Returns the plan of this rank's X-engine.
    pub(super) fn plan(&self) -> &Plan {
        &self.plan
    }

    pub(super) fn layout(&self) -> Layout {
        self.layout
    }

    /// Returns the bytes of a sample.
    pub(super) fn sample(&self) -> usize {
        self.sample
    }

    /// Returns the bytes from one input to the next in messages for GPUs that have space for `times` spectra.
    pub(super) fn stride(&self, times: usize) -> usize {
        self.plan.encoding().bytes(times).next_multiple_of(ALIGNED)
    }

    /// Returns the inputs (antenna, polarization) of a rank.
    pub(super) fn inputs(&self, rank: usize) -> Range<usize> {
        let (antennas, polarizations) = (&self.division.antennas[rank], self.plan.polarizations());
        antennas.start * polarizations..antennas.end * polarizations
    }

    /// Returns the sizes of messages with space for `times` spectra.
    pub(super) fn sizes(&self, times: usize) -> Sizes {
        let polarizations = self.plan.polarizations();
        if self.layout != Layout::Device {
            return self.division.sizes(times * self.sample, polarizations);
        }
        let mut sizes = self.division.sizes(self.stride(times), polarizations);
        sizes.receive[self.division.own] = 0;
        sizes
    }

    /// Returns the sizes of the messages with the validity mask of `times` spectra.
    pub(super) fn mask_sizes(&self, times: usize) -> Sizes {
        self.division.sizes(8 * Plan::mask_words(times), 1)
    }

    /// Returns the bytes of the messages of all gulps in memory, of `times` spectra each, and of an integration of
    /// `visibilities` bytes; `None` if the count overflows.
    pub(super) fn bytes(&self, times: usize, visibilities: usize) -> Option<usize> {
        let all = |sizes: &Sizes| sizes.send.iter().chain(&sizes.receive).sum::<usize>();
        let spectra = match self.layout {
            // Rows are padded, and a GPU's gulp has less than 2^32 bytes.
            Layout::Device => all(&self.sizes(times)),
            Layout::Rows | Layout::Streams => all(&self.sizes(1)).checked_mul(times)?,
        };
        let gulp = spectra.checked_add(all(&self.mask_sizes(times)))?;
        // The sums of each rank, and at rank 0 those of all.
        let Division { own, outputs, .. } = &self.division;
        let gathered = if *own == 0 { visibilities } else { visibilities / outputs.len() };
        gulp.checked_mul(GULPS)?.checked_add(gathered)
    }

    /// Returns the bytes of one spectrum in a row of messages for a rank: rows are those of an antenna and polarization,
    /// or of a stream.
    pub(super) fn row(&self, rank: usize) -> usize {
        match self.layout {
            Layout::Rows => self.division.count(rank) * self.sample,
            Layout::Streams | Layout::Device => self.sample,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::runs;

    #[test]
    fn channels_are_runs_in_ascending_order() {
        assert_eq!(runs(&[5, 4, 3, 9, 10, 0]), [0..1, 3..6, 9..11]);
        assert!(runs(&[]).is_empty());
    }
}
