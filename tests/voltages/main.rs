//! Pipelines of recorded voltages.

mod arriving;
mod channelized;
mod coherent;
mod endings;
mod gaps;
mod pipeline;
#[path = "../common/random.rs"]
mod random;
mod support;
