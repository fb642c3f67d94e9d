//! Quick looks at a correlation: spectra of antennas, fringes of some baselines, the array.

mod fringes;
mod layout;
mod powers;
mod waterfalls;

use std::ops::Range;
use std::path::Path;

use num_complex::Complex;
use plotters::style::RGBColor;
use sidereal::Result;

use super::colour::{BLUE, GREY, RED};
use super::frame::Axis;
use super::pen::Pen;
use super::png::Png;
use super::text::{Anchor, Style};
use crate::provenance::Made;

/// Names of the pictures.
pub(crate) const POWERS: &str = "autocorrelations.png";
pub(crate) const FRINGES: &str = "baselines.png";
pub(crate) const WATERFALLS: &str = "waterfalls.png";
pub(crate) const LAYOUT: &str = "array.png";

/// Places along a frequency axis at which planes look for channels: more than a picture is wide.
const PLACES: usize = 4096;

/// A correlation, averaged for the eye. Products are XX, or XX and YY.
#[derive(Clone, Debug, Default)]
pub(crate) struct Correlation {
    /// Name of the visibilities' file.
    pub(crate) file: String,
    /// Source, array and band, where known.
    pub(crate) target: String,
    /// Length in time.
    pub(crate) duration_s: f64,
    /// Centres of the channels, rising.
    pub(crate) frequencies_mhz: Vec<f64>,
    /// Names of the products.
    pub(crate) products: Vec<String>,
    pub(crate) antennas: Vec<Station>,
    /// Axes product, antenna, channel; not a number where nothing is valid.
    pub(crate) powers: Vec<f32>,
    /// Columns of waterfalls, into which channels are gathered in order.
    pub(crate) columns: usize,
    /// The baselines shown.
    pub(crate) baselines: Vec<Fringes>,
}

/// An antenna on the map.
#[derive(Clone, Debug, Default)]
pub(crate) struct Station {
    pub(crate) name: String,
    pub(crate) east_m: f64,
    pub(crate) north_m: f64,
}

/// One baseline.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fringes {
    /// The first antenna, whose voltage is not conjugated, and the second.
    pub(crate) antennas: (usize, usize),
    pub(crate) length_m: f64,
    /// Mean visibility over all times; axes product, channel; not a number where nothing is valid.
    pub(crate) spectrum: Vec<Complex<f32>>,
    /// Mean over the times of the fringe's amplitude against delay; axes product, delay; empty where
    /// channels lie at no regular distance.
    pub(crate) lags: Vec<f32>,
    /// The first delay and the step; positive where the second antenna is later.
    pub(crate) delays_ns: (f64, f64),
    /// Visibilities of the first product; axes time, column; not a number where nothing is valid.
    pub(crate) waterfall: Vec<Complex<f32>>,
}

/// Draws all pictures into a folder, and returns their names.
///
/// # Errors
/// [`sidereal::Error::Io`] when a file can't be written.
pub(crate) fn draw(folder: &Path, about: &Correlation, made: &Made) -> Result<Vec<&'static str>> {
    let png = |name: &str| Png::new(folder.join(name), made);
    layout::draw(&png(LAYOUT), about)?;
    let mut names = vec![LAYOUT];
    if about.powers.iter().any(|power| power.is_finite()) {
        powers::draw(&png(POWERS), about)?;
        names.push(POWERS);
    }
    if !about.baselines.is_empty() {
        fringes::draw(&png(FRINGES), about)?;
        waterfalls::draw(&png(WATERFALLS), about)?;
        names.extend([FRINGES, WATERFALLS]);
    }
    Ok(names)
}

impl Correlation {
    fn channels(&self) -> usize {
        self.frequencies_mhz.len()
    }

    /// From the lower edge of the first channel to the upper of the last.
    fn frequency_axis(&self) -> Axis {
        let half = 0.5 * self.spacing_mhz();
        match (self.frequencies_mhz.first(), self.frequencies_mhz.last()) {
            (Some(first), Some(last)) => Axis::new(first - half, last + half),
            _ => Axis::new(0.0, 1.0),
        }
    }

    /// The least distance of two channels; a thousandth of the frequency where there is one channel.
    fn spacing_mhz(&self) -> f64 {
        let steps = self.frequencies_mhz.windows(2).map(|pair| pair[1] - pair[0]);
        let least = steps.filter(|step| *step > 0.0).fold(f64::INFINITY, f64::min);
        let lone = || self.frequencies_mhz.first().map_or(1.0, |f| 1e-3 * f.abs());
        if least.is_finite() { least } else { lone() }
    }

    /// Runs of channels with no hole between them.
    fn runs(&self) -> Vec<Range<usize>> {
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

    /// Lines through means of `values` over groups of channels, at most about `most` points in all;
    /// broken where there is no value.
    fn lines(&self, values: &[f32], most: usize) -> Vec<Vec<(f64, f64)>> {
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

    /// The channel at a frequency, if there is one.
    fn channel_at(&self, mhz: f64) -> Option<usize> {
        let above = self.frequencies_mhz.partition_point(|f| *f < mhz);
        let near = [above.checked_sub(1), (above < self.channels()).then_some(above)];
        let off = |channel: usize| (self.frequencies_mhz[channel] - mhz).abs();
        let best = near.into_iter().flatten().min_by(|a, b| off(*a).total_cmp(&off(*b)))?;
        (off(best) <= 0.55 * self.spacing_mhz()).then_some(best)
    }

    /// The channels along the frequency axis, at evenly spaced places.
    fn channels_along(&self) -> Vec<Option<usize>> {
        let axis = self.frequency_axis();
        let at = |place: usize| (place as f64 + 0.5) / PLACES as f64;
        (0..PLACES)
            .map(|place| self.channel_at(axis.from + at(place) * (axis.to - axis.from)))
            .collect()
    }

    /// Name of a baseline, as pages show it.
    fn title(&self, fringes: &Fringes) -> String {
        let name = |antenna: usize| self.antennas.get(antenna).map_or("", |a| a.name.as_str());
        let (first, second) = fringes.antennas;
        format!("{} – {}, {}", name(first), name(second), length(fringes.length_m))
    }

    /// The page's first lines.
    fn header(&self, pen: &Pen<'_>, right: f64, what: &str) {
        pen.text((40.0, 46.0), &self.file, Style::new(34.0));
        let style = Style::new(24.0).colour(GREY);
        pen.text((right, 46.0), what, style.anchor(Anchor::End));
        pen.text((40.0, 84.0), &self.target, style);
    }

    /// Which colour is which product, above a panel that ends at `right`.
    fn product_key(&self, pen: &Pen<'_>, (right, y): (f64, f64)) {
        let mut x = right;
        for (index, name) in self.products.iter().enumerate().rev() {
            let style = Style::new(22.0).colour(product_colour(index)).anchor(Anchor::End);
            pen.text((x, y), name, style);
            x -= f64::from(super::text::length(name, 22.0)) + 18.0;
        }
    }
}

fn product_colour(index: usize) -> RGBColor {
    if index == 0 { BLUE } else { RED }
}

/// A distance with the unit that suits it.
fn length(metres: f64) -> String {
    if metres >= 10_000.0 {
        format!("{} km", super::short(metres / 1e3, 5))
    } else {
        format!("{} m", super::short(metres, 4))
    }
}

/// The power of 1000 that makes visibilities up to `most` readable, and how labels name it with their unit, the square of
/// a recorded number.
fn scale(most: f64) -> (f64, String) {
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

#[cfg(test)]
mod tests;
