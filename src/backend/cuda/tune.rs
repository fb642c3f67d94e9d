//! Selection among kernel variants with identical results: a default, or the variant measured fastest if the user runs
//! tuning.
//!
//! A stage offers tuning candidates, the default first, and builds the one that [`select`] returns for its plan's
//! shape. Measured choices are cached in the user's folder by kernel, device, driver and shape.

use std::sync::OnceLock;

use bytemuck::Pod;

use super::cache::{Folder, Hash, place, source_hash};
pub use super::device::Candidate;
use super::device::{PendingKey, TuningKey};
use super::{Buffer, Device, Source, Stream};
use crate::error::{Error, Result};

/// Returns the candidate measured fastest on this device for this kernel and shape. Returns the first candidate if
/// nothing was measured or the measurement is stale; a note reports a stale one ([`Device::take_notes`]).
///
/// A shape is every part of the plan that the choice depends on, such as `channels=1024 trials=3050 bits=8`. The
/// kernel's constants are excluded, because they follow from plan and choice. All candidates must give identical
/// results. While [`tune`] runs, the function returns the candidate that is being measured.
///
/// # Panics
/// If there are no candidates.
pub fn select(
    device: &Device,
    kernel: &Source,
    shape: &str,
    candidates: &[Candidate],
) -> Candidate {
    let key = tuning_key(device, kernel, shape);
    let mut state = device.state();
    if state.is_tuning {
        let forced = state.forced.iter().find(|forced| forced.0 == key);
        let choice = forced.map_or_else(|| candidates[0].clone(), |forced| forced.1.clone());
        if state.pending.iter().all(|pending| pending.key != key) {
            state.pending.push(PendingKey { key, candidates: candidates.to_vec() });
        }
        return choice;
    }
    match found(folder(), &key, candidates) {
        Ok(choice) => choice.unwrap_or_else(|| candidates[0].clone()),
        Err(why) => {
            let name = kernel.name;
            state.note(format!("the tuned choice of {name} for {shape} was not used: {why}"));
            candidates[0].clone()
        }
    }
}

/// Stores the fastest measured candidate for [`select`].
///
/// # Errors
/// [`Error::Unavailable`] without a private cache folder or if no candidate could be launched; [`Error::Io`] if the
/// file cannot be written.
pub fn store(tuned: &Tuned) -> Result<()> {
    let Some((choice, seconds)) = tuned.best() else {
        return Err(Error::Unavailable {
            what: format!("a choice of {} for {}", tuned.kernel(), tuned.shape()),
            why: "none of the candidates can be launched".to_owned(),
        });
    };
    write_candidate(folder(), &tuned.key, choice, seconds)
}

/// Returns a hash of a buffer's contents; of a large buffer, it samples evenly spaced pieces.
///
/// # Errors
/// [`Error::Device`] if the driver or earlier work failed.
pub fn digest<T: Pod>(buffer: &Buffer<T>) -> Result<u128> {
    /// Elements per piece, and the maximum number of pieces.
    const PIECE: usize = 4096;
    const PIECES: usize = 256;
    let mut values = vec![T::zeroed(); PIECE.min(buffer.len())];
    let (last, pieces) = (buffer.len() - values.len(), PIECES.min(buffer.len().div_ceil(PIECE)));
    let mut hash = Hash::new();
    for piece in 0..pieces {
        buffer.download(last * piece / (pieces - 1).max(1), &mut values)?;
        hash = hash.bytes(bytemuck::cast_slice(&values));
    }
    Ok(hash.value())
}

/// Returns a hash of bytes that a stage has copied to the host.
pub fn digest_of(bytes: &[u8]) -> u128 {
    Hash::new().bytes(bytes).value()
}

