//! Simulated strain of two detectors, and runs on it that are interrupted.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use sidereal::io::npy;
use tempfile::TempDir;

use super::{document, entries, program};

/// A folder with white noise of two detectors (h1.npy, l1.npy), to which `add` adds in units of its deviation, and with a
/// table of two binaries (binaries.csv).
pub(crate) fn home(rate_hz: u32, length_s: usize, add: impl Fn(&str, &mut [f32])) -> TempDir {
    let home = tempfile::tempdir().unwrap();
    for (name, seed) in [("h1.npy", 1_u64), ("l1.npy", 2)] {
        let mut state = seed;
        let mut uniform = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 11) as f64 / (1_u64 << 53) as f64
        };
        let times = length_s * rate_hz as usize;
        let mut strain: Vec<f32> =
            (0..times).map(|_| ((0..12).map(|_| uniform()).sum::<f64>() - 6.0) as f32).collect();
        add(name, &mut strain);
        strain.iter_mut().for_each(|x| *x *= 1e-21);
        npy::write_f32(&home.path().join(name), &[times], &strain).unwrap();
    }
    fs::write(home.path().join("binaries.csv"), "mass1,mass2\n30,30\n20,10\n").unwrap();
    home
}

pub(crate) fn start(folder: &Path, words: &str) -> Child {
    let mut command = Command::new(program());
    command.args(words.split_whitespace()).current_dir(folder);
    command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

/// Sends a signal to a run at a moment, and returns its exit code; none of one that was killed.
pub(crate) fn interrupt(
    child: &mut Child,
    folder: &Path,
    is_it: impl Fn(&Path) -> bool,
    signal: Signal,
) -> Option<i32> {
    wait(child, folder, is_it);
    kill_process(Pid::from_child(child), signal).unwrap();
    child.wait().unwrap().code()
}

/// The unfinished folder of `out`.
pub(crate) fn unfinished(folder: &Path) -> Option<PathBuf> {
    let is_one = |name: &String| name.starts_with(".out") && name.contains(".unfinished");
    let name = entries(folder).into_iter().find(is_one)?;
    Some(folder.join(name))
}

/// Waits for a moment of a run, or its end.
fn wait(child: &mut Child, folder: &Path, is_it: impl Fn(&Path) -> bool) {
    let begun = Instant::now();
    // Not `try_wait`, which would free the number that a signal goes to.
    let is_alive = |child: &Child| {
        let status = format!("/proc/{}/stat", child.id());
        fs::read_to_string(status).is_ok_and(|status| !status.contains(") Z "))
    };
    while is_alive(child) {
        if unfinished(folder).is_some_and(|folder| is_it(&folder)) {
            return;
        }
        assert!(begun.elapsed() < Duration::from_secs(300), "nothing happened");
        std::thread::sleep(Duration::from_millis(2));
    }
}

pub(crate) fn has_bytes(path: &Path) -> bool {
    path.metadata().is_ok_and(|found| found.len() > 0)
}

/// All of a search that must be the same, and the names of its files.
pub(crate) fn found(folder: &Path) -> (Value, Vec<Vec<u8>>, Vec<String>) {
    let mut events = document(folder, "events.json");
    events["run"] = Value::Null;
    let files = ["events.xml", "snr.h5", "bank_H1.h5", "bank_L1.h5"];
    let bytes = files.iter().map(|name| fs::read(folder.join(name)).unwrap());
    (events, bytes.collect(), entries(folder).into_iter().collect())
}
