//! Packets with a fixed header, declared by the place of each field; presets for boards in use.
//!
//! A packet is a header of a fixed length and one block of samples. Fields of the header give the counter and the
//! source: each field that tells sources apart (antenna, first channel, polarization) has a list of values, and the
//! source is the number of the combination, the first field outermost.
//!
//! # Source
//! Headers as the receivers of these instruments read them: SNAP of the Allen Telescope Array, SNAP2 (F-engines of
//! OVRO-LWA), CHIPS (LWA), GReX.

use crate::error::{Error, Result};
use crate::live::packet::{Format, Outcome, Part, Reason, Rejection, Shape, Values};
use crate::voltage::VoltageEncoding;

/// Longest header in bytes.
const LONGEST_HEADER: usize = 1024;

/// Byte order of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Least significant byte first.
    Little,
    /// Most significant byte first.
    Big,
}

/// Bits of a header: a word of 1 to 8 bytes, of which `bits` from bit `shift` on are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// Offset of the word in the packet.
    pub offset: usize,
    /// Bytes of the word.
    pub bytes: usize,
    /// Byte order of the word.
    pub order: Order,
    /// Lowest bit used.
    pub shift: u32,
    /// Number of bits used.
    pub bits: u32,
}

impl Field {
    /// Makes a field of a whole big-endian word.
    pub const fn big(offset: usize, bytes: usize) -> Self {
        Self { offset, bytes, order: Order::Big, shift: 0, bits: 8 * bytes as u32 }
    }

    /// Makes a field of a whole little-endian word.
    pub const fn little(offset: usize, bytes: usize) -> Self {
        Self { order: Order::Little, ..Self::big(offset, bytes) }
    }

    /// Restricts a field to `bits` bits from bit `shift` on.
    pub const fn part(self, shift: u32, bits: u32) -> Self {
        Self { shift, bits, ..self }
    }

    /// Reads the field; `None` if the packet is too short.
    pub fn read(&self, packet: &[u8]) -> Option<u64> {
        let word = packet.get(self.offset..)?.get(..self.bytes)?;
        let add = |sum: u64, byte: &u8| sum << 8 | u64::from(*byte);
        let word = match self.order {
            Order::Big => word.iter().fold(0, add),
            Order::Little => word.iter().rev().fold(0, add),
        };
        Some(word >> self.shift & self.most())
    }

    /// Writes the field into a packet and leaves the other bits of its word.
    ///
    /// # Errors
    /// [`Error::Parameter`] for a value of more bits; [`Error::Shape`] for a packet that is too short.
    pub fn write(&self, packet: &mut [u8], value: u64) -> Result<()> {
        if value > self.most() {
            let rule = format!("the field has {} bits", self.bits);
            return Err(Error::parameter("value", value, rule));
        }
        let (expected, actual) = (self.offset + self.bytes, packet.len());
        let word = packet.get_mut(self.offset..expected).ok_or(Error::Shape {
            what: "packet (bytes)",
            expected,
            actual,
        })?;
        let (mask, value) = (self.most() << self.shift, value << self.shift);
        for (place, byte) in word.iter_mut().enumerate() {
            let place = if self.order == Order::Big { self.bytes - 1 - place } else { place };
            *byte = *byte & !((mask >> (8 * place)) as u8) | (value >> (8 * place)) as u8;
        }
        Ok(())
    }

    /// Returns the largest value.
    fn most(&self) -> u64 {
        u64::MAX >> (64 - self.bits)
    }

    fn check(&self, name: &'static str, header_bytes: usize) -> Result<()> {
        if !(1..=8).contains(&self.bytes)
            || self.offset.checked_add(self.bytes).is_none_or(|end| end > header_bytes)
        {
            let rule = format!(
                "its word of {} bytes must have 1 to 8 bytes and lie in the header of {header_bytes}",
                self.bytes
            );
            return Err(Error::parameter(name, self.offset, rule));
        }
        let word = 8 * self.bytes as u32;
        if self.bits == 0 || self.shift.checked_add(self.bits).is_none_or(|end| end > word) {
            let rule = format!("bits from {} on must lie in the word of {word}", self.shift);
            return Err(Error::parameter(name, self.bits, rule));
        }
        Ok(())
    }
}

