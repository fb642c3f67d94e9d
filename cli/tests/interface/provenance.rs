//! Provenance in products, and `rerun`, which repeats a run by it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;

use crate::common::{document, done, fails, json, program, recording, sidereal, strain};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

/// Runs a verb with SOURCE_DATE_EPOCH.
fn dated(folder: &Path, words: &str) {
    let mut command = Command::new(program());
    let command = command.args(words.split_whitespace()).current_dir(folder);
    let output = command.env("SOURCE_DATE_EPOCH", "86400").output().unwrap();
    assert!(output.status.success(), "{words}\n{}", crate::common::stderr(&output));
}

#[test]
fn a_product_tells_how_it_was_made() {
    let home = recording();
    let found = json(home.path(), "search a.fil -o s -q --no-plots --dm-max 100 --device cpu -t 1");
    assert_eq!(found, document(&home.path().join("s"), "summary.json"));
    assert_eq!(found["schema"], "sidereal/search/1");
    let told = &found["provenance"];
    assert_eq!((&told["program"], &told["verb"]), (&json!("sidereal"), &json!("search")));
    assert_eq!(told["version"], env!("CARGO_PKG_VERSION"));
    let given: BTreeSet<&str> =
        told["given"].as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect();
    assert_eq!(given, BTreeSet::from(["dm-max", "inputs", "no-plots"]));
    let options = &told["options"];
    assert_eq!((&options["dm-max"], &options["snr"]), (&json!(100), &json!(6)));
    assert_eq!((&options["no-plots"], &options["zero-dm"]), (&json!(true), &json!(false)));
    for name in ["threads", "output", "json", "device"] {
        assert!(options.get(name).is_none(), "{name} does not change results");
    }
    let bytes = fs::read(home.path().join("a.fil")).unwrap();
    let head = Sha256::digest(&bytes[..bytes.len().min(1 << 20)]);
    let sum: String = head.iter().map(|byte| format!("{byte:02x}")).collect();
    let input = json!([{"file": "a.fil", "bytes": bytes.len(), "head_sha256": sum}]);
    assert_eq!(told["inputs"], input);
    let run = &found["run"];
    assert!(run["date"].as_str().unwrap().starts_with("20"), "{run}");
    assert_eq!((&run["device"], &run["threads"]), (&json!("cpu"), &json!(1)));
    assert!(run["elapsed_s"].as_f64().unwrap() > 0.0 && run["host"].is_string());
    assert_eq!(run["command"].as_array().unwrap().len(), 14);
    let observation = &found["observation"];
    assert_eq!(
        (&observation["channels"], &observation["reference_mhz"]),
        (&json!(64), &json!(1500.0))
    );
}

#[test]
fn reproducible_products_are_the_same_bytes() {
    let home = recording();
    let runs = [("s", "-t 1"), ("t", "-t 2 --gulp 333"), ("u", "-t 2 --memory 1G")];
    for (out, more) in runs {
        done(home.path(), &format!("search a.fil -o {out} -q --dm-max 100 --reproducible {more}"));
        done(
            home.path(),
            &format!(
                "dedisperse a.fil -o d{out} -q --dm-max 50 --dm-step 10 --reproducible {more}"
            ),
        );
    }
    for (out, _) in &runs[1..] {
        for (folder, first) in [((*out).to_owned(), "s"), (format!("d{out}"), "ds")] {
            for name in crate::common::entries(&home.path().join(first)) {
                let read = |folder: &str| fs::read(home.path().join(folder).join(&name)).unwrap();
                assert!(read(first) == read(&folder), "{folder}/{name}");
            }
        }
    }
    let run = &document(&home.path().join("s"), "summary.json")["run"];
    assert_eq!(run, &json!({"date": "1970-01-01T00:00:00Z"}));
    dated(home.path(), "search a.fil -o v -q --no-plots --dm-max 100");
    let run = &document(&home.path().join("v"), "summary.json")["run"];
    assert_eq!(run, &json!({"date": "1970-01-02T00:00:00Z"}));
}

