//! Reader of a whole `.npy` file.
//!
//! Invariant: an array's values are as many as its shape says.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use super::header::{Header, Kind};
use crate::error::{Error, Result};

/// Array in memory, in C order (the last axis is fastest).
#[derive(Clone, Debug, PartialEq)]
pub struct Array {
    /// Length of each axis, outermost first.
    pub shape: Vec<usize>,
    /// All elements.
    pub values: Vec<f64>,
}

/// Reads an array of one or two axes.
///
/// # Errors
/// [`Error::Format`] if the header is invalid, the file is shorter or longer than its shape, or a float cannot
/// represent a 64-bit integer; [`Error::Io`].
pub fn read(path: &Path) -> Result<Array> {
    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|mut file| file.read_to_end(&mut bytes))
        .map_err(|error| Error::io(path, error))?;
    parse(&bytes, path)
}

fn parse(bytes: &[u8], path: &Path) -> Result<Array> {
    let header = Header::parse(bytes, path)?;
    let data = &bytes[header.data_offset..];
    let expected = header.elements().and_then(|count| count.checked_mul(header.kind.bytes()));
    if expected != Some(data.len()) {
        let why = format!(
            "found {} bytes of data, expected {} for the shape {:?}",
            data.len(),
            expected.map_or("more than there can be".to_string(), |bytes| bytes.to_string()),
            header.shape
        );
        return Err(Error::format(path, "data", header.data_offset as u64, why));
    }
    let values = data.chunks_exact(header.kind.bytes()).map(|bytes| number(bytes, header.kind));
    let values: Option<Vec<f64>> = values.collect();
    let Some(values) = values else {
        let why = "found an integer beyond 2^53, which a float does not hold exactly";
        return Err(Error::format(path, "data", header.data_offset as u64, why));
    };
    let values = if header.is_fortran { transposed(&values, &header.shape) } else { values };
    Ok(Array { shape: header.shape, values })
}

fn number(bytes: &[u8], kind: Kind) -> Option<f64> {
    let mut quad = [0; 8];
    quad[..bytes.len()].copy_from_slice(bytes);
    let [a, b, c, d, ..] = quad;
    Some(match kind {
        Kind::U8 => f64::from(a),
        Kind::I8 => f64::from(a as i8),
        Kind::U16 => f64::from(u16::from_le_bytes([a, b])),
        Kind::I16 => f64::from(i16::from_le_bytes([a, b])),
        Kind::U32 => f64::from(u32::from_le_bytes([a, b, c, d])),
        Kind::I32 => f64::from(i32::from_le_bytes([a, b, c, d])),
        Kind::F32 => f64::from(f32::from_le_bytes([a, b, c, d])),
        Kind::F64 => f64::from_le_bytes(quad),
        Kind::I64 => {
            let whole = i64::from_le_bytes(quad);
            if whole.unsigned_abs() > 1 << 53 {
                return None;
            }
            whole as f64
        }
    })
}

fn transposed(values: &[f64], shape: &[usize]) -> Vec<f64> {
    let &[rows, columns] = shape else { return values.to_vec() };
    (0..rows).flat_map(|row| (0..columns).map(move |column| values[column * rows + row])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(descr: &str, shape: &str, data: &[u8]) -> Vec<u8> {
        let text = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}\n");
        let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
        bytes.extend_from_slice(&(text.len() as u16).to_le_bytes());
        bytes.extend_from_slice(text.as_bytes());
        bytes.extend_from_slice(data);
        bytes
    }

    fn values(descr: &str, data: &[u8], count: usize) -> Result<Vec<f64>> {
        let bytes = file(descr, &format!("({count},)"), data);
        parse(&bytes, Path::new("x.npy")).map(|array| array.values)
    }

    #[test]
    fn every_kind_is_read() {
        assert_eq!(values("|u1", &[255, 1], 2).unwrap(), [255.0, 1.0]);
        assert_eq!(values("|i1", &[255, 1], 2).unwrap(), [-1.0, 1.0]);
        assert_eq!(values("<u2", &[255, 255], 1).unwrap(), [65535.0]);
        assert_eq!(values("<i2", &[255, 255], 1).unwrap(), [-1.0]);
        assert_eq!(values("<u4", &[255; 4], 1).unwrap(), [4_294_967_295.0]);
        assert_eq!(values("<i4", &[254, 255, 255, 255], 1).unwrap(), [-2.0]);
        assert_eq!(values("<i8", &(-5i64).to_le_bytes(), 1).unwrap(), [-5.0]);
        assert!(values("<i8", &i64::MAX.to_le_bytes(), 1).is_err());
        assert_eq!(values("<f4", &1.5f32.to_le_bytes(), 1).unwrap(), [1.5]);
        assert_eq!(values("<f8", &0.1f64.to_le_bytes(), 1).unwrap(), [0.1]);
    }

    #[test]
    fn data_must_fill_the_shape() {
        assert!(values("<f4", &[0; 7], 2).is_err());
        assert!(values("<f4", &[0; 12], 2).is_err());
        let huge = file("<f8", "(9223372036854775807, 4)", &[0; 8]);
        assert!(parse(&huge, Path::new("x.npy")).unwrap_err().to_string().contains("shape"));
    }
}
