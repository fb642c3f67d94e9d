//! Strain that arrives as frame files, in one folder per detector.
//!
//! Invariant: a detector's samples come in order of time, each once; those that it lacks are invalid, and counted with their
//! reason. No detector delays another.

mod contents;
mod folder;

use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::state::{Saved, Saving};
use crate::units::{Gps, NS_PER_S};
pub use contents::Channels;
use contents::{Bad, Fault, Grid, Reading};
pub use folder::Span;
use folder::{Arrival, Folder, Folders, Identity, identity};

/// Frames of one detector.
#[derive(Clone, Debug)]
pub struct FrameFolder {
    /// Two-letter detector prefix: `H1`.
    pub detector: String,
    /// Folder in which its frames appear.
    pub folder: PathBuf,
    /// Channels to read.
    pub channels: Channels,
    /// Whether files are removed once they have been read, or will not be.
    pub removes: bool,
}

/// Patience with late frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// Time for which a frame is awaited after a later one of the same detector, or a damaged one may become readable.
    pub wait: Duration,
    /// Time for which a detector without later frames is awaited after others have had strain of that time.
    pub give_up: Duration,
}

/// Reason of invalid samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Later frames of the detector came without this one.
    Missing,
    /// The detector had no further frame.
    Stopped,
    /// The file is no whole frame, or contradicts its name or the rate.
    Damaged,
    /// The file was gone when its turn came.
    Vanished,
    /// The file lacks the strain or its state vector.
    Channel,
    /// The frame's first sample lies between the samples of the stream.
    OffGrid,
    /// The state vector lacks a required bit, or the frame marks the samples as invalid.
    State,
    /// Samples are not finite.
    NotFinite,
}

impl Reason {
    /// All reasons, in the order of [`Counts::gaps`].
    pub const ALL: [Self; 8] = [
        Self::Missing,
        Self::Stopped,
        Self::Damaged,
        Self::Vanished,
        Self::Channel,
        Self::OffGrid,
        Self::State,
        Self::NotFinite,
    ];

    /// Returns the reason's name in documents.
    pub fn name(self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Stopped => "stopped",
            Self::Damaged => "damaged",
            Self::Vanished => "vanished",
            Self::Channel => "channel",
            Self::OffGrid => "off_grid",
            Self::State => "state",
            Self::NotFinite => "not_finite",
        }
    }
}

/// Invalid samples of one reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Pieces of missing or stopped strain, of a second, or of 64 s as long as more than that is missing; frames for the other
    /// reasons.
    pub gaps: u64,
    /// Samples.
    pub samples: u64,
}

/// Counters of one detector.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Frames read.
    pub frames: u64,
    /// Samples so far, with invalid ones.
    pub samples: u64,
    /// Invalid samples by reason, in the order of [`Reason::ALL`].
    pub gaps: [Count; Reason::ALL.len()],
    /// Files not used because some of their time had passed as a gap, or because they are alone an hour or more after all others.
    pub late: u64,
    /// Files of a time that had been read, and files replaced by a later file of the same start.
    pub repeated: u64,
}

impl Counts {
    /// Returns the number of valid samples.
    pub fn valid(&self) -> u64 {
        self.samples - self.gaps.iter().map(|count| count.samples).sum::<u64>()
    }
}

/// Gap of a detector.
#[derive(Clone, Debug, PartialEq)]
pub struct Gap {
    /// First time, and the time after the last, of the gap or of the frame that has it.
    pub span: Span,
    /// Reason of the gap.
    pub reason: Reason,
    /// Invalid samples in that time.
    pub samples: u64,
    /// Fault of the file.
    pub why: Option<String>,
}

/// Next samples of a detector: those of a frame, or missing ones.
#[derive(Debug)]
pub struct Block<'a> {
    /// Samples of a frame; invalid ones are 0.
    pub samples: &'a [f64],
    /// Whether each sample is valid.
    pub valid: &'a [bool],
    /// Missing samples; 0 for a frame.
    pub missing: u64,
    /// Time at which a frame's file arrived, and the frame's time.
    pub frame: Option<Arrived>,
    /// Gaps in them.
    pub gaps: &'a [Gap],
    /// Times of hardware injections in them, by the state vector or GWOSC's mask of injections.
    pub injections: &'a [Span],
}

/// Arrival of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrived {
    /// When its file was noticed.
    pub at: Instant,
    /// Time of the frame.
    pub span: Span,
}

/// Start of the strain of all detectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Begun {
    /// Time of the first sample.
    pub start: Gps,
    /// Sampling rate.
    pub rate_hz: u32,
}

/// Length of the pieces of a gap, in seconds, and of those of a long one.
const PIECE_S: u32 = 1;
const LONG_PIECE_S: u32 = 64;

/// Time after all others, in nanoseconds, at which a file is not used before a second one confirms it; most such files.
const FAR_NS: i64 = 3600 * NS_PER_S;
const MOST_AHEAD: usize = 64;

/// Latest frames of which the times are kept, to recognize repeated files.
const KEPT: usize = 4096;

/// Strain of several detectors that arrives as frame files.
#[derive(Debug)]
pub struct FrameStreams {
    folders: Folders,
    streams: Vec<Stream>,
    pace: Pace,
    patience: Patience,
    rate_hz: u32,
    begun: Option<Begun>,
    /// Whether files are there that an earlier run has read.
    is_resuming: bool,
    /// First arrival of any file.
    first: Option<Instant>,
    arrivals: Vec<Arrival>,
    /// End of the newest frame in use.
    newest: Gps,
    /// Files of times long after that, which no other file confirms.
    ahead: Vec<Arrival>,
}

