//! Construction of a correlator from recordings and options.
//!
//! Invariant: a correlator that is built can run; construction reports all faults of options and headers.

use std::sync::Arc;

use super::antenna::{
    AntennaInput, Bank, GainControl, GainSource, GainTable, SampleLocation, check_precision,
    encoding,
};
use super::device::{DeviceConfig, DeviceFEngine, SampleFormat};
use super::device_messages::{DeviceReceiver, DeviceSender};
use super::divided::{DeviceCornerTurn, Divided};
use super::division::{Division, EnginePlans, GULPS, MessageForm};
use super::f_engine::{FEngine, Parts, Spectra};
use super::messages::Messages;
use super::options::{ArrayHeader, BankHeader, CorrelateOptions, Gains, Request};
use super::peers::OnDevice;
use super::reading::{Reader, Sources};
use super::recordings::{
    ArrayInput, Baseline, Channels, Delays, ENDLESS, Model, Recordings, Tracking, array_numbers,
    delay_model, select_baselines,
};
use super::remote::owners as owners_of;
use super::window::{Flags, Framing, unpacked};
use super::x_engine::{Readout, XEngine};
use crate::backend::cuda::{Device, Prefetch, Source};
use crate::backend::threads::Threads;
use crate::backend::{Backend, Host};
use crate::channelize::{Channelizer, Form, Input, Order};
use crate::error::{Error, Result};
use crate::geometry::Array;
use crate::io::voltages::{VoltageHeader, VoltageSource};
use crate::pipeline::exchange::{Ranks, check_spectra};
use crate::pipeline::run::remaining_bytes;
use crate::view::check_memory;
use crate::voltage::{VoltageBlock, VoltageEncoding};
use crate::{channelize, correlate};

/// Components of a correlator.
pub(super) struct Built {
    pub(super) header: ArrayHeader,
    pub(super) tracking: Tracking,
    pub(super) f_engine: FEngine,
    pub(super) x_engine: XEngine,
    pub(super) readout: Readout,
    pub(super) baselines: Vec<Baseline>,
    /// None in a single process.
    pub(super) divided: Option<Divided>,
}

/// Checked parameters of the spectra, from recordings and options.
struct SpectraParameters {
    recordings: Recordings,
    /// Filter bank; none if the voltages are already channelized.
    bank: Option<channelize::Plan>,
    channels: Channels,
    /// Whether there are no delays.
    fixed: bool,
    /// Whether recorded integers are multiplied unchanged.
    direct: bool,
    encoding: VoltageEncoding,
    /// Number of spectra.
    spectra: u64,
    /// Spectra per integration.
    integration: u64,
}

/// Spectra per gulp.
#[derive(Clone, Copy)]
struct Gulps {
    on_host: usize,
    on_device: usize,
}

/// Messages to other ranks.
struct ToRanks {
    form: Arc<MessageForm>,
    /// None if the host computes the spectra.
    on_device: Option<DeviceCornerTurn>,
}

/// Spectra of a rank's GPU, and their messages.
struct OfRank {
    spectra: Spectra,
    to_ranks: ToRanks,
}

/// Allocated buffer for spectra, on the host or on a device.
struct SpectraBuffer {
    spectra: Spectra,
    /// Spectra per gulp.
    capacity: usize,
    /// None in a single process.
    to_ranks: Option<ToRanks>,
    /// Reason why the spectra are not computed on the GPU that multiplies them; `None` if they are, or without a GPU.
    not_on_device: Option<String>,
}

/// Part of a correlation that this process computes.
struct Part {
    /// Messages of a gulp that the host computes; none in a single process.
    form: Option<MessageForm>,
    /// Array numbers of the antennas whose spectra are computed here, ascending.
    antennas: Vec<usize>,
    /// Plan of all antennas and channels.
    whole: correlate::Plan,
    /// Plans of the spectra and of the products computed here.
    plans: EnginePlans,
    readout: Readout,
}

