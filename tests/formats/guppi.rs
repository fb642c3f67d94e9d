//! GUPPI raw: valid files made byte by byte, without our writer; files that we write are read again; damaged files give
//! errors with the card and the byte.

use crate::support::{common, guppi, voltages, written};
use guppi::{CHANNELS, Raw, payload, sample};
use sidereal::io::voltages::guppi::{Writer, WriterOptions, header as first_header};
use sidereal::io::voltages::{
    FilterGeometry, Flag, VoltageHeader, VoltageOptions, is_voltages, open as open_with,
};
use sidereal::units::Epoch;
use sidereal::voltage::{VoltageBlock, VoltageEncoding};
use std::path::{Path, PathBuf};
use voltages::{Keys, drain, fault, open, read_all, save, told};
use written::{in_pieces, noise, rows};

#[test]
fn headers_say_what_there_is() {
    let folder = tempfile::tempdir().unwrap();
    let raw = Raw::new(&[50, 60]).set("OBSBW", "'-3.0    '").set("NBITS", "'8'");
    let path = raw.save(folder.path(), "x.raw");
    assert!(is_voltages(&path).unwrap());
    let source = open(std::slice::from_ref(&path));
    let header = source.header();
    assert_eq!(header.path, path);
    assert_eq!((header.format, header.source_name.as_str()), ("GUPPI raw", "B0329+54"));
    assert_eq!((header.telescope.as_str(), header.circular), ("GBT", Some(false)));
    assert!((header.ra_deg.unwrap() - 53.2475).abs() < 1e-9);
    assert!((header.dec_deg.unwrap() - 54.578_694_444_4).abs() < 1e-9);
    // Packet 50 begins 50 samples after the start.
    assert_eq!(header.start.day, 60000);
    assert!((header.start.seconds - 3_600.250_05).abs() < 1e-10);
    assert_eq!(header.tsamp_s, 1e-6);
    assert_eq!(header.centres_hz, [1401e6, 1400e6, 1399e6]);
    assert!(header.lower_sideband);
    assert_eq!(header.encoding, VoltageEncoding::Complex8);
    assert_eq!((header.antennas, header.polarizations, header.times), (1, 2, Some(20)));
    assert!(source.flags().is_empty() && header.filter.is_none());
}

#[test]
fn samples_come_out_of_their_blocks() {
    let folder = tempfile::tempdir().unwrap();
    let path = Raw::new(&[0, 10, 20]).save(folder.path(), "x.raw");
    let (_, rows) = read_all(&[path]);
    for (stream, row) in rows.iter().enumerate() {
        for (time, found) in row.chunks(2).enumerate() {
            let packet = time as u64 / 10 * 10;
            assert_eq!(found, sample(packet, stream, time % 10), "{stream} {time}");
        }
    }
}

#[test]
fn all_bits_and_polarizations_and_antennas() {
    let folder = tempfile::tempdir().unwrap();
    // OBSNCHAN, NANTS, NPOL, NBITS, bytes of a sample, polarizations
    let cases = [(6, 2, 2, 4, 1, 2), (6, 3, 1, 8, 2, 1), (4, 1, 4, 16, 4, 2), (4, 4, 1, 4, 1, 1)];
    for (channels, antennas, npol, bits, bytes, polarizations) in cases {
        let frame = channels * polarizations * bytes;
        let mut raw = Raw::new(&[0, 10])
            .set("OBSNCHAN", channels)
            .set("NANTS", antennas)
            .set("NPOL", npol)
            .set("NBITS", bits)
            .set("PKTSIZE", frame)
            .set("BLOCSIZE", 10 * frame);
        raw.frame = frame;
        let path = raw.save(folder.path(), "x.raw");
        let (header, rows) = read_all(&[path]);
        assert_eq!(header.antennas, antennas);
        assert_eq!(header.coarse_channels(), channels / antennas);
        assert_eq!((header.polarizations, header.recorded_bits), (polarizations, bits));
        for (stream, row) in rows.iter().enumerate() {
            let (channel, polarization) = (stream / polarizations, stream % polarizations);
            for (time, found) in row.chunks(bytes).enumerate() {
                let place = (channel * 10 + time % 10) * polarizations + polarization;
                let packet = time as u64 / 10 * 10;
                let expected: Vec<u8> =
                    (0..bytes).map(|b| payload(packet, place * bytes + b)).collect();
                assert_eq!(found, expected, "{bits} bits, {stream} {time}");
            }
        }
    }
}

