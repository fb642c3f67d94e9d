use super::shape::MANY;
use super::*;
use crate::sample::Encoding;
use crate::units::{Band, DM_CONSTANT};

/// Plans `dms` trials from `first` on in steps of `step`, over 300 MHz around 1400 MHz.
fn plan(channels: usize, (first, step, dms): (f64, f64, usize)) -> Plan {
    let width = 300.0 / channels as f64;
    Plan::new(super::super::super::plan::Options {
        band: Band::uniform(1550.0 - 0.5 * width, -width, channels).unwrap(),
        tsamp_s: 64e-6,
        dms: (0..dms).map(|i| first + i as f64 * step).collect(),
        downsample: 1,
        encoding: Encoding::U8,
        range: None,
        masked: Vec::new(),
        dm_constant: DM_CONSTANT,
    })
    .unwrap()
}

#[test]
fn wide_windows_take_other_shapes() {
    let shape = |channels, range| {
        let plan = plan(channels, range);
        candidates(&plan, &sorted(&plan))[0]
    };
    assert_eq!(shape(1024, (0.0, 0.1, 1500)), Shape::ALL[0]);
    assert_eq!(shape(1024, (150.0, 0.2, 750)), Shape::ALL[1]);
    assert_eq!(shape(1024, (300.0, 0.25, 800)), Shape::ALL[3]);
    assert_eq!(shape(512, (300.0, 0.25, 800)), Shape::ALL[5]);
}

#[test]
fn only_shapes_that_fit_the_tiles_are_candidates() {
    let found = |channels, range| {
        let plan = plan(channels, range);
        candidates(&plan, &sorted(&plan))
    };
    let narrow = found(1024, (0.0, 0.1, 1500));
    assert_eq!(narrow, Shape::ALL);
    let wide = found(1024, (150.0, 0.2, 750));
    assert!(wide.len() > 1 && wide.iter().all(|shape| shape.times == 384), "{wide:?}");
    // Only halves of a tile fit.
    let coarse = found(1024, (300.0, 0.4, 800));
    assert!(!coarse.is_empty() && coarse.iter().all(|shape| shape.times == 384), "{coarse:?}");
    assert_eq!(found(1024, (300.0, 50.0, 64)), []);
    let mut choices: Vec<_> = Shape::ALL.iter().map(Shape::choice).collect();
    choices.dedup_by(|a, b| a.values == b.values || a.name == b.name);
    assert_eq!(choices.len(), Shape::ALL.len());
}

#[test]
fn every_trial_is_in_a_tile_or_left() {
    let threads = Threads::new(2);
    for (range, some_left) in [((0.0, 0.1, 150), false), ((0.0, 3.0, 150), true)] {
        let plan = plan(1024, range);
        let tables = tables(&plan, &MANY, &sorted(&plan), &threads);
        let in_tiles = tables.trials.iter().filter(|trial| trial[0] >= 0);
        let mut found: Vec<usize> = in_tiles.map(|trial| trial[0] as usize).collect();
        assert_eq!(!tables.left.is_empty(), some_left);
        found.extend(&tables.left);
        found.sort_unstable();
        assert_eq!(found, (0..150).collect::<Vec<_>>());
        let words = MANY.head_bytes() / 4 + 100;
        assert_eq!(tables.entries.len(), tables.trials.len() / TRIALS * 32 * words);
    }
}

#[test]
fn shared_memory_fits_a_block() {
    assert!(Shape::ALL.iter().all(|shape| shape.shared_bytes() <= 232_448));
    assert_eq!(Shape::ALL[0].flush(255), 8);
    assert_eq!(Shape::ALL[0].flush(15), 128);
}
