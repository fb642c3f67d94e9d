//! Cleaning of rows before dedispersion: masked channels, interference, zero-DM, time masks; also as a source of rows.
//!
//! Invariant: the automatic mask is made from the first rows alone, however they are read; the mitigation returns what
//! ends the source after all rows that were read.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::flagged::{self, Flagged, LostRows};
use super::options::{Part, SearchOptions, skip_to};
use super::run::Pair;
use crate::backend::Backend;
use crate::clean::{self, Cleaner, Mitigated, Mitigator, Removals, TimeMask};
use crate::error::{Error, Result};
use crate::io::presto::RecordedMask;
use crate::io::{FilterbankHeader, FilterbankSource, Gap};
use crate::sample::{Encoding, Samples};
use crate::trace::{self, Work};

/// Rows from which the mask is computed, unless they exceed [`MASK_BYTES`].
const MASK_TIMES: usize = 1 << 15;

/// Rows per read for the mask; a stop or an error during a read loses only these.
const PIECE_TIMES: usize = 256;

/// Limit in bytes on the rows held for the automatic mask.
const MASK_BYTES: usize = 64 << 20;

/// Divisor of the memory limit; the quotient bounds the blocks within the mitigation.
const MEMORY_PART: usize = 16;

/// Threshold of the channel mask, in standard deviations from the adjacent channels.
const MASK_THRESHOLD: f64 = 5.0;

/// Cleaning of rows between the source and the first stage.
pub(super) struct Cleaning {
    form: CleanedForm,
    cleaner: Option<Cleaner>,
    is_cut_short: bool,
    reader: Reader,
}

/// Form of cleaned rows.
#[derive(Clone, Debug)]
pub(super) struct CleanedForm {
    /// True for masked channels, in recorded order.
    pub(super) masked: Vec<bool>,
    pub(super) encoding: Encoding,
    /// Smallest and largest value, for integers.
    pub(super) range: Option<(i32, i32)>,
    /// Value of one recorded count.
    pub(super) scale: i32,
}

/// Cleaning that is expected before any row is read.
pub(super) struct Expected {
    /// Form of the rows, without the channels that an automatic mask adds.
    pub(super) form: CleanedForm,
    /// Plan of the cleaning, unless rows stay as they are.
    pub(super) plan: Option<clean::Plan>,
}

impl Expected {
    /// Derives the cleaning from the options alone.
    ///
    /// # Errors
    /// Errors of the options, as [`Cleaning::new`].
    pub(super) fn new(
        header: &FilterbankHeader,
        options: &SearchOptions,
        part: Part,
    ) -> Result<Self> {
        let (masked, time_mask) = masks(header, options, part)?;
        Self::of(header, options, masked, time_mask)
    }

    fn of(
        header: &FilterbankHeader,
        options: &SearchOptions,
        masked: Vec<bool>,
        time_mask: Option<TimeMask>,
    ) -> Result<Self> {
        let needed = options.zero_dm || time_mask.is_some();
        let plan = clean::Plan::new(clean::Options {
            channels: header.channels(),
            encoding: header.encoding,
            zero_dm: options.zero_dm,
            masked: masked.clone(),
            time_mask,
        })?;
        let form = CleanedForm {
            masked,
            encoding: if needed { plan.output_encoding() } else { header.encoding },
            range: if needed { plan.output_range() } else { header.encoding.range() },
            scale: if needed { plan.scale() } else { 1 },
        };
        Ok(Self { form, plan: needed.then_some(plan) })
    }
}

/// Reader of a source's rows, starting with the rows read for the mask. It fills samples that are not finite and
/// removes interference.
pub(super) struct Reader {
    row_bytes: usize,
    flagged: Option<Flagged>,
    mitigation: Option<Mitigation>,
    prefix: Vec<u8>,
    used: usize,
    left: u64,
    /// Rows that are lost, counted from the first row read, and the source's row that this is.
    lost: LostRows,
    first: u64,
    /// End of the source's last gap that is known, counted from the source's first row.
    gaps_end: u64,
    /// Error that ended the mask's rows early; returned after those rows.
    fault: Option<Error>,
    /// Rows read ahead, and the number of their bytes already returned.
    ahead: Vec<u8>,
    ahead_used: usize,
    /// Error that ended the rows read ahead.
    ahead_fault: Option<Error>,
}

