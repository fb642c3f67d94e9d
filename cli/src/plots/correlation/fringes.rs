//! Plot of amplitude and phase against frequency, and fringe against delay, for some baselines.

use num_complex::Complex;
use sidereal::Result;

use super::super::colour::GREY;
use super::super::frame::{Axis, Frame, Labels};
use super::super::pen::{Pen, Rect, Size, picture};
use super::super::png::Png;
use super::super::short;
use super::super::text::{Anchor, Style};
use super::{Correlation, Fringes, product_colour, scale};

const WIDTH: u32 = 1600;
/// Heights above the first row, of one row, and below the last.
const TOP: f64 = 160.0;
const ROW: f64 = 318.0;
const FOOT: f64 = 50.0;
/// Height of a panel.
const PANEL: f64 = 235.0;
/// Approximate number of points in a line.
const POINTS: usize = 420;
/// Largest number of dots in a panel.
const DOTS: usize = 6000;
/// Delays shown on either side, in units of the inverse bandwidth.
const DELAYS: f64 = 40.0;

/// Draws the page.
///
/// # Errors
/// [`sidereal::Error::Io`] when the file cannot be written.
pub(super) fn draw(file: &Png<'_>, about: &Correlation) -> Result<()> {
    let height = TOP + ROW * about.baselines.len() as f64 + FOOT;
    picture(file, Size { width: WIDTH, height: height as u32 }, |pen| {
        about.header(pen, 1560.0, "baselines, averaged over all times");
        about.product_key(pen, 1560.0, 84.0);
        for (index, baseline) in about.baselines.iter().enumerate() {
            let top = TOP + ROW * index as f64;
            let last = index + 1 == about.baselines.len();
            let title = format!("{}{}", about.title(baseline), remarks(about, baseline));
            pen.text(125.0, top - 22.0, &title, Style::new(23.0));
            amplitudes(pen, about, baseline, top, last);
            phases(pen, about, baseline, top, last);
            lags(pen, about, baseline, top, last);
        }
    })
}

/// Formats the scatter of the phases about their mean, and the delay of the strongest fringe.
fn remarks(about: &Correlation, baseline: &Fringes) -> String {
    let first = baseline.spectrum.get(..about.channels()).unwrap_or(&[]);
    let scatter = phase_scatter_deg(first).map(|d| format!("  ·  phase scatter {}°", short(d, 2)));
    let delay = strongest(about, baseline).map(|ns| format!("  ·  delay {}", delay_words(ns)));
    [scatter, delay].into_iter().flatten().collect()
}

/// Formats a delay with its unit, without a minus sign before zero.
fn delay_words(ns: f64) -> String {
    let (value, unit) = if ns.abs() < 10_000.0 { (ns, "ns") } else { (1e-3 * ns, "µs") };
    let rounded = (value * 100.0).round() / 100.0 + 0.0;
    format!("{} {unit}", short(rounded, 4).replace('-', "−"))
}

/// Returns the deviation of phases from that of their sum, in degrees: 1.4826 times the median, so that a few
/// channels with interference or at an edge do not matter. `None` for fewer than two.
pub(super) fn phase_scatter_deg(visibilities: &[Complex<f32>]) -> Option<f64> {
    let known = || {
        visibilities
            .iter()
            .filter(|v| v.is_finite())
            .map(|v| Complex::new(f64::from(v.re), f64::from(v.im)))
    };
    let sum: Complex<f64> = known().sum();
    let mut turned: Vec<f64> = known().map(|v| (v * sum.conj()).arg().to_degrees().abs()).collect();
    turned.sort_unstable_by(f64::total_cmp);
    (turned.len() > 1 && sum.norm() > 0.0).then(|| 1.4826 * turned[turned.len() / 2])
}

fn column(index: usize, top: f64) -> Rect {
    let left = 125.0 + 520.0 * index as f64;
    Rect { left, right: left + 395.0, top, bottom: top + PANEL }
}

fn label(words: &str, last: bool) -> Labels<'_> {
    if last { Labels::Full(words) } else { Labels::Numbers }
}

fn amplitudes(pen: &Pen<'_>, about: &Correlation, baseline: &Fringes, top: f64, last: bool) {
    let amplitudes: Vec<f32> = baseline.spectrum.iter().map(|v| v.norm()).collect();
    let products = || amplitudes.chunks_exact(about.channels().max(1));
    let lines: Vec<_> = products().map(|product| about.lines(product, POINTS)).collect();
    let points = lines.iter().flatten().flatten();
    let most = points.map(|point| point.1).fold(0.0, f64::max);
    let (unit, words) = scale(most);
    let y = Axis::new(0.0, 1.1 * most / unit);
    let frame = Frame { rect: column(0, top), x: about.frequency_axis(), y };
    frame.guides(pen);
    for (product, lines) in lines.iter().enumerate() {
        for line in lines {
            let line: Vec<_> = line.iter().map(|(mhz, value)| (*mhz, value / unit)).collect();
            frame.trace(pen, &line, product_colour(product));
        }
    }
    frame.axes(pen, label("Frequency (MHz)", last), Labels::Full(&format!("Amplitude{words}")));
}

