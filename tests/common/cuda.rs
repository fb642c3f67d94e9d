//! The CUDA device that tests run on, real or emulated.
// Each test binary that includes this file uses a part of it.
#![allow(dead_code)]

#[path = "skip.rs"]
#[allow(clippy::duplicate_mod)]
mod skip;

use sidereal::backend::Backend;
use sidereal::backend::cuda::{Device, Source};
use sidereal::backend::threads::Threads;

/// Returns the first device; without one skips the test, which fails where `SIDEREAL_REQUIRE` names `cuda`.
pub(crate) fn device() -> Option<Device> {
    Device::open(0).map_err(|error| no_device(&error.to_string())).ok()
}

/// Returns the first device as a backend with `threads` threads of the host; without one as [`device`].
pub(crate) fn backend(threads: usize) -> Option<Backend> {
    devices(threads).into_iter().next().map(|(backend, _)| backend)
}

/// Returns whether a backend's device is the emulated one, which is fast enough for small data only.
pub(crate) fn is_emulated(backend: &Backend) -> bool {
    backend.name().contains("Emulated")
}

/// Returns every device, each with `threads` threads of the host; without any as [`device`].
pub(crate) fn devices(threads: usize) -> Vec<(Backend, Device)> {
    let device = |backend: Backend| match &backend {
        Backend::Cuda(device, _) => Some((backend.clone(), device.clone())),
        _ => None,
    };
    let found: Vec<_> = Backend::available(threads).into_iter().filter_map(device).collect();
    if found.is_empty() {
        no_device("there is none");
    }
    found
}

/// Returns the first device alone, and with all others as its peers; skips the test if there is no other, which fails where
/// `SIDEREAL_REQUIRE` names `gpus`.
pub(crate) fn several(threads: usize) -> Option<(Backend, Backend)> {
    let found: Vec<_> = Device::all();
    let Some((first, others)) = found.split_first().filter(|(_, others)| !others.is_empty()) else {
        skip::skip("gpus", "there are not several CUDA devices");
        return None;
    };
    let all = first.clone().with_peers(others.to_vec()).expect("devices reach each other");
    let backend = |device: Device| Backend::Cuda(device, Threads::new(threads));
    Some((backend(first.clone()), backend(all)))
}

/// Returns the first device alone, and with each smaller number of the others as its peers; otherwise as [`several`].
pub(crate) fn divisions(threads: usize) -> Option<(Backend, Vec<Backend>)> {
    let (one, all) = several(threads)?;
    let Backend::Cuda(device, _) = &all else { unreachable!("a GPU") };
    let joined = |count: usize| {
        let (first, peers) = (device.clone(), device.peers()[..count].to_vec());
        Backend::Cuda(first.with_peers(peers).expect("devices"), Threads::new(threads))
    };
    Some((one, (1..=device.peers().len()).map(joined).collect()))
}

fn no_device(why: &str) {
    skip::skip("cuda", &format!("no CUDA device: {why}"));
}

/// A source without constants or files of its own.
pub(crate) fn source(name: &'static str, text: &'static str) -> Source {
    Source { name, text, includes: &[], defines: Vec::new() }
}
