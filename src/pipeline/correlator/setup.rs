//! Construction of a correlator from recordings and options.
//!
//! Invariant: what is built can be run; every fault of options and headers is found here.

use super::antenna::{AntennaInput, Bank, SampleLocation};
use super::device::{Kind, OnDevice, Wanted};
use super::f_engine::{FEngine, Parts, Spectra};
use super::gains::{self, GainControl, Table, encoding};
use super::header::{ArrayHeader, BankHeader};
use super::inputs::{ArrayInput, Baseline, Channels, Recordings, chosen, numbers};
use super::options::{Asked, CorrelateOptions, Gains};
use super::tracking::{self, Delays, Model, Tracking};
use super::window::{Flags, WindowedSource, unpacked, unpacked_encoding};
use super::x_engine::XEngine;
use crate::backend::threads::Threads;
use crate::backend::{Backend, Host};
use crate::channelize::{self, Channelizer, Form, Input, Order};
use crate::correlate;
use crate::error::{Error, Result};
use crate::io::voltages::{VoltageHeader, VoltageSource};
use crate::pipeline::budget;
use crate::view::check_memory;
use crate::voltage::{VoltageBlock, VoltageEncoding};

/// Bytes of one antenna's spectra between filter bank and alignment.
const TILE_BYTES: usize = 1 << 20;

/// Components of a correlator.
pub(super) struct Built {
    pub(super) header: ArrayHeader,
    pub(super) tracking: Tracking,
    pub(super) f_engine: FEngine,
    pub(super) x_engine: XEngine,
    pub(super) baselines: Vec<Baseline>,
}

/// Geometry of the spectra.
pub(super) struct Shape {
    recordings: Recordings,
    /// Filter bank; none if the voltages are already channelized.
    pub(super) bank: Option<channelize::Plan>,
    pub(super) channels: Channels,
    /// Whether there are no delays.
    pub(super) fixed: bool,
    /// Whether recorded integers are multiplied unchanged.
    pub(super) direct: bool,
    pub(super) encoding: VoltageEncoding,
    /// Number of spectra.
    pub(super) spectra: u64,
    /// Spectra per integration.
    integration: u64,
}

/// Allocated buffer for spectra, on the host or on a device.
pub(super) struct Room {
    pub(super) spectra: Spectra,
    /// Spectra per gulp.
    pub(super) capacity: usize,
    /// Why the spectra are not computed on the GPU that multiplies them, if there is one.
    pub(super) not_on_device: Option<String>,
}

/// Builds all components.
///
/// # Errors
/// As [`super::ArrayCorrelator::new`].
pub(super) fn build(asked: Asked<'_>, inputs: Vec<ArrayInput>) -> Result<Built> {
    let options = asked.options;
    let numbers = numbers(asked.array, &inputs, options.missing)?;
    let headers: Vec<&VoltageHeader> = inputs.iter().map(|input| input.source.header()).collect();
    let cut: Vec<bool> = inputs.iter().map(|input| input.source.cut().is_some()).collect();
    let recordings = Recordings::new(&headers, &cut, options)?;
    let tracking = Tracking::new(asked.array, &recordings.header, recordings.times, options)?;
    let model = tracking::model(&asked, &tracking, &recordings)?;
    if matches!(model, Model::None) {
        recordings.check_whole(&headers)?;
    }
    let shape = Shape::new(recordings, &headers, options, matches!(model, Model::None))?;
    let mut stations = numbers.clone();
    stations.sort_unstable();
    let baselines = chosen(asked.array, &options.baselines, &stations)?;
    let header = shape.header(&asked, &stations, &baselines, tracking.dut1_s());
    let threads = match &asked.backend.host() {
        Host::Reference => Threads::new(1),
        Host::Cpu(_, threads) => threads.clone(),
    };
    let plan = correlate::Plan::new(correlate::Options {
        antennas: stations.len(),
        polarizations: header.polarizations,
        channels: shape.channels.correlated(),
        encoding: shape.encoding,
    })?
    .with_precision(options.precision);
    let options = &shape.fitted(&asked, &plan, baselines.len(), &inputs)?;
    let asked = Asked { options, ..asked };
    let capacity = gulp_capacity(&plan, shape.spectra, options.gulp);
    shape.check_memory(&asked, &plan, capacity, baselines.len(), &inputs)?;
    let x_engine = XEngine::new(plan.clone(), shape.integration, asked.backend, &threads)?;
    let delays = Delays::new(model, header.spectrum_s / shape.steps().0 as f64, shape.steps());
    let sources = shape.sources(inputs);
    let Room { spectra, capacity, not_on_device } =
        shape.room(&asked, &plan, (&sources, &numbers), capacity)?;
    let mut stations = shape.stations(&asked, &sources, &numbers, capacity)?;
    if !matches!(spectra, Spectra::Rows(_) | Spectra::Streams(_)) {
        stations = stations.into_iter().map(AntennaInput::on_device).collect();
    }
    let sources = shape.windowed_sources(sources, capacity);
    let parts = Parts { sources, stations, channels: shape.channels, delays, not_on_device };
    let f_engine = FEngine::new(parts, spectra, capacity, &threads);
    Ok(Built { header, tracking, f_engine, x_engine, baselines })
}

