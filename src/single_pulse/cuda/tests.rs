use super::*;
use crate::backend::cuda::testing::device;
use crate::single_pulse::plan::Options;

const DMS: usize = 3;

/// Returns noise around 2048 with pulses.
fn series(times: usize) -> Vec<i32> {
    let sample = |k: usize| {
        let mixed = (k as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let parts = (0..4).map(|i| (mixed >> (16 * i) & 0x3ff) as i32);
        let pulse = if k % 1777 < 9 { 700 } else { 0 };
        parts.sum::<i32>() + pulse
    };
    (0..times).map(sample).collect()
}

/// Returns the events of a series, searched with sizes changed by `change`.
fn search(device: &Device, snr: f64, times: usize, change: &dyn Fn(&mut Sizes)) -> Vec<Event> {
    let options = Options {
        dms: (0..DMS).map(|dm| dm as f64).collect(),
        tsamp_s: 1.0,
        max_width_s: 20.0,
        baseline_s: 1024.0,
        snr,
        bound: Some((0, 4095)),
    };
    let plan = Plan::new(options).unwrap();
    let mut sizes = Sizes::new(&plan, device.properties());
    change(&mut sizes);
    let mut engine = Engine::bind(sizes, snr, device, Threads::new(1)).unwrap();
    let rows = series(DMS * times);
    let plane = crate::view::Plane::new(&rows, DMS, times, times).unwrap();
    let mut events = Vec::new();
    engine.end_at(&|dm| (times - 300 * dm) as u64);
    engine.run(Input::I32(plane), &mut events).unwrap();
    engine.flush(&mut events).unwrap();
    events.sort_unstable_by_key(|event| (event.dm, event.time));
    events
}

#[test]
fn flagged_blocks_beyond_the_room_are_searched_in_rounds() {
    let Some(device) = device() else { return };
    let whole = search(&device, 0.5, 2500, &|sizes| sizes.room = 1000);
    assert!(whole.len() > 100, "{}", whole.len());
    for room in [1, 7, 50] {
        assert_eq!(search(&device, 0.5, 2500, &|sizes| sizes.room = room), whole, "{room}");
    }
}

#[test]
fn tiles_of_several_windows_find_what_those_of_one_find() {
    let Some(device) = device() else { return };
    let times = 13 * 1024 + 77;
    let single = |sizes: &mut Sizes| sizes.multiprocessors = 1000;
    let whole = search(&device, 3.0, times, &single);
    assert!(whole.len() > 10, "{}", whole.len());
    let shared = |sizes: &mut Sizes| {
        sizes.multiprocessors = 1;
        assert_eq!(sizes.tiling(13).windows, 8, "short windows share a tile");
        assert!(sizes.group(DMS * 13) > 1, "short windows share a warp");
    };
    assert_eq!(search(&device, 3.0, times, &shared), whole);
}
