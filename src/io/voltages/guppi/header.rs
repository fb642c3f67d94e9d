//! Header of one block: cards of 80 characters up to `END`.
//!
//! Invariant: a header is at most [`MAX_CARDS`] cards long, whatever the file holds.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use crate::error::{Error, Result};
use crate::io::psrfits::card_value;
use crate::io::voltages::fields::{Field, Fields};
use crate::io::voltages::layout::{Axis, Counts, Layout};
use crate::units::MAX_CHANNELS;
use crate::voltage::VoltageEncoding;

/// Bytes per card.
pub(super) const CARD_BYTES: usize = 80;

/// Maximum number of cards in a header.
const MAX_CARDS: usize = 2048;

/// Bytes of a header read at once; most headers are shorter.
const READ_BYTES: usize = 100 * CARD_BYTES;

/// Reads the cards at a byte of a file; `None` if the file ends within them.
///
/// # Errors
/// [`Error::Format`] for an invalid card or too many cards; [`Error::Io`].
pub(super) fn read(file: &mut File, path: &Path, offset: u64) -> Result<Option<Fields>> {
    let io = |error| Error::io(path, error);
    file.seek(SeekFrom::Start(offset)).map_err(io)?;
    let (mut bytes, mut cards) = (Vec::new(), Vec::new());
    loop {
        let before = bytes.len();
        file.take(READ_BYTES as u64).read_to_end(&mut bytes).map_err(io)?;
        let parsed = cards.len() * CARD_BYTES;
        for text in bytes[parsed..].chunks_exact(CARD_BYTES) {
            let at = offset + (cards.len() * CARD_BYTES) as u64;
            let card = parse(text, at).map_err(|why| {
                let field = format!("card {} of a block's header", cards.len() + 1);
                Error::format(path, field, at, why)
            })?;
            if card.key == "END" {
                let end = (cards.len() + 1) * CARD_BYTES;
                return Ok(Some(Fields::new(path, offset, end as u64, cards)));
            }
            cards.push(card);
        }
        if cards.len() >= MAX_CARDS {
            let why =
                format!("{} cards and no END, expected one that ends the header", cards.len());
            return Err(Error::format(path, "END", offset, why));
        }
        if bytes.len() < before + READ_BYTES {
            return Ok(None);
        }
    }
}

/// Makes the error for a header without an end.
pub(super) fn breaks_off(path: &Path, offset: u64) -> Error {
    let why = "the file ends within a block's header, expected cards to END";
    Error::format(path, "END", offset, why)
}

fn parse(text: &[u8], offset: u64) -> std::result::Result<Field, String> {
    let printable = text.iter().all(|byte| (b' '..=b'~').contains(byte));
    let Some(text) = std::str::from_utf8(text).ok().filter(|_| printable) else {
        let start = text[..16].escape_ascii();
        return Err(format!("found the bytes {start}, expected 80 printable characters"));
    };
    let (key, rest) = text.split_at(8);
    let value = rest.strip_prefix('=').map(card_value).unwrap_or_default();
    Ok(Field { key: key.trim_end().to_string(), value, offset })
}

/// Returns whether bytes look like a card: a key of capitals and digits, followed by `=`.
pub(super) fn is_card(bytes: &[u8]) -> bool {
    let Some((key, rest)) = bytes.split_at_checked(8) else { return false };
    let letters = key.iter().take_while(|byte| **byte != b' ').count();
    let name = |byte: &u8| {
        byte.is_ascii_uppercase() || byte.is_ascii_digit() || matches!(byte, b'_' | b'-')
    };
    letters > 0
        && key[..letters].iter().all(name)
        && key[letters..].iter().all(|byte| *byte == b' ')
        && rest.first() == Some(&b'=')
}

