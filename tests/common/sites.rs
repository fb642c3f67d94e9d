//! Sites all over the Earth, with random antennas, directions and times.

use sidereal::geometry::{Array, Direction, Dut1, Location, Sky};
use sidereal::units::Epoch;

use super::random::Random;

/// Sites on every side of the Earth, its poles among them.
pub(crate) const SITES: [(f64, f64, f64); 7] = [
    (21.4439, -30.713, 1053.0),
    (-107.6184, 34.0784, 2124.0),
    (116.6708, -26.7033, 377.8),
    (0.0, 90.0, 0.0),
    (30.0, -90.0, 2800.0),
    (180.0, 0.0, 0.0),
    (-0.001, 0.001, -50.0),
];

/// Position of one of [`SITES`].
pub(crate) fn location((longitude_deg, latitude_deg, height_m): (f64, f64, f64)) -> Location {
    Location { longitude_deg, latitude_deg, height_m }
}

/// Antennas with their positions east, north and up of a place.
pub(crate) fn random_enu(
    random: &mut Random,
    antennas: usize,
    scale_m: f64,
) -> Vec<(String, [f64; 3])> {
    let enu = |random: &mut Random| std::array::from_fn(|_| scale_m * random.gaussian());
    (0..antennas).map(|index| (format!("a{index}"), enu(random))).collect()
}

/// Uniform over the sky.
pub(crate) fn random_direction(random: &mut Random) -> Direction {
    let sine: f64 = 2.0 * random.uniform() - 1.0;
    Direction::new(360.0 * random.uniform(), sine.asin().to_degrees()).unwrap()
}

/// Within the years of the UT1 table.
pub(crate) fn random_epoch(random: &mut Random) -> Epoch {
    Epoch::new(41_400 + random.below(20_000) as i64, 86_400.0 * random.uniform())
}

/// The sky over five antennas at a site.
pub(crate) fn sky(site: (f64, f64, f64), random: &mut Random) -> Sky {
    let array = Array::from_enu("T", &random_enu(random, 5, 3000.0), location(site)).unwrap();
    Sky::new(&array, Dut1::Table).unwrap()
}
