//! The simulator against the definitions of noise, delay and S/N.

use sidereal::backend::threads::Threads;
use sidereal::io::FilterbankSource;
use sidereal::sample::{Encoding, Samples};
use sidereal::simulate::TELESCOPES;
use sidereal::simulate::burst::{Bandpass, BroadInterference, NarrowInterference};
use sidereal::simulate::burst::{Burst, Options, Pulsar, Simulator};
use sidereal::units::{Band, DM_CONSTANT, dispersion_delay_s};

fn band(channels: usize) -> Band {
    Band::uniform(1500.0, -256.0 / channels as f64, channels).unwrap()
}

fn all_rows(mut simulator: Simulator) -> Vec<u8> {
    let header = simulator.header().clone();
    let mut rows = vec![0xa5; header.times.unwrap() as usize * header.row_bytes()];
    assert_eq!(simulator.read(&mut rows).unwrap() as u64, header.times.unwrap());
    assert_eq!(simulator.read(&mut vec![0; header.row_bytes()]).unwrap(), 0);
    rows
}

/// Dedisperses by the definition: shifts of whole samples, ties to even.
fn dedisperse(samples: Samples<'_>, band: &Band, tsamp_s: f64, dm: f64) -> Vec<f64> {
    let delay = |f: &f64| dispersion_delay_s(dm, *f, band.highest_hz(), DM_CONSTANT);
    let shift = |f: &f64| (delay(f) / tsamp_s).round_ties_even() as usize;
    let shifts: Vec<usize> = band.centres_hz().iter().map(shift).collect();
    let times = samples.times() - shifts.iter().max().unwrap();
    let sum = |t: usize| -> f64 {
        shifts.iter().enumerate().map(|(c, shift)| samples.value(t + shift, c)).sum()
    };
    (0..times).map(sum).collect()
}

#[test]
fn noise_has_the_documented_mean_and_sigma_at_every_depth() {
    let expected = [
        (Encoding::U1, 0.5, 0.5),
        (Encoding::U2, 1.5, 0.9434),
        (Encoding::U4, 7.5, 2.966),
        (Encoding::U8, 128.0, 12.003),
        (Encoding::I8, 0.0, 12.003),
        (Encoding::U16, 8192.0, 512.0),
        (Encoding::I16, 0.0, 512.0),
        (Encoding::F32, 100.0, 10.0),
    ];
    for (encoding, mean, sigma) in expected {
        let options = Options { encoding, seed: 3, ..Options::new(band(256), 1e-3, 1000) };
        let rows = all_rows(Simulator::new(options).unwrap());
        let samples = Samples::new(&rows, encoding, 1000, 256).unwrap();
        let (mut sum, mut square) = (0.0, 0.0);
        for (t, c) in (0..1000).flat_map(|t| (0..256).map(move |c| (t, c))) {
            let value = samples.value(t, c);
            sum += value;
            square += value * value;
        }
        let found = sum / 256e3;
        let spread = (square / 256e3 - found * found).sqrt();
        assert!((found - mean).abs() < 0.01 * sigma, "{encoding:?} mean {found}");
        assert!((spread / sigma - 1.0).abs() < 0.01, "{encoding:?} sigma {spread}");
    }
}

#[test]
fn noise_is_white_over_time_and_channel() {
    let options =
        Options { encoding: Encoding::F32, seed: 4, ..Options::new(band(64), 1e-3, 4000) };
    let rows = all_rows(Simulator::new(options).unwrap());
    let samples = Samples::new(&rows, Encoding::F32, 4000, 64).unwrap();
    let z = |t: usize, c: usize| (samples.value(t, c) - 100.0) / 10.0;
    for (dt, dc) in [(0, 1), (1, 0), (1, 1), (0, 4), (16, 0), (0, 3)] {
        let pairs = (0..4000 - dt).flat_map(|t| (0..64 - dc).map(move |c| (t, c)));
        let (count, sum) =
            pairs.fold((0.0, 0.0), |(n, s), (t, c)| (n + 1.0, s + z(t, c) * z(t + dt, c + dc)));
        let correlation: f64 = sum / count;
        assert!(correlation.abs() < 5.0 / f64::sqrt(count), "{dt} {dc} {correlation}");
    }
}