impl Shape {
    fn new(
        recordings: Recordings,
        headers: &[&VoltageHeader],
        options: &CorrelateOptions,
        fixed: bool,
    ) -> Result<Self> {
        let header = &recordings.header;
        let divided = options.channelize.unwrap_or(header.filter.is_none());
        if !divided && !header.encoding.is_complex() {
            let rule = "real samples are no channels: they must be channelized";
            return Err(Error::parameter("encoding", format!("{:?}", header.encoding), rule));
        }
        let bank = divided.then(|| bank_plan(header, options)).transpose()?;
        let channels = Channels::new(header, bank.as_ref(), options.average_channels)?;
        let asked = encoding(options.nbits)?;
        gains::check_precision(options.precision, options.nbits)?;
        let recorded = header.encoding;
        let exact =
            [VoltageEncoding::Complex4, VoltageEncoding::Complex8, VoltageEncoding::ComplexF32];
        let direct = !divided
            && fixed
            && options.gains == Gains::Auto
            && exact.contains(&recorded)
            && recorded.bits() <= asked.bits()
            && headers.iter().all(|other| other.encoding == recorded);
        let (hop, span) = bank.as_ref().map_or((1, 1), |plan| (plan.hop(), plan.span()));
        let times = recordings.times;
        let spectra = if times < span as u64 { 0 } else { (times - span as u64) / hop as u64 + 1 };
        if spectra == 0 {
            let rule = format!(
                "a spectrum has {span} samples under its window (`taps`, `channelize.channels`), and {} has no more",
                header.path.display(),
            );
            return Err(Error::parameter("samples that all recordings have", times, rule));
        }
        let integration = integration_spectra(options, header, times, hop)?;
        let encoding = if direct { recorded } else { asked };
        Ok(Self { recordings, bank, channels, fixed, direct, encoding, spectra, integration })
    }

    /// Returns the samples between spectra (hop) and the samples under a window (span).
    fn steps(&self) -> (u64, u64) {
        self.bank.as_ref().map_or((1, 1), |plan| (plan.hop() as u64, plan.span() as u64))
    }

    /// Returns the options with a gulp small enough for the memory limit.
    ///
    /// # Errors
    /// [`Error::Unavailable`], with the need and the limit, when a gulp of one spectrum does not fit.
    fn fitted(
        &self,
        asked: &Asked<'_>,
        plan: &correlate::Plan,
        baselines: usize,
        inputs: &[ArrayInput],
    ) -> Result<CorrelateOptions> {
        let mut options = asked.options.clone();
        if options.memory.is_none() {
            return Ok(options);
        }
        loop {
            let asked = Asked { options: &options, ..*asked };
            let capacity = gulp_capacity(plan, self.spectra, options.gulp);
            let bytes = self.bytes(&asked, plan, capacity, baselines, inputs);
            let held = bytes.unwrap_or(usize::MAX);
            match budget::remaining_bytes(options.memory, "the correlation", held, 0) {
                Ok(_) => return Ok(options),
                Err(error) if capacity == 1 => return Err(error),
                Err(_) => options.gulp = capacity / 2,
            }
        }
    }

