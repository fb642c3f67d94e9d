use sidereal::pipeline::cutout::Cutout;

use super::*;
use crate::provenance::Made;

/// Makes a cutout of `channels` by 48 bins with a ramp, blank at one side.
fn ramp(channels: usize, dms: usize) -> Cutout {
    let value = |index: usize| if index % 48 < 4 { f32::NAN } else { (index % 48) as f32 * 0.1 };
    let finite = |index: usize| (index % 48) as f32 * 0.1;
    Cutout {
        waterfall: (0..channels * 48).map(value).collect(),
        channels,
        times: 48,
        highest_mhz: 1500.0,
        lowest_mhz: 1200.0,
        start_s: -0.024,
        bin_s: 1e-3,
        profile: (0..48).map(finite).collect(),
        dms: (0..dms).map(|i| 100.0 + i as f64).collect(),
        plane: (0..dms * 48).map(finite).collect(),
        snr: (0..dms).map(|i| i as f32).collect(),
    }
}

fn page() -> Candidate {
    Candidate {
        file: "observation.fil".to_owned(),
        target: "source · telescope".to_owned(),
        rank: "candidate 1 of 1".to_owned(),
        dm: 101.0,
        time_s: 1.0,
        snr: 10.0,
        width_s: 2e-3,
        mjd: None,
        masked_mhz: vec![(1200.0, 1200.5), (1400.0, 1450.0)],
    }
}

/// Returns the width and height of a PNG file.
fn size(path: &std::path::Path) -> (u32, u32) {
    let bytes = std::fs::read(path).unwrap();
    assert!(bytes.starts_with(b"\x89PNG\r\n\x1a\n"));
    let number = |at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap());
    (number(16), number(20))
}

#[test]
fn candidates_of_any_shape_are_drawn() {
    let folder = tempfile::tempdir().unwrap();
    for (index, cutout) in [ramp(200, 33), ramp(1, 1), ramp(7, 2)].iter().enumerate() {
        let path = folder.path().join(format!("{index}.png"));
        candidate(&Png::new(&path, &Made::default()), cutout, &page()).unwrap();
        assert_eq!(size(&path), (1600, 1000));
    }
}

#[test]
fn overviews_of_none_and_of_many_are_drawn() {
    let folder = tempfile::tempdir().unwrap();
    let point =
        |i: u32| Point { time_s: i.into(), dm: 3.0 * f64::from(i), snr: 6.0 + f64::from(i) };
    for count in [0, 1, 300] {
        let path = folder.path().join(format!("{count}.png"));
        let about = Overview {
            file: "observation.fil".to_owned(),
            target: String::new(),
            span_s: (0.0, 300.0),
            dms: (0.0, if count == 0 { 0.0 } else { 900.0 }),
            snr: 6.0,
            points: (0..count).map(point).collect(),
        };
        overview(&Png::new(&path, &Made::default()), &about).unwrap();
        assert_eq!(size(&path), (1600, 1000));
    }
}

#[test]
fn a_folder_that_is_not_there_is_an_error_and_no_panic() {
    let made = Made::default();
    let png = Png::new("/nowhere/at/all.png", &made);
    assert!(candidate(&png, &ramp(4, 4), &page()).is_err());
}

#[test]
fn a_picture_tells_how_it_was_made() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.png");
    let mut made = Made::default();
    made.provenance.verb = "search µ".to_owned();
    candidate(&Png::new(&path, &made), &ramp(4, 4), &page()).unwrap();
    let [provenance, run] = png_texts(&path).unwrap();
    assert!(provenance.contains("search µ"), "{provenance}");
    assert!(run.contains("date"), "{run}");
    std::fs::write(&path, "no picture").unwrap();
    assert!(png_texts(&path).unwrap_err().to_string().contains("a.png"));
}

#[test]
fn numbers_are_short_and_whole() {
    assert_eq!(short(12.0, 4), "12");
    assert_eq!(short(0.012_345, 3), "0.0123");
    assert_eq!(short(1500.0, 2), "1500");
    assert_eq!(duration(0.002_53), "2.53 ms");
    assert_eq!(duration(64e-6), "64 µs");
}