#[test]
fn the_high_nibble_is_real() {
    let folder = tempfile::tempdir().unwrap();
    let raw = Raw::new(&[]).set("OBSNCHAN", 2).set("NPOL", 1).set("NBITS", 4).set("BLOCSIZE", 4);
    let mut bytes = raw.header(0);
    bytes.extend([0x87, 0x78, 0x0f, 0xf0]);
    let mut source = open(&[save(folder.path(), "x.raw", &bytes)]);
    let mut block = source.header().block(2);
    source.read(&mut block).unwrap();
    let found: Vec<_> = (0..4).map(|i| block.voltages().value(i / 2, i % 2)).collect();
    let expected = [(-8.0, 7.0), (7.0, -8.0), (0.0, -1.0), (-1.0, 0.0)];
    assert_eq!(found, expected.map(|(re, im)| num_complex::Complex::new(re, im)));
}

#[test]
fn time_may_be_outermost() {
    let folder = tempfile::tempdir().unwrap();
    let path = Raw::new(&[0]).set("PKTFMT", "'SIMPLE'").save(folder.path(), "x.raw");
    let (_, rows) = read_all(&[path]);
    for (stream, row) in rows.iter().enumerate() {
        for (time, found) in row.chunks(2).enumerate() {
            let at = (time * 6 + stream) * 2;
            assert_eq!(found, [payload(0, at), payload(0, at + 1)]);
        }
    }
}

#[test]
fn one_channel_at_twice_its_width_is_real() {
    let folder = tempfile::tempdir().unwrap();
    let mut raw = Raw::new(&[0]).set("OBSNCHAN", 1).set("NPOL", 2).set("BLOCSIZE", 20);
    (raw.frame, raw.times) = (2, 10);
    let path = raw.clone().set("OBSBW", -0.5).save(folder.path(), "x.raw");
    let (header, rows) = read_all(&[path]);
    assert_eq!((header.encoding, header.times), (VoltageEncoding::Real8, Some(10)));
    assert_eq!(rows[1][..2], [payload(0, 1), payload(0, 3)]);
    let path = raw.set("OBSBW", 1.0).set("BLOCSIZE", 20).save(folder.path(), "x.raw");
    assert_eq!(read_all(&[path]).0.encoding, VoltageEncoding::Complex8);
}

#[test]
fn missing_blocks_are_flagged_and_do_not_shift_time() {
    let folder = tempfile::tempdir().unwrap();
    let path = Raw::new(&[100, 110, 140, 150, 170]).save(folder.path(), "x.raw");
    let source = open(std::slice::from_ref(&path));
    let gap = |start, times| Flag { streams: 0..6, start, times };
    assert_eq!(source.flags(), [gap(20, 20), gap(60, 10)]);
    let (header, rows) = read_all(std::slice::from_ref(&path));
    assert_eq!(header.times, Some(80));
    for (stream, row) in rows.iter().enumerate() {
        for (time, found) in row.chunks(2).enumerate() {
            let packet = 100 + time as u64 / 10 * 10;
            let missing = [120, 130, 160].contains(&packet);
            let expected = if missing { [0, 0] } else { sample(packet, stream, time % 10) };
            assert_eq!(found, expected, "{stream} {time}");
        }
    }
    // Skipping samples and then reading gives the remaining samples.
    for skipped in [0, 5, 20, 25, 39, 40, 79, 80] {
        let mut source = open(std::slice::from_ref(&path));
        assert_eq!(source.skip(skipped).unwrap(), skipped);
        let mut block = source.header().block(100);
        let times = source.read(&mut block).unwrap();
        assert_eq!(times as u64, 80 - skipped);
        for (stream, row) in rows.iter().enumerate() {
            assert_eq!(block.voltages().row(stream), &row[2 * skipped as usize..]);
        }
        assert_eq!(source.skip(5).unwrap(), 0);
    }
}

