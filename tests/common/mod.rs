//! Helpers shared by the test binaries.

#[allow(clippy::duplicate_mod)]
mod skip;

use std::path::PathBuf;

/// The folder of real recordings: `$SIDEREAL_DATA`, by default `../shared/data`.
///
/// A missing folder is reported, and is a failure where `SIDEREAL_REQUIRE` names `data`.
pub(crate) fn data_dir() -> Option<PathBuf> {
    let default = || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../shared/data");
    let folder = std::env::var_os("SIDEREAL_DATA").map_or_else(default, PathBuf::from);
    if folder.join("frb").is_dir() {
        return Some(folder);
    }
    skip::skip("data", &format!("no recordings in {}", folder.display()));
    None
}
