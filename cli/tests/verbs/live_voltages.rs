//! Voltages that arrive give the products of their recording: searches, filterbanks, channelized voltages, visibilities.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use sidereal::io::voltages::{self, VoltageOptions};

use crate::common::array::{SOURCE, array, files};
use crate::common::voltages::recording as pulse;
use crate::common::{code, document, done, entries, fails, recording, sidereal, stderr};
use crate::live::{Running, await_port, free_port, observation, receiving};

/// Makes v.raw: 0.4 s of four recorded channels.
fn make_voltages(folder: &Path) {
    let words = "simulate voltages v.raw -q --freq 1400 --bandwidth 4 --coarse-channels 4 --duration 0.4 --seed 2";
    done(folder, words);
}

/// Sends v.raw to a running `live`, and returns what it wrote with its last word.
fn live(folder: &Path, words: &str) {
    let (running, address) = receiving(folder, &format!("live {words} --observations 1 -q"));
    done(folder, &format!("send v.raw {address} --rate 1 -q"));
    let output = running.end();
    assert_eq!(code(&output), 0, "{}", stderr(&output));
}

/// Files of a folder with an ending, by the start in their document.
fn live_files(folder: &Path, ending: &str) -> Vec<PathBuf> {
    let names = entries(folder);
    let own = names.iter().filter(|name| name.ends_with(ending));
    let mut files: Vec<(f64, PathBuf)> = own
        .map(|name| {
            let start = document(folder, &format!("{name}.json"))["tstart_mjd"].as_f64().unwrap();
            (start, folder.join(name))
        })
        .collect();
    files.sort_by(|a, b| a.0.total_cmp(&b.0));
    files.into_iter().map(|(_, path)| path).collect()
}

#[test]
fn a_live_search_of_voltages_finds_what_the_search_of_their_file_finds() {
    let home = pulse("v.raw", "");
    let folder = home.path();
    for (name, options) in [
        ("plain", "--channels 32 --integrate 4 --dm-max 30"),
        ("coherent", "--channels 32 --integrate 4 --dm-max 30 --coherent-dm 20"),
    ] {
        done(folder, &format!("search v.raw -o {name} -q --no-plots {options}"));
        live(folder, &format!("search ADDRESS -o live_{name} {options}"));
        let place = observation(&folder.join(format!("live_{name}")));
        let read = |place: &Path| fs::read_to_string(place.join("candidates.cand")).unwrap();
        assert_eq!(read(&place), read(&folder.join(name)), "{name}");
        let own = document(&place, "summary.json");
        let other = document(&folder.join(name), "summary.json");
        assert!(!other["candidates"].as_array().unwrap().is_empty(), "{name}");
        for key in ["candidates", "plan", "masked_channels", "observation"] {
            assert!(own[key] == other[key], "{name} {key}: {} {}", own[key], other[key]);
        }
    }
}

/// Samples of every stream of voltage files that follow each other.
fn samples(paths: &[PathBuf]) -> Vec<Vec<u8>> {
    let mut all: Vec<Vec<u8>> = Vec::new();
    for path in paths {
        let options = VoltageOptions::default();
        let mut source = voltages::open(std::slice::from_ref(path), &options).unwrap();
        let mut block = source.header().block(source.header().times.unwrap() as usize);
        source.read(&mut block).unwrap();
        all.resize(source.header().streams(), Vec::new());
        for (stream, bytes) in all.iter_mut().enumerate() {
            bytes.extend_from_slice(block.voltages().row(stream));
        }
    }
    all
}

#[test]
fn live_spectra_are_those_of_the_file_in_files_that_follow_each_other() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path();
    make_voltages(folder);
    let options = "--channels 16 --integrate 4 --stokes IQUV";
    done(folder, &format!("channelize v.raw -o v.fil -q {options}"));
    let rows = |path: &Path| {
        let bytes = fs::read(path).unwrap();
        let end = b"HEADER_END";
        let at = bytes.windows(end.len()).position(|window| window == end).unwrap();
        bytes[at + end.len()..].to_vec()
    };
    let whole = document(folder, "v.fil.json");
    for roll in ["0", "0.15"] {
        let place = folder.join(format!("fil{roll}"));
        live(folder, &format!("channelize ADDRESS -o fil{roll} --roll {roll} {options}"));
        let files = live_files(&place, ".fil");
        assert_eq!(files.len(), if roll == "0" { 1 } else { 3 }, "{files:?}");
        let all: Vec<u8> = files.iter().flat_map(|path| rows(path)).collect();
        assert!(all == rows(&folder.join("v.fil")), "{roll}");
        let name = |path: &Path| path.file_name().unwrap().to_str().unwrap().to_owned();
        let all: Vec<Value> =
            files.iter().map(|path| document(&place, &format!("{}.json", name(path)))).collect();
        let mut start = whole["tstart_mjd"].as_f64().unwrap();
        for found in &all {
            // An MJD has steps of 1 us.
            assert!((found["tstart_mjd"].as_f64().unwrap() - start).abs() < 3e-11, "{found}");
            assert_eq!(found["complete"], true);
            start += found["duration_s"].as_f64().unwrap() / 86_400.0;
        }
    }
    for (format, ending) in [("dada", ".dada"), ("guppi", ".raw")] {
        let options = format!("--channels 8 --format {format}");
        done(folder, &format!("channelize v.raw -o w{ending} -q {options}"));
        live(folder, &format!("channelize ADDRESS -o {format} --roll 0.15 {options}"));
        let files = live_files(&folder.join(format), ending);
        assert_eq!(files.len(), 3, "{files:?}");
        assert!(samples(&files) == samples(&[folder.join(format!("w{ending}"))]), "{format}");
    }
}

