//! Thread that looks at a live run: each second at its counters, four times a second at its latest rows.
//!
//! Invariant: it copies at most 1 MiB of rows at a time and 8 MiB a second, and disturbs no other thread for longer.

use std::collections::{HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use sidereal::live::capture::Statistics;
use sidereal::live::ring;
use sidereal::live::target::Target;
use sidereal::live::window::Fill;
use sidereal::pipeline::detections::{Cell, Detections, ROWS};
use sidereal::pipeline::recent::RecentRows;
use sidereal::sample::unpack_f32;
use sidereal::trace;
use sidereal::units::HZ_PER_MHZ;
use sidereal::{Error, Result};
use tracing::Level;

use super::board::{BandpassLine, Board, PlaneCell, PlaneLine, WaterfallRow, now_unix_s};
use super::status::{Health, RowsStatus, StageStatus, Status, StreamState, StreamStatus};
use crate::interrupt;
use crate::say;
use crate::space::{free_bytes, human};
use crate::streams::{self, Counted};

/// Time between two looks at the rows, and looks at the rows between two at the counters.
const STEP: Duration = Duration::from_millis(250);
const STEPS: u32 = 4;

/// Bytes of rows that a look reads, in pieces of the time since the last one.
const LOOK_BYTES: usize = 2 << 20;
const PIECES: u64 = 16;

/// Most values of a row of the waterfall and of the bandpass.
const WATERFALL: usize = 512;
const BANDPASS: usize = 1024;

/// Time without packets of an observation after which a run is not healthy.
const QUIET_S: f64 = 10.0;

/// Free bytes of the disk below which a run is not healthy.
const LEAST_FREE: u64 = 1 << 30;

/// Looks over which losses are summed: a minute of them.
const MINUTE: usize = 60;

/// Sampler, which ends when it is dropped.
pub(super) struct Sampler {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Sampler {
    /// Starts the thread.
    ///
    /// # Errors
    /// [`Error::Io`] if the system starts none.
    pub(super) fn start(board: Arc<Board>) -> Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let is_stopped = Arc::clone(&stop);
        let mut looks = Looks::new(board);
        let spawned = thread::Builder::new().name("page sampler".into()).spawn(move || {
            for step in 0_u32.. {
                if is_stopped.load(Ordering::SeqCst) {
                    return;
                }
                looks.rows();
                if step.is_multiple_of(STEPS) {
                    looks.counters();
                }
                // A run that was asked to stop and waits is known by its lack of work.
                thread::park_timeout(if interrupt::is_stopping() { 4 * STEP } else { STEP });
            }
        });
        let thread = spawned.map_err(|error| Error::io("thread of the page", error))?;
        Ok(Self { stop, thread: Some(thread) })
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            if let Err(panic) = thread.join() {
                std::panic::resume_unwind(panic);
            }
        }
    }
}

/// Counters of the last look, from which rates follow.
#[derive(Default)]
struct Before {
    address: String,
    received: u64,
    sources: Vec<u64>,
    /// Time of the last packet; `None` before the first.
    packet: Option<Instant>,
    /// Time at which the observation began.
    begun: Option<Instant>,
}

/// Sum of a stage at the last look.
struct BeforeStage {
    name: &'static str,
    spans: u64,
    busy_s: f64,
    latency_s: f64,
}

struct Looks {
    board: Arc<Board>,
    last: Instant,
    before: Vec<Before>,
    stages: Vec<BeforeStage>,
    /// Losses since the program began, at each of the last looks.
    losses: VecDeque<u64>,
    reader: Option<RowReader>,
    /// Detections of the last look, and what they were.
    detections: Option<Arc<Detections>>,
    plane: PlaneLine,
    shown: RowsStatus,
    looks: u64,
    was_healthy: bool,
}

impl Looks {
    fn new(board: Arc<Board>) -> Self {
        Self {
            board,
            last: Instant::now(),
            before: Vec::new(),
            stages: Vec::new(),
            losses: VecDeque::with_capacity(MINUTE + 1),
            reader: None,
            detections: None,
            plane: PlaneLine::default(),
            shown: RowsStatus::default(),
            looks: 0,
            was_healthy: true,
        }
    }

