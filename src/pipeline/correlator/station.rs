//! One antenna's way from samples to aligned spectra.
//!
//! Invariant: a spectrum's bits depend on its number, never on how spectra are asked for.

mod making;

use std::ops::Range;

use num_complex::Complex;

use super::bank::Bank;
use super::channels::Channels;
use super::delays::{Delay, Delays};
use super::flags::{Bad, Flags, lead};
use super::level::Level;
use super::lost::Lost;
use super::place::Place;
use crate::backend::Backend;
use crate::delay::{self, Aligner, Slope};
use crate::error::Result;

/// Spectra of one shift.
#[derive(Clone, Debug)]
pub(super) struct Run {
    pub(super) spectra: Range<u64>,
    pub(super) shift: i64,
    /// Whether the recording has all their samples.
    pub(super) inside: bool,
}

/// Seconds that an antenna's steps took.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Elapsed {
    pub(super) channelize_s: f64,
    pub(super) align_s: f64,
}

/// One antenna's F-engine.
pub(super) struct Station {
    place: Place,
    bank: Bank,
    flags: Flags,
    /// What was lost of the samples that are held.
    lost: Flags,
    level: Level,
    backend: Backend,
    /// There once gains are known.
    aligner: Option<Aligner>,
    /// Spectra that are made at once.
    tile: usize,
    /// Room for spectra in `rows`.
    capacity: usize,
    delays: Vec<Delay>,
    /// Of the prepared spectra; none where a device makes them of the delays.
    slopes: Option<Vec<Slope>>,
    runs: Vec<Run>,
    bad: Vec<Bad>,
    needed: Option<Range<u64>>,
    /// No spectrum from the prepared ones on needs samples before this one.
    from: u64,
    /// Where gains are to be measured: spectrum and shift.
    measure: Option<(u64, i64)>,
    /// Shift and number of the spectrum that the filter bank gives next, and the sample it takes next.
    next: Option<(i64, u64, u64)>,
    elapsed: Elapsed,
    outcome: Result<()>,
}

/// A thread's room for spectra.
pub(super) type Scratch = Vec<Complex<f32>>;

impl Station {
    /// An antenna whose `capacity` spectra at most are made at once.
    pub(super) fn new(
        place: Place,
        (bank, flags): (Bank, Flags),
        level: Level,
        (tile, capacity): (usize, usize),
        backend: &Backend,
    ) -> Self {
        Self {
            place,
            bank,
            flags,
            lost: Flags::none(),
            level,
            backend: backend.clone(),
            aligner: None,
            tile,
            capacity,
            delays: Vec::new(),
            slopes: Some(Vec::new()),
            runs: Vec::new(),
            bad: Vec::new(),
            needed: None,
            from: 0,
            measure: None,
            next: None,
            elapsed: Elapsed::default(),
            outcome: Ok(()),
        }
    }

    /// Whose spectra a device makes.
    pub(super) fn on_device(self) -> Self {
        Self { slopes: None, ..self }
    }

    pub(super) fn place(&self) -> &Place {
        &self.place
    }

    /// The prepared spectra, by shift.
    #[cfg(feature = "cuda")]
    pub(super) fn runs(&self) -> &[Run] {
        &self.runs
    }

    /// Of each prepared spectrum, its delay and what is left of it.
    pub(super) fn delays(&self, all: &Delays) -> impl Iterator<Item = delay::Delay> {
        let late = self.place.late;
        self.delays.iter().map(move |delay| {
            let rest_s = delay.delay_s - all.shift_s(delay.shift, late);
            delay::Delay { late_s: delay.delay_s, rest_s }
        })
    }

    /// Whether gains are known.
    #[cfg(feature = "cuda")]
    pub(super) fn is_settled(&self) -> bool {
        self.aligner.is_some()
    }

    /// What is not valid of the spectra that were made.
    pub(super) fn bad(&self) -> &[Bad] {
        &self.bad
    }

    /// What an element of a spectrum was multiplied by and is to be divided by; axes polarization, channel.
    pub(super) fn level(&self) -> &Level {
        &self.level
    }

    pub(super) fn elapsed(&self) -> Elapsed {
        self.elapsed
    }

    /// Complex samples that rounding had to limit.
    pub(super) fn saturated(&self) -> u64 {
        self.aligner.as_ref().map_or(0, |aligner| aligner.saturated().iter().sum())
    }

    /// How the last gulp went.
    pub(super) fn take_outcome(&mut self) -> Result<()> {
        std::mem::replace(&mut self.outcome, Ok(()))
    }

    /// The recording's sample that a spectrum begins with.
    pub(super) fn at(&self, spectrum: u64, shift: i64) -> i64 {
        spectrum as i64 * self.bank.steps().0 as i64 + shift + self.place.offset as i64
    }