    /// Checks that memory suffices for the X-engine, a gulp and an integration.
    ///
    /// # Errors
    /// [`Error::Unavailable`] naming the bytes.
    fn check_memory(
        &self,
        asked: &Asked<'_>,
        plan: &correlate::Plan,
        capacity: usize,
        baselines: usize,
        inputs: &[ArrayInput],
    ) -> Result<()> {
        let bytes = self.bytes(asked, plan, capacity, baselines, inputs);
        let what = format!(
            "{} antennas with {} polarizations and {} channels",
            plan.antennas(),
            plan.polarizations(),
            plan.channels()
        );
        check_memory(&what, bytes)
    }

    /// Returns the bytes of the X-engine, a gulp and an integration; `None` if the count overflows.
    fn bytes(
        &self,
        asked: &Asked<'_>,
        plan: &correlate::Plan,
        capacity: usize,
        baselines: usize,
        inputs: &[ArrayInput],
    ) -> Option<usize> {
        let row = plan.inputs() * plan.channels() * self.encoding.sample_bits() / 8;
        let channels = plan.channels() / self.channels.average();
        let visibilities = (baselines * channels).checked_mul(16 * plan.pairs() + 8);
        let (hop, span) = (self.steps().0 as usize, self.steps().1 as usize);
        let together = most_gulp_capacity(plan, self.spectra, asked.options.gulp, asked.backend);
        let times = together.checked_mul(hop).and_then(|times| times.checked_add(span));
        let window = |input: &ArrayInput| {
            let header = input.source.header();
            let bits = unpacked_encoding(header.encoding).sample_bits();
            Some(header.streams().checked_mul(times?)?.checked_mul(bits)? / 8)
        };
        let windows = inputs.iter().map(window);
        let parts = [
            XEngine::bytes(plan, capacity, asked.backend),
            capacity.checked_mul(row),
            visibilities,
        ];
        let all = parts.into_iter().chain(windows);
        all.reduce(|sum, part| sum?.checked_add(part?)).flatten()
    }

    /// Allocates the spectra of a gulp: on a device if memory suffices, else on the host.
    fn room(
        &self,
        asked: &Asked<'_>,
        plan: &correlate::Plan,
        recorded: (&[Box<dyn VoltageSource>], &[usize]),
        capacity: usize,
    ) -> Result<Room> {
        let not_on_device = match self.room_on_device(asked, plan, recorded)? {
            Ok(room) => return Ok(room),
            Err(why) => why,
        };
        let streams = plan.inputs() * plan.channels();
        let row = streams * self.encoding.sample_bits() / 8;
        let spectra = match self.direct {
            true => Spectra::Streams(VoltageBlock::new(self.encoding, streams, capacity)),
            false => Spectra::Rows(vec![0; capacity * row]),
        };
        Ok(Room { spectra, capacity, not_on_device })
    }

