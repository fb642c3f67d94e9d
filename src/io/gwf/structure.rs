//! Structures of a frame file, decoded by the dictionary in the file.
//!
//! Before the first structure of a class, an FrSH structure defines its name and number, and one FrSE structure each
//! of its fields.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::io::positioned::FileExt;

/// Class of structures with samples.
pub(super) const VECTOR: &str = "FrVect";
/// Bytes of a structure before its first field.
pub(super) const HEAD_BYTES: u64 = 14;
/// Classes of structures that begin a definition (FrSH) and that define a field (FrSE).
const FR_SH: u16 = 1;
const FR_SE: u16 = 2;
/// Name of the last field of every structure since version 8.
const CHECKSUM: &str = "chkSum";
/// Length that frameCPP writes for a list absent from the table of contents.
const ABSENT: u64 = u32::MAX as u64;
/// Maximum bytes of a structure, without a vector's samples.
const MAX_BYTES: u64 = 64 << 20;

/// Common header of all structures.
#[derive(Clone, Copy, Debug)]
pub(super) struct Head {
    pub(super) offset: u64,
    /// Bytes of the structure, header included.
    pub(super) length: u64,
    /// Whether the last four bytes are a checksum.
    pub(super) is_summed: bool,
    pub(super) class: u16,
    pub(super) instance: u32,
}

impl Head {
    /// Reads a structure's header; `None` if the file ends within the structure.
    pub(super) fn read(input: &Input, offset: u64) -> Result<Option<Self>> {
        if input.bytes.saturating_sub(offset) < HEAD_BYTES {
            return Ok(None);
        }
        let mut bytes = [0; HEAD_BYTES as usize];
        input.read_at(&mut bytes, offset)?;
        let number = |range: std::ops::Range<usize>| input.order.number(&bytes[range]);
        let length = number(0..8);
        let (is_summed, class) = match input.version {
            ..8 => (false, number(8..10) as u16),
            _ => (bytes[8] == 1, u16::from(bytes[9])),
        };
        if length < HEAD_BYTES + 4 * u64::from(is_summed) {
            let why = format!("{length} bytes found, expected {HEAD_BYTES} at least");
            return Err(input.fault("length of a structure", offset, why));
        }
        let head = Self { offset, length, is_summed, class, instance: number(10..14) as u32 };
        Ok((length <= input.bytes - offset).then_some(head))
    }

    pub(super) fn end(&self) -> u64 {
        self.offset + self.length
    }

    /// Verifies the structure's checksum, if any.
    pub(super) fn verify(&self, input: &Input, name: &str) -> Result<()> {
        if !self.is_summed {
            return Ok(());
        }
        let mut stored = [0; 4];
        input.read_at(&mut stored, self.end() - 4)?;
        let stored = input.order.number(&stored) as u32;
        let found = input.checksum(self.offset, self.length - 4)?;
        if found != stored {
            let why = format!("the checksum is {found:#010x}, expected {stored:#010x}");
            let name = if name.is_empty() { "structure" } else { name };
            return Err(input.fault(&format!("{name}.{CHECKSUM}"), self.offset, why));
        }
        Ok(())
    }
}

/// Value of a field.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    Whole(i128),
    Real(f64),
    Text(String),
    Pointer(Pointer),
    Wholes(Vec<u64>),
    Reals(Vec<f64>),
    Texts(Vec<String>),
    /// Bytes that were skipped, with their offset.
    Bytes {
        offset: u64,
        count: u64,
    },
}

/// Reference to a structure of the same frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pointer {
    pub(super) class: u16,
    pub(super) instance: u32,
}

/// Type of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Char,
    Whole { bytes: u8, is_signed: bool },
    Real { bytes: u8 },
    Complex { bytes: u8 },
    Text,
    Pointer,
}

impl Kind {
    fn parse(text: &str) -> Option<Self> {
        let whole = |bytes, is_signed| Some(Self::Whole { bytes, is_signed });
        match text {
            "CHAR" | "CHAR_U" => Some(Self::Char),
            "INT_2S" => whole(2, true),
            "INT_2U" => whole(2, false),
            "INT_4S" => whole(4, true),
            "INT_4U" => whole(4, false),
            "INT_8S" => whole(8, true),
            "INT_8U" => whole(8, false),
            "REAL_4" => Some(Self::Real { bytes: 4 }),
            "REAL_8" => Some(Self::Real { bytes: 8 }),
            "COMPLEX_8" => Some(Self::Complex { bytes: 8 }),
            "COMPLEX_16" => Some(Self::Complex { bytes: 16 }),
            "STRING" => Some(Self::Text),
            _ if text.starts_with("PTR_STRUCT") => Some(Self::Pointer),
            _ => None,
        }
    }

