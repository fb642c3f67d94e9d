//! GUPPI raw: damaged files give errors with the card and the byte.

use crate::support::guppi;
use crate::support::voltages;
use guppi::{CHANNELS, Raw};
use sidereal::voltage::VoltageEncoding;
use voltages::{Keys, fault, open, read_all, save};

#[test]
fn packets_that_do_not_rise_by_blocks_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let block = Raw::new(&[0]).bytes().len() as u64;
    for (packets, number, expected) in [
        (vec![0, 10, 10], 2, "more than"),
        (vec![0, 10, 5], 2, "more than"),
        (vec![20, 10], 1, "more than"),
        (vec![0, 10, 25], 2, "multiple of 10"),
        (vec![0, 10 << 56], 1, "more than a day"),
        (vec![0, u64::MAX / 10 * 10], 1, "more than a day"),
    ] {
        let (field, offset, message) = fault(&[Raw::new(&packets).save(folder.path(), "x.raw")]);
        assert_eq!((field.as_str(), offset), ("PKTIDX", number * block), "{message}");
        assert!(message.contains(expected) && message.contains("x.raw"), "{message}");
    }
}

#[test]
fn a_header_that_changes_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let changes = [
        ("OBSNCHAN", "6"),
        ("NPOL", "1"),
        ("NBITS", "4"),
        ("NANTS", "3"),
        ("OVERLAP", "2"),
        ("BLOCSIZE", "240"),
        ("TBIN", "2.0E-6"),
        ("OBSFREQ", "1401.0"),
        ("OBSBW", "-3.0"),
        ("PKTFMT", "'SIMPLE'"),
        ("DIRECTIO", "1"),
    ];
    for (key, value) in changes {
        let first = Raw::new(&[0]);
        let mut bytes = first.bytes();
        let second = bytes.len() as u64;
        bytes.extend(first.clone().set(key, value).set("SRC_NAME", "'other'").header(10));
        bytes.resize(bytes.len() + 240, 0);
        let (field, offset, message) = fault(&[save(folder.path(), "x.raw", &bytes)]);
        assert_eq!(field, key, "{message}");
        assert!(offset > second && message.contains("block 1"), "{message}");
        // The same in the first block of another file.
        let other = first.clone().set(key, value).header(10);
        let length = if key == "BLOCSIZE" { 240 } else { 120 };
        let other = [other, vec![0; length]].concat();
        let paths = [first.save(folder.path(), "a.raw"), save(folder.path(), "b.raw", &other)];
        assert_eq!(fault(&paths).0, key);
    }
}

#[test]
fn cards_that_make_no_sense_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let huge = u64::MAX.to_string();
    let cases: &[(&str, &str, &str)] = &[
        ("BLOCSIZE", "121", "multiple of 12"),
        ("BLOCSIZE", "0", "1 at least"),
        ("BLOCSIZE", "-120", "count"),
        ("BLOCSIZE", "134217720", "ends within"),
        ("BLOCSIZE", "18446744073709551612", "ends within"),
        ("OBSNCHAN", "0", "1 at least"),
        ("OBSNCHAN", &huge, "channels"),
        ("NANTS", "2", "multiple"),
        ("NANTS", "0", "multiple"),
        ("NANTS", &huge, "multiple"),
        ("NPOL", "3", "1, 2 or 4"),
        ("NBITS", "2", "4, 8 or 16"),
        ("NBITS", "eight", "eight"),
        ("OVERLAP", "10", "fewer than"),
        ("OVERLAP", &huge, "fewer than"),
        ("TBIN", "0.0", "above 0"),
        ("TBIN", "-1.0", "above 0"),
        ("TBIN", "nan", "number"),
        ("TBIN", "1e-320", "above 0"),
        ("OBSFREQ", "inf", "number"),
        ("STT_IMJD", "1e300", "Julian"),
        ("STT_IMJD", "60000.5", "Julian"),
        ("STT_SMJD", "1e30", "of a day"),
        ("NTVALID", "11", "1 to"),
        ("NTVALID", "0", "1 to"),
        ("PKTFMT", "'VDIF'", "VDIF"),
        ("DIRECTIO", "yes", "number"),
    ];
    for (key, value, expected) in cases {
        let field = if *key == "NANTS" { "OBSNCHAN" } else { key };
        let key: &'static str = Box::leak(key.to_string().into_boxed_str());
        let raw = Raw::new(&[0]).set(key, value);
        let found = fault(&[raw.save(folder.path(), "x.raw")]);
        assert_eq!(found.0, field, "{}", found.2);
        assert!(found.2.contains(expected) && found.2.contains("x.raw"), "{}", found.2);
    }
    for key in ["BLOCSIZE", "OBSNCHAN", "NPOL", "TBIN"] {
        let found = fault(&[Raw::new(&[0]).without(key).save(folder.path(), "x.raw")]);
        assert!(found.0 == key && found.2.contains("missing"), "{}", found.2);
    }
    // Unknown values are not invented.
    let raw =
        Raw::new(&[0]).without("OBSFREQ").without("STT_IMJD").without("OBSBW").without("FD_POLN");
    let source = open(&[raw.save(folder.path(), "x.raw")]);
    let header = source.header();
    assert_eq!((header.centres_hz.as_slice(), header.start.day), ([0.0; CHANNELS].as_slice(), 0));
    assert!(header.circular.is_none() && !header.lower_sideband);
}

