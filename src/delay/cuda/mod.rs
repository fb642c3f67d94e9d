//! Delay correction on a GPU, fused with the corner turn: antennas' samples to the X-engine's input order.
//!
//! Invariant: an output sample's bits depend only on the input sample, its delay, its gain and its channel.
#![allow(unsafe_code)]

use num_complex::Complex;

use super::plan::{Band, Form, Options, Plan, Rows, Slope};
use crate::backend::cuda::{
    Arguments, Buffer, Device, DownloadRing, Extent, Function, Source, Stream, UploadRing, Variant,
    combinations,
};
use crate::backend::threads::Threads;
use crate::error::{Error, Result};
use crate::voltage::VoltageEncoding;

/// Alignment of rows in device memory in bytes.
const ALIGNED: usize = 16;

/// Layout of samples in a device buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceSamples {
    /// Offset of the first sample: a multiple of 16 bytes for voltages, of 8 for spectra.
    pub first_byte: usize,
    /// For voltages, bytes from one stream to the next: a multiple of 16, and enough for a multiple of 8 samples.
    /// For spectra, bytes from one time to the next.
    pub stride: usize,
    /// Samples of each stream, or spectra.
    pub times: usize,
}

/// Layout of delays in device memory.
#[derive(Clone, Copy, Debug)]
pub struct DeviceDelays<'a> {
    /// Axes antenna, time, (total, residual), in seconds.
    pub seconds: &'a Buffer<f64>,
    /// Index of the first (total, residual) pair.
    pub first: usize,
    /// Pairs from one antenna to the next.
    pub stride: usize,
}

/// Layout of the output in device memory: axes channel, input, time, with rows at multiples of 16 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Natural {
    /// Offset of the first input of the first channel.
    pub first_byte: usize,
    /// Bytes from one channel to the next.
    pub channel_stride: usize,
    /// Bytes from one input to the next: at least a row, rounded up to a multiple of 16.
    pub input_stride: usize,
}

/// Plan bound to a GPU.
#[derive(Debug)]
pub(super) struct Engine {
    device: Device,
    threads: Threads,
    plan: Plan,
    function: Function,
    inputs: Buffer<u32>,
    /// Sky frequency of each recorded channel's zero frequency in Hz; one unused element without delays.
    zeros: Buffer<f64>,
    /// Gains on the host; axes antenna, polarization, channel, (re, im). Empty for [`Form::Recorded`].
    table: Vec<f32>,
    /// Copy of `table` on the device.
    gains: Buffer<f32>,
    /// Saturated samples of each input.
    saturated: Buffer<u64>,
    /// Staging of host memory; `None` before the first call with it.
    host: Option<Box<Host>>,
}

impl Engine {
    pub(super) fn new(plan: &Plan, device: &Device, threads: &Threads) -> Result<Self> {
        let options = plan.options();
        let name = match options.form {
            Form::Spectra => "turn_spectra",
            Form::Voltages { .. } => "turn_streams",
            Form::Recorded => "copy_streams",
        };
        let module = device.module(&source(plan))?;
        let inputs: Vec<u32> = options.inputs.iter().map(|input| *input as u32).collect();
        let zeros = options.band.as_ref().map_or(vec![0.0], |band| band.zeros_hz.clone());
        let elements = 0..plan.row_elements();
        let own: Vec<f32> =
            elements.map(|i| plan.gain(i)).flat_map(|gain| [gain.re, gain.im]).collect();
        let table = match options.form {
            Form::Recorded => Vec::new(),
            _ => own.repeat(options.inputs.len()),
        };
        Ok(Self {
            device: device.clone(),
            threads: threads.clone(),
            function: module.function(name, 0)?,
            inputs: device.upload(&inputs)?,
            zeros: device.upload(&zeros)?,
            gains: device.upload(&table)?,
            table,
            saturated: device.upload(&vec![0; options.inputs_end()])?,
            plan: plan.clone(),
            host: None,
        })
    }

