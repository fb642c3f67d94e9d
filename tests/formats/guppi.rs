//! GUPPI raw: contents of valid files, made byte by byte, without our writer.

use crate::support::common;
use crate::support::guppi;
use crate::support::voltages;
use std::path::PathBuf;

use guppi::{Raw, payload, sample};
use sidereal::io::voltages::guppi::header as first_header;
use sidereal::io::voltages::{Flag, VoltageOptions, is_voltages, open as open_with};
use sidereal::units::Epoch;
use sidereal::voltage::VoltageEncoding;
use voltages::{Keys, drain, fault, open, read_all, save, told};

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
