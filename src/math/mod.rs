//! What several stages share.
//!
//! Invariant: pure functions of their arguments.

pub mod statistics;
