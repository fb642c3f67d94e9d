//! Arrays in memory for the tests of correlation.
// Each test binary that includes this file uses a part of it.
#![allow(dead_code)]

use num_complex::Complex;
use sidereal::backend::Backend;
use sidereal::geometry::{Array, DelayPolynomial, Location};
use sidereal::io::voltages::VoltageHeader;
use sidereal::pipeline::correlator::{ArrayCorrelator, ArrayInput, CorrelateOptions, Integration};
use sidereal::units::Epoch;

use super::memory::Memory;

/// Returns antennas some metres apart, at latitude 37.
pub(crate) fn array(antennas: usize) -> Array {
    let antenna = |i: usize| {
        let (east, north) = (13.0 * (i * i) as f64, 29.0 * i as f64 - 5.0);
        (name(i), [east, north, 0.5 * i as f64])
    };
    let antennas: Vec<_> = (0..antennas).map(antenna).collect();
    let location = Location { longitude_deg: -107.6, latitude_deg: 37.0, height_m: 2100.0 };
    Array::from_enu("test", &antennas, location).unwrap()
}

/// An antenna's name.
pub(crate) fn name(antenna: usize) -> String {
    format!("A{antenna}")
}

/// A recording each.
pub(crate) fn inputs(recordings: &[Memory]) -> Vec<ArrayInput> {
    let input = |(i, memory): (usize, &Memory)| ArrayInput {
        antennas: vec![name(i)],
        source: memory.boxed(),
    };
    recordings.iter().enumerate().map(input).collect()
}

/// The recording of one antenna.
pub(crate) fn recording(
    header: &VoltageHeader,
    antenna: usize,
    times: usize,
    value: impl Fn(usize, usize) -> Complex<f64>,
) -> Memory {
    let path = format!("{}.dada", name(antenna)).into();
    Memory::new(VoltageHeader { path, ..header.clone() }, times, value)
}

/// All integrations.
pub(crate) fn drain(correlator: &mut ArrayCorrelator) -> Vec<Integration> {
    let mut all = Vec::new();
    let mut integration = Integration::new();
    while correlator.next_integration(&mut integration).unwrap() {
        all.push(integration.clone());
    }
    assert_eq!(all.len() as u64, correlator.header().integrations);
    all
}

/// All integrations of recordings without delays.
pub(crate) fn correlate(
    recordings: &[Memory],
    options: &CorrelateOptions,
    threads: usize,
) -> (ArrayCorrelator, Vec<Integration>) {
    let array = array(recordings.len());
    let backend = Backend::best(threads);
    let mut correlator =
        ArrayCorrelator::new(&array, inputs(recordings), options, &backend).unwrap();
    let all = drain(&mut correlator);
    (correlator, all)
}

/// Returns a polynomial that begins at the start of the recordings.
pub(crate) fn polynomial(start: Epoch, coefficients: &[f64]) -> DelayPolynomial {
    let mut all = [0.0; 6];
    all[..coefficients.len()].copy_from_slice(coefficients);
    DelayPolynomial { start, length_s: 1e9, coefficients: all }
}

/// Angle between two complex numbers in degrees.
pub(crate) fn degrees(a: Complex<f64>, b: Complex<f64>) -> f64 {
    (a * b.conj()).arg().to_degrees()
}
