//! The verbs that take voltages, as a user meets them: on simulated recordings and on real ones.

mod common;

use common::voltages::{DM, TIME_S, recording};
use common::{document, done, entries, fails, json, recordings, sidereal, stderr};
use serde_json::Value;

/// The pulse has its time at the band's edge; a search's is that of the highest channel's centre.
const AT_TOP_CHANNEL_S: f64 = 0.76e-3;

/// How [`recording`] is divided: 64 channels of 15.6 kHz every 256 us.
const DIVISION: &str = "--channels 16 --integrate 4";

fn number(document: &Value, key: &str) -> f64 {
    document[key].as_f64().unwrap_or_else(|| panic!("{key} in {document}"))
}

fn near(document: &Value, key: &str, expected: f64, by: f64) {
    let found = number(document, key);
    assert!((found - expected).abs() <= by, "{key} is {found}, expected {expected} +- {by}");
}

#[test]
fn channelize_writes_a_filterbank_and_says_how() {
    let home = recording("v.raw", "");
    let made = json(home.path(), &format!("channelize v.raw -o v.fil {DIVISION}"));
    assert_eq!(made, document(home.path(), "v.json"));
    assert_eq!(document(home.path(), "v.gaps.json")["gaps"], Value::Array(Vec::new()));
    let names = ["v.fil", "v.gaps.json", "v.json", "v.raw", "v.truth.json"];
    assert_eq!(entries(home.path()), names.map(str::to_owned).into());
    // 0.25 MHz divided by 16; samples of 4 us, 16 x 4 of them a row, 8 x 16 under a window.
    near(&made, "tsamp_s", 256e-6, 1e-12);
    near(&made, "foff_mhz", -0.015_625, 1e-9);
    near(&made, "fch1_mhz", 150.5 - 0.015_625, 1e-6);
    assert_eq!((&made["channels"], &made["bits"]), (&64.into(), &32.into()));
    let geometry = &made["geometry"];
    near(geometry, "delay_s", 7.0 * 16.0 / 2.0 * 4e-6, 1e-12);
    assert_eq!((&geometry["taps"], &geometry["window"]), (&8.into(), &"hann".into()));
    assert!(number(&made["response"], "noise_bandwidth") > 0.5, "{made}");
    let told = json(home.path(), "info v.fil");
    for key in ["fch1_mhz", "foff_mhz", "tsamp_s", "times", "tstart_mjd", "channels"] {
        near(&told, key, number(&made, key), 1e-9);
    }
    near(&told, "tstart_mjd", 60000.0 + number(geometry, "delay_s") / 86400.0, 1e-9);
    let spread = number(&told["statistics"], "sigma") / number(&told["statistics"], "mean");
    // Two polarizations and four spectra summed, so 8 squares of complex numbers.
    assert!((spread - 1.0 / 8f64.sqrt()).abs() < 0.05, "{spread}");
}

#[test]
fn eight_bits_and_several_products_are_written() {
    let home = recording("v.dada", "--feed circular");
    let words = "channelize v.dada -o a.fil --channels 8 --stokes iquv --nbits 8 --ascending";
    let made = json(home.path(), words);
    assert_eq!(made["geometry"]["products"], serde_json::json!(["I", "Q", "U", "V"]));
    assert_eq!(made["geometry"]["feed"], "circular");
    assert_eq!(made["scaling"]["gains"].as_array().unwrap().len(), 4 * 32);
    assert!(number(&made, "foff_mhz") > 0.0);
    let told = json(home.path(), "info a.fil --pol 0");
    assert_eq!((&told["bits"], &told["polarizations"]), (&8.into(), &4.into()));
    near(&told["statistics"], "mean", 64.0, 1.0);
    near(&told["statistics"], "sigma", 16.0, 1.0);
}

