//! Files of a search: candidate lists (.cand, .csv, .singlepulse, FETCH's .h5), the journal for `--resume`, and the
//! copy of piped rows that plots read again.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{BufWriter, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sidereal::io::candidates::{self, Record};
use sidereal::io::fetch_h5::{self, FetchCandidate, PIXELS};
use sidereal::io::{FilterbankHeader, FilterbankSource, Gap};
use sidereal::pipeline::burst::{Checkpoint, Observer, Status};
use sidereal::pipeline::cutout::Cutout;
use sidereal::single_pulse::{Absorbed, Candidate};
use sidereal::{Error, Result};

use super::lines::Lines;
use super::report::Found;
use crate::numbers::tidy;
use crate::output::{Folder, JOURNAL};
use crate::resume::RunJournal;

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

/// Line of the journal.
#[derive(Serialize, Deserialize)]
struct Line {
    dm: f64,
    /// Seconds from the recording's first sample.
    time_s: f64,
    snr: f64,
    width_s: f64,
    members: usize,
    /// All numbers of the candidate, bit for bit.
    exact: Vec<u64>,
    /// Events that belong to the candidate, if they are listed: trial, DM, S/N, begin and end as numbers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    absorbed: Vec<[u64; 5]>,
}

/// Observer of a search that records its candidates.
pub(super) struct Journal<'a> {
    pub(super) keeper: RunJournal,
    /// Seconds from the recording's first sample to the first spectrum's start.
    pub(super) delay_s: f64,
    /// Whether the recording can be read again: otherwise checkpoints are useless.
    pub(super) has_checkpoints: bool,
    /// Lines of candidates of a live search.
    lines: Option<&'a mut Lines>,
    pub(super) observe: &'a mut dyn FnMut(&Status) -> bool,
    /// Absorbed events of the candidates that [`Observer::found`] receives next.
    members: Vec<Absorbed>,
    /// Absorbed events of all lines read from the journal.
    read: Vec<Absorbed>,
}

impl<'a> Journal<'a> {
    /// Wraps a run journal. `delay_s` counts from the recording's first sample to the first spectrum's start;
    /// `has_checkpoints` states whether the recording can be read again.
    pub(super) fn new(
        keeper: RunJournal,
        delay_s: f64,
        has_checkpoints: bool,
        lines: Option<&'a mut Lines>,
        observe: &'a mut dyn FnMut(&Status) -> bool,
    ) -> Self {
        let (members, read) = (Vec::new(), Vec::new());
        Self { keeper, delay_s, has_checkpoints, lines, observe, members, read }
    }
}

impl Observer for Journal<'_> {
    fn observe(&mut self, status: &Status) -> bool {
        if let Some(lines) = &mut self.lines {
            lines.take_triggers();
        }
        (self.observe)(status)
    }

    fn found(&mut self, candidates: &[Candidate]) -> Result<()> {
        let delay_s = self.delay_s;
        if let Some(lines) = &mut self.lines {
            lines.found(candidates, delay_s)?;
        }
        let members = std::mem::take(&mut self.members);
        self.keeper.append(candidates.iter().map(|candidate| {
            Line {
                dm: tidy(candidate.dm),
                time_s: tidy(candidate.time_s + delay_s),
                snr: tidy(candidate.snr),
                width_s: tidy(candidate.width_s),
                members: candidate.members,
                exact: candidate.words().to_vec(),
                absorbed: members
                    .iter()
                    .filter(|event| event.owner == (candidate.trial, candidate.peak_begin_s))
                    .map(words)
                    .collect(),
            }
        }))
    }

    fn wants_provisional(&self) -> bool {
        self.lines.is_some()
    }

    fn provisional(&mut self, candidates: &[Candidate]) -> Result<()> {
        let delay_s = self.delay_s;
        self.lines.as_mut().map_or(Ok(()), |lines| lines.provisional(candidates, delay_s))
    }

    fn taken(&mut self) -> Result<Vec<Candidate>> {
        let mut read = Vec::new();
        let candidate = |line: Line| {
            let candidate = Candidate::from_words(&line.exact).ok_or_else(|| {
                Error::format(JOURNAL, "line", 0, "it is damaged, expected a candidate")
            })?;
            read.extend(line.absorbed.iter().map(|words| event(words, &candidate)));
            Ok(candidate)
        };
        let candidates = self.keeper.lines()?.into_iter().map(candidate).collect();
        self.read = read;
        candidates
    }

    fn absorbed(&mut self, members: &[Absorbed]) -> Result<()> {
        self.members = members.to_vec();
        Ok(())
    }

    fn taken_absorbed(&mut self) -> Result<Vec<Absorbed>> {
        Ok(std::mem::take(&mut self.read))
    }

    fn wants_checkpoint(&mut self, is_last: bool) -> bool {
        self.has_checkpoints && (is_last || self.keeper.is_due())
    }

    fn checkpoint(&mut self, checkpoint: &Checkpoint) -> Result<()> {
        self.keeper.checkpoint(&checkpoint.to_bytes())
    }
}

