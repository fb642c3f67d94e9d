//! Repeated search of a recording held in a GPU's memory, without the copy over the bus.

use std::time::Instant;

use super::super::cleaning::Cleaning;
use super::super::ending::Ending;
use super::device::Stage;
use super::{Outcome, Report, SearchOptions, Setup};
use crate::backend::Backend;
use crate::backend::cuda::Buffer;
use crate::error::{Error, Result};
use crate::io::FilterbankSource;

/// Recording whose rows are all in a GPU's memory, with its search, limited to whole bursts:
/// [`SearchOptions::min_band`] has no effect.
pub struct Resident {
    setup: Setup,
    stage: Stage,
    /// Rows of each gulp, and their number.
    gulps: Vec<(Buffer<u8>, usize)>,
    gaps: Vec<crate::io::Gap>,
}

impl std::fmt::Debug for Resident {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Resident").field("gulps", &self.gulps.len()).finish_non_exhaustive()
    }
}

impl Resident {
    /// Reads all rows of a source into the memory of the backend's GPU.
    ///
    /// # Errors
    /// [`Error::Unavailable`] when the backend is not a GPU, or its memory is too small; as [`super::search`].
    pub fn new(
        source: &mut dyn FilterbankSource,
        options: &SearchOptions,
        backend: &Backend,
    ) -> Result<Self> {
        let Backend::Cuda(device, _) = backend else {
            let what = format!("a recording in the memory of {}", backend.name());
            return Err(Error::Unavailable { what, why: "that takes a GPU".to_owned() });
        };
        let mut setup = Setup::new(source, options, backend, &mut |_| true)?;
        let parts = (&setup.cleaning, setup.part);
        let (stage, gulp) =
            Stage::resident(device, &setup.header, parts, &setup.ranges, options.gulp)?;
        let row_bytes = setup.header.row_bytes();
        let mut rows = vec![0; gulp * row_bytes];
        let mut gulps = Vec::new();
        loop {
            let times = filled(&mut setup.cleaning, source, (&mut rows, row_bytes))?;
            if times == 0 {
                break;
            }
            gulps.push((device.upload(&rows[..times * row_bytes])?, times));
        }
        Ok(Self { setup, stage, gulps, gaps: source.gaps().to_vec() })
    }

    /// Searches all rows, from the first kernel to the list of candidates.
    ///
    /// # Errors
    /// As [`super::search`].
    pub fn search(&mut self) -> Result<Report> {
        let begin = Instant::now();
        let Self { setup, stage, gulps, gaps } = self;
        setup.reset();
        let mut clusterer = setup.clusterer()?;
        let mut times = 0;
        for (rows, count) in gulps.iter() {
            let (_, cleaner) = setup.cleaning.parts();
            stage.run((rows, *count), cleaner, &mut setup.ranges, &mut clusterer)?;
            times += *count as u64;
        }
        let late = stage.finish(times, &mut setup.ranges, &mut clusterer)?;
        let (found, gaps, flagged) = ((Vec::new(), Vec::new()), gaps.clone(), 0);
        let ending = Ending::Complete;
        let outcome = Outcome { found, times, late, ending, gaps, flagged, begin };
        setup.report(clusterer, outcome)
    }
}

/// Reads rows until the buffer is full or the source ends; returns their number.
fn filled(
    cleaning: &mut Cleaning,
    source: &mut dyn FilterbankSource,
    (rows, row_bytes): (&mut [u8], usize),
) -> Result<usize> {
    let mut times = 0;
    loop {
        let rest = &mut rows[times * row_bytes..];
        let more = if rest.is_empty() { 0 } else { cleaning.read(source, rest)? };
        if more == 0 {
            return Ok(times);
        }
        times += more;
    }
}
