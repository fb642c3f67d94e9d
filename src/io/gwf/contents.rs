//! Locates a file's frames and channels through its table of contents, or by walking all structures.

use std::collections::BTreeMap;

use super::input::Input;
use super::structure::{Dictionary, HEAD_BYTES, Head, Record, number_at};
use super::{Gwf, HEADER_BYTES, VECTOR};
use crate::error::Result;
use crate::units::Gps;

const TABLE: &str = "FrTOC";
const END_OF_FILE: &str = "FrEndOfFile";
const FRAME: &str = "FrameH";
/// Classes that begin and end a frame.
pub(super) const FRAME_EDGES: [&str; 2] = [FRAME, "FrEndOfFrame"];
/// Bytes before the table of contents that are searched for its definition, which takes about 3000.
const DEFINITION_BYTES: u64 = 1 << 15;
/// Latest accepted time: the year 2140.
const LATEST_GPS_S: u64 = 5_000_000_000;

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
    const ALL: [Self; 3] = [Self::Processed, Self::Adc, Self::Simulated];

    pub(super) fn class(self) -> &'static str {
        match self {
            Self::Adc => "FrAdcData",
            Self::Processed => "FrProcData",
            Self::Simulated => "FrSimData",
        }
    }

    /// Returns the table-of-contents fields with its channel names and offsets.
    fn columns(self) -> [&'static str; 2] {
        match self {
            Self::Adc => ["name", "positionADC"],
            Self::Processed => ["nameProc", "positionProc"],
            Self::Simulated => ["nameSim", "positionSim"],
        }
    }
}

/// Location of a channel's structure in one frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) frame: usize,
    pub(super) kind: ChannelKind,
    pub(super) offset: u64,
}

/// End-of-file structure.
#[derive(Clone, Copy, Debug)]
pub(super) struct End {
    head: Head,
    frames: u64,
    /// Offset of the table of contents, if any.
    table: Option<u64>,
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

impl Gwf {
    /// Reads frames and channels from the table of contents; returns whether there is a readable one.
    pub(super) fn read_table(&mut self) -> Result<bool> {
        let Some(place) = self.end.and_then(|end| end.table) else { return Ok(false) };
        let Some(definition) = self.table_definition(place)? else { return Ok(false) };
        let Some(head) = Head::read(&self.input, place)? else { return Ok(false) };
        if definition.name(head.class) != TABLE {
            return Ok(false);
        }
        let table = definition.read(&self.input, &head)?;
        self.frames = frames_of(&table)?;
        for kind in ChannelKind::ALL {
            self.add_channels(&table, kind)?;
        }
        self.learn_classes(place)?;
        Ok(true)
    }

    /// Finds the definition of the table of contents, which directly precedes it.
    fn table_definition(&self, table: u64) -> Result<Option<Dictionary>> {
        let start = table.saturating_sub(DEFINITION_BYTES).max(HEADER_BYTES as u64);
        let mut bytes = vec![0; table.saturating_sub(start) as usize];
        self.input.read_at(&mut bytes, start)?;
        let name = format!("{TABLE}\0");
        let found = bytes.windows(name.len()).rposition(|window| window == name.as_bytes());
        // The structure's head and two bytes of the name's length precede the name.
        let first = found.and_then(|found| (start + found as u64).checked_sub(HEAD_BYTES + 2));
        let Some(mut offset) = first.filter(|first| *first >= start) else { return Ok(None) };
        let mut dictionary = Dictionary::default();
        while offset < table {
            let Ok(Some(head)) = Head::read(&self.input, offset) else { return Ok(None) };
            if !dictionary.learn(&self.input, &head).unwrap_or(false) {
                return Ok(None);
            }
            offset = head.end();
        }
        Ok((offset == table).then_some(dictionary))
    }

    fn add_channels(&mut self, table: &Record, kind: ChannelKind) -> Result<()> {
        let [names, places] = kind.columns();
        let (names, places) = (table.texts(names)?, table.wholes(places)?);
        let frames = self.frames.len();
        for (name, places) in names.iter().zip(places.chunks(frames)) {
            for (frame, offset) in places.iter().copied().enumerate() {
                // Offset 0 marks a channel that is absent from the frame.
                if offset == 0 {
                    continue;
                }
                if offset < HEADER_BYTES as u64 || offset >= self.input.bytes {
                    let why = format!("{name} at byte {offset}, in a file of {}", self.input.bytes);
                    return Err(table.fault(kind.columns()[1], why));
                }
                add(&mut self.channels, name, Place { frame, kind, offset });
            }
        }
        Ok(())
    }

