//! Simulated recordings agree with their truth.

mod array;
mod bursts;
#[allow(dead_code)]
#[path = "../common/array.rs"]
mod common;
mod strain;
mod voltages;
