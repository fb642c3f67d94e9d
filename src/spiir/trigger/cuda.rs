//! Peak search on a GPU: the ratios stay in device memory and only measured triggers are copied to the host.
//!
//! Invariant: a sample is decided about once all that its window and its measure reach is there, and triggers come back
//! by sample and template, so nothing depends on how the stream was split or on what ran first.
#![allow(unsafe_code)]

use std::ops::Range;
use std::sync::Arc;

use num_complex::Complex;

use super::gate::Gate;
use super::measure::{Interpolator, Measure, ROWS, STEPS, TAPS};
use super::plan::{Autocorrelation, HALF, Plan, Ratios, Trigger};
use crate::backend::cuda::{
    Arguments, Buffer, Device, DownloadRing, Event, Extent, Function, ReadRows, RowReader, Source,
    Stream, UploadRing, Variant,
};
use crate::error::{Error, Result};
use crate::state::{Saved, Saving};
use crate::view::check_length;

/// Threads of a block, samples of a `screen` block, and `measure` blocks per multiprocessor.
const THREADS: usize = 256;
const SAMPLES: usize = 2048;
const MEASURING: usize = 2;

/// Launches in flight.
const LAUNCHES: usize = 2;

/// Length in 32-bit words of the header, the first of which is the number of triggers, and of a trigger.
const HEADER: usize = 8;
const WORDS: usize = 6;

/// Triggers copied together with their number, before the host knows the number.
const COPIED_AHEAD: usize = 4096;

/// Bytes of the ratios of one piece of host memory.
const STAGED_BYTES: usize = 32 << 20;

/// Device bytes for the triggers of one launch.
const FOUND_BYTES: usize = 32 << 20;

/// Most samples per call (positions are 32-bit numbers), and most samples decided by one launch.
const MAX_TIMES: usize = 1 << 28;
const MAX_DECIDED: usize = 1 << 14;

/// Returns the kernels of the peak search.
pub fn kernels(_: Extent) -> Vec<Variant> {
    vec![Variant::everywhere(source())]
}

/// Returns the kernels of every plan.
pub(crate) fn source() -> Source {
    Source { name: "peaks.cu", text: include_str!("peaks.cu"), includes: &[], defines: Vec::new() }
}

/// Signal-to-noise ratios in device memory: the next `times` samples of each template, at the start of its row of
/// `stride` elements.
#[derive(Clone, Copy, Debug)]
pub struct DeviceRatios<'a> {
    /// Memory that holds the rows of the templates.
    pub z: &'a Buffer<Complex<f32>>,
    /// Elements between rows.
    pub stride: usize,
    /// Samples of a row.
    pub times: usize,
}

/// State of the search of one stream.
#[derive(Debug)]
pub(super) struct Engine {
    device: Device,
    screen: Function,
    measure: Function,
    retain: Function,
    tables: Tables,
    gate: Gate,
    /// Double buffer of the last samples of every template, `capacity` each. Buffer `present` holds `kept` samples,
    /// the first of which is stream sample `first`.
    tails: [Buffer<Complex<f32>>; 2],
    present: usize,
    capacity: usize,
    kept: usize,
    first: u64,
    /// Samples received, samples decided on the device, and samples whose triggers are on the host.
    known: u64,
    decided: u64,
    collected: u64,
    /// Triggers of the launches in flight.
    found: DownloadRing<u32, Launch>,
    /// Most triggers of a launch, and most samples that it decides.
    max_found: usize,
    step: usize,
    /// Last queued work, on any stream.
    last: Event,
    /// Triggers for which a later gate may still come within the pad.
    waiting: Vec<Trigger>,
    /// Stream for work outside `enqueue`: clearing buffers, flushing, and copying many triggers.
    own: Arc<Stream>,
    /// Buffers for host memory; `None` until the first call with it.
    staging: Option<Box<Staging>>,
}

