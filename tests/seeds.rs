//! Every seed of the fuzz targets runs through the body of its target, without the fuzzer.
//!
//! The name of a seed states its expected outcome: `valid_*` is read to its end, `cut_*` to its last whole unit,
//! `broken_*` is refused with an error; `found_*` was a finding once.

// There it is a library of its own, so its functions are public.
#[allow(unreachable_pub)]
#[path = "../fuzz/bodies.rs"]
mod bodies;

use std::path::{Path, PathBuf};

use bodies::{Outcome, Read, TARGETS};

fn seeds() -> PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/fuzz/seeds")).to_path_buf()
}

/// The names in a folder, sorted.
fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).expect("the folder can be listed");
    let name = |entry: std::io::Result<std::fs::DirEntry>| {
        entry.expect("an entry").file_name().to_string_lossy().into_owned()
    };
    let mut names: Vec<String> = entries.map(name).collect();
    names.sort();
    names
}

/// Returns what is wrong with a seed's outcome, if anything.
fn fault(name: &str, outcome: &Outcome) -> Option<String> {
    let (kind, _) = name.split_once('_').unwrap_or((name, ""));
    let expected = match (kind, outcome) {
        ("valid", Ok(Read::Whole)) | ("cut", Ok(Read::Cut)) | ("broken", Err(_)) => return None,
        ("found", _) => return None,
        // Not every reader knows of cuts.
        ("cut", Ok(Read::Whole) | Err(_)) => return None,
        ("valid", _) => "it is read whole",
        ("cut", _) => "it is read to its last whole piece",
        ("broken", _) => "it is refused",
        _ => "a name that begins with valid_, cut_, broken_ or found_",
    };
    Some(format!("found {outcome:?}, expected that {expected}"))
}

#[test]
fn every_target_has_valid_seeds() {
    let known: Vec<&str> = TARGETS.iter().map(|(name, _)| *name).collect();
    assert_eq!(names(&seeds()), known);
    for target in known {
        let found = names(&seeds().join(target));
        assert!(found.iter().any(|name| name.starts_with("valid_")), "{target}: {found:?}");
    }
}

#[test]
fn seeds_are_what_their_names_say() {
    let mut faults = Vec::new();
    for (target, body) in TARGETS {
        for name in names(&seeds().join(target)) {
            let bytes = std::fs::read(seeds().join(target).join(&name)).expect("a seed");
            let what = match std::panic::catch_unwind(|| body(&bytes)) {
                Ok(outcome) => fault(&name, &outcome),
                Err(_) => Some("it panics".to_owned()),
            };
            faults.extend(what.map(|what| format!("{target}/{name}: {what}")));
        }
    }
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}
