//! Helpers of the theme, shared with other themes.
#![allow(dead_code)]

#[path = "../voltage/memory.rs"]
pub(crate) mod memory;
#[path = "../voltage/rows.rs"]
pub(crate) mod rows;
