//! Streams whose packets carry no header: contents, format and clock are known beforehand.
//!
//! A description joins a format of packets with the axes of a block of all its sources: those that tell sources apart, then
//! those of the payload, outermost first. An axis may be given once for the sources and once for the payload (four groups of 256
//! channels); the sources are in the order of the outer one. Where the header has two polarizations and no axis is one, antennas
//! are inputs: both polarizations of the first antenna, then those of the next.

use std::ops::Range;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::io::voltages::layout::Layout;
use crate::io::voltages::{ArrivingFrames, VoltageHeader};
use crate::live::clock::Clock;
#[cfg(target_os = "linux")]
use crate::live::cores::Cores;
use crate::live::declared::{Axis, Declared, Extent};
use crate::live::header::Content;
use crate::live::heaps::Heaps;
use crate::live::packet::{Format, Outcome, Shape};
use crate::live::stream::Stream;
use crate::live::vdif::Frames;
use crate::units::Epoch;
use crate::voltage::VoltageEncoding;

/// Time without packets after which an observation has ended, unless a description says another.
pub const IDLE: Duration = Duration::from_secs(2);

/// Format of the packets of a stream.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Packets {
    /// SPEAD heaps.
    Heaps(Heaps),
    /// Packets with a fixed header.
    Declared(Declared),
    /// VDIF frames.
    Frames(Frames),
}

impl Format for Packets {
    fn shape(&self) -> Shape {
        match self {
            Self::Heaps(heaps) => heaps.shape(),
            Self::Declared(declared) => declared.shape(),
            Self::Frames(frames) => frames.shape(),
        }
    }

    fn part<'a>(&mut self, packet: &'a [u8]) -> Outcome<'a> {
        match self {
            Self::Heaps(heaps) => heaps.part(packet),
            Self::Declared(declared) => declared.part(packet),
            Self::Frames(frames) => frames.part(packet),
        }
    }
}

/// Stream without a header of its own.
#[derive(Clone, Debug)]
pub struct Description {
    packets: Packets,
    begun: Begun,
    clock: Option<Clock>,
    idle: Duration,
    #[cfg(target_os = "linux")]
    cores: Option<Cores>,
}

/// Stream that begins, as its consumer reads it.
#[derive(Clone, Debug)]
pub struct Begun {
    content: Content,
    first: u64,
    times: usize,
    shape: Shape,
    has_end: bool,
    layout: Option<Layout>,
    frames: Option<ArrivingFrames>,
    streams: Vec<Vec<Range<usize>>>,
}

impl Description {
    /// Joins contents, whose start is ignored, with a format, and with the axes of a block of all sources, outermost first: those
    /// of the sources, then those of the payload.
    ///
    /// # Errors
    /// [`Error::Parameter`] for axes that do not give the contents' streams or the format's bytes, and for samples that are
    /// not whole bytes.
    pub fn new(mut content: Content, packets: Packets, axes: &[Extent]) -> Result<Self> {
        let shape = packets.shape();
        match &mut content {
            Content::Spectra(header) => header.tstart_mjd = 0.0,
            Content::Voltages(header) => header.start = Epoch::default(),
        }
        if axes.iter().filter(|extent| extent.axis == Axis::Time).count() > 1 {
            return Err(Error::parameter("axes", "time twice", "time must be one axis"));
        }
        let times = axes.iter().find(|extent| extent.axis == Axis::Time).map_or(1, |e| e.count);
        let (layout, bytes) = match &content {
            Content::Spectra(header) => {
                check_rows(axes, header.channels(), shape.sources)?;
                (None, header.row_bytes().saturating_mul(times))
            }
            Content::Voltages(header) => {
                let streams = header.streams();
                (Some(layout(header, axes)?), streams.saturating_mul(header.encoding.bytes(times)))
            }
        };
        let found = shape.block_bytes.saturating_mul(shape.sources);
        if found != bytes {
            let rule = format!("the packets of {} sources have {found}", shape.sources);
            return Err(Error::parameter("axes (bytes of all sources)", bytes, rule));
        }
        let streams = match &layout {
            Some(layout) => streams_of_sources(layout.positions(), shape.sources)?,
            None => Vec::new(),
        };
        let begun = Begun {
            content,
            first: 0,
            times,
            shape,
            has_end: false,
            layout,
            frames: None,
            streams,
        };
        Ok(Self::of(packets, begun))
    }

    /// Describes a stream without a clock.
    fn of(packets: Packets, begun: Begun) -> Self {
        Self {
            packets,
            begun,
            clock: None,
            idle: IDLE,
            #[cfg(target_os = "linux")]
            cores: None,
        }
    }