#[test]
fn samples_of_an_overlap_come_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = Raw::new(&[0, 7, 14, 28]).set("OVERLAP", 3).save(folder.path(), "x.raw");
    let source = open(std::slice::from_ref(&path));
    // The block of packet 21 is missing, but the previous one holds its first three samples.
    assert_eq!(source.flags(), [Flag { streams: 0..6, start: 24, times: 4 }]);
    let (header, rows) = read_all(&[path]);
    assert_eq!(header.times, Some(38));
    for (stream, row) in rows.iter().enumerate() {
        for (time, found) in row.chunks(2).enumerate() {
            let expected = match time {
                0..10 => sample(0, stream, time),
                10..17 => sample(7, stream, time - 7),
                17..24 => sample(14, stream, time - 14),
                24..28 => [0, 0],
                _ => sample(28, stream, time - 28),
            };
            assert_eq!(found, expected, "{stream} {time}");
        }
    }
}

#[test]
fn direct_input_and_output_fills_headers_and_blocks() {
    let folder = tempfile::tempdir().unwrap();
    let plain = Raw::new(&[0, 10, 20]);
    let expected = read_all(&[plain.save(folder.path(), "plain.raw")]).1;
    for filled in [false, true] {
        let mut raw = plain.clone().set("DIRECTIO", "'1       '");
        (raw.directio, raw.filled) = (true, filled);
        let path = raw.save(folder.path(), "x.raw");
        assert_eq!(read_all(&[path]).1, expected, "blocks filled: {filled}");
        // The padding after the last block may be missing.
        let mut bytes = raw.bytes();
        if filled {
            bytes.truncate(bytes.len() - 100);
        }
        assert_eq!(read_all(&[save(folder.path(), "x.raw", &bytes)]).1, expected);
    }
}

#[test]
fn files_of_a_sequence_come_in_any_order() {
    let folder = tempfile::tempdir().unwrap();
    let packets: [&[u64]; 3] = [&[0, 10], &[20, 30], &[50]];
    let paths: Vec<PathBuf> = packets
        .iter()
        .enumerate()
        .map(|(number, packets)| {
            Raw::new(packets).save(folder.path(), &format!("obs.{number:04}.raw"))
        })
        .collect();
    let whole = Raw::new(&[0, 10, 20, 30, 50]).save(folder.path(), "whole.raw");
    let expected = read_all(&[whole]).1;
    for order in [[0, 1, 2], [2, 0, 1], [1, 2, 0]] {
        let (header, rows) = read_all(&order.map(|number: usize| paths[number].clone()));
        assert_eq!(rows, expected);
        assert_eq!(header.path, paths[0]);
    }
    let stem = folder.path().join("obs");
    assert!(is_voltages(&stem).unwrap());
    assert_eq!(read_all(&[stem]).1, expected);
    // A missing file is a gap.
    let source = open(&[paths[2].clone(), paths[0].clone()]);
    assert_eq!(source.flags(), [Flag { streams: 0..6, start: 20, times: 30 }]);
    let (field, _, message) = fault(&[paths[0].clone(), paths[0].clone()]);
    assert!(field == "PKTIDX" && message.contains("block 2 has PKTIDX 0"), "{message}");
    let other = Raw::new(&[60]).set("STT_SMJD", 7200).save(folder.path(), "other.raw");
    let (field, _, message) = fault(&[paths[0].clone(), other]);
    assert!(field == "STT_SMJD" && message.contains("7200"), "{message}");
}

#[test]
fn without_packet_indices_blocks_follow_one_another() {
    let folder = tempfile::tempdir().unwrap();
    let strip = |raw: &Raw, name: &str| {
        let text: Vec<u8> = raw.bytes();
        let at = text.windows(6).enumerate().filter(|(_, w)| *w == b"PKTIDX").map(|(at, _)| at);
        let mut bytes = text.clone();
        at.for_each(|at| bytes[at..at + 6].copy_from_slice(b"NOTIDX"));
        save(folder.path(), name, &bytes)
    };
    let first = strip(&Raw::new(&[0, 10]), "a.0000.raw");
    let second = strip(&Raw::new(&[20]), "a.0001.raw");
    let whole = Raw::new(&[0, 10, 20]).save(folder.path(), "whole.raw");
    assert_eq!(read_all(&[second, first]).1, read_all(&[whole]).1);
}

