//! Files and streams compressed by gzip or Zstandard, read as what they hold.
//!
//! Readers seek, so a compressed file is unpacked when it is opened, into a file without a name that the system removes
//! with its last handle. A stream is unpacked as it arrives.
//!
//! Invariant: no input makes more bytes, in memory or on a disk, than the limit on their ratio allows.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use flate2::bufread::MultiGzDecoder;
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

use super::positioned::FileExt;
use crate::error::{Error, Result};
use crate::trace::{Work, span};

/// Default of [`Unpacking::ratio`]: recordings shrink by 1.1 to 5, and few even to a twentieth.
const RATIO: u64 = 100;

/// Bytes that any input may make, whatever its size.
const FREE_BYTES: u64 = 64 << 20;

/// Bytes read and written at a time.
const PIECE_BYTES: usize = 1 << 20;

/// Bytes that identify a compression.
const MAGIC_BYTES: usize = 10;

/// Largest window of a frame of Zstandard, which is held in memory: that of `zstd --long`.
const MOST_WINDOW: u64 = 128 << 20;

/// First bytes of a frame of Zstandard, and of a frame that is skipped, but for the low half of its first byte.
const FRAME: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
const SKIPPED: [u8; 4] = [0x50, 0x2a, 0x4d, 0x18];

/// Treatment of compressed inputs.
#[derive(Clone, Debug)]
pub struct Unpacking {
    /// Most bytes that a compressed byte may become; 64 MiB are free.
    pub ratio: u64,
    /// Folder of unpacked files; `None` is that of the system for temporary files.
    pub folder: Option<PathBuf>,
    /// Whether a file is unpacked once only, and what it holds is kept until the next call of [`unpack_with`].
    pub keep: bool,
    /// Returns whether unpacking must end, for the user asked to stop.
    pub is_stopped: fn() -> bool,
}

impl Unpacking {
    const DEFAULT: Self = Self { ratio: RATIO, folder: None, keep: false, is_stopped: || false };
}

impl Default for Unpacking {
    fn default() -> Self {
        Self::DEFAULT
    }
}

struct State {
    how: Unpacking,
    kept: Vec<Kept>,
}

/// Unpacked file and the identity of the compressed one.
struct Kept {
    of: Identity,
    unpacked: File,
}

#[derive(PartialEq, Eq)]
struct Identity {
    path: PathBuf,
    bytes: u64,
    changed: SystemTime,
}

static STATE: Mutex<State> = Mutex::new(State { how: Unpacking::DEFAULT, kept: Vec::new() });

fn state() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sets how the process unpacks compressed inputs from now on; forgets files that are kept.
pub fn unpack_with(how: Unpacking) {
    *state() = State { how, kept: Vec::new() };
}

/// Sets the folder of files that are unpacked from now on.
pub fn unpack_in(folder: &Path) {
    state().how.folder = Some(folder.to_path_buf());
}

/// A compression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Gzip,
    Zstandard,
}

impl Kind {
    /// Recognizes a compression by a file's first bytes; gzip's two magic bytes alone could begin other data.
    fn of(first: &[u8]) -> Option<Self> {
        match first {
            [0x28, 0xb5, 0x2f, 0xfd, ..] => Some(Self::Zstandard),
            // Method, flags, time, effort, system.
            [0x1f, 0x8b, 8, 0..32, _, _, _, _, 0 | 2 | 4, 0..=13 | 255, ..] => Some(Self::Gzip),
            _ => None,
        }
    }

    /// Recognizes the compression of a file at its start; pipes and devices have none.
    fn of_file(mut file: &File) -> io::Result<Option<Self>> {
        if !file.metadata()?.is_file() {
            return Ok(None);
        }
        let mut first = [0; MAGIC_BYTES];
        let read =
            super::parallel::fill(&mut first, |rest, filled| file.read_at(rest, filled as u64))?;
        // Windows has moved the position.
        file.rewind()?;
        Ok(Self::of(&first[..read]))
    }

