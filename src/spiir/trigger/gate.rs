//! Which samples are far enough from every gate.

use crate::error::Result;
use crate::state::{Saved, Saving};

/// The samples of a stream that may hold a trigger: none within the pad of one that is not valid.
#[derive(Debug)]
pub(super) struct Gate {
    pad: u64,
    /// Samples seen, and the last of them that was not valid.
    seen: u64,
    last_bad: Option<u64>,
    /// Whether each sample from `first` on is open.
    open: Vec<bool>,
    first: u64,
}

impl Gate {
    pub(super) fn new(pad: usize) -> Self {
        Self { pad: pad as u64, seen: 0, last_bad: None, open: Vec::new(), first: 0 }
    }

    /// Takes the next samples.
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

    /// The stream has ended: its last samples have no gate after them.
    pub(super) fn end(&mut self) {
        for sample in self.seen.saturating_sub(self.pad)..self.seen {
            self.decide(sample);
        }
    }

    /// Samples that were decided about.
    #[cfg(feature = "cuda")]
    pub(super) fn decided(&self) -> u64 {
        self.first + self.open.len() as u64
    }

    /// No sample before `sample` will be asked for again.
    pub(super) fn forget(&mut self, sample: u64) {
        self.open.drain(..(sample - self.first) as usize);
        self.first = sample;
    }

    /// Forgets the stream.
    pub(super) fn reset(&mut self) {
        (self.seen, self.last_bad, self.first) = (0, None, 0);
        self.open.clear();
    }

    pub(super) fn save(&self, to: &mut Saving) {
        to.part("gate");
        to.maybe(self.last_bad);
        to.flags(self.open.iter().copied());
    }

    /// Of a stream of `seen` samples, of which those before `first` will not be asked for again.
    pub(super) fn load(&mut self, from: &mut Saved<'_>, seen: u64, first: u64) -> Result<()> {
        from.part("gate")?;
        self.last_bad = from.maybe()?;
        if self.last_bad.is_some_and(|bad| bad >= seen) {
            return Err(
                from.fault("last sample that is not valid", format!("it is none of {seen}"))
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
