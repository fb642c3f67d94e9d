//! VDIF: frames made here, of every version and depth, read back to their samples; damaged frames give errors with the
//! field and the byte.

use crate::support::{random, vdif_files, vlbi};
use random::Random;
use sidereal::Error;
use sidereal::io::voltages::{Flag, VoltageOptions, open_vdif};
use sidereal::units::Epoch;
use vdif_files::{PER_SECOND, at_rate, fault, open};
use vlbi::{Folder, PLAIN, SYNC, Vdif, agree, read_all};

fn flag(streams: std::ops::Range<usize>, start: u64, times: u64) -> Flag {
    Flag { streams, start, times }
}

/// Expected contents of a stream: consecutive frames of one channel, zeros for missing ones.
fn truth(frames: &[Option<Vdif>], channel: usize, times: usize) -> Vec<(f64, f64)> {
    let zeros = || vec![(0.0, 0.0); times];
    frames
        .iter()
        .flat_map(|frame| frame.map_or_else(zeros, |frame| frame.samples(&frame.noise(), channel)))
        .collect()
}

#[test]
fn every_version_reads_alike() {
    let folder = Folder::new();
    let kinds = [
        (true, [0; 4]),
        (false, [0; 4]),
        (false, [1 << 24 | 320, SYNC, 7, 8]),
        (false, [2 << 24 | 0xa_5ea5 << 4 | 1, 0, 5, 0]),
        (false, [3 << 24 | 1 << 23 | 16, SYNC, 0x3340_0000, 0xf20_3583]),
        (false, [4 << 24, SYNC, 1, 0]),
    ];
    for (legacy, extended) in kinds {
        let frame = Vdif { legacy, extended, payload: 64, ..PLAIN };
        let frames: Vec<Vdif> = (0..3).map(|number| Vdif { number, ..frame }).collect();
        let bytes: Vec<u8> = frames.iter().flat_map(Vdif::noise_frame).collect();
        let path = folder.file("x.vdif", &bytes);
        let mut source = open(&path, &at_rate(&frame));
        let header = source.header();
        assert_eq!((header.format, header.telescope.as_str()), ("VDIF", "Aa"));
        assert_eq!((header.times, header.recorded_bits), (Some(3 * 256), 2));
        assert_eq!(header.start, Epoch { day: 58_849, seconds: 1000.0 });
        assert!(source.flags().is_empty());
        let found = read_all(source.as_mut(), 1000);
        let frames: Vec<Option<Vdif>> = frames.into_iter().map(Some).collect();
        assert_eq!(found, [truth(&frames, 0, 256)], "{extended:x?}");
    }
}

#[test]
fn every_depth_reads_exactly() {
    let folder = Folder::new();
    let mut depths = 0;
    for bits in 1..=16 {
        for (channels_log2, complex) in [(0, false), (0, true), (2, false), (4, true)] {
            if channels_log2 > 0 && !u32::is_power_of_two(bits) {
                continue;
            }
            let frame = Vdif { bits, channels_log2, complex, payload: 192, ..PLAIN };
            let frames: Vec<Option<Vdif>> =
                (0..4).map(|number| Some(Vdif { number, ..frame })).collect();
            let bytes: Vec<u8> = frames.iter().flatten().flat_map(Vdif::noise_frame).collect();
            let path = folder.file("x.vdif", &bytes);
            let header = open(&path, &at_rate(&frame)).header().clone();
            assert_eq!(header.encoding.is_complex(), complex);
            assert_eq!(header.recorded_bits, bits as usize);
            assert_eq!(header.coarse_channels(), 1 << channels_log2);
            for gulp in [1, 7, 4096] {
                let found = read_all(open(&path, &at_rate(&frame)).as_mut(), gulp);
                for (channel, samples) in found.iter().enumerate() {
                    let expected = truth(&frames, channel, frame.times());
                    assert!(agree(samples, &expected), "{frame:?}, channel {channel}, {gulp}");
                }
            }
            depths += 1;
        }
    }
    assert_eq!(depths, 2 * 16 + 2 * 5);
}

