//! Pictures of a live search: each final candidate is drawn on a thread of its own while the search goes on.
//!
//! Invariant: the search waits for no picture until an observation has ended and its products are written. A candidate has no
//! picture if [`WAITING`] others wait or the limit of the hour is reached; its line then names none.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use sidereal::io::FilterbankHeader;
use sidereal::pipeline::burst::SearchOptions;
use sidereal::pipeline::recent::RecentRows;
use sidereal::single_pulse::Candidate;
use sidereal::units::{Epoch, SECONDS_PER_DAY, dispersion_delay_s};
use sidereal::{Error, Result};

use super::shown::Shown;
use crate::interrupt;
use crate::plots::{self, Png};
use crate::provenance::Made;
use crate::say::warning;
use crate::streams::name_of;
use crate::watch::Watcher;

/// Most candidates that wait for their pictures.
const WAITING: usize = 32;

/// Longest wait for the rows after a candidate, and time between two looks for them.
const LONGEST: Duration = Duration::from_secs(10);
const STEP: Duration = Duration::from_millis(50);

/// Time after which the count of pictures begins anew.
const HOUR: Duration = Duration::from_secs(3600);

/// Windows of the noise estimate, and widest boxcars, until a candidate is final, beside twice the longest delay.
const WINDOWS: f64 = 6.0;
const WIDTHS: f64 = 100.0;

/// Limit in bytes on the rows in memory.
const MOST_BYTES: usize = 1 << 30;

/// Days from the epoch of MJD to 1970.
const UNIX_MJD: f64 = 40_587.0;

/// Folder of pictures, in the folder of all observations.
pub(crate) const FOLDER: &str = "pictures";

/// Drawer of pictures.
pub(super) struct Album {
    drawer: Option<Drawer>,
    rows: Arc<RecentRows>,
    folder: PathBuf,
    observation: String,
    tstart_mjd: f64,
    /// Most pictures in an hour, its start, and the pictures since then.
    most: usize,
    hour: Instant,
    count: usize,
}

/// Thread that draws, and the way to it.
struct Drawer {
    sender: SyncSender<Wanted>,
    thread: JoinHandle<()>,
    /// Set when no rows will come any more.
    is_over: Arc<AtomicBool>,
}

/// Candidate to draw.
struct Wanted {
    /// Its times count from the observation's first sample.
    candidate: Candidate,
    number: u64,
    path: PathBuf,
    since: Instant,
}

/// Inputs of the pictures.
pub(super) struct About {
    pub(super) rows: Arc<RecentRows>,
    pub(super) shown: Shown,
    /// Seconds from the observation's first sample to the first row searched.
    pub(super) first_s: f64,
    pub(super) made: Made,
    pub(super) watcher: Option<Arc<dyn Watcher>>,
}

/// Returns the size in bytes of the rows that pictures of a search need in memory.
pub(super) fn bytes(header: &FilterbankHeader, options: &SearchOptions) -> usize {
    let highest = options.plan.ranges.last().map_or(0.0, |range| range.dm_max);
    let (lowest_hz, highest_hz) = (header.band.lowest_hz(), header.band.highest_hz());
    let delay_s = dispersion_delay_s(highest, lowest_hz, highest_hz, options.dm_constant);
    let final_s = (WINDOWS * options.baseline_s).max(WIDTHS * options.max_width_s);
    bytes_of(2.0 * delay_s + final_s, header, options)
}

/// Returns the size in bytes of rows of a number of seconds, within the limits on memory.
pub(super) fn bytes_of(seconds: f64, header: &FilterbankHeader, options: &SearchOptions) -> usize {
    let rows = (seconds / header.tsamp_s) as usize;
    let limit = options.memory.map_or(MOST_BYTES, |limit| (limit / 4) as usize);
    rows.saturating_mul(header.row_bytes()).min(MOST_BYTES).min(limit)
}

