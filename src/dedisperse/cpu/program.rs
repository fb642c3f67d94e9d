//! Program of a plan's sums: the groups of channels that share rows, each row's place in scratch memory, and the cost model
//! that chooses the shape.
//!
//! Invariant: a row serves only trials whose relative shifts within the group are equal, is built before its first use, and
//! its place is not given away before its last. The shape depends on the plan alone, so that float sums have the same order
//! on every machine and any number of threads.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use super::super::plan::{Lane, Plan, UsedChannel};

/// Rows of one level: sums of `channels` adjacent channels.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Rows {
    channels: usize,
    pub(super) lane: Lane,
}

/// Sharing scheme of a plan's sums.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Shape {
    /// Element type of the history.
    pub(super) input: Lane,
    /// Levels, narrowest groups first; each level's channels are a multiple of the previous one's.
    pub(super) levels: Vec<Rows>,
    /// Rows of the last level that fit 16-bit accumulators; 0 if these are not used.
    pub(super) segment: usize,
    /// Output times in a tile.
    pub(super) tile_times: usize,
    /// Groups of the last level summed in one pass over a tile.
    pub(super) pass_groups: usize,
}

/// Largest number of rows that one build adds; more concurrent streams are read slowly.
pub(super) const FAN_IN: usize = 4;

impl Shape {
    /// Creates a shape with the given group sizes.
    pub(super) fn new(plan: &Plan, sizes: &[usize], tile_times: usize, pass: usize) -> Self {
        let rows = |&channels: &usize| Rows { channels, lane: plan.lane(channels) };
        let levels: Vec<Rows> = sizes.iter().map(rows).collect();
        let last = sizes.last().copied().unwrap_or(1) as u64;
        let bound = plan.largest().unwrap_or(0).max(1) * last;
        let segment = (0xffff / bound) as usize;
        Self { input: plan.lane(1), levels, segment, tile_times, pass_groups: pass }
    }

    /// Returns the channels in a group of the last level.
    pub(super) fn group(&self) -> usize {
        self.levels.last().map_or(1, |rows| rows.channels)
    }

    /// Returns the element type of a level's sources.
    pub(super) fn source(&self, level: usize) -> Lane {
        if level == 0 { self.input } else { self.levels[level - 1].lane }
    }
}

/// Largest number of trials in a tile.
const TILE_DMS: usize = 256;

/// Returns the trials in a tile: few tiles share more, many balance the threads.
pub(super) fn tile_dms(dms: usize, threads: usize) -> usize {
    let tiles = dms.div_ceil(TILE_DMS).next_multiple_of(threads);
    dms.div_ceil(tiles)
}

impl Shape {
    /// Returns the output times of a block: whole tiles, few compared with a long history.
    pub(super) fn block_times(&self, plan: &Plan) -> usize {
        let wanted = if plan.channels_used().len() > 4096 { 2048 } else { 4096 };
        wanted.max(self.tile_times)
    }

    /// Returns whether 16-bit rows are summed as 32-bit halves, because few fit into 16 bits.
    pub(super) fn wide(&self) -> bool {
        self.segment < 4
    }
}

/// Multiplicative hash for trusted small integer keys.
#[derive(Default)]
struct Mixer(u64);

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
struct Instance {
    pattern: u32,
    pub(super) first: u32,
    pub(super) last: u32,
    /// Range of shifts of the node's first channel that the row serves.
    pub(super) low: u32,
    pub(super) high: u32,
}

/// Request for a pattern at a trial, over a range of shifts.
#[derive(Clone, Copy, Debug)]
struct Request {
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
struct NodeRows {
    pub(super) level: usize,
    instances: Vec<Instance>,
    /// Sources of each instance.
    pub(super) sources: Vec<Vec<Source>>,
}

/// Source of a row.
#[derive(Clone, Copy, Debug)]
struct Source {
    /// Index into the group's node list, or the history row for the first level.
    node: u32,
    instance: u32,
    /// Shift of the source's first channel that corresponds to the instance's `low`.
    pub(super) low: u32,
}

/// Group of the last level: its nodes, the last being the group itself.
struct Group {
    nodes: Vec<NodeRows>,
    /// Instance and shift of the group for each trial.
    trials: Vec<(u32, u32)>,
}

/// Largest number of times by which a row of several trials exceeds the tile; the history's mirror has this length.
const MAX_EXTRA: u32 = 4096;

/// Trials of a tile, and the order of channels.
pub(super) struct Tile<'a> {
    pub(super) plan: &'a Plan,
    pub(super) shape: &'a Shape,
    /// Summed channels from the highest frequency down.
    pub(super) order: &'a [UsedChannel],
    pub(super) first_dm: usize,
    pub(super) dms: usize,
}