    /// Reads what came of the rows since the last look.
    fn rows(&mut self) {
        let recent = self.board.recent();
        let is_same = |reader: &RowReader| {
            recent.as_ref().is_some_and(|rows| Arc::ptr_eq(&reader.rows, rows))
        };
        if let Some(mut last) = self.reader.take_if(|reader| !is_same(reader)) {
            self.show(&mut last);
            self.bandpass(&mut last);
            self.shown = last.status();
        }
        if let Some(mut reader) = self.reader.take().or_else(|| recent.map(RowReader::new)) {
            self.show(&mut reader);
            self.reader = Some(reader);
        }
    }

    /// Adds a row of the waterfall, if rows came.
    fn show(&self, reader: &mut RowReader) {
        if reader.read() {
            let values = reader.means(WATERFALL, &reader.sums, reader.count);
            self.board.add_row(WaterfallRow { unix_s: now_unix_s(), values });
        }
    }

    /// Sets the bandpass, if rows came since the last one.
    fn bandpass(&self, reader: &mut RowReader) {
        if let Some(bandpass) = reader.bandpass() {
            self.board.set_bandpass(bandpass);
        }
    }

    /// Reads the counters, and describes the run.
    fn counters(&mut self) {
        let (now, now_unix) = (Instant::now(), now_unix_s());
        let passed_s = now.duration_since(self.last).as_secs_f64().max(1e-3);
        self.last = now;
        let mut status = Status { now_unix_s: now_unix, ..Status::default() };
        let mut losses = 0;
        for counted in streams::counted() {
            let mut statistics = match &counted.statistics {
                Some(shared) => shared.lock().unwrap_or_else(PoisonError::into_inner).clone(),
                None => Statistics::default(),
            };
            if counted.statistics.is_none() {
                statistics.fill = ring_fill(&counted).unwrap_or_default();
            }
            let mut stream = StreamStatus::new(&counted, &statistics, now_unix);
            losses += statistics.totals.overrun_blocks + statistics.dropped;
            self.rates(&mut stream, passed_s, now);
            status.streams.push(stream);
        }
        self.losses.push_back(losses);
        if self.losses.len() > MINUTE {
            self.losses.pop_front();
        }
        status.dropped_last_minute =
            losses.saturating_sub(self.losses.front().copied().unwrap_or(0));
        status.stages = self.stages(passed_s);
        status.disk_free_bytes = free_bytes(&self.board.about.folder.join("page-token"));
        status.rows = self.rows_status();
        self.board.complete(&mut status);
        status.health = health(&status, &self.before, now);
        self.log(&status);
        self.board.set_status(status);
        self.plane();
        if let Some(mut reader) = self.reader.take() {
            self.bandpass(&mut reader);
            self.reader = Some(reader);
        }
    }

    /// Reads the detections, if more was searched since the last look.
    fn plane(&mut self) {
        let Some(shown) = self.board.detections() else { return };
        let end_s = shown.detections.end_s();
        let is_other = !self
            .detections
            .as_ref()
            .is_some_and(|detections| Arc::ptr_eq(detections, &shown.detections));
        if !is_other && end_s == self.plane.end_s {
            return;
        }
        if is_other {
            self.plane.cells.clear();
        }
        let cells = shown.detections.cells();
        let cell = |one: &Cell| PlaneCell(one.column, one.row, four_digits(one.snr.into()));
        let plane = PlaneLine {
            observation: shown.observation,
            first_s: shown.first_s,
            end_s,
            unix_s: now_unix_s(),
            step_s: shown.detections.step_s(),
            rows: ROWS,
            highest_dm: shown.detections.highest_dm(),
            cells: cells.iter().map(cell).collect(),
        };
        let before: HashSet<_> = self.plane.cells.iter().map(PlaneCell::bits).collect();
        let is_new = |cell: &&PlaneCell| !before.contains(&cell.bits());
        let cells = plane.cells.iter().filter(is_new).copied().collect();
        let changed = PlaneLine { cells, ..plane.clone() };
        self.plane = plane.clone();
        self.detections = Some(shown.detections);
        self.board.set_plane(plane, &changed);
    }