/// Geometry common to all blocks of a recording.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Geometry {
    /// Antennas, channels per antenna, polarizations.
    pub(super) counts: Counts,
    pub(super) encoding: VoltageEncoding,
    /// Bytes of samples per block (BLOCSIZE).
    pub(super) block_bytes: u64,
    /// Samples per stream in a block.
    pub(super) times: u64,
    /// Samples at a block's end that the next block repeats.
    pub(super) overlap: u64,
    /// Whether headers, and usually blocks, are padded to multiples of 512 bytes.
    pub(super) directio: bool,
    time_first: bool,
    /// The header values behind the geometry, to name one that changes.
    fields: [(&'static str, Option<f64>); 11],
}

/// Cards that must not change within a recording.
const FIELDS: [&str; 11] = [
    "BLOCSIZE", "OBSNCHAN", "NPOL", "NBITS", "NANTS", "OVERLAP", "DIRECTIO", "TBIN", "OBSFREQ",
    "OBSBW", "PIPERBLK",
];

impl Geometry {
    /// Reads the geometry from a block's cards.
    ///
    /// # Errors
    /// [`crate::Error::Format`] for a missing or invalid card.
    pub(super) fn new(cards: &Fields) -> Result<Self> {
        let block_bytes = cards.needed("BLOCSIZE")?;
        let channels = cards.needed("OBSNCHAN")?;
        let antennas = cards.count("NANTS")?.unwrap_or(1);
        let limit = MAX_CHANNELS as u64;
        if antennas == 0
            || !channels.is_multiple_of(antennas)
            || channels > limit * antennas.min(limit)
        {
            let why = format!(
                "{channels} channels of all antennas, expected a multiple of the {antennas} \
                 antennas (NANTS), at most {limit} channels each"
            );
            return Err(cards.fault("OBSNCHAN", why));
        }
        let real = is_real(cards, channels)?;
        let counts = Counts {
            antennas: antennas as usize,
            channels: (channels / antennas) as usize,
            polarizations: polarizations(cards)?,
        };
        let encoding = encoding(cards, real)?;
        let time_first = match cards.text("PKTFMT") {
            Some("VDIF") => {
                let why = "VDIF packets in GUPPI blocks are not supported, expected 1SFA or SIMPLE";
                return Err(cards.fault("PKTFMT", why));
            }
            format => format == Some("SIMPLE"),
        };
        let bytes = channels * counts.polarizations as u64 * (encoding.sample_bits() / 8) as u64;
        if !block_bytes.is_multiple_of(bytes) {
            let why = format!(
                "a block of {block_bytes} bytes does not hold whole samples, expected a multiple \
                 of {bytes} ({channels} channels, {} polarizations, {encoding:?})",
                counts.polarizations
            );
            return Err(cards.fault("BLOCSIZE", why));
        }
        let (times, overlap) = (block_bytes / bytes, cards.count("OVERLAP")?.unwrap_or(0));
        if overlap >= times {
            let why = format!("{overlap} samples, expected fewer than the block's {times}");
            return Err(cards.fault("OVERLAP", why));
        }
        let directio = cards.number("DIRECTIO")?.unwrap_or(0.0) != 0.0;
        let mut fields = FIELDS.map(|key| (key, None));
        for (key, value) in &mut fields {
            *value = cards.number(key)?;
        }
        Ok(Self { counts, encoding, block_bytes, times, overlap, directio, time_first, fields })
    }

    /// Returns the samples from a block's start to the next block's start.
    pub(super) fn hop(&self) -> u64 {
        self.times - self.overlap
    }

    /// Returns the sample layout of a block.
    pub(super) fn layout(&self) -> Layout {
        let order = if self.time_first {
            [Axis::Time, Axis::Antenna, Axis::Channel, Axis::Polarization]
        } else {
            [Axis::Antenna, Axis::Channel, Axis::Time, Axis::Polarization]
        };
        Layout::new(order, self.counts, self.times, self.encoding.sample_bits() / 8)
    }

    /// Returns the bytes of one sample of every stream.
    pub(super) fn frame_bytes(&self) -> u64 {
        self.block_bytes / self.times
    }

    /// Checks that a later block agrees with this one.
    ///
    /// # Errors
    /// [`crate::Error::Format`] naming the block and the first card that differs.
    pub(super) fn check(&self, other: &Self, cards: &Fields, block: usize) -> Result<()> {
        let pairs = self.fields.iter().zip(&other.fields);
        for ((key, expected), (_, found)) in pairs {
            if expected != found {
                let show = |value: &Option<f64>| {
                    value.map_or_else(|| "nothing".to_string(), |value| value.to_string())
                };
                let why = format!(
                    "block {block} has {}, expected {} as in block 0",
                    show(found),
                    show(expected)
                );
                return Err(cards.fault(key, why));
            }
        }
        if self != other {
            let why = format!("block {block} is laid out differently from block 0");
            return Err(cards.fault("PKTFMT", why));
        }
        Ok(())
    }
}

/// Reads NPOL: two polarizations are written as 2, or as 4, by the convention of detected data.
fn polarizations(cards: &Fields) -> Result<usize> {
    match cards.needed("NPOL")? {
        1 => Ok(1),
        2 | 4 => Ok(2),
        other => Err(cards.fault("NPOL", format!("found {other}, expected 1, 2 or 4"))),
    }
}

/// Returns whether samples are real: a single channel sampled at twice its width.
fn is_real(cards: &Fields, channels: u64) -> Result<bool> {
    let (Some(width), Some(tbin)) = (cards.number("OBSBW")?, cards.number("TBIN")?) else {
        return Ok(false);
    };
    let samples = (width * 1e6 * tbin).abs();
    Ok(channels == 1 && (0.49..0.51).contains(&samples))
}

fn encoding(cards: &Fields, real: bool) -> Result<VoltageEncoding> {
    match (cards.count("NBITS")?.unwrap_or(8), real) {
        (4, false) => Ok(VoltageEncoding::Complex4),
        (8, false) => Ok(VoltageEncoding::Complex8),
        (16, false) => Ok(VoltageEncoding::Complex16),
        (8, true) => Ok(VoltageEncoding::Real8),
        (16, true) => Ok(VoltageEncoding::Real16),
        (other, true) => {
            Err(cards.fault("NBITS", format!("found {other}, expected 8 or 16 (real samples)")))
        }
        (other, false) => Err(cards.fault("NBITS", format!("found {other}, expected 4, 8 or 16"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_come_without_quotes_and_comments() {
        let cases = [
            ("NBITS   =                    8", "NBITS", "8"),
            ("OBSBW   = '-100    '           / bandwidth", "OBSBW", "-100"),
            ("OBSERVER= 'O''Neil '", "OBSERVER", "O'Neil"),
            ("TBIN    = 3.4E-07 / s", "TBIN", "3.4E-07"),
            ("SRC_NAME= 'a / b'", "SRC_NAME", "a / b"),
            ("COMMENT anything at all", "COMMENT", ""),
            ("END", "END", ""),
            ("", "", ""),
        ];
        for (text, key, value) in cases {
            let card = parse(format!("{text:<80}").as_bytes(), 0).unwrap();
            assert_eq!((card.key.as_str(), card.value.as_str()), (key, value), "{text}");
        }
        assert!(parse(&[0; 80], 0).is_err() && parse(&[0xff; 80], 0).is_err());
    }

    #[test]
    fn a_card_is_known_by_its_equals_sign() {
        assert!(is_card(b"BLOCSIZE= 1") && is_card(b"NPOL    = 4") && is_card(b"DAC-1   ="));
        let none: [&[u8]; 5] =
            [b"SIMPLE", b"HEADER   DADA", b"        =", b"\0\0\0\0\0\0\0\0=", b"nbits   ="];
        for bytes in none {
            assert!(!is_card(bytes));
        }
    }

    #[test]
    fn a_header_may_take_several_reads_but_not_go_on_for_ever() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.raw");
        let header = |cards: usize, end: &str| {
            let card = format!("{:<80}", "NBITS   = 8");
            std::fs::write(&path, format!("{}{end:<80}", card.repeat(cards))).unwrap();
            read(&mut File::open(&path).unwrap(), &path, 0)
        };
        assert_eq!(header(250, "END").unwrap().unwrap().bytes(), 251 * 80);
        assert!(header(250, "").unwrap().is_none());
        assert!(header(3000, "").is_err() && header(3000, "END").is_err());
    }
}
