//! Triggers: peaks of each template's signal-to-noise ratio, interpolated in time, with a signal-consistency test.

mod cpu;
mod cuda;
mod gate;
mod measure;
mod plan;

use crate::backend::Backend;
use crate::backend::cuda::Stream;
use crate::backend::simd::Level;
use crate::backend::threads::Threads;
use crate::error::{Error, Result};
use crate::state::{Saved, Saving};
use crate::view::check_length;
pub(crate) use cuda::source;
pub use cuda::{DeviceRatios, kernels};
pub(crate) use plan::MOST_OFFSET;
pub use plan::{Autocorrelation, Plan, Ratios, Trigger, TriggerOptions, reweighted};

#[derive(Debug)]
enum Engine {
    Cpu(Box<cpu::Engine>),
    Cuda(Box<cuda::Engine>),
}

/// Finds the peaks of every template's signal-to-noise ratio.
///
/// Sample `t` is a trigger if `|z[t]| >= threshold`, `|z[t]|` is the maximum within the window on either side (of
/// equal values the earliest), and no sample within the pad is invalid. The trigger time is that of the peak of the
/// interpolated series, minus the offset of the peak of `|A|` from its middle. Amplitude and phase are those of the
/// series at that time. With the series interpolated there,
///
/// `xi2 = sum_m |z[t + m] - z[t] A[m]|^2 / sum_m (2 - 2 |A[m]|^2)`, `|m| <= ` half the autocorrelation's length.
///
/// | buffer     | axes           | type        | unit                                 | access   |
/// |------------|----------------|-------------|--------------------------------------|----------|
/// | `z`        | template, time | complex f32 | standard deviations, each quadrature | read     |
/// | `valid`    | time           | bool        |                                      | read     |
/// | `triggers` | trigger        | [`Trigger`] |                                      | appended |
///
/// # Numerics
/// Triggers are ordered by sample, then template, and do not depend on how the stream was split, nor on the threads.
/// Values that are not finite count as 0. A GPU finds the same samples; offset, amplitude and xi-squared are summed in another order and
/// agree within some parts in a million.
/// # Real time
/// After its longest block, a call allocates only to grow lists of triggers. On a GPU, [`Finder::enqueue`] decides 16384
/// samples per launch, or fewer if the triggers of all templates would not fit in 32 MiB. Two launches
/// may be in flight: before one is queued, the last but one must have finished, also within a block that takes more
/// than two.
/// # Source
/// Messick et al. 2017, Phys. Rev. D 95, 042001 (xi-squared).
///
/// # Examples
/// ```
/// use sidereal::backend::Backend;
/// use sidereal::num_complex::Complex;
/// use sidereal::spiir::trigger::{Autocorrelation, Finder, Plan, Ratios, TriggerOptions};
///
/// # fn main() -> sidereal::Result<()> {
/// let shape = [0.5, 1.0, 0.5].map(|a| Complex::new(a, 0.0));
/// let plan = Plan::new(TriggerOptions::new(2048), vec![Autocorrelation::new(shape.to_vec())])?;
/// let mut finder = Finder::new(plan, &Backend::best(1))?;
/// // A signal of the template's own shape, S/N 10 and phase 90 degrees at sample 1000.
/// let mut z = vec![Complex::new(0.0, 0.0); 2048];
/// for (k, a) in shape.iter().enumerate() {
///     z[999 + k] = a * Complex::new(0.0, 10.0);
/// }
/// let mut found = Vec::new();
/// finder.run(Ratios { z: &z, stride: 2048, times: 2048 }, &[true; 2048], &mut found)?;
/// finder.flush(&mut found)?;
/// assert_eq!(found.len(), 1);
/// assert_eq!(found[0].sample, 1000);
/// assert!((found[0].snr() - 10.0).abs() < 0.1 && found[0].xi2 < 0.01, "{found:?}");
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Finder {
    plan: Plan,
    engine: Engine,
}

impl Finder {
    /// Binds a plan to a backend.
    ///
    /// # Errors
    /// [`Error::Unavailable`] without memory for its history, or NVRTC; [`Error::Device`] if a driver call fails.
    pub fn new(plan: Plan, backend: &Backend) -> Result<Self> {
        let engine = match backend {
            Backend::Cuda(device, _) => Engine::Cuda(Box::new(cuda::Engine::new(&plan, device)?)),
            Backend::Reference => {
                let threads = Threads::new(1);
                Engine::Cpu(Box::new(cpu::Engine::new(&plan, Level::Portable, &threads)?))
            }
            Backend::Cpu(level, threads) => {
                Engine::Cpu(Box::new(cpu::Engine::new(&plan, *level, threads)?))
            }
        };
        Ok(Self { plan, engine })
    }

    /// Returns the plan.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Returns the host bytes it occupies.
    pub fn held_bytes(&self) -> usize {
        match &self.engine {
            Engine::Cpu(engine) => engine.held_bytes(&self.plan),
            Engine::Cuda(engine) => engine.held_bytes(),
        }
    }

