//! PRESTO time series: `.dat` files (32-bit floats, little endian) with a text header `.inf`.
//!
//! Invariant: a `.dat` never stands under its name without its `.inf`.
//!
//! # Source
//! PRESTO's `ioinf.c`, which reads lines in order and values from column 41 on.

mod inf;

use std::fs;
use std::path::Path;

pub use inf::Inf;

use crate::error::{Error, Result};
use crate::io::atomic::AtomicFile;

/// Reads a series: its header, its samples and, if the `.dat` is shorter than the `.inf` states, a message about it;
/// `path` is that of the `.dat`.
///
/// # Errors
/// [`Error::Format`] if the `.inf` is invalid, or if the `.dat` is longer than the `.inf` states or has no sample;
/// [`Error::Io`].
pub fn read(path: &Path) -> Result<(Inf, Vec<f32>, Option<String>)> {
    let inf_path = path.with_extension("inf");
    let inf = Inf::read(&inf_path)?;
    let bytes = fs::read(path).map_err(|error| Error::io(path, error))?;
    let (expected, found) = (inf.bins.checked_mul(4), bytes.len() as u64);
    if expected.is_none_or(|expected| found > expected) || found < 4.min(inf.bins) {
        let why = format!(
            "found {} bytes, expected 4 for each of the {} bins in {}",
            bytes.len(),
            inf.bins,
            inf_path.display()
        );
        return Err(Error::format(path, "data", 0, why));
    }
    let cut = (expected != Some(found)).then(|| {
        let (path, whole, bins) = (path.display(), found / 4, inf.bins);
        format!("{path}: it holds {whole} of the {bins} samples that its .inf promises")
    });
    let quads = bytes.chunks_exact(4);
    Ok((inf, quads.map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect(), cut))
}

/// Unfinished `.dat` and its `.inf`.
#[derive(Debug)]
pub struct SeriesWriter {
    file: AtomicFile,
    inf: Inf,
}

impl SeriesWriter {
    /// Creates `path`, the `.dat`. The writer sets the header's name and number of bins.
    ///
    /// # Errors
    /// [`Error::Parameter`] unless `path` ends in `.dat`; [`Error::Io`].
    pub fn create(path: &Path, inf: &Inf) -> Result<Self> {
        Self::new(path, inf, 0, AtomicFile::create)
    }

    /// Creates or continues a series in place: the `.dat` has its final name from the start, and a drop keeps it.
    /// Keeps the first `written` samples of an existing series.
    ///
    /// # Errors
    /// As [`SeriesWriter::create`]; [`Error::Format`] if the file has fewer.
    pub fn in_place(path: &Path, inf: &Inf, written: u64) -> Result<Self> {
        let bytes = written.saturating_mul(4);
        Self::new(path, inf, written, |path| AtomicFile::in_place(path, &[], bytes))
    }

    fn new(
        path: &Path,
        inf: &Inf,
        bins: u64,
        begin: impl FnOnce(&Path) -> Result<AtomicFile>,
    ) -> Result<Self> {
        if path.extension().is_none_or(|extension| extension != "dat") {
            let rule = "PRESTO finds the .inf by the .dat in the other's name";
            return Err(Error::parameter("series file", path.display(), rule));
        }
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        Ok(Self { file: begin(path)?, inf: Inf { name, bins, ..inf.clone() } })
    }

    /// Truncates the series to its first `written` samples, for example after a write that failed partway.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn cut(&mut self, written: u64) -> Result<()> {
        self.inf.bins = written;
        self.file.cut(4 * written)
    }

    /// Removes the series.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn discard(self) -> Result<()> {
        self.file.discard()
    }

    /// Appends samples.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn write(&mut self, values: &[f32]) -> Result<()> {
        self.inf.bins += values.len() as u64;
        let mut bytes = [0; 4096];
        for chunk in values.chunks(1024) {
            for (quad, value) in bytes.chunks_exact_mut(4).zip(chunk) {
                quad.copy_from_slice(&value.to_le_bytes());
            }
            self.file.append(&bytes[..4 * chunk.len()])?;
        }
        Ok(())
    }

    /// Returns the number of samples written so far.
    pub fn bins(&self) -> u64 {
        self.inf.bins
    }

    /// Pads a series to `bins` samples with `value`. Like prepsubband, the header marks the end of the data by two
    /// pairs of bins: one for the data, one for the last bin.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn fill(&mut self, bins: u64, value: f32) -> Result<()> {
        let own = self.inf.bins;
        if own == 0 || own >= bins {
            return Ok(());
        }
        let filling = [value; 1024];
        while self.inf.bins < bins {
            let left = bins - self.inf.bins;
            self.write(&filling[..left.min(1024) as usize])?;
        }
        self.inf.on_off = vec![(0, own - 1), (bins - 1, bins - 1)];
        Ok(())
    }

    /// Closes the file handle until the next write.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn release(&mut self) -> Result<()> {
        self.file.release()
    }

    /// Writes the `.inf` and renames both files to their final names.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn finish(self) -> Result<()> {
        let Self { mut file, inf } = self;
        let mut header = AtomicFile::create(&file.path().with_extension("inf"))?;
        header.append(inf.to_string().as_bytes())?;
        // Flush both first, so that a full disk is detected before either file is renamed.
        header.release()?;
        file.release()?;
        header.commit()?;
        file.commit()
    }
}

