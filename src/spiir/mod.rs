//! Low-latency matched filtering of gravitational-wave strain by summed parallel infinite impulse response filters.
//!
//! Invariant: any split of a stream gives the same signal-to-noise ratios, bit for bit.

pub mod bank;
pub mod coincidence;
mod cpu;
mod cuda;
mod plan;
mod reference;
pub mod trigger;
pub mod whiten;

use num_complex::Complex;

use crate::backend::Backend;
use crate::backend::cuda::Stream;
use crate::error::{Error, Result};
use crate::state::{Saved, Saving};
use crate::view::{Progress, check_length};
pub(crate) use cuda::resample;
pub use cuda::{DeviceOutput, DeviceSamples, kernels};
pub use plan::{Branch, Filter, MAX_DELAY, MAX_HALVINGS, Options, Plan, Resampler, Template};
pub use reference::{Band, MatchedFilter, matched_filter, matched_whitened};

#[derive(Debug)]
enum Engine {
    Reference(Box<reference::Engine>),
    Cpu(Box<cpu::Engine>),
    Cuda(Box<cuda::Engine>),
}

impl Engine {
    fn new(plan: &Plan, backend: &Backend) -> Result<Self> {
        Ok(match backend {
            Backend::Reference => Self::Reference(Box::new(reference::Engine::new(plan))),
            Backend::Cpu(level, threads) => {
                Self::Cpu(Box::new(cpu::Engine::new(plan, *level, threads)?))
            }
            Backend::Cuda(device, threads) => {
                Self::Cuda(Box::new(cuda::Engine::new(plan, device, threads)?))
            }
        })
    }
}

/// Filters whitened strain with the templates of a filter bank.
///
/// `y_l[k] = a_l y_l[k - 1] + b_l x_m[k - delay_l]` for each filter at its branch's rate, `z[k] = sum_l y_l[k]` over
/// the template's filters, with lower rates upsampled. `x_(m+1)` is `x_m` at half the rate (see [`Resampler`]).
///
/// | buffer | axes           | type        | unit                                  | access      |
/// |--------|----------------|-------------|---------------------------------------|-------------|
/// | `x`    | time           | f32         | standard deviations of whitened noise | read        |
/// | `z`    | template, time | complex f32 | standard deviations, each quadrature  | overwritten |
///
/// `z[k]` belongs to sample `k` of `x` and is known [`Plan::latency`] samples later. Samples that are not finite
/// count as 0.
///
/// # Source
/// Guo et al. 2018; Hooper et al. 2012, Phys. Rev. D 86, 024012.
/// # Examples
/// The response of one template with one decaying filter to an impulse:
/// ```
/// use sidereal::backend::Backend;
/// use sidereal::num_complex::Complex;
/// use sidereal::spiir::{Branch, Filter, Options, Plan, Resampler, Spiir, Template};
///
/// # fn main() -> sidereal::Result<()> {
/// let filter = Filter { a: Complex::new(0.5, 0.0), b: Complex::new(0.0, 1.0), delay: 3 };
/// let branches = vec![Branch { halvings: 0, filters: vec![filter] }];
/// let templates = vec![Template { branches }];
/// let plan = Plan::new(Options { rate_hz: 4096, templates, resampler: Resampler::low_latency() })?;
/// let mut bank = Spiir::new(plan, &Backend::best(1))?;
/// let mut strain = [0.0; 16];
/// strain[0] = 1.0;
/// let mut ratios = [Complex::default(); 16];
/// let progress = bank.run(&strain, &mut ratios, 16)?;
/// assert_eq!(progress.produced, 16);
/// assert_eq!(ratios[2..6].iter().map(|z| z.im).collect::<Vec<_>>(), [0.0, 1.0, 0.5, 0.25]);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Spiir {
    plan: Plan,
    engine: Engine,
    /// Samples of strain received, and of output produced.
    consumed: u64,
    produced: u64,
    /// End of the zeros that flush the stream, once flushing has begun.
    end: Option<u64>,
}

impl Spiir {
    /// Binds a plan to a backend.
    ///
    /// # Errors
    /// [`Error::Unavailable`] without memory for its history; [`Error::Device`] if a GPU driver call fails.
    pub fn new(plan: Plan, backend: &Backend) -> Result<Self> {
        let engine = Engine::new(&plan, backend)?;
        Ok(Self { plan, engine, consumed: 0, produced: 0, end: None })
    }

    /// Returns the plan.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Returns the host bytes it occupies for any block, and per sample of a block copied to a GPU.
    pub fn host_bytes(&self) -> (usize, usize) {
        let plan = self.plan.filters() * size_of::<Filter>();
        match &self.engine {
            Engine::Reference(_) => (plan, 0),
            Engine::Cpu(engine) => (plan + engine.held_bytes(), 0),
            Engine::Cuda(engine) => (plan, engine.staged_bytes()),
        }
    }

    /// Limits blocks copied to a GPU to `samples` samples. Must be called before the first block.
    pub fn limit(&mut self, samples: usize) {
        if let Engine::Cuda(engine) = &mut self.engine {
            engine.limit(samples);
        }
    }