impl Cleaning {
    /// Reads the rows for the automatic mask and determines the masked channels. Calls `goes_on` between reads.
    ///
    /// A stop or an error may end these rows early; the mask then comes from the rows read. See
    /// [`Cleaning::is_cut_short`].
    pub(super) fn new(
        source: &mut dyn FilterbankSource,
        options: &SearchOptions,
        part: Part,
        backend: &Backend,
        goes_on: &mut dyn FnMut() -> bool,
    ) -> Result<Self> {
        let header = source.header().clone();
        let (mut masked, time_mask) = masks(&header, options, part)?;
        if !(0.0..=1.0).contains(&options.max_flagged) {
            let rule = "it must be 0 to 1";
            return Err(Error::parameter("max_flagged", options.max_flagged, rule));
        }
        let mut left = part.limit;
        let (mut prefix, mut fault) = (Vec::new(), None);
        let lost = LostRows::default();
        let mut flagged = Flagged::new(&header, lost.clone()).filter(|_| !source.is_finite());
        if options.auto_mask || options.mitigation.is_some() || flagged.is_some() {
            (prefix, fault) = read_prefix(source, &mut left, goes_on)?;
        }
        let mut resampled = None;
        if let Some(flagged) = &mut flagged {
            let channels = header.channels();
            let mostly = flagged::mostly_flagged(&prefix, channels, options.max_flagged);
            masked.iter_mut().zip(mostly).for_each(|(all, bad)| *all |= bad);
            if options.auto_mask {
                resampled = flagged::resampled(&prefix, channels);
            }
            flagged.begin(&prefix);
            flagged.fill(&mut prefix);
        }
        if options.auto_mask {
            let times = prefix.len() / header.row_bytes();
            let bytes = resampled.as_deref().unwrap_or(&prefix);
            let samples = Samples::new(bytes, header.encoding, times, header.channels())?;
            let outlying = clean::channel_mask(samples, MASK_THRESHOLD);
            masked.iter_mut().zip(outlying).for_each(|(all, bad)| *all |= bad);
        }
        drop(resampled);
        if masked.iter().all(|bad| *bad) {
            return Err(fault.unwrap_or_else(|| nothing_left(&header, options)));
        }
        let mitigation = match options.mitigation {
            Some(steps) => {
                let (encoding, tsamp_s) = (header.encoding, header.tsamp_s);
                let block_s = options.mitigation_block_s;
                let mitigator =
                    Mitigator::new(&prefix, encoding, tsamp_s, &masked, steps, block_s, backend)?;
                let most = options.memory.map_or(usize::MAX, |limit| limit as usize / MEMORY_PART);
                let block_s = mitigator.block_rows() as f64 * tsamp_s;
                // Rows of a stream that come after less than a part of their own time were waiting.
                let pace = match source.is_live() {
                    true => Pace::Live(SLOW.min(Duration::from_secs_f64(block_s / 8.0))),
                    false => Pace::Recorded,
                };
                let row_bytes = header.row_bytes();
                (!mitigator.is_idle()).then(|| Mitigation::new(mitigator, row_bytes, most, pace))
            }
            None => None,
        };
        let Expected { form, plan } = Expected::of(&header, options, masked, time_mask)?;
        Ok(Self {
            form,
            cleaner: plan.map(|plan| Cleaner::new(plan, backend)).transpose()?,
            is_cut_short: fault.is_some(),
            reader: Reader {
                row_bytes: header.row_bytes(),
                flagged,
                mitigation,
                prefix,
                used: 0,
                left,
                lost,
                first: part.first,
                gaps_end: source.gaps().last().map_or(0, |gap| gap.start_time + gap.times),
                fault,
                ahead: Vec::new(),
                ahead_used: 0,
                ahead_fault: None,
            },
        })
    }

