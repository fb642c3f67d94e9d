//! Stochastic placement of templates: masses and spins such that any binary of a space matches one of them.
//!
//! Random binaries are proposed. One that no template matches becomes a template, until nearly all proposals match;
//! see docs/design/template_bank.md.

mod overlap;
mod space;

use std::collections::HashMap;
use std::sync::OnceLock;

use crate::backend::threads::Threads;
use crate::error::{Error, Result};
use crate::math::PowerSpectrum;
use crate::strain::Binary;
use crate::trace::{self, Work};
use overlap::{Frame, NODES, Nodes, Shape, Wave};
use space::Draws;
pub use space::{Range, Space};

/// Largest ratio of chirp masses within a slice, whose templates are compared in one frame.
const SLICE: f64 = 1.25;
/// Ratio of chirp masses beyond which binaries do not match.
const APART: f64 = 1.5;
/// Proposals compared in parallel with the templates found before them.
const BATCH: u64 = 256;
/// Number of latest batches that decide the end: each kind of proposal must have few acceptances in them.
const LAST_BATCHES: usize = 5;
/// Waveforms from which a slice's frame is computed.
const SAMPLES: u64 = 64;

/// Largest distance tested, in units of the distance at which templates that differ in phase only reach the minimal
/// match. With different amplitudes or large phase differences, the match falls more slowly with distance.
const REACH: f64 = 2.5;

/// Options of a template placement.
#[derive(Clone, Debug, PartialEq)]
pub struct PlaceOptions {
    /// Space of binaries.
    pub space: Space,
    /// Required match of a binary with the nearest template, from 0 to 1.
    pub min_match: f64,
    /// Fraction of the proposals that must match at the end, in each slice of the space.
    pub covered: f64,
    /// Lowest frequency used, in Hz.
    pub f_low_hz: f64,
    /// Highest frequency used, in Hz.
    pub f_high_hz: f64,
    /// Seed of the random proposals.
    pub seed: u64,
    /// Limit on the number of templates.
    pub most: usize,
}

impl PlaceOptions {
    /// Options for a match of 0.97 from 20 Hz to 2048 Hz.
    pub fn new(space: Space) -> Self {
        Self {
            space,
            min_match: 0.97,
            covered: 0.97,
            f_low_hz: 20.0,
            f_high_hz: 2048.0,
            seed: 1,
            most: 20_000,
        }
    }

    /// Checks the options.
    ///
    /// # Errors
    /// [`Error::Parameter`] naming the option that is out of range.
    fn check(&self) -> Result<()> {
        self.space.check()?;
        let parts = [
            ("minimal match", self.min_match, (0.5, 0.999)),
            ("covered part of a template space", self.covered, (0.5, 0.999)),
        ];
        for (name, value, (least, most)) in parts {
            if !(value >= least && value <= most) {
                let rule = format!("it must be {least} to {most}");
                return Err(Error::parameter(name, value, rule));
            }
        }
        if !(self.f_low_hz > 0.0 && self.f_low_hz < self.f_high_hz) {
            let rule = format!("it must be above 0 and below {} Hz", self.f_high_hz);
            return Err(Error::parameter("lowest frequency (Hz)", self.f_low_hz, rule));
        }
        Ok(())
    }

    /// Returns slices of the space by chirp mass, ascending.
    fn slices(&self) -> Vec<Space> {
        let Range { low, high } = self.space.chirp_range();
        if low.is_nan() || high.is_nan() || low > high {
            return Vec::new();
        }
        let count = ((high / low).ln() / SLICE.ln()).ceil().max(1.0);
        let edge = |index: f64| low * (high / low).powf(index / count);
        let slice = |index| {
            let index = f64::from(index);
            self.space.slice(Range::new(edge(index), edge(index + 1.0)))
        };
        (0..count as u32).map(slice).collect()
    }

    fn nodes(&self, psd: &PowerSpectrum, cells: usize) -> Result<Nodes> {
        Nodes::new(psd, Range::new(self.f_low_hz, self.f_high_hz), cells)
    }
}

/// Templates of a bank.
#[derive(Clone, Debug, PartialEq)]
pub struct Placed {
    /// Binaries, by ascending chirp mass; masses are rounded to seven digits, spins to four decimals.
    pub binaries: Vec<Binary>,
    /// Number of proposals.
    pub proposals: u64,
}