    /// Reads definitions from the file's start until the classes of all channels are known.
    fn learn_classes(&mut self, until: u64) -> Result<()> {
        let kinds = ChannelKind::ALL
            .into_iter()
            .filter(|kind| self.channels.values().flatten().any(|place| place.kind == *kind));
        let needed: Vec<&str> = kinds.map(ChannelKind::class).chain([VECTOR]).collect();
        let mut offset = HEADER_BYTES as u64;
        while offset < until {
            let Some(head) = Head::read(&self.input, offset)? else { break };
            let is_other = !self.dictionary.learn(&self.input, &head)?;
            // A class is complete once a structure that is not a definition follows.
            if is_other && needed.iter().all(|name| self.dictionary.has(name)) {
                break;
            }
            offset = head.end();
        }
        Ok(())
    }

    /// Walks all structures.
    pub(super) fn walk(&mut self) -> Result<()> {
        let mut offset = HEADER_BYTES as u64;
        let mut is_ended = false;
        while !is_ended {
            let Some(head) = Head::read(&self.input, offset)? else {
                self.cut = Some(self.cut_at(offset));
                return Ok(());
            };
            if self.dictionary.learn(&self.input, &head)? {
                offset = head.end();
                continue;
            }
            let class = self.dictionary.name(head.class);
            if class == FRAME {
                let record = self.dictionary.read(&self.input, &head)?;
                let (seconds, ns) = (record.count("GTimeS")?, record.count("GTimeN")?);
                let start = time(seconds, ns).ok_or_else(|| {
                    record.fault("GTimeS", format!("{seconds} s and {ns} ns found"))
                })?;
                self.frames.push(Frame { start });
            } else if let Some(kind) =
                ChannelKind::ALL.into_iter().find(|kind| kind.class() == class)
            {
                let record = self.dictionary.read(&self.input, &head)?;
                let Some(frame) = self.frames.len().checked_sub(1) else {
                    return Err(record.fault("name", "it comes before the first frame"));
                };
                let name = record.text("name")?.to_owned();
                add(&mut self.channels, &name, Place { frame, kind, offset });
            } else if class.is_empty() {
                let why = format!("class {} found, which the file does not define", head.class);
                return Err(self.input.fault("structure", offset, why));
            }
            is_ended = self.dictionary.name(head.class) == END_OF_FILE;
            offset = head.end();
        }
        match self.end {
            Some(end) if end.frames != self.frames.len() as u64 => {
                let why = format!("{} frames found, expected {}", self.frames.len(), end.frames);
                Err(self.input.fault(END_OF_FILE, end.head.offset, why))
            }
            _ if offset != self.input.bytes => {
                let why = format!("{} bytes found, expected {offset}", self.input.bytes);
                Err(self.input.fault("file", offset, why))
            }
            _ => Ok(()),
        }
    }

    /// Describes where the file is truncated.
    fn cut_at(&self, offset: u64) -> String {
        let (path, bytes) = (self.input.path.display(), self.input.bytes);
        format!(
            "{path}: it ends at byte {bytes}, within the structure that begins at byte {offset}"
        )
    }
}

/// Adds a channel's location; if two kinds share a name, keeps the first kind.
fn add(channels: &mut BTreeMap<String, Vec<Place>>, name: &str, place: Place) {
    let places = channels.entry(name.to_owned()).or_default();
    if places.first().is_none_or(|first| first.kind == place.kind) {
        places.push(place);
    }
}

fn frames_of(table: &Record) -> Result<Vec<Frame>> {
    let (seconds, ns) = (table.wholes("GTimeS")?, table.wholes("GTimeN")?);
    let frame = |(seconds, ns): (&u64, &u64)| {
        let start = time(*seconds, *ns)
            .ok_or_else(|| table.fault("GTimeS", format!("{seconds} s and {ns} ns found")))?;
        Ok(Frame { start })
    };
    if seconds.is_empty() {
        return Err(table.fault("nFrame", "0 found, expected 1 at least"));
    }
    seconds.iter().zip(ns).map(frame).collect()
}

fn time(seconds: u64, ns: u64) -> Option<Gps> {
    let is_possible = seconds <= LATEST_GPS_S && ns < 1_000_000_000;
    is_possible.then(|| Gps { ns: (seconds * 1_000_000_000 + ns) as i64 })
}
