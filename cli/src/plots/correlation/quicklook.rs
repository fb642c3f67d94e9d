//! Data for the plots of a correlation, accumulated integration by integration.
//!
//! Invariant: memory does not grow with the number of integrations.

use std::sync::Arc;

use num_complex::Complex;
use rustfft::{Fft, FftPlanner};
use sidereal::units::HZ_PER_MHZ;

use super::{Antenna, Correlation, Fringes};

/// Most baselines shown by default, and from a list.
const SHOWN: usize = 3;
const LISTED: usize = 4;
/// Most rows and columns of a waterfall.
const ROWS: usize = 256;
const COLUMNS: usize = 1024;

/// Sizes and labels of a correlation.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shape {
    pub(crate) antennas: Vec<Antenna>,
    /// Heights, for the lengths of baselines.
    pub(crate) up_m: Vec<f64>,
    /// Whether an antenna has any data.
    pub(crate) alive: Vec<bool>,
    /// Pairs i >= j, in order.
    pub(crate) baselines: Vec<(usize, usize)>,
    /// Whether the user listed the baselines.
    pub(crate) listed: bool,
    /// Rising frequencies.
    pub(crate) frequencies_hz: Vec<f64>,
    /// Names of the parallel-hand products.
    pub(crate) products: Vec<String>,
    pub(crate) integrations: usize,
}

/// Accumulators for the plots.
pub(crate) struct Quicklook {
    shape: Shape,
    /// Index of each antenna's autocorrelation among the baselines.
    autos: Vec<Option<usize>>,
    /// Powers; axes product, antenna, channel.
    powers: Vec<f64>,
    /// Counts; axes antenna, channel.
    counts: Vec<f64>,
    fringes: Vec<Sums>,
    lags: Option<Lags>,
    spectrum: Vec<Complex<f32>>,
    integrations: usize,
}

/// Accumulators of one baseline.
struct Sums {
    baseline: usize,
    length_m: f64,
    /// Spectrum; axes product, channel.
    spectrum: Vec<Complex<f64>>,
    counts: Vec<f64>,
    /// Delay spectrum; axes product, delay.
    lags: Vec<f32>,
    /// Sums and counts; axes row, column.
    waterfall: Vec<(Complex<f32>, f32)>,
}

impl Shape {
    /// Returns the name of the baseline of two antennas, `A-B`.
    pub(crate) fn name(&self, i: usize, j: usize) -> String {
        format!("{}-{}", self.antennas[i].name, self.antennas[j].name)
    }

    fn channels(&self) -> usize {
        self.frequencies_hz.len()
    }

    fn columns(&self) -> usize {
        self.channels().clamp(1, COLUMNS)
    }

    fn rows(&self) -> usize {
        self.integrations.clamp(1, ROWS)
    }

    /// Returns the number of polarization pairs: 1 for one polarization, 4 for two.
    fn pairs(&self) -> usize {
        self.products.len() * self.products.len()
    }

    fn length_m(&self, i: usize, j: usize) -> f64 {
        let (a, b) = (&self.antennas[i], &self.antennas[j]);
        let up_m = self.up_m[i] - self.up_m[j];
        (a.east_m - b.east_m).hypot(a.north_m - b.north_m).hypot(up_m)
    }

    /// Returns the baselines to show: the shortest, the middle and the longest, or the first of a list.
    pub(crate) fn shown(&self) -> Vec<usize> {
        let crosses = self.baselines.iter().enumerate().filter(|(_, (i, j))| i != j);
        let alive = crosses.filter(|(_, (i, j))| self.alive[*i] && self.alive[*j]);
        let mut all: Vec<(usize, f64)> =
            alive.map(|(index, (i, j))| (index, self.length_m(*i, *j))).collect();
        if self.listed && all.len() <= LISTED {
            return all.into_iter().map(|(index, _)| index).collect();
        }
        all.sort_by(|a, b| a.1.total_cmp(&b.1));
        let places = match all.len() {
            0..=SHOWN => (0..all.len()).collect(),
            many => vec![0, many / 2, many - 1],
        };
        places.into_iter().map(|place| all[place].0).collect()
    }
}

