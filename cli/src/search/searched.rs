//! Results of a beam that was searched, as bytes: those of a checkpoint, and those that a rank sends.
//!
//! Invariant: numbers keep their bits, so that events do not depend on the process that searched a beam.

use std::io;
use std::path::Path;
use std::sync::Arc;

use sidereal::pipeline::Ending;
use sidereal::pipeline::beams::Detection;
use sidereal::single_pulse::Candidate;
use sidereal::state::{Saved, Saving};
use sidereal::{Error, Result};

use super::report::Found;
use crate::flags;
use crate::interrupt::Exit;
use crate::output::CHECKPOINT;

/// First bytes of the checkpoint of a beam that was searched to its end.
const SEARCHED: &[u8] = b"searched\n";

/// Longest text of an error.
const LONGEST_TEXT: usize = 1 << 20;

/// Results of a beam that was searched to its end, as events need them.
#[derive(Clone, Debug)]
pub(super) struct Searched {
    /// Number of the beam, from 0.
    pub(super) beam: usize,
    /// Seconds of data that were searched.
    pub(super) data_s: f64,
    /// Candidates in the order of the beam's list; times count from its own start.
    pub(super) candidates: Vec<Detection>,
    /// End of the search, and of its plots.
    pub(super) ending: Ending,
}

impl Searched {
    /// Returns the results of a search.
    pub(super) fn new(beam: usize, found: &Found) -> Self {
        let detection = |one: &Candidate| {
            let Candidate { time_s, dm, snr, width_s, .. } = *one;
            Detection { beam: 0, time_s, dm, snr, width_s }
        };
        Self {
            beam,
            data_s: found.report.data_s,
            candidates: found.report.candidates.iter().map(detection).collect(),
            ending: found.report.ending.clone(),
        }
    }

    /// Returns the state of the beam's checkpoint.
    pub(super) fn state(&self) -> Vec<u8> {
        let mut saving = Saving::default();
        self.save(&mut saving);
        [SEARCHED, &saving.finish()].concat()
    }

    /// Reads the state of the checkpoint in `folder` of beam number `beam`; `None` if it is that of a search in progress.
    ///
    /// # Errors
    /// [`Error::Format`] for a damaged state.
    pub(super) fn of_state(folder: &Path, beam: usize, state: &[u8]) -> Result<Option<Self>> {
        let Some(state) = state.strip_prefix(SEARCHED) else { return Ok(None) };
        let mut saved = Saved::new(&folder.join(CHECKPOINT), 0, state)?;
        let searched = Self::read(&mut saved)?;
        saved.end()?;
        // Beams may have other numbers than in the interrupted run.
        Ok(Some(Self { beam, ..searched }))
    }

    pub(super) fn save(&self, saving: &mut Saving) {
        saving.part("searched beam");
        saving.number(self.beam as u64);
        save_ending(&self.ending, "", saving);
        let numbers = |one: &Detection| [one.time_s, one.dm, one.snr, one.width_s];
        let mut all = vec![self.data_s];
        all.extend(self.candidates.iter().flat_map(numbers));
        saving.f64s(all.iter());
    }

    pub(super) fn read(saved: &mut Saved<'_>) -> Result<Self> {
        saved.part("searched beam")?;
        let beam = saved.at_most(u32::MAX as usize)?;
        let ending = read_ending("", saved)?;
        let all = saved.f64s(u32::MAX as usize)?;
        let Some((data_s, numbers)) = all.split_first() else {
            return Err(saved.fault("length", "nothing found, expected seconds".to_owned()));
        };
        let detection = |[time_s, dm, snr, width_s]: &[f64; 4]| Detection {
            beam: 0,
            time_s: *time_s,
            dm: *dm,
            snr: *snr,
            width_s: *width_s,
        };
        let candidates = numbers.as_chunks::<4>().0.iter().map(detection).collect();
        Ok(Self { beam, data_s: *data_s, candidates, ending })
    }
}

/// Adds an end to a state; the text of an error does not begin with the file `name`.
pub(super) fn save_ending(ending: &Ending, name: &str, saving: &mut Saving) {
    let (code, exit, text) = match ending {
        Ending::Complete => (0, Exit::Success, String::new()),
        Ending::Cut(why) => (1, Exit::Success, why.clone()),
        Ending::Stopped => (2, Exit::Interrupted, String::new()),
        Ending::Failed(error) => (3, Exit::after(error), flags::text(error)),
        other => (3, Exit::Failed, other.reason().unwrap_or_default()),
    };
    let text = text.strip_prefix(&format!("{name}: ")).unwrap_or(&text);
    saving.number(code);
    saving.number(exit as u64);
    saving.bytes(&text.as_bytes()[..text.len().min(LONGEST_TEXT)]);
}

/// Reads an end; an error names `place` in place of its file.
pub(super) fn read_ending(place: &str, saved: &mut Saved<'_>) -> Result<Ending> {
    let (code, exit) = (saved.at_most(3)?, saved.at_most(255)?);
    let text = String::from_utf8_lossy(&saved.bytes(LONGEST_TEXT)?).into_owned();
    // The error has the exit code that it has in its own process.
    let kind = match exit {
        code if code == Exit::Damaged as usize => io::ErrorKind::InvalidData,
        code if code == Exit::DiskFull as usize => io::ErrorKind::StorageFull,
        _ => io::ErrorKind::Other,
    };
    Ok(match code {
        0 => Ending::Complete,
        1 => Ending::Cut(text),
        2 => Ending::Stopped,
        _ => Ending::Failed(Arc::new(Error::io(place, io::Error::new(kind, text)))),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_has_the_bits_of_the_results() {
        let one = Detection { beam: 0, time_s: 0.1 + 0.2, dm: 1.0 / 3.0, snr: 7.5, width_s: 1e-3 };
        let candidates = vec![one, Detection { time_s: -1.0, ..one }];
        let ending = Ending::Cut("half a row".to_owned());
        let whole = Searched { beam: 3, data_s: 2.0 / 3.0, candidates, ending };
        let state = whole.state();
        let again = Searched::of_state(Path::new("b"), 2, &state).unwrap().unwrap();
        assert_eq!((again.beam, again.data_s), (2, whole.data_s));
        assert_eq!(again.candidates, whole.candidates);
        assert_eq!(again.ending.reason().as_deref(), Some("half a row"));
        assert!(Searched::of_state(Path::new("b"), 2, b"search").unwrap().is_none());
        let mut damaged = state;
        *damaged.last_mut().unwrap() ^= 1;
        assert!(Searched::of_state(Path::new("b"), 2, &damaged).is_err());
    }

    #[test]
    fn the_error_of_another_rank_names_it_and_keeps_its_exit_code() {
        let again = |error: Error| {
            let mut saving = Saving::default();
            save_ending(&Ending::after(error), "b1.fil", &mut saving);
            let bytes = saving.finish();
            let mut saved = Saved::new(Path::new("rank 1"), 0, &bytes).unwrap();
            read_ending("rank 1, b1.fil", &mut saved).unwrap()
        };
        let Ending::Failed(error) = again(Error::format("b1.fil", "nbits", 0, "found 3")) else {
            panic!("it did not fail");
        };
        assert_eq!(error.to_string(), "rank 1, b1.fil: nbits: found 3");
        assert_eq!(Exit::after(&error), Exit::Damaged);
        assert!(matches!(again(Error::stopped("b1.fil")), Ending::Stopped));
    }
}
