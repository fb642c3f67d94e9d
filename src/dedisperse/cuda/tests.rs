use super::*;
use crate::backend::cuda::PlaneKind;
use crate::backend::cuda::testing::device;
use crate::sample::Encoding;
use crate::units::{Band, DM_CONSTANT};

/// Plans 64 close trials of long delay, and one of no delay.
fn plan(encoding: Encoding) -> Plan {
    let near = (0..64).map(|i| 120.0 + 0.002 * f64::from(i));
    Plan::new(super::super::plan::Options {
        band: Band::uniform(1400.0, -4.0, 24).unwrap(),
        tsamp_s: 5e-6,
        dms: std::iter::once(0.0).chain(near).collect(),
        downsample: 1,
        encoding,
        range: None,
        masked: Vec::new(),
        dm_constant: DM_CONSTANT,
    })
    .unwrap()
}

#[test]
fn a_stream_that_fills_the_history_is_read_within_it_to_its_end() {
    let Some(device) = device() else { return };
    let threads = Threads::new(2);
    for encoding in [Encoding::U8, Encoding::U16] {
        let plan = plan(encoding);
        let lane_bytes = encoding.bits() / 8;
        let sizes = Sizes { host: 512, device: 512, ..Sizes::new(&plan, lane_bytes) };
        let rows = sizes.capacity(&plan) as usize;
        assert!(plan.max_shift() > 2 * job::SLACK, "the last block reads far past the end");
        let bytes: Vec<u8> = (0..rows * 24 * lane_bytes).map(|i| (i * i / 7 % 251) as u8).collect();
        let mut engine = Engine::sized(&plan, &device, &threads, sizes).unwrap();
        assert!(engine.fast.is_some() == (device.is_hopper() && lane_bytes == 1));
        let (input, stream) = (device.upload(&bytes).unwrap(), device.stream().unwrap());
        let mut plane = Plane::new(&device, PlaneKind::I32, 65, rows).unwrap();
        engine.load_on_device((&input, 0), rows, &stream).unwrap();
        for column in (0..rows).step_by(512) {
            let times = 512.min(rows - column);
            engine.emit_on_device(times, (&mut plane, column), &stream).unwrap();
        }
        let mut words = vec![0; plane.words.len()];
        plane.words.download(0, &mut words).unwrap();
        for dm in [0, 1, 40, 64] {
            let row = &words[dm * rows..][..rows];
            let valid = rows - plan.trial_shift(dm);
            assert!(row[valid..].iter().all(|sum| *sum == 0));
            let sample = |time: usize, c: usize| {
                let at = ((time + plan.shift(dm, c)) * 24 + c) * lane_bytes;
                bytes[at..at + lane_bytes].iter().rev().fold(0, |all, b| all << 8 | u32::from(*b))
            };
            let sum = |time: usize| (0..24).map(|c| sample(time, c)).sum::<u32>();
            assert!((0..valid).all(|time| row[time] == sum(time)), "{encoding:?} trial {dm}");
        }
    }
}

#[test]
fn blocks_are_smaller_where_memory_is_short() {
    let plan = plan(Encoding::U8);
    let sizes = Sizes::new(&plan, 1);
    let bytes = |sizes: &Sizes| loader::bytes(&plan, sizes.capacity(&plan)).unwrap();
    assert_eq!(sizes.within(usize::MAX, &plan).device, sizes.device);
    let half = sizes.within(2 * bytes(&sizes), &plan);
    assert!(half.device < sizes.device && bytes(&half) <= bytes(&sizes) / 2 + 100_000);
    let least = sizes.within(0, &plan);
    assert_eq!((least.host, least.device), (STEP, STEP), "with no memory, the shortest blocks");
    let short = sizes.within(bytes(&sizes), &plan);
    assert!(STEP <= short.host && short.host <= short.device && short.device < sizes.device);
}
