//! Arguments and cases of `bench pulse`, on CPUs and GPUs.

use std::path::PathBuf;

use clap::Args;
use sidereal::Result;
use sidereal::single_pulse::{Options, Plan};

use crate::table::Quick;

/// Measure the single-pulse search of one series per trial, beside a prefix sum and a plain loop.
#[derive(Args, Clone, Debug)]
pub(crate) struct Arguments {
    /// Also write the rows to this CSV file.
    #[arg(long, value_name = "FILE")]
    pub(crate) csv: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) quick: Quick,
}

pub(crate) const SNR: f64 = 6.0;

/// Windows of the series in a round: together more than four times a large L2 cache.
pub(crate) const WINDOWS: usize = 4;
pub(crate) const TRIALS: usize = 64;

/// Parameters of one row of the table.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) tsamp_s: f64,
    pub(crate) max_width_s: f64,
    pub(crate) baseline_s: f64,
    pub(crate) mean: f64,
    pub(crate) sigma: f64,
    /// Bound of the integer sums; `None` for floats.
    pub(crate) bound: Option<(i64, i64)>,
}

pub(crate) const CASES: [Case; 5] = [
    Case::new("8-bit x 1024, 64 us, to 0.1 s", 64e-6, Some((0, 255 * 1024))),
    Case::new("16-bit x 4096, 64 us, to 0.1 s", 64e-6, Some((0, 65535 * 4096))),
    Case::new("f32 x 1024, 64 us, to 0.1 s", 64e-6, None),
    Case::new("8-bit x 1024, 256 us, to 0.1 s", 256e-6, Some((0, 255 * 1024))),
    Case::new("8-bit x 1024, 1 ms, to 0.1 s", 1e-3, Some((0, 255 * 1024))),
];

impl Case {
    pub(crate) const fn new(name: &'static str, tsamp_s: f64, bound: Option<(i64, i64)>) -> Self {
        let (max_width_s, baseline_s, mean, sigma) = (0.1, 2.0, 1e5, 500.0);
        Self { name, tsamp_s, max_width_s, baseline_s, mean, sigma, bound }
    }

    /// Returns the search plan of `trials` trials.
    ///
    /// # Errors
    /// Those of the plan.
    pub(crate) fn plan(&self, trials: usize) -> Result<Plan> {
        Plan::new(Options {
            dms: (0..trials).map(|dm| dm as f64).collect(),
            tsamp_s: self.tsamp_s,
            max_width_s: self.max_width_s,
            baseline_s: self.baseline_s,
            snr: SNR,
            bound: self.bound,
        })
    }
}

/// Makes integer noise with a few pulses in the first trial.
pub(crate) fn series(case: &Case, count: usize) -> Vec<i32> {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut bits = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        f64::from((state >> 40) as u32) / f64::from(1u32 << 24) - 0.5
    };
    // The sum of four uniform deviates has a variance of 1/3.
    let scale = case.sigma * 3f64.sqrt();
    let mut noise: Vec<i32> = (0..count)
        .map(|_| (case.mean + scale * (0..4).map(|_| bits()).sum::<f64>()) as i32)
        .collect();
    for pulse in 0..3 {
        let height = (10.0 * case.sigma / f64::from(1 + 3 * pulse as u32).sqrt()) as i32;
        noise[5000 * (pulse + 1)..][..1 + 3 * pulse].iter_mut().for_each(|y| *y += height);
    }
    noise
}
