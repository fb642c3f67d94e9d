//! Valid samples of each baseline.

use super::super::plan::Plan;
use super::panel::Channel;
use super::shape::Band;

/// Valid samples of a band's baselines.
#[derive(Debug)]
pub(super) struct Counts {
    /// Samples counted for all baselines alike.
    all: u64,
    /// Further samples of each baseline; zeros unless `some`.
    each: Vec<u64>,
    some: bool,
    /// Index of the band's first baseline.
    first: usize,
}

impl Counts {
    pub(super) fn new(band: &Band) -> Self {
        let first = Plan::baseline(band.antennas.start, 0);
        let last = Plan::baseline(band.antennas.end, 0);
        Self { all: 0, each: vec![0; last - first], some: false, first }
    }

    /// Returns the bytes of a band's counts.
    pub(super) fn bytes(band: &Band) -> usize {
        let first = Plan::baseline(band.antennas.start, 0);
        size_of::<u64>() * (Plan::baseline(band.antennas.end, 0) - first)
    }

    pub(super) fn reset(&mut self) {
        if self.some {
            self.each.fill(0);
        }
        (self.all, self.some) = (0, false);
    }

    /// Returns the valid samples of one of the band's baselines.
    pub(super) fn baseline(&self, baseline: usize) -> u64 {
        self.all + self.each[baseline - self.first]
    }

    /// Counts a channel's samples; `valid` is scratch for one number per antenna.
    pub(super) fn add(&mut self, band: &Band, channel: Channel<'_>, valid: &mut [u64]) {
        let times = channel.block.times() as u64;
        let mask = |antenna| channel.block.mask(channel.plan, channel.channel, antenna);
        let mut whole = true;
        for (antenna, valid) in valid.iter_mut().enumerate().take(band.antennas.end) {
            let Some(mask) = mask(antenna) else { break };
            *valid = common(mask, mask, channel.block.times());
            whole &= *valid == times;
        }
        if whole {
            self.all += times;
            return;
        }
        self.some = true;
        let mut each = self.each.iter_mut();
        for i in band.antennas.clone() {
            for j in 0..=i {
                let (Some(count), Some(a), Some(b)) = (each.next(), mask(i), mask(j)) else {
                    return;
                };
                *count += if valid[i] == times {
                    valid[j]
                } else if valid[j] == times || i == j {
                    valid[i]
                } else {
                    common(a, b, channel.block.times())
                };
            }
        }
    }
}

/// Counts the times that are valid in both masks.
fn common(a: &[u64], b: &[u64], times: usize) -> u64 {
    let words = a.iter().zip(b).take(times / 64);
    let mut count: u64 = words.map(|(a, b)| u64::from((a & b).count_ones())).sum();
    if !times.is_multiple_of(64) {
        let last = (a[times / 64] & b[times / 64]) << (64 - times % 64);
        count += u64::from(last.count_ones());
    }
    count
}
