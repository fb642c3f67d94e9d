//! Replacement for GPU reports in a program built without CUDA.

use serde::Serialize;
use sidereal::Result;
use sidereal::backend::Backend;

/// Libraries that GPUs need.
#[derive(Serialize)]
pub(super) struct Libraries {
    /// Missing feature.
    missing: [&'static str; 1],
}

/// Properties of a GPU: uninhabited, since there are none.
#[derive(Serialize)]
pub(super) enum Gpu {}

impl Libraries {
    pub(super) fn find() -> Self {
        Self { missing: ["this program was built without the feature `cuda`"] }
    }

    pub(super) fn text(&self) -> String {
        format!("not used: {}", self.missing[0])
    }
}

impl Gpu {
    pub(super) fn of(_: &Backend, _: bool) -> Result<Option<Self>> {
        Ok(None)
    }
}

pub(super) fn table(_: &[(&String, &Gpu)]) -> String {
    String::new()
}