    fn header(
        &self,
        asked: &Asked<'_>,
        stations: &[usize],
        baselines: &[Baseline],
        dut1_s: f64,
    ) -> ArrayHeader {
        let recorded = &self.recordings.header;
        let antennas = asked.array.antennas.len();
        ArrayHeader {
            array: asked.array.clone(),
            present: (0..antennas).map(|i| stations.binary_search(&i).is_ok()).collect(),
            baselines: baselines.iter().map(|baseline| baseline.antennas).collect(),
            polarizations: recorded.polarizations,
            circular: recorded.circular == Some(true),
            frequencies_hz: self.channels.centres_hz().to_vec(),
            channel_width_hz: self.channels.width_hz(),
            average_channels: self.channels.average(),
            start: recorded.start,
            spectrum_s: self.steps().0 as f64 * recorded.tsamp_s,
            window_s: self.steps().1 as f64 * recorded.tsamp_s,
            spectra: self.spectra,
            integration_spectra: self.integration,
            integrations: self.spectra.div_ceil(self.integration),
            phase_centre: asked.options.phase_centre.clone(),
            dut1_s,
            source_name: recorded.source_name.clone(),
            bank: BankHeader {
                channelized_here: self.bank.is_some(),
                channels: self.channels.fine,
                taps: self.bank.as_ref().map_or(0, channelize::Plan::taps),
                window: self.bank.as_ref().map_or(String::new(), |p| p.options().window.name()),
                nbits: self.encoding.bits(),
                precision: match asked.backend.is_gpu() {
                    true => asked.options.precision,
                    false => correlate::Precision::F32,
                },
                as_recorded: self.direct,
                sample_rate_hz: 1.0 / recorded.tsamp_s,
            },
        }
    }

    /// Returns the sources, unpacked where windows must begin at samples that are not on byte boundaries.
    fn sources(&self, inputs: Vec<ArrayInput>) -> Vec<Box<dyn VoltageSource>> {
        let hop = self.steps().0;
        let sources = inputs.into_iter().zip(&self.recordings.offsets).map(|(input, offset)| {
            let source = input.source;
            let step = source.header().encoding.samples_per_byte() as u64;
            let whole = offset.is_multiple_of(step) && hop.is_multiple_of(step);
            if self.fixed && whole { source } else { unpacked(source) }
        });
        sources.collect()
    }

    fn windowed_sources(
        &self,
        sources: Vec<Box<dyn VoltageSource>>,
        capacity: usize,
    ) -> Vec<WindowedSource> {
        let Recordings { lengths, offsets, times, .. } = &self.recordings;
        let pairs = sources.into_iter().zip(lengths.iter().zip(offsets));
        let windowed = |(source, (length, offset)): (Box<dyn VoltageSource>, (&u64, &u64))| {
            let gulp = read_times(source.header(), capacity, self.steps());
            WindowedSource::new(source, (*length, offset + times), (gulp, self.steps().1))
        };
        pairs.map(windowed).collect()
    }

    /// Builds the antennas, by ascending array number.
    fn stations(
        &self,
        asked: &Asked<'_>,
        sources: &[Box<dyn VoltageSource>],
        numbers: &[usize],
        capacity: usize,
    ) -> Result<Vec<AntennaInput>> {
        let (channels, options) = (&self.channels, asked.options);
        let backend = match &asked.backend.host() {
            Host::Reference => Backend::Reference,
            Host::Cpu(level, _) => Backend::Cpu(*level, Threads::new(1)),
        };
        let table =
            Table::new(&options.gains, asked.array.antennas.len(), &self.recordings, channels)?;
        let mut stations = Vec::new();
        let mut numbers = numbers.iter();
        for (recording, source) in sources.iter().enumerate() {
            let header = source.header();
            let each = header.coarse_channels() * header.polarizations;
            for (antenna, number) in (0..header.antennas).zip(numbers.by_ref()) {
                let place = SampleLocation {
                    antenna: *number,
                    recording,
                    streams: antenna * each..(antenna + 1) * each,
                    offset: self.recordings.offsets[recording],
                    sample_lag: if self.fixed {
                        0.0
                    } else {
                        self.recordings.sample_lag[recording]
                    },
                    length: self.recordings.lengths[recording],
                };
                let flags = Flags::new(source.flags(), &place.streams, header.polarizations);
                let parts = (self.bank(header, &backend)?, flags);
                let gains = match self.direct {
                    true => gains::Source::Fixed((1.0 / header.scale) as f32),
                    false => gains::source(&options.gains, &table, *number),
                };
                let shape = (channels.coarse, channels.fine);
                let level = GainControl::new(header.polarizations, shape, self.encoding, gains);
                let tile = (TILE_BYTES / (8 * level.elements())).clamp(4, 256);
                stations.push(AntennaInput::new(place, parts, level, (tile, capacity), &backend));
            }
        }
        stations.sort_by_key(|station: &AntennaInput| station.location().antenna);
        Ok(stations)
    }

