//! Recordings of an array: checks that they match, their antennas and baselines, their channels, the tracked direction,
//! and the delays of each antenna and spectrum.
//!
//! Invariant: recordings that pass the checks have the same sample rate, band and kind of samples; baselines (i, j)
//! have i >= j and ascend by i, then by j; output channels ascend by sky frequency; a tracked direction has a known
//! start; a spectrum's delay depends on its number alone.

use std::ops::Range;

use super::options::{Baselines, CorrelateOptions, Missing, PhaseCentre, Request};
use super::window::Framing;
use crate::channelize::Plan;
use crate::delay::Band;
use crate::error::{Error, Result};
use crate::geometry;
use crate::geometry::{Array, DelayModel, DelayPolynomial, Direction, Sky};
use crate::io::voltages::{VoltageHeader, VoltageSource};
use crate::pipeline::voltage::layout::{Layout, offsets_hz, sideband};
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

/// Largest deviation of start offsets from whole samples without phase rotation, in samples: less than half a degree of
/// phase over the band.
const START_TOLERANCE: f64 = 1e-3;

/// Accuracy of an epoch's seconds of the day, in seconds.
const EPOCH_S: f64 = 3e-11;

/// Largest drift between sample clocks over a whole recording, in samples.
const RATE_TOLERANCE: f64 = 0.1;

/// Time over which the sample clocks of live streams may drift by as much, in seconds.
const LIVE_S: f64 = 3600.0;

/// Largest relative difference between centre frequencies; covers the rounding of decimal headers.
const CENTRE_TOLERANCE: f64 = 1e-13;

/// Length of a live recording, in samples, until it ends: beyond that of any observation.
pub(super) const ENDLESS: u64 = 1 << 60;

/// Common properties of the recordings, and the offset of each.
#[derive(Clone, Debug)]
pub(super) struct Recordings {
    /// Header of the first recording, with the common start.
    pub(super) header: VoltageHeader,
    /// Common samples within the time range; [`ENDLESS`] while unknown.
    pub(super) times: u64,
    /// Sample index of each recording at common sample 0.
    pub(super) offsets: Vec<u64>,
    /// Lag of each recording's samples behind the common samples, in samples; its magnitude is at most 1/2.
    pub(super) sample_lag: Vec<f64>,
    /// Samples per recording; [`ENDLESS`] while unknown.
    pub(super) lengths: Vec<u64>,
}

impl Recordings {
    /// Checks that the recordings match; those marked `cut` (truncated) may be shorter than the others, and the length of
    /// those marked `live` may be unknown.
    ///
    /// # Errors
    /// [`Error::Parameter`] naming both files and their difference.
    pub(super) fn new(
        headers: &[&VoltageHeader],
        cut: &[bool],
        live: &[bool],
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
        let lengths = headers.iter().zip(live).map(|(header, is_live)| length(header, *is_live));
        let lengths = lengths.collect::<Result<Vec<_>>>()?;
        check_lengths(headers, &lengths, cut, options.shortest)?;
        let starts = headers.iter().map(|header| start(first, header));
        let (starts, sample_lag): (Vec<i64>, Vec<f64>) =
            starts.collect::<Result<Vec<_>>>()?.into_iter().unzip();
        let latest = starts.iter().copied().max().unwrap_or(0);
        let offsets: Vec<u64> = starts.iter().map(|start| (latest - start) as u64).collect();
        let rest = |(length, offset): (&u64, &u64)| match *length {
            ENDLESS => Some(ENDLESS),
            length => length.checked_sub(*offset),
        };
        let rests = lengths.iter().zip(&offsets).map(rest);
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
        let times = if part.end == ENDLESS { ENDLESS } else { part.end - part.start };
        header.times = (times < ENDLESS).then_some(times);
        let offsets = offsets.into_iter().map(|offset| offset + part.start).collect();
        Ok(Self { header, times, offsets, sample_lag, lengths })
    }

