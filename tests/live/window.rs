//! Behaviour of the window in the cases that break receivers: restarts, jumps, strays, late readers.

use sidereal::live::heaps::{Heaps, ItemMap};
use sidereal::live::packet::{Part, Shape, Values};
use sidereal::live::spead::{Flavour, Item, Packetizer, Repeat};
use sidereal::live::window::{Chunk, Counts, Lost, Options, Ready, Stretch, Window};

/// Two sources, blocks of 8 bytes in packets of 4 or 8, a counter of 16 bits in steps of 2.
const SHAPE: Shape = Shape {
    sources: 2,
    block_bytes: 8,
    granule_bytes: 4,
    step: 2,
    period: Some(1 << 16),
    zero_byte: 0,
};

/// Three chunks of four blocks.
fn options() -> Options {
    Options { jump: 40, ..Options::new(4, 3) }
}

fn window(buffers: usize) -> Window {
    Window::with_buffers(SHAPE, options(), buffers).unwrap()
}

fn part(source: usize, counter: u64) -> Part<'static> {
    Part { source, counter, offset: 0, payload: &[7; 8] }
}

/// Places blocks of both sources.
fn both(window: &mut Window, blocks: impl IntoIterator<Item = u64>) {
    for block in blocks {
        (0..2).for_each(|source| window.place(&part(source, 2 * block % (1 << 16))));
    }
}

/// Takes everything that is ready: chunks as their stream, first counter and blocks.
fn chunks(window: &mut Window) -> Vec<Stretch> {
    let mut all = Vec::new();
    while let Some(ready) = window.take() {
        match ready {
            Ready::Chunk(chunk) => {
                let blocks = chunk.blocks as u64;
                all.push(Stretch { stream: chunk.stream, first: chunk.first, blocks });
                window.recycle(chunk).unwrap();
            }
            other => panic!("{other:?}"),
        }
    }
    all
}

fn stretch(stream: u64, first: u64, blocks: u64) -> Stretch {
    Stretch { stream, first, blocks }
}

#[test]
fn whole_chunks_leave_at_once() {
    let mut window = window(4);
    both(&mut window, 100..103);
    assert!(window.take().is_none());
    both(&mut window, 103..105);
    assert_eq!(chunks(&mut window), [stretch(0, 200, 4)]);
    both(&mut window, 100..102);
    let duplicates = Counts { received: 5, duplicate: 2, ..Counts::default() };
    assert_eq!(window.counts(), [duplicates; 2]);
    window.finish();
    assert_eq!(chunks(&mut window), [stretch(0, 208, 1)]);
    assert_eq!(window.counts(), [duplicates; 2], "nothing is missing after the last block");
}

#[test]
fn the_counter_continues_over_its_wrap() {
    let mut window = window(4);
    both(&mut window, (1 << 15) - 2..(1 << 15) + 6);
    assert_eq!(chunks(&mut window), [stretch(0, 65_532, 4), stretch(0, 65_540, 4)]);
    assert_eq!((window.totals().streams, window.counts()[0].received), (1, 8));
}

#[test]
fn a_sender_that_restarts_begins_a_stream() {
    let mut window = window(4);
    both(&mut window, 5000..5008);
    chunks(&mut window);
    both(&mut window, 10..30);
    // Twelve blocks confirm the restart: the thirteenth begins the stream.
    assert_eq!(window.totals().streams, 2);
    assert_eq!(chunks(&mut window), [stretch(1, 44, 4), stretch(1, 52, 4)]);
    let counts = window.counts()[0];
    assert_eq!((counts.late, counts.received), (12, 8 + 8));
}

#[test]
fn one_source_that_falls_back_loses_its_own_packets() {
    let mut window = window(4);
    both(&mut window, 5000..5004);
    for block in 0..40 {
        window.place(&part(0, 2 * (5004 + block)));
        window.place(&part(1, 2 * block));
        chunks(&mut window);
    }
    assert_eq!((window.totals().streams, window.counts()[0].received), (1, 44));
    assert_eq!(window.counts()[1].late, 40);
    window.finish();
    let missing = window.counts().iter().map(|counts| counts.missing);
    assert_eq!(missing.collect::<Vec<_>>(), [0, 40]);
}

#[test]
fn strays_do_not_keep_a_restart_from_being_seen() {
    let mut window = window(4);
    both(&mut window, 5000..5008);
    chunks(&mut window);
    for block in 0..60 {
        both(&mut window, [10 + block]);
        // Beside each two packets, one from anywhere.
        window.place(&part(0, 20_000 + block * 7919 % 30_000 / 2 * 2));
        let taken = chunks(&mut window);
        assert!(taken.iter().all(|chunk| chunk.stream == 1 && chunk.first < 200));
    }
    assert_eq!((window.totals().streams, window.counts()[1].received), (2, 8 + 48));
    assert_eq!((window.counts()[1].late, window.counts()[1].missing), (12, 0));
}