    /// Writes the counters of each stream to the log, each minute, and at once what begins or ceases to be wrong.
    fn log(&mut self, status: &Status) {
        self.looks += 1;
        if self.looks.is_multiple_of(MINUTE as u64) {
            status.streams.iter().for_each(|stream| say::log(Level::INFO, &log_line(stream)));
        }
        if status.health.ok != self.was_healthy {
            self.was_healthy = status.health.ok;
            match status.health.ok {
                true => say::log(Level::INFO, "health: nothing is wrong any more"),
                false => {
                    say::log(Level::WARN, &format!("health: {}", status.health.reasons.join(" ")))
                }
            }
        }
    }

    /// Fills in the rates of a stream and the time since its last packet.
    fn rates(&mut self, stream: &mut StreamStatus, passed_s: f64, now: Instant) {
        let known = self.before.iter().position(|before| before.address == stream.address);
        let is_new = known.is_none();
        let place = known.unwrap_or(self.before.len());
        if is_new {
            self.before.push(Before { address: stream.address.clone(), ..Before::default() });
        }
        let before = &mut self.before[place];
        let rate = |now: u64, before: u64| now.saturating_sub(before) as f64 / passed_s;
        if !is_new {
            stream.packets_per_s = rate(stream.received, before.received);
        }
        before.sources.resize(stream.sources.len(), 0);
        for (source, before) in stream.sources.iter_mut().zip(&mut before.sources) {
            if !is_new {
                source.packets_per_s = rate(source.received, *before);
            }
            *before = source.received;
        }
        if stream.received > before.received {
            before.packet = Some(now);
        }
        before.received = stream.received;
        before.begun = match stream.state {
            StreamState::Receiving => before.begun.or(Some(now)),
            StreamState::Waiting | StreamState::Ended => None,
        };
        stream.since_packet_s = before.packet.map(|packet| (now - packet).as_secs_f64());
    }

    fn stages(&mut self, passed_s: f64) -> Vec<StageStatus> {
        let describe = |stage: trace::Stage| {
            let known = self.stages.iter().position(|before| before.name == stage.name);
            let place = known.unwrap_or(self.stages.len());
            if known.is_none() {
                let (spans, busy_s, latency_s) = (0, 0.0, 0.0);
                self.stages.push(BeforeStage { name: stage.name, spans, busy_s, latency_s });
            }
            let before = &mut self.stages[place];
            let (calls, busy_s) = (stage.spans - before.spans, stage.busy_s - before.busy_s);
            if calls > 0 {
                before.latency_s = busy_s / calls as f64;
            }
            (before.spans, before.busy_s) = (stage.spans, stage.busy_s);
            StageStatus {
                name: stage.name.to_owned(),
                calls: stage.spans,
                busy_s: stage.busy_s,
                latency_s: before.latency_s,
                share: busy_s / passed_s,
            }
        };
        trace::stages().into_iter().map(describe).collect()
    }

    /// Describes the rows that are shown; the last ones stay between observations.
    fn rows_status(&mut self) -> RowsStatus {
        if let Some(reader) = &self.reader {
            self.shown = reader.status();
        } else if self.shown == RowsStatus::default() {
            let none = match self.board.about.verb.as_str() {
                "live search" => "No observation has begun yet.",
                _ => "Only `live search` keeps rows in memory.",
            };
            return RowsStatus { none: Some(none.to_owned()), ..RowsStatus::default() };
        }
        self.shown.clone()
    }
}

/// Returns the full blocks of a PSRDADA ring, of the reader that has most.
fn ring_fill(counted: &Counted) -> Option<Fill> {
    let target: Target = counted.path.to_str()?.parse().ok()?;
    let Target::Ring(key) = target else { return None };
    let data = ring::state(key).ok()?.data;
    let full = data.readers.iter().map(|reader| i64::from(reader.full) + reader.held).max()?;
    Some(Fill { held: full.max(0) as usize, capacity: data.blocks })
}

/// Describes a stream's counters in a line.
fn log_line(stream: &StreamStatus) -> String {
    let age = stream.observation.as_ref().and_then(|observation| observation.last_sample_age_s);
    let age = age.map_or_else(String::new, |age| format!(", last sample {age:.3} s old"));
    format!(
        "{}: packets received {} ({:.0}/s), late {}, duplicate {}, wrong length {}, wrong source {}, invalid {}, dropped by the \
         program {}, by the kernel {}; blocks missing {}; ring {} of {}{age}",
        stream.address,
        stream.received,
        stream.packets_per_s,
        stream.late,
        stream.duplicate,
        stream.wrong_length,
        stream.wrong_source,
        stream.invalid,
        stream.overrun,
        stream.dropped_by_kernel,
        stream.missing_blocks,
        stream.ring.used,
        stream.ring.capacity,
    )
}

