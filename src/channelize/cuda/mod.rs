//! Polyphase filter bank on a GPU: a fused kernel if the plan has one, the general path otherwise. Voltages from host
//! memory are processed in chunks: the copies of the next chunk in and of the previous chunk out overlap the
//! computation of the current one.
//!
//! Invariant: results are bit-identical for any split of a stream.
#![allow(unsafe_code)]

mod forms;
mod fused;
mod general;
mod job;
mod launcher;
mod split;

use fused::Shape;
use launcher::Launcher;

use crate::backend::cuda::{
    Buffer, Device, DownloadRing, Extent, Properties, Source, Stream, Target, UploadRing, Variant,
    combinations,
};
use crate::backend::threads::Threads;
use crate::channelize::plan::{Detection, Feed, Form, Options, Output, Plan, Products};
use crate::error::{Error, Result};
use crate::voltage::{VoltageEncoding, Voltages};
pub use forms::{Joining, RowJoiner};
pub use job::DeviceVoltages;
pub(crate) use launcher::sources;

/// Plan bound to a GPU, with staging of host data.
#[derive(Debug)]
pub(super) struct Engine {
    launcher: Launcher,
    host: Host,
    device: Device,
}

impl Engine {
    pub(super) fn new(plan: &Plan, device: &Device, threads: &Threads) -> Result<Self> {
        Ok(Self {
            launcher: Launcher::new(plan, device)?,
            host: Host::new(plan, device, threads)?,
            device: device.clone(),
        })
    }

    /// Returns the device.
    pub(super) fn device(&self) -> &Device {
        &self.device
    }

    /// Returns the counts of saturated values, or zeros if the device has failed, which `run` reports.
    pub(super) fn saturated(&self) -> Vec<u64> {
        self.launcher.saturated()
    }

    pub(super) fn reset(&mut self) {
        self.launcher.reset();
    }

    /// Starts a new stream whose saturated values are counted with those of the old one.
    pub(super) fn restart(&mut self) {
        self.launcher.restart();
    }

    /// Consumes all samples and writes the rows they complete to the front of the output.
    pub(super) fn run(&mut self, input: Voltages<'_>, output: Output<'_>) -> Result<()> {
        let output: &mut [u8] = match output {
            Output::Complex(values) => bytemuck::cast_slice_mut(values),
            Output::F32(values) => bytemuck::cast_slice_mut(values),
            Output::Bytes(bytes) => bytes,
        };
        self.host.run(&mut self.launcher, input, output)
    }

    /// Checks that the buffers are on this device and hold the plan's streams as `layout` says.
    pub(super) fn check(
        &self,
        input: &Buffer<u8>,
        layout: DeviceVoltages,
        output: &Buffer<u8>,
    ) -> Result<()> {
        if input.device() != &self.device || output.device() != &self.device {
            let rule = format!("the plan is bound to device {}", self.device.ordinal());
            return Err(Error::parameter("buffer", "on another CUDA device", rule));
        }
        let plan = self.launcher.plan().input();
        layout.check(plan.encoding, plan.streams(), input.len())
    }

    /// Like [`Engine::run`] for samples in device memory that passed [`Engine::check`]. `output` is an address with
    /// space for the completed rows.
    pub(super) fn enqueue(
        &mut self,
        input: &Buffer<u8>,
        layout: DeviceVoltages,
        output: u64,
        stream: &Stream,
    ) -> Result<()> {
        // SAFETY: `check` has found the samples inside the input buffer, and the output has space for their rows.
        unsafe { self.launcher.enqueue(input.address(), layout, output, stream) }
    }
}

/// Chunks in flight.
const SLOTS: usize = 3;

/// Bytes of a chunk's input and output together.
const CHUNK_BYTES: usize = 1 << 25;

/// Bytes that a thread copies at a time.
const PIECE: usize = 1 << 18;

/// Padding before a chunk's samples, so that windows can begin at a multiple of 16 bytes.
const FRONT: usize = 16;