impl FrameStreams {
    /// Watches the folders of all detectors for frames of a sampling rate.
    ///
    /// # Errors
    /// [`Error::Io`] for a folder that is missing; [`Error::Parameter`] for none, a detector that occurs twice, or a bit that no
    /// state vector has.
    pub fn open(given: &[FrameFolder], rate_hz: u32, patience: Patience) -> Result<Self> {
        if given.is_empty() {
            return Err(Error::parameter("frames", 0, "there must be at least one folder"));
        }
        for (place, one) in given.iter().enumerate() {
            if given[..place].iter().any(|other| other.detector == one.detector) {
                let rule = "it has two folders, and needs one";
                return Err(Error::parameter("detector", &one.detector, rule));
            }
            one.channels.check()?;
        }
        let folders =
            Folders::watch(given.iter().map(|one| Folder::new(one.folder.clone(), &one.detector)))?;
        Ok(Self {
            folders,
            streams: given.iter().map(Stream::new).collect(),
            pace: Pace::default(),
            patience,
            rate_hz,
            begun: None,
            is_resuming: false,
            first: None,
            arrivals: Vec::new(),
            newest: Gps { ns: i64::MIN / 4 },
            ahead: Vec::new(),
        })
    }

    /// Waits until a file appears, at most `timeout`.
    pub fn wait(&self, timeout: Duration) {
        self.folders.wait(timeout);
    }

    /// Takes note of files that have appeared.
    pub fn look(&mut self) {
        let now = Instant::now();
        self.folders.arrivals(now, &mut self.arrivals);
        let mut arrivals = std::mem::take(&mut self.arrivals);
        for arrival in arrivals.drain(..) {
            self.first.get_or_insert(now);
            let next = self.next(arrival.folder);
            if self.is_resuming && next.is_some_and(|next| arrival.span.end <= next) {
                continue;
            }
            match self.begun.is_some() && arrival.span.start.ns - self.newest.ns > FAR_NS {
                true => self.hold(arrival, now),
                false => self.admit(arrival, now),
            }
        }
        self.arrivals = arrivals;
        self.is_resuming = false;
        if let Some(begun) = self.begun {
            self.streams.iter_mut().for_each(|stream| stream.drop_passed(begun));
        }
    }

    fn admit(&mut self, Arrival { folder, path, span }: Arrival, now: Instant) {
        self.newest = self.newest.max(span.end);
        self.pace.arrived(span.end, now, self.patience.give_up.max(self.patience.wait));
        self.streams[folder].arrived(path, span, now);
    }

    /// Holds a file of a time long after all others until a second one of that time comes, since a wrong name would end all
    /// detectors' strain.
    fn hold(&mut self, arrival: Arrival, now: Instant) {
        self.streams[arrival.folder].counts.late += 1;
        let (start, folder) = (arrival.span.start, arrival.folder);
        let is_near = |other: &Arrival| (other.span.start.ns - start.ns).abs() <= FAR_NS;
        let confirms = |other: &Arrival| other.folder != folder || other.span.start != start;
        let is_confirmed = self.ahead.iter().any(|other| is_near(other) && confirms(other));
        self.ahead.push(arrival);
        if is_confirmed {
            let (near, others): (Vec<_>, Vec<_>) = self.ahead.drain(..).partition(is_near);
            self.ahead = others;
            for arrival in near {
                self.streams[arrival.folder].counts.late -= 1;
                self.admit(arrival, now);
            }
        } else if self.ahead.len() > MOST_AHEAD {
            self.ahead.remove(0);
        }
    }

    /// Returns the start of the newest files that lie near each other in time and are more than one; of the newest one if none
    /// are. Files after them are held, since one of a wrong name may be among them.
    fn first_start(&mut self, now: Instant) -> Option<Gps> {
        let mut starts: Vec<(Gps, usize)> = Vec::new();
        for (folder, stream) in self.streams.iter().enumerate() {
            starts.extend(stream.pending.values().map(|pending| (pending.span.start, folder)));
        }
        starts.sort_unstable();
        let groups: Vec<&[(Gps, usize)]> =
            starts.chunk_by(|a, b| b.0.ns - a.0.ns <= FAR_NS).collect();
        let chosen = groups.iter().rev().find(|group| group.len() > 1).or(groups.last())?;
        let (start, last) = (chosen.first()?.0, chosen.last()?.0);
        self.pace = Pace::default();
        self.newest = last;
        for folder in 0..self.streams.len() {
            let after = self.streams[folder].pending.split_off(&(last.ns + 1));
            for Pending { path, span, .. } in after.into_values() {
                self.hold(Arrival { folder, path, span }, now);
            }
            let ends = self.streams[folder].pending.values().map(|pending| pending.span.end);
            self.newest = ends.fold(self.newest, Gps::max);
        }
        self.pace.arrived(self.newest, now, self.patience.give_up.max(self.patience.wait));
        Some(start)
    }