    /// Checks that recordings start whole samples apart, as required without phase rotation.
    ///
    /// # Errors
    /// [`Error::Parameter`] naming both files and their starts.
    pub(super) fn check_whole(&self, headers: &[&VoltageHeader]) -> Result<()> {
        let most = START_TOLERANCE + EPOCH_S / self.header.tsamp_s;
        let Some(invalid) = self.sample_lag.iter().position(|sample_lag| sample_lag.abs() > most)
        else {
            return Ok(());
        };
        let (first, other) = (headers[0], headers[invalid]);
        let rule = format!(
            "{} starts {}: without delays to take out, starts must lie whole samples apart, and these are off \
             by {:.3}",
            first.path.display(),
            day(first.start),
            self.sample_lag[invalid],
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
        return Err(Error::parameter("sample_rate_hz", header.tsamp_s, rule));
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
        return Err(Error::parameter("centre_hz", 0, rule));
    }
    Ok(())
}

fn check_pair(first: &VoltageHeader, other: &VoltageHeader) -> Result<()> {
    // The error names both files and their values.
    let differ = |name, first_value: String, other_value: String| {
        let rule = format!("{} has {first_value}: both must have the same", first.path.display());
        Err(Error::parameter(name, format!("{other_value} in {}", other.path.display()), rule))
    };
    let same = |name, value: fn(&VoltageHeader) -> String| {
        let (first_value, other_value) = (value(first), value(other));
        if first_value == other_value { Ok(()) } else { differ(name, first_value, other_value) }
    };
    let times = match first.times.zip(other.times) {
        Some((own, theirs)) => own.min(theirs).max(1) as f64,
        None => LIVE_S / first.tsamp_s,
    };
    if (first.tsamp_s - other.tsamp_s).abs() * times > RATE_TOLERANCE * first.tsamp_s {
        let rate = |header: &VoltageHeader| (1.0 / header.tsamp_s).to_string();
        return differ("sample rate", rate(first), rate(other));
    }
    same("recorded channels", |header| header.coarse_channels().to_string())?;
    for (own, theirs) in first.centres_hz.iter().zip(&other.centres_hz) {
        if (own - theirs).abs() > CENTRE_TOLERANCE * own {
            let mhz = |hz: &f64| (hz / HZ_PER_MHZ).to_string();
            return differ("centre of a recorded channel (MHz)", mhz(own), mhz(theirs));
        }
    }
    same("sideband", |header| if header.lower_sideband { "lower".into() } else { "upper".into() })?;
    same("number of polarizations", |header| header.polarizations.to_string())?;
    same(
        "feeds",
        |header| {
            if header.circular == Some(true) { "circular".into() } else { "linear".into() }
        },
    )?;
    same("samples", |header| {
        if header.encoding.is_complex() { "complex samples".into() } else { "real samples".into() }
    })?;
    same("filter bank", |header| match &header.filter {
        Some(filter) => format!("{} channels of {} taps", filter.channels, filter.taps),
        None => "none".into(),
    })?;
    same("start", |header| {
        if header.start.day == 0 { "an unknown day".into() } else { "a known day".into() }
    })
}

fn length(header: &VoltageHeader, is_live: bool) -> Result<u64> {
    let unknown = is_live.then_some(ENDLESS);
    header.times.or(unknown).ok_or_else(|| Error::Unavailable {
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
        "{} has {}; correlate as far as the shortest goes with `shortest`",
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
    let step = header.encoding.group_samples() as u64;
    let sample =
        |seconds: f64| ((seconds / header.tsamp_s).round() as u64 / step * step).min(times);
    if !(from >= 0.0 && from < to && from < duration && sample(from) < sample(to)) {
        let rule = format!("it must be FROM:TO in seconds, rising, within 0 to {duration:.6}");
        return Err(Error::parameter("time_range", format!("{from}:{to}"), rule));
    }
    Ok(sample(from)..sample(to))
}

/// Returns the clock reading `seconds` later, with leap seconds where the date is known.
///
/// # Errors
/// As [`geometry::plus_elapsed_s`].
pub(super) fn later(epoch: Epoch, seconds: f64) -> Result<Epoch> {
    if epoch.day == 0 {
        Ok(epoch.plus_s(seconds))
    } else {
        geometry::plus_elapsed_s(&epoch, seconds)
    }
}

/// Returns the seconds between two clock readings, with leap seconds where the dates are known.
///
/// # Errors
/// As [`geometry::elapsed_s`].
pub(super) fn since(earlier: &Epoch, later: &Epoch) -> Result<f64> {
    if earlier.day == 0 || later.day == 0 {
        Ok(later.seconds_since(earlier))
    } else {
        geometry::elapsed_s(earlier, later)
    }
}

/// Output baseline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Baseline {
    /// Antenna numbers in the array, i >= j.
    pub(super) antennas: (usize, usize),
    /// Indices among the correlated antennas; none if either has no recording.
    pub(super) correlated: Option<(usize, usize)>,
}

/// Returns the array number of each recorded antenna, in the order of the inputs.
///
/// # Errors
/// [`Error::Parameter`] for a name that the array lacks, an antenna with two recordings, a number of names that
/// differs from the number of antennas or, unless they are to be flagged, antennas without a recording.
pub(super) fn array_numbers(
    array: &Array,
    inputs: &[ArrayInput],
    missing: Missing,
) -> Result<Vec<usize>> {
    let path = |input: &ArrayInput| input.source.header().path.display().to_string();
    let mut owners: Vec<Option<&ArrayInput>> = vec![None; array.antennas.len()];
    let mut numbers = Vec::new();
    for input in inputs {
        let (expected, actual) = (input.source.header().antennas, input.antennas.len());
        if expected != actual {
            let rule = format!("{} has {expected}, and each needs a name", path(input));
            return Err(Error::parameter("names of antennas", actual, rule));
        }
        for name in &input.antennas {
            let number = array.find(name).ok_or_else(|| {
                let rule = format!("the array has no position for it, and {} is its", path(input));
                Error::parameter("antenna", name, rule)
            })?;
            if let Some(other) = owners[number].replace(input) {
                let rule = format!("both {} and {} are its recordings", path(other), path(input));
                return Err(Error::parameter("antenna", name, rule));
            }
            numbers.push(number);
        }
    }
    if numbers.is_empty() {
        return Err(Error::parameter("antennas", 0, "there must be at least one recording"));
    }
    let absent: Vec<&str> = owners
        .iter()
        .zip(&array.antennas)
        .filter(|(owner, _)| owner.is_none())
        .map(|(_, antenna)| antenna.name.as_str())
        .collect();
    match absent.first() {
        Some(name) if missing == Missing::Fail => {
            let rule = match absent.len() {
                1 => "it has no recording; flag it with `missing: Flag`".to_owned(),
                more => format!(
                    "it and {} others have no recording; flag them with `missing: Flag`",
                    more - 1
                ),
            };
            Err(Error::parameter("antenna", *name, rule))
        }
        _ => Ok(numbers),
    }
}

/// Returns the requested baselines; `correlated` holds the array numbers of the correlated antennas, ascending.
///
/// # Errors
/// [`Error::Parameter`] for a name that the array lacks, and for an empty list.
pub(super) fn select_baselines(
    array: &Array,
    request: &Baselines,
    correlated: &[usize],
) -> Result<Vec<Baseline>> {
    let antennas = array.antennas.len();
    let find = |name: &String| {
        let rule = "the array has no antenna of that name";
        array.find(name).ok_or_else(|| Error::parameter("baselines", name, rule))
    };
    let mut pairs: Vec<(usize, usize)> = match request {
        Baselines::All => (0..antennas).flat_map(|i| (0..=i).map(move |j| (i, j))).collect(),
        Baselines::Autos => (0..antennas).map(|i| (i, i)).collect(),
        Baselines::List(names) => {
            let pair = |(a, b): &(String, String)| {
                let (a, b) = (find(a)?, find(b)?);
                Ok((a.max(b), a.min(b)))
            };
            names.iter().map(pair).collect::<Result<_>>()?
        }
    };
    if pairs.is_empty() {
        return Err(Error::parameter("baselines", "none", "there must be at least one"));
    }
    pairs.sort_unstable();
    pairs.dedup();
    let place = |number: usize| correlated.binary_search(&number).ok();
    let baseline = |(i, j)| Baseline { antennas: (i, j), correlated: place(i).zip(place(j)) };
    Ok(pairs.into_iter().map(baseline).collect())
}

/// Largest deviation of the spacing of averaged channels, relative to the spacing.
const SPACING_TOLERANCE: f64 = 1e-3;

/// Channels of a correlation.
#[derive(Clone, Debug)]
pub(super) struct Channels {
    /// Number of channels per recorded channel.
    pub(super) fine: usize,
    /// Number of recorded channels.
    pub(super) coarse: usize,
    /// Correlated channels by ascending sky frequency; each run of `average` channels forms one output channel.
    pub(super) order: Vec<usize>,
    pub(super) average: usize,
    /// Sky frequency of each output channel.
    pub(super) centres_hz: Vec<f64>,
    /// Width of an output channel.
    pub(super) width_hz: f64,
    /// Whether the voltages are complex conjugates of the sky's: sky frequency falls as the voltage's rises.
    pub(super) is_conjugate: bool,
    /// Frequencies for the phase rotation that removes delays.
    pub(super) band: Band,
}

impl Channels {
    /// Computes the channels of a filter bank; without one, the recorded channels.
    ///
    /// # Errors
    /// [`Error::Parameter`] for channels that overlap, or cannot be averaged.
    pub(super) fn new(header: &VoltageHeader, bank: Option<&Plan>, average: usize) -> Result<Self> {
        let sideband = sideband(header);
        let offsets = match bank {
            Some(plan) => {
                let layout = Layout::new(header, true)?;
                layout.centres_hz(header, plan, 1)?;
                offsets_hz(header, plan, 1)
            }
            None => vec![0.0],
        };
        let (fine, coarse) = (offsets.len(), header.coarse_channels());
        let centre =
            |channel: usize| header.centres_hz[channel / fine] + sideband * offsets[channel % fine];
        let mut order: Vec<usize> = (0..coarse * fine).collect();
        order.sort_by(|a, b| centre(*a).total_cmp(&centre(*b)));
        let all: Vec<f64> = order.iter().map(|channel| centre(*channel)).collect();
        check_average(&all, if bank.is_some() { fine } else { coarse }, average)?;
        let mean = |part: &[f64]| part.iter().sum::<f64>() / part.len() as f64;
        let width = header.channel_width_hz();
        // Real samples have their zero frequency at the band's edge.
        let half = if header.encoding.is_complex() { 0.0 } else { 0.5 * width };
        let zero = |centre: f64| sideband * (centre - sideband * half);
        Ok(Self {
            fine,
            coarse,
            order,
            average,
            centres_hz: all.chunks(average).map(mean).collect(),
            width_hz: width / fine as f64 * average as f64,
            is_conjugate: sideband < 0.0,
            band: Band {
                zeros_hz: header.centres_hz.iter().map(|centre| zero(*centre)).collect(),
                first_hz: offsets[0] + half,
                step_hz: width / fine as f64,
            },
        })
    }
}

/// Checks that averaged channels belong to one recorded channel or are evenly spaced.
fn check_average(centres_hz: &[f64], together: usize, average: usize) -> Result<()> {
    if average == 0 || !together.is_multiple_of(average) {
        let rule = format!("it must divide the {together} channels");
        return Err(Error::parameter("average_channels", average, rule));
    }
    let spacing = centres_hz.get(..2).map_or(1.0, |pair| pair[1] - pair[0]);
    let uneven = |part: &[f64]| {
        let off = |pair: &[f64]| pair[1] - pair[0] - spacing;
        part.windows(2).any(|pair| off(pair).abs() > SPACING_TOLERANCE * spacing)
    };
    if average > 1 && centres_hz.chunks(average).any(uneven) {
        let rule = "channels that are averaged must be evenly spaced, and these are not";
        return Err(Error::parameter("average_channels", average, rule));
    }
    Ok(())
}

/// Seconds between altitude samples.
const ALTITUDES_S: f64 = 600.0;

/// Largest number of altitude samples; covers the longest observation whose delays are modelled.
const MAX_ALTITUDES: f64 = 14_400.0;

/// Sky over an array, and the tracked direction.
#[derive(Clone, Debug)]
pub(super) struct Tracking {
    /// None if the time is unknown.
    pub(super) sky: Option<Sky>,
    pub(super) direction: Option<Direction>,
    pub(super) dut1_s: f64,
    /// Altitude of the source from start to end, at most ten minutes apart.
    altitudes_deg: Vec<f64>,
}

impl Tracking {
    /// # Errors
    /// [`Error::Parameter`] for a source without a known start of the recording; as [`Sky::frame`].
    pub(super) fn new(
        array: &Array,
        header: &VoltageHeader,
        times: u64,
        options: &CorrelateOptions,
    ) -> Result<Self> {
        let direction = match &options.phase_centre {
            PhaseCentre::Sidereal { ra_deg, dec_deg, .. } => {
                Some(Direction::new(*ra_deg, *dec_deg)?)
            }
            PhaseCentre::Drift => None,
        };
        if header.start.day == 0 {
            if direction.is_some() {
                let rule = format!(
                    "{} does not say its start, and without it no source can be tracked (`PhaseCentre::Drift`)",
                    header.path.display()
                );
                return Err(Error::parameter("start", "unknown", rule));
            }
            return Ok(Self { sky: None, direction, dut1_s: 0.0, altitudes_deg: Vec::new() });
        }
        let sky = Sky::new(array, options.dut1.clone())?;
        let dut1_s = options.dut1.at(header.start)?;
        // The altitude at the end of a live observation is not known.
        let length_s = if times == ENDLESS { 0.0 } else { times as f64 * header.tsamp_s };
        let altitudes_deg = match direction {
            Some(source) => altitudes_deg(&sky, source, header.start, length_s)?,
            None => Vec::new(),
        };
        Ok(Self { sky: Some(sky), direction, dut1_s, altitudes_deg })
    }

    /// Returns the altitude of the source at the start and at the end.
    pub(super) fn altitudes_deg(&self) -> Option<(f64, f64)> {
        self.altitudes_deg.first().copied().zip(self.altitudes_deg.last().copied())
    }

    /// Returns the lowest altitude of the source.
    pub(super) fn lowest_deg(&self) -> Option<f64> {
        self.altitudes_deg.iter().copied().reduce(f64::min)
    }
}

/// Computes altitudes from the start to the end of an observation, at most ten minutes apart.
fn altitudes_deg(sky: &Sky, source: Direction, start: Epoch, length_s: f64) -> Result<Vec<f64>> {
    let steps = (length_s / ALTITUDES_S).ceil().clamp(1.0, MAX_ALTITUDES);
    let altitude = |step: usize| {
        let epoch = later(start, length_s * (step as f64 / steps))?;
        Ok(sky.altitude_azimuth_deg(source, epoch)?.0)
    };
    (0..=steps as usize).map(altitude).collect()
}

/// Builds the model of the delays to remove.
///
/// # Errors
/// [`Error::Shape`] for a number of delays that differs from the antennas; as [`DelayModel::fit`].
pub(super) fn delay_model(
    request: &Request<'_>,
    tracking: &Tracking,
    recordings: &Recordings,
) -> Result<Model> {
    let (antennas, header) = (request.array.antennas.len(), &recordings.header);
    let cables_s = &request.options.cable_delays_s;
    for (what, actual) in
        [("cable delays", cables_s.len()), ("delays", request.delays.map_or(0, <[_]>::len))]
    {
        if actual != 0 && actual != antennas {
            return Err(Error::Shape { what, expected: antennas, actual });
        }
    }
    if let Some(invalid) = cables_s.iter().find(|delay| !delay.is_finite()) {
        return Err(Error::parameter("cable delay (s)", invalid, "it must be finite"));
    }
    let cable = |antenna: usize| cables_s.get(antenna).copied().unwrap_or(0.0);
    if let Some(given) = request.delays {
        let with_cable = |(antenna, polynomial): (usize, &DelayPolynomial)| {
            let mut own = *polynomial;
            own.coefficients[0] += cable(antenna);
            Ok((own, since(&polynomial.start, &header.start)?))
        };
        let all = given.iter().enumerate().map(with_cable).collect::<Result<_>>()?;
        return Ok(Model::Given(all));
    }
    if let (Some(direction), Some(sky)) = (tracking.direction, &tracking.sky) {
        let centre = geometry::PhaseCentre::Source(direction);
        if recordings.times == ENDLESS {
            let model = DelayModel::fit(sky, centre, header.start, COVERED_S, cables_s)?;
            let growth = Growth { sky: sky.clone(), centre, cables_s: cables_s.clone() };
            return Ok(Model::Fitted(model, Some(Box::new(growth))));
        }
        let length_s = recordings.times as f64 * header.tsamp_s;
        let model = DelayModel::fit(sky, centre, header.start, length_s, cables_s)?;
        return Ok(Model::Fitted(model, None));
    }
    if cables_s.iter().all(|delay| *delay == 0.0) {
        return Ok(Model::None);
    }
    let fixed = |antenna| {
        let coefficients = [cable(antenna), 0.0, 0.0, 0.0, 0.0, 0.0];
        (DelayPolynomial { start: header.start, length_s: 0.0, coefficients }, 0.0)
    };
    Ok(Model::Given((0..antennas).map(fixed).collect()))
}

/// Bound on delays in samples; longer than any recording.
const MAX_DELAY: f64 = 1e15;

/// Delay model.
#[derive(Clone, Debug)]
pub(super) enum Model {
    /// No delays.
    None,
    /// Delays of a phase centre and of cables, from the common start on; those of a live observation are fitted as it goes on.
    Fitted(DelayModel, Option<Box<Growth>>),
    /// One polynomial per antenna, and the seconds from its start to the common start.
    Given(Vec<(DelayPolynomial, f64)>),
}

/// Origin of the delays of a live observation.
#[derive(Clone, Debug)]
pub(super) struct Growth {
    sky: Sky,
    centre: geometry::PhaseCentre,
    cables_s: Vec<f64>,
}

/// Seconds for which the delays of a live observation are fitted ahead, and kept.
const COVERED_S: f64 = 60.0;

/// Delays of all antennas at all spectra.
#[derive(Clone, Debug)]
pub(super) struct Delays {
    model: Model,
    tsamp_s: f64,
    framing: Framing,
}

/// Delay of a spectrum, and its whole-sample shift: samples are read `shift` later.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Delay {
    pub(super) delay_s: f64,
    pub(super) shift: i64,
}

impl Delays {
    /// Computes delays for spectra that cover samples `s hop` to `s hop + span`.
    pub(super) fn new(model: Model, tsamp_s: f64, framing: Framing) -> Self {
        Self { model, tsamp_s, framing }
    }

