//! The binary as a user meets it: help, exit codes, documents, and what stays behind.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::common::{
    code, document, done, entries, fails, json, keys, program, recording, sidereal, stderr, stdout,
};

const VERBS: [&str; 13] = [
    "demo",
    "search",
    "replot",
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
fn bad_files_end_with_a_code_and_leave_nothing() {
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
            let code = if name == "missing.fil" { 1 } else { 3 };
            fails(&sidereal(home.path(), &format!("{verb} {name}")), code, &[name]);
        }
    }
    file("constant.fil", &[&whole[..whole.len() - 64 * 4000], &[7; 64 * 4000]].concat());
    let constant = sidereal(home.path(), "search constant.fil");
    fails(&constant, 3, &["constant.fil", "every channel", "--no-auto-mask"]);
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
    fails(&sidereal(home.path(), "plan a.fil -o a.fil --overwrite"), 2, &["a.fil", "is read"]);
    fs::create_dir(home.path().join("plans")).unwrap();
    done(home.path(), "plan a.fil --dm-max 20 -o plans/plan.toml");
    let planned = "search a.fil --plan plans/plan.toml -o plans --overwrite";
    fails(&sidereal(home.path(), planned), 2, &["plans", "is read"]);
    fs::remove_dir_all(home.path().join("plans")).unwrap();
    assert_eq!(fs::read_to_string(out.join("mine")).unwrap(), "precious");
    fails(&sidereal(home.path(), "search a.fil -o a.fil/out"), 1, &["a.fil"]);
    // A folder that holds a file of somebody else's is never replaced.
    let words = "search a.fil -o out --overwrite --no-plots -q";
    fails(&sidereal(home.path(), words), 2, &["out", "holds mine", "another name"]);
    fails(&sidereal(home.path(), "demo -o out --overwrite"), 2, &["out", "holds mine"]);
    assert_eq!(fs::read_to_string(out.join("mine")).unwrap(), "precious");
    fs::rename(out.join("mine"), out.join("candidates.cand")).unwrap();
    let done = sidereal(home.path(), words);
    assert_eq!((code(&done), stdout(&done)), (0, String::new()));
    let expected = ["candidates.cand", "candidates.csv", "summary.json"];
    assert_eq!(entries(&out), expected.map(str::to_owned).into());
    assert_eq!(entries(home.path()).len(), 3);
}

#[test]
fn documents_of_info_and_devices() {
    let home = recording();
    let info = json(home.path(), "info a.fil");
    for key in ["file", "format", "tsamp_s", "times", "channels", "fch1_mhz", "foff_mhz", "bits"] {
        assert!(!info[key].is_null(), "{key}");
    }
    let expected = ["fraction", "max", "mean", "min", "not_finite", "samples", "sigma"];
    assert_eq!(keys(&info["statistics"]), expected.into());
    assert_eq!(info["bandpass"]["mean"].as_array().unwrap().len(), 64);
    let devices = json(home.path(), "devices");
    assert!(devices["devices"].as_array().unwrap().len() >= 2);
    let table = stdout(&sidereal(home.path(), "info a.fil a.fil"));
    assert_eq!(table.matches("SIGPROC filterbank, 8 bit").count(), 2);
    let both = json(home.path(), "info a.fil a.fil --header");
    assert!(both[1]["statistics"].is_null());
}

#[test]
fn a_reader_that_has_had_enough_is_no_error() {
    let home = recording();
    let mut child = Command::new(program())
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
    let binary = program().display().to_string();
    for verb in ["dedisperse a.fil --dm-max 100 --dm-step 0.1", "search - --snr 5"] {
        // No file may grow beyond some kB; the signal that comes with it is ignored.
        let script = format!("trap '' XFSZ; ulimit -f 16; exec {binary} {verb} -o out < a.fil");
        let shell = Command::new("sh").args(["-c", &script]).current_dir(home.path()).output();
        fails(&shell.unwrap(), 4, &["out/", "Free some space", "nothing half-written"]);
        assert_eq!(entries(home.path()), before);
    }
}

#[cfg(unix)]
#[test]
fn an_interrupt_is_heard_in_a_pipe_that_goes_on_and_what_came_is_searched() {
    let home = recording();
    let mut child = Command::new(program())
        .args(["search", "-", "-o", "out"])
        .current_dir(home.path())
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let data = fs::read(home.path().join("a.fil")).unwrap();
    let mut pipe = child.stdin.take().unwrap();
    pipe.write_all(&data[..data.len() / 2]).unwrap();
    // The handler is there before the output folder.
    let unfinished = |home: &Path| entries(home).iter().any(|name| name.contains("unfinished"));
    while !unfinished(home.path()) {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    // The pipe could hold all of it unread.
    while rustix::io::ioctl_fionread(&pipe).unwrap() > 0 {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let id = child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &id]).status().unwrap().success());
    std::thread::sleep(std::time::Duration::from_millis(200));
    // The pipe may be closed already.
    let _ = pipe.write_all(&data[data.len() / 2..]);
    let output = child.wait_with_output().unwrap();
    drop(pipe);
    assert_eq!(code(&output), 130, "{}", stderr(&output));
    assert!(entries(home.path()).iter().all(|name| !name.starts_with('.')));
    let summary = document(home.path(), "out/summary.json");
    assert_eq!(
        (&summary["complete"], &summary["reason"]),
        (&false.into(), &"stopped on request".into())
    );
}

#[test]
fn the_demo_finds_its_bursts_and_leaves_a_whole_page() {
    let home = tempfile::tempdir().unwrap();
    let document = json(home.path(), "demo -o shown");
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
    // The text for those who do not see a picture is not its caption again.
    let figures: Vec<&str> = page.split("<figure>").skip(1).collect();
    assert!(figures.len() > 10);
    for figure in figures {
        let between =
            |start: &str, end: &str| figure.split(start).nth(1).unwrap().split(end).next().unwrap();
        let (alt, caption) = (between("alt=\"", "\""), between("<figcaption>", "</figcaption>"));
        assert!(
            alt.len() > 40 && !alt.contains(caption) && !caption.contains(alt),
            "{alt}: {caption}"
        );
    }
    for name in [
        "summary.json",
        "tracked.uvh5.json",
        "drifting.uvh5.json",
        "array/truth.json",
        "strain.hdf5.truth.json",
    ] {
        let written = fs::read_to_string(folder.join(name)).unwrap();
        assert!(!written.contains("unfinished"), "{name}");
    }
    assert!(!page.contains("unfinished"));
    assert!(page.contains("--templates shown/binaries.csv "), "the commands find their templates");
    let truth = self::document(&folder, "observation.fil.truth.json");
    assert_eq!(truth["file"], "shown/observation.fil");
}
