//! Text and options of candidates' pictures, which are the same for a recording and for a live stream.

use sidereal::io::FilterbankHeader;
use sidereal::pipeline::cutout::Options;
use sidereal::single_pulse::Candidate;
use sidereal::units::{HZ_PER_MHZ, SECONDS_PER_DAY, dispersion_delay_s};

use crate::plots::{self, short};
use crate::rfi::Rfi;
use crate::selection::BeamDocument;

/// Recording and search of which candidates are shown.
#[derive(Clone, Debug)]
pub(super) struct Shown {
    /// Name of the recording.
    pub(super) file: String,
    /// Header from the recording's first sample.
    pub(super) header: FilterbankHeader,
    pub(super) rfi: Rfi,
    pub(super) dm_constant: f64,
    pub(super) zero_dm: bool,
    /// Channels masked throughout, in recorded order; empty means none.
    pub(super) masked: Vec<bool>,
}

impl Shown {
    /// Returns the options of a candidate's plot.
    pub(super) fn plot_options(&self, candidate: &Candidate) -> Options {
        let band = &self.header.band;
        let sweep_s =
            dispersion_delay_s(1.0, band.lowest_hz(), band.highest_hz(), self.dm_constant);
        let (dm, time_s, width_s) = (candidate.dm, candidate.time_s, candidate.width_s);
        self.common_options(Options::plot(dm, time_s, width_s, sweep_s))
    }

    /// Applies the channel mask, dispersion constant and zero-DM setting of the search.
    pub(super) fn common_options(&self, options: Options) -> Options {
        let (masked, dm_constant, zero_dm) = (self.masked.clone(), self.dm_constant, self.zero_dm);
        Options { masked, dm_constant, zero_dm, ..options }
    }

    /// Returns the text of a candidate's page; `rank` names it.
    pub(super) fn page(&self, candidate: &Candidate, rank: String) -> plots::Candidate {
        let header = &self.header;
        let known = header.tstart_mjd > 0.0;
        plots::Candidate {
            file: self.file.clone(),
            target: self.target(),
            rank,
            dm: candidate.dm,
            time_s: candidate.time_s,
            snr: candidate.snr,
            width_s: candidate.width_s,
            mjd: known.then(|| header.tstart_mjd + candidate.time_s / SECONDS_PER_DAY),
            masked_mhz: self.masked_mhz(),
        }
    }

    /// Returns the lower and upper edges of the masked channels, adjacent ones merged.
    fn masked_mhz(&self) -> Vec<(f64, f64)> {
        let band = &self.header.band;
        let half = 0.5 * band.channel_width_hz();
        let centres = band.centres_hz();
        let mut edges: Vec<(f64, f64)> = self
            .masked
            .iter()
            .zip(centres)
            .filter(|(masked, _)| **masked)
            .map(|(_, centre)| (centre - half, centre + half))
            .map(|(low, high)| (low / HZ_PER_MHZ, high / HZ_PER_MHZ))
            .collect();
        edges.sort_by(|a, b| a.0.total_cmp(&b.0));
        edges.dedup_by(|next, last| {
            let touches = next.0 <= last.1 + 1e-3 * (next.1 - next.0);
            if touches {
                last.1 = next.1;
            }
            touches
        });
        edges
    }

    /// Formats source, position, beam, telescope, band, masked channels and mitigation, where known.
    pub(super) fn target(&self) -> String {
        let header = &self.header;
        let band = format!(
            "{} to {} MHz, {} channels, {} bit",
            short(header.band.lowest_hz() / HZ_PER_MHZ, 6),
            short(header.band.highest_hz() / HZ_PER_MHZ, 6),
            header.channels(),
            header.recorded_bits,
        );
        // SIGPROC headers call a telescope without a number Fake.
        let telescope = if header.telescope == "Fake" { "" } else { &header.telescope };
        let position = header.ra_deg.zip(header.dec_deg).map_or_else(String::new, |(ra, dec)| {
            format!("RA {} Dec {}", sexagesimal(ra / 15.0), sexagesimal(dec))
        });
        let masked = match self.masked.iter().filter(|masked| **masked).count() {
            0 => String::new(),
            many => format!("{many} left out"),
        };
        let beam = header
            .beam
            .map_or_else(String::new, |beam| format!("beam {}", BeamDocument::from(beam).text()));
        let rfi = match self.rfi {
            Rfi::None => String::new(),
            rfi => format!("--rfi {rfi}"),
        };
        let names =
            [header.source_name.as_str(), &position, &beam, telescope, &band, &masked, &rfi];
        let known: Vec<&str> = names.into_iter().filter(|name| !name.is_empty()).collect();
        known.join(" · ")
    }
}

/// Formats hours or degrees as `-08:47:43.7`.
fn sexagesimal(value: f64) -> String {
    let tenths = (value.abs() * 36_000.0).round() as u64;
    let (whole, minutes) = (tenths / 36_000, tenths / 600 % 60);
    let sign = if value < 0.0 { "−" } else { "" };
    format!("{sign}{whole:02}:{minutes:02}:{:02}.{}", tenths / 10 % 60, tenths % 10)
}
