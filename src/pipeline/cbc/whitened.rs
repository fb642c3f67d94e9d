//! Whitened strain of a whole search, in memory or, so that memory does not grow with it, on disk.

use std::fs::{File, OpenOptions};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::view::check_length;

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
