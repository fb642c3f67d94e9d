//! Choices among kernels that give the same bits: by a model at first, by measuring when a user asks for it.
//!
//! A stage offers candidates and takes what [`choice`] finds for its plan's shape, else its model's first. What
//! was measured is kept in the user's folder by kernel, device, driver and shape.

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

/// One way to build and launch a kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// What it is, for tables: `tile 64 x 128, 3 stages`.
    pub name: String,
    /// The numbers that the stage builds the kernel with.
    pub values: Vec<u32>,
}

/// The choice among `candidates` that was measured best on this device for this kernel and shape; the first of
/// them if nothing was measured, or if what was no longer holds, which is noted ([`Device::take_notes`]).
///
/// A shape is all of the plan that a choice depends on: `channels=1024 trials=3050 bits=8`. The kernel's
/// constants do not count, since they follow from plan and choice. All candidates give the same bits. While
/// [`tune`] measures, what it asks for is what comes.
///
/// # Panics
/// Without a candidate.
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

/// Keeps the best of what was measured, for [`choice`].
///
/// # Errors
/// [`Error::Unavailable`] without a folder of the user's own, or if no candidate could be launched;
/// [`Error::Io`] when it can't be written.
pub fn store(tuned: &Tuned) -> Result<()> {
    let Some((choice, seconds)) = tuned.best() else {
        return Err(Error::Unavailable {
            what: format!("a choice of {} for {}", tuned.kernel(), tuned.shape()),
            why: "none of the candidates can be launched".to_owned(),
        });
    };
    keep(folder(), &tuned.question, choice, seconds)
}

/// What is asked of a device while it is tuned, and what its user should be told.
#[derive(Debug, Default)]
pub(super) struct State {
    is_tuning: bool,
    asked: Vec<Asked>,
    forced: Vec<(Question, Choice)>,
    pub(super) notes: Vec<String>,
}

/// A kernel that a plan has, and what there is to choose.
#[derive(Clone, Debug)]
struct Asked {
    question: Question,
    candidates: Vec<Choice>,
}

impl State {
    /// Of a device that its user should know something of from the start.
    pub(super) fn with_notes(notes: Vec<String>) -> Self {
        Self { notes, ..Self::default() }
    }

    fn note(&mut self, text: String) {
        if !self.notes.contains(&text) {
            self.notes.push(text);
        }
    }
}

/// A hash of what a buffer holds; of large ones, of pieces that lie all over it.
///
/// # Errors
/// [`Error::Device`] when the driver or work before it failed.
pub fn digest<T: Pod>(buffer: &Buffer<T>) -> Result<u128> {
    /// Elements of a piece, and how many pieces at most.
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

/// A hash of bytes that a stage brought to the host itself.
pub fn digest_of(bytes: &[u8]) -> u128 {
    Hash::new().bytes(bytes).value()
}

/// What a choice was measured for.
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

    /// The file that holds its answer. What makes an answer stale is in the file, not in its name, so that it
    /// can be told.
    fn file(&self) -> String {
        let hash = Hash::new().text(&self.kernel).text(&self.device).text(&self.shape);
        format!("{:032x}{END}", hash.value())
    }
}

/// How the files of choices end, and the most bytes that they take together.
const END: &str = ".tune";
const MOST_BYTES: u64 = 4 << 20;

/// The driver's version of CUDA, and its own where Linux tells it.
fn driver(version: u32) -> String {
    let own = std::fs::read_to_string("/sys/module/nvidia/version").unwrap_or_default();
    format!("{version} {}", own.trim()).trim().to_owned()
}

fn folder() -> Option<&'static Folder> {
    static FOLDER: OnceLock<Option<Folder>> = OnceLock::new();
    FOLDER.get_or_init(|| Folder::open(&folder::place()?)).as_ref()
}

/// The stored choice, if it is one of the candidates still; the reason why it can't be used.
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
