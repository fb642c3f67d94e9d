//! Ends of runs: output files, signals, interruptions and their continuation; benchmarks of whole runs.

mod batches;
mod beams;
mod chains;
#[path = "../common/mod.rs"]
mod common;
mod endings;
mod interrupted;
mod interrupts;
mod jobs;
mod outputs;
