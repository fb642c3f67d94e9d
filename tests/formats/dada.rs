//! PSRDADA: valid files made byte by byte, without our writer; files that we write are read again; damaged files give
//! errors with the key and the byte.

use crate::support::{common, dada, voltages, written};
use dada::{Dada, check, payload};
use sidereal::io::voltages::dada::{Writer, header as first_header};
use sidereal::io::voltages::{FilterGeometry, Flag, VoltageHeader, is_voltages, open as open_with};
use sidereal::units::Epoch;
use sidereal::voltage::{VoltageBlock, VoltageEncoding};
use voltages::{Keys, drain, fault, open, read_all, save, told};
use written::{in_pieces, noise, rows};

#[test]
fn headers_say_what_there_is() {
    let folder = tempfile::tempdir().unwrap();
    let dada = Dada::new().set("BW", "-3.0").set("OBS_OFFSET", 12 * 50);
    let path = dada.save(folder.path(), "x.dada", 0, 123);
    assert!(is_voltages(&path).unwrap());
    let (header, rows) = read_all(std::slice::from_ref(&path));
    assert_eq!(header.path, path);
    assert_eq!((header.format, header.source_name.as_str()), ("PSRDADA", "J0437-4715"));
    assert_eq!((header.telescope.as_str(), header.circular), ("Parkes", Some(true)));
    assert!((header.ra_deg.unwrap() - 69.315_833_333).abs() < 1e-8);
    assert!((header.dec_deg.unwrap() + 47.252_527_777).abs() < 1e-8);
    assert_eq!(header.start.day, 60000);
    assert!((header.start.seconds - 3_600.000_05).abs() < 1e-10);
    assert_eq!(header.tsamp_s, 1e-6);
    assert_eq!(header.centres_hz, [1401e6, 1400e6, 1399e6]);
    assert!(header.lower_sideband);
    assert_eq!(header.encoding, VoltageEncoding::Complex8);
    // Three bytes of an eleventh sample are skipped.
    assert_eq!((header.antennas, header.polarizations, header.times), (1, 2, Some(10)));
    check(&rows, 2, |stream, time| time * 6 + stream);
    assert_eq!(first_header(&path).unwrap().text("UTC_START"), Some("2023-02-25-01:00:00"));
}

#[test]
fn headers_need_no_marks() {
    let folder = tempfile::tempdir().unwrap();
    let expected = read_all(&[Dada::new().save(folder.path(), "x.dada", 0, 120)]).1;
    let bare = Dada::new().without("HEADER").without("HDR_VERSION").without("DADA_VERSION");
    assert_eq!(read_all(&[bare.save(folder.path(), "x.dada", 0, 120)]).1, expected);
    let mut marked = Dada::new();
    marked.lines.push(("#", "end of header\nNBIT 77\n\u{1}".replace('\u{1}', "")));
    let text = String::from_utf8(marked.header()).unwrap().replace("# \tend", "# end");
    let padded = format!("{:\n<1024}", text.trim_end_matches('\0'));
    let data: Vec<u8> = (0..120).map(payload).collect();
    let path = save(folder.path(), "x.dada", &[padded.as_bytes(), &data].concat());
    assert_eq!(read_all(&[path]).1, expected);
    // A long header, and one that leaves its size to the format's default.
    for (dada, size) in
        [(Dada::new().set("HDR_SIZE", 8192), 8192), (Dada::new().without("HDR_SIZE"), 4096)]
    {
        let path = Dada { size, ..dada }.save(folder.path(), "x.dada", 0, 120);
        assert_eq!(read_all(&[path]).1, expected);
    }
}

