//! Plot of one candidate: profile, dedispersed waterfall, DM-time plane, S/N against DM.

use sidereal::Result;
use sidereal::pipeline::cutout::Cutout;

use super::colour::{BLUE, GREY, RED, Scale, quantiles};
use super::duration;
use super::frame::{Axis, Frame, Labels, TICK_TEXT};
use super::pen::{Pen, Rect, Size, picture};
use super::png::Png;
use super::text::{Anchor, Style, fitted};

/// Header of the plot.
#[derive(Clone, Debug)]
pub(crate) struct Candidate {
    /// File name of the recording.
    pub(crate) file: String,
    /// Source and telescope, if known.
    pub(crate) target: String,
    /// Rank: `candidate 1 of 7`.
    pub(crate) rank: String,
    pub(crate) dm: f64,
    pub(crate) time_s: f64,
    pub(crate) snr: f64,
    pub(crate) width_s: f64,
    /// Time at the highest frequency, MJD (UTC), if known.
    pub(crate) mjd: Option<f64>,
    /// Lower and upper edges of the masked parts of the band.
    pub(crate) masked_mhz: Vec<(f64, f64)>,
}

const SIZE: Size = Size { width: 1600, height: 1000 };

const PROFILE: Rect = Rect { left: 120.0, top: 130.0, right: 760.0, bottom: 320.0 };
const WATERFALL: Rect = Rect { left: 120.0, top: 340.0, right: 760.0, bottom: 915.0 };
const PLANE: Rect = Rect { left: 880.0, top: 340.0, right: 1265.0, bottom: 915.0 };
const CURVE: Rect = Rect { left: 1375.0, top: 340.0, right: 1570.0, bottom: 915.0 };

/// Draws a candidate's page.
///
/// # Errors
/// [`sidereal::Error::Io`] when the file cannot be written.
pub(crate) fn candidate(file: &Png<'_>, cutout: &Cutout, about: &Candidate) -> Result<()> {
    picture(file, SIZE, |pen| {
        header(pen, about);
        facts(pen, cutout, about);
        let times = Times::new(cutout);
        profile(pen, cutout, about, &times);
        waterfall(pen, cutout, about, &times);
        plane(pen, cutout, about, &times);
        curve(pen, cutout, about);
    })
}

/// Time axis shared by three panels.
struct Times {
    axis: Axis,
    /// Axis units per second.
    scale: f64,
    label: String,
}

impl Times {
    fn new(cutout: &Cutout) -> Self {
        let length_s = cutout.times as f64 * cutout.bin_s;
        let (scale, unit) = match length_s {
            s if s >= 2.0 => (1.0, "s"),
            s if s >= 2e-3 => (1e3, "ms"),
            _ => (1e6, "µs"),
        };
        let axis = Axis::new(cutout.start_s * scale, (cutout.start_s + length_s) * scale);
        Self { axis, scale, label: format!("Time from the candidate ({unit})") }
    }
}

fn header(pen: &Pen<'_>, about: &Candidate) {
    pen.text(40.0, 46.0, &about.file, Style::new(34.0));
    let right = Style::new(24.0).colour(GREY).anchor(Anchor::End);
    pen.text(1570.0, 46.0, &about.rank, right);
    pen.text(40.0, 84.0, &about.target, fitted(&about.target, 24.0, 1530.0).colour(GREY));
}

/// Draws the candidate's parameters above the DM-time plane.
fn facts(pen: &Pen<'_>, cutout: &Cutout, about: &Candidate) {
    let mjd = about.mjd.map_or_else(|| "not known".to_owned(), |mjd| format!("{mjd:.9}"));
    let rows = [
        ("S/N", format!("{:.2}", about.snr)),
        ("DM", format!("{:.2} pc cm⁻³", about.dm)),
        ("Time", format!("{:.6} s", about.time_s)),
        ("Width", duration(about.width_s)),
        ("MJD (UTC)", mjd),
        ("Bin shown", duration(cutout.bin_s)),
    ];
    for (index, (name, value)) in rows.iter().enumerate() {
        let x = PLANE.left + 350.0 * (index / 3) as f64;
        let y = 165.0 + 48.0 * (index % 3) as f64;
        pen.text(x, y, name, Style::new(24.0).colour(GREY));
        pen.text(x + 130.0, y, value, Style::new(27.0));
    }
}

/// Shades the interval of the boxcar.
fn boxcar(pen: &Pen<'_>, frame: &Frame, about: &Candidate, times: &Times) {
    let half = 0.5 * about.width_s * times.scale;
    let (left, _) = frame.place(-half, frame.y.from);
    let (right, _) = frame.place(half, frame.y.from);
    pen.block(Rect { left, right, ..frame.rect }, RED, 0.16);
}

fn profile(pen: &Pen<'_>, cutout: &Cutout, about: &Candidate, times: &Times) {
    let low = cutout.profile.iter().copied().fold(-2.0, f32::min);
    let high = cutout.profile.iter().copied().fold(4.0, f32::max);
    let room = 0.06 * f64::from(high - low);
    let y = Axis::new(f64::from(low) - room, f64::from(high) + room);
    let frame = Frame { rect: PROFILE, x: times.axis, y };
    boxcar(pen, &frame, about, times);
    frame.line(pen, &[(times.axis.from, 0.0), (times.axis.to, 0.0)], GREY, 1.0);
    let bin = cutout.bin_s * times.scale;
    let step = |(index, value): (usize, &f32)| {
        let left = times.axis.from + index as f64 * bin;
        [(left, f64::from(*value)), (left + bin, f64::from(*value))]
    };
    let points: Vec<_> = cutout.profile.iter().enumerate().flat_map(step).collect();
    frame.line(pen, &points, BLUE, 2.0);
    frame.axes(pen, Labels::None, Labels::Full("S/N of a bin"));
}

