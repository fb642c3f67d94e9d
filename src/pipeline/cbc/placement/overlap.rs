//! Waveforms sampled at a few frequencies, and their matches.
//!
//! Apart from a time shift and a constant phase, the phases of two matching binaries differ by little and slowly with
//! frequency. With the best linear fit in frequency removed from each phase, the overlap integral therefore needs few
//! frequencies, whatever the waveforms' length.

use super::space::Range;
use crate::error::{Error, Result};
use crate::math::PowerSpectrum;
use crate::strain::Binary;
use crate::waveform::PhenomD;

/// Frequencies at which waveforms are compared; a multiple of [`LANES`].
pub(super) const NODES: usize = 64;
/// Independent partial sums, so that the compiler can vectorize them.
const LANES: usize = 8;
/// Coordinates that preselect waveforms that may match.
pub(super) const COORDINATES: usize = 3;
/// Rounds of the power iteration that computes the axes.
const ROUNDS: usize = 40;
/// Largest number of Newton steps for the time of the best match.
const STEPS: usize = 4;
/// Time shift, in units of the inverse bandwidth, below which the second-order series gives the match.
const NEAR: f32 = 0.15;
/// Longest Newton step in that unit.
const MAX_STEP: f32 = 0.7;
/// Overlap below which the iteration stops.
const MIN_REFINED: f32 = 0.7;

/// Frequencies with the weights of an integral over the inverse noise spectrum.
#[derive(Clone, Debug)]
pub(super) struct Nodes {
    pub(super) f_hz: Vec<f64>,
    /// `integral of (f / f_k)^(-7/3) / S(f) df` over each cell, for waveforms whose power falls as an inspiral's.
    weights: Vec<f64>,
}

impl Nodes {
    /// Builds `cells` cells of equal logarithmic width: [`NODES`] for placement, other numbers for checks.
    ///
    /// # Errors
    /// [`Error::Parameter`] for a band in which the spectrum leaves no sensitivity.
    pub(super) fn new(psd: &PowerSpectrum, band_hz: Range, cells: usize) -> Result<Self> {
        let (low, high) = (band_hz.low, band_hz.high.min(psd.highest_hz()));
        let ratio = (high / low).powf(1.0 / cells as f64);
        let mut nodes = Self { f_hz: Vec::new(), weights: Vec::new() };
        for cell in 0..cells {
            let start = low * ratio.powi(cell as i32);
            let width = start * (ratio - 1.0);
            let steps = (2.0 * width / psd.spacing_hz()).ceil().clamp(4.0, 1e5) as usize;
            let step = width / steps as f64;
            let (mut sum, mut moment) = (0.0, 0.0);
            for index in 0..steps {
                let f = start + (index as f64 + 0.5) * step;
                let weight = step * f.powf(-7.0 / 3.0) / psd.at(f);
                sum += weight;
                moment += weight * f;
            }
            let f = if sum > 0.0 { moment / sum } else { start + 0.5 * width };
            nodes.f_hz.push(f);
            nodes.weights.push(sum * f.powf(7.0 / 3.0));
        }
        if nodes.weights.iter().all(|weight| *weight == 0.0) || low.total_cmp(&high).is_ge() {
            let rule = "the noise's spectrum leaves no band for templates";
            return Err(Error::parameter("band (Hz)", format!("{low:.1}:{high:.1}"), rule));
        }
        Ok(nodes)
    }

    /// Returns the waveform's phases, and its amplitudes weighted so that their squares sum to 1.
    pub(super) fn wave(&self, binary: &Binary) -> Result<Wave> {
        let model = PhenomD::new(binary)?;
        let mut wave = Wave { amplitudes: Vec::new(), phases: Vec::new() };
        for (f, weight) in self.f_hz.iter().zip(&self.weights) {
            let [amplitude, phase] = model.at(*f);
            wave.amplitudes.push(amplitude * weight.sqrt());
            wave.phases.push(phase);
        }
        let norm = wave.amplitudes.iter().map(|a| a * a).sum::<f64>().sqrt();
        if !(norm > 0.0 && norm.is_finite()) {
            let found = format!("{}+{}", binary.mass1_msun, binary.mass2_msun);
            let rule = format!("its wave has nothing above {:.1} Hz", self.f_hz[0]);
            return Err(Error::parameter("masses (solar masses)", found, rule));
        }
        wave.amplitudes.iter_mut().for_each(|a| *a /= norm);
        Ok(wave)
    }
}