/// Places templates for noise with a power spectrum, on the threads. `progress` receives the number of templates; an
/// error from it stops the placement.
///
/// Waveforms are IMRPhenomD. The result depends only on the spectrum and the options, not on the threads.
///
/// # Errors
/// [`Error::Parameter`] for options out of range, a space without binaries in the band, or when more than
/// [`PlaceOptions::most`] templates are needed; errors of `progress`.
/// # Source
/// Harry, Allen & Sathyaprakash 2009, Phys. Rev. D 80, 104014 (stochastic placement).
pub fn place(
    options: &PlaceOptions,
    psd: &PowerSpectrum,
    threads: &Threads,
    progress: &mut dyn FnMut(usize) -> Result<()>,
) -> Result<Placed> {
    let _span = trace::span(Work::Compute, "placement");
    options.check()?;
    let nodes = options.nodes(psd, NODES)?;
    let mut placed = Placed { binaries: Vec::new(), proposals: 0 };
    for (space, stream_index) in options.slices().iter().zip(0..) {
        let waves = sample(&nodes, &Draws::by_chirp_times(space, options.seed, 2 * stream_index));
        if waves.is_empty() {
            continue;
        }
        let mut slice = Slice {
            options,
            nodes: &nodes,
            frame: Frame::new(&nodes, &waves),
            draws: [
                Draws::by_chirp_times(space, options.seed, 2 * stream_index + 1),
                Draws::by_masses(space, options.seed, 2 * stream_index + 1),
            ],
            templates: Neighbors::new(options.min_match),
            threads,
        };
        slice.take_up(&placed.binaries, space.chirp_msun.low / APART);
        slice.fill(&mut placed, progress)?;
    }
    if placed.binaries.is_empty() {
        let rule = "no binary lies within all limits and has a wave in the band";
        return Err(Error::parameter("masses and spins of a bank", "none", rule));
    }
    placed.binaries.sort_by(|a, b| a.chirp_mass_msun().total_cmp(&b.chirp_mass_msun()));
    Ok(placed)
}

/// Returns the harmonic mean of spectra, on the bins of the first. For a binary that all detectors receive equally,
/// the network's squared signal-to-noise ratio is that of one detector with this noise, times the number of
/// detectors.
///
/// # Errors
/// [`Error::Parameter`] for an empty list.
pub fn harmonic_mean(spectra: &[PowerSpectrum]) -> Result<PowerSpectrum> {
    let Some(first) = spectra.first() else {
        return Err(Error::parameter("spectra", 0, "there must be 1 at least"));
    };
    let count = spectra.len() as f64;
    let density = |bin: usize| {
        let f_hz = bin as f64 * first.spacing_hz();
        count / spectra.iter().map(|psd| 1.0 / psd.at(f_hz)).sum::<f64>()
    };
    PowerSpectrum::new(first.spacing_hz(), (0..first.densities().len()).map(density).collect())
}

/// Computes the waveforms of random binaries.
fn sample(nodes: &Nodes, draws: &Draws) -> Vec<Wave> {
    let first = draws.point(0).map(|_| 0..SAMPLES);
    let binaries = first.into_iter().flatten().filter_map(|number| draws.point(number));
    binaries.filter_map(|binary| nodes.wave(&binary).ok()).collect()
}

/// Slice of the space during placement.
struct Slice<'a> {
    options: &'a PlaceOptions,
    nodes: &'a Nodes,
    frame: Frame,
    /// Proposals alternate between two densities, because each alone leaves gaps: density 0 (uniform in chirp times)
    /// in the corners of the mass ranges, density 1 (uniform in masses) at the light end of the space.
    draws: [Draws; 2],
    templates: Neighbors,
    threads: &'a Threads,
}

/// Number of a proposal, and its binary and shape if no template found before its batch matches.
type Proposal = (u64, Option<(Binary, Shape)>);

