//! PSRDADA header: lines of a key and a value, in a block of HDR_SIZE bytes.
//!
//! Invariant: a header is at most [`MAX_HEADER`] bytes long, whatever it says itself.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use crate::error::{Error, Result};
use crate::io::voltages::fields::{Field, Fields};

/// Default HDR_SIZE, as in PSRDADA.
pub(super) const DEFAULT_HEADER: u64 = 4096;

/// Longest accepted header.
const MAX_HEADER: u64 = 1 << 20;

/// Values that mean "not set".
const NOTHING: [&str; 4] = ["unset", "unknown", "none", "undefined"];

/// Reads the header at a byte of a file.
///
/// # Errors
/// [`Error::Format`] for non-text bytes, an invalid HDR_SIZE, or a file that ends within the header; [`Error::Io`].
pub(super) fn read(file: &mut File, path: &Path, offset: u64) -> Result<Fields> {
    let io = |error| Error::io(path, error);
    file.seek(SeekFrom::Start(offset)).map_err(io)?;
    let mut bytes = Vec::new();
    file.take(DEFAULT_HEADER).read_to_end(&mut bytes).map_err(io)?;
    let first = parse(&bytes, path, offset)?;
    let size = first.count("HDR_SIZE")?.unwrap_or(DEFAULT_HEADER);
    if size == 0 || size > MAX_HEADER {
        let why = format!("found {size}, expected 1 to {MAX_HEADER} bytes");
        return Err(first.fault("HDR_SIZE", why));
    }
    if size > DEFAULT_HEADER {
        file.take(size - DEFAULT_HEADER).read_to_end(&mut bytes).map_err(io)?;
    }
    if (bytes.len() as u64) < size {
        let why = format!(
            "the file ends {} bytes into a header of {size} bytes, expected all of it and samples",
            bytes.len()
        );
        return Err(first.fault("HDR_SIZE", why));
    }
    bytes.truncate(size as usize);
    parse(&bytes, path, offset)
}

/// Parses the keys and values of all lines up to the first NUL or the end-of-header line.
fn parse(bytes: &[u8], path: &Path, offset: u64) -> Result<Fields> {
    let text = &bytes[..bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len())];
    if let Some(at) = text.iter().position(|byte| is_binary(*byte)) {
        let field = format!("line {} of the header", text[..at].split(|b| *b == b'\n').count());
        let why = format!("found the byte {:#04x}, expected text", text[at]);
        return Err(Error::format(path, field, offset + at as u64, why));
    }
    let (mut list, mut at) = (Vec::new(), offset);
    for line in text.split(|byte| *byte == b'\n') {
        let own = String::from_utf8_lossy(line);
        if own.starts_with('#') && own.contains("end of header") {
            break;
        }
        let content = own.split('#').next().unwrap_or_default().trim();
        if let Some(key) = content.split_whitespace().next() {
            let value = content[key.len()..].trim();
            let value = if NOTHING.contains(&value.to_lowercase().as_str()) { "" } else { value };
            list.push(Field { key: key.to_string(), value: value.to_string(), offset: at });
        }
        at += line.len() as u64 + 1;
    }
    Ok(Fields::new(path, offset, bytes.len() as u64, list))
}

/// Returns whether a byte cannot occur in text; bytes from 0x80 on may be non-ASCII letters.
fn is_binary(byte: u8) -> bool {
    byte < b' ' && !matches!(byte, b'\n' | b'\r' | b'\t') || byte == 0x7f
}

/// Returns whether a file's first bytes are a PSRDADA header: lines of text with a key HDR_SIZE or HEADER.
pub(super) fn detect(first: &[u8]) -> bool {
    let first = &first[..first.len().min(DEFAULT_HEADER as usize)];
    let text = &first[..first.iter().position(|byte| *byte == 0).unwrap_or(first.len())];
    let key = |line: &[u8], key: &[u8]| {
        line.strip_prefix(key).is_some_and(|rest| rest.first().is_some_and(u8::is_ascii_whitespace))
    };
    let mut lines = text.split(|byte| *byte == b'\n');
    lines.clone().next().is_some_and(|line| !line.iter().any(|byte| is_binary(*byte)))
        && (key(text, b"HEADER") || lines.any(|line| key(line, b"HDR_SIZE")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(text: &str) -> Result<Fields> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.dada");
        std::fs::write(&path, text).unwrap();
        read(&mut File::open(&path).unwrap(), &path, 0)
    }

    #[test]
    fn keys_and_values_come_without_comments() {
        let text = "HEADER DADA # x\n\n# FREQ 1\nHDR_SIZE 128\nSOURCE  J0 # name\nNCHAN 1 \t# y\r\n\
                    UTC_STOP None\n# end of header\nNBIT 8\n";
        let header = fields(&format!("{text:\0<130}")).unwrap();
        assert_eq!(header.bytes(), 128);
        assert_eq!(header.text("SOURCE"), Some("J0"));
        assert_eq!(header.count("NCHAN").unwrap(), Some(1));
        for none in ["NBIT", "UTC_STOP", "FREQ", "#"] {
            assert_eq!(header.text(none), None, "{none}");
        }
    }

    #[test]
    fn a_header_must_fit_its_file() {
        for (text, expected) in [
            ("HDR_SIZE 4096\nNBIT 8\n", "ends 21 bytes"),
            ("NBIT 8\n", "ends 7 bytes"),
            ("HDR_SIZE 99999999\n", "expected 1 to"),
            ("HDR_SIZE -1\n", "count"),
            ("HDR_SIZE 0\n", "expected 1 to"),
            ("HDR_SIZE 16\n\u{1}", "0x01"),
        ] {
            let found = fields(text).unwrap_err().to_string();
            assert!(found.contains(expected), "{found}");
        }
        let long = format!("{:\0<8192}", "HDR_SIZE 8192\n");
        assert_eq!(fields(&long).unwrap().bytes(), 8192);
        let far = format!("HDR_SIZE 8192\n{:#<5000}\nNBIT 8\n{:\0<8192}", "", "");
        assert_eq!(fields(&far).unwrap().count("NBIT").unwrap(), Some(8));
    }

    #[test]
    fn a_header_is_known_by_its_keys() {
        assert!(detect(b"HEADER  DADA") && detect(b"BW 1\nHDR_SIZE 4096\n\0\0"));
        assert!(!detect(b"HDR_SIZE") && !detect(b"BW 1\n") && !detect(b"") && !detect(b"HEADER"));
        assert!(!detect(b"\x01\x02\nHDR_SIZE 4096\n") && !detect(b"NBITS   = 8"));
    }
}