#[test]
fn every_encoding_is_told_from_the_header() {
    use VoltageEncoding as Is;
    let folder = tempfile::tempdir().unwrap();
    let cases = [
        (4, 2, "TWOSCOMPLEMENT", Is::Complex4),
        (8, 2, "TWOSCOMPLEMENT", Is::Complex8),
        (8, 2, "OFFSET_BINARY", Is::ComplexOffset8),
        (16, 2, "SIGNED", Is::Complex16),
        (32, 2, "FLOAT", Is::ComplexF32),
        (8, 1, "TwosComplement", Is::Real8),
        (8, 1, "OffsetBinary", Is::RealOffset8),
        (16, 1, "TWOSCOMPLEMENT", Is::Real16),
        (32, 1, "TWOSCOMPLEMENT", Is::RealF32),
    ];
    for (bits, dimensions, encoding, expected) in cases {
        let dada = Dada::new().set("NBIT", bits).set("NDIM", dimensions).set("ENCODING", encoding);
        let bytes = expected.sample_bits() / 8;
        let (header, rows) = read_all(&[dada.save(folder.path(), "x.dada", 0, 6 * bytes * 40)]);
        assert_eq!((header.encoding, header.recorded_bits), (expected, bits));
        assert_eq!(header.times, Some(40));
        check(&rows, bytes, |stream, time| time * 6 + stream);
    }
    let dada = Dada::new().without("NDIM").set("STATE", "Nyquist");
    let (header, _) = read_all(&[dada.save(folder.path(), "x.dada", 0, 120)]);
    assert_eq!(header.encoding, Is::Real8);
}

#[test]
fn axes_come_in_the_order_that_the_header_names() {
    let folder = tempfile::tempdir().unwrap();
    let one = |order, resolution| Dada::new().set("ORDER", order).set("RESOLUTION", resolution);
    let read = |dada: &Dada| read_all(&[dada.save(folder.path(), "x.dada", 0, 240)]).1;
    check(&read(&one("TFP", 1)), 2, |stream, time| time * 6 + stream);
    check(&read(&one("TPF", 1)), 2, |stream, time| time * 6 + stream % 2 * 3 + stream / 2);
    // Heaps of 5 samples: 60 bytes.
    let heap = |time: usize| time / 5 * 30;
    check(&read(&one("FTP", 60)), 2, |stream, time| {
        heap(time) + (stream / 2 * 5 + time % 5) * 2 + stream % 2
    });
    check(&read(&one("TPFT", 60)), 2, |stream, time| {
        heap(time) + (stream % 2 * 3 + stream / 2) * 5 + time % 5
    });
    check(&read(&one("PTF", 60)), 2, |stream, time| {
        heap(time) + (stream % 2 * 5 + time % 5) * 3 + stream / 2
    });
    // Two antennas of three channels, one polarization: streams antenna, channel.
    let array = |order| one(order, 60).set("NANT", 2).set("NPOL", 1);
    check(&read(&array("TFAP")), 2, |stream, time| time * 6 + stream % 3 * 2 + stream / 3);
    check(&read(&array("TAFT")), 2, |stream, time| heap(time) + stream * 5 + time % 5);
    // An axis of length one may be absent: FTP of one channel is TP.
    let dada = one("FTP", 1).set("NCHAN", 1);
    check(&read(&dada), 2, |stream, time| time * 2 + stream);
}

#[test]
fn meerkat_heaps_have_256_samples() {
    let folder = tempfile::tempdir().unwrap();
    let heap = 256 * 12;
    let dada = Dada::new().without("HEADER").set("INSTRUMENT", "MKBF").set("RESOLUTION", heap);
    // Half a heap at the end is skipped.
    let (header, rows) = read_all(&[dada.save(folder.path(), "x.dada", 0, 2 * heap + heap / 2)]);
    assert_eq!(header.times, Some(512));
    check(&rows, 2, |stream, time| {
        time / 256 * 1536 + (stream % 2 * 3 + stream / 2) * 256 + time % 256
    });
    let (field, _, message) = fault(&[dada.save(folder.path(), "x.dada", 0, heap - 1)]);
    assert!(field == "data" && message.contains("256 samples"), "{message}");
}

