//! Page about the demo: one plain HTML file, with the plots in the same folder.

use std::fmt::Write as _;
use std::path::Path;

use sidereal::units::{DM_CONSTANT, HZ_PER_MHZ, dispersion_delay_s};

use super::array::{self, Fringes};
use super::chapter::{Match, Truth, Verdict, candidate_alt, escape, figure};
use super::observation::{OBSERVATION, SEARCH, SIMULATION, SWEEP};
use super::strain::{self, Merger};
use super::voltages::{self, Chapter};
use crate::plots::{duration, short};
use crate::progress::multiple;
use crate::search::{Found, OVERVIEW, stem};

const STYLE: &str = include_str!("style.css");

/// Contents of the page.
pub(super) struct Page<'a> {
    pub(super) place: &'a Path,
    pub(super) truth: &'a Truth,
    pub(super) found: &'a Found,
    pub(super) verdict: &'a Verdict,
    pub(super) chapter: &'a Chapter,
    pub(super) fringes: &'a Fringes,
    pub(super) merger: &'a Merger,
}

impl Page<'_> {
    /// Formats the lines printed at the end of the demo.
    pub(super) fn text(&self, page: &str) -> String {
        let verdict = self.verdict;
        let mut text = String::from("\n        put in                              found\n");
        text.push_str("     DM    time (s)    S/N           DM    time (s)    S/N\n");
        for burst in &verdict.bursts {
            let _ = write!(text, "{:>8.1} {:>10.3} {:>6.1}", burst.dm, burst.time_s, burst.snr);
            let _ = match burst.found {
                Some(f) => writeln!(text, "     {:>8.1} {:>10.3} {:>6.1}", f.dm, f.time_s, f.snr),
                None => writeln!(text, "     not found"),
            };
        }
        text.push_str("\nIn voltages, with the dispersion within channels removed:\n");
        let burst = &self.chapter.put_in;
        let _ = write!(text, "{:>8.1} {:>10.3} {:>6.1}", burst.dm, burst.time_s, burst.snr);
        let _ = match self.chapter.found {
            Some(f) => writeln!(text, "     {:>8.1} {:>10.3} {:>6.1}", f.dm, f.time_s, f.snr),
            None => writeln!(text, "     not found"),
        };
        let _ = write!(text, "\nAn array's fringes: {}\n", self.fringes.text());
        let _ = write!(text, "\nTwo black holes in strain: {}\n", self.merger.text());
        let _ = write!(
            text,
            "\nAll in all: {} of {} bursts found, {} of {} pulses of the pulsar, {} other candidates.\n\
             Open {page} in a browser.",
            verdict.bursts.len() - verdict.missed(),
            verdict.bursts.len(),
            verdict.pulses_found,
            verdict.pulses,
            verdict.unexplained,
        );
        text
    }

    pub(super) fn html(&self) -> String {
        let mut html = String::from("<!doctype html>\n<html lang=\"en\">\n<head>\n");
        html.push_str(
            "<meta charset=\"utf-8\">\n<meta name=\"generator\" content=\"sidereal demo\">\n",
        );
        html.push_str("<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n");
        html.push_str("<title>sidereal demo: the bursts in a recording</title>\n");
        let _ = write!(html, "<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n");
        self.opening(&mut html);
        self.recording(&mut html);
        self.dispersion(&mut html);
        self.search(&mut html);
        self.table(&mut html);
        self.overview(&mut html);
        self.bursts(&mut html);
        self.chapter.html(&mut html);
        self.fringes.html(&mut html);
        self.merger.html(&mut html);
        self.commands(&mut html);
        html.push_str("</main>\n</body>\n</html>\n");
        html
    }

    fn opening(&self, html: &mut String) {
        let verdict = self.verdict;
        let (all, found) = (verdict.bursts.len(), verdict.bursts.len() - verdict.missed());
        let sign = if verdict.found_all() { "good" } else { "bad" };
        let _ = write!(
            html,
            "<h1>The bursts in a recording</h1>\n\
             <p class=\"lead\">Some stars, and sources in far galaxies that are not understood yet, send \
             out flashes of radio waves of some thousandths of a second. <b>sidereal</b> looks for \
             them. For this page it made up a minute of a radio telescope's data with {all} bursts, a \
             pulsar and interference in it, searched the data without a look at what was put in, and \
             then compared.</p>\n\
             <p class=\"verdict {sign}\">{found} of {all} bursts found, and {} of {} pulses of the \
             pulsar. {} Searched at {} times real time on this machine.</p>\n",
            verdict.pulses_found,
            verdict.pulses,
            self.unexplained(),
            multiple(self.found.report.realtime_factor()),
        );
    }

    fn unexplained(&self) -> String {
        match self.verdict.unexplained {
            0 => "No false alarm.".to_owned(),
            1 => "One candidate is a false alarm.".to_owned(),
            many => format!("{many} candidates are false alarms."),
        }
    }

    fn recording(&self, html: &mut String) {
        let header = &self.found.header;
        let band = &header.band;
        let _ = write!(
            html,
            "<h2>1. What was recorded</h2>\n\
             <p>A telescope's receiver splits its band, here {} to {} MHz, into {} channels, and writes \
             down the power in each of them every {}: {} spectra of {} bit in {}. Nearly all of it is \
             noise. In the <a href=\"{OBSERVATION}\">recording</a> are also {} channels with a tone \
             that swells and fades, and {} impulses that hit the whole band at once: interference made \
             on Earth.</p>\n",
            short(band.lowest_hz() / HZ_PER_MHZ, 5),
            short(band.highest_hz() / HZ_PER_MHZ, 5),
            header.channels(),
            duration(header.tsamp_s),
            header.times.unwrap_or(0),
            header.recorded_bits,
            duration(self.truth.duration_s),
            self.verdict.tones,
            self.verdict.impulses,
        );
    }

    fn dispersion(&self, html: &mut String) {
        let band = &self.found.header.band;
        let (low, high) = (band.lowest_hz(), band.highest_hz());
        let delay = duration(dispersion_delay_s(100.0, low, high, DM_CONSTANT));
        let _ = write!(
            html,
            "<h2>2. What dispersion is</h2>\n\
             <p>On its way to us a burst crosses the thin gas between the stars. Its free electrons hold \
             up lower frequencies longer: a burst arrives at the top of the band first and sweeps down. \
             The <i>dispersion measure</i> (DM, in pc cm<sup>−3</sup>) counts the electrons along \
             the way, so it also tells how far the burst has come. In this band a DM of 100 draws a \
             burst out over {delay}. Noise from Earth has not crossed that gas: its DM is 0.</p>\n"
        );
        if self.verdict.missed() < self.verdict.bursts.len() {
            let alt = "A bright stripe between two white lines falls from the top of the band on the left to its bottom on \
                       the right, steeply at first.";
            let caption = "The brightest burst as it was recorded: time runs to the right, frequency \
                           up. The two white lines run along either side of it.";
            figure(html, SWEEP, alt, caption);
        }
    }

    fn search(&self, html: &mut String) {
        let report = &self.found.report;
        let masked = report.masked_channels.len();
        let _ = write!(
            html,
            "<h2>3. How it was searched</h2>\n<ol>\n\
             <li><b>Clean.</b> {masked} channels with odd statistics were left out; {} of the {} with a \
             tone are among them. From each spectrum its mean was subtracted (<code>--zero-dm</code>), \
             which takes out what hits all channels at once: of the {} impulses {} left among the \
             candidates.</li>\n\
             <li><b>Dedisperse.</b> No one knows a burst's DM beforehand, so {} of them were tried, from \
             {} to {}: each time the channels were shifted against each other and added up.</li>\n\
             <li><b>Detect.</b> Each of these series was searched with boxcars of many widths for what \
             stands out of the noise by more than {} times its deviation (S/N).</li>\n\
             <li><b>Join.</b> A burst is seen at many DMs and widths at once; what belongs together \
             became one candidate.</li>\n</ol>\n\
             <p>All this took {} for {} of data: {} times real time.</p>\n",
            self.verdict.tones_masked,
            self.verdict.tones,
            self.verdict.impulses,
            none_or(self.verdict.impulses_found),
            report.dms.len(),
            short(report.dms.first().copied().unwrap_or(0.0), 4),
            short(report.dms.last().copied().unwrap_or(0.0), 4),
            short(self.found.snr, 3),
            duration(report.elapsed_s),
            duration(report.data_s),
            multiple(report.realtime_factor()),
        );
    }

    fn table(&self, html: &mut String) {
        html.push_str(
            "<h2>4. What was put in, and what was found</h2>\n<div class=\"wide\"><table>\n\
             <thead><tr><th rowspan=\"2\"></th><th colspan=\"4\">put in</th>\
             <th colspan=\"4\">found</th></tr>\n\
             <tr><th>DM</th><th>time (s)</th><th>width</th><th>S/N</th>\
             <th>DM</th><th>time (s)</th><th>width</th><th>S/N</th></tr></thead>\n<tbody>\n",
        );
        self.verdict.bursts.iter().for_each(|burst| self.row(html, burst));
        html.push_str("</tbody></table></div>\n");
        for pulsar in &self.truth.pulsars {
            let _ = writeln!(
                html,
                "<p>The pulsar (DM {}, a pulse every {}) is a row of equal pulses: {} of {} came out \
                 above S/N {}.</p>",
                short(pulsar.dm, 4),
                duration(pulsar.period_s.unwrap_or(0.0)),
                self.verdict.pulses_found,
                self.verdict.pulses,
                short(self.found.snr, 3),
            );
        }
    }

    fn row(&self, html: &mut String, burst: &Match) {
        let scattered = if burst.scatter_s > 0.0 { "*" } else { "" };
        let _ = write!(
            html,
            "<tr><td class=\"{}</td><td>{:.1}</td><td>{:.3}</td><td>{}{scattered}</td><td>{:.1}</td>",
            if burst.found.is_some() { "good\">✓" } else { "bad\">✗" },
            burst.dm,
            burst.time_s,
            duration(burst.width_s),
            burst.snr,
        );
        let _ = match burst.found {
            None => writeln!(html, "<td colspan=\"4\">not found</td></tr>"),
            Some(found) => writeln!(
                html,
                "<td><a href=\"#c{}\">{:.1}</a></td><td>{:.3}</td><td>{}</td><td>{:.1}</td></tr>",
                found.index + 1,
                found.dm,
                found.time_s,
                duration(found.width_s),
                found.snr,
            ),
        };
    }

    fn overview(&self, html: &mut String) {
        let scattered = self.verdict.bursts.iter().any(|burst| burst.scatter_s > 0.0);
        if scattered {
            html.push_str(
                "<p class=\"note\">* This burst is scattered: detours through the gas drew it out into a \
                 tail, longest at low frequencies, so it is found wider than it was sent. The width put \
                 in is a full width at half maximum, the width found is that of the best boxcar.</p>\n",
            );
        }
        figure(
            html,
            OVERVIEW,
            &format!(
                "Dots of {} candidates by time and DM, and below them their numbers by S/N and by DM as bars.",
                self.found.report.candidates.len()
            ),
            "All candidates: when they came, and at which DM. Size and colour tell the S/N; the numbers \
             are their ranks. The pulsar is the row of dots along the bottom.",
        );
    }

    fn bursts(&self, html: &mut String) {
        html.push_str(
            "<h2>5. The bursts, one by one</h2>\n\
             <p>In each picture: the pulse after dedispersion (upper left); below it the same by \
             frequency, where a real burst is an upright line; the S/N for neighbouring DMs and times, \
             where a real burst is a knot between two fans; and at the right how the S/N falls off on \
             both sides of the DM found.</p>\n",
        );
        for burst in self.verdict.bursts.iter().filter_map(|burst| burst.found) {
            let candidate = &self.found.report.candidates[burst.index];
            let name = stem(burst.index, candidate) + ".png";
            let caption = format!(
                "Candidate {}: DM {:.1}, at {:.3} s, S/N {:.1}.",
                burst.index + 1,
                burst.dm,
                burst.time_s,
                burst.snr
            );
            let _ = write!(html, "<div id=\"c{}\">", burst.index + 1);
            figure(html, &name, &candidate_alt(&burst), &caption);
            html.push_str("</div>\n");
        }
    }

    fn commands(&self, html: &mut String) {
        let made = |name: &str| escape(&self.place.join(name).display().to_string());
        let (recording, binaries) = (made(OBSERVATION), made(strain::TEMPLATES));
        let simulation = SIMULATION.join(" \\\n    ");
        let voltages = voltages::SIMULATION.join(" \\\n    ");
        let coherent = voltages::SEARCHES[1].1;
        let array = array::SIMULATION.join(" \\\n    ");
        let tracked = array::CORRELATIONS[1].1;
        let strain = strain::SIMULATION.join(" \\\n    ");
        let strain_search = strain::SEARCH;
        let events = format!("{}/events", strain::FOUND);
        let _ = write!(
            html,
            "<h2>9. Do it yourself</h2>\n\
             <p>The demo is a few commands and this page (where sidereal is not installed, \
             write <code>cargo run --release --</code> for <code>sidereal</code>). Another <code>--seed</code> gives other noise; \
             <code>sidereal search</code> takes your own recordings (.fil, PSRFITS, FBH5, and voltages: GUPPI raw, PSRDADA, VDIF, Mark 5B) likewise.</p>\n\
             <pre>sidereal simulate burst mine.fil \\\n    {simulation}\n\
             sidereal search mine.fil -o found {SEARCH}\n\n\
             sidereal simulate voltages mine.raw \\\n    {voltages}\n\
             sidereal search mine.raw -o sharp \\\n    {coherent}\n\n\
             sidereal simulate array -o mine \\\n    {array}\n\
             sidereal correlate mine/*.dada -o mine.uvh5 --antennas mine/antennas.csv \\\n    \
             {tracked}\n\n\
             sidereal simulate strain mine.hdf5 \\\n    {strain}\n\
             sidereal spiir search mine_H1.hdf5 mine_L1.hdf5 -o events \\\n    --templates {binaries} {strain_search}</pre>\n\
             <p>Look at what was recorded, or write the channels that voltages were divided into:</p>\n\
             <pre>sidereal info mine.raw\n\
             sidereal channelize mine.raw -o mine.fil --channels 16 --integrate 8 --stokes IQUV</pre>\n\
             <p>Of the demo's own recording, look at the header, or take the time series at one DM:</p>\n\
             <pre>sidereal info {recording}\n\
             sidereal dedisperse {recording} -o series \\\n    \
             --dm-min 87.5 --dm-max 88 --dm-step 0.5 --format dat</pre>\n\
             <p>In this folder: <a href=\"candidates.cand\">candidates.cand</a> (Heimdall's columns), \
             <a href=\"candidates.csv\">candidates.csv</a> (FETCH's columns), \
             <a href=\"summary.json\">summary.json</a>, \
             <a href=\"observation.fil.truth.json\">observation.fil.truth.json</a>, \
             <a href=\"voltages.raw.truth.json\">voltages.raw.truth.json</a>, \
             <a href=\"array/truth.json\">array/truth.json</a>, \
             <a href=\"strain.hdf5.truth.json\">strain.hdf5.truth.json</a>, the visibilities \
             <a href=\"tracked.uvh5\">tracked.uvh5</a> (pyuvdata opens them, and writes what CASA reads), the gravitational waves' \
             <a href=\"{events}.json\">events.json</a> and <a href=\"{events}.xml\">events.xml</a> (LIGO_LW) and \
             the pictures.</p>\n"
        );
    }
}

/// Formats a count: `none is`, `1 is` or `3 are`.
fn none_or(count: usize) -> String {
    match count {
        0 => "none is".to_owned(),
        1 => "1 is".to_owned(),
        many => format!("{many} are"),
    }
}
