//! Gravitational waveforms of compact binaries, from their masses and spins.
//!
//! Invariant: pure functions of a binary; nothing of detectors or noise is known here.