/// Largest prime factor of a good length.
const LARGEST_FACTOR: u64 = 11;

/// Returns the length to which prepsubband pads a series of `times` samples: even, and without large prime factors,
/// so that Fourier transforms are fast. `realfft` and `accelsearch` reject odd lengths.
///
/// Good factors of four digits are 1000 and the multiples of 16 without a prime factor above 11. The result is the
/// smaller of the next good factor times a power of ten and the next power of two.
///
/// # Source
/// PRESTO's documented output lengths: 531000 samples become 537600 (its tutorial), and its list of 114 factors.
pub fn good_length(times: u64) -> u64 {
    let mut scale = 1;
    while times.div_ceil(scale) > 10_000 {
        scale *= 10;
    }
    let factor = (times.div_ceil(scale).max(1000)..=10_000).find(|factor| is_good(*factor));
    let even = factor.unwrap_or(10_000).saturating_mul(scale);
    // At least 2: the power of two 1 is odd.
    even.min(times.max(2).checked_next_power_of_two().unwrap_or(u64::MAX - 1))
}

fn is_good(factor: u64) -> bool {
    let mut rest = factor;
    for prime in 2..=LARGEST_FACTOR {
        while rest.is_multiple_of(prime) {
            rest /= prime;
        }
    }
    rest == 1 && (factor.is_multiple_of(16) || factor == 1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_series_goes_round() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x_DM56.75.dat");
        let inf = Inf { dm: 56.75, tsamp_s: 64e-6, ..Inf::default() };
        let values: Vec<f32> = (0..5000).map(|t| t as f32 * 0.5 - 9.0).collect();
        let mut writer = SeriesWriter::create(&path, &inf).unwrap();
        writer.write(&values[..1]).unwrap();
        writer.release().unwrap();
        writer.write(&values[1..]).unwrap();
        writer.finish().unwrap();
        let (read_inf, read_values, _) = read(&path).unwrap();
        assert_eq!(read_values, values);
        assert_eq!(
            (read_inf.name.as_str(), read_inf.bins, read_inf.dm),
            ("x_DM56.75", 5000, 56.75)
        );
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    }

    #[test]
    fn a_series_is_filled_and_says_where_its_own_samples_end() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.dat");
        let inf = Inf { tsamp_s: 1e-3, ..Inf::default() };
        let mut writer = SeriesWriter::create(&path, &inf).unwrap();
        writer.fill(8, 1.0).unwrap();
        assert_eq!(writer.bins(), 0, "there is no level to fill with");
        writer.write(&[3.0; 5]).unwrap();
        writer.fill(5, 1.0).unwrap();
        writer.fill(2048, 2.5).unwrap();
        writer.finish().unwrap();
        let (inf, values, _) = read(&path).unwrap();
        assert_eq!((inf.bins, inf.on_off), (2048, vec![(0, 4), (2047, 2047)]));
        assert_eq!(values[..5], [3.0; 5]);
        assert!(values.len() == 2048 && values[5..].iter().all(|value| *value == 2.5));
    }

    #[test]
    fn a_series_shorter_than_its_header_is_cut_and_a_longer_one_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.dat");
        let inf = Inf { tsamp_s: 1e-3, ..Inf::default() };
        let mut writer = SeriesWriter::create(&path, &inf).unwrap();
        writer.write(&[0.0; 8]).unwrap();
        writer.finish().unwrap();
        fs::write(&path, [0; 31]).unwrap();
        let (_, values, cut) = read(&path).unwrap();
        assert_eq!(values, [0.0; 7]);
        assert!(cut.is_some_and(|cut| cut.contains("7 of the 8")));
        fs::write(&path, [0; 36]).unwrap();
        assert!(read(&path).unwrap_err().to_string().contains("36 bytes"));
        fs::remove_file(folder.path().join("x.inf")).unwrap();
        assert!(read(&path).unwrap_err().to_string().contains("x.inf"));
        assert!(SeriesWriter::create(&folder.path().join("x.fil"), &inf).is_err());
    }

    #[test]
    fn lengths_are_those_of_prepsubband() {
        assert_eq!((1000..=10_000).filter(|factor| is_good(*factor)).count(), 114);
        for (times, length) in [
            (1, 2),
            (2, 2),
            (12, 16),
            (700, 1000),
            (1000, 1000),
            (1001, 1008),
            (1017, 1024),
            (9857, 10_000),
            (10_000, 10_000),
            (10_001, 10_080),
            (131_072, 131_072),
            (131_000, 131_072),
            (531_000, 537_600),
            (1_048_000, 1_048_576),
            (123_456_789, 128_000_000),
        ] {
            assert_eq!(good_length(times), length, "{times}");
        }
        assert!(good_length(u64::MAX).is_multiple_of(2));
    }
}
