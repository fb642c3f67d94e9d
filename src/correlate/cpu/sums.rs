//! Sums of a band: narrow (32-bit) sums in the layout of tiles, wide (64-bit) sums to which they are added, counts of
//! valid samples, and read-out.
#![allow(unsafe_code)]

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ops::Range;
use std::ptr::NonNull;

use bytemuck::Pod;
use num_complex::Complex;

use super::super::plan::{LANES, Plan};
use super::bands::{Band, Channel, Clock, ROW_SUMS};
use super::tile::{Kind, LINE, ROWS};
use crate::error::{Error, Result};

/// Number of real (or imaginary) sums of one row with a panel.
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
        if clock.folded {
            sums = added(sums, row(self.wide.values(), at), |a, b| a + b);
        }
        sums
    }

    /// Like `integers`, for floats.
    #[inline(always)]
    pub(super) fn floats(&self, clock: Clock, at: usize) -> [f64; ROW_SUMS] {
        let mut sums = [0.0; ROW_SUMS];
        if clock.folded {
            sums = *row(self.wide.values(), at);
        }
        if clock.pending > 0 {
            let narrow = row(self.narrow.values::<f32>(), at).map(f64::from);
            sums = added(narrow, &sums, |a, b| a + b);
        }
        sums
    }
}

/// Returns narrow integer sums, corrected for the offset of the rows.
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
pub(super) fn fold(kind: Kind, sums: &mut Sums, at: usize, column: usize, replace: bool) {
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

/// Valid samples of a band's baselines.
#[derive(Debug)]
pub(super) struct Counts {
    /// Valid samples common to all baselines.
    all: u64,
    /// Further valid samples of each baseline; zeros unless `some`.
    each: Vec<u64>,
    some: bool,
    /// Index of the band's first baseline.
    first: usize,
}

impl Counts {
    pub(super) fn new(band: &Band) -> Self {
        let first = Plan::baseline(band.antennas.start, 0);
        let last = Plan::baseline(band.antennas.end, 0);
        Self { all: 0, each: vec![0; last - first], some: false, first }
    }

    /// Returns the bytes of a band's counts.
    pub(super) fn bytes(band: &Band) -> usize {
        let first = Plan::baseline(band.antennas.start, 0);
        size_of::<u64>() * (Plan::baseline(band.antennas.end, 0) - first)
    }

    pub(super) fn reset(&mut self) {
        if self.some {
            self.each.fill(0);
        }
        (self.all, self.some) = (0, false);
    }

    /// Returns the valid samples of one of the band's baselines.
    pub(super) fn baseline(&self, baseline: usize) -> u64 {
        self.all + self.each[baseline - self.first]
    }

    /// Counts a channel's valid samples; `valid` is scratch memory for one number per antenna.
    pub(super) fn add(&mut self, band: &Band, channel: Channel<'_>, valid: &mut [u64]) {
        let times = channel.block.times() as u64;
        let mask = |antenna| channel.block.mask(channel.plan, channel.channel, antenna);
        let mut whole = true;
        for (antenna, valid) in valid.iter_mut().enumerate().take(band.antennas.end) {
            let Some(mask) = mask(antenna) else { break };
            *valid = common(mask, mask, channel.block.times());
            whole &= *valid == times;
        }
        if whole {
            self.all += times;
            return;
        }
        self.some = true;
        let mut each = self.each.iter_mut();
        for i in band.antennas.clone() {
            for j in 0..=i {
                let (Some(count), Some(a), Some(b)) = (each.next(), mask(i), mask(j)) else {
                    return;
                };
                *count += if valid[i] == times {
                    valid[j]
                } else if valid[j] == times || i == j {
                    valid[i]
                } else {
                    common(a, b, channel.block.times())
                };
            }
        }
    }
}

/// Counts the times that are valid in both masks.
fn common(a: &[u64], b: &[u64], times: usize) -> u64 {
    let words = a.iter().zip(b).take(times / 64);
    let mut count: u64 = words.map(|(a, b)| u64::from((a & b).count_ones())).sum();
    if !times.is_multiple_of(64) {
        let last = (a[times / 64] & b[times / 64]) << (64 - times % 64);
        count += u64::from(last.count_ones());
    }
    count
}

/// Sums of a band, for read-out.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reader<'a> {
    pub(super) plan: &'a Plan,
    pub(super) band: &'a Band,
    pub(super) sums: &'a Sums,
    pub(super) kind: Kind,
    pub(super) clock: Clock,
}

