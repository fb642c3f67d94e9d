//! Damaged checkpoints of interrupted runs: four bytes of the input choose the offset, kind and value of each damage.
//!
//! A run that accepts such a state continues to its end. A run that accepts an undamaged state ends like an
//! uninterrupted one.

use std::path::PathBuf;
use std::sync::OnceLock;

use sidereal::backend::Backend;
use sidereal::dedisperse::dm_plan::{DmPlan, DmRange};
use sidereal::io::FilterbankHeader;
use sidereal::io::npy::{Order, Writer};
use sidereal::pipeline::burst::{self, Checkpoint, Observer, SearchOptions, Status};
use sidereal::pipeline::series::{self, Block, SeriesRange, SeriesSink};
use sidereal::sample::Encoding;
use sidereal::single_pulse::Candidate;
use sidereal::spiir::whiten::Method;
use sidereal::state::{Saved, Saving};
use sidereal::units::Band;
use sidereal::{Error, Result};

use super::memory::Rows;
use super::pipelines::{SIGMA, detector, header};
use super::{Outcome, Read, with_file};

/// Rows of the recording.
const ROWS: usize = 6000;

/// Its channels.
const CHANNELS: usize = 8;

/// Words of a candidate.
const CANDIDATE: usize = 14;

/// A state with the damage that an input describes.
fn damaged(state: &[u8], changes: &[u8]) -> Vec<u8> {
    let mut state = state.to_vec();
    for change in changes.chunks_exact(4).take(64) {
        let place =
            usize::from(u16::from_le_bytes([change[0], change[1]])) * 8 % state.len().max(1);
        match (change[2] % 4, state.get_mut(place..place + 8)) {
            (0, _) if change[3] > 0 => state.truncate(place),
            (1, Some(number)) => number[usize::from(change[3]) % 8] ^= change[3],
            (2, Some(number)) => {
                number.copy_from_slice(&(u64::MAX >> (change[3] % 64)).to_le_bytes())
            }
            (3, Some(number)) => number.copy_from_slice(&u64::from(change[3]).to_le_bytes()),
            _ => {}
        }
    }
    state
}

/// Values that the words of a state take.
fn words(state: &[u8]) -> Vec<u64> {
    state.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word)).collect()
}

fn bytes(words: impl IntoIterator<Item = u64>) -> Vec<u8> {
    words.into_iter().flat_map(u64::to_le_bytes).collect()
}

/// Saved state of a filter. A chain that accepts it continues.
pub(super) fn saved_state(bytes: &[u8]) -> Outcome {
    static STATE: OnceLock<(Vec<f64>, Vec<u8>)> = OnceLock::new();
    let method = Method::Overlap { fft_s: 1.0 };
    let (strain, state) = STATE.get_or_init(|| {
        let strain: Vec<f64> = (0..2000).map(|k| SIGMA * f64::from(k * 37 % 19 - 9)).collect();
        let mut before = detector(method).expect("a chain");
        before.run(&strain, &vec![true; strain.len()], &mut |_| {}).expect("strain");
        let mut saving = Saving::default();
        assert!(before.save(&mut saving).expect("saved"));
        let mut state = saving.finish();
        // Saving::sealed replaces this checksum with that of the bytes read.
        state.truncate(state.len() - 8);
        (strain, state)
    });
    let state = Saving::sealed(damaged(state, bytes));
    let mut after = detector(method)?;
    after.load(&mut Saved::new("state".as_ref(), 0, &state)?, Vec::new())?;
    after.run(strain, &vec![true; strain.len()], &mut |_| {})?;
    after.flush(&mut |_| {})?;
    Ok(Read::Whole)
}

/// Noise with a pulse every 700 rows.
fn rows() -> &'static [u8] {
    static ROWS_OF_NOISE: OnceLock<Vec<u8>> = OnceLock::new();
    ROWS_OF_NOISE.get_or_init(|| {
        let mut random = 1u32;
        let mut noise = || {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            random >> 27
        };
        let sample = |k: usize| {
            let (row, channel) = (k / CHANNELS, k % CHANNELS);
            let is_pulse = (row + 690 - channel) % 700 < 4;
            (90 + noise() + noise() + if is_pulse { 60 } else { 0 }) as u8
        };
        (0..ROWS * CHANNELS).map(sample).collect()
    })
}

