//! Ends of runs: output files, signals, interruptions and their continuation.

#[path = "../common/mod.rs"]
mod common;
mod endings;
mod interrupted;
mod interrupts;
mod outputs;