#[test]
fn files_lie_where_their_offsets_say() {
    let folder = tempfile::tempdir().unwrap();
    let part = |name: &str, first: usize, times: usize| {
        let dada = Dada::new().set("OBS_OFFSET", 6000 + first * 12).set("FILE_NUMBER", first);
        dada.save(folder.path(), name, first * 12, times * 12)
    };
    let paths = [part("a", 0, 10), part("b", 10, 5), part("c", 20, 10)];
    for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0]] {
        let paths = order.map(|number: usize| paths[number].clone());
        let source = open(&paths);
        assert_eq!(source.flags(), [Flag { streams: 0..6, start: 15, times: 5 }]);
        assert!((source.header().start.seconds - 3_600.000_5).abs() < 1e-10);
        let (header, rows) = read_all(&paths);
        assert_eq!((header.times, header.path), (Some(30), folder.path().join("a")));
        for (stream, row) in rows.iter().enumerate() {
            for (time, found) in row.chunks(2).enumerate() {
                let at = (time * 6 + stream) * 2;
                let missing = (15..20).contains(&time);
                let expected = if missing { [0, 0] } else { [payload(at), payload(at + 1)] };
                assert_eq!(found, expected);
            }
        }
    }
    let overlapping = [paths[0].clone(), part("d", 8, 10)];
    let (field, _, message) = fault(&overlapping);
    assert!(field == "OBS_OFFSET" && message.contains("2 samples before"), "{message}");
    let dada = |first: usize| Dada::new().set("OBS_OVERLAP", 24).set("OBS_OFFSET", first * 12);
    let overlapping =
        [dada(0).save(folder.path(), "a", 0, 120), dada(8).save(folder.path(), "b", 96, 120)];
    let (header, rows) = read_all(&overlapping);
    assert_eq!(header.times, Some(18));
    check(&rows, 2, |stream, time| time * 6 + stream);
}

#[test]
fn files_without_offsets_are_numbered() {
    let folder = tempfile::tempdir().unwrap();
    let part = |name: &str, number: usize| {
        let dada = Dada::new().set("FILE_NUMBER", number).set("FILE_SIZE", 120);
        dada.save(folder.path(), name, number * 120, 120)
    };
    let paths = [part("z", 3), part("y", 4), part("x", 6)];
    let source = open(&paths);
    assert_eq!(source.header().path, paths[0]);
    assert_eq!(source.flags(), [Flag { streams: 0..6, start: 20, times: 10 }]);
    let (field, _, message) = fault(&[paths[0].clone(), paths[0].clone()]);
    assert!(field == "FILE_NUMBER" && message.contains("10 samples before"), "{message}");
    let far = part("w", 9_999_999_999_999);
    assert!(fault(&[paths[0].clone(), far]).2.contains("more than a day"));
    let far = Dada::new().set("FILE_NUMBER", u64::MAX).set("FILE_SIZE", 120);
    let far = far.save(folder.path(), "w", 0, 120);
    assert_eq!(fault(&[paths[0].clone(), far]).0, "FILE_NUMBER");
}

#[test]
fn files_joined_end_to_end_are_parts() {
    let folder = tempfile::tempdir().unwrap();
    let part = |number: usize| {
        let dada = Dada::new().set("FILE_SIZE", 120).set("OBS_OFFSET", number * 120);
        std::fs::read(dada.save(folder.path(), "part", number * 120, 120)).unwrap()
    };
    let path = save(folder.path(), "x.dada", &[part(0), part(1), part(3)].concat());
    let source = open(std::slice::from_ref(&path));
    assert_eq!(source.flags(), [Flag { streams: 0..6, start: 20, times: 10 }]);
    let (header, rows) = read_all(&[path]);
    assert_eq!(header.times, Some(40));
    assert_eq!(rows[5][78..], [payload(478), payload(479)]);
}

