//! Properties of positions, directions, delays and u, v, w that hold for any input.

#[path = "common/random.rs"]
mod random;
#[path = "common/sites.rs"]
mod sites;

use random::Random;
use sidereal::Result;
use sidereal::geometry::{
    Antenna, Array, DelayModel, Direction, Dut1, PhaseCentre, Sky, plus_elapsed_s,
};
use sidereal::units::{Epoch, SPEED_OF_LIGHT_M_S};
use sites::{SITES, location, random_direction, random_enu, random_epoch, sky};

/// Turns of the Earth in radians a second.
const RATE: f64 = 7.292_115_855e-5;

/// Days of leap seconds, each in UTC.
const LEAP_DAYS: [i64; 2] = [57_753, 51_178];

fn dot(a: &[f64; 3], b: &[f64; 3]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn distance(a: &[f64; 3], b: &[f64; 3]) -> f64 {
    let square: f64 = a.iter().zip(b).map(|(a, b)| (a - b) * (a - b)).sum();
    square.sqrt()
}

#[test]
fn local_and_geocentric_positions_go_round() {
    let mut random = Random::new(1);
    for site in SITES {
        let enu = random_enu(&mut random, 20, 30_000.0);
        let array = Array::from_enu("T", &enu, location(site)).unwrap();
        for (index, (_, expected)) in enu.iter().enumerate() {
            let found = array.enu_m(index).unwrap();
            assert!(distance(&found, expected) < 1e-6, "{site:?}: {found:?} is not {expected:?}");
        }
        let found = array.location().unwrap();
        assert!((found.latitude_deg - site.1).abs() < 1e-12 * 180.0, "{found:?}");
        assert!((found.height_m - site.2).abs() < 1e-8, "{found:?}");
        assert!(array.enu_m(20).is_err());
    }
}

#[test]
fn a_baseline_keeps_its_length_and_w_is_its_delay() {
    let mut random = Random::new(2);
    for site in SITES {
        let sky = sky(site, &mut random);
        let enu = sky.enu_m();
        for _ in 0..20 {
            let (direction, epoch) = (random_direction(&mut random), random_epoch(&mut random));
            let uvw = sky.uvw_m(direction, epoch).unwrap();
            let delays = sky.delays_s(direction, epoch).unwrap();
            for (a, b) in [(0, 1), (2, 3), (4, 0)] {
                let rigid = distance(&uvw[a], &uvw[b]) - distance(&enu[a], &enu[b]);
                assert!(rigid.abs() < 1e-8, "{site:?}: off by {rigid} m");
            }
            for (uvw, delay) in uvw.iter().zip(&delays) {
                assert!((uvw[2] / SPEED_OF_LIGHT_M_S + delay).abs() < 1e-19);
            }
            // u, v, w rotate as east, north and up do.
            let turn = |v: &[[f64; 3]]| {
                let [a, b, c] = [v[0], v[1], v[2]];
                dot(
                    &a,
                    &[
                        b[1] * c[2] - b[2] * c[1],
                        b[2] * c[0] - b[0] * c[2],
                        b[0] * c[1] - b[1] * c[0],
                    ],
                )
            };
            assert!((turn(&uvw) / turn(&enu) - 1.0).abs() < 1e-9);
        }
    }
}

#[test]
fn what_stands_in_the_zenith_is_overhead() {
    let mut random = Random::new(3);
    for site in SITES {
        let sky = sky(site, &mut random);
        for _ in 0..10 {
            let epoch = random_epoch(&mut random);
            let zenith = sky.zenith(epoch).unwrap();
            let (altitude, _) = sky.altitude_azimuth_deg(zenith, epoch).unwrap();
            assert!((altitude - 90.0).abs() < 1e-7, "{site:?}: {altitude}");
            for (delay, enu) in sky.delays_s(zenith, epoch).unwrap().iter().zip(sky.enu_m()) {
                assert!((delay + enu[2] / SPEED_OF_LIGHT_M_S).abs() < 1e-19);
            }
            // Precession, nutation, aberration and polar motion move it by less than half a degree from
            // the place's latitude and sidereal time.
            assert!((zenith.dec_deg - location(site).latitude_deg).abs() < 0.5, "{zenith:?}");
            if site.1.abs() < 80.0 {
                let sidereal = sky.local_sidereal_time_rad(epoch).unwrap().to_degrees();
                let off = (zenith.ra_deg - sidereal + 180.0).rem_euclid(360.0) - 180.0;
                assert!(off.abs() < 1.0, "{zenith:?} at {sidereal}");
            }
        }
    }
}

#[test]
fn directions_go_there_and_back() {
    let mut random = Random::new(4);
    let sky = sky(SITES[0], &mut random);
    for _ in 0..200 {
        let (direction, epoch) = (random_direction(&mut random), random_epoch(&mut random));
        let frame = sky.frame(epoch).unwrap();
        let found = frame.itrf(&frame.direction(&frame.itrf(&direction)));
        assert!(distance(&found, &frame.itrf(&direction)) < 1e-14);
        let again = frame.direction(&frame.itrf(&direction));
        assert!((again.dec_deg - direction.dec_deg).abs() < 1e-10, "{again:?} of {direction:?}");
    }
}

#[test]
fn the_pole_of_date_stands_still_at_the_places_latitude() {
    let mut random = Random::new(5);
    for site in SITES {
        let sky = sky(site, &mut random);
        let start = random_epoch(&mut random);
        let pole = sky.frame(start).unwrap().direction(&[0.0, 0.0, 1.0]);
        for hour in 0..24 {
            let epoch = plus_elapsed_s(&start, f64::from(hour) * 3600.0).unwrap();
            let (altitude, _) = sky.altitude_azimuth_deg(pole, epoch).unwrap();
            // It turns about the axis of rotation, up to 0.6" away (polar motion), and its aberration by
            // the place's own velocity, up to 0.3", turns too.
            assert!((altitude - site.1).abs() < 2.0 / 3600.0, "{site:?}: {altitude}");
        }
    }
}

#[test]
fn a_source_culminates_at_its_right_ascension() {
    let mut random = Random::new(6);
    for site in &SITES[..3] {
        let sky = sky(*site, &mut random);
        for _ in 0..20 {
            let (direction, epoch) = (random_direction(&mut random), random_epoch(&mut random));
            let apparent = sky.apparent(direction, epoch).unwrap();
            let sidereal = sky.local_sidereal_time_rad(epoch).unwrap().to_degrees();
            let hour_angle = (sidereal - apparent.ra_deg).to_radians();
            let (dec, latitude) = (apparent.dec_deg.to_radians(), site.1.to_radians());
            let sine = latitude.sin() * dec.sin() + latitude.cos() * dec.cos() * hour_angle.cos();
            let (altitude, azimuth) = sky.altitude_azimuth_deg(direction, epoch).unwrap();
            assert!((altitude.to_radians().sin() - sine).abs() < 1e-12);
            // West of the meridian after culmination.
            assert_eq!(azimuth > 180.0, hour_angle.sin() > 0.0, "{azimuth} {hour_angle}");
            // Axes of the file's convention: u, v of the apparent position, rotated by the angle.
            let uvw = sky.uvw_m(direction, epoch).unwrap();
            let expected = by_the_book(&sky, site, (&apparent, sidereal));
            for (found, expected) in uvw.iter().zip(&expected) {
                assert!(distance(found, expected) < 1e-8, "{found:?} is not {expected:?}");
            }
        }
    }
}

/// u, v, w as in Thompson, Moran & Swenson (2017), section 4.1, rotated to the ICRS north.
fn by_the_book(
    sky: &Sky,
    site: &(f64, f64, f64),
    (apparent, sidereal_deg): (&sidereal::geometry::Apparent, f64),
) -> Vec<[f64; 3]> {
    let (sin_h, cos_h) = (sidereal_deg - apparent.ra_deg).to_radians().sin_cos();
    let (sin_d, cos_d) = apparent.dec_deg.to_radians().sin_cos();
    let (sin_p, cos_p) = apparent.position_angle_deg.to_radians().sin_cos();
    let (sin_l, cos_l) = site.1.to_radians().sin_cos();
    let turned = |[east, north, up]: [f64; 3]| {
        // x to the meridian, y east, z to the pole.
        let (x, y, z) = (-sin_l * north + cos_l * up, east, cos_l * north + sin_l * up);
        let u = sin_h * x + cos_h * y;
        let v = -sin_d * cos_h * x + sin_d * sin_h * y + cos_d * z;
        let w = cos_d * cos_h * x - cos_d * sin_h * y + sin_d * z;
        [u * cos_p - v * sin_p, u * sin_p + v * cos_p, w]
    };
    sky.enu_m().into_iter().map(turned).collect()
}

#[test]
fn leap_seconds_pass_as_any_second() {
    let mut random = Random::new(7);
    let sky = sky(SITES[5], &mut random);
    let equator = Direction::new(77.0, 0.0).unwrap();
    for day in LEAP_DAYS {
        let before = Epoch::new(day, 86_398.5);
        let at =
            |seconds: f64| sky.itrf(equator, plus_elapsed_s(&before, seconds).unwrap()).unwrap();
        // Steps of half a second over the leap second and the following midnight.
        for step in 0..8 {
            let (from, to) = (at(0.5 * f64::from(step)), at(0.5 * f64::from(step + 1)));
            let turned = distance(&from, &to) / 0.5;
            assert!((turned / RATE - 1.0).abs() < 1e-5, "day {day}, step {step}: {turned}");
        }
        let after = plus_elapsed_s(&before, 2.5).unwrap();
        assert_eq!(after, Epoch::new(day + 1, 0.0));
        // UT1 itself goes on: UT1 - UTC jumps.
        let jump = Dut1::Table.at(after).unwrap() - Dut1::Table.at(before).unwrap();
        assert!((jump - 1.0).abs() < 1e-5, "{jump}");
    }
}

#[test]
fn ut1_turns_the_sky_about_the_pole() {
    let mut random = Random::new(8);
    let array =
        Array::from_enu("T", &random_enu(&mut random, 2, 100.0), location(SITES[0])).unwrap();
    let epoch = Epoch::new(60_000, 1000.0);
    let [early, late] = [-0.2, 0.3].map(|seconds| {
        let sky = Sky::new(&array, Dut1::Given(seconds)).unwrap();
        sky.itrf(Direction::new(10.0, 0.0).unwrap(), epoch).unwrap()
    });
    let longitude = |v: &[f64; 3]| v[1].atan2(v[0]);
    let turned = longitude(&early) - longitude(&late);
    assert!((turned / (0.5 * RATE) - 1.0).abs() < 1e-6, "{turned}");
}

/// The largest difference of a model from the sky itself, at random moments, in s.
fn worst(
    sky: &Sky,
    (start, length_s): (Epoch, f64),
    direction: Direction,
    random: &mut Random,
) -> Result<f64> {
    let cables: Vec<f64> = (0..sky.antennas()).map(|index| 1e-7 * index as f64).collect();
    let centre = PhaseCentre::Source(direction);
    let model = DelayModel::fit(sky, centre, start, length_s, &cables)?;
    let mut worst = 0.0f64;
    for moment in 0..40 {
        let seconds = match moment {
            0 => -0.5,
            1 => length_s + 0.5,
            _ => length_s * random.uniform(),
        };
        let truth = sky.delays_s(direction, plus_elapsed_s(&start, seconds)?)?;
        for (antenna, truth) in truth.iter().enumerate() {
            worst = worst.max((model.at(antenna, seconds) - truth - cables[antenna]).abs());
        }
    }
    Ok(worst)
}

#[test]
fn polynomials_follow_the_delays() {
    let mut random = Random::new(9);
    let antenna = |(index, site): (usize, &(f64, f64, f64))| Antenna {
        name: index.to_string(),
        number: index as i64,
        itrf_m: location(*site).itrf_m().unwrap(),
        diameter_m: None,
    };
    let antennas = SITES.iter().enumerate().map(antenna).collect();
    let earth = location(SITES[0]).itrf_m().unwrap();
    let earth = Sky::new(&Array::from_itrf("Earth", antennas, Some(earth)).unwrap(), Dut1::Table);
    let small = sky(SITES[1], &mut random);
    let starts =
        [Epoch::new(60_000, 80_000.0), Epoch::new(57_753, 86_000.0), random_epoch(&mut random)];
    for start in starts {
        for length_s in [1e-3, 1.0, 5.5, 480.0, 481.0, 7200.0, 86_400.0] {
            let direction = random_direction(&mut random);
            for sky in [earth.as_ref().unwrap(), &small] {
                let worst = worst(sky, (start, length_s), direction, &mut random).unwrap();
                assert!(worst < 1e-14, "{start:?}, {length_s} s: {worst}");
            }
        }
    }
    let far = (Epoch::new(50_000, 0.0), 60.0 * 86_400.0);
    let worst = worst(&small, far, random_direction(&mut random), &mut random).unwrap();
    assert!(worst < 2e-15, "{worst}");
}

#[test]
fn pieces_meet_and_rates_are_slopes() {
    let mut random = Random::new(10);
    let sky = sky(SITES[2], &mut random);
    let centre = PhaseCentre::Source(random_direction(&mut random));
    let start = Epoch::new(59_000, 3.25);
    let model = DelayModel::fit(&sky, centre, start, 3000.0, &[]).unwrap();
    assert_eq!((model.antennas(), model.start(), model.length_s()), (5, start, 3000.0));
    for antenna in 0..5 {
        let pieces = model.polynomials(antenna);
        assert_eq!(pieces[0].start, start);
        for pair in pieces.windows(2) {
            assert!((pair[0].at(pair[0].length_s) - pair[1].at(0.0)).abs() < 1e-18);
            let apart = pair[1].start.seconds_since(&pair[0].start);
            assert!((apart - pair[0].length_s).abs() < 1e-9);
        }
        for seconds in [-0.5, 0.0, 777.0, 2999.5, 3000.5] {
            let slope = model.at(antenna, seconds + 1.0) - model.at(antenna, seconds - 1.0);
            assert!((model.rate(antenna, seconds) - slope / 2.0).abs() < 1e-17, "at {seconds}");
        }
    }
}

#[test]
fn a_drift_does_not_track() {
    let mut random = Random::new(11);
    let sky = sky(SITES[0], &mut random);
    let cables: Vec<f64> = (0..5).map(|index| 2e-9 * f64::from(index)).collect();
    let (start, length_s) = (Epoch::new(58_000, 0.0), 4000.0);
    let zenith = DelayModel::fit(&sky, PhaseCentre::Zenith, start, length_s, &cables).unwrap();
    let unphased = DelayModel::fit(&sky, PhaseCentre::Unphased, start, length_s, &cables).unwrap();
    for (antenna, (cable, enu)) in cables.iter().zip(sky.enu_m()).enumerate() {
        for seconds in [0.0, 2000.0, 4000.0] {
            let up = zenith.at(antenna, seconds) - cable + enu[2] / SPEED_OF_LIGHT_M_S;
            assert!(up.abs() < 1e-20, "{up}");
            assert_eq!(unphased.at(antenna, seconds), *cable);
        }
    }
}

#[test]
fn a_setting_source_is_seen_to_set() {
    let mut random = Random::new(12);
    let sky = sky(SITES[5], &mut random);
    let start = Epoch::new(60_100, 0.0);
    let overhead = sky.zenith(start).unwrap();
    let [first, last] = sky.altitudes_deg(overhead, start, 8.0 * 3600.0).unwrap();
    assert!(first > 89.9 && (-31.0..-29.0).contains(&last), "{first} {last}");
}

#[test]
fn what_can_not_be_is_refused_by_name() {
    let mut random = Random::new(13);
    let enu = random_enu(&mut random, 2, 10.0);
    let array = Array::from_enu("T", &enu, location(SITES[0])).unwrap();
    let say = |error: sidereal::Error| error.to_string();
    assert!(say(Array::from_itrf("T", vec![], None).unwrap_err()).contains("antennas is 0"));
    let twice = [enu[0].clone(), enu[0].clone()];
    let twice = Array::from_enu("T", &twice, location(SITES[0])).unwrap_err();
    assert!(say(twice).contains("a0, but each name must be unique"));
    for (site, named) in [
        ((0.0, 90.5, 0.0), "latitude_deg is 90.5"),
        ((400.0, 0.0, 0.0), "longitude_deg is 400"),
        ((0.0, 0.0, f64::NAN), "height_m is NaN"),
    ] {
        let error = say(Array::from_enu("T", &enu, location(site)).unwrap_err());
        assert!(error.contains(named), "{error}");
    }
    assert!(Direction::new(0.0, -90.1).is_err() && Direction::new(f64::NAN, 0.0).is_err());

    let sky = Sky::new(&array, Dut1::Table).unwrap();
    let direction = Direction::new(1.0, 2.0).unwrap();
    let error = say(sky.delays_s(direction, Epoch::default()).unwrap_err());
    assert!(error.contains("time (MJD) is 0"), "{error}");
    // After its last day the table of UT1 holds its values.
    assert!(sky.delays_s(direction, Epoch::new(70_000, 0.0)).is_ok());
    let fit = |length_s| {
        let start = Epoch::new(60_000, 0.0);
        DelayModel::fit(&sky, PhaseCentre::Unphased, start, length_s, &[])
    };
    for length_s in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e8] {
        assert!(say(fit(length_s).unwrap_err()).contains("observation's length"));
    }
    let enu: Vec<_> = (0..4096).map(|i| (format!("a{i}"), [f64::from(i), 0.0, 0.0])).collect();
    let large = Array::from_enu("T", &enu, location(SITES[0])).unwrap();
    let large = Sky::new(&large, Dut1::Table).unwrap();
    let (start, length_s) = (Epoch::new(59_000, 0.0), 90.0 * 86_400.0);
    let error =
        say(DelayModel::fit(&large, PhaseCentre::Unphased, start, length_s, &[]).unwrap_err());
    assert!(error.contains("4096 antennas") && error.contains("bytes"), "{error}");
    let (start, length_s) = (Epoch::new(57_753, 86_000.0), 1000.0);
    let centre = PhaseCentre::Source(direction);
    assert!(DelayModel::fit(&sky, centre, start, length_s, &[0.0]).is_err());
    assert!(DelayModel::fit(&sky, centre, start, length_s, &[0.0, f64::NAN]).is_err());
    assert!(DelayModel::fit(&sky, centre, start, length_s, &[]).is_ok());
    let given = Sky::new(&array, Dut1::Given(-0.4)).unwrap();
    let error = say(DelayModel::fit(&given, centre, start, length_s, &[]).unwrap_err());
    assert!(error.contains("leap second"), "{error}");
}
