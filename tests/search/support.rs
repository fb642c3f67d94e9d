//! Helpers of the theme, shared with other themes.
#![allow(dead_code)]

#[path = "../common/mod.rs"]
pub(crate) mod common;
#[path = "../common/random.rs"]
pub(crate) mod random;
