//! Mitigation of interference: removed signals, kept bursts, and invariance to the split of the stream.

use crate::random;
use random::Random;
use sidereal::backend::Backend;
use sidereal::clean::{Bandpass, Mitigated, Mitigator, Steps};
use sidereal::dedisperse::dm_plan::DmPlan;
use sidereal::io::FilterbankSource;
use sidereal::pipeline::burst::{CleanedRows, RecleanedRows, SearchOptions, Source, search};
use sidereal::sample::{Encoding, Samples, set_value};
use sidereal::simulate::burst::{self, Simulator};
use sidereal::units::Band;

const CHANNELS: usize = 128;
const TIMES: usize = 12_000;
const TSAMP_S: f64 = 1e-3;
const LEVEL: f64 = 80.0;
const SIGMA: f64 = 10.0;

const ALL: Steps = Steps { iqrm: true, bandpass: Bandpass::Outliers, time: true };

/// The gain of a channel: from 1.6 down to 0.5.
fn slope(channel: usize) -> f64 {
    1.6 - 1.1 * channel as f64 / (CHANNELS - 1) as f64
}

/// Rows of noise about a level, `gain(time) slope(channel) (level + noise + signal(time, channel))`.
fn rows(
    seed: u64,
    encoding: Encoding,
    gain: impl Fn(usize) -> f64,
    signal: impl Fn(usize, usize) -> f64,
) -> Vec<u8> {
    let mut random = Random::new(seed);
    let row_bytes = encoding.row_bytes(CHANNELS).unwrap();
    let mut bytes = vec![0; TIMES * row_bytes];
    for (time, row) in bytes.chunks_exact_mut(row_bytes).enumerate() {
        for channel in 0..CHANNELS {
            let x = LEVEL + SIGMA * (random.gaussian() + signal(time, channel));
            set_value(row, encoding, channel, gain(time) * slope(channel) * x);
        }
    }
    bytes
}

fn mitigated(
    bytes: &[u8],
    encoding: Encoding,
    steps: Steps,
    threads: usize,
) -> (Vec<u8>, Mitigated) {
    mitigated_by(&Backend::best(threads), threads, (bytes, encoding), steps)
}

/// Mitigates on a backend, the given number of blocks at a time, and checks that the record of what was removed cleans
/// any rows alike.
fn mitigated_by(
    backend: &Backend,
    together: usize,
    (bytes, encoding): (&[u8], Encoding),
    steps: Steps,
) -> (Vec<u8>, Mitigated) {
    let row_bytes = encoding.row_bytes(CHANNELS).unwrap();
    let first = &bytes[..4096 * row_bytes];
    let masked = [false; CHANNELS];
    let mut own = Mitigator::new(first, encoding, TSAMP_S, &masked, steps, 0.5, backend).unwrap();
    own.record(64 << 20);
    let mut output = Vec::new();
    let blocks: Vec<Vec<u8>> =
        bytes.chunks(own.block_rows() * row_bytes).map(<[u8]>::to_vec).collect();
    for (index, blocks) in blocks.chunks(together).enumerate() {
        let blocks = blocks.to_vec();
        // Every third call does not run ahead.
        let done = if index % 3 == 2 { own.push(blocks) } else { own.push_ahead(blocks) };
        output.extend(done.unwrap().concat());
    }
    output.extend(own.flush().unwrap().concat());
    assert_eq!(output.len(), bytes.len());
    let removals = own.take_removals().expect("64 MiB suffice");
    for part in [0..TIMES, 1..4, 2_900..3_200, 4_999..7_777, TIMES - 1..TIMES] {
        let place = part.start * row_bytes..part.end * row_bytes;
        let mut again = bytes[place.clone()].to_vec();
        removals.clean(part.start as u64, &mut again);
        assert!(again == output[place], "rows {part:?}, {encoding:?}, {steps:?}");
    }
    (output, own.mitigated())
}

