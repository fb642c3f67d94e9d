//! Brings one antenna's spectra into step with the other antennas': delay phases, gains, requantization.
//!
//! Invariant: each spectrum is treated by itself; any split of a stream gives the same bits.

mod cpu;
#[cfg(feature = "cuda")]
mod cuda;
pub mod plan;
pub mod reference;
mod rows;

use num_complex::Complex;

use crate::backend::{Backend, Host};
use crate::error::Result;
use crate::view::check_length;
#[cfg(feature = "cuda")]
pub use cuda::{DeviceAligner, DeviceDelays, DeviceOptions, DeviceSamples, Form, Natural, kernels};
pub use plan::{Band, Delay, Options, Plan, Slope};
pub use rows::Rows;

#[derive(Debug)]
enum Engine {
    Reference(Box<reference::Engine>),
    Cpu(Box<cpu::Engine>),
}

/// Turns the channels of one antenna's spectra by a phase that is linear within each recorded channel,
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
/// Before rounding, within `2^-20` of the value's magnitude, at every vector level: phases are reduced to a
/// fraction of a turn in double precision (whole turns of `start` and `step` are taken away before), phasors
/// and products are single precision. Rounded to nearest, ties to even, and limited to the integers there
/// are; a complex sample of which a part had to be limited is counted. A sample that is not finite, or is
/// not once it is turned and weighed, becomes 0, is not counted, and touches no other sample; so does every
/// sample of a recorded channel whose slope is not finite. Between vector levels floats differ within the
/// bound, and integers by one where a value lies at the middle between two.
/// # Real time
/// [`run`](Self::run) allocates nothing.
/// # Source
/// Thompson, Moran & Swenson 2017, chapter 9: delay in whole samples before, as a phase after a filter bank.
#[derive(Debug)]
pub struct Aligner {
    plan: Plan,
    engine: Engine,
}

impl Aligner {
    /// Binds a plan to a backend; the work is done on the calling thread.
    pub fn new(plan: Plan, backend: &Backend) -> Self {
        let engine = match &backend.host() {
            Host::Reference => Engine::Reference(Box::new(reference::Engine::new(&plan))),
            Host::Cpu(level, _) => Engine::Cpu(Box::new(cpu::Engine::new(&plan, *level))),
        };
        Self { plan, engine }
    }

    /// The plan.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Takes spectra, and writes as many.
    ///
    /// # Errors
    /// [`crate::Error::Shape`] unless spectra are whole, slopes are as many, and rows have room.
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

    /// Complex samples that rounding had to limit since the stream's start; axes polarization, channel.
    pub fn saturated(&self) -> &[u64] {
        match &self.engine {
            Engine::Reference(engine) => engine.saturated(),
            Engine::Cpu(engine) => engine.saturated(),
        }
    }

    /// Starts another stream.
    pub fn reset(&mut self) {
        match &mut self.engine {
            Engine::Reference(engine) => **engine = reference::Engine::new(&self.plan),
            Engine::Cpu(engine) => engine.reset(),
        }
    }
}
