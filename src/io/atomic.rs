//! Output files that appear under their final name only when complete.
//!
//! Invariant: until [`AtomicFile::commit`], the final name holds what it held before; a file dropped without a commit
//! is removed. [`AtomicFile::in_place`] is the exception.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions};
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::trace::{self, Work};

/// Bytes buffered before a write call.
const BUFFER_BYTES: usize = 1 << 16;

/// Bytes of a page of a file, and the least bytes of zeros that become a hole.
const PAGE_BYTES: usize = 4096;
const HOLE_BYTES: usize = 1 << 16;

/// Longest file name, in bytes, that common file systems accept.
pub const MAX_NAME: usize = 255;

/// Suffix of an unfinished file's name.
const PART: &str = ".part";

/// Random letters in an unfinished file's name.
const RANDOM_LETTERS: usize = 6;

/// Unfinished output file: bytes go to `.NAME.RANDOM.part` in the same folder; [`AtomicFile::commit`] renames it.
///
/// `RANDOM` is six random letters, so two writers of one name never share an unfinished file; the last commit wins
/// and leaves a complete file. Dropping it without a commit removes the partial file. A commit replaces an existing
/// file; a caller that must not replace one writes in a folder of its own. A commit does not wait for the disk (no
/// `fsync`), because a run may write thousands of small files: callers flush all of them at once.
#[derive(Debug)]
pub struct AtomicFile {
    path: PathBuf,
    /// `path`, or the target of `path` if it is a symbolic link.
    target: PathBuf,
    part: PathBuf,
    file: Option<File>,
    buffer: Vec<u8>,
    written: u64,
    committed: bool,
}

impl AtomicFile {
    /// Creates the partial file for `path`. For a symbolic link, writes the link's target and keeps the link.
    ///
    /// # Errors
    /// As [`target`]; [`Error::Io`] naming `path` if its folder is missing or can't be written.
    pub fn create(path: &Path) -> Result<Self> {
        let target = target(path)?;
        let Some(name) = target.file_name() else {
            let rule = "it must name a file";
            return Err(Error::parameter("output file", target.display(), rule));
        };
        let mut prefix = hidden_name(name, ".".len() + RANDOM_LETTERS + PART.len());
        prefix.push(".");
        let folder = target.parent().filter(|folder| !folder.as_os_str().is_empty());
        let (file, part) = tempfile::Builder::new()
            .prefix(&prefix)
            .suffix(PART)
            .rand_bytes(RANDOM_LETTERS)
            .make_in(folder.unwrap_or(Path::new(".")), |part| {
                OpenOptions::new().write(true).create_new(true).open(part)
            })
            .and_then(|made| made.keep().map_err(|fault| fault.error))
            .map_err(|error| Error::io(path, error))?;
        Ok(Self {
            path: path.to_path_buf(),
            target,
            part,
            file: Some(file),
            buffer: Vec::new(),
            written: 0,
            committed: false,
        })
    }

    /// Creates or continues `path` under its own name, in a folder that is itself unfinished; a drop without a commit
    /// keeps the file. The file begins with `header`. For an existing file, keeps the `data` bytes that follow the
    /// header.
    ///
    /// # Errors
    /// [`Error::Format`] for a file with fewer bytes; [`Error::Io`].
    pub fn in_place(path: &Path, header: &[u8], data: u64) -> Result<Self> {
        let failed = |error| Error::io(path, error);
        let mut options = OpenOptions::new();
        let options = options.write(true).create(data == 0).truncate(data == 0);
        let mut file = options.open(path).map_err(failed)?;
        let written = if data == 0 { 0 } else { data.saturating_add(header.len() as u64) };
        let found = file.metadata().map_err(failed)?.len();
        if found < written {
            let why = format!("found {found} bytes, expected {written} from the run to continue");
            return Err(Error::format(path, "file", found, why));
        }
        file.set_len(written).and_then(|()| file.seek(SeekFrom::End(0))).map_err(failed)?;
        let mut own = Self {
            path: path.to_path_buf(),
            target: path.to_path_buf(),
            part: path.to_path_buf(),
            file: Some(file),
            buffer: Vec::new(),
            written,
            committed: true,
        };
        if data == 0 {
            own.append(header)?;
            own.release()?;
        }
        Ok(own)
    }

