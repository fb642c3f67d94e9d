//! The binary as a user meets it: help, exit codes, documents, and what stays behind.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

const VERBS: [&str; 12] = [
    "demo",
    "search",
    "info",
    "dedisperse",
    "channelize",
    "correlate",
    "plan",
    "simulate",
    "spiir",
    "bench",
    "devices",
    "tune",
];

fn sidereal(folder: &Path, words: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_sidereal"))
        .args(words.split_whitespace())
        .current_dir(folder)
        .output()
        .unwrap()
}

fn code(output: &Output) -> i32 {
    output.status.code().unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn json(output: &Output) -> Value {
    assert_eq!(code(output), 0, "{}", stderr(output));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn keys(value: &Value) -> BTreeSet<&str> {
    value.as_object().unwrap().keys().map(String::as_str).collect()
}

fn entries(folder: &Path) -> BTreeSet<String> {
    let name = |e: std::io::Result<fs::DirEntry>| e.unwrap().file_name().into_string().unwrap();
    fs::read_dir(folder).unwrap().map(name).collect()
}

/// A folder with 4 s of 64 channels in it, and one burst at DM 60 and 1.5 s.
fn recording() -> TempDir {
    let home = tempfile::tempdir().unwrap();
    let made = sidereal(
        home.path(),
        "simulate burst a.fil -q --fch1 1500 --foff -4 --channels 64 --tsamp 1e-3 --duration 4 \
         --seed 3 --burst dm=60,time=1.5,width=0.004,snr=25",
    );
    assert_eq!(code(&made), 0, "{}", stderr(&made));
    home
}

/// Checks that a call failed with a code and one error without a panic, which says `words`.
fn fails(output: &Output, expected: i32, words: &[&str]) {
    let told = stderr(output);
    assert_eq!(code(output), expected, "{told}");
    assert!(stdout(output).is_empty(), "{}", stdout(output));
    assert!(!told.contains("panicked") && !told.contains("internal fault"), "{told}");
    assert!(told.starts_with("sidereal: ") || told.starts_with("error: "), "{told}");
    for word in words {
        assert!(told.contains(word), "{word} is not in: {told}");
    }
}

#[test]
fn every_verb_has_help() {
    let home = tempfile::tempdir().unwrap();
    let all = stdout(&sidereal(home.path(), "--help"));
    for verb in VERBS {
        assert!(all.contains(&format!("\n  {verb}")), "{verb}");
        let help = sidereal(home.path(), &format!("{verb} --help"));
        assert_eq!(code(&help), 0);
        assert!(stdout(&help).contains("Usage: sidereal"), "{verb}");
    }
    assert_eq!(code(&sidereal(home.path(), "--version")), 0);
    assert!(entries(home.path()).is_empty());
}

#[test]
fn wrong_use_ends_with_2() {
    let home = recording();
    for (words, told) in [
        ("search", "INPUT"),
        ("search a.fil --no-such-option", "--no-such-option"),
        ("nothing", "nothing"),
        ("search a.fil --dm-min 100 --dm-max 50", "--dm-max"),
        ("search a.fil --dm-min -5", "-5"),
        ("search a.fil --dm-step 0 --dm-max 10", "--dm-step"),
        ("search a.fil --snr 0", "--snr"),
        ("search a.fil --snr nan", "--snr"),
        ("search a.fil --max-width -1", "--max-width"),
        ("search a.fil --baseline 0", "--baseline"),
        ("search a.fil --zap-chans 60:64", "--zap-chans"),
        ("search a.fil --zap-chans 0:63", "--zap-chans"),
        ("search a.fil --zap-chans 5:x", "--zap-chans"),
        ("search a.fil --time-range 9:10", "--time-range"),
        ("search a.fil --time-range 3:2", "--time-range"),
        ("search a.fil --dm-constant 0", "dm-constant"),
        ("search a.fil --pol 1", "pol"),
        ("search a.fil --threads 5000", "--threads"),
        ("devices --threads 5000", "--threads"),
        ("simulate burst b.fil --telescope askap --threads 5000", "--threads"),
        ("simulate burst b.fil --telescope askap --dm 5 --time 100", "from 0 to 10 s"),
        ("search a.fil --time-range -1:3", "--time-range"),
        ("search a.fil --max-width 1e9", "maximum width"),
        ("search a.fil --dm-min 90000 --dm-max 90001 --dm-step 1", "no trial fits"),
        ("dedisperse a.fil --format wav", "wav"),
        ("dedisperse a.fil --dm-min 90000 --dm-max 90001 --dm-step 1", "no trial fits"),
    ] {
        fails(&sidereal(home.path(), words), 2, &[told]);
    }
    assert_eq!(entries(home.path()).len(), 2, "{:?}", entries(home.path()));
}

#[test]
fn bad_files_end_with_1_and_leave_nothing() {
    let home = recording();
    let whole = fs::read(home.path().join("a.fil")).unwrap();
    let file = |name: &str, bytes: &[u8]| fs::write(home.path().join(name), bytes).unwrap();
    file("empty.fil", b"");
    file("text.fil", b"This is no recording, only a few words in a file.");
    file("short.fil", &whole[..60]);
    let at = whole.windows(6).position(|word| word == b"nchans").unwrap() + 6;
    let mut absurd = whole.clone();
    absurd[at..at + 4].copy_from_slice(&0i32.to_le_bytes());
    file("none.fil", &absurd);
    absurd[at..at + 4].copy_from_slice(&i32::MAX.to_le_bytes());
    file("many.fil", &absurd);
    let before = entries(home.path());
    for verb in ["info", "search", "dedisperse"] {
        for name in ["missing.fil", "empty.fil", "text.fil", "short.fil", "none.fil", "many.fil"] {
            fails(&sidereal(home.path(), &format!("{verb} {name}")), 1, &[name]);
        }
    }
    file("constant.fil", &[&whole[..whole.len() - 64 * 4000], &[7; 64 * 4000]].concat());
    let constant = sidereal(home.path(), "search constant.fil");
    fails(&constant, 1, &["constant.fil", "every channel", "--no-auto-mask"]);
    fs::remove_file(home.path().join("constant.fil")).unwrap();
    fails(&sidereal(home.path(), "search a.fil -o a.fil/out"), 1, &["a.fil", "is a file"]);
    fails(&sidereal(home.path(), "search a.fil --plan missing.toml"), 1, &["missing.toml"]);
    fails(&sidereal(home.path(), "search a.fil --rfi-mask missing.mask"), 1, &["missing.mask"]);
    assert_eq!(entries(home.path()), before);
}

#[test]
fn an_existing_folder_is_kept_unless_it_may_go() {
    let home = recording();
    let out = home.path().join("out");
    fs::create_dir(&out).unwrap();
    fs::write(out.join("mine"), "precious").unwrap();
    fails(&sidereal(home.path(), "search a.fil -o out"), 2, &["out", "--overwrite"]);
    fails(&sidereal(home.path(), "search a.fil -o . --overwrite"), 2, &["--output"]);
    fails(&sidereal(home.path(), "demo -o out"), 2, &["out", "--overwrite"]);
    assert_eq!(fs::read_to_string(out.join("mine")).unwrap(), "precious");
    fails(&sidereal(home.path(), "search a.fil -o a.fil/out"), 1, &["a.fil"]);
    let done = sidereal(home.path(), "search a.fil -o out --overwrite --no-plots -q");
    assert_eq!((code(&done), stdout(&done)), (0, String::new()));
    let expected = ["candidates.cand", "candidates.csv", "summary.json"];
    assert_eq!(entries(&out), expected.map(str::to_owned).into());
    assert_eq!(entries(home.path()).len(), 3);
}

#[test]
fn a_search_writes_what_the_table_says() {
    let home = recording();
    let words = "search a.fil -o out --json --fetch --singlepulse";
    let summary = json(&sidereal(home.path(), words));
    let expected = ["candidates", "dms", "file", "masked_channels", "realtime_factor"];
    assert_eq!(keys(&summary), expected.into());
    assert_eq!(keys(&summary["dms"]), ["count", "max", "min"].into());
    let best = &summary["candidates"][0];
    assert_eq!(keys(best), ["dm", "members", "snr", "time_s", "width_s"].into());
    assert!((best["dm"].as_f64().unwrap() - 60.0).abs() < 5.0, "{best}");
    assert!((best["time_s"].as_f64().unwrap() - 1.5).abs() < 4e-3, "{best}");
    let out = home.path().join("out");
    let file: Value = serde_json::from_slice(&fs::read(out.join("summary.json")).unwrap()).unwrap();
    assert_eq!(file, summary);
    let names = entries(&out);
    for name in ["candidates.cand", "candidates.csv", "candidates.singlepulse", "overview.png"] {
        assert!(names.contains(name), "{names:?}");
    }
    let of_kind = |extension: &str| {
        let kind = |name: &&String| name.starts_with("candidate_") && name.ends_with(extension);
        names.iter().filter(kind).count()
    };
    let candidates = summary["candidates"].as_array().unwrap().len();
    assert_eq!((of_kind(".png"), of_kind(".h5")), (candidates, candidates));
    let line = fs::read_to_string(out.join("candidates.cand")).unwrap();
    assert_eq!(line.lines().next().unwrap().split('\t').count(), 9);
    let first = fs::read_to_string(out.join("candidates.csv")).unwrap();
    assert!(
        first.starts_with("file,snr,stime,width,dm,label,chan_mask_path,num_files,time_s,width_s")
    );
}

#[test]
fn parts_join_in_any_order_and_gaps_are_listed() {
    let home = recording();
    let whole = fs::read(home.path().join("a.fil")).unwrap();
    let (header, rows) = whole.split_at(whole.len() - 64 * 4000);
    let at = header.windows(6).position(|word| word == b"tstart").unwrap() + 6;
    let part = |name: &str, first: usize, end: usize| {
        let mut header = header.to_vec();
        let start = f64::from_le_bytes(header[at..at + 8].try_into().unwrap());
        let start = start + first as f64 * 1e-3 / 86400.0;
        header[at..at + 8].copy_from_slice(&start.to_le_bytes());
        let bytes = [&header, &rows[64 * first..64 * end]].concat();
        fs::write(home.path().join(name), bytes).unwrap();
    };
    part("1.fil", 0, 2500);
    part("2.fil", 2500, 4000);
    part("3.fil", 3000, 4000);
    let one = json(&sidereal(home.path(), "search a.fil -o a --json --no-plots"));
    let two = json(&sidereal(home.path(), "search 2.fil 1.fil -o b --json --no-plots"));
    assert_eq!(one["candidates"], two["candidates"]);
    assert_eq!(two["file"], "1.fil");
    let table = fs::read_to_string(home.path().join("b/candidates.csv")).unwrap();
    assert!(table.lines().nth(1).unwrap().starts_with("1.fil,"), "{table}");
    fails(&sidereal(home.path(), "search 1.fil 3.fil"), 1, &["500 samples", "--allow-gaps"]);
    for verb in ["search", "dedisperse"] {
        let words =
            format!("{verb} 1.fil 3.fil -o {verb} --allow-gaps --json --dm-max 50 --dm-step 5");
        let gaps = json(&sidereal(home.path(), &words))["gaps"].clone();
        assert_eq!(gaps.as_array().unwrap().len(), 1, "{verb}: {gaps}");
        assert_eq!((&gaps[0]["start_s"], &gaps[0]["length_s"]), (&2.5.into(), &0.5.into()));
    }
}

#[test]
fn a_search_is_the_same_for_any_gulp_and_threads_and_from_a_pipe() {
    let home = recording();
    let found = |words: &str| {
        let summary = json(&sidereal(home.path(), words));
        (summary["candidates"].clone(), summary["dms"].clone())
    };
    let whole = found("search a.fil -o 1 --json --no-plots --snr 5");
    assert_eq!(whole, found("search a.fil -o 2 --json --no-plots --snr 5 --gulp 7 -t 1"));
    assert_eq!(whole, found("search a.fil -o 3 --json --no-plots --snr 5 --gulp 1000 -t 3"));
    let file = fs::File::open(home.path().join("a.fil")).unwrap();
    let piped = Command::new(env!("CARGO_BIN_EXE_sidereal"))
        .args(["search", "-", "-o", "4", "--json", "--snr", "5"])
        .current_dir(home.path())
        .stdin(Stdio::from(file))
        .output()
        .unwrap();
    let summary = json(&piped);
    assert_eq!(whole, (summary["candidates"].clone(), summary["dms"].clone()));
    let names = entries(&home.path().join("4"));
    assert!(names.contains("overview.png") && !names.contains("rows.tmp"), "{names:?}");
}

#[test]
fn time_ranges_count_from_the_recordings_start() {
    let home = recording();
    let summary = json(&sidereal(home.path(), "search a.fil -o out --json --time-range 1:3"));
    let time_s = summary["candidates"][0]["time_s"].as_f64().unwrap();
    assert!((time_s - 1.5).abs() < 4e-3, "{time_s}");
    let series =
        sidereal(home.path(), "dedisperse a.fil --json --time-range 1: --dm-max 1 --dm-step 1");
    assert_eq!(json(&series)["start_s"], 1.0);
}

#[test]
fn series_are_written_in_each_format() {
    let home = recording();
    let run = |format: &str| {
        let words = "--dm-min 10 --dm-max 10.02 --dm-step 0.005 --json --overwrite -o series";
        json(&sidereal(home.path(), &format!("dedisperse a.fil --format {format} {words}")))
    };
    let document = run("npy");
    assert_eq!(keys(&document), ["dms", "downsample", "start_s", "times", "tsamp_s"].into());
    assert_eq!(document["dms"].as_array().unwrap().len(), 4);
    let series = home.path().join("series");
    assert_eq!(entries(&series), ["dedispersed.json", "dedispersed.npy"].map(String::from).into());
    let times = document["times"][0].as_u64().unwrap() as usize;
    let bytes = fs::read(series.join("dedispersed.npy")).unwrap();
    assert_eq!(bytes.len(), 128 + 4 * 4 * times);
    run("dat");
    let names = entries(&series);
    assert_eq!(names.len(), 9);
    assert!(names.contains("a_DM10.000.dat") && names.contains("a_DM10.015.inf"), "{names:?}");
    let dat = fs::read(series.join("a_DM10.000.dat")).unwrap();
    assert_eq!(dat.len(), 4 * times);
    run("tim");
    assert_eq!(entries(&series).len(), 5);
    let told = json(&sidereal(home.path(), "info series/a_DM10.005.tim --json"));
    assert_eq!((told["dm"].as_f64(), told["times"].as_u64()), (Some(10.005), Some(times as u64)));
}

#[test]
fn a_plan_of_several_ranges_gives_several_arrays() {
    let home = recording();
    let words = "dedisperse a.fil --json -o series --ranges 0:10:1,10:20:2:2";
    let documents = json(&sidereal(home.path(), words));
    assert_eq!(documents[1]["downsample"], 2);
    let expected =
        ["dedispersed.json", "dedispersed.npy", "dedispersed_2.json", "dedispersed_2.npy"];
    assert_eq!(entries(&home.path().join("series")), expected.map(String::from).into());
}

#[test]
fn documents_of_info_and_devices() {
    let home = recording();
    let info = json(&sidereal(home.path(), "info a.fil --json"));
    for key in ["file", "format", "tsamp_s", "times", "channels", "fch1_mhz", "foff_mhz", "bits"] {
        assert!(!info[key].is_null(), "{key}");
    }
    let expected = ["fraction", "max", "mean", "min", "not_finite", "samples", "sigma"];
    assert_eq!(keys(&info["statistics"]), expected.into());
    assert_eq!(info["bandpass"]["mean"].as_array().unwrap().len(), 64);
    let devices = json(&sidereal(home.path(), "devices --json"));
    assert!(devices["devices"].as_array().unwrap().len() >= 2);
    let table = stdout(&sidereal(home.path(), "info a.fil a.fil"));
    assert_eq!(table.matches("SIGPROC filterbank, 8 bit").count(), 2);
    let both = json(&sidereal(home.path(), "info a.fil a.fil --json --header"));
    assert!(both[1]["statistics"].is_null());
}

#[test]
fn a_reader_that_has_had_enough_is_no_error() {
    let home = recording();
    let mut child = Command::new(env!("CARGO_BIN_EXE_sidereal"))
        .args(["info", "a.fil", "--json"])
        .current_dir(home.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((code(&output), stderr(&output)), (0, String::new()));
}

#[cfg(unix)]
#[test]
fn a_disk_that_is_full_is_one_error_and_leaves_nothing() {
    let home = recording();
    let before = entries(home.path());
    let binary = env!("CARGO_BIN_EXE_sidereal");
    for verb in ["dedisperse a.fil --dm-max 100 --dm-step 0.1", "search - --snr 5"] {
        // No file may grow beyond some kB; the signal that comes with it is ignored.
        let script = format!("trap '' XFSZ; ulimit -f 16; exec {binary} {verb} -o out < a.fil");
        let shell = Command::new("sh").args(["-c", &script]).current_dir(home.path()).output();
        fails(&shell.unwrap(), 1, &["out/", "Free some space"]);
        assert_eq!(entries(home.path()), before);
    }
}

#[cfg(unix)]
#[test]
fn an_interrupt_stops_at_the_next_gulp_and_leaves_nothing() {
    let home = recording();
    let before = entries(home.path());
    let mut child = Command::new(env!("CARGO_BIN_EXE_sidereal"))
        .args(["search", "-", "-o", "out"])
        .current_dir(home.path())
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let data = fs::read(home.path().join("a.fil")).unwrap();
    let mut pipe = child.stdin.take().unwrap();
    pipe.write_all(&data[..data.len() / 2]).unwrap();
    // The output folder is made once the header is read; only then is the handler surely there.
    let unfinished = |home: &Path| entries(home).iter().any(|name| name.contains("unfinished"));
    while !unfinished(home.path()) {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let id = child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &id]).status().unwrap().success());
    std::thread::sleep(std::time::Duration::from_millis(200));
    // The pipe may be closed already.
    let _ = pipe.write_all(&data[data.len() / 2..]);
    drop(pipe);
    let output = child.wait_with_output().unwrap();
    assert_eq!(code(&output), 130, "{}", stderr(&output));
    assert_eq!(entries(home.path()), before);
}

/// The real burst of ASKAP, where the recordings are at hand.
#[test]
fn the_burst_of_2018_april_17_is_found_in_both_formats() {
    let default = || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../shared/data");
    let data = std::env::var_os("SIDEREAL_DATA").map_or_else(default, PathBuf::from);
    if !data.join("frb").is_dir() {
        let required = std::env::var("SIDEREAL_REQUIRE").unwrap_or_default();
        assert!(!required.split(',').any(|word| word == "data"), "no recordings in {data:?}");
        eprintln!("skipped: no recordings in {}", data.display());
        return;
    }
    for (name, out) in [("FRB180417_askap_28.fil", "1"), ("FRB180417_askap_28.fits", "2")] {
        let home = tempfile::tempdir().unwrap();
        let path = data.join("frb").join(name);
        let words = format!("search {} -o {out} --json", path.display());
        let best = json(&sidereal(home.path(), &words))["candidates"][0].clone();
        assert!((best["dm"].as_f64().unwrap() - 475.0).abs() <= 3.0, "{best}");
        assert!((best["time_s"].as_f64().unwrap() - 2.0289).abs() <= 3e-3, "{best}");
        assert!(best["snr"].as_f64().unwrap() > 13.0, "{best}");
    }
}

#[test]
fn the_demo_finds_its_bursts_and_leaves_a_whole_page() {
    let home = tempfile::tempdir().unwrap();
    let document = json(&sidereal(home.path(), "demo --json -o shown"));
    assert_eq!(document["found_all"], true);
    let found = |of: &str, key: &str| document["voltages"][of][key].as_f64().unwrap();
    assert!((found("found", "dm") - 200.0).abs() <= 0.5, "{document}");
    assert!(found("found", "snr") > 1.3 * found("found_in_powers", "snr"), "{document}");
    assert!(document["bursts"].as_array().unwrap().len() >= 5);
    let array = |key: &str| document["array"][key].as_f64().unwrap();
    assert_eq!(array("baselines"), 36.0);
    assert!(array("phase_rms_over_band_deg") < 1.0, "{document}");
    assert!(array("phase_rms_over_time_deg") < 0.5, "{document}");
    assert!((array("amplitude_ratio") - 1.0).abs() < 0.01, "{document}");
    assert_eq!(document["strain"]["found"], true);
    assert_eq!(document["strain"]["template"], "36+29");
    assert_eq!(entries(home.path()), ["shown".to_owned()].into());
    let folder = home.path().join("shown");
    let page = fs::read_to_string(folder.join("index.html")).unwrap();
    let links: Vec<&str> = ["src=\"", "href=\""]
        .iter()
        .flat_map(|start| page.split(start).skip(1).map(|rest| rest.split('"').next().unwrap()))
        .filter(|link| !link.starts_with('#'))
        .collect();
    assert!(links.len() > 10);
    for link in links {
        assert!(folder.join(link).is_file(), "{link}");
    }
    for name in
        ["summary.json", "tracked.json", "drifting.json", "array/truth.json", "strain.truth.json"]
    {
        let written = fs::read_to_string(folder.join(name)).unwrap();
        assert!(!written.contains("unfinished"), "{name}");
    }
    assert!(!page.contains("unfinished"));
    let truth: Value =
        serde_json::from_slice(&fs::read(folder.join("observation.truth.json")).unwrap()).unwrap();
    assert_eq!(truth["file"], "shown/observation.fil");
}