#[test]
fn mark_5b_within_vdif_has_its_levels() {
    let folder = Folder::new();
    let frame = Vdif { extended: [0xabad_deed, 0, 0, 0], payload: 8, ..PLAIN };
    let path = folder.file("x.vdif", &frame.frame(&[0b1110_0100; 8]));
    let found = read_all(open(&path, &at_rate(&frame)).as_mut(), 64);
    let level = |code: u32| (vlbi::level(code, 2), 0.0);
    assert_eq!(found[0][..4], [level(0), level(2), level(1), level(3)]);
}

#[test]
fn frames_in_any_order_and_in_any_file_are_one_recording() {
    let folder = Folder::new();
    let mut random = Random::new(11);
    let mut frames = Vec::new();
    for time in 0..2 * PER_SECOND as u32 + 3 {
        let (seconds, number) = (1000 + time / PER_SECOND as u32, time % PER_SECOND as u32);
        frames.extend((0..3).map(|t| Vdif {
            seconds,
            number,
            thread: 2 * t + 1,
            channels_log2: 1,
            ..PLAIN
        }));
    }
    let expected: Vec<Vec<(f64, f64)>> = (0..6)
        .map(|stream| {
            let of_thread = frames.iter().filter(|frame| frame.thread == 2 * (stream / 2) + 1);
            let of_thread: Vec<Option<Vdif>> = of_thread.copied().map(Some).collect();
            truth(&of_thread, stream as usize % 2, PLAIN.times() / 2)
        })
        .collect();
    let options = at_rate(&Vdif { channels_log2: 1, ..PLAIN });
    for round in 0..6 {
        for index in (1..frames.len()).rev() {
            if round > 0 {
                frames.swap(index, random.below(index + 1));
            }
        }
        let (first, second) = frames.split_at(frames.len() / 3);
        let bytes = |part: &[Vdif]| part.iter().flat_map(Vdif::noise_frame).collect::<Vec<u8>>();
        let paths = [folder.file("late", &bytes(second)), folder.file("early", &bytes(first))];
        let mut source = open_vdif(&paths, &options).unwrap();
        let header = source.header().clone();
        assert_eq!((header.streams(), header.coarse_channels(), header.antennas), (6, 6, 1));
        assert_eq!(header.start.seconds, 1000.0);
        assert!(source.flags().is_empty());
        assert_eq!(read_all(source.as_mut(), 100), expected);
        let mut source = open_vdif(&paths, &options).unwrap();
        assert_eq!(source.skip(44).unwrap(), 44);
        let rest: Vec<_> = expected.iter().map(|stream| stream[44..].to_vec()).collect();
        let mut block = header.block(1 << 12);
        let times = source.read(&mut block).unwrap();
        assert_eq!(times, rest[0].len());
        assert_eq!(block.voltages().value(5, 77).re, rest[5][77].0);
        assert_eq!(source.skip(4).unwrap(), 0);
    }
}

#[test]
fn what_is_missing_or_invalid_is_flagged_and_shifts_nothing() {
    let folder = Folder::new();
    let frame = Vdif { bits: 8, ..PLAIN };
    let times = frame.times() as u64;
    // Threads 0, 4, 9 over 12 frames: gaps in all threads, in one, and a thread that begins late and ends early.
    let mut frames: Vec<Vec<Option<Vdif>>> = Vec::new();
    for thread in [0, 4, 9] {
        let frame =
            |time: u32| Vdif { seconds: 1000 + time / 10, number: time % 10, thread, ..frame };
        frames.push((0..12).map(|time| Some(frame(time))).collect());
    }
    (5..8).for_each(|time| frames.iter_mut().for_each(|thread| thread[time] = None));
    frames[1][10] = None;
    (0..2).chain(11..12).for_each(|time| frames[2][time] = None);
    let mut bytes = Vec::new();
    for time in 0..12 {
        bytes.extend(frames.iter().filter_map(|thread| thread[time]).flat_map(|frame| {
            let invalid = frame.number == 3 && frame.thread == 4;
            Vdif { invalid, ..frame }.noise_frame()
        }));
    }
    frames[1][3] = None;
    bytes.extend(Vdif { seconds: 1001, number: 2, ..frame }.noise_frame().iter().take(40));
    let path = folder.file("x.vdif", &bytes);
    let mut source = open(&path, &at_rate(&frame));
    let expected_flags = [
        flag(2..3, 0, 2 * times),
        flag(1..2, 3 * times, times),
        flag(0..3, 5 * times, 3 * times),
        flag(1..2, 10 * times, times),
        flag(2..3, 11 * times, times),
    ];
    assert_eq!(source.flags(), expected_flags);
    for gulp in [5, 16, 1000] {
        let found = read_all(source.as_mut(), gulp);
        for (thread, samples) in found.iter().enumerate() {
            let expected = truth(&frames[thread], 0, times as usize);
            assert!(agree(samples, &expected), "thread {thread}");
        }
        source = open(&path, &at_rate(&frame));
    }
}

