//! Suggestion of a number of channels for users who gave none.

use sidereal::Error;
use sidereal::io::voltages::VoltageHeader;

use super::TAPS;
use crate::plots::{duration, frequency};

/// Spectrum period in seconds that the suggestion aims at.
const USUAL_SPECTRUM_S: f64 = 64e-6;

/// Creates the error, which suggests a suitable number.
pub(super) fn missing_channels(header: &VoltageHeader) -> Error {
    let channels = suggestion(header);
    let width_hz = header.channel_width_hz();
    let each = match header.coarse_channels() {
        1 => format!("the recorded {}", frequency(width_hz)),
        many => format!("each of the {many} recorded channels of {}", frequency(width_hz)),
    };
    let rule = format!(
        "voltages must be divided into channels: --channels {channels} would divide {each} into \
         channels of {}, with a spectrum every {}",
        frequency(width_hz / channels as f64),
        duration(channels as f64 / width_hz),
    );
    Error::parameter("--channels", "not given", rule)
}

/// Returns the number of channels that gives the usual sampling time, if the recording is long enough.
fn suggestion(header: &VoltageHeader) -> usize {
    let wanted = (USUAL_SPECTRUM_S * header.channel_width_hz()).log2().round().clamp(1.0, 20.0);
    let real = if header.encoding.is_complex() { 1 } else { 2 };
    let longest = header.times.unwrap_or(u64::MAX) / (4 * TAPS as u64 * real);
    (1usize << wanted as u32).min(1 << longest.max(2).ilog2())
}
