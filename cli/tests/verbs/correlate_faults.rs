//! `correlate`: wrong use, recordings that don't belong together, and interrupts leave nothing behind.

use std::fs;

use crate::common::array::{array, files};
use crate::common::{done, entries, fails, sidereal, stderr};
use tempfile::TempDir;

const ALL: [&str; 4] = ["ant00", "ant01", "ant02", "ant03"];

fn correlate(more: &str) -> String {
    let inputs = files(&ALL);
    format!(
        "correlate {inputs} --antennas array/antennas.csv --channels 32 --integration 0.05 {more}"
    )
}

/// A recording of another kind in the place of the second antenna's.
fn another(home: &TempDir, name: &str, more: &str) {
    let words = format!(
        "simulate array -o {name} -q --layout 4,300 --source 140,-20,200,Spot --sefd 100 \
         --no-file ant00 --no-file ant02 --no-file ant03 {more}"
    );
    done(home.path(), &words);
}

#[test]
fn wrong_use_ends_with_2() {
    let home = array("--no-file ant03");
    fs::copy(home.path().join("array/ant02.dada"), home.path().join("array/ant03.dada")).unwrap();
    fs::write(home.path().join("b.uvh5"), "precious").unwrap();
    fs::write(home.path().join("c.uvh5.json"), "precious").unwrap();
    fs::create_dir(home.path().join("d_plots")).unwrap();
    fs::write(home.path().join("e.uvh5.html"), "precious").unwrap();
    let local = "name,east,north,up\nant00,0,0,0\n";
    fs::write(home.path().join("local.csv"), local).unwrap();
    let before = entries(home.path());
    let three = "correlate array/ant00.dada array/ant01.dada array/ant02.dada";
    let csv = "--antennas array/antennas.csv";
    for (words, told) in [
        ("correlate".to_owned(), &["FILE"][..]),
        (format!("correlate {csv} -o a.uvh5"), &["FILE"]),
        (format!("{three} -o a.uvh5"), &["--antennas"]),
        (format!("{three} {csv}"), &["--output"]),
        (
            format!("{three} {csv} -o a.uvh5"),
            &["antenna is ant03", "no recording", "--missing flag"],
        ),
        (correlate("-o a.uvh5"), &["array/ant03.dada", "antenna \"ant02\" too", "NAME=array/"]),
        (format!("{three} {csv} -o b.uvh5"), &["b.uvh5", "--overwrite"]),
        (format!("{three} {csv} -o c.uvh5"), &["c.uvh5.json", "--overwrite"]),
        (format!("{three} {csv} -o d.uvh5 --plots d_plots"), &["d_plots", "--overwrite"]),
        (format!("{three} {csv} -o e.uvh5"), &["e.uvh5.html", "--overwrite"]),
        (format!("{three} {csv} -o .."), &["--output", "such as array.uvh5"]),
        (
            format!("{three} {csv} -o array/ant00.dada --overwrite"),
            &["array/ant00.dada", "is read"],
        ),
        (format!("{three} {csv} -o array/antennas.csv --overwrite"), &["antennas.csv", "is read"]),
        (
            format!("x={three} {csv} -o a.uvh5").replace("x=correlate ", "correlate x="),
            &["x for array/ant00.dada", "4 antennas (ant00, ant01, ant02, ant03)"],
        ),
        (
            format!(
                "correlate ant00=array/ant00.dada ant00,ant01=array/ant01.dada {csv} -o a.uvh5"
            ),
            &["ant00,ant01 for array/ant01.dada", "has 1 antennas"],
        ),
        (
            "correlate array/ant00.dada --antennas local.csv -o a.uvh5 --location 1,2".to_owned(),
            &["--location", "LON,LAT,HEIGHT"],
        ),
        (
            format!("{three} {csv} -o a.uvh5 --location 1,2,3"),
            &["--location", "a place of its own"],
        ),
        (format!("{three} {csv} -o a.uvh5 --phase-centre 400,0"), &["--phase-centre", "0 to 360"]),
        (format!("{three} {csv} -o a.uvh5 --phase-centre 4"), &["--phase-centre", "RA,DEC"]),
        (format!("{three} {csv} -o a.uvh5 --phase-centre 4,0 --drift"), &["--drift"]),
        (format!("{three} {csv} -o a.uvh5 --plots p --no-plots"), &["--no-plots"]),
        (format!("{three} {csv} -o a.uvh5 --gains nowhere.csv"), &["--gains", "no such file"]),
        (format!("{three} {csv} -o a.uvh5 --gains 0"), &["--gains", "above 0"]),
        (format!("{three} {csv} -o a.uvh5 --missing maybe"), &["--missing"]),
    ] {
        fails(&sidereal(home.path(), &words), 2, told);
    }
    let flagged = format!("{three} {csv} -o a.uvh5 --missing flag");
    for (more, told) in [
        ("--channels 0", &["--channels is 0", "1 to 1048576"][..]),
        ("--taps 0", &["--taps is 0"]),
        ("--channels 1 --taps 8", &["--taps is given", "as they are"]),
        ("--window han", &["--window is han", "no such file"]),
        ("--nbits 16", &["--nbits is 16"]),
        ("--integration 0", &["--integration is 0"]),
        ("--integration nan", &["--integration"]),
        ("--integration 7", &["--integration is 7"]),
        ("--average-channels 3", &["--average-channels is 3"]),
        ("--average-channels 0", &["--average-channels is 0"]),
        ("--baselines ant00-ant09", &["--baselines is ant00-ant09", "such as A-B,C-D"]),
        ("--baselines some", &["--baselines is some", "all, auto"]),
        ("--time-range 5:6", &["--time-range"]),
        ("--dut1 3", &["--dut1", "1 s"]),
        ("--freq -3", &["--freq"]),
        ("--mark5b-bits 1", &["--mark5b-bits is given"]),
    ] {
        fails(&sidereal(home.path(), &format!("{flagged} {more}")), 2, told);
    }
    assert_eq!(entries(home.path()), before);
    assert_eq!(fs::read_to_string(home.path().join("b.uvh5")).unwrap(), "precious");
}

