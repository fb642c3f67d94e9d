use std::f32::consts::TAU;

use num_complex::Complex;

use super::data::length;
use super::*;

/// Makes `antennas` antennas on a spiral, `channels` channels of 10 kHz with a gap in them, and fringes of 60 ns.
fn array(antennas: usize, channels: usize, products: usize) -> Correlation {
    let hole =
        |channel: usize| if channel < channels / 2 { 0.0 } else { 0.1 * channels as f64 * 0.01 };
    let frequencies_mhz: Vec<f64> =
        (0..channels).map(|channel| 1400.0 + 0.01 * channel as f64 + hole(channel)).collect();
    let station = |index: usize| {
        let (turn, radius) = (2.4 * index as f64, 30.0 * (index as f64).sqrt());
        Antenna {
            name: format!("a{index:02}"),
            east_m: radius * turn.cos(),
            north_m: radius * turn.sin(),
        }
    };
    let power = |index: usize| {
        let (channel, antenna) = (index % channels, index / channels);
        if channel == 3 {
            f32::NAN
        } else {
            1e6 + 1e4 * (antenna % antennas) as f32 + 200.0 * channel as f32
        }
    };
    let fringe = |index: usize| {
        let late = 60e-3 * frequencies_mhz[index % channels] as f32;
        Complex::from_polar(2e4 + 10.0 * (index % 7) as f32, TAU * late.fract())
    };
    let baseline = |second: usize| Fringes {
        antennas: (0, second),
        length_m: 30.0 * second as f64,
        spectrum: (0..products * channels).map(fringe).collect(),
        lags: (0..products * 200).map(|i| 1.0 / (1.0 + (i as f32 % 200.0 - 100.0).abs())).collect(),
        delays_ns: (-10_000.0, 100.0),
        waterfall: (0..9 * channels).map(fringe).collect(),
    };
    Correlation {
        file: "array.uvh5".to_owned(),
        target: "source · array · 1400 to 1410 MHz".to_owned(),
        duration_s: 12.0,
        powers: (0..products * antennas * channels).map(power).collect(),
        frequencies_mhz: frequencies_mhz.clone(),
        columns: channels,
        products: ["XX", "YY"].iter().take(products).map(|name| (*name).to_owned()).collect(),
        antennas: (0..antennas).map(station).collect(),
        baselines: (1..antennas.min(4)).map(baseline).collect(),
    }
}

#[test]
fn arrays_of_any_size_are_drawn() {
    let folder = tempfile::tempdir().unwrap();
    for (antennas, channels, products) in [(8, 256, 2), (1, 5, 1), (150, 64, 2), (2, 1, 1)] {
        let names =
            draw(folder.path(), &array(antennas, channels, products), &Made::default()).unwrap();
        let expected: &[&str] =
            if antennas == 1 { &[LAYOUT, POWERS] } else { &[LAYOUT, POWERS, FRINGES, WATERFALLS] };
        assert_eq!(names, expected);
        for name in names {
            let bytes = std::fs::read(folder.path().join(name)).unwrap();
            assert!(bytes.starts_with(b"\x89PNG\r\n\x1a\n"), "{name}");
        }
    }
}

#[test]
fn what_is_not_valid_is_left_out() {
    let folder = tempfile::tempdir().unwrap();
    let mut about = array(3, 16, 2);
    let nothing = Complex::new(f32::NAN, f32::NAN);
    about.powers.fill(f32::NAN);
    for fringes in &mut about.baselines {
        fringes.spectrum.fill(nothing);
        fringes.waterfall.fill(nothing);
        fringes.lags.clear();
    }
    assert_eq!(
        draw(folder.path(), &about, &Made::default()).unwrap(),
        [LAYOUT, FRINGES, WATERFALLS]
    );
    draw(folder.path(), &Correlation::default(), &Made::default()).unwrap();
    assert!(draw(Path::new("/nowhere/at/all"), &about, &Made::default()).is_err());
}

#[test]
fn lines_break_at_holes_and_at_what_is_not_valid() {
    let about = array(1, 100, 1);
    assert_eq!(about.runs(), [0..50, 50..100]);
    let lines = about.lines(&about.powers, 1000);
    let lengths: Vec<usize> = lines.iter().map(Vec::len).collect();
    assert_eq!(lengths, [3, 46, 50]);
    let means = about.lines(&vec![2.0; 100], 10);
    let lengths: Vec<usize> = means.iter().map(Vec::len).collect();
    assert_eq!(lengths, [5, 5]);
    assert!(means.iter().flatten().all(|point| point.1 == 2.0));
}

#[test]
fn channels_are_found_by_their_frequency() {
    let about = array(1, 100, 1);
    for channel in [0, 49, 50, 99] {
        assert_eq!(about.channel_at(about.frequencies_mhz[channel] + 0.003), Some(channel));
    }
    assert_eq!(about.channel_at(about.frequencies_mhz[49] + 0.05), None);
    assert_eq!(about.channel_at(1300.0), None);
}

#[test]
fn the_scatter_of_phases_does_not_mind_where_they_lie() {
    let turned = |degrees: &[f32]| -> Vec<Complex<f32>> {
        degrees.iter().map(|d| Complex::from_polar(3.0, d.to_radians())).collect()
    };
    let scatter = |degrees: &[f32]| fringes::phase_scatter_deg(&turned(degrees));
    assert!((scatter(&[178.0, -178.0]).unwrap() - 2.0 * 1.4826).abs() < 1e-3);
    assert!((scatter(&[8.0, 12.0]).unwrap() - 2.0 * 1.4826).abs() < 1e-3);
    assert!(scatter(&[0.0, 1.0, -1.0, 1.0, -1.0, 90.0, -90.0]).unwrap() < 2.0);
    assert_eq!(scatter(&[8.0]), None);
    assert_eq!(fringes::phase_scatter_deg(&[Complex::new(f32::NAN, 0.0); 4]), None);
}

#[test]
fn numbers_have_powers_of_a_thousand() {
    assert_eq!(scale(500.0), (1.0, " (counts²)".to_owned()));
    assert_eq!(scale(2.5e7), (1e6, " (10⁶ counts²)".to_owned()));
    assert_eq!(scale(3e-4).1, " (10⁻⁶ counts²)");
    assert_eq!(scale(2e12).1, " (10¹² counts²)");
    assert_eq!(scale(f64::NAN).0, 1.0);
    assert_eq!(length(12_345.0), "12.345 km");
    assert_eq!(length(12.0), "12 m");
}
