//! `bench chains`: whole verbs as child processes.

use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::common::{done, entries, fails, json, program, sidereal};

#[test]
fn chains_are_measured_and_leave_nothing() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path();
    fs::create_dir(folder.join("room")).unwrap();
    let words =
        "bench chains --quick --verbs correlate,coherent --folder room --device cpu --csv t.csv";
    let rows = json(folder, words);
    let rows = rows.as_array().unwrap();
    assert_eq!(rows.len(), 2);
    assert!(entries(&folder.join("room")).is_empty());
    for row in rows {
        assert_eq!(row["bench"], "chains");
        let number = |name: &str| row[name].as_f64().unwrap_or_else(|| panic!("{name}: {row}"));
        let wall_s = number("wall_s");
        assert!(number("any_s") > 0.0 && number("read_s") > 0.0, "{row}");
        assert!(number("real_time") > 0.0 && number("roof_s") > 0.0, "{row}");
        assert!(number("wall_min_s") <= wall_s && wall_s <= number("wall_max_s"), "{row}");
        assert!(number("product_bytes") > 0.0 && number("input_bytes") > 3e7, "{row}");
        assert_eq!((&row["input"], &row["start"]), (&"file".into(), &"warm".into()));
        assert_eq!((&row["checked"], &row["pipe_roof_gb_s"]), (&true.into(), &().into()));
    }
    let table = fs::read_to_string(folder.join("t.csv")).unwrap();
    let lines: Vec<&str> = table.lines().collect();
    assert!(lines.len() == 3 && lines[0].starts_with("bench,case,device,"), "{table}");
    assert!(lines[1].starts_with("chains,\"correlate, 8 antennas, "), "{table}");
}

#[test]
fn verbs_are_measured_on_several_threads() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path();
    let words =
        "bench scale --quick --verbs correlate --device cpu --numbers 1,2 --folder . --csv t.csv";
    let rows = json(folder, words);
    let rows = rows.as_array().unwrap();
    let of = |name: &str| -> Vec<serde_json::Value> {
        rows.iter().map(|row| row[name].clone()).collect()
    };
    assert_eq!(of("number"), [1, 2]);
    assert_eq!(of("same_products"), [().into(), serde_json::Value::from(true)]);
    for row in rows {
        let number = |name: &str| row[name].as_f64().unwrap_or_else(|| panic!("{name}: {row}"));
        assert!(number("wall_s") > 0.0 && number("speed_up") > 0.0, "{row}");
        let ratio = number("efficiency") * number("number") / number("speed_up");
        assert!((ratio - 1.0).abs() < 1e-9, "{row}");
    }
    let grown = json(folder, &format!("{words} --weak --overwrite"));
    let cases: Vec<&str> =
        grown.as_array().unwrap().iter().map(|row| row["case"].as_str().unwrap()).collect();
    assert_eq!(cases, ["correlate, 8 antennas, 34 MB", "correlate, 8 antennas, 67 MB"]);
    assert!(entries(folder).iter().eq(["t.csv", "t.csv.json"]));
    assert_eq!(fs::read_to_string(folder.join("t.csv")).unwrap().lines().count(), 3);
    for (more, rule) in
        [("--over gpus", "--device cuda"), ("--over processes --weak", "always grows")]
    {
        fails(&sidereal(folder, &format!("{words} --overwrite {more}")), 2, &[rule]);
    }
    if cfg!(not(feature = "mpi")) {
        let words = format!("{words} --overwrite --over ranks");
        fails(&sidereal(folder, &words), 2, &["ranks", "without MPI"]);
    }
}

#[test]
fn processes_make_a_run_each_with_the_same_products() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path();
    let words = "bench scale --quick --verbs search,spiir --device cpu --over processes --numbers 1,3 --folder .";
    let rows = json(folder, words);
    let rows = rows.as_array().unwrap();
    assert!(rows.len() >= 4 && rows.iter().all(|row| row["scaling"] == "processes"), "{rows:?}");
    for pair in rows.chunks_exact(2) {
        assert_eq!((&pair[0]["number"], &pair[1]["number"]), (&1.into(), &3.into()));
        assert_eq!(pair[1]["same_products"], true, "{}", pair[1]);
        let wall = |row: &serde_json::Value| row["wall_s"].as_f64().unwrap();
        let speed_up = 3.0 * wall(&pair[0]) / wall(&pair[1]);
        assert!((pair[1]["speed_up"].as_f64().unwrap() / speed_up - 1.0).abs() < 1e-9);
    }
}

#[test]
fn inputs_of_chains_are_made_for_use_by_hand() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path();
    let told = done(folder, "bench chains --quick --verbs correlate --make-only made");
    let command = told.lines().find_map(|line| line.strip_prefix("sidereal ")).unwrap();
    assert_eq!(entries(&folder.join("made/array")).len(), 9, "{told}");
    let product = command.replace("OUTPUT", "out.uvh5");
    done(folder, &format!("{product} -q"));
    assert!(folder.join("out.uvh5").is_file());
    let words = "bench chains --quick --verbs correlate --folder none";
    fails(&sidereal(folder, words), 1, &["none", "No such file"]);
}

#[test]
fn interrupted_chains_leave_nothing() {
    let home = tempfile::tempdir().unwrap();
    let words = "bench chains --quick --verbs search --device cpu --folder .";
    let mut child = Command::new(program())
        .args(words.split_whitespace())
        .current_dir(home.path())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let begun = Instant::now();
    // Products of a run: the child works.
    let works = || {
        let of = |name: &String| home.path().join(name).join("products").is_dir();
        entries(home.path()).iter().any(of)
    };
    while !works() {
        assert!(begun.elapsed() < Duration::from_secs(300), "nothing happened");
        assert!(child.try_wait().unwrap().is_none(), "it ended too early");
        std::thread::sleep(Duration::from_millis(2));
    }
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(entries(home.path()).is_empty(), "{:?}", entries(home.path()));
}
