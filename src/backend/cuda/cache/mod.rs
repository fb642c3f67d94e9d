//! Cache of compiled kernels, in memory and on disk.
//!
//! The cache never fails. Without a usable folder (missing, full, read-only or another user's), kernels are compiled
//! in each process; damaged entries are recompiled. If the compiler has been removed, its cached kernels are still
//! used.

pub(super) mod folder;

use std::collections::HashMap;
use std::fs::File;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, Once, OnceLock, PoisonError};
use std::time::SystemTime;

use super::compile::{HEADERS, Source, compile};
use super::nvrtc;
use super::target::Compiler;
use crate::error::{Error, Result};
use folder::Folder;

/// Maximum bytes of kernels in the folder.
const MOST_BYTES: u64 = 512 << 20;
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
    match nvrtc::found_compiler() {
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
    nvrtc::installed().as_ref().ok().cloned().or_else(recorded_compiler)
}

/// Like [`cubin`], but recompiles regardless of the disk cache, for entries that the driver rejects.
pub(super) fn compiled(source: &Source, architecture: &str) -> Result<Cubin> {
    let key = key(source, architecture, nvrtc::nvrtc()?);
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
    CACHE.get_or_init(|| Cache::new(folder::place().as_deref(), MOST_BYTES))
}

/// One kernel in the process; empty until available. Threads that need it meanwhile wait on the mutex.
type Slot = Arc<Mutex<Option<Cubin>>>;

struct Cache {
    folder: Option<Folder>,
    most_bytes: u64,
    slots: Mutex<HashMap<u128, Slot>>,
}

impl Cache {
    fn new(path: Option<&Path>, most_bytes: u64) -> Self {
        Self { folder: path.and_then(Folder::open), most_bytes, slots: Mutex::default() }
    }

    /// Returns the code of a key: from this process, from disk, or newly made.
    fn get(&self, key: u128, make: impl FnOnce() -> Result<Vec<u8>>) -> Result<Cubin> {
        let slot = self.slot(key);
        let mut found = lock(&slot);
        if let Some(cubin) = &*found {
            return Ok(cubin.clone());
        }
        let cubin = match self.load(key) {
            Some(code) => Cubin { code: Arc::new(code), is_stored: true },
            None => self.store(key, make()?),
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
        Ok(found.insert(self.store(key, make()?)).clone())
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

    /// Returns the compiler whose code the folder holds.
    fn compiler(&self) -> Option<Compiler> {
        Compiler::parse(&std::fs::read_to_string(self.folder.as_ref()?.path(COMPILER)).ok()?)
    }

    /// Records the compiler for [`Cache::compiler`].
    fn remember(&self, compiler: &Compiler) {
        if let Some(folder) = &self.folder
            && self.compiler().as_ref() != Some(compiler)
        {
            let _ = folder.write(COMPILER, compiler.text().as_bytes());
        }
    }

    fn slot(&self, key: u128) -> Slot {
        lock(&self.slots).entry(key).or_default().clone()
    }

    fn load(&self, key: u128) -> Option<Vec<u8>> {
        let path = self.folder.as_ref()?.path(&name(key));
        let code = decode(key, &std::fs::read(&path).ok()?)?;
        // Updating the modification time keeps recently used entries longest.
        let _ = File::options()
            .append(true)
            .open(&path)
            .and_then(|file| file.set_modified(SystemTime::now()));
        Some(code)
    }

    fn store(&self, key: u128, code: Vec<u8>) -> Cubin {
        if let Some(folder) = &self.folder
            && folder.write(&name(key), &encode(key, &code)).is_ok()
        {
            folder.shrink(END, self.most_bytes);
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

#[cfg(test)]
mod tests;
