//! Header of one block: cards of 80 characters up to `END`.
//!
//! Invariant: a header is at most [`MAX_CARDS`] cards long, whatever the file holds.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use crate::error::{Error, Result};
use crate::io::voltages::fields::{Field, Fields};

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
    let value = rest.strip_prefix('=').map(unquote).unwrap_or_default();
    Ok(Field { key: key.trim_end().to_string(), value, offset })
}

/// Returns a card's value: quoted text, or the text before a comment.
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
