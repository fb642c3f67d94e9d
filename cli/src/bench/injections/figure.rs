//! Figure of the campaign: ratios, times, phases and xi-squared, each against the injected ratio.

use sidereal::Result;

use super::case::{Outcome, Pair, Recovered};
use super::report;
use crate::plots::Png;
use crate::plots::colour::{self, FAINT, GREY};
use crate::plots::frame::{Axis, Frame, Labels, TICK_TEXT};
use crate::plots::pen::{Pen, Rect, picture};
use crate::plots::text::{Anchor, Style};

const SIZE: (u32, u32) = (1400, 1010);
const LEFT: f64 = 120.0;
const TOP: f64 = 90.0;
const STEP: (f64, f64) = (680.0, 450.0);
const PANEL: (f64, f64) = (560.0, 360.0);
/// Range of the injected ratios.
const RATIOS: (f64, f64) = (5.0, 30.0);

/// Panel: label, limits, lines at expected values, and plotted values.
struct Panel {
    label: &'static str,
    limits: (f64, f64),
    expected: &'static [f64],
    value: fn(&Pair, &Recovered) -> f64,
}

const PANELS: [Panel; 4] = [
    Panel {
        label: "SNR found − expected",
        limits: (-5.0, 5.0),
        expected: &[-2.0, 0.0, 2.0],
        value: |pair, one| one.snr - pair.expected,
    },
    Panel {
        label: "time error / sigma",
        limits: (-5.0, 5.0),
        expected: &[-2.0, 0.0, 2.0],
        value: |_, one| one.time_error_s / one.time_sigma_s,
    },
    Panel {
        label: "phase error / sigma",
        limits: (-5.0, 5.0),
        expected: &[-2.0, 0.0, 2.0],
        value: |_, one| one.phase_error_rad / one.phase_sigma_rad,
    },
    Panel { label: "xi-squared", limits: (0.0, 2.5), expected: &[1.0], value: |_, one| one.xi2 },
];

/// Draws the campaign.
///
/// # Errors
/// [`sidereal::Error::Io`] when the file can't be written.
pub(super) fn draw(file: &Png<'_>, outcomes: &[Outcome]) -> Result<()> {
    picture(file, SIZE, |pen| {
        let found = outcomes.iter().filter(|outcome| outcome.network_snr.is_some()).count();
        let title =
            format!("{} binaries injected into two detectors, {found} found", outcomes.len());
        pen.text((40.0, 40.0), &title, Style::new(28.0));
        key(pen);
        for (index, panel) in PANELS.iter().enumerate() {
            draw_panel(pen, (index % 2, index / 2), panel, outcomes);
        }
    })
}

/// Maps a binary's total mass, on a logarithmic scale from the lightest to the heaviest, to a colour.
fn shade(total_msun: f64) -> plotters::style::RGBColor {
    let part = (total_msun / 2.8).ln() / (60.0_f64 / 2.8).ln();
    colour::map((0.1 + 0.75 * part) as f32)
}

fn key(pen: &Pen<'_>) {
    let style = Style::new(TICK_TEXT).colour(GREY);
    let mut x = 1060.0;
    pen.text((x - 20.0, 40.0), "total mass", style.anchor(Anchor::End));
    for total in [3.0, 10.0, 30.0, 60.0] {
        pen.disc((x, 40.0), 7.0, shade(total));
        pen.text((x + 16.0, 40.0), &format!("{total:.0}"), style);
        x += 80.0;
    }
}

fn draw_panel(pen: &Pen<'_>, place: (usize, usize), panel: &Panel, outcomes: &[Outcome]) {
    let (left, top) = (LEFT + place.0 as f64 * STEP.0, TOP + place.1 as f64 * STEP.1);
    let rect = Rect { left, top, right: left + PANEL.0, bottom: top + PANEL.1 };
    let (low, high) = panel.limits;
    let frame = Frame { rect, x: Axis::new(RATIOS.0, RATIOS.1), y: Axis::new(low, high) };
    for (index, value) in panel.expected.iter().enumerate() {
        let shade = if index == panel.expected.len() / 2 { GREY } else { FAINT };
        frame.line(pen, &[(RATIOS.0, *value), (RATIOS.1, *value)], shade, 1.5);
    }
    for outcome in outcomes {
        let total = outcome.case.masses_msun.0 + outcome.case.masses_msun.1;
        for (pair, one) in report::recovered(&[outcome]) {
            let value = (panel.value)(&pair, &one).clamp(low, high);
            pen.disc(frame.place(pair.injected.min(RATIOS.1), value), 4.5, shade(total));
        }
    }
    let words =
        if place.1 == 1 { Labels::Full("injected SNR of the detector") } else { Labels::Numbers };
    frame.axes(pen, words, Labels::Full(panel.label));
}
