//! Kernels of the filter bank, and the table of those compiled without a GPU.

use super::shape::Shape;
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
pub(super) fn resample() -> Source {
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