    pub(super) fn set_gains<'a>(
        &mut self,
        antennas: impl IntoIterator<Item = (usize, &'a [Complex<f32>])>,
    ) -> Result<()> {
        let elements = self.plan.row_elements();
        let mut table = self.table.clone();
        for (antenna, gains) in antennas {
            if antenna >= self.plan.options().inputs.len() || table.is_empty() {
                let rule = format!("{} antennas have gains", table.len() / (2 * elements));
                return Err(Error::parameter("antenna", antenna, rule));
            }
            self.plan.check_gains(gains)?;
            let own = table[2 * antenna * elements..][..2 * elements].chunks_exact_mut(2);
            for (parts, gain) in own.zip(gains.iter().cycle()) {
                parts.copy_from_slice(&[gain.re, gain.im]);
            }
        }
        // The driver frees the previous gains when no queued work reads them.
        let uploaded = self.device.upload(&table)?;
        if let Some(host) = &mut self.host {
            host.set_gains(&table)?;
        }
        (self.gains, self.table) = (uploaded, table);
        Ok(())
    }

    pub(super) fn saturated(&self) -> Result<Vec<u64>> {
        let mut all = vec![0; self.saturated.len()];
        self.saturated.download(0, &mut all)?;
        let polarizations = self.plan.options().polarizations;
        let own = |input: &usize| all[*input..*input + polarizations].to_vec();
        let mut counts: Vec<u64> = self.plan.options().inputs.iter().flat_map(own).collect();
        if let Some(host) = &self.host {
            let pairs = host.pairs.saturated()?;
            let each = pairs.chunks_exact(self.plan.options().coarse_channels);
            counts
                .iter_mut()
                .zip(each)
                .for_each(|(count, each)| *count += each.iter().sum::<u64>());
        }
        Ok(counts)
    }

    pub(super) fn reset(&mut self) -> Result<()> {
        self.saturated.upload(&vec![0; self.saturated.len()])?;
        self.host.as_mut().map_or(Ok(()), |host| host.pairs.reset())
    }

    /// Corrects one antenna's spectra in host memory.
    pub(super) fn run(
        &mut self,
        spectra: &[Complex<f32>],
        slopes: &[Slope],
        rows: Rows<'_>,
    ) -> Result<()> {
        self.plan.check_host()?;
        let host = match &mut self.host {
            Some(host) => host,
            None => {
                let host = Host::new(&self.plan, &self.table, &self.device, &self.threads)?;
                self.host.insert(Box::new(host))
            }
        };
        host.run(spectra, slopes, rows).inspect_err(|_| host.rows.discard())
    }

    pub(super) fn enqueue(
        &mut self,
        samples: &Buffer<u8>,
        from: DeviceSamples,
        delays: Option<DeviceDelays<'_>>,
        spectra: &mut Buffer<u8>,
        to: Natural,
        stream: &Stream,
    ) -> Result<()> {
        let plan = &self.plan;
        samples.check_on(&self.device)?;
        spectra.check_on(&self.device)?;
        if from.times == 0 {
            return Ok(());
        }
        plan.check_samples(samples, from)?;
        plan.check_delays(delays.as_ref(), from.times, &self.device)?;
        plan.check_natural(spectra, to, from.times)?;
        let (grid, threads) = self.grid(from.times);
        let all = Arguments::new().with(samples.at(from.first_byte));
        let all = self.geometry(all, from);
        let all = match plan.options().form {
            Form::Recorded => all,
            _ => self.weights(all, delays.as_ref()),
        };
        let all = all
            .with(self.inputs.address())
            .with(spectra.at(to.first_byte))
            .with(to.channel_stride as u64)
            .with(to.input_stride as u64);
        let all = match plan.options().form {
            Form::Recorded => all,
            _ => all.with(self.saturated.address()),
        };
        // SAFETY: the arguments match the kernel; the samples, delays and rows lie in their buffers.
        unsafe { stream.launch(&self.function, grid, [threads, 1, 1], &all) }
    }