    /// Returns the start of the strain: that of the oldest frame, for all detectors, not counting frames that end an hour or more
    /// before the next ones. Returns `None` until each folder has a frame, or the wait since the first one has passed.
    ///
    /// # Errors
    /// [`Error::Parameter`] if all frames that are there lack the strain's channel.
    pub fn begin(&mut self) -> Result<Option<Begun>> {
        if self.begun.is_some() {
            return Ok(self.begun);
        }
        let Some(first) = self.first else { return Ok(None) };
        let is_awaited = self.streams.iter().any(|stream| stream.pending.is_empty());
        if is_awaited && first.elapsed() < self.patience.wait {
            return Ok(None);
        }
        let with_frames = self.streams.iter().filter(|stream| !stream.pending.is_empty());
        let lacking: Option<Vec<String>> = with_frames.map(Stream::lacking).collect();
        if let Some(why) = lacking.as_ref().and_then(|lacking| lacking.first()) {
            return Err(Error::parameter("frames.channels", "none found", why));
        }
        let rate_hz = self.rate_hz;
        let Some(start) = self.first_start(Instant::now()) else { return Ok(None) };
        self.begun = Some(Begun { start, rate_hz });
        Ok(self.begun)
    }

    /// Writes, for each detector, the GPS time before which its strain is not awaited: if its next frame has not arrived, the end of
    /// the newest frame that arrived at least `wait` ago from any detector, else the distant past.
    pub fn waited(&self, waited: &mut Vec<Gps>) {
        let time = self.pace.before(Instant::now(), self.patience.wait);
        let has_next = |(detector, stream): (usize, &Stream)| {
            self.next(detector).is_some_and(|next| stream.oldest().is_some_and(|gps| gps <= next))
        };
        let never = Gps { ns: i64::MIN / 4 };
        waited.clear();
        let streams = self.streams.iter().enumerate();
        waited.extend(streams.map(|stream| if has_next(stream) { never } else { time }));
    }

    /// Returns a detector's next samples, a frame or a piece of a gap; `None` if it has none yet.
    pub fn take(&mut self, detector: usize) -> Option<Block<'_>> {
        let begun = self.begun?;
        let now = Instant::now();
        let given_up = self.pace.before(now, self.patience.give_up);
        self.streams[detector].take(now, self.patience.wait, given_up, begun)
    }

    /// Returns the time of a detector's next sample.
    pub fn next(&self, detector: usize) -> Option<Gps> {
        let Begun { start, rate_hz } = self.begun?;
        Some(start.plus_samples(self.streams[detector].counts.samples as i64, rate_hz))
    }

    /// Saves what has been read of each detector; call it once the strain has begun.
    pub fn save(&self, to: &mut Saving) {
        to.part("frames");
        let Some(Begun { start, rate_hz }) = self.begun else { return };
        to.signed(start.ns);
        to.number(rate_hz.into());
        to.number(self.streams.len() as u64);
        for Stream { counts, taken, .. } in &self.streams {
            for number in [counts.frames, counts.samples, counts.late, counts.repeated] {
                to.number(number);
            }
            for count in &counts.gaps {
                to.number(count.gaps);
                to.number(count.samples);
            }
            to.number(taken.len() as u64);
            for Span { start, end } in taken {
                to.signed(start.ns);
                to.signed(end.ns);
            }
        }
    }

    /// Continues the strain of an earlier run with the next sample of each detector; returns its start. Files that are there
    /// already and whose time has passed count neither as late nor as repeated.
    ///
    /// # Errors
    /// [`Error::Format`] for a state of other detectors or another rate.
    pub fn resume(&mut self, from: &mut Saved<'_>) -> Result<Begun> {
        from.part("frames")?;
        let begun = Begun { start: Gps { ns: from.signed()? }, rate_hz: self.rate_hz };
        from.expect("rate (Hz)", self.rate_hz.into())?;
        from.expect("detectors", self.streams.len() as u64)?;
        for Stream { counts, taken, .. } in &mut self.streams {
            counts.frames = from.number()?;
            counts.samples = from.number()?;
            counts.late = from.number()?;
            counts.repeated = from.number()?;
            for count in &mut counts.gaps {
                (count.gaps, count.samples) = (from.number()?, from.number()?);
            }
            taken.clear();
            for _ in 0..from.at_most(KEPT)? {
                let (start, end) = (Gps { ns: from.signed()? }, Gps { ns: from.signed()? });
                taken.push_back(Span { start, end });
            }
        }
        self.begun = Some(begun);
        self.is_resuming = true;
        let next = (0..self.streams.len()).filter_map(|detector| self.next(detector));
        self.newest = next.fold(self.newest, Gps::max);
        Ok(begun)
    }

    /// Returns the channel of a detector's strain, once it is known.
    pub fn channel(&self, detector: usize) -> Option<&str> {
        self.streams[detector].reading.as_ref().map(|reading| reading.strain.as_str())
    }

    /// Returns the start of the strain, once it has begun.
    pub fn begun(&self) -> Option<Begun> {
        self.begun
    }

    /// Returns a detector's counters.
    pub fn counts(&self, detector: usize) -> &Counts {
        &self.streams[detector].counts
    }
}

/// Arrival of the newest strain of all detectors.
#[derive(Debug, Default)]
struct Pace {
    /// Ends of frames, each later than all before it, and when they came.
    newest: VecDeque<(Gps, Instant)>,
}

impl Pace {
    /// Notes a frame; forgets what came longer than `reach` ago, except the last of it.
    fn arrived(&mut self, end: Gps, now: Instant, reach: Duration) {
        if self.newest.back().is_none_or(|(newest, _)| *newest < end) {
            self.newest.push_back((end, now));
        }
        while self.newest.get(1).is_some_and(|(_, came)| now.duration_since(*came) >= reach) {
            self.newest.pop_front();
        }
    }

