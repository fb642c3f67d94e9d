//! Recordings of an array, and checks that they match.
//!
//! Invariant: recordings that pass have one rate, one band and one form, and it is known to a part of a sample
//! by how much one starts later than another.

use std::ops::Range;
use std::path::Path;

use super::options::CorrelateOptions;
use super::tracking::{later, since};
use crate::error::{Error, Result};
use crate::io::voltages::{VoltageHeader, VoltageSource};
use crate::units::{Epoch, HZ_PER_MHZ};

/// Recording of one or several antennas.
pub struct ArrayInput {
    /// Array name of each antenna in the source.
    pub antennas: Vec<String>,
    /// The recording.
    pub source: Box<dyn VoltageSource>,
}

impl std::fmt::Debug for ArrayInput {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ArrayInput").field("antennas", &self.antennas).finish_non_exhaustive()
    }
}

/// Largest deviation of start offsets from whole samples without phase rotation, in samples: half a degree over the
/// band.
const START_TOLERANCE: f64 = 1e-3;

/// Accuracy of the seconds of a day.
const EPOCH_S: f64 = 3e-11;

/// Largest drift between sample clocks over a whole recording, in samples.
const RATE_TOLERANCE: f64 = 0.1;

/// Largest relative difference between centre frequencies; covers the rounding of decimal headers.
const CENTRE_TOLERANCE: f64 = 1e-13;

/// Common properties of the recordings, and the offset of each.
#[derive(Clone, Debug)]
pub(super) struct Recordings {
    /// Header of the first recording, with the common start.
    pub(super) header: VoltageHeader,
    /// Common samples within the time range.
    pub(super) times: u64,
    /// Sample index of each recording at common sample 0.
    pub(super) offsets: Vec<u64>,
    /// Lag of each recording's samples behind the common ones in samples, at most half.
    pub(super) late: Vec<f64>,
    /// Samples per recording.
    pub(super) lengths: Vec<u64>,
}

impl Recordings {
    /// Checks that the recordings match; those marked `cut` (truncated) may be shorter than the others.
    ///
    /// # Errors
    /// [`Error::Parameter`] naming both files and their difference.
    pub(super) fn new(
        headers: &[&VoltageHeader],
        cut: &[bool],
        options: &CorrelateOptions,
    ) -> Result<Self> {
        let Some((first, others)) = headers.split_first() else {
            return Err(Error::parameter("antennas", 0, "there must be at least one recording"));
        };
        check_alone(first)?;
        for other in others {
            check_alone(other)?;
            check_pair(first, other)?;
        }
        let lengths = headers.iter().map(|header| length(header)).collect::<Result<Vec<_>>>()?;
        check_lengths(headers, &lengths, cut, options.shortest)?;
        let starts = headers.iter().map(|header| start(first, header));
        let (starts, late): (Vec<i64>, Vec<f64>) =
            starts.collect::<Result<Vec<_>>>()?.into_iter().unzip();
        let latest = starts.iter().copied().max().unwrap_or(0);
        let offsets: Vec<u64> = starts.iter().map(|start| (latest - start) as u64).collect();
        let rests =
            lengths.iter().zip(&offsets).map(|(length, offset)| length.checked_sub(*offset));
        let common = match rests.min().flatten() {
            Some(times) if times > 0 => times,
            _ => return Err(apart(headers, &starts)),
        };
        let part = part(first, common, options.time_range)?;
        let mut header = (*first).clone();
        if header.start.day != 0 {
            let samples = latest as f64 + part.start as f64;
            header.start = later(header.start, samples * header.tsamp_s)?;
        }
        let times = part.end - part.start;
        header.times = Some(times);
        let offsets = offsets.into_iter().map(|offset| offset + part.start).collect();
        Ok(Self { header, times, offsets, late, lengths })
    }

