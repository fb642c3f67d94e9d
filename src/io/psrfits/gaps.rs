//! Lost rows: jumps in OFFS_SUB, the time of each row's centre since the observation's start.
//!
//! Invariant: gaps are in order of their rows, and each is shorter than a day.

use std::io::{Read, Seek};

use super::layout::Layout;
use super::table::{Column, Table};
use crate::error::Result;
use crate::units::SECONDS_PER_DAY;

/// More samples than any observation has: sums of gaps stay far from overflow.
const MOST_TIMES: f64 = 1e15;

/// Samples missing before a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Gap {
    /// The row after the gap.
    pub(super) row: u64,
    /// Samples that are missing.
    pub(super) times: u64,
}

/// Where rows stand in time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Timing {
    /// Whole rows before the file's first, since the observation's start.
    pub(super) rows_before: u64,
    /// Jumps between rows.
    pub(super) gaps: Vec<Gap>,
}

/// Reads OFFS_SUB of every row; where it is 0 throughout, or missing, no row counts as lost.
///
/// # Errors
/// [`crate::Error::Format`] for a row that starts before the end of the one before it, for a gap of more
/// than a day, and for any gap unless `allow_gaps`.
pub(super) fn scan<R: Read + Seek>(
    input: &mut R,
    table: &Table,
    layout: &Layout,
    allow_gaps: bool,
) -> Result<Timing> {
    let Some(column) = table.column("OFFS_SUB") else { return Ok(Timing::default()) };
    let (mut scratch, mut cell) = (Vec::new(), Vec::new());
    let mut timing = Timing::default();
    let mut reference = 0.0;
    let mut lost = 0u64;
    for row in 0..table.rows {
        table.read_reals(input, (column, row), &mut scratch, &mut cell)?;
        let offset_s = cell[0];
        if row == 0 {
            reference = offset_s;
            timing.rows_before = rows_before(offset_s, layout);
            continue;
        }
        if offset_s == 0.0 && reference == 0.0 {
            continue;
        }
        let expected = (row * layout.block_times + lost) as f64;
        let missing = (offset_s - reference) / layout.tsamp_s - expected;
        let is_last = row + 1 == table.rows;
        let times = check_jump(table, (column, row), (missing, expected), is_last, layout)?;
        if times > 0 && !allow_gaps {
            let why = format!(
                "row {row} starts {times} samples ({} s) after the end of row {}; --allow-gaps fills them",
                times as f64 * layout.tsamp_s,
                row - 1
            );
            return Err(table.fault(column, row, why));
        }
        if times > 0 {
            timing.gaps.push(Gap { row, times });
            lost += times;
        }
    }
    Ok(timing)
}

/// Whole rows before the first by its OFFS_SUB, as PRESTO's psrfits.c counts them.
fn rows_before(offset_s: f64, layout: &Layout) -> u64 {
    let row_s = layout.block_times as f64 * layout.tsamp_s;
    let rows = (offset_s / row_s - 0.5 + 1e-7).floor();
    if rows > 0.0 && rows < 1e9 { rows as u64 } else { 0 }
}

/// Missing samples as a whole number: within half a sample rows are contiguous.
fn check_jump(
    table: &Table,
    at: (&Column, u64),
    late: (f64, f64),
    is_last: bool,
    layout: &Layout,
) -> Result<u64> {
    let (column, row) = at;
    let (missing, expected) = late;
    // A last row may give the centre of its valid samples, which is earlier.
    let early = if is_last { layout.block_times as f64 / 2.0 } else { 0.5 };
    if missing < -early - 1e-3 {
        let why = format!(
            "row {row} starts {:.1} samples before the end of row {}, expected rows in order of time",
            -missing,
            row - 1
        );
        return Err(table.fault(column, row, why));
    }
    if missing * layout.tsamp_s > SECONDS_PER_DAY || missing + expected > MOST_TIMES {
        let why =
            format!("row {row} starts {:.0} s late, more than a day", missing * layout.tsamp_s);
        return Err(table.fault(column, row, why));
    }
    Ok(if missing <= 0.5 { 0 } else { missing.round() as u64 })
}
