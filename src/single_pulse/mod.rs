//! Single-pulse search: boxcars of many widths over every trial's series.
//!
//! Invariant: events do not depend on how the stream was split, on threads or on vector width.

mod cluster;
mod cpu;
mod cuda;
mod partial;
mod plan;
mod reference;
mod repeats;
mod rules;

pub use cluster::{Absorbed, BandEdges, Candidate, ClusterState, Clusterer, TrialRange};
pub use cuda::kernels;
pub(crate) use cuda::sources;
pub use partial::{Coverage, Expected, PartialDetector, PartialEvent, Span};
pub use plan::{Input, Options, Plan};
#[doc(hidden)]
pub use reference::search as reference_search;
pub use repeats::{Repeater, repeating};
pub(crate) use rules::noise_window;
pub use rules::{Carried, Event};

use crate::backend::cuda::{Plane, Stream};
use crate::backend::{Backend, Host};
use crate::error::{Error, Result};
use crate::view::{Progress, check_length};

/// Finds boxcar pulses in the series of every trial.
///
/// `snr[d, t, w] = (sum_{i < w} y[d, t + i] - w mu) / (sigma sqrt(w))`, where `mu` and `sigma` are robust estimates
/// from the unsmoothed trial over the window of samples that holds `t`. Boxcars at or above the plan's threshold are
/// grouped into events, each represented by its best boxcar.
///
/// | buffer   | axes     | type       | unit   | access   |
/// |----------|----------|------------|--------|----------|
/// | `input`  | dm, time | i32 or f32 | counts | read     |
/// | `events` | event    | [`Event`]  |        | appended |
///
/// # Errors
/// [`Error::Shape`] unless the input has the plan's trials; [`Error::Parameter`] for the other sample type.
/// # Numerics
/// Integers: sums are exact, and events equal for every backend. Floats: sums in f64, anchored to
/// the window; events equal for every split and thread count.
/// # Source
/// Boxcar matched filters: Cordes & McLaughlin 2003, ApJ 596, 1142.
/// # Examples
/// A pulse of 8 samples in uniform noise:
/// ```
/// use sidereal::backend::Backend;
/// use sidereal::single_pulse::{Detector, Input, Options, Plan};
/// use sidereal::view::Plane;
///
/// # fn main() -> sidereal::Result<()> {
/// let plan = Plan::new(Options {
///     dms: vec![0.0],
///     tsamp_s: 1e-3,
///     max_width_s: 0.032,
///     baseline_s: 1.0,
///     snr: 8.0,
///     bound: None,
/// })?;
/// let mut state = 1u32;
/// let mut series: Vec<f32> = std::iter::repeat_with(|| {
///     state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
///     (state >> 8) as f32 / (1 << 24) as f32
/// })
/// .take(4096)
/// .collect();
/// series[2000..2008].iter_mut().for_each(|value| *value += 2.0);
/// let (mut detector, mut events) = (Detector::new(plan, &Backend::best(1))?, Vec::new());
/// detector.run(Input::F32(Plane::new(&series, 1, 4096, 4096)?), &mut events)?;
/// detector.flush(&|_| 4096, &mut events)?;
/// assert_eq!(events.len(), 1);
/// assert!(events[0].time.abs_diff(2000) <= 1 && events[0].width.abs_diff(8) <= 1);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Detector {
    plan: Plan,
    engine: Engine,
    /// Samples of the stream so far.
    seen: u64,
}

/// Plan bound to one backend. Each variant has the same methods.
#[derive(Debug)]
enum Engine {
    Reference(Box<reference::Engine>),
    Cpu(Box<cpu::Engine>),
    Cuda(Box<cuda::Engine>),
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

impl Engine {
    fn new(plan: &Plan, backend: &Backend) -> Result<Self> {
        if let Backend::Cuda(device, threads) = backend {
            return Ok(Self::Cuda(Box::new(cuda::Engine::new(plan, device, threads.clone())?)));
        }
        Ok(match backend.host() {
            Host::Reference => Self::Reference(Box::new(reference::Engine::new(plan))),
            Host::Cpu(level, threads) => {
                Self::Cpu(Box::new(cpu::Engine::new(plan, level, threads)?))
            }
        })
    }
}

impl Detector {
    /// Binds a plan to a backend.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if the history does not fit the address space or the device's memory;
    /// [`Error::Device`] when a device fails.
    pub fn new(plan: Plan, backend: &Backend) -> Result<Self> {
        let engine = Engine::new(&plan, backend)?;
        Ok(Self { plan, engine, seen: 0 })
    }

    /// Returns the plan.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Searches the next samples: accepts all of them and searches the windows that they complete.
    ///
    /// # Errors
    /// See [`Detector`].
    pub fn run(&mut self, input: Input<'_>, events: &mut Vec<Event>) -> Result<Progress> {
        check_length("trials of the pulse search", self.plan.dms(), input.dms())?;
        if matches!(input, Input::I32(_)) != self.plan.input_is_integer() {
            let rule = "the plan has a bound for integer series and none for floats";
            return Err(Error::parameter("type of the series", "another", rule));
        }
        each!(&mut self.engine, engine => engine.run(input, events))?;
        self.seen += input.times() as u64;
        Ok(Progress { consumed: input.times(), produced: 0 })
    }

