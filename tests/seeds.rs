//! Every seed of the fuzz targets goes through its target's body, without the fuzzer.

// There it is a library of its own, so its functions are public.
#[allow(unreachable_pub)]
#[path = "../fuzz/bodies.rs"]
mod bodies;

use std::path::Path;

/// What a target does with its bytes.
type Body = fn(&[u8]);

/// Each target with its body, as in `fuzz/targets`.
const TARGETS: &[(&str, Body)] = &[
    ("antennas", bodies::antennas),
    ("bank_h5", bodies::bank_h5),
    ("bitshuffle", bodies::bitshuffle),
    ("cand", bodies::cand),
    ("dada", bodies::dada),
    ("dm_plan", bodies::dm_plan),
    ("fbh5", bodies::fbh5),
    ("guppi", bodies::guppi),
    ("inf", bodies::inf),
    ("ligolw", bodies::ligolw),
    ("mark5b", bodies::mark5b),
    ("mask", bodies::mask),
    ("npy", bodies::npy),
    ("psd", bodies::psd),
    ("psrfits", bodies::psrfits),
    ("sigproc", bodies::sigproc),
    ("strain", bodies::strain),
    ("templates", bodies::templates),
    ("tim", bodies::tim),
    ("uvh5", bodies::uvh5),
    ("vdif", bodies::vdif),
];

fn fuzz() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/fuzz"))
}

fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).expect("the folder can be listed");
    let path = |entry: std::io::Result<std::fs::DirEntry>| entry.expect("an entry").path();
    let stem =
        |path: std::path::PathBuf| path.file_stem().map(|s| s.to_string_lossy().into_owned());
    let mut names: Vec<String> = entries.map(path).filter_map(stem).collect();
    names.sort();
    names
}

#[test]
fn every_target_has_a_body_and_seeds() {
    let known: Vec<&str> = TARGETS.iter().map(|(name, _)| *name).collect();
    assert_eq!(names(&fuzz().join("targets")), known);
    assert_eq!(names(&fuzz().join("seeds")), known);
}

#[test]
fn no_seed_brings_a_target_down() {
    for (name, body) in TARGETS {
        let mut seeds = 0;
        for entry in std::fs::read_dir(fuzz().join("seeds").join(name)).expect("seeds") {
            let path = entry.expect("an entry").path();
            let bytes = std::fs::read(&path).expect("a seed can be read");
            let outcome = std::panic::catch_unwind(|| body(&bytes));
            assert!(outcome.is_ok(), "{} panics", path.display());
            seeds += 1;
        }
        assert!(seeds > 0, "{name} has no seeds");
    }
}
