//! Outputs of the binary: one run writes one of them at a time, nothing is replaced unasked, and what killed runs
//! left is settled.
#![cfg(unix)]

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Output, Stdio};
use std::time::Duration;

use crate::common::{
    code, document, done, entries, fails, json, program, recording, sidereal, stderr,
};

/// A search that has begun its output and waits for the second half of its data.
struct Waiting {
    child: Child,
    pipe: ChildStdin,
    rest: Vec<u8>,
}

impl Waiting {
    fn new(home: &Path, words: &str) -> Self {
        let mut child = Command::new(program())
            .args(["search", "-", "--no-plots", "--dm-max", "100"])
            .args(words.split_whitespace())
            .current_dir(home)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let data = fs::read(home.join("a.fil")).unwrap();
        let (first, rest) = data.split_at(data.len() / 2);
        let mut pipe = child.stdin.take().unwrap();
        pipe.write_all(first).unwrap();
        while !entries(home).iter().any(|name| name.contains("unfinished")) {
            assert!(child.try_wait().unwrap().is_none(), "it ended too early");
            std::thread::sleep(Duration::from_millis(5));
        }
        Self { child, pipe, rest: rest.to_vec() }
    }

    /// Gives it the rest, and waits for its end.
    fn end(mut self) -> Output {
        self.pipe.write_all(&self.rest).unwrap();
        drop(self.pipe);
        self.child.wait_with_output().unwrap()
    }

    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

/// Names that are not the input's.
fn made(home: &Path) -> Vec<String> {
    entries(home).into_iter().filter(|name| !name.starts_with("a.fil")).collect()
}

#[test]
fn a_second_run_on_one_output_ends_at_its_start() {
    let home = recording();
    std::os::unix::fs::symlink(".", home.path().join("link")).unwrap();
    let first = Waiting::new(home.path(), "-o out --overwrite");
    for place in ["out", "./out", "link/out"] {
        for verb in ["search", "dedisperse"] {
            let words = format!("{verb} a.fil --dm-max 10 -o {place} --overwrite");
            fails(&sidereal(home.path(), &words), 1, &[place, "another run writes it"]);
        }
    }
    let output = first.end();
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(made(home.path()), ["link", "out"]);
    assert_eq!(
        document(home.path(), "out/summary.json")["candidates"].as_array().unwrap().len(),
        1
    );
    done(home.path(), "search a.fil --no-plots --dm-max 100 -o out --overwrite");
}

#[test]
fn a_file_and_its_document_are_of_one_run() {
    let home = tempfile::tempdir().unwrap();
    let words = "simulate voltages v.raw -q --freq 1400 --bandwidth 4 --duration 0.2";
    done(home.path(), words);
    for _ in 0..3 {
        let run = |words: &str| {
            Command::new(program())
                .args(["channelize", "v.raw", "-o", "o.fil", "--overwrite", "-q"])
                .args(words.split_whitespace())
                .current_dir(home.path())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap()
        };
        let (one, other) = (run("--channels 16"), run("--channels 64 --taps 16 --stokes IQUV"));
        let ended = [one, other].map(|child| child.wait_with_output().unwrap());
        assert!(ended.iter().any(|output| output.status.success()));
        let lost = ended.iter().filter(|output| !output.status.success());
        lost.for_each(|output| fails(output, 1, &["o.fil", "another run writes it"]));
        let (told, found) = (document(home.path(), "o.fil.json"), json(home.path(), "info o.fil"));
        assert_eq!((&told["channels"], &told["times"]), (&found["channels"], &found["times"]));
        let expected = ["o.fil", "o.fil.gaps.json", "o.fil.json", "v.raw", "v.raw.truth.json"];
        assert_eq!(entries(home.path()), expected.map(str::to_owned).into());
    }
}

#[test]
fn what_appears_during_a_run_is_not_replaced() {
    let home = recording();
    let run = Waiting::new(home.path(), "-o out");
    fs::create_dir(home.path().join("out")).unwrap();
    fs::write(home.path().join("out/thesis.tex"), "precious").unwrap();
    let output = run.end();
    assert_eq!(code(&output), 1, "{}", stderr(&output));
    let told = stderr(&output);
    assert!(told.contains("out: it appeared") && told.contains("result is in out.1"), "{told}");
    assert_eq!(entries(&home.path().join("out")), ["thesis.tex".to_owned()].into());
    assert!(document(home.path(), "out.1/summary.json")["candidates"].is_array());
    assert_eq!(made(home.path()), ["out", "out.1"]);
}

#[test]
fn a_table_of_a_bench_does_not_replace_what_appeared() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path();
    let words = "bench channelize --working-set 16 --seconds 0 --table taps -q --csv t.csv";
    let mut child = Command::new(program())
        .args(words.split_whitespace())
        .current_dir(folder)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    while entries(folder).is_empty() {
        assert!(child.try_wait().unwrap().is_none(), "it ended too early");
        std::thread::sleep(Duration::from_millis(1));
    }
    // The run looks for an existing file directly after it has made its hidden folder.
    std::thread::sleep(Duration::from_millis(30));
    fs::write(folder.join("t.csv"), "precious").unwrap();
    let output = child.wait_with_output().unwrap();
    fails(&output, 1, &["t.csv: a file of this name appeared", "the result is in t.csv.1"]);
    assert_eq!(fs::read_to_string(folder.join("t.csv")).unwrap(), "precious");
    let table = fs::read_to_string(folder.join("t.csv.1/t.csv")).unwrap();
    assert!(table.starts_with("bench,case") && table.lines().count() > 2, "{table}");
    fails(&sidereal(folder, words), 2, &["t.csv", "it exists"]);
    done(folder, &format!("{words} --overwrite"));
    assert!(fs::read_to_string(folder.join("t.csv")).unwrap().starts_with("bench,case"));
    // The document beside the table tells how it was made.
    assert_eq!(document(folder, "t.csv.json")["provenance"]["verb"], "bench channelize");
    assert_eq!(entries(folder).len(), 3);
}

