//! Plots of a report: numbers in the file that its script draws, in the colours of the page and at its width.

use std::fmt::Write as _;

use serde::Serialize;
use sidereal::{Error, Result};

use super::text::{base64, escape};

/// Colours of lines in the style sheet; later lines repeat them, dashed.
const COLOURS: usize = 8;

/// Byte of a cell of an image without a value, and that of the highest value.
const BLANK: u8 = 255;
const HIGHEST: f64 = 254.0;

/// Bins of a histogram.
const BINS: usize = 48;

/// Plots of a document.
#[derive(Debug, Default)]
pub(super) struct Drawing {
    pub(super) plots: Vec<Plot>,
    /// Text below them.
    pub(super) note: String,
    /// Names of pictures that show nothing else.
    pub(super) replaced: Vec<String>,
}

/// Plot with two axes.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Plot {
    /// Text above it.
    #[serde(skip)]
    pub(super) title: String,
    pub(super) x: Axis,
    pub(super) y: Axis,
    #[serde(flatten)]
    pub(super) what: What,
}

/// Axis from its lower to its upper end.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Axis {
    label: String,
    from: f64,
    to: f64,
    /// Whether the axis is logarithmic.
    log: bool,
}

/// Contents of a plot.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub(super) enum What {
    Lines {
        series: Vec<Series>,
    },
    Points {
        points: Vec<Point>,
        /// Lines between points, by their places.
        lines: Vec<[usize; 2]>,
        /// Whether both axes have the same scale.
        equal: bool,
    },
    /// Counts of bins of equal width from an edge on, and lines over them.
    Bars {
        first: f64,
        width: f64,
        counts: Vec<u64>,
        series: Vec<Series>,
    },
    Image(Image),
}

/// Line through points, or dots.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Series {
    /// Name in the key; empty for none.
    #[serde(skip)]
    pub(super) name: String,
    /// Number of its colour; beyond those of the style sheet the line is dashed.
    pub(super) colour: usize,
    /// The line is broken where a value is missing.
    pub(super) points: Vec<(f64, Option<f64>)>,
    pub(super) dots: bool,
    pub(super) dashed: bool,
}

/// Point with a radius in pixels.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Point {
    pub(super) x: f64,
    pub(super) y: f64,
    pub(super) size: f64,
    /// Text at its right; empty for none.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) name: String,
}

/// Plane of values.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Image {
    columns: usize,
    rows: usize,
    /// Bytes in base64, column by column from the left, each from the bottom: 0 to 254 for the lowest to the highest value.
    cells: String,
    low: f64,
    high: f64,
    label: String,
    /// Whether the lowest and the highest value are the same, as of phases.
    wheel: bool,
}

/// Returns a number with this many significant digits, so that its text is short.
fn significant(value: f64, digits: i32) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return 0.0;
    }
    let scale = 10_f64.powi((digits - 1 - value.abs().log10().floor() as i32).clamp(-300, 300));
    (value * scale).round() / scale
}

impl Axis {
    /// Makes an axis; one without length, or with an end that is not finite, is from 0 to 1.
    pub(super) fn new(label: impl Into<String>, from: f64, to: f64) -> Self {
        let is_good = from.is_finite() && to.is_finite() && from != to;
        let (from, to) = if is_good { (from, to) } else { (0.0, 1.0) };
        Self { label: label.into(), from, to, log: false }
    }

    /// Makes a logarithmic axis between two positive ends.
    pub(super) fn log(label: impl Into<String>, from: f64, to: f64) -> Self {
        Self { log: true, ..Self::new(label, from, to) }
    }

    /// Makes an axis over values with a margin.
    pub(super) fn over(label: impl Into<String>, values: impl Iterator<Item = f64>) -> Self {
        let ends = |(low, high): (f64, f64), x: f64| (low.min(x), high.max(x));
        let finite = values.filter(|x| x.is_finite());
        let (low, high) = finite.fold((f64::INFINITY, f64::NEG_INFINITY), ends);
        let margin = if high > low { 0.06 * (high - low) } else { 0.1 * low.abs().max(1.0) };
        Self::new(label, low - margin, high + margin)
    }
}

impl Series {
    /// Makes a solid line of a colour.
    pub(super) fn line(
        name: impl Into<String>,
        colour: usize,
        points: Vec<(f64, Option<f64>)>,
    ) -> Self {
        Self { name: name.into(), colour, points, ..Self::default() }
    }

    /// Returns the series as it is written: short numbers, missing ones for those that are not finite.
    fn written(&self) -> Self {
        let point = |(x, y): &(f64, Option<f64>)| {
            let y = y.filter(|y| y.is_finite()).map(|y| significant(y, 4));
            (significant(*x, 8), y)
        };
        Self {
            points: self.points.iter().map(point).collect(),
            dashed: self.dashed || self.colour >= COLOURS,
            ..self.clone()
        }
    }
}

