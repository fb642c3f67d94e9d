//! Inputs compressed by gzip or Zstandard, which are read as what they hold.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use flate2::Compression;
use flate2::write::GzEncoder;
use ruzstd::encoding::{CompressionLevel, compress_to_vec};

use crate::common::{
    code, document, done, entries, fails, json, program, recording, sidereal, stderr,
};

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn zstandard(bytes: &[u8]) -> Vec<u8> {
    compress_to_vec(bytes, CompressionLevel::Fastest)
}

/// Makes folders in which a file has the same name, but is compressed: in two members by gzip, and by Zstandard.
fn packed(folder: &Path, name: &str) -> [&'static str; 2] {
    let bytes = fs::read(folder.join(name)).unwrap();
    let (first, second) = bytes.split_at(bytes.len() / 3);
    for (inner, packed) in
        [("gzip", [gzip(first), gzip(second)].concat()), ("zstd", zstandard(&bytes))]
    {
        fs::create_dir_all(folder.join(inner)).unwrap();
        fs::write(folder.join(inner).join(name), packed).unwrap();
    }
    ["gzip", "zstd"]
}

/// Checks that two products are the same, but for what they say of the file of their input.
fn same(a: &Path, b: &Path) {
    let read = |path: &Path| fs::read(path).unwrap();
    if a.is_file() {
        return assert!(read(a) == read(b), "{} {}", a.display(), b.display());
    }
    assert_eq!(entries(a), entries(b));
    for name in entries(a) {
        // Documents, reports and pictures have the provenance in them.
        if ![".png", ".html", ".json"].iter().any(|end| name.ends_with(end)) {
            assert!(read(&a.join(&name)) == read(&b.join(&name)), "{name}");
        }
    }
}

#[test]
fn products_are_those_of_the_plain_file() {
    let home = recording();
    let path = home.path();
    let words = [
        "search a.fil -o s --dm-max 100 --singlepulse --reproducible -q",
        "dedisperse a.fil -o d --dm-max 20 --dm-step 10 --reproducible -q",
    ];
    for inner in packed(path, "a.fil").into_iter().chain([""]) {
        words.iter().for_each(|words| drop(done(&path.join(inner), words)));
    }
    for inner in ["gzip", "zstd"] {
        same(&path.join("s"), &path.join(inner).join("s"));
        same(&path.join("d"), &path.join(inner).join("d"));
        let own = document(&path.join(inner).join("s"), "summary.json");
        let bytes = fs::metadata(path.join(inner).join("a.fil")).unwrap().len();
        assert_eq!(own["provenance"]["inputs"][0]["bytes"], bytes);
        let expected = document(&path.join("s"), "summary.json");
        for key in ["candidates", "observation", "plan", "masked_channels"] {
            assert_eq!(own[key], expected[key], "{key}");
        }
        assert_eq!(entries(&path.join(inner)), ["a.fil", "d", "s"].map(String::from).into());
    }
    // Names lose both endings.
    fs::rename(path.join("gzip/a.fil"), path.join("b.fil.gz")).unwrap();
    done(path, "search b.fil.gz --dm-max 100 --no-plots -q");
    assert!(path.join("b_search/summary.json").exists());
}

