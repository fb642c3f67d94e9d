//! `spiir`: banks, ratios and events from strain, and what is refused.

use std::fs;
use std::path::Path;

use crate::common::{document, done, entries, fails, json, sidereal, stderr, strain};
use serde_json::Value;
use sidereal::io::npy;
use sidereal::strain::Binary;
use sidereal::waveform::{Approximant, InspiralOptions, inspiral};
use tempfile::TempDir;

const RATE_HZ: u32 = 2048;
const STRAIN: &str = "H1=h1.npy L1=l1.npy --rate 2048 --start 1400000000";
const TEMPLATES: &str = "--templates binaries.csv --f-low 40 --lowest-rate 256 --threshold 3.5";

/// White noise with a wave in it, at both detectors.
fn home() -> TempDir {
    let approximant = Approximant::IMRPhenomD;
    let options =
        InspiralOptions { approximant, f_low_hz: 40.0, rate_hz: RATE_HZ, ..Default::default() };
    let wave = inspiral(&Binary::of_masses(30.0, 30.0), &options).unwrap();
    let power: f64 = wave.samples.iter().map(|h| h.re * h.re).sum();
    strain::home(RATE_HZ, 24, |name, strain| {
        let at = if name == "h1.npy" { 20_000 } else { 20_008 };
        for (x, h) in strain[at..].iter_mut().zip(&wave.samples) {
            *x += (15.0 * h.re / power.sqrt()) as f32;
        }
    })
}

/// Without a file of templates, a range of masses places them, for a bank and for a search.
#[test]
fn templates_are_placed_for_ranges_of_masses() {
    let home = home();
    let design = "--f-low 40 --lowest-rate 256";
    let space = "--masses 26:34 --spins=-0.2:0.2";
    let bank = format!("spiir bank {space} --rate 2048 {design}");
    let told = json(home.path(), &format!("{bank} -o bank.h5"));
    let placement = &told["placement"];
    let count = placement["templates"].as_u64().unwrap();
    assert!((5..60).contains(&count), "{placement}");
    assert_eq!(told["templates"].as_array().unwrap().len() as u64, count);
    let (points, above) = (&placement["points"], &placement["points_above"]);
    assert!(above.as_f64().unwrap() >= 0.96 * points.as_f64().unwrap(), "{placement}");
    assert!(placement["lowest_match"].as_f64().unwrap() > 0.9, "{placement}");
    let list = fs::read_to_string(home.path().join("bank.h5.csv")).unwrap();
    assert_eq!(list.lines().count() as u64, count + 1);
    // The list is a file of templates, and gives the same bank.
    let again = format!("spiir bank bank.h5.csv --rate 2048 {design} -o again.h5");
    assert_eq!(json(home.path(), &again)["templates"], told["templates"]);
    // Fewer match is needed, fewer templates are there.
    let coarse =
        json(home.path(), &format!("{bank} -o coarse.h5 --min-match 0.9 --check-points 0"));
    assert!(coarse["placement"]["templates"].as_u64().unwrap() < count);
    assert_eq!(coarse["placement"]["lowest_match"], Value::Null);

    let words =
        format!("spiir search {STRAIN} {space} {design} --threshold 3.5 --no-plots -o found");
    let event = &json(home.path(), &words)["events"][0];
    assert!(event["network_snr"].as_f64().unwrap() > 17.5, "{event}");
    assert!(entries(&home.path().join("found")).contains("bank_L1.h5"));

    let bad = [
        ("--masses 34:26", "must not be above"),
        ("--masses 26", "cannot be used with"),
        ("--spins 0.1", "--masses"),
        ("--masses 26:34 --spins=-2:2", "-0.99 to 0.99"),
        ("--masses 26:34 --min-match 1", "--min-match"),
        ("--masses 26:34 --max-templates 2", "most templates is 2"),
        ("--masses 26:34 --total-mass 5:6", "no binary"),
        ("", "TEMPLATES"),
    ];
    for (words, expected) in bad {
        let templates = if expected.starts_with("cannot") { "bank.h5.csv" } else { "" };
        let words = format!("spiir bank {templates} {words} --rate 2048 {design} -o none.h5");
        fails(&sidereal(home.path(), &words), 2, &[expected]);
        assert!(!home.path().join("none.h5").exists() && !home.path().join("none.h5.csv").exists());
    }
}

