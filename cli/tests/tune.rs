//! `tune` on whatever device is there: all ways of a plan are measured, their bits compared, the best kept.

#[allow(unused)]
mod common;

use std::path::Path;
use std::process::Command;

use common::{done, fails, gpu, json, program, sidereal, stderr};
use serde_json::Value;
use tempfile::TempDir;

/// Returns a folder, if this machine has a GPU.
fn folder() -> Option<TempDir> {
    let folder = TempDir::new().unwrap();
    gpu(folder.path()).map(|_| folder)
}

/// The choices of each kernel of a plan, each launched and measured.
fn choices(tuned: &Value) -> Vec<Vec<&str>> {
    let is_measured = |line: &Value| {
        assert!(line["error"].is_null() && line["seconds"].as_f64().unwrap() > 0.0, "{line}");
    };
    let kernels = tuned.as_array().unwrap().iter();
    kernels
        .map(|kernel| {
            let lines = kernel["choices"].as_array().unwrap();
            lines.iter().for_each(is_measured);
            let names: Vec<&str> =
                lines.iter().map(|line| line["choice"].as_str().unwrap()).collect();
            assert!(names.contains(&kernel["best"].as_str().unwrap()), "{kernel}");
            names
        })
        .collect()
}

const CORRELATE: &str = "tune correlate --device cuda --dry-run --channels 3";

#[test]
fn all_ways_of_products_are_measured() {
    let Some(folder) = folder() else { return };
    let folder = folder.path();
    let cases = [
        ("--antennas 20 --samples 70", "inputs=40 channels=3 encoding=Complex8"),
        ("--antennas 65 --samples 33", "inputs=130 channels=3 encoding=Complex8"),
        ("--antennas 20 --nbits 4 --samples 33 --polarizations 1", "encoding=Complex4"),
        ("--antennas 20 --nbits 32 --working-set 1", "encoding=ComplexF32 precision=F32"),
    ];
    let mut of_8_bits: Vec<String> = Vec::new();
    for (options, shape) in cases {
        let tuned = json(folder, &format!("{CORRELATE} {options}"));
        let choices = choices(&tuned);
        assert_eq!(choices.len(), 1, "{tuned}");
        if shape.contains("Complex8") {
            // The number of inputs determines how a small last block is multiplied, so it adds no choices.
            assert!(of_8_bits.is_empty() || of_8_bits == choices[0], "{tuned}");
            of_8_bits = choices[0].iter().map(|name| name.to_string()).collect();
        }
        assert!(choices[0].len() > 1 && choices[0].contains(&"dot products"), "{tuned}");
        assert!(tuned[0]["shape"].as_str().unwrap().contains(shape), "{tuned}");
        assert_eq!(tuned[0]["stored"], false);
    }
    let rounded =
        json(folder, &format!("{CORRELATE} --antennas 20 --nbits 32 --precision f16 --samples 16"));
    let shape = rounded[0]["shape"].as_str().unwrap();
    assert!(shape.contains("inputs=40 channels=3") && shape.contains("precision=F16"), "{shape}");
    assert!(!choices(&rounded)[0].contains(&"dot products"), "{rounded}");
}

#[test]
fn what_no_correlator_has_is_wrong_use() {
    let Some(folder) = folder() else { return };
    let cases = [
        ("--nbits 16", "--nbits"),
        ("--precision tf32", "--precision"),
        ("--antennas 0", "antennas"),
        ("--samples 0", "--samples"),
    ];
    for (options, named) in cases {
        let words = format!("tune correlate --device cuda {options}");
        fails(&sidereal(folder.path(), &words), 2, &[named]);
    }
    let words = format!("{CORRELATE} --antennas 20 --samples 18446744073709551615");
    fails(&sidereal(folder.path(), &words), 1, &["memory for spectra"]);
}

/// Runs a verb with its kernels and choices kept in the folder.
fn kept(folder: &Path, words: &str) -> (String, String) {
    let output = Command::new(program())
        .args(words.split_whitespace())
        .env("SIDEREAL_CACHE_DIR", folder.join("cache"))
        .current_dir(folder)
        .output()
        .unwrap();
    assert!(output.status.success(), "{words}\n{}", stderr(&output));
    (String::from_utf8(output.stdout.clone()).unwrap(), stderr(&output))
}

#[test]
fn the_best_way_of_products_is_kept() {
    let Some(folder) = folder() else { return };
    let words = "tune correlate --device cuda --antennas 3 --channels 2 --samples 16 --verbose";
    let (table, told) = kept(folder.path(), words);
    let best = table.lines().filter(|line| line.ends_with('*')).count();
    assert!(best == 1 && table.contains("the fastest, kept"), "{table}");
    assert!(told.contains("correlate: dot products: "), "{told}");
    let cache = common::entries(&folder.path().join("cache"));
    assert_eq!(cache.iter().filter(|name| name.ends_with(".tune")).count(), 1, "{cache:?}");
}

#[test]
fn kernels_of_other_stages_are_tuned() {
    let Some(folder) = folder() else { return };
    let cases = [
        "tune channelize --channels 64 --taps 4 --working-set 1",
        "tune channelize --channels 64 --taps 4 --nbits 32 --integrate 4 --working-set 1",
        "tune dedisperse --fch1 1500 --foff -1 --channels 32 --tsamp 1e-3 --ranges 0:20:0.5 --nbits 32 --working-set 1",
    ];
    for words in cases {
        let tuned = json(folder.path(), &format!("{words} --device cuda --dry-run"));
        assert!(!choices(&tuned).is_empty(), "{words} {tuned}");
    }
    let words = "tune spiir --templates 3 --filters 5 --rates 2 --working-set 1";
    choices(&json(folder.path(), &format!("{words} --device cuda --dry-run")));
    let words = "tune spiir --rates 14 --filters 64 --device cuda";
    fails(&sidereal(folder.path(), words), 2, &["--rates"]);
    let help = done(folder.path(), "tune correlate --help");
    assert!(help.contains("Examples:") && help.contains("--samples"), "{help}");
}

#[test]
fn filters_of_chirps_are_tuned() {
    let Some(folder) = folder() else { return };
    let folder = folder.path();
    let tune = "tune spiir --chirps --device cuda --working-set 1 --dry-run";
    // The last has fewer filters than its chirp has rates to lie at.
    for options in ["--filters 30 --rates 2", "--filters 3 --rates 3"] {
        let tuned = json(folder, &format!("{tune} --templates 3 {options}"));
        assert!(!choices(&tuned).is_empty(), "{options} {tuned}");
    }
}

#[test]
fn what_no_bank_of_chirps_has_is_wrong_use() {
    let Some(folder) = folder() else { return };
    let folder = folder.path();
    let tune = "tune spiir --chirps --device cuda";
    fails(&sidereal(folder, &format!("{tune} bank.h5")), 2, &["[BANK]", "--chirps"]);
    fails(&sidereal(folder, &format!("{tune} --filters 2 --rates 3")), 2, &["--filters", "a rate"]);
    fails(
        &sidereal(folder, &format!("{tune} --filters 4096")),
        2,
        &["--filters", "2741", "longer"],
    );
    let help = done(folder, "tune spiir --help");
    assert!(help.contains("--chirps") && help.contains("--rates 4 --chirps"), "{help}");
}
