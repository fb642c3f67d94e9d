//! Coverage of a template space by a bank, estimated with random binaries.

use super::overlap::{Frame, NODES, Nodes, Shape, Wave};
use super::space::Draws;
use super::{APART, PlaceOptions, Range, sample};
use crate::backend::threads::Threads;
use crate::error::{Error, Result};
use crate::math::PowerSpectrum;
use crate::strain::Binary;

/// Frequencies in the match integrals.
const CELLS: usize = 4096;
/// Templates whose match is integrated over all frequencies: the best at a few frequencies.
const CANDIDATES: usize = 4;
/// Steps of Newton's method for the time shift, and the longest step in units of the inverse bandwidth.
const STEPS: usize = 12;
const LONGEST_STEP: f64 = 0.7;

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
        let (low, high) = space.chirp_msun;
        let mut near: Vec<&mut (Binary, f64)> = rows
            .iter_mut()
            .filter(|(binary, _)| (low..=high).contains(&binary.chirp_mass_msun()))
            .collect();
        if waves.is_empty() || near.is_empty() {
            continue;
        }
        let slice = Slice::new((templates, (low / APART, high * APART)), &coarse, &fine, &waves);
        let mut scratch = vec![(); threads.count()];
        threads.for_each_chunk(&mut scratch, &mut near, 1, |(), _, rows| {
            rows.iter_mut().for_each(|row| row.1 = slice.best(&row.0));
        });
    }
    Ok(Coverage { matches: rows, min_match: options.min_match })
}

/// Templates near a slice of the space.
struct Slice<'a> {
    coarse: &'a Nodes,
    fine: &'a Nodes,
    frame: Frame,
    templates: Vec<(Binary, Shape)>,
}

impl<'a> Slice<'a> {
    fn new(
        (templates, (low, high)): (&[Binary], Range),
        coarse: &'a Nodes,
        fine: &'a Nodes,
        waves: &[Wave],
    ) -> Self {
        let frame = Frame::new(coarse, waves);
        let shape = |binary: &Binary| Some((*binary, frame.shape(&coarse.wave(binary).ok()?)));
        let near = |binary: &&Binary| (low..=high).contains(&binary.chirp_mass_msun());
        let templates = templates.iter().filter(near).filter_map(shape).collect();
        Self { coarse, fine, frame, templates }
    }

    /// Returns the match with the best template.
    fn best(&self, binary: &Binary) -> f64 {
        let Ok(wave) = self.coarse.wave(binary) else { return 0.0 };
        let shape = self.frame.shape(&wave);
        let overlap = |(index, (_, other)): (usize, &(Binary, Shape))| {
            (self.frame.overlap(&shape, other), index)
        };
        let mut order: Vec<(f32, usize)> = self.templates.iter().enumerate().map(overlap).collect();
        order.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        let exact = |(_, index): &(f32, usize)| exact(self.fine, binary, &self.templates[*index].0);
        order.iter().take(CANDIDATES).map(exact).fold(0.0, f64::max)
    }
}

/// Returns the match of two binaries' waveforms, maximized over time and phase, in double precision.
pub(super) fn exact(nodes: &Nodes, one: &Binary, other: &Binary) -> f64 {
    let (Ok(one), Ok(other)) = (nodes.wave(one), nodes.wave(other)) else { return 0.0 };
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
        shift += step.clamp(-LONGEST_STEP, LONGEST_STEP);
        if step.abs() < 1e-6 {
            break;
        }
    }
    best
}