    /// Returns the grid of thread blocks, and the threads per block.
    fn grid(&self, times: usize) -> ([usize; 3], usize) {
        let options = self.plan.options();
        let (antennas, coarse) = (options.inputs.len(), options.coarse_channels);
        let is_float = options.encoding == VoltageEncoding::ComplexF32;
        match options.form {
            Form::Spectra => {
                // A tile has 32 words of times; a word is 32 bits or one float sample.
                let tile = if is_float { 32 } else { 32 * 16 / options.encoding.bits() };
                ([coarse * options.channels.div_ceil(32), times.div_ceil(tile), antennas], 256)
            }
            Form::Voltages { .. } => {
                let tile = 32 * if is_float { 2 } else { 8 };
                ([times.div_ceil(tile), coarse.div_ceil(32), antennas], 128)
            }
            Form::Recorded => {
                let pieces = options.encoding.bytes(times).div_ceil(16);
                let rows = coarse * options.polarizations;
                ([pieces.div_ceil(32), rows.div_ceil(64), antennas], 256)
            }
        }
    }

    /// Appends the kernel arguments that describe the samples.
    fn geometry(&self, all: Arguments, from: DeviceSamples) -> Arguments {
        let options = self.plan.options();
        match options.form {
            Form::Spectra => all
                .with((from.stride / 8) as u64)
                .with(from.times as u32)
                .with((options.coarse_channels * options.channels) as u32)
                .with(options.channels as u32),
            Form::Voltages { scale, .. } => all
                .with(from.stride as u64)
                .with(from.times as u32)
                .with(options.coarse_channels as u32)
                .with(scale),
            Form::Recorded => all
                .with(from.stride as u64)
                .with(options.encoding.bytes(from.times).div_ceil(16) as u32)
                .with(options.coarse_channels as u32)
                .with(options.polarizations as u32),
        }
    }

    /// Appends the kernel arguments for delays, band and gains.
    fn weights(&self, all: Arguments, delays: Option<&DeviceDelays<'_>>) -> Arguments {
        let used = delays.filter(|_| self.plan.options().band.is_some());
        let (first, stride) =
            used.map_or((0, 0), |own| (own.seconds.at(2 * own.first), own.stride));
        let (first_hz, step_hz) = self
            .plan
            .options()
            .band
            .as_ref()
            .map_or((0.0, 0.0), |band| (band.first_hz, band.step_hz));
        all.with(first)
            .with(stride as u64)
            .with(self.zeros.address())
            .with(first_hz)
            .with(step_hz)
            .with(self.gains.address())
    }
}

/// Checks of layouts.
impl Plan {
    /// # Errors
    /// [`Error::Parameter`] for misaligned addresses; [`Error::Shape`] when the samples exceed the buffer.
    fn check_samples(&self, buffer: &Buffer<u8>, at: DeviceSamples) -> Result<()> {
        let options = self.options();
        let streams = options.inputs.len() * options.polarizations * options.coarse_channels;
        let (unit, row, rows) = match options.form {
            Form::Spectra => (8, 8 * options.inputs.len() * self.row_elements(), at.times),
            Form::Voltages { encoding, .. } => {
                (ALIGNED, encoding.bytes(at.times.next_multiple_of(8)), streams)
            }
            Form::Recorded => {
                (ALIGNED, options.encoding.bytes(at.times).next_multiple_of(ALIGNED), streams)
            }
        };
        check_multiple("first byte of samples", at.first_byte, unit)?;
        check_multiple("stride of samples (bytes)", at.stride, unit)?;
        at_least("stride of samples (bytes)", row, at.stride)?;
        let end = at.first_byte.saturating_add((rows.max(1) - 1).saturating_mul(at.stride));
        at_least("samples (bytes)", end.saturating_add(row), buffer.len())
    }