    fn name(self) -> &'static str {
        match self {
            Self::Gzip => "gzip",
            Self::Zstandard => "Zstandard",
        }
    }
}

/// Returns whether a file is compressed; `false` for one that cannot be read.
pub(crate) fn is_compressed(path: &Path) -> bool {
    path.is_file()
        && File::open(path).and_then(|file| Kind::of_file(&file)).is_ok_and(|kind| kind.is_some())
}

/// Opens a file at its start; a compressed one as the file that it holds.
///
/// # Errors
/// [`Error::Io`] for a file that cannot be read, or unpacked for want of space; [`Error::Format`] for a compressed file
/// that is damaged, ends early or holds more than the limit; that of [`Error::stopped`].
pub(crate) fn open(path: &Path) -> Result<File> {
    let io = |error| Error::io(path, error);
    let file = File::open(path).map_err(io)?;
    let Some(kind) = Kind::of_file(&file).map_err(io)? else { return Ok(file) };
    let found = file.metadata().map_err(io)?;
    let changed = found.modified().map_err(io)?;
    let of = Identity { path: path.canonicalize().map_err(io)?, bytes: found.len(), changed };
    let how = {
        let state = state();
        let kept = state.kept.iter().find(|kept| kept.of == of);
        if let Some(again) = kept.and_then(|kept| again(&kept.unpacked).ok()) {
            return Ok(again);
        }
        state.how.clone()
    };
    let unpacked = unpack(file, kind, path, &how)?;
    if how.keep
        && let Ok(again) = again(&unpacked)
    {
        state().kept.push(Kept { of, unpacked });
        return Ok(again);
    }
    Ok(unpacked)
}

/// Opens a file without a name again, with a position of its own; fails on systems without `/proc`.
#[cfg(unix)]
fn again(file: &File) -> io::Result<File> {
    use std::os::fd::AsRawFd;
    File::open(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

#[cfg(not(unix))]
fn again(_: &File) -> io::Result<File> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Unpacks a file into one without a name, at its start.
fn unpack(file: File, kind: Kind, path: &Path, how: &Unpacking) -> Result<File> {
    let mut work = span(Work::Read, "unpack");
    let folder = how.folder.clone().unwrap_or_else(std::env::temp_dir);
    let failed = |error: io::Error| {
        let why = format!("{error}, while {} was unpacked there", path.display());
        Error::io(&folder, io::Error::new(error.kind(), why))
    };
    let mut unpacked = tempfile::tempfile_in(&folder).map_err(failed)?;
    let mut input = Unpacked::new(file, kind, how.ratio);
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        if (how.is_stopped)() {
            return Err(Error::stopped(path));
        }
        let read = input.read(&mut piece).map_err(|error| fault(path, error))?;
        if read == 0 {
            break;
        }
        unpacked.write_all(&piece[..read]).map_err(failed)?;
        work.add_bytes(read);
    }
    unpacked.rewind().map_err(failed)?;
    Ok(unpacked)
}

/// Reads at most `most` bytes from a file's start; of a compressed one from the start of the file that it holds.
///
/// # Errors
/// As [`open`], for damage before the first byte only.
pub(crate) fn head(path: &Path, most: u64) -> Result<Vec<u8>> {
    let io = |error| Error::io(path, error);
    let mut head = Vec::new();
    let file = File::open(path).map_err(io)?;
    let Some(kind) = Kind::of_file(&file).map_err(io)? else {
        file.take(most).read_to_end(&mut head).map_err(io)?;
        return Ok(head);
    };
    match Unpacked::new(file, kind, RATIO).take(most).read_to_end(&mut head) {
        Err(error) if head.is_empty() => Err(fault(path, error)),
        _ => Ok(head),
    }
}

/// Unpacks a stream as it arrives, if it is compressed.
///
/// Reads fail with [`io::ErrorKind::InvalidData`] where it is damaged, ends early or exceeds the limit.
///
/// # Errors
/// Those of reading its first bytes.
pub(crate) fn stream(mut stream: Box<dyn Read + Send>) -> io::Result<Box<dyn Read + Send>> {
    let mut first = Vec::new();
    (&mut stream).take(MAGIC_BYTES as u64).read_to_end(&mut first)?;
    let kind = Kind::of(&first);
    let whole = Cursor::new(first).chain(stream);
    let ratio = state().how.ratio;
    Ok(match kind {
        None => Box::new(whole),
        Some(kind) => Box::new(Unpacked::new(whole, kind, ratio)),
    })
}

/// Makes the error of a file from that of a read of [`Unpacked`].
fn fault(path: &Path, error: io::Error) -> Error {
    match error.get_ref().and_then(|inner| inner.downcast_ref::<Fault>()) {
        Some(fault) => Error::format(path, fault.kind.name(), fault.offset, &fault.why),
        None => Error::io(path, error),
    }
}

/// Damage of compressed data.
#[derive(Debug)]
struct Fault {
    kind: Kind,
    offset: u64,
    why: String,
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} (at byte {}): {}", self.kind.name(), self.offset, self.why)
    }
}

