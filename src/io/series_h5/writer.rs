//! Streaming writer of series.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use num_complex::Complex;

use super::SeriesFile;
use super::skeleton::{Series, Skeleton};
use crate::error::{Error, Result};
use crate::io::atomic::AtomicFile;
use crate::view::check_length;

/// Samples encoded per write.
const BATCH: usize = 1 << 16;

/// Unfinished file of series. Dropping it before [`finish`](Self::finish) removes a file made by
/// [`create`](Self::create).
pub struct Writer {
    header: SeriesFile,
    file: Target,
    skeleton: Skeleton,
    /// Samples written per detector: signal-to-noise ratios and whitened strain.
    written: Vec<[u64; 2]>,
}

/// Output file.
enum Target {
    /// A file renamed to its final name when complete.
    Atomic(AtomicFile),
    /// A file with its final name from the start.
    Named(PathBuf, File),
}

impl Target {
    fn path(&self) -> &Path {
        match self {
            Self::Atomic(file) => file.path(),
            Self::Named(path, _) => path,
        }
    }

    fn put_at(&mut self, offset: u64, bytes: &[u8]) -> Result<()> {
        match self {
            Self::Atomic(file) => file.put_at(offset, bytes),
            Self::Named(path, file) => {
                file.write_all_at(bytes, offset).map_err(|error| Error::io(&*path, error))
            }
        }
    }
}

impl Writer {
    /// Opens a file that has its final name from the start and is kept on a drop, so that a later run can continue
    /// it. `written` is the last result of [`Self::written`], or empty for a new file.
    ///
    /// # Errors
    /// As [`Self::create`]; [`Error::Format`] if the file is too short for the samples written.
    pub fn resume(path: &Path, header: SeriesFile, written: &[[u64; 2]]) -> Result<Self> {
        check(&header)?;
        let skeleton = Skeleton::new(path, &header)?;
        let io = |error| Error::io(path, error);
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(written.is_empty());
        let file = options.open(path).map_err(io)?;
        let mut so_far = vec![[0; 2]; header.detectors.len()];
        if !written.is_empty() {
            let fault = |why: String| Error::format(path, "series", 0, why);
            if written.len() != so_far.len() {
                return Err(fault(format!(
                    "{} detectors, expected {}",
                    so_far.len(),
                    written.len()
                )));
            }
            so_far.copy_from_slice(written);
            let announced = header.detectors.iter().zip(written);
            if let Some((own, found)) =
                announced.into_iter().find(|(own, found)| found.iter().any(|n| *n > own.samples))
            {
                return Err(fault(format!("{found:?} samples found of {}", own.samples)));
            }
            let needed = skeleton.end(&|series| length(&so_far, series));
            let found = file.metadata().map_err(io)?.len();
            if found < needed {
                return Err(fault(format!("{found} bytes found, expected {needed}")));
            }
        }
        let file = Target::Named(path.to_path_buf(), file);
        Ok(Self { header, file, skeleton, written: so_far })
    }

    /// Returns the samples written per detector: signal-to-noise ratios and whitened strain.
    pub fn written(&self) -> &[[u64; 2]] {
        &self.written
    }

    /// Creates a file; `finish` replaces an existing one.
    ///
    /// # Errors
    /// [`Error::Parameter`] for no detector, a repeated one, one whose name cannot be a group's, one without anything
    /// to write, a rate of 0, or more samples than a file can hold; as [`AtomicFile::create`].
    pub fn create(path: &Path, header: SeriesFile) -> Result<Self> {
        check(&header)?;
        let skeleton = Skeleton::new(path, &header)?;
        let file = Target::Atomic(AtomicFile::create(path)?);
        let written = vec![[0; 2]; header.detectors.len()];
        Ok(Self { header, file, skeleton, written })
    }

    /// Appends signal-to-noise ratios of a detector: `times` samples of each template, from rows of `stride`
    /// elements.
    ///
    /// | buffer | axes           | type        | unit | access |
    /// |--------|----------------|-------------|------|--------|
    /// | `z`    | template, time | complex f32 | 1    | read   |
    ///
    /// # Errors
    /// [`Error::Shape`] unless `z.len() == templates * stride` and `times <= stride`; [`Error::Parameter`] for more
    /// samples than were announced or an unknown detector; [`Error::Io`].
    pub fn snr(
        &mut self,
        detector: usize,
        z: &[Complex<f32>],
        stride: usize,
        times: usize,
    ) -> Result<()> {
        let start = self.advance(detector, 0, times)?;
        let templates = self.header.detectors[detector].templates.len();
        check_length("z (template, time)", templates * stride, z.len())?;
        if times > stride {
            return Err(Error::Shape { what: "rows of z", expected: times, actual: stride });
        }
        let first = self.skeleton.first_snr(detector);
        let mut bytes = Vec::new();
        for template in 0..templates {
            let row = &z[template * stride..][..times];
            for (batch, values) in row.chunks(BATCH).enumerate() {
                bytes.clear();
                for value in values {
                    bytes.extend_from_slice(&value.re.to_le_bytes());
                    bytes.extend_from_slice(&value.im.to_le_bytes());
                }
                let sample = start + (batch * BATCH) as u64;
                self.file.put_at(self.skeleton.offset_at(first + template, sample), &bytes)?;
            }
        }
        self.written[detector][0] += times as u64;
        Ok(())
    }

