//! How much is read, made and summed at once.
//!
//! Invariant: what comes out does not depend on how much is made at once.

use crate::backend::Backend;
use crate::channelize::{self, Form, Input, Order};
use crate::correlate;
use crate::error::{Error, Result};
use crate::io::voltages::VoltageHeader;

use super::options::CorrelateOptions;

/// Bytes of spectra that are made at once, unless that is too few spectra.
const GULP_BYTES: usize = 64 << 20;

/// The most spectra that are made at once.
const MOST: usize = 1024;

/// The fewest, unless there are fewer inputs: the X-engine's sums, as many as inputs squared, are read and
/// written once a gulp.
const FEWEST: usize = 256;

/// The most bytes of spectra that are made at once, whatever is asked.
const MOST_BYTES: usize = 4 << 30;

/// Bytes that are read of a recording at once.
const READ_BYTES: usize = 1 << 20;

/// Bytes of a filter bank's spectra that a device makes at once.
#[cfg(feature = "cuda")]
const DEVICE_BYTES: usize = 1 << 30;

/// The most spectra that a device makes at once, unless more are asked for.
#[cfg(feature = "cuda")]
const DEVICE_MOST: usize = 1 << 14;

/// The most in any case: of 32 bits a part of a launch is 32 spectra long, and there are at most 65535.
#[cfg(feature = "cuda")]
const LAUNCH_MOST: usize = 65_535 * 32;

/// Spectra that are made at once, of so many in all; `gulp` asks for some.
pub(super) fn capacity(plan: &correlate::Plan, spectra: u64, gulp: usize) -> usize {
    let row = plan.inputs() * plan.channels() * plan.encoding().sample_bits() / 8;
    let fewest = (4 * plan.inputs()).clamp(16, FEWEST);
    let chosen = (GULP_BYTES / row).clamp(fewest, MOST);
    // Whole words of the mask.
    let chosen = if chosen < 64 { chosen } else { chosen / 64 * 64 };
    limited(if gulp == 0 { chosen } else { gulp }, row, spectra)
}

/// The same on a device, whose spectra are single precision before they are rounded.
#[cfg(feature = "cuda")]
pub(super) fn capacity_on_device(plan: &correlate::Plan, spectra: u64, gulp: usize) -> usize {
    let row = 8 * plan.inputs() * plan.channels();
    let chosen = (DEVICE_BYTES / row).clamp(16, DEVICE_MOST);
    let chosen = if chosen < 64 { chosen } else { chosen / 64 * 64 };
    limited(if gulp == 0 { chosen } else { gulp }, row, spectra).min(LAUNCH_MOST)
}

/// The most spectra that are made at once, wherever a backend makes them.
pub(super) fn most_capacity(
    plan: &correlate::Plan,
    spectra: u64,
    gulp: usize,
    backend: &Backend,
) -> usize {
    let host = capacity(plan, spectra, gulp);
    #[cfg(feature = "cuda")]
    if backend.is_gpu() {
        return host.max(capacity_on_device(plan, spectra, gulp));
    }
    let _ = backend;
    host
}

fn limited(asked: usize, row: usize, spectra: u64) -> usize {
    asked.min((MOST_BYTES / row).max(1)).min(usize::try_from(spectra).unwrap_or(MOST))
}

/// One antenna's filter bank.
pub(super) fn bank(header: &VoltageHeader, options: &CorrelateOptions) -> Result<channelize::Plan> {
    channelize::Plan::new(channelize::Options {
        channels: options.channels,
        taps: options.taps,
        window: options.window.clone(),
        oversampling: (1, 1),
        input: Input {
            encoding: header.encoding,
            scale: header.scale,
            antennas: 1,
            coarse_channels: header.coarse_channels(),
            polarizations: header.polarizations,
        },
        order: Order::Ascending,
        reverse_coarse: false,
        form: Form::Spectra,
    })
}

/// Spectra of an integration.
pub(super) fn integration(
    options: &CorrelateOptions,
    header: &VoltageHeader,
    times: u64,
    hop: usize,
) -> Result<u64> {
    let (asked, spectrum) = (options.integration_s, hop as f64 * header.tsamp_s);
    if !(asked.is_finite() && asked > 0.0) {
        return Err(Error::parameter("--integration (s)", asked, "it must be above 0"));
    }
    // What a recording's rate, rounded in its header, makes of its length.
    const ROUNDING: f64 = 1e-9;
    let whole = (times / hop as u64).max(1);
    let spectra = (asked / spectrum).round().clamp(1.0, whole as f64);
    if asked > times as f64 * header.tsamp_s * (1.0 + ROUNDING) {
        let rule = format!(
            "{} and the other recordings have {:.6} s in common",
            header.path.display(),
            times as f64 * header.tsamp_s,
        );
        return Err(Error::parameter("--integration (s)", asked, rule));
    }
    Ok(spectra as u64)
}

/// Samples that are read of a recording at once.
pub(super) fn read_times(
    header: &VoltageHeader,
    capacity: usize,
    (hop, span): (u64, u64),
) -> usize {
    let all = capacity as u64 * hop + span;
    let fitting = READ_BYTES * 8 / (header.streams() * header.encoding.sample_bits());
    fitting.max(1024).min(usize::try_from(all).unwrap_or(fitting))
}
