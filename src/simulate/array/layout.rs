//! Antenna positions of synthetic arrays, in metres east, north and up of the centre.

use std::f64::consts::TAU;

use crate::simulate::rng::{Key, Stream};

/// Distribution of the antennas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// Uniform in a disc.
    Random,
    /// Along three arms, denser towards the centre.
    Wye,
}

/// Azimuth of the first arm in degrees, as at the Very Large Array.
const FIRST_ARM_DEG: f64 = 355.0;

/// Exponent of the distance along an arm as a function of the antenna's number, as at the Very Large Array.
const ARM_POWER: f64 = 1.716;

/// Range of heights, as a fraction of the spread.
const HEIGHTS: f64 = 0.01;

impl Layout {
    /// Returns names and positions of `antennas` antennas within a circle of `spread_m` metres diameter; heights
    /// differ by up to a hundredth of it.
    ///
    /// # Source
    /// Wye: Napier, Thompson & Ekers 1983, Proc. IEEE 71, 1295.
    pub fn places(self, antennas: usize, spread_m: f64, seed: u64) -> Vec<(String, [f64; 3])> {
        let digits = antennas.saturating_sub(1).to_string().len().max(2);
        let arm = antennas.div_ceil(3);
        let place = |antenna: usize| {
            let key = Key::new(seed, Stream::ArrayLayout, antenna as u64);
            let (radius, azimuth) = match self {
                Self::Random => (key.uniform(0).sqrt(), TAU * key.uniform(1)),
                Self::Wye => {
                    let place = (antenna / 3 + 1) as f64 / arm as f64;
                    let turn = (antenna % 3) as f64 / 3.0;
                    (place.powf(ARM_POWER), FIRST_ARM_DEG.to_radians() + TAU * turn)
                }
            };
            let radius = 0.5 * spread_m * radius;
            let up = HEIGHTS * spread_m * (key.uniform(2) - 0.5);
            let millimetres = |metres: f64| (metres * 1e3).round() / 1e3;
            let east_north_up = [radius * azimuth.sin(), radius * azimuth.cos(), up];
            (format!("ant{antenna:0digits$}"), east_north_up.map(millimetres))
        };
        (0..antennas).map(place).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn antennas_stand_apart_and_within_the_circle() {
        for layout in [Layout::Random, Layout::Wye] {
            let places = layout.places(27, 1000.0, 3);
            assert_eq!((places[0].0.as_str(), places[26].0.as_str()), ("ant00", "ant26"));
            for (i, (_, a)) in places.iter().enumerate() {
                assert!(a[0].hypot(a[1]) <= 500.001 && a[2].abs() <= 5.001, "{a:?}");
                let apart = |b: &[f64; 3]| (a[0] - b[0]).hypot(a[1] - b[1]);
                assert!(places[..i].iter().all(|(_, b)| apart(b) > 1.0), "{layout:?} {i}");
            }
            let farthest = places.iter().map(|(_, a)| a[0].hypot(a[1])).fold(0.0, f64::max);
            assert!(farthest > 400.0);
            assert_eq!(places, layout.places(27, 1000.0, 3));
        }
        assert_ne!(Layout::Random.places(2, 1.0, 3), Layout::Random.places(2, 1.0, 4));
        assert!(Layout::Wye.places(0, 1.0, 0).is_empty());
    }
}
