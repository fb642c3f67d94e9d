//! `sidereal bench plane`: DM-time plane around a pulse at DM 90, as in Figures 12 to 14 of the AstroAccelerate
//! paper, and its differences from an independent float64 sum.

use std::path::PathBuf;

use clap::Args;
use sidereal::backend::Backend;
use sidereal::dedisperse::{self, Dedisperser};
use sidereal::io::FilterbankSource;
use sidereal::sample::{Encoding, Samples};
use sidereal::simulate::burst::{Burst, Simulator};
use sidereal::units::{Band, DM_CONSTANT};
use sidereal::view::PlaneMut;
use sidereal::{Error, Result};

use crate::common::Common;
use crate::plots::Png;
use crate::plots::colour::{self, GREY};
use crate::plots::frame::{Axis, Frame, Labels};
use crate::plots::pen::{Pen, Rect, picture};
use crate::plots::text::{Anchor, Style};
use crate::provenance::Made;

/// Dedisperse a pulse at DM 90 to trials from 0 to 200 and compare every sum with an independent double-precision
/// sum.
#[derive(Args, Clone, Debug)]
pub(crate) struct Arguments {
    /// Plot the plane and the differences.
    #[arg(long, value_name = "FILE.png")]
    pub(super) plot: Option<PathBuf>,
}

const TSAMP_S: f64 = 256e-6;
const CHANNELS: usize = 1024;
const FIRST_MHZ: f64 = 1_549.853_515_625;
const STEP_MHZ: f64 = -300.0 / 1024.0;
const TIMES: u64 = 8192;
const TRIALS: usize = 400;
const DM_STEP: f64 = 0.5;
const PULSE_DM: f64 = 90.0;
const PULSE_TIME_S: f64 = 0.8;

/// Sums of every trial over the times that the longest delay leaves; axes dm, time.
struct Sums {
    times: usize,
    fast: Vec<f64>,
    slow: Vec<f64>,
}

pub(crate) fn run(arguments: &Arguments, common: &Common) -> Result<()> {
    let sums = sums(&common.backend()?)?;
    let differing = sums.fast.iter().zip(&sums.slow).filter(|(fast, slow)| fast != slow).count();
    let largest = largest(&sums);
    report(&sums, (differing, largest), common)?;
    if let Some(path) = &arguments.plot {
        draw(&Png::new(path, &Made::new(common, &[])?), &sums, largest)?;
    }
    if differing == 0 {
        return Ok(());
    }
    let why = format!("{differing} of {} sums differ, by {largest} at most", sums.fast.len());
    Err(Error::Unavailable { what: "an exact plane".to_owned(), why })
}

fn largest(sums: &Sums) -> f64 {
    sums.fast.iter().zip(&sums.slow).map(|(fast, slow)| (fast - slow).abs()).fold(0.0, f64::max)
}

#[allow(clippy::print_stdout)]
fn report(sums: &Sums, (differing, largest): (usize, f64), common: &Common) -> Result<()> {
    if common.json {
        let document = serde_json::json!({
            "bench": "plane", "dms": TRIALS, "times": sums.times, "differing": differing,
            "largest_difference": largest,
        });
        return crate::json::print(&Made::new(common, &[])?.product("bench", document));
    } else if !common.quiet {
        println!(
            "{TRIALS} trials x {} times of {CHANNELS} channels: {differing} sums differ from the \
             float64 sum, by {largest} at most",
            sums.times
        );
    }
    Ok(())
}

fn sums(backend: &Backend) -> Result<Sums> {
    let band = Band::uniform(FIRST_MHZ, STEP_MHZ, CHANNELS)?;
    let mut options = sidereal::simulate::burst::Options::new(band.clone(), TSAMP_S, TIMES);
    options.bursts.push(Burst::new(PULSE_DM, PULSE_TIME_S, 4e-3, 60.0));
    options.seed = 90;
    let mut source = Simulator::new(options)?;
    let mut rows = vec![0; TIMES as usize * CHANNELS];
    source.read(&mut rows)?;
    let dms: Vec<f64> = (0..TRIALS).map(|trial| trial as f64 * DM_STEP).collect();
    let plan = dedisperse::Plan::new(dedisperse::Options {
        band,
        tsamp_s: TSAMP_S,
        dms: dms.clone(),
        downsample: 1,
        encoding: Encoding::U8,
        range: None,
        masked: Vec::new(),
        dm_constant: DM_CONSTANT,
    })?;
    let mut dedisperser = Dedisperser::new(plan, backend)?;
    let stride = TIMES as usize;
    let mut plane = vec![0; TRIALS * stride];
    let output = dedisperse::Output::I32(PlaneMut::new(&mut plane, TRIALS, stride)?);
    let times = dedisperser.run(Samples::u8(&rows, stride, CHANNELS)?, output)?.produced;
    let fast = plane.chunks(stride).flat_map(|row| row[..times].iter().map(|y| f64::from(*y)));
    let slow = dms.iter().flat_map(|dm| independent(&rows, *dm, times)).collect();
    Ok(Sums { times, fast: fast.collect(), slow })
}