#[test]
fn starts_are_as_exact_as_they_are_written() {
    let folder = tempfile::tempdir().unwrap();
    let start = |dada: Dada| {
        let path = dada.save(folder.path(), "x.dada", 0, 120);
        open(&[path]).header().start
    };
    let with = |utc: &str, mjd: &str| Dada::new().set("UTC_START", utc).set("MJD_START", mjd);
    // Same time: the whole second is exact.
    let found = start(with("2013-07-02-01:37:40", "56475.06782407407"));
    assert_eq!(found, Epoch::new(56475, 5860.0));
    // The MJD has a fraction that UTC_START leaves out.
    let found = start(with("2022-01-17-06:17:50", "59596.262395813837"));
    assert!((found.seconds - 22_670.998_315_5).abs() < 1e-6 && found.day == 59596);
    let found = start(Dada::new().set("PICOSECONDS", 107_083_414));
    assert!((found.seconds - 3_600.000_107_083_414).abs() < 1e-11);
    assert_eq!(start(with("unset", "0")), Epoch::default());
    assert_eq!(start(Dada::new().without("UTC_START")), Epoch::default());
    assert_eq!(start(with("2023-02-25T01:00:00.5", "unset")), Epoch::new(60000, 3_600.5));
}

#[test]
fn what_the_reader_is_told_goes_first() {
    let folder = tempfile::tempdir().unwrap();
    let path = Dada::new().without("TSAMP").without("BW").save(folder.path(), "x.dada", 0, 120);
    let mut source = open_with(&[path], &told()).unwrap();
    let header = source.header();
    assert_eq!((header.tsamp_s, header.lower_sideband), (0.5e-6, true));
    assert_eq!(header.centres_hz, [998e6, 1000e6, 1002e6]);
    assert_eq!(drain(source.as_mut(), 4).len(), 6);
}

#[test]
fn the_recordings_hold_what_is_known_of_them() {
    let Some(folder) = common::data_dir() else { return };
    let cases = [
        ("sample.dada", 16000, 2, Epoch::new(56475, 5960.0)),
        ("sample_mkbf.dada", 256, 2048, Epoch::new(60144, 55_636.197_919_789_3)),
    ];
    for (name, times, streams, start) in cases {
        let mut source = open(&[folder.join("baseband").join(name)]);
        let header = source.header().clone();
        assert_eq!((header.times, header.streams()), (Some(times), streams));
        assert!(header.start.seconds_since(&start).abs() < 1e-9, "{:?}", header.start);
        let rows = drain(source.as_mut(), 1000);
        if name == "sample.dada" {
            let minus_38 = (-38i8) as u8;
            assert!(rows.iter().all(|row| row[..2] == [minus_38, minus_38]));
        }
    }
}

fn written(encoding: VoltageEncoding, antennas: usize) -> VoltageHeader {
    VoltageHeader {
        source_name: "J0437-4715".into(),
        telescope: "MeerKAT 64".into(),
        ra_deg: Some(69.25),
        dec_deg: Some(-47.25),
        start: Epoch::new(60000, 86_399.123_456_789),
        antennas,
        polarizations: 2,
        circular: Some(false),
        filter: Some(FilterGeometry {
            channels: 64,
            taps: 8,
            window: "kaiser 60 dB".into(),
            oversampling: (1, 1),
        }),
        ..VoltageHeader::new(vec![1397e6, 1400e6, 1403e6], 1.0 / 3e6, encoding)
    }
}

#[test]
fn what_is_written_is_read() {
    let folder = tempfile::tempdir().unwrap();
    for encoding in VoltageEncoding::ALL {
        for antennas in [1, 3] {
            let header = written(encoding, antennas);
            let path = folder.path().join(format!("{encoding:?}{antennas}.dada"));
            if encoding.group_samples() > 1 {
                assert!(Writer::create(&path, &header).is_err());
                continue;
            }
            let block = noise(&header, 301);
            let mut writer = Writer::create(&path, &header).unwrap();
            in_pieces(&path, &block, |piece| writer.write(piece));
            writer.finish().unwrap();
            let (found, read) = read_all(std::slice::from_ref(&path));
            assert!(found.start.seconds_since(&header.start).abs() < 1e-10);
            let expected = VoltageHeader {
                path,
                format: "PSRDADA",
                times: Some(301),
                start: found.start,
                ..header
            };
            assert_eq!(found, expected);
            assert_eq!(read, rows(&block), "{encoding:?}");
        }
    }
}

