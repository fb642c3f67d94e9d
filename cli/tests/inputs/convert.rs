//! `sidereal convert`: strain between frames, HDF5 and .npy, and what is refused.

use std::fs;
use std::path::{Path, PathBuf};

use crate::common::{code, document, done, entries, fails, json, sidereal, stderr};
use sidereal::io::strain::{OpenOptions, Summary, open};
use sidereal::units::Gps;

fn seed(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../fuzz/seeds/gwf/{name}.gwf"))
}

/// Samples and flags of a file.
fn read(path: &Path, quality: Option<&[&str]>) -> (Vec<f64>, Vec<bool>) {
    let names = |bits: &[&str]| bits.iter().map(|bit| bit.to_string()).collect();
    let is_raw = path.extension().is_some_and(|ending| ending == "npy");
    let options = OpenOptions {
        required_quality: quality.map(names),
        start: is_raw.then(|| Gps::from_s(1.4e9)),
        rate_hz: is_raw.then_some(1024),
        ..OpenOptions::default()
    };
    let mut source = open(path, &options).unwrap_or_else(|error| panic!("{error}"));
    let times = source.header().times.unwrap() as usize;
    let (mut samples, mut valid) = (vec![0.0; times], vec![false; times]);
    let mut done = 0;
    while done < times {
        done += source.read(&mut samples[done..], &mut valid[done..]).unwrap();
    }
    (samples, valid)
}

#[test]
fn strain_goes_round_all_formats_with_its_gaps_and_bits() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path();
    let words = "--detectors H1 --length 70 --rate 1024 --seed 3 --bad-seconds H1:3:5 --gap-seconds H1:8:10";
    done(folder, &format!("simulate strain a.hdf5 -q {words}"));
    done(folder, &format!("simulate strain a.gwf -q {words}"));
    let frame = "H-a_H1-1400000000-70.gwf";
    assert!(entries(folder).contains(frame), "{:?}", entries(folder));
    done(folder, "convert a_H1.hdf5 -o b.gwf -q");
    done(folder, "convert b.gwf -o c.hdf5 -q --compression none");
    done(folder, "convert b.gwf -o d.npy -q");
    done(
        folder,
        "convert d.npy -o e.gwf -q --start 1400000000 --rate 1024 --detector H1 --compression none",
    );
    fs::create_dir(folder.join("out")).unwrap();
    let told =
        json(folder, &format!("convert {frame} -o out --to gwf --output-channel H1:NEW_STRAIN"));
    assert_eq!(told["file"], "out/H-H1_NEW_STRAIN-1400000000-70.gwf");
    assert_eq!(
        (told["channel"].as_str(), told["samples"].as_u64()),
        (Some("H1:NEW_STRAIN"), Some(71_680))
    );
    assert_eq!(
        (told["complete"].as_bool(), told["valid_samples"].as_u64()),
        (Some(true), Some(69_632))
    );
    let bits: [Option<&[&str]>; 3] = [None, Some(&[]), Some(&["CBC_CAT1", "BURST_CAT2"])];
    for bits in bits {
        let expected = read(&folder.join("a_H1.hdf5"), bits);
        let bad = expected.1.iter().filter(|valid| !**valid).count();
        assert_eq!(bad, 1024 * if bits == Some(&[]) { 2 } else { 4 });
        for name in [frame, "b.gwf", "c.hdf5", "out/H-H1_NEW_STRAIN-1400000000-70.gwf"] {
            assert!(read(&folder.join(name), bits) == expected, "{name} with {bits:?}");
        }
    }
    // A raw series has no bits.
    let expected = read(&folder.join("a_H1.hdf5"), Some(&[]));
    assert!(
        read(&folder.join("d.npy"), None) == expected
            && read(&folder.join("e.gwf"), None) == expected
    );
    assert_eq!(document(folder, "c.hdf5.json")["gaps_gps"][0][0], 1_400_000_008.0);
}

#[test]
fn files_are_joined_and_converters_calibrated() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path();
    let words = "-q --detectors L1 --rate 1024 --no-noise";
    done(folder, &format!("simulate strain a.gwf {words} --length 4"));
    done(folder, &format!("simulate strain b.gwf {words} --length 3 --start 1400000006"));
    let told = json(folder, "convert L-b_L1-1400000006-3.gwf L-a_L1-1400000000-4.gwf -o both.hdf5");
    assert_eq!(
        (told["start_gps"].as_f64(), told["end_gps"].as_f64()),
        (Some(1.4e9), Some(1_400_000_009.0))
    );
    let (_, valid) = read(&folder.join("both.hdf5"), None);
    let second = |second: usize| valid[1024 * second..][..1024].iter().all(|valid| *valid);
    assert_eq!([0, 3, 4, 5, 6, 8].map(second), [true, true, false, false, true, true]);

    let adc = seed("valid_adc");
    let adc = adc.display();
    done(folder, &format!("convert {adc} -q --channel H1:TEST_STRAIN -o adc.gwf"));
    let (samples, valid) = read(&folder.join("adc.gwf"), None);
    assert_eq!((samples[1], valid[63], valid[64]), (5.5, true, false));
}

