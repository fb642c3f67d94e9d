//! Averaged correlation that the plots show, and its axes and scales.

use std::ops::Range;

use num_complex::Complex;
use plotters::style::RGBColor;

use crate::plots::colour::{BLUE, GREY, RED};
use crate::plots::frame::Axis;
use crate::plots::pen::Pen;
use crate::plots::text::{Anchor, Style};

/// Positions along a frequency axis at which planes look up channels: more than a plot is wide.
pub(crate) const PLACES: usize = 4096;

/// Correlation averaged for plots. Products are XX, or XX and YY.
#[derive(Clone, Debug, Default)]
pub(crate) struct Correlation {
    /// File name of the visibilities.
    pub(crate) file: String,
    /// Source, array and band, if known.
    pub(crate) target: String,
    /// Duration of the correlation.
    pub(crate) duration_s: f64,
    /// Channel centres, rising.
    pub(crate) frequencies_mhz: Vec<f64>,
    /// Names of the products.
    pub(crate) products: Vec<String>,
    pub(crate) antennas: Vec<Antenna>,
    /// Powers; axes product, antenna, channel; NaN where nothing is valid.
    pub(crate) powers: Vec<f32>,
    /// Number of waterfall columns, into which channels are grouped in order.
    pub(crate) columns: usize,
    /// Baselines to show.
    pub(crate) baselines: Vec<Fringes>,
}

/// Antenna on the map.
#[derive(Clone, Debug, Default)]
pub(crate) struct Antenna {
    pub(crate) name: String,
    pub(crate) east_m: f64,
    pub(crate) north_m: f64,
}

/// Data of one baseline.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fringes {
    /// First antenna, whose voltage is not conjugated, and second antenna.
    pub(crate) antennas: (usize, usize),
    pub(crate) length_m: f64,
    /// Mean visibility over all times; axes product, channel; NaN where nothing is valid.
    pub(crate) spectrum: Vec<Complex<f32>>,
    /// Time average of the fringe amplitude against delay; axes product, delay; empty if the channels are not evenly
    /// spaced.
    pub(crate) lags: Vec<f32>,
    /// First delay and step; positive if the second antenna is later.
    pub(crate) delays_ns: (f64, f64),
    /// Visibilities of the first product; axes time, column; NaN where nothing is valid.
    pub(crate) waterfall: Vec<Complex<f32>>,
}

impl Correlation {
    pub(crate) fn channels(&self) -> usize {
        self.frequencies_mhz.len()
    }

    /// Returns the axis from the lower edge of the first channel to the upper edge of the last.
    pub(crate) fn frequency_axis(&self) -> Axis {
        let half = 0.5 * self.spacing_mhz();
        match (self.frequencies_mhz.first(), self.frequencies_mhz.last()) {
            (Some(first), Some(last)) => Axis::new(first - half, last + half),
            _ => Axis::new(0.0, 1.0),
        }
    }

    /// Returns the smallest channel spacing; a thousandth of the frequency for a single channel.
    pub(crate) fn spacing_mhz(&self) -> f64 {
        let steps = self.frequencies_mhz.windows(2).map(|pair| pair[1] - pair[0]);
        let least = steps.filter(|step| *step > 0.0).fold(f64::INFINITY, f64::min);
        let lone = || self.frequencies_mhz.first().map_or(1.0, |f| 1e-3 * f.abs());
        if least.is_finite() { least } else { lone() }
    }

    /// Returns the ranges of contiguous channels.
    pub(crate) fn runs(&self) -> Vec<Range<usize>> {
        let (farthest, frequencies) = (1.5 * self.spacing_mhz(), &self.frequencies_mhz);
        let mut runs = Vec::new();
        let mut start = 0;
        for channel in 1..=self.channels() {
            let ends = channel == self.channels();
            if ends || frequencies[channel] - frequencies[channel - 1] > farthest {
                runs.push(start..channel);
                start = channel;
            }
        }
        runs
    }

