//! Delay correction of antennas' spectra: delay phases, gains, requantization.
//!
//! Invariant: each spectrum is corrected independently; any split of a stream gives the same bits.

mod cpu;
mod cuda;
mod plan;
mod reference;

use num_complex::Complex;

use crate::backend::Backend;
use crate::backend::cuda::{Buffer, Stream};
use crate::error::{Error, Result};
use crate::view::check_length;
pub(crate) use cuda::source;
pub use cuda::{DeviceDelays, DeviceSamples, Natural, kernels};
pub use plan::{Band, Delay, Form, Options, Plan, Rows, Slope};

#[derive(Debug)]
enum Engine {
    Reference(Box<reference::Engine>),
    Cpu(Box<cpu::Engine>),
    Cuda(Box<cuda::Engine>),
}

/// Rotates the channels of antennas' spectra by a phase that is linear within each recorded channel, multiplies by
/// gains, and rounds to integers.
///
/// `y[p, t, c, k] = round(g[p, c, k] x[t, p, c, k] exp(2 pi i (start[t, c] + k step[t, c])))`
///
/// [`run`](Self::run) takes one antenna's spectra in host memory:
///
/// | buffer   | axes                                          | type                    | unit  | access      |
/// |----------|-----------------------------------------------|-------------------------|-------|-------------|
/// | `x`      | time, polarization, recorded channel, channel | complex f32             |       | read        |
/// | `slopes` | time, recorded channel                        | [`Slope`]               | turns | read        |
/// | `y`      | polarization, time, recorded channel, channel | complex 4 or 8 bit, f32 |       | overwritten |
///
/// [`enqueue`](Self::enqueue) takes several antennas' samples in GPU memory, with the slopes of [`Band::slope`], and
/// transposes them to the order of the X-engine:
///
/// | buffer   | axes                                 | type                    | unit    | access      |
/// |----------|--------------------------------------|-------------------------|---------|-------------|
/// | `x`      | see [`Form`]                         | see [`Form`]            |         | read        |
/// | `delays` | antenna, time, (total, residual)     | f64                     | seconds | read        |
/// | `y`      | channel, input, time                 | complex 4 or 8 bit, f32 |         | overwritten |
///
/// `enqueue` does not write the inputs of other antennas. It may overwrite the bytes after the last time of a row, up
/// to a multiple of 16.
///
/// # Numerics
/// Before rounding, the error is at most `2^-20` of the value's magnitude on every backend. Phases are reduced to a
/// fraction of a turn in double precision, after whole turns of `start` and `step` are removed (GPUs: 64-bit fractions
/// of a turn); phasors and products are single precision. Values are rounded to nearest, ties to even, and clipped to
/// the integer range. A complex sample with a clipped part counts as saturated. A sample that is not finite, before or
/// after rotation and gain, becomes 0, does not count as saturated, and affects no other sample. The same holds for
/// every sample of a recorded channel whose slope is not finite. Between backends floats differ within the bound, and
/// integers by one where a value lies midway between two.
/// # Real time
/// [`run`](Self::run) allocates nothing, except for a GPU's staging memory in the first call.
/// [`enqueue`](Self::enqueue) allocates nothing.
/// # Source
/// Thompson, Moran & Swenson 2017, chapter 9: whole-sample delay before the filter bank, the rest as a phase after
/// it.
/// # Examples
/// A quarter of a turn at the first of two channels, half a turn at the second:
/// ```
/// use sidereal::backend::Backend;
/// use sidereal::delay::{DelayCorrector, Options, Plan, Rows, Slope};
/// use sidereal::num_complex::Complex;
/// use sidereal::voltage::VoltageEncoding;
///
/// # fn main() -> sidereal::Result<()> {
/// let plan = Plan::new(Options::one_antenna(1, 1, 2, VoltageEncoding::Complex8))?;
/// let mut corrector = DelayCorrector::new(plan, &Backend::best(1))?;
/// let spectra = [Complex::new(10.0, 0.0), Complex::new(0.0, 20.0)];
/// let slopes = [Slope { start: 0.25, step: 0.25 }];
/// let mut bytes = [0; 4];
/// corrector.run(&spectra, &slopes, Rows { bytes: &mut bytes, times: 1, first: 0 })?;
/// assert_eq!(bytes.map(|byte| byte as i8), [0, 10, 0, -20]);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct DelayCorrector {
    plan: Plan,
    engine: Engine,
}

