//! Formats of packets in a file: presets of instruments in use, and fields given one by one.

use sidereal::Result;
use sidereal::live::declared::{
    Axis, Constant, Declaration, Declared, Extent, Field, Order, Selector,
};
use sidereal::live::description::Packets;
use sidereal::live::heaps::{self, Heaps, ItemMap};
use sidereal::live::packet::{Format as _, Values};
use sidereal::voltage::VoltageEncoding;

use super::{Section, Word};

/// Instrument whose packets are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Preset {
    Snap,
    Snap2,
    Chips,
    Grex,
    MeerkatFEngine,
    MeerkatDigitiser,
}

impl Preset {
    pub(super) const WORDS: [Word<Self>; 6] = [
        Word::new("snap", Self::Snap),
        Word::new("snap2", Self::Snap2),
        Word::new("chips", Self::Chips),
        Word::new("grex", Self::Grex),
        Word::new("meerkat-feng", Self::MeerkatFEngine),
        Word::new("meerkat-digitiser", Self::MeerkatDigitiser),
    ];

    pub(super) fn protocol(self) -> Protocol {
        match self {
            Self::MeerkatFEngine | Self::MeerkatDigitiser => Protocol::Spead,
            Self::Snap | Self::Snap2 | Self::Chips | Self::Grex => Protocol::Packets,
        }
    }
}

/// Kind of packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protocol {
    Packets,
    Spead,
}

/// Sizes of the contents, which a preset may know.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    pub(super) antennas: usize,
    pub(super) polarizations: usize,
    pub(super) channels: usize,
    pub(super) encoding: VoltageEncoding,
}

/// Format of packets and the axes of a block of all sources.
#[derive(Debug)]
pub(super) struct Form {
    pub(super) packets: Packets,
    pub(super) axes: Vec<Extent>,
    pub(super) sizes: Sizes,
    /// Longest packet in bytes.
    pub(super) packet_bytes: usize,
}

impl Form {
    /// Returns the advance of the counter per sample.
    pub(super) fn units(&self) -> f64 {
        let times = self.axes.iter().find(|extent| extent.axis == Axis::Time);
        self.packets.shape().step as f64 / times.map_or(1, |extent| extent.count) as f64
    }
}

/// Longest packets that are expected where the format does not say it: those of networks with jumbo frames.
const LONGEST_BYTES: usize = 9216;

/// Samples of a heap of MeerKAT's digitisers.
const HEAP_SAMPLES: usize = 4096;

/// Sources of channels: groups of `each` channels from channel `first` on.
struct Groups {
    values: Values,
    each: usize,
}

impl Groups {
    fn read(input: &Section<'_>, channels: usize, fixed: Option<usize>) -> Result<Self> {
        let first = input.count("first_channel", 0..=1 << 32)?.unwrap_or(0);
        let each = match fixed {
            Some(each) => each,
            None => input.size("packet_channels")?.unwrap_or(channels),
        };
        if !channels.is_multiple_of(each) {
            let why = format!("found {channels}, expected a multiple of the {each} of a packet");
            return Err(input.fault("channels", why));
        }
        let values = Values { first, step: each as u64, count: channels / each };
        Ok(Self { values, each })
    }

    fn axis(&self) -> Extent {
        Extent::new(Axis::Channel, self.values.count)
    }
}

