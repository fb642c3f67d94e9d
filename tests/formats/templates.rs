//! Templates in files: each supported layout, and rejected files.

use crate::support::common;
use std::path::{Path, PathBuf};

use hdf5_pure::{AttrValue, CompoundTypeBuilder, FileBuilder};
use num_complex::Complex64;
use sidereal::Error;
use sidereal::io::templates::{TemplateOptions, Templates, open, open_with};
use sidereal::strain::{Binary, Waveform};
use sidereal::waveform::{InspiralOptions, inspiral};

/// A series that begins and ends with zeros, and its peak.
fn series() -> (Vec<f64>, Vec<f64>) {
    (vec![0.0, 1.0, -4.0, 0.5, 0.0, 0.0], vec![0.0, 0.25, 2.0, -0.5, 0.0, 0.0])
}

/// Expected results of [`series`].
fn samples() -> Vec<Complex64> {
    let (plus, cross) = series();
    let all = plus.iter().zip(&cross).map(|(plus, cross)| Complex64::new(*plus, -cross));
    all.skip(1).take(3).collect()
}

fn file(folder: &Path, build: impl FnOnce(&mut FileBuilder)) -> PathBuf {
    let path = folder.join("waves.h5");
    let mut builder = FileBuilder::new();
    build(&mut builder);
    builder.write(&path).expect("the file is written");
    path
}

fn waveforms(path: &Path) -> Vec<Waveform> {
    match open(path).expect("templates") {
        Templates::Waveforms(waveforms) => waveforms,
        Templates::Binaries(_) => panic!("binaries found"),
    }
}

fn binaries(path: &Path) -> Vec<(String, Binary)> {
    match open(path).expect("templates") {
        Templates::Binaries(binaries) => binaries,
        Templates::Waveforms(_) => panic!("waveforms found"),
    }
}

#[test]
fn polarizations_in_data_sets_of_their_own() {
    let folder = tempfile::tempdir().unwrap();
    let (plus, cross) = series();
    let path = file(folder.path(), |builder| {
        let mut group = builder.create_group("first");
        let dataset = group.create_dataset("H_Plus").with_f64_data(&plus);
        dataset.set_attr("dt", AttrValue::F64(1.0 / 2048.0));
        group.create_dataset("h_cross").with_f64_data(&cross);
        group.set_attr("mass1", AttrValue::F64(30.0));
        group.set_attr("mass2", AttrValue::F64(20.0));
        group.set_attr("distance_mpc", AttrValue::F64(100.0));
        builder.add_group(group.finish());
    });
    let [wave] = &waveforms(&path)[..] else { panic!("one waveform expected") };
    assert_eq!((wave.name.as_str(), wave.rate_hz, wave.peak), ("first", 2048, 1));
    assert_eq!(wave.samples, samples());
    assert_eq!(wave.binary, Some(Binary::of_masses(30.0, 20.0)));
    assert_eq!(wave.distance_mpc, 100.0);
}

#[test]
fn rows_and_columns_of_one_data_set() {
    let folder = tempfile::tempdir().unwrap();
    let (plus, cross) = series();
    let pairs: Vec<f64> = plus.iter().zip(&cross).flat_map(|(a, b)| [*a, *b]).collect();
    let rows = [plus, cross].concat();
    for (numbers, shape) in [(rows, [2, 6]), (pairs, [6, 2])] {
        let path = file(folder.path(), |builder| {
            builder.create_dataset("template").with_f64_data(&numbers).with_shape(&shape);
            builder.create_dataset("dt").with_f64_data(&[1.0 / 4096.0]);
        });
        let [wave] = &waveforms(&path)[..] else { panic!("one waveform expected") };
        assert_eq!((wave.name.as_str(), wave.rate_hz), ("waves", 4096));
        assert_eq!(wave.samples, samples());
    }
}