fn words(event: &Absorbed) -> [u64; 5] {
    let Absorbed { trial, dm, snr, begin_s, end_s, .. } = *event;
    let [dm, snr, begin, end] = [dm, snr, begin_s, end_s].map(f64::to_bits);
    [trial as u64, dm, snr, begin, end]
}

fn event(words: &[u64; 5], owner: &Candidate) -> Absorbed {
    let [dm, snr, begin_s, end_s] = [words[1], words[2], words[3], words[4]].map(f64::from_bits);
    let owner = (owner.trial, owner.peak_begin_s);
    Absorbed { owner, trial: words[0] as usize, dm, snr, begin_s, end_s }
}

/// File name of the copy in the folder being filled; removed at the end.
pub(super) const NAME: &str = "rows.tmp";

/// Source that also writes the rows it reads to a file.
pub(super) struct Spool<'a> {
    source: &'a mut dyn FilterbankSource,
    file: BufWriter<File>,
    path: PathBuf,
}

impl<'a> Spool<'a> {
    pub(super) fn new(source: &'a mut dyn FilterbankSource, path: &Path) -> Result<Self> {
        let file = File::create(path).map_err(|error| Error::io(path, error))?;
        Ok(Self { source, file: BufWriter::new(file), path: path.to_path_buf() })
    }
}

impl FilterbankSource for Spool<'_> {
    fn header(&self) -> &FilterbankHeader {
        self.source.header()
    }

    fn read(&mut self, rows: &mut [u8]) -> Result<usize> {
        let times = self.source.read(rows)?;
        let bytes = times * self.source.header().row_bytes();
        let written = self.file.write_all(&rows[..bytes]).and_then(|()| self.file.flush());
        written.map_err(|error| Error::io(&self.path, error))?;
        Ok(times)
    }

    fn skip(&mut self, times: u64) -> Result<u64> {
        // A hole in the file stands for skipped rows, so that row numbers stay valid.
        let skipped = self.source.skip(times)?;
        let bytes = skipped as i64 * self.source.header().row_bytes() as i64;
        let moved = self.file.seek(SeekFrom::Current(bytes));
        moved.map_err(|error| Error::io(&self.path, error))?;
        Ok(skipped)
    }

    fn is_live(&self) -> bool {
        self.source.is_live()
    }

    fn cut(&self) -> Option<&str> {
        self.source.cut()
    }

    fn warnings(&self) -> &[String] {
        self.source.warnings()
    }

    fn gaps(&self) -> &[Gap] {
        self.source.gaps()
    }

    fn flagged_samples(&self) -> u64 {
        self.source.flagged_samples()
    }
}

/// Reader of the copy, from its first row.
pub(super) struct Spooled {
    header: FilterbankHeader,
    file: File,
    path: PathBuf,
    left: u64,
}

impl Spooled {
    pub(super) fn open(header: &FilterbankHeader, path: &Path) -> Result<Self> {
        let failed = |error| Error::io(path, error);
        let file = File::open(path).map_err(failed)?;
        let bytes = file.metadata().map_err(failed)?.len();
        let left = bytes / header.row_bytes() as u64;
        Ok(Self { header: header.clone(), file, path: path.to_path_buf(), left })
    }
}

impl FilterbankSource for Spooled {
    fn header(&self) -> &FilterbankHeader {
        &self.header
    }

    fn read(&mut self, rows: &mut [u8]) -> Result<usize> {
        let row_bytes = self.header.row_bytes();
        let times = self.left.min((rows.len() / row_bytes) as u64);
        let read = self.file.read_exact(&mut rows[..times as usize * row_bytes]);
        read.map_err(|error| Error::io(&self.path, error))?;
        self.left -= times;
        Ok(times as usize)
    }

    fn skip(&mut self, times: u64) -> Result<u64> {
        let times = times.min(self.left);
        let bytes = times as i64 * self.header.row_bytes() as i64;
        let moved = self.file.seek(SeekFrom::Current(bytes));
        moved.map_err(|error| Error::io(&self.path, error))?;
        self.left -= times;
        Ok(times)
    }
}
