//! Helpers of the theme, shared with other themes.
#![allow(dead_code)]

#[path = "../common/array.rs"]
pub(crate) mod array;
