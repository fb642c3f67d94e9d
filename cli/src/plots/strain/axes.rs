//! Common parts of the plots of events: headings, stacked panels, ticks on logarithmic axes.

use super::super::colour::{FAINT, GREY, INK};
use super::super::frame::{Frame, LABEL_TEXT, TICK_TEXT};
use super::super::pen::{Pen, Rect};
use super::super::text::{Anchor, Style};
use super::Heading;

/// Width of every plot.
pub(super) const WIDTH: u32 = 1600;
/// Left and right ends of panels that fill the width.
pub(super) const SIDES: (f64, f64) = (130.0, 1560.0);
/// Height above the first panel.
pub(super) const HEAD: f64 = 156.0;
/// Height between panels, and below the last.
const BETWEEN: f64 = 56.0;
const FOOT: f64 = 90.0;

pub(super) fn heading(pen: &Pen<'_>, heading: &Heading) {
    pen.text(40.0, 46.0, &heading.title, Style::new(32.0));
    pen.text(40.0, 84.0, &heading.subtitle, Style::new(23.0).colour(GREY));
}

/// Returns the height of a plot of `panels` panels of height `each`.
pub(super) fn height(panels: usize, each: f64) -> u32 {
    let panels = panels.max(1) as f64;
    (HEAD + panels * each + (panels - 1.0) * BETWEEN + FOOT) as u32
}

/// Returns the rectangle of the panel with this index.
pub(super) fn panel(index: usize, each: f64) -> Rect {
    let top = HEAD + index as f64 * (each + BETWEEN);
    Rect { left: SIDES.0, top, right: SIDES.1, bottom: top + each }
}

/// Draws a panel's name at its upper left and facts at its upper right.
pub(super) fn caption(pen: &Pen<'_>, rect: Rect, name: &str, facts: &str) {
    pen.text(rect.left, rect.top - 22.0, name, Style::new(25.0));
    let style = Style::new(22.0).colour(GREY).anchor(Anchor::End);
    pen.text(rect.right, rect.top - 22.0, facts, style);
}

/// Draws ticks of a vertical axis whose values are base-10 logarithms, given as pairs of value and text.
pub(super) fn log_ticks(
    pen: &Pen<'_>,
    frame: &Frame,
    ticks: &[(f64, String)],
    label: &str,
    is_right: bool,
) {
    let Rect { left, top, right, bottom } = frame.rect;
    let (edge, out) = if is_right { (right, 1.0) } else { (left, -1.0) };
    let anchor = if is_right { Anchor::Start } else { Anchor::End };
    let mut widest = 44f32;
    for (value, words) in ticks {
        let (_, y) = frame.place(frame.x.from, value.log10());
        if !(top - 0.5..=bottom + 0.5).contains(&y) {
            continue;
        }
        pen.line(&[(edge, y), (edge + 6.0 * out, y)], INK, 1.5);
        pen.text(edge + 11.0 * out, y, words, Style::new(TICK_TEXT).anchor(anchor));
        widest = widest.max(super::super::text::length(words, TICK_TEXT));
    }
    let x = edge + out * (11.0 + f64::from(widest) + 20.0);
    let style = Style::new(LABEL_TEXT).anchor(Anchor::Middle).upwards();
    pen.text(x, 0.5 * (top + bottom), label, style);
}

/// Draws faint lines at the ticks of a logarithmic axis.
pub(super) fn log_guides(pen: &Pen<'_>, frame: &Frame, ticks: &[(f64, String)]) {
    let Rect { left, top, right, bottom } = frame.rect;
    for (value, _) in ticks {
        let (_, y) = frame.place(frame.x.from, value.log10());
        if (top..bottom).contains(&y) {
            pen.line(&[(left, y), (right, y)], FAINT, 1.0);
        }
    }
}

/// Returns powers of ten from 10^low to 10^high, about `most` at most.
pub(super) fn decades(low: i32, high: i32, most: i32) -> Vec<(f64, String)> {
    let step = ((high - low) / most.max(1) + 1).max(1);
    (low..=high)
        .filter(|power| power % step == 0)
        .map(|power| (10f64.powi(power), ten(power)))
        .collect()
}

/// Formats a power of ten: `10⁻³`.
fn ten(power: i32) -> String {
    let raised = |letter: char| match letter {
        '-' => '⁻',
        digit => "⁰¹²³⁴⁵⁶⁷⁸⁹".chars().nth(digit as usize - '0' as usize).unwrap_or(digit),
    };
    match power {
        0 => "1".to_owned(),
        1 => "10".to_owned(),
        _ => format!("10{}", power.to_string().chars().map(raised).collect::<String>()),
    }
}

/// Returns the unit of a time axis of this length: units per second, and the label.
pub(super) fn time_unit(length_s: f64) -> (f64, &'static str) {
    if length_s >= 1.0 {
        (1.0, "Time from the event (s)")
    } else {
        (1e3, "Time from the event (ms)")
    }
}

#[cfg(test)]
mod unit {
    use super::*;

    #[test]
    fn powers_of_ten_are_raised() {
        assert_eq!(ten(-12), "10⁻¹²");
        let words: Vec<String> = decades(-2, 2, 9).into_iter().map(|tick| tick.1).collect();
        assert_eq!(words, ["10⁻²", "10⁻¹", "1", "10", "10²"]);
        assert!(decades(-20, 5, 6).len() <= 7);
    }
}
