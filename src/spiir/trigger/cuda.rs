//! Peak search on a GPU: the ratios stay in device memory and only measured triggers are copied to the host.
//!
//! Invariant: a sample is decided about once all that its window and its measure reach is there, and triggers come back
//! by sample and template, so nothing depends on how the stream was split or on what ran first.
#![allow(unsafe_code)]

use num_complex::Complex;

use super::gate::Gate;
use super::measure::{Interpolator, Measure, ROWS, STEPS, TAPS};
use super::plan::{Autocorrelation, HALF, Sizes, Trigger, TriggerOptions};
use crate::backend::cuda::{
    Arguments, Buffer, Device, Event, Extent, Function, Pinned, Source, Stream, Variant,
};
use crate::error::{Error, Result};
use crate::state::{Saved, Saving};
use crate::view::check_length;

/// Threads of a block, samples of a `screen` block, and `measure` blocks per multiprocessor.
const THREADS: usize = 256;
const SAMPLES: usize = 2048;
const MEASURING: usize = 2;

/// Device bytes for the triggers of one launch.
const FOUND_BYTES: usize = 32 << 20;

/// Most samples per call (positions are 32-bit numbers), and most samples decided by one launch.
const MOST_TIMES: usize = 1 << 28;
const MOST_DECIDED: usize = 1 << 14;

/// Returns the kernels of the peak search.
pub fn kernels(_: Extent) -> Vec<Variant> {
    vec![Variant::everywhere(source())]
}

fn source() -> Source {
    Source { name: "peaks.cu", text: include_str!("peaks.cu"), includes: &[], defines: Vec::new() }
}

/// Finds the peaks of every template's signal-to-noise ratio in device memory, like [`super::Finder`].
///
/// | buffer     | axes           | type        | unit                                 | access   |
/// |------------|----------------|-------------|--------------------------------------|----------|
/// | `z`        | template, time | complex f32 | standard deviations, each quadrature | read     |
/// | `valid`    | time           | bool        |                                      | read     |
/// | `triggers` | trigger        | [`Trigger`] |                                      | appended |
///
/// # Numerics
/// Finds the same trigger samples as the host for any split of the stream. Offset, amplitude and xi-squared are
/// summed in another order and agree within some parts in a million.
/// # Real time
/// [`DeviceFinder::enqueue`] decides 16384 samples per launch, or fewer if the templates are so many that their
/// triggers would not fit in 32 MiB. Two launches may be in flight: before one is queued, the last but one must have
/// finished, also within a block that takes more than two. Allocates only to grow the trigger list and the flags of a
/// longer block.
#[derive(Debug)]
pub struct DeviceFinder {
    device: Device,
    screen: Function,
    measure: Function,
    retain: Function,
    tables: Tables,
    sizes: Sizes,
    templates: usize,
    /// Least `|z|^2` of a trigger.
    threshold: f32,
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
    slots: [Slot; 2],
    next: usize,
    /// Last queued work, on any stream.
    last: Event,
    /// Most samples that one launch decides.
    step: usize,
    /// Triggers for which a later gate may still come within the pad.
    waiting: Vec<Trigger>,
    /// Stream for infrequent copies.
    copies: Stream,
}

/// Newest samples: one row per template.
#[derive(Clone, Copy)]
struct Block {
    address: u64,
    stride: usize,
    times: usize,
}