#[test]
fn two_threads_are_polarizations() {
    let folder = Folder::new();
    let frame = Vdif { bits: 4, complex: true, channels_log2: 2, ..PLAIN };
    let times = frame.times();
    let mut bytes = Vec::new();
    for number in 0..4 {
        for thread in 0..2 {
            if (number, thread) != (2, 1) {
                bytes.extend(Vdif { number, thread, ..frame }.noise_frame());
            }
        }
    }
    let path = folder.file("x.vdif", &bytes);
    let frames = |thread: u32| -> Vec<Option<Vdif>> {
        let there = |number: u32| (number, thread) != (2, 1);
        let frame = |number| there(number).then_some(Vdif { number, thread, ..frame });
        (0..4).map(frame).collect()
    };
    let start = 2 * times as u64;
    let open_as = |polarizations| {
        let options = VoltageOptions { polarizations, centre_hz: Some(1e9), ..at_rate(&frame) };
        open(&path, &options)
    };
    let mut source = open_as(None);
    let header = source.header().clone();
    assert_eq!((header.polarizations, header.coarse_channels()), (2, 4));
    let rate = (times * PER_SECOND) as f64;
    assert_eq!(header.centres_hz, [-1.5, -0.5, 0.5, 1.5].map(|step| 1e9 + step * rate));
    let single = [1, 3, 5, 7].map(|stream| flag(stream..stream + 1, start, times as u64));
    assert_eq!(source.flags(), single);
    for (stream, samples) in read_all(source.as_mut(), 64).iter().enumerate() {
        let expected = truth(&frames(stream as u32 % 2), stream / 2, times);
        assert!(agree(samples, &expected), "stream {stream}");
    }
    let mut source = open_as(Some(1));
    assert_eq!((source.header().polarizations, source.header().coarse_channels()), (1, 8));
    assert_eq!(source.flags(), [flag(4..8, start, times as u64)]);
    for (stream, samples) in read_all(source.as_mut(), 64).iter().enumerate() {
        assert!(agree(samples, &truth(&frames(stream as u32 / 4), stream % 4, times)));
    }
}

#[test]
fn long_recordings_are_read_piece_by_piece() {
    let folder = Folder::new();
    // More than one read holds, in one frame and in several.
    for (payload, frames) in [(20_000, 40), (1 << 21, 1)] {
        for (bits, channels_log2, complex) in [(8, 2, true), (4, 0, true)] {
            let frame = Vdif { bits, channels_log2, complex, payload, ..PLAIN };
            let of_thread = |thread: u32| -> Vec<Option<Vdif>> {
                let times = (0..frames).filter(|time| (time + thread) % 7 != 5);
                let at =
                    |time| Vdif { seconds: 1000 + time / 10, number: time % 10, thread, ..frame };
                let mut all = vec![None; frames as usize];
                times.for_each(|time| all[time as usize] = Some(at(time)));
                all
            };
            let threads = [0, 1, 2].map(of_thread);
            let mut bytes = Vec::new();
            for time in 0..frames as usize {
                let there = threads.iter().filter_map(|thread| thread[time]);
                bytes.extend(there.flat_map(|frame| frame.noise_frame()));
            }
            let path = folder.file("x.vdif", &bytes);
            let mut source = open(&path, &at_rate(&frame));
            let flags = source.flags().to_vec();
            let found = read_all(source.as_mut(), 1 << 16);
            let channels = 1 << channels_log2;
            for (stream, samples) in found.iter().enumerate() {
                let mut expected =
                    truth(&threads[stream / channels], stream % channels, frame.times());
                for flag in flags.iter().filter(|flag| flag.streams.contains(&stream)) {
                    let flagged = flag.start as usize..(flag.start + flag.times) as usize;
                    expected[flagged.clone()].copy_from_slice(&samples[flagged]);
                }
                assert!(agree(samples, &expected), "{frame:?}, stream {stream}");
            }
        }
    }
}

