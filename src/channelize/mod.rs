//! Divides recorded voltages into channels: the polyphase filter bank, and what is made of its spectra.
//!
//! Invariant: any split of a stream gives what one block gives, bit for bit.

mod cpu;
#[cfg(feature = "cuda")]
mod cuda;
mod output;
pub mod plan;
pub mod reference;

use num_complex::Complex;

use crate::backend::{Backend, Host};
use crate::error::{Error, Result};
use crate::view::{Progress, check_length};
use crate::voltage::Voltages;
#[cfg(feature = "cuda")]
pub use cuda::{DeviceVoltages, Joining, RowJoiner, kernels};
pub use output::Output;
pub use plan::{Detection, Feed, Form, Input, Options, Order, Plan, Products};

#[derive(Debug)]
enum Engine {
    Reference(Box<reference::Engine>, Vec<Complex<f64>>),
    Cpu(Box<cpu::Engine>),
    #[cfg(feature = "cuda")]
    Cuda(Box<cuda::Engine>),
}

/// Divides each recorded channel of many streams into channels, with one polyphase filter for all.
///
/// `y_s[n mod N] = sum_t x[s hop + t N + c] b[t N + c]`, `n = s hop + c`, and
/// `Y_s[m] = sum_n y_s[n] exp(-2 pi i n m / N)`: spectrum `s` of `N` points has the samples
/// `s hop .. s hop + taps N` under its window `b`, and its phases refer to the stream's first sample.
/// Complex input has `N = channels` and bins from -N/2 to N/2 - 1; real input `N = 2 channels` and
/// bins from 0, the last (Nyquist's) dropped.
///
/// | buffer | axes                                              | type                    | access      |
/// |--------|---------------------------------------------------|-------------------------|-------------|
/// | `x`    | antenna, recorded channel, polarization, time     | any [`VoltageEncoding`] | read        |
/// | `Y`    | time, antenna, polarization or product, channel   | the [`Form`]'s          | overwritten |
///
/// The channels of a row run over the recorded channels and, within each, over its own channels.
///
/// [`VoltageEncoding`]: crate::voltage::VoltageEncoding
///
/// # Numerics
/// Single precision. The same bits for any split of the stream and any number of threads at one vector
/// level; between levels, and against the reference, within `2^-24 (taps + 8 log2 2N)` of the largest
/// sample under the window times the sum of the coefficients' magnitudes. Spectra are summed in groups of
/// at most 256 (of 8 taps rounded up to a power of two, if that is more), counted from a row's first
/// spectrum, and groups in their order. Samples that are not finite spoil the spectra of their own stream
/// that have them under their window, and no others.
/// # Real time
/// [`run`](Self::run) allocates nothing, but for a GPU's staging memory, which grows to that of the largest call
/// so far (32 MiB in and out, three times, at most).
/// # Source
/// Adamek, Novotny & Armour 2016, Astronomy and Computing 16, 1; Price 2021 (Spectrometers and
/// polyphase filterbanks in radio astronomy).
#[derive(Debug)]
pub struct Channelizer {
    plan: Plan,
    engine: Engine,
    /// Samples of each stream so far.
    times: u64,
    /// Output rows so far.
    rows: u64,
}

impl Channelizer {
    /// Binds a plan to a backend: allocates all that a stream needs.
    ///
    /// # Errors
    /// [`Error::Parameter`] when the history can't be addressed; on a GPU, [`Error::Unavailable`] without the
    /// memory, NVRTC or cuFFT that the plan needs, and [`Error::Device`] when the driver refuses.
    pub fn new(plan: Plan, backend: &Backend) -> Result<Self> {
        #[cfg(feature = "cuda")]
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

    /// The plan.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Takes samples of every stream, `consumed` of each, and writes the next `produced` output rows to
    /// the front of `output`. All samples are taken unless `output` has too few rows; with room for
    /// [`Plan::max_rows`] of the samples in a byte, some are taken always.
    ///
    /// # Errors
    /// [`Error::Shape`] when the number of streams differs from the plan's; [`Error::Parameter`] when
    /// the encoding or the kind of output does; [`Error::Device`] when a GPU fails, with the bytes of output that
    /// were whole.
    pub fn run(&mut self, input: Voltages<'_>, output: Output<'_>) -> Result<Progress> {
        let room = self.check(&input, &output)?;
        let consumed = self.fitting(room, input.times(), input.encoding().samples_per_byte());
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
            #[cfg(feature = "cuda")]
            Engine::Cuda(engine) => engine.run(input, output.front(elements, &self.plan))?,
        }
        self.times = total;
        self.rows += produced as u64;
        Ok(Progress { consumed, produced })
    }

