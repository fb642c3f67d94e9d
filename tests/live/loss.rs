//! Random loss, delay, repetition and restarts: lost packets are those that are listed and counted.

use std::collections::{HashMap, HashSet};

use proptest::prelude::*;
use sidereal::live::packet::{Part, Shape};
use sidereal::live::window::{Counts, Options, Ready, Window};

use crate::random::Random;

/// Sizes of a case.
#[derive(Clone, Debug)]
struct Case {
    seed: u64,
    shape: Shape,
    options: Options,
    /// Packets per block.
    parts: usize,
    /// Bytes per packet, but the last of a block.
    part_bytes: usize,
    /// Blocks that each sender sends, and the counter that it starts at.
    senders: Vec<(u64, u64)>,
    lost: f64,
    repeated: f64,
}

prop_compose! {
    fn cases()(
        seed in any::<u64>(),
        sources in 1_usize..4,
        blocks in 1_usize..6,
        chunks in 2_usize..5,
        parts in 1_usize..4,
        part_granules in 1_usize..40,
        granule_bytes in 1_usize..4,
        tail in 0_usize..3,
        step in prop_oneof![Just(1_u64), Just(16), Just(4096)],
        bits in prop_oneof![Just(Some(24_u32)), Just(Some(38)), Just(Some(48)), Just(None)],
        before_wrap in 0_u64..60,
        lengths in prop::collection::vec(1_u64..80, 1..4),
        lost in prop_oneof![Just(0.0), 0.0..0.4],
        repeated in 0.0..0.3,
    ) -> Case {
        let part_bytes = part_granules * granule_bytes;
        let shape = Shape {
            sources,
            block_bytes: part_bytes * parts - tail.min(part_bytes - granule_bytes),
            granule_bytes,
            step,
            period: bits.map(|bits| 1 << bits),
            zero_byte: 0x80,
        };
        let options = Options::new(blocks, chunks);
        // The first sender starts shortly before the counter wraps, the next ones fall back or jump far ahead.
        let start = shape.period.unwrap_or(0).wrapping_sub(before_wrap * step);
        let period = shape.period.unwrap_or(1 << 63);
        let shifts = [0, period / 3, period / 7 * 5];
        let senders = lengths.iter().zip(shifts).map(|(length, shift)| {
            let counter = start.wrapping_add(shift);
            (*length, bits.map_or(counter, |bits| counter & ((1 << bits) - 1)))
        });
        Case { seed, shape, options, parts, part_bytes, senders: senders.collect(), lost, repeated }
    }
}

/// A packet on its way: the sender's block, source, and part of the block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Sent {
    block: u64,
    source: usize,
    part: usize,
}

impl Case {
    fn counter(&self, start: u64, block: u64) -> u64 {
        let counter = u128::from(start) + u128::from(block * self.shape.step);
        (counter % self.shape.period.map_or(1 << 64, u128::from)) as u64
    }

    /// Samples of a block: any bytes but those of zeros.
    fn payload(&self, sender: usize, block: u64, source: usize) -> Vec<u8> {
        let byte = |at: usize| ((sender * 31 + block as usize * 7 + source * 3 + at) % 127) as u8;
        (0..self.shape.block_bytes).map(byte).collect()
    }

    /// The packets of a sender that arrive, in their order: some lost, some twice, none later than the window allows.
    fn arrivals(&self, length: u64, random: &mut Random) -> Vec<Sent> {
        let mut keyed = Vec::new();
        let each = (self.shape.sources * self.parts) as f64;
        let delay = ((self.options.chunks - 1) * self.options.blocks) as f64 * each;
        let (mut sent, mut kept) = (0, 0);
        for block in 0..length {
            // A silence of more than a chunk, among delayed packets, may take the window out of reach.
            let must_arrive = block - kept > self.options.blocks as u64;
            for source in 0..self.shape.sources {
                for part in 0..self.parts {
                    let copies = u32::from(must_arrive || random.uniform() >= self.lost)
                        + u32::from(random.uniform() < self.repeated);
                    kept = if copies > 0 { block } else { kept };
                    for _ in 0..copies {
                        let key = f64::from(sent) + random.uniform() * (delay - 1.0).max(0.0);
                        keyed.push((key, Sent { block, source, part }));
                    }
                    sent += 1;
                }
            }
        }
        keyed.sort_by(|a, b| a.0.total_cmp(&b.0));
        keyed.into_iter().map(|(_, packet)| packet).collect()
    }
}

/// Output of a window by stream, counter and source: samples, or nothing for a lost block.
#[derive(Default)]
struct Left {
    cells: HashMap<(u64, u64, usize), Option<Vec<u8>>>,
    last: HashMap<u64, u64>,
    lost_blocks: u64,
}

impl Left {
    fn cell(&mut self, key: (u64, u64, usize), samples: Option<Vec<u8>>) {
        assert!(self.cells.insert(key, samples).is_none(), "{key:?} left the window twice");
    }

