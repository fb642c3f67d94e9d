//! `channelize` and `correlate` that end before their time: what was made before has its name, and says so.
#![cfg(unix)]

use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use crate::common::array::{array, files};
use crate::common::voltages::recording;
use crate::common::{code, document, entries, json, on_full_disk, program, sidereal, stderr};

/// Starts a verb.
fn start(folder: &Path, words: &str) -> Child {
    let mut command = Command::new(program());
    command.args(words.split_whitespace()).current_dir(folder);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Bytes of the unfinished file of an output, once its hidden folder says that it is to be kept.
fn unfinished_bytes(folder: &Path) -> u64 {
    let hidden = entries(folder).into_iter().filter(|name| name.contains(".unfinished-"));
    let kept = hidden.map(|name| folder.join(name)).filter(|path| path.join("journal").exists());
    let files = kept.flat_map(|path| std::fs::read_dir(path).into_iter().flatten().flatten());
    files.filter_map(|file| Some(file.metadata().ok()?.len())).max().unwrap_or(0)
}

/// Sends a signal once `bytes` bytes are written, and waits for the end.
fn signal(mut child: Child, name: &str, folder: &Path, bytes: u64) -> Output {
    while unfinished_bytes(folder) < bytes {
        assert!(child.try_wait().unwrap().is_none(), "it ended too early");
        std::thread::sleep(Duration::from_millis(5));
    }
    let killed = Command::new("kill").args([name, &child.id().to_string()]).status();
    assert!(killed.unwrap().success());
    child.wait_with_output().unwrap()
}

/// Checks what a run tells that was stopped, and what is left.
fn check_stopped(folder: &Path, output: &Output, out: &str) -> serde_json::Value {
    assert_eq!(code(output), 130, "{}", stderr(output));
    assert!(stderr(output).contains("not complete"), "{}", stderr(output));
    let told = document(folder, &format!("{out}.json"));
    assert_eq!((&told["complete"], &told["reason"]), (&false.into(), &"stopped on request".into()));
    assert!(entries(folder).iter().all(|name| !name.starts_with('.')), "{:?}", entries(folder));
    told
}

/// A channelization by the slow equations, so that there is time to stop it.
const SLOW: &str = "channelize v.raw --device reference --channels 512";

#[test]
fn a_stopped_channelization_keeps_its_rows() {
    let home = recording("v.raw", "");
    let folder = home.path();
    for (out, stop) in [("a.fil", "-INT"), ("b.dada", "-TERM")] {
        let child = start(folder, &format!("{SLOW} -o {out}"));
        let output = signal(child, stop, folder, 1 << 17);
        let told = check_stopped(folder, &output, out);
        let found = json(folder, &format!("info {out}"));
        assert_eq!(found["times"], told["times"], "{out}");
        assert!(told["times"].as_u64().unwrap() > 0);
    }
}

#[test]
fn what_a_killed_run_had_written_is_published_by_the_next() {
    let voltages = recording("v.raw", "");
    let antennas = array("");
    for (home, words, out, count) in [
        (&voltages, SLOW.to_owned(), "a.fil", "times"),
        (&voltages, SLOW.to_owned(), "b.dada", "times"),
        (&antennas, format!("{} --no-plots", correlation()), "c.uvh5", "integrations"),
    ] {
        let folder = home.path();
        let bytes = if out == "c.uvh5" { 1 << 20 } else { 1 << 17 };
        let output = signal(start(folder, &format!("{words} -o {out}")), "-KILL", folder, bytes);
        assert!(output.status.code().is_none());
        // The next run does not need the name of what is left.
        let again = words.replace(" --device reference", "");
        let again = sidereal(folder, &format!("{again} -o {out}"));
        assert_eq!(code(&again), 0, "{}", stderr(&again));
        let part = format!("{out}.1");
        assert!(stderr(&again).contains(&part), "{part} is not in {}", stderr(&again));
        assert!(entries(folder).iter().all(|name| !name.starts_with('.')), "{:?}", entries(folder));
        let told = document(folder, &format!("{part}.json"));
        assert_eq!((&told["complete"], &told["file"]), (&false.into(), &part.as_str().into()));
        assert!(told["reason"].as_str().unwrap().contains("killed"));
        let number = |file: &str| json(folder, &format!("info {file}"))[count].as_u64().unwrap();
        assert!((1..number(out)).contains(&number(&part)), "{part}: {}", number(&part));
    }
}

/// A product has begun to grow.
const BEGUN: &str = "find disk -type f -size +100k | grep -q .";

/// Checks what a run tells that filled its disk, and returns its document.
fn check_full(folder: &Path, output: &Output, out: &str) -> serde_json::Value {
    assert_eq!(code(output), 4, "{}", stderr(output));
    assert!(stderr(output).contains("not complete"), "{}", stderr(output));
    let told = document(folder, &format!("{out}.json"));
    assert_eq!(told["complete"], false);
    let reason = told["reason"].as_str().unwrap();
    assert!(reason.contains(out) && reason.contains("space"), "{reason}");
    assert!(!reason.contains("unfinished"), "{reason}");
    told
}

#[test]
fn a_full_disk_keeps_whole_rows() {
    let home = recording("v.raw", "");
    for out in ["a.fil", "b.dada"] {
        let words = format!("{SLOW} -o disk/{out} --no-sync");
        let Some(output) = on_full_disk(home.path(), &words, BEGUN) else { return };
        let folder = home.path().join("copy");
        let told = check_full(&folder, &output, out);
        assert_eq!(json(&folder, &format!("info {out}"))["times"], told["times"]);
        assert!(told["times"].as_u64().unwrap() > 0);
    }
}

#[test]
fn a_full_disk_keeps_whole_integrations() {
    let home = array("");
    let words = format!("{} -o disk/a.uvh5 --no-sync", correlation());
    let Some(output) = on_full_disk(home.path(), &words, BEGUN) else { return };
    let folder = home.path().join("copy");
    let told = check_full(&folder, &output, "a.uvh5");
    assert!((1..25).contains(&told["integrations"].as_u64().unwrap()), "{told}");
    assert_eq!(json(&folder, "info a.uvh5")["integrations"], told["integrations"]);
}

/// A correlation by the slow equations.
fn correlation() -> String {
    let all = ["ant00", "ant01", "ant02", "ant03"];
    format!(
        "correlate {} --antennas array/antennas.csv --channels 256 --integration 0.01 --device reference",
        files(&all)
    )
}

#[test]
fn a_stopped_correlation_keeps_its_integrations_and_pictures() {
    let home = array("");
    let folder = home.path();
    let words = format!("{} -o a.uvh5 --plots pictures", correlation());
    // The first integration's flags lie at the file's end.
    let output = signal(start(folder, &words), "-INT", folder, 1 << 20);
    let told = check_stopped(folder, &output, "a.uvh5");
    let found = json(folder, "info a.uvh5");
    assert_eq!(found["integrations"], told["integrations"]);
    assert!((1..25).contains(&told["integrations"].as_u64().unwrap()), "{told}");
    assert!(!entries(&folder.join("pictures")).is_empty());
}