#[test]
fn the_same_bytes_however_they_are_read() {
    let options = Options {
        encoding: Encoding::U2,
        seed: 11,
        bursts: vec![Burst { scatter_s: 1e-3, ..Burst::new(40.0, 0.2, 2e-3, 12.0) }],
        pulsars: vec![Pulsar {
            period_s: 0.033,
            dm: 56.0,
            width_s: 1e-3,
            snr: 5.0,
            time_s: 0.01,
            scatter_s: 0.0,
            spectral_index: -1.5,
        }],
        narrow: Some(NarrowInterference { channels: 3, strength: 2.0 }),
        broad: Some(BroadInterference { rate_hz: 5.0, snr: 10.0, width_s: 2e-3 }),
        bandpass: Bandpass::Rippled,
        ..Options::new(band(64), 1e-3, 700)
    };
    let whole = all_rows(Simulator::new(options.clone()).unwrap());
    let threaded = Simulator::new(options.clone()).unwrap().with_threads(Threads::new(3));
    assert_eq!(all_rows(threaded), whole);
    let mut pieces = Simulator::new(options).unwrap();
    let row_bytes = pieces.header().row_bytes();
    let mut place = 0;
    for times in [1, 7, 64, 1, 200, 3, 400, 100] {
        let mut rows = vec![0; times * row_bytes];
        let got = pieces.read(&mut rows).unwrap();
        assert_eq!(rows[..got * row_bytes], whole[place..][..got * row_bytes]);
        place += got * row_bytes;
        let skipped = pieces.skip(5).unwrap() as usize;
        place += skipped * row_bytes;
    }
    assert_eq!(place, whole.len());
}

#[test]
fn a_year_of_data_needs_no_memory_and_no_time_to_skip() {
    let times = 365 * 86400 * 1000;
    let options = Options::new(band(64), 1e-3, times);
    let burst = Burst::new(50.0, times as f64 * 1e-3 - 1.0, 5e-3, 80.0);
    let options = Options { bursts: vec![burst], ..options };
    let mut simulator = Simulator::new(options).unwrap();
    assert_eq!(simulator.skip(times - 1100).unwrap(), times - 1100);
    let mut rows = vec![0; 2000 * 64];
    assert_eq!(simulator.read(&mut rows).unwrap(), 1100);
    let samples = Samples::u8(&rows[..1100 * 64], 1100, 64).unwrap();
    let series = dedisperse(samples, &band(64), 1e-3, 50.0);
    let peak = (0..series.len()).max_by(|a, b| series[*a].total_cmp(&series[*b])).unwrap();
    assert!((95..106).contains(&peak), "{peak}");
}

#[test]
fn a_pulse_arrives_at_each_channel_after_its_own_delay() {
    for step in [-4.0, 4.0] {
        let first = if step < 0.0 { 1500.0 } else { 1248.0 };
        let band = Band::uniform(first, step, 64).unwrap();
        let burst = Burst::new(300.0, 0.3, 8e-3, 3e4);
        let encoding = Encoding::F32;
        let options =
            Options { encoding, bursts: vec![burst], ..Options::new(band.clone(), 1e-3, 1500) };
        let rows = all_rows(Simulator::new(options).unwrap());
        let samples = Samples::new(&rows, encoding, 1500, 64).unwrap();
        for (c, f) in band.centres_hz().iter().enumerate() {
            let arrival = 0.3 + dispersion_delay_s(300.0, *f, band.highest_hz(), DM_CONSTANT);
            let middle = (arrival / 1e-3) as usize;
            let (mut area, mut first) = (0.0, 0.0);
            for t in middle - 25..middle + 25 {
                let height = samples.value(t, c) - 100.0;
                area += height;
                first += height * (t as f64 + 0.5) * 1e-3;
            }
            assert!((first / area - arrival).abs() < 1e-4, "channel {c}: {}", first / area);
        }
    }
}

