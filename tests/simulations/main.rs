//! Simulated recordings agree with their truth.

mod array;
mod array_sky;
mod bursts;
mod strain;
mod support;
mod voltages;
mod voltages_pulse;
