//! Cleaning: zero-DM filter, masked cells, automatic channel mask, and interference mitigation.
//!
//! Invariant: output does not depend on how the stream was split.

mod channels;
mod cpu;
mod cuda;
mod mitigate;
mod plan;
mod reference;

pub use channels::channel_mask;
pub(crate) use cuda::sources;
pub use cuda::{GapFiller, kernels};
pub use mitigate::{Bandpass, Mitigated, Mitigator, Removals, Rfi, Steps, iqrm_mask};
pub use plan::{Options, Plan, TimeMask};

use crate::backend::cuda::{Buffer, Stream};
use crate::backend::{Backend, Host};
use crate::error::{Error, Result};
use crate::sample::Samples;
use crate::view::{Progress, check_length};

/// Subtracts from every time its mean over channels, and replaces masked cells.
///
/// `x'[t, c] = k x[t, c] - round(k mean_c x[t, c])`: the mean is over the unmasked channels, rounded to nearest, ties
/// to even; `k` is [`Plan::scale`]. Masked channels become `k x`. Before that, cells of the time mask become the
/// running median of their channel or, until the channel has a good sample, the mean of the row's good cells.
///
/// | buffer   | axes          | type                   | unit   | access      |
/// |----------|---------------|------------------------|--------|-------------|
/// | `input`  | time, channel | the plan's encoding    | counts | read        |
/// | `output` | time, channel | the plan's output      | counts | overwritten |
///
/// # Errors
/// [`Error::Shape`] unless the input has the plan's channels; [`Error::Parameter`] for another encoding.
/// # Numerics
/// Exact for integers, for every backend. Floats: the mean is not rounded; it is summed in f64.
/// # Source
/// Zero-DM: Eatough, Keane & Lyne 2009, MNRAS 395, 410.
/// # Examples
/// Interference in all channels at one time is removed, a channel that is 40 brighter is not:
/// ```
/// use sidereal::backend::Backend;
/// use sidereal::clean::{Cleaner, Options, Plan};
/// use sidereal::sample::{Encoding, Samples, value};
///
/// # fn main() -> sidereal::Result<()> {
/// let encoding = Encoding::U8;
/// let options = Options { channels: 4, encoding, zero_dm: true, masked: vec![], time_mask: None };
/// let mut cleaner = Cleaner::new(Plan::new(options)?, &Backend::best(1))?;
/// let rows = [100, 100, 100, 140, 200, 200, 200, 240];
/// let mut output = vec![0; 2 * cleaner.plan().output_row_bytes()];
/// let progress = cleaner.run(Samples::u8(&rows, 2, 4)?, &mut output)?;
/// let (encoding, scale) = (cleaner.plan().output_encoding(), f64::from(cleaner.plan().scale()));
/// let values: Vec<f64> = (0..8).map(|at| value(&output, encoding, at) / scale).collect();
/// assert_eq!(values, [-10.0, -10.0, -10.0, 30.0, -10.0, -10.0, -10.0, 30.0]);
/// assert_eq!(progress.produced, 2);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Cleaner {
    plan: Plan,
    engine: Engine,
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
        if let Backend::Cuda(device, _) = backend {
            return Ok(Self::Cuda(Box::new(cuda::Engine::new(plan, device)?)));
        }
        Ok(match backend.host() {
            Host::Reference => Self::Reference(Box::new(reference::Engine::new(plan))),
            Host::Cpu(level, threads) => {
                Self::Cpu(Box::new(cpu::Engine::new(plan, level, threads)))
            }
        })
    }
}

impl Cleaner {
    /// Binds a plan to a backend.
    ///
    /// # Errors
    /// [`Error::Unavailable`] when a device has too little memory; [`Error::Device`] when it fails.
    pub fn new(plan: Plan, backend: &Backend) -> Result<Self> {
        let engine = Engine::new(&plan, backend)?;
        Ok(Self { plan, engine })
    }

    /// Returns the plan.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Cleans as many rows as the output holds.
    ///
    /// # Errors
    /// See [`Cleaner`].
    pub fn run(&mut self, input: Samples<'_>, output: &mut [u8]) -> Result<Progress> {
        check_length("channels to clean", self.plan.channels(), input.channels())?;
        if input.encoding() != self.plan.encoding() {
            let found = format!("{:?}", input.encoding());
            let rule = format!("the plan is for {:?}", self.plan.encoding());
            return Err(Error::parameter("encoding of the samples", found, rule));
        }
        let bytes = self.plan.output_row_bytes();
        let times = input.times().min(output.len() / bytes);
        let (input, output) = (input.slice(0, times), &mut output[..times * bytes]);
        each!(&mut self.engine, engine => engine.run(&self.plan, input, output))?;
        Ok(Progress { consumed: times, produced: times })
    }

    /// Queues the cleaning of `times` packed rows on the device.
    ///
    /// # Errors
    /// [`Error::Shape`] when a buffer is too short; [`Error::Unavailable`] on another backend,
    /// [`Error::Device`] when the device fails.
    pub fn enqueue(
        &mut self,
        input: &Buffer<u8>,
        times: usize,
        output: &mut Buffer<u8>,
        stream: &Stream,
    ) -> Result<Progress> {
        let Engine::Cuda(engine) = &mut self.engine else {
            let why = "the cleaning was bound to the host".to_owned();
            return Err(Error::Unavailable { what: "cleaning on a device".to_owned(), why });
        };
        engine.enqueue(&self.plan, input, output, times, stream)?;
        Ok(Progress { consumed: times, produced: times })
    }

    /// Ends the stream; no rows are pending.
    ///
    /// # Errors
    /// None.
    pub fn flush(&mut self) -> Result<Progress> {
        self.reset();
        Ok(Progress::default())
    }

    /// Resets the state for a new stream.
    pub fn reset(&mut self) {
        each!(&mut self.engine, engine => engine.reset());
    }
}
