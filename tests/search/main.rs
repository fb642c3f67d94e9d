//! Searches for bursts: edges, interference, interruptions, known bursts.

mod edges;
mod interrupted;
mod mitigate;
mod science;
mod series;
mod support;