impl Part {
    /// # Errors
    /// As [`Division::new`] and [`correlate::Plan::new`].
    fn new(
        shape: &SpectraParameters,
        correlated: &[usize],
        owners: Option<&[usize]>,
        options: &CorrelateOptions,
        ranks: Option<&Ranks>,
    ) -> Result<Self> {
        let whole = correlate::Plan::new(correlate::Options {
            antennas: correlated.len(),
            polarizations: shape.recordings.header.polarizations,
            channels: shape.channels.order.len(),
            encoding: shape.encoding,
        })?
        .with_precision(options.precision);
        let Some(ranks) = ranks else {
            return Ok(Self {
                antennas: correlated.to_vec(),
                plans: EnginePlans { f_engine: whole.clone(), x_engine: whole.clone() },
                whole,
                readout: Readout::new(&shape.channels),
                form: None,
            });
        };
        if shape.recordings.times < ENDLESS {
            check_spectra(shape.spectra)?;
        }
        let division = Division::new(ranks, correlated.len(), owners, &shape.channels)?;
        let (plans, channels) = (division.plans(&whole)?, &shape.channels);
        let (runs, outputs) = (&division.channels[division.own], &division.outputs[division.own]);
        Ok(Self {
            antennas: correlated[division.antennas()].to_vec(),
            readout: Readout::part(channels, runs, outputs),
            form: Some(MessageForm::new(division, plans.x_engine.clone(), shape.direct)),
            plans,
            whole,
        })
    }

    /// Returns the number of spectra per gulp on GPUs, which the rank with the most antennas limits.
    fn capacity_on_device(&self, spectra: u64, gulp: usize) -> usize {
        let own = &self.plans.f_engine;
        let most = self.form.as_ref().map(|form| form.division().most_antennas());
        let inputs = most.unwrap_or(own.antennas()) * own.polarizations();
        gulp_capacity_on_device(inputs * own.channels(), spectra, gulp)
    }

    /// Returns the spectra per gulp, the same at all ranks; `gulp` is the requested number, or 0.
    ///
    /// # Errors
    /// As [`Ranks::least`].
    fn gulps(&self, spectra: u64, gulp: usize, ranks: Option<&mut Ranks>) -> Result<Gulps> {
        let on_host = gulp_capacity(&self.whole, spectra, gulp);
        let on_device = self.capacity_on_device(spectra, gulp);
        let Some(ranks) = ranks else { return Ok(Gulps { on_host, on_device }) };
        Ok(Gulps {
            on_host: ranks.least(on_host as u64)? as usize,
            on_device: ranks.least(on_device as u64)? as usize,
        })
    }
}

