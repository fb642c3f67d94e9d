//! What VDIF and Mark 5B have in common: frames of equal length, each with its time and its thread.
//!
//! A format's own part reads the frames' headers into an [`Index`]; the rest is here: the frames' order,
//! what is missing of them, how their payloads become streams.
//!
//! Invariant: the sample of a stream at a time comes from the one frame that has this time, wherever it
//! lies in the files, and is zero (and flagged) where there is none.

mod files;
mod gaps;
mod index;
mod jumps;
mod layout;
mod source;
mod streams;
mod unpack;

pub(super) use files::{Scan, check_paths};
pub(super) use index::{Frame, Index};
pub(super) use layout::{Code, Layout};
pub(super) use source::{Recording, open};