impl Slice<'_> {
    fn shape(&self, binary: &Binary) -> Option<Shape> {
        self.nodes.wave(binary).ok().map(|wave| self.frame.shape(&wave))
    }

    /// Adds templates of earlier slices that may match.
    fn take_up(&mut self, binaries: &[Binary], least_chirp_msun: f64) {
        let near = |binary: &&Binary| binary.chirp_mass_msun() >= least_chirp_msun;
        let mut rows: Vec<(Binary, Option<Shape>)> =
            binaries.iter().filter(near).map(|binary| (*binary, None)).collect();
        let mut scratch = vec![(); self.threads.count()];
        self.threads.for_each_chunk(&mut scratch, &mut rows, 16, |(), _, rows| {
            rows.iter_mut().for_each(|(binary, shape)| *shape = self.shape(binary));
        });
        rows.into_iter()
            .filter_map(|(_, shape)| shape)
            .for_each(|shape| self.templates.push(shape));
    }

    /// Proposes binaries until the latest batches had few acceptances.
    fn fill(
        &mut self,
        placed: &mut Placed,
        progress: &mut dyn FnMut(usize) -> Result<()>,
    ) -> Result<()> {
        let least = self.options.min_match as f32;
        let last = LAST_BATCHES as f64 * BATCH as f64 / self.draws.len() as f64;
        let most = (1.0 - self.options.covered) * last;
        let mut accepted: Vec<[usize; 2]> = Vec::new();
        let mut scratch = vec![(); self.threads.count()];
        let mut batch: Vec<Proposal> = Vec::new();
        loop {
            let first = accepted.len() as u64 * BATCH;
            batch.clear();
            batch.extend((first..first + BATCH).map(|number| (number, None)));
            self.threads.for_each_chunk(&mut scratch, &mut batch, 4, |(), _, proposals| {
                for (number, left) in proposals {
                    let binary = self.draws[*number as usize % 2].point(*number / 2);
                    let found = binary.and_then(|binary| Some((binary, self.shape(&binary)?)));
                    *left =
                        found.filter(|(_, one)| !self.templates.has(&self.frame, one, least, 0));
                }
            });
            let before = self.templates.len();
            let mut kinds = [0; 2];
            for (number, left) in &batch {
                let Some((binary, shape)) = *left else { continue };
                if !self.templates.has(&self.frame, &shape, least, before) {
                    self.templates.push(shape);
                    placed.binaries.push(binary);
                    kinds[*number as usize % 2] += 1;
                }
            }
            if placed.binaries.len() > self.options.most {
                let chirp_msun = placed.binaries.last().map_or(0.0, Binary::chirp_mass_msun);
                let rule = format!(
                    "more are needed, those of chirp masses above {chirp_msun:.2} not counted; allow more, \
                     or ask for a smaller space, a lower match or a higher lowest frequency"
                );
                return Err(Error::parameter("most templates", self.options.most, rule));
            }
            placed.proposals += BATCH;
            accepted.push(kinds);
            progress(placed.binaries.len())?;
            let last = &accepted[accepted.len().saturating_sub(LAST_BATCHES)..];
            let is_low =
                |kind: usize| last.iter().map(|kinds| kinds[kind]).sum::<usize>() as f64 <= most;
            if accepted.len() >= LAST_BATCHES && is_low(0) && is_low(1) {
                return Ok(());
            }
        }
    }
}

/// Templates in one frame, indexed by coordinates.
#[derive(Clone, Debug)]
struct Neighbors {
    shapes: Vec<Shape>,
    /// Templates by the cell of their first coordinate.
    cells: HashMap<i64, Vec<u32>>,
    /// Distance below which templates are tested first, and distance above which none matches.
    near: f64,
    reach: f64,
}

impl Neighbors {
    /// Creates an empty set for a minimal match.
    fn new(min_match: f64) -> Self {
        let near = (2.0 * (1.0 - min_match)).sqrt();
        Self { shapes: Vec::new(), cells: HashMap::new(), near, reach: REACH * near }
    }

    /// Returns the number of templates.
    fn len(&self) -> usize {
        self.shapes.len()
    }

    /// Adds a template.
    fn push(&mut self, shape: Shape) {
        let cell = self.cell(&shape);
        self.cells.entry(cell).or_default().push(self.shapes.len() as u32);
        self.shapes.push(shape);
    }

