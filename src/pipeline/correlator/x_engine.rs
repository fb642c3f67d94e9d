//! Corner turn, X-engine and readout of visibilities.
//!
//! Invariant: output sums are those of the sky's voltages, without measured or fixed gains.

use std::ops::Range;
use std::time::Instant;

use num_complex::Complex;

use super::f_engine::Supply;
use super::options::Integration;
use super::peers::{DeviceSupply, share};
use super::recordings::{Baseline, Channels};
use crate::backend::Backend;
use crate::backend::cuda::{Device, Source};
use crate::backend::threads::Threads;
use crate::correlate::{self, BlockBuffer, CornerTurn, Correlator, Options, Output, Plan};
use crate::error::Result;
use crate::trace::{self, Work};
use crate::voltage::VoltageEncoding;

/// Bytes of sums per readout block.
const READ_BYTES: usize = 8 << 20;

/// Chunks of baselines per thread during readout.
const SHARES: usize = 4;

/// Corner turn and X-engine, of which a GPU and its peers have a share of the channels each.
pub(super) struct XEngine {
    plan: Plan,
    /// Corner turn and its buffer; created when the host first supplies spectra.
    corner_turn: Option<(CornerTurn, BlockBuffer)>,
    backend: Backend,
    /// By ascending channels.
    shares: Vec<Share>,
    threads: Threads,
    sums: Sums,
    counts: Vec<u64>,
    /// Seconds of the corner turn, the X-engine and the readout.
    pub(super) elapsed_s: [f64; 3],
}

/// Correlator of some channels on one device.
struct Share {
    channels: Range<usize>,
    correlator: Correlator,
    /// GPU that errors name; `None` if it is the only one of a single process.
    named: Option<Device>,
}

/// Readout buffer; axes channel, baseline, pair.
enum Sums {
    Integer(Vec<Complex<i64>>),
    Float(Vec<Complex<f64>>),
}

/// Part of an integration that belongs to one baseline.
struct Row<'a> {
    baseline: &'a Baseline,
    /// Axes channel, pair.
    sums: &'a mut [Complex<f64>],
    counts: &'a mut [u64],
}

impl XEngine {
    /// Builds the X-engine of a plan for integrations of `integration` spectra; errors name the GPU if there are several, and if
    /// `is_rank`.
    ///
    /// # Errors
    /// As [`Correlator::new`] and [`Correlator::reserve`].
    pub(super) fn new(
        plan: Plan,
        integration: u64,
        backend: &Backend,
        threads: &Threads,
        is_rank: bool,
    ) -> Result<Self> {
        let together = together(&plan);
        let elements = together * plan.row_elements();
        let sums = match plan.encoding() {
            VoltageEncoding::ComplexF32 => Sums::Float(vec![Complex::ZERO; elements]),
            _ => Sums::Integer(vec![Complex::ZERO; elements]),
        };
        let counts = vec![0; together * plan.baselines()];
        let devices = backend.shares();
        let count = devices.len().min(plan.channels());
        let mut shares = Vec::with_capacity(count);
        for (index, device) in devices[..count].iter().enumerate() {
            let channels = share(plan.channels(), index, count);
            let mut own = Share::new(&plan, channels, device, devices.len() == 1 && !is_rank)?;
            own.run(|correlator| correlator.reserve(integration))?;
            shares.push(own);
        }
        Ok(Self {
            plan,
            corner_turn: None,
            backend: backend.clone(),
            counts,
            shares,
            threads: threads.clone(),
            sums,
            elapsed_s: [0.0; 3],
        })
    }

    /// Lists the kernels of each GPU's share of the channels.
    ///
    /// # Errors
    /// As [`Plan::new`].
    pub(super) fn sources(plan: &Plan, devices: &[Device]) -> Result<Vec<Vec<Source>>> {
        let count = devices.len().min(plan.channels());
        let own = |(index, device): (usize, &Device)| {
            let channels = share(plan.channels(), index, count);
            Ok(correlate::sources(&plan_of(plan, &channels)?, device))
        };
        devices[..count].iter().enumerate().map(own).collect()
    }

    /// Returns the plan.
    pub(super) fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Returns the host memory in bytes; none if the count overflows.
    pub(super) fn bytes(plan: &Plan, capacity: usize, backend: &Backend) -> Option<usize> {
        let read = together(plan) * (16 * plan.row_elements() + 8 * plan.baselines());
        let mask = plan.channels() * plan.antennas() * Plan::mask_words(capacity) * 8;
        let packed = plan.channels() * plan.panels();
        let packed = packed.checked_mul(plan.panel_bytes(capacity))?;
        let own = read.checked_add(mask)?.checked_add(packed)?;
        // A GPU holds its own sums and reports its own lack of memory.
        if backend.is_gpu() {
            Some(own)
        } else {
            Correlator::bytes(plan, backend)?.checked_add(own)
        }
    }

