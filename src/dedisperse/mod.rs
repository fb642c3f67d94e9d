//! Sums dispersed channels into one time series for each trial dispersion measure.
//!
//! Invariant: any split of a stream gives what one block gives, and integer sums are the same on
//! every backend.

mod cpu;
pub mod dm_plan;
pub mod plan;
pub mod reference;

use crate::array::{PlaneMut, Progress, check_length};
use crate::backend::{Backend, Host};
use crate::error::{Error, Result};
use crate::sample::Samples;
pub use plan::{Options, Plan};

/// Where dedispersed series are written; axes dm, time.
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

    /// Sets `times` elements of a row to 0, from `column` on.
    fn clear(&mut self, dm: usize, column: usize, times: usize) {
        match self {
            Self::I32(plane) => plane.row_mut(dm)[column..column + times].fill(0),
            Self::F32(plane) => plane.row_mut(dm)[column..column + times].fill(0.0),
        }
    }
}

#[derive(Debug)]
enum Engine {
    Reference(reference::Engine),
    Cpu(Box<cpu::Engine>),
}

/// Sums dispersed channels into one time series for each trial dispersion measure.
///
/// `y[d, t] = sum_c x[t + shift(c, d), c]`, `shift(c, d) = round(delay(f_c, dm_d) / t_samp)`, ties
/// to even, where `x` are the input's values summed over `downsample` samples in time and `c` runs
/// over the channels that are not masked.
///
/// | buffer | axes          | type                  | unit   | access                        |
/// |--------|---------------|-----------------------|--------|-------------------------------|
/// | `x`    | time, channel | any [`Encoding`]      | counts | read                          |
/// | `y`    | dm, time      | i32, or f32 of floats | counts | elements 0..produced of a row |
///
/// [`Encoding`]: crate::sample::Encoding
///
/// # Numerics
/// Integer encodings: exact, the same bits on every backend. Floats: at most
/// `2^-24 (samples - 1)` of the sum of magnitudes away from the exact sum, to first order, and the
/// same bits for any split of the stream, any number of threads and any vector level.
/// # Real time
/// [`run`](Self::run) and [`flush`](Self::flush) allocate nothing.
/// # Source
/// Barsdell et al. 2012, MNRAS 422, 379 (direct dedispersion).
#[derive(Debug)]
pub struct Dedisperser {
    plan: Plan,
    engine: Engine,
    /// Input rows so far.
    rows: u64,
    /// Output times so far.
    emitted: u64,
    ended: bool,
}

impl Dedisperser {
    /// Binds a plan to a backend: compiles and allocates all that a stream needs.
    ///
    /// # Errors
    /// [`Error::Parameter`] when the history of the longest delay can't be addressed.
    pub fn new(plan: Plan, backend: &Backend) -> Result<Self> {
        let engine = match &backend.only_host("dedisperse")? {
            Host::Reference => Engine::Reference(reference::Engine::new(&plan)),
            Host::Cpu(level, threads) => {
                Engine::Cpu(Box::new(cpu::Engine::new(&plan, *level, threads)?))
            }
        };
        Ok(Self { plan, engine, rows: 0, emitted: 0, ended: false })
    }

    /// The plan.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Takes input rows and writes the next `produced` output times of every trial into elements
    /// `0..produced` of each row. All input is consumed unless the output's rows are too short.
    ///
    /// # Errors
    /// [`Error::Shape`] when channels or trials differ from the plan's; [`Error::Parameter`] when the
    /// encoding or the kind of output does, or after [`flush`](Self::flush).
    pub fn run(&mut self, input: Samples<'_>, mut output: Output<'_>) -> Result<Progress> {
        self.check_input(&input)?;
        self.check_output(&output)?;
        let mut progress = Progress::default();
        loop {
            let room = (output.stride() - progress.produced).min(self.block_times()) as u64;
            let bin = self.plan.downsample() as u64;
            let bins = self.emitted + room + self.plan.max_shift() as u64;
            let wanted = (bins + 1) * bin - 1 - self.rows;
            let left = input.times() - progress.consumed;
            let take = usize::try_from(wanted).unwrap_or(left).min(left);
            self.load(input.slice(progress.consumed, take));
            progress.consumed += take;
            let ready = (self.rows / bin).saturating_sub(self.plan.max_shift() as u64);
            let times = ready.saturating_sub(self.emitted) as usize;
            self.emit(times, &mut output, progress.produced);
            progress.produced += times;
            if take == left || (take == 0 && times == 0) {
                return Ok(progress);
            }
        }
    }

