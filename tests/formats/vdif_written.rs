//! VDIF files that are written: samples come back with their times, and the frames of lost ones are marked.

use sidereal::io::voltages::{Flag, VoltageHeader, VoltageOptions, open_vdif, vdif};
use sidereal::units::Epoch;
use sidereal::voltage::{VoltageBlock, VoltageEncoding, voltage};

use crate::support::random;
use random::Random;

const RATE: f64 = 1e6;

fn header(encoding: VoltageEncoding, bits: usize, channels: usize) -> VoltageHeader {
    let mut header = VoltageHeader::new(vec![1e9; channels], 1.0 / RATE, encoding);
    header.recorded_bits = bits;
    (header.antennas, header.polarizations) = (3, 2);
    header.telescope = "Aa, Bb, Cc".into();
    header
}

/// Samples that frames of the recorded bits hold.
fn block(header: &VoltageHeader, times: usize, seed: u64) -> VoltageBlock<'static> {
    let mut random = Random::new(seed);
    let mut block = header.block(times);
    let is_narrow = header.recorded_bits == 8 && header.encoding.bits() == 16;
    for row in block.rows_mut() {
        row.iter_mut().for_each(|byte| *byte = random.below(256) as u8);
        if is_narrow {
            for value in row.as_chunks_mut::<2>().0 {
                *value = (2 * i16::from(value[0]) - 255).to_le_bytes();
            }
        }
    }
    block.set_times(times).unwrap();
    block
}

