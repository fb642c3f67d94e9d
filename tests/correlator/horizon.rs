//! The altitude of a source is checked throughout an observation.

use crate::support::array;
use crate::support::memory;
use num_complex::Complex;
use sidereal::backend::Backend;
use sidereal::geometry::{Dut1, Sky};
use sidereal::io::voltages::VoltageHeader;
use sidereal::pipeline::correlator::{ArrayCorrelator, CorrelateOptions, PhaseCentre, Summary};
use sidereal::voltage::VoltageEncoding;

/// Of a day's observation of a source that is highest at both ends.
fn summary(dec_deg: f64) -> Summary {
    let known = memory::header(&[1400.0], VoltageEncoding::Complex8);
    let header = VoltageHeader { tsamp_s: 1.0, ..known };
    let array = array::array(2);
    let above = Sky::new(&array, Dut1::Table).unwrap().zenith(header.start).unwrap();
    let mut recordings: Vec<_> =
        (0..2).map(|i| array::recording(&header, i, 0, |_, _| Complex::ZERO)).collect();
    recordings.iter_mut().for_each(|memory| memory.header.times = Some(86_400));
    let name = "source".to_owned();
    let options = CorrelateOptions {
        phase_centre: PhaseCentre::Sidereal { ra_deg: above.ra_deg, dec_deg, name },
        integration_s: 1000.0,
        ..CorrelateOptions::new(16)
    };
    let inputs = array::inputs(&recordings);
    ArrayCorrelator::new(&array, inputs, &options, &Backend::best(1)).unwrap().summary()
}

#[test]
fn a_source_that_sets_and_rises_again_is_below_the_horizon() {
    for (dec_deg, is_below) in [(20.0, true), (80.0, false)] {
        let summary = summary(dec_deg);
        let (first, last) = summary.altitudes_deg.unwrap();
        assert!(first > 40.0 && last > 40.0, "{first} {last}");
        assert_eq!(summary.is_below_horizon(), is_below, "{dec_deg}");
    }
}
