//! Header of a `.npy` file: a Python dictionary as text.

use std::path::Path;

use super::HEADER_BYTES;
use crate::error::{Error, Result};

/// Supported element types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Unsigned byte.
    U8,
    /// Signed byte.
    I8,
    /// Unsigned 16 bit.
    U16,
    /// Signed 16 bit.
    I16,
    /// Unsigned 32 bit.
    U32,
    /// Signed 32 bit.
    I32,
    /// Signed 64 bit.
    I64,
    /// Single precision.
    F32,
    /// Double precision.
    F64,
}

const KINDS: &[(&str, Kind)] = &[
    ("|u1", Kind::U8),
    ("|i1", Kind::I8),
    ("<u2", Kind::U16),
    ("<i2", Kind::I16),
    ("<u4", Kind::U32),
    ("<i4", Kind::I32),
    ("<i8", Kind::I64),
    ("<f4", Kind::F32),
    ("<f8", Kind::F64),
];

impl Kind {
    /// Returns the bytes per number.
    pub fn bytes(self) -> usize {
        match self {
            Self::U8 | Self::I8 => 1,
            Self::U16 | Self::I16 => 2,
            Self::U32 | Self::I32 | Self::F32 => 4,
            Self::I64 | Self::F64 => 8,
        }
    }
}

/// Description of an array file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// Element type.
    pub kind: Kind,
    /// Whether the first axis is fastest (`fortran_order`).
    pub is_fortran: bool,
    /// Length of each axis, outermost first.
    pub shape: Vec<usize>,
    /// Byte offset of the data.
    pub data_offset: usize,
}

impl Header {
    /// Parses a header from a file's first bytes; `path` names the file in errors.
    ///
    /// # Errors
    /// [`Error::Format`] for a wrong magic or version, a truncated or invalid header, or an unsupported element type.
    pub fn parse(bytes: &[u8], path: &Path) -> Result<Self> {
        let fault = |field: &str, at: u64, why: String| Error::format(path, field, at, why);
        if !bytes.starts_with(b"\x93NUMPY") {
            let found = bytes[..bytes.len().min(6)].escape_ascii();
            return Err(fault("magic", 0, format!("found {found}, expected \\x93NUMPY")));
        }
        let (start, length): (usize, usize) = match bytes.get(6..12) {
            Some([1, _, a, b, ..]) => (10, usize::from(u16::from_le_bytes([*a, *b]))),
            Some([2 | 3, _, a, b, c, d]) => (12, u32::from_le_bytes([*a, *b, *c, *d]) as usize),
            Some([version, ..]) => {
                return Err(fault("version", 6, format!("found {version}, expected 1 to 3")));
            }
            _ => return Err(fault("version", 6, "the header breaks off".into())),
        };
        let Some(text) = bytes.get(start..start.saturating_add(length)) else {
            let why = format!("expected {length} bytes of header, found {}", bytes.len() - start);
            return Err(fault("header", start as u64, why));
        };
        let text = String::from_utf8_lossy(text);
        let (kind, is_fortran, shape) =
            dictionary(&text).map_err(|(field, why)| fault(field, start as u64, why))?;
        Ok(Self { kind, is_fortran, shape, data_offset: start + length })
    }

    /// Returns the number of elements; `None` on overflow.
    pub fn elements(&self) -> Option<usize> {
        self.shape.iter().try_fold(1usize, |product, axis| product.checked_mul(*axis))
    }

    /// Encodes the [`HEADER_BYTES`] bytes of a version 1.0 header of 32-bit floats.
    pub(super) fn encode_f32(shape: &[u64], is_fortran: bool) -> Vec<u8> {
        Self::encode("<f4", shape, is_fortran)
    }

    /// Encodes the header of a series of 64-bit floats.
    pub(in crate::io) fn encode_series(samples: u64) -> Vec<u8> {
        Self::encode("<f8", &[samples], false)
    }

    fn encode(descr: &str, shape: &[u64], is_fortran: bool) -> Vec<u8> {
        let axes: String = shape.iter().map(|axis| format!("{axis}, ")).collect();
        let order = if is_fortran { "True" } else { "False" };
        let text = format!(
            "{{'descr': '{descr}', 'fortran_order': {order}, 'shape': ({}), }}",
            if shape.len() == 1 { axes.trim_end() } else { axes.trim_end_matches([',', ' ']) }
        );
        let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
        bytes.extend_from_slice(&((HEADER_BYTES - 10) as u16).to_le_bytes());
        bytes.extend_from_slice(text.as_bytes());
        bytes.resize(HEADER_BYTES - 1, b' ');
        bytes.push(b'\n');
        bytes
    }
}