/// Judges a run.
fn health(status: &Status, before: &[Before], now: Instant) -> Health {
    let mut reasons = Vec::new();
    for (stream, before) in status.streams.iter().zip(before) {
        let since =
            before.packet.max(before.begun).map_or(0.0, |since| (now - since).as_secs_f64());
        // A ring shows no packets.
        if stream.state == StreamState::Receiving && stream.received > 0 && since > QUIET_S {
            reasons.push(format!("{}: no packet for {since:.0} s.", stream.address));
        }
    }
    for one in status.strain.iter().flat_map(|strain| &strain.detectors) {
        let most = QUIET_S.max(3.0 * one.latency_s.frame);
        if let Some(since) = one.since_frame_s.filter(|since| *since > most) {
            reasons.push(format!("{}: no frame for {since:.0} s.", one.name));
        } else if one.since_frame_s.is_none() {
            reasons.push(format!("{}: no frame yet.", one.name));
        }
    }
    if let Some(since) = status.since_report_s.filter(|since| *since > QUIET_S) {
        reasons.push(format!("The search has been busy for {since:.0} s."));
    }
    if status.dropped_last_minute > 0 {
        let dropped = status.dropped_last_minute;
        reasons.push(format!("{dropped} blocks or packets were dropped in the last minute."));
    }
    if let Some(free) = status.disk_free_bytes.filter(|free| *free < LEAST_FREE) {
        reasons.push(format!("{} are free for the output.", human(free)));
    }
    Health { ok: reasons.is_empty(), reasons }
}

/// Reader of the latest rows.
struct RowReader {
    rows: Arc<RecentRows>,
    /// First row of the next look.
    next: u64,
    scratch: Vec<u8>,
    row: Vec<f32>,
    /// Sums by channel, in recorded order, and rows in them: of the last look, and since the last bandpass.
    sums: Vec<f64>,
    count: u64,
    second: Vec<f64>,
    second_count: u64,
}

impl RowReader {
    fn new(rows: Arc<RecentRows>) -> Self {
        let (channels, row_bytes) = (rows.header().channels(), rows.header().row_bytes().max(1));
        let scratch = vec![0; (LOOK_BYTES / PIECES as usize).max(row_bytes)];
        Self {
            rows,
            next: 0,
            scratch,
            row: vec![0.0; channels],
            sums: vec![0.0; channels],
            count: 0,
            second: vec![0.0; channels],
            second_count: 0,
        }
    }

    /// Describes the rows.
    fn status(&self) -> RowsStatus {
        let band = &self.rows.header().band;
        let masked = self.rows.masked();
        let share = masked.iter().filter(|masked| **masked).count() as f64;
        let none = match (self.rows.are_on_device(), self.next) {
            (true, _) => Some("A GPU makes the rows and keeps them in its memory.".to_owned()),
            (false, 0) => Some("The first rows are collected for the channel mask.".to_owned()),
            (false, _) => None,
        };
        RowsStatus {
            none,
            lowest_mhz: band.lowest_hz() / HZ_PER_MHZ,
            highest_mhz: band.highest_hz() / HZ_PER_MHZ,
            masked: share / masked.len().max(1) as f64,
        }
    }

    /// Sums rows that came since the last look, all of them or pieces at even distances; returns whether there are any.
    fn read(&mut self) -> bool {
        let (end, header) = (self.rows.end(), self.rows.header());
        let row_bytes = header.row_bytes().max(1);
        self.sums.fill(0.0);
        self.count = 0;
        let fits = (self.scratch.len() / row_bytes) as u64;
        let pieces = (end - self.next).div_ceil(fits).min(PIECES);
        for piece in 0..pieces {
            let from = self.next + (end - self.next) * piece / pieces;
            let to = self.next + (end - self.next) * (piece + 1) / pieces;
            let bytes = ((to - from).min(fits) as usize) * row_bytes;
            let copied = self.rows.copy(from, &mut self.scratch[..bytes]);
            for row in self.scratch[..copied * row_bytes].chunks_exact(row_bytes) {
                unpack_f32(row, header.encoding, &mut self.row);
                self.sums.iter_mut().zip(&self.row).for_each(|(sum, x)| *sum += f64::from(*x));
            }
            self.count += copied as u64;
        }
        self.next = end;
        self.second.iter_mut().zip(&self.sums).for_each(|(sum, x)| *sum += x);
        self.second_count += self.count;
        self.count > 0
    }