    /// Reads rows ahead, which [`Cleaning::read`] returns again. Calls `search` with the cleaned rows and with
    /// whether the data end with them, and `goes_on` between reads. A stop or an error ends the data; see
    /// [`Cleaning::is_cut_short`].
    pub(super) fn look_ahead(
        &mut self,
        source: &mut dyn FilterbankSource,
        times: usize,
        goes_on: &mut dyn FnMut() -> bool,
        search: &mut dyn FnMut(&Self, Samples<'_>, bool) -> Result<()>,
    ) -> Result<()> {
        let header = source.header().clone();
        let row_bytes = header.row_bytes();
        let all = header.times.map_or(0, |all| all.min(times as u64) as usize);
        let mut ahead = Vec::with_capacity(all * row_bytes);
        let mut fault = None;
        let mut is_over = false;
        while !is_over && ahead.len() < times * row_bytes {
            if !self.is_cut_short && !ahead.is_empty() && !goes_on() {
                fault = Some(Error::stopped(&header.path));
                break;
            }
            let from = ahead.len();
            ahead.resize((from + PIECE_TIMES * row_bytes).min(times * row_bytes), 0);
            let read = self.reader.read(source, &mut ahead[from..]).unwrap_or_else(|error| {
                fault = Some(error);
                0
            });
            ahead.truncate(from + read * row_bytes);
            is_over = read == 0;
        }
        self.is_cut_short |= fault.is_some();
        self.reader.ahead_fault = fault;
        let rows = ahead.len() / row_bytes;
        let samples = Samples::new(&ahead, header.encoding, rows, header.channels())?;
        let mut cleaned = Vec::new();
        let samples = self.clean(samples, &mut cleaned)?;
        search(self, samples, rows < times)?;
        if let Some(cleaner) = &mut self.cleaner {
            cleaner.reset();
        }
        self.reader.ahead = ahead;
        Ok(())
    }

    /// Returns whether a stop or an error cut short the rows for the mask or for the search of the start. Results
    /// from them then differ from those of a complete run.
    pub(super) fn is_cut_short(&self) -> bool {
        self.is_cut_short
    }

    /// Takes the error that ended the mask's rows early, for a run that cannot use those rows alone.
    ///
    /// # Errors
    /// The error that ended the rows early.
    pub(super) fn check_whole(&mut self) -> Result<()> {
        self.reader.fault.take().map_or(Ok(()), Err)
    }

    /// Returns the form of the rows from [`Cleaning::clean`].
    pub(super) fn form(&self) -> &CleanedForm {
        &self.form
    }

    /// Returns which channels are masked, in recorded order.
    pub(super) fn masked(&self) -> &[bool] {
        &self.form.masked
    }

    /// Returns the numbers of the masked channels.
    pub(super) fn masked_channels(&self) -> Vec<usize> {
        let masked = self.masked();
        (0..masked.len()).filter(|channel| masked[*channel]).collect()
    }

    /// Returns the filled samples that were not finite, in the rows read so far.
    pub(super) fn flagged_samples(&self) -> u64 {
        self.reader.flagged.as_ref().map_or(0, Flagged::count)
    }

    /// Returns the interference removed from the rows read so far.
    pub(super) fn mitigated(&self) -> Option<Mitigated> {
        self.reader.mitigation.as_ref().map(Mitigation::mitigated)
    }

    /// Records what is removed from the rows, in at most `most_bytes`, for [`Cleaning::take_removals`].
    pub(super) fn record(&mut self, most_bytes: usize) {
        let is_alone = self.reader.flagged.is_none()
            && self.cleaner.as_ref().is_none_or(|cleaner| !cleaner.plan().has_time_mask());
        if let Some(mitigation) = self.reader.mitigation.as_mut().filter(|_| is_alone) {
            mitigation.mitigator.record(most_bytes);
        }
    }

    /// Takes the record of all rows, if they depend on earlier rows by the mitigation alone.
    pub(super) fn take_removals(&mut self) -> Option<Removals> {
        self.reader.mitigation.as_mut()?.mitigator.take_removals()
    }

    /// Returns the bytes of the rows held for the mask and the mitigation.
    pub(super) fn held_bytes(&self) -> usize {
        let held = self.reader.prefix.len() + self.reader.ahead.len();
        held + self.reader.mitigation.as_ref().map_or(0, Mitigation::held_bytes)
    }

    /// Returns the bytes of a cleaned row, 0 without cleaning.
    pub(super) fn made_row_bytes(&self) -> usize {
        self.cleaner.as_ref().map_or(0, |cleaner| cleaner.plan().output_row_bytes())
    }

    /// Returns the rows read so far that a live source lost since the search began, or of which more than half was not
    /// finite.
    pub(super) fn lost_rows(&self) -> LostRows {
        self.reader.lost.clone()
    }

    /// Returns whether rows are in hand, so that a read does not wait for the source.
    pub(super) fn has_rows(&self) -> bool {
        self.reader.has_rows()
    }

    /// Returns the encoding of the rows from [`Cleaning::clean`].
    pub(super) fn encoding(&self) -> Encoding {
        self.form.encoding
    }

    /// Reads the next rows, starting with the rows of the mask; returns 0 at the end.
    pub(super) fn read(
        &mut self,
        source: &mut dyn FilterbankSource,
        rows: &mut [u8],
    ) -> Result<usize> {
        self.reader.read(source, rows)
    }

    /// Skips rows before any was read; skips fewer only at the end of the data.
    pub(super) fn skip(&mut self, source: &mut dyn FilterbankSource, times: u64) -> Result<u64> {
        self.reader.skip(source, times)
    }

    /// Whether a cleaned row depends on all rows before it, as the fill of time-mask cells and of samples that are
    /// not finite does.
    pub(super) fn looks_back(&self) -> bool {
        self.reader.flagged.is_some()
            || self.reader.mitigation.is_some()
            || self.cleaner.as_ref().is_some_and(|cleaner| cleaner.plan().has_time_mask())
    }

    /// Returns the rows as input of the first stage.
    pub(super) fn clean<'a>(
        &mut self,
        rows: Samples<'a>,
        buffer: &'a mut Vec<u8>,
    ) -> Result<Samples<'a>> {
        clean(self.cleaner.as_mut(), rows, buffer)
    }
}

