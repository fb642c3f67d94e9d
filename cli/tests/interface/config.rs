//! Options from a file and from presets: precedence, round trips, provenance, and errors.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::common::{
    array, document, done, entries, fails, json, recording, sidereal, stderr, stdout,
};

/// Checks that two folders hold the same files.
fn are_same(home: &Path, one: &str, other: &str) {
    let names = entries(&home.join(one));
    assert_eq!(names, entries(&home.join(other)));
    for name in names {
        let read = |folder: &str| fs::read(home.join(folder).join(&name)).unwrap();
        assert!(read(one) == read(other), "{one}/{name}");
    }
}

fn write(home: &Path, name: &str, text: &str) {
    fs::write(home.join(name), text).unwrap();
}

#[test]
fn a_file_makes_the_run_of_the_same_options() {
    let home = recording();
    let path = home.path();
    let text = "device = \"cpu\"\nreproducible = true\n\n[search]\ndm-max = 100\nsnr = 7.0\n\
                zap-chans = [\"3:5\", \"60\"]\nno-plots = true\noutput = \"b\"\nthreads = 1\n\n[dedisperse]\ndm-step = 5\n";
    write(path, "c.toml", text);
    let words = "--device cpu --reproducible --dm-max 100 --zap-chans 3:5,60 --no-plots -t 1 -q";
    done(path, &format!("search a.fil -o a {words} --snr 7.0"));
    done(path, "search a.fil -q --config c.toml");
    are_same(path, "a", "b");
    // The command line wins, also above the verb.
    done(path, "--threads 2 search a.fil -q --config c.toml --snr 9 -o c");
    let options = &document(&path.join("c"), "summary.json")["provenance"]["options"];
    assert_eq!((&options["snr"], &options["dm-max"]), (&json!(9), &json!(100)));
    assert_eq!(options["zap-chans"], "3:5,60");
    done(path, "search a.fil -q --config c.toml --zap-chans 7 -o d");
    let told = &document(&path.join("d"), "summary.json")["provenance"];
    assert_eq!(told["options"]["zap-chans"], json!(7));
    assert!(told["options"].get("config").is_none());
    let given: Vec<&str> =
        told["given"].as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect();
    assert!(given.contains(&"dm-max") && given.contains(&"no-plots"), "{given:?}");
    // A product is made again without the file.
    fs::remove_file(path.join("c.toml")).unwrap();
    done(path, "rerun b -o e -q --device cpu --reproducible -t 1");
    are_same(path, "b", "e");
}

#[test]
fn printed_options_make_the_same_run() {
    let home = recording();
    let path = home.path();
    done(path, "plan a.fil --dm-max 40 --dm-step 10 --toml plan.toml -q");
    done(path, "simulate voltages v.raw --freq 400 --bandwidth 4 --duration 0.02 --seed 4 -q");
    for (verb, options) in [
        ("search a.fil", "--dm-max 100 --snr 7.5 --zero-dm --no-plots --device cpu"),
        ("search a.fil", "--ranges 0:50:1 --zap-chans 3:5,60 --no-plots"),
        ("search a.fil", "--plan plan.toml --no-plots --max-width 0.05"),
        ("search v.raw", "--channels 16 --coherent-dm 2.5 --dm-max 10 --no-plots"),
        ("search a.fil", "--preset askap-craft --dm-max 90 --no-plots"),
        ("dedisperse a.fil", "--dm-max 20 --dm-step 5 --time-range 0.5:3 --auto-mask"),
        ("plan", "--telescope askap --ddplan"),
        ("info a.fil v.raw", "--header"),
    ] {
        let writes = verb != "plan" && !verb.starts_with("info");
        let same = "--reproducible -q";
        let (first, second) = match writes {
            true => ("-o one", "-o two"),
            false => ("--json", "--json"),
        };
        let line = format!("{verb} {options} {same}");
        let text = done(path, &format!("{line} --print-config"));
        write(path, "c.toml", &text);
        let one = done(path, &format!("{line} {first}"));
        let two = done(path, &format!("{verb} {second} --config c.toml"));
        if writes {
            are_same(path, "one", "two");
            fs::remove_dir_all(path.join("one")).unwrap();
            fs::remove_dir_all(path.join("two")).unwrap();
        }
        let (one, two) = (one.replace("one", "two"), two);
        assert_eq!(one, two, "{line}");
        // The second run would print the same.
        let again = done(path, &format!("{verb} --config c.toml --print-config"));
        assert_eq!(again, text, "{line}");
    }
}