#[test]
fn a_long_silence_is_a_gap_of_the_same_stream() {
    let mut window = window(4);
    both(&mut window, 0..4);
    both(&mut window, 30..60);
    assert_eq!((window.totals().streams, window.totals().jumps), (1, 1));
    assert_eq!(window.counts()[0].ahead, 12);
    let first = window.take();
    assert!(matches!(&first, Some(Ready::Chunk(chunk)) if chunk.first == 0 && chunk.blocks == 4));
    match window.take() {
        Some(Ready::Gap(gap)) => assert_eq!(gap, stretch(0, 8, 36)),
        other => panic!("{other:?}"),
    }
    match window.take() {
        Some(Ready::Chunk(chunk)) => {
            assert_eq!(
                (chunk.first, chunk.lost()),
                (
                    80,
                    &[
                        Lost { source: 0, first: 80, blocks: 2 },
                        Lost { source: 1, first: 80, blocks: 2 }
                    ][..]
                )
            );
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(window.counts()[0].missing, 36 + 2);
}

#[test]
fn a_jump_beyond_the_limit_begins_a_stream() {
    let mut window = window(4);
    both(&mut window, 0..4);
    both(&mut window, 200..217);
    assert_eq!((window.totals().streams, window.totals().jumps), (2, 0));
    assert_eq!(chunks(&mut window), [stretch(0, 0, 4), stretch(1, 424, 4)]);
}

#[test]
fn packets_are_counted_by_reason() {
    let mut window = window(4);
    let of = |offset, payload: &'static [u8]| Part { offset, payload, ..part(1, 20) };
    window.place(&part(0, 20));
    for (offset, payload) in
        [(0, &[1; 3][..]), (2, &[1; 4]), (4, &[1; 8]), (8, &[]), (usize::MAX, &[1; 4])]
    {
        window.place(&of(offset, payload));
    }
    window.place(&of(4, &[1; 4]));
    window.place(&of(4, &[2; 4]));
    window.place(&of(0, &[2; 8]));
    window.place(&Part { counter: 1 << 16, ..of(0, &[1; 8]) });
    window.place(&Part { counter: 21, ..of(0, &[1; 8]) });
    window.place(&Part { counter: 10, ..of(0, &[1; 8]) });
    window.place(&Part { counter: 10_000, ..of(0, &[1; 8]) });
    window.place(&Part { source: 2, ..of(0, &[1; 8]) });
    window.finish();
    let expected = Counts {
        received: 1,
        late: 1,
        ahead: 1,
        duplicate: 1,
        wrong_length: 6,
        invalid: 2,
        overrun: 0,
        missing: 1,
        incomplete: 1,
    };
    assert_eq!(window.counts()[1], expected);
    assert_eq!(window.totals().wrong_source, 1);
    match window.take() {
        Some(Ready::Chunk(chunk)) => {
            assert_eq!((chunk.blocks, &chunk.bytes()[..16]), (1, &[[7; 8], [0; 8]].concat()[..]));
            assert!(chunk.is_present(0, 0) && !chunk.is_present(0, 1));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn without_free_buffers_whole_chunks_are_dropped_and_named() {
    let mut window = window(4);
    both(&mut window, 0..40);
    window.finish();
    let (mut held, mut dropped) = (Vec::new(), Vec::new());
    while let Some(ready) = window.take() {
        match ready {
            Ready::Chunk(chunk) => held.push(chunk),
            Ready::Overrun(stretch) => dropped.push(stretch),
            Ready::Gap(gap) => panic!("{gap:?}: packets came"),
        }
    }
    assert_eq!((held.len(), &dropped[..]), (4, &[stretch(0, 32, 24)][..]));
    assert_eq!(window.totals().overrun_blocks, 24);
    let counts = Counts { received: 16, overrun: 24, ..Counts::default() };
    assert_eq!(window.counts(), [counts; 2]);
    held.into_iter().for_each(|chunk| window.recycle(chunk).unwrap());
    both(&mut window, 100..104);
    assert_eq!(chunks(&mut window), [stretch(1, 200, 4)]);
}

#[test]
fn chunks_are_dropped_until_half_of_them_are_free() {
    // Three chunks of 4 blocks in flight, and 5 that the reader may hold.
    let mut window = window(8);
    both(&mut window, 0..36);
    let mut held: Vec<Chunk> = std::iter::from_fn(|| match window.take() {
        Some(Ready::Chunk(chunk)) => Some(chunk),
        _ => None,
    })
    .collect();
    // All have left the window; the ninth is an overrun.
    assert_eq!(held.len(), 8);
    let mut next = 36;
    let mut received = |window: &mut Window, free: usize| {
        held.drain(..free).for_each(|chunk| window.recycle(chunk).unwrap());
        let before = window.counts()[0].received;
        both(window, next..next + 4);
        next += 4;
        window.counts()[0].received - before
    };
    // After six, the reader holds 2 of the 5; then 6 chunks are free, and after these none again.
    let free = [1, 4, 1, 0, 0, 0, 0, 0, 0, 1];
    for (free, blocks) in free.into_iter().zip([0, 0, 4, 4, 4, 4, 4, 4, 0, 0]) {
        assert_eq!(received(&mut window, free), blocks, "after {free} more");
    }
}

#[test]
fn a_reader_that_never_comes_costs_no_memory() {
    let mut window = window(4);
    for start in 0..200 {
        both(&mut window, start * 150..start * 150 + 30);
    }
    window.finish();
    let mut taken = 0;
    while window.take().is_some() {
        taken += 1;
    }
    assert!(taken <= 4 * 2 + 16, "{taken} entries");
    assert!(window.totals().unlisted_blocks > 0 && window.totals().overrun_blocks > 0);
}

#[test]
fn heaps_that_lose_their_first_packet_are_lost_and_counted() {
    let map =
        ItemMap { granule_bytes: 8, ..ItemMap::meerkat_f_engine(2, Values::from(0, 1), 4, 2, 128) };
    for repeat in [Repeat::First, Repeat::All] {
        let mut heaps = Heaps::new(map.clone()).unwrap();
        let shape = sidereal::live::packet::Format::shape(&heaps);
        let mut window = Window::with_buffers(shape, Options::new(4, 2), 3).unwrap();
        let mut divider = Packetizer::new(Flavour::BITS_48, 16, repeat).unwrap();
        for heap in 0..16_u64 {
            let items = [
                Item::immediate(0x1600, heap / 2 * 256),
                Item::immediate(0x4101, heap % 2),
                Item::at(0x4300, 0),
            ];
            let mut number = 0;
            let mut send = |packet: &[u8]| {
                // The first packet of heap 4, the second of heap 9.
                if (heap, number) != (4, 0) && (heap, number) != (9, 1) {
                    window.receive(&mut heaps, packet);
                }
                number += 1;
                Ok(())
            };
            divider.send(heap, &items, &[3; 32], &mut send).unwrap();
        }
        let mut lost = Vec::new();
        while let Some(Ready::Chunk(chunk)) = window.take() {
            lost.extend_from_slice(chunk.lost());
            window.recycle(chunk).unwrap();
        }
        window.finish();
        while let Some(Ready::Chunk(chunk)) = window.take() {
            lost.extend_from_slice(chunk.lost());
        }
        let expected =
            [Lost { source: 0, first: 512, blocks: 1 }, Lost { source: 1, first: 1024, blocks: 1 }];
        assert_eq!(lost, expected);
        let is_first = repeat == Repeat::First;
        assert_eq!(window.totals().unplaced, u64::from(is_first));
        let counts = window.counts();
        assert_eq!(counts.iter().map(|c| c.received).sum::<u64>(), 30 - u64::from(is_first));
        let incomplete = counts.iter().map(|c| (c.missing, c.incomplete));
        assert_eq!(incomplete.collect::<Vec<_>>(), [(1, u64::from(!is_first)), (1, 1)]);
    }
}

#[test]
fn impossible_sizes_are_named() {
    let of = |options: Options| Window::with_buffers(SHAPE, options, 4).map(drop);
    for (options, name) in [
        (Options { blocks: 0, ..options() }, "blocks"),
        (Options { chunks: 1, ..options() }, "chunks"),
        (Options { confirm: 0, ..options() }, "confirm"),
        (Options { jump: 1 << 14, ..options() }, "jump"),
        (Options::new(1 << 14, 2), "jump"),
    ] {
        let error = of(options).unwrap_err().to_string();
        assert!(error.contains(name), "{error}");
    }
    assert!(Window::with_buffers(SHAPE, options(), 3).is_err(), "no buffer beyond the window's");
    let chunk = Chunk::new(&SHAPE, &options(), vec![0; 64].into()).unwrap();
    assert!(window(4).recycle(chunk).is_err(), "a window has all of its chunks");
    assert!(Chunk::new(&SHAPE, &options(), vec![0; 63].into()).is_err());
}