impl Tile<'_> {
    fn shifts(&self, channels: &[UsedChannel]) -> Vec<Vec<u32>> {
        let row = |used: &UsedChannel| {
            let shift = |dm| self.plan.shift(self.first_dm + dm, used.channel) as u32;
            (0..self.dms).map(shift).collect()
        };
        channels.iter().map(row).collect()
    }

    /// Finds the rows of a group of the last level.
    fn group(&self, group: usize) -> Group {
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
        Analysis { tile: self, start, levels: &levels, shifts: &shifts, nodes: Vec::new() }.group()
    }
}

/// Analysis of one group: its nodes at each level, the last being the group itself, and each trial's shift in each
/// channel.
struct Analysis<'a> {
    tile: &'a Tile<'a>,
    start: usize,
    levels: &'a [Vec<Node>],
    shifts: &'a [Vec<u32>],
    /// Rows found so far.
    nodes: Vec<NodeRows>,
}

impl Analysis<'_> {
    /// Determines from the trials downwards which instances of which patterns are needed.
    fn group(mut self) -> Group {
        let top = self.levels.len() - 1;
        let root = &self.levels[top][0];
        let request = |dm: usize| {
            let shift = self.shifts[0][dm];
            Request { pattern: root.patterns[dm], time: dm as u32, low: shift, high: shift }
        };
        let requests: Vec<Request> = (0..self.tile.dms).map(request).collect();
        let (instances, assigned) = self.instances(&requests);
        let trials = assigned.iter().zip(&requests).map(|(i, request)| (*i, request.low)).collect();
        self.descend(top, 0, instances);
        Group { nodes: self.nodes, trials }
    }

    /// Adds the node's rows after those of its children; returns its index.
    fn descend(&mut self, level: usize, index: usize, instances: Vec<Instance>) -> u32 {
        let Self { tile, start, levels, shifts, .. } = *self;
        let node = &levels[level][index];
        let end = node.channel + tile.shape.levels[level - 1].channels;
        let mut sources = vec![Vec::new(); instances.len()];
        for (k, child) in levels[level - 1].iter().enumerate() {
            if !(node.channel..end).contains(&child.channel) {
                continue;
            }
            let request = |instance: &Instance| {
                let example = node.examples[instance.pattern as usize] as usize;
                let relative = |low: u32| {
                    shifts[child.channel][example]
                        .wrapping_sub(shifts[node.channel][example])
                        .wrapping_add(low)
                };
                let (low, high) = (relative(instance.low), relative(instance.high));
                Request { pattern: child.patterns[example], time: instance.first, low, high }
            };
            let requests: Vec<Request> = instances.iter().map(request).collect();
            if level == 1 {
                let row = tile.order[start + child.channel].row;
                for (source, request) in sources.iter_mut().zip(&requests) {
                    source.push(Source { node: row, instance: 0, low: request.low });
                }
                continue;
            }
            let (rows, assigned) = self.instances(&requests);
            let place = self.descend(level - 1, k, rows);
            for ((source, request), instance) in sources.iter_mut().zip(&requests).zip(assigned) {
                source.push(Source { node: place, instance, low: request.low });
            }
        }
        self.nodes.push(NodeRows { level: level - 1, instances, sources });
        self.nodes.len() as u32 - 1
    }

    /// Serves requests, in trial order, with the cheapest number of rows.
    fn instances(&self, requests: &[Request]) -> (Vec<Instance>, Vec<u32>) {
        let patterns =
            requests.iter().map(|request| request.pattern).max().map_or(0, |p| p as usize + 1);
        let mut latest = vec![u32::MAX; patterns];
        let mut instances: Vec<Instance> = Vec::new();
        let mut assigned = Vec::with_capacity(requests.len());
        for request in requests {
            let known = &mut latest[request.pattern as usize];
            let fits = *known != u32::MAX && self.extend(&mut instances[*known as usize], request);
            if !fits {
                *known = instances.len() as u32;
                instances.push(Instance {
                    pattern: request.pattern,
                    first: request.time,
                    last: request.time,
                    low: request.low,
                    high: request.high,
                });
            }
            assigned.push(*known);
        }
        (instances, assigned)
    }

    /// Extends a row to one more request, unless a new row costs less.
    fn extend(&self, row: &mut Instance, request: &Request) -> bool {
        let (low, high) = (row.low.min(request.low), row.high.max(request.high));
        let longer = (high - low) - (row.high - row.low);
        let anew = self.tile.shape.tile_times + (request.high - request.low) as usize;
        if longer as usize > anew || high - low > MAX_EXTRA {
            return false;
        }
        (row.low, row.high, row.last) = (low, high, row.last.max(request.time));
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

/// One pass over a tile: groups of the last level, their rows, and the sums of each trial.
#[derive(Debug, Default)]
pub(super) struct Pass {
    /// For each build: level and number of sources, offset in bytes, times beyond the tile's, then two words per
    /// source: history row and shift at the first level, otherwise offset in bytes and 0.
    code: Vec<u32>,
    /// Start of each trial's builds in `code`, and the end.
    starts: Vec<u32>,
    /// Offsets in bytes of each trial's rows, `groups` per trial.
    pub(super) places: Vec<u32>,
    pub(super) groups: usize,
    /// Peak scratch memory of the rows in bytes.
    pub(super) bytes: usize,
    /// Largest number of times of a first-level row beyond the tile.
    pub(super) longest: usize,
}

/// One build instruction of a program.
pub(super) struct Build<'a> {
    pub(super) level: usize,
    pub(super) sources: usize,
    /// Offset in bytes.
    pub(super) place: usize,
    /// Times beyond the tile's.
    pub(super) extra: usize,
    /// Two words per source, see [`Pass::code`].
    pub(super) words: &'a [u32],
}