    /// Truncates the file to its first `bytes` bytes, for example after an append that failed partway.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn cut(&mut self, bytes: u64) -> Result<()> {
        self.buffer.clear();
        let file = Self::open(&mut self.file, &self.part, &self.path)?;
        let cut = file.set_len(bytes).and_then(|()| file.seek(SeekFrom::End(0)));
        self.written = cut.map_err(|error| Error::io(&self.path, error))?;
        Ok(())
    }

    /// Removes the file.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn discard(mut self) -> Result<()> {
        self.committed = true;
        fs::remove_file(&self.part).map_err(|error| Error::io(&self.path, error))
    }

    /// Returns the final path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the number of bytes appended so far.
    pub fn bytes(&self) -> u64 {
        self.written + self.buffer.len() as u64
    }

    /// Appends bytes.
    ///
    /// # Errors
    /// [`Error::Io`] naming the final path, for instance when the disk is full.
    pub fn append(&mut self, bytes: &[u8]) -> Result<()> {
        if self.buffer.len() + bytes.len() <= BUFFER_BYTES {
            self.buffer.extend_from_slice(bytes);
            return Ok(());
        }
        self.flush_buffer()?;
        if bytes.len() < BUFFER_BYTES {
            self.buffer.extend_from_slice(bytes);
            return Ok(());
        }
        self.put(bytes)
    }

    /// Appends bytes; long runs of zeros become holes, which read as zeros and take no space on most file systems.
    ///
    /// # Errors
    /// As [`AtomicFile::append`].
    pub fn append_sparse(&mut self, bytes: &[u8]) -> Result<()> {
        // Holes begin and end with a page of the file.
        let first = self.bytes().next_multiple_of(PAGE_BYTES as u64) - self.bytes();
        let (before, pages) = bytes.split_at((first as usize).min(bytes.len()));
        self.append(before)?;
        let mut rest = pages;
        while !rest.is_empty() {
            let is_zero = is_zero_page(rest);
            let run = rest.chunks(PAGE_BYTES).take_while(|page| is_zero_page(page) == is_zero);
            let (run, after) = rest.split_at(run.map(<[u8]>::len).sum());
            if is_zero && run.len() >= HOLE_BYTES {
                self.leave_hole(run.len() as u64)?;
            } else {
                self.append(run)?;
            }
            rest = after;
        }
        Ok(())
    }

    fn leave_hole(&mut self, length: u64) -> Result<()> {
        self.flush_buffer()?;
        let end = self.written + length;
        let file = Self::open(&mut self.file, &self.part, &self.path)?;
        let left = file.set_len(end).and_then(|()| file.seek(SeekFrom::End(0)));
        left.map_err(|error| Error::io(&self.path, error))?;
        self.written = end;
        Ok(())
    }

    /// Flushes and closes the file handle until the next write, so that thousands of files can be unfinished at once.
    ///
    /// # Errors
    /// As [`AtomicFile::append`].
    pub fn release(&mut self) -> Result<()> {
        self.flush_buffer()?;
        self.file = None;
        Ok(())
    }

    /// Overwrites bytes already written at the start of the file: for headers with a length known only at the end.
    ///
    /// # Errors
    /// [`Error::Shape`] if fewer bytes were written; [`Error::Io`].
    pub fn rewrite_start(&mut self, bytes: &[u8]) -> Result<()> {
        if self.bytes() < bytes.len() as u64 {
            let actual = self.bytes() as usize;
            return Err(Error::Shape { what: "header to replace", expected: bytes.len(), actual });
        }
        self.flush_buffer()?;
        let file = Self::open(&mut self.file, &self.part, &self.path)?;
        let replaced = file
            .seek(SeekFrom::Start(0))
            .and_then(|_| file.write_all(bytes))
            .and_then(|()| file.seek(SeekFrom::End(0)));
        replaced.map(|_| ()).map_err(|error| Error::io(&self.path, error))
    }

    /// Writes bytes at `offset`; a gap left before them reads as zeros.
    ///
    /// # Errors
    /// As [`AtomicFile::append`].
    pub fn put_at(&mut self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.flush_buffer()?;
        let file = Self::open(&mut self.file, &self.part, &self.path)?;
        let put = file
            .seek(SeekFrom::Start(offset))
            .and_then(|_| file.write_all(bytes))
            .and_then(|()| file.seek(SeekFrom::End(0)));
        self.written = put.map_err(|error| Error::io(&self.path, error))?;
        Ok(())
    }

    /// Flushes the file and renames it to its final name.
    ///
    /// # Errors
    /// [`Error::Io`] naming the final path; it then leaves no file behind.
    pub fn commit(mut self) -> Result<()> {
        self.flush_buffer()?;
        self.file = None;
        fs::rename(&self.part, &self.target).map_err(|error| Error::io(&self.path, error))?;
        self.committed = true;
        Ok(())
    }

    fn flush_buffer(&mut self) -> Result<()> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        let buffer = std::mem::take(&mut self.buffer);
        let put = self.put(&buffer);
        self.buffer = buffer;
        self.buffer.clear();
        put
    }

    fn put(&mut self, bytes: &[u8]) -> Result<()> {
        let mut span = trace::span(Work::Write, "file");
        span.add_bytes(bytes.len());
        let file = Self::open(&mut self.file, &self.part, &self.path)?;
        file.write_all(bytes).map_err(|error| Error::io(&self.path, error))?;
        self.written += bytes.len() as u64;
        Ok(())
    }

    fn open<'a>(file: &'a mut Option<File>, part: &Path, path: &Path) -> Result<&'a mut File> {
        match file {
            Some(file) => Ok(file),
            None => {
                let opened = OpenOptions::new()
                    .write(true)
                    .open(part)
                    .and_then(|mut again| again.seek(SeekFrom::End(0)).map(|_| again));
                Ok(file.insert(opened.map_err(|error| Error::io(path, error))?))
            }
        }
    }
}

