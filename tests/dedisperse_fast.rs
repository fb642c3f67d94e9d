//! Dedispersion of bytes on a GPU with small differences between the shifts of adjacent trials and channels: plans
//! that fill a tile of trials, of times and of channels, and leave a remainder of each.

#[path = "common/cuda.rs"]
mod cuda;
#[path = "common/random.rs"]
mod random;

use random::Random;
use sidereal::backend::Backend;
use sidereal::dedisperse::{Dedisperser, Options, Output, Plan};
use sidereal::sample::{Encoding, Samples};
use sidereal::units::{Band, DM_CONSTANT, dispersion_delay_s};
use sidereal::view::PlaneMut;

const DIRTY: i32 = -0x5a5a_5a5a;

/// `channels` from 1550 MHz down to 1250, and trials whose longest delays grow by `step` samples each.
fn options(channels: usize, (dms, step): (usize, f64), encoding: Encoding) -> Options {
    let width = 300.0 / channels as f64;
    let band = Band::uniform(1550.0, -width, channels).unwrap();
    let dms: Vec<f64> = (0..dms).map(|i| 20.0 + 0.1 * i as f64).collect();
    let delay = dispersion_delay_s(0.1, band.lowest_hz(), band.highest_hz(), DM_CONSTANT);
    Options {
        band,
        tsamp_s: delay / step,
        dms,
        downsample: 1,
        encoding,
        range: None,
        masked: Vec::new(),
        dm_constant: DM_CONSTANT,
    }
}

fn bytes(len: usize, brightest: bool) -> Vec<u8> {
    let mut random = Random::new(len as u64);
    (0..len).map(|_| if brightest { 0xff } else { (random.bits() >> 13) as u8 }).collect()
}

/// All sums of a stream read in gulps.
fn sums(plan: &Plan, backend: &Backend, bytes: &[u8], gulp: usize) -> Vec<Vec<i32>> {
    let times = bytes.len() * 8 / (plan.channels() * plan.encoding().bits());
    let samples = Samples::new(bytes, plan.encoding(), times, plan.channels()).unwrap();
    let mut dedisperser = Dedisperser::new(plan.clone(), backend).unwrap();
    let dms = plan.dms().len();
    let mut rows = vec![Vec::new(); dms];
    let mut taken = 0;
    loop {
        let mut buffer = vec![DIRTY; dms * gulp];
        let output = Output::I32(PlaneMut::new(&mut buffer, dms, gulp).unwrap());
        let done = if taken < times {
            dedisperser.run(samples.slice(taken, gulp.min(times - taken)), output).unwrap()
        } else {
            dedisperser.flush(output).unwrap()
        };
        for (row, found) in rows.iter_mut().zip(buffer.chunks(gulp)) {
            row.extend(&found[..done.produced]);
            assert!(found[done.produced..].iter().all(|sum| *sum == DIRTY), "past `produced`");
        }
        if taken >= times && done.produced == 0 {
            return rows;
        }
        taken += done.consumed;
    }
}

fn check(options: &Options, times: usize, gulp: usize, brightest: bool) {
    let plan = Plan::new(options.clone()).unwrap();
    let bytes = bytes(times * plan.channels() * plan.encoding().bits() / 8, brightest);
    let expected = sums(&plan, &Backend::Reference, &bytes, times);
    for (backend, _) in cuda::devices(2) {
        let found = sums(&plan, &backend, &bytes, gulp);
        assert!(found == expected, "{options:?}");
    }
}

#[test]
fn fixed_subset_dedisperse_fast() {
    check(&options(72, (70, 0.2), Encoding::U8), 700, 700, false);
    check(&options(136, (67, 0.6), Encoding::U8), 900, 431, true);
}

#[test]
fn windows_of_all_widths() {
    for (channels, step) in [(64, 0.1), (160, 2.0), (64, 1.5), (48, 2.0), (40, 3.0)] {
        check(&options(channels, (66, step), Encoding::U8), 1100, 1100, false);
    }
}

#[test]
fn narrow_and_signed_samples() {
    check(&options(96, (66, 0.5), Encoding::U4), 800, 800, false);
    check(&options(96, (66, 0.5), Encoding::I8), 800, 800, false);
    check(&options(96, (66, 0.5), Encoding::U1), 800, 800, true);
}

#[test]
fn masked_channels_trials_in_any_order_and_coarse_steps() {
    let mut mixed = options(88, (150, 0.7), Encoding::U8);
    mixed.masked = (0..88).map(|c| c % 5 == 2 || c > 80).collect();
    mixed.dms.reverse();
    mixed.dms.swap(3, 90);
    // A few trials so far apart that no window holds them.
    mixed.dms.extend([60.0, 90.0, 130.0]);
    check(&mixed, 1300, 1300, false);
    // Rising channels.
    let mut rising = options(64, (66, 0.7), Encoding::U8);
    rising.band = Band::uniform(1250.0, 4.0, 64).unwrap();
    check(&rising, 900, 500, false);
}
