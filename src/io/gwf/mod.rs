//! Frame files (GWF) of gravitational-wave detectors, versions 6 to 9: channels and their time series.
//!
//! Invariant: every length in a file is compared with the file's size before it is used, and a reader holds a few
//! buffers of 64 KiB, whatever the length of a channel.
//!
//! # Source
//! LIGO-T970130, "Specification of a Common Data Frame Format for Interferometric Gravitational Wave Detectors
//! (IGWD)".

mod structure;
mod vector;
mod write;

use std::collections::BTreeMap;
use std::path::Path;

use crate::error::{Error, Result};
use crate::units::Gps;
use structure::{Dictionary, HEAD_BYTES, HEADER_BYTES, Head, Input, Record, VECTOR, number_at};
use vector::{Samples, Vector};

pub use vector::Encoding;
pub use write::{GwfHeader, GwfWriter};

/// Field of an FrAdcData, and name of its auxiliary vector, that mark samples as valid.
const FLAGS: &str = "dataValid";
/// Maximum number of flags of a channel in one frame.
const MAX_FLAGS: u64 = 1 << 25;

/// Bytes before the table of contents that are searched for its definition, which takes about 3000.
const DEFINITION_BYTES: u64 = 1 << 15;
/// Latest accepted time: the year 2140.
const LATEST_GPS_S: u64 = 5_000_000_000;

/// Returns whether a file begins with the magic bytes of frame files.
pub fn is_gwf(path: &Path) -> bool {
    crate::io::compressed::head(path, 5).is_ok_and(|head| head == *b"IGWD\0")
}

/// An open frame file.
#[derive(Debug)]
pub struct Gwf {
    input: Input,
    dictionary: Dictionary,
    frames: Vec<Frame>,
    /// Locations of each channel's structures, by channel name.
    channels: BTreeMap<String, Vec<ChannelLocation>>,
    end: Option<End>,
    cut: Option<String>,
}

/// Properties of a channel.
#[derive(Clone, Debug, PartialEq)]
pub struct Channel {
    /// Its name, such as `H1:GDS-CALIB_STRAIN`.
    pub name: String,
    /// Sampling rate.
    pub rate_hz: f64,
    /// Encoding of the samples.
    pub encoding: Encoding,
    /// Unit of the samples, as stored in the file.
    pub unit: String,
}

/// A channel's samples in one frame.
#[derive(Clone, Debug)]
pub struct Piece {
    /// Index of the frame in the file.
    pub frame: usize,
    /// Time of the first sample.
    pub start: Gps,
    /// Time between samples, in seconds.
    pub spacing_s: f64,
    /// Number of samples.
    pub samples: u64,
    /// Whether the writer marked the samples as valid.
    pub is_valid: bool,
    /// Encoding of the samples.
    pub encoding: Encoding,
    vector: Vector,
    /// Flags of equally long stretches of samples; 0 marks valid ones.
    flags: Option<Vector>,
    /// A sample is `bias + slope x`, with x the stored number.
    bias: f64,
    slope: f64,
}

/// Sequential reader of the samples of a [`Piece`].
#[derive(Debug)]
pub struct Series {
    samples: Samples,
    bias: f64,
    slope: f64,
}

impl Gwf {
    /// Opens a file and finds its frames and channels through its table of contents, or, without one, by walking its
    /// structures. Verifies the checksums, if any, of the header and of all structures it reads.
    ///
    /// # Errors
    /// [`Error::Format`] naming structure and offset for a file that is damaged or ends before its first frame;
    /// [`Error::Unavailable`] for an unsupported version; [`Error::Io`].
    pub fn open(path: &Path) -> Result<Self> {
        let input = Input::open(path)?;
        let end = End::find(&input)?;
        let mut file = Self {
            input,
            dictionary: Dictionary::default(),
            frames: Vec::new(),
            channels: BTreeMap::new(),
            end,
            cut: None,
        };
        if let Some(end) = &file.end {
            end.verify_header(&file.input)?;
        }
        if !file.read_table()? {
            file.walk()?;
        }
        if file.frames.is_empty() || file.channels.is_empty() && file.cut.is_some() {
            let why = file.cut.unwrap_or_else(|| "none found, expected one at least".to_owned());
            return Err(file.input.fault("frames", 0, why));
        }
        Ok(file)
    }

    /// Verifies the checksum of the whole file, which requires one read of it. Versions 6 and 7 are not verified.
    ///
    /// # Errors
    /// [`Error::Format`] if it differs, naming the damaged structure if that structure's checksum differs as well;
    /// [`Error::Io`].
    pub fn verify(&self) -> Result<()> {
        let Some(end) = &self.end else { return Ok(()) };
        let verified = end.verify_file(&self.input);
        let mut offset = HEADER_BYTES as u64;
        while verified.is_err() && offset < end.offset() {
            let Some(head) = Head::read(&self.input, offset)? else { break };
            head.verify(&self.input, self.dictionary.name(head.class))?;
            offset = head.end();
        }
        verified
    }