impl Quicklook {
    /// Makes the accumulators of the baselines that [`Shape::shown`] chooses.
    pub(crate) fn new(shape: Shape) -> Self {
        let shown = shape.shown();
        Self::of(shape, &shown)
    }

    /// Makes the accumulators of these baselines, by their places in the shape.
    pub(crate) fn of(shape: Shape, shown: &[usize]) -> Self {
        let mut autos = vec![None; shape.antennas.len()];
        for (index, (i, _)) in shape.baselines.iter().enumerate().filter(|(_, (i, j))| i == j) {
            autos[*i] = Some(index);
        }
        let lags = Lags::new(&shape.frequencies_hz);
        let delays = lags.as_ref().map_or(0, Lags::delays);
        let (channels, products) = (shape.channels(), shape.products.len());
        let sums = |&baseline: &usize| {
            let (i, j) = shape.baselines[baseline];
            Sums {
                baseline,
                length_m: shape.length_m(i, j),
                spectrum: vec![Complex::default(); products * channels],
                counts: vec![0.0; channels],
                lags: vec![0.0; products * delays],
                waterfall: vec![Default::default(); shape.rows() * shape.columns()],
            }
        };
        Self {
            fringes: shown.iter().map(sums).collect(),
            autos,
            powers: vec![0.0; products * shape.antennas.len() * channels],
            counts: vec![0.0; shape.antennas.len() * channels],
            lags,
            spectrum: vec![Complex::default(); channels],
            shape,
            integrations: 0,
        }
    }

    /// Adds an integration: sums with axes baseline, channel, pair, and counts with axes baseline, channel.
    pub(crate) fn add(&mut self, sums: &[Complex<f64>], counts: &[u64]) {
        let (channels, pairs) = (self.shape.channels(), self.shape.pairs());
        let row = |baseline: usize| {
            let sums = &sums[baseline * channels * pairs..][..channels * pairs];
            (sums, &counts[baseline * channels..][..channels])
        };
        for antenna in 0..self.autos.len() {
            if let Some(baseline) = self.autos[antenna] {
                let (sums, counts) = row(baseline);
                self.add_power(antenna, sums, counts);
            }
        }
        let rows = self.shape.rows();
        let waterfall_row = self.integrations * rows / self.shape.integrations.max(1);
        for index in 0..self.fringes.len() {
            let (sums, counts) = row(self.fringes[index].baseline);
            self.add_fringe(index, sums, counts, waterfall_row.min(rows - 1));
        }
        self.integrations += 1;
    }

    fn add_power(&mut self, antenna: usize, sums: &[Complex<f64>], counts: &[u64]) {
        let (channels, pairs) = (self.shape.channels(), self.shape.pairs());
        let antennas = self.autos.len();
        for product in 0..self.shape.products.len() {
            let powers = &mut self.powers[(product * antennas + antenna) * channels..][..channels];
            let pair = if product == 0 { 0 } else { pairs - 1 };
            for (power, values) in powers.iter_mut().zip(sums.chunks_exact(pairs)) {
                *power += values[pair].re;
            }
        }
        let totals = &mut self.counts[antenna * channels..][..channels];
        totals.iter_mut().zip(counts).for_each(|(total, count)| *total += *count as f64);
    }

    fn add_fringe(&mut self, index: usize, sums: &[Complex<f64>], counts: &[u64], row: usize) {
        let (channels, pairs) = (self.shape.channels(), self.shape.pairs());
        let (columns, products) = (self.shape.columns(), self.shape.products.len());
        let own = &mut self.fringes[index];
        for product in 0..products {
            let pair = if product == 0 { 0 } else { pairs - 1 };
            let values = sums.chunks_exact(pairs).map(|values| values[pair]);
            let totals = &mut own.spectrum[product * channels..][..channels];
            for ((total, value), (mean, count)) in
                totals.iter_mut().zip(values).zip(self.spectrum.iter_mut().zip(counts))
            {
                *total += value;
                *mean = mean_of(value, *count as f64);
            }
            if let Some(lags) = &mut self.lags {
                let delays = lags.delays();
                lags.add(&self.spectrum, &mut own.lags[product * delays..][..delays]);
            }
        }
        own.counts.iter_mut().zip(counts).for_each(|(total, count)| *total += *count as f64);
        let line = &mut own.waterfall[row * columns..][..columns];
        for (channel, count) in counts.iter().enumerate() {
            let cell = &mut line[channel * columns / channels];
            let value = sums[channel * pairs];
            cell.0 += Complex::new(value.re as f32, value.im as f32);
            cell.1 += *count as f32;
        }
    }