/// Launch in flight: the first sample that positions count from, and the end of the decided samples.
#[derive(Clone, Copy, Debug)]
struct Launch {
    first: u64,
    until: u64,
}

/// Buffers that copy ratios to the device, in pieces of `piece` samples.
#[derive(Debug)]
struct Staging {
    uploads: UploadRing<Complex<f32>>,
    piece: usize,
    work: Stream,
}

/// Returns the 32-bit words for this number of triggers.
const fn found_words(triggers: usize) -> usize {
    HEADER + WORDS * triggers
}

/// Newest samples: one row per template.
#[derive(Clone, Copy)]
struct Block {
    address: u64,
    stride: usize,
    times: usize,
}

impl Engine {
    pub(super) fn new(plan: &Plan, device: &Device) -> Result<Self> {
        let templates = plan.templates();
        let module = device.module(&source())?;
        let capacity = 2 * plan.back;
        let words = capacity.saturating_mul(templates);
        // Two triggers of a template are at least this far apart.
        let apart = plan.window + 1;
        let most = (FOUND_BYTES / (4 * found_words(templates))).max(1);
        let step = most.saturating_mul(apart).min(MAX_DECIDED);
        let max_found = templates * step.div_ceil(apart);
        let own = Arc::new(device.stream()?);
        let tails = [device.buffer(words)?, device.buffer(words)?];
        let mut found = DownloadRing::new(device, found_words(max_found), LAUNCHES)?;
        // Fills the buffers because a copy may include triggers that were not written.
        for _ in 0..LAUNCHES {
            own.fill(found.target(&own)?, 0..found_words(max_found), 0)?;
            found.send(Launch { first: 0, until: 0 }, 0, &own)?;
        }
        while found.receive()?.is_some() {}
        Ok(Self {
            device: device.clone(),
            screen: module.function("screen", 0)?,
            measure: module.function("measure", 0)?,
            retain: module.function("retain", 0)?,
            tables: Tables::new(device, plan.autocorrelations(), plan.half)?,
            gate: Gate::new(plan.pad),
            tails,
            present: 0,
            capacity,
            kept: 0,
            first: 0,
            known: 0,
            decided: 0,
            collected: 0,
            found,
            max_found,
            step,
            last: device.event()?,
            waiting: Vec::new(),
            own,
            staging: None,
        })
    }

    pub(super) fn held_bytes(&self) -> usize {
        LAUNCHES * found_words(self.max_found) * size_of::<u32>()
    }

    /// Searches samples in host memory, piece by piece, and waits for all triggers that are certain.
    pub(super) fn run(
        &mut self,
        plan: &Plan,
        ratios: Ratios<'_>,
        valid: &[bool],
        triggers: &mut Vec<Trigger>,
    ) -> Result<()> {
        let mut staging = match self.staging.take() {
            Some(staging) => staging,
            None => Box::new(Staging::new(&self.device, plan.templates())?),
        };
        let done = self.run_staged(&mut staging, plan, ratios, valid, triggers);
        self.staging = Some(staging);
        done?;
        self.collect(triggers)
    }

    fn run_staged(
        &mut self,
        staging: &mut Staging,
        plan: &Plan,
        ratios: Ratios<'_>,
        valid: &[bool],
        triggers: &mut Vec<Trigger>,
    ) -> Result<()> {
        let Staging { uploads, piece, work } = staging;
        for (index, valid) in valid.chunks(*piece).enumerate() {
            let (first, times) = (index * *piece, valid.len());
            let fill = |host: &mut [Complex<f32>]| {
                for (template, row) in host.chunks_exact_mut(times).enumerate() {
                    row.copy_from_slice(&ratios.row(template)[first..first + times]);
                }
            };
            let z = uploads.upload(plan.templates() * times, work, fill)?;
            self.enqueue(plan, DeviceRatios { z, stride: times, times }, valid, triggers, work)?;
            uploads.release(work)?;
        }
        Ok(())
    }

