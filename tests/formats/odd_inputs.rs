//! Files that lack required fields, or have impossible values, are rejected or read with a warning.

use std::fs;
use std::path::{Path, PathBuf};

use sidereal::io::{OpenOptions, open, uvh5, window_file};
use sidereal::{Error, Result};

fn seed(name: &str) -> Vec<u8> {
    let path = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/fuzz/seeds")).join(name);
    fs::read(path).expect("a seed")
}

/// The bytes with every `from` replaced by `to` of equal length.
fn renamed(bytes: &[u8], from: &str, to: &str) -> Vec<u8> {
    assert_eq!(from.len(), to.len());
    let mut bytes = bytes.to_vec();
    let mut found = 0;
    for at in 0..bytes.len() - from.len() {
        if bytes[at..].starts_with(from.as_bytes()) {
            bytes[at..at + to.len()].copy_from_slice(to.as_bytes());
            found += 1;
        }
    }
    assert!(found > 0, "{from} is there");
    bytes
}

fn warnings(folder: &Path, bytes: &[u8]) -> Result<Vec<String>> {
    let path: PathBuf = folder.join("x");
    fs::write(&path, bytes).expect("room");
    Ok(open(&[path], &OpenOptions::default())?.warnings().to_vec())
}

#[test]
fn what_is_missing_is_told() {
    let folder = tempfile::tempdir().expect("a folder");
    let cases = [
        (
            "psrfits/valid_bits_8.fits",
            "DAT_WTS ",
            "DAT_WTZ ",
            "no column DAT_WTS; samples are used",
        ),
        (
            "psrfits/valid_bits_8.fits",
            "DAT_SCL ",
            "DAT_SCO ",
            "no column DAT_SCL; samples are used",
        ),
        (
            "psrfits/valid_bits_4.fits",
            "DAT_OFFS",
            "DAT_OFFZ",
            "no column DAT_OFFS; samples are used",
        ),
        (
            "psrfits/valid_bits_8.fits",
            "OFFS_SUB",
            "OFFS_SUX",
            "no column OFFS_SUB, so that lost rows",
        ),
        ("fbh5/valid_plain.h5", "tstart", "tstarx", "no attribute tstart"),
    ];
    for (name, from, to, expected) in cases {
        let bytes = seed(name);
        let found = warnings(folder.path(), &bytes).expect(name);
        assert!(found.is_empty(), "{name}: {found:?}");
        let found = warnings(folder.path(), &renamed(&bytes, from, to)).expect(name);
        let [warning] = &found[..] else { panic!("{name} without {from}: {found:?}") };
        assert!(warning.contains(expected) && warning.contains("/x: "), "{warning}");
    }
}

#[test]
fn visibilities_beyond_the_file_s_end_are_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("x.uvh5");
    let names =
        fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/fuzz/seeds/uvh5")).expect("seeds");
    let name = names.map(|name| name.expect("a name").file_name().to_string_lossy().into_owned());
    let name = name.filter(|name| name.starts_with("valid_")).min().expect("a valid seed");
    let bytes = seed(&format!("uvh5/{name}"));
    fs::write(&path, &bytes).expect("room");
    uvh5::summary(&path).expect("a valid seed");
    for length in (bytes.len() / 2..bytes.len()).step_by(16) {
        fs::write(&path, &bytes[..length]).expect("room");
        match uvh5::summary(&path) {
            Err(Error::Format { field, .. }) => assert!(!field.is_empty()),
            // Only padding may be missing.
            Ok(_) => assert!(bytes[length..].iter().all(|byte| *byte == 0), "{length}"),
            Err(other) => panic!("{other}"),
        }
    }
}

#[test]
fn windows_beyond_single_precision_are_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("window.txt");
    for (number, is_good) in [
        ("1e39", false),
        ("-1e300", false),
        ("1e12", false),
        ("1e-50", false),
        ("1e-320", false),
        ("1e-3", true),
        ("65536", true),
    ] {
        fs::write(&path, format!("{number}\n0\n0\n0\n")).expect("room");
        match window_file::read(&path, 2, 2) {
            Ok(_) => assert!(is_good, "{number}"),
            Err(error) => {
                assert!(!is_good && error.to_string().contains("1e-9 to 1e9"), "{number}: {error}");
            }
        }
    }
}

#[test]
fn absurd_sampling_times_are_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let fits = seed("psrfits/valid_bits_8.fits");
    let card = fits.windows(10).position(|key| key == b"TBIN    = ").expect("a sampling time");
    for number in ["1E-300", "1E-320", "1E300"] {
        let mut bytes = fits.clone();
        bytes[card..card + 80]
            .copy_from_slice(format!("{:<80}", format!("TBIN    = {number:>20}")).as_bytes());
        let error = warnings(folder.path(), &bytes).expect_err(number).to_string();
        assert!(error.contains("TBIN") && error.contains("1e-9 to 86400"), "{error}");
    }
}