    /// Returns the data to plot.
    pub(crate) fn finish(self, file: String, target: String, duration_s: f64) -> Correlation {
        let (channels, antennas) = (self.shape.channels(), self.autos.len());
        let power = |(place, sum): (usize, &f64)| {
            let count = self.counts[place % (antennas * channels)];
            if count > 0.0 { (sum / count) as f32 } else { f32::NAN }
        };
        let integrations = self.integrations.max(1) as f32;
        let delays_ns = self.lags.as_ref().map_or((0.0, 1.0), Lags::delays_ns);
        let fringes = |sums: Sums| {
            let (i, j) = self.shape.baselines[sums.baseline];
            let spectrum = sums.spectrum.iter().enumerate();
            Fringes {
                antennas: (j, i),
                length_m: sums.length_m,
                spectrum: spectrum
                    .map(|(k, sum)| mean_of(*sum, sums.counts[k % channels]))
                    .collect(),
                lags: sums.lags.iter().map(|sum| sum / integrations).collect(),
                delays_ns,
                waterfall: sums
                    .waterfall
                    .iter()
                    .map(|(sum, count)| {
                        let sum = Complex::new(f64::from(sum.re), f64::from(sum.im));
                        mean_of(sum, f64::from(*count))
                    })
                    .collect(),
            }
        };
        Correlation {
            file,
            target,
            duration_s,
            powers: self.powers.iter().enumerate().map(power).collect(),
            baselines: self.fringes.into_iter().map(fringes).collect(),
            frequencies_mhz: self.shape.frequencies_hz.iter().map(|f| f / HZ_PER_MHZ).collect(),
            columns: self.shape.columns(),
            products: self.shape.products,
            antennas: self.shape.antennas,
        }
    }
}

/// Divides a sum by its count; NaN if nothing was valid.
fn mean_of(sum: Complex<f64>, count: f64) -> Complex<f32> {
    if count > 0.0 {
        Complex::new((sum.re / count) as f32, (sum.im / count) as f32)
    } else {
        Complex::new(f32::NAN, f32::NAN)
    }
}

/// Zero-padding factor for a small band, so that fringes are smooth curves.
const PADDING: usize = 4;
/// Largest length of a zero-padded transform.
const PADDED: usize = 1 << 16;
/// Largest number of missing grid channels per existing channel.
const SPARSE: usize = 16;
/// Largest offset of a channel's centre from the grid, as a fraction of the channel's width.
const TOLERANCE: f64 = 0.05;

/// Transform of the spectra of one band.
struct Lags {
    /// Index of each channel on the regular grid.
    places: Vec<usize>,
    step_hz: f64,
    transform: Arc<dyn Fft<f32>>,
    grid: Vec<Complex<f32>>,
    scratch: Vec<Complex<f32>>,
}