impl std::error::Error for Fault {}

/// Reader of what compressed data hold.
struct Unpacked<R> {
    decoder: Decoder<R>,
    kind: Kind,
    ratio: u64,
    made: u64,
}

enum Decoder<R> {
    Gzip(Box<MultiGzDecoder<Counted<R>>>),
    Zstandard(Box<Frames<R>>),
}

impl<R: Read> Unpacked<R> {
    fn new(input: R, kind: Kind, ratio: u64) -> Self {
        let input = Counted {
            input: BufReader::with_capacity(PIECE_BYTES, input),
            taken: 0,
            has_ended: false,
            failed: None,
        };
        let decoder = match kind {
            Kind::Gzip => Decoder::Gzip(Box::new(MultiGzDecoder::new(input))),
            Kind::Zstandard => Decoder::Zstandard(Box::new(Frames::new(input))),
        };
        Self { decoder, kind, ratio, made: 0 }
    }

    /// Returns the compressed input.
    fn input(&mut self) -> &mut Counted<R> {
        match &mut self.decoder {
            Decoder::Gzip(decoder) => decoder.get_mut(),
            Decoder::Zstandard(frames) => &mut frames.input,
        }
    }

    /// Makes the error at the present byte of the compressed input.
    fn fault(&mut self, why: String) -> io::Error {
        let fault = Fault { kind: self.kind, offset: self.input().taken, why };
        io::Error::new(io::ErrorKind::InvalidData, fault)
    }
}

impl<R: Read> Read for Unpacked<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = match &mut self.decoder {
            Decoder::Gzip(decoder) => decoder.read(buffer).map_err(|error| error.to_string()),
            Decoder::Zstandard(frames) => frames.read(buffer),
        };
        let read = match read {
            Ok(read) => read as u64,
            Err(why) => {
                if let Some(error) = self.input().failed.take() {
                    return Err(error);
                }
                let why = match self.input().has_ended {
                    true => "the file ends within the compressed data; it was cut, or is still being written"
                        .to_owned(),
                    false => format!("the compressed data are damaged, or not supported ({why})"),
                };
                return Err(self.fault(why));
            }
        };
        self.made += read;
        let (taken, ratio) = (self.input().taken, self.ratio);
        let allowed = taken.saturating_mul(ratio).saturating_add(FREE_BYTES);
        if self.made > allowed {
            let made = self.made;
            let why = format!(
                "{taken} compressed bytes became {made}, expected at most {ratio} for each and {FREE_BYTES}; \
                 `unpack_ratio` raises the limit"
            );
            return Err(self.fault(why));
        }
        Ok(read as usize)
    }
}

/// Compressed input that counts the bytes taken from it, and remembers why a read failed.
struct Counted<R> {
    input: BufReader<R>,
    taken: u64,
    /// Whether bytes were asked for after the last one.
    has_ended: bool,
    failed: Option<io::Error>,
}

