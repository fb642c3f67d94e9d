//! The FX correlator of an array, from voltages to visibilities.

mod encodings;
mod endings;
mod exact;
mod faults;
mod horizon;
mod not_finite;
mod science;
mod sky;
mod support;
mod tbx_recording;
mod tracking;
