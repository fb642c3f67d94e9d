//! One block's header: cards of 80 characters up to `END`.
//!
//! Invariant: a header is at most [`MAX_CARDS`] cards long, whatever the file holds.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};

/// Bytes of a card.
pub(super) const CARD_BYTES: usize = 80;

/// More cards than this are no header.
const MAX_CARDS: usize = 2048;

/// Bytes of a header that are read at once; most are shorter.
const READ_BYTES: usize = 100 * CARD_BYTES;

/// One card.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Card {
    key: String,
    value: String,
    offset: u64,
}

/// The cards of one block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cards {
    path: PathBuf,
    offset: u64,
    bytes: u64,
    cards: Vec<Card>,
}

impl Cards {
    /// The cards of a file's first block.
    ///
    /// # Errors
    /// [`Error::Format`] for what is no card and for a header without `END`; [`Error::Io`].
    pub fn open(path: &Path) -> Result<Self> {
        let mut file = File::open(path).map_err(|error| Error::io(path, error))?;
        Self::read(&mut file, path, 0)?.ok_or_else(|| Self::breaks_off(path, 0))
    }

    /// The cards at a byte of a file; `None` when the file ends within them.
    pub(super) fn read(file: &mut File, path: &Path, offset: u64) -> Result<Option<Self>> {
        let io = |error| Error::io(path, error);
        file.seek(SeekFrom::Start(offset)).map_err(io)?;
        let mut header = Self { path: path.to_path_buf(), offset, bytes: 0, cards: Vec::new() };
        let (mut bytes, mut parsed) = (Vec::new(), 0);
        loop {
            let before = bytes.len();
            file.take(READ_BYTES as u64).read_to_end(&mut bytes).map_err(io)?;
            for text in bytes[parsed * CARD_BYTES..].chunks_exact(CARD_BYTES) {
                let at = offset + (parsed * CARD_BYTES) as u64;
                parsed += 1;
                let card = Card::parse(text, at).map_err(|why| {
                    Error::format(path, format!("card {parsed} of the block's header"), at, why)
                })?;
                if card.key == "END" {
                    header.bytes = (parsed * CARD_BYTES) as u64;
                    return Ok(Some(header));
                }
                header.cards.push(card);
            }
            if parsed >= MAX_CARDS {
                let why =
                    format!("{MAX_CARDS} cards and no END, expected one that ends the header");
                return Err(Error::format(path, "END", offset, why));
            }
            if bytes.len() < before + READ_BYTES {
                return Ok(None);
            }
        }
    }

    pub(super) fn breaks_off(path: &Path, offset: u64) -> Error {
        let why = "the file ends within a block's header, expected cards to END";
        Error::format(path, "END", offset, why)
    }

    /// The byte of the file at which the header begins.
    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    /// Bytes of the header, `END` included.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Every card's key and value, text without its quotes.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.cards.iter().map(|card| (card.key.as_str(), card.value.as_str()))
    }

    fn card(&self, key: &str) -> Option<&Card> {
        self.cards.iter().find(|card| card.key == key)
    }

    /// A card's text, when it is there and not empty.
    pub fn text(&self, key: &str) -> Option<&str> {
        self.card(key).map(|card| card.value.as_str()).filter(|value| !value.is_empty())
    }

    /// A card's number; writers put numbers into quotes too.
    ///
    /// # Errors
    /// [`Error::Format`] for what is no finite number.
    pub fn number(&self, key: &str) -> Result<Option<f64>> {
        let Some(text) = self.text(key) else { return Ok(None) };
        let number = text.replace(['D', 'd'], "E").parse::<f64>().ok();
        let number = number.filter(|number| number.is_finite());
        number
            .map(Some)
            .ok_or_else(|| self.fault(key, format!("found {text:?}, expected a number")))
    }

    /// A card's count.
    ///
    /// # Errors
    /// [`Error::Format`] for what is no whole number from 0 on.
    pub fn count(&self, key: &str) -> Result<Option<u64>> {
        let Some(text) = self.text(key) else { return Ok(None) };
        if let Ok(count) = text.parse::<u64>() {
            return Ok(Some(count));
        }
        // Some writers put counts down as 16384.0.
        match self.number(key) {
            Ok(Some(number))
                if number >= 0.0 && number < 2f64.powi(53) && number.fract() == 0.0 =>
            {
                Ok(Some(number as u64))
            }
            _ => Err(self.fault(key, format!("found {text:?}, expected a whole number from 0 on"))),
        }
    }

    /// What is wrong with a card, or with the lack of it.
    pub(super) fn fault(&self, key: &str, why: impl Into<String>) -> Error {
        let offset = self.card(key).map_or(self.offset, |card| card.offset);
        Error::format(&self.path, key, offset, why)
    }
}