/// Layout that PyCBC's `TimeSeries.save` writes for `h_plus` and for `h_plus - i h_cross`: one data set with
/// `delta_t`.
#[test]
fn series_of_pycbc_real_and_complex() {
    let folder = tempfile::tempdir().unwrap();
    let wave = |n: usize| {
        let t = n as f64 - 300.0;
        let size = (-(t / 60.0).powi(2)).exp();
        Complex64::from_polar(size, -0.7 * t - 5e-4 * t * t)
    };
    let known: Vec<Complex64> = (0..600).map(wave).collect();
    let padded = |number: fn(&Complex64) -> f64| {
        let mut all = vec![0.0; 100];
        all.extend(known.iter().map(number));
        all.resize(1024, 0.0);
        all
    };
    let plus = padded(|h| h.re);
    let rate = ("delta_t", AttrValue::F64(1.0 / 4096.0));
    let path = file(folder.path(), |builder| {
        builder.create_dataset("data").with_f64_data(&plus).set_attr(rate.0, rate.1.clone());
    });
    let [real] = &waveforms(&path)[..] else { panic!("one waveform expected") };
    assert_eq!((real.name.as_str(), real.rate_hz, real.peak), ("waves_data", 4096, 300));
    for (found, known) in real.samples.iter().zip(&known) {
        assert_eq!(found.re, known.re);
        assert!((found - known).norm() < 1e-3, "{found} {known}");
    }
    let path = file(folder.path(), |builder| {
        let numbers = plus.iter().zip(padded(|h| h.im)).flat_map(|(re, im)| [*re, im]);
        let bytes = numbers.flat_map(f64::to_le_bytes).collect();
        let kind = CompoundTypeBuilder::new().f64_field("r").f64_field("i").build().unwrap();
        let dataset = builder.create_dataset("data").with_raw_data(kind, bytes, 1024);
        dataset.with_shape(&[1024]).set_attr(rate.0, rate.1.clone());
    });
    let [complex] = &waveforms(&path)[..] else { panic!("one waveform expected") };
    assert_eq!((complex.samples.as_slice(), complex.peak), (known.as_slice(), 300));
    let path = file(folder.path(), |builder| {
        let dataset = builder.create_dataset("data").with_f64_data(&plus);
        dataset.set_attr("delta_f", AttrValue::F64(0.125));
    });
    let error = open(&path).unwrap_err().to_string();
    assert!(error.contains("FrequencySeries") && error.contains("to_timeseries"), "{error}");
}

#[test]
fn complex_series_and_rows_of_many() {
    let folder = tempfile::tempdir().unwrap();
    let (plus, cross) = series();
    let path = file(folder.path(), |builder| {
        let twice = |one: &[f64]| one.repeat(2);
        builder.create_dataset("plus").with_f64_data(&twice(&plus)).with_shape(&[2, 6]);
        builder.create_dataset("cross").with_f64_data(&twice(&cross)).with_shape(&[2, 6]);
        let numbers = plus.iter().zip(&cross).flat_map(|(a, b)| [*a, -b]);
        let bytes = numbers.flat_map(f64::to_le_bytes).collect();
        let kind = CompoundTypeBuilder::new().f64_field("r").f64_field("i").build().unwrap();
        builder.create_dataset("other").with_raw_data(kind, bytes, 6);
    });
    let options = TemplateOptions { rate_hz: Some(1024), distance_mpc: Some(5.0) };
    let Templates::Waveforms(waves) = open_with(&path, &options).unwrap() else { panic!() };
    let names: Vec<&str> = waves.iter().map(|wave| &*wave.name).collect();
    assert_eq!(names, ["waves_0", "waves_1", "waves_other"]);
    for wave in &waves {
        assert_eq!((wave.rate_hz, wave.distance_mpc), (1024, 5.0));
        assert_eq!(wave.samples, samples());
    }
    let error = open(&path).unwrap_err().to_string();
    assert!(error.contains("no rate found"), "{error}");
}

#[test]
fn what_is_no_template_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let (plus, _) = series();
    let told = |build: &dyn Fn(&mut FileBuilder)| {
        let path = file(folder.path(), build);
        let error = open(&path).unwrap_err();
        assert!(matches!(error, Error::Format { .. }), "{error:?}");
        error.to_string()
    };
    let error = told(&|builder| {
        builder.create_dataset("data").with_i64_data(&[1, 2, 3]);
    });
    assert!(error.contains("data (i64 [3])") && error.contains("plus and cross"), "{error}");
    let error = told(&|builder| {
        builder.create_dataset("plus").with_f64_data(&plus);
    });
    assert!(error.contains("without cross"), "{error}");
    let error = told(&|builder| {
        builder.create_dataset("plus").with_f64_data(&plus);
        builder.create_dataset("cross").with_f64_data(&plus[1..]);
    });
    assert!(error.contains("cross") && error.contains("[5]"), "{error}");
    let error = told(&|builder| {
        builder.set_attr("rate", AttrValue::F64(4096.5));
        builder.create_dataset("plus").with_f64_data(&plus);
        builder.create_dataset("cross").with_f64_data(&plus);
    });
    assert!(error.contains("4096.5 Hz"), "{error}");
    let error = told(&|builder| {
        builder.set_attr("rate", AttrValue::F64(4096.0));
        builder.create_dataset("plus").with_f64_data(&[1.0, f64::NAN]);
        builder.create_dataset("cross").with_f64_data(&[1.0, 1.0]);
    });
    assert!(error.contains("finite"), "{error}");
}