/// Builds all components: those of one process, or of one rank.
///
/// # Errors
/// As [`super::ArrayCorrelator::new`] and [`super::ArrayCorrelator::divided`].
pub(super) fn build(
    request: Request<'_>,
    inputs: Vec<ArrayInput>,
    mut ranks: Option<Ranks>,
) -> Result<Built> {
    let options = request.options;
    let numbers = array_numbers(request.array, &inputs, options.missing)?;
    let headers: Vec<&VoltageHeader> = inputs.iter().map(|input| input.source.header()).collect();
    let cut: Vec<bool> = inputs.iter().map(|input| input.source.cut().is_some()).collect();
    let live: Vec<bool> = inputs.iter().map(|input| input.source.is_live()).collect();
    let recordings = Recordings::new(&headers, &cut, &live, options)?;
    let tracking = Tracking::new(request.array, &recordings.header, recordings.times, options)?;
    let model = delay_model(&request, &tracking, &recordings)?;
    if matches!(model, Model::None) {
        recordings.check_whole(&headers)?;
    }
    let shape =
        SpectraParameters::new(recordings, &headers, options, matches!(model, Model::None))?;
    let mut correlated = numbers.clone();
    correlated.sort_unstable();
    let baselines = select_baselines(request.array, &options.baselines, &correlated)?;
    let header = shape.header(&request, &correlated, &baselines, tracking.dut1_s);
    let threads = request.backend.host().threads();
    let owners = ranks.as_ref().and_then(Ranks::readers);
    let each: Vec<usize> = inputs.iter().map(|input| input.antennas.len()).collect();
    let owners = owners.map(|readers| owners_of(readers, &each, &numbers)).transpose()?;
    let part = Part::new(&shape, &correlated, owners.as_deref(), options, ranks.as_ref())?;
    let gulp = shape.fitting_gulp(&request, &part, baselines.len(), &inputs)?;
    let gulps = part.gulps(shape.spectra, gulp, ranks.as_mut())?;
    let sources = shape.sources(inputs);
    let formats = sample_formats(&sources, &numbers);
    let _kernels = shape.prefetch(request.backend, &part, &formats, gulps);
    let (plan, is_rank) = (part.plans.x_engine.clone(), part.form.is_some());
    let x_engine = XEngine::new(plan, shape.integration, request.backend, &threads, is_rank);
    // Ranks that share a GPU find what the X-engines of all leave of its memory.
    let x_engine = match &mut ranks {
        Some(ranks) => ranks.agree_on(x_engine)?,
        None => x_engine?,
    };
    let framing = shape.framing();
    let delays = Delays::new(model, header.spectrum_s / framing.hop as f64, framing);
    let buffer = match &mut ranks {
        Some(ranks) => shape.buffer_of_rank(request.backend, &part, &formats, gulps, ranks)?,
        None => shape.spectra_buffer(request.backend, &part, &formats, gulps)?,
    };
    let SpectraBuffer { spectra, capacity, to_ranks, not_on_device } = buffer;
    let mut antennas =
        shape.antennas(&request, &sources, &Numbers { all: &numbers, part: &part })?;
    if spectra.is_on_device() {
        antennas = antennas.into_iter().map(AntennaInput::on_device).collect();
    }
    let sources = shape.windowed_sources(sources, capacity, threads.count());
    let readout = part.readout;
    let divided = ranks.zip(to_ranks);
    let divided = divided.map(|(ranks, own)| Divided::new(ranks, own.form, own.on_device));
    let parts = Parts { sources, antennas, channels: shape.channels, delays, not_on_device };
    let f_engine = FEngine::new(parts, spectra, capacity, &threads);
    Ok(Built { header, tracking, f_engine, x_engine, readout, baselines, divided })
}

/// Array numbers of the recorded antennas.
struct Numbers<'a> {
    /// All, in the order of the recordings.
    all: &'a [usize],
    part: &'a Part,
}

impl SpectraParameters {
    fn new(
        recordings: Recordings,
        headers: &[&VoltageHeader],
        options: &CorrelateOptions,
        fixed: bool,
    ) -> Result<Self> {
        let header = &recordings.header;
        let divided = options.channelize.unwrap_or(header.filter.is_none());
        if !divided && !header.encoding.is_complex() {
            let rule = "real samples must be channelized";
            return Err(Error::parameter("encoding", format!("{:?}", header.encoding), rule));
        }
        let bank = divided.then(|| bank_plan(header, options)).transpose()?;
        let channels = Channels::new(header, bank.as_ref(), options.average_channels)?;
        let requested = encoding(options.nbits)?;
        check_precision(options.precision, options.nbits)?;
        let recorded = header.encoding;
        let exact =
            [VoltageEncoding::Complex4, VoltageEncoding::Complex8, VoltageEncoding::ComplexF32];
        let direct = !divided
            && fixed
            && options.gains == Gains::Auto
            && exact.contains(&recorded)
            && recorded.bits() <= requested.bits()
            && headers.iter().all(|other| other.encoding == recorded);
        let (hop, span) = bank.as_ref().map_or((1, 1), |plan| (plan.hop(), plan.span()));
        let times = recordings.times;
        let spectra = Framing { hop: hop as u64, span: span as u64 }.spectra(times);
        if spectra == 0 {
            let rule = format!(
                "a spectrum has {span} samples under its window (`taps`, `channelize.channels`), and {} has no more",
                header.path.display(),
            );
            return Err(Error::parameter("samples that all recordings have", times, rule));
        }
        let integration = integration_spectra(options, header, times, hop)?;
        let encoding = if direct { recorded } else { requested };
        Ok(Self { recordings, bank, channels, fixed, direct, encoding, spectra, integration })
    }