#[test]
fn a_product_can_be_made_again() {
    let home = recording();
    let (path, same) = (home.path(), "--reproducible -q");
    done(
        path,
        &format!(
            "search a.fil -o s --dm-max 100 --snr 7 --zap-chans 3:5,60 --no-auto-mask --no-plots {same}"
        ),
    );
    done(path, &format!("rerun s -o again {same}"));
    for name in crate::common::entries(&path.join("s")) {
        let read = |folder: &str| fs::read(path.join(folder).join(&name)).unwrap();
        assert!(read("s") == read("again"), "{name}");
    }
    fails(&sidereal(path, "rerun s"), 2, &["it exists", "--overwrite"]);
    done(path, &format!("rerun s/summary.json --overwrite {same}"));

    done(
        path,
        &format!(
            "simulate voltages v.raw --freq 400 --bandwidth 4 --duration 0.02 --seed 4 {same}"
        ),
    );
    // Headers have the file's name, so it is the same in another folder.
    fs::create_dir(path.join("sub")).unwrap();
    done(path, &format!("channelize v.raw -o c.fil --channels 16 --integrate 4 {same}"));
    done(path, &format!("rerun c.fil -o sub/c.fil {same}"));
    assert!(fs::read(path.join("c.fil")).unwrap() == fs::read(path.join("sub/c.fil")).unwrap());
    done(path, &format!("rerun v.raw -o w.raw {same}"));
    assert!(fs::read(path.join("v.raw")).unwrap() == fs::read(path.join("w.raw")).unwrap());

    // Another file under the same name.
    done(
        path,
        "simulate burst a.fil -q --overwrite --fch1 1500 --foff -4 --channels 64 --tsamp 1e-3 --duration 4",
    );
    fails(&sidereal(path, "rerun s -o more"), 2, &["a.fil", "found", "expected", "SHA-256"]);
    fails(&sidereal(path, "rerun s/candidates.csv"), 2, &["PRODUCT", "candidates.csv.json"]);
}

/// Texts of a PNG file's uncompressed iTXt chunks by their keywords, its chunks' checksums checked.
fn png_texts(path: &Path) -> BTreeMap<String, Value> {
    let bytes = fs::read(path).unwrap();
    assert!(bytes.starts_with(b"\x89PNG\r\n\x1a\n"));
    let (mut at, mut texts) = (8, BTreeMap::new());
    while at < bytes.len() {
        let length = u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
        let (kind, data) = (&bytes[at + 4..at + 8], &bytes[at + 8..at + 8 + length]);
        if kind == b"iTXt" {
            let parts: Vec<&[u8]> = data.splitn(2, |byte| *byte == 0).collect();
            // No compression, no language, no translated keyword.
            assert_eq!(parts[1][..4], [0; 4]);
            let keyword = String::from_utf8(parts[0].to_vec()).unwrap();
            texts.insert(keyword, serde_json::from_slice(&parts[1][4..]).unwrap());
        }
        at += 12 + length;
    }
    texts
}

#[test]
fn pictures_plans_and_candidates_for_fetch_tell_how_they_were_made() {
    let home = recording();
    let path = home.path();
    let same = "--reproducible -q";
    done(path, &format!("search a.fil -o s --dm-max 100 --snr 7 --fetch --png {same}"));
    let told = &document(path, "s/summary.json")["provenance"];
    let of = |end: &str| {
        let name =
            crate::common::entries(&path.join("s")).into_iter().find(|name| name.ends_with(end));
        format!("s/{}", name.unwrap())
    };
    for picture in [of("overview.png"), of("s.png")] {
        let texts = png_texts(&path.join(&picture));
        assert_eq!(&texts["provenance"], told, "{picture}");
        assert_eq!(texts["run"], json!({"date": "1970-01-01T00:00:00Z"}));
    }
    // Both stand in the files as they are.
    let candidate = fs::read(path.join(of(".h5"))).unwrap();
    let head = told["inputs"][0]["head_sha256"].as_str().unwrap();
    assert!(candidate.windows(head.len()).any(|bytes| bytes == head.as_bytes()));
    for (product, out) in [(of("overview.png"), "p"), (of(".h5"), "h")] {
        done(path, &format!("rerun {product} -o {out} {same}"));
        for name in crate::common::entries(&path.join("s")) {
            let read = |folder: &str| fs::read(path.join(folder).join(&name)).unwrap();
            assert!(read("s") == read(out), "{name} by {product}");
        }
    }
    fails(&sidereal(path, &format!("rerun {}", of("overview.png"))), 2, &["it exists"]);
    let again = json(path, &format!("rerun {} --overwrite", of("overview.png")));
    assert!(again["run"]["command"].is_array());
    for out in ["t", "u"] {
        done(path, &format!("search a.fil -o {out} --dm-max 100 --snr 7 {same}"));
    }
    let report = |out: &str| fs::read(path.join(out).join("report.html")).unwrap();
    assert!(report("t") == report("u"));

    done(path, &format!("plan a.fil --dm-max 100 --dm-tol 1.2 -o p.toml {same}"));
    let plan = fs::read_to_string(path.join("p.toml")).unwrap();
    assert!(plan.lines().any(|line| line.starts_with("# provenance: {")), "{plan}");
    assert!(plan.contains("# run: {\"date\":\"1970-01-01T00:00:00Z\"}"), "{plan}");
    done(path, &format!("rerun p.toml -o q.toml {same}"));
    assert_eq!(plan, fs::read_to_string(path.join("q.toml")).unwrap());
    let ranges = |words: &str| json(path, words)["ranges"].clone();
    assert_eq!(ranges("plan a.fil --plan q.toml"), ranges("plan a.fil --dm-max 100 --dm-tol 1.2"));
}

