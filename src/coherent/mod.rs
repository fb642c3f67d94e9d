//! Coherent dedispersion of voltages within channels, before a filter bank.
//!
//! Invariant: output sample `n` has the time of input sample `n`, and blocks begin at whole multiples of their length,
//! counted from the first sample of the recording; so the split of a stream into calls does not matter.

mod cpu;
mod cuda;
mod plan;
mod reference;

use num_complex::Complex;

use crate::backend::cuda::{Buffer, Device, Stream};
use crate::backend::threads::Threads;
use crate::backend::{Backend, Host};
use crate::error::{Error, Result};
use crate::view::{Progress, check_length};
use crate::voltage::{DeviceVoltages, VoltageBlock, VoltageEncoding, Voltages};
pub use cuda::kernels;
pub use plan::{Options, Plan, Start};
use plan::{Position, Step};

#[derive(Debug)]
enum Engine {
    Reference(Box<reference::Engine>),
    Cpu(Box<cpu::Engine>),
    Cuda(Box<cuda::Engine>),
}

/// Removes a known dispersion within the channels of a filter bank that follows, by overlap-save convolution.
///
/// `y_p[n] = (1/N) sum_k H_p[k] X[k] exp(2 pi i n k / N)` for the middle samples of each window of N samples, with `X` the
/// DFT of the window and
/// `H_p[k] = exp(-2 pi i K DM (f - f_0)^2 / (f f_0^2))` at sky frequency `f` of bin `k`. `f_0` is the centre of the
/// nearest channel with an even (copy p = 0) or odd (p = 1) index. Lower sidebands and the negative frequencies of real
/// samples have the conjugate phase. Samples before the first and after the last one are zeros.
///
/// | buffer | axes                                          | type                               | access      |
/// |--------|-----------------------------------------------|------------------------------------|-------------|
/// | `x`    | antenna, recorded channel, polarization, time | any [`VoltageEncoding`]            | read        |
/// | `y`    | copy, antenna, recorded channel, polarization, time | f32, complex or real as `x`  | overwritten |
///
/// # Numerics
/// The reference computes in double precision; the other backends compute phases in double and transforms in single
/// precision. On the CPU the bits are the same for any split of the stream and
/// any number of threads. On a GPU, and between backends, values agree within `2^-20 log2 N` times the root mean square
/// of the window's samples. Samples that are not finite make the whole window not finite.
/// # Real time
/// Allocates nothing after [`new`](Self::new), except the reference.
/// # Source
/// Hankins & Rickett 1975, Methods in Computational Physics 14, 55.
/// # Examples
/// Without dispersion both copies equal the recording:
/// ```
/// use sidereal::backend::Backend;
/// use sidereal::coherent::{Dedisperser, Options, Plan};
/// use sidereal::units::DM_CONSTANT;
/// use sidereal::voltage::{VoltageBlock, VoltageEncoding, Voltages};
///
/// # fn main() -> sidereal::Result<()> {
/// let plan = Plan::new(Options {
///     dm: 0.0,
///     dm_constant: DM_CONSTANT,
///     encoding: VoltageEncoding::Real8,
///     antennas: 1,
///     polarizations: 1,
///     centres_hz: vec![1.4e9],
///     lower_sideband: false,
///     tsamp_s: 1e-6,
///     offsets_hz: vec![-1.25e5, 1.25e5],
///     ringing: 4,
///     times: None,
/// })?;
/// let mut dedisperser = Dedisperser::new(plan, &Backend::best(1))?;
/// let recorded: Vec<u8> = (0..1000).map(|n| (n * n % 101) as u8).collect();
/// let mut block = VoltageBlock::new(VoltageEncoding::RealF32, 2, dedisperser.plan().block());
/// let input = Voltages::one(&recorded, VoltageEncoding::Real8)?;
/// assert_eq!(dedisperser.run(input, &mut block)?.consumed, 1000);
/// assert_eq!(dedisperser.flush(&mut block)?, 1000);
/// for n in 0..1000 {
///     assert!((block.voltages().value(1, n).re - f64::from(recorded[n])).abs() < 1e-3);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Dedisperser {
    plan: Plan,
    engine: Engine,
    position: Position,
}

impl Dedisperser {
    /// Binds a plan to a backend, at the start of the recording, and allocates all memory that a stream needs.
    ///
    /// # Errors
    /// On a GPU, [`Error::Unavailable`] without the memory, NVRTC or cuFFT, and [`Error::Device`] if the driver fails.
    pub fn new(plan: Plan, backend: &Backend) -> Result<Self> {
        let engine = match backend {
            Backend::Cuda(device, threads) => {
                let filters = filters(&plan, threads);
                Engine::Cuda(Box::new(cuda::Engine::new(&plan, &filters, device)?))
            }
            host => match host.host() {
                Host::Reference => Engine::Reference(Box::new(reference::Engine::new(&plan))),
                Host::Cpu(_, threads) => {
                    let filters = filters(&plan, &threads);
                    Engine::Cpu(Box::new(cpu::Engine::new(&plan, filters, &threads)))
                }
            },
        };
        let position = Position::new(&plan, plan.start(0));
        Ok(Self { plan, engine, position })
    }

    /// Returns the plan.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Returns the GPU that the plan is bound to, if any.
    pub fn device(&self) -> Option<&Device> {
        match &self.engine {
            Engine::Cuda(engine) => Some(engine.device()),
            _ => None,
        }
    }

