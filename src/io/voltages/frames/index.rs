//! Index of frames: runs of frames that are consecutive in time and equidistant in a file.
//!
//! Invariant: a thread's runs are in order of time and do not overlap; a recording without losses has one run per
//! thread and file, whatever its length.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::io::compressed;
use crate::io::voltages::recording::gap_fault;

/// Bits of the frame number in a frame's key, below the seconds.
const NUMBER_BITS: u32 = 24;
/// Longest accepted time between two frames of a recording, in seconds.
const MAX_GAP_S: u64 = 86_400;

/// Header data of a frame.
#[derive(Clone, Copy, Debug)]
pub(in crate::io::voltages) struct Frame {
    /// Station and thread.
    pub(in crate::io::voltages) unit: (u16, u16),
    /// Seconds since the format's reference epoch.
    pub(in crate::io::voltages) second: u64,
    /// Frame number within its second, below 2^24.
    pub(in crate::io::voltages) number: u32,
    /// Index of its file.
    pub(in crate::io::voltages) file: usize,
    /// Byte offset of the frame.
    pub(in crate::io::voltages) offset: u64,
    /// Validity bit of each channel group.
    pub(in crate::io::voltages) valid: u64,
}

/// Consecutive frames of one thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    /// First frame: its key during the scan, later its number counted from the recording's start.
    pub(super) first: u64,
    pub(super) frames: u64,
    pub(super) file: usize,
    /// Byte offset of the first frame.
    pub(super) offset: u64,
    /// Bytes between consecutive frames.
    pub(super) stride: u64,
    /// As [`Frame::valid`].
    pub(super) valid: u64,
}

impl Run {
    pub(super) fn end(&self) -> u64 {
        self.first + self.frames
    }

    /// Returns the second of its frames, while `first` is a key.
    pub(super) fn second(&self) -> u64 {
        self.first >> NUMBER_BITS
    }

    /// Returns its first frame's number within the second, while `first` is a key.
    pub(super) fn number(&self) -> u64 {
        self.first & ((1 << NUMBER_BITS) - 1)
    }

    pub(super) fn last_number(&self) -> u64 {
        (self.first & ((1 << NUMBER_BITS) - 1)) + self.frames - 1
    }

    /// Appends `next` if it follows directly; returns whether it does.
    fn join(&mut self, next: &Self) -> bool {
        let follows = self.end() == next.first
            && (self.file, self.valid) == (next.file, next.valid)
            && next.offset > self.offset;
        let stride =
            if self.frames == 1 { next.offset.wrapping_sub(self.offset) } else { self.stride };
        let even = (self.frames - 1)
            .checked_mul(stride)
            .is_some_and(|bytes| next.offset.wrapping_sub(self.offset + bytes) == stride);
        if !follows || !even || (next.frames > 1 && next.stride != stride) {
            return false;
        }
        self.stride = stride;
        self.frames += next.frames;
        true
    }
}

/// Frames of all threads, in the order of the scan.
#[derive(Debug, Default)]
pub(in crate::io::voltages) struct Index {
    units: BTreeMap<(u16, u16), Vec<Run>>,
}

/// Frames per second of a thread: usually whole, but some writers let frames extend into the next second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct FrameRate(f64);

impl FrameRate {
    /// Makes a rate; rounds a value within floating-point error of a whole number.
    pub(super) fn new(frames: f64) -> Self {
        let whole = frames.round();
        let is_whole = (frames - whole).abs() <= 1e-9 * whole + 1e-6;
        Self(if is_whole { whole } else { frames })
    }

    pub(super) fn per_second(self) -> f64 {
        self.0
    }

    /// Returns the frames per second, if whole.
    pub(super) fn whole(self) -> Option<u64> {
        (self.0.fract() == 0.0).then_some(self.0 as u64)
    }

    /// Returns the largest number of frames that begin in one second.
    fn most(self) -> u64 {
        self.0.ceil() as u64
    }
}

/// Number of the first frame of each recorded second, counted from the first second's.
struct Seconds(BTreeMap<u64, u64>);

