//! `live spiir` of strain that `simulate strain --live` plays: the recording of GW150914, neutron stars before they merge, and frames as fast as
//! they are searched.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use sidereal::io::psd::{self, Density};
use sidereal::io::strain::{OpenOptions, open};
use sidereal::math::PowerSpectrum;
use sidereal::pipeline::cbc::Recording;
use sidereal::spiir::whiten::{WelchOptions, welch};
use tempfile::TempDir;

use super::live::Running;
use super::live_spiir::{
    FRAMES, LOW, NOISE, START, TEMPLATES, events, folders, home, run, wait_until,
};
use crate::common::{code, document, done, entries, json, recordings, skip, stderr};

/// First second of the recordings of GW150914, and their length.
const GW150914_START: i64 = 1_126_259_446;
const GW150914_S: i64 = 32;

/// Seconds of noise before the recordings: twice the time constant of the spectrum.
const BEFORE: i64 = 256;

const GW150914_FRAMES: &str = "--frames H1=live/H1 --frames L1=live/L1 --rate 4096";
const GW150914_TEMPLATES: &str = "--templates binaries.csv --f-low 20";

/// Merger of neutron stars at the Earth's centre, after the start.
const MERGER_S: f64 = 110.4;
/// Templates and strain from 28 Hz on, 65 s before the merger.
const CUT: &str = "--f-low 28 --lowest-rate 128";

/// Spectra of the recordings (H1.txt, L1.txt), their geometric mean (psd.txt), and a table of a binary.
fn gw150914(files: &[(&str, PathBuf); 2]) -> TempDir {
    let home = tempfile::tempdir().unwrap();
    let mut spectra = Vec::new();
    for (detector, file) in files {
        let mut source = open(file, &OpenOptions::default()).unwrap();
        let recording = Recording::read(&mut *source).unwrap();
        assert!(recording.valid.iter().all(|valid| *valid), "{detector}");
        let Recording { samples, valid, .. } = &recording;
        let psd = welch(samples, valid, recording.rate_hz, &WelchOptions::default()).unwrap();
        psd::write(&home.path().join(format!("{detector}.txt")), &psd, Density::Power).unwrap();
        spectra.push(psd);
    }
    // One spectrum is for both detectors; the geometric mean favours neither.
    let pairs = spectra[0].densities().iter().zip(spectra[1].densities());
    let mean = pairs.map(|(one, other)| (one * other).sqrt()).collect();
    let mean = PowerSpectrum::new(spectra[0].spacing_hz(), mean).unwrap();
    psd::write(&home.path().join("psd.txt"), &mean, Density::Power).unwrap();
    fs::write(home.path().join("binaries.csv"), "mass1,mass2\n39,34\n").unwrap();
    home
}

#[test]
fn gw150914_is_the_event_of_a_file_search_and_survives_noise_before_it() {
    let Some(baseband) = recordings() else { return };
    let files = ["H1", "L1"].map(|detector| {
        let name =
            format!("{}-{detector}_LOSC_4_V2-{GW150914_START}-{GW150914_S}.hdf5", &detector[..1]);
        (detector, baseband.with_file_name("gw").join(name))
    });
    if files.iter().any(|(_, file)| !file.is_file()) {
        skip::skip("data", &format!("no recording of GW150914 next to {}", baseband.display()));
        return;
    }
    let home = gw150914(&files);
    let folder = home.path();
    let until = GW150914_START + GW150914_S;
    let [h1, l1] = files.map(|(_, file)| file.display().to_string());
    // With a spectrum that is known.
    let words = format!(
        "spiir search {h1} {l1} {GW150914_TEMPLATES} --causal --psd psd.txt --no-plots -o file"
    );
    let whole = json(folder, &words);
    let loudest = &whole["events"][0];
    let snr = loudest["network_snr"].as_f64().unwrap();
    assert!((loudest["gps"].as_f64().unwrap() - 1_126_259_462.42).abs() < 0.02, "{loudest}");
    assert!(snr > 21.0, "{loudest}");
    done(
        folder,
        &format!("simulate strain --live live --recorded {h1} --recorded {l1} --speed 0 -q"),
    );
    let truth = document(&folder.join("live"), "truth.json");
    assert_eq!((&truth["recorded"], truth.get("seed")), (&Value::Bool(true), None), "{truth}");
    let base = format!("live spiir {GW150914_FRAMES} {GW150914_TEMPLATES} --until {until} -q");
    done(folder, &format!("{base} --psd psd.txt -o found"));
    let told = run(folder, "found");
    assert_eq!(events(&told), events(&whole));
    for row in told["detectors"].as_array().unwrap() {
        assert_eq!((row["frames"].as_u64(), row["valid_s"].as_f64()), (Some(32), Some(32.0)));
    }
    // With noise of the recordings' own spectra before them, from which the search learns the spectrum.
    let noise = format!(
        "simulate strain --live live --detectors H1,L1 --psd H1=H1.txt --psd L1=L1.txt --start {} --length {BEFORE} \
         --rate 4096 --seed 5 --speed 0 -q",
        GW150914_START - BEFORE
    );
    done(folder, &noise);
    done(folder, &format!("{base} -o learned"));
    let learned = run(folder, "learned");
    let loudest = &learned["events"][0];
    assert!((loudest["gps"].as_f64().unwrap() - 1_126_259_462.42).abs() < 0.02, "{loudest}");
    let found = loudest["network_snr"].as_f64().unwrap();
    eprintln!(
        "GW150914: network S/N {snr:.3} with a known spectrum, {found:.3} with a learned one"
    );
    assert!((found / snr - 1.0).abs() < 0.03, "{found} {snr}");
}

