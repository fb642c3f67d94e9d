//! Helpers shared by the tests of the binary.
// Each test binary that takes this file in uses a part of it.
#![allow(dead_code)]

pub(crate) mod array;
#[path = "../../../tests/common/skip.rs"]
pub(crate) mod skip;
pub(crate) mod strain;
pub(crate) mod voltages;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;

/// The binary: `$SIDEREAL_PROGRAM` where tests were built on another machine, else the one built with them.
pub(crate) fn program() -> PathBuf {
    let built = || PathBuf::from(env!("CARGO_BIN_EXE_sidereal"));
    std::env::var_os("SIDEREAL_PROGRAM").map_or_else(built, PathBuf::from)
}

pub(crate) fn sidereal(folder: &Path, words: &str) -> Output {
    Command::new(program()).args(words.split_whitespace()).current_dir(folder).output().unwrap()
}

pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

pub(crate) fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

pub(crate) fn code(output: &Output) -> i32 {
    output.status.code().unwrap()
}

/// A folder with 4 s of 64 channels in it (a.fil), and one burst at DM 60 and 1.5 s.
pub(crate) fn recording() -> TempDir {
    let home = tempfile::tempdir().unwrap();
    let words = "simulate burst a.fil -q --fch1 1500 --foff -4 --channels 64 --tsamp 1e-3 --duration 4 \
                 --seed 3 --burst dm=60,time=1.5,width=0.004,snr=25";
    done(home.path(), words);
    home
}

/// A filterbank like a.fil, whose source has another name.
pub(crate) fn renamed(home: &Path, name: &str, source: &str) {
    let whole = fs::read(home.join("a.fil")).unwrap();
    let at = whole.windows(11).position(|word| word == b"source_name").unwrap() + 11;
    let length = u32::from_le_bytes(whole[at..at + 4].try_into().unwrap()) as usize;
    let mut bytes = whole[..at].to_vec();
    bytes.extend((source.len() as u32).to_le_bytes());
    bytes.extend(source.bytes());
    bytes.extend(&whole[at + 4 + length..]);
    fs::write(home.join(name), bytes).unwrap();
}

pub(crate) fn keys(value: &Value) -> BTreeSet<&str> {
    value.as_object().unwrap().keys().map(String::as_str).collect()
}

/// Runs a verb that must succeed, and returns what it prints.
pub(crate) fn done(folder: &Path, words: &str) -> String {
    let output = sidereal(folder, words);
    assert!(output.status.success(), "{words}\n{}", stderr(&output));
    String::from_utf8(output.stdout).unwrap()
}

/// The document that a verb prints with --json.
pub(crate) fn json(folder: &Path, words: &str) -> Value {
    serde_json::from_str(&done(folder, &format!("{words} --json"))).unwrap()
}

/// A document that stands in a file.
pub(crate) fn document(folder: &Path, name: &str) -> Value {
    serde_json::from_slice(&fs::read(folder.join(name)).unwrap()).unwrap()
}

pub(crate) fn entries(folder: &Path) -> BTreeSet<String> {
    let name = |e: std::io::Result<fs::DirEntry>| e.unwrap().file_name().into_string().unwrap();
    fs::read_dir(folder).unwrap().map(name).collect()
}

/// Checks that a call failed with a code and one error without a panic, which says `words`.
pub(crate) fn fails(output: &Output, expected: i32, words: &[&str]) {
    let told = stderr(output);
    assert_eq!(output.status.code(), Some(expected), "{told}");
    assert!(output.stdout.is_empty(), "{}", String::from_utf8_lossy(&output.stdout));
    assert!(!told.contains("panicked") && !told.contains("internal fault"), "{told}");
    assert!(told.starts_with("sidereal: ") || told.starts_with("error: "), "{told}");
    for word in words {
        assert!(told.contains(word), "{word} is not in: {told}");
    }
}

/// The folder of real recordings of voltages; a missing one is reported, and is a failure where
/// `SIDEREAL_REQUIRE` names `data`.
pub(crate) fn recordings() -> Option<PathBuf> {
    let default = || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../shared/data");
    let folder = std::env::var_os("SIDEREAL_DATA").map_or_else(default, PathBuf::from);
    if folder.join("baseband").is_dir() {
        return Some(folder.join("baseband"));
    }
    skip::skip("data", &format!("no recordings in {}", folder.display()));
    None
}

/// Returns the GPU's name; without one skips the test, which fails where `SIDEREAL_REQUIRE` names `cuda`.
pub(crate) fn gpu(folder: &Path) -> Option<String> {
    let devices = json(folder, "devices");
    let found = devices["devices"].as_array().unwrap().iter().find(|one| one["kind"] == "cuda");
    let name = found.map(|one| one["name"].as_str().unwrap().to_owned());
    if name.is_none() {
        skip::skip("cuda", "no GPU");
    }
    name
}

/// Returns whether the GPU is the emulated one, whose memory and faults can be chosen; otherwise skips the test.
pub(crate) fn has_emulated_gpu(folder: &Path) -> bool {
    let is_emulated = gpu(folder).is_some_and(|name| name.contains("Emulated"));
    if !is_emulated {
        eprintln!("skipped: no emulated GPU, whose surroundings can be chosen");
    }
    is_emulated
}

/// Checks that a call lost its GPU, and that what it had made before, if it came so far, is kept in `out`, whose
/// document says that it is not complete.
pub(crate) fn lost(folder: &Path, output: &Output, name: &str, words: &[&str]) {
    let told = stderr(output);
    assert_eq!(output.status.code(), Some(5), "{told}");
    assert!(!told.contains("panicked") && !told.contains("internal fault"), "{told}");
    for word in words {
        assert!(told.contains(word), "{word} is not in: {told}");
    }
    let out = folder.join("out");
    if out.exists() {
        let document = document(&out, name);
        assert_eq!(document["complete"], false);
        assert!(document["reason"].as_str().unwrap().contains("719"), "{document}");
    }
}

/// Runs a verb in `folder` while its `disk/` is a small disk, which another program fills once the shell command `begun`
/// succeeds; afterwards `copy/` holds the contents of the disk. Prints a note and returns `None` where no disk may be
/// mounted.
pub(crate) fn on_full_disk(folder: &Path, words: &str, begun: &str) -> Option<Output> {
    fs::create_dir_all(folder.join("disk")).unwrap();
    let script = format!(
        "mount -t tmpfs -o size=48m tmpfs disk || exit 99
        {} {words} & run=$!
        until {begun} || ! kill -0 $run; do sleep 0.01; done
        dd if=/dev/zero of=disk/other bs=64k 2>/dev/null
        wait $run; end=$?
        rm -rf disk/other copy
        cp -a disk copy
        exit $end",
        program().display(),
    );
    let words = ["--user", "--map-root-user", "--mount", "sh", "-c", &script];
    let output = Command::new("unshare").args(words).current_dir(folder).output().ok();
    if !folder.join("copy").exists() {
        eprintln!("skipped: no disk can be mounted here: {:?}", output.as_ref().map(stderr));
        return None;
    }
    output
}
