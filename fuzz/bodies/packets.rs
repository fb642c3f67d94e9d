//! Packets of voltages: every format, from its packets to chunks in order of time.

use sidereal::live::declared::{Constant, Declaration, Declared, Field};
use sidereal::live::descriptor::Descriptor;
use sidereal::live::heaps::{Heaps, ItemMap};
use sidereal::live::packet::{Format, Values};
use sidereal::live::spead::{Packet, id};
use sidereal::live::vdif::{Frames, Options as FrameOptions, Thread};
use sidereal::live::window::{Counts, Options, Ready, Window};
use sidereal::{Error, Result};

use super::memory::Numbers;
use super::{Outcome, Read};

/// One SPEAD packet: its items lie in its payload, its descriptors can be written again.
pub(super) fn spead(bytes: &[u8]) -> Outcome {
    let fault =
        |fault: sidereal::live::spead::Fault| Error::format("fuzz", "packet", 0, fault.text());
    let packet = Packet::parse(bytes).map_err(fault)?;
    let heap_bytes = packet.heap_bytes.unwrap_or(packet.payload.len() as u64);
    for item in packet.items() {
        if let Some(place) = packet.place(item.id, heap_bytes) {
            assert!(place.start <= place.end && place.end <= heap_bytes.max(place.start));
        }
    }
    for place in packet.places(id::DESCRIPTOR, heap_bytes).take(64) {
        let (start, end) = (place.start as usize, place.end as usize);
        let Some(bytes) = packet.payload.get(start..end) else { continue };
        let descriptor = Descriptor::parse(bytes).map_err(fault)?;
        if let Ok(written) = descriptor.bytes(packet.flavour) {
            assert_eq!(Descriptor::parse(&written).as_ref(), Ok(&descriptor));
        }
    }
    Ok(Read::Whole)
}

/// A format and the sizes of a window, then packets, each behind its length.
pub(super) fn packets(bytes: &[u8]) -> Outcome {
    let mut numbers = Numbers::new(bytes);
    let format = numbers.below(6);
    let options = Options::new(1 + numbers.below(5), 2 + numbers.below(3));
    let rest = bytes.get(3..).unwrap_or(&[]);
    let blocks = Values { first: 2, step: 2, count: 3 };
    match format {
        0 => receive(
            Declared::new(Declaration::snap2(2, 4, blocks, Values::from(0, 2)))?,
            options,
            rest,
        ),
        1 => receive(Declared::new(Declaration::chips(2, 2, blocks))?, options, rest),
        2 => {
            let sequence = Field::little(1, 5).part(2, 38);
            let constant = Constant { field: Field::big(0, 1), value: 7 };
            let declaration = Declaration {
                sequence,
                sources: Vec::new(),
                constants: vec![constant],
                step: 3,
                ..Declaration::chips(1, 1, Values::from(0, 1))
            };
            receive(Declared::new(declaration)?, options, rest)
        }
        3 => {
            let map = ItemMap {
                heaps: 2,
                granule_bytes: 1 + 7 * (options.blocks % 2),
                ..ItemMap::meerkat_f_engine(2, blocks, 4, 2, 64)
            };
            receive(Heaps::new(map)?, options, rest)
        }
        numbered => {
            let thread = |thread| Thread { station: 0x4161, thread };
            let frames = FrameOptions {
                numbered: numbered == 4,
                threads: vec![thread(0), thread(1)],
                payload_bytes: 32,
                frames_per_s: 25,
                zero_byte: 0x80,
            };
            receive(Frames::new(frames)?, options, rest)
        }
    }
}

/// Receives packets: each is counted once, and chunks follow each other.
pub(super) fn receive(mut format: impl Format, options: Options, mut bytes: &[u8]) -> Outcome {
    let shape = format.shape();
    let mut window = Window::with_buffers(shape, options, options.chunks + 1)?;
    let (mut received, mut next, mut left) = (0, None, 0);
    while let Some((length, rest)) = bytes.split_first_chunk::<2>() {
        let length = usize::from(u16::from_le_bytes(*length)).min(rest.len());
        let (packet, rest) = rest.split_at(length);
        bytes = rest;
        window.receive(&mut format, packet);
        received += 1;
        left += take(&mut window, &mut next, shape.step)?;
    }
    window.finish();
    left += take(&mut window, &mut next, shape.step)?;
    let sum = |of: fn(&Counts) -> u64| window.counts().iter().map(of).sum::<u64>();
    let totals = window.totals();
    let rejected = totals.wrong_source
        + totals.wrong_length
        + totals.invalid
        + totals.unplaced
        + sum(|counts| counts.wrong_length + counts.invalid);
    let aside = sum(|counts| counts.late + counts.ahead + counts.duplicate + counts.overrun);
    let placed = sum(|counts| counts.received);
    assert_eq!(received, placed + aside + rejected + totals.without_samples);
    assert_eq!(totals.overrun_blocks + totals.unlisted_blocks, 0);
    assert!(left * shape.sources as u64 >= sum(|counts| counts.missing));
    if rejected > 0 || placed == 0 {
        return Err(Error::parameter(
            "packets",
            rejected,
            "some were rejected, or none had samples",
        ));
    }
    Ok(Read::Whole)
}

/// Receives the chunks and gaps that leave the window; returns their number of blocks.
pub(super) fn take(window: &mut Window, next: &mut Option<(u64, u64)>, step: u64) -> Result<u64> {
    let mut taken = 0;
    while let Some(ready) = window.take() {
        let (stream, first, blocks) = match &ready {
            Ready::Chunk(chunk) => (chunk.stream, chunk.first, chunk.blocks as u64),
            Ready::Gap(stretch) | Ready::Overrun(stretch) => {
                (stretch.stream, stretch.first, stretch.blocks)
            }
        };
        assert!(next.is_none_or(|(before, next)| before < stream || next == first));
        *next = Some((stream, first.wrapping_add(blocks * step)));
        taken += blocks;
        if let Ready::Chunk(chunk) = ready {
            window.recycle(chunk)?;
        }
    }
    Ok(taken)
}
