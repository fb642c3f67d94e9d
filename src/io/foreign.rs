//! Identifies files that no reader accepts, for error messages, with a conversion if there is one.

use std::path::Path;

use super::{bank_h5, compressed, ligolw, templates, uvh5};

/// Bytes examined: enough for two of the longest Mark 4 frames and the data before them.
const FIRST_BYTES: u64 = 400_000;

/// Maximum bytes of an HDF5 file to be read as templates.
const MAX_TEMPLATES: u64 = 1 << 28;

/// Bytes per FITS card and per FITS block, which holds whole cards.
const CARD: usize = 80;
const FITS_BLOCK: usize = 2880;

/// Magic bytes and descriptions.
const MAGIC: &[(&[u8], &str)] = &[
    (
        b"IGWD",
        "a GWF frame file of gravitational-wave strain: `sidereal info` shows its channels, and \
         `sidereal spiir search` reads it",
    ),
    (b"BZh", "a bzip2 file: unpack it (bunzip2), or give a SIGPROC filterbank as <(bzcat FILE)"),
    (b"\xfd7zXZ\0", "an xz file: unpack it (unxz), or give a SIGPROC filterbank as <(xzcat FILE)"),
    (b"PK\x03\x04", "a zip archive: unpack it"),
    (b"\x93NUMPY", "a NumPy array: `sidereal info` shows it under a name that ends in .npy"),
];

/// Tables specific to FITS-IDI.
const IDI_TABLES: [&str; 5] = ["ARRAY_GEOMETRY", "SOURCE", "ANTENNA", "FREQUENCY", "UV_DATA"];

/// Describes a file or folder, with an article: `a zip archive: unpack it`; of a compressed file what it holds. `None`
/// if unknown.
pub(crate) fn describe(path: &Path) -> Option<String> {
    if path.is_dir() {
        return folder(path);
    }
    let first = compressed::head(path, FIRST_BYTES).ok()?;
    let known = MAGIC.iter().find(|(magic, _)| first.starts_with(magic));
    if ligolw::is_ligolw(path) {
        return Some("LIGO_LW tables: `sidereal spiir bank` takes binaries from them".into());
    }
    known
        .map(|(_, what)| (*what).to_string())
        .or_else(|| hdf5(path))
        .or_else(|| fits(&first))
        .or_else(|| text(&first))
        .or_else(|| mark4(&first))
        .or_else(|| series(path))
}

/// Returns the description as a clause for an error message, `; it is a zip archive: unpack it`, or nothing.
pub(crate) fn clause(path: &Path) -> String {
    describe(path).map_or_else(String::new, |what| format!("; it is {what}"))
}

/// Returns the two lines of Python that convert a file of visibilities with pyuvdata, through a call of `UVData`.
pub(crate) fn converted(from: &str, call: &str) -> String {
    format!("\n    from pyuvdata import UVData\n    UVData.from_file(\"{from}\").{call}")
}

/// Returns the commands that convert visibilities to UVH5.
fn visibilities(path: &Path) -> String {
    let name = path.to_string_lossy();
    let name = name.trim_end_matches('/');
    let to = path.with_extension("uvh5");
    converted(name, &format!("write_uvh5(\"{}\")", to.display()))
}

fn folder(path: &Path) -> Option<String> {
    let is_table = path.join("table.dat").is_file() && path.join("ANTENNA").is_dir();
    is_table.then(|| {
        format!("a Measurement Set; pyuvdata makes it UVH5, which is read:{}", visibilities(path))
    })
}

