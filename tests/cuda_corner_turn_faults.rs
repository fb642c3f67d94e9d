//! Rejected inputs of the corner-turn kernels.

#[path = "common/cuda.rs"]
mod cuda;
#[path = "common/delayed.rs"]
mod delayed;
#[path = "common/random.rs"]
mod random;

use delayed::{Case, DIRT, INPUTS, corrector};
use num_complex::Complex;
use random::Random;
use sidereal::delay::{DeviceDelays, DeviceSamples, Form, Natural, Options, Plan};
use sidereal::voltage::VoltageEncoding::{self, Complex8};

/// A mismatch gives an error, and nothing is launched.
#[test]
fn faults_name_what_does_not_fit() {
    let Some(device) = cuda::device() else { return };
    let mut random = Random::new(9);
    let case = Case::new((Form::Spectra, Complex8), (2, 1, 8), (20, true), &mut random);
    let mut corrector = corrector(&device, case.options.clone());
    let samples = device.upload(&case.samples).unwrap();
    let seconds = device.upload(&vec![0.0; 3 * 2 * 20]).unwrap();
    let mut output = device.upload(&vec![DIRT; 8 * INPUTS * 64]).unwrap();
    let stream = device.stream().unwrap();
    let delays = DeviceDelays { seconds: &seconds, first: 0, stride: 20 };
    let to = Natural { first_byte: 0, channel_stride: INPUTS * 64, input_stride: 64 };
    let mut refused = |at: DeviceSamples, delays: Option<DeviceDelays<'_>>, to: Natural| {
        let error = corrector.enqueue(&samples, at, delays, &mut output, to, &stream);
        error.unwrap_err().to_string()
    };
    assert!(refused(case.at, None, to).contains("delays"));
    assert!(
        refused(DeviceSamples { first_byte: 4, ..case.at }, Some(delays), to)
            .contains("multiple of 8")
    );
    assert!(refused(DeviceSamples { times: 21, ..case.at }, Some(delays), to).contains("samples"));
    assert!(refused(case.at, Some(DeviceDelays { first: 1, ..delays }), to).contains("delays"));
    assert!(
        refused(case.at, Some(delays), Natural { input_stride: 32, ..to })
            .contains("stride of inputs")
    );
    assert!(
        refused(case.at, Some(delays), Natural { first_byte: 8, ..to }).contains("multiple of 16")
    );
    assert!(
        refused(case.at, Some(delays), Natural { first_byte: 512, ..to })
            .contains("inputs (bytes)")
    );
    assert!(corrector.set_gains([(3, &[Complex::ONE][..])]).is_err());
    assert!(corrector.set_gains([(0, &[Complex::ONE; 3][..])]).is_err());
    let options = Options { encoding: VoltageEncoding::Real8, ..case.options.clone() };
    assert!(Plan::new(options).is_err());
}
