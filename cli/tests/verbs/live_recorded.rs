//! `live spiir` of strain that is played as fast as it is searched, and of a recording that is played as frames.

use std::fs;

use sidereal::io::psd::{self, Density};
use sidereal::io::strain::{OpenOptions, open};
use sidereal::math::PowerSpectrum;
use sidereal::pipeline::cbc::Recording;
use sidereal::spiir::whiten::{WelchOptions, welch};

use super::live::Running;
use super::live_spiir::{
    FRAMES, LOW, NOISE, START, TEMPLATES, events, folders, home, run, wait_until,
};
use crate::common::{code, done, entries, json, recordings, stderr};

#[test]
fn gw150914_played_live_is_the_event_of_its_file_search() {
    let Some(baseband) = recordings() else { return };
    let gw = baseband.with_file_name("gw");
    let home = tempfile::tempdir().unwrap();
    let folder = home.path();
    for (detector, name) in ["H1", "L1"].into_iter().zip(["H-H1", "L-L1"]) {
        let file = gw.join(format!("{name}_LOSC_4_V2-1126259446-32.hdf5"));
        fs::copy(file, folder.join(format!("{detector}.hdf5"))).unwrap();
        fs::create_dir_all(folder.join("live").join(detector)).unwrap();
    }
    fs::copy(gw.join("GW150914_4_template.hdf5"), folder.join("template.hdf5")).unwrap();
    // The search begins with a spectrum that covers both recordings, since a lower one would gate the other detector.
    let spectra = ["H1", "L1"].map(|detector| {
        let path = folder.join(format!("{detector}.hdf5"));
        let mut source = open(&path, &OpenOptions::default()).unwrap();
        let strain = Recording::read(source.as_mut()).unwrap();
        let options = WelchOptions::default();
        welch(&strain.samples, &strain.valid, strain.rate_hz, &options).unwrap()
    });
    let pairs = spectra[0].densities().iter().zip(spectra[1].densities());
    let greater = pairs.map(|(h1, l1)| h1.max(*l1)).collect();
    let spectrum = PowerSpectrum::new(spectra[0].spacing_hz(), greater).unwrap();
    psd::write(&folder.join("psd.txt"), &spectrum, Density::Power).unwrap();
    let base = "--templates template.hdf5 --f-low 30 --psd psd.txt";
    let whole =
        json(folder, &format!("spiir search H1.hdf5 L1.hdf5 {base} --causal --no-plots -o file"));
    done(folder, "simulate strain --live live --recorded H1.hdf5 --recorded L1.hdf5 --speed 0 -q");
    let frames = "--frames H1=live/H1 --frames L1=live/L1 --rate 4096 --until 1126259478";
    done(folder, &format!("live spiir {frames} {base} -o found -q"));
    let told = run(folder, "found");
    assert_eq!(events(&told), events(&whole));
    let event = &told["events"][0];
    assert!((event["gps"].as_f64().unwrap() - 1_126_259_462.42).abs() < 0.02, "{event}");
    assert!(event["network_snr"].as_f64().unwrap() > 18.0, "{event}");
    for row in told["detectors"].as_array().unwrap() {
        assert_eq!((row["frames"].as_u64(), row["valid_s"].as_f64()), (Some(32), Some(32.0)));
    }
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