/// The sum over channels of each row, relative to its mean over all rows, in units of the noise of such sums.
fn series(bytes: &[u8], encoding: Encoding) -> Vec<f64> {
    let samples = Samples::new(bytes, encoding, TIMES, CHANNELS).unwrap();
    let sum = |time: usize| (0..CHANNELS).map(|c| samples.value(time, c)).sum::<f64>();
    let sums: Vec<f64> = (0..TIMES).map(sum).collect();
    let mut sorted = sums.clone();
    sorted.sort_by(f64::total_cmp);
    let noise = SIGMA * (0..CHANNELS).map(|c| slope(c).powi(2)).sum::<f64>().sqrt();
    sums.iter().map(|sum| (sum - sorted[TIMES / 2]) / noise).collect()
}

/// The largest S/N of boxcars of some widths.
fn largest(series: &[f64]) -> f64 {
    let of = |width: usize| {
        let sums = series.windows(width).map(|own| own.iter().sum::<f64>().abs());
        sums.fold(0.0, f64::max) / (width as f64).sqrt()
    };
    [1, 4, 16, 64].into_iter().map(of).fold(0.0, f64::max)
}

/// A pulse each 0.9 s, 3 rows long.
fn radar(time: usize) -> f64 {
    if time % 900 < 3 { 4.0 } else { 0.0 }
}

#[test]
fn noise_and_a_bright_dispersed_pulse_stay_as_they_are() {
    let pulse = |time: usize, channel: usize| {
        let arrival = 5000 + 3 * channel;
        if (arrival..arrival + 5).contains(&time) { 3.0 } else { 0.0 }
    };
    for encoding in [Encoding::U8, Encoding::U16, Encoding::F32] {
        let bytes = rows(1, encoding, |_| 1.0, pulse);
        let (output, found) = mitigated(&bytes, encoding, ALL, 2);
        assert!(output == bytes, "{encoding:?}: {found:?}");
    }
}

#[test]
fn broadband_signals_leave_no_more_than_noise_on_a_sloped_band() {
    for encoding in [Encoding::U8, Encoding::I16, Encoding::F32] {
        let bytes = rows(2, encoding, |_| 1.0, |time, _| radar(time));
        let before = largest(&series(&bytes, encoding));
        assert!(before > 60.0, "{encoding:?}: {before}");
        for bandpass in [Bandpass::Outliers, Bandpass::Always] {
            let (output, found) = mitigated(&bytes, encoding, Steps { bandpass, ..ALL }, 2);
            let after = largest(&series(&output, encoding));
            assert!(after < 6.5, "{encoding:?} {bandpass:?}: {after}");
            if bandpass == Bandpass::Outliers {
                assert!((14..18).contains(&found.broadband_runs), "{found:?}");
                assert!(found.broadband_rows < 100, "{found:?}");
            }
        }
    }
}

#[test]
fn dropouts_are_replaced_and_steps_followed() {
    let gain = |time: usize| {
        let step = if time < 5000 { 1.0 } else { 1.2 };
        if (3000..3100).contains(&time) || (7000..7700).contains(&time) { 0.05 } else { step }
    };
    let bytes = rows(3, Encoding::U8, gain, |_, _| 0.0);
    assert!(largest(&series(&bytes, Encoding::U8)) > 100.0);
    let (output, found) = mitigated(&bytes, Encoding::U8, ALL, 1);
    let series = series(&output, Encoding::U8);
    assert!(largest(&series) < 7.0, "{}", largest(&series));
    assert_eq!((found.lost_rows, found.lost_runs), (800, 2));
    assert!((found.largest_change - 0.2).abs() < 0.02, "{found:?}");
    // Neither the level nor the noise of either part changes.
    for part in [3000..3100, 4000..5000, 5000..6000, 7000..7700, 8000..9000] {
        let own = &series[part.clone()];
        let mean = own.iter().sum::<f64>() / own.len() as f64;
        let power = own.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / own.len() as f64;
        assert!(mean.abs() < 0.4 && (power - 1.0).abs() < 0.4, "{part:?}: {mean} {power}");
    }
}