/// Computes the dedispersion equation independently: no plan, no shared code, double precision throughout.
fn independent(rows: &[u8], dm: f64, times: usize) -> Vec<f64> {
    let mut series = vec![0.0; times];
    for channel in 0..CHANNELS {
        let mhz = FIRST_MHZ + channel as f64 * STEP_MHZ;
        let delay_s = 4148.808 * dm * (mhz.powi(-2) - FIRST_MHZ.powi(-2));
        let shift = (delay_s / TSAMP_S).round_ties_even() as usize;
        for (time, sum) in series.iter_mut().enumerate() {
            *sum += f64::from(rows[(time + shift) * CHANNELS + channel]);
        }
    }
    series
}

const SIZE: (u32, u32) = (1600, 1000);
const PLANE: Rect = Rect { left: 130.0, top: 110.0, right: 1130.0, bottom: 520.0 };
const DIFFERENCE: Rect = Rect { left: 130.0, top: 580.0, right: 1130.0, bottom: 900.0 };
const CURVE: Rect = Rect { left: 1240.0, top: 110.0, right: 1560.0, bottom: 520.0 };

/// Draws the plane in units of its noise, the best S/N of each trial, and the differences.
fn draw(file: &Png<'_>, sums: &Sums, largest: f64) -> Result<()> {
    let (snr, best) = normalized(sums);
    let difference: Vec<f32> =
        sums.fast.iter().zip(&sums.slow).map(|(fast, slow)| (fast - slow).abs() as f32).collect();
    let top = (TRIALS - 1) as f64 * DM_STEP;
    let span_s = sums.times as f64 * TSAMP_S;
    picture(file, SIZE, |pen| {
        pen.text((40.0, 46.0), "A pulse at DM 90, trials 0 to 200 by 0.5", Style::new(30.0));
        let frame = |rect| Frame { rect, x: Axis::new(0.0, span_s), y: Axis::new(0.0, top) };
        let (time, dm) = (Labels::Full("Time (s)"), Labels::Full("DM (pc cm⁻³)"));
        plane(pen, &frame(PLANE), &snr, sums.times, (-3.0, 12.0));
        frame(PLANE).axes(pen, Labels::None, dm);
        plane(pen, &frame(DIFFERENCE), &difference, sums.times, (0.0, 1.0));
        frame(DIFFERENCE).axes(pen, time, dm);
        let words = format!("|sum − independent float64 sum|: at most {largest}");
        let middle = (0.5 * (DIFFERENCE.left + DIFFERENCE.right), DIFFERENCE.top - 22.0);
        pen.text(middle, &words, Style::new(21.0).colour(GREY).anchor(Anchor::Middle));
        let most = best.iter().copied().fold(1.0, f64::max);
        let curve = Frame { rect: CURVE, x: Axis::new(0.0, 1.05 * most), y: Axis::new(0.0, top) };
        let points: Vec<(f64, f64)> =
            best.iter().enumerate().map(|(d, s)| (*s, d as f64 * DM_STEP)).collect();
        curve.line(pen, &points, colour::BLUE, 2.0);
        curve.axes(pen, Labels::Full("highest sample / noise"), Labels::None);
    })
}

/// Draws the plane, lowest DM at the bottom; each pixel is the mean of its samples.
fn plane(pen: &Pen<'_>, frame: &Frame, values: &[f32], times: usize, scale: (f32, f32)) {
    let flipped: Vec<f32> = values.chunks(times).rev().flatten().copied().collect();
    frame.plane(pen, &flipped, times, scale);
}

/// Returns each trial less its mean, divided by the standard deviation of trial 0, and the maximum of each trial.
fn normalized(sums: &Sums) -> (Vec<f32>, Vec<f64>) {
    let mean = |row: &[f64]| row.iter().sum::<f64>() / row.len() as f64;
    let rows: Vec<&[f64]> = sums.fast.chunks(sums.times).collect();
    let last = rows[TRIALS - 1];
    let centre = mean(last);
    let squares = last.iter().map(|y| (y - centre).powi(2)).sum::<f64>();
    let sigma = (squares / last.len() as f64).sqrt();
    let mut values = Vec::with_capacity(sums.fast.len());
    let mut best = Vec::with_capacity(TRIALS);
    for row in rows {
        let centre = mean(row);
        values.extend(row.iter().map(|y| ((y - centre) / sigma) as f32));
        best.push(row.iter().map(|y| (y - centre) / sigma).fold(f64::MIN, f64::max));
    }
    (values, best)
}