    /// Returns the division of samples into spectra.
    fn framing(&self) -> Framing {
        let (hop, span) = self.bank.as_ref().map_or((1, 1), |plan| (plan.hop(), plan.span()));
        Framing { hop: hop as u64, span: span as u64 }
    }

    /// Returns the requested spectra per gulp, or fewer if the memory limit requires it.
    ///
    /// # Errors
    /// [`Error::Unavailable`], with the required bytes, when a gulp of one spectrum exceeds the limit, or the system
    /// lacks memory.
    fn fitting_gulp(
        &self,
        request: &Request<'_>,
        part: &Part,
        baselines: usize,
        inputs: &[ArrayInput],
    ) -> Result<usize> {
        let mut gulp = request.options.gulp;
        let plan = &part.whole;
        let needed = Needed { baselines, windows: windows(request.array, part, inputs) };
        loop {
            let capacity = gulp_capacity(plan, self.spectra, gulp);
            let bytes = self.bytes(request.backend, part, gulp, &needed);
            let held = bytes.unwrap_or(usize::MAX);
            match remaining_bytes(request.options.memory, "the correlation", held, 0) {
                Ok(_) => {
                    let what = format!(
                        "{} antennas with {} polarizations and {} channels",
                        plan.antennas(),
                        plan.polarizations(),
                        plan.channels()
                    );
                    check_memory(&what, bytes)?;
                    return Ok(gulp);
                }
                Err(error) if capacity == 1 => return Err(error),
                Err(_) => gulp = capacity / 2,
            }
        }
    }

    /// Returns the bytes of the X-engine, a gulp, an integration and the messages to other ranks; `None` if the count
    /// overflows.
    fn bytes(&self, backend: &Backend, part: &Part, gulp: usize, needed: &Needed) -> Option<usize> {
        let plan = &part.whole;
        let mut together = gulp_capacity(plan, self.spectra, gulp);
        let capacity = together;
        let own = &part.plans.f_engine;
        let on_device = part.capacity_on_device(self.spectra, gulp);
        if backend.is_gpu() {
            together = together.max(on_device);
        }
        let row = own.inputs() * own.channels() * self.encoding.sample_bits() / 8;
        let channels = plan.channels() / self.channels.average;
        let visibilities = (needed.baselines * channels).checked_mul(16 * plan.pairs() + 8)?;
        let messages = match &part.form {
            // A host without enough memory for a GPU's messages has smaller gulps.
            Some(form) if backend.is_gpu() => {
                let of_host = form.bytes(capacity, visibilities)?;
                of_host.max(form.on_device().bytes(on_device, visibilities)?)
            }
            Some(form) => form.bytes(capacity, visibilities)?,
            None => capacity.checked_mul(row)?,
        };
        let Framing { hop, span } = self.framing();
        let times = together.checked_mul(hop as usize)?.checked_add(span as usize)?;
        let windows = needed.windows.iter().map(|bits| bits.checked_mul(times).map(|all| all / 8));
        let parts = [
            XEngine::bytes(&part.plans.x_engine, capacity, backend),
            // One integration is written while the next is summed.
            visibilities.checked_mul(2),
            Some(messages),
        ];
        let all = parts.into_iter().chain(windows);
        all.reduce(|sum, part| sum?.checked_add(part?)).flatten()
    }

