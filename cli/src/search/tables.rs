//! The candidate lists of a search: .cand, .csv, .singlepulse, and FETCH's .h5.

use std::path::Path;

use sidereal::Result;
use sidereal::io::FilterbankHeader;
use sidereal::io::candidates::{self, Record};
use sidereal::io::fetch_h5::{self, FetchCandidate, PIXELS};
use sidereal::pipeline::cutout::Cutout;
use sidereal::pulse::cluster::Candidate;

use super::report::Found;
use crate::output::Folder;

/// Writes the lists.
pub(super) fn write(folder: &Folder, found: &Found, singlepulse: bool) -> Result<()> {
    let tsamp_s = found.header.tsamp_s;
    let record = |c: &Candidate| Record {
        snr: c.snr,
        time_s: c.time_s,
        width_s: c.width_s,
        dm: c.dm,
        dm_trial: c.trial,
        members: c.members,
        begin_s: c.begin_s,
        end_s: c.end_s,
        tsamp_s,
        mjd: found.mjd(c),
        barycentric_mjd: found.barycentric_mjd(c),
    };
    let records: Vec<Record> = found.report.candidates.iter().map(record).collect();
    candidates::write_heimdall(&folder.file("candidates.cand"), &records)?;
    candidates::write_fetch(&folder.file("candidates.csv"), &found.files, &records)?;
    if singlepulse {
        candidates::write_singlepulse(&folder.file("candidates.singlepulse"), &records)?;
    }
    Ok(())
}

/// Writes one candidate for FETCH.
pub(super) fn write_fetch(
    path: &Path,
    candidate: &Candidate,
    cutout: &Cutout,
    header: &FilterbankHeader,
) -> Result<()> {
    let width = (candidate.width_s / header.tsamp_s).round().max(1.0);
    let record = FetchCandidate {
        file: &header.path,
        source_name: &header.source_name,
        dm: candidate.dm,
        time_s: candidate.time_s,
        snr: candidate.snr,
        width: width as u32,
        label: -1,
        tstart_mjd: header.tstart_mjd,
        tsamp_s: header.tsamp_s,
        fch1_mhz: header.band.fch1_mhz(),
        foff_mhz: header.band.foff_mhz(),
        channels: header.channels(),
        times: header.times.unwrap_or(0),
        freq_time: &time_by_channel(cutout),
        dm_time: &cutout.plane,
    };
    fetch_h5::write(path, &record)
}

/// The waterfall with axes time, channel, stretched to FETCH's size; blanks become 0.
fn time_by_channel(cutout: &Cutout) -> Vec<f32> {
    let at = |index: usize| {
        let (time, channel) = (index / PIXELS, index % PIXELS);
        let value = cutout.waterfall[channel * cutout.channels / PIXELS * cutout.times + time];
        if value.is_finite() { value } else { 0.0 }
    };
    (0..PIXELS * PIXELS).map(at).collect()
}
