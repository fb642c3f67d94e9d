//! Figures of `bench`: the DM-time plane, campaigns of injected signals, latencies of filters, responses of windows.

use plotters::style::RGBColor;
use sidereal::Result;
use sidereal::backend::Backend;
use sidereal::math::Window;
use sidereal_bench::{
    BANDS, Bank, CENTRE, CHANNELS, Curve, Figure, Injected, InjectedPair, Recovered, RecoveredPair,
    SNRS, Sums, WIDTHS_S, powers_db, recovered,
};

use super::colour::{self, BLUE, FAINT, GREY, INK, RED, Scale};
use super::frame::{Axis, Frame, LABEL_TEXT, Labels, TICK_TEXT};
use super::pen::{Pen, Rect, Size, picture};
use super::png::Png;
use super::short;
use super::text::{Anchor, Style};

/// Draws a figure.
///
/// # Errors
/// [`sidereal::Error::Io`] when the file can't be written; those of the filter bank.
pub(crate) fn draw(file: &Png<'_>, figure: Figure<'_>) -> Result<()> {
    match figure {
        Figure::Plane(sums) => plane(file, sums),
        Figure::Injections(outcomes) => injections(file, outcomes),
        Figure::Recovery(outcomes) => recovery(file, outcomes),
        Figure::Latency(curves) => latency(file, curves),
        Figure::Scalloping(banks, backend) => scalloping(file, banks, backend),
        Figure::Leakage(banks, backend) => leakage(file, banks, backend),
    }
}

const SUMS: Rect = Rect { left: 130.0, top: 110.0, right: 1130.0, bottom: 520.0 };
const DIFFERENCE: Rect = Rect { left: 130.0, top: 580.0, right: 1130.0, bottom: 900.0 };
const CURVE: Rect = Rect { left: 1240.0, top: 110.0, right: 1560.0, bottom: 520.0 };

/// Draws the plane in units of its noise, the best S/N of each trial, and the differences.
fn plane(file: &Png<'_>, sums: &Sums) -> Result<()> {
    let (snr, best) = normalized(sums);
    let largest = sums.largest_difference();
    let difference: Vec<f32> =
        sums.fast.iter().zip(&sums.slow).map(|(fast, slow)| (fast - slow).abs() as f32).collect();
    let top = (Sums::TRIALS - 1) as f64 * Sums::DM_STEP;
    let span_s = sums.times as f64 * Sums::TSAMP_S;
    picture(file, Size { width: 1600, height: 1000 }, |pen| {
        pen.text(40.0, 46.0, "A pulse at DM 90, trials 0 to 200 by 0.5", Style::new(30.0));
        let frame = |rect| Frame { rect, x: Axis::new(0.0, span_s), y: Axis::new(0.0, top) };
        let (time, dm) = (Labels::Full("Time (s)"), Labels::Full("DM (pc cm⁻³)"));
        values(pen, &frame(SUMS), &snr, sums.times, Scale { low: -3.0, high: 12.0 });
        frame(SUMS).axes(pen, Labels::None, dm);
        values(pen, &frame(DIFFERENCE), &difference, sums.times, Scale { low: 0.0, high: 1.0 });
        frame(DIFFERENCE).axes(pen, time, dm);
        let words = format!("|sum − independent float64 sum|: at most {largest}");
        let middle = 0.5 * (DIFFERENCE.left + DIFFERENCE.right);
        let style = Style::new(21.0).colour(GREY).anchor(Anchor::Middle);
        pen.text(middle, DIFFERENCE.top - 22.0, &words, style);
        let most = best.iter().copied().fold(1.0, f64::max);
        let curve = Frame { rect: CURVE, x: Axis::new(0.0, 1.05 * most), y: Axis::new(0.0, top) };
        let points: Vec<(f64, f64)> =
            best.iter().enumerate().map(|(d, s)| (*s, d as f64 * Sums::DM_STEP)).collect();
        curve.line(pen, &points, colour::BLUE, 2.0);
        curve.axes(pen, Labels::Full("highest sample / noise"), Labels::None);
    })
}

/// Draws the plane, lowest DM at the bottom; each pixel is the mean of its samples.
fn values(pen: &Pen<'_>, frame: &Frame, values: &[f32], times: usize, scale: Scale) {
    let flipped: Vec<f32> = values.chunks(times).rev().flatten().copied().collect();
    frame.plane(pen, &flipped, times, scale);
}

