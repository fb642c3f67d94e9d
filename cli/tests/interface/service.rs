//! The features that a service needs: a log, watchdog notifications, text from files without effect on terminals and
//! spreadsheets, and a choice of the vector level.
#![cfg(target_os = "linux")]

#[allow(unused)]
use std::fs;
use std::io::Write;
use std::os::unix::net::UnixDatagram;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use crate::common::{
    code, document, done, entries, fails, json, program, recording, renamed, sidereal, stderr,
};

#[test]
fn a_log_has_times_levels_and_the_end() {
    let home = recording();
    let lines = || -> Vec<String> {
        let text = fs::read_to_string(home.path().join("run.log")).unwrap();
        text.lines().map(str::to_owned).collect()
    };
    let words = "dedisperse a.fil -o out --dm-max 99999 --dm-step 5000 -q --log-file run.log";
    let quiet = sidereal(home.path(), words);
    assert_eq!((code(&quiet), stderr(&quiet)), (0, String::new()));
    let first = lines();
    for line in &first {
        let mut words = line.split_whitespace();
        let (time, level) = (words.next().unwrap(), words.next().unwrap());
        assert!(time.len() >= 20 && time.ends_with('Z') && time.contains('T'), "{line}");
        assert!(["INFO", "WARN", "ERROR"].contains(&level), "{line}");
    }
    let holds = |words: &str| lines().iter().any(|line| line.contains(words));
    assert!(first[0].contains("begins:") && first[0].contains("--dm-max 99999"), "{first:?}");
    assert!(holds("Dedispersing: 4000 of 4000"), "{first:?}");
    let is_warning =
        |line: &String| line.contains(" WARN ") && line.contains("trials were skipped");
    assert!(first.iter().any(is_warning), "{first:?}");
    assert!(first.last().unwrap().ends_with("ended with exit code 0"), "{first:?}");
    // A second run appends, and its error and exit code are there.
    fails(&sidereal(home.path(), "info missing.fil --log-file run.log"), 1, &["missing.fil"]);
    let both = lines();
    assert_eq!(both[..first.len()], first[..]);
    assert!(both.iter().any(|line| line.contains(" ERROR ") && line.contains("missing.fil")));
    assert!(both.last().unwrap().ends_with("ended with exit code 1"), "{both:?}");
    // A file that is not a log remains unchanged.
    let before = fs::read(home.path().join("a.fil")).unwrap();
    fails(&sidereal(home.path(), "info a.fil --log-file a.fil"), 2, &["a.fil", "--log-file"]);
    assert!(before == fs::read(home.path().join("a.fil")).unwrap());
}

#[test]
fn a_service_manager_is_told() {
    let home = recording();
    let socket = UnixDatagram::bind(home.path().join("socket")).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let told = || {
        let mut words = [0; 256];
        let length = socket.recv(&mut words).unwrap();
        String::from_utf8(words[..length].to_vec()).unwrap().trim().to_owned()
    };
    let mut child = Command::new(program())
        .args(["search", "-", "-o", "out", "--no-plots"])
        .current_dir(home.path())
        .env("NOTIFY_SOCKET", home.path().join("socket"))
        .env("WATCHDOG_USEC", "600000")
        .env_remove("WATCHDOG_PID")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut pipe = child.stdin.take().unwrap();
    let data = fs::read(home.path().join("a.fil")).unwrap();
    pipe.write_all(&data[..data.len() / 2]).unwrap();
    assert_eq!([told(), told()], ["READY=1", "WATCHDOG=1"]);
    // The pipe stalls, and the run goes on waiting.
    assert_eq!([told(), told()], ["WATCHDOG=1", "WATCHDOG=1"]);
    pipe.write_all(&data[data.len() / 2..]).unwrap();
    drop(pipe);
    while told() != "STOPPING=1" {}
    let output: Output = child.wait_with_output().unwrap();
    assert_eq!(code(&output), 0, "{}", stderr(&output));
}

