//! Frame files (GWF): versions, byte orders, compressions, masks, gaps, and rejected files.
//!
//! The files are seeds of the fuzz target, which fuzz/seed_files/gwf.py writes.

use std::path::{Path, PathBuf};

use sidereal::io::gwf::Gwf;
use sidereal::io::strain::{OpenOptions, channels, open, open_all};

const START_NS: i64 = 1_126_259_446_000_000_000;
const STRAIN: &str = "H1:TEST_STRAIN";

fn seed(name: &str) -> PathBuf {
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/fuzz/seeds/gwf"));
    folder.join(format!("{name}.gwf"))
}

fn of_channel(channel: &str) -> OpenOptions {
    OpenOptions { channel: Some(channel.to_owned()), ..OpenOptions::default() }
}

/// Samples and flags, read in blocks.
fn read(path: &Path, options: &OpenOptions, block: usize) -> (Vec<f64>, Vec<bool>) {
    let mut source = open(path, options).unwrap_or_else(|error| panic!("{error}"));
    let (mut samples, mut valid) = (Vec::new(), Vec::new());
    loop {
        let (mut piece, mut good) = (vec![9.0; block], vec![true; block]);
        let count = source.read(&mut piece, &mut good).unwrap_or_else(|error| panic!("{error}"));
        samples.extend(&piece[..count]);
        valid.extend(&good[..count]);
        if count == 0 {
            assert_eq!(source.header().times, Some(samples.len() as u64));
            return (samples, valid);
        }
    }
}

/// The error of opening a file and reading it.
fn refusal(path: &Path, options: &OpenOptions) -> String {
    let mut source = match open(path, options) {
        Ok(source) => source,
        Err(error) => return error.to_string(),
    };
    loop {
        match source.read(&mut [0.0; 64], &mut [false; 64]) {
            Ok(0) => panic!("{} was read", path.display()),
            Ok(_) => {}
            Err(error) => return error.to_string(),
        }
    }
}

fn ramp(count: usize) -> Vec<f64> {
    (0..count).map(|n| ((7 * n) % 50) as f64).collect()
}

fn strain() -> Vec<f64> {
    ramp(64).iter().map(|x| x * 1e-21).collect()
}

#[test]
fn every_type_and_compression_gives_the_same_numbers() {
    for name in ["valid_all_kinds", "valid_big_endian"] {
        let names = channels(&seed(name)).unwrap();
        // Ten types, raw and zlib; eight of whole numbers by differences, eight by zero suppression.
        assert_eq!(names.len(), 2 * 10 + 8 + 8, "{name}");
        for channel in names {
            for block in [1, 7, 1000] {
                let (samples, valid) = read(&seed(name), &of_channel(&channel), block);
                assert_eq!(samples, ramp(64), "{name} {channel}");
                assert!(valid.iter().all(|valid| *valid));
            }
            let mut source = open(&seed(name), &of_channel(&channel)).unwrap();
            let (mut sample, mut valid) = ([0.0], [false]);
            assert_eq!(source.read(&mut sample, &mut valid).unwrap(), 1);
            assert_eq!(source.skip(40).unwrap(), 40);
            assert_eq!(source.read(&mut sample, &mut valid).unwrap(), 1);
            assert_eq!(sample, [ramp(64)[41]], "{name} {channel}");
            assert_eq!(source.skip(40).unwrap(), 22);
        }
    }
    let whole = read(&seed("valid_version_6_big_endian"), &of_channel(STRAIN), 64);
    assert_eq!(whole.0, ramp(64));
}

#[test]
fn versions_tables_and_checksums_may_differ() {
    let twice = [strain(), strain()].concat();
    for (name, frames, version) in [
        ("valid_plain", 2, 8),
        ("valid_absent_lists", 2, 8),
        ("valid_no_table", 2, 8),
        ("valid_no_sums", 2, 8),
        ("valid_no_sums_no_table", 2, 8),
        ("valid_version_6", 2, 6),
        ("valid_version_9", 1, 9),
    ] {
        let file = Gwf::open(&seed(name)).unwrap();
        file.verify().unwrap();
        assert_eq!((file.frames(), file.version(), file.cut()), (frames, version, None), "{name}");
        let channel = file.channel(STRAIN).unwrap();
        assert_eq!((channel.rate_hz, channel.unit.as_str()), (64.0, "strain"));
        let source = open(&seed(name), &OpenOptions::default()).unwrap();
        let header = source.header();
        assert_eq!((header.format, header.detector.as_str()), ("GWF", "H1"));
        assert_eq!((header.start.ns, header.rate_hz), (START_NS, 64));
        let (samples, valid) = read(&seed(name), &OpenOptions::default(), 50);
        assert_eq!(samples, twice[..64 * frames], "{name}");
        assert!(valid.iter().all(|valid| *valid));
    }
}