    /// Consumes `consumed` samples of every stream and writes `produced` samples, whole blocks, to the front of
    /// `output`. All samples are consumed unless `output` has too little space; space for one block is enough for
    /// progress.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if the plan is bound to a GPU, which [`enqueue`](Self::enqueue) serves; [`Error::Shape`]
    /// if the number of streams differs from the plan's; [`Error::Parameter`] if an encoding does.
    pub fn run(&mut self, input: Voltages<'_>, output: &mut VoltageBlock<'_>) -> Result<Progress> {
        check_length("streams", self.plan.options().streams(), input.streams())?;
        check_encoding(self.plan.options().encoding, input.encoding())?;
        let step = self.position.step(&self.plan, input.times(), output.capacity());
        self.compute(step, input, output)?;
        Ok(Progress { consumed: step.fresh, produced: step.times })
    }

    /// Writes the next samples after the end of the stream, which zeros follow; returns their number, 0 once all are
    /// written. `output` needs space for at least one block.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn flush(&mut self, output: &mut VoltageBlock<'_>) -> Result<usize> {
        let streams = self.plan.options().streams();
        let none = Voltages::new(&[], self.plan.options().encoding, streams, 0, 0)?;
        let step = self.position.last_step(&self.plan, output.capacity());
        self.compute(step, none, output)?;
        Ok(step.times)
    }

    fn compute(
        &mut self,
        step: Step,
        input: Voltages<'_>,
        output: &mut VoltageBlock<'_>,
    ) -> Result<()> {
        check_length("streams of the output", self.plan.output_streams(), output.streams())?;
        check_encoding(self.plan.output_encoding(), output.encoding())?;
        match &mut self.engine {
            Engine::Reference(engine) => engine.run(step, input, output),
            Engine::Cpu(engine) => engine.run(step, input, output),
            Engine::Cuda(_) => {
                return Err(Error::Unavailable {
                    what: "coherent dedispersion of voltages in host memory".to_owned(),
                    why: "the plan is bound to a GPU".to_owned(),
                });
            }
        }
        self.position.pass(&self.plan, &step);
        output.set_times(step.times)
    }

    /// Like [`run`](Self::run), for voltages in GPU memory: enqueues the work on `stream` and returns. The output's
    /// rows begin `stride` bytes apart. Until the work has run, only `stream` may access the buffers.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if the plan is not bound to a GPU; [`Error::Parameter`] for buffers of another GPU, or
    /// samples that do not begin at a multiple of their size; [`Error::Shape`] if the voltages exceed `input`;
    /// [`Error::Device`] if the driver fails.
    pub fn enqueue(
        &mut self,
        input: &Buffer<u8>,
        layout: DeviceVoltages,
        output: &mut Buffer<u8>,
        stride: usize,
        stream: &Stream,
    ) -> Result<Progress> {
        let room = self.room(output, stride);
        let step = self.position.step(&self.plan, layout.times, room);
        let layout = DeviceVoltages { times: step.fresh, ..layout };
        self.on_gpu()?.enqueue(step, input, layout, output, stride, stream)?;
        self.position.pass(&self.plan, &step);
        Ok(Progress { consumed: step.fresh, produced: step.times })
    }

    /// Like [`flush`](Self::flush), on a GPU.
    ///
    /// # Errors
    /// As [`enqueue`](Self::enqueue).
    pub fn enqueue_flush(
        &mut self,
        output: &mut Buffer<u8>,
        stride: usize,
        stream: &Stream,
    ) -> Result<usize> {
        let step = self.position.last_step(&self.plan, self.room(output, stride));
        self.on_gpu()?.enqueue_last(step, output, stride, stream)?;
        self.position.pass(&self.plan, &step);
        Ok(step.times)
    }

    /// Returns the samples for which rows `stride` bytes apart have space.
    fn room(&self, output: &Buffer<u8>, stride: usize) -> usize {
        let rows = self.plan.output_streams() - 1;
        let last = output.len().saturating_sub(rows.saturating_mul(stride));
        last.min(stride) * 8 / self.plan.output_encoding().sample_bits()
    }

    fn on_gpu(&mut self) -> Result<&mut cuda::Engine> {
        match &mut self.engine {
            Engine::Cuda(engine) => Ok(engine),
            _ => Err(Error::Unavailable {
                what: "coherent dedispersion of voltages on a GPU".to_owned(),
                why: "the plan is bound to the host".to_owned(),
            }),
        }
    }

    /// Starts a new stream at a [`Plan::start`] of the recording.
    pub fn reset(&mut self, start: Start) {
        if let Engine::Reference(engine) = &mut self.engine {
            engine.reset();
        }
        self.position = Position::new(&self.plan, start);
    }
}

fn check_encoding(expected: VoltageEncoding, actual: VoltageEncoding) -> Result<()> {
    if expected == actual {
        return Ok(());
    }
    let rule = format!("the plan is for {expected:?}");
    Err(Error::parameter("encoding", format!("{actual:?}"), rule))
}

/// Filter bins that a thread computes at a time.
const BINS: usize = 1 << 12;

/// Computes all filters; axes recorded channel, copy, bin.
fn filters(plan: &Plan, threads: &Threads) -> Vec<Complex<f32>> {
    let mut filters = vec![Complex::ZERO; plan.responses()];
    threads.for_each(&mut filters, BINS, |index, bins| {
        let first = index * BINS;
        bins.iter_mut().enumerate().for_each(|(bin, h)| *h = plan.response_at(first + bin));
    });
    filters
}
