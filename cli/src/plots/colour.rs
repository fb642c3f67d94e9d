//! Colours: one colour map for planes, dark to light in even steps, and a few line colours.

use plotters::style::RGBColor;

/// Colour of text and axes.
pub(crate) const INK: RGBColor = RGBColor(28, 30, 38);
/// Colour of secondary text.
pub(crate) const GREY: RGBColor = RGBColor(110, 114, 125);
/// Colour of guide lines.
pub(crate) const FAINT: RGBColor = RGBColor(222, 224, 230);
/// Colour of missing data.
pub(crate) const BLANK: RGBColor = RGBColor(206, 208, 214);
/// Colour of data.
pub(crate) const BLUE: RGBColor = RGBColor(33, 84, 160);
/// Colour of highlights.
pub(crate) const RED: RGBColor = RGBColor(208, 66, 40);

/// Support points of the colour map; their lightness rises evenly.
const ANCHORS: [[f32; 3]; 8] = [
    [9.0, 8.0, 26.0],
    [42.0, 20.0, 82.0],
    [91.0, 27.0, 112.0],
    [142.0, 40.0, 109.0],
    [193.0, 61.0, 86.0],
    [232.0, 99.0, 54.0],
    [250.0, 159.0, 40.0],
    [253.0, 243.0, 178.0],
];

/// Support points of the cyclic colour map for phases, of about equal lightness; the last equals the first.
const WHEEL: [[f32; 3]; 9] = [
    [170.0, 122.0, 20.0],
    [214.0, 90.0, 66.0],
    [221.0, 68.0, 150.0],
    [168.0, 98.0, 226.0],
    [74.0, 137.0, 214.0],
    [30.0, 155.0, 160.0],
    [60.0, 155.0, 90.0],
    [128.0, 142.0, 20.0],
    [170.0, 122.0, 20.0],
];

/// Returns the colour of a value from 0 (dark) to 1 (light); blank for NaN.
pub(crate) fn map(value: f32) -> RGBColor {
    between(&ANCHORS, value)
}

/// Returns the colour of a phase from 0 to 1, which have the same colour; blank for NaN.
pub(crate) fn wheel(value: f32) -> RGBColor {
    between(&WHEEL, value)
}

fn between(anchors: &[[f32; 3]], value: f32) -> RGBColor {
    if value.is_nan() {
        return BLANK;
    }
    let place = value.clamp(0.0, 1.0) * (anchors.len() - 1) as f32;
    let below = (place as usize).min(anchors.len() - 2);
    let part = place - below as f32;
    let mix = |k: usize| {
        let [low, high] = [anchors[below][k], anchors[below + 1][k]];
        (low + (high - low) * part).round() as u8
    };
    RGBColor(mix(0), mix(1), mix(2))
}

/// Range of values that the colour map spans.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Scale {
    pub(crate) low: f32,
    pub(crate) high: f32,
}

impl Scale {
    /// Returns the colour of a value, dark at `low` and light at `high`; blank for NaN.
    pub(crate) fn colour(self, value: f32) -> RGBColor {
        map((value - self.low) / (self.high - self.low))
    }
}

/// Returns the values below which the fractions `low` and `high` of the finite values lie.
pub(crate) fn quantiles(values: &[f32], low: f64, high: f64) -> Scale {
    let mut finite: Vec<f32> = values.iter().copied().filter(|x| x.is_finite()).collect();
    finite.sort_unstable_by(f32::total_cmp);
    if finite.is_empty() {
        return Scale { low: 0.0, high: 1.0 };
    }
    let at = |part: f64| finite[((finite.len() - 1) as f64 * part).round() as usize];
    let (low, high) = (at(low), at(high));
    Scale { low, high: if high > low { high } else { low + 1.0 } }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_map_grows_lighter_all_the_way() {
        let lightness = |c: RGBColor| {
            0.2126 * f32::from(c.0) + 0.7152 * f32::from(c.1) + 0.0722 * f32::from(c.2)
        };
        let steps: Vec<f32> = (0..=100).map(|i| lightness(map(i as f32 / 100.0))).collect();
        assert!(steps.windows(2).all(|pair| pair[0] <= pair[1] + 0.5));
        assert_eq!(map(f32::NAN), BLANK);
        assert_eq!(map(7.0), map(1.0));
    }

    #[test]
    fn the_wheel_closes() {
        assert_eq!(wheel(0.0), wheel(1.0));
        assert_ne!(wheel(0.0), wheel(0.5));
        assert_eq!(wheel(f32::NAN), BLANK);
    }

    #[test]
    fn quantiles_of_nothing_and_of_a_constant_still_span() {
        assert_eq!(quantiles(&[], 0.1, 0.9), Scale { low: 0.0, high: 1.0 });
        assert_eq!(quantiles(&[3.0; 5], 0.1, 0.9), Scale { low: 3.0, high: 4.0 });
        assert_eq!(quantiles(&[0.0, 1.0, f32::NAN, 2.0], 0.0, 1.0), Scale { low: 0.0, high: 2.0 });
    }
}
