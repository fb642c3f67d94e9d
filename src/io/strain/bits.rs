//! GWOSC's per-second bit masks, for copying from file to file.
//!
//! # Source
//! As [`super::quality`].

use std::path::Path;

use super::gwosc_writer::{INJECTION_BITS, QUALITY_BITS};
use super::header::OpenOptions;
use super::quality::{LONGEST_MASK, whole_second};
use super::series::Input;
use super::{gwf, hdf5};
use crate::error::Result;
use crate::io::gwf::{Gwf, is_gwf};

/// Bit masks of every second of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bits {
    /// Quality masks, in order of time: the first GPS second of a piece, and the masks from it on, with the bits of
    /// [`QUALITY_BITS`].
    pub quality: Vec<(i64, Vec<u32>)>,
    /// Injection masks likewise, with the bits of [`INJECTION_BITS`].
    pub injections: Vec<(i64, Vec<u32>)>,
}

/// Reads the bit masks of the strain in a file; empty for a file without masks.
///
/// # Errors
/// [`crate::Error::Format`] for damaged masks, or steps other than whole seconds.
pub fn bits(path: &Path, options: &OpenOptions) -> Result<Bits> {
    if is_gwf(path) {
        let file = Gwf::open(path)?;
        let name = gwf::choose(&file, path, options)?;
        return Ok(Bits {
            quality: gwf::mask_of(&file, &name, gwf::QUALITY, path)?,
            injections: gwf::mask_of(&file, &name, gwf::INJECTIONS, path)?,
        });
    }
    let Ok(input) = Input::open(path) else { return Ok(Bits::default()) };
    if !input.has(hdf5::STRAIN) {
        return Ok(Bits::default());
    }
    let start_s = match input.series(hdf5::STRAIN)?.number("Xstart")? {
        Some(start_s) => start_s,
        None => input.number("meta/GPSstart")?,
    };
    let mask = |group: &str, name: &str, known: &[(&str, &str)]| {
        let (mask, names) =
            (format!("quality/{group}/{name}mask"), format!("quality/{group}/{name}Shortnames"));
        if !input.has(&mask) {
            return Ok(Vec::new());
        }
        let series = input.series(&mask)?;
        let first_s = series.number("Xstart")?.unwrap_or(start_s);
        let spacing_s = series.number("Xspacing")?.unwrap_or(1.0);
        let first_s = whole_second(spacing_s, first_s).map_err(|why| input.fault(&mask, why))?;
        // The bit order differs between observing runs.
        let theirs = input.texts(&names)?;
        let place = |name: &str| theirs.iter().position(|known| known == name);
        let places: Vec<Option<usize>> = known.iter().map(|(name, _)| place(name)).collect();
        let ours = |number: &f64| {
            let has =
                |place: Option<usize>| place.is_some_and(|bit| *number as u64 >> bit & 1 == 1);
            let set = places.iter().enumerate().filter(|(_, place)| has(**place));
            set.fold(0_u32, |bits, (bit, _)| bits | 1 << bit)
        };
        Ok(vec![(first_s, series.read_all(LONGEST_MASK)?.iter().map(ours).collect())])
    };
    Ok(Bits {
        quality: mask("simple", "DQ", &QUALITY_BITS)?,
        injections: mask("injections", "Inj", &INJECTION_BITS)?,
    })
}

impl Bits {
    /// Returns whether there are no quality masks.
    pub fn is_empty(&self) -> bool {
        self.quality.is_empty()
    }

    /// Copies pieces into the masks of consecutive seconds from `start_s` on.
    pub fn copy(pieces: &[(i64, Vec<u32>)], start_s: i64, seconds: &mut [u32]) {
        for (first_s, bits) in pieces {
            for (second, bits) in (*first_s..).zip(bits) {
                let place = usize::try_from(second - start_s).ok();
                if let Some(place) = place.filter(|place| *place < seconds.len()) {
                    seconds[place] = *bits;
                }
            }
        }
    }
}
