use std::fs;
use std::path::{Path, PathBuf};

use clap::Parser;

use super::*;

/// Options of every verb.
#[derive(Parser)]
struct Options {
    #[command(flatten)]
    common: Common,
}

fn common() -> Common {
    Options::try_parse_from(["test", "-q", "--no-sync"]).unwrap().common
}

/// Product with an x or a y, and a document.
const CONTENTS: Contents = Contents {
    verb: "test",
    documents: &["summary.json"],
    writes: |_, name| matches!(name, "x" | "y"),
};

fn begin(place: &Path, existing: Existing, inputs: &[PathBuf]) -> Result<Folder> {
    Folder::begin(place, &Writing { contents: CONTENTS, existing, inputs, common: &common() })
}

fn resume(place: &Path) -> Result<Option<Folder>> {
    let writing =
        Writing { contents: CONTENTS, existing: Existing::Refuse, inputs: &[], common: &common() };
    Folder::resume(place, &writing)
}

fn begin_files(place: &Path, existing: Existing) -> Result<Files> {
    let writing = WritingFiles { option: "OUT", existing, inputs: &[], common: &common() };
    Files::begin(place, &[".json"], &writing)
}

fn entries(folder: &Path) -> Vec<String> {
    let name = |e: std::io::Result<fs::DirEntry>| e.unwrap().file_name().into_string().unwrap();
    let mut names: Vec<String> = fs::read_dir(folder).unwrap().map(name).collect();
    names.sort();
    names
}

fn read(path: PathBuf) -> String {
    fs::read_to_string(path).unwrap()
}

/// Makes a finished product with the given text in x.
fn product(place: &Path, text: &str) {
    let folder = begin(place, Existing::Replace, &[]).unwrap();
    fs::write(folder.file("x"), text).unwrap();
    fs::write(folder.file("summary.json"), "{}").unwrap();
    folder.finish().unwrap();
}

#[test]
fn a_folder_stands_when_finished_and_vanishes_when_dropped() {
    let home = tempfile::tempdir().unwrap();
    let place = home.path().join("a/b/out");
    let folder = begin(&place, Existing::Refuse, &[]).unwrap();
    fs::write(folder.file("x"), "1").unwrap();
    drop(folder);
    assert!(entries(home.path()).is_empty());
    let folder = begin(&place, Existing::Refuse, &[]).unwrap();
    fs::write(folder.file("x"), "1").unwrap();
    assert!(!place.exists());
    folder.finish().unwrap();
    assert_eq!(entries(&place), ["x"]);
    assert_eq!(entries(place.parent().unwrap()), ["out"]);
}

#[test]
fn an_existing_folder_is_replaced_only_when_asked_and_only_at_the_end() {
    let home = tempfile::tempdir().unwrap();
    let place = home.path().join("out");
    product(&place, "old");
    assert!(begin(&place, Existing::Refuse, &[]).is_err());
    let folder = begin(&place, Existing::Replace, &[]).unwrap();
    fs::write(folder.file("y"), "1").unwrap();
    assert_eq!(entries(&place), ["summary.json", "x"]);
    folder.finish().unwrap();
    assert_eq!(entries(&place), ["y"]);
    assert_eq!(entries(home.path()), ["out"]);
}

#[test]
fn what_appears_during_the_run_is_not_replaced() {
    let home = tempfile::tempdir().unwrap();
    let place = home.path().join("out");
    // A folder of another origin, also with permission to replace.
    for (existing, number) in [(Existing::Refuse, "out.1"), (Existing::Replace, "out.2")] {
        let folder = begin(&place, existing, &[]).unwrap();
        fs::write(folder.file("x"), "result").unwrap();
        fs::create_dir(&place).unwrap();
        fs::write(place.join("thesis"), "theirs").unwrap();
        let error = folder.finish().unwrap_err().to_string();
        assert!(error.contains(number), "{error}");
        assert_eq!(read(place.join("thesis")), "theirs");
        assert_eq!(read(home.path().join(number).join("x")), "result");
        fs::remove_dir_all(&place).unwrap();
    }
    // One file of a set.
    let files = begin_files(&home.path().join("o"), Existing::Refuse).unwrap();
    fs::write(files.main(), "result").unwrap();
    fs::write(files.beside(".json"), "{}").unwrap();
    fs::write(home.path().join("o"), "theirs").unwrap();
    let error = files.finish().unwrap_err().to_string();
    assert!(error.contains("o.1"), "{error}");
    assert_eq!(read(home.path().join("o")), "theirs");
    assert_eq!(read(home.path().join("o.1/o")), "result");
    assert_eq!(entries(home.path()), ["o", "o.1", "out.1", "out.2"]);
}

#[test]
fn one_run_writes_an_output_at_a_time() {
    let home = tempfile::tempdir().unwrap();
    let (place, again) = (home.path().join("out"), home.path().join("./out"));
    let folder = begin(&place, Existing::Replace, &[]).unwrap();
    let busy = begin(&again, Existing::Replace, &[]).unwrap_err().to_string();
    assert!(busy.contains("another run writes it"), "{busy}");
    drop(folder);
    assert!(begin(&again, Existing::Replace, &[]).is_ok());
}