    /// Accumulates `times` spectra, of at most `capacity` in any call.
    ///
    /// # Errors
    /// Those of [`CornerTurn::run`], [`Correlator::run`] and [`Correlator::enqueue`].
    pub(super) fn run(&mut self, supply: Supply<'_>, times: usize, capacity: usize) -> Result<()> {
        let begin = Instant::now();
        match supply {
            Supply::Host { spectra, mask } => {
                let (corner_turn, buffer) = self.corner_turn.get_or_insert_with(|| {
                    let corner_turn = CornerTurn::new(self.plan.clone(), &self.backend);
                    (corner_turn, BlockBuffer::new(&self.plan, capacity))
                });
                buffer.set_times(times)?;
                let span = trace::span(Work::Compute, "corner turn");
                corner_turn.run(spectra, buffer)?;
                if let Some(fill) = mask {
                    fill(buffer.mask_mut());
                }
                drop(span);
                let turned = Instant::now();
                let on_host = !self.backend.is_gpu();
                let span = on_host.then(|| trace::span(Work::Compute, "X-engine"));
                for share in &mut self.shares {
                    let block = buffer.block().channels(&self.plan, share.channels.clone())?;
                    share.run(|correlator| correlator.run(block))?;
                }
                drop(span);
                self.elapsed_s[0] += (turned - begin).as_secs_f64();
                self.elapsed_s[1] += turned.elapsed().as_secs_f64();
            }
            Supply::Device(spectra) => {
                for (share, supply) in self.shares.iter_mut().zip(spectra.supplies()) {
                    share.enqueue(supply)?;
                }
                self.elapsed_s[1] += begin.elapsed().as_secs_f64();
            }
            Supply::Received(supply) => {
                if let Some(share) = self.shares.first_mut() {
                    share.enqueue(Ok(supply))?;
                }
                self.elapsed_s[1] += begin.elapsed().as_secs_f64();
            }
        }
        Ok(())
    }

    /// Writes the sums since the last readout and clears the accumulators.
    ///
    /// # Errors
    /// As [`Correlator::read`].
    pub(super) fn read(
        &mut self,
        scales: &Scales<'_>,
        baselines: &[Baseline],
        integration: &mut Integration,
    ) -> Result<()> {
        let begin = Instant::now();
        let plan = self.plan.clone();
        let channels = scales.readout.outputs;
        integration.resize(baselines.len(), channels, plan.pairs());
        let rows = integration.sums.chunks_exact_mut(channels * plan.pairs());
        let rows = rows.zip(integration.counts.chunks_exact_mut(channels)).zip(baselines);
        let mut rows: Vec<Row<'_>> =
            rows.map(|((sums, counts), baseline)| Row { baseline, sums, counts }).collect();
        let together = self.counts.len() / plan.baselines();
        let share = rows.len().div_ceil(SHARES * self.threads.count());
        let mut scratch = vec![(); self.threads.count()];
        // Thousands of baselines have as many bytes as a gulp.
        self.threads.for_each(&mut rows, share, |_, rows| rows.iter_mut().for_each(Row::clear));
        for (index, part) in self.parts(together) {
            self.read_part(index, &part)?;
            let _span = trace::span(Work::Compute, "readout");
            let (own, counts) = (&self.sums, &self.counts);
            self.threads.for_each_chunk(&mut scratch, &mut rows, share, |(), _, rows| {
                rows.iter_mut().for_each(|row| row.add(own, counts, &part, scales));
            });
        }
        self.shares.iter_mut().for_each(|share| share.correlator.reset());
        self.elapsed_s[2] += begin.elapsed().as_secs_f64();
        Ok(())
    }

    /// Returns the channels in parts of at most `most`, each with the index of its share.
    fn parts(&self, most: usize) -> Vec<(usize, Range<usize>)> {
        let of_share = |(index, share): (usize, &Share)| {
            let Range { start, end } = share.channels;
            (start..end).step_by(most).map(move |first| (index, first..(first + most).min(end)))
        };
        self.shares.iter().enumerate().flat_map(of_share).collect()
    }

    /// Reads the sums of channels of one share.
    fn read_part(&mut self, share: usize, part: &Range<usize>) -> Result<()> {
        let elements = part.len() * self.plan.row_elements();
        let counts = part.len() * self.plan.baselines();
        let output = match &mut self.sums {
            Sums::Integer(sums) => Output::Integer(&mut sums[..elements]),
            Sums::Float(sums) => Output::Float(&mut sums[..elements]),
        };
        let share = &mut self.shares[share];
        let own = part.start - share.channels.start..part.end - share.channels.start;
        let counts = &mut self.counts[..counts];
        share.run(|correlator| correlator.read(own, output, counts))
    }
}

/// Returns the plan of some channels.
fn plan_of(plan: &Plan, channels: &Range<usize>) -> Result<Plan> {
    let options = Options { channels: channels.len(), ..plan.options().clone() };
    Ok(Plan::new(options)?.with_precision(plan.precision()))
}