/// Field that tells sources apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Selector {
    /// Place in the header.
    pub field: Field,
    /// Values of the sources that are received.
    pub values: Values,
}

/// Field that has the same value in each packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Constant {
    /// Place in the header.
    pub field: Field,
    /// Its value.
    pub value: u64,
}

/// Axis of a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Axis {
    /// Inputs or antennas.
    Antenna,
    /// Channels.
    Channel,
    /// Polarizations.
    Polarization,
    /// Samples in time.
    Time,
}

/// Axis of a payload and its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// The axis.
    pub axis: Axis,
    /// Its length.
    pub count: usize,
}

impl Extent {
    /// Makes an axis of a length.
    pub const fn new(axis: Axis, count: usize) -> Self {
        Self { axis, count }
    }
}

/// Declaration of a packet: all numbers that a receiver needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Declaration {
    /// Bytes before the payload.
    pub header_bytes: usize,
    /// Counter. It wraps after all values of its bits.
    pub sequence: Field,
    /// Difference of the counter between consecutive packets of a source.
    pub step: u64,
    /// Fields that tell sources apart, outermost first.
    pub sources: Vec<Selector>,
    /// Fields with one value.
    pub constants: Vec<Constant>,
    /// Axes of the payload, outermost first.
    pub axes: Vec<Extent>,
    /// Encoding of the samples.
    pub encoding: VoltageEncoding,
}

impl Declaration {
    /// Declares packets of the Allen Telescope Array's SNAP boards: 256 channels x 16 spectra x 2 polarizations in 8192
    /// bytes. `antennas` is the number of boards, from 0 on; `channels` the lists of first channels.
    pub fn snap(antennas: usize, channels: Values) -> Self {
        Self {
            header_bytes: 16,
            sequence: Field::big(8, 8),
            step: 16,
            sources: vec![
                Selector { field: Field::big(6, 2), values: Values::from(0, antennas) },
                Selector { field: Field::big(4, 2), values: channels },
            ],
            constants: vec![Constant { field: Field::big(2, 2), value: 256 }],
            axes: vec![
                Extent::new(Axis::Channel, 256),
                Extent::new(Axis::Time, 16),
                Extent::new(Axis::Polarization, 2),
            ],
            encoding: VoltageEncoding::Complex4,
        }
    }

    /// Declares packets of SNAP2 boards: one spectrum of `channels` channels x `inputs` inputs (antennas and polarizations) in a
    /// packet. `first_channels` and `first_inputs` are the values that the packets' first channels and inputs take.
    pub fn snap2(
        channels: usize,
        inputs: usize,
        first_channels: Values,
        first_inputs: Values,
    ) -> Self {
        Self {
            header_bytes: 32,
            sequence: Field::big(0, 8),
            step: 1,
            sources: vec![
                Selector { field: Field::big(28, 4), values: first_inputs },
                Selector { field: Field::big(24, 4), values: first_channels },
            ],
            constants: vec![
                Constant { field: Field::big(12, 2), value: inputs as u64 },
                Constant { field: Field::big(16, 2), value: channels as u64 },
            ],
            axes: vec![Extent::new(Axis::Channel, channels), Extent::new(Axis::Antenna, inputs)],
            encoding: VoltageEncoding::Complex4,
        }
    }

    /// Declares CHIPS packets: one spectrum of `channels` channels x 16 stands x 2 polarizations. `boards` are numbered
    /// from 1; `first_channels` are the values that the packets' first channels take.
    pub fn chips(channels: usize, boards: usize, first_channels: Values) -> Self {
        Self {
            header_bytes: 16,
            sequence: Field::big(8, 8),
            step: 1,
            sources: vec![
                Selector { field: Field::big(0, 1), values: Values::from(1, boards) },
                Selector { field: Field::big(6, 2), values: first_channels },
            ],
            constants: vec![Constant { field: Field::big(2, 1), value: channels as u64 }],
            axes: vec![
                Extent::new(Axis::Channel, channels),
                Extent::new(Axis::Antenna, 16),
                Extent::new(Axis::Polarization, 2),
            ],
            encoding: VoltageEncoding::Complex4,
        }
    }

