//! F-engines and X-engines as processes of their own: visibilities of channels that streams and rings carry from one to the other.

use std::fs;
use std::path::{Path, PathBuf};

use num_complex::Complex;
use sidereal::io::uvh5::Reader;

use crate::common::{code, done, entries, fails, sidereal, stderr};
use crate::live::{Running, await_port, free_port};
use crate::ring::key;

/// Options of all X-engines.
const CORRELATION: &str =
    "--antennas array/antennas.csv --missing flag --phase-centre 140,-20 --integration 0.01 -q";

/// Antennas of which there are recordings.
const ANTENNAS: [&str; 2] = ["ant00", "ant01"];

/// Two of three antennas, 0.25 s of 1 MHz, which begin 10 samples after midnight.
fn array() -> tempfile::TempDir {
    let home = tempfile::tempdir().unwrap();
    let words = "simulate array -o array -q --layout 3,300 --source 140,-20,200,Spot --sefd 100 --freq 150 --bandwidth 1 \
                 --seconds 0.25 --start 2025-01-01T00:00:00.00001 --seed 5";
    done(home.path(), words);
    home
}

/// Starts a process that must succeed.
fn start(folder: &Path, words: &str) -> Running {
    Running::start(folder, words)
}

fn succeed(running: Running) -> String {
    let output = running.end();
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    String::from_utf8(output.stdout).unwrap()
}

/// Starts an F-engine for each antenna that sends to `receivers` of it, plays the recordings to them, and returns what they print.
fn channelized(folder: &Path, receivers: [String; 2], impairments: &str) -> Vec<String> {
    let ports = ANTENNAS.map(|_| free_port());
    let engines: Vec<Running> = ports
        .iter()
        .zip(&receivers)
        .map(|(port, receivers)| {
            start(
                folder,
                &format!(
                    "live channelize spead://127.0.0.1:{port} --send {receivers} --channels 64 --gain 3 --observations 1 --json -q"
                ),
            )
        })
        .collect();
    ports.into_iter().for_each(await_port);
    let senders: Vec<Running> = ANTENNAS
        .iter()
        .zip(ports)
        .map(|(name, port)| {
            start(
                folder,
                &format!("send array/{name}.dada spead://127.0.0.1:{port} -q {impairments}"),
            )
        })
        .collect();
    for sender in senders {
        succeed(sender);
    }
    engines.into_iter().map(succeed).collect()
}

/// The only file of visibilities of a folder.
fn file(folder: &Path) -> PathBuf {
    let names = entries(folder);
    let mut own = names.iter().filter(|name| name.ends_with(".uvh5"));
    let name = own.next().expect("a file");
    assert!(own.next().is_none(), "{names:?}");
    folder.join(name)
}

/// Visibilities and parts of valid samples of all rows, in those of a file's channels that another one has, which must be among them.
fn rows(path: &Path, frequencies_hz: &[f64]) -> Vec<(Vec<Complex<f32>>, Vec<f32>)> {
    let reader = Reader::open(path).unwrap();
    let summary = reader.summary();
    let near =
        |hertz: &f64| summary.frequencies_hz.iter().position(|own| (own - hertz).abs() < 1.0);
    let channels: Vec<usize> = frequencies_hz.iter().map(|hertz| near(hertz).unwrap()).collect();
    let pairs = summary.polarizations.len();
    let mut all = Vec::new();
    for integration in 0..summary.integrations {
        for baseline in 0..reader.baselines().len() {
            let row = reader.row(integration, baseline).unwrap();
            let elements =
                || channels.iter().flat_map(|channel| channel * pairs..(channel + 1) * pairs);
            all.push((
                elements().map(|element| row.visibilities[element]).collect(),
                elements().map(|element| row.samples[element]).collect(),
            ));
        }
    }
    all
}

fn frequencies(path: &Path) -> Vec<f64> {
    Reader::open(path).unwrap().summary().frequencies_hz.clone()
}

/// Correlates spectra that `channelize` makes of the recordings, from their first sample on that is a whole number of spectra after midnight.
fn whole(folder: &Path) -> PathBuf {
    for name in ANTENNAS {
        done(
            folder,
            &format!(
                "channelize array/{name}.dada -o {name}.dada -q --channels 64 --gain 3 --time-range 54e-6:"
            ),
        );
    }
    done(
        folder,
        &format!(
            "correlate ant00=ant00.dada ant01=ant01.dada -o whole.uvh5 --no-plots {CORRELATION}"
        ),
    );
    folder.join("whole.uvh5")
}

