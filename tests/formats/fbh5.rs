//! FBH5: fixtures that the HDF5 library wrote, read back to their values.

use crate::support::streams;
use std::path::Path;

use hdf5_pure::AttrValue;
use sidereal::Error;
use sidereal::io::{Polarizations, fbh5_from_bytes, open_fbh5};
use sidereal::sample::{Encoding, unpack_f32};
use streams::{noise, read_all};

fn fixture(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

/// The fixtures' values, as tests/fixtures/README.md has them.
fn fixture_value(time: usize, feed: usize, channel: usize) -> f32 {
    ((7 * time + 31 * feed + channel * channel / 8) % 251) as f32
}

#[test]
fn bitshuffled_files_are_read() {
    let cases = [
        ("fbh5_bitshuffle_u8.h5", Encoding::U8, Encoding::U16),
        ("fbh5_bitshuffle_f32.h5", Encoding::F32, Encoding::F32),
        ("fbh5_deflate_u8.h5", Encoding::U8, Encoding::U16),
    ];
    for (name, encoding, sum_encoding) in cases {
        let open = |wanted| open_fbh5(&fixture(name), wanted).unwrap();
        let header = open(Polarizations::Total).header().clone();
        assert_eq!((header.channels(), header.times), (50, Some(96)));
        assert_eq!((header.band.fch1_mhz(), header.band.foff_mhz()), (1500.0, -0.25));
        assert_eq!((header.ra_deg, header.dec_deg), (Some(45.0), Some(-30.5)));
        assert_eq!((header.source_name.as_str(), header.tsamp_s), ("fixture", 0.001));
        assert_eq!(header.encoding, sum_encoding);
        let truth = |value: &dyn Fn(usize, usize) -> f32| -> Vec<f32> {
            (0..96 * 50).map(|index| value(index / 50, index % 50)).collect()
        };
        for feed in 0..2 {
            let mut source = open(Polarizations::One(feed));
            assert_eq!(source.header().encoding, encoding);
            let expected = truth(&|time, channel| fixture_value(time, feed, channel));
            assert_eq!(read_all(source.as_mut()), expected, "{name}, feed {feed}");
        }
        let sum = truth(&|t, c| fixture_value(t, 0, c) + fixture_value(t, 1, c));
        assert_eq!(read_all(open(Polarizations::Total).as_mut()), sum, "{name}");
        let mut source = open(Polarizations::Total);
        assert_eq!(source.skip(41).unwrap(), 41);
        let mut rows = vec![0; 60 * source.header().row_bytes()];
        assert_eq!(source.read(&mut rows).unwrap(), 55);
        let mut values = vec![0.0; 55 * 50];
        unpack_f32(&rows, sum_encoding, &mut values);
        assert_eq!(values, sum[41 * 50..], "{name}");
        let missing = open_fbh5(&fixture(name), Polarizations::One(2)).map(|_| ());
        assert!(matches!(missing, Err(Error::Parameter { .. })));
    }
}

#[test]
fn contiguous_files_are_read() {
    let value = |index: usize| (index * 7919 % 65521) as u16;
    let values: Vec<u16> = (0..40 * 2 * 9).map(value).collect();
    let mut builder = hdf5_pure::FileBuilder::new();
    builder.set_attr("CLASS", AttrValue::AsciiString("FILTERBANK".into()));
    let data = builder.create_dataset("data").with_u16_data(&values).with_shape(&[40, 2, 9]);
    for (name, value) in [("fch1", 400.0), ("foff", 0.5), ("tsamp", 1e-3)] {
        data.set_attr(name, AttrValue::F64(value));
    }
    let bytes = builder.finish().unwrap();
    let open = |wanted| fbh5_from_bytes(bytes.clone(), Path::new("x"), wanted).unwrap();
    let line = |time: usize, feed: usize| {
        values[(2 * time + feed) * 9..][..9].iter().map(|x| f32::from(*x))
    };
    let first: Vec<f32> = (0..40).flat_map(|time| line(time, 0)).collect();
    let second: Vec<f32> = (0..40).flat_map(|time| line(time, 1)).collect();
    let sum: Vec<f32> = first.iter().zip(&second).map(|(a, b)| a + b).collect();
    assert_eq!(open(Polarizations::One(1)).header().encoding, Encoding::U16);
    assert_eq!(read_all(open(Polarizations::One(0)).as_mut()), first);
    assert_eq!(read_all(open(Polarizations::One(1)).as_mut()), second);
    assert_eq!(open(Polarizations::Total).header().encoding, Encoding::F32);
    assert_eq!(read_all(open(Polarizations::Total).as_mut()), sum);
}

/// Returns a filterbank of 6000 spectra of 2 feeds and 700 channels, in chunks if a shape is given.
fn long(chunks: Option<&[u64]>) -> Vec<u8> {
    let values: Vec<u8> = (0..6000 * 2 * 700u32).map(|k| (k % 65521 * 7919 % 251) as u8).collect();
    let mut builder = hdf5_pure::FileBuilder::new();
    builder.set_attr("CLASS", AttrValue::AsciiString("FILTERBANK".into()));
    let data = builder.create_dataset("data").with_u8_data(&values).with_shape(&[6000, 2, 700]);
    if let Some(shape) = chunks {
        data.with_chunks(shape).with_deflate(1);
    }
    for (name, value) in [("fch1", 1400.0), ("foff", -0.5), ("tsamp", 1e-3)] {
        data.set_attr(name, AttrValue::F64(value));
    }
    builder.finish().unwrap()
}

#[test]
fn threads_read_as_one_does() {
    for wanted in [Polarizations::One(0), Polarizations::One(1), Polarizations::Total] {
        let rows = |bytes: &[u8], gulp: usize| {
            let mut source = fbh5_from_bytes(bytes.to_vec(), Path::new("x"), wanted).unwrap();
            let row_bytes = source.header().row_bytes();
            let (mut all, mut rows) = (Vec::new(), vec![0xee; gulp * row_bytes]);
            loop {
                let times = source.read(&mut rows).unwrap();
                all.extend_from_slice(&rows[..times * row_bytes]);
                if times < gulp {
                    return all;
                }
            }
        };
        let plain = long(None);
        let whole = rows(&plain, 6001);
        for (bytes, gulp) in [
            (&plain, 90),
            (&long(Some(&[64, 1, 200])), 6001),
            (&long(Some(&[64, 1, 200])), 333),
            (&long(Some(&[7, 2, 700])), 2500),
        ] {
            assert!(rows(bytes, gulp) == whole, "{wanted:?} {gulp}");
        }
    }
}

#[test]
fn a_file_that_shrinks_is_an_error_that_keeps_the_place() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("long.h5");
    let bytes = long(None);
    std::fs::write(&path, &bytes).unwrap();
    let mut source = open_fbh5(&path, Polarizations::One(1)).unwrap();
    let file = std::fs::File::options().write(true).open(&path).unwrap();
    file.set_len(bytes.len() as u64 / 2).unwrap();
    let row_bytes = source.header().row_bytes();
    match source.read(&mut vec![0; 6000 * row_bytes]).unwrap_err() {
        Error::Io { source, .. } => assert_eq!(source.kind(), std::io::ErrorKind::UnexpectedEof),
        other => panic!("{other}"),
    }
    // Shorter reads return the rows before the end.
    let mut rows = vec![0; 100 * row_bytes];
    let mut read = 0;
    while let Ok(times) = source.read(&mut rows) {
        read += times;
    }
    assert!((2200..=3000).contains(&read), "{read}");
}

