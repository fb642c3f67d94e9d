//! The house rules that a machine can check: who may name whom, and what no file may hold.

#[path = "common/source.rs"]
mod source;

use std::path::{Path, PathBuf};

use source::{Reference, Token, references, tokens};

/// A file's longest length in lines.
const LONGEST: usize = 1000;

/// Files that may be longer, each with its reason.
const LONG_FILES: &[(&str, &str)] = &[];

const GROUND: &[&str] = &["error", "view", "sample", "voltage", "state", "strain", "units", "math"];
const STAGES: &[&str] =
    &["channelize", "delay", "correlate", "clean", "dedisperse", "single_pulse", "spiir"];
const VARIANTS: &[&str] = &["reference", "cpu", "cuda"];
/// Parts of a stage that are built as a stage is: with a reference and variants of their own.
const PARTS: &[[&str; 2]] = &[["correlate", "corner_turn"], ["spiir", "trigger"]];
/// What the crate's root re-exports from the ground floor.
const ROOT: &[&str] = &["Error", "Result"];

/// May a file of module `from` name `to`? The reason why not, otherwise.
fn forbidden(from: &[&str], to: &[&str]) -> Option<String> {
    let (Some(&room), Some(&other)) = (from.first(), to.first()) else { return None };
    let in_room = GROUND.contains(&other) || ROOT.contains(&other);
    let allowed: bool = match room {
        "error" => other == "error",
        _ if room == other => return within_stage(from, to),
        _ if GROUND.contains(&room) => in_room,
        "backend" | "io" | "stream" | "geometry" | "waveform" => in_room,
        "simulate" => {
            in_room || { matches!(other, "backend" | "io" | "stream" | "geometry" | "waveform") }
        }
        "pipeline" => true,
        _ if STAGES.contains(&room) => {
            return within_stage(from, to).or_else(|| {
                (!in_room && other != "backend").then(|| format!("{room} may not name {other}"))
            });
        }
        _ => return Some(format!("{room} has no place in the house: give it one in this test")),
    };
    (!allowed).then(|| format!("{room} may not name {other}"))
}

/// The arrows between the files of one stage.
fn within_stage(from: &[&str], to: &[&str]) -> Option<String> {
    let is_within = |part: &&[&str; 2]| from.starts_with(*part) && to.starts_with(*part);
    let depth = usize::from(PARTS.iter().any(|part| is_within(&part)));
    let (from, to) = (&from[depth..], &to[depth..]);
    let (stage, file) = (from[0], from.get(1).copied().unwrap_or("mod"));
    if depth == 0 && !STAGES.contains(&stage) || file == "mod" {
        return None;
    }
    if to[0] != stage {
        let wants_backend = to[0] == "backend" && matches!(file, "plan" | "reference");
        return wants_backend.then(|| format!("{stage}/{file} may not name backend"));
    }
    let other = to.get(1).copied().unwrap_or("mod");
    let variant = VARIANTS.contains(&other) && other != file;
    let upward = other == "mod" || other == "*" || other.starts_with(char::is_uppercase);
    let outward = file == "plan" && other != "plan";
    (variant || upward || outward).then(|| format!("{stage}/{file} may not name {stage}/{other}"))
}

/// What is wrong with one file of the library, one line each.
fn faults(path: &str, text: &str) -> Vec<String> {
    let module = module_path(path);
    let module: Vec<&str> = module.iter().map(String::as_str).collect();
    let mut faults = Vec::new();
    let references = if is_test(path) { Vec::new() } else { references(text, &module) };
    for Reference { path: target, line } in references {
        let target: Vec<&str> = target.iter().map(String::as_str).collect();
        if let Some(why) = forbidden(&module, &target) {
            faults.push(format!("{path}:{line}: {why} ({})", target.join("::")));
        }
    }
    let words = tokens(text);
    for (at, (token, line)) in words.iter().enumerate() {
        let Token::Word(word) = token else { continue };
        let called = words.get(at + 1).is_some_and(|next| next.0 == Token::Mark('!'));
        let prints = called && !is_test(path);
        if prints && matches!(word.as_str(), "println" | "eprintln" | "print" | "eprint" | "dbg") {
            faults.push(format!("{path}:{line}: the library never prints"));
        }
        if matches!(word.as_str(), "clap" | "sidereal_cli") {
            faults.push(format!("{path}:{line}: the library may not name the command line"));
        }
        if word == "unsafe" && !may_be_unsafe(&module) {
            faults.push(format!("{path}:{line}: unsafe code has no place here"));
        }
    }
    if needs_invariant(path) && !text.lines().any(|line| line.starts_with("//! Invariant: ")) {
        faults.push(format!("{path}: a room's first lines say its invariant"));
    }
    faults.extend(common_faults(path, text));
    faults
}

/// A file of tests alone, which may go in by the stage's own door and says what it skips.
fn is_test(path: &str) -> bool {
    path.ends_with("/tests.rs") || path.ends_with("_tests.rs")
}

