//! Recordings truncated anywhere are read to their last whole unit, and report the missing part; files that lack required
//! fields, or have impossible values, are rejected or read with a warning.

use sidereal::io::voltages::VoltageOptions;
use sidereal::io::{
    FilterbankSource, OpenOptions, Polarizations, open, read_window, sigproc, strain, uvh5,
    voltages,
};
use sidereal::units::Gps;
use sidereal::{Error, Result};
use std::fs;
use std::io::Cursor;
use std::path::{Path, PathBuf};

/// Data read from a file.
#[derive(Debug, PartialEq)]
struct Contents {
    /// Total number of samples, as declared when the file was opened.
    times: u64,
    /// The bytes of each stream.
    streams: Vec<Vec<u8>>,
    cut: Option<String>,
}

/// A format: its seeds, its reader, and the lengths of a file at which truncation is undetectable.
struct Format {
    seeds: &'static [&'static str],
    read: fn(&Path) -> Result<Contents>,
    /// The least length at which a file must be readable, and the length of a piece.
    least: usize,
    /// Lengths before and between units at which a truncation is undetectable.
    pieces: Option<(usize, usize)>,
}

const FORMATS: &[Format] = &[
    Format {
        seeds: &[
            "sigproc/valid_bits_8.fil",
            "sigproc/valid_bits_2.fil",
            "sigproc/valid_two_ifs.fil",
        ],
        read: filterbank,
        least: 352 - 48,
        pieces: Some((352 - 96, 1)),
    },
    Format {
        seeds: &["tim/valid_float.tim"],
        read: series,
        least: 316 - 4,
        pieces: Some((316 % 4, 4)),
    },
    Format {
        seeds: &["psrfits/valid_bits_8.fits", "psrfits/valid_bits_4.fits"],
        read: filterbank,
        least: 8640 + 208,
        pieces: None,
    },
    Format {
        seeds: &["fbh5/valid_gzip.h5", "fbh5/valid_bitshuffle.h5"],
        read: filterbank, // Its metadata may follow the data.
        least: usize::MAX,
        pieces: None,
    },
    Format {
        seeds: &["guppi/valid_plain.raw", "guppi/valid_bits_16.raw"],
        read: voltage,
        least: 1480,
        pieces: Some((0, 1480)),
    },
    Format {
        seeds: &["dada/valid_plain.dada", "dada/valid_heaps.dada"],
        read: voltage,
        least: 1144 - 100,
        pieces: None,
    },
    Format {
        seeds: &["vdif/valid_real_8.vdif", "vdif/valid_complex_4.vdif"],
        read: voltage,
        least: 96,
        pieces: Some((0, 96)),
    },
    Format {
        seeds: &["mark5b/valid_plain.m5b"],
        read: voltage,
        least: 10_016,
        pieces: Some((0, 10_016)),
    },
    Format { seeds: &["strain/valid_raw.npy"], read: raw, least: 136, pieces: None },
    Format { seeds: &["strain/valid_gwosc.hdf5"], read: gwosc, least: usize::MAX, pieces: None },
];

fn drained(mut source: Box<dyn FilterbankSource>) -> Result<Contents> {
    let (promised, row) = (source.header().times, source.header().row_bytes());
    let mut all = Vec::new();
    let mut rows = vec![0; 3 * row];
    loop {
        let times = source.read(&mut rows)?;
        all.extend_from_slice(&rows[..times * row]);
        if times < 3 {
            break;
        }
    }
    let times = (all.len() / row) as u64;
    assert!(promised.is_none_or(|promised| promised == times));
    Ok(Contents { times, streams: vec![all], cut: source.cut().map(str::to_owned) })
}

fn filterbank(path: &Path) -> Result<Contents> {
    drained(open(&[path.to_path_buf()], &OpenOptions::default())?)
}

fn series(path: &Path) -> Result<Contents> {
    let (_, values, cut) = sigproc::read_series(path)?;
    let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    Ok(Contents { times: values.len() as u64, streams: vec![bytes], cut })
}

fn voltage(path: &Path) -> Result<Contents> {
    let options = VoltageOptions {
        sample_rate_hz: Some(match path.extension().and_then(|name| name.to_str()) {
            Some("m5b") => 8e6,
            _ => 1_024_000.0,
        }),
        mark5b_channels: Some(8),
        ..VoltageOptions::default()
    };
    let mut source = voltages::open(&[path.to_path_buf()], &options)?;
    let times = source.header().times.expect("a file's length is known");
    let mut block = source.header().block(times as usize + 8);
    assert_eq!(source.read(&mut block)? as u64, times);
    let voltages = block.voltages();
    let streams = (0..voltages.streams()).map(|stream| voltages.row(stream).to_vec()).collect();
    Ok(Contents { times, streams, cut: source.cut().map(str::to_owned) })
}

