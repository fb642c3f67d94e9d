//! `--earth-orientation`: tables of UT1 and the pole, newer than the program's own.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use crate::common::{done, fails, json, sidereal, stderr};

const FIRST: i64 = 61_690;
/// 2028-03-01 is MJD 61831, after the program's own table.
const ARRAY: &str = "simulate array -o array --overwrite --layout 3,100 --source 140,-20,200,Spot --sefd 100 \
                     --freq 150 --bandwidth 1 --seconds 0.05 --start 2028-03-01T12:00:00 --seed 5";
const CORRELATE: &str = "correlate array/ant00.dada array/ant01.dada array/ant02.dada \
                         --antennas array/antennas.csv -o c.uvh5 --overwrite --channels 16 --integration 0.05";

/// Writes a table in the columns of finals2000A.all: UT1 - UTC falls by 1 ms a day from 0.3 s.
fn write_table(path: &Path, days: i64) {
    let mut text = String::new();
    for day in 0..days {
        let ut1_utc_s = 0.3 - 1e-3 * day as f64;
        let mjd = FIRST + day;
        let _ = writeln!(
            text,
            "28 1 1 {mjd}.00 P  0.190313 0.000030  0.422160 0.000027  P{ut1_utc_s:10.7} 0.0000058"
        );
    }
    fs::write(path, text).unwrap();
}

/// Returns whether a run warned of the end of its table, once.
fn warns(folder: &Path, words: &str) -> bool {
    let output = sidereal(folder, words);
    assert!(output.status.success(), "{}", stderr(&output));
    let told = stderr(&output);
    let count = told.matches("--earth-orientation FILE").count();
    assert!(count <= 1, "{told}");
    assert!(count == 0 || told.contains("ends with MJD"), "{told}");
    count == 1
}

#[test]
fn a_newer_table_is_used_and_its_end_is_warned_of() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path();
    write_table(&path.join("finals2000A.all"), 200);
    assert!(warns(path, ARRAY));
    let with = "--earth-orientation finals2000A.all";
    let truth = json(path, &format!("{ARRAY} {with}"));
    let expected = 0.3 - 1e-3 * (61_831.5 - FIRST as f64);
    let near = |found: &serde_json::Value| (found.as_f64().unwrap() - expected).abs() < 1e-9;
    assert!(near(&truth["dut1_s"]), "{}", truth["dut1_s"]);
    assert_eq!(
        truth["dut1_from"],
        "finals2000A.all: UT1-UTC and the pole, MJD 61690 to 61889, predicted all"
    );
    assert_eq!(truth["provenance"]["inputs"][0]["file"], "finals2000A.all");

    assert!(warns(path, CORRELATE));
    assert!(!warns(path, &format!("{CORRELATE} {with}")));
    let told = json(path, &format!("{CORRELATE} {with}"));
    assert!(near(&told["dut1_s"]), "{}", told["dut1_s"]);
    assert!(done(path, &format!("{CORRELATE} {with}")).contains("(finals2000A.all)"));
    // The table ends before the observation.
    write_table(&path.join("short"), 100);
    assert!(warns(path, &format!("{CORRELATE} --earth-orientation short")));
    let both = sidereal(path, &format!("{CORRELATE} --earth-orientation short --dut1 0.1"));
    fails(&both, 2, &["--dut1", "--earth-orientation"]);
}

#[test]
fn a_search_takes_a_newer_table_for_barycentric_times() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path();
    write_table(&path.join("finals"), 200);
    done(
        path,
        "simulate burst a.fil -q --fch1 1500 --foff -4 --channels 64 --tsamp 1e-3 --duration 4 --seed 3 \
         --burst dm=60,time=1.5,width=0.004,snr=25 --position 05:34:31.9,22:00:52",
    );
    // The telescope's number in a header of SIGPROC: 6 is the GBT.
    let mut bytes = fs::read(path.join("a.fil")).unwrap();
    let mut put = |name: &[u8], value: &[u8]| {
        let at = bytes.windows(name.len()).position(|word| word == name).unwrap() + name.len();
        bytes[at..at + value.len()].copy_from_slice(value);
    };
    put(b"telescope_id", &6i32.to_le_bytes());
    put(b"tstart", &61_831.5f64.to_le_bytes());
    fs::write(path.join("a.fil"), bytes).unwrap();
    let search = "search a.fil -o s --overwrite --no-plots --dm-max 100";
    assert!(warns(path, search));
    let before = json(path, search);
    assert!(!warns(path, &format!("{search} --earth-orientation finals")));
    let after = json(path, &format!("{search} --earth-orientation finals"));
    let barycentric = |found: &serde_json::Value| {
        found["candidates"][0]["barycentric_mjd"].as_f64().unwrap() * 86_400.0
    };
    // Tenths of a second of UT1 move the telescope by some tens of metres.
    assert!((barycentric(&before) - barycentric(&after)).abs() < 2e-6);
    assert_eq!(after["provenance"]["inputs"][1]["file"], "finals");
}

#[test]
fn damaged_tables_are_refused_by_line_and_column() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path();
    done(path, &format!("{ARRAY} -q"));
    write_table(&path.join("finals"), 200);
    let good = fs::read_to_string(path.join("finals")).unwrap();
    let cases = [
        ("61695.00", "61696.00", "line 6, MJD (columns 8 to 15)"),
        ("P 0.2990000", "P 2.2990000", "line 2, UT1 - UTC (columns 59 to 68)"),
        ("P 0.2980000", "P-0.7020000", "MJD 61691"),
        (
            "61699.00 P  0.190313",
            "61699.00 P  o.190313",
            "line 10, x of the pole (columns 19 to 27)",
        ),
    ];
    for (found, spoilt, named) in cases {
        assert!(good.contains(found), "{found}");
        fs::write(path.join("finals"), good.replace(found, spoilt)).unwrap();
        let output = sidereal(path, &format!("{CORRELATE} --earth-orientation finals"));
        fails(&output, 3, &["finals", named, "found"]);
    }
    for (text, named) in [("", "no day"), ("\0\u{1}", "not text")] {
        fs::write(path.join("finals"), text).unwrap();
        let output = sidereal(path, &format!("{CORRELATE} --earth-orientation finals"));
        fails(&output, 3, &["finals", named, "expected"]);
    }
    let output = sidereal(path, &format!("{CORRELATE} --earth-orientation none"));
    fails(&output, 1, &["none"]);
}