    pub(super) fn enqueue(
        &mut self,
        plan: &Plan,
        ratios: DeviceRatios<'_>,
        valid: &[bool],
        triggers: &mut Vec<Trigger>,
        stream: &Stream,
    ) -> Result<()> {
        let DeviceRatios { z, stride, times } = ratios;
        check_length("valid samples", times, valid.len())?;
        let (what, most) = ("row of signal-to-noise ratios", stride.min(MAX_TIMES));
        if times > most {
            return Err(Error::Shape { what, expected: times, actual: most });
        }
        let (expected, actual) = (plan.templates().saturating_mul(stride), z.len());
        if actual < expected {
            let what = "signal-to-noise ratios (template, time)";
            return Err(Error::Shape { what, expected, actual });
        }
        z.check_on(&self.device)?;
        self.gate.push(valid);
        let block = Block { address: z.address(), stride, times };
        let back = plan.back as u64;
        let known = self.known + times as u64;
        let until = known.saturating_sub(back).max(self.decided);
        stream.wait(&self.last)?;
        self.decide(plan, block, until, stream)?;
        self.keep(plan, block, until.saturating_sub(back)..known, stream)?;
        stream.record(&self.last)?;
        self.known = known;
        self.emit(triggers);
        Ok(())
    }

    pub(super) fn collect(&mut self, triggers: &mut Vec<Trigger>) -> Result<()> {
        while self.receive()? {}
        self.emit(triggers);
        Ok(())
    }

    pub(super) fn flush(&mut self, plan: &Plan, triggers: &mut Vec<Trigger>) -> Result<()> {
        let nothing = Block { address: 0, stride: 0, times: 0 };
        let stream = Arc::clone(&self.own);
        stream.wait(&self.last)?;
        self.decide(plan, nothing, self.known, &stream)?;
        stream.record(&self.last)?;
        self.gate.end();
        self.collect(triggers)?;
        self.forget();
        Ok(())
    }

    pub(super) fn reset(&mut self) -> Result<()> {
        self.collect(&mut Vec::new())?;
        self.forget();
        Ok(())
    }

    pub(super) fn known(&self) -> u64 {
        self.known
    }

    pub(super) fn certain(&self) -> u64 {
        self.gate.decided().min(self.collected)
    }

    pub(super) fn save(&self, to: &mut Saving) -> Result<()> {
        if self.collected < self.decided {
            return Err(Error::Unavailable {
                what: "the state of a search for peaks".to_owned(),
                why: "triggers are on their way, and must be collected first".to_owned(),
            });
        }
        to.part("finder on a GPU");
        to.number(self.known);
        let (stride, rows) = (self.capacity, self.tails[0].len() / self.capacity);
        let tails = ReadRows { first: 0, stride, rows, ranges: [0..self.kept, 0..0] };
        RowReader::new(&self.device)?.read_rows(&self.tails[self.present], &tails, |row| {
            to.number(row.len() as u64);
            to.more_f32s(row);
        })?;
        self.gate.save(to);
        to.number(self.waiting.len() as u64);
        for Trigger { template, sample, offset, z, xi2 } in &self.waiting {
            to.number((*template).into());
            to.number(*sample);
            to.f32s([*offset, z.re, z.im, *xi2].iter());
        }
        Ok(())
    }