impl AtomicFile {
    /// Writes all buffered bytes to the file.
    ///
    /// # Errors
    /// As [`AtomicFile::append`].
    pub fn flush(&mut self) -> Result<()> {
        self.flush_buffer()
    }

    /// Recovers after a failed write: truncates the file to the length that `whole` computes from its bytes on disk,
    /// and returns that length. Needs no free space.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn cut_to(&mut self, whole: impl FnOnce(u64) -> u64) -> Result<u64> {
        self.buffer.clear();
        let file = Self::open(&mut self.file, &self.part, &self.path)?;
        let cut = file.metadata().and_then(|found| {
            let length = whole(found.len()).min(found.len());
            file.set_len(length)?;
            file.seek(SeekFrom::End(0))
        });
        self.written = cut.map_err(|error| Error::io(&self.path, error))?;
        Ok(self.written)
    }
}

impl Drop for AtomicFile {
    fn drop(&mut self) {
        if !self.committed {
            self.file = None;
            let _ = fs::remove_file(&self.part);
        }
    }
}

/// Returns whether bytes begin with a whole page of zeros.
fn is_zero_page(bytes: &[u8]) -> bool {
    let is_zero = |part: &[u8]| part.iter().fold(0, |all, byte| all | byte) == 0;
    bytes.get(..PAGE_BYTES).is_some_and(|page| page.chunks(64).all(is_zero))
}

/// Writes a complete small file at once.
///
/// # Errors
/// As [`AtomicFile::create`] and [`AtomicFile::append`].
pub fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    let mut file = AtomicFile::create(path)?;
    file.append(bytes)?;
    file.commit()
}

