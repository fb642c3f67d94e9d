//! Delay correction on a GPU, fused with the corner turn: from antennas' samples to the X-engine's input order.
//!
//! Invariant: a sample's bits depend on its value, its delay, its gain and its channel alone.
#![allow(unsafe_code)]

mod options;

use num_complex::Complex;

use crate::backend::cuda::{
    Arguments, Buffer, Device, Extent, Function, Source, Stream, Variant, combinations,
};
use crate::error::{Error, Result};
use crate::view::check_length;
use crate::voltage::VoltageEncoding;
pub use options::{DeviceDelays, DeviceOptions, DeviceSamples, Form, Natural};

/// Applies delay correction to antennas' samples on a device and transposes them to the X-engine's input order.
///
/// `y[c C + k, i, t] = round(g[i, c C + k] x[i, c C + k, t] exp(2 pi i (start[a, t, c] + k step[a, t])))`, with C
/// channels in recorded channel c and the slopes of [`crate::delay::Band::slope`], as in [`crate::delay::Aligner`].
///
/// | buffer   | axes                                       | type                    | access      |
/// |----------|--------------------------------------------|-------------------------|-------------|
/// | `x`      | see [`Form`]                               | see [`Form`]            | read        |
/// | `delays` | antenna, time, (total, residual)                | f64, in seconds         | read        |
/// | `y`      | channel, input, time                       | complex 4 or 8 bit, f32 | overwritten |
///
/// Inputs of other antennas are not written. Bytes after the last time of a row, up to a multiple of 16, may be
/// overwritten.
///
/// # Numerics
/// As [`crate::delay::Aligner`]: within `2^-20` of the value's magnitude before rounding. Slopes are computed as on
/// the host, with the same roundings, in double precision; further phases are 64-bit fractions of a turn. Integers
/// differ by one from another backend's only where a value lies midway between two. The bits are the same for any
/// split.
/// # Real time
/// [`enqueue`](Self::enqueue) allocates nothing.
/// # Source
/// As [`crate::delay::Aligner`].
#[derive(Debug)]
pub struct DeviceAligner {
    device: Device,
    options: DeviceOptions,
    function: Function,
    inputs: Buffer<u32>,
    /// Zero frequencies; one unused element without delays.
    zeros: Buffer<f64>,
    /// Gains, axes antenna, polarization, channel, (re, im), and their copy on the device.
    table: Vec<f32>,
    gains: Buffer<f32>,
    /// Saturated samples of each input.
    saturated: Buffer<u64>,
}

impl DeviceAligner {
    /// Binds the options to a device; gains are 0 until they are set.
    ///
    /// # Errors
    /// [`Error::Parameter`] for unsupported options; [`Error::Unavailable`] without memory or NVRTC;
    /// [`Error::Device`] when the driver fails.
    pub fn new(device: &Device, options: DeviceOptions) -> Result<Self> {
        options.check()?;
        let shape = Shape {
            bits: options.encoding.bits(),
            polarizations: options.polarizations,
            turns: options.band.is_some(),
        };
        let (source, name) = match options.form {
            Form::Spectra => (spectra_source(shape), "turn_spectra"),
            Form::Voltages { encoding, .. } => (streams_source(shape, encoding), "turn_streams"),
            Form::Recorded => (copies_source(), "copy_streams"),
        };
        let module = device.module(&source)?;
        let inputs: Vec<u32> = options.inputs.iter().map(|input| *input as u32).collect();
        let zeros = options.band.as_ref().map_or(vec![0.0], |band| band.zeros_hz.clone());
        let table = match options.form {
            Form::Recorded => Vec::new(),
            _ => vec![0.0; 2 * options.inputs.len() * options.elements()],
        };
        Ok(Self {
            device: device.clone(),
            function: module.function(name, 0)?,
            inputs: device.upload(&inputs)?,
            zeros: device.upload(&zeros)?,
            gains: device.upload(&table)?,
            table,
            saturated: device.upload(&vec![0; options.inputs_end()])?,
            options,
        })
    }

    /// Returns the options.
    pub fn options(&self) -> &DeviceOptions {
        &self.options
    }

