//! Multiplies every antenna with every other, and sums over time: the X-engine.
//!
//! Invariant: integer sums are exact for all values and any number of samples; any split of a stream gives
//! the same bits.

mod block;
mod corner_turn;
mod cpu;
#[cfg(feature = "cuda")]
mod cuda;
mod output;
pub mod plan;
pub mod reference;

use std::ops::Range;

#[cfg(feature = "cuda")]
use crate::backend::cuda::{Buffer, Stream};
use crate::backend::{Backend, Host};
use crate::error::{Error, Result};
use crate::view::{check_length, check_memory};
use crate::voltage::VoltageEncoding;
pub use block::{Block, BlockBuffer};
pub use corner_turn::{CornerTurn, Rows};
#[cfg(feature = "cuda")]
pub use cuda::{DeviceSpectra, kernels};
pub use output::Output;
pub use plan::{Options, Plan, Precision};

#[derive(Debug)]
enum Engine {
    Reference(Box<reference::Engine>),
    Cpu(Box<cpu::Engine>),
    #[cfg(feature = "cuda")]
    Cuda(Box<cuda::Engine>),
}

impl Engine {
    fn new(plan: &Plan, backend: &Backend) -> Result<Self> {
        #[cfg(feature = "cuda")]
        if let Backend::Cuda(device, threads) = backend {
            return Ok(Self::Cuda(Box::new(cuda::Engine::new(plan, device, threads)?)));
        }
        check_memory("the sums of all channels", Correlator::bytes(plan, backend))?;
        Ok(match &backend.host() {
            Host::Reference => Self::Reference(Box::new(reference::Engine::new(plan))),
            Host::Cpu(level, threads) => {
                Self::Cpu(Box::new(cpu::Engine::new(plan, *level, threads)?))
            }
        })
    }
}

/// Correlates the spectra of all antennas, channel by channel, and accumulates until it is reset.
///
/// `V_ij[p, q] = sum_t x_ip[t] conj(x_jq[t])`, `i >= j`, over the times at which antennas i and j are both
/// valid.
///
/// | buffer   | axes                                 | type                                   | access      |
/// |----------|--------------------------------------|----------------------------------------|-------------|
/// | `x`      | those of [`Plan::packed_bytes`]      | complex 4 or 8 bit, f32                | read        |
/// | `valid`  | channel, antenna, word of 64 times   | u64                                    | read        |
/// | `V`      | channel, baseline, polarization pair | complex i64; f64 for f32 spectra       | overwritten |
/// | `counts` | channel, baseline                    | u64, samples                           | overwritten |
///
/// # Numerics
/// Integers: exact, for every backend, all values (-128 and -8 included) and fewer than 2^48 samples.
/// Floats: single-precision sums of runs of at most 256 samples, counted from the last reset, added in
/// double precision; the same bits for any split and any number of threads at one vector level, unless a GPU may round
/// ([`Plan::with_precision`]). A sample that is not finite spoils the visibilities of its own input and channel, and no others.
/// # Real time
/// [`run`](Self::run), [`read`](Self::read) and [`reset`](Self::reset) allocate nothing. On a GPU so does
/// `enqueue`; memory to copy through is taken at the first use and for a larger block than before, and 64-bit sums when an
/// integration first gets too long for 32 bits.
/// # Source
/// Clark, La Plante & Greenhill 2011 (Accelerating radio astronomy cross-correlation with graphics
/// processing units), eq. 1.
#[derive(Debug)]
pub struct Correlator {
    plan: Plan,
    engine: Engine,
    times: u64,
}

impl Correlator {
    /// Binds a plan to a backend: allocates the sums of all channels and baselines.
    ///
    /// # Errors
    /// [`Error::Unavailable`] when the system, or the GPU, has not as much memory, or NVRTC does not know the GPU.
    pub fn new(plan: Plan, backend: &Backend) -> Result<Self> {
        let engine = Engine::new(&plan, backend)?;
        Ok(Self { plan, engine, times: 0 })
    }

    /// Bytes of the sums of all channels and baselines, and of their counts; none when they can't be counted. On a
    /// GPU they are its own.
    pub fn bytes(plan: &Plan, backend: &Backend) -> Option<usize> {
        #[cfg(feature = "cuda")]
        if backend.is_gpu() {
            return cuda::bytes(plan);
        }
        let channel = match &backend.host() {
            Host::Reference => {
                plan.row_elements() * size_of::<num_complex::Complex<f64>>()
                    + plan.baselines() * size_of::<u64>()
            }
            Host::Cpu(_, threads) => cpu::bytes(plan, threads.count()),
        };
        channel.checked_mul(plan.channels()).filter(|bytes| *bytes <= isize::MAX as usize)
    }

    /// Makes room for integrations of so many spectra: on a GPU, for the 64-bit sums of long ones and for reading out,
    /// which would be taken when they are first needed.
    ///
    /// # Errors
    /// [`Error::Unavailable`] when the GPU has no room; [`Error::Device`] when the driver refuses.
    pub fn reserve(&mut self, spectra: u64) -> Result<()> {
        match &mut self.engine {
            #[cfg(feature = "cuda")]
            Engine::Cuda(engine) => engine.reserve(spectra),
            _ => {
                let _ = spectra;
                Ok(())
            }
        }
    }