fn mean_and_sigma(values: &[f64]) -> (f64, f64) {
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    let variance = values.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / values.len() as f64;
    (mean, variance.sqrt())
}

/// Mean S/N, over that asked for, at the boxcar that the truth names.
fn recovered(options: &Options, injections: u64) -> f64 {
    let mut sum = 0.0;
    for seed in 0..injections {
        let simulator = Simulator::new(Options { seed, ..options.clone() }).unwrap();
        let truth = simulator.truth().bursts[0];
        let rows = all_rows(simulator);
        let (times, channels) = (options.times as usize, options.band.channels());
        let samples = Samples::new(&rows, options.encoding, times, channels).unwrap();
        let series = dedisperse(samples, &options.band, options.tsamp_s, truth.burst.dm);
        let (mean, sigma) = mean_and_sigma(&[&series[..400], &series[700..]].concat());
        let first = (truth.boxcar_start_s / options.tsamp_s).round() as usize;
        let width = (truth.boxcar_s / options.tsamp_s).round() as usize;
        let height: f64 = series[first..first + width].iter().map(|x| x - mean).sum();
        sum += height / (sigma * (width as f64).sqrt()) / truth.burst.snr;
    }
    sum / injections as f64
}

#[test]
fn the_wanted_snr_is_found_in_the_dedispersed_series() {
    let plain = Burst::new(120.0, 0.5, 3e-3, 25.0);
    let bursts = [
        plain,
        Burst { width_s: 3e-4, snr: 15.0, ..plain },
        Burst { scatter_s: 8e-3, spectral_index: -3.0, ..plain },
        Burst { dm: 600.0, width_s: 1e-3, ..plain },
    ];
    for (burst, encoding) in
        bursts.into_iter().zip([Encoding::U8, Encoding::U2, Encoding::U1, Encoding::F32])
    {
        let options = Options {
            encoding,
            bursts: vec![burst],
            bandpass: Bandpass::Rippled,
            ..Options::new(band(256), 1e-3, 2400)
        };
        let ratio = recovered(&options, 50);
        assert!((ratio - 1.0).abs() < 0.03, "{encoding:?} {burst:?}: {ratio}");
    }
}

#[test]
fn a_pulsar_is_there_before_and_after_its_named_pulse() {
    let pulsar = Pulsar {
        period_s: 0.1,
        dm: 20.0,
        width_s: 4e-3,
        snr: 60.0,
        time_s: 0.55,
        scatter_s: 0.0,
        spectral_index: 0.0,
    };
    let options = Options { pulsars: vec![pulsar], ..Options::new(band(64), 1e-3, 1200) };
    let rows = all_rows(Simulator::new(options).unwrap());
    let samples = Samples::u8(&rows, 1200, 64).unwrap();
    let series = dedisperse(samples, &band(64), 1e-3, 20.0);
    for pulse in 0..11 {
        let middle = 50 + 100 * pulse;
        let on: f64 = series[middle - 2..middle + 2].iter().sum();
        let off: f64 = series[middle + 40..middle + 44].iter().sum();
        assert!(on > off * 1.03, "{pulse}: {on} {off}");
    }
}

#[test]
fn every_telescope_of_the_table_can_be_simulated() {
    for telescope in &TELESCOPES {
        let band = telescope.band().unwrap();
        let burst = Burst::new(200.0, 0.1, 5e-3, 15.0);
        let options = Options::new(band, telescope.tsamp_s(), 10);
        let options = Options { bursts: vec![burst], ..options };
        let rows = all_rows(Simulator::new(options).unwrap());
        assert_eq!(rows.len(), 10 * telescope.channels, "{}", telescope.name);
    }
}