impl<R: Read> BufRead for Counted<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        // Decoders replace the error by one of their own.
        match self.input.fill_buf() {
            Ok(bytes) => {
                self.has_ended |= bytes.is_empty();
                Ok(bytes)
            }
            Err(error) => {
                let kind = error.kind();
                self.failed = Some(error);
                Err(kind.into())
            }
        }
    }

    fn consume(&mut self, bytes: usize) {
        self.taken += bytes as u64;
        self.input.consume(bytes);
    }
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let there = self.fill_buf()?;
        let count = there.len().min(buffer.len());
        buffer[..count].copy_from_slice(&there[..count]);
        self.consume(count);
        Ok(count)
    }
}

/// Frames of Zstandard, one after another, of which some may hold no data.
struct Frames<R> {
    input: Counted<R>,
    decoder: FrameDecoder,
    is_within: bool,
}

impl<R: Read> Frames<R> {
    fn new(input: Counted<R>) -> Self {
        Self { input, decoder: FrameDecoder::new(), is_within: false }
    }

    fn read(&mut self, buffer: &mut [u8]) -> std::result::Result<usize, String> {
        loop {
            if self.is_within {
                let read = self.read_frame(buffer)?;
                if read > 0 || buffer.is_empty() {
                    return Ok(read);
                }
                let stored = self.decoder.get_checksum_from_data();
                let found = self.decoder.get_calculated_checksum();
                if stored.is_some() && stored != found {
                    return Err("the checksum of a frame differs".to_owned());
                }
                self.is_within = false;
            }
            if self.input.fill_buf().map_err(|error| error.to_string())?.is_empty() {
                return Ok(0);
            }
            self.begin_frame()?;
        }
    }

    /// Begins the next frame, or skips one without data.
    ///
    /// # Source
    /// RFC 8878, 3.1.1.1 and 3.1.2.
    fn begin_frame(&mut self) -> std::result::Result<(), String> {
        let mut header = Vec::new();
        self.add_to(&mut header, 4)?;
        if header[0] & 0xf0 == SKIPPED[0] && header[1..] == SKIPPED[1..] {
            self.add_to(&mut header, 4)?;
            let length = u32::from_le_bytes([header[4], header[5], header[6], header[7]]);
            return self.skip(u64::from(length));
        }
        if header != FRAME {
            return Err(format!("{} found, expected a frame", header.escape_ascii()));
        }
        self.add_to(&mut header, 1)?;
        let flags = header[4];
        let is_single = flags & 0x20 != 0;
        let dictionary_bytes = [0, 1, 2, 4][usize::from(flags & 3)];
        let size_bytes = [usize::from(is_single), 2, 4, 8][usize::from(flags >> 6)];
        self.add_to(&mut header, usize::from(!is_single) + dictionary_bytes + size_bytes)?;
        let window = if is_single {
            let mut size = [0; 8];
            size[..size_bytes].copy_from_slice(&header[header.len() - size_bytes..]);
            u64::from_le_bytes(size) + if size_bytes == 2 { 256 } else { 0 }
        } else {
            let base = 1_u64 << (10 + (header[5] >> 3));
            base + base / 8 * u64::from(header[5] & 7)
        };
        if window > MOST_WINDOW {
            return Err(format!(
                "a window of {window} bytes found, expected at most {MOST_WINDOW}"
            ));
        }
        // A decoder that was used refuses windows above 100 MiB.
        self.decoder = FrameDecoder::new();
        self.decoder.init(&header[..]).map_err(|error| error.to_string())?;
        self.is_within = true;
        Ok(())
    }

    /// Reads `bytes` bytes of a header.
    fn add_to(&mut self, header: &mut Vec<u8>, bytes: usize) -> std::result::Result<(), String> {
        let start = header.len();
        header.resize(start + bytes, 0);
        self.input.read_exact(&mut header[start..]).map_err(|error| error.to_string())
    }

