//! Every format against real recordings, against itself, and against bad input.

use crate::support::common;
use crate::support::filterbank_rows;
use std::fs;
use std::io::Cursor;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use filterbank_rows::{open_with, read_all, values};
use proptest::prelude::*;
use sidereal::io::{
    FilterbankHeader, FilterbankSource, OpenOptions, Polarizations, npy, open, presto, sigproc,
};
use sidereal::sample::{Encoding, set_value};
use sidereal::units::Band;

fn correlation(a: &[f64], b: &[f64]) -> f64 {
    let mean = |x: &[f64]| x.iter().sum::<f64>() / x.len() as f64;
    let (mean_a, mean_b) = (mean(a), mean(b));
    let covariance = |x: &[f64], mx: f64, y: &[f64], my: f64| {
        x.iter().zip(y).map(|(x, y)| (x - mx) * (y - my)).sum::<f64>()
    };
    let norm = covariance(a, mean_a, a, mean_a) * covariance(b, mean_b, b, mean_b);
    covariance(a, mean_a, b, mean_b) / norm.sqrt()
}

#[test]
fn parkes_at_every_depth_is_the_same_sky() {
    let Some(data) = common::data_dir() else { return };
    let read = |name: &str| {
        let path = data.join("pulsar").join(name);
        let mut source = open_with(&[path], OpenOptions::default());
        let header = source.header().clone();
        assert_eq!((header.channels(), header.times), (832, Some(4096)));
        assert_eq!(
            (header.telescope.as_str(), header.source_name.as_str()),
            ("Parkes", "J0534+2200")
        );
        assert!((header.tsamp_s - 0.000_512).abs() < 1e-4 * header.tsamp_s);
        assert_eq!((header.band.fch1_mhz(), header.band.foff_mhz()), (4030.0, -4.0));
        let bytes = read_all(source.as_mut(), 1000);
        values(&bytes, header.encoding, 832)
    };
    let eight = read("parkes_8bit_1.fil");
    let mut last = 1.0;
    for (name, bits, least) in
        [("parkes_4bit.fil", 4, 0.97), ("parkes_2bit.fil", 2, 0.85), ("parkes_1bit.fil", 1, 0.6)]
    {
        let coarse = read(name);
        assert!(coarse.iter().all(|value| *value < f64::from(1 << bits)));
        // With the wrong order of samples within a byte, the sums would differ completely.
        let found = correlation(&eight, &coarse);
        assert!(found > least && found < last, "{name}: {found}");
        last = found;
    }
}

/// Sums of value times weight, made with sigpyproc 2.0.0 and NumPy from the same files.
const SIGPYPROC_SUMS: [(&str, u64); 7] = [
    ("frb/FRB180417_askap_28.fil", 0xc075_1f71_a075_be1d),
    ("pulsar/parkes_1bit.fil", 0xce46_a1a7_c3a3_6f63),
    ("pulsar/parkes_2bit.fil", 0x9437_000f_344a_c528),
    ("pulsar/parkes_4bit.fil", 0x2819_f2b0_baaa_d8cc),
    ("pulsar/parkes_8bit_1.fil", 0xca09_6eef_20b1_4487),
    ("pulsar/parkes_8bit_2.fil", 0xa603_23ae_35bc_c19a),
    ("pulsar/sim_tutorial_2bit_P250ms_DM30.fil", 0x5bc6_1bc4_7d3e_6c92),
];

#[test]
fn recordings_unpack_to_what_sigpyproc_reads() {
    let Some(data) = common::data_dir() else { return };
    for (name, expected) in SIGPYPROC_SUMS {
        let mut source = open_with(&[data.join(name)], OpenOptions::default());
        let header = source.header().clone();
        let bytes = read_all(source.as_mut(), 511);
        let values = values(&bytes, header.encoding, header.channels());
        let sum = values.iter().zip(0u64..).fold(0u64, |sum, (value, place)| {
            let weight = place.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 11;
            sum.wrapping_add((*value as u64).wrapping_mul(weight))
        });
        assert_eq!(sum, expected, "{name}");
    }
}

#[test]
fn two_parkes_files_join() {
    let Some(data) = common::data_dir() else { return };
    let paths =
        ["parkes_8bit_1.fil", "parkes_8bit_2.fil"].map(|name| data.join("pulsar").join(name));
    let mut whole = open_with(&paths, OpenOptions::default());
    assert_eq!(whole.header().times, Some(8192));
    assert!(whole.gaps().is_empty());
    let joined = read_all(whole.as_mut(), 999);
    let parts: Vec<u8> = paths
        .iter()
        .flat_map(|path| {
            read_all(open_with(std::slice::from_ref(path), OpenOptions::default()).as_mut(), 4096)
        })
        .collect();
    assert_eq!(joined, parts);
    let [first, second] = paths;
    let mut turned = open_with(&[second, first], OpenOptions::default());
    assert_eq!(
        read_all(turned.as_mut(), 4096),
        joined,
        "any order of names gives the order of time"
    );
}