#[test]
fn packets_are_counted_as_the_header_has_it() {
    let folder = tempfile::tempdir().unwrap();
    // PIPERBLK takes precedence over PKTSIZE; SYNCTIME makes STT_* the time of PKTSTART.
    let raw = Raw::new(&[1000, 1020, 1060])
        .set("PIPERBLK", 20)
        .set("SYNCTIME", 1_677_283_200)
        .set("PKTSTART", 960);
    let source = open(&[raw.save(folder.path(), "x.raw")]);
    assert_eq!(source.header().times, Some(40));
    assert_eq!(source.flags(), [Flag { streams: 0..6, start: 20, times: 10 }]);
    // Two blocks of 20 after PKTSTART: 20 samples.
    assert!((source.header().start.seconds - 3_600.250_02).abs() < 1e-10);
    // An invalid PKTSIZE is replaced by the smallest increment.
    let raw = Raw::new(&[0, 3, 6, 12]).set("PKTSIZE", 7);
    let source = open(&[raw.save(folder.path(), "x.raw")]);
    assert_eq!(source.flags(), [Flag { streams: 0..6, start: 30, times: 10 }]);
}

#[test]
fn what_the_reader_is_told_goes_first() {
    let folder = tempfile::tempdir().unwrap();
    let path = Raw::new(&[0]).save(folder.path(), "x.raw");
    let mut source = open_with(&[path], &told()).unwrap();
    let header = source.header();
    assert_eq!((header.tsamp_s, header.lower_sideband), (0.5e-6, true));
    assert_eq!(header.centres_hz, [999e6, 1000e6, 1001e6]);
    assert_eq!(drain(source.as_mut(), 4).len(), 6);
    let wrong = VoltageOptions { sample_rate_hz: Some(-1.0), ..VoltageOptions::default() };
    let path = Raw::new(&[0]).save(folder.path(), "x.raw");
    assert!(open_with(&[path], &wrong).is_err());
}

#[test]
fn blocks_longer_than_what_is_read_ahead_read_alike() {
    let folder = tempfile::tempdir().unwrap();
    let times = 99_991;
    let mut raw = Raw::new(&[0, times as u64, 3 * times as u64])
        .set("BLOCSIZE", 12 * times)
        .set("OVERLAP", 0);
    raw.times = times;
    let path = raw.save(folder.path(), "x.raw");
    // Spans of a small part, more than half, all and more of a block.
    for gulp in [30_011, 60_000, times, 250_000] {
        let mut source = open(std::slice::from_ref(&path));
        source.skip(1).unwrap();
        let mut block = source.header().block(gulp);
        let mut reached = 1;
        loop {
            let read = source.read(&mut block).unwrap();
            for (stream, time) in (0..6).flat_map(|s| (0..read).step_by(997).map(move |t| (s, t))) {
                let (index, within) = ((reached + time) / times, (reached + time) % times);
                let at = ((stream / 2 * times + within) * 2 + stream % 2) * 2;
                let packet = (index * times) as u64;
                let expected = match index {
                    2 => [0, 0],
                    _ => [payload(packet, at), payload(packet, at + 1)],
                };
                let found = &block.voltages().row(stream)[2 * time..][..2];
                assert_eq!(found, expected, "gulps of {gulp}: {stream} {}", reached + time);
            }
            reached += read;
            if read < gulp {
                break;
            }
        }
        assert_eq!(reached, 4 * times);
    }
}

#[test]
fn the_recording_of_puppi_holds_what_is_known_of_it() {
    let Some(folder) = common::data_dir() else { return };
    let mut source = open(&[folder.join("baseband/sample_puppi.raw")]);
    let header = source.header().clone();
    assert_eq!((header.coarse_channels(), header.times), (4, Some(3904)));
    assert_eq!(header.start, Epoch::new(58132, 51093.0));
    let mut block = header.block(1);
    source.read(&mut block).unwrap();
    let first: Vec<_> = (0..4).map(|channel| block.voltages().value(2 * channel, 0)).collect();
    let known = [(-7.0, 12.0), (-32.0, -10.0), (-17.0, 25.0), (16.0, -5.0)];
    assert_eq!(first, known.map(|(re, im)| num_complex::Complex::new(re, im)));
    let cut = folder.join("baseband/sample_blc.raw");
    assert_eq!(first_header(&cut).unwrap().text("SRC_NAME"), Some("DIAG_MESSIER1"));
    assert!(fault(&[cut]).2.contains("134217728"));
}