/// Returns each trial less its mean, divided by the standard deviation of trial 0, and the maximum of each trial.
fn normalized(sums: &Sums) -> (Vec<f32>, Vec<f64>) {
    let mean = |row: &[f64]| row.iter().sum::<f64>() / row.len() as f64;
    let rows: Vec<&[f64]> = sums.fast.chunks(sums.times).collect();
    let last = rows[Sums::TRIALS - 1];
    let centre = mean(last);
    let squares = last.iter().map(|y| (y - centre).powi(2)).sum::<f64>();
    let sigma = (squares / last.len() as f64).sqrt();
    let mut values = Vec::with_capacity(sums.fast.len());
    let mut best = Vec::with_capacity(Sums::TRIALS);
    for row in rows {
        let centre = mean(row);
        values.extend(row.iter().map(|y| ((y - centre) / sigma) as f32));
        best.push(row.iter().map(|y| (y - centre) / sigma).fold(f64::MIN, f64::max));
    }
    (values, best)
}

/// Panels of equal size in columns and rows.
struct Grid {
    left: f64,
    top: f64,
    /// Distance from a panel to the next, across and down.
    step: [f64; 2],
    /// Size of a panel.
    panel: [f64; 2],
}

impl Grid {
    fn rect(&self, column: usize, row: usize) -> Rect {
        let left = self.left + column as f64 * self.step[0];
        let top = self.top + row as f64 * self.step[1];
        Rect { left, top, right: left + self.panel[0], bottom: top + self.panel[1] }
    }
}

/// Draws a legend of discs from `x` on.
fn discs(pen: &Pen<'_>, x: f64, y: f64, words: &str, entries: &[(f64, RGBColor)]) {
    let style = Style::new(TICK_TEXT).colour(GREY);
    pen.text(x - 20.0, y, words, style.anchor(Anchor::End));
    for (index, (value, colour)) in entries.iter().enumerate() {
        let x = x + 80.0 * index as f64;
        pen.disc(x, y, 7.0, *colour);
        pen.text(x + 16.0, y, &format!("{value:.0}"), style);
    }
}

/// Panels of the injected binaries, and the range of their injected ratios.
const BINARIES: Grid = Grid { left: 120.0, top: 90.0, step: [680.0, 450.0], panel: [560.0, 360.0] };
const RATIOS: [f64; 2] = [5.0, 30.0];

/// Panel of the binaries: label, limits, lines at expected values, and plotted values.
struct Panel {
    label: &'static str,
    limits: [f64; 2],
    expected: &'static [f64],
    value: fn(&InjectedPair, &RecoveredPair) -> f64,
}

const PANELS: [Panel; 4] = [
    Panel {
        label: "SNR found − expected",
        limits: [-5.0, 5.0],
        expected: &[-2.0, 0.0, 2.0],
        value: |pair, one| one.snr - pair.expected,
    },
    Panel {
        label: "time error / sigma",
        limits: [-5.0, 5.0],
        expected: &[-2.0, 0.0, 2.0],
        value: |_, one| one.time_error_s / one.time_sigma_s,
    },
    Panel {
        label: "phase error / sigma",
        limits: [-5.0, 5.0],
        expected: &[-2.0, 0.0, 2.0],
        value: |_, one| one.phase_error_rad / one.phase_sigma_rad,
    },
    Panel { label: "xi-squared", limits: [0.0, 2.5], expected: &[1.0], value: |_, one| one.xi2 },
];

/// Draws the ratios, times, phases and xi-squared of injected binaries against the injected ratio.
fn injections(file: &Png<'_>, outcomes: &[Injected]) -> Result<()> {
    picture(file, Size { width: 1400, height: 1010 }, |pen| {
        let found = outcomes.iter().filter(|outcome| outcome.network_snr.is_some()).count();
        let title =
            format!("{} binaries injected into two detectors, {found} found", outcomes.len());
        pen.text(40.0, 40.0, &title, Style::new(28.0));
        let masses = [3.0, 10.0, 30.0, 60.0].map(|total| (total, mass_colour(total)));
        discs(pen, 1060.0, 40.0, "total mass", &masses);
        for (index, panel) in PANELS.iter().enumerate() {
            let is_last = index / 2 == 1;
            binaries(pen, BINARIES.rect(index % 2, index / 2), is_last, panel, outcomes);
        }
    })
}