impl DeviceFinder {
    /// Creates a peak search over templates with these autocorrelations.
    ///
    /// # Errors
    /// As [`super::Finder::new`]; [`Error::Unavailable`] without memory or NVRTC; [`Error::Device`] if a driver call
    /// fails.
    pub fn new(
        options: &TriggerOptions,
        autocorrelations: &[Autocorrelation],
        device: &Device,
    ) -> Result<Self> {
        let sizes = Sizes::new(options, autocorrelations)?;
        let templates = autocorrelations.len();
        let module = device.module(&source())?;
        let capacity = 2 * sizes.back;
        let words = capacity.saturating_mul(templates);
        // Two triggers of a template are at least this far apart.
        let apart = sizes.window + 1;
        let most = (FOUND_BYTES / Slot::bytes(templates)).max(1);
        let step = most.saturating_mul(apart).min(MOST_DECIDED);
        let room = templates * step.div_ceil(apart);
        let copies = device.stream()?;
        let mut tails = [device.buffer(words)?, device.buffer(words)?];
        // Fills the tails because a saved state copies whole rows, including ends not yet written.
        for tail in &mut tails {
            copies.fill(tail, 0..words, 0)?;
        }
        copies.synchronize()?;
        Ok(Self {
            device: device.clone(),
            screen: module.function("screen", 0)?,
            measure: module.function("measure", 0)?,
            retain: module.function("retain", 0)?,
            tables: Tables::new(device, autocorrelations, sizes.half)?,
            sizes,
            templates,
            threshold: options.threshold * options.threshold,
            gate: Gate::new(sizes.pad),
            tails,
            present: 0,
            capacity,
            kept: 0,
            first: 0,
            known: 0,
            decided: 0,
            collected: 0,
            slots: [Slot::new(device, room)?, Slot::new(device, room)?],
            next: 0,
            last: device.event()?,
            step,
            waiting: Vec::new(),
            copies,
        })
    }

    /// Returns the number of templates.
    pub fn templates(&self) -> usize {
        self.templates
    }

    /// Returns the host bytes of the trigger buffers.
    pub fn held_bytes(&self) -> usize {
        self.slots.iter().map(Slot::held_bytes).sum()
    }

    /// Returns how many samples must follow a sample before it can be decided.
    pub fn latency(&self) -> usize {
        self.sizes.latency
    }

    /// Queues the search of the next `times` samples of each template, at the start of its row of `stride`. Appends
    /// the triggers already on the host: those of all launches but the last two. Calls may use different streams.
    ///
    /// # Errors
    /// [`Error::Shape`] unless `z` has a row for each template, `times <= stride` and `valid.len() == times`;
    /// [`Error::Parameter`] for memory of another device; [`Error::Device`] if a driver call or earlier work failed.
    pub fn enqueue(
        &mut self,
        z: &Buffer<Complex<f32>>,
        (stride, times): (usize, usize),
        valid: &[bool],
        stream: &Stream,
        triggers: &mut Vec<Trigger>,
    ) -> Result<()> {
        check_length("valid samples", times, valid.len())?;
        let (what, most) = ("row of signal-to-noise ratios", stride.min(MOST_TIMES));
        if times > most {
            return Err(Error::Shape { what, expected: times, actual: most });
        }
        let (expected, actual) = (self.templates.saturating_mul(stride), z.len());
        if actual < expected {
            let what = "signal-to-noise ratios (template, time)";
            return Err(Error::Shape { what, expected, actual });
        }
        z.check_on(&self.device)?;
        self.gate.push(valid);
        let block = Block { address: z.address(), stride, times };
        let back = self.sizes.back as u64;
        let known = self.known + times as u64;
        let until = known.saturating_sub(back).max(self.decided);
        stream.wait(&self.last)?;
        self.decide(block, until, stream)?;
        self.keep(block, (until.saturating_sub(back), known), stream)?;
        stream.record(&self.last)?;
        self.known = known;
        self.emit(triggers);
        Ok(())
    }

    /// Waits for all launches in flight and appends the triggers that are certain.
    ///
    /// # Errors
    /// [`Error::Device`] if any of it failed.
    pub fn collect(&mut self, triggers: &mut Vec<Trigger>) -> Result<()> {
        for _ in 0..self.slots.len() {
            self.take_next()?;
            self.next = (self.next + 1) % self.slots.len();
        }
        self.emit(triggers);
        Ok(())
    }

    /// Ends the stream and appends the triggers of its last [`Self::latency`] samples. A new stream may follow.
    ///
    /// # Errors
    /// As [`Self::collect`].
    pub fn flush(&mut self, stream: &Stream, triggers: &mut Vec<Trigger>) -> Result<()> {
        let nothing = Block { address: 0, stride: 0, times: 0 };
        stream.wait(&self.last)?;
        self.decide(nothing, self.known, stream)?;
        stream.record(&self.last)?;
        self.gate.end();
        self.collect(triggers)?;
        self.forget();
        Ok(())
    }