#[test]
fn long_faint_broadband_signals_leave_nothing_between_their_rows() {
    let pulse = |time: usize, _| if time % 200 < 25 { 0.4 } else { 0.0 };
    let bytes = rows(6, Encoding::U8, |_| 1.0, pulse);
    let (output, found) = mitigated(&bytes, Encoding::U8, ALL, 2);
    let after = largest(&series(&output, Encoding::U8));
    assert!(after < 5.5, "{after} {found:?}");
    assert!((1450..1800).contains(&found.broadband_rows), "{found:?}");
}

#[test]
fn a_wide_pulse_of_little_dispersion_stays() {
    // The sweep over the band is as long as the pulse, so that at its middle it is in all channels.
    let pulse = |time: usize, channel: usize| {
        let arrival = 500.0 + 1000.0 * (time / 1000) as f64 + 100.0 * channel as f64 / 128.0;
        0.25 * (-2.77 * ((time as f64 - arrival) / 100.0).powi(2)).exp()
    };
    let bytes = rows(9, Encoding::U8, |_| 1.0, pulse);
    // The running level belongs to another step.
    let (_, found) = mitigated(&bytes, Encoding::U8, Steps { time: false, ..ALL }, 2);
    // Twelve pulses of more than 100 rows.
    assert!(found.broadband_rows < 64, "{found:?}");
}

#[test]
fn a_dropout_is_recognized_among_steady_tones() {
    let tone = |channel: usize| if channel % 12 == 5 { 40.0 } else { 0.0 };
    let dropout = 5700..8900;
    let gain = |time: usize| if dropout.contains(&time) { 0.2 } else { 1.0 };
    // A tone adds to the signal of the receiver.
    let signal = |time: usize, channel: usize| {
        let lasts = if time < 5000 { 0.0 } else { tone(channel) };
        lasts / (SIGMA * slope(channel) * gain(time))
    };
    let bytes = rows(7, Encoding::U8, gain, signal);
    let (output, found) = mitigated(&bytes, Encoding::U8, ALL, 2);
    assert_eq!((found.lost_rows, found.lost_runs), (3200, 1), "{found:?}");
    let after = largest(&series(&output, Encoding::U8)[5500..9100]);
    assert!(after < 7.0, "{after}");
}

#[test]
fn a_low_gain_is_no_dropout_and_in_the_end_a_level() {
    let step = |to: f64| rows(8, Encoding::U8, |t| if t < 1000 { 1.0 } else { to }, |_, _| 0.0);
    let (_, found) = mitigated(&step(0.75), Encoding::U8, ALL, 2);
    assert!(found.lost_rows < 300, "{found:?}");
    let (output, found) = mitigated(&step(0.5), Encoding::U8, ALL, 2);
    assert!((8000..9500).contains(&found.lost_rows), "{found:?}");
    let after = largest(&series(&output, Encoding::U8));
    assert!(after < 7.0, "{after}");
}

#[test]
fn a_channel_that_stands_out_for_a_while_holds_its_level() {
    let tone = |time: usize, channel: usize| {
        if channel == 40 && (5000..8000).contains(&time) { 3.0 } else { 0.0 }
    };
    let bytes = rows(4, Encoding::U8, |_| 1.0, tone);
    let (output, found) = mitigated(&bytes, Encoding::U8, ALL, 1);
    assert!((3000..6000).contains(&found.masked_cells), "{found:?}");
    for (index, (before, after)) in bytes.iter().zip(&output).enumerate() {
        let (time, channel) = (index / CHANNELS, index % CHANNELS);
        if channel == 40 && (5000..8000).contains(&time) {
            let level = LEVEL * slope(40);
            assert!((f64::from(*after) - level).abs() < 4.0, "{after} at {time}");
        } else if channel != 40 {
            assert_eq!(before, after, "channel {channel} at {time}");
        }
    }
}