    /// As [`run`](Self::run), for voltages that lie in a GPU's memory and rows that stay there: queues the work
    /// on `stream` and returns. Input that begins or strides at other than multiples of 16 bytes is copied
    /// first. Nothing but `stream` may touch the buffers until the work has run.
    ///
    /// # Errors
    /// [`Error::Unavailable`] when the plan is not bound to a GPU; [`Error::Parameter`] when the buffers are of
    /// another one; [`Error::Shape`] when the voltages do not lie in `input`; [`Error::Device`] when the driver
    /// refuses.
    #[cfg(feature = "cuda")]
    pub fn enqueue(
        &mut self,
        input: &crate::backend::cuda::Buffer<u8>,
        layout: DeviceVoltages,
        output: &mut crate::backend::cuda::Buffer<u8>,
        stream: &crate::backend::cuda::Stream,
    ) -> Result<Progress> {
        self.enqueue_at(input, layout, (output, 0), stream)
    }

    /// As [`enqueue`](Self::enqueue), with rows that begin behind so many others in the output.
    ///
    /// # Errors
    /// As [`enqueue`](Self::enqueue); [`Error::Shape`] when the output ends before them.
    #[cfg(feature = "cuda")]
    pub fn enqueue_at(
        &mut self,
        input: &crate::backend::cuda::Buffer<u8>,
        layout: DeviceVoltages,
        (output, first_row): (&mut crate::backend::cuda::Buffer<u8>, usize),
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
        let rows = output.len() / row_bytes;
        check_length("output before the first row (rows)", first_row, rows.min(first_row))?;
        let room = rows - first_row;
        let step = self.plan.input().encoding.samples_per_byte();
        let consumed = self.fitting(room, layout.times, step);
        let total = self.times + consumed as u64;
        let produced = (self.plan.rows(total) - self.rows) as usize;
        if let Engine::Cuda(engine) = &mut self.engine {
            let layout = DeviceVoltages { times: consumed, ..layout };
            engine.enqueue(input, layout, output.at(first_row * row_bytes), stream)?;
        }
        self.times = total;
        self.rows += produced as u64;
        Ok(Progress { consumed, produced })
    }

    /// The GPU that the plan is bound to, if it is one.
    #[cfg(feature = "cuda")]
    pub fn device(&self) -> Option<&crate::backend::cuda::Device> {
        match &self.engine {
            Engine::Cuda(engine) => Some(engine.device()),
            _ => None,
        }
    }

    /// Samples of each stream that were taken since the stream's start.
    pub fn times(&self) -> u64 {
        self.times
    }

    /// Complex samples that requantization had to limit, for each element of a row, since the stream's
    /// start; all 0 for the other forms.
    pub fn saturated(&self) -> Vec<u64> {
        match &self.engine {
            Engine::Reference(engine, _) => engine.saturated().to_vec(),
            Engine::Cpu(engine) => engine.saturated(),
            #[cfg(feature = "cuda")]
            Engine::Cuda(engine) => engine.saturated(),
        }
    }

    /// Starts another stream. What is left of a window or of a sum over spectra at a stream's end gives
    /// no row.
    pub fn reset(&mut self) {
        match &mut self.engine {
            Engine::Reference(engine, _) => **engine = reference::Engine::new(&self.plan),
            Engine::Cpu(engine) => engine.reset(),
            #[cfg(feature = "cuda")]
            Engine::Cuda(engine) => engine.reset(),
        }
        self.times = 0;
        self.rows = 0;
    }

    /// The output's room in rows.
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

    /// Samples, of those offered, that give no more rows than there is room for.
    fn fitting(&self, room: usize, offered: usize, step: usize) -> usize {
        let plan = &self.plan;
        // One sample fewer than the row after the last that fits needs.
        let rows = (self.rows + 1).saturating_add(room as u64);
        let spectra = rows.saturating_mul(plan.spectra_per_row() as u64) - 1;
        let samples = spectra.saturating_mul(plan.hop() as u64);
        let most = samples.saturating_add(plan.span() as u64 - 1) - self.times;
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        if offered <= most { offered } else { most / step * step }
    }
}

/// Narrows the reference's numbers to the output's.
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