    /// After the last input: writes the output times that are left, as [`run`](Self::run) does, in
    /// one call or several, until `produced` is 0. Elements past [`Plan::valid_times`] are 0.
    ///
    /// # Errors
    /// As [`run`](Self::run), for the output.
    pub fn flush(&mut self, mut output: Output<'_>) -> Result<Progress> {
        self.check_output(&output)?;
        self.ended = true;
        let times = self.rows / self.plan.downsample() as u64;
        let end = times.saturating_sub(self.plan.min_trial_shift() as u64).max(self.emitted);
        let mut produced = 0;
        loop {
            let room = (output.stride() - produced).min(self.block_times());
            let times = room.min(usize::try_from(end - self.emitted).unwrap_or(room));
            if times == 0 {
                return Ok(Progress { consumed: 0, produced });
            }
            let first = self.emitted;
            self.emit(times, &mut output, produced);
            for dm in 0..self.plan.dms().len() {
                let valid = self.plan.valid_times(self.rows, dm).saturating_sub(first);
                let valid = times.min(valid as usize);
                output.clear(dm, produced + valid, times - valid);
            }
            produced += times;
        }
    }

    /// Forgets the stream, so that another can start.
    pub fn reset(&mut self) {
        (self.rows, self.emitted, self.ended) = (0, 0, false);
        match &mut self.engine {
            Engine::Reference(engine) => engine.reset(),
            Engine::Cpu(engine) => engine.reset(),
        }
    }

    fn block_times(&self) -> usize {
        match &self.engine {
            Engine::Reference(engine) => engine.block_times(),
            Engine::Cpu(engine) => engine.block_times(),
        }
    }

    fn load(&mut self, input: Samples<'_>) {
        match &mut self.engine {
            Engine::Reference(engine) => engine.load(&self.plan, input),
            Engine::Cpu(engine) => engine.load(input, self.rows),
        }
        self.rows += input.times() as u64;
    }

    /// Writes the next `times` output times at `column`.
    fn emit(&mut self, times: usize, output: &mut Output<'_>, column: usize) {
        let span = (self.emitted, times);
        let plan = &self.plan;
        match (&mut self.engine, output) {
            _ if times == 0 => {}
            (Engine::Reference(engine), Output::I32(plane)) => {
                engine.emit(plan, span, plane, (column, |sum| sum as i32));
            }
            (Engine::Reference(engine), Output::F32(plane)) => {
                engine.emit(plan, span, plane, (column, |sum| sum as f32));
            }
            (Engine::Cpu(engine), Output::I32(plane)) => engine.emit(span, plane, column),
            (Engine::Cpu(engine), Output::F32(plane)) => engine.emit(span, plane, column),
        }
        self.emitted += times as u64;
    }

    fn check_input(&self, input: &Samples<'_>) -> Result<()> {
        check_length("channels", self.plan.channels(), input.channels())?;
        if input.encoding() != self.plan.encoding() {
            let rule = format!("the plan is for {:?}", self.plan.encoding());
            return Err(Error::parameter("encoding", format!("{:?}", input.encoding()), rule));
        }
        if self.ended {
            let rule = "after a flush only a reset starts another stream";
            return Err(Error::parameter("input", "more samples", rule));
        }
        Ok(())
    }

    fn check_output(&self, output: &Output<'_>) -> Result<()> {
        check_length("trials of the output", self.plan.dms().len(), output.dms())?;
        let integer = matches!(output, Output::I32(_));
        if integer != self.plan.output_is_integer() {
            let rule = format!("{:?} samples give the other", self.plan.encoding());
            let value = if integer { "i32" } else { "f32" };
            return Err(Error::parameter("type of the output", value, rule));
        }
        Ok(())
    }
}