impl Seconds {
    /// Numbers the frames when a second is not a whole number of frames. A second's first frame follows the last
    /// frame of the previous second if that agrees with the rate to less than a frame; otherwise its number is the
    /// rounded product of time and rate.
    fn new(units: &[Vec<Run>], rate: FrameRate) -> Self {
        let mut ends = BTreeMap::new();
        for run in units.iter().flatten() {
            let end = ends.entry(run.second()).or_insert(0);
            *end = run.last_number().max(*end);
        }
        let mut firsts: BTreeMap<u64, u64> = BTreeMap::new();
        let mut before: Option<(u64, u64)> = None;
        let start = ends.keys().next().copied().unwrap_or(0);
        for (second, last) in ends {
            let exact = (second - start) as f64 * rate.per_second();
            let follows = before
                .filter(|(other, end)| other + 1 == second && (*end as f64 - exact).abs() < 1.0);
            let first = follows.map_or(exact.round() as u64, |(_, end)| end);
            firsts.insert(second, first);
            before = Some((second, first + last + 1));
        }
        Self(firsts)
    }

    fn first(&self, second: u64) -> u64 {
        self.0.get(&second).copied().unwrap_or(0)
    }
}

/// Frames of all threads in order of time.
#[derive(Debug)]
pub(super) struct Timeline {
    /// Runs of each thread, counted from the earliest frame.
    pub(super) units: Vec<Vec<Run>>,
    /// Second and number of the earliest frame.
    pub(super) start: (u64, u64),
    /// Number of frame slots from the earliest to the latest frame.
    pub(super) frames: u64,
}

impl Index {
    /// Adds a frame.
    pub(in crate::io::voltages) fn push(&mut self, frame: &Frame) {
        let first = (frame.second << NUMBER_BITS) | u64::from(frame.number);
        let Frame { file, offset, valid, .. } = *frame;
        let run = Run { first, frames: 1, file, offset, stride: 0, valid };
        let runs = self.units.entry(frame.unit).or_default();
        // The first frame of a second starts a new run, because the number of frames per second is not yet known.
        let joined = frame.number > 0 && runs.last_mut().is_some_and(|last| last.join(&run));
        if !joined {
            runs.push(run);
        }
    }

    /// Returns the stations and threads, in order.
    pub(in crate::io::voltages) fn units(&self) -> impl Iterator<Item = (u16, u16)> {
        self.units.keys().copied()
    }

    fn runs(&self) -> impl Iterator<Item = &Run> {
        self.units.values().flatten()
    }

    /// Drops frames with damaged times: frames whose times jump while the frames after them continue the times
    /// before. Returns their number, and the file and offset of the first.
    pub(super) fn drop_jumps(&mut self, per_second: Option<u64>) -> Option<(u64, usize, u64)> {
        let mut first: Option<Run> = None;
        let mut frames = 0;
        for runs in self.units.values_mut() {
            let dropped = mark_jumps(runs, per_second);
            for run in dropped.iter().zip(&*runs).filter(|(bad, _)| **bad).map(|(_, run)| run) {
                frames += run.frames;
                let place = |run: &Run| (run.file, run.offset);
                first = first.filter(|first| place(first) < place(run)).or(Some(*run));
            }
            let mut dropped = dropped.iter();
            runs.retain(|_| dropped.next() != Some(&true));
        }
        first.map(|run| (frames, run.file, run.offset))
    }

    /// Returns the frames per second, if a complete second shows them.
    pub(super) fn frames_per_second(&self) -> Option<u64> {
        let last = self.runs().map(|run| run.first >> NUMBER_BITS).max()?;
        let whole = self.runs().filter(|run| run.first >> NUMBER_BITS < last);
        let shown = whole.map(|run| run.last_number() + 1).max()?;
        let least = self.runs().map(|run| run.last_number() + 1).max()?;
        Some(shown.max(least))
    }

    /// Sorts all frames by time, given the frame rate.
    ///
    /// # Errors
    /// [`Error::Format`] for a frame number beyond the rate, for two frames of the same thread and time, for frames
    /// more than a day apart, and, unless `allow_gaps`, for a gap too long relative to the data before it.
    pub(super) fn into_timeline(
        self,
        rate: FrameRate,
        paths: &[PathBuf],
        allow_gaps: bool,
    ) -> Result<Timeline> {
        let mut units: Vec<Vec<Run>> = self.units.into_values().collect();
        if let Some(run) = units.iter().flatten().find(|run| run.last_number() >= rate.most()) {
            let why = format!(
                "found frame {} within a second, expected 0 to {} at this sample rate",
                run.last_number(),
                rate.most() - 1
            );
            let at = run.offset + (run.frames - 1) * run.stride;
            return Err(Error::format(&paths[run.file], "frame number", at, why));
        }
        let key = units.iter().flatten().map(|run| run.first).min().unwrap_or(0);
        let seconds = rate.whole().is_none().then(|| Seconds::new(&units, rate));
        for run in units.iter_mut().flatten() {
            let (second, number) = split(run.first);
            run.first = match (&seconds, rate.whole()) {
                (Some(seconds), _) => seconds.first(second) + number,
                (None, whole) => second * whole.unwrap_or(1) + number,
            };
        }
        for runs in &mut units {
            sort(runs, paths)?;
        }
        let (first, end) = extent(&units, rate, paths, allow_gaps)?;
        units.iter_mut().flatten().for_each(|run| run.first -= first);
        Ok(Timeline { units, start: split(key), frames: end - first })
    }
}