/// Returns the rows as input of the first stage, from the cleaner of [`Cleaning::parts`].
pub(super) fn clean<'a>(
    cleaner: Option<&mut Cleaner>,
    rows: Samples<'a>,
    buffer: &'a mut Vec<u8>,
) -> Result<Samples<'a>> {
    let Some(cleaner) = cleaner else { return Ok(rows) };
    let encoding = cleaner.plan().output_encoding();
    buffer.resize(rows.times() * rows.channels() * encoding.bits() / 8, 0);
    cleaner.run(rows, buffer)?;
    Samples::new(buffer, encoding, rows.times(), rows.channels())
}

impl Reader {
    /// Returns whether rows, or the error after them, are still to be returned.
    pub(super) fn holds_rows(&self) -> bool {
        let is_ahead = self.ahead_used < self.ahead.len() || self.ahead_fault.is_some();
        is_ahead || self.used < self.prefix.len() || self.fault.is_some()
    }

    /// Returns whether rows are in hand, mitigated ones among them, so that a read does not wait for the source.
    pub(super) fn has_rows(&self) -> bool {
        let is_mitigated = |mitigation: &Mitigation| !mitigation.ready.is_empty();
        self.holds_rows() || self.mitigation.as_ref().is_some_and(is_mitigated)
    }

    /// Returns the maximum number of rows left to read.
    pub(super) fn left(&self) -> u64 {
        self.left
    }

    /// Reads the next rows; returns 0 at the end.
    pub(super) fn read(
        &mut self,
        source: &mut dyn FilterbankSource,
        rows: &mut [u8],
    ) -> Result<usize> {
        let held = (self.ahead.len() - self.ahead_used).min(rows.len());
        if held > 0 {
            rows[..held].copy_from_slice(&self.ahead[self.ahead_used..][..held]);
            self.ahead_used += held;
            if self.ahead_used == self.ahead.len() {
                (self.ahead, self.ahead_used) = (Vec::new(), 0);
            }
            let mut times = held / self.row_bytes;
            // Completes the gulp with rows from the source.
            if held < rows.len() && self.ahead_fault.is_none() {
                match self.read(source, &mut rows[held..]) {
                    Ok(more) => times += more,
                    Err(fault) => self.ahead_fault = Some(fault),
                }
            }
            return Ok(times);
        }
        if let Some(fault) = self.ahead_fault.take() {
            return Err(fault);
        }
        let Some(mut mitigation) = self.mitigation.take() else {
            return self.read_recorded(source, rows);
        };
        let read = mitigation.read(rows, &mut |rows| self.read_recorded(source, rows));
        self.mitigation = Some(mitigation);
        read
    }

    /// Reads the next recorded rows, with samples that are not finite filled.
    fn read_recorded(
        &mut self,
        source: &mut dyn FilterbankSource,
        rows: &mut [u8],
    ) -> Result<usize> {
        let held = (self.prefix.len() - self.used).min(rows.len());
        if held > 0 {
            rows[..held].copy_from_slice(&self.prefix[self.used..][..held]);
            self.used += held;
            if self.used == self.prefix.len() {
                (self.prefix, self.used) = (Vec::new(), 0);
            }
            return Ok(held / self.row_bytes);
        }
        if let Some(fault) = self.fault.take() {
            return Err(fault);
        }
        let wanted = (rows.len() / self.row_bytes).min(self.left.min(usize::MAX as u64) as usize);
        let mut span = trace::span(Work::Read, "rows");
        let times = source.read(&mut rows[..wanted * self.row_bytes])?;
        span.add_bytes(times * self.row_bytes);
        drop(span);
        self.left -= times as u64;
        self.note_gaps(source.gaps());
        if let Some(flagged) = &mut self.flagged {
            flagged.fill(&mut rows[..times * self.row_bytes]);
        }
        Ok(times)
    }

