//! Simulated telescope and detector data: seeded, streaming, in constant memory.
//!
//! Invariant: a row depends on the options and its own number only, never on how rows are asked for.

mod amplitude;
pub mod array;
mod bandpass;
mod bounds;
pub mod burst;
mod channels;
mod interference;
mod levels;
mod noise;
mod pulse_shape;
pub(crate) mod rng;
mod signal;
pub mod strain;
pub mod telescopes;
pub mod voltages;

pub use bandpass::Bandpass;
pub use interference::{BroadInterference, NarrowInterference};