    /// Takes everything that is ready.
    fn take(&mut self, window: &mut Window, case: &Case) {
        let Shape { sources, block_bytes, step, zero_byte, .. } = case.shape;
        while let Some(ready) = window.take() {
            let (stream, first, blocks) = match &ready {
                Ready::Chunk(chunk) => (chunk.stream, chunk.first, chunk.blocks as u64),
                Ready::Gap(gap) => (gap.stream, gap.first, gap.blocks),
                Ready::Overrun(stretch) => panic!("{stretch:?}: buffers were free"),
            };
            assert!(blocks > 0);
            let expected = self.last.get(&stream).copied().unwrap_or(first);
            assert_eq!(first, expected, "chunks of a stream follow each other");
            self.last.insert(stream, first.wrapping_add(blocks * step));
            let counter = |block: u64| first.wrapping_add(block * step);
            let Ready::Chunk(chunk) = ready else {
                for block in 0..blocks {
                    (0..sources)
                        .for_each(|source| self.cell((stream, counter(block), source), None));
                }
                self.lost_blocks += blocks * sources as u64;
                continue;
            };
            let lost: HashSet<(u64, usize)> = chunk
                .lost()
                .iter()
                .flat_map(|lost| {
                    (0..lost.blocks).map(|b| (lost.first.wrapping_add(b * step), lost.source))
                })
                .collect();
            assert_eq!(lost.len() as u64, chunk.lost().iter().map(|lost| lost.blocks).sum::<u64>());
            self.lost_blocks += lost.len() as u64;
            for block in 0..chunk.blocks {
                for source in 0..sources {
                    let cell = block * sources + source;
                    let bytes = &chunk.bytes()[cell * block_bytes..][..block_bytes];
                    let counter = counter(block as u64);
                    let is_lost = lost.contains(&(counter, source));
                    assert_eq!(chunk.is_present(block, source), !is_lost);
                    assert!(!is_lost || bytes.iter().all(|byte| *byte == zero_byte));
                    self.cell((stream, counter, source), (!is_lost).then(|| bytes.to_vec()));
                }
            }
            window.recycle(chunk).unwrap();
        }
    }
}

/// Expected output of one stream, from the packets that arrived.
struct Stream {
    sender: usize,
    first: u64,
    counter: u64,
    arrived: HashSet<Sent>,
    end: u64,
}

fn run(case: &Case) {
    let mut window =
        Window::with_buffers(case.shape, case.options, case.options.chunks + 2).unwrap();
    let mut random = Random::new(case.seed);
    let (mut left, mut streams, mut delivered) = (Left::default(), Vec::<Stream>::new(), 0_u64);
    let (mut placed, mut aside) = (0_u64, 0_u64);
    for (sender, (length, start)) in case.senders.iter().enumerate() {
        for packet in case.arrivals(*length, &mut random) {
            let samples = case.payload(sender, packet.block, packet.source);
            let offset = packet.part * case.part_bytes;
            let end = (offset + case.part_bytes).min(samples.len());
            let counter = case.counter(*start, packet.block);
            window.place(&Part {
                source: packet.source,
                counter,
                offset,
                payload: &samples[offset..end],
            });
            delivered += 1;
            if window.totals().streams as usize > streams.len() {
                assert!(streams.last().is_none_or(|stream| stream.sender != sender), "{case:?}");
                let (first, arrived) = (packet.block, HashSet::new());
                streams.push(Stream { sender, first, counter, arrived, end: 0 });
            }
            let stream = streams.last_mut().expect("the first packet begins a stream");
            if stream.sender == sender
                && packet.block >= stream.first
                && stream.arrived.insert(packet)
            {
                stream.end = stream.end.max(packet.block + 1);
                placed += 1;
            } else {
                aside += 1;
            }
            left.take(&mut window, case);
        }
    }
    window.finish();
    left.take(&mut window, case);

    let counts = window.counts();
    let sum = |of: fn(&Counts) -> u64| counts.iter().map(of).sum::<u64>();
    assert_eq!(sum(|c| c.received), placed);
    // Counters of a restarted sender may lie between the steps of the stream before.
    assert_eq!(sum(|c| c.late + c.ahead + c.duplicate + c.invalid), aside);
    assert_eq!(sum(|c| c.wrong_length + c.overrun), 0);
    assert_eq!(placed + aside, delivered);
    assert_eq!(sum(|c| c.missing), left.lost_blocks);
    let mut cells = 0;
    for (number, stream) in streams.iter().enumerate() {
        for block in stream.first..stream.end {
            for source in 0..case.shape.sources {
                let is_whole = (0..case.parts)
                    .all(|part| stream.arrived.contains(&Sent { block, source, part }));
                let units = (block - stream.first) * case.shape.step;
                let key = (number as u64, stream.counter.wrapping_add(units), source);
                let expected = is_whole.then(|| case.payload(stream.sender, block, source));
                assert_eq!(left.cells.get(&key), Some(&expected), "{key:?}");
                cells += 1;
            }
        }
    }
    assert_eq!(left.cells.len(), cells, "nothing else left the window");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]

    /// With packets lost, delayed within the window and repeated, and senders that restart: each block that arrived
    /// whole is there with its bytes, each other is zeros and listed, and each packet is counted once.
    #[test]
    fn what_was_lost_is_what_is_listed(case in cases()) {
        run(&case);
    }
}