    /// Reads from the frame; nothing at its end only.
    fn read_frame(&mut self, buffer: &mut [u8]) -> std::result::Result<usize, String> {
        loop {
            let there = self.decoder.can_collect();
            if there >= buffer.len() || self.decoder.is_finished() {
                return self.decoder.read(buffer).map_err(|error| error.to_string());
            }
            let wanted = BlockDecodingStrategy::UptoBytes(buffer.len() - there);
            let decoded = self.decoder.decode_blocks(&mut self.input, wanted);
            decoded.map_err(|error| error.to_string())?;
        }
    }

    /// Skips bytes of the input.
    fn skip(&mut self, bytes: u64) -> std::result::Result<(), String> {
        let skipped = io::copy(&mut (&mut self.input).take(bytes), &mut io::sink());
        match skipped.map_err(|error| error.to_string())? == bytes {
            true => Ok(()),
            false => Err("a frame ends early".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use flate2::Compression;
    use flate2::write::GzEncoder;
    use ruzstd::encoding::{CompressionLevel, compress_to_vec};

    use super::*;

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(bytes).expect("memory");
        encoder.finish().expect("memory")
    }

    fn zstandard(bytes: &[u8]) -> Vec<u8> {
        compress_to_vec(bytes, CompressionLevel::Fastest)
    }

    /// Bytes of which some repeat.
    fn data() -> Vec<u8> {
        (0..3_000_000_u32).map(|k| (k.wrapping_mul(2_654_435_761) >> 27) as u8).collect()
    }

    fn whole(packed: &[u8], ratio: u64) -> io::Result<Vec<u8>> {
        let kind = Kind::of(packed).expect("a compression");
        let mut found = Vec::new();
        Unpacked::new(packed, kind, ratio).read_to_end(&mut found).map(|_| found)
    }

    #[test]
    fn pieces_are_joined() {
        let bytes = data();
        let (first, second) = bytes.split_at(1_234_567);
        let empty = [0x28, 0xb5, 0x2f, 0xfd, 0, 0, 1, 0, 0];
        let skipped = [&[0x50, 0x2a, 0x4d, 0x18, 3, 0, 0, 0][..], b"abc"].concat();
        for packed in [
            gzip(&bytes),
            [gzip(first), gzip(&[]), gzip(second)].concat(),
            zstandard(&bytes),
            [zstandard(first), skipped, empty.to_vec(), zstandard(second)].concat(),
        ] {
            assert!(whole(&packed, RATIO).expect("data") == bytes);
            let mut found = Vec::new();
            let mut unpacked = stream(Box::new(Cursor::new(packed))).expect("a stream");
            unpacked.read_to_end(&mut found).expect("data");
            assert!(found == bytes);
        }
        let mut found = Vec::new();
        stream(Box::new(Cursor::new(vec![1, 2]))).unwrap().read_to_end(&mut found).unwrap();
        assert_eq!(found, [1, 2]);
    }

    #[test]
    fn files_are_opened_as_what_they_hold() {
        let folder = tempfile::tempdir().expect("a folder");
        let bytes = data();
        for (name, packed) in
            [("a", bytes.clone()), ("a.gz", gzip(&bytes)), ("a.zst", zstandard(&bytes))]
        {
            let path = folder.path().join(name);
            std::fs::write(&path, packed).unwrap();
            assert_eq!(is_compressed(&path), name != "a");
            assert!(head(&path, 1000).unwrap() == bytes[..1000]);
            let mut file = open(&path).unwrap();
            let mut found = Vec::new();
            file.read_to_end(&mut found).unwrap();
            assert!(found == bytes);
            let mut second = again(&file).unwrap();
            assert_eq!(second.stream_position().unwrap(), 0, "positions are apart");
        }
        assert!(!is_compressed(folder.path()) && !is_compressed(&folder.path().join("none")));
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 3);
    }

    #[test]
    fn cut_and_damaged_files_name_the_place() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a.packed");
        let bytes = data();
        let message = |packed: &[u8]| {
            std::fs::write(&path, packed).unwrap();
            let error = open(&path).expect_err("a fault");
            assert!(matches!(error, Error::Format { .. }), "{error}");
            error.to_string()
        };
        for (packed, name) in [(gzip(&bytes), "gzip"), (zstandard(&bytes), "Zstandard")] {
            for length in [12, packed.len() / 2, packed.len() - 1] {
                let cut = message(&packed[..length]);
                let place = format!("a.packed: {name} (at byte {length}): the file ends within");
                assert!(cut.contains(&place), "{cut}");
            }
            let mut damaged = packed.clone();
            let at = packed.len() - 6;
            damaged[at] ^= 0x55;
            let told = message(&damaged);
            let is_cut = name == "Zstandard" && told.contains("ends within");
            assert!(told.contains("damaged") || is_cut, "{told}");
            let more = message(&[packed, b"something else, long enough".to_vec()].concat());
            assert!(more.contains("damaged"), "{more}");
        }
    }

