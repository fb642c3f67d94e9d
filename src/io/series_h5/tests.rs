use num_complex::Complex;

use super::*;
use crate::error::Error;

fn header() -> SeriesFile {
    let template =
        |name: &str, peak_offset_s| TemplateSeries { name: name.to_owned(), peak_offset_s };
    let own = |detector: &str, whitened| DetectorSeries {
        detector: detector.to_owned(),
        start: Gps::from_s(1_126_259_446.0),
        rate_hz: 4096,
        samples: 1000,
        latency_s: 1.5,
        templates: vec![template("30+30", -0.25), template("1.4+1.4", 0.0)],
        whitened,
    };
    SeriesFile { comment: "a test".to_owned(), detectors: vec![own("H1", true), own("L1", false)] }
}

/// Test value of a template's signal-to-noise ratio at a time.
fn z(template: usize, time: usize) -> Complex<f32> {
    Complex::new(template as f32 * 1e3 + time as f32, -(time as f32))
}

#[test]
fn blocks_of_any_length_read_back_as_one_series() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("series.h5");
    let mut writer = Writer::create(&path, header()).expect("a file");
    let mut start = 0;
    for (stride, times) in [(100, 70), (400, 400), (1, 1), (5, 0)] {
        let row = |template: usize| (0..stride).map(move |k| z(template, start + k));
        let block: Vec<_> = row(0).chain(row(1)).collect();
        writer.snr(0, &block, stride, times).expect("samples");
        writer.snr(1, &block, stride, times).expect("samples");
        let strain: Vec<f32> = (start..start + times).map(|k| k as f32 * 0.5).collect();
        let valid: Vec<bool> = (start..start + times).map(|k| !k.is_multiple_of(3)).collect();
        writer.whitened(0, &strain, &valid).expect("samples");
        start += times;
    }
    assert!(std::fs::metadata(&path).is_err());
    writer.finish().expect("a whole file");
    let file = hdf5_pure::File::open(&path).expect("HDF5");
    for (template, leaf) in ["0000", "0001"].iter().enumerate() {
        let dataset = file.dataset(&format!("L1/snr/{leaf}")).expect("a data set");
        assert_eq!(dataset.shape().expect("a shape"), [471]);
        let both = |k| [z(template, k).re.to_le_bytes(), z(template, k).im.to_le_bytes()].concat();
        let expected: Vec<u8> = (0..471).flat_map(both).collect();
        assert_eq!(dataset.read_raw().expect("bytes"), expected);
    }
    let strain = file.dataset("H1/whitened").expect("a data set").read_f32().expect("floats");
    assert_eq!((strain.len(), strain[470]), (471, 235.0));
    let first = file.dataset("H1/snr/0000").expect("a data set").attrs().expect("attributes");
    assert!(matches!(first["x0"], hdf5_pure::AttrValue::F64(x0) if x0 == 1_126_259_445.75));
    assert!(file.dataset("L1/whitened").is_err());
}

#[test]
fn what_does_not_fit_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("series.h5");
    let mut writer = Writer::create(&path, header()).expect("a file");
    let block = vec![Complex::default(); 2000];
    assert!(matches!(writer.snr(0, &block, 999, 10), Err(Error::Shape { .. })));
    assert!(matches!(writer.snr(0, &block, 1000, 1001), Err(Error::Parameter { .. })));
    assert!(matches!(writer.snr(2, &block, 1000, 10), Err(Error::Parameter { .. })));
    assert!(
        writer.whitened(1, &[0.0], &[true]).is_err() && writer.whitened(0, &[0.0], &[]).is_err()
    );
    assert!(matches!(writer.finish(), Err(Error::Parameter { .. })));
    assert_eq!(std::fs::read_dir(folder.path()).expect("a list").count(), 0);
    let refused = |change: fn(&mut SeriesFile)| {
        let mut header = header();
        change(&mut header);
        Writer::create(&path, header).is_err()
    };
    assert!(refused(|header| header.detectors.clear()));
    assert!(refused(|header| header.detectors[1].detector = "H1".to_owned()));
    assert!(refused(|header| header.detectors[0].detector = "H/1".to_owned()));
    assert!(refused(|header| header.detectors[1].templates.clear()));
    assert!(refused(|header| header.detectors[1].rate_hz = 0));
    assert!(refused(|header| header.detectors[1].samples = u64::MAX));
}
