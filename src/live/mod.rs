//! Live data: rings in shared memory, shared with other programs.
//!
//! Invariant: nothing here waits without a limit, and nothing read from shared memory is used as a length or an index unchecked.

#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
pub mod ring;
