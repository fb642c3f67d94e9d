//! Simulated observation of the demo, and its search.

use std::path::Path;

use sidereal::Result;

use crate::common::Common;
use crate::demo::truth::Truth;
use crate::output::{Folder, beside};
use crate::search::Found;
use crate::{interrupt, search, simulate};

/// File name of the recording in the folder.
pub(crate) const OBSERVATION: &str = "observation.fil";

/// Options of the simulation: 60 s at 1.2 to 1.5 GHz. One bright, narrow burst; one with a steep spectrum; one
/// scattered; one weak; one broad at a high DM; a pulsar; tones and impulses of interference.
pub(crate) const SIMULATION: &[&str] = &[
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
pub(crate) const SEARCH: &str = "--dm-max 1000 --zero-dm --max-plots 12";

/// The verbs that the demo calls, with the arguments that a user would type.
pub(crate) struct Steps<'a> {
    pub(crate) folder: &'a Folder,
    pub(crate) place: &'a Path,
    pub(crate) common: &'a Common,
}

impl Steps<'_> {
    pub(super) fn simulate(&self) -> Result<Truth> {
        let path = self.folder.file(OBSERVATION);
        simulate::run(
            &crate::demo::parse::<simulate::Arguments>(&["burst"], &path, SIMULATION)?,
            &Common { quiet: true, ..self.common.clone() },
        )?;
        interrupt::check()?;
        Truth::read(&beside(&path, simulate::TRUTH), &self.place.join(OBSERVATION))
    }

    pub(super) fn search(&self) -> Result<Found> {
        let path = self.folder.file(OBSERVATION);
        let arguments = crate::demo::parse::<search::Arguments>(&[], &path, &[SEARCH])?;
        search::run_into(self.folder, &arguments, &self.place.join(OBSERVATION), self.common)
    }
}
