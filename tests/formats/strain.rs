//! Recorded strain: HDF5 of GWOSC and gwpy, raw series, joined files, and rejected files.

use crate::support::common;
use std::path::{Path, PathBuf};

use hdf5_pure::{AttrValue, FileBuilder};
use sidereal::io::strain::{OpenOptions, StrainSource, Summary, open, open_all};
use sidereal::units::Gps;

const RATE: usize = 64;
const START: i64 = 1_126_259_446;

/// Contents of a small file in GWOSC's layout.
#[derive(Clone)]
struct Spec {
    start: i64,
    strain: Vec<f64>,
    mask: Vec<u32>,
    spacing_s: Option<f64>,
    axes: Vec<u64>,
    chunk: Option<u64>,
}

impl Spec {
    fn new(seconds: usize) -> Self {
        let strain = (0..seconds * RATE).map(|n| (n as f64 - 7.5) * 1e-21).collect();
        let axes = vec![(seconds * RATE) as u64];
        let spacing_s = Some(1.0 / RATE as f64);
        Self { start: START, strain, mask: vec![127; seconds], spacing_s, axes, chunk: Some(100) }
    }

    fn write(&self, path: &Path) {
        let mut file = FileBuilder::new();
        let mut group = file.create_group("strain");
        let dataset = group.create_dataset("Strain");
        dataset.with_f64_data(&self.strain).with_shape(&self.axes);
        if let Some(chunk) = self.chunk {
            dataset.with_chunks(&[chunk]).with_shuffle().with_deflate(4).with_fletcher32();
        }
        dataset.set_attr("Xstart", AttrValue::I64(self.start));
        if let Some(spacing_s) = self.spacing_s {
            dataset.set_attr("Xspacing", AttrValue::F64(spacing_s));
        }
        file.add_group(group.finish());
        let mut quality = file.create_group("quality");
        let injected: Vec<u32> =
            (0..self.mask.len()).map(|second| if second == 1 { 30 } else { 31 }).collect();
        let masks = [
            ("simple", "DQ", &self.mask, ["DATA", "CBC_CAT1", "CBC_CAT2"]),
            ("injections", "Inj", &injected, ["NO_CBC_HW_INJ", "NO_BURST_HW_INJ", "NO_CW_HW_INJ"]),
        ];
        for (name, short, values, names) in masks {
            let mut group = quality.create_group(name);
            let mask = group.create_dataset(&format!("{short}mask")).with_u32_data(values);
            mask.set_attr("Xspacing", AttrValue::F64(1.0));
            mask.set_attr("Xstart", AttrValue::I64(self.start));
            let texts = group.create_dataset(&format!("{short}Shortnames"));
            texts.with_ascii_strings(&names).expect("texts");
            quality.add_group(group.finish());
        }
        file.add_group(quality.finish());
        let mut meta = file.create_group("meta");
        meta.create_dataset("Detector").with_vlen_strings(&["H1"]).with_shape(&[]);
        file.add_group(meta.finish());
        file.write(path).expect("written");
    }
}

fn drain(source: &mut dyn StrainSource, block: usize) -> (Vec<f64>, Vec<bool>) {
    let (mut samples, mut valid) = (Vec::new(), Vec::new());
    loop {
        let (mut block, mut good) = (vec![9.0; block], vec![true; block]);
        let count = source.read(&mut block, &mut good).expect("samples");
        if count == 0 {
            return (samples, valid);
        }
        samples.extend(&block[..count]);
        valid.extend(&good[..count]);
    }
}

fn refusal(path: &Path, options: &OpenOptions) -> String {
    match open(path, options) {
        Ok(_) => panic!("{} was opened", path.display()),
        Err(error) => error.to_string(),
    }
}

