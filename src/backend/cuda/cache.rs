//! Cache of compiled kernels, in memory and on disk.
//!
//! The cache never fails. Without a usable folder (missing, full, read-only or another user's), kernels are compiled
//! in each process; damaged entries are recompiled. If the compiler has been removed, its cached kernels are still
//! used.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Once, OnceLock, PoisonError};
use std::time::{Duration, SystemTime};

use super::compile::{self, Compiler, HEADERS, Source, compile};
use super::startup::{self, Step};
use crate::error::{Error, Result};
use crate::trace::{self, Work};

/// Maximum bytes of kernels in the folder.
const MAX_BYTES: u64 = 512 << 20;
/// First bytes of an entry; the last byte is the version of the format.
const MAGIC: &[u8; 8] = b"SIDRCUB\x01";
/// Bytes before the machine code: magic, key, length, hash.
const HEADER_BYTES: usize = 8 + 16 + 8 + 16;
/// File extension of kernels.
const END: &str = ".cubin";
/// File that records the NVRTC found last.
const COMPILER: &str = "nvrtc";

/// Code of a kernel file: machine code or PTX.
#[derive(Clone, Debug)]
pub(super) struct Cubin {
    pub(super) code: Arc<Vec<u8>>,
    /// Whether it was loaded from disk.
    pub(super) is_stored: bool,
}

/// Returns the machine code of a source for an architecture, from the cache or compiled.
pub(super) fn cubin(source: &Source, architecture: &str) -> Result<Cubin> {
    match compile::found_compiler() {
        Ok(compiler) => {
            let cubin = cache().get(key(source, architecture, compiler.version), || {
                Ok(compile(source, architecture)?.code)
            })?;
            static REMEMBERED: Once = Once::new();
            REMEMBERED.call_once(|| cache().remember(compiler));
            Ok(cubin)
        }
        Err(missing) => cache().without_compiler(source, architecture, missing),
    }
}

/// Returns the compiler recorded in the cache, for processes without NVRTC.
pub(super) fn recorded_compiler() -> Option<Compiler> {
    cache().compiler()
}

/// Returns the installed compiler, or else the one recorded in the cache.
pub(super) fn compiler() -> Option<Compiler> {
    compile::installed().as_ref().ok().cloned().or_else(recorded_compiler)
}

/// Makes the machine code of a source available to [`cubin`], unless another thread is doing so. Errors are left to
/// [`cubin`].
pub(super) fn prepare(source: &Source, architecture: &str) {
    let Some(slot) = slot(source, architecture) else { return };
    let is_waiting = slot.try_lock().is_ok_and(|found| found.is_none());
    if is_waiting {
        let _span = trace::span(Work::Compile, source.name);
        let _ = cubin(source, architecture);
    }
}

/// Returns whether this process holds the machine code of a source.
pub(super) fn is_ready(source: &Source, architecture: &str) -> bool {
    slot(source, architecture).is_some_and(|slot| slot.try_lock().is_ok_and(|code| code.is_some()))
}

/// Returns whether kernels are kept on disk, where other processes find them.
pub(super) fn keeps() -> bool {
    cache().folder.is_ok()
}

/// Returns whether this process or the cache on disk holds the machine code of a source.
pub(super) fn is_at_hand(source: &Source, architecture: &str) -> bool {
    let Some(compiler) = compiler() else { return false };
    is_ready(source, architecture) || cache().holds(key(source, architecture, compiler.version))
}

/// Returns the slot of a source; `None` without a compiler, installed or recorded.
fn slot(source: &Source, architecture: &str) -> Option<Slot> {
    Some(cache().slot(key(source, architecture, compiler()?.version)))
}

/// Returns, once, a note for the user if compiled kernels could not be stored.
pub(super) fn take_note() -> Option<String> {
    static IS_TAKEN: AtomicBool = AtomicBool::new(false);
    let fault = lock(&cache().fault).clone()?;
    let is_first = !IS_TAKEN.swap(true, Ordering::Relaxed);
    is_first.then(|| {
        format!("compiled kernels are not kept, so that every start compiles them again: {fault}")
    })
}