/// Describes an HDF5 file; `None` for any other file.
pub(crate) fn hdf5(path: &Path) -> Option<String> {
    if !super::hdf5::is_hdf5(path) {
        return None;
    }
    let Ok(file) = super::hdf5::open(path) else {
        return Some("an HDF5 file that is damaged or cut short".into());
    };
    let has = |name: &str| file.dataset(name).is_ok();
    let root = file.root();
    let attributes = root.attrs().unwrap_or_default();
    let text =
        |name: &str| attributes.get(name).and_then(|value| value.as_str()).unwrap_or_default();
    let size = std::fs::metadata(path).map_or(0, |found| found.len());
    let what = match () {
        () if text("CLASS").eq_ignore_ascii_case("FILTERBANK") => "an FBH5 filterbank",
        () if uvh5::is_uvh5(path) => "UVH5, visibilities: `sidereal info` shows it",
        () if bank_h5::is_bank(path) => "a filter bank of `sidereal spiir bank`",
        () if has("strain/Strain") => {
            "gravitational-wave strain: `sidereal info` and `sidereal spiir` take it"
        }
        () if has("data_freq_time") => "a candidate that was cut out for FETCH or `your`",
        () if text("TELESCOPE") == "LOFAR" => "an HDF5 file of LOFAR's, whose layout is not read",
        () if has("tiedbeam_baseband") || has("baseband") => {
            "an HDF5 file of CHIME's baseband, whose layout is not read"
        }
        () if size < MAX_TEMPLATES && is_templates(path) => {
            "a file of waveform templates or binaries: `sidereal spiir bank` takes it"
        }
        () => {
            let mut names = root.datasets().unwrap_or_default();
            names.extend(root.groups().unwrap_or_default());
            names.sort();
            let more = if names.len() > 6 { ", ..." } else { "" };
            names.truncate(6);
            let names = names.join(", ");
            let names = if names.is_empty() { "nothing".to_string() } else { names };
            return Some(format!("an HDF5 file of another program, with {names}{more} in it"));
        }
    };
    Some(what.into())
}

fn is_templates(path: &Path) -> bool {
    // Any rate will do for series whose file stores none.
    let options = templates::TemplateOptions { rate_hz: Some(4096), distance_mpc: None };
    templates::open_with(path, &options).is_ok() || templates::open(path).is_ok()
}

/// Describes a FITS file from its first two headers; `None` for any other file.
pub(crate) fn fits(first: &[u8]) -> Option<String> {
    if !first.starts_with(b"SIMPLE  =") {
        return None;
    }
    let (primary, end) = cards(first);
    let value = |cards: &[(String, String)], key: &str| {
        cards.iter().find(|(found, _)| found == key).map(|(_, value)| value.clone())
    };
    let is = |key: &str, wanted: &str| value(&primary, key).is_some_and(|found| found == wanted);
    let (second, _) = cards(first.get(end..).unwrap_or_default());
    let table = value(&second, "EXTNAME").unwrap_or_default();
    let what = match () {
        () if is("FITSTYPE", "PSRFITS") => return Some("PSRFITS".into()),
        () if is("GROUPS", "T") && is("NAXIS1", "0") => "UVFITS, visibilities",
        () if is("NAXIS", "0") && IDI_TABLES.contains(&&*table) => "FITS-IDI, visibilities",
        () if !is("NAXIS", "0") => return Some("a FITS image".into()),
        () if table.is_empty() => return Some("a FITS file of another kind".into()),
        () => return Some(format!("a FITS file of another kind, with the table {table}")),
    };
    let lines = converted("FILE", "write_uvh5(\"FILE.uvh5\")");
    Some(match what {
        "UVFITS, visibilities" => {
            format!("{what}; pyuvdata makes it UVH5, whose header is shown:{lines}")
        }
        _ => format!("{what}, which AIPS and CASA (importfitsidi) read"),
    })
}

/// Returns the cards of a FITS header, and the header's end.
fn cards(header: &[u8]) -> (Vec<(String, String)>, usize) {
    let mut found = Vec::new();
    for (index, card) in header.chunks_exact(CARD).enumerate() {
        let card = String::from_utf8_lossy(card);
        if card.trim_end() == "END" {
            return (found, ((index + 1) * CARD).next_multiple_of(FITS_BLOCK));
        }
        if let Some((key, value)) = card.split_once('=') {
            let value = value.split('/').next().unwrap_or_default();
            let value = value.trim().trim_matches('\'').trim();
            found.push((key.trim().to_string(), value.to_string()));
        }
    }
    (found, header.len())
}

