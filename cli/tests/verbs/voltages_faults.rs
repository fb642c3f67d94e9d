//! The verbs that take voltages: wrong use, bad files, full disks and interrupts leave nothing behind.

use std::fs;
use std::path::Path;

use crate::common::voltages::recording;
use crate::common::{document, done, entries, fails, sidereal, stderr};

#[test]
fn wrong_use_ends_with_2() {
    let home = recording("v.raw", "");
    let fil =
        "simulate burst a.fil -q --fch1 1500 --foff -4 --channels 64 --tsamp 1e-3 --duration 1";
    done(home.path(), fil);
    fs::write(home.path().join("short.txt"), "1\n2\n3\n").unwrap();
    let before = entries(home.path());
    for (words, told) in [
        ("channelize", &["INPUT"][..]),
        ("channelize v.raw", &["--output"]),
        ("channelize v.raw -o a2.fil", &["--channels is not given", "--channels 16 would"]),
        ("search v.raw", &["--channels is not given", "4 recorded channels of 250 kHz"]),
        ("dedisperse v.raw", &["--channels is not given"]),
        ("channelize v.raw -o b.fil --channels 0", &["--channels is 0", "2 to 1048576"]),
        ("channelize v.raw -o b.fil --channels 1", &["--channels is 1"]),
        ("channelize v.raw -o b.fil --channels 99999999999", &["--channels"]),
        ("channelize v.raw -o b.fil --channels 1e3", &["--channels"]),
        ("channelize v.raw -o b.fil --channels 1048576 --taps 256", &["--taps is 256", "300000"]),
        ("channelize v.raw -o b.fil --channels 16 --taps 0", &["--taps is 0", "1 to 256"]),
        (
            "channelize v.raw -o b.fil --channels 16 --window han",
            &["--window is han", "no such file"],
        ),
        ("channelize v.raw -o b.fil --channels 16 --window kaiser:-3", &["Kaiser"]),
        ("channelize v.raw -o b.fil --channels 16 --window rectangular --taps 4", &["--taps is 4"]),
        (
            "channelize v.raw -o b.fil --channels 16 --oversample 3/4",
            &["--oversample", "at least 1"],
        ),
        ("channelize v.raw -o b.fil --channels 16 --oversample 1/0", &["--oversample"]),
        ("channelize v.raw -o b.fil --channels 16 --oversample 3/2", &["--oversample", "whole"]),
        ("channelize v.raw -o b.fil --channels 16 --oversample x", &["4/3"]),
        ("channelize v.raw -o b.fil --channels 16 --integrate 0", &["--integrate is 0"]),
        ("search v.raw --channels 16 --integrate 100000", &["--integrate is 100000", "1600000"]),
        ("channelize v.raw -o b.fil --channels 16 --freq 1e-3", &["--freq is 0.001", "below 0"]),
        (
            "channelize v.raw -o b.fil --channels 16 --average-channels 3",
            &["--average-channels is 3"],
        ),
        ("channelize v.raw -o b.fil --channels 16 --stokes XYZ", &["XYZ"]),
        ("channelize v.raw -o b.fil --channels 16 --antenna 1", &["--antenna is 1"]),
        ("channelize v.raw -o b.fil --channels 16 --time-range 5:6", &["--time-range"]),
        ("channelize v.raw -o b.fil --channels 16 --nbits 16", &["--nbits is 16"]),
        ("channelize v.raw -o b.fil --channels 16 --coherent-dm -3", &["--coherent-dm"]),
        ("channelize v.raw -o b.fil --channels 16 --coherent-dm nan", &["--coherent-dm"]),
        ("channelize v.raw -o b.fil --channels 16 --dm-constant 0", &["--dm-constant"]),
        ("channelize v.raw -o b.fil --channels 16 --freq -3", &["--freq"]),
        ("channelize v.raw -o b.fil --channels 16 --gain 2", &["--gain", "it is for voltages"]),
        ("channelize v.raw -o b.raw --channels 16 --gain 0", &["--gain is 0"]),
        ("channelize v.raw -o b.raw --channels 16 --nbits 32", &["--nbits is 32"]),
        ("channelize v.raw -o b.dada --channels 16 --stokes I", &["--stokes", "not detected"]),
        (
            "channelize v.raw -o b.dada --channels 16 --integrate 2",
            &["--integrate", "not detected"],
        ),
        ("channelize v.raw -o - --channels 16 --json", &["--json"]),
        ("channelize v.raw -o - --channels 16 --format dada", &["--output"]),
        ("channelize - -o b.fil --channels 16", &["INPUT is -", "from files"]),
        ("channelize v.raw -o v.raw --channels 16", &["v.raw"]),
        ("channelize v.raw -o v.raw --channels 16 --overwrite", &["v.raw", "is read"]),
        ("channelize v.raw -o .. --channels 16", &["--output"]),
        ("channelize v.raw -o a.fil --channels 16", &["a.fil", "--overwrite"]),
        ("search a.fil --channels 16", &["--channels is given", "voltages", "a.fil"]),
        ("search a.fil --dc", &["--dc is given"]),
        ("dedisperse a.fil --freq 100", &["--freq is given"]),
        ("info a.fil --mark5b-channels 8", &["--mark5b-channels is given"]),
        ("search v.raw --channels 16 --pol 0", &["--pol"]),
        ("search v.raw --channels 16 --time-range 5:6", &["--time-range"]),
    ] {
        fails(&sidereal(home.path(), words), 2, told);
    }
    assert_eq!(entries(home.path()), before);
}