/// Maps a binary's total mass, on a logarithmic scale from the lightest to the heaviest, to a colour.
fn mass_colour(total_msun: f64) -> RGBColor {
    let part = (total_msun / 2.8).ln() / (60.0_f64 / 2.8).ln();
    colour::map((0.1 + 0.75 * part) as f32)
}

fn binaries(pen: &Pen<'_>, rect: Rect, is_last: bool, panel: &Panel, outcomes: &[Injected]) {
    let ([low, high], [least, most]) = (panel.limits, RATIOS);
    let frame = Frame { rect, x: Axis::new(least, most), y: Axis::new(low, high) };
    for (index, value) in panel.expected.iter().enumerate() {
        let shade = if index == panel.expected.len() / 2 { GREY } else { FAINT };
        frame.line(pen, &[(least, *value), (most, *value)], shade, 1.5);
    }
    for outcome in outcomes {
        let colour = mass_colour(outcome.case.total_msun());
        for (pair, one) in recovered(&[outcome]) {
            let value = (panel.value)(&pair, &one).clamp(low, high);
            frame.disc(pen, pair.injected.min(most), value, 4.5, colour);
        }
    }
    let words =
        if is_last { Labels::Full("injected SNR of the detector") } else { Labels::Numbers };
    frame.axes(pen, words, Labels::Full(panel.label));
}

/// Panels of the injected bursts: a column per band, a row per quantity.
const BURSTS: Grid = Grid { left: 130.0, top: 120.0, step: [500.0, 310.0], panel: [430.0, 270.0] };