/// Returns the path that a write to `path` replaces: the target of a symbolic link, else `path` itself.
///
/// # Errors
/// [`Error::Parameter`] for a device, a pipe or any other file that is not regular, which must not be replaced;
/// [`Error::Io`] for a folder, or a link that cannot be resolved.
pub fn target(path: &Path) -> Result<PathBuf> {
    let io = |error| Error::io(path, error);
    let is_link = path.symlink_metadata().is_ok_and(|found| found.is_symlink());
    let Ok(found) = path.metadata() else {
        if !is_link {
            return Ok(path.to_path_buf());
        }
        // The link's target does not exist yet.
        let place = fs::read_link(path).map_err(io)?;
        return Ok(path.parent().unwrap_or(Path::new("")).join(place));
    };
    if found.is_dir() {
        return Err(io(std::io::ErrorKind::IsADirectory.into()));
    }
    if !found.is_file() {
        let rule = "it exists and is not a regular file, so it is not replaced";
        return Err(Error::parameter("output file", path.display(), rule));
    }
    if is_link { path.canonicalize().map_err(io) } else { Ok(path.to_path_buf()) }
}

/// Returns a name cut to `limit` bytes. A longer name ends in `~` and 16 hexadecimal digits of its hash, so that
/// different names stay different.
pub fn short_name(name: &OsStr, limit: usize) -> OsString {
    if name.len() <= limit {
        return name.to_owned();
    }
    let hash = format!("~{:016x}", fnv1a(name.as_encoded_bytes()));
    let text = name.to_string_lossy();
    let mut end = limit.saturating_sub(hash.len()).min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}{hash}", &text[..end]).into()
}

/// Returns `.NAME`, with NAME cut so that `more` bytes can follow it in a file's name.
pub fn hidden_name(name: &OsStr, more: usize) -> OsString {
    let mut hidden = OsString::from(".");
    hidden.push(short_name(name, MAX_NAME - ".".len() - more));
    hidden
}

