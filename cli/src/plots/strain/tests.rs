use super::*;
use crate::plots::Png;
use crate::provenance::Made;

fn series(samples: usize) -> Vec<f32> {
    (0..samples).map(|k| ((k * k) % 17) as f32 * 0.2 - 1.6).collect()
}

fn is_png(path: &std::path::Path) -> bool {
    std::fs::read(path).is_ok_and(|bytes| bytes.starts_with(b"\x89PNG\r\n\x1a\n"))
}

#[test]
fn events_of_any_shape_are_drawn() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str, index: usize| folder.path().join(format!("{name}_{index}.png"));
    for (index, samples) in [0, 1, 2, 300].into_iter().enumerate() {
        let mut strain = series(samples);
        if let Some(first) = strain.first_mut() {
            *first = f32::NAN;
        }
        let peak = (index > 1).then_some(Peak { time_s: 0.01, snr: 12.0, xi2: 1.0 });
        let one = |name| SnrOf { name, start_s: -0.03, rate_hz: 4096.0, snr: &strain, peak };
        let about = Snr {
            heading: Heading::default(),
            threshold: 4.0,
            detectors: vec![one("H1"), one("L1")],
        };
        snr(&Png::new(path("snr", index), &Made::default()), &about).unwrap();
        let (band_hz, span_s) = ((30.0, 400.0), (-0.03, 0.02));
        let template =
            overlay(&[num_complex::Complex::new(1.0, 0.5); 20], 3.0.into(), 10.0, samples);
        let of = WhitenedOf {
            name: "H1",
            start_s: -0.03,
            rate_hz: 4096.0,
            strain: &strain,
            template: &template,
            facts: String::new(),
        };
        let heading = Heading::default();
        let about = Whitened { heading: heading.clone(), band_hz, span_s, detectors: vec![of] };
        whitened(&Png::new(path("whitened", index), &Made::default()), &about).unwrap();
        let of = MapOf {
            name: "H1",
            start_s: -0.03,
            rate_hz: 4096.0,
            strain: &strain,
            facts: String::new(),
        };
        let about = Map { heading, band_hz, span_s, quality: 8.0, detectors: vec![of] };
        map(&Png::new(path("map", index), &Made::default()), &about).unwrap();
        for name in ["snr", "whitened", "map"] {
            assert!(is_png(&path(name, index)));
        }
    }
}

#[test]
fn backgrounds_of_none_and_of_many_are_drawn() {
    let folder = tempfile::tempdir().unwrap();
    let many: Vec<f64> = (1..500).map(|k| 5.5 + 8.0 / f64::from(k)).collect();
    let cases: [(&[f64], &[f64], f64); 4] =
        [(&[], &[], 0.0), (&many, &[], 3000.0), (&many, &[23.0, 6.0], 3000.0), (&[], &[7.0], 10.0)];
    for (index, (slides, events, slides_s)) in cases.into_iter().enumerate() {
        let path = folder.path().join(format!("{index}.png"));
        let about = Background {
            heading: Heading::default(),
            slides,
            slides_s,
            events,
            livetime_s: 30.0,
            ranking: "Ranking",
        };
        background(&Png::new(&path, &Made::default()), &about).unwrap();
        assert!(is_png(&path));
    }
    let made = Made::default();
    let nowhere = Png::new("/nowhere/at/all.png", &made);
    let about = Background {
        heading: Heading::default(),
        slides: &many,
        slides_s: 1.0,
        events: &[],
        livetime_s: 1.0,
        ranking: "",
    };
    assert!(background(&nowhere, &about).is_err());
}