#[test]
fn the_askap_burst_file_reads() {
    let Some(data) = common::data_dir() else { return };
    let path = data.join("frb/FRB180417_askap_28.fil");
    let mut source = open_with(&[path], OpenOptions::default());
    let header = source.header().clone();
    assert_eq!((header.channels(), header.times, header.encoding), (336, Some(5120), Encoding::U8));
    assert_eq!((header.band.fch1_mhz(), header.band.foff_mhz()), (1465.0, -1.0));
    assert!((header.tsamp_s - 1.266_468_75e-3).abs() < 1e-9);
    assert_eq!(source.skip(5000).unwrap(), 5000);
    assert_eq!(read_all(source.as_mut(), 33).len(), 120 * 336);
    assert_eq!(source.skip(1).unwrap(), 0);
}

#[test]
fn presto_and_sigproc_series_are_of_the_same_pulsar() {
    let Some(data) = common::data_dir() else { return };
    let (inf, dat, _) = presto::read(&data.join("pulsar/GBT_J1807-0847.dat")).unwrap();
    let (tim_header, tim, _) =
        sigproc::read_series(&data.join("pulsar/GBT_J1807-0847.tim")).unwrap();
    // The .tim was dedispersed separately: other length, baseline removed, one sample later.
    assert_eq!((dat.len(), tim.len()), (131_072, 131_130));
    let stretch = |series: &[f32], start: usize| -> Vec<f64> {
        series[start..start + 4000].iter().map(|value| f64::from(*value)).collect()
    };
    for start in [10_000, 60_000, 120_000] {
        let found = correlation(&stretch(&dat, start), &stretch(&tim, start + 1));
        let beside = correlation(&stretch(&dat, start), &stretch(&tim, start + 40));
        assert!(found > 0.8 && beside < 0.7, "{start}: {found} {beside}");
    }
    assert_eq!((inf.dm, tim_header.dm), (112.3802, 112.3802));
    assert_eq!((inf.tsamp_s, tim_header.tsamp_s), (0.000_163_84, 0.000_163_84));
    assert!((inf.epoch_mjd - tim_header.tstart_mjd).abs() < 1e-9);
    assert!((inf.ra_deg.unwrap() - tim_header.ra_deg.unwrap()).abs() < 1e-5);
    assert!((inf.dec_deg.unwrap() - tim_header.dec_deg.unwrap()).abs() < 1e-5);
    assert_eq!((inf.telescope.as_str(), tim_header.telescope.as_str()), ("GBT", "GBT"));
    assert_eq!((inf.channels, inf.lowest_mhz, inf.bandwidth_mhz), (256, 720.78125, 200.0));
    assert!(inf.notes.starts_with("Project ID unset"));
    // Our file equals PRESTO's, except for digits beyond the precision of a float.
    let theirs = fs::read_to_string(data.join("pulsar/GBT_J1807-0847.inf")).unwrap();
    for (ours, theirs) in inf.to_string().lines().zip(theirs.lines()).take(20) {
        if !ours.contains("Epoch") {
            assert_eq!(ours, theirs);
        }
    }
}

fn header(encoding: Encoding, band: Band) -> FilterbankHeader {
    FilterbankHeader {
        path: PathBuf::new(),
        format: "SIGPROC filterbank",
        source_name: "test".into(),
        telescope: "GBT".into(),
        ra_deg: None,
        dec_deg: None,
        beam: None,
        tstart_mjd: 59000.5,
        tsamp_s: 64e-6,
        band,
        encoding,
        recorded_bits: encoding.bits(),
        recorded_polarizations: 1,
        times: None,
    }
}

