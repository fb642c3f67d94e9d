//! Polyphase filter bank: divides recorded voltages into channels, with optional detection or requantization.
//!
//! Invariant: results are bit-identical for any split of a stream into blocks.

mod cpu;
mod cuda;
mod plan;
#[doc(hidden)]
pub mod reference;

use num_complex::Complex;

use crate::backend::{Backend, Host};
use crate::error::{Error, Result};
use crate::view::{Progress, check_length};
use crate::voltage::Voltages;
pub(crate) use cuda::sources;
pub use cuda::{DeviceVoltages, Joining, RowJoiner, kernels};
pub use plan::{
    Detection, Feed, Form, Input, MAX_CHANNELS, MAX_TAPS, Options, Order, Output, Plan, Products,
};

#[derive(Debug)]
enum Engine {
    Reference(Box<reference::Engine>, Vec<Complex<f64>>),
    Cpu(Box<cpu::Engine>),
    Cuda(Box<cuda::Engine>),
}

/// Polyphase filter bank that divides each recorded channel of many streams, with one prototype filter for all.
///
/// `y_s[n mod N] = sum_t x[s hop + t N + c] b[t N + c]`, `n = s hop + c`, and
/// `Y_s[m] = sum_n y_s[n] exp(-2 pi i n m / N)`: the window `b` of spectrum `s` covers the samples `s hop .. s hop +
/// taps N`, and the phase reference is the stream's first sample. Complex input has `N = channels` points and bins
/// from -N/2 to N/2 - 1. Real input has `N = 2 channels` points and bins from 0; the Nyquist bin is dropped.
///
/// | buffer | axes                                              | type                    | access      |
/// |--------|---------------------------------------------------|-------------------------|-------------|
/// | `x`    | antenna, recorded channel, polarization, time     | any [`VoltageEncoding`] | read        |
/// | `Y`    | time, antenna, polarization or product, channel   | the [`Form`]'s          | overwritten |
///
/// The channel axis of a row runs over the recorded channels and, within each, over its channels.
///
/// [`VoltageEncoding`]: crate::voltage::VoltageEncoding
///
/// # Numerics
/// Single precision. The results are bit-identical for any split of the stream and any number of threads at one SIMD
/// level. Between levels, and against the reference, they agree within `2^-24 (taps + 8 log2 2N)` times the largest
/// sample under the window times the sum of the coefficients' magnitudes. Spectra are summed in groups of at most 256
/// (or `8 taps` rounded up to a power of two, if that is more), counted from a row's first spectrum; groups are added
/// in order. Non-finite samples affect only those spectra of their own stream whose windows contain them.
/// # Real time
/// [`run`](Self::run) allocates nothing, except for a GPU's staging memory, which grows to fit the largest call so
/// far (at most three times 32 MiB for input and output).
/// # Source
/// Adamek, Novotny & Armour 2016, Astronomy and Computing 16, 1; Price 2021 (Spectrometers and
/// polyphase filterbanks in radio astronomy).
/// # Examples
/// A tone in bin 5 of 64 channels:
/// ```
/// use sidereal::backend::Backend;
/// use sidereal::channelize::{Channelizer, Options, Output, Plan};
/// use sidereal::num_complex::Complex;
/// use sidereal::voltage::{VoltageEncoding, Voltages};
///
/// # fn main() -> sidereal::Result<()> {
/// let plan = Plan::new(Options::new(64, 8, VoltageEncoding::Complex8))?;
/// let mut channelizer = Channelizer::new(plan, &Backend::best(1))?;
/// let tone = (0..64 * 32).map(|n| Complex::cis(std::f64::consts::TAU * 5.0 * f64::from(n) / 64.0));
/// let part = |value: f64| (100.0 * value).round() as i8 as u8;
/// let bytes: Vec<u8> = tone.flat_map(|x| [part(x.re), part(x.im)]).collect();
/// let input = Voltages::one(&bytes, VoltageEncoding::Complex8)?;
/// let mut spectra = vec![Complex::default(); channelizer.plan().max_rows(input.times()) * 64];
/// let progress = channelizer.run(input, Output::Complex(&mut spectra))?;
/// let strongest = (0..64).max_by(|&a, &b| spectra[a].norm().total_cmp(&spectra[b].norm()));
/// assert_eq!(strongest.map(|index| channelizer.plan().bin(index)), Some(5));
/// assert_eq!(progress.produced, 32 - 7);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Channelizer {
    plan: Plan,
    engine: Engine,
    /// Samples of each stream consumed so far.
    times: u64,
    /// Output rows written so far.
    rows: u64,
}