/// Streams and staging memory, sized for the largest call so far and at most one full chunk.
#[derive(Debug)]
struct Host {
    threads: Threads,
    uploads: UploadRing,
    kernels: Stream,
    downloads: DownloadRing<u8>,
    /// Samples per stream of a chunk.
    times: usize,
    /// Maximum samples per chunk.
    max_times: usize,
}

impl Host {
    fn new(plan: &Plan, device: &Device, threads: &Threads) -> Result<Self> {
        let unit = plan.input().encoding.group_samples();
        let row_bytes = plan.row_elements() * plan.element_bytes();
        let hop_bytes =
            plan.input().streams() * plan.input().encoding.bytes(plan.samples_per_row());
        let rows = CHUNK_BYTES as f64 / (row_bytes + hop_bytes) as f64;
        let max_times = (rows * plan.samples_per_row() as f64) as usize / unit * unit;
        Ok(Self {
            threads: threads.clone(),
            uploads: UploadRing::new(device, 0, SLOTS)?,
            kernels: device.stream()?,
            downloads: DownloadRing::new(device, 0, SLOTS)?,
            times: 0,
            max_times: max_times.max(unit),
        })
    }

    /// Like [`Engine::run`], chunk by chunk; `output` has space for the completed rows.
    fn run(
        &mut self,
        launcher: &mut Launcher,
        input: Voltages<'_>,
        output: &mut [u8],
    ) -> Result<()> {
        self.grow(launcher.plan(), input.times())?;
        let mut whole = 0;
        self.chunks(launcher, input, output, &mut whole).map_err(|error| {
            self.downloads.discard();
            with_valid_bytes(error, whole)
        })
    }

    fn chunks(
        &mut self,
        launcher: &mut Launcher,
        input: Voltages<'_>,
        output: &mut [u8],
        whole: &mut usize,
    ) -> Result<()> {
        let (mut taken, mut used) = (0, 0);
        while taken < input.times() {
            if self.downloads.is_full() {
                self.receive(output, whole)?;
            }
            let times = self.times.min(input.times() - taken);
            let part = input.slice(taken, times)?;
            let bytes = launcher.row_bytes_after(times);
            self.enqueue(launcher, part)?;
            self.downloads.send(used..used + bytes, bytes, &self.kernels)?;
            (taken, used) = (taken + times, used + bytes);
        }
        while self.receive(output, whole)? {}
        Ok(())
    }

    /// Enqueues the copy of a chunk and its computation.
    fn enqueue(&mut self, launcher: &mut Launcher, part: Voltages<'_>) -> Result<()> {
        let pad = launcher.pad();
        let stride = (pad + part.encoding().bytes(part.times())).next_multiple_of(FRONT);
        let layout = DeviceVoltages { first_byte: pad, stride, times: part.times() };
        let fill = |host: &mut [u8]| {
            self.threads.for_each(host, PIECE, |index, piece| {
                copy_rows(part, pad, stride, index * PIECE, piece);
            });
        };
        let input = self.uploads.upload(stride * part.streams(), &self.kernels, fill)?.address();
        let output = self.downloads.target(&self.kernels)?.address();
        // SAFETY: the device buffers have space for a chunk's samples and rows.
        unsafe { launcher.enqueue(input, layout, output, &self.kernels)? };
        self.uploads.release(&self.kernels)
    }

    /// Copies the oldest chunk's rows to the output; returns whether there was one.
    fn receive(&mut self, output: &mut [u8], whole: &mut usize) -> Result<bool> {
        let Some((range, rows)) = self.downloads.receive()? else { return Ok(false) };
        *whole = range.end;
        self.threads.copy(rows, &mut output[range]);
        Ok(true)
    }

    /// Allocates staging memory for `times` samples or for full chunks; halves the chunk if memory is short.
    fn grow(&mut self, plan: &Plan, times: usize) -> Result<()> {
        let unit = plan.input().encoding.group_samples();
        let wanted = times.next_power_of_two().next_multiple_of(unit).min(self.max_times);
        if wanted <= self.times {
            return Ok(());
        }
        self.times = 0;
        let mut times = wanted;
        loop {
            match self.resize(plan, times) {
                Ok(()) => {
                    self.times = times;
                    return Ok(());
                }
                Err(error) if times == unit => return Err(error),
                Err(_) => times = (times / 2 / unit * unit).max(unit),
            }
        }
    }