/// Like [`cubin`], but recompiles regardless of the disk cache, for entries that the driver rejects.
pub(super) fn compiled(source: &Source, architecture: &str) -> Result<Cubin> {
    let key = key(source, architecture, compile::nvrtc()?);
    cache().make(key, || Ok(compile(source, architecture)?.code))
}

/// Returns the hash of everything that determines the machine code except the compiler's version.
pub(super) fn source_hash(source: &Source, architecture: &str) -> Hash {
    let mut hash = Hash::new().text(env!("CARGO_PKG_VERSION")).text(source.name).text(source.text);
    for (name, text) in HEADERS.iter().chain(source.includes) {
        hash = hash.text(name).text(text);
    }
    source.options(architecture).iter().fold(hash, |hash, option| hash.text(option))
}

fn key(source: &Source, architecture: &str, (major, minor): (u32, u32)) -> u128 {
    source_hash(source, architecture).text(&format!("NVRTC {major}.{minor}")).value()
}

fn cache() -> &'static Cache {
    static CACHE: OnceLock<Cache> = OnceLock::new();
    CACHE.get_or_init(|| Cache::new(place().as_deref(), MAX_BYTES))
}

/// One kernel in the process; empty until available. Threads that need it meanwhile wait on the mutex.
type Slot = Arc<Mutex<Option<Cubin>>>;

struct Cache {
    /// The folder, or the reason why there is none.
    folder: std::result::Result<Folder, String>,
    /// Reason why a kernel could not be stored, if one could not.
    fault: Mutex<Option<String>>,
    most_bytes: u64,
    slots: Mutex<HashMap<u128, Slot>>,
}

impl Cache {
    fn new(path: Option<&Path>, most_bytes: u64) -> Self {
        let unset = || "neither SIDEREAL_CACHE_DIR nor HOME is set".to_owned();
        let folder = path.ok_or_else(unset).and_then(Folder::open);
        Self { folder, fault: Mutex::default(), most_bytes, slots: Mutex::default() }
    }

    /// Returns the code of a key: from this process, from disk, or newly made.
    fn get(&self, key: u128, make: impl FnOnce() -> Result<Vec<u8>>) -> Result<Cubin> {
        let slot = self.slot(key);
        let mut found = lock(&slot);
        if let Some(cubin) = &*found {
            return Ok(cubin.clone());
        }
        let stored = startup::timed(Step::Cached, Option::is_some, || self.load(key));
        let cubin = match stored {
            Some(code) => Cubin { code: Arc::new(code), is_stored: true },
            None => self.store(key, startup::timed(Step::Compiled, Result::is_ok, make)?),
        };
        Ok(found.insert(cubin).clone())
    }

    /// Returns the code of a key, newly made unless this process has already made it.
    fn make(&self, key: u128, make: impl FnOnce() -> Result<Vec<u8>>) -> Result<Cubin> {
        let slot = self.slot(key);
        let mut found = lock(&slot);
        if let Some(cubin) = found.as_ref().filter(|cubin| !cubin.is_stored) {
            return Ok(cubin.clone());
        }
        let code = startup::timed(Step::Compiled, Result::is_ok, make)?;
        Ok(found.insert(self.store(key, code)).clone())
    }

    /// Returns the cached code of a source by the recorded compiler, when NVRTC is missing.
    fn without_compiler(
        &self,
        source: &Source,
        architecture: &str,
        missing: Error,
    ) -> Result<Cubin> {
        let Some(compiler) = self.compiler() else { return Err(missing) };
        self.get(key(source, architecture, compiler.version), || {
            let Error::Unavailable { what, why } = missing else { return Err(missing) };
            let kept = "; of the kernels that were compiled before, none is";
            Err(Error::Unavailable {
                what,
                why: format!("{why}{kept} {} for this plan", source.name),
            })
        })
    }

