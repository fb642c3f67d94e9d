//! The general kernel's tables: tiles of neighbouring trials, and what each does with each interval of channels.

use super::super::plan::Plan;
use super::record::{Interval, record};
use super::shape::{CHANNELS, Shape};
use crate::backend::threads::Threads;

/// All records of a plan.
#[derive(Clone, Debug, Default)]
pub(super) struct Table {
    pub(super) tiles: usize,
    pub(super) intervals: usize,
    /// Records, one behind another; intervals fastest.
    pub(super) records: Vec<u32>,
    /// Where each record begins, in units of 16 bytes, and where the last ends.
    pub(super) starts: Vec<u32>,
    /// For each trial of each tile, its row of the output and its largest shift.
    pub(super) trials: Vec<[u32; 2]>,
}

/// A place in a tile that no trial takes.
const NOWHERE: [u32; 2] = [u32::MAX, 0];

impl Table {
    /// The records of some trials of a plan, made on all threads.
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
            let shifts =
                |(_, c): &(u32, usize)| tile.iter().map(|dm| plan.shift(*dm, *c)).collect();
            let interval = Interval {
                rows: channels.iter().map(|channel| channel.0).collect(),
                shifts: channels.iter().map(shifts).collect(),
            };
            target[0] = record(shape, &interval);
        });
        let mut table = Self { tiles: tiles.len(), intervals, starts: vec![0], ..Self::default() };
        for record in &records {
            table.records.extend(record);
            table.starts.push((table.records.len() / 4) as u32);
        }
        for tile in &tiles {
            let row = |dm: &usize| [*dm as u32, plan.trial_shift(*dm) as u32];
            let places = tile.iter().map(row).chain(std::iter::repeat(NOWHERE));
            table.trials.extend(places.take(shape.tile_dms));
        }
        table
    }
}

/// Used channels from the highest frequency down, as (history row, channel).
fn order(plan: &Plan) -> Vec<(u32, usize)> {
    let centres = plan.options().band.centres_hz();
    let rows = plan.channels_used().iter().enumerate();
    let mut order: Vec<(u32, usize)> = rows.map(|(row, c)| (row as u32, *c)).collect();
    order.sort_by(|a, b| centres[b.1].total_cmp(&centres[a.1]));
    order
}

/// Trials by dispersion measure, cut into tiles in which no shift grows by more than a block has room for.
fn tiles(plan: &Plan, shape: &Shape, trials: &[usize]) -> Vec<Vec<usize>> {
    let mut sorted = trials.to_vec();
    sorted.sort_by(|a, b| plan.dms()[*a].total_cmp(&plan.dms()[*b]));
    // As many in each as in the others, where shifts allow it.
    let most = sorted.len().div_ceil(sorted.len().div_ceil(shape.tile_dms).max(1));
    let mut tiles: Vec<Vec<usize>> = Vec::new();
    for dm in sorted {
        let has_room = |tile: &&mut Vec<usize>| {
            let spread = plan.trial_shift(dm) - plan.trial_shift(tile[0]);
            // Rounding may let another channel's shift grow by one sample more.
            tile.len() < most && spread < shape.most_spread()
        };
        match tiles.last_mut().filter(has_room) {
            Some(tile) => tile.push(dm),
            None => tiles.push(vec![dm]),
        }
    }
    tiles
}