    /// # Errors
    /// As for [`Self::check_samples`].
    fn check_natural(&self, buffer: &Buffer<u8>, at: Natural, times: usize) -> Result<()> {
        for (name, bytes) in [
            ("first byte of inputs", at.first_byte),
            ("stride of channels (bytes)", at.channel_stride),
            ("stride of inputs (bytes)", at.input_stride),
        ] {
            check_multiple(name, bytes, ALIGNED)?;
        }
        let options = self.options();
        let row = options.encoding.bytes(times).next_multiple_of(ALIGNED);
        at_least("stride of inputs (bytes)", row, at.input_stride)?;
        let channel =
            (options.inputs_end() - 1).saturating_mul(at.input_stride).saturating_add(row);
        at_least("stride of channels (bytes)", channel, at.channel_stride)?;
        let end = (self.channels() - 1).saturating_mul(at.channel_stride).saturating_add(channel);
        at_least("inputs (bytes)", at.first_byte.saturating_add(end), buffer.len())
    }

    /// # Errors
    /// [`Error::Parameter`] when required delays are missing or on another device; [`Error::Shape`] when they exceed
    /// their buffer. Delays without a band are ignored.
    fn check_delays(
        &self,
        delays: Option<&DeviceDelays<'_>>,
        times: usize,
        device: &Device,
    ) -> Result<()> {
        let at = match (&self.options().band, delays) {
            (None, _) => return Ok(()),
            (Some(_), None) => {
                let rule = "the plan corrects delays, so delays must be given";
                return Err(Error::parameter("delays", "none", rule));
            }
            (Some(_), Some(at)) => at,
        };
        at.seconds.check_on(device)?;
        let last =
            (self.options().inputs.len() - 1).saturating_mul(at.stride).saturating_add(times);
        let end = at.first.saturating_add(last).saturating_mul(2);
        at_least("delays (antenna, time, 2)", end, at.seconds.len())
    }
}

fn at_least(what: &'static str, expected: usize, actual: usize) -> Result<()> {
    if actual >= expected { Ok(()) } else { Err(Error::Shape { what, expected, actual }) }
}

fn check_multiple(name: &'static str, bytes: usize, unit: usize) -> Result<()> {
    if bytes.is_multiple_of(unit) {
        return Ok(());
    }
    Err(Error::parameter(name, bytes, format!("it must be a multiple of {unit}")))
}

/// Maximum bytes of spectra copied to the device at a time.
const PIECE_BYTES: usize = 16 << 20;

/// Maximum number of spectra in a piece, limited by the grid of a launch.
const MAX_TIMES: usize = 1 << 16;

/// Pieces in flight.
const SLOTS: usize = 3;

/// Staging of spectra in host memory.
///
/// The engine `pairs` treats each (polarization, recorded channel) as an antenna whose (total, residual) delay is the
/// slope's (start, step), because the slopes of several recorded channels do not follow from a single delay.
#[derive(Debug)]
struct Host {
    threads: Threads,
    pairs: Engine,
    spectra: UploadRing,
    /// Axes recorded channel of a polarization, time, (start, step).
    slopes: UploadRing<f64>,
    work: Stream,
    rows: DownloadRing<u8>,
    polarizations: usize,
    coarse: usize,
    channels: usize,
    encoding: VoltageEncoding,
    max_times: usize,
}