    fn bank(&self, header: &VoltageHeader, backend: &Backend) -> Result<Bank> {
        let Some(plan) = &self.bank else {
            let scale = if self.direct { 1.0 } else { header.scale as f32 };
            return Ok(Bank::Recorded { polarizations: header.polarizations, scale });
        };
        let input = Input { encoding: header.encoding, scale: header.scale, ..*plan.input() };
        let plan = channelize::Plan::new(channelize::Options { input, ..plan.options().clone() })?;
        Ok(Bank::Filter(Box::new(Channelizer::new(plan, backend)?)))
    }
}

impl Shape {
    /// Allocates the F-engine on the GPU and returns it with the number of spectra per call. If memory or the filter
    /// bank's library is missing, returns the reason, and the host computes the spectra. Without a GPU backend there
    /// is no reason.
    fn room_on_device(
        &self,
        asked: &Asked<'_>,
        plan: &correlate::Plan,
        (sources, numbers): (&[Box<dyn VoltageSource>], &[usize]),
    ) -> Result<std::result::Result<Room, Option<String>>> {
        let Backend::Cuda(device, _) = asked.backend else { return Ok(Err(None)) };
        let kinds = kinds(sources, numbers);
        let capacity = gulp_capacity_on_device(plan, self.spectra, asked.options.gulp);
        let wanted = Wanted {
            plan,
            channels: &self.channels,
            bank: self.bank.as_ref(),
            fixed: self.fixed,
            direct: self.direct,
            kinds: &kinds,
            capacity,
        };
        match OnDevice::new(device, &wanted) {
            Ok(made) => {
                let spectra = Spectra::Device(Box::new(made));
                Ok(Ok(Room { spectra, capacity, not_on_device: None }))
            }
            Err(error @ Error::Unavailable { .. }) => Ok(Err(Some(error.to_string()))),
            Err(error) => Err(error),
        }
    }
}

/// Returns the sample format of each antenna, by ascending array number.
fn kinds(sources: &[Box<dyn VoltageSource>], numbers: &[usize]) -> Vec<Kind> {
    let kinds = sources.iter().flat_map(|source| {
        let header = source.header();
        let kind = Kind { encoding: header.encoding, scale: header.scale };
        std::iter::repeat_n(kind, header.antennas)
    });
    let mut all: Vec<(usize, Kind)> = numbers.iter().copied().zip(kinds).collect();
    all.sort_by_key(|(number, _)| *number);
    all.into_iter().map(|(_, kind)| kind).collect()
}

/// Bytes of spectra per gulp, if that gives at least the fewest spectra.
const GULP_BYTES: usize = 64 << 20;

/// Largest number of spectra per gulp.
const MOST: usize = 1024;

/// Smallest number of spectra per gulp, unless there are few inputs: the X-engine reads and writes its sums, as many
/// as inputs squared, once per gulp.
const FEWEST: usize = 256;

/// Upper bound in bytes on the spectra of a gulp, even for a requested gulp.
const MOST_BYTES: usize = 4 << 30;

/// Bytes per read of a recording.
const READ_BYTES: usize = 1 << 20;

/// Bytes of a device's filter-bank output per gulp.
const DEVICE_BYTES: usize = 1 << 30;

/// Largest number of spectra per gulp on a device, unless more are requested.
const DEVICE_MOST: usize = 1 << 14;

/// Upper bound on a device: with 32-bit spectra each block of a launch covers 32 spectra, and a launch has at most
/// 65535.
const LAUNCH_MOST: usize = 65_535 * 32;