/// Light binaries are inspirals, heavy ones merge, and all that is made of them says so.
#[test]
fn each_template_has_the_waveform_of_its_mass() {
    let home = home();
    let masses = "mass1,mass2,spin1z\n1.4,1.4,0\n3,1.2,0\n20,15,0.9\n";
    fs::write(home.path().join("masses.csv"), masses).unwrap();
    let approximants = |told: &Value| -> Vec<String> {
        let rows = told["templates"].as_array().unwrap().iter();
        rows.map(|row| row["approximant"].as_str().unwrap_or_default().to_owned()).collect()
    };
    let bank = "spiir bank masses.csv --rate 2048 --f-low 60 --lowest-rate 256 --overwrite";
    let usual = ["TaylorT4", "IMRPhenomD", "IMRPhenomD"];
    let done = sidereal(home.path(), &format!("{bank} -o bank.h5 --json"));
    let warned = stderr(&done);
    assert!(warned.contains("1 waveform of IMRPhenomD beyond its calibration"), "{warned}");
    assert!(warned.contains("20+15_0.9_0"), "{warned}");
    assert_eq!(approximants(&serde_json::from_slice(&done.stdout).unwrap()), usual);
    // The file keeps it.
    assert_eq!(approximants(&json(home.path(), "info bank.h5")), usual);
    for name in ["TaylorT4", "imrphenomd"] {
        let told = json(home.path(), &format!("{bank} -o other.h5 --approximant {name}"));
        assert!(approximants(&told).iter().all(|found| found.eq_ignore_ascii_case(name)), "{told}");
    }
    fs::write(home.path().join("masses.csv"), "mass1,mass2,spin1z\n20,15,0.995\n").unwrap();
    fails(&sidereal(home.path(), &format!("{bank} -o bank.h5")), 2, &["0.995", "-0.99 to 0.99"]);
}

fn is_hdf5(path: &Path) -> bool {
    fs::read(path).unwrap().starts_with(b"\x89HDF\r\n\x1a\n")
}

#[test]
fn a_search_finds_the_wave_and_leaves_its_files() {
    let home = home();
    let told = json(home.path(), &format!("spiir search {STRAIN} {TEMPLATES} -o found"));
    let found = home.path().join("found");
    assert_eq!(told, document(&found, "events.json"));
    let names = entries(&found);
    for name in ["events.xml", "snr.h5", "bank_H1.h5", "report.html"] {
        assert!(names.contains(name), "{name} is not in {names:?}");
    }
    assert!(!names.iter().any(|name| name.ends_with(".png")), "{names:?}");
    let page = fs::read_to_string(found.join("report.html")).unwrap();
    assert!(
        page.contains("<h3>events</h3>") && page.matches("<figure class=\"drawn\">").count() > 3
    );
    assert!(is_hdf5(&found.join("snr.h5")));
    let event = &told["events"][0];
    let number = |path: &str| event.pointer(path).and_then(Value::as_f64).unwrap_or(f64::NAN);
    assert!((18.0..25.0).contains(&number("/network_snr")), "{event}");
    let late = number("/detectors/L1/gps") - number("/detectors/H1/gps");
    assert!((late - 8.0 / 2048.0).abs() < 1e-3, "{late}");
    assert!(number("/detectors/H1/xi2") < 3.0 && number("/detectors/H1/phase").abs() < 3.2);
    assert!(number("/far_hz") > 0.0 && number("/far_sigma") > 0.0);
    let yearly = number("/far_per_year") / number("/far_hz");
    assert!((yearly - 365.25 * 86400.0).abs() < 1.0, "{yearly}");
    assert_eq!(event["template"].as_str(), Some("30+30"));
    assert_eq!((number("/binary/mass1"), number("/binary/spin2z")), (30.0, 0.0), "{event}");
    assert_eq!(event["approximant"], "IMRPhenomD");
    assert_eq!(told["detectors"][0]["approximants"]["IMRPhenomD"].as_u64(), Some(2));
    let latency = told["latency_s"]["total"].as_f64().unwrap();
    assert!((1.0..30.0).contains(&latency), "{latency}");
    let background = told["histogram"]["background"].as_array().unwrap();
    assert_eq!(told["histogram"]["edges"].as_array().unwrap().len(), background.len() + 1);
    assert!(background.iter().map(|count| count.as_u64().unwrap()).sum::<u64>() > 0);
    // The report draws all of this from the products, with the template, so that it needs none of the pictures.
    done(home.path(), "report found -q --overwrite");
    let html = fs::read_to_string(found.join("report.html")).unwrap();
    for name in ["H1", "L1"] {
        for what in ["S/N", "whitened strain, 30 to 400 Hz", "energy of whitened strain"] {
            assert!(
                html.contains(&format!("<figcaption>Event 1, {name}: {what} (S/N ")),
                "{name} {what}"
            );
        }
    }
    assert!(html.contains("■ template</li>"));
    assert!(html.contains("of time slides by ranking (bars)") && !html.contains("<img "));
    done(
        home.path(),
        &format!("spiir search {STRAIN} {TEMPLATES} -o found -q --overwrite --no-plots"),
    );
    // Another number of samples at once changes nothing.
    let again = json(
        home.path(),
        &format!("spiir search {STRAIN} {TEMPLATES} -o again --gulp 999 --no-plots"),
    );
    assert_eq!(again["events"], told["events"]);
    // The banks that it made give the same.
    let banks = "--threshold 3.5 --bank found/bank_H1.h5 --bank found/bank_L1.h5";
    let again = json(home.path(), &format!("spiir search {STRAIN} {banks} -o banks --no-plots"));
    assert_eq!(again["events"], told["events"]);
    let about = json(home.path(), "info found/bank_H1.h5");
    assert_eq!(about["templates"].as_array().map(Vec::len), Some(2));
}