#[test]
fn text_from_files_is_not_obeyed() {
    let home = recording();
    let source = "\u{1b}]0;title\u{7}\u{1b}[31mJ1\r2";
    renamed(home.path(), "=b\u{1b}[2J.fil", source);
    let name = "=b\u{1b}[2J.fil";
    let run = |verb: &str, more: &str| {
        let output = Command::new(program())
            .args([verb, name])
            .args(more.split_whitespace())
            .current_dir(home.path())
            .output()
            .unwrap();
        assert_eq!(code(&output), 0, "{}", stderr(&output));
        let obeyed = |bytes: &[u8]| bytes.iter().any(|byte| *byte < b' ' && *byte != b'\n');
        assert!(!obeyed(&output.stdout) && !obeyed(&output.stderr), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    assert!(run("info", "").contains("\\u{1b}[31mJ1"));
    let shown: serde_json::Value = serde_json::from_str(&run("info", "--json")).unwrap();
    assert_eq!(shown["source"], source);
    run("search", "-o found --no-plots");
    let table = fs::read_to_string(home.path().join("found/candidates.csv")).unwrap();
    assert!(table.lines().nth(1).unwrap().starts_with("./=b"), "{table}");
    run("dedisperse", "-o series --format dat --dm-max 1 --dm-step 1");
    let folder = home.path().join("series");
    let inf = entries(&folder).into_iter().find(|name| name.ends_with(".inf")).unwrap();
    let inf = fs::read_to_string(folder.join(inf)).unwrap();
    assert!(inf.contains("\\u{1b}]0;title") && !inf.contains('\u{1b}'), "{inf}");
}

#[test]
fn a_vector_level_is_chosen() {
    let home = recording();
    let level = |words: &str| json(home.path(), words)["run"]["simd"].clone();
    assert_eq!(level("search a.fil -o a --no-plots --simd portable"), "portable");
    let best = level("search a.fil -o b --no-plots");
    assert_eq!(
        level(&format!("search a.fil -o c --no-plots --simd {}", best.as_str().unwrap())),
        best
    );
    done(home.path(), "dedisperse a.fil -o d --dm-max 5 --dm-step 5 --simd portable -q");
    assert_eq!(document(&home.path().join("d"), "dedispersed.json")["run"]["simd"], "portable");
    fails(&sidereal(home.path(), "info a.fil --simd sse"), 2, &["portable, avx2, avx512"]);
    for lacking in ["avx2", "avx512"] {
        if !json(home.path(), "devices")["devices"].to_string().contains(&format!("cpu {lacking}"))
        {
            let output = sidereal(home.path(), &format!("search a.fil -o e --simd {lacking}"));
            fails(&output, 1, &[lacking, "this machine has portable"]);
        }
    }
}

#[test]
fn a_table_of_injections_without_a_binary_is_an_error() {
    let home = tempfile::tempdir().unwrap();
    fs::write(home.path().join("none.csv"), "mass1,mass2,distance,ra,dec,time\n").unwrap();
    let words = "simulate strain s.hdf5 --length 4 --injections none.csv";
    fails(&sidereal(home.path(), words), 3, &["none.csv", "found 0 binaries"]);
    fs::write(home.path().join("x.h5"), b"\x89HDF\r\n\x1a\nrubbish").unwrap();
    let told = sidereal(home.path(), "search x.h5 -o out");
    fails(&told, 3, &["x.h5: HDF5: "]);
    assert!(!stderr(&told).contains("byte 0"), "{}", stderr(&told));
}

#[test]
fn processes_of_mpirun_do_not_repeat_a_run() {
    let home = tempfile::tempdir().unwrap();
    let run = |rank: &str, ranks: &str, words: &[&str]| {
        let mut command = Command::new(program());
        command.args(words).current_dir(home.path());
        let variables = [("OMPI_COMM_WORLD_RANK", rank), ("OMPI_COMM_WORLD_SIZE", ranks)];
        command.envs(variables).output().unwrap()
    };
    fails(&run("0", "3", &["devices"]), 2, &["devices does not divide its work", "is 3"]);
    // Rank 0 alone says why.
    let other = run("1", "3", &["devices"]);
    assert_eq!((code(&other), stderr(&other)), (2, String::new()));
    assert_eq!(code(&run("0", "1", &["devices"])), 0);
    if !cfg!(feature = "mpi") {
        let words = ["correlate", "a.dada", "-o", "a.uvh5", "--antennas", "a.csv"];
        fails(&run("0", "2", &words), 2, &["built without MPI", "is 2"]);
        let other = run("1", "2", &words);
        assert_eq!((code(&other), stderr(&other)), (2, String::new()));
    }
}
