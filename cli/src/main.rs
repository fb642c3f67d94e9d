//! The `sidereal` command.
fn main() {}