fn split(key: u64) -> (u64, u64) {
    (key >> NUMBER_BITS, key & ((1 << NUMBER_BITS) - 1))
}

/// Sorts a thread's runs and joins consecutive ones.
fn sort(runs: &mut Vec<Run>, paths: &[PathBuf]) -> Result<()> {
    runs.sort_unstable_by_key(|run| (run.first, run.file, run.offset));
    if let Some([one, two]) = runs.array_windows().find(|[one, two]| one.end() > two.first) {
        let other = one.offset + (two.first - one.first) * one.stride;
        let why = format!(
            "this frame has the thread and the time of the one at byte {other} of {}",
            paths[one.file].display()
        );
        return Err(Error::format(&paths[two.file], "frame number", two.offset, why));
    }
    runs.dedup_by(|next, run| run.join(next));
    runs.shrink_to_fit();
    Ok(())
}

/// Returns the first frame, and the frame after the last, of all threads.
fn extent(
    units: &[Vec<Run>],
    rate: FrameRate,
    paths: &[PathBuf],
    allow_gaps: bool,
) -> Result<(u64, u64)> {
    let mut all: Vec<&Run> = units.iter().flatten().collect();
    all.sort_unstable_by_key(|run| (run.first, run.file, run.offset));
    let first = all.first().map_or(0, |run| run.first);
    let (mut end, mut data) = (first, 0);
    let seconds = |frames: u64| frames as f64 / rate.per_second();
    for run in all {
        if seconds(run.first.saturating_sub(end)) > MAX_GAP_S as f64 {
            let gap = seconds(run.first - end) as u64;
            let why = format!(
                "found a frame {gap} s after the one before it, expected no gap above \
                 {MAX_GAP_S} s within a recording"
            );
            return Err(Error::format(&paths[run.file], "seconds", run.offset, why));
        }
        let gap = seconds(run.first.saturating_sub(end));
        if let Some(why) = gap_fault(gap, seconds(end - first), seconds(data), allow_gaps) {
            return Err(Error::format(&paths[run.file], "seconds", run.offset, why));
        }
        data += run.end().saturating_sub(end.max(run.first));
        end = end.max(run.end());
    }
    Ok((first, end))
}

/// Number of runs after a jump that are searched for the continuation.
const LOOK_AHEAD: usize = 8;

/// Marks the runs of a thread, in file order, whose times are damaged.
///
/// `per_second` is the number of frames per second, if known. Frames that are merely out of order in time are not
/// marked.
fn mark_jumps(runs: &[Run], per_second: Option<u64>) -> Vec<bool> {
    let mut bad = vec![false; runs.len()];
    let mut known: Option<Known> = None;
    let mut last = 0;
    while last + 1 < runs.len() {
        let next = last + 1;
        if continues(&runs[last], &runs[next]) {
            last = next;
            continue;
        }
        let end = runs.len().min(next + 1 + LOOK_AHEAD);
        let mut between = 0;
        let back = (next + 1..end).find(|other| {
            between += runs[other - 1].frames;
            resumes(&runs[last], &runs[*other], between)
        });
        let Some(back) = back else {
            last = next;
            continue;
        };
        let known = known.get_or_insert_with(|| Known::new(runs));
        let most = per_second.unwrap_or_else(|| known.most(next..back));
        let place = missing_place(&runs[last], &runs[back], most);
        if place.is_none_or(|place| known.has(place)) {
            // All frames are present, but out of order.
            last = next;
            continue;
        }
        let span = runs[last].end()..=runs[back].first;
        for (bad, run) in bad[next..back].iter_mut().zip(&runs[next..back]) {
            let inside = span.contains(&run.first) && span.contains(&run.end());
            *bad = !inside || run.last_number() >= most;
        }
        last = back;
    }
    bad
}