fn phases(pen: &Pen<'_>, about: &Correlation, baseline: &Fringes, top: f64, last: bool) {
    let y = Axis::new(-180.0, 180.0).every(90.0);
    let frame = Frame { rect: column(1, top), x: about.frequency_axis(), y };
    frame.guides(pen);
    let step = about.channels().div_ceil(DOTS).max(1);
    let (radius, opacity) = if about.channels() > 600 { (1.0, 0.6) } else { (1.5, 0.9) };
    for (product, spectrum) in baseline.spectrum.chunks_exact(about.channels().max(1)).enumerate() {
        let dots = about.frequencies_mhz.iter().zip(spectrum).step_by(step);
        for (mhz, value) in dots.filter(|(_, value)| value.is_finite()) {
            let degrees = f64::from(value.arg().to_degrees());
            let (x, y) = frame.place(*mhz, degrees);
            let dot =
                Rect { left: x - radius, right: x + radius, top: y - radius, bottom: y + radius };
            pen.block(dot, product_colour(product), opacity);
        }
    }
    frame.axes(pen, label("Frequency (MHz)", last), Labels::Full("Phase (°)"));
}

/// Returns the number of delays of one product.
fn delays(about: &Correlation, baseline: &Fringes) -> usize {
    baseline.lags.len() / about.products.len().max(1)
}

/// Returns the delay at which the first product's fringe is strongest.
fn strongest(about: &Correlation, baseline: &Fringes) -> Option<f64> {
    let first = baseline.lags.get(..delays(about, baseline))?;
    let (index, _) = first.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1))?;
    let (start, step) = baseline.delays_ns;
    Some(start + index as f64 * step)
}

/// Returns the highest point of each of at most [`POINTS`] groups.
fn highest(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let group = points.len().div_ceil(POINTS).max(1);
    let highest = |group: &[(f64, f64)]| group.iter().copied().max_by(|a, b| a.1.total_cmp(&b.1));
    points.chunks(group).filter_map(highest).collect()
}

fn lags(pen: &Pen<'_>, about: &Correlation, baseline: &Fringes, top: f64, last: bool) {
    let rect = column(2, top);
    let Some(peak) = strongest(about, baseline) else {
        let style = Style::new(20.0).colour(GREY).anchor(Anchor::Middle);
        let (x, y) = (0.5 * (rect.left + rect.right), 0.5 * (rect.top + rect.bottom));
        return pen.text(x, y, "no regular channels", style);
    };
    let (start, step) = baseline.delays_ns;
    // One delay cell is the inverse of the bandwidth.
    let axis = about.frequency_axis();
    let cell = 1e3 / (axis.to - axis.from).abs();
    let half = (DELAYS * cell).min(start.abs());
    // Centre on delay 0 if the peak is well inside, otherwise on the peak.
    let centre = if peak.abs() < 0.7 * half { 0.0 } else { peak };
    let most = baseline.lags.iter().copied().fold(0.0, f32::max).into();
    let (unit, words) = scale(most);
    let (per_ns, delay_words) =
        if half + centre.abs() > 20_000.0 { (1e-3, "Delay (µs)") } else { (1.0, "Delay (ns)") };
    let x = Axis::new((centre - half) * per_ns, (centre + half) * per_ns);
    let frame = Frame { rect, x, y: Axis::new(0.0, 1.1 * most / unit) };
    frame.guides(pen);
    if (x.from..=x.to).contains(&0.0) {
        frame.line(pen, &[(0.0, frame.y.from), (0.0, frame.y.to)], GREY, 1.0);
    }
    for (product, lags) in baseline.lags.chunks_exact(delays(about, baseline)).enumerate() {
        let delay = |index: usize| (start + index as f64 * step) * per_ns;
        let shown = lags.iter().enumerate().map(|(index, lag)| (delay(index), f64::from(*lag)));
        let shown = shown.filter(|(delay, _)| (frame.x.from..=frame.x.to).contains(delay));
        let points: Vec<_> = shown.map(|(delay, lag)| (delay, lag / unit)).collect();
        frame.trace(pen, &highest(&points), product_colour(product));
    }
    frame.axes(pen, label(delay_words, last), Labels::Full(&format!("Fringe{words}")));
}
