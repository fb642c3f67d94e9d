//! Helpers of the theme, shared with other themes.
#![allow(dead_code)]

#[path = "../common/channelize.rs"]
pub(crate) mod channelize;
#[path = "../common/random.rs"]
pub(crate) mod random;