    /// Declares packets of GReX: one spectrum of 2 polarizations x 2048 channels.
    pub fn grex() -> Self {
        Self {
            header_bytes: 8,
            sequence: Field::little(0, 8),
            step: 1,
            sources: Vec::new(),
            constants: Vec::new(),
            axes: vec![Extent::new(Axis::Polarization, 2), Extent::new(Axis::Channel, 2048)],
            encoding: VoltageEncoding::Complex8,
        }
    }

    /// Returns the samples of a payload.
    fn samples(&self) -> usize {
        self.axes.iter().fold(1, |product: usize, axis| product.saturating_mul(axis.count))
    }

    /// Checks the declaration.
    ///
    /// # Errors
    /// [`Error::Parameter`] naming the first impossible field.
    pub fn check(&self) -> Result<()> {
        if self.header_bytes == 0 || self.header_bytes > LONGEST_HEADER {
            let rule = format!("it must be 1 to {LONGEST_HEADER}");
            return Err(Error::parameter("header_bytes", self.header_bytes, rule));
        }
        self.sequence.check("sequence", self.header_bytes)?;
        for Selector { field, .. } in &self.sources {
            field.check("sources", self.header_bytes)?;
        }
        for Constant { field, value } in &self.constants {
            field.check("constants", self.header_bytes)?;
            if *value > field.most() {
                let rule = format!("it must fit the {} bits of its field", field.bits);
                return Err(Error::parameter("constants", *value, rule));
            }
        }
        for (at, extent) in self.axes.iter().enumerate() {
            if extent.count == 0 || self.axes[..at].iter().any(|other| other.axis == extent.axis) {
                let rule = "each axis must have a length, and be given once";
                return Err(Error::parameter("axes", extent.count, rule));
            }
        }
        let bits = self.samples().saturating_mul(self.encoding.sample_bits());
        if !bits.is_multiple_of(8) || bits / 8 > 65_536 - self.header_bytes {
            let rule = "the samples must fill whole bytes, at most 64 KiB with the header";
            return Err(Error::parameter("axes", self.samples(), rule));
        }
        Values::sources(self.sources.iter().map(|selector| selector.values)).map(drop)
    }
}

/// Receiver's side of a declaration.
#[derive(Clone, Debug)]
pub struct Declared {
    declaration: Declaration,
    shape: Shape,
}

impl Declared {
    /// Checks a declaration.
    ///
    /// # Errors
    /// [`Error::Parameter`] naming the first impossible field.
    pub fn new(declaration: Declaration) -> Result<Self> {
        declaration.check()?;
        let bytes = declaration.samples() * declaration.encoding.sample_bits() / 8;
        let bits = declaration.sequence.bits;
        let shape = Shape {
            sources: Values::sources(declaration.sources.iter().map(|selector| selector.values))?,
            block_bytes: bytes,
            granule_bytes: bytes,
            step: declaration.step,
            period: (bits < 64).then(|| 1 << bits),
            zero_byte: declaration.encoding.zero_byte(),
        };
        shape.check()?;
        Ok(Self { declaration, shape })
    }

    /// Returns the declaration.
    pub fn declaration(&self) -> &Declaration {
        &self.declaration
    }

    /// Writes the header of a packet of a source into the first bytes of `packet`; fields that are not declared keep
    /// their bytes.
    ///
    /// # Errors
    /// [`Error::Parameter`] for an unknown source or a counter of too many bits; [`Error::Shape`] for a short packet.
    pub fn write_header(&self, packet: &mut [u8], source: usize, counter: u64) -> Result<()> {
        if source >= self.shape.sources {
            let rule = format!("there are {} sources", self.shape.sources);
            return Err(Error::parameter("source", source, rule));
        }
        let mut rest = source;
        for Selector { field, values } in self.declaration.sources.iter().rev() {
            field.write(packet, values.first + values.step * (rest % values.count) as u64)?;
            rest /= values.count;
        }
        for Constant { field, value } in &self.declaration.constants {
            field.write(packet, *value)?;
        }
        self.declaration.sequence.write(packet, counter)
    }
}