#[test]
fn every_format_may_be_compressed() {
    let home = recording();
    let path = home.path();
    let make = [
        "simulate voltages v.raw --freq 400 --bandwidth 4 --duration 0.02 --seed 4 -q",
        "simulate voltages v.dada --freq 400 --bandwidth 4 --duration 0.02 --seed 4 -q",
        "dedisperse a.fil -o d --dm-min 10 --dm-max 10 --dm-step 1 -q",
    ];
    make.iter().for_each(|words| drop(done(path, words)));
    fs::copy(path.join("d/dedispersed.npy"), path.join("d.npy")).unwrap();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    for (from, to) in [
        ("tests/fixtures/fbh5_deflate_u8.h5", "a.h5"),
        ("fuzz/seeds/psrfits/valid_bits_8.fits", "a.fits"),
        ("fuzz/seeds/gwf/valid_plain.gwf", "s.gwf"),
    ] {
        fs::copy(root.join(from), path.join(to)).unwrap();
    }
    for name in ["v.raw", "v.dada", "d.npy", "a.h5", "a.fits", "s.gwf"] {
        let words = format!("info {name}");
        let mut expected = json(path, &words);
        for inner in packed(path, name) {
            let mut found = json(&path.join(inner), &words);
            for document in [&mut found, &mut expected] {
                let document = document.as_object_mut().unwrap();
                document.remove("provenance");
                document.remove("run");
            }
            assert_eq!(found, expected, "{inner}/{name}");
        }
    }
    let words = "channelize v.raw -o c.fil --channels 16 --integrate 4 --reproducible -q";
    done(path, words);
    done(&path.join("zstd"), words);
    same(&path.join("c.fil"), &path.join("zstd/c.fil"));
}

#[test]
fn a_compressed_stream_is_read_as_it_arrives() {
    let home = recording();
    let path = home.path();
    let expected = json(path, "search a.fil -o file --dm-max 100 --no-plots");
    let piped = |bytes: &[u8], out: &str| {
        let mut child = Command::new(program())
            .args(format!("search - -o p_{out} --dm-max 100 --no-plots --json").split(' '))
            .current_dir(path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(bytes).unwrap();
        child.wait_with_output().unwrap()
    };
    for inner in packed(path, "a.fil") {
        let bytes = fs::read(path.join(inner).join("a.fil")).unwrap();
        let output = piped(&bytes, inner);
        assert_eq!(code(&output), 0, "{}", stderr(&output));
        let found: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(found["candidates"], expected["candidates"]);
    }
    // The part before the end of a stream that is cut is kept, as that of any stream that fails.
    let bytes = fs::read(path.join("gzip/a.fil")).unwrap();
    let output = piped(&bytes[..bytes.len() * 3 / 4], "cut");
    assert_eq!(code(&output), 3, "{}", stderr(&output));
    assert!(stderr(&output).contains("standard input: gzip (at byte "), "{}", stderr(&output));
    let summary = document(&path.join("p_cut"), "summary.json");
    assert_eq!(summary["complete"], false);
}

#[test]
fn cut_and_damaged_files_and_bombs_end_with_3() {
    let home = recording();
    let path = home.path();
    let bytes = fs::read(path.join("a.fil")).unwrap();
    for (ending, whole) in [("gz", gzip(&bytes)), ("zst", zstandard(&bytes))] {
        fs::write(path.join(format!("cut.fil.{ending}")), &whole[..whole.len() / 2]).unwrap();
        let mut damaged = whole.clone();
        let middle = damaged.len() / 2;
        damaged[middle..middle + 64].fill(0xff);
        fs::write(path.join(format!("damaged.fil.{ending}")), damaged).unwrap();
    }
    let header = &bytes[..bytes.len() - 64 * 4000];
    let mut bomb =
        GzEncoder::new(File::create(path.join("bomb.fil.gz")).unwrap(), Compression::best());
    bomb.write_all(header).unwrap();
    let zeros = vec![0; 1 << 20];
    (0..128).for_each(|_| bomb.write_all(&zeros).unwrap());
    bomb.finish().unwrap();
    let before = entries(path);
    for verb in ["info", "search", "dedisperse"] {
        for (name, words) in [
            ("cut.fil.gz", &["gzip (at byte ", "ends within"][..]),
            ("cut.fil.zst", &["Zstandard (at byte ", "ends within"]),
            ("damaged.fil.gz", &["gzip (at byte "]),
            ("damaged.fil.zst", &["Zstandard (at byte "]),
            (
                "bomb.fil.gz",
                &["expected at most 100 for each and 67108864", "--unpack-ratio raises"],
            ),
        ] {
            let output = sidereal(path, &format!("{verb} {name}"));
            fails(&output, 3, &[&[name], words].concat());
        }
    }
    assert_eq!(entries(path), before);
    done(path, "info bomb.fil.gz --unpack-ratio 10000 -q");
}