    fn resize(&mut self, plan: &Plan, times: usize) -> Result<()> {
        let input = plan.input();
        let stride = (FRONT + input.encoding.bytes(times)).next_multiple_of(FRONT);
        let row = plan.row_elements() * plan.element_bytes();
        // The memory of both rings is free before either allocates.
        self.downloads.resize(0)?;
        self.uploads.resize(stride.saturating_mul(input.streams()))?;
        self.downloads.resize(row.saturating_mul(plan.max_rows(times)))
    }
}

/// Fills `piece`, the bytes from `start` of a staging buffer whose rows are `stride` bytes apart and begin with `pad`
/// bytes of padding.
fn copy_rows(part: Voltages<'_>, pad: usize, stride: usize, start: usize, piece: &mut [u8]) {
    let end = start + piece.len();
    for stream in start / stride..end.div_ceil(stride) {
        let row = part.row(stream);
        let first = stream * stride + pad;
        let (from, to) = (first.max(start), (first + row.len()).min(end));
        if from < to {
            piece[from - start..to - start].copy_from_slice(&row[from - first..to - first]);
        }
    }
}

/// Adds to a device error that the call's output is valid up to byte `whole`.
fn with_valid_bytes(error: Error, whole: usize) -> Error {
    match error {
        Error::Device { call, code, text } => {
            let text = format!("{text}; the first {whole} bytes of this call's output are valid");
            Error::Device { call, code, text }
        }
        other => other,
    }
}

/// Returns the kernels of this stage.
pub fn kernels(extent: Extent) -> Vec<Variant> {
    let plain = |source| Variant::plain(source, extent);
    let sums = VoltageEncoding::ALL.iter().map(|encoding| plain(general::fir(*encoding)));
    let general =
        sums.chain([Variant::everywhere(forms::source()), plain(forms::joining_source())]);
    let long = long_plans();
    let split = long.iter().flat_map(|plan| split_sums(plan, extent));
    let lines = split_lines(&long).into_iter().map(plain);
    let pairs = pair_plans(extent).into_iter().filter_map(|plan| general::pairs(&plan)).map(plain);
    let fused = plans(extent);
    let fused = fused.iter().flat_map(fused_kernels);
    general.chain(fused).chain(split).chain(lines).chain(pairs).collect()
}

/// Maximum shared memory per block of compute capability 8.0, and of 9.0 and 10.0.
const SHARED_BYTES: [((u32, u32), usize); 2] = [((8, 0), 163 << 10), ((9, 0), 227 << 10)];

/// Returns the properties of one device for each entry of [`SHARED_BYTES`].
fn devices() -> [Properties; 2] {
    SHARED_BYTES.map(|(capability, shared_bytes)| Properties {
        name: String::new(),
        capability,
        target: Target { capability, is_own: true },
        multiprocessors: 1,
        memory_bytes: 0,
        l2_bytes: 0,
        shared_bytes,
        driver_version: 0,
    })
}

/// Assigns each source to the older architecture, the newer ones, or both.
fn of_devices([old, new]: [Vec<Source>; 2]) -> Vec<Variant> {
    let (both, old): (Vec<Source>, Vec<Source>) =
        old.into_iter().partition(|source| new.contains(source));
    let new = new.into_iter().filter(|source| !both.contains(source)).collect::<Vec<Source>>();
    let variant = |architectures| move |source| Variant { source, architectures };
    let old = old.into_iter().map(variant(&["sm_80"]));
    let new = new.into_iter().map(variant(&["sm_90a", "sm_100"]));
    old.chain(new).chain(both.into_iter().map(Variant::everywhere)).collect()
}

