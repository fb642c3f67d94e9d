//! The recording of GW150914 played as frames of a second to `live spiir`.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use sidereal::io::strain::{
    ALL_INJECTIONS, ALL_QUALITY, NewStrain, OpenOptions, StrainWriter, open,
};
use sidereal::math::PowerSpectrum;
use sidereal::pipeline::cbc::Recording;
use sidereal::spiir::whiten::{WelchOptions, welch};
use tempfile::TempDir;

use super::live_spiir::{events, run};
use crate::common::{done, json, skip};

/// First second of the recordings, their length and rate.
const START: i64 = 1_126_259_446;
const LENGTH: i64 = 32;
const RATE_HZ: u32 = 4096;

/// Seconds of noise before the recordings: twice the time constant of the spectrum.
const BEFORE: i64 = 256;

const FRAMES: &str = "--frames H1=live/H1 --frames L1=live/L1 --rate 4096";
const TEMPLATES: &str = "--templates binaries.csv --f-low 20";

/// The recordings of both detectors; `None` if they are not there.
fn recordings() -> Option<[(String, PathBuf); 2]> {
    let default = || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../shared/data");
    let data = std::env::var_os("SIDEREAL_DATA").map_or_else(default, PathBuf::from);
    let file = |detector: &str| {
        let name = format!("{}-{detector}_LOSC_4_V2-{START}-{LENGTH}.hdf5", &detector[..1]);
        (detector.to_owned(), data.join("gw").join(name))
    };
    let files = ["H1", "L1"].map(file);
    if files.iter().all(|(_, file)| file.is_file()) {
        return Some(files);
    }
    skip::skip("data", &format!("no recording of GW150914 in {}", data.display()));
    None
}

/// Writes each second of a recording as a frame into its detector's folder.
fn play(folder: &Path, recording: &Recording) {
    assert_eq!((recording.start.s() as i64, recording.rate_hz), (START, RATE_HZ));
    let detector = &recording.detector;
    let folder = folder.join("live").join(detector);
    fs::create_dir_all(&folder).unwrap();
    for (second, samples) in recording.samples.chunks(RATE_HZ as usize).enumerate() {
        let name = format!("{}-{detector}_REAL-{}-1.gwf", &detector[..1], START + second as i64);
        let frame = NewStrain {
            detector: detector.clone(),
            channel: None,
            start: recording.start.plus_s(second as f64),
            rate_hz: RATE_HZ,
            samples: samples.len() as u64,
            description: "GW150914".to_owned(),
            bits: Some([vec![ALL_QUALITY], vec![ALL_INJECTIONS]]),
            is_compressed: false,
        };
        let mut writer = StrainWriter::create(&folder.join(name), &frame).unwrap();
        writer.write(samples).unwrap();
        writer.finish().unwrap();
    }
}

/// Writes a spectrum as two columns.
fn write(path: &Path, psd: &PowerSpectrum) {
    let mut text = String::new();
    for (bin, density) in psd.densities().iter().enumerate() {
        let _ = writeln!(text, "{} {density:e}", bin as f64 * psd.spacing_hz());
    }
    fs::write(path, text).unwrap();
}

/// Spectra of the recordings (H1.txt, L1.txt), their geometric mean (psd.txt), a table of a binary, and frames of the recordings in `live`.
fn home(files: &[(String, PathBuf); 2]) -> TempDir {
    let home = tempfile::tempdir().unwrap();
    let mut spectra = Vec::new();
    for (detector, file) in files {
        let mut source = open(file, &OpenOptions::default()).unwrap();
        let recording = Recording::read(&mut *source).unwrap();
        assert!(recording.valid.iter().all(|valid| *valid), "{detector}");
        play(home.path(), &recording);
        let Recording { samples, valid, .. } = &recording;
        let psd = welch(samples, valid, RATE_HZ, &WelchOptions::default()).unwrap();
        write(&home.path().join(format!("{detector}.txt")), &psd);
        spectra.push(psd);
    }
    // One spectrum is for both detectors; the geometric mean favours neither.
    let pairs = spectra[0].densities().iter().zip(spectra[1].densities());
    let mean = pairs.map(|(one, other)| (one * other).sqrt()).collect();
    let mean = PowerSpectrum::new(spectra[0].spacing_hz(), mean).unwrap();
    write(&home.path().join("psd.txt"), &mean);
    fs::write(home.path().join("binaries.csv"), "mass1,mass2\n39,34\n").unwrap();
    home
}

#[test]
fn gw150914_is_the_event_of_a_file_search_and_survives_noise_before_it() {
    let Some(files) = recordings() else { return };
    let home = home(&files);
    let folder = home.path();
    let until = START + LENGTH;
    let [h1, l1] = files.map(|(_, file)| file.display().to_string());
    // With a spectrum that is known.
    let words =
        format!("spiir search {h1} {l1} {TEMPLATES} --causal --psd psd.txt --no-plots -o file");
    let whole = json(folder, &words);
    let loudest = &whole["events"][0];
    let snr = loudest["network_snr"].as_f64().unwrap();
    assert!((loudest["gps"].as_f64().unwrap() - 1_126_259_462.42).abs() < 0.02, "{loudest}");
    assert!(snr > 21.0, "{loudest}");
    let base = format!("live spiir {FRAMES} {TEMPLATES} --until {until} -q");
    done(folder, &format!("{base} --psd psd.txt -o found"));
    let told = run(folder, "found");
    assert_eq!(events(&told), events(&whole));
    // With noise of the recordings' own spectra before them, from which the search learns the spectrum.
    let noise = format!(
        "simulate strain --live live --detectors H1,L1 --psd H1=H1.txt --psd L1=L1.txt --start {} --length {BEFORE} \
         --rate {RATE_HZ} --seed 5 --speed 0 -q",
        START - BEFORE
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
