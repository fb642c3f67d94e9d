//! Antenna and source geometry: positions, apparent directions, delays and u, v, w.
//!
//! Invariant: the Earth's orientation and the sky's directions come from SOFA's routines, and a delay is
//! positive where the wave reaches an antenna later than the array's reference point.
//!
//! # Examples
//! From the zenith a wave reaches an antenna 30 m above the reference point 100 ns before that point:
//!
//! ```
//! use sidereal::geometry::{Array, Dut1, Location, Sky};
//! use sidereal::units::Epoch;
//!
//! # fn main() -> sidereal::Result<()> {
//! let site = Location::from_itrf([5_109_360.0, 2_006_852.5, -3_238_948.0])?;
//! let antennas = [("near".to_owned(), [0.0, 0.0, 0.0]), ("high".to_owned(), [40.0, 20.0, 30.0])];
//! let sky = Sky::new(&Array::from_enu("two", &antennas, site)?, Dut1::Table)?;
//! let epoch = Epoch { day: 60_676, seconds: 43_200.0 };
//! let delays_s = sky.delays_s(sky.zenith(epoch)?, epoch)?;
//! assert!(delays_s[0].abs() < 1e-15);
//! assert!((delays_s[1] + 100.07e-9).abs() < 0.01e-9, "{delays_s:?}");
//! # Ok(())
//! # }
//! ```

mod array;
mod delay;
mod earth;
mod interferometer;
mod sky;

pub use array::{Antenna, Array, Location, site_itrf_m};
pub use delay::{DelayModel, DelayPolynomial};
pub use earth::{
    Dut1, LEAP_SECONDS_END_MJD, OrientationDay, OrientationTable, day_length_s, elapsed_s,
    orientation_table, plus_elapsed_s, tai_utc_s, utc_of_tai,
};
pub use interferometer::{INTERFEROMETERS, Interferometer};
pub use sky::{Apparent, Direction, Frame, PhaseCentre, Sky, barycentric_mjd};

/// A vector of three elements.
type Vector = [f64; 3];

/// A matrix: rows of three.
type Matrix = [[f64; 3]; 3];

fn dot(a: &Vector, b: &Vector) -> f64 {
    a[0] * b[0] + a[1] * b[1] + a[2] * b[2]
}

fn cross(a: &Vector, b: &Vector) -> Vector {
    [a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]]
}

fn minus(a: &Vector, b: &Vector) -> Vector {
    std::array::from_fn(|k| a[k] - b[k])
}

/// Computes `a + factor b`.
fn plus_scaled(a: &Vector, factor: f64, b: &Vector) -> Vector {
    std::array::from_fn(|k| a[k] + factor * b[k])
}

fn length(a: &Vector) -> f64 {
    dot(a, a).sqrt()
}

/// Returns the unit vector along `a`, which must not be 0.
fn unit(a: &Vector) -> Vector {
    let length = length(a);
    a.map(|value| value / length)
}

/// Multiplies the matrix and the vector.
fn rotate(matrix: &Matrix, a: &Vector) -> Vector {
    std::array::from_fn(|row| dot(&matrix[row], a))
}

/// Multiplies the transposed matrix and the vector: the inverse rotation.
fn rotate_back(matrix: &Matrix, a: &Vector) -> Vector {
    std::array::from_fn(|k| matrix[0][k] * a[0] + matrix[1][k] * a[1] + matrix[2][k] * a[2])
}
