//! How many filters a thread holds, and how many threads share a template.

/// One body of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    /// Filters of a thread.
    pub(super) filters: usize,
    /// Threads of a template.
    pub(super) lanes: usize,
    /// Whether states are rounded once a tile.
    pub(super) long: bool,
}

/// Filters that a thread may hold.
const FILTERS: [usize; 5] = [1, 2, 4, 8, 16];
/// The same of long memories, which take more registers.
const LONG_FILTERS: [usize; 3] = [1, 2, 4];
/// Threads that may share a template.
pub(super) const LANES: [usize; 4] = [4, 8, 16, 32];

/// Instructions of a filter and sample, and of the sums of a template's lanes a sample.
const STEP: [f64; 2] = [6.6, 11.0];
const SHARE: f64 = 10.0;

impl Shape {
    /// Every body.
    pub(super) fn all() -> Vec<Self> {
        let of = |lanes: usize| {
            let short = FILTERS.map(|filters| Self { filters, lanes, long: false });
            let long = LONG_FILTERS.map(|filters| Self { filters, lanes, long: true });
            short.into_iter().chain(long)
        };
        LANES.iter().flat_map(|lanes| of(*lanes)).collect()
    }

    /// The bodies of so many lanes, the smallest first.
    pub(super) fn sizes(lanes: usize, long: bool) -> Vec<Self> {
        let sizes = if long { &LONG_FILTERS[..] } else { &FILTERS[..] };
        sizes.iter().map(|filters| Self { filters: *filters, lanes, long }).collect()
    }

    /// The bodies that hold `filters` filters of each template, one pass after another.
    pub(super) fn passes(mut filters: usize, lanes: usize, long: bool) -> Vec<Self> {
        let sizes = Self::sizes(lanes, long);
        let mut passes = Vec::new();
        while filters > 0 {
            let holds = |shape: &&Self| shape.slots() >= filters;
            let shape = sizes.iter().find(holds).unwrap_or(&sizes[sizes.len() - 1]);
            passes.push(*shape);
            filters = filters.saturating_sub(shape.slots());
        }
        passes
    }

    /// Its place among all.
    pub(super) fn index(self) -> usize {
        Self::all().iter().position(|shape| *shape == self).unwrap_or(0)
    }

    /// Instructions of a thread for a sample, about.
    pub(super) fn cost(self) -> f64 {
        STEP[usize::from(self.long)] * self.filters as f64 + SHARE
    }

    /// Slots of a template.
    pub(super) fn slots(self) -> usize {
        self.filters * self.lanes
    }

    /// Whether sums are stored beside the next ones' arithmetic.
    fn is_piped(self) -> bool {
        !self.long && self.filters < 8
    }

    /// Its line of the kernel's source.
    pub(super) fn define(self) -> String {
        let Self { filters, lanes, long } = self;
        let (index, ahead, piped) = (self.index(), filters.min(4), self.is_piped());
        format!("SHAPE({index},{filters},{lanes},{ahead},{piped},{long})")
    }
}