#[test]
fn channels_are_written_in_the_order_of_their_sideband() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.dada");
    let header = VoltageHeader { lower_sideband: true, ..written(VoltageEncoding::Real8, 1) };
    let mut block = header.block(4);
    block.rows_mut().enumerate().for_each(|(stream, row)| row.fill(stream as u8));
    block.set_times(4).unwrap();
    let mut writer = Writer::create(&path, &header).unwrap();
    writer.write(block.voltages()).unwrap();
    writer.finish().unwrap();
    let (found, rows) = read_all(&[path]);
    assert_eq!(found.centres_hz, [1403e6, 1400e6, 1397e6]);
    assert!(found.lower_sideband);
    assert_eq!(rows, [4, 5, 2, 3, 0, 1].map(|stream| vec![stream; 4]));
}

#[test]
fn what_does_not_belong_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.dada");
    let good = written(VoltageEncoding::Complex8, 1);
    let long = VoltageHeader { source_name: "x".repeat(5000), ..good.clone() };
    assert!(Writer::create(&path, &long).unwrap_err().to_string().contains("4096"));
    let mut writer = Writer::create(&path, &good).unwrap();
    assert!(writer.write(VoltageBlock::new(VoltageEncoding::Complex8, 5, 4).voltages()).is_err());
    assert!(writer.write(VoltageBlock::new(VoltageEncoding::Real16, 6, 4).voltages()).is_err());
    assert!(writer.finish().is_err());
    // A name can't add lines to the header.
    let tricky = VoltageHeader { source_name: "a\nNBIT 32 # b".into(), ..good };
    let mut writer = Writer::create(&path, &tricky).unwrap();
    writer.write(tricky.block(4).voltages()).unwrap();
    let mut block = tricky.block(4);
    block.set_times(4).unwrap();
    writer.write(block.voltages()).unwrap();
    writer.finish().unwrap();
    let (found, _) = read_all(&[path]);
    assert_eq!((found.source_name.as_str(), found.recorded_bits), ("a?NBIT 32 ? b", 8));
}

#[test]
fn files_that_differ_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let first = Dada::new().save(folder.path(), "a", 0, 120);
    for (key, value) in [
        ("NBIT", "4"),
        ("NDIM", "1"),
        ("NPOL", "1"),
        ("NCHAN", "6"),
        ("TSAMP", "2.0"),
        ("FREQ", "1401"),
        ("BW", "-3.0"),
        ("ORDER", "TPF"),
        ("UTC_START", "2023-02-25-01:00:01"),
        ("RESOLUTION", "12"),
    ] {
        let other = Dada::new().set("OBS_OFFSET", 120).set(key, value);
        let (field, _, message) = fault(&[first.clone(), other.save(folder.path(), "b", 0, 120)]);
        assert!(field == key && message.contains("first file"), "{message}");
    }
    let guppi = save(folder.path(), "b.raw", format!("{:<80}", "NBITS   = 8").as_bytes());
    assert!(fault(&[first, guppi]).2.contains("expected PSRDADA"));
}