/// Decoder of build instructions.
struct Builds<'a>(&'a [u32]);

impl<'a> Iterator for Builds<'a> {
    type Item = Build<'a>;

    #[inline(always)]
    fn next(&mut self) -> Option<Build<'a>> {
        let [header, place, extra, rest @ ..] = self.0 else { return None };
        let (level, sources) = ((header & 0xff) as usize, (header >> 8) as usize);
        let (words, rest) = rest.split_at(2 * sources);
        self.0 = rest;
        Some(Build { level, sources, place: *place as usize, extra: *extra as usize, words })
    }
}

/// Returns the bytes of a row of `times` elements, with spare bytes for whole vectors.
fn row_bytes(times: usize, lane_bytes: usize) -> usize {
    (times * lane_bytes).next_multiple_of(128) + 64
}

impl Pass {
    /// Returns the trials of the tile.
    pub(super) fn dms(&self) -> usize {
        self.starts.len() - 1
    }

    /// Iterates over the builds needed before a trial's sum.
    #[inline(always)]
    pub(super) fn builds_of(&self, dm: usize) -> impl Iterator<Item = Build<'_>> {
        Builds(&self.code[self.starts[dm] as usize..self.starts[dm + 1] as usize])
    }

    /// Iterates over all builds.
    fn builds(&self) -> impl Iterator<Item = Build<'_>> {
        Builds(&self.code)
    }

    /// Allocates and orders the rows of groups `start .. start + groups` of the last level.
    pub(super) fn new(tile: &Tile<'_>, start: usize, groups: usize) -> Self {
        let groups: Vec<Group> = (start..start + groups).map(|g| tile.group(g)).collect();
        let mut builds = Vec::new();
        for (g, group) in groups.iter().enumerate() {
            for (n, node) in group.nodes.iter().enumerate() {
                builds.extend(node.instances.iter().enumerate().map(|(i, row)| Wanted {
                    first: row.first,
                    last: row.last,
                    level: node.level as u32,
                    group: g as u32,
                    node: n as u32,
                    instance: i as u32,
                }));
            }
        }
        builds.sort_by_key(|build| (build.first, build.group, build.level));
        Placer::new(tile, &groups).run(&builds)
    }
}

/// Row to allocate and build.
struct Wanted {
    first: u32,
    last: u32,
    level: u32,
    group: u32,
    node: u32,
    instance: u32,
}

