//! PSRDADA: damaged files give errors with the key and the byte.

use crate::support::dada;
use crate::support::voltages;
use dada::{Dada, check};
use voltages::{Keys, fault, read_all, save};

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