/// Rows of panels of the bursts: label, limits, expected value and plotted value.
type Quantity = (&'static str, [f64; 2], f64, fn(&Recovered) -> f64);

const QUANTITIES: [Quantity; 3] = [
    ("mean S/N / exact-DM S/N", [0.9, 1.1], 1.0, |o| o.mean_snr / o.exact_snr),
    ("rms DM error / allowed", [0.0, 1.0], 0.0, |o| o.dm_rms / o.dm_reach),
    ("rms time error / allowed", [0.0, 1.0], 0.0, |o| o.time_rms_s / o.time_reach_s),
];

/// Draws S/N, DM error and time error of injected bursts, one column per band.
fn recovery(file: &Png<'_>, outcomes: &[Recovered]) -> Result<()> {
    picture(file, Size { width: 1600, height: 1090 }, |pen| {
        let injected: usize = outcomes.iter().map(|o| o.injected).sum();
        let found: usize = outcomes.iter().map(|o| o.found).sum();
        let title = format!("{injected} bursts injected, {found} found");
        pen.text(40.0, 46.0, &title, Style::new(30.0));
        discs(pen, 1180.0, 46.0, "injected S/N", &SNRS.map(|snr| (snr, snr_colour(snr))));
        for (column, band) in BANDS.iter().enumerate() {
            let of_band: Vec<&Recovered> =
                outcomes.iter().filter(|o| o.cell.band.name == band.name).collect();
            for (row, quantity) in QUANTITIES.iter().enumerate() {
                bursts(pen, column, row, quantity, &of_band);
            }
            let rect = BURSTS.rect(column, 0);
            let middle = rect.left + 0.5 * BURSTS.panel[0];
            let style = Style::new(LABEL_TEXT).anchor(Anchor::Middle);
            let words = format!("{}, {} channels", band.name, band.channels);
            pen.text(middle, rect.top - 22.0, &words, style);
        }
    })
}

fn snr_colour(snr: f64) -> RGBColor {
    let place = SNRS.iter().position(|s| *s == snr).unwrap_or(0);
    colour::map(0.15 + 0.35 * place as f32)
}

fn bursts(pen: &Pen<'_>, column: usize, row: usize, quantity: &Quantity, outcomes: &[&Recovered]) {
    let (label, [low, high], expected, value) = *quantity;
    let rect = BURSTS.rect(column, row);
    let groups = outcomes.len() / SNRS.len();
    let frame = Frame { rect, x: Axis::new(0.0, groups as f64), y: Axis::new(low, high) };
    for group in 1..groups {
        let width = if group % WIDTHS_S.len() == 0 { 1.5 } else { 0.5 };
        let x = group as f64;
        pen.line(&[frame.place(x, low), frame.place(x, high)], FAINT, width);
    }
    frame.line(pen, &[(0.0, expected), (groups as f64, expected)], GREY, 1.0);
    for (index, outcome) in outcomes.iter().enumerate() {
        let x = (index as f64 + 0.5) / SNRS.len() as f64;
        let y = value(outcome).clamp(low, high);
        frame.disc(pen, x, y, 5.0, snr_colour(outcome.cell.snr));
    }
    let words = if column == 0 { label } else { "" };
    frame.axes(pen, Labels::None, Labels::Full(words));
    if row + 1 == QUANTITIES.len() {
        feet(pen, &frame, outcomes);
    }
}

/// Draws the width and DM of each group of points below the last panel.
fn feet(pen: &Pen<'_>, frame: &Frame, outcomes: &[&Recovered]) {
    let style = Style::new(15.0).anchor(Anchor::Middle);
    for (group, cells) in outcomes.chunks(SNRS.len()).enumerate() {
        let cell = &cells[0].cell;
        let (x, y) = frame.place(group as f64 + 0.5, frame.y.from);
        pen.text(x, y + 20.0, &format!("{:.0} ms", cell.width_s * 1e3), style.colour(INK));
        if group % WIDTHS_S.len() == 1 {
            pen.text(x, y + 44.0, &format!("DM {:.0}", cell.dm), style.colour(GREY));
        }
    }
}

const LATENCIES: Rect = Rect { left: 150.0, top: 120.0, right: 1270.0, bottom: 800.0 };

/// One colour per length.
const LENGTHS: [RGBColor; 4] =
    [RGBColor(33, 84, 160), RGBColor(30, 140, 120), RGBColor(190, 120, 20), RGBColor(190, 50, 60)];

/// Draws the templates that one core filters in real time against latency, with logarithmic axes: recursive filters
/// beside Fourier transforms.
fn latency(file: &Png<'_>, curves: &[Curve]) -> Result<()> {
    let points = || curves.iter().flat_map(|curve| curve.transforms.iter().chain(&curve.filters));
    let span = |value: fn(&(f64, f64)) -> f64| {
        let logs = || points().map(|point| value(point).max(1e-9).log10());
        let (low, high) = (logs().fold(f64::MAX, f64::min), logs().fold(f64::MIN, f64::max));
        // A step beyond the axes gives no ticks: `decades` draws them at powers of ten instead.
        Axis::new(low.floor(), high.ceil()).every(1e9)
    };
    let (x, y) = (span(|point| point.0), span(|point| point.1));
    let frame = Frame { rect: LATENCIES, x, y };
    picture(file, Size { width: 1500, height: 900 }, |pen| {
        let words = "Templates that one core follows: recursive filters beside Fourier transforms";
        pen.text(LATENCIES.left, 45.0, words, Style::new(26.0));
        let legend =
            "lines: overlap-save, latency of one block; discs: filters, short and long resamplers";
        pen.text(LATENCIES.left, 82.0, legend, Style::new(20.0).colour(GREY));
        decades(pen, &frame, x, y);
        for (curve, colour) in curves.iter().zip(LENGTHS.iter().cycle()) {
            length(pen, &frame, curve, *colour);
        }
        frame.axes(pen, Labels::None, Labels::None);
        let middle = Style::new(LABEL_TEXT).anchor(Anchor::Middle);
        pen.text(
            0.5 * (LATENCIES.left + LATENCIES.right),
            LATENCIES.bottom + 58.0,
            "Latency (s)",
            middle,
        );
        let upwards = middle.upwards();
        let words = "Templates in real time on one core";
        pen.text(LATENCIES.left - 100.0, 0.5 * (LATENCIES.top + LATENCIES.bottom), words, upwards);
    })
}

/// Draws lines and numbers at powers of ten.
fn decades(pen: &Pen<'_>, frame: &Frame, x: Axis, y: Axis) {
    let whole = |axis: Axis| axis.from as i32..=axis.to as i32;
    for power in whole(x) {
        let (across, _) = frame.place(f64::from(power), y.from);
        pen.line(&[(across, LATENCIES.top), (across, LATENCIES.bottom)], FAINT, 1.0);
        let style = Style::new(TICK_TEXT).anchor(Anchor::Middle);
        pen.text(across, LATENCIES.bottom + 22.0, &short(10f64.powi(power), 4), style);
    }
    for power in whole(y) {
        let (_, down) = frame.place(x.from, f64::from(power));
        pen.line(&[(LATENCIES.left, down), (LATENCIES.right, down)], FAINT, 1.0);
        let style = Style::new(TICK_TEXT).anchor(Anchor::End);
        pen.text(LATENCIES.left - 10.0, down, &short(10f64.powi(power), 4), style);
    }
}

fn length(pen: &Pen<'_>, frame: &Frame, curve: &Curve, colour: RGBColor) {
    let log = |point: &(f64, f64)| (point.0.max(1e-9).log10(), point.1.max(1e-9).log10());
    let line: Vec<(f64, f64)> = curve.transforms.iter().map(log).collect();
    frame.line(pen, &line, colour, 2.5);
    let filters: Vec<(f64, f64)> = curve.filters.iter().map(log).collect();
    frame.line(pen, &filters, colour, 1.0);
    for (x, y) in &filters {
        frame.disc(pen, *x, *y, 9.0, colour);
    }
    if let Some((x, y)) = line.last() {
        let (across, down) = frame.place(*x, *y);
        let words = format!("{} s", short(curve.length_s, 3));
        pen.text(across + 10.0, down, &words, Style::new(20.0).colour(colour));
    }
}

/// Channels drawn on either side of the tone.
const NEAR: usize = 40;
const LEFT: Rect = Rect { left: 130.0, top: 110.0, right: 790.0, bottom: 620.0 };
const RIGHT: Rect = Rect { left: 900.0, top: 110.0, right: 1560.0, bottom: 620.0 };

/// Legend of the scalloping figure.
const KEYS: [(&str, RGBColor); 3] =
    [("best channel", BLUE), ("other channels", GREY), ("measured", RED)];

/// Returns the two filter banks that both figures compare: without and with the filter.
fn pair(banks: &[Bank]) -> impl Iterator<Item = &Bank> {
    let shown = |bank: &&Bank| bank.is(&Window::Rectangular, 1) || bank.is(&Window::Hann, 8);
    banks.iter().filter(shown)
}

/// Draws the scalloping: power of a tone that moves over three channels, in its own and in the adjacent channels.
fn scalloping(file: &Png<'_>, banks: &[Bank], backend: &Backend) -> Result<()> {
    let offsets: Vec<f64> = (-15..=15).map(|step| f64::from(step) / 10.0).collect();
    let mut dots = Vec::new();
    for bank in pair(banks) {
        let mut found = Vec::new();
        for offset in &offsets {
            found.push(powers_db(&bank.plan, backend, CENTRE as f64 + offset)?);
        }
        dots.push(found);
    }
    picture(file, Size { width: 1600, height: 780 }, |pen| {
        title(pen, "Scalloping: a tone that moves over three channels");
        for ((bank, rect), found) in pair(banks).zip([LEFT, RIGHT]).zip(&dots) {
            let frame = Frame { rect, x: Axis::new(-1.5, 1.5), y: Axis::new(-12.0, 1.0) };
            frame.guides(pen);
            let fine = (0..=600).map(|step| f64::from(step) / 200.0 - 1.5);
            let curves: Vec<Vec<(f64, f64)>> = [-1.0, 0.0, 1.0]
                .iter()
                .map(|k| fine.clone().map(|x| (x, bank.plan.response().db(x - k))).collect())
                .collect();
            let highest = |at: usize| curves.iter().map(|c| c[at].1).fold(f64::MIN, f64::max);
            let envelope: Vec<_> = fine.enumerate().map(|(at, x)| (x, highest(at))).collect();
            for points in &curves {
                curve(pen, &frame, points, GREY, 2.0);
            }
            curve(pen, &frame, &envelope, BLUE, 3.5);
            for (x, powers) in offsets.iter().zip(found) {
                for db in &powers[CENTRE - 1..=CENTRE + 1] {
                    if *db > frame.y.from {
                        frame.disc(pen, *x, *db, 4.0, RED);
                    }
                }
            }
            let loss = format!(
                "{}: {:.2} dB lost half way, less than 1 dB in {:.0} % of the band",
                bank.name(),
                bank.summary.scalloping_loss_db,
                100.0 * bank.within_1_db
            );
            head(pen, rect, &loss);
            frame.axes(
                pen,
                Labels::Full("Frequency of the tone (channels)"),
                Labels::Full("Power in each channel (dB)"),
            );
            for (column, (words, colour)) in KEYS.into_iter().enumerate() {
                key(pen, rect, [column, 0], words, colour);
            }
        }
    })
}

/// Draws the leakage: a tone half way between two channels over the whole band, and the windows' responses.
fn leakage(file: &Png<'_>, banks: &[Bank], backend: &Backend) -> Result<()> {
    let mut found = Vec::new();
    for bank in pair(banks) {
        found.push(powers_db(&bank.plan, backend, CENTRE as f64 + 0.5)?);
    }
    picture(file, Size { width: 1600, height: 780 }, |pen| {
        title(pen, "Leakage of a tone into other channels");
        let x = Axis::new(-(NEAR as f64), NEAR as f64);
        let frame = Frame { rect: LEFT, x, y: Axis::new(-120.0, 5.0) };
        frame.guides(pen);
        for (index, (bank, powers)) in pair(banks).zip(&found).enumerate() {
            let near = CENTRE - NEAR..=CENTRE + NEAR;
            let place = |c: usize| c as f64 - CENTRE as f64 - 0.5;
            let steps = near.flat_map(|c| [-0.5, 0.5].map(|edge| (place(c) + edge, powers[c])));
            let colour = [RED, BLUE][index];
            curve(pen, &frame, &steps.collect::<Vec<_>>(), colour, 2.5);
            key(pen, LEFT, [index, 0], &bank.name(), colour);
        }
        head(pen, LEFT, "Measured: a tone half way between two channels");
        frame.axes(
            pen,
            Labels::Full("Distance from the tone (channels)"),
            Labels::Full("Power in each channel (dB)"),
        );
        windows(pen, banks);
    })
}

/// Draws the responses of every window with 8 taps and of the plain transform.
fn windows(pen: &Pen<'_>, banks: &[Bank]) {
    let frame = Frame { rect: RIGHT, x: Axis::new(0.0, 3.0), y: Axis::new(-120.0, 5.0) };
    frame.guides(pen);
    let (low, high) = (frame.place(1.0, frame.y.from), frame.place(1.0, frame.y.to));
    pen.line(&[low, high], FAINT, 2.0);
    let shown = banks.iter().filter(|bank| bank.taps == 8 || bank.is(&Window::Rectangular, 1));
    for (index, bank) in shown.enumerate() {
        let colour = match bank.window {
            Window::Rectangular => RED,
            Window::Hann => BLUE,
            Window::Hamming => colour::map(0.28),
            Window::Blackman => GREY,
            _ => colour::map(0.82),
        };
        let fine = (0..=1500).map(|step| f64::from(step) / 500.0);
        let points: Vec<_> = fine.map(|x| (x, bank.plan.response().db(x))).collect();
        curve(pen, &frame, &points, colour, 2.0);
        key(pen, RIGHT, [index % 3, index / 3], &bank.name(), colour);
    }
    head(pen, RIGHT, "Response: the next channel's centre is at 1");
    frame.axes(
        pen,
        Labels::Full("Distance from the channel's centre (channels)"),
        Labels::Full("Response (dB)"),
    );
}

fn title(pen: &Pen<'_>, words: &str) {
    pen.text(LEFT.left, 40.0, words, Style::new(28.0));
    let words = format!("{CHANNELS} channels");
    pen.text(RIGHT.right, 40.0, &words, Style::new(22.0).colour(GREY).anchor(Anchor::End));
}

fn head(pen: &Pen<'_>, rect: Rect, words: &str) {
    pen.text(rect.left, rect.top - 20.0, words, Style::new(LABEL_TEXT));
}

/// Draws a legend entry, in a column and a row below a panel.
fn key(pen: &Pen<'_>, rect: Rect, place: [usize; 2], words: &str, colour: RGBColor) {
    let [column, row] = place;
    let (x, y) = (rect.left + 230.0 * column as f64, rect.bottom + 92.0 + 30.0 * row as f64);
    pen.line(&[(x, y), (x + 30.0, y)], colour, 4.0);
    pen.text(x + 38.0, y, words, Style::new(TICK_TEXT));
}

/// Draws a curve, clipped at the lower edge of the frame.
fn curve(pen: &Pen<'_>, frame: &Frame, points: &[(f64, f64)], colour: RGBColor, width: f64) {
    let floor = frame.y.from;
    for pair in points.windows(2) {
        let [(a, b), (c, d)] = [pair[0], pair[1]];
        if b.max(d) <= floor {
            continue;
        }
        let crossing = |from: (f64, f64), to: (f64, f64)| {
            let part = ((floor - from.1) / (to.1 - from.1)).clamp(0.0, 1.0);
            (from.0 + part * (to.0 - from.0), floor)
        };
        let first = if b < floor { crossing((c, d), (a, b.max(-400.0))) } else { (a, b) };
        let second = if d < floor { crossing((a, b), (c, d.max(-400.0))) } else { (c, d) };
        frame.line(pen, &[first, second], colour, width);
    }
}
