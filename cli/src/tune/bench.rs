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
            Device::Cuda(ref ordinals) if ordinals.len() == 1 => ordinals[0],
            Device::Auto | Device::AnyCuda => 0,
            _ => {
                let rule =
                    "kernels are tuned on one GPU: it must be cuda, cuda:1 and so on, or auto";
                return Err(Error::parameter("--device", common.device.text(), rule));
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
    pub(crate) fn noise(&self, count: usize) -> Result<cuda::Buffer<u8>> {
        self.device.upload(&bytes(count))
    }

    /// Uploads pseudorandom single-precision floats from -0.5 to 0.5.
    pub(crate) fn floats(&self, count: usize) -> Result<cuda::Buffer<u8>> {
        self.device.upload(&floats(count))
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

/// Returns pseudorandom bytes.
fn bytes(count: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let words: Vec<u64> = (0..count.div_ceil(8)).map(|_| next()).collect();
    bytemuck::cast_slice(&words)[..count].to_vec()
}

/// Returns the bytes of floats from -0.5 to 0.5: arbitrary bits would include NaN, and sums of NaN cannot be
/// compared.
fn floats(count: usize) -> Vec<u8> {
    let mut bytes = bytes(count);
    for float in bytes.chunks_exact_mut(4) {
        let bits = u32::from_le_bytes([float[0], float[1], float[2], float[3]]);
        let value = (bits >> 8) as f32 / (1_u32 << 24) as f32 - 0.5;
        float.copy_from_slice(&value.to_le_bytes());
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_are_numbers_of_either_sign() {
        let floats = floats(4003);
        assert_eq!((floats.len(), bytes(4003).len()), (4003, 4003));
        let values: Vec<f32> = floats
            .chunks_exact(4)
            .map(|float| f32::from_le_bytes([float[0], float[1], float[2], float[3]]))
            .collect();
        assert!(values.iter().all(|value| (-0.5..=0.5).contains(value)));
        let mean = values.iter().sum::<f32>() / values.len() as f32;
        assert!(mean.abs() < 0.05 && values.iter().any(|value| value.abs() > 0.4), "{mean}");
    }
}
