//! Streaming writer of `.npy` files of 32-bit floats.
//!
//! Invariant: the header's length does not change when the shape becomes known.

use std::path::Path;

use super::header::Header;
use crate::error::Result;
use crate::io::atomic::{self, AtomicFile};
use crate::view::{Plane, check_length};

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
    bytes: Vec<u8>,
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
        Ok(Self { file, fixed, order, written: 0, bytes: Vec::new() })
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
        Ok(Self { file, fixed, order, written, bytes: Vec::new() })
    }

    /// Truncates the array to its first `written` rows or columns, for example after a write that failed partway.
    ///
    /// # Errors
    /// [`crate::Error::Io`].
    pub fn cut(&mut self, written: u64) -> Result<()> {
        self.written = written;
        self.file.cut(super::HEADER_BYTES as u64 + written * 4 * self.fixed as u64)
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
        self.bytes.clear();
        self.bytes.extend(values.iter().flat_map(|value| value.to_le_bytes()));
        self.written += lines as u64;
        self.file.append(&self.bytes)
    }

    /// Appends a block of dedispersed series (axes dm, time) after earlier times of the same trials, for an array of
    /// axes dm, time in [`Order::Fortran`].
    ///
    /// # Errors
    /// [`crate::Error::Shape`] unless the block has one row for each element of the fixed axis;
    /// [`crate::Error::Parameter`] in [`Order::C`]; [`crate::Error::Io`].
    pub fn write_times(&mut self, block: Plane<'_, f32>) -> Result<()> {
        check_length("rows of the block (dm)", self.fixed, block.dms())?;
        if self.order == Order::C {
            let rule = "times can only be appended to an array in Fortran order";
            return Err(crate::Error::parameter("array order", "C", rule));
        }
        // 16 columns at a time: reads of each row cover whole cache lines.
        for start in (0..block.times()).step_by(16) {
            let times = 16.min(block.times() - start);
            self.bytes.clear();
            self.bytes.resize(4 * times * self.fixed, 0);
            for dm in 0..self.fixed {
                for (time, value) in block.row(dm)[start..start + times].iter().enumerate() {
                    let at = 4 * (time * self.fixed + dm);
                    self.bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
                }
            }
            self.file.append(&self.bytes)?;
        }
        self.written += block.times() as u64;
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
    use super::super::read;
    use super::*;

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
    fn times_grow_behind_their_trials() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.npy");
        let mut writer = Writer::create(&path, 2, Order::Fortran).unwrap();
        let data: Vec<f32> = (0..100).map(|k| k as f32).collect();
        writer.write_times(Plane::new(&data, 2, 50, 37).unwrap()).unwrap();
        writer.write_times(Plane::new(&data, 2, 50, 2).unwrap()).unwrap();
        assert!(writer.write_times(Plane::new(&data, 4, 25, 2).unwrap()).is_err());
        writer.finish().unwrap();
        let array = read(&path).unwrap();
        assert_eq!(array.shape, [2, 39]);
        let row: Vec<f64> = (0..37).chain(0..2).map(f64::from).collect();
        assert_eq!(array.values[..39], row);
        assert_eq!(array.values[39], 50.0);
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