    /// Searches the next samples of each template and appends the triggers that are certain.
    ///
    /// # Errors
    /// [`Error::Shape`] unless there is a row for each template, `times <= stride` and `valid.len() == times`;
    /// [`Error::Device`] if a driver call or earlier work failed.
    pub fn run(
        &mut self,
        ratios: Ratios<'_>,
        valid: &[bool],
        triggers: &mut Vec<Trigger>,
    ) -> Result<()> {
        let Ratios { z, stride, times } = ratios;
        let what = "signal-to-noise ratios (template, time)";
        check_length(what, self.plan.templates() * stride, z.len())?;
        check_length("valid samples", times, valid.len())?;
        if times > stride {
            let what = "row of signal-to-noise ratios";
            return Err(Error::Shape { what, expected: times, actual: stride });
        }
        match &mut self.engine {
            Engine::Cpu(engine) => engine.run(&self.plan, ratios, valid, triggers),
            Engine::Cuda(engine) => engine.run(&self.plan, ratios, valid, triggers)?,
        }
        Ok(())
    }

    /// Queues the search of the next samples in device memory. Appends the triggers already on the host: those of all
    /// launches but the last two. Calls may use different streams, and may be mixed with [`Finder::run`].
    ///
    /// # Errors
    /// [`Error::Shape`] unless there is a row for each template, `times <= stride` and `valid.len() == times`;
    /// [`Error::Parameter`] for memory of another device; [`Error::Unavailable`] if the backend is not a GPU;
    /// [`Error::Device`] if a driver call or earlier work failed.
    pub fn enqueue(
        &mut self,
        ratios: DeviceRatios<'_>,
        valid: &[bool],
        triggers: &mut Vec<Trigger>,
        stream: &Stream,
    ) -> Result<()> {
        let Engine::Cuda(engine) = &mut self.engine else {
            return Err(Error::Unavailable {
                what: "a search for peaks on a device".to_owned(),
                why: "it was bound to a backend that is not a GPU".to_owned(),
            });
        };
        engine.enqueue(&self.plan, ratios, valid, triggers, stream)
    }

    /// Waits for all launches in flight and appends the triggers that are certain.
    ///
    /// # Errors
    /// [`Error::Device`] if any of it failed.
    pub fn collect(&mut self, triggers: &mut Vec<Trigger>) -> Result<()> {
        match &mut self.engine {
            Engine::Cpu(_) => Ok(()),
            Engine::Cuda(engine) => engine.collect(triggers),
        }
    }

    /// Ends the stream and appends the triggers of its last [`Plan::latency`] samples. A new stream may follow.
    ///
    /// # Errors
    /// As [`Self::collect`].
    pub fn flush(&mut self, triggers: &mut Vec<Trigger>) -> Result<()> {
        match &mut self.engine {
            Engine::Cpu(engine) => engine.flush(&self.plan, triggers),
            Engine::Cuda(engine) => engine.flush(&self.plan, triggers)?,
        }
        Ok(())
    }

    /// Discards the stream, so that another may begin.
    ///
    /// # Errors
    /// As [`Self::collect`].
    pub fn reset(&mut self) -> Result<()> {
        match &mut self.engine {
            Engine::Cpu(engine) => engine.reset(),
            Engine::Cuda(engine) => engine.reset()?,
        }
        Ok(())
    }

    /// Returns the samples received per template.
    pub fn known(&self) -> u64 {
        match &self.engine {
            Engine::Cpu(engine) => engine.known(),
            Engine::Cuda(engine) => engine.known(),
        }
    }

    /// Returns the number of samples whose triggers have all been appended.
    pub(crate) fn certain(&self) -> u64 {
        match &self.engine {
            Engine::Cpu(engine) => engine.certain(),
            Engine::Cuda(engine) => engine.certain(),
        }
    }

    /// Saves the stream's state. All certain triggers must have been [collected](Self::collect) before.
    ///
    /// # Errors
    /// [`Error::Unavailable`] while a launch is in flight; [`Error::Device`] if earlier work failed.
    pub fn save(&self, to: &mut Saving) -> Result<()> {
        match &self.engine {
            Engine::Cpu(engine) => engine.save(to),
            Engine::Cuda(engine) => engine.save(to)?,
        }
        Ok(())
    }

    /// Restores the state saved by a search with the same plan on the same kind of backend.
    ///
    /// # Errors
    /// [`Error::Format`] for a state that such a search does not save, after which [`reset`](Self::reset) is required;
    /// [`Error::Device`] if a driver call or earlier work failed.
    pub fn load(&mut self, from: &mut Saved<'_>) -> Result<()> {
        match &mut self.engine {
            Engine::Cpu(engine) => engine.load(&self.plan, from),
            Engine::Cuda(engine) => engine.load(&self.plan, from),
        }
    }
}