#[test]
fn samples_that_are_no_numbers_are_counted_and_left_out() {
    let home = recording("v.dada", "--nbits 32 --pols 1");
    let path = home.path().join("v.dada");
    let mut bytes = fs::read(&path).unwrap();
    let end = bytes.len();
    for (at, value) in [(end - 8, f32::NAN), (end - 60, f32::INFINITY)] {
        bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
    }
    fs::write(&path, bytes).unwrap();
    let told = json(home.path(), "info v.dada");
    let found = &told["statistics"]["polarizations"][0];
    assert_eq!(found["not_finite"], 2);
    assert!(number(found, "rms") > 0.0 && number(found, "mean").abs() < number(found, "rms"));
    assert!(done(home.path(), "info v.dada").contains("not finite"));
}

#[test]
fn products_are_not_summed_without_a_word() {
    let home = recording("v.raw", "");
    done(home.path(), "channelize v.raw -q -o s.fil --channels 16 --stokes iquv");
    let words = "search s.fil --dm-max 1 --no-plots";
    let told = |more: &str| stderr(&sidereal(home.path(), &format!("{words} {more}")));
    assert!(told("-o a").contains("--pol 0"));
    assert!(!told("-o b --pol 0").contains("4 IFs"));
}

#[cfg(target_os = "linux")]
#[test]
fn devices_are_not_replaced_and_links_stay() {
    let home = recording("v.raw", "");
    std::os::unix::fs::symlink("/dev/full", home.path().join("full.fil")).unwrap();
    std::os::unix::fs::symlink("there.fil", home.path().join("link.fil")).unwrap();
    let words = |out: &str| format!("channelize v.raw --overwrite --channels 16 -o {out}");
    fails(&sidereal(home.path(), &words("full.fil")), 2, &["full.fil", "no regular file"]);
    done(home.path(), &words("link.fil"));
    assert!(home.path().join("link.fil").symlink_metadata().unwrap().is_symlink());
    assert!(home.path().join("there.fil").metadata().unwrap().is_file());
}

#[test]
fn messages_name_the_option_at_fault() {
    let home = recording("v.raw", "");
    for (words, expected) in [
        ("info v.raw --pols 1", "--pols"),
        ("info v.raw --mark5b-bits 2", "--mark5b-bits"),
        ("info v.raw --pol 1", "--pol"),
        ("info v.raw --freq 1e300", "at most 1e12"),
        ("channelize v.raw -o x.fil --channels 2 --taps 1", "--window rectangular"),
        ("search v.raw --channels 16 --time-range 0:0.00001", "first spectrum starts"),
        ("simulate voltages x.raw --freq 400 --bandwidth 900", "--bandwidth"),
        ("simulate voltages x.raw --freq 400 --bandwidth 9 --duration 1e15", "--duration"),
        ("simulate voltages x.raw --freq 400 --bandwidth 9 --real", ".dada"),
    ] {
        fails(&sidereal(home.path(), words), 2, &[expected]);
    }
}

#[test]
fn a_search_finds_the_pulse_at_its_dm_and_time() {
    let home = recording("v.raw", "");
    let search = "--dm-max 40 --dm-step 0.25 --max-width 0.02";
    let plain = json(home.path(), &format!("search v.raw -o a {DIVISION} {search}"));
    let sharp =
        json(home.path(), &format!("search v.raw -o b {DIVISION} {search} --coherent-dm 20"));
    for found in [&plain, &sharp] {
        let best = &found["candidates"][0];
        near(best, "dm", DM, 0.5);
        near(best, "time_s", TIME_S + AT_TOP_CHANNEL_S, 2e-4);
        assert_eq!(found["geometry"]["channels"], 16);
    }
    // 0.77 ms of smearing within a channel is gone.
    let snr = |found: &Value| number(&found["candidates"][0], "snr");
    assert!(snr(&sharp) > 1.1 * snr(&plain), "{} {}", snr(&sharp), snr(&plain));
    near(&sharp["candidates"][0], "snr", 40.0, 8.0);
    let names = entries(&home.path().join("b"));
    assert!(names.contains("overview.png"), "{names:?}");
    assert!(names.iter().any(|name| name.starts_with("candidate_0001_DM")), "{names:?}");
    assert_eq!(document(&home.path().join("b"), "summary.json"), sharp);
    // The same by way of a file, whose times count from its first spectrum.
    done(home.path(), &format!("channelize v.raw -q -o v.fil {DIVISION}"));
    let by_file = json(home.path(), &format!("search v.fil -o c {search} --no-plots"));
    let delay_s = number(&plain["geometry"], "delay_s");
    let (one, other) = (&plain["candidates"][0], &by_file["candidates"][0]);
    near(other, "time_s", number(one, "time_s") - delay_s, 1e-8);
    for key in ["dm", "snr", "width_s"] {
        near(other, key, number(one, key), 1e-6);
    }
    // A part of it, in the recording's seconds; any gulp and threads.
    let words =
        format!("search v.raw -o d {DIVISION} {search} --time-range 0.2:0.9 --gulp 100 -t 1");
    near(&json(home.path(), &words)["candidates"][0], "time_s", TIME_S, 1e-3);
}