#[test]
fn lost_voltages_are_gaps_of_the_spectra() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path();
    make_voltages(folder);
    let words = "live channelize ADDRESS -o live --observations 1 -q --channels 16 --integrate 4";
    let (running, address) = receiving(folder, words);
    let loss = "--loss 0.02 --reorder 0.1 --seed 5 --heap-times 512 --lost-list lost.csv";
    done(folder, &format!("send v.raw {address} --rate 1 -q {loss}"));
    let output = running.end();
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let place = folder.join("live");
    let name = entries(&place).into_iter().find(|name| name.ends_with(".fil")).unwrap();
    let found = document(&place, &format!("{name}.json"));
    // A row has 4 spectra of 16 samples at 1 MHz, and its last window ends 7 spectra after them.
    let rows = found["times"].as_u64().unwrap() as usize;
    let mut expected = vec![false; rows];
    let list = fs::read_to_string(folder.join("lost.csv")).unwrap();
    for line in list.lines().skip(1) {
        let cells: Vec<usize> = line.split(',').map(|cell| cell.parse().unwrap()).collect();
        let (first, times) = (cells[0], cells[1]);
        let from = first.saturating_sub(7 * 16) / 64;
        let to = (first + times).div_ceil(64).min(rows);
        expected[from..to].fill(true);
    }
    assert!(expected.iter().any(|gap| *gap), "{list}");
    let delay_s = found["geometry"]["delay_s"].as_f64().unwrap();
    let row = |seconds: f64| (seconds / 64e-6).round() as usize;
    let mut listed = vec![false; rows];
    for gap in found["gaps"].as_array().unwrap() {
        let start = row(gap["start_s"].as_f64().unwrap() - delay_s);
        listed[start..][..row(gap["length_s"].as_f64().unwrap())].fill(true);
    }
    assert!(listed == expected);
}

/// Visibilities, counts, flags, times and positions of files that follow each other.
fn visibilities(paths: &[PathBuf]) -> Vec<Vec<u8>> {
    let names =
        ["Data/visdata", "Data/nsamples", "Data/flags", "Header/time_array", "Header/uvw_array"];
    let read = |name: &&str| {
        let part = |path: &PathBuf| {
            hdf5_pure::File::open(path).unwrap().dataset(name).unwrap().read_raw().unwrap()
        };
        paths.iter().flat_map(part).collect()
    };
    names.iter().map(read).collect()
}

#[test]
fn live_visibilities_are_those_of_the_recordings() {
    let home = array("");
    let folder = home.path();
    let names = ["ant00", "ant01", "ant02", "ant03"];
    let options = "--antennas array/antennas.csv --integration 0.01 --channels 64";
    for (name, options) in [
        ("tracking", format!("{options} --phase-centre {SOURCE}")),
        ("drift", format!("{options} --drift --nbits 4")),
    ] {
        let recordings = files(&names);
        done(folder, &format!("correlate {recordings} -o {name}.uvh5 -q --no-plots {options}"));
        let expected = visibilities(&[folder.join(format!("{name}.uvh5"))]);
        for roll in ["300", "0.06"] {
            let ports = names.map(|_| free_port());
            let address = |antenna: usize| format!("spead://127.0.0.1:{}", ports[antenna]);
            let mut words = format!("live correlate -o {name}{roll} --roll {roll} {options}");
            for (antenna, name) in names.iter().enumerate() {
                words += &format!(" {name}={}", address(antenna));
            }
            let running = Running::start(folder, &format!("{words} --observations 1 -q"));
            ports.into_iter().for_each(await_port);
            let senders: Vec<Running> = (0..names.len())
                .map(|antenna| {
                    let (file, address) = (files(&[names[antenna]]), address(antenna));
                    Running::start(folder, &format!("send {file} {address} --rate 1 -q"))
                })
                .collect();
            for sender in senders {
                let output = sender.end();
                assert_eq!(code(&output), 0, "{}", stderr(&output));
            }
            let output = running.end();
            assert_eq!(code(&output), 0, "{}", stderr(&output));
            let place = folder.join(format!("{name}{roll}"));
            let found = live_files(&place, ".uvh5");
            assert_eq!(found.len(), if roll == "300" { 1 } else { 5 }, "{found:?}");
            assert!(visibilities(&found) == expected, "{name} {roll}");
            let name = found[0].file_name().unwrap().to_str().unwrap().to_owned();
            let document = document(&place, &format!("{name}.json"));
            assert_eq!(document["complete"], true);
        }
    }
}

#[test]
fn streams_of_the_other_kind_and_files_are_refused() {
    let home = recording();
    let folder = home.path();
    let words = "live channelize ADDRESS -o live --channels 16 --observations 1 -q";
    let (running, address) = receiving(folder, words);
    done(folder, &format!("send a.fil {address} --rate 1 -q"));
    let output = running.end();
    assert_eq!(code(&output), 3, "{}", stderr(&output));
    let error = stderr(&output);
    assert!(error.contains("found spectra, expected voltages"), "{error}");
    let output = sidereal(folder, &format!("channelize {address} -o b.fil --channels 16"));
    fails(&output, 2, &["`sidereal live` reads"]);
}
