//! PSRDADA: files that we write are read again, and values that the format cannot hold are rejected.

use crate::support::voltages;
use crate::support::written;
use sidereal::io::voltages::dada::Writer;
use sidereal::io::voltages::{FilterGeometry, VoltageHeader};
use sidereal::units::Epoch;
use sidereal::voltage::{VoltageBlock, VoltageEncoding};
use voltages::read_all;
use written::{in_pieces, noise, rows};

fn written(encoding: VoltageEncoding, antennas: usize) -> VoltageHeader {
    VoltageHeader {
        source_name: "J0437-4715".into(),
        telescope: "MeerKAT 64".into(),
        ra_deg: Some(69.25),
        dec_deg: Some(-47.25),
        start: Epoch::new(60000, 86_399.123_456_789),
        antennas,
        polarizations: 2,
        circular: Some(false),
        filter: Some(FilterGeometry {
            channels: 64,
            taps: 8,
            window: "kaiser 60 dB".into(),
            oversampling: (1, 1),
        }),
        ..VoltageHeader::new(vec![1397e6, 1400e6, 1403e6], 1.0 / 3e6, encoding)
    }
}

#[test]
fn what_is_written_is_read() {
    let folder = tempfile::tempdir().unwrap();
    for encoding in VoltageEncoding::ALL {
        for antennas in [1, 3] {
            let header = written(encoding, antennas);
            let path = folder.path().join(format!("{encoding:?}{antennas}.dada"));
            if matches!(encoding, VoltageEncoding::Real2 | VoltageEncoding::Real4) {
                assert!(Writer::create(&path, &header).is_err());
                continue;
            }
            let block = noise(&header, 301);
            let mut writer = Writer::create(&path, &header).unwrap();
            in_pieces(&path, &block, |piece| writer.write(piece));
            writer.finish().unwrap();
            let (found, read) = read_all(std::slice::from_ref(&path));
            assert!(found.start.seconds_since(&header.start).abs() < 1e-10);
            let expected = VoltageHeader {
                path,
                format: "PSRDADA",
                times: Some(301),
                start: found.start,
                ..header
            };
            assert_eq!(found, expected);
            assert_eq!(read, rows(&block), "{encoding:?}");
        }
    }
}

#[test]
fn channels_are_written_in_the_order_of_their_sideband() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.dada");
    let header = VoltageHeader { lower_sideband: true, ..written(VoltageEncoding::Real8, 1) };
    let mut block = header.block(4);
    block.rows_mut().enumerate().for_each(|(stream, row)| row.fill(stream as u8));
    block.set_times(4).unwrap();
    let mut writer = Writer::create(&path, &header).unwrap();
    writer.write(block.voltages()).unwrap();
    writer.finish().unwrap();
    let (found, rows) = read_all(&[path]);
    assert_eq!(found.centres_hz, [1403e6, 1400e6, 1397e6]);
    assert!(found.lower_sideband);
    assert_eq!(rows, [4, 5, 2, 3, 0, 1].map(|stream| vec![stream; 4]));
}

#[test]
fn what_does_not_belong_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.dada");
    let good = written(VoltageEncoding::Complex8, 1);
    let long = VoltageHeader { source_name: "x".repeat(5000), ..good.clone() };
    assert!(Writer::create(&path, &long).unwrap_err().to_string().contains("4096"));
    let mut writer = Writer::create(&path, &good).unwrap();
    assert!(writer.write(VoltageBlock::new(VoltageEncoding::Complex8, 5, 4).voltages()).is_err());
    assert!(writer.write(VoltageBlock::new(VoltageEncoding::Real16, 6, 4).voltages()).is_err());
    assert!(writer.finish().is_err());
    // A name can't add lines to the header.
    let tricky = VoltageHeader { source_name: "a\nNBIT 32 # b".into(), ..good };
    let mut writer = Writer::create(&path, &tricky).unwrap();
    writer.write(tricky.block(4).voltages()).unwrap();
    let mut block = tricky.block(4);
    block.set_times(4).unwrap();
    writer.write(block.voltages()).unwrap();
    writer.finish().unwrap();
    let (found, _) = read_all(&[path]);
    assert_eq!((found.source_name.as_str(), found.recorded_bits), ("a?NBIT 32 ? b", 8));
}