#[test]
fn recordings_must_belong_together() {
    let home = array("");
    let usual = "--freq 150 --bandwidth 1 --seconds 0.25 --start 2025-01-01T00:00:00";
    let kinds: [(&str, String, &[&str]); 9] = [
        ("short", usual.replace("0.25", "0.2"), &["length", "200000", "250000", "--shortest"]),
        (
            "rate",
            usual.replace("--bandwidth 1", "--bandwidth 2"),
            &["sample rate", "2000000", "1000000"],
        ),
        ("late", usual.replace("00:00:00", "00:00:09"), &["start", "ends before"]),
        (
            "between",
            usual.replace("00:00:00", "00:00:00.0000004"),
            &["start", "whole samples apart"],
        ),
        ("band", usual.replace("150", "151"), &["centre of a recorded channel", "151", "150"]),
        (
            "channels",
            format!("{} --channels 2", usual.replace("--bandwidth 1", "--bandwidth 2")),
            &["recorded channels", "2 in", "has 1"],
        ),
        ("side", format!("{usual} --lower-sideband"), &["sideband", "lower", "upper"]),
        ("single", format!("{usual} --polarizations 1"), &["polarizations", "1 in", "has 2"]),
        ("feeds", format!("{usual} --feed circular"), &["feeds", "circular", "linear"]),
    ];
    for (name, more, told) in kinds {
        another(&home, name, &more);
        let before = entries(home.path());
        // Parts of a sample are taken out with delays, and without any they can't be.
        let options = if name == "between" { "-o a.uvh5 --drift" } else { "-o a.uvh5" };
        let words = correlate(options).replace("array/ant01", &format!("{name}/ant01"));
        let output = sidereal(home.path(), &words);
        fails(&output, 2, told);
        let files = ["array/ant00.dada", &format!("{name}/ant01.dada")];
        for file in files {
            assert!(stderr(&output).contains(file), "{file} is not in: {}", stderr(&output));
        }
        assert_eq!(entries(home.path()), before, "{name}");
    }
    let shortest =
        correlate("-o a.uvh5 --shortest --no-plots -q").replace("array/ant01", "short/ant01");
    done(home.path(), &shortest);
}

