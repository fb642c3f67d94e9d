//! Contents of one frame file: the state vector, then the strain.
//!
//! Invariant: a frame is used as a whole, or not at all.

use std::io::ErrorKind;
use std::ops::Range;
use std::path::Path;

use super::folder::Span;
use crate::error::{Error, Result};
use crate::io::gwf::{Gwf, Piece};
use crate::io::strain::{OpenOptions, QUALITY_BITS, channel_of};
use crate::units::Gps;

/// Suffix of a strain channel, and what replaces it in the names of state vectors: of the calibration, and GWOSC's.
const STRAIN: &str = "STRAIN";
const STATE: &str = "STATE_VECTOR";
const QUALITY: &str = "DQMASK";
/// Suffix of GWOSC's mask of injections.
const INJECTIONS: &str = "INJMASK";
/// State vector of Virgo.
const VIRGO: &str = "V1:DQ_ANALYSIS_STATE_VECTOR";

/// Bits of the calibration's state vector; LIGO and Virgo share the first and those of injections.
///
/// # Source
/// LIGO-G1700234.
const STATE_BITS: [&str; 9] = [
    "HOFT_OK",
    "OBSERVATION_INTENT",
    "SCIENCE_QUALITY",
    "HOFT_PROD",
    "FILTERS_OK",
    "NO_STOCH_HW_INJ",
    "NO_CBC_HW_INJ",
    "NO_BURST_HW_INJ",
    "NO_DETCHAR_HW_INJ",
];
/// Bits that are clear during a hardware injection of a transient: of the calibration's state vector, and of GWOSC's mask of
/// injections, whose bit of continuous waves says nothing about transients.
const STATE_INJECTIONS: u64 = 0b1_1110_0000;
const MASK_INJECTIONS: u64 = 0b1_0111;
/// Bits that are required by default, of the calibration's state vector and of GWOSC's mask.
const USUAL: [&str; 2] = ["HOFT_OK", "OBSERVATION_INTENT"];
const USUAL_QUALITY: [&str; 2] = ["DATA", "CBC_CAT1"];

/// Channels of a detector's frames, as far as they are given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Channels {
    /// Channel of the strain; by default the only floating-point channel of the detector, or the only one of those that ends
    /// in STRAIN.
    pub strain: Option<String>,
    /// Channel of the state vector; by default the strain's with STATE_VECTOR or DQMASK in place of STRAIN, or Virgo's
    /// DQ_ANALYSIS_STATE_VECTOR.
    pub state: Option<String>,
    /// Names or numbers of the bits that the state vector must have; by default HOFT_OK and OBSERVATION_INTENT, or DATA and
    /// CBC_CAT1. Without any, strain needs no state vector.
    pub bits: Option<Vec<String>>,
}

/// Channels to read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Reading {
    pub(super) strain: String,
    state: Option<State>,
    /// Channel that marks injections, and its bits, of which some are clear during one.
    injections: Option<State>,
    pub(super) rate_hz: u32,
}

/// State vector and some of its bits.
#[derive(Clone, Debug, PartialEq, Eq)]
struct State {
    channel: String,
    bits: u64,
}

/// Reason why a frame gives no strain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    Vanished,
    Damaged(String),
    /// It lacks the strain.
    Channel(String),
    /// It lacks the state vector, or has one without the required bits.
    State(String),
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        match &error {
            Error::Io { source, .. } if source.kind() == ErrorKind::NotFound => Self::Vanished,
            _ => Self::Damaged(error.to_string()),
        }
    }
}

/// Samples of a frame that are invalid, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Bad {
    pub(super) state: u64,
    pub(super) not_finite: u64,
}

impl Channels {
    /// Checks the bits as far as possible without a frame.
    ///
    /// # Errors
    /// [`Error::Parameter`] for a bit that no state vector has, or not the given one.
    pub(super) fn check(&self) -> Result<()> {
        let Some(bits) = &self.bits else { return Ok(()) };
        let channels = self.state.as_deref().map_or(vec![STATE, QUALITY], |given| vec![given]);
        let faults: Vec<Unknown> =
            channels.iter().filter_map(|channel| wanted(channel, Some(bits)).err()).collect();
        if faults.len() < channels.len() {
            return Ok(());
        }
        let names: Vec<&str> = faults.iter().map(|fault| &*fault.name).collect();
        let rules: Vec<&str> = faults.iter().map(|fault| &*fault.rule).collect();
        Err(Error::parameter("frames.channels.bits", names[0], rules.join("; ")))
    }

