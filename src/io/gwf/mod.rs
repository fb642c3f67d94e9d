//! Frame files (GWF) of gravitational-wave detectors, versions 6 to 9: channels, and series of samples.
//!
//! Invariant: every length in a file is compared with the file before it is used, and reading holds some pieces of
//! 64 KiB, whatever the length of a channel.
//!
//! # Source
//! LIGO-T970130, "Specification of a Common Data Frame Format for Interferometric Gravitational Wave Detectors (IGWD)".

mod checksum;
mod contents;
mod input;
mod structure;
mod vector;
mod write;

use std::collections::BTreeMap;
use std::path::Path;

pub use vector::Encoding;
pub use write::{GwfHeader, GwfWriter};

use self::contents::{End, Frame, Place};
use self::input::Input;
use self::structure::{Dictionary, Head, Record};
use self::vector::{Samples, Vector};
use crate::error::{Error, Result};
use crate::units::Gps;

/// Bytes before the first structure.
const HEADER_BYTES: usize = 40;
/// The class of structures that hold samples.
const VECTOR: &str = "FrVect";
/// The field of an FrAdcData, and the name of the vector beside it, that tell whether samples are good.
const FLAGS: &str = "dataValid";
/// Flags of a channel in one frame at most.
const MOST_FLAGS: u64 = 1 << 25;

/// Returns whether a file begins as frame files do.
pub fn is_gwf(path: &Path) -> bool {
    let mut magic = [0; 5];
    let read = std::fs::File::open(path)
        .and_then(|mut file| std::io::Read::read_exact(&mut file, &mut magic));
    read.is_ok() && magic == *b"IGWD\0"
}

/// An open frame file.
#[derive(Debug)]
pub struct Gwf {
    input: Input,
    dictionary: Dictionary,
    frames: Vec<Frame>,
    /// Where each channel's structures are, by its name.
    channels: BTreeMap<String, Vec<Place>>,
    end: Option<End>,
    cut: Option<String>,
}

/// What a file says of a channel.
#[derive(Clone, Debug, PartialEq)]
pub struct Channel {
    /// Its name, such as `H1:GDS-CALIB_STRAIN`.
    pub name: String,
    /// Samples in a second.
    pub rate_hz: f64,
    /// How samples are encoded.
    pub encoding: Encoding,
    /// The unit of its samples, as the file says it.
    pub unit: String,
}

/// A channel's samples in one frame.
#[derive(Clone, Debug)]
pub struct Piece {
    /// The frame's number in the file.
    pub frame: usize,
    /// Time of the first sample.
    pub start: Gps,
    /// Time between samples, in seconds.
    pub spacing_s: f64,
    /// Samples in all.
    pub samples: u64,
    /// Whether the writer says that the samples are good.
    pub is_valid: bool,
    /// How samples are encoded.
    pub encoding: Encoding,
    vector: Vector,
    /// Flags of equal stretches of the samples, 0 for good ones.
    flags: Option<Vector>,
    /// A sample is `bias + slope x`, x the number in the file.
    bias: f64,
    slope: f64,
}

/// Samples of a [`Piece`], in order.
#[derive(Debug)]
pub struct Series {
    samples: Samples,
    bias: f64,
    slope: f64,
}

impl Gwf {
    /// Opens a file and finds its frames and channels: by its table of contents, or, where it has none, by passing over its
    /// structures. Checksums of the header and of the structures that are read are compared, where they exist.
    ///
    /// # Errors
    /// [`Error::Format`] naming structure and place for a file that is damaged or ends before its first frame;
    /// [`Error::Unavailable`] for another version; [`Error::Io`].
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

    /// Compares the checksum of the whole file, which is then read once; files of versions 6 and 7 are not compared.
    ///
    /// # Errors
    /// [`Error::Format`] where it differs, naming the structure that is damaged if its own differs, too; [`Error::Io`].
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

