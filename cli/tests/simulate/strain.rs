//! `sidereal simulate strain`: the files that it writes, read back; the truth file; faults.

use std::path::{Path, PathBuf};

use crate::common::{document, done, json, sidereal, stderr};
use serde_json::Value;
use sidereal::geometry::Interferometer;
use sidereal::io::strain::{OpenOptions, StrainSource, bits, open, open_all};
use sidereal::math::advanced_ligo;
use sidereal::simulate::strain::{Simulation, StrainOptions};
use sidereal::units::Gps;

const EVENT: &str = "m1=30,m2=30,distance=500,ra=1.2,dec=-0.4,inclination=0.3,time=1400000020.5";

fn whole(source: &mut dyn StrainSource) -> (Vec<f64>, Vec<bool>) {
    let times = source.header().times.unwrap() as usize;
    let (mut samples, mut valid) = (vec![0.0; times], vec![false; times]);
    let mut at = 0;
    while at < times {
        let made = source.read(&mut samples[at..], &mut valid[at..]).unwrap();
        assert!(made > 0);
        at += made;
    }
    (samples, valid)
}

fn read_back(path: &Path) -> (Vec<f64>, Vec<bool>) {
    let mut source = open(path, &OpenOptions::default()).unwrap();
    assert_eq!(source.header().start, Gps::from_s(1.4e9));
    whole(&mut *source)
}

#[test]
fn files_hold_what_the_library_makes_and_the_truth() {
    let home = tempfile::tempdir().unwrap();
    let words = format!(
        "simulate strain a.hdf5 --length 32 --rate 1024 --seed 4 --f-low 30 --inject {EVENT} \
         --glitch L1:time=1400000005.5,snr=25 --bad-seconds H1:3:4 --gap-seconds L1:8:10"
    );
    let truth = json(home.path(), &words);
    assert_eq!(truth, document(home.path(), "a.hdf5.truth.json"));
    let (samples, valid) = read_back(&home.path().join("a_H1.hdf5"));
    let bad: Vec<usize> = (0..valid.len()).filter(|place| !valid[*place]).collect();
    assert_eq!((bad.len(), bad[0], bad[1023]), (1024, 3072, 4095));
    let detectors =
        [Interferometer::by_name("H1").unwrap(), Interferometer::by_name("L1").unwrap()];
    let psd = advanced_ligo(0.125, 4097).unwrap();
    let mut options = StrainOptions::new(&detectors, &psd, Gps::from_s(1.4e9), 1024, 32 * 1024);
    options.seed = 4;
    let mut simulation = Simulation::new(&options).unwrap();
    let (noise, _) = whole(&mut simulation.detectors[0]);
    assert_eq!(samples[5 * 1024..10 * 1024], noise[5 * 1024..10 * 1024]);
    assert!((20 * 1024..21 * 1024).any(|n| (samples[n] - noise[n]).abs() > 1e-22));
    let (_, valid) = read_back(&home.path().join("a_L1.hdf5"));
    assert_eq!(valid.iter().filter(|valid| !**valid).count(), 2048);

    let event = &truth["events"][0];
    assert_eq!(event["gps"], 1_400_000_020.5);
    let snr = |name: &str| event["detectors"][name]["snr"].as_f64().unwrap();
    let network = event["network_snr"].as_f64().unwrap();
    assert!((snr("H1").hypot(snr("L1")) / network - 1.0).abs() < 1e-9 && network > 10.0);
    let gps = |name: &str| event["detectors"][name]["gps"].as_f64().unwrap();
    assert!((gps("H1") - gps("L1")).abs() < 0.0101);
    assert_eq!(truth["glitches"][0]["detector"], "L1");
    assert_eq!(truth["bad_seconds"][1]["missing"], true);
    assert_eq!(truth["warnings"].as_array().unwrap().len(), 0);
}

