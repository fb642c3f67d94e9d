//! Searches for bursts: edges, interference, interruptions, known bursts.

mod edges;
mod interrupted;
mod mitigate;
mod science;
mod series;

#[allow(dead_code)]
#[path = "../common/mod.rs"]
mod common;
#[path = "../common/random.rs"]
mod random;
