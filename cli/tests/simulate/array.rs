//! `sidereal simulate array`: the files that it writes, read back; positions and truth; faults.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;
use sidereal::geometry::Dut1;
use sidereal::io::antennas;
use sidereal::io::voltages::{VoltageOptions, VoltageSource, open};
use sidereal::pipeline::array;
use sidereal::simulate::array::{ArrayOptions, ArraySimulator};
use sidereal::units::Epoch;
use sidereal::voltage::{VoltageBlock, VoltageEncoding};

const BAND: &str = "--freq 150 --bandwidth 2 --channels 2 --seconds 0.02 --seed 5";
const SKY: &str = "--start 2025-01-01T18:00:00 --dut1 0.05 --source 60,-30,100,bright \
                   --source 04:01:00,-29:30:00,20 --source 240,10,7,low --sefd 300";

fn sidereal(folder: &Path, words: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_sidereal"))
        .args(words.split_whitespace())
        .current_dir(folder)
        .output()
        .unwrap()
}

fn made(folder: &Path, words: &str) -> Value {
    let output = sidereal(folder, &format!("simulate array --json {words}"));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn whole(source: &mut dyn VoltageSource) -> VoltageBlock<'static> {
    let times = source.header().times.unwrap() as usize;
    let mut block = source.header().block(times);
    assert_eq!(source.read(&mut block).unwrap(), times);
    block
}

/// Positions come back from a CSV to a nanometre, so a sample in many thousands is rounded the other way.
fn same(a: &VoltageBlock, b: &VoltageBlock) {
    let (a, b) = (a.voltages(), b.voltages());
    assert_eq!((a.streams(), a.times(), a.encoding()), (b.streams(), b.times(), b.encoding()));
    for stream in 0..a.streams() {
        let off = (0..a.times()).map(|n| (a.value(stream, n) - b.value(stream, n)).norm());
        let off: Vec<f64> = off.filter(|off| *off > 0.0).collect();
        assert!(off.len() <= 1 + a.times() / 1000, "stream {stream}: {} differ", off.len());
        assert!(off.iter().all(|off| *off <= 1.5), "stream {stream}");
    }
}

/// The simulation that the truth describes, of the antennas in a folder's CSV.
fn described(
    folder: &Path,
    truth: &Value,
    encoding: VoltageEncoding,
    lower: bool,
) -> ArraySimulator {
    let array = array(&antennas::read(&folder.join("antennas.csv")).unwrap(), None).unwrap();
    let options = ArrayOptions::new(array, 150e6, 2e6, 2, 1).encoding(encoding).sefd_jy(300.0);
    let mut options = if lower { options.lower_sideband() } else { options };
    options.times = (0.02 / options.tsamp_s()).round() as u64;
    options.seed = 5;
    options.start = Epoch::new(60676, 64_800.0);
    options.dut1 = Dut1::Given(0.05);
    options.polarizations = truth["polarizations"].as_u64().unwrap() as usize;
    for source in truth["sources"].as_array().unwrap() {
        let number = |key: &str| source[key].as_f64().unwrap();
        let direction =
            sidereal::geometry::Direction::new(number("ra_deg"), number("dec_deg")).unwrap();
        let name = source["name"].as_str().unwrap();
        let flux_jy = number("flux_jy");
        options.sources.push(sidereal::simulate::array::PointSource::new(name, direction, flux_jy));
    }
    ArraySimulator::new(options).unwrap()
}

