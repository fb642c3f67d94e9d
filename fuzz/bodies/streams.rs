//! Streams as they arrive: the text of their headers, declarations of packets, maps of items, and the moving window.

use std::path::Path;

use sidereal::Error;
use sidereal::io::voltages::VoltageOptions;
use sidereal::live::declared::{
    Axis, Constant, Declaration, Declared, Extent, Field, Order, Selector,
};
use sidereal::live::discovery::Discovery;
use sidereal::live::header::Content;
use sidereal::live::heaps::{Heaps, ItemMap, Selector as ItemSelector};
use sidereal::live::packet::{Format, Part, Shape, Values};
use sidereal::live::stream::Stream;
use sidereal::live::trigger::{self, Limits, Origin};
use sidereal::live::vdif::{Frames, Options as FrameOptions, Thread};
use sidereal::live::window::{Counts, Options, Window};
use sidereal::units::Epoch;
use sidereal::voltage::VoltageEncoding;

use super::memory::Numbers;
use super::packets::{receive, take};
use super::{Outcome, Read};

/// Streams and bits of a sample.
fn streams(content: &Content) -> [usize; 2] {
    match content {
        Content::Spectra(header) => [header.channels(), header.encoding.bits()],
        Content::Voltages(header) => [header.streams(), header.encoding.sample_bits()],
    }
}

/// The header of a stream or a ring: it can be written again, and the one written says the same streams.
pub(super) fn stream_header(bytes: &[u8]) -> Outcome {
    let (path, options) = (Path::new("fuzz"), VoltageOptions::default());
    let content = Content::parse(bytes, path, &options)?;
    if let Ok(text) = content.text() {
        let again = Content::parse(&text, path, &options)?;
        assert_eq!(streams(&again), streams(&content));
        assert!((again.tsamp_s() / content.tsamp_s() - 1.0).abs() < 1e-12);
    }
    let stream = match Stream::parse(bytes, path, &options) {
        Ok(stream) => stream,
        // Headers of rings do not say how heaps are divided.
        Err(_) => Stream::new(content)?,
    };
    let map = stream.item_map();
    assert_eq!(map.samples_bytes, stream.block_bytes());
    if let Ok(heaps) = Heaps::new(map) {
        assert_eq!(heaps.shape().sources, stream.sources());
    }
    if let Ok(text) = stream.header_payload() {
        let again = Stream::parse(&text, path, &options)?;
        assert_eq!((again.times(), again.first()), (stream.times(), stream.first()));
    }
    Ok(Read::Whole)
}

/// Reads a word of the front.
fn word(numbers: &mut Numbers<'_>) -> u64 {
    (0..8).fold(0, |word, _| word << 8 | u64::from(numbers.byte()))
}

fn values(numbers: &mut Numbers<'_>) -> Values {
    let [first, step, count] = [8, 8, 5].map(|end| numbers.below(end));
    Values { first: first as u64, step: step as u64, count }
}

/// Declaration of a packet, then packets, each behind its length. A header that is written is read as the same.
pub(super) fn declared(bytes: &[u8]) -> Outcome {
    let mut numbers = Numbers::new(bytes);
    let options = Options::new(1 + numbers.below(5), 2 + numbers.below(3));
    let mut field = || {
        let order = numbers.one_of(&[Order::Big, Order::Little]);
        let [offset, bytes, shift, bits] = [26, 10, 66, 66].map(|end| numbers.below(end));
        Field { offset, bytes, order, shift: shift as u32, bits: bits as u32 }
    };
    let fields = [field(), field(), field(), field()];
    let header_bytes = numbers.below(34);
    let sources = [fields[1], fields[2]].into_iter().take(numbers.below(3));
    let sources = sources.map(|field| Selector { field, values: values(&mut numbers) }).collect();
    let constants = [fields[3]].into_iter().take(numbers.below(2));
    let constants =
        constants.map(|field| Constant { field, value: numbers.byte().into() }).collect();
    let axis = [Axis::Channel, Axis::Time, Axis::Polarization, Axis::Antenna];
    let axes = (0..numbers.below(4))
        .map(|_| Extent::new(numbers.one_of(&axis), numbers.below(9)))
        .collect();
    let step = u64::from(numbers.byte());
    let encoding = numbers.one_of(&VoltageEncoding::ALL);
    let declaration =
        Declaration { header_bytes, sequence: fields[0], step, sources, constants, axes, encoding };
    let mut format = Declared::new(declaration)?;
    let shape = format.shape();
    let mut packet = vec![0; header_bytes + shape.block_bytes];
    for source in 0..shape.sources {
        let counter = word(&mut numbers) % shape.period.unwrap_or(u64::MAX);
        if format.write_header(&mut packet, source, counter).is_ok()
            && are_apart(format.declaration())
        {
            let part = format.part(&packet).ok().flatten();
            assert_eq!(part.map(|part| (part.source, part.counter)), Some((source, counter)));
        }
    }
    receive(format, options, numbers.rest())
}