    /// Chooses the channels by a detector's first frame.
    ///
    /// # Errors
    /// [`Fault`]s of the file.
    pub(super) fn choose(
        &self,
        path: &Path,
        detector: &str,
    ) -> std::result::Result<Reading, Fault> {
        let file = Gwf::open(path)?;
        let has = |name: &str| file.names().any(|known| known == name);
        let strain = match &self.strain {
            Some(name) if has(name) => name.clone(),
            Some(name) => return Err(Fault::Channel(lacks(&file, name))),
            None => {
                let detector = Some(detector.to_owned());
                match channel_of(path, &OpenOptions { detector, ..OpenOptions::default() }) {
                    Ok(Some(name)) => name,
                    Ok(None) => return Err(Fault::Damaged("it is no frame file".to_owned())),
                    Err(error) => return Err(Fault::Channel(error.to_string())),
                }
            }
        };
        let rate_hz = file.channel(&strain)?.rate_hz;
        let rounded = rate_hz.round();
        if !(1.0..=1e6).contains(&rounded) || (rate_hz / rounded - 1.0).abs() > 1e-6 {
            let why = format!("{strain} has {rate_hz} Hz, expected a whole rate of at most 1 MHz");
            return Err(Fault::Damaged(why));
        }
        let state = match self.bits.as_ref().is_none_or(|bits| !bits.is_empty()) {
            true => Some(self.choose_state(&file, &strain, detector)?),
            false => None,
        };
        let injections = self.injections(&file, &strain, detector);
        Ok(Reading { strain, state, injections, rate_hz: rounded as u32 })
    }

    /// Chooses the state vector and its bits.
    fn choose_state(
        &self,
        file: &Gwf,
        strain: &str,
        detector: &str,
    ) -> std::result::Result<State, Fault> {
        let candidates = match &self.state {
            Some(name) => vec![name.clone()],
            None => Self::usual_states(strain, detector),
        };
        let found = candidates.iter().find(|name| file.names().any(|known| known == *name));
        let Some(channel) = found.cloned() else {
            let name = match candidates.is_empty() {
                true => format!("of the state vector of {strain}"),
                false => candidates.join(" or "),
            };
            return Err(Fault::State(lacks(file, &name)));
        };
        match wanted(&channel, self.bits.as_deref()) {
            Ok(bits) => Ok(State { channel, bits }),
            Err(Unknown { name, rule }) => Err(Fault::State(format!("no bit {name}; {rule}"))),
        }
    }

    /// Returns the usual state vectors of a detector with this strain.
    fn usual_states(strain: &str, detector: &str) -> Vec<String> {
        let stem = strain.strip_suffix(STRAIN);
        let usual = [STATE, QUALITY].into_iter().filter_map(|end| Some(format!("{}{end}", stem?)));
        usual.chain((detector == "V1").then(|| VIRGO.to_owned())).collect()
    }

    /// Returns the channel that marks hardware injections, and its bits: GWOSC's mask, or the state vector.
    fn injections(&self, file: &Gwf, strain: &str, detector: &str) -> Option<State> {
        let has = |name: &String| file.names().any(|known| known == name);
        let mask = strain.strip_suffix(STRAIN).map(|stem| format!("{stem}{INJECTIONS}"));
        if let Some(channel) = mask.filter(has) {
            return Some(State { channel, bits: MASK_INJECTIONS });
        }
        let usual = || Self::usual_states(strain, detector).into_iter().find(has);
        let channel = self.state.clone().or_else(usual)?;
        channel.ends_with(STATE).then_some(State { channel, bits: STATE_INJECTIONS })
    }
}

/// Bit that a state vector does not have, and those that it has.
struct Unknown {
    name: String,
    rule: String,
}

/// Returns the required bits of a state vector.
fn wanted(channel: &str, bits: Option<&[String]>) -> std::result::Result<u64, Unknown> {
    let quality: Vec<&str> = QUALITY_BITS.iter().map(|(name, _)| *name).collect();
    let (known, usual) = match channel.ends_with(QUALITY) {
        true => (quality.as_slice(), USUAL_QUALITY),
        false => (STATE_BITS.as_slice(), USUAL),
    };
    let usual = usual.map(str::to_owned);
    let mut wanted = 0;
    for name in bits.unwrap_or(&usual) {
        let number = name.parse().ok().filter(|bit: &usize| *bit < 53);
        let Some(bit) = known.iter().position(|known| known == name).or(number) else {
            let rule = format!("{channel} has {}, or bits by number, 0 to 52", known.join(", "));
            return Err(Unknown { name: name.clone(), rule });
        };
        wanted |= 1 << bit;
    }
    Ok(wanted)
}

