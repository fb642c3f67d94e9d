//! Program of a pass: rows in build order, each with its offset in scratch memory.
//!
//! Invariant: a row is built before its first use, and its place is not given away before its last.

use std::collections::HashMap;

use super::program::{Group, Tile};

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
pub(super) fn row_bytes(times: usize, lane_bytes: usize) -> usize {
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
    pub(super) fn builds(&self) -> impl Iterator<Item = Build<'_>> {
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
            let (instance, shift) = group.choices[dm];
            let root = group.nodes.len() - 1;
            let row = &group.nodes[root].instances[instance as usize];
            let place = places[root][instance as usize];
            self.pass.places.push(place + (shift - row.low) * bytes);
        }
    }
}