fn waves(path: &Path, options: &strain::OpenOptions) -> Result<Contents> {
    let mut source = strain::open(path, options)?;
    let times = source.header().times.expect("a file's length is known");
    let (mut samples, mut valid) = (vec![0.0; times as usize + 1], vec![false; times as usize + 1]);
    let mut read = 0;
    loop {
        let more = source.read(&mut samples[read..], &mut valid[read..])?;
        read += more;
        if more == 0 {
            break;
        }
    }
    assert_eq!(read as u64, times);
    let bytes = samples[..read].iter().flat_map(|sample| sample.to_le_bytes()).collect();
    Ok(Contents { times, streams: vec![bytes], cut: source.cut().map(str::to_owned) })
}

fn raw(path: &Path) -> Result<Contents> {
    let start = Some(Gps::from_s(1e9));
    let options = strain::OpenOptions { start, rate_hz: Some(64), ..Default::default() };
    waves(path, &options)
}

fn gwosc(path: &Path) -> Result<Contents> {
    waves(path, &strain::OpenOptions::default())
}

fn seed(name: &str) -> Vec<u8> {
    let path = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/fuzz/seeds")).join(name);
    fs::read(path).expect("a seed")
}

/// Tests whether the streams of one are prefixes of those of the other.
fn begins(cut: &Contents, whole: &Contents) -> bool {
    let pairs = cut.streams.iter().zip(&whole.streams);
    cut.streams.len() == whole.streams.len() && { pairs }.all(|(a, b)| b.starts_with(a))
}

#[test]
fn every_format_is_read_to_its_last_whole_piece() {
    let folder = tempfile::tempdir().expect("a folder");
    for format in FORMATS {
        for name in format.seeds {
            let bytes = seed(name);
            let extension = Path::new(name).extension().unwrap_or_default();
            let path = folder.path().join("x").with_extension(extension);
            let write = |length: usize| fs::write(&path, &bytes[..length]).expect("room");
            write(bytes.len());
            let whole = (format.read)(&path).expect(name);
            assert_eq!(whole.cut, None, "{name}");
            let step = (bytes.len() / 300).max(1);
            let (mut partial, mut told) = (0, 0);
            for length in (0..bytes.len()).step_by(step).chain([bytes.len() - 1]) {
                write(length);
                let found = match (format.read)(&path) {
                    Ok(found) => found,
                    Err(error) => {
                        assert!(length < format.least, "{name} of {length}: {error}");
                        continue;
                    }
                };
                assert!(begins(&found, &whole), "{name} of {length}");
                let unnoticed = format.pieces.is_some_and(|(before, piece)| {
                    length > before && (length - before).is_multiple_of(piece)
                });
                let missing = found.times < whole.times;
                partial += usize::from(missing);
                told += usize::from(found.cut.is_some());
                if missing && !unnoticed {
                    let cut = found
                        .cut
                        .unwrap_or_else(|| panic!("{name} of {length} says that it is cut"));
                    assert!(cut.contains("/x.") && cut.contains(char::is_numeric), "{cut}");
                }
            }
            assert!(partial > 0 && told > 0, "{name}: {partial} lengths were read, {told} told");
        }
    }
}

#[test]
fn a_cut_row_is_told_alike_by_files_and_pipes() {
    let folder = tempfile::tempdir().expect("a folder");
    let path: PathBuf = folder.path().join("x.fil");
    let bytes = seed("sigproc/valid_bits_8.fil");
    let row = {
        fs::write(&path, &bytes).expect("room");
        open(std::slice::from_ref(&path), &OpenOptions::default())
            .expect("a seed")
            .header()
            .row_bytes()
    };
    let end = bytes.len();
    for length in end - 2 * row + 1..end {
        fs::write(&path, &bytes[..length]).expect("room");
        let file = filterbank(&path).expect("it has whole rows");
        let pipe = Box::new(Cursor::new(bytes[..length].to_vec()));
        let reader = sigproc::FilterbankReader::from_pipe(pipe, &path, Polarizations::Total);
        let pipe = drained(Box::new(reader.expect("a header"))).expect("it has whole rows");
        assert_eq!(file, pipe);
        assert_eq!(file.cut.is_some(), !(end - length).is_multiple_of(row));
        if let Some(cut) = file.cut {
            let rest = row - (end - length) % row;
            assert!(cut.contains(&format!("{rest} bytes into row")), "{cut}");
        }
    }
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
        match read_window(&path, 2, 2) {
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
