//! One damaged time in a voltage recording is a bad frame, not a gap of a day.

use crate::support::vlbi;
use std::path::PathBuf;

use sidereal::io::voltages::{self, Flag, VoltageOptions, VoltageSource};
use sidereal::{Error, Result};
use vlbi::{Folder, PLAIN, SYNC, Vdif, mark5b, read_all};

/// Frames or blocks of a recording, and samples of each stream in one.
struct Recording {
    name: &'static str,
    pieces: Vec<Vec<u8>>,
    times: u64,
    streams: usize,
    /// Bytes and bits of each unit that hold its time.
    time_bits: Vec<(usize, u32)>,
    options: VoltageOptions,
}

fn vdif() -> Recording {
    // 400 frames a second: the recording crosses into the next one.
    let frame = |index: u32| Vdif {
        number: (396 + index) % 400,
        seconds: 1000 + (396 + index) / 400,
        extended: [1 << 24, SYNC, 0, 0],
        ..PLAIN
    };
    let rate = (PLAIN.times() * 400) as f64;
    Recording {
        name: "x.vdif",
        pieces: (0..8).map(|index| frame(index).noise_frame()).collect(),
        times: PLAIN.times() as u64,
        streams: 1,
        time_bits: (0..30)
            .chain(32..56)
            .chain(56..62)
            .map(|bit| (bit / 8, bit as u32 % 8))
            .collect(),
        options: VoltageOptions { sample_rate_hz: Some(rate), ..VoltageOptions::default() },
    }
}

fn mark() -> Recording {
    let payload =
        |index: u32| (0..10_000).map(|byte| (byte + index * 37) as u8).collect::<Vec<_>>();
    let frame =
        |index: u32| mark5b(821, 100 + (45 + index) / 50, (45 + index) % 50, 0, &payload(index));
    Recording {
        name: "x.m5b",
        pieces: (0..8).map(frame).collect(),
        times: 5000,
        streams: 8,
        // The number's bits, the seconds' and the day's digits.
        time_bits: (32..47).chain(64..96).map(|bit| (bit / 8, bit as u32 % 8)).collect(),
        options: VoltageOptions {
            sample_rate_hz: Some(5000.0 * 50.0),
            mark5b_channels: Some(8),
            ..VoltageOptions::default()
        },
    }
}

/// A seed's first block with a packet index.
fn guppi_block(packet: u64) -> Vec<u8> {
    let seed = include_bytes!("../../fuzz/seeds/guppi/valid_plain.raw");
    let mut block = seed[..1480].to_vec();
    let card = block.windows(8).position(|key| key == b"PKTIDX  ").expect("a packet index");
    block[card..card + 80]
        .copy_from_slice(format!("{:<80}", format!("PKTIDX  = {packet:>20}")).as_bytes());
    block
}

fn open(paths: &[PathBuf], options: &VoltageOptions) -> Result<Box<dyn VoltageSource>> {
    voltages::open(paths, options)
}

/// A recording with one bad block: the block is flagged, counted and reported, and nothing else is lost.
fn assert_flagged(source: &mut dyn VoltageSource, recording: &Recording, what: &str) {
    let times = recording.times;
    let header = source.header().clone();
    assert_eq!(header.times, Some(8 * times), "{what}");
    let flag = Flag { streams: 0..recording.streams, start: 3 * times, times };
    assert_eq!(source.flags(), [flag], "{what}");
    let [warning] = source.warnings() else { panic!("{what}: {:?}", source.warnings()) };
    assert!(warning.contains("left out") && warning.contains(recording.name), "{warning}");
}

#[test]
fn any_bit_of_a_frame_s_time_costs_that_frame_alone() {
    let folder = Folder::new();
    for recording in [vdif(), mark()] {
        let path = [folder.file(recording.name, &recording.pieces.concat())];
        let mut whole = open(&path, &recording.options).expect("a whole recording");
        assert!(whole.flags().is_empty() && whole.warnings().is_empty());
        let expected = read_all(whole.as_mut(), 1000);
        for (byte, bit) in &recording.time_bits {
            let mut pieces = recording.pieces.clone();
            pieces[3][*byte] ^= 1 << bit;
            let path = [folder.file(recording.name, &pieces.concat())];
            let what = format!("{} with bit {bit} of byte {byte}", recording.name);
            let mut source =
                open(&path, &recording.options).unwrap_or_else(|error| panic!("{what}: {error}"));
            assert_flagged(source.as_mut(), &recording, &what);
            let found = read_all(source.as_mut(), 1000);
            let times = recording.times as usize;
            for (row, whole) in found.iter().zip(&expected) {
                assert_eq!(row[..3 * times], whole[..3 * times], "{what}");
                assert_eq!(row[4 * times..], whole[4 * times..], "{what}");
            }
        }
    }
}