    /// Joins the header of a recording of frames with their format and the order of their samples.
    pub(crate) fn of_frames(header: VoltageHeader, frames: Frames, order: ArrivingFrames) -> Self {
        let shape = frames.shape();
        let begun = Begun {
            content: Content::Voltages(header),
            first: 0,
            times: order.times(),
            shape,
            has_end: false,
            layout: None,
            streams: (0..shape.sources).map(|thread| order.streams_of(thread)).collect(),
            frames: Some(order),
        };
        Self::of(Packets::Frames(frames), begun)
    }

    /// Gives the counter a clock; without one the start of an observation is unknown.
    #[must_use]
    pub fn with_clock(mut self, clock: Clock) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Ends an observation after a time without packets.
    ///
    /// # Errors
    /// [`Error::Parameter`] for less than 0.1 s.
    pub fn with_idle(mut self, idle: Duration) -> Result<Self> {
        if idle < Duration::from_millis(100) {
            return Err(Error::parameter("idle_s", idle.as_secs_f64(), "it must be 0.1 or more"));
        }
        self.idle = idle;
        Ok(self)
    }

    /// Receives on these cores, and has the memory of its window on their NUMA node.
    #[cfg(target_os = "linux")]
    #[must_use]
    pub fn with_cores(mut self, cores: Cores) -> Self {
        self.cores = Some(cores);
        self
    }

    /// Returns the cores of the thread that receives; `None` for any.
    #[cfg(target_os = "linux")]
    pub fn cores(&self) -> Option<&Cores> {
        self.cores.as_ref()
    }

    /// Returns the format.
    pub fn packets(&self) -> &Packets {
        &self.packets
    }

    /// Returns the contents, whose start is unknown until a stream begins.
    pub fn content(&self) -> &Content {
        self.begun.content()
    }

    /// Returns the clock of the counter.
    pub fn clock(&self) -> Option<&Clock> {
        self.clock.as_ref()
    }

    /// Returns the time without packets that ends an observation.
    pub fn idle(&self) -> Duration {
        self.idle
    }

    /// Returns the stream that begins with the block of a counter; `now` says how often the counter has wrapped.
    pub(crate) fn begin(&self, first: u64, now: &Epoch) -> Begun {
        let mut begun = Begun { first, ..self.begun.clone() };
        let start = |clock: &Clock| clock.utc(first, clock.wraps(first, now)?);
        // A damaged counter has no date.
        if let Some(Ok(start)) = self.clock.as_ref().map(start) {
            match &mut begun.content {
                Content::Spectra(header) => header.tstart_mjd = start.mjd(),
                Content::Voltages(header) => header.start = start,
            }
        }
        begun
    }

    /// Returns the stream before it begins.
    pub(crate) fn begun(&self) -> &Begun {
        &self.begun
    }
}

impl Begun {
    /// Reads a stream that carries its header.
    pub(crate) fn of(stream: &Stream, shape: Shape) -> Self {
        let layout = stream.layout();
        let streams = layout
            .as_ref()
            .and_then(|layout| streams_of_sources(layout.positions(), shape.sources).ok());
        Self {
            content: stream.content().clone(),
            first: stream.first(),
            times: stream.times(),
            shape,
            has_end: true,
            layout,
            frames: None,
            streams: streams.unwrap_or_default(),
        }
    }

    /// Returns the contents; their header starts at the block [`Begun::first`].
    pub fn content(&self) -> &Content {
        &self.content
    }

    /// Returns the counter of the block at the header's start.
    pub fn first(&self) -> u64 {
        self.first
    }

    /// Returns the samples per block.
    pub fn times(&self) -> usize {
        self.times
    }

    /// Returns the sizes of the blocks.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Returns whether the sender says how many samples of the last block are data. The counter then counts samples.
    pub fn has_end(&self) -> bool {
        self.has_end
    }

    /// Returns the layout of voltages in the blocks of all sources at one time; a group of samples that share bytes is one element.
    /// `None` for spectra, whose sources are groups of channels: axes source, time, channel.
    pub(crate) fn layout(&self) -> Option<&Layout> {
        self.layout.as_ref()
    }

    /// Returns the order of voltages in frames; `None` for other packets.
    pub(crate) fn frames(&self) -> Option<&ArrivingFrames> {
        self.frames.as_ref()
    }