#[test]
fn printed_documents_tell_how_they_were_made() {
    let home = recording();
    let path = home.path();
    let info = json(path, "info a.fil --all");
    assert_eq!(info["provenance"]["options"]["all"], true);
    assert_eq!(
        info["provenance"]["inputs"][0]["bytes"],
        fs::metadata(path.join("a.fil")).unwrap().len()
    );
    let both = json(path, "info a.fil a.fil --header");
    assert_eq!(both[0]["provenance"]["inputs"].as_array().map(Vec::len), Some(2));
    let plan = json(path, "plan a.fil --dm-max 100");
    let plane = json(path, "bench plane");
    fs::write(path.join("plan.json"), plan.to_string()).unwrap();
    fs::write(path.join("both.json"), both.to_string()).unwrap();
    let rerun: Value = serde_json::from_str(&done(path, "rerun plan.json --json -q")).unwrap();
    assert_eq!((&rerun["ranges"], &rerun["provenance"]), (&plan["ranges"], &plan["provenance"]));
    let rerun: Value = serde_json::from_str(&done(path, "rerun both.json --json -q")).unwrap();
    assert_eq!(rerun[1]["provenance"], both[1]["provenance"]);
    fails(&sidereal(path, "rerun both.json -o x"), 2, &["--output", "info"]);
    let fixed = json(path, "info a.fil --reproducible");
    assert_eq!(fixed["run"], json!({"date": "1970-01-01T00:00:00Z"}));
    let made = [("info", info), ("info", both[1].clone()), ("plan", plan), ("bench", plane)];
    hold_to_schemas(path, made.into_iter().map(|(name, document)| (name.to_owned(), document)));
    for (kind, words) in [
        (
            "voltages",
            "simulate voltages v.raw -q --freq 400 --bandwidth 4 --duration 0.02 --seed 4",
        ),
        ("series", "dedisperse a.fil -o d -q --dm-min 60 --dm-max 60 --dm-step 1 --format tim"),
        ("strain", "simulate strain n.hdf5 -q --length 4 --rate 1024 --start 1000000000"),
    ] {
        done(path, words);
        let file = match kind {
            "voltages" => "v.raw".to_owned(),
            "series" => {
                let names = crate::common::entries(&path.join("d"));
                format!("d/{}", names.iter().find(|name| name.ends_with(".tim")).unwrap())
            }
            _ => {
                let names = crate::common::entries(path);
                names
                    .into_iter()
                    .find(|name| name.starts_with("n") && name.ends_with(".hdf5"))
                    .unwrap()
            }
        };
        let told = json(path, &format!("info {file}"));
        hold_to_schemas(path, std::iter::once(("info".to_owned(), told)));
    }
}

/// Documents of the products below, by the names of their schemas.
const MADE: [(&str, &str); 10] = [
    ("replot", "r/replot.json"),
    ("search", "s/summary.json"),
    ("dedisperse", "d/dedispersed.json"),
    ("channelize", "c.fil.json"),
    ("channelize", "c.raw.json"),
    ("correlate", "c.uvh5.json"),
    ("simulate-array", "array/truth.json"),
    ("simulate-burst", "a.fil.truth.json"),
    ("simulate-strain", "n.hdf5.truth.json"),
    ("simulate-voltages", "v.raw.truth.json"),
];