    /// Returns the end of the newest frame of those that came at least `wait` ago.
    fn before(&self, now: Instant, wait: Duration) -> Gps {
        let is_old = |(_, came): &&(Gps, Instant)| now.duration_since(*came) >= wait;
        let found = self.newest.iter().take_while(is_old).last();
        found.map_or(Gps { ns: i64::MIN / 4 }, |(end, _)| *end)
    }
}

/// File whose turn has not come, or that could not be read yet.
#[derive(Debug)]
struct Pending {
    path: PathBuf,
    span: Span,
    arrived: Instant,
    /// Contents that could not be read.
    tried: Option<Identity>,
}

/// Frames of one detector.
#[derive(Debug)]
struct Stream {
    detector: String,
    channels: Channels,
    removes: bool,
    reading: Option<Reading>,
    /// Files by the start of their time.
    pending: BTreeMap<i64, Pending>,
    /// Latest frames read.
    taken: VecDeque<Span>,
    counts: Counts,
    samples: Vec<f64>,
    valid: Vec<bool>,
    gaps: Vec<Gap>,
    injections: Vec<Span>,
}

impl Stream {
    fn new(given: &FrameFolder) -> Self {
        Self {
            detector: given.detector.clone(),
            channels: given.channels.clone(),
            removes: given.removes,
            reading: None,
            pending: BTreeMap::new(),
            taken: VecDeque::new(),
            counts: Counts::default(),
            samples: Vec::new(),
            valid: Vec::new(),
            gaps: Vec::new(),
            injections: Vec::new(),
        }
    }

    fn arrived(&mut self, path: PathBuf, span: Span, arrived: Instant) {
        match self.pending.get_mut(&span.start.ns) {
            // The file that came last is used: it has replaced the other one, or both say the same.
            Some(before) => {
                if before.path != path {
                    self.counts.repeated += 1;
                    if self.removes {
                        let _ = fs::remove_file(&before.path);
                    }
                }
                (before.path, before.span, before.tried) = (path, span, None);
            }
            None => {
                let pending = Pending { path, span, arrived, tried: None };
                self.pending.insert(span.start.ns, pending);
            }
        }
    }

    /// Takes the oldest file off the list.
    fn pop(&mut self) -> Option<Pending> {
        let (_, pending) = self.pending.pop_first()?;
        if self.removes {
            // The folder's owner may have removed it.
            let _ = fs::remove_file(&pending.path);
        }
        Some(pending)
    }

    fn oldest(&self) -> Option<Gps> {
        self.pending.first_key_value().map(|(_, pending)| pending.span.start)
    }

    /// Returns why no frame has the strain's channel; `None` if one has it, or if there are none that can be read.
    fn lacking(&self) -> Option<String> {
        let mut lacking = None;
        for pending in self.pending.values() {
            match self.channels.choose(&pending.path, &self.detector) {
                Ok(_) | Err(Fault::State(_)) => return None,
                Err(Fault::Channel(why)) => lacking = Some(why),
                Err(Fault::Damaged(_) | Fault::Vanished) => {}
            }
        }
        lacking
    }