/// Returns the key of a frame missing between two runs; `None` if the first run ends its second of `most` frames.
fn missing_place(last: &Run, back: &Run, most: u64) -> Option<u64> {
    let number = back.number();
    match () {
        () if back.second() == last.second() => Some(last.end()),
        () if number > 0 => Some(back.first - number),
        () => (last.last_number() + 1 < most).then(|| last.end()),
    }
}

/// Lookup tables of a thread's runs.
struct Known {
    /// Key of the first frame and key after the last frame, sorted by time.
    by_time: Vec<(u64, u64)>,
    /// Highest frame numbers within a second, each with its run's index: more than [`Known::most`] can exclude.
    highest: Vec<(u64, usize)>,
}

impl Known {
    fn new(runs: &[Run]) -> Self {
        let mut by_time: Vec<_> = runs.iter().map(|run| (run.first, run.end())).collect();
        by_time.sort_unstable();
        let numbers = runs.iter().map(Run::last_number);
        let mut highest: Vec<_> = numbers.enumerate().map(|(run, number)| (number, run)).collect();
        highest.sort_unstable_by(|a, b| b.cmp(a));
        highest.truncate(LOOK_AHEAD + 2);
        Self { by_time, highest }
    }

    /// Returns the frames per second seen in the runs, except those in `without`.
    fn most(&self, without: Range<usize>) -> u64 {
        let mut highest = self.highest.iter().filter(|(_, run)| !without.contains(run));
        highest.next().map_or(0, |(number, _)| number + 1)
    }

    /// Returns whether a run contains the frame with this key.
    fn has(&self, key: u64) -> bool {
        let before = self.by_time.partition_point(|(first, _)| *first <= key);
        self.by_time[..before].last().is_some_and(|(_, end)| *end > key)
    }
}

/// Returns whether a run follows another without a gap, as far as this is known without the frame rate.
fn continues(last: &Run, next: &Run) -> bool {
    next.first == last.end() || (next.second() == last.second() + 1 && next.number() == 0)
}

/// Returns whether `run` begins where `last` would continue after `between` frames, in the same file.
fn resumes(last: &Run, run: &Run, between: u64) -> bool {
    let same = run.first == last.end() + between;
    let next = run.second() == last.second() + 1 && run.number() <= between;
    run.file == last.file && run.offset > last.offset && (same || next)
}

/// Largest distance in bytes between two headers at which reading on is cheaper than seeking.
const NEAR_BYTES: u64 = 4096;
/// Bytes per read when headers are close together.
const AHEAD_BYTES: u64 = 1 << 16;

/// Fails if there is no file.
pub(in crate::io::voltages) fn check_paths(paths: &[PathBuf]) -> Result<()> {
    if paths.is_empty() {
        return Err(Error::parameter("files", 0, "a recording has at least one"));
    }
    Ok(())
}

/// A file whose headers are read from start to end.
#[derive(Debug)]
pub(in crate::io::voltages) struct Scan<'a> {
    path: &'a Path,
    file: File,
    /// The last bytes read.
    buffer: Vec<u8>,
    buffer_at: u64,
    /// Offset of the next header, at most the file's length.
    pub(in crate::io::voltages) at: u64,
    /// Length of the file.
    pub(in crate::io::voltages) bytes: u64,
}

impl<'a> Scan<'a> {
    /// Opens a file at its start.
    ///
    /// # Errors
    /// [`Error::Io`] for a missing or unreadable file; [`Error::Format`] for an empty file and for a file without a
    /// length.
    pub(in crate::io::voltages) fn open(path: &'a Path) -> Result<Self> {
        let io = |error| Error::io(path, error);
        let file = compressed::open(path)?;
        let metadata = file.metadata().map_err(io)?;
        if metadata.is_dir() {
            let why = "is a folder, expected a recording";
            return Err(io(std::io::Error::new(ErrorKind::IsADirectory, why)));
        }
        if !metadata.is_file() {
            let why = "found a pipe or device, expected a file: all headers are read at the start";
            return Err(Error::format(path, "file", 0, why));
        }
        if metadata.len() == 0 {
            return Err(Error::format(path, "file", 0, "the file is empty"));
        }
        let bytes = metadata.len();
        Ok(Self { path, file, buffer: Vec::new(), buffer_at: 0, at: 0, bytes })
    }