/// What holds for the command line's files too.
fn common_faults(path: &str, text: &str) -> Vec<String> {
    let mut faults = Vec::new();
    let lines = text.lines().count();
    if lines > LONGEST && !LONG_FILES.iter().any(|(name, _)| *name == path) {
        faults.push(format!("{path}: {lines} lines, at most {LONGEST} are allowed"));
    }
    if !path.ends_with("/tests.rs")
        && !text.starts_with("//!")
        && !text.starts_with("#![doc = include_str!")
    {
        faults.push(format!("{path}: the first line says what the file is"));
    }
    for (token, line) in tokens(text) {
        if let Token::Word(word) = token
            && (word.starts_with("n_") || word.starts_with("num_"))
            && !word.starts_with("num_complex")
        {
            faults.push(format!("{path}:{line}: {word}: counts are plain plurals"));
        }
    }
    let marks = ["TO", "FIX"].map(|half| [half, if half == "TO" { "DO" } else { "ME" }].concat());
    if marks.iter().any(|mark| text.contains(mark)) {
        faults.push(format!("{path}: holds work left undone"));
    }
    faults
}

/// Kernels and the backend hold all unsafe code.
fn may_be_unsafe(module: &[&str]) -> bool {
    let depth = 1 + usize::from(PARTS.iter().any(|part| module.starts_with(part)));
    let kernel = module.len() > depth && VARIANTS[1..].contains(&module[depth]);
    kernel && STAGES.contains(&module[0]) || module.first() == Some(&"backend")
}

/// Rooms are the files and folders right below `src`.
fn needs_invariant(path: &str) -> bool {
    let parts: Vec<&str> = path.split('/').collect();
    match parts.as_slice() {
        ["src", file] => *file != "lib.rs",
        ["src", _, file] => *file == "mod.rs",
        _ => false,
    }
}

/// The invariant that a room's first lines state, on one line.
fn invariant(text: &str) -> String {
    let head = text.lines().skip_while(|line| !line.starts_with("//! Invariant: "));
    let lines = head.map_while(|line| line.strip_prefix("//! "));
    lines.collect::<Vec<_>>().join(" ").replacen("Invariant: ", "", 1)
}

/// `src/io/fits/table.rs` is `["io", "fits", "table"]`.
fn module_path(path: &str) -> Vec<String> {
    let inside = path.strip_prefix("src/").unwrap_or(path);
    let stem = inside.strip_suffix(".rs").unwrap_or(inside);
    let parts = stem.split('/').filter(|part| !matches!(*part, "mod" | "lib"));
    parts.map(str::to_owned).collect()
}

fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).expect("the folder can be listed") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            files.extend(rust_files(&path));
        } else if path.extension().is_some_and(|end| end == "rs") {
            files.push(path);
        }
    }
    files.sort();
    files
}

fn check_folder(folder: &str, check: fn(&str, &str) -> Vec<String>) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let files = rust_files(&root.join(folder));
    assert!(!files.is_empty(), "{folder} holds no source");
    let mut faults = Vec::new();
    for file in &files {
        let name = file.strip_prefix(root).expect("below the root").to_string_lossy();
        let text = std::fs::read_to_string(file).expect("source is UTF-8");
        faults.extend(check(&name.replace('\\', "/"), &text));
    }
    assert!(faults.is_empty(), "{} faults\n{}", faults.len(), faults.join("\n"));
}

#[test]
fn the_library_keeps_its_arrows() {
    check_folder("src", faults);
}

#[test]
fn the_command_line_keeps_the_house_rules() {
    check_folder("cli/src", common_faults);
}

#[test]
fn the_architecture_states_every_invariant() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = std::fs::read_to_string(root.join("ARCHITECTURE.md")).expect("the page is there");
    let page = page.split_whitespace().collect::<Vec<_>>().join(" ");
    for file in rust_files(&root.join("src")) {
        let name = file.strip_prefix(root).expect("below the root").to_string_lossy();
        let text = std::fs::read_to_string(&file).expect("source is UTF-8");
        let line = invariant(&text);
        if needs_invariant(&name.replace('\\', "/")) && !page.contains(&line) {
            panic!("ARCHITECTURE.md lacks the invariant of {name}: {line}");
        }
    }
}

#[test]
fn every_long_file_still_needs_its_exception() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for (name, reason) in LONG_FILES {
        let text = std::fs::read_to_string(root.join(name)).expect("a listed file exists");
        assert!(text.lines().count() > LONGEST, "{name} is short by now");
        assert!(reason.len() > 20, "{name} needs a reason");
    }
}

/// The faults that `text` would have as a file of the library, without those of its head.
fn planted(path: &str, text: &str) -> Vec<String> {
    faults(path, &format!("//! Planted.\n//!\n//! Invariant: none.\n{text}\n"))
}

