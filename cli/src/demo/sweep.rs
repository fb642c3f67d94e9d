//! Plot of one burst as recorded, before dedispersion.

use std::path::{Path, PathBuf};

use sidereal::Result;
use sidereal::pipeline::cutout::{Options, cutout};
use sidereal::units::{DM_CONSTANT, dispersion_delay_s};

use super::truth::Verdict;
use crate::plots::{self, Png, Sweep};
use crate::search::Found;
use crate::selection;

/// File name of the plot.
pub(super) const NAME: &str = "sweep.png";

/// Time bins of the plot.
const TIMES: usize = 240;

/// Draws the brightest burst found.
pub(super) fn draw(path: &Path, recording: &Path, found: &Found, verdict: &Verdict) -> Result<()> {
    let bursts = verdict.bursts.iter().filter_map(|burst| burst.found);
    let Some(burst) = bursts.max_by(|a, b| a.snr.total_cmp(&b.snr)) else { return Ok(()) };
    let band = &found.header.band;
    let delay =
        |frequency_hz| dispersion_delay_s(burst.dm, frequency_hz, band.highest_hz(), DM_CONSTANT);
    let sweep_s = delay(band.lowest_hz());
    let mut masked = vec![false; band.channels()];
    found.report.masked_channels.iter().for_each(|channel| masked[*channel] = true);
    let options = Options {
        dm: 0.0,
        time_s: burst.time_s + 0.5 * sweep_s,
        width_s: 1.5 * sweep_s / TIMES as f64,
        dm_constant: DM_CONSTANT,
        masked,
        zero_dm: true,
        channels: 60,
        times: TIMES,
        bins_per_width: 1,
        dms: (0.0, 0.0, 1),
    };
    let mut source = selection::open(&[PathBuf::from(recording)], None, false)?;
    let cutout = cutout(source.as_mut(), &options)?;
    let start_s = cutout.start_s + options.time_s - burst.time_s;
    plots::sweep(&Png::new(path, &found.made), &Sweep { cutout: &cutout, start_s, dm: burst.dm })
}