    /// Returns the streams of voltages in each source.
    pub(crate) fn streams(&self) -> &[Vec<Range<usize>>] {
        &self.streams
    }
}

/// Checks that the blocks of spectra are groups of channels: axes channel (sources), time, channel.
fn check_rows(axes: &[Extent], channels: usize, sources: usize) -> Result<()> {
    let mut found: Vec<Extent> = axes.iter().copied().filter(|extent| extent.count > 1).collect();
    if sources > 1 && found.first() == Some(&Extent::new(Axis::Channel, sources)) {
        found.remove(0);
    }
    let order: Vec<Axis> = found.iter().map(|extent| extent.axis).collect();
    let known: [&[Axis]; 4] = [&[], &[Axis::Channel], &[Axis::Time], &[Axis::Time, Axis::Channel]];
    if !known.contains(&order.as_slice()) {
        let rule = "spectra have the axes time, channel, and sources that are groups of channels";
        return Err(Error::parameter("axes", format!("{order:?}").to_lowercase(), rule));
    }
    let own = axes.iter().filter(|extent| extent.axis == Axis::Channel);
    let product = own.fold(1, |product: usize, extent| product.saturating_mul(extent.count));
    check_axis(Axis::Channel, product, channels)
}

fn check_axis(axis: Axis, product: usize, expected: usize) -> Result<()> {
    if product == expected {
        return Ok(());
    }
    let name = match axis {
        Axis::Antenna => "axes (antennas)",
        Axis::Channel => "axes (channels)",
        Axis::Polarization => "axes (polarizations)",
        Axis::Time => "axes (samples)",
    };
    Err(Error::parameter(name, product, format!("the contents have {expected}")))
}

/// Computes the order of voltages in the blocks of all sources at one time.
fn layout(header: &VoltageHeader, axes: &[Extent]) -> Result<Layout> {
    let encoding = header.encoding;
    if matches!(encoding, VoltageEncoding::Real2 | VoltageEncoding::Real4) {
        let rule = "samples in packets have whole bytes";
        return Err(Error::parameter("encoding", format!("{encoding:?}"), rule));
    }
    let mut axes = axes.to_vec();
    let inputs = axes.iter().rposition(|extent| extent.axis == Axis::Antenna);
    if let (2, Some(place)) = (header.polarizations, inputs)
        && !axes.iter().any(|extent| extent.axis == Axis::Polarization)
    {
        if !axes[place].count.is_multiple_of(2) {
            let rule = "without an axis of polarizations, antennas are inputs: two each";
            return Err(Error::parameter("axes (antennas)", axes[place].count, rule));
        }
        axes[place].count /= 2;
        axes.insert(place + 1, Extent::new(Axis::Polarization, 2));
    }
    let polarizations = header.polarizations;
    let channels = header.coarse_channels();
    // Distance in stream index along each level, from the innermost on.
    let mut lengths = [1, 1, 1];
    let mut steps = vec![0; axes.len()];
    for (step, extent) in steps.iter_mut().zip(&axes).rev() {
        let place = match extent.axis {
            Axis::Antenna => 0,
            Axis::Channel => 1,
            Axis::Polarization => 2,
            Axis::Time => continue,
        };
        *step = [channels * polarizations, polarizations, 1][place] * lengths[place];
        lengths[place] = extent.count.saturating_mul(lengths[place]);
    }
    check_axis(Axis::Antenna, lengths[0], header.antennas)?;
    check_axis(Axis::Channel, lengths[1], channels)?;
    check_axis(Axis::Polarization, lengths[2], polarizations)?;
    let (mut streams, mut inner, mut unit) = (vec![0], 1, None);
    for (extent, step) in axes.iter().zip(&steps) {
        if extent.axis == Axis::Time {
            unit = (streams.len() > 1).then_some(extent.count as u64);
            inner = 1;
            continue;
        }
        let count = extent.count;
        streams = streams.iter().flat_map(|s| (0..count).map(move |i| s + i * step)).collect();
        inner *= count;
    }
    // A group of samples that share bytes is one element of the layout.
    let group = encoding.group_samples();
    if group > 1 && (inner > 1 || unit.is_some_and(|unit| !unit.is_multiple_of(group as u64))) {
        let rule =
            format!("{encoding:?} needs time as the last axis, in groups of {group} samples");
        return Err(Error::parameter("axes", format!("{:?}", axes.last()), rule));
    }
    let unit = unit.map(|unit| unit / group as u64);
    Ok(Layout::of_streams(streams, inner, encoding.bytes(group), unit))
}

