//! Dedispersion: sums the channels along each trial dispersion measure into one time series.
//!
//! Invariant: any split of a stream gives what one block gives, and integer sums are the same on
//! every backend.

mod cpu;
mod cuda;
pub mod dm_plan;
mod plan;
mod reference;

use crate::backend::cuda::{Buffer, Plane, PlaneKind, Stream};
use crate::backend::{Backend, Host};
use crate::error::{Error, Result};
use crate::sample::Samples;
use crate::view::{PlaneMut, Progress, check_length};
pub use cuda::kernels;
pub(crate) use cuda::{divisions, sources};
use plan::Sum;
pub use plan::{Options, Plan};

/// Output planes of dedispersed series; axes dm, time.
#[derive(Debug)]
pub enum Output<'a> {
    /// Exact sums of integer encodings.
    I32(PlaneMut<'a, i32>),
    /// Sums of floats.
    F32(PlaneMut<'a, f32>),
}

impl Output<'_> {
    fn dms(&self) -> usize {
        match self {
            Self::I32(plane) => plane.dms(),
            Self::F32(plane) => plane.dms(),
        }
    }

    fn stride(&self) -> usize {
        match self {
            Self::I32(plane) => plane.stride(),
            Self::F32(plane) => plane.stride(),
        }
    }

    /// Clears `times` elements of a row from `column` on.
    fn clear(&mut self, dm: usize, column: usize, times: usize) {
        match self {
            Self::I32(plane) => plane.row_mut(dm)[column..column + times].fill(0),
            Self::F32(plane) => plane.row_mut(dm)[column..column + times].fill(0.0),
        }
    }
}

/// Plan bound to one backend. Each variant has the same methods.
#[derive(Debug)]
enum Engine {
    Reference(Box<reference::Engine>),
    Cpu(Box<cpu::Engine>),
    Cuda(Box<cuda::Engine>),
}

impl Engine {
    fn new(plan: &Plan, backend: &Backend) -> Result<Self> {
        if let Backend::Cuda(device, threads) = backend {
            return Ok(Self::Cuda(Box::new(cuda::Engine::new(plan, device, threads)?)));
        }
        Ok(match &backend.host() {
            Host::Reference => Self::Reference(Box::new(reference::Engine::new(plan))),
            Host::Cpu(level, threads) => {
                Self::Cpu(Box::new(cpu::Engine::new(plan, *level, threads)?))
            }
        })
    }
}

/// Evaluates an expression of the engine of any backend.
macro_rules! each {
    ($any:expr, $engine:ident => $value:expr) => {
        match $any {
            Engine::Reference($engine) => $value,
            Engine::Cpu($engine) => $value,
            Engine::Cuda($engine) => $value,
        }
    };
}

/// Step of a run.
enum Part {
    /// Loads `rows` input rows.
    Load { start: usize, rows: usize },
    /// Computes `times` output times and writes them from `column` on.
    Emit { times: usize, column: usize },
}

