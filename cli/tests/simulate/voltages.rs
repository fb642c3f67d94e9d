//! `sidereal simulate voltages`: the files that it writes, read back; the truth file; faults.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use sidereal::io::voltages::{Flag, VoltageOptions, VoltageSource, open};
use sidereal::simulate::voltages::{Options, Pulse, Tone, VoltageSimulator};
use sidereal::units::Epoch;
use sidereal::voltage::{VoltageBlock, VoltageEncoding};

const SIGNALS: &str = "--pulse dm=3,time=0.004,width=0.0002,snr=20 --tone freq=401.2,amp=0.5";

fn sidereal(folder: &Path, words: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_sidereal"))
        .args(words.split_whitespace())
        .current_dir(folder)
        .output()
        .unwrap()
}

fn made(folder: &Path, words: &str) -> Value {
    let output = sidereal(folder, &format!("simulate voltages --json {words}"));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// All samples of a source, with what it says of them.
fn whole(source: &mut dyn VoltageSource, times: usize) -> (VoltageBlock<'static>, Vec<Flag>) {
    let mut block = source.header().block(times);
    let read = source.read(&mut block).unwrap();
    assert!(read == times, "{read} of {times}");
    (block, source.flags().to_vec())
}

fn read_back(
    path: PathBuf,
    times: usize,
) -> (VoltageBlock<'static>, Vec<Flag>, Box<dyn VoltageSource>) {
    let mut source = open(&[path], &VoltageOptions::default()).unwrap();
    let (block, flags) = whole(&mut *source, times);
    (block, flags, source)
}

fn same(a: &VoltageBlock, b: &VoltageBlock) {
    let (a, b) = (a.voltages(), b.voltages());
    assert_eq!((a.streams(), a.times(), a.encoding()), (b.streams(), b.times(), b.encoding()));
    for stream in 0..a.streams() {
        assert!(a.row(stream) == b.row(stream), "stream {stream}");
    }
}

/// Returns the library's options that correspond to [`SIGNALS`] and a band of 4 MHz.
fn options(encoding: VoltageEncoding, lower: bool) -> Options {
    let options = Options::new(400e6, 4e6, 4, 1).encoding(encoding);
    let mut options = if lower { options.lower_sideband() } else { options };
    options.times = (0.02 / options.tsamp_s()).round() as u64;
    options.seed = 5;
    options.pulses = vec![Pulse::new(3.0, 0.004, 0.0002, 20.0)];
    options.tones = vec![Tone::new(401.2e6, 0.5)];
    options
}

#[test]
fn what_is_written_is_read_back() {
    let home = tempfile::tempdir().unwrap();
    let cases = [
        ("a.raw", "", VoltageEncoding::Complex8, false),
        ("b.raw", "--nbits 4 --lower-sideband", VoltageEncoding::Complex4, true),
        ("c.raw", "--nbits 16 --antennas 3", VoltageEncoding::Complex16, false),
        ("d.dada", "--pols 1", VoltageEncoding::Complex8, false),
        ("e.dada", "--nbits 32 --lower-sideband", VoltageEncoding::ComplexF32, true),
        ("f.dada", "--real --antennas 2", VoltageEncoding::Real8, false),
        ("g.dada", "--real --nbits 16 --lower-sideband", VoltageEncoding::Real16, true),
    ];
    for (name, words, encoding, lower) in cases {
        let common = "--freq 400 --bandwidth 4 --coarse-channels 4 --duration 0.02 --seed 5";
        let place = "--telescope GBT --tstart 58000.25";
        let truth = made(home.path(), &format!("{name} {common} {place} {SIGNALS} {words}"));
        let mut options = options(encoding, lower);
        options.antennas = if words.contains("antennas 3") { 3 } else { 1 };
        options.antennas += usize::from(words.contains("antennas 2"));
        options.polarizations = if words.contains("pols 1") { 1 } else { 2 };
        let times = options.times as usize;
        let (found, flags, source) = read_back(home.path().join(name), times);
        let header = source.header();
        assert_eq!(header.centres_hz.len(), 4, "{name}");
        let off = header.centres_hz.iter().zip(&options.centres_hz).map(|(a, b)| (a - b).abs());
        assert!(off.fold(0.0, f64::max) < 1.0, "{name} {:?}", header.centres_hz);
        assert_eq!((header.lower_sideband, header.telescope.as_str()), (lower, "GBT"), "{name}");
        assert!((header.tsamp_s / options.tsamp_s() - 1.0).abs() < 1e-12, "{name}");
        assert!(header.start.seconds_since(&Epoch::new(58000, 21_600.0)).abs() < 1e-6, "{name}");
        assert!(flags.is_empty(), "{name}");
        let mut simulator = VoltageSimulator::new(options).unwrap();
        same(&found, &whole(&mut simulator, times).0);
        assert_eq!(truth["reference_mhz"], Value::Null);
        let candidate = &truth["candidates"][0];
        assert_eq!((candidate["dm"].as_f64(), candidate["snr"].as_f64()), (Some(3.0), Some(20.0)));
        assert_eq!(candidate["reference_mhz"].as_f64(), Some(402.0));
        assert_eq!(candidate["time_s"].as_f64(), Some(0.004));
        let beside = home.path().join(format!("{name}.truth.json"));
        let beside: Value = serde_json::from_slice(&fs::read(beside).unwrap()).unwrap();
        assert_eq!(beside, truth);
    }
}

#[test]
fn gaps_are_missing_blocks_of_guppi_and_zeros_of_dada() {
    let home = tempfile::tempdir().unwrap();
    let words = "--freq 400 --bandwidth 4 --coarse-channels 4 --duration 0.02 --seed 5 \
                 --gap start=0.0051,duration=0.003 --gap start=0.012,duration=0.002";
    for name in ["a.raw", "a.dada"] {
        let truth = made(home.path(), &format!("{name} {words} {SIGNALS} --overwrite"));
        let mut options = options(VoltageEncoding::Complex8, false);
        let gap = |gap: &Value| {
            let samples = |key: &str| (gap[key].as_f64().unwrap() * 1e6).round() as u64;
            (samples("start_s"), samples("duration_s"))
        };
        options.gaps = truth["gaps"].as_array().unwrap().iter().map(gap).collect();
        for ((start, times), wanted) in options.gaps.iter().zip([(5100, 3000), (12_000, 2000)]) {
            assert!(start.abs_diff(wanted.0) <= 125 && times.abs_diff(wanted.1) <= 250, "{name}");
        }
        let (found, flags, _) = read_back(home.path().join(name), 20_000);
        let mut simulator = VoltageSimulator::new(options).unwrap();
        let (expected, expected_flags) = whole(&mut simulator, 20_000);
        same(&found, &expected);
        let expected_flags = if name.ends_with("raw") { expected_flags } else { Vec::new() };
        assert_eq!(flags, expected_flags, "{name}");
    }
}

#[test]
fn threads_change_nothing_and_files_are_not_lost() {
    let home = tempfile::tempdir().unwrap();
    let words = format!("--freq 400 --bandwidth 4 --duration 0.05 {SIGNALS} -q");
    for (name, threads) in [("a.raw", 1), ("b.raw", 3)] {
        let output =
            sidereal(home.path(), &format!("simulate voltages {name} {words} -t {threads}"));
        assert!(output.status.success() && output.stdout.is_empty());
    }
    let bytes = |name: &str| fs::read(home.path().join(name)).unwrap();
    assert!(bytes("a.raw") == bytes("b.raw"));
    let again = sidereal(home.path(), &format!("simulate voltages a.raw {words} --seed 9"));
    assert_eq!(again.status.code(), Some(2));
    assert!(bytes("a.raw") == bytes("b.raw"));
    let again = format!("simulate voltages -o a.raw {words} --seed 9 --overwrite");
    assert!(sidereal(home.path(), &again).status.success());
    assert!(bytes("a.raw") != bytes("b.raw"));
}

#[test]
fn faults_name_the_option_and_leave_nothing() {
    let home = tempfile::tempdir().unwrap();
    let band = "--freq 400 --bandwidth 4 --duration 0.01";
    for (words, told) in [
        (format!("x.fil {band}"), ".raw or .dada"),
        (format!("x.raw {band} --nbits 3"), "--nbits"),
        (format!("x.raw {band} --nbits 2 --real"), "GUPPI"),
        (format!("x.raw {band} --nbits 32"), "GUPPI"),
        (format!("x.raw {band} --pols 3"), "--pols"),
        (format!("x.raw {band} --antennas 0"), "--antennas"),
        (format!("x.raw {band} --rms 0"), "--rms"),
        (format!("x.raw {band} --coarse-channels 0"), "--coarse-channels"),
        (format!("x.raw {band} --tstart -3"), "--tstart"),
        (format!("x.raw {band} --tone freq=403"), "tone"),
        (format!("x.raw {band} --tone amp=1"), "--tone"),
        (format!("x.raw {band} --pulse dm=1"), "--pulse"),
        (format!("x.raw {band} --pulse dm=1,time=0.02"), "from 0 to 0.01 s"),
        (format!("x.raw {band} --pulse dm=1,time=0,width=-1"), "width of a pulse"),
        (format!("x.raw {band} --pulse dm=1,time=0,linear=2"), "linear of a pulse"),
        (format!("x.raw {band} --gap start=0.009,duration=0.002"), "--gap"),
        (format!("x.raw {band} --gap start=0,duration=0.002"), "--gap"),
        ("x.raw --freq 1 --bandwidth 4".to_owned(), "--bandwidth is 4"),
        ("x.raw --freq 400 --bandwidth -4".to_owned(), "--bandwidth"),
        ("x.raw --freq 400 --bandwidth 4 --duration 0".to_owned(), "--duration"),
        ("x.raw --freq 400 --bandwidth 4 --duration 1e-9".to_owned(), "--duration"),
    ] {
        let output = sidereal(home.path(), &format!("simulate voltages {words}"));
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(error.contains(told) && !error.contains("panicked"), "{words}: {error}");
        assert_eq!(output.status.code(), Some(2), "{words}: {error}");
        assert_eq!(fs::read_dir(home.path()).unwrap().count(), 0, "{words}");
    }
}