impl Host {
    fn new(plan: &Plan, gains: &[f32], device: &Device, threads: &Threads) -> Result<Self> {
        let Options { polarizations, coarse_channels: coarse, channels, encoding, .. } =
            *plan.options();
        let pairs = polarizations * coarse;
        let engine = Engine::new(
            &Plan::new(Options {
                inputs: (0..pairs).collect(),
                band: Some(Band { zeros_hz: vec![1.0], first_hz: 0.0, step_hz: 1.0 }),
                ..Options::one_antenna(1, 1, channels, encoding)
            })?,
            device,
            threads,
        )?;
        let row_bytes = 8 * plan.row_elements();
        let max_times = (PIECE_BYTES / row_bytes).clamp(1, MAX_TIMES);
        let stride = encoding.bytes(max_times).next_multiple_of(16);
        let mut host = Self {
            threads: threads.clone(),
            pairs: engine,
            spectra: UploadRing::new(device, max_times * row_bytes, SLOTS)?,
            slopes: UploadRing::new(device, 2 * pairs * max_times, SLOTS)?,
            work: device.stream()?,
            rows: DownloadRing::new(device, channels * pairs * stride, SLOTS)?,
            polarizations,
            coarse,
            channels,
            encoding,
            max_times,
        };
        host.set_gains(gains)?;
        Ok(host)
    }

    /// Replaces the gains; axes polarization, channel, (re, im).
    fn set_gains(&mut self, gains: &[f32]) -> Result<()> {
        let gains: &[Complex<f32>] = bytemuck::cast_slice(gains);
        self.pairs.set_gains(gains.chunks_exact(self.channels).enumerate())
    }

    fn run(
        &mut self,
        spectra: &[Complex<f32>],
        slopes: &[Slope],
        mut rows: Rows<'_>,
    ) -> Result<()> {
        let elements = self.polarizations * self.coarse * self.channels;
        let pieces = spectra.chunks(self.max_times * elements);
        let mut first = rows.first;
        for (spectra, slopes) in pieces.zip(slopes.chunks(self.max_times * self.coarse)) {
            if self.rows.is_full() {
                self.receive(&mut rows)?;
            }
            let times = spectra.len() / elements;
            self.enqueue(bytemuck::cast_slice(spectra), slopes, times)?;
            let bytes = self.layout(times).channel_stride * self.channels;
            self.rows.send(first..first + times, bytes, &self.work)?;
            first += times;
        }
        while self.receive(&mut rows)? {}
        Ok(())
    }

    fn layout(&self, times: usize) -> Natural {
        let input_stride = self.encoding.bytes(times).next_multiple_of(16);
        let channel_stride = self.polarizations * self.coarse * input_stride;
        Natural { first_byte: 0, channel_stride, input_stride }
    }

    fn enqueue(&mut self, spectra: &[u8], slopes: &[Slope], times: usize) -> Result<()> {
        let (coarse, layout) = (self.coarse, self.layout(times));
        let pairs = self.polarizations * coarse;
        let fill = |host: &mut [f64]| {
            for (pair, own) in host.chunks_exact_mut(2 * times).enumerate() {
                let slopes = slopes.iter().skip(pair % coarse).step_by(coarse);
                for (to, slope) in own.chunks_exact_mut(2).zip(slopes) {
                    to.copy_from_slice(&[slope.start, slope.step]);
                }
            }
        };
        let seconds = self.slopes.upload(2 * pairs * times, &self.work, fill)?;
        let copy = |host: &mut [u8]| self.threads.copy(spectra, host);
        let samples = self.spectra.upload(spectra.len(), &self.work, copy)?;
        let rows = self.rows.target(&self.work)?;
        // Initializes the padding between rows, which kernels do not write.
        self.work.fill(rows, 0..layout.channel_stride * self.channels, 0)?;
        let from = DeviceSamples { first_byte: 0, stride: spectra.len() / times, times };
        let delays = DeviceDelays { seconds, first: 0, stride: times };
        self.pairs.enqueue(samples, from, Some(delays), rows, layout, &self.work)?;
        self.slopes.release(&self.work)?;
        self.spectra.release(&self.work)
    }