/// Dedisperser: sums dispersed channels into one time series for each trial dispersion measure.
///
/// `y[d, t] = sum_c x[t + shift(c, d), c]`, `shift(c, d) = round(delay(f_c, dm_d) / t_samp)`, ties to even. `x` is
/// the input summed over `downsample` samples in time; `c` runs over the unmasked channels.
///
/// | buffer | axes          | type                  | unit   | access                        |
/// |--------|---------------|-----------------------|--------|-------------------------------|
/// | `x`    | time, channel | any [`Encoding`]      | counts | read                          |
/// | `y`    | dm, time      | i32, or f32 of floats | counts | elements 0..produced of a row |
///
/// [`Encoding`]: crate::sample::Encoding
///
/// # Numerics
/// Integer encodings: exact, the same bits on every backend. Floats: to first order within `2^-24 (samples - 1)`
/// times the sum of magnitudes of the exact sum, and the same bits for any split of the stream, any number of threads
/// and any vector level.
/// # Real time
/// [`run`](Self::run) and [`flush`](Self::flush) allocate nothing.
/// # Source
/// Barsdell et al. 2012, MNRAS 422, 379 (direct dedispersion).
/// # Examples
/// A pulse at DM 50 adds up in that trial's series:
/// ```
/// use sidereal::backend::Backend;
/// use sidereal::dedisperse::{Dedisperser, Options, Output, Plan};
/// use sidereal::sample::{Encoding, Samples};
/// use sidereal::units::{Band, DM_CONSTANT};
/// use sidereal::view::PlaneMut;
///
/// # fn main() -> sidereal::Result<()> {
/// let plan = Plan::new(Options {
///     band: Band::uniform(1500.0, -1.0, 256)?,
///     tsamp_s: 1e-3,
///     dms: vec![0.0, 50.0],
///     downsample: 1,
///     encoding: Encoding::U8,
///     range: None,
///     masked: vec![],
///     dm_constant: DM_CONSTANT,
/// })?;
/// let mut samples = vec![0; 1000 * 256];
/// for channel in 0..256 {
///     samples[(300 + plan.shift(1, channel)) * 256 + channel] = 1;
/// }
/// let mut series = vec![0; 2 * 1000];
/// let mut dedisperser = Dedisperser::new(plan, &Backend::best(1))?;
/// let output = Output::I32(PlaneMut::new(&mut series, 2, 1000)?);
/// let progress = dedisperser.run(Samples::u8(&samples, 1000, 256)?, output)?;
/// assert_eq!(series[1000 + 300], 256);
/// assert!(progress.produced > 300 && series[..1000].iter().all(|&sum| sum < 64));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Dedisperser {
    plan: Plan,
    engine: Engine,
    /// Input rows loaded so far.
    rows: u64,
    /// Output times written so far.
    emitted: u64,
    ended: bool,
}

impl Dedisperser {
    /// Binds a plan to a backend: compiles and allocates everything that a stream needs.
    ///
    /// # Errors
    /// [`Error::Parameter`] when the history of the longest delay exceeds the address space; [`Error::Unavailable`]
    /// when a GPU has too little memory; [`Error::Device`] when its driver refuses.
    pub fn new(plan: Plan, backend: &Backend) -> Result<Self> {
        let engine = Engine::new(&plan, backend)?;
        Ok(Self { plan, engine, rows: 0, emitted: 0, ended: false })
    }

    /// Returns the plan.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Loads input rows and writes the next `produced` output times of every trial into elements `0..produced` of
    /// each row. Consumes all input unless the output's rows are too short.
    ///
    /// # Errors
    /// [`Error::Shape`] for other channels or trials than the plan's; [`Error::Parameter`] for another encoding or
    /// output type, or after [`flush`](Self::flush).
    pub fn run(&mut self, input: Samples<'_>, mut output: Output<'_>) -> Result<Progress> {
        self.check_input(&input)?;
        self.check_output(&output)?;
        let before = self.emitted;
        let block = each!(&self.engine, engine => engine.block_times());
        let done =
            self.run_parts(input.times(), output.stride(), block, &mut |own, part| match part {
                Part::Load { start, rows } => own.load(input.slice(start, rows)),
                Part::Emit { times, column } => own.emit(times, &mut output, column),
            });
        self.finished(done, &mut output, before)
    }

    /// Splits input rows and their output times into blocks.
    fn run_parts(
        &mut self,
        rows: usize,
        stride: usize,
        block: usize,
        work: &mut dyn FnMut(&mut Self, Part) -> Result<()>,
    ) -> Result<Progress> {
        let bin = self.plan.downsample() as u64;
        let mut progress = Progress::default();
        loop {
            let free = (stride - progress.produced).min(block) as u64;
            let bins = self.emitted + free + self.plan.max_shift() as u64;
            let wanted = (bins + 1) * bin - 1 - self.rows;
            let left = rows - progress.consumed;
            let take = usize::try_from(wanted).unwrap_or(left).min(left);
            work(self, Part::Load { start: progress.consumed, rows: take })?;
            self.rows += take as u64;
            progress.consumed += take;
            let ready = (self.rows / bin).saturating_sub(self.plan.max_shift() as u64);
            let times = ready.saturating_sub(self.emitted) as usize;
            if times > 0 {
                work(self, Part::Emit { times, column: progress.produced })?;
            }
            self.emitted += times as u64;
            progress.produced += times;
            if take == left || (take == 0 && times == 0) {
                return Ok(progress);
            }
        }
    }