    fn take(
        &mut self,
        now: Instant,
        wait: Duration,
        given_up: Gps,
        begun: Begun,
    ) -> Option<Block<'_>> {
        let grid = Grid { start: begun.start, rate_hz: begun.rate_hz };
        let next = grid.start.plus_samples(self.counts.samples as i64, grid.rate_hz);
        self.drop_passed(begun);
        let Some((_, pending)) = self.pending.first_key_value() else {
            if given_up <= next {
                return None;
            }
            let span = piece(next, given_up, grid);
            return Some(self.gap(span, Reason::Stopped, None, grid));
        };
        let (span, age) = (pending.span, now.duration_since(pending.arrived));
        if grid.place(span.start) != Some(self.counts.samples) {
            if let Some((sample, distance_ns)) = grid.nearest(span.start)
                && sample == self.counts.samples
            {
                let distance_s = distance_ns as f64 / NS_PER_S as f64;
                let why = format!(
                    "its first sample lies {distance_s} s after a sample of the stream of {} Hz from GPS {} on",
                    grid.rate_hz,
                    grid.start.s()
                );
                self.pop();
                return Some(self.gap(span, Reason::OffGrid, Some(why), grid));
            }
            if age < wait {
                return None;
            }
            return Some(self.gap(piece(next, span.start, grid), Reason::Missing, None, grid));
        }
        let (path, tried) = (pending.path.clone(), pending.tried);
        // A file that is not renamed into place may be complete later: then it is read again.
        let found = identity(&path);
        if age < wait && found.is_some() && tried == found {
            return None;
        }
        let fault = match self.read(&path, span, grid) {
            Ok(bad) => {
                let at = self.pop().map_or(now, |pending| pending.arrived);
                return Some(self.frame(Arrived { at, span }, bad));
            }
            Err(fault) => fault,
        };
        let (reason, why) = match fault {
            Fault::Vanished => (Reason::Vanished, None),
            Fault::Damaged(_) | Fault::Channel(_) | Fault::State(_) if age < wait => {
                if let Some(mut first) = self.pending.first_entry() {
                    first.get_mut().tried = found;
                }
                return None;
            }
            Fault::Damaged(why) => (Reason::Damaged, Some(why)),
            Fault::Channel(why) | Fault::State(why) => (Reason::Channel, Some(why)),
        };
        self.pop();
        Some(self.gap(span, reason, why, grid))
    }

    /// Counts files whose time has passed.
    fn drop_passed(&mut self, Begun { start, rate_hz }: Begun) {
        let grid = Grid { start, rate_hz };
        let next = start.plus_samples(self.counts.samples as i64, rate_hz);
        while let Some((_, pending)) = self.pending.first_key_value() {
            let span = pending.span;
            let is_next =
                grid.nearest(span.start).is_some_and(|(sample, _)| sample == self.counts.samples);
            if is_next || span.start > next {
                return;
            }
            self.pop();
            let overlaps = |other: &Span| other.start < span.end && span.start < other.end;
            match self.taken.iter().any(overlaps) {
                true => self.counts.repeated += 1,
                false => self.counts.late += 1,
            }
        }
    }

    fn read(&mut self, path: &Path, span: Span, grid: Grid) -> std::result::Result<Bad, Fault> {
        let reading = match self.reading.take() {
            Some(reading) => reading,
            None => self.channels.choose(path, &self.detector)?,
        };
        if reading.rate_hz != grid.rate_hz {
            let (found, expected) = (reading.rate_hz, grid.rate_hz);
            return Err(Fault::Damaged(format!("{found} Hz found, expected {expected}")));
        }
        let read =
            reading.read(path, span, &mut self.samples, &mut self.valid, &mut self.injections);
        self.reading = Some(reading);
        read
    }

    /// Returns the frame that was read.
    fn frame(&mut self, arrived: Arrived, bad: Bad) -> Block<'_> {
        let span = arrived.span;
        self.counts.frames += 1;
        self.counts.samples += self.samples.len() as u64;
        self.taken.push_back(span);
        if self.taken.len() > KEPT {
            self.taken.pop_front();
        }
        self.gaps.clear();
        for (reason, samples) in [(Reason::State, bad.state), (Reason::NotFinite, bad.not_finite)] {
            if samples > 0 {
                self.count(reason, samples);
                self.gaps.push(Gap { span, reason, samples, why: None });
            }
        }
        self.block(0, Some(arrived))
    }

    fn block(&self, missing: u64, frame: Option<Arrived>) -> Block<'_> {
        let Self { samples, valid, gaps, injections, .. } = self;
        let (samples, valid): (&[f64], &[bool]) =
            if missing > 0 { (&[], &[]) } else { (samples, valid) };
        Block { samples, valid, missing, frame, gaps, injections }
    }

    /// Returns missing samples of a time that begins with the next one.
    fn gap(&mut self, span: Span, reason: Reason, why: Option<String>, grid: Grid) -> Block<'_> {
        let distance_s = span.end.seconds_since(grid.start);
        let end = (distance_s * f64::from(grid.rate_hz)).round().max(0.0) as u64;
        // At least one, so that the stream goes on whatever the times of files are.
        let samples = end.saturating_sub(self.counts.samples).max(1);
        self.counts.samples += samples;
        self.count(reason, samples);
        self.gaps.clear();
        self.gaps.push(Gap { span, reason, samples, why });
        self.injections.clear();
        self.block(samples, None)
    }

    fn count(&mut self, reason: Reason, samples: u64) {
        if let Some(place) = Reason::ALL.iter().position(|other| *other == reason) {
            let count = &mut self.counts.gaps[place];
            count.gaps += 1;
            count.samples += samples;
        }
    }
}

