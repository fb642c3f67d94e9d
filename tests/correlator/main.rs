//! The FX correlator of an array, from voltages to visibilities.

mod arriving;
mod encodings;
mod endings;
mod exact;
mod faults;
mod ranks;
mod science;
mod sky;
mod support;
mod tbx_recording;
mod tracking;
