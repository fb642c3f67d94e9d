//! Candidate lists of a search: .cand, .csv, .singlepulse, and FETCH's .h5.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::path::Path;

use sidereal::io::FilterbankHeader;
use sidereal::io::candidates::{self, Record};
use sidereal::io::fetch_h5::{self, FetchCandidate, PIXELS};
use sidereal::pipeline::cutout::Cutout;
use sidereal::single_pulse::Candidate;
use sidereal::{Error, Result};

use super::report::{Found, tidy};
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
        band_fraction: c.band_fraction,
    };
    let records: Vec<Record> = found.report.candidates.iter().map(record).collect();
    candidates::write_heimdall(&folder.file("candidates.cand"), &records)?;
    candidates::write_fetch(&folder.file("candidates.csv"), &found.files, &records)?;
    if singlepulse {
        candidates::write_singlepulse(&folder.file("candidates.singlepulse"), &records)?;
    }
    Ok(())
}

/// File name of the list of events that belong to candidates.
pub(super) const ABSORBED: &str = "absorbed.csv";

/// Writes each candidate's events other than its best one, candidate by candidate.
pub(super) fn write_absorbed(folder: &Folder, found: &Found) -> Result<()> {
    let candidates = &found.report.candidates;
    let key = |(trial, begin_s): (usize, f64)| (trial, begin_s.to_bits());
    let numbers: HashMap<_, _> =
        candidates.iter().map(|c| key((c.trial, c.peak_begin_s))).zip(1..).collect();
    let mut events: Vec<_> = found
        .report
        .absorbed
        .iter()
        .filter_map(|event| Some((*numbers.get(&key(event.owner))?, event)))
        .collect();
    events.sort_by(|(a, p), (b, q)| {
        a.cmp(b).then(p.trial.cmp(&q.trial)).then(p.begin_s.total_cmp(&q.begin_s))
    });
    let mut text =
        "candidate,candidate_dm,candidate_time_s,candidate_snr,trial,dm,time_s,snr,width_s\n"
            .to_owned();
    for (number, event) in events {
        let owner: &Candidate = &candidates[number - 1];
        let [owner_dm, owner_time_s, owner_snr] = [owner.dm, owner.time_s, owner.snr].map(tidy);
        let (time_s, width_s) = (0.5 * (event.begin_s + event.end_s), event.end_s - event.begin_s);
        let [dm, time_s, snr, width_s] = [event.dm, time_s, event.snr, width_s].map(tidy);
        let trial = event.trial;
        let _ = writeln!(
            text,
            "{number},{owner_dm},{owner_time_s},{owner_snr},{trial},{dm},{time_s},{snr},{width_s}"
        );
    }
    let path = folder.file(ABSORBED);
    std::fs::write(&path, text).map_err(|error| Error::io(path, error))
}

/// Writes one candidate for FETCH.
pub(super) fn write_fetch(
    path: &Path,
    candidate: &Candidate,
    cutout: &Cutout,
    header: &FilterbankHeader,
    texts: &[(&'static str, String)],
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
        texts,
    };
    fetch_h5::write(path, &record)
}

/// Returns the waterfall with axes time, channel, resampled to FETCH's size; blanks become 0.
fn time_by_channel(cutout: &Cutout) -> Vec<f32> {
    let at = |index: usize| {
        let (time, channel) = (index / PIXELS, index % PIXELS);
        let value = cutout.waterfall[channel * cutout.channels / PIXELS * cutout.times + time];
        if value.is_finite() { value } else { 0.0 }
    };
    (0..PIXELS * PIXELS).map(at).collect()
}