/// Returns a filterbank of zeros with one feed and 4096 channels, in chunks of the given number of times; a few kB
/// for any length.
fn zeros(times: usize, chunk: u64) -> Vec<u8> {
    let mut builder = hdf5_pure::FileBuilder::new();
    builder.set_attr("CLASS", AttrValue::AsciiString("FILTERBANK".into()));
    let values = vec![0; times * 4096];
    let data = builder.create_dataset("data").with_u8_data(&values);
    data.with_shape(&[times as u64, 1, 4096]).with_chunks(&[chunk, 1, 4096]).with_deflate(9);
    for (name, value) in [("fch1", 1500.0), ("foff", -0.01), ("tsamp", 1e-3)] {
        data.set_attr(name, AttrValue::F64(value));
    }
    builder.finish().unwrap()
}

#[test]
fn a_small_file_of_much_data_is_refused() {
    let open = |bytes: Vec<u8>| {
        fbh5_from_bytes(bytes, Path::new("x.h5"), Polarizations::Total).map(|_| ())
    };
    // 8 MiB are accepted; a chunk of 36 MiB exceeds 32 MiB and 32 times the file.
    assert!(open(zeros(2 << 10, 512)).is_ok());
    let bytes = zeros(9 << 10, 9 << 10);
    assert!(bytes.len() < 100_000, "{}", bytes.len());
    let told = open(bytes).unwrap_err().to_string();
    assert!(told.contains("a chunk of 37748736 bytes, in a file of "), "{told}");
}

#[test]
fn damaged_hdf5_is_an_error_and_never_a_panic() {
    for name in ["fbh5_bitshuffle_u8.h5", "fbh5_deflate_u8.h5"] {
        let whole = std::fs::read(fixture(name)).unwrap();
        let try_all = |bytes: Vec<u8>| {
            if let Ok(mut source) = fbh5_from_bytes(bytes, Path::new("x"), Polarizations::Total) {
                let rows = source.header().row_bytes();
                let _ = source.read(&mut vec![0; 100 * rows]);
            }
        };
        (0..whole.len()).step_by(211).for_each(|length| try_all(whole[..length].to_vec()));
        let mut changes = noise(4000, 0, i64::from(u32::MAX)).into_iter().map(|x| x as usize);
        while let (Some(position), Some(value)) = (changes.next(), changes.next()) {
            let mut bytes = whole.clone();
            bytes[position % whole.len()] = value as u8;
            try_all(bytes);
        }
    }
}

#[test]
fn other_hdf5_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("other.h5");
    hdf5_pure::FileBuilder::new().write(&path).unwrap();
    let error = open_fbh5(&path, Polarizations::Total).map(|_| ()).unwrap_err();
    assert!(error.to_string().contains("CLASS"), "{error}");
    std::fs::write(&path, b"no HDF5 at all").unwrap();
    assert!(open_fbh5(&path, Polarizations::Total).is_err());
}
