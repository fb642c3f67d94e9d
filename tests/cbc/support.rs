//! Helpers of the theme, shared with other themes.
#![allow(dead_code)]

#[path = "../common/binaries.rs"]
pub(crate) mod binaries;
#[path = "../common/cbc.rs"]
pub(crate) mod chirps;
#[path = "../common/coincident.rs"]
pub(crate) mod coincident;
#[path = "../common/coloured.rs"]
pub(crate) mod coloured;
#[path = "../common/mod.rs"]
pub(crate) mod common;
#[path = "../common/random.rs"]
pub(crate) mod random;
#[path = "../common/whitened.rs"]
pub(crate) mod whitened;
