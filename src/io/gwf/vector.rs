//! Samples of an FrVect: location, encoding and decompression.

use std::io;
use std::io::{BufReader, Read};

use flate2::read::ZlibDecoder;

use crate::error::{Error, Result};
use crate::io::gwf::structure::{Head, Input, Order, PIECE_BYTES, Record, Section, VECTOR};
use crate::io::inflate::most_streamed_bytes;

/// Bit of FrVect.compress that marks little-endian samples.
const LITTLE_ENDIAN: u64 = 256;

/// Encoding of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// Signed integer of this many bytes.
    Signed(u8),
    /// Unsigned integer of this many bytes.
    Unsigned(u8),
    /// Floating-point number of this many bytes.
    Float(u8),
}

impl Encoding {
    fn parse(kind: u64) -> Option<Self> {
        Some(match kind {
            0 => Self::Signed(1),
            1 => Self::Signed(2),
            2 => Self::Float(8),
            3 => Self::Float(4),
            4 => Self::Signed(4),
            5 => Self::Signed(8),
            9 => Self::Unsigned(2),
            10 => Self::Unsigned(4),
            11 => Self::Unsigned(8),
            12 => Self::Unsigned(1),
            _ => return None,
        })
    }

    fn bytes(self) -> usize {
        let (Self::Signed(bytes) | Self::Unsigned(bytes) | Self::Float(bytes)) = self;
        usize::from(bytes)
    }

    /// Returns whether samples are floating-point numbers.
    pub fn is_float(self) -> bool {
        matches!(self, Self::Float(_))
    }

    /// Decodes a sample from its bits; rounds integers beyond 2^53.
    fn number(self, bits: u64) -> f64 {
        let unused = 64 - 8 * self.bytes() as u32;
        match self {
            Self::Signed(_) => (((bits << unused) as i64) >> unused) as f64,
            Self::Unsigned(_) => bits as f64,
            Self::Float(4) => f64::from(f32::from_bits(bits as u32)),
            Self::Float(_) => f64::from_bits(bits),
        }
    }