fn waterfall(pen: &Pen<'_>, cutout: &Cutout, about: &Candidate, times: &Times) {
    let y = Axis::new(cutout.lowest_mhz, cutout.highest_mhz);
    let frame = Frame { rect: WATERFALL, x: times.axis, y };
    let shown = smoothed(cutout, rows(about.snr));
    let scale = quantiles(&shown, 0.03, 0.998);
    frame.plane(pen, &shown, cutout.times, scale);
    frame.axes(pen, Labels::Full(&times.label), Labels::Full("Frequency (MHz)"));
    marks(pen, &frame, about, times);
    left_out(pen, &frame, about);
}

/// Marks the masked parts of the band beside the waterfall.
fn left_out(pen: &Pen<'_>, frame: &Frame, about: &Candidate) {
    let left = frame.rect.right + 4.0;
    for (low, high) in &about.masked_mhz {
        let (_, bottom) = frame.place(frame.x.from, low.max(frame.y.from));
        let (_, top) = frame.place(frame.x.from, high.min(frame.y.to));
        // Keeps a narrow channel visible.
        let middle = 0.5 * (top + bottom);
        let half = (0.5 * (bottom - top)).max(0.75);
        let rect = Rect { left, right: left + 9.0, top: middle - half, bottom: middle + half };
        pen.block(rect, RED, 1.0);
    }
    if !about.masked_mhz.is_empty() {
        let style = Style::new(TICK_TEXT - 2.0).colour(RED).anchor(Anchor::Middle);
        pen.text(left + 20.0, frame.rect.top - 11.0, "left out", style);
    }
}

/// Returns the number of waterfall rows at which a pulse is still visible: S/N of about 2 in each row.
fn rows(snr: f64) -> usize {
    ((snr * snr / 4.0) as usize).clamp(16, 64)
}

/// Averages adjacent sub-bands of the waterfall to at most `rows` rows.
fn smoothed(cutout: &Cutout, rows: usize) -> Vec<f32> {
    let join = cutout.channels.div_ceil(rows).max(1);
    let rows = cutout.channels.div_ceil(join);
    let mut shown = Vec::with_capacity(rows * cutout.times);
    for group in cutout.waterfall.chunks(join * cutout.times) {
        for time in 0..cutout.times {
            let values = group.iter().skip(time).step_by(cutout.times).filter(|x| x.is_finite());
            let (sum, count) = values.fold((0f32, 0u32), |(sum, n), x| (sum + x, n + 1));
            shown.push(if count > 0 { sum / (count as f32).sqrt() } else { f32::NAN });
        }
    }
    shown
}

/// Draws two small triangles above a plane's upper edge, at the boxcar's edges.
fn marks(pen: &Pen<'_>, frame: &Frame, about: &Candidate, times: &Times) {
    let top = frame.rect.top;
    for side in [-0.5, 0.5] {
        let (x, _) = frame.place(side * about.width_s * times.scale, frame.y.from);
        pen.fill(&[(x, top - 2.0), (x - 6.0, top - 12.0), (x + 6.0, top - 12.0)], RED, 1.0);
    }
}

fn plane(pen: &Pen<'_>, cutout: &Cutout, about: &Candidate, times: &Times) {
    let frame = Frame { rect: PLANE, x: times.axis, y: dm_axis(cutout) };
    // The plane's first row is the lowest trial, the frame's first row is at the top.
    let rows = cutout.plane.chunks(cutout.times).rev();
    let flipped: Vec<f32> = rows.flatten().copied().collect();
    let low = quantiles(&flipped, 0.02, 0.98).low;
    let scale = Scale { low, high: quantiles(&flipped, 0.02, 0.9995).high };
    frame.plane(pen, &flipped, cutout.times, scale);
    frame.axes(pen, Labels::Full(&times.label), Labels::Full("DM (pc cm⁻³)"));
    frame.colour_bar(pen, scale, "S/N");
    marks(pen, &frame, about, times);
}

fn curve(pen: &Pen<'_>, cutout: &Cutout, about: &Candidate) {
    let high = cutout.snr.iter().copied().fold(1.0, f32::max);
    let x = Axis::new(0.0, 1.08 * f64::from(high));
    let frame = Frame { rect: CURVE, x, y: dm_axis(cutout) };
    frame.line(pen, &[(x.from, about.dm), (x.to, about.dm)], RED, 1.5);
    let points: Vec<_> =
        cutout.snr.iter().zip(&cutout.dms).map(|(snr, dm)| (f64::from(*snr), *dm)).collect();
    frame.line(pen, &points, BLUE, 2.5);
    frame.axes(pen, Labels::Full("S/N of the boxcar"), Labels::None);
}

fn dm_axis(cutout: &Cutout) -> Axis {
    let ends = (cutout.dms.first(), cutout.dms.last());
    Axis::new(ends.0.copied().unwrap_or(0.0), ends.1.copied().unwrap_or(1.0))
}