    /// Iterates over the names of all channels, in alphabetical order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.channels.keys().map(String::as_str)
    }

    /// Returns a channel's properties, read from its first piece.
    ///
    /// # Errors
    /// [`Error::Format`] for a missing or damaged channel.
    pub fn channel(&self, name: &str) -> Result<Channel> {
        let places = self.places(name)?;
        let piece = self.piece(&places[0])?.ok_or_else(|| self.ends_within(name))?;
        Ok(Channel {
            name: name.to_owned(),
            rate_hz: 1.0 / piece.spacing_s,
            encoding: piece.encoding,
            unit: piece.vector.unit,
        })
    }

    /// Returns a channel's pieces, frame by frame, without those truncated by the file's end.
    ///
    /// # Errors
    /// [`Error::Format`] for a channel that is missing, damaged or truncated within its first piece.
    pub fn pieces(&self, name: &str) -> Result<Vec<Piece>> {
        let mut pieces = Vec::new();
        for place in self.places(name)? {
            match self.piece(place)? {
                Some(piece) => pieces.push(piece),
                None => break,
            }
        }
        if pieces.is_empty() {
            return Err(self.ends_within(name));
        }
        Ok(pieces)
    }

    /// Verifies a piece's checksum and opens it for reading.
    ///
    /// # Errors
    /// [`Error::Format`] if it differs; [`Error::Io`].
    pub fn open_piece(&self, piece: &Piece) -> Result<Series> {
        let samples = piece.vector.open(&self.input)?;
        Ok(Series { samples, bias: piece.bias, slope: piece.slope })
    }

    /// Reads a piece's flags, 0 for valid samples; each flag covers the same number of samples. `None` without flags.
    ///
    /// # Errors
    /// As [`Self::open_piece`].
    pub fn flags(&self, piece: &Piece) -> Result<Option<Vec<f64>>> {
        let Some(vector) = &piece.flags else { return Ok(None) };
        let mut flags = vec![0.0; vector.samples as usize];
        vector.open(&self.input)?.read(&mut flags)?;
        Ok(Some(flags))
    }

    /// Returns the number of frames.
    pub fn frames(&self) -> usize {
        self.frames.len()
    }

    /// Returns the format version.
    pub fn version(&self) -> u8 {
        self.input.version
    }

    /// Describes what the file's end truncates, if anything.
    pub fn cut(&self) -> Option<&str> {
        self.cut.as_deref()
    }

    fn ends_within(&self, name: &str) -> Error {
        let why = self.cut.clone().unwrap_or_else(|| "the file ends within its samples".to_owned());
        self.input.fault(name, 0, why)
    }

    fn places(&self, name: &str) -> Result<&[ChannelLocation]> {
        match self.channels.get(name) {
            Some(places) => Ok(places),
            None => {
                let names: Vec<&str> = self.names().collect();
                let why = format!("no such channel; there are {}", listed(&names));
                Err(self.input.fault(name, 0, why))
            }
        }
    }

    /// Reads a channel's structure and vector; `None` if the file ends before them.
    fn piece(&self, place: &ChannelLocation) -> Result<Option<Piece>> {
        let Some(head) = Head::read(&self.input, place.offset)? else {
            let why = "a structure longer than the file found, expected a channel";
            return if self.cut.is_some() {
                Ok(None)
            } else {
                Err(self.input.fault("FrTOC", place.offset, why))
            };
        };
        let record = self.dictionary.read(&self.input, &head)?;
        if record.class != place.kind.class() {
            let why = format!("{} found, expected {}", record.class, place.kind.class());
            return Err(self.input.fault("FrTOC", place.offset, why));
        }
        let Some(vector) = self.vector_of(&record, "data")? else { return Ok(None) };
        let vector = Vector::new(&self.input, &vector)?;
        let Some(flags) = self.flags_of(&record, &vector)? else { return Ok(None) };
        let optional = |field: &str, without: f64| match record.has(field) {
            true => record.real(field),
            false => Ok(without),
        };
        // FrameL writes 0 for an unknown slope.
        let slope = optional("slope", 1.0)?;
        let slope = if slope == 0.0 { 1.0 } else { slope };
        let is_series = !record.has("type") || record.count("type")? <= 1;
        if !is_series {
            let why = format!("{} found, expected a time series (1)", record.count("type")?);
            return Err(record.fault("type", why));
        }
        if vector.spacing_s <= 0.0 {
            let why = format!("dx {} s found, expected a time above 0", vector.spacing_s);
            return Err(record.fault("data", why));
        }
        let late_s = record.real("timeOffset")? + vector.start_s;
        // Limit to a year, which exceeds any frame and keeps times in range.
        if late_s.abs() > 3.2e7 {
            return Err(
                record.fault("timeOffset", format!("{late_s} s found, expected a year at most"))
            );
        }
        Ok(Some(Piece {
            frame: place.frame,
            start: self.frames[place.frame].start.plus_s(late_s),
            spacing_s: vector.spacing_s,
            samples: vector.samples,
            is_valid: !record.has(FLAGS) || record.count(FLAGS)? == 0,
            encoding: vector.encoding,
            vector,
            flags,
            bias: optional("bias", 0.0)?,
            slope,
        }))
    }

    /// Finds the flags of an FrAdcData; the inner value is `None` without flags, the outer if the file ends before
    /// them.
    fn flags_of(&self, channel: &Record, samples: &Vector) -> Result<Option<Option<Vector>>> {
        if !channel.has(FLAGS) || !channel.points("aux") {
            return Ok(Some(None));
        }
        let Some(record) = self.vector_of(channel, "aux")? else { return Ok(None) };
        // Other writers store other series in this vector.
        if record.text("name")? != FLAGS {
            return Ok(Some(None));
        }
        let flags = Vector::new(&self.input, &record)?;
        let is_whole = samples.samples.is_multiple_of(flags.samples) && flags.samples <= MAX_FLAGS;
        if flags.encoding.is_float() || !is_whole {
            let why = format!(
                "{} flags of {} found, expected whole numbers, {MAX_FLAGS} at most, of which each stands for as many \
                 of {} samples",
                flags.samples,
                flags.encoding.name(),
                samples.samples
            );
            return Err(record.fault("data", why));
        }
        Ok(Some(Some(flags)))
    }

    /// Finds the vector that a channel's field points to, which follows in the same frame.
    fn vector_of(&self, channel: &Record, field: &str) -> Result<Option<Record>> {
        let wanted = channel.pointer(field)?;
        let mut offset = channel.head.end();
        loop {
            let Some(head) = Head::read(&self.input, offset)? else {
                let is_end = self.cut.is_none();
                return if is_end {
                    Err(channel.fault(field, "its vector is missing"))
                } else {
                    Ok(None)
                };
            };
            let name = self.dictionary.name(head.class);
            if (head.class, head.instance) == (wanted.class, wanted.instance) && name == VECTOR {
                return self.dictionary.read(&self.input, &head).map(Some);
            }
            if FRAME_EDGES.contains(&name) {
                let why = format!("instance {} is not in its frame", wanted.instance);
                return Err(channel.fault(field, why));
            }
            offset = head.end();
        }
    }
}