    /// Searches the next `times` samples of a plane on the device, after the work queued on the stream. Waits for the
    /// windows that they complete.
    ///
    /// # Errors
    /// See [`Detector`]; [`Error::Unavailable`] on another backend, [`Error::Device`] when the device fails.
    pub fn enqueue(
        &mut self,
        plane: &Plane,
        times: usize,
        events: &mut Vec<Event>,
        stream: &Stream,
    ) -> Result<Progress> {
        self.submit(plane, times, stream)?;
        self.collect(events, stream)?;
        Ok(Progress { consumed: times, produced: 0 })
    }

    /// Queues the search of the next `times` samples of a plane on the device, after the work queued on the stream; their
    /// events come with [`Detector::collect`], which must be the next call. The device may have other work in the meantime, which
    /// leaves the plane as it is.
    ///
    /// # Errors
    /// As [`Detector::enqueue`].
    pub fn submit(&mut self, plane: &Plane, times: usize, stream: &Stream) -> Result<()> {
        check_length("trials of the pulse search", self.plan.dms(), plane.dms)?;
        self.on_device()?.submit(plane, times, stream)?;
        self.seen += times as u64;
        Ok(())
    }

    /// Waits for the windows of the search that [`Detector::submit`] queued on the stream and appends their events. Does not wait
    /// for work that was queued there afterwards, unless a second batch of windows, or a further round for flagged blocks, follows it.
    ///
    /// # Errors
    /// As [`Detector::enqueue`].
    pub fn collect(&mut self, events: &mut Vec<Event>, stream: &Stream) -> Result<()> {
        self.on_device()?.collect(events, stream)
    }

    fn on_device(&mut self) -> Result<&mut cuda::Engine> {
        match &mut self.engine {
            Engine::Cuda(engine) => Ok(engine),
            Engine::Reference(_) | Engine::Cpu(_) => {
                let why = "the search was bound to the host".to_owned();
                Err(Error::Unavailable { what: "a search on a device".to_owned(), why })
            }
        }
    }

    /// Sets the number of valid samples of each trial, ahead of the last data; later samples are ignored. Needed if
    /// the data of a trial continue past its own end (rows that a dedisperser pads while it is flushed), because a
    /// searched window is final.
    pub fn end_at(&mut self, valid_times: &dyn Fn(usize) -> u64) {
        each!(&mut self.engine, engine => engine.end_at(valid_times));
    }

    /// Ends the stream: searches the rest of each trial's `valid_times(dm)` samples.
    ///
    /// # Errors
    /// [`Error::Parameter`] if a trial was already searched past its valid samples: see
    /// [`Detector::end_at`].
    pub fn flush(
        &mut self,
        valid_times: &dyn Fn(usize) -> u64,
        events: &mut Vec<Event>,
    ) -> Result<()> {
        self.end_at(valid_times);
        self.seen = 0;
        each!(&mut self.engine, engine => engine.flush(events))
    }

    /// Appends the events, other than those already returned, that [`Detector::flush`] would return if the stream ended
    /// now. Later samples may change or remove them; the search goes on as if this had not been called. The noise of an
    /// incomplete window is its own once it is half full, before that the previous window's. Until the first window is half
    /// full, there are no events.
    ///
    /// # Errors
    /// [`Error::Device`] when a device fails.
    pub fn peek(&mut self, events: &mut Vec<Event>) -> Result<()> {
        if 2 * self.seen < self.plan.window_times() as u64 {
            return Ok(());
        }
        match &mut self.engine {
            Engine::Reference(engine) => engine.peek(events),
            Engine::Cpu(engine) => engine.peek(events),
            Engine::Cuda(engine) => engine.peek(events)?,
        }
        Ok(())
    }

    /// Appends the events that no later sample can change. Returns the sample, counted from the start of the stream,
    /// before which no later event starts.
    ///
    /// # Errors
    /// [`Error::Device`] when a device fails.
    pub fn settle(&mut self, events: &mut Vec<Event>) -> Result<u64> {
        each!(&mut self.engine, engine => engine.settle(events))
    }

    /// Returns the state that later samples need. The reference stores whole series; its state is that of their
    /// start.
    ///
    /// # Errors
    /// As [`Detector::settle`].
    pub fn carried(&mut self) -> Result<Carried> {
        each!(&mut self.engine, engine => engine.carried())
    }

    /// Continues from the state of another search with the same plan: the next sample is the first of window
    /// [`Carried::window`].
    ///
    /// # Errors
    /// [`Error::Parameter`] for a state of other trials, or one that is not the start's for the reference;
    /// [`Error::Device`] when a device fails.
    pub fn restore(&mut self, carried: &Carried) -> Result<()> {
        check_length("trials of the search's state", self.plan.dms(), carried.trials.len())?;
        carried.check(&self.plan)?;
        self.reset();
        self.seen = carried.window * self.plan.window_times() as u64;
        each!(&mut self.engine, engine => engine.restore(carried))
    }

    /// Resets the search for a new stream.
    pub fn reset(&mut self) {
        self.seen = 0;
        each!(&mut self.engine, engine => engine.reset());
    }
}