impl Reader<'_> {
    /// Writes the baselines of antenna `i` with antennas `others`.
    pub(super) fn integers(&self, i: usize, others: Range<usize>, output: &mut [Complex<i64>]) {
        self.write(i, others, output, |at, column| {
            self.sums.integers(self.kind, self.clock, at, column)
        });
    }

    /// Like `integers`, for floats.
    pub(super) fn floats(&self, i: usize, others: Range<usize>, output: &mut [Complex<f64>]) {
        self.write(i, others, output, |at, _| self.sums.floats(self.clock, at));
    }

    #[inline(always)]
    fn write<T: Copy>(
        &self,
        i: usize,
        others: Range<usize>,
        output: &mut [Complex<T>],
        sums: impl Fn(usize, usize) -> [T; ROW_SUMS],
    ) {
        let polarizations = self.plan.polarizations();
        let antennas = LANES / polarizations;
        let (panel, pairs) = (i / antennas, self.plan.pairs());
        let mut j = others.start;
        while j < others.end {
            let column = j / antennas;
            let end = others.end.min((column + 1) * antennas);
            let output = &mut output[(j - others.start) * pairs..(end - others.start) * pairs];
            for p in 0..polarizations {
                let row = (i * polarizations + p) % LANES;
                let at = self.band.at(panel, column) + row * ROW_SUMS;
                let sums = sums(at, self.band.column(column));
                let (re, im) = sums.split_at(ROW_SUMS / 2);
                let first = (j % antennas) * polarizations;
                let (re, im) = (&re[first..], &im[first..]);
                if polarizations == 1 {
                    for (to, (re, im)) in output.iter_mut().zip(re.iter().zip(im)) {
                        *to = Complex::new(*re, *im);
                    }
                } else {
                    let parts = re.as_chunks::<2>().0.iter().zip(im.as_chunks::<2>().0);
                    for (to, (re, im)) in output.as_chunks_mut::<4>().0.iter_mut().zip(parts) {
                        to[2 * p] = Complex::new(re[0], im[0]);
                        to[2 * p + 1] = Complex::new(re[1], im[1]);
                    }
                }
            }
            j = end;
        }
    }
}

/// Memory aligned to a cache line and initially zero; pages are allocated when first touched.
pub(super) struct Aligned {
    start: NonNull<u8>,
    layout: Layout,
}

// SAFETY: the value owns the bytes, and they are reachable through it only.
unsafe impl Send for Aligned {}
// SAFETY: as above.
unsafe impl Sync for Aligned {}

impl std::fmt::Debug for Aligned {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes", self.layout.size())
    }
}

impl Drop for Aligned {
    fn drop(&mut self) {
        // SAFETY: the memory was allocated with this layout.
        unsafe { dealloc(self.start.as_ptr(), self.layout) };
    }
}

impl Aligned {
    /// Allocates memory; `what` names it in errors.
    ///
    /// # Errors
    /// [`Error::Unavailable`] when the system lacks memory.
    pub(super) fn new(what: &str, length: usize) -> Result<Self> {
        let missing = || Error::Unavailable {
            what: format!("memory for {what}"),
            why: format!("the system has no {length} bytes for it"),
        };
        let layout = Layout::from_size_align(length.max(LINE), LINE).map_err(|_| missing())?;
        // SAFETY: the layout has a nonzero size.
        let start = unsafe { alloc_zeroed(layout) };
        Ok(Self { start: NonNull::new(start).ok_or_else(missing)?, layout })
    }

    /// Returns the address of the first byte.
    pub(super) fn pointer(&mut self) -> *mut u8 {
        self.start.as_ptr()
    }

    pub(super) fn values<T: Pod>(&self) -> &[T] {
        // SAFETY: all bytes are initialized at allocation and live as long as `self`.
        bytemuck::cast_slice(unsafe {
            std::slice::from_raw_parts(self.start.as_ptr(), self.layout.size())
        })
    }

    pub(super) fn values_mut<T: Pod>(&mut self) -> &mut [T] {
        // SAFETY: as above, and `self` is borrowed exclusively.
        bytemuck::cast_slice_mut(unsafe {
            std::slice::from_raw_parts_mut(self.start.as_ptr(), self.layout.size())
        })
    }
}
