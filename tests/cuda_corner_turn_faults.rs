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
use sidereal::delay::{
    DelayCorrector, DeviceDelays, DeviceSamples, Form, Natural, Options, Plan, Rows, Slope,
};
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

/// New gains apply to later spectra, keep the counts of saturated samples, and are finite.
#[test]
fn new_gains_keep_the_counts() {
    let Some((backend, _)) = cuda::devices(1).into_iter().next() else { return };
    let plan = Plan::new(Options::one_antenna(1, 1, 8, Complex8)).unwrap();
    let mut corrector = DelayCorrector::new(plan, &backend).unwrap();
    let (spectra, slopes) = ([Complex::new(1000.0, 1.0); 16], [Slope { start: 0.0, step: 0.0 }; 2]);
    let run = |corrector: &mut DelayCorrector| {
        let mut bytes = [DIRT; 32];
        let rows = Rows { bytes: &mut bytes, times: 2, first: 0 };
        corrector.run(&spectra, &slopes, rows).unwrap();
        (bytes[0] as i8, corrector.saturated().unwrap())
    };
    assert_eq!(run(&mut corrector), (127, vec![16]));
    corrector.set_gains([(0, &[Complex::new(0.1, 0.0)][..])]).unwrap();
    assert_eq!(run(&mut corrector), (100, vec![16]));
    let wrong = [Complex::new(f32::NAN, 0.0)];
    assert!(corrector.set_gains([(0, &wrong[..])]).unwrap_err().to_string().contains("finite"));
    assert_eq!(run(&mut corrector), (100, vec![16]));
}