#[test]
fn what_a_killed_run_leaves_is_no_obstacle() {
    let home = recording();
    Waiting::new(home.path(), "-o out").kill();
    assert!(made(home.path()).iter().any(|name| name.starts_with(".out.unfinished-")));
    // Earlier versions left folders with a process number, which the next run may have too, as in a container.
    fs::create_dir(home.path().join(".out.unfinished-7")).unwrap();
    fs::create_dir(home.path().join(".out.former")).unwrap();
    fs::write(home.path().join(".out.former/candidates.cand"), "").unwrap();
    let search = "search a.fil --no-plots --dm-max 100 -o out";
    let refused = sidereal(home.path(), search);
    // The folder that an earlier run put aside stands again, and is not replaced unasked.
    fails(&refused, 2, &["put back", "it exists"]);
    assert!(stderr(&refused).matches("which a killed run left").count() == 2);
    assert_eq!(made(home.path()), ["out"]);
    fs::create_dir(home.path().join(".out.former")).unwrap();
    done(home.path(), &format!("{search} --overwrite"));
    assert_eq!(made(home.path()), ["out"]);
    assert!(document(home.path(), "out/summary.json")["candidates"].is_array());
}

#[test]
fn a_set_that_a_killed_run_had_finished_gets_its_names() {
    let home = recording();
    // As after a kill between the two renames.
    let hidden = home.path().join(".b.fil.unfinished-Ab12xy");
    done(home.path(), "simulate burst b.fil -q --telescope askap --duration 0.1");
    fs::create_dir(&hidden).unwrap();
    fs::write(hidden.join(".whole-new"), "").unwrap();
    fs::rename(home.path().join("b.fil"), hidden.join("b.fil")).unwrap();
    let again = sidereal(home.path(), "simulate burst b.fil --telescope askap --duration 0.2");
    fails(&again, 2, &["had finished its files", "b.fil", "it exists"]);
    assert_eq!(made(home.path()), ["b.fil", "b.fil.truth.json"]);
}

#[test]
fn side_files_have_their_products_whole_name_and_long_names_work() {
    let home = tempfile::tempdir().unwrap();
    let voltages = "--freq 1400 --bandwidth 1 --duration 0.01 -q";
    done(home.path(), &format!("simulate voltages v.raw {voltages}"));
    done(home.path(), &format!("simulate voltages v.dada {voltages}"));
    let expected = ["v.dada", "v.dada.truth.json", "v.raw", "v.raw.truth.json"];
    assert_eq!(entries(home.path()), expected.map(str::to_owned).into());
    let name = "n".repeat(251) + ".fil";
    let words = format!("simulate burst {name} --telescope askap --duration 0.5");
    done(home.path(), &words);
    fails(&sidereal(home.path(), &words), 2, &["it exists"]);
    done(home.path(), &format!("{words} --overwrite"));
    assert_eq!(entries(home.path()).len(), 6);
    let found = "f".repeat(255);
    for _ in 0..2 {
        done(home.path(), &format!("search {name} -o {found} --no-plots --dm-max 5 --overwrite"));
    }
    assert!(home.path().join(found).join("summary.json").is_file());
}
