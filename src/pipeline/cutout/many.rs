//! Cutouts of many candidates in one pass over a source.

use super::grid::{Grid, Shape, gulp_rows};
use super::{Cutout, Options, check};
use crate::error::{Error, Result};
use crate::io::FilterbankSource;
use crate::sample::unpack_f32;

/// Limit in bytes on the grids filled at the same time, unless a single one is larger.
const MOST_BYTES: usize = 256 << 20;

/// Cuts out the data around several candidates in one pass over a source at its first sample. `each` receives the
/// cutouts with their indices in `wanted`, in any order. Returns the indices of candidates for which memory did not
/// suffice beside the others; they need another pass.
///
/// # Errors
/// As [`cutout`](super::cutout) and `each`; [`Error::stopped`] when `goes_on`, called before each read, returns
/// false.
pub fn cutouts(
    source: &mut dyn FilterbankSource,
    wanted: &[Options],
    goes_on: &mut dyn FnMut() -> bool,
    each: &mut dyn FnMut(usize, Cutout) -> Result<()>,
) -> Result<Vec<usize>> {
    wanted.iter().try_for_each(|options| check(source, options))?;
    let header = source.header().clone();
    let shapes: Vec<Shape> = wanted.iter().map(|options| Shape::new(&header, options)).collect();
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    order.sort_by_key(|place| shapes[*place].start);
    let mut waiting = order.into_iter().peekable();
    let (mut open, mut left): (Vec<(usize, Grid)>, Vec<usize>) = (Vec::new(), Vec::new());
    let gulp = gulp_rows(&header);
    let mut rows = vec![0u8; gulp * header.row_bytes()];
    let mut spectrum = vec![0f32; header.channels()];
    let (mut row, mut is_over) = (0i64, false);
    loop {
        if !goes_on() {
            return Err(Error::stopped(&header.path));
        }
        if open.is_empty() {
            let Some(next) = waiting.peek() else { break };
            // Skipped in steps, so that a stop takes effect.
            let ahead = (shapes[*next].start - row).min(gulp as i64);
            if ahead > 0 && !is_over {
                let passed = source.skip(ahead as u64)?;
                row += passed as i64;
                is_over = passed < ahead as u64;
                continue;
            }
        }
        let begins = |place: &usize| is_over || shapes[*place].start < row + gulp as i64;
        while let Some(place) = waiting.next_if(begins) {
            let held: usize = open.iter().map(|(place, _)| shapes[*place].bytes()).sum();
            if open.is_empty() || held + shapes[place].bytes() <= MOST_BYTES {
                open.push((place, Grid::new(&header, &wanted[place])));
            } else {
                left.push(place);
            }
        }
        let got = if is_over { 0 } else { source.read(&mut rows)? };
        is_over |= got < gulp;
        for bytes in rows[..got * header.row_bytes()].chunks_exact(header.row_bytes()) {
            unpack_f32(bytes, header.encoding, &mut spectrum);
            for (place, grid) in &mut open {
                grid.add(row, &spectrum, wanted[*place].zero_dm);
            }
            row += 1;
        }
        let is_done = |place: usize| is_over || shapes[place].end <= row;
        let (done, rest) = open.into_iter().partition(|(place, _)| is_done(*place));
        open = rest;
        let done: Vec<(usize, Grid)> = done;
        for (place, mut grid) in done {
            grid.average();
            each(place, grid.cutout(&wanted[place]))?;
        }
    }
    Ok(left)
}
