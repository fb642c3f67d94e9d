//! PSRDADA
use super::{VoltageOptions, VoltageSource};
use crate::error::{Error, Result};
use std::path::PathBuf;
pub(super) fn detect(_first: &[u8]) -> bool {
    false
}
/// x
pub fn open(_paths: &[PathBuf], _options: &VoltageOptions) -> Result<Box<dyn VoltageSource>> {
    Err(Error::parameter("files", 0, "one at least is needed"))
}