#[test]
fn leftovers_without_final_results_are_swept() {
    let home = tempfile::tempdir().unwrap();
    let at = |name: &str| home.path().join(name);
    // An older version's names contain a process number, which may be that of this process.
    let number = std::process::id();
    fs::create_dir(at(&format!(".out.unfinished-{number}"))).unwrap();
    fs::create_dir(at(".out.unfinished-Ab12xy")).unwrap();
    fs::write(at(".out.unfinished-Ab12xy/x"), "half").unwrap();
    fs::write(at(".out.part"), "half").unwrap();
    // Leftovers of another output stay.
    fs::create_dir(at(".out2.unfinished-Ab12xy")).unwrap();
    product(&at("out"), "1");
    assert_eq!(entries(home.path()), [".out2.unfinished-Ab12xy", "out"]);
    // A replaced but not removed output does not matter either.
    for former in [".out.former", ".out.former-Ab12xy"] {
        fs::create_dir(at(former)).unwrap();
        fs::write(at(former).join("x"), "0").unwrap();
        fs::write(at(former).join("summary.json"), "{}").unwrap();
    }
    product(&at("out"), "2");
    assert_eq!(entries(home.path()), [".out2.unfinished-Ab12xy", "out"]);
    assert_eq!(read(at("out/x")), "2");
}

#[test]
fn what_was_put_aside_is_put_back_and_foreign_files_stay() {
    let home = tempfile::tempdir().unwrap();
    let at = |name: &str| home.path().join(name);
    product(&at("out"), "1");
    fs::rename(at("out"), at(".out.former-Ab12xy")).unwrap();
    assert!(begin(&at("out"), Existing::Refuse, &[]).is_err(), "it is there again");
    assert_eq!(read(at("out/x")), "1");
    fs::create_dir(at(".out.former-Ab12xy")).unwrap();
    fs::write(at(".out.former-Ab12xy/thesis"), "theirs").unwrap();
    product(&at("out"), "2");
    assert_eq!(read(at("out.1/thesis")), "theirs");
    assert_eq!(entries(home.path()), ["out", "out.1"]);
}

#[test]
fn a_file_put_into_the_folder_while_it_is_replaced_stays() {
    let home = tempfile::tempdir().unwrap();
    let place = home.path().join("out");
    product(&place, "1");
    let folder = begin(&place, Existing::Replace, &[]).unwrap();
    fs::write(folder.file("x"), "2").unwrap();
    fs::write(place.join("thesis"), "theirs").unwrap();
    let error = folder.finish().unwrap_err().to_string();
    assert!(error.contains("thesis") && error.contains("out.1"), "{error}");
    assert_eq!(read(place.join("thesis")), "theirs");
    assert_eq!(read(home.path().join("out.1/x")), "2");
}

#[test]
fn a_journal_is_kept_and_continued() {
    let home = tempfile::tempdir().unwrap();
    let place = home.path().join("out");
    assert!(resume(&place).unwrap().is_none());
    let folder = begin(&place, Existing::Refuse, &[]).unwrap();
    fs::write(folder.file(JOURNAL), "first\n").unwrap();
    drop(folder);
    // Neither the next run nor its success removes it.
    product(&place, "other");
    assert_eq!(entries(home.path()).len(), 2);
    fs::remove_dir_all(&place).unwrap();
    let folder = resume(&place).unwrap().unwrap();
    assert_eq!(read(folder.file(JOURNAL)), "first\n");
    fs::write(folder.file("summary.json"), "{\"complete\": false}").unwrap();
    folder.finish().unwrap();
    assert_eq!(entries(home.path()), ["out"]);
    // An incomplete product is resumed in its folder; a run that fails renames it back.
    let folder = resume(&place).unwrap().unwrap();
    assert!(!place.exists());
    drop(folder);
    assert_eq!(entries(&place), ["journal", "summary.json"]);
    let folder = resume(&place).unwrap().unwrap();
    fs::remove_file(folder.file(JOURNAL)).unwrap();
    fs::write(folder.file("summary.json"), "{\"complete\": true}").unwrap();
    folder.finish().unwrap();
    assert_eq!(entries(home.path()), ["out"]);
    let error = resume(&place).unwrap_err().to_string();
    assert!(error.contains("there is nothing to continue"), "{error}");
}

#[test]
fn a_run_killed_while_it_continued_a_product_is_found_again() {
    let home = tempfile::tempdir().unwrap();
    let at = |name: &str| home.path().join(name);
    // State between the rename to the hidden name and the rename back.
    fs::create_dir(at(".out.unfinished-Ab12xy")).unwrap();
    fs::write(at(".out.unfinished-Ab12xy/journal"), "first\n").unwrap();
    fs::write(at(".out.unfinished-Ab12xy/summary.json"), "{\"complete\": false}").unwrap();
    fs::create_dir(at(".out.unfinished-000000")).unwrap();
    fs::write(at(".out.unfinished-Ab12xy/.x.Ab12xy.part"), "half").unwrap();
    resume(&at("out")).unwrap().unwrap().finish().unwrap();
    assert_eq!(entries(home.path()), ["out"]);
    assert_eq!(entries(&at("out")), ["journal", "summary.json"]);
}