#[test]
fn stations_are_antennas() {
    let folder = Folder::new();
    let mut bytes = Vec::new();
    for number in 0..2 {
        for station in [0x4566, 0x4161, 700] {
            bytes.extend(Vdif { number, station, ..PLAIN }.noise_frame());
        }
    }
    let mut source = open(&folder.file("x.vdif", &bytes), &at_rate(&PLAIN));
    let header = source.header();
    assert_eq!((header.antennas, header.coarse_channels(), header.polarizations), (3, 1, 1));
    assert_eq!(header.telescope, "station 700, Aa, Ef");
    let frames = [700, 0x4161, 0x4566]
        .map(|station| [0, 1].map(|number| Some(Vdif { number, station, ..PLAIN })));
    assert_eq!(read_all(source.as_mut(), 50), frames.map(|frames| truth(&frames, 0, 64)));
    bytes.extend(Vdif { number: 2, station: 0x4161, thread: 1, ..PLAIN }.noise_frame());
    let uneven = folder.file("x.vdif", &bytes);
    assert!(fault(&[uneven], &at_rate(&PLAIN)).to_string().contains("thread"));
}

#[test]
fn masks_of_channels_are_flags() {
    let folder = Folder::new();
    let masked = |number: u32, mask: u32| Vdif {
        number,
        bits: 8,
        channels_log2: 2,
        extended: [4 << 24 | 2 << 16, SYNC, mask, 0],
        ..PLAIN
    };
    let frames = [masked(0, 3), masked(1, 1), masked(2, 0), masked(3, 3)];
    let bytes: Vec<u8> = frames.iter().flat_map(Vdif::noise_frame).collect();
    let mut source = open(&folder.file("x.vdif", &bytes), &at_rate(&frames[0]));
    let times = frames[0].times() as u64;
    assert_eq!(source.flags(), [flag(2..4, times, times), flag(0..4, 2 * times, times)]);
    let found = read_all(source.as_mut(), 3);
    for (channel, samples) in found.iter().enumerate() {
        let valid = |frame: &Vdif| frame.extended[2] >> (channel / 2) & 1 == 1;
        let expected = frames.map(|frame| valid(&frame).then_some(frame));
        assert!(agree(samples, &truth(&expected, channel, times as usize)));
    }
}

#[test]
fn the_rate_comes_from_where_it_stands() {
    let folder = Folder::new();
    let rate = |frames: &[Vdif], options: &VoltageOptions| {
        let bytes: Vec<u8> = frames.iter().flat_map(Vdif::noise_frame).collect();
        let source = open_vdif(&[folder.file("x.vdif", &bytes)], options)?;
        Ok::<_, Error>((1.0 / source.header().tsamp_s, source.header().start.seconds))
    };
    let none = VoltageOptions::default();
    let khz = Vdif { extended: [1 << 24 | 320, SYNC, 0, 0], number: 5, ..PLAIN };
    assert_eq!(rate(&[khz], &none).unwrap(), (640e3, 1000.0 + 5.0 * 64.0 / 640e3));
    let mhz = Vdif { extended: [3 << 24 | 1 << 23 | 16, SYNC, 0, 0], complex: true, ..PLAIN };
    assert_eq!(rate(&[mhz], &none).unwrap().0, 16e6);
    let run = |range: std::ops::Range<u32>| -> Vec<Vdif> {
        range.map(|t| Vdif { seconds: 1000 + t / 50, number: t % 50, ..PLAIN }).collect()
    };
    assert_eq!(rate(&run(40..60), &none).unwrap(), (50.0 * 64.0, 1000.8));
    let message = rate(&run(40..50), &none).unwrap_err().to_string();
    assert!(message.contains("sample_rate_hz") && message.contains("x.vdif"), "{message}");
    for bad in [10.0, f64::NAN, -6400.0, f64::INFINITY, 1e18] {
        let options = VoltageOptions { sample_rate_hz: Some(bad), ..none.clone() };
        let error = rate(&run(40..60), &options).unwrap_err();
        assert!(matches!(error, Error::Parameter { .. }), "{error}");
    }
    let slow = VoltageOptions { sample_rate_hz: Some(49.0 * 64.0), ..none };
    let message = rate(&run(40..60), &slow).unwrap_err().to_string();
    assert!(message.contains("frame 49 within a second"), "{message}");
}