    /// Returns the minimum bytes of one value.
    fn least_bytes(self) -> u64 {
        match self {
            Self::Char => 1,
            Self::Whole { bytes, .. } | Self::Real { bytes } | Self::Complex { bytes } => {
                u64::from(bytes)
            }
            Self::Text => 2,
            Self::Pointer => 6,
        }
    }
}

/// Length of an axis of a field.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Length {
    Fixed(u64),
    Field(String),
}

#[derive(Clone, Debug)]
struct Field {
    name: String,
    kind: Kind,
    axes: Vec<Length>,
}

impl Field {
    /// Parses a type such as `REAL_8[nDim]` or `PTR_STRUCT(FrVect *)`.
    fn parse(name: String, text: &str) -> Option<Self> {
        let text: String = text.chars().filter(|letter| !letter.is_whitespace()).collect();
        let (kind, rest) = text.split_at(text.find('[').unwrap_or(text.len()));
        let axes: Option<Vec<Length>> = rest
            .split_terminator(']')
            .map(|axis| {
                let axis = axis.strip_prefix('[')?;
                Some(axis.parse().map_or_else(|_| Length::Field(axis.to_owned()), Length::Fixed))
            })
            .collect();
        Some(Self { name, kind: Kind::parse(kind)?, axes: axes? })
    }
}

#[derive(Clone, Debug, Default)]
struct Class {
    name: String,
    fields: Vec<Field>,
}

/// Classes defined so far.
#[derive(Clone, Debug, Default)]
pub(super) struct Dictionary {
    classes: HashMap<u16, Class>,
    /// Class whose fields are being defined.
    defined: u16,
}

