//! Rules of the source that a program can check: which module imports which, import circles, tuple parameters, the language
//! of comments and documents.

#[path = "common/source.rs"]
mod source;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use source::{Reference, Token, imports, references, tokens};

/// Parameters of functions that are tuples: of public functions of the library, and all others.
const MOST_TUPLES: [usize; 2] = [0, 5];

const BASE: &[&str] =
    &["error", "view", "sample", "voltage", "state", "strain", "units", "math", "trace"];
const STAGES: &[&str] = &[
    "coherent",
    "channelize",
    "delay",
    "correlate",
    "clean",
    "dedisperse",
    "single_pulse",
    "spiir",
];
const VARIANTS: &[&str] = &["reference", "cpu", "cuda"];
/// Parts of a stage that are built as a stage is: with a reference and variants of their own.
const PARTS: &[[&str; 2]] = &[["correlate", "corner_turn"], ["spiir", "trigger"]];
/// Names that the crate's root re-exports from the base layer.
const ROOT: &[&str] = &["Error", "Result"];

/// Returns why a file of module `from` may not import `to`, or `None` where it may.
fn forbidden(from: &[&str], to: &[&str]) -> Option<String> {
    let (Some(&module), Some(&other)) = (from.first(), to.first()) else { return None };
    let in_base = BASE.contains(&other) || ROOT.contains(&other);
    let allowed: bool = match module {
        "error" => other == "error",
        _ if module == other => return within_stage(from, to),
        _ if BASE.contains(&module) => in_base,
        "backend" | "io" | "stream" | "geometry" | "waveform" => in_base,
        // The ring's headers are those of PSRDADA's files; clocks count leap seconds; threads sort samples.
        "live" => in_base || matches!(other, "backend" | "io" | "geometry"),
        "simulate" => {
            in_base || { matches!(other, "backend" | "io" | "stream" | "geometry" | "waveform") }
        }
        "pipeline" => true,
        _ if STAGES.contains(&module) => {
            return within_stage(from, to).or_else(|| {
                (!in_base && other != "backend").then(|| format!("{module} may not import {other}"))
            });
        }
        _ => return Some(format!("{module} has no layer: assign one in this test")),
    };
    (!allowed).then(|| format!("{module} may not import {other}"))
}

/// Checks imports between the files of one stage.
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
        return wants_backend.then(|| format!("{stage}/{file} may not import backend"));
    }
    let other = to.get(1).copied().unwrap_or("mod");
    let variant = VARIANTS.contains(&other) && other != file;
    let upward = other == "mod" || other == "*" || other.starts_with(char::is_uppercase);
    let outward = file == "plan" && other != "plan";
    (variant || upward || outward).then(|| format!("{stage}/{file} may not import {stage}/{other}"))
}

/// Returns the faults of one file of the library, one line each.
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
            faults.push(format!("{path}:{line}: the library may not import the command line"));
        }
        if word == "unsafe" && !may_be_unsafe(&module) {
            faults.push(format!("{path}:{line}: unsafe code is not allowed here"));
        }
    }
    if needs_invariant(path) && !text.lines().any(|line| line.starts_with("//! Invariant: ")) {
        faults.push(format!("{path}: a module's documentation states its invariant"));
    }
    faults.extend(common_faults(path, text));
    faults
}

/// Returns whether a file holds tests alone, which may use the stage's public interface and print what they skip.
fn is_test(path: &str) -> bool {
    path.ends_with("/tests.rs") || path.ends_with("_tests.rs")
}

