//! Stores a search's triggers in the journal as they become final, and its state in the checkpoint.

use std::path::Path;

use num_complex::Complex;
use serde::{Deserialize, Serialize};
use sidereal::pipeline::cbc::{self, ChirpSearch, Status};
use sidereal::spiir::coincidence::TimedTrigger;
use sidereal::spiir::trigger::Trigger;
use sidereal::{Error, Result};

use crate::interrupt;
use crate::output::JOURNAL;
use crate::progress::Progress;
use crate::resume::RunJournal;

/// Journal line of a trigger. Floats are written so that they are read back bit for bit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Line {
    detector: String,
    gps: f64,
    snr: f64,
    template: u32,
    sample: u64,
    offset: f64,
    z: [f64; 2],
    /// `None` for infinity, which JSON cannot represent.
    xi2: Option<f64>,
}

impl Line {
    fn new(detector: &str, trigger: &Trigger, timed: &TimedTrigger) -> Self {
        let Trigger { template, sample, offset, z, xi2 } = *trigger;
        Self {
            detector: detector.to_owned(),
            gps: timed.gps.s(),
            snr: timed.snr.into(),
            template,
            sample,
            offset: offset.into(),
            z: [z.re.into(), z.im.into()],
            xi2: xi2.is_finite().then_some(xi2.into()),
        }
    }

    fn trigger(&self) -> Trigger {
        let z = Complex::new(self.z[0] as f32, self.z[1] as f32);
        let Self { template, sample, .. } = *self;
        let xi2 = self.xi2.map_or(f32::INFINITY, |xi2| xi2 as f32);
        Trigger { template, sample, offset: self.offset as f32, z, xi2 }
    }
}

/// Observer that stores a search's triggers and states, shows its progress, and stops it when the user asks.
pub(super) struct Keeping<'a> {
    keeper: Option<RunJournal>,
    names: Vec<String>,
    progress: &'a Progress,
}

impl<'a> Keeping<'a> {
    /// Begins a search in a folder, or resumes the one whose product at `left` is stored there. Without a keeper
    /// nothing is stored.
    ///
    /// # Errors
    /// [`Error::Parameter`] naming the difference from the interrupted run; [`Error::Format`] for a damaged journal
    /// or checkpoint; [`Error::Io`].
    pub(super) fn begin(
        search: &mut ChirpSearch,
        folder: &Path,
        (mut keeper, left): (Option<RunJournal>, Option<&Path>),
        progress: &'a Progress,
    ) -> Result<Self> {
        let names: Vec<String> = search.banks().map(|(name, _)| name.to_owned()).collect();
        let resumed = match (&mut keeper, left) {
            (Some(keeper), Some(place)) => keeper.resume(place)?,
            _ => None,
        };
        match (&keeper, resumed) {
            (Some(keeper), Some(left)) => {
                let triggers = triggers(&names, keeper.lines()?)?;
                search.resume(folder, &mut left.saved()?, triggers)?;
            }
            _ => search.store_in(folder)?,
        }
        Ok(Self { keeper, names, progress })
    }
}

impl cbc::SearchObserver for Keeping<'_> {
    fn at(&mut self, status: &Status) -> bool {
        self.progress.total(Some(status.total));
        self.progress.at(status.times);
        !interrupt::requested()
    }

    fn found(&mut self, detector: usize, triggers: &[(Trigger, TimedTrigger)]) -> Result<()> {
        let Some(keeper) = &mut self.keeper else { return Ok(()) };
        let name = &self.names[detector];
        keeper.append(triggers.iter().map(|(trigger, timed)| Line::new(name, trigger, timed)))
    }

    fn is_due(&mut self) -> bool {
        self.keeper.as_ref().is_some_and(RunJournal::is_due)
    }

    fn save(&mut self, state: Vec<u8>) -> Result<()> {
        self.keeper.as_mut().map_or(Ok(()), |keeper| keeper.checkpoint(&state))
    }
}

/// Collects each detector's triggers from a journal.
fn triggers(names: &[String], lines: Vec<Line>) -> Result<Vec<Vec<Trigger>>> {
    let mut all = vec![Vec::new(); names.len()];
    for (index, line) in lines.into_iter().enumerate() {
        let Some(detector) = names.iter().position(|name| *name == line.detector) else {
            let why = format!("a trigger of {}, which is not searched", line.detector);
            return Err(Error::format(JOURNAL, format!("line {}", index + 1), 0, why));
        };
        all[detector].push(line.trigger());
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sidereal::units::Gps;

    #[test]
    fn triggers_come_back_from_the_journal_bit_for_bit() {
        let mut state = 1_u32;
        let mut float = || {
            state = state.wrapping_mul(747_796_405).wrapping_add(2_891_336_453);
            f32::from_bits(state >> 2 | 0x2000_0000)
        };
        for sample in 0..2000 {
            let z = Complex::new(float(), -float());
            let trigger = Trigger { template: 3, sample, offset: -float(), z, xi2: float() };
            let timed = TimedTrigger::new(&trigger, Gps::from_s(1e9), 4096, 0.1);
            let text = serde_json::to_vec(&Line::new("H1", &trigger, &timed)).unwrap();
            let read: Line = serde_json::from_slice(&text).unwrap();
            assert_eq!(read.trigger(), trigger);
        }
    }
}
