//! Sizes that a small input or an option asks for, free space, and samples that are not finite.

mod common;

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use common::{code, document, done, fails, program, sidereal, stderr};

/// Runs the binary with so many KiB of address space.
fn within(folder: &Path, kib: u64, words: &str) -> Output {
    let line = format!("ulimit -v {kib}; exec {} {words}", program().display());
    Command::new("sh").arg("-c").arg(line).current_dir(folder).output().unwrap()
}

const CHANNELS: usize = 64;

/// Writes 4 s of 64 channels of floats with a burst (a.fil), puts NaN into what `bad` names by row and channel, and
/// returns how many there are.
fn poisoned(folder: &Path, name: &str, bad: impl Fn(usize, usize) -> bool) -> u64 {
    let words = "simulate burst a.fil -q --overwrite --fch1 1500 --foff -4 --channels 64 --tsamp 1e-3 --duration 4 \
                 --nbits 32 --seed 3 --burst dm=60,time=1.5,width=0.004,snr=25";
    done(folder, words);
    let mut bytes = fs::read(folder.join("a.fil")).unwrap();
    let end = b"HEADER_END";
    let data = bytes.windows(end.len()).position(|word| word == end).unwrap() + end.len();
    let mut count = 0;
    for (place, sample) in bytes[data..].chunks_exact_mut(4).enumerate() {
        if bad(place / CHANNELS, place % CHANNELS) {
            let value = if place % 2 == 0 { f32::NAN } else { f32::INFINITY };
            sample.copy_from_slice(&value.to_le_bytes());
            count += 1;
        }
    }
    fs::write(folder.join(name), bytes).unwrap();
    count
}

/// A row, a channel, a third of another channel, and half a second at the end of most channels.
fn is_bad(row: usize, channel: usize) -> bool {
    row == 2000
        || channel == 5
        || (channel == 20 && row.is_multiple_of(3))
        || ((3400..3900).contains(&row) && channel > 10)
}

#[test]
fn samples_that_are_not_finite_are_filled_and_counted() {
    let home = tempfile::tempdir().unwrap();
    let count = poisoned(home.path(), "bad.fil", is_bad);
    let search = |out: &str, more: &str| {
        let words = format!("search bad.fil -o {out} --dm-max 200 --no-plots {more}");
        let output = sidereal(home.path(), &words);
        assert_eq!(code(&output), 0, "{}", stderr(&output));
        let told = stderr(&output);
        assert!(told.contains(&format!("{count} samples are not finite")), "{told}");
        document(home.path(), &format!("{out}/summary.json"))
    };
    let found = search("usual", "");
    assert_eq!(found["flagged_samples"], count);
    assert_eq!(found["masked_channels"], serde_json::json!([5]));
    let candidates = found["candidates"].as_array().unwrap();
    assert_eq!(candidates.len(), 1, "{candidates:?}");
    let best = &candidates[0];
    assert!((best["dm"].as_f64().unwrap() - 60.0).abs() < 3.0, "{best}");
    assert!((best["time_s"].as_f64().unwrap() - 1.5).abs() < 0.01, "{best}");
    assert!(best["snr"].as_f64().unwrap() > 20.0, "{best}");

    // The same of any gulp, and without the mask of outliers.
    search("short", "--gulp 100");
    search("kept", "--no-auto-mask");
    let table = |out: &str| fs::read(home.path().join(out).join("candidates.csv")).unwrap();
    assert_eq!((table("short"), table("kept")), (table("usual"), table("usual")));

    // The same through a pipe.
    let input = fs::File::open(home.path().join("bad.fil")).unwrap();
    let output = Command::new(program())
        .args("search - -o piped --dm-max 200 --no-plots".split_whitespace())
        .current_dir(home.path())
        .stdin(Stdio::from(input))
        .output()
        .unwrap();
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    assert_eq!(document(home.path(), "piped/summary.json")["flagged_samples"], count);

    let strict = document(home.path(), "usual/summary.json");
    assert_eq!(strict["masked_channels"].as_array().unwrap().len(), 1);
    let strict = search("strict", "--max-flagged 0.2");
    assert_eq!(strict["masked_channels"], serde_json::json!([5, 20]));
    let wrong = sidereal(home.path(), "search bad.fil -o no --max-flagged 1.5");
    fails(&wrong, 2, &["--max-flagged", "1.5"]);
}