impl Format for Declared {
    fn shape(&self) -> Shape {
        self.shape
    }

    fn part<'a>(&mut self, packet: &'a [u8]) -> Outcome<'a> {
        let Declaration { header_bytes, sequence, sources, constants, .. } = &self.declaration;
        let (header, payload) =
            packet.split_at_checked(*header_bytes).ok_or(Rejection::of(Reason::WrongLength))?;
        let mut source = 0;
        for Selector { field, values } in sources {
            let index = field.read(header).and_then(|value| values.index(value));
            source = source * values.count + index.ok_or(Rejection::of(Reason::WrongSource))?;
        }
        let rejected = |reason| Err(Rejection::from_source(reason, source));
        if constants.iter().any(|constant| constant.field.read(header) != Some(constant.value)) {
            return rejected(Reason::Invalid);
        }
        if payload.len() != self.shape.block_bytes {
            return rejected(Reason::WrongLength);
        }
        match sequence.read(header) {
            Some(counter) => Ok(Some(Part { source, counter, offset: 0, payload })),
            None => rejected(Reason::WrongLength),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn presets() -> Vec<(Declaration, usize, usize)> {
        let blocks = Values { first: 256, step: 256, count: 3 };
        let inputs = Values { first: 0, step: 64, count: 2 };
        vec![
            (Declaration::snap(4, blocks), 12, 16 + 8192),
            (
                Declaration::snap2(96, 64, Values { first: 96, step: 96, count: 2 }, inputs),
                4,
                32 + 6144,
            ),
            (Declaration::chips(109, 2, Values::from(7, 1)), 2, 16 + 3488),
            (Declaration::grex(), 1, 8200),
        ]
    }

    #[test]
    fn presets_have_the_lengths_of_their_instruments() {
        for (declaration, sources, bytes) in presets() {
            let mut format = Declared::new(declaration).unwrap();
            let shape = format.shape();
            assert_eq!((shape.sources, shape.period), (sources, None));
            let header = format.declaration().header_bytes;
            assert_eq!(header + shape.block_bytes, bytes);
            for source in 0..sources {
                let mut packet = vec![0xa5; bytes];
                format.write_header(&mut packet, source, 1 << 40 | 48).unwrap();
                let payload = &packet[header..];
                let part = Part { source, counter: 1 << 40 | 48, offset: 0, payload };
                assert_eq!(format.part(&packet), Ok(Some(part)));
            }
            assert!(format.write_header(&mut vec![0; bytes], sources, 0).is_err());
        }
    }

    #[test]
    fn a_snap_packet_is_read_as_sent() {
        let mut packet = vec![1, 2, 1, 0, 2, 0, 0, 3, 0, 0, 0, 0, 0, 1, 0, 0x10];
        packet.extend([7; 8192]);
        let blocks = Values { first: 256, step: 256, count: 3 };
        let mut format = Declared::new(Declaration::snap(4, blocks)).unwrap();
        let part = format.part(&packet).unwrap().unwrap();
        assert_eq!((part.source, part.counter, part.payload[0]), (3 * 3 + 1, 65_552, 7));
        let mut with = |at: usize, value: u8| {
            let mut packet = packet.clone();
            packet[at] = value;
            format.part(&packet).map(drop)
        };
        assert_eq!(with(7, 4), Err(Rejection::of(Reason::WrongSource)), "an unknown antenna");
        assert_eq!(with(5, 1), Err(Rejection::of(Reason::WrongSource)), "not a first channel");
        assert_eq!(with(3, 1), Err(Rejection::from_source(Reason::Invalid, 10)));
        for length in 0..packet.len() {
            let rejected = format.part(&packet[..length]).unwrap_err();
            assert_eq!(rejected.reason, Reason::WrongLength, "{length} bytes");
            assert_eq!(rejected.source, (length >= 16).then_some(10));
        }
    }

    #[test]
    fn the_table_of_each_header_is_that_of_its_bytes() {
        let mut snap2 = Declared::new(presets()[1].0.clone()).unwrap();
        let mut packet = vec![0; 32 + 6144];
        packet[7] = 9; // sequence
        packet[13] = 64; // inputs in the packet
        packet[17] = 96; // channels in the packet
        packet[27] = 192; // first channel
        packet[31] = 64; // first input
        let part = snap2.part(&packet).unwrap().unwrap();
        assert_eq!((part.source, part.counter), (3, 9));
        let mut chips = Declared::new(presets()[2].0.clone()).unwrap();
        let mut packet = vec![2, 0, 109, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 1, 1];
        packet.resize(16 + 3488, 0);
        let part = chips.part(&packet).unwrap().unwrap();
        assert_eq!((part.source, part.counter), (1, 257));
        let mut grex = Declared::new(Declaration::grex()).unwrap();
        let mut packet = vec![1, 1, 0, 0, 0, 0, 0, 0];
        packet.resize(8200, 0);
        assert_eq!(grex.part(&packet).unwrap().unwrap().counter, 257);
    }

    #[test]
    fn parts_of_words_are_read_and_written_alone() {
        for order in [Order::Big, Order::Little] {
            let field = Field { offset: 1, bytes: 5, order, shift: 3, bits: 30 };
            let mut packet = [0xff; 8];
            field.write(&mut packet, 0x1234_5678).unwrap();
            assert_eq!(field.read(&packet), Some(0x1234_5678));
            assert_eq!((packet[0], packet[6], packet[7]), (0xff, 0xff, 0xff));
            let rest = Field { shift: 33, bits: 7, ..field };
            assert_eq!(
                (rest.read(&packet), Field { shift: 0, bits: 3, ..field }.read(&packet)),
                (Some(127), Some(7))
            );
            assert!(
                field.write(&mut packet, 1 << 30).is_err() && field.write(&mut [0; 5], 0).is_err()
            );
        }
        let mut word = [0; 8];
        Field::little(0, 8).write(&mut word, u64::MAX - 1).unwrap();
        assert_eq!(Field::little(0, 8).read(&word), Some(u64::MAX - 1));
    }

    #[test]
    fn a_counter_of_38_bits_has_its_period() {
        let sequence = Field::big(0, 8).part(20, 38);
        let declaration = Declaration { sequence, ..Declaration::grex() };
        assert_eq!(Declared::new(declaration).unwrap().shape().period, Some(1 << 38));
    }

    #[test]
    fn impossible_declarations_are_named() {
        let good = presets()[0].0.clone();
        let mut cases = Vec::new();
        let mut case = |name, change: &dyn Fn(&mut Declaration)| {
            let mut declaration = good.clone();
            change(&mut declaration);
            cases.push((name, declaration));
        };
        case("header_bytes", &|d| d.header_bytes = 0);
        case("sequence", &|d| d.sequence.offset = usize::MAX);
        case("sequence", &|d| d.sequence = Field::big(12, 8));
        case("sequence", &|d| d.sequence.bits = 0);
        case("sequence", &|d| d.sequence.shift = u32::MAX);
        case("sources", &|d| d.sources[0].field.bytes = 9);
        case("values", &|d| d.sources[0].values.step = 0);
        case("sources", &|d| d.sources[0].values.count = usize::MAX);
        case("constants", &|d| d.constants[0].value = 1 << 16);
        case("axes", &|d| d.axes[0].count = 0);
        case("axes", &|d| d.axes[0].axis = Axis::Time);
        case("axes", &|d| d.axes[0].count = 1 << 60);
        case("step", &|d| d.step = 0);
        for (name, declaration) in cases {
            let error = Declared::new(declaration).unwrap_err().to_string();
            assert!(error.contains(name), "{name}: {error}");
        }
    }
}