#[test]
fn every_depth_and_order_goes_round_in_any_gulp() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.fil");
    for encoding in Encoding::ALL.into_iter().filter(|encoding| *encoding != Encoding::I16) {
        for step in [-0.5, 0.5] {
            let header = header(encoding, Band::uniform(1400.0, step, 24).unwrap());
            let bytes: Vec<u8> =
                (0..100 * header.row_bytes()).map(|k| (k * k / 3 + k) as u8).collect();
            let mut writer = sigproc::FilterbankWriter::create(&path, &header).unwrap();
            let (first, rest) = bytes.split_at(7 * header.row_bytes());
            writer.write(first).unwrap();
            writer.write(rest).unwrap();
            writer.finish().unwrap();
            for gulp in [1, 7, 100, 1000] {
                let mut source = open_with(std::slice::from_ref(&path), OpenOptions::default());
                assert_eq!(source.header().encoding, encoding);
                assert_eq!(source.header().band, header.band);
                assert_eq!(read_all(source.as_mut(), gulp), bytes, "{encoding:?} {step} {gulp}");
            }
            let pipe = Box::new(Cursor::new(fs::read(&path).unwrap()));
            let mut source =
                sigproc::FilterbankReader::from_pipe(pipe, Path::new("-"), Polarizations::Total)
                    .unwrap();
            assert_eq!(source.skip(40).unwrap(), 40);
            assert_eq!(read_all(&mut source, 9), bytes[40 * header.row_bytes()..]);
        }
    }
}

/// The bytes of a SIGPROC file with several IFs: a file of one IF with its `nifs` changed.
fn with_ifs(one: &[u8], ifs: u8) -> Vec<u8> {
    let mut bytes = one.to_vec();
    let at = bytes.windows(4).position(|word| word == b"nifs").unwrap();
    bytes[at + 4] = ifs;
    bytes
}

#[test]
fn ifs_are_chosen_or_summed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.fil");
    for encoding in [
        Encoding::U1,
        Encoding::U2,
        Encoding::U4,
        Encoding::U8,
        Encoding::I8,
        Encoding::U16,
        Encoding::F32,
    ] {
        let header = header(encoding, Band::uniform(1400.0, -0.5, 16).unwrap());
        let mut bytes = vec![0; 40 * header.row_bytes()];
        for (time, row) in bytes.chunks_exact_mut(header.row_bytes()).enumerate() {
            let (least, most) = encoding.range().unwrap_or((-1000, 1000));
            for channel in 0..16 {
                let wild = (time * 7919 + channel * 104_729) as i64 % i64::from(most - least + 1);
                set_value(row, encoding, channel, (i64::from(least) + wild) as f64);
            }
        }
        let mut writer = sigproc::FilterbankWriter::create(&path, &header).unwrap();
        writer.write(&bytes).unwrap();
        writer.finish().unwrap();
        let one = fs::read(&path).unwrap();
        let flat = values(&bytes, encoding, 16);
        for ifs in [2u8, 4] {
            fs::write(&path, with_ifs(&one, ifs)).unwrap();
            let stride = 16 * usize::from(ifs);
            for chosen in 0..usize::from(ifs) {
                let polarizations = Polarizations::One(chosen);
                let options = OpenOptions { polarizations, ..OpenOptions::default() };
                let mut source = open_with(std::slice::from_ref(&path), options);
                let found = values(&read_all(source.as_mut(), 3), encoding, 16);
                let expected: Vec<f64> =
                    flat.chunks(stride).flat_map(|row| row[16 * chosen..][..16].to_vec()).collect();
                assert_eq!(found, expected);
            }
            let mut source = open_with(std::slice::from_ref(&path), OpenOptions::default());
            assert_eq!(source.header().recorded_polarizations, usize::from(ifs));
            assert_eq!(source.skip(1).unwrap(), 1);
            let sums = source.header().encoding;
            let found = values(&read_all(source.as_mut(), 3), sums, 16);
            let expected: Vec<f64> = flat
                .chunks(stride)
                .skip(1)
                .flat_map(|row| (0..16).map(|c| row[c] + row[c + 16]).collect::<Vec<_>>())
                .collect();
            assert_eq!(found, expected, "{encoding:?} {ifs}");
        }
        let options =
            OpenOptions { polarizations: Polarizations::One(4), ..OpenOptions::default() };
        assert!(open(std::slice::from_ref(&path), &options).is_err());
    }
}