fn lacks(file: &Gwf, name: &str) -> String {
    let names: Vec<&str> = file.names().take(20).collect();
    format!("no channel {name}; there are {}", names.join(", "))
}

impl Reading {
    /// Reads a frame to `samples` and `valid`, which get the length that its name says, and to the spans of hardware
    /// `injections`. Invalid samples are 0.
    pub(super) fn read(
        &self,
        path: &Path,
        span: Span,
        samples: &mut Vec<f64>,
        valid: &mut Vec<bool>,
        injections: &mut Vec<Span>,
    ) -> std::result::Result<Bad, Fault> {
        let file = Gwf::open(path)?;
        if let Some(why) = file.cut() {
            return Err(Fault::Damaged(why.to_owned()));
        }
        let grid = Grid { start: span.start, rate_hz: self.rate_hz };
        let count = grid.place(span.end).ok_or_else(|| {
            Fault::Damaged(format!(
                "its length is no whole number of samples of {} Hz",
                self.rate_hz
            ))
        })?;
        // Check the number of samples before allocating, because the name may state a wrong length.
        let pieces = pieces(&file, &self.strain, Fault::Channel)?;
        let held = pieces.iter().fold(0_u64, |sum, piece| sum.saturating_add(piece.samples));
        if held != count {
            return Err(Fault::Damaged(format!("{held} samples found, expected {count}")));
        }
        samples.clear();
        samples.resize(count as usize, 0.0);
        valid.clear();
        valid.resize(count as usize, true);
        injections.clear();
        if self.injections(&file, grid, valid.len(), injections).is_err() {
            // Without the marks the strain is as good as the state vector says.
            injections.clear();
        }
        let mut bad = Bad::default();
        if let Some(state) = &self.state {
            bad.state += self.mark(&file, state, grid, valid)?;
            if valid.iter().all(|valid| !valid) {
                return Ok(bad);
            }
        }
        let mut read = 0;
        for piece in pieces {
            if (piece.spacing_s * f64::from(self.rate_hz) - 1.0).abs() > 1e-6 {
                let (found, expected) = (1.0 / piece.spacing_s, self.rate_hz);
                return Err(Fault::Damaged(format!("{found} Hz found, expected {expected}")));
            }
            let first = grid.place(piece.start).filter(|first| *first == read);
            let end = first.map(|first| first + piece.samples).filter(|end| *end <= count);
            let (Some(first), Some(end)) = (first, end) else {
                return Err(Fault::Damaged(format!(
                    "{} samples from GPS {} on, which contradicts the name",
                    piece.samples,
                    piece.start.s()
                )));
            };
            let own = first as usize..end as usize;
            file.open_piece(&piece)?.read(&mut samples[own.clone()])?;
            bad.state += self.refuse(&file, &piece, &mut valid[own])?;
            read = end;
        }
        for (sample, valid) in samples.iter_mut().zip(valid) {
            if *valid && !sample.is_finite() {
                bad.not_finite += 1;
                *valid = false;
            }
            if !*valid {
                *sample = 0.0;
            }
        }
        Ok(bad)
    }

    /// Calls `each` with every word of a state vector and the samples of the frame to which it belongs.
    fn words(
        &self,
        file: &Gwf,
        channel: &str,
        frame: Frame,
        mut each: impl FnMut(f64, Range<usize>),
    ) -> std::result::Result<(), Fault> {
        let Frame { grid, length } = frame;
        for piece in pieces(file, channel, Fault::State)? {
            let mut words = vec![0.0; usize::try_from(piece.samples).unwrap_or(0).min(1 << 20)];
            let count = file.open_piece(&piece)?.read(&mut words)?;
            let start_s = piece.start.seconds_since(grid.start);
            // A state may last longer than a short frame, but begins within it.
            let last_s = start_s + (piece.samples.max(1) - 1) as f64 * piece.spacing_s;
            if start_s < -1e-6 || last_s > length as f64 / f64::from(self.rate_hz) - 1e-6 {
                return Err(Fault::Damaged(format!(
                    "{} states from GPS {} on, which contradicts the name",
                    piece.samples,
                    piece.start.s()
                )));
            }
            for (index, word) in words[..count].iter().enumerate() {
                let at = |index: usize| {
                    let s = start_s + index as f64 * piece.spacing_s;
                    let place = (s * f64::from(self.rate_hz)).round().max(0.0) as usize;
                    place.min(length)
                };
                each(*word, at(index)..at(index + 1));
            }
        }
        Ok(())
    }

