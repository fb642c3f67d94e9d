//! A band's sums: narrow ones in the order of tiles, and the wide ones that they go into.

use std::ops::Range;

use super::clock::Clock;
use super::memory::Aligned;
use super::shape::{Band, ROW_SUMS};
use super::tile::Kind;

/// A vector's worth of one part.
const PART: usize = ROW_SUMS / 2;

/// A band's sums.
#[derive(Debug)]
pub(super) struct Sums {
    /// 32-bit integers or floats: row by row, real and imaginary; then those of the columns.
    pub(super) narrow: Aligned,
    /// 64-bit integers or floats, the products' only.
    wide: Aligned,
}

impl Sums {
    pub(super) fn new(band: &Band) -> Self {
        Self { narrow: Aligned::new(4 * band.sums()), wide: Aligned::new(8 * band.products) }
    }

    /// A row's integers with a panel of columns, real and imaginary: `at` says where, `column` where those
    /// of the columns are.
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
            let wide = &self.wide.values::<i64>()[at..][..ROW_SUMS];
            sums.iter_mut().zip(wide).for_each(|(sum, wide)| *sum += wide);
        }
        sums
    }

    /// The same of floats.
    #[inline(always)]
    pub(super) fn floats(&self, clock: Clock, at: usize) -> [f64; ROW_SUMS] {
        let mut sums = [0.0; ROW_SUMS];
        if clock.settled {
            sums.copy_from_slice(&self.wide.values()[at..][..ROW_SUMS]);
        }
        if clock.pending > 0 {
            let narrow = &self.narrow.values::<f32>()[at..][..ROW_SUMS];
            sums.iter_mut().zip(narrow).for_each(|(sum, narrow)| *sum += f64::from(*narrow));
        }
        sums
    }
}

/// What the integers are once the rows' offset is taken away.
#[inline(always)]
fn corrected(kind: Kind, narrow: &[i32], at: usize, column: usize) -> [i64; ROW_SUMS] {
    let (sums, columns) = (&narrow[at..][..ROW_SUMS], &narrow[column..][..ROW_SUMS]);
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

/// Narrow sums of some panels of columns go into the wide ones.
#[inline(always)]
pub(super) fn settle(
    kind: Kind,
    band: &Band,
    columns: Range<usize>,
    replace: bool,
    sums: &mut Sums,
) {
    for panel in band.panels.clone() {
        for column in columns.start..columns.end.min(panel + 1) {
            let first = band.at(panel, column);
            for at in (first..first + band.rows(panel) * ROW_SUMS).step_by(ROW_SUMS) {
                if kind == Kind::Float {
                    let narrow = &sums.narrow.values::<f32>()[at..][..ROW_SUMS];
                    let wide = &mut sums.wide.values_mut::<f64>()[at..][..ROW_SUMS];
                    for (wide, narrow) in wide.iter_mut().zip(narrow) {
                        *wide = f64::from(*narrow) + if replace { 0.0 } else { *wide };
                    }
                } else {
                    let narrow = corrected(kind, sums.narrow.values(), at, band.column(column));
                    let wide = &mut sums.wide.values_mut::<i64>()[at..][..ROW_SUMS];
                    for (wide, narrow) in wide.iter_mut().zip(narrow) {
                        *wide = narrow + if replace { 0 } else { *wide };
                    }
                }
            }
        }
    }
}
