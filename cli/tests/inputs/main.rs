//! Inputs of every kind: formats, truncated and foreign files, limits.

#[path = "../common/mod.rs"]
mod common;
mod compressed;
mod convert;
mod cut;
mod earth_orientation;
mod foreign;
mod limits;