#[test]
fn a_cut_frame_file_is_converted_and_says_so() {
    let home = tempfile::tempdir().unwrap();
    let cut = seed("cut_second_frame");
    let output = sidereal(home.path(), &format!("convert {} -o a.gwf", cut.display()));
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    assert!(stderr(&output).contains("within the structure"), "{}", stderr(&output));
    let told = document(home.path(), "a.gwf.json");
    assert_eq!((told["complete"].as_bool(), told["samples"].as_u64()), (Some(false), Some(64)));
    assert!(told["reason"].as_str().unwrap().contains("cut_second_frame.gwf: it ends at byte"));
    let mut source = open(&home.path().join("a.gwf"), &OpenOptions::default()).unwrap();
    assert_eq!(Summary::read(source.as_mut()).unwrap().times, 64);
}

#[test]
fn what_cannot_be_converted_is_refused() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path();
    let kinds = seed("valid_all_kinds");
    let kinds = kinds.display();
    let gap = seed("valid_gap");
    let gap = gap.display();
    let zlib = seed("broken_zlib");
    let zlib = zlib.display();
    for (words, expected, told) in [
        (format!("convert {kinds} -o a.gwf"), 2, &["--channel", "H1:f8_0"][..]),
        (format!("convert {kinds} -o a.gwf --channel H1:x"), 3, &["H1:x", "no such channel"]),
        (format!("convert {gap} -o a.txt"), 2, &["--output", ".gwf, .hdf5 or .npy"]),
        (format!("convert {gap} -o ."), 2, &["--output", "--to"]),
        (format!("convert {gap} -o a.gwf --to npy"), 2, &["--output", "--to"]),
        (format!("convert {gap} -o a.gwf --output-channel two_words/"), 2, &["two_words/"]),
        (format!("convert {zlib} -o a.gwf"), 3, &["FrVect (at byte 1543)", "damaged"]),
        (format!("convert {gap} {gap} -o a.gwf"), 3, &["overlaps the strain before it"]),
    ] {
        fails(&sidereal(folder, &words), expected, told);
        assert!(entries(folder).is_empty(), "{words}: {:?}", entries(folder));
    }
}

#[test]
fn info_lists_channels_and_shows_the_one_that_is_named() {
    let home = tempfile::tempdir().unwrap();
    let kinds = seed("valid_all_kinds");
    let kinds = kinds.display();
    let told = json(home.path(), &format!("info {kinds}"));
    assert_eq!((told["version"].as_u64(), told["frames"].as_u64()), (Some(8), Some(1)));
    let channel = &told["channels"][0];
    assert_eq!(
        (channel["name"].as_str(), channel["dtype"].as_str()),
        (Some("H1:f4_0"), Some("float32"))
    );
    assert_eq!(
        (channel["rate_hz"].as_f64(), channel["unit"].as_str()),
        (Some(64.0), Some("strain"))
    );
    assert!(told.get("rms").is_none());
    let told = json(home.path(), &format!("info {kinds} --channel H1:i4_8"));
    assert_eq!(
        (told["samples"].as_u64(), told["start_gps"].as_f64()),
        (Some(64), Some(1_126_259_446.0))
    );
    let told = json(home.path(), &format!("info {}", seed("cut_second_frame").display()));
    assert_eq!((told["complete"].as_bool(), told["samples"].as_u64()), (Some(false), Some(64)));
    let sum = seed("broken_sum_of_samples");
    fails(
        &sidereal(home.path(), &format!("info {}", sum.display())),
        3,
        &["FrVect.chkSum (at byte"],
    );
}

#[test]
fn a_search_reads_frames_of_several_detectors() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path();
    let words = "--length 64 --rate 1024 --seed 5 --f-low 30 --inject \
                 m1=30,m2=30,distance=300,ra=1.2,dec=-0.4,time=1400000040.2";
    done(folder, &format!("simulate strain a.hdf5 -q {words}"));
    done(folder, &format!("simulate strain a.gwf -q {words}"));
    fs::write(folder.join("t.csv"), "mass1,mass2\n30,30\n").unwrap();
    done(folder, "spiir bank t.csv -q -o bank.h5 --rate 1024 --f-low 30");
    let search = "spiir search -q --reproducible --bank bank.h5";
    done(folder, &format!("{search} a_H1.hdf5 a_L1.hdf5 -o one"));
    let frames = "H-a_H1-1400000000-64.gwf L-a_L1-1400000000-64.gwf";
    done(folder, &format!("{search} {frames} -o two --channel H1:STRAIN,L1:STRAIN"));
    let events = |name: &str| document(&folder.join(name), "events.json")["events"].clone();
    assert!(events("one").as_array().is_some_and(|events| !events.is_empty()));
    assert_eq!(events("one"), events("two"));
    let refused = sidereal(folder, &format!("{search} {frames} -o three --channel H1:STRAIN,V1:x"));
    fails(&refused, 2, &["--channel", "L-a_L1-1400000000-64.gwf has the channels L1:DQMASK"]);
}