/// Computes the FNV-1a hash, which is the same in every build.
fn fnv1a(bytes: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect()
    }

    #[test]
    fn a_file_appears_whole_or_not_at_all() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.bin");
        let mut file = AtomicFile::create(&path).unwrap();
        file.append(b"half").unwrap();
        let part = names(folder.path()).concat();
        assert!(part.starts_with(".out.bin.") && part.ends_with(".part"), "{part}");
        drop(file);
        assert!(names(folder.path()).is_empty());
        write(&path, b"whole").unwrap();
        assert_eq!(names(folder.path()), ["out.bin"]);
        assert_eq!(fs::read(&path).unwrap(), b"whole");
    }

    #[cfg(unix)]
    #[test]
    fn runs_of_zeros_become_holes() {
        use std::os::unix::fs::MetadataExt;
        let folder = tempfile::tempdir().unwrap();
        let (path, plain) = (folder.path().join("out.bin"), folder.path().join("plain"));
        let mut bytes = vec![0; 3 << 20];
        for (place, value) in [(0, 1), (5000, 2), (1 << 20, 3), ((2 << 20) + 77, 4)] {
            bytes[place] = value;
        }
        let mut file = AtomicFile::create(&path).unwrap();
        file.append(b"head").unwrap();
        file.append_sparse(&bytes).unwrap();
        file.append_sparse(b"tail").unwrap();
        // A hole may be last.
        file.append_sparse(&bytes[1 << 19..1 << 20]).unwrap();
        assert_eq!(file.bytes(), 8 + bytes.len() as u64 + (1 << 19));
        file.rewrite_start(b"HEAD").unwrap();
        file.commit().unwrap();
        let expected = [b"HEAD", bytes.as_slice(), b"tail", &bytes[1 << 19..1 << 20]].concat();
        assert!(fs::read(&path).unwrap() == expected);
        File::create(&plain).unwrap().set_len(1 << 20).unwrap();
        let taken = |path: &Path| path.metadata().unwrap().blocks() * 512;
        if taken(&plain) == 0 {
            assert!(taken(&path) < 1 << 19, "{}", taken(&path));
        }
        let mut file = AtomicFile::create(&path).unwrap();
        file.append_sparse(&bytes).unwrap();
        assert_eq!(file.cut_to(|length| length - 1000).unwrap(), bytes.len() as u64 - 1000);
        file.commit().unwrap();
        assert!(fs::read(&path).unwrap() == bytes[..bytes.len() - 1000]);
    }

    #[test]
    fn a_failed_run_leaves_the_old_file_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.bin");
        write(&path, b"old").unwrap();
        let mut file = AtomicFile::create(&path).unwrap();
        file.append(&vec![7; 3 * BUFFER_BYTES]).unwrap();
        drop(file);
        assert_eq!(fs::read(&path).unwrap(), b"old");
        write(&path, b"new").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
    }

    #[test]
    fn two_writers_of_one_name_never_share_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.bin");
        let mut first = AtomicFile::create(&path).unwrap();
        first.append(&[1; 10]).unwrap();
        let mut second = AtomicFile::create(&path).unwrap();
        second.append(&[2; 20]).unwrap();
        second.release().unwrap();
        first.commit().unwrap();
        assert_eq!(fs::read(&path).unwrap(), [1; 10]);
        second.commit().unwrap();
        assert_eq!(fs::read(&path).unwrap(), [2; 20]);
        assert_eq!(names(folder.path()), ["out.bin"]);
    }

    #[test]
    fn the_longest_names_work() {
        let folder = tempfile::tempdir().unwrap();
        for letter in ["x", "\u{e9}"] {
            let name = letter.repeat(MAX_NAME / letter.len());
            write(&folder.path().join(&name), b"whole").unwrap();
            assert_eq!(names(folder.path()).concat(), name);
            fs::remove_file(folder.path().join(&name)).unwrap();
            let (one, other) = (name.clone() + "1", name + "2");
            let [one, other] = [one, other].map(|name| short_name(name.as_ref(), 100));
            assert!(one != other && (80..=100).contains(&one.len()), "{one:?}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn permissions_are_those_of_any_new_file() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let (path, plain) = (folder.path().join("out.bin"), folder.path().join("plain"));
        write(&path, b"").unwrap();
        fs::write(&plain, b"").unwrap();
        let mode = |path: &Path| path.metadata().unwrap().permissions().mode();
        assert_eq!(mode(&path), mode(&plain));
    }

    #[cfg(unix)]
    #[test]
    fn links_are_followed_and_devices_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let (path, link) = (folder.path().join("out.bin"), folder.path().join("link"));
        std::os::unix::fs::symlink("out.bin", &link).unwrap();
        for bytes in [b"one", b"two"] {
            write(&link, bytes).unwrap();
            assert!(link.symlink_metadata().unwrap().is_symlink());
            assert_eq!(fs::read(&path).unwrap(), bytes);
        }
        assert_eq!(names(folder.path()).len(), 2);
        let refused = |path: &Path| match AtomicFile::create(path) {
            Err(Error::Parameter { value, .. }) => value.to_string() == path.display().to_string(),
            _ => false,
        };
        let device = folder.path().join("device");
        std::os::unix::fs::symlink("/dev/null", &device).unwrap();
        let socket = folder.path().join("socket");
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        assert!(refused(&device) && refused(&socket));
    }

    #[test]
    fn handles_can_be_given_back_and_starts_rewritten() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.bin");
        let mut file = AtomicFile::create(&path).unwrap();
        file.append(b"????").unwrap();
        file.release().unwrap();
        file.append(b"tail").unwrap();
        file.release().unwrap();
        file.rewrite_start(b"head").unwrap();
        file.append(b"!").unwrap();
        assert_eq!(file.bytes(), 9);
        assert!(file.rewrite_start(&[0; 10]).is_err());
        file.commit().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"headtail!");
    }

    #[test]
    fn errors_name_the_final_path() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("missing").join("out.bin");
        let error = AtomicFile::create(&path).unwrap_err().to_string();
        assert!(error.contains("missing") && !error.contains(".part"), "{error}");
        assert!(AtomicFile::create(folder.path()).is_err());
        assert!(AtomicFile::create(Path::new("/")).is_err());
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_full_disk_is_an_error_with_the_files_name() {
        if !Path::new("/dev/full").exists() {
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.bin");
        let mut file = AtomicFile::create(&path).unwrap();
        file.file = Some(OpenOptions::new().write(true).open("/dev/full").unwrap());
        file.append(b"some bytes").unwrap();
        let error = file.commit().unwrap_err().to_string();
        assert!(error.contains("out.bin") && error.contains("space"), "{error}");
        assert!(names(folder.path()).is_empty());
    }
}
