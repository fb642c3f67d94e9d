#![no_main]
#[allow(dead_code)] // Each target has one body of the shared file.
#[path = "../bodies.rs"]
mod bodies;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| bodies::cand(bytes));