/// Returns the spectra per gulp, at most `spectra`; `gulp` requests a number.
fn gulp_capacity(plan: &correlate::Plan, spectra: u64, gulp: usize) -> usize {
    let row = plan.inputs() * plan.channels() * plan.encoding().sample_bits() / 8;
    let fewest = (4 * plan.inputs()).clamp(16, FEWEST);
    let chosen = (GULP_BYTES / row).clamp(fewest, MOST);
    // Rounds down to whole words of the mask.
    let chosen = if chosen < 64 { chosen } else { chosen / 64 * 64 };
    bounded(if gulp == 0 { chosen } else { gulp }, row, spectra)
}

/// Like [`gulp_capacity`], for a device, which holds spectra in single precision before requantization.
fn gulp_capacity_on_device(plan: &correlate::Plan, spectra: u64, gulp: usize) -> usize {
    let row = 8 * plan.inputs() * plan.channels();
    let chosen = (DEVICE_BYTES / row).clamp(16, DEVICE_MOST);
    let chosen = if chosen < 64 { chosen } else { chosen / 64 * 64 };
    bounded(if gulp == 0 { chosen } else { gulp }, row, spectra).min(LAUNCH_MOST)
}

/// Returns the largest number of spectra per gulp wherever the backend may compute them.
fn most_gulp_capacity(
    plan: &correlate::Plan,
    spectra: u64,
    gulp: usize,
    backend: &Backend,
) -> usize {
    let host = gulp_capacity(plan, spectra, gulp);
    if backend.is_gpu() {
        return host.max(gulp_capacity_on_device(plan, spectra, gulp));
    }
    let _ = backend;
    host
}

fn bounded(asked: usize, row: usize, spectra: u64) -> usize {
    asked.min((MOST_BYTES / row).max(1)).min(usize::try_from(spectra).unwrap_or(MOST))
}

/// Returns the plan of one antenna's filter bank.
fn bank_plan(header: &VoltageHeader, options: &CorrelateOptions) -> Result<channelize::Plan> {
    channelize::Plan::new(channelize::Options {
        channels: options.channels,
        taps: options.taps,
        window: options.window.clone(),
        oversampling: (1, 1),
        input: Input {
            encoding: header.encoding,
            scale: header.scale,
            antennas: 1,
            coarse_channels: header.coarse_channels(),
            polarizations: header.polarizations,
        },
        order: Order::Ascending,
        reverse_coarse: false,
        form: Form::Spectra,
    })
}

/// Returns the spectra per integration.
fn integration_spectra(
    options: &CorrelateOptions,
    header: &VoltageHeader,
    times: u64,
    hop: usize,
) -> Result<u64> {
    let (asked, spectrum) = (options.integration_s, hop as f64 * header.tsamp_s);
    if !(asked.is_finite() && asked > 0.0) {
        return Err(Error::parameter("integration_s", asked, "it must be above 0"));
    }
    // Relative error of a recording's length due to the rounding of the rate in its header.
    const ROUNDING: f64 = 1e-9;
    let whole = (times / hop as u64).max(1);
    let spectra = (asked / spectrum).round().clamp(1.0, whole as f64);
    if asked > times as f64 * header.tsamp_s * (1.0 + ROUNDING) {
        let rule = format!(
            "{} and the other recordings have {:.6} s in common",
            header.path.display(),
            times as f64 * header.tsamp_s,
        );
        return Err(Error::parameter("integration_s", asked, rule));
    }
    Ok(spectra as u64)
}

/// Returns the samples per read of a recording.
fn read_times(header: &VoltageHeader, capacity: usize, (hop, span): (u64, u64)) -> usize {
    let all = capacity as u64 * hop + span;
    let fitting = READ_BYTES * 8 / (header.streams() * header.encoding.sample_bits());
    fitting.max(1024).min(usize::try_from(all).unwrap_or(fitting))
}