    /// Appends whitened strain of a detector, and the validity of its samples.
    ///
    /// # Errors
    /// [`Error::Shape`] if the slices differ in length; [`Error::Parameter`] for more samples than were announced, or
    /// a detector that is unknown or has no whitened strain; [`Error::Io`].
    pub fn whitened(&mut self, detector: usize, samples: &[f32], valid: &[bool]) -> Result<()> {
        check_length("valid (time)", samples.len(), valid.len())?;
        let start = self.advance(detector, 1, samples.len())?;
        let place = |series| {
            self.skeleton.offset(series, start).ok_or_else(|| {
                let rule = "no whitened strain was announced for it";
                Error::parameter("detector", &self.header.detectors[detector].detector, rule)
            })
        };
        let (strain, mask) =
            (place(Series::Whitened { detector })?, place(Series::Valid { detector })?);
        let bytes: Vec<u8> = samples.iter().flat_map(|sample| sample.to_le_bytes()).collect();
        self.file.put_at(strain, &bytes)?;
        let bytes: Vec<u8> = valid.iter().map(|good| u8::from(*good)).collect();
        self.file.put_at(mask, &bytes)?;
        self.written[detector][1] += samples.len() as u64;
        Ok(())
    }

    /// Writes the counts and renames the file to its final name.
    ///
    /// # Errors
    /// [`Error::Parameter`] if an announced series has no samples; [`Error::Io`].
    pub fn finish(self) -> Result<()> {
        self.finish_as(true)
    }

    /// Finishes the file like [`Self::finish`], and records whether it covers all of the strain.
    ///
    /// # Errors
    /// As [`Self::finish`].
    pub fn finish_as(mut self, is_complete: bool) -> Result<()> {
        for (own, [ratios, strain]) in self.header.detectors.iter().zip(&self.written) {
            if (!own.templates.is_empty() && *ratios == 0) || (own.whitened && *strain == 0) {
                let rule = format!("the series that were announced for {} need some", own.detector);
                return Err(Error::parameter("samples", 0, rule));
            }
        }
        let length = |series| length(&self.written, series);
        let start = self.skeleton.finish(self.file.path(), (&self.header, is_complete), length)?;
        self.file.put_at(0, &start)?;
        match self.file {
            Target::Atomic(file) => file.commit(),
            Target::Named(..) => Ok(()),
        }
    }

    /// Returns the number of samples so far; fails if `more` would exceed the announced number.
    fn advance(&self, detector: usize, kind: usize, more: usize) -> Result<u64> {
        let Some(own) = self.header.detectors.get(detector) else {
            let rule = format!("there are {}", self.header.detectors.len());
            return Err(Error::parameter("detector", detector, rule));
        };
        let so_far = self.written[detector][kind];
        if so_far + more as u64 > own.samples {
            let rule = format!("{} were announced for {}", own.samples, own.detector);
            return Err(Error::parameter("samples", so_far + more as u64, rule));
        }
        Ok(so_far)
    }
}

/// Returns the number of samples of a series so far.
fn length(written: &[[u64; 2]], series: Series) -> u64 {
    match series {
        Series::Snr { detector, .. } => written[detector][0],
        Series::Whitened { detector } | Series::Valid { detector } => written[detector][1],
    }
}

fn check(header: &SeriesFile) -> Result<()> {
    if header.detectors.is_empty() {
        return Err(Error::parameter("detectors", 0, "there is at least 1"));
    }
    for (index, own) in header.detectors.iter().enumerate() {
        let is_name = |letter: char| letter.is_ascii_alphanumeric() || "_-".contains(letter);
        let fits = !own.detector.is_empty() && own.detector.chars().all(is_name);
        if !fits || header.detectors[..index].iter().any(|other| other.detector == own.detector) {
            let rule = "each has a name of its own, of letters and digits";
            return Err(Error::parameter("detector", &own.detector, rule));
        }
        if own.rate_hz == 0 {
            return Err(Error::parameter("rate (Hz)", 0, "it must be above 0"));
        }
        if own.templates.is_empty() && !own.whitened {
            let rule = "it has neither templates nor whitened strain to write";
            return Err(Error::parameter("detector", &own.detector, rule));
        }
    }
    Ok(())
}