impl Channelizer {
    /// Binds a plan to a backend and allocates all memory that a stream needs.
    ///
    /// # Errors
    /// [`Error::Parameter`] if samples and rows need over 2^44 bytes; on a GPU, [`Error::Unavailable`] without the
    /// memory, NVRTC or cuFFT that the plan needs, and [`Error::Device`] if the driver fails.
    pub fn new(plan: Plan, backend: &Backend) -> Result<Self> {
        if let Backend::Cuda(device, threads) = backend {
            let engine = Engine::Cuda(Box::new(cuda::Engine::new(&plan, device, threads)?));
            return Ok(Self { plan, engine, times: 0, rows: 0 });
        }
        let engine = match &backend.host() {
            Host::Reference => {
                Engine::Reference(Box::new(reference::Engine::new(&plan)), Vec::new())
            }
            Host::Cpu(level, threads) => {
                Engine::Cpu(Box::new(cpu::Engine::new(&plan, *level, threads)?))
            }
        };
        Ok(Self { plan, engine, times: 0, rows: 0 })
    }

    /// Returns the plan.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Consumes `consumed` samples of every stream and writes the next `produced` output rows to the front of
    /// `output`. All samples are consumed unless `output` has too few rows. Every call consumes samples if `output`
    /// has space for at least [`Plan::max_rows`] of the samples in one byte.
    ///
    /// # Errors
    /// [`Error::Shape`] if the number of streams differs from the plan's; [`Error::Parameter`] if the encoding or the
    /// kind of output does; [`Error::Device`] if a GPU fails, with the number of valid output bytes.
    pub fn run(&mut self, input: Voltages<'_>, output: Output<'_>) -> Result<Progress> {
        let room = self.check(&input, &output)?;
        let consumed = self.plan.fitting(self.times, self.rows, room, input.times());
        let total = self.times + consumed as u64;
        let produced = (self.plan.rows(total) - self.rows) as usize;
        let input = input.slice(0, consumed)?;
        let elements = produced * self.plan.row_elements();
        match &mut self.engine {
            Engine::Reference(engine, rows) => {
                rows.clear();
                engine.run(input, rows);
                write_reference(rows, output, self.plan.element_bytes());
            }
            Engine::Cpu(engine) => engine.run(input, output.front(elements, &self.plan)),
            Engine::Cuda(engine) => engine.run(input, output.front(elements, &self.plan))?,
        }
        self.times = total;
        self.rows += produced as u64;
        Ok(Progress { consumed, produced })
    }

    /// Like [`run`](Self::run), for voltages and rows in GPU memory: enqueues the work on `stream` and returns. Input
    /// whose start or stride is not a multiple of 16 bytes is copied first. Until the work has run, only `stream` may
    /// access the buffers.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if the plan is not bound to a GPU; [`Error::Parameter`] if the buffers belong to
    /// another GPU; [`Error::Shape`] if the voltages exceed `input`; [`Error::Device`] if the driver fails.
    pub fn enqueue(
        &mut self,
        input: &crate::backend::cuda::Buffer<u8>,
        layout: DeviceVoltages,
        output: &mut crate::backend::cuda::Buffer<u8>,
        stream: &crate::backend::cuda::Stream,
    ) -> Result<Progress> {
        self.enqueue_at(input, layout, output, 0, stream)
    }

    /// Like [`enqueue`](Self::enqueue), starting at output row `first_row`.
    ///
    /// # Errors
    /// Same as for [`enqueue`](Self::enqueue), and [`Error::Shape`] if the output ends before row `first_row`.
    pub fn enqueue_at(
        &mut self,
        input: &crate::backend::cuda::Buffer<u8>,
        layout: DeviceVoltages,
        output: &mut crate::backend::cuda::Buffer<u8>,
        first_row: usize,
        stream: &crate::backend::cuda::Stream,
    ) -> Result<Progress> {
        let rows = output.len() / (self.plan.row_elements() * self.plan.element_bytes());
        check_length("output before the first row (rows)", first_row, rows.min(first_row))?;
        self.enqueue_rows(input, layout, output, first_row..rows, stream)
    }

