//! What is told of GPUs by a program that was built without them.

use serde::Serialize;
use sidereal::Result;
use sidereal::backend::Backend;

/// The libraries that GPUs need.
#[derive(Serialize)]
pub(super) struct Libraries {
    /// What is missing.
    missing: [&'static str; 1],
}

/// What only GPUs have: there are none.
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
