//! Effects of cleaning, and channels found by the automatic mask.

#[path = "common/random.rs"]
mod random;

use random::Random;
use sidereal::backend::Backend;
use sidereal::clean::{Cleaner, Options, Plan, TimeMask, channel_mask};
use sidereal::sample::{Encoding, Samples, set_value};

const CHANNELS: usize = 256;
const TIMES: usize = 8192;
const THRESHOLD: f64 = 6.0;

/// Deviates of a unit Gaussian, times a bandpass that falls off at its edges.
fn band(random: &mut Random) -> Vec<f64> {
    let gain = |channel: usize| {
        let x = (channel as f64 + 0.5) / CHANNELS as f64;
        (1.0 - (2.0 * x - 1.0).powi(8)) * (1.0 + 0.2 * (9.0 * x).sin()) + 0.05
    };
    (0..TIMES * CHANNELS).map(|i| gain(i % CHANNELS) * random.gaussian()).collect()
}

fn quantize(data: &[f64], encoding: Encoding) -> Vec<u8> {
    let (mean, scale) = match encoding {
        Encoding::U1 => (0.5, 0.5),
        Encoding::U2 => (1.5, 1.0),
        Encoding::U4 => (7.5, 3.0),
        Encoding::U16 => (30_000.0, 1000.0),
        _ => (100.0, 16.0),
    };
    let row_bytes = encoding.row_bytes(CHANNELS).unwrap();
    let mut bytes = vec![0; TIMES * row_bytes];
    for (row, values) in bytes.chunks_exact_mut(row_bytes).zip(data.chunks(CHANNELS)) {
        for (channel, value) in values.iter().enumerate() {
            set_value(row, encoding, channel, mean + scale * value);
        }
    }
    bytes
}

fn masked(data: &[f64], encoding: Encoding) -> Vec<usize> {
    let bytes = quantize(data, encoding);
    let samples = Samples::new(&bytes, encoding, TIMES, CHANNELS).unwrap();
    let mask = channel_mask(samples, THRESHOLD);
    (0..CHANNELS).filter(|channel| mask[*channel]).collect()
}

#[test]
fn a_clean_band_stays_whole() {
    for (seed, encoding) in Encoding::ALL.into_iter().enumerate() {
        let data = band(&mut Random::new(seed as u64));
        assert_eq!(masked(&data, encoding), [0usize; 0], "{encoding:?}");
    }
}

#[test]
fn a_bright_dispersed_pulse_stays() {
    for snr in [30.0, 100.0] {
        let mut random = Random::new(3);
        let mut data = band(&mut random);
        let width = 20;
        let height = snr / ((width * CHANNELS) as f64).sqrt();
        for channel in 0..CHANNELS {
            let start = 1000 + 11 * channel;
            (start..start + width).for_each(|time| data[time * CHANNELS + channel] += height);
        }
        for encoding in [Encoding::U1, Encoding::U8, Encoding::F32] {
            assert_eq!(masked(&data, encoding), [0usize; 0], "{encoding:?}");
        }
    }
}

#[test]
fn loud_periodic_and_stuck_channels_are_caught() {
    let mut random = Random::new(4);
    let mut data = band(&mut random);
    for time in 0..TIMES {
        let row = &mut data[time * CHANNELS..][..CHANNELS];
        row[40] *= 3f64.sqrt();
        row[80] += if time % 50 < 25 { 0.5 } else { -0.5 };
        (120..130).for_each(|channel| row[channel] *= 3f64.sqrt());
        row[160] = 0.25;
        row[200] += 0.5 * (time as f64 * 0.02).sin();
        row[20] *= 2.0;
    }
    let truth: Vec<usize> = [20, 40, 80].into_iter().chain(120..130).chain([160, 200]).collect();
    for encoding in [Encoding::U4, Encoding::U8, Encoding::U16, Encoding::F32] {
        assert_eq!(masked(&data, encoding), truth, "{encoding:?}");
    }
}

#[test]
fn too_little_to_judge_masks_nothing() {
    let samples = Samples::u8(&[0; 8 * 31], 31, 8).unwrap();
    assert_eq!(channel_mask(samples, 5.0), [false; 8]);
    let dead = Samples::u8(&[0; 8 * 64], 64, 8).unwrap();
    assert_eq!(channel_mask(dead, 5.0), [true; 8]);
}

#[test]
fn zero_dm_takes_broad_signals_away_and_leaves_masked_channels() {
    let options = Options {
        channels: 4,
        encoding: Encoding::U8,
        zero_dm: true,
        masked: vec![false, true, false, false],
        time_mask: None,
    };
    let plan = Plan::new(options).unwrap();
    assert_eq!((plan.output_encoding(), plan.output_range()), (Encoding::I16, Some((-4080, 4080))));
    let mut cleaner = Cleaner::new(plan, &Backend::best(1)).unwrap();
    let input = Samples::u8(&[10, 77, 12, 15, 110, 78, 112, 115], 2, 4).unwrap();
    let mut output = [0; 16];
    cleaner.run(input, &mut output).unwrap();
    let output = Samples::new(&output, Encoding::I16, 2, 4).unwrap();
    // Sixteenths of a count: the mean of the good channels is 12 1/3, or 197/16.
    let rows: Vec<Vec<f64>> =
        (0..2).map(|t| (0..4).map(|c| output.value(t, c)).collect()).collect();
    assert_eq!(rows, [[-37.0, 1232.0, -5.0, 43.0], [-37.0, 1248.0, -5.0, 43.0]]);
}

#[test]
fn masked_cells_become_the_running_median() {
    let (channels, times) = (8, 4000);
    let mut random = Random::new(9);
    let mut bytes: Vec<u8> = (0..times * channels)
        .map(|i| (50.0 + 10.0 * (i % channels) as f64 + 3.0 * random.gaussian()).round() as u8)
        .collect();
    (2000..3000).for_each(|time| bytes[time * channels + 3] = 255);
    let intervals = vec![vec![], vec![], vec![3], vec![]];
    let time_mask = Some(TimeMask { interval_times: 1000, first_time: 0, intervals });
    let options =
        Options { channels, encoding: Encoding::U8, zero_dm: false, masked: vec![], time_mask };
    let mut cleaner = Cleaner::new(Plan::new(options).unwrap(), &Backend::best(2)).unwrap();
    let input = Samples::u8(&bytes, times, channels).unwrap();
    let mut output = vec![0; bytes.len()];
    cleaner.run(input, &mut output).unwrap();
    for (index, (before, after)) in bytes.iter().zip(&output).enumerate() {
        let (time, channel) = (index / channels, index % channels);
        if channel == 3 && (2000..3000).contains(&time) {
            assert!((i32::from(*after) - 80).abs() <= 2, "{after}");
        } else {
            assert_eq!(before, after);
        }
    }
}