/// Reads the sizes of a preset and makes its format.
pub(super) fn preset(
    input: &Section<'_>,
    preset: Preset,
    counter_bits: Option<u32>,
) -> Result<Form> {
    let size = |key| input.needed(key, input.size(key)?, "a whole number");
    let sizes = |antennas, channels| Sizes {
        antennas,
        polarizations: 2,
        channels,
        encoding: VoltageEncoding::Complex4,
    };
    match preset {
        Preset::Snap => {
            let (antennas, channels) = (size("antennas")?, size("channels")?);
            let groups = Groups::read(input, channels, Some(256))?;
            let outer = [Extent::new(Axis::Antenna, antennas), groups.axis()];
            let declaration = Declaration::snap(antennas, groups.values);
            declared(input, declaration, &outer, sizes(antennas, channels), counter_bits)
        }
        Preset::Snap2 => {
            let (antennas, channels) = (size("antennas")?, size("channels")?);
            let groups = Groups::read(input, channels, None)?;
            let inputs = 2 * antennas;
            let each = input.size("packet_inputs")?.unwrap_or(inputs);
            if !inputs.is_multiple_of(each) {
                let why = format!("found {each}, expected a divisor of the {inputs} inputs");
                return Err(input.fault("packet_inputs", why));
            }
            let first = input.count("first_input", 0..=1 << 32)?.unwrap_or(0);
            let values = Values { first, step: each as u64, count: inputs / each };
            let outer = [Extent::new(Axis::Antenna, values.count), groups.axis()];
            let declaration = Declaration::snap2(groups.each, each, groups.values, values);
            declared(input, declaration, &outer, sizes(antennas, channels), counter_bits)
        }
        Preset::Chips => {
            let (antennas, channels) = (size("antennas")?, size("channels")?);
            let groups = Groups::read(input, channels, None)?;
            if !antennas.is_multiple_of(16) {
                let why = format!("found {antennas}, expected a multiple of the 16 of a packet");
                return Err(input.fault("antennas", why));
            }
            let boards = antennas / 16;
            let outer = [Extent::new(Axis::Antenna, boards), groups.axis()];
            let declaration = Declaration::chips(groups.each, boards, groups.values);
            declared(input, declaration, &outer, sizes(antennas, channels), counter_bits)
        }
        Preset::Grex => {
            let sizes = Sizes { encoding: VoltageEncoding::Complex8, ..sizes(1, 2048) };
            declared(input, Declaration::grex(), &[], sizes, counter_bits)
        }
        Preset::MeerkatFEngine => {
            let (antennas, channels) = (size("antennas")?, size("channels")?);
            let groups = Groups::read(input, channels, None)?;
            let spectra = input.size("packet_spectra")?.unwrap_or(256);
            let per_spectrum = size("samples_per_spectrum")? as u64;
            let map = ItemMap::meerkat_f_engine(
                antennas,
                groups.values,
                groups.each,
                spectra,
                per_spectrum,
            );
            let axes = vec![
                Extent::new(Axis::Antenna, antennas),
                groups.axis(),
                Extent::new(Axis::Channel, groups.each),
                Extent::new(Axis::Time, spectra),
                Extent::new(Axis::Polarization, 2),
            ];
            let encoding = VoltageEncoding::Complex8;
            let sizes = Sizes { encoding, ..sizes(antennas, channels) };
            spead(input, map, axes, sizes, counter_bits)
        }
        Preset::MeerkatDigitiser => {
            let sizes = Sizes { encoding: VoltageEncoding::Real10, ..sizes(1, 1) };
            let axes =
                vec![Extent::new(Axis::Polarization, 2), Extent::new(Axis::Time, HEAP_SAMPLES)];
            let map = ItemMap::meerkat_digitiser();
            spead(input, map, axes, sizes, counter_bits)
        }
    }
}

fn declared(
    input: &Section<'_>,
    mut declaration: Declaration,
    outer: &[Extent],
    sizes: Sizes,
    counter_bits: Option<u32>,
) -> Result<Form> {
    if let Some(bits) = counter_bits {
        let word = 8 * declaration.sequence.bytes as u32;
        if bits > word - declaration.sequence.shift.min(word) {
            let why = format!("found {bits}, expected those of its field of {word} at most");
            return Err(input.fault("time.counter_bits", why));
        }
        declaration.sequence.bits = bits;
    }
    let axes = outer.iter().chain(&declaration.axes).copied().collect();
    let header_bytes = declaration.header_bytes;
    let format = Declared::new(declaration).map_err(|error| input.locate(error))?;
    let packet_bytes = (header_bytes + format.shape().block_bytes).clamp(LONGEST_BYTES, 1 << 16);
    Ok(Form { packets: Packets::Declared(format), axes, sizes, packet_bytes })
}

fn spead(
    input: &Section<'_>,
    mut map: ItemMap,
    axes: Vec<Extent>,
    sizes: Sizes,
    counter_bits: Option<u32>,
) -> Result<Form> {
    map.counter_bits = counter_bits.unwrap_or(map.counter_bits);
    map.zero_byte = sizes.encoding.zero_byte();
    let heaps = Heaps::new(map).map_err(|error| input.locate(error))?;
    Ok(Form { packets: Packets::Heaps(heaps), axes, sizes, packet_bytes: LONGEST_BYTES })
}