    /// Records rows that a live source has lost: its gaps are not known beforehand, and the last one may grow.
    pub(super) fn note_gaps(&mut self, gaps: &[Gap]) {
        let is_new = |gap: &&Gap| gap.start_time + gap.times > self.gaps_end;
        let known = gaps.len() - gaps.iter().rev().take_while(is_new).count();
        for gap in &gaps[known..] {
            let rows = gap.start_time.max(self.gaps_end)..gap.start_time + gap.times;
            self.gaps_end = rows.end;
            self.lost.add(rows.start.saturating_sub(self.first)..rows.end - self.first);
        }
    }

    fn skip(&mut self, source: &mut dyn FilterbankSource, times: u64) -> Result<u64> {
        let row_bytes = self.row_bytes as u64;
        let held = times.min((self.prefix.len() - self.used) as u64 / row_bytes);
        self.used += (held * row_bytes) as usize;
        let passed = source.skip((times - held).min(self.left))?;
        self.left -= passed;
        Ok(held + passed)
    }
}

/// Access for processing on a device.
impl Cleaning {
    /// Returns the bytes of a cleaned row; none without cleaning.
    pub(super) fn cleaned_row_bytes(&self) -> Option<usize> {
        self.cleaner.as_ref().map(|cleaner| cleaner.plan().output_row_bytes())
    }

    /// Splits the cleaning into its reader and its cleaner, if any; both can be used concurrently.
    pub(super) fn parts(&mut self) -> (&mut Reader, Option<&mut Cleaner>) {
        (&mut self.reader, self.cleaner.as_mut())
    }

    /// Resets the state for another stream.
    pub(super) fn reset(&mut self) {
        if let Some(cleaner) = &mut self.cleaner {
            cleaner.reset();
        }
    }
}

/// Returns the channels masked by the user.
fn zapped(header: &FilterbankHeader, options: &SearchOptions) -> Result<Vec<bool>> {
    let channels = header.channels();
    let mut masked = vec![false; channels];
    for &channel in &options.zapped {
        if channel >= channels {
            let rule = format!("the data have channels 0 to {}", channels - 1);
            return Err(Error::parameter("zapped", channel, rule));
        }
        masked[channel] = true;
    }
    Ok(masked)
}

fn nothing_left(header: &FilterbankHeader, options: &SearchOptions) -> Error {
    let why = if options.auto_mask {
        "every channel is constant, mostly not finite, an outlier or left out by request; \
         `auto_mask: false` keeps outliers"
    } else {
        "every channel is mostly not finite (`max_flagged`) or left out by request"
    };
    Error::format(&header.path, "channels", 0, why)
}

/// Returns the channels masked by the options, and the mask of cells of time and channel.
fn masks(
    header: &FilterbankHeader,
    options: &SearchOptions,
    part: Part,
) -> Result<(Vec<bool>, Option<TimeMask>)> {
    let mut masked = zapped(header, options)?;
    let time_mask = match &options.mask {
        Some(mask) => Some(time_mask(mask.recorded(&header.band)?, &mut masked, part.first)),
        None => None,
    };
    Ok((masked, time_mask))
}

/// Applies an rfifind mask: masked channels, and masked cells of time and channel.
fn time_mask(mask: RecordedMask, masked: &mut [bool], first_time: u64) -> TimeMask {
    masked.iter_mut().zip(mask.zapped).for_each(|(all, bad)| *all |= bad);
    TimeMask { interval_times: mask.interval_times, first_time, intervals: mask.intervals }
}

/// Reads the rows for the mask; also returns the error that ended them early after the first read.
fn read_prefix(
    source: &mut dyn FilterbankSource,
    left: &mut u64,
    goes_on: &mut dyn FnMut() -> bool,
) -> Result<(Vec<u8>, Option<Error>)> {
    let row_bytes = source.header().row_bytes();
    let times = MASK_TIMES
        .min((MASK_BYTES / row_bytes).max(256))
        .min(usize::try_from(*left).unwrap_or(usize::MAX));
    let mut rows = vec![0; times * row_bytes];
    let mut read = 0;
    let mut fault = None;
    while read < times && fault.is_none() {
        if read > 0 && !goes_on() {
            fault = Some(Error::stopped(&source.header().path));
            break;
        }
        let wanted = PIECE_TIMES.min(times - read);
        match source.read(&mut rows[read * row_bytes..][..wanted * row_bytes]) {
            Ok(0) => break,
            Ok(more) => read += more,
            Err(error) if read == 0 => return Err(error),
            Err(error) => fault = Some(error),
        }
    }
    rows.truncate(read * row_bytes);
    *left -= read as u64;
    Ok((rows, fault))
}