#[test]
fn planted_arrows_are_found() {
    let nevers = [
        ("src/single_pulse/mod.rs", "use crate::dedisperse::Plan;"),
        ("src/single_pulse/cluster.rs", "use crate::{error::Result, dedisperse as other};"),
        ("src/dedisperse/cpu.rs", "use crate::io::FilterbankHeader;"),
        ("src/dedisperse/plan.rs", "use crate::stream::ring;"),
        ("src/clean/mod.rs", "fn f(x: &crate::io::FilterbankHeader) {}"),
        ("src/io/fil.rs", "use crate::{\n    error::Result,\n    pulse::{Event, Plan},\n};"),
        ("src/io/fil.rs", "use super::super::single_pulse::Event;"),
        ("src/io/candidates/cand.rs", "use super::super::super::single_pulse::Event;"),
        ("src/stream/ring.rs", "use crate::clean::Cleaner;"),
        ("src/stream/ring.rs", "use crate::io;\nuse crate::io::open;"),
        ("src/dedisperse/plan.rs", "use super::cpu::Engine;"),
        ("src/dedisperse/plan.rs", "use super::Dedisperser;"),
        ("src/dedisperse/plan.rs", "use crate::backend::Backend;"),
        ("src/dedisperse/plan.rs", "mod tests { use super::super::reference; }"),
        ("src/dedisperse/cpu.rs", "use super::reference::Engine;"),
        ("src/dedisperse/cpu/tile.rs", "use super::super::reference::Engine;"),
        ("src/correlate/corner_turn/cpu/tile.rs", "use super::super::reference::turn;"),
        ("src/correlate/corner_turn/cpu/tile.rs", "use crate::correlate::cpu::Engine;"),
        ("src/correlate/corner_turn/mod.rs", "fn f() { unsafe { g() } }"),
        ("src/dedisperse/reference.rs", "use crate::dedisperse::{plan::Plan, cpu::tile};"),
        ("src/dedisperse/reference.rs", "use super::*;"),
        ("src/error.rs", "use crate::units::Band;"),
        ("src/units.rs", "use crate::backend::Backend;"),
        ("src/math/statistics.rs", "use crate::single_pulse::Plan;"),
        ("src/backend/mod.rs", "use crate::dedisperse::Plan;"),
        ("src/simulate/burst.rs", "use crate::dedisperse::Plan;"),
        ("src/pipeline/burst.rs", "use clap::Parser;"),
        ("src/attic/mod.rs", "use crate::units::Band;"),
    ];
    for (path, text) in nevers {
        assert!(!planted(path, text).is_empty(), "{path}: {text} was not found");
    }
}

#[test]
fn downward_arrows_pass() {
    let fine = [
        ("src/dedisperse/mod.rs", "use crate::{backend::Backend, Error};\nuse self::cpu::Engine;"),
        ("src/dedisperse/cpu.rs", "use super::plan::Plan;\nuse crate::backend::simd::Level;"),
        ("src/dedisperse/cpu/tile.rs", "pub(in crate::dedisperse) fn f() {}"),
        ("src/dedisperse/cpu/tile.rs", "use super::lanes;\nuse crate::dedisperse::plan::Plan;"),
        ("src/dedisperse/plan.rs", "// use crate::io;\nconst A: &str = \"crate::io::open\";"),
        (
            "src/dedisperse/plan.rs",
            "mod tests {\n use super::*;\n use super::super::plan::Plan;\n}",
        ),
        ("src/pipeline/burst.rs", "use crate::{clean, dedisperse, io, pulse};"),
        ("src/simulate/burst.rs", "use crate::io::FilterbankSource;"),
        ("src/correlate/corner_turn/mod.rs", "use crate::correlate::plan::Plan;\nuse cpu::Engine;"),
        (
            "src/correlate/corner_turn/cpu/tile.rs",
            "use super::super::source::Rows;\nfn f() { unsafe {} }",
        ),
        ("src/io/fil.rs", "use super::FilterbankHeader;\nfn f<'a>(c: char) -> bool { c == '\"' }"),
    ];
    for (path, text) in fine {
        assert_eq!(planted(path, text), Vec::<String>::new(), "{path}: {text}");
    }
}

#[test]
fn planted_rule_breaks_are_found() {
    let line = "const A: u8 = 0;\n";
    let breaks = [
        ("src/io/fil.rs", "fn f() { println!(\"x\"); }".to_owned()),
        ("src/io/fil.rs", "fn f() { unsafe { g() } }".to_owned()),
        ("src/io/fil.rs", "fn f(n_channels: usize) {}".to_owned()),
        ("src/io/fil.rs", line.repeat(LONGEST + 1)),
        ("src/io/fil.rs", ["// TO", "DO"].concat()),
    ];
    for (path, text) in breaks {
        assert!(!planted(path, &text).is_empty(), "{path}: {text} was not found");
    }
    assert_eq!(faults("src/io/mod.rs", "//! Formats.\n").len(), 1, "no invariant");
    assert_eq!(common_faults("cli/src/main.rs", "fn main() {}\n").len(), 1, "no first line");
}