#[test]
fn threads_and_repeats_give_the_same_bits() {
    let gain = |time: usize| {
        if (3000..3500).contains(&time) {
            0.1
        } else {
            1.0 + 0.2 * f64::from(u8::from(time > 6000))
        }
    };
    for encoding in [Encoding::U4, Encoding::U8, Encoding::F32] {
        let bytes = rows(5, encoding, |time| 0.1 * gain(time), |time, _| radar(time));
        let first = mitigated(&bytes, encoding, ALL, 1);
        assert!(first.0 != bytes);
        for threads in [2, 5] {
            assert!(mitigated(&bytes, encoding, ALL, threads) == first, "{encoding:?}");
        }
    }
}

#[test]
fn rows_cleaned_from_the_record_of_a_search_are_those_of_one_pass() {
    let band = Band::uniform(1500.0, -2.0, CHANNELS).unwrap();
    let mut simulated = burst::Options::new(band, TSAMP_S, TIMES as u64);
    simulated.broad = Some(burst::BroadInterference { rate_hz: 3.0, snr: 150.0, width_s: 2e-3 });
    let source = || Box::new(Simulator::new(simulated.clone()).unwrap());
    let backend = Backend::best(2);
    for (zero_dm, time_range) in [(false, None), (true, Some((1.25, 10.5)))] {
        let options = SearchOptions {
            mitigation: Some(ALL),
            zero_dm,
            time_range,
            removals_bytes: 64 << 20,
            ..SearchOptions::new(DmPlan::fixed(&[(0.0, 50.0, 10.0)]).unwrap())
        };
        let report =
            search(Source::Rows(source().as_mut()), &options, &backend, &mut |_| true).unwrap();
        assert!(report.mitigated.unwrap().broadband_rows > 0);
        let removals = report.removals.unwrap();
        let mut all = CleanedRows::new(source(), &options, &backend, &mut || true).unwrap();
        let row_bytes = all.header().row_bytes();
        let mut bytes = vec![0; (TIMES + 1) * row_bytes];
        let times = all.read(&mut bytes).unwrap();
        assert_eq!(times as u64, report.times);
        for (first, count) in [(0, 900), (1, 1), (4_100, 3_000), (times - 5, 5), (times, 0)] {
            let masked = all.masked();
            let mut own =
                RecleanedRows::new(source(), &options, &removals, masked, &backend).unwrap();
            assert_eq!(own.header().encoding, all.header().encoding);
            assert_eq!(own.start_s(), all.start_s());
            assert_eq!(own.skip(first as u64).unwrap(), first as u64);
            let mut rows = vec![0; count.max(9) * row_bytes];
            let read = own.read(&mut rows).unwrap();
            assert_eq!(read, count.max(9).min(times - first));
            assert!(rows[..read * row_bytes] == bytes[first * row_bytes..][..read * row_bytes]);
        }
    }
}

#[test]
fn a_record_beyond_its_limit_is_none() {
    let bytes = rows(2, Encoding::U8, |_| 1.0, |time, _| radar(time));
    let taken = |most_bytes: usize| {
        let first = &bytes[..4096 * CHANNELS];
        let (masked, backend) = ([false; CHANNELS], Backend::best(1));
        let mut own =
            Mitigator::new(first, Encoding::U8, TSAMP_S, &masked, ALL, 0.5, &backend).unwrap();
        own.record(most_bytes);
        let length = own.block_rows() * CHANNELS;
        own.push(bytes.chunks(length).map(<[u8]>::to_vec).collect()).unwrap();
        own.flush().unwrap();
        own.take_removals()
    };
    assert!(taken(1 << 20).is_some());
    assert!(taken(10_000).is_none());
}

#[test]
fn few_channels_and_few_bits_are_left_alone() {
    let steps = |encoding, channels: usize| {
        let masked = vec![false; channels];
        let first = vec![0; 64 * channels];
        let own = Mitigator::new(&first, encoding, TSAMP_S, &masked, ALL, 0.5, &Backend::best(1));
        own.unwrap().steps()
    };
    assert_eq!(steps(Encoding::U8, 32), Steps::default());
    assert_eq!(steps(Encoding::U2, 128), Steps { iqrm: true, ..Steps::default() });
    assert_eq!(steps(Encoding::U4, 128), ALL);
}