#[test]
fn x_engines_behind_streams_and_rings_write_the_channels_of_one_correlation() {
    let home = array();
    let folder = home.path();
    let whole = whole(folder);
    let ports = ANTENNAS.map(|_| free_port());
    let keys = [key(12), key(13)];
    for key in keys {
        done(folder, &format!("ring create -k {key} -n 8 -b 64KiB"));
    }
    let engine = |name: &str, addresses: [String; 2]| {
        let [first, second] = addresses;
        let words = format!(
            "live correlate ant00={first} ant01={second} -o {name} --observations 1 {CORRELATION}"
        );
        start(folder, &words)
    };
    let streams = ports.map(|port| format!("spead://127.0.0.1:{port}"));
    let rings = keys.map(|key| format!("dada:{key}"));
    let engines = [engine("low", streams.clone()), engine("high", rings.clone())];
    ports.into_iter().for_each(await_port);
    let receivers = [0, 1].map(|antenna| format!("{},{}", streams[antenna], rings[antenna]));
    let printed = channelized(folder, receivers, "");
    engines.into_iter().for_each(|engine| drop(succeed(engine)));
    for key in keys {
        done(folder, &format!("ring destroy -k {key}"));
    }
    // A document for each receiver.
    for text in printed {
        assert_eq!(text.matches("sidereal/send/").count(), 2, "{text}");
    }
    let all = frequencies(&whole);
    for (name, half) in [("low", &all[..32]), ("high", &all[32..])] {
        let file = file(&folder.join(name));
        assert_eq!(frequencies(&file), half, "{name}");
        let (found, expected) = (rows(&file, half), rows(&whole, half));
        assert_eq!(found.len(), expected.len(), "{name}");
        assert!(found.iter().any(|(values, _)| values.iter().any(|value| value.re != 0.0)));
        assert!(found == expected, "{name}");
    }
}

#[test]
fn spectra_of_lost_samples_are_not_sent() {
    let home = array();
    let folder = home.path();
    let whole = whole(folder);
    let ports = ANTENNAS.map(|_| free_port());
    let [first, second] = ports.map(|port| format!("spead://127.0.0.1:{port}"));
    let words = format!(
        "live correlate ant00={first} ant01={second} -o lossy --observations 1 {CORRELATION}"
    );
    let engine = start(folder, &words);
    ports.into_iter().for_each(await_port);
    channelized(folder, [first, second], "--loss 0.1 --seed 3 --heap-times 1024");
    succeed(engine);
    let file = file(&folder.join("lossy"));
    let all = frequencies(&whole);
    assert_eq!(frequencies(&file), all);
    let (found, expected) = (rows(&file, &all), rows(&whole, &all));
    // Zeros in place of lost samples would lower the mean power of the antennas with themselves.
    let power = |rows: &[(Vec<Complex<f32>>, Vec<f32>)]| {
        let (mut sum, mut samples, mut most) = (0.0, 0.0, 0.0);
        for (values, parts) in rows {
            for (value, part) in values.iter().zip(parts) {
                sum += f64::from(value.norm() * part);
                samples += f64::from(*part);
                most += 1.0;
            }
        }
        (sum / samples, samples / most)
    };
    let ((mean, valid), (expected_mean, all_valid)) = (power(&found), power(&expected));
    assert!(valid < 0.9 * all_valid && valid > 0.2 * all_valid, "{valid} of {all_valid}");
    assert!((mean / expected_mean - 1.0).abs() < 0.05, "{mean} {expected_mean}");
}

#[test]
fn wrong_receivers_are_named() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path();
    let sent = |words: &str| {
        sidereal(
            folder,
            &format!("live channelize spead://127.0.0.1:{} --channels 64 {words}", free_port()),
        )
    };
    fails(
        &sent("--send vdif://127.0.0.1:9 --gain 1"),
        2,
        &["--send", "vdif://127.0.0.1:9", "spead://HOST:PORT"],
    );
    fails(
        &sent("--send spead://127.0.0.1:9,spead://127.0.0.1:9 --gain 1"),
        2,
        &["--send", "twice"],
    );
    fails(&sent("--send spead://127.0.0.1:9"), 2, &["--gain", "all antennas"]);
    fails(&sent("--send spead://127.0.0.1:9 --gain 1 -o out"), 2, &["--send", "--output"]);
    fails(&sent("--send spead://127.0.0.1:9 --gain 1 --integrate 4"), 2, &["--integrate"]);
    assert!(fs::read_dir(folder).unwrap().next().is_none());
    let text = format!(
        "[input]\naddress = \"spead://127.0.0.1:{}\"\n[channelize]\nchannels = 64\ngain = 1\n\
         send = [\"spead://127.0.0.1:9\", \"dada:6d0b\"]\n",
        free_port()
    );
    fs::write(folder.join("site.toml"), text).unwrap();
    let output = sidereal(folder, "live check site.toml");
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    assert!(stderr(&output).contains("to spead://127.0.0.1:9, dada:6d0b"), "{}", stderr(&output));
    assert_eq!(entries(folder).len(), 1);
}