#[test]
fn printed_options_are_complete_and_need_no_input() {
    let home = tempfile::tempdir().unwrap();
    let text = done(home.path(), "search --dm-max 500 --print-config");
    let table: toml::Table = text.parse().unwrap();
    let search = table["search"].as_table().unwrap();
    assert_eq!((search["dm-max"].as_integer(), search["snr"].as_integer()), (Some(500), Some(6)));
    assert_eq!(
        (search["zero-dm"].as_bool(), search["device"].as_str()),
        (Some(false), Some("auto"))
    );
    // Options without a value are named, and all others have one.
    let help = stdout(&sidereal(home.path(), "search --help"));
    for name in help.lines().filter_map(|line| line.trim().split("--").nth(1)) {
        let name = name.split([' ', ',', '`', ')']).next().unwrap();
        let line = help.lines().any(|line| line.trim_start().starts_with(&format!("--{name}")));
        if line && !["config", "print-config"].contains(&name) {
            let is_named = search.contains_key(name) || text.contains(&format!("\n# {name}\n"));
            assert!(is_named, "{name} is not in {text}");
        }
    }
    fails(&sidereal(home.path(), "search --snr x --print-config"), 2, &["--snr"]);
    assert!(entries(home.path()).is_empty());
}

#[test]
fn lists_of_repeated_options_come_back() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path();
    let line = "simulate burst x.fil -q --reproducible --fch1 1500 --foff -4 --channels 16 --tsamp 1e-3 --duration 1 \
                --burst dm=5,time=0.3 --burst dm=9,time=0.6,width=0.01";
    let text = done(path, &format!("{line} --print-config"));
    assert!(text.contains("burst = [\"dm=5,time=0.3\", \"dm=9,time=0.6,width=0.01\"]"), "{text}");
    write(path, "c.toml", &text);
    done(path, line);
    done(path, "simulate burst y.fil --config c.toml");
    let header = |name: &str| json(path, &format!("info {name}"))["statistics"].clone();
    assert_eq!(header("x.fil"), header("y.fil"));
    done(path, "simulate burst z.fil --config c.toml --burst dm=7,time=0.5");
    let truth = document(path, "z.fil.truth.json");
    assert_eq!(truth["provenance"]["options"]["burst"], json!(["dm=7,time=0.5"]));
}

#[test]
fn presets_give_way_and_are_recorded() {
    let home = recording();
    let path = home.path();
    let run = |words: &str, out: &str| -> Value {
        done(path, &format!("search a.fil -q --no-plots -o {out} {words}"));
        document(&path.join(out), "summary.json")["provenance"].clone()
    };
    let told = run("--preset askap-craft", "a");
    let options = &told["options"];
    assert_eq!(
        (&options["preset"], &options["dm-max"], &options["snr"], &options["max-width"]),
        (&json!("askap-craft"), &json!(3763), &json!(9.5), &json!(0.0405))
    );
    write(path, "c.toml", "[search]\nsnr = 12\npreset = \"parkes-superb-f\"\n");
    let told = run("--preset askap-craft --config c.toml --max-width 0.02", "b");
    let options = &told["options"];
    assert_eq!(
        (&options["preset"], &options["dm-max"], &options["snr"], &options["max-width"]),
        (&json!("askap-craft"), &json!(3763), &json!(12), &json!(0.02))
    );
    let told = run("--config c.toml", "c");
    let options = &told["options"];
    assert_eq!((&options["dm-max"], &options["snr"]), (&json!(2000), &json!(12)));
    done(path, "rerun a -q -o d");
    assert_eq!(document(&path.join("d"), "summary.json")["provenance"]["options"]["snr"], 9.5);
    let list = done(path, "search --preset list");
    for text in ["askap-craft: ASKAP", "--dm-max=3763", "source of snr: github.com/FRBs/zdm"] {
        assert!(list.contains(text), "{text} is not in {list}");
    }
    assert_eq!(list, done(path, "correlate --preset list"));
    let words = "search a.fil --preset askap";
    fails(&sidereal(path, words), 2, &["--preset is askap", "list or one of", "askap-craft"]);
    fails(&sidereal(path, "correlate --preset gmrt"), 2, &["options of search, none of correlate"]);
    fails(&sidereal(path, "info a.fil --preset gmrt"), 2, &["--preset"]);
}

