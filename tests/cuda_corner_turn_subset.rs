//! Every part of the corner-turn kernels on few samples, for tools that slow kernels down.
//!
//! With `v` the exact value: a float is off by at most `2^-20 |v|`, and an integer is the rounding of a number within
//! that distance of `v`.

#[path = "common/cuda.rs"]
mod cuda;
#[path = "common/delayed.rs"]
mod delayed;
#[path = "common/random.rs"]
mod random;

use delayed::{Case, DIRT, INPUTS};
use num_complex::Complex64;
use random::Random;
use sidereal::backend::cuda::Device;
use sidereal::delay::{Form, Natural};
use sidereal::voltage::VoltageEncoding::{
    Complex4, Complex8, Complex16, ComplexF32, ComplexOffset8,
};
use sidereal::voltage::voltage;

/// The largest error of a value, as a part of its magnitude.
const BOUND: f64 = 1.0 / (1 << 20) as f64;

impl Case {
    /// Compares the output with the equation, and calls of different lengths with each other.
    fn check(&self, device: &Device, name: &str) {
        let (bytes, to, saturated) = self.run(device, self.at.times);
        let mut touched = [false; INPUTS];
        for (antenna, input) in self.options.inputs.iter().enumerate() {
            for polarization in 0..self.options.polarizations {
                touched[input + polarization] = true;
                let place = (antenna, polarization);
                let count = saturated[antenna * self.options.polarizations + polarization];
                let limited = self.check_input(&bytes, to, (place, input + polarization), name);
                assert!(limited.contains(&count), "{name}: {count} limited, not {limited:?}");
            }
        }
        let length = self.options.encoding.bytes(self.at.times).next_multiple_of(16);
        let mut kept = bytes.clone();
        for channel in 0..self.channels() {
            for input in (0..INPUTS).filter(|input| touched[*input]) {
                let row = to.first_byte + channel * to.channel_stride + input * to.input_stride;
                kept[row..row + length].fill(DIRT);
            }
        }
        assert!(kept.iter().all(|byte| *byte == DIRT), "{name}: written elsewhere");
        // Whole pieces of 16 bytes.
        let (parts, _, counts) = self.run(device, 64);
        for channel in 0..self.channels() {
            for input in (0..INPUTS).filter(|input| touched[*input]) {
                let row = to.first_byte + channel * to.channel_stride + input * to.input_stride;
                let row = row..row + self.options.encoding.bytes(self.at.times);
                assert_eq!(bytes[row.clone()], parts[row], "{name}: in parts");
            }
        }
        assert_eq!(saturated, counts, "{name}: in parts");
    }

    /// Upper bound of the number of clipped samples of an input.
    fn check_input(
        &self,
        bytes: &[u8],
        to: Natural,
        ((antenna, polarization), input): ((usize, usize), usize),
        name: &str,
    ) -> std::ops::RangeInclusive<u64> {
        let encoding = self.options.encoding;
        let most = f64::from(1 << (encoding.bits().min(8) - 1)) - 1.0;
        let (mut least, mut largest) = (0, 0);
        for channel in 0..self.channels() {
            let row =
                &bytes[to.first_byte + channel * to.channel_stride + input * to.input_stride..];
            for time in 0..self.at.times {
                let value = self.exact((antenna, polarization, channel), time);
                let off = BOUND * value.norm();
                let found = voltage(row, encoding, time);
                let about = format!(
                    "{name}: antenna {antenna} {polarization} channel {channel} time {time}"
                );
                if !value.is_finite() || value.norm() > f64::from(f32::MAX) {
                    assert_eq!(found, Complex64::ZERO, "{about}");
                    continue;
                }
                if self.options.form == Form::Recorded || encoding == ComplexF32 {
                    assert!((found - value).norm() <= off, "{about}: {found} is not {value}");
                    continue;
                }
                for (found, value) in [(found.re, value.re), (found.im, value.im)] {
                    let limit = |x: f64| x.round_ties_even().clamp(-most - 1.0, most);
                    let right = limit(value - off)..=limit(value + off);
                    assert!(right.contains(&found), "{about}: {found} is not {value}");
                }
                let beyond = |x: f64| (x - most - 0.5).max(-x - most - 1.5);
                let beyond = beyond(value.re).max(beyond(value.im));
                least += u64::from(beyond > off);
                largest += u64::from(beyond >= -off);
            }
        }
        least..=largest
    }
}

/// Whole and partial tiles, lanes without a channel, several recorded channels, every output encoding.
#[test]
fn fixed_subset_spectra() {
    let Some(device) = cuda::device() else { return };
    let mut random = Random::new(5);
    for (encoding, geometry, times, turns) in [
        (Complex8, (2, 1, 40), 131, true),
        (Complex8, (1, 3, 7), 64, true),
        (Complex8, (2, 2, 33), 3, false),
        (Complex4, (2, 1, 32), 259, true),
        (Complex4, (1, 2, 5), 130, false),
        (ComplexF32, (2, 2, 20), 67, true),
        (ComplexF32, (1, 1, 70), 33, false),
    ] {
        let case = Case::new((Form::Spectra, encoding), geometry, (times, turns), &mut random);
        case.check(&device, &format!("{encoding:?} {geometry:?} {times} {turns}"));
    }
}

/// The same for channelized voltages of every encoding.
#[test]
fn fixed_subset_streams() {
    let Some(device) = cuda::device() else { return };
    let mut random = Random::new(6);
    for (from, encoding, geometry, times, turns) in [
        (Complex8, Complex8, (2, 35, 1), 300, true),
        (Complex4, Complex4, (1, 9, 1), 131, true),
        (ComplexOffset8, Complex8, (2, 3, 1), 65, false),
        (Complex16, ComplexF32, (2, 4, 1), 70, true),
        (ComplexF32, Complex8, (1, 33, 1), 67, true),
        (Complex4, Complex8, (2, 2, 1), 64, false),
        (ComplexF32, ComplexF32, (1, 2, 1), 129, false),
    ] {
        let form = Form::Voltages { encoding: from, scale: 0.75 };
        let case = Case::new((form, encoding), geometry, (times, turns), &mut random);
        case.check(&device, &format!("{from:?} {encoding:?} {geometry:?} {times} {turns}"));
    }
}

/// Voltages that are copied unchanged.
#[test]
fn fixed_subset_recorded() {
    let Some(device) = cuda::device() else { return };
    let mut random = Random::new(7);
    for (encoding, geometry, times) in
        [(Complex8, (2, 35, 1), 301), (Complex4, (1, 9, 1), 64), (ComplexF32, (2, 3, 1), 33)]
    {
        let case = Case::new((Form::Recorded, encoding), geometry, (times, false), &mut random);
        case.check(&device, &format!("{encoding:?} {geometry:?} {times}"));
    }
}
