//! Compiled kernels on disk.

use super::compile::{Source, compile};
use crate::error::Result;

/// The machine code of a source for an architecture: from the cache, or compiled.
pub(super) fn cubin(source: &Source, architecture: &str) -> Result<Vec<u8>> {
    Ok(compile(source, architecture)?.cubin)
}