    /// Returns the path.
    pub(in crate::io::voltages) fn path(&self) -> &'a Path {
        self.path
    }

    /// Returns the bytes from the next header to the file's end.
    pub(in crate::io::voltages) fn left(&self) -> u64 {
        self.bytes - self.at
    }

    /// Describes the truncation of the current frame of `bytes` bytes by the file's end.
    pub(in crate::io::voltages) fn cut_frame(&self, bytes: u64) -> String {
        let (path, there) = (self.path.display(), self.left());
        format!("{path}: its last frame has {there} of {bytes} bytes and is left out")
    }

    /// Fills `bytes` from byte `from` of the file, within its length.
    pub(in crate::io::voltages) fn read_at(&mut self, from: u64, bytes: &mut [u8]) -> Result<()> {
        let end = from + bytes.len() as u64;
        let buffer_end = self.buffer_at + self.buffer.len() as u64;
        if from < self.buffer_at || end > buffer_end {
            let near = from.abs_diff(buffer_end) <= NEAR_BYTES;
            let ahead = if near { AHEAD_BYTES.min(self.bytes.saturating_sub(from)) } else { 0 };
            self.buffer.resize(ahead.max(end - from) as usize, 0);
            self.buffer_at = from;
            let read = self.file.seek(SeekFrom::Start(from));
            let read = read.and_then(|_| self.file.read_exact(&mut self.buffer));
            read.map_err(|error| Error::io(self.path, error))?;
        }
        let place = (from - self.buffer_at) as usize;
        bytes.copy_from_slice(&self.buffer[place..][..bytes.len()]);
        Ok(())
    }
}

/// Random access to several files.
#[derive(Debug)]
pub(super) struct Files {
    paths: Vec<PathBuf>,
    open: Option<(usize, File)>,
}

impl Files {
    pub(super) fn new(paths: &[PathBuf]) -> Self {
        Self { paths: paths.to_vec(), open: None }
    }

    /// Fills `bytes` from byte `from` of file `number`.
    pub(super) fn read_at(&mut self, number: usize, from: u64, bytes: &mut [u8]) -> Result<()> {
        let path = &self.paths[number];
        let io = |error| Error::io(path, error);
        let mut file = match self.open.take() {
            Some((open, file)) if open == number => file,
            _ => compressed::open(path)?,
        };
        file.seek(SeekFrom::Start(from)).and_then(|_| file.read_exact(bytes)).map_err(io)?;
        self.open = Some((number, file));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timeline(rate: f64, threads: &[&[(u64, u32)]]) -> Timeline {
        let mut index = Index::default();
        for (thread, frames) in threads.iter().enumerate() {
            for (place, (second, number)) in frames.iter().enumerate() {
                index.push(&Frame {
                    unit: (0, thread as u16),
                    second: 1000 + second,
                    number: *number,
                    file: 0,
                    offset: 100 * place as u64,
                    valid: 1,
                });
            }
        }
        index.into_timeline(FrameRate::new(rate), &[PathBuf::from("x.vdif")], false).unwrap()
    }

    /// Frame numbers of a recorder whose frames cross second boundaries: frame 0 is the first that begins in the
    /// second.
    fn recorded(rate: f64, frames: std::ops::Range<u64>) -> Vec<(u64, u32)> {
        let of = |frame: u64| {
            let second = (frame as f64 / rate).floor();
            (second as u64, (frame as f64 - (second * rate).ceil()) as u32)
        };
        frames.map(of).collect()
    }

    #[test]
    fn frames_may_reach_over_the_end_of_a_second() {
        for rate in [3.25, 3.75, 4.5, 61_035.156_25 / 10_000.0] {
            let frames = recorded(rate, 0..200);
            let found = timeline(rate, &[&frames, &frames]);
            assert_eq!((found.start, found.frames), ((1000, 0), 200), "{rate}");
            assert!(found.units.iter().all(|runs| runs.len() == 1), "{rate}: {:?}", found.units);
        }
        let late = recorded(3.25, 2..20);
        let found = timeline(3.25, &[&late]);
        assert_eq!((found.start, found.frames), ((1000, 2), 18));
    }

    #[test]
    fn a_thread_that_lost_frames_keeps_in_step_with_the_others() {
        let whole = recorded(3.25, 0..40);
        let lossy: Vec<_> =
            whole.iter().copied().filter(|(second, number)| (*second, *number) != (0, 3)).collect();
        let found = timeline(3.25, &[&whole, &lossy]);
        let starts: Vec<u64> = found.units[1].iter().map(|run| run.first).collect();
        assert_eq!((found.frames, starts), (40, vec![0, 4]));
        let gap: Vec<_> =
            whole.iter().copied().filter(|(second, _)| !(3..6).contains(second)).collect();
        let found = timeline(3.25, &[&gap]);
        assert_eq!(found.frames, 40, "what is missing keeps its time");
    }
}