impl DelayCorrector {
    /// Binds a plan to a backend. On a CPU the calling thread does the work.
    ///
    /// # Errors
    /// [`Error::Unavailable`] on a CPU for several antennas or voltages, on a GPU without memory or NVRTC;
    /// [`Error::Device`] if the driver fails.
    pub fn new(plan: Plan, backend: &Backend) -> Result<Self> {
        if !backend.is_gpu() {
            plan.check_host()?;
        }
        let engine = match backend {
            Backend::Reference => Engine::Reference(Box::new(reference::Engine::new(&plan))),
            Backend::Cpu(level, _) => Engine::Cpu(Box::new(cpu::Engine::new(&plan, *level))),
            Backend::Cuda(device, threads) => {
                Engine::Cuda(Box::new(cuda::Engine::new(&plan, device, threads)?))
            }
        };
        Ok(Self { plan, engine })
    }

    /// Returns the plan.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Sets the gains of some antennas on a GPU, by their index: one for all elements, or axes polarization, channel.
    /// Work enqueued earlier uses the previous gains.
    ///
    /// # Errors
    /// [`Error::Unavailable`] on a CPU; [`Error::Shape`] for another number of gains; [`Error::Parameter`] for an
    /// antenna out of range or [`Form::Recorded`]; and those of [`Self::new`].
    pub fn set_gains<'a>(
        &mut self,
        antennas: impl IntoIterator<Item = (usize, &'a [Complex<f32>])>,
    ) -> Result<()> {
        self.on_gpu()?.set_gains(antennas)
    }

    /// Corrects one antenna's spectra in host memory and writes the same number of spectra.
    ///
    /// # Errors
    /// [`Error::Shape`] unless spectra are whole, the number of slopes matches, and the rows hold all spectra;
    /// [`Error::Unavailable`] if the plan has several antennas or voltages; [`Error::Device`] if a GPU fails.
    pub fn run(
        &mut self,
        spectra: &[Complex<f32>],
        slopes: &[Slope],
        rows: Rows<'_>,
    ) -> Result<()> {
        let plan = &self.plan;
        let times = spectra.len() / plan.row_elements();
        let spectra_expected = times * plan.row_elements();
        check_length("spectra (time, polarization, channel)", spectra_expected, spectra.len())?;
        let slopes_expected = times * plan.options().coarse_channels;
        check_length("slopes (time, recorded channel)", slopes_expected, slopes.len())?;
        let room = rows.times * plan.row_elements() * plan.element_bytes();
        check_length("rows (bytes)", room, rows.bytes.len())?;
        let left = times.min(rows.times.saturating_sub(rows.first));
        check_length("spectra that have room", left, times)?;
        match &mut self.engine {
            Engine::Reference(engine) => engine.run(spectra, slopes, rows),
            Engine::Cpu(engine) => engine.run(spectra, slopes, rows),
            Engine::Cuda(engine) => engine.run(spectra, slopes, rows)?,
        }
        Ok(())
    }

    /// Enqueues the correction of all antennas' samples in GPU memory on `stream` and returns. Only `stream` may
    /// access the buffers until it has run.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if the plan is not bound to a GPU; [`Error::Parameter`] for buffers of another device,
    /// misaligned addresses, or missing delays; [`Error::Shape`] when data exceed their buffer; [`Error::Device`] when
    /// the driver fails.
    pub fn enqueue(
        &mut self,
        samples: &Buffer<u8>,
        from: DeviceSamples,
        delays: Option<DeviceDelays<'_>>,
        spectra: &mut Buffer<u8>,
        to: Natural,
        stream: &Stream,
    ) -> Result<()> {
        self.on_gpu()?.enqueue(samples, from, delays, spectra, to, stream)
    }

    fn on_gpu(&mut self) -> Result<&mut cuda::Engine> {
        match &mut self.engine {
            Engine::Cuda(engine) => Ok(engine),
            _ => Err(Error::Unavailable {
                what: "delay correction of samples on a GPU".to_owned(),
                why: "the plan is bound to the host".to_owned(),
            }),
        }
    }

    /// Returns the saturated complex samples of each input since the start of the stream, of all enqueued work; axes
    /// antenna, polarization.
    ///
    /// # Errors
    /// [`Error::Device`] if any of that work failed.
    pub fn saturated(&self) -> Result<Vec<u64>> {
        let elements = match &self.engine {
            Engine::Reference(engine) => engine.saturated(),
            Engine::Cpu(engine) => engine.saturated(),
            Engine::Cuda(engine) => return engine.saturated(),
        };
        Ok(elements
            .chunks_exact(self.plan.channels())
            .map(|channels| channels.iter().sum())
            .collect())
    }

    /// Starts a new stream and clears the saturation counts. No spectra are pending, so a stream needs no flush.
    ///
    /// # Errors
    /// [`Error::Device`] if work on a GPU failed.
    pub fn reset(&mut self) -> Result<()> {
        match &mut self.engine {
            Engine::Reference(engine) => **engine = reference::Engine::new(&self.plan),
            Engine::Cpu(engine) => engine.reset(),
            Engine::Cuda(engine) => engine.reset()?,
        }
        Ok(())
    }
}
