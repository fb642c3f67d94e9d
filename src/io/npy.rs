//! NumPy's `.npy` files: arrays of one or two axes, little endian.
//!
//! Invariant: every header written here has [`HEADER_BYTES`] bytes, so that its shape can be set at the end, and data
//! begin at a multiple of 64 bytes.
//!
//! # Source
//! NumPy's `numpy.lib.format`, versions 1.0 to 3.0.

use std::io::Read;
use std::path::Path;

use crate::error::{Error, Result};
use crate::io::atomic;
use crate::io::atomic::AtomicFile;
use crate::view::check_length;

/// Length of every header written here.
pub const HEADER_BYTES: usize = 128;

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
    fn encode_f32(shape: &[u64], is_fortran: bool) -> Vec<u8> {
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
    super::compressed::open(path)?
        .read_to_end(&mut bytes)
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

/// Fastest axis of a two-axis array in the file, whose length must be known beforehand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// The last axis: rows are appended, the shape is (rows written, fixed).
    C,
    /// The first axis (`fortran_order`): columns are appended, the shape is (fixed, columns written).
    Fortran,
}

/// Unfinished two-axis array; [`Writer::finish`] sets the length of its growing axis.
#[derive(Debug)]
pub struct Writer {
    file: AtomicFile,
    fixed: usize,
    order: Order,
    written: u64,
}

impl Writer {
    /// Creates an array whose fastest axis has `fixed` elements.
    ///
    /// # Errors
    /// [`crate::Error::Parameter`] for an axis of 0; [`crate::Error::Io`].
    pub fn create(path: &Path, fixed: usize, order: Order) -> Result<Self> {
        if fixed == 0 {
            return Err(crate::Error::parameter("array axis", fixed, "it must have elements"));
        }
        let mut file = AtomicFile::create(path)?;
        file.append(&Header::encode_f32(&[0, 0], false))?;
        Ok(Self { file, fixed, order, written: 0 })
    }

    /// Creates or continues an array in place: the file has its final name from the start, and a drop keeps it. Keeps
    /// the first `written` rows or columns of an existing array.
    ///
    /// # Errors
    /// As [`Writer::create`]; [`crate::Error::Format`] if the file has fewer.
    pub fn in_place(path: &Path, fixed: usize, order: Order, written: u64) -> Result<Self> {
        if fixed == 0 {
            return Err(crate::Error::parameter("array axis", fixed, "it must have elements"));
        }
        let header = Header::encode_f32(&[0, 0], false);
        let data = written.saturating_mul(4 * fixed as u64);
        let file = AtomicFile::in_place(path, &header, data)?;
        Ok(Self { file, fixed, order, written })
    }

    /// Truncates the array to its first `written` rows or columns, for example after a write that failed partway.
    ///
    /// # Errors
    /// [`crate::Error::Io`].
    pub fn cut(&mut self, written: u64) -> Result<()> {
        self.written = written;
        self.file.cut(HEADER_BYTES as u64 + written * 4 * self.fixed as u64)
    }

    /// Flushes and closes the file handle until the next write.
    ///
    /// # Errors
    /// [`crate::Error::Io`].
    pub fn release(&mut self) -> Result<()> {
        self.file.release()
    }

    /// Appends whole rows ([`Order::C`]) or columns ([`Order::Fortran`]), stored consecutively.
    ///
    /// # Errors
    /// [`crate::Error::Shape`] unless `values` is a multiple of the fixed axis; [`crate::Error::Io`].
    pub fn write(&mut self, values: &[f32]) -> Result<()> {
        let lines = values.len() / self.fixed;
        check_length("values of the array", lines * self.fixed, values.len())?;
        self.file.append(bytemuck::cast_slice(values))?;
        self.written += lines as u64;
        Ok(())
    }