    /// Names of all channels, in order of the alphabet.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.channels.keys().map(String::as_str)
    }

    /// Tells of a channel by its first piece.
    ///
    /// # Errors
    /// [`Error::Format`] for a channel that the file has not, or a damaged one.
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

    /// A channel's samples, frame by frame; those that the file's end cuts off are left out.
    ///
    /// # Errors
    /// [`Error::Format`] for a channel that the file has not, a damaged one, or one cut off within its first piece.
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

    /// Compares a piece's checksum, and begins to read it.
    ///
    /// # Errors
    /// [`Error::Format`] where it differs; [`Error::Io`].
    pub fn open_piece(&self, piece: &Piece) -> Result<Series> {
        let samples = piece.vector.open(&self.input)?;
        Ok(Series { samples, bias: piece.bias, slope: piece.slope })
    }

    /// Reads the flags that the writer put beside a piece's samples, 0 for good ones: each stands for the same number of
    /// samples. `None` where there are none.
    ///
    /// # Errors
    /// As [`Self::open_piece`].
    pub fn flags(&self, piece: &Piece) -> Result<Option<Vec<f64>>> {
        let Some(vector) = &piece.flags else { return Ok(None) };
        let mut flags = vec![0.0; vector.samples as usize];
        vector.open(&self.input)?.read(&mut flags)?;
        Ok(Some(flags))
    }

    /// Number of frames.
    pub fn frames(&self) -> usize {
        self.frames.len()
    }

    /// The version of the format.
    pub fn version(&self) -> u8 {
        self.input.version
    }

    /// Says what the file's end cuts off.
    pub fn cut(&self) -> Option<&str> {
        self.cut.as_deref()
    }

    fn ends_within(&self, name: &str) -> Error {
        let why = self.cut.clone().unwrap_or_else(|| "the file ends within its samples".to_owned());
        self.input.fault(name, 0, why)
    }

    fn places(&self, name: &str) -> Result<&[Place]> {
        match self.channels.get(name) {
            Some(places) => Ok(places),
            None => {
                let names: Vec<&str> = self.names().collect();
                let why = format!("no such channel; there are {}", listed(&names));
                Err(self.input.fault(name, 0, why))
            }
        }
    }

    /// Reads what a channel's structure and vector say; `None` where the file ends before them.
    fn piece(&self, place: &Place) -> Result<Option<Piece>> {
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
        // FrameL leaves 0 where no slope is known.
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
        // A year: no frame is as long, and times stay within what a number holds.
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

    /// Finds the flags beside an FrAdcData's samples, if it has them; `None` where the file ends before them.
    fn flags_of(&self, channel: &Record, samples: &Vector) -> Result<Option<Option<Vector>>> {
        if !channel.has(FLAGS) || !channel.points("aux") {
            return Ok(Some(None));
        }
        let Some(record) = self.vector_of(channel, "aux")? else { return Ok(None) };
        // Other writers put other series there.
        if record.text("name")? != FLAGS {
            return Ok(Some(None));
        }
        let flags = Vector::new(&self.input, &record)?;
        let is_whole = samples.samples.is_multiple_of(flags.samples) && flags.samples <= MOST_FLAGS;
        if flags.encoding.is_float() || !is_whole {
            let why = format!(
                "{} flags of {} found, expected whole numbers, {MOST_FLAGS} at most, of which each stands for as many \
                 of {} samples",
                flags.samples,
                flags.encoding.name(),
                samples.samples
            );
            return Err(record.fault("data", why));
        }
        Ok(Some(Some(flags)))
    }

    /// Finds the vector that a channel's field points to: it follows in the same frame.
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
            if contents::FRAME_EDGES.contains(&name) {
                let why = format!("instance {} is not in its frame", wanted.instance);
                return Err(channel.fault(field, why));
            }
            offset = head.end();
        }
    }
}

impl Series {
    /// Writes the next samples; returns their number, less than asked for at the end.
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

    /// Passes over samples.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn skip(&mut self, samples: u64) -> Result<()> {
        self.samples.skip(samples)
    }
}

/// Names for an error, not all of very many.
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
