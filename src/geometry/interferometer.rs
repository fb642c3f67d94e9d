//! Gravitational-wave interferometers: positions, antenna patterns and arrival times.
//!
//! Right ascension and declination follow the convention of the field's tools: the hour angle is the Greenwich mean
//! sidereal time of date less the right ascension, without precession, nutation, aberration or polar motion.

use sofars::erst::gmst06;

use super::earth::{Dut1, Tai};
use super::{Matrix, Vector, dot, length, minus, rotate};
use crate::units::{GPS_ZERO_MJD, Gps, NS_PER_S, SECONDS_PER_DAY, SPEED_OF_LIGHT_M_S};

/// TAI - GPS in seconds.
const TAI_GPS_S: i64 = 19;

/// Two-arm interferometer with arms short against the wavelength.
///
/// # Source
/// Positions and arms: Anderson et al. 2001, Phys. Rev. D 63, 042003, and the tables of LAL (`LALDetectors.h`) that
/// it describes; WGS84 coordinates fixed to the Earth.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interferometer {
    /// Two-letter prefix of channel names: `H1`.
    pub name: &'static str,
    /// Full name of the site.
    pub site: &'static str,
    /// Vertex, in metres from the Earth's centre.
    pub itrf_m: [f64; 3],
    /// `D = (x x^T - y y^T) / 2` of the arms' unit vectors x and y: the strain is `D : h`.
    pub response: [[f64; 3]; 3],
}

/// All known interferometers.
pub static INTERFEROMETERS: [Interferometer; 5] = [
    Interferometer {
        name: "H1",
        site: "LIGO Hanford",
        itrf_m: [-2.161_414_926_36e6, -3.834_695_178_89e6, 4.600_350_226_64e6],
        response: response(
            [-0.223_892_661_54, 0.799_830_627_46, 0.556_904_878_31],
            [-0.913_978_185_74, 0.026_094_039_89, -0.404_923_421_25],
        ),
    },
    Interferometer {
        name: "L1",
        site: "LIGO Livingston",
        itrf_m: [-7.427_604_472_38e4, -5.496_283_719_71e6, 3.224_257_017_44e6],
        response: response(
            [-0.954_574_121_53, -0.141_580_773_40, -0.262_189_113_24],
            [0.297_741_568_94, -0.487_910_336_47, -0.820_544_612_86],
        ),
    },
    Interferometer {
        name: "V1",
        site: "Virgo",
        itrf_m: [4.546_374_099_00e6, 8.429_896_976_26e5, 4.378_576_962_41e6],
        response: response(
            [-0.700_458_214_79, 0.208_489_486_19, 0.682_561_662_77],
            [-0.053_792_553_68, -0.969_081_805_49, 0.240_804_517_08],
        ),
    },
    Interferometer {
        name: "K1",
        site: "KAGRA",
        itrf_m: [-3_777_336.024, 3_484_898.411, 3_765_313.697],
        response: response(
            [-0.375_904_0, -0.836_158_3, 0.399_418_9],
            [0.716_437_8, 0.011_140_76, 0.697_562_0],
        ),
    },
    Interferometer {
        name: "G1",
        site: "GEO600",
        itrf_m: [3.856_309_949_26e6, 6.665_989_563_17e5, 5.019_641_417_25e6],
        response: response(
            [-0.445_306_769_05, 0.866_513_541_30, 0.225_513_113_12],
            [-0.626_057_567_76, -0.552_186_095_24, 0.550_583_724_86],
        ),
    },
];