/// Returns the next piece of a gap that ends at `end` or later.
fn piece(next: Gps, end: Gps, grid: Grid) -> Span {
    let after = |seconds: u32| {
        next.plus_samples(i64::from(seconds) * i64::from(grid.rate_hz), grid.rate_hz)
    };
    let long = after(LONG_PIECE_S);
    Span { start: next, end: if long <= end { long } else { end.min(after(PIECE_S)) } }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::gwf::{GwfHeader, GwfWriter};

    const RATE_HZ: u32 = 64;
    const WAIT: Duration = Duration::from_secs(2);
    const BEGUN: Begun = Begun { start: Gps { ns: 100_000_000_000 }, rate_hz: RATE_HZ };
    const NEVER: Gps = Gps { ns: i64::MIN / 4 };

    /// Writes a frame whose samples count from 1, and returns its path and time.
    fn frame(folder: &Path, start: &str, length: &str, mask: Option<u32>) -> (PathBuf, Span) {
        let path = folder.join(format!("H-T-{start}-{length}.gwf"));
        let span = Span::of_name(path.file_name().unwrap().to_str().unwrap()).unwrap();
        let samples = (span.end.seconds_since(span.start) * f64::from(RATE_HZ)) as u64;
        let header = GwfHeader {
            channel: "H1:GDS-CALIB_STRAIN".to_owned(),
            start: span.start,
            rate_hz: RATE_HZ,
            samples,
            unit: "strain".to_owned(),
            description: String::new(),
            is_compressed: false,
            masks: mask
                .map(|bits| ("H1:GDS-CALIB_STATE_VECTOR".to_owned(), vec![bits]))
                .into_iter()
                .collect(),
        };
        let mut writer = GwfWriter::create(&path, &header).unwrap();
        let series: Vec<f64> = (1..=samples).map(|x| x as f64).collect();
        writer.write(&series).unwrap();
        writer.finish().unwrap();
        (path, span)
    }

    fn stream(bits: Option<&[&str]>) -> Stream {
        let bits = bits.map(|bits| bits.iter().map(|bit| (*bit).to_owned()).collect());
        let channels = Channels { bits, ..Channels::default() };
        let detector = "H1".to_owned();
        Stream::new(&FrameFolder { detector, folder: PathBuf::new(), channels, removes: false })
    }

    /// Takes the next block; returns its number of valid samples, and the reason of its gap.
    fn take(stream: &mut Stream, now: Instant, given_up: Gps) -> Option<(usize, Option<Reason>)> {
        let block = stream.take(now, WAIT, given_up, BEGUN)?;
        assert_eq!(block.samples.len(), block.valid.len());
        assert_eq!(block.samples.is_empty(), block.missing > 0);
        let valid = block.valid.iter().filter(|valid| **valid).count();
        Some((valid, block.gaps.first().map(|gap| gap.reason)))
    }

    #[test]
    fn frames_come_in_order_and_what_is_missing_is_waited_for() {
        let home = tempfile::tempdir().unwrap();
        let mut stream = stream(None);
        let now = Instant::now();
        let quarter = RATE_HZ as usize / 4;
        let make = |start: &str| frame(home.path(), start, "0.25", Some(3));
        for start in ["100.25", "100", "100.75"] {
            let (path, span) = make(start);
            stream.arrived(path, span, now);
        }
        assert_eq!(take(&mut stream, now, NEVER), Some((quarter, None)));
        assert_eq!(stream.samples[0], 1.0);
        assert_eq!(take(&mut stream, now, NEVER), Some((quarter, None)));
        // The third quarter is awaited, then given up.
        assert_eq!(take(&mut stream, now, NEVER), None);
        assert_eq!(take(&mut stream, now + WAIT, NEVER), Some((0, Some(Reason::Missing))));
        assert_eq!(take(&mut stream, now + WAIT, NEVER), Some((quarter, None)));
        // Too late, and again.
        for start in ["100.5", "100.25"] {
            let (path, span) = make(start);
            stream.arrived(path, span, now);
        }
        assert_eq!(take(&mut stream, now + WAIT, NEVER), None);
        assert_eq!((stream.counts.late, stream.counts.repeated), (1, 1));
        // Without a later frame only other detectors' strain says that time has passed: a second at once.
        let later = Gps::from_s(102.5);
        let block = stream.take(now + WAIT, WAIT, later, BEGUN).unwrap();
        assert_eq!((block.missing, block.gaps[0].reason), (RATE_HZ.into(), Reason::Stopped));
        assert_eq!(take(&mut stream, now + WAIT, later), Some((0, Some(Reason::Stopped))));
        assert_eq!(take(&mut stream, now + WAIT, later), None);
        assert_eq!(stream.counts.samples, 160);
        assert_eq!(stream.counts.valid(), 3 * quarter as u64);
    }

    #[test]
    fn files_of_other_times_are_not_used_unless_a_second_one_confirms_them() {
        let home = tempfile::tempdir().unwrap();
        let channels = Channels { bits: Some(Vec::new()), ..Channels::default() };
        let detector = "H1".to_owned();
        let folder = home.path().to_path_buf();
        let given = FrameFolder { detector, folder, channels, removes: false };
        let patience = Patience { wait: Duration::ZERO, give_up: Duration::ZERO };
        let mut streams = FrameStreams::open(&[given], RATE_HZ, patience).unwrap();
        // A leftover of another day, two frames, and a wrong name.
        for start in ["1000", "900000", "900001", "2000000000"] {
            frame(home.path(), start, "1", None);
        }
        let look = |streams: &mut FrameStreams| {
            streams.folders.relist();
            streams.look();
        };
        look(&mut streams);
        let begun = streams.begin().unwrap().unwrap();
        assert_eq!(begun.start, Gps::from_s(900_000.0));
        look(&mut streams);
        let mut samples = 0;
        for _ in 0..4 {
            samples += streams.take(0).map_or(0, |block| block.samples.len());
        }
        assert_eq!(samples, 2 * RATE_HZ as usize);
        assert_eq!((streams.counts(0).valid(), streams.counts(0).late), (samples as u64, 2));
        // After an outage of a day, the second frame confirms the first.
        frame(home.path(), "990000", "1", None);
        look(&mut streams);
        assert!(streams.take(0).is_none());
        frame(home.path(), "990001", "1", None);
        look(&mut streams);
        assert!(streams.take(0).is_some());
        assert_eq!(streams.counts(0).late, 2);
    }

    #[test]
    fn files_that_are_done_with_are_removed_where_asked() {
        let home = tempfile::tempdir().unwrap();
        let now = Instant::now();
        let (mut keeping, mut removing) = (stream(Some(&[])), stream(Some(&[])));
        removing.removes = true;
        let mut paths = Vec::new();
        for start in ["100", "100.5", "101", "103"] {
            let (path, span) = frame(home.path(), start, "1", None);
            keeping.arrived(path.clone(), span, now);
            removing.arrived(path.clone(), span, now);
            paths.push(path);
        }
        let there = || paths.iter().map(|path| path.exists()).collect::<Vec<_>>();
        let blocks = |stream: &mut Stream| {
            let block = |_| take(stream, now + WAIT, NEVER).unwrap();
            (0..2).map(block).collect::<Vec<_>>()
        };
        let rate = RATE_HZ as usize;
        assert_eq!(blocks(&mut keeping), [(rate, None), (rate, None)]);
        assert_eq!(there(), [true; 4]);
        // Those that were read, and the one that overlaps them; the one after the gap stays.
        assert_eq!(blocks(&mut removing), [(rate, None), (rate, None)]);
        assert_eq!(there(), [false, false, false, true]);
        assert_eq!((removing.counts.frames, removing.counts.repeated), (2, 1));
        // A copy under another name takes the place of the one that waits, which is not read again.
        let copy = home.path().join("H-COPY-103-1.gwf");
        fs::copy(&paths[3], &copy).unwrap();
        let span = Span::of_name("H-COPY-103-1.gwf").unwrap();
        removing.arrived(copy.clone(), span, now);
        assert!(copy.exists() && !paths[3].exists());
    }

    #[test]
    fn damaged_vanished_and_marked_frames_have_their_reasons() {
        let home = tempfile::tempdir().unwrap();
        let now = Instant::now();
        let rate = RATE_HZ as usize;
        let mut usual = stream(None);
        let mut lenient = stream(Some(&[]));
        let mut strict = stream(Some(&["HOFT_OK", "6"]));
        let masks = [Some(3), Some(1), Some(3 + 64), None];
        for (second, mask) in masks.into_iter().enumerate() {
            let (path, span) = frame(home.path(), &(100 + second).to_string(), "1", mask);
            for stream in [&mut usual, &mut lenient, &mut strict] {
                stream.arrived(path.clone(), span, now);
            }
        }
        let reasons = |stream: &mut Stream| -> Vec<(usize, Option<Reason>)> {
            (0..masks.len()).map(|_| take(stream, now + WAIT, NEVER).unwrap()).collect()
        };
        let (good, bad) = ((rate, None), (0, Some(Reason::State)));
        let none = (0, Some(Reason::Channel));
        assert_eq!(reasons(&mut usual), [good, bad, good, none]);
        assert_eq!(reasons(&mut lenient), [good, good, good, good]);
        assert_eq!(reasons(&mut strict), [bad, bad, good, none]);

        let mut broken = stream(Some(&[]));
        let arrive = |stream: &mut Stream, start: &str| {
            let (path, span) = frame(home.path(), start, "1", Some(3));
            stream.arrived(path.clone(), span, now);
            path
        };
        let path = arrive(&mut broken, "100");
        let whole = fs::read(&path).unwrap();
        fs::write(&path, &whole[..whole.len() - 100]).unwrap();
        // A file that is not renamed into place may become whole.
        assert_eq!(take(&mut broken, now, NEVER), None);
        fs::write(&path, &whole).unwrap();
        assert_eq!(take(&mut broken, now, NEVER), Some(good));
        // A changed sample does not match the checksum.
        let path = arrive(&mut broken, "101");
        let mut changed = fs::read(&path).unwrap();
        let middle = changed.windows(8).position(|word| word == 40.0_f64.to_le_bytes()).unwrap();
        changed[middle] ^= 1;
        fs::write(&path, &changed).unwrap();
        assert_eq!(take(&mut broken, now + WAIT, NEVER), Some((0, Some(Reason::Damaged))));
        fs::remove_file(arrive(&mut broken, "102")).unwrap();
        assert_eq!(take(&mut broken, now, NEVER), Some((0, Some(Reason::Vanished))));
        // Another frame's samples under this name.
        let (other, _) = frame(home.path(), "104", "1", Some(3));
        fs::rename(other, arrive(&mut broken, "103")).unwrap();
        assert_eq!(take(&mut broken, now + WAIT, NEVER), Some((0, Some(Reason::Damaged))));
        assert_eq!(broken.counts.samples, 4 * rate as u64);
    }

    #[test]
    fn a_first_frame_without_a_state_vector_does_not_end_the_check() {
        let home = tempfile::tempdir().unwrap();
        let now = Instant::now();
        let mut usual = stream(None);
        for (second, mask) in [None, Some(1), Some(3)].into_iter().enumerate() {
            let (path, span) = frame(home.path(), &(100 + second).to_string(), "1", mask);
            usual.arrived(path, span, now);
        }
        let block = usual.take(now + WAIT, WAIT, NEVER, BEGUN).unwrap();
        let [Gap { reason: Reason::Channel, why: Some(why), .. }] = block.gaps else {
            panic!("{:?}", block.gaps);
        };
        assert!(why.contains("H1:GDS-CALIB_STATE_VECTOR or H1:GDS-CALIB_DQMASK"), "{why}");
        assert_eq!(take(&mut usual, now, NEVER), Some((0, Some(Reason::State))));
        assert_eq!(take(&mut usual, now, NEVER), Some((RATE_HZ as usize, None)));
        // Bits of another kind of state vector are those of no frame; bits of none are an error at once.
        let mut other = stream(Some(&["CBC_CAT1"]));
        let (path, span) = frame(home.path(), "100", "1", Some(3));
        other.arrived(path, span, now);
        assert_eq!(take(&mut other, now + WAIT, NEVER), Some((0, Some(Reason::Channel))));
        let patience = Patience { wait: WAIT, give_up: WAIT };
        let given = |bit: &str, state: Option<&str>| FrameFolder {
            detector: "H1".to_owned(),
            folder: home.path().to_path_buf(),
            channels: Channels {
                state: state.map(str::to_owned),
                bits: Some(vec![bit.to_owned()]),
                ..Channels::default()
            },
            removes: false,
        };
        let open = |one| FrameStreams::open(&[one], RATE_HZ, patience).map(drop);
        assert!(open(given("CBC_CAT1", None)).is_ok());
        for one in [given("OTHER", None), given("CBC_CAT1", Some("H1:A_STATE_VECTOR"))] {
            let error = open(one).unwrap_err().to_string();
            assert!(error.contains("HOFT_OK"), "{error}");
        }
    }

    #[test]
    fn frames_of_another_rate_or_between_samples_are_gaps() {
        let home = tempfile::tempdir().unwrap();
        let now = Instant::now();
        let mut lenient = stream(Some(&[]));
        for start in ["100", "101.005", "102", "103"] {
            let (path, span) = frame(home.path(), start, "1", None);
            lenient.arrived(path, span, now);
        }
        let rate = RATE_HZ as usize;
        assert_eq!(take(&mut lenient, now, NEVER), Some((rate, None)));
        let block = lenient.take(now, WAIT, NEVER, BEGUN).unwrap();
        assert_eq!((block.missing, block.gaps[0].reason), (64, Reason::OffGrid));
        assert!(block.gaps[0].why.as_ref().is_some_and(|why| why.contains("0.005 s after")));
        assert_eq!(take(&mut lenient, now, NEVER), Some((rate, None)));
        assert_eq!((lenient.counts.late, lenient.counts.repeated), (0, 0));
        // The stream expects twice the rate.
        let begun = Begun { rate_hz: 2 * RATE_HZ, ..BEGUN };
        let mut other = stream(Some(&[]));
        let (path, span) = frame(home.path(), "100", "1", None);
        other.arrived(path, span, now);
        let block = other.take(now + WAIT, WAIT, NEVER, begun).unwrap();
        assert_eq!((block.missing, block.gaps[0].reason), (128, Reason::Damaged));
        let why = block.gaps[0].why.clone().unwrap();
        assert_eq!(why, "64 Hz found, expected 128");
    }

    #[test]
    fn a_file_that_cannot_be_read_is_read_again_when_it_changes() {
        let home = tempfile::tempdir().unwrap();
        let now = Instant::now();
        let mut broken = stream(Some(&[]));
        let (path, span) = frame(home.path(), "100", "1", None);
        let whole = fs::read(&path).unwrap();
        let mut bad = whole.clone();
        *bad.last_mut().unwrap() ^= 1;
        bad[60] ^= 1;
        fs::write(&path, &bad).unwrap();
        let changed = fs::metadata(&path).unwrap().modified().unwrap();
        broken.arrived(path.clone(), span, now);
        assert_eq!(take(&mut broken, now, NEVER), None);
        // It becomes whole, which neither its size nor its time shows: it is not read.
        fs::write(&path, &whole).unwrap();
        let file = fs::File::options().write(true).open(&path).unwrap();
        file.set_modified(changed).unwrap();
        assert_eq!(take(&mut broken, now + WAIT / 2, NEVER), None);
        // The last look is one at the contents.
        assert_eq!(take(&mut broken, now + WAIT, NEVER), Some((RATE_HZ as usize, None)));
    }

    #[test]
    fn a_long_gap_comes_in_few_pieces() {
        let home = tempfile::tempdir().unwrap();
        let now = Instant::now();
        let mut lenient = stream(Some(&[]));
        let (path, span) = frame(home.path(), "86500.5", "1", None);
        lenient.arrived(path, span, now);
        let mut pieces = 0;
        while let Some((0, reason)) = take(&mut lenient, now + WAIT, NEVER) {
            assert_eq!(reason, Some(Reason::Missing));
            pieces += 1;
        }
        assert_eq!(pieces, 86_400 / 64 + 1);
        assert_eq!(lenient.counts.samples, 64 * 86_400 + 32 + 64);
    }

    #[test]
    fn cleared_bits_of_injections_mark_their_time() {
        let home = tempfile::tempdir().unwrap();
        let now = Instant::now();
        let mut stream = stream(None);
        // All bits, that of burst injections cleared, none of them used, both reasons at once.
        let masks = [0b1_1110_0011, 0b1_0110_0011, 3, 0b1_1010_0000];
        for (second, mask) in masks.into_iter().enumerate() {
            let (path, span) = frame(home.path(), &(100 + second).to_string(), "1", Some(mask));
            stream.arrived(path, span, now);
        }
        let mut marked = Vec::new();
        for _ in masks {
            let block = stream.take(now, WAIT, NEVER, BEGUN).unwrap();
            marked.push(block.injections.to_vec());
        }
        let second = |s: f64| vec![Span { start: Gps::from_s(s), end: Gps::from_s(s + 1.0) }];
        assert_eq!(marked, [vec![], second(101.0), vec![], second(103.0)]);
    }

    #[test]
    fn the_pace_is_that_of_the_newest_strain() {
        let (now, second) = (Instant::now(), Duration::from_secs(1));
        let mut pace = Pace::default();
        let gps = |s: u32| Gps::from_s(f64::from(s));
        for s in 0..1000 {
            pace.arrived(gps(100 + s), now + s * second, 60 * second);
            // An older frame changes nothing.
            pace.arrived(gps(50), now + s * second, 60 * second);
        }
        let last = now + 999 * second;
        assert_eq!(pace.before(last, Duration::ZERO), gps(1099));
        assert_eq!(pace.before(last, 10 * second), gps(1089));
        assert_eq!(pace.before(last, 60 * second), gps(1039));
        assert!(pace.newest.len() < 70, "{}", pace.newest.len());
    }
}