    fn cell(&self, shape: &Shape) -> i64 {
        (shape.coordinates[0] / self.reach).floor() as i64
    }

    /// Whether a template numbered `first` or higher has at least the match `least` with a waveform. Tests near ones
    /// first.
    fn has(&self, frame: &Frame, shape: &Shape, least: f32, first: usize) -> bool {
        let cell = self.cell(shape);
        let ranges = [(0.0, self.near), (self.near, self.reach)].map(|(a, b)| a * a..b * b);
        ranges.iter().any(|range| {
            let cells = [cell, cell - 1, cell + 1];
            let mut near = cells.iter().filter_map(|cell| self.cells.get(cell)).flatten();
            near.any(|index| {
                let other = &self.shapes[*index as usize];
                *index as usize >= first
                    && range.contains(&distance_squared(shape, other))
                    && frame.overlap(shape, other) >= least
            })
        })
    }
}

fn distance_squared(one: &Shape, other: &Shape) -> f64 {
    let pairs = one.coordinates.iter().zip(&other.coordinates);
    pairs.map(|(a, b)| (a - b) * (a - b)).sum()
}

/// Number of frequencies in the match integrals.
const CELLS: usize = 4096;
/// Number of templates, best at a few frequencies, whose match is integrated over all frequencies.
const CANDIDATES: usize = 4;
/// Steps of Newton's method for the time shift, and the longest step in units of the inverse bandwidth.
const STEPS: usize = 12;
const MAX_STEP: f64 = 0.7;

/// Matches of random binaries with the best template of a bank.
#[derive(Clone, Debug, PartialEq)]
pub struct Coverage {
    /// Binaries and their matches.
    pub matches: Vec<(Binary, f64)>,
    /// Required minimal match.
    pub min_match: f64,
}

impl Coverage {
    /// Returns the number of binaries whose match is at least the minimal match.
    pub fn above(&self) -> usize {
        self.matches.iter().filter(|(_, found)| *found >= self.min_match).count()
    }

    /// Returns the binary with the lowest match.
    pub fn worst(&self) -> Option<(Binary, f64)> {
        self.matches.iter().copied().min_by(|a, b| a.1.total_cmp(&b.1))
    }
}

/// Computes the matches of `points` binaries, uniform in component masses and spins, with their best template.
///
/// # Errors
/// As [`super::place`].
/// # Numerics
/// Templates are ranked by overlaps at 64 frequencies, which are lower bounds of their matches. The result is the
/// largest match of the best 4, integrated over 4096 frequencies and maximized over time and phase.
pub fn coverage(
    templates: &[Binary],
    options: &PlaceOptions,
    psd: &PowerSpectrum,
    points: usize,
    threads: &Threads,
) -> Result<Coverage> {
    let _span = trace::span(Work::Compute, "coverage");
    options.check()?;
    let (coarse, fine) = (options.nodes(psd, NODES)?, options.nodes(psd, CELLS)?);
    // Key that no slice of the placement uses.
    let draws = Draws::by_masses(&options.space, options.seed, u64::MAX >> 1);
    let found = |point| draws.point(point).filter(|binary| coarse.wave(binary).is_ok());
    let mut rows: Vec<(Binary, f64)> =
        (0..points as u64).filter_map(|point| Some((found(point)?, 0.0))).collect();
    if rows.is_empty() {
        let rule = "no binary lies within all limits and has a wave in the band";
        return Err(Error::parameter("masses and spins of a bank", "none", rule));
    }
    for (space, stream_index) in options.slices().iter().zip(0..) {
        let waves = sample(&coarse, &Draws::by_chirp_times(space, options.seed, 2 * stream_index));
        let Range { low, high } = space.chirp_msun;
        let mut near: Vec<&mut (Binary, f64)> = rows
            .iter_mut()
            .filter(|(binary, _)| (low..=high).contains(&binary.chirp_mass_msun()))
            .collect();
        if waves.is_empty() || near.is_empty() {
            continue;
        }
        let near_msun = low / APART..=high * APART;
        let slice = Nearby::new(templates, near_msun, &coarse, &fine, &waves);
        let mut scratch = vec![(); threads.count()];
        threads.for_each_chunk(&mut scratch, &mut near, 1, |(), _, rows| {
            rows.iter_mut().for_each(|row| row.1 = slice.best(&row.0));
        });
    }
    Ok(Coverage { matches: rows, min_match: options.min_match })
}