#[test]
fn gaps_between_frames_are_invalid() {
    let (samples, valid) = read(&seed("valid_gap"), &OpenOptions::default(), 50);
    assert_eq!(samples.len(), 5 * 64);
    let good = |second: usize| valid[64 * second..][..64].iter().all(|valid| *valid);
    assert_eq!([0, 1, 2, 3, 4].map(good), [true, false, false, false, true]);
    assert_eq!((&samples[..64], &samples[256..]), (&strain()[..], &strain()[..]));
    let (samples, valid) = read(&seed("valid_channel_comes_and_goes"), &OpenOptions::default(), 64);
    assert_eq!((samples.len(), valid.iter().filter(|valid| **valid).count()), (192, 128));
    assert!(!valid[64..128].contains(&true));
}

#[test]
fn converters_are_calibrated_and_say_when_they_are_bad() {
    let (samples, valid) = read(&seed("valid_adc"), &of_channel(STRAIN), 64);
    let expected: Vec<f64> = ramp(64).iter().map(|x| 2.0 + 0.5 * x).collect();
    assert_eq!(samples[..64], expected);
    assert!(valid[..64].iter().all(|valid| *valid) && !valid[64..].contains(&true));
    let (samples, _) = read(&seed("valid_adc"), &of_channel("H1:b"), 64);
    assert_eq!(samples, strain());
}

#[test]
fn flags_beside_a_converters_samples_are_honoured() {
    let (samples, valid) = read(&seed("valid_flags"), &of_channel(STRAIN), 64);
    assert_eq!(samples.len(), 192);
    // Eight flags of 64 samples, of which the third and the seventh are not 0; those of another vector are not flags.
    let expected: Vec<bool> =
        (0..192).map(|n| !(16..24).contains(&n) && !(48..56).contains(&n)).collect();
    assert_eq!(valid, expected);
}

#[test]
fn masks_of_gwosc_are_honoured() {
    let path = seed("valid_mask");
    let seconds = |options: &OpenOptions| -> Vec<bool> {
        read(&path, options, 50).1.chunks(64).map(|second| second.iter().all(|x| *x)).collect()
    };
    let names = |names: &[&str]| names.iter().map(|name| name.to_string()).collect::<Vec<_>>();
    let quality = |bits: &[&str]| OpenOptions {
        required_quality: Some(names(bits)),
        ..OpenOptions::default()
    };
    // DQMASK is 3, 3, 1, 2; INJMASK the reverse.
    assert_eq!(seconds(&OpenOptions::default()), [true, true, false, false]);
    assert_eq!(seconds(&quality(&[])), [true; 4]);
    assert_eq!(seconds(&quality(&["DATA"])), [true, true, true, false]);
    assert_eq!(seconds(&quality(&["CBC_CAT1"])), [true, true, false, true]);
    let mut options = quality(&[]);
    options.required_injections = names(&["NO_CBC_HW_INJ"]);
    assert_eq!(seconds(&options), [false, true, true, true]);
    let error = refusal(&path, &quality(&["CAT9"]));
    assert!(error.contains("CAT9 was requested") && error.contains("BURST_CAT3"), "{error}");
    let error = refusal(&seed("valid_plain"), &quality(&["DATA"]));
    assert!(error.contains("no channel of such bits beside H1:TEST_STRAIN"), "{error}");
    let error = refusal(&seed("broken_mask_short"), &OpenOptions::default());
    assert!(error.contains("2 steps found, expected 4"), "{error}");
    // Requested by name, a mask is an ordinary series.
    let (samples, _) = read(&path, &of_channel("H1:TEST_DQMASK"), 8);
    assert_eq!(samples, [3.0, 3.0, 1.0, 2.0]);
}