    /// Writes the remaining output times after the last input, as [`run`](Self::run) does. Call it until `produced`
    /// is 0. Elements past [`Plan::valid_times`] are 0.
    ///
    /// # Errors
    /// As [`run`](Self::run) for the output.
    pub fn flush(&mut self, mut output: Output<'_>) -> Result<Progress> {
        self.check_output(&output)?;
        let before = self.emitted;
        let block = each!(&self.engine, engine => engine.block_times());
        let done = self.flush_parts(output.stride(), block, &mut |own, times, column| {
            own.emit(times, &mut output, column)?;
            for dm in 0..own.plan.dms().len() {
                let valid = own.plan.valid_times(own.rows, dm).saturating_sub(own.emitted);
                let valid = times.min(valid as usize);
                output.clear(dm, column + valid, times - valid);
            }
            Ok(())
        });
        self.finished(done, &mut output, before)
    }

    /// Splits the remaining output times into blocks.
    fn flush_parts(
        &mut self,
        stride: usize,
        block: usize,
        work: &mut dyn FnMut(&mut Self, usize, usize) -> Result<()>,
    ) -> Result<Progress> {
        self.ended = true;
        let times = self.rows / self.plan.downsample() as u64;
        let end = times.saturating_sub(self.plan.min_trial_shift() as u64).max(self.emitted);
        let mut produced = 0;
        loop {
            let free = (stride - produced).min(block);
            let times = free.min(usize::try_from(end - self.emitted).unwrap_or(free));
            if times == 0 {
                return Ok(Progress { consumed: 0, produced });
            }
            work(self, times, produced)?;
            self.emitted += times as u64;
            produced += times;
        }
    }

    /// Returns the host memory of the history, in bytes.
    pub fn held_bytes(&self) -> usize {
        match &self.engine {
            Engine::Cpu(engine) => engine.held_bytes(),
            _ => 0,
        }
    }

    /// Resets the state for a new stream.
    pub fn reset(&mut self) {
        (self.rows, self.emitted, self.ended) = (0, 0, false);
        each!(&mut self.engine, engine => engine.reset());
    }

    fn load(&mut self, input: Samples<'_>) -> Result<()> {
        each!(&mut self.engine, engine => engine.load(input, self.rows))
    }

    /// Writes the next `times` output times from `column` on; on a GPU they are complete after [`Self::finish`].
    fn emit(&mut self, times: usize, output: &mut Output<'_>, column: usize) -> Result<()> {
        match output {
            Output::I32(plane) => self.emit_to(times, plane, column),
            Output::F32(plane) => self.emit_to(times, plane, column),
        }
    }

    fn emit_to<T: Sum>(
        &mut self,
        times: usize,
        plane: &mut PlaneMut<'_, T>,
        column: usize,
    ) -> Result<()> {
        each!(&mut self.engine, engine => engine.emit(self.emitted, times, plane, column))
    }

    /// Completes the output of a call and returns its progress; `before` output times came earlier.
    fn finished(
        &mut self,
        done: Result<Progress>,
        output: &mut Output<'_>,
        before: u64,
    ) -> Result<Progress> {
        let finished = self.finish(output);
        done.and_then(|progress| finished.map(|()| progress)).map_err(|mut error| {
            if let Error::Device { text, .. } = &mut error {
                text.push_str(&format!("; the output is whole up to time {before}"));
            }
            error
        })
    }

