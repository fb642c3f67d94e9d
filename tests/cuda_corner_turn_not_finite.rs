//! Non-finite samples, gains and delays in the corner-turn kernels of a device.

#[path = "common/cuda.rs"]
mod cuda;
#[path = "common/delayed.rs"]
mod delayed;
#[path = "common/random.rs"]
mod random;

use delayed::{Case, complex, wide};
use num_complex::Complex64;
use random::Random;
use sidereal::backend::cuda::Device;
use sidereal::delay::Form;
use sidereal::voltage::VoltageEncoding::{Complex4, Complex8, ComplexF32};
use sidereal::voltage::voltage;

/// The largest error of a value, as a part of its magnitude.
const BOUND: f64 = 1.0 / (1 << 20) as f64;

/// Non-finite samples, gain products and delays make zeros, and affect nothing else.
#[test]
fn fixed_subset_not_finite() {
    let Some(device) = cuda::device() else { return };
    let mut random = Random::new(8);
    for encoding in [Complex4, Complex8, ComplexF32] {
        let form = (Form::Spectra, encoding);
        let mut case = Case::new(form, (2, 2, 9), (70, true), &mut random);
        let bad = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX];
        case.gains[0].iter_mut().for_each(|gain| *gain *= 4.0);
        for place in 0..40 {
            let (time, element) = (place * 7 % 70, place * 5 % (3 * 2 * 18));
            let mut value = complex(&mut random, 30.0);
            if place % 2 == 0 {
                value.re = bad[place / 2 % 4]
            } else {
                value.im = bad[place / 2 % 4]
            }
            let at = case.at.first_byte + time * case.at.stride + 8 * element;
            case.samples[at..at + 8].copy_from_slice(bytemuck::bytes_of(&value));
            let index = element * 70 + time;
            // A value that overflows after weighting counts as infinite; any other large value is clipped.
            case.values[index] =
                if value.is_finite() { Complex64::new(f64::NAN, 0.0) } else { wide(value) };
        }
        case.delays[1][5].total_s = f64::NAN;
        case.delays[2][9].residual_s = f64::INFINITY;
        let channels = case.channels();
        for (antenna, time) in [(1, 5), (2, 9)] {
            for element in 0..2 * channels {
                case.values[(antenna * 2 * channels + element) * 70 + time].re = f64::NAN;
            }
        }
        case.check_not_finite(&device, &format!("{encoding:?}"));
    }
}

impl Case {
    /// Compares the output with the equation if some values are not finite: zeros, or clipped values for the largest
    /// float.
    fn check_not_finite(&self, device: &Device, name: &str) {
        let (bytes, to, _) = self.run(device, self.at.times);
        let encoding = self.options.encoding;
        let most = f64::from(1 << (encoding.bits().min(8) - 1)) - 1.0;
        let mut zeros = 0;
        for (antenna, input) in self.options.inputs.iter().enumerate() {
            for element in 0..2 * self.channels() {
                let (polarization, channel) =
                    (element / self.channels(), element % self.channels());
                let row = to.channel_stride * channel + to.input_stride * (input + polarization);
                let row = &bytes[to.first_byte + row..];
                for time in 0..self.at.times {
                    let value = self.exact((antenna, polarization, channel), time);
                    let found = voltage(row, encoding, time);
                    assert!(found.is_finite(), "{name}");
                    if value.is_finite() {
                        let limit = |x: f64| {
                            if encoding == ComplexF32 { x } else { x.clamp(-most - 1.0, most) }
                        };
                        let off =
                            Complex64::new(found.re - limit(value.re), found.im - limit(value.im));
                        let slack =
                            if encoding == ComplexF32 { 1e-4 } else { 0.5 } + BOUND * value.norm();
                        assert!(off.re.abs().max(off.im.abs()) <= slack, "{name}: {found} {value}");
                    } else {
                        let is_limited = found.re.abs().max(found.im.abs()) >= most;
                        assert!(found == Complex64::ZERO || is_limited, "{name}: {found}");
                        zeros += u32::from(found == Complex64::ZERO);
                    }
                }
            }
        }
        assert!(zeros > 40, "{name}: {zeros}");
    }
}