#[test]
fn what_is_written_is_read_back() {
    let home = tempfile::tempdir().unwrap();
    let cases = [
        ("a", "--layout 3,800", VoltageEncoding::Complex8, false),
        ("b", "--layout 3,800,wye --format guppi --nbits 4", VoltageEncoding::Complex4, false),
        ("c", "--layout 2,90 --lower-sideband --nbits 16", VoltageEncoding::Complex16, true),
        (
            "d",
            "--layout 2,90 --location 10,50,100 --telescope x --real --polarizations 1",
            VoltageEncoding::Real8,
            false,
        ),
    ];
    for (name, words, encoding, lower) in cases {
        let truth = made(home.path(), &format!("-o {name} {BAND} {SKY} {words}"));
        let folder = home.path().join(name);
        let written: Value =
            serde_json::from_slice(&fs::read(folder.join("truth.json")).unwrap()).unwrap();
        assert_eq!(truth, written);
        let simulator = described(&folder, &truth, encoding, lower);
        let listed = truth["antennas"].as_array().unwrap();
        assert_eq!(listed.len(), simulator.antennas());
        assert_eq!(names(&folder).len(), simulator.antennas() + 2);
        for (i, antenna) in listed.iter().enumerate() {
            let file = folder.join(antenna["file"].as_str().unwrap());
            let mut source = open(&[file], &VoltageOptions::default()).unwrap();
            let header = source.header().clone();
            assert_eq!(header.telescope, antenna["name"].as_str().unwrap());
            assert_eq!((header.source_name.as_str(), header.lower_sideband), ("bright", lower));
            assert!((header.ra_deg.unwrap() - 60.0).abs() < 1e-6);
            assert!((header.dec_deg.unwrap() + 30.0).abs() < 1e-6);
            assert!(header.start.seconds_since(&Epoch::new(60676, 64_800.0)).abs() < 1e-9);
            same(&whole(&mut *source), &whole(&mut simulator.antenna(i).unwrap()));
            let expected = &simulator.truth().autocorrelations[i];
            let powers = antenna["autocorrelations"].as_array().unwrap();
            let off = powers.iter().zip(expected).map(|(a, b)| (a.as_f64().unwrap() - b).abs());
            assert!(powers.len() == expected.len() && off.fold(0.0, f64::max) < 1e-9);
        }
        let low = &truth["sources"][2];
        assert_eq!(low["below_horizon"].as_bool(), Some(true));
        assert!(truth["warnings"][0].as_str().unwrap().contains("low is below the horizon"));
        let (second, delays) = (&truth["sources"][1], &simulator.truth().sources[1].delays_s);
        assert_eq!(
            (second["name"].as_str(), second["ra_deg"].as_f64()),
            (Some("source1"), Some(60.25))
        );
        for (found, expected) in second["delays_s"].as_array().unwrap().iter().zip(delays) {
            assert!((found.as_f64().unwrap() - expected).abs() < 1e-15);
        }
    }
}

#[test]
fn positions_come_from_a_file_and_go_to_one() {
    let home = tempfile::tempdir().unwrap();
    let csv = "# longitude_deg=21.5\n# latitude_deg=-30.7\n# height_m=1000\n\
               name,east,north,up,number,delay_ns\nm 1,10,20,3,4,-7.5\nm/2,-50,8,0,9,\n";
    fs::write(home.path().join("field.csv"), csv).unwrap();
    let truth = made(home.path(), &format!("-o out --antennas field.csv {BAND} {SKY}"));
    assert_eq!(
        names(&home.path().join("out")),
        ["antennas.csv", "m_1.dada", "m_2.dada", "truth.json"]
    );
    let read = |path: &str| array(&antennas::read(&home.path().join(path)).unwrap(), None).unwrap();
    let (given, written) = (read("field.csv"), read("out/antennas.csv"));
    for (a, b) in given.antennas.iter().zip(&written.antennas) {
        assert_eq!((&a.name, a.number), (&b.name, b.number));
        let off = a.itrf_m.iter().zip(b.itrf_m).map(|(a, b)| (a - b).abs());
        assert!(off.fold(0.0, f64::max) < 1e-6);
    }
    let reference = given.reference_itrf_m.iter().zip(written.reference_itrf_m);
    assert!(reference.map(|(a, b)| (a - b).abs()).fold(0.0, f64::max) < 1e-6);
    assert_eq!(truth["antennas"][0]["delay_s"].as_f64(), Some(-7.5e-9));
    let rows = antennas::read(&home.path().join("out/antennas.csv")).unwrap().rows;
    assert!((rows[0].delay_s + 7.5e-9).abs() < 1e-20);
}

#[test]
fn faults_of_antennas_are_made() {
    let home = tempfile::tempdir().unwrap();
    let faults = "--dead ant01 --no-file ant02 --gap ant00,0.004,0.003";
    for (format, end) in [("dada", "dada"), ("guppi", "raw")] {
        let words = format!("-o {format} --layout 3,80 --format {format} {BAND} {SKY} {faults}");
        let truth = made(home.path(), &words);
        let folder = home.path().join(format);
        let files = [format!("ant00.{end}"), format!("ant01.{end}")];
        assert_eq!(names(&folder)[..2], files);
        assert_eq!(truth["antennas"][2]["file"], Value::Null);
        let opened =
            |i: usize| open(&[folder.join(&files[i])], &VoltageOptions::default()).unwrap();
        let dead = whole(&mut *opened(1));
        assert!((0..4).all(|s| dead.voltages().row(s).iter().all(|byte| *byte == 0)));
        let mut source = opened(0);
        let block = whole(&mut *source);
        let row = block.voltages().row(0);
        let zeros = row.chunks_exact(2).filter(|sample| sample == &[0, 0]).count();
        // Two channels of 1 MHz: 3000 samples, and those that are 0 by chance.
        assert!((2900..3200).contains(&zeros), "{format}: {zeros}");
        let flagged: u64 = source.flags().iter().map(|flag| flag.times).sum();
        assert_eq!(flagged > 2900, format == "guppi", "{flagged}");
    }
}

