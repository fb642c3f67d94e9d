//! Copy of the rows that came through a pipe, so that the plots can read them again.

use std::fs::File;
use std::io::{BufWriter, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use sidereal::io::{FilterbankHeader, FilterbankSource, Gap};
use sidereal::{Error, Result};

/// File name of the copy in the folder being filled; removed at the end.
pub(super) const NAME: &str = "rows.tmp";

/// Source that also writes the rows it reads to a file.
pub(super) struct Spool<'a> {
    source: &'a mut dyn FilterbankSource,
    file: BufWriter<File>,
    path: PathBuf,
}

impl<'a> Spool<'a> {
    pub(super) fn new(source: &'a mut dyn FilterbankSource, path: &Path) -> Result<Self> {
        let file = File::create(path).map_err(|error| Error::io(path, error))?;
        Ok(Self { source, file: BufWriter::new(file), path: path.to_path_buf() })
    }
}

impl FilterbankSource for Spool<'_> {
    fn header(&self) -> &FilterbankHeader {
        self.source.header()
    }

    fn read(&mut self, rows: &mut [u8]) -> Result<usize> {
        let times = self.source.read(rows)?;
        let bytes = times * self.source.header().row_bytes();
        let written = self.file.write_all(&rows[..bytes]).and_then(|()| self.file.flush());
        written.map_err(|error| Error::io(&self.path, error))?;
        Ok(times)
    }

    fn skip(&mut self, times: u64) -> Result<u64> {
        // A hole in the file stands for skipped rows, so that row numbers stay valid.
        let skipped = self.source.skip(times)?;
        let bytes = skipped as i64 * self.source.header().row_bytes() as i64;
        let moved = self.file.seek(SeekFrom::Current(bytes));
        moved.map_err(|error| Error::io(&self.path, error))?;
        Ok(skipped)
    }

    fn cut(&self) -> Option<&str> {
        self.source.cut()
    }

    fn warnings(&self) -> &[String] {
        self.source.warnings()
    }

    fn gaps(&self) -> &[Gap] {
        self.source.gaps()
    }

    fn flagged_samples(&self) -> u64 {
        self.source.flagged_samples()
    }
}

/// Reader of the copy, from its first row.
pub(super) struct Spooled {
    header: FilterbankHeader,
    file: File,
    path: PathBuf,
    left: u64,
}

impl Spooled {
    pub(super) fn open(header: &FilterbankHeader, path: &Path) -> Result<Self> {
        let failed = |error| Error::io(path, error);
        let file = File::open(path).map_err(failed)?;
        let bytes = file.metadata().map_err(failed)?.len();
        let left = bytes / header.row_bytes() as u64;
        Ok(Self { header: header.clone(), file, path: path.to_path_buf(), left })
    }
}

impl FilterbankSource for Spooled {
    fn header(&self) -> &FilterbankHeader {
        &self.header
    }

    fn read(&mut self, rows: &mut [u8]) -> Result<usize> {
        let row_bytes = self.header.row_bytes();
        let times = self.left.min((rows.len() / row_bytes) as u64);
        let read = self.file.read_exact(&mut rows[..times as usize * row_bytes]);
        read.map_err(|error| Error::io(&self.path, error))?;
        self.left -= times;
        Ok(times as usize)
    }

    fn skip(&mut self, times: u64) -> Result<u64> {
        let times = times.min(self.left);
        let bytes = times as i64 * self.header.row_bytes() as i64;
        let moved = self.file.seek(SeekFrom::Current(bytes));
        moved.map_err(|error| Error::io(&self.path, error))?;
        self.left -= times;
        Ok(times)
    }
}