impl Lags {
    /// Creates the transform for channels at rising frequencies; `None` unless they lie on a regular grid.
    fn new(frequencies_hz: &[f64]) -> Option<Self> {
        let steps = frequencies_hz.windows(2).map(|pair| pair[1] - pair[0]);
        let step_hz = steps.fold(f64::INFINITY, f64::min);
        if !(step_hz > 0.0 && step_hz.is_finite()) {
            return None;
        }
        let first = *frequencies_hz.first()?;
        let mut places = Vec::with_capacity(frequencies_hz.len());
        for hertz in frequencies_hz {
            let place = (hertz - first) / step_hz;
            let within = place < (SPARSE * frequencies_hz.len()) as f64;
            if !within || (place - place.round()).abs() > TOLERANCE {
                return None;
            }
            places.push(place.round() as usize);
        }
        let least = places.last()? + 1;
        let length = (PADDING * least).min(PADDED.max(least)).next_power_of_two();
        let transform = FftPlanner::new().plan_fft_inverse(length);
        let scratch = vec![Complex::default(); transform.get_inplace_scratch_len()];
        let grid = vec![Complex::default(); length];
        Some(Self { places, step_hz, transform, grid, scratch })
    }

    /// Returns the number of delays.
    fn delays(&self) -> usize {
        self.grid.len()
    }

    /// Returns the first delay and the step, in ns.
    fn delays_ns(&self) -> (f64, f64) {
        let step = 1e9 / (self.step_hz * self.grid.len() as f64);
        (-((self.grid.len() / 2) as f64) * step, step)
    }

    /// Adds the amplitude at each delay, `|mean_f V(f) exp(2 pi i f tau)|` over the valid channels. For `V =
    /// conj(x_1) x_2`, a delay is positive if the second antenna is later.
    fn add(&mut self, spectrum: &[Complex<f32>], sums: &mut [f32]) {
        self.grid.fill(Complex::default());
        let mut valid = 0usize;
        for (place, value) in self.places.iter().zip(spectrum) {
            if value.is_finite() {
                self.grid[*place] = *value;
                valid += 1;
            }
        }
        self.transform.process_with_scratch(&mut self.grid, &mut self.scratch);
        let scale = 1.0 / valid.max(1) as f32;
        // Negative delays are in the second half of the transform and go first here.
        let half = self.grid.len() / 2;
        let shifted = self.grid[half..].iter().chain(&self.grid[..half]);
        sums.iter_mut().zip(shifted).for_each(|(sum, value)| *sum += scale * value.norm());
    }
}

#[cfg(test)]
mod tests {
    use std::f64::consts::TAU;

    use super::*;

    fn shape(channels: usize, integrations: usize) -> Shape {
        let station = |index: usize| Antenna {
            name: format!("a{index}"),
            east_m: 10.0 * (index * index) as f64,
            north_m: 0.0,
        };
        Shape {
            antennas: (0..5).map(station).collect(),
            up_m: vec![0.0; 5],
            alive: vec![true, true, true, true, false],
            baselines: (0..5).flat_map(|i| (0..=i).map(move |j| (i, j))).collect(),
            listed: false,
            frequencies_hz: (0..channels).map(|c| 1e9 + 1e5 * c as f64).collect(),
            products: vec!["XX".to_owned(), "YY".to_owned()],
            integrations,
        }
    }

    #[test]
    fn the_shortest_the_middle_and_the_longest_are_shown() {
        let mut shape = shape(4, 1);
        let pairs = |shape: &Shape| -> Vec<(usize, usize)> {
            shape.shown().into_iter().map(|index| shape.baselines[index]).collect()
        };
        assert_eq!(pairs(&shape), [(1, 0), (3, 2), (3, 0)]);
        shape.baselines = vec![(2, 1), (3, 3), (4, 0), (1, 0)];
        assert_eq!(pairs(&shape), [(1, 0), (2, 1)]);
        shape.listed = true;
        assert_eq!(pairs(&shape), [(2, 1), (1, 0)]);
        shape.baselines.clear();
        assert!(pairs(&shape).is_empty());
    }