/// Allocator of rows: a linear scan over trials with one stack of free offsets per size.
struct Placer<'a> {
    tile: &'a Tile<'a>,
    groups: &'a [Group],
    places: Vec<Vec<Vec<u32>>>,
    free: HashMap<usize, Vec<u32>>,
    /// Offsets to free after each trial.
    ends: Vec<Vec<(usize, u32)>>,
    pass: Pass,
}

impl<'a> Placer<'a> {
    fn new(tile: &'a Tile<'a>, groups: &'a [Group]) -> Self {
        let places =
            |group: &Group| group.nodes.iter().map(|node| vec![0; node.instances.len()]).collect();
        Self {
            tile,
            groups,
            places: groups.iter().map(places).collect(),
            free: HashMap::new(),
            ends: vec![Vec::new(); tile.dms],
            pass: Pass { groups: groups.len(), ..Pass::default() },
        }
    }

    fn run(mut self, builds: &[Wanted]) -> Pass {
        let mut next = 0;
        for dm in 0..self.tile.dms {
            self.pass.starts.push(self.pass.code.len() as u32);
            while let Some(build) = builds.get(next).filter(|build| build.first == dm as u32) {
                self.build(build);
                next += 1;
            }
            self.sum(dm);
            for (size, place) in std::mem::take(&mut self.ends[dm]) {
                self.free.entry(size).or_default().push(place);
            }
        }
        self.pass.starts.push(self.pass.code.len() as u32);
        self.pass
    }

    fn build(&mut self, build: &Wanted) {
        let node = &self.groups[build.group as usize].nodes[build.node as usize];
        let row = &node.instances[build.instance as usize];
        let shape = self.tile.shape;
        let extra = (row.high - row.low) as usize;
        let size = row_bytes(shape.tile_times + extra, shape.levels[node.level].lane.bytes());
        let place = self.free.get_mut(&size).and_then(Vec::pop).unwrap_or_else(|| {
            let place = self.pass.bytes;
            self.pass.bytes += size;
            place as u32
        });
        self.ends[build.last as usize].push((size, place));
        let places = &mut self.places[build.group as usize];
        places[build.node as usize][build.instance as usize] = place;
        let sources = &node.sources[build.instance as usize];
        let code = &mut self.pass.code;
        code.extend([node.level as u32 | (sources.len() as u32) << 8, place, extra as u32]);
        if node.level == 0 {
            self.pass.longest = self.pass.longest.max(extra);
            code.extend(sources.iter().flat_map(|source| [source.node, source.low]));
            return;
        }
        let bytes = shape.source(node.level).bytes() as u32;
        let nodes = &self.groups[build.group as usize].nodes;
        code.extend(sources.iter().flat_map(|source| {
            let row = &nodes[source.node as usize].instances[source.instance as usize];
            let place = places[source.node as usize][source.instance as usize];
            [place + (source.low - row.low) * bytes, 0]
        }));
    }

    fn sum(&mut self, dm: usize) {
        let bytes = self.tile.shape.levels.last().map_or(1, |rows| rows.lane.bytes()) as u32;
        for (group, places) in self.groups.iter().zip(&self.places) {
            let (instance, shift) = group.trials[dm];
            let root = group.nodes.len() - 1;
            let row = &group.nodes[root].instances[instance as usize];
            let place = places[root][instance as usize];
            self.pass.places.push(place + (shift - row.low) * bytes);
        }
    }
}

/// Trials of the sampled tile.
const SAMPLED_DMS: usize = 250;

/// Sampled groups of the last level, spread over the band.
const SAMPLED_GROUPS: usize = 4;

/// Bytes of rows in use during a pass: the private cache of a core on most machines.
const CACHE_BYTES: usize = 1 << 20;

/// Cost of starting a build, in bytes that could be added in the same time.
const START: f64 = 3000.0;

/// Measured costs of reading a byte of a narrower type than the sum, and of writing a byte; a plain read costs 1.
const WIDENED: f64 = 0.7;
const WRITTEN: f64 = 1.2;

/// Largest group size to try.
const MAX_GROUP: usize = 128;

const TILE_TIMES: [usize; 4] = [512, 1024, 2048, 4096];

