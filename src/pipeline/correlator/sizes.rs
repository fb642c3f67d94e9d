//! Sizes of reads, gulps and integrations.
//!
//! Invariant: what comes out does not depend on how much is made at once.

use crate::backend::Backend;
use crate::channelize::{self, Form, Input, Order};
use crate::correlate;
use crate::error::{Error, Result};
use crate::io::voltages::VoltageHeader;

use super::options::CorrelateOptions;

/// Bytes of spectra per gulp, if that gives at least the fewest spectra.
const GULP_BYTES: usize = 64 << 20;

/// Largest number of spectra per gulp.
const MOST: usize = 1024;

/// Smallest number of spectra per gulp, unless there are few inputs: the X-engine reads and writes its sums, as many
/// as inputs squared, once per gulp.
const FEWEST: usize = 256;

/// Upper bound in bytes on the spectra of a gulp, even for a requested gulp.
const MOST_BYTES: usize = 4 << 30;

/// Bytes per read of a recording.
const READ_BYTES: usize = 1 << 20;

/// Bytes of a device's filter-bank output per gulp.
#[cfg(feature = "cuda")]
const DEVICE_BYTES: usize = 1 << 30;

/// Largest number of spectra per gulp on a device, unless more are requested.
#[cfg(feature = "cuda")]
const DEVICE_MOST: usize = 1 << 14;

/// Upper bound on a device: with 32-bit spectra each block of a launch covers 32 spectra, and a launch has at most
/// 65535.
#[cfg(feature = "cuda")]
const LAUNCH_MOST: usize = 65_535 * 32;

/// Returns the spectra per gulp, at most `spectra`; `gulp` requests a number.
pub(super) fn capacity(plan: &correlate::Plan, spectra: u64, gulp: usize) -> usize {
    let row = plan.inputs() * plan.channels() * plan.encoding().sample_bits() / 8;
    let fewest = (4 * plan.inputs()).clamp(16, FEWEST);
    let chosen = (GULP_BYTES / row).clamp(fewest, MOST);
    // Rounds down to whole words of the mask.
    let chosen = if chosen < 64 { chosen } else { chosen / 64 * 64 };
    limited(if gulp == 0 { chosen } else { gulp }, row, spectra)
}

/// Like [`capacity`], for a device, which holds spectra in single precision before requantization.
#[cfg(feature = "cuda")]
pub(super) fn capacity_on_device(plan: &correlate::Plan, spectra: u64, gulp: usize) -> usize {
    let row = 8 * plan.inputs() * plan.channels();
    let chosen = (DEVICE_BYTES / row).clamp(16, DEVICE_MOST);
    let chosen = if chosen < 64 { chosen } else { chosen / 64 * 64 };
    limited(if gulp == 0 { chosen } else { gulp }, row, spectra).min(LAUNCH_MOST)
}

/// Returns the largest number of spectra per gulp wherever the backend may compute them.
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

/// Returns the plan of one antenna's filter bank.
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

/// Returns the spectra per integration.
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
    // Relative error of a recording's length due to the rounding of the rate in its header.
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

/// Returns the samples per read of a recording.
pub(super) fn read_times(
    header: &VoltageHeader,
    capacity: usize,
    (hop, span): (u64, u64),
) -> usize {
    let all = capacity as u64 * hop + span;
    let fitting = READ_BYTES * 8 / (header.streams() * header.encoding.sample_bits());
    fitting.max(1024).min(usize::try_from(all).unwrap_or(fitting))
}