impl Interferometer {
    /// Returns the interferometer with this name (`H1`).
    pub fn by_name(name: &str) -> Option<&'static Self> {
        INTERFEROMETERS.iter().find(|interferometer| interferometer.name == name)
    }

    /// Returns the antenna response to the plus and cross polarization of a wave from a direction.
    ///
    /// `F+ = D : (X X^T - Y Y^T)`, `Fx = D : (X Y^T + Y X^T)`: X and Y are the axes of the wave's frame, rotated by
    /// the polarization angle about the direction to the source, from the west towards the north.
    ///
    /// # Numerics
    /// After the end of the IERS table, UT1 - TAI keeps its last value.
    /// # Source
    /// Anderson et al. 2001, Phys. Rev. D 63, 042003, eqs. B4 to B8.
    pub fn antenna_pattern(
        &self,
        ra_rad: f64,
        dec_rad: f64,
        polarization_rad: f64,
        gps: Gps,
    ) -> (f64, f64) {
        let (sin_hour, cos_hour) = (mean_sidereal_time_rad(gps) - ra_rad).sin_cos();
        let (sin_dec, cos_dec) = dec_rad.sin_cos();
        let (sin_psi, cos_psi) = polarization_rad.sin_cos();
        let west = [-sin_hour, -cos_hour, 0.0];
        let north = [-cos_hour * sin_dec, sin_hour * sin_dec, cos_dec];
        let x: Vector = std::array::from_fn(|k| cos_psi * west[k] + sin_psi * north[k]);
        let y: Vector = std::array::from_fn(|k| cos_psi * north[k] - sin_psi * west[k]);
        let (along_x, along_y) = (rotate(&self.response, &x), rotate(&self.response, &y));
        (dot(&x, &along_x) - dot(&y, &along_y), dot(&x, &along_y) + dot(&y, &along_x))
    }

    /// Returns the arrival time at the vertex less that at the Earth's centre, in seconds.
    pub fn delay_from_centre_s(&self, ra_rad: f64, dec_rad: f64, gps: Gps) -> f64 {
        let (sin_hour, cos_hour) = (mean_sidereal_time_rad(gps) - ra_rad).sin_cos();
        let (sin_dec, cos_dec) = dec_rad.sin_cos();
        let towards = [cos_dec * cos_hour, -cos_dec * sin_hour, sin_dec];
        -dot(&self.itrf_m, &towards) / SPEED_OF_LIGHT_M_S
    }

    /// Returns the light travel time to another interferometer, in seconds: the largest possible arrival-time
    /// difference.
    pub fn light_travel_s(&self, other: &Self) -> f64 {
        length(&minus(&self.itrf_m, &other.itrf_m)) / SPEED_OF_LIGHT_M_S
    }
}

/// Computes Greenwich mean sidereal time (IAU 2006) in radians, 0 to 2 pi.
///
/// # Numerics
/// After the end of the IERS table, UT1 - TAI keeps its last value.
/// # Source
/// SOFA's `gmst06`: Capitaine, Wallace & Chapront 2005, A&A 432, 355.
fn mean_sidereal_time_rad(gps: Gps) -> f64 {
    let seconds = gps.ns.div_euclid(NS_PER_S) + TAI_GPS_S;
    let day_s = SECONDS_PER_DAY as i64;
    let part_s = gps.ns.rem_euclid(NS_PER_S) as f64 / NS_PER_S as f64;
    let day = GPS_ZERO_MJD + seconds.div_euclid(day_s);
    let moment = Tai::new(day, seconds.rem_euclid(day_s) as f64 + part_s);
    let (ut1, ut1_part) = moment.julian(Dut1::Table.ut1_tai_or_last_s(&moment));
    let (tt, tt_part) = moment.terrestrial();
    gmst06(ut1, ut1_part, tt, tt_part)
}