fn source() -> Result<Rows<'static>> {
    let band = Band::uniform(1500.0, -10.0, CHANNELS)?;
    let times = Some(ROWS as u64);
    let header =
        FilterbankHeader { path: "kept".into(), ..header(band, Encoding::U8, 1e-3, times) };
    Ok(Rows { header, bytes: rows(), next: 0 })
}

/// Two ranges of trials.
fn options(zero_dm: bool) -> Result<SearchOptions> {
    let binned = DmRange { downsample: 2, ..DmRange::new(40.0, 80.0, 20.0) };
    let plan = DmPlan::from_ranges(vec![DmRange::new(0.0, 40.0, 10.0), binned])?;
    Ok(SearchOptions {
        snr: 4.0,
        max_width_s: 0.01,
        baseline_s: 0.1,
        auto_mask: false,
        zero_dm,
        gulp: 500,
        ..SearchOptions::new(plan)
    })
}

/// Saves candidates, and the state of the search after each gulp.
#[derive(Default)]
struct Journal {
    found: Vec<Candidate>,
    checkpoints: Vec<Checkpoint>,
}

impl Observer for Journal {
    fn observe(&mut self, _: &Status) -> bool {
        true
    }

    fn found(&mut self, candidates: &[Candidate]) -> Result<()> {
        self.found.extend_from_slice(candidates);
        Ok(())
    }

    fn taken(&mut self) -> Result<Vec<Candidate>> {
        Ok(self.found.clone())
    }

    fn wants_checkpoint(&mut self, _: bool) -> bool {
        true
    }

    fn checkpoint(&mut self, checkpoint: &Checkpoint) -> Result<()> {
        self.checkpoints.push(checkpoint.clone());
        Ok(())
    }
}

/// An uninterrupted search: checkpoints, the candidates before each, and all of them as text.
struct Searched {
    states: Vec<(Vec<u8>, Vec<u8>)>,
    candidates: String,
}

fn searched(zero_dm: bool) -> Result<Searched> {
    let mut journal = Journal::default();
    let (options, backend) = (options(zero_dm)?, Backend::best(1));
    let report = burst::search_from(
        burst::Source::Rows(&mut source()?),
        &options,
        &backend,
        None,
        &mut journal,
    )?;
    let state = |checkpoint: &Checkpoint| {
        let before = &journal.found[..checkpoint.candidates as usize];
        (checkpoint.to_bytes(), bytes(before.iter().flat_map(Candidate::words)))
    };
    let states: Vec<_> = journal.checkpoints.iter().map(state).collect();
    assert!(states.iter().any(|(_, before)| !before.is_empty()), "candidates that are final early");
    Ok(Searched { states, candidates: format!("{:?}", report.candidates) })
}

/// Damages the checkpoint or the journal of a search: the first byte selects the file, the others damage it.
pub(super) fn saved_search(bytes: &[u8]) -> Outcome {
    static SEARCHES: OnceLock<[Searched; 2]> = OnceLock::new();
    let searches =
        SEARCHES.get_or_init(|| [false, true].map(|zero_dm| searched(zero_dm).expect("a search")));
    let (which, changes) = bytes.split_first().unwrap_or((&0, &[]));
    let zero_dm = which & 1 != 0;
    let search = &searches[usize::from(zero_dm)];
    let (checkpoint, before) = &search.states[usize::from(which >> 1) % search.states.len()];
    let whole = [&checkpoint[..], before].concat();
    let state = damaged(&whole, changes);
    let (read, lines) = state.split_at(checkpoint.len().min(state.len()));
    let checkpoint = Checkpoint::from_bytes(read)?;
    let line = |words: &[u64]| Candidate::from_words(words).ok_or_else(|| lie("candidate"));
    let found = words(lines).chunks_exact(CANDIDATE).map(line).collect::<Result<_>>()?;
    let mut journal = Journal { found, ..Journal::default() };
    let (options, backend) = (options(zero_dm)?, Backend::best(1));
    let report = burst::search_from(
        burst::Source::Rows(&mut source()?),
        &options,
        &backend,
        Some(&checkpoint),
        &mut journal,
    )?;
    if state == whole {
        assert_eq!(format!("{:?}", report.candidates), search.candidates);
    }
    Ok(Read::Whole)
}