#[test]
fn bad_seconds_and_missing_samples_are_zeros() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("x.hdf5");
    let mut spec = Spec::new(6);
    spec.mask[2] = 126;
    spec.mask[3] = 125;
    spec.mask[4] = 123;
    spec.strain[10] = f64::NAN;
    for chunk in [Some(100), Some(7), Some(384), None] {
        Spec { chunk, ..spec.clone() }.write(&path);
        let mut source = open(&path, &OpenOptions::default()).expect("opened");
        let header = source.header().clone();
        assert_eq!((header.detector.as_str(), header.rate_hz, header.times), ("H1", 64, Some(384)));
        assert_eq!(header.start.ns, START * 1_000_000_000);
        for block in [1, 13, 1000] {
            let mut source = open(&path, &OpenOptions::default()).expect("opened");
            let (samples, valid) = drain(source.as_mut(), block);
            assert_eq!(samples.len(), 384);
            for (sample, (value, valid)) in samples.iter().zip(&valid).enumerate() {
                let is_good = sample != 10 && !(128..256).contains(&sample);
                assert_eq!(*valid, is_good, "sample {sample}");
                assert_eq!(*value, if is_good { spec.strain[sample] } else { 0.0 });
            }
        }
        let summary = Summary::read(source.as_mut()).expect("a summary");
        assert_eq!(
            (summary.valid_times, summary.gaps.as_slice()),
            (255, &[(10, 11), (128, 256)][..])
        );
        let line = summary.to_string();
        assert!(line.contains("H1, 64 Hz, GPS 1126259446 + 6 s"), "{line}");
    }
}

#[test]
fn bits_are_asked_for_by_name() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("x.hdf5");
    let mut spec = Spec::new(4);
    spec.mask[3] = 3;
    spec.write(&path);
    let good = |options: &OpenOptions| {
        let (_, valid) = drain(open(&path, options).expect("opened").as_mut(), 64);
        valid.chunks(RATE).map(|second| second[0]).collect::<Vec<bool>>()
    };
    let ask = |quality: &[&str], injections: &[&str]| OpenOptions {
        required_quality: Some(quality.iter().map(|name| (*name).to_string()).collect()),
        required_injections: injections.iter().map(|name| (*name).to_string()).collect(),
        ..OpenOptions::default()
    };
    assert_eq!(good(&OpenOptions::default()), [true; 4]);
    assert_eq!(good(&ask(&["CBC_CAT2"], &[])), [true, true, true, false]);
    assert_eq!(good(&ask(&[], &[])), [true; 4]);
    assert_eq!(good(&ask(&["DATA"], &["NO_CBC_HW_INJ"])), [true, false, true, true]);
    let error = refusal(&path, &ask(&["CBC_CAT9"], &[]));
    assert!(error.contains("CBC_CAT9") && error.contains("CBC_CAT1, CBC_CAT2"), "{error}");
}

#[test]
fn damaged_and_wrong_files_are_refused_by_name() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("x.hdf5");
    let good = Spec::new(4);
    let half = Spec { axes: vec![2, 128], chunk: None, ..good.clone() };
    let wrong = [
        (Spec { spacing_s: None, ..good.clone() }, "Xspacing"),
        (Spec { spacing_s: Some(0.3), ..good.clone() }, "spacing"),
        (Spec { spacing_s: Some(f64::NAN), ..good.clone() }, "Xspacing"),
        (Spec { start: -5, ..good.clone() }, "start"),
        (Spec { mask: vec![127; 3], ..good.clone() }, "DQmask"),
        (half, "strain/Strain"),
    ];
    for (spec, field) in wrong {
        spec.write(&path);
        let error = refusal(&path, &OpenOptions::default());
        assert!(error.contains(field) && error.contains("x.hdf5"), "{error}");
    }
    good.write(&path);
    let error = refusal(&path, &OpenOptions { rate_hz: Some(4096), ..OpenOptions::default() });
    assert!(error.contains("64 Hz") && error.contains("4096 Hz"), "{error}");
    let error =
        refusal(&path, &OpenOptions { detector: Some("L1".into()), ..OpenOptions::default() });
    assert!(error.contains("H1") && error.contains("L1"), "{error}");
    // Truncated anywhere, a file is rejected, or all samples read are unchanged.
    let bytes = std::fs::read(&path).expect("its bytes");
    for part in 1..40 {
        std::fs::write(&path, &bytes[..bytes.len() * part / 40]).expect("written");
        if let Ok(mut source) = open(&path, &OpenOptions::default()) {
            let (mut samples, mut valid) = (vec![0.0; 256], vec![false; 256]);
            if let Ok(count) = source.read(&mut samples, &mut valid) {
                assert_eq!(samples[..count], good.strain[..count]);
            }
        }
    }
    std::fs::write(&path, b"IGWD\0\x08\x01\x02\x03").expect("written");
    assert!(refusal(&path, &OpenOptions::default()).contains("expected a header of 40"));
    std::fs::write(&path, b"1 2 3").expect("written");
    assert!(refusal(&path, &OpenOptions::default()).contains("1 2 3"));
    std::fs::write(&path, b"").expect("written");
    assert!(refusal(&path, &OpenOptions::default()).contains("the file is empty"));
}

