//! Locations of a file's frames and channels, and its end-of-file structure.

use super::input::{HEADER_BYTES, Input};
use super::structure::{HEAD_BYTES, Head, number_at};
use crate::error::Result;
use crate::units::Gps;

pub(super) const TABLE: &str = "FrTOC";
pub(super) const END_OF_FILE: &str = "FrEndOfFile";
pub(super) const FRAME: &str = "FrameH";
/// Classes that begin and end a frame.
pub(super) const FRAME_EDGES: [&str; 2] = [FRAME, "FrEndOfFrame"];

/// Time of a frame.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Frame {
    pub(super) start: Gps,
}

/// Kinds of channel structures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChannelKind {
    Adc,
    Processed,
    Simulated,
}

impl ChannelKind {
    pub(super) const ALL: [Self; 3] = [Self::Processed, Self::Adc, Self::Simulated];

    pub(super) fn class(self) -> &'static str {
        match self {
            Self::Adc => "FrAdcData",
            Self::Processed => "FrProcData",
            Self::Simulated => "FrSimData",
        }
    }

    /// Returns the table-of-contents fields with its channel names and offsets.
    pub(super) fn columns(self) -> [&'static str; 2] {
        match self {
            Self::Adc => ["name", "positionADC"],
            Self::Processed => ["nameProc", "positionProc"],
            Self::Simulated => ["nameSim", "positionSim"],
        }
    }
}

/// Location of a channel's structure in one frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ChannelLocation {
    pub(super) frame: usize,
    pub(super) kind: ChannelKind,
    pub(super) offset: u64,
}

/// End-of-file structure.
#[derive(Clone, Copy, Debug)]
pub(super) struct End {
    pub(super) head: Head,
    pub(super) frames: u64,
    /// Offset of the table of contents, if any.
    pub(super) table: Option<u64>,
}

impl End {
    /// Finds the end-of-file structure; `None` if the file does not end with one.
    pub(super) fn find(input: &Input) -> Result<Option<Self>> {
        let length = match input.version {
            ..8 => 42,
            8 => 46,
            _ => 50,
        };
        let Some(offset) = input.bytes.checked_sub(length) else { return Ok(None) };
        if number_at(input, offset, 8)? != length {
            return Ok(None);
        }
        let Some(head) = Head::read(input, offset)? else { return Ok(None) };
        let field = |place: u64, bytes| number_at(input, offset + HEAD_BYTES + place, bytes);
        if field(4, 8)? != input.bytes {
            return Ok(None);
        }
        // In versions 6 and 7, two checksum fields precede this number.
        let from_end = field(if input.version < 8 { 20 } else { 12 }, 8)?;
        let place = input.bytes.checked_sub(from_end).filter(|place| *place >= HEADER_BYTES as u64);
        let table = place.filter(|_| from_end > length);
        Ok(Some(Self { head, frames: field(0, 4)?, table }))
    }

    /// Verifies the header's checksum, if any.
    pub(super) fn verify_header(&self, input: &Input) -> Result<()> {
        self.verify_sum(input, 12, "FrEndOfFile.chkSumFrHeader", HEADER_BYTES as u64)?;
        self.verify_own(input)
    }

    /// Verifies the file's checksum, if any.
    pub(super) fn verify_file(&self, input: &Input) -> Result<()> {
        self.verify_sum(input, 4, "FrEndOfFile.chkSumFile", input.bytes - 4)
    }

    fn verify_sum(&self, input: &Input, from_end: u64, what: &str, bytes: u64) -> Result<()> {
        if input.version < 8 || !self.head.is_summed {
            return Ok(());
        }
        let stored = number_at(input, input.bytes - from_end, 4)? as u32;
        let found = input.checksum(0, bytes)?;
        if found != stored && stored != 0 {
            let why = format!("the checksum is {found:#010x}, expected {stored:#010x}");
            return Err(input.fault(what, self.head.offset, why));
        }
        Ok(())
    }

    /// Verifies the structure's own checksum: its last but one number.
    fn verify_own(&self, input: &Input) -> Result<()> {
        if !self.head.is_summed {
            return Ok(());
        }
        let stored = number_at(input, input.bytes - 8, 4)? as u32;
        let found = input.checksum(self.head.offset, self.head.length - 8)?;
        if found != stored {
            let why = format!("the checksum is {found:#010x}, expected {stored:#010x}");
            return Err(input.fault("FrEndOfFile.chkSum", self.head.offset, why));
        }
        Ok(())
    }

    pub(super) fn offset(&self) -> u64 {
        self.head.offset
    }
}