#[test]
fn keys_that_make_no_sense_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let huge = u64::MAX.to_string();
    let cases: &[(&str, &str, &str)] = &[
        ("HDR_SIZE", "0", "1 to"),
        ("HDR_SIZE", &huge, "1 to"),
        ("HDR_SIZE", "4096", "ends 1144 bytes"),
        ("NBIT", "3", "4, 8, 16 or 32"),
        ("NBIT", "0", "1 at least"),
        ("NBIT", "-8", "count"),
        ("NDIM", "3", "1 (real) or 2"),
        ("NPOL", "4", "1 or 2"),
        ("NPOL", "0", "1 at least"),
        ("NCHAN", "0", "1 at least"),
        ("NCHAN", &huge, "at most"),
        ("NANT", &huge, "at most"),
        ("NCHAN", "1000000", "follow the header"),
        ("NANT", "0", "1 at least"),
        ("NCHAN", "many", "many"),
        ("TSAMP", "0", "above 0"),
        ("TSAMP", "-1", "above 0"),
        ("TSAMP", "nan", "number"),
        ("TSAMP", "1e-320", "above 0"),
        ("FREQ", "inf", "number"),
        ("BW", "x", "number"),
        ("OBS_OFFSET", "-5", "count"),
        ("OBS_OFFSET", &huge, "after the observation"),
        ("ORDER", "FTQ", "not supported"),
        ("ORDER", "TFF", "not supported"),
        ("ORDER", "TF", "not supported"),
        ("ENCODING", "gray", "TWOSCOMPLEMENT"),
        ("UTC_START", "yesterday", "a date"),
        ("MJD_START", "x", "Julian"),
        ("INSTRUMENT", "MKBFRo", "MKBFRo"),
    ];
    for (key, value, expected) in cases {
        let key: &'static str = Box::leak(key.to_string().into_boxed_str());
        let found = fault(&[Dada::new().set(key, value).save(folder.path(), "x.dada", 0, 120)]);
        let field = if *expected == "follow the header" { "data" } else { key };
        assert!(found.0 == field && found.2.contains(expected), "{key} {value}: {}", found.2);
    }
    for key in ["NBIT", "NDIM", "NPOL", "NCHAN", "TSAMP"] {
        let found = fault(&[Dada::new().without(key).save(folder.path(), "x.dada", 0, 120)]);
        assert_eq!(found.0, key, "{}", found.2);
    }
    let cases: &[(Dada, &str)] = &[
        (Dada::new().set("ORDER", "FTP"), "RESOLUTION"),
        (Dada::new().set("ORDER", "FTP").set("RESOLUTION", 13), "RESOLUTION"),
        (Dada::new().set("ORDER", "FTP").set("RESOLUTION", u64::MAX / 12 * 12), "data"),
        (Dada::new().set("NANT", 2), "ORDER"),
        (Dada::new().set("NBIT", 4).set("NDIM", 1), "NBIT"),
        (Dada::new().set("NBIT", 16).set("ENCODING", "OFFSETBINARY"), "ENCODING"),
        (Dada::new().set("NBIT", 16).set("ENDIAN", "BIG"), "ENDIAN"),
        (
            Dada::new()
                .set("FILE_SIZE", u64::MAX)
                .set("NCHAN", 1 << 20)
                .set("NANT", 1 << 20)
                .set("ORDER", "TFAP"),
            "data",
        ),
    ];
    for (dada, field) in cases {
        let found = fault(&[dada.save(folder.path(), "x.dada", 0, 120)]);
        assert_eq!(found.0, *field, "{}", found.2);
    }
}

#[test]
fn a_file_cut_anywhere_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let whole = std::fs::read(Dada::new().save(folder.path(), "whole", 0, 36)).unwrap();
    for length in 0..whole.len() {
        let path = save(folder.path(), "x.dada", &whole[..length]);
        if length < 1024 + 12 {
            let (field, offset, message) = fault(&[path]);
            assert!(message.contains("x.dada") && offset <= length as u64, "{message}");
            let known = ["file", "HDR_SIZE", "NBIT", "data"].contains(&field.as_str());
            assert!(known, "cut at {length}: {message}");
            continue;
        }
        let (header, rows) = read_all(&[path]);
        assert_eq!(header.times, Some((length as u64 - 1024) / 12));
        check(&rows, 2, |stream, time| time * 6 + stream);
    }
}