/// Returns the key of a kernel and a shape on a device.
fn tuning_key(device: &Device, kernel: &Source, shape: &str) -> TuningKey {
    let plain = Source { defines: Vec::new(), ..kernel.clone() };
    let properties = device.properties();
    TuningKey {
        kernel: kernel.name.to_owned(),
        kernel_hash: source_hash(&plain, &device.architecture()).value(),
        device: properties.name.clone(),
        driver: driver(properties.driver_version),
        shape: shape.to_owned(),
    }
}

impl TuningKey {
    /// Returns the name of the cache file. Values that make an entry stale are stored in the file, not in its name,
    /// so that staleness can be reported.
    fn file(&self) -> String {
        let hash = Hash::new().text(&self.kernel).text(&self.device).text(&self.shape);
        format!("{:032x}{END}", hash.value())
    }
}

/// File extension of choices, and the maximum bytes of all files.
const END: &str = ".tune";
const MAX_BYTES: u64 = 4 << 20;

/// Returns the driver's CUDA version, and its own version if Linux reports it.
fn driver(version: u32) -> String {
    let own = std::fs::read_to_string("/sys/module/nvidia/version").unwrap_or_default();
    format!("{version} {}", own.trim()).trim().to_owned()
}

fn folder() -> Option<&'static Folder> {
    static FOLDER: OnceLock<Option<Folder>> = OnceLock::new();
    FOLDER.get_or_init(|| Folder::open(&place()?).ok()).as_ref()
}

/// Values of the fastest candidate, and the key for which it was measured.
#[derive(Clone, Debug, PartialEq)]
struct Stored {
    key: TuningKey,
    values: Vec<u32>,
    /// Seconds per run in the fastest batch.
    seconds: f64,
}

/// First line of the file.
const TITLE: &str = "sidereal tune 1";

impl Stored {
    /// Formats the file.
    fn text(&self) -> String {
        let TuningKey { kernel, kernel_hash, device, driver, shape } = &self.key;
        let values: Vec<String> = self.values.iter().map(u32::to_string).collect();
        let lines = [
            TITLE.to_owned(),
            format!("kernel {kernel}"),
            format!("hash {kernel_hash:032x}"),
            format!("device {device}"),
            format!("driver {driver}"),
            format!("shape {shape}"),
            format!("choice {}", values.join(" ")),
            format!("seconds {:e}", self.seconds),
        ];
        let text = lines.map(|line| line.replace('\n', " ") + "\n").concat();
        format!("{text}check {:032x}\n", Hash::new().bytes(text.as_bytes()).value())
    }

    /// Parses a file; returns `None` if it is incomplete or damaged.
    fn parse(text: &str) -> Option<Self> {
        let (body, check) = text.strip_suffix('\n')?.split_at(text.rfind("check ")?);
        let check = u128::from_str_radix(check.strip_prefix("check ")?, 16).ok()?;
        if Hash::new().bytes(body.as_bytes()).value() != check {
            return None;
        }
        let mut lines = body.lines();
        if lines.next()? != TITLE {
            return None;
        }
        let mut value = |name: &str| lines.next()?.strip_prefix(name)?.strip_prefix(' ');
        Some(Self {
            key: TuningKey {
                kernel: value("kernel")?.to_owned(),
                kernel_hash: u128::from_str_radix(value("hash")?, 16).ok()?,
                device: value("device")?.to_owned(),
                driver: value("driver")?.to_owned(),
                shape: value("shape")?.to_owned(),
            },
            values: value("choice")?
                .split_whitespace()
                .map(|word| word.parse().ok())
                .collect::<Option<_>>()?,
            seconds: value("seconds")?.parse().ok()?,
        })
    }
}