/// Returns whether no two fields of a header use the same byte.
fn are_apart(declaration: &Declaration) -> bool {
    let selectors = declaration.sources.iter().map(|selector| selector.field);
    let constants = declaration.constants.iter().map(|constant| constant.field);
    let all: Vec<Field> =
        [declaration.sequence].into_iter().chain(selectors).chain(constants).collect();
    let apart =
        |a: &Field, b: &Field| a.offset + a.bytes <= b.offset || b.offset + b.bytes <= a.offset;
    (1..all.len()).all(|at| all[..at].iter().all(|before| apart(before, &all[at])))
}

/// Map of items, then packets of heaps, each behind its length.
pub(super) fn heaps(bytes: &[u8]) -> Outcome {
    let mut numbers = Numbers::new(bytes);
    let options = Options::new(1 + numbers.below(5), 2 + numbers.below(3));
    let counter_bits = numbers.below(60) as u32;
    let step = u64::from(numbers.byte());
    let mut selector = || {
        let [id, shift, bits] = [8, 66, 66].map(|end| numbers.below(end));
        let values = values(&mut numbers);
        ItemSelector { id: 0x4100 + id as u64, shift: shift as u32, bits: bits as u32, values }
    };
    let selectors = [selector(), selector()];
    let sources = selectors.into_iter().take(numbers.below(3)).collect();
    let map = ItemMap {
        counter: 0x1600,
        counter_bits,
        step,
        sources,
        samples: 0x4300,
        samples_bytes: numbers.below(100),
        granule_bytes: numbers.below(20),
        heaps: numbers.below(6),
        zero_byte: 0,
    };
    receive(Heaps::new(map)?, options, numbers.rest())
}

/// Threads and sizes of VDIF frames, then packets, each behind its length.
pub(super) fn frames(bytes: &[u8]) -> Outcome {
    let mut numbers = Numbers::new(bytes);
    let options = Options::new(1 + numbers.below(5), 2 + numbers.below(3));
    let threads = (0..numbers.below(5))
        .map(|_| Thread { station: numbers.below(3) as u16, thread: numbers.below(1024) as u16 })
        .collect();
    let frames = FrameOptions {
        numbered: numbers.below(2) == 1,
        threads,
        payload_bytes: 8 * numbers.below(20),
        frames_per_s: numbers.one_of(&[1, 25, 1000, 1 << 24, 0, u32::MAX]),
        zero_byte: 0x80,
    };
    receive(Frames::new(frames)?, options, numbers.rest())
}

/// First frames of a VDIF stream that is unknown, each packet behind its length: the stream that they describe takes each in.
pub(super) fn discovery(bytes: &[u8]) -> Outcome {
    let mut numbers = Numbers::new(bytes);
    let sizes = Options::new(1 + numbers.below(5), 2 + numbers.below(3));
    let numbered = numbers.below(2) == 1;
    let options = VoltageOptions {
        sample_rate_hz: numbers.one_of(&[None, Some(1600.0), Some(1e6), Some(1e-3), Some(1e300)]),
        polarizations: numbers.one_of(&[None, Some(1), Some(2)]),
        ..VoltageOptions::default()
    };
    let rest = numbers.rest();
    let mut discovery = Discovery::new(numbered, &options);
    let (mut bytes, mut taken) = (rest, 0);
    while let Some((length, after)) = bytes.split_first_chunk::<2>() {
        let length = usize::from(u16::from_le_bytes(*length)).min(after.len());
        let (packet, after) = after.split_at(length);
        (bytes, taken) = (after, taken + 1);
        if discovery.add(packet) {
            break;
        }
    }
    let held: Vec<u8> = discovery.held().flatten().copied().collect();
    assert_eq!(discovery.held().count() as u64 + discovery.dropped(), taken);
    assert_eq!(held.len() + 2 * taken as usize, rest.len() - bytes.len());
    let description = discovery.description()?;
    let shape = description.packets().shape();
    // Beyond that, windows have more memory than a body may use.
    if shape.sources * shape.block_bytes > 1 << 20 {
        return Ok(Read::Part);
    }
    receive(description.packets().clone(), sizes, rest)
}