#[test]
fn an_existing_folder_is_kept() {
    let home = tempfile::tempdir().unwrap();
    let words = format!("simulate array -q -o out --layout 2,80 {BAND} {SKY}");
    assert!(sidereal(home.path(), &words).status.success());
    let before = fs::read(home.path().join("out/ant00.dada")).unwrap();
    let again = sidereal(home.path(), &words);
    assert_eq!(again.status.code(), Some(2));
    assert!(String::from_utf8(again.stderr).unwrap().contains("--overwrite"));
    let other = sidereal(
        home.path(),
        &format!("{words} --overwrite --channels 1").replace("--channels 2 ", ""),
    );
    assert!(other.status.success(), "{}", String::from_utf8_lossy(&other.stderr));
    assert!(fs::read(home.path().join("out/ant00.dada")).unwrap() != before);
    assert_eq!(names(home.path()), ["out"]);
}

#[test]
fn what_cannot_be_made_is_one_clear_error() {
    let home = tempfile::tempdir().unwrap();
    let csv = |name: &str, rows: &str| {
        fs::write(home.path().join(name), format!("name,x,y,z\n{rows}")).unwrap();
    };
    csv("twice.csv", "a,6378137,0,0\na,6378137,10,0\n");
    csv("files.csv", "a b,6378137,0,0\na/b,6378137,10,0\n");
    csv("none.csv", "");
    let (layout, before) = ("--layout 2,80", names(home.path()));
    for (words, told) in [
        (BAND.to_owned(), "--layout"),
        (format!("--layout 0,80 {BAND}"), "1 to 4096 antennas"),
        (format!("--layout 2,80,ring {BAND}"), "--layout"),
        (format!("{layout} --antennas twice.csv {BAND}"), "--antennas"),
        (format!("--antennas twice.csv {BAND}"), "a second time"),
        (format!("--antennas files.csv {BAND}"), "a_b.dada"),
        (format!("--antennas none.csv {BAND}"), "found 0 antennas"),
        (format!("--antennas missing.csv {BAND}"), "missing.csv"),
        (format!("{layout} {BAND} --source 361,0,1"), "right ascension is 361"),
        (format!("{layout} {BAND} --source 60,-91,1"), "declination is -91"),
        (format!("{layout} {BAND} --source 60,-30"), "RA,DEC,FLUX"),
        (format!("{layout} {BAND} --source 60,-30,-1"), "not a flux"),
        (format!("{layout} {BAND} --polarized x,0.5"), "no --source of that name"),
        (format!("{layout} {BAND} --source 60,-30,1,x --polarized x,2"), "linear"),
        (format!("{layout} {BAND} --format wav"), "--format"),
        (format!("{layout} {BAND} --format guppi --real"), "--real"),
        (format!("{layout} {BAND} --nbits 2"), "--nbits"),
        (format!("{layout} {BAND} --start yesterday"), "--start"),
        (format!("{layout} {BAND} --start 1960-01-01"), "time"),
        (format!("{layout} {BAND} --dut1 7"), "dut1"),
        (format!("{layout} {BAND} --sefd 0"), "--sefd"),
        (format!("{layout} {BAND} --sefd -3"), "--sefd"),
        (format!("{layout} {BAND} --polarizations 3"), "--polarizations"),
        (format!("{layout} {BAND} --dead nobody"), "no antenna of that name"),
        (format!("{layout} {BAND} --gap ant00,0.01,0.02"), "gap"),
        (format!("{layout} --freq 1 --bandwidth 4"), "--bandwidth is 4"),
        (format!("{layout} --freq 100 --bandwidth 4 --seconds 0"), "--seconds"),
        (format!("{layout} --freq 100 --bandwidth 4 --seconds 1e-9"), "--seconds"),
        (format!("{layout} --freq 100 --bandwidth 4 --channels 0"), "--channels"),
    ] {
        let output = sidereal(home.path(), &format!("simulate array -o out {words}"));
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(error.contains(told) && !error.contains("panicked"), "{words}: {error}");
        assert!(matches!(output.status.code(), Some(1..=3)), "{words}: {error}");
        assert_eq!(names(home.path()), before, "{words}");
    }
}