#[test]
fn bad_files_end_with_a_code_and_leave_nothing() {
    let home = recording("v.raw", "");
    let whole = fs::read(home.path().join("v.raw")).unwrap();
    let file = |name: &str, bytes: &[u8]| fs::write(home.path().join(name), bytes).unwrap();
    file("empty.raw", b"");
    file("text.raw", b"This is no recording, only a few words in a file.");
    file("header.raw", &whole[..1000]);
    file("short.raw", &whole[..6000]);
    let text = |from: &str, to: &str| {
        let at = whole.windows(from.len()).position(|word| word == from.as_bytes()).unwrap();
        let mut changed = whole.clone();
        changed[at..at + to.len()].copy_from_slice(to.as_bytes());
        changed
    };
    file("bits.raw", &text("NBITS   =                    8", "NBITS   =                    7"));
    file("window.txt", b"1\n2\n3\n");
    file("words.txt", b"one\ntwo\n");
    let before = entries(home.path());
    for verb in ["channelize -o out.fil", "search -o out", "dedisperse -o out", "info"] {
        for name in ["missing.raw", "empty.raw", "text.raw", "header.raw", "short.raw", "bits.raw"]
        {
            if (verb, name) == ("info", "short.raw") {
                // Its header is shown.
                continue;
            }
            let division = if verb == "info" { "" } else { "--channels 16" };
            let code = if name == "missing.raw" { 1 } else { 3 };
            fails(&sidereal(home.path(), &format!("{verb} {name} {division}")), code, &[name]);
        }
    }
    for (words, code, told) in [
        (
            "-o b.fil --channels 16 --window window.txt",
            3,
            &["window.txt", "found 3", "expected 128"][..],
        ),
        ("-o b.fil --channels 16 --window words.txt", 3, &["words.txt", "line 1"]),
        ("-o missing/b.fil --channels 16", 1, &["missing"]),
        ("-o v.raw.truth.json/b.fil --channels 16", 1, &["v.raw.truth.json"]),
    ] {
        fails(&sidereal(home.path(), &format!("channelize v.raw {words}")), code, told);
    }
    fails(
        &sidereal(home.path(), "channelize v.raw text.raw -o b.fil --channels 16"),
        3,
        &["text.raw"],
    );
    assert_eq!(entries(home.path()), before);
}