    /// Checks that recordings start whole samples apart, as required without phase rotation.
    ///
    /// # Errors
    /// [`Error::Parameter`] naming both files and their starts.
    pub(super) fn check_whole(&self, headers: &[&VoltageHeader]) -> Result<()> {
        let most = START_TOLERANCE + EPOCH_S / self.header.tsamp_s;
        let Some(bad) = self.late.iter().position(|late| late.abs() > most) else { return Ok(()) };
        let (first, other) = (headers[0], headers[bad]);
        let rule = format!(
            "{} starts {}: without delays to take out, starts must lie whole samples apart, and these are off \
             by {:.3}",
            first.path.display(),
            day(first.start),
            self.late[bad],
        );
        let found = format!("{} in {}", day(other.start), other.path.display());
        Err(Error::parameter("start", found, rule))
    }
}

fn check_alone(header: &VoltageHeader) -> Result<()> {
    if header.antennas == 0 {
        let rule = format!("{} has none", header.path.display());
        return Err(Error::parameter("antennas", 0, rule));
    }
    if !(header.tsamp_s.is_finite() && header.tsamp_s > 0.0) {
        let rule = format!(
            "{} does not say its sampling time; give its samples a second",
            header.path.display()
        );
        return Err(Error::parameter("--sample-rate", header.tsamp_s, rule));
    }
    if !header.scale.is_finite() || header.scale == 0.0 {
        let rule = format!("that of {} must be finite and not 0", header.path.display());
        return Err(Error::parameter("scale", header.scale, rule));
    }
    if header.centres_hz.is_empty() {
        let rule = format!("{} must have at least one", header.path.display());
        return Err(Error::parameter("recorded channels", 0, rule));
    }
    if header.centres_hz.iter().any(|centre| centre.is_nan() || *centre <= 0.0) {
        let rule = format!(
            "{} does not say its sky frequency; give the middle of its band in MHz",
            header.path.display()
        );
        return Err(Error::parameter("--freq", 0, rule));
    }
    Ok(())
}

/// Builds the error that names both files and their values.
fn differs<T: std::fmt::Display>(
    name: &'static str,
    (a, first): (&Path, T),
    (b, other): (&Path, T),
) -> Error {
    let rule = format!("{} has {first}: both must have the same", a.display());
    Error::parameter(name, format!("{other} in {}", b.display()), rule)
}

fn check_pair(first: &VoltageHeader, other: &VoltageHeader) -> Result<()> {
    let (a, b) = (first.path.as_path(), other.path.as_path());
    let times = first.times.unwrap_or(0).min(other.times.unwrap_or(0)).max(1) as f64;
    if (first.tsamp_s - other.tsamp_s).abs() * times > RATE_TOLERANCE * first.tsamp_s {
        let rate = |header: &VoltageHeader| 1.0 / header.tsamp_s;
        return Err(differs("sample rate (Hz)", (a, rate(first)), (b, rate(other))));
    }
    let counts = (first.coarse_channels(), other.coarse_channels());
    if counts.0 != counts.1 {
        return Err(differs("recorded channels", (a, counts.0), (b, counts.1)));
    }
    let centres = first.centres_hz.iter().zip(&other.centres_hz);
    for (own, theirs) in centres {
        if (own - theirs).abs() > CENTRE_TOLERANCE * own {
            let mhz = |hz: &f64| hz / HZ_PER_MHZ;
            return Err(differs(
                "centre of a recorded channel (MHz)",
                (a, mhz(own)),
                (b, mhz(theirs)),
            ));
        }
    }
    let side = |header: &VoltageHeader| if header.lower_sideband { "lower" } else { "upper" };
    if side(first) != side(other) {
        return Err(differs("sideband", (a, side(first)), (b, side(other))));
    }
    let counts = (first.polarizations, other.polarizations);
    if counts.0 != counts.1 {
        return Err(differs("polarizations", (a, counts.0), (b, counts.1)));
    }
    let feed = |header: &VoltageHeader| match header.circular {
        Some(true) => "circular",
        _ => "linear",
    };
    if feed(first) != feed(other) {
        return Err(differs("feeds", (a, feed(first)), (b, feed(other))));
    }
    let kind = |header: &VoltageHeader| match header.encoding.is_complex() {
        true => "complex samples",
        false => "real samples",
    };
    if kind(first) != kind(other) {
        return Err(differs("samples", (a, kind(first)), (b, kind(other))));
    }
    let bank = |header: &VoltageHeader| match &header.filter {
        Some(filter) => format!("{} channels of {} taps", filter.channels, filter.taps),
        None => "none".to_owned(),
    };
    if bank(first) != bank(other) {
        return Err(differs("filter bank", (a, bank(first)), (b, bank(other))));
    }
    if (first.start.day == 0) != (other.start.day == 0) {
        let day = |header: &VoltageHeader| match header.start.day {
            0 => "an unknown day",
            _ => "a known day",
        };
        return Err(differs("start", (a, day(first)), (b, day(other))));
    }
    Ok(())
}