    /// The samples of some spectra of one shift, all of which there are.
    fn samples(&self, spectra: &Range<u64>, shift: i64) -> Range<u64> {
        let end = self.at(spectra.end - 1, shift) as u64 + self.bank.steps().1;
        self.at(spectra.start, shift) as u64..end
    }

    /// The recording's samples that the prepared spectra need.
    pub(super) fn needed(&self) -> Option<Range<u64>> {
        self.needed.clone()
    }

    /// The sample before which neither these spectra nor later ones need any.
    pub(super) fn from(&self) -> u64 {
        self.from
    }

    /// Where the prepared spectra that are there begin, with their samples, and how many spectra there
    /// are in all: of voltages that are taken as they were recorded.
    pub(super) fn parts(&self) -> (Vec<(usize, Range<u64>)>, usize) {
        let Some(base) = self.runs.first().map(|run| run.spectra.start) else {
            return (Vec::new(), 0);
        };
        let inside = self.runs.iter().filter(|run| run.inside);
        let part = |run: &Run| {
            ((run.spectra.start - base) as usize, self.samples(&run.spectra, run.shift))
        };
        (inside.map(part).collect(), self.delays.len())
    }

    /// Decides on the shifts of the next spectra, and which samples they need.
    pub(super) fn prepare(&mut self, spectra: Range<u64>, delays: &Delays, channels: &Channels) {
        self.find_runs(&spectra, delays, channels);
        self.lost = Flags::none();
        self.look(channels.coarse);
    }

    /// Takes account of what the recording lost of the samples that were needed; whether it did.
    pub(super) fn lose(&mut self, lost: &Lost, coarse: usize) -> bool {
        let polarizations = self.place.streams.len() / coarse;
        self.lost = Flags::new(lost.runs(), &self.place.streams, polarizations);
        if !self.lost.is_empty() {
            self.look(coarse);
        }
        !self.lost.is_empty()
    }

    /// Appends what is flagged or lost of some spectra of one shift.
    fn find_bad(&self, spectra: &Range<u64>, shift: i64, bad: &mut Vec<Bad>) {
        for flags in [&self.flags, &self.lost] {
            flags.find(spectra, self.at(0, shift), self.bank.steps(), bad);
        }
    }

    /// Finds what is not valid, where gains are to be measured, and which samples all of that needs.
    fn look(&mut self, coarse: usize) {
        self.bad.clear();
        self.measure = None;
        let mut needed: Option<Range<u64>> = None;
        let runs = std::mem::take(&mut self.runs);
        let first = runs.iter().map(|run| self.at(run.spectra.start, run.shift)).min();
        self.from = first.unwrap_or(0).max(0) as u64;
        for Run { spectra, shift, inside } in &runs {
            if !inside {
                self.bad.push(Bad { spectra: spectra.clone(), coarse: 0..coarse });
                continue;
            }
            let first = self.bad.len();
            let mut bad = std::mem::take(&mut self.bad);
            self.find_bad(spectra, *shift, &mut bad);
            self.bad = bad;
            let mut samples = self.samples(spectra, *shift);
            if self.aligner.is_none() && self.measure.is_none() {
                let start = lead(&self.bad[first..], spectra, coarse);
                self.measure = start.map(|start| (start, *shift));
                if let Some(start) = start {
                    let looked = self.measured(start, *shift);
                    samples.end = self.samples(&looked, *shift).end.max(samples.end);
                }
            }
            let before = needed.clone().unwrap_or(samples.clone());
            needed = Some(before.start.min(samples.start)..before.end.max(samples.end));
        }
        self.runs = runs;
        self.needed = needed;
    }

    /// The spectra that gains are measured with.
    fn measured(&self, start: u64, shift: i64) -> Range<u64> {
        let (hop, span) = self.bank.steps();
        let left = self.place.length - self.at(start, shift) as u64 - span;
        start..start + (left / hop + 1).min(self.level.spectra() as u64)
    }

    fn find_runs(&mut self, spectra: &Range<u64>, delays: &Delays, channels: &Channels) {
        let (antenna, late) = (self.place.antenna, self.place.late);
        self.delays.clear();
        self.delays.extend(spectra.clone().map(|spectrum| delays.at(antenna, late, spectrum)));
        if let Some(mut slopes) = self.slopes.take() {
            slopes.clear();
            for delay in self.delays(delays) {
                slopes.extend((0..channels.coarse).map(|c| channels.band().slope(c, delay)));
            }
            self.slopes = Some(slopes);
        }
        self.runs.clear();
        let span = self.bank.steps().1 as i64;
        for (spectrum, delay) in spectra.clone().zip(&self.delays) {
            let shift = delay.shift;
            let at = self.at(spectrum, shift);
            let inside = at >= 0 && at + span <= self.place.length as i64;
            match self.runs.last_mut() {
                Some(run) if run.shift == shift && run.inside == inside => {
                    run.spectra.end = spectrum + 1;
                }
                _ => self.runs.push(Run { spectra: spectrum..spectrum + 1, shift, inside }),
            }
        }
    }
}
