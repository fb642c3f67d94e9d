//! Sizes that a small input or an option asks for, free space, long gaps, and samples that are no measurements.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::common::{code, document, done, fails, program, sidereal, stderr};

/// Runs the binary with an address space of `kib` KiB.
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
fn samples_that_no_receiver_gives_are_filled_as_well() {
    let home = tempfile::tempdir().unwrap();
    let count = poisoned(home.path(), "bad.fil", is_bad);
    let mut bytes = fs::read(home.path().join("bad.fil")).unwrap();
    // 3e38 for NaN, -2^64 for infinities: sums over the channels of a row would not be finite.
    for sample in bytes.rchunks_exact_mut(4).take(4000 * CHANNELS) {
        let value = f32::from_le_bytes(sample.try_into().unwrap());
        if !value.is_finite() {
            let value: f32 = if value.is_nan() { 3e38 } else { -18_446_744_073_709_551_616.0 };
            sample.copy_from_slice(&value.to_le_bytes());
        }
    }
    let search = |name: &str| {
        let words = format!("search {name} -o {name}.out --dm-max 200 --no-plots");
        let output = sidereal(home.path(), &words);
        assert_eq!(code(&output), 0, "{}", stderr(&output));
        let told = stderr(&output);
        assert!(told.contains(&format!("{count} samples are not finite or")), "{told}");
        fs::read_to_string(home.path().join(format!("{name}.out/candidates.cand"))).unwrap()
    };
    let expected = search("bad.fil");
    fs::write(home.path().join("large.fil"), bytes).unwrap();
    assert_eq!(search("large.fil"), expected);
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
    assert_eq!(
        crate::common::entries(home.path()).len(),
        2,
        "{:?}",
        crate::common::entries(home.path())
    );
}

/// Sets a card of every header of a GUPPI raw file.
fn with_card(raw: &[u8], name: &str, value: &str) -> Vec<u8> {
    let key = format!("{name:<8}=");
    let at = raw.windows(key.len()).position(|word| word == key.as_bytes()).unwrap();
    let mut changed = raw.to_vec();
    changed[at..at + 30].copy_from_slice(format!("{key} {value:>20}").as_bytes());
    changed
}

/// Writes two antennas' files (name 0 and 1) of two blocks: 16 000 samples of `tsamp_s`, and as many `seconds` later.
fn gapped(folder: &Path, name: &str, tsamp_s: f64, seconds: f64) -> [String; 2] {
    let words = "simulate voltages one.raw -q --overwrite --freq 1500 --bandwidth 0.016 --coarse-channels 1 --duration 1 --seed 3";
    done(folder, words);
    let mut block = fs::read(folder.join("one.raw")).unwrap();
    for (card, value) in [("TBIN", tsamp_s), ("OBSBW", 1e-6 / tsamp_s), ("CHAN_BW", 1e-6 / tsamp_s)]
    {
        block = with_card(&block, card, &format!("{value:E}"));
    }
    let blocks = (seconds / (16_000.0 * tsamp_s)) as u64;
    let later = with_card(&block, "PKTIDX", &(16_000 * blocks).to_string());
    [0, 1].map(|antenna| {
        let name = format!("{name}{antenna}.raw");
        fs::write(folder.join(&name), [&*block, &*later].concat()).unwrap();
        name
    })
}

/// Positions of the antennas of [`gapped`].
fn positions(folder: &Path) {
    let table = "# telescope=test\nname,x,y,z\na,5109236.9,2006804.7,-3239104.1\nb,5109238.3,2006804.9,-3239101.5\n";
    fs::write(folder.join("ab.csv"), table).unwrap();
}

#[test]
fn long_gaps_of_voltages_are_filled_where_they_are_allowed() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path();
    positions(folder);
    let [long, other] = gapped(folder, "long", 62.5e-6, 62.5);
    let [short, _] = gapped(folder, "short", 62.5e-6, 59.5);
    let verbs = |file: &str| {
        [
            format!("info {file} --header"),
            format!("channelize {file} -o out.fil --channels 4"),
            format!("search {file} -o found --channels 4 --dm-max 5 --dm-step 5 --no-plots"),
            format!("dedisperse {file} -o series --channels 4 --dm-max 5 --dm-step 5"),
        ]
    };
    let correlate = format!(
        "correlate a={long} b={other} -o out.uvh5 --antennas ab.csv --drift --channels 4 --integration 10 --no-plots"
    );
    for words in verbs(&long).iter().chain([&correlate]) {
        let refused = sidereal(folder, words);
        fails(
            &refused,
            3,
            &["a gap of 61.000000 s", "above 60.000000 s", "--allow-gaps", "PKTIDX"],
        );
        done(folder, &format!("{words} --allow-gaps"));
    }
    let gaps = document(folder, "out.fil.gaps.json");
    assert!(gaps.to_string().contains("61.0"), "{gaps}");
    for words in &verbs(&short) {
        done(folder, &words.replace(" -o ", " --overwrite -o "));
    }
}

#[test]
fn products_are_bounded_by_free_space() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path();
    positions(folder);
    // A day of samples of 1 ns, nearly all of them a gap, would make products of 50 TB and more.
    let [long, other] = gapped(folder, "long", 1e-9, 80_000.0);
    let rates = "--rate 4096 --f-low 40 --psd aligo -q";
    fs::write(folder.join("t.csv"), "mass1,mass2\n30,30\n31,30\n32,30\n33,30\n").unwrap();
    done(folder, &format!("spiir bank t.csv -o bank.h5 {rates}"));
    // Numbers of strain that lie in a hole of the file.
    let strain = fs::File::create(folder.join("h1.npy")).unwrap();
    let text = "{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000000,), }";
    let header =
        [b"\x93NUMPY\x01\x00\x76\x00".as_slice(), format!("{text:<117}\n").as_bytes()].concat();
    (&strain).write_all(&header).unwrap();
    strain.set_len(header.len() as u64 + 4_000_000_000_000).unwrap();
    let before = crate::common::entries(folder);
    for words in [
        format!("channelize {long} -o out.fil --channels 16 --stokes IQUV --allow-gaps"),
        format!("channelize {long} -o out.dada --channels 16 --allow-gaps"),
        format!("dedisperse {long} -o series --channels 2 --dm-max 1 --dm-step 1 --allow-gaps"),
        format!(
            "correlate a={long} b={other} -o out.uvh5 --antennas ab.csv --drift --channels 1024 --integration 0.0002 \
             --no-plots --allow-gaps"
        ),
        "spiir filter H1=h1.npy --rate 4096 --start 1400000000 --bank bank.h5 -o out.h5 --psd aligo".to_owned(),
    ] {
        // Without the check, a run would end at the largest size of a file.
        let line = format!("trap '' XFSZ; ulimit -f 20000; exec {} {words}", program().display());
        let output = Command::new("sh").arg("-c").arg(line).current_dir(folder).output().unwrap();
        fails(&output, 4, &["are needed for it", "are free on its file system"]);
        assert_eq!(crate::common::entries(folder), before, "{words}");
    }
}

#[test]
fn a_limit_on_memory_shortens_blocks_and_changes_nothing() {
    let home = crate::common::recording();
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
    let home = crate::common::array::array("");
    let files = crate::common::array::files(&["ant00", "ant01", "ant02", "ant03"]);
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