    /// Discards the stream, so that another may begin.
    ///
    /// # Errors
    /// As [`Self::collect`].
    pub fn reset(&mut self) -> Result<()> {
        self.collect(&mut Vec::new())?;
        self.forget();
        Ok(())
    }

    /// Returns the samples received per template.
    pub fn known(&self) -> u64 {
        self.known
    }

    /// Saves the stream's state. All certain triggers must have been [collected](Self::collect) before.
    ///
    /// # Errors
    /// [`Error::Unavailable`] while a launch is in flight; [`Error::Device`] if earlier work failed.
    pub fn save(&self, to: &mut Saving) -> Result<()> {
        if self.collected < self.decided {
            return Err(Error::Unavailable {
                what: "the state of a search for peaks".to_owned(),
                why: "triggers are on their way, and must be collected first".to_owned(),
            });
        }
        to.part("finder on a GPU");
        to.number(self.known);
        let mut tails = vec![Complex::default(); self.templates * self.capacity];
        self.tails[self.present].download(0, &mut tails)?;
        for row in tails.chunks_exact(self.capacity) {
            to.complex(&row[..self.kept]);
        }
        self.gate.save(to);
        to.number(self.waiting.len() as u64);
        for Trigger { template, sample, offset, z, xi2 } in &self.waiting {
            to.number((*template).into());
            to.number(*sample);
            to.f32s([*offset, z.re, z.im, *xi2].iter());
        }
        Ok(())
    }