    #[test]
    fn no_input_makes_more_than_the_limit() {
        let zeros = vec![0; 96 << 20];
        for packed in [gzip(&zeros), zstandard(&zeros)] {
            let bytes = packed.len() as u64;
            let enough = (zeros.len() as u64 - FREE_BYTES).div_ceil(bytes);
            assert_eq!(whole(&packed, enough).expect("within the limit").len(), zeros.len());
            let error = whole(&packed, 1).expect_err("beyond the limit").to_string();
            assert!(error.contains("expected at most 1 for each and 67108864"), "{error}");
        }
        // Windows of 256 MiB and 128 MiB and a size of 4 GiB, and a first block.
        let wide = [0x28, 0xb5, 0x2f, 0xfd, 0, 18 << 3, 3, 0, 16, 0];
        let fitting = [0x28, 0xb5, 0x2f, 0xfd, 0, 17 << 3, 1, 0, 0];
        let long = [0x28, 0xb5, 0x2f, 0xfd, 0xe0, 0, 0, 0, 0, 1, 0, 0, 0, 3, 0, 16, 0];
        for (packed, window) in [(&wide[..], 1_u64 << 28), (&long[..], 1 << 32)] {
            let message = whole(packed, RATIO).expect_err("a wide window").to_string();
            let expected = format!("a window of {window} bytes found, expected at most 134217728");
            assert!(message.contains(&expected), "{message}");
        }
        assert_eq!(whole(&fitting, RATIO).expect("an empty frame"), [0; 0]);
    }

    #[test]
    fn no_bytes_make_it_panic() {
        let bytes: Vec<u8> = data()[..20_000].iter().map(|byte| byte / 3).collect();
        let mut state = 7_u64;
        let mut next = || {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) as usize
        };
        let mut faults = 0;
        for packed in [gzip(&bytes), zstandard(&bytes)] {
            let kind = Kind::of(&packed).expect("a compression");
            for _ in 0..2000 {
                let mut damaged = packed.clone();
                for _ in 0..1 + next() % 4 {
                    let at = next() % damaged.len().min(1 << (3 + next() % 12));
                    damaged[at] = next() as u8;
                }
                let mut found = Vec::new();
                let input = Unpacked::new(&damaged[..], kind, RATIO);
                let read = input.take(1 << 20).read_to_end(&mut found);
                faults += usize::from(read.is_err());
            }
        }
        assert!(faults > 1000, "{faults}");
    }

    #[test]
    fn only_headers_of_gzip_are_gzip() {
        assert_eq!(Kind::of(&gzip(b"a")[..10]), Some(Kind::Gzip));
        assert_eq!(Kind::of(b"\x1f\x8b\x08"), None);
        assert_eq!(Kind::of(b"\x1f\x8b\x08\xff\0\0\0\0\0\x03"), None);
        assert_eq!(Kind::of(b"\x1f\x8b\x08\0\0\0\0\0\0\x40"), None);
    }
}
