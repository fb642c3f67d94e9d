//! Device and limits for the measurement of a plan.

use sidereal::backend::cuda::tune;
use sidereal::backend::cuda::tune::Measured;
use sidereal::backend::cuda::tune::{Tuned, Work};
use sidereal::backend::threads::Threads;
use sidereal::backend::{Backend, cuda};
use sidereal::{Error, Result};

use crate::common::{Common, Device};
use crate::interrupt;
use crate::say::note;

/// Device and limits for the measurement of a plan.
pub(crate) struct Bench {
    pub(crate) backend: Backend,
    pub(crate) device: cuda::Device,
    /// Largest input of one run, in bytes.
    pub(crate) input_bytes: usize,
}

impl Bench {
    pub(crate) fn new(common: &Common, input_bytes: usize) -> Result<Self> {
        let ordinal = match common.device {
            Device::Cuda(ordinal) => ordinal,
            Device::Auto => 0,
            Device::Cpu | Device::Reference => {
                let rule =
                    "only kernels for GPUs are tuned: it must be cuda, cuda:1 and so on, or auto";
                return Err(Error::parameter("--device", "another one", rule));
            }
        };
        let device = cuda::Device::open(ordinal)?;
        cuda::nvrtc()?;
        let backend = Backend::Cuda(device.clone(), Threads::new(common.threads()?));
        Ok(Self { backend, device, input_bytes })
    }

    /// Measures all candidates of what `build` makes, and reports each when it is done.
    pub(crate) fn tune(
        &self,
        common: &Common,
        build: &mut dyn FnMut() -> Result<Box<dyn Work>>,
    ) -> Result<Vec<Tuned>> {
        tune::tune(&self.device, build, &mut |kernel, measured| {
            if common.verbose && !common.quiet {
                note!("{kernel}: {}", outcome(measured));
            }
            interrupt::check()
        })
    }

    /// Uploads pseudorandom bytes, the same in every run.
    pub(crate) fn noise(&self, bytes: usize) -> Result<cuda::Buffer<u8>> {
        self.device.upload(&crate::tune::noise::bytes(bytes))
    }

    /// Uploads pseudorandom single-precision floats from -0.5 to 0.5.
    pub(crate) fn floats(&self, bytes: usize) -> Result<cuda::Buffer<u8>> {
        self.device.upload(&crate::tune::noise::floats(bytes))
    }
}

pub(crate) fn outcome(measured: &Measured) -> String {
    let name = &measured.choice.name;
    match &measured.seconds {
        Ok((best, median)) => {
            format!("{name}: {:.4} ms, median {:.4} ms", 1e3 * best, 1e3 * median)
        }
        Err(why) => format!("{name}: can't be launched: {why}"),
    }
}