/// Window sizes, then parts of blocks inside the window, just outside it, and far outside.
pub(super) fn placement(bytes: &[u8]) -> Outcome {
    let mut numbers = Numbers::new(bytes);
    let mut options = Options::new(numbers.below(6), 1 + numbers.below(5));
    options.jump = numbers.one_of(&[options.jump, 0, 1 << 20, u64::MAX]);
    options.confirm = numbers.one_of(&[options.confirm, 1, 3, 0, u64::MAX]);
    let bits = numbers.below(64) as u32;
    let shape = Shape {
        sources: numbers.below(4),
        block_bytes: numbers.below(80),
        granule_bytes: numbers.below(20),
        step: numbers.one_of(&[1, 3, 16, 4096, 1 << 40]),
        period: (bits > 0).then(|| 1 << bits),
        zero_byte: 0x5a,
    };
    let mut window = Window::with_buffers(shape, options, options.chunks + 1)?;
    let payload = [0; 96];
    let start = word(&mut numbers);
    let (mut counter, mut placed, mut left, mut next) = (start, 0_u64, 0, None);
    let mut rest = numbers.rest();
    while let Some((code, after)) = rest.split_first_chunk::<4>() {
        rest = after;
        let steps = shape.step.wrapping_mul(u64::from(code[0] & 0x3f));
        counter = match code[0] >> 6 {
            0 | 1 => counter.wrapping_add(steps),
            2 => counter.wrapping_sub(steps),
            _ => start.wrapping_mul(u64::from(code[0]) << (code[0] % 57)),
        };
        // Counters as a format gives them, and some beyond their bits.
        if code[1] < 0xf0 {
            counter = shape.period.map_or(counter, |period| counter % period);
        }
        let (offset, length) = (usize::from(code[2]), usize::from(code[3]).min(payload.len()));
        window.place(&Part {
            source: usize::from(code[1] & 7),
            counter,
            offset: if code[2] == 0xff { usize::MAX } else { offset },
            payload: &payload[..length],
        });
        placed += 1;
        left += take(&mut window, &mut next, shape.step)?;
    }
    window.finish();
    left += take(&mut window, &mut next, shape.step)?;
    let sum = |of: fn(&Counts) -> u64| window.counts().iter().map(of).sum::<u64>();
    let all = sum(|c| {
        c.received + c.late + c.ahead + c.duplicate + c.wrong_length + c.invalid + c.overrun
    });
    assert_eq!(all + window.totals().wrong_source, placed);
    // Gaps of one stretch are joined, so that the list never fills.
    assert_eq!(window.totals().overrun_blocks + window.totals().unlisted_blocks, 0);
    assert!(left * shape.sources as u64 >= sum(|counts| counts.missing));
    match sum(|counts| counts.received) {
        0 => Err(Error::parameter("parts", placed, "none was placed")),
        _ => Ok(Read::Whole),
    }
}

/// A trigger of another program: one that is accepted is within the limits, and its name can be that of a file.
pub(super) fn trigger(bytes: &[u8]) -> Outcome {
    let fault = |why: String| Error::format("fuzz", "trigger", 0, why);
    let message = trigger::parse(bytes).map_err(|why| fault(why.to_string()))?;
    let now = Epoch::new(60_000, 100.0);
    let stream = trigger::Stream { start: Some(now), sample_s: 1e-3, highest_dm: 2000.0 };
    let found = message.trigger(Origin::Http, &stream).map_err(|why| fault(why.to_string()))?;
    let limits = Limits::default();
    limits.check(&found, &now).map_err(|why| fault(why.to_string()))?;
    assert!(found.start.seconds_since(&now) <= limits.future_s && found.dm <= limits.highest_dm);
    assert!(Path::new("folder").join(&found.name).parent() == Some(Path::new("folder")));
    Ok(Read::Whole)
}
