//! State of a device's tuning.

/// Tuning candidate: one configuration of a kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// Name for tables, such as `tile 64 x 128, 3 stages`.
    pub name: String,
    /// Values of the kernel's parameters.
    pub values: Vec<u32>,
}

/// Kernel, device and shape for which a choice is measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TuningKey {
    pub(super) kernel: String,
    pub(super) kernel_hash: u128,
    pub(super) device: String,
    pub(super) driver: String,
    pub(super) shape: String,
}

/// State of a device's tuning, and notes for its user.
#[derive(Debug, Default)]
pub(in crate::backend::cuda) struct State {
    pub(super) is_tuning: bool,
    pub(super) pending: Vec<PendingKey>,
    pub(super) forced: Vec<(TuningKey, Choice)>,
    pub(in crate::backend::cuda) notes: Vec<String>,
}

/// Kernel of a plan and its candidates.
#[derive(Clone, Debug)]
pub(super) struct PendingKey {
    pub(super) key: TuningKey,
    pub(super) candidates: Vec<Choice>,
}

impl State {
    /// Returns the state of a device with notes that apply from the start.
    pub(in crate::backend::cuda) fn with_notes(notes: Vec<String>) -> Self {
        Self { notes, ..Self::default() }
    }

    pub(super) fn note(&mut self, text: String) {
        if !self.notes.contains(&text) {
            self.notes.push(text);
        }
    }
}