impl Share {
    fn new(plan: &Plan, channels: Range<usize>, device: &Backend, is_alone: bool) -> Result<Self> {
        let own = plan_of(plan, &channels)?;
        let named = match device {
            Backend::Cuda(device, _) if !is_alone => Some(device.clone()),
            _ => None,
        };
        let correlator = Correlator::new(own, device).map_err(|error| match &named {
            Some(device) => error.on_device(device.ordinal()),
            None => error,
        })?;
        Ok(Self { channels, correlator, named })
    }

    /// Enqueues the products of spectra in the memory of its GPU.
    fn enqueue(&mut self, supply: Result<DeviceSupply<'_>>) -> Result<()> {
        self.run(|correlator| {
            let DeviceSupply { spectra, layout, valid, stream } = supply?;
            correlator.enqueue(spectra, layout, valid, stream)
        })
    }

    /// Calls `work`, in whose error a GPU among several is named.
    fn run(&mut self, work: impl FnOnce(&mut Correlator) -> Result<()>) -> Result<()> {
        let named = self.named.as_ref();
        work(&mut self.correlator).map_err(|error| match named {
            Some(device) => error.on_device(device.ordinal()),
            None => error,
        })
    }
}

/// Returns the number of channels per readout block.
fn together(plan: &Plan) -> usize {
    (READ_BYTES / (16 * plan.row_elements())).clamp(1, plan.channels())
}

/// Output channels of correlated channels.
#[derive(Clone, Debug)]
pub(super) struct Readout {
    /// Output channel of each correlated channel.
    places: Vec<usize>,
    /// Number of output channels.
    outputs: usize,
    /// Whether the voltages are complex conjugates of the sky's.
    is_conjugate: bool,
}

impl Readout {
    /// Reads out all channels.
    pub(super) fn new(channels: &Channels) -> Self {
        let all = 0..channels.order.len();
        Self::part(channels, &[all], &(0..channels.centres_hz.len()))
    }

    /// Reads out the correlated channels of some runs, which are those of the output channels `outputs`.
    pub(super) fn part(channels: &Channels, runs: &[Range<usize>], outputs: &Range<usize>) -> Self {
        let mut places = vec![0; channels.order.len()];
        for (rank, channel) in channels.order.iter().enumerate() {
            places[*channel] = rank / channels.average;
        }
        let own = runs.iter().flat_map(|run| &places[run.clone()]);
        let places = own.map(|place| place - outputs.start).collect();
        Self { places, outputs: outputs.len(), is_conjugate: channels.is_conjugate }
    }
}

/// Conversion of correlated sums to output visibilities.
pub(super) struct Scales<'a> {
    plan: &'a Plan,
    readout: &'a Readout,
    /// Inverse gains; axes antenna, polarization, channel. None: all are 1.
    inverse: Option<Vec<f64>>,
}

impl<'a> Scales<'a> {
    /// Converts sums of a plan; `inverse` are the gains to divide by.
    pub(super) fn new(plan: &'a Plan, readout: &'a Readout, inverse: Option<Vec<f64>>) -> Self {
        Self { plan, readout, inverse }
    }

    /// Returns the factor for one polarization pair of a baseline in a channel.
    fn scale(&self, i: usize, j: usize, pair: usize, channel: usize) -> f64 {
        let Some(inverse) = &self.inverse else { return 1.0 };
        let (polarizations, channels) = (self.plan.polarizations(), self.plan.channels());
        let own = |antenna: usize, polarization: usize| {
            inverse[(antenna * polarizations + polarization) * channels + channel]
        };
        own(i, pair / polarizations) * own(j, pair % polarizations)
    }
}

impl Row<'_> {
    fn clear(&mut self) {
        self.sums.fill(Complex::ZERO);
        self.counts.fill(0);
    }

    /// Adds the correlated channels `part`.
    fn add(&mut self, sums: &Sums, counts: &[u64], part: &Range<usize>, scales: &Scales<'_>) {
        let Some((i, j)) = self.baseline.correlated else { return };
        let (plan, at) = (scales.plan, Plan::baseline(i, j));
        let pairs = plan.pairs();
        for channel in part.clone() {
            let row = channel - part.start;
            let place = scales.readout.places[channel];
            self.counts[place] += counts[row * plan.baselines() + at];
            let first = (row * plan.baselines() + at) * pairs;
            for (pair, out) in self.sums[place * pairs..][..pairs].iter_mut().enumerate() {
                let value = match sums {
                    Sums::Integer(sums) => {
                        let z = sums[first + pair];
                        Complex::new(z.re as f64, z.im as f64)
                    }
                    Sums::Float(sums) => sums[first + pair],
                };
                let value = if scales.readout.is_conjugate { value.conj() } else { value };
                *out += value * scales.scale(i, j, pair, channel);
            }
        }
    }
}