/// Returns faults by rules that hold for the files of the benches and of the command line, too.
fn common_faults(path: &str, text: &str) -> Vec<String> {
    let mut faults = Vec::new();
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

/// Returns whether a module may hold unsafe code: kernels, the backend, system calls.
fn may_be_unsafe(module: &[&str]) -> bool {
    let depth = 1 + usize::from(PARTS.iter().any(|part| module.starts_with(part)));
    let kernel = module.len() > depth && VARIANTS[1..].contains(&module[depth]);
    kernel && STAGES.contains(&module[0])
        || module.first() == Some(&"backend")
        || [&["live", "ring", "system"][..], &["live", "socket"], &["live", "system_clock"]]
            .contains(&module)
}

/// Returns whether a file is a module right below `src`.
fn needs_invariant(path: &str) -> bool {
    let parts: Vec<&str> = path.split('/').collect();
    match parts.as_slice() {
        ["src", file] => *file != "lib.rs",
        ["src", _, file] => *file == "mod.rs",
        _ => false,
    }
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
fn imports_follow_the_layers() {
    check_folder("src", faults);
}

#[test]
fn the_command_line_follows_the_common_rules() {
    check_folder("bench/src", common_faults);
    check_folder("cli/src", common_faults);
    check_folder("python/src", common_faults);
}

/// Reads every Rust file below `folder` except tests: its module path within the crate, and its text.
fn modules(folder: &str) -> BTreeMap<Vec<String>, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let mut modules = BTreeMap::new();
    for file in rust_files(&root) {
        let name = file.strip_prefix(&root).expect("below the root").to_string_lossy();
        let name = name.replace('\\', "/");
        // Roots of the command line, whose list of verbs some verbs parse.
        let is_root = name == "main.rs" || (folder == "cli/src" && name == "lib.rs");
        if !is_test(&format!("/{name}")) && !is_root {
            let text = std::fs::read_to_string(&file).expect("source is UTF-8");
            modules.insert(module_path(&name), text);
        }
    }
    modules
}

/// Returns the groups of modules that import each other in a circle, each sorted.
fn circles(modules: &BTreeMap<Vec<String>, String>) -> Vec<Vec<String>> {
    let index: BTreeMap<&Vec<String>, usize> =
        modules.keys().enumerate().map(|(at, module)| (module, at)).collect();
    let parsed: Vec<_> = modules.iter().map(|(module, text)| imports(text, module)).collect();
    // The module that defines the end of a path: re-exports are followed, a module's own re-exports are no imports.
    let resolve = |path: &[String]| -> Option<usize> {
        let mut path = path.to_vec();
        for _ in 0..8 {
            let length =
                (0..=path.len()).rev().find(|n| index.contains_key(&path[..*n].to_vec()))?;
            let at = index[&path[..length].to_vec()];
            match path.get(length).and_then(|name| parsed[at].exports.get(name)) {
                Some(target) if *target != path => {
                    path = target.iter().chain(&path[length + 1..]).cloned().collect();
                }
                _ => return Some(at),
            }
        }
        None
    };
    let edges: Vec<Vec<usize>> = parsed
        .iter()
        .enumerate()
        .map(|(from, file)| {
            let found = file.paths.iter().filter_map(|path| resolve(path));
            found.filter(|to| *to != from).collect()
        })
        .collect();
    let reached: Vec<Vec<bool>> = (0..edges.len())
        .map(|start| {
            let (mut seen, mut next) = (vec![false; edges.len()], edges[start].clone());
            while let Some(at) = next.pop() {
                if !std::mem::replace(&mut seen[at], true) {
                    next.extend(&edges[at]);
                }
            }
            seen
        })
        .collect();
    let names: Vec<String> = modules.keys().map(|module| module.join("/")).collect();
    let mut circles = Vec::new();
    for (start, onward) in reached.iter().enumerate() {
        let group: Vec<usize> =
            (0..edges.len()).filter(|at| onward[*at] && reached[*at][start]).collect();
        if group.first() == Some(&start) {
            circles.push(group.into_iter().map(|at| names[at].clone()).collect());
        }
    }
    circles
}

#[test]
fn no_files_import_each_other_in_a_circle() {
    for folder in ["src", "bench/src", "cli/src", "python/src"] {
        let found = circles(&modules(folder));
        let listed: Vec<String> = found.iter().map(|circle| circle.join(", ")).collect();
        assert!(found.is_empty(), "{folder}: {} circles\n{}", found.len(), listed.join("\n"));
    }
}

#[test]
fn planted_circles_are_found() {
    let file = |name: &str, text: &str| (module_path(name), text.to_owned());
    let planted = BTreeMap::from([
        file("a/mod.rs", "mod b;\npub use b::B;\nfn f() { b::g() }"),
        file("a/b.rs", "use super::f;"),
        file("c/mod.rs", "mod d;\npub use d::D;"),
        file("c/d.rs", "use crate::e::E;"),
        file("e.rs", "use crate::c::D;"),
        file("g.rs", "use crate::a::B;\n#[cfg(test)]\nmod tests { use crate::h::H; }"),
        file("h.rs", "use crate::g;"),
    ]);
    assert_eq!(circles(&planted), [["a", "a/b"], ["c/d", "e"]]);
}

/// Counts parameters that are tuples, of public functions and of others, in source without its inline tests.
fn tuple_parameters(text: &str) -> [usize; 2] {
    let words = tokens(source::without_tests(text));
    let mark =
        |at: usize, mark: char| words.get(at).is_some_and(|(token, _)| *token == Token::Mark(mark));
    let is_word = |at: usize, word: &str| matches!(words.get(at), Some((Token::Word(found), _)) if found == word);
    let mut counts = [0; 2];
    for at in (0..words.len())
        .filter(|at| is_word(*at, "fn") && matches!(words.get(at + 1), Some((Token::Word(_), _))))
    {
        let mut next = at + 2;
        // Generic parameters come before the list of parameters.
        if mark(next, '<') {
            let mut depth = 0_i32;
            loop {
                // The mark of `->` closes nothing.
                depth +=
                    i32::from(mark(next, '<')) - i32::from(mark(next, '>') && !mark(next - 1, '-'));
                next += 1;
                if depth == 0 || next >= words.len() {
                    break;
                }
            }
        }
        let is_public = at > 0 && is_word(at - 1, "pub") || at > 1 && is_word(at - 2, "pub");
        let mut depth = 0_i32;
        while next < words.len() {
            if mark(next, '(') || mark(next, '[') || mark(next, '{') {
                depth += 1;
            } else if mark(next, ')') || mark(next, ']') || mark(next, '}') {
                depth -= 1;
            }
            if depth == 0 {
                break;
            }
            if depth == 1 && mark(next, ':') {
                let mut kind = next + 1;
                while mark(kind, '&') || is_word(kind, "mut") || mark(kind, '\'') {
                    kind += 1;
                }
                if mark(kind, '(') && !mark(kind + 1, ')') {
                    counts[usize::from(!is_public)] += 1;
                }
            }
            next += 1;
        }
    }
    counts
}

#[test]
fn parameters_have_names_of_their_own() {
    let mut counts = [0; 2];
    for folder in ["src", "bench/src", "cli/src", "python/src"] {
        for text in modules(folder).values() {
            let found = tuple_parameters(text);
            let is_library = folder == "src";
            counts[0] += if is_library { found[0] } else { 0 };
            counts[1] += found[1] + if is_library { 0 } else { found[0] };
        }
    }
    for (count, most) in counts.into_iter().zip(MOST_TUPLES) {
        assert!(
            count <= most,
            "{counts:?} tuple parameters (public, other), expected {MOST_TUPLES:?}"
        );
    }
    let text = "pub fn f<A: Fn(u8) -> u8>(x: &A, (a, b): (u8, u8)) {}\nfn g(x: &(u8, u8), y: ()) { let z: (u8, u8); }\n\
                #[cfg(test)]\nmod tests { fn h(x: (u8, u8)) {} }";
    assert_eq!(tuple_parameters(text), [1, 1]);
}

/// Words of metaphor and of dialect, for which the field has terms.
const BANNED: [&str; 17] = [
    "house",
    "houses",
    "room",
    "rooms",
    "door",
    "doors",
    "ground floor",
    "thread that brings",
    "so many",
    "is told",
    "are told",
    "what is told",
    "tickets",
    "ticket",
    "beside others",
    "widened",
    "not a stub",
];
/// Question words with which a comment may not begin as a noun phrase.
const QUESTIONS: [&str; 6] = ["What", "Which", "How", "Whose", "Who", "Where"];

/// Text of a source file's comments, or all of a document.
fn prose(path: &Path, text: &str) -> String {
    match path.extension().and_then(|end| end.to_str()) {
        Some("md") => text.to_owned(),
        _ => source::comments(text),
    }
}

/// Counts banned words in prose.
fn banned_words(prose: &str) -> usize {
    let lower = prose.to_lowercase();
    let words: Vec<&str> = lower
        .split(|letter: char| !letter.is_alphanumeric())
        .filter(|word| !word.is_empty())
        .collect();
    let text = format!(" {} ", words.join(" "));
    BANNED.iter().map(|word| text.matches(&format!(" {word} ")).count()).sum()
}

/// Counts comments and sentences' first lines that begin with a question word.
fn questions(prose: &str) -> usize {
    let mut is_first = true;
    let mut count = 0;
    for line in prose.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let begins = words.first().is_some_and(|word| QUESTIONS.contains(word));
        count += usize::from(is_first && begins && !line.trim_end().ends_with('?'));
        is_first = words.is_empty() || line.trim_end().ends_with('.');
    }
    count
}

