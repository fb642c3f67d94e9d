//! Kernels of the filter bank: their variants (filters per thread, threads per template) and sources.

use crate::backend::cuda::{Extent, Source, Variant};

/// Returns the filter source without defines. It identifies the kernel in stored tuning choices and is never
/// compiled.
pub(super) fn sources() -> Source {
    Source {
        name: "filter.cu",
        text: include_str!("filter.cu"),
        includes: &[
            ("filter.cuh", include_str!("filter.cuh")),
            ("sums.cuh", include_str!("sums.cuh")),
        ],
        defines: Vec::new(),
    }
}

/// Returns the filter kernel for blocks of `threads` threads and these shapes.
pub(super) fn filters(threads: usize, shapes: &[Shape]) -> Source {
    let shapes: String = shapes.iter().map(|shape| shape.define()).collect();
    let defines = vec![("THREADS", threads.to_string()), ("SHAPES", shapes)];
    Source { defines, ..sources() }
}

/// Returns the resampling kernels that run before and after the filters.
pub(crate) fn resample() -> Source {
    let text = include_str!("resample.cu");
    Source { name: "resample.cu", text, includes: &[], defines: Vec::new() }
}

/// Returns the kernels of this stage.
pub fn kernels(extent: Extent) -> Vec<Variant> {
    let shapes = Shape::all();
    let some =
        |start: usize| -> Vec<Shape> { shapes.iter().copied().skip(start).step_by(5).collect() };
    let mut variants: Vec<Variant> = (0..5)
        .map(|start| {
            let threads = [256, 128, 64][start % 3];
            Variant::everywhere(filters(threads, &some(start)))
        })
        .collect();
    if extent == Extent::All {
        let each = shapes.iter().flat_map(|shape| [64, 128, 256].map(|threads| (threads, *shape)));
        variants
            .extend(each.map(|(threads, shape)| Variant::everywhere(filters(threads, &[shape]))));
    }
    variants.push(Variant::plain(resample(), extent));
    variants
}

/// Variant of the pass kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    /// Filters of a thread.
    pub(super) filters: usize,
    /// Threads of a template.
    pub(super) lanes: usize,
    /// Whether states are rounded once per tile.
    pub(super) long: bool,
}

/// Filters per thread.
const FILTERS: [usize; 5] = [1, 2, 4, 8, 16];
/// Filters per thread with long memories, which take more registers.
const LONG_FILTERS: [usize; 3] = [1, 2, 4];
/// Threads per template.
pub(super) const LANES: [usize; 4] = [4, 8, 16, 32];

/// Instructions per filter and sample (short and long memories), and per sample for the sum over a template's lanes.
const STEP: [f64; 2] = [6.6, 11.0];
const SHARE: f64 = 10.0;

impl Shape {
    /// Returns all variants.
    pub(super) fn all() -> Vec<Self> {
        let of = |lanes: usize| {
            let short = FILTERS.map(|filters| Self { filters, lanes, long: false });
            let long = LONG_FILTERS.map(|filters| Self { filters, lanes, long: true });
            short.into_iter().chain(long)
        };
        LANES.iter().flat_map(|lanes| of(*lanes)).collect()
    }

    /// Returns the variants with `lanes` lanes, smallest first.
    pub(super) fn sizes(lanes: usize, long: bool) -> Vec<Self> {
        let sizes = if long { &LONG_FILTERS[..] } else { &FILTERS[..] };
        sizes.iter().map(|filters| Self { filters: *filters, lanes, long }).collect()
    }

    /// Returns the variants of the passes that hold `filters` filters of each template.
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

    /// Returns its index among all variants.
    pub(super) fn index(self) -> usize {
        Self::all().iter().position(|shape| *shape == self).unwrap_or(0)
    }

    /// Returns the estimated instructions of a thread per sample.
    pub(super) fn cost(self) -> f64 {
        STEP[usize::from(self.long)] * self.filters as f64 + SHARE
    }

    /// Returns the slots of a template.
    pub(super) fn slots(self) -> usize {
        self.filters * self.lanes
    }

    /// Tells whether the stores of a tile overlap the arithmetic of the next one.
    fn is_piped(self) -> bool {
        !self.long && self.filters < 8
    }

    /// Returns its line of the kernel's source.
    fn define(self) -> String {
        let Self { filters, lanes, long } = self;
        let (index, ahead, piped) = (self.index(), filters.min(4), self.is_piped());
        format!("SHAPE({index},{filters},{lanes},{ahead},{piped},{long})")
    }
}