#[test]
fn templates_that_are_turned_for_a_whitener_are_in_no_file() {
    let home = home();
    let words =
        format!("spiir search {STRAIN} {TEMPLATES} --whitening minimum-phase -o found --no-plots");
    let told = json(home.path(), &words);
    assert!((18.0..25.0).contains(&told["events"][0]["network_snr"].as_f64().unwrap()));
    let names = entries(&home.path().join("found"));
    assert!(
        names.contains("snr.h5") && !names.iter().any(|name| name.starts_with("bank_")),
        "{names:?}"
    );
}

#[test]
fn a_bank_is_told_and_filters_strain() {
    let home = home();
    let bank = "spiir bank binaries.csv -o bank.h5 --rate 2048 --f-low 40 --lowest-rate 256";
    let told = json(home.path(), bank);
    for template in told["templates"].as_array().unwrap() {
        assert!(template["match"].as_f64().unwrap() >= 0.97, "{template}");
        assert!(template["horizon_mpc"].as_f64().unwrap() > 100.0, "{template}");
        let rates = template["rates"].as_array().unwrap().iter();
        let filters: u64 = rates.map(|rate| rate["filters"].as_u64().unwrap()).sum();
        assert_eq!(Some(filters), template["filters"].as_u64());
    }
    assert!(done(home.path(), "info bank.h5").contains("30+30     IMRPhenomD"));
    let white = "spiir filter H1=h1.npy --rate 2048 --start 1400000000 --bank bank.h5 -o snr.h5";
    let told = json(home.path(), white);
    assert!(is_hdf5(&home.path().join("snr.h5")));
    assert_eq!(told["detectors"][0]["samples"].as_u64(), Some(24 * 2048));
    assert!(told["detectors"][0]["largest"].as_f64().unwrap() > 5.0);
    fails(&sidereal(home.path(), white), 2, &["it exists"]);
    for (words, file) in [
        ("filter H1=h1.npy --rate 2048 --start 1400000000 --bank bank.h5 -o h1.npy", "h1.npy"),
        ("filter H1=h1.npy --rate 2048 --start 1400000000 --bank H1=bank.h5 -o bank.h5", "bank.h5"),
        ("bank binaries.csv -o binaries.csv", "binaries.csv"),
        ("bank binaries.csv --psd h1.npy -o h1.npy", "h1.npy"),
    ] {
        let before = fs::read(home.path().join(file)).unwrap();
        let told = sidereal(home.path(), &format!("spiir {words} --overwrite"));
        fails(&told, 2, &[file, "is read"]);
        assert!(fs::read(home.path().join(file)).unwrap() == before, "{words}");
    }
    let short = format!("{white} --overwrite --time-range :0.2 --psd aligo");
    fails(&sidereal(home.path(), &short), 2, &["longer than the data of H1"]);
}