#[test]
fn of_several_channels_one_must_be_named() {
    let path = seed("valid_all_kinds");
    let error = refusal(&path, &OpenOptions::default());
    for word in ["strain.channel", "valid_all_kinds.gwf holds", "H1:f8_1", "16 more"] {
        assert!(error.contains(word), "{word}: {error}");
    }
    let error = refusal(&path, &of_channel("H1:none"));
    assert!(error.contains("H1:none: no such channel; there are H1:f4_0"), "{error}");
    let other = OpenOptions { detector: Some("L1".into()), ..of_channel("H1:f4_0") };
    assert!(refusal(&path, &other).contains("\"H1\" found, expected \"L1\""));
}

#[test]
fn files_are_joined() {
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("b.gwf");
    std::fs::copy(seed("valid_gap"), &copy).unwrap();
    let Err(error) = open_all(&[seed("valid_plain"), copy], &OpenOptions::default()) else {
        panic!("both begin at the same time")
    };
    assert!(error.to_string().contains("it overlaps the strain before it by 2 s"), "{error}");
}

#[test]
fn a_cut_file_gives_its_whole_frames() {
    for (name, seconds) in [("cut_end", 2), ("cut_no_table", 1), ("cut_second_frame", 1)] {
        let source = open(&seed(name), &OpenOptions::default()).unwrap();
        let cut = source.cut().expect("it is cut").to_owned();
        assert!(cut.contains(name) && cut.contains("within the structure"), "{cut}");
        let (samples, valid) = read(&seed(name), &OpenOptions::default(), 50);
        assert_eq!((samples.len(), valid.contains(&false)), (64 * seconds, false), "{name}");
    }
}

#[test]
fn damaged_files_name_structure_and_place() {
    for (name, words) in [
        ("broken_axis", "FrVect.nx (at byte 1543): [9223372036854775808] found"),
        ("broken_bytes", "FrVect (at byte 1543): data takes 4611686018427387904 bytes, but 563"),
        ("broken_compression", "FrVect.compress (at byte 1543): compression 7 of float64 found"),
        (
            "broken_first_frame",
            "it ends at byte 1496, within the structure that begins at byte 1470",
        ),
        ("broken_flags", "FrVect.data (at byte 1743): 7 flags of int16 found"),
        ("broken_flags_missing", "FrAdcData.aux (at byte 1448): its vector is missing"),
        ("broken_place", "FrTOC (at byte 45)"),
        ("broken_place_far", "FrTOC.positionProc (at byte 3091): H1:TEST_STRAIN at byte 92233"),
        (
            "broken_samples",
            "FrVect.nData (at byte 1543): 1152921504606846976 found in a file of 3197",
        ),
        ("broken_short", "39 bytes found, expected a header of 40"),
        ("broken_spacing", "FrProcData.data (at byte 1470): dx -1 s found"),
        ("broken_sum_of_header", "FrEndOfFile.chkSumFrHeader (at byte 4161): the checksum is 0x"),
        ("broken_sum_of_samples", "FrVect.chkSum (at byte"),
        ("broken_suppressed", "FrVect (at byte 1543): its samples are damaged"),
        ("broken_type", "FrVect.type (at byte 1543): 6 found"),
        ("broken_vector", "FrProcData.data (at byte 1470): its vector is missing"),
        ("broken_version_4", "versions 6 to 9 are read"),
        ("broken_zlib", "FrVect (at byte 1543): its samples are damaged"),
    ] {
        let error = refusal(&seed(name), &of_channel(STRAIN));
        assert!(error.contains(words), "{name}: {error}");
    }
    let sum_of_file = Gwf::open(&seed("broken_sum_of_file")).unwrap().verify().unwrap_err();
    assert!(sum_of_file.to_string().contains("FrEndOfFile.chkSumFile (at byte 4161)"));
    let samples = Gwf::open(&seed("broken_sum_of_samples")).unwrap().verify().unwrap_err();
    assert!(samples.to_string().contains("FrVect.chkSum (at byte"), "{samples}");
}

#[test]
fn a_channel_is_read_without_the_others() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.gwf");
    let mut bytes = std::fs::read(seed("valid_all_kinds")).unwrap();
    // The samples of H1:f8_0 alone are damaged: the vector's name is the last.
    let name = b"H1:f8_0\0";
    let windows = bytes.windows(name.len());
    let places: Vec<usize> =
        windows.enumerate().filter(|(_, window)| window == name).map(|(place, _)| place).collect();
    bytes[places[1] + 100] ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    assert_eq!(read(&path, &of_channel("H1:f8_1"), 64).0, ramp(64));
    assert!(refusal(&path, &of_channel("H1:f8_0")).contains("FrVect.chkSum"));
}