#[test]
fn truncated_recordings_say_where_they_end() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.fil");
    let header = header(Encoding::U8, Band::uniform(1400.0, -0.5, 16).unwrap());
    let mut writer = sigproc::FilterbankWriter::create(&path, &header).unwrap();
    writer.write(&[3; 160]).unwrap();
    writer.finish().unwrap();
    let whole = fs::read(&path).unwrap();
    let start = whole.len() - 160;
    for length in 0..whole.len() {
        fs::write(&path, &whole[..length]).unwrap();
        let rows = length.checked_sub(start).map(|bytes| bytes / 16).filter(|rows| *rows > 0);
        match (open(std::slice::from_ref(&path), &OpenOptions::default()), rows) {
            (Ok(source), Some(rows)) => {
                assert_eq!(source.header().times, Some(rows as u64));
                assert_eq!(source.cut().is_some(), !(length - start).is_multiple_of(16));
            }
            (Err(error), None) => {
                let text = error.to_string();
                assert!(text.contains("a.fil") && !text.contains("os error"), "{length}: {text}");
                if length > start {
                    let expected = format!("bytes into row {}", (length - start) / 16);
                    assert!(text.contains(&expected), "{text}");
                }
            }
            (found, _) => panic!("{length}: {:?}", found.map(|source| source.header().times)),
        }
        // The end of a pipe is known only when it ends.
        let pipe = Box::new(Cursor::new(whole[..length].to_vec()));
        let source =
            sigproc::FilterbankReader::from_pipe(pipe, Path::new("-"), Polarizations::Total);
        let read = source.and_then(|mut source| source.read(&mut [0; 320]));
        assert_eq!(read.is_ok(), rows.is_some(), "{length}");
    }
}

#[test]
fn tim_and_dat_written_by_us_are_equal() {
    let folder = tempfile::tempdir().unwrap();
    let header = header(Encoding::U8, Band::uniform(1500.0, -0.5, 64).unwrap());
    let values: Vec<f32> = (0..1000).map(|t| (t as f32 * 0.1).sin()).collect();
    let inf = presto::Inf::new(&header, 56.75, 128e-6);
    let dat = folder.path().join("x_DM56.75.dat");
    let mut writer = presto::SeriesWriter::create(&dat, &inf).unwrap();
    writer.write(&values).unwrap();
    writer.finish().unwrap();
    let (inf, read, _) = presto::read(&dat).unwrap();
    assert_eq!(read, values);
    assert_eq!((inf.bins, inf.channels, inf.lowest_mhz), (1000, 64, 1468.5));
    assert_eq!((inf.bandwidth_mhz, inf.channel_width_mhz, inf.epoch_mjd), (32.0, 0.5, 59000.5));
    let rows: Vec<f32> = values.iter().flat_map(|value| [*value, -value]).collect();
    let path = folder.path().join("x.npy");
    npy::write_f32(&path, &[1000, 2], &rows).unwrap();
    let array = npy::read(&path).unwrap();
    assert_eq!(array.shape, [1000, 2]);
    assert!(array.values.iter().zip(&rows).all(|(a, b)| *a == f64::from(*b)));
}

/// A good SIGPROC header to damage.
fn sigproc_header() -> Vec<u8> {
    static BYTES: OnceLock<Vec<u8>> = OnceLock::new();
    let make = || {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.fil");
        let header = header(Encoding::I8, Band::uniform(1400.0, -0.5, 16).unwrap());
        sigproc::FilterbankWriter::create(&path, &header).unwrap().finish().unwrap();
        fs::read(&path).unwrap()
    };
    BYTES.get_or_init(make).clone()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_make_no_header_parser_panic(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        let path = Path::new("x");
        let _ = sigproc::Header::parse(bytes.as_slice(), path);
        let _ = presto::Inf::parse(&String::from_utf8_lossy(&bytes), path);
        let _ = presto::Mask::parse(&bytes, path);
        let _ = npy::Header::parse(&bytes, path);
        let _ = sidereal::io::candidates::parse_heimdall(&String::from_utf8_lossy(&bytes), path);
        let mut magic = b"\x93NUMPY\x01\x00".to_vec();
        magic.extend_from_slice(&bytes);
        let _ = npy::Header::parse(&magic, path);
    }

    #[test]
    fn a_spoilt_sigproc_header_makes_nothing_panic(
        at in any::<prop::sample::Index>(), byte in any::<u8>(), length in any::<prop::sample::Index>(),
    ) {
        let path = Path::new("x");
        let mut bytes = sigproc_header();
        let place = at.index(bytes.len());
        bytes[place] = byte;
        bytes.truncate(length.index(bytes.len() + 1).max(place));
        if let Ok(header) = sigproc::Header::parse(bytes.as_slice(), path) {
            let _ = sigproc::Layout::new(&header, path);
        }
        let pipe = Box::new(Cursor::new(bytes));
        if let Ok(mut source) = sigproc::FilterbankReader::from_pipe(pipe, path, Polarizations::Total) {
            let row_bytes = source.header().row_bytes();
            let _ = source.read(&mut vec![0; 2 * row_bytes]);
        }
    }
}