#[test]
fn a_template_that_misses_the_match_is_left_out_of_all_detectors_and_told() {
    let home = home();
    let folder = home.path();
    fs::write(folder.join("long.csv"), "name,mass1,mass2\nlong,1.4,1.4\n30+30,30,30\n").unwrap();
    let words = TEMPLATES.replace("binaries.csv", "long.csv").replace("--f-low 40", "--f-low 30");
    let told = json(folder, &format!("spiir search {STRAIN} {words} -o found --no-plots"));
    assert_eq!(told["events"][0]["template"], "30+30");
    for detector in told["detectors"].as_array().unwrap() {
        assert_eq!(detector["templates"], 1);
        let left_out = &detector["left_out"][0];
        assert_eq!(left_out["name"], "long");
        let reason = left_out["reason"].as_str().unwrap();
        assert!(reason.contains("24 s"), "{reason}");
    }
    // Below the floor a template is left out; above it, it is kept and told.
    let bank = "spiir bank binaries.csv --overwrite --rate 2048 --f-low 40 -o";
    let floor =
        |words: &str| json(folder, &format!("{bank} one.h5 --match 0.9999 --match-floor {words}"));
    let told = floor("0.9");
    assert_eq!(told["below_match"].as_array().unwrap().len(), 2, "{told}");
    assert!(told["left_out"].as_array().unwrap().is_empty(), "{told}");
    let templates = told["templates"].as_array().unwrap();
    let fits = templates.iter().map(|one| one["match"].as_f64().unwrap());
    let least = fits.fold(1.0, f64::min) + 1e-9;
    let told = floor(&least.to_string());
    assert_eq!(told["templates"].as_array().unwrap().len(), 1, "{told}");
    assert!(told["left_out"][0]["match"].as_f64().unwrap() < least, "{told}");
    let text = done(folder, &format!("{bank} one.h5 --match 0.9999 --match-floor {least}"));
    assert!(text.contains("1 template left out") && text.contains("1 template kept"), "{text}");
    // The file remembers it: a bank of all templates for another detector is searched with the one that is left.
    done(folder, &format!("{bank} both.h5"));
    let words = format!("{STRAIN} --bank H1=one.h5 --bank L1=both.h5 -o banks --no-plots");
    let told = json(folder, &format!("spiir search {words}"));
    assert_eq!(told["detectors"][1]["templates"], 1, "{told}");
    let reason = told["detectors"][1]["left_out"][0]["reason"].as_str().unwrap();
    assert!(reason.contains("H1"), "{reason}");
    let none = sidereal(folder, &format!("{bank} one.h5 --match 0.9999 --match-floor 0.99989"));
    fails(&none, 1, &["any of 2 templates"]);
}

#[test]
fn a_running_spectrum_says_what_it_learns_from() {
    let home = home();
    let run = |psd: &str| {
        let words = format!("spiir search {STRAIN} {TEMPLATES} --psd {psd} -o {psd} --no-plots");
        stderr(&sidereal(home.path(), &words))
    };
    let told = run("running");
    assert!(told.contains("first 18 s of the 24 s of H1"), "{told}");
    assert!(told.contains("--psd welch"), "{told}");
    assert!(!run("welch").contains("learns"));
}

#[test]
fn a_folder_with_what_is_read_is_not_replaced() {
    let home = home();
    let folder = home.path();
    fs::create_dir(folder.join("found")).unwrap();
    done(folder, "spiir bank binaries.csv -o found/b.h5 --rate 2048 --f-low 40 --lowest-rate 256");
    fs::copy(folder.join("binaries.csv"), folder.join("found/t.csv")).unwrap();
    fs::write(folder.join("found/psd.txt"), "0 1e-46\n2048 1e-46\n").unwrap();
    let before = entries(&folder.join("found"));
    for words in [
        "--bank found/b.h5",
        "--bank H1=found/b.h5 --bank L1=found/b.h5",
        "--templates found/t.csv --f-low 40",
        "--templates binaries.csv --f-low 40 --psd found/psd.txt",
    ] {
        let search = format!("spiir search {STRAIN} {words} -o found --no-plots --overwrite");
        fails(&sidereal(folder, &search), 2, &["found", "is read"]);
        assert_eq!(entries(&folder.join("found")), before, "{words}");
    }
}

#[test]
fn the_place_and_the_device_are_looked_at_before_strain_is_read() {
    let home = tempfile::tempdir().unwrap();
    fs::create_dir(home.path().join("found")).unwrap();
    fs::write(home.path().join("snr.h5"), "1").unwrap();
    let search = "spiir search H1=nowhere.npy --templates nowhere.csv";
    fails(&sidereal(home.path(), &format!("{search} -o found")), 2, &["found", "it exists"]);
    let filter = "spiir filter H1=nowhere.npy --bank nowhere.h5";
    fails(&sidereal(home.path(), &format!("{filter} -o snr.h5")), 2, &["snr.h5", "it exists"]);
    for words in [search, filter] {
        fails(&sidereal(home.path(), &format!("{words} -o out --device cuda:77")), 1, &["CUDA"]);
        assert!(!home.path().join("out").exists());
    }
}