/// Waveform at the nodes' frequencies.
#[derive(Clone, Debug)]
pub(super) struct Wave {
    pub(super) amplitudes: Vec<f64>,
    pub(super) phases: Vec<f64>,
}

/// Coordinate frame for the waveforms of a part of the space.
#[derive(Clone, Debug)]
pub(super) struct Frame {
    /// Mean power of the sampled waveforms at each node; sums to 1.
    power: Vec<f64>,
    /// Frequencies minus their mean under that power, divided by their standard deviation.
    offsets: Vec<f64>,
    offsets_f32: [f32; NODES],
    /// Weights that map phases to coordinates.
    axes: [Vec<f64>; COORDINATES],
}

/// Waveform in a frame: a unit vector and coordinates.
///
/// For two waveforms that differ in phase only, and by little, the match is `1 - d^2 / 2`, with `d` the distance over
/// all coordinates; the distance over a few coordinates is at most `d`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) coordinates: [f64; COORDINATES],
    re: [f32; NODES],
    im: [f32; NODES],
}

/// Product of two waveforms at each node.
struct Product {
    re: [f32; NODES],
    im: [f32; NODES],
}

impl Frame {
    /// Computes the frame from waveforms sampled in a part of the space.
    pub(super) fn new(nodes: &Nodes, waves: &[Wave]) -> Self {
        let count = waves.len().max(1) as f64;
        let mut power = vec![0.0; nodes.f_hz.len()];
        for wave in waves {
            power.iter_mut().zip(&wave.amplitudes).for_each(|(sum, a)| *sum += a * a / count);
        }
        let mean = |values: &dyn Fn(usize) -> f64| -> f64 {
            power.iter().enumerate().map(|(node, power)| power * values(node)).sum()
        };
        let middle = mean(&|node| nodes.f_hz[node]);
        let deviation = mean(&|node| (nodes.f_hz[node] - middle).powi(2)).sqrt();
        let offsets: Vec<f64> = nodes.f_hz.iter().map(|f| (f - middle) / deviation).collect();
        let mut offsets_f32 = [0.0; NODES];
        offsets_f32.iter_mut().zip(&offsets).for_each(|(short, long)| *short = *long as f32);
        let mut frame = Self { power, offsets, offsets_f32, axes: Default::default() };
        frame.axes = frame.principal_axes(waves);
        frame
    }

    /// Subtracts the mean and the best linear fit in frequency from a phase.
    fn straighten(&self, phases: &[f64]) -> Vec<f64> {
        let (mut mean, mut slope) = (0.0, 0.0);
        for ((phase, power), offset) in phases.iter().zip(&self.power).zip(&self.offsets) {
            mean += power * phase;
            slope += power * phase * offset;
        }
        let line = self.offsets.iter().map(|offset| mean + slope * offset);
        phases.iter().zip(line).map(|(phase, line)| phase - line).collect()
    }

    /// Computes the directions of largest phase variation by power iteration.
    fn principal_axes(&self, waves: &[Wave]) -> [Vec<f64>; COORDINATES] {
        let roots: Vec<f64> = self.power.iter().map(|power| power.sqrt()).collect();
        let weighted = |wave: &Wave| -> Vec<f64> {
            self.straighten(&wave.phases)
                .iter()
                .zip(&roots)
                .map(|(phase, root)| phase * root)
                .collect()
        };
        let mut points: Vec<Vec<f64>> = waves.iter().map(weighted).collect();
        for node in 0..roots.len() {
            let mean = points.iter().map(|point| point[node]).sum::<f64>() / points.len() as f64;
            points.iter_mut().for_each(|point| point[node] -= mean);
        }
        std::array::from_fn(|_| {
            let start = points.iter().max_by(|a, b| dot(a, a).total_cmp(&dot(b, b)));
            let mut axis = start.cloned().unwrap_or_default();
            for _ in 0..ROUNDS {
                let mut next = vec![0.0; axis.len()];
                for point in &points {
                    let part = dot(point, &axis);
                    next.iter_mut().zip(point).for_each(|(sum, value)| *sum += part * value);
                }
                let norm = dot(&next, &next).sqrt();
                if norm <= f64::MIN_POSITIVE {
                    break;
                }
                axis = next.iter().map(|value| value / norm).collect();
            }
            if dot(&axis, &axis) < 0.5 {
                return vec![0.0; roots.len()];
            }
            for point in &mut points {
                let part = dot(point, &axis);
                point.iter_mut().zip(&axis).for_each(|(value, axis)| *value -= part * axis);
            }
            axis.iter().zip(&roots).map(|(value, root)| value * root).collect()
        })
    }

