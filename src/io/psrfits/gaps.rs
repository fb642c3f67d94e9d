//! Lost rows: jumps in OFFS_SUB, the time of each row's centre since the observation's start.
//!
//! Invariant: gaps are in order of their rows, and each is shorter than a day.

use std::io::{Read, Seek};

use super::layout::Layout;
use super::table::{Column, Table};
use crate::error::Result;
use crate::units::SECONDS_PER_DAY;

/// Upper bound on the samples of an observation, which keeps sums of gaps from overflowing.
const MOST_TIMES: f64 = 1e15;

/// Samples missing before a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Gap {
    /// Row after the gap.
    pub(super) row: u64,
    /// Number of missing samples.
    pub(super) times: u64,
}

/// Time of the rows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Timing {
    /// Whole rows between the observation's start and the file's first row.
    pub(super) rows_before: u64,
    /// Jumps between rows.
    pub(super) gaps: Vec<Gap>,
}

/// Reads OFFS_SUB of every row. If it is 0 in all rows, or missing, no row counts as lost.
///
/// # Errors
/// [`crate::Error::Format`] for a row that starts before the end of the one before it, for a gap of more than a day,
/// and for any gap unless `allow_gaps`.
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

/// Returns the whole rows before the first from its OFFS_SUB, as in PRESTO's psrfits.c.
fn rows_before(offset_s: f64, layout: &Layout) -> u64 {
    let row_s = layout.block_times as f64 * layout.tsamp_s;
    let rows = (offset_s / row_s - 0.5 + 1e-7).floor();
    if rows > 0.0 && rows < 1e9 { rows as u64 } else { 0 }
}

/// Returns the whole number of missing samples; rows within half a sample are contiguous.
fn check_jump(
    table: &Table,
    at: (&Column, u64),
    late: (f64, f64),
    is_last: bool,
    layout: &Layout,
) -> Result<u64> {
    let (column, row) = at;
    let (missing, expected) = late;
    // OFFS_SUB of a last, partly valid row may be the centre of its valid samples, which is earlier.
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
