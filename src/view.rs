//! Borrowed views with named axes, and the length check.
//!
//! Invariant: a view's buffer holds every element that its axes promise.

use crate::error::{Error, Result};

/// Fails unless `actual == expected`.
///
/// # Errors
/// [`Error::Shape`] naming `what`.
pub fn check_length(what: &'static str, expected: usize, actual: usize) -> Result<()> {
    if expected == actual { Ok(()) } else { Err(Error::Shape { what, expected, actual }) }
}

/// Fails unless `bytes` bytes can be allocated at once; `None` means that the count overflowed.
///
/// # Errors
/// [`Error::Unavailable`] naming `what` and the bytes.
pub fn check_memory(what: &str, bytes: Option<usize>) -> Result<()> {
    let missing = |bytes: String| Error::Unavailable {
        what: format!("memory for {what}"),
        why: format!("the system has no {bytes} bytes for it"),
    };
    let bytes = bytes.ok_or_else(|| missing("such number of".into()))?;
    // The memory is reserved and freed; no page is touched.
    Vec::<u8>::new().try_reserve_exact(bytes).map_err(|_| missing(bytes.to_string()))
}

/// A plane of trial dispersion measures: axes dm, time; one row of `stride` elements per trial.
#[derive(Clone, Copy, Debug)]
pub struct Plane<'a, T> {
    data: &'a [T],
    dms: usize,
    stride: usize,
    times: usize,
}

impl<'a, T> Plane<'a, T> {
    /// Makes a view of the first `times` elements of each of `dms` rows, `stride` elements apart.
    ///
    /// # Errors
    /// [`Error::Shape`] unless `data.len() == dms * stride` and `times <= stride`.
    pub fn new(data: &'a [T], dms: usize, stride: usize, times: usize) -> Result<Self> {
        check_length("plane (dm, time)", dms * stride, data.len())?;
        if times > stride {
            return Err(Error::Shape { what: "plane row", expected: stride, actual: times });
        }
        Ok(Self { data, dms, stride, times })
    }

    /// Returns the number of rows.
    pub fn dms(&self) -> usize {
        self.dms
    }

    /// Returns the valid elements per row.
    pub fn times(&self) -> usize {
        self.times
    }

    /// Returns the series of one trial.
    pub fn row(&self, dm: usize) -> &'a [T] {
        &self.data[dm * self.stride..][..self.times]
    }
}

/// A writable plane: axes dm, time; one row of `stride` elements per trial.
#[derive(Debug)]
pub struct PlaneMut<'a, T> {
    data: &'a mut [T],
    dms: usize,
    stride: usize,
}

impl<'a, T> PlaneMut<'a, T> {
    /// Makes a writable view of `dms` rows of `stride` elements.
    ///
    /// # Errors
    /// [`Error::Shape`] unless `data.len() == dms * stride`.
    pub fn new(data: &'a mut [T], dms: usize, stride: usize) -> Result<Self> {
        check_length("plane (dm, time)", dms * stride, data.len())?;
        Ok(Self { data, dms, stride })
    }

    /// Returns the number of rows.
    pub fn dms(&self) -> usize {
        self.dms
    }

    /// Returns the elements from one row to the next: the capacity of a row.
    pub fn stride(&self) -> usize {
        self.stride
    }

    /// Returns one trial's row, all `stride` elements.
    pub fn row_mut(&mut self, dm: usize) -> &mut [T] {
        &mut self.data[dm * self.stride..][..self.stride]
    }

    /// Returns the whole buffer of consecutive rows.
    pub fn data_mut(&mut self) -> &mut [T] {
        self.data
    }

    /// Reborrows the plane for a shorter lifetime.
    pub fn reborrow(&mut self) -> PlaneMut<'_, T> {
        PlaneMut { data: self.data, dms: self.dms, stride: self.stride }
    }
}

/// Progress of a stage in one call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Input times consumed; a stage consumes all its input unless its output is full.
    pub consumed: usize,
    /// Output times written.
    pub produced: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plane_must_match_its_buffer() {
        let data = [0u8; 12];
        assert!(Plane::new(&data, 3, 4, 4).is_ok());
        assert!(Plane::new(&data, 3, 4, 5).is_err());
        assert!(Plane::new(&data, 4, 4, 1).is_err());
        assert_eq!(Plane::new(&data, 3, 4, 2).unwrap().row(2).len(), 2);
    }
}
