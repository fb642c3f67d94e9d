//! The CUDA device that tests run on, real or emulated.
// Each test binary that takes this file in uses a part of it.
#![allow(dead_code)]

use sidereal::backend::Backend;
use sidereal::backend::cuda::{Device, Source};

/// The first device; without one the test is skipped, and fails where `SIDEREAL_REQUIRE` names `cuda`.
pub(crate) fn device() -> Option<Device> {
    Device::open(0).map_err(|error| skip(&error.to_string())).ok()
}

/// Every device, with so many threads of the host; without any as [`device`].
pub(crate) fn devices(threads: usize) -> Vec<(Backend, Device)> {
    let device = |backend: Backend| match &backend {
        Backend::Cuda(device, _) => Some((backend.clone(), device.clone())),
        _ => None,
    };
    let found: Vec<_> = Backend::available(threads).into_iter().filter_map(device).collect();
    if found.is_empty() {
        skip("there is none");
    }
    found
}

fn skip(why: &str) {
    let required = std::env::var("SIDEREAL_REQUIRE").unwrap_or_default();
    let is_required = required.split(',').any(|word| word == "cuda");
    assert!(!is_required, "SIDEREAL_REQUIRE asks for a CUDA device: {why}");
    eprintln!("skipped: no CUDA device");
}

/// A source without constants or files of its own.
pub(crate) fn source(name: &'static str, text: &'static str) -> Source {
    Source { name, text, includes: &[], defines: Vec::new() }
}