#[test]
fn presets_of_voltages_run() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path();
    let words = "simulate voltages v.raw --freq 600 --bandwidth 3.125 --coarse-channels 8 --duration 0.02 -q";
    done(path, words);
    done(path, "channelize v.raw -o c.fil -q --preset chime-frb");
    let info = json(path, "info c.fil --header");
    assert_eq!(info["channels"], 128, "8 recorded channels of 16");
    let tsamp_s = info["tsamp_s"].as_f64().unwrap();
    assert!((tsamp_s - 128.0 * 3.0 * 2.56e-6).abs() < 1e-12, "{tsamp_s}");
    let home = array::array("");
    let path = home.path();
    let files = array::files(&["ant00", "ant01", "ant02", "ant03"]);
    let words = format!(
        "correlate {files} --antennas array/antennas.csv -o m.uvh5 --no-plots --preset mwax --channels 640 \
         --average-channels 5 --integration 0.05 --device cpu"
    );
    let told = json(path, &words);
    let options = &told["provenance"]["options"];
    assert_eq!(
        (&options["taps"], &options["window"], &options["average-channels"]),
        (&json!(1), &json!("rectangular"), &json!(5))
    );
}

#[test]
fn mistakes_are_errors_that_name_file_line_and_key() {
    let home = recording();
    let path = home.path();
    for (text, told) in [
        (
            "[search]\n\ndm-mx = 5\n",
            "c.toml: line 3: search.dm-mx: `sidereal search` has no option of this name; the nearest is dm-max",
        ),
        ("[dedisperse]\nsnr = 5\n", "line 2: dedisperse.snr: `sidereal dedisperse` has no option"),
        ("[search]\nsnr = \"x\"\n", "line 2: search.snr: invalid value 'x' for '--snr <S/N>'"),
        ("[search]\nsnr = 5\n snr", "line 3: it is not TOML"),
    ] {
        write(path, "c.toml", text);
        let run = sidereal(path, "search a.fil --config c.toml -o out");
        fails(&run, 3, &[told]);
    }
    fails(&sidereal(path, "search a.fil --config none.toml"), 1, &["none.toml", "No such file"]);
    fs::write(path.join("c.toml"), b"[search]\n# \xff\n").unwrap();
    fails(&sidereal(path, "search a.fil --config c.toml"), 3, &["c.toml", "not UTF-8"]);
    // Options that exclude one another are named with their origin.
    write(path, "c.toml", "[search]\nplan = \"p.toml\"\ndm-max = 3\n");
    let run = sidereal(path, "search a.fil --config c.toml");
    fails(&run, 2, &["cannot be used with", "Options of --config and --preset: "]);
    assert!(stderr(&run).contains("--plan=p.toml"), "{}", stderr(&run));
    // Options before and after the verb, and inputs after --.
    write(path, "c.toml", "[info]\nheader = true\n");
    let after: Value =
        serde_json::from_str(&done(path, "--config c.toml info --json -- a.fil")).unwrap();
    assert!(after["statistics"].is_null() && after["channels"] == 64, "{after}");
    assert!(json(path, "info --config=c.toml a.fil")["statistics"].is_null());
}