#[test]
fn tables_of_injections_and_long_waves() {
    let home = tempfile::tempdir().unwrap();
    let table = "# made by hand\nmass1,mass2,distance,ra,dec,time,f_low\n\
                 30,20,400,0.1,0.2,1400000010.5,\n\n1.4,1.4,40,2.5,-1,1400000031,24\n";
    std::fs::write(home.path().join("t.csv"), table).unwrap();
    let words = "simulate strain b --detectors V1 --length 40 --rate 4096 --no-noise --f-low 20 \
                 --injections t.csv";
    let said = done(home.path(), words);
    assert!(
        said.contains("2 injections") && said.contains("warning: of the injection 1.4+1.4"),
        "{said}"
    );
    assert!(home.path().join("b_V1.hdf5").exists());
    let truth = document(home.path(), "b.truth.json");
    let events = truth["events"].as_array().unwrap();
    assert_eq!(events.len(), 2);
    assert!(events[0]["network_snr"].as_f64() >= events[1]["network_snr"].as_f64());
    let long = events.iter().find(|event| event["binary"]["m1"] == 1.4).unwrap();
    assert!(long["detectors"]["V1"]["cut_before_s"].as_f64().unwrap() > 20.0);
    let heavy = events.iter().find(|event| event["binary"]["m1"] == 30.0).unwrap();
    assert_eq!(
        (&heavy["approximant"], &long["approximant"]),
        (&"IMRPhenomD".into(), &"TaylorT4".into())
    );
    let refused = sidereal(home.path(), words);
    assert!(!refused.status.success() && stderr(&refused).contains("--overwrite"));
    std::fs::copy(home.path().join("t.csv"), home.path().join("b.truth.json")).unwrap();
    let read = words.replace("t.csv", "b.truth.json") + " --overwrite";
    let refused = sidereal(home.path(), &read);
    assert!(!refused.status.success() && stderr(&refused).contains("is read"));
    let again = json(home.path(), &format!("{words} --overwrite --approximant TaylorT4"));
    let events = again["events"].as_array().unwrap();
    assert!(events.iter().all(|event| event["approximant"] == "TaylorT4"));
    let snr = |truth: &Value| truth["events"][0]["network_snr"].as_f64().unwrap();
    assert!(snr(&truth) > 1.1 * snr(&again), "a merger is heard as well");
}

/// Reads the frames of a second or less of a detector, in order of time.
fn frames(folder: &Path, name: &str) -> (Vec<f64>, Vec<bool>) {
    let read = std::fs::read_dir(folder.join(name)).unwrap();
    let paths: Vec<PathBuf> = read.map(|entry| entry.unwrap().path()).collect();
    let channel = Some(format!("{name}:STRAIN"));
    whole(&mut *open_all(&paths, &OpenOptions { channel, ..OpenOptions::default() }).unwrap())
}

#[test]
fn recorded_strain_is_played_with_its_bits_and_injections() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path();
    let noise = "--length 24 --rate 1024 --seed 4 --bad-seconds H1:3:4 --gap-seconds L1:8:10";
    done(folder, &format!("simulate strain a.hdf5 {noise} -q"));
    let recorded = "--recorded a_H1.hdf5 --recorded a_L1.hdf5";
    done(folder, &format!("simulate strain --live live {recorded} --frame 0.25 --speed 0 -q"));
    let truth = document(&folder.join("live"), "truth.json");
    assert_eq!((&truth["recorded"], &truth["rate_hz"]), (&true.into(), &1024.into()));
    assert_eq!((&truth["start_gps"], &truth["duration_s"]), (&1.4e9.into(), &24.0.into()));
    for name in ["H1", "L1"] {
        assert_eq!(
            frames(&folder.join("live"), name),
            read_back(&folder.join(format!("a_{name}.hdf5")))
        );
    }
    // Its samples are those of the file, also where it says that they are bad.
    let all = OpenOptions { required_quality: Some(Vec::new()), ..OpenOptions::default() };
    let bad = folder.join("live/H1/H-H1_REC-1400000003.25-0.25.gwf");
    let (found, _) = whole(&mut *open(&bad, &all).unwrap());
    let (expected, _) = whole(&mut *open(&folder.join("a_H1.hdf5"), &all).unwrap());
    assert_eq!(found, expected[3 * 1024 + 256..3 * 1024 + 512]);
    // Binaries are added as to noise, and their seconds marked.
    let inject = format!("--f-low 30 --inject {EVENT}");
    done(folder, &format!("simulate strain b.hdf5 {noise} {inject} -q"));
    let added =
        json(folder, &format!("simulate strain c.hdf5 {recorded} {inject} --mark-injections"));
    let simulated = document(folder, "b.hdf5.truth.json");
    assert_eq!(added["events"], simulated["events"]);
    let marked = |path: &Path| bits(path, &OpenOptions::default()).unwrap().injections[0].1.clone();
    for name in ["H1", "L1"] {
        let [with, without] = ["c", "b"].map(|file| folder.join(format!("{file}_{name}.hdf5")));
        assert_eq!(read_back(&with), read_back(&without));
        let clear =
            |bits: &[u32]| (0..bits.len()).filter(|n| bits[*n] & 1 == 0).collect::<Vec<_>>();
        let duration_s = added["events"][0]["duration_s"].as_f64().unwrap();
        let missing = |second: &usize| name == "L1" && (8..10).contains(second);
        let seconds: Vec<usize> =
            clear(&marked(&with)).into_iter().filter(|one| !missing(one)).collect();
        assert_eq!(
            (seconds.last(), seconds[0]),
            (Some(&20), (20.5 - duration_s) as usize),
            "{seconds:?}"
        );
        assert!(clear(&marked(&without)).iter().all(missing));
    }
    // A part of it, in frames.
    let part = format!("simulate strain d.gwf {recorded} --start 1400000002 --length 5");
    done(folder, &format!("{part} -q"));
    let name = folder.join("H-d_H1-1400000002-5.gwf");
    let channel = Some("H1:STRAIN".to_owned());
    let (found, _) = whole(&mut *open(&name, &OpenOptions { channel, ..all }).unwrap());
    assert_eq!(found, expected[2 * 1024..7 * 1024]);
    for (words, word) in [
        ("--recorded none.hdf5", "none.hdf5"),
        ("--recorded a_H1.hdf5 --start 1399999999", "24 whole seconds from 1400000000"),
        ("--recorded a_H1.hdf5 --length 25", "24 whole seconds"),
        ("--recorded a_H1.hdf5 --seed 3", "--seed"),
        ("--recorded a_H1.hdf5 --detectors L1", "--detectors"),
        ("--recorded L1=a_H1.hdf5", "H1"),
        ("--channel H1:STRAIN", "--recorded"),
    ] {
        let output = sidereal(folder, &format!("simulate strain x.hdf5 {words}"));
        let text = stderr(&output);
        assert!(!output.status.success() && text.contains(word), "{words}: {text}");
    }
}

