//! Plot of a burst as recorded: higher frequencies arrive first.

use sidereal::Result;
use sidereal::pipeline::cutout::Cutout;
use sidereal::units::{DM_CONSTANT, HZ_PER_MHZ, dispersion_delay_s};

use super::colour::{GREY, quantiles};
use super::frame::{Axis, Frame, Labels};
use super::pen::{Rect, Size, picture};
use super::png::Png;
use super::short;
use super::text::{Anchor, Style};

/// Contents of the plot.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sweep<'a> {
    /// Power without dedispersion.
    pub(crate) cutout: &'a Cutout,
    /// Start of the first bin, seconds after the burst at the highest frequency.
    pub(crate) start_s: f64,
    /// DM of the burst.
    pub(crate) dm: f64,
}

const SIZE: Size = Size { width: 1600, height: 760 };
const PLANE: Rect = Rect { left: 130.0, top: 90.0, right: 1560.0, bottom: 670.0 };

/// Draws a burst with the expected dispersion curve offset to both sides.
///
/// # Errors
/// [`sidereal::Error::Io`] when the file cannot be written.
pub(crate) fn sweep(file: &Png<'_>, about: &Sweep<'_>) -> Result<()> {
    let cutout = about.cutout;
    let length_s = cutout.times as f64 * cutout.bin_s;
    let frame = Frame {
        rect: PLANE,
        x: Axis::new(about.start_s * 1e3, (about.start_s + length_s) * 1e3),
        y: Axis::new(cutout.lowest_mhz, cutout.highest_mhz),
    };
    let curve = |offset_s: f64| -> Vec<(f64, f64)> {
        let at = |step: i32| {
            let part = f64::from(step) / 100.0;
            let mhz = cutout.lowest_mhz + part * (cutout.highest_mhz - cutout.lowest_mhz);
            let (hz, reference_hz) = (mhz * HZ_PER_MHZ, cutout.highest_mhz * HZ_PER_MHZ);
            let delay_s = dispersion_delay_s(about.dm, hz, reference_hz, DM_CONSTANT);
            ((delay_s + offset_s) * 1e3, mhz)
        };
        (0..=100).map(at).collect()
    };
    let words = format!("As recorded; the lines follow DM {} pc cm⁻³", short(about.dm, 4));
    picture(file, SIZE, |pen| {
        pen.text(PLANE.left, 50.0, &words, Style::new(26.0));
        let right = Style::new(22.0).colour(GREY).anchor(Anchor::End);
        pen.text(PLANE.right, 50.0, "brighter is stronger", right);
        frame.plane(
            pen,
            &cutout.waterfall,
            cutout.times,
            quantiles(&cutout.waterfall, 0.05, 0.998),
        );
        for offset_s in [-0.06 * length_s, 0.06 * length_s] {
            frame.line(pen, &curve(offset_s), plotters::style::WHITE, 1.5);
        }
        frame.axes(
            pen,
            Labels::Full("Time after the burst at the top (ms)"),
            Labels::Full("Frequency (MHz)"),
        );
    })
}