/// Writes the first range of a dedispersion to a file, and saves its state after each gulp.
struct Series {
    path: PathBuf,
    written: u64,
    writer: Option<Writer>,
    checkpoints: Vec<series::Checkpoint>,
}

impl Series {
    fn new(path: PathBuf, written: u64) -> Self {
        Self { path, written, writer: None, checkpoints: Vec::new() }
    }

    /// Ends the file and returns its bytes.
    fn finish(self) -> Result<Vec<u8>> {
        self.writer.map_or(Ok(()), Writer::finish)?;
        std::fs::read(&self.path).map_err(|error| Error::io(self.path, error))
    }
}

impl SeriesSink for Series {
    fn begin(&mut self, ranges: &[SeriesRange]) -> Result<()> {
        let dms = ranges[0].dms.len();
        self.writer = Some(Writer::in_place(&self.path, dms, Order::Fortran, self.written)?);
        Ok(())
    }

    fn block(&mut self, block: Block<'_>) -> Result<()> {
        match &mut self.writer {
            Some(writer) if block.range == 0 => {
                let plane = block.plane;
                let column = |time: usize| (0..plane.dms()).map(move |dm| plane.row(dm)[time]);
                writer.write(&(0..plane.times()).flat_map(column).collect::<Vec<_>>())
            }
            _ => Ok(()),
        }
    }

    fn observe(&mut self, _: &Status) -> bool {
        true
    }

    fn checkpoint(&mut self, checkpoint: &series::Checkpoint, _: bool) -> Result<()> {
        self.checkpoints.push(checkpoint.clone());
        self.writer.as_mut().map_or(Ok(()), Writer::release)
    }
}

/// Dedisperses from a checkpoint, with `file` as the series written before; returns the output.
fn dedispersed(
    from: Option<&series::Checkpoint>,
    (zero_dm, file): (bool, &[u8]),
) -> Result<(Vec<u8>, Vec<series::Checkpoint>)> {
    with_file(file, |path| {
        let written = from.and_then(|from| from.times.first()).copied().unwrap_or(0);
        let mut sink = Series::new(path.to_path_buf(), written);
        let options = options(zero_dm)?;
        series::dedisperse_from(&mut source()?, &options, &Backend::best(1), from, &mut sink)?;
        let checkpoints = std::mem::take(&mut sink.checkpoints);
        Ok((sink.finish()?, checkpoints))
    })
}

/// Damages the checkpoint or the series of a dedispersion: the first byte selects the case, the others damage the
/// checkpoint.
pub(super) fn saved_series(input: &[u8]) -> Outcome {
    static SERIES: OnceLock<[(Vec<u8>, Vec<series::Checkpoint>); 2]> = OnceLock::new();
    let made = |zero_dm| dedispersed(None, (zero_dm, &[])).expect("series");
    let both = SERIES.get_or_init(|| [false, true].map(made));
    let (which, changes) = input.split_first().unwrap_or((&0, &[]));
    let zero_dm = which & 1 != 0;
    let (file, checkpoints) = &both[usize::from(zero_dm)];
    let checkpoint = &checkpoints[usize::from(which >> 1) % checkpoints.len()];
    let own = [checkpoint.rows, checkpoint.flagged];
    let whole = bytes(own.into_iter().chain(checkpoint.times.iter().copied()));
    let state = damaged(&whole, changes);
    let words = words(&state);
    let [rows, flagged, times @ ..] = &words[..] else { return Err(lie("checkpoint")) };
    let from = series::Checkpoint { rows: *rows, flagged: *flagged, times: times.to_vec() };
    // The file equals that of the whole run: rows after the checkpoint are recomputed.
    let (again, _) = dedispersed(Some(&from), (zero_dm, file))?;
    if state == whole {
        assert!(again == *file, "the series of a run that was interrupted at row {rows} differ");
    }
    Ok(Read::Whole)
}

fn lie(what: &str) -> Error {
    Error::parameter("words", what, "too few")
}
