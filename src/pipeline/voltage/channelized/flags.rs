//! Conversion of flags on recorded samples to flags on channelized ones.

use std::ops::Range;

use crate::channelize::Plan;
use crate::io::voltages::Flag;
use crate::pipeline::voltage::gaps::rows_of;
use crate::pipeline::voltage::layout::Layout;
use crate::voltage::VoltageBlock;

/// Flags by ascending start.
#[derive(Clone, Debug)]
pub(super) struct Flags {
    all: Vec<Flag>,
    /// Running maximum of the flags' ends.
    ends: Vec<u64>,
}

impl Flags {
    /// Flags whole recorded channels, in both polarizations, wherever a window contains a flagged sample.
    pub(super) fn new(flags: &[Flag], plan: &Plan, layout: &Layout, rows: Option<u64>) -> Self {
        let mut all: Vec<Flag> = Vec::new();
        for flag in flags {
            let times = rows_of(flag, plan);
            let times = times.start..times.end.min(rows.unwrap_or(u64::MAX));
            if times.start < times.end {
                let new =
                    |streams| Flag { streams, start: times.start, times: times.end - times.start };
                all.extend(streams(&flag.streams, plan, layout).into_iter().map(new));
            }
        }
        all.sort_by_key(|flag| (flag.streams.start, flag.streams.end, flag.start));
        all.dedup_by(|next, flag| {
            let end = flag.start + flag.times;
            let joins = next.streams == flag.streams && next.start <= end;
            if joins {
                flag.times = end.max(next.start + next.times) - flag.start;
            }
            joins
        });
        all.sort_by_key(|flag| flag.start);
        let latest = all.iter().scan(0, |latest, flag| {
            *latest = flag.start.saturating_add(flag.times).max(*latest);
            Some(*latest)
        });
        Self { ends: latest.collect(), all }
    }

    pub(super) fn all(&self) -> &[Flag] {
        &self.all
    }

    /// Returns the number of initial times at which all `streams` streams are flagged.
    pub(super) fn lead(&self, streams: usize) -> u64 {
        let mut leads = vec![0; streams];
        for flag in &self.all {
            for lead in leads[flag.streams.clone()].iter_mut().filter(|lead| flag.start <= **lead) {
                *lead = flag.start.saturating_add(flag.times).max(*lead);
            }
        }
        leads.into_iter().min().unwrap_or(0)
    }

    /// Returns the flags that overlap `times`.
    pub(super) fn touching(&self, times: &Range<u64>) -> impl Iterator<Item = &Flag> {
        let first = self.ends.partition_point(|end| *end <= times.start);
        let last = self.all.partition_point(|flag| flag.start < times.end);
        self.all[first.min(last)..last].iter().filter({
            let start = times.start;
            move |flag| flag.start.saturating_add(flag.times) > start
        })
    }

    /// Fills flagged samples of a block that begins at time `first` with zeros.
    pub(super) fn blank(&self, first: u64, times: usize, block: &mut VoltageBlock) {
        let encoding = block.encoding();
        let zero = encoding.zero_byte();
        let end = first + times as u64;
        for flag in self.touching(&(first..end)) {
            let from = flag.start.max(first) - first;
            let to = flag.start.saturating_add(flag.times).min(end) - first;
            for stream in flag.streams.clone() {
                let bytes = encoding.bytes(from as usize)..encoding.bytes(to as usize);
                block.row_mut(stream)[bytes].fill(zero);
            }
        }
    }
}

/// Returns the output streams of all recorded channels that the given recorded streams belong to.
fn streams(recorded: &Range<usize>, plan: &Plan, layout: &Layout) -> Vec<Range<usize>> {
    let polarizations = plan.input().polarizations;
    let each = plan.channels() * polarizations;
    let channels = layout.coarse().len();
    let first = recorded.start / polarizations;
    let last = recorded.end.div_ceil(polarizations);
    let place = |channel: usize| {
        let coarse = channel % channels;
        let place = layout.coarse().iter().position(|own| *own == coarse).unwrap_or(coarse);
        channel / channels * channels + place
    };
    let mut places: Vec<usize> = (first..last).map(place).collect();
    places.sort_unstable();
    let mut ranges: Vec<Range<usize>> = Vec::new();
    for place in places {
        let range = place * each..(place + 1) * each;
        match ranges.last_mut() {
            Some(before) if before.end == range.start => before.end = range.end,
            _ => ranges.push(range),
        }
    }
    ranges
}
