//! Runs the commands of the README as written, and checks the bursts, visibilities and events that they find.

use std::path::Path;
use std::process::Command;

const README: &str = include_str!("../../../README.md");

/// The lines of the walk-through that call `sidereal`, continued lines joined, comments dropped.
fn commands() -> Vec<Vec<String>> {
    let (_, rest) = README.split_once("## On the command line").expect("the heading");
    let (_, rest) = rest.split_once("```sh\n").expect("a block of commands");
    let (block, _) = rest.split_once("```").expect("its end");
    let lines = block.replace("\\\n", " ");
    let lines = lines.lines().map(|line| line.split('#').next().unwrap_or_default().trim());
    let ours = lines.filter_map(|line| line.strip_prefix("sidereal "));
    ours.map(|line| line.split_whitespace().map(str::to_owned).collect()).collect()
}

/// Words with `*` as a shell would expand them: in a file's name only.
fn expanded(words: &[String], folder: &Path) -> Vec<String> {
    let expand = |word: &String| {
        let Some((place, end)) = word.split_once("/*") else { return vec![word.clone()] };
        let files = std::fs::read_dir(folder.join(place)).expect("a folder").map(|entry| {
            let name = entry.expect("an entry").file_name();
            format!("{place}/{}", name.to_string_lossy())
        });
        let mut files: Vec<String> = files.filter(|file| file.ends_with(end)).collect();
        files.sort();
        files
    };
    words.iter().flat_map(expand).collect()
}

#[test]
fn the_walk_through_walks() {
    let folder = tempfile::tempdir().expect("a folder");
    let commands = commands();
    assert!(commands.len() >= 5, "{commands:?}");
    // A bench measures for longer than a test should.
    for arguments in commands.iter().filter(|arguments| arguments[0] != "bench") {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sidereal"));
        let arguments = expanded(arguments, folder.path());
        let done = command.args(&arguments).current_dir(folder.path()).output().expect("it starts");
        let errors = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success(), "sidereal {}\n{errors}", arguments.join(" "));
    }
    let visibilities = std::fs::read(folder.path().join("array.uvh5.json")).expect("it is there");
    let visibilities: serde_json::Value = serde_json::from_slice(&visibilities).expect("JSON");
    assert_eq!(
        (&visibilities["baselines"], &visibilities["source"]),
        (&36.into(), &"Hydra_A".into())
    );
    // A search's folder, and its burst: DM, time, and how near.
    let bursts = [("found", [350.0, 3.0], [4.2, 0.002]), ("sharp", [60.0, 0.5], [0.4, 0.0005])];
    for (search, dm, time_s) in bursts {
        let path = folder.path().join(search).join("summary.json");
        let summary = std::fs::read_to_string(path).expect("it is there");
        let summary: serde_json::Value = serde_json::from_str(&summary).expect("JSON");
        for (key, [truth, by]) in [("dm", dm), ("time_s", time_s)] {
            let found = summary["candidates"][0][key].as_f64().unwrap_or(f64::NAN);
            assert!((found - truth).abs() < by, "{search}: {key} is {found}, expected {truth}");
        }
    }
    let events = std::fs::read(folder.path().join("events/events.json")).expect("it is there");
    let events: serde_json::Value = serde_json::from_slice(&events).expect("JSON");
    let gps = events["events"][0]["gps"].as_f64().unwrap_or(f64::NAN);
    assert!((gps - 1_000_000_040.0).abs() < 0.05, "the binary is found at {gps}");
}