#[test]
fn wrong_use_is_one_clear_error() {
    let home = tempfile::tempdir().unwrap();
    std::fs::write(home.path().join("bad.csv"), "m1,m2\n1,2,3\n").unwrap();
    std::fs::write(home.path().join("name.csv"), "m1,colour\n1,2\n").unwrap();
    for (words, word) in [
        ("--detectors H1,X1", "X1"),
        ("--detectors H1,H1", "once only"),
        ("--length 0", "--length"),
        ("--rate 0", "--rate"),
        ("--rate 4000000000", "--rate"),
        ("--start -5", "--start"),
        ("--noise-low -1", "lowest frequency"),
        ("--inject m1=30,m2=30,distance=0,ra=0,dec=0,time=1400000001", "distance"),
        ("--inject m1=30,m2=30,distance=1,ra=0,dec=45,time=1400000001", "dec"),
        ("--inject m1=30,m2=30,distance=1,ra=0,dec=0,time=1300000000", "1400000000 to 1400000064"),
        ("--inject m1=30,distance=1,ra=0,dec=0,time=1400000001", "m2"),
        ("--inject m1=900,m2=900,distance=1,ra=0,dec=0,time=1400000001", "no waveform in band"),
        ("--inject m1=30,m2=30,mass=1", "its names are"),
        ("--injections none.csv", "none.csv"),
        ("--injections bad.csv", "3 cells found, expected 2"),
        ("--injections name.csv", "line 2"),
        ("--psd none.txt", "none.txt"),
        ("--psd white:loud", "white:"),
        ("--psd V1=white", "--detectors"),
        ("--glitch time=3,snr=3", "H1:time"),
        ("--glitch H1:time=1300000000,snr=3", "1400000000 to 1400000064"),
        ("--glitch V1:time=1400000001,snr=3", "--detectors"),
        ("--bad-seconds 5", "A:B"),
        ("--bad-seconds 5:3", "5:3"),
        ("--gap-seconds H1:60:70", "60:70"),
    ] {
        let output = sidereal(home.path(), &format!("simulate strain x.hdf5 {words}"));
        let text = stderr(&output);
        assert!(!output.status.success() && text.contains(word), "{words}: {text}");
        assert_eq!(text.matches("sidereal: ").count(), 1, "{words}: {text}");
    }
    let output = sidereal(home.path(), "simulate strain x.fil");
    assert!(stderr(&output).contains(".hdf5"));
    let left: Vec<_> = std::fs::read_dir(home.path()).unwrap().collect();
    assert_eq!(left.len(), 2);
}
