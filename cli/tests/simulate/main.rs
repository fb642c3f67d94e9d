//! `sidereal simulate`: the files that it writes, read back; truth files; faults.

mod array;
#[path = "../common/mod.rs"]
mod common;
mod strain;
mod voltages;
