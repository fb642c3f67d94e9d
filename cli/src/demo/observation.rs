//! Simulated observation of the demo, its search, and the plot of one burst as recorded, before dedispersion.

use std::path::{Path, PathBuf};

use sidereal::Result;
use sidereal::pipeline::cutout::{Options, cutout};
use sidereal::units::{DM_CONSTANT, dispersion_delay_s};

use super::chapter::{Truth, Verdict, parse};
use crate::common::Common;
use crate::output::{Folder, beside};
use crate::plots::{self, Png, Sweep};
use crate::search::{self, Found};
use crate::{interrupt, selection, simulate};

/// File name of the recording in the folder.
pub(super) const OBSERVATION: &str = "observation.fil";

/// Options of the simulation: 60 s at 1.2 to 1.5 GHz. One bright, narrow burst; one with a steep spectrum; one
/// scattered; one weak; one broad at a high DM; a pulsar; tones and impulses of interference.
pub(super) const SIMULATION: &[&str] = &[
    "--fch1 1500 --foff -0.625 --channels 480 --tsamp 256e-6 --duration 60",
    "--bandpass rippled --seed 1967",
    "--burst dm=87.5,time=7.25,width=0.001,snr=45",
    "--burst dm=348.8,time=18.4,width=0.004,snr=22,index=-1.5",
    "--burst dm=565,time=27.1,width=0.002,snr=20,scatter=0.03",
    "--burst dm=223.1,time=39.6,width=0.003,snr=9.5",
    "--burst dm=812,time=48.2,width=0.012,snr=16",
    "--pulsar period=2.85,dm=42.3,width=0.006,snr=11",
    "--rfi-narrow 8 --rfi-broad 0.15 --rfi-broad-snr 25",
];

/// Options of the search.
pub(super) const SEARCH: &str = "--dm-max 1000 --zero-dm --max-plots 12 --png";

/// The verbs that the demo calls, with the arguments that a user would type.
pub(super) struct Steps<'a> {
    pub(super) folder: &'a Folder,
    pub(super) place: &'a Path,
    pub(super) common: &'a Common,
}

impl Steps<'_> {
    pub(super) fn simulate(&self) -> Result<Truth> {
        let path = self.folder.file(OBSERVATION);
        simulate::run(
            &parse::<simulate::Arguments>(&["burst"], &path, SIMULATION)?,
            &Common { quiet: true, ..self.common.clone() },
        )?;
        interrupt::check()?;
        Truth::read(&beside(&path, simulate::TRUTH), &self.place.join(OBSERVATION))
    }

    pub(super) fn search(&self) -> Result<Found> {
        let path = self.folder.file(OBSERVATION);
        let arguments = parse::<search::Arguments>(&[], &path, &[SEARCH])?;
        search::run_into(self.folder, &arguments, &self.place.join(OBSERVATION), self.common)
    }
}

/// File name of the plot of the brightest burst.
pub(super) const SWEEP: &str = "sweep.png";

/// Time bins of the plot.
const TIMES: usize = 240;

/// Draws the brightest burst found.
pub(super) fn draw_sweep(
    path: &Path,
    recording: &Path,
    found: &Found,
    verdict: &Verdict,
) -> Result<()> {
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