    /// Returns the mean since the last call; `None` if no row came.
    fn bandpass(&mut self) -> Option<BandpassLine> {
        if self.second_count == 0 {
            return None;
        }
        let values = self.means(BANDPASS, &self.second, self.second_count);
        let masked = self.rows.masked();
        let bins = values.len();
        let is_masked = |bin: &usize| {
            let mut channels = self.channels(*bin, bins);
            !masked.is_empty() && channels.all(|channel| masked[channel])
        };
        let masked = (0..bins).filter(is_masked).collect();
        self.second.fill(0.0);
        self.second_count = 0;
        Some(BandpassLine { values, masked })
    }

    /// Returns the channels, in recorded order, of a bin by ascending frequency.
    fn channels(&self, bin: usize, bins: usize) -> impl Iterator<Item = usize> + use<> {
        let channels = self.row.len();
        let is_descending = self.rows.header().band.foff_mhz() < 0.0;
        let place = move |at: usize| if is_descending { channels - 1 - at } else { at };
        (bin * channels / bins..(bin + 1) * channels / bins).map(place)
    }

    /// Bins sums by ascending frequency to at most `most` means of four digits.
    fn means(&self, most: usize, sums: &[f64], count: u64) -> Vec<f64> {
        let bins = sums.len().min(most);
        let mean = |bin: usize| {
            let (mut sum, mut channels) = (0.0, 0_u64);
            for channel in self.channels(bin, bins) {
                sum += sums[channel];
                channels += 1;
            }
            four_digits(sum / (channels as f64 * count as f64))
        };
        (0..bins).map(mean).collect()
    }
}

/// Rounds to four significant digits, so that its text is short; what is not finite becomes 0.
fn four_digits(value: f64) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return 0.0;
    }
    let scale = 10_f64.powi(3 - value.abs().log10().floor() as i32);
    (value * scale).round() / scale
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_log_has_all_counters() {
        let stream =
            StreamStatus { address: "a".into(), received: 7, late: 1, ..StreamStatus::default() };
        let line = log_line(&stream);
        assert!(line.starts_with("a: packets received 7 (0/s), late 1, duplicate 0,"), "{line}");
        assert!(line.ends_with("blocks missing 0; ring 0 of 0"), "{line}");
    }

    #[test]
    fn texts_of_numbers_are_short() {
        let texts =
            [1234.567, -0.00123456, 0.0, f64::NAN, 99_999.0].map(|x| four_digits(x).to_string());
        assert_eq!(texts, ["1235", "-0.001235", "0", "0", "100000"]);
    }

    #[test]
    fn a_run_is_healthy_unless_it_is_quiet_loses_data_or_fills_the_disk() {
        let now = Instant::now();
        let Some(long_ago) = now.checked_sub(Duration::from_secs(11)) else { return };
        let before =
            |packet| [Before { packet: Some(packet), begun: Some(packet), ..Before::default() }];
        let stream = |state| StreamStatus { state, received: 1, ..StreamStatus::default() };
        let judged = |state, packet, dropped, free| {
            let status = Status {
                streams: vec![stream(state)],
                dropped_last_minute: dropped,
                disk_free_bytes: free,
                ..Status::default()
            };
            health(&status, &before(packet), now).reasons.join(" ")
        };
        assert_eq!(judged(StreamState::Receiving, now, 0, Some(1 << 31)), "");
        assert_eq!(judged(StreamState::Waiting, long_ago, 0, None), "");
        assert!(judged(StreamState::Receiving, long_ago, 0, None).contains("no packet for 11 s"));
        assert!(judged(StreamState::Receiving, now, 3, None).starts_with("3 blocks or packets"));
        assert!(
            judged(StreamState::Receiving, now, 0, Some(1 << 20)).starts_with("1.0 MiB are free")
        );
    }
}