impl Gwf {
    /// Reads frames and channels from the table of contents; returns whether there is a readable one.
    fn read_table(&mut self) -> Result<bool> {
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
                add(&mut self.channels, name, ChannelLocation { frame, kind, offset });
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
    fn walk(&mut self) -> Result<()> {
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
                add(&mut self.channels, &name, ChannelLocation { frame, kind, offset });
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

impl Series {
    /// Reads the next samples; returns their number, less than requested only at the end.
    ///
    /// # Errors
    /// [`Error::Format`] for damaged samples; [`Error::Io`].
    pub fn read(&mut self, samples: &mut [f64]) -> Result<usize> {
        let count = self.samples.read(samples)?;
        if self.slope != 1.0 || self.bias != 0.0 {
            samples[..count].iter_mut().for_each(|x| *x = self.bias + self.slope * *x);
        }
        Ok(count)
    }

    /// Skips samples.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn skip(&mut self, samples: u64) -> Result<()> {
        self.samples.skip(samples)
    }
}

/// Adds a channel's location; if two kinds share a name, keeps the first kind.
fn add(channels: &mut BTreeMap<String, Vec<ChannelLocation>>, name: &str, place: ChannelLocation) {
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

/// Lists names for an error message, abbreviated if there are many.
pub(in crate::io) fn listed(names: &[&str]) -> String {
    const MOST: usize = 20;
    let more = names.len().saturating_sub(MOST);
    let text = names.iter().take(MOST).copied().collect::<Vec<_>>().join(", ");
    match (names.is_empty(), more) {
        (true, _) => "none".to_owned(),
        (_, 0) => text,
        _ => format!("{text} and {more} more"),
    }
}

const TABLE: &str = "FrTOC";
const END_OF_FILE: &str = "FrEndOfFile";
const FRAME: &str = "FrameH";
/// Classes that begin and end a frame.
const FRAME_EDGES: [&str; 2] = [FRAME, "FrEndOfFrame"];

/// Time of a frame.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Frame {
    start: Gps,
}

/// Kinds of channel structures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ChannelKind {
    Adc,
    Processed,
    Simulated,
}

impl ChannelKind {
    const ALL: [Self; 3] = [Self::Processed, Self::Adc, Self::Simulated];

    fn class(self) -> &'static str {
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
struct ChannelLocation {
    frame: usize,
    kind: ChannelKind,
    offset: u64,
}

/// End-of-file structure.
#[derive(Clone, Copy, Debug)]
struct End {
    head: Head,
    frames: u64,
    /// Offset of the table of contents, if any.
    table: Option<u64>,
}

impl End {
    /// Finds the end-of-file structure; `None` if the file does not end with one.
    fn find(input: &Input) -> Result<Option<Self>> {
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
    fn verify_header(&self, input: &Input) -> Result<()> {
        self.verify_sum(input, 12, "FrEndOfFile.chkSumFrHeader", HEADER_BYTES as u64)?;
        self.verify_own(input)
    }

    /// Verifies the file's checksum, if any.
    fn verify_file(&self, input: &Input) -> Result<()> {
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

    fn offset(&self) -> u64 {
        self.head.offset
    }
}
