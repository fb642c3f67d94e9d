//! Tables of the general kernel: tiles of adjacent trials, and a record for each tile and interval of channels.

use super::super::plan::Plan;
use super::record::{Interval, record};
use super::shape::{CHANNELS, Shape};
use crate::backend::threads::Threads;

/// Records of a plan.
#[derive(Clone, Debug, Default)]
pub(super) struct Table {
    pub(super) tiles: usize,
    pub(super) intervals: usize,
    /// Concatenated records; intervals vary fastest.
    pub(super) records: Vec<u32>,
    /// Start of each record, in units of 16 bytes, and the end of the last one.
    pub(super) starts: Vec<u32>,
    /// Output row, largest shift and skew of each trial of each tile.
    pub(super) trials: Vec<[u32; 4]>,
    /// Largest skew of a trial's times.
    pub(super) skew: usize,
}

/// Unused trial slot of a tile.
const NOWHERE: [u32; 4] = [u32::MAX, 0, 0, 0];

/// Skews are multiples of this many samples, so that sums are written in whole sectors.
const SKEW_STEP: usize = 8;

/// Adjacent trials, and the skew of each one's times: half of the growth of its shifts, which halves the spread at
/// both ends of the band.
#[derive(Clone, Debug, Default)]
struct Tile {
    trials: Vec<usize>,
    skews: Vec<usize>,
}

impl Tile {
    /// Returns the largest skew of the tile: the last trial's.
    fn skew(&self) -> usize {
        self.skews.last().copied().unwrap_or(0)
    }
}

impl Table {
    /// Builds the records of the given trials on all threads.
    pub(super) fn new(plan: &Plan, shape: &Shape, trials: &[usize], threads: &Threads) -> Self {
        let tiles = tiles(plan, shape, trials);
        let order = order(plan);
        let intervals = order.len().div_ceil(CHANNELS);
        let mut records: Vec<Vec<u32>> = vec![Vec::new(); tiles.len() * intervals];
        let mut workers = vec![(); threads.count()];
        threads.for_each_chunk(&mut workers, &mut records, 1, |(), index, target| {
            let (tile, interval) = (&tiles[index / intervals], index % intervals);
            let channels = &order[interval * CHANNELS..];
            let channels = &channels[..channels.len().min(CHANNELS)];
            let moved = |c, (dm, skew): (&usize, &usize)| plan.shift(*dm, c) + tile.skew() - skew;
            let shifts = |(_, c): &(u32, usize)| {
                tile.trials.iter().zip(&tile.skews).map(|trial| moved(*c, trial)).collect()
            };
            let interval = Interval {
                rows: channels.iter().map(|channel| channel.0).collect(),
                shifts: channels.iter().map(shifts).collect(),
                back: tile.skew(),
            };
            target[0] = record(shape, &interval);
        });
        let mut table = Self { tiles: tiles.len(), intervals, starts: vec![0], ..Self::default() };
        for record in &records {
            table.records.extend(record);
            table.starts.push((table.records.len() / 4) as u32);
        }
        for tile in &tiles {
            let row = |(dm, skew): (&usize, &usize)| {
                [*dm as u32, plan.trial_shift(*dm) as u32, *skew as u32, 0]
            };
            let rows = tile.trials.iter().zip(&tile.skews).map(row);
            let places = rows.chain(std::iter::repeat(NOWHERE));
            table.trials.extend(places.take(shape.tile_dms));
        }
        table.skew = tiles.iter().map(Tile::skew).max().unwrap_or(0);
        table
    }
}

/// Lists the used channels from the highest frequency down, as (history row, channel).
fn order(plan: &Plan) -> Vec<(u32, usize)> {
    let centres = plan.options().band.centres_hz();
    let rows = plan.channels_used().iter().enumerate();
    let mut order: Vec<(u32, usize)> = rows.map(|(row, c)| (row as u32, *c)).collect();
    order.sort_by(|a, b| centres[b.1].total_cmp(&centres[a.1]));
    order
}

/// Sorts trials by dispersion measure and cuts them into tiles; no shift within a tile grows beyond a block's room.
fn tiles(plan: &Plan, shape: &Shape, trials: &[usize]) -> Vec<Tile> {
    let mut sorted = trials.to_vec();
    sorted.sort_by(|a, b| plan.dms()[*a].total_cmp(&plan.dms()[*b]));
    // Tiles have equal trial counts where the shifts allow it.
    let most = sorted.len().div_ceil(sorted.len().div_ceil(shape.tile_dms).max(1));
    let mut tiles: Vec<Tile> = Vec::new();
    for dm in sorted {
        let grown = |tile: &Tile| plan.trial_shift(dm) - plan.trial_shift(tile.trials[0]);
        let skew = |tile: &Tile| grown(tile) / 2 / SKEW_STEP * SKEW_STEP;
        let has_room = |tile: &&mut Tile| {
            // Rounding may let another channel's shift grow by one more sample.
            tile.trials.len() < most && grown(tile) - skew(tile) < shape.most_spread()
        };
        match tiles.last_mut().filter(has_room) {
            Some(tile) => {
                tile.skews.push(skew(tile));
                tile.trials.push(dm);
            }
            None => tiles.push(Tile { trials: vec![dm], skews: vec![0] }),
        }
    }
    tiles
}