    /// Like [`enqueue`](Self::enqueue), for some rows of the output.
    ///
    /// # Errors
    /// Same as for [`enqueue`](Self::enqueue), and [`Error::Shape`] if the output ends before the last of the rows.
    pub fn enqueue_rows(
        &mut self,
        input: &crate::backend::cuda::Buffer<u8>,
        layout: DeviceVoltages,
        output: &mut crate::backend::cuda::Buffer<u8>,
        rows: std::ops::Range<usize>,
        stream: &crate::backend::cuda::Stream,
    ) -> Result<Progress> {
        let Engine::Cuda(engine) = &self.engine else {
            return Err(Error::Unavailable {
                what: "channelize of voltages on a GPU".to_owned(),
                why: "the plan is bound to the host".to_owned(),
            });
        };
        engine.check(input, layout, output)?;
        let row_bytes = self.plan.row_elements() * self.plan.element_bytes();
        let bytes = rows.end.saturating_mul(row_bytes);
        check_length("output (bytes)", bytes, bytes.min(output.len()))?;
        let consumed = self.plan.fitting(self.times, self.rows, rows.len(), layout.times);
        let total = self.times + consumed as u64;
        let produced = (self.plan.rows(total) - self.rows) as usize;
        if let Engine::Cuda(engine) = &mut self.engine {
            let layout = DeviceVoltages { times: consumed, ..layout };
            engine.enqueue(input, layout, output.at(rows.start * row_bytes), stream)?;
        }
        self.times = total;
        self.rows += produced as u64;
        Ok(Progress { consumed, produced })
    }

    /// Returns the GPU that the plan is bound to, if any.
    pub fn device(&self) -> Option<&crate::backend::cuda::Device> {
        match &self.engine {
            Engine::Cuda(engine) => Some(engine.device()),
            _ => None,
        }
    }

    /// Returns the number of samples of each stream consumed since the stream's start.
    pub fn times(&self) -> u64 {
        self.times
    }

    /// Returns the number of complex samples clipped by requantization since the stream's start, for each element of
    /// a row; all 0 for other forms.
    pub fn saturated(&self) -> Vec<u64> {
        match &self.engine {
            Engine::Reference(engine, _) => engine.saturated().to_vec(),
            Engine::Cpu(engine) => engine.saturated(),
            Engine::Cuda(engine) => engine.saturated(),
        }
    }

    /// Starts a new stream. Partial windows and partial sums at the end of the old stream yield no row.
    pub fn reset(&mut self) {
        match &mut self.engine {
            Engine::Reference(engine, _) => **engine = reference::Engine::new(&self.plan),
            Engine::Cpu(engine) => engine.reset(),
            Engine::Cuda(engine) => engine.reset(),
        }
        self.times = 0;
        self.rows = 0;
    }

    /// Like [`reset`](Self::reset), for another place of the same stream: on a GPU, counts of saturated values go on.
    pub(crate) fn restart(&mut self) {
        let Engine::Cuda(engine) = &mut self.engine else { return self.reset() };
        engine.restart();
        (self.times, self.rows) = (0, 0);
    }

    /// Checks the arguments and returns the output's capacity in rows.
    fn check(&self, input: &Voltages<'_>, output: &Output<'_>) -> Result<usize> {
        let plan = &self.plan;
        check_length("streams", plan.input().streams(), input.streams())?;
        if input.encoding() != plan.input().encoding {
            let rule = format!("the plan is for {:?}", plan.input().encoding);
            return Err(Error::parameter("encoding", format!("{:?}", input.encoding()), rule));
        }
        let (room, fits) = match (output, &plan.options().form) {
            (Output::Complex(values), form) => {
                (values.len(), matches!(form, Form::Spectra | Form::Filtered))
            }
            (Output::F32(values), form) => (values.len(), matches!(form, Form::Detected(_))),
            (Output::Bytes(bytes), form) => {
                (bytes.len() / plan.element_bytes(), matches!(form, Form::Requantized { .. }))
            }
        };
        if !fits {
            let rule = "the plan's form has another type of output";
            return Err(Error::parameter("output", "of the wrong kind", rule));
        }
        Ok(room / plan.row_elements())
    }
}

/// Converts the reference's f64 values to the output's type.
fn write_reference(rows: &[Complex<f64>], output: Output<'_>, element_bytes: usize) {
    match output {
        Output::Complex(values) => {
            let narrow = |z: &Complex<f64>| Complex::new(z.re as f32, z.im as f32);
            values.iter_mut().zip(rows).for_each(|(value, z)| *value = narrow(z));
        }
        Output::F32(values) => {
            values.iter_mut().zip(rows).for_each(|(value, z)| *value = z.re as f32);
        }
        Output::Bytes(bytes) if element_bytes == 1 => {
            let pack = |z: &Complex<f64>| ((z.re as i8) << 4) as u8 | (z.im as i8 as u8 & 15);
            bytes.iter_mut().zip(rows).for_each(|(byte, z)| *byte = pack(z));
        }
        Output::Bytes(bytes) => {
            let pairs = bytes.chunks_exact_mut(2).zip(rows);
            pairs.for_each(|(pair, z)| pair.copy_from_slice(&[z.re as i8 as u8, z.im as i8 as u8]));
        }
    }
}
