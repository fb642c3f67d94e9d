use super::*;
use crate::pulse::plan::Options;

/// Events of a series that is above the threshold nearly everywhere, with room for so many flagged blocks.
fn search(device: &Device, room: usize) -> Vec<Event> {
    let options = Options {
        dms: vec![0.0, 1.0, 2.0],
        tsamp_s: 1.0,
        max_width_s: 20.0,
        baseline_s: 1024.0,
        snr: 0.5,
        bound: Some((0, 4095)),
    };
    let plan = Plan::new(options).unwrap();
    let mut sizes = Sizes::new(&plan, device.properties());
    sizes.room = room;
    let mut engine = Engine::bind(sizes, 0.5, device, Threads::new(1)).unwrap();
    let times = 2500;
    let row = (0..3 * times as u64).map(|k| (k.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 52) as i32);
    let row: Vec<i32> = row.collect();
    let plane = crate::array::Plane::new(&row, 3, times, times).unwrap();
    let mut events = Vec::new();
    engine.run(Input::I32(plane), &mut events).unwrap();
    engine.end_at(&|_| times as u64);
    engine.flush(&mut events).unwrap();
    events.sort_unstable_by_key(|event| (event.dm, event.time));
    events
}

#[test]
fn flagged_blocks_beyond_the_room_are_searched_in_rounds() {
    let Some(device) = Device::all().into_iter().next() else { return };
    let whole = search(&device, 1000);
    assert!(whole.len() > 100, "{}", whole.len());
    for room in [1, 7, 50] {
        assert_eq!(search(&device, room), whole, "{room}");
    }
}