impl Card {
    fn parse(text: &[u8], offset: u64) -> std::result::Result<Self, String> {
        let printable = |byte: &u8| (b' '..=b'~').contains(byte);
        let Some(text) =
            std::str::from_utf8(text).ok().filter(|t| t.as_bytes().iter().all(printable))
        else {
            let start = text[..16].escape_ascii();
            return Err(format!("found the bytes {start}, expected 80 printable characters"));
        };
        let (key, rest) = text.split_at(8);
        let key = key.trim_end().to_string();
        let value = rest.strip_prefix('=').map(unquote).unwrap_or_default();
        Ok(Self { key, value, offset })
    }
}

/// A card's value: text between quotes, or what stands before a comment.
fn unquote(value: &str) -> String {
    let value = value.trim();
    let Some(quoted) = value.strip_prefix('\'') else {
        return value.split('/').next().unwrap_or_default().trim().to_string();
    };
    let mut text = String::new();
    let mut characters = quoted.chars().peekable();
    while let Some(character) = characters.next() {
        if character == '\'' && characters.next_if_eq(&'\'').is_none() {
            break;
        }
        text.push(character);
    }
    text.trim().to_string()
}

/// Whether bytes look like the first of a card: a key of capitals and digits, and `=` behind it.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Card {
        Card::parse(format!("{text:<80}").as_bytes(), 0).unwrap()
    }

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
            let card = parse(text);
            assert_eq!((card.key.as_str(), card.value.as_str()), (key, value), "{text}");
        }
        assert!(Card::parse(&[0; 80], 0).is_err());
        assert!(Card::parse(&[0xff; 80], 0).is_err());
    }

    #[test]
    fn numbers_may_stand_in_quotes() {
        let mut header = Cards { path: "x.raw".into(), offset: 0, bytes: 0, cards: Vec::new() };
        for text in ["A='7'", "B=-100.0", "C=1.5D-3", "D='x'", "E=16384.0", "F=-1", "G=1e400"] {
            let (key, value) = text.split_once('=').unwrap();
            header.cards.push(parse(&format!("{key:<8}={value}")));
        }
        assert_eq!(header.count("A").unwrap(), Some(7));
        assert_eq!(header.number("B").unwrap(), Some(-100.0));
        assert_eq!(header.number("C").unwrap(), Some(1.5e-3));
        assert_eq!(header.count("E").unwrap(), Some(16384));
        assert_eq!(header.count("H").unwrap(), None);
        assert!(header.number("D").is_err() && header.count("F").is_err());
        assert!(header.number("G").is_err());
    }

    #[test]
    fn a_card_is_known_by_its_equals_sign() {
        assert!(is_card(b"BLOCSIZE= 1") && is_card(b"NPOL    = 4") && is_card(b"DAC-1   ="));
        for no in
            [&b"SIMPLE"[..], b"HEADER   DADA", b"        =", b"\0\0\0\0\0\0\0\0=", b"nbits   ="]
        {
            assert!(!is_card(no));
        }
    }
}
