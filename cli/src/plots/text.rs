//! Text from the font in assets/, independent of system fonts.
//!
//! The text of plotters ignores each glyph's side bearing, which makes letter spacing uneven; here the font's own
//! metrics position glyphs to a fraction of a pixel.

use std::sync::LazyLock;

use ab_glyph::{Font, FontRef, Glyph, PxScale, ScaleFont};
use plotters::style::RGBColor;

use super::colour::INK;

static INTER: LazyLock<FontRef<'static>> = LazyLock::new(|| {
    let bytes: &[u8] = include_bytes!("../../assets/Inter-Regular.otf");
    FontRef::try_from_slice(bytes).expect("the font in assets/ is whole")
});

/// Point of the text at its position, along and across.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Anchor {
    Start,
    Middle,
    End,
}

/// Style of a line of text.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Style {
    /// Height of a line in pixels, about 1.2 times the type size.
    pub(crate) size: f32,
    pub(crate) colour: RGBColor,
    /// Anchor along the text.
    pub(crate) anchor: Anchor,
    /// Whether the text runs upwards.
    pub(crate) upwards: bool,
}

impl Style {
    /// Creates dark text of a size, with its left end at its position.
    pub(crate) fn new(size: f32) -> Self {
        Self { size, colour: INK, anchor: Anchor::Start, upwards: false }
    }

    pub(crate) fn colour(self, colour: RGBColor) -> Self {
        Self { colour, ..self }
    }

    pub(crate) fn anchor(self, anchor: Anchor) -> Self {
        Self { anchor, ..self }
    }

    pub(crate) fn upwards(self) -> Self {
        Self { upwards: true, ..self }
    }
}

/// Returns text of a size, reduced if a line would be longer than `most` pixels.
pub(crate) fn fitted(words: &str, size: f32, most: f32) -> Style {
    Style::new(size * (most / length(words, size)).min(1.0))
}

/// Returns the length of a line of text in pixels.
pub(crate) fn length(words: &str, size: f32) -> f32 {
    layout(words, size).1
}

fn layout(words: &str, size: f32) -> (Vec<Glyph>, f32) {
    let font = INTER.as_scaled(PxScale::from(size));
    let mut glyphs = Vec::new();
    let mut along = 0.0;
    let mut before = None;
    for letter in words.chars() {
        let mut glyph = font.scaled_glyph(letter);
        if let Some(before) = before {
            along += font.kern(before, glyph.id);
        }
        glyph.position = ab_glyph::point(along, 0.0);
        along += font.h_advance(glyph.id);
        before = Some(glyph.id);
        glyphs.push(glyph);
    }
    (glyphs, along)
}

/// Calls `dot(x, y, coverage)` for each pixel of a line of text at `x`, `y`, centred across its direction.
pub(crate) fn draw(words: &str, x: f64, y: f64, style: &Style, mut dot: impl FnMut(i32, i32, f32)) {
    let (glyphs, length) = layout(words, style.size);
    let begin = match style.anchor {
        Anchor::Start => 0.0,
        Anchor::Middle => -0.5 * length,
        Anchor::End => -length,
    };
    // Digits and capitals are centred 0.3 of a line above the baseline.
    let base = 0.3 * style.size;
    let (x, y) = (x as f32, y as f32);
    for mut glyph in glyphs {
        let along = if style.upwards { -y } else { x };
        let across = if style.upwards { x } else { y };
        glyph.position = ab_glyph::point(along + begin + glyph.position.x, across + base);
        let Some(outline) = INTER.outline_glyph(glyph) else { continue };
        let corner = outline.px_bounds().min;
        outline.draw(|dx, dy, coverage| {
            let (along, across) = (corner.x as i32 + dx as i32, corner.y as i32 + dy as i32);
            let (x, y) = if style.upwards { (across, -along - 1) } else { (along, across) };
            dot(x, y, coverage.min(1.0));
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ink(words: &str, style: &Style) -> (f32, [i32; 4]) {
        let mut ink = 0.0;
        let mut bounds = [i32::MAX, i32::MAX, i32::MIN, i32::MIN];
        draw(words, 100.0, 100.0, style, |x, y, coverage| {
            ink += coverage;
            bounds = [bounds[0].min(x), bounds[1].min(y), bounds[2].max(x), bounds[3].max(y)];
        });
        (ink, bounds)
    }

    #[test]
    fn text_draws_without_a_font_of_the_system() {
        let (drawn, bounds) = ink("DM 475 pc cm⁻³", &Style::new(20.0));
        assert!(drawn > 200.0);
        assert!(bounds[0] >= 99 && bounds[2] > 200 && bounds[1] > 85 && bounds[3] < 115);
    }

    #[test]
    fn every_sign_that_plots_use_is_in_the_font() {
        for letter in "0123456789.,:;−–-+×±·()[]/%°µσ⁻⁰¹²³⁴⁵⁶⁷⁸⁹₀ΔabcXYZ".chars()
        {
            assert!(INTER.glyph_id(letter).0 != 0, "{letter}");
        }
    }

    #[test]
    fn text_that_runs_upwards_ends_above_its_place() {
        let (_, bounds) = ink("frequency", &Style::new(20.0).upwards());
        assert!(bounds[1] < 40 && bounds[3] <= 101);
        assert!(length("ww", 20.0) > 1.9 * length("w", 20.0));
    }
}
