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

use crate::runner::{Document, Session, say};

/// Dedisperse a pulse at DM 90 to trials from 0 to 200 and compare every sum with an independent double-precision
/// sum.
#[derive(Args, Clone, Debug)]
pub(crate) struct Arguments {
    /// Plot the plane and the differences.
    #[arg(long, value_name = "FILE.png")]
    pub(crate) plot: Option<PathBuf>,
}

const CHANNELS: usize = 1024;
const FIRST_MHZ: f64 = 1_549.853_515_625;
const STEP_MHZ: f64 = -300.0 / 1024.0;
const TIMES: u64 = 8192;
const PULSE_DM: f64 = 90.0;
const PULSE_TIME_S: f64 = 0.8;

/// Sums of every trial over the times that the longest delay leaves; axes dm, time.
#[derive(Debug)]
pub struct Sums {
    /// Samples of each trial.
    pub times: usize,
    /// Sums of the dedisperser.
    pub fast: Vec<f64>,
    /// Independent float64 sums.
    pub slow: Vec<f64>,
}

impl Sums {
    /// Sampling time in seconds.
    pub const TSAMP_S: f64 = 256e-6;
    /// Number of trials.
    pub const TRIALS: usize = 400;
    /// Step between trials in pc cm^-3.
    pub const DM_STEP: f64 = 0.5;

    /// Returns the number of sums that differ.
    fn differing(&self) -> usize {
        self.fast.iter().zip(&self.slow).filter(|(fast, slow)| fast != slow).count()
    }

    /// Returns the largest difference between both sums.
    pub fn largest_difference(&self) -> f64 {
        let differences = self.fast.iter().zip(&self.slow).map(|(fast, slow)| (fast - slow).abs());
        differences.fold(0.0, f64::max)
    }
}

/// Computes and compares the plane, and prints the comparison.
pub(crate) fn run(session: &Session<'_>) -> Result<Sums> {
    let sums = sums(&session.backend)?;
    let (times, largest) = (sums.times, sums.largest_difference());
    let (differing, trials) = (sums.differing(), Sums::TRIALS);
    if session.json {
        session.caller.print(&Document::One(serde_json::json!({
            "bench": "plane", "dms": trials, "times": times, "differing": differing,
            "largest_difference": largest,
        })))?;
    } else if !session.quiet {
        say(&format!(
            "{trials} trials x {times} times of {CHANNELS} channels: {differing} sums differ from the \
             float64 sum, by {largest} at most"
        ))?;
    }
    Ok(sums)
}

/// Checks that no sum differs.
///
/// # Errors
/// [`Error::Unavailable`] when one does.
pub(crate) fn check(sums: &Sums) -> Result<()> {
    let (differing, largest) = (sums.differing(), sums.largest_difference());
    if differing == 0 {
        return Ok(());
    }
    let why = format!("{differing} of {} sums differ, by {largest} at most", sums.fast.len());
    Err(Error::Unavailable { what: "an exact plane".to_owned(), why })
}

fn sums(backend: &Backend) -> Result<Sums> {
    let band = Band::uniform(FIRST_MHZ, STEP_MHZ, CHANNELS)?;
    let mut options = sidereal::simulate::burst::Options::new(band.clone(), Sums::TSAMP_S, TIMES);
    options.bursts.push(Burst::new(PULSE_DM, PULSE_TIME_S, 4e-3, 60.0));
    options.seed = 90;
    let mut source = Simulator::new(options)?;
    let mut rows = vec![0; TIMES as usize * CHANNELS];
    source.read(&mut rows)?;
    let dms: Vec<f64> = (0..Sums::TRIALS).map(|trial| trial as f64 * Sums::DM_STEP).collect();
    let plan = dedisperse::Plan::new(dedisperse::Options {
        band,
        tsamp_s: Sums::TSAMP_S,
        dms: dms.clone(),
        downsample: 1,
        encoding: Encoding::U8,
        range: None,
        masked: Vec::new(),
        dm_constant: DM_CONSTANT,
    })?;
    let mut dedisperser = Dedisperser::new(plan, backend)?;
    let stride = TIMES as usize;
    let mut plane = vec![0; Sums::TRIALS * stride];
    let output = dedisperse::Output::I32(PlaneMut::new(&mut plane, Sums::TRIALS, stride)?);
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
        let shift = (delay_s / Sums::TSAMP_S).round_ties_even() as usize;
        for (time, sum) in series.iter_mut().enumerate() {
            *sum += f64::from(rows[(time + shift) * CHANNELS + channel]);
        }
    }
    series
}