    /// The plan.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Spectra since the last reset, valid or not.
    pub fn times(&self) -> u64 {
        self.times
    }

    /// Adds all samples of a block. On a GPU the work is queued when this returns.
    ///
    /// # Errors
    /// [`Error::Shape`] when the block was made for another plan; on a GPU [`Error::Unavailable`] without memory to
    /// copy through, and [`Error::Device`] when the driver refuses or work before this failed.
    pub fn run(&mut self, block: Block<'_>) -> Result<()> {
        let expected = self.plan.packed_bytes(block.times());
        check_length("packed spectra (bytes)", expected, block.bytes().len())?;
        if let Some(valid) = block.valid() {
            let words = Plan::mask_words(block.times());
            let expected = self.plan.channels() * self.plan.antennas() * words;
            check_length("mask (channel, antenna, word)", expected, valid.len())?;
        }
        match &mut self.engine {
            Engine::Reference(engine) => engine.run(block),
            Engine::Cpu(engine) => engine.run(block),
            #[cfg(feature = "cuda")]
            Engine::Cuda(engine) => engine.run(block)?,
        }
        self.times += block.times() as u64;
        Ok(())
    }

    /// Writes the sums of some channels, and how many valid samples each baseline has in them; they stay.
    ///
    /// # Errors
    /// [`Error::Shape`] when a length differs from the plan's; [`Error::Parameter`] for the wrong kind of
    /// output, or channels that are not there; [`Error::Device`] when a GPU's work failed.
    pub fn read(
        &mut self,
        channels: Range<usize>,
        output: Output<'_>,
        counts: &mut [u64],
    ) -> Result<()> {
        let plan = &self.plan;
        if channels.start > channels.end || channels.end > plan.channels() {
            let rule = format!("there are {}", plan.channels());
            return Err(Error::parameter("channels", format!("{channels:?}"), rule));
        }
        let (elements, baselines) =
            (channels.len() * plan.row_elements(), channels.len() * plan.baselines());
        check_length("visibilities (channel, baseline, pair)", elements, output.len())?;
        check_length("counts (channel, baseline)", baselines, counts.len())?;
        let float = matches!(output, Output::Float(_));
        if float != (plan.encoding() == VoltageEncoding::ComplexF32) {
            let rule = "integer spectra have integer sums, and floats have floats";
            return Err(Error::parameter("output", "of the wrong kind", rule));
        }
        match &mut self.engine {
            Engine::Reference(engine) => engine.read(channels, output, counts),
            Engine::Cpu(engine) => engine.read(channels, output, counts),
            #[cfg(feature = "cuda")]
            Engine::Cuda(engine) => engine.read(channels, output, counts)?,
        }
        Ok(())
    }

    /// Begins another integration.
    pub fn reset(&mut self) {
        match &mut self.engine {
            Engine::Reference(engine) => engine.reset(),
            Engine::Cpu(engine) => engine.reset(),
            #[cfg(feature = "cuda")]
            Engine::Cuda(engine) => engine.reset(),
        }
        self.times = 0;
    }
}

/// On a device, without the host's memory.
#[cfg(feature = "cuda")]
impl Correlator {
    /// As [`run`](Self::run), for spectra in a device's memory, used in the order of `stream`: the call returns when the
    /// work is queued. Samples that are not valid are set to zero in place. Blocks may go through either.
    ///
    /// | buffer    | axes                                 | type                    | access      |
    /// |-----------|--------------------------------------|-------------------------|-------------|
    /// | `spectra` | channel, input, time                 | complex 4 or 8 bit, f32 | read, write |
    /// | `valid`   | channel, antenna, word of 64 times   | u64                     | read        |
    ///
    /// # Errors
    /// [`Error::Shape`] when a buffer is too short or a stride smaller than a row; [`Error::Parameter`] for what is not at
    /// a multiple of 16 bytes, on another device, or has inputs 4 GiB apart that its kernels can't reach;
    /// [`Error::Unavailable`] when the backend is not a GPU, or its memory
    /// too small for a long integration; [`Error::Device`] when the driver refuses.
    pub fn enqueue(
        &mut self,
        spectra: &mut Buffer<u8>,
        layout: DeviceSpectra,
        valid: Option<&Buffer<u64>>,
        stream: &Stream,
    ) -> Result<()> {
        let Engine::Cuda(engine) = &mut self.engine else {
            return Err(Error::Unavailable {
                what: "correlation of spectra on a device".to_owned(),
                why: "it was bound to a backend that is not a GPU".to_owned(),
            });
        };
        engine.enqueue(spectra, layout, valid, stream)?;
        self.times += layout.times as u64;
        Ok(())
    }

    /// How a GPU makes the products, for tables; none on the host.
    pub fn path(&self) -> Option<&'static str> {
        match &self.engine {
            Engine::Cuda(engine) => Some(engine.path()),
            _ => None,
        }
    }
}