    /// Returns the compiler recorded in the folder.
    fn compiler(&self) -> Option<Compiler> {
        let folder = self.folder.as_ref().ok()?;
        Compiler::parse(&std::fs::read_to_string(folder.path(COMPILER)).ok()?)
    }

    /// Records the compiler for [`Cache::compiler`].
    fn remember(&self, compiler: &Compiler) {
        if let Ok(folder) = &self.folder
            && self.compiler().as_ref() != Some(compiler)
        {
            let _ = folder.write(COMPILER, compiler.text().as_bytes());
        }
    }

    fn slot(&self, key: u128) -> Slot {
        lock(&self.slots).entry(key).or_default().clone()
    }

    /// Returns whether the folder has a file of the key.
    fn holds(&self, key: u128) -> bool {
        self.folder.as_ref().is_ok_and(|folder| folder.path(&name(key)).is_file())
    }

    fn load(&self, key: u128) -> Option<Vec<u8>> {
        let path = self.folder.as_ref().ok()?.path(&name(key));
        let code = decode(key, &std::fs::read(&path).ok()?)?;
        // Updating the modification time keeps recently used entries longest.
        let _ = File::options()
            .append(true)
            .open(&path)
            .and_then(|file| file.set_modified(SystemTime::now()));
        Some(code)
    }