    /// Appends the spans of hardware injections: words that have some of the bits of injections, but not all. A vector that has
    /// none of them does not use them.
    fn injections(
        &self,
        file: &Gwf,
        grid: Grid,
        length: usize,
        spans: &mut Vec<Span>,
    ) -> std::result::Result<(), Fault> {
        let Some(State { channel, bits }) = &self.injections else { return Ok(()) };
        if !file.names().any(|known| known == channel) {
            return Ok(());
        }
        let time = |sample: usize| grid.start.plus_samples(sample as i64, grid.rate_hz);
        self.words(file, channel, Frame { grid, length }, |word, own| {
            let set = if word >= 0.0 { word as u64 & bits } else { 0 };
            if set == 0 || set == *bits || own.is_empty() {
                return;
            }
            let span = Span { start: time(own.start), end: time(own.end) };
            match spans.last_mut() {
                Some(last) if last.end == span.start => last.end = span.end,
                _ => spans.push(span),
            }
        })
    }

    /// Marks the samples at which the state vector lacks a bit, and returns their number.
    fn mark(
        &self,
        file: &Gwf,
        State { channel, bits }: &State,
        grid: Grid,
        valid: &mut [bool],
    ) -> std::result::Result<u64, Fault> {
        let length = valid.len();
        let mut is_good = vec![false; length];
        self.words(file, channel, Frame { grid, length }, |word, own| {
            if word >= 0.0 && word as u64 & bits == *bits {
                is_good[own].fill(true);
            }
        })?;
        let mut bad = 0;
        for (valid, is_good) in valid.iter_mut().zip(is_good) {
            bad += u64::from(!is_good);
            *valid = is_good;
        }
        Ok(bad)
    }

    /// Marks the samples that the writer of the frame declares invalid, and returns their number.
    fn refuse(
        &self,
        file: &Gwf,
        piece: &Piece,
        valid: &mut [bool],
    ) -> std::result::Result<u64, Fault> {
        let mut bad = 0;
        let mut clear = |valid: &mut [bool]| {
            bad += valid.iter().filter(|valid| **valid).count() as u64;
            valid.fill(false);
        };
        if !piece.is_valid {
            clear(valid);
        } else if let Some(flags) = file.flags(piece)? {
            let step = (valid.len() / flags.len().max(1)).max(1);
            for (part, flag) in valid.chunks_mut(step).zip(flags) {
                if flag != 0.0 {
                    clear(part);
                }
            }
        }
        Ok(bad)
    }
}

/// Returns the pieces of a channel; without it the fault of its absence.
fn pieces(
    file: &Gwf,
    name: &str,
    absent: fn(String) -> Fault,
) -> std::result::Result<Vec<Piece>, Fault> {
    if !file.names().any(|known| known == name) {
        return Err(absent(lacks(file, name)));
    }
    Ok(file.pieces(name)?)
}

/// Samples of a frame.
#[derive(Clone, Copy, Debug)]
struct Frame {
    grid: Grid,
    length: usize,
}

/// Times of a stream's samples.
#[derive(Clone, Copy, Debug)]
pub(super) struct Grid {
    /// Time of sample 0.
    pub(super) start: Gps,
    pub(super) rate_hz: u32,
}

impl Grid {
    /// Returns the number of the sample at a time, which names may round to a microsecond; `None` before the start or between
    /// samples.
    pub(super) fn place(self, gps: Gps) -> Option<u64> {
        let (sample, distance_ns) = self.nearest(gps)?;
        (distance_ns.abs() <= 1000).then_some(sample)
    }

    /// Returns the number of the sample nearest to a time, and the time's distance after it in nanoseconds; `None` before the
    /// start.
    pub(super) fn nearest(self, gps: Gps) -> Option<(u64, i64)> {
        let (rate, second) = (i128::from(self.rate_hz), 1_000_000_000_i128);
        let distance = (i128::from(gps.ns) - i128::from(self.start.ns)) * rate;
        let sample = (distance + second / 2).div_euclid(second);
        // Rounded away from 0, so that a time within the tolerance is not beyond it.
        let after = distance - sample * second;
        let after_ns = after.signum() * (after.abs() + rate - 1).div_euclid(rate);
        Some((u64::try_from(sample).ok()?, after_ns as i64))
    }
}