#[test]
fn packet_indices_that_jump_cost_their_block_alone() {
    let folder = Folder::new();
    let recording = Recording {
        name: "x.raw",
        pieces: (0..8).map(|block| guppi_block(100 + 10 * block)).collect(),
        times: 10,
        streams: 6,
        time_bits: Vec::new(),
        options: VoltageOptions::default(),
    };
    for bit in 0..63 {
        let mut pieces = recording.pieces.clone();
        pieces[3] = guppi_block(130 ^ (1 << bit));
        let path = [folder.file(recording.name, &pieces.concat())];
        let what = format!("bit {bit} of PKTIDX");
        let mut source =
            open(&path, &recording.options).unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_flagged(source.as_mut(), &recording, &what);
    }
}

/// A file name, the files of a recording with a short gap and with a long one, and their reader.
type Case<'a> = (&'a str, Vec<Vec<u8>>, Vec<Vec<u8>>, &'a VoltageOptions);

#[test]
fn long_gaps_need_to_be_allowed() {
    let folder = Folder::new();
    let later = |offset: u64| {
        let bytes = include_bytes!("../../fuzz/seeds/dada/valid_plain.dada");
        let (header, data) = bytes.split_at(1024);
        let header = String::from_utf8_lossy(header);
        let header = header.replace("OBS_OFFSET 1200\n", &format!("OBS_OFFSET {offset}\n"));
        let mut header = header.trim_end_matches(['\0', ' ']).as_bytes().to_vec();
        header.resize(1024, 0);
        [header, data.to_vec()].concat()
    };
    let vdif = vdif();
    let mut late = vdif.pieces.clone();
    late.truncate(3);
    let far = |seconds: u32| Vdif {
        seconds: 1000 + seconds,
        number: 7,
        extended: [1 << 24, SYNC, 0, 0],
        ..PLAIN
    };
    let with = |seconds: u32| [late.concat(), far(seconds).noise_frame()].concat();
    let mark = mark();
    let late_mark = |seconds: u32| {
        [mark.pieces[..3].concat(), mark5b(821, 100 + seconds, 7, 0, &[9; 10_000])].concat()
    };
    // Samples of 12 bytes and a microsecond; blocks of ten.
    let guppi = |packet: u64| [guppi_block(0), guppi_block(packet)].concat();
    let plain = VoltageOptions::default();
    let cases: [Case<'_>; 4] = [
        ("y.vdif", vec![with(50)], vec![with(3000)], &vdif.options),
        ("y.m5b", vec![late_mark(50)], vec![late_mark(3000)], &mark.options),
        ("y.raw", vec![guppi(50_000_000)], vec![guppi(3_000_000_000)], &plain),
        (
            "y.dada",
            vec![later(1200), later(1200 + 600_000_000)],
            vec![later(1200), later(1200 + 36_000_000_000)],
            &plain,
        ),
    ];
    for (name, short, long, options) in cases {
        let save = |files: &[Vec<u8>]| -> Vec<PathBuf> {
            let named = files.iter().enumerate();
            named.map(|(index, bytes)| folder.file(&format!("{index}{name}"), bytes)).collect()
        };
        let source = open(&save(&short), options).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(source.flags().len(), 1, "{name}");
        let paths = save(&long);
        let Err(Error::Format { why, path, .. }) = open(&paths, options) else {
            panic!("{name} with a gap of 3000 s was opened");
        };
        assert!(paths.contains(&path), "{name}");
        for words in ["a gap of ", "begins 0.", "`allow_gaps`"] {
            assert!(why.contains(words), "{name}: {why}");
        }
        let allowed = VoltageOptions { allow_gaps: true, ..options.clone() };
        let source = open(&paths, &allowed).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(
            source.header().duration_s().is_some_and(|s| (2900.0..3100.0).contains(&s)),
            "{name}"
        );
    }
}