/// Reads the fields of packets from `[input.packet]`, or the items of heaps from `[input.heap]`.
pub(super) fn explicit(
    input: &Section<'_>,
    protocol: Protocol,
    sizes: Sizes,
    counter_bits: Option<u32>,
) -> Result<Form> {
    let (key, expected) = match protocol {
        Protocol::Packets => ("packet", "a table of the fields of packets, or a preset"),
        Protocol::Spead => ("heap", "a table of the items of heaps, or a preset"),
    };
    let own = input.needed(key, input.section(key)?, expected)?;
    let axes = axes(&own)?;
    let sources = own.sections("source")?;
    let mut outer = sources.iter().map(outer_axis).collect::<Result<Vec<_>>>()?;
    let step = own.needed("step", own.count("step", 1..=1 << 48)?, "the counter's step")?;
    let form = match protocol {
        Protocol::Packets => {
            let header_bytes = own.size("header_bytes")?;
            let sequence = own.section("sequence")?;
            let sequence = own.needed("sequence", sequence, "the place of the counter")?;
            let constants = own.sections("constant")?;
            let declaration = Declaration {
                header_bytes: own.needed("header_bytes", header_bytes, "a whole number")?,
                sequence: field(&sequence)?,
                step,
                sources: sources.iter().map(selector).collect::<Result<_>>()?,
                constants: constants.iter().map(constant).collect::<Result<_>>()?,
                axes,
                encoding: sizes.encoding,
            };
            sequence.finish()?;
            constants.iter().try_for_each(Section::finish)?;
            declared(input, declaration, &outer, sizes, counter_bits)?
        }
        Protocol::Spead => {
            let item = |key| own.needed(key, own.count(key, 1..=1 << 24)?, "an item's number");
            let samples = axes.iter().fold(1_usize, |n, extent| n.saturating_mul(extent.count));
            let bytes = samples.saturating_mul(sizes.encoding.sample_bits()) / 8;
            let map = ItemMap {
                counter: item("counter")?,
                counter_bits: 48,
                step,
                sources: sources.iter().map(item_selector).collect::<Result<_>>()?,
                samples: item("samples")?,
                samples_bytes: bytes,
                granule_bytes: 8.min(bytes.max(1)),
                heaps: own.size("heaps_in_flight")?.unwrap_or(64),
                zero_byte: 0,
            };
            outer.extend(axes);
            spead(input, map, outer, sizes, counter_bits)?
        }
    };
    sources.iter().try_for_each(Section::finish)?;
    own.finish()?;
    Ok(form)
}

const AXES: [Word<Axis>; 4] = [
    Word::new("antenna", Axis::Antenna),
    Word::new("channel", Axis::Channel),
    Word::new("polarization", Axis::Polarization),
    Word::new("time", Axis::Time),
];

/// Reads the axes of a payload: a table of one axis and its length each.
fn axes(own: &Section<'_>) -> Result<Vec<Extent>> {
    let expected = "a list such as [{ channel = 256 }, { time = 16 }]";
    let read = |section: &Section<'_>| {
        for axis in &AXES {
            if let Some(count) = section.size(axis.text)? {
                section.finish()?;
                return Ok(Extent::new(axis.value, count));
            }
        }
        section.finish()?;
        Err(section.fault("", "expected an axis: antenna, channel, polarization or time"))
    };
    let list = own.sections("axes")?;
    if list.is_empty() {
        return Err(own.fault("axes", format!("it is missing, expected {expected}")));
    }
    list.iter().map(read).collect()
}

fn outer_axis(source: &Section<'_>) -> Result<Extent> {
    let axis = source.word("axis", &AXES[..3])?;
    let axis = source.needed("axis", axis, "antenna, channel or polarization")?;
    Ok(Extent::new(axis, values(source)?.count))
}

fn values(source: &Section<'_>) -> Result<Values> {
    let most = i64::MAX as u64;
    Ok(Values {
        first: source.count("first", 0..=most)?.unwrap_or(0),
        step: source.count("step", 1..=most)?.unwrap_or(1),
        count: source.size("count")?.unwrap_or(1),
    })
}

fn field(place: &Section<'_>) -> Result<Field> {
    let offset = place.count("offset", 0..=1023)?;
    let bytes = place.needed("bytes", place.count("bytes", 1..=8)?, "1 to 8")? as usize;
    let orders = [Word::new("big", Order::Big), Word::new("little", Order::Little)];
    let shift = place.count("shift", 0..=63)?.unwrap_or(0) as u32;
    let whole = (8 * bytes as u32).saturating_sub(shift);
    Ok(Field {
        offset: place.needed("offset", offset, "the bytes before it")? as usize,
        bytes,
        order: place.word("order", &orders)?.unwrap_or(Order::Big),
        shift,
        bits: place.count("bits", 1..=64)?.map_or(whole, |bits| bits as u32),
    })
}

fn selector(source: &Section<'_>) -> Result<Selector> {
    Ok(Selector { field: field(source)?, values: values(source)? })
}

fn constant(place: &Section<'_>) -> Result<Constant> {
    let value = place.count("value", 0..=i64::MAX as u64)?;
    let value = place.needed("value", value, "the value of the field")?;
    Ok(Constant { field: field(place)?, value })
}

fn item_selector(source: &Section<'_>) -> Result<heaps::Selector> {
    let id = source.count("item", 1..=1 << 24)?;
    Ok(heaps::Selector {
        id: source.needed("item", id, "an item's number")?,
        shift: source.count("shift", 0..=63)?.unwrap_or(0) as u32,
        bits: source.count("bits", 1..=64)?.unwrap_or(64) as u32,
        values: values(source)?,
    })
}