/// Computes `(x x^T - y y^T) / 2`.
const fn response(x: Vector, y: Vector) -> Matrix {
    let mut tensor = [[0.0; 3]; 3];
    let mut row = 0;
    while row < 3 {
        let mut column = 0;
        while column < 3 {
            tensor[row][column] = 0.5 * (x[row] * x[column] - y[row] * y[column]);
            column += 1;
        }
        row += 1;
    }
    tensor
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arms_are_unit_vectors_that_lie_level_and_across() {
        for detector in &INTERFEROMETERS {
            // Unit arms: no trace, and D : D = (1 - (x . y)^2) / 2.
            let trace: f64 = (0..3).map(|k| detector.response[k][k]).sum();
            assert!(trace.abs() < 1e-7, "{}: {trace}", detector.name);
            let square: f64 = detector.response.as_flattened().iter().map(|d| d * d).sum();
            let expected = if detector.name == "G1" { 0.4971 } else { 0.5 };
            assert!((square - expected).abs() < 1e-4, "{}: {square}", detector.name);
            // The response to the vertical nearly vanishes: the arms are within 0.1 degree of the horizon, up to the
            // ellipsoid's flattening.
            let up = detector.itrf_m.map(|x| x / length(&detector.itrf_m));
            let vertical = dot(&up, &rotate(&detector.response, &up));
            assert!(vertical.abs() < 1e-4, "{}: {vertical}", detector.name);
            assert!((6.35e6..6.38e6).contains(&length(&detector.itrf_m)));
        }
        assert!(
            Interferometer::by_name("H1").is_some()
                && Interferometer::by_name("h1").is_none()
                && Interferometer::by_name("X9").is_none()
        );
    }

    #[test]
    fn known_distances_and_sums_over_the_sky() {
        let [h1, l1, v1] = ["H1", "L1", "V1"].map(|name| Interferometer::by_name(name).unwrap());
        assert!((h1.light_travel_s(l1) - 0.010_012_8).abs() < 1e-6);
        assert!((h1.light_travel_s(v1) - 0.027_288).abs() < 1e-5);
        assert!((l1.light_travel_s(v1) - 0.026_448).abs() < 1e-5);
        // F+^2 + Fx^2 does not depend on the polarization, and its mean over the sky is 2/5.
        let gps = Gps::from_s(1_126_259_462.0);
        let power = |ra: f64, dec: f64, psi: f64| {
            let (plus, cross) = l1.antenna_pattern(ra, dec, psi, gps);
            plus * plus + cross * cross
        };
        assert!((power(0.3, 0.9, 0.1) - power(0.3, 0.9, 1.3)).abs() < 1e-14);
        let mut mean = 0.0;
        for row in 0..60 {
            let dec = ((f64::from(row) + 0.5) / 30.0 - 1.0).asin();
            mean += (0..60).map(|k| power(f64::from(k) * 0.104_72, dec, 0.0)).sum::<f64>() / 3600.0;
        }
        assert!((mean - 0.4).abs() < 1e-3, "{mean}");
    }

    #[test]
    fn a_wave_passes_in_the_time_that_light_takes() {
        let gps = Gps::from_s(1_187_008_882.4);
        let (h1, l1) =
            (Interferometer::by_name("H1").unwrap(), Interferometer::by_name("L1").unwrap());
        let mut widest: f64 = 0.0;
        for step in 0..2000 {
            let (ra, dec) = (f64::from(step) * 2.4, (f64::from(step) / 1000.0 - 1.0).asin());
            let apart = h1.delay_from_centre_s(ra, dec, gps) - l1.delay_from_centre_s(ra, dec, gps);
            widest = widest.max(apart.abs());
        }
        assert!(widest <= h1.light_travel_s(l1) && widest > 0.0099, "{widest}");
    }

    #[test]
    fn sidereal_time_runs_on_after_the_table() {
        // 2000 January 1, 12 h UT1: 18.697374558 h (Astronomical Almanac).
        let j2000 = Gps::from_s(630_763_213.0 - 0.355);
        let hours = mean_sidereal_time_rad(j2000).to_degrees() / 15.0;
        assert!((hours - 18.697_374_558).abs() < 5e-7, "{hours}");
        let late = |s: f64| mean_sidereal_time_rad(Gps::from_s(2.5e9 + s));
        let turned = (late(3600.0) - late(0.0)).rem_euclid(std::f64::consts::TAU);
        assert!((turned - 3600.0 * 7.292_115_9e-5).abs() < 1e-6, "{turned}");
        assert!(mean_sidereal_time_rad(Gps { ns: i64::MAX }).is_finite());
        assert!(mean_sidereal_time_rad(Gps { ns: i64::MIN }).is_finite());
    }
}