/// Reads recorded rows; returns their number, 0 at the end.
type RowReader<'a> = dyn FnMut(&mut [u8]) -> Result<usize> + Send + 'a;

/// Bytes per copy task of a thread.
const COPIED_BYTES: usize = 256 << 10;

/// Time after which a source counts as slow: blocks in hand are then processed before more are read, and not
/// concurrently with reading.
pub(super) const SLOW: Duration = Duration::from_millis(100);

/// Pace of the rows of a source.
#[derive(Clone, Copy, Debug)]
enum Pace {
    /// Rows wait to be read.
    Recorded,
    /// Rows arrive: a batch of blocks that takes longer than this ends, and results do not wait for the next batch.
    Live(Duration),
}

impl Pace {
    /// Returns the time beyond which a batch of blocks is slow to read.
    fn slow(self) -> Duration {
        match self {
            Self::Recorded => SLOW,
            Self::Live(slow) => slow,
        }
    }
}

/// Mitigator with its input and output blocks.
struct Mitigation {
    mitigator: Mitigator,
    /// Threads that read and mitigate.
    pair: Pair,
    row_bytes: usize,
    /// Blocks per batch.
    batch: usize,
    /// Next blocks, if the source is fast enough to be read ahead.
    next: Vec<Vec<u8>>,
    is_fast: bool,
    pace: Pace,
    /// Mitigated blocks, and the number of bytes of the first one already returned.
    ready: VecDeque<Vec<u8>>,
    used: usize,
    /// Returned blocks, reused for reading.
    spent: Vec<Vec<u8>>,
    is_over: bool,
    failed: Option<Error>,
}

impl Mitigation {
    /// Builds a mitigation that processes batches of blocks, at most `most_bytes` unless one block is larger.
    fn new(mitigator: Mitigator, row_bytes: usize, most_bytes: usize, pace: Pace) -> Self {
        Self {
            batch: mitigator.batch_blocks(most_bytes),
            mitigator,
            pair: Pair::new(),
            row_bytes,
            next: Vec::new(),
            is_fast: false,
            pace,
            ready: VecDeque::new(),
            used: 0,
            spent: Vec::new(),
            is_over: false,
            failed: None,
        }
    }

    fn held_bytes(&self) -> usize {
        self.mitigator.held_bytes(4 * self.batch)
    }

    fn mitigated(&self) -> Mitigated {
        self.mitigator.mitigated()
    }

    /// Reads the next mitigated rows; `source` supplies recorded rows. Returns 0 at the end.
    fn read(&mut self, rows: &mut [u8], source: &mut RowReader<'_>) -> Result<usize> {
        while self.ready.is_empty() {
            if self.is_over && self.next.is_empty() {
                return self.failed.take().map_or(Ok(0), Err);
            }
            self.work(source)?;
        }
        let _span = trace::span(Work::Compute, "copy of rows");
        let threads = self.mitigator.threads();
        let (mut given, mut none) = (0, vec![(); threads.count()]);
        while let Some(block) = self.ready.front() {
            let free = (rows.len() - given) / self.row_bytes * self.row_bytes;
            let bytes = (block.len() - self.used).min(free);
            let (from, to) = (&block[self.used..][..bytes], &mut rows[given..given + bytes]);
            threads.for_each_chunk(&mut none, to, COPIED_BYTES, |(), index, to| {
                to.copy_from_slice(&from[index * COPIED_BYTES..][..to.len()]);
            });
            (given, self.used) = (given + bytes, self.used + bytes);
            if self.used < block.len() {
                break;
            }
            self.used = 0;
            self.spent.extend(self.ready.pop_front());
        }
        Ok(given / self.row_bytes)
    }

