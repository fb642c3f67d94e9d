//! What a search keeps on its way: triggers in the journal, and where it is in the checkpoint.

use std::path::Path;

use num_complex::Complex;
use serde::{Deserialize, Serialize};
use sidereal::pipeline::chirp::{ChirpSearch, Keeper, Status};
use sidereal::spiir::coincidence::TimedTrigger;
use sidereal::spiir::trigger::Trigger;
use sidereal::state::Saved;
use sidereal::{Error, Result};

use crate::interrupt;
use crate::output::JOURNAL;
use crate::progress::Progress;
use crate::spiir::kept::{Before, Identity, Kept};

/// A trigger's line in the journal. Floats are written so that they come back bit for bit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Line {
    detector: String,
    gps: f64,
    snr: f64,
    template: u32,
    sample: u64,
    offset: f64,
    z: [f64; 2],
    /// None for infinity, which JSON does not have.
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

/// Keeps a search's triggers and states, shows its progress, and stops it when the user asks.
pub(super) struct Keeping<'a> {
    kept: Option<Kept>,
    names: Vec<String>,
    progress: &'a Progress,
}

impl<'a> Keeping<'a> {
    /// Of a search that begins in a folder, or goes on there. Without an identity nothing is kept.
    ///
    /// # Errors
    /// [`Error::Parameter`] naming what differs from the run that was interrupted; [`Error::Format`] for a damaged
    /// journal or checkpoint; [`Error::Io`].
    pub(super) fn begin(
        search: &mut ChirpSearch,
        folder: &Path,
        (identity, is_resumed): (Option<Identity>, bool),
        progress: &'a Progress,
    ) -> Result<Self> {
        let names: Vec<String> = search.banks().map(|(name, _)| name.to_owned()).collect();
        let kept = match identity {
            Some(identity) if is_resumed => {
                let (kept, before) = Kept::resume(folder, identity)?;
                match &before.state {
                    Some((origin, bytes)) => {
                        let mut saved = Saved::new(&before.path, *origin, bytes)?;
                        search.resume(folder, &mut saved, triggers(&names, &before)?)?;
                    }
                    None => search.keep_in(folder)?,
                }
                Some(kept)
            }
            identity => {
                search.keep_in(folder)?;
                identity.map(|identity| Kept::begin(folder, identity)).transpose()?
            }
        };
        Ok(Self { kept, names, progress })
    }
}

impl Keeper for Keeping<'_> {
    fn at(&mut self, status: &Status) -> bool {
        self.progress.total(Some(status.total));
        self.progress.at(status.times);
        !interrupt::requested()
    }

    fn found(&mut self, detector: usize, triggers: &[(Trigger, TimedTrigger)]) -> Result<()> {
        let Some(kept) = &mut self.kept else { return Ok(()) };
        let name = &self.names[detector];
        kept.note(triggers.iter().map(|(trigger, timed)| Line::new(name, trigger, timed)))
    }

    fn is_due(&mut self) -> bool {
        self.kept.as_ref().is_some_and(Kept::is_due)
    }

    fn save(&mut self, state: Vec<u8>) -> Result<()> {
        self.kept.as_mut().map_or(Ok(()), |kept| kept.save(&state))
    }
}

/// Each detector's triggers of a journal.
fn triggers(names: &[String], before: &Before) -> Result<Vec<Vec<Trigger>>> {
    let mut all = vec![Vec::new(); names.len()];
    let lines = before.lines.split_inclusive(|byte| *byte == b'\n');
    for (index, line) in lines.enumerate() {
        let fault = |why: String| {
            let path = before.path.with_file_name(JOURNAL);
            Error::format(path, format!("line {}", index + 1), 0, why)
        };
        let line: Line = serde_json::from_slice(line).map_err(|error| fault(error.to_string()))?;
        let Some(detector) = names.iter().position(|name| *name == line.detector) else {
            return Err(fault(format!("a trigger of {}, which is not searched", line.detector)));
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