    pub(super) fn load(&mut self, plan: &Plan, from: &mut Saved<'_>) -> Result<()> {
        self.reset()?;
        from.part("finder on a GPU")?;
        let known = from.number()?;
        let back = plan.back as u64;
        let decided = known.saturating_sub(back);
        let first = decided.saturating_sub(back);
        let kept = (known - first) as usize;
        let mut tails = vec![Complex::default(); self.tails[0].len()];
        for row in tails.chunks_exact_mut(self.capacity) {
            from.fill_complex(&mut row[..kept])?;
        }
        self.gate.load(from, known, known.saturating_sub(plan.latency() as u64))?;
        let certain = self.gate.decided();
        let most = plan.templates().saturating_mul(decided.saturating_sub(certain) as usize);
        for _ in 0..from.at_most(most)? {
            let (template, sample) = (from.at_most(plan.templates() - 1)? as u32, from.number()?);
            let earliest = self.waiting.last().map_or(certain, |before| before.sample);
            if !(earliest..decided).contains(&sample) {
                return Err(from.fault("sample of a trigger", format!("{sample} found")));
            }
            let mut values = [0.0; 4];
            from.fill_f32(&mut values)?;
            let [offset, re, im, xi2] = values;
            self.waiting.push(Trigger { template, sample, offset, z: Complex::new(re, im), xi2 });
        }
        self.tails[self.present].upload(&tails)?;
        (self.known, self.decided, self.collected) = (known, decided, decided);
        (self.kept, self.first) = (kept, first);
        Ok(())
    }

    fn forget(&mut self) {
        self.gate.reset();
        self.waiting.clear();
        (self.known, self.decided, self.collected, self.kept, self.first) = (0, 0, 0, 0, 0);
    }

    /// Waits for the oldest launch and collects its triggers, ordered by sample, then template; returns whether there
    /// was one.
    fn receive(&mut self) -> Result<bool> {
        let count = |words: &[u32]| (words[0] as usize).min(self.max_found);
        let total = |words: &[u32]| found_words(count(words));
        let Some((launch, words)) = self.found.receive_all(&self.own, total)? else {
            return Ok(false);
        };
        let begin = self.waiting.len();
        let words = &words[HEADER..found_words(count(words))];
        self.waiting.extend(words.chunks_exact(WORDS).map(|words| trigger(launch.first, words)));
        self.waiting[begin..].sort_unstable_by_key(|trigger| (trigger.sample, trigger.template));
        self.collected = launch.until;
        Ok(true)
    }

    /// Appends the triggers that are decided and have no gate within the pad.
    fn emit(&mut self, triggers: &mut Vec<Trigger>) {
        let certain = self.gate.decided();
        let count = self.waiting.partition_point(|trigger| trigger.sample < certain);
        let gate = &self.gate;
        triggers.extend(self.waiting.drain(..count).filter(|one| gate.is_open(one.sample)));
        self.gate.forget(certain.min(self.collected));
    }

    /// Returns the leading arguments of all kernels: the tail and the block.
    fn rows(&self, block: Block) -> Arguments {
        Arguments::new()
            .with(self.tails[self.present].address())
            .with(self.capacity as u32)
            .with(self.kept as u32)
            .with(block.address)
            .with(block.stride as u64)
            .with(block.times as u32)
    }

    /// Launches the search over all samples before `until`.
    fn decide(&mut self, plan: &Plan, block: Block, until: u64, stream: &Stream) -> Result<()> {
        while self.decided < until {
            let end = until.min(self.decided + self.step as u64);
            if self.found.is_full() {
                self.receive()?;
            }
            let rows = self.rows(block);
            let found = self.found.target(stream)?;
            stream.fill(found, 0..1, 0)?;
            let (count, at) = (found.address(), found.at(HEADER));
            let add_found = |rows: Arguments| rows.with(count).with(at).with(self.max_found as u32);
            let screen = rows
                .with((self.decided - self.first) as u32)
                .with((end - self.first) as u32)
                .with(plan.threshold())
                .with(plan.window as u32);
            let (screen, measure) = (add_found(screen), add_found(self.tables.add_to(rows)));
            let samples = (end - self.decided) as usize;
            let grid = [plan.templates(), samples.div_ceil(SAMPLES), 1];
            let most = MEASURING * self.device.properties().multiprocessors;
            let measuring = self.max_found.div_ceil(THREADS / 32).min(most);
            // SAFETY: the arguments match the kernels' parameters; tail and block hold every position that the
            // samples reach. The stream waits for the kernels that wrote the tail.
            unsafe {
                stream.launch(&self.screen, grid, [THREADS, 1, 1], &screen)?;
                stream.launch(&self.measure, [measuring, 1, 1], [THREADS, 1, 1], &measure)?;
            }
            let launch = Launch { first: self.first, until: end };
            self.found.send(launch, found_words(self.max_found.min(COPIED_AHEAD)), stream)?;
            self.decided = end;
        }
        Ok(())
    }