/// Templates near a slice of the space.
struct Nearby<'a> {
    coarse: &'a Nodes,
    fine: &'a Nodes,
    frame: Frame,
    templates: Vec<Candidate>,
}

/// Template near a slice of the space.
struct Candidate {
    binary: Binary,
    shape: Shape,
    /// Its waveform at all frequencies, computed for the first binary that it is among the best for; `None` without one.
    wave: OnceLock<Option<Wave>>,
}

impl<'a> Nearby<'a> {
    fn new(
        templates: &[Binary],
        chirp_msun: std::ops::RangeInclusive<f64>,
        coarse: &'a Nodes,
        fine: &'a Nodes,
        waves: &[Wave],
    ) -> Self {
        let frame = Frame::new(coarse, waves);
        let candidate = |binary: &Binary| {
            let shape = frame.shape(&coarse.wave(binary).ok()?);
            Some(Candidate { binary: *binary, shape, wave: OnceLock::new() })
        };
        let near = |binary: &&Binary| chirp_msun.contains(&binary.chirp_mass_msun());
        let templates = templates.iter().filter(near).filter_map(candidate).collect();
        Self { coarse, fine, frame, templates }
    }

    /// Returns the match with the best template.
    fn best(&self, binary: &Binary) -> f64 {
        let Ok(wave) = self.coarse.wave(binary) else { return 0.0 };
        let shape = self.frame.shape(&wave);
        let overlap =
            |(index, other): (usize, &Candidate)| (self.frame.overlap(&shape, &other.shape), index);
        let mut order: Vec<(f32, usize)> = self.templates.iter().enumerate().map(overlap).collect();
        order.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        let Ok(one) = self.fine.wave(binary) else { return 0.0 };
        let found = |(_, index): &(f32, usize)| {
            let other = &self.templates[*index];
            let wave = other.wave.get_or_init(|| self.fine.wave(&other.binary).ok());
            wave.as_ref().map_or(0.0, |other| exact(self.fine, &one, other))
        };
        order.iter().take(CANDIDATES).map(found).fold(0.0, f64::max)
    }
}

/// Returns the match of two waveforms, maximized over time and phase, in double precision.
fn exact(nodes: &Nodes, one: &Wave, other: &Wave) -> f64 {
    let weights: Vec<f64> =
        one.amplitudes.iter().zip(&other.amplitudes).map(|(a, b)| a * b).collect();
    let total: f64 = weights.iter().sum();
    let mean = |of: &dyn Fn(usize) -> f64| -> f64 {
        weights.iter().enumerate().map(|(node, weight)| weight * of(node)).sum::<f64>() / total
    };
    let middle = mean(&|node| nodes.f_hz[node]);
    let deviation = mean(&|node| (nodes.f_hz[node] - middle).powi(2)).sqrt();
    let offset = |node: usize| (nodes.f_hz[node] - middle) / deviation;
    let phase = |node: usize| one.phases[node] - other.phases[node];
    // Start the search for the time shift at the linear fit of the phase difference.
    let mut shift = -mean(&|node| phase(node) * offset(node));
    let mut best = 0.0_f64;
    for _ in 0..STEPS {
        let (mut re, mut im) = ([0.0; 3], [0.0; 3]);
        for (node, weight) in weights.iter().enumerate() {
            let offset = offset(node);
            let (sin, cos) = (phase(node) + shift * offset).sin_cos();
            for (power, factor) in [1.0, offset, offset * offset].into_iter().enumerate() {
                re[power] += weight * cos * factor;
                im[power] += weight * sin * factor;
            }
        }
        best = best.max(re[0].hypot(im[0]));
        let slope = -(re[0] * im[1] - im[0] * re[1]);
        let curvature = re[1].powi(2) + im[1].powi(2) - (re[0] * re[2] + im[0] * im[2]);
        if curvature >= 0.0 {
            break;
        }
        let step = -slope / curvature;
        shift += step.clamp(-MAX_STEP, MAX_STEP);
        if step.abs() < 1e-6 {
            break;
        }
    }
    best
}