    /// Filters all samples of whitened strain and writes the next `produced <= input.len()` signal-to-noise ratios of
    /// each template to the start of its row of `stride` elements.
    ///
    /// # Errors
    /// [`Error::Shape`] unless `output.len() == templates * stride`, or if a row has fewer elements than the input;
    /// [`Error::Device`] if a GPU driver call fails.
    pub fn run(
        &mut self,
        input: &[f32],
        output: &mut [Complex<f32>],
        stride: usize,
    ) -> Result<Progress> {
        self.check_output(output.len(), stride)?;
        check_row(stride, input.len())?;
        let produced = match &mut self.engine {
            Engine::Reference(engine) => engine.run(input, output, stride),
            Engine::Cpu(engine) => engine.run(input, output, stride),
            Engine::Cuda(engine) => engine.run(input, output, stride)?,
        };
        Ok(self.advance(input.len(), produced))
    }

    /// Like [`run`](Self::run), for device memory. Input and output are used in the order of `stream`; the call
    /// returns when the work is queued. Calls of `run` and `enqueue` may be mixed within a stream.
    ///
    /// # Errors
    /// [`Error::Shape`] if samples or ratios exceed their buffers; [`Error::Parameter`] for buffers of another
    /// device; [`Error::Unavailable`] if the backend is not a GPU; [`Error::Device`] if the driver call fails.
    pub fn enqueue(
        &mut self,
        input: DeviceSamples<'_>,
        output: DeviceOutput<'_>,
        stream: &Stream,
    ) -> Result<Progress> {
        let Engine::Cuda(engine) = &mut self.engine else {
            return Err(Error::Unavailable {
                what: "filtering of data on a device".to_owned(),
                why: "the bank was bound to a backend that is not a GPU".to_owned(),
            });
        };
        check_row(output.stride, input.times)?;
        let times = input.times;
        let produced = engine.enqueue(input, output, stream)?;
        Ok(self.advance(times, produced))
    }

    fn advance(&mut self, consumed: usize, produced: usize) -> Progress {
        self.consumed += consumed as u64;
        self.produced += produced as u64;
        Progress { consumed, produced }
    }

    /// Ends the stream: writes up to `stride` of the ratios of its last [`Plan::latency`] samples, as if zeros
    /// followed. Call it until it writes none.
    ///
    /// # Errors
    /// As [`Self::run`].
    pub fn flush(&mut self, output: &mut [Complex<f32>], stride: usize) -> Result<usize> {
        const ZEROS: [f32; 256] = [0.0; 256];
        self.check_output(output.len(), stride)?;
        let end = *self.end.get_or_insert(self.consumed + self.plan.latency() as u64);
        let mut produced = 0;
        while produced == 0 && self.consumed < end && stride > 0 {
            let left = (end - self.consumed).min(stride.min(ZEROS.len()) as u64) as usize;
            produced = self.run(&ZEROS[..left], output, stride)?.produced;
        }
        Ok(produced)
    }

    /// Discards the stream, so that another may begin.
    pub fn reset(&mut self) {
        match &mut self.engine {
            Engine::Reference(engine) => **engine = reference::Engine::new(&self.plan),
            Engine::Cpu(engine) => engine.reset(),
            Engine::Cuda(engine) => engine.reset(),
        }
        (self.consumed, self.produced, self.end) = (0, 0, None);
    }

    /// Saves the state of a stream that has not ended. Returns `false` for the reference, which cannot be saved. On a
    /// GPU it waits for all queued work.
    ///
    /// # Errors
    /// [`Error::Device`] if a GPU driver call or earlier work failed.
    pub fn save(&self, to: &mut Saving) -> Result<bool> {
        to.part("filters");
        to.number(self.consumed);
        to.number(self.produced);
        match &self.engine {
            Engine::Reference(_) => return Ok(false),
            Engine::Cpu(engine) => engine.save(to),
            Engine::Cuda(engine) => engine.save(to)?,
        }
        Ok(true)
    }

    /// Restores the state saved by filters of the same plan and the same vector level or GPU.
    ///
    /// # Errors
    /// [`Error::Format`] for a state that such filters do not save, after which [`reset`](Self::reset) is required;
    /// [`Error::Unavailable`] for the reference; [`Error::Device`] if a GPU driver call fails.
    pub fn load(&mut self, from: &mut Saved<'_>) -> Result<()> {
        from.part("filters")?;
        self.consumed = from.number()?;
        let known = self.consumed.saturating_sub(self.plan.latency() as u64);
        from.expect("ratios so far", known)?;
        (self.produced, self.end) = (known, None);
        match &mut self.engine {
            Engine::Reference(_) => Err(Error::Unavailable {
                what: "saved filters".to_owned(),
                why: "those of the reference can't be continued".to_owned(),
            }),
            Engine::Cpu(engine) => engine.load(from, self.consumed),
            Engine::Cuda(engine) => engine.load(from, self.consumed),
        }
    }

    /// Returns the samples of strain received.
    pub fn consumed(&self) -> u64 {
        self.consumed
    }

    fn check_output(&self, length: usize, stride: usize) -> Result<()> {
        let what = "signal-to-noise ratios (template, time)";
        check_length(what, self.plan.templates() * stride, length)
    }
}

/// Checks that an output row of `stride` elements holds the ratios of `times` samples.
fn check_row(stride: usize, times: usize) -> Result<()> {
    if stride < times {
        let what = "row of signal-to-noise ratios";
        return Err(Error::Shape { what, expected: times, actual: stride });
    }
    Ok(())
}