    /// Converts a waveform to this frame.
    pub(super) fn shape(&self, wave: &Wave) -> Shape {
        let phases = self.straighten(&wave.phases);
        let mut shape = Shape {
            coordinates: std::array::from_fn(|axis| dot(&self.axes[axis], &phases)),
            re: [0.0; NODES],
            im: [0.0; NODES],
        };
        for (node, (phase, amplitude)) in phases.iter().zip(&wave.amplitudes).enumerate() {
            let (sin, cos) = phase.sin_cos();
            shape.re[node] = (amplitude * cos) as f32;
            shape.im[node] = (amplitude * sin) as f32;
        }
        shape
    }

    /// Returns the match of two waveforms, maximized over phase and time, from 0 to 1; a lower bound if their best
    /// times are far apart.
    ///
    /// # Numerics
    /// Single precision; for matches above 0.9 within 2e-4 of the integral over all frequencies.
    pub(super) fn overlap(&self, one: &Shape, other: &Shape) -> f32 {
        let mut product = product(one, other);
        let mut best = 0.0_f32;
        for step in 0..STEPS {
            let moments = self.moments(&product);
            let [[re, im], [re1, im1], [re2, im2]] = moments;
            let here = re.hypot(im);
            best = best.max(here);
            let slope = -(re * im1 - im * re1);
            let curvature = re1 * re1 + im1 * im1 - (re * re2 + im * im2);
            if curvature >= 0.0 {
                break;
            }
            let shift = -slope / curvature;
            if shift.abs() <= NEAR {
                let half = 0.5 * shift * shift;
                let re = re - shift * im1 - half * re2;
                let im = im + shift * re1 - half * im2;
                return best.max(re.hypot(im).min(1.0));
            }
            if step + 1 == STEPS || here < MIN_REFINED && step > 0 {
                break;
            }
            self.rotate(&mut product, shift.clamp(-MAX_STEP, MAX_STEP));
        }
        best
    }

    /// Returns the sums over the nodes of a product times powers 0 to 2 of the offset, real and imaginary.
    fn moments(&self, product: &Product) -> [[f32; 2]; 3] {
        let Product { re, im } = product;
        let mut sums = [[[0.0_f32; LANES]; 2]; 3];
        for first in (0..NODES).step_by(LANES) {
            for lane in 0..LANES {
                let offset = self.offsets_f32[first + lane];
                let (mut re, mut im) = (re[first + lane], im[first + lane]);
                for [sum_re, sum_im] in &mut sums {
                    sum_re[lane] += re;
                    sum_im[lane] += im;
                    re *= offset;
                    im *= offset;
                }
            }
        }
        sums.map(|pair| pair.map(|lanes| lanes.iter().sum()))
    }

    /// Applies a time shift to a product.
    fn rotate(&self, product: &mut Product, shift: f32) {
        let Product { re, im } = product;
        for node in 0..NODES {
            let (sin, cos) = (shift * self.offsets_f32[node]).sin_cos();
            let (a, b) = (re[node], im[node]);
            re[node] = a * cos - b * sin;
            im[node] = a * sin + b * cos;
        }
    }
}

/// Returns one waveform times the conjugate of another.
fn product(one: &Shape, other: &Shape) -> Product {
    let mut product = Product { re: [0.0; NODES], im: [0.0; NODES] };
    for node in 0..NODES {
        let (a, b, c, d) = (one.re[node], one.im[node], other.re[node], other.im[node]);
        product.re[node] = a * c + b * d;
        product.im[node] = b * c - a * d;
    }
    product
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}