/// Describes a text file; `None` for any other file.
fn text(first: &[u8]) -> Option<String> {
    let text = match std::str::from_utf8(first) {
        Ok(text) => text,
        // The read may end within a multi-byte character.
        Err(error) if error.valid_up_to() + 4 > first.len() => {
            std::str::from_utf8(&first[..error.valid_up_to()]).ok()?
        }
        Err(_) => return None,
    };
    let is_plain = |letter: char| !letter.is_control() || letter.is_ascii_whitespace();
    if text.trim().is_empty() || !text.chars().all(is_plain) {
        return None;
    }
    let line = text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default().trim();
    if is_gsb_time(line) {
        return Some(
            "a timestamp file of the GMRT software backend (GSB), whose voltages are not read; \
             baseband reads them (baseband.gsb)"
                .into(),
        );
    }
    if line.starts_with("Data file name without suffix") {
        return Some("the header of a PRESTO series (.inf): `sidereal info` shows it".into());
    }
    let start: String = line.chars().take(40).collect();
    Some(format!("a text that begins with {start:?}"))
}

/// Returns whether a line begins with a date and a time in GSB's format: year, month, day, hour, minute, second,
/// fraction.
fn is_gsb_time(line: &str) -> bool {
    let words: Vec<&str> = line.split_whitespace().collect();
    let whole = [1990..=2100, 1..=12, 1..=31, 0..=23, 0..=59, 0..=60];
    let fits = words
        .iter()
        .zip(&whole)
        .all(|(word, range)| word.parse::<u32>().is_ok_and(|number| range.contains(&number)));
    let fraction = words.get(whole.len()).and_then(|word| word.parse::<f64>().ok());
    fits && fraction.is_some_and(|fraction| (0.0..1.0).contains(&fraction))
}

/// Detects Mark 4 by its sync words: 32 one bits in each of 16, 32 or 64 tracks, once per frame.
fn mark4(first: &[u8]) -> Option<String> {
    let mut at = 0;
    while at < first.len() {
        let run = first[at..].iter().take_while(|byte| **byte == 0xff).count();
        let tracks =
            [64, 32, 16].into_iter().find(|tracks| (4 * tracks..4 * tracks + 9).contains(&run));
        if let Some(tracks) = tracks {
            // One bits of the preceding header may lengthen the run.
            let again = (0..=run - 4 * tracks).any(|more| {
                let next = first.get(at + more + 2500 * tracks..);
                let sync = next.and_then(|next| next.get(..4 * tracks));
                sync.is_some_and(|sync| sync.iter().all(|byte| *byte == 0xff))
            });
            if again || first.len() < at + run + 2500 * tracks {
                return Some(format!(
                    "Mark 4, with {tracks} tracks, which is not read; baseband reads it \
                     (baseband.mark4) and writes VDIF"
                ));
            }
        }
        at += run.max(1);
    }
    None
}

