//! Sums of a band: narrow ones in the layout of tiles, and the wide ones that they are added to.

use super::clock::Clock;
use super::memory::Aligned;
use super::shape::{Band, ROW_SUMS};
use super::tile::{Kind, ROWS};
use crate::error::Result;

/// Real, or imaginary, sums of one row with a panel.
const PART: usize = ROW_SUMS / 2;

/// Narrow and wide sums of a band.
#[derive(Debug)]
pub(super) struct Sums {
    /// 32-bit integers or floats: products row by row, real then imaginary; then the column sums.
    pub(super) narrow: Aligned,
    /// 64-bit integers or floats, of the products only.
    pub(super) wide: Aligned,
}

impl Sums {
    pub(super) fn new(band: &Band) -> Result<Self> {
        let new = |length| Aligned::new("the sums of all channels", length);
        Ok(Self { narrow: new(4 * band.sums())?, wide: new(8 * band.products)? })
    }

    /// Returns the bytes of a band's sums.
    pub(super) fn bytes(band: &Band) -> usize {
        4 * band.sums() + 8 * band.products
    }

    /// Returns the integer sums of a row with a panel of columns, real and imaginary. `at` is the index of the sums,
    /// `column` that of the column sums.
    #[inline(always)]
    pub(super) fn integers(
        &self,
        kind: Kind,
        clock: Clock,
        at: usize,
        column: usize,
    ) -> [i64; ROW_SUMS] {
        let mut sums = [0; ROW_SUMS];
        if clock.pending > 0 {
            sums = corrected(kind, self.narrow.values(), at, column);
        }
        if clock.settled {
            sums = added(sums, row(self.wide.values(), at), |a, b| a + b);
        }
        sums
    }

    /// Like `integers`, for floats.
    #[inline(always)]
    pub(super) fn floats(&self, clock: Clock, at: usize) -> [f64; ROW_SUMS] {
        let mut sums = [0.0; ROW_SUMS];
        if clock.settled {
            sums = *row(self.wide.values(), at);
        }
        if clock.pending > 0 {
            let narrow = row(self.narrow.values::<f32>(), at).map(f64::from);
            sums = added(narrow, &sums, |a, b| a + b);
        }
        sums
    }
}

/// Returns narrow integer sums without the offset of the rows.
#[inline(always)]
fn corrected(kind: Kind, narrow: &[i32], at: usize, column: usize) -> [i64; ROW_SUMS] {
    let (sums, columns) = (row(narrow, at), row(narrow, column));
    let mut result = [0; ROW_SUMS];
    for lane in 0..PART {
        let (mut re, mut im) = (sums[lane], sums[PART + lane]);
        if kind == Kind::Offset {
            let offset = columns[lane].wrapping_mul(128);
            re = re.wrapping_sub(offset);
            im = im.wrapping_sub(offset).wrapping_add(columns[PART + lane]);
        }
        (result[lane], result[PART + lane]) = (i64::from(re), i64::from(im));
    }
    result
}

/// Adds the narrow sums of one group of rows from `at` on to the wide ones; `column` is the index of the column sums.
#[inline(always)]
pub(super) fn settle(kind: Kind, sums: &mut Sums, at: usize, column: usize, replace: bool) {
    for at in (at..at + ROWS * ROW_SUMS).step_by(ROW_SUMS) {
        if kind == Kind::Float {
            let narrow = row(sums.narrow.values::<f32>(), at).as_chunks::<8>().0;
            let wide = row_mut(sums.wide.values_mut::<f64>(), at).as_chunks_mut::<8>().0;
            for (wide, narrow) in wide.iter_mut().zip(narrow) {
                let before = if replace { [0.0; 8] } else { *wide };
                *wide = std::array::from_fn(|k| before[k] + f64::from(narrow[k]));
            }
        } else {
            let narrow = corrected(kind, sums.narrow.values(), at, column);
            let wide = row_mut(sums.wide.values_mut::<i64>(), at);
            *wide = if replace { narrow } else { added(narrow, wide, |a, b| a + b) };
        }
    }
}

/// Returns the sums of a row with a panel of columns as an array, so that the compiler vectorizes.
#[inline(always)]
fn row<T>(sums: &[T], at: usize) -> &[T; ROW_SUMS] {
    &sums[at..].as_chunks().0[0]
}

/// Like [`row`], mutable.
#[inline(always)]
fn row_mut<T>(sums: &mut [T], at: usize) -> &mut [T; ROW_SUMS] {
    &mut sums[at..].as_chunks_mut().0[0]
}

#[inline(always)]
fn added<T: Copy>(
    mut sums: [T; ROW_SUMS],
    others: &[T; ROW_SUMS],
    add: impl Fn(T, T) -> T,
) -> [T; ROW_SUMS] {
    for k in 0..ROW_SUMS {
        sums[k] = add(sums[k], others[k]);
    }
    sums
}