#[test]
fn series_of_voltages_are_dedispersed() {
    let home = recording("v.raw", "");
    let words = format!("dedisperse v.raw -o s {DIVISION} --dm-min 19 --dm-max 21 --dm-step 1");
    let made = json(home.path(), &words);
    near(&made, "start_s", 224e-6, 1e-9);
    assert_eq!(made["geometry"]["recorded_channels"], 4);
}

#[test]
fn voltages_of_more_channels_are_a_recording_again() {
    let home = recording("v.raw", "");
    for (out, bits, name) in
        [("a.raw", 8, "GUPPI raw"), ("b.dada", 8, "PSRDADA"), ("c.raw", 4, "GUPPI raw")]
    {
        let words = format!("channelize v.raw -o {out} --channels 16 --nbits {bits}");
        let made = json(home.path(), &words);
        assert_eq!((&made["format"], &made["bits"]), (&name.into(), &bits.into()));
        assert_eq!(made["gains"].as_array().unwrap().len(), 64);
        let told = json(home.path(), &format!("info {out}"));
        assert_eq!((&told["format"], &told["bits"]), (&name.into(), &bits.into()));
        assert_eq!((&told["recorded_channels"], &told["times"]), (&64.into(), &made["times"]));
        assert_eq!(told["filter"]["taps"], 8);
        near(&told, "tsamp_s", 64e-6, 1e-12);
        near(&told, "centre_mhz", 150.0 - 0.5 * 0.015_625, 1e-6);
        near(&told, "tstart_mjd", number(&made, "tstart_mjd"), 1e-9);
        let rms = number(&told["statistics"]["polarizations"][0], "rms");
        let expected = if bits == 8 { 20.0 } else { 2.8 };
        assert!((rms / expected - 1.0).abs() < 0.1, "{rms}");
    }
    // And are searched as any other.
    let words = "search a.raw -o found --channels 2 --taps 4 --integrate 2 --dm-max 40 --dm-step 0.5 --no-plots";
    let best = json(home.path(), words)["candidates"][0].clone();
    near(&best, "dm", DM, 1.0);
    let loud = json(home.path(), "channelize v.raw -o d.raw --channels 16 --gain 1000");
    assert!(number(&loud, "limited") > 0.0);
}