fn documents_and_sources() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    let mut folders: Vec<PathBuf> =
        ["src", "bench", "cli", "tests", "docs", "benches", "examples", "fuzz"]
            .map(|name| root.join(name))
            .into();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).into_iter().flatten() {
            let path = entry.expect("an entry").path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if path.is_dir() && !["target", "seeds"].contains(&name.as_str()) {
                folders.push(path);
            } else if [".rs", ".md", ".cu", ".cuh"].iter().any(|end| name.ends_with(end)) {
                files.push(path);
            }
        }
    }
    let pages = [
        "README.md",
        "ARCHITECTURE.md",
        "CONVENTIONS.md",
        "CONTRIBUTING.md",
        "CHANGELOG.md",
        "SECURITY.md",
    ];
    files.extend(pages.map(|name| root.join(name)));
    // This file lists the words.
    files.retain(|path| !path.ends_with("tests/architecture.rs"));
    files
}

#[test]
fn comments_and_documents_speak_the_fields_language() {
    let (mut words, mut asked, mut worst) = (0, 0, BTreeMap::new());
    for path in documents_and_sources() {
        let prose = prose(&path, &std::fs::read_to_string(&path).expect("text is UTF-8"));
        let found = [banned_words(&prose), questions(&prose)];
        words += found[0];
        asked += found[1];
        worst.insert((found[0] + found[1], path), found);
    }
    let listed: Vec<String> = worst
        .iter()
        .rev()
        .take(20)
        .map(|((_, path), found)| format!("{} {found:?}", path.display()))
        .collect();
    assert!(
        words == 0 && asked == 0,
        "{words} banned words, {asked} comments that begin with a question word\n{}",
        listed.join("\n")
    );
}