impl Dictionary {
    /// Processes a definition; returns whether the structure is part of one.
    pub(super) fn learn(&mut self, input: &Input, head: &Head) -> Result<bool> {
        match head.class {
            FR_SH => {
                let mut reader = Reader::new(input, head, "FrSH")?;
                let name = reader.text()?;
                let class = reader.whole(2, false)? as u16;
                head.verify(input, "FrSH")?;
                // The classes FrSH and FrSE are built in.
                if class <= FR_SE {
                    let why = format!("class {class} of {name} found, expected 3 at least");
                    return Err(input.fault("FrSH", head.offset, why));
                }
                self.classes.insert(class, Class { name, fields: Vec::new() });
                self.defined = class;
            }
            FR_SE => {
                let mut reader = Reader::new(input, head, "FrSE")?;
                let (name, kind) = (reader.text()?, reader.text()?);
                head.verify(input, "FrSE")?;
                let Some(class) = self.classes.get_mut(&self.defined) else {
                    let why = format!("field {name} found before the class that it is of");
                    return Err(input.fault("FrSE", head.offset, why));
                };
                let Some(field) = Field::parse(name, &kind) else {
                    let why =
                        format!("type {kind} in {}, expected one of LIGO-T970130", class.name);
                    return Err(input.fault("FrSE", head.offset, why));
                };
                class.fields.push(field);
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Returns the name of a class; empty if undefined.
    pub(super) fn name(&self, class: u16) -> &str {
        self.classes.get(&class).map_or("", |class| &class.name)
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.classes.values().any(|class| class.name == name)
    }

    /// Reads a structure's fields, but skips character arrays whose length is another field. Verifies the checksum,
    /// except for an FrVect, which is verified when its samples are read.
    pub(super) fn read(&self, input: &Input, head: &Head) -> Result<Record> {
        let Some(class) = self.classes.get(&head.class) else {
            let why = format!("class {} found, which the file does not define", head.class);
            return Err(input.fault("structure", head.offset, why));
        };
        if class.name != VECTOR {
            head.verify(input, &class.name)?;
        }
        let mut record = Record {
            class: class.name.clone(),
            head: *head,
            path: input.path.clone(),
            fields: HashMap::new(),
        };
        let mut reader = Reader::new(input, head, &class.name)?;
        for field in &class.fields {
            if field.name == CHECKSUM {
                break;
            }
            let value = reader.field(field, &record)?;
            record.fields.insert(field.name.clone(), value);
        }
        Ok(record)
    }
}

/// Bounded reader of a structure's values.
struct Reader<'a> {
    input: &'a Input,
    head: Head,
    class: &'a str,
    bytes: BufReader<Section>,
    /// Offset of the next value in the file.
    next: u64,
    /// Remaining bytes of the structure.
    left: u64,
}

impl<'a> Reader<'a> {
    fn new(input: &'a Input, head: &Head, class: &'a str) -> Result<Self> {
        let next = head.offset + HEAD_BYTES;
        let left = head.length - HEAD_BYTES;
        if class != VECTOR && head.length > MAX_BYTES {
            let why = format!("{} bytes found, expected {MAX_BYTES} at most", head.length);
            return Err(input.fault(class, head.offset, why));
        }
        let capacity = left.clamp(1, 512) as usize;
        let bytes = BufReader::with_capacity(capacity, input.section(next, left));
        Ok(Self { input, head: *head, class, bytes, next, left })
    }

    fn fault(&self, why: impl Into<String>) -> Error {
        self.input.fault(self.class, self.head.offset, why)
    }

    /// Fails unless `bytes` bytes remain.
    fn check(&self, field: &str, bytes: Option<u64>) -> Result<u64> {
        bytes.filter(|bytes| *bytes <= self.left).ok_or_else(|| {
            let wanted = bytes.map_or("more".to_owned(), |bytes| bytes.to_string());
            self.fault(format!(
                "{field} takes {wanted} bytes, but {} are left of the {} of the structure",
                self.left, self.head.length
            ))
        })
    }

    fn take(&mut self, buffer: &mut [u8]) -> Result<()> {
        self.check("a field", Some(buffer.len() as u64))?;
        self.bytes.read_exact(buffer).map_err(|error| Error::io(&self.input.path, error))?;
        self.next += buffer.len() as u64;
        self.left -= buffer.len() as u64;
        Ok(())
    }

    fn whole(&mut self, bytes: u8, is_signed: bool) -> Result<i128> {
        let mut buffer = [0; 8];
        let buffer = &mut buffer[..usize::from(bytes)];
        self.take(buffer)?;
        let number = self.input.order.number(buffer);
        let unused = 64 - 8 * u32::from(bytes);
        let signed = ((number << unused) as i64) >> unused;
        Ok(if is_signed { i128::from(signed) } else { i128::from(number) })
    }

    fn real(&mut self, bytes: u8) -> Result<f64> {
        let number = self.whole(bytes, false)?;
        let narrow = || f64::from(f32::from_bits(number as u32));
        Ok(if bytes == 4 { narrow() } else { f64::from_bits(number as u64) })
    }

    /// Reads a string of up to 65535 bytes, up to its NUL.
    fn text(&mut self) -> Result<String> {
        let bytes = self.whole(2, false)? as u64;
        self.check("a text", Some(bytes))?;
        let mut text = vec![0; bytes as usize];
        self.take(&mut text)?;
        let end = text.iter().position(|byte| *byte == 0).unwrap_or(text.len());
        Ok(String::from_utf8_lossy(&text[..end]).into_owned())
    }

    fn pointer(&mut self) -> Result<Pointer> {
        let class = self.whole(2, false)? as u16;
        Ok(Pointer { class, instance: self.whole(4, false)? as u32 })
    }

    fn skip(&mut self, bytes: u64) -> Result<Value> {
        let offset = self.next;
        self.check("a field", Some(bytes))?;
        let buffered = self.bytes.buffer().len() as u64;
        self.bytes.consume(bytes.min(buffered) as usize);
        self.bytes.get_mut().skip(bytes.saturating_sub(buffered));
        self.next += bytes;
        self.left -= bytes;
        Ok(Value::Bytes { offset, count: bytes })
    }

    fn field(&mut self, field: &Field, record: &Record) -> Result<Value> {
        let one = match field.kind {
            _ if !field.axes.is_empty() => return self.array(field, record),
            Kind::Char => Value::Whole(self.whole(1, false)?),
            Kind::Whole { bytes, is_signed } => Value::Whole(self.whole(bytes, is_signed)?),
            Kind::Real { bytes } => Value::Real(self.real(bytes)?),
            Kind::Complex { bytes } => self.skip(u64::from(bytes))?,
            Kind::Text => Value::Text(self.text()?),
            Kind::Pointer => Value::Pointer(self.pointer()?),
        };
        Ok(one)
    }

    fn array(&mut self, field: &Field, record: &Record) -> Result<Value> {
        let mut count = Some(1_u64);
        for axis in &field.axes {
            let length = match axis {
                Length::Fixed(length) => *length,
                Length::Field(name) => match record.count(name)? {
                    ABSENT if field.kind != Kind::Char => 0,
                    length => length,
                },
            };
            count = count.and_then(|count| count.checked_mul(length));
        }
        let bytes = count.and_then(|count| count.checked_mul(field.kind.least_bytes()));
        let bytes = self.check(&field.name, bytes)?;
        let count = 0..count.unwrap_or(0);
        Ok(match field.kind {
            Kind::Whole { bytes, is_signed } => Value::Wholes(
                count.map(|_| Ok(self.whole(bytes, is_signed)? as u64)).collect::<Result<_>>()?,
            ),
            Kind::Real { bytes } => {
                Value::Reals(count.map(|_| self.real(bytes)).collect::<Result<_>>()?)
            }
            Kind::Text => Value::Texts(count.map(|_| self.text()).collect::<Result<_>>()?),
            Kind::Char | Kind::Complex { .. } | Kind::Pointer => self.skip(bytes)?,
        })
    }
}

/// Fields of a structure, by name.
#[derive(Clone, Debug)]
pub(super) struct Record {
    pub(super) class: String,
    pub(super) head: Head,
    path: std::path::PathBuf,
    fields: HashMap<String, Value>,
}

impl Record {
    /// Makes an error that names the structure, the field and the offset.
    pub(super) fn fault(&self, field: &str, why: impl Into<String>) -> Error {
        let field = format!("{}.{field}", self.class);
        Error::format(&self.path, field, self.head.offset, why)
    }

    fn get(&self, field: &str) -> Result<&Value> {
        self.fields.get(field).ok_or_else(|| self.fault(field, "the file does not define it"))
    }

    fn odd(&self, field: &str, value: &Value, expected: &str) -> Error {
        self.fault(field, format!("{value:?} found, expected {expected}"))
    }

    /// Returns whether a field points to a structure.
    pub(super) fn points(&self, field: &str) -> bool {
        matches!(self.fields.get(field), Some(Value::Pointer(pointer)) if pointer.class != 0)
    }

    pub(super) fn has(&self, field: &str) -> bool {
        self.fields.contains_key(field)
    }

    /// Returns a non-negative integer.
    pub(super) fn count(&self, field: &str) -> Result<u64> {
        match self.get(field)? {
            Value::Whole(number) if u64::try_from(*number).is_ok() => Ok(*number as u64),
            other => Err(self.odd(field, other, "a number from 0 on")),
        }
    }

    pub(super) fn real(&self, field: &str) -> Result<f64> {
        match self.get(field)? {
            Value::Real(number) if number.is_finite() => Ok(*number),
            other => Err(self.odd(field, other, "a finite number")),
        }
    }

    pub(super) fn text(&self, field: &str) -> Result<&str> {
        match self.get(field)? {
            Value::Text(text) => Ok(text),
            other => Err(self.odd(field, other, "a text")),
        }
    }

    pub(super) fn pointer(&self, field: &str) -> Result<Pointer> {
        match self.get(field)? {
            Value::Pointer(pointer) => Ok(*pointer),
            other => Err(self.odd(field, other, "a pointer")),
        }
    }

    pub(super) fn wholes(&self, field: &str) -> Result<&[u64]> {
        match self.get(field)? {
            Value::Wholes(numbers) => Ok(numbers),
            other => Err(self.odd(field, other, "whole numbers")),
        }
    }

    pub(super) fn reals(&self, field: &str) -> Result<&[f64]> {
        match self.get(field)? {
            Value::Reals(numbers) => Ok(numbers),
            other => Err(self.odd(field, other, "numbers")),
        }
    }

    pub(super) fn texts(&self, field: &str) -> Result<&[String]> {
        match self.get(field)? {
            Value::Texts(texts) => Ok(texts),
            other => Err(self.odd(field, other, "texts")),
        }
    }

    /// Returns the offset and length of a character array.
    pub(super) fn bytes(&self, field: &str) -> Result<(u64, u64)> {
        match self.get(field)? {
            Value::Bytes { offset, count } => Ok((*offset, *count)),
            other => Err(self.odd(field, other, "bytes")),
        }
    }
}

/// Reads a number of the end-of-file structure, whose layout is fixed.
pub(super) fn number_at(input: &Input, offset: u64, bytes: usize) -> Result<u64> {
    let mut buffer = [0; 8];
    let buffer = &mut buffer[..bytes];
    input.read_at(buffer, offset)?;
    Ok(input.order.number(buffer))
}

/// Bytes before the first structure.
pub(super) const HEADER_BYTES: usize = 40;
/// Bytes per read.
pub(super) const PIECE_BYTES: usize = 1 << 16;

/// Byte order of numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    Little,
    Big,
}

impl Order {
    /// Decodes an unsigned number of at most eight bytes.
    pub(super) fn number(self, bytes: &[u8]) -> u64 {
        let join = |number: u64, byte: &u8| number << 8 | u64::from(*byte);
        match self {
            Self::Little => bytes.iter().rev().fold(0, join),
            Self::Big => bytes.iter().fold(0, join),
        }
    }
}

/// An open frame file.
#[derive(Clone, Debug)]
pub(super) struct Input {
    pub(super) path: PathBuf,
    file: Arc<File>,
    pub(super) bytes: u64,
    pub(super) order: Order,
    pub(super) version: u8,
}

impl Input {
    /// Opens a file and reads its 40-byte header.
    pub(super) fn open(path: &Path) -> Result<Self> {
        let io = |error| Error::io(path, error);
        let file = crate::io::compressed::open(path)?;
        let bytes = file.metadata().map_err(io)?.len();
        let mut head = [0; HEADER_BYTES];
        let fault = |field: &str, offset, why: String| Error::format(path, field, offset, why);
        if bytes < head.len() as u64 {
            let why = format!("{bytes} bytes found, expected a header of {}", head.len());
            return Err(fault("file", 0, why));
        }
        file.read_exact_at(&mut head, 0).map_err(io)?;
        if head[..5] != *b"IGWD\0" {
            let why = format!("{} found, expected IGWD", head[..5].escape_ascii());
            return Err(fault("magic", 0, why));
        }
        let version = head[5];
        if !(6..=9).contains(&version) {
            let what = format!("a reader of frame files of version {version}");
            let why = format!("{}: versions 6 to 9 are read", path.display());
            return Err(Error::Unavailable { what, why });
        }
        let order = match [head[12], head[13]] {
            [0x34, 0x12] => Order::Little,
            [0x12, 0x34] => Order::Big,
            other => {
                let why = format!("{other:02x?} found, expected 0x1234 in either order");
                return Err(fault("byte order", 12, why));
            }
        };
        let sizes = [head[7], head[8], head[9], head[10], head[11]];
        if sizes != [2, 4, 8, 4, 8] {
            let why = format!("{sizes:?} found, expected [2, 4, 8, 4, 8]");
            return Err(fault("sizes of numbers", 7, why));
        }
        Ok(Self { path: path.to_path_buf(), file: Arc::new(file), bytes, order, version })
    }