#[test]
fn gaps_are_filled_and_listed() {
    let home = recording("v.raw", "--gap start=0.6,duration=0.1");
    let made = json(home.path(), &format!("channelize v.raw -o v.fil {DIVISION}"));
    let gaps = document(home.path(), "v.gaps.json");
    assert_eq!(gaps["gaps"], made["gaps"]);
    assert_eq!(gaps["gaps"].as_array().unwrap().len(), 1, "{gaps}");
    near(&gaps["gaps"][0], "start_s", 0.6, 0.01);
    near(&gaps["gaps"][0], "length_s", 0.1, 0.01);
    near(&gaps, "total_s", number(&gaps["gaps"][0], "length_s"), 1e-9);
    assert!(number(&json(home.path(), "info v.fil")["statistics"], "min") > 0.0);
    let told = json(home.path(), "info v.raw");
    near(&told["missing"], "total_s", 0.1, 0.01);
    let best =
        json(home.path(), &format!("search v.raw -o s {DIVISION} --dm-max 40 --dm-step 0.25"));
    assert_eq!(best["gaps"], made["gaps"]);
    near(&best["candidates"][0], "time_s", TIME_S, 1e-3);
    let warned = sidereal(home.path(), &format!("channelize v.raw -o w.fil {DIVISION}"));
    assert!(stderr(&warned).contains("a gap of 0.1"), "{}", stderr(&warned));
    let narrow = json(home.path(), "channelize v.raw -o n.dada --channels 16");
    near(&narrow["gaps"][0], "start_s", 0.6, 0.01);
}