#[test]
fn the_cards_themselves_can_be_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = Raw::new(&[7]).save(folder.path(), "x.raw");
    let cards = first_header(&path).unwrap();
    assert_eq!(cards.text("SRC_NAME"), Some("B0329+54"));
    assert_eq!((cards.count("PKTIDX").unwrap(), cards.iter().count()), (Some(7), 17));
}

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

#[test]
fn packets_that_do_not_rise_by_blocks_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let block = Raw::new(&[0]).bytes().len() as u64;
    for (packets, number, expected) in [
        (vec![0, 10, 10], 2, "more than"),
        (vec![0, 10, 5], 2, "more than"),
        (vec![20, 10], 1, "more than"),
        (vec![0, 10, 25], 2, "multiple of 10"),
        (vec![0, 10 << 56], 1, "more than a day"),
        (vec![0, u64::MAX / 10 * 10], 1, "more than a day"),
    ] {
        let (field, offset, message) = fault(&[Raw::new(&packets).save(folder.path(), "x.raw")]);
        assert_eq!((field.as_str(), offset), ("PKTIDX", number * block), "{message}");
        assert!(message.contains(expected) && message.contains("x.raw"), "{message}");
    }
}

#[test]
fn a_header_that_changes_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let changes = [
        ("OBSNCHAN", "6"),
        ("NPOL", "1"),
        ("NBITS", "4"),
        ("NANTS", "3"),
        ("OVERLAP", "2"),
        ("BLOCSIZE", "240"),
        ("TBIN", "2.0E-6"),
        ("OBSFREQ", "1401.0"),
        ("OBSBW", "-3.0"),
        ("PKTFMT", "'SIMPLE'"),
        ("DIRECTIO", "1"),
    ];
    for (key, value) in changes {
        let first = Raw::new(&[0]);
        let mut bytes = first.bytes();
        let second = bytes.len() as u64;
        bytes.extend(first.clone().set(key, value).set("SRC_NAME", "'other'").header(10));
        bytes.resize(bytes.len() + 240, 0);
        let (field, offset, message) = fault(&[save(folder.path(), "x.raw", &bytes)]);
        assert_eq!(field, key, "{message}");
        assert!(offset > second && message.contains("block 1"), "{message}");
        // The same in the first block of another file.
        let other = first.clone().set(key, value).header(10);
        let length = if key == "BLOCSIZE" { 240 } else { 120 };
        let other = [other, vec![0; length]].concat();
        let paths = [first.save(folder.path(), "a.raw"), save(folder.path(), "b.raw", &other)];
        assert_eq!(fault(&paths).0, key);
    }
}