#[test]
fn banks_of_pycbc() {
    let folder = tempfile::tempdir().unwrap();
    let bank = |spin: &[f64], across: f64| {
        file(folder.path(), |builder| {
            builder.create_dataset("mass1").with_f64_data(&[30.0, 1.4]);
            builder.create_dataset("mass2").with_f64_data(&[25.0, 1.3]);
            builder.create_dataset("spin1z").with_f64_data(spin);
            builder.create_dataset("spin1x").with_f64_data(&[0.0, across]);
            builder.create_dataset("template_hash").with_i64_data(&[i64::MAX, -7]);
        })
    };
    let found = binaries(&bank(&[0.5, -0.25], 0.0));
    let first = Binary { spin1z: 0.5, ..Binary::of_masses(30.0, 25.0) };
    let second = Binary { spin1z: -0.25, ..Binary::of_masses(1.4, 1.3) };
    assert_eq!(found, [("9223372036854775807".to_string(), first), ("-7".to_string(), second)]);
    for (spin, across, named) in
        [(&[0.5][..], 0.0, "spin1z"), (&[0.5, 1.0], 0.0, "spin1z"), (&[0.5, 0.5], 0.1, "spin1x")]
    {
        let error = open(&bank(spin, across)).unwrap_err().to_string();
        assert!(error.contains(named), "{error}");
    }
}

#[test]
fn tables_and_text_are_told_by_their_content() {
    let folder = tempfile::tempdir().unwrap();
    let table = "<?xml version='1.0'?>\n<LIGO_LW>\n<Table Name=\"sngl_inspiral:table\">\n\
        <Column Name=\"event_id\" Type=\"ilwd:char\"/>\n<Column Name=\"mass1\" Type=\"real_4\"/>\n\
        <Column Name=\"mass2\" Type=\"real_4\"/>\n<Column Name=\"spin2z\" Type=\"real_4\"/>\n\
        <Stream Name=\"sngl_inspiral:table\" Type=\"Local\" Delimiter=\",\">\n\
        \"sngl_inspiral:event_id:12\",5,1.4,-0.5\n</Stream>\n</Table>\n</LIGO_LW>\n";
    let csv = "mass1,mass2,spin2z,name\n5,1.4,-0.5,12\n";
    let expected = Binary { spin2z: -0.5, ..Binary::of_masses(5.0, 1.4) };
    for text in [table, csv] {
        // The name carries no information.
        let path = folder.path().join("bank.dat");
        std::fs::write(&path, text).unwrap();
        assert_eq!(binaries(&path), [("12".to_string(), expected)]);
    }
    for (text, named) in
        [("", "found 0 templates"), ("\u{1}\u{2}", "mass1"), ("mass1,mass2\n", "found 0")]
    {
        let path = folder.path().join("bank.xml");
        std::fs::write(&path, text).unwrap();
        let error = open(&path).unwrap_err().to_string();
        assert!(error.contains(named), "{error}");
    }
    assert!(matches!(open(&folder.path().join("none")), Err(Error::Io { .. })));
}

#[test]
fn the_template_of_the_first_event() {
    let Some(data) = common::data_dir() else { return };
    let [wave] = &waveforms(&data.join("gw/GW150914_4_template.hdf5"))[..] else {
        panic!("one waveform expected")
    };
    assert_eq!((wave.rate_hz, wave.peak, wave.samples.len()), (4096, 65471, 65635));
    let expected = Binary { mass1_msun: 41.743, mass2_msun: 29.237, spin1z: 0.355, spin2z: -0.769 };
    assert_eq!(wave.binary, Some(expected));
    assert!((wave.samples[wave.peak].norm() / 8.3387e-19 - 1.0).abs() < 1e-4);
    // Its distance is 1 Mpc: early in the inspiral, a waveform of its masses has the same amplitude and phase
    // direction.
    let options = InspiralOptions { f_low_hz: 10.0, ..InspiralOptions::default() };
    let made = inspiral(&expected, &options).unwrap();
    let turn = |h: &[Complex64]| (h[1] / h[0]).arg();
    let place = |wave: &Waveform| {
        let at = wave.peak - 4096;
        (turn(&wave.samples[at..]), wave.samples[at].norm())
    };
    let ((turn_1, loud_1), (turn_2, loud_2)) = (place(wave), place(&made));
    assert!(turn_1 < 0.0 && turn_2 < 0.0, "{turn_1} {turn_2}");
    assert!((loud_1 / loud_2 - 1.0).abs() < 0.15, "{loud_1} {loud_2}");
}

#[test]
fn a_small_file_of_long_series_is_refused() {
    let home = tempfile::tempdir().unwrap();
    let series = vec![1e-21; 5 << 20];
    let path = file(home.path(), |file| {
        for name in ["plus", "cross"] {
            let dataset = file.create_dataset(name).with_f64_data(&series);
            dataset.with_chunks(&[1 << 16]).with_deflate(4);
        }
        file.set_attr("rate", AttrValue::I64(4096));
    });
    assert!(std::fs::metadata(&path).unwrap().len() < 200_000);
    let told = open(&path).expect_err("too long a series").to_string();
    assert!(told.contains("plus") && told.contains("bytes"), "{told}");
}
