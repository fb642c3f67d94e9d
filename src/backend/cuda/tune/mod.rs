//! Selection among kernel variants with identical results: by a model at first, by measurement if the user runs
//! tuning.
//!
//! A stage offers tuning candidates and uses the result of [`choice`] for its plan's shape, or else its model's first
//! candidate. Measured choices are cached in the user's folder by kernel, device, driver and shape.

mod measure;
pub(super) mod state;

use std::sync::OnceLock;

use super::cache::folder::{self, Folder};
use super::cache::{Hash, source_hash};
use super::{Buffer, Device, Source};
use crate::error::{Error, Result};
use bytemuck::Pod;
pub use measure::{Measured, Tuned, Work, tune};
pub use state::Choice;
use state::{PendingKey, TuningKey};

/// Returns the candidate measured fastest on this device for this kernel and shape. Returns the first candidate if
/// nothing was measured or the measurement is stale; a stale one is noted ([`Device::take_notes`]).
///
/// A shape is every part of the plan that the choice depends on, such as `channels=1024 trials=3050 bits=8`. The
/// kernel's constants are excluded, because they follow from plan and choice. All candidates must give identical
/// results. While [`tune`] measures, it determines the result.
///
/// # Panics
/// If there are no candidates.
pub fn choice(device: &Device, kernel: &Source, shape: &str, candidates: &[Choice]) -> Choice {
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

/// Stores the fastest measured candidate for [`choice`].
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
    write_choice(folder(), &tuned.key, choice, seconds)
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
const MOST_BYTES: u64 = 4 << 20;

/// Returns the driver's CUDA version, and its own version if Linux reports it.
fn driver(version: u32) -> String {
    let own = std::fs::read_to_string("/sys/module/nvidia/version").unwrap_or_default();
    format!("{version} {}", own.trim()).trim().to_owned()
}

fn folder() -> Option<&'static Folder> {
    static FOLDER: OnceLock<Option<Folder>> = OnceLock::new();
    FOLDER.get_or_init(|| Folder::open(&folder::place()?)).as_ref()
}

/// Choice, and the key it was measured for.
#[derive(Clone, Debug, PartialEq)]
struct Stored {
    key: TuningKey,
    values: Vec<u32>,
    /// Seconds of the fastest launch.
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
    candidates: &[Choice],
) -> std::result::Result<Option<Choice>, String> {
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

fn write_choice(
    folder: Option<&Folder>,
    key: &TuningKey,
    choice: &Choice,
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
    folder.shrink(END, MOST_BYTES);
    Ok(())
}

#[cfg(test)]
mod tests;