    /// Restores the state saved by a finder with the same options on the same kind of device.
    ///
    /// # Errors
    /// [`Error::Format`] for a state that such a finder does not save, after which [`reset`](Self::reset) is
    /// required;
    /// [`Error::Device`] if a driver call or earlier work failed.
    pub fn load(&mut self, from: &mut Saved<'_>) -> Result<()> {
        self.reset()?;
        from.part("finder on a GPU")?;
        let known = from.number()?;
        let back = self.sizes.back as u64;
        let decided = known.saturating_sub(back);
        let first = decided.saturating_sub(back);
        let kept = (known - first) as usize;
        let mut tails = vec![Complex::default(); self.templates * self.capacity];
        for row in tails.chunks_exact_mut(self.capacity) {
            from.fill_complex(&mut row[..kept])?;
        }
        self.gate.load(from, known, known.saturating_sub(self.sizes.latency as u64))?;
        let certain = self.gate.decided();
        let most = self.templates.saturating_mul(decided.saturating_sub(certain) as usize);
        for _ in 0..from.at_most(most)? {
            let (template, sample) = (from.at_most(self.templates - 1)? as u32, from.number()?);
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

    /// Collects the triggers of the slot to be used next.
    fn take_next(&mut self) -> Result<()> {
        let taken = self.slots[self.next].take(&self.copies, &mut self.waiting)?;
        self.collected = taken.unwrap_or(self.collected);
        Ok(())
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
    fn decide(&mut self, block: Block, until: u64, stream: &Stream) -> Result<()> {
        while self.decided < until {
            let end = until.min(self.decided + self.step as u64);
            self.take_next()?;
            let rows = self.rows(block);
            let slot = &mut self.slots[self.next];
            slot.clear(stream)?;
            let (count, found, room) = slot.addresses();
            let samples = (end - self.decided) as usize;
            let screen = rows
                .with((self.decided - self.first) as u32)
                .with((end - self.first) as u32)
                .with(self.threshold)
                .with(self.sizes.window as u32);
            let screen = screen.with(count).with(found).with(room);
            let measure = self.tables.add_to(rows).with(count).with(found).with(room);
            let grid = [self.templates, samples.div_ceil(SAMPLES), 1];
            let most = MEASURING * self.device.properties().multiprocessors;
            let measuring = (room as usize).div_ceil(THREADS / 32).min(most);
            // SAFETY: the arguments match the kernels' parameters; tail and block hold every position that the
            // samples reach. The stream waits for the kernels that wrote the tail.
            unsafe {
                stream.launch(&self.screen, grid, [THREADS, 1, 1], &screen)?;
                stream.launch(&self.measure, [measuring, 1, 1], [THREADS, 1, 1], &measure)?;
            }
            slot.send(self.first, end, stream)?;
            self.next = (self.next + 1) % self.slots.len();
            self.decided = end;
        }
        Ok(())
    }

    /// Retains the samples from number `from` to before `known`.
    fn keep(&mut self, block: Block, (from, known): (u64, u64), stream: &Stream) -> Result<()> {
        let count = (known - from) as usize;
        if block.times == 0 {
            return Ok(());
        }
        let next = 1 - self.present;
        let arguments = self
            .rows(block)
            .with((from - self.first) as u32)
            .with(count as u32)
            .with(self.tails[next].address());
        let grid = [self.templates, count.div_ceil(THREADS), 1];
        // SAFETY: the arguments match the kernel's parameters; the retained samples are at most twice what a decision
        // reaches. The stream waits for all writers of one tail and all readers of the other.
        unsafe { stream.launch(&self.retain, grid, [THREADS, 1, 1], &arguments)? };
        (self.present, self.kept, self.first) = (next, count, from);
        Ok(())
    }
}

/// Header length in 32-bit words, the first of which is the number of triggers; and words of a trigger.
const HEADER: usize = 8;
const WORDS: usize = 6;

/// Triggers copied together with their number, before the host knows the number.
const USUAL: usize = 4096;

/// Device and host buffers for the triggers of one launch.
#[derive(Debug)]
struct Slot {
    found: Buffer<u32>,
    host: Pinned<u32>,
    room: usize,
    copied: Event,
    /// First sample that positions count from, and end of the decided samples; `None` when no launch is in flight.
    under_way: Option<(u64, u64)>,
}

impl Slot {
    fn new(device: &Device, room: usize) -> Result<Self> {
        let words = HEADER + WORDS * room;
        let (mut found, host) = (device.buffer(words)?, device.pinned(words)?);
        // The copy may include triggers that were not written; they are never read, but the memory must be
        // initialized.
        let stream = device.stream()?;
        stream.fill(&mut found, 0..words, 0)?;
        stream.synchronize()?;
        Ok(Self { found, host, room, copied: device.event()?, under_way: None })
    }

    /// Returns the device bytes of a slot for `room` triggers.
    fn bytes(room: usize) -> usize {
        (HEADER + WORDS * room) * size_of::<u32>()
    }

    /// Returns its host bytes.
    fn held_bytes(&self) -> usize {
        Self::bytes(self.room)
    }

    /// Queues a reset of the trigger count.
    fn clear(&mut self, stream: &Stream) -> Result<()> {
        stream.fill(&mut self.found, 0..1, 0)
    }

    /// Returns the device addresses of the trigger count and of the triggers, and the capacity.
    fn addresses(&self) -> (u64, u64, u32) {
        (self.found.address(), self.found.at(HEADER), self.room as u32)
    }

    /// Queues the copy of a launch's triggers to the host.
    fn send(&mut self, first: u64, until: u64, stream: &Stream) -> Result<()> {
        let words = HEADER + WORDS * self.room.min(USUAL);
        self.under_way = Some((first, until));
        // SAFETY: the host reads its copy only in `take`, after `copied`.
        unsafe { stream.copy_out(&self.found, 0..words, &mut self.host, 0)? };
        stream.record(&self.copied)
    }

    /// Waits for the launch in flight and appends its triggers ordered by sample, then template. Returns the end of
    /// the decided samples.
    fn take(&mut self, copies: &Stream, triggers: &mut Vec<Trigger>) -> Result<Option<u64>> {
        let Some((first, until)) = self.under_way.take() else { return Ok(None) };
        self.copied.synchronize()?;
        let count = (self.host.as_slice()[0] as usize).min(self.room);
        if count > USUAL {
            let rest = HEADER + WORDS * USUAL..HEADER + WORDS * count;
            // SAFETY: synchronized on the next line.
            unsafe { copies.copy_out(&self.found, rest.clone(), &mut self.host, rest.start)? };
            copies.synchronize()?;
        }
        let begin = triggers.len();
        let words = &self.host.as_slice()[HEADER..HEADER + WORDS * count];
        triggers.extend(words.chunks_exact(WORDS).map(|words| trigger(first, words)));
        triggers[begin..].sort_unstable_by_key(|trigger| (trigger.sample, trigger.template));
        Ok(Some(until))
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