impl Image {
    /// Makes an image of columns of values from the bottom, between two limits; what is not finite is blank.
    pub(super) fn new<'a>(
        columns: impl Iterator<Item = &'a [f32]>,
        limits: [f64; 2],
        label: impl Into<String>,
    ) -> Self {
        let [low, high] = limits;
        let (mut cells, mut count, mut rows) = (Vec::new(), 0, 0);
        for column in columns {
            (count, rows) = (count + 1, column.len());
            cells.extend(column.iter().map(|value| match value.is_finite() {
                true => {
                    let part = (f64::from(*value) - low) / (high - low);
                    (part.clamp(0.0, 1.0) * HIGHEST).round() as u8
                }
                false => BLANK,
            }));
        }
        let label = label.into();
        Self { columns: count, rows, cells: base64(&cells), low, high, label, wheel: false }
    }

    /// Makes an image of phases in degrees.
    pub(super) fn phases<'a>(columns: impl Iterator<Item = &'a [f32]>) -> Self {
        Self { wheel: true, ..Self::new(columns, [-180.0, 180.0], "phase (°)") }
    }
}

impl Drawing {
    /// Writes the plots and the note.
    pub(super) fn write(&self, text: &mut String) -> Result<()> {
        if self.plots.is_empty() {
            return Ok(());
        }
        text.push_str("<div class=\"plots\">\n");
        for plot in &self.plots {
            plot.write(text)?;
        }
        text.push_str("</div>\n");
        if !self.note.is_empty() {
            let _ = writeln!(text, "<p class=\"none\">{}</p>", escape(&self.note));
        }
        Ok(())
    }
}

impl Plot {
    /// Makes the histogram of values between two ends.
    pub(super) fn histogram(label: &str, values: &[f64], ends: [f64; 2]) -> Self {
        let [low, high] = ends;
        let high = if high > low { high } else { low + 1.0 };
        let width = (high - low) / BINS as f64;
        let mut counts = vec![0_u64; BINS];
        for value in values.iter().filter(|value| (low..=high).contains(value)) {
            counts[(((value - low) / width) as usize).min(BINS - 1)] += 1;
        }
        let most = counts.iter().copied().max().unwrap_or(0).max(4);
        Self {
            title: format!("Candidates by {label}"),
            x: Axis::new(label, low, high),
            y: Axis::new("candidates", 0.0, 1.08 * most as f64),
            what: What::Bars { first: low, width, counts, series: Vec::new() },
        }
    }

    /// Writes the plot as a figure with its key.
    ///
    /// # Errors
    /// [`Error::Unavailable`] for numbers that JSON cannot represent.
    pub(super) fn write(&self, text: &mut String) -> Result<()> {
        let mut written = self.clone();
        let mut key = String::new();
        if let What::Lines { series } | What::Bars { series, .. } = &mut written.what {
            for one in series.iter_mut() {
                *one = one.written();
                if one.name.is_empty() {
                    continue;
                }
                let mark = if one.dashed { '┅' } else { '■' };
                let (colour, name) = (one.colour % COLOURS, escape(&one.name));
                let _ = write!(key, "<li class=\"c{colour}\">{mark} {name}</li>");
            }
        }
        if let What::Points { points, .. } = &mut written.what {
            for point in points {
                (point.x, point.y) = (significant(point.x, 8), significant(point.y, 8));
            }
        }
        let data = serde_json::to_string(&written).map_err(|error| Error::Unavailable {
            what: "the data of a plot".to_owned(),
            why: error.to_string(),
        })?;
        let title = escape(&self.title);
        if !key.is_empty() {
            key = format!("<ul class=\"key\">{key}</ul>");
        }
        // No text of JSON ends its element early.
        let data = data.replace('<', "\\u003c");
        let _ = writeln!(
            text,
            "<figure class=\"drawn\"><figcaption>{title}</figcaption>\
             <canvas class=\"plot\" role=\"img\" aria-label=\"{title}\"></canvas>{key}\
             <script type=\"application/json\">{data}</script></figure>"
        );
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_drawn_is_left_out_of_a_line() {
        let points = vec![(1.000_000_01, Some(2.34567)), (2.0, Some(f64::NAN)), (3.0, None)];
        let plot = Plot {
            title: "<b>".to_owned(),
            x: Axis::new("</script>", 0.0, f64::NAN),
            y: Axis::over("y", [1.0, 2.0].into_iter()),
            what: What::Lines { series: vec![Series::line("a<b", 9, points)] },
        };
        let mut text = String::new();
        plot.write(&mut text).unwrap();
        assert!(text.contains("[[1.0,2.346],[2.0,null],[3.0,null]]"), "{text}");
        assert!(
            text.contains("<li class=\"c1\">┅ a&lt;b</li>") && text.contains("\"dashed\":true")
        );
        assert!(
            text.contains("&lt;b&gt;")
                && text.contains("\"label\":\"\\u003c/script>\",\"from\":0.0,\"to\":1.0")
        );
        assert!(text.contains("\"from\":0.94,\"to\":2.06"), "{text}");
    }

    #[test]
    fn cells_of_an_image_span_its_limits() {
        let columns: [&[f32]; 2] = [&[-5.0, 0.0, 1.0], &[f32::NAN, 0.5, 9.0]];
        let image = Image::new(columns.into_iter(), [0.0, 1.0], "power");
        assert_eq!((image.columns, image.rows), (2, 3));
        assert_eq!(image.cells, base64(&[0, 0, 254, 255, 127, 254]));
    }

    #[test]
    fn histograms_count_what_is_within_their_ends() {
        let plot = Plot::histogram("S/N", &[7.0, 7.1, 55.0, 100.0], [7.0, 55.0]);
        let What::Bars { counts, width, .. } = plot.what else { panic!("no bars") };
        assert_eq!((counts[0], counts[47], counts.iter().sum::<u64>()), (2, 1, 3));
        assert_eq!(width, 1.0);
    }
}