#[test]
fn bad_headers_are_named_with_their_byte() {
    let folder = Folder::new();
    let second = |change: fn(&mut Vdif)| {
        let mut frame = Vdif { number: 1, ..PLAIN };
        change(&mut frame);
        [PLAIN.noise_frame(), frame.noise_frame()].concat()
    };
    let first = |change: fn(&mut Vdif)| {
        let mut frame = PLAIN;
        change(&mut frame);
        let payload = vec![0; frame.payload];
        frame.frame(&payload)
    };
    let cut = |bytes: usize| PLAIN.noise_frame()[..bytes].to_vec();
    let cases: Vec<(Vec<u8>, &str, u64)> = vec![
        (first(|frame| frame.extended[0] = 7 << 24), "extended data version", 19),
        (first(|frame| frame.bits = 17), "bits", 15),
        (first(|frame| frame.bits = 32), "bits", 15),
        (first(|frame| (frame.bits, frame.channels_log2) = (3, 1)), "bits", 15),
        (first(|frame| frame.channels_log2 = 31), "frame length", 8),
        (first(|frame| frame.payload = 0), "frame length", 8),
        (first(|frame| frame.extended = [1 << 24, 1, 0, 0]), "sync word", 20),
        (first(|frame| (frame.bits, frame.extended[0]) = (4, 0xabad_deed)), "bits", 15),
        (vec![0; 64], "frame length", 8),
        (second(|frame| frame.payload = 24), "frame length", 48 + 8),
        (second(|frame| frame.bits = 4), "bits", 48 + 15),
        (second(|frame| frame.complex = true), "complex bit", 48 + 15),
        (second(|frame| frame.channels_log2 = 1), "channels (log2)", 48 + 11),
        (second(|frame| frame.extended[0] = 2 << 24), "extended data version", 48 + 19),
        (second(|frame| frame.number = 0), "frame number", 48),
        (second(|frame| frame.number = 10), "frame number", 48),
        (second(|frame| frame.seconds = 90_000), "seconds", 48),
        (cut(47), "frame", 0),
        (cut(20), "frame", 0),
        (vec![], "file", 0),
    ];
    for (bytes, expected, byte) in cases {
        let path = folder.file("x.vdif", &bytes);
        match fault(&[path], &at_rate(&PLAIN)) {
            Error::Format { field, offset, path, .. } => {
                assert_eq!((field.as_str(), offset), (expected, byte));
                assert!(path.ends_with("x.vdif"));
            }
            other => panic!("{expected}: {other}"),
        }
    }
    assert!(matches!(fault(&[], &at_rate(&PLAIN)), Error::Parameter { .. }));
    let missing = folder.file("x", b"").with_file_name("none.vdif");
    assert!(matches!(fault(&[missing], &at_rate(&PLAIN)), Error::Io { .. }));
}

#[test]
fn any_bytes_give_samples_or_an_error() {
    let folder = Folder::new();
    let mut random = Random::new(5);
    let frames = (0..20).map(|k| Vdif { number: k / 2, thread: k % 2, ..PLAIN }.noise_frame());
    let whole: Vec<u8> = frames.flatten().collect();
    let mut opened = 0;
    for _ in 0..2000 {
        let mut bytes = whole.clone();
        bytes.truncate(random.below(bytes.len()) + 1);
        for _ in 0..random.below(4) {
            let at = random.below(bytes.len());
            bytes[at] ^= 1 << random.below(8);
        }
        let path = folder.file("x.vdif", &bytes);
        let Ok(mut source) = open_vdif(&[path], &at_rate(&PLAIN)) else { continue };
        let mut block = source.header().block(1000);
        let _ = source.read(&mut block);
        opened += 1;
    }
    assert!(opened > 200, "{opened}");
}