    /// Sets the gains of some antennas, by their index: one for all elements, or axes polarization, channel. Work
    /// queued before uses the previous gains.
    ///
    /// # Errors
    /// [`Error::Shape`] for another number of gains; [`Error::Parameter`] for an antenna out of range or
    /// [`Form::Recorded`]; and those of [`Self::new`].
    pub fn set_gains<'a>(
        &mut self,
        antennas: impl IntoIterator<Item = (usize, &'a [Complex<f32>])>,
    ) -> Result<()> {
        let elements = self.options.elements();
        for (antenna, gains) in antennas {
            if antenna >= self.options.inputs.len() || self.table.is_empty() {
                let rule = format!("{} antennas have gains", self.table.len() / (2 * elements));
                return Err(Error::parameter("antenna", antenna, rule));
            }
            if gains.len() != 1 {
                check_length("gains (polarization, channel)", elements, gains.len())?;
            }
            let own = self.table[2 * antenna * elements..][..2 * elements].chunks_exact_mut(2);
            for (parts, gain) in own.zip(gains.iter().cycle()) {
                parts.copy_from_slice(&[gain.re, gain.im]);
            }
        }
        // The driver frees the previous gains when no queued work reads them.
        self.gains = self.device.upload(&self.table)?;
        Ok(())
    }

    /// Returns the saturated complex samples of each input, of all queued work; axes antenna, polarization.
    ///
    /// # Errors
    /// [`Error::Device`] when any of that work failed.
    pub fn saturated(&self) -> Result<Vec<u64>> {
        let mut all = vec![0; self.saturated.len()];
        self.saturated.download(0, &mut all)?;
        let own = |input: &usize| all[*input..*input + self.options.polarizations].to_vec();
        Ok(self.options.inputs.iter().flat_map(own).collect())
    }

    /// Queues the work on `stream` and returns. Only `stream` may access the buffers until it has run.
    ///
    /// # Errors
    /// [`Error::Parameter`] for buffers of another device, misaligned addresses, or missing delays;
    /// [`Error::Shape`] when data exceed their buffer; [`Error::Device`] when the driver fails.
    pub fn enqueue(
        &mut self,
        samples: &Buffer<u8>,
        from: DeviceSamples,
        delays: Option<DeviceDelays<'_>>,
        spectra: &mut Buffer<u8>,
        to: Natural,
        stream: &Stream,
    ) -> Result<()> {
        let options = &self.options;
        samples.check_on(&self.device)?;
        spectra.check_on(&self.device)?;
        if from.times == 0 {
            return Ok(());
        }
        options.check_samples(samples, from)?;
        options.check_delays(delays.as_ref(), from.times, &self.device)?;
        options.check_natural(spectra, to, from.times)?;
        let (grid, threads) = self.grid(from.times);
        let all = Arguments::new().with(samples.at(from.first_byte));
        let all = self.geometry(all, from);
        let all = match options.form {
            Form::Recorded => all,
            _ => self.weights(all, delays.as_ref()),
        };
        let all = all
            .with(self.inputs.address())
            .with(spectra.at(to.first_byte))
            .with(to.channel_stride as u64)
            .with(to.input_stride as u64);
        let all = match options.form {
            Form::Recorded => all,
            _ => all.with(self.saturated.address()),
        };
        // SAFETY: the arguments match the kernel; the samples, delays and rows lie in their buffers.
        unsafe { stream.launch(&self.function, grid, [threads, 1, 1], &all) }
    }

    /// Returns the blocks, and the threads of each.
    fn grid(&self, times: usize) -> ([usize; 3], usize) {
        let options = &self.options;
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

    /// Appends the kernel's arguments on the samples.
    fn geometry(&self, all: Arguments, from: DeviceSamples) -> Arguments {
        let options = &self.options;
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

    /// Appends delays, band and gains.
    fn weights(&self, all: Arguments, delays: Option<&DeviceDelays<'_>>) -> Arguments {
        let used = delays.filter(|_| self.options.band.is_some());
        let (first, stride) =
            used.map_or((0, 0), |own| (own.seconds.at(2 * own.first), own.stride));
        let (first_hz, step_hz) =
            self.options.band.as_ref().map_or((0.0, 0.0), |band| (band.first_hz, band.step_hz));
        all.with(first)
            .with(stride as u64)
            .with(self.zeros.address())
            .with(first_hz)
            .with(step_hz)
            .with(self.gains.address())
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
