//! Sharing analysis of one tile of trials: the rows of each group, and the rows that make up each trial.
//!
//! Invariant: a row serves only trials whose relative shifts within the group are equal.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use super::super::plan::Plan;
use super::shape::Shape;

/// Multiplicative hash for trusted small integer keys.
#[derive(Default)]
pub(super) struct Mixer(u64);

impl Hasher for Mixer {
    fn finish(&self) -> u64 {
        self.0 ^ (self.0 >> 29)
    }
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|b| self.write_u32(u32::from(*b)));
    }
    fn write_u32(&mut self, word: u32) {
        self.0 = (self.0.rotate_left(23) ^ u64::from(word)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

type Patterns = HashMap<(u32, u32, u32), u32, BuildHasherDefault<Mixer>>;

/// Row: one pattern of relative shifts of one node, over a span of trials.
#[derive(Clone, Debug)]
pub(super) struct Instance {
    pattern: u32,
    pub(super) first: u32,
    pub(super) last: u32,
    /// Range of shifts of the node's first channel that the row serves.
    pub(super) low: u32,
    pub(super) high: u32,
}

/// Request for a pattern at a trial, over a range of shifts.
#[derive(Clone, Copy, Debug)]
struct Use {
    pattern: u32,
    time: u32,
    low: u32,
    high: u32,
}

/// Group of adjacent channels at one level, and its patterns over a tile's trials.
struct Node {
    /// First channel within the group of the last level.
    channel: usize,
    /// Pattern of each trial.
    patterns: Vec<u32>,
    /// One trial with the pattern, for each pattern.
    examples: Vec<u32>,
}

/// Rows of one node, and the source rows of each.
pub(super) struct NodeRows {
    pub(super) level: usize,
    pub(super) instances: Vec<Instance>,
    /// Sources of each instance.
    pub(super) sources: Vec<Vec<Source>>,
}

/// Source of a row.
#[derive(Clone, Copy, Debug)]
pub(super) struct Source {
    /// Index into the group's node list, or the history row for the first level.
    pub(super) node: u32,
    pub(super) instance: u32,
    /// Shift of the source's first channel that corresponds to the instance's `low`.
    pub(super) low: u32,
}

/// Group of the last level: its nodes, the last being the group itself.
pub(super) struct Group {
    pub(super) nodes: Vec<NodeRows>,
    /// Instance and shift of the group for each trial.
    pub(super) choices: Vec<(u32, u32)>,
}

/// Largest number of times by which a row of several trials exceeds the tile; the history's mirror has this length.
const LONGEST: u32 = 4096;

/// Trials of a tile, and the order of channels.
pub(super) struct Tile<'a> {
    pub(super) plan: &'a Plan,
    pub(super) shape: &'a Shape,
    /// Used channels from the highest frequency down, as (history row, channel).
    pub(super) order: &'a [(u32, u32)],
    pub(super) first_dm: usize,
    pub(super) dms: usize,
}

impl Tile<'_> {
    fn shifts(&self, channels: &[(u32, u32)]) -> Vec<Vec<u32>> {
        let row = |channel: &(u32, u32)| {
            let shift = |dm| self.plan.shift(self.first_dm + dm, channel.1 as usize) as u32;
            (0..self.dms).map(shift).collect()
        };
        channels.iter().map(row).collect()
    }

    /// Finds the rows of a group of the last level.
    pub(super) fn group(&self, group: usize) -> Group {
        let size = self.shape.group();
        let start = group * size;
        let channels = &self.order[start..(start + size).min(self.order.len())];
        let shifts = self.shifts(channels);
        let mut levels = vec![leaves(channels.len(), self.dms)];
        for rows in &self.shape.levels {
            let children = &levels[levels.len() - 1];
            let step = rows.channels;
            let parents = (0..channels.len()).step_by(step);
            let parent = |channel: usize| {
                let within = |node: &&Node| (channel..channel + step).contains(&node.channel);
                join(&children.iter().filter(within).collect::<Vec<_>>(), &shifts)
            };
            let parents: Vec<Node> = parents.map(parent).collect();
            levels.push(parents);
        }
        self.rows(start, &levels, &shifts)
    }

    /// Determines from the trials downwards which instances of which patterns are needed.
    fn rows(&self, start: usize, levels: &[Vec<Node>], shifts: &[Vec<u32>]) -> Group {
        let top = levels.len() - 1;
        let root = &levels[top][0];
        let wish = |dm: usize| {
            let shift = shifts[0][dm];
            Use { pattern: root.patterns[dm], time: dm as u32, low: shift, high: shift }
        };
        let wishes: Vec<Use> = (0..self.dms).map(wish).collect();
        let (instances, given) = self.instances(&wishes);
        let choices = given.iter().zip(&wishes).map(|(i, wish)| (*i, wish.low)).collect();
        let mut nodes = Vec::new();
        self.descend(start, (levels, shifts), (top, 0), instances, &mut nodes);
        Group { nodes, choices }
    }

    /// Adds the node's rows after those of its children; returns its index.
    fn descend(
        &self,
        start: usize,
        tables: (&[Vec<Node>], &[Vec<u32>]),
        (level, index): (usize, usize),
        instances: Vec<Instance>,
        nodes: &mut Vec<NodeRows>,
    ) -> u32 {
        let (levels, shifts) = tables;
        let node = &levels[level][index];
        let end = node.channel + self.shape.levels[level - 1].channels;
        let mut sources = vec![Vec::new(); instances.len()];
        for (k, child) in levels[level - 1].iter().enumerate() {
            if !(node.channel..end).contains(&child.channel) {
                continue;
            }
            let wish = |instance: &Instance| {
                let example = node.examples[instance.pattern as usize] as usize;
                let relative = |low: u32| {
                    shifts[child.channel][example]
                        .wrapping_sub(shifts[node.channel][example])
                        .wrapping_add(low)
                };
                let (low, high) = (relative(instance.low), relative(instance.high));
                Use { pattern: child.patterns[example], time: instance.first, low, high }
            };
            let wishes: Vec<Use> = instances.iter().map(wish).collect();
            if level == 1 {
                let row = self.order[start + child.channel].0;
                for (source, wish) in sources.iter_mut().zip(&wishes) {
                    source.push(Source { node: row, instance: 0, low: wish.low });
                }
                continue;
            }
            let (rows, given) = self.instances(&wishes);
            let place = self.descend(start, tables, (level - 1, k), rows, nodes);
            for ((source, wish), instance) in sources.iter_mut().zip(&wishes).zip(given) {
                source.push(Source { node: place, instance, low: wish.low });
            }
        }
        nodes.push(NodeRows { level: level - 1, instances, sources });
        nodes.len() as u32 - 1
    }

    /// Serves requests, in trial order, with the cheapest number of rows.
    fn instances(&self, wishes: &[Use]) -> (Vec<Instance>, Vec<u32>) {
        let patterns = wishes.iter().map(|wish| wish.pattern).max().map_or(0, |p| p as usize + 1);
        let mut latest = vec![u32::MAX; patterns];
        let mut instances: Vec<Instance> = Vec::new();
        let mut given = Vec::with_capacity(wishes.len());
        for wish in wishes {
            let known = &mut latest[wish.pattern as usize];
            let fits = *known != u32::MAX && self.extend(&mut instances[*known as usize], wish);
            if !fits {
                *known = instances.len() as u32;
                instances.push(Instance {
                    pattern: wish.pattern,
                    first: wish.time,
                    last: wish.time,
                    low: wish.low,
                    high: wish.high,
                });
            }
            given.push(*known);
        }
        (instances, given)
    }

    /// Extends a row to one more request, unless a new row costs less.
    fn extend(&self, row: &mut Instance, wish: &Use) -> bool {
        let (low, high) = (row.low.min(wish.low), row.high.max(wish.high));
        let longer = (high - low) - (row.high - row.low);
        let anew = self.shape.tile_times + (wish.high - wish.low) as usize;
        if longer as usize > anew || high - low > LONGEST {
            return false;
        }
        (row.low, row.high, row.last) = (low, high, row.last.max(wish.time));
        true
    }
}

fn leaves(channels: usize, dms: usize) -> Vec<Node> {
    let leaf = |channel| Node { channel, patterns: vec![0; dms], examples: vec![0] };
    (0..channels).map(leaf).collect()
}

/// Joins adjacent nodes: equal patterns at equal relative shifts form equal patterns.
fn join(children: &[&Node], shifts: &[Vec<u32>]) -> Node {
    let first = children[0];
    let mut patterns = first.patterns.clone();
    for child in &children[1..] {
        let mut known = Patterns::default();
        for (dm, pattern) in patterns.iter_mut().enumerate() {
            let relative = shifts[child.channel][dm].wrapping_sub(shifts[first.channel][dm]);
            let next = known.len() as u32;
            *pattern = *known.entry((*pattern, child.patterns[dm], relative)).or_insert(next);
        }
    }
    let mut examples = Vec::new();
    for (dm, pattern) in patterns.iter().enumerate() {
        if *pattern as usize == examples.len() {
            examples.push(dm as u32);
        }
    }
    Node { channel: first.channel, patterns, examples }
}
