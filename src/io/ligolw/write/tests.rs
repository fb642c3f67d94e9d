use num_complex::Complex;

use super::super::{PsdRow, SnrSeries, TemplateRow, Values, is_ligolw, read_table};
use super::*;
use crate::math::PowerSpectrum;
use crate::strain::Binary;

fn detector(ifo: &str, ns: i64) -> DetectorRow {
    let gps = Gps { ns };
    let samples = (0..5).map(|k| Complex::new(k as f32, -0.25)).collect();
    let snr_series = Some(SnrSeries { start: gps.plus_samples(-2, 4096), rate_hz: 4096, samples });
    DetectorRow {
        ifo: ifo.to_owned(),
        gps,
        snr: 18.5,
        phase: -1.25,
        xi2: Some(0.9),
        effective_distance_mpc: None,
        sigmasq: Some(1e6),
        snr_series,
    }
}

fn file() -> EventsFile {
    let psd = PowerSpectrum::new(0.25, vec![1e-46, 2e-46, f64::INFINITY]).expect("a spectrum");
    EventsFile {
        version: "0.1.0".to_owned(),
        comment: "a \"comment\" & more <here>".to_owned(),
        parameters: vec![("--snr".to_owned(), "4".to_owned())],
        span: Some((Gps::from_s(1126259446.0), Gps::from_s(1126259478.0))),
        events: vec![EventRow {
            gps: Gps { ns: 1_126_259_462_423_600_000 },
            network_snr: 23.0,
            far_hz: Some(1e-9),
            template: TemplateRow {
                name: "36+29".to_owned(),
                binary: Some(Binary { spin1z: 0.5, ..Binary::of_masses(36.0, 29.0) }),
                duration_s: Some(1.5),
                f_final_hz: None,
            },
            detectors: vec![
                detector("L1", 1_126_259_462_416_500_000),
                detector("H1", 1_126_259_462_423_600_001),
            ],
        }],
        psds: vec![PsdRow { ifo: "H1".to_owned(), psd }],
    }
}

#[test]
fn what_is_written_reads_back() {
    let folder = tempfile::tempdir().expect("a folder");
    for name in ["events.xml", "events.xml.gz"] {
        let path = folder.path().join(name);
        write_events(&path, &file()).expect("a file");
        assert!(is_ligolw(&path));
        let table = read_table(&path, "sngl_inspiral").expect("a table");
        assert_eq!(table.texts("ifo"), Some(vec!["L1", "H1"]));
        assert_eq!(table.reals("end_time_ns").expect("times"), [416_500_000.0, 423_600_001.0]);
        assert_eq!(table.reals("spin1z").expect("spins"), [0.5, 0.5]);
        let empty = |number: &f64| number.is_nan();
        assert!(
            matches!(table.column("f_final"), Some(Values::Real(cells)) if cells.iter().all(empty))
        );
        assert!(table.reals("f_final").is_err());
        let map = read_table(&path, "coinc_event_map").expect("a table");
        assert_eq!(map.reals("event_id").expect("ids"), [0.0, 1.0]);
        let process = read_table(&path, "process").expect("a table");
        assert_eq!(process.texts("program"), Some(vec!["sidereal", "pycbc"]));
        assert_eq!(process.texts("comment").expect("texts")[0], file().comment);
        let parameters = read_table(&path, "process_params").expect("a table");
        assert_eq!(parameters.texts("value"), Some(vec!["4", name]));
    }
    let bytes = std::fs::read(folder.path().join("events.xml.gz")).expect("bytes");
    assert!(bytes.starts_with(&[0x1f, 0x8b]));
}

#[test]
fn no_events_make_a_file_too() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("none.xml");
    write_events(&path, &EventsFile::default()).expect("a file");
    assert_eq!(read_table(&path, "sngl_inspiral").expect("a table").rows, 0);
}

#[test]
fn events_that_can_not_be_localized_are_refused() {
    let refused = |change: fn(&mut EventRow)| {
        let mut file = file();
        change(&mut file.events[0]);
        let folder = tempfile::tempdir().expect("a folder");
        let error = write_events(&folder.path().join("x.xml"), &file).expect_err("a fault");
        assert_eq!(std::fs::read_dir(folder.path()).expect("a list").count(), 0);
        error.to_string()
    };
    assert!(refused(|event| event.detectors.clear()).contains("at least 1"));
    assert!(refused(|event| event.detectors[1].ifo = "L1".to_owned()).contains("once"));
    let longer = refused(|event| {
        if let Some(own) = &mut event.detectors[1].snr_series {
            own.samples.extend([Complex::default(); 2]);
        }
    });
    assert!(longer.contains("7 samples") && longer.contains("5 at 4096"), "{longer}");
    let late = refused(|event| event.detectors[1].gps = event.gps.plus_s(1e-3));
    assert!(late.contains("within a sample"), "{late}");
    assert!(refused(|event| event.gps = Gps { ns: i64::MAX }).contains("32 bits"));
}
