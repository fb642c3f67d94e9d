//! Common part of VDIF and Mark 5B: equal-length frames, each with a time and a thread.
//!
//! The format modules read frame headers into an [`Index`]. This module sorts the frames, flags the missing ones and
//! unpacks payloads into streams.
//!
//! Invariant: the sample of a stream at a time comes from the one frame that has this time, wherever it
//! lies in the files, and is zero (and flagged) where there is none.

mod files;
mod gaps;
mod index;
mod layout;
mod source;
mod streams;
mod unpack;

pub(super) use files::{Scan, check_paths};
pub(super) use index::{Frame, Index};
pub(super) use layout::{Code, Layout};
pub(super) use source::{Recording, open};
