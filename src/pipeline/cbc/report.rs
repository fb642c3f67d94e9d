//! Results of a search for coincident events: reports and whitened strain.

use std::fs::{File, OpenOptions};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::detector::Latency;
use crate::error::{Error, Result};
use crate::io::positioned::FileExt;
use crate::math::PowerSpectrum;
use crate::pipeline::run::Ending;
use crate::spiir::bank::Bank;
use crate::spiir::coincidence::{Found, Segments, TimedTrigger};
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
    /// First sample that is stored, and number of samples so far.
    pub(super) first: u64,
    times: u64,
    /// First sample that was ever stored.
    begin: u64,
}

#[derive(Clone, Debug)]
enum Store {
    Memory(Vec<f32>, Vec<bool>),
    File(Arc<File>, PathBuf),
    /// The latest samples; sample `n` is at `n` modulo their number.
    Ring(Vec<f32>, Vec<bool>),
}

impl Default for Whitened {
    /// Returns an empty store in memory.
    fn default() -> Self {
        Self::of(Store::Memory(Vec::new(), Vec::new()), 0, 0)
    }
}

impl Whitened {
    fn of(store: Store, first: u64, times: u64) -> Self {
        Self { store, first, times, begin: first }
    }

    /// Returns an empty store that holds the latest `samples` samples, at least one, and allocates no more.
    pub(super) fn latest(samples: usize) -> Self {
        let samples = samples.max(1);
        Self::of(Store::Ring(vec![0.0; samples], vec![false; samples]), 0, 0)
    }

    /// Returns a copy in memory of the stored ones of some samples.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub(super) fn part(&self, range: Range<u64>) -> Result<Self> {
        let first = range.start.clamp(self.first, self.times);
        let (samples, valid) = self.read(first..range.end)?;
        let times = first + samples.len() as u64;
        Ok(Self::of(Store::Memory(samples, valid), first, times))
    }

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
        Ok(Self::of(Store::File(Arc::new(file), path.to_path_buf()), 0, times))
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
            Store::Ring(all, flags) => {
                let length = all.len();
                // Of more samples than there is space for, only the last ones stay.
                let skipped = samples.len().saturating_sub(length);
                let mut place = ((self.times + skipped as u64) % length as u64) as usize;
                let (mut samples, mut valid) = (&samples[skipped..], &valid[skipped..]);
                while !samples.is_empty() {
                    let count = samples.len().min(length - place);
                    all[place..place + count].copy_from_slice(&samples[..count]);
                    flags[place..place + count].copy_from_slice(&valid[..count]);
                    (samples, valid) = (&samples[count..], &valid[count..]);
                    place = 0;
                }
            }
        }
        self.times += samples.len() as u64;
        if let Store::Ring(all, _) = &self.store {
            self.first = self.times.saturating_sub(all.len() as u64).max(self.begin);
        }
        Ok(())
    }

    /// Appends invalid zeros up to a sample; an empty store begins with it.
    pub(super) fn skip_to(&mut self, sample: u64) -> Result<()> {
        const PIECE: usize = 4096;
        if self.times == 0 {
            (self.first, self.times, self.begin) = (sample, sample, sample);
        }
        if let Store::Ring(all, _) = &self.store {
            // Earlier ones are not kept.
            self.times = self.times.max(sample.saturating_sub(all.len() as u64));
        }
        while self.times < sample {
            let count = ((sample - self.times) as usize).min(PIECE);
            self.push(&[0.0; PIECE][..count], &[false; PIECE][..count])?;
        }
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
        let start = range.start.clamp(self.first, self.times);
        let range = start..range.end.clamp(start, self.times);
        let count = (range.end - range.start) as usize;
        match &self.store {
            Store::Memory(all, flags) => {
                let begin = (range.start - self.first) as usize;
                let place = begin..begin + count;
                Ok((all[place.clone()].to_vec(), flags[place].to_vec()))
            }
            Store::Ring(all, flags) => {
                let place = |sample: u64| (sample % all.len() as u64) as usize;
                let samples = range.clone().map(|sample| all[place(sample)]);
                Ok((samples.collect(), range.map(|sample| flags[place(sample)]).collect()))
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

    #[test]
    fn a_ring_holds_the_latest_samples() {
        for (length, piece) in [(5, 3), (7, 7), (4, 9), (1, 2)] {
            let (mut all, mut ring) = (Whitened::default(), Whitened::latest(length));
            let mut sample = 0.0;
            for _ in 0..6 {
                let own: Vec<f32> = (0..piece).map(|index| sample + index as f32).collect();
                let valid: Vec<bool> = own.iter().map(|one| *one % 3.0 > 0.0).collect();
                sample += piece as f32;
                all.push(&own, &valid).expect("pushed");
                ring.push(&own, &valid).expect("pushed");
                let first = all.times().saturating_sub(length as u64);
                assert_eq!(ring.read(0..100).expect("read"), all.read(first..100).expect("read"));
                let part = ring.part(first + 1..100).expect("read");
                assert_eq!(
                    part.read(0..100).expect("read"),
                    all.read(first + 1..100).expect("read")
                );
                assert_eq!(part.times(), all.times());
            }
        }
    }
}
