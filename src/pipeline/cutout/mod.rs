//! Data around one candidate, scaled to the size of a plot.
//!
//! Invariant: the file is read once and in order, a gulp at a time; what is kept has the size of the
//! plot and not of the recording.

mod grid;
mod options;
mod plane;

pub use options::Options;

use crate::error::{Error, Result};
use crate::io::FilterbankSource;
use crate::sample::unpack_f32;
use grid::{Grid, Shape, gulp_rows};
use options::check;

/// Limit in bytes on the grids filled at the same time, unless a single one is larger.
const MOST_BYTES: usize = 256 << 20;

/// Data around a candidate, highest frequency first.
#[derive(Clone, Debug, PartialEq)]
pub struct Cutout {
    /// Dedispersed power of each sub-band in standard deviations; axes channel, time. NaN without data.
    pub waterfall: Vec<f32>,
    /// Sub-bands of the waterfall.
    pub channels: usize,
    /// Time bins.
    pub times: usize,
    /// Upper edge of the band in MHz.
    pub highest_mhz: f64,
    /// Lower edge of the band in MHz.
    pub lowest_mhz: f64,
    /// Start of the first bin in seconds relative to the candidate's time (negative).
    pub start_s: f64,
    /// Length of a time bin in seconds.
    pub bin_s: f64,
    /// Series at the candidate's dispersion measure, in standard deviations of a bin.
    pub profile: Vec<f32>,
    /// Trials of the DM-time plane.
    pub dms: Vec<f64>,
    /// Series of each trial, in standard deviations of a bin; axes dm, time.
    pub plane: Vec<f32>,
    /// Highest S/N of the candidate's boxcar near its time, one per trial.
    pub snr: Vec<f32>,
}

/// Cuts out the data around a candidate, from a source at its first sample.
///
/// The band is first dedispersed into sub-bands at the candidate's dispersion measure; other trials shift whole
/// sub-bands. Far from the candidate the plane is therefore coarser than a search's.
///
/// # Errors
/// [`Error::Parameter`] for invalid options; errors of the source's reads.
pub fn cutout(source: &mut dyn FilterbankSource, options: &Options) -> Result<Cutout> {
    check(source, options)?;
    let mut grid = Grid::new(source.header(), options);
    grid.read(source, options)?;
    Ok(grid.cutout(options))
}

/// Cuts out the data around several candidates in one pass over a source at its first sample. `each` receives the
/// cutouts with their indices in `wanted`, in any order. Returns the indices of candidates for which memory did not
/// suffice beside the others; they need another pass.
///
/// # Errors
/// As [`cutout`] and `each`; [`Error::stopped`] when `goes_on`, called before each read, returns
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

#[cfg(test)]
mod tests;
