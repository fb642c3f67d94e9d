//! GUPPI raw: files that we write are read again, and values that the format cannot hold are rejected.

use crate::support::voltages;
use crate::support::written;
use std::path::Path;

use sidereal::io::voltages::guppi::{Writer, WriterOptions};
use sidereal::io::voltages::{FilterGeometry, VoltageHeader};
use sidereal::units::Epoch;
use sidereal::voltage::{VoltageBlock, VoltageEncoding};
use voltages::{drain, open, read_all};
use written::{in_pieces, noise, rows};

/// A header of 2 antennas, 3 channels and 2 polarizations.
fn written(encoding: VoltageEncoding) -> VoltageHeader {
    VoltageHeader {
        source_name: "O'Neil's \"pulsar\"".into(),
        telescope: "ATA".into(),
        ra_deg: Some(53.2475),
        dec_deg: Some(-54.5),
        start: Epoch::new(60000, 3_600.123_456_789),
        lower_sideband: true,
        antennas: 2,
        polarizations: 2,
        circular: Some(true),
        filter: Some(FilterGeometry {
            channels: 64,
            taps: 8,
            window: "hann".into(),
            oversampling: (4, 3),
        }),
        ..VoltageHeader::new(vec![1403e6, 1400e6, 1397e6], 1.0 / 3e6, encoding)
    }
}

/// Writes samples in three pieces of different lengths.
fn write(path: &Path, header: &VoltageHeader, options: &WriterOptions, block: &VoltageBlock) {
    let mut writer = Writer::create(path, header, options).unwrap();
    in_pieces(path, block, |piece| writer.write(piece));
    writer.finish().unwrap();
}

#[test]
fn what_is_written_is_read() {
    let folder = tempfile::tempdir().unwrap();
    use VoltageEncoding::{Complex4, Complex8, Complex16};
    let sizes = [None, Some(300), Some(301), Some(1000), Some(7)];
    for (encoding, block_times) in
        [Complex4, Complex8, Complex16].iter().flat_map(|e| sizes.map(|s| (*e, s)))
    {
        let header = written(encoding);
        let block = noise(&header, 301);
        for (overlap, directio) in [(0, false), (0, true), (5, false), (3, true)] {
            let path =
                folder.path().join(format!("{encoding:?}{block_times:?}{overlap}{directio}.raw"));
            let options = WriterOptions { block_times, overlap, directio, blocks_per_file: None };
            write(&path, &header, &options, &block);
            let source = open(std::slice::from_ref(&path));
            let expected = VoltageHeader {
                path: path.clone(),
                format: "GUPPI raw",
                times: Some(301),
                ..header.clone()
            };
            let found = source.header();
            assert!(found.start.seconds_since(&expected.start).abs() < 1e-11);
            assert!((found.ra_deg.unwrap() - 53.2475).abs() < 1e-9);
            let same =
                VoltageHeader { start: expected.start, ra_deg: expected.ra_deg, ..found.clone() };
            assert_eq!(same, expected);
            assert!(source.flags().is_empty());
            assert_eq!(
                drain(open(&[path]).as_mut(), 100),
                rows(&block),
                "{options:?} {encoding:?}"
            );
        }
    }
}

#[test]
fn a_sequence_appears_as_a_whole() {
    let folder = tempfile::tempdir().unwrap();
    let header = written(VoltageEncoding::Complex8);
    let block = noise(&header, 100);
    let options = WriterOptions {
        block_times: Some(12),
        overlap: 2,
        directio: true,
        blocks_per_file: Some(4),
    };
    let path = folder.path().join("obs.raw");
    let mut writer = Writer::create(&path, &header, &options).unwrap();
    writer.write(block.voltages()).unwrap();
    let visible = || {
        let entries = std::fs::read_dir(folder.path()).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<_> = names.filter(|name| !name.starts_with('.')).collect();
        names.sort();
        names
    };
    assert!(visible().is_empty());
    writer.finish().unwrap();
    assert_eq!(visible(), ["obs.0000.raw", "obs.0001.raw", "obs.0002.raw"]);
    let (found, read) = read_all(&[folder.path().join("obs")]);
    assert_eq!((found.times, read), (Some(100), rows(&block)));
    // A dropped writer leaves no file.
    let writer = Writer::create(&folder.path().join("gone.raw"), &header, &options).unwrap();
    drop(writer);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 3);
}

#[test]
fn channels_are_written_in_the_order_of_their_sideband() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.raw");
    let header = VoltageHeader { lower_sideband: false, ..written(VoltageEncoding::Complex8) };
    let block = noise(&header, 20);
    write(&path, &header, &WriterOptions::default(), &block);
    let (found, read) = read_all(&[path]);
    assert_eq!(found.centres_hz, [1397e6, 1400e6, 1403e6]);
    assert!(!found.lower_sideband);
    let expected = rows(&block);
    let turned = [4, 5, 2, 3, 0, 1, 10, 11, 8, 9, 6, 7];
    for (row, stream) in read.iter().zip(turned) {
        assert_eq!(row, &expected[stream]);
    }
}

#[test]
fn what_the_format_cannot_hold_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.raw");
    let good = written(VoltageEncoding::Complex8);
    let options = WriterOptions::default();
    let refused = |header: &VoltageHeader, options: &WriterOptions, expected: &str| {
        let message = Writer::create(&path, header, options).unwrap_err().to_string();
        assert!(message.contains(expected), "{message}");
    };
    refused(&written(VoltageEncoding::RealF32), &options, "complex integers");
    let uneven = VoltageHeader { centres_hz: vec![1e9, 2e9, 4e9], ..good.clone() };
    refused(&uneven, &options, "evenly");
    refused(&VoltageHeader { centres_hz: vec![], ..good.clone() }, &options, "channels");
    refused(&VoltageHeader { antennas: 0, ..good.clone() }, &options, "antennas");
    refused(&VoltageHeader { polarizations: 4, ..good.clone() }, &options, "polarizations");
    refused(&VoltageHeader { tsamp_s: 0.0, ..good.clone() }, &options, "sampling time");
    let overlap = WriterOptions { block_times: Some(4), overlap: 4, ..options };
    refused(&good, &overlap, "overlap");
    let empty = WriterOptions { block_times: Some(0), ..options };
    refused(&good, &empty, "overlap");
    refused(&good, &WriterOptions { block_times: Some(1 << 40), ..options }, "4 GiB");
    refused(&good, &WriterOptions { blocks_per_file: Some(0), ..options }, "blocks per file");
    let mut writer = Writer::create(&path, &good, &options).unwrap();
    assert!(writer.write(VoltageBlock::new(VoltageEncoding::Complex8, 5, 4).voltages()).is_err());
    assert!(writer.write(VoltageBlock::new(VoltageEncoding::Complex4, 12, 4).voltages()).is_err());
    assert!(writer.finish().is_err());
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}
