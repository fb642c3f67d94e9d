//! Cases of `bench channelize` on a GPU, and their data in device memory.

use sidereal::backend::cuda::Buffer;
use sidereal::channelize::{Detection, Feed, Form, Options, Plan, Products};
use sidereal::voltage::VoltageEncoding;
use sidereal::{Error, Result};

use crate::gpu::{Gpu, random};

/// Filter bank and its measurement settings.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) options: Options,
    /// Whether the case includes the copies from and to host memory.
    pub(crate) whole: bool,
}

impl Case {
    pub(crate) fn new(channels: usize, taps: usize, encoding: VoltageEncoding) -> Self {
        let bits = match encoding {
            VoltageEncoding::ComplexF32 => "f32".to_owned(),
            _ => format!("{} bit", encoding.bits()),
        };
        let name = format!("{channels} channels, {taps} taps, {bits}");
        Self { name, options: Options::new(channels, taps, encoding), whole: false }
    }

    /// Returns the case with detected powers, summed over `spectra` spectra.
    pub(crate) fn detected(self, spectra: usize) -> Self {
        let (products, feed) = (Products::I, Feed::Linear);
        let detection = Detection { products, feed, spectra, channels: 1, interpolate_dc: false };
        let options = Options { form: Form::Detected(detection), ..self.options };
        Self { name: format!("{}, powers of {spectra}", self.name), options, ..self }
    }
}

pub(crate) fn no_data() -> Error {
    Error::Unavailable { what: "random voltages".to_owned(), why: "none were made".to_owned() }
}

/// Random voltages of one encoding, on host and device.
pub(crate) struct Data {
    pub(crate) encoding: VoltageEncoding,
    pub(crate) host: Vec<u8>,
    pub(crate) device: Buffer<u8>,
}

impl Data {
    pub(crate) fn new(gpu: &Gpu, encoding: VoltageEncoding) -> Result<Self> {
        let samples = if gpu.quick { QUICK_SAMPLES } else { SAMPLES };
        let host = match encoding {
            VoltageEncoding::ComplexF32 => random::floats(2 * samples),
            _ => random::bytes(encoding.bytes(samples)),
        };
        let device = gpu.device.upload(&host)?;
        Ok(Self { encoding, host, device })
    }

    /// Returns the samples in a call, a whole number of rows.
    pub(crate) fn times(&self, plan: &Plan) -> Result<usize> {
        let samples = self.host.len() * 8 / self.encoding.sample_bits();
        let times = samples / plan.samples_per_row() * plan.samples_per_row();
        if times > plan.span() { Ok(times) } else { Err(no_data()) }
    }
}

/// Returns the bytes read and written per sample.
pub(crate) fn bytes_per_sample(plan: &Plan) -> f64 {
    let row = (plan.row_elements() * plan.element_bytes()) as f64;
    plan.input().encoding.sample_bits() as f64 / 8.0 + row / plan.samples_per_row() as f64
}

/// Samples in a call: input and output are several times any cache.
pub(crate) const SAMPLES: usize = 1 << 27;

/// Samples in a call of a quick run.
pub(crate) const QUICK_SAMPLES: usize = 1 << 14;