    #[test]
    fn means_are_over_what_is_valid() {
        let mut looked = Quicklook::new(shape(8, 2));
        for factor in [1.0, 3.0] {
            let mut counts = vec![100u64; 15 * 8];
            // Channel 5 is never valid, channel 6 only in the second integration.
            for (place, count) in counts.iter_mut().enumerate() {
                *count = match place % 8 {
                    5 => 0,
                    6 if factor < 2.0 => 0,
                    _ => *count,
                };
            }
            let sums = (0..15 * 8 * 4).map(|place| {
                let scale = if place % 4 == 3 { 2.0 } else { 1.0 };
                Complex::new(0.0, scale * factor * counts[place / 4] as f64)
            });
            let sums: Vec<Complex<f64>> = sums.map(|sum| sum + sum.im).collect();
            looked.add(&sums, &counts);
        }
        let about = looked.finish("f".to_owned(), String::new(), 2.0);
        assert_eq!(about.baselines.len(), 3);
        let fringes = &about.baselines[0];
        assert_eq!(fringes.antennas, (0, 1));
        assert_eq!(fringes.spectrum[0], Complex::new(2.0, 2.0));
        assert_eq!(fringes.spectrum[6], Complex::new(3.0, 3.0));
        assert_eq!(fringes.spectrum[8], Complex::new(4.0, 4.0));
        assert!(fringes.spectrum[5].is_nan() && about.powers[5].is_nan());
        assert_eq!((about.powers[0], about.powers[5 * 8]), (2.0, 4.0));
        assert_eq!(fringes.waterfall.len(), 2 * 8);
        assert_eq!(fringes.waterfall[8], Complex::new(3.0, 3.0));
        assert!(fringes.waterfall[6].is_nan() && !fringes.waterfall[14].is_nan());
        let (first, step) = fringes.delays_ns;
        let peak = fringes.lags[..32].iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1)).unwrap();
        assert!((first + peak.0 as f64 * step).abs() < step, "{}", peak.0);
        assert!((peak.1 - 2f32.sqrt() * 2.0).abs() < 0.1, "{}", peak.1);
    }

    #[test]
    fn waterfalls_of_many_integrations_stay_small() {
        let mut looked = Quicklook::new(shape(3000, 1000));
        let (sums, counts) = (vec![Complex::new(1.0, 0.0); 15 * 3000 * 4], vec![1; 15 * 3000]);
        for _ in 0..8 {
            looked.add(&sums, &counts);
        }
        let about = looked.finish(String::new(), String::new(), 1.0);
        assert_eq!(about.columns, 1024);
        let waterfall = &about.baselines[0].waterfall;
        assert_eq!(waterfall.len(), 256 * 1024);
        assert_eq!(waterfall[1024], Complex::new(1.0, 0.0));
        assert!(waterfall[3 * 1024].is_nan());
    }

    #[test]
    fn a_delay_is_found_with_its_sign() {
        let frequencies: Vec<f64> = (0..200).map(|c| 1.4e9 + 50e3 * f64::from(c)).collect();
        let mut lags = Lags::new(&frequencies).unwrap();
        let (first, step) = lags.delays_ns();
        for late_ns in [0.0, 730.0, -4100.0] {
            // The second antenna is later: x_2 = x_1 exp(-2 pi i f tau).
            let fringe = |hz: &f64| {
                let value = Complex::from_polar(3.0, -TAU * hz * late_ns * 1e-9);
                Complex::new(value.re as f32, value.im as f32)
            };
            let mut spectrum: Vec<Complex<f32>> = frequencies.iter().map(fringe).collect();
            spectrum[17] = Complex::new(f32::NAN, 0.0);
            let mut sums = vec![0.0; lags.delays()];
            lags.add(&spectrum, &mut sums);
            let (peak, most) = sums.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1)).unwrap();
            assert!((first + peak as f64 * step - late_ns).abs() <= step, "{late_ns} {peak}");
            assert!((most - 3.0).abs() < 0.1, "{most}");
        }
    }

    #[test]
    fn channels_must_lie_on_a_grid() {
        assert_eq!(Lags::new(&[1e9, 1.1e9, 1.4e9, 1.5e9]).unwrap().delays(), 32);
        assert!(Lags::new(&[1e9, 1.1e9, 1.25e9]).is_none());
        assert!(Lags::new(&[1e9, 1.0001e9, 2e9]).is_none());
        assert!(Lags::new(&[1e9]).is_none());
        assert!(Lags::new(&[]).is_none());
        assert!(Lags::new(&[1e9, 1e9]).is_none());
    }
}