impl Album {
    /// Starts the thread; pictures go to a folder for each day in `parent`/[`FOLDER`], at most `most` in an hour.
    ///
    /// # Errors
    /// [`Error::Io`] if the system starts no thread.
    pub(super) fn begin(
        parent: &Path,
        observation: &Path,
        most: usize,
        about: About,
    ) -> Result<Self> {
        let (sender, receiver) = sync_channel(WAITING);
        let is_over = Arc::new(AtomicBool::new(false));
        let is_ended = Arc::clone(&is_over);
        let (rows, tstart_mjd) = (Arc::clone(&about.rows), about.shown.header.tstart_mjd);
        let spawned = thread::Builder::new()
            .name("pictures".into())
            .spawn(move || draw_all(&about, &receiver, &is_ended));
        let thread = spawned.map_err(|error| Error::io("thread of the pictures", error))?;
        let name = observation.file_name().unwrap_or_default();
        Ok(Self {
            drawer: Some(Drawer { sender, thread, is_over }),
            rows,
            folder: parent.join(FOLDER),
            observation: name.to_string_lossy().into_owned(),
            tstart_mjd,
            most,
            hour: Instant::now(),
            count: 0,
        })
    }

    /// Asks for the picture of a final candidate, whose times count from the observation's first sample; returns its path,
    /// or `None` if it is not drawn.
    pub(super) fn want(&mut self, number: u64, candidate: &Candidate) -> Option<PathBuf> {
        if self.hour.elapsed() >= HOUR {
            (self.hour, self.count) = (Instant::now(), 0);
        }
        if self.count >= self.most || self.rows.are_on_device() {
            return None;
        }
        let name = format!("{}_{number:04}_DM{:.2}.png", self.observation, candidate.dm);
        let path = self.folder.join(self.day(candidate)).join(name);
        let (candidate, since) = (*candidate, Instant::now());
        let wanted = Wanted { candidate, number, path: path.clone(), since };
        self.drawer.as_ref()?.sender.try_send(wanted).ok()?;
        self.count += 1;
        Some(path)
    }

    /// Lets pictures be drawn of the rows that are there, since no others will come.
    pub(super) fn end(&self) {
        if let Some(drawer) = &self.drawer {
            drawer.is_over.store(true, Ordering::Relaxed);
        }
    }

    /// Waits for the pictures that were asked for.
    pub(super) fn finish(&mut self) {
        if let Some(Drawer { sender, thread, .. }) = self.drawer.take() {
            drop(sender);
            if let Err(panic) = thread.join() {
                std::panic::resume_unwind(panic);
            }
        }
    }

    /// Returns the day of a candidate, or today if the observation's start is unknown.
    fn day(&self, candidate: &Candidate) -> String {
        let mjd = if self.tstart_mjd > 0.0 {
            self.tstart_mjd + candidate.time_s / SECONDS_PER_DAY
        } else {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            UNIX_MJD + now.as_secs_f64() / SECONDS_PER_DAY
        };
        name_of(Epoch::from_mjd(mjd)).chars().take("2026-01-01".len()).collect()
    }
}

/// Draws candidates until the search ends; after a request to stop, those that wait have no picture.
fn draw_all(about: &About, receiver: &Receiver<Wanted>, is_over: &AtomicBool) {
    let mut is_told = false;
    while let Ok(wanted) = receiver.recv() {
        if interrupt::requested() {
            continue;
        }
        if let Err(error) = about.draw(&wanted, is_over)
            && !std::mem::replace(&mut is_told, true)
        {
            warning!(quiet: false, "a picture was not drawn, and others may be missing: {error}.");
        }
    }
}

impl About {
    fn draw(&self, wanted: &Wanted, is_over: &AtomicBool) -> Result<()> {
        let Wanted { candidate, number, path, since } = wanted;
        let shown = Shown { masked: self.rows.masked(), ..self.shown.clone() };
        let mut options = shown.plot_options(candidate);
        options.time_s -= self.first_s;
        let is_in_vain = || is_over.load(Ordering::Relaxed) || interrupt::requested();
        while !self.rows.has(&options)? && since.elapsed() < LONGEST && !is_in_vain() {
            thread::sleep(STEP);
        }
        let cutout = self.rows.section(&options)?.cutout();
        let folder = path.parent().unwrap_or(Path::new(""));
        std::fs::create_dir_all(folder).map_err(|error| Error::io(folder, error))?;
        let page = shown.page(candidate, format!("candidate {number}"));
        plots::candidate(&Png::new(path, &self.made), &cutout, &page)?;
        if let Some(watcher) = &self.watcher {
            watcher.picture(path);
        }
        Ok(())
    }
}