fn npy(path: &Path, values: &[f64]) {
    let text =
        format!("{{'descr': '<f8', 'fortran_order': False, 'shape': ({},), }}\n", values.len());
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend((text.len() as u16).to_le_bytes());
    bytes.extend(text.as_bytes());
    bytes.extend(values.iter().flat_map(|value| value.to_le_bytes()));
    std::fs::write(path, bytes).expect("written");
}

#[test]
fn raw_series_are_told_their_rate_and_start() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("V1_strain.npy");
    npy(&path, &[1.0, f64::NAN, 3.0]);
    let start = Gps { ns: 1_000_000_000_123_456_789 };
    let options = OpenOptions { rate_hz: Some(4096), start: Some(start), ..OpenOptions::default() };
    let mut source = open(&path, &options).expect("opened");
    let header = source.header().clone();
    assert_eq!((header.detector.as_str(), header.start, header.times), ("V1", start, Some(3)));
    assert_eq!(drain(source.as_mut(), 2), (vec![1.0, 0.0, 3.0], vec![true, false, true]));
    assert!(refusal(&path, &OpenOptions::default()).contains("rate"));
    let rate = OpenOptions { rate_hz: Some(4096), ..OpenOptions::default() };
    assert!(refusal(&path, &rate).contains("start"));
    let bytes = std::fs::read(&path).expect("its bytes");
    std::fs::write(&path, &bytes[..bytes.len() - 1]).expect("written");
    let mut source = open(&path, &options).expect("two whole samples");
    assert!(source.cut().is_some_and(|cut| cut.contains("2 of the 3 samples")));
    assert_eq!(drain(source.as_mut(), 2), (vec![1.0, 0.0], vec![true, false]));
    std::fs::write(&path, [&bytes[..], &[0]].concat()).expect("written");
    assert!(refusal(&path, &options).contains("25 bytes"));
}

#[test]
fn series_of_gwpy_are_found() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("x.h5");
    let write = |series: usize| {
        let mut file = FileBuilder::new();
        for number in 0..series {
            let dataset =
                file.create_dataset(&format!("strain{number}")).with_f64_data(&[1.0, 2.0]);
            dataset.set_attr("x0", AttrValue::F64(1e9));
            dataset.set_attr("dx", AttrValue::F64(0.5));
            dataset.set_attr("channel", AttrValue::String("L1:GDS-CALIB_STRAIN".into()));
        }
        file.create_dataset("other").with_f64_data(&[1.0]);
        file.write(&path).expect("written");
    };
    write(1);
    let mut source = open(&path, &OpenOptions::default()).expect("opened");
    assert_eq!((source.header().detector.as_str(), source.header().rate_hz), ("L1", 2));
    assert_eq!(drain(source.as_mut(), 9), (vec![1.0, 2.0], vec![true, true]));
    write(2);
    let error = refusal(&path, &OpenOptions::default());
    assert!(error.contains("strain.channel") && error.contains("strain0, strain1"), "{error}");
    let options = OpenOptions { channel: Some("strain1".into()), ..OpenOptions::default() };
    let mut source = open(&path, &options).expect("opened");
    assert_eq!((source.header().detector.as_str(), source.header().rate_hz), ("L1", 2));
    assert_eq!(drain(source.as_mut(), 9), (vec![1.0, 2.0], vec![true, true]));
    let options = OpenOptions { channel: Some("strain2".into()), ..options };
    assert!(refusal(&path, &options).contains("strain2: no such channel"));
    write(0);
    assert!(refusal(&path, &OpenOptions::default()).contains("strain/Strain"));
}

