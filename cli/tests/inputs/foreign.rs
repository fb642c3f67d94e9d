//! Files of other kinds: the error says what a file is, and where there is a way to one that is read.

use std::fs;
use std::path::Path;

use crate::common::{
    code, done, entries, fails, json, recording, sidereal, stderr, stdout, voltages,
};
use serde_json::Value;

fn write(folder: &Path, name: &str, bytes: &[u8]) {
    fs::write(folder.join(name), bytes).unwrap();
}

#[test]
fn an_error_says_what_a_file_is() {
    let home = recording();
    let folder = home.path();
    write(folder, "a.gwf", b"IGWD\0\x08\x02\x04 and so on");
    write(folder, "a.fil.bz2", b"BZh91AY&SY and so on and on");
    write(folder, "a.timestamp", b"2015 04 27 18 45 00 0.000000240\n");
    write(folder, "list.csv", b"name,dm\nx,1\n");
    write(folder, "x_DM5.00.dat", &[0x12; 4096]);
    let card = |text: &str| format!("{text:<80}");
    let cards = ["SIMPLE  =  T", "NAXIS   =  6", "NAXIS1  =  0", "GROUPS  =  T", "END"].map(card);
    write(folder, "a.uvfits", format!("{:<2880}", cards.concat()).as_bytes());
    let before = entries(folder);
    fails(&sidereal(folder, "info a.gwf"), 3, &["a.gwf", "18 bytes found", "40"]);
    fails(&sidereal(folder, "search -o out a.gwf"), 3, &["a.gwf", "GWF", "spiir search"]);
    for verb in ["info", "search -o out"] {
        for (file, words) in [
            ("a.fil.bz2", &["bzip2", "bzcat"][..]),
            ("a.timestamp", &["GSB"]),
            ("list.csv", &["a text that begins with \"name,dm\""]),
            ("x_DM5.00.dat", &["PRESTO series", "x_DM5.00.inf is missing"]),
            ("a.uvfits", &["UVFITS", "\n    UVData.from_file("]),
        ] {
            fails(&sidereal(folder, &format!("{verb} {file}")), 3, &[&[file], words].concat());
        }
    }
    assert_eq!(entries(folder), before);
}

#[test]
fn a_measurement_set_is_refused_with_the_lines_that_convert_it() {
    let home = crate::common::array::array("");
    let folder = home.path();
    fs::create_dir_all(folder.join("vis.ms/ANTENNA")).unwrap();
    write(folder, "vis.ms/table.dat", b"");
    let lines = "\n    from pyuvdata import UVData\n    UVData.from_file(\"vis.ms\").write_uvh5(\"vis.uvh5\")\n";
    for words in ["info vis.ms", "info vis.ms/", "search vis.ms -o out"] {
        fails(&sidereal(folder, words), 1, &["Measurement Set", lines]);
    }
    let inputs = crate::common::array::files(&["ant00", "ant01", "ant02", "ant03"]);
    let before = entries(folder);
    for name in ["new.ms", "NEW.MS", "new.ms/"] {
        let words = format!(
            "correlate {inputs} --antennas array/antennas.csv --channels 32 --drift -o {name}"
        );
        let method = format!(".write_ms(\"{name}\", force_phase=True)\n");
        let output = sidereal(folder, &words);
        fails(
            &output,
            2,
            &["--output", "Measurement Set", "from pyuvdata import UVData\n", &method],
        );
    }
    assert_eq!(entries(folder), before);
}

#[test]
fn a_recording_cut_in_its_first_block_shows_its_header() {
    let home = voltages::recording("v.raw", "");
    let folder = home.path();
    let bytes = fs::read(folder.join("v.raw")).unwrap();
    write(folder, "cut.raw", &bytes[..6000]);
    let told = json(folder, "info cut.raw");
    assert_eq!((&told["complete"], &told["times"]), (&Value::Bool(false), &0.into()));
    let whole = json(folder, "info v.raw --header");
    for key in [
        "telescope",
        "recorded_channels",
        "polarizations",
        "bits",
        "centre_mhz",
        "tsamp_s",
        "tstart_mjd",
    ] {
        assert_eq!(told[key], whole[key], "{key}");
    }
    let why = told["reason"].as_str().unwrap();
    assert!(why.contains("cut.raw") && why.contains("left out"), "{why}");
    let output = sidereal(folder, "info cut.raw");
    assert_eq!(code(&output), 0);
    assert!(stdout(&output).contains("GUPPI raw voltages") && stderr(&output).contains("left out"));
    fails(&sidereal(folder, "search cut.raw -o out --channels 4"), 3, &["BLOCSIZE"]);
    assert!(done(folder, "info v.raw").contains("GUPPI raw"));
    // No block is there to hold a header to, so that the header alone must not ask for terabytes.
    let mut cards = Vec::new();
    for (name, value) in [
        ("OBSFREQ ", "1400.0"),
        ("OBSBW   ", "-3.0"),
        ("OBSNCHAN", "1099511627776"),
        ("NPOL    ", "4"),
        ("NBITS   ", "8"),
        ("TBIN    ", "1e-06"),
        ("BLOCSIZE", "4611686018427387904"),
    ] {
        cards.extend(format!("{name}= {value:>20}{:50}", "").into_bytes());
    }
    cards.extend(format!("{:80}", "END").into_bytes());
    write(folder, "huge.raw", &[cards, vec![0; 1000]].concat());
    fails(&sidereal(folder, "info huge.raw"), 3, &["huge.raw", "OBSNCHAN", "1048576"]);
}