    /// Starts to compile the kernels of all stages on a GPU and its peers. Errors are left to the stages.
    fn prefetch(
        &self,
        backend: &Backend,
        part: &Part,
        formats: &[SampleFormat],
        gulps: Gulps,
    ) -> Prefetch {
        let Backend::Cuda(device, _) = backend else { return Prefetch::default() };
        let devices: Vec<Device> = device.joined().cloned().collect();
        let mut sources = vec![Vec::new(); devices.len()];
        let mut extend = |lists: Result<Vec<Vec<Source>>>| {
            let lists = lists.unwrap_or_default();
            sources.iter_mut().zip(lists).for_each(|(all, list)| all.extend(list));
        };
        extend(XEngine::sources(&part.plans.x_engine, &devices));
        let config = self.device_config(&part.whole, formats, gulps.on_device);
        extend(match &part.form {
            None => OnDevice::sources(&devices, &config),
            Some(form) => DeviceFEngine::sources(device, &config, &form.division().antennas())
                .map(|own| vec![own]),
        });
        device.prefetch_each(move |_| sources)
    }

    fn device_config<'a>(
        &'a self,
        plan: &'a correlate::Plan,
        formats: &'a [SampleFormat],
        capacity: usize,
    ) -> DeviceConfig<'a> {
        DeviceConfig {
            plan,
            channels: &self.channels,
            bank: self.bank.as_ref(),
            fixed: self.fixed,
            direct: self.direct,
            formats,
            capacity,
        }
    }

    /// Allocates the spectra of a gulp: on the GPUs, or on the host if a GPU's memory or the filter bank's library is
    /// missing.
    fn spectra_buffer(
        &self,
        backend: &Backend,
        part: &Part,
        formats: &[SampleFormat],
        gulps: Gulps,
    ) -> Result<SpectraBuffer> {
        let (plan, to_ranks) = (&part.whole, None);
        let mut not_on_device = None;
        if backend.is_gpu() {
            let capacity = gulps.on_device;
            match OnDevice::new(backend, &self.device_config(plan, formats, capacity)) {
                Ok(made) => {
                    let spectra = Spectra::Device(Box::new(made));
                    return Ok(SpectraBuffer { spectra, capacity, to_ranks, not_on_device });
                }
                Err(error @ Error::Unavailable { .. }) => not_on_device = Some(error.to_string()),
                Err(error) => return Err(error),
            }
        }
        let capacity = gulps.on_host;
        let streams = plan.inputs() * plan.channels();
        let row = streams * self.encoding.sample_bits() / 8;
        let spectra = match self.direct {
            true => Spectra::Streams(VoltageBlock::new(self.encoding, streams, capacity)),
            false => Spectra::Rows(vec![0; capacity * row]),
        };
        Ok(SpectraBuffer { spectra, capacity, to_ranks, not_on_device })
    }

    /// Allocates the spectra of a gulp of a rank, and the messages: on its GPU and for GPUs if all ranks can, else on the host.
    ///
    /// # Errors
    /// [`Error::Device`] when the driver of a GPU fails; the errors of other ranks.
    fn buffer_of_rank(
        &self,
        backend: &Backend,
        part: &Part,
        formats: &[SampleFormat],
        gulps: Gulps,
        ranks: &mut Ranks,
    ) -> Result<SpectraBuffer> {
        let Some(form) = &part.form else {
            return self.spectra_buffer(backend, part, formats, gulps);
        };
        let (made, why) = match self.device_of_rank(backend, part, form, formats, gulps) {
            Ok(made) => (Some(made), String::new()),
            Err(error @ Error::Unavailable { .. }) => (None, error.to_string()),
            Err(error) => return Err(error),
        };
        let reasons = ranks.share(Ok(why.into_bytes()))?;
        let lacking = reasons.iter().position(|why| !why.is_empty());
        if let (Some(OfRank { spectra, to_ranks }), None) = (made, lacking) {
            let (capacity, to_ranks) = (gulps.on_device, Some(to_ranks));
            return Ok(SpectraBuffer { spectra, capacity, to_ranks, not_on_device: None });
        }
        let form = Arc::new(form.clone());
        let spectra = Spectra::Messages(Messages::new(Arc::clone(&form)));
        let why = lacking
            .filter(|_| backend.is_gpu())
            .map(|rank| format!("rank {rank}: {}", String::from_utf8_lossy(&reasons[rank])));
        let to_ranks = Some(ToRanks { form, on_device: None });
        Ok(SpectraBuffer { spectra, capacity: gulps.on_host, to_ranks, not_on_device: why })
    }

    /// Allocates the F-engine of a rank on its GPU, and the messages of GPUs.
    ///
    /// # Errors
    /// [`Error::Unavailable`] without a GPU, or memory on it, page-locked memory, NVRTC or cuFFT; [`Error::Device`] when the driver
    /// fails.
    fn device_of_rank(
        &self,
        backend: &Backend,
        part: &Part,
        form: &MessageForm,
        formats: &[SampleFormat],
        gulps: Gulps,
    ) -> Result<OfRank> {
        let device = match backend {
            Backend::Cuda(device, _) if device.peers().is_empty() => device,
            _ => {
                let why = format!("it computes on {}", backend.name());
                return Err(Error::Unavailable { what: "one GPU".to_owned(), why });
            }
        };
        let (form, capacity) = (Arc::new(form.on_device()), gulps.on_device);
        let config = self.device_config(&part.whole, formats, capacity);
        let allocate = || {
            let threads = backend.host().threads();
            let sender = DeviceSender::new(device, &config, &form, &threads)?;
            let message = |_| Messages::on_device(Arc::clone(&form), device, capacity);
            let messages = (0..GULPS).map(message).collect::<Result<_>>()?;
            let receiver = DeviceReceiver::new(device, &form, capacity)?;
            Ok((sender, DeviceCornerTurn { messages, receiver }))
        };
        let made: Result<(DeviceSender, DeviceCornerTurn)> = allocate();
        let (sender, own) = made.map_err(|error| error.on_device(device.ordinal()))?;
        let spectra = Spectra::Sent(Box::new(sender));
        Ok(OfRank { spectra, to_ranks: ToRanks { form, on_device: Some(own) } })
    }

    fn header(
        &self,
        request: &Request<'_>,
        correlated: &[usize],
        baselines: &[Baseline],
        dut1_s: f64,
    ) -> ArrayHeader {
        let recorded = &self.recordings.header;
        let antennas = request.array.antennas.len();
        ArrayHeader {
            array: request.array.clone(),
            present: (0..antennas).map(|i| correlated.binary_search(&i).is_ok()).collect(),
            baselines: baselines.iter().map(|baseline| baseline.antennas).collect(),
            polarizations: recorded.polarizations,
            circular: recorded.circular == Some(true),
            frequencies_hz: self.channels.centres_hz.to_vec(),
            channel_width_hz: self.channels.width_hz,
            average_channels: self.channels.average,
            start: recorded.start,
            spectrum_s: self.framing().hop as f64 * recorded.tsamp_s,
            window_s: self.framing().span as f64 * recorded.tsamp_s,
            spectra: self.spectra,
            integration_spectra: self.integration,
            integrations: self.spectra.div_ceil(self.integration),
            phase_centre: request.options.phase_centre.clone(),
            dut1_s,
            source_name: recorded.source_name.clone(),
            bank: BankHeader {
                channelized_here: self.bank.is_some(),
                channels: self.channels.fine,
                taps: self.bank.as_ref().map_or(0, channelize::Plan::taps),
                window: self.bank.as_ref().map_or(String::new(), |p| p.options().window.name()),
                nbits: self.encoding.bits(),
                precision: match request.backend.is_gpu() {
                    true => request.options.precision,
                    false => correlate::Precision::F32,
                },
                as_recorded: self.direct,
                sample_rate_hz: 1.0 / recorded.tsamp_s,
            },
        }
    }

    /// Returns the sources, unpacked where windows may begin at samples that are not on byte boundaries.
    fn sources(&self, inputs: Vec<ArrayInput>) -> Vec<Box<dyn VoltageSource>> {
        let hop = self.framing().hop;
        let sources = inputs.into_iter().zip(&self.recordings.offsets).map(|(input, offset)| {
            let source = input.source;
            let step = source.header().encoding.group_samples() as u64;
            let whole = offset.is_multiple_of(step) && hop.is_multiple_of(step);
            if self.fixed && whole { source } else { unpacked(source) }
        });
        sources.collect()
    }

    fn windowed_sources(
        &self,
        sources: Vec<Box<dyn VoltageSource>>,
        capacity: usize,
        threads: usize,
    ) -> Sources {
        let Recordings { lengths, offsets, times, .. } = &self.recordings;
        let framing = self.framing();
        let sources = sources.into_iter().zip(lengths).zip(offsets);
        let mut cut = None;
        let readers = sources.map(|((source, length), offset)| {
            if offset + times >= *length {
                cut = cut.take().or_else(|| truncation(&*source));
            }
            let gulp = read_times(source.header(), capacity, framing);
            Reader::new(source, *length, gulp, framing.span)
        });
        let readers = readers.collect();
        Sources::new(readers, cut, threads)
    }

    /// Builds the antennas of this process, by ascending array number.
    fn antennas(
        &self,
        request: &Request<'_>,
        sources: &[Box<dyn VoltageSource>],
        numbers: &Numbers<'_>,
    ) -> Result<Vec<AntennaInput>> {
        let (channels, options) = (&self.channels, request.options);
        let backend = match &request.backend.host() {
            Host::Reference => Backend::Reference,
            Host::Cpu(level, _) => Backend::Cpu(*level, Threads::new(1)),
        };
        let table = GainTable::new(
            &options.gains,
            request.array.antennas.len(),
            &self.recordings,
            channels,
        )?;
        let mut antennas = Vec::new();
        let Numbers { all, part } = numbers;
        let mut numbers = all.iter();
        for (recording, source) in sources.iter().enumerate() {
            let header = source.header();
            let each = header.coarse_channels() * header.polarizations;
            for (antenna, number) in (0..header.antennas).zip(numbers.by_ref()) {
                if part.antennas.binary_search(number).is_err() {
                    continue;
                }
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
                let flags = Flags::new(source.flags().iter(), &place.streams, header.polarizations);
                let bank = self.bank(header, &backend)?;
                let gains = match self.direct {
                    true => GainSource::Fixed((1.0 / header.scale) as f32),
                    false => GainSource::new(&options.gains, &table, *number),
                };
                let gains = GainControl::new(header.polarizations, channels, self.encoding, gains);
                antennas.push(AntennaInput::new(place, bank, flags, gains, &backend));
            }
        }
        antennas.sort_by_key(|antenna: &AntennaInput| antenna.location.antenna);
        Ok(antennas)
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

/// Sizes that the memory depends on, besides the plans.
struct Needed {
    baselines: usize,
    /// Bits of each sample of the recordings that are read, in all their windows.
    windows: Vec<usize>,
}

/// Returns the bits of a sample of all streams, in both windows, of each recording that is read here.
fn windows(array: &Array, part: &Part, inputs: &[ArrayInput]) -> Vec<usize> {
    let is_own = |name: &String| {
        array.find(name).is_some_and(|number| part.antennas.binary_search(&number).is_ok())
    };
    let read = inputs.iter().filter(|input| input.antennas.iter().any(is_own));
    // One window is in use while the next is read.
    let bits =
        |header: &VoltageHeader| header.streams() * 2 * header.encoding.unpacked().sample_bits();
    read.map(|input| bits(input.source.header())).collect()
}

/// Returns the sample format of each antenna, by ascending array number.
fn sample_formats(sources: &[Box<dyn VoltageSource>], numbers: &[usize]) -> Vec<SampleFormat> {
    let formats = sources.iter().flat_map(|source| {
        let header = source.header();
        let format = SampleFormat { encoding: header.encoding, scale: header.scale };
        std::iter::repeat_n(format, header.antennas)
    });
    let mut all: Vec<(usize, SampleFormat)> = numbers.iter().copied().zip(formats).collect();
    all.sort_by_key(|(number, _)| *number);
    all.into_iter().map(|(_, format)| format).collect()
}

/// Target bytes of spectra per gulp, within the limits on the number of spectra.
const GULP_BYTES: usize = 64 << 20;

/// Largest number of spectra per gulp.
const MAX_GULP: usize = 1024;

/// Minimum number of spectra per gulp for 64 inputs or more: the X-engine reads and writes its sums, whose number grows
/// as inputs squared, once per gulp.
const MIN_GULP: usize = 256;

/// Upper bound in bytes on the spectra of a gulp, even for a requested gulp.
const MAX_GULP_BYTES: usize = 4 << 30;

/// Bytes per read of a recording.
const READ_BYTES: usize = 1 << 20;

/// Target bytes of a device's filter-bank output per gulp.
const DEVICE_BYTES: usize = 1 << 30;

/// Largest number of spectra per gulp on a device, unless more are requested.
const MAX_DEVICE_GULP: usize = 1 << 14;

/// Upper bound on the spectra per gulp on a device: with 32-bit spectra each thread block covers 32 spectra, and the
/// grid of a launch has at most 65535 blocks along the axis of time.
const MAX_LAUNCH_GULP: usize = 65_535 * 32;

/// Returns the spectra per gulp, at most `spectra`; `gulp` is the requested number, or 0.
fn gulp_capacity(plan: &correlate::Plan, spectra: u64, gulp: usize) -> usize {
    let row = plan.inputs() * plan.channels() * plan.encoding().sample_bits() / 8;
    let fewest = (4 * plan.inputs()).clamp(16, MIN_GULP);
    bounded(gulp, (GULP_BYTES / row).clamp(fewest, MAX_GULP), row, spectra)
}

/// Like [`gulp_capacity`], for a device, which holds spectra of `samples` in single precision before requantization.
fn gulp_capacity_on_device(samples: usize, spectra: u64, gulp: usize) -> usize {
    let row = 8 * samples;
    let automatic = (DEVICE_BYTES / row).clamp(16, MAX_DEVICE_GULP);
    bounded(gulp, automatic, row, spectra).min(MAX_LAUNCH_GULP)
}

/// Returns the requested number of spectra, or else the automatic one in whole words of the mask, within the limits of
/// the bytes of a gulp and of the stream's length.
fn bounded(gulp: usize, automatic: usize, row: usize, spectra: u64) -> usize {
    let automatic = if automatic < 64 { automatic } else { automatic / 64 * 64 };
    let wanted = if gulp == 0 { automatic } else { gulp };
    wanted.min((MAX_GULP_BYTES / row).max(1)).min(usize::try_from(spectra).unwrap_or(MAX_GULP))
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
    let (request, spectrum) = (options.integration_s, hop as f64 * header.tsamp_s);
    if !(request.is_finite() && request > 0.0) {
        return Err(Error::parameter("integration_s", request, "it must be above 0"));
    }
    // Relative error of a recording's length due to the rounding of the rate in its header.
    const ROUNDING: f64 = 1e-9;
    let whole = (times / hop as u64).max(1);
    let spectra = (request / spectrum).round().clamp(1.0, whole as f64);
    if request > times as f64 * header.tsamp_s * (1.0 + ROUNDING) {
        let rule = format!(
            "{} and the other recordings have {:.6} s in common",
            header.path.display(),
            times as f64 * header.tsamp_s,
        );
        return Err(Error::parameter("integration_s", request, rule));
    }
    Ok(spectra as u64)
}

/// Describes the truncation of a recording, if it is truncated.
fn truncation(source: &dyn VoltageSource) -> Option<String> {
    let (why, path) = (source.cut()?, source.header().path.display().to_string());
    Some(if why.contains(&path) { why.to_owned() } else { format!("{path}: {why}") })
}

/// Returns the samples per read of a recording.
fn read_times(header: &VoltageHeader, capacity: usize, framing: Framing) -> usize {
    let all = capacity as u64 * framing.hop + framing.span;
    let fitting = READ_BYTES * 8 / header.sample_bits();
    fitting.max(1024).min(usize::try_from(all).unwrap_or(fitting))
}