/// Returns a plan's fused kernels.
fn fused_kernels(plan: &Plan) -> Vec<Variant> {
    of_devices(
        devices().map(|device| Shape::defaults(plan, &device).iter().map(Shape::source).collect()),
    )
}

/// Returns the first kernel of a long transform; for the newer devices only, unless `extent` is `All`.
fn split_sums(plan: &Plan, extent: Extent) -> Vec<Variant> {
    let source = |device: Properties| {
        let shape = split::Shape::candidates(plan, &device).first().copied();
        shape.map(|shape| shape.sums_source())
    };
    let [old, new] = devices().map(source);
    match extent {
        Extent::Representative => new.into_iter().map(|new| Variant::plain(new, extent)).collect(),
        Extent::All => of_devices([old, new].map(|source| source.into_iter().collect())),
    }
}

/// Returns the second kernels of long transforms without duplicates; they do not depend on the taps.
fn split_lines(plans: &[Plan]) -> Vec<Source> {
    let [_, device] = devices();
    let mut sources: Vec<Source> = Vec::new();
    for plan in plans {
        let shape = split::Shape::candidates(plan, &device).first().copied();
        let source = shape.map(|shape| shape.lines_source());
        sources.extend(source.filter(|source| !sources.contains(source)));
    }
    sources
}

/// Returns plans that use the two split kernels.
fn long_plans() -> Vec<Plan> {
    let axes: &[(&'static str, &[&str])] = &[
        ("channels", &["262144", "65536", "131072", "32768", "65536"]),
        ("taps", &["8", "4", "16", "32", "8"]),
        ("encoding", &["3", "4", "1", "0", "2"]),
        ("form", &["0"]),
    ];
    // Representative combinations only: all of them would have billions of coefficients.
    combinations(axes, Extent::Representative).into_iter().filter_map(plan).collect()
}

/// Returns plans that use the kernel for pairs of columns.
fn pair_plans(extent: Extent) -> Vec<Plan> {
    let axes: &[(&'static str, &[&str])] = &[
        ("channels", &["3000"]),
        ("taps", &["8", "16", "32"]),
        ("encoding", &["1", "3", "4"]),
        ("form", &["0"]),
    ];
    combinations(axes, extent).into_iter().filter_map(plan).collect()
}

/// Returns plans that have a fused kernel.
fn plans(extent: Extent) -> Vec<Plan> {
    let axes: &[(&'static str, &[&str])] = &[
        ("channels", &["256", "512", "1024", "2048", "4096", "8192", "16384"]),
        ("taps", &["8", "4", "16", "32", "64"]),
        ("encoding", &["1", "0", "2", "3", "4"]),
        ("form", &["0", "1", "2", "3", "4", "5"]),
    ];
    combinations(axes, extent).into_iter().filter_map(plan).collect()
}

/// Returns the plan of a number of channels, taps, and indices into the lists of encodings and forms.
fn plan(set: Vec<(&'static str, String)>) -> Option<Plan> {
    use VoltageEncoding::{Complex4, Complex8, Complex16, ComplexF32, ComplexOffset8};
    let encodings = [Complex4, Complex8, ComplexOffset8, Complex16, ComplexF32];
    let numbers: Vec<usize> = set.iter().filter_map(|value| value.1.parse().ok()).collect();
    let [channels, taps, encoding, form] = numbers[..] else { return None };
    let mut options = Options::new(channels, taps, encodings[encoding]);
    options.input.polarizations = 2;
    options.form = forms_of_plans()[form].clone();
    Plan::new(options).ok()
}

/// Returns the forms that the fused kernel writes.
fn forms_of_plans() -> [Form; 6] {
    let detected = |products| {
        Form::Detected(Detection {
            products,
            feed: Feed::Linear,
            spectra: 16,
            channels: 1,
            interpolate_dc: false,
        })
    };
    let integers = |bits| Form::Requantized { bits, gains: vec![1.0] };
    [
        Form::Spectra,
        detected(Products::Power),
        detected(Products::I),
        integers(8),
        detected(Products::Iquv),
        integers(4),
    ]
}
