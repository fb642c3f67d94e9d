//! What joins the stages: source to stages to sink, one page each.
//!
//! Invariant: memory does not grow with the length of a recording.

pub mod cutout;
