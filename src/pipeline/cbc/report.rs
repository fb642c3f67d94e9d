//! Results of a search for coincident events: reports, whitened strain, and ratios around an event.

use std::fs::{File, OpenOptions};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use num_complex::Complex;

use super::detector::{Latency, reach};
use crate::backend::Backend;
use crate::error::{Error, Result};
use crate::math::PowerSpectrum;
use crate::pipeline::run::Ending;
use crate::spiir::bank::Bank;
use crate::spiir::coincidence::{Found, Segments, TimedTrigger};
use crate::spiir::{self, MAX_HALVINGS, Plan, Spiir};
use crate::units::Gps;
use crate::view::check_length;

/// Results of one detector.
#[derive(Clone, Debug)]
pub struct DetectorReport {
    /// Two-character name of the detector: `H1`.
    pub name: String,
    /// Time of the first sample.
    pub start: Gps,
    /// Sample rate.
    pub rate_hz: u32,
    /// Length of the strain searched, in seconds.
    pub duration_s: f64,
    /// Length of the segments in which triggers were possible, in seconds.
    pub livetime_s: f64,
    /// Whitening spectrum of its templates.
    pub psd: PowerSpectrum,
    /// Filter bank.
    pub bank: Arc<Bank>,
    /// All triggers.
    pub triggers: Vec<TimedTrigger>,
    /// Segments in which triggers were possible.
    pub valid: Segments,
    /// Whitened strain, from `start` on.
    pub whitened: Whitened,
    /// Delay of its triggers relative to the strain.
    pub latency: Latency,
}

/// Results of all detectors.
#[derive(Clone, Debug)]
pub struct Report {
    /// Detectors, in the given order.
    pub detectors: Vec<DetectorReport>,
    /// Events and background; for a single detector, its clustered triggers.
    pub found: Found,
    /// End state of the search; all data before a stop or an error were searched in all detectors.
    pub ending: Ending,
    /// Length of the longest recording, in seconds.
    pub data_s: f64,
    /// Elapsed time in seconds.
    pub elapsed_s: f64,
}

impl Report {
    /// Returns the seconds of data searched per second.
    pub fn realtime_factor(&self) -> f64 {
        self.data_s / self.elapsed_s.max(1e-9)
    }

    /// Returns the longest latency of the detectors.
    pub fn latency(&self) -> Latency {
        let latencies = self.detectors.iter().map(|detector| detector.latency);
        latencies.max_by(|a, b| a.total_s().total_cmp(&b.total_s())).unwrap_or_default()
    }
}

/// Bytes of a sample in a file: the sample, little endian, and its validity.
const BYTES: usize = 5;

/// Whitened strain of a detector, and whether each sample is unaffected by gates.
#[derive(Clone, Debug)]
pub struct Whitened {
    store: Store,
    times: u64,
}

#[derive(Clone, Debug)]
enum Store {
    Memory(Vec<f32>, Vec<bool>),
    File(Arc<File>, PathBuf),
}

impl Default for Whitened {
    /// Returns an empty store in memory.
    fn default() -> Self {
        Self { store: Store::Memory(Vec::new(), Vec::new()), times: 0 }
    }
}

impl Whitened {
    /// Opens a file with its first `times` samples, for appending; later samples are dropped.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Format`] for a file with fewer samples.
    pub(super) fn in_file(path: &Path, times: u64) -> Result<Self> {
        let io = |error| Error::io(path, error);
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        let file = options.open(path).map_err(io)?;
        let found = file.metadata().map_err(io)?.len();
        let Some(bytes) = times.checked_mul(BYTES as u64).filter(|bytes| *bytes <= found) else {
            let why = format!("{found} bytes found, expected {times} samples of {BYTES}");
            return Err(Error::format(path, "whitened strain", 0, why));
        };
        file.set_len(bytes).map_err(io)?;
        Ok(Self { store: Store::File(Arc::new(file), path.to_path_buf()), times })
    }

    /// Appends samples.
    pub(super) fn push(&mut self, samples: &[f32], valid: &[bool]) -> Result<()> {
        check_length("flags of whitened strain", samples.len(), valid.len())?;
        match &mut self.store {
            Store::Memory(all, flags) => {
                all.extend_from_slice(samples);
                flags.extend_from_slice(valid);
            }
            Store::File(file, path) => {
                let both = samples.iter().zip(valid);
                let bytes: Vec<u8> = both
                    .flat_map(|(sample, valid)| {
                        let [a, b, c, d] = sample.to_le_bytes();
                        [a, b, c, d, u8::from(*valid)]
                    })
                    .collect();
                let at = self.times * BYTES as u64;
                file.write_all_at(&bytes, at).map_err(|error| Error::io(&*path, error))?;
            }
        }
        self.times += samples.len() as u64;
        Ok(())
    }

