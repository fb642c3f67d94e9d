//! Arguments and cases of `bench dedisperse`, on CPUs and GPUs.

use std::path::PathBuf;

use clap::Args;
use sidereal::Result;
use sidereal::dedisperse::{Options, Plan};
use sidereal::sample::Encoding;
use sidereal::units::{Band, DM_CONSTANT};

use crate::table::Quick;

/// Measure dedispersion.
#[derive(Args, Clone, Debug)]
pub(crate) struct Arguments {
    /// Least number of seconds spent on each case.
    #[arg(long, default_value_t = 2.0)]
    pub(crate) seconds: f64,
    /// Measure only cases whose name contains this text.
    #[arg(long)]
    pub(crate) only: Option<String>,
    /// Also write the table to this CSV file.
    #[arg(long, value_name = "FILE")]
    pub(crate) csv: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) quick: Quick,
}

/// Frequency band and its DM trials.
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) centre_mhz: f64,
    pub(crate) bandwidth_mhz: f64,
    pub(crate) channels: usize,
    pub(crate) tsamp_s: f64,
    pub(crate) encoding: Encoding,
    /// First trial, step and number of trials of each range.
    pub(crate) ranges: Vec<(f64, f64, usize)>,
    pub(crate) threads: usize,
}

/// Returns the plan of the paper: DM 0 to 150 in steps of 0.1, to 300 by 0.2, to 500 by 0.25.
pub(crate) fn plan_of_the_paper() -> Vec<(f64, f64, usize)> {
    vec![(0.0, 0.1, 1500), (150.0, 0.2, 750), (300.0, 0.25, 800)]
}

/// Returns all cases.
pub(crate) fn cases(threads: usize) -> Vec<Case> {
    let case = |name: String, channels, encoding, ranges| Case {
        name,
        centre_mhz: 1400.0,
        bandwidth_mhz: 300.0,
        channels,
        tsamp_s: 64e-6,
        encoding,
        ranges,
        threads,
    };
    let mut cases = Vec::new();
    for threads in if threads > 1 { vec![1, threads] } else { vec![1] } {
        let name = format!("500 trials, 1024 channels, 8 bit, {threads} threads");
        let ranges = vec![(0.0, 0.1, 500)];
        cases.push(Case { threads, ..case(name, 1024, Encoding::U8, ranges) });
    }
    let encodings = [Encoding::U8, Encoding::U4, Encoding::U2, Encoding::U1, Encoding::U16];
    for encoding in encodings {
        for channels in [512, 1024, 2048, 4096, 8192] {
            let name = format!("paper's plan, {channels} channels, {} bit", encoding.bits());
            cases.push(case(name, channels, encoding, plan_of_the_paper()));
        }
    }
    cases.extend(bands().into_iter().map(|(name, centre_mhz, bandwidth_mhz, tsamp_s, step)| {
        Case {
            centre_mhz,
            bandwidth_mhz,
            tsamp_s,
            ..case(name.to_owned(), 4096, Encoding::U8, vec![(0.0, step, 1000)])
        }
    }));
    cases
}

/// Returns bands of our own choice at three frequencies: centre and width (MHz), sampling time (s) and step between
/// trials. The steps of the last are far too wide for its band, so that neighbouring trials share few partial sums.
pub(crate) fn bands() -> Vec<(&'static str, f64, f64, f64, f64)> {
    vec![
        ("high, 1400 +- 150 MHz, 64 us, step 0.1", 1400.0, 300.0, 64e-6, 0.1),
        ("mid, 800 +- 100 MHz, 64 us, step 0.05", 800.0, 200.0, 64e-6, 0.05),
        ("low, 400 +- 50 MHz, 256 us, step 0.05", 400.0, 100.0, 256e-6, 0.05),
        ("low and coarse, 400 +- 100 MHz, 64 us, 0.1", 400.0, 200.0, 64e-6, 0.1),
    ]
}

/// Returns the plan of one range of a case.
///
/// # Errors
/// Those of the plan.
pub(crate) fn plan(case: &Case, (first, step, trials): (f64, f64, usize)) -> Result<Plan> {
    let width = case.bandwidth_mhz / case.channels as f64;
    let top = case.centre_mhz + 0.5 * (case.bandwidth_mhz - width);
    Plan::new(Options {
        band: Band::uniform(top, -width, case.channels)?,
        tsamp_s: case.tsamp_s,
        dms: (0..trials).map(|i| first + i as f64 * step).collect(),
        downsample: 1,
        encoding: case.encoding,
        range: None,
        masked: Vec::new(),
        dm_constant: DM_CONSTANT,
    })
}
