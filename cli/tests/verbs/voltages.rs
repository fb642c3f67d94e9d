//! The verbs that take voltages, as a user meets them: on simulated recordings and on real ones.

use std::fs;

use crate::common::voltages::{DM, TIME_S, recording};
use crate::common::{document, done, entries, fails, json, recordings, sidereal, stderr};
use serde_json::Value;

/// The pulse has its time at the band's edge; a search's is that of the highest channel's centre.
const AT_TOP_CHANNEL_S: f64 = 0.76e-3;

/// Options that divide [`recording`]: 64 channels of 15.6 kHz every 256 us.
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
    assert_eq!(made, document(home.path(), "v.fil.json"));
    assert_eq!(document(home.path(), "v.fil.gaps.json")["gaps"], Value::Array(Vec::new()));
    let names = ["v.fil", "v.fil.gaps.json", "v.fil.json", "v.raw", "v.raw.truth.json"];
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
    assert!(names.contains("report.html"), "{names:?}");
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
    let gaps = document(home.path(), "v.fil.gaps.json");
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
    let cut = "channelize DATA/sample_blc.raw -o a.fil --channels 16";
    fault(cut, 3, &["sample_blc.raw", "BLOCSIZE", "134217728"]);
    // Its header is shown.
    let told = json(home.path(), &format!("info {}", data.join("sample_blc.raw").display()));
    assert_eq!((&told["complete"], &told["telescope"]), (&false.into(), &"GBT".into()));
    fault("info DATA/sample_mwa.vdif", 1, &["sample_mwa.vdif", "--sample-rate"]);
    fault("info DATA/sample.m5b", 2, &["--mark5b-channels"]);
    fault("channelize DATA/sample.vdif -o a.fil --channels 16", 2, &["--freq", "MHz"]);
    fault("channelize DATA/sample.vdif DATA/sample.dada -o a.fil", 3, &["sample.dada", "VDIF"]);
    assert!(entries(home.path()).is_empty());
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