impl Shape {
    /// Returns the cheapest shape for a plan; `order` is as [`Tile::order`].
    pub(super) fn choose(plan: &Plan, order: &[UsedChannel]) -> Self {
        // Cheapest chain of group sizes up to each size; longer chains extend these.
        let mut chains: Vec<Vec<usize>> = vec![Vec::new()];
        let mut best = estimate(plan, order, &[1], TILE_TIMES[1]);
        for size in (1..).map(|k| 1 << k).take_while(|size| *size <= MAX_GROUP) {
            let step = |k: &usize| {
                let mut sizes = chains[chains.len() - k].clone();
                sizes.push(size);
                let (cost, shape) = estimate(plan, order, &sizes, TILE_TIMES[1]);
                (cost, shape, sizes)
            };
            let steps = (1..=chains.len().min(FAN_IN.ilog2() as usize)).collect::<Vec<_>>();
            let cheapest = steps.iter().map(step).min_by(|a, b| a.0.total_cmp(&b.0));
            let Some((cost, shape, sizes)) = cheapest else { break };
            chains.push(sizes);
            if cost < best.0 {
                best = (cost, shape);
            } else if cost > 1.3 * best.0 || size >= order.len() {
                break;
            }
        }
        let sizes: Vec<usize> = best.1.levels.iter().map(|rows| rows.channels).collect();
        for times in TILE_TIMES {
            let other = estimate(plan, order, &sizes, times);
            if other.0 < best.0 {
                best = other;
            }
        }
        best.1
    }
}

/// Returns the cost of a trial's output sample, in bytes added, and the shape with its passes.
fn estimate(
    plan: &Plan,
    order: &[UsedChannel],
    sizes: &[usize],
    tile_times: usize,
) -> (f64, Shape) {
    let mut shape = Shape::new(plan, sizes, tile_times, 1);
    let dms = plan.dms().len().min(SAMPLED_DMS);
    let groups = order.len().div_ceil(shape.group());
    let sampled = groups.min(SAMPLED_GROUPS);
    let (mut build, mut bytes) = (0.0, 0);
    for k in 0..sampled {
        let first_dm = (plan.dms().len() - dms) * k / sampled.max(1);
        let tile = Tile { plan, shape: &shape, order, first_dm, dms };
        let pass = Pass::new(&tile, k * (groups - 1) / (sampled - 1).max(1), 1);
        build += build_cost(&shape, &pass);
        bytes += pass.bytes;
    }
    shape.pass_groups = pass_groups(&shape, groups, CACHE_BYTES * sampled / bytes.max(1));
    let passes = groups.div_ceil(shape.pass_groups);
    let samples = (dms * tile_times) as f64;
    let builds = build / sampled as f64 * groups as f64 / samples;
    let sums = groups as f64 * sum_cost(&shape) + passes as f64 * 14.0;
    (builds + sums, shape)
}

/// Returns the groups of a pass, at most `fitting`: equal passes of whole segments.
fn pass_groups(shape: &Shape, groups: usize, fitting: usize) -> usize {
    let most = fitting.clamp(1, groups);
    let step = if shape.segment == 0 || most < shape.segment { 1 } else { shape.segment };
    let passes = groups.div_ceil(most / step * step);
    groups.div_ceil(passes).next_multiple_of(step).min(groups)
}

/// Returns the cost of a pass's builds: a start for each, plus the bytes that it reads and writes.
fn build_cost(shape: &Shape, pass: &Pass) -> f64 {
    let cost = |level: usize, sources: usize, extra: usize| {
        let (from, to) = (shape.source(level), shape.levels[level].lane);
        let read = (sources * from.bytes()) as f64 * if from == to { 1.0 } else { WIDENED };
        START + (shape.tile_times + extra) as f64 * (read + WRITTEN * to.bytes() as f64)
    };
    pass.builds().map(|build| cost(build.level, build.sources, build.extra)).sum()
}

/// Returns the cost of adding one element of a group's row.
fn sum_cost(shape: &Shape) -> f64 {
    match shape.levels.last().map_or(Lane::U8, |rows| rows.lane) {
        Lane::U8 => 1.35,
        Lane::U16 if shape.wide() => 2.6,
        Lane::U16 => 2.0,
        Lane::U32 | Lane::F32 => 4.0,
    }
}