    /// Mitigates the next blocks while the following ones are read.
    fn work(&mut self, source: &mut RowReader<'_>) -> Result<()> {
        let length = self.mitigator.block_rows() * self.row_bytes;
        let mut reader = Blocks {
            length,
            row_bytes: self.row_bytes,
            count: self.batch,
            spent: std::mem::take(&mut self.spent),
            is_over: self.is_over,
            is_fast: self.is_fast,
            slow: self.pace.slow(),
            failed: None,
        };
        let mut blocks = std::mem::take(&mut self.next);
        if blocks.is_empty() {
            blocks = reader.read(source);
        }
        let done = if reader.is_fast && !reader.is_over {
            let mitigator = &mut self.mitigator;
            let is_ahead = matches!(self.pace, Pace::Recorded) && mitigator.threads().count() > 1;
            let push = || match is_ahead {
                true => mitigator.push_ahead(blocks),
                false => mitigator.push(blocks),
            };
            let (next, done) = self.pair.run(|| reader.read(source), push);
            self.next = next;
            done
        } else {
            self.mitigator.push(blocks)
        };
        (self.is_over, self.is_fast) = (reader.is_over, reader.is_fast);
        self.spent = reader.spent;
        self.failed = self.failed.take().or(reader.failed);
        self.ready.extend(done?);
        if self.is_over && self.next.is_empty() {
            self.ready.extend(self.mitigator.flush()?);
        }
        Ok(())
    }
}

/// Reader of blocks of rows.
struct Blocks {
    /// Bytes of a block and of a row, and the blocks per batch.
    length: usize,
    row_bytes: usize,
    count: usize,
    spent: Vec<Vec<u8>>,
    is_over: bool,
    /// Whether the last blocks were read without a wait.
    is_fast: bool,
    /// Time beyond which the blocks are slow.
    slow: Duration,
    failed: Option<Error>,
}

impl Blocks {
    /// Reads the next blocks; the last of a stream may have fewer rows. A slow block ends the batch.
    fn read(&mut self, source: &mut RowReader<'_>) -> Vec<Vec<u8>> {
        let (mut blocks, begun) = (Vec::with_capacity(self.count), Instant::now());
        self.is_fast = true;
        while blocks.len() < self.count && !self.is_over && self.is_fast {
            let block = self.block(source);
            if !block.is_empty() {
                blocks.push(block);
            }
            self.is_fast = begun.elapsed() < self.slow;
        }
        blocks
    }

    /// Reads one block, or the remainder.
    fn block(&mut self, source: &mut RowReader<'_>) -> Vec<u8> {
        let mut block = self.spent.pop().unwrap_or_default();
        block.resize(self.length, 0);
        let mut bytes = 0;
        while bytes < block.len() && !self.is_over {
            match source(&mut block[bytes..]) {
                Ok(0) => self.is_over = true,
                Ok(times) => bytes += times * self.row_bytes,
                Err(error) => (self.is_over, self.failed) = (true, Some(error)),
            }
        }
        block.truncate(bytes);
        block
    }
}

/// Rows per read while skipping.
const SKIPPED_ROWS: usize = 1024;

/// Rows of a source with interference removed, masked cells filled and, if requested, zero-DM applied.
///
/// Row 0 is the first of the searched time range.
pub struct CleanedRows {
    source: Box<dyn FilterbankSource>,
    cleaning: Cleaning,
    header: FilterbankHeader,
    start_s: f64,
    raw: Vec<u8>,
    cleaned: Vec<u8>,
}

impl CleanedRows {
    /// Reads the rows needed for the automatic mask and the mitigation, from a source at its first row. Calls
    /// `goes_on` between reads.
    ///
    /// # Errors
    /// As [`search`](super::burst::search()); [`crate::Error::stopped`] when `goes_on` returns false.
    pub fn new(
        mut source: Box<dyn FilterbankSource>,
        options: &SearchOptions,
        backend: &Backend,
        goes_on: &mut dyn FnMut() -> bool,
    ) -> Result<Self> {
        let part = Part::new(source.header(), options)?;
        skip_to(source.as_mut(), part.first)?;
        let mut cleaning = Cleaning::new(source.as_mut(), options, part, backend, goes_on)?;
        cleaning.check_whole()?;
        let mut header = source.header().clone();
        let start_s = part.first as f64 * header.tsamp_s;
        (header.encoding, header.times) = (cleaning.encoding(), part.times);
        Ok(Self { source, cleaning, header, start_s, raw: Vec::new(), cleaned: Vec::new() })
    }

    /// Returns the seconds from the source's first row to this first row.
    pub fn start_s(&self) -> f64 {
        self.start_s
    }

    /// Returns which channels are masked throughout, in recorded order.
    pub fn masked(&self) -> &[bool] {
        self.cleaning.masked()
    }
}

/// Rows of a source as a search cleaned them, from its record of what was removed: any row without those before it.
///
/// Row 0 is the first of the searched time range.
pub struct RecleanedRows<'a> {
    source: Box<dyn FilterbankSource>,
    removals: &'a Removals,
    cleaner: Option<Cleaner>,
    header: FilterbankHeader,
    start_s: f64,
    row: u64,
    raw: Vec<u8>,
}