/// Searches strain until `end_s` after the start; returns the loudest event.
fn loudest(folder: &Path, words: &str, end_s: f64, out: &str) -> Value {
    let until = START as f64 + end_s;
    done(
        folder,
        &format!(
            "live spiir --frames H1=live/H1 --frames L1=live/L1 --rate 512 --templates binaries.csv {CUT} {words} \
             --threshold 3.5 --until {until} -o {out} -q"
        ),
    );
    let document = document(&folder.join(out).join(START.to_string()), "events.json");
    document["events"][0].clone()
}

#[test]
fn a_template_cut_before_the_merger_announces_it() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path();
    fs::write(folder.join("binaries.csv"), "mass1,mass2\n1.4,1.4\n").unwrap();
    let merger = START as f64 + MERGER_S;
    done(
        folder,
        &format!(
            "simulate strain --live live --detectors H1,L1 --rate 512 --seed 5 --start {START} --length 116 --f-low 24 --speed 0 -q \
             --inject m1=1.4,m2=1.4,distance=75,ra=1.2,dec=-0.4,inclination=0.3,time={merger}"
        ),
    );
    let truth = document(&folder.join("live"), "truth.json");
    let effective = |name: &str| {
        truth["events"][0]["detectors"][name]["effective_distance_mpc"].as_f64().unwrap()
    };
    let mut ratios = Vec::new();
    for (cut_s, words) in [(16.0, "--before 16"), (8.0, "--before 8"), (8.0, "--f-stop 61.3")] {
        let bank = json(
            folder,
            &format!("spiir bank binaries.csv -o b.h5 --overwrite --rate 512 {CUT} {words}"),
        );
        let row = &bank["templates"][0];
        let horizon = row["horizon_mpc"].as_f64().unwrap() * row["match"].as_f64().unwrap();
        let expected = (8.0 * horizon / effective("H1")).hypot(8.0 * horizon / effective("L1"));
        // Nothing of the last seconds is searched: the event comes from strain that ends a second after the template's end.
        let out = words.replace([' ', '-'], "");
        let event = loudest(folder, words, MERGER_S - cut_s + 1.0, &out);
        let ratio = event["network_snr"].as_f64().unwrap();
        assert!((ratio - expected).abs() < 3.0, "{words}: {ratio}, {expected} expected: {event}");
        assert!(ratio > 8.0, "{words}: {event}");
        // It says when the merger will be.
        let gps = event["gps"].as_f64().unwrap();
        assert!((gps - merger).abs() < 0.05, "{words}: {} s off", gps - merger);
        ratios.push(ratio);
    }
    assert!(ratios[0] < ratios[1], "{ratios:?}");
    // Without a cut there is nothing yet at that time, and more at the end.
    let none = loudest(folder, "", MERGER_S - 8.0 + 1.0, "early");
    assert!(none["network_snr"].as_f64().is_none_or(|ratio| ratio < 8.0), "{none}");
    let whole = loudest(folder, "", 116.0, "whole");
    assert!(whole["network_snr"].as_f64().unwrap() > ratios[1] * 1.2, "{whole}");
}

#[test]
fn strain_is_played_as_fast_as_the_search_removes_it() {
    let home = home();
    let folder = home.path();
    folders(folder);
    let play = format!("simulate strain --live live {NOISE} --length 40 --speed 0 --queue 4 -q");
    let player = Running::start(folder, &play);
    let there = |detector: &str| {
        let names = entries(&folder.join("live").join(detector));
        names.iter().filter(|name| name.ends_with(".gwf")).count()
    };
    wait_until("no frames", || there("V1") == 4);
    std::thread::sleep(std::time::Duration::from_millis(300));
    assert_eq!(["H1", "L1", "V1"].map(there), [4; 3]);
    let until = START + 40;
    let words = format!("live spiir {FRAMES} {TEMPLATES} {LOW} --wait 60 --until {until} -q");
    done(folder, &format!("{words} --remove-frames -o found"));
    let output = player.end();
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    assert_eq!(["H1", "L1", "V1"].map(there), [0; 3]);
    let told = run(folder, "found");
    assert!(events(&told).len() > 3, "{told}");
    for row in told["detectors"].as_array().unwrap() {
        assert_eq!((row["frames"].as_u64(), row["valid_s"].as_f64()), (Some(40), Some(40.0)));
    }
    // The frames of a folder in which all remain give the same.
    done(folder, &format!("simulate strain --live live {NOISE} --length 40 --speed 0 -q"));
    done(folder, &format!("{words} -o kept"));
    assert_eq!(events(&run(folder, "kept")), events(&told));
    assert_eq!(there("H1"), 40);
}