#[test]
fn an_existing_file_is_kept_unless_it_may_go() {
    let home = recording("v.raw", "");
    fs::write(home.path().join("b.fil.json"), "precious").unwrap();
    let words = "channelize v.raw -o b.fil --channels 16 -q";
    fails(&sidereal(home.path(), words), 2, &["b.fil.json", "--overwrite"]);
    assert_eq!(fs::read_to_string(home.path().join("b.fil.json")).unwrap(), "precious");
    assert_eq!(done(home.path(), &format!("{words} --overwrite")), "");
    assert_eq!(document(home.path(), "b.fil.json")["file"], "b.fil");
    let first = fs::read(home.path().join("b.fil")).unwrap();
    done(home.path(), &format!("{words} --overwrite --gulp 777 -t 1"));
    assert!(
        first == fs::read(home.path().join("b.fil")).unwrap(),
        "gulp and threads change nothing"
    );
    let piped = sidereal(home.path(), "channelize v.raw -o - --channels 16");
    assert!(piped.status.success(), "{}", stderr(&piped));
    // The header holds the file's name.
    let rows = 4 * 64 * document(home.path(), "b.fil.json")["times"].as_u64().unwrap() as usize;
    let last = |bytes: &[u8]| bytes[bytes.len() - rows..].to_vec();
    assert!(last(&first) == last(&piped.stdout), "standard output has the same rows");
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_told_clearly() {
    if !Path::new("/dev/full").exists() {
        return;
    }
    let home = recording("v.raw", "");
    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let told = std::process::Command::new(env!("CARGO_BIN_EXE_sidereal"))
        .args(["channelize", "v.raw", "-o", "-", "--channels", "16"])
        .current_dir(home.path())
        .stdout(full)
        .output()
        .unwrap();
    assert_eq!(told.status.code(), Some(4));
    assert!(stderr(&told).contains("space"), "{}", stderr(&told));
    // Whoever reads standard output may have half of the data.
    assert!(!stderr(&told).contains("half-written"), "{}", stderr(&told));
}

#[test]
fn products_are_not_summed_without_a_word() {
    let home = recording("v.raw", "");
    done(home.path(), "channelize v.raw -q -o s.fil --channels 16 --stokes iquv");
    let words = "search s.fil --dm-max 1 --no-plots";
    let told = |more: &str| stderr(&sidereal(home.path(), &format!("{words} {more}")));
    assert!(told("-o a").contains("--pol 0"));
    assert!(!told("-o b --pol 0").contains("4 IFs"));
}

#[cfg(target_os = "linux")]
#[test]
fn devices_are_not_replaced_and_links_stay() {
    let home = recording("v.raw", "");
    std::os::unix::fs::symlink("/dev/full", home.path().join("full.fil")).unwrap();
    std::os::unix::fs::symlink("there.fil", home.path().join("link.fil")).unwrap();
    let words = |out: &str| format!("channelize v.raw --overwrite --channels 16 -o {out}");
    fails(&sidereal(home.path(), &words("full.fil")), 2, &["full.fil", "not a regular file"]);
    done(home.path(), &words("link.fil"));
    assert!(home.path().join("link.fil").symlink_metadata().unwrap().is_symlink());
    assert!(home.path().join("there.fil").metadata().unwrap().is_file());
}

#[test]
fn messages_name_the_option_at_fault() {
    let home = recording("v.raw", "");
    for (words, expected) in [
        ("info v.raw --pols 1", "--pols"),
        ("info v.raw --mark5b-bits 2", "--mark5b-bits"),
        ("info v.raw --pol 1", "--pol"),
        ("info v.raw --freq 1e20", "at most 1e12"),
        ("channelize v.raw -o x.fil --channels 2 --taps 1", "--window rectangular"),
        ("search v.raw --channels 16 --time-range 0:0.00001", "first spectrum starts"),
        ("simulate voltages x.raw --freq 400 --bandwidth 900", "--bandwidth"),
        ("simulate voltages x.raw --freq 400 --bandwidth 9 --duration 1e15", "--duration"),
        ("simulate voltages x.raw --freq 400 --bandwidth 9 --real", ".dada"),
    ] {
        fails(&sidereal(home.path(), words), 2, &[expected]);
    }
}