    /// Returns the number of samples so far.
    pub fn times(&self) -> u64 {
        self.times
    }

    /// Returns samples and their validity, limited to those stored.
    ///
    /// # Errors
    /// [`Error::Io`] of the file.
    pub fn read(&self, range: Range<u64>) -> Result<(Vec<f32>, Vec<bool>)> {
        let range = range.start.min(self.times)..range.end.min(self.times);
        let count = range.end.saturating_sub(range.start) as usize;
        match &self.store {
            Store::Memory(all, flags) => {
                let place = range.start as usize..range.start as usize + count;
                Ok((all[place.clone()].to_vec(), flags[place].to_vec()))
            }
            Store::File(file, path) => {
                let mut bytes = vec![0; count * BYTES];
                let at = range.start * BYTES as u64;
                file.read_exact_at(&mut bytes, at).map_err(|error| Error::io(path, error))?;
                let samples = bytes.as_chunks::<BYTES>().0.iter();
                Ok(samples
                    .map(|[a, b, c, d, e]| (f32::from_le_bytes([*a, *b, *c, *d]), *e != 0))
                    .unzip())
            }
        }
    }

    /// Returns samples, limited to those stored.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn samples(&self, range: Range<u64>) -> Result<Vec<f32>> {
        Ok(self.read(range)?.0)
    }
}

/// Signal-to-noise ratios of one template of one detector.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// Event time that corresponds to the first sample.
    pub start: Gps,
    /// Sample rate.
    pub rate_hz: u32,
    /// The samples.
    pub z: Vec<Complex<f32>>,
}

/// Returns the ratios of `template` in `detector` at the sample nearest to an event's time, and `half` samples on
/// each side, as far as there is strain.
///
/// The filters start early enough that the one with the longest memory has forgotten earlier input; the result
/// differs from the whole stream's ratios by a few parts per million.
///
/// # Errors
/// Those of [`Spiir::new`].
pub fn series(
    detector: &DetectorReport,
    template: usize,
    event: Gps,
    half: usize,
    backend: &Backend,
) -> Result<Series> {
    let one = &detector.bank.templates[template];
    let plan = Plan::new(spiir::Options {
        rate_hz: detector.rate_hz,
        templates: vec![one.filters.clone()],
        resampler: detector.bank.resampler.clone(),
    })?;
    let rate = f64::from(detector.rate_hz);
    let total = detector.whitened.times() as usize;
    let middle_s = event.seconds_since(detector.start) - one.peak_offset_s;
    let middle = (middle_s * rate).round() as i64;
    let place = |sample: i64| (sample.max(0) as usize).min(total);
    let half = i64::try_from(half).unwrap_or(i64::MAX / 4);
    let (first, last) = (place(middle - half), place(middle + half + 1));
    let reach = reach(&one.filters) + plan.latency();
    // Start at a sample that exists at all rates, so that lower rates keep their phase.
    let begin = first.saturating_sub(reach) >> MAX_HALVINGS << MAX_HALVINGS;
    let end = (last + plan.latency()).min(total);
    let mut spiir = Spiir::new(plan, backend)?;
    let mut z = vec![Complex::default(); (end - begin).max(1)];
    let stride = z.len();
    let strain = detector.whitened.samples(begin as u64..end as u64)?;
    let mut known = spiir.run(&strain, &mut z, stride)?.produced;
    let mut row = vec![Complex::default(); 4096];
    while known < last - begin {
        let produced = spiir.flush(&mut row, 4096)?;
        let count = produced.min(z.len() - known);
        z[known..known + count].copy_from_slice(&row[..count]);
        known += count;
        if count == 0 {
            break;
        }
    }
    let start = detector.start.plus_samples(first as i64, detector.rate_hz);
    Ok(Series {
        start: start.plus_s(one.peak_offset_s),
        rate_hz: detector.rate_hz,
        z: z[first - begin..last - begin].to_vec(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_holds_what_memory_holds() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("H1");
        let mut both = [Whitened::default(), Whitened::in_file(&path, 0).expect("a file")];
        for one in &mut both {
            one.push(&[1.0, -2.5, 0.0], &[true, true, false]).expect("pushed");
            one.push(&[7.0], &[true]).expect("pushed");
            assert_eq!(one.times(), 4);
            assert_eq!(
                one.read(1..9).expect("read"),
                (vec![-2.5, 0.0, 7.0], vec![true, false, true])
            );
            assert!(one.samples(6..9).expect("nothing").is_empty());
        }
        let again = Whitened::in_file(&path, 2).expect("a file");
        assert_eq!(again.samples(0..9).expect("read"), [1.0, -2.5]);
        assert!(Whitened::in_file(&path, 3).is_err(), "it was cut to 2 samples");
    }
}
