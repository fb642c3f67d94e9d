//! Selection of samples that are far enough from every gate.

use crate::error::Result;
use crate::state::{Saved, Saving};

/// Flags the samples of a stream that may be triggers: those without an invalid sample within the pad.
#[derive(Debug)]
pub(super) struct Gate {
    pad: u64,
    /// Samples received, and the last invalid one.
    seen: u64,
    last_bad: Option<u64>,
    /// Flags of the decided samples from `first` on: whether each may be a trigger.
    open: Vec<bool>,
    first: u64,
}

impl Gate {
    pub(super) fn new(pad: usize) -> Self {
        Self { pad: pad as u64, seen: 0, last_bad: None, open: Vec::new(), first: 0 }
    }

    /// Appends the validity of the next samples.
    pub(super) fn push(&mut self, valid: &[bool]) {
        for valid in valid {
            if !valid {
                self.last_bad = Some(self.seen);
            }
            if let Some(sample) = self.seen.checked_sub(self.pad) {
                self.decide(sample);
            }
            self.seen += 1;
        }
    }

    /// Ends the stream: no gate follows its last samples.
    pub(super) fn end(&mut self) {
        for sample in self.seen.saturating_sub(self.pad)..self.seen {
            self.decide(sample);
        }
    }

    /// Returns the number of decided samples.
    pub(super) fn decided(&self) -> u64 {
        self.first + self.open.len() as u64
    }

    /// Drops the flags before `sample`.
    pub(super) fn forget(&mut self, sample: u64) {
        self.open.drain(..(sample - self.first) as usize);
        self.first = sample;
    }

    /// Discards the stream.
    pub(super) fn reset(&mut self) {
        (self.seen, self.last_bad, self.first) = (0, None, 0);
        self.open.clear();
    }

    pub(super) fn save(&self, to: &mut Saving) {
        to.part("gate");
        to.maybe(self.last_bad);
        to.flags(self.open.iter().copied());
    }

    /// Restores the state of a stream of `seen` samples whose flags before `first` were dropped.
    pub(super) fn load(&mut self, from: &mut Saved<'_>, seen: u64, first: u64) -> Result<()> {
        from.part("gate")?;
        self.last_bad = from.maybe()?;
        if self.last_bad.is_some_and(|bad| bad >= seen) {
            return Err(
                from.fault("last sample that is not valid", format!("it is not among {seen}"))
            );
        }
        let open = seen.saturating_sub(self.pad).saturating_sub(first) as usize;
        self.open = from.flags(open)?;
        if self.open.len() < open {
            return Err(from.fault("gate", format!("{} flags found of {open}", self.open.len())));
        }
        (self.seen, self.first) = (seen, first);
        Ok(())
    }

    pub(super) fn is_open(&self, sample: u64) -> bool {
        self.open[(sample - self.first) as usize]
    }

    fn decide(&mut self, sample: u64) {
        self.open.push(self.last_bad.is_none_or(|bad| bad + self.pad < sample));
    }
}

#[cfg(test)]
mod tests {
    use super::Gate;

    #[test]
    fn a_gate_is_widened_to_both_sides() {
        let mut gate = Gate::new(2);
        for sample in 0..10 {
            gate.push(&[sample != 4]);
        }
        gate.end();
        let open: Vec<u64> = (0..10).filter(|sample| gate.is_open(*sample)).collect();
        assert_eq!(open, [0, 1, 7, 8, 9]);
        gate.forget(7);
        assert!(gate.is_open(7));
    }
}