    /// Fills `buffer` from `offset`.
    pub(super) fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<()> {
        self.file.read_exact_at(buffer, offset).map_err(|error| Error::io(&self.path, error))
    }

    /// Returns a stream of `bytes` bytes from `offset`.
    pub(super) fn section(&self, offset: u64, bytes: u64) -> Section {
        Section { file: Arc::clone(&self.file), next: offset, end: offset.saturating_add(bytes) }
    }

    pub(super) fn fault(&self, field: &str, offset: u64, why: impl Into<String>) -> Error {
        Error::format(&self.path, field, offset, why)
    }

    /// Computes the checksum of `bytes` bytes from `offset`.
    pub(super) fn checksum(&self, offset: u64, bytes: u64) -> Result<u32> {
        let mut section = self.section(offset, bytes);
        let mut sum = Checksum::default();
        let mut piece = vec![0; PIECE_BYTES.min(bytes as usize)];
        loop {
            match section.read(&mut piece).map_err(|error| Error::io(&self.path, error))? {
                0 => return Ok(sum.finish()),
                count => sum.add(&piece[..count]),
            }
        }
    }
}

/// Sequential reader of a byte range of a file.
#[derive(Debug)]
pub(super) struct Section {
    file: Arc<File>,
    next: u64,
    end: u64,
}

impl Section {
    /// Skips bytes.
    pub(super) fn skip(&mut self, bytes: u64) {
        self.next = self.next.saturating_add(bytes).min(self.end);
    }
}

impl Read for Section {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = (buffer.len() as u64).min(self.end.saturating_sub(self.next)) as usize;
        let count = self.file.read_at(&mut buffer[..count], self.next)?;
        self.next += count as u64;
        Ok(count)
    }
}

