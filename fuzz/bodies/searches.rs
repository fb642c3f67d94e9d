//! What searches are told and leave behind: series, masks, candidates, trials.

use std::path::Path;

use sidereal::dedisperse;
use sidereal::dedisperse::dm_plan::{DdplanOptions, DmPlan, DmRange, ToleranceOptions};
use sidereal::io;
use sidereal::sample::Encoding;
use sidereal::units::{Band, DM_CONSTANT};

use super::with_file;

/// A SIGPROC time series.
pub fn tim(bytes: &[u8]) {
    with_file(bytes, |path| {
        if let Ok((series, _)) = io::sigproc::read_series(path) {
            assert!(series.tsamp_s > 0.0);
        }
    });
}

/// PRESTO's .inf.
pub fn inf(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let _ = io::presto::Inf::parse(&text, Path::new("fuzz.inf"));
}

/// NumPy's .npy.
pub fn npy(bytes: &[u8]) {
    with_file(bytes, |path| {
        if let Ok(array) = io::npy::read(path) {
            assert_eq!(array.shape.iter().product::<usize>(), array.values.len());
        }
    });
}

/// PRESTO's rfifind mask.
pub fn mask(bytes: &[u8]) {
    let Ok(mask) = io::rfifind::Mask::parse(bytes, Path::new("fuzz.mask")) else { return };
    let step = if mask.channels.is_multiple_of(2) { 1e-3 } else { -1e-3 };
    let Ok(band) = Band::uniform(1500.0, step, mask.channels.min(4096)) else { return };
    if let Ok(recorded) = mask.recorded(&band) {
        assert_eq!(recorded.zapped.len(), mask.channels);
        let inside = |channel: &u32| (*channel as usize) < mask.channels;
        assert!(recorded.intervals.iter().flatten().all(inside));
    }
}

/// Heimdall's candidates.
pub fn cand(bytes: &[u8]) {
    let _ = io::candidates::parse_heimdall(&String::from_utf8_lossy(bytes), Path::new("fuzz.cand"));
}

/// DM plans from any numbers, and what they say of themselves.
pub fn dm_plan(bytes: &[u8]) {
    let mut numbers = [0.0; 9];
    for (number, bytes) in numbers.iter_mut().zip(bytes.chunks_exact(8)) {
        *number = f64::from_le_bytes(std::array::from_fn(|k| bytes[k]));
    }
    let [centre, width, tsamp_s, dm_min, dm_max, dm_step, tolerance, resolution_us, channels] =
        numbers;
    let channels = (channels as usize).clamp(1, 4096);
    let step = -width / channels as f64;
    let Ok(band) = Band::uniform(centre + width / 2.0, step, channels) else { return };
    let levin = ToleranceOptions { tolerance, ..ToleranceOptions::default() };
    let presto =
        DdplanOptions { time_resolution_s: resolution_us * 1e-6, ..DdplanOptions::default() };
    let plans = [
        DmPlan::fixed(&[(dm_min, dm_max, dm_step)]),
        DmPlan::tolerance(&band, tsamp_s, dm_min, dm_max, &levin),
        DmPlan::ddplan(&band, tsamp_s, dm_min, dm_max, &presto),
    ];
    for plan in plans.into_iter().flatten() {
        plan.check().expect("a plan that is made passes its own check");
        assert!(plan.trials() > 0);
        if plan.trials() <= 2000 {
            assert_eq!(plan.dms().len(), plan.trials());
            assert_eq!(plan.rows(&band, tsamp_s, DM_CONSTANT).len(), plan.ranges.len());
            bind(&plan.ranges[0], &band, tsamp_s);
        }
    }
}

/// One range bound to the band.
fn bind(range: &DmRange, band: &Band, tsamp_s: f64) {
    let options = dedisperse::Options {
        band: band.clone(),
        tsamp_s,
        dms: range.dms().into_iter().take(8).collect(),
        downsample: range.downsample,
        encoding: Encoding::U8,
        range: None,
        masked: Vec::new(),
        dm_constant: DM_CONSTANT,
    };
    if let Ok(plan) = dedisperse::Plan::new(options) {
        for dm in 0..plan.dms().len() {
            assert!(plan.trial_shift(dm) <= plan.max_shift());
            assert!(plan.valid_times(1 << 20, dm) <= 1 << 20);
        }
    }
}