    fn store(&self, key: u128, code: Vec<u8>) -> Cubin {
        let stored = self.folder.clone().and_then(|folder| {
            let written = folder.write(&name(key), &encode(key, &code));
            let fault = |error| format!("{} cannot be written: {error}", folder.0.display());
            written.map(|()| folder.shrink(END, self.most_bytes)).map_err(fault)
        });
        if let Err(why) = stored {
            *lock(&self.fault) = Some(why);
        }
        Cubin { code: Arc::new(code), is_stored: false }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Slots are filled in one step, so the data are consistent even after a panic.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn name(key: u128) -> String {
    format!("{key:032x}{END}")
}

/// Formats an entry's bytes.
fn encode(key: u128, code: &[u8]) -> Vec<u8> {
    let hash = Hash::new().bytes(code).value();
    let header = [
        MAGIC.as_slice(),
        &key.to_le_bytes(),
        &(code.len() as u64).to_le_bytes(),
        &hash.to_le_bytes(),
    ];
    [header.concat().as_slice(), code].concat()
}

/// Returns the code in an entry's bytes, or `None` unless the entry is complete and has this key.
fn decode(key: u128, bytes: &[u8]) -> Option<Vec<u8>> {
    let (header, code) = bytes.split_at_checked(HEADER_BYTES)?;
    (header == &encode(key, code)[..HEADER_BYTES]).then(|| code.to_vec())
}

/// 128-bit hash (FNV-1a) that is identical on all machines and in all versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hash(u128);

const START: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;

impl Hash {
    /// Returns the hash of no bytes.
    pub(super) fn new() -> Self {
        Self(START)
    }

    /// Appends bytes.
    #[must_use]
    pub(super) fn bytes(self, bytes: &[u8]) -> Self {
        Self(bytes.iter().fold(self.0, |hash, byte| (hash ^ u128::from(*byte)).wrapping_mul(PRIME)))
    }

    /// Appends a text and its length, so that consecutive texts are unambiguous.
    #[must_use]
    pub(super) fn text(self, text: &str) -> Self {
        self.bytes(&(text.len() as u64).to_le_bytes()).bytes(text.as_bytes())
    }

    /// Returns the hash value.
    pub(super) fn value(self) -> u128 {
        self.0
    }
}

/// Folder that only this user can write to.
#[derive(Clone, Debug)]
pub(super) struct Folder(PathBuf);

/// Age at which partial files of killed processes are deleted.
const LEFT_OVER: Duration = Duration::from_secs(3600);

/// Returns the path of the cache folder: `$SIDEREAL_CACHE_DIR`, else `sidereal` in `$XDG_CACHE_HOME`, else in
/// `~/.cache`.
pub(super) fn place() -> Option<PathBuf> {
    place_by(|name| std::env::var_os(name))
}

fn place_by(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let path = |name| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let base = || {
        // The XDG specification requires ignoring a relative path.
        let xdg = path("XDG_CACHE_HOME").filter(|path| path.is_absolute());
        xdg.or_else(|| path("HOME").map(|home| home.join(".cache")))
    };
    path("SIDEREAL_CACHE_DIR").or_else(|| base().map(|base| base.join("sidereal")))
}

impl Folder {
    /// Opens the folder at `path`, creating it if missing.
    ///
    /// # Errors
    /// A sentence for the user if it cannot be created, belongs to another user, or is writable by others.
    pub(super) fn open(path: &Path) -> std::result::Result<Self, String> {
        let place = path.display();
        if fs::metadata(path).is_err() {
            make(path).map_err(|error| format!("the folder {place} cannot be created: {error}"))?;
        }
        match is_ours(path) {
            true => Ok(Self(path.to_owned())),
            false => Err(format!(
                "{place} is not a folder that belongs to this user and that only this user may write to"
            )),
        }
    }

    /// Returns the path of file `name`.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Writes a file atomically: it appears under its name only when complete.
    pub(super) fn write(&self, name: &str, bytes: &[u8]) -> std::io::Result<()> {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let part = self.path(&format!(".{name}.{}.{count}.part", std::process::id()));
        let written = create(&part)
            .and_then(|mut file| file.write_all(bytes))
            .and_then(|()| fs::rename(&part, self.path(name)));
        if written.is_err() {
            let _ = fs::remove_file(&part);
        }
        written
    }

    /// Removes the oldest files whose names end with `end` until the rest hold at most `most` bytes, and old partial
    /// files of killed processes.
    pub(super) fn shrink(&self, end: &str, most: u64) {
        let mut files = Vec::new();
        for entry in fs::read_dir(&self.0).into_iter().flatten().flatten() {
            let Ok(metadata) = entry.metadata() else { continue };
            let modified = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
            let name = entry.file_name();
            let name = name.to_string_lossy();
            if name.starts_with('.') && name.ends_with(".part") {
                if modified.elapsed().is_ok_and(|age| age > LEFT_OVER) {
                    let _ = fs::remove_file(entry.path());
                }
            } else if name.ends_with(end) {
                files.push((modified, metadata.len(), entry.path()));
            }
        }
        files.sort_by_key(|file| std::cmp::Reverse(file.0));
        let mut bytes = 0;
        for (_, length, path) in files {
            bytes += length;
            if bytes > most {
                let _ = fs::remove_file(path);
            }
        }
    }
}

#[cfg(unix)]
fn make(path: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    fs::DirBuilder::new().mode(0o700).create(path)
}

#[cfg(not(unix))]
fn make(path: &Path) -> std::io::Result<()> {
    fs::create_dir_all(path)
}

#[cfg(unix)]
fn create(path: &Path) -> std::io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

#[cfg(not(unix))]
fn create(path: &Path) -> std::io::Result<File> {
    OpenOptions::new().write(true).create_new(true).open(path)
}

/// Returns whether a folder belongs to this user and only this user may write to it.
#[cfg(unix)]
fn is_ours(path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    unsafe extern "C" {
        safe fn geteuid() -> u32;
    }
    fs::metadata(path)
        .is_ok_and(|found| found.is_dir() && found.uid() == geteuid() && found.mode() & 0o022 == 0)
}

#[cfg(not(unix))]
fn is_ours(path: &Path) -> bool {
    path.is_dir()
}

#[cfg(test)]
mod folder_tests {
    use super::*;

    fn place_of(variables: &[(&str, &str)]) -> Option<PathBuf> {
        place_by(|name| {
            variables.iter().find(|variable| variable.0 == name).map(|variable| variable.1.into())
        })
    }

    #[test]
    fn the_place_is_the_first_that_is_set() {
        let home = ("HOME", "/home/ada");
        let expected = |path: &str| Some(PathBuf::from(path));
        assert_eq!(place_of(&[home]), expected("/home/ada/.cache/sidereal"));
        assert_eq!(place_of(&[home, ("XDG_CACHE_HOME", "/x")]), expected("/x/sidereal"));
        assert_eq!(
            place_of(&[home, ("XDG_CACHE_HOME", "x")]),
            expected("/home/ada/.cache/sidereal")
        );
        let all = [home, ("XDG_CACHE_HOME", "/x"), ("SIDEREAL_CACHE_DIR", "/mine")];
        assert_eq!(place_of(&all), expected("/mine"));
        assert_eq!(
            place_of(&[home, ("SIDEREAL_CACHE_DIR", "")]),
            expected("/home/ada/.cache/sidereal")
        );
        assert_eq!(place_of(&[]), None);
    }

    #[test]
    fn the_oldest_files_go_first() {
        let place = tempfile::tempdir().expect("a folder");
        let folder = Folder::open(place.path()).expect("it is ours");
        for (age, name) in [(30, "old.x"), (20, "middle.x"), (10, "new.x"), (40, "other.y")] {
            folder.write(name, &[0; 100]).expect("room");
            let modified = SystemTime::now() - Duration::from_secs(age);
            let file = File::options().write(true).open(folder.path(name)).expect("it is there");
            file.set_modified(modified).expect("ours");
        }
        folder.shrink(".x", 250);
        let is_there = |name: &str| folder.path(name).exists();
        assert!(!is_there("old.x") && is_there("middle.x") && is_there("new.x"));
        assert!(is_there("other.y"));
    }

    #[test]
    fn files_left_half_written_are_removed_when_they_are_old() {
        let place = tempfile::tempdir().expect("a folder");
        let folder = Folder::open(place.path()).expect("it is ours");
        for (name, age) in [(".a.x.1.0.part", 2 * LEFT_OVER), (".b.x.1.0.part", LEFT_OVER / 2)] {
            fs::write(folder.path(name), "half").expect("room");
            let file = File::options().write(true).open(folder.path(name)).expect("it is there");
            file.set_modified(SystemTime::now() - age).expect("ours");
        }
        folder.shrink(".x", 0);
        assert!(!folder.path(".a.x.1.0.part").exists());
        assert!(folder.path(".b.x.1.0.part").exists());
    }

    #[cfg(unix)]
    #[test]
    fn only_a_folder_of_ones_own_is_used() {
        use std::os::unix::fs::{PermissionsExt, chown};
        let place = tempfile::tempdir().expect("a folder");
        let made = place.path().join("a/b");
        assert!(Folder::open(&made).is_ok());
        let mode = fs::metadata(&made).expect("it was made").permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        fs::set_permissions(&made, fs::Permissions::from_mode(0o770)).expect("ours");
        assert!(Folder::open(&made).is_err(), "others may write");
        fs::set_permissions(&made, fs::Permissions::from_mode(0o755)).expect("ours");
        assert!(Folder::open(&made).is_ok(), "others may only read");
        // `/` belongs to another user, except for root, who can change a folder's owner.
        let others = if chown(&made, Some(12345), None).is_ok() { &made } else { Path::new("/") };
        assert!(Folder::open(others).is_err(), "another user's");
        fs::write(place.path().join("file"), "").expect("room");
        assert!(Folder::open(&place.path().join("file")).is_err());
        assert!(Folder::open(&place.path().join("file/below")).is_err());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: Source =
        Source { name: "a.cu", text: "a", includes: &[("b.cuh", "b")], defines: vec![] };

    fn code(bytes: &[u8]) -> impl FnOnce() -> Result<Vec<u8>> {
        || Ok(bytes.to_vec())
    }

    fn never() -> Result<Vec<u8>> {
        panic!("compiled though it is there")
    }

    #[test]
    fn a_kernel_is_compiled_once_a_process_and_once_a_folder() {
        let place = tempfile::tempdir().expect("a folder");
        let cache = Cache::new(Some(place.path()), MAX_BYTES);
        let first = cache.get(7, code(b"machine")).expect("made");
        assert!(!first.is_stored);
        assert!(Arc::ptr_eq(&first.code, &cache.get(7, never).expect("kept").code));
        assert_eq!(*cache.get(8, code(b"other")).expect("made").code, b"other");
        let next = Cache::new(Some(place.path()), MAX_BYTES).get(7, never).expect("on disk");
        assert!(next.is_stored && *next.code == b"machine");
    }

    #[test]
    fn threads_that_want_the_same_kernel_wait_for_one() {
        let cache = Cache::new(None, MAX_BYTES);
        let count = std::sync::atomic::AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let make = || {
                        count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                        Ok(vec![1])
                    };
                    cache.get(1, make).expect("made")
                });
            }
        });
        assert_eq!(count.into_inner(), 1);
    }

    #[test]
    fn a_damaged_entry_is_compiled_again() {
        let place = tempfile::tempdir().expect("a folder");
        let path = place.path().join(name(7));
        let fresh = || Cache::new(Some(place.path()), MAX_BYTES);
        fresh().get(7, code(b"machine")).expect("made");
        let whole = std::fs::read(&path).expect("stored");
        assert_eq!(whole.len(), HEADER_BYTES + 7);
        let mut damaged: Vec<Vec<u8>> = (0..whole.len())
            .map(|at| {
                let mut bytes = whole.clone();
                bytes[at] ^= 0x10;
                bytes
            })
            .collect();
        damaged.extend((0..whole.len()).map(|length| whole[..length].to_vec()));
        damaged.push([whole.as_slice(), &[0]].concat());
        damaged.push(encode(8, b"another's"));
        for bytes in damaged {
            std::fs::write(&path, &bytes).expect("room");
            let cubin = fresh().get(7, code(b"again")).expect("made");
            assert!(!cubin.is_stored && *cubin.code == b"again", "{bytes:?}");
            assert_eq!(std::fs::read(&path).expect("stored"), encode(7, b"again"));
        }
    }

    #[test]
    fn an_entry_that_the_driver_refuses_is_compiled_again_once() {
        let place = tempfile::tempdir().expect("a folder");
        Cache::new(Some(place.path()), MAX_BYTES).get(7, code(b"wrong")).expect("made");
        let cache = Cache::new(Some(place.path()), MAX_BYTES);
        assert!(cache.get(7, never).expect("stored").is_stored);
        assert_eq!(*cache.make(7, code(b"right")).expect("made").code, b"right");
        assert_eq!(*cache.make(7, never).expect("made here").code, b"right");
        assert_eq!(*cache.get(7, never).expect("made here").code, b"right");
    }

    #[test]
    fn without_a_folder_kernels_are_compiled_all_the_same() {
        let place = tempfile::tempdir().expect("a folder");
        let file = place.path().join("file");
        std::fs::write(&file, "").expect("room");
        let gone = place.path().join("gone");
        let removed = Cache::new(Some(&gone), MAX_BYTES);
        std::fs::remove_dir(&gone).expect("it was made");
        // Even root cannot write to /proc.
        for cache in [
            Cache::new(None, 1),
            Cache::new(Some(&file), 1),
            Cache::new(Some(Path::new("/proc")), 1),
            removed,
        ] {
            assert_eq!(*cache.get(7, code(b"machine")).expect("made").code, b"machine");
            assert!(lock(&cache.fault).is_some(), "it is said that nothing is kept");
        }
        let cache = Cache::new(Some(place.path()), 1000);
        cache.get(7, code(b"machine")).expect("made");
        assert_eq!(*lock(&cache.fault), None);
        let fault = |path: &Path| Cache::new(Some(path), 1).folder.err().unwrap_or_default();
        let file_fault = fault(&file);
        assert!(file_fault.starts_with(&format!("{} is not", file.display())), "{file_fault}");
        let below_fault = fault(&file.join("below"));
        assert!(below_fault.contains("/file/below cannot be created: "), "{below_fault}");
    }

    #[test]
    fn a_failed_compilation_is_an_error_and_leaves_nothing() {
        let place = tempfile::tempdir().expect("a folder");
        let cache = Cache::new(Some(place.path()), MAX_BYTES);
        let refused = || Err(Error::Unavailable { what: String::new(), why: String::new() });
        assert!(cache.get(7, refused).is_err());
        assert_eq!(std::fs::read_dir(place.path()).expect("it is there").count(), 0);
        assert_eq!(*cache.get(7, code(b"now")).expect("made").code, b"now");
    }

    #[test]
    fn the_folder_keeps_to_its_size() {
        let place = tempfile::tempdir().expect("a folder");
        let cache = Cache::new(Some(place.path()), 1000);
        for key in 0..20 {
            cache.get(key, code(&[0; 200])).expect("made");
        }
        let bytes: u64 = std::fs::read_dir(place.path())
            .expect("it is there")
            .map(|entry| entry.and_then(|entry| entry.metadata()).expect("it is there").len())
            .sum();
        assert!((1..=1000).contains(&bytes), "{bytes}");
    }

    #[test]
    fn the_key_holds_all_that_decides_the_code() {
        let base = key(&SOURCE, "sm_90a", (13, 0));
        let changed = [
            key(&Source { text: "b", ..SOURCE }, "sm_90a", (13, 0)),
            key(&Source { name: "b.cu", ..SOURCE }, "sm_90a", (13, 0)),
            key(&Source { includes: &[("b.cuh", "c")], ..SOURCE }, "sm_90a", (13, 0)),
            key(&Source { includes: &[], ..SOURCE }, "sm_90a", (13, 0)),
            key(&Source { defines: vec![("A", "1".to_owned())], ..SOURCE }, "sm_90a", (13, 0)),
            key(&SOURCE, "sm_90", (13, 0)),
            key(&SOURCE, "sm_90a", (13, 1)),
        ];
        for (index, other) in changed.iter().enumerate() {
            assert_ne!(base, *other, "{index}");
        }
        assert_eq!(base, key(&SOURCE.clone(), "sm_90a", (13, 0)));
    }

    #[test]
    fn without_its_compiler_a_kernel_is_found_again_or_told_to_be_missing() {
        let place = tempfile::tempdir().expect("a folder");
        let fresh = || Cache::new(Some(place.path()), MAX_BYTES);
        let gone =
            || Error::Unavailable { what: "compiling".to_owned(), why: "it is gone".to_owned() };
        let find = |source: &Source| fresh().without_compiler(source, "sm_90a", gone());
        assert!(find(&SOURCE).is_err() && fresh().compiler().is_none());
        fresh().get(key(&SOURCE, "sm_90a", (13, 0)), code(b"machine")).expect("made");
        let compiler = Compiler { version: (13, 0), known: vec![80, 90] };
        fresh().remember(&compiler);
        assert_eq!(fresh().compiler(), Some(compiler));
        assert_eq!(*find(&SOURCE).expect("kept").code, b"machine");
        let error = find(&Source { name: "b.cu", ..SOURCE }).expect_err("never made").to_string();
        assert!(error.contains("it is gone") && error.contains("b.cu"), "{error}");
        for damaged in ["", "13", "13.x", "-1.0"] {
            std::fs::write(place.path().join(COMPILER), damaged).expect("room");
            assert!(fresh().compiler().is_none() && find(&SOURCE).is_err(), "{damaged}");
        }
    }

    #[test]
    fn known_hashes() {
        let hash = |text: &str| Hash::new().bytes(text.as_bytes()).value();
        assert_eq!(hash(""), START);
        assert_eq!(hash("a"), 0xd228_cb69_6f1a_8caf_7891_2b70_4e4a_8964);
        assert_eq!(hash("foobar"), 0x343e_1662_793c_64bf_6f0d_3597_ba44_6f18);
    }

    #[test]
    fn texts_do_not_run_into_each_other() {
        assert_ne!(Hash::new().text("ab").text("c"), Hash::new().text("a").text("bc"));
    }
}