/// Writes a recording whose first sample is `lead` samples after a second, in pieces, and compares what is read.
fn check(header: &VoltageHeader, times: usize, lead: usize, seed: u64) {
    let mut random = Random::new(seed);
    let header = VoltageHeader {
        start: Epoch::new(60_000, 86_399.0 + lead as f64 / RATE),
        ..header.clone()
    };
    let made = block(&header, times, seed);
    let (channels, polarizations) = (header.coarse_channels(), header.polarizations);
    let thread_of = |stream: usize| {
        stream / (channels * polarizations) * polarizations + stream % polarizations
    };
    let mut lost = Vec::new();
    for _ in 0..random.below(4) {
        let (first, start) = (random.below(header.streams()), random.below(times));
        let end = first + 1 + random.below(header.streams() - first);
        let count = 1 + random.below((times - start).min(3000));
        lost.push(Flag { streams: first..end, start: start as u64, times: count as u64 });
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.vdif");
    let mut writer = vdif::Writer::create(&path, &header).unwrap();
    let each = header.encoding.group_samples();
    let mut taken = 0;
    while taken < times {
        let count = (each * (1 + random.below(3000))).min(times - taken);
        let own: Vec<Flag> = lost
            .iter()
            .filter_map(|flag| {
                let start = flag.start.max(taken as u64);
                let end = (flag.start + flag.times).min((taken + count) as u64);
                let (start, streams) = (start - taken as u64, flag.streams.clone());
                let times = (end.saturating_sub(taken as u64)).saturating_sub(start);
                (times > 0).then_some(Flag { streams, start, times })
            })
            .collect();
        writer.write_marked(made.voltages().slice(taken, count).unwrap(), &own).unwrap();
        taken += count;
    }
    assert!(!path.exists());
    writer.finish().unwrap();

    let bytes = std::fs::read(&path).unwrap();
    let frame_bytes = 8 * (u32::from_le_bytes(*bytes[8..].first_chunk().unwrap()) & 0xff_ffff);
    let threads = header.antennas * polarizations;
    let frames = bytes.len() / (threads * frame_bytes as usize);
    let mut source = open_vdif(&[path], &VoltageOptions::default()).unwrap();
    let found = source.header().clone();
    assert_eq!(found.telescope, "Aa, Bb, Cc");
    assert_eq!((found.antennas, found.polarizations), (3, 2));
    let total = found.times.unwrap() as usize;
    let frame_times = total / frames;
    let lead = lead % frame_times;
    assert_eq!(total, (lead + times).next_multiple_of(frame_times));
    let since = found.start.seconds_since(&header.start);
    assert!((since + lead as f64 / RATE).abs() < 1e-9, "{since}");
    let is_lost = |thread: usize, frame: usize| {
        let span = (frame * frame_times) as u64..((frame + 1) * frame_times) as u64;
        lost.iter().any(|flag| {
            let start = flag.start + lead as u64;
            flag.streams.clone().any(|stream| thread_of(stream) == thread)
                && start < span.end
                && span.start < start + flag.times
        })
    };
    let mut read = found.block(total);
    assert_eq!(source.read(&mut read).unwrap(), total);
    let mut flagged = vec![vec![false; total]; found.streams()];
    for flag in source.flags() {
        for row in &mut flagged[flag.streams.clone()] {
            row[flag.start as usize..(flag.start + flag.times) as usize].fill(true);
        }
    }
    for (stream, flagged) in flagged.iter().enumerate() {
        for (time, flagged) in flagged.iter().enumerate() {
            let is_lost = is_lost(thread_of(stream), time / frame_times);
            assert_eq!(*flagged, is_lost, "stream {stream}, sample {time}");
            if is_lost || !(lead..lead + times).contains(&time) {
                continue;
            }
            let value = voltage(read.voltages().row(stream), found.encoding, time);
            let sent = voltage(made.voltages().row(stream), header.encoding, time - lead);
            assert_eq!(value, sent, "stream {stream}, sample {time}");
        }
    }
}

#[test]
fn written_samples_are_read_at_their_times_and_lost_frames_are_flagged() {
    use VoltageEncoding::{
        Complex4, Complex8, Complex16, ComplexOffset8, Real2, Real4, Real8, Real16,
    };
    let mut seed = 0;
    for (encoding, bits) in [
        (Real2, 2),
        (Real4, 4),
        (Real8, 8),
        (Real16, 8),
        (Complex4, 4),
        (Complex8, 8),
        (ComplexOffset8, 8),
        (Complex16, 8),
        (Complex16, 16),
    ] {
        for channels in [1, 4] {
            for lead in [0, 500_012] {
                seed += 1;
                let times = 9000 + 13 * seed as usize;
                let times = times.next_multiple_of(encoding.group_samples());
                check(&header(encoding, bits, channels), times, lead, seed);
            }
        }
    }
}

#[test]
fn headers_that_frames_cannot_hold_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.vdif");
    let with = |change: fn(&mut VoltageHeader)| {
        let mut header = header(VoltageEncoding::Real2, 2, 4);
        header.start = Epoch::new(60_000, 0.0);
        change(&mut header);
        vdif::Writer::create(&path, &header).unwrap_err().to_string()
    };
    for (error, words) in [
        (with(|header| header.start = Epoch::default()), "2000 to 2031"),
        (with(|header| header.start.seconds = 1e-6), "first of 4 samples"),
        (with(|header| header.centres_hz = vec![1e9; 5]), "power of 2"),
        (with(|header| header.tsamp_s = 1.0 / 1_000_003.0), "divides a second"),
        (
            with(|header| {
                (header.encoding, header.recorded_bits) = (VoltageEncoding::ComplexF32, 32);
            }),
            "up to 16 bits",
        ),
    ] {
        assert!(error.contains(words), "{words}: {error}");
    }
    let mut good = header(VoltageEncoding::Real2, 2, 4);
    good.start = Epoch::new(60_000, 0.0);
    let writer = vdif::Writer::create(&path, &good).unwrap();
    assert!(writer.finish().unwrap_err().to_string().contains("one sample at least"));
    let mut writer = vdif::Writer::create(&path, &good).unwrap();
    writer.write(block(&good, 8, 1).voltages()).unwrap();
    let other = block(&header(VoltageEncoding::Real4, 4, 4), 8, 1);
    assert!(vdif::Writer::create(&path, &good).unwrap().write(other.voltages()).is_err());
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "the open writer's");
    drop(writer);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}
