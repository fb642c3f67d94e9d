//! The demo's second recording: a pulse in voltages, searched without and with coherent dedispersion.

use std::fmt::Write as _;
use std::path::Path;

use schemars::JsonSchema;
use serde::Serialize;
use sidereal::io::FilterbankHeader;
use sidereal::units::HZ_PER_MHZ;
use sidereal::{Error, Result};

use super::chapter::{Discovery, Signal, Truth, best, candidate_alt, figure, parse};
use crate::common::Common;
use crate::output::{Folder, beside};
use crate::plots::{duration, frequency, short};
use crate::progress::multiple;
use crate::search::{self, Found};
use crate::{interrupt, simulate};

/// File name of the recording in the folder.
pub(super) const RECORDING: &str = "voltages.raw";

/// Options of the simulation: 3 s of 4 MHz at 430 MHz in four recorded channels, and one narrow pulse.
pub(super) const SIMULATION: &[&str] = &[
    "--freq 430 --bandwidth 4 --coarse-channels 4 --duration 3 --seed 1974",
    "--pulse dm=200,time=1.25,width=0.0002,snr=30",
];

/// Options of both searches, without and with coherent dedispersion: in bins of 32 us, a sixth of the pulse. Delays
/// are rounded to whole bins, so that bins of 128 us would cost a tenth of the pulse's S/N.
pub(super) const SEARCHES: [(&str, &str); 2] = [
    ("powers", "--channels 16 --integrate 2 --dm-max 400 --dm-step 0.5 --max-plots 1"),
    (
        "coherent",
        "--channels 16 --integrate 2 --dm-max 400 --dm-step 0.5 --max-plots 1 --coherent-dm 200",
    ),
];

/// Injected pulse and the results of both searches.
#[derive(Serialize, JsonSchema)]
pub(super) struct Chapter {
    pub(super) put_in: Signal,
    /// Candidate in the channels' powers without coherent dedispersion.
    pub(super) found_in_powers: Option<Discovery>,
    /// Candidate after coherent dedispersion within channels.
    pub(super) found: Option<Discovery>,
    #[serde(skip)]
    pub(super) header: FilterbankHeader,
    #[serde(skip)]
    pub(super) realtime_factor: f64,
    /// Plots of both candidates, where they exist.
    #[serde(skip)]
    pub(super) pictures: [Option<String>; 2],
}

impl Chapter {
    /// Simulates, and searches twice.
    pub(super) fn make(folder: &Folder, place: &Path, common: &Common) -> Result<Self> {
        let path = folder.file(RECORDING);
        simulate::run(
            &parse::<simulate::Arguments>(&["voltages"], &path, SIMULATION)?,
            &Common { quiet: true, ..common.clone() },
        )?;
        interrupt::check()?;
        let shown = place.join(RECORDING);
        let truth = Truth::read(&beside(&path, simulate::TRUTH), &shown)?;
        let put_in = truth.candidates.first().copied().ok_or_else(|| {
            Error::format(&path, "candidates", 0, "found none, expected the pulse")
        })?;
        let search = |(name, words): (&str, &str)| {
            let arguments = parse::<search::Arguments>(&[], &path, &[words])?;
            search::run_into(&folder.inner(name)?, &arguments, &shown, common)
        };
        let [powers, coherent] = SEARCHES.map(search);
        let found = [powers?, coherent?];
        let put_in = put_in.at_highest_channel(&found[1]);
        let [in_powers, best] = found.each_ref().map(|found| best(&put_in, found));
        let picture =
            |index: usize| picture(SEARCHES[index].0, &found[index], [in_powers, best][index]);
        Ok(Self {
            put_in,
            found_in_powers: in_powers,
            found: best,
            pictures: [picture(0), picture(1)],
            header: found[1].header.clone(),
            realtime_factor: found[1].report.realtime_factor(),
        })
    }
}

impl Chapter {
    /// Writes the chapter of the page.
    pub(super) fn html(&self, html: &mut String) {
        self.story(html);
        self.table(html);
        let captions = [
            "In powers: the pulse is smeared within each channel, which no shift of channels can undo.",
            "With the dispersion within channels removed before detection: as narrow as it was sent.",
        ];
        let found = [&self.found_in_powers, &self.found];
        for ((picture, found), caption) in self.pictures.iter().zip(found).zip(captions) {
            if let (Some(picture), Some(found)) = (picture, found) {
                figure(html, picture, &candidate_alt(found), caption);
            }
        }
    }

    fn story(&self, html: &mut String) {
        let (burst, band) = (&self.put_in, &self.header.band);
        let _ = write!(
            html,
            "<h2>6. One step earlier: voltages</h2>\n\
             <p>The powers above are what a filter bank makes of the voltages at the antenna. Some \
             recorders keep these voltages, millions of numbers a second; then one can choose the \
             channels afterwards, and undo a known dispersion exactly: not only between channels but \
             within each, where it smears a pulse for good once powers are taken (<i>coherent \
             dedispersion</i>). <a href=\"{RECORDING}\">This recording</a> has 3 s of four channels of \
             1 MHz around 430 MHz in two polarizations, and one pulse of {} at DM {}. It was searched as {} \
             channels of {}, at {} times real time, in bins of a sixth of the pulse: in longer ones, to which channels \
             are aligned as a whole, some of it would be lost. Times are those at the highest channel.</p>\n",
            duration(burst.width_s),
            short(burst.dm, 4),
            self.header.channels(),
            frequency(band.foff_mhz().abs() * HZ_PER_MHZ),
            multiple(self.realtime_factor),
        );
    }

    fn table(&self, html: &mut String) {
        html.push_str(
            "<div class=\"wide\"><table>\n<thead><tr><th></th><th></th><th>DM</th><th>time (s)</th>\
             <th>width</th><th>S/N</th></tr></thead>\n<tbody>\n",
        );
        let Signal { dm, time_s, width_s, snr, .. } = self.put_in;
        let put_in = Discovery { index: 0, dm, time_s, snr, width_s };
        let rows = [
            ("put in", Some(put_in)),
            ("found in powers", self.found_in_powers),
            ("found with <code>--coherent-dm</code>", self.found),
        ];
        for (name, discovery) in rows {
            let _ = match discovery {
                None => writeln!(
                    html,
                    "<tr><td class=\"bad\">✗</td><td>{name}</td><td colspan=\"4\">not found</td></tr>"
                ),
                Some(one) => writeln!(
                    html,
                    "<tr><td class=\"good\">✓</td><td>{name}</td><td>{:.2}</td><td>{:.4}</td>\
                     <td>{}</td><td>{:.1}</td></tr>",
                    one.dm,
                    one.time_s,
                    duration(one.width_s),
                    one.snr,
                ),
            };
        }
        html.push_str("</tbody></table></div>\n");
    }
}

/// Returns the plot of a candidate, if it was drawn.
fn picture(folder: &str, found: &Found, discovery: Option<Discovery>) -> Option<String> {
    let index = discovery?.index;
    let drawn = index < found.drawn;
    drawn.then(|| format!("{folder}/{}.png", search::stem(index, &found.report.candidates[index])))
}