/// Lists the streams of each source as ranges in ascending order.
fn streams_of_sources(positions: &[usize], sources: usize) -> Result<Vec<Vec<Range<usize>>>> {
    if !positions.len().is_multiple_of(sources) {
        let rule = format!("{sources} sources must have the same number of streams");
        return Err(Error::parameter("axes (streams)", positions.len(), rule));
    }
    let ranges = |own: &[usize]| {
        let mut own = own.to_vec();
        own.sort_unstable();
        let mut ranges: Vec<Range<usize>> = Vec::new();
        for stream in own {
            match ranges.last_mut() {
                Some(range) if range.end == stream => range.end += 1,
                _ => ranges.push(stream..stream + 1),
            }
        }
        ranges
    };
    Ok(positions.chunks_exact((positions.len() / sources).max(1)).map(ranges).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::declared::Declaration;
    use crate::live::packet::Values;

    fn header(antennas: usize, channels: usize, encoding: VoltageEncoding) -> VoltageHeader {
        let centres = (0..channels).map(|channel| 1e9 + channel as f64 * 1e6).collect();
        let mut header = VoltageHeader::new(centres, 1e-6, encoding);
        (header.antennas, header.polarizations) = (antennas, 2);
        header
    }

    fn described(
        header: VoltageHeader,
        declaration: Declaration,
        outer: &[Extent],
    ) -> Result<Begun> {
        let axes: Vec<Extent> = outer.iter().chain(&declaration.axes).copied().collect();
        let packets = Packets::Declared(Declared::new(declaration)?);
        Ok(Description::new(Content::Voltages(header), packets, &axes)?.begun)
    }

    #[test]
    fn groups_of_channels_are_joined() {
        let values = Values { first: 256, step: 256, count: 2 };
        let outer = [Extent::new(Axis::Antenna, 2), Extent::new(Axis::Channel, 2)];
        let header = header(2, 512, VoltageEncoding::Complex4);
        let begun = described(header, Declaration::snap(2, values), &outer).unwrap();
        assert_eq!((begun.times(), begun.shape().step), (16, 16));
        let layout = begun.layout().unwrap();
        assert_eq!((layout.runs(), layout.unit_times()), (1024, 16));
        let own =
            |source: usize| std::iter::once(512 * source..512 * (source + 1)).collect::<Vec<_>>();
        assert_eq!(begun.streams(), (0..4).map(own).collect::<Vec<_>>());
    }

    #[test]
    fn inputs_are_both_polarizations_of_each_antenna() {
        let values = |step, count| Values { first: 0, step, count };
        let declaration = Declaration::snap2(4, 6, values(4, 2), values(6, 2));
        let outer = [Extent::new(Axis::Antenna, 2), Extent::new(Axis::Channel, 2)];
        let header = header(6, 8, VoltageEncoding::Complex4);
        let begun = described(header, declaration, &outer).unwrap();
        let layout = begun.layout().unwrap();
        assert_eq!(layout.left_in_unit(5), u64::MAX);
        // Second group of inputs (antennas 3 to 5) and of channels (4 to 7): channel 5, input 3 of the group.
        let place = ((2 + 1) * 4 + 1) * 6 + 3;
        assert_eq!(layout.positions()[place], (4 * 8 + 5) * 2 + 1);
        assert_eq!(begun.streams()[3], [56..64, 72..80, 88..96]);
    }

    #[test]
    fn axes_that_do_not_fit_are_named() {
        let chips = || Declaration::chips(2, 2, Values::from(0, 1));
        let outer = [Extent::new(Axis::Antenna, 2)];
        let good = header(32, 2, VoltageEncoding::Complex4);
        assert!(described(good.clone(), chips(), &outer).is_ok());
        for (header, outer, name) in [
            (header(16, 2, VoltageEncoding::Complex4), &outer[..], "antennas"),
            (header(32, 3, VoltageEncoding::Complex4), &outer[..], "channels"),
            (header(32, 2, VoltageEncoding::Complex8), &outer[..], "bytes"),
            (header(32, 2, VoltageEncoding::Real4), &outer[..], "encoding"),
            (good.clone(), &[][..], "antennas"),
        ] {
            let error = described(header, chips(), outer).unwrap_err().to_string();
            assert!(error.contains(name), "{name}: {error}");
        }
        let mut twice = chips();
        twice.axes.insert(0, Extent::new(Axis::Time, 2));
        let outer = [Extent::new(Axis::Antenna, 2), Extent::new(Axis::Time, 2)];
        assert!(described(good, twice, &outer).is_err());
    }
}