#[test]
fn documents_have_the_schema_that_they_name() {
    let home = recording();
    let path = home.path();
    done(path, "simulate voltages v.raw -q --freq 400 --bandwidth 4 --duration 0.02 --seed 4");
    done(
        path,
        "simulate array -o array -q --layout 3,300 --source 140,-20,200,Spot --sefd 100 --freq 150 --bandwidth 1 \
                --seconds 0.25 --start 2025-01-01T00:00:00 --seed 5",
    );
    done(path, "simulate strain n.hdf5 -q --length 4 --rate 1024 --start 1000000000");
    done(path, "search a.fil -o s -q --no-plots");
    done(path, "replot a.fil s/candidates.cand -o r -q");
    done(path, "dedisperse a.fil -o d -q --dm-max 50 --dm-step 10");
    done(path, "channelize v.raw -o c.fil -q --channels 16");
    done(path, "channelize v.raw -o c.raw -q --channels 16");
    done(
        path,
        "correlate array/ant00.dada array/ant01.dada array/ant02.dada --antennas array/antennas.csv -o c.uvh5 -q --channels 16 --integration 0.05",
    );
    let made = MADE.iter().map(|(name, file)| ((*name).to_owned(), document(path, file)));
    hold_to_schemas(path, made);
}

#[test]
fn documents_of_gravitational_waves_have_the_schema_that_they_name() {
    let home = strain::home(1024, 40, |_, _| {});
    let path = home.path();
    let files = "H1=h1.npy L1=l1.npy --rate 1024 --start 1400000000";
    let options = "--f-low 40 --lowest-rate 256";
    let bank = json(path, &format!("spiir bank binaries.csv -o bank.h5 --rate 1024 {options}"));
    let filtered = json(path, &format!("spiir filter {files} --bank bank.h5 -o snr.h5"));
    let search =
        format!("spiir search {files} --templates binaries.csv {options} -o found --no-plots");
    done(path, &format!("{search} -q"));
    let events = document(path, "found/events.json");
    assert_eq!(events["provenance"]["inputs"].as_array().map(Vec::len), Some(3));
    let table = fs::read_to_string(path.join("found/events.xml")).unwrap();
    assert!(table.contains("--templates") && table.contains("run: {"), "{table}");
    let made = [("spiir-bank", bank), ("spiir-filter", filtered), ("spiir-search", events)];
    hold_to_schemas(path, made.into_iter().map(|(name, document)| (name.to_owned(), document)));
}

#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
#[test]
fn documents_of_rings_have_the_schema_that_they_name() {
    let home = tempfile::tempdir().unwrap();
    let key = format!("{:x}", 0x6d0c_0002 + (std::process::id() % 0x3fff) * 2);
    let made = [
        ("ring", "create"),
        ("ring", "show"),
        ("ring-repair", "repair"),
        ("ring-destroy", "destroy"),
    ];
    let made = made
        .map(|(name, verb)| (name.to_owned(), json(home.path(), &format!("ring {verb} -k {key}"))));
    hold_to_schemas(home.path(), made.into_iter());
}

#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
#[test]
fn documents_of_streams_have_the_schema_that_they_name() {
    let home = crate::common::recording();
    // Nobody receives on the port for discarded data.
    let words = "send a.fil spead://127.0.0.1:9 --rate max --loss 0.2 --lost-list lost.csv";
    let made = [("send".to_owned(), json(home.path(), words))];
    hold_to_schemas(home.path(), made.into_iter());
}

/// Checks documents against the schemas of their names.
fn hold_to_schemas(folder: &Path, made: impl Iterator<Item = (String, Value)>) {
    let listed = done(folder, "schema");
    for (name, instance) in made {
        assert!(listed.lines().any(|line| line == name), "{listed}");
        let schema: Value = serde_json::from_str(&done(folder, &format!("schema {name}"))).unwrap();
        assert_eq!(instance["schema"], format!("sidereal/{name}/1"));
        let validator = jsonschema::validator_for(&schema).unwrap();
        let faults: Vec<String> =
            validator.iter_errors(&instance).map(|fault| fault.to_string()).collect();
        assert!(faults.is_empty(), "{name}: {faults:?}");
        // It is not one that any document passes.
        let mut lacking = instance;
        lacking.as_object_mut().unwrap().remove("provenance");
        assert!(!validator.is_valid(&lacking), "{name}");
    }
}
