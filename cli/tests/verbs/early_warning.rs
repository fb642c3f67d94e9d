//! `live spiir` with templates that end before the merger: a binary of neutron stars is announced before it merges.

use std::fs;

use crate::common::{document, done, json};
use serde_json::Value;

const START: i64 = 1_400_000_000;
/// Merger at the Earth's centre, after the start.
const MERGER_S: f64 = 110.4;
/// Templates and strain from 28 Hz on, 65 s before the merger.
const TEMPLATES: &str = "--f-low 28 --lowest-rate 128";

/// Searches strain until `end_s` after the start; returns the loudest event.
fn loudest(folder: &std::path::Path, words: &str, end_s: f64, out: &str) -> Value {
    let until = START as f64 + end_s;
    done(
        folder,
        &format!(
            "live spiir --frames H1=live/H1 --frames L1=live/L1 --rate 512 --templates binaries.csv {TEMPLATES} {words} \
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
            &format!("spiir bank binaries.csv -o b.h5 --overwrite --rate 512 {TEMPLATES} {words}"),
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