fn length(header: &VoltageHeader) -> Result<u64> {
    header.times.ok_or_else(|| Error::Unavailable {
        what: format!("the length of {}", header.path.display()),
        why: "antennas are correlated from recordings of known length: write it to a file first"
            .into(),
    })
}

fn check_lengths(
    headers: &[&VoltageHeader],
    lengths: &[u64],
    cut: &[bool],
    shortest: bool,
) -> Result<()> {
    let Some(whole) = cut.iter().position(|cut| !cut).filter(|_| !shortest) else { return Ok(()) };
    let is_like = |(length, cut): (&u64, &bool)| {
        *length == lengths[whole] || (*cut && *length < lengths[whole])
    };
    let Some(other) = lengths.iter().zip(cut).position(|own| !is_like(own)) else { return Ok(()) };
    let rule = format!(
        "{} has {}; correlate as far as the shortest goes with --shortest",
        headers[whole].path.display(),
        lengths[whole],
    );
    let found = format!("{} in {}", lengths[other], headers[other].path.display());
    Err(Error::parameter("length (samples)", found, rule))
}

/// Returns the whole samples from the first recording's start to another's, and the remainder.
fn start(first: &VoltageHeader, other: &VoltageHeader) -> Result<(i64, f64)> {
    let samples = since(&first.start, &other.start)? / first.tsamp_s;
    let whole = samples.round();
    if whole.abs() < 9e15 {
        return Ok((whole as i64, samples - whole));
    }
    let rule = format!(
        "{} starts {}: these lie {samples:e} samples apart",
        first.path.display(),
        day(first.start),
    );
    let found = format!("{} in {}", day(other.start), other.path.display());
    Err(Error::parameter("start", found, rule))
}

fn day(start: Epoch) -> String {
    format!("on MJD {} at {:.9} s", start.day, start.seconds)
}

/// Builds the error for recordings that share no samples.
fn apart(headers: &[&VoltageHeader], starts: &[i64]) -> Error {
    let place = |k: usize| (headers[k].path.display(), day(headers[k].start));
    let first = (0..starts.len()).min_by_key(|k| starts[*k]).unwrap_or(0);
    let last = (0..starts.len()).max_by_key(|k| starts[*k]).unwrap_or(0);
    let ((a, start_a), (b, start_b)) = (place(first), place(last));
    if first == last || starts[first] == starts[last] {
        return Error::parameter("length (samples)", 0, format!("{a} must have some"));
    }
    let rule = format!("{a} starts {start_a} and ends before that");
    Error::parameter("start", format!("{start_b} in {b}"), rule)
}

/// Returns the samples of a time range.
fn part(header: &VoltageHeader, times: u64, range: Option<(f64, f64)>) -> Result<Range<u64>> {
    let Some((from, to)) = range else { return Ok(0..times) };
    let duration = times as f64 * header.tsamp_s;
    let step = header.encoding.samples_per_byte() as u64;
    let sample =
        |seconds: f64| ((seconds / header.tsamp_s).round() as u64 / step * step).min(times);
    if !(from >= 0.0 && from < to && from < duration && sample(from) < sample(to)) {
        let rule = format!("it must be FROM:TO in seconds, rising, within 0 to {duration:.6}");
        return Err(Error::parameter("--time-range", format!("{from}:{to}"), rule));
    }
    Ok(sample(from)..sample(to))
}
