//! Pipelines of recorded voltages.

mod channelized;
mod coherent;
mod endings;
mod gaps;
mod pipeline;
mod support;