#[test]
fn bad_files_end_with_a_code_and_leave_nothing() {
    let home = array("");
    let file = |name: &str, text: &str| fs::write(home.path().join(name), text).unwrap();
    file("text.csv", "no positions at all\n");
    file("none.csv", "name,x,y,z\n");
    file("twice.csv", "name,east,north,up\na,0,0,0\na,1,1,1\n");
    file("words.csv", "name,east,north,up\nant00,0,zero,0\n");
    file("local.csv", "name,east,north,up\nant00,0,0,0\n");
    file("gains.txt", "channel re\n0 1\n1 x\n");
    file("few.txt", "channel re\n0 1\n");
    file("empty.dada", "");
    let before = entries(home.path());
    let one = |csv: &str| format!("correlate ant00=array/ant00.dada -o a.uvh5 --antennas {csv}");
    for (words, told) in [
        (one("nowhere.csv"), &["nowhere.csv"][..]),
        (one("text.csv"), &["text.csv", "columns"]),
        (one("none.csv"), &["none.csv", "found 0 antennas"]),
        (one("twice.csv"), &["twice.csv", "line 3, name"]),
        (one("words.csv"), &["words.csv", "line 2, north", "zero"]),
        (one("local.csv"), &["local.csv", "longitude_deg"]),
        (correlate("-o a.uvh5 --gains gains.txt"), &["gains.txt", "line 3, re", "\"x\""]),
        (
            correlate("-o a.uvh5 --gains few.txt"),
            &["few.txt", "antenna ant00, polarization X, channel 1"],
        ),
        (correlate("-o a.uvh5").replace("array/ant01", "empty"), &["empty.dada"]),
        (correlate("-o a.uvh5").replace("array/ant01", "nowhere"), &["nowhere.dada"]),
        (correlate("-o nowhere/a.uvh5"), &["nowhere"]),
    ] {
        let code = if told[0].starts_with("nowhere") { 1 } else { 3 };
        fails(&sidereal(home.path(), &words), code, told);
    }
    assert_eq!(entries(home.path()), before);
}

#[test]
fn what_is_there_goes_only_when_asked() {
    let home = array("");
    let words = correlate("-o a.uvh5 -q --plots a_plots");
    done(home.path(), &words);
    let first = fs::read(home.path().join("a.uvh5")).unwrap();
    fs::write(home.path().join("a_plots/mine.txt"), "precious").unwrap();
    fails(&sidereal(home.path(), &words), 2, &["a.uvh5", "--overwrite"]);
    // A run that fails keeps what is there.
    fails(
        &sidereal(home.path(), &format!("{words} --overwrite --integration 9")),
        2,
        &["--integration"],
    );
    assert!(first == fs::read(home.path().join("a.uvh5")).unwrap());
    // A folder with a file that is not ours stays, and so does all that belongs to it.
    let again = format!("{words} --overwrite --drift");
    fails(&sidereal(home.path(), &again), 2, &["a_plots", "mine.txt", "does not write"]);
    assert!(first == fs::read(home.path().join("a.uvh5")).unwrap());
    fs::remove_file(home.path().join("a_plots/mine.txt")).unwrap();
    done(home.path(), &again);
    assert!(first != fs::read(home.path().join("a.uvh5")).unwrap());
    let expected = ["a.uvh5", "a.uvh5.json", "a_plots", "array"].map(str::to_owned);
    assert_eq!(entries(home.path()), expected.into());
}