/// Returns the stored choice if it is still a candidate, or the reason why it cannot be used.
fn found(
    folder: Option<&Folder>,
    key: &TuningKey,
    candidates: &[Candidate],
) -> std::result::Result<Option<Candidate>, String> {
    let path = folder.map(|folder| folder.path(&key.file()));
    let Some(text) = path.and_then(|path| std::fs::read_to_string(path).ok()) else {
        return Ok(None);
    };
    let again = "`sidereal tune` measures it again";
    let stored = Stored::parse(&text).ok_or(format!("its file is damaged; {again}"))?;
    let because = |what: &str| Err(format!("it was measured with another {what}; {again}"));
    match &stored.key {
        other if other == key => {}
        other if other.kernel_hash != key.kernel_hash => {
            return because("version of the kernel");
        }
        other if other.driver != key.driver => return because("driver"),
        _ => return because("device or plan"),
    }
    let known = candidates.iter().find(|candidate| candidate.values == stored.values);
    match known {
        Some(choice) => Ok(Some(choice.clone())),
        None => because("set of choices"),
    }
}

fn write_candidate(
    folder: Option<&Folder>,
    key: &TuningKey,
    choice: &Candidate,
    seconds: f64,
) -> Result<()> {
    let Some(folder) = folder else {
        return Err(Error::Unavailable {
            what: "a folder for tuned choices".to_owned(),
            why: "it must be this user's own, and nobody else may write to it: set SIDEREAL_CACHE_DIR"
                .to_owned(),
        });
    };
    let stored = Stored { key: key.clone(), values: choice.values.clone(), seconds };
    let name = key.file();
    let written = folder.write(&name, stored.text().as_bytes());
    written.map_err(|error| Error::io(folder.path(&name), error))?;
    folder.shrink(END, MAX_BYTES);
    Ok(())
}

/// Stage bound to a plan and a device, with resident data larger than the caches.
pub trait Work {
    /// Enqueues the work once.
    ///
    /// # Errors
    /// Any error that prevents the launch.
    fn enqueue(&mut self, stream: &Stream) -> Result<()>;
    /// Returns a hash of the first launch's output ([`digest`], [`digest_of`]); it must be equal for
    /// all candidates.
    ///
    /// # Errors
    /// [`Error::Device`] if the driver fails.
    fn digest(&mut self) -> Result<u128>;
}

/// Result of one candidate.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// Candidate.
    pub choice: Candidate,
    /// Seconds per run in the fastest and in the median batch, or the reason why the candidate cannot be launched.
    pub seconds: std::result::Result<(f64, f64), String>,
}

/// Results of all candidates of one kernel.
#[derive(Clone, Debug)]
pub struct Tuned {
    pub(super) key: TuningKey,
    /// Results in the order of the stage's candidates.
    pub measured: Vec<Measured>,
}

impl Tuned {
    /// Returns the kernel's file name.
    pub fn kernel(&self) -> &str {
        &self.key.kernel
    }

    /// Returns the plan's shape to which the choice applies.
    pub fn shape(&self) -> &str {
        &self.key.shape
    }

    /// Returns the candidate with the lowest median, and its seconds per run in the fastest batch.
    pub fn best(&self) -> Option<(&Candidate, f64)> {
        let launched = self.measured.iter().filter_map(|measured| {
            let (fastest, median) = *measured.seconds.as_ref().ok()?;
            Some((&measured.choice, fastest, median))
        });
        let best = launched.min_by(|a, b| a.2.total_cmp(&b.2));
        best.map(|(choice, fastest, _)| (choice, fastest))
    }
}

/// Timed batches; each takes about `BATCH_S`.
const BATCHES: usize = 20;
const BATCH_S: f64 = 2e-3;
/// Maximum number of runs per batch.
const MAX_RUNS: usize = 64;