    /// Fits the delays of a live observation at some spectra.
    ///
    /// # Errors
    /// As [`DelayModel::extend`].
    pub(super) fn cover(&mut self, spectra: &Range<u64>) -> Result<()> {
        let Model::Fitted(model, Some(growth)) = &mut self.model else { return Ok(()) };
        let seconds = |spectrum: u64| (spectrum * self.framing.hop) as f64 * self.tsamp_s;
        let Growth { sky, centre, cables_s } = growth.as_ref();
        let range = seconds(spectra.start) - COVERED_S..seconds(spectra.end) + COVERED_S;
        model.extend(sky, centre, cables_s, range)
    }

    /// Returns the division of samples into spectra.
    pub(super) fn framing(&self) -> Framing {
        self.framing
    }

    /// Returns the samples from one spectrum to the next.
    pub(super) fn hop(&self) -> u64 {
        self.framing.hop
    }

    /// Returns the shift in seconds of an antenna whose sampling is offset by `sample_lag` samples.
    pub(super) fn shift_s(&self, shift: i64, sample_lag: f64) -> f64 {
        (shift as f64 + sample_lag) * self.tsamp_s
    }

    /// Returns the delay at the centre of the shifted window, for an antenna whose sampling is offset by `sample_lag`
    /// samples.
    pub(super) fn at(&self, antenna: usize, sample_lag: f64, spectrum: u64) -> Delay {
        let Framing { hop, span } = self.framing;
        let middle = (spectrum * hop) as f64 + 0.5 * span as f64;
        let delay_s =
            |shift: f64| self.delay_s(antenna, (middle + shift + sample_lag) * self.tsamp_s);
        // The first estimate uses the reference point's time; the delay changes little until the antenna's own time.
        let shift = self.samples(delay_s(self.samples(delay_s(0.0), sample_lag)), sample_lag);
        Delay { delay_s: delay_s(shift), shift: shift as i64 }
    }

    /// Returns the delay rounded to whole samples.
    fn samples(&self, delay_s: f64, sample_lag: f64) -> f64 {
        (delay_s / self.tsamp_s - sample_lag).round().clamp(-MAX_DELAY, MAX_DELAY)
    }

    fn delay_s(&self, antenna: usize, seconds: f64) -> f64 {
        match &self.model {
            Model::None => 0.0,
            Model::Fitted(model, _) => model.at(antenna, seconds),
            Model::Given(all) => {
                let (polynomial, since_s) = &all[antenna];
                polynomial.at(seconds + since_s)
            }
        }
    }
}
