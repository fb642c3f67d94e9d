//! Helpers of the theme, shared with other themes.
#![allow(dead_code)]

#[path = "array.rs"]
pub(crate) mod array;
#[path = "../voltage/arriving.rs"]
pub(crate) mod arriving;
#[path = "../common/mod.rs"]
pub(crate) mod common;
#[path = "../common/correlate.rs"]
pub(crate) mod correlate;
#[path = "divided.rs"]
pub(crate) mod divided;
#[path = "../voltage/memory.rs"]
pub(crate) mod memory;
#[path = "../common/random.rs"]
pub(crate) mod random;
#[path = "../common/ranks.rs"]
pub(crate) mod ranks;
#[path = "../common/sums.rs"]
pub(crate) mod sums;
#[path = "../common/tbx.rs"]
pub(crate) mod tbx;
#[path = "../common/tracked.rs"]
pub(crate) mod tracked;