    /// Returns lines through means of `values` over groups of channels, about `most` points in total, broken where
    /// values are missing.
    pub(crate) fn lines(&self, values: &[f32], most: usize) -> Vec<Vec<(f64, f64)>> {
        let group = self.channels().div_ceil(most).max(1);
        let mut lines = Vec::new();
        for run in self.runs() {
            let mut line = Vec::new();
            for start in run.clone().step_by(group) {
                let end = (start + group).min(run.end);
                let known = values[start..end].iter().filter(|value| value.is_finite());
                let (sum, count) = known.fold((0f64, 0), |(s, n), v| (s + f64::from(*v), n + 1));
                if count == 0 {
                    lines.push(std::mem::take(&mut line));
                    continue;
                }
                let place = self.frequencies_mhz[start..end].iter().sum::<f64>();
                line.push((place / (end - start) as f64, sum / f64::from(count)));
            }
            lines.push(line);
        }
        lines.retain(|line| !line.is_empty());
        lines
    }

    /// Returns the channel at a frequency, if there is one.
    pub(crate) fn channel_at(&self, mhz: f64) -> Option<usize> {
        let above = self.frequencies_mhz.partition_point(|f| *f < mhz);
        let near = [above.checked_sub(1), (above < self.channels()).then_some(above)];
        let off = |channel: usize| (self.frequencies_mhz[channel] - mhz).abs();
        let best = near.into_iter().flatten().min_by(|a, b| off(*a).total_cmp(&off(*b)))?;
        (off(best) <= 0.55 * self.spacing_mhz()).then_some(best)
    }

    /// Returns the channels at evenly spaced positions of the frequency axis.
    pub(crate) fn channels_along(&self) -> Vec<Option<usize>> {
        let axis = self.frequency_axis();
        let at = |place: usize| (place as f64 + 0.5) / PLACES as f64;
        (0..PLACES)
            .map(|place| self.channel_at(axis.from + at(place) * (axis.to - axis.from)))
            .collect()
    }

    /// Returns the title of a baseline.
    pub(crate) fn title(&self, fringes: &Fringes) -> String {
        let name = |antenna: usize| self.antennas.get(antenna).map_or("", |a| a.name.as_str());
        let (first, second) = fringes.antennas;
        format!("{} – {}, {}", name(first), name(second), length(fringes.length_m))
    }

    /// Draws the first lines of a page.
    pub(crate) fn header(&self, pen: &Pen<'_>, right: f64, what: &str) {
        pen.text(40.0, 46.0, &self.file, Style::new(34.0));
        let style = Style::new(24.0).colour(GREY);
        pen.text(right, 46.0, what, style.anchor(Anchor::End));
        pen.text(40.0, 84.0, &self.target, style);
    }

    /// Draws the legend of the products' colours at height `y`, above a panel that ends at `right`.
    pub(crate) fn product_key(&self, pen: &Pen<'_>, right: f64, y: f64) {
        let mut x = right;
        for (index, name) in self.products.iter().enumerate().rev() {
            let style = Style::new(22.0).colour(product_colour(index)).anchor(Anchor::End);
            pen.text(x, y, name, style);
            x -= f64::from(crate::plots::text::length(name, 22.0)) + 18.0;
        }
    }
}

pub(crate) fn product_colour(index: usize) -> RGBColor {
    if index == 0 { BLUE } else { RED }
}

/// Returns the power of 1000 that makes visibilities up to `most` readable, and its text for labels with the unit:
/// the square of a recorded value.
pub(crate) fn scale(most: f64) -> (f64, String) {
    if !(most > 0.0 && most.is_finite()) || (0.1..10_000.0).contains(&most) {
        return (1.0, " (counts²)".to_owned());
    }
    let exponent = ((most.log10() / 3.0).floor() * 3.0) as i32;
    let digit = |letter: char| match letter {
        '-' => '⁻',
        '1' => '¹',
        '2' => '²',
        '3' => '³',
        '0' => '⁰',
        other => char::from_u32('⁴' as u32 + (other as u32 - '4' as u32)).unwrap_or(other),
    };
    let raised: String = exponent.to_string().chars().map(digit).collect();
    (10f64.powi(exponent), format!(" (10{raised} counts²)"))
}

/// Formats a distance with a suitable unit.
pub(crate) fn length(metres: f64) -> String {
    if metres >= 10_000.0 {
        format!("{} km", crate::plots::short(metres / 1e3, 5))
    } else {
        format!("{} m", crate::plots::short(metres, 4))
    }
}