#[test]
fn files_are_joined_in_order_with_their_gaps() {
    let folder = tempfile::tempdir().expect("a folder");
    let write = |name: &str, start: i64, seconds: usize| {
        let path = folder.path().join(name);
        Spec { start, ..Spec::new(seconds) }.write(&path);
        path
    };
    let paths: Vec<PathBuf> = vec![
        write("c.hdf5", START + 9, 1),
        write("a.hdf5", START, 2),
        write("b.hdf5", START + 2, 3),
    ];
    let mut source = open_all(&paths, &OpenOptions::default()).expect("joined");
    assert_eq!((source.header().times, source.header().start.s()), (Some(640), START as f64));
    let (samples, valid) = drain(source.as_mut(), 50);
    assert_eq!(samples.len(), 640);
    for (sample, valid) in valid.iter().enumerate() {
        assert_eq!(*valid, !(320..576).contains(&sample), "sample {sample}");
    }
    let first = Spec::new(1).strain;
    for start in [0, 128, 576] {
        assert_eq!(samples[start..start + 64], first[..], "each file from its start");
    }
    let refused = |paths: &[PathBuf]| match open_all(paths, &OpenOptions::default()) {
        Ok(_) => panic!("joined"),
        Err(error) => error.to_string(),
    };
    let overlap = write("d.hdf5", START + 1, 1);
    let error = refused(&[paths[1].clone(), overlap]);
    assert!(error.contains("d.hdf5") && error.contains("overlaps"), "{error}");
    let far = write("e.hdf5", START + 2_000_000, 1);
    assert!(refused(&[paths[1].clone(), far]).contains("gap"));
    assert!(refused(&[]).contains("at least one"));
}

#[test]
fn the_recordings_of_the_first_detection_are_read() {
    let Some(folder) = common::data_dir() else { return };
    for (site, sum) in [("H", "H1"), ("L", "L1")] {
        let path = folder.join(format!("gw/{site}-{site}1_LOSC_4_V2-1126259446-32.hdf5"));
        let mut source = open(&path, &OpenOptions::default()).expect("opened");
        let summary = Summary::read(source.as_mut()).expect("a summary");
        assert_eq!((summary.times, summary.valid_times), (131_072, 131_072));
        assert_eq!((summary.header.detector.as_str(), summary.header.rate_hz), (sum, 4096));
        assert_eq!(summary.header.start.ns, START * 1_000_000_000);
        assert!(summary.gaps.is_empty() && (1e-19..1e-17).contains(&summary.rms));
    }
}

#[test]
fn a_large_chunk_of_a_small_file_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("x.h5");
    let samples = 5 << 20;
    let mut spec = Spec::new(4);
    (spec.strain, spec.axes) = (vec![1e-21; samples], vec![samples as u64]);
    spec.chunk = Some(samples as u64);
    spec.write(&path);
    assert!(std::fs::metadata(&path).expect("a file").len() < 100_000);
    let told = refusal(&path, &OpenOptions::default());
    assert!(told.contains("in chunks of 5242880") && told.contains("strain/Strain"), "{told}");
}
