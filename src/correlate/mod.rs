//! X-engine: multiplies every antenna with every other and sums over time.
//!
//! Invariant: integer sums are exact for all values and fewer than 2^48 samples. Sums have the same bits for any split
//! of a stream, unless a GPU rounds float samples.

mod block;
mod corner_turn;
mod cpu;
mod cuda;
mod plan;
mod reference;

use std::ops::Range;

use crate::backend::cuda::{Buffer, Stream};
use crate::backend::{Backend, Host};
use crate::error::{Error, Result};
use crate::view::{check_length, check_memory};
use crate::voltage::VoltageEncoding;
pub use block::{Block, BlockBuffer, Output, Rows, Spectra};
pub use corner_turn::CornerTurn;
pub(crate) use cuda::sources;
pub use cuda::{DeviceSpectra, kernels};
pub use plan::{LANES, MAX_ANTENNAS, MAX_CHANNELS, Options, Plan, Precision};

#[derive(Debug)]
enum Engine {
    Reference(Box<reference::Engine>),
    Cpu(Box<cpu::Engine>),
    Cuda(Box<cuda::Engine>),
}

impl Engine {
    fn new(plan: &Plan, backend: &Backend) -> Result<Self> {
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

/// Correlates the spectra of all antennas, channel by channel, and accumulates until reset.
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
/// Integers: exact, for every backend, all values (-128 and -8 included) and fewer than 2^48 samples. Floats:
/// single-precision sums of runs of at most 256 samples (4096 on a GPU for [`Precision::Tf32`] and [`Precision::F16`]),
/// counted from the last reset, added in double precision. The bits are the same for any split and any number of
/// threads at one vector level, unless a GPU may round ([`Plan::with_precision`]). A sample that is not finite affects
/// only the visibilities of its own input and channel.
/// # Real time
/// [`run`](Self::run), [`read`](Self::read) and [`reset`](Self::reset) allocate nothing on the CPU. On a GPU they and
/// `enqueue` allocate only staging memory, at first use and for a block larger than before, and the 64-bit sums, when
/// an integration first gets too long for 32 bits.
/// # Source
/// Clark, La Plante & Greenhill 2013, IJHPCA 27, 178 (arXiv 1107.4264), eq. 1.
/// # Examples
/// Three antennas that receive the same signal, corner turn included:
/// ```
/// use sidereal::backend::Backend;
/// use sidereal::correlate::{BlockBuffer, CornerTurn, Correlator, Options, Output, Plan, Rows, Spectra};
/// use sidereal::num_complex::Complex;
/// use sidereal::voltage::VoltageEncoding;
///
/// # fn main() -> sidereal::Result<()> {
/// let encoding = VoltageEncoding::Complex8;
/// let plan = Plan::new(Options { antennas: 3, polarizations: 1, channels: 4, encoding })?;
/// let backend = Backend::best(1);
/// let (mut turn, mut correlator) =
///     (CornerTurn::new(plan.clone(), &backend), Correlator::new(plan.clone(), &backend)?);
/// // 1 + 2i in every channel at each of 100 times.
/// let bytes = [1, 2].repeat(3 * 100 * 4);
/// let mut buffer = BlockBuffer::new(&plan, 100);
/// buffer.set_times(100)?;
/// turn.run(Spectra::Rows(Rows { bytes: &bytes, times: 100, first: 0 }), &mut buffer)?;
/// correlator.run(buffer.block())?;
///
/// let baselines = 4 * plan.baselines();
/// let (mut sums, mut counts) = (vec![Complex::default(); baselines], vec![0; baselines]);
/// correlator.read(0..4, Output::Integer(&mut sums), &mut counts)?;
/// assert!(sums.iter().all(|&sum| sum == Complex::new(500, 0)));
/// assert!(counts.iter().all(|&count| count == 100));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Correlator {
    plan: Plan,
    engine: Engine,
    times: u64,
}

impl Correlator {
    /// Binds a plan to a backend and allocates the sums of all channels and baselines.
    ///
    /// # Errors
    /// [`Error::Unavailable`] when the system or the GPU lacks memory, or NVRTC does not support the GPU.
    pub fn new(plan: Plan, backend: &Backend) -> Result<Self> {
        let engine = Engine::new(&plan, backend)?;
        Ok(Self { plan, engine, times: 0 })
    }

    /// Returns the bytes of the sums and counts of all channels and baselines, or none on overflow. On a GPU they are
    /// device memory.
    pub fn bytes(plan: &Plan, backend: &Backend) -> Option<usize> {
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

    /// Allocates memory for integrations of `spectra` spectra: on a GPU the 64-bit sums of long ones and the read-out
    /// buffers, which are otherwise allocated at first use.
    ///
    /// # Errors
    /// [`Error::Unavailable`] when the GPU lacks memory; [`Error::Device`] when the driver fails.
    pub fn reserve(&mut self, spectra: u64) -> Result<()> {
        match &mut self.engine {
            Engine::Cuda(engine) => engine.reserve(spectra),
            _ => Ok(()),
        }
    }

    /// Returns the plan.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Returns the number of spectra since the last reset, valid or not.
    pub fn times(&self) -> u64 {
        self.times
    }

    /// Adds all samples of a block. On a GPU the work is queued when this returns.
    ///
    /// # Errors
    /// [`Error::Shape`] when the block was made for another plan; on a GPU [`Error::Unavailable`] without enough
    /// staging memory, and [`Error::Device`] when the driver fails or earlier work failed.
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
            Engine::Cuda(engine) => engine.run(block)?,
        }
        self.times += block.times() as u64;
        Ok(())
    }

    /// Writes the sums of some channels and the number of valid samples of each baseline. Does not reset them.
    ///
    /// # Errors
    /// [`Error::Shape`] when a length differs from the plan's; [`Error::Parameter`] for the wrong kind of
    /// output, or channels out of range; [`Error::Device`] when work on a GPU failed.
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
            Engine::Cuda(engine) => engine.read(channels, output, counts)?,
        }
        Ok(())
    }

    /// Begins a new integration: resets all sums and counts.
    pub fn reset(&mut self) {
        match &mut self.engine {
            Engine::Reference(engine) => engine.reset(),
            Engine::Cpu(engine) => engine.reset(),
            Engine::Cuda(engine) => engine.reset(),
        }
        self.times = 0;
    }
}

/// Correlation of spectra in device memory.
impl Correlator {
    /// Like [`run`](Self::run), for spectra in device memory, in the order of `stream`. Returns when the work is
    /// queued. Sets invalid samples to zero in place. An integration may use both functions.
    ///
    /// | buffer    | axes                                 | type                    | access      |
    /// |-----------|--------------------------------------|-------------------------|-------------|
    /// | `spectra` | channel, input, time                 | complex 4 or 8 bit, f32 | read, write |
    /// | `valid`   | channel, antenna, word of 64 times   | u64                     | read        |
    ///
    /// # Errors
    /// [`Error::Shape`] when a buffer is too short or a stride smaller than a row; [`Error::Parameter`] for addresses
    /// or strides that are not multiples of 16 bytes, a buffer on another device, or inputs 4 GiB apart or more,
    /// which some kernels cannot address; [`Error::Unavailable`] when the backend is not a GPU, or its memory is too
    /// small for a long integration; [`Error::Device`] when the driver fails.
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

    /// Returns the name of a GPU's product kernel; `None` on the host.
    pub fn path(&self) -> Option<&'static str> {
        match &self.engine {
            Engine::Cuda(engine) => Some(engine.path()),
            _ => None,
        }
    }
}