    /// Returns NumPy's name of the encoding.
    pub fn name(self) -> &'static str {
        match self {
            Self::Signed(1) => "int8",
            Self::Signed(2) => "int16",
            Self::Signed(4) => "int32",
            Self::Signed(_) => "int64",
            Self::Unsigned(1) => "uint8",
            Self::Unsigned(2) => "uint16",
            Self::Unsigned(4) => "uint32",
            Self::Unsigned(_) => "uint64",
            Self::Float(4) => "float32",
            Self::Float(_) => "float64",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Packing {
    Raw,
    Zlib,
    /// Differences of consecutive samples, compressed by zlib.
    DifferencesZlib,
    /// Zero suppression: differences of consecutive samples, packed with the bits of the largest in each block.
    Suppressed,
}

/// Properties of an FrVect.
#[derive(Clone, Debug)]
pub(super) struct Vector {
    head: Head,
    pub(super) encoding: Encoding,
    packing: Packing,
    order: Order,
    pub(super) samples: u64,
    place: u64,
    bytes: u64,
    /// Time between samples, in seconds.
    pub(super) spacing_s: f64,
    /// Offset of the first sample from the channel's start, in seconds.
    pub(super) start_s: f64,
    pub(super) unit: String,
}

impl Vector {
    pub(super) fn new(input: &Input, record: &Record) -> Result<Self> {
        let kind = record.count("type")?;
        let Some(encoding) = Encoding::parse(kind) else {
            let why = format!("{kind} found, expected real numbers (0 to 5 or 9 to 12)");
            return Err(record.fault("type", why));
        };
        let compress = record.count("compress")?;
        let width = encoding.bytes();
        let packing = match (compress & !LITTLE_ENDIAN, width) {
            (0, _) => Packing::Raw,
            (1, _) => Packing::Zlib,
            (3, _) if !encoding.is_float() => Packing::DifferencesZlib,
            // frameCPP packs the bits of floating-point numbers as integers.
            (5, 2) | (8, 4) | (10, 8) => Packing::Suppressed,
            // Compression 6 only lets a writer choose; files contain one of the others.
            (other, _) => {
                let why = format!(
                    "compression {other} of {} found, expected 0, 1, 3 (of whole numbers), or 5, 8 or 10 (of numbers of 2, 4 or 8 bytes)",
                    encoding.name()
                );
                return Err(record.fault("compress", why));
            }
        };
        let order = match (compress & LITTLE_ENDIAN, packing) {
            (0, Packing::Raw) => input.order,
            (0, _) => Order::Big,
            _ => Order::Little,
        };
        let (axes, samples) = (record.wholes("nx")?, record.count("nData")?);
        if axes != [samples] || samples == 0 {
            let why = format!("{axes:?} found, expected one axis of {samples} samples, 1 at least");
            return Err(record.fault("nx", why));
        }
        let (place, bytes) = record.bytes("data")?;
        let expected = samples.checked_mul(width as u64);
        if packing == Packing::Raw && expected != Some(bytes) {
            let why = format!("{bytes} found, expected {samples} samples of {width}");
            return Err(record.fault("nBytes", why));
        }
        if expected.is_none_or(|bytes| bytes > most_streamed_bytes(input.bytes)) {
            let why = format!("{samples} found in a file of {} bytes", input.bytes);
            return Err(record.fault("nData", why));
        }
        let first = |field: &str| -> Result<f64> {
            match record.reals(field)? {
                [number] if number.is_finite() => Ok(*number),
                other => Err(record.fault(field, format!("{other:?} found, expected one number"))),
            }
        };
        let head = record.head;
        let (spacing_s, start_s) = (first("dx")?, first("startX")?);
        let unit = record.text("unitY")?.to_owned();
        Ok(Self { head, encoding, packing, order, samples, place, bytes, spacing_s, start_s, unit })
    }

    /// Verifies the checksum and opens the samples for reading.
    pub(super) fn open(&self, input: &Input) -> Result<Samples> {
        self.head.verify(input, VECTOR)?;
        let section = input.section(self.place, self.bytes);
        let buffered = |section| BufReader::with_capacity(PIECE_BYTES, section);
        let (width, order) = (self.encoding.bytes(), self.order);
        let (bytes, order) = match self.packing {
            Packing::Raw => (Stream::Raw(buffered(section)), order),
            Packing::Zlib | Packing::DifferencesZlib => {
                let inflated = ZlibDecoder::new_with_buf(section, vec![0; PIECE_BYTES]);
                (Stream::Zlib(Box::new(BufReader::with_capacity(PIECE_BYTES, inflated))), order)
            }
            Packing::Suppressed => {
                let words = Suppressed::new(buffered(section), width, order);
                (Stream::Suppressed(words), Order::Little)
            }
        };
        Ok(Samples {
            input: input.clone(),
            offset: self.head.offset,
            encoding: self.encoding,
            order,
            bytes,
            last: matches!(self.packing, Packing::DifferencesZlib | Packing::Suppressed)
                .then_some(0),
            left: self.samples,
        })
    }
}

#[derive(Debug)]
enum Stream {
    Raw(BufReader<Section>),
    Zlib(Box<BufReader<ZlibDecoder<Section>>>),
    Suppressed(Suppressed),
}

/// Sequential reader of a vector's samples.
#[derive(Debug)]
pub(super) struct Samples {
    input: Input,
    /// Offset of the vector's structure.
    offset: u64,
    encoding: Encoding,
    order: Order,
    bytes: Stream,
    /// Bits of the last sample, for difference coding.
    last: Option<u64>,
    left: u64,
}

impl Samples {
    /// Reads the next samples; returns their number, less than requested only at the end.
    pub(super) fn read(&mut self, samples: &mut [f64]) -> Result<usize> {
        let count = (samples.len() as u64).min(self.left) as usize;
        let width = self.encoding.bytes();
        let all = u64::MAX >> (64 - 8 * width as u32);
        let mut bytes = [0; 8];
        for sample in &mut samples[..count] {
            let word = &mut bytes[..width];
            let read = match &mut self.bytes {
                Stream::Raw(input) => input.read_exact(word),
                Stream::Zlib(input) => input.read_exact(word),
                Stream::Suppressed(words) => words.read(word),
            };
            read.map_err(|error| self.fault(&error))?;
            let mut bits = self.order.number(word);
            if let Some(last) = &mut self.last {
                bits = last.wrapping_add(bits) & all;
                *last = bits;
            }
            *sample = self.encoding.number(bits);
        }
        self.left -= count as u64;
        Ok(count)
    }

    /// Skips samples.
    pub(super) fn skip(&mut self, samples: u64) -> Result<()> {
        let mut left = samples.min(self.left);
        if let Stream::Raw(input) = &mut self.bytes {
            let bytes = left * self.encoding.bytes() as u64;
            let buffered = (input.buffer().len() as u64).min(bytes);
            io::BufRead::consume(input, buffered as usize);
            input.get_mut().skip(bytes - buffered);
            self.left -= left;
            return Ok(());
        }
        let mut passed = [0.0; 512];
        while left > 0 {
            let count = left.min(512) as usize;
            left -= self.read(&mut passed[..count])? as u64;
        }
        Ok(())
    }

    fn fault(&self, error: &io::Error) -> Error {
        match error.kind() {
            io::ErrorKind::UnexpectedEof
            | io::ErrorKind::InvalidInput
            | io::ErrorKind::InvalidData => {
                let why = format!("its samples are damaged: {error}, {} are missing", self.left);
                self.input.fault(VECTOR, self.offset, why)
            }
            kind => Error::io(&self.input.path, io::Error::new(kind, error.to_string())),
        }
    }
}

/// Decoder of zero-suppressed differences.
///
/// # Source
/// LIGO-T970130 version 8, appendix B. The stream holds the block length in 16 bits; then, for each block, the bits
/// per number less one, in 4, 5 or 6 bits (numbers of 2, 4 or 8 bytes), and the numbers, offset by the largest
/// positive one. Bits are packed least significant first. A block of 1 bit per number is all zeros and stores no
/// numbers.
#[derive(Debug)]
struct Suppressed {
    words: BufReader<Section>,
    width: usize,
    order: Order,
    /// Unused bits of the stream, the next one lowest.
    bits: u128,
    held: u32,
    /// Numbers per block; 0 before the first.
    block: u64,
    /// Remaining numbers of this block.
    left: u64,
    /// Bits per number of this block.
    size: u32,
}

impl Suppressed {
    fn new(words: BufReader<Section>, width: usize, order: Order) -> Self {
        Self { words, width, order, bits: 0, held: 0, block: 0, left: 0, size: 0 }
    }

    fn take(&mut self, bits: u32) -> io::Result<u64> {
        if self.held < bits {
            // Writers may omit the end of the last word.
            let mut word = [0; 8];
            let mut count = 0;
            while count < self.width {
                match self.words.read(&mut word[count..self.width])? {
                    0 => break,
                    more => count += more,
                }
            }
            if count == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            self.bits |= u128::from(self.order.number(&word[..self.width])) << self.held;
            self.held += 8 * self.width as u32;
            return self.take(bits);
        }
        let found = self.bits & ((1 << bits) - 1);
        self.bits >>= bits;
        self.held -= bits;
        Ok(found as u64)
    }

    /// Decodes the next difference, little endian.
    fn read(&mut self, word: &mut [u8]) -> io::Result<()> {
        if self.block == 0 {
            self.block = self.take(16)?;
            if self.block == 0 {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "blocks of 0 numbers"));
            }
        }
        if self.left == 0 {
            // 4, 5 and 6 bits encode sizes up to 16, 32 and 64 bits.
            self.size = self.take(self.width.ilog2() + 3)? as u32 + 1;
            self.left = self.block;
        }
        self.left -= 1;
        let difference = if self.size > 1 {
            let greatest = (1_u64 << (self.size - 1)) - 1;
            self.take(self.size)?.wrapping_sub(greatest)
        } else {
            0
        };
        word.copy_from_slice(&difference.to_le_bytes()[..word.len()]);
        Ok(())
    }
}