    /// Writes the shape and renames the file to its final name.
    ///
    /// # Errors
    /// [`crate::Error::Io`].
    pub fn finish(mut self) -> Result<()> {
        let fixed = self.fixed as u64;
        let header = match self.order {
            Order::C => Header::encode_f32(&[self.written, fixed], false),
            Order::Fortran => Header::encode_f32(&[fixed, self.written], true),
        };
        self.file.rewrite_start(&header)?;
        self.file.commit()
    }
}

/// Writes a whole array in C order.
///
/// # Errors
/// [`crate::Error::Shape`] unless `values` fills `shape`; [`crate::Error::Io`].
pub fn write_f32(path: &Path, shape: &[usize], values: &[f32]) -> Result<()> {
    check_length("values of the array", shape.iter().product(), values.len())?;
    let axes: Vec<u64> = shape.iter().map(|axis| *axis as u64).collect();
    let mut bytes = Header::encode_f32(&axes, false);
    bytes.extend(values.iter().flat_map(|value| value.to_le_bytes()));
    atomic::write(path, &bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_header(bytes: &[u8]) -> Result<Header> {
        Header::parse(bytes, Path::new("x.npy"))
    }

    fn with(text: &str) -> Result<Header> {
        let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
        bytes.extend_from_slice(&(text.len() as u16).to_le_bytes());
        bytes.extend_from_slice(text.as_bytes());
        parse_header(&bytes)
    }

    #[test]
    fn our_own_headers_parse() {
        for (shape, axes) in
            [(&[7u64][..], vec![7]), (&[3, u64::MAX >> 1], vec![3, usize::MAX >> 1])]
        {
            for is_fortran in [false, true] {
                let bytes = Header::encode_f32(shape, is_fortran);
                assert_eq!(bytes.len(), HEADER_BYTES);
                let header = parse_header(&bytes).unwrap();
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
        assert!(parse_header(b"").is_err() && parse_header(b"\x93NUMPY").is_err());
        assert!(parse_header(b"\x93NUMPY\x04\0\0\0\0\0").is_err());
        assert!(parse_header(b"\x93NUMPY\x02\0\xff\xff\xff\xff").is_err());
    }

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

    #[test]
    fn rows_grow_to_an_array() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.npy");
        let mut writer = Writer::create(&path, 3, Order::C).unwrap();
        writer.write(&[1.0, 2.0, 3.0]).unwrap();
        writer.write(&[4.0, 5.0, 6.0, 7.0, 8.0, 9.0]).unwrap();
        assert!(writer.write(&[1.0]).is_err());
        writer.finish().unwrap();
        let array = read(&path).unwrap();
        assert_eq!(array.shape, [3, 3]);
        assert_eq!(array.values, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0]);
    }

    #[test]
    fn an_array_goes_on_in_place() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.npy");
        let data: Vec<f32> = (0..20).map(|k| k as f32).collect();
        let mut writer = Writer::in_place(&path, 2, Order::Fortran, 0).unwrap();
        writer.write(&data[..12]).unwrap();
        writer.release().unwrap();
        drop(writer);
        assert!(Writer::in_place(&path, 2, Order::Fortran, 7).is_err());
        let mut writer = Writer::in_place(&path, 2, Order::Fortran, 4).unwrap();
        writer.write(&data).unwrap();
        writer.cut(4).unwrap();
        writer.write(&data[8..]).unwrap();
        writer.finish().unwrap();
        let array = read(&path).unwrap();
        assert_eq!(array.shape, [2, 10]);
        assert_eq!(array.values[..10], [0., 2., 4., 6., 8., 10., 12., 14., 16., 18.]);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn whole_arrays_are_written_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.npy");
        write_f32(&path, &[5], &[0.5; 5]).unwrap();
        assert_eq!(read(&path).unwrap().shape, [5]);
        assert!(write_f32(&path, &[2, 2], &[0.5; 5]).is_err());
        assert!(Writer::create(&path, 0, Order::C).is_err());
    }
}
