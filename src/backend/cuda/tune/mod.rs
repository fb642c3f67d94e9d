//! Selection among kernel variants with identical results: by a model at first, by measurement if the user runs
//! tuning.
//!
//! A stage offers tuning candidates and uses the result of [`choice`] for its plan's shape, or else its model's first
//! candidate. Measured choices are cached in the user's folder by kernel, device, driver and shape.

mod measure;
mod stored;

use std::sync::OnceLock;

use super::cache::folder::{self, Folder};
use super::cache::hash::Hash;
use super::cache::source_hash;
use super::{Buffer, Device, Source};
use crate::error::{Error, Result};
use bytemuck::Pod;
pub use measure::{Measured, Tuned, Work, tune};
use stored::Stored;

/// Tuning candidate: one configuration of a kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// Name for tables, such as `tile 64 x 128, 3 stages`.
    pub name: String,
    /// Values of the kernel's parameters.
    pub values: Vec<u32>,
}

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
    let question = Question::new(device, kernel, shape);
    let mut state = device.state();
    if state.is_tuning {
        let forced = state.forced.iter().find(|forced| forced.0 == question);
        let choice = forced.map_or_else(|| candidates[0].clone(), |forced| forced.1.clone());
        if state.asked.iter().all(|asked| asked.question != question) {
            state.asked.push(Asked { question, candidates: candidates.to_vec() });
        }
        return choice;
    }
    match found(folder(), &question, candidates) {
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
    keep(folder(), &tuned.question, choice, seconds)
}

/// State of a device's tuning, and notes for its user.
#[derive(Debug, Default)]
pub(super) struct State {
    is_tuning: bool,
    asked: Vec<Asked>,
    forced: Vec<(Question, Choice)>,
    pub(super) notes: Vec<String>,
}

/// Kernel of a plan and its candidates.
#[derive(Clone, Debug)]
struct Asked {
    question: Question,
    candidates: Vec<Choice>,
}

impl State {
    /// Returns the state of a device with notes that apply from the start.
    pub(super) fn with_notes(notes: Vec<String>) -> Self {
        Self { notes, ..Self::default() }
    }

    fn note(&mut self, text: String) {
        if !self.notes.contains(&text) {
            self.notes.push(text);
        }
    }
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

/// Kernel, device and shape for which a choice is measured.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Question {
    kernel: String,
    kernel_hash: u128,
    device: String,
    driver: String,
    shape: String,
}

impl Question {
    fn new(device: &Device, kernel: &Source, shape: &str) -> Self {
        let plain = Source { defines: Vec::new(), ..kernel.clone() };
        let properties = device.properties();
        Self {
            kernel: kernel.name.to_owned(),
            kernel_hash: source_hash(&plain, &device.architecture()).value(),
            device: properties.name.clone(),
            driver: driver(properties.driver_version),
            shape: shape.to_owned(),
        }
    }

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

/// Returns the stored choice if it is still a candidate, or the reason why it cannot be used.
fn found(
    folder: Option<&Folder>,
    question: &Question,
    candidates: &[Choice],
) -> std::result::Result<Option<Choice>, String> {
    let path = folder.map(|folder| folder.path(&question.file()));
    let Some(text) = path.and_then(|path| std::fs::read_to_string(path).ok()) else {
        return Ok(None);
    };
    let again = "`sidereal tune` measures it again";
    let stored = Stored::parse(&text).ok_or(format!("its file is damaged; {again}"))?;
    let because = |what: &str| Err(format!("it was measured with another {what}; {again}"));
    match &stored.question {
        other if other == question => {}
        other if other.kernel_hash != question.kernel_hash => {
            return because("version of the kernel");
        }
        other if other.driver != question.driver => return because("driver"),
        _ => return because("device or plan"),
    }
    let known = candidates.iter().find(|candidate| candidate.values == stored.values);
    match known {
        Some(choice) => Ok(Some(choice.clone())),
        None => because("set of choices"),
    }
}

fn keep(folder: Option<&Folder>, question: &Question, choice: &Choice, seconds: f64) -> Result<()> {
    let Some(folder) = folder else {
        return Err(Error::Unavailable {
            what: "a folder for tuned choices".to_owned(),
            why: "it must be this user's own, and nobody else may write to it: set SIDEREAL_CACHE_DIR"
                .to_owned(),
        });
    };
    let stored = Stored { question: question.clone(), values: choice.values.clone(), seconds };
    let name = question.file();
    let written = folder.write(&name, stored.text().as_bytes());
    written.map_err(|error| Error::io(folder.path(&name), error))?;
    folder.shrink(END, MOST_BYTES);
    Ok(())
}

#[cfg(test)]
mod tests;