    /// Transposes the oldest piece in flight into the caller's rows; returns whether there was one.
    fn receive(&mut self, rows: &mut Rows<'_>) -> Result<bool> {
        let Some((times, bytes)) = self.rows.receive()? else { return Ok(false) };
        let (coarse, channels, encoding) = (self.coarse, self.channels, self.encoding);
        let size = encoding.sample_bits() / 8;
        let input_stride = encoding.bytes(times.len()).next_multiple_of(16);
        let channel_stride = self.polarizations * coarse * input_stride;
        let (row_times, row_bytes) = (rows.times, coarse * channels * size);
        self.threads.for_each(rows.bytes, row_bytes, |row, to| {
            let (polarization, time) = (row / row_times, row % row_times);
            if !times.contains(&time) {
                return;
            }
            for (element, to) in to.chunks_exact_mut(size).enumerate() {
                let input = polarization * coarse + element / channels;
                let at = element % channels * channel_stride
                    + input * input_stride
                    + (time - times.start) * size;
                to.copy_from_slice(&bytes[at..at + size]);
            }
        });
        Ok(true)
    }
}

const INCLUDES: &[(&str, &str)] = &[("sample.cuh", include_str!("sample.cuh"))];

/// Compile-time parameters of the output.
#[derive(Clone, Copy, Debug)]
struct Shape {
    /// Bits of a real number in the output.
    bits: usize,
    polarizations: usize,
    /// Whether there are delays.
    turns: bool,
}

impl Shape {
    fn defines(self) -> Vec<(&'static str, String)> {
        vec![
            ("BITS", self.bits.to_string()),
            ("POLARIZATIONS", self.polarizations.to_string()),
            ("TURNS", u8::from(self.turns).to_string()),
        ]
    }
}

/// Returns the kernel of a plan.
pub(crate) fn source(plan: &Plan) -> Source {
    let options = plan.options();
    let shape = Shape {
        bits: options.encoding.bits(),
        polarizations: options.polarizations,
        turns: options.band.is_some(),
    };
    match options.form {
        Form::Spectra => spectra_source(shape),
        Form::Voltages { encoding, .. } => streams_source(shape, encoding),
        Form::Recorded => copies_source(),
    }
}

/// Returns the source of the kernel for a filter bank's spectra.
fn spectra_source(shape: Shape) -> Source {
    let text = include_str!("spectra.cu");
    Source { name: "spectra.cu", text, includes: INCLUDES, defines: shape.defines() }
}

/// Returns the source of the kernel for voltages of a complex encoding.
fn streams_source(shape: Shape, encoding: VoltageEncoding) -> Source {
    let place = VoltageEncoding::ALL.iter().position(|other| *other == encoding).unwrap_or(0);
    let mut defines = shape.defines();
    defines.push(("ENCODING", place.to_string()));
    Source { name: "streams.cu", text: include_str!("streams.cu"), includes: INCLUDES, defines }
}

/// Returns the source of the kernel for voltages without delays and gains.
fn copies_source() -> Source {
    Source {
        name: "copies.cu",
        text: include_str!("copies.cu"),
        includes: &[],
        defines: Vec::new(),
    }
}

/// Returns the kernels of this stage.
pub fn kernels(extent: Extent) -> Vec<Variant> {
    let axes: &[(&'static str, &[&str])] = &[
        ("BITS", &["8", "4", "32"]),
        ("POLARIZATIONS", &["2", "1"]),
        ("TURNS", &["1", "0"]),
        ("ENCODING", &["1", "0", "2", "3", "4"]),
    ];
    let shape = |set: &[(&'static str, String)]| {
        let number = |at: usize| set[at].1.parse().unwrap_or(0);
        Shape { bits: number(0), polarizations: number(1), turns: number(2) == 1 }
    };
    let spectra = combinations(&axes[..3], extent);
    let spectra = spectra.iter().map(|set| Variant::everywhere(spectra_source(shape(set))));
    let streams = combinations(axes, extent);
    let streams = streams.iter().map(|set| {
        let place: usize = set[3].1.parse().unwrap_or(0);
        Variant::plain(streams_source(shape(set), VoltageEncoding::ALL[place]), extent)
    });
    spectra.chain(streams).chain([Variant::plain(copies_source(), extent)]).collect()
}
