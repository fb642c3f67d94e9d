//! Antenna and source geometry: positions, apparent directions, delays and u, v, w.
//!
//! Invariant: the Earth's orientation and the sky's directions come from SOFA's routines, and a delay is
//! positive where the wave reaches an antenna later than the array's reference point.

mod array;
mod barycentre;
mod delay;
mod frame;
pub mod interferometer;
mod orientation;
mod sites;
mod sky;
mod time;
mod vector;

pub use array::{Antenna, Array, Location};
pub use barycentre::barycentric_mjd;
pub use delay::{DelayModel, DelayPolynomial};
pub use frame::{Direction, Frame};
pub use interferometer::Interferometer;
pub use orientation::{Dut1, OrientationDay, OrientationTable, orientation_table};
pub use sites::site_itrf_m;
pub use sky::{Apparent, PhaseCentre, Sky};
pub use time::{day_length_s, elapsed_s, plus_elapsed_s, tai_utc_s};