    /// Waits for pending transfers to the output.
    fn finish(&mut self, output: &mut Output<'_>) -> Result<()> {
        match (&mut self.engine, output) {
            (Engine::Cuda(engine), Output::I32(plane)) => engine.finish(plane),
            (Engine::Cuda(engine), Output::F32(plane)) => engine.finish(plane),
            _ => Ok(()),
        }
    }

    fn check_input(&self, input: &Samples<'_>) -> Result<()> {
        check_length("channels", self.plan.channels(), input.channels())?;
        if input.encoding() != self.plan.encoding() {
            let rule = format!("the plan is for {:?}", self.plan.encoding());
            return Err(Error::parameter("encoding", format!("{:?}", input.encoding()), rule));
        }
        self.check_not_ended()
    }

    fn check_not_ended(&self) -> Result<()> {
        if self.ended {
            let rule = "after a flush only a reset starts another stream";
            return Err(Error::parameter("input", "more samples", rule));
        }
        Ok(())
    }

    fn check_output(&self, output: &Output<'_>) -> Result<()> {
        check_length("trials of the output", self.plan.dms().len(), output.dms())?;
        self.check_kind(matches!(output, Output::I32(_)))
    }

    fn check_kind(&self, integer: bool) -> Result<()> {
        if integer != self.plan.output_is_integer() {
            let rule = format!("{:?} samples give the other", self.plan.encoding());
            let value = if integer { "i32" } else { "f32" };
            return Err(Error::parameter("type of the output", value, rule));
        }
        Ok(())
    }
}

/// Operation on device memory.
impl Dedisperser {
    /// Like [`run`](Self::run), for `times` input rows from a byte offset of a device buffer on, and a plane on the
    /// same device. Both are used in the order of `stream`; the call returns once the work is queued. A stream may
    /// mix both calls.
    ///
    /// # Errors
    /// As [`run`](Self::run); [`Error::Unavailable`] when the backend is not a GPU; [`Error::Device`] when the
    /// driver refuses.
    pub fn enqueue(
        &mut self,
        input: &Buffer<u8>,
        first_byte: usize,
        times: usize,
        output: &mut Plane,
        stream: &Stream,
    ) -> Result<Progress> {
        self.check_not_ended()?;
        let block = self.check_plane(output)?;
        let row_bytes = self.plan.row_bytes();
        self.run_parts(times, output.stride, block, &mut |own, part| match part {
            Part::Load { start, rows } => {
                let first_byte = first_byte.saturating_add(start * row_bytes);
                own.device_engine()?.load_on_device(input, first_byte, rows, stream)
            }
            Part::Emit { times, column } => {
                own.device_engine()?.emit_on_device(times, output, column, stream)
            }
        })
    }

    /// Like [`flush`](Self::flush), for a plane on the device.
    ///
    /// # Errors
    /// As [`enqueue`](Self::enqueue).
    pub fn enqueue_flush(&mut self, output: &mut Plane, stream: &Stream) -> Result<Progress> {
        let block = self.check_plane(output)?;
        self.flush_parts(output.stride, block, &mut |own, times, column| {
            own.device_engine()?.emit_on_device(times, output, column, stream)
        })
    }

    /// Returns the GPU engine.
    fn device_engine(&mut self) -> Result<&mut cuda::Engine> {
        match &mut self.engine {
            Engine::Cuda(engine) => Ok(engine),
            _ => Err(Error::Unavailable {
                what: "dedispersion of data on a device".to_owned(),
                why: "it was bound to a backend that is not a GPU".to_owned(),
            }),
        }
    }

    /// Checks a plane on the device; returns the largest number of times in a block.
    fn check_plane(&mut self, output: &Plane) -> Result<usize> {
        check_length("trials of the output", self.plan.dms().len(), output.dms)?;
        output.check()?;
        self.check_kind(output.kind == PlaneKind::I32)?;
        Ok(self.device_engine()?.device_block_times())
    }
}