impl<'a> RecleanedRows<'a> {
    /// Skips to the searched rows of a source at its first row, of which `removals` is the record of the search.
    ///
    /// # Errors
    /// As [`search`](super::burst::search()).
    pub fn new(
        mut source: Box<dyn FilterbankSource>,
        options: &SearchOptions,
        removals: &'a Removals,
        masked: &[bool],
        backend: &Backend,
    ) -> Result<Self> {
        let part = Part::new(source.header(), options)?;
        skip_to(source.as_mut(), part.first)?;
        let mut header = source.header().clone();
        let start_s = part.first as f64 * header.tsamp_s;
        header.times = part.times;
        let mut cleaner = None;
        if options.zero_dm {
            let plan = clean::Plan::new(clean::Options {
                channels: header.channels(),
                encoding: header.encoding,
                zero_dm: true,
                masked: masked.to_vec(),
                time_mask: None,
            })?;
            header.encoding = plan.output_encoding();
            cleaner = Some(Cleaner::new(plan, backend)?);
        }
        Ok(Self { source, removals, cleaner, header, start_s, row: 0, raw: Vec::new() })
    }

    /// Returns the seconds from the source's first row to this first row.
    pub fn start_s(&self) -> f64 {
        self.start_s
    }

    /// Returns the rows left in the searched time range, `wanted` at most.
    fn left(&self, wanted: u64) -> u64 {
        self.header.times.map_or(wanted, |times| wanted.min(times.saturating_sub(self.row)))
    }
}

impl FilterbankSource for RecleanedRows<'_> {
    fn header(&self) -> &FilterbankHeader {
        &self.header
    }

    fn read(&mut self, rows: &mut [u8]) -> Result<usize> {
        let row_bytes = self.header.row_bytes();
        let wanted = self.left((rows.len() / row_bytes) as u64) as usize;
        let Some(cleaner) = &mut self.cleaner else {
            let rows = &mut rows[..wanted * row_bytes];
            let times = self.source.read(rows)?;
            self.removals.clean(self.row, &mut rows[..times * row_bytes]);
            self.row += times as u64;
            return Ok(times);
        };
        let recorded = self.source.header();
        let (encoding, channels) = (recorded.encoding, recorded.channels());
        let raw_bytes = recorded.row_bytes();
        self.raw.resize(wanted * raw_bytes, 0);
        let times = self.source.read(&mut self.raw)?;
        let raw = &mut self.raw[..times * raw_bytes];
        self.removals.clean(self.row, raw);
        let samples = Samples::new(raw, encoding, times, channels)?;
        cleaner.run(samples, &mut rows[..times * row_bytes])?;
        self.row += times as u64;
        Ok(times)
    }

    fn skip(&mut self, times: u64) -> Result<u64> {
        let skipped = self.source.skip(self.left(times))?;
        self.row += skipped;
        Ok(skipped)
    }
}

impl FilterbankSource for CleanedRows {
    fn header(&self) -> &FilterbankHeader {
        &self.header
    }

    fn read(&mut self, rows: &mut [u8]) -> Result<usize> {
        let row_bytes = self.header.row_bytes();
        let recorded = self.source.header();
        let (encoding, channels) = (recorded.encoding, recorded.channels());
        let raw_bytes = recorded.row_bytes();
        let wanted = rows.len() / row_bytes;
        let mut read = 0;
        // Mitigation returns one block at a time.
        while read < wanted {
            self.raw.resize((wanted - read) * raw_bytes, 0);
            let times = self.cleaning.read(self.source.as_mut(), &mut self.raw)?;
            if times == 0 {
                break;
            }
            let samples = Samples::new(&self.raw[..times * raw_bytes], encoding, times, channels)?;
            let samples = self.cleaning.clean(samples, &mut self.cleaned)?;
            for (time, row) in
                rows[read * row_bytes..].chunks_exact_mut(row_bytes).take(times).enumerate()
            {
                row.copy_from_slice(samples.row(time));
            }
            read += times;
        }
        Ok(read)
    }

    fn skip(&mut self, times: u64) -> Result<u64> {
        let row_bytes = self.header.row_bytes();
        let mut rows = vec![0; SKIPPED_ROWS * row_bytes];
        let mut passed = 0;
        while passed < times {
            let wanted = (times - passed).min(SKIPPED_ROWS as u64) as usize;
            let read = self.read(&mut rows[..wanted * row_bytes])?;
            passed += read as u64;
            if read < wanted {
                break;
            }
        }
        Ok(passed)
    }
}
