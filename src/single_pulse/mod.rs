//! Single-pulse search: boxcars of many widths over every trial's series.
//!
//! Invariant: events do not depend on how the stream was split, on threads or on vector width.

mod carried;
pub mod cluster;
mod cpu;
mod cuda;
mod input;
pub mod partial;
mod plan;
pub mod reference;
pub mod repeats;
mod rules;

pub use carried::Carried;
pub use cuda::kernels;
pub use input::Input;
pub use plan::{Options, Plan};
pub use rules::Event;

use crate::backend::cuda::{Plane, Stream};
use crate::backend::threads::Threads;
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
#[derive(Debug)]
pub struct Detector {
    plan: Plan,
    engine: Engine,
}

#[derive(Debug)]
enum Engine {
    /// Stores whole series and searches them at the end.
    Reference(Vec<Vec<f64>>),
    Cpu(Box<cpu::Engine>),
    Cuda(Box<cuda::Engine>),
}

impl Detector {
    /// Binds a plan to a backend.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if the history does not fit the address space or the device's memory;
    /// [`Error::Device`] when a device fails.
    pub fn new(plan: Plan, backend: &Backend) -> Result<Self> {
        let engine = Self::engine(&plan, backend)?;
        Ok(Self { plan, engine })
    }

    fn engine(plan: &Plan, backend: &Backend) -> Result<Engine> {
        if let Backend::Cuda(device, threads) = backend {
            return Ok(Engine::Cuda(Box::new(cuda::Engine::new(plan, device, threads.clone())?)));
        }
        Ok(match backend.host() {
            Host::Reference => Engine::Reference(vec![Vec::new(); plan.dms()]),
            Host::Cpu(level, threads) => {
                Engine::Cpu(Box::new(cpu::Engine::new(plan, level, threads)?))
            }
        })
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
        match &mut self.engine {
            Engine::Reference(series) => append(series, input),
            Engine::Cpu(engine) => engine.run(&self.plan, input, events),
            Engine::Cuda(engine) => engine.run(input, events)?,
        }
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
        check_length("trials of the pulse search", self.plan.dms(), plane.dms)?;
        let Engine::Cuda(engine) = &mut self.engine else {
            let why = "the search was bound to the host".to_owned();
            return Err(Error::Unavailable { what: "a search on a device".to_owned(), why });
        };
        engine.enqueue(plane, times, events, stream)?;
        Ok(Progress { consumed: times, produced: 0 })
    }

    /// Sets the number of valid samples of each trial, ahead of the last data; later samples are ignored. Needed if
    /// the data of a trial continue past its own end (rows that a dedisperser pads while it is flushed), because a
    /// searched window is final.
    pub fn end_at(&mut self, valid_times: &dyn Fn(usize) -> u64) {
        match &mut self.engine {
            Engine::Reference(_) => {}
            Engine::Cpu(engine) => engine.end_at(valid_times),
            Engine::Cuda(engine) => engine.end_at(valid_times),
        }
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
        match &mut self.engine {
            Engine::Reference(series) => {
                for (dm, row) in series.iter_mut().enumerate() {
                    let valid = usize::try_from(valid_times(dm)).unwrap_or(usize::MAX);
                    row.truncate(valid);
                    events.extend(reference::search(&self.plan, dm, row));
                    row.clear();
                }
            }
            Engine::Cpu(engine) => {
                engine.end_at(valid_times);
                engine.flush(&self.plan, events)?;
            }
            Engine::Cuda(engine) => {
                engine.end_at(valid_times);
                engine.flush(events)?;
            }
        }
        Ok(())
    }

    /// Appends the events that no later sample can change. Returns the sample, counted from the start of the stream,
    /// before which no later event starts.
    ///
    /// # Errors
    /// [`Error::Device`] when a device fails.
    pub fn settle(&mut self, events: &mut Vec<Event>) -> Result<u64> {
        match &mut self.engine {
            Engine::Reference(_) => Ok(0),
            Engine::Cpu(engine) => Ok(engine.settle(&self.plan, events)),
            Engine::Cuda(engine) => engine.settle(events),
        }
    }

    /// Returns the state that later samples need. The reference stores whole series; its state is that of their
    /// start.
    ///
    /// # Errors
    /// As [`Detector::settle`].
    pub fn carried(&mut self) -> Result<Carried> {
        match &mut self.engine {
            Engine::Reference(_) => Ok(Carried::nothing(self.plan.dms())),
            Engine::Cpu(engine) => Ok(engine.carried()),
            Engine::Cuda(engine) => engine.carried(),
        }
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
        match &mut self.engine {
            Engine::Reference(_) if carried.window > 0 => {
                let rule = "the reference goes on from the start alone";
                Err(Error::parameter("window of the search's state", carried.window, rule))
            }
            Engine::Reference(_) => Ok(()),
            Engine::Cpu(engine) => {
                engine.restore(&self.plan, carried);
                Ok(())
            }
            Engine::Cuda(engine) => engine.restore(carried),
        }
    }

    /// Resets the search for a new stream.
    pub fn reset(&mut self) {
        match &mut self.engine {
            Engine::Reference(series) => series.iter_mut().for_each(Vec::clear),
            Engine::Cpu(engine) => engine.reset(),
            Engine::Cuda(engine) => engine.reset(),
        }
    }
}

impl partial::PartialDetector {
    /// Binds a plan to the host of a backend.
    pub fn new(plan: Plan, backend: &Backend) -> Self {
        let (threads, hits) = match backend.host() {
            Host::Reference => (Threads::new(1), Some(reference::partial_hits as _)),
            Host::Cpu(_, threads) => (threads, None),
        };
        Self::on(plan, threads, partial::Rules { noise: reference::window_noise, hits })
    }
}

fn append(series: &mut [Vec<f64>], input: Input<'_>) {
    for (dm, row) in series.iter_mut().enumerate() {
        match input {
            Input::I32(plane) => row.extend(plane.row(dm).iter().map(|y| f64::from(*y))),
            Input::F32(plane) => row.extend(plane.row(dm).iter().map(|y| f64::from(*y))),
        }
    }
}