/// Measures every candidate of every kernel of a [`Work`], kernel by kernel, each with the best choices for the kernels
/// before it. `build` creates the work, in which stages call [`select`]. `observe` receives each result with
/// its kernel's file name and can abort the tuning with an error.
///
/// # Errors
/// Errors of `build` with the default choices, and of `observe`; [`Error::Device`] if candidates differ in their
/// results or the device is lost.
pub fn tune(
    device: &Device,
    build: &mut dyn FnMut() -> Result<Box<dyn Work>>,
    observe: &mut dyn FnMut(&str, &Measured) -> Result<()>,
) -> Result<Vec<Tuned>> {
    let _tuning = Tuning::begin(device);
    let stream = device.stream()?;
    let digest = {
        let mut work = build()?;
        work.enqueue(&stream)?;
        stream.synchronize()?;
        work.digest()?
    };
    let mut all: Vec<Tuned> = Vec::new();
    while let Some(PendingKey { key, candidates }) = next(device, build, &all)? {
        let mut tuned = Tuned { key, measured: Vec::new() };
        for choice in candidates {
            force(device, &tuned.key, &choice);
            let seconds = match seconds(&stream, build, digest) {
                Err(Error::Device { call: "tune", code, text }) => {
                    let text = format!("{}, {}: {text}", tuned.kernel(), choice.name);
                    return Err(Error::Device { call: "tune", code, text });
                }
                // A lost device fails every call, which ends the tuning.
                Err(error) => device.synchronize().map(|()| Err(error.to_string()))?,
                Ok(seconds) => Ok(seconds),
            };
            let measured = Measured { choice, seconds };
            observe(tuned.kernel(), &measured)?;
            tuned.measured.push(measured);
        }
        if let Some((choice, _)) = tuned.best() {
            force(device, &tuned.key, choice);
        }
        all.push(tuned);
    }
    Ok(all)
}

/// Builds the work with the best choices so far and returns the first kernel that has not been measured. A kernel's
/// key can depend on another kernel's choice.
fn next(
    device: &Device,
    build: &mut dyn FnMut() -> Result<Box<dyn Work>>,
    done: &[Tuned],
) -> Result<Option<PendingKey>> {
    device.state().pending.clear();
    drop(build()?);
    let pending = device.state().pending.clone();
    let is_new = |pending: &PendingKey| done.iter().all(|tuned| tuned.key != pending.key);
    Ok(pending.into_iter().find(is_new))
}

/// Guard of a tuning run. While it exists, stages use the forced choices and ignore stored ones.
struct Tuning<'a>(&'a Device);

impl<'a> Tuning<'a> {
    fn begin(device: &'a Device) -> Self {
        let mut state = device.state();
        (state.pending, state.forced) = (Vec::new(), Vec::new());
        state.is_tuning = true;
        Self(device)
    }
}

impl Drop for Tuning<'_> {
    fn drop(&mut self) {
        self.0.state().is_tuning = false;
    }
}

fn force(device: &Device, key: &TuningKey, choice: &Candidate) {
    let forced = &mut device.state().forced;
    forced.retain(|other| other.0 != *key);
    forced.push((key.clone(), choice.clone()));
}