#[test]
fn a_file_cut_anywhere_is_read_to_its_last_block() {
    let folder = tempfile::tempdir().unwrap();
    let raw = Raw::new(&[0, 10]);
    let (bytes, header) = (raw.bytes(), raw.header(0).len());
    let whole = read_all(&[raw.save(folder.path(), "whole.raw")]).1;
    let second = bytes.len() / 2;
    for length in 0..bytes.len() {
        let path = save(folder.path(), "x.raw", &bytes[..length]);
        if length < second {
            let (field, offset, message) = fault(&[path]);
            assert!(message.contains("x.raw") && offset <= length as u64, "{message}");
            let expected = match length {
                0..9 => "file",
                _ if length < header => "END",
                _ => "BLOCSIZE",
            };
            assert_eq!(field, expected, "cut at {length}: {message}");
            continue;
        }
        let source = open(std::slice::from_ref(&path));
        assert_eq!((source.header().times, source.flags()), (Some(10), &[][..]), "at {length}");
        assert_eq!(source.cut().is_some(), length > second, "cut at {length}");
        let (_, rows) = read_all(&[path]);
        assert!(rows.iter().zip(&whole).all(|(row, whole)| *row == whole[..20]));
    }
}

#[test]
fn a_file_that_shrinks_after_it_was_opened_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = Raw::new(&[0, 10]).save(folder.path(), "x.raw");
    let mut source = open(std::slice::from_ref(&path));
    let bytes = std::fs::read(&path).unwrap();
    std::fs::write(&path, &bytes[..bytes.len() - 1]).unwrap();
    let mut block = source.header().block(20);
    let message = source.read(&mut block).unwrap_err().to_string();
    assert!(message.contains("cut since"), "{message}");
}

#[test]
fn trailing_bytes_that_are_no_header_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let mut bytes = Raw::new(&[0]).bytes();
    let end = bytes.len() as u64;
    bytes.resize(bytes.len() + 100, 0);
    let (field, offset, message) = fault(&[save(folder.path(), "x.raw", &bytes)]);
    assert!(field.contains("card 1") && offset == end, "{message}");
}

#[test]
fn a_block_of_another_shape_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let mut source = open(&[Raw::new(&[0]).save(folder.path(), "x.raw")]);
    let mut other = sidereal::voltage::VoltageBlock::new(VoltageEncoding::Complex8, 5, 4);
    assert!(source.read(&mut other).is_err());
    let mut other = sidereal::voltage::VoltageBlock::new(VoltageEncoding::Complex4, 6, 4);
    assert!(source.read(&mut other).is_err());
}