#[test]
fn series_of_samples_that_are_not_finite_are_finite() {
    let home = tempfile::tempdir().unwrap();
    let count = poisoned(home.path(), "bad.fil", is_bad);
    done(home.path(), "dedisperse bad.fil -o series --dm-max 60 --dm-step 20 -q");
    let described = document(home.path(), "series/dedispersed.json");
    assert_eq!(described["flagged_samples"], count);
    let bytes = fs::read(home.path().join("series/dedispersed.npy")).unwrap();
    // The text at the front tells its own length.
    let start = 10 + usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
    let series = bytes[start..].chunks_exact(4);
    let mut series = series.map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap()));
    assert!(series.all(|x| x.is_finite()));
}

#[test]
fn a_spectrum_of_two_lines_takes_little_memory() {
    let home = tempfile::tempdir().unwrap();
    fs::write(home.path().join("t.csv"), "mass1,mass2\n30,30\n").unwrap();
    for (name, text) in [
        ("two.txt", "0 1e-46\n1e12 1e-46\n"),
        ("high.txt", "1e9 1e-46\n2e12 1e-46\n"),
        ("three.txt", "0 1e-46\n0.001 1e-46\n1e12 1e-46\n"),
    ] {
        fs::write(home.path().join(name), text).unwrap();
        let words = format!("spiir bank t.csv --psd {name} -o {name}.h5 -q");
        let output = within(home.path(), 4_000_000, &words);
        let told = stderr(&output);
        assert_eq!(output.status.code(), Some(0), "{name}: {told}");
        assert!(!told.contains("panicked"), "{told}");
    }
}

#[test]
fn simulations_are_bounded_by_memory_and_disk() {
    let home = tempfile::tempdir().unwrap();
    let many =
        "--freq 1400 --bandwidth 1 --coarse-channels 1 --pols 1 --antennas 1000000 --no-noise -q";
    let words = format!("simulate voltages many.dada {many} --duration 8e-6");
    let output = within(home.path(), 2_000_000, &words);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    for words in [
        format!("simulate voltages long.dada {many} --duration 1e6"),
        format!("simulate voltages long.raw {many} --duration 1e6"),
        "simulate burst long.fil --fch1 1500 --foff -0.1 --channels 4096 --tsamp 64e-6 --duration 1e7".to_owned(),
        "simulate strain long.hdf5 --length 31557600 --rate 1048576".to_owned(),
    ] {
        let output = sidereal(home.path(), &words);
        fails(&output, 4, &["are needed", "are free"]);
    }
    assert_eq!(common::entries(home.path()).len(), 2, "{:?}", common::entries(home.path()));
}

#[test]
fn a_limit_on_memory_shortens_blocks_and_changes_nothing() {
    let home = common::recording();
    let search = |out: &str, more: &str| {
        done(home.path(), &format!("search a.fil -o {out} --no-plots -q {more}"));
        fs::read(home.path().join(out).join("candidates.csv")).unwrap()
    };
    assert_eq!(search("limited", "--memory 16M"), search("free", ""));
    let series = |out: &str, more: &str| {
        let words = "--dm-min 0 --dm-max 100 --dm-step 1 -q";
        done(home.path(), &format!("dedisperse a.fil -o {out} {words} {more}"));
        fs::read(home.path().join(out).join("dedispersed.npy")).unwrap()
    };
    assert_eq!(series("short", "--memory 8M"), series("long", ""));
    for words in ["search a.fil -o no --memory 64K", "dedisperse a.fil -o no --memory 64K"] {
        let output = sidereal(home.path(), words);
        fails(&output, 1, &["memory for the se", "MiB are needed at least", "--memory allows"]);
    }
    for size in ["0", "4X", "-1G", "inf"] {
        let output = sidereal(home.path(), &format!("search a.fil -o no --memory={size}"));
        fails(&output, 2, &["--memory", "number of bytes"]);
    }
    assert!(!home.path().join("no").exists());
}

#[test]
fn a_correlation_fits_a_limit_on_memory() {
    let home = common::array::array("");
    let files = common::array::files(&["ant00", "ant01", "ant02", "ant03"]);
    let correlate = |more: &str| {
        let rest = "--antennas array/antennas.csv --channels 32 --integration 0.05 --no-plots -q";
        sidereal(home.path(), &format!("correlate {files} {rest} {more}"))
    };
    for words in ["-o free.uvh5", "-o limited.uvh5 --memory 2M"] {
        let output = correlate(words);
        assert_eq!(code(&output), 0, "{words}: {}", stderr(&output));
    }
    fails(&correlate("-o no.uvh5 --memory 10K"), 1, &["the correlation", "--memory allows 0"]);
    let data = |name: &str| {
        let bytes = fs::read(home.path().join(name)).unwrap();
        // Rows of visibilities lie behind the header, which names the file's history.
        bytes[bytes.len() - 5 * 10 * 32 * 4 * 8..].to_vec()
    };
    assert!(data("free.uvh5") == data("limited.uvh5"));
}