    /// Retains the samples in a range.
    fn keep(
        &mut self,
        plan: &Plan,
        block: Block,
        samples: Range<u64>,
        stream: &Stream,
    ) -> Result<()> {
        let (from, count) = (samples.start, (samples.end - samples.start) as usize);
        if block.times == 0 {
            return Ok(());
        }
        let next = 1 - self.present;
        let arguments = self
            .rows(block)
            .with((from - self.first) as u32)
            .with(count as u32)
            .with(self.tails[next].address());
        let grid = [plan.templates(), count.div_ceil(THREADS), 1];
        // SAFETY: the arguments match the kernel's parameters; the retained samples are at most twice what a decision
        // reaches. The stream waits for all writers of one tail and all readers of the other.
        unsafe { stream.launch(&self.retain, grid, [THREADS, 1, 1], &arguments)? };
        (self.present, self.kept, self.first) = (next, count, from);
        Ok(())
    }
}

impl Staging {
    fn new(device: &Device, templates: usize) -> Result<Self> {
        let piece = (STAGED_BYTES / 8 / templates).clamp(64, MAX_DECIDED);
        let uploads = UploadRing::new(device, templates * piece, 2)?;
        Ok(Self { uploads, piece, work: device.stream()? })
    }
}

/// Parses a trigger as the kernel wrote it.
fn trigger(first: u64, words: &[u32]) -> Trigger {
    let float = |at: usize| f32::from_bits(words[at]);
    Trigger {
        template: words[0],
        sample: first + u64::from(words[1]),
        offset: float(2),
        z: Complex::new(float(3), float(4)),
        xi2: float(5),
    }
}

// The kernel source has the same constants.
const _: () = assert!(HALF == 8 && TAPS == 17 && STEPS == 16 && ROWS == 19);

/// Interpolation filters, and the autocorrelation of every template.
#[derive(Debug)]
struct Tables {
    rows: Buffer<f32>,
    /// Autocorrelations, one row of `stride` values per template.
    shapes: Buffer<Complex<f32>>,
    stride: usize,
    halves: Buffer<u32>,
    norms: Buffer<f32>,
    shifts: Buffer<f32>,
}

impl Tables {
    /// Uploads autocorrelations of at most `half` samples on either side.
    fn new(device: &Device, autocorrelations: &[Autocorrelation], half: usize) -> Result<Self> {
        let measure = Measure::new(half);
        let stride = 2 * half + 1;
        let mut shapes = vec![Complex::default(); stride * autocorrelations.len()];
        for (row, one) in shapes.chunks_exact_mut(stride).zip(autocorrelations) {
            row[..one.values.len()].copy_from_slice(&one.values);
        }
        let halves: Vec<u32> = autocorrelations.iter().map(|one| one.half() as u32).collect();
        let norms: Vec<f32> = autocorrelations.iter().map(|one| one.norm).collect();
        let shifts: Vec<f32> = autocorrelations.iter().map(|one| measure.shift(one)).collect();
        Ok(Self {
            rows: device.upload(Interpolator::new().rows().as_flattened())?,
            shapes: device.upload(&shapes)?,
            stride,
            halves: device.upload(&halves)?,
            norms: device.upload(&norms)?,
            shifts: device.upload(&shifts)?,
        })
    }

    /// Appends the tables to a kernel's arguments.
    fn add_to(&self, arguments: Arguments) -> Arguments {
        arguments
            .with(self.rows.address())
            .with(self.shapes.address())
            .with(self.stride as u32)
            .with(self.halves.address())
            .with(self.norms.address())
            .with(self.shifts.address())
    }
}