#[test]
fn nonsense_is_one_clear_error() {
    let home = home();
    let folder = home.path();
    fs::write(folder.join("light.csv"), "mass1,mass2\n800,800\n").unwrap();
    done(folder, "spiir bank binaries.csv -o other.h5 --rate 4096 --f-low 40 --lowest-rate 512");
    npy::write_f32(&folder.join("zero.npy"), &[65_536], &[0.0; 65_536]).unwrap();
    let search = |more: &str| sidereal(folder, &format!("spiir search {more} -o out"));
    let cases: [(String, &[&str]); 13] = [
        (format!("{STRAIN} --bank other.h5"), &["made for strain of 4096 Hz"]),
        (format!("{STRAIN} {TEMPLATES} --quality x --time-range 30:"), &["--time-range"]),
        (format!("{STRAIN} --templates light.csv --f-low 40"), &["40"]),
        (format!("{STRAIN} {TEMPLATES} --f-high 3000"), &["--f-high"]),
        (format!("{STRAIN} {TEMPLATES} --psd nowhere.txt"), &["--psd", "nowhere.txt"]),
        (format!("{STRAIN} {TEMPLATES} --threshold 0"), &["--threshold"]),
        (format!("{STRAIN} {TEMPLATES} --match 1.5"), &["--match"]),
        (format!("{STRAIN} --bank other.h5 --whitening minimum-phase"), &["phases"]),
        (format!("{STRAIN} {TEMPLATES} --psd aligo --gate 3"), &["H1 has 0 of 24 s", "gates"]),
        (format!("h1.npy --rate 2048 --start 1400000000 {TEMPLATES}"), &["say NAME=FILE"]),
        (
            format!("H1=zero.npy --rate 2048 --start 1400000000 {TEMPLATES}"),
            &["strain of H1, zero.npy"],
        ),
        (
            format!("h1.npy --rate 2048 --start 1400000000 {TEMPLATES} --slide-interval 0"),
            &["--slide-interval"],
        ),
        (format!("Q1=h1.npy --rate 2048 --start 1400000000 {TEMPLATES}"), &["Q1"]),
    ];
    for (words, told) in cases {
        fails(&search(&words), 2, told);
        assert!(!folder.join("out").exists(), "{words}");
    }
}

#[test]
fn a_bank_settles_how_filters_are_made() {
    let home = home();
    let search =
        |more: &str| sidereal(home.path(), &format!("spiir search {STRAIN} {more} -o out"));
    for option in ["--f-low 30", "--match 0.9", "--single-rate", "--templates binaries.csv"] {
        let option_name = option.split(' ').next().unwrap_or_default();
        fails(&search(&format!("--bank bank.h5 {option}")), 2, &["--bank", option_name]);
    }
    fails(&search(""), 2, &["--templates", "--bank"]);
}

#[test]
fn what_is_one_is_told_as_one() {
    let home = home();
    fs::write(home.path().join("one.csv"), "mass1,mass2\n30,30\n").unwrap();
    let words = TEMPLATES.replace("binaries", "one");
    let text = done(
        home.path(),
        &format!("spiir search H1=h1.npy --rate 2048 --start 1400000000 {words} -o out --no-plots"),
    );
    assert!(text.contains("; 1 template (IMRPhenomD) with "), "{text}");
    assert!(text.contains("no background"), "{text}");
}

#[test]
fn a_limit_on_memory_makes_blocks_shorter_and_changes_no_bit() {
    let home = home();
    let folder = home.path();
    done(folder, "spiir bank binaries.csv -o bank.h5 --rate 2048 --f-low 40 --lowest-rate 256 -q");
    let search = format!("spiir search {STRAIN} {TEMPLATES} --no-plots -q --reproducible");
    let filter = format!("spiir filter {STRAIN} --bank bank.h5 -q --reproducible");
    for (words, what) in [(search, "the search for binaries"), (filter, "the filters")] {
        let out = what.replace(' ', "_");
        let refused = sidereal(folder, &format!("{words} -o {out}_no --memory 10K"));
        fails(&refused, 1, &[what, "MiB are needed at least, and --memory allows 0"]);
        assert!(!folder.join(format!("{out}_no")).exists());
        let told = stderr(&refused);
        let need = told.split(" MiB are needed").next().unwrap().rsplit(' ').next().unwrap();
        done(folder, &format!("{words} -o {out} --memory {need}M"));
        done(folder, &format!("{words} -o {out}_whole"));
        let (little, much) = (folder.join(&out), folder.join(format!("{out}_whole")));
        if little.is_dir() {
            assert!(strain::found(&little) == strain::found(&much));
        } else {
            assert!(fs::read(little).unwrap() == fs::read(much).unwrap());
        }
    }
}
