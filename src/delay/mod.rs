//! Delay correction of one antenna's spectra: delay phases, gains, requantization.
//!
//! Invariant: each spectrum is treated by itself; any split of a stream gives the same bits.

mod cpu;
mod cuda;
pub mod plan;
pub mod reference;

use num_complex::Complex;

use crate::backend::{Backend, Host};
use crate::error::Result;
use crate::view::check_length;
pub use cuda::{DeviceAligner, DeviceDelays, DeviceOptions, DeviceSamples, Form, Natural, kernels};
pub use plan::{Band, Delay, Options, Plan, Rows, Slope};

#[derive(Debug)]
enum Engine {
    Reference(Box<reference::Engine>),
    Cpu(Box<cpu::Engine>),
}

/// Rotates the channels of one antenna's spectra by a phase that is linear within each recorded channel,
/// multiplies by gains, and rounds to integers.
///
/// `y[p, t, c, k] = round(g[p, c, k] x[t, p, c, k] exp(2 pi i (start[t, c] + k step[t, c])))`
///
/// | buffer   | axes                                          | type                    | unit  | access      |
/// |----------|-----------------------------------------------|-------------------------|-------|-------------|
/// | `x`      | time, polarization, recorded channel, channel | complex f32             |       | read        |
/// | `slopes` | time, recorded channel                        | [`Slope`]               | turns | read        |
/// | `y`      | polarization, time, recorded channel, channel | complex 4 or 8 bit, f32 |       | overwritten |
///
/// # Numerics
/// Before rounding, within `2^-20` of the value's magnitude, at every vector level. Phases are reduced to a fraction
/// of a turn in double precision, after whole turns of `start` and `step` are removed; phasors and products are
/// single precision. Values are rounded to nearest, ties to even, and clipped to the integer range. A complex sample
/// with a clipped part counts as saturated. A sample that is not finite, before or after rotation and gain, becomes
/// 0, does not count as saturated, and affects no other sample; so does every sample of a recorded channel whose
/// slope is not finite. Between vector levels floats differ within the bound, and integers by one where a value lies
/// midway between two.
/// # Real time
/// [`run`](Self::run) allocates nothing.
/// # Source
/// Thompson, Moran & Swenson 2017, chapter 9: whole-sample delay before the filter bank, the rest as a phase after
/// it.
#[derive(Debug)]
pub struct Aligner {
    plan: Plan,
    engine: Engine,
}

impl Aligner {
    /// Binds a plan to a backend. The calling thread does the work.
    pub fn new(plan: Plan, backend: &Backend) -> Self {
        let engine = match &backend.host() {
            Host::Reference => Engine::Reference(Box::new(reference::Engine::new(&plan))),
            Host::Cpu(level, _) => Engine::Cpu(Box::new(cpu::Engine::new(&plan, *level))),
        };
        Self { plan, engine }
    }

    /// Returns the plan.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Processes spectra and writes as many.
    ///
    /// # Errors
    /// [`crate::Error::Shape`] unless spectra are whole, the number of slopes matches, and the rows have room.
    pub fn run(
        &mut self,
        spectra: &[Complex<f32>],
        slopes: &[Slope],
        rows: Rows<'_>,
    ) -> Result<()> {
        let plan = &self.plan;
        let times = spectra.len() / plan.row_elements();
        check_length(
            "spectra (time, polarization, channel)",
            times * plan.row_elements(),
            spectra.len(),
        )?;
        check_length(
            "slopes (time, recorded channel)",
            times * plan.options().coarse_channels,
            slopes.len(),
        )?;
        let room = rows.times * plan.row_elements() * plan.element_bytes();
        check_length("rows (bytes)", room, rows.bytes.len())?;
        check_length(
            "spectra that have room",
            times.min(rows.times.saturating_sub(rows.first)),
            times,
        )?;
        match &mut self.engine {
            Engine::Reference(engine) => engine.run(spectra, slopes, rows),
            Engine::Cpu(engine) => engine.run(spectra, slopes, rows),
        }
        Ok(())
    }

    /// Returns the saturated complex samples since the start of the stream; axes polarization, channel.
    pub fn saturated(&self) -> &[u64] {
        match &self.engine {
            Engine::Reference(engine) => engine.saturated(),
            Engine::Cpu(engine) => engine.saturated(),
        }
    }

    /// Starts a new stream.
    pub fn reset(&mut self) {
        match &mut self.engine {
            Engine::Reference(engine) => **engine = reference::Engine::new(&self.plan),
            Engine::Cpu(engine) => engine.reset(),
        }
    }
}
