//! F-engine of one antenna: samples to aligned spectra.
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

/// Consecutive spectra with one shift.
#[derive(Clone, Debug)]
pub(super) struct Run {
    pub(super) spectra: Range<u64>,
    pub(super) shift: i64,
    /// Whether the recording has all samples of these spectra.
    pub(super) inside: bool,
}

/// Seconds that an antenna's steps took.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Elapsed {
    pub(super) channelize_s: f64,
    pub(super) align_s: f64,
}

/// F-engine of one antenna.
pub(super) struct Station {
    place: Place,
    bank: Bank,
    flags: Flags,
    /// Lost samples among those the window holds.
    lost: Flags,
    level: Level,
    backend: Backend,
    /// Created once gains are known.
    aligner: Option<Aligner>,
    /// Spectra per tile, the unit of channelization and alignment.
    tile: usize,
    /// Number of spectra that `rows` can hold.
    capacity: usize,
    delays: Vec<Delay>,
    /// Phase slopes of the prepared spectra; none if a device derives them from the delays.
    slopes: Option<Vec<Slope>>,
    runs: Vec<Run>,
    bad: Vec<Bad>,
    needed: Option<Range<u64>>,
    /// Neither the prepared spectra nor later ones need samples before this one.
    from: u64,
    /// Spectrum and shift at which the gain measurement starts.
    measure: Option<(u64, i64)>,
    /// Shift and number of the filter bank's next spectrum, and its next input sample.
    next: Option<(i64, u64, u64)>,
    elapsed: Elapsed,
    outcome: Result<()>,
}

/// Scratch memory of a thread for spectra.
pub(super) type Scratch = Vec<Complex<f32>>;

impl Station {
    /// Builds the F-engine of an antenna with at most `capacity` spectra per gulp.
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

    /// Configures the antenna for spectra that a device computes.
    pub(super) fn on_device(self) -> Self {
        Self { slopes: None, ..self }
    }

    pub(super) fn place(&self) -> &Place {
        &self.place
    }

    /// Returns the prepared spectra, grouped by shift.
    #[cfg(feature = "cuda")]
    pub(super) fn runs(&self) -> &[Run] {
        &self.runs
    }

    /// Returns the total and the residual delay of each prepared spectrum.
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

    /// Returns the invalid ranges of the current spectra.
    pub(super) fn bad(&self) -> &[Bad] {
        &self.bad
    }

    /// Returns the gains of the spectra; axes polarization, channel.
    pub(super) fn level(&self) -> &Level {
        &self.level
    }

    pub(super) fn elapsed(&self) -> Elapsed {
        self.elapsed
    }

    /// Returns the complex samples that saturated in requantization.
    pub(super) fn saturated(&self) -> u64 {
        self.aligner.as_ref().map_or(0, |aligner| aligner.saturated().iter().sum())
    }

    /// Takes the result of the last gulp.
    pub(super) fn take_outcome(&mut self) -> Result<()> {
        std::mem::replace(&mut self.outcome, Ok(()))
    }

    /// Returns the recording's sample index at which a spectrum's window begins.
    pub(super) fn at(&self, spectrum: u64, shift: i64) -> i64 {
        spectrum as i64 * self.bank.steps().0 as i64 + shift + self.place.offset as i64
    }

    /// Returns the samples of consecutive spectra with one shift; all of them must exist.
    fn samples(&self, spectra: &Range<u64>, shift: i64) -> Range<u64> {
        let end = self.at(spectra.end - 1, shift) as u64 + self.bank.steps().1;
        self.at(spectra.start, shift) as u64..end
    }

    /// Returns the recording's samples that the prepared spectra need.
    pub(super) fn needed(&self) -> Option<Range<u64>> {
        self.needed.clone()
    }

    /// Returns the sample before which neither these spectra nor later ones need any.
    pub(super) fn from(&self) -> u64 {
        self.from
    }

    /// Returns the start and the samples of each run of existing spectra, and the number of prepared spectra; for
    /// voltages that are multiplied as recorded.
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

    /// Determines the shifts of the next spectra and the samples they need.
    pub(super) fn prepare(&mut self, spectra: Range<u64>, delays: &Delays, channels: &Channels) {
        self.find_runs(&spectra, delays, channels);
        self.lost = Flags::none();
        self.look(channels.coarse);
    }

    /// Marks spectra with lost samples among those needed; returns whether there are any.
    pub(super) fn lose(&mut self, lost: &Lost, coarse: usize) -> bool {
        let polarizations = self.place.streams.len() / coarse;
        self.lost = Flags::new(lost.runs(), &self.place.streams, polarizations);
        if !self.lost.is_empty() {
            self.look(coarse);
        }
        !self.lost.is_empty()
    }

    /// Appends the flagged or lost ranges of consecutive spectra with one shift.
    fn find_bad(&self, spectra: &Range<u64>, shift: i64, bad: &mut Vec<Bad>) {
        for flags in [&self.flags, &self.lost] {
            flags.find(spectra, self.at(0, shift), self.bank.steps(), bad);
        }
    }

    /// Finds the invalid spectra, the start of the gain measurement, and the samples needed for both.
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

    /// Returns the spectra that gains are measured with.
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