/// Returns the seconds per run in the fastest and in the median batch.
fn seconds(
    stream: &Stream,
    build: &mut dyn FnMut() -> Result<Box<dyn Work>>,
    digest: u128,
) -> Result<(f64, f64)> {
    let mut work = build()?;
    let device = stream.device();
    let (begin, end) = (device.event()?, device.event()?);
    let batch = |work: &mut dyn Work, runs: usize| {
        stream.record(&begin)?;
        for _ in 0..runs {
            work.enqueue(stream)?;
        }
        stream.record(&end)?;
        stream.synchronize()?;
        Ok(end.seconds_since(&begin)? / runs as f64)
    };
    batch(work.as_mut(), 1)?;
    if work.digest()? != digest {
        let text = "its output differs from that of the first candidate".to_owned();
        return Err(Error::Device { call: "tune", code: 0, text });
    }
    let once: f64 = batch(work.as_mut(), 1)?;
    let runs = ((BATCH_S / once.max(1e-9)).ceil() as usize).clamp(1, MAX_RUNS);
    let times = (0..BATCHES).map(|_| batch(work.as_mut(), runs));
    let mut times = times.collect::<Result<Vec<f64>>>()?;
    times.sort_by(f64::total_cmp);
    Ok((times[0], times[BATCHES / 2]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> TuningKey {
        TuningKey {
            kernel: "tile.cu".to_owned(),
            kernel_hash: 7 << 100,
            device: "NVIDIA H200".to_owned(),
            driver: "13000 580.95".to_owned(),
            shape: "channels=1024 trials=3050".to_owned(),
        }
    }

    fn candidates() -> Vec<Candidate> {
        [[64, 3], [128, 2]]
            .map(|values| Candidate { name: format!("{values:?}"), values: values.to_vec() })
            .to_vec()
    }

    fn kept() -> (tempfile::TempDir, Folder) {
        let place = tempfile::tempdir().expect("a folder");
        let folder = Folder::open(place.path()).expect("it is ours");
        write_candidate(Some(&folder), &key(), &candidates()[1], 1.25e-3).expect("room");
        (place, folder)
    }

    #[test]
    fn a_choice_is_found_again() {
        let (_place, folder) = kept();
        let found = found(Some(&folder), &key(), &candidates()).expect("fresh");
        assert_eq!(found, Some(candidates()[1].clone()));
    }

    #[test]
    fn what_was_never_measured_is_no_fault() {
        let (_place, folder) = kept();
        let other = TuningKey { shape: "channels=512".to_owned(), ..key() };
        assert_eq!(found(Some(&folder), &other, &candidates()), Ok(None));
        assert_eq!(found(None, &key(), &candidates()), Ok(None));
    }

    #[test]
    fn a_stale_choice_is_not_used_and_says_why() {
        let (_place, folder) = kept();
        let why = |key: &TuningKey, candidates: &[Candidate]| {
            found(Some(&folder), key, candidates).expect_err("stale")
        };
        let kernel = why(&TuningKey { kernel_hash: 8, ..key() }, &candidates());
        assert!(kernel.contains("version of the kernel"), "{kernel}");
        let driver = why(&TuningKey { driver: "13010".to_owned(), ..key() }, &candidates());
        assert!(driver.contains("another driver"), "{driver}");
        let choices = why(&key(), &candidates()[..1]);
        assert!(choices.contains("set of choices"), "{choices}");
    }

    #[test]
    fn a_damaged_file_is_not_used() {
        let (_place, folder) = kept();
        let path = folder.path(&key().file());
        let whole = std::fs::read(&path).expect("it was kept");
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 1;
            for damaged in [&bytes[..], &whole[..at]] {
                std::fs::write(&path, damaged).expect("room");
                let found = found(Some(&folder), &key(), &candidates());
                assert!(!matches!(found, Ok(Some(_))), "byte {at}: {found:?}");
            }
        }
    }

    #[test]
    fn a_folder_that_can_not_be_had_is_an_error_of_storing() {
        let error = write_candidate(None, &key(), &candidates()[0], 1.0).expect_err("no folder");
        assert!(error.to_string().contains("SIDEREAL_CACHE_DIR"), "{error}");
    }

    #[test]
    fn a_file_holds_what_was_stored() {
        let stored = Stored { key: key(), values: vec![], seconds: 3e-5 };
        assert_eq!(Stored::parse(&stored.text()), Some(stored));
    }

    #[test]
    fn the_best_has_the_shortest_median() {
        let measured = |index: usize, seconds: std::result::Result<(f64, f64), &str>| Measured {
            choice: candidates()[index].clone(),
            seconds: seconds.map_err(str::to_owned),
        };
        let all =
            vec![measured(0, Ok((1.0, 3.0))), measured(1, Ok((1.5, 2.0))), measured(0, Err("no"))];
        let tuned = Tuned { key: key(), measured: all };
        assert_eq!(tuned.best(), Some((&candidates()[1], 1.5)));
        let none = Tuned { key: key(), measured: vec![measured(0, Err("no"))] };
        assert_eq!(none.best(), None);
        assert!(store(&none).is_err());
    }
}