/// Describes a PRESTO series by its name, because it has no magic bytes.
fn series(path: &Path) -> Option<String> {
    if path.extension().is_none_or(|extension| extension != "dat") {
        return None;
    }
    let inf = path.with_extension("inf");
    Some(match inf.exists() {
        true => "a PRESTO series, which is dedispersed: `sidereal info` shows it".into(),
        false => {
            format!("by its name a PRESTO series, but its header {} is missing", inf.display())
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(name: &str, bytes: &[u8]) -> String {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        describe(&path).unwrap_or_default()
    }

    fn header(cards: &[&str]) -> Vec<u8> {
        let text: String = cards.iter().chain(&["END"]).map(|card| format!("{card:<80}")).collect();
        format!("{text:<2880}").into_bytes()
    }

    /// Mark 4 file on disk: frames of 2500 bytes per track, with a sync word after 8 bytes per track.
    fn mark4_file(tracks: usize, before: usize, frames: usize) -> Vec<u8> {
        let mut state = 1u32;
        let mut noise = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        };
        let mut bytes: Vec<u8> = (0..before + frames * 2500 * tracks).map(|_| noise()).collect();
        for frame in 0..frames {
            let at = before + frame * 2500 * tracks + 8 * tracks;
            bytes[at - 1] = 0;
            bytes[at..at + 4 * tracks].fill(0xff);
            bytes[at + 4 * tracks] = 0;
        }
        bytes
    }

    #[test]
    fn other_programs_files_are_told() {
        assert!(said("a.gwf", b"IGWD\0\x08").contains("spiir search"));
        assert!(said("a.fil.bz2", b"BZh91AY").contains("bzcat"));
        assert!(said("a.dat", &[0x12; 64]).contains("a.inf is missing"));
        assert!(
            said("a.xml", b"<?xml version='1.0'?>\n<!DOCTYPE LIGO_LW>\n<LIGO_LW>")
                .contains("LIGO_LW")
        );
        assert!(said("a.csv", "name,dm\n\u{e9}".as_bytes()).contains("\"name,dm\""));
        assert_eq!(said("a.bin", &[0, 1, 2, 250, 3]), "");
        assert_eq!(said("a.ones", &[0xff; 1000]), "");
        for gsb in [
            "2015 04 27 18 45 00 0.000000240\n",
            "2015 4 27 18 45 0 0.25 2015 4 27 18 45 10 0.25 9994 2",
        ] {
            assert!(said("a.timestamp", gsb.as_bytes()).contains("GSB"), "{gsb}");
        }
        for (tracks, before, frames) in [(64, 2696, 1), (64, 0, 2), (32, 100, 3), (16, 0, 4)] {
            let found = said("a.m4", &mark4_file(tracks, before, frames));
            assert!(found.contains(&format!("Mark 4, with {tracks} tracks")), "{tracks}: {found}");
        }
    }

    #[test]
    fn kinds_of_fits_are_told() {
        let simple = "SIMPLE  =                    T";
        let uvfits = header(&[
            simple,
            "NAXIS   =                    6",
            "NAXIS1  =                    0",
            "GROUPS  =                    T / groups",
        ]);
        assert!(
            said("a.uvfits", &uvfits).contains("UVFITS")
                && said("a.uvfits", &uvfits).contains("write_uvh5")
        );
        let mut idi =
            header(&[simple, "NAXIS   =                    0", "GROUPS  =                    T"]);
        idi.extend(header(&["XTENSION= 'BINTABLE'", "EXTNAME = 'ARRAY_GEOMETRY'"]));
        assert!(said("a.idifits", &idi).contains("FITS-IDI"));
        let image = header(&[simple, "NAXIS   =                    2"]);
        assert_eq!(said("a.fits", &image), "a FITS image");
        let mut other = header(&[simple, "NAXIS   =                    0"]);
        other.extend(header(&["XTENSION= 'BINTABLE'", "EXTNAME = 'EVENTS  '"]));
        assert!(said("a.fits", &other).contains("EVENTS"));
    }

    #[test]
    fn a_measurement_set_is_told_with_what_converts_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.ms");
        std::fs::create_dir_all(path.join("ANTENNA")).unwrap();
        assert_eq!(describe(&path), None, "any folder");
        std::fs::write(path.join("table.dat"), b"").unwrap();
        let found = describe(&path).unwrap();
        let expected = format!(
            "\n    from pyuvdata import UVData\n    UVData.from_file(\"{}\").write_uvh5(\"{}\")",
            path.display(),
            folder.path().join("x.uvh5").display()
        );
        assert!(found.contains("Measurement Set") && found.ends_with(&expected), "{found}");
    }
}