/// A real recording: its name, what it does not say, a division that fits its length, its recorded
/// channels and their width in MHz.
type Real = (&'static str, &'static str, &'static str, u64, f64);

const REAL: [Real; 8] = [
    ("sample_puppi.raw", "", "--channels 16 --taps 8", 4, 0.00025),
    ("sample.vdif", "--freq 1400", "--channels 64 --taps 8", 8, 16.0),
    (
        "sample_arochime.vdif",
        "--freq 600 --sample-rate 390625",
        "--channels 2 --taps 2",
        1024,
        0.390_625,
    ),
    ("sample_mwa.vdif", "--freq 150 --sample-rate 1.28e6", "--channels 4 --taps 8", 2, 1.28),
    ("sample.m5b", "--freq 1400 --mark5b-channels 8", "--channels 32 --taps 8", 8, 16.0),
    ("sample.dada", "", "--channels 32 --taps 8", 1, 16.0),
    ("sample_meerkat.dada", "", "--channels 8 --taps 4", 1, 400.0),
    ("sample_mkbf.dada", "", "--channels 4 --taps 8", 1024, 0.53125),
];

#[test]
fn real_recordings_are_described_and_channelized() {
    let Some(data) = recordings() else { return };
    for (name, lacking, division, recorded, width_mhz) in REAL {
        let home = tempfile::tempdir().unwrap();
        let path = data.join(name);
        let path = path.display();
        let told = json(home.path(), &format!("info {path} {lacking}"));
        assert_eq!(told["recorded_channels"], recorded, "{name}");
        near(&told, "channel_width_mhz", width_mhz, 1e-9);
        assert_eq!(told["missing"]["gaps"], 0, "{name}");
        let polarizations = told["statistics"]["polarizations"].as_array().unwrap();
        assert_eq!(Some(polarizations.len() as u64), told["polarizations"].as_u64());
        for one in polarizations {
            assert!(number(one, "rms") > 0.1 && number(one, "at_extremes") < 0.5, "{one}");
        }
        let made = json(home.path(), &format!("channelize {path} {lacking} {division} -o a.fil"));
        let channels = number(&made["geometry"], "channels");
        near(&made, "foff_mhz", -width_mhz / channels, 1e-9);
        near(&made, "channels", recorded as f64 * channels, 0.0);
        let half = 0.5 * number(&told, "bandwidth_mhz");
        let top_mhz = number(&told, "centre_mhz") + half;
        let offset = top_mhz - number(&made, "fch1_mhz");
        assert!(offset > 0.0 && offset <= width_mhz / channels * 1.001, "{name}: {offset}");
        let fil = json(home.path(), "info a.fil");
        let mean = number(&fil["statistics"], "mean");
        let powers = polarizations.iter().map(|one| number(one, "rms").powi(2)).sum::<f64>();
        assert!(mean > 0.0 && mean < 2.0 * powers, "{name}: {mean} of {powers}");
        let started = number(&told, "tstart_mjd") + number(&made["geometry"], "delay_s") / 86400.0;
        near(&fil, "tstart_mjd", started, 1e-9);
    }
    let home = tempfile::tempdir().unwrap();
    let fault = |words: &str, code: i32, told: &[&str]| {
        let words = words.replace("DATA", &data.display().to_string());
        fails(&sidereal(home.path(), &words), code, told);
    };
    fault("info DATA/sample_blc.raw", 1, &["sample_blc.raw", "BLOCSIZE", "134217728"]);
    fault("info DATA/sample_mwa.vdif", 1, &["sample_mwa.vdif", "--sample-rate"]);
    fault("info DATA/sample.m5b", 2, &["--mark5b-channels"]);
    fault("channelize DATA/sample.vdif -o a.fil --channels 16", 2, &["--freq", "MHz"]);
    fault("channelize DATA/sample.vdif DATA/sample.dada -o a.fil", 1, &["sample.dada", "VDIF"]);
    assert!(entries(home.path()).is_empty());
}
<<<<<<< HEAD
=======

#[test]
fn wrong_use_ends_with_2() {
    let home = recording("v.raw", "");
    let fil =
        "simulate burst a.fil -q --fch1 1500 --foff -4 --channels 64 --tsamp 1e-3 --duration 1";
    done(home.path(), fil);
    fs::write(home.path().join("short.txt"), "1\n2\n3\n").unwrap();
    let before = entries(home.path());
    for (words, told) in [
        ("channelize", &["INPUT"][..]),
        ("channelize v.raw", &["--output"]),
        ("channelize v.raw -o a2.fil", &["--channels is not given", "--channels 16 would"]),
        ("search v.raw", &["--channels is not given", "4 recorded channels of 250 kHz"]),
        ("dedisperse v.raw", &["--channels is not given"]),
        ("channelize v.raw -o b.fil --channels 0", &["--channels is 0", "2 to 1048576"]),
        ("channelize v.raw -o b.fil --channels 1", &["--channels is 1"]),
        ("channelize v.raw -o b.fil --channels 99999999999", &["--channels"]),
        ("channelize v.raw -o b.fil --channels 1e3", &["--channels"]),
        ("channelize v.raw -o b.fil --channels 1048576 --taps 256", &["--taps is 256", "300000"]),
        ("channelize v.raw -o b.fil --channels 16 --taps 0", &["--taps is 0", "1 to 256"]),
        (
            "channelize v.raw -o b.fil --channels 16 --window han",
            &["--window is han", "no such file"],
        ),
        ("channelize v.raw -o b.fil --channels 16 --window kaiser:-3", &["Kaiser"]),
        ("channelize v.raw -o b.fil --channels 16 --window rectangular --taps 4", &["--taps is 4"]),
        (
            "channelize v.raw -o b.fil --channels 16 --oversample 3/4",
            &["--oversample", "at least 1"],
        ),
        ("channelize v.raw -o b.fil --channels 16 --oversample 1/0", &["--oversample"]),
        ("channelize v.raw -o b.fil --channels 16 --oversample 3/2", &["--oversample", "whole"]),
        ("channelize v.raw -o b.fil --channels 16 --oversample x", &["4/3"]),
        ("channelize v.raw -o b.fil --channels 16 --integrate 0", &["--integrate is 0"]),
        ("search v.raw --channels 16 --integrate 100000", &["--integrate is 100000", "1600000"]),
        ("channelize v.raw -o b.fil --channels 16 --freq 1e-3", &["--freq is 0.001", "below 0"]),
        (
            "channelize v.raw -o b.fil --channels 16 --average-channels 3",
            &["--average-channels is 3"],
        ),
        ("channelize v.raw -o b.fil --channels 16 --stokes XYZ", &["XYZ"]),
        ("channelize v.raw -o b.fil --channels 16 --antenna 1", &["--antenna is 1"]),
        ("channelize v.raw -o b.fil --channels 16 --time-range 5:6", &["--time-range"]),
        ("channelize v.raw -o b.fil --channels 16 --nbits 16", &["--nbits is 16"]),
        ("channelize v.raw -o b.fil --channels 16 --coherent-dm -3", &["--coherent-dm"]),
        ("channelize v.raw -o b.fil --channels 16 --coherent-dm nan", &["--coherent-dm"]),
        ("channelize v.raw -o b.fil --channels 16 --dm-constant 0", &["--dm-constant"]),
        ("channelize v.raw -o b.fil --channels 16 --freq -3", &["--freq"]),
        ("channelize v.raw -o b.fil --channels 16 --gain 2", &["--gain", "it is for voltages"]),
        ("channelize v.raw -o b.raw --channels 16 --gain 0", &["--gain is 0"]),
        ("channelize v.raw -o b.raw --channels 16 --nbits 32", &["--nbits is 32"]),
        ("channelize v.raw -o b.dada --channels 16 --stokes I", &["--stokes", "not detected"]),
        (
            "channelize v.raw -o b.dada --channels 16 --integrate 2",
            &["--integrate", "not detected"],
        ),
        ("channelize v.raw -o - --channels 16 --json", &["--json"]),
        ("channelize v.raw -o - --channels 16 --format dada", &["--output"]),
        ("channelize - -o b.fil --channels 16", &["INPUT is -", "from files"]),
        ("channelize v.raw -o v.raw --channels 16", &["v.raw"]),
        ("channelize v.raw -o v.raw --channels 16 --overwrite", &["v.raw", "is read"]),
        ("channelize v.raw -o b.json --channels 16", &["--output"]),
        ("channelize v.raw -o a.fil --channels 16", &["a.fil", "--overwrite"]),
        ("search a.fil --channels 16", &["--channels is given", "voltages", "a.fil"]),
        ("search a.fil --dc", &["--dc is given"]),
        ("dedisperse a.fil --freq 100", &["--freq is given"]),
        ("info a.fil --mark5b-channels 8", &["--mark5b-channels is given"]),
        ("search v.raw --channels 16 --pol 0", &["--pol"]),
        ("search v.raw --channels 16 --time-range 5:6", &["--time-range"]),
    ] {
        fails(&sidereal(home.path(), words), 2, told);
    }
    assert_eq!(entries(home.path()), before);
}

#[test]
fn bad_files_end_with_1_and_leave_nothing() {
    let home = recording("v.raw", "");
    let whole = fs::read(home.path().join("v.raw")).unwrap();
    let file = |name: &str, bytes: &[u8]| fs::write(home.path().join(name), bytes).unwrap();
    file("empty.raw", b"");
    file("text.raw", b"This is no recording, only a few words in a file.");
    file("header.raw", &whole[..1000]);
    file("short.raw", &whole[..6000]);
    let text = |from: &str, to: &str| {
        let at = whole.windows(from.len()).position(|word| word == from.as_bytes()).unwrap();
        let mut changed = whole.clone();
        changed[at..at + to.len()].copy_from_slice(to.as_bytes());
        changed
    };
    file("bits.raw", &text("NBITS   =                    8", "NBITS   =                    7"));
    file("window.txt", b"1\n2\n3\n");
    file("words.txt", b"one\ntwo\n");
    let before = entries(home.path());
    for verb in ["channelize -o out.fil", "search -o out", "dedisperse -o out", "info"] {
        for name in ["missing.raw", "empty.raw", "text.raw", "header.raw", "short.raw", "bits.raw"]
        {
            let division = if verb == "info" { "" } else { "--channels 16" };
            fails(&sidereal(home.path(), &format!("{verb} {name} {division}")), 1, &[name]);
        }
    }
    for (words, told) in [
        (
            "-o b.fil --channels 16 --window window.txt",
            &["window.txt", "found 3", "expected 128"][..],
        ),
        ("-o b.fil --channels 16 --window words.txt", &["words.txt", "line 1"]),
        ("-o missing/b.fil --channels 16", &["missing"]),
        ("-o v.truth.json/b.fil --channels 16", &["v.truth.json"]),
    ] {
        fails(&sidereal(home.path(), &format!("channelize v.raw {words}")), 1, told);
    }
    fails(
        &sidereal(home.path(), "channelize v.raw text.raw -o b.fil --channels 16"),
        1,
        &["text.raw"],
    );
    assert_eq!(entries(home.path()), before);
}

#[test]
fn an_existing_file_is_kept_unless_it_may_go() {
    let home = recording("v.raw", "");
    fs::write(home.path().join("b.json"), "precious").unwrap();
    let words = "channelize v.raw -o b.fil --channels 16 -q";
    fails(&sidereal(home.path(), words), 2, &["b.json", "--overwrite"]);
    assert_eq!(fs::read_to_string(home.path().join("b.json")).unwrap(), "precious");
    assert_eq!(done(home.path(), &format!("{words} --overwrite")), "");
    assert_eq!(document(home.path(), "b.json")["file"], "b.fil");
    let first = fs::read(home.path().join("b.fil")).unwrap();
    done(home.path(), &format!("{words} --overwrite --gulp 777 -t 1"));
    assert!(
        first == fs::read(home.path().join("b.fil")).unwrap(),
        "gulp and threads change nothing"
    );
    let piped = sidereal(home.path(), "channelize v.raw -o - --channels 16");
    assert!(piped.status.success(), "{}", stderr(&piped));
    // The header holds the file's name.
    let rows = 4 * 64 * document(home.path(), "b.json")["times"].as_u64().unwrap() as usize;
    let last = |bytes: &[u8]| bytes[bytes.len() - rows..].to_vec();
    assert!(last(&first) == last(&piped.stdout), "standard output has the same rows");
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_told_clearly() {
    if !Path::new("/dev/full").exists() {
        return;
    }
    let home = recording("v.raw", "");
    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let told = std::process::Command::new(env!("CARGO_BIN_EXE_sidereal"))
        .args(["channelize", "v.raw", "-o", "-", "--channels", "16"])
        .current_dir(home.path())
        .stdout(full)
        .output()
        .unwrap();
    assert_eq!(told.status.code(), Some(1));
    assert!(stderr(&told).contains("space"), "{}", stderr(&told));
}

#[cfg(unix)]
#[test]
fn ctrl_c_leaves_nothing_behind() {
    let home = recording("v.raw", "");
    let before = entries(home.path());
    // The slow equations, so that there is time to stop them.
    let words = "channelize v.raw -o x.fil --channels 512 --device reference";
    let mut child = std::process::Command::new(env!("CARGO_BIN_EXE_sidereal"))
        .args(words.split(' '))
        .current_dir(home.path())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    while !entries(home.path()).contains(".x.fil.part") {
        assert!(child.try_wait().unwrap().is_none(), "it ended too early");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let id = child.id().to_string();
    let killed = std::process::Command::new("kill").args(["-INT", &id]).status();
    assert!(killed.unwrap().success());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", stderr(&output));
    assert_eq!(entries(home.path()), before);
}

#[test]
fn the_default_plan_keeps_what_coherent_dedispersion_sharpens() {
    let home = tempfile::tempdir().unwrap();
    done(
        home.path(),
        "simulate voltages n.raw -q --freq 400 --bandwidth 8 --coarse-channels 4 --duration 0.6 \
         --pulse dm=50,time=0.3,width=0.00005,snr=40",
    );
    let search = "search n.raw --channels 16 --integrate 2 --coherent-dm 50 --no-plots";
    for (out, limits) in [("a", "--dm-max 100"), ("b", "--dm-min 49 --dm-max 51")] {
        let found = json(home.path(), &format!("{search} -o {out} {limits}"));
        near(&found["candidates"][0], "dm", 50.0, 0.02);
        near(&found["candidates"][0], "snr", 40.0, 8.0);
    }
}
>>>>>>> ch-cli