/// Remainders of a byte followed by zero to seven zero bytes.
const TABLES: [[u32; 256]; 8] = tables();

const fn tables() -> [[u32; 256]; 8] {
    let mut tables = [[0; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        let mut rest = (byte as u32) << 24;
        let mut bit = 0;
        while bit < 8 {
            rest = (rest << 1) ^ (0x04C1_1DB7 & (rest >> 31).wrapping_neg());
            bit += 1;
        }
        tables[0][byte] = rest;
        byte += 1;
    }
    let mut place = 1;
    while place < 8 {
        let mut byte = 0;
        while byte < 256 {
            let before: u32 = tables[place - 1][byte];
            tables[place][byte] = (before << 8) ^ tables[0][(before >> 24) as usize];
            byte += 1;
        }
        place += 1;
    }
    tables
}

/// Running checksum of a frame file: POSIX `cksum`, a cyclic redundancy check of 32 bits (0x04C11DB7, highest bit
/// first) over the bytes and their count.
///
/// # Source
/// LIGO-T970130 version 8, section 4.3.1; IEEE Std 1003.1, `cksum`.
#[derive(Clone, Debug, Default)]
pub(super) struct Checksum {
    rest: u32,
    bytes: u64,
}

impl Checksum {
    pub(super) fn add(&mut self, bytes: &[u8]) {
        self.bytes += bytes.len() as u64;
        let (eights, last) = bytes.as_chunks::<8>();
        for eight in eights {
            let [a, b, c, d] = self.rest.to_be_bytes();
            self.rest = TABLES[7][usize::from(a ^ eight[0])]
                ^ TABLES[6][usize::from(b ^ eight[1])]
                ^ TABLES[5][usize::from(c ^ eight[2])]
                ^ TABLES[4][usize::from(d ^ eight[3])]
                ^ TABLES[3][usize::from(eight[4])]
                ^ TABLES[2][usize::from(eight[5])]
                ^ TABLES[1][usize::from(eight[6])]
                ^ TABLES[0][usize::from(eight[7])];
        }
        last.iter().for_each(|byte| self.one(*byte));
    }

    /// Returns the checksum of all bytes added.
    pub(super) fn finish(mut self) -> u32 {
        let mut left = self.bytes;
        while left > 0 {
            self.one(left as u8);
            left >>= 8;
        }
        !self.rest
    }

    fn one(&mut self, byte: u8) {
        let place = (self.rest >> 24) as u8 ^ byte;
        self.rest = (self.rest << 8) ^ TABLES[0][usize::from(place)];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_of_fields_are_understood() {
        let field = |text| Field::parse("x".into(), text).map(|field| (field.kind, field.axes));
        let axis = |name: &str| Length::Field(name.to_owned());
        assert_eq!(field("REAL_8[nDim]"), Some((Kind::Real { bytes: 8 }, vec![axis("nDim")])));
        let two = vec![axis("nADC"), axis("nFrame")];
        let whole = Kind::Whole { bytes: 8, is_signed: false };
        assert_eq!(field("INT_8U[nADC][nFrame]"), Some((whole, two)));
        assert_eq!(field("CHAR[2]"), Some((Kind::Char, vec![Length::Fixed(2)])));
        assert_eq!(field("PTR_STRUCT(FrVect *)"), Some((Kind::Pointer, Vec::new())));
        assert_eq!(field(" STRING "), Some((Kind::Text, Vec::new())));
        assert_eq!((field("REAL_10"), field("REAL_8]2[")), (None, None));
    }

    #[test]
    fn numbers_follow_the_order_of_their_bytes() {
        assert_eq!(Order::Little.number(&[0x34, 0x12]), 0x1234);
        assert_eq!(Order::Big.number(&[0x12, 0x34]), 0x1234);
    }

    fn sum(bytes: &[u8]) -> u32 {
        let mut sum = Checksum::default();
        sum.add(bytes);
        sum.finish()
    }

    #[test]
    fn sums_are_those_of_cksum() {
        // Reference values from coreutils' `cksum`.
        let cases: [(&[u8], u32); 3] =
            [(b"", 4_294_967_295), (b"123456789", 930_766_865), (b"a", 1_220_704_766)];
        for (bytes, expected) in cases {
            assert_eq!(sum(bytes), expected, "{bytes:?}");
        }
        let long: Vec<u8> = (0..1000_u32).map(|n| (n * n % 251) as u8).collect();
        let mut pieces = Checksum::default();
        long.chunks(13).for_each(|piece| pieces.add(piece));
        assert_eq!(pieces.finish(), sum(&long));
    }
}