#[test]
fn files_appear_together_and_a_killed_run_is_completed() {
    let home = tempfile::tempdir().unwrap();
    let place = home.path().join("o.fil");
    for existing in [Existing::Refuse, Existing::Replace] {
        let files = begin_files(&place, existing).unwrap();
        fs::write(files.main(), "rows").unwrap();
        fs::write(files.beside(".json"), "{}").unwrap();
        files.finish().unwrap();
        assert_eq!(entries(home.path()), ["o.fil", "o.fil.json"]);
    }
    // Killed between the two renames: the document has its final name, the file itself does not.
    let hidden = home.path().join(".o.fil.unfinished-Ab12xy");
    for mark in [".whole-new", ".whole-replace"] {
        fs::create_dir(&hidden).unwrap();
        fs::write(hidden.join(mark), "").unwrap();
        fs::rename(&place, hidden.join("o.fil")).unwrap();
        assert!(begin_files(&place, Existing::Refuse).is_err(), "it is there now");
        assert_eq!(entries(home.path()), ["o.fil", "o.fil.json"]);
    }
    // The final name was taken meanwhile.
    fs::create_dir(&hidden).unwrap();
    fs::write(hidden.join(".whole-new"), "").unwrap();
    fs::write(hidden.join("o.fil"), "other").unwrap();
    assert!(begin_files(&place, Existing::Refuse).is_err());
    assert_eq!(read(place), "rows");
    assert_eq!(read(home.path().join("o.fil.1/o.fil")), "other");
    assert_eq!(entries(&home.path().join("o.fil.1")), ["o.fil"]);
}

#[cfg(unix)]
#[test]
fn files_are_flushed_before_they_get_their_names() {
    let home = tempfile::tempdir().unwrap();
    for (words, flushed) in [("-q", true), ("--no-sync", false)] {
        let common = Options::try_parse_from(["test", words]).unwrap().common;
        let writing = Writing {
            contents: CONTENTS,
            existing: Existing::Refuse,
            inputs: &[],
            common: &common,
        };
        let folder = Folder::begin(&home.path().join("out"), &writing).unwrap();
        // A file that cannot be opened cannot be flushed.
        std::os::unix::fs::symlink("nowhere", folder.file("x")).unwrap();
        assert_eq!(folder.finish().is_err(), flushed);
        assert_eq!(home.path().join("out").exists(), !flushed);
    }
}

#[test]
fn names_of_255_bytes_work() {
    let home = tempfile::tempdir().unwrap();
    let name = "x".repeat(255);
    let files = begin_files(&home.path().join(&name), Existing::Refuse).unwrap();
    let beside = files.place_beside(".json");
    fs::write(files.main(), "rows").unwrap();
    fs::write(files.beside(".json"), "{}").unwrap();
    files.finish().unwrap();
    assert!(home.path().join(&name).is_file() && beside.is_file());
    let folder = "y".repeat(255);
    product(&home.path().join(&folder), "1");
    product(&home.path().join(&folder), "2");
    assert_eq!(entries(home.path()).len(), 3);
}

#[test]
fn messages_name_the_file_that_would_have_been() {
    let home = tempfile::tempdir().unwrap();
    let place = home.path().join("out");
    let folder = begin(&place, Existing::Refuse, &[]).unwrap();
    let files = begin_files(&home.path().join("o.fil"), Existing::Refuse).unwrap();
    let message =
        format!("{}: full, {} too", folder.file("x.npy").display(), files.main().display());
    let expected = format!("{0}/out/x.npy: full, {0}/o.fil too", home.path().display());
    assert_eq!(with_final_names(&message), expected);
    assert_eq!(with_final_names("plain"), "plain");
}

#[test]
fn what_must_not_be_lost_is_not_replaced() {
    let home = tempfile::tempdir().unwrap();
    let input = home.path().join("data.fil");
    fs::write(&input, "1").unwrap();
    let replace =
        |place: &Path, inputs: &[PathBuf]| begin(place, Existing::Replace, inputs).is_err();
    assert!(replace(home.path(), std::slice::from_ref(&input)));
    assert!(replace(&home.path().join("."), &[home.path().join("series")]));
    assert!(replace(&input, &[]));
    assert!(replace(Path::new("/"), &[]));
    assert!(replace(&std::env::current_dir().unwrap(), &[]));
    assert!(begin(&input.join("out"), Existing::Refuse, &[]).is_err());
    let theirs = home.path().join("theirs");
    fs::create_dir(&theirs).unwrap();
    fs::write(theirs.join("thesis"), "1").unwrap();
    assert!(replace(&theirs, &[]));
    assert_eq!(entries(home.path()), ["data.fil", "theirs"]);
    let other = home.path().join("./data.fil");
    let read = |path: &Path| check_not_read("-o", [path], std::slice::from_ref(&other));
    assert!(read(&input).is_err() && read(&home.path().join("new.fil")).is_ok());
}
