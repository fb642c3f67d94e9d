//! A small array and one source, with statistics of its streams for tests.

use num_complex::Complex;
use sidereal::geometry::{Antenna, Array, Direction};
use sidereal::io::voltages::VoltageSource;
use sidereal::simulate::array::{ArraySimulator, PointSource};
use sidereal::voltage::VoltageBlock;

/// Antennas some tens of metres apart, near longitude 0 on the equator.
pub(crate) fn array(antennas: usize) -> Array {
    let antenna = |i: usize| Antenna {
        name: format!("ant{i}"),
        number: i as i64,
        itrf_m: [6.378e6, 37.0 * i as f64, 11.0 * (i * i) as f64],
        diameter_m: None,
    };
    Array::from_itrf("test", (0..antennas).map(antenna).collect(), None).unwrap()
}

pub(crate) fn source(flux_jy: f64) -> PointSource {
    PointSource::new("one", Direction { ra_deg: 10.0, dec_deg: 20.0 }, flux_jy)
}

fn read(source: &mut dyn VoltageSource, times: usize) -> VoltageBlock<'static> {
    let mut block = source.header().block(times);
    assert_eq!(source.read(&mut block).unwrap(), times);
    block
}

pub(crate) fn values(block: &VoltageBlock, stream: usize) -> Vec<Complex<f64>> {
    let voltages = block.voltages();
    (0..voltages.times()).map(|n| voltages.value(stream, n)).collect()
}

/// One stream of every antenna.
pub(crate) fn streams(simulator: &ArraySimulator, stream: usize) -> Vec<Vec<Complex<f64>>> {
    let whole = |i: usize| {
        let mut antenna = simulator.antenna(i).unwrap();
        let times = antenna.header().times.unwrap() as usize;
        values(&read(&mut antenna, times), stream)
    };
    (0..simulator.antennas()).map(whole).collect()
}

/// Mean of x conj(y).
pub(crate) fn mean(x: &[Complex<f64>], y: &[Complex<f64>]) -> Complex<f64> {
    x.iter().zip(y).map(|(x, y)| x * y.conj()).sum::<Complex<f64>>() / x.len() as f64
}
