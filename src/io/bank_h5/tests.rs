use super::*;
use crate::error::Error;

fn record(name: &str, filters: usize, known: bool) -> TemplateRecord {
    let filter = |k: usize| FilterRecord {
        halvings: (k % 4) as u32,
        a: Complex::new(0.99 - k as f32 * 1e-3, 0.1),
        b: Complex::new(1e-30, -(k as f32) / 3.0),
        delay: 17 * k as u32,
    };
    TemplateRecord {
        name: name.to_owned(),
        binary: known.then(|| Binary { spin1z: -0.3, ..Binary::of_masses(1.4, 1.35) }),
        approximant: known.then(|| "IMRPhenomD".to_owned()),
        filters: (0..filters).map(filter).collect(),
        fit: 0.991,
        placement_fit: 0.977,
        epsilon: 0.02,
        sigma_1mpc: 1234.5,
        horizon_mpc: 154.3,
        autocorrelation: (0..5).map(|k| Complex::new(k as f32, 0.25)).collect(),
        autocorrelation_norm: 3.75,
        peak_offset_s: -0.0157,
        duration_s: 61.8,
        f_low_hz: 30.0,
        f_final_hz: 1571.0,
        whitened: if known { vec![Complex::new(0.5, -0.5); 9] } else { Vec::new() },
    }
}

fn bank() -> BankFile {
    BankFile {
        rate_hz: 4096,
        detector: "H1".to_owned(),
        comment: "a test".to_owned(),
        options: vec![("f_low_hz".to_owned(), 30.0), ("epsilon".to_owned(), 0.1 + 0.2)],
        psd: PowerSpectrum::new(0.25, vec![f64::INFINITY, 1e-46, 3e-46]).expect("a spectrum"),
        resampler: ResamplerRecord {
            down: vec![0.25, 0.5, 0.25],
            down_delay: 1,
            up: vec![1.0, 2.0],
            up_delay: 3,
        },
        templates: vec![record("1.4+1.35", 12, true), record("", 1, false), record("ü", 3, true)],
        left_out: vec![
            LeftOutRecord {
                index: 2,
                name: "30+30".to_owned(),
                fit: Some(0.5),
                reason: "low".to_owned(),
            },
            LeftOutRecord { index: 4, ..LeftOutRecord::default() },
        ],
    }
}

#[test]
fn what_is_written_reads_back_bit_by_bit() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("bank.h5");
    write(&path, &bank()).expect("a file");
    assert!(is_bank(&path));
    let again = read(&path).expect("a bank");
    assert_eq!(again, bank());
    assert_eq!(again.option("epsilon"), Some(0.1 + 0.2));
    let mut bare = bank();
    bare.options.clear();
    bare.left_out.clear();
    bare.resampler = ResamplerRecord::default();
    bare.templates.iter_mut().for_each(|own| own.whitened.clear());
    write(&path, &bare).expect("a file");
    assert_eq!(read(&path).expect("a bank"), bare);
    bare.templates.clear();
    assert!(matches!(write(&path, &bare), Err(Error::Parameter { .. })));
}

#[test]
fn other_files_versions_and_spoilt_banks_are_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("bank.h5");
    let why = |path: &std::path::Path| read(path).expect_err("a fault").to_string();
    assert!(why(&path).contains("bank.h5"));
    std::fs::write(&path, b"no HDF5 at all").expect("a file");
    assert!(why(&path).contains("HDF5") && !is_bank(&path));
    let other = |format: &str, version: i64| {
        let mut builder = hdf5_pure::FileBuilder::new();
        builder.set_attr("format", hdf5_pure::AttrValue::VarLenString(format.to_owned()));
        builder.set_attr("version", hdf5_pure::AttrValue::I64(version));
        std::fs::write(&path, builder.finish().expect("bytes")).expect("a file");
        why(&path)
    };
    assert!(other("something", 1).contains("\"something\" found"));
    assert!(other(FORMAT, 2).contains("2 found, expected 1"));
    assert!(other(FORMAT, 1).contains("rate_hz"));
    write(&path, &bank()).expect("a file");
    let bytes = std::fs::read(&path).expect("bytes");
    for end in (0..bytes.len()).step_by(97) {
        std::fs::write(&path, &bytes[..end]).expect("a file");
        assert!(read(&path).is_err(), "cut at {end}");
    }
}

#[test]
fn numbers_that_are_not_finite_are_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("bank.h5");
    let mut spoilt = bank();
    spoilt.templates[2].filters[1].b.im = f32::NAN;
    write(&path, &spoilt).expect("a file");
    assert!(read(&path).expect_err("a fault").to_string().contains("filters/b"));
}
