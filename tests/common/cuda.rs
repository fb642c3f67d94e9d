//! The CUDA device that tests run on, real or emulated.
// Each test binary that takes this file in uses a part of it.
#![allow(dead_code)]

use sidereal::backend::cuda::{Device, Source};

/// The first device; without one the test is skipped, and fails where `SIDEREAL_REQUIRE` names `cuda`.
pub(crate) fn device() -> Option<Device> {
    match Device::open(0) {
        Ok(device) => Some(device),
        Err(error) => {
            let required = std::env::var("SIDEREAL_REQUIRE").unwrap_or_default();
            assert!(
                !required.split(',').any(|word| word == "cuda"),
                "SIDEREAL_REQUIRE asks for a CUDA device: {error}"
            );
            eprintln!("skipped: no CUDA device");
            None
        }
    }
}

/// A source without constants or files of its own.
pub(crate) fn source(name: &'static str, text: &'static str) -> Source {
    Source { name, text, includes: &[], defines: Vec::new() }
}