#[test]
fn cards_that_make_no_sense_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let huge = u64::MAX.to_string();
    let cases: &[(&str, &str, &str)] = &[
        ("BLOCSIZE", "121", "multiple of 12"),
        ("BLOCSIZE", "0", "1 at least"),
        ("BLOCSIZE", "-120", "count"),
        ("BLOCSIZE", "134217720", "ends within"),
        ("BLOCSIZE", "18446744073709551612", "ends within"),
        ("OBSNCHAN", "0", "1 at least"),
        ("OBSNCHAN", &huge, "channels"),
        ("NANTS", "2", "multiple"),
        ("NANTS", "0", "multiple"),
        ("NANTS", &huge, "multiple"),
        ("NPOL", "3", "1, 2 or 4"),
        ("NBITS", "2", "4, 8 or 16"),
        ("NBITS", "eight", "eight"),
        ("OVERLAP", "10", "fewer than"),
        ("OVERLAP", &huge, "fewer than"),
        ("TBIN", "0.0", "above 0"),
        ("TBIN", "-1.0", "above 0"),
        ("TBIN", "nan", "number"),
        ("TBIN", "1e-320", "above 0"),
        ("OBSFREQ", "inf", "number"),
        ("STT_IMJD", "1e300", "Julian"),
        ("STT_IMJD", "60000.5", "Julian"),
        ("STT_SMJD", "1e30", "of a day"),
        ("NTVALID", "11", "1 to"),
        ("NTVALID", "0", "1 to"),
        ("PKTFMT", "'VDIF'", "VDIF"),
        ("DIRECTIO", "yes", "number"),
    ];
    for (key, value, expected) in cases {
        let field = if *key == "NANTS" { "OBSNCHAN" } else { key };
        let key: &'static str = Box::leak(key.to_string().into_boxed_str());
        let raw = Raw::new(&[0]).set(key, value);
        let found = fault(&[raw.save(folder.path(), "x.raw")]);
        assert_eq!(found.0, field, "{}", found.2);
        assert!(found.2.contains(expected) && found.2.contains("x.raw"), "{}", found.2);
    }
    for key in ["BLOCSIZE", "OBSNCHAN", "NPOL", "TBIN"] {
        let found = fault(&[Raw::new(&[0]).without(key).save(folder.path(), "x.raw")]);
        assert!(found.0 == key && found.2.contains("missing"), "{}", found.2);
    }
    // Unknown values are not invented.
    let raw =
        Raw::new(&[0]).without("OBSFREQ").without("STT_IMJD").without("OBSBW").without("FD_POLN");
    let source = open(&[raw.save(folder.path(), "x.raw")]);
    let header = source.header();
    assert_eq!((header.centres_hz.as_slice(), header.start.day), ([0.0; CHANNELS].as_slice(), 0));
    assert!(header.circular.is_none() && !header.lower_sideband);
}

#[test]
fn a_file_cut_anywhere_is_read_to_its_last_block() {
    let folder = tempfile::tempdir().unwrap();
    let raw = Raw::new(&[0, 10]);
    let (bytes, header) = (raw.bytes(), raw.header(0).len());
    let whole = read_all(&[raw.save(folder.path(), "whole.raw")]).1;
    let second = bytes.len() / 2;
    for length in 0..bytes.len() {
        let path = save(folder.path(), "x.raw", &bytes[..length]);
        if length < second {
            let (field, offset, message) = fault(&[path]);
            assert!(message.contains("x.raw") && offset <= length as u64, "{message}");
            let expected = match length {
                0..9 => "file",
                _ if length < header => "END",
                _ => "BLOCSIZE",
            };
            assert_eq!(field, expected, "cut at {length}: {message}");
            continue;
        }
        let source = open(std::slice::from_ref(&path));
        assert_eq!((source.header().times, source.flags()), (Some(10), &[][..]), "at {length}");
        assert_eq!(source.cut().is_some(), length > second, "cut at {length}");
        let (_, rows) = read_all(&[path]);
        assert!(rows.iter().zip(&whole).all(|(row, whole)| *row == whole[..20]));
    }
}

#[test]
fn a_file_that_shrinks_after_it_was_opened_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = Raw::new(&[0, 10]).save(folder.path(), "x.raw");
    let mut source = open(std::slice::from_ref(&path));
    let bytes = std::fs::read(&path).unwrap();
    std::fs::write(&path, &bytes[..bytes.len() - 1]).unwrap();
    let mut block = source.header().block(20);
    let message = source.read(&mut block).unwrap_err().to_string();
    assert!(message.contains("cut since"), "{message}");
}

#[test]
fn trailing_bytes_that_are_no_header_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let mut bytes = Raw::new(&[0]).bytes();
    let end = bytes.len() as u64;
    bytes.resize(bytes.len() + 100, 0);
    let (field, offset, message) = fault(&[save(folder.path(), "x.raw", &bytes)]);
    assert!(field.contains("card 1") && offset == end, "{message}");
}

#[test]
fn a_block_of_another_shape_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let mut source = open(&[Raw::new(&[0]).save(folder.path(), "x.raw")]);
    let mut other = sidereal::voltage::VoltageBlock::new(VoltageEncoding::Complex8, 5, 4);
    assert!(source.read(&mut other).is_err());
    let mut other = sidereal::voltage::VoltageBlock::new(VoltageEncoding::Complex4, 6, 4);
    assert!(source.read(&mut other).is_err());
}