type Parsed = std::result::Result<(Kind, bool, Vec<usize>), (&'static str, String)>;

fn dictionary(text: &str) -> Parsed {
    let value = |key: &'static str| {
        let quoted = [format!("'{key}'"), format!("\"{key}\"")];
        let place = quoted.iter().find_map(|quoted| text.split_once(quoted.as_str()));
        let after = place.and_then(|(_, after)| after.trim_start().strip_prefix(':'));
        after.map(str::trim_start).ok_or_else(|| (key, "the header lacks it".to_string()))
    };
    let descr = value("descr")?;
    let quote = |c: char| c == '\'' || c == '"';
    let name = descr.strip_prefix(quote).and_then(|rest| rest.split(quote).next()).unwrap_or(descr);
    let Some((_, kind)) = KINDS.iter().find(|(known, _)| *known == name) else {
        let known: Vec<&str> = KINDS.iter().map(|(known, _)| *known).collect();
        let found = name.chars().take(40).collect::<String>();
        return Err(("descr", format!("found {found:?}, expected one of {}", known.join(" "))));
    };
    let order = value("fortran_order")?;
    let is_fortran = order.starts_with("True");
    if !is_fortran && !order.starts_with("False") {
        return Err(("fortran_order", "expected True or False".into()));
    }
    let shape = value("shape")?;
    let axes = shape.strip_prefix('(').and_then(|rest| rest.split_once(')'));
    let Some((axes, _)) = axes else {
        return Err(("shape", "expected numbers in parentheses".into()));
    };
    let axes = axes.split(',').map(str::trim).filter(|axis| !axis.is_empty());
    let shape: std::result::Result<Vec<usize>, _> = axes.map(str::parse).collect();
    match shape {
        Ok(shape) if (1..=2).contains(&shape.len()) => Ok((*kind, is_fortran, shape)),
        Ok(shape) => Err(("shape", format!("found {} axes, expected 1 or 2", shape.len()))),
        Err(_) => Err(("shape", "expected whole numbers".into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(bytes: &[u8]) -> Result<Header> {
        Header::parse(bytes, Path::new("x.npy"))
    }

    fn with(text: &str) -> Result<Header> {
        let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
        bytes.extend_from_slice(&(text.len() as u16).to_le_bytes());
        bytes.extend_from_slice(text.as_bytes());
        parse(&bytes)
    }

    #[test]
    fn our_own_headers_parse() {
        for (shape, axes) in
            [(&[7u64][..], vec![7]), (&[3, u64::MAX >> 1], vec![3, usize::MAX >> 1])]
        {
            for is_fortran in [false, true] {
                let bytes = Header::encode_f32(shape, is_fortran);
                assert_eq!(bytes.len(), HEADER_BYTES);
                let header = parse(&bytes).unwrap();
                assert_eq!((header.kind, header.is_fortran), (Kind::F32, is_fortran));
                assert_eq!((header.shape, header.data_offset), (axes.clone(), HEADER_BYTES));
            }
        }
    }

    #[test]
    fn what_is_not_read_is_named() {
        let good = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }";
        assert_eq!(with(good).unwrap().shape, [2, 3]);
        let cases = [
            ("<f4", ">f4", "descr"),
            ("<f4", "<c8", "descr"),
            ("'descr'", "'x'", "descr"),
            ("False", "Maybe", "fortran_order"),
            ("(2, 3)", "(2, -3)", "shape"),
            ("(2, 3)", "(2, 3, 4)", "shape"),
            ("(2, 3)", "()", "shape"),
            ("(2, 3)", "(2, 3", "shape"),
            ("(2, 3)", "(99999999999999999999,)", "shape"),
        ];
        for (from, to, field) in cases {
            let error = with(&good.replacen(from, to, 1)).unwrap_err().to_string();
            assert!(error.contains(field), "{error}");
        }
        assert!(parse(b"").is_err() && parse(b"\x93NUMPY").is_err());
        assert!(parse(b"\x93NUMPY\x04\0\0\0\0\0").is_err());
        assert!(parse(b"\x93NUMPY\x02\0\xff\xff\xff\xff").is_err());
    }
}
