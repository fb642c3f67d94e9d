//! Inputs and products of searches: series, masks, candidates, trials.

use std::path::Path;

use sidereal::dedisperse;
use sidereal::dedisperse::dm_plan::{DdplanOptions, DmPlan, DmRange, ToleranceOptions};
use sidereal::io;
use sidereal::sample::Encoding;
use sidereal::units::{Band, DM_CONSTANT};

use super::pipelines::masked;
use super::{Outcome, Read, with_file};

/// A SIGPROC time series.
pub(super) fn tim(bytes: &[u8]) -> Outcome {
    with_file(bytes, |path| {
        let (series, _, cut) = io::sigproc::read_series(path)?;
        assert!(series.tsamp_s > 0.0);
        Ok(if cut.is_some() { Read::Cut } else { Read::Whole })
    })
}

/// PRESTO's .inf.
pub(super) fn inf(bytes: &[u8]) -> Outcome {
    let text = String::from_utf8_lossy(bytes);
    io::presto::Inf::parse(&text, Path::new("fuzz.inf"))?;
    Ok(Read::Whole)
}

/// NumPy's .npy.
pub(super) fn npy(bytes: &[u8]) -> Outcome {
    with_file(bytes, |path| {
        let array = io::npy::read(path)?;
        assert_eq!(array.shape.iter().product::<usize>(), array.values.len());
        Ok(Read::Whole)
    })
}

/// PRESTO's rfifind mask, in a search of rows of its channels.
pub(super) fn mask(bytes: &[u8]) -> Outcome {
    let mask = io::presto::Mask::parse(bytes, Path::new("fuzz.mask"))?;
    let band = Band::uniform(mask.lowest_mhz, mask.channel_width_mhz, mask.channels.min(4096))?;
    let recorded = mask.recorded(&band)?;
    assert_eq!(recorded.zapped.len(), mask.channels);
    let inside = |channel: &u32| (*channel as usize) < mask.channels;
    assert!(recorded.intervals.iter().flatten().all(inside));
    masked(mask, band)?;
    Ok(Read::Whole)
}

/// Heimdall's candidates.
pub(super) fn cand(bytes: &[u8]) -> Outcome {
    let text = String::from_utf8_lossy(bytes);
    io::candidates::parse_heimdall(&text, Path::new("fuzz.cand"))?;
    Ok(Read::Whole)
}

/// DM plans from arbitrary numbers, and their properties.
pub(super) fn dm_plan(bytes: &[u8]) -> Outcome {
    let mut numbers = [0.0; 9];
    for (number, bytes) in numbers.iter_mut().zip(bytes.chunks_exact(8)) {
        *number = f64::from_le_bytes(std::array::from_fn(|k| bytes[k]));
    }
    let [centre, width, tsamp_s, dm_min, dm_max, dm_step, tolerance, resolution_us, channels] =
        numbers;
    let channels = (channels as usize).clamp(1, 4096);
    let step = -width / channels as f64;
    let band = Band::uniform(centre + width / 2.0, step, channels)?;
    let levin = ToleranceOptions { tolerance, ..ToleranceOptions::default() };
    let presto =
        DdplanOptions { time_resolution_s: resolution_us * 1e-6, ..DdplanOptions::default() };
    let plans = [
        DmPlan::fixed(&[(dm_min, dm_max, dm_step)]),
        DmPlan::tolerance(&band, tsamp_s, dm_min, dm_max, &levin),
        DmPlan::ddplan(&band, tsamp_s, dm_min, dm_max, &presto),
    ];
    let mut refused = None;
    for plan in plans {
        match plan {
            Ok(plan) => check(&plan, &band, tsamp_s),
            Err(error) => refused = refused.or(Some(error)),
        }
    }
    refused.map_or(Ok(Read::Whole), Err)
}

/// Checks a plan against its own properties.
fn check(plan: &DmPlan, band: &Band, tsamp_s: f64) {
    plan.check().expect("a plan that is made passes its own check");
    assert!(plan.trials() > 0);
    if plan.trials() <= 2000 {
        assert_eq!(plan.dms().len(), plan.trials());
        assert_eq!(plan.rows(band, tsamp_s, DM_CONSTANT).len(), plan.ranges.len());
        bind(&plan.ranges[0], band, tsamp_s);
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