#[test]
fn planted_words_are_found() {
    let text = "//! What a house is.\n\n/// So\n/// many rooms (a door).\nfn room() { \"house\"; } // Which is it?\n// x\n";
    let prose = source::comments(text);
    assert_eq!((banned_words(&prose), questions(&prose)), (4, 1), "{prose}");
}

/// The faults that `text` would have as a file of the library, without those of its head.
fn planted(path: &str, text: &str) -> Vec<String> {
    faults(path, &format!("//! Planted.\n//!\n//! Invariant: none.\n{text}\n"))
}

#[test]
fn planted_imports_are_found() {
    let nevers = [
        ("src/single_pulse/mod.rs", "use crate::dedisperse::Plan;"),
        ("src/single_pulse/cluster.rs", "use crate::{error::Result, dedisperse as other};"),
        ("src/dedisperse/cpu.rs", "use crate::io::FilterbankHeader;"),
        ("src/dedisperse/plan.rs", "use crate::stream::ring;"),
        ("src/clean/mod.rs", "fn f(x: &crate::io::FilterbankHeader) {}"),
        ("src/io/fil.rs", "use crate::{\n    error::Result,\n    pulse::{Event, Plan},\n};"),
        ("src/io/fil.rs", "use super::super::single_pulse::Event;"),
        ("src/io/candidates/cand.rs", "use super::super::super::single_pulse::Event;"),
        ("src/live/ring/buffer.rs", "use crate::clean::Cleaner;"),
        ("src/live/ring/buffer.rs", "fn f() { unsafe { g() } }"),
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
fn imports_of_lower_layers_pass() {
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
        ("src/live/ring/system.rs", "fn f() { unsafe {} }"),
        ("src/live/ring/reader.rs", "use crate::io::voltages::dada;"),
        ("src/io/fil.rs", "use super::FilterbankHeader;\nfn f<'a>(c: char) -> bool { c == '\"' }"),
    ];
    for (path, text) in fine {
        assert_eq!(planted(path, text), Vec::<String>::new(), "{path}: {text}");
    }
}

#[test]
fn planted_rule_breaks_are_found() {
    let breaks = [
        ("src/io/fil.rs", "fn f() { println!(\"x\"); }".to_owned()),
        ("src/io/fil.rs", "fn f() { unsafe { g() } }".to_owned()),
        ("src/io/fil.rs", "fn f(n_channels: usize) {}".to_owned()),
        ("src/io/fil.rs", ["// TO", "DO"].concat()),
    ];
    for (path, text) in breaks {
        assert!(!planted(path, &text).is_empty(), "{path}: {text} was not found");
    }
    assert_eq!(faults("src/io/mod.rs", "//! Formats.\n").len(), 1, "no invariant");
    assert_eq!(common_faults("cli/src/main.rs", "fn main() {}\n").len(), 1, "no first line");
}
